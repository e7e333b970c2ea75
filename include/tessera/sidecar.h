/* tessera/sidecar.h - what the program said of its own memory, beside the snapshot.
 *
 * A snapshot has addresses and stacks, and no names. tessera.record writes a second file beside each
 * (schema "tessera/capture/1", docs/capture.md) that tells which addresses are parameters,
 * gradients and optimizer state, and what the card held that is not PyTorch's. It is found by its
 * name or named in tsr_open_options; what it says is kept with the snapshot.
 *
 * Addresses are of the moment of the snapshot, so a tensor belongs to the block that held it then.
 * One that lies in no allocated block of the snapshot, or is too large for it, is left out and
 * counted in a warning. */
#ifndef TESSERA_SIDECAR_H
#define TESSERA_SIDECAR_H

#include "tessera/attribution.h"
#include "tessera/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor that the program named. */
typedef struct tsr_tensor {
  /* "h.0.attn.weight", "h.0.attn.weight.grad", "exp_avg of h.0.attn.weight"; UTF-8 as the file has
   * it, cut where it is very long. */
  const char *name;
  const char *type; /* "float32 [768, 3072]"; "" where the file does not tell */
  uint64_t address, size_bytes;
  uint64_t block_address; /* of the block that holds it */
  uint32_t device;
  tsr_kind kind; /* PARAMETER (buffers too), GRADIENT or OPTIMIZER_STATE */
} tsr_tensor;

/* A card as the process saw it when the snapshot was taken. 0: not told. */
typedef struct tsr_card {
  uint64_t total_bytes;
  uint64_t free_bytes;
  uint64_t outside_bytes; /* neither free nor PyTorch's: CUDA's context, NCCL, other processes */
} tsr_card;

/* The path of the sidecar that was read; NULL where there is none. */
const char *tsr_snapshot_sidecar(const tsr_snapshot *snapshot);
/* All named tensors, by device, block and address; NULL when there are none. */
const tsr_tensor *tsr_snapshot_tensors(const tsr_snapshot *snapshot, size_t *count);
/* Those of one block: a pointer into the above, `*count` of them. O(log tensors). */
const tsr_tensor *tsr_snapshot_tensors_in(const tsr_snapshot *snapshot, uint32_t device,
                                          uint64_t block_address, size_t *count);
/* The card of a device; all 0 where the sidecar does not tell of it. */
tsr_card tsr_snapshot_card(const tsr_snapshot *snapshot, uint32_t device);

#ifdef __cplusplus
}
#endif
#endif
