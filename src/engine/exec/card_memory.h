/* card_memory.h - what PyTorch's libraries take on a card beside tensors, by its compute capability.
 *
 * One table for all that is simulated: programs of models and traced steps. Each row says where its number is from and as of when. */
#ifndef TSR_EXEC_CARD_MEMORY_H
#define TSR_EXEC_CARD_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

typedef enum tsr__card_memory_kind {
  TSR__CARD_CUBLAS, /* workspace of a thread's handle and stream, from its first matrix product on */
  TSR__CARD_CUBLASLT, /* what matrix products with a bias or an activation take in addition */
  TSR__CARD_FLASH     /* whether flash attention's kernels run */
} tsr__card_memory_kind;

typedef struct tsr__card_memory {
  uint8_t kind;                       /* tsr__card_memory_kind */
  uint8_t capability, capability_end; /* 80: 8.0; the first, and the first that is not meant */
  uint64_t bytes;                     /* of a flag: 1 */
  const char *source, *as_of;
} tsr__card_memory;

/* The i-th row, or NULL past the last. */
const tsr__card_memory *tsr__card_memory_at(uint32_t i);
/* The row for a card of this capability; there always is one. */
const tsr__card_memory *tsr__card_memory_of(tsr__card_memory_kind kind, uint8_t capability);

#endif
