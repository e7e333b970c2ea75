/* shares.h - what is live at a moment by call stack, and how two moments differ, of one snapshot or of two. */
#ifndef CLI_TERMINAL_SHARES_H
#define CLI_TERMINAL_SHARES_H

#include <tessera/snapshot.h>

#include "history.h"

/* Live allocations with one stack. Those without a stack are one share, as in `tessera at`. */
typedef struct terminal_share {
  uint32_t stack; /* or TSR_NONE */
  uint32_t row;   /* the first of them */
  uint8_t group;  /* that has most of its bytes */
  uint64_t bytes; /* requested */
  uint64_t count; /* of allocations */
} terminal_share;

typedef struct terminal_shares {
  terminal_share *items; /* largest first */
  size_t count;
  uint64_t bytes, allocations; /* of all */
  uint64_t older_bytes;        /* allocated, of memory from before the recording */
} terminal_shares;

/* What is live at a moment, or of that what a search found. Fails with TSR_ERROR_MEMORY; to be released in either case. */
int terminal_shares_make(const tsr_snapshot *snapshot, const terminal_history *history,
                         const terminal_sums *sums, uint32_t moment, terminal_shares *out);
/* A zeroed one is fine. */
void terminal_shares_release(terminal_shares *shares);

/* A stack whose memory differs: a share of the old moment, of the new one, or both. */
typedef struct terminal_change {
  const terminal_share *old, *new; /* in the shares that were compared; NULL: nothing */
} terminal_change;

typedef struct terminal_changes {
  terminal_change *items; /* by how much they differ */
  size_t count;
} terminal_changes;

static inline uint64_t terminal_old_bytes(const terminal_change *change) {
  return change->old ? change->old->bytes : 0;
}
static inline uint64_t terminal_new_bytes(const terminal_change *change) {
  return change->new ? change->new->bytes : 0;
}

/* Compare shares of two moments: stacks are the same if their frames are, name, file and line. Likewise. */
typedef struct terminal_side {
  const tsr_snapshot *snapshot;
  const terminal_shares *shares;
} terminal_side;
int terminal_changes_make(terminal_side old, terminal_side new, terminal_changes *out);
void terminal_changes_release(terminal_changes *changes);

#endif
