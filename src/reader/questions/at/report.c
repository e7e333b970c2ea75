/* report.c - the state at a chosen moment, as text or JSON; same layout as the peak. */
#include <inttypes.h>

#include "base/format.h"
#include "emit/emitter.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/reports.h"
#include "questions/shared/moment.h"

static void print_verdict(tsr__emitter *emitter, const tsr_at_device *device) {
  char live[TSR__FORMAT_BYTES], event[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES];
  tsr__emit_space(emitter);
  if (!tsr__emitter_is_text(emitter)) return;
  tsr__buffer *out = &emitter->scratch;
  char name[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "%s: ", tsr__device_title(device->device, name));
  if (!device->is_found) {
    tsr__buffer_text(out, "its trace does not have that moment.");
  } else {
    tsr__say_held(out, &device->moment.totals);
    tsr__buffer_printf(out, " in %s allocation%s, ",
                       tsr__format_count(device->live_allocations, live),
                       tsr__plural(device->live_allocations));
    if (device->moment.event >= 0)
      tsr__buffer_printf(out, "after event %s of %s.",
                         tsr__format_count((uint64_t)device->moment.event, event),
                         tsr__format_count(device->event_count, count));
    else
      tsr__buffer_text(out, "before the first event.");
  }
  tsr__emit_paragraph(emitter, TSR__VERDICT, 0);
}

static tsr__share_list shares_of(const tsr_at_device *device) {
  return (tsr__share_list){device->stacks,
                           device->stack_count,
                           device->omitted_stacks,
                           device->omitted_bytes,
                           tsr__whole_of(&device->moment.totals),
                           device->names,
                           device->has_history};
}

static size_t lines_of(const tsr_at_device *device) {
  tsr__share_list shares = shares_of(device);
  return tsr__screen_lines(&shares, device->private_pool_count, &device->fragmentation);
}

static void emit_device(tsr__stack_printer *printer, const tsr_at_device *device,
                        tsr__screen *screen) {
  tsr__emitter *emitter = printer->emitter;
  const tsr_totals *totals = &device->moment.totals;
  tsr__share_list shares = shares_of(device);
  print_verdict(emitter, device);
  if (!device->is_found) return;
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__device(device->device));
  tsr__emit_field(emitter, "events", NULL, tsr__count(device->event_count));
  tsr__emit_field(emitter, "event", NULL, tsr__index(device->moment.event));
  tsr__emit_field(emitter, "time_us", device->moment.time_us == TSR_TIME_NONE ? NULL : "time",
                  tsr__time(device->moment.time_us));
  tsr__emit_field(emitter, "requested_bytes", NULL, tsr__bytes(totals->requested_bytes));
  tsr__emit_field(emitter, "allocated_bytes", NULL, tsr__bytes(totals->allocated_bytes));
  tsr__emit_field(emitter, "active_bytes", NULL, tsr__bytes(totals->active_bytes));
  tsr__emit_field(emitter, "reserved_bytes", NULL, tsr__bytes(totals->reserved_bytes));
  tsr__emit_field(emitter, "live_allocations", NULL, tsr__count(device->live_allocations));
  tsr__emit_fragmentation(emitter, &device->fragmentation);
  tsr__emit_private_pools(emitter, device->private_pools, device->private_pool_count);
  tsr__emit_shares(printer, &shares);
  tsr__emit_end(emitter);
  tsr__print_shares(printer, &shares,
                    tsr__screen_take(screen, lines_of(device), emitter->line_count));
}

int tsr__report_at(const tsr_report_input *input, const tsr_at *at,
                   const tsr_report_options *options, tsr_write_fn *write, void *context,
                   tsr_error *error) {
  tsr__emitter emitter;
  tsr__stack_printer printer;
  tsr__warning_list warnings = {0};
  tsr__screen screen = {0};
  size_t warning_count;
  (void)tsr_snapshot_warnings(input->snapshot, &warning_count);
  tsr_report_options screen_options = tsr__screen_options(options);
  tsr__emitter_init(&emitter, &screen_options, write, context);
  tsr__stack_printer_init(&printer, &emitter, input->snapshot);
  tsr__heading_open(&emitter, &tsr__fields_at, input);
  for (size_t i = 0; i < at->device_count; i++) {
    const tsr_at_device *device = &at->devices[i];
    tsr__share_list shares = shares_of(device);
    if (device->is_found) tsr__screen_add(&screen, &shares, lines_of(device));
    tsr__warnings_add(&warnings, device->warnings, device->warning_count);
  }
  tsr__screen_add_warnings(&screen, emitter.options.quiet ? 0 : warning_count + warnings.count);
  for (size_t i = 0; i < at->device_count; i++) emit_device(&printer, &at->devices[i], &screen);
  tsr__stack_printer_release(&printer);
  return tsr__heading_close(&emitter, input, &warnings, error);
}
