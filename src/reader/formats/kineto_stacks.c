/* kineto_stacks.c - what encloses an allocation in a profiler's trace is its stack. See kineto.h.
 *
 *   thread  |--- train.py(8): <module> ------------------------|
 *             |--- torch/nn/modules/linear.py(130): forward -|
 *                |--- aten::addmm ---|
 *                       ^ an allocation: aten::addmm, forward, <module>
 *
 * Slices are sorted by thread and start, the longer first; then one walk over slices and rows together keeps those
 * that are open. Rows between two changes of what is open share a stack.
 *
 * Names. A Python function is "FILE(LINE): NAME", which is taken apart; a C function is "<built-in method NAME of
 * ... at 0x7f...>", whose address is left out because it differs between runs; everything else, operators
 * and "nn.Module: Linear_0", is the name of a frame without a file. */
#include <assert.h>
#include <string.h>

#include "base/sort.h"
#include "formats/kineto.h"

/* Frames of a stack; of deeper ones the innermost are kept. Python itself stops at a thousand. */
enum {
  MOST_FRAMES = 2048,
  CHECK_STACKS = 1024 /* stacks that are made between two looks at the memory held */
};

void tsr__slices_init(tsr__slices *slices, tsr__builder *builder) {
  *slices = (tsr__slices){.builder = builder};
  tsr__intern_init(&slices->names);
  tsr__intern_init(&slices->threads);
}

void tsr__slices_release(tsr__slices *slices) {
  TSR__VECTOR_FREE(&slices->items);
  TSR__VECTOR_FREE(&slices->frame_of);
  tsr__intern_release(&slices->names);
  tsr__intern_release(&slices->threads);
}

uint64_t tsr__slices_bytes(const tsr__slices *slices) {
  return slices->items.capacity * sizeof *slices->items.items +
         slices->frame_of.capacity * sizeof *slices->frame_of.items +
         slices->names.arena.total_bytes + slices->threads.arena.total_bytes;
}

static int compare_slices(const void *a, const void *b) {
  const tsr__slice *x = a, *y = b;
  if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
  if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
  if (x->end_ns != y->end_ns) return x->end_ns > y->end_ns ? -1 : 1;
  return (x->order > y->order) - (x->order < y->order);
}

/* ---- names ---- */

static size_t find_last(tsr_text text, const char *part) {
  size_t size = strlen(part);
  for (size_t at = text.size_bytes >= size ? text.size_bytes - size + 1 : 0; at-- > 0;)
    if (memcmp(text.data + at, part, size) == 0) return at;
  return SIZE_MAX;
}

/* "FILE(LINE): NAME"; false for anything else. */
static bool split_python(tsr_text text, tsr_text *file, tsr_text *name, uint64_t *line) {
  size_t close = find_last(text, "): "), open = close;
  if (close == SIZE_MAX) return false;
  while (open && text.data[open - 1] >= '0' && text.data[open - 1] <= '9') open--;
  if (open == close || open < 2 || text.data[open - 1] != '(' || close - open > 9) return false;
  *line = 0;
  for (size_t i = open; i < close; i++) *line = *line * 10 + (uint64_t)(text.data[i] - '0');
  *file = (tsr_text){text.data, open - 1};
  *name = (tsr_text){text.data + close + 3, text.size_bytes - close - 3};
  return name->size_bytes;
}

/* A frame without a file. */
static uint32_t plain_frame(tsr__builder *b, tsr_text name) {
  uint32_t string = tsr__builder_string(b, name.data, name.size_bytes);
  uint32_t file_string = tsr__builder_text(b, "");
  if (string == TSR_NONE || file_string == TSR_NONE) return TSR_NONE;
  return tsr__builder_frame(b, (tsr_frame){string, file_string, 0});
}

/* "<built-in method f of T object at 0x7f12>" without the address. */
static uint32_t built_in_frame(tsr__builder *b, tsr_text text) {
  size_t at = find_last(text, " at 0x");
  if (at == SIZE_MAX) return plain_frame(b, text);
  size_t end = at + strlen(" at 0x");
  while (end < text.size_bytes && text.data[end] != '>' && text.data[end] != ' ') end++;
  tsr__buffer name = {0};
  tsr__buffer_append(&name, text.data, at);
  tsr__buffer_append(&name, text.data + end, text.size_bytes - end);
  uint32_t frame = name.failed ? TSR_NONE : plain_frame(b, (tsr_text){name.data, name.size});
  tsr__buffer_release(&name);
  return frame;
}

/* Of a name: TSR_NONE when out of memory. */
static uint32_t make_frame(tsr__builder *b, tsr_text text) {
  tsr_text file, name;
  uint64_t line;
  static const char built_in[] = "<built-in ";
  if (text.size_bytes >= sizeof built_in - 1 && !memcmp(text.data, built_in, sizeof built_in - 1))
    return built_in_frame(b, text);
  if (!split_python(text, &file, &name, &line)) return plain_frame(b, text);
  uint32_t name_string = tsr__builder_string(b, name.data, name.size_bytes);
  uint32_t file_string = tsr__builder_string(b, file.data, file.size_bytes);
  if (name_string == TSR_NONE || file_string == TSR_NONE) return TSR_NONE;
  return tsr__builder_frame(b, (tsr_frame){name_string, file_string, line});
}

static uint32_t frame_of(tsr__slices *s, uint32_t name) {
  uint32_t *frame = &s->frame_of.items[name];
  const tsr__interned *text = &s->names.items[name];
  if (*frame == TSR_NONE)
    *frame = make_frame(s->builder, (tsr_text){(const char *)text->data, text->size_bytes});
  return *frame;
}

/* ---- the walk ---- */

typedef struct walk {
  tsr__slices *slices;
  const tsr__json *j;
  uint64_t stack_count;       /* made so far, equal ones counted */
  TSR__VECTOR(uint32_t) open; /* slices, outermost first; some may have ended */
  uint32_t frames[MOST_FRAMES];
  uint32_t stack;  /* of what is open, or TSR_NONE */
  bool is_current; /* nothing has begun or ended since it was made */
} walk;

/* Slices that have ended leave; they may be anywhere if slices cross. */
static void close_ended(walk *w, int64_t time_ns) {
  size_t kept = 0;
  for (size_t i = 0; i < w->open.count; i++)
    if (w->slices->items.items[w->open.items[i]].end_ns >= time_ns)
      w->open.items[kept++] = w->open.items[i];
  w->is_current = w->is_current && kept == w->open.count;
  w->open.count = kept;
}

static int make_stack(walk *w, const tsr__flat *flat) {
  size_t depth = w->open.count;
  assert(depth <= MOST_FRAMES);
  for (size_t i = 0; i < depth; i++) {
    uint32_t slice = w->open.items[w->open.count - 1 - i];
    w->frames[i] = frame_of(w->slices, w->slices->items.items[slice].name);
    if (w->frames[i] == TSR_NONE) return tsr__fail_memory(w->j->error);
  }
  w->stack = depth ? tsr__builder_stack(w->slices->builder, w->frames, (uint32_t)depth) : TSR_NONE;
  w->is_current = true;
  if (depth && w->stack == TSR_NONE) return tsr__fail_memory(w->j->error);
  if (++w->stack_count % CHECK_STACKS) return 0;
  return tsr__check_memory(w->j->assembler, tsr__slices_bytes(w->slices) + tsr__flat_bytes(flat),
                           w->j->source, tsr__json_offset(w->j, w->j->next), w->j->error);
}

/* A slice begins. Of too many, the outermost is forgotten. */
static bool open_slice(walk *w, size_t slice) {
  if (w->open.count == MOST_FRAMES) {
    memmove(w->open.items, w->open.items + 1, --w->open.count * sizeof *w->open.items);
    tsr__builder_warn(w->slices->builder, TSR__WARN_STACKS_CUT);
  }
  w->is_current = false;
  return TSR__VECTOR_PUSH(&w->open, (uint32_t)slice);
}

static int join_thread(walk *w, const uint32_t *rows, size_t row_count, tsr__flat *flat,
                       size_t first, size_t end) {
  size_t next = first;
  w->open.count = 0;
  w->is_current = false;
  for (size_t i = 0; i < row_count; i++) {
    tsr__flat_row *row = &flat->rows.items[rows[i]];
    close_ended(w, row->time_ns);
    for (; next < end && w->slices->items.items[next].start_ns <= row->time_ns; next++) {
      if (w->slices->items.items[next].end_ns < row->time_ns) continue;
      if (!open_slice(w, next)) return tsr__fail_memory(w->j->error);
    }
    if (row->kind == TSR__FLAT_FREE) continue; /* what frees memory is nobody's question */
    int status = w->is_current ? 0 : make_stack(w, flat);
    if (status) return status;
    row->stack = w->stack;
  }
  return 0;
}

typedef struct row_of {
  uint32_t thread, row;
} row_of;

static int compare_rows(const void *a, const void *b) {
  const row_of *x = a, *y = b;
  return (x->thread > y->thread) - (x->thread < y->thread);
}

static int join_all(tsr__slices *s, tsr__flat *flat, walk *w) {
  size_t count = flat->rows.count, slice = 0;
  row_of *order = TSR__NEW_ARRAY(row_of, count);
  uint32_t *rows = TSR__NEW_ARRAY(uint32_t, count);
  bool ok = order && rows && count < TSR_NONE;
  for (size_t i = 0; ok && i < count; i++)
    order[i] = (row_of){flat->rows.items[i].thread, (uint32_t)i};
  if (ok) tsr__sort(order, count, sizeof *order, compare_rows);
  for (size_t i = 0; ok && i < count; i++) rows[i] = order[i].row;
  int status = ok ? 0 : tsr__fail_memory(w->j->error);
  for (size_t i = 0; !status && i < count;) {
    size_t first = i;
    uint32_t thread = order[i].thread;
    while (i < count && order[i].thread == thread) i++;
    while (slice < s->items.count && s->items.items[slice].thread < thread) slice++;
    size_t end = slice;
    while (end < s->items.count && s->items.items[end].thread == thread) end++;
    status = join_thread(w, rows + first, i - first, flat, slice, end);
    slice = end;
  }
  tsr__free(order);
  tsr__free(rows);
  return status;
}

int tsr__slices_join(tsr__slices *slices, tsr__flat *flat, const tsr__json *j) {
  tsr__sort(slices->items.items, slices->items.count, sizeof *slices->items.items, compare_slices);
  walk *w = slices->items.count < TSR_NONE ? TSR__NEW(walk) : NULL;
  if (!w) return tsr__fail_memory(j->error);
  w->slices = slices;
  w->j = j;
  int status = join_all(slices, flat, w);
  TSR__VECTOR_FREE(&w->open);
  tsr__free(w);
  return status;
}
