/* groups.c - what changed, by category, operation or line of code.
 *
 * What each stack holds at the peaks is added to the row of its group, named as in `profile`. Lines move
 * when code above them changes, so lines that only one side has are compared again by function and file
 * name. If both sides have the same number of them, they are paired in order of lines; if
 * the numbers differ, they are combined into one row. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/intern.h"
#include "base/memory.h"
#include "base/vector.h"
#include "questions/diff/diff.h"
#include "questions/diff/match.h"

typedef TSR__VECTOR(tsr_change) change_list;

typedef struct grouping {
  tsr__intern names; /* of rows, by index */
  change_list rows;
} grouping;

static bool add(grouping *g, int side, tsr_text name, uint64_t bytes, uint64_t allocations) {
  if (!allocations) return true;
  bool is_new;
  uint32_t id = tsr__intern_put(&g->names, name.data, name.size_bytes, &is_new);
  tsr_change added = {.old_stack = TSR_NONE, .new_stack = TSR_NONE};
  if (id == TSR__INTERN_FULL || (is_new && !TSR__VECTOR_PUSH(&g->rows, added))) return false;
  assert(id < g->rows.count);
  tsr_change *row = &g->rows.items[id];
  uint64_t *bytes_there = side ? &row->new_bytes : &row->old_bytes;
  uint64_t *count_there = side ? &row->new_allocations : &row->old_allocations;
  *bytes_there = tsr__sum_u64(*bytes_there, bytes);
  *count_there = tsr__sum_u64(*count_there, allocations);
  return true;
}

static bool add_kinds(grouping *g, int side, const tsr_stack_share *share) {
  bool ok = true;
  for (int kind = 0; ok && kind < TSR_CATEGORY_COUNT; kind++) {
    const char *name = tsr_category_name((tsr_category)kind);
    ok = add(g, side, (tsr_text){name, strlen(name)}, share->category_bytes[kind],
             share->category_allocations[kind]);
  }
  return ok;
}

/* Memory without a stack is distinguished by whether it was allocated during the recording. */
static bool add_place(grouping *g, int side, const tsr__labels *places,
                      const tsr_stack_share *share) {
  tsr_text name = tsr__label_name(places, tsr__label_of(places, share->stack));
  tsr_text before = {TSR__LABEL_BEFORE, sizeof TSR__LABEL_BEFORE - 1};
  if (share->stack != TSR_NONE) return add(g, side, name, share->bytes, share->allocations);
  assert(share->older_bytes <= share->bytes && share->older_allocations <= share->allocations);
  return add(g, side, before, share->older_bytes, share->older_allocations) &&
         add(g, side, name, share->bytes - share->older_bytes,
             share->allocations - share->older_allocations);
}

/* Texts of the rows' names, ended by zeros, one after the other. */
static bool name_rows(grouping *g, tsr_diff_device *out) {
  size_t bytes = 0;
  assert(g->names.count == g->rows.count);
  for (uint32_t i = 0; i < g->names.count; i++) bytes += g->names.items[i].size_bytes + (size_t)1;
  char *text = out->names[0] = TSR__NEW_ARRAY(char, bytes);
  if (!text) return false;
  for (uint32_t i = 0; i < g->names.count; i++) {
    memcpy(text, g->names.items[i].data, g->names.items[i].size_bytes);
    g->rows.items[i].name = text;
    text += g->names.items[i].size_bytes + (size_t)1;
  }
  return true;
}

/* ---- Lines that moved ---- */

/* Put `from` into `to`, which is a new side's row, and empty it. */
static void merge(tsr_change *to, tsr_change *from) {
  assert(to->new_allocations && !from->is_moved);
  to->old_bytes = tsr__sum_u64(to->old_bytes, from->old_bytes);
  to->new_bytes = tsr__sum_u64(to->new_bytes, from->new_bytes);
  to->old_allocations = tsr__sum_u64(to->old_allocations, from->old_allocations);
  to->new_allocations = tsr__sum_u64(to->new_allocations, from->new_allocations);
  to->is_moved = true;
  from->old_bytes = from->new_bytes = from->old_allocations = from->new_allocations = 0;
}

static bool match_moved(change_list *rows) {
  tsr__line *lines = TSR__NEW_ARRAY(tsr__line, rows->count);
  if (!lines) return false;
  for (size_t i = 0; i < rows->count; i++) {
    const tsr_change *row = &rows->items[i];
    lines[i].name = row->name;
    lines[i].sides = (uint8_t)((row->old_allocations ? 1 : 0) | (row->new_allocations ? 2 : 0));
  }
  bool ok = !tsr__match_lines(lines, (uint32_t)rows->count, NULL);
  for (uint32_t i = 0; ok && i < rows->count; i++)
    if (lines[i].into != i) merge(&rows->items[lines[i].into], &rows->items[i]);
  tsr__free(lines);
  return ok;
}

/* ---- Both sides ---- */

int tsr__diff_groups(const tsr__diff_peaks *peaks, tsr_diff_by by, tsr_diff_device *out,
                     tsr_change **rows, size_t *row_count, tsr_error *error) {
  grouping g = {0};
  bool ok = true;
  tsr__intern_init(&g.names);
  for (int side = 0; side < 2; side++) {
    const tsr_peak_device *peak = peaks->sides[side];
    for (size_t i = 0; ok && peak && i < peak->stack_count; i++)
      ok = by == TSR_DIFF_BY_CATEGORY ? add_kinds(&g, side, &peak->stacks[i])
                                      : add_place(&g, side, peaks->places[side], &peak->stacks[i]);
  }
  ok = ok && name_rows(&g, out) && (by != TSR_DIFF_BY_LINE || match_moved(&g.rows));
  tsr__intern_release(&g.names);
  if (!ok) {
    TSR__VECTOR_FREE(&g.rows);
    return tsr__fail_memory(error);
  }
  *rows = g.rows.items;
  *row_count = g.rows.count;
  return 0;
}
