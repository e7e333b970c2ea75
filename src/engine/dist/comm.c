/* comm.c - a rank's operations, which its thread executes in order. See comm.h.
 *
 *   begin ─► queue ─► thread: exchange ─► sum in the order of ranks ─► done += 1
 *                                                     wait ◄────────────┘
 *
 * The queue is a ring: an operation that starts while it is full waits for the oldest one to finish. */
#include "dist/comm.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/os.h"
#include "kernels/half.h"

enum { QUEUE = 64, TILE = 1024 };

typedef enum kind { REDUCE_SCATTER, GATHER, BROADCAST, BARRIER } kind;

typedef struct work {
  kind kind;
  tsr__reduction sum;
  const void *mine;
  void *all;
  uint64_t size_bytes;
  uint32_t root;
} work;

struct tsr__comm {
  const tsr__comm_backend *backend;
  void *self;
  uint32_t rank, size;
  tsr__os_thread *thread;
  tsr__os_mutex mutex; /* guards everything below */
  tsr__os_condition changed;
  work queue[QUEUE];
  tsr__ticket begun, done;
  uint64_t sent_bytes;
  bool is_ending;
  int status; /* the first failure of an operation */
  tsr_error error;
};

uint32_t tsr__comm_rank(const tsr__comm *comm) {
  return comm->rank;
}

uint32_t tsr__comm_size(const tsr__comm *comm) {
  return comm->size;
}

/* ---- sums ---- */

static float number_at(const char *data, tsr__dtype dtype, size_t i) {
  if (dtype == TSR__DTYPE_F32) return ((const float *)(const void *)data)[i];
  uint16_t bits = ((const uint16_t *)(const void *)data)[i];
  return dtype == TSR__DTYPE_BF16 ? tsr__bf16_to_float(bits) : tsr__f16_to_float(bits);
}

static void put_number(char *data, tsr__dtype dtype, size_t i, float number) {
  if (dtype == TSR__DTYPE_F32)
    ((float *)(void *)data)[i] = number;
  else
    ((uint16_t *)(void *)data)[i] =
        dtype == TSR__DTYPE_BF16 ? tsr__bf16_of_float(number) : tsr__f16_of_float(number);
}

/* to[i] = parts[0][i] + parts[1][i] + ..., in that order. Parts are `count` elements each. */
static void sum_in_order(const char *parts, uint32_t ranks, uint64_t count, tsr__dtype dtype,
                         char *to) {
  float sum[TILE];
  size_t each = tsr__dtype_bytes(dtype);
  for (uint64_t first = 0; first < count; first += TILE) {
    size_t some = count - first < TILE ? (size_t)(count - first) : TILE;
    for (size_t i = 0; i < some; i++) sum[i] = number_at(parts + first * each, dtype, i);
    for (uint32_t r = 1; r < ranks; r++) {
      const char *part = parts + (r * count + first) * each;
      for (size_t i = 0; i < some; i++) sum[i] += number_at(part, dtype, i);
    }
    for (size_t i = 0; i < some; i++) put_number(to + first * each, dtype, i, sum[i]);
  }
}

static int reduce_scatter(const tsr__comm *g, const tsr__reduction *r, tsr_error *error) {
  uint64_t each = tsr__dtype_bytes(r->dtype);
  const char *from = r->from;
  char *to = r->to, *staging = r->staging;
  int status = 0;
  for (uint64_t at = 0, count; status == 0 && at < r->count; at += count) {
    count = r->count - at < r->staging_count ? r->count - at : r->staging_count;
    const char *part = g->backend->is_dry ? NULL : from + at * each;
    status = g->backend->exchange(g->self, part, r->count * each, staging, count * each, error);
    if (status == 0 && !g->backend->is_dry)
      sum_in_order(staging, g->size, count, r->dtype, to + at * each);
  }
  return status;
}

/* ---- the thread ---- */

static int make(const tsr__comm *g, const work *w, tsr_error *error) {
  switch (w->kind) {
  case REDUCE_SCATTER: return reduce_scatter(g, &w->sum, error);
  case GATHER: return g->backend->gather(g->self, w->mine, w->all, w->size_bytes, error);
  case BROADCAST: return g->backend->broadcast(g->self, w->root, w->all, w->size_bytes, error);
  case BARRIER: break;
  }
  return g->backend->barrier(g->self, error);
}

/* The bytes that a rank sends, over links that send each byte once to each rank that needs it. */
static uint64_t bytes_of(const tsr__comm *g, const work *w) {
  uint64_t others = g->size - 1;
  switch (w->kind) {
  case REDUCE_SCATTER: return others * w->sum.count * tsr__dtype_bytes(w->sum.dtype);
  case GATHER: return others * w->size_bytes;
  case BROADCAST: return g->rank == w->root ? others * w->size_bytes : 0;
  case BARRIER: break;
  }
  return 0;
}

/* Wait for the next operation of the queue; false if there will be no more. The caller holds the mutex. */
static bool next(tsr__comm *g) {
  while (g->done == g->begun && !g->is_ending) tsr__os_condition_wait(&g->changed, &g->mutex);
  return g->done != g->begun;
}

static void make_all(void *context) {
  tsr__comm *g = context;
  tsr__os_mutex_lock(&g->mutex);
  while (next(g)) {
    work w = g->queue[g->done % QUEUE];
    tsr_error error = {.offset = TSR_OFFSET_NONE};
    int status = g->status;
    tsr__os_mutex_unlock(&g->mutex);
    bool is_made = status == 0; /* after a failure, the other ranks have stopped */
    if (is_made) status = make(g, &w, &error);
    tsr__os_mutex_lock(&g->mutex);
    if (is_made && status) g->status = status, g->error = error;
    if (!status) g->sent_bytes += bytes_of(g, &w);
    g->done++;
    tsr__os_condition_wake_all(&g->changed);
  }
  tsr__os_mutex_unlock(&g->mutex);
}

/* ---- operations ---- */

static tsr__ticket begin(tsr__comm *g, const work *w) {
  tsr__os_mutex_lock(&g->mutex);
  while (g->begun - g->done == QUEUE) tsr__os_condition_wait(&g->changed, &g->mutex);
  g->queue[g->begun % QUEUE] = *w;
  tsr__ticket ticket = ++g->begun;
  tsr__os_condition_wake_all(&g->changed);
  tsr__os_mutex_unlock(&g->mutex);
  return ticket;
}

tsr__ticket tsr__comm_reduce_scatter(tsr__comm *comm, const tsr__reduction *what) {
  assert(what->dtype == TSR__DTYPE_F32 || what->dtype == TSR__DTYPE_BF16 ||
         what->dtype == TSR__DTYPE_F16);
  assert(what->staging_count >= 1 || !what->count);
  return begin(comm, &(work){.kind = REDUCE_SCATTER, .sum = *what});
}

tsr__ticket tsr__comm_all_gather(tsr__comm *comm, const void *mine, void *all,
                                 uint64_t size_bytes) {
  return begin(comm, &(work){.kind = GATHER, .mine = mine, .all = all, .size_bytes = size_bytes});
}

tsr__ticket tsr__comm_broadcast(tsr__comm *comm, uint32_t root, void *data, uint64_t size_bytes) {
  assert(root < comm->size);
  return begin(comm,
               &(work){.kind = BROADCAST, .root = root, .all = data, .size_bytes = size_bytes});
}

tsr__ticket tsr__comm_barrier(tsr__comm *comm) {
  return begin(comm, &(work){.kind = BARRIER});
}

int tsr__comm_wait(tsr__comm *g, tsr__ticket ticket, tsr_error *error) {
  tsr__os_mutex_lock(&g->mutex);
  assert(ticket <= g->begun);
  while (g->done < ticket) tsr__os_condition_wait(&g->changed, &g->mutex);
  int status = g->status;
  if (status && error) *error = g->error;
  tsr__os_mutex_unlock(&g->mutex);
  return status;
}

tsr__ticket tsr__comm_begun(tsr__comm *comm) {
  tsr__os_mutex_lock(&comm->mutex);
  tsr__ticket begun = comm->begun;
  tsr__os_mutex_unlock(&comm->mutex);
  return begun;
}

void tsr__comm_fail(tsr__comm *comm, const char *reason) {
  comm->backend->fail(comm->self, reason);
}

uint64_t tsr__comm_sent_bytes(const tsr__comm *comm) {
  return comm->sent_bytes;
}

/* ---- communicators ---- */

static bool init_locks(tsr__comm *g) {
  if (!tsr__os_mutex_init(&g->mutex)) return false;
  if (tsr__os_condition_init(&g->changed)) return true;
  tsr__os_mutex_release(&g->mutex);
  return false;
}

static void release_locks(tsr__comm *g) {
  tsr__os_condition_release(&g->changed);
  tsr__os_mutex_release(&g->mutex);
}

int tsr__comm_new(const tsr__comm_backend *backend, void *self, uint32_t rank, uint32_t size,
                  tsr__comm **out, tsr_error *error) {
  assert(size >= 1 && size <= TSR__COMM_RANKS && rank < size);
  tsr__comm *g = TSR__NEW(tsr__comm);
  if (g && !init_locks(g)) {
    tsr__free(g);
    g = NULL;
  }
  if (g) {
    g->backend = backend, g->self = self, g->rank = rank, g->size = size;
    g->thread = tsr__os_thread_start(make_all, g);
  }
  if (g && g->thread) {
    *out = g;
    return 0;
  }
  if (g) release_locks(g);
  tsr__free(g);
  backend->release(self);
  return tsr__fail_memory(error);
}

void tsr__comm_free(tsr__comm *g) {
  if (!g) return;
  tsr__os_mutex_lock(&g->mutex);
  g->is_ending = true;
  tsr__os_condition_wake_all(&g->changed);
  tsr__os_mutex_unlock(&g->mutex);
  tsr__os_thread_join(g->thread);
  release_locks(g);
  g->backend->release(g->self);
  tsr__free(g);
}
