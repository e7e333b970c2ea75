/* tables.h - the columns that a tsr_snapshot is made of.
 *
 *   strings  id -> bytes            frames  id -> {name, file, line}     stacks  id -> frame ids
 *   events   one row per trace entry, columns side by side, all devices in one table
 *   traces   device -> the rows of events that are its trace
 *   segments, blocks, annotations, history: one struct a row
 *   loose    values that no rule names, as small trees (allocator settings among them)
 *
 * Only the builder (builder.h) writes to them, and nothing changes once it has finished. Then:
 *
 *   - columns of one table are equally long; *_more holds what a row of the public struct has no
 *     place for
 *   - an id is below the count of its table, or TSR_NONE where a row may lack it
 *   - rows first_block .. first_block + block_count - 1 of a segment exist, and so do those of a
 *     trace and of a block's history
 *   - device_traces, devices, segments_by_device and extras are sorted
 *   - a container among the loose values only holds containers with smaller numbers
 *
 * tsr__snapshot_check checks all of it.
 *
 * A row's `shape` is the set of keys that its dict had in the file, and their order (key_order.h). A
 * value that its column cannot hold exactly (a size with a fraction, an address as text) is kept as
 * an extra besides, so that a writer can restore what was there. Extras belong to a row's origin:
 * the row's number before it was copied or the table was put in order. */
#ifndef TSR_COLUMNS_TABLES_H
#define TSR_COLUMNS_TABLES_H

#include "base/arena.h"
#include "base/error.h"
#include "base/intern.h"
#include "base/vector.h"
#include "columns/schema.h"
#include "columns/value.h"
#include "columns/warnings.h"
#include "tessera/unstable/columns.h"
#include "tessera/unstable/ledger.h"
#include "tessera/unstable/sidecar.h"

/* A column that stays one number until a row differs. */
typedef struct tsr__id_vector {
  uint32_t *values; /* NULL while every row holds `uniform` */
  uint32_t uniform;
} tsr__id_vector;

/* Invariant: every non-NULL column has room for `capacity` rows, of which `count` are filled. */
typedef struct tsr__event_table {
  uint64_t count, capacity;
  uint8_t *action;
  uint64_t *addr, *size;
  int64_t *time_us;
  uint32_t *stack;
  tsr__id_vector stream, pool, context, metadata, category, shape;
} tsr__event_table;

/* One event, before it is spread over the columns. `shape` holds keys below 2^11 only, and
 * their order. */
typedef struct tsr__event {
  uint64_t addr, size;
  int64_t time_us;
  uint32_t stack, stream, pool, context, metadata, category, shape;
  uint8_t action;
} tsr__event;

#define TSR__EVENT_EMPTY                  \
  ((tsr__event){.time_us = TSR_TIME_NONE, \
                .stack = TSR_NONE,        \
                .pool = TSR_NONE,         \
                .context = TSR_NONE,      \
                .metadata = TSR_NONE,     \
                .category = TSR_NONE,     \
                .action = TSR_ACTION_MISSING})
/* The shape bits of an event whose pool_id is a list, and whose stream is None; keys of events end
 * below them. */
#define TSR__EVENT_POOL_IS_LIST   (UINT32_C(1) << 31)
#define TSR__EVENT_STREAM_IS_NULL (UINT32_C(1) << 30)

/* A run of rows; a trace is one or, in odd files, several. */
typedef struct tsr__rows {
  uint64_t first, count;
} tsr__rows;

typedef struct tsr__trace {
  TSR__VECTOR(tsr__rows) runs;
} tsr__trace;

/* A device and its rows of the event table, once reading is done. */
typedef struct tsr__device_trace {
  uint32_t device;
  uint64_t first, count;
} tsr__device_trace;

/* What an interned frame is made of; no padding, so that equal frames are equal bytes. A frame that
 * is only a text, as some third parties write, has a name and an empty shape. */
typedef struct tsr__frame_key {
  tsr_frame frame;
  uint64_t shape;
  uint64_t extras; /* id in snapshot->frame_extras, plus 1; 0 for none */
} tsr__frame_key;

typedef struct tsr__history_row {
  uint64_t addr, real_size, shape;
  uint32_t stack;
} tsr__history_row;

/* What the file contains about a block beyond tsr_block. */
typedef struct tsr__block_more {
  uint64_t shape;
  uint32_t state;                        /* string id */
  uint32_t first_history, history_count; /* rows */
  uint32_t origin;
} tsr__block_more;

typedef struct tsr__segment_more {
  uint64_t shape;
  uint32_t type; /* string id */
  uint32_t origin;
} tsr__segment_more;

typedef struct tsr__annotation_more {
  uint64_t shape;
  uint32_t origin;
} tsr__annotation_more;

/* A value under a key that no rule names, or one that the key's column cannot hold exactly, at row
 * `row` of a table. Once reading is done they are in the order of table, row and key. */
typedef struct tsr__extra {
  uint64_t row; /* the row's origin */
  tsr__value value;
  uint32_t key;   /* string id */
  uint32_t table; /* the tag of the row: TSR__EVENT, ... ; TSR__NULL for the snapshot itself */
} tsr__extra;

/* In the order of tsr__container_kind. */
typedef enum tsr__loose_kind { TSR__LOOSE_LIST, TSR__LOOSE_TUPLE, TSR__LOOSE_DICT } tsr__loose_kind;

/* A kept list, tuple or dict: `count` values from `first` of loose_values (a dict's alternate). */
typedef struct tsr__loose {
  uint32_t kind; /* tsr__loose_kind */
  uint32_t count;
  uint64_t first;
} tsr__loose;

typedef struct tsr__card_of {
  uint32_t device;
  tsr_card card;
} tsr__card_of;

/* The ledger of the card: its arrays are in the sidecar's texts. */
typedef struct tsr__card_ledger {
  tsr_ledger_recording recording;
  const tsr_ledger *devices; /* by device */
  size_t device_count;
  tsr_host_ledger host;
} tsr__card_ledger;

/* What the program reported about its tensors, in a file next to the snapshot. Zeroed means
 * empty. */
typedef struct tsr__sidecar {
  tsr__arena texts;
  const char *path; /* in texts, or NULL */
  /* String that contains all of it as a sidecar's text, which goes where the snapshot goes: the value of
   * the key "tessera_sidecar" of its top. 0, which is a name of the schema: none. */
  uint32_t string;
  TSR__VECTOR(tsr_tensor) tensors; /* by device, block and address */
  TSR__VECTOR(tsr__card_of) cards;
  tsr__card_ledger ledger;
  uint64_t pid;         /* of the process; 0: unknown */
  const char *host;     /* its machine, in texts, or NULL */
  tsr_rank_place place; /* if has_place */
  bool has_place;
  int64_t taken_us,
      started_us; /* when the snapshot was taken, and its recording began; 0: unknown */
} tsr__sidecar;

void tsr__sidecar_release(tsr__sidecar *sidecar);

/* A device of which the file has nothing but allocations and frees, with the bytes that each took: no
 * segments, no blocks at the end, nothing rounded (formats/flat.h). What was there before the first event and
 * stays is one allocation. */
typedef struct tsr__flat_device {
  uint32_t device;
  uint64_t before_address;       /* of no other allocation */
  uint64_t before_bytes;         /* 0: nothing is known to have been there */
  size_t first_mark, mark_count; /* of reserved_marks: what the file has of reserved memory */
} tsr__flat_device;

/* After this event of its device, and up to the next mark, so much is reserved. Event -1 is the start. */
typedef struct tsr__reserved_mark {
  int64_t event;
  uint64_t bytes;
} tsr__reserved_mark;

struct tsr_snapshot {
  tsr__intern strings, frames, stacks; /* frames hold tsr__frame_key, stacks arrays of frame ids */
  tsr__intern frame_extras;            /* arrays of tsr__value: keys and values alternate */
  tsr__intern orders;                  /* arrays of string ids, see key_order.h */
  tsr__intern pools;                   /* tsr_pool */
  tsr__intern streams;                 /* uint64_t; id 0 is the default stream */
  TSR__VECTOR(uint32_t) actions;       /* string ids of actions past TSR_ACTION_KNOWN_COUNT */

  tsr__event_table events;
  TSR__VECTOR(tsr__trace) traces;
  TSR__VECTOR(tsr__device_trace) device_traces;
  TSR__VECTOR(tsr_segment) segments;
  TSR__VECTOR(tsr__segment_more) segments_more;
  TSR__VECTOR(tsr_block) blocks;
  TSR__VECTOR(tsr__block_more) blocks_more;
  TSR__VECTOR(tsr_annotation) annotations;
  TSR__VECTOR(tsr__annotation_more) annotations_more;
  TSR__VECTOR(tsr__history_row) history;
  TSR__VECTOR(tsr__extra) extras;
  TSR__VECTOR(tsr__loose) loose;
  TSR__VECTOR(tsr__value) loose_values;
  TSR__VECTOR(uint32_t) devices;            /* in ascending order */
  TSR__VECTOR(uint32_t) segments_by_device; /* rows, a device after the other */
  uint32_t default_pool; /* id of (0, 0), or TSR_NONE where no segment of the file is of it */
  /* The rows that count: first those that the top of the file lists, then, of segments, those of pinned
   * host memory, of which a writer finds what the file had among the loose values. Rows after them are
   * named by loose values only. */
  size_t segment_count, annotation_count;
  size_t listed_segment_count; /* without pinned host memory */
  uint32_t host_trace;         /* index into traces of that of TSR_DEVICE_HOST, or TSR_NONE */
  uint32_t cpu_trace;          /* the same for TSR_DEVICE_CPU */
  TSR__VECTOR(tsr__flat_device) flat;
  TSR__VECTOR(tsr__reserved_mark) reserved_marks; /* by device, and there by event */
  uint32_t trace_count;                           /* length of device_traces in the file */
  uint32_t top_order; /* of the keys of the snapshot itself, see key_order.h */
  uint64_t top_keys;  /* keys of the snapshot itself; 0 for a bare list of segments */

  tsr__sidecar sidecar; /* from the file next to the snapshot, or from itself */

  uint64_t tally[TSR__WARNING_COUNT];
  tsr_warning warnings[TSR__WARNING_COUNT];
  size_t warning_count;
  bool is_cut;                             /* the input ended before the snapshot did, */
  uint32_t cut_key;                        /* under this key of the top (string id, or TSR_NONE) */
  char truncated[256];                     /* text of the warning about it */
  char ignored_columns[160], ignored[256]; /* names, and the text of the warning about them */
  char format[64];
  uint64_t input_bytes;
};

/* A row, put together from its columns. */
tsr__event tsr__event_at(const tsr__event_table *t, uint64_t row);

/* The order of extras: table, row, key. For qsort. */
int tsr__extras_compare(const void *a, const void *b);

/* The extras of the rows `first` .. `last` of a table, once reading is done: `*count` of them.
 * O(log extras). */
const tsr__extra *tsr__extras_of(const tsr_snapshot *snapshot, uint32_t table, uint64_t first,
                                 uint64_t last, size_t *count);

/* The hash of the plan of the run that made the snapshot, as the file has it; empty if it has none. */
tsr_text tsr__snapshot_plan_hash(const tsr_snapshot *snapshot);

/* What names a device among the keys of a file's dict: its number in digits, or "host". */
#define TSR__DEVICE_KEY_BYTES 16
void tsr__device_key(uint32_t device, char out[TSR__DEVICE_KEY_BYTES]);

/* Blocks that were live before a trimmed trace and are freed in it, as they were before: no event
 * records their size, their stack, or whether they waited for a stream. A trimmed snapshot lists them
 * per device (its number as text) under the key "tessera_initial_blocks". Returns the `*count` values
 * of the list, of which blocks are tagged TSR__BLOCK; NULL and 0 if there is no list. */
const tsr__value *tsr__snapshot_initial_blocks(const tsr_snapshot *snapshot, uint32_t device,
                                               size_t *count);

/* What the file has of a device besides its events, if that is a flat list; else NULL. */
const tsr__flat_device *tsr__snapshot_flat(const tsr_snapshot *snapshot, uint32_t device);
/* Whether the file is a flat list for any device. */
bool tsr__snapshot_is_flat(const tsr_snapshot *snapshot);

/* An allocator setting that is a text; empty if absent. */
tsr_text tsr__snapshot_setting_text(const tsr_snapshot *snapshot, const char *key);

/* The segments that the file lists of a device: `*count` row numbers, in the file's order. O(log
 * segments). */
const uint32_t *tsr__snapshot_segments_of(const tsr_snapshot *snapshot, uint32_t device,
                                          size_t *count);

/* The limits with their defaults filled in. */
tsr_limits tsr__limits_or_default(const tsr_limits *limits);

/* Whether the file lacks a part of what the run recorded: it is truncated or damaged, or was made from
 * one that is. Values that could not be read are no part of it: a copy has them too. */
bool tsr__snapshot_is_incomplete(const tsr_snapshot *snapshot);

/* Write the warnings from the tally; the builder's last step. */
void tsr__snapshot_warn(tsr_snapshot *snapshot);

/* The snapshot's columns, whole and in order: every invariant of this page. NULL, or a sentence
 * about the first broken one. For tests and for assertions: O(everything). */
const char *tsr__snapshot_check(const tsr_snapshot *snapshot);

#endif
