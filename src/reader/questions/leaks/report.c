/* report.c - what grows from step to step, as text or JSON.
 *
 *   Device 0: memory grows by 1.0 KiB a step, from 1 place, over 40 steps.
 *
 *     #  a step  in all     allocations  since step  allocated at
 *     1  1.0 KiB  40.0 KiB           40           0  train.py:31 log
 *
 *   #1  1.0 KiB a step since step 0 ...
 *     main, train.py:97
 */
#include <inttypes.h>

#include "base/format.h"
#include "emit/emitter.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/reports.h"
#include "questions/shared/moment.h"
#include "questions/shared/names.h"
#include "questions/shared/stepping.h"
#include "stacks/stacks.h"

/* "a step" or, without a backward pass, "an iteration". */
static const char *each(tsr_steps_unit unit) {
  if (unit == TSR_STEPS_UNIT_ROUND) return "a round";
  return unit == TSR_STEPS_UNIT_ITERATION ? "an iteration" : "a step";
}

/* "steps" of the device, or of a loop where there are several: "20 steps of loop 2". */
static void append_steps(tsr__buffer *out, const tsr_leaks_device *device,
                         const tsr_leaks_loop *loop) {
  char steps[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "%s %ss", tsr__format_count(loop->step_count, steps),
                     tsr_steps_unit_name(loop->unit));
  if (loop->unit == TSR_STEPS_UNIT_ROUND)
    tsr__buffer_text(out, " of all loops");
  else if (device->loop_count > 1)
    tsr__buffer_printf(out, " of loop %zu", (size_t)(loop - device->loops) + 1);
}

/* What did not grow, of several loops. */
static void append_nothing(tsr__buffer *out, const tsr_leaks_device *device) {
  size_t count = 0, seen = 0;
  for (size_t i = 0; i < device->loop_count; i++) count += device->loops[i].is_answered;
  tsr__buffer_text(out, "nothing grows over ");
  if (count > 3) {
    tsr__buffer_printf(out, "the steps of any of %zu loops.", count);
    return;
  }
  for (size_t i = 0; i < device->loop_count; i++) {
    if (!device->loops[i].is_answered) continue;
    if (seen++) tsr__buffer_text(out, seen == count ? " and " : ", ");
    append_steps(out, device, &device->loops[i]);
  }
  tsr__buffer_text(out, ".");
}

static void append_answer(tsr__buffer *out, const tsr_leaks_device *device) {
  char bytes[TSR__FORMAT_BYTES], steps[TSR__FORMAT_BYTES], places[TSR__FORMAT_BYTES];
  const tsr_leaks_loop *loop = device->main_loop;
  if (!loop) {
    tsr__buffer_text(out, "no steps to compare; three whole ones are needed.");
    return;
  }
  bool grows = loop->leak_count != 0;
  if (!loop->is_answered) {
    tsr__buffer_printf(out, "too few %ss: %s whole, but three are needed%s.",
                       tsr_steps_unit_name(loop->unit), tsr__format_count(loop->step_count, steps),
                       device->loop_count > 1 ? " of one loop" : "");
  } else if (!grows) {
    append_nothing(out, device);
  } else {
    tsr__buffer_printf(out, "memory grows by %s %s, from %s place%s, over ",
                       tsr__format_size(loop->bytes_per_step, bytes), each(loop->unit),
                       tsr__format_count(loop->leak_count, places), tsr__plural(loop->leak_count));
    append_steps(out, device, loop);
    tsr__buffer_text(out, ".");
  }
}

static void print_verdict(tsr__emitter *emitter, const tsr_leaks_device *device) {
  tsr__emit_space(emitter);
  if (!tsr__emitter_is_text(emitter)) return;
  char name[TSR__FORMAT_BYTES];
  tsr__buffer_printf(&emitter->scratch, "%s: ", tsr__device_title(device->device, name));
  if (device->has_history) {
    append_answer(&emitter->scratch, device);
  } else {
    tsr__say_no_history(&emitter->scratch, device->event_count);
    tsr__buffer_text(&emitter->scratch, ".");
  }
  tsr__emit_line(emitter, TSR__VERDICT, 0);
  tsr__emit_stop(emitter, &device->stop, device->unit);
  tsr__emit_space(emitter);
}

static void emit_leak(tsr__stack_printer *printer, const tsr_named *names, const tsr_leak *leak,
                      size_t rank, tsr_text name) {
  tsr__emitter *emitter = printer->emitter;
  name = tsr__with_names(emitter, name, names, &leak->names);
  tsr__emit_row(emitter,
                (tsr__cell[]){tsr__count(rank), tsr__bytes(leak->bytes_per_step),
                              tsr__bytes(leak->bytes), tsr__count(leak->allocations),
                              tsr__count(leak->since_step), tsr__count(leak->growing_steps),
                              tsr__count(leak->first_event), tsr__count(leak->loop + 1),
                              tsr__text(name)});
  emitter->scratch.size = 0;
  tsr__emit_field(emitter, "first_time_us", NULL, tsr__time(leak->first_time_us));
  tsr__emit_names(emitter, names, &leak->names);
  tsr__stack_emit(printer, leak->stack);
  tsr__emit_row_end(emitter);
}

static void emit_leaks(tsr__stack_printer *printer, const tsr_leaks_device *device) {
  static const char *const since[] = {"since step", "since iteration", "since round"};
  tsr_steps_unit unit = device->unit;
  bool is_mixed = false;
  if (device->leak_count) unit = device->loops[device->leaks[0].loop].unit;
  for (size_t i = 0; i < device->leak_count; i++)
    is_mixed |= device->loops[device->leaks[i].loop].unit != unit;
  const tsr__column columns[] = {
      {NULL, "#", TSR__RIGHT},
      {"bytes_per_step", is_mixed ? "each time" : each(unit), TSR__RIGHT},
      {"bytes", "in total", TSR__RIGHT},
      {"allocations", "allocations", TSR__RIGHT},
      {"since_step", is_mixed ? "since" : since[unit], TSR__RIGHT},
      {"growing_steps", "grew in", TSR__RIGHT},
      {"first_event", "first event", TSR__RIGHT},
      {"loop", device->loop_count > 1 ? "loop" : NULL, TSR__RIGHT},
      {NULL, "allocated at", TSR__ELASTIC}};
  tsr__row_names names;
  TSR__STACK_NAMES(printer, tsr_leak, device->leaks, device->leak_count, &names);
  tsr__emit_table(printer->emitter, "leaks", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < device->leak_count; i++)
    emit_leak(printer, device->names, &device->leaks[i], i + 1, tsr__stack_name(&names, i));
  tsr__emit_table_end(printer->emitter);
  tsr__row_names_release(&names);
}

static void emit_omitted(tsr__emitter *emitter, const tsr_leaks_device *device) {
  char count[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES];
  tsr__emit_field(emitter, "omitted_leaks", NULL, tsr__count(device->omitted_leaks));
  tsr__emit_field(emitter, "omitted_bytes_per_step", NULL, tsr__bytes(device->omitted_bytes));
  if (device->omitted_leaks)
    tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more, %s %s (--top 0 shows all)",
                     tsr__format_count(device->omitted_leaks, count),
                     tsr__format_size(device->omitted_bytes, size), each(device->unit));
}

static void print_stacks(tsr__stack_printer *printer, const tsr_leaks_device *device) {
  char rank[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES], step[TSR__FORMAT_BYTES];
  for (size_t i = 0; i < device->leak_count; i++) {
    const tsr_leak *leak = &device->leaks[i];
    if (leak->stack == TSR_NONE) continue;
    tsr__emit_space(printer->emitter);
    tsr_steps_unit unit = device->loops[leak->loop].unit;
    tsr__emit_printf(printer->emitter, TSR__BOLD, "#%s  %s %s since %s %s",
                     tsr__format_count(i + 1, rank), tsr__format_size(leak->bytes_per_step, size),
                     each(unit), tsr_steps_unit_name(unit),
                     tsr__format_count(leak->since_step, step));
    if (printer->emitter->options.verbose)
      tsr__print_names(printer->emitter, device->names, &leak->names);
    tsr__stack_print(printer, leak->stack);
  }
}

/* Text: only where there are several. */
static void emit_loops(tsr__stack_printer *printer, const tsr_leaks_device *device) {
  tsr__emitter *emitter = printer->emitter;
  const tsr__column columns[] = {
      {"loop", "loop", TSR__RIGHT},         {NULL, "compared", TSR__LEFT},
      {"whole_steps", NULL, TSR__RIGHT},    {NULL, "grows by", TSR__RIGHT},
      {"bytes_per_step", NULL, TSR__RIGHT}, {"leak_count", "places", TSR__RIGHT},
      {NULL, "run by", TSR__ELASTIC}};
  if (tsr__emitter_is_text(emitter) && device->loop_count < 2) return;
  tsr__emit_table(emitter, "loops", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < device->loop_count; i++) {
    const tsr_leaks_loop *loop = &device->loops[i];
    char steps[TSR__FORMAT_BYTES];
    tsr__buffer *out = &emitter->scratch;
    tsr__buffer_printf(out, "%s %ss", tsr__format_count(loop->step_count, steps),
                       tsr_steps_unit_name(loop->unit));
    size_t named = out->size;
    if (tsr__emitter_is_text(emitter) && loop->frame != TSR_NONE)
      tsr__frame_append_name(printer, loop->frame);
    else
      tsr__buffer_text(out, "-");
    if (out->failed) return;
    tsr__emit_row(
        emitter,
        (tsr__cell[]){tsr__count(i + 1), tsr__text((tsr_text){out->data, named}),
                      tsr__count(loop->step_count),
                      loop->is_answered ? tsr__bytes(loop->bytes_per_step) : tsr__string("too few"),
                      tsr__bytes(loop->bytes_per_step), tsr__count(loop->leak_count),
                      tsr__text((tsr_text){out->data + named, out->size - named})});
    out->size = 0;
    tsr__emit_field(emitter, "unit", NULL, tsr__string(tsr_steps_unit_name(loop->unit)));
    tsr__frame_emit(printer, "frame", loop->frame);
    tsr__emit_field(emitter, "answered", NULL, tsr__bool(loop->is_answered));
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
  tsr__emit_space(emitter);
}

static void emit_device(tsr__stack_printer *printer, const tsr_leaks_device *device) {
  tsr__emitter *emitter = printer->emitter;
  print_verdict(emitter, device);
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__device(device->device));
  tsr__emit_field(emitter, "events", NULL, tsr__count(device->event_count));
  tsr__emit_field(emitter, "has_history", NULL, tsr__bool(device->has_history));
  tsr__emit_field(emitter, "basis", NULL, tsr__string(tsr_steps_basis_name(device->basis)));
  tsr__emit_field(emitter, "unit", NULL, tsr__string(tsr_steps_unit_name(device->unit)));
  tsr__emit_field(emitter, "whole_steps", NULL, tsr__count(device->step_count));
  tsr__emit_field(emitter, "answered", NULL, tsr__bool(device->is_answered));
  tsr__emit_stop_fields(emitter, &device->stop);
  tsr__emit_field(emitter, "bytes_per_step", NULL, tsr__bytes(device->bytes_per_step));
  emit_loops(printer, device);
  emit_leaks(printer, device);
  emit_omitted(emitter, device);
  tsr__emit_end(emitter);
  if (tsr__emitter_is_text(emitter)) print_stacks(printer, device);
}

int tsr__report_leaks(const tsr_report_input *input, const tsr_leaks *leaks,
                      const tsr_report_options *options, tsr_write_fn *write, void *context,
                      tsr_error *error) {
  tsr__emitter emitter;
  tsr__stack_printer printer;
  tsr__warning_list warnings = {0};
  tsr__emitter_init(&emitter, options, write, context);
  tsr__stack_printer_init(&printer, &emitter, input->snapshot);
  tsr__heading_open(&emitter, &tsr__fields_leaks, input);
  if (!leaks->device_count)
    tsr__emit_printf(&emitter, TSR__VERDICT, "No device has events or segments.");
  for (size_t i = 0; i < leaks->device_count; i++) {
    emit_device(&printer, &leaks->devices[i]);
    tsr__warnings_add(&warnings, leaks->devices[i].warnings, leaks->devices[i].warning_count);
  }
  tsr__stack_printer_release(&printer);
  return tsr__heading_close(&emitter, input, &warnings, error);
}
