/* tessera/whatif.h - what would other allocator settings, or another card, have made of a trace?
 *
 * The recorded requests are given again, in their order, to the allocator model
 * (tessera/allocator.h) under other settings. Memory from before the recording keeps its place:
 * nothing says in what order it was asked for. Where the trace gives segments back to the driver,
 * the model's cache is emptied; under the recorded settings it gives back those segments.
 */
#ifndef TESSERA_WHATIF_H
#define TESSERA_WHATIF_H

#include "tessera/allocator.h"
#include "tessera/answers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A zeroed struct, or NULL, tries the list of tsr_whatif_default on a card without end. */
typedef struct tsr_whatif_options {
  const tsr_allocator_settings *settings; /* to try, besides the recorded ones */
  size_t setting_count;
  uint64_t capacity_bytes; /* memory of the card that PyTorch may have; 0 = unlimited */
} tsr_whatif_options;

/* The trace under one configuration. */
typedef struct tsr_whatif_run {
  tsr_allocator_settings settings;
  bool is_recorded;                /* the settings the snapshot was taken under */
  tsr_moment peak;                 /* the first event after which most is reserved */
  tsr_fragmentation fragmentation; /* there */
  uint64_t end_reserved_bytes, end_segment_count;
  uint64_t flush_count;       /* requests for which the whole cache had to be emptied first */
  bool is_out_of_memory;      /* some request cannot be served */
  tsr_moment out_of_memory;   /* the first such request's event, and the totals when it came */
  uint64_t oom_request_bytes; /* what it asked for */
  uint64_t oom_count;         /* requests that were not served */
  bool is_given_up;           /* searches took too long, as only made files do: all that is said of
                                 the run holds up to some event */
} tsr_whatif_run;

typedef struct tsr_whatif_device {
  uint32_t device;
  uint64_t event_count;
  uint64_t recorded_peak_reserved_bytes; /* what the trace itself reached */
  int64_t recorded_oom_event;            /* its first oom event, or -1; what that asked for; and */
  uint64_t recorded_oom_request_bytes;   /* how many there are */
  uint64_t recorded_oom_count;
  tsr_whatif_run *runs; /* best first: those that fit, by peak reserved */
  size_t run_count;
  /* Segments at the end, and those that the recorded settings give back, address and size. */
  uint64_t segments_recorded, segments_reproduced;
  /* Live when the best configuration first runs out of memory, largest first; none when it fits. */
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
} tsr_whatif;

/* The configurations worth trying, `*count` of them: what PyTorch's documentation and its users
 * recommend against fragmentation. Static; the same in every call. */
const tsr_allocator_settings *tsr_whatif_default(size_t *count);

/* Replay each device the query means under the recorded settings and each other. Time is linear in
 * events (O(log free blocks) each) for every configuration: one that takes longer, as a made file
 * may want, is given up. Fails with TSR_ERROR_MEMORY or
 * _ARGUMENT. */
int tsr_whatif_compute(const tsr_snapshot *snapshot, const tsr_whatif_options *options,
                       const tsr_query *query, tsr_whatif **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_whatif_free(tsr_whatif *whatif);

#ifdef __cplusplus
}
#endif
#endif
