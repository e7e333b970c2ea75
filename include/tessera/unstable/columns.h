/* tessera/unstable/columns.h - tables of a snapshot as the library holds them: columns of events, and rows of the rest.
 *
 * tessera/snapshot.h has the same data in a form that does not change. */
#ifndef TESSERA_UNSTABLE_COLUMNS_H
#define TESSERA_UNSTABLE_COLUMNS_H

#include "tessera/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A column of ids. `values` is NULL if every row has the same id, as is common. */
typedef struct tsr_id_column {
  const uint32_t *values;
  uint32_t uniform; /* every row's value when `values` is NULL */
} tsr_id_column;

/* The id in a row of a column. */
static inline uint32_t tsr_id_at(tsr_id_column column, uint64_t row) {
  return column.values ? column.values[row] : column.uniform;
}

/* One device's trace. Each pointer is an array of `count` rows, or NULL when count is 0. */
typedef struct tsr_events {
  uint64_t count;
  const uint8_t *action;  /* tsr_action */
  const uint64_t *addr;   /* device address; for TSR_ACTION_OOM the driver's free bytes */
  const uint64_t *size;   /* bytes, see tsr_action */
  const int64_t *time_us; /* microseconds since the Unix epoch, or TSR_TIME_NONE */
  const uint32_t *stack;  /* stack id, or TSR_NONE if not recorded; a stack may be empty */
  tsr_id_column stream;   /* id for tsr_snapshot_stream; 0 is the default stream */
  tsr_id_column pool;     /* id for tsr_snapshot_pool, or TSR_NONE */
  tsr_id_column context;  /* string id of compile_context, or TSR_NONE */
  tsr_id_column metadata; /* string id of user_metadata, or TSR_NONE */
  tsr_id_column category; /* string id of category, or TSR_NONE */
} tsr_events;

typedef struct tsr_block {
  uint64_t address;
  uint64_t size_bytes;      /* rounded, what the block occupies */
  uint64_t requested_bytes; /* what the program asked for; meaningful for live blocks only */
  uint32_t stack;           /* stack id or TSR_NONE */
  uint8_t state;            /* tsr_block_state */
} tsr_block;

typedef struct tsr_segment {
  uint64_t address;
  uint64_t total_bytes;
  uint64_t allocated_bytes; /* as in the file, not recomputed */
  uint64_t active_bytes;
  uint64_t requested_bytes;
  uint64_t stream;      /* raw stream handle, 0 = default stream */
  uint64_t first_block; /* its blocks are rows first_block .. first_block + block_count - 1 */
  uint64_t block_count; /* of tsr_snapshot_blocks, in address order */
  uint32_t device;
  uint32_t stack; /* stack of the cudaMalloc, or TSR_NONE */
  uint32_t pool;  /* pool id or TSR_NONE */
  bool is_large;  /* owned by the large pool */
  bool is_expandable;
} tsr_segment;

/* One end of a record_function range. */
typedef struct tsr_annotation {
  int64_t time_us;
  uint32_t name;   /* string id or TSR_NONE */
  uint32_t stage;  /* string id of "START" or "END", or TSR_NONE */
  uint32_t device; /* the recording thread's current device, not where memory was used */
  bool is_start, is_end;
} tsr_annotation;

/* The device's trace; count 0 if it has none. O(1) in events. */
tsr_events tsr_snapshot_events(const tsr_snapshot *snapshot, uint32_t device);
/* All segments, of all devices, in file order. */
const tsr_segment *tsr_snapshot_segments(const tsr_snapshot *snapshot, size_t *count);
/* All blocks; a segment refers to its rows. */
const tsr_block *tsr_snapshot_blocks(const tsr_snapshot *snapshot, size_t *count);
const tsr_annotation *tsr_snapshot_annotations(const tsr_snapshot *snapshot, size_t *count);

/* Whether the file writes a frame's unknown line as -1, rather than 2^64 - 1. */
bool tsr_snapshot_has_negative_line(const tsr_snapshot *snapshot, uint32_t frame);

/* Stream id of a raw handle, or TSR_NONE if no event or segment is on it. */
uint32_t tsr_snapshot_find_stream(const tsr_snapshot *snapshot, uint64_t handle);

/* Write annotation number `annotation` of tsr_snapshot_annotations as Python's repr() prints it, with
 * all its keys in the order of the file. Fails as
 * tsr_snapshot_export. */
int tsr_annotation_repr(const tsr_snapshot *snapshot, size_t annotation, tsr_write_fn *write,
                        void *context, tsr_error *error);

/* ---- Several files at once ---- */

/* One of several files to open, and what became of it. */
typedef struct tsr_opening {
  const char *path;
  tsr_open_options options;
  tsr_snapshot *snapshot; /* the caller's to free; NULL after a failure */
  int status;             /* what tsr_snapshot_open returned */
  tsr_error error;
} tsr_opening;

/* Open `count` files at the same time, as far as there are processors; each as tsr_snapshot_open does,
 * with its own status. Progress may be reported from other threads than the calling one, but
 * never by two threads for the same opening. */
void tsr_snapshot_open_all(tsr_opening *openings, size_t count);

#ifdef __cplusplus
}
#endif
#endif
