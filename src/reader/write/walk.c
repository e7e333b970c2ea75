/* walk.c - visits everything in a snapshot, for an encoder to write.
 *
 *   {device_traces: [[event, ...], ...], segments: [segment, ...], external_annotations: [...],
 *    allocator_settings and whatever else the file had}
 *
 * or, where the file was a bare list of segments, that list. The events come first: in a pickle,
 * what is met early has short references, and nothing is referred to as often as the keys of
 * events.
 *
 * A row's shape lists the keys it had; extras hold the values that no column could take (tables.h)
 * and go before what the column made of them. So each kind of row is one function: a fixed sequence
 * of keys, each written if the shape has it, then the extras.
 *
 * Kept ("loose") values are trees of any form, and may name rows. Their depth is bounded, and so is
 * the number of nested values. Nothing else here can be deep or endless: a file that spells a list
 * of n bytes and refers to it n times becomes at worst n * n bytes of JSON. */
#include "columns/key_order.h"
#include "write/write.h"

#define KEY TSR__KEY

/* The extras of one table, out of which each row finds its own. */
typedef struct extra_range {
  const tsr__extra *items;
  size_t count;
  size_t next; /* rows mostly come in ascending order: a guess where the next one's extras are */
} extra_range;

typedef struct walker {
  const tsr_snapshot *snapshot;
  const tsr__encoding *to;
  tsr__encoder *encoder;
  extra_range events, segments, blocks, annotations, history;
  uint32_t nesting;       /* kept values we are inside of */
  uint64_t nested_values; /* met in there */
  bool is_endless;        /* one of the two went too far */
  bool keeps_order;       /* keys stand as in the file */
} walker;

/* What a row has: its known keys whose columns hold the value, and the rest. */
typedef struct row_keys {
  uint64_t plain;
  const tsr__extra *extras;
  size_t extra_count;
  uint32_t order;
} row_keys;

/* Writes those keys of a row that `keys` has, and their values. */
typedef void write_fields_fn(walker *w, uint64_t row, const row_keys *keys);

static void write_value(walker *w, tsr__value value);

static bool has_failed(const walker *w) {
  return w->is_endless || w->encoder->status;
}

/* ---- texts ---- */

uint32_t tsr__next_character(const unsigned char **at, const unsigned char *end, bool *is_valid) {
  static const uint32_t smallest[] = {0, 0x80, 0x800, 0x10000};
  const unsigned char *p = *at;
  uint32_t lead = *p++, more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
  *at = p;
  if (lead < 0x80) return lead;
  if (lead >= 0xc2 && lead < 0xf5 && (size_t)(end - p) >= more) {
    uint32_t code = lead & (0x3fu >> more), i = 0;
    for (; i < more && (p[i] & 0xc0) == 0x80; i++) code = code << 6 | (p[i] & 0x3f);
    if (i == more && code >= smallest[more] && code <= 0x10ffff) {
      *at = p + more;
      return code;
    }
  }
  *is_valid = false;
  return TSR__NOT_TEXT;
}

/* ---- pieces of rows ---- */

static uint32_t count_keys(uint64_t keys) {
  uint32_t count = 0;
  for (; keys; keys &= keys - 1) count++;
  return count;
}

/* The extras of the row whose origin is `row`. */
static const tsr__extra *find_extras(extra_range *range, uint64_t row, size_t *count) {
  size_t low = range->next, high = range->count;
  bool is_guess_good = (low == 0 || range->items[low - 1].row < row) &&
                       (low == range->count || range->items[low].row >= row);
  for (low = is_guess_good ? low : 0; !is_guess_good && low < high;) {
    size_t middle = low + (high - low) / 2;
    if (range->items[middle].row < row)
      low = middle + 1;
    else
      high = middle;
  }
  const tsr__extra *first = range->items + low;
  while (low < range->count && range->items[low].row == row) low++;
  range->next = low;
  *count = low - (size_t)(first - range->items);
  return first;
}

/* The bits of a shape that are keys, and the number of their order. */
static uint64_t keys_of(uint64_t shape) {
  return shape & ((UINT64_C(1) << TSR__KEY_COUNT) - 1);
}

static uint32_t order_of(uint64_t shape) {
  return shape >> TSR__ROW_ORDER_SHIFT & TSR__ORDER_LIMIT;
}

/* Begin the dict of a row with these keys, in this order, and this origin. */
static row_keys begin_row(walker *w, extra_range *range, uint64_t plain, uint32_t order,
                          uint64_t origin) {
  row_keys keys = {.plain = plain, .order = order};
  if (range->count) keys.extras = find_extras(range, origin, &keys.extra_count);
  for (size_t i = 0; i < keys.extra_count; i++)
    if (keys.extras[i].key < TSR__KEY_COUNT) keys.plain &= ~(UINT64_C(1) << keys.extras[i].key);
  w->to->begin(w->encoder, TSR__DICT, count_keys(keys.plain) + keys.extra_count, false);
  return keys;
}

static void write_extra(walker *w, const tsr__extra *extra) {
  w->to->string(w->encoder, extra->key);
  write_value(w, extra->value);
}

/* The keys of a row as the file had them: those that its order names, or, where it names none, all
 * known keys as they stand in schema.h, written into `known`. */
static const uint32_t *ordered_keys(const walker *w, const row_keys *keys,
                                    uint32_t known[TSR__KEY_COUNT], size_t *count) {
  const uint32_t *order = tsr__key_order_keys(w->snapshot, keys->order, count);
  if (order) return order;
  for (uint32_t i = 0; i < TSR__KEY_COUNT; i++) known[i] = i;
  *count = TSR__KEY_COUNT;
  return known;
}

static void write_ordered(walker *w, uint64_t row, const row_keys *keys, write_fields_fn *fields) {
  uint32_t known[TSR__KEY_COUNT];
  size_t count;
  const uint32_t *order = ordered_keys(w, keys, known, &count);
  for (size_t i = 0; i < count; i++) {
    row_keys one = {.plain = order[i] < TSR__KEY_COUNT ? keys->plain & UINT64_C(1) << order[i] : 0};
    if (one.plain) fields(w, row, &one);
    for (size_t k = 0; k < keys->extra_count && !one.plain; k++)
      if (keys->extras[k].key == order[i]) write_extra(w, &keys->extras[k]);
  }
  /* An order that is not known leaves these. */
  for (size_t k = 0; k < keys->extra_count && order == known; k++)
    if (keys->extras[k].key >= TSR__KEY_COUNT) write_extra(w, &keys->extras[k]);
}

/* The keys and values of a row, and the end of its dict. */
static void finish_row(walker *w, uint64_t row, const row_keys *keys, write_fields_fn *fields) {
  if (w->keeps_order) {
    write_ordered(w, row, keys, fields);
  } else {
    fields(w, row, keys);
    for (size_t i = 0; i < keys->extra_count; i++) write_extra(w, &keys->extras[i]);
  }
  w->to->end(w->encoder);
}

/* Write the key if the row has it, and return whether a value must follow. */
static inline bool write_key(walker *w, const row_keys *keys, tsr__name name) {
  if (!(keys->plain >> name & 1)) return false;
  w->to->string(w->encoder, name);
  return true;
}

static inline void write_unsigned(walker *w, uint64_t value) {
  w->to->integer(w->encoder, value, false);
}

static inline void write_signed(walker *w, int64_t value) {
  w->to->integer(w->encoder, (uint64_t)value, value < 0);
}

static void write_string(walker *w, uint32_t id) {
  if (id < w->snapshot->strings.count)
    w->to->string(w->encoder, id);
  else
    w->to->null(w->encoder);
}

static void write_pool(walker *w, uint32_t id, tsr__container_kind kind) {
  if (id >= w->snapshot->pools.count) {
    w->to->null(w->encoder);
    return;
  }
  if (kind == TSR__TUPLE && w->to->refer(w->encoder, TSR__PAIR, id)) return;
  tsr_pool pool = tsr_snapshot_pool(w->snapshot, id);
  w->to->begin(w->encoder, kind, 2, false);
  write_unsigned(w, pool.first);
  write_unsigned(w, pool.second);
  w->to->end(w->encoder);
}

/* ---- frames and stacks ---- */

/* Which of a frame's keys are left out of its columns, and their values. */
typedef struct frame_rest {
  const tsr__value *pairs;
  size_t value_count;
} frame_rest;

static frame_rest rest_of(const tsr_snapshot *snapshot, const tsr__frame_key *frame) {
  if (!frame->extras) return (frame_rest){.pairs = NULL};
  const tsr__interned *kept = &snapshot->frame_extras.items[frame->extras - 1];
  return (frame_rest){(const void *)kept->data, kept->size_bytes / sizeof(tsr__value)};
}

static void write_frame_fields(walker *w, uint64_t id, const row_keys *keys) {
  const tsr__frame_key *frame = (const void *)w->snapshot->frames.items[id].data;
  if (write_key(w, keys, TSR__NAME_NAME)) write_string(w, frame->frame.name);
  if (write_key(w, keys, TSR__NAME_FILENAME)) write_string(w, frame->frame.file);
  if (write_key(w, keys, TSR__NAME_LINE))
    w->to->integer(w->encoder, frame->frame.line, frame->shape & TSR__SHAPE_LINE_NEGATIVE);
}

static void write_frame_rest(walker *w, const tsr__value pair[2]) {
  write_value(w, pair[0]);
  write_value(w, pair[1]);
}

/* write_ordered for a frame. */
static void write_frame_ordered(walker *w, uint32_t id, const row_keys *keys, frame_rest rest) {
  uint32_t known[TSR__KEY_COUNT];
  size_t count;
  const uint32_t *order = ordered_keys(w, keys, known, &count);
  for (size_t i = 0; i < count; i++) {
    row_keys one = {.plain = order[i] < TSR__KEY_COUNT ? keys->plain & UINT64_C(1) << order[i] : 0};
    if (one.plain) write_frame_fields(w, id, &one);
    for (size_t k = 0; k < rest.value_count && !one.plain; k += 2)
      if (rest.pairs[k].id == order[i]) write_frame_rest(w, &rest.pairs[k]);
  }
  for (size_t k = 0; k < rest.value_count && order == known; k += 2)
    if (rest.pairs[k].id >= TSR__KEY_COUNT) write_frame_rest(w, &rest.pairs[k]);
}

static void write_frame(walker *w, uint32_t id) {
  const tsr__frame_key *frame = (const void *)w->snapshot->frames.items[id].data;
  frame_rest rest = rest_of(w->snapshot, frame);
  row_keys keys = {.plain = keys_of(frame->shape), .order = order_of(frame->shape)};
  if (!frame->shape && !frame->extras) {
    write_string(w, frame->frame.name);
    return;
  }
  if (w->to->refer(w->encoder, TSR__FRAME, id)) return;
  for (size_t i = 0; i < rest.value_count; i += 2)
    if (rest.pairs[i].id < TSR__KEY_COUNT) keys.plain &= ~(UINT64_C(1) << rest.pairs[i].id);
  w->to->begin(w->encoder, TSR__DICT, count_keys(keys.plain) + rest.value_count / 2, false);
  if (w->keeps_order) {
    write_frame_ordered(w, id, &keys, rest);
  } else {
    write_frame_fields(w, id, &keys);
    for (size_t i = 0; i < rest.value_count; i += 2) write_frame_rest(w, &rest.pairs[i]);
  }
  w->to->end(w->encoder);
}

static void write_stack(walker *w, uint32_t id) {
  if (id >= w->snapshot->stacks.count) {
    w->to->null(w->encoder);
    return;
  }
  if (w->to->refer(w->encoder, TSR__STACK, id)) return;
  tsr_stack stack = tsr_snapshot_stack(w->snapshot, id);
  w->to->begin(w->encoder, TSR__LIST, stack.depth, false);
  for (uint32_t i = 0; i < stack.depth; i++) write_frame(w, stack.frames[i]);
  w->to->end(w->encoder);
}

/* ---- events ---- */

static void write_action(walker *w, uint8_t action) {
  if (action <= TSR_ACTION_WORKSPACE_SNAPSHOT)
    write_string(w, (uint32_t)TSR__FIRST_ACTION + action);
  else if (action < TSR_ACTION_KNOWN_COUNT)
    write_string(w, TSR_NONE);
  else
    write_string(w, w->snapshot->actions.items[action - TSR_ACTION_KNOWN_COUNT]);
}

static inline uint32_t id_at(const tsr__id_vector *column, uint64_t row) {
  return column->values ? column->values[row] : column->uniform;
}

static void write_stream(walker *w, uint64_t row) {
  const tsr__event_table *t = &w->snapshot->events;
  if (id_at(&t->shape, row) & TSR__EVENT_STREAM_IS_NULL)
    w->to->null(w->encoder);
  else
    write_unsigned(w, tsr_snapshot_stream(w->snapshot, id_at(&t->stream, row)));
}

static void write_event_fields(walker *w, uint64_t row, const row_keys *keys) {
  const tsr__event_table *t = &w->snapshot->events;
  bool pool_is_list = id_at(&t->shape, row) & TSR__EVENT_POOL_IS_LIST;
  if (write_key(w, keys, TSR__NAME_ACTION)) write_action(w, t->action[row]);
  if (write_key(w, keys, TSR__NAME_ADDR)) write_unsigned(w, t->addr[row]);
  if (write_key(w, keys, TSR__NAME_DEVICE_FREE)) write_unsigned(w, t->addr[row]);
  if (write_key(w, keys, TSR__NAME_SIZE)) write_unsigned(w, t->size[row]);
  if (write_key(w, keys, TSR__NAME_STREAM)) write_stream(w, row);
  if (write_key(w, keys, TSR__NAME_TIME_US)) write_signed(w, t->time_us[row]);
  if (write_key(w, keys, TSR__NAME_COMPILE_CONTEXT)) write_string(w, id_at(&t->context, row));
  if (write_key(w, keys, TSR__NAME_USER_METADATA)) write_string(w, id_at(&t->metadata, row));
  if (write_key(w, keys, TSR__NAME_POOL_ID))
    write_pool(w, id_at(&t->pool, row), pool_is_list ? TSR__LIST : TSR__TUPLE);
  if (write_key(w, keys, TSR__NAME_FRAMES)) write_stack(w, t->stack[row]);
  if (write_key(w, keys, TSR__NAME_CATEGORY)) write_string(w, id_at(&t->category, row));
}

static void write_event(walker *w, uint64_t row) {
  uint32_t shape = id_at(&w->snapshot->events.shape, row);
  uint32_t order = (shape & TSR__EVENT_ORDER_BITS) >> TSR__EVENT_ORDER_SHIFT;
  uint64_t plain = keys_of(shape) & ((UINT64_C(1) << TSR__EVENT_ORDER_SHIFT) - 1);
  row_keys keys = begin_row(w, &w->events, plain, order, row);
  finish_row(w, row, &keys, write_event_fields);
}

static void write_events(walker *w, tsr__rows rows) {
  w->to->begin(w->encoder, TSR__LIST, rows.count, true);
  for (uint64_t i = 0; i < rows.count && !has_failed(w); i++) write_event(w, rows.first + i);
  w->to->end(w->encoder);
}

static void write_trace(walker *w, uint32_t index) {
  const tsr__trace *trace = &w->snapshot->traces.items[index];
  write_events(w, trace->runs.count ? trace->runs.items[0] : (tsr__rows){0, 0});
}

/* ---- segments and blocks ---- */

static void write_history_fields(walker *w, uint64_t row, const row_keys *keys) {
  const tsr__history_row *history = &w->snapshot->history.items[row];
  if (write_key(w, keys, TSR__NAME_ADDR)) write_unsigned(w, history->addr);
  if (write_key(w, keys, TSR__NAME_REAL_SIZE)) write_unsigned(w, history->real_size);
  if (write_key(w, keys, TSR__NAME_FRAMES)) write_stack(w, history->stack);
}

static void write_history(walker *w, uint64_t row) {
  uint64_t shape = w->snapshot->history.items[row].shape;
  row_keys keys = begin_row(w, &w->history, keys_of(shape), order_of(shape), row);
  finish_row(w, row, &keys, write_history_fields);
}

static void write_block_fields(walker *w, uint64_t row, const row_keys *keys) {
  const tsr_block *block = &w->snapshot->blocks.items[row];
  const tsr__block_more *more = &w->snapshot->blocks_more.items[row];
  if (write_key(w, keys, TSR__NAME_ADDRESS)) write_unsigned(w, block->address);
  if (write_key(w, keys, TSR__NAME_SIZE)) write_unsigned(w, block->size_bytes);
  if (write_key(w, keys, TSR__NAME_REQUESTED_SIZE)) write_unsigned(w, block->requested_bytes);
  if (write_key(w, keys, TSR__NAME_STATE)) write_string(w, more->state);
  if (write_key(w, keys, TSR__NAME_FRAMES)) write_stack(w, block->stack);
  if (write_key(w, keys, TSR__NAME_HISTORY)) {
    w->to->begin(w->encoder, TSR__LIST, more->history_count, false);
    for (uint32_t i = 0; i < more->history_count; i++) write_history(w, more->first_history + i);
    w->to->end(w->encoder);
  }
}

static void write_block(walker *w, uint64_t row) {
  const tsr__block_more *more = &w->snapshot->blocks_more.items[row];
  row_keys keys =
      begin_row(w, &w->blocks, keys_of(more->shape), order_of(more->shape), more->origin);
  finish_row(w, row, &keys, write_block_fields);
}

static void write_segment_fields(walker *w, uint64_t row, const row_keys *keys) {
  const tsr_segment *s = &w->snapshot->segments.items[row];
  const tsr__segment_more *more = &w->snapshot->segments_more.items[row];
  bool pool_is_list = more->shape & TSR__SHAPE_POOL_IS_LIST;
  if (write_key(w, keys, TSR__NAME_DEVICE)) write_unsigned(w, s->device);
  if (write_key(w, keys, TSR__NAME_ADDRESS)) write_unsigned(w, s->address);
  if (write_key(w, keys, TSR__NAME_TOTAL_SIZE)) write_unsigned(w, s->total_bytes);
  if (write_key(w, keys, TSR__NAME_ALLOCATED_SIZE)) write_unsigned(w, s->allocated_bytes);
  if (write_key(w, keys, TSR__NAME_ACTIVE_SIZE)) write_unsigned(w, s->active_bytes);
  if (write_key(w, keys, TSR__NAME_REQUESTED_SIZE)) write_unsigned(w, s->requested_bytes);
  if (write_key(w, keys, TSR__NAME_STREAM)) write_unsigned(w, s->stream);
  if (write_key(w, keys, TSR__NAME_SEGMENT_TYPE)) write_string(w, more->type);
  if (write_key(w, keys, TSR__NAME_SEGMENT_POOL_ID))
    write_pool(w, s->pool, pool_is_list ? TSR__LIST : TSR__TUPLE);
  if (write_key(w, keys, TSR__NAME_IS_EXPANDABLE)) w->to->boolean(w->encoder, s->is_expandable);
  if (write_key(w, keys, TSR__NAME_FRAMES)) write_stack(w, s->stack);
  if (write_key(w, keys, TSR__NAME_BLOCKS)) {
    w->to->begin(w->encoder, TSR__LIST, s->block_count, false);
    for (uint64_t i = 0; i < s->block_count && !has_failed(w); i++)
      write_block(w, s->first_block + i);
    w->to->end(w->encoder);
  }
}

static void write_segment(walker *w, uint64_t row) {
  const tsr__segment_more *more = &w->snapshot->segments_more.items[row];
  row_keys keys =
      begin_row(w, &w->segments, keys_of(more->shape), order_of(more->shape), more->origin);
  finish_row(w, row, &keys, write_segment_fields);
}

static void write_annotation_fields(walker *w, uint64_t row, const row_keys *keys) {
  const tsr_annotation *annotation = &w->snapshot->annotations.items[row];
  if (write_key(w, keys, TSR__NAME_STAGE)) write_string(w, annotation->stage);
  if (write_key(w, keys, TSR__NAME_NAME)) write_string(w, annotation->name);
  if (write_key(w, keys, TSR__NAME_DEVICE)) write_unsigned(w, annotation->device);
  if (write_key(w, keys, TSR__NAME_TIME_US)) write_signed(w, annotation->time_us);
}

static void write_annotation(walker *w, uint64_t row) {
  const tsr__annotation_more *more = &w->snapshot->annotations_more.items[row];
  row_keys keys =
      begin_row(w, &w->annotations, keys_of(more->shape), order_of(more->shape), more->origin);
  finish_row(w, row, &keys, write_annotation_fields);
}

/* ---- kept values ---- */

static void write_loose(walker *w, uint32_t id) {
  const tsr__loose *loose = &w->snapshot->loose.items[id];
  if (w->to->refer(w->encoder, TSR__LOOSE, id)) return;
  uint64_t count = loose->kind == TSR__DICT ? loose->count / 2 : loose->count;
  if (w->nesting > 2) w->nested_values += loose->count;
  w->to->begin(w->encoder, (tsr__container_kind)loose->kind, count, false);
  for (uint64_t i = 0; i < loose->count && !has_failed(w); i++)
    write_value(w, w->snapshot->loose_values.items[loose->first + i]);
  w->to->end(w->encoder);
}

/* A value that names something by id; null if there is no such thing. */
static void write_named(walker *w, tsr__value value) {
  const tsr_snapshot *s = w->snapshot;
#define WRITE_IF(count, function) \
  if (value.id < (count)) {       \
    function(w, value.id);        \
    return;                       \
  }                               \
  break
  switch ((tsr__tag)value.tag) {
  case TSR__FRAME: WRITE_IF(s->frames.count, write_frame);
  case TSR__EVENT: WRITE_IF(s->events.count, write_event);
  case TSR__SEGMENT: WRITE_IF(s->segments.count, write_segment);
  case TSR__BLOCK: WRITE_IF(s->blocks.count, write_block);
  case TSR__ANNOTATION: WRITE_IF(s->annotations.count, write_annotation);
  case TSR__HISTORY: WRITE_IF(s->history.count, write_history);
  case TSR__LOOSE: WRITE_IF(s->loose.count, write_loose);
  case TSR__TRACE: WRITE_IF(s->traces.count, write_trace);
  case TSR__STACK: write_stack(w, value.id); return;
  case TSR__PAIR: write_pool(w, value.id, TSR__TUPLE); return;
  default: break;
  }
#undef WRITE_IF
  w->to->null(w->encoder);
}

static void write_value(walker *w, tsr__value value) {
  switch ((tsr__tag)value.tag) {
  case TSR__BOOL: w->to->boolean(w->encoder, value.u); return;
  case TSR__INT: write_signed(w, value.i); return;
  case TSR__UINT: write_unsigned(w, value.u); return;
  case TSR__FLOAT: w->to->real(w->encoder, value.f); return;
  case TSR__BIG:
    if (value.id == TSR_NONE)
      w->to->null(w->encoder);
    else
      w->to->big(w->encoder, value.id);
    return;
  case TSR__STRING:
  case TSR__BYTES: write_string(w, value.id); return;
  default: break;
  }
  if (w->nesting > 2) w->nested_values++;
  if (w->nesting >= TSR__WRITE_NESTING || w->nested_values > TSR__WRITE_NESTED_VALUES)
    w->is_endless = true;
  if (w->is_endless) {
    w->to->null(w->encoder);
    return;
  }
  w->nesting++;
  write_named(w, value);
  w->nesting--;
}

/* ---- the top ---- */

static void write_segments(walker *w) {
  size_t count = w->snapshot->listed_segment_count;
  w->to->begin(w->encoder, TSR__LIST, count, true);
  for (size_t i = 0; i < count && !has_failed(w); i++) write_segment(w, i);
  w->to->end(w->encoder);
}

static void write_annotations(walker *w) {
  size_t count = w->snapshot->annotation_count;
  w->to->begin(w->encoder, TSR__LIST, count, true);
  for (size_t i = 0; i < count && !has_failed(w); i++) write_annotation(w, i);
  w->to->end(w->encoder);
}

static void write_device_traces(walker *w) {
  const tsr_snapshot *s = w->snapshot;
  w->to->begin(w->encoder, TSR__LIST, s->trace_count, true);
  size_t next = 0; /* of the devices with events, in ascending order */
  for (uint32_t device = 0; device < s->trace_count; device++) {
    tsr__rows rows = {0, 0};
    if (next < s->device_traces.count && s->device_traces.items[next].device == device) {
      rows.first = s->device_traces.items[next].first;
      rows.count = s->device_traces.items[next++].count;
    }
    write_events(w, rows);
  }
  w->to->end(w->encoder);
}

static void write_top_fields(walker *w, uint64_t row, const row_keys *keys) {
  (void)row;
  if (write_key(w, keys, TSR__NAME_DEVICE_TRACES)) write_device_traces(w);
  if (write_key(w, keys, TSR__NAME_SEGMENTS)) write_segments(w);
  if (write_key(w, keys, TSR__NAME_EXTERNAL_ANNOTATIONS)) write_annotations(w);
  if (write_key(w, keys, TSR__NAME_SIDECAR)) write_string(w, w->snapshot->sidecar.string);
  if (write_key(w, keys, TSR__NAME_INCOMPLETE)) w->to->boolean(w->encoder, true);
}

static void write_top(walker *w) {
  const tsr_snapshot *s = w->snapshot;
  row_keys keys = {.plain = s->top_keys &
                            (KEY(DEVICE_TRACES) | KEY(SEGMENTS) | KEY(EXTERNAL_ANNOTATIONS)),
                   .order = s->top_order};
  if (!s->top_keys) {
    write_segments(w);
    return;
  }
  if (s->sidecar.string && !w->keeps_order) keys.plain |= KEY(SIDECAR);
  if (tsr__snapshot_is_incomplete(s) && !w->keeps_order) keys.plain |= KEY(INCOMPLETE);
  keys.extras = tsr__extras_of(s, TSR__NULL, 0, UINT64_MAX, &keys.extra_count);
  for (size_t i = 0; i < keys.extra_count; i++)
    if (keys.extras[i].key < TSR__KEY_COUNT) keys.plain &= ~(UINT64_C(1) << keys.extras[i].key);
  w->to->begin(w->encoder, TSR__DICT, count_keys(keys.plain) + keys.extra_count, true);
  finish_row(w, 0, &keys, write_top_fields);
}

static extra_range range_of(const tsr_snapshot *snapshot, tsr__tag table) {
  extra_range range = {.next = 0};
  range.items = tsr__extras_of(snapshot, table, 0, UINT64_MAX, &range.count);
  return range;
}

static int explain(const walker *w, int status, tsr_error *error) {
  if (w->is_endless)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "values outside the snapshot's format are nested too deeply to be written");
  if (status == TSR_ERROR_UNSUPPORTED)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "JSON cannot represent a key that is neither text nor a number");
  if (status == TSR_ERROR_MEMORY) return tsr__fail_memory(error);
  if (status)
    return tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "the export could not be written");
  return 0;
}

static walker walker_for(const tsr_snapshot *snapshot, const tsr__encoding *to) {
  return (walker){.snapshot = snapshot,
                  .to = to,
                  .keeps_order = to == &tsr__python_json_encoding || to == &tsr__python_encoding,
                  .events = range_of(snapshot, TSR__EVENT),
                  .segments = range_of(snapshot, TSR__SEGMENT),
                  .blocks = range_of(snapshot, TSR__BLOCK),
                  .annotations = range_of(snapshot, TSR__ANNOTATION),
                  .history = range_of(snapshot, TSR__HISTORY)};
}

static int finish(walker *w, tsr_error *error) {
  if (!has_failed(w)) w->to->finish(w->encoder);
  int status = explain(w, w->encoder->status, error);
  w->to->release(w->encoder);
  return status;
}

int tsr_snapshot_export(const tsr_snapshot *snapshot, tsr_export_format format, tsr_write_fn *write,
                        void *context, tsr_error *error) {
  static const tsr__encoding *const encodings[] = {&tsr__pickle_encoding, &tsr__json_encoding,
                                                   &tsr__python_json_encoding};
  if (snapshot->flat.count)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "PyTorch's snapshots have segments and blocks, and this file lists only "
                     "allocations and frees: export it in another format");
  walker w = walker_for(snapshot, encodings[format]);
  w.encoder = w.to->create(snapshot, write, context);
  if (!w.encoder) return tsr__fail_memory(error);
  write_top(&w);
  return finish(&w, error);
}

int tsr_annotation_repr(const tsr_snapshot *snapshot, size_t annotation, tsr_write_fn *write,
                        void *context, tsr_error *error) {
  walker w = walker_for(snapshot, &tsr__python_encoding);
  w.encoder = w.to->create(snapshot, write, context);
  if (!w.encoder) return tsr__fail_memory(error);
  if (annotation < snapshot->annotation_count) write_annotation(&w, annotation);
  return finish(&w, error);
}
