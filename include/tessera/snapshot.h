/* tessera/snapshot.h - open a PyTorch memory snapshot and read its columns.
 *
 * A snapshot holds, per device, a trace (events, oldest first) and the segments and blocks at the
 * moment it was taken, plus settings and annotations. tessera stores events as columns and interns
 * what repeats: strings, frames and stacks have 32-bit ids, and equal stacks have one id.
 *
 * Opening executes nothing: a pickle is data; names in it are never looked up or called.
 *
 * Lifetime and threads: a tsr_snapshot is immutable once opened; any number of threads may read it.
 * Every pointer returned by an accessor is valid until tsr_snapshot_free.
 */
#ifndef TESSERA_SNAPSHOT_H
#define TESSERA_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/limits.h"
#include "tessera/options.h"
#include "tessera/status.h"
#include "tessera/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_snapshot tsr_snapshot;

/* The number of the device that stands for pinned host memory (`host_segments` and `host_traces` of the
 * file). Reports print it as "host". It is the last device of a snapshot that contains any; its
 * memory is no GPU's. */
#define TSR_DEVICE_HOST (UINT32_MAX - 1)

/* The number of the device that stands for the memory of PyTorch's CPU allocator, which traces of a profiler
 * contain. Reports print it as "cpu". It follows the GPUs of a snapshot. */
#define TSR_DEVICE_CPU (UINT32_MAX - 2)

/* A frame whose line is unknown (-1 in Python; 18446744073709551615 in the file). */
#define TSR_LINE_UNKNOWN UINT64_MAX

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

/* Called from time to time with the bytes read so far and the input's size (0 = unknown). Return false
 * to stop: the open then fails with TSR_ERROR_IO. Never called from another thread. */
typedef bool tsr_progress_fn(void *context, uint64_t done_bytes, uint64_t total_bytes);

/* How to open. NULL is the default (tessera/options.h). */
typedef struct tsr_open_options {
  size_t struct_bytes;
  tsr_limits limits;
  tsr_progress_fn *progress;
  void *progress_context;
  uint32_t payload; /* which snapshot of an HTML page that contains several; from 0 */
  /* Path of the sidecar that names the program's tensors (docs/capture.md). NULL selects the file
   * that tessera.record wrote next to the snapshot ("a.json" for "a.pickle" or "a.pickle.gz"), if it
   * exists; if that cannot be read, there is a warning. "" selects none. With any other path, opening
   * fails if the sidecar cannot be read. */
  const char *sidecar;
} tsr_open_options;

/* Read the snapshot in the file `path` ("-": standard input). On success the caller owns `*out` and
 * passes it to tsr_snapshot_free. Time is linear in the file, memory below half its size for large
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
/* The reader's warnings; `*count` entries, in a fixed order. */
const tsr_warning *tsr_snapshot_warnings(const tsr_snapshot *snapshot, size_t *count);

/* ---- Devices ---- */

/* Devices that have events or segments, ascending: GPUs, then TSR_DEVICE_CPU and TSR_DEVICE_HOST if the
 * file has such memory; NULL if none. */
const uint32_t *tsr_snapshot_devices(const tsr_snapshot *snapshot, size_t *count);
/* The GPUs alone. */
const uint32_t *tsr_snapshot_gpus(const tsr_snapshot *snapshot, size_t *count);
/* ---- Tables: a column is an array, found by table and name ---- */

/* Rows are in the order of the file, except that blocks are grouped by segment, in address order. */
typedef enum tsr_table {
  /* One device's trace, oldest event first:
   *   action      U8    tsr_action
   *   address     U64   device address; of TSR_ACTION_OOM the driver's free bytes
   *   size_bytes  U64   see tsr_action
   *   time_us     TIME
   *   stack       ID    for tsr_snapshot_stack; a stack may be empty
   *   stream      ID    for tsr_snapshot_stream; 0 is the default stream
   *   pool        ID    for tsr_snapshot_pool
   *   context, metadata, category   ID of a string: compile_context, user_metadata, category */
  TSR_TABLE_EVENTS,
  /* Segments of all devices:
   *   device   U32
   *   address, size_bytes, allocated_bytes, active_bytes, requested_bytes   U64, as in the file
   *   stream   U64   raw handle, 0 is the default stream
   *   first_block, block_count   U64   its rows in the table of blocks
   *   stack    ID    of the cudaMalloc
   *   pool     ID
   *   is_large, is_expandable   BOOL */
  TSR_TABLE_SEGMENTS,
  /* Blocks of all segments:
   *   address, size_bytes  U64   size: rounded, what the block occupies
   *   requested_bytes      U64   what the program asked for; meaningful for live blocks only
   *   stack                ID
   *   state                U8    tsr_block_state */
  TSR_TABLE_BLOCKS,
  /* Ends of record_function ranges:
   *   time_us      TIME
   *   name, stage  ID of a string; stage: "START" or "END"
   *   device       U32   the recording thread's current device, not where memory was used
   *   is_start, is_end   BOOL */
  TSR_TABLE_ANNOTATIONS,
  TSR_TABLE_COUNT
} tsr_table;

typedef enum tsr_column_type {
  TSR_COLUMN_U8,
  TSR_COLUMN_U32,
  TSR_COLUMN_U64,
  TSR_COLUMN_BOOL, /* one byte, 0 or 1 */
  TSR_COLUMN_ID,   /* 32 bits; TSR_NONE: absent */
  TSR_COLUMN_TIME  /* signed, 64 bits: microseconds since the Unix epoch; TSR_TIME_NONE: absent */
} tsr_column_type;

/* Row i is at `data` + i * stride_bytes. A stride of 0 means that all rows have one value, as is common.
 * This struct never changes. */
typedef struct tsr_column_view {
  const void *data; /* NULL if count is 0 */
  uint64_t count;
  size_t stride_bytes;
  tsr_column_type type;
} tsr_column_view;

/* Find a column. `device` matters for events only; a device without a trace has empty columns. Later
 * versions may add columns. Fails with TSR_ERROR_ARGUMENT, leaving `*out` alone, if the table has no
 * column of that name. O(columns + devices). */
int tsr_snapshot_column(const tsr_snapshot *snapshot, tsr_table table, uint32_t device,
                        const char *name, tsr_column_view *out, tsr_error *error);
/* The names of a table's columns, ended by NULL. Static. */
const char *const *tsr_table_columns(tsr_table table);
/* A row's value, whatever the type; a time is converted to its bits. `row` must be below the count. O(1). */
uint64_t tsr_column_at(const tsr_column_view *column, uint64_t row);

/* ---- Settings ---- */

/* A numeric allocator setting: that of `key` or, if `subkey` is not NULL, of `subkey` inside the dict
 * `key`. Booleans are 0 and 1. Returns false, with `*out` untouched, if there is no such number. */
bool tsr_snapshot_setting(const tsr_snapshot *snapshot, const char *key, const char *subkey,
                          double *out);

/* ---- What the ids mean; each returns an empty value for an id out of range ---- */

/* The bytes of a string; the parts of a frame; the frames of a stack; the halves of a pool's id. */
tsr_text tsr_snapshot_string(const tsr_snapshot *snapshot, uint32_t string);
tsr_frame tsr_snapshot_frame(const tsr_snapshot *snapshot, uint32_t frame);
tsr_stack tsr_snapshot_stack(const tsr_snapshot *snapshot, uint32_t stack);
tsr_pool tsr_snapshot_pool(const tsr_snapshot *snapshot, uint32_t pool);
/* Raw stream handle of a stream id. */
uint64_t tsr_snapshot_stream(const tsr_snapshot *snapshot, uint32_t stream);
/* Number of distinct strings, frames, stacks; ids run from 0 to count - 1. */
uint32_t tsr_snapshot_string_count(const tsr_snapshot *snapshot);
uint32_t tsr_snapshot_frame_count(const tsr_snapshot *snapshot);
uint32_t tsr_snapshot_stack_count(const tsr_snapshot *snapshot);
/* Names of action codes: "alloc", ... and the unknown ones in the file. */
uint32_t tsr_snapshot_action_count(const tsr_snapshot *snapshot);
tsr_text tsr_snapshot_action_name(const tsr_snapshot *snapshot, uint32_t action);

#ifdef __cplusplus
}
#endif
#endif
