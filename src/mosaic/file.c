/* file.c - Mosaic's analysis of one source file.
 *
 * The lines of a group's frames, joined by commas, identify its row; the rest of a row follows
 * from them and the source. */
#include "tessera/unstable/mosaic_file.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "attribution/outline.h"
#include "base/buffer.h"
#include "base/checked.h"
#include "base/intern.h"
#include "base/memory.h"
#include "base/sort.h"

/* What the source contains at a line. */
typedef struct context {
  bool is_known;
  tsr_text class_name, function_name; /* empty: none */
} context;

typedef struct analyzer {
  const tsr_snapshot *snapshot;
  tsr_text name; /* of the file */
  tsr__outline outline;
  tsr__intern keys; /* lines -> row */
  tsr__buffer lines, classes, functions;
  tsr_mosaic_file *out;
} analyzer;

static tsr_text after_slash(tsr_text path) {
  size_t at = path.size_bytes;
  while (at && path.data[at - 1] != '/') at--;
  return (tsr_text){path.data + at, path.size_bytes - at};
}

static bool same_text(tsr_text a, tsr_text b) {
  return a.size_bytes == b.size_bytes && (!a.size_bytes || !memcmp(a.data, b.data, a.size_bytes));
}

/* ---- Mosaic's reading of a source ---- */

static bool is_plain(const tsr__definition *definition) {
  return definition->is_direct && !definition->is_async;
}

static context context_at(const tsr__outline *outline, uint64_t line) {
  const tsr__definition *all = outline->definitions.items;
  context found = {.is_known = false};
  uint32_t inner = TSR_NONE, outer = tsr__outline_at(outline, line);
  while (outer != TSR_NONE && all[outer].parent != TSR_NONE) {
    inner = outer;
    outer = all[outer].parent;
  }
  if (outer == TSR_NONE || !is_plain(&all[outer])) return found;
  found.is_known = true;
  if (!all[outer].is_class)
    found.function_name = all[outer].name;
  else
    found.class_name = all[outer].name;
  if (all[outer].is_class && inner != TSR_NONE && is_plain(&all[inner]) && !all[inner].is_class)
    found.function_name = all[inner].name;
  return found;
}

static bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

static tsr_text stripped(tsr_text text) {
  while (text.size_bytes && is_space(text.data[0])) {
    text.data++;
    text.size_bytes--;
  }
  while (text.size_bytes && is_space(text.data[text.size_bytes - 1])) text.size_bytes--;
  return text;
}

/* ---- rows ---- */

static void append_name(tsr__buffer *out, tsr_text name) {
  if (out->size) tsr__buffer_text(out, ",");
  if (name.size_bytes)
    tsr__buffer_append(out, name.data, name.size_bytes);
  else
    tsr__buffer_text(out, "_");
}

/* The frames of a stack that are in the file, as the three lists of names. Returns their number, and
 * sets the first line and the first line that is inside a class or function. */
static size_t read_stack(analyzer *a, uint32_t stack_id, uint64_t *first, uint64_t *known) {
  tsr_stack stack = tsr_snapshot_stack(a->snapshot, stack_id);
  size_t count = 0;
  a->lines.size = a->classes.size = a->functions.size = 0;
  *known = 0;
  for (uint32_t i = 0; i < stack.depth; i++) {
    tsr_frame frame = tsr_snapshot_frame(a->snapshot, stack.frames[i]);
    if (!same_text(after_slash(tsr_snapshot_string(a->snapshot, frame.file)), a->name)) continue;
    bool is_negative = tsr_snapshot_has_negative_line(a->snapshot, stack.frames[i]);
    tsr__buffer_printf(&a->lines, "%s%s%" PRIu64, count ? "," : "", is_negative ? "-" : "",
                       is_negative ? 0 - frame.line : frame.line);
    if (!count++) *first = frame.line;
    context found = context_at(&a->outline, is_negative ? 0 : frame.line);
    if (!found.is_known) continue;
    if (!*known) *known = frame.line;
    append_name(&a->classes, found.class_name);
    append_name(&a->functions, found.function_name);
  }
  return count;
}

/* Store the texts of a row one after the other, in memory that begins at `content`. */
static bool fill_row(const analyzer *a, uint64_t known, tsr_mosaic_file_row *row) {
  assert(known && known <= a->outline.lines.count);
  tsr_text content = stripped(a->outline.lines.items[known - 1]);
  const tsr_text texts[] = {content,
                            {a->lines.data, a->lines.size},
                            {a->classes.data, a->classes.size},
                            {a->functions.data, a->functions.size}};
  tsr_text *const places[] = {&row->content, &row->lines, &row->classes, &row->functions};
  size_t size = 0;
  for (size_t i = 0; i < 4; i++) size += texts[i].size_bytes;
  char *at = TSR__NEW_ARRAY(char, size);
  if (!at) return false;
  for (size_t i = 0; i < 4; i++) {
    if (texts[i].size_bytes) memcpy(at, texts[i].data, texts[i].size_bytes);
    *places[i] = (tsr_text){at, texts[i].size_bytes};
    at += texts[i].size_bytes;
  }
  return true;
}

static bool add_group(analyzer *a, const tsr_mosaic_group *group) {
  uint64_t first = 0, known;
  bool added;
  tsr_mosaic_file *out = a->out;
  if (!read_stack(a, group->stack, &first, &known)) {
    out->others[out->other_count++] = (tsr_mosaic_file_other){group->stack, group->bytes};
    return true;
  }
  if (a->lines.failed || a->classes.failed || a->functions.failed) return false;
  if (!known) return true;
  uint32_t index = tsr__intern_put(&a->keys, a->lines.data, a->lines.size, &added);
  if (index == TSR__INTERN_FULL) return false;
  assert(added ? index == out->row_count : index < out->row_count);
  tsr_mosaic_file_row *row = &out->rows[index];
  if (added) {
    *row = (tsr_mosaic_file_row){.number = index};
    if (!fill_row(a, known, row)) return false;
    out->row_count++;
  }
  row->bytes = tsr__sum_u64(row->bytes, group->bytes);
  row->occurrences++;
  out->stacks[out->stack_count++] = (tsr_mosaic_file_stack){group->stack, index, group->bytes};
  if (first && first <= out->source_count)
    out->bytes[first - 1] = tsr__sum_u64(out->bytes[first - 1], group->bytes);
  return true;
}

static int compare_texts(tsr_text a, tsr_text b) {
  size_t shorter = a.size_bytes < b.size_bytes ? a.size_bytes : b.size_bytes;
  int order = shorter ? memcmp(a.data, b.data, shorter) : 0;
  if (order) return order;
  return (a.size_bytes > b.size_bytes) - (a.size_bytes < b.size_bytes);
}

/* Largest first; ties by text and lines, which is mostly Mosaic's order. */
static int compare_rows(const void *a, const void *b) {
  const tsr_mosaic_file_row *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  int order = compare_texts(x->content, y->content);
  return order ? order : compare_texts(x->lines, y->lines);
}

/* Sort the rows and update the stacks' references to them. */
static bool sort_rows(tsr_mosaic_file *out) {
  size_t *places = TSR__NEW_ARRAY(size_t, out->row_count); /* by number */
  if (!places) return false;
  tsr__sort(out->rows, out->row_count, sizeof *out->rows, compare_rows);
  for (size_t i = 0; i < out->row_count; i++) places[out->rows[i].number] = i;
  for (size_t i = 0; i < out->stack_count; i++) assert(out->stacks[i].row < out->row_count);
  for (size_t i = 0; i < out->stack_count; i++) out->stacks[i].row = places[out->stacks[i].row];
  tsr__free(places);
  return true;
}

static bool keep_source(analyzer *a) {
  size_t count = a->outline.lines.count;
  a->out->source = TSR__NEW_ARRAY(tsr_text, count);
  a->out->bytes = TSR__NEW_ARRAY(uint64_t, count);
  if (!a->out->source || !a->out->bytes) return false;
  if (count) memcpy(a->out->source, a->outline.lines.items, count * sizeof *a->out->source);
  a->out->source_count = count;
  return true;
}

static bool analyze(analyzer *a, const tsr_mosaic_groups *groups) {
  a->out->rows = TSR__NEW_ARRAY(tsr_mosaic_file_row, groups->count);
  a->out->others = TSR__NEW_ARRAY(tsr_mosaic_file_other, groups->count);
  a->out->stacks = TSR__NEW_ARRAY(tsr_mosaic_file_stack, groups->count);
  bool ok = a->out->rows && a->out->others && a->out->stacks && keep_source(a);
  for (size_t i = 0; ok && i < groups->count; i++) ok = add_group(a, &groups->items[i]);
  assert(a->out->other_count + a->out->stack_count <= groups->count);
  return ok && sort_rows(a->out);
}

int tsr_mosaic_file_compute(tsr_study *study, const tsr_mosaic_peak *peak,
                            const tsr_source_file *file, tsr_mosaic_file **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  analyzer a = {.snapshot = snapshot,
                .name = after_slash((tsr_text){file->path, strlen(file->path)}),
                .out = TSR__NEW(tsr_mosaic_file)};
  if (!a.out) return tsr__fail_memory(error);
  tsr__intern_init(&a.keys);
  int status = tsr__outline_read((tsr_text){file->text, file->size_bytes}, &a.outline, error);
  if (!status && !analyze(&a, &peak->groups)) status = tsr__fail_memory(error);
  tsr__outline_release(&a.outline);
  tsr__intern_release(&a.keys);
  tsr__buffer_release(&a.lines);
  tsr__buffer_release(&a.classes);
  tsr__buffer_release(&a.functions);
  if (status)
    tsr_mosaic_file_free(a.out);
  else
    *out = a.out;
  return status;
}

void tsr_mosaic_file_free(tsr_mosaic_file *analysis) {
  if (!analysis) return;
  for (size_t i = 0; i < analysis->row_count; i++)
    tsr__free((void *)(uintptr_t)analysis->rows[i].content.data);
  tsr__free(analysis->rows);
  tsr__free(analysis->stacks);
  tsr__free(analysis->others);
  tsr__free(analysis->source);
  tsr__free(analysis->bytes);
  tsr__free(analysis);
}
