/* Ranks as threads: sums in the order of ranks, whatever the parts; failures reach everyone. */
#include "dist/comm.h"

#include <stdio.h>

#include "base/os.h"
#include "comm_support.h"
#include "test_support.h"

typedef struct rank {
  tsr__comm *comm;
  bool (*check)(tsr__comm *comm, comm_room *room);
  comm_room room;
  bool ok;
  tsr_error error;
} rank;

static void run_rank(void *context) {
  rank *r = context;
  r->ok = r->check(r->comm, &r->room);
  tsr__comm_free(r->comm);
}

static rank ranks[COMM_MOST];

static void run(uint32_t size, bool (*check)(tsr__comm *comm, comm_room *room)) {
  tsr__os_thread *threads[COMM_MOST];
  tsr__hub *hub = tsr__hub_new(size);
  assert_non_null(hub);
  for (uint32_t i = 0; i < size; i++) {
    ranks[i] = (rank){.check = check};
    assert_int_equal(tsr__threads_comm_new(hub, i, &ranks[i].comm, NULL), 0);
  }
  for (uint32_t i = 0; i < size; i++) {
    threads[i] = tsr__os_thread_start(run_rank, &ranks[i]);
    assert_non_null(threads[i]);
  }
  for (uint32_t i = 0; i < size; i++) tsr__os_thread_join(threads[i]);
  for (uint32_t i = 0; i < size; i++)
    if (!ranks[i].ok) fail_msg("rank %u of %u", i, size);
  tsr__hub_free(hub);
}

static void run_sizes(bool (*check)(tsr__comm *comm, comm_room *room)) {
  for (uint32_t size = 1; size <= COMM_MOST; size += size > 3 ? 4 : 1) run(size, check);
}

static bool sums(tsr__comm *g, comm_room *room) {
  static const uint64_t parts[] = {COMM_SHARD, 1, 64, COMM_SHARD - 1};
  bool ok = true;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    ok &= comm_sums(g, room, parts[i], false) && comm_sums(g, room, parts[i], true);
  return ok;
}

static void test_sums(void **state) {
  (void)state;
  run_sizes(sums);
}

static void test_sums_of_halves(void **state) {
  (void)state;
  run_sizes(comm_sums_halves);
}

static void test_broadcasts(void **state) {
  (void)state;
  run_sizes(comm_broadcasts);
}

static void test_counts(void **state) {
  (void)state;
  run_sizes(comm_counts);
}

/* The last rank fails in the middle; the others' operations do, too, and name it. */
static bool fails(tsr__comm *g, comm_room *room) {
  bool is_last = tsr__comm_rank(g) + 1 == tsr__comm_size(g);
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  char expected[64];
  if (!comm_sums(g, room, 64, true)) return false;
  if (is_last) {
    tsr__comm_fail(g, "its disk is full");
    return true;
  }
  int status = 0;
  while (status == 0) status = tsr__comm_wait(g, tsr__comm_barrier(g), &error);
  (void)snprintf(expected, sizeof expected, "rank %u has failed: its disk is full",
                 tsr__comm_size(g) - 1);
  tsr_error again = {.offset = TSR_OFFSET_NONE};
  bool is_same = tsr__comm_wait(g, tsr__comm_barrier(g), &again) == status &&
                 strcmp(again.message, error.message) == 0;
  return status == TSR_ERROR_IO && is_same && strcmp(error.message, expected) == 0;
}

static void test_a_rank_that_fails(void **state) {
  (void)state;
  for (uint32_t size = 2; size <= 4; size++)
    for (int i = 0; i < 20; i++) run(size, fails);
}

/* Rank 0 ends while others still need it. */
static bool ends(tsr__comm *g, comm_room *room) {
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  if (!comm_sums(g, room, COMM_SHARD, false)) return false;
  if (tsr__comm_rank(g) == 0) return true;
  return tsr__comm_wait(g, tsr__comm_barrier(g), &error) == TSR_ERROR_IO &&
         strcmp(error.message, "rank 0 has ended") == 0;
}

static void test_a_rank_that_ends(void **state) {
  (void)state;
  for (int i = 0; i < 20; i++) run(3, ends);
}

static void test_dry(void **state) {
  tsr__comm *g;
  (void)state;
  assert_int_equal(tsr__dry_comm_new(3, 64, &g, NULL), 0);
  assert_int_equal(tsr__comm_rank(g), 3);
  tsr__reduction sum = {.count = 1000, .staging_count = 7, .dtype = TSR__DTYPE_BF16};
  (void)tsr__comm_reduce_scatter(g, &sum);
  assert_int_equal(tsr__comm_wait(g, tsr__comm_all_gather(g, NULL, NULL, 500), NULL), 0);
  assert_int_equal(tsr__comm_sent_bytes(g), 63 * 2000 + 63 * 500);
  tsr__comm_free(g);
}

static void test_a_hub_of_nothing(void **state) {
  (void)state;
  tsr__hub_free(NULL);
  tsr__comm_free(NULL);
  tsr__hub_free(tsr__hub_new(1));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sums),
      cmocka_unit_test(test_sums_of_halves),
      cmocka_unit_test(test_broadcasts),
      cmocka_unit_test(test_counts),
      cmocka_unit_test(test_a_rank_that_fails),
      cmocka_unit_test(test_a_rank_that_ends),
      cmocka_unit_test(test_dry),
      cmocka_unit_test(test_a_hub_of_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
