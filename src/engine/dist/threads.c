/* threads.c - ranks that are threads of one process: each reads what it needs from the others' memory.
 *
 * An operation has two barriers. At the first, each rank publishes the address of its data; then all ranks copy
 * what they need; after the second, each rank may change its data again. A rank that fails while others copy waits
 * until they have finished. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/os.h"
#include "dist/comm.h"

#define NOBODY UINT32_MAX

enum { REASON_BYTES = 160 };

typedef struct place {
  const char *from;
  uint64_t stride_bytes;
} place;

struct tsr__hub {
  tsr__os_mutex mutex; /* guards everything below */
  tsr__os_condition changed;
  uint32_t size, arrived,
      copying; /* arrived: ranks at the current barrier; copying: ranks that read others' memory */
  uint64_t meetings;
  uint32_t gone; /* the first rank that failed or ended, or NOBODY */
  bool has_failed;
  char reason[REASON_BYTES];
  place places[]; /* of each rank */
};

typedef struct member {
  tsr__hub *hub;
  uint32_t rank;
} member;

static int explain(const tsr__hub *hub, tsr_error *error) {
  if (!hub->has_failed)
    return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "rank %u has ended", hub->gone);
  return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "rank %u has failed: %s", hub->gone,
                   hub->reason);
}

/* A barrier: wait for all ranks. Once all have arrived it succeeds, even if a rank leaves afterwards. The caller
 * holds the mutex. */
static int meet(tsr__hub *hub, tsr_error *error) {
  uint64_t before = hub->meetings;
  if (hub->gone != NOBODY) return explain(hub, error);
  if (++hub->arrived == hub->size) {
    hub->arrived = 0;
    hub->meetings++;
    tsr__os_condition_wake_all(&hub->changed);
    return 0;
  }
  while (hub->meetings == before && hub->gone == NOBODY)
    tsr__os_condition_wait(&hub->changed, &hub->mutex);
  return hub->meetings != before ? 0 : explain(hub, error);
}

/* The first barrier: publish that this rank's data is at `from`. On success, the rank may copy. */
static int show(const member *m, const char *from, uint64_t stride_bytes, tsr_error *error) {
  tsr__hub *hub = m->hub;
  tsr__os_mutex_lock(&hub->mutex);
  hub->places[m->rank] = (place){from, stride_bytes};
  int status = meet(hub, error);
  /* Other ranks may have failed in the meantime: they only wait for ranks that are already copying. */
  if (status == 0 && hub->gone != NOBODY) status = explain(hub, error);
  if (status == 0) hub->copying++;
  tsr__os_mutex_unlock(&hub->mutex);
  return status;
}

/* The second barrier. */
static int part(const member *m, tsr_error *error) {
  tsr__hub *hub = m->hub;
  tsr__os_mutex_lock(&hub->mutex);
  if (--hub->copying == 0) tsr__os_condition_wake_all(&hub->changed);
  int status = meet(hub, error);
  tsr__os_mutex_unlock(&hub->mutex);
  return status;
}

static int exchange(void *self, const char *from, uint64_t stride_bytes, char *to,
                    uint64_t size_bytes, tsr_error *error) {
  const member *m = self;
  int status = show(m, from, stride_bytes, error);
  if (status) return status;
  for (uint32_t r = 0; r < m->hub->size; r++) {
    const place *other = &m->hub->places[r];
    memcpy(to + r * size_bytes, other->from + m->rank * other->stride_bytes, (size_t)size_bytes);
  }
  return part(m, error);
}

static int gather(void *self, const char *mine, char *all, uint64_t size_bytes, tsr_error *error) {
  const member *m = self;
  int status = show(m, mine, 0, error);
  if (status) return status;
  for (uint32_t r = 0; r < m->hub->size; r++) {
    const char *from = m->hub->places[r].from;
    if (from != all + r * size_bytes) memcpy(all + r * size_bytes, from, (size_t)size_bytes);
  }
  return part(m, error);
}

static int broadcast(void *self, uint32_t root, char *data, uint64_t size_bytes, tsr_error *error) {
  const member *m = self;
  int status = show(m, data, 0, error);
  if (status) return status;
  if (m->rank != root) memcpy(data, m->hub->places[root].from, (size_t)size_bytes);
  return part(m, error);
}

static int barrier(void *self, tsr_error *error) {
  const member *m = self;
  tsr__os_mutex_lock(&m->hub->mutex);
  int status = meet(m->hub, error);
  tsr__os_mutex_unlock(&m->hub->mutex);
  return status;
}

/* Record that this rank has ended, unless another one was first. When this returns, no rank reads its memory. */
static void leave(const member *m, const char *reason) {
  tsr__hub *hub = m->hub;
  tsr__os_mutex_lock(&hub->mutex);
  if (hub->gone == NOBODY) {
    hub->gone = m->rank;
    hub->has_failed = reason != NULL;
    (void)snprintf(hub->reason, sizeof hub->reason, "%s", reason ? reason : "");
    tsr__os_condition_wake_all(&hub->changed);
  }
  while (hub->copying) tsr__os_condition_wait(&hub->changed, &hub->mutex);
  tsr__os_mutex_unlock(&hub->mutex);
}

static void fail(void *self, const char *reason) {
  leave(self, reason);
}

static void release(void *self) {
  leave(self, NULL);
  tsr__free(self);
}

tsr__hub *tsr__hub_new(uint32_t size) {
  assert(size >= 1 && size <= TSR__COMM_RANKS);
  tsr__hub *hub = tsr__calloc(1, sizeof *hub + size * sizeof(place));
  if (!hub) return NULL;
  hub->size = size;
  hub->gone = NOBODY;
  bool has_mutex = tsr__os_mutex_init(&hub->mutex);
  if (has_mutex && tsr__os_condition_init(&hub->changed)) return hub;
  if (has_mutex) tsr__os_mutex_release(&hub->mutex);
  tsr__free(hub);
  return NULL;
}

int tsr__threads_comm_new(tsr__hub *hub, uint32_t rank, tsr__comm **out, tsr_error *error) {
  static const tsr__comm_backend threads = {"threads", false,   exchange, gather,
                                            broadcast, barrier, fail,     release};
  assert(rank < hub->size);
  member *m = TSR__NEW(member);
  if (!m) return tsr__fail_memory(error);
  m->hub = hub;
  m->rank = rank;
  return tsr__comm_new(&threads, m, rank, hub->size, out, error);
}

void tsr__hub_free(tsr__hub *hub) {
  if (!hub) return;
  assert(!hub->copying);
  tsr__os_condition_release(&hub->changed);
  tsr__os_mutex_release(&hub->mutex);
  tsr__free(hub);
}
