/* groups.c - what changed, by category, operation or line of code.
 *
 * What each stack holds at the peaks is added to the row of its group, named as in `profile`. Lines move
 * when code above them changes, so lines that only one side has are compared again by function and file
 * name. If both sides have the same number of them, they are paired in order of lines; if
 * the numbers differ, they are combined into one row. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/intern.h"
#include "base/memory.h"
#include "base/vector.h"
#include "questions/diff/diff.h"

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
  return add(g, side, before, share->older_bytes, share->older_allocations) &&
         add(g, side, name, share->bytes - share->older_bytes,
             share->allocations - share->older_allocations);
}

/* Texts of the rows' names, ended by zeros, one after the other. */
static bool name_rows(grouping *g, tsr_diff_device *out) {
  size_t bytes = 0;
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

/* A row that only one side has, and what its name says: "dir/model.py:382 forward", where it called a
 * library "dir/train.py:57 train > activations.py:62 forward". */
typedef struct mover {
  const char *base, *function; /* model.py, and what follows the number */
  size_t base_size;
  uint64_t line;
  uint32_t row;
  uint8_t side;
} mover;

/* False for a name without a line. */
static bool parse_name(const char *name, mover *out) {
  const char *colon = name, *digits;
  do {
    colon = strchr(colon, ':');
    if (!colon) return false;
    for (digits = ++colon; *digits >= '0' && *digits <= '9';) digits++;
  } while (digits == colon || *digits != ' ');
  out->function = digits;
  out->line = strtoull(colon, NULL, 10);
  const char *base = colon - 1;
  while (base > name && base[-1] != '/' && base[-1] != '\\') base--;
  out->base = base;
  out->base_size = (size_t)(colon - 1 - base);
  return true;
}

/* Text after this character, and after a line number that it introduces, does not count. */
static const char *pass_line(const char *at) {
  if (at[0] != ':') return at + (at[0] != '\0');
  at++;
  while (*at >= '0' && *at <= '9') at++;
  return at;
}

static int compare_functions(const char *x, const char *y) {
  while (*x && *x == *y) {
    x = pass_line(x);
    y = pass_line(y);
  }
  return (unsigned char)*x - (unsigned char)*y;
}

static int compare_places(const mover *x, const mover *y) {
  if (x->base_size != y->base_size) return x->base_size < y->base_size ? -1 : 1;
  int order = memcmp(x->base, y->base, x->base_size);
  return order ? order : compare_functions(x->function, y->function);
}

static int compare_movers(const void *a, const void *b) {
  const mover *x = a, *y = b;
  int order = compare_places(x, y);
  if (order) return order;
  if (x->side != y->side) return x->side < y->side ? -1 : 1;
  return (x->line > y->line) - (x->line < y->line);
}

/* Put `from` into `to`, which is a new side's row, and empty it. */
static void merge(tsr_change *to, tsr_change *from) {
  to->old_bytes = tsr__sum_u64(to->old_bytes, from->old_bytes);
  to->new_bytes = tsr__sum_u64(to->new_bytes, from->new_bytes);
  to->old_allocations = tsr__sum_u64(to->old_allocations, from->old_allocations);
  to->new_allocations = tsr__sum_u64(to->new_allocations, from->new_allocations);
  to->is_moved = true;
  from->old_bytes = from->new_bytes = from->old_allocations = from->new_allocations = 0;
}

/* Movers of one place: `olds` of the old side, then `news` of the new. */
static void pair_movers(const mover *movers, size_t olds, size_t news, tsr_change *rows) {
  for (size_t i = 0; olds == news && i < olds; i++)
    merge(&rows[movers[olds + i].row], &rows[movers[i].row]);
  for (size_t i = 0; olds != news && olds && news && i < olds + news; i++)
    if (i != olds) merge(&rows[movers[olds].row], &rows[movers[i].row]);
}

static bool match_moved(change_list *rows) {
  mover *movers = TSR__NEW_ARRAY(mover, rows->count);
  size_t count = 0;
  if (!movers) return false;
  for (uint32_t i = 0; i < rows->count; i++) {
    const tsr_change *row = &rows->items[i];
    if (row->old_allocations && row->new_allocations) continue;
    mover m = {.row = i, .side = row->new_allocations != 0};
    if (parse_name(row->name, &m)) movers[count++] = m;
  }
  if (count) qsort(movers, count, sizeof *movers, compare_movers);
  for (size_t first = 0, last; first < count; first = last) {
    size_t olds = 0;
    for (last = first; last < count && !compare_places(&movers[first], &movers[last]); last++)
      olds += movers[last].side == 0;
    pair_movers(&movers[first], olds, last - first - olds, rows->items);
  }
  tsr__free(movers);
  return true;
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
