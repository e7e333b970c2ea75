/* check.c - is the snapshot what tables.h promises? One function per table, one sentence per
 * defect.
 *
 * The builder asserts what it can see of each row when it is added. This checks the finished snapshot,
 * so that code which reads a snapshot needs no checks of its own: ids index their tables, ranges of
 * rows are in their tables, and what is searched by bisection is sorted. Nothing here depends on
 * what a sensible file would hold; a hostile one passes as well. */
#include <string.h>

#include "columns/key_order.h"
#include "columns/tables.h"

/* Return what is wrong unless the condition holds. */
#define MUST(condition, defect)      \
  do {                               \
    if (!(condition)) return defect; \
  } while (0)

static bool is_id(const tsr__intern *table, uint32_t id) {
  return id == TSR_NONE || id < table->count;
}

static bool is_order(const tsr_snapshot *s, uint64_t shape, unsigned shift) {
  return (shape >> shift & TSR__ORDER_LIMIT) <= s->orders.count;
}

/* A value names something that is there. Containers of a reader never outlive it. */
static bool is_value(const tsr_snapshot *s, tsr__value value) {
  switch ((tsr__tag)value.tag) {
  case TSR__STRING:
  case TSR__BYTES:
  case TSR__DTYPE:
  case TSR__GLOBAL: return value.id < s->strings.count;
  case TSR__BIG: return is_id(&s->strings, value.id);
  case TSR__PAIR: return value.id < s->pools.count;
  case TSR__FRAME: return value.id < s->frames.count;
  case TSR__STACK: return value.id < s->stacks.count;
  case TSR__EVENT: return value.id < s->events.count;
  case TSR__SEGMENT: return value.id < s->segments.count;
  case TSR__BLOCK: return value.id < s->blocks.count;
  case TSR__ANNOTATION: return value.id < s->annotations.count;
  case TSR__HISTORY: return value.id < s->history.count;
  case TSR__LOOSE: return value.id < s->loose.count;
  case TSR__TRACE: return value.id < s->traces.count;
  case TSR__CONTAINER:
  case TSR__NOTHING: return false;
  default: return true;
  }
}

/* ---- names ---- */

static const char *check_frames(const tsr_snapshot *s) {
  for (uint32_t id = 0; id < s->frames.count; id++) {
    tsr__frame_key key;
    MUST(s->frames.items[id].size_bytes == sizeof key, "a frame is not of a frame's size");
    memcpy(&key, s->frames.items[id].data, sizeof key);
    MUST(is_id(&s->strings, key.frame.name), "a frame's name is no string");
    MUST(is_id(&s->strings, key.frame.file), "a frame's file is no string");
    MUST(key.extras <= s->frame_extras.count, "a frame's extras do not exist");
    MUST(is_order(s, key.shape, TSR__ROW_ORDER_SHIFT), "a frame's order of keys does not exist");
  }
  for (uint32_t id = 0; id < s->frame_extras.count; id++) {
    const tsr__interned *item = &s->frame_extras.items[id];
    MUST(item->size_bytes % (2 * sizeof(tsr__value)) == 0, "extras of a frame are not pairs");
    for (size_t i = 0; i < item->size_bytes / sizeof(tsr__value); i++) {
      tsr__value value;
      memcpy(&value, item->data + i * sizeof value, sizeof value);
      MUST(is_value(s, value), "an extra of a frame names nothing");
    }
  }
  return NULL;
}

static const char *check_names(const tsr_snapshot *s) {
  MUST(s->strings.count >= TSR__NAME_COUNT, "names of the format are missing");
  for (uint32_t id = 0; id < TSR__NAME_COUNT; id++) {
    const char *name = tsr__name_text((tsr__name)id);
    MUST(s->strings.items[id].size_bytes == strlen(name) &&
             !memcmp(s->strings.items[id].data, name, strlen(name)),
         "a name of the format has another id");
  }
  for (uint32_t id = 0; id < s->stacks.count; id++) {
    tsr_stack stack = tsr_snapshot_stack(s, id);
    for (uint32_t i = 0; i < stack.depth; i++)
      MUST(stack.frames[i] < s->frames.count, "a frame of a stack does not exist");
  }
  for (uint32_t id = 0; id < s->pools.count; id++)
    MUST(s->pools.items[id].size_bytes == sizeof(tsr_pool), "a pool is not of a pool's size");
  for (uint32_t id = 0; id < s->streams.count; id++)
    MUST(s->streams.items[id].size_bytes == sizeof(uint64_t), "a stream is no handle");
  MUST(s->streams.count && tsr_snapshot_stream(s, 0) == 0, "stream 0 is not the default stream");
  for (size_t i = 0; i < s->actions.count; i++)
    MUST(s->actions.items[i] < s->strings.count, "an action's name is no string");
  MUST(s->actions.count <= UINT8_MAX - TSR_ACTION_KNOWN_COUNT, "more actions than codes");
  return check_frames(s);
}

/* ---- events and traces ---- */

static const char *check_column(const tsr__id_vector *column, uint64_t count,
                                const tsr__intern *table, const char *defect) {
  if (!column->values) return !count || is_id(table, column->uniform) ? NULL : defect;
  for (uint64_t row = 0; row < count; row++)
    if (!is_id(table, column->values[row])) return defect;
  return NULL;
}

static const char *check_events(const tsr_snapshot *s) {
  const tsr__event_table *t = &s->events;
  const char *defect;
  MUST(t->count <= t->capacity, "more events than there is room for");
  MUST(t->count <= TSR_NONE, "more events than ids");
  MUST(!t->count || (t->action && t->addr && t->size && t->time_us && t->stack),
       "a column of the events is missing");
  for (uint64_t row = 0; row < t->count; row++) {
    MUST(t->action[row] < TSR_ACTION_KNOWN_COUNT + s->actions.count,
         "an event's action is no code");
    MUST(is_id(&s->stacks, t->stack[row]), "an event's stack does not exist");
    uint32_t shape = t->shape.values ? t->shape.values[row] : t->shape.uniform;
    MUST(is_order(s, shape, TSR__EVENT_ORDER_SHIFT), "an event's order of keys does not exist");
  }
  defect = check_column(&t->stream, t->count, &s->streams, "an event's stream does not exist");
  MUST(!defect, defect);
  defect = check_column(&t->pool, t->count, &s->pools, "an event's pool does not exist");
  MUST(!defect, defect);
  defect = check_column(&t->context, t->count, &s->strings, "an event's context is no string");
  MUST(!defect, defect);
  defect = check_column(&t->metadata, t->count, &s->strings, "an event's metadata are no string");
  MUST(!defect, defect);
  return check_column(&t->category, t->count, &s->strings, "an event's category is no string");
}

static const char *check_traces(const tsr_snapshot *s) {
  for (size_t i = 0; i < s->traces.count; i++) {
    const tsr__trace *trace = &s->traces.items[i];
    for (size_t k = 0; k < trace->runs.count; k++) {
      tsr__rows rows = trace->runs.items[k];
      MUST(rows.first <= s->events.count && rows.count <= s->events.count - rows.first,
           "a run of a trace ends after the events");
    }
    MUST(trace->runs.count <= 1, "a trace is in several runs");
  }
  MUST(s->host_trace == TSR_NONE || s->host_trace < s->traces.count,
       "the trace of pinned host memory does not exist");
  for (size_t i = 0; i < s->device_traces.count; i++) {
    tsr__device_trace trace = s->device_traces.items[i];
    MUST(trace.count, "the trace of a device is listed, but empty");
    MUST(trace.first <= s->events.count && trace.count <= s->events.count - trace.first,
         "the trace of a device ends after the events");
    MUST(trace.device < s->trace_count ||
             (trace.device == TSR_DEVICE_HOST && s->host_trace != TSR_NONE) ||
             (trace.device == TSR_DEVICE_CPU && s->cpu_trace != TSR_NONE),
         "a device with a trace is not among the file's");
    MUST(!i || s->device_traces.items[i - 1].device < trace.device,
         "the traces of devices are not in order");
  }
  return NULL;
}

static const char *check_flat(const tsr_snapshot *s) {
  MUST(s->cpu_trace == TSR_NONE || s->cpu_trace < s->traces.count,
       "the trace of CPU memory does not exist");
  for (size_t i = 0; i < s->flat.count; i++) {
    const tsr__flat_device *flat = &s->flat.items[i];
    uint64_t events = tsr_snapshot_events(s, flat->device).count;
    MUST(tsr__snapshot_flat(s, flat->device) == flat, "a device is listed as flat twice");
    MUST(flat->first_mark <= s->reserved_marks.count &&
             flat->mark_count <= s->reserved_marks.count - flat->first_mark,
         "marks of reserved memory do not exist");
    for (size_t k = 0; k < flat->mark_count; k++) {
      const tsr__reserved_mark *mark = &s->reserved_marks.items[flat->first_mark + k];
      MUST(mark->event >= -1 && mark->event < (int64_t)events &&
               (!k || mark[-1].event < mark->event),
           "marks of reserved memory are not in order");
    }
  }
  return NULL;
}

/* ---- segments, blocks, annotations ---- */

static const char *check_blocks(const tsr_snapshot *s) {
  MUST(s->blocks.count == s->blocks_more.count, "columns of the blocks differ in length");
  for (size_t row = 0; row < s->blocks.count; row++) {
    const tsr_block *block = &s->blocks.items[row];
    const tsr__block_more *more = &s->blocks_more.items[row];
    MUST(is_id(&s->stacks, block->stack), "a block's stack does not exist");
    MUST(block->state <= TSR_BLOCK_UNKNOWN, "a block's state is no state");
    MUST(is_id(&s->strings, more->state), "a block's state is no string");
    MUST((uint64_t)more->first_history + more->history_count <= s->history.count,
         "a block's history does not exist");
    MUST(more->origin < s->blocks.count, "a block comes from a row that does not exist");
    MUST(is_order(s, more->shape, TSR__ROW_ORDER_SHIFT), "a block's order of keys does not exist");
  }
  for (size_t row = 0; row < s->history.count; row++)
    MUST(is_id(&s->stacks, s->history.items[row].stack), "a stack of the history does not exist");
  return NULL;
}

static const char *check_segments(const tsr_snapshot *s) {
  MUST(s->segments.count == s->segments_more.count, "columns of the segments differ in length");
  MUST(s->segment_count <= s->segments.count, "more segments are listed than there are");
  MUST(s->listed_segment_count <= s->segment_count, "more segments are listed than count");
  for (size_t row = 0; row < s->segments.count; row++) {
    const tsr_segment *segment = &s->segments.items[row];
    const tsr__segment_more *more = &s->segments_more.items[row];
    MUST(segment->first_block <= s->blocks.count &&
             segment->block_count <= s->blocks.count - segment->first_block,
         "a segment's blocks do not exist");
    MUST(row >= s->segment_count || segment->device != TSR_NONE, "a segment is on no device");
    MUST(row >= s->segment_count ||
             (segment->device == TSR_DEVICE_HOST) == (row >= s->listed_segment_count),
         "a segment of pinned host memory is not among those");
    MUST(is_id(&s->stacks, segment->stack), "a segment's stack does not exist");
    MUST(is_id(&s->pools, segment->pool), "a segment's pool does not exist");
    MUST(is_id(&s->strings, more->type), "a segment's type is no string");
    MUST(more->origin < s->segments.count, "a segment comes from a row that does not exist");
    MUST(is_order(s, more->shape, TSR__ROW_ORDER_SHIFT),
         "a segment's order of keys does not exist");
  }
  MUST(s->segments_by_device.count == s->segment_count, "not every listed segment has a device");
  for (size_t i = 0; i < s->segments_by_device.count; i++) {
    const uint32_t *row = &s->segments_by_device.items[i];
    MUST(*row < s->segment_count, "a device's segment does not exist");
    if (!i) continue;
    uint32_t before = s->segments.items[row[-1]].device, device = s->segments.items[*row].device;
    MUST(before < device || (before == device && row[-1] < *row),
         "segments by device are not in order");
  }
  MUST(is_id(&s->pools, s->default_pool), "the default pool does not exist");
  return NULL;
}

static const char *check_annotations(const tsr_snapshot *s) {
  MUST(s->annotations.count == s->annotations_more.count,
       "columns of the annotations differ in length");
  MUST(s->annotation_count <= s->annotations.count, "more annotations are listed than there are");
  for (size_t row = 0; row < s->annotations.count; row++) {
    const tsr_annotation *annotation = &s->annotations.items[row];
    const tsr__annotation_more *more = &s->annotations_more.items[row];
    MUST(is_id(&s->strings, annotation->name), "an annotation's name is no string");
    MUST(is_id(&s->strings, annotation->stage), "an annotation's stage is no string");
    MUST(!(annotation->is_start && annotation->is_end), "an annotation is both start and end");
    MUST(more->origin < s->annotations.count, "an annotation comes from a row that does not exist");
    MUST(is_order(s, more->shape, TSR__ROW_ORDER_SHIFT),
         "an annotation's order of keys does not exist");
  }
  return NULL;
}

/* ---- values that no rule names ---- */

static const char *check_loose(const tsr_snapshot *s) {
  for (size_t id = 0; id < s->loose.count; id++) {
    const tsr__loose *loose = &s->loose.items[id];
    MUST(loose->kind <= TSR__LOOSE_DICT, "a kept container is of no kind");
    MUST(loose->first <= s->loose_values.count &&
             loose->count <= s->loose_values.count - loose->first,
         "values of a kept container do not exist");
    for (uint64_t i = loose->first; i < loose->first + loose->count; i++) {
      tsr__value value = s->loose_values.items[i];
      MUST(is_value(s, value), "a kept value names nothing");
      MUST(value.tag != TSR__LOOSE || value.id < id, "a kept container may hold itself");
    }
  }
  return NULL;
}

/* Rows of the table that extras belong to; the snapshot itself counts as one. */
static uint64_t rows_of(const tsr_snapshot *s, uint32_t table) {
  switch (table) {
  case TSR__NULL: return 1;
  case TSR__EVENT: return s->events.count;
  case TSR__SEGMENT: return s->segments.count;
  case TSR__BLOCK: return s->blocks.count;
  case TSR__ANNOTATION: return s->annotations.count;
  case TSR__HISTORY: return s->history.count;
  default: return 0;
  }
}

static const char *check_extras(const tsr_snapshot *s) {
  for (size_t i = 0; i < s->extras.count; i++) {
    const tsr__extra *extra = &s->extras.items[i];
    MUST(extra->row < rows_of(s, extra->table), "an extra belongs to no row");
    MUST(extra->key < s->strings.count, "an extra's key is no string");
    MUST(is_value(s, extra->value), "an extra names nothing");
    MUST(!i || tsr__extras_compare(extra - 1, extra) <= 0, "extras are not in order");
  }
  return NULL;
}

/* ---- the rest ---- */

static const char *check_devices(const tsr_snapshot *s) {
  for (size_t i = 1; i < s->devices.count; i++)
    MUST(s->devices.items[i - 1] < s->devices.items[i], "devices are not in order");
  MUST(s->top_order <= s->orders.count, "the top's order of keys does not exist");
  for (uint32_t id = 0; id < s->orders.count; id++) {
    size_t count = 0;
    const uint32_t *keys = tsr__key_order_keys(s, id + 1, &count);
    for (size_t i = 0; i < count; i++)
      MUST(keys[i] < s->strings.count, "a key of an order is no string");
  }
  MUST(s->warning_count <= TSR__WARNING_COUNT, "more warnings than there are");
  MUST(memchr(s->format, 0, sizeof s->format), "the format's name has no end");
  return NULL;
}

static const char *check_sidecar(const tsr_snapshot *s) {
  for (size_t i = 0; i < s->sidecar.tensors.count; i++) {
    const tsr_tensor *tensor = &s->sidecar.tensors.items[i];
    MUST(tensor->name && tensor->type, "a tensor has no name or type");
    MUST(tensor->block_address <= tensor->address, "a tensor begins before its block");
    MUST(!i || tensor[-1].device < tensor->device ||
             (tensor[-1].device == tensor->device &&
              tensor[-1].block_address <= tensor->block_address &&
              tensor[-1].address <= tensor->address),
         "tensors are not in order");
  }
  return NULL;
}

static const char *check_ledgers(const tsr_snapshot *s) {
  for (size_t i = 0; i < s->sidecar.ledger.device_count; i++) {
    const tsr_ledger *d = &s->sidecar.ledger.devices[i];
    MUST(!i || d[-1].device < d->device, "ledgers are not in the order of devices");
    MUST(d->name && d->uuid && d->context_from, "a ledger lacks a text");
    MUST(!d->sample_count || d->time_us, "a ledger's samples have no times");
    for (size_t k = 0; k < d->sample_count; k++) {
      MUST(!k || d->time_us[k - 1] <= d->time_us[k], "a ledger's samples are not in order");
      MUST(!d->mark || d->mark[k] == TSR_NONE || d->mark[k] < d->mark_count,
           "a sample's mark is not among those of its ledger");
    }
  }
  return NULL;
}

const char *tsr__snapshot_check(const tsr_snapshot *snapshot) {
  static const char *(*const checks[])(const tsr_snapshot *) = {
      check_names,       check_events, check_traces, check_flat,    check_blocks,  check_segments,
      check_annotations, check_loose,  check_extras, check_devices, check_sidecar, check_ledgers};
  for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
    const char *defect = checks[i](snapshot);
    if (defect) return defect;
  }
  return NULL;
}
