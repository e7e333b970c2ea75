/* report.c - checks as text or JSON; dispatches to the other formats.
 *
 *   Memory check failed: 1 of 2 checks.
 *     result  device  check             is  allowed             difference
 *     FAILED       0  peak       22.55 GiB  at most 18.00 GiB    +4.55 GiB
 *     ok           0  gradient   91.07 MiB  at most 1.00 GiB   -932.93 MiB
 *
 *   peak memory of device 0 is 22.55 GiB, 4.55 GiB above its budget of 18.00 GiB
 *     at event 3,737 of 22,331
 *            is  category    function
 *      6.00 GiB  activation  nn_utils.py:6 softmax
 */
#include <inttypes.h>

#include "base/format.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/check/words.h"
#include "questions/reports.h"
#include "questions/shared/moment.h"
#include "questions/shared/names.h"

#define SIZE(bytes)   tsr__format_size((bytes), (char[TSR__FORMAT_BYTES]){0})
#define COUNT(number) tsr__format_count((number), (char[TSR__FORMAT_BYTES]){0})

/* ---- Text ---- */

static void print_results(tsr__emitter *emitter, const tsr_check *check) {
  static const tsr__column columns[] = {
      {NULL, "result", TSR__LEFT}, {NULL, "device", TSR__RIGHT}, {NULL, "check", TSR__LEFT},
      {NULL, "is", TSR__RIGHT},    {NULL, "allowed", TSR__LEFT}, {NULL, "difference", TSR__RIGHT}};
  tsr__buffer *out = &emitter->scratch;
  tsr__emit_table(emitter, NULL, columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < check->result_count; i++) {
    const tsr_check_result *r = &check->results[i];
    tsr__check_allowed(out, r);
    size_t middle = out->size;
    tsr__check_difference(out, r);
    tsr__cell cells[] = {tsr__string(r->is_passed ? "ok" : "FAILED"),
                         tsr__device(r->device),
                         tsr__string(tsr__check_subject(r)),
                         tsr__bytes(r->bytes),
                         tsr__text((tsr_text){out->data, middle}),
                         tsr__text((tsr_text){out->data + middle, out->size - middle})};
    tsr__emit_row(emitter, cells);
    out->size = 0;
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

static void print_cause(tsr__stack_printer *printer, const tsr_check_device *device,
                        const tsr_check_result *r, const tsr_check_cause *cause) {
  tsr__emitter *emitter = printer->emitter;
  bool is_kind = r->rule == TSR_CHECK_MAX_CATEGORY || r->rule == TSR_CHECK_LOCK_CATEGORY;
  uint64_t now = r->is_change || is_kind ? cause->cause.bytes : cause->bytes_at_peak;
  tsr__buffer *out = &emitter->scratch;
  uint64_t was = cause->locked_bytes;
  tsr__buffer_printf(out, "%s%s", now >= was ? "+" : "-", SIZE(now >= was ? now - was : was - now));
  size_t first = out->size;
  tsr__buffer_printf(out, "%s%s", cause->is_locked || !was ? "" : "at most ", SIZE(was));
  size_t second = out->size;
  tsr__check_append_place(printer, device, cause);
  tsr__cell cells[] = {tsr__text((tsr_text){out->data, first}),
                       tsr__text((tsr_text){out->data + first, second - first}), tsr__bytes(now),
                       tsr__string(tsr_category_name(cause->cause.category)),
                       tsr__text((tsr_text){out->data + second, out->size - second})};
  tsr__emit_row(emitter, cells);
  out->size = 0;
  tsr__emit_row_end(emitter);
}

/* What failed, and the lines that explain it. */
static void print_failure(tsr__stack_printer *printer, const tsr_check *check,
                          const tsr_check_result *r) {
  tsr__emitter *emitter = printer->emitter;
  const tsr_check_device *device = tsr__check_device_of(check, r);
  const char *change = r->is_change ? "change" : NULL, *was = r->is_change ? "was" : NULL;
  const tsr__column columns[] = {{NULL, change, TSR__RIGHT},
                                 {NULL, was, TSR__RIGHT},
                                 {NULL, "is", TSR__RIGHT},
                                 {NULL, "category", TSR__CATEGORY},
                                 {NULL, "function", TSR__ELASTIC}};
  tsr__emit_space(emitter);
  tsr__check_sentence(&emitter->scratch, r);
  if (device && r->event >= 0)
    tsr__buffer_printf(&emitter->scratch, " (event %s of %s)", COUNT((uint64_t)r->event),
                       COUNT(device->event_count));
  tsr__buffer_text(&emitter->scratch, r->cause_count ? ":" : ".");
  tsr__emit_line(emitter, TSR__BOLD, 0);
  tsr__emit_table(emitter, NULL, columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; device && i < r->cause_count; i++)
    print_cause(printer, device, r, &device->causes[r->causes[i]]);
  tsr__emit_table_end(emitter);
  tsr__check_omitted(&emitter->scratch, r);
  if (emitter->scratch.size) tsr__emit_line(emitter, TSR__DIM, 2);
}

static void print_text(tsr__stack_printer *printer, const tsr_check *check) {
  tsr__emitter *emitter = printer->emitter;
  tsr__buffer_text(&emitter->scratch, "Memory check ");
  tsr__check_verdict(&emitter->scratch, check);
  tsr__buffer_text(&emitter->scratch, ".");
  tsr__emit_line(emitter, TSR__VERDICT, 0);
  print_results(emitter, check);
  for (size_t i = 0; i < check->device_count; i++) {
    char name[TSR__FORMAT_BYTES];
    const tsr_check_device *d = &check->devices[i];
    if (!d->peak_reserved_bytes && d->device == TSR_DEVICE_CPU) continue; /* it reserves nothing */
    tsr__buffer_printf(&emitter->scratch,
                       "%s %s %s for %s allocated; reserved memory depends on "
                       "earlier allocator activity",
                       tsr__device_name(d->device, name),
                       d->has_history ? "reserved at most" : "reserves",
                       SIZE(d->peak_reserved_bytes), SIZE(d->peak.totals.allocated_bytes));
    tsr__emit_line(emitter, TSR__DIM, 2);
  }
  if (check->counts_blocks) {
    tsr__buffer_text(&emitter->scratch,
                     "the lock is of version 1: as in it, categories count rounding and tails; "
                     "--update writes what `profile` counts");
    tsr__emit_line(emitter, TSR__DIM, 2);
  }
  for (size_t i = 0; i < check->result_count; i++)
    if (!check->results[i].is_passed) print_failure(printer, check, &check->results[i]);
}

/* ---- JSON ---- */

static void emit_cause(tsr__stack_printer *printer, const tsr_check_device *device,
                       const tsr_check_cause *cause, bool has_lock) {
  tsr__emitter *emitter = printer->emitter;
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "name", NULL, tsr__string(cause->name));
  tsr__emit_field(emitter, "category", NULL, tsr__string(tsr_category_name(cause->cause.category)));
  tsr__emit_field(emitter, "peak_bytes", NULL, tsr__bytes(cause->cause.bytes));
  tsr__emit_field(emitter, "allocations", NULL, tsr__count(cause->cause.allocations));
  tsr__emit_field(emitter, "peak_event", NULL, tsr__index(cause->peak_event));
  tsr__emit_field(emitter, "bytes", NULL, tsr__bytes(cause->bytes_at_peak));
  tsr__emit_field(emitter, "locked", NULL, has_lock ? tsr__bool(cause->is_locked) : tsr__nothing());
  tsr__emit_field(emitter, "locked_bytes", NULL,
                  has_lock ? tsr__bytes(cause->locked_bytes) : tsr__nothing());
  tsr__frame_emit(printer, "frame", cause->cause.frame);
  tsr__frame_emit(printer, "layer", cause->cause.layer);
  tsr__emit_names(emitter, device->named, &cause->cause.names);
  tsr__stack_emit(printer, cause->cause.stack);
  tsr__emit_end(emitter);
}

static void emit_result(tsr__stack_printer *printer, const tsr_check *check,
                        const tsr_check_result *r) {
  tsr__emitter *emitter = printer->emitter;
  const tsr_check_device *device = tsr__check_device_of(check, r);
  bool has_kind = r->rule == TSR_CHECK_MAX_CATEGORY || r->rule == TSR_CHECK_LOCK_CATEGORY;
  tsr__buffer *words = &emitter->scratch;
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "rule", NULL, tsr__string(tsr_check_rule_name(r->rule)));
  tsr__emit_field(emitter, "device", NULL, tsr__device(r->device));
  tsr__emit_field(emitter, "category", NULL,
                  has_kind ? tsr__string(tsr_category_name(r->category)) : tsr__nothing());
  tsr__emit_field(emitter, "passed", NULL, tsr__bool(r->is_passed));
  tsr__emit_field(emitter, "bytes", NULL, tsr__bytes(r->bytes));
  tsr__emit_field(emitter, "limit_bytes", NULL, tsr__bytes(r->limit_bytes));
  tsr__emit_field(emitter, "tolerance_bytes", NULL, tsr__bytes(r->tolerance_bytes));
  tsr__emit_field(emitter, "event", NULL, tsr__index(r->event));
  tsr__check_sentence(words, r);
  tsr__emit_field(emitter, "message", NULL, tsr__text((tsr_text){words->data, words->size}));
  words->size = 0;
  tsr__emit_field(emitter, "by_change", NULL, tsr__bool(r->is_change));
  tsr__emit_array(emitter, "causes");
  for (size_t i = 0; device && i < r->cause_count; i++)
    emit_cause(printer, device, &device->causes[r->causes[i]], check->has_lock);
  tsr__emit_end(emitter);
  tsr__emit_field(emitter, "omitted_causes", NULL, tsr__count(r->omitted_causes));
  tsr__emit_field(emitter, "omitted_bytes", NULL, tsr__bytes(r->omitted_bytes));
  tsr__emit_end(emitter);
}

static void emit_kinds(tsr__emitter *emitter, const tsr_check_device *device) {
  static const tsr__column columns[] = {{"category", NULL, TSR__LEFT},
                                        {"peak_bytes", NULL, TSR__RIGHT},
                                        {"peak_event", NULL, TSR__RIGHT},
                                        {"bytes", NULL, TSR__RIGHT}};
  tsr__emit_table(emitter, "categories", columns, sizeof columns / sizeof *columns);
  bool are_shown = device->has_causes && device->needs_causes;
  for (int i = 0; are_shown && i < TSR_CATEGORY_COUNT; i++) {
    const tsr_check_category *kind = &device->categories[i];
    if (!kind->peak_bytes) continue;
    tsr__cell cells[] = {tsr__string(tsr_category_name((tsr_category)i)),
                         tsr__bytes(kind->peak_bytes), tsr__index(kind->peak_event),
                         tsr__bytes(kind->bytes)};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

static void emit_device(tsr__emitter *emitter, const tsr_check_device *device) {
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__device(device->device));
  tsr__emit_field(emitter, "events", NULL, tsr__count(device->event_count));
  tsr__emit_field(emitter, "has_history", NULL, tsr__bool(device->has_history));
  tsr__emit_object(emitter, "peak");
  tsr__emit_field(emitter, "event", NULL, tsr__index(device->peak.event));
  tsr__emit_field(emitter, "time_us", NULL, tsr__time(device->peak.time_us));
  tsr__emit_totals(emitter, "totals", &device->peak.totals);
  tsr__emit_end(emitter);
  tsr__emit_object(emitter, "reserved");
  tsr__emit_field(emitter, "event", NULL, tsr__index(device->peak_reserved_event));
  tsr__emit_field(emitter, "bytes", NULL, tsr__bytes(device->peak_reserved_bytes));
  tsr__emit_end(emitter);
  emit_kinds(emitter, device);
  tsr__emit_end(emitter);
}

static void emit_json(tsr__stack_printer *printer, const tsr_check *check) {
  tsr__emitter *emitter = printer->emitter;
  tsr__emit_field(emitter, "passed", NULL, tsr__bool(check->is_passed));
  tsr__emit_field(emitter, "cut", NULL, tsr__bool(check->doubt == TSR_CHECK_TRUNCATED));
  tsr__emit_field(emitter, "failed", NULL, tsr__count(check->failed_count));
  tsr__emit_field(emitter, "counts_blocks", NULL, tsr__bool(check->counts_blocks));
  const char *doubt = check->doubt ? tsr_check_doubt_name(check->doubt) : NULL;
  tsr__emit_field(emitter, "doubt", NULL, doubt ? tsr__string(doubt) : tsr__nothing());
  tsr__emit_array(emitter, "results");
  for (size_t i = 0; i < check->result_count; i++) emit_result(printer, check, &check->results[i]);
  tsr__emit_end(emitter);
  tsr__emit_array(emitter, "devices");
  for (size_t i = 0; i < check->device_count; i++) emit_device(emitter, &check->devices[i]);
}

/* ---- All formats ---- */

static void gather_warnings(tsr__warning_list *list, const tsr_check *check) {
  for (size_t i = 0; i < check->device_count; i++)
    tsr__warnings_add(list, check->devices[i].warnings, check->devices[i].warning_count);
  static const tsr_warning no_host = {"host-left-out", 1,
                                      "pinned host memory is not checked; --device host checks it"};
  static const tsr_warning no_history = {
      "not-recorded", 1, "no history was recorded; only what was held at one moment is checked"};
  if (check->leaves_host) tsr__warnings_add(list, &no_host, 1);
  if (check->is_unrecorded) tsr__warnings_add(list, &no_history, 1);
}

static int report_answer(const tsr_report_input *input, const tsr_check *check,
                         const tsr_report_options *options, tsr_write_fn *write, void *context,
                         tsr_error *error) {
  tsr__emitter emitter;
  tsr__stack_printer printer;
  tsr__warning_list warnings = {0};
  tsr__emitter_init(&emitter, options, write, context);
  tsr__stack_printer_init(&printer, &emitter, input->snapshot);
  tsr__heading_begin(&emitter, &tsr__fields_check, input);
  if (tsr__emitter_is_text(&emitter))
    tsr__emit_array(&emitter, "devices"), print_text(&printer, check);
  else
    emit_json(&printer, check);
  gather_warnings(&warnings, check);
  tsr__stack_printer_release(&printer);
  return tsr__heading_close(&emitter, input, &warnings, error);
}

/* The formats for other programs are assembled in memory, because they are short. */
static int report_page(const tsr_report_input *input, const tsr_check *check,
                       const tsr_check_face *face, const tsr_report_options *options,
                       tsr_write_fn *write, void *context, tsr_error *error) {
  tsr__emitter emitter;
  tsr__stack_printer printer;
  tsr__buffer out = {0};
  tsr__emitter_init(&emitter, NULL, write, context);
  tsr__stack_printer_init(&printer, &emitter, input->snapshot);
  tsr__warning_list warnings = {0};
  size_t count;
  const tsr_warning *of_file = tsr_snapshot_warnings(input->snapshot, &count);
  tsr__warnings_add(&warnings, of_file, count);
  gather_warnings(&warnings, check);
  tsr__check_page page = {input, check, face->root, &warnings, &printer, &out};
  if (face->format == TSR_CHECK_JUNIT)
    tsr__check_junit(&page);
  else if (face->format == TSR_CHECK_SARIF)
    tsr__check_sarif(&page);
  else
    tsr__check_markdown(&page);
  bool failed = out.failed || emitter.scratch.failed;
  tsr__stack_printer_release(&printer);
  int status = tsr__emitter_finish(&emitter, error);
  if (!status && failed) status = tsr__fail_memory(error);
  if (!status && write(context, out.data, out.size))
    status = tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "the report cannot be written");
  tsr__buffer_release(&out);
  if (!status) tsr__warnings_tell(options, warnings.items, warnings.count);
  return status;
}

int tsr__report_check(const tsr_report_input *input, const tsr_check *check,
                      const tsr_check_face *face, const tsr_report_options *options,
                      tsr_write_fn *write, void *context, tsr_error *error) {
  tsr_report_options how = options ? *options : (tsr_report_options){0};
  if (face->format != TSR_CHECK_TEXT && face->format != TSR_CHECK_JSON)
    return report_page(input, check, face, &how, write, context, error);
  if (face->format == TSR_CHECK_JSON)
    how.format = TSR_REPORT_JSON;
  else if (how.format == TSR_REPORT_JSON)
    how.format = TSR_REPORT_TEXT;
  return report_answer(input, check, &how, write, context, error);
}
