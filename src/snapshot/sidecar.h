/* sidecar.h - reading the JSON that tessera.record writes beside a snapshot. */
#ifndef TSR_SNAPSHOT_SIDECAR_H
#define TSR_SNAPSHOT_SIDECAR_H

#include "base/arena.h"
#include "base/error.h"
#include "base/vector.h"
#include "tessera/sidecar.h"

/* A larger file is not read: that of a hundred thousand tensors is half of it. */
#define TSR__SIDECAR_BYTES ((size_t)64 << 20)

typedef struct tsr__card_of {
  uint32_t device;
  tsr_card card;
} tsr__card_of;

/* What a snapshot keeps of it; a zeroed one is empty. */
typedef struct tsr__sidecar {
  tsr__arena texts;
  const char *path; /* in texts, or NULL */
  TSR__VECTOR(tsr_tensor) tensors;
  TSR__VECTOR(tsr__card_of) cards;
} tsr__sidecar;

void tsr__sidecar_release(tsr__sidecar *sidecar);

/* Read the sidecar of a snapshot that is whole already. `choice` is tsr_open_options.sidecar; `path`
 * that of the snapshot, or NULL where it was read from memory. What a file found by its name lacks
 * becomes a warning; only one that was asked for by name makes this fail, with TSR_ERROR_IO, _FORMAT
 * or _LIMIT, and a message that names it. Else fails with TSR_ERROR_MEMORY alone. Time is that of
 * sorting the tensors and the blocks. */
int tsr__sidecar_find(tsr_snapshot *snapshot, const char *path, const char *choice,
                      tsr_error *error);

/* The same for a text that is there; fails with TSR_ERROR_FORMAT or _MEMORY, and leaves the snapshot
 * without a sidecar then. */
int tsr__sidecar_read(tsr_snapshot *snapshot, const char *text, size_t size_bytes,
                      tsr_error *error);

#endif
