/* report.c - what holds the memory at the peak, as text or JSON.
 *
 *   Device 0: peak 22.55 GiB allocated of 23.45 GiB reserved, at event 3,737 of 22,331; 4.75 GiB
 * ...
 *
 *     #   share     bytes  count  category    allocated at
 *     1  46.1 %  8.20 GiB     12  activation  model.py:382 forward (aten::mm)
 *     ... and 57 more stacks, 1.20 GiB (--top 0 shows all)
 *
 *     #     bytes  count  stacks of these rows, below /home/me
 *     1  8.20 GiB     12  train.py:40 main > model.py:382 forward
 *
 * By default that fits on one screen.
 */
#include <inttypes.h>

#include "base/format.h"
#include "emit/emitter.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/reports.h"
#include "questions/shared/findings.h"
#include "questions/shared/imbalance.h"
#include "questions/shared/moment.h"
#include "questions/shared/stepping.h"

static void append_peak(tsr__buffer *out, const tsr_peak_device *device) {
  char peak[TSR__FORMAT_BYTES], event[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES];
  tsr__buffer_text(out, "peak ");
  tsr__say_held(out, &device->peak.totals);
  tsr__buffer_text(out, ", ");
  if (device->peak.event >= 0)
    tsr__buffer_printf(out, "at event %s of %s",
                       tsr__format_count((uint64_t)device->peak.event, event),
                       tsr__format_count(device->event_count, count));
  else
    tsr__buffer_printf(out, "before the first of %s event%s",
                       tsr__format_count(device->event_count, count),
                       tsr__plural(device->event_count));
  if (device->peak.event >= 0 && device->start.allocated_bytes)
    tsr__buffer_printf(out, "; %s date from before the recording",
                       tsr__format_size(device->start.allocated_bytes, peak));
  tsr__buffer_text(out, ".");
}

/* Without a history there is no peak to show, only one state. */
static void append_no_history(tsr__buffer *out, const tsr_peak_device *device) {
  tsr__say_no_history(out, device->event_count);
  tsr__buffer_text(out, "; ");
  tsr__say_held(out, &device->peak.totals);
  tsr__buffer_text(out, ".");
}

static void print_verdict(tsr__emitter *emitter, const tsr_peak_device *device) {
  tsr__emit_space(emitter);
  if (!tsr__emitter_is_text(emitter)) return;
  char name[TSR__FORMAT_BYTES];
  tsr__buffer_printf(&emitter->scratch, "%s: ", tsr__device_title(device->device, name));
  if (device->has_history)
    append_peak(&emitter->scratch, device);
  else
    append_no_history(&emitter->scratch, device);
  tsr__emit_paragraph(emitter, TSR__VERDICT, 0);
}

/* For a file that has hardly more than segments, because the history was not recorded. */
static void explain_recording(tsr__emitter *emitter, const tsr_snapshot *snapshot,
                              const tsr_peak *peak) {
  bool has_history = false;
  for (size_t i = 0; i < peak->device_count; i++) has_history |= peak->devices[i].has_history;
  if (has_history || !peak->device_count) return;
  tsr__emit_printf(emitter, TSR__PLAIN, "  %s", tsr__how_to_record(snapshot));
}

static void emit_peak(tsr__emitter *emitter, const tsr_peak_device *device) {
  tsr__emit_object(emitter, "peak");
  tsr__emit_field(emitter, "event", NULL, tsr__index(device->peak.event));
  tsr__emit_field(emitter, "time_us",
                  device->peak.time_us == TSR_TIME_NONE ? NULL : "time of the peak",
                  tsr__time(device->peak.time_us));
  tsr__emit_field(emitter, "requested_bytes", NULL,
                  tsr__bytes(device->peak.totals.requested_bytes));
  tsr__emit_field(emitter, "allocated_bytes", NULL,
                  tsr__bytes(device->peak.totals.allocated_bytes));
  tsr__emit_field(emitter, "active_bytes", NULL, tsr__bytes(device->peak.totals.active_bytes));
  tsr__emit_field(emitter, "reserved_bytes", NULL, tsr__bytes(device->peak.totals.reserved_bytes));
  tsr__emit_field(emitter, "unsplit_bytes", NULL, tsr__bytes(device->peak_unsplit_bytes));
  tsr__emit_end(emitter);
  tsr__emit_totals(emitter, "start", &device->start);
  tsr__emit_field(emitter, "start_unsplit_bytes", NULL, tsr__bytes(device->start_unsplit_bytes));
  tsr__emit_totals(emitter, "end", &device->end);
  tsr__emit_totals(emitter, "maxima", &device->maxima);
  tsr__emit_fragmentation(emitter, &device->fragmentation);
  tsr__emit_private_pools(emitter, device->private_pools, device->private_pool_count);
}

static void emit_recorded(tsr__emitter *emitter, const tsr_recorded *recorded) {
  tsr__emit_object(emitter, "recorded");
  tsr__emit_field(emitter, "event", NULL, tsr__index(recorded->peak_event));
  tsr__emit_field(emitter, "time_us", NULL, tsr__time(recorded->peak_time_us));
  tsr__emit_field(emitter, "dynamic_peak_bytes", NULL, tsr__bytes(recorded->dynamic_peak_bytes));
  tsr__emit_field(emitter, "static_bytes", NULL, tsr__bytes(recorded->static_bytes));
  tsr__emit_field(emitter, "overall_bytes", NULL, tsr__bytes(recorded->overall_bytes));
  tsr__emit_end(emitter);
}

static tsr__share_list shares_of(const tsr_peak_device *device) {
  return (tsr__share_list){device->stacks,
                           device->stack_count,
                           device->omitted_stacks,
                           device->omitted_bytes,
                           tsr__whole_of(&device->peak.totals),
                           device->names,
                           device->has_history};
}

/* About how many lines a device takes without its stacks. */
static size_t lines_of(const tsr_snapshot *snapshot, const tsr_peak_device *device) {
  tsr__share_list shares = shares_of(device);
  return (device->stop.event >= 0) +
         tsr__screen_lines(&shares, device->private_pool_count, &device->fragmentation) +
         tsr__findings_lines(snapshot, device->findings, device->finding_count);
}

static void emit_device(tsr__stack_printer *printer, const tsr_peak *peak, size_t index,
                        tsr__screen *screen) {
  tsr__emitter *emitter = printer->emitter;
  const tsr_peak_device *device = &peak->devices[index];
  tsr__share_list shares = shares_of(device);
  print_verdict(emitter, device);
  tsr__emit_loss(emitter, device->is_partial);
  tsr__emit_stop(emitter, &device->stop, device->unit);
  if (index == 0) explain_recording(emitter, printer->snapshot, peak);
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__device(device->device));
  tsr__emit_field(emitter, "events", NULL, tsr__count(device->event_count));
  tsr__emit_field(emitter, "has_history", NULL, tsr__bool(device->has_history));
  emit_peak(emitter, device);
  emit_recorded(emitter, &device->recorded);
  tsr__emit_stop_fields(emitter, &device->stop);
  tsr__emit_shares(printer, &shares);
  tsr__findings_emit(printer, device->findings, device->finding_count);
  tsr__emit_end(emitter);
  tsr__findings_print(printer, "What to do", device->findings, device->finding_count);
  size_t lines = lines_of(printer->snapshot, device);
  tsr__print_shares(printer, &shares, tsr__screen_take(screen, lines, emitter->line_count));
}

static void gather_warnings(tsr__warning_list *list, const tsr_peak *peak) {
  for (size_t i = 0; i < peak->device_count; i++)
    tsr__warnings_add(list, peak->devices[i].warnings, peak->devices[i].warning_count);
}

static tsr__screen screen_of(const tsr_report_input *input, const tsr_peak *peak, bool is_quiet,
                             const tsr__warning_list *more) {
  tsr__screen screen = {0};
  size_t warning_count;
  (void)tsr_snapshot_warnings(input->snapshot, &warning_count);
  tsr__screen_add_warnings(&screen, is_quiet ? 0 : warning_count + more->count);
  for (size_t i = 0; i < peak->device_count; i++) {
    tsr__share_list shares = shares_of(&peak->devices[i]);
    tsr__screen_add(&screen, &shares, lines_of(input->snapshot, &peak->devices[i]));
  }
  return screen;
}

int tsr__report_peak(const tsr_report_input *input, const tsr_peak *peak,
                     const tsr_report_options *options, tsr_write_fn *write, void *context,
                     tsr_error *error) {
  tsr__emitter emitter;
  tsr__stack_printer printer;
  tsr__warning_list warnings = {0};
  tsr_report_options screen_options = tsr__screen_options(options);
  tsr__emitter_init(&emitter, &screen_options, write, context);
  tsr__stack_printer_init(&printer, &emitter, input->snapshot);
  gather_warnings(&warnings, peak);
  tsr__screen screen = screen_of(input, peak, emitter.options.quiet, &warnings);
  tsr__heading_begin(&emitter, &tsr__fields_peak, input);
  tsr__imbalance_emit(&emitter, &peak->imbalance);
  tsr__emit_array(&emitter, "devices");
  if (!peak->device_count)
    tsr__emit_printf(&emitter, TSR__VERDICT, "No device has events or segments.");
  for (size_t i = 0; i < peak->device_count; i++) emit_device(&printer, peak, i, &screen);
  tsr__stack_printer_release(&printer);
  return tsr__heading_close(&emitter, input, &warnings, error);
}
