/* queries.c - what the timeline costs once a snapshot is read, and what a live set costs after
 * that.
 *
 *   queries FILE
 *
 * prints one JSON object: seconds for opening, for the replay, and for the slowest of a thousand
 * live sets at events spread over the trace; bytes that the timeline holds an allocation. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <time.h>

#include "timeline/timeline.h"

enum { QUERIES = 1000 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static uint64_t held_bytes(const tsr__timeline *t) {
  return t->initial.capacity * sizeof *t->initial.items +
         t->birth.capacity * sizeof *t->birth.items + t->death.capacity * sizeof *t->death.items +
         t->block_bytes.capacity * sizeof *t->block_bytes.items +
         t->events.count * sizeof *t->allocation_of + t->spans.capacity * sizeof *t->spans.items +
         t->waits.capacity * sizeof *t->waits.items +
         t->checkpoints.capacity * sizeof *t->checkpoints.items +
         t->live_ids.capacity * sizeof *t->live_ids.items;
}

/* The slowest of many live sets; below 0 on failure. */
static double slowest_query(const tsr__timeline *timeline) {
  double slowest = 0;
  for (int i = 0; i < QUERIES; i++) {
    tsr__live_set live = {0};
    double start = now();
    if (tsr__timeline_live(timeline, (int64_t)timeline->events.count * i / QUERIES, &live, NULL))
      return -1;
    double taken = now() - start;
    if (taken > slowest) slowest = taken;
    TSR__VECTOR_FREE(&live);
  }
  return slowest;
}

int main(int argc, char **argv) {
  tsr_snapshot *snapshot = NULL;
  tsr__timeline timeline = {0};
  double start = now();
  if (argc != 2 || tsr_snapshot_open(argv[1], NULL, &snapshot, NULL)) return 1;
  double opened = now();
  if (tsr__timeline_compute(snapshot, 0, false, NULL, &timeline, NULL)) return 1;
  double replayed = now();
  printf(
      "{\"open_s\": %.4f, \"replay_s\": %.4f, \"query_s\": %.6f, \"bytes_per_allocation\": %.1f}\n",
      opened - start, replayed - opened, slowest_query(&timeline),
      (double)held_bytes(&timeline) / (double)(timeline.birth.count ? timeline.birth.count : 1));
  tsr__timeline_release(&timeline);
  tsr_snapshot_free(snapshot);
  return 0;
}
