/* report.c - what a simulated run needs, as text or JSON.
 *
 *   gpt2: peak 5.12 GiB allocated of 5.43 GiB reserved, in the backward of step 4 (log-softmax).
 *     parameters  124,439,808
 *
 *     what           bytes   share
 *     activation  2.93 GiB  57.1 %
 *     ...
 *
 *     phase    its peak  step  while
 *     forward  4.88 GiB     3  nll loss
 *     ...
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/format.h"
#include "emit/emitter.h"
#include "emit/heading.h"
#include "questions/outside.h"
#include "questions/reports.h"
#include "questions/simulate/profile.h"

static void append_moment(tsr__buffer *out, const tsr_simulate_moment *moment) {
  char step[TSR__FORMAT_BYTES];
  if (moment->step == 0) {
    tsr__buffer_text(out, "before the first step");
    return;
  }
  tsr__buffer_printf(out, "in the %s of step %s", moment->phase,
                     tsr__format_count(moment->step, step));
  if (moment->op[0]) tsr__buffer_printf(out, " (%s)", moment->op);
}

static void append_fits(tsr__buffer *out, const tsr_simulation *s, uint64_t capacity) {
  char peak[TSR__FORMAT_BYTES], reserved[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES];
  if (capacity) tsr__buffer_printf(out, "fits in %s", tsr__format_size(capacity, size));
  if (s->card_lacks)
    tsr__buffer_printf(out, "%s%s on an %s", capacity ? ", but " : "", s->card_lacks,
                       s->card_title);
  if (capacity || s->card_lacks) tsr__buffer_text(out, ": ");
  tsr__buffer_printf(out, "peak %s allocated of %s reserved, ",
                     tsr__format_size(s->peak.totals.allocated_bytes, peak),
                     tsr__format_size(s->peak_reserved_bytes, reserved));
  append_moment(out, &s->peak);
}

static void append_out_of_memory(tsr__buffer *out, const tsr_simulation *s, uint64_t capacity) {
  char held[TSR__FORMAT_BYTES], request[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "does not fit in %s", tsr__format_size(capacity, size));
  if (tsr__outside_lowers(&s->outside))
    tsr__buffer_printf(out, ", of which PyTorch can have %s",
                       tsr__format_size(s->outside.share_bytes, size));
  tsr__buffer_text(out, ": it runs out of memory ");
  append_moment(out, &s->out_of_memory);
  tsr__buffer_printf(out, ", requesting %s", tsr__format_size(s->oom_request_bytes, request));
  if (s->oom_segment_bytes / 2 >= s->oom_request_bytes)
    tsr__buffer_printf(out, " (a segment of %s)", tsr__format_size(s->oom_segment_bytes, size));
  tsr__buffer_printf(out, " with %s allocated",
                     tsr__format_size(s->out_of_memory.totals.allocated_bytes, held));
}

static void print_verdict(tsr__emitter *emitter, const char *model, const tsr_simulation *s,
                          uint64_t capacity) {
  char count[TSR__FORMAT_BYTES];
  if (!tsr__emitter_is_text(emitter)) return;
  tsr__buffer *out = &emitter->scratch;
  tsr__buffer_printf(out, "%s: ", model);
  if (s->is_out_of_memory)
    append_out_of_memory(out, s, capacity);
  else
    append_fits(out, s, capacity);
  tsr__buffer_text(out, ".");
  tsr__emit_line(emitter, TSR__VERDICT, 0);
  tsr__emit_field(emitter, NULL, "parameters",
                  tsr__string(tsr__format_count(s->parameter_count, count)));
}

size_t tsr__sort_categories(const tsr_simulate_moment *moment, tsr_category *categories) {
  size_t count = 0;
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++) {
    if (!moment->category_bytes[i]) continue;
    size_t at = count++;
    for (; at && moment->category_bytes[categories[at - 1]] < moment->category_bytes[i]; at--)
      categories[at] = categories[at - 1];
    categories[at] = (tsr_category)i;
  }
  return count;
}

/* Shares are of what was requested, as in `profile`. */
static void emit_categories(tsr__emitter *emitter, const tsr_simulate_moment *moment) {
  static const tsr__column columns[] = {
      {"name", "what", TSR__CATEGORY},
      {"bytes", "bytes", TSR__RIGHT},
      {NULL, "share", TSR__RIGHT},
  };
  tsr_category categories[TSR_CATEGORY_COUNT];
  size_t count = tsr__sort_categories(moment, categories);
  uint64_t requested = moment->totals.requested_bytes;
  tsr__emit_table(emitter, "categories", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < count; i++) {
    uint64_t bytes = moment->category_bytes[categories[i]];
    tsr__emit_row(emitter, (tsr__cell[]){tsr__string(tsr_category_name(categories[i])),
                                         tsr__bytes(bytes), tsr__percent(bytes, requested)});
    tsr__emit_row_end(emitter);
  }
  uint64_t lost = tsr__drop_u64(moment->totals.allocated_bytes, requested);
  tsr__emit_row(
      emitter, (tsr__cell[]){tsr__string("rounding and tails"), tsr__bytes(lost), tsr__string("")});
  tsr__emit_row_end(emitter);
  tsr__emit_table_end(emitter);
}

static void emit_moment(tsr__emitter *emitter, const char *key, const tsr_simulate_moment *moment) {
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_object(emitter, key);
  tsr__emit_field(emitter, "event", NULL, tsr__index(moment->event));
  tsr__emit_field(emitter, "step", NULL, tsr__count(moment->step));
  tsr__emit_field(emitter, "phase", NULL, tsr__string(moment->phase));
  tsr__emit_field(emitter, "op", NULL, tsr__string(moment->op));
  tsr__emit_field(emitter, "requested_bytes", NULL, tsr__bytes(moment->totals.requested_bytes));
  tsr__emit_field(emitter, "allocated_bytes", NULL, tsr__bytes(moment->totals.allocated_bytes));
  tsr__emit_field(emitter, "active_bytes", NULL, tsr__bytes(moment->totals.active_bytes));
  tsr__emit_field(emitter, "reserved_bytes", NULL, tsr__bytes(moment->totals.reserved_bytes));
  tsr__emit_end(emitter);
}

static void emit_phases(tsr__emitter *emitter, const tsr_simulation *s) {
  static const char *const names[] = {"forward", "backward", "optimizer", "evaluation"};
  static const tsr__column columns[] = {
      {"name", "phase", TSR__LEFT},
      {"allocated_bytes", "its peak", TSR__RIGHT},
      {"requested_bytes", NULL, TSR__RIGHT},
      {"step", "step", TSR__RIGHT},
      {"op", "while", TSR__LEFT},
  };
  tsr__emit_space(emitter);
  tsr__emit_table(emitter, "phases", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < TSR_SIMULATE_PHASES; i++) {
    const tsr_simulate_moment *moment = &s->phases[i];
    if (!moment->step) continue;
    tsr__emit_row(emitter,
                  (tsr__cell[]){tsr__string(names[i]), tsr__bytes(moment->totals.allocated_bytes),
                                tsr__bytes(moment->totals.requested_bytes),
                                tsr__count(moment->step), tsr__string(moment->op)});
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

static void emit_note(tsr__emitter *emitter, const char *note) {
  tsr__emit_field(emitter, NULL, NULL, tsr__nothing());
  if (!tsr__emitter_is_text(emitter)) {
    tsr__emit_object(emitter, NULL);
    tsr__emit_field(emitter, "message", NULL, tsr__string(note));
    tsr__emit_end(emitter);
  } else if (!emitter->options.quiet) {
    tsr__buffer_printf(&emitter->scratch, "note: %s", note);
    tsr__emit_line(emitter, TSR__PLAIN, 0);
  }
}

static void emit_notes(tsr__emitter *emitter, const tsr_simulation *s) {
  char text[TSR__OUTSIDE_TEXT_BYTES];
  bool is_inferred = tsr__outside_note(&s->outside, text);
  tsr__emit_array(emitter, "notes");
  if ((s->note_count || is_inferred) && !emitter->options.quiet) tsr__emit_space(emitter);
  if (is_inferred) emit_note(emitter, text);
  for (size_t i = 0; i < s->note_count; i++) emit_note(emitter, s->notes[i]);
  tsr__emit_end(emitter);
}

/* Emit the message of PyTorch's exception, wrapped at words. */
static void emit_message(tsr__emitter *emitter, const tsr_simulation *s, uint64_t capacity) {
  enum { WIDTH = 100 };
  char text[TSR_SIMULATE_TEXT_BYTES];
  if (!s->is_out_of_memory) return;
  tsr_simulation_message(s, capacity, text, sizeof text);
  tsr__emit_field(emitter, "message", NULL, tsr__string(text));
  if (!tsr__emitter_is_text(emitter)) return;
  tsr__emit_space(emitter);
  for (const char *rest = text; *rest;) {
    size_t length = strlen(rest);
    if (length > WIDTH)
      for (length = WIDTH; length && rest[length] != ' ';) length--;
    tsr__buffer_printf(&emitter->scratch, "%.*s", (int)length, rest);
    tsr__emit_line(emitter, TSR__PLAIN, 2);
    rest += length;
    rest += *rest == ' ';
  }
}

static void emit_space(tsr__emitter *emitter, const char *key, const char *title,
                       const tsr_space_peak *peak) {
  if (!peak->allocated_bytes) return;
  if (tsr__emitter_is_text(emitter)) {
    tsr__emit_field(emitter, NULL, title, tsr__bytes(peak->allocated_bytes));
    return;
  }
  tsr__emit_object(emitter, key);
  tsr__emit_field(emitter, "allocated_bytes", NULL, tsr__bytes(peak->allocated_bytes));
  tsr__emit_field(emitter, "reserved_bytes", NULL, tsr__bytes(peak->reserved_bytes));
  tsr__emit_end(emitter);
}

/* What one rank keeps on the host, and all ranks of its machine. */
static void emit_host(tsr__emitter *emitter, const tsr_simulation *s) {
  char text[3 * TSR__FORMAT_BYTES], rank[TSR__FORMAT_BYTES], machine[TSR__FORMAT_BYTES];
  uint64_t reserved = s->host.reserved_bytes;
  uint64_t ranks = reserved ? s->host_machine_bytes / reserved : 1;
  if (ranks > 1 && tsr__emitter_is_text(emitter)) {
    (void)snprintf(
        text, sizeof text, "%s reserved by each rank, %s by the %" PRIu64 " of a machine",
        tsr__format_size(reserved, rank), tsr__format_size(s->host_machine_bytes, machine), ranks);
    tsr__emit_field(emitter, NULL, "on the host", tsr__string(text));
    return;
  }
  emit_space(emitter, "host", "on the host", &s->host);
  if (reserved && !tsr__emitter_is_text(emitter))
    tsr__emit_field(emitter, "host_machine_bytes", NULL, tsr__bytes(s->host_machine_bytes));
}

static void emit_recomputed(tsr__emitter *emitter, const tsr_simulation *s) {
  char text[TSR__FORMAT_BYTES];
  if (!s->step_recomputed_flops || !tsr__emitter_is_text(emitter)) return;
  double share =
      (double)s->step_recomputed_flops / (double)(s->step_flops - s->step_recomputed_flops);
  (void)snprintf(text, sizeof text, "%.1f %% more operations", 100 * share);
  tsr__emit_field(emitter, NULL, "recomputed", tsr__string(text));
}

static tsr__cell microseconds(double seconds, bool is_known) {
  return is_known ? tsr__count((uint64_t)(seconds * 1e6 + 0.5)) : tsr__nothing();
}

/* "about 412 ms (247 ms to 824 ms) on the NVIDIA A100 SXM 80 GB" */
static void emit_time(tsr__emitter *emitter, const tsr_simulation *s) {
  char text[3 * TSR__FORMAT_BYTES + 64], low[TSR__FORMAT_BYTES], high[TSR__FORMAT_BYTES];
  bool is_known = s->gpu_title != NULL;
  if (!tsr__emitter_is_text(emitter)) {
    tsr__emit_field(emitter, "gpu", NULL, is_known ? tsr__string(s->gpu_title) : tsr__nothing());
    tsr__emit_field(emitter, "step_time_us", NULL, microseconds(s->step_seconds, is_known));
    tsr__emit_field(emitter, "step_time_low_us", NULL, microseconds(s->step_low_seconds, is_known));
    tsr__emit_field(emitter, "step_time_high_us", NULL,
                    microseconds(s->step_high_seconds, is_known));
    tsr__emit_field(emitter, "step_time_source", NULL,
                    is_known ? tsr__string(s->step_source) : tsr__nothing());
    return;
  }
  if (!is_known) return;
  bool is_long = s->step_seconds >= 1;
  (void)snprintf(text, sizeof text, "about %.3g %s (%s to %s) on the %s",
                 s->step_seconds * (is_long ? 1 : 1000), is_long ? "s" : "ms",
                 tsr__format_duration(s->step_low_seconds, low),
                 tsr__format_duration(s->step_high_seconds, high), s->gpu_title);
  tsr__emit_field(emitter, NULL, "a step takes", tsr__string(text));
}

/* What the process holds besides, and what the card needs for both. */
static void emit_outside(tsr__emitter *emitter, const tsr_simulation *s) {
  char text[TSR__OUTSIDE_TEXT_BYTES];
  tsr__emit_outside(emitter, &s->outside, s->is_out_of_memory ? 0 : s->peak_reserved_bytes);
  if (!tsr__emitter_is_text(emitter) || s->outside.source == TSR_OUTSIDE_NOT_COUNTED) return;
  tsr__emit_field(emitter, NULL, "outside PyTorch",
                  tsr__string(tsr__outside_words(&s->outside, text)));
  if (s->is_out_of_memory) return;
  tsr__emit_field(emitter, NULL, "on the card",
                  tsr__string(tsr__outside_card_words(&s->outside, s->peak_reserved_bytes, text)));
}

static void emit_totals(tsr__emitter *emitter, const tsr_simulation *s, uint64_t capacity) {
  tsr__emit_field(emitter, "device", NULL, tsr__count(0));
  tsr__emit_field(emitter, "parameters", NULL, tsr__count(s->parameter_count));
  tsr__emit_field(emitter, "events", NULL, tsr__count(s->event_count));
  tsr__emit_field(emitter, "steps", NULL, tsr__count(s->steps_done));
  tsr__emit_field(emitter, "capacity_bytes", NULL,
                  capacity ? tsr__bytes(capacity) : tsr__nothing());
  tsr__emit_field(emitter, "fits", NULL, tsr__bool(!s->is_out_of_memory));
  tsr__emit_field(emitter, "start_allocated_bytes", NULL, tsr__bytes(s->start_allocated_bytes));
  tsr__emit_field(emitter, "peak_reserved_bytes", NULL, tsr__bytes(s->peak_reserved_bytes));
  tsr__emit_field(emitter, "step_flops", NULL, tsr__count(s->step_flops));
  tsr__emit_field(emitter, "step_recomputed_flops", NULL, tsr__count(s->step_recomputed_flops));
  emit_moment(emitter, "peak", &s->peak);
  if (!s->is_out_of_memory) return;
  emit_moment(emitter, "out_of_memory", &s->out_of_memory);
  tsr__emit_field(emitter, "oom_request_bytes", NULL, tsr__bytes(s->oom_request_bytes));
}

static bool emit_profile(tsr__emitter *emitter, const tsr_memory_profile *profile, uint64_t top) {
  tsr__emit_space(emitter);
  tsr__emit_object(emitter, "profile");
  bool ok = tsr__emit_memory_profile(emitter, profile, top);
  tsr__emit_end(emitter);
  return ok;
}

int tsr__report_simulate(const tsr_report_input *input, const tsr_simulation *simulation,
                         uint64_t capacity_bytes, uint64_t top, const tsr_report_options *options,
                         tsr_write_fn *write, void *context, tsr_error *error) {
  tsr__emitter emitter;
  tsr__emitter_init(&emitter, options, write, context);
  tsr__heading_open(&emitter, &tsr__fields_simulate, input);
  print_verdict(&emitter, input->path, simulation, capacity_bytes);
  tsr__emit_object(&emitter, NULL);
  emit_totals(&emitter, simulation, capacity_bytes);
  emit_recomputed(&emitter, simulation);
  emit_time(&emitter, simulation);
  emit_outside(&emitter, simulation);
  emit_host(&emitter, simulation);
  emit_space(&emitter, "disk", "on disk", &simulation->disk);
  emit_message(&emitter, simulation, capacity_bytes);
  tsr__emit_space(&emitter);
  emit_categories(&emitter,
                  simulation->is_out_of_memory ? &simulation->out_of_memory : &simulation->peak);
  emit_phases(&emitter, simulation);
  bool ok = !simulation->profile || emit_profile(&emitter, simulation->profile, top);
  emit_notes(&emitter, simulation);
  tsr__emit_end(&emitter);
  int status = tsr__heading_close(&emitter, input, NULL, error);
  return ok ? status : tsr__fail_memory(error);
}
