/* report.c - what is in the file, as text or JSON.
 *
 * Text opens with one line about the file, then has one section per device: a sentence (how much was
 * recorded, over what time, what was held at the end), the events by action, and the rest as
 * fields. Absent values (no times in the file, no free without its alloc) are omitted from text
 * and are null or 0 in JSON.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/format.h"
#include "emit/emitter.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/reports.h"
#include "questions/shared/moment.h"

/* " over 12.34 s" in a unit that keeps the number short; empty when the times are not known. */
static const char *format_span(const tsr_info_device *device, char text[TSR__FORMAT_BYTES]) {
  text[0] = 0;
  if (device->first_time_us == TSR_TIME_NONE || device->last_time_us < device->first_time_us)
    return text;
  if (device->last_time_us == device->first_time_us) return text; /* a moment, not a time */
  double us = (double)((uint64_t)device->last_time_us - (uint64_t)device->first_time_us);
  double value = us / 3600e6;
  const char *unit = "h";
  if (us < 1e6)
    value = us / 1e3, unit = "ms";
  else if (us < 120e6)
    value = us / 1e6, unit = "s";
  else if (us < 7200e6)
    value = us / 60e6, unit = "min";
  (void)snprintf(text, TSR__FORMAT_BYTES, " over %.2f %s", value, unit);
  return text;
}

static void print_file(tsr__emitter *emitter, const tsr_report_input *input, const tsr_info *info) {
  char size[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES];
  uint64_t event_count = 0;
  size_t gpu_count = 0;
  for (size_t i = 0; i < info->device_count; i++) {
    const tsr_info_device *device = &info->devices[i];
    bool is_gpu = device->device < TSR_DEVICE_CPU;
    gpu_count += is_gpu;
    if (is_gpu) event_count = tsr__sum_u64(event_count, device->event_count);
  }
  tsr__buffer *out = &emitter->scratch;
  tsr__buffer_printf(out, "%s: %s, %s; ", input->path ? input->path : "",
                     tsr_snapshot_format(input->snapshot),
                     tsr__format_size(tsr_snapshot_input_bytes(input->snapshot), size));
  if (gpu_count)
    tsr__buffer_printf(out, "%zu device%s, %s event%s", gpu_count, tsr__plural(gpu_count),
                       tsr__format_count(event_count, count), tsr__plural(event_count));
  else if (!info->device_count || info->devices[0].device == TSR_DEVICE_HOST)
    tsr__buffer_text(out, "no device has events or segments");
  for (size_t i = gpu_count; i < info->device_count; i++) {
    const tsr_info_device *device = &info->devices[i];
    char name[TSR__FORMAT_BYTES];
    bool is_first = !gpu_count && i == 0 && device->device == TSR_DEVICE_CPU;
    tsr__buffer_printf(
        out, "%s%s, %s event%s", is_first ? "" : "; ", tsr__device_name(device->device, name),
        tsr__format_count(device->event_count, count), tsr__plural(device->event_count));
  }
  tsr__buffer_text(out, ".");
  tsr__emit_line(emitter, TSR__VERDICT, 0);
}

static void print_device(tsr__emitter *emitter, const tsr_info_device *device) {
  char name[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES], span[TSR__FORMAT_BYTES];
  tsr__emit_space(emitter);
  if (!tsr__emitter_is_text(emitter)) return;
  tsr__buffer *out = &emitter->scratch;
  if (device->event_count)
    tsr__buffer_printf(out, "%s: %s event%s%s; ", tsr__device_title(device->device, name),
                       tsr__format_count(device->event_count, count),
                       tsr__plural(device->event_count), format_span(device, span));
  else
    tsr__buffer_printf(out, "%s: no events were recorded; ",
                       tsr__device_title(device->device, name));
  if (device->segment_count)
    tsr__say_held(out, &device->end);
  else
    tsr__buffer_text(out, "no segments");
  tsr__buffer_text(out, " at the end.");
  tsr__emit_line(emitter, TSR__VERDICT, 0);
}

static void emit_actions(tsr__emitter *emitter, const tsr_snapshot *snapshot,
                         const tsr_info_device *device) {
  static const tsr__column columns[] = {
      {NULL, "action", TSR__ELASTIC}, {NULL, "events", TSR__RIGHT}, {NULL, "share", TSR__RIGHT}};
  tsr__emit_object(emitter, "actions");
  for (size_t i = 0; i < device->action_count; i++)
    tsr__emit_member(emitter, tsr_snapshot_action_name(snapshot, device->actions[i].action),
                     tsr__count(device->actions[i].count));
  tsr__emit_end(emitter);
  tsr__emit_table(emitter, NULL, columns, 3);
  for (size_t i = 0; i < device->action_count; i++) {
    tsr_action_tally tally = device->actions[i];
    tsr__emit_row(emitter,
                  (tsr__cell[]){tsr__text(tsr_snapshot_action_name(snapshot, tally.action)),
                                tsr__count(tally.count),
                                tsr__percent(tally.count, device->event_count)});
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
  tsr__emit_space(emitter);
}

static void emit_end_totals(tsr__emitter *emitter, const tsr_totals *end) {
  tsr__emit_object(emitter, "end");
  tsr__emit_field(emitter, "requested_bytes", "requested at the end",
                  tsr__bytes(end->requested_bytes));
  tsr__emit_field(emitter, "allocated_bytes", "allocated at the end",
                  tsr__bytes(end->allocated_bytes));
  tsr__emit_field(emitter, "active_bytes", "active at the end", tsr__bytes(end->active_bytes));
  tsr__emit_field(emitter, "reserved_bytes", "reserved at the end",
                  tsr__bytes(end->reserved_bytes));
  tsr__emit_end(emitter);
}

/* How far the replay can be trusted; in text one line for each check that the trace allows. */
static void emit_agreement(tsr__emitter *emitter, const char *title, uint64_t matched,
                           uint64_t whole) {
  char text[2 * TSR__FORMAT_BYTES], first[TSR__FORMAT_BYTES], second[TSR__FORMAT_BYTES];
  if (!whole) return;
  (void)snprintf(text, sizeof text, "%s of %s", tsr__format_count(matched, first),
                 tsr__format_count(whole, second));
  tsr__emit_field(emitter, NULL, title, tsr__string(text));
}

static void emit_replay(tsr__emitter *emitter, const tsr_replay_check *replay) {
  tsr__emit_object(emitter, "replay");
  tsr__emit_field(emitter, "reused", NULL, tsr__count(replay->reused));
  tsr__emit_field(emitter, "reused_matched", NULL, tsr__count(replay->reused_matched));
  tsr__emit_field(emitter, "segments_new", NULL, tsr__count(replay->segments_new));
  tsr__emit_field(emitter, "segments_matched", NULL, tsr__count(replay->segments_matched));
  tsr__emit_field(emitter, "final_blocks", NULL, tsr__count(replay->final_blocks));
  tsr__emit_field(emitter, "final_matched", NULL, tsr__count(replay->final_matched));
  tsr__emit_end(emitter);
  emit_agreement(emitter, "replay: reused where predicted", replay->reused_matched, replay->reused);
  emit_agreement(emitter, "replay: segments as predicted", replay->segments_matched,
                 replay->segments_new);
  emit_agreement(emitter, "replay: final blocks as recorded", replay->final_matched,
                 replay->final_blocks);
}

/* Of a snapshot that tessera made. */
static void emit_plan(tsr__emitter *emitter, tsr_text hash) {
  if (hash.size_bytes) tsr__emit_field(emitter, "plan_hash", "plan", tsr__text(hash));
}

static void emit_device(tsr__emitter *emitter, const tsr_snapshot *snapshot, const tsr_info *info,
                        const tsr_info_device *device) {
  bool has_time = device->first_time_us != TSR_TIME_NONE;
  print_device(emitter, device);
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__device(device->device));
  tsr__emit_field(emitter, "events", NULL, tsr__count(device->event_count));
  emit_actions(emitter, snapshot, device);
  tsr__emit_field(emitter, "segments", "segments", tsr__count(device->segment_count));
  tsr__emit_field(emitter, "blocks", "blocks", tsr__count(device->block_count));
  tsr__emit_field(emitter, "stacks", "distinct stacks", tsr__count(device->stack_count));
  tsr__emit_field(emitter, "frames", "distinct frames", tsr__count(device->frame_count));
  tsr__emit_field(emitter, "first_time_us", has_time ? "first event" : NULL,
                  tsr__time(device->first_time_us));
  tsr__emit_field(emitter, "last_time_us", has_time ? "last event" : NULL,
                  tsr__time(device->last_time_us));
  tsr__emit_field(emitter, "frees_without_alloc",
                  device->frees_without_alloc ? "frees without an alloc" : NULL,
                  tsr__count(device->frees_without_alloc));
  emit_end_totals(emitter, &device->end);
  emit_replay(emitter, &device->replay);
  emit_plan(emitter, info->plan_hash);
  tsr__emit_end(emitter);
}

int tsr__report_info(const tsr_report_input *input, const tsr_info *info,
                     const tsr_report_options *options, tsr_write_fn *write, void *context,
                     tsr_error *error) {
  tsr__emitter emitter;
  tsr__emitter_init(&emitter, options, write, context);
  tsr__heading_open(&emitter, &tsr__fields_info, input);
  if (tsr__emitter_is_text(&emitter)) print_file(&emitter, input, info);
  for (size_t i = 0; i < info->device_count; i++)
    emit_device(&emitter, input->snapshot, info, &info->devices[i]);
  tsr__warning_list warnings = {0};
  for (size_t i = 0; i < info->device_count; i++)
    tsr__warnings_add(&warnings, info->devices[i].warnings, info->devices[i].warning_count);
  return tsr__heading_close(&emitter, input, &warnings, error);
}
