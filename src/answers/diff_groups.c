/* diff_groups.c - what changed, by category, operation or line of code.
 *
 * Each side is profiled by the grouping, and groups of one name are one row. Lines move when code
 * above them changes: of the lines that only one side has, those of one function in a file of one name
 * are compared again. As many on either side are paired in the order of their lines; where their
 * numbers differ, they are one row. */
#include <stdlib.h>
#include <string.h>

#include "answers/diff.h"
#include "base/checked.h"
#include "base/intern.h"
#include "base/memory.h"
#include "base/vector.h"

typedef TSR__VECTOR(tsr_change) change_list;

static void add_side(tsr_change *row, const tsr_profile_group *group, int side) {
  uint64_t *bytes = side ? &row->new_bytes : &row->old_bytes;
  uint64_t *allocations = side ? &row->new_allocations : &row->old_allocations;
  *bytes = tsr__sum_u64(*bytes, group->bytes);
  *allocations = tsr__sum_u64(*allocations, group->allocations);
}

/* Groups of one side into the rows; equal names share one. */
static bool add_groups(const tsr_profile_device *device, int side, tsr__intern *names,
                       change_list *rows) {
  for (size_t i = 0; i < device->group_count; i++) {
    const tsr_profile_group *group = &device->groups[i];
    if (!group->allocations) continue;
    bool is_new;
    uint32_t id = tsr__intern_put(names, group->name, strlen(group->name), &is_new);
    if (id == TSR__INTERN_FULL) return false;
    tsr_change row = {.name = group->name, .old_stack = TSR_NONE, .new_stack = TSR_NONE};
    if (is_new && !TSR__VECTOR_PUSH(rows, row)) return false;
    if (side) rows->items[id].name = group->name; /* the new one's, which may be there longer */
    add_side(&rows->items[id], group, side);
  }
  return true;
}

/* ---- Lines that moved ---- */

/* A row that only one side has, and what its name says: "dir/model.py:382 forward". */
typedef struct mover {
  const char *base, *function; /* model.py, and what follows the number */
  size_t base_size;
  uint64_t line;
  uint32_t row;
  uint8_t side;
} mover;

/* False for a name without a line. */
static bool parse_name(const char *name, mover *out) {
  const char *colon = strrchr(name, ' ');
  if (!colon) return false;
  out->function = colon;
  while (colon > name && colon[-1] >= '0' && colon[-1] <= '9') colon--;
  if (colon == out->function || colon == name || colon[-1] != ':') return false;
  out->line = strtoull(colon, NULL, 10);
  const char *base = colon - 1;
  while (base > name && base[-1] != '/' && base[-1] != '\\') base--;
  out->base = base;
  out->base_size = (size_t)(colon - 1 - base);
  return true;
}

static int compare_places(const mover *x, const mover *y) {
  if (x->base_size != y->base_size) return x->base_size < y->base_size ? -1 : 1;
  int order = memcmp(x->base, y->base, x->base_size);
  return order ? order : strcmp(x->function, y->function);
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

static tsr_profile_by grouping_of(tsr_diff_by by) {
  return by == TSR_DIFF_BY_CATEGORY ? TSR_PROFILE_BY_CATEGORY
         : by == TSR_DIFF_BY_OP     ? TSR_PROFILE_BY_OP
                                    : TSR_PROFILE_BY_LINE;
}

static int profile_side(const tsr_snapshot *snapshot, const tsr_diff_side *side, tsr_diff_by by,
                        tsr_profile **out, tsr_error *error) {
  tsr_profile_options options = {.by = grouping_of(by)};
  tsr_query query = {.devices = &side->device, .device_count = 1};
  return side->is_there ? tsr_profile_compute(snapshot, &options, &query, out, error) : 0;
}

int tsr__diff_groups(const tsr_snapshot *const snapshots[2], tsr_diff_by by, tsr_diff_device *out,
                     tsr_change **rows, size_t *row_count, tsr_error *error) {
  tsr__intern names;
  change_list list = {0};
  tsr__intern_init(&names);
  int status = 0;
  for (int side = 0; !status && side < 2; side++) {
    tsr_profile *profile = NULL;
    const tsr_diff_side *of = side ? &out->new_side : &out->old_side;
    status = profile_side(snapshots[side], of, by, &profile, error);
    if (status || !profile) continue;
    if (!add_groups(&profile->devices[0], side, &names, &list)) status = tsr__fail_memory(error);
    out->names[side] = profile->devices[0].names;
    profile->devices[0].names = NULL;
    tsr_profile_free(profile);
  }
  if (!status && by == TSR_DIFF_BY_LINE && !match_moved(&list)) status = tsr__fail_memory(error);
  tsr__intern_release(&names);
  if (status) {
    TSR__VECTOR_FREE(&list);
    return status;
  }
  *rows = list.items;
  *row_count = list.count;
  return 0;
}
