/* row_names.c - names for the rows of one table, no two of which read alike. See labels.h.
 *
 * All rows begin with the name of their stack. Then come passes, each of which looks at the rows that
 * still read alike and appends what distinguishes them, until nothing does:
 *
 *   a caller of the same rank     model.py:39 forward (aten::mm), from model.py:382
 *   any Python caller             ..., from trainer.py:88
 *   what the place called         ..., via functional.py:2123
 *   the stack's number            ... #211
 *
 * A pass walks the stacks of such a run in step, each by its own cursor, from the place outwards or
 * inwards, and stops at the first frames that do not read alike. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "attribution/frames.h"
#include "attribution/labels.h"
#include "base/memory.h"
#include "base/sort.h"

typedef enum pass { PASS_CALLER, PASS_ANY_CALLER, PASS_CALLEE, PASS_NUMBER } pass;

/* Twice, as a caller may divide three rows into one and two. */
static const pass passes[] = {PASS_CALLER, PASS_CALLER, PASS_ANY_CALLER,
                              PASS_CALLEE, PASS_CALLEE, PASS_NUMBER};

/* A row, while names are made. */
typedef struct walker {
  uint32_t name, row; /* id in names; index in rows */
  uint32_t place;     /* index in the stack of the frame that names it */
  uint32_t at;        /* the cursor: index of a frame; the stack's depth: past the end */
} walker;

typedef struct maker {
  const tsr__named_row *rows;
  walker *walkers;
  size_t count;
  tsr__intern names;
  tsr__buffer text, other; /* scratch */
} maker;

static tsr_stack stack_of(const maker *m, const walker *w) {
  const tsr__named_row *row = &m->rows[w->row];
  return tsr_snapshot_stack(row->namer->snapshot, row->stack);
}

/* ---- Walking ---- */

static bool is_stop(const tsr__namer *namer, pass by, unsigned place_rank, uint32_t frame) {
  unsigned rank = namer->rank[frame];
  switch (by) {
  case PASS_CALLER: return rank <= place_rank && rank <= TSR__RANK_TORCH;
  case PASS_ANY_CALLER: return rank <= TSR__RANK_TORCH;
  default: return rank <= TSR__RANK_PYTHON;
  }
}

/* Move the cursor to the next frame that counts, or past the end. */
static void step(const maker *m, pass by, walker *w) {
  const tsr__namer *namer = m->rows[w->row].namer;
  tsr_stack stack = stack_of(m, w);
  unsigned place_rank = stack.depth ? namer->rank[stack.frames[w->place]] : 0;
  assert(w->at <= stack.depth && w->place <= stack.depth);
  while (w->at < stack.depth) {
    bool is_inwards = by == PASS_CALLEE;
    w->at = !is_inwards ? w->at + 1 : w->at ? w->at - 1 : stack.depth;
    if (w->at < stack.depth && is_stop(namer, by, place_rank, stack.frames[w->at])) return;
  }
}

static bool reads_alike(maker *m, const walker *a, const walker *b) {
  const tsr__namer *x = m->rows[a->row].namer, *y = m->rows[b->row].namer;
  tsr_stack of_a = stack_of(m, a), of_b = stack_of(m, b);
  bool has_a = a->at < of_a.depth, has_b = b->at < of_b.depth;
  if (has_a != has_b) return false;
  if (!has_a || (x == y && of_a.frames[a->at] == of_b.frames[b->at])) return true;
  m->text.size = m->other.size = 0;
  tsr__namer_append_frame(m->rows[a->row].namer, of_a.frames[a->at], &m->text);
  tsr__namer_append_frame(m->rows[b->row].namer, of_b.frames[b->at], &m->other);
  return m->text.size == m->other.size &&
         (!m->text.size || memcmp(m->text.data, m->other.data, m->text.size) == 0);
}

/* Walk until some cursor reads otherwise than the first; false if none ever does. */
static bool find_difference(maker *m, pass by, walker *run, size_t count) {
  assert(count > 1 && by != PASS_NUMBER);
  for (size_t i = 0; i < count; i++) run[i].at = run[i].place;
  for (bool is_any = true; is_any && !m->text.failed && !m->other.failed;) {
    is_any = false;
    for (size_t i = 0; i < count; i++) {
      step(m, by, &run[i]);
      is_any |= run[i].at < stack_of(m, &run[i]).depth;
    }
    for (size_t i = 1; i < count; i++)
      if (!reads_alike(m, &run[0], &run[i])) return true;
  }
  return false;
}

/* ---- Naming ---- */

static void append_name(maker *m, uint32_t name) {
  assert(name < m->names.count);
  tsr__buffer_append(&m->text, m->names.items[name].data, m->names.items[name].size_bytes);
}

static bool put_name(maker *m, walker *w) {
  w->name = tsr__intern_put(&m->names, m->text.data, m->text.size, NULL);
  return !m->text.failed && !m->other.failed && w->name != TSR__INTERN_FULL;
}

/* Does the name already contain the text of `other`? */
static bool is_said(const maker *m, uint32_t name) {
  const tsr__interned *said = &m->names.items[name];
  size_t size = m->other.size;
  for (size_t at = 0; size && said->size_bytes >= size && at <= said->size_bytes - size; at++)
    if (memcmp(said->data + at, m->other.data, size) == 0) return true;
  return !size;
}

static bool rename(maker *m, pass by, walker *w) {
  tsr_stack stack = stack_of(m, w);
  if (by != PASS_NUMBER && w->at >= stack.depth) return true;
  m->text.size = m->other.size = 0;
  append_name(m, w->name);
  if (by == PASS_NUMBER) {
    tsr__buffer_printf(&m->text, " #%" PRIu32, m->rows[w->row].stack);
  } else {
    tsr__namer_append_frame(m->rows[w->row].namer, stack.frames[w->at], &m->other);
    if (is_said(m, w->name)) return !m->other.failed;
    tsr__buffer_text(&m->text, by == PASS_CALLEE ? ", via " : ", from ");
    tsr__buffer_append(&m->text, m->other.data, m->other.size);
  }
  return put_name(m, w);
}

static bool is_one_stack(const maker *m, const walker *run, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const tsr__named_row *a = &m->rows[run[0].row], *b = &m->rows[run[i].row];
    bool is_same = a->namer == b->namer && a->stack == b->stack;
    if (!is_same && (stack_of(m, &run[0]).depth || stack_of(m, &run[i]).depth)) return false;
  }
  return true;
}

static int compare_walkers(const void *a, const void *b) {
  const walker *x = a, *y = b;
  if (x->name != y->name) return x->name < y->name ? -1 : 1;
  return (x->row > y->row) - (x->row < y->row);
}

/* One pass over the rows that read alike; `*is_done` becomes whether no rows do. */
static bool run_pass(maker *m, pass by, bool *is_done) {
  *is_done = true;
  tsr__sort(m->walkers, m->count, sizeof *m->walkers, compare_walkers);
  for (size_t first = 0, end; first < m->count; first = end) {
    walker *run = &m->walkers[first];
    uint32_t name = run->name;
    for (end = first + 1; end < m->count && m->walkers[end].name == name;) end++;
    size_t count = end - first;
    if (count < 2 || is_one_stack(m, run, count)) continue;
    *is_done = false;
    if (by != PASS_NUMBER && !find_difference(m, by, run, count)) continue;
    for (size_t i = 0; i < count; i++)
      if (!rename(m, by, &run[i])) return false;
  }
  return true;
}

static bool begin_row(maker *m, uint32_t row) {
  const tsr__named_row *of = &m->rows[row];
  walker w = {.row = row};
  tsr_stack stack = stack_of(m, &w);
  uint32_t frame = tsr__place_in(stack, of->namer->rank).frame;
  while (w.place < stack.depth && stack.frames[w.place] != frame) w.place++;
  assert(!stack.depth || w.place < stack.depth);
  m->text.size = 0;
  tsr__namer_append(of->namer, TSR__LABEL_STACK, of->stack, &m->text);
  bool ok = put_name(m, &w);
  m->walkers[row] = w;
  return ok;
}

/* Only the names that rows have in the end. */
static bool finish(maker *m, tsr__row_names *out) {
  bool ok = true;
  for (size_t i = 0; ok && i < m->count; i++) {
    assert(m->walkers[i].name < m->names.count && m->walkers[i].row < m->count);
    const tsr__interned *name = &m->names.items[m->walkers[i].name];
    uint32_t id = tsr__intern_put(&out->names, name->data, name->size_bytes, NULL);
    out->of_row[m->walkers[i].row] = id;
    ok = id != TSR__INTERN_FULL;
  }
  return ok;
}

int tsr__row_names_compute(const tsr__named_row *rows, size_t count, tsr__row_names *out,
                           tsr_error *error) {
  maker m = {.rows = rows, .count = count, .walkers = TSR__NEW_ARRAY(walker, count)};
  tsr__row_names made = {.of_row = TSR__NEW_ARRAY(uint32_t, count)};
  assert(count < UINT32_MAX);
  tsr__intern_init(&m.names);
  tsr__intern_init(&made.names);
  bool ok = m.walkers && made.of_row, is_done = false;
  for (uint32_t i = 0; ok && i < count; i++) ok = begin_row(&m, i);
  for (size_t i = 0; ok && !is_done && i < sizeof passes / sizeof *passes; i++)
    ok = run_pass(&m, passes[i], &is_done);
  ok = ok && finish(&m, &made);
  tsr__free(m.walkers);
  tsr__intern_release(&m.names);
  tsr__buffer_release(&m.text);
  tsr__buffer_release(&m.other);
  if (!ok) {
    tsr__row_names_release(&made);
    return tsr__fail_memory(error);
  }
  *out = made;
  return 0;
}

void tsr__row_names_release(tsr__row_names *names) {
  tsr__intern_release(&names->names);
  tsr__free(names->of_row);
  *names = (tsr__row_names){0};
}
