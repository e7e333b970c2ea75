/* open_all.c - several files at the same time, one thread for each as far as there are processors.
 *
 * Reading one file keeps one processor busy, nearly: its second thread only copies bytes. Two files of
 * a comparison take half the time on two processors. The files know nothing of each other, so there
 * is nothing to share but the pool. */
#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "base/pool.h"
#include "tessera/unstable/columns.h"

static void open_one(tsr_opening *o) {
  o->status = tsr_snapshot_open(o->path, &o->options, &o->snapshot, &o->error);
  assert(!o->status == !!o->snapshot);
}

/* A failure is that file's alone, and so none of the pool's. */
static int run(void *context, size_t index, tsr_error *error) {
  (void)error;
  open_one((tsr_opening *)context + index);
  return 0;
}

/* Standard input can be read once, and by one thread. */
static bool has_pipe(const tsr_opening *openings, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(openings[i].path, "-") == 0) return true;
  return false;
}

void tsr_snapshot_open_all(tsr_opening *openings, size_t count) {
  bool is_parallel = count > 1 && !has_pipe(openings, count);
  tsr_error ignored;
  for (size_t i = 0; i < count; i++) {
    openings[i].snapshot = NULL;
    openings[i].error = (tsr_error){.offset = TSR_OFFSET_NONE};
  }
  tsr__thread_pool *pool = is_parallel ? tsr__thread_pool_new(0) : NULL;
  (void)tsr__thread_pool_each(pool, NULL, count, run, openings, &ignored);
  tsr__thread_pool_free(pool);
}
