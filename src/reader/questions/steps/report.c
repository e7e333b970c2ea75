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
#include "questions/shared/stepping.h"

enum { STEPS_SHOWN = 12 };

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* Without a backward pass what repeats is an iteration, in text; field names are the same. */
static const char *of_unit(const tsr_steps_device *device, const char *step,
                           const char *iteration) {
  return device->unit == TSR_STEPS_UNIT_ITERATION ? iteration : step;
}

static void append_peaks(tsr__buffer *out, const tsr_steps_device *device) {
  char peak[TSR__FORMAT_BYTES], surplus[TSR__FORMAT_BYTES];
  if (device->whole_count == 1) {
    tsr__buffer_printf(out, "; it peaks at %s.", tsr__format_size(device->steady_peak_bytes, peak));
    return;
  }
  tsr__buffer_printf(out, "; a steady one peaks at %s, ",
                     tsr__format_size(device->steady_peak_bytes, peak));
  if (device->steady_count == device->whole_count)
    tsr__buffer_text(out, "and there is no warm-up.");
  else if (device->warmup_surplus_bytes)
    tsr__buffer_printf(out, "warm-up %s higher.",
                       tsr__format_size(device->warmup_surplus_bytes, surplus));
  else
    tsr__buffer_text(out, "warm-up is no higher.");
}

/* How many are whole, and how many are not for another reason than memory. */
static void append_steps(tsr__buffer *out, const tsr_steps_device *device) {
  char count[TSR__FORMAT_BYTES];
  const char *unit = tsr_steps_unit_name(device->unit);
  uint64_t cut = device->step_count - device->whole_count;
  for (size_t i = 0; i < device->step_count; i++) cut -= device->steps[i].is_dead;
  if (!device->whole_count && !cut) {
    tsr__buffer_printf(out, "no whole %s.", unit);
  } else if (!device->whole_count) {
    tsr__buffer_printf(out,
                       cut == 1 ? "%s %s%s, which is not whole." : "%s %s%s, none of them whole.",
                       tsr__format_count(cut, count), unit, tsr__plural(cut));
  } else {
    tsr__buffer_printf(out, "%s whole %s%s", tsr__format_count(device->whole_count, count), unit,
                       tsr__plural(device->whole_count));
    if (cut) tsr__buffer_printf(out, " and %s cut", tsr__format_count(cut, count));
    append_peaks(out, device);
  }
}

static void print_verdict(tsr__emitter *emitter, const tsr_steps_device *device) {
  tsr__emit_space(emitter);
  if (!tsr__emitter_is_text(emitter)) return;
  char name[TSR__FORMAT_BYTES];
  tsr__buffer_printf(&emitter->scratch, "%s: ", tsr__device_title(device->device, name));
  if (!device->event_count)
    tsr__buffer_text(&emitter->scratch, "no events were recorded.");
  else if (!device->step_count)
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

/* Fields that make no sense for a trace without steps are omitted from text. */
static void emit_fold(tsr__emitter *emitter, const tsr_steps_device *device) {
  bool has_steps = device->step_count != 0, has_steady = device->steady_count != 0;
  bool is_alone = device->whole_count == 1; /* then "steady" would say too much */
  tsr__emit_field(emitter, "basis", has_steps ? "found by" : NULL,
                  tsr__string(tsr_steps_basis_name(device->basis)));
  tsr__emit_field(emitter, "unit", NULL, tsr__string(tsr_steps_unit_name(device->unit)));
  tsr__emit_field(emitter, "counts_backwards", NULL, tsr__bool(device->counts_backwards));
  tsr__emit_field(emitter, "step_count", NULL, tsr__count(device->step_count));
  tsr__emit_field(emitter, "whole_steps", NULL, tsr__count(device->whole_count));
  tsr__emit_field(emitter, "steady_steps",
                  has_steady && !is_alone ? of_unit(device, "steady steps", "steady iterations")
                                          : NULL,
                  tsr__count(device->steady_count));
  tsr__emit_field(emitter, "step_allocations",
                  has_steady ? of_unit(device, "allocations a step", "allocations an iteration")
                             : NULL,
                  tsr__count(device->step_allocations));
  if (device->step_time_us == TSR_TIME_NONE)
    tsr__emit_field(emitter, "step_time_us", NULL, tsr__nothing());
  else
    tsr__emit_field(emitter, "step_time_us",
                    of_unit(device, "microseconds a step", "microseconds an iteration"),
                    tsr__count((uint64_t)device->step_time_us));
  tsr__emit_object(emitter, "steady");
  tsr__emit_field(emitter, "peak_bytes", NULL, tsr__bytes(device->steady_peak_bytes));
  tsr__emit_field(emitter, "peak_event",
                  !has_steady ? NULL
                  : is_alone  ? "event of the peak"
                              : "event of the steady peak",
                  has_steady ? tsr__count(device->steady_peak_event) : tsr__nothing());
  bool varies = device->steady_low_bytes != device->steady_peak_bytes;
  tsr__emit_field(emitter, "lowest_peak_bytes", varies ? "lowest steady peak" : NULL,
                  tsr__bytes(device->steady_low_bytes));
  tsr__emit_end(emitter);
  tsr__emit_object(emitter, "warmup");
  tsr__emit_field(emitter, "peak_bytes", device->warmup_peak_bytes ? "warm-up peak" : NULL,
                  tsr__bytes(device->warmup_peak_bytes));
  tsr__emit_field(emitter, "surplus_bytes", NULL, tsr__bytes(device->warmup_surplus_bytes));
  tsr__emit_end(emitter);
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
                                tsr__string(note_on(step))});
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

static void emit_device(tsr__emitter *emitter, const tsr_steps_device *device) {
  print_verdict(emitter, device);
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__device(device->device));
  tsr__emit_field(emitter, "events", NULL, tsr__count(device->event_count));
  emit_fold(emitter, device);
  tsr__emit_stop_fields(emitter, &device->stop);
  emit_annotations(emitter, device);
  emit_phases(emitter, device);
  emit_steps(emitter, device);
  tsr__emit_end(emitter);
}

int tsr__report_steps(const tsr_report_input *input, const tsr_steps *steps,
                      const tsr_report_options *options, tsr_write_fn *write, void *context,
                      tsr_error *error) {
  tsr__emitter emitter;
  tsr__warning_list warnings = {0};
  tsr__emitter_init(&emitter, options, write, context);
  tsr__heading_open(&emitter, &tsr__fields_steps, input);
  if (!steps->device_count)
    tsr__emit_printf(&emitter, TSR__VERDICT, "No device has events or segments.");
  for (size_t i = 0; i < steps->device_count; i++) {
    emit_device(&emitter, &steps->devices[i]);
    tsr__warnings_add(&warnings, steps->devices[i].warnings, steps->devices[i].warning_count);
  }
  return tsr__heading_close(&emitter, input, &warnings, error);
}
