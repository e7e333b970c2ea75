/* list.c - the pools of blocks of a device: see pools.h of this folder.
 *
 * A pool of blocks is an id, a stream and a size class, as a span has them. One pass over the spans in the order of
 * events gives what each pool reserves and when most; one sweep over the allocations what of it is in use, and which
 * stack was the first. */
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"
#include "emit/text.h"
#include "questions/pools/pools.h"
#include "timeline/pools.h"
#include "timeline/sweep.h"

const char *tsr_pools_kind_name(tsr_pools_kind kind) {
  static const char *const names[TSR_POOLS_KIND_COUNT] = {"default", "graph", "handle"};
  return (unsigned)kind < TSR_POOLS_KIND_COUNT ? names[kind] : "default";
}

/* What tells pools of blocks apart. All members are 64 bits wide, since its bytes are compared. */
typedef struct key {
  uint64_t first, second, stream, is_large;
} key;

typedef struct row {
  key key;
  uint32_t number; /* in order of appearance */
} row;

static int compare_numbers(uint64_t a, uint64_t b) {
  return (a > b) - (a < b);
}

static int compare_rows(const void *left, const void *right) {
  const key *a = &((const row *)left)->key, *b = &((const row *)right)->key;
  int order = compare_numbers(a->first, b->first);
  if (!order) order = compare_numbers(a->second, b->second);
  if (!order) order = compare_numbers(a->stream, b->stream);
  return order ? order : compare_numbers(b->is_large, a->is_large);
}

static key key_of(const tsr__timeline *t, const tsr__span *span) {
  tsr_pool pool = {0, 0};
  if (span->pool != TSR_NONE) pool = tsr_snapshot_pool(t->snapshot, span->pool);
  return (key){pool.first, pool.second, tsr_snapshot_stream(t->snapshot, span->stream),
               span->is_large};
}

/* Number the pools: first as they appear, then in the order of the answer. */
static bool number_pools(const tsr__timeline *t, tsr__intern *keys, tsr__pool_list *list,
                         tsr_pools_device *out) {
  list->pool_of_span = TSR__NEW_ARRAY(uint32_t, t->spans.count);
  if (!list->pool_of_span) return false;
  for (size_t i = 0; i < t->spans.count; i++) {
    key k = key_of(t, &t->spans.items[i]);
    list->pool_of_span[i] = tsr__intern_put(keys, &k, sizeof k, NULL);
    if (list->pool_of_span[i] == TSR__INTERN_FULL) return false;
  }
  list->count = keys->count;
  row *rows = TSR__NEW_ARRAY(row, list->count);
  uint32_t *place = TSR__NEW_ARRAY(uint32_t, list->count);
  out->pools = TSR__NEW_ARRAY(tsr_pools_pool, list->count);
  bool ok = rows && place && out->pools;
  for (uint32_t i = 0; ok && i < list->count; i++) {
    memcpy(&rows[i].key, keys->items[i].data, sizeof rows[i].key);
    rows[i].number = i;
  }
  if (ok) tsr__sort(rows, list->count, sizeof *rows, compare_rows);
  for (uint32_t i = 0; ok && i < list->count; i++) {
    const key *k = &rows[i].key;
    place[rows[i].number] = i;
    tsr_pools_kind kind = k->first    ? TSR_POOLS_GRAPH
                          : k->second ? TSR_POOLS_HANDLE
                                      : TSR_POOLS_DEFAULT;
    out->pools[i] = (tsr_pools_pool){.pool = {k->first, k->second},
                                     .stream = k->stream,
                                     .is_large = k->is_large != 0,
                                     .kind = kind,
                                     .stack = TSR_NONE,
                                     .most_reserved_event = -1};
  }
  for (size_t i = 0; ok && i < t->spans.count; i++)
    list->pool_of_span[i] = place[list->pool_of_span[i]];
  if (ok) out->pool_count = list->count;
  tsr__free(rows);
  tsr__free(place);
  return ok;
}

/* ---- what is reserved ---- */

/* A range that grows is a span that ends and one that begins with one event: what counts is the sum after it. */
static bool follow_reserved(const tsr__pool_list *list, tsr_pools_device *out) {
  const tsr__timeline *t = list->timeline;
  tsr__span_change *changes = tsr__timeline_span_changes(t, 0);
  if (!changes) return false;
  for (size_t i = 0; i < 2 * t->spans.count && changes[i].event != INT64_MAX; i++) {
    const tsr__span *span = &t->spans.items[changes[i].span];
    tsr_pools_pool *pool = &out->pools[list->pool_of_span[changes[i].span]];
    if (span->birth != TSR_NONE && span->birth == span->death) continue;
    uint64_t *now = &pool->end_reserved_bytes;
    if (changes[i].is_end) {
      *now = tsr__drop_u64(*now, span->size_bytes);
      continue;
    }
    *now = tsr__sum_u64(*now, span->size_bytes);
    if (*now <= pool->most_reserved_bytes) continue;
    pool->most_reserved_bytes = *now;
    pool->most_reserved_event = changes[i].event;
  }
  tsr__free(changes);
  return true;
}

/* ---- what is in use, and by whom ---- */

typedef struct usage {
  const tsr__pool_list *list;
  const uint32_t *span_of; /* by allocation */
  tsr_pools_device *out;
} usage;

static tsr_pools_pool *pool_of(const usage *u, uint32_t allocation) {
  uint32_t span = u->span_of[allocation];
  return span == TSR_NONE ? NULL : &u->out->pools[u->list->pool_of_span[span]];
}

static uint32_t stack_of(const tsr__timeline *t, uint32_t allocation) {
  uint32_t stack = tsr__timeline_stack(t, allocation);
  return tsr_snapshot_stack(t->snapshot, stack).depth ? stack : TSR_NONE;
}

static void add_block(const usage *u, uint32_t allocation) {
  const tsr__timeline *t = u->list->timeline;
  tsr_pools_pool *pool = pool_of(u, allocation);
  if (!pool) return;
  pool->end_used_bytes = tsr__sum_u64(pool->end_used_bytes, t->block_bytes.items[allocation]);
  if (pool->end_used_bytes > pool->most_used_bytes) pool->most_used_bytes = pool->end_used_bytes;
}

static void drop_block(const usage *u, uint32_t allocation) {
  tsr_pools_pool *pool = pool_of(u, allocation);
  if (!pool) return;
  pool->end_used_bytes =
      tsr__drop_u64(pool->end_used_bytes, u->list->timeline->block_bytes.items[allocation]);
}

static int follow_used(const usage *u, tsr_error *error) {
  const tsr__timeline *t = u->list->timeline;
  tsr__sweep sweep;
  int status = tsr__sweep_begin(t, &sweep, error);
  if (status) return status;
  for (uint32_t i = 0; i < t->initial.count; i++) add_block(u, i);
  while (tsr__sweep_next(&sweep)) {
    if (sweep.died != TSR_NONE) drop_block(u, sweep.died);
    if (sweep.born != TSR_NONE) add_block(u, sweep.born);
  }
  tsr__sweep_release(&sweep);
  return 0;
}

static bool ends_with(tsr_text text, const char *end) {
  tsr_text tail = tsr__text_of(end);
  return text.size_bytes >= tail.size_bytes &&
         !memcmp(text.data + text.size_bytes - tail.size_bytes, tail.data, tail.size_bytes);
}

/* Does a stack show that a CUDA graph is captured? Only some callers stay on the stack during a capture: PyTorch's
 * own for compiled and for wrapped functions, and vLLM's and SGLang's. */
static bool captures(const tsr_snapshot *snapshot, uint32_t stack) {
  static const char *const files[] = {"torch/cuda/graphs.py", "cudagraph_trees.py", "cuda_graph.py",
                                      "cuda_graph_runner.py", "cudagraph_utils.py"};
  tsr_stack frames = tsr_snapshot_stack(snapshot, stack);
  for (uint32_t i = 0; i < frames.depth; i++) {
    tsr_text file =
        tsr_snapshot_string(snapshot, tsr_snapshot_frame(snapshot, frames.frames[i]).file);
    for (size_t k = 0; k < sizeof files / sizeof *files; k++)
      if (ends_with(file, files[k])) return true;
  }
  return false;
}

/* The first stack of each pool, and whether any of its stacks captures. A stack is read once. */
static bool find_owners(const usage *u) {
  const tsr__timeline *t = u->list->timeline;
  uint64_t *largest = TSR__NEW_ARRAY(uint64_t, u->list->count);
  tsr__map seen = {0};
  bool ok = largest != NULL;
  for (uint32_t i = 0; ok && i < t->birth.count; i++) {
    tsr_pools_pool *pool = pool_of(u, i);
    if (!pool) continue;
    uint32_t stack = stack_of(t, i);
    size_t index = (size_t)(pool - u->out->pools);
    if (i < t->initial.count) {
      bool is_largest = stack != TSR_NONE && t->block_bytes.items[i] > largest[index];
      if (is_largest) largest[index] = t->block_bytes.items[i];
      if (is_largest) pool->stack = stack;
    } else if (largest[index] != UINT64_MAX) {
      if (stack != TSR_NONE) pool->stack = stack;
      if (stack != TSR_NONE) largest[index] = UINT64_MAX;
    }
    if (pool->kind != TSR_POOLS_HANDLE || stack == TSR_NONE) continue;
    bool is_new = false;
    ok = tsr__map_put(&seen, (uint64_t)index << 32 | stack, 0, &is_new) != NULL;
    if (is_new && captures(t->snapshot, stack)) pool->kind = TSR_POOLS_GRAPH;
  }
  tsr__map_release(&seen);
  tsr__free(largest);
  return ok;
}

/* The pools of one id are of one kind, whichever of them shows it. */
static void spread_kinds(tsr_pools_device *out) {
  for (size_t i = 0, end; i < out->pool_count; i = end) {
    bool is_graph = false;
    const tsr_pool *id = &out->pools[i].pool;
    for (end = i; end < out->pool_count && out->pools[end].pool.first == id->first &&
                  out->pools[end].pool.second == id->second;
         end++)
      is_graph |= out->pools[end].kind == TSR_POOLS_GRAPH;
    for (size_t k = i; is_graph && k < end; k++) out->pools[k].kind = TSR_POOLS_GRAPH;
  }
}

int tsr__pool_list_make(const tsr__timeline *t, tsr__pool_list *list, tsr_pools_device *out,
                        tsr_error *error) {
  tsr__intern keys;
  tsr__intern_init(&keys);
  *list = (tsr__pool_list){.timeline = t};
  bool ok = number_pools(t, &keys, list, out) && follow_reserved(list, out);
  tsr__intern_release(&keys);
  uint32_t *span_of = ok ? tsr__timeline_spans_of(t) : NULL;
  usage u = {list, span_of, out};
  int status = 0;
  ok = span_of && find_owners(&u);
  if (ok) status = follow_used(&u, error);
  if (ok && !status) spread_kinds(out);
  tsr__free(span_of);
  if (!status && !ok) status = tsr__fail_memory(error);
  return status;
}

void tsr__pool_list_release(tsr__pool_list *list) {
  tsr__free(list->pool_of_span);
  *list = (tsr__pool_list){0};
}
