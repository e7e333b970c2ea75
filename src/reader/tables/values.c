/* values.c - the value of a column in a row, from the columns of the snapshot and of the study.
 *
 * One function a relation, each a switch over its columns. Texts that exist are referred to; those that do not are appended to the
 * caller's buffer. What a column needs has been derived by then (derive.c). */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "tables/columns.h"
#include "tables/relations.h"

typedef tsr__relation_cell cell;

/* ---- Forms ---- */

static cell null_cell(void) {
  return (cell){.form = TSR__FORM_NULL};
}

static cell integer(int64_t value) {
  return (cell){.form = TSR__FORM_INTEGER, .integer = value};
}

/* A size or a count. */
static cell count_cell(uint64_t value) {
  return integer(value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

/* An address or a handle: what identifies keeps its bits. */
static cell identity(uint64_t value) {
  return integer((int64_t)value);
}

static cell id_cell(uint32_t id) {
  return id == TSR_NONE ? null_cell() : integer(id);
}

static cell time_cell(int64_t time_us) {
  return time_us == TSR_TIME_NONE ? null_cell() : integer(time_us);
}

static cell millisecond_cell(int64_t time_us) {
  int64_t down = time_us % 1000 < 0; /* division truncates */
  return time_us == TSR_TIME_NONE ? null_cell() : integer(time_us / 1000 - down);
}

static cell code_cell(uint32_t code) {
  return (cell){.form = TSR__FORM_CODE, .integer = code};
}

static cell text_cell(tsr_text text) {
  return (cell){.form = TSR__FORM_TEXT, .text = text};
}

static cell string_cell(const tsr_relations *all, uint32_t string) {
  return string == TSR_NONE ? null_cell() : text_cell(tsr_snapshot_string(all->snapshot, string));
}

static cell scratch_cell(void) {
  return (cell){.form = TSR__FORM_SCRATCH};
}

static cell device_cell(uint32_t device) {
  return device == TSR_DEVICE_HOST  ? text_cell((tsr_text){"host", 4})
         : device == TSR_DEVICE_CPU ? text_cell((tsr_text){"cpu", 3})
                                    : integer(device);
}

static cell pool_cell(const tsr_relations *all, uint32_t id, tsr__buffer *scratch) {
  if (id == TSR_NONE) return null_cell();
  tsr_pool pool = tsr_snapshot_pool(all->snapshot, id);
  tsr__buffer_printf(scratch, "(%" PRIu64 ", %" PRIu64 ")", pool.first, pool.second);
  return scratch_cell();
}

static cell stream_cell(const tsr_relations *all, uint32_t id) {
  return id == TSR_NONE ? null_cell() : identity(tsr_snapshot_stream(all->snapshot, id));
}

/* -1: before the first event. */
static cell birth_cell(uint32_t event) {
  return integer(event == TSR_NONE ? -1 : (int64_t)event);
}

static int64_t time_of(const tsr__relation_device *d, uint32_t event) {
  return event == TSR_NONE ? TSR_TIME_NONE : d->events.time_us[event];
}

/* The step that an event is in. */
static cell step_cell(const tsr__relation_device *d, uint32_t event) {
  const tsr__cycle_steps *steps = &d->cycle->steps;
  size_t low = 0, high = steps->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (steps->items[middle].last < event)
      low = middle + 1;
    else
      high = middle;
  }
  bool is_in = event != TSR_NONE && low < steps->count && steps->items[low].first <= event;
  return is_in ? integer((int64_t)low + 1) : null_cell();
}

/* ---- Relations ---- */

static cell of_device(const tsr__relation_device *d, size_t column) {
  const tsr__timeline *t = d->timeline;
  uint64_t failures = 0;
  switch (column) {
  case TSR__DEVICES_DEVICE: return device_cell(d->device);
  case TSR__DEVICES_EVENTS: return count_cell(d->events.count);
  case TSR__DEVICES_ALLOCATIONS: return count_cell(t->birth.count);
  case TSR__DEVICES_OOM_EVENTS:
    for (uint64_t at = 0; (at = tsr__next_action(&d->events, TSR_ACTION_OOM, at)) < d->events.count;
         at++)
      failures++;
    return count_cell(failures);
  case TSR__DEVICES_START_ALLOCATED: return count_cell(t->start.allocated_bytes);
  case TSR__DEVICES_END_ALLOCATED: return count_cell(t->end.allocated_bytes);
  case TSR__DEVICES_END_RESERVED: return count_cell(t->end.reserved_bytes);
  case TSR__DEVICES_PEAK_ALLOCATED: return count_cell(t->maxima.allocated_bytes);
  case TSR__DEVICES_PEAK_EVENT: return integer(t->allocated_event);
  case TSR__DEVICES_PEAK_US:
    return t->allocated_event < 0 ? null_cell() : time_cell(d->events.time_us[t->allocated_event]);
  case TSR__DEVICES_PEAK_RESERVED: return count_cell(t->maxima.reserved_bytes);
  case TSR__DEVICES_PEAK_RESERVED_EVENT: return integer(t->reserved_event);
  case TSR__DEVICES_PEAK_REQUESTED: return count_cell(t->maxima.requested_bytes);
  default: return integer(t->requested_event);
  }
}

static cell of_event(const tsr_relations *all, const tsr__relation_device *d, size_t row,
                     size_t column, tsr__buffer *scratch) {
  const tsr_events *e = &d->events;
  switch (column) {
  case TSR__EVENTS_DEVICE: return device_cell(d->device);
  case TSR__EVENTS_EVENT: return integer((int64_t)row);
  case TSR__EVENTS_ACTION: return code_cell(e->action[row]);
  case TSR__EVENTS_ADDRESS: return identity(e->addr[row]);
  case TSR__EVENTS_SIZE: return count_cell(e->size[row]);
  case TSR__EVENTS_TIME: return time_cell(e->time_us[row]);
  case TSR__EVENTS_TIME_MS: return millisecond_cell(e->time_us[row]);
  case TSR__EVENTS_STREAM: return stream_cell(all, tsr_id_at(e->stream, row));
  case TSR__EVENTS_STACK: return id_cell(e->stack[row]);
  case TSR__EVENTS_ALLOCATED: return count_cell(d->totals[TSR__TOTAL_ALLOCATED][row]);
  case TSR__EVENTS_RESERVED: return count_cell(d->totals[TSR__TOTAL_RESERVED][row]);
  case TSR__EVENTS_REQUESTED: return count_cell(d->totals[TSR__TOTAL_REQUESTED][row]);
  case TSR__EVENTS_ACTIVE: return count_cell(d->totals[TSR__TOTAL_ACTIVE][row]);
  case TSR__EVENTS_PEAK: return count_cell(d->totals[TSR__TOTAL_PEAK][row]);
  case TSR__EVENTS_ALLOCATION: return id_cell(d->timeline->allocation_of[row]);
  case TSR__EVENTS_STEP: return step_cell(d, (uint32_t)row);
  case TSR__EVENTS_ANNOTATION:
    return string_cell(
        all, d->annotations->spans.items[tsr__annotations_span(d->annotations, row)].name);
  case TSR__EVENTS_POOL: return pool_cell(all, tsr_id_at(e->pool, row), scratch);
  default: return string_cell(all, tsr_id_at(e->metadata, row));
  }
}

static bool is_live_at(const tsr__timeline *t, size_t allocation, int64_t event) {
  uint32_t birth = t->birth.items[allocation], death = t->death.items[allocation];
  return (birth == TSR_NONE || (int64_t)birth <= event) &&
         (death == TSR_NONE || (int64_t)death > event);
}

static cell lifetime_cell(const tsr__relation_device *d, uint32_t birth, uint32_t death) {
  int64_t born = time_of(d, birth), died = time_of(d, death);
  if (born == TSR_TIME_NONE || died == TSR_TIME_NONE) return null_cell();
  return integer((int64_t)((uint64_t)died - (uint64_t)born));
}

static cell name_cell(const tsr__relation_device *d, uint32_t allocation, tsr__buffer *scratch) {
  tsr__names_append(d->names, allocation, scratch);
  return scratch->size ? scratch_cell() : null_cell();
}

static cell of_allocation(const tsr_relations *all, const tsr__relation_device *d, size_t row,
                          size_t column, tsr__buffer *scratch) {
  const tsr__timeline *t = d->timeline;
  uint32_t allocation = (uint32_t)row, birth = t->birth.items[row], death = t->death.items[row];
  switch (column) {
  case TSR__ALLOCATIONS_DEVICE: return device_cell(d->device);
  case TSR__ALLOCATIONS_ALLOCATION: return integer((int64_t)row);
  case TSR__ALLOCATIONS_ADDRESS: return identity(tsr__timeline_address(t, allocation));
  case TSR__ALLOCATIONS_SIZE: return count_cell(t->block_bytes.items[row]);
  case TSR__ALLOCATIONS_REQUESTED: return count_cell(tsr__timeline_requested(t, allocation));
  case TSR__ALLOCATIONS_BORN_EVENT: return birth_cell(birth);
  case TSR__ALLOCATIONS_DIED_EVENT: return id_cell(death);
  case TSR__ALLOCATIONS_BORN_US: return time_cell(time_of(d, birth));
  case TSR__ALLOCATIONS_DIED_US: return time_cell(time_of(d, death));
  case TSR__ALLOCATIONS_LIFETIME: return lifetime_cell(d, birth, death);
  case TSR__ALLOCATIONS_CATEGORY: return code_cell(d->categories->category[row]);
  case TSR__ALLOCATIONS_CONFIDENCE:
    return code_cell(tsr_evidence_confidence((tsr_evidence)d->categories->evidence[row]));
  case TSR__ALLOCATIONS_PHASE: return code_cell(d->categories->phase[row]);
  case TSR__ALLOCATIONS_STEP: return step_cell(d, birth);
  case TSR__ALLOCATIONS_STACK: return id_cell(tsr__timeline_stack(t, allocation));
  case TSR__ALLOCATIONS_PLACE:
    return code_cell(tsr__label_of(all->lines, tsr__timeline_stack(t, allocation)));
  case TSR__ALLOCATIONS_MODULE:
    return code_cell(tsr__label_of(all->modules, tsr__timeline_stack(t, allocation)));
  case TSR__ALLOCATIONS_OPERATION:
    return code_cell(tsr__label_of(all->operations, tsr__timeline_stack(t, allocation)));
  case TSR__ALLOCATIONS_STREAM:
    return birth == TSR_NONE ? null_cell() : stream_cell(all, tsr_id_at(d->events.stream, birth));
  case TSR__ALLOCATIONS_LIVE_AT_PEAK: return integer(is_live_at(t, row, t->allocated_event));
  default: return name_cell(d, allocation, scratch);
  }
}

/* `train.py:57 train`, or the name alone without a file. */
static void append_frame(const tsr_relations *all, uint32_t id, tsr__buffer *out) {
  tsr_frame frame = tsr_snapshot_frame(all->snapshot, id);
  tsr_text name = tsr_snapshot_string(all->snapshot, frame.name);
  tsr_text file = tsr_snapshot_string(all->snapshot, frame.file);
  bool has_file = file.size_bytes && !(file.size_bytes == 2 && file.data[0] == '?');
  if (has_file) tsr__buffer_append(out, file.data, file.size_bytes);
  if (has_file && frame.line != TSR_LINE_UNKNOWN) tsr__buffer_printf(out, ":%" PRIu64, frame.line);
  if (has_file) tsr__buffer_text(out, " ");
  tsr__buffer_append(out, name.data, name.size_bytes);
}

static cell of_stack(const tsr_relations *all, size_t row, size_t column, tsr__buffer *scratch) {
  uint32_t id = (uint32_t)row;
  tsr_stack stack = tsr_snapshot_stack(all->snapshot, id);
  switch (column) {
  case TSR__STACKS_STACK: return integer(id);
  case TSR__STACKS_TOP: return code_cell(tsr__label_of(all->lines, id));
  case TSR__STACKS_MODULE: return code_cell(tsr__label_of(all->modules, id));
  case TSR__STACKS_OPERATION: return code_cell(tsr__label_of(all->operations, id));
  case TSR__STACKS_DEPTH: return integer(stack.depth);
  default: break;
  }
  for (uint32_t i = stack.depth; i-- > 0;) {
    append_frame(all, stack.frames[i], scratch);
    if (i) tsr__buffer_text(scratch, " > ");
  }
  return scratch_cell();
}

static cell of_frame(const tsr_relations *all, size_t part, size_t row, size_t column) {
  tsr_stack stack = tsr_snapshot_stack(all->snapshot, (uint32_t)part);
  assert(row < stack.depth);
  tsr_frame frame = tsr_snapshot_frame(all->snapshot, stack.frames[row]);
  switch (column) {
  case TSR__FRAMES_STACK: return integer((int64_t)part);
  case TSR__FRAMES_DEPTH: return integer((int64_t)row);
  case TSR__FRAMES_NAME: return string_cell(all, frame.name);
  case TSR__FRAMES_FILE: return string_cell(all, frame.file);
  default: return frame.line == TSR_LINE_UNKNOWN ? null_cell() : count_cell(frame.line);
  }
}

static cell of_segment(const tsr_relations *all, const tsr__relation_device *d, size_t row,
                       size_t column, tsr__buffer *scratch) {
  size_t count;
  const tsr_segment *s = &tsr_snapshot_segments(all->snapshot, &count)[d->segments.items[row]];
  switch (column) {
  case TSR__SEGMENTS_DEVICE: return device_cell(d->device);
  case TSR__SEGMENTS_SEGMENT: return integer((int64_t)row);
  case TSR__SEGMENTS_ADDRESS: return identity(s->address);
  case TSR__SEGMENTS_SIZE: return count_cell(s->total_bytes);
  case TSR__SEGMENTS_STREAM: return identity(s->stream);
  case TSR__SEGMENTS_POOL: return pool_cell(all, s->pool, scratch);
  case TSR__SEGMENTS_ALLOCATED: return count_cell(s->allocated_bytes);
  case TSR__SEGMENTS_ACTIVE: return count_cell(s->active_bytes);
  case TSR__SEGMENTS_REQUESTED: return count_cell(s->requested_bytes);
  case TSR__SEGMENTS_LARGE: return integer(s->is_large);
  case TSR__SEGMENTS_EXPANDABLE: return integer(s->is_expandable);
  default: return id_cell(s->stack);
  }
}

static cell of_block(const tsr_relations *all, const tsr__relation_device *d, size_t row,
                     size_t column) {
  size_t count;
  const tsr_block *b = &tsr_snapshot_blocks(all->snapshot, &count)[d->blocks.items[row]];
  switch (column) {
  case TSR__BLOCKS_DEVICE: return device_cell(d->device);
  case TSR__BLOCKS_BLOCK: return integer((int64_t)row);
  case TSR__BLOCKS_SEGMENT: return integer(d->block_segments.items[row]);
  case TSR__BLOCKS_ADDRESS: return identity(b->address);
  case TSR__BLOCKS_SIZE: return count_cell(b->size_bytes);
  case TSR__BLOCKS_REQUESTED:
    return b->state == TSR_BLOCK_INACTIVE ? null_cell() : count_cell(b->requested_bytes);
  case TSR__BLOCKS_STATE: return code_cell(b->state);
  default: return id_cell(b->stack);
  }
}

static cell of_span(const tsr_relations *all, const tsr__relation_device *d, size_t row,
                    size_t column, tsr__buffer *scratch) {
  const tsr__span *s = &d->timeline->spans.items[row];
  switch (column) {
  case TSR__SPANS_DEVICE: return device_cell(d->device);
  case TSR__SPANS_SPAN: return integer((int64_t)row);
  case TSR__SPANS_ADDRESS: return identity(s->address);
  case TSR__SPANS_SIZE: return count_cell(s->size_bytes);
  case TSR__SPANS_BORN_EVENT: return birth_cell(s->birth);
  case TSR__SPANS_DIED_EVENT: return id_cell(s->death);
  case TSR__SPANS_BORN_US: return time_cell(time_of(d, s->birth));
  case TSR__SPANS_DIED_US: return time_cell(time_of(d, s->death));
  case TSR__SPANS_STREAM: return stream_cell(all, s->stream);
  case TSR__SPANS_POOL: return pool_cell(all, s->pool, scratch);
  case TSR__SPANS_LARGE: return integer(s->is_large);
  default: return integer(s->is_expandable);
  }
}

static cell of_step(const tsr__relation_device *d, size_t row, size_t column) {
  const tsr_step *s = &d->steps->devices[0].steps[row];
  switch (column) {
  case TSR__STEPS_DEVICE: return device_cell(d->device);
  case TSR__STEPS_STEP: return integer((int64_t)row + 1);
  case TSR__STEPS_FIRST_EVENT: return count_cell(s->first_event);
  case TSR__STEPS_LAST_EVENT: return count_cell(s->last_event);
  case TSR__STEPS_FIRST_US: return time_cell(s->first_time_us);
  case TSR__STEPS_LAST_US: return time_cell(s->last_time_us);
  case TSR__STEPS_START_ALLOCATED: return count_cell(s->start_bytes);
  case TSR__STEPS_END_ALLOCATED: return count_cell(s->end_bytes);
  case TSR__STEPS_PEAK: return count_cell(s->peak_bytes);
  case TSR__STEPS_PEAK_EVENT: return count_cell(s->peak_event);
  case TSR__STEPS_ALLOCATIONS: return count_cell(s->allocations);
  case TSR__STEPS_WHOLE: return integer(s->is_whole);
  default: return integer(s->is_steady);
  }
}

static cell of_annotation(const tsr_relations *all, const tsr__relation_device *d, size_t row,
                          size_t column) {
  size_t count;
  const tsr_annotation *notes = tsr_snapshot_annotations(all->snapshot, &count);
  assert(d && notes && d->notes.items && d->notes.items[row] < count);
  const tsr_annotation *a = &notes[d->notes.items[row]];
  switch (column) {
  case TSR__ANNOTATIONS_DEVICE: return device_cell(d->device);
  case TSR__ANNOTATIONS_ANNOTATION: return integer((int64_t)row);
  case TSR__ANNOTATIONS_NAME: return string_cell(all, a->name);
  case TSR__ANNOTATIONS_STAGE: return string_cell(all, a->stage);
  default: return time_cell(a->time_us);
  }
}

/* ---- Of ranks ---- */

static cell chars_cell(const char *text) {
  return text ? text_cell((tsr_text){text, strlen(text)}) : null_cell();
}

static cell of_rank(const tsr_relations *all, size_t row, size_t column) {
  const tsr_rank_row *r = &all->ranks->rows[row];
  switch (column) {
  case TSR__RANKS_RANK: return integer(r->rank);
  case TSR__RANKS_PATH: return chars_cell(r->path);
  case TSR__RANKS_DEVICE: return device_cell(r->device);
  case TSR__RANKS_GROUP: return chars_cell(all->ranks->groups[r->group].name);
  case TSR__RANKS_PEAK: return count_cell(r->peak_allocated_bytes);
  case TSR__RANKS_PEAK_RESERVED: return count_cell(r->peak_reserved_bytes);
  case TSR__RANKS_PEAK_US: return time_cell(r->peak_us);
  case TSR__RANKS_OUT_OF_MEMORY: return integer(r->is_out_of_memory);
  case TSR__RANKS_STOP_US: return r->is_out_of_memory ? time_cell(r->stop_us) : null_cell();
  case TSR__RANKS_STOP_BYTES: return r->stop_bytes ? count_cell(r->stop_bytes) : null_cell();
  case TSR__RANKS_STOP_STACK: return r->is_out_of_memory ? id_cell(r->stop_stack) : null_cell();
  case TSR__RANKS_STEP: return r->step < 0 ? null_cell() : integer(r->step);
  case TSR__RANKS_OTHER: return integer(r->is_other);
  case TSR__RANKS_PARTIAL: return integer(r->is_partial);
  case TSR__RANKS_CLOCK: return r->clock_us ? integer(r->clock_us) : null_cell();
  case TSR__RANKS_PARAMETERS: return count_cell(r->category_bytes[TSR_CATEGORY_PARAMETER]);
  case TSR__RANKS_GRADIENTS: return count_cell(r->category_bytes[TSR_CATEGORY_GRADIENT]);
  case TSR__RANKS_OPTIMIZER: return count_cell(r->category_bytes[TSR_CATEGORY_OPTIMIZER_STATE]);
  default: return count_cell(r->category_bytes[TSR_CATEGORY_ACTIVATION]);
  }
}

static cell of_outlier(const tsr_relations *all, size_t row, size_t column) {
  const tsr_rank_outlier *o = &all->ranks->outliers[row];
  switch (column) {
  case TSR__OUTLIERS_OUTLIER: return integer((int64_t)row);
  case TSR__OUTLIERS_RANK: return integer(all->ranks->rows[o->row].rank);
  case TSR__OUTLIERS_DEVICE: return device_cell(all->ranks->rows[o->row].device);
  case TSR__OUTLIERS_GROUP: return chars_cell(all->ranks->groups[o->group].name);
  case TSR__OUTLIERS_COMPARED:
    return o->compared_with < 0 ? null_cell() : integer(o->compared_with);
  case TSR__OUTLIERS_DELTA: return integer(o->delta_bytes);
  case TSR__OUTLIERS_EXCESS: return count_cell(o->excess_bytes);
  case TSR__OUTLIERS_CAUSE: return code_cell(o->cause);
  case TSR__OUTLIERS_TEXT: return chars_cell(o->cause_text);
  default: return id_cell(o->stack);
  }
}

static cell of_change(const tsr_relations *all, size_t part, size_t row, size_t column) {
  const tsr_rank_change *c = &all->ranks->outliers[part].changes[row];
  switch (column) {
  case TSR__CHANGES_OUTLIER: return integer((int64_t)part);
  case TSR__CHANGES_CHANGE: return integer((int64_t)row);
  case TSR__CHANGES_DELTA: return integer(c->delta_bytes);
  case TSR__CHANGES_MEDIAN: return count_cell(c->median_bytes);
  case TSR__CHANGES_BYTES: return count_cell(c->bytes);
  case TSR__CHANGES_CATEGORY: return code_cell(c->category);
  default: return id_cell(c->stack);
  }
}

/* ---- All of them ---- */

bool tsr__relation_has_devices(size_t relation) {
  return relation < TSR__RANKS && relation != TSR__STACKS && relation != TSR__FRAMES;
}

size_t tsr__relation_parts(const tsr_relations *all, size_t relation) {
  switch (relation) {
  case TSR__STACKS:
  case TSR__RANKS:
  case TSR__OUTLIERS: return 1;
  case TSR__FRAMES: return tsr_snapshot_stack_count(all->snapshot);
  case TSR__CHANGES: return all->ranks->outlier_count;
  default: return all->device_count;
  }
}

size_t tsr__relation_rows(const tsr_relations *all, size_t relation, size_t part) {
  const tsr__relation_device *d = tsr__relation_has_devices(relation) ? &all->devices[part] : NULL;
  switch (relation) {
  case TSR__STACKS: return tsr_snapshot_stack_count(all->snapshot);
  case TSR__FRAMES: return tsr_snapshot_stack(all->snapshot, (uint32_t)part).depth;
  case TSR__RANKS: return all->ranks->row_count;
  case TSR__OUTLIERS: return all->ranks->outlier_count;
  case TSR__CHANGES: return all->ranks->outliers[part].change_count;
  case TSR__DEVICES: return 1;
  case TSR__EVENTS: return (size_t)d->events.count;
  case TSR__ALLOCATIONS: return d->timeline->birth.count;
  case TSR__SEGMENTS: return d->segments.count;
  case TSR__BLOCKS: return d->blocks.count;
  case TSR__SPANS: return d->timeline->spans.count;
  case TSR__STEPS:
    assert(d->steps);
    return d->steps->device_count ? d->steps->devices[0].step_count : 0;
  default: assert(d); return d->notes.count;
  }
}

cell tsr__relation_cell_at(const tsr_relations *all, size_t relation, size_t part, size_t row,
                           size_t column, tsr__buffer *scratch) {
  const tsr__relation_device *d = tsr__relation_has_devices(relation) ? &all->devices[part] : NULL;
  switch (relation) {
  case TSR__STACKS: return of_stack(all, row, column, scratch);
  case TSR__FRAMES: return of_frame(all, part, row, column);
  case TSR__RANKS: return of_rank(all, row, column);
  case TSR__OUTLIERS: return of_outlier(all, row, column);
  case TSR__CHANGES: return of_change(all, part, row, column);
  case TSR__DEVICES: return of_device(d, column);
  case TSR__EVENTS: return of_event(all, d, row, column, scratch);
  case TSR__ALLOCATIONS: return of_allocation(all, d, row, column, scratch);
  case TSR__SEGMENTS: return of_segment(all, d, row, column, scratch);
  case TSR__BLOCKS: return of_block(all, d, row, column);
  case TSR__SPANS: return of_span(all, d, row, column, scratch);
  case TSR__STEPS: return of_step(d, row, column);
  default: return of_annotation(all, d, row, column);
  }
}
