/* allocations.c - one step of two runs, allocation by allocation.
 *
 *   live before the step ─┐
 *                         ├─► items ─► pairs (pairing.c) ─► rows: what only one side has, or has otherwise
 *   made in the step     ─┘
 *
 * The step is the last whole one of each recording: the first ones warm up. Without steps it is all of the trace. A pair
 * that is live at the peak of the step on one side alone is a row, too, so the rows' changes at the peak add up to the difference
 * of the peaks. */
#include <assert.h>

#include "base/checked.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"
#include "base/vector.h"
#include "questions/diff/diff.h"
#include "questions/diff/pairing.h"
#include "study/study.h"
#include "timeline/sweep.h"

/* One side. */
typedef struct aligned_side {
  const tsr__timeline *t;
  const tsr__categories *categories;
  const tsr__names *names;
  const uint32_t *classes; /* by stack */
  uint32_t no_class;       /* of what has no stack */
  uint32_t first, end;     /* events of the step */
  int64_t peak_event;
  tsr__pairing_item *items;
  uint32_t *allocations; /* of each item */
  uint32_t count;
} aligned_side;

typedef TSR__VECTOR(tsr_allocation_change) change_rows;

const char *tsr_allocation_status_name(tsr_allocation_status status) {
  switch (status) {
  case TSR_ALLOCATION_REMOVED: return "removed";
  case TSR_ALLOCATION_ADDED: return "added";
  case TSR_ALLOCATION_RESIZED: return "resized";
  case TSR_ALLOCATION_LIFETIME: return "lifetime";
  }
  return "unknown";
}

/* ---- Sides ---- */

/* The last whole step, or the whole trace; from 1, 0 for the trace. */
static uint64_t choose_step(aligned_side *side, const tsr__cycle *cycle) {
  side->first = 0;
  side->end = side->t->events.count < TSR_NONE ? (uint32_t)side->t->events.count : TSR_NONE - 1;
  for (size_t i = cycle->steps.count; i-- > 0;) {
    const tsr__cycle_step *step = &cycle->steps.items[i];
    if (!step->is_whole) continue;
    assert(step->first <= step->last && step->last < side->end);
    side->first = step->first;
    side->end = step->last + 1;
    return (uint64_t)i + 1;
  }
  return 0;
}

static int find_peak(aligned_side *side, tsr_aligned_side *out, tsr_error *error) {
  tsr__sweep sweep;
  int status = tsr__sweep_begin(side->t, &sweep, error);
  if (status) return status;
  tsr_totals top = sweep.totals;
  side->peak_event = -1;
  while (sweep.event + 1 < (int64_t)side->end && tsr__sweep_next(&sweep)) {
    bool is_first = sweep.event == (int64_t)side->first;
    if (sweep.event < (int64_t)side->first) continue;
    if (!is_first && sweep.totals.requested_bytes <= top.requested_bytes) continue;
    top = sweep.totals;
    side->peak_event = sweep.event;
  }
  tsr__sweep_release(&sweep);
  out->peak_event = side->peak_event;
  out->peak_requested_bytes = top.requested_bytes;
  out->peak_allocated_bytes = top.allocated_bytes;
  return 0;
}

/* A hash of what the program called it, equal in every run; 0 if it has no name. `scratch` is emptied. */
static uint64_t owner_of(const aligned_side *side, uint32_t allocation, tsr__buffer *scratch) {
  scratch->size = 0;
  tsr__names_append(side->names, allocation, scratch);
  return scratch->size ? tsr__hash_bytes(scratch->data, scratch->size, 1) : 0;
}

static void fill_item(const aligned_side *side, uint32_t allocation, tsr__buffer *scratch,
                      tsr__pairing_item *item) {
  uint32_t birth = side->t->birth.items[allocation];
  uint32_t stack = tsr__timeline_stack(side->t, allocation);
  bool has_place = stack != TSR_NONE;
  *item = (tsr__pairing_item){.size = tsr__timeline_requested(side->t, allocation),
                              .place = has_place ? side->classes[stack] : side->no_class,
                              .has_place = has_place,
                              .is_older = birth == TSR_NONE || birth < side->first,
                              .is_static = birth == TSR_NONE,
                              .owner = birth == TSR_NONE ? owner_of(side, allocation, scratch) : 0,
                              .category = side->categories->category[allocation]};
}

/* Live just before the step, or made in it. Allocations are in the order in which they were made, after static ones. */
static bool collect_items(aligned_side *side) {
  size_t most = side->t->birth.count;
  side->items = TSR__NEW_ARRAY(tsr__pairing_item, most + 1);
  side->allocations = TSR__NEW_ARRAY(uint32_t, most + 1);
  tsr__buffer scratch = {0};
  if (!side->items || !side->allocations) return false;
  for (size_t i = 0; i < most; i++) {
    uint32_t birth = side->t->birth.items[i], death = side->t->death.items[i];
    if (birth != TSR_NONE && birth >= side->end) break;
    if (death != TSR_NONE && death < side->first) continue;
    side->allocations[side->count] = (uint32_t)i;
    fill_item(side, (uint32_t)i, &scratch, &side->items[side->count++]);
  }
  bool ok = !scratch.failed;
  tsr__buffer_release(&scratch);
  return ok;
}

static int open_side(tsr_study *study, uint32_t device, aligned_side *side, tsr_aligned_side *out,
                     tsr_error *error) {
  const tsr__cycle *cycle = NULL;
  int status = tsr__study_timeline(study, device, &side->t, error);
  if (!status) status = tsr__study_categories(study, device, &side->categories, error);
  if (!status) status = tsr__study_names(study, device, &side->names, error);
  if (!status) status = tsr__study_cycle(study, device, &cycle, error);
  if (status) return status;
  out->step = choose_step(side, cycle);
  status = find_peak(side, out, error);
  if (!status && !collect_items(side)) status = tsr__fail_memory(error);
  out->allocations = side->count;
  return status;
}

static void close_side(aligned_side *side) {
  tsr__free(side->items);
  tsr__free(side->allocations);
}

/* ---- Rows ---- */

static uint64_t at_peak(const aligned_side *side, uint32_t item) {
  uint32_t allocation = side->allocations[item];
  uint32_t birth = side->t->birth.items[allocation], death = side->t->death.items[allocation];
  bool is_born = birth == TSR_NONE || (int64_t)birth <= side->peak_event;
  bool is_live = is_born && (death == TSR_NONE || (int64_t)death > side->peak_event);
  return is_live ? side->items[item].size : 0;
}

static int64_t event_of(const aligned_side *side, uint32_t item) {
  uint32_t birth = side->t->birth.items[side->allocations[item]];
  return birth == TSR_NONE ? -1 : (int64_t)birth;
}

/* Fill in what one side has. */
static void describe_item(const aligned_side *side, uint32_t item, tsr_allocation_side *out) {
  *out = (tsr_allocation_side){.stack = tsr__timeline_stack(side->t, side->allocations[item]),
                               .size_bytes = side->items[item].size,
                               .peak_bytes = at_peak(side, item),
                               .event = event_of(side, item)};
}

static uint64_t row_key(const aligned_side sides[2], const uint32_t at[2],
                        const tsr_allocation_change *row) {
  uint64_t key = tsr__mix((uint64_t)row->status, (uint64_t)row->category);
  for (int k = 0; k < 2; k++) {
    bool is_there = at[k] != TSR_NONE;
    key = tsr__mix(key, is_there ? sides[k].items[at[k]].place : TSR_NONE);
    key = tsr__mix(key, row->sides[k].size_bytes);
    key = tsr__mix(key, row->sides[k].peak_bytes != 0);
  }
  return key;
}

/* Add a difference to the row of its like. `at`: the item of each side, or TSR_NONE. */
static bool add_row(const aligned_side sides[2], const uint32_t at[2], tsr_allocation_status status,
                    tsr__map *row_of, change_rows *rows) {
  int shown = at[1] != TSR_NONE ? 1 : 0;
  tsr_allocation_change row = {.status = status,
                               .category = (tsr_category)sides[shown].items[at[shown]].category,
                               .count = 1};
  for (int k = 0; k < 2; k++) {
    row.sides[k] = (tsr_allocation_side){.stack = TSR_NONE, .event = -1};
    if (at[k] != TSR_NONE) describe_item(&sides[k], at[k], &row.sides[k]);
  }
  bool is_new;
  const uint64_t *index = tsr__map_put(row_of, row_key(sides, at, &row), rows->count, &is_new);
  if (!index) return false;
  if (is_new) return TSR__VECTOR_PUSH(rows, row);
  tsr_allocation_change *known = &rows->items[*index];
  known->count++;
  for (int k = 0; k < 2; k++)
    known->sides[k].peak_bytes = tsr__sum_u64(known->sides[k].peak_bytes, row.sides[k].peak_bytes);
  return true;
}

/* What a pair differs in; false if in nothing. */
static bool differs(const aligned_side sides[2], uint32_t i, tsr_allocation_status *status) {
  const tsr__pairing_item *item = &sides[0].items[i];
  bool was_live = at_peak(&sides[0], i) != 0, is_live = at_peak(&sides[1], item->mate) != 0;
  *status = item->how == TSR__PAIRING_RESIZED ? TSR_ALLOCATION_RESIZED : TSR_ALLOCATION_LIFETIME;
  return item->how == TSR__PAIRING_RESIZED || was_live != is_live;
}

static bool make_rows(const aligned_side sides[2], tsr_alignment *out, change_rows *rows) {
  tsr__map row_of = {0};
  bool ok = true;
  tsr_allocation_status status;
  for (uint32_t i = 0; ok && i < sides[0].count; i++) {
    const tsr__pairing_item *item = &sides[0].items[i];
    uint32_t at[2] = {i, item->how == TSR__PAIRING_NONE ? TSR_NONE : item->mate};
    out->same += item->how == TSR__PAIRING_SAME || item->how == TSR__PAIRING_MOVED;
    bool is_made = !item->is_older && at[1] != TSR_NONE && !sides[1].items[at[1]].is_older;
    out->moved += item->how == TSR__PAIRING_MOVED && is_made;
    if (item->how == TSR__PAIRING_NONE)
      ok = add_row(sides, at, TSR_ALLOCATION_REMOVED, &row_of, rows);
    else if (differs(sides, i, &status))
      ok = add_row(sides, at, status, &row_of, rows);
  }
  for (uint32_t i = 0; ok && i < sides[1].count; i++) {
    uint32_t at[2] = {TSR_NONE, i};
    if (sides[1].items[i].how == TSR__PAIRING_NONE)
      ok = add_row(sides, at, TSR_ALLOCATION_ADDED, &row_of, rows);
  }
  tsr__map_release(&row_of);
  return ok;
}

/* ---- All of it ---- */

static uint64_t larger(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

/* What counts at the peak first, then what is large; ties as they were made. */
static int compare_rows(const void *a, const void *b) {
  const tsr_allocation_change *x = a, *y = b;
  int64_t p = tsr__diff_delta(x->sides[0].peak_bytes, x->sides[1].peak_bytes);
  int64_t q = tsr__diff_delta(y->sides[0].peak_bytes, y->sides[1].peak_bytes);
  uint64_t left = p < 0 ? (uint64_t)-p : (uint64_t)p, right = q < 0 ? (uint64_t)-q : (uint64_t)q;
  if (left != right) return left < right ? 1 : -1;
  left = tsr__product_u64(larger(x->sides[0].size_bytes, x->sides[1].size_bytes), x->count);
  right = tsr__product_u64(larger(y->sides[0].size_bytes, y->sides[1].size_bytes), y->count);
  if (left != right) return left < right ? 1 : -1;
  if (x->status != y->status) return x->status < y->status ? -1 : 1;
  if (x->sides[1].event != y->sides[1].event) return x->sides[1].event < y->sides[1].event ? -1 : 1;
  return (x->sides[0].event > y->sides[0].event) - (x->sides[0].event < y->sides[0].event);
}

static void finish(change_rows *rows, size_t top, tsr_alignment *out) {
  for (size_t i = 0; i < rows->count; i++) {
    const tsr_allocation_change *row = &rows->items[i];
    uint64_t bytes =
        tsr__product_u64(larger(row->sides[0].size_bytes, row->sides[1].size_bytes), row->count);
    assert((unsigned)row->status < TSR_ALLOCATION_STATUSES);
    out->counts[row->status] += row->count;
    out->bytes[row->status] = tsr__sum_u64(out->bytes[row->status], bytes);
  }
  tsr__sort(rows->items, rows->count, sizeof *rows->items, compare_rows);
  out->changes = rows->items;
  out->change_count = top && rows->count > top ? top : rows->count;
  out->omitted_changes = rows->count - out->change_count;
}

int tsr__diff_align(tsr_study *const studies[2], const tsr__match *match, size_t top,
                    const tsr_diff_device *device, tsr_alignment **out, tsr_error *error) {
  aligned_side sides[2] = {{.classes = match->old_class, .no_class = match->class_count},
                           {.classes = match->new_class, .no_class = match->class_count}};
  change_rows rows = {0};
  tsr_alignment *made = TSR__NEW(tsr_alignment);
  if (!made) return tsr__fail_memory(error);
  int status = open_side(studies[0], device->old_side.device, &sides[0], &made->sides[0], error);
  if (!status)
    status = open_side(studies[1], device->new_side.device, &sides[1], &made->sides[1], error);
  if (!status &&
      (!tsr__pairing_find(sides[0].items, sides[0].count, sides[1].items, sides[1].count) ||
       !make_rows(sides, made, &rows)))
    status = tsr__fail_memory(error);
  close_side(&sides[0]);
  close_side(&sides[1]);
  if (status) {
    TSR__VECTOR_FREE(&rows);
    tsr__free(made);
    return status;
  }
  finish(&rows, top, made);
  *out = made;
  return 0;
}

void tsr__alignment_free(tsr_alignment *alignment) {
  if (alignment) tsr__free(alignment->changes);
  tsr__free(alignment);
}
