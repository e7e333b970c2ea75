/* trim.c - a window of a trace as a snapshot of its own.
 *
 * The events of the window are copied; segments and blocks are made anew from the timeline's state
 * after the last of them. A reader that undoes the copied events from there arrives at the state
 * before the window, just as it would have had PyTorch been asked for a snapshot at that moment.
 *
 * Names, frames, stacks and settings are taken over whole, so that ids mean the same in both;
 * writing the snapshot out leaves behind what no row names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers/query.h"
#include "snapshot/tables.h"
#include "timeline/timeline.h"

#define BLOCK_SHAPE                                                                  \
  (TSR__KEY(ADDRESS) | TSR__KEY(SIZE) | TSR__KEY(REQUESTED_SIZE) | TSR__KEY(STATE) | \
   TSR__KEY(FRAMES))
#define SEGMENT_SHAPE                                                                             \
  (TSR__KEY(DEVICE) | TSR__KEY(ADDRESS) | TSR__KEY(TOTAL_SIZE) | TSR__KEY(ALLOCATED_SIZE) |       \
   TSR__KEY(ACTIVE_SIZE) | TSR__KEY(REQUESTED_SIZE) | TSR__KEY(STREAM) | TSR__KEY(SEGMENT_TYPE) | \
   TSR__KEY(IS_EXPANDABLE) | TSR__KEY(FRAMES) | TSR__KEY(BLOCKS))

typedef struct trimmer {
  const tsr_snapshot *from;
  tsr_snapshot *to;
  const tsr_window *window;
  uint32_t empty_stack; /* id of the stack without frames */
  int64_t first_us,
      last_us; /* of the events that are kept; first above last where none has a time */
  TSR__VECTOR(tsr__value) told; /* device numbers and lists of what note_initial keeps */
  tsr__map waiting;             /* see note_waiting */
  TSR__VECTOR(uint32_t) order;  /* per device of the file: its trace in `to`, or TSR_NONE */
} trimmer;

/* ---- what is taken over whole ---- */

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

/* A kept value may name a row of the whole, which this part has not, or under another number. It
 * stands for nothing here; number and kind only keep it apart from others. */
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

/* The keys of the top whose values a part has of its own. */
static bool is_made_anew(uint32_t key) {
  return key == TSR__NAME_SEGMENTS || key == TSR__NAME_DEVICE_TRACES ||
         key == TSR__NAME_EXTERNAL_ANNOTATIONS || key == TSR__NAME_INITIAL_BLOCKS;
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

static bool copy_names(trimmer *t) {
  const tsr_snapshot *from = t->from;
  tsr_snapshot *to = t->to;
  bool ok =
      copy_interned(&from->strings, &to->strings) && copy_interned(&from->frames, &to->frames) &&
      copy_interned(&from->stacks, &to->stacks) &&
      copy_frame_extras(&from->frame_extras, &to->frame_extras) &&
      copy_interned(&from->pools, &to->pools) && copy_interned(&from->streams, &to->streams) &&
      COPY_VECTOR(&from->actions, &to->actions) && COPY_VECTOR(&from->loose, &to->loose) &&
      COPY_VECTOR(&from->loose_values, &to->loose_values);
  for (size_t i = 0; ok && i < to->loose_values.count; i++)
    to->loose_values.items[i] = without_row(to->loose_values.items[i]);
  for (size_t i = 0; ok && i < from->extras.count; i++) {
    tsr__extra extra = from->extras.items[i];
    if (extra.table != TSR__NULL || is_made_anew(extra.key)) continue;
    extra.value = without_row(extra.value);
    ok = TSR__VECTOR_PUSH(&to->extras, extra);
  }
  t->empty_stack = ok ? tsr__snapshot_stack_id(to, NULL, 0) : TSR_NONE;
  to->top_keys = from->top_keys | TSR__KEY(SEGMENTS) | TSR__KEY(DEVICE_TRACES);
  return t->empty_stack != TSR_NONE;
}

/* ---- events ---- */

static uint64_t first_row_of(const tsr_snapshot *snapshot, uint32_t device) {
  for (size_t i = 0; i < snapshot->device_traces.count; i++)
    if (snapshot->device_traces.items[i].device == device)
      return snapshot->device_traces.items[i].first;
  return 0;
}

static bool copy_extras(trimmer *t, uint64_t row) {
  size_t count;
  const tsr__extra *extras = tsr__extras_of(t->from, TSR__EVENT, row, row, &count);
  for (size_t i = 0; i < count; i++) {
    tsr__extra extra = extras[i];
    extra.row = t->to->events.count - 1;
    extra.value = without_row(extra.value);
    if (!TSR__VECTOR_PUSH(&t->to->extras, extra)) return false;
  }
  return true;
}

static bool copy_events(trimmer *t, uint32_t device, int64_t first, int64_t last) {
  uint64_t base = first_row_of(t->from, device);
  if (!TSR__VECTOR_PUSH(&t->to->traces, (tsr__trace){0})) return false;
  tsr__trace *trace = &t->to->traces.items[t->to->traces.count - 1];
  for (int64_t i = first; i <= last; i++) {
    tsr__event event = tsr__event_at(&t->from->events, base + (uint64_t)i);
    if (!tsr__events_push(&t->to->events, &event) || !copy_extras(t, base + (uint64_t)i) ||
        !tsr__trace_append(trace, t->to->events.count - 1))
      return false;
    if (event.time_us == TSR_TIME_NONE) continue;
    if (event.time_us < t->first_us) t->first_us = event.time_us;
    if (event.time_us > t->last_us) t->last_us = event.time_us;
  }
  /* What has events has a place among the file's traces. */
  if (device < t->order.count && t->order.items)
    t->order.items[device] = (uint32_t)t->to->traces.count - 1;
  return true;
}

/* ---- blocks ---- */

static bool push_block(trimmer *t, const tsr_block *block) {
  static const uint32_t states[] = {TSR__NAME_INACTIVE, TSR__NAME_ACTIVE_ALLOCATED,
                                    TSR__NAME_ACTIVE_PENDING_FREE, TSR__NAME_INACTIVE};
  tsr__block_more more = {
      .shape = BLOCK_SHAPE, .state = states[block->state], .origin = (uint32_t)t->to->blocks.count};
  return TSR__VECTOR_PUSH(&t->to->blocks, *block) && TSR__VECTOR_PUSH(&t->to->blocks_more, more);
}

/* The allocations that wait for another stream at an event, as keys of `t->waiting`. */
static bool note_waiting(trimmer *t, const tsr__timeline *timeline, int64_t event) {
  tsr__map_release(&t->waiting);
  for (size_t i = 0; i < timeline->waits.count; i++) {
    const tsr__wait *wait = &timeline->waits.items[i];
    bool is_waiting = (wait->from == TSR_NONE || wait->from <= event) &&
                      (wait->until == TSR_NONE || wait->until > event);
    if (is_waiting && !tsr__map_put(&t->waiting, wait->allocation, 0, NULL)) return false;
  }
  if (event < 0 || timeline->events.action[event] != TSR_ACTION_FREE_REQUESTED) return true;
  return tsr__map_put(&t->waiting, timeline->allocation_of[event], 0, NULL) != NULL;
}

static tsr_block block_of(trimmer *t, const tsr__timeline *timeline, uint32_t allocation) {
  uint32_t stack = tsr__timeline_stack(timeline, allocation);
  bool is_waiting = t->waiting.count && tsr__map_find(&t->waiting, allocation);
  return (tsr_block){.address = tsr__timeline_address(timeline, allocation),
                     .size_bytes = timeline->block_bytes.items[allocation],
                     .requested_bytes = tsr__timeline_requested(timeline, allocation),
                     .stack = stack == TSR_NONE ? t->empty_stack : stack,
                     .state = is_waiting ? TSR_BLOCK_PENDING_FREE : TSR_BLOCK_ALLOCATED};
}

/* ---- blocks that no event tells all of ---- */

/* Keep each block that was live before the window and is freed in it, as it was before. */
static bool note_initial(trimmer *t, const tsr__timeline *timeline, int64_t first, int64_t last) {
  char number[16];
  tsr__loose list = {TSR__LOOSE_LIST, 0, t->to->loose_values.count};
  if (!note_waiting(t, timeline, first - 1)) return false;
  for (uint32_t a = 0; a < timeline->birth.count; a++) {
    uint32_t birth = timeline->birth.items[a], death = timeline->death.items[a];
    bool is_older = birth == TSR_NONE || (int64_t)birth < first;
    if (!is_older || death == TSR_NONE || (int64_t)death < first || (int64_t)death > last) continue;
    tsr_block block = block_of(t, timeline, a);
    tsr__value row = tsr__value_id(TSR__BLOCK, (uint32_t)t->to->blocks.count);
    if (!push_block(t, &block) || !TSR__VECTOR_PUSH(&t->to->loose_values, row)) return false;
    list.count++;
  }
  (void)snprintf(number, sizeof number, "%u", (unsigned)timeline->device);
  uint32_t name = tsr__snapshot_string_id(t->to, number, strlen(number));
  return name != TSR_NONE && TSR__VECTOR_PUSH(&t->to->loose, list) &&
         TSR__VECTOR_PUSH(&t->told, tsr__value_id(TSR__STRING, name)) &&
         TSR__VECTOR_PUSH(&t->told, tsr__value_id(TSR__LOOSE, (uint32_t)t->to->loose.count - 1));
}

/* The dict of all devices' lists, under its key. */
static bool keep_initial(trimmer *t) {
  tsr__loose dict = {TSR__LOOSE_DICT, (uint32_t)t->told.count, t->to->loose_values.count};
  for (size_t i = 0; i < t->told.count; i++)
    if (!TSR__VECTOR_PUSH(&t->to->loose_values, t->told.items[i])) return false;
  tsr__extra extra = {.key = TSR__NAME_INITIAL_BLOCKS, .table = TSR__NULL};
  if (!TSR__VECTOR_PUSH(&t->to->loose, dict)) return false;
  extra.value = tsr__value_id(TSR__LOOSE, (uint32_t)t->to->loose.count - 1);
  return TSR__VECTOR_PUSH(&t->to->extras, extra);
}

/* ---- segments ---- */

static bool add_block(trimmer *t, tsr_segment *segment, const tsr_block *block) {
  segment->block_count++;
  if (block->state == TSR_BLOCK_ALLOCATED) segment->allocated_bytes += block->size_bytes;
  if (block->state != TSR_BLOCK_INACTIVE) {
    segment->active_bytes += block->size_bytes;
    segment->requested_bytes += block->requested_bytes;
  }
  return push_block(t, block);
}

static bool add_free(trimmer *t, tsr_segment *segment, uint64_t address, uint64_t end) {
  tsr_block block = {.address = address,
                     .size_bytes = end - address,
                     .stack = t->empty_stack,
                     .state = TSR_BLOCK_INACTIVE};
  return end <= address || add_block(t, segment, &block);
}

/* A live allocation and where it lies, to be sorted. */
typedef struct placed {
  uint64_t address;
  uint32_t allocation;
} placed;

static int compare_placed(const void *a, const void *b) {
  const placed *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

static int compare_spans(const void *a, const void *b) {
  const tsr__span *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

typedef struct state {
  const tsr__timeline *timeline;
  int64_t event;
  TSR__VECTOR(placed) live;     /* by address */
  TSR__VECTOR(tsr__span) spans; /* by address; touching expandable ones joined */
} state;

/* Do two stretches of expandable memory belong to one reservation, if they touch? */
static bool is_alike(const tsr__span *a, const tsr__span *b) {
  return a->stream == b->stream && a->pool == b->pool && a->is_large == b->is_large;
}

static bool gather_state(state *s, tsr_error *error) {
  tsr__live_set live = {0};
  if (tsr__timeline_live(s->timeline, s->event, &live, error)) return false;
  bool ok = true;
  for (size_t i = 0; ok && i < live.count; i++)
    ok = TSR__VECTOR_PUSH(
        &s->live, (placed){tsr__timeline_address(s->timeline, live.items[i]), live.items[i]});
  TSR__VECTOR_FREE(&live);
  for (size_t i = 0; ok && i < s->timeline->spans.count; i++)
    if (tsr__span_is_there(&s->timeline->spans.items[i], s->event))
      ok = TSR__VECTOR_PUSH(&s->spans, s->timeline->spans.items[i]);
  if (!ok) return false;
  if (s->live.count) qsort(s->live.items, s->live.count, sizeof *s->live.items, compare_placed);
  if (!s->spans.count) return true;
  qsort(s->spans.items, s->spans.count, sizeof *s->spans.items, compare_spans);
  size_t kept = 0;
  for (size_t i = 1; i < s->spans.count; i++) {
    tsr__span *last = &s->spans.items[kept], *next = &s->spans.items[i];
    if (last->is_expandable && next->is_expandable && is_alike(last, next) &&
        last->address + last->size_bytes == next->address)
      last->size_bytes += next->size_bytes;
    else
      s->spans.items[++kept] = *next;
  }
  s->spans.count = kept + 1;
  return true;
}

/* One span as a segment; `*next` is the first live allocation not before it. */
static bool add_segment(trimmer *t, const state *s, const tsr__span *span, size_t *next) {
  uint64_t at = span->address, end = span->address + span->size_bytes;
  tsr_segment segment = {.address = span->address,
                         .total_bytes = span->size_bytes,
                         .stream = tsr_snapshot_stream(t->from, span->stream),
                         .first_block = t->to->blocks.count,
                         .device = s->timeline->device,
                         .stack = t->empty_stack,
                         .pool = span->pool,
                         .is_large = span->is_large,
                         .is_expandable = span->is_expandable};
  while (*next < s->live.count && s->live.items[*next].address < at) ++*next;
  for (; *next < s->live.count && s->live.items[*next].address < end; ++*next) {
    tsr_block block = block_of(t, s->timeline, s->live.items[*next].allocation);
    if (block.address < at || block.size_bytes > end - block.address) continue;
    if (!add_free(t, &segment, at, block.address) || !add_block(t, &segment, &block)) return false;
    at = block.address + block.size_bytes;
  }
  tsr__segment_more more = {.shape = SEGMENT_SHAPE,
                            .type = span->is_large ? TSR__NAME_LARGE : TSR__NAME_SMALL,
                            .origin = (uint32_t)t->to->segments.count};
  if (span->pool != TSR_NONE) more.shape |= TSR__KEY(SEGMENT_POOL_ID);
  return add_free(t, &segment, at, end) && TSR__VECTOR_PUSH(&t->to->segments, segment) &&
         TSR__VECTOR_PUSH(&t->to->segments_more, more);
}

static int trim_device(trimmer *t, uint32_t device, tsr_error *error) {
  tsr__timeline timeline = {0};
  int64_t first, last;
  int status = tsr__timeline_compute(t->from, device, false, &timeline, error);
  if (status) return status;
  state s = {.timeline = &timeline};
  bool has_events = tsr__window_find(&timeline.events, t->window, &first, &last);
  /* A device that rests during the window keeps the state it has then. */
  s.event = has_events || !timeline.events.count ? last : (int64_t)timeline.events.count - 1;
  bool ok = (!has_events ||
             (copy_events(t, device, first, last) && note_initial(t, &timeline, first, last))) &&
            note_waiting(t, &timeline, s.event) && gather_state(&s, error);
  size_t next = 0;
  for (size_t i = 0; ok && i < s.spans.count; i++)
    ok = add_segment(t, &s, &s.spans.items[i], &next);
  TSR__VECTOR_FREE(&s.live);
  TSR__VECTOR_FREE(&s.spans);
  tsr__timeline_release(&timeline);
  return ok ? 0 : tsr__fail_memory(error);
}

/* ---- the rest ---- */

static bool copy_annotations(trimmer *t) {
  for (size_t i = 0; i < t->from->annotation_count; i++) {
    tsr_annotation annotation = t->from->annotations.items[i];
    tsr__annotation_more more = t->from->annotations_more.items[i];
    if (annotation.time_us < t->first_us || annotation.time_us > t->last_us) continue;
    more.origin = (uint32_t)t->to->annotations.count;
    if (!TSR__VECTOR_PUSH(&t->to->annotations, annotation) ||
        !TSR__VECTOR_PUSH(&t->to->annotations_more, more))
      return false;
  }
  return true;
}

static int finish(trimmer *t, tsr_error *error) {
  tsr_limits limits = tsr__limits_or_default(NULL);
  if (!t->to->events.count)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "the window holds no event");
  if (!copy_annotations(t) || !keep_initial(t)) return tsr__fail_memory(error);
  t->to->segment_count = t->to->segments.count;
  t->to->annotation_count = t->to->annotations.count;
  memcpy(t->to->format, t->from->format, sizeof t->to->format);
  return tsr__snapshot_finish(t->to, t->order.items, (uint32_t)t->order.count, &limits, error);
}

int tsr_snapshot_trim(const tsr_snapshot *snapshot, const tsr_window *window,
                      const tsr_query *query, tsr_snapshot **out, tsr_error *error) {
  const uint32_t *devices;
  size_t count;
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  trimmer t = {.from = snapshot,
               .to = tsr__snapshot_new(),
               .window = window,
               .first_us = INT64_MAX,
               .last_us = INT64_MIN};
  if (!t.to) return tsr__fail_memory(error);
  if (!copy_names(&t)) status = tsr__fail_memory(error);
  for (uint32_t i = 0; !status && i < snapshot->trace_count; i++)
    if (!TSR__VECTOR_PUSH(&t.order, TSR_NONE)) status = tsr__fail_memory(error);
  for (size_t i = 0; !status && i < count; i++) status = trim_device(&t, devices[i], error);
  if (!status) status = finish(&t, error);
  tsr__map_release(&t.waiting);
  TSR__VECTOR_FREE(&t.order);
  TSR__VECTOR_FREE(&t.told);
  if (status)
    tsr_snapshot_free(t.to);
  else
    *out = t.to;
  return status;
}
