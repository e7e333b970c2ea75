/* builder.c - filling the tables of a snapshot, one row at a time. See builder.h.
 *
 * What a recording program leaves out is added here the way PyTorch's writer does it
 * (torch/csrc/cuda/Module.cpp): the keys of each dict, "N/A" as the compile context, an empty
 * user_metadata, and `device_free` in place of `addr` for an event of running out of memory.
 *
 * A row is one struct or one row of columns. Where two vectors make up a table (segments and
 * segments_more, ...) both are given room before either is written, so that a failed allocation
 * leaves them equally long. */
#include "columns/builder.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/decimal.h"
#include "columns/key_order.h"

static_assert(TSR__INTERN_FULL == TSR_NONE, "what interning returns for want of memory is no id");

static const char NO_CONTEXT[] = "N/A";

/* Remember a failure; returns `ok`. */
static bool note(tsr__builder *b, bool ok) {
  b->has_failed = b->has_failed || !ok;
  return ok;
}

static uint32_t note_id(tsr__builder *b, uint32_t id) {
  b->has_failed = b->has_failed || id == TSR_NONE;
  return id;
}

#ifndef NDEBUG
static bool is_id_of(const tsr__intern *table, uint32_t id) {
  return id == TSR_NONE || id < table->count;
}
#endif

/* An empty snapshot whose strings are the names of schema.h. NULL when out of memory. */
static tsr_snapshot *new_snapshot(void) {
  tsr_snapshot *snapshot = TSR__NEW(tsr_snapshot);
  if (!snapshot) return NULL;
  tsr__intern_init(&snapshot->strings);
  tsr__intern_init(&snapshot->frames);
  tsr__intern_init(&snapshot->stacks);
  tsr__intern_init(&snapshot->frame_extras);
  tsr__intern_init(&snapshot->orders);
  tsr__intern_init(&snapshot->pools);
  tsr__intern_init(&snapshot->streams);
  snapshot->host_trace = snapshot->cpu_trace = TSR_NONE;
  for (int name = 0; name < TSR__NAME_COUNT; name++) {
    const char *text = tsr__name_text((tsr__name)name);
    if (tsr__intern_put(&snapshot->strings, text, strlen(text), NULL) != (uint32_t)name) goto out;
  }
  uint64_t default_stream = 0;
  if (tsr__intern_put(&snapshot->streams, &default_stream, sizeof default_stream, NULL) != 0)
    goto out;
  return snapshot;
out:
  tsr_snapshot_free(snapshot);
  return NULL;
}

bool tsr__builder_init(tsr__builder *b, const tsr_limits *limits) {
  *b = (tsr__builder){.snapshot = new_snapshot(),
                      .limits = tsr__limits_or_default(limits),
                      .no_context = TSR_NONE,
                      .no_metadata = TSR_NONE,
                      .empty_stack = TSR_NONE};
  return note(b, b->snapshot);
}

void tsr__builder_release(tsr__builder *b) {
  tsr_snapshot_free(b->snapshot);
  b->snapshot = NULL;
  TSR__VECTOR_FREE(&b->trace_of);
  TSR__VECTOR_FREE(&b->initial);
}

/* Bytes of an event's row, and of a trace with its first runs. */
enum { EVENT_BYTES = 53, TRACE_BYTES = 280 };

static uint64_t intern_bytes(const tsr__intern *table) {
  uint64_t slots = table->slots ? (uint64_t)table->mask + 1 : 0;
  return table->arena.total_bytes + table->capacity * sizeof *table->items +
         slots * sizeof *table->slots;
}

uint64_t tsr__builder_bytes(const tsr__builder *b) {
#define VECTOR_BYTES(vector) ((uint64_t)(vector).capacity * sizeof *(vector).items)
  const tsr_snapshot *s = b->snapshot;
  return intern_bytes(&s->strings) + intern_bytes(&s->frames) + intern_bytes(&s->stacks) +
         intern_bytes(&s->frame_extras) + intern_bytes(&s->orders) + intern_bytes(&s->pools) +
         intern_bytes(&s->streams) + s->events.capacity * EVENT_BYTES +
         s->traces.capacity * TRACE_BYTES + VECTOR_BYTES(s->segments) +
         VECTOR_BYTES(s->segments_more) + VECTOR_BYTES(s->blocks) + VECTOR_BYTES(s->blocks_more) +
         VECTOR_BYTES(s->annotations) + VECTOR_BYTES(s->annotations_more) +
         VECTOR_BYTES(s->history) + VECTOR_BYTES(s->extras) + VECTOR_BYTES(s->loose) +
         VECTOR_BYTES(s->loose_values);
#undef VECTOR_BYTES
}

/* ---- names ---- */

uint32_t tsr__builder_string(tsr__builder *b, const void *data, size_t size_bytes) {
  return note_id(b, tsr__intern_put(&b->snapshot->strings, data, size_bytes, NULL));
}

uint32_t tsr__builder_text(tsr__builder *b, const char *text) {
  return tsr__builder_string(b, text, strlen(text));
}

uint32_t tsr__builder_frame(tsr__builder *b, tsr_frame frame) {
  tsr__frame_key key = {.frame = frame,
                        .shape = TSR__KEY(NAME) | TSR__KEY(FILENAME) | TSR__KEY(LINE)};
  if (frame.name == TSR_NONE || frame.file == TSR_NONE) return note_id(b, TSR_NONE);
  assert(frame.name < b->snapshot->strings.count && frame.file < b->snapshot->strings.count);
  return note_id(b, tsr__intern_put(&b->snapshot->frames, &key, sizeof key, NULL));
}

uint32_t tsr__builder_stack(tsr__builder *b, const uint32_t *frames, uint32_t depth) {
  assert(frames || !depth);
  if (b->has_failed) return TSR_NONE; /* a frame may be TSR_NONE then */
#ifndef NDEBUG
  for (uint32_t i = 0; i < depth; i++) assert(frames[i] < b->snapshot->frames.count);
#endif
  return note_id(b, tsr__intern_put(&b->snapshot->stacks, frames, depth * sizeof *frames, NULL));
}

uint32_t tsr__builder_pool(tsr__builder *b, uint64_t first, uint64_t second) {
  tsr_pool pool = {first, second};
  return note_id(b, tsr__intern_put(&b->snapshot->pools, &pool, sizeof pool, NULL));
}

uint32_t tsr__builder_stream(tsr__builder *b, uint64_t handle) {
  return note_id(b, tsr__intern_put(&b->snapshot->streams, &handle, sizeof handle, NULL));
}

uint32_t tsr__builder_raw_frame(tsr__builder *b, const tsr__frame_key *frame) {
  assert(is_id_of(&b->snapshot->strings, frame->frame.name));
  assert(is_id_of(&b->snapshot->strings, frame->frame.file));
  assert(frame->extras <= b->snapshot->frame_extras.count);
  return note_id(b, tsr__intern_put(&b->snapshot->frames, frame, sizeof *frame, NULL));
}

uint32_t tsr__builder_frame_extras(tsr__builder *b, const tsr__value *pairs, size_t value_count) {
  assert(value_count && value_count % 2 == 0);
  return note_id(
      b, tsr__intern_put(&b->snapshot->frame_extras, pairs, value_count * sizeof *pairs, NULL));
}

uint8_t tsr__builder_action(tsr__builder *b, uint32_t string) {
  tsr_snapshot *s = b->snapshot;
  assert(string < s->strings.count);
  if (string >= TSR__FIRST_ACTION && string <= TSR__LAST_ACTION)
    return (uint8_t)(string - TSR__FIRST_ACTION);
  for (size_t i = 0; i < s->actions.count; i++)
    if (s->actions.items[i] == string) return (uint8_t)(TSR_ACTION_KNOWN_COUNT + i);
  if (s->actions.count >= UINT8_MAX - TSR_ACTION_KNOWN_COUNT) return TSR_ACTION_MISSING;
  if (!note(b, TSR__VECTOR_PUSH(&s->actions, string))) return TSR_ACTION_MISSING;
  return (uint8_t)(TSR_ACTION_KNOWN_COUNT + s->actions.count - 1);
}

int tsr__builder_big(tsr__builder *b, const char *text, size_t size_bytes, tsr__value *out,
                     tsr_error *error) {
  *out = tsr__value_id(TSR__BIG, TSR_NONE);
  if (!size_bytes || size_bytes - (*text == '-') > TSR__DECIMAL_DIGITS) {
    tsr__builder_warn(b, TSR__WARN_VALUES_UNREADABLE);
    return 0;
  }
  out->id = tsr__builder_string(b, text, size_bytes);
  return out->id == TSR_NONE ? tsr__fail_memory(error) : 0;
}

uint32_t tsr__builder_key_order_of_ids(tsr__builder *b, const uint32_t *keys, size_t count) {
  size_t size_bytes = count * sizeof *keys;
  uint32_t id = tsr__intern_find(&b->snapshot->orders, keys, size_bytes);
  if (id != TSR__INTERN_FULL) return id + 1;
  if (b->snapshot->orders.count >= TSR__ORDER_LIMIT) return 0;
  id = tsr__intern_put(&b->snapshot->orders, keys, size_bytes, NULL);
  return note_id(b, id) == TSR_NONE ? TSR_NONE : id + 1;
}

/* A key that the dict has twice stands where it was first, as in Python. */
static bool is_repeated(const uint32_t *keys, size_t count, uint32_t key) {
  for (size_t i = 0; i < count; i++)
    if (keys[i] == key) return true;
  return false;
}

int tsr__builder_key_order(tsr__builder *b, const tsr__value *pairs, size_t value_count,
                           uint32_t *order, tsr_error *error) {
  uint32_t keys[TSR__ORDER_KEYS], previous = 0;
  size_t count = 0;
  bool is_plain = true;
  *order = 0;
  for (size_t i = 0; i < value_count; i += 2) {
    if (pairs[i].tag != TSR__STRING) continue;
    uint32_t key = pairs[i].id;
    bool is_next = key < TSR__KEY_COUNT && (count == 0 || key > previous);
    is_plain = is_plain && is_next;
    if (!is_plain && is_repeated(keys, count, key)) continue;
    if (count == TSR__ORDER_KEYS) return 0;
    keys[count++] = previous = key;
  }
  if (is_plain) return 0;
  uint32_t found = tsr__builder_key_order_of_ids(b, keys, count);
  if (found == TSR_NONE) return tsr__fail_memory(error);
  *order = found;
  return 0;
}

/* The id of a stack, or that of the one without frames. */
static uint32_t stack_or_empty(tsr__builder *b, uint32_t stack) {
  assert(is_id_of(&b->snapshot->stacks, stack));
  if (stack != TSR_NONE) return stack;
  if (b->empty_stack == TSR_NONE) b->empty_stack = tsr__builder_stack(b, NULL, 0);
  return b->empty_stack;
}

/* ---- events ---- */

void tsr__builder_record(tsr__builder *b, const char *format) {
  b->snapshot->top_keys =
      TSR__KEY(SEGMENTS) | TSR__KEY(DEVICE_TRACES) | TSR__KEY(EXTERNAL_ANNOTATIONS);
  (void)snprintf(b->snapshot->format, sizeof b->snapshot->format, "%s", format);
}

bool tsr__builder_devices(tsr__builder *b, uint32_t count) {
  assert(!b->is_laid_out);
  while (b->trace_of.count < count)
    if (!TSR__VECTOR_PUSH(&b->trace_of, TSR_NONE)) return note(b, false);
  return true;
}

/* The trace of a device, made if it has none yet; NULL when out of memory. */
static tsr__trace *trace_of(tsr__builder *b, uint32_t device) {
  tsr_snapshot *s = b->snapshot;
  bool is_gpu = device < TSR_DEVICE_CPU;
  if (is_gpu && device >= b->trace_of.count && !tsr__builder_devices(b, device + 1)) return NULL;
  uint32_t *index = is_gpu                      ? &b->trace_of.items[device]
                    : device == TSR_DEVICE_HOST ? &s->host_trace
                                                : &s->cpu_trace;
  if (*index == TSR_NONE) {
    if (!TSR__VECTOR_PUSH(&s->traces, (tsr__trace){0})) return NULL;
    *index = (uint32_t)s->traces.count - 1;
  }
  assert(*index < s->traces.count);
  return &s->traces.items[*index];
}

/* Append a row to the table, and to the trace of a device. */
static bool append_event(tsr__builder *b, uint32_t device, const tsr__event *event) {
  tsr_snapshot *s = b->snapshot;
  tsr__trace *trace = trace_of(b, device);
  return note(b, trace && s->events.count < TSR_NONE && tsr__events_push(&s->events, event) &&
                     tsr__trace_append(trace, s->events.count - 1));
}

#define EVENT_SHAPE                                                           \
  (TSR__KEY(ACTION) | TSR__KEY(SIZE) | TSR__KEY(STREAM) | TSR__KEY(TIME_US) | \
   TSR__KEY(COMPILE_CONTEXT) | TSR__KEY(USER_METADATA) | TSR__KEY(POOL_ID) | TSR__KEY(FRAMES))

bool tsr__builder_event(tsr__builder *b, uint32_t device, const tsr__trace_event *event) {
  assert(!b->is_laid_out && event->action < TSR_ACTION_MISSING);
  assert(is_id_of(&b->snapshot->strings, event->category));
  if (b->no_context == TSR_NONE) b->no_context = tsr__builder_text(b, NO_CONTEXT);
  if (b->no_metadata == TSR_NONE) b->no_metadata = tsr__builder_text(b, "");
  uint64_t shape = EVENT_SHAPE;
  shape |= event->action == TSR_ACTION_OOM ? TSR__KEY(DEVICE_FREE) : TSR__KEY(ADDR);
  if (event->category != TSR_NONE) shape |= TSR__KEY(CATEGORY);
  tsr__event row = {.addr = event->addr,
                    .size = event->size_bytes,
                    .time_us = event->time_us,
                    .stack = stack_or_empty(b, event->stack),
                    .stream = tsr__builder_stream(b, event->stream),
                    .pool = tsr__builder_pool(b, event->pool.first, event->pool.second),
                    .context = b->no_context,
                    .metadata = b->no_metadata,
                    .category = event->category,
                    .shape = (uint32_t)shape,
                    .action = (uint8_t)event->action};
  return !b->has_failed && append_event(b, device, &row);
}

bool tsr__builder_flat_event(tsr__builder *b, uint32_t device, const tsr__flat_event *event) {
  assert(!b->is_laid_out && b->snapshot->flat.count);
  assert(b->snapshot->flat.items[b->snapshot->flat.count - 1].device == device);
  assert(is_id_of(&b->snapshot->strings, event->metadata));
  uint64_t shape = TSR__KEY(ACTION) | TSR__KEY(SIZE) | TSR__KEY(TIME_US) | TSR__KEY(FRAMES);
  shape |= event->action == TSR_ACTION_OOM ? TSR__KEY(DEVICE_FREE) : TSR__KEY(ADDR);
  if (event->metadata != TSR_NONE) shape |= TSR__KEY(USER_METADATA);
  if (event->stream) shape |= TSR__KEY(STREAM);
  tsr__event row = TSR__EVENT_EMPTY;
  row.addr = event->addr;
  row.size = event->size_bytes;
  row.time_us = event->time_us;
  row.stack = stack_or_empty(b, event->stack);
  row.stream = tsr__builder_stream(b, event->stream);
  row.metadata = event->metadata;
  row.shape = (uint32_t)shape;
  row.action = (uint8_t)event->action;
  return !b->has_failed && append_event(b, device, &row);
}

bool tsr__builder_flat_device(tsr__builder *b, uint32_t device, uint64_t before_address,
                              uint64_t before_bytes) {
  tsr__flat_device row = {.device = device,
                          .before_address = before_address,
                          .before_bytes = before_bytes,
                          .first_mark = b->snapshot->reserved_marks.count};
  assert(!b->is_laid_out && !tsr__snapshot_flat(b->snapshot, device));
  return note(b, TSR__VECTOR_PUSH(&b->snapshot->flat, row));
}

bool tsr__builder_reserved_mark(tsr__builder *b, int64_t event, uint64_t bytes) {
  tsr_snapshot *s = b->snapshot;
  assert(s->flat.count);
  tsr__flat_device *flat = &s->flat.items[s->flat.count - 1];
  assert(!flat->mark_count || s->reserved_marks.items[s->reserved_marks.count - 1].event < event);
  if (!note(b, TSR__VECTOR_PUSH(&s->reserved_marks, (tsr__reserved_mark){event, bytes})))
    return false;
  flat->mark_count++;
  return true;
}

/* ---- segments, blocks, annotations ---- */

#define BLOCK_SHAPE                                                                  \
  (TSR__KEY(ADDRESS) | TSR__KEY(SIZE) | TSR__KEY(REQUESTED_SIZE) | TSR__KEY(STATE) | \
   TSR__KEY(FRAMES))
#define SEGMENT_SHAPE                                                                             \
  (TSR__KEY(DEVICE) | TSR__KEY(ADDRESS) | TSR__KEY(TOTAL_SIZE) | TSR__KEY(ALLOCATED_SIZE) |       \
   TSR__KEY(ACTIVE_SIZE) | TSR__KEY(REQUESTED_SIZE) | TSR__KEY(STREAM) | TSR__KEY(SEGMENT_TYPE) | \
   TSR__KEY(IS_EXPANDABLE) | TSR__KEY(FRAMES) | TSR__KEY(BLOCKS))
#define ANNOTATION_SHAPE (TSR__KEY(STAGE) | TSR__KEY(NAME) | TSR__KEY(DEVICE) | TSR__KEY(TIME_US))

static bool push_segment(tsr__builder *b, const tsr_segment *segment,
                         const tsr__segment_more *more) {
  tsr_snapshot *s = b->snapshot;
  assert(!b->is_laid_out && s->segments.count == s->segments_more.count);
  assert(is_id_of(&s->stacks, segment->stack) && is_id_of(&s->pools, segment->pool));
  if (s->segments.count >= TSR_NONE || !TSR__VECTOR_RESERVE(&s->segments, 1) ||
      !TSR__VECTOR_RESERVE(&s->segments_more, 1))
    return note(b, false);
  s->segments_more.items[s->segments_more.count] = *more;
  s->segments_more.items[s->segments_more.count++].origin = (uint32_t)s->segments.count;
  s->segments.items[s->segments.count++] = *segment;
  return true;
}

bool tsr__builder_segment(tsr__builder *b, const tsr_segment *segment) {
  tsr_snapshot *s = b->snapshot;
  tsr_segment row = *segment;
  assert(!b->is_laid_out && s->segment_count == s->segments.count);
  assert(is_id_of(&s->pools, segment->pool));
  row.stack = stack_or_empty(b, segment->stack);
  (void)tsr__builder_stream(b, segment->stream); /* so that tsr_snapshot_find_stream knows it */
  row.first_block = s->blocks.count;
  row.block_count = row.allocated_bytes = row.active_bytes = row.requested_bytes = 0;
  uint64_t shape = SEGMENT_SHAPE | (row.pool != TSR_NONE ? TSR__KEY(SEGMENT_POOL_ID) : 0);
  if (row.device == TSR_DEVICE_HOST) shape &= ~TSR__KEY(DEVICE);
  tsr__segment_more more = {.shape = shape,
                            .type = row.is_large ? TSR__NAME_LARGE : TSR__NAME_SMALL,
                            .origin = (uint32_t)s->segments.count};
  if (b->has_failed || !push_segment(b, &row, &more)) return false;
  s->segment_count = s->segments.count;
  s->listed_segment_count += row.device != TSR_DEVICE_HOST;
  return true;
}

/* A row of the table of blocks, of no segment yet. */
static bool push_block(tsr__builder *b, const tsr_block *block) {
  static const uint32_t states[] = {TSR__NAME_INACTIVE, TSR__NAME_ACTIVE_ALLOCATED,
                                    TSR__NAME_ACTIVE_PENDING_FREE, TSR__NAME_INACTIVE};
  tsr_block row = *block;
  assert(!b->is_laid_out && block->state < sizeof states / sizeof *states);
  row.stack = stack_or_empty(b, block->stack);
  tsr__block_more more = {.shape = BLOCK_SHAPE, .state = states[row.state]};
  return !b->has_failed && tsr__builder_add_block(b, &row, &more);
}

#ifndef NDEBUG
/* Is the block in the segment, and after the segment's last block? */
static bool is_next_in(const tsr_snapshot *s, const tsr_segment *segment, const tsr_block *block) {
  uint64_t offset = block->address - segment->address, least = 0;
  if (segment->block_count) {
    const tsr_block *last = &s->blocks.items[s->blocks.count - 1];
    least = last->address + last->size_bytes - segment->address;
  }
  return offset >= least && offset <= segment->total_bytes &&
         block->size_bytes <= segment->total_bytes - offset;
}
#endif

bool tsr__builder_block(tsr__builder *b, const tsr_block *block) {
  tsr_snapshot *s = b->snapshot;
  if (b->has_failed) return false; /* perhaps there is no segment */
  assert(s->segments.count);
  tsr_segment *segment = &s->segments.items[s->segments.count - 1];
  assert(segment->first_block + segment->block_count == s->blocks.count);
  assert(is_next_in(s, segment, block));
  if (!push_block(b, block)) return false;
  segment->block_count++;
  if (block->state == TSR_BLOCK_ALLOCATED) segment->allocated_bytes += block->size_bytes;
  if (block->state != TSR_BLOCK_INACTIVE) {
    segment->active_bytes += block->size_bytes;
    segment->requested_bytes += block->requested_bytes;
  }
  return true;
}

static bool push_annotation(tsr__builder *b, const tsr_annotation *row, uint64_t shape) {
  tsr_snapshot *s = b->snapshot;
  tsr__annotation_more more = {.shape = shape};
  assert(s->annotation_count == s->annotations.count);
  if (!tsr__builder_add_annotation(b, row, &more)) return false;
  s->annotation_count = s->annotations.count;
  return true;
}

bool tsr__builder_annotation(tsr__builder *b, uint32_t device, int64_t time_us, const char *name,
                             bool is_start) {
  return tsr__builder_annotation_of(b, device, time_us, tsr__builder_text(b, name), is_start);
}

bool tsr__builder_annotation_of(tsr__builder *b, uint32_t device, int64_t time_us, uint32_t name,
                                bool is_start) {
  assert(is_id_of(&b->snapshot->strings, name));
  tsr_annotation row = {.time_us = time_us,
                        .name = name,
                        .stage = is_start ? TSR__NAME_START : TSR__NAME_END,
                        .device = device,
                        .is_start = is_start,
                        .is_end = !is_start};
  return row.name != TSR_NONE && push_annotation(b, &row, ANNOTATION_SHAPE);
}

/* ---- values of the top ---- */

tsr__value tsr__builder_text_value(tsr__builder *b, const char *text) {
  return tsr__value_id(TSR__STRING, tsr__builder_text(b, text));
}

tsr__value tsr__builder_dict(tsr__builder *b, const tsr__setting *pairs, size_t count) {
  tsr_snapshot *s = b->snapshot;
  tsr__loose dict = {TSR__LOOSE_DICT, (uint32_t)(2 * count), s->loose_values.count};
  assert(!b->is_laid_out && (pairs || !count));
  bool ok = TSR__VECTOR_RESERVE(&s->loose_values, 2 * count + 1);
  for (size_t i = 0; ok && i < count; i++) {
    assert(pairs[i].value.tag != TSR__LOOSE || pairs[i].value.id < s->loose.count);
    s->loose_values.items[s->loose_values.count++] = tsr__builder_text_value(b, pairs[i].key);
    s->loose_values.items[s->loose_values.count++] = pairs[i].value;
  }
  if (!note(b, ok && TSR__VECTOR_PUSH(&s->loose, dict))) return tsr__value_plain(TSR__OPAQUE);
  return tsr__value_id(TSR__LOOSE, (uint32_t)s->loose.count - 1);
}

bool tsr__builder_set_value(tsr__builder *b, tsr__name key, tsr__value value) {
  tsr__extra extra = {.value = value, .key = key, .table = TSR__NULL};
  return tsr__builder_add_extra(b, &extra);
}

bool tsr__builder_settings(tsr__builder *b, const tsr__setting *settings, size_t count) {
  return tsr__builder_set_value(b, TSR__NAME_ALLOCATOR_SETTINGS,
                                tsr__builder_dict(b, settings, count));
}

/* ---- a part of another snapshot ---- */

static bool copy_interned(const tsr__intern *from, tsr__intern *to) {
  for (uint32_t id = to->count; id < from->count; id++)
    if (tsr__intern_put(to, from->items[id].data, from->items[id].size_bytes, NULL) != id)
      return false;
  return true;
}

#define COPY_VECTOR(from, to)                                                               \
  (TSR__VECTOR_RESERVE((to), (from)->count) &&                                              \
   ((from)->count                                                                           \
        ? (memcpy((to)->items, (from)->items, (from)->count * sizeof *(from)->items), true) \
        : true) &&                                                                          \
   ((to)->count = (from)->count, true))

/* A kept value may name a row of the other snapshot, which the part has not, or has under another
 * number. It is not kept; number and kind only keep it apart from other such values. */
static tsr__value without_row(tsr__value value) {
  switch ((tsr__tag)value.tag) {
  case TSR__EVENT:
  case TSR__SEGMENT:
  case TSR__BLOCK:
  case TSR__ANNOTATION:
  case TSR__HISTORY:
  case TSR__TRACE: return (tsr__value){.tag = TSR__OPAQUE, .id = value.id, .u = value.tag};
  default: return value;
  }
}

/* What frames hold beyond names and lines, under the same ids. */
static bool copy_frame_extras(const tsr__intern *from, tsr__intern *to) {
  TSR__VECTOR(tsr__value) values = {0};
  bool ok = true;
  for (uint32_t id = 0; ok && id < from->count; id++) {
    const tsr__interned *item = &from->items[id];
    size_t count = item->size_bytes / sizeof *values.items;
    values.count = 0;
    ok = TSR__VECTOR_RESERVE(&values, count);
    for (size_t i = 0; ok && i < count; i++)
      values.items[i] = without_row(((const tsr__value *)item->data)[i]);
    ok = ok && tsr__intern_put(to, values.items, item->size_bytes, NULL) == id;
  }
  TSR__VECTOR_FREE(&values);
  return ok;
}

/* The keys of the top dict that a part sets itself. */
static bool is_made_anew(uint32_t key) {
  return key == TSR__NAME_SEGMENTS || key == TSR__NAME_DEVICE_TRACES ||
         key == TSR__NAME_EXTERNAL_ANNOTATIONS || key == TSR__NAME_INITIAL_BLOCKS ||
         key == TSR__NAME_SIDECAR || key == TSR__NAME_INCOMPLETE;
}

bool tsr__builder_copy_names(tsr__builder *b, const tsr_snapshot *from) {
  tsr_snapshot *to = b->snapshot;
  assert(!to->events.count && !to->segments.count && !to->annotations.count && !to->loose.count);
  assert(to->strings.count == TSR__NAME_COUNT && !to->stacks.count && !to->pools.count);
  bool ok =
      copy_interned(&from->strings, &to->strings) && copy_interned(&from->frames, &to->frames) &&
      copy_interned(&from->stacks, &to->stacks) &&
      copy_frame_extras(&from->frame_extras, &to->frame_extras) &&
      copy_interned(&from->orders, &to->orders) && copy_interned(&from->pools, &to->pools) &&
      copy_interned(&from->streams, &to->streams) && COPY_VECTOR(&from->actions, &to->actions) &&
      COPY_VECTOR(&from->loose, &to->loose) && COPY_VECTOR(&from->loose_values, &to->loose_values);
  for (size_t i = 0; ok && i < to->loose_values.count; i++)
    to->loose_values.items[i] = without_row(to->loose_values.items[i]);
  for (size_t i = 0; ok && i < from->extras.count; i++) {
    tsr__extra extra = from->extras.items[i];
    if (extra.table == TSR__NULL && extra.key == TSR__NAME_HOST_TRACES)
      b->has_flat_host_traces = extra.value.tag == TSR__TRACE;
    bool is_host = extra.key == TSR__NAME_HOST_SEGMENTS || extra.key == TSR__NAME_HOST_TRACES;
    if (extra.table != TSR__NULL || is_host || is_made_anew(extra.key)) continue;
    extra.value = without_row(extra.value);
    ok = TSR__VECTOR_PUSH(&to->extras, extra);
  }
  to->top_keys = from->top_keys | TSR__KEY(SEGMENTS) | TSR__KEY(DEVICE_TRACES);
  memcpy(to->format, from->format, sizeof to->format);
  return note(b, ok);
}

bool tsr__builder_copy_event(tsr__builder *b, uint32_t device, const tsr_snapshot *from,
                             uint64_t row) {
  tsr_snapshot *s = b->snapshot;
  tsr__event event = tsr__event_at(&from->events, row);
  size_t count;
  assert(!b->is_laid_out && row < from->events.count);
  assert(s->stacks.count >= from->stacks.count && s->strings.count >= from->strings.count);
  const tsr__extra *extras = tsr__extras_of(from, TSR__EVENT, row, row, &count);
  if (!append_event(b, device, &event) || !TSR__VECTOR_RESERVE(&s->extras, count))
    return note(b, false);
  for (size_t i = 0; i < count; i++) {
    tsr__extra extra = extras[i];
    extra.row = s->events.count - 1;
    extra.value = without_row(extra.value);
    s->extras.items[s->extras.count++] = extra;
  }
  return true;
}

bool tsr__builder_copy_annotation(tsr__builder *b, const tsr_snapshot *from, size_t row) {
  assert(row < from->annotations.count && b->snapshot->strings.count >= from->strings.count);
  return push_annotation(b, &from->annotations.items[row], from->annotations_more.items[row].shape);
}

bool tsr__builder_initial_blocks(tsr__builder *b, uint32_t device, const tsr_block *blocks,
                                 size_t count) {
  char number[TSR__DEVICE_KEY_BYTES];
  tsr_snapshot *s = b->snapshot;
  tsr__loose list = {TSR__LOOSE_LIST, (uint32_t)count, s->loose_values.count};
  assert(blocks || !count);
  tsr__device_key(device, number);
  tsr__value name = tsr__builder_text_value(b, number);
  bool ok = !b->has_failed && TSR__VECTOR_RESERVE(&s->loose_values, count + 1);
  for (size_t i = 0; ok && i < count; i++) {
    tsr__value row = tsr__value_id(TSR__BLOCK, (uint32_t)s->blocks.count);
    ok = push_block(b, &blocks[i]);
    s->loose_values.items[s->loose_values.count++] = row;
  }
  ok = ok && TSR__VECTOR_RESERVE(&b->initial, 2) && TSR__VECTOR_PUSH(&s->loose, list);
  if (!ok) return note(b, false);
  b->initial.items[b->initial.count++] = name;
  b->initial.items[b->initial.count++] = tsr__value_id(TSR__LOOSE, (uint32_t)s->loose.count - 1);
  return true;
}

/* ---- rows of a file ---- */

uint32_t tsr__builder_add_trace(tsr__builder *b) {
  assert(!b->is_laid_out);
  if (!note(b, TSR__VECTOR_PUSH(&b->snapshot->traces, (tsr__trace){0}))) return TSR_NONE;
  return (uint32_t)b->snapshot->traces.count - 1;
}

bool tsr__builder_add_history(tsr__builder *b, const tsr__history_row *row) {
  assert(!b->is_laid_out && is_id_of(&b->snapshot->stacks, row->stack));
  return note(b, TSR__VECTOR_PUSH(&b->snapshot->history, *row));
}

bool tsr__builder_add_block(tsr__builder *b, const tsr_block *block, const tsr__block_more *more) {
  tsr_snapshot *s = b->snapshot;
  assert(!b->is_laid_out && s->blocks.count == s->blocks_more.count);
  assert(is_id_of(&s->stacks, block->stack) && is_id_of(&s->strings, more->state));
  assert(more->first_history + (uint64_t)more->history_count <= s->history.count);
  if (s->blocks.count >= TSR_NONE || !TSR__VECTOR_RESERVE(&s->blocks, 1) ||
      !TSR__VECTOR_RESERVE(&s->blocks_more, 1))
    return note(b, false);
  s->blocks_more.items[s->blocks_more.count] = *more;
  s->blocks_more.items[s->blocks_more.count++].origin = (uint32_t)s->blocks.count;
  s->blocks.items[s->blocks.count++] = *block;
  return true;
}

bool tsr__builder_repeat_block(tsr__builder *b, uint32_t row) {
  tsr_snapshot *s = b->snapshot;
  assert(!b->is_laid_out && row < s->blocks.count);
  tsr_block block = s->blocks.items[row];
  uint32_t origin = s->blocks_more.items[row].origin;
  tsr__block_more more = s->blocks_more.items[row];
  if (!tsr__builder_add_block(b, &block, &more)) return false;
  s->blocks_more.items[s->blocks_more.count - 1].origin = origin;
  return true;
}

/* Fill in the addresses that the file leaves out, and add up the sizes. */
static void place_blocks(tsr__builder *b, const tsr_segment *segment) {
  tsr_snapshot *snapshot = b->snapshot;
  uint64_t address = segment->address, sum = 0;
  bool overflow = false;
  for (uint64_t i = 0; i < segment->block_count; i++) {
    tsr_block *block = &snapshot->blocks.items[segment->first_block + i];
    if (!(snapshot->blocks_more.items[segment->first_block + i].shape & TSR__KEY(ADDRESS)))
      block->address = address;
    address = block->address + block->size_bytes;
    overflow = overflow || sum + block->size_bytes < sum;
    sum += block->size_bytes;
  }
  if (overflow || sum != segment->total_bytes) tsr__builder_warn(b, TSR__WARN_BLOCK_SUMS);
}

bool tsr__builder_add_segment(tsr__builder *b, const tsr_segment *segment,
                              const tsr__segment_more *more) {
  assert(segment->first_block + segment->block_count <= b->snapshot->blocks.count);
  if (!push_segment(b, segment, more)) return false;
  if (more->shape & TSR__KEY(BLOCKS)) place_blocks(b, segment);
  return true;
}

bool tsr__builder_add_host_segment(tsr__builder *b, const tsr_segment *segment) {
  tsr__segment_more more = {.type = TSR_NONE};
  assert(segment->device == TSR_DEVICE_HOST);
  assert(segment->first_block + segment->block_count <= b->snapshot->blocks.count);
  return push_segment(b, segment, &more);
}

bool tsr__builder_add_annotation(tsr__builder *b, const tsr_annotation *row,
                                 const tsr__annotation_more *more) {
  tsr_snapshot *s = b->snapshot;
  assert(!b->is_laid_out && s->annotations.count == s->annotations_more.count);
  assert(is_id_of(&s->strings, row->name) && is_id_of(&s->strings, row->stage));
  if (s->annotations.count >= TSR_NONE || !TSR__VECTOR_RESERVE(&s->annotations, 1) ||
      !TSR__VECTOR_RESERVE(&s->annotations_more, 1))
    return note(b, false);
  s->annotations_more.items[s->annotations_more.count] = *more;
  s->annotations_more.items[s->annotations_more.count++].origin = (uint32_t)s->annotations.count;
  s->annotations.items[s->annotations.count++] = *row;
  return true;
}

void tsr__builder_expect_events(tsr__builder *b, uint64_t count) {
  assert(!b->is_laid_out);
  if (count > b->snapshot->events.capacity) (void)tsr__events_resize(&b->snapshot->events, count);
}

bool tsr__builder_reserve_loose(tsr__builder *b, size_t count) {
  tsr_snapshot *s = b->snapshot;
  assert(!b->is_laid_out);
  /* One more than needed, so that there are items to point to if all containers are empty. */
  if (!TSR__VECTOR_RESERVE(&s->loose_values, count + 1)) return note(b, false);
  for (size_t i = 0; i < count; i++)
    s->loose_values.items[s->loose_values.count++] = tsr__value_plain(TSR__OPAQUE);
  return true;
}

void tsr__builder_set_loose(tsr__builder *b, uint64_t index, tsr__value value) {
  assert(!b->is_laid_out && index < b->snapshot->loose_values.count);
  assert(value.tag != TSR__CONTAINER);
  b->snapshot->loose_values.items[index] = value;
}

bool tsr__builder_add_loose(tsr__builder *b, tsr__loose loose, tsr__value *out) {
  tsr_snapshot *s = b->snapshot;
  assert(!b->is_laid_out && loose.first + loose.count <= s->loose_values.count);
  if (!note(b, TSR__VECTOR_PUSH(&s->loose, loose))) return false;
  *out = tsr__value_id(TSR__LOOSE, (uint32_t)s->loose.count - 1);
  return true;
}

bool tsr__builder_add_extra(tsr__builder *b, const tsr__extra *extra) {
  assert(!b->is_laid_out && extra->key < b->snapshot->strings.count);
  assert(extra->value.tag != TSR__CONTAINER);
  return note(b, TSR__VECTOR_PUSH(&b->snapshot->extras, *extra));
}

bool tsr__builder_list_trace(tsr__builder *b, uint32_t trace) {
  assert(!b->is_laid_out && (trace == TSR_NONE || trace < b->snapshot->traces.count));
  return note(b, TSR__VECTOR_PUSH(&b->trace_of, trace));
}

void tsr__builder_list_host_trace(tsr__builder *b, uint32_t trace) {
  assert(!b->is_laid_out && b->snapshot->host_trace == TSR_NONE);
  assert(trace == TSR_NONE || trace < b->snapshot->traces.count);
  b->snapshot->host_trace = trace;
}

void tsr__builder_add_top_key(tsr__builder *b, tsr__name key) {
  assert(key < TSR__KEY_COUNT);
  b->snapshot->top_keys |= UINT64_C(1) << key;
}

void tsr__builder_set_top(tsr__builder *b, uint32_t order, uint32_t last_key) {
  assert(order <= b->snapshot->orders.count && is_id_of(&b->snapshot->strings, last_key));
  b->snapshot->top_order = order;
  b->snapshot->cut_key = last_key;
}

/* ---- facts about the file ---- */

void tsr__builder_cut(tsr__builder *b) {
  tsr__builder_warn(b, TSR__WARN_TRUNCATED);
  b->snapshot->is_cut = true;
}

void tsr__builder_describe(tsr__builder *b, const char *wrapping, const char *reader,
                           uint64_t input_bytes) {
  tsr_snapshot *s = b->snapshot;
  (void)snprintf(s->format, sizeof s->format, "%s%s", wrapping, reader);
  s->input_bytes = input_bytes;
}

void tsr__builder_ignore_column(tsr__builder *b, const char *name, size_t size_bytes) {
  char *list = b->snapshot->ignored_columns;
  size_t length = strlen(list), room = sizeof b->snapshot->ignored_columns - length;
  tsr__builder_warn(b, TSR__WARN_COLUMNS_IGNORED);
  if (size_bytes > 40 || memchr(name, 0, size_bytes)) return;
  if (size_bytes + 3 < room)
    (void)snprintf(list + length, room, "%s%.*s", length ? ", " : ": ", (int)size_bytes, name);
}

void tsr__builder_embedded_sidecar(tsr__builder *b, uint32_t string) {
  assert(!string || (string >= TSR__NAME_COUNT && is_id_of(&b->snapshot->strings, string)));
  b->snapshot->sidecar.string = string;
}

void tsr__builder_take_sidecar(tsr__builder *b, tsr__sidecar *sidecar) {
  assert(b->is_laid_out);
  tsr__sidecar_release(&b->snapshot->sidecar);
  b->snapshot->sidecar = *sidecar;
  *sidecar = (tsr__sidecar){0};
}
