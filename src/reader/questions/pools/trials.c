/* trials.c - what the trace would have reserved if its private pools were one, or were not there.
 *
 * Each trial repeats the whole trace on the model (shared/rerun.h) with rules for pools. Graphs can share a pool if
 * they are replayed in the order in which they were captured, one at a time. Without its own pool, what a graph's
 * capture allocated comes from the default pool of the main stream; but the trace has only the requests of captures,
 * none of replays, which then would allocate too: such a figure is the least that it could be. */
#include <assert.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"
#include "columns/tables.h"
#include "questions/pools/pools.h"

enum { MOST_SINGLE = 8 }; /* pools that are left out one at a time: those that reserve most */

/* A private pool: all pools of blocks of one id. */
typedef struct owner {
  tsr_pool id;
  bool is_graph;
  uint64_t bytes; /* the most that its pools reserved, together */
} owner;

typedef TSR__VECTOR(owner) owners;

static bool is_same(tsr_pool a, tsr_pool b) {
  return a.first == b.first && a.second == b.second;
}

/* The private pools; the pools of one id are neighbours. */
static bool list_owners(const tsr_pools_device *device, owners *out) {
  for (size_t i = 0; i < device->pool_count; i++) {
    const tsr_pools_pool *pool = &device->pools[i];
    if (!pool->pool.first && !pool->pool.second) continue;
    if (!out->count || !is_same(out->items[out->count - 1].id, pool->pool)) {
      if (!TSR__VECTOR_PUSH(out, (owner){.id = pool->pool})) return false;
    }
    owner *last = &out->items[out->count - 1];
    last->is_graph = pool->kind == TSR_POOLS_GRAPH;
    last->bytes = tsr__sum_u64(last->bytes, pool->most_reserved_bytes);
  }
  return true;
}

static int compare_owners(const void *left, const void *right) {
  const owner *a = left, *b = right;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
  if (a->id.first != b->id.first) return a->id.first < b->id.first ? -1 : 1;
  return (a->id.second > b->id.second) - (a->id.second < b->id.second);
}

/* The stream whose default pools reserve most. */
static uint64_t main_stream(const tsr_pools_device *device) {
  uint64_t stream = 0, most = 0;
  for (size_t i = 0; i < device->pool_count; i++) {
    const tsr_pools_pool *pool = &device->pools[i];
    if (pool->kind != TSR_POOLS_DEFAULT || pool->most_reserved_bytes <= most) continue;
    most = pool->most_reserved_bytes;
    stream = pool->stream;
  }
  return stream;
}

static tsr__pool_rule leaving_rule(const owner *one) {
  return one->is_graph ? TSR__POOL_LEAVES_STREAM : TSR__POOL_LEAVES;
}

/* The rule of one pool of the snapshot under a trial. */
static tsr__pool_rule rule_for(const tsr_pools_trial *trial, const owners *all, tsr_pool id) {
  for (size_t i = 0; i < all->count; i++) {
    const owner *one = &all->items[i];
    if (!is_same(one->id, id)) continue;
    if (trial->is_shared) return TSR__POOL_JOINS;
    return trial->is_all || is_same(trial->pool, id) ? leaving_rule(one) : TSR__POOL_STAYS;
  }
  return TSR__POOL_STAYS;
}

static int try_rules(const tsr__pool_list *list, const owners *all, tsr__rerun_options *how,
                     uint8_t *rules, tsr_pools_trial *trial, tsr_error *error) {
  const tsr_snapshot *snapshot = list->timeline->snapshot;
  tsr_whatif_run run = {.is_recorded = false};
  tsr_allocator *allocator = NULL;
  for (uint32_t i = 0; i < snapshot->pools.count; i++)
    rules[i] = (uint8_t)rule_for(trial, all, tsr_snapshot_pool(snapshot, i));
  how->pool_rules = rules;
  int status = tsr__rerun(list->timeline, how, &run, &allocator, error);
  tsr_allocator_destroy(allocator);
  trial->peak_reserved_bytes = run.peak.totals.reserved_bytes;
  trial->is_given_up = run.is_given_up;
  return status;
}

/* As `whatif` asks: with nothing to repeat, or with most reserved before the recording, figures say nothing. */
static bool can_compare(const tsr__timeline *t) {
  return t->events.count && t->reserved_event >= 0 &&
         t->at_peak.allocated_bytes <= t->at_peak.reserved_bytes;
}

static void list_trials(const owners *all, tsr_pools_device *out) {
  bool has_graph = false;
  for (size_t i = 0; i < all->count; i++) has_graph |= all->items[i].is_graph;
  if (all->count > 1) out->trials[out->trial_count++] = (tsr_pools_trial){.is_shared = true};
  if (all->count > 1)
    out->trials[out->trial_count++] = (tsr_pools_trial){.is_all = true, .is_least = has_graph};
  for (size_t i = 0; i < all->count && i < MOST_SINGLE; i++)
    out->trials[out->trial_count++] =
        (tsr_pools_trial){.pool = all->items[i].id, .is_least = all->items[i].is_graph};
}

int tsr__pool_trials(const tsr__pool_list *list, tsr__patience *patience, tsr_pools_device *out,
                     tsr_error *error) {
  const tsr__timeline *t = list->timeline;
  owners all = {0};
  if (!can_compare(t)) return 0;
  bool ok = list_owners(out, &all);
  tsr__sort(all.items, all.count, sizeof *all.items, compare_owners);
  uint8_t *rules = NULL;
  if (ok && all.count) {
    out->trials = TSR__NEW_ARRAY(tsr_pools_trial, 2 + MOST_SINGLE);
    rules = TSR__NEW_ARRAY(uint8_t, t->snapshot->pools.count);
    ok = out->trials && rules;
  }
  int status = ok ? 0 : tsr__fail_memory(error);
  if (!status && all.count) {
    tsr__rerun_options how = {.settings = t->settings,
                              .until = INT64_MAX,
                              .patience = patience,
                              .main_stream = main_stream(out)};
    list_trials(&all, out);
    for (size_t i = 0; !status && i < out->trial_count; i++)
      status = try_rules(list, &all, &how, rules, &out->trials[i], error);
  }
  tsr__free(rules);
  TSR__VECTOR_FREE(&all);
  return status;
}
