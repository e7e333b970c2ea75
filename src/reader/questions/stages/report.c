/* report.c - memory at annotated stages, as text or JSON.
 *
 *   Device 0: the peak, 22.55 GiB allocated at event 3,737 of 22,331, is in ProfilerStep#3 >
 *   forward.
 *
 *     stage             which   at start       peak     at end     change      took
 *     ProfilerStep#3            4.75 GiB  22.55 GiB   4.80 GiB  +51.2 MiB  310.2 ms
 *       forward        3 of 3   4.75 GiB  22.55 GiB  21.90 GiB  +17.1 GiB  102.9 ms
 *
 * If stages were omitted, groups of repetitions are shown instead, each with its highest stage:
 *
 *     stage            count  highest   at start  ...
 *     ProfilerStep#*      12  ProfilerStep#3  ...
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/format.h"
#include "emit/emitter.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/reports.h"
#include "questions/shared/moment.h"
#include "questions/stages/match.h"

/* Deeper stages are not indented further. */
#define DEPTH_SHOWN 12

typedef struct printer {
  tsr__emitter *emitter;
  const tsr_snapshot *snapshot;
  const tsr_stages *stages;
} printer;

static tsr_text name_of(const printer *p, uint32_t name) {
  tsr_text text = tsr_snapshot_string(p->snapshot, name);
  return text.size_bytes || !tsr__emitter_is_text(p->emitter) ? text : (tsr_text){"(no name)", 9};
}

static void append_name(const printer *p, tsr__buffer *out, uint32_t name) {
  tsr_text text = name_of(p, name);
  tsr__buffer_append(out, text.data, text.size_bytes);
}

/* "2 of 3", or nothing if there is only one. */
static const char *which_of(const tsr_stage *stage, char text[TSR__FORMAT_BYTES]) {
  char of[TSR__FORMAT_BYTES], nth[TSR__FORMAT_BYTES];
  text[0] = '\0';
  if (stage->repetitions > 1)
    (void)snprintf(text, TSR__FORMAT_BYTES, "%.20s of %.20s",
                   tsr__format_count(stage->repetition, nth),
                   tsr__format_count(stage->repetitions, of));
  return text;
}

/* ---- the verdict ---- */

static void append_stage(const printer *p, tsr__buffer *out, const tsr_stage *stage) {
  char which[TSR__FORMAT_BYTES];
  append_name(p, out, stage->name);
  if (*which_of(stage, which)) tsr__buffer_printf(out, " (%s)", which);
}

static void append_place(const printer *p, tsr__buffer *out, const tsr_stages_device *device) {
  char size[TSR__FORMAT_BYTES];
  for (size_t i = 0; i < device->path_count; i++) {
    tsr__buffer_text(out, i ? " > " : "is in ");
    append_stage(p, out, &device->path[i]);
  }
  if (device->path_count) return;
  tsr__buffer_text(out, "is in no stage");
  if (!device->highest.has_start && !device->highest.has_end) return; /* nothing is known of any */
  tsr__buffer_text(out, "; the highest, ");
  append_stage(p, out, &device->highest);
  tsr__buffer_printf(out, ", reaches %s",
                     tsr__format_size(device->highest.peak.totals.allocated_bytes, size));
}

static void append_peak(const printer *p, tsr__buffer *out, const tsr_stages_device *device) {
  char peak[TSR__FORMAT_BYTES], event[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "the peak, %s allocated ",
                     tsr__format_size(device->peak.totals.allocated_bytes, peak));
  if (device->peak.event >= 0)
    tsr__buffer_printf(out, "at event %s of %s, ",
                       tsr__format_count((uint64_t)device->peak.event, event),
                       tsr__format_count(device->event_count, count));
  else
    tsr__buffer_text(out, "before the first event, ");
  append_place(p, out, device);
}

static void print_verdict(const printer *p, const tsr_stages_device *device) {
  char size[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES];
  tsr__buffer *out = &p->emitter->scratch;
  tsr__emit_space(p->emitter);
  if (!tsr__emitter_is_text(p->emitter)) return;
  char name[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "%s: ", tsr__device_title(device->device, name));
  if (!p->stages->annotation_count)
    tsr__buffer_printf(out, "no stages: the snapshot has no annotations; %s%s allocated",
                       device->has_history ? "the peak is " : "one moment, with ",
                       tsr__format_size(device->peak.totals.allocated_bytes, size));
  else if (!p->stages->matched_count)
    tsr__buffer_printf(out, "none of the %s annotations matches; the peak is %s allocated",
                       tsr__format_count(p->stages->annotation_count, count),
                       tsr__format_size(device->peak.totals.allocated_bytes, size));
  else if (!device->stage_count)
    tsr__buffer_text(out, "no stages: no annotation is a START or END with a time");
  else if (!device->has_history)
    tsr__say_no_history(out, device->event_count);
  else
    append_peak(p, out, device);
  tsr__buffer_text(out, ".");
  tsr__emit_line(p->emitter, TSR__VERDICT, 0);
}

/* ---- cells ---- */

/* "+1.20 GiB", "-85.00 MiB", "0 B". */
static void append_change(tsr__buffer *out, const tsr_stage *stage) {
  char size[TSR__FORMAT_BYTES];
  uint64_t before = stage->start.totals.allocated_bytes, after = stage->end.totals.allocated_bytes;
  if (!stage->has_start) {
    tsr__buffer_text(out, "-");
    return;
  }
  tsr__buffer_text(out, after > before ? "+" : after < before ? "-" : "");
  tsr__buffer_text(out, tsr__format_size(after > before ? after - before : before - after, size));
}

/* "310.2 ms". */
static void append_duration(tsr__buffer *out, uint64_t us) {
  if (us < 1000)
    tsr__buffer_printf(out, "%" PRIu64 " us", us);
  else if (us < 1000000)
    tsr__buffer_printf(out, "%" PRIu64 ".%" PRIu64 " ms", us / 1000, us % 1000 / 100);
  else
    tsr__buffer_printf(out, "%" PRIu64 ".%03" PRIu64 " s", us / 1000000, us % 1000000 / 1000);
}

static void append_elapsed(tsr__buffer *out, int64_t from_us, int64_t to_us) {
  if (from_us == TSR_TIME_NONE || to_us == TSR_TIME_NONE)
    tsr__buffer_text(out, "?");
  else if (to_us >= from_us)
    append_duration(out, (uint64_t)to_us - (uint64_t)from_us);
  else {
    tsr__buffer_text(out, "-");
    append_duration(out, (uint64_t)from_us - (uint64_t)to_us);
  }
}

/* The texts of a row lie one after the other in the emitter's scratch, which may move until all are
 * there. */
typedef struct texts {
  tsr__buffer *out;
  size_t ends[8];
  size_t count;
} texts;

static void end_text(texts *t) {
  t->ends[t->count++] = t->out->size;
}

static tsr__cell text_at(const texts *t, size_t i) {
  size_t begin = i ? t->ends[i - 1] : 0;
  return tsr__text((tsr_text){t->out->data + begin, t->ends[i] - begin});
}

static void append_indent(tsr__buffer *out, uint32_t depth) {
  tsr__buffer_fill(out, ' ', 2 * (size_t)(depth < DEPTH_SHOWN ? depth : DEPTH_SHOWN));
}

/* ---- JSON ---- */

static void emit_moment(tsr__emitter *emitter, const char *key, const tsr_moment *moment) {
  tsr__emit_object(emitter, key);
  tsr__emit_field(emitter, "event", NULL, tsr__index(moment->event));
  tsr__emit_field(emitter, "time_us", NULL, tsr__time(moment->time_us));
  tsr__emit_field(emitter, "requested_bytes", NULL, tsr__bytes(moment->totals.requested_bytes));
  tsr__emit_field(emitter, "allocated_bytes", NULL, tsr__bytes(moment->totals.allocated_bytes));
  tsr__emit_field(emitter, "active_bytes", NULL, tsr__bytes(moment->totals.active_bytes));
  tsr__emit_field(emitter, "reserved_bytes", NULL, tsr__bytes(moment->totals.reserved_bytes));
  tsr__emit_end(emitter);
}

/* JSON: the members of a stage except its name. */
static void emit_stage(tsr__emitter *emitter, const tsr_stage *stage) {
  if (tsr__emitter_is_text(emitter)) return;
  tsr__cell parent = stage->parent == TSR_STAGE_NONE ? tsr__nothing() : tsr__count(stage->parent);
  int64_t delta =
      (int64_t)(stage->end.totals.allocated_bytes - stage->start.totals.allocated_bytes);
  tsr__emit_field(emitter, "id", NULL, tsr__count(stage->id));
  tsr__emit_field(emitter, "parent", NULL, parent);
  tsr__emit_field(emitter, "depth", NULL, tsr__count(stage->depth));
  tsr__emit_field(emitter, "repetition", NULL, tsr__count(stage->repetition));
  tsr__emit_field(emitter, "repetitions", NULL, tsr__count(stage->repetitions));
  tsr__emit_field(emitter, "annotation_device", NULL, tsr__count(stage->annotation_device));
  tsr__emit_field(emitter, "start_recorded", NULL, tsr__bool(stage->has_start));
  tsr__emit_field(emitter, "end_recorded", NULL, tsr__bool(stage->has_end));
  emit_moment(emitter, "start", &stage->start);
  emit_moment(emitter, "end", &stage->end);
  emit_moment(emitter, "peak", &stage->peak);
  tsr__emit_field(emitter, "delta_bytes", NULL,
                  stage->has_start ? tsr__index(delta) : tsr__nothing());
}

/* ---- tables ---- */

/* What a stage has at its start and at most. Of one whose start is not recorded the first is not known, and nothing is if
 * it also ends before the first event. */
static tsr__cell at_start(const tsr_stage *stage) {
  return stage->has_start ? tsr__bytes(stage->start.totals.allocated_bytes) : tsr__nothing();
}
static tsr__cell at_most(const tsr_stage *stage) {
  return stage->has_start || stage->end.event >= 0 ? tsr__bytes(stage->peak.totals.allocated_bytes)
                                                   : tsr__nothing();
}

static int64_t trace_begin(const printer *p, const tsr_stages_device *device) {
  tsr_events events = tsr_snapshot_events(p->snapshot, device->device);
  for (uint64_t i = 0; i < events.count; i++)
    if (events.time_us[i] != TSR_TIME_NONE) return events.time_us[i];
  return TSR_TIME_NONE;
}

static void emit_stage_rows(const printer *p, const tsr_stages_device *device) {
  tsr__buffer *out = &p->emitter->scratch;
  int64_t begin_us = trace_begin(p, device);
  for (size_t i = 0; i < device->stage_count; i++) {
    const tsr_stage *stage = &device->stages[i];
    texts t = {.out = out};
    char which[TSR__FORMAT_BYTES];
    bool is_text = tsr__emitter_is_text(p->emitter);
    if (is_text) append_indent(out, stage->depth);
    append_name(p, out, stage->name);
    end_text(&t);
    append_change(out, stage);
    end_text(&t);
    append_elapsed(out, begin_us, stage->start.time_us);
    end_text(&t);
    append_elapsed(out, stage->start.time_us, stage->end.time_us);
    end_text(&t);
    if (out->failed) return;
    tsr__emit_row(p->emitter, (tsr__cell[]){text_at(&t, 0), tsr__string(which_of(stage, which)),
                                            at_start(stage), at_most(stage),
                                            tsr__bytes(stage->end.totals.allocated_bytes),
                                            text_at(&t, 1), text_at(&t, 2), text_at(&t, 3)});
    out->size = 0;
    emit_stage(p->emitter, stage);
    tsr__emit_row_end(p->emitter);
  }
}

static void emit_stages(const printer *p, const tsr_stages_device *device, bool is_shown) {
  bool is_repeated = false, has_begin = p->emitter->options.verbose;
  for (size_t i = 0; i < device->stage_count; i++)
    is_repeated = is_repeated || device->stages[i].repetitions > 1;
  if (tsr__emitter_is_text(p->emitter) && !is_shown) return;
  const tsr__column columns[] = {{"name", "stage", TSR__ELASTIC},
                                 {NULL, is_repeated ? "which" : NULL, TSR__RIGHT},
                                 {NULL, "at start", TSR__RIGHT},
                                 {NULL, "peak", TSR__RIGHT},
                                 {NULL, "at end", TSR__RIGHT},
                                 {NULL, "change", TSR__RIGHT},
                                 {NULL, has_begin ? "began at" : NULL, TSR__RIGHT},
                                 {NULL, "took", TSR__RIGHT}};
  tsr__emit_table(p->emitter, "stages", columns, sizeof columns / sizeof *columns);
  emit_stage_rows(p, device);
  tsr__emit_table_end(p->emitter);
  tsr__emit_field(p->emitter, "omitted_stages", NULL, tsr__count(device->omitted_stages));
}

static void emit_group_rows(const printer *p, const tsr_stages_device *device) {
  tsr__buffer *out = &p->emitter->scratch;
  for (size_t i = 0; i < device->group_count; i++) {
    const tsr_stage_group *group = &device->groups[i];
    const tsr_stage *largest = &group->largest;
    texts t = {.out = out};
    char which[TSR__FORMAT_BYTES];
    if (tsr__emitter_is_text(p->emitter)) append_indent(out, group->depth);
    if (group->is_pattern)
      tsr__stage_pattern(out, name_of(p, group->name));
    else
      append_name(p, out, group->name);
    end_text(&t);
    if (group->is_pattern)
      append_name(p, out, largest->name);
    else
      tsr__buffer_text(out, which_of(largest, which));
    end_text(&t);
    append_change(out, largest);
    end_text(&t);
    if (out->failed) return;
    tsr__emit_row(p->emitter,
                  (tsr__cell[]){text_at(&t, 0), tsr__count(group->count), text_at(&t, 1),
                                at_start(largest), at_most(largest),
                                tsr__bytes(largest->end.totals.allocated_bytes), text_at(&t, 2)});
    out->size = 0;
    tsr__emit_field(p->emitter, "depth", NULL, tsr__count(group->depth));
    tsr__emit_object(p->emitter, "highest");
    tsr__emit_field(p->emitter, "name", NULL, tsr__text(name_of(p, largest->name)));
    emit_stage(p->emitter, largest);
    tsr__emit_end(p->emitter);
    tsr__emit_row_end(p->emitter);
  }
}

static void emit_groups(const printer *p, const tsr_stages_device *device, bool is_shown) {
  if (tsr__emitter_is_text(p->emitter) && !is_shown) return;
  const tsr__column columns[] = {{"name", "stage", TSR__ELASTIC},  {"stages", "count", TSR__RIGHT},
                                 {NULL, "the highest", TSR__LEFT}, {NULL, "at start", TSR__RIGHT},
                                 {NULL, "peak", TSR__RIGHT},       {NULL, "at end", TSR__RIGHT},
                                 {NULL, "change", TSR__RIGHT}};
  tsr__emit_table(p->emitter, "groups", columns, sizeof columns / sizeof *columns);
  emit_group_rows(p, device);
  tsr__emit_table_end(p->emitter);
  tsr__emit_field(p->emitter, "omitted_groups", NULL, tsr__count(device->omitted_groups));
}

/* What the table omits, and how to see it. */
static void print_omitted(const printer *p, const tsr_stages_device *device) {
  char stages[TSR__FORMAT_BYTES], groups[TSR__FORMAT_BYTES];
  uint64_t all = device->stage_count + device->omitted_stages;
  if (!tsr__emitter_is_text(p->emitter) || !device->omitted_stages) return;
  tsr__buffer *out = &p->emitter->scratch;
  if (device->omitted_groups)
    tsr__buffer_printf(out, "... and %s more stage names; ",
                       tsr__format_count(device->omitted_groups, groups));
  tsr__buffer_printf(out, "%s stages in all (--top 0 or -v shows each)",
                     tsr__format_count(all, stages));
  tsr__emit_line(p->emitter, TSR__DIM, 2);
}

static void emit_path(const printer *p, const tsr_stages_device *device) {
  if (tsr__emitter_is_text(p->emitter)) return;
  tsr__emit_array(p->emitter, "peak_stages");
  for (size_t i = 0; i < device->path_count; i++) {
    tsr__emit_inline_object(p->emitter, NULL);
    tsr__emit_field(p->emitter, "id", NULL, tsr__count(device->path[i].id));
    tsr__emit_field(p->emitter, "name", NULL, tsr__text(name_of(p, device->path[i].name)));
    tsr__emit_field(p->emitter, "repetition", NULL, tsr__count(device->path[i].repetition));
    tsr__emit_end(p->emitter);
  }
  tsr__emit_end(p->emitter);
}

static void emit_device(const printer *p, const tsr_stages_device *device) {
  bool shows_groups = device->omitted_stages != 0;
  print_verdict(p, device);
  tsr__emit_object(p->emitter, NULL);
  tsr__emit_field(p->emitter, "device", NULL, tsr__device(device->device));
  tsr__emit_field(p->emitter, "events", NULL, tsr__count(device->event_count));
  tsr__emit_field(p->emitter, "has_history", NULL, tsr__bool(device->has_history));
  if (!tsr__emitter_is_text(p->emitter)) emit_moment(p->emitter, "peak", &device->peak);
  emit_path(p, device);
  emit_stages(p, device, device->event_count && !shows_groups);
  emit_groups(p, device, device->event_count && shows_groups);
  tsr__emit_end(p->emitter);
  if (device->event_count) print_omitted(p, device);
}

int tsr__report_stages(const tsr_report_input *input, const tsr_stages *stages,
                       const tsr_report_options *options, tsr_write_fn *write, void *context,
                       tsr_error *error) {
  tsr__emitter emitter;
  tsr__warning_list warnings = {0};
  printer p = {&emitter, input->snapshot, stages};
  tsr__emitter_init(&emitter, options, write, context);
  tsr__heading_open(&emitter, &tsr__fields_stages, input);
  if (!stages->device_count)
    tsr__emit_printf(&emitter, TSR__VERDICT, "No device has events or segments.");
  for (size_t i = 0; i < stages->device_count; i++) {
    emit_device(&p, &stages->devices[i]);
    tsr__warnings_add(&warnings, stages->devices[i].warnings, stages->devices[i].warning_count);
  }
  if (!stages->annotation_count && stages->device_count)
    tsr__emit_printf(&emitter, TSR__DIM,
                     "  Mark them with torch.profiler.record_function(\"...\") while recording.");
  tsr__warnings_add(&warnings, stages->warnings, stages->warning_count);
  return tsr__heading_close(&emitter, input, &warnings, error);
}
