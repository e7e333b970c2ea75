/* profile.c - the peak by kind, as text or JSON.
 *
 *   Device 0: peak 17.80 GiB of recorded memory at event 3,737 of 22,331; 62.1 % is activation.
 *
 *     category       bytes   share  allocations
 *     activation  11.05 GiB  62.1 %        1,204
 *
 * Groups of 0 bytes were live at other moments only; they stay, so that two reports of one job have
 * the same rows.
 */
#include <inttypes.h>

#include "base/format.h"
#include "report/emitter.h"
#include "report/heading.h"
#include "tessera/report.h"

static const char *by_name(tsr_profile_by by) {
  switch (by) {
  case TSR_PROFILE_BY_CATEGORY: return "category";
  }
  return "unknown";
}

static void print_verdict(tsr__emitter *emitter, const tsr_profile_device *device) {
  char peak[TSR__FORMAT_BYTES], event[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES],
      share[TSR__FORMAT_BYTES];
  tsr__emit_space(emitter);
  if (!tsr__emitter_is_text(emitter)) return;
  tsr__buffer *out = &emitter->scratch;
  tsr__buffer_printf(out, "Device %" PRIu32 ": ", device->device);
  if (!device->event_count)
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
  if (device->peak_event >= 0 && device->group_count)
    tsr__buffer_printf(out, "; %s is %s",
                       tsr__format_percent(device->groups[0].bytes, device->peak_bytes, share),
                       device->groups[0].name);
  tsr__buffer_text(out, ".");
  tsr__emit_line(emitter, TSR__BOLD, 0);
}

static void emit_peak(tsr__emitter *emitter, const tsr_profile_device *device) {
  tsr__emit_object(emitter, "peak");
  tsr__emit_field(emitter, "event", NULL, tsr__index(device->peak_event));
  tsr__emit_field(emitter, "time_us",
                  device->peak_time_us == TSR_TIME_NONE ? NULL : "time of the peak",
                  tsr__time(device->peak_time_us));
  tsr__emit_field(emitter, "requested_bytes", NULL, tsr__bytes(device->peak_bytes));
  tsr__emit_field(emitter, "allocated_bytes",
                  device->allocated_bytes > device->peak_bytes ? "allocated in all then" : NULL,
                  tsr__bytes(device->allocated_bytes));
  tsr__emit_end(emitter);
  tsr__emit_space(emitter);
}

static void emit_groups(tsr__emitter *emitter, tsr_profile_by by,
                        const tsr_profile_device *device) {
  const tsr__column columns[] = {{"name", by_name(by), TSR__ELASTIC},
                                 {"bytes", "bytes", TSR__RIGHT},
                                 {NULL, "share", TSR__RIGHT},
                                 {"allocations", "allocations", TSR__RIGHT}};
  tsr__emit_table(emitter, "groups", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < device->group_count; i++) {
    const tsr_profile_group *group = &device->groups[i];
    tsr__emit_row(emitter, (tsr__cell[]){tsr__string(group->name), tsr__bytes(group->bytes),
                                         tsr__percent(group->bytes, device->peak_bytes),
                                         tsr__count(group->allocations)});
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

static void emit_device(tsr__emitter *emitter, tsr_profile_by by,
                        const tsr_profile_device *device) {
  print_verdict(emitter, device);
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__count(device->device));
  tsr__emit_field(emitter, "events", NULL, tsr__count(device->event_count));
  tsr__emit_field(emitter, "by", NULL, tsr__string(by_name(by)));
  emit_peak(emitter, device);
  emit_groups(emitter, by, device);
  tsr__emit_end(emitter);
}

int tsr_report_profile(const tsr_report_input *input, const tsr_profile *profile,
                       const tsr_report_options *options, tsr_write_fn *write, void *context,
                       tsr_error *error) {
  tsr__emitter emitter;
  tsr__emitter_init(&emitter, options, write, context);
  tsr__heading_open(&emitter, "profile", input);
  if (!profile->device_count)
    tsr__emit_printf(&emitter, TSR__BOLD, "No device has events or segments.");
  for (size_t i = 0; i < profile->device_count; i++)
    emit_device(&emitter, profile->by, &profile->devices[i]);
  return tsr__heading_close(&emitter, input, NULL, error);
}
