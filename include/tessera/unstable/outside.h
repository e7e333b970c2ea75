/* tessera/unstable/outside.h - what a process holds of a card outside of PyTorch's allocator: the CUDA context, what libraries
 * load and allocate themselves, and NCCL's buffers.
 *
 * Each part is a range, because drivers, versions and programs differ: it is rarely below the low end or above the high one. The
 * numbers are from the table in src/engine/exec/outside_rows.def, from what `tessera doctor` has measured on this machine, or from
 * the user. */
#ifndef TESSERA_UNSTABLE_OUTSIDE_H
#define TESSERA_UNSTABLE_OUTSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes: at least, probably, and at most. */
typedef struct tsr_outside_range {
  uint64_t low_bytes, likely_bytes, high_bytes;
} tsr_outside_range;

typedef enum tsr_outside_part {
  TSR_OUTSIDE_CONTEXT,   /* the CUDA context, with PyTorch's own kernels */
  TSR_OUTSIDE_LIBRARIES, /* what cuBLAS, cuDNN and others load and allocate themselves */
  TSR_OUTSIDE_NCCL,      /* buffers of NCCL's communicators; none for a single process */
  TSR_OUTSIDE_PARTS
} tsr_outside_part;

/* Where the numbers are from. */
typedef enum tsr_outside_source {
  TSR_OUTSIDE_NOT_COUNTED, /* no card is known, or nothing is to be counted: all numbers are 0 */
  TSR_OUTSIDE_TABLE,
  TSR_OUTSIDE_MEASURED, /* on this machine, by `tessera doctor` */
  TSR_OUTSIDE_GIVEN     /* as a size; the parts are 0 */
} tsr_outside_source;

typedef struct tsr_outside {
  tsr_outside_source source;
  tsr_outside_range parts[TSR_OUTSIDE_PARTS], whole;
  const char *card;      /* its title, or NULL; a constant */
  bool is_card_inferred; /* nobody named the card: the limit is the memory of cards like this one */
  uint64_t visible_bytes; /* what programs can have of the card; 0 without one */
  uint64_t
      asked_bytes; /* the limit, and what of it is left to PyTorch's allocator; 0 without a limit */
  uint64_t share_bytes;
  char measured_at[40]; /* as the file has it; "" if not measured, or unknown */
} tsr_outside;

/* "context", "libraries" and "nccl". Constants. */
const char *tsr_outside_part_name(tsr_outside_part part);
/* "none", "table", "machine" and "option". */
const char *tsr_outside_source_name(tsr_outside_source source);

/* ---- What was measured on this machine ---- */

#define TSR_MACHINE_MOST_BYTES   ((size_t)1 << 20)
#define TSR_MACHINE_MOST_DEVICES 64

/* Check the text of a machine.json, as `tessera doctor` writes it: {"schema": "tessera/machine/1", "devices": [{"name": ..., "context_bytes":
 * ..., "libraries_bytes": ..., "nccl_bytes_per_communicator": ..., "measured_at": ...}]}. Numbers may be null; other keys are ignored.
 * Fails with TSR_ERROR_FORMAT, TSR_ERROR_LIMIT if it is larger than TSR_MACHINE_MOST_BYTES, or TSR_ERROR_MEMORY. */
int tsr_machine_file_check(const char *text, size_t size_bytes, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
