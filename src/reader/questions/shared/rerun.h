/* rerun.h - repeats a recorded trace on the allocator model. */
#ifndef TSR_QUESTIONS_SHARED_RERUN_H
#define TSR_QUESTIONS_SHARED_RERUN_H

#include "base/pool.h"
#include "tessera/unstable/whatif.h"
#include "timeline/timeline.h"

/* What the tail does with an allocation that was made before the failure. */
typedef enum tsr__rerun_fate {
  TSR__FATE_COPIED, /* made again when its event is copied */
  TSR__FATE_ONCE,   /* not made again: it is there */
  TSR__FATE_STALE /* made again; and the one before freed at drop_event, unless a copied free did that */
} tsr__rerun_fate;

/* A guess at what the program would have done after a request that failed: what it did after the same
 * request earlier. Events `first` .. `last` (inclusive, before the failure) are copied, `repeats`
 * times. `lag` is how many allocations are between the earlier request and the failed one, so that
 * allocation n of the earlier time corresponds to allocation n + lag of this time. */
typedef struct tsr__rerun_tail {
  int64_t first, last;
  uint32_t lag;
  uint32_t repeats; /* 0: no tail */
  /* By allocation, of tsr__rerun_fate; or NULL. Borrowed. */
  const uint8_t *fate;
  int64_t drop_event; /* of the copied ones: where what is stale is freed; -1: nowhere */
} tsr__rerun_tail;

/* What the reruns of a question may take together. */
typedef struct tsr__patience {
  uint64_t steps; /* of searches of the allocator; a rerun that needs more is given up */
  tsr__work work; /* stops all reruns when it is cancelled */
} tsr__patience;

/* What becomes of a pool. */
typedef enum tsr__pool_rule {
  TSR__POOL_STAYS,
  TSR__POOL_JOINS, /* it is one with all others that do; the one releases nothing, since one of them is in use */
  TSR__POOL_LEAVES,       /* what is asked of it is asked of the default pool, on its own stream */
  TSR__POOL_LEAVES_STREAM /* ... on the main stream */
} tsr__pool_rule;

/* Options of a rerun. */
typedef struct tsr__rerun_options {
  tsr_allocator_settings settings;
  uint64_t capacity_bytes;
  int64_t until; /* stop after this event; INT64_MAX for all */
  /* Shared with other reruns; what this one took is subtracted. NULL: unlimited, and never stopped. */
  tsr__patience *patience;
  /* Also make the requests of oom events, and free what they get at once: what the program would have
   * done with it is not in the trace. */
  bool asks_failed;
  tsr__rerun_tail tail; /* of tsr__rerun_further */
  /* By id of a pool of the snapshot, of tsr__pool_rule; or NULL: all stay. Borrowed. */
  const uint8_t *pool_rules;
  uint64_t main_stream; /* handle */
} tsr__rerun_options;

/* What tsr__rerun_further found. */
typedef struct tsr__rerun_end {
  bool is_served;      /* the request of `until` */
  bool is_tail_served; /* and all of the tail; true without one */
  uint64_t
      needed_bytes; /* what the first request that failed needed from the driver, otherwise 0 */
  uint64_t reserved_bytes;         /* after the last request, served or not */
  uint64_t request_reserved_bytes; /* after the request of `until` */
  tsr_totals most;                 /* each total's own maximum from the request of `until` on */
} tsr__rerun_end;

/* Run the events of `timeline` through a new allocator. Fills the run's peak, end and out-of-memory
 * parts; `*out_allocator` is in its state after `until`; the caller owns it and may continue with it. Fails with
 * TSR_ERROR_MEMORY, as tsr_allocator_new does, or as tsr__work_stopped when the work is cancelled. */
int tsr__rerun(const tsr__timeline *timeline, const tsr__rerun_options *options,
               tsr_whatif_run *run, tsr_allocator **out_allocator, tsr_error *error);

/* As tsr__rerun, and after `until`, which is an oom event, make its request, and then those of the tail
 * until one fails. Nothing of that is done, and `out->is_served` is false, if the rerun fails or is given up before.
 * Fails as tsr__rerun does. */
int tsr__rerun_further(const tsr__timeline *timeline, const tsr__rerun_options *options,
                       tsr_whatif_run *run, tsr__rerun_end *out, tsr_error *error);

/* What is requested from the driver if no cached block serves a rounded request: a segment, or
 * pages. */
uint64_t tsr__driver_request(const tsr_allocator_settings *settings, uint64_t request_bytes);

/* What PyTorch could certainly have had at an oom event: what it had reserved plus what the driver had
 * free, or what it had reserved earlier, if that is more. If the driver had enough, a limit of the
 * process was in the way, and its free memory does not count. A card's nominal size is larger, by what the
 * driver, CUDA contexts and other processes take. Never 0. Time is linear in events. */
uint64_t tsr__capacity_at(const tsr__timeline *timeline, int64_t oom_event);

/* Begin the reruns of these devices, which the query's hook may stop; in the thread that runs them. Real
 * traces take a few steps per event; in a crafted one each event may search through everything. */
void tsr__rerun_begin(tsr__patience *patience, const tsr_snapshot *snapshot,
                      const uint32_t *devices, size_t count, const tsr_query *query);

#endif
