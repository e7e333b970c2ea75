/* peak.c - what holds the memory at its highest, as text or JSON.
 *
 * JSON keeps each stack whole, in one object. Text says it in the order in which it is needed: the
 * verdict, one row a stack to compare them by, then each stack in full, numbered like its row.
 *
 *   Device 0: peak 17.80 GiB of recorded memory at event 3,737 of 22,331; 1.59 GiB more ...
 *
 *     #   share     bytes  allocations  category    allocated at
 *     1  46.1 %  8.20 GiB           12  activation  model.py:382 forward
 *     ... and 57 more stacks, 1.20 GiB (--top 0 shows all)
 *
 *   #1  8.20 GiB in 12 allocations, activation
 *     main, train.py:40
 *       ...
 */
#include <inttypes.h>

#include "base/format.h"
#include "report/emitter.h"
#include "report/heading.h"
#include "report/stacks.h"
#include "tessera/report.h"

static void append_peak(tsr__buffer *out, const tsr_peak_device *device) {
  const tsr_recorded *recorded = &device->recorded;
  char peak[TSR__FORMAT_BYTES], event[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES],
      before[TSR__FORMAT_BYTES], overall[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "peak %s of recorded memory at event %s of %s",
                     tsr__format_size(recorded->dynamic_peak_bytes, peak),
                     tsr__format_count((uint64_t)recorded->peak_event, event),
                     tsr__format_count(device->event_count, count));
  if (recorded->static_bytes)
    tsr__buffer_printf(out, "; %s more was there before the recording, %s in all",
                       tsr__format_size(recorded->static_bytes, before),
                       tsr__format_size(recorded->overall_bytes, overall));
  tsr__buffer_text(out, ".");
}

/* Without an allocation in the trace there is no peak to show, only what was there all along. */
static void append_no_peak(tsr__buffer *out, const tsr_peak_device *device) {
  char count[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES];
  if (device->event_count)
    tsr__buffer_printf(out, "%s event%s recorded, none of them an allocation; ",
                       tsr__format_count(device->event_count, count),
                       device->event_count == 1 ? " was" : "s were");
  else
    tsr__buffer_text(out, "no events were recorded; ");
  if (device->recorded.static_bytes)
    tsr__buffer_printf(out, "the segments hold %s of allocated blocks.",
                       tsr__format_size(device->recorded.static_bytes, size));
  else
    tsr__buffer_printf(out, "nothing%s is allocated.", device->event_count ? " else" : "");
}

static void print_verdict(tsr__emitter *emitter, const tsr_peak_device *device) {
  tsr__emit_space(emitter);
  if (!tsr__emitter_is_text(emitter)) return;
  tsr__buffer_printf(&emitter->scratch, "Device %" PRIu32 ": ", device->device);
  if (device->recorded.peak_event >= 0)
    append_peak(&emitter->scratch, device);
  else
    append_no_peak(&emitter->scratch, device);
  tsr__emit_line(emitter, TSR__BOLD, 0);
}

static void emit_recorded(tsr__emitter *emitter, const tsr_recorded *recorded) {
  tsr__emit_object(emitter, "recorded");
  tsr__emit_field(emitter, "event", NULL, tsr__index(recorded->peak_event));
  tsr__emit_field(emitter, "time_us",
                  recorded->peak_time_us == TSR_TIME_NONE ? NULL : "time of the peak",
                  tsr__time(recorded->peak_time_us));
  tsr__emit_field(emitter, "dynamic_peak_bytes", NULL, tsr__bytes(recorded->dynamic_peak_bytes));
  tsr__emit_field(emitter, "static_bytes", NULL, tsr__bytes(recorded->static_bytes));
  tsr__emit_field(emitter, "overall_bytes", NULL, tsr__bytes(recorded->overall_bytes));
  tsr__emit_end(emitter);
  tsr__emit_space(emitter);
}

static void emit_stack(tsr__stack_printer *printer, const tsr_peak_device *device, size_t i) {
  tsr__emitter *emitter = printer->emitter;
  const tsr_stack_share *share = &device->stacks[i];
  tsr__buffer *name = &emitter->scratch;
  if (tsr__emitter_is_text(emitter)) tsr__stack_append_name(printer, share->stack);
  tsr__emit_row(emitter, (tsr__cell[]){
                             tsr__count(i + 1),
                             tsr__percent(share->bytes, device->recorded.dynamic_peak_bytes),
                             tsr__bytes(share->bytes),
                             tsr__count(share->allocations),
                             tsr__bytes(share->allocations ? share->bytes / share->allocations : 0),
                             tsr__string(tsr_category_name(share->category)),
                             tsr__text((tsr_text){name->data, name->size}),
                         });
  name->size = 0;
  tsr__stack_emit(printer, share->stack);
  tsr__emit_row_end(emitter);
}

static void emit_stacks(tsr__stack_printer *printer, const tsr_peak_device *device) {
  const tsr__column columns[] = {
      {NULL, "#", TSR__RIGHT},
      {NULL, "share", TSR__RIGHT},
      {"bytes", "bytes", TSR__RIGHT},
      {"allocations", "allocations", TSR__RIGHT},
      {NULL, printer->emitter->options.verbose ? "average" : NULL, TSR__RIGHT},
      {"category", "category", TSR__LEFT},
      {NULL, "allocated at", TSR__ELASTIC},
  };
  tsr__emit_table(printer->emitter, "stacks", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < device->stack_count; i++) emit_stack(printer, device, i);
  tsr__emit_table_end(printer->emitter);
}

static void emit_omitted(tsr__emitter *emitter, const tsr_peak_device *device) {
  tsr__emit_field(emitter, "omitted_stacks", NULL, tsr__count(device->omitted_stacks));
  tsr__emit_field(emitter, "omitted_bytes", NULL, tsr__bytes(device->omitted_bytes));
  if (!device->omitted_stacks || !tsr__emitter_is_text(emitter)) return;
  char count[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES];
  tsr__buffer_printf(&emitter->scratch, "... and %s more stack%s, %s (--top 0 shows all)",
                     tsr__format_count(device->omitted_stacks, count),
                     tsr__plural(device->omitted_stacks),
                     tsr__format_size(device->omitted_bytes, size));
  tsr__emit_line(emitter, TSR__DIM, 2);
}

/* Text: the stacks behind the table's rows. Memory without one has said all in its row. */
static void print_stacks(tsr__stack_printer *printer, const tsr_peak_device *device) {
  char rank[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES];
  for (size_t i = 0; i < device->stack_count; i++) {
    const tsr_stack_share *share = &device->stacks[i];
    if (share->stack == TSR_NONE || !tsr_snapshot_stack(printer->snapshot, share->stack).depth)
      continue;
    tsr__emit_space(printer->emitter);
    tsr__emit_printf(printer->emitter, TSR__BOLD, "#%s  %s in %s allocation%s, %s",
                     tsr__format_count(i + 1, rank), tsr__format_size(share->bytes, size),
                     tsr__format_count(share->allocations, count), tsr__plural(share->allocations),
                     tsr_category_name(share->category));
    tsr__stack_print(printer, share->stack);
  }
}

static void emit_device(tsr__stack_printer *printer, const tsr_peak_device *device) {
  tsr__emitter *emitter = printer->emitter;
  print_verdict(emitter, device);
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__count(device->device));
  tsr__emit_field(emitter, "events", NULL, tsr__count(device->event_count));
  emit_recorded(emitter, &device->recorded);
  emit_stacks(printer, device);
  emit_omitted(emitter, device);
  tsr__emit_end(emitter);
  if (tsr__emitter_is_text(emitter)) print_stacks(printer, device);
}

int tsr_report_peak(const tsr_report_input *input, const tsr_peak *peak,
                    const tsr_report_options *options, tsr_write_fn *write, void *context,
                    tsr_error *error) {
  tsr__emitter emitter;
  tsr__stack_printer printer;
  tsr__emitter_init(&emitter, options, write, context);
  tsr__stack_printer_init(&printer, &emitter, input->snapshot);
  tsr__heading_open(&emitter, "peak", input);
  if (!peak->device_count)
    tsr__emit_printf(&emitter, TSR__BOLD, "No device has events or segments.");
  for (size_t i = 0; i < peak->device_count; i++) emit_device(&printer, &peak->devices[i]);
  tsr__stack_printer_release(&printer);
  return tsr__heading_close(&emitter, input, error);
}
