/* count_replays.c - tessera itself, which prints at its end how often it replayed a trace.
 *
 * The linker sends the library's calls of tsr__timeline_compute here (--wrap). One line on standard
 * error, "replays: N", for replays.py. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "timeline/timeline.h"

int __real_tsr__timeline_compute(const tsr_snapshot *snapshot, uint32_t device,
                                 bool checks_placement, tsr__thread_pool *pool, tsr__timeline *out,
                                 tsr_error *error);
int __wrap_tsr__timeline_compute(const tsr_snapshot *snapshot, uint32_t device,
                                 bool checks_placement, tsr__thread_pool *pool, tsr__timeline *out,
                                 tsr_error *error);

static atomic_int count;

static void print_count(void) {
  fprintf(stderr, "replays: %d\n", atomic_load(&count));
}

int __wrap_tsr__timeline_compute(const tsr_snapshot *snapshot, uint32_t device,
                                 bool checks_placement, tsr__thread_pool *pool, tsr__timeline *out,
                                 tsr_error *error) {
  if (!atomic_fetch_add(&count, 1)) (void)atexit(print_count);
  return __real_tsr__timeline_compute(snapshot, device, checks_placement, pool, out, error);
}
