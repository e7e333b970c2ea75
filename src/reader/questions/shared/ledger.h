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

/* 0 for what is not known. */
static inline uint64_t tsr__ledger_known(uint64_t value) {
  return value == TSR_LEDGER_UNKNOWN ? 0 : value;
}

#endif
