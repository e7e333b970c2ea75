/* tessera/unstable/names.h - what the program itself called its memory.
 *
 * Names come from the sidecar (tessera/unstable/sidecar.h) and from the snapshot itself, since PyTorch
 * 2.10: docs/categories.md describes what their texts may say. */
#ifndef TESSERA_UNSTABLE_NAMES_H
#define TESSERA_UNSTABLE_NAMES_H

#include "tessera/category.h"
#include "tessera/unstable/columns.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tsr_name_source {
  TSR_NAME_SIDECAR,    /* a tensor of the sidecar */
  TSR_NAME_ANNOTATION, /* an `annotate` event of this allocation */
  TSR_NAME_METADATA,   /* the thread's user_metadata when it was allocated */
  TSR_NAME_SOURCE_COUNT
} tsr_name_source;

/* "sidecar", "annotation", "metadata"; static text, never NULL. */
const char *tsr_name_source_name(tsr_name_source source);

/* A name, and what memory of an entry of an answer has it. Owned by the answer. */
typedef struct tsr_named {
  tsr_text name;         /* any bytes, at most 512 */
  const char *type;      /* of a tensor: "float32 [768, 3072]"; "" if unknown */
  tsr_category category; /* that it gives; UNKNOWN: none */
  tsr_name_source source;
  uint64_t bytes; /* of the tensor, or requested bytes of the allocations */
  uint64_t allocations;
} tsr_named;

/* The names of an entry: rows of its answer's `names`, largest first. */
typedef struct tsr_name_range {
  size_t first, count;
  uint64_t omitted; /* omitted by tsr_query.top */
} tsr_name_range;

#ifdef __cplusplus
}
#endif
#endif
