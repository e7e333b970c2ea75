/* report.c - memory by group, as text or JSON.
 *
 *   Device 0: peak 17.80 GiB of recorded memory at event 3,737 of 22,331; 62.1 % is activation.
 *
 *     category       bytes   share  allocations
 *     activation  11.05 GiB  62.1 %        1,204
 *
 *     In the order in which it was taken, topmost first (24 bands):
 *       category       bytes  allocations  since event
 *       activation  1.05 GiB           24        3,102
 *
 *     Over time, in 1.204 s; each line is drawn to its own peak:
 *       category         peak  at event    after  over time
 *       all        17.80 GiB     3,737  498.2 ms  ▁▂▄▆█▇▅▃▂▁
 *
 * Groups of 0 bytes were live at other moments only; they are listed so that two reports of one job have
 * the same rows. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "attribution/labels.h"
#include "base/format.h"
#include "base/memory.h"
#include "emit/emitter.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/profile/report.h"
#include "questions/reports.h"
#include "questions/shared/categories.h"
#include "questions/shared/moment.h"
#include "stacks/stacks.h"

enum { SPARK_COLUMNS = 40 };

const char *tsr__profile_column(tsr_profile_by by) {
  switch (by) {
  case TSR_PROFILE_BY_COMPILE_CONTEXT: return "compiled region";
  case TSR_PROFILE_BY_RULES: return "group";
  case TSR_PROFILE_BY_OP: return "operation";
  case TSR_PROFILE_BY_STACK: return "allocated at";
  case TSR_PROFILE_BY_MOSAIC_CATEGORY: return "category";
  default: return tsr_profile_by_name(by);
  }
}

const char *tsr__profile_group_name(tsr_profile_by by, const char *name) {
  if (!name) return "(others)";
  return by == TSR_PROFILE_BY_ANNOTATION && !*name ? "(no annotation)" : name;
}

void tsr__profile_since(tsr__buffer *out, int64_t time_us, int64_t first_us) {
  if (time_us == TSR_TIME_NONE || first_us == TSR_TIME_NONE || time_us < first_us) {
    tsr__buffer_text(out, "-");
    return;
  }
  uint64_t us = (uint64_t)time_us - (uint64_t)first_us;
  if (us < 1000)
    tsr__buffer_printf(out, "%u us", (unsigned)us);
  else if (us < 1000000)
    tsr__buffer_printf(out, "%u.%u ms", (unsigned)(us / 1000), (unsigned)(us / 100 % 10));
  else
    tsr__buffer_printf(out, "%" PRIu64 ".%03u s", us / 1000000, (unsigned)(us / 1000 % 1000));
}

/* ---- the verdict ---- */

/* The largest part of the peak, as the end of a sentence. `is_recorded`: the trace has events. */
static void say_most(tsr__buffer *out, tsr_profile_by by, const char *name, bool is_recorded) {
  if (by == TSR_PROFILE_BY_ANNOTATION)
    tsr__buffer_text(out, *name ? "was taken in " : "was taken outside every annotation");
  else if (by == TSR_PROFILE_BY_COMPILE_CONTEXT && !strcmp(name, "N/A"))
    name = "was taken outside every compiled region";
  else if (by == TSR_PROFILE_BY_RULES && !strcmp(name, "unknown"))
    name = "matches no rule";
  else if (by == TSR_PROFILE_BY_OP && *name != '(')
    tsr__buffer_text(out, "was taken by ");
  else if (by == TSR_PROFILE_BY_MODULE && *name != '(')
    tsr__buffer_text(out, "was taken in ");
  else if ((by == TSR_PROFILE_BY_LINE || by == TSR_PROFILE_BY_STACK) && *name != '(')
    tsr__buffer_text(out, "was taken at ");
  else if (by == TSR_PROFILE_BY_POOL && *name != '(')
    tsr__buffer_text(out, !strncmp(name, "pool", 4) ? "is in private " : "is in the ");
  else if (by == TSR_PROFILE_BY_METADATA && !strcmp(name, "(no metadata)"))
    name = "has no metadata";
  else if (by == TSR_PROFILE_BY_METADATA && !strcmp(name, "(other metadata)"))
    name = "has metadata without that key";
  else if (by == TSR_PROFILE_BY_METADATA && *name != '(')
    tsr__buffer_text(out, "has the metadata ");
  else if (!strcmp(name, TSR__LABEL_BEFORE))
    name = by == TSR_PROFILE_BY_METADATA
               ? (is_recorded ? "is older than the recording, and its metadata is unknown"
                              : "has no metadata on record")
               : (is_recorded ? "is older than the recording, and its stacks are unknown"
                              : "has no stack on record");
  else if (!strcmp(name, "(no stack recorded)"))
    name = "has no stack";
  else if (*name == '(')
    tsr__buffer_text(out, "belongs to ");
  else
    tsr__buffer_text(out, "is ");
  tsr__buffer_text(out, name);
}

/* Everything that is allocated, at the peak of `tessera peak`. */
static void say_peak(tsr__buffer *out, const tsr_profile_device *device) {
  char peak[TSR__FORMAT_BYTES], event[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES];
  tsr__format_size(device->allocated_bytes, peak);
  if (!device->has_history) {
    tsr__buffer_printf(out, "%s allocated; ", peak);
    tsr__say_no_history(out, device->event_count);
  } else if (device->peak_event < 0)
    tsr__buffer_printf(out, "peak %s allocated, before the first of %s event%s", peak,
                       tsr__format_count(device->event_count, count),
                       tsr__plural(device->event_count));
  else
    tsr__buffer_printf(out, "peak %s allocated at event %s of %s", peak,
                       tsr__format_count((uint64_t)device->peak_event, event),
                       tsr__format_count(device->event_count, count));
}

void tsr__profile_verdict(tsr__buffer *out, tsr_profile_by by, const tsr_profile_device *device) {
  char peak[TSR__FORMAT_BYTES], event[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES],
      share[TSR__FORMAT_BYTES];
  char name[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "%s: ", tsr__device_title(device->device, name));
  if (device->is_whole)
    say_peak(out, device);
  else if (!device->event_count)
    tsr__buffer_text(out, "no events were recorded");
  else if (device->peak_event < 0)
    tsr__buffer_printf(out, "%s event%s recorded, none of them an allocation",
                       tsr__format_count(device->event_count, count),
                       device->event_count == 1 ? " was" : "s were");
  else
    tsr__buffer_printf(out, "peak %s of recorded memory at event %s of %s",
                       tsr__format_size(device->peak_bytes, peak),
                       tsr__format_count((uint64_t)device->peak_event, event),
                       tsr__format_count(device->event_count, count));
  if ((device->is_whole || device->peak_event >= 0) && device->group_count && device->peak_bytes) {
    const tsr_profile_group *most = &device->groups[0];
    tsr__buffer_printf(out, "; %s ", tsr__format_percent(most->bytes, device->peak_bytes, share));
    say_most(out, by, most->name, device->event_count != 0);
  }
  tsr__buffer_text(out, ".");
}

static void print_verdict(tsr__emitter *emitter, tsr_profile_by by,
                          const tsr_profile_device *device) {
  tsr__emit_space(emitter);
  if (!tsr__emitter_is_text(emitter)) return;
  tsr__profile_verdict(&emitter->scratch, by, device);
  tsr__emit_line(emitter, TSR__VERDICT, 0);
}

/* ---- the peak ---- */

static void emit_peak(tsr__emitter *emitter, const tsr_profile_device *device) {
  tsr__emit_object(emitter, "peak");
  tsr__emit_field(emitter, "event", NULL, tsr__index(device->peak_event));
  tsr__emit_field(emitter, "time_us",
                  device->peak_time_us == TSR_TIME_NONE ? NULL : "time of the peak",
                  tsr__time(device->peak_time_us));
  tsr__emit_field(emitter, "requested_bytes", NULL, tsr__bytes(device->peak_bytes));
  tsr__emit_field(emitter, "allocated_bytes",
                  !device->is_whole && device->allocated_bytes > device->peak_bytes
                      ? "allocated in total then"
                      : NULL,
                  tsr__bytes(device->allocated_bytes));
  tsr__emit_end(emitter);
  tsr__emit_space(emitter);
}

static void print_omitted(tsr__emitter *emitter, const char *what, uint64_t count, uint64_t bytes) {
  char number[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES];
  if (!count) return;
  tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more %s%s, %s (--top 0 shows all)",
                   tsr__format_count(count, number), what, tsr__plural(count),
                   tsr__format_size(bytes, size));
}

/* Over the whole trace, in the style of torch.profiler. */
static void emit_trace(tsr__emitter *emitter, const tsr_profile_trace *trace) {
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_inline_object(emitter, "trace");
  tsr__emit_field(emitter, "allocations", NULL, tsr__count(trace->allocations));
  tsr__emit_field(emitter, "bytes", NULL, tsr__bytes(trace->bytes));
  tsr__emit_field(emitter, "largest_bytes", NULL, tsr__bytes(trace->largest_bytes));
  tsr__emit_field(emitter, "freed", NULL, tsr__count(trace->freed));
  tsr__emit_field(emitter, "mean_life_events", NULL,
                  trace->freed ? tsr__count(trace->mean_life_events) : tsr__nothing());
  tsr__emit_field(emitter, "mean_life_us", NULL,
                  trace->mean_life_us >= 0 ? tsr__index(trace->mean_life_us) : tsr__nothing());
  tsr__emit_end(emitter);
}

/* Why what is live at the peak is in this group. */
static void emit_reasons(tsr__emitter *emitter, const tsr_profile_device *device,
                         const char *name) {
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_array(emitter, "reasons");
  for (size_t i = 0; i < device->reason_count; i++) {
    const tsr_profile_reason *reason = &device->reasons[i];
    if (strcmp(tsr_category_name(reason->category), name) != 0) continue;
    tsr__emit_inline_object(emitter, NULL);
    tsr__emit_reason(emitter, reason->phase, reason->evidence);
    tsr__emit_field(emitter, "bytes", NULL, tsr__bytes(reason->bytes));
    tsr__emit_field(emitter, "allocations", NULL, tsr__count(reason->allocations));
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
}

/* "12.3 ms" or, without times, "120 events". */
static void append_life(tsr__buffer *out, const tsr_profile_trace *trace) {
  char count[TSR__FORMAT_BYTES];
  if (!trace->freed)
    tsr__buffer_text(out, "-");
  else if (trace->mean_life_us >= 0)
    tsr__profile_since(out, trace->mean_life_us, 0);
  else
    tsr__buffer_printf(out, "%s events", tsr__format_count(trace->mean_life_events, count));
}

static void emit_group(tsr__stack_printer *printer, tsr_profile_by by,
                       const tsr_profile_device *device, const tsr_profile_group *group) {
  tsr__emitter *emitter = printer->emitter;
  tsr__buffer *life = &emitter->scratch;
  if (tsr__emitter_is_text(emitter)) append_life(life, &group->trace);
  tsr__emit_row(
      emitter,
      (tsr__cell[]){tsr__string(group->name), tsr__string(tsr__profile_group_name(by, group->name)),
                    tsr__bytes(group->bytes), tsr__percent(group->bytes, device->peak_bytes),
                    tsr__count(group->allocations), tsr__bytes(group->peak_bytes),
                    tsr__index(group->peak_event), tsr__index(group->first_event),
                    tsr__bytes(group->trace.bytes), tsr__count(group->trace.allocations),
                    tsr__bytes(group->trace.largest_bytes),
                    tsr__text((tsr_text){life->data, life->size})});
  life->size = 0;
  emit_trace(emitter, &group->trace);
  if (by == TSR_PROFILE_BY_CATEGORY) emit_reasons(emitter, device, group->name);
  if (by == TSR_PROFILE_BY_STACK) tsr__stack_emit(printer, group->stack);
  tsr__emit_row_end(emitter);
}

static void emit_groups(tsr__stack_printer *printer, tsr_profile_by by,
                        const tsr_profile_device *device) {
  tsr__emitter *emitter = printer->emitter;
  bool is_whole = device->is_whole; /* otherwise the tables stay narrow */
  const tsr__column columns[] = {{"name", NULL, TSR__LEFT},
                                 {NULL, tsr__profile_column(by), TSR__ELASTIC},
                                 {"bytes", "bytes", TSR__RIGHT},
                                 {NULL, "share", TSR__RIGHT},
                                 {"allocations", is_whole ? "count" : "allocations", TSR__RIGHT},
                                 {"peak_bytes", NULL, TSR__RIGHT},
                                 {"peak_event", NULL, TSR__RIGHT},
                                 {"first_event", NULL, TSR__RIGHT},
                                 {NULL, is_whole ? "in total" : NULL, TSR__RIGHT},
                                 {NULL, is_whole ? "times" : NULL, TSR__SPARE},
                                 {NULL, is_whole ? "largest" : NULL, TSR__RIGHT},
                                 {NULL, is_whole ? "mean life" : NULL, TSR__SPARE}};
  tsr__emit_table(emitter, "groups", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < device->group_count; i++)
    emit_group(printer, by, device, &device->groups[i]);
  tsr__emit_table_end(emitter);
  tsr__emit_field(emitter, "omitted_groups", NULL, tsr__count(device->omitted_groups));
  tsr__emit_field(emitter, "omitted_bytes", NULL, tsr__bytes(device->omitted_bytes));
  print_omitted(emitter, "group", device->omitted_groups, device->omitted_bytes);
}

/* The rows of groups that hold nothing up to the peak. */
static void emit_later_rows(tsr__emitter *emitter, tsr_profile_by by,
                            const tsr_profile_device *device) {
  bool is_shown = emitter->options.verbose && device->later_group_count;
  const tsr__column columns[] = {{"name", NULL, TSR__LEFT},
                                 {NULL, tsr__profile_column(by), TSR__ELASTIC},
                                 {"peak_bytes", "peak", TSR__RIGHT},
                                 {"peak_event", "at event", TSR__RIGHT},
                                 {"first_event", "since event", TSR__RIGHT}};
  if (is_shown) {
    tsr__emit_space(emitter);
    tsr__emit_printf(emitter, TSR__PLAIN, "  Only after the peak:");
  }
  tsr__emit_table(emitter, "later_groups", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < device->later_group_count; i++) {
    const tsr_profile_group *group = &device->later_groups[i];
    if (tsr__emitter_is_text(emitter) && !is_shown) break;
    tsr__emit_row(emitter,
                  (tsr__cell[]){tsr__string(group->name),
                                tsr__string(tsr__profile_group_name(by, group->name)),
                                tsr__bytes(group->peak_bytes), tsr__index(group->peak_event),
                                tsr__index(group->first_event)});
    emit_trace(emitter, &group->trace);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

static void emit_later_groups(tsr__emitter *emitter, tsr_profile_by by,
                              const tsr_profile_device *device) {
  char count[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES];
  bool is_listed = emitter->options.verbose && device->later_group_count;
  uint64_t all = device->omitted_later_groups + device->later_group_count;
  uint64_t left = is_listed ? device->omitted_later_groups : all;
  emit_later_rows(emitter, by, device);
  tsr__emit_field(emitter, "omitted_later_groups", NULL, tsr__count(device->omitted_later_groups));
  if (!left || !tsr__emitter_is_text(emitter)) return;
  tsr__buffer_printf(&emitter->scratch, "... and %s more group%s", tsr__format_count(left, count),
                     tsr__plural(left));
  if (is_listed)
    tsr__buffer_text(&emitter->scratch, " (--top 0 shows all)");
  else
    tsr__buffer_printf(&emitter->scratch, " only after the peak, %s%s (-v shows %s)",
                       left > 1 ? "the largest " : "",
                       tsr__format_size(device->later_groups[0].peak_bytes, size),
                       left > 1 ? "them" : "it");
  tsr__emit_line(emitter, TSR__DIM, 2);
}

/* ---- why, and where: text ---- */

static void print_reasons(tsr__emitter *emitter, const tsr_profile_device *device) {
  if (!tsr__emitter_is_text(emitter) || !device->reason_count) return;
  const tsr__column columns[] = {{NULL, "category", TSR__CATEGORY},
                                 {NULL, "bytes", TSR__RIGHT},
                                 {NULL, "count", TSR__RIGHT},
                                 {NULL, "phase", TSR__LEFT},
                                 {NULL, "because", TSR__ELASTIC}};
  tsr__buffer *why = &emitter->scratch;
  tsr__emit_space(emitter);
  tsr__emit_table(emitter, NULL, columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < device->reason_count; i++) {
    const tsr_profile_reason *reason = &device->reasons[i];
    bool is_known = reason->phase != TSR_PHASE_UNKNOWN;
    tsr__append_reason(why, reason->evidence);
    tsr__emit_row(emitter,
                  (tsr__cell[]){tsr__string(tsr_category_name(reason->category)),
                                tsr__bytes(reason->bytes), tsr__count(reason->allocations),
                                tsr__string(is_known ? tsr_phase_name(reason->phase) : "-"),
                                tsr__text((tsr_text){why->data, why->size})});
    why->size = 0;
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

static void print_stacks(tsr__stack_printer *printer, const tsr_profile_device *device) {
  char size[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES];
  tsr__emitter *emitter = printer->emitter;
  for (size_t i = 0; tsr__emitter_is_text(emitter) && i < device->group_count; i++) {
    const tsr_profile_group *group = &device->groups[i];
    if (group->stack == TSR_NONE || !tsr_snapshot_stack(printer->snapshot, group->stack).depth)
      continue;
    tsr__emit_space(emitter);
    tsr__emit_printf(emitter, TSR__BOLD, "%s: %s in %s allocation%s", group->name,
                     tsr__format_size(group->bytes, size),
                     tsr__format_count(group->allocations, count), tsr__plural(group->allocations));
    tsr__stack_print(printer, group->stack);
  }
}

/* ---- in the order in which it was taken ---- */

static const tsr__column *layer_columns(tsr_profile_by by, tsr__column columns[5]) {
  columns[0] = (tsr__column){"name", NULL, TSR__LEFT};
  columns[1] = (tsr__column){NULL, tsr__profile_column(by), TSR__ELASTIC};
  columns[2] = (tsr__column){"bytes", "bytes", TSR__RIGHT};
  columns[3] = (tsr__column){"allocations", "allocations", TSR__RIGHT};
  columns[4] = (tsr__column){"birth_event", "since event", TSR__RIGHT};
  return columns;
}

static void emit_layer(tsr__emitter *emitter, tsr_profile_by by, const tsr_profile_layer *layer) {
  tsr__emit_row(emitter, (tsr__cell[]){tsr__string(layer->name),
                                       tsr__string(tsr__profile_group_name(by, layer->name)),
                                       tsr__bytes(layer->bytes), tsr__count(layer->allocations),
                                       tsr__index(layer->birth_event)});
  tsr__emit_row_end(emitter);
}

/* JSON has the bottom first, as the bands are stacked; text the top, as they would be drawn. */
static void emit_layers(tsr__emitter *emitter, tsr_profile_by by,
                        const tsr_profile_device *device) {
  tsr__column columns[5];
  bool is_text = tsr__emitter_is_text(emitter);
  if (device->layer_count) {
    char count[TSR__FORMAT_BYTES];
    uint64_t all = device->layer_count + device->omitted_layers;
    tsr__emit_space(emitter);
    tsr__emit_printf(emitter, TSR__PLAIN, "  In allocation order, topmost first (%s band%s%s):",
                     tsr__format_count(all, count), tsr__plural(all),
                     device->omitted_layers ? ", the largest of them" : "");
  }
  tsr__emit_table(emitter, "layers", layer_columns(by, columns), 5);
  for (size_t i = 0; i < device->layer_count; i++)
    emit_layer(emitter, by, &device->layers[is_text ? device->layer_count - 1 - i : i]);
  tsr__emit_table_end(emitter);
  tsr__emit_field(emitter, "omitted_layers", NULL, tsr__count(device->omitted_layers));
  tsr__emit_field(emitter, "omitted_layer_bytes", NULL, tsr__bytes(device->omitted_layer_bytes));
  print_omitted(emitter, "band", device->omitted_layers, device->omitted_layer_bytes);
}

/* ---- over time: JSON ---- */

static void emit_series_json(tsr__emitter *emitter, const tsr_profile_device *device) {
  tsr__emit_array(emitter, "groups");
  for (size_t i = 0; i < device->series_count; i++) {
    const tsr_profile_series *series = &device->series[i];
    tsr__emit_inline_object(emitter, NULL);
    tsr__emit_field(emitter, "name", NULL,
                    series->name ? tsr__string(series->name) : tsr__nothing());
    tsr__emit_field(emitter, "groups", NULL, tsr__count(series->group_count));
    tsr__emit_field(emitter, "peak_bytes", NULL, tsr__bytes(series->peak_bytes));
    tsr__emit_field(emitter, "peak_event", NULL, tsr__index(series->peak_event));
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
}

static void emit_bands_json(tsr__emitter *emitter, const tsr_profile_device *device) {
  tsr__emit_array(emitter, "bands");
  for (size_t i = 0; i < device->band_count; i++) {
    const tsr_profile_band *band = &device->bands[i];
    tsr__emit_inline_object(emitter, NULL);
    tsr__emit_field(emitter, "group", NULL, tsr__count(band->series));
    tsr__emit_field(emitter, "birth_event", NULL, tsr__index(band->birth_event));
    tsr__emit_field(emitter, "death_event", NULL,
                    band->death_event < 0 ? tsr__nothing() : tsr__index(band->death_event));
    tsr__emit_field(emitter, "peak_bytes", NULL, tsr__bytes(band->peak_bytes));
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
}

static void emit_pair(tsr__emitter *emitter, int64_t index, uint64_t bytes) {
  tsr__emit_inline_array(emitter, NULL);
  tsr__emit_item(emitter, tsr__index(index));
  tsr__emit_item(emitter, tsr__bytes(bytes));
  tsr__emit_end(emitter);
}

static void emit_moment_json(tsr__emitter *emitter, const tsr_profile_device *device,
                             const tsr_profile_moment *moment, bool is_ordered) {
  tsr__emit_inline_object(emitter, NULL);
  tsr__emit_field(emitter, "event", NULL, tsr__index(moment->event));
  tsr__emit_field(emitter, "time_us", NULL, tsr__time(moment->time_us));
  tsr__emit_field(emitter, "requested_bytes", NULL, tsr__bytes(moment->bytes));
  tsr__emit_field(emitter, "older_bytes", NULL, tsr__bytes(moment->older_bytes));
  tsr__emit_array(emitter, "groups");
  for (size_t i = 0; i < moment->share_count; i++) {
    const tsr_profile_share *share = &device->shares[moment->first_share + i];
    emit_pair(emitter, share->series, share->bytes);
  }
  tsr__emit_end(emitter);
  if (is_ordered) {
    tsr__emit_array(emitter, "bands");
    for (size_t i = 0; i < moment->cell_count; i++) {
      const tsr_profile_cell *cell = &device->cells[moment->first_cell + i];
      emit_pair(emitter, cell->band == TSR_PROFILE_MIXED ? -1 : (int64_t)cell->band, cell->bytes);
    }
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
}

static void emit_history_json(tsr__emitter *emitter, const tsr_profile_device *device,
                              bool is_ordered) {
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_object(emitter, "history");
  emit_series_json(emitter, device);
  if (is_ordered) emit_bands_json(emitter, device);
  tsr__emit_array(emitter, "moments");
  for (size_t i = 0; i < device->moment_count; i++)
    emit_moment_json(emitter, device, &device->moments[i], is_ordered);
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
}

/* ---- over time: text ---- */

/* Bytes of one series, or of all of them, at a moment. */
static uint64_t bytes_at(const tsr_profile_device *device, const tsr_profile_moment *moment,
                         const uint32_t *series) {
  if (!series) return moment->bytes;
  for (size_t i = 0; i < moment->share_count; i++)
    if (device->shares[moment->first_share + i].series == *series)
      return device->shares[moment->first_share + i].bytes;
  return 0;
}

/* The most it holds in each range of the window, drawn to the most it holds at all. */
static void append_spark(tsr__buffer *out, const tsr_profile_device *device,
                         const uint32_t *series) {
  static const char *const bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  uint64_t most[SPARK_COLUMNS] = {0}, peak = 0, last = 0;
  bool has_moment[SPARK_COLUMNS] = {false};
  const tsr_profile_moment *moments = device->moments;
  int64_t first = moments[0].event;
  double events = (double)(moments[device->moment_count - 1].event - first) + 1;
  for (size_t i = 0; i < device->moment_count; i++) {
    size_t column = (size_t)((double)(moments[i].event - first) * SPARK_COLUMNS / events);
    uint64_t bytes = bytes_at(device, &moments[i], series);
    has_moment[column] = true;
    if (bytes > most[column]) most[column] = bytes;
    if (bytes > peak) peak = bytes;
  }
  size_t end = SPARK_COLUMNS; /* no blanks at the end of a line */
  while (end && has_moment[end - 1] && !most[end - 1]) end--;
  for (size_t i = 0; i < end; i++) {
    last = has_moment[i] ? most[i] : last;
    double share = peak ? (double)last / (double)peak : 0;
    tsr__buffer_text(out, bars[last ? 1 + (size_t)(share * 7 + 0.5) : 0]);
  }
}

static void print_over_time_row(tsr__emitter *emitter, const tsr_profile_device *device,
                                const char *name, const uint32_t *series) {
  const tsr_profile_series *s = series ? &device->series[*series] : NULL;
  char words[TSR__FORMAT_BYTES + 16], count[TSR__FORMAT_BYTES];
  tsr__buffer *out = &emitter->scratch;
  if (s && !s->name) {
    (void)snprintf(words, sizeof words, "(%s other%s)", tsr__format_count(s->group_count, count),
                   tsr__plural(s->group_count));
    name = words;
  }
  tsr__profile_since(out, s ? s->peak_time_us : device->peak_time_us, device->first_time_us);
  size_t spark = out->size;
  append_spark(out, device, series);
  if (!out->failed)
    tsr__emit_row(emitter,
                  (tsr__cell[]){tsr__string(name),
                                tsr__bytes(s ? s->peak_bytes : device->peak_bytes),
                                tsr__index(s ? s->peak_event : device->peak_event),
                                tsr__text((tsr_text){out->data, spark}),
                                tsr__text((tsr_text){out->data + spark, out->size - spark})});
  tsr__emit_row_end(emitter);
  out->size = 0;
}

static void print_over_time(tsr__emitter *emitter, tsr_profile_by by,
                            const tsr_profile_device *device) {
  if (!tsr__emitter_is_text(emitter) || !device->moment_count) return;
  const tsr__column columns[] = {{NULL, tsr__profile_column(by), TSR__ELASTIC},
                                 {NULL, "peak", TSR__RIGHT},
                                 {NULL, "at event", TSR__RIGHT},
                                 {NULL, "after", TSR__RIGHT},
                                 {NULL, "over time, each scaled to its own peak", TSR__LEFT}};
  tsr__emit_space(emitter);
  tsr__emit_table(emitter, NULL, columns, sizeof columns / sizeof *columns);
  print_over_time_row(emitter, device, device->is_whole ? "all" : "all recorded", NULL);
  for (uint32_t i = 0; i < device->series_count; i++)
    print_over_time_row(emitter, device, tsr__profile_group_name(by, device->series[i].name), &i);
  tsr__emit_table_end(emitter);
}

/* ---- the report ---- */

/* As users type it: "category", "metadata:layer". */
static void emit_by(tsr__emitter *emitter, const tsr_profile *profile) {
  tsr__buffer *by = &emitter->scratch;
  if (tsr__emitter_is_text(emitter)) return;
  tsr__buffer_text(by, tsr_profile_by_name(profile->by));
  if (profile->key) tsr__buffer_printf(by, ":%s", profile->key);
  tsr__emit_field(emitter, "by", NULL, tsr__text((tsr_text){by->data, by->size}));
  by->size = 0;
}

static void emit_device(tsr__stack_printer *printer, const tsr_profile *profile,
                        const tsr_profile_device *device) {
  tsr__emitter *emitter = printer->emitter;
  tsr_profile_by by = profile->by;
  print_verdict(emitter, by, device);
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__device(device->device));
  tsr__emit_field(emitter, "events", NULL, tsr__count(device->event_count));
  tsr__emit_field(emitter, "has_history", NULL, tsr__bool(device->has_history));
  emit_by(emitter, profile);
  emit_peak(emitter, device);
  emit_groups(printer, by, device);
  emit_later_groups(emitter, by, device);
  if (by == TSR_PROFILE_BY_CATEGORY && emitter->options.verbose) print_reasons(emitter, device);
  if (profile->is_ordered) emit_layers(emitter, by, device);
  if (profile->has_history) {
    emit_history_json(emitter, device, profile->is_ordered);
    print_over_time(emitter, by, device);
  }
  if (by == TSR_PROFILE_BY_STACK) print_stacks(printer, device);
  tsr__emit_end(emitter);
}

int tsr__report_profile(const tsr_report_input *input, const tsr_profile *profile,
                        const tsr_report_options *options, tsr_write_fn *write, void *context,
                        tsr_error *error) {
  tsr__emitter emitter;
  tsr__warning_list warnings = {0};
  tsr__stack_printer printer;
  tsr__emitter_init(&emitter, options, write, context);
  tsr__stack_printer_init(&printer, &emitter, input->snapshot);
  tsr__heading_open(&emitter, &tsr__fields_profile, input);
  if (!profile->device_count)
    tsr__emit_printf(&emitter, TSR__VERDICT, "No device has events or segments.");
  for (size_t i = 0; i < profile->device_count; i++) {
    emit_device(&printer, profile, &profile->devices[i]);
    tsr__warnings_add(&warnings, profile->devices[i].warnings, profile->devices[i].warning_count);
  }
  tsr__stack_printer_release(&printer);
  return tsr__heading_close(&emitter, input, &warnings, error);
}
