/* Tests of timeline/pools and questions/shared/pools: what private pools keep, against the model that
 * made the trace. The model's events name pool and stream, so sums over them are the truth. */
#include "questions/shared/pools.h"

#include "base/memory.h"
#include "model_trace.h"
#include "study_support.h"
#include "timeline/pools.h"

enum { POOLS = 4, STREAMS = 8 };

typedef struct truth {
  uint64_t active, reserved, high_water;
} truth;

/* Pools of model_random are (0, 1), (0, 2), ...; streams are told apart by their place in a list. */
typedef struct truths {
  truth of[POOLS][STREAMS];
  uint64_t streams[STREAMS];
  size_t stream_count;
} truths;

static truth *truth_of(truths *all, tsr_pool pool, uint64_t stream) {
  size_t s = 0;
  while (s < all->stream_count && all->streams[s] != stream) s++;
  assert_true(s < STREAMS);
  if (s == all->stream_count) all->streams[all->stream_count++] = stream;
  uint64_t p = pool.first + pool.second;
  assert_true(p < POOLS);
  return &all->of[p][s];
}

static void apply(truths *all, const model_event *e) {
  truth *t = truth_of(all, e->event.pool, e->event.stream);
  switch (e->event.action) {
  case TSR_ACTION_ALLOC: t->active += e->block_bytes; break;
  case TSR_ACTION_FREE_COMPLETED: t->active -= e->block_bytes; break;
  case TSR_ACTION_SEGMENT_ALLOC:
  case TSR_ACTION_SEGMENT_MAP: t->reserved += e->event.size; break;
  case TSR_ACTION_SEGMENT_FREE:
  case TSR_ACTION_SEGMENT_UNMAP: t->reserved -= e->event.size; break;
  default: break;
  }
}

static void note_high_water(truths *all) {
  for (size_t p = 0; p < POOLS; p++)
    for (size_t s = 0; s < STREAMS; s++)
      if (all->of[p][s].reserved > all->of[p][s].high_water)
        all->of[p][s].high_water = all->of[p][s].reserved;
}

static void compare(truths *all, const tsr__timeline *t, int64_t event) {
  tsr__live_set live = {0};
  tsr_private_pool *pools = NULL;
  size_t count = 0, expected = 0;
  assert_int_equal(tsr__timeline_live(t, event, &live, NULL), 0);
  assert_int_equal(tsr__private_pools_at(t, event, &live, &pools, &count, NULL), 0);
  for (size_t p = 1; p < POOLS; p++)
    for (size_t s = 0; s < all->stream_count; s++) expected += all->of[p][s].high_water != 0;
  assert_int_equal(count, expected);
  for (size_t i = 0; i < count; i++) {
    const truth *want = truth_of(all, pools[i].pool, pools[i].stream);
    assert_true(pools[i].pool.first || pools[i].pool.second);
    assert_int_equal(pools[i].active_bytes, want->active);
    assert_int_equal(pools[i].reserved_bytes, want->reserved);
    assert_int_equal(pools[i].high_water_bytes, want->high_water);
    assert_true(pools[i].active_bytes <= pools[i].reserved_bytes);
    assert_true(pools[i].reserved_bytes <= pools[i].high_water_bytes);
  }
  tsr__free(pools);
  TSR__VECTOR_FREE(&live);
}

/* Steps say the same as the answer at their events, and only rise. */
static void check_steps(const tsr__timeline *t) {
  tsr__pool_uses all, then;
  assert_int_equal(tsr__timeline_pools(t, (int64_t)t->events.count - 1, NULL, &all, NULL), 0);
  assert_true(all.uses.count > 0 && all.steps.count >= all.uses.count);
  uint64_t *before = TSR__NEW_ARRAY(uint64_t, all.uses.count);
  assert_non_null(before);
  for (size_t i = 0; i < all.steps.count; i++) {
    const tsr__pool_step *step = &all.steps.items[i];
    if (i) assert_true(all.steps.items[i - 1].event <= step->event);
    assert_true(step->bytes > before[step->use]);
    before[step->use] = step->bytes;
    if (i % 3) continue;
    assert_int_equal(tsr__timeline_pools(t, step->event, NULL, &then, NULL), 0);
    const tsr__pool_use *use = &all.uses.items[step->use];
    uint32_t same = tsr__pool_uses_find(&then, t, use->pool, use->stream);
    assert_int_not_equal(same, TSR_NONE);
    assert_int_equal(then.uses.items[same].high_water_bytes, step->bytes);
    tsr__pool_uses_release(&then);
  }
  for (size_t u = 0; u < all.uses.count; u++)
    assert_int_equal(before[u], all.uses.items[u].high_water_bytes);
  tsr__free(before);
  tsr__pool_uses_release(&all);
}

/* A trace of which the first `cut` events are lost: what was reserved then is where marks begin. */
static void check_program(const model_program *program, uint64_t cut, bool drops_pool_id) {
  model_trace m = {0};
  truths all = {0};
  tsr__timeline t = {0};
  model_random(&m, program);
  model_form form = {.cut_events = cut, .drops_pool_id = drops_pool_id};
  tsr_snapshot *snapshot = model_snapshot(&m, 1, &form);
  assert_int_equal(tsr__timeline_compute(snapshot, 0, false, NULL, &t, NULL), 0);
  for (uint64_t i = 0; i < cut; i++) apply(&all, &m.events.items[i]);
  note_high_water(&all);
  if (!cut) compare(&all, &t, -1);
  for (uint64_t i = cut; i < m.events.count; i++) {
    apply(&all, &m.events.items[i]);
    note_high_water(&all);
    if (i % 17 == 0 || i + 1 == m.events.count) compare(&all, &t, (int64_t)(i - cut));
  }
  check_steps(&t);
  tsr__timeline_release(&t);
  tsr_snapshot_free(snapshot);
  model_release(&m);
}

static void whole_traces(void **state) {
  (void)state;
  check_program(&(model_program){.operations = 1500, .seed = 1, .pools = 3}, 0, false);
  check_program(&(model_program){.operations = 1500, .seed = 2, .pools = 2, .streams = 3}, 0,
                false);
  check_program(&(model_program){.operations = 1500,
                                 .seed = 3,
                                 .pools = 2,
                                 .streams = 2,
                                 .ends_pools = true,
                                 .empty_one_in = 100},
                0, false);
  check_program(&(model_program){.operations = 1500,
                                 .seed = 4,
                                 .pools = 2,
                                 .streams = 1,
                                 .conf = "expandable_segments:True",
                                 .empty_one_in = 100},
                0, false);
}

/* Events of older releases do not name pools; the final segments do. */
static void without_pools_of_events(void **state) {
  (void)state;
  check_program(&(model_program){.operations = 1200, .seed = 5, .pools = 2}, 0, true);
  check_program(
      &(model_program){
          .operations = 1200, .seed = 6, .pools = 2, .conf = "expandable_segments:True"},
      0, true);
}

/* Blocks that live before the window count with less than their size where nothing tells it, so that
 * only what has no such blocks is compared: pools whose requests are all split. */
static void late_recording(void **state) {
  (void)state;
  check_program(&(model_program){.operations = 1500,
                                 .seed = 7,
                                 .pools = 2,
                                 .streams = 1,
                                 .conf = "expandable_segments:True"},
                900, false);
}

/* A pool keeps what it once took although nothing is live in it. */
static void keeps(void **state) {
  (void)state;
  model_trace m = {0};
  tsr__timeline t = {0};
  tsr__live_set live = {0};
  tsr_private_pool *pools = NULL;
  size_t count = 0;
  tsr_pool graph = {0, 7};
  model_start(&m, &(model_program){.pools = 1});
  assert_int_equal(tsr_allocator_pool_begin(m.allocator, graph), 0);
  uint32_t large = model_malloc(&m, 300 * MODEL_MIB, 0, graph);
  uint32_t small = model_malloc(&m, 100 * MODEL_MIB, 0, graph);
  (void)model_malloc(&m, 50 * MODEL_MIB, 0, (tsr_pool){0, 0});
  model_free(&m, large, 0);
  model_empty(&m);
  model_free(&m, small, 0);
  tsr_snapshot *snapshot = model_snapshot(&m, 1, NULL);
  assert_int_equal(tsr__timeline_compute(snapshot, 0, false, NULL, &t, NULL), 0);
  int64_t last = (int64_t)t.events.count - 1;
  assert_int_equal(tsr__timeline_live(&t, last, &live, NULL), 0);
  assert_int_equal(tsr__private_pools_at(&t, last, &live, &pools, &count, NULL), 0);
  assert_int_equal(count, 1);
  assert_int_equal(pools[0].pool.second, 7);
  assert_int_equal(pools[0].active_bytes, 0);
  assert_int_equal(pools[0].reserved_bytes, 400 * MODEL_MIB);
  assert_int_equal(pools[0].high_water_bytes, 400 * MODEL_MIB);
  tsr__free(pools);
  TSR__VECTOR_FREE(&live);
  tsr__timeline_release(&t);
  tsr_snapshot_free(snapshot);
  model_release(&m);
}

/* Most files have none, and then nothing is counted. */
static void none(void **state) {
  (void)state;
  model_trace m = {0};
  tsr__timeline t = {0};
  tsr__live_set live = {0};
  tsr_private_pool *pools = NULL;
  size_t count = 0;
  model_random(&m, &(model_program){.operations = 200, .seed = 8, .streams = 2});
  tsr_snapshot *snapshot = model_snapshot(&m, 1, NULL);
  assert_int_equal(tsr__timeline_compute(snapshot, 0, false, NULL, &t, NULL), 0);
  assert_int_equal(tsr__private_pools_at(&t, 100, &live, &pools, &count, NULL), 0);
  assert_null(pools);
  assert_int_equal(count, 0);
  tsr__timeline_release(&t);
  tsr_snapshot_free(snapshot);
  model_release(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_traces), cmocka_unit_test(without_pools_of_events),
      cmocka_unit_test(late_recording), cmocka_unit_test(keeps), cmocka_unit_test(none)};
  return cmocka_run_group_tests_name("private_pools", tests, NULL, NULL);
}
