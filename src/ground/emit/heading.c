/* heading.c - the frame around every answer.
 *
 *   {"schema", "command", "inputs": [...], "devices": [ <the answer> ], "warnings": [...]}
 *
 * Text has no heading: the answer comes first. Warnings come last, unless the reader asked for quiet: one
 * per line, or passed to the caller, who has another place for them. JSON always has them, so that a
 * program can distinguish a clean file from a repaired one.
 */
#include "emit/heading.h"

#include <assert.h>
#include <string.h>

#include "base/format.h"
#include "tessera/unstable/sidecar.h"

#define SCHEMA "tessera/1"

static void emit_input(tsr__emitter *emitter, const tsr_report_input *input) {
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "path", NULL, tsr__string(input->path));
  tsr__emit_field(emitter, "bytes", NULL, tsr__bytes(tsr_snapshot_input_bytes(input->snapshot)));
  tsr__emit_field(emitter, "format", NULL, tsr__string(tsr_snapshot_format(input->snapshot)));
  const char *sidecar = tsr_snapshot_sidecar(input->snapshot);
  tsr__emit_field(emitter, "sidecar", NULL, sidecar ? tsr__string(sidecar) : tsr__nothing());
  tsr__emit_end(emitter);
}

static void begin(tsr__emitter *emitter, const tsr_record *fields, const tsr_report_input *first,
                  const tsr_report_input *second) {
  assert(!emitter->depth);
  emitter->fields = fields;
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "schema", NULL, tsr__string(SCHEMA));
  tsr__emit_field(emitter, "command", NULL, tsr__string(fields->name));
  tsr__emit_array(emitter, "inputs");
  emit_input(emitter, first);
  if (second) emit_input(emitter, second);
  tsr__emit_end(emitter);
}

void tsr__heading_begin(tsr__emitter *emitter, const tsr_record *fields,
                        const tsr_report_input *input) {
  begin(emitter, fields, input, NULL);
}

void tsr__heading_open_pair(tsr__emitter *emitter, const tsr_record *fields,
                            const tsr_report_input *first, const tsr_report_input *second) {
  begin(emitter, fields, first, second);
  tsr__emit_array(emitter, "devices");
}

void tsr__heading_open(tsr__emitter *emitter, const tsr_record *fields,
                       const tsr_report_input *input) {
  tsr__heading_open_pair(emitter, fields, input, NULL);
}

static void emit_warning(tsr__emitter *emitter, const tsr_warning *warning) {
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "code", NULL, tsr__string(warning->code));
  tsr__emit_field(emitter, "count", NULL, tsr__count(warning->count));
  tsr__emit_field(emitter, "message", NULL, tsr__string(warning->message));
  tsr__emit_end(emitter);
  if (!tsr__emitter_is_text(emitter) || emitter->options.quiet || emitter->options.warn) return;
  char count[TSR__FORMAT_BYTES];
  tsr__buffer_printf(&emitter->scratch, "warning: %s (%s): %s", warning->code,
                     tsr__format_count(warning->count, count), warning->message);
  tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
}

void tsr__warnings_add(tsr__warning_list *list, const tsr_warning *warnings, size_t count) {
  assert(list->count <= sizeof list->items / sizeof *list->items);
  for (size_t i = 0; i < count; i++) {
    size_t k = 0;
    while (k < list->count && strcmp(list->items[k].code, warnings[i].code) != 0) k++;
    if (k < list->count)
      list->items[k].count += warnings[i].count;
    else if (k < sizeof list->items / sizeof *list->items)
      list->items[list->count++] = warnings[i];
  }
}

void tsr__warnings_tell(const tsr_report_options *options, const tsr_warning *warnings,
                        size_t count) {
  if (!options || !options->warn || options->quiet) return;
  for (size_t i = 0; i < count; i++)
    options->warn(options->warn_context, warnings[i].code, warnings[i].count, warnings[i].message);
}

/* The emitter's options are its own copy, and outlive tsr__emitter_finish. */
static int close_with(tsr__emitter *emitter, const tsr__warning_list *list, tsr_error *error) {
  /* The whole, and the answer in it. */
  assert(emitter->options.format != TSR_REPORT_JSON || emitter->depth == 2);
  tsr__emit_end(emitter);
  tsr__emit_space(emitter);
  tsr__emit_array(emitter, "warnings");
  for (size_t i = 0; i < list->count; i++) emit_warning(emitter, &list->items[i]);
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
  int status = tsr__emitter_finish(emitter, error);
  if (!status) tsr__warnings_tell(&emitter->options, list->items, list->count);
  return status;
}

static void add_of_snapshot(tsr__warning_list *list, const tsr_report_input *input) {
  size_t count = 0;
  const tsr_warning *warnings = tsr_snapshot_warnings(input->snapshot, &count);
  tsr__warnings_add(list, warnings, count);
}

int tsr__heading_close_pair(tsr__emitter *emitter, const tsr_report_input *first,
                            const tsr_report_input *second, const tsr__warning_list *more,
                            tsr_error *error) {
  tsr__warning_list all = {0};
  add_of_snapshot(&all, first);
  if (second) add_of_snapshot(&all, second);
  if (more) tsr__warnings_add(&all, more->items, more->count);
  return close_with(emitter, &all, error);
}

int tsr__heading_close(tsr__emitter *emitter, const tsr_report_input *input,
                       const tsr__warning_list *more, tsr_error *error) {
  return tsr__heading_close_pair(emitter, input, NULL, more, error);
}

const char *tsr__plural(uint64_t count) {
  return count == 1 ? "" : "s";
}
