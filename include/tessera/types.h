/* tessera/types.h - the small types that the whole interface shares.
 */
#ifndef TESSERA_TYPES_H
#define TESSERA_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "No such thing" for any 32-bit id (stack, string, pool). */
#define TSR_NONE UINT32_MAX
/* An event without a time: files older than PyTorch 2.2. */
#define TSR_TIME_NONE INT64_MIN

/* A string of the snapshot. UTF-8 as in the file (lone surrogates possible), not terminated by
 * zero. */
typedef struct tsr_text {
  const char *data;
  size_t size_bytes;
} tsr_text;

/* What an event did (the `action` key). Codes from TSR_ACTION_KNOWN_COUNT on are actions that this
 * version does not know; tsr_snapshot_action_name names every code below tsr_snapshot_action_count.
 */
typedef enum tsr_action {
  TSR_ACTION_ALLOC,          /* a block was allocated; size = requested bytes */
  TSR_ACTION_FREE_REQUESTED, /* the program freed it; size = requested bytes */
  TSR_ACTION_FREE_COMPLETED, /* the block is free; size = requested bytes */
  TSR_ACTION_FREE,           /* both at once, as some converters write */
  TSR_ACTION_SEGMENT_ALLOC,  /* cudaMalloc; size = segment bytes */
  TSR_ACTION_SEGMENT_FREE,   /* cudaFree */
  TSR_ACTION_SEGMENT_MAP,    /* pages mapped into an expandable segment */
  TSR_ACTION_SEGMENT_UNMAP,  /* pages unmapped */
  TSR_ACTION_SNAPSHOT,       /* an earlier snapshot was taken; size = active bytes then */
  TSR_ACTION_OOM, /* out of memory; addr = bytes the driver had free, size = rounded request */
  TSR_ACTION_ANNOTATE,
  TSR_ACTION_USER_DEFINED,
  TSR_ACTION_WORKSPACE_SNAPSHOT, /* Ascend */
  TSR_ACTION_MISSING,            /* the entry has no usable action */
  TSR_ACTION_INTERNAL, /* an alloc or free of the allocator's own, tagged by `internal_metadata`: it is no
                        * allocation of the program */
  TSR_ACTION_KNOWN_COUNT
} tsr_action;

/* State of a block at the moment of the snapshot. */
typedef enum tsr_block_state {
  TSR_BLOCK_INACTIVE,     /* cached, reusable */
  TSR_BLOCK_ALLOCATED,    /* owned by a live tensor */
  TSR_BLOCK_PENDING_FREE, /* freed, waiting for another stream */
  TSR_BLOCK_UNKNOWN       /* a state this version does not know */
} tsr_block_state;

/* A private pool's name; (0, 0) is the default pool. */
typedef struct tsr_pool {
  uint64_t first, second;
} tsr_pool;

/* Something in the file that a reader of the answer should know. `code` is stable kebab-case text.
 */
typedef struct tsr_warning {
  const char *code;
  uint64_t count;
  const char *message; /* one sentence */
} tsr_warning;

/* Receives what the library writes (a report, an exported file) in pieces; returns 0, or anything
 * else to stop: the writing function then fails with TSR_ERROR_WRITE. */
typedef int tsr_write_fn(void *context, const char *data, size_t size_bytes);

#ifdef __cplusplus
}
#endif
#endif
