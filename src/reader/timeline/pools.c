/* pools.c - see pools.h.
 *
 * Everything follows from the spans. Sorted by the events at which they come and go they give the
 * reserved bytes of each pool at each event, and so its high-water mark; kept as an ordered set
 * while walking along the allocations they give the span around each address. Where a span
 * replaces others (a range of expandable memory that grows) these end with the event with which it
 * begins, so ends are applied first. */
#include "timeline/pools.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/ranges.h"
#include "base/sort.h"

/* A span that comes or goes. */
typedef struct change {
  int64_t event; /* -1: before the window */
  uint32_t span;
  bool is_end;
} change;

typedef TSR__VECTOR(change) changes;

static int compare_changes(const void *left, const void *right) {
  const change *a = left, *b = right;
  if (a->event != b->event) return a->event < b->event ? -1 : 1;
  if (a->is_end != b->is_end) return a->is_end ? -1 : 1;
  return (a->span > b->span) - (a->span < b->span);
}

/* What happens to spans, in order: to all of them, or to those of private pools. A span that ends
 * with the event that begins it was never there. */
static bool list_changes(const tsr__timeline *t, bool is_private, changes *out) {
  for (size_t i = 0; i < t->spans.count; i++) {
    const tsr__span *span = &t->spans.items[i];
    if (is_private && !tsr__pool_is_private(t->snapshot, span->pool)) continue;
    if (span->birth != TSR_NONE && span->birth == span->death) continue;
    change birth = {span->birth == TSR_NONE ? -1 : (int64_t)span->birth, (uint32_t)i, false};
    if (!TSR__VECTOR_PUSH(out, birth)) return false;
    if (span->death != TSR_NONE &&
        !TSR__VECTOR_PUSH(out, (change){(int64_t)span->death, (uint32_t)i, true}))
      return false;
  }
  tsr__sort(out->items, out->count, sizeof *out->items, compare_changes);
  return true;
}

bool tsr__pool_is_private(const tsr_snapshot *snapshot, uint32_t pool) {
  if (pool == TSR_NONE) return false;
  tsr_pool id = tsr_snapshot_pool(snapshot, pool);
  return id.first || id.second;
}

/* ---- uses ---- */

/* A use with the numbers that it is sorted by; ids are in the order of the file. */
typedef struct key {
  tsr_pool pool;
  uint64_t stream;
} key;

static key key_of(const tsr__timeline *t, uint32_t pool, uint32_t stream) {
  return (key){tsr_snapshot_pool(t->snapshot, pool), tsr_snapshot_stream(t->snapshot, stream)};
}

static int compare_keys(const key *a, const key *b) {
  if (a->pool.first != b->pool.first) return a->pool.first < b->pool.first ? -1 : 1;
  if (a->pool.second != b->pool.second) return a->pool.second < b->pool.second ? -1 : 1;
  return (a->stream > b->stream) - (a->stream < b->stream);
}

/* The first use that is not before a key. */
static size_t lower_bound(const tsr__pool_uses *uses, const tsr__timeline *t, const key *wanted) {
  size_t low = 0, high = uses->uses.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const tsr__pool_use *use = &uses->uses.items[middle];
    key here = key_of(t, use->pool, use->stream);
    if (compare_keys(&here, wanted) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

uint32_t tsr__pool_uses_find(const tsr__pool_uses *uses, const tsr__timeline *t, uint32_t pool,
                             uint32_t stream) {
  if (!uses->uses.count || pool == TSR_NONE) return TSR_NONE;
  key wanted = key_of(t, pool, stream);
  size_t at = lower_bound(uses, t, &wanted);
  if (at == uses->uses.count) return TSR_NONE;
  key here = key_of(t, uses->uses.items[at].pool, uses->uses.items[at].stream);
  return compare_keys(&here, &wanted) ? TSR_NONE : (uint32_t)at;
}

typedef struct keyed {
  key key;
  tsr__pool_use use;
} keyed;

static int compare_keyed(const void *left, const void *right) {
  return compare_keys(&((const keyed *)left)->key, &((const keyed *)right)->key);
}

/* The uses, each once: there may be as many as spans, so they are sorted rather than searched. */
static bool add_uses(const tsr__timeline *t, int64_t event, const changes *all,
                     tsr__pool_uses *out) {
  TSR__VECTOR(keyed) list = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < all->count && all->items[i].event <= event; i++) {
    const tsr__span *span = &t->spans.items[all->items[i].span];
    if (all->items[i].is_end) continue;
    keyed item = {key_of(t, span->pool, span->stream),
                  {.pool = span->pool, .stream = span->stream}};
    ok = TSR__VECTOR_PUSH(&list, item);
  }
  tsr__sort(list.items, list.count, sizeof *list.items, compare_keyed);
  for (size_t i = 0; ok && i < list.count; i++)
    if (!i || compare_keys(&list.items[i - 1].key, &list.items[i].key))
      ok = TSR__VECTOR_PUSH(&out->uses, list.items[i].use);
  TSR__VECTOR_FREE(&list);
  return ok;
}

/* Within one event spans come one by one: only the last mark of each use counts. */
static bool add_step(tsr__pool_uses *out, int64_t event, uint32_t use, size_t *last) {
  uint64_t bytes = out->uses.items[use].high_water_bytes;
  if (*last && out->steps.items[*last - 1].event == event) {
    assert(out->steps.items[*last - 1].use == use && out->steps.items[*last - 1].bytes < bytes);
    out->steps.items[*last - 1].bytes = bytes;
    return true;
  }
  if (!TSR__VECTOR_PUSH(&out->steps, (tsr__pool_step){event, use, bytes})) return false;
  *last = out->steps.count;
  return true;
}

/* Reserved bytes and high-water marks. */
static bool add_reserved(const tsr__timeline *t, int64_t event, const changes *all,
                         tsr__pool_uses *out) {
  size_t *last = TSR__NEW_ARRAY(size_t, out->uses.count); /* by use: its last step, plus 1 */
  bool ok = last != NULL;
  for (size_t i = 0; ok && i < all->count && all->items[i].event <= event; i++) {
    const tsr__span *span = &t->spans.items[all->items[i].span];
    uint32_t index = tsr__pool_uses_find(out, t, span->pool, span->stream);
    assert(index != TSR_NONE);
    tsr__pool_use *use = &out->uses.items[index];
    if (all->items[i].is_end) {
      use->reserved_bytes = tsr__drop_u64(use->reserved_bytes, span->size_bytes);
      continue;
    }
    use->reserved_bytes = tsr__sum_u64(use->reserved_bytes, span->size_bytes);
    if (use->reserved_bytes <= use->high_water_bytes) continue;
    use->high_water_bytes = use->reserved_bytes;
    ok = add_step(out, all->items[i].event, index, &last[index]);
  }
  tsr__free(last);
  return ok;
}

/* The blocks that lie in spans of private pools. */
static bool add_active(const tsr__timeline *t, int64_t event, const tsr__live_set *live,
                       const changes *all, tsr__pool_uses *out) {
  tsr__ranges there;
  tsr__ranges_init(&there);
  bool ok = true;
  for (size_t i = 0; ok && i < all->count; i++) {
    const tsr__span *span = &t->spans.items[all->items[i].span];
    if (all->items[i].is_end || !tsr__span_is_there(span, event)) continue;
    ok = tsr__ranges_add(&there, 0, span->address, tsr__sum_u64(span->address, span->size_bytes),
                         tsr__pool_uses_find(out, t, span->pool, span->stream)) != TSR__RANGE_NONE;
  }
  for (size_t i = 0; ok && i < live->count; i++) {
    uint32_t around = tsr__ranges_around(&there, tsr__timeline_address(t, live->items[i]));
    if (around == TSR__RANGE_NONE) continue;
    tsr__pool_use *use = &out->uses.items[tsr__ranges_get(&there, around)->value];
    use->active_bytes = tsr__sum_u64(use->active_bytes, t->block_bytes.items[live->items[i]]);
  }
  tsr__ranges_release(&there);
  return ok;
}

int tsr__timeline_pools(const tsr__timeline *t, int64_t event, const tsr__live_set *live,
                        tsr__pool_uses *out, tsr_error *error) {
  changes all = {0};
  *out = (tsr__pool_uses){0};
  bool ok = list_changes(t, true, &all);
  ok = ok && add_uses(t, event, &all, out);
  if (ok && out->uses.count) ok = add_reserved(t, event, &all, out);
  if (ok && live && out->uses.count) ok = add_active(t, event, live, &all, out);
  TSR__VECTOR_FREE(&all);
  if (ok) return 0;
  tsr__pool_uses_release(out);
  return tsr__fail_memory(error);
}

void tsr__pool_uses_release(tsr__pool_uses *uses) {
  TSR__VECTOR_FREE(&uses->uses);
  TSR__VECTOR_FREE(&uses->steps);
  *uses = (tsr__pool_uses){0};
}

static bool are_one_pool(const tsr__pool_uses *uses, const tsr__timeline *t, size_t a, size_t b) {
  tsr_pool x = tsr_snapshot_pool(t->snapshot, uses->uses.items[a].pool);
  tsr_pool y = tsr_snapshot_pool(t->snapshot, uses->uses.items[b].pool);
  return x.first == y.first && x.second == y.second;
}

void tsr__pool_use_name(const tsr__pool_uses *uses, const tsr__timeline *t, uint32_t use,
                        char out[TSR__POOL_NAME_BYTES]) {
  assert(use < uses->uses.count);
  tsr_pool pool = tsr_snapshot_pool(t->snapshot, uses->uses.items[use].pool);
  bool has_siblings = (use && are_one_pool(uses, t, use, use - 1)) ||
                      (use + 1 < uses->uses.count && are_one_pool(uses, t, use, use + 1));
  int size = snprintf(out, TSR__POOL_NAME_BYTES, "pool (%" PRIu64 ", %" PRIu64 ")", pool.first,
                      pool.second);
  assert(size > 0 && size < TSR__POOL_NAME_BYTES);
  if (has_siblings)
    (void)snprintf(out + size, (size_t)(TSR__POOL_NAME_BYTES - size), ", stream 0x%" PRIx64,
                   tsr_snapshot_stream(t->snapshot, uses->uses.items[use].stream));
}

/* ---- spans of allocations ---- */

static bool walk(const tsr__timeline *t, const changes *all, uint32_t *range_of, uint32_t *out) {
  tsr__ranges there;
  tsr__ranges_init(&there);
  bool ok = true;
  size_t next = 0;
  for (size_t a = 0; ok && a < t->birth.count; a++) {
    int64_t event = t->birth.items[a] == TSR_NONE ? -1 : (int64_t)t->birth.items[a];
    assert(!a || t->birth.items[a] == TSR_NONE || t->birth.items[a - 1] == TSR_NONE ||
           t->birth.items[a - 1] < t->birth.items[a]);
    for (; ok && next < all->count && all->items[next].event <= event; next++) {
      uint32_t index = all->items[next].span;
      const tsr__span *span = &t->spans.items[index];
      if (all->items[next].is_end) {
        tsr__ranges_remove(&there, range_of[index]);
        continue;
      }
      range_of[index] = tsr__ranges_add(&there, 0, span->address,
                                        tsr__sum_u64(span->address, span->size_bytes), index);
      ok = range_of[index] != TSR__RANGE_NONE;
    }
    uint32_t around = tsr__ranges_around(&there, tsr__timeline_address(t, (uint32_t)a));
    out[a] = around == TSR__RANGE_NONE ? TSR_NONE : tsr__ranges_get(&there, around)->value;
  }
  tsr__ranges_release(&there);
  return ok;
}

uint32_t *tsr__timeline_spans_of(const tsr__timeline *t) {
  changes all = {0};
  uint32_t *range_of = TSR__NEW_ARRAY(uint32_t, t->spans.count);
  uint32_t *out = tsr__realloc(NULL, t->birth.count, sizeof *out);
  bool ok = range_of && out && list_changes(t, false, &all) && walk(t, &all, range_of, out);
  TSR__VECTOR_FREE(&all);
  tsr__free(range_of);
  if (ok) return out;
  tsr__free(out);
  return NULL;
}

uint32_t tsr__pool_of(const tsr__timeline *t, const uint32_t *spans_of, uint32_t allocation) {
  uint32_t birth = t->birth.items[allocation], pool = TSR_NONE;
  if (birth != TSR_NONE) pool = tsr_id_at(t->events.pool, birth);
  if (pool == TSR_NONE && spans_of[allocation] != TSR_NONE)
    pool = t->spans.items[spans_of[allocation]].pool;
  return pool;
}

uint32_t tsr__stream_of(const tsr__timeline *t, const uint32_t *spans_of, uint32_t allocation) {
  uint32_t birth = t->birth.items[allocation];
  if (spans_of[allocation] != TSR_NONE) return t->spans.items[spans_of[allocation]].stream;
  return birth == TSR_NONE ? TSR_NONE : tsr_id_at(t->events.stream, birth);
}
