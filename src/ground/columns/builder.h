/* builder.h - the only way to write a snapshot.
 *
 * A tsr_snapshot is immutable once it exists. Until then a builder owns it, and every table is
 * filled through the functions below; a lint check keeps it so. They are in two groups:
 *
 *   recording   for programs that make a snapshot: an executor, a trimmed window, a test. Events,
 *               segments, blocks and annotations look the way PyTorch writes them; ids, keys and
 *               derived columns are the builder's business.
 *   file rows   for readers of files: a row with exactly the keys, in the order, that its dict had,
 *               so that a writer can give the file back.
 *
 *   tsr__builder b;
 *   tsr__builder_init(&b, NULL);
 *   tsr__builder_record(&b, "simulated");
 *   uint32_t name = tsr__builder_text(&b, "forward"), file = tsr__builder_text(&b, "model.py");
 *   uint32_t frame = tsr__builder_frame(&b, (tsr_frame){name, file, 12});
 *   uint32_t stack = tsr__builder_stack(&b, &frame, 1);
 *   tsr__builder_event(&b, 0, &(tsr__trace_event){.action = TSR_ACTION_ALLOC, .addr = 4096,
 *                             .size_bytes = 512, .time_us = 10, .stack = stack,
 *                             .category = TSR_NONE});
 *   tsr__builder_segment(&b, &(tsr_segment){.address = 4096, .total_bytes = 2 << 20,
 *                                           .stack = TSR_NONE, .pool = TSR_NONE});
 *   tsr__builder_block(&b, ...);
 *   int status = tsr__builder_finish(&b, &snapshot, error);
 *   tsr__builder_release(&b);
 *
 * Invariants, which hold between any two calls:
 *   - every column of a table has the same length; a row is added to all of them or to none
 *   - an id in a row was given out by this builder, or is TSR_NONE
 *   - blocks recorded after a segment are that segment's, in address order, without overlap
 *   - a trace is a list of rows of the event table, in the order they were appended
 *
 * Errors: a function fails only if it runs out of memory or of 32-bit ids, unless documented
 * otherwise. It then returns false or TSR_NONE, and the builder remembers: tsr__builder_finish
 * returns TSR_ERROR_MEMORY. So a program may ignore what each call returns and check once, at the
 * end; passing on the TSR_NONE that a failed call returned is allowed. What a caller passes is its
 * own responsibility and asserted (a range of memory outside its segment, say); what a file holds
 * is never asserted, and belongs in the second group.
 *
 * Not thread safe. Adding is amortised O(1), interning O(size of what is interned). */
#ifndef TSR_COLUMNS_BUILDER_H
#define TSR_COLUMNS_BUILDER_H

#include <assert.h>

#include "columns/event_table.h"

typedef struct tsr__builder {
  tsr_snapshot *snapshot; /* owned; NULL once finished. Others may read it, never write it */
  tsr_limits limits;      /* without zeros */
  TSR__VECTOR(uint32_t) trace_of;  /* by device: an index into snapshot->traces, or TSR_NONE */
  TSR__VECTOR(tsr__value) initial; /* device numbers and lists of blocks, see _initial_blocks */
  bool has_read_host; /* what the file has of TSR_DEVICE_HOST is among the loose values */
  bool
      has_flat_host_traces; /* what is recorded of TSR_DEVICE_HOST is written as one list of events */
  /* Ids of what every recorded event has; TSR_NONE until one is needed. */
  uint32_t no_context, no_metadata, empty_stack;
  bool is_laid_out; /* rows are in their final order; no more may be added */
  bool has_failed;  /* out of memory, once and for all */
} tsr__builder;

/* An empty snapshot whose strings are the names of schema.h. `limits` as in tsr_open_options (NULL:
 * the defaults); finishing checks the number of devices against them. False when out of memory. The
 * builder must be released either way. */
bool tsr__builder_init(tsr__builder *builder, const tsr_limits *limits);

/* Release what is left: everything, if it was not finished. A zeroed builder is fine. */
void tsr__builder_release(tsr__builder *builder);

/* Put the tables into their final order (sort extras, lay each trace out as one run of rows, list
 * the devices) and count what a reader should warn about. No rows can be added afterwards, but
 * facts about the file and the sidecar can; they need the final order. Called by _finish if it was
 * not called before. TSR_ERROR_MEMORY, or TSR_ERROR_LIMIT for too many devices. O(rows), plus a
 * sort of extras and segments where they are not in order. */
int tsr__builder_lay_out(tsr__builder *builder, tsr_error *error);

/* Lay out, write the warnings, and hand over the snapshot: `*out` is the caller's, the builder is
 * empty and can only be released. Nothing changes in a snapshot after this. On failure `*out` is
 * untouched. Errors are those of _lay_out. */
int tsr__builder_finish(tsr__builder *builder, tsr_snapshot **out, tsr_error *error);

/* Bytes of memory that the tables take, as allocated. O(1). */
uint64_t tsr__builder_bytes(const tsr__builder *builder);

/* ---- Names: equal ones get equal ids, counted up from 0. TSR_NONE when out of memory. ---- */

uint32_t tsr__builder_string(tsr__builder *builder, const void *data, size_t size_bytes);
/* The same for a text that ends with a zero. */
uint32_t tsr__builder_text(tsr__builder *builder, const char *text);
/* A frame with name, file and line, all of which it must have. */
uint32_t tsr__builder_frame(tsr__builder *builder, tsr_frame frame);
/* Frame ids, innermost first. `frames` may be NULL if `depth` is 0. */
uint32_t tsr__builder_stack(tsr__builder *builder, const uint32_t *frames, uint32_t depth);
uint32_t tsr__builder_pool(tsr__builder *builder, uint64_t first, uint64_t second);
/* Id of a raw stream handle; that of handle 0 is 0. */
uint32_t tsr__builder_stream(tsr__builder *builder, uint64_t handle);

/* ---- Recording ---- */

/* The snapshot is one that a program records: its top has the keys that PyTorch writes, and
 * tsr_snapshot_format returns `format`, at most 63 bytes of it. */
void tsr__builder_record(tsr__builder *builder, const char *format);

/* An event as the allocator reports it. */
typedef struct tsr__trace_event {
  tsr_action action;
  uint32_t stack;    /* id; TSR_NONE is written as a stack without frames */
  uint32_t category; /* string id; TSR_NONE: the event has no such key */
  uint64_t addr;     /* device address; for TSR_ACTION_OOM, bytes that the driver has free */
  uint64_t size_bytes;
  int64_t time_us; /* since the Unix epoch */
  uint64_t stream; /* raw handle; 0 is the default stream */
  tsr_pool pool;   /* (0, 0) is the default pool */
} tsr__trace_event;

/* Append an event to the trace of a device, oldest first. Devices may alternate, but laying
 * out is faster if they do not. The list of traces is as long as the largest device's number. The events of
 * TSR_DEVICE_HOST are written under the key host_traces, its segments under host_segments. */
bool tsr__builder_event(tsr__builder *builder, uint32_t device, const tsr__trace_event *event);
/* Events recorded so far, of all devices. */
static inline uint64_t tsr__builder_event_count(const tsr__builder *builder) {
  return builder->snapshot->events.count;
}

/* ---- Recording a flat list of allocations and frees (formats/flat.h) ---- */

/* The device of the events that follow, which has none yet: to be called once for each. What was there before
 * its first event and is freed by none is one allocation of `before_bytes` at an address that no other event
 * has; 0 for nothing. */
bool tsr__builder_flat_device(tsr__builder *builder, uint32_t device, uint64_t before_address,
                              uint64_t before_bytes);

typedef struct tsr__flat_event {
  tsr_action action;
  uint32_t stack;    /* id; TSR_NONE for none */
  uint32_t metadata; /* string id of what the file says of the memory; TSR_NONE for nothing */
  uint64_t addr, size_bytes;
  uint64_t stream; /* raw handle */
  int64_t time_us;
} tsr__flat_event;

/* Append an event to the trace of the device that was added last. */
bool tsr__builder_flat_event(tsr__builder *builder, uint32_t device, const tsr__flat_event *event);
/* From this event of that device on (-1: from the start), `bytes` are reserved. Events ascend. */
bool tsr__builder_reserved_mark(tsr__builder *builder, int64_t event, uint64_t bytes);

/* List traces of at least `count` devices, empty ones included. */
bool tsr__builder_devices(tsr__builder *builder, uint32_t count);

/* Open a segment: blocks that follow are its own. Of `segment`, the rows and totals of its blocks
 * are ignored; the builder adds them up as blocks arrive. A pool of TSR_NONE leaves its key out; a
 * stack of TSR_NONE is written as one without frames. */
bool tsr__builder_segment(tsr__builder *builder, const tsr_segment *segment);
/* Append a block to the segment opened last. It is within it, after the block before. */
bool tsr__builder_block(tsr__builder *builder, const tsr_block *block);

/* One end of a range of the program: `name` as in record_function. */
bool tsr__builder_annotation(tsr__builder *builder, uint32_t device, int64_t time_us,
                             const char *name, bool is_start);
/* The same for a name that is a string already; TSR_NONE is one that could not be made. */
bool tsr__builder_annotation_of(tsr__builder *builder, uint32_t device, int64_t time_us,
                                uint32_t name, bool is_start);

/* A key and its value; texts are values of tsr__builder_text_value. */
typedef struct tsr__setting {
  const char *key;
  tsr__value value;
} tsr__setting;

tsr__value tsr__builder_text_value(tsr__builder *builder, const char *text);
/* A dict, to be a value in turn. TSR__OPAQUE when out of memory. */
tsr__value tsr__builder_dict(tsr__builder *builder, const tsr__setting *pairs, size_t count);
/* Put a value under a key of the snapshot itself. */
bool tsr__builder_set_value(tsr__builder *builder, tsr__name key, tsr__value value);
/* The allocator's settings (`allocator_settings` in the file); to be called once. */
bool tsr__builder_settings(tsr__builder *builder, const tsr__setting *settings, size_t count);

/* ---- Recording a part of another snapshot ---- */

/* Take over all names of `from` under the same ids, its format, the keys of its top, its settings
 * and unknown values, but no rows. Takes the place of tsr__builder_record and is called before
 * anything else is added. O(names). */
bool tsr__builder_copy_names(tsr__builder *builder, const tsr_snapshot *from);
/* Append a row of from->events, with its extras, to the trace of a device. The names of `from` must
 * have been copied. */
bool tsr__builder_copy_event(tsr__builder *builder, uint32_t device, const tsr_snapshot *from,
                             uint64_t row);
bool tsr__builder_copy_annotation(tsr__builder *builder, const tsr_snapshot *from, size_t row);
/* The blocks that were live before a trimmed device's trace and are freed in it (see
 * tsr__snapshot_initial_blocks in tables.h). Once per device. */
bool tsr__builder_initial_blocks(tsr__builder *builder, uint32_t device, const tsr_block *blocks,
                                 size_t count);

/* ---- File rows ----
 *
 * A row as its dict was: `shape` holds its keys and their order, a value that no column can hold is
 * an extra under the row's number in its table. Values may be anything that a file can contain. */

/* Names as above. A raw frame may lack keys, and be part of what makes it unique. */
uint32_t tsr__builder_raw_frame(tsr__builder *builder, const tsr__frame_key *frame);
/* What a frame has beyond its columns: keys and values alternate. */
uint32_t tsr__builder_frame_extras(tsr__builder *builder, const tsr__value *pairs,
                                   size_t value_count);
/* Code of an action's name; TSR_ACTION_MISSING if there are more than a byte can number, which is
 * no failure. */
uint8_t tsr__builder_action(tsr__builder *builder, uint32_t string);
/* Make `*out` an integer beyond 64 bits, which `text` spells in decimal digits, perhaps after a '-'.
 * One with too many digits (base/decimal.h; `size_bytes` may also be 0) is not kept, and counted as
 * unreadable. 0 or TSR_ERROR_MEMORY. */
int tsr__builder_big(tsr__builder *builder, const char *text, size_t size_bytes, tsr__value *out,
                     tsr_error *error);
/* The number of the order of a dict's keys (key_order.h); keys that are no text are skipped. 0 or
 * TSR_ERROR_MEMORY. */
int tsr__builder_key_order(tsr__builder *builder, const tsr__value *pairs, size_t value_count,
                           uint32_t *order, tsr_error *error);
/* The same for `count` known keys; TSR_NONE when out of memory. */
uint32_t tsr__builder_key_order_of_ids(tsr__builder *builder, const uint32_t *keys, size_t count);

/* Add an event, which is in no trace yet. Its row is tsr__builder_event_count - 1. */
static inline bool tsr__builder_add_event(tsr__builder *builder, const tsr__event *event) {
  tsr__event_table *events = &builder->snapshot->events;
  assert(!builder->is_laid_out);
  if (events->count < TSR_NONE && tsr__events_push(events, event)) return true;
  builder->has_failed = true;
  return false;
}

/* Make room for `count` events in all, where fewer fit. Advice: without memory nothing happens. */
void tsr__builder_expect_events(tsr__builder *builder, uint64_t count);

/* A new, empty trace: its index, or TSR_NONE. */
uint32_t tsr__builder_add_trace(tsr__builder *builder);

/* Append a row of the event table to a trace. A row may be in several, and in one several times. */
static inline bool tsr__builder_extend_trace(tsr__builder *builder, uint32_t trace, uint64_t row) {
  assert(trace < builder->snapshot->traces.count && row < builder->snapshot->events.count);
  if (tsr__trace_append(&builder->snapshot->traces.items[trace], row)) return true;
  builder->has_failed = true;
  return false;
}

/* Add a row. The builder sets its origin: the row's number as it is now. */
bool tsr__builder_add_history(tsr__builder *builder, const tsr__history_row *row);
bool tsr__builder_add_block(tsr__builder *builder, const tsr_block *block,
                            const tsr__block_more *more);
/* Add a copy of a row, which keeps its origin: one block in two segments, or not next to its
 * neighbours. */
bool tsr__builder_repeat_block(tsr__builder *builder, uint32_t row);
/* The segment's blocks are rows that exist. Blocks whose dict has no address follow one another from
 * the segment's; a sum that is not the segment's size is counted as TSR__WARN_BLOCK_SUMS. */
bool tsr__builder_add_segment(tsr__builder *builder, const tsr_segment *segment,
                              const tsr__segment_more *more);
/* A segment of TSR_DEVICE_HOST that stands for one in the file, and so is not written. Its blocks are
 * rows that exist, perhaps of other segments too. */
bool tsr__builder_add_host_segment(tsr__builder *builder, const tsr_segment *segment);
bool tsr__builder_add_annotation(tsr__builder *builder, const tsr_annotation *row,
                                 const tsr__annotation_more *more);

/* Values that no rule covers. A container's direct values are consecutive: reserve them, set each
 * (they may be containers, added in between), then add the container. */
bool tsr__builder_reserve_loose(tsr__builder *builder, size_t count);
void tsr__builder_set_loose(tsr__builder *builder, uint64_t index, tsr__value value);
bool tsr__builder_add_loose(tsr__builder *builder, tsr__loose loose, tsr__value *out);
bool tsr__builder_add_extra(tsr__builder *builder, const tsr__extra *extra);

/* The top of the file. Its lists of segments and of annotations: `count` rows, which
 * come first in the table from then on, in that order, and rows that only other values name after
 * them. A row that is listed again is copied. The last `host_count` of the segments are those of
 * TSR_DEVICE_HOST, which a writer skips: it finds what the file had among the loose values. Called once each, when all rows are in; without it, what was recorded is listed and nothing
 * else. O(rows). */
bool tsr__builder_list_segments(tsr__builder *builder, const uint32_t *rows, size_t count,
                                size_t host_count);
bool tsr__builder_list_annotations(tsr__builder *builder, const uint32_t *rows, size_t count);
/* The next device's trace, or TSR_NONE if it has none. */
bool tsr__builder_list_trace(tsr__builder *builder, uint32_t trace);
/* The trace of TSR_DEVICE_HOST; once. */
void tsr__builder_list_host_trace(tsr__builder *builder, uint32_t trace);
void tsr__builder_add_top_key(tsr__builder *builder, tsr__name key);
/* The order of the top's keys, and the last of them (a string id or TSR_NONE). */
void tsr__builder_set_top(tsr__builder *builder, uint32_t order, uint32_t last_key);

/* ---- Facts about the file; also after laying out ---- */

/* The input ended before the snapshot did: counts TSR__WARN_TRUNCATED. */
void tsr__builder_cut(tsr__builder *builder);
/* What tsr_snapshot_format and tsr_snapshot_input_bytes return. The format is `wrapping` followed by
 * `reader`, cut to 63 bytes. */
void tsr__builder_describe(tsr__builder *builder, const char *wrapping, const char *reader,
                           uint64_t input_bytes);
/* Count a warning, once or `count` times more; or let it count `count` in all. */
static inline void tsr__builder_warn_times(tsr__builder *builder, tsr__warning_kind warning,
                                           uint64_t count) {
  builder->snapshot->tally[warning] += count;
}
static inline void tsr__builder_warn(tsr__builder *builder, tsr__warning_kind warning) {
  tsr__builder_warn_times(builder, warning, 1);
}
static inline void tsr__builder_set_warning(tsr__builder *builder, tsr__warning_kind warning,
                                            uint64_t count) {
  builder->snapshot->tally[warning] = count;
}
/* Count what an event lacks: an action, one that is known, or a size that it needs. */
static inline void tsr__builder_judge_event(tsr__builder *builder, const tsr__event *event) {
  if (event->action == TSR_ACTION_MISSING)
    tsr__builder_warn(builder, TSR__WARN_ACTIONS_MISSING);
  else if (event->action >= TSR_ACTION_KNOWN_COUNT)
    tsr__builder_warn(builder, TSR__WARN_ACTIONS_UNKNOWN);
  if (event->action <= TSR_ACTION_SEGMENT_UNMAP && !(event->shape & TSR__KEY(SIZE)))
    tsr__builder_warn(builder, TSR__WARN_SIZES_MISSING);
}
/* Count a column of a table that has no meaning here; the warning lists the first few names. */
void tsr__builder_ignore_column(tsr__builder *builder, const char *name, size_t size_bytes);
/* The value of the key "tessera_sidecar", a string: what tsr__sidecar_find reads if there is no
 * file. 0: none. */
void tsr__builder_embedded_sidecar(tsr__builder *builder, uint32_t string);
/* Take over what the sidecar holds: its tensors are in the order of device and block, and are in
 * blocks of the snapshot. `*sidecar` is empty afterwards. */
void tsr__builder_take_sidecar(tsr__builder *builder, tsr__sidecar *sidecar);

#endif
