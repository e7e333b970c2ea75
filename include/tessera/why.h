/* tessera/why.h - why did it run out of memory?
 *
 * PyTorch records an `oom` event when everything it tries has failed: what was asked for, rounded,
 * and what the driver had free. The replay knows the rest of that moment: what was in use and
 * by whom, and what PyTorch had reserved and could not use for this request. From these follows the
 * reason, and from a rerun of the trace (tessera/whatif.h) what would have let the request through.
 *
 * Where no out-of-memory is recorded, the answer is about the moment at which most was reserved.
 */
#ifndef TESSERA_WHY_H
#define TESSERA_WHY_H

#include "tessera/answers.h"
#include "tessera/causes.h"
#include "tessera/whatif.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first of these that holds, `missing` being what the driver had too little. */
typedef enum tsr_why_reason {
  TSR_WHY_NOT_RECORDED, /* the trace has no oom event */
  TSR_WHY_LIMIT,        /* the driver had enough: a limit of the process's own, or of a moment */
  TSR_WHY_FRAGMENTED,   /* cached for such requests and free, but in pieces: enough with what the
                           driver had */
  TSR_WHY_CACHED_ELSEWHERE, /* ... together with what is cached and free for other streams, other
                               pools or the other size class */
  TSR_WHY_PENDING,          /* ... together with freed blocks that wait for another stream */
  TSR_WHY_ROUNDED, /* ... together with what blocks in use hold beyond what was asked for */
  TSR_WHY_OUTSIDE, /* what others than PyTorch hold, beyond 1 GiB, is as much as missing;
                               told only where the capacity is known */
  TSR_WHY_IN_USE,  /* what is in use leaves too little, however it were arranged */
  TSR_WHY_REASON_COUNT
} tsr_why_reason;

/* "fragmented", "in_use", ...; static text, never NULL. */
const char *tsr_why_reason_name(tsr_why_reason reason);

/* Whose free memory a cached block is, seen from the request that failed (from the default stream's
 * large requests, where none did). */
typedef enum tsr_why_cache {
  TSR_WHY_CACHE_OWN,        /* a request such as this may have it */
  TSR_WHY_CACHE_OTHER_SIZE, /* the small pool's for a large request, or the other way round */
  TSR_WHY_CACHE_OTHER_STREAM,
  TSR_WHY_CACHE_OTHER_POOL, /* a private pool's, of a CUDA graph or a MemPool; for a request of one,
                               the default pool's too */
  TSR_WHY_CACHE_COUNT
} tsr_why_cache;

/* "own", "other_stream", ...; static text, never NULL. */
const char *tsr_why_cache_name(tsr_why_cache cache);

/* Free blocks of one sort. */
typedef struct tsr_why_room {
  uint64_t bytes, blocks;
  uint64_t largest_bytes;
  uint64_t
      segment_bytes; /* of `bytes`: in segments wholly free, which the driver could have back */
} tsr_why_room;

/* An oom event of the trace. */
typedef struct tsr_why_oom {
  int64_t event, time_us;
  uint64_t request_bytes; /* rounded, as recorded */
  uint64_t device_free_bytes;
  /* The program got over it: the same stack is served later, or as many bytes in all before the next
   * failure. */
  bool is_recovered;
} tsr_why_oom;

/* The trace up to the failure, on a device as large as what PyTorch could have had there, under
 * other settings. */
typedef struct tsr_why_trial {
  tsr_allocator_settings settings;
  bool is_recorded; /* the settings of the snapshot: these should fail as recorded */
  bool fits;        /* all is served, the request that failed included */
  int64_t
      failed_event; /* where it fails: the oom event, or a request before it; -1 where it fits */
  uint64_t reserved_peak_bytes; /* the most that is reserved up to there */
  uint64_t reserved_bytes;      /* at the end, the request included where it fits */
  uint64_t missing_bytes;       /* where the request fails: what the driver has too little then */
  bool is_given_up;             /* as in tsr_whatif_run */
} tsr_why_trial;

typedef struct tsr_why_device {
  uint32_t device;
  uint64_t event_count;
  tsr_why_reason reason;

  tsr_why_oom *ooms; /* by event */
  size_t oom_count;
  size_t chosen;                /* index of the one that all below is about */
  tsr_moment moment;            /* there; without oom events, where most is reserved */
  uint64_t peak_reserved_bytes; /* of the whole trace */

  /* The request that failed; 0 without. */
  uint64_t request_bytes;     /* rounded; what was asked for can be up to 511 bytes less, or more
                                 with roundup_power2_divisions */
  uint64_t needed_bytes;      /* the segment asked of the driver; pages, in expandable segments */
  uint64_t device_free_bytes; /* what the driver had */
  uint64_t missing_bytes;     /* the difference: no smaller saving suffices. 0: LIMIT */
  uint64_t stream;            /* raw handle */
  tsr_pool pool;
  bool is_expandable; /* the setting, as far as the snapshot tells */
  uint32_t frame;     /* the line that asked, and layer, as in tsr_cause */
  uint32_t layer;
  uint32_t stack;

  uint64_t capacity_bytes; /* as given, else as the sidecar tells it; 0: not known */
  bool is_capacity_told;   /* by the sidecar */
  /* Neither free nor PyTorch's: at the failure, with the capacity known; without a failure when the
   * snapshot was taken, as the sidecar tells it. */
  uint64_t outside_bytes;

  tsr_fragmentation fragmentation;
  tsr_why_room free[TSR_WHY_CACHE_COUNT]; /* by tsr_why_cache */
  uint64_t lost_bytes; /* to rounding and unsplit tails, of what is in use or waits */

  /* What is in use or waits, by blocks: they add up to moment.totals.active_bytes. */
  tsr_kind_share kinds[TSR_KIND_COUNT]; /* largest first */
  size_t kind_count;
  tsr_cause *causes; /* largest first */
  size_t cause_count;
  uint64_t omitted_causes, omitted_bytes; /* left out by tsr_query.top */

  uint64_t trial_capacity_bytes; /* of the trials: what PyTorch could have had at the failure */
  /* What is in use was asked to be this much; where that and the request are more than there was, no
   * setting helps, and none is tried unless tsr_why_options names some. */
  uint64_t asked_bytes;
  bool is_beyond_settings;
  tsr_why_trial *trials; /* those that fit first, by what they reserve; none without oom */
  size_t trial_count;
  tsr_warning *warnings;
  size_t warning_count;
} tsr_why_device;

typedef struct tsr_why {
  tsr_why_device *devices;
  size_t device_count;
} tsr_why;

/* A zeroed struct with `event` -1, or NULL, explains each device's last oom event that the program
 * did not get over, or its last. */
typedef struct tsr_why_options {
  int64_t event;           /* the oom event to explain; -1: as above */
  uint64_t capacity_bytes; /* of the card; 0 = as the sidecar tells it, or not known */
  /* Settings to try; 0 = those of tsr_whatif_default, where any could help. */
  const tsr_allocator_settings *settings;
  size_t setting_count;
} tsr_why_options;

/* Explain each device the query means; with an `event`, each that has an oom event of that number,
 * and TSR_ERROR_ARGUMENT where none has. Time is linear in events, O(log free blocks) each for every
 * setting tried. Fails also with TSR_ERROR_MEMORY. `*out` is the caller's, for tsr_why_free. */
int tsr_why_compute(const tsr_snapshot *snapshot, const tsr_why_options *options,
                    const tsr_query *query, tsr_why **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_why_free(tsr_why *why);

#ifdef __cplusplus
}
#endif
#endif
