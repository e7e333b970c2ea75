/* tessera/unstable/ledger.h - what a card's memory was used for while a program ran: the ledger of the card.
 *
 * PyTorch's own counters say what PyTorch has. nvidia-smi shows more: CUDA's context, NCCL's buffers, what libraries
 * allocate themselves, other processes. tessera.record samples all of it (docs/card.md) and writes the samples to the
 * sidecar, under the key "card"; they are kept with the snapshot, also where tessera writes one.
 *
 * Pointers live as long as the snapshot. A column is NULL where no sample has a value; a value that is not known is
 * TSR_LEDGER_UNKNOWN. Known values are below 2^50, so that sums of them cannot overflow. */
#ifndef TESSERA_UNSTABLE_LEDGER_H
#define TESSERA_UNSTABLE_LEDGER_H

#include "tessera/unstable/columns.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_LEDGER_UNKNOWN UINT64_MAX

/* What a library took when it was first used: cuBLAS, cuDNN. */
typedef struct tsr_ledger_library {
  const char *name, *from; /* "first_use"; "" if not recorded */
  uint64_t bytes;
  int64_t since_us; /* counted from then on; 0: always */
} tsr_ledger_library;

/* A process group with memory of its own on the device. */
typedef struct tsr_ledger_communicator {
  const char *name, *backend;
  const char *from; /* "stats" or "first_collective"; "" if not recorded */
  uint64_t ranks;   /* 0: not recorded */
  bool is_suspended;
  const uint64_t *bytes; /* by sample */
} tsr_ledger_communicator;

/* Another process on the device, as NVML lists it. */
typedef struct tsr_ledger_process {
  uint64_t pid;          /* 0: several small ones */
  const char *name;      /* "" if not recorded */
  const uint64_t *bytes; /* by sample */
} tsr_ledger_process;

/* A device. Samples are in the order of their times. */
typedef struct tsr_ledger {
  uint32_t device;
  const char *name, *uuid; /* "" if not recorded */
  uint64_t total_bytes;
  uint64_t driver_bytes;    /* what the driver itself reserves */
  uint64_t context_bytes;   /* of this process's CUDA context */
  const char *context_from; /* "nvml", "first_use" or "" */
  const tsr_ledger_library *libraries;
  size_t library_count;
  const tsr_ledger_communicator *communicators;
  size_t communicator_count;
  const tsr_ledger_process *processes;
  size_t process_count;
  const char *const *marks;
  size_t mark_count;

  size_t sample_count;
  const int64_t *time_us;
  const uint32_t *mark;            /* of `marks`, or TSR_NONE: taken by the timer */
  const uint64_t *used_bytes;      /* of the whole card: total - free */
  const uint64_t *allocated_bytes; /* by PyTorch's counters */
  const uint64_t *reserved_bytes;
  const uint64_t *private_pool_bytes; /* of reserved: in private pools */
  const uint64_t
      *unmapped_bytes; /* of reserved: in sleeping pools, whose memory is not on the card */
  const uint64_t *process_bytes; /* all that this process has, as NVML says */

  const char *const *notes; /* what is not known, and why */
  size_t note_count;
} tsr_ledger;

/* Memory of the host. */
typedef struct tsr_host_ledger {
  uint64_t pinned_bytes, limit_bytes;
  const char *limit_from; /* "cgroup" or "" */
  size_t sample_count;
  const int64_t *time_us;
  const uint64_t *rss_bytes, *cgroup_bytes, *pinned_bytes_by_sample;
} tsr_host_ledger;

/* How the ledger was recorded; TSR_LEDGER_UNKNOWN and "" for what the sidecar lacks. */
typedef struct tsr_ledger_recording {
  bool is_there; /* there is a ledger */
  uint64_t period_ms, samples_taken, samples_kept, sampling_us, step_us;
  const char *nvml, *nvml_error;
  const char *const *notes; /* what is not known, and why: of all devices */
  size_t note_count;
} tsr_ledger_recording;

/* How the ledger was recorded; is_there is false without one. */
tsr_ledger_recording tsr_snapshot_ledger_recording(const tsr_snapshot *snapshot);
/* The ledger of a device; NULL if the sidecar has none. */
const tsr_ledger *tsr_snapshot_ledger(const tsr_snapshot *snapshot, uint32_t device);
/* All of them, by device. */
const tsr_ledger *tsr_snapshot_ledgers(const tsr_snapshot *snapshot, size_t *count);
/* The ledger of the host; without samples if the sidecar lacks one. */
tsr_host_ledger tsr_snapshot_host_ledger(const tsr_snapshot *snapshot);
/* The process that wrote the snapshot: its number, 0 if the sidecar does not contain it, and its machine ("" likewise). */
uint64_t tsr_snapshot_process(const tsr_snapshot *snapshot, const char **host);

/* The last sample at or before a time; TSR_NONE before the first. O(log samples). */
uint32_t tsr_ledger_sample_at(const tsr_ledger *ledger, int64_t time_us);
/* A value of a column, which may be NULL. */
static inline uint64_t tsr_ledger_value(const uint64_t *column, size_t sample) {
  return column ? column[sample] : TSR_LEDGER_UNKNOWN;
}

#ifdef __cplusplus
}
#endif
#endif
