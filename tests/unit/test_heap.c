/* Tests of allocator/heap.h. */
#include "allocator/heap.h"
#include "test_support.h"

#define MIB (UINT64_C(1) << 20)

static const tsr_allocator_settings defaults;
static const tsr__heap_segment large = {.is_large = true, .owner = TSR_NONE};

static tsr__heap_block *block(tsr__heap *heap, uint32_t index) {
  return &heap->blocks.items[index];
}

static uint32_t add(tsr__heap *heap, uint64_t address, uint64_t size_bytes) {
  uint32_t segment = tsr__heap_add_segment(heap, address, size_bytes, &large);
  assert_int_not_equal(segment, TSR_NONE);
  return heap->segments.items[segment].first;
}

static uint32_t fit(tsr__heap *heap, uint64_t size_bytes) {
  return tsr__heap_best_fit(heap, 0, true, 0, size_bytes);
}

static void cuts_and_joins(void **state) {
  (void)state;
  for (int has_sets = 0; has_sets < 2; has_sets++) {
    tsr__heap heap;
    tsr__heap_init(&heap, &defaults, has_sets);
    uint32_t first = add(&heap, MIB, 20 * MIB);
    first = tsr__heap_take(&heap, first, 2 * MIB, 100);
    uint32_t second = tsr__heap_find(&heap, 3 * MIB);
    assert_int_equal(block(&heap, second)->size_bytes, 18 * MIB);
    second = tsr__heap_take(&heap, second, 3 * MIB, 200);
    uint32_t third = tsr__heap_find(&heap, 6 * MIB);
    assert_int_equal(block(&heap, third)->use, TSR__BLOCK_FREE);
    assert_int_equal(tsr__heap_find(&heap, 4 * MIB), TSR_NONE);
    assert_int_equal(tsr__heap_find_inside(&heap, 0, 4 * MIB), second);
    assert_int_equal(tsr__heap_find_inside(&heap, 0, 20 * MIB), third);
    assert_int_equal(tsr__heap_find_inside(&heap, 0, 21 * MIB), TSR_NONE);
    assert_null(tsr__heap_check(&heap));
    assert_int_equal(tsr__heap_give_back(&heap, first, TSR__BLOCK_FREE), first);
    assert_null(tsr__heap_check(&heap));
    assert_int_equal(tsr__heap_give_back(&heap, second, TSR__BLOCK_FREE), first);
    assert_int_equal(block(&heap, first)->size_bytes, 20 * MIB);
    assert_int_equal(heap.by_address.count, 1);
    assert_null(tsr__heap_check(&heap));
    tsr__heap_remove_segment(&heap, 0);
    assert_int_equal(heap.by_address.count, 0);
    assert_null(tsr__heap_check(&heap));
    (void)add(&heap, MIB, 2 * MIB); /* indices are used again */
    assert_int_equal(heap.segments.count, 1);
    assert_null(tsr__heap_check(&heap));
    tsr__heap_release(&heap);
  }
}

static void finds_the_best_fit(void **state) {
  (void)state;
  tsr__heap heap;
  tsr__heap_init(&heap, &defaults, true);
  assert_int_equal(fit(&heap, 1), TSR_NONE);
  uint32_t four = add(&heap, 100 * MIB, 4 * MIB), eight = add(&heap, 200 * MIB, 8 * MIB);
  uint32_t low_four = add(&heap, 50 * MIB, 4 * MIB);
  tsr__heap_segment other = {.is_large = true, .stream = 1};
  assert_int_not_equal(tsr__heap_add_segment(&heap, 10 * MIB, 6 * MIB, &other), TSR_NONE);
  assert_int_equal(fit(&heap, 4 * MIB), low_four);
  assert_int_equal(fit(&heap, 4 * MIB + 1), eight);
  assert_int_equal(fit(&heap, 8 * MIB + 1), TSR_NONE);
  assert_int_equal(tsr__heap_best_fit(&heap, 0, false, 0, 1), TSR_NONE);
  assert_int_equal(tsr__heap_best_fit(&heap, 1, true, 0, 1), TSR_NONE);
  assert_int_equal(tsr__heap_best_fit(&heap, 0, true, 2, 1), TSR_NONE);

  const tsr__free_set *set = tsr__heap_free_set(&heap, 0, true);
  uint32_t order[] = {low_four, four, eight, TSR_NONE};
  uint32_t at = tsr__heap_lower_bound(&heap, set, 0, 0);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(at, order[i]);
    uint32_t next = tsr__heap_successor(&heap, set, at);
    if (i < 2) assert_int_equal(tsr__heap_predecessor(&heap, set, next), at);
    at = next;
  }
  assert_int_equal(heap.segments.items[block(&heap, at)->segment].stream, 1);
  assert_int_equal(tsr__heap_last_before(&heap, set, 0, 8 * MIB), four);
  assert_int_equal(tsr__heap_last_before(&heap, set, 0, 4 * MIB), TSR_NONE);
  assert_int_equal(tsr__heap_last_before(&heap, set, 1, 0), eight);
  assert_null(tsr__heap_check(&heap));
  tsr__heap_release(&heap);
}

static void ages_free_blocks(void **state) {
  (void)state;
  tsr__heap heap;
  tsr__heap_init(&heap, &defaults, true);
  tsr__heap_count_search(&heap, 0, true); /* no set yet */
  uint32_t a = add(&heap, 100 * MIB, 4 * MIB);
  tsr__heap_count_search(&heap, 0, true);
  tsr__heap_count_search(&heap, 0, false);
  uint32_t b = add(&heap, 200 * MIB, 4 * MIB);
  assert_int_equal(tsr__heap_free_set(&heap, 0, true)->searches, 1);
  assert_int_equal(block(&heap, a)->cached_at, 0);
  assert_int_equal(block(&heap, b)->cached_at, 1);
  tsr__heap_release(&heap);
}

/* Mapping fills gaps, from both ends; unmapping makes them. */
static void maps_and_unmaps(void **state) {
  (void)state;
  for (int has_sets = 0; has_sets < 2; has_sets++) {
    tsr__heap heap;
    tsr__heap_init(&heap, &defaults, has_sets);
    uint32_t r = tsr__heap_reservation(&heap, &large, 100 * MIB, 20 * MIB);
    assert_int_equal(tsr__heap_reservation(&heap, &large, 160 * MIB, 20 * MIB), r);
    assert_int_equal(tsr__heap_reservation(&heap, &large, 40 * MIB, 20 * MIB), r);
    assert_true(tsr__heap_map(&heap, r, 100 * MIB, 20 * MIB));
    assert_true(tsr__heap_map(&heap, r, 160 * MIB, 20 * MIB)); /* after a gap */
    assert_true(tsr__heap_map(&heap, r, 40 * MIB, 20 * MIB));  /* before one */
    assert_null(tsr__heap_check(&heap));
    assert_int_equal(heap.segments.items[r].address, 40 * MIB);
    assert_int_equal(heap.segments.items[r].size_bytes, 140 * MIB);
    assert_true(tsr__heap_take(&heap, tsr__heap_find(&heap, 100 * MIB), 5 * MIB, 1) != TSR_NONE);
    assert_true(tsr__heap_map(&heap, r, 60 * MIB, 120 * MIB)); /* all of it */
    assert_null(tsr__heap_check(&heap));
    assert_int_equal(block(&heap, tsr__heap_find(&heap, 40 * MIB))->size_bytes, 60 * MIB);
    assert_int_equal(block(&heap, tsr__heap_find(&heap, 105 * MIB))->size_bytes, 75 * MIB);
    /* What is taken stays. */
    assert_int_equal(tsr__heap_unmap(&heap, r, 50 * MIB, 100 * MIB), 95 * MIB);
    assert_null(tsr__heap_check(&heap));
    assert_int_equal(block(&heap, tsr__heap_find(&heap, 50 * MIB))->use, TSR__BLOCK_UNMAPPED);
    assert_int_equal(block(&heap, tsr__heap_find(&heap, 150 * MIB))->size_bytes, 30 * MIB);
    assert_true(tsr__heap_map(&heap, r, 0, 0));
    tsr__heap_remove_segment(&heap, r);
    assert_int_equal(heap.by_address.count, 0);
    assert_null(tsr__heap_check(&heap));
    tsr__heap_release(&heap);
  }
}

static void maps_by_block(void **state) {
  (void)state;
  tsr__heap heap;
  tsr_allocator_settings settings = {.expandable_segments = true};
  tsr__heap_init(&heap, &settings, true);
  uint32_t r = tsr__heap_add_reservation(&heap, 100 * MIB, 90 * MIB, &large);
  assert_null(tsr__heap_check(&heap));
  uint32_t all = heap.segments.items[r].first;
  assert_int_equal(tsr__heap_lower_bound(&heap, tsr__heap_unmapped_set(&heap, 0, true), 0, 0), all);
  assert_int_equal(fit(&heap, 1), TSR_NONE);
  uint32_t front = tsr__heap_map_front(&heap, all, 20 * MIB);
  assert_int_equal(fit(&heap, 20 * MIB), front);
  uint32_t rest = block(&heap, front)->next;
  assert_int_equal(tsr__heap_map_front(&heap, rest, 20 * MIB), front); /* joined */
  assert_int_equal(fit(&heap, 40 * MIB), front);
  uint32_t gap = tsr__heap_unmap_inside(&heap, front, 110 * MIB, 120 * MIB);
  assert_int_equal(block(&heap, gap)->address, 110 * MIB);
  assert_int_equal(fit(&heap, 11 * MIB), block(&heap, gap)->next);
  assert_null(tsr__heap_check(&heap));
  assert_int_equal(tsr__heap_successor(&heap, tsr__heap_unmapped_set(&heap, 0, true), gap),
                   tsr__heap_find(&heap, 140 * MIB));
  assert_true(tsr__heap_reserve(&heap, r, 100 * MIB, 200 * MIB)); /* further */
  assert_int_equal(heap.segments.items[r].size_bytes, 200 * MIB);
  assert_null(tsr__heap_check(&heap));
  (void)tsr__heap_map_front(&heap, gap, 10 * MIB); /* the whole gap: both neighbours join */
  assert_int_equal(block(&heap, fit(&heap, 40 * MIB))->address, 100 * MIB);
  (void)tsr__heap_unmap_inside(&heap, fit(&heap, 1), 100 * MIB, 140 * MIB);
  assert_int_equal(block(&heap, heap.segments.items[r].first)->next, TSR_NONE);
  assert_null(tsr__heap_check(&heap));
  tsr__heap_release(&heap);
}

/* A check that finds nothing checks nothing. */
static void check_finds(void **state) {
  (void)state;
  tsr__heap heap;
  tsr__heap_init(&heap, &defaults, true);
  uint32_t first = add(&heap, MIB, 20 * MIB);
  first = tsr__heap_take(&heap, first, 2 * MIB, 1);
  assert_true(tsr__heap_take(&heap, block(&heap, first)->next, 18 * MIB, 1) != TSR_NONE);
  assert_null(tsr__heap_check(&heap));
  block(&heap, first)->size_bytes--;
  assert_string_equal(tsr__heap_check(&heap), "blocks do not add up to their segment");
  block(&heap, first)->size_bytes++;
  block(&heap, first)->use = TSR__BLOCK_FREE;
  assert_string_equal(tsr__heap_check(&heap), "a free block is in no set, or in two");
  block(&heap, first)->use = TSR__BLOCK_TAKEN;
  heap.segments.items[0].last = first;
  assert_string_equal(tsr__heap_check(&heap), "a segment's last block is not its last");
  tsr__heap_release(&heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cuts_and_joins),   cmocka_unit_test(finds_the_best_fit),
      cmocka_unit_test(ages_free_blocks), cmocka_unit_test(maps_and_unmaps),
      cmocka_unit_test(maps_by_block),    cmocka_unit_test(check_finds),
  };
  return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
