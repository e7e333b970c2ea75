/* report.c - a trace under other settings, as text or JSON.
 *
 *   Device 0: expandable_segments:True would have reserved 21.40 GiB at its peak, 1.05 GiB less
 * than the 23.45 GiB recorded.
 *
 *     settings                            peak reserved     saved  free there
 *     expandable_segments:True                57.57 GiB  4.89 GiB    6.12 GiB
 *     defaults                  recorded      62.46 GiB       0 B   11.01 GiB
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

/* Text of a configuration: as PYTORCH_CUDA_ALLOC_CONF says it, or in words where that says nothing.
 */
static const char *settings_text(const tsr_whatif_run *run,
                                 char text[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES]) {
  (void)tsr_allocator_settings_text(&run->settings, text);
  return text[0] ? text : "defaults";
}

/* What the run reserves at its peak but has not allocated. */
static uint64_t waste_of(const tsr_whatif_run *run) {
  return tsr__drop_u64(run->peak.totals.reserved_bytes, run->peak.totals.allocated_bytes);
}

/* Why nothing can be said of what settings save: a sentence. */
static void append_doubt(tsr__buffer *out, const tsr_whatif_device *device) {
  char reserved[TSR__FORMAT_BYTES], allocated[TSR__FORMAT_BYTES];
  const tsr_totals *peak = &device->recorded_peak.totals;
  switch (device->doubt) {
  case TSR_WHATIF_NO_EVENTS:
    tsr__buffer_printf(out,
                       "no events were recorded, so there is nothing to repeat; %s are reserved.",
                       tsr__format_size(device->recorded_peak_reserved_bytes, reserved));
    break;
  case TSR_WHATIF_RESERVED_BEFORE:
    tsr__buffer_printf(
        out,
        "what other settings would save cannot be judged: %s were reserved already "
        "when the recording began, never more later, and the requests that led to it "
        "are not in the trace.",
        tsr__format_size(device->recorded_peak_reserved_bytes, reserved));
    break;
  case TSR_WHATIF_RESERVED_UNKNOWN:
    tsr__buffer_printf(
        out,
        "what other settings would save cannot be judged: how much was reserved is not "
        "known, since %s were allocated at the peak, and the file has segments of %s.",
        tsr__format_size(peak->allocated_bytes, allocated),
        tsr__format_size(peak->reserved_bytes, reserved));
    break;
  case TSR_WHATIF_COMPARABLE:
  case TSR_WHATIF_DOUBT_COUNT: break;
  }
}

static void append_best(tsr__buffer *out, const tsr_whatif_device *device) {
  const tsr_whatif_run *best = &device->runs[0];
  char name[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES], peak[TSR__FORMAT_BYTES], saved[TSR__FORMAT_BYTES],
      recorded[TSR__FORMAT_BYTES];
  uint64_t before = device->recorded_peak_reserved_bytes;
  uint64_t after = best->peak.totals.reserved_bytes;
  if (device->doubt != TSR_WHATIF_COMPARABLE) {
    append_doubt(out, device);
    return;
  }
  if (best->is_recorded || after >= before) {
    tsr__buffer_printf(out, "no configuration tried reserves less than the %s recorded.",
                       tsr__format_size(before, recorded));
    return;
  }
  tsr__buffer_printf(out, "%s would have reserved %s at its peak, %s less than the %s recorded.",
                     settings_text(best, name), tsr__format_size(after, peak),
                     tsr__format_size(before - after, saved), tsr__format_size(before, recorded));
}

/* Whether the runs answer anything: without events nothing differs; if it is not known what was
 * reserved, nor is what other settings would have; and otherwise they may still fit or not. */
static bool is_answered(const tsr_whatif_device *device) {
  return device->doubt == TSR_WHATIF_COMPARABLE ||
         (device->doubt == TSR_WHATIF_RESERVED_BEFORE && device->capacity_bytes);
}

static void append_out_of_memory(tsr__buffer *out, const tsr_whatif_device *device,
                                 uint64_t capacity) {
  const tsr_whatif_run *best = &device->runs[0];
  char size[TSR__FORMAT_BYTES], event[TSR__FORMAT_BYTES], request[TSR__FORMAT_BYTES],
      held[TSR__FORMAT_BYTES], name[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES];
  if (best->out_of_memory.event < 0) {
    tsr__buffer_printf(out, "%s were reserved already when the recording began, more than %s.",
                       tsr__format_size(best->out_of_memory.totals.reserved_bytes, held),
                       tsr__format_size(capacity, size));
    return;
  }
  tsr__buffer_printf(
      out,
      "nothing tried fits in %s; the best, %s, runs out at event %s, asking for %s with %s "
      "allocated.",
      tsr__format_size(capacity, size), settings_text(best, name),
      tsr__format_count((uint64_t)best->out_of_memory.event, event),
      tsr__format_size(best->oom_request_bytes, request),
      tsr__format_size(best->out_of_memory.totals.allocated_bytes, held));
}

static void append_fits(tsr__buffer *out, const tsr_whatif_device *device, uint64_t capacity) {
  char size[TSR__FORMAT_BYTES], first[TSR__FORMAT_BYTES], second[TSR__FORMAT_BYTES];
  size_t fitting = 0;
  while (fitting < device->run_count && !device->runs[fitting].is_out_of_memory) fitting++;
  tsr__buffer_printf(out, "%s of %s configurations fit in %s; ", tsr__format_count(fitting, first),
                     tsr__format_count(device->run_count, second),
                     tsr__format_size(capacity, size));
  append_best(out, device);
}

/* The trace of a run that failed: what fits is what it asked for until then. */
static void append_past_failure(tsr__buffer *out, const tsr_whatif_device *device) {
  char name[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES], size[TSR__FORMAT_BYTES], peak[TSR__FORMAT_BYTES],
      first[TSR__FORMAT_BYTES], second[TSR__FORMAT_BYTES];
  const tsr_whatif_run *best = &device->runs[0];
  size_t fitting = 0;
  while (fitting < device->run_count && !device->runs[fitting].is_out_of_memory) fitting++;
  if (device->is_end_failure) tsr__buffer_text(out, "the trace ends where memory ran out. ");
  tsr__buffer_printf(
      out,
      "%s of %s configurations serve %s in %s, the failed request included; %s reserves least, %s "
      "at "
      "its peak. ",
      tsr__format_count(fitting, first), tsr__format_count(device->run_count, second),
      device->is_end_failure ? "what was asked for until then" : "every recorded request",
      tsr__format_size(device->capacity_bytes, size), settings_text(best, name),
      tsr__format_size(best->peak.totals.reserved_bytes, peak));
  tsr__buffer_text(
      out,
      device->is_end_failure
          ? "That does not mean that the run fits: `tessera why` weighs what it needs after that."
          : "What the program would have asked for if none had failed is not in the trace.");
}

static void print_verdict(tsr__emitter *emitter, const tsr_whatif_device *device) {
  uint64_t capacity = device->capacity_bytes;
  tsr__emit_space(emitter);
  if (!tsr__emitter_is_text(emitter)) return;
  tsr__buffer *out = &emitter->scratch;
  char name[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "%s: ", tsr__device_title(device->device, name));
  if (!is_answered(device))
    append_doubt(out, device);
  else if (device->runs[0].is_out_of_memory)
    append_out_of_memory(out, device, capacity);
  else if (device->recorded_oom_count)
    append_past_failure(out, device);
  else if (capacity)
    append_fits(out, device, capacity);
  else
    append_best(out, device);
  tsr__emit_line(emitter, TSR__VERDICT, 0);
}

static void emit_moment(tsr__emitter *emitter, const tsr_moment *moment) {
  tsr__emit_field(emitter, "event", NULL, tsr__index(moment->event));
  tsr__emit_field(emitter, "time_us", NULL, tsr__time(moment->time_us));
  tsr__emit_field(emitter, "requested_bytes", NULL, tsr__bytes(moment->totals.requested_bytes));
  tsr__emit_field(emitter, "allocated_bytes", NULL, tsr__bytes(moment->totals.allocated_bytes));
  tsr__emit_field(emitter, "active_bytes", NULL, tsr__bytes(moment->totals.active_bytes));
  tsr__emit_field(emitter, "reserved_bytes", NULL, tsr__bytes(moment->totals.reserved_bytes));
}

/* JSON: the members of a run that are not columns of the table. */
static void emit_details(tsr__emitter *emitter, const tsr_whatif_run *run) {
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_field(emitter, "recorded", NULL, tsr__bool(run->is_recorded));
  tsr__emit_field(emitter, "fits", NULL,
                  run->is_given_up ? tsr__nothing() : tsr__bool(!run->is_out_of_memory));
  if (run->is_out_of_memory)
    tsr__emit_field(emitter, "failed_event", NULL, tsr__index(run->out_of_memory.event));
  tsr__emit_object(emitter, "peak");
  emit_moment(emitter, &run->peak);
  tsr__emit_end(emitter);
  tsr__emit_fragmentation(emitter, &run->fragmentation);
  tsr__emit_object(emitter, "end");
  tsr__emit_field(emitter, "reserved_bytes", NULL, tsr__bytes(run->end_reserved_bytes));
  tsr__emit_field(emitter, "segments", NULL, tsr__count(run->end_segment_count));
  tsr__emit_end(emitter);
  tsr__emit_field(emitter, "cache_flushes", NULL, tsr__count(run->flush_count));
  tsr__emit_field(emitter, "out_of_memory_count", NULL, tsr__count(run->oom_count));
  tsr__emit_field(emitter, "given_up", NULL, tsr__bool(run->is_given_up));
  if (!run->is_out_of_memory) return;
  tsr__emit_object(emitter, "out_of_memory");
  emit_moment(emitter, &run->out_of_memory);
  tsr__emit_field(emitter, "request_bytes", NULL, tsr__bytes(run->oom_request_bytes));
  tsr__emit_end(emitter);
}

static void emit_run(tsr__emitter *emitter, const tsr_whatif_device *device,
                     const tsr_whatif_run *run, bool has_capacity) {
  char name[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES], fits[TSR__FORMAT_BYTES + 16] = "yes",
                                                                         event[TSR__FORMAT_BYTES];
  const tsr_fragmentation *parts = &run->fragmentation;
  uint64_t reserved = run->peak.totals.reserved_bytes;
  if (run->is_out_of_memory && run->out_of_memory.event < 0)
    (void)snprintf(fits, sizeof fits, "no, from the start");
  else if (run->is_out_of_memory)
    (void)snprintf(fits, sizeof fits, "no, event %s",
                   tsr__format_count((uint64_t)run->out_of_memory.event, event));
  else if (run->flush_count)
    (void)snprintf(fits, sizeof fits, "yes, %s cache flush%s",
                   tsr__format_count(run->flush_count, event), run->flush_count == 1 ? "" : "es");
  tsr__cell cells[] = {
      tsr__string(settings_text(run, name)),
      tsr__string(run->is_given_up   ? "given up"
                  : run->is_recorded ? "recorded"
                                     : ""),
      tsr__bytes(reserved),
      run->is_out_of_memory || run->is_given_up || device->doubt != TSR_WHATIF_COMPARABLE
          ? tsr__string("")
          : tsr__bytes(tsr__drop_u64(device->recorded_peak_reserved_bytes, reserved)),
      tsr__bytes(waste_of(run)),
      tsr__bytes(tsr__sum_u64(parts->free_block_bytes, parts->free_segment_bytes)),
      tsr__string(has_capacity ? fits : ""),
  };
  tsr__emit_row(emitter, cells);
  emit_details(emitter, run);
  tsr__emit_row_end(emitter);
}

static void emit_runs(tsr__emitter *emitter, const tsr_whatif_device *device, bool has_capacity) {
  bool is_cut = device->is_end_failure && !device->runs[0].is_out_of_memory;
  const char *fits = !has_capacity ? NULL : is_cut ? "fits so far" : "fits";
  const tsr__column columns[] = {
      {"settings", "settings", TSR__WRAPPED},
      {NULL, "", TSR__LEFT},
      {"peak_reserved_bytes", "peak reserved", TSR__RIGHT},
      {NULL, device->doubt == TSR_WHATIF_COMPARABLE ? "saved" : NULL, TSR__RIGHT},
      {"waste_bytes", NULL, TSR__RIGHT},
      {NULL, "free there", TSR__SPARE},
      {NULL, fits, TSR__LEFT},
  };
  if (tsr__emitter_is_text(emitter) && !is_answered(device)) return;
  tsr__emit_table(emitter, "runs", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < device->run_count; i++)
    emit_run(emitter, device, &device->runs[i], has_capacity);
  tsr__emit_table_end(emitter);
}

/* How well the model follows the trace: the other rows can be trusted only that far. */
static void emit_reproduction(tsr__emitter *emitter, const tsr_whatif_device *device) {
  char first[TSR__FORMAT_BYTES], second[TSR__FORMAT_BYTES];
  tsr__emit_field(emitter, "segments_recorded", NULL, tsr__count(device->segments_recorded));
  tsr__emit_field(emitter, "segments_reproduced", NULL, tsr__count(device->segments_reproduced));
  if (!is_answered(device) || !tsr__emitter_is_text(emitter)) return;
  tsr__buffer_printf(&emitter->scratch,
                     "Under the recorded settings the model ends with %s of the %s recorded "
                     "segments.",
                     tsr__format_count(device->segments_reproduced, first),
                     tsr__format_count(device->segments_recorded, second));
  tsr__emit_space(emitter);
  tsr__emit_line(emitter, TSR__PLAIN, 2);
}

/* A note that the recorded run itself ran out of memory. */
static void emit_recorded_oom(tsr__emitter *emitter, const tsr_whatif_device *device) {
  char event[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES];
  if (!device->recorded_oom_count) return;
  tsr__emit_object(emitter, "recorded_out_of_memory");
  tsr__emit_field(emitter, "event", NULL, tsr__index(device->recorded_oom_event));
  tsr__emit_field(emitter, "request_bytes", NULL, tsr__bytes(device->recorded_oom_request_bytes));
  tsr__emit_field(emitter, "count", NULL, tsr__count(device->recorded_oom_count));
  tsr__emit_end(emitter);
  if (!tsr__emitter_is_text(emitter) || !is_answered(device)) return;
  tsr__buffer_printf(&emitter->scratch,
                     "The recorded run itself ran out of memory at event %s, asking for %s",
                     tsr__format_count((uint64_t)device->recorded_oom_event, event),
                     tsr__format_size(device->recorded_oom_request_bytes, size));
  if (device->recorded_oom_count > 1)
    tsr__buffer_printf(&emitter->scratch, ", the first of %s times",
                       tsr__format_count(device->recorded_oom_count, count));
  tsr__buffer_printf(&emitter->scratch, ", with %s for PyTorch.",
                     tsr__format_size(device->recorded_capacity_bytes, size));
  tsr__emit_line(emitter, TSR__PLAIN, 2);
  if (device->is_capacity_inferred || device->capacity_bytes <= device->recorded_capacity_bytes)
    return;
  tsr__emit_printf(emitter, TSR__PLAIN,
                   "  This answer assumes that PyTorch can have all of %s. If that is the nominal "
                   "size of the same card, leave --capacity out.",
                   tsr__format_size(device->capacity_bytes, size));
}

static void emit_capacity(tsr__emitter *emitter, const tsr_whatif_device *device) {
  uint64_t bytes = device->capacity_bytes;
  tsr__emit_field(emitter, "capacity_bytes", NULL, bytes ? tsr__bytes(bytes) : tsr__nothing());
  tsr__emit_field(emitter, "capacity_from", NULL,
                  !bytes ? tsr__nothing()
                         : tsr__string(device->is_capacity_inferred ? "out_of_memory" : "option"));
  uint64_t outside = device->outside_bytes;
  tsr__emit_field(emitter, "outside_bytes", NULL, outside ? tsr__bytes(outside) : tsr__nothing());
}

/* What of the card is not PyTorch's. */
static void print_outside(tsr__emitter *emitter, const tsr_whatif_device *device) {
  char all[TSR__FORMAT_BYTES], outside[TSR__FORMAT_BYTES];
  if (device->outside_bytes)
    tsr__emit_printf(
        emitter, TSR__PLAIN, "  of %s, %s are outside of PyTorch",
        tsr__format_size(tsr__sum_u64(device->capacity_bytes, device->outside_bytes), all),
        tsr__format_size(device->outside_bytes, outside));
}

static void emit_device(tsr__stack_printer *printer, const tsr_whatif_device *device) {
  tsr__emitter *emitter = printer->emitter;
  tsr__share_list shares = {device->stacks,
                            device->stack_count,
                            device->omitted_stacks,
                            device->omitted_bytes,
                            tsr__whole_of(&device->runs[0].out_of_memory.totals),
                            NULL,
                            device->event_count};
  print_verdict(emitter, device);
  print_outside(emitter, device);
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__device(device->device));
  tsr__emit_field(emitter, "events", NULL, tsr__count(device->event_count));
  tsr__emit_field(emitter, "not_comparable", NULL,
                  device->doubt == TSR_WHATIF_COMPARABLE
                      ? tsr__nothing()
                      : tsr__string(tsr_whatif_doubt_name(device->doubt)));
  tsr__emit_field(emitter, "recorded_peak_reserved_bytes", NULL,
                  tsr__bytes(device->recorded_peak_reserved_bytes));
  emit_capacity(emitter, device);
  emit_runs(emitter, device, device->capacity_bytes != 0);
  emit_reproduction(emitter, device);
  emit_recorded_oom(emitter, device);
  if (tsr__emitter_is_text(emitter) && !is_answered(device)) return;
  if (device->stack_count) {
    tsr__emit_space(emitter);
    tsr__emit_printf(emitter, TSR__BOLD, "Held when the best of them ran out:");
  }
  tsr__emit_shares(printer, &shares);
  tsr__emit_end(emitter);
  tsr__print_shares(printer, &shares, 0);
}

int tsr__report_whatif(const tsr_report_input *input, const tsr_whatif *whatif,
                       const tsr_report_options *options, tsr_write_fn *write, void *context,
                       tsr_error *error) {
  tsr__emitter emitter;
  tsr__stack_printer printer;
  tsr__warning_list warnings = {0};
  tsr__emitter_init(&emitter, options, write, context);
  tsr__stack_printer_init(&printer, &emitter, input->snapshot);
  tsr__heading_open(&emitter, &tsr__fields_whatif, input);
  if (!whatif->device_count)
    tsr__emit_printf(&emitter, TSR__VERDICT,
                     whatif->leaves_host ? "Nothing but pinned host memory is in the file."
                                         : "No device has events or segments.");
  for (size_t i = 0; i < whatif->device_count; i++) {
    emit_device(&printer, &whatif->devices[i]);
    tsr__warnings_add(&warnings, whatif->devices[i].warnings, whatif->devices[i].warning_count);
  }
  static const tsr_warning no_host = {
      "host-left-out", 1,
      "pinned host memory is left out: the GPU's allocator settings do not apply to it"};
  if (whatif->leaves_host) tsr__warnings_add(&warnings, &no_host, 1);
  tsr__stack_printer_release(&printer);
  return tsr__heading_close(&emitter, input, &warnings, error);
}
