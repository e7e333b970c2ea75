/* tessera/snapshot.h - open a PyTorch memory snapshot and read its columns.
 *
 * A snapshot holds, per device, a trace (events, oldest first) and the segments and blocks at the
 * moment it was taken, plus settings and annotations. tessera keeps events as columns and interns
 * what repeats: strings, frames and stacks are named by 32-bit ids, and equal stacks have one id.
 *
 * Opening executes nothing: a pickle is data, names in it are never looked up or called.
 *
 * Lifetime and threads: a tsr_snapshot is immutable once opened; any number of threads may read it.
 * Every pointer handed out by an accessor lives until tsr_snapshot_free.
 */
#ifndef TESSERA_SNAPSHOT_H
#define TESSERA_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/limits.h"
#include "tessera/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_snapshot tsr_snapshot;

/* "No such thing" for any 32-bit id (stack, string, pool). */
#define TSR_NONE UINT32_MAX
/* An event without a time: files older than PyTorch 2.2. */
#define TSR_TIME_NONE INT64_MIN
/* A frame whose line is unknown (-1 in Python; 18446744073709551615 in the file). */
#define TSR_LINE_UNKNOWN UINT64_MAX

/* A string of the snapshot. UTF-8 as in the file (lone surrogates possible), not terminated by
 * zero. */
typedef struct tsr_text {
  const char *data;
  size_t size_bytes;
} tsr_text;

/* What an event did (the `action` key). Codes from TSR_ACTION_KNOWN_COUNT on are actions this
 * version does not know; tsr_snapshot_action_name names every code below tsr_snapshot_action_count.
 */
typedef enum tsr_action {
  TSR_ACTION_ALLOC,          /* a block was handed out; size = requested bytes */
  TSR_ACTION_FREE_REQUESTED, /* the program gave it back; size = requested bytes */
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
  TSR_ACTION_KNOWN_COUNT
} tsr_action;

/* A column of ids that is often the same in every row: `values` is NULL then. */
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
  const uint32_t *stack;  /* stack id, or TSR_NONE when it has none; a stack may be empty */
  tsr_id_column stream;   /* id for tsr_snapshot_stream; 0 is the default stream */
  tsr_id_column pool;     /* id for tsr_snapshot_pool, or TSR_NONE */
  tsr_id_column context;  /* string id of compile_context, or TSR_NONE */
  tsr_id_column metadata; /* string id of user_metadata, or TSR_NONE */
  tsr_id_column category; /* string id of category, or TSR_NONE */
} tsr_events;

/* State of a block at the moment of the snapshot. */
typedef enum tsr_block_state {
  TSR_BLOCK_INACTIVE,     /* cached, reusable */
  TSR_BLOCK_ALLOCATED,    /* owned by a live tensor */
  TSR_BLOCK_PENDING_FREE, /* freed, waiting for another stream */
  TSR_BLOCK_UNKNOWN       /* a state this version does not know */
} tsr_block_state;

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
  uint64_t allocated_bytes; /* as the file says, not recomputed */
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

/* A private pool's name; (0, 0) is the default pool. */
typedef struct tsr_pool {
  uint64_t first, second;
} tsr_pool;

typedef struct tsr_frame {
  uint32_t name; /* string id */
  uint32_t file; /* string id */
  uint64_t line; /* or TSR_LINE_UNKNOWN; a byte offset for some C++ frames */
} tsr_frame;

/* Innermost frame first, as PyTorch writes it. */
typedef struct tsr_stack {
  const uint32_t *frames; /* frame ids */
  uint32_t depth;
} tsr_stack;

/* One end of a record_function range. */
typedef struct tsr_annotation {
  int64_t time_us;
  uint32_t name;   /* string id or TSR_NONE */
  uint32_t stage;  /* string id of "START" or "END", or TSR_NONE */
  uint32_t device; /* the recording thread's current device, not where memory was used */
  bool is_start, is_end;
} tsr_annotation;

/* Something in the file that a reader of the answer should know. `code` is stable kebab-case text.
 */
typedef struct tsr_warning {
  const char *code;
  uint64_t count;
  const char *message; /* one sentence */
} tsr_warning;

/* Called now and then with the bytes read so far and the input's size (0 = unknown). Answer false
 * to stop: the open then fails with TSR_ERROR_IO. Never called from another thread. */
typedef bool tsr_progress_fn(void *context, uint64_t done_bytes, uint64_t total_bytes);

/* Receives what the library writes (a report, an exported file) in pieces; answers 0, or anything
 * else to stop: the writing function then fails with TSR_ERROR_WRITE. */
typedef int tsr_write_fn(void *context, const char *data, size_t size_bytes);

/* How to open. A zeroed struct, or NULL, is the default. */
typedef struct tsr_open_options {
  tsr_limits limits;
  tsr_progress_fn *progress;
  void *progress_context;
  uint32_t payload; /* of an HTML page with several snapshots, which one; from 0 */
  /* The file in which the program tells of its tensors (tessera/sidecar.h). NULL: what
   * tessera.record wrote beside the snapshot ("a.pickle", "a.pickle.gz": "a.json"), where that is
   * there; one that cannot be read is a warning. "": none. Else this file; failing to read it is
   * failing to open. */
  const char *sidecar;
} tsr_open_options;

/* Read the snapshot in the file `path` ("-": standard input). On success `*out` is the caller's, to
 * be given to tsr_snapshot_free. Time is linear in the file, memory below half its size for large
 * traces. Fails with TSR_ERROR_IO, _FORMAT, _LIMIT, _UNSUPPORTED or _MEMORY. */
int tsr_snapshot_open(const char *path, const tsr_open_options *options, tsr_snapshot **out,
                      tsr_error *error);

/* The same for `size_bytes` bytes at `data`, which may be released as soon as this returns. */
int tsr_snapshot_read(const void *data, size_t size_bytes, const tsr_open_options *options,
                      tsr_snapshot **out, tsr_error *error);

/* Release it. NULL is fine. */
void tsr_snapshot_free(tsr_snapshot *snapshot);

/* ---- About the input ---- */

/* The form it was read from, outermost first, e.g. "pickle", "gzip pickle". */
const char *tsr_snapshot_format(const tsr_snapshot *snapshot);
/* Bytes of the input as stored, before any decompression. */
uint64_t tsr_snapshot_input_bytes(const tsr_snapshot *snapshot);
/* What the reader noticed; `*count` entries, in a fixed order. */
const tsr_warning *tsr_snapshot_warnings(const tsr_snapshot *snapshot, size_t *count);

/* ---- Devices ---- */

/* Devices that have events or segments, ascending; NULL when there are none. */
const uint32_t *tsr_snapshot_devices(const tsr_snapshot *snapshot, size_t *count);
/* The device's trace; count 0 when it has none. O(1) in events. */
tsr_events tsr_snapshot_events(const tsr_snapshot *snapshot, uint32_t device);
/* All segments, of all devices, in file order. */
const tsr_segment *tsr_snapshot_segments(const tsr_snapshot *snapshot, size_t *count);
/* All blocks; a segment names its rows. */
const tsr_block *tsr_snapshot_blocks(const tsr_snapshot *snapshot, size_t *count);
const tsr_annotation *tsr_snapshot_annotations(const tsr_snapshot *snapshot, size_t *count);

/* ---- Settings ---- */

/* A number among the allocator settings, `key` or, inside the dict `key`, `subkey` (NULL: none):
 * truth values are 0 and 1. False where there is no such number; `*out` is untouched then. */
bool tsr_snapshot_setting(const tsr_snapshot *snapshot, const char *key, const char *subkey,
                          double *out);

/* ---- What the ids mean; each answers an empty value for an id out of range ---- */

/* The bytes of a string; the parts of a frame; the frames of a stack; the halves of a pool's id. */
tsr_text tsr_snapshot_string(const tsr_snapshot *snapshot, uint32_t string);
tsr_frame tsr_snapshot_frame(const tsr_snapshot *snapshot, uint32_t frame);
tsr_stack tsr_snapshot_stack(const tsr_snapshot *snapshot, uint32_t stack);
tsr_pool tsr_snapshot_pool(const tsr_snapshot *snapshot, uint32_t pool);
/* Whether the file has -1 for a frame's unknown line, and not 2^64 - 1. */
bool tsr_snapshot_has_negative_line(const tsr_snapshot *snapshot, uint32_t frame);
/* Raw stream handle of a stream id. */
uint64_t tsr_snapshot_stream(const tsr_snapshot *snapshot, uint32_t stream);
/* Stream id of a raw handle, or TSR_NONE when no event or segment is on it. */
uint32_t tsr_snapshot_find_stream(const tsr_snapshot *snapshot, uint64_t handle);
/* Number of distinct strings, frames, stacks; ids run from 0 to count - 1. */
uint32_t tsr_snapshot_string_count(const tsr_snapshot *snapshot);
uint32_t tsr_snapshot_frame_count(const tsr_snapshot *snapshot);
uint32_t tsr_snapshot_stack_count(const tsr_snapshot *snapshot);
/* Names of action codes: "alloc", ... and whatever unknown ones the file holds. */
uint32_t tsr_snapshot_action_count(const tsr_snapshot *snapshot);
tsr_text tsr_snapshot_action_name(const tsr_snapshot *snapshot, uint32_t action);

#ifdef __cplusplus
}
#endif
#endif
