/* tessera/unstable/sidecar.h - the names that the program itself gave to its memory.
 *
 * A snapshot has addresses and stacks, but no names. tessera.record writes a second file next to each
 * snapshot (schema "tessera/capture/1", docs/capture.md) that lists which addresses are parameters,
 * gradients and optimizer state, and how much of the card others than PyTorch held. It is found by its
 * name or given in tsr_open_options; its content is kept with the snapshot.
 *
 * Addresses are from the moment of the snapshot, so a tensor belongs to the block that held it then.
 * A tensor that is not in an allocated block of the snapshot, or is larger than the block, is skipped
 * and counted in a warning. */
#ifndef TESSERA_UNSTABLE_SIDECAR_H
#define TESSERA_UNSTABLE_SIDECAR_H

#include "tessera/category.h"
#include "tessera/unstable/columns.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor that the program named. */
typedef struct tsr_tensor {
  /* "h.0.attn.weight", "h.0.attn.weight.grad", "exp_avg of h.0.attn.weight"; UTF-8 as in the file,
   * truncated if it is very long. */
  const char *name;
  const char *type; /* "float32 [768, 3072]"; "" if unknown */
  uint64_t address, size_bytes;
  uint64_t block_address; /* of the block that holds it */
  uint32_t device;
  tsr_category category; /* PARAMETER (buffers too), GRADIENT or OPTIMIZER_STATE */
} tsr_tensor;

/* A card as the process saw it when the snapshot was taken. 0: unknown. */
typedef struct tsr_card {
  uint64_t total_bytes;
  uint64_t free_bytes;
  uint64_t outside_bytes; /* not free and not PyTorch's: CUDA's context, NCCL, other processes */
  uint64_t peak_bytes;    /* the most that PyTorch had allocated, by its own count */
} tsr_card;

/* An axis of the mesh of ranks: "pp" of 4, of which this is the number `at`. */
#define TSR_MESH_AXES       8
#define TSR_MESH_NAME_BYTES 16
typedef struct tsr_mesh_axis {
  char name[TSR_MESH_NAME_BYTES]; /* lower case letters, digits and '_' */
  uint32_t size, at;              /* size 0: unknown */
} tsr_mesh_axis;

/* Which of the processes that train together wrote the snapshot. */
typedef struct tsr_rank_place {
  int64_t rank, world_size; /* -1: unknown */
  tsr_mesh_axis axes[TSR_MESH_AXES];
  size_t axis_count; /* 0: the mesh is unknown */
} tsr_rank_place;

/* Where the process stood, as the sidecar, or what tessera wrote into the snapshot, says. */
tsr_rank_place tsr_snapshot_rank(const tsr_snapshot *snapshot);

/* When the snapshot was taken, by the same sources, in microseconds since 1970; TSR_TIME_NONE if they do not contain it. */
int64_t tsr_snapshot_taken_us(const tsr_snapshot *snapshot);
/* The same for the beginning of its recording, which snapshots of one process have in common. */
int64_t tsr_snapshot_started_us(const tsr_snapshot *snapshot);

/* The path of the sidecar that was read; NULL if none was. */
const char *tsr_snapshot_sidecar(const tsr_snapshot *snapshot);
/* All named tensors, sorted by device, block and address; NULL if none. */
const tsr_tensor *tsr_snapshot_tensors(const tsr_snapshot *snapshot, size_t *count);
/* The tensors of one block: a pointer into the array above, `*count` long. O(log tensors). */
const tsr_tensor *tsr_snapshot_tensors_in(const tsr_snapshot *snapshot, uint32_t device,
                                          uint64_t block_address, size_t *count);
/* The card of a device; all 0 if the sidecar does not describe it. */
tsr_card tsr_snapshot_card(const tsr_snapshot *snapshot, uint32_t device);

#ifdef __cplusplus
}
#endif
#endif
