/* tables.h - the columnar snapshot itself: what tsr_snapshot is made of, and how rows get in.
 *
 *   strings  id -> bytes            frames  id -> {name, file, line}     stacks  id -> frame ids
 *   events   one row per trace entry, columns side by side, all devices in one table
 *   traces   device -> the rows of events that are its trace
 *   segments, blocks, annotations, history: one struct a row
 *   loose    what no rule names, kept as small trees (allocator settings among them)
 *
 * Rows are added by the assembler while a file is read; after that nothing changes. Functions that
 * add fail only for lack of memory, or of 32-bit ids, which they report alike: TSR_ERROR_MEMORY.
 *
 * A row's `shape` is the set of keys it had in the file, with their order (key_order.h), and a value that its column cannot hold
 * exactly (a size with a fraction, an address as text) is kept among the extras as well, so that a
 * writer can give back what was there. Extras stand under the row's origin: where a row was first,
 * before copies of it were made or the table was put in order. */
#ifndef TSR_SNAPSHOT_TABLES_H
#define TSR_SNAPSHOT_TABLES_H

#include "base/error.h"
#include "base/intern.h"
#include "base/vector.h"
#include "snapshot/schema.h"
#include "snapshot/sidecar.h"
#include "snapshot/value.h"
#include "snapshot/warnings.h"
#include "tessera/snapshot.h"

/* A column that stays one number until a row differs. */
typedef struct tsr__id_column {
  uint32_t *values; /* NULL while every row holds `uniform` */
  uint32_t uniform;
} tsr__id_column;

/* Invariant: every non-NULL column has room for `capacity` rows, of which `count` are filled. */
typedef struct tsr__event_table {
  uint64_t count, capacity;
  uint8_t *action;
  uint64_t *addr, *size;
  int64_t *time_us;
  uint32_t *stack;
  tsr__id_column stream, pool, context, metadata, category, shape;
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
/* The shape bit of an event whose pool_id is a list; keys of events end below it. */
#define TSR__EVENT_POOL_IS_LIST (UINT32_C(1) << 31)

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

/* What the file says of a block beyond tsr_block. */
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
  /* The rows that the top of the file lists; those behind them only loose values name (pinned host
   * memory has segments too). */
  size_t segment_count, annotation_count;
  uint32_t trace_count; /* length of device_traces in the file */
  uint32_t top_order;   /* of the keys of the snapshot itself, see key_order.h */
  uint64_t top_keys;    /* keys of the snapshot itself; 0 for a bare list of segments */

  tsr__sidecar sidecar; /* what the program said beside it */

  uint64_t tally[TSR__WARNING_COUNT];
  tsr_warning warnings[TSR__WARNING_COUNT];
  size_t warning_count;
  bool is_cut;         /* the input ended before the snapshot did, */
  uint32_t cut_key;    /* under this key of the top (string id, or TSR_NONE) */
  char truncated[256]; /* what the warning about it says */
  char format[64];
  uint64_t input_bytes;
};

/* An empty snapshot whose strings are the names of schema.h. NULL when out of memory. */
tsr_snapshot *tsr__snapshot_new(void);

/* Id of a string, frame, stack, ...; TSR_NONE when out of memory. */
uint32_t tsr__snapshot_string_id(tsr_snapshot *snapshot, const void *data, size_t size_bytes);
/* Make `*out` an integer beyond 64 bits, which `text` spells in decimal digits, perhaps behind a '-'.
 * One with too many digits (base/decimal.h; `size_bytes` may also be 0) is not kept, and counted. */
int tsr__snapshot_big(tsr_snapshot *snapshot, const char *text, size_t size_bytes, tsr__value *out,
                      tsr_error *error);
uint32_t tsr__snapshot_frame_id(tsr_snapshot *snapshot, const tsr__frame_key *frame);
uint32_t tsr__snapshot_stack_id(tsr_snapshot *snapshot, const uint32_t *frames, uint32_t depth);
uint32_t tsr__snapshot_frame_extras_id(tsr_snapshot *snapshot, const tsr__value *pairs,
                                       size_t value_count);
uint32_t tsr__snapshot_pool_id(tsr_snapshot *snapshot, uint64_t first, uint64_t second);
uint32_t tsr__snapshot_stream_id(tsr_snapshot *snapshot, uint64_t handle);
/* Code of an action's name; TSR_ACTION_MISSING when there are more than a byte can number. */
uint8_t tsr__snapshot_action(tsr_snapshot *snapshot, uint32_t string);

/* Room for `extra` more events. */
bool tsr__events_reserve(tsr__event_table *events, uint64_t extra);
/* Give a column values of its own; for tsr__id_column_set. */
bool tsr__id_column_spread(tsr__id_column *column, uint64_t row, uint64_t capacity);

/* Set a column at the newest row. */
static inline bool tsr__id_column_set(tsr__id_column *column, uint64_t row, uint64_t capacity,
                                      uint32_t value) {
  if (column->values) {
    column->values[row] = value;
    return true;
  }
  if (row == 0) column->uniform = value;
  if (column->uniform == value) return true;
  if (!tsr__id_column_spread(column, row, capacity)) return false;
  column->values[row] = value;
  return true;
}

/* Add a row. False when out of memory; nothing changes then. */
static inline bool tsr__events_push(tsr__event_table *t, const tsr__event *event) {
  if (t->count == t->capacity && !tsr__events_reserve(t, 1)) return false;
  uint64_t row = t->count;
  t->action[row] = event->action;
  t->addr[row] = event->addr;
  t->size[row] = event->size;
  t->time_us[row] = event->time_us;
  t->stack[row] = event->stack;
  if (!tsr__id_column_set(&t->stream, row, t->capacity, event->stream) ||
      !tsr__id_column_set(&t->pool, row, t->capacity, event->pool) ||
      !tsr__id_column_set(&t->context, row, t->capacity, event->context) ||
      !tsr__id_column_set(&t->metadata, row, t->capacity, event->metadata) ||
      !tsr__id_column_set(&t->category, row, t->capacity, event->category) ||
      !tsr__id_column_set(&t->shape, row, t->capacity, event->shape))
    return false;
  t->count++;
  return true;
}

/* A row, put together from its columns. */
tsr__event tsr__event_at(const tsr__event_table *t, uint64_t row);

/* Append a row of the event table to a trace. */
static inline bool tsr__trace_append(tsr__trace *trace, uint64_t row) {
  if (trace->runs.count) {
    tsr__rows *last = &trace->runs.items[trace->runs.count - 1];
    if (last->first + last->count == row) {
      last->count++;
      return true;
    }
  }
  return TSR__VECTOR_PUSH(&trace->runs, (tsr__rows){row, 1});
}

/* The extras of the rows `first` .. `last` of a table, once reading is done: `*count` of them.
 * Takes time logarithmic in all extras. */
const tsr__extra *tsr__extras_of(const tsr_snapshot *snapshot, uint32_t table, uint64_t first,
                                 uint64_t last, size_t *count);

/* A trimmed snapshot tells of the blocks that are freed in its window what no event tells, their
 * size, stack and whether they waited: under the key "tessera_initial_blocks", for each device (its
 * number as text), a list of them as they were before. Answers it, `*count` values; those that are
 * blocks are tagged so. NULL and 0 where there is none. */
const tsr__value *tsr__snapshot_initial_blocks(const tsr_snapshot *snapshot, uint32_t device,
                                               size_t *count);

/* A setting that is a text; empty where there is none. */
tsr_text tsr__snapshot_setting_text(const tsr_snapshot *snapshot, const char *key);

/* The segments that the file lists of a device: `*count` row numbers, in the file's order. O(log
 * segments). */
const uint32_t *tsr__snapshot_segments_of(const tsr_snapshot *snapshot, uint32_t device,
                                          size_t *count);

/* The limits with their defaults filled in. */
tsr_limits tsr__limits_or_default(const tsr_limits *limits);

/* When all rows are in: lay odd traces out in one run each, list the devices, fill the warnings.
 * `order` holds, per device, a trace's index or TSR_NONE. */
int tsr__snapshot_finish(tsr_snapshot *snapshot, const uint32_t *order, uint32_t order_count,
                         const tsr_limits *limits, tsr_error *error);

/* Fill the warnings from the tally; to be called again whenever that has changed. */
void tsr__snapshot_warn(tsr_snapshot *snapshot);

static inline void tsr__tally(tsr_snapshot *snapshot, tsr__warning warning) {
  snapshot->tally[warning]++;
}

#endif
