/* tessera/unstable/why.h - why did it run out of memory?
 *
 * PyTorch records an `oom` event when everything it tries has failed, with the rounded request
 * and the driver's free memory. The replay knows the rest of that moment: which memory was in use and
 * which code allocated it, and what PyTorch had reserved but could not use for this request. These give
 * the reason; a rerun of the trace (tessera/unstable/whatif.h) shows what would have let the request through.
 *
 * If no out-of-memory is recorded, the answer describes the moment at which most was reserved.
 */
#ifndef TESSERA_UNSTABLE_WHY_H
#define TESSERA_UNSTABLE_WHY_H

#include "tessera/unstable/answers.h"
#include "tessera/unstable/attribution.h"
#include "tessera/unstable/card.h"
#include "tessera/unstable/causes.h"
#include "tessera/unstable/findings.h"
#include "tessera/unstable/whatif.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first of these that applies; `missing` is how much more the driver would have needed. */
typedef enum tsr_why_reason {
  TSR_WHY_NOT_RECORDED, /* the trace has no oom event */
  TSR_WHY_LIMIT, /* the driver had enough: the process has its own limit, or the shortage was brief */
  TSR_WHY_FRAGMENTED, /* memory cached for such requests is free, but in pieces; together with the
                           driver's it would be enough */
  TSR_WHY_CACHED_ELSEWHERE, /* ... together with what is cached and free for other streams, other
                               pools or the other size class */
  TSR_WHY_PENDING,          /* ... together with freed blocks that wait for another stream */
  TSR_WHY_ROUNDED,          /* ... together with what blocks in use hold beyond their requests */
  TSR_WHY_OUTSIDE, /* first of all if the ledger names a part outside PyTorch that holds an eighth of the
                      card, and more than is free in PyTorch's cache. Otherwise: of the card, PyTorch lacked more than drivers, CUDA contexts and libraries
                      usually take (1 GiB and a sixteenth), by at least the missing bytes; found only
                      if the capacity is known; or the ledger names a cause */
  TSR_WHY_IN_USE,  /* what is in use, or would have been by what came next, leaves too little in any
                      arrangement */
  TSR_WHY_UNKNOWN, /* more is in use than the file has segments for, so what was cached is unknown */
  TSR_WHY_REASON_COUNT
} tsr_why_reason;

/* "fragmented", "in_use", ...; static text, never NULL. */
const char *tsr_why_reason_name(tsr_why_reason reason);

/* Whether the request that failed could use a free cached block, and if not, why. Without a failure,
 * for large requests on the default stream. */
typedef enum tsr_why_cache {
  TSR_WHY_CACHE_OWN,        /* the request may use it */
  TSR_WHY_CACHE_OTHER_SIZE, /* in the small pool for a large request, or the other way round */
  TSR_WHY_CACHE_OTHER_STREAM,
  TSR_WHY_CACHE_OTHER_POOL, /* in the private pool of a CUDA graph or a MemPool; for a request from
                               such a pool, also in the default pool */
  TSR_WHY_CACHE_COUNT
} tsr_why_cache;

/* "own", "other_stream", ...; static text, never NULL. */
const char *tsr_why_cache_name(tsr_why_cache cache);

/* Free blocks of one tsr_why_cache. */
typedef struct tsr_why_room {
  uint64_t bytes, blocks;
  uint64_t largest_bytes;
  uint64_t
      segment_bytes; /* of `bytes`: in entirely free segments, which could be released to the driver */
} tsr_why_room;

/* An oom event of the trace. */
typedef struct tsr_why_oom {
  int64_t event, time_us;
  uint64_t request_bytes; /* rounded, as recorded */
  uint64_t device_free_bytes;
  /* The program recovered: the same stack is served later, or as many bytes in total before the next
   * failure, or its step still reached its end. */
  bool is_recovered;
} tsr_why_oom;

/* The trace up to the failure, under other settings, on a device with the memory that was available
 * to PyTorch. */
typedef struct tsr_why_trial {
  tsr_allocator_settings settings;
  bool is_recorded;     /* the settings of the snapshot: these should fail as recorded */
  bool fits;            /* all requests are served, including the one that failed */
  int64_t failed_event; /* where it fails: the oom event, or an earlier request; -1 if it fits */
  uint64_t reserved_peak_bytes; /* peak reserved up to there */
  uint64_t reserved_bytes;      /* at the end, including the request if it fits */
  uint64_t missing_bytes;       /* if the request fails: how much more the driver would need */
  bool is_given_up;             /* as in tsr_whatif_run */
  /* After the request, also what tsr_why_outlook expects. `is_rest_known` is false if it expects
   * nothing, or the request itself fails. */
  bool is_rest_known, is_rest_served;
  uint64_t rest_missing_bytes; /* if it is not served: what its first failure lacks */
} tsr_why_trial;

/* ---- what would have come after the request ---- */

/* Where an expectation comes from. All are estimates. */
typedef enum tsr_why_basis {
  TSR_WHY_BASIS_NONE,   /* nothing in the trace shows what would have come */
  TSR_WHY_BASIS_BLOCKS, /* earlier blocks of the same forward, and the number of blocks */
  TSR_WHY_BASIS_STEP,   /* an earlier step, from the same request on */
  TSR_WHY_BASIS_STATES, /* the state that the optimizer makes in its first step: it does not fit */
  TSR_WHY_BASIS_COUNT
} tsr_why_basis;

/* "none", "blocks", "earlier_step", "optimizer_state"; static text, never NULL. */
const char *tsr_why_basis_name(tsr_why_basis basis);

/* How the run would have gone on if the request had been served. The trace ends soon after a failure,
 * so this is what the program did after the same request earlier: in its previous step, or in the
 * previous blocks of this forward. */
typedef struct tsr_why_outlook {
  tsr_why_basis basis;
  tsr_phase phase; /* at the failure */
  uint64_t
      step; /* of the recording, from 1, as `tessera steps` counts; 0 if it is in none that the trace shows */
  tsr_steps_unit unit; /* ITERATION: nothing runs backward */
  int64_t like_event;  /* the earlier request; -1 if absent */
  /* Repeated blocks of this forward that had begun, and their total by the number of equal
   * parameters; 0 if unknown. `block_bytes` is what each keeps. */
  uint64_t blocks_begun, block_count, block_bytes;
  /* Allocated memory grows by this much from one step to the next, always at this request; 0 if it does
   * not, or fewer than three steps show it. */
  uint64_t step_growth_bytes;
  /* With a basis: the most that would have been allocated, and requested, from here to the end of what
   * the basis covers, on a card without limit. */
  uint64_t peak_bytes, asked_bytes;
  uint64_t
      short_bytes; /* asked_bytes beyond trial_capacity_bytes: no setting helps if it is not 0 */
} tsr_why_outlook;

/* A change that would help. */
typedef enum tsr_why_change {
  TSR_WHY_CHANGE_SETTINGS,   /* PYTORCH_CUDA_ALLOC_CONF */
  TSR_WHY_CHANGE_BATCH,      /* fewer sequences or samples at a time */
  TSR_WHY_CHANGE_CHECKPOINT, /* recompute the blocks' activations in backward */
  TSR_WHY_CHANGE_GROWTH,     /* stop what grows from step to step */
  TSR_WHY_CHANGE_MODEL, /* a smaller model or optimizer state, or sharding: no batch is small enough */
  TSR_WHY_CHANGE_OUTSIDE, /* less of what holds the card outside PyTorch: outside_causes */
  TSR_WHY_CHANGE_COUNT
} tsr_why_change;

/* "settings", "batch", "checkpoint", "growth", "model", "outside"; static text, never NULL. */
const char *tsr_why_change_name(tsr_why_change change);

typedef struct tsr_why_advice {
  tsr_why_change change;
  bool is_enough;                  /* the run should finish (an estimate); false: not known */
  tsr_allocator_settings settings; /* SETTINGS */
  uint32_t batch_percent;          /* BATCH: of the recorded one, at most; 0 if unknown */
  /* Allocated with this change, at most about so much; 0 if unknown. MODEL: what parameters, gradients and the
   * optimizer's state take. */
  uint64_t peak_bytes;
  /* MODEL: what the optimizer's step may take in addition: PyTorch's default copies all parameters, fused=True
   * and foreach=False do not. */
  uint64_t update_bytes;
  /* BATCH, MODEL: the optimizer is taken for Adam, since the trace shows no whole step of it. */
  bool is_adam_assumed;
} tsr_why_advice;

/* Who holds the card outside PyTorch, by the ledger (tessera/unstable/card.h). */
typedef struct tsr_why_outside {
  tsr_card_kind kind;
  const char *name; /* of the group, library or process; else "" */
  uint64_t pid;     /* of another process */
  uint64_t ranks;   /* of a group; 0: not recorded */
  uint64_t bytes;
  uint64_t grew_bytes; /* since the second step, or the first quarter of the samples */
  bool is_steady;      /* it grew in each quarter of the time since */
} tsr_why_outside;

/* Why a part of that is the cause. */
typedef enum tsr_why_outside_sort {
  TSR_WHY_OUTSIDE_PROCESS,
  TSR_WHY_OUTSIDE_GROUPS, /* all groups together */
  TSR_WHY_OUTSIDE_GROWTH, /* what it grew by is enough */
  TSR_WHY_OUTSIDE_CONTEXT,
  TSR_WHY_OUTSIDE_REST, /* nobody accounts for it */
  TSR_WHY_OUTSIDE_SORTS
} tsr_why_outside_sort;

typedef struct tsr_why_outside_cause {
  tsr_why_outside_sort sort;
  uint32_t part;        /* of the device's `outside`: the largest of its kind, or what grew most */
  uint64_t bytes;       /* what it holds with others of its kind; of GROWTH, what it grew by */
  uint64_t usual_bytes; /* what such a part may take in any run */
} tsr_why_outside_cause;

typedef struct tsr_why_device {
  uint32_t device;
  uint64_t event_count;
  bool
      has_history; /* false: at most one event changes what is allocated, so the file shows one moment */
  bool is_partial; /* the file lacks a part that was recorded, so figures are approximate */
  tsr_why_reason
      reason; /* of the failure: as request_reason, but TSR_WHY_IN_USE if memory lay free that
                                    would not have been enough for what came next (outlook.short_bytes) */
  tsr_why_reason request_reason; /* of this request alone */

  tsr_why_oom *ooms; /* by event */
  size_t oom_count;
  size_t chosen;                 /* index of the one that is explained below */
  tsr_moment moment;             /* of that one; without oom events, when most is reserved */
  uint64_t peak_reserved_bytes;  /* of the whole trace */
  int64_t allocated_event;       /* when most is allocated, which the findings are about */
  uint64_t most_allocated_bytes; /* then */

  /* The request that failed; 0 if none did. */
  uint64_t request_bytes; /* rounded; the original can be up to 511 bytes less, or even smaller
                                 with roundup_power2_divisions */
  uint64_t needed_bytes;  /* the segment requested from the driver; pages, in expandable segments */
  uint64_t device_free_bytes; /* what the driver had */
  uint64_t missing_bytes;     /* the difference: the minimum that must be saved. 0: LIMIT */
  uint64_t stream;            /* raw handle */
  tsr_pool pool;
  bool is_expandable; /* the setting, as far as it is in the snapshot */
  /* max_split_size_mb keeps a free block that is large enough for larger requests. */
  bool is_kept_whole;
  uint64_t
      exceeded_reserve_bytes; /* expandable_segments_reserve, if the request exceeds it; otherwise 0 */
  uint32_t frame;             /* the line that asked, and layer, as in tsr_cause */
  uint32_t layer;
  uint32_t stack;

  uint64_t capacity_bytes;       /* as given, otherwise from the sidecar; 0: unknown */
  bool is_capacity_from_sidecar; /* it is from the sidecar */
  /* Memory that is not free and not PyTorch's: at the failure, if the capacity is known; without a
   * failure, when the snapshot was taken, from the sidecar. */
  uint64_t outside_bytes;
  /* Of it, by the last sample of the ledger up to then; largest first. NULL without a ledger. */
  tsr_why_outside *outside;
  size_t outside_count;
  uint64_t
      asleep_bytes; /* of what PyTorch has reserved: in sleeping pools then, and not on the card */
  int64_t outside_us; /* the time of that sample; TSR_TIME_NONE without one */
  /* What explains the failure, best first: each holds as much as was missing, and more than is usual. */
  tsr_why_outside_cause outside_causes[TSR_WHY_OUTSIDE_SORTS];
  size_t outside_cause_count;
  tsr_cards *ledger; /* what the names above are from */

  tsr_fragmentation fragmentation;
  tsr_private_pool *private_pools; /* then, by pool and stream */
  size_t private_pool_count;
  bool is_flat; /* from a list of allocations and frees: no segments, so no allocator to repeat */
  tsr_why_room free[TSR_WHY_CACHE_COUNT]; /* by tsr_why_cache */
  uint64_t lost_bytes; /* to rounding and unsplit tails: the sum of the two in `fragmentation` */

  /* What is in use or waits: `bytes` add up to moment.totals.requested_bytes, `block_bytes` to
   * active_bytes. */
  tsr_category_share categories[TSR_CATEGORY_COUNT]; /* largest first */
  size_t category_count;
  tsr_cause *causes; /* largest first */
  size_t cause_count;
  tsr_named *names; /* of all causes; NULL if the program named nothing */
  uint64_t omitted_causes, omitted_bytes, omitted_block_bytes; /* omitted by tsr_query.top */

  uint64_t trial_capacity_bytes; /* of the trials: what PyTorch could have had at the failure */
  /* Requested bytes of what is in use. If that plus the request is more than was available, no
   * setting helps (is_beyond_settings), and none is tried unless tsr_why_options names some. */
  uint64_t asked_bytes;
  bool is_beyond_settings;
  tsr_why_outlook outlook; /* basis NONE if the program recovered: the trace shows how it went on */
  tsr_why_advice advice[TSR_WHY_CHANGE_COUNT]; /* those that are enough first */
  size_t advice_count;
  tsr_finding *findings; /* what the program does at the peak that costs memory; NULL without any */
  size_t finding_count;
  tsr_why_trial *trials; /* those that fit first, by reserved bytes; none without oom */
  size_t trial_count;
  tsr_warning *warnings;
  size_t warning_count;
} tsr_why_device;

typedef struct tsr_why {
  tsr_why_device *devices;
  size_t device_count;
  tsr_imbalance imbalance;
} tsr_why;

/* A zeroed struct with `event` -1, or NULL, explains each device's last oom event from which the
 * program did not recover, or else its last. */
typedef struct tsr_why_options {
  int64_t event;           /* the oom event to explain; -1: as above */
  uint64_t capacity_bytes; /* of the card; 0 = from the sidecar, or unknown */
  /* Settings to try; count 0 = those of tsr_whatif_default, if any could help. */
  const tsr_allocator_settings *settings;
  size_t setting_count;
} tsr_why_options;

/* Explain each device that the query selects; with an `event`, each that has an oom event of that
 * number, or TSR_ERROR_ARGUMENT if none has. Time is linear in events, O(log free blocks) each for
 * every setting tried. Also fails with TSR_ERROR_MEMORY. The caller owns `*out` and passes it to
 * tsr_why_free. */
int tsr_why_compute(tsr_study *study, const tsr_why_options *options, const tsr_query *query,
                    tsr_why **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_why_free(tsr_why *why);

#ifdef __cplusplus
}
#endif
#endif
