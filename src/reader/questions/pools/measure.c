/* measure.c - what the pools of a device hold at a moment, and which stacks keep what is free.
 *
 * A unit (timeline/pins.h) whose live blocks are all of one stack is kept by that stack alone: without them all of
 * it would be free. Where several stacks are in a unit it is shared, and counts for each of them apart, because
 * none of them could free it. */
#include <assert.h>

#include "base/checked.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"
#include "questions/pools/pools.h"
#include "timeline/pins.h"

typedef struct measuring {
  const tsr__pool_list *list;
  const tsr_pools_pool *pools;
  const tsr__pins *pins;
  tsr__map holder_of; /* pool and stack -> index */
  TSR__VECTOR(tsr_pools_holder) holders;
  TSR__VECTOR(uint32_t) last_block; /* by holder: its last one in a unit of its own */
  TSR__VECTOR(uint32_t)
  last_pin; /* by holder: the last shared unit that it was counted in, plus 1 */
  TSR__VECTOR(tsr_pools_segment) units;
} measuring;

static bool is_private(const tsr_pools_pool *pool) {
  return pool->pool.first || pool->pool.second;
}

static uint32_t stack_of(const tsr__timeline *t, uint32_t allocation) {
  uint32_t stack = tsr__timeline_stack(t, allocation);
  return tsr_snapshot_stack(t->snapshot, stack).depth ? stack : TSR_NONE;
}

/* The index of the holder, which is added if new; SIZE_MAX when out of memory. */
static size_t holder_of(measuring *m, uint32_t pool, uint32_t stack) {
  bool is_new = false;
  const uint64_t *index =
      tsr__map_put(&m->holder_of, (uint64_t)pool << 32 | stack, m->holders.count, &is_new);
  if (!index) return SIZE_MAX;
  if (!is_new) return (size_t)*index;
  size_t at = m->holders.count;
  bool ok = TSR__VECTOR_PUSH(&m->holders, (tsr_pools_holder){.pool = pool, .stack = stack}) &&
            TSR__VECTOR_PUSH(&m->last_block, TSR_NONE) && TSR__VECTOR_PUSH(&m->last_pin, 0);
  return ok ? at : SIZE_MAX;
}

/* Count a unit for the one stack that is in it. */
static void count_own(measuring *m, const tsr__pinned_unit *pin, size_t index) {
  const tsr__timeline *t = m->list->timeline;
  tsr_pools_holder *holder = &m->holders.items[index];
  holder->segments++;
  holder->segment_bytes = tsr__sum_u64(holder->segment_bytes, pin->size_bytes);
  holder->free_bytes = tsr__sum_u64(holder->free_bytes, pin->free_bytes);
  for (uint32_t i = 0; i < pin->block_count; i++) {
    uint32_t block = m->pins->blocks.items[pin->first + i];
    if (m->last_block.items[index] == block) continue; /* it is in two pages */
    m->last_block.items[index] = block;
    holder->blocks++;
    holder->block_bytes = tsr__sum_u64(holder->block_bytes, t->block_bytes.items[block]);
  }
}

static bool count_pin(measuring *m, uint32_t number) {
  const tsr__timeline *t = m->list->timeline;
  const tsr__pinned_unit *pin = &m->pins->pins.items[number];
  uint32_t pool = m->list->pool_of_span[pin->span];
  tsr_pools_segment unit = {.address = pin->address,
                            .size_bytes = pin->size_bytes,
                            .free_bytes = pin->free_bytes,
                            .pool = pool,
                            .is_page = t->spans.items[pin->span].is_expandable,
                            .blocks = pin->block_count,
                            .stack = TSR_NONE};
  uint64_t largest = 0;
  size_t own = SIZE_MAX;
  for (uint32_t i = 0; i < pin->block_count; i++) {
    uint32_t block = m->pins->blocks.items[pin->first + i], stack = stack_of(t, block);
    uint64_t bytes = t->block_bytes.items[block];
    size_t index = holder_of(m, pool, stack);
    if (index == SIZE_MAX) return false;
    unit.block_bytes = tsr__sum_u64(unit.block_bytes, bytes);
    if (bytes > largest) unit.stack = stack;
    if (bytes > largest) largest = bytes;
    if (m->last_pin.items[index] == number + 1) continue;
    m->last_pin.items[index] = number + 1;
    unit.stacks++;
    own = index;
  }
  if (unit.stacks == 1) count_own(m, pin, own);
  for (uint32_t i = 0; unit.stacks > 1 && i < pin->block_count; i++) {
    size_t index = holder_of(m, pool, stack_of(t, m->pins->blocks.items[pin->first + i]));
    if (m->last_pin.items[index] != number + 1) continue;
    m->last_pin.items[index] = 0; /* counted */
    tsr_pools_holder *holder = &m->holders.items[index];
    holder->shared_segments++;
    holder->shared_free_bytes = tsr__sum_u64(holder->shared_free_bytes, pin->free_bytes);
  }
  return TSR__VECTOR_PUSH(&m->units, unit);
}

/* ---- sums ---- */

static void add(uint64_t *sum, uint64_t bytes) {
  *sum = tsr__sum_u64(*sum, bytes);
}

static void sum_pools(const measuring *m, int64_t event, tsr__pool_measure *out) {
  const tsr__timeline *t = m->list->timeline;
  for (size_t i = 0; i < t->spans.count; i++) {
    if (!tsr__span_is_there(&t->spans.items[i], event)) continue;
    uint32_t pool = m->list->pool_of_span[i];
    add(&out->pools[pool].reserved_bytes, t->spans.items[i].size_bytes);
    out->segments[pool]++;
  }
  for (size_t i = 0; i < m->pins->rooms.count; i++) {
    const tsr__span_room *room = &m->pins->rooms.items[i];
    const tsr__span *span = &t->spans.items[room->span];
    uint32_t pool = m->list->pool_of_span[room->span];
    tsr_pools_sums *sums = &out->pools[pool];
    if (is_private(&m->pools[pool])) {
      add(&sums->kept_bytes, tsr__sum_u64(room->pinned_bytes, room->whole_bytes));
      continue;
    }
    add(&sums->pinned_bytes, room->pinned_bytes);
    add(&sums->releasable_bytes, room->whole_bytes);
    out->releasable += room->whole_bytes == span->size_bytes;
  }
  for (size_t i = 0; i < m->list->count; i++) {
    tsr_pools_sums *sums = &out->pools[i];
    uint64_t unused =
        tsr__sum_u64(tsr__sum_u64(sums->pinned_bytes, sums->releasable_bytes), sums->kept_bytes);
    assert(unused <= sums->reserved_bytes || sums->reserved_bytes == UINT64_MAX);
    sums->used_bytes = tsr__drop_u64(sums->reserved_bytes, unused);
    add(&out->sums.reserved_bytes, sums->reserved_bytes);
    add(&out->sums.used_bytes, sums->used_bytes);
    add(&out->sums.pinned_bytes, sums->pinned_bytes);
    add(&out->sums.releasable_bytes, sums->releasable_bytes);
    add(&out->sums.kept_bytes, sums->kept_bytes);
  }
}

/* ---- order ---- */

static int compare_numbers(uint64_t a, uint64_t b) {
  return (a > b) - (a < b);
}

static int compare_holders(const void *left, const void *right) {
  const tsr_pools_holder *a = left, *b = right;
  int order = compare_numbers(b->free_bytes, a->free_bytes);
  if (!order) order = compare_numbers(b->shared_free_bytes, a->shared_free_bytes);
  if (!order) order = compare_numbers(a->pool, b->pool);
  return order ? order : compare_numbers(a->stack, b->stack);
}

static int compare_units(const void *left, const void *right) {
  const tsr_pools_segment *a = left, *b = right;
  int order = compare_numbers(b->free_bytes, a->free_bytes);
  return order ? order : compare_numbers(a->address, b->address);
}

int tsr__pool_measure_at(const tsr__pool_list *list, const tsr_pools_pool *pools, int64_t event,
                         tsr__pool_measure *out, tsr_error *error) {
  const tsr__timeline *t = list->timeline;
  tsr__live_set live = {0};
  tsr__pins pins = {0};
  measuring m = {.list = list, .pools = pools, .pins = &pins};
  *out = (tsr__pool_measure){.pools = TSR__NEW_ARRAY(tsr_pools_sums, list->count),
                             .segments = TSR__NEW_ARRAY(uint64_t, list->count)};
  int status = out->pools && out->segments ? 0 : tsr__fail_memory(error);
  if (!status) status = tsr__timeline_live(t, event, &live, error);
  if (!status) status = tsr__timeline_pins(t, event, &live, &pins, error);
  for (uint32_t i = 0; !status && i < pins.pins.count; i++)
    if (!count_pin(&m, i)) status = tsr__fail_memory(error);
  if (!status) {
    out->moment.event = event;
    out->moment.time_us = event < 0 ? TSR_TIME_NONE : t->events.time_us[event];
    out->moment.totals = tsr__timeline_totals(t, event, &live);
    sum_pools(&m, event, out);
    tsr__sort(m.holders.items, m.holders.count, sizeof *m.holders.items, compare_holders);
    tsr__sort(m.units.items, m.units.count, sizeof *m.units.items, compare_units);
  }
  out->holders = m.holders.items;
  out->holder_count = m.holders.count;
  out->units = m.units.items;
  out->unit_count = m.units.count;
  tsr__map_release(&m.holder_of);
  TSR__VECTOR_FREE(&m.last_block);
  TSR__VECTOR_FREE(&m.last_pin);
  TSR__VECTOR_FREE(&live);
  tsr__pins_release(&pins);
  return status;
}

void tsr__pool_measure_release(tsr__pool_measure *measure) {
  tsr__free(measure->pools);
  tsr__free(measure->segments);
  tsr__free(measure->holders);
  tsr__free(measure->units);
  *measure = (tsr__pool_measure){0};
}
