/* report_compare.c - a source file in two snapshots, side by side, as text or JSON.
 *
 *   Device 0: model.py holds 14.20 GiB at the first peak and 10.10 GiB at the second: 4.10 GiB less.
 *
 *        change     before      after  inclusive change  line  in                 source
 *     -4.02 GiB   6.02 GiB   2.00 GiB         -4.02 GiB   432  Attention.forward  scores = ...
 *
 * Bytes are self bytes unless stated otherwise; `delta` is the second less the first.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/format.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/reports.h"
#include "questions/source/report.h"
#include "tessera/unstable/frames.h"

typedef struct printer {
  tsr__emitter *emitter;
  const tsr_snapshot *snapshot; /* the first that mentions the file */
  const tsr_source *source;     /* for the text, which both sides share, and the file's name */
} printer;

/* "+1.20 GiB", "-85.00 MiB", "0 B". */
static const char *format_change(uint64_t before, uint64_t after, char text[TSR__FORMAT_BYTES]) {
  char size[TSR__FORMAT_BYTES];
  const char *sign = after > before ? "+" : after < before ? "-" : "";
  (void)snprintf(text, TSR__FORMAT_BYTES, "%s%.40s", sign,
                 tsr__format_size(after > before ? after - before : before - after, size));
  return text;
}

static uint64_t held(const tsr_source_device *device) {
  return device ? device->whole.self_bytes : 0;
}

static void print_verdict(const printer *p, const tsr_source_pair *pair) {
  char first[TSR__FORMAT_BYTES], second[TSR__FORMAT_BYTES], less[TSR__FORMAT_BYTES];
  uint64_t before = held(pair->first), after = held(pair->second);
  tsr__buffer *out = &p->emitter->scratch;
  tsr__emit_space(p->emitter);
  if (!tsr__emitter_is_text(p->emitter)) return;
  char name[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "%s: ", tsr__device_title(pair->device, name));
  if (p->source->file == TSR_NONE) {
    tsr__buffer_text(out, "no stack of either snapshot mentions a file of that name.");
  } else {
    tsr_text file = tsr_base_name(tsr_snapshot_string(p->snapshot, p->source->file));
    tsr__buffer_append(out, file.data, file.size_bytes);
    tsr__buffer_printf(out, " holds %s at the first peak and %s at the second: ",
                       tsr__format_size(before, first), tsr__format_size(after, second));
    if (before == after)
      tsr__buffer_text(out, "no difference.");
    else
      tsr__buffer_printf(out, "%s %s.",
                         tsr__format_size(after > before ? after - before : before - after, less),
                         after > before ? "more" : "less");
    if (!pair->first || !pair->second)
      tsr__buffer_printf(out, " The %s snapshot does not have this device.",
                         pair->first ? "second" : "first");
  }
  tsr__emit_line(p->emitter, TSR__VERDICT, 0);
}

/* JSON: both sides and their differences. */
static void emit_sides(tsr__emitter *emitter, const tsr_source_change *change) {
  if (tsr__emitter_is_text(emitter)) return;
  const tsr_source_use *a = &change->first, *b = &change->second;
  tsr__emit_object(emitter, "old");
  tsr__source_emit_use(emitter, a);
  tsr__emit_end(emitter);
  tsr__emit_object(emitter, "new");
  tsr__source_emit_use(emitter, b);
  tsr__emit_end(emitter);
  tsr__emit_field(emitter, "self_delta_bytes", NULL,
                  tsr__index((int64_t)(b->self_bytes - a->self_bytes)));
  tsr__emit_field(emitter, "inclusive_delta_bytes", NULL,
                  tsr__index((int64_t)(b->inclusive_bytes - a->inclusive_bytes)));
}

static void emit_lines(const printer *p, const tsr_source_pair *pair) {
  const tsr__column columns[] = {
      {NULL, "change", TSR__RIGHT},    {NULL, "before", TSR__RIGHT},
      {NULL, "after", TSR__RIGHT},     {NULL, "inclusive change", TSR__RIGHT},
      {"line", "line", TSR__RIGHT},    {"in", "in", TSR__LEFT},
      {"text", "source", TSR__ELASTIC}};
  tsr__emit_table(p->emitter, "lines", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < pair->line_count; i++) {
    const tsr_source_change *change = &pair->lines[i];
    char self[TSR__FORMAT_BYTES], inclusive[TSR__FORMAT_BYTES];
    const tsr_source_use *a = &change->first, *b = &change->second;
    bool is_there = change->index && change->index <= p->source->text_count;
    const char *name = tsr__source_definition_name(p->source, change->definition);
    tsr__emit_row(
        p->emitter,
        (tsr__cell[]){tsr__string(format_change(a->self_bytes, b->self_bytes, self)),
                      tsr__bytes(a->self_bytes), tsr__bytes(b->self_bytes),
                      tsr__string(format_change(a->inclusive_bytes, b->inclusive_bytes, inclusive)),
                      tsr__count(change->index),
                      name || tsr__emitter_is_text(p->emitter) ? tsr__string(name) : tsr__nothing(),
                      is_there ? tsr__text(tsr__source_line_text(p->source, change->index))
                               : tsr__nothing()});
    emit_sides(p->emitter, change);
    tsr__emit_row_end(p->emitter);
  }
  tsr__emit_table_end(p->emitter);
  tsr__emit_field(p->emitter, "omitted_lines", NULL, tsr__count(pair->omitted_lines));
  tsr__source_print_omitted(p->emitter, pair->omitted_lines, "line");
}

typedef struct change_list {
  const char *key, *title;
  const tsr_source_change *items;
  size_t count;
  uint64_t omitted;
} change_list;

static void emit_definitions(const printer *p, const change_list *list) {
  const tsr__column columns[] = {{NULL, "change", TSR__RIGHT},
                                 {NULL, "before", TSR__RIGHT},
                                 {NULL, "after", TSR__RIGHT},
                                 {NULL, "inclusive change", TSR__RIGHT},
                                 {"name", list->title, TSR__ELASTIC}};
  tsr__emit_space(p->emitter);
  tsr__emit_table(p->emitter, list->key, columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < list->count; i++) {
    const tsr_source_change *change = &list->items[i];
    const tsr_source_use *a = &change->first, *b = &change->second;
    char self[TSR__FORMAT_BYTES], inclusive[TSR__FORMAT_BYTES];
    tsr__emit_row(
        p->emitter,
        (tsr__cell[]){tsr__string(format_change(a->self_bytes, b->self_bytes, self)),
                      tsr__bytes(a->self_bytes), tsr__bytes(b->self_bytes),
                      tsr__string(format_change(a->inclusive_bytes, b->inclusive_bytes, inclusive)),
                      tsr__string(tsr__source_definition_name(p->source, change->index))});
    emit_sides(p->emitter, change);
    tsr__emit_row_end(p->emitter);
  }
  tsr__emit_table_end(p->emitter);
  tsr__source_print_omitted(p->emitter, list->omitted, list->title);
}

static void emit_pair(const printer *p, const tsr_source_pair *pair) {
  tsr__emitter *emitter = p->emitter;
  const change_list functions = {"functions", "function", pair->functions, pair->function_count,
                                 pair->omitted_functions};
  const change_list classes = {"classes", "class", pair->classes, pair->class_count,
                               pair->omitted_classes};
  print_verdict(p, pair);
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__device(pair->device));
  tsr__source_emit_match(emitter, p->snapshot, p->source);
  tsr__emit_field(emitter, "old_bytes", NULL, tsr__bytes(held(pair->first)));
  tsr__emit_field(emitter, "new_bytes", NULL, tsr__bytes(held(pair->second)));
  emit_lines(p, pair);
  emit_definitions(p, &functions);
  tsr__emit_field(emitter, "omitted_functions", NULL, tsr__count(pair->omitted_functions));
  emit_definitions(p, &classes);
  tsr__emit_field(emitter, "omitted_classes", NULL, tsr__count(pair->omitted_classes));
  tsr__emit_end(emitter);
}

int tsr__report_source_comparison(const tsr_report_input *first, const tsr_report_input *second,
                                  const tsr_source_comparison *comparison,
                                  const tsr_report_options *options, tsr_write_fn *write,
                                  void *context, tsr_error *error) {
  tsr__emitter emitter;
  tsr__warning_list warnings = {0};
  const tsr_source *sides[] = {comparison->first, comparison->second};
  bool is_first = sides[0]->file != TSR_NONE;
  printer p = {&emitter, is_first ? first->snapshot : second->snapshot, sides[is_first ? 0 : 1]};
  tsr__emitter_init(&emitter, options, write, context);
  tsr__heading_open_pair(&emitter, &tsr__fields_source, first, second);
  if (!comparison->device_count)
    tsr__emit_printf(&emitter, TSR__VERDICT, "No device has events or segments.");
  tsr__source_print_doubts(&emitter, p.snapshot, p.source);
  for (size_t i = 0; i < comparison->device_count; i++) emit_pair(&p, &comparison->devices[i]);
  for (size_t side = 0; side < 2; side++)
    for (size_t i = 0; i < sides[side]->device_count; i++)
      tsr__warnings_add(&warnings, sides[side]->devices[i].warnings,
                        sides[side]->devices[i].warning_count);
  tsr__source_warn(&emitter, p.source, &warnings);
  return tsr__heading_close_pair(&emitter, first, second, &warnings, error);
}
