/* causes.c - a live set summed by category and line. See causes.h. */
#include "questions/shared/causes.h"

#include <assert.h>

#include "base/checked.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"
#include "questions/shared/names.h"

/* Largest first; equal ones by kind, then in the order of the file. */
static int compare_causes(const void *a, const void *b) {
  const tsr_cause *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  if (x->category != y->category) return x->category < y->category ? -1 : 1;
  if (x->frame != y->frame) return x->frame < y->frame ? -1 : 1;
  if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
  return x->is_older - y->is_older;
}

static int compare_kinds(const void *a, const void *b) {
  const tsr_category_share *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  if (!x->allocations != !y->allocations) return x->allocations ? -1 : 1;
  return (x->category > y->category) - (x->category < y->category);
}

typedef TSR__VECTOR(tsr_cause) cause_list;

typedef struct summer {
  const tsr__lines *lines;
  cause_list causes;
  tsr__map index_of; /* line and kind -> cause */
  uint64_t *largest; /* allocation, by cause */
  tsr__name_sums named;
} summer;

/* The largest allocation's stack represents the line, which may be several places of one name. `*row`:
 * the index of the cause. */
static bool add_to(summer *s, tsr_category kind, uint32_t stack, bool is_older, uint64_t bytes,
                   uint64_t block_bytes, uint32_t *row) {
  bool is_new = false;
  uint32_t place = tsr__place_of(s->lines->places, stack);
  is_older &= !place;
  uint64_t key = (uint64_t)tsr__label_of(s->lines->names, stack) * TSR_CATEGORY_COUNT + kind;
  key = 2 * key + is_older;
  const uint64_t *index = tsr__map_put(&s->index_of, key, s->causes.count, &is_new);
  if (!index) return false;
  tsr_cause none = {.category = kind,
                    .frame = TSR_NONE,
                    .layer = TSR_NONE,
                    .stack = TSR_NONE,
                    .is_older = is_older};
  if (is_new && !TSR__VECTOR_PUSH(&s->causes, none)) return false;
  tsr_cause *cause = &s->causes.items[*index];
  assert(*index < s->causes.count && cause->category == kind);
  *row = (uint32_t)*index;
  if (place && (cause->stack == TSR_NONE || bytes > s->largest[*index])) {
    cause->frame = s->lines->places->items.items[place].frame;
    cause->layer = s->lines->places->items.items[place].layer;
    cause->stack = stack;
    s->largest[*index] = bytes;
  }
  cause->bytes = tsr__sum_u64(cause->bytes, bytes);
  cause->block_bytes = tsr__sum_u64(cause->block_bytes, block_bytes);
  cause->allocations++;
  return true;
}

/* Give each cause its names, `top` at most; while causes are in the order in which they were added. */
static bool name_causes(summer *s, size_t top, tsr_named **out) {
  tsr_name_range *ranges = TSR__NEW_ARRAY(tsr_name_range, s->causes.count);
  bool ok = ranges && !tsr__name_sums_take(&s->named, top, s->causes.count, ranges, out, NULL);
  for (size_t i = 0; ok && i < s->causes.count; i++) s->causes.items[i].names = ranges[i];
  tsr__free(ranges);
  return ok;
}

static bool sum(const tsr__lines *lines, const tsr__timeline *timeline,
                const tsr__categories *categories, const tsr__names *names,
                const tsr__live_set *live, size_t top, tsr__held_groups *out, cause_list *causes) {
  summer s = {.lines = lines, .largest = TSR__NEW_ARRAY(uint64_t, live->count)};
  tsr_category_share *by_kind = out->categories;
  bool ok = s.largest != NULL;
  tsr__name_sums_init(&s.named);
  for (size_t i = 0; ok && i < live->count; i++) {
    uint32_t allocation = live->items[i], stack = tsr__timeline_stack(timeline, allocation);
    uint64_t bytes = tsr__timeline_requested(timeline, allocation);
    uint64_t block_bytes = timeline->block_bytes.items[allocation];
    tsr_category kind = (tsr_category)categories->category[allocation];
    by_kind[kind].bytes = tsr__sum_u64(by_kind[kind].bytes, bytes);
    by_kind[kind].block_bytes = tsr__sum_u64(by_kind[kind].block_bytes, block_bytes);
    by_kind[kind].allocations++;
    uint32_t row = 0;
    bool is_older = allocation < timeline->initial.count && timeline->events.count;
    ok = add_to(&s, kind, stack, is_older, bytes, block_bytes, &row) &&
         tsr__name_sums_add(&s.named, row, names, allocation);
  }
  ok = ok && name_causes(&s, top, &out->names);
  tsr__name_sums_release(&s.named);
  tsr__free(s.largest);
  tsr__map_release(&s.index_of);
  *causes = s.causes;
  return ok;
}

int tsr__held_by(const tsr__lines *lines, const tsr__timeline *timeline,
                 const tsr__categories *categories, const tsr__names *names,
                 const tsr__live_set *live, size_t top, tsr__held_groups *out, tsr_error *error) {
  tsr__held_groups held = {0};
  cause_list causes = {0};
  assert(categories->count == timeline->birth.count);
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++) held.categories[i].category = (tsr_category)i;
  if (!sum(lines, timeline, categories, names, live, top, &held, &causes)) {
    TSR__VECTOR_FREE(&causes);
    return tsr__fail_memory(error);
  }
  tsr__sort(held.categories, TSR_CATEGORY_COUNT, sizeof *held.categories, compare_kinds);
  while (held.category_count < TSR_CATEGORY_COUNT &&
         held.categories[held.category_count].allocations)
    held.category_count++;
  tsr__sort(causes.items, causes.count, sizeof *causes.items, compare_causes);
  held.causes = causes.items;
  held.cause_count = top && causes.count > top ? top : causes.count;
  held.omitted_causes = causes.count - held.cause_count;
  for (size_t i = held.cause_count; i < causes.count; i++) {
    held.omitted_bytes = tsr__sum_u64(held.omitted_bytes, causes.items[i].bytes);
    held.omitted_block_bytes = tsr__sum_u64(held.omitted_block_bytes, causes.items[i].block_bytes);
  }
  assert(held.cause_count + held.omitted_causes == causes.count);
  *out = held;
  return 0;
}
