/* ledger.h - what one process holds of a card at a sample of its ledger. */
#ifndef TSR_QUESTIONS_SHARED_LEDGER_H
#define TSR_QUESTIONS_SHARED_LEDGER_H

#include "tessera/unstable/ledger.h"

typedef struct tsr__ledger_own {
  uint64_t allocated_bytes, cached_bytes; /* on the card: their sum is reserved - unmapped */
  uint64_t asleep_bytes;                  /* of reserved: unmapped */
  uint64_t context_bytes, library_bytes, communicator_bytes;
  bool knows_pytorch, knows_context;
} tsr__ledger_own;

/* What is not known counts as 0. O(libraries + communicators). */
void tsr__ledger_own_at(const tsr_ledger *ledger, size_t sample, tsr__ledger_own *out);

/* The sum of all parts. */
static inline uint64_t tsr__ledger_sum(const tsr__ledger_own *own) {
  return own->allocated_bytes + own->cached_bytes + own->context_bytes + own->library_bytes +
         own->communicator_bytes;
}

/* What of the card each sort of holder has. */
typedef enum tsr__ledger_sort {
  TSR__LEDGER_ALLOCATED,
  TSR__LEDGER_CACHED,
  TSR__LEDGER_NCCL,
  TSR__LEDGER_CONTEXT, /* and libraries */
  TSR__LEDGER_DRIVER,
  TSR__LEDGER_PROCESSES,
  TSR__LEDGER_REST, /* nobody accounts for it */
  TSR__LEDGER_SORTS
} tsr__ledger_sort;

/* "allocated by PyTorch"; static text. */
const char *tsr__ledger_sort_name(tsr__ledger_sort sort);
/* The whole card at a sample; false if its used memory is not known. O(libraries + communicators + processes). */
bool tsr__ledger_divide(const tsr_ledger *ledger, size_t sample, uint64_t out[TSR__LEDGER_SORTS]);

/* What a library has at a sample; 0 if it is not known, or not yet loaded. */
uint64_t tsr__ledger_library_at(const tsr_ledger *ledger, size_t library, size_t sample);

/* 0 for what is not known. */
static inline uint64_t tsr__ledger_known(uint64_t value) {
  return value == TSR_LEDGER_UNKNOWN ? 0 : value;
}

#endif
