/* Every allocation of the allocator model fails once. What a failed request leaves must be sound,
 * and the request must succeed when it is made again. */
#include "../unit/test_support.h"
#include "allocator/allocator.h"
#include "oom.h"
#include "tessera/unstable/allocator_state.h"

#define MIB (UINT64_C(1) << 20)

static int worst(int status, int other) {
  return status < 0 ? status : other;
}

/* Blocks of three streams and two pools, some used elsewhere; every second one goes again. */
static int use(tsr_allocator *a) {
  int status = 0;
  uint64_t addresses[120] = {0};
  for (uint64_t i = 0; i < 120; i++) {
    tsr_pool pool = {i % 5 == 0, 0};
    uint64_t bytes = i % 4 ? 1000 * (i + 1) : (i + 1) * MIB / 4;
    int done = tsr_allocator_malloc(a, bytes, i % 3, pool, &addresses[i]);
    status = worst(status, done);
    if (done < 0) done = tsr_allocator_malloc(a, bytes, i % 3, pool, &addresses[i]);
    assert_true(done >= 0);
    assert_null(tsr__heap_check(&a->heap));
  }
  for (uint64_t i = 0; i < 120; i += 2) {
    if (i % 3 == 0) status = worst(status, tsr_allocator_record_stream(a, addresses[i], 7 + i % 2));
    assert_int_equal(tsr_allocator_free(a, addresses[i]), 0);
  }
  status = worst(status, tsr_allocator_empty_cache(a));
  tsr_allocator_visitor visitor = {NULL, NULL, NULL};
  status = worst(status, tsr_allocator_visit(a, &visitor, NULL));
  assert_null(tsr__heap_check(&a->heap));
  return status;
}

static uint64_t place(void *context, uint64_t size_bytes) {
  uint64_t *next = context;
  return *next += size_bytes + 64 * MIB;
}

static int run(void *context) {
  const tsr_allocator_settings *settings = context;
  uint64_t next = 1 << 30;
  tsr_allocator_options options = {.settings = *settings,
                                   .capacity_bytes = 3000 * MIB,
                                   .segment_address = place,
                                   .segment_address_context = &next};
  tsr_allocator *a = NULL;
  int status = tsr_allocator_new(&options, &a, NULL);
  if (status < 0) {
    assert_null(a);
    return status;
  }
  status = use(a);
  tsr_allocator_destroy(a);
  return status;
}

/* A seed that fails changes nothing, so it can be made again. */
static int seed(void *context) {
  const tsr_allocator_settings *settings = context;
  tsr_allocator_options options = {.settings = *settings};
  tsr_allocator *a = NULL;
  int status = tsr_allocator_new(&options, &a, NULL);
  if (status < 0) return status;
  for (uint64_t i = 0; i < 40; i++) {
    tsr_allocator_segment segment = {.address = (100 + i * 50) * MIB,
                                     .total_bytes = 20 * MIB,
                                     .is_large = true,
                                     .is_expandable = i % 8 != 0};
    int done = tsr_allocator_seed_segment(a, &segment, NULL);
    status = worst(status, done);
    if (done < 0) assert_int_equal(tsr_allocator_seed_segment(a, &segment, NULL), 0);
    tsr_allocator_block block = {.address = segment.address + 5 * MIB,
                                 .size_bytes = 6 * MIB,
                                 .state = i % 3 ? TSR_BLOCK_ALLOCATED : TSR_BLOCK_PENDING_FREE};
    done = tsr_allocator_seed_block(a, &block, NULL);
    status = worst(status, done);
    if (done < 0) assert_int_equal(tsr_allocator_seed_block(a, &block, NULL), 0);
    assert_null(tsr__heap_check(&a->heap));
  }
  assert_int_equal(tsr_allocator_now(a).active_bytes, 240 * MIB);
  status = worst(status, use(a));
  tsr_allocator_destroy(a);
  return status;
}

static void plain(void **state) {
  (void)state;
  tsr_allocator_settings settings = {.max_split_bytes = 0};
  tsr_test_oom(run, &settings, 10);
  tsr_test_oom(seed, &settings, 10);
}

static void expandable(void **state) {
  (void)state;
  tsr_allocator_settings settings = {.expandable_segments = true};
  tsr_test_oom(run, &settings, 10);
  tsr_test_oom(seed, &settings, 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plain), cmocka_unit_test(expandable)};
  return cmocka_run_group_tests_name("oom allocator", tests, NULL, NULL);
}
