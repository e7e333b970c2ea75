/* report.c - a source file with what its lines hold, as text or JSON.
 *
 *   Device 0: model.py holds 14.20 GiB of the 17.80 GiB requested at the peak (79.8 %); line 432 in
 *   Attention.forward holds most, 6.02 GiB.
 *
 *        self  inclusive  allocations  line  in                 source
 *    6.02 GiB   6.02 GiB           24   432  Attention.forward  scores = softmax(q @ k)
 *
 *   /work/model.py
 *        self  inclusive  line
 *                          428  class Attention(nn.Module):
 *                               ... 3 lines
 *   >  6.02 GiB   6.02 GiB   432          scores = softmax(q @ k)
 *
 * In the listing '>' marks the lines that hold a twentieth of the file's bytes or more themselves. A
 * line that holds something is shown with the one before and after it and the heads of the functions
 * and classes around it; the rest is folded unless options.verbose.
 */
#include "questions/source/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/format.h"
#include "base/memory.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/reports.h"
#include "tessera/unstable/frames.h"

#define HOT_PART 20
#define FOLD_MIN 3

typedef struct printer {
  tsr__emitter *emitter;
  const tsr_snapshot *snapshot;
  const tsr_source *source;
} printer;

/* ---- shared ---- */

tsr_text tsr__source_line_text(const tsr_source *source, uint32_t line) {
  if (!line || line > source->text_count) return (tsr_text){"", 0};
  tsr_text text = source->text[line - 1];
  while (text.size_bytes && (*text.data == ' ' || *text.data == '\t')) {
    text.data++;
    text.size_bytes--;
  }
  return text;
}

const char *tsr__source_definition_name(const tsr_source *source, uint32_t definition) {
  return definition == TSR_NONE ? NULL : source->definitions[definition].name;
}

void tsr__source_emit_match(tsr__emitter *emitter, const tsr_snapshot *snapshot,
                            const tsr_source *source) {
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_field(emitter, "file", NULL,
                  source->file == TSR_NONE
                      ? tsr__nothing()
                      : tsr__text(tsr_snapshot_string(snapshot, source->file)));
  tsr__emit_array(emitter, "other_files");
  for (size_t i = 0; i < source->other_count; i++) {
    tsr__emit_inline_object(emitter, NULL);
    tsr__emit_field(emitter, "file", NULL,
                    tsr__text(tsr_snapshot_string(snapshot, source->other_files[i])));
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
  tsr__emit_field(emitter, "source_lines", NULL, tsr__count(source->text_count));
  tsr__emit_field(emitter, "mentioned_lines", NULL, tsr__count(source->mentioned_lines));
  tsr__emit_field(emitter, "lines_beyond", NULL, tsr__count(source->beyond_lines));
  tsr__emit_field(emitter, "lines_elsewhere", NULL, tsr__count(source->other_lines));
}

static void print_beyond(tsr__emitter *emitter, const tsr_source *source) {
  char has[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES];
  tsr__buffer_printf(
      &emitter->scratch,
      "The source has %s line%s, but the snapshot mentions %s beyond its end, up to line %" PRIu32
      ": another version?",
      tsr__format_count(source->text_count, has), tsr__plural(source->text_count),
      tsr__format_count(source->beyond_lines, count), source->beyond_line);
  tsr__emit_line(emitter, TSR__VERDICT, 0);
}

static void print_elsewhere(tsr__emitter *emitter, const tsr_snapshot *snapshot,
                            const tsr_source *source) {
  char count[TSR__FORMAT_BYTES], all[TSR__FORMAT_BYTES];
  tsr_text name = tsr_snapshot_string(snapshot, source->other_name);
  const char *here = tsr__source_definition_name(source, source->other_definition);
  tsr__buffer *out = &emitter->scratch;
  tsr__buffer_printf(
      out,
      "%s of the %s lines that the snapshot mentions differ in this source: line %" PRIu32
      " was in ",
      tsr__format_count(source->other_lines, count),
      tsr__format_count(source->mentioned_lines, all), source->other_line);
  tsr__buffer_append(out, name.data, name.size_bytes);
  tsr__buffer_printf(out, ", and is now in %s. Another version?", here ? here : "no function");
  tsr__emit_line(emitter, TSR__VERDICT, 0);
}

void tsr__source_print_doubts(tsr__emitter *emitter, const tsr_snapshot *snapshot,
                              const tsr_source *source) {
  if (!tsr__emitter_is_text(emitter)) return;
  if (!source->text_count)
    tsr__emit_printf(emitter, TSR__VERDICT,
                     "The source is not here: its lines are listed by number, without their text.");
  else if (source->beyond_lines)
    print_beyond(emitter, source);
  if (source->other_lines) print_elsewhere(emitter, snapshot, source);
  if (!source->other_count) return;
  tsr_text file = tsr_snapshot_string(snapshot, source->file);
  tsr__buffer *out = &emitter->scratch;
  tsr__buffer_text(out, "Using ");
  tsr__buffer_append(out, file.data, file.size_bytes);
  tsr__buffer_text(out, "; ignoring files of the same name:");
  tsr__emit_line(emitter, TSR__PLAIN, 0);
  for (size_t i = 0; i < source->other_count; i++) {
    file = tsr_snapshot_string(snapshot, source->other_files[i]);
    tsr__buffer_append(out, file.data, file.size_bytes);
    tsr__emit_line(emitter, TSR__PLAIN, 2);
  }
}

void tsr__source_warn(const tsr__emitter *emitter, const tsr_source *source,
                      tsr__warning_list *warnings) {
  const tsr_warning all[] = {
      {"source-absent", !source->text_count,
       "the source is not here; its lines are listed by number, without their text"},
      {"source-lines-beyond", source->text_count ? source->beyond_lines : 0,
       "lines that the snapshot mentions but the source does not have; another version?"},
      {"source-lines-elsewhere", source->other_lines,
       "lines that are in another function than the snapshot says; another version?"},
      {"source-files-left-out", source->other_count,
       "other files of the snapshot with the same name"},
  };
  for (size_t i = 0; !tsr__emitter_is_text(emitter) && i < sizeof all / sizeof *all; i++)
    if (all[i].count) tsr__warnings_add(warnings, &all[i], 1);
}

static void append_omitted(tsr__buffer *out, uint64_t omitted, const char *what) {
  char count[TSR__FORMAT_BYTES];
  const char *ending = omitted == 1 ? "" : strcmp(what, "class") == 0 ? "es" : "s";
  tsr__buffer_printf(out, "... and %s more %s%s", tsr__format_count(omitted, count), what, ending);
}

void tsr__source_print_omitted(tsr__emitter *emitter, uint64_t omitted, const char *what) {
  if (!omitted || !tsr__emitter_is_text(emitter)) return;
  append_omitted(&emitter->scratch, omitted, what);
  tsr__buffer_text(&emitter->scratch, " (--top 0 shows all)");
  tsr__emit_line(emitter, TSR__DIM, 2);
}

void tsr__source_emit_use(tsr__emitter *emitter, const tsr_source_use *use) {
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_field(emitter, "self_bytes", NULL, tsr__bytes(use->self_bytes));
  tsr__emit_field(emitter, "self_allocations", NULL, tsr__count(use->self_allocations));
  tsr__emit_field(emitter, "inclusive_bytes", NULL, tsr__bytes(use->inclusive_bytes));
  tsr__emit_field(emitter, "inclusive_allocations", NULL, tsr__count(use->inclusive_allocations));
}

/* ---- the verdict ---- */

static tsr_text shown_file(const printer *p) {
  return tsr_base_name(tsr_snapshot_string(p->snapshot, p->source->file));
}

static void append_most(const printer *p, tsr__buffer *out, const tsr_source_device *device) {
  char size[TSR__FORMAT_BYTES];
  const tsr_source_line *most = &device->lines[device->top_lines[0]];
  const char *name = tsr__source_definition_name(p->source, most->definition);
  tsr__buffer_printf(out, "; line %" PRIu32 "%s%s holds the most, %s", most->line,
                     name ? " in " : "", name ? name : "",
                     tsr__format_size(most->use.self_bytes, size));
}

static void print_verdict(const printer *p, const tsr_source_device *device) {
  char held[TSR__FORMAT_BYTES], whole[TSR__FORMAT_BYTES], share[TSR__FORMAT_BYTES];
  uint64_t requested = device->peak.totals.requested_bytes;
  tsr__buffer *out = &p->emitter->scratch;
  tsr__emit_space(p->emitter);
  if (!tsr__emitter_is_text(p->emitter)) return;
  char name[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "%s: ", tsr__device_title(device->device, name));
  if (p->source->file == TSR_NONE) {
    tsr__buffer_text(out, "no stack of the snapshot mentions a file of that name.");
  } else {
    tsr_text file = shown_file(p);
    tsr__buffer_append(out, file.data, file.size_bytes);
    tsr__buffer_printf(out, " holds %s of the %s requested at the peak (%s)",
                       tsr__format_size(device->whole.self_bytes, held),
                       tsr__format_size(requested, whole),
                       tsr__format_percent(device->whole.self_bytes, requested, share));
    if (device->top_line_count) append_most(p, out, device);
    tsr__buffer_text(out, ".");
  }
  tsr__emit_line(p->emitter, TSR__VERDICT, 0);
}

/* ---- tables ---- */

/* The lines that are not listed, and what they hold themselves: all that the listed ones do not. */
static void emit_omitted_lines(const printer *p, const tsr_source_device *device) {
  char size[TSR__FORMAT_BYTES];
  uint64_t left = device->whole.self_bytes;
  for (size_t i = 0; i < device->top_line_count; i++)
    left = tsr__drop_u64(left, device->lines[device->top_lines[i]].use.self_bytes);
  tsr__emit_field(p->emitter, "omitted_lines", NULL, tsr__count(device->omitted_lines));
  tsr__emit_field(p->emitter, "omitted_line_bytes", NULL, tsr__bytes(left));
  if (!device->omitted_lines || !tsr__emitter_is_text(p->emitter)) return;
  append_omitted(&p->emitter->scratch, device->omitted_lines, "line");
  tsr__buffer_printf(&p->emitter->scratch, ", %s self (--top 0 shows all)",
                     tsr__format_size(left, size));
  tsr__emit_line(p->emitter, TSR__DIM, 2);
}

static void emit_lines(const printer *p, const tsr_source_device *device) {
  const tsr__column columns[] = {
      {NULL, "self", TSR__RIGHT},        {NULL, "inclusive", TSR__RIGHT},
      {NULL, "allocations", TSR__RIGHT}, {"line", "line", TSR__RIGHT},
      {"in", "in", TSR__LEFT},           {"text", "source", TSR__ELASTIC}};
  tsr__emit_table(p->emitter, "lines", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < device->top_line_count; i++) {
    const tsr_source_line *line = &device->lines[device->top_lines[i]];
    const char *name = tsr__source_definition_name(p->source, line->definition);
    bool is_text = tsr__emitter_is_text(p->emitter), is_there = line->line <= p->source->text_count;
    tsr__emit_row(p->emitter,
                  (tsr__cell[]){tsr__bytes(line->use.self_bytes),
                                tsr__bytes(line->use.inclusive_bytes),
                                tsr__count(line->use.inclusive_allocations), tsr__count(line->line),
                                name || is_text ? tsr__string(name) : tsr__nothing(),
                                is_there ? tsr__text(tsr__source_line_text(p->source, line->line))
                                         : tsr__nothing()});
    tsr__source_emit_use(p->emitter, &line->use);
    tsr__emit_row_end(p->emitter);
  }
  tsr__emit_table_end(p->emitter);
  emit_omitted_lines(p, device);
}

/* "12-40". */
static const char *span_of(const tsr_source_definition *definition, char text[TSR__FORMAT_BYTES]) {
  (void)snprintf(text, TSR__FORMAT_BYTES, "%" PRIu32 "-%" PRIu32, definition->first_line,
                 definition->last_line);
  return text;
}

typedef struct definition_list {
  const char *key, *title;
  const uint32_t *items;
  size_t count;
  uint64_t omitted;
} definition_list;

static void emit_definitions(const printer *p, const tsr_source_device *device,
                             const definition_list *list) {
  const tsr__column columns[] = {{NULL, "self", TSR__RIGHT},
                                 {NULL, "inclusive", TSR__RIGHT},
                                 {NULL, "allocations", TSR__RIGHT},
                                 {NULL, "lines", TSR__RIGHT},
                                 {"name", list->title, TSR__ELASTIC}};
  tsr__emit_space(p->emitter);
  tsr__emit_table(p->emitter, list->key, columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < list->count; i++) {
    const tsr_source_definition *definition = &p->source->definitions[list->items[i]];
    const tsr_source_use *use = &device->uses[list->items[i]];
    char span[TSR__FORMAT_BYTES];
    tsr__emit_row(p->emitter,
                  (tsr__cell[]){tsr__bytes(use->self_bytes), tsr__bytes(use->inclusive_bytes),
                                tsr__count(use->inclusive_allocations),
                                tsr__string(span_of(definition, span)),
                                tsr__string(definition->name)});
    tsr__emit_field(p->emitter, "first_line", NULL, tsr__count(definition->first_line));
    tsr__emit_field(p->emitter, "last_line", NULL, tsr__count(definition->last_line));
    tsr__source_emit_use(p->emitter, use);
    tsr__emit_row_end(p->emitter);
  }
  tsr__emit_table_end(p->emitter);
  tsr__source_print_omitted(p->emitter, list->omitted, list->title);
}

/* ---- the listing ---- */

enum { FOLDED, SHOWN, HEAD };

static void show(uint8_t *shown, const tsr_source *source, uint64_t line) {
  if (line && line <= source->text_count && !shown[line - 1]) shown[line - 1] = SHOWN;
}

/* Which lines the listing shows: a byte each. A head, once shown, has those around it shown. */
static void choose_lines(const printer *p, const tsr_source_device *device, uint8_t *shown) {
  const tsr_source *source = p->source;
  for (size_t i = 0; i < device->line_count; i++) {
    const tsr_source_line *line = &device->lines[i];
    show(shown, source, (uint64_t)line->line - 1);
    show(shown, source, line->line);
    show(shown, source, (uint64_t)line->line + 1);
    uint32_t d = line->definition;
    while (d != TSR_NONE && shown[source->definitions[d].first_line - 1] != HEAD) {
      shown[source->definitions[d].first_line - 1] = HEAD;
      d = source->definitions[d].parent;
    }
  }
}

static void print_fold(const printer *p, size_t count) {
  char text[TSR__FORMAT_BYTES];
  tsr__buffer_printf(&p->emitter->scratch, "%31s... %s lines", "", tsr__format_count(count, text));
  tsr__emit_line(p->emitter, TSR__DIM, 0);
}

static void print_source_line(const printer *p, const tsr_source_device *device, size_t index,
                              const tsr_source_line *line) {
  char self[TSR__FORMAT_BYTES] = "", inclusive[TSR__FORMAT_BYTES] = "";
  tsr__buffer *out = &p->emitter->scratch;
  bool is_hot = false;
  if (line) {
    if (line->use.self_bytes) (void)tsr__format_size(line->use.self_bytes, self);
    (void)tsr__format_size(line->use.inclusive_bytes, inclusive);
    is_hot = line->use.self_bytes && line->use.self_bytes >= device->whole.self_bytes / HOT_PART;
  }
  tsr_text text = p->source->text[index];
  tsr__buffer_printf(out, "%c %10s  %10s  %5zu%s", is_hot ? '>' : ' ', self, inclusive, index + 1,
                     text.size_bytes ? "  " : "");
  for (size_t i = 0; i < text.size_bytes; i++) {
    if (text.data[i] == '\t')
      tsr__buffer_text(out, "    ");
    else
      tsr__buffer_append(out, text.data + i, 1);
  }
  tsr__emit_line(p->emitter, is_hot ? TSR__BOLD : TSR__PLAIN, 0);
}

/* `count` lines that hold nothing, from index `first` on: a fold, unless it would save nothing. */
static void print_gap(const printer *p, const tsr_source_device *device, size_t first,
                      size_t count) {
  if (count >= FOLD_MIN)
    print_fold(p, count);
  else
    for (size_t i = 0; i < count; i++) print_source_line(p, device, first + i, NULL);
}

static void print_lines(const printer *p, const tsr_source_device *device, const uint8_t *shown) {
  size_t folded = 0, next = 0;
  for (size_t i = 0; i < p->source->text_count; i++) {
    while (next < device->line_count && device->lines[next].line < i + 1) next++;
    bool holds = next < device->line_count && device->lines[next].line == i + 1;
    if (!p->emitter->options.verbose && shown[i] == FOLDED) {
      folded++;
      continue;
    }
    print_gap(p, device, i - folded, folded);
    folded = 0;
    print_source_line(p, device, i, holds ? &device->lines[next] : NULL);
  }
  print_gap(p, device, p->source->text_count - folded, folded);
}

static void print_listing(const printer *p, const tsr_source_device *device) {
  if (!tsr__emitter_is_text(p->emitter) || !device->line_count || !p->source->text_count) return;
  uint8_t *shown = TSR__NEW_ARRAY(uint8_t, p->source->text_count);
  if (!shown) {
    p->emitter->scratch.failed = true;
    return;
  }
  tsr__emit_space(p->emitter);
  choose_lines(p, device, shown);
  tsr_text file = tsr_snapshot_string(p->snapshot, p->source->file);
  tsr__buffer_printf(&p->emitter->scratch, "  %10s  %10s  %5s  ", "self", "inclusive", "line");
  tsr__buffer_append(&p->emitter->scratch, file.data, file.size_bytes);
  tsr__emit_line(p->emitter, TSR__BOLD, 0);
  print_lines(p, device, shown);
  tsr__free(shown);
}

/* ---- the whole ---- */

static void emit_peak(tsr__emitter *emitter, const tsr_moment *peak) {
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_object(emitter, "peak");
  tsr__emit_field(emitter, "event", NULL, tsr__index(peak->event));
  tsr__emit_field(emitter, "time_us", NULL, tsr__time(peak->time_us));
  tsr__emit_field(emitter, "requested_bytes", NULL, tsr__bytes(peak->totals.requested_bytes));
  tsr__emit_field(emitter, "allocated_bytes", NULL, tsr__bytes(peak->totals.allocated_bytes));
  tsr__emit_end(emitter);
}

static void emit_device(const printer *p, const tsr_source_device *device) {
  tsr__emitter *emitter = p->emitter;
  const definition_list functions = {"functions", "function", device->top_functions,
                                     device->top_function_count, device->omitted_functions};
  const definition_list classes = {"classes", "class", device->top_classes, device->top_class_count,
                                   device->omitted_classes};
  print_verdict(p, device);
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__device(device->device));
  tsr__emit_field(emitter, "events", NULL, tsr__count(device->event_count));
  emit_peak(emitter, &device->peak);
  tsr__source_emit_match(emitter, p->snapshot, p->source);
  tsr__emit_field(emitter, "bytes", NULL, tsr__bytes(device->whole.self_bytes));
  tsr__emit_field(emitter, "allocations", NULL, tsr__count(device->whole.self_allocations));
  emit_lines(p, device);
  emit_definitions(p, device, &functions);
  tsr__emit_field(emitter, "omitted_functions", NULL, tsr__count(device->omitted_functions));
  emit_definitions(p, device, &classes);
  tsr__emit_field(emitter, "omitted_classes", NULL, tsr__count(device->omitted_classes));
  tsr__emit_end(emitter);
  print_listing(p, device);
}

int tsr__report_source(const tsr_report_input *input, const tsr_source *source,
                       const tsr_report_options *options, tsr_write_fn *write, void *context,
                       tsr_error *error) {
  tsr__emitter emitter;
  tsr__warning_list warnings = {0};
  printer p = {&emitter, input->snapshot, source};
  tsr__emitter_init(&emitter, options, write, context);
  tsr__heading_open(&emitter, &tsr__fields_source, input);
  if (!source->device_count)
    tsr__emit_printf(&emitter, TSR__VERDICT, "No device has events or segments.");
  tsr__source_print_doubts(&emitter, input->snapshot, source);
  for (size_t i = 0; i < source->device_count; i++) {
    emit_device(&p, &source->devices[i]);
    tsr__warnings_add(&warnings, source->devices[i].warnings, source->devices[i].warning_count);
  }
  tsr__source_warn(&emitter, source, &warnings);
  return tsr__heading_close(&emitter, input, &warnings, error);
}
