/* report.c - the steps of a program, as text or JSON.
 *
 *   Device 0: 3 whole steps; a steady one peaks at 668.62 MiB, warm-up no higher.
 *     found by        phases
 *     ...
 *
 *     phase         peak  at event
 *     forward  512.3 MiB     1,153
 *
 *     step   events        allocations  before  peak ...
 *
 * Text shows the first steps only, unless verbose: they are alike. JSON has them all.
 */
#include <inttypes.h>

#include "base/format.h"
#include "emit/emitter.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/reports.h"
#include "questions/shared/moment.h"
#include "questions/shared/stepping.h"
#include "stacks/stacks.h"

enum { STEPS_SHOWN = 12 };

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* Without a backward pass what repeats is an iteration, in text; field names are the same. */
static const char *of_unit(const tsr_steps_device *device, const char *step,
                           const char *iteration) {
  return device->unit == TSR_STEPS_UNIT_ITERATION ? iteration : step;
}

/* The loops whose steps are not in the list, and those that are. */
static size_t count_loops(const tsr_steps_device *device, bool is_listed) {
  size_t count = 0;
  for (size_t i = 0; i < device->loop_count; i++) count += device->loops[i].is_listed == is_listed;
  return count;
}

/* A number that users see, from 1. */
static size_t loop_number(const tsr_steps_device *device, const tsr_steps_loop *loop) {
  return (size_t)(loop - device->loops) + 1;
}

/* Whether the peaks of steady steps differ by more than a hundredth. */
static bool varies(const tsr_steps_loop *loop) {
  return loop->steady_peak_bytes - loop->steady_low_bytes > loop->steady_peak_bytes / 100;
}

/* "memory grows by 4.00 MiB a step (see 'tessera leaks'): " */
static void append_growth(tsr__buffer *out, const tsr_steps_loop *loop) {
  char growth[TSR__FORMAT_BYTES];
  if (!loop->growth_bytes) return;
  tsr__buffer_printf(out, "memory grows by %s %s%s: ", tsr__format_size(loop->growth_bytes, growth),
                     loop->unit == TSR_STEPS_UNIT_ITERATION ? "an iteration" : "a step",
                     loop->is_leaking ? " (see 'tessera leaks')" : "");
}

static void append_peaks(tsr__buffer *out, const tsr_steps_device *device) {
  char peak[TSR__FORMAT_BYTES], low[TSR__FORMAT_BYTES], surplus[TSR__FORMAT_BYTES];
  const tsr_steps_loop *loop = device->main_loop;
  bool is_alone = loop->whole_count == 1;
  tsr__format_size(loop->steady_peak_bytes, peak);
  tsr__buffer_text(out, "; ");
  if (device->loop_count > 1) tsr__buffer_printf(out, "in loop %zu, ", loop_number(device, loop));
  append_growth(out, loop);
  if (varies(loop))
    tsr__buffer_printf(out, "steady ones peak at %s to %s",
                       tsr__format_size(loop->steady_low_bytes, low), peak);
  else
    tsr__buffer_printf(out, "%s peaks at %s", is_alone ? "it" : "a steady one", peak);
  if (is_alone)
    tsr__buffer_text(out, ".");
  else if (loop->steady_count == loop->whole_count)
    tsr__buffer_text(out, ", and there is no warm-up.");
  else if (loop->warmup_surplus_bytes)
    tsr__buffer_printf(out, ", warm-up %s higher.",
                       tsr__format_size(loop->warmup_surplus_bytes, surplus));
  else
    tsr__buffer_text(out, ", warm-up is no higher.");
}

/* Forward passes in loops of their own. */
static void append_unlisted(tsr__buffer *out, const tsr_steps_device *device) {
  char passes[TSR__FORMAT_BYTES];
  size_t loops = count_loops(device, false);
  uint64_t count = 0;
  for (size_t i = 0; i < device->loop_count; i++)
    if (!device->loops[i].is_listed) count += device->loops[i].step_count;
  if (!loops) return;
  tsr__buffer_printf(out, ", and %s iterations without a backward pass in ",
                     tsr__format_count(count, passes));
  if (loops == 1)
    tsr__buffer_text(out, "another loop");
  else
    tsr__buffer_printf(out, "%zu other loops", loops);
}

/* How many are whole, and how many are not for another reason than memory. */
static void append_steps(tsr__buffer *out, const tsr_steps_device *device) {
  char count[TSR__FORMAT_BYTES];
  const char *unit = tsr_steps_unit_name(device->unit);
  uint64_t cut = device->step_count - device->whole_count;
  size_t loops = count_loops(device, true);
  for (size_t i = 0; i < device->step_count; i++) cut -= device->steps[i].is_dead;
  if (!device->whole_count && !cut) {
    tsr__buffer_printf(out, "no whole %s", unit);
  } else if (!device->whole_count) {
    tsr__buffer_printf(out,
                       cut == 1 ? "%s %s%s, which is not whole" : "%s %s%s, none of them whole",
                       tsr__format_count(cut, count), unit, tsr__plural(cut));
  } else {
    tsr__buffer_printf(out, "%s whole %s%s", tsr__format_count(device->whole_count, count), unit,
                       tsr__plural(device->whole_count));
    if (cut) tsr__buffer_printf(out, " and %s cut", tsr__format_count(cut, count));
    if (loops > 1) tsr__buffer_printf(out, " in %zu loops", loops);
  }
  append_unlisted(out, device);
  if (device->main_loop->whole_count)
    append_peaks(out, device);
  else
    tsr__buffer_text(out, ".");
}

static void print_verdict(tsr__emitter *emitter, const tsr_steps_device *device) {
  tsr__emit_space(emitter);
  if (!tsr__emitter_is_text(emitter)) return;
  char name[TSR__FORMAT_BYTES];
  tsr__buffer_printf(&emitter->scratch, "%s: ", tsr__device_title(device->device, name));
  if (!device->has_history) {
    tsr__say_no_history(&emitter->scratch, device->event_count);
    tsr__buffer_text(&emitter->scratch, ".");
  } else if (!device->step_count)
    tsr__buffer_text(&emitter->scratch,
                     "no steps: no outermost loop repeats, and there is no backward pass.");
  else
    append_steps(&emitter->scratch, device);
  tsr__emit_line(emitter, TSR__VERDICT, 0);
  tsr__emit_stop(emitter, &device->stop, device->unit);
  bool may_be_parts = device->step_count > 1 || (device->stop.event >= 0 && !device->stop.step);
  if (device->counts_backwards && device->step_count && may_be_parts)
    tsr__emit_printf(emitter, TSR__PLAIN,
                     "No optimizer's step or zero_grad is visible: each backward pass counts as a "
                     "step, even if gradients accumulate.");
}

/* Where the peak of the file is: "17.20 GiB in step 3 of loop 2, at event 812, in the forward pass". */
static void append_file_peak(tsr__buffer *out, const tsr_steps_device *device) {
  char bytes[TSR__FORMAT_BYTES], number[TSR__FORMAT_BYTES];
  const tsr_steps_peak *peak = &device->peak;
  const tsr_steps_loop *loop = peak->loop == TSR_NONE ? NULL : &device->loops[peak->loop];
  const char *words = tsr__phase_words(peak->phase);
  tsr__buffer_text(out, tsr__format_size(peak->bytes, bytes));
  if (loop)
    tsr__buffer_printf(out, " in %s %s", tsr_steps_unit_name(loop->unit),
                       tsr__format_count(peak->step, number));
  else
    tsr__buffer_printf(out, " outside of %s",
                       device->loop_count > 1 ? "all loops"
                                              : of_unit(device, "the steps", "the loop"));
  if (loop && device->loop_count > 1) tsr__buffer_printf(out, " of loop %u", peak->loop + 1);
  if (peak->event < 0)
    tsr__buffer_text(out, ", before the first event");
  else
    tsr__buffer_printf(out, ", at event %s", tsr__format_count((uint64_t)peak->event, number));
  if (words && peak->event >= 0) tsr__buffer_printf(out, ", in %s", words);
}

static void emit_file_peak(tsr__emitter *emitter, const tsr_steps_device *device) {
  const tsr_steps_peak *peak = &device->peak;
  bool is_in = peak->loop != TSR_NONE;
  if (device->step_count && device->event_count) {
    append_file_peak(&emitter->scratch, device);
    tsr_text text = {emitter->scratch.data, emitter->scratch.size};
    tsr__emit_field(emitter, NULL, "peak of the file", tsr__text(text));
    emitter->scratch.size = 0;
  }
  tsr__emit_object(emitter, "peak");
  tsr__emit_field(emitter, "event", NULL, tsr__index(peak->event));
  tsr__emit_field(emitter, "allocated_bytes", NULL, tsr__bytes(peak->bytes));
  tsr__emit_field(emitter, "phase", NULL, tsr__string(tsr_phase_name(peak->phase)));
  tsr__emit_field(emitter, "loop", NULL, is_in ? tsr__count(peak->loop + 1) : tsr__nothing());
  tsr__emit_field(emitter, "step", NULL, is_in ? tsr__count(peak->step) : tsr__nothing());
  tsr__emit_end(emitter);
}

/* The peaks of a loop's steps; in text only where `is_shown`. */
static void emit_peaks(tsr__emitter *emitter, const tsr_steps_loop *loop, bool is_shown) {
  bool has_steady = loop->steady_count != 0;
  const char *of_peak = loop->whole_count == 1 ? "event of the peak" : "event of the steady peak";
  bool varies = loop->steady_low_bytes != loop->steady_peak_bytes;
  tsr__emit_object(emitter, "steady");
  tsr__emit_field(emitter, "peak_bytes", NULL, tsr__bytes(loop->steady_peak_bytes));
  tsr__emit_field(emitter, "peak_event", has_steady && is_shown ? of_peak : NULL,
                  has_steady ? tsr__count(loop->steady_peak_event) : tsr__nothing());
  tsr__emit_field(emitter, "lowest_peak_bytes", varies && is_shown ? "lowest steady peak" : NULL,
                  tsr__bytes(loop->steady_low_bytes));
  tsr__emit_field(emitter, "growth_bytes", NULL, tsr__bytes(loop->growth_bytes));
  tsr__emit_end(emitter);
  tsr__emit_object(emitter, "warmup");
  tsr__emit_field(emitter, "peak_bytes",
                  loop->warmup_peak_bytes && is_shown ? "warm-up peak" : NULL,
                  tsr__bytes(loop->warmup_peak_bytes));
  tsr__emit_field(emitter, "surplus_bytes", NULL, tsr__bytes(loop->warmup_surplus_bytes));
  tsr__emit_end(emitter);
}

static tsr__cell duration(int64_t time_us) {
  return time_us == TSR_TIME_NONE ? tsr__nothing() : tsr__count((uint64_t)time_us);
}

/* Fields that make no sense for a trace without steps are omitted from text. */
static void emit_fold(tsr__stack_printer *printer, const tsr_steps_device *device) {
  static const tsr_steps_loop none = {.frame = TSR_NONE, .step_time_us = TSR_TIME_NONE};
  tsr__emitter *emitter = printer->emitter;
  const tsr_steps_loop *loop = device->main_loop ? device->main_loop : &none;
  bool has_steps = device->step_count != 0, has_steady = loop->steady_count != 0;
  bool is_alone = loop->whole_count == 1; /* then "steady" would say too much */
  tsr__emit_field(emitter, "basis", has_steps ? "found by" : NULL,
                  tsr__string(tsr_steps_basis_name(device->basis)));
  if (device->loop_count == 1 && loop->frame != TSR_NONE && tsr__emitter_is_text(emitter)) {
    tsr__frame_append_name(printer, loop->frame);
    tsr_text text = {emitter->scratch.data, emitter->scratch.size};
    tsr__emit_field(emitter, NULL, "run by", tsr__text(text));
    emitter->scratch.size = 0;
  }
  tsr__emit_field(emitter, "unit", NULL, tsr__string(tsr_steps_unit_name(device->unit)));
  tsr__emit_field(emitter, "counts_backwards", NULL, tsr__bool(device->counts_backwards));
  emit_file_peak(emitter, device);
  tsr__emit_field(emitter, "step_count", NULL, tsr__count(device->step_count));
  tsr__emit_field(emitter, "whole_steps", NULL, tsr__count(device->whole_count));
  bool is_one = device->loop_count < 2;
  tsr__emit_field(emitter, "steady_steps",
                  has_steady && !is_alone && is_one
                      ? of_unit(device, "steady steps", "steady iterations")
                      : NULL,
                  tsr__count(device->steady_count));
  tsr__emit_field(emitter, "step_allocations",
                  has_steady && is_one
                      ? of_unit(device, "allocations a step", "allocations an iteration")
                      : NULL,
                  tsr__count(loop->step_allocations));
  bool has_time = loop->step_time_us != TSR_TIME_NONE && is_one;
  tsr__emit_field(emitter, "step_time_us",
                  has_time ? of_unit(device, "microseconds a step", "microseconds an iteration")
                           : NULL,
                  duration(loop->step_time_us));
  emit_peaks(emitter, loop, is_one);
}

static void emit_loop(tsr__stack_printer *printer, const tsr_steps_device *device, size_t index) {
  tsr__emitter *emitter = printer->emitter;
  const tsr_steps_loop *loop = &device->loops[index];
  char first[TSR__FORMAT_BYTES], last[TSR__FORMAT_BYTES];
  tsr__buffer *out = &emitter->scratch;
  if (tsr__emitter_is_text(emitter) && loop->frame != TSR_NONE)
    tsr__frame_append_name(printer, loop->frame);
  size_t named = out->size;
  tsr__buffer_printf(out, "%ss %s to %s", tsr_steps_unit_name(loop->unit),
                     tsr__format_count(loop->first_step, first),
                     tsr__format_count(loop->last_step, last));
  size_t both = out->size;
  if (out->failed) return;
  bool has_warmup = loop->whole_count > loop->steady_count;
  tsr__emit_row(
      emitter,
      (tsr__cell[]){tsr__count(index + 1), tsr__text((tsr_text){out->data + named, both - named}),
                    tsr__count(loop->step_count), tsr__count(loop->whole_count),
                    tsr__count(loop->steady_count),
                    has_warmup ? tsr__bytes(loop->warmup_peak_bytes) : tsr__nothing(),
                    loop->steady_count ? tsr__bytes(loop->steady_peak_bytes) : tsr__nothing(),
                    loop->steady_count ? tsr__bytes(loop->steady_low_bytes) : tsr__nothing(),
                    tsr__bytes(loop->peak_bytes),
                    tsr__text(named ? (tsr_text){out->data, named} : (tsr_text){"-", 1})});
  out->size = 0;
  tsr__emit_field(emitter, "main", NULL, tsr__bool(loop->is_main));
  tsr__emit_field(emitter, "listed", NULL, tsr__bool(loop->is_listed));
  tsr__emit_field(emitter, "unit", NULL, tsr__string(tsr_steps_unit_name(loop->unit)));
  tsr__frame_emit(printer, "frame", loop->frame);
  tsr__emit_field(emitter, "first_step", NULL, tsr__count(loop->first_step));
  tsr__emit_field(emitter, "last_step", NULL, tsr__count(loop->last_step));
  tsr__emit_field(emitter, "first_event", NULL, tsr__count(loop->first_event));
  tsr__emit_field(emitter, "last_event", NULL, tsr__count(loop->last_event));
  tsr__emit_field(emitter, "peak_event", NULL, tsr__count(loop->peak_event));
  tsr__emit_field(emitter, "peak_step", NULL, tsr__count(loop->peak_step));
  tsr__emit_field(emitter, "step_allocations", NULL, tsr__count(loop->step_allocations));
  tsr__emit_field(emitter, "step_time_us", NULL, duration(loop->step_time_us));
  if (!tsr__emitter_is_text(emitter)) emit_peaks(emitter, loop, false);
  tsr__emit_row_end(emitter);
}

static bool any_varies(const tsr_steps_device *device) {
  for (size_t i = 0; i < device->loop_count; i++)
    if (varies(&device->loops[i])) return true;
  return false;
}

/* Text: only where there are several. */
static void emit_loops(tsr__stack_printer *printer, const tsr_steps_device *device) {
  const tsr__column columns[] = {{"loop", "loop", TSR__RIGHT},
                                 {NULL, "consists of", TSR__LEFT},
                                 {"step_count", "count", TSR__RIGHT},
                                 {"whole_steps", "whole", TSR__SPARE},
                                 {"steady_steps", "steady", TSR__SPARE},
                                 {NULL, "warm-up peak", TSR__RIGHT},
                                 {NULL, "steady peak", TSR__RIGHT},
                                 {NULL, any_varies(device) ? "lowest" : NULL, TSR__SPARE},
                                 {"peak_bytes", NULL, TSR__RIGHT},
                                 {NULL, "run by", TSR__ELASTIC}};
  if (tsr__emitter_is_text(printer->emitter) && device->loop_count < 2) return;
  tsr__emit_space(printer->emitter);
  tsr__emit_table(printer->emitter, "loops", columns, COUNT_OF(columns));
  for (size_t i = 0; i < device->loop_count; i++) emit_loop(printer, device, i);
  tsr__emit_table_end(printer->emitter);
}

static void emit_annotations(tsr__emitter *emitter, const tsr_steps_device *device) {
  char matched[TSR__FORMAT_BYTES], ranges[TSR__FORMAT_BYTES];
  static const tsr__column columns[] = {
      {"name", NULL, TSR__LEFT}, {"ranges", NULL, TSR__RIGHT}, {"matched", NULL, TSR__RIGHT}};
  if (tsr__emitter_is_text(emitter)) {
    for (size_t i = 0; i < device->annotation_count; i++) {
      const tsr_step_annotations *a = &device->annotations[i];
      tsr__emit_printf(emitter, TSR__PLAIN, "  agrees with %s of %s %s annotation%s",
                       tsr__format_count(a->matched, matched), tsr__format_count(a->ranges, ranges),
                       a->name, tsr__plural(a->ranges));
    }
    return;
  }
  tsr__emit_table(emitter, "annotations", columns, COUNT_OF(columns));
  for (size_t i = 0; i < device->annotation_count; i++) {
    const tsr_step_annotations *a = &device->annotations[i];
    tsr__emit_row(emitter, (tsr__cell[]){tsr__string(a->name), tsr__count(a->ranges),
                                         tsr__count(a->matched)});
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

static void emit_phases(tsr__emitter *emitter, const tsr_steps_device *device) {
  const tsr__column columns[] = {
      {"phase", "phase", TSR__ELASTIC},
      {"steps", of_unit(device, "in steps", "in iterations"), TSR__RIGHT},
      {"peak_bytes", "peak", TSR__RIGHT},
      {"peak_event", "at event", TSR__RIGHT}};
  tsr__emit_space(emitter);
  if (device->loop_count > 1 && device->phase_count)
    tsr__emit_printf(emitter, TSR__PLAIN, "Phases of loop %zu, which peaks highest%s:",
                     loop_number(device, device->main_loop),
                     count_loops(device, false) ? " of those that train" : "");
  tsr__emit_table(emitter, "phases", columns, COUNT_OF(columns));
  for (size_t i = 0; i < device->phase_count; i++) {
    const tsr_step_phase *phase = &device->phases[i];
    tsr__emit_row(emitter,
                  (tsr__cell[]){tsr__string(tsr_phase_name(phase->phase)), tsr__count(phase->steps),
                                tsr__bytes(phase->peak_bytes), tsr__count(phase->peak_event)});
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

static const char *note_on(const tsr_step *step) {
  return step->is_steady  ? ""
         : step->is_whole ? "warm-up"
         : step->is_dead  ? "out of memory"
                          : "cut";
}

static void emit_steps(tsr__emitter *emitter, const tsr_steps_device *device) {
  const tsr__column columns[] = {{"step", tsr_steps_unit_name(device->unit), TSR__RIGHT},
                                 {"first_event", "first event", TSR__RIGHT},
                                 {"last_event", "last event", TSR__SPARE},
                                 {"allocations", "allocations", TSR__SPARE},
                                 {"start_bytes", "before", TSR__SPARE},
                                 {"peak_bytes", "peak", TSR__RIGHT},
                                 {"peak_event", "at event", TSR__RIGHT},
                                 {"end_bytes", "after", TSR__RIGHT},
                                 {"loop", device->loop_count > 1 ? "loop" : NULL, TSR__RIGHT},
                                 {NULL, "", TSR__LEFT}};
  bool shows_all = !tsr__emitter_is_text(emitter) || emitter->options.verbose;
  size_t shown = shows_all || device->step_count <= STEPS_SHOWN ? device->step_count : STEPS_SHOWN;
  tsr__emit_space(emitter);
  tsr__emit_table(emitter, "steps", columns, COUNT_OF(columns));
  for (size_t i = 0; i < shown; i++) {
    const tsr_step *step = &device->steps[i];
    tsr__emit_row(emitter,
                  (tsr__cell[]){tsr__count(i + 1), tsr__count(step->first_event),
                                tsr__count(step->last_event), tsr__count(step->allocations),
                                tsr__bytes(step->start_bytes), tsr__bytes(step->peak_bytes),
                                tsr__count(step->peak_event), tsr__bytes(step->end_bytes),
                                tsr__count(step->loop + 1), tsr__string(note_on(step))});
    tsr__emit_field(emitter, "first_time_us", NULL, tsr__time(step->first_time_us));
    tsr__emit_field(emitter, "last_time_us", NULL, tsr__time(step->last_time_us));
    tsr__emit_field(emitter, "whole", NULL, tsr__bool(step->is_whole));
    tsr__emit_field(emitter, "steady", NULL, tsr__bool(step->is_steady));
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
  char count[TSR__FORMAT_BYTES];
  if (shown < device->step_count)
    tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more %ss (-v shows all)",
                     tsr__format_count(device->step_count - shown, count),
                     tsr_steps_unit_name(device->unit));
}

static void emit_device(tsr__stack_printer *printer, const tsr_steps_device *device) {
  tsr__emitter *emitter = printer->emitter;
  print_verdict(emitter, device);
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__device(device->device));
  tsr__emit_field(emitter, "events", NULL, tsr__count(device->event_count));
  tsr__emit_field(emitter, "has_history", NULL, tsr__bool(device->has_history));
  emit_fold(printer, device);
  tsr__emit_stop_fields(emitter, &device->stop);
  emit_annotations(emitter, device);
  emit_loops(printer, device);
  emit_phases(emitter, device);
  emit_steps(emitter, device);
  tsr__emit_end(emitter);
}

int tsr__report_steps(const tsr_report_input *input, const tsr_steps *steps,
                      const tsr_report_options *options, tsr_write_fn *write, void *context,
                      tsr_error *error) {
  tsr__emitter emitter;
  tsr__stack_printer printer;
  tsr__warning_list warnings = {0};
  tsr__emitter_init(&emitter, options, write, context);
  tsr__stack_printer_init(&printer, &emitter, input->snapshot);
  tsr__heading_open(&emitter, &tsr__fields_steps, input);
  if (!steps->device_count)
    tsr__emit_printf(&emitter, TSR__VERDICT, "No device has events or segments.");
  for (size_t i = 0; i < steps->device_count; i++) {
    emit_device(&printer, &steps->devices[i]);
    tsr__warnings_add(&warnings, steps->devices[i].warnings, steps->devices[i].warning_count);
  }
  tsr__stack_printer_release(&printer);
  return tsr__heading_close(&emitter, input, &warnings, error);
}
