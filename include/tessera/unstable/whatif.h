/* tessera/unstable/whatif.h - what would other allocator settings, or another card, have done with a trace?
 *
 * The recorded requests are repeated, in their order, on the allocator model
 * (tessera/allocator.h) under other settings. Memory from before the recording keeps its place,
 * because the order of its requests is unknown. When the trace releases segments to the driver,
 * the model's cache is emptied; under the recorded settings exactly those segments are released.
 * A request that failed in the recorded run is repeated too; if it is served here, it is freed at once,
 * because what the program would have done next is not in the trace.
 */
#ifndef TESSERA_UNSTABLE_WHATIF_H
#define TESSERA_UNSTABLE_WHATIF_H

#include "tessera/allocator.h"
#include "tessera/unstable/answers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A zeroed struct, or NULL, tries the list of tsr_whatif_default. */
typedef struct tsr_whatif_options {
  const tsr_allocator_settings *settings; /* to try, in addition to the recorded ones */
  size_t setting_count;
  /* Memory of the card that PyTorch may use; 0 = what it had, if the trace ran out of memory, and
   * otherwise unlimited. */
  uint64_t capacity_bytes;
  /* Of capacity_bytes, what the process holds outside of PyTorch's allocator: this, or what the snapshot's sidecar has of each device. */
  uint64_t outside_bytes;
  bool is_outside_recorded;
} tsr_whatif_options;

/* The trace under one configuration. */
typedef struct tsr_whatif_run {
  tsr_allocator_settings settings;
  bool is_recorded;                /* the settings the snapshot was taken under */
  tsr_moment peak;                 /* the first event after which most is reserved */
  tsr_fragmentation fragmentation; /* at the peak */
  uint64_t end_reserved_bytes, end_segment_count;
  uint64_t flush_count;       /* requests for which the whole cache had to be emptied first */
  bool is_out_of_memory;      /* some request cannot be served; false: it fits */
  tsr_moment out_of_memory;   /* the first such request's event, and the totals when it came */
  uint64_t oom_request_bytes; /* what it asked for */
  uint64_t oom_count;         /* requests that were not served */
  bool is_given_up;           /* searches took too long, as only crafted files cause: the numbers of
                                 this run cover only its first events */
} tsr_whatif_run;

/* Why the runs' reserved memory cannot be compared with that of the recording. */
typedef enum tsr_whatif_doubt {
  TSR_WHATIF_COMPARABLE,       /* it can */
  TSR_WHATIF_NO_EVENTS,        /* there is nothing to repeat */
  TSR_WHATIF_RESERVED_BEFORE,  /* most was reserved before the first event, where that is unknown */
  TSR_WHATIF_RESERVED_UNKNOWN, /* more is in use than the file has segments for */
  TSR_WHATIF_DOUBT_COUNT
} tsr_whatif_doubt;

/* "comparable", "no_events", "reserved_before", "reserved_unknown"; static text, never NULL. */
const char *tsr_whatif_doubt_name(tsr_whatif_doubt doubt);

typedef struct tsr_whatif_device {
  uint32_t device;
  uint64_t event_count;
  tsr_whatif_doubt doubt;
  uint64_t recorded_peak_reserved_bytes; /* the peak in the trace itself */
  tsr_moment recorded_peak;              /* the event after which most is allocated */
  int64_t recorded_oom_event;            /* its first oom event, or -1; */
  bool is_end_failure; /* nothing was allocated after the last oom event: the trace ends there */
  uint64_t recorded_oom_request_bytes; /* the size of that request; and the number of oom events */
  uint64_t recorded_oom_count;
  /* What PyTorch had at the last oom event: reserved, or free on the device. 0 without one. */
  uint64_t recorded_capacity_bytes;
  uint64_t
      capacity_bytes; /* that the runs had: as given, less the next, or the above; 0 = unlimited */
  uint64_t outside_bytes;    /* of the capacity that was given, not PyTorch's */
  bool is_capacity_inferred; /* it is the above */
  tsr_whatif_run *runs;      /* best first: those that fit, by peak reserved */
  size_t run_count;
  /* Segments at the end, and those reproduced under the recorded settings, with address and size. */
  uint64_t segments_recorded, segments_reproduced;
  /* Live when the best configuration first runs out of memory, largest first; none if it fits. */
  tsr_stack_share *stacks;
  size_t stack_count;
  uint64_t omitted_stacks, omitted_bytes;
  tsr_warning *warnings;
  size_t warning_count;
} tsr_whatif_device;

typedef struct tsr_whatif {
  uint64_t capacity_bytes;
  tsr_whatif_device *devices;
  size_t device_count;
  bool
      leaves_host; /* the snapshot has pinned host memory too, of which this question is not asked */
} tsr_whatif;

/* The configurations worth trying, `*count` entries: what PyTorch's documentation and its users
 * recommend against fragmentation. Static; the same in every call. */
const tsr_allocator_settings *tsr_whatif_default(size_t *count);

/* Replay each device that the query selects under the recorded settings and each of the others. Time
 * is linear in events (O(log free blocks) each) for every configuration; one that takes longer, as a
 * crafted file may cause, is given up. Fails with TSR_ERROR_MEMORY or _ARGUMENT. */
int tsr_whatif_compute(tsr_study *study, const tsr_whatif_options *options, const tsr_query *query,
                       tsr_whatif **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_whatif_free(tsr_whatif *whatif);

#ifdef __cplusplus
}
#endif
#endif
