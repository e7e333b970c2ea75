/* host.c - pinned host memory becomes a device.
 *
 * Since 2.14, PyTorch writes what its allocator of pinned CPU memory holds and did under two more keys
 * of the top. Their values are kept as they are, for a writer; here the rows of TSR_DEVICE_HOST are made
 * from them, which no writer sees.
 *
 *   host_segments   a list of blocks: this allocator never splits a segment. An entry is
 *                     a dict like a device's segment, with blocks or without
 *                     a dict like a block (state and size)
 *                     or any dict with an address and a size; `allocated` and `active` are booleans
 *                     or bytes
 *   host_traces     a list of events, or one list for each device
 *
 * Which of these a release writes is not documented, so all are read. Lists are merged by time, one that
 * is listed twice counts once. What is none of this is tallied and ignored. */
#include <assert.h>

#include "base/map.h"
#include "base/sort.h"
#include "formats/assemble.h"

/* Lists within lists, and dicts, in which entries are looked for. */
enum { MOST_LEVELS = 3 };

typedef struct host {
  tsr__assembler *assembler;
  const tsr_snapshot *snapshot;
  tsr__builder *builder;
  tsr__order *rows; /* of segments */
  tsr__map flags;   /* origin of a segment row -> flags that its dict has besides, see note_flags */
  tsr__map seen;    /* rows and traces that have been counted */
} host;

/* ---- what an entry states about its block ---- */

enum { HAS_ALLOCATED = 1, IS_ALLOCATED = 2, HAS_ACTIVE = 4, IS_ACTIVE = 8 };

static unsigned flags_of(uint32_t key, tsr__value value) {
  bool is_number = value.tag == TSR__BOOL || value.tag == TSR__INT || value.tag == TSR__UINT;
  bool is_true = is_number && value.u != 0;
  if (key == TSR__NAME_ALLOCATED || key == TSR__NAME_ALLOCATED_SIZE)
    return HAS_ALLOCATED | (is_true ? IS_ALLOCATED : 0);
  if (key == TSR__NAME_ACTIVE || key == TSR__NAME_ACTIVE_SIZE)
    return HAS_ACTIVE | (is_true ? IS_ACTIVE : 0);
  return 0;
}

/* Active is what is allocated, or waits for the GPU to finish. An entry that states neither is taken for
 * allocated. */
static tsr_block_state state_of(unsigned flags) {
  if (flags & IS_ALLOCATED) return TSR_BLOCK_ALLOCATED;
  if (flags & IS_ACTIVE)
    return flags & HAS_ALLOCATED ? TSR_BLOCK_PENDING_FREE : TSR_BLOCK_ALLOCATED;
  return flags ? TSR_BLOCK_INACTIVE : TSR_BLOCK_ALLOCATED;
}

/* Flags of segments whose dicts have keys that a GPU's have not: those are extras. */
static bool note_flags(host *h) {
  for (size_t i = 0; i < h->snapshot->extras.count; i++) {
    const tsr__extra *extra = &h->snapshot->extras.items[i];
    if (extra->table != TSR__SEGMENT) continue;
    unsigned flags = flags_of(extra->key, extra->value);
    uint64_t *known = flags ? tsr__map_put(&h->flags, extra->row, 0, NULL) : NULL;
    if (flags && !known) return false;
    if (known) *known |= flags;
  }
  return true;
}

/* ---- segments ---- */

static bool add_segment(host *h, tsr_segment segment) {
  segment.device = TSR_DEVICE_HOST;
  segment.is_large = true;
  segment.is_expandable = false;
  return tsr__builder_add_host_segment(h->builder, &segment) &&
         TSR__VECTOR_PUSH(h->rows, (uint32_t)h->snapshot->segments.count - 1);
}

/* A segment that is one block, which the file does not list separately. */
static bool add_whole(host *h, tsr_segment segment, const tsr_block *block) {
  static const uint32_t states[] = {TSR__NAME_INACTIVE, TSR__NAME_ACTIVE_ALLOCATED,
                                    TSR__NAME_ACTIVE_PENDING_FREE, TSR_NONE};
  tsr__block_more more = {.state = states[block->state]};
  segment.first_block = h->snapshot->blocks.count;
  segment.block_count = 1;
  return tsr__builder_add_block(h->builder, block, &more) && add_segment(h, segment);
}

/* One written like a device's; its blocks are shared with it. */
static bool read_segment(host *h, uint32_t row) {
  tsr_segment segment = h->snapshot->segments.items[row];
  const tsr__segment_more *more = &h->snapshot->segments_more.items[row];
  const uint64_t *noted = tsr__map_find(&h->flags, more->origin);
  unsigned flags = noted ? (unsigned)*noted : 0;
  if (segment.block_count) return add_segment(h, segment);
  if (more->shape & TSR__KEY(ALLOCATED_SIZE))
    flags |= HAS_ALLOCATED | (segment.allocated_bytes ? IS_ALLOCATED : 0);
  if (more->shape & TSR__KEY(ACTIVE_SIZE))
    flags |= HAS_ACTIVE | (segment.active_bytes ? IS_ACTIVE : 0);
  tsr_block block = {.address = segment.address,
                     .size_bytes = segment.total_bytes,
                     .requested_bytes = segment.requested_bytes,
                     .stack = segment.stack,
                     .state = (uint8_t)state_of(flags)};
  return add_whole(h, segment, &block);
}

static bool read_block(host *h, uint32_t row) {
  const tsr_block *block = &h->snapshot->blocks.items[row];
  return add_segment(h, (tsr_segment){.address = block->address,
                                      .total_bytes = block->size_bytes,
                                      .first_block = row,
                                      .block_count = 1,
                                      .stack = block->stack,
                                      .pool = TSR_NONE});
}

/* ---- dicts that are no row ---- */

static bool is_number(tsr__value value) {
  return value.tag == TSR__UINT || (value.tag == TSR__INT && value.i >= 0);
}

static uint32_t pool_of(host *h, tsr__value value) {
  if (value.tag == TSR__PAIR) return value.id;
  if (value.tag != TSR__LOOSE) return TSR_NONE;
  const tsr__loose *list = &h->snapshot->loose.items[value.id];
  const tsr__value *items = h->snapshot->loose_values.items + list->first;
  if (list->kind == TSR__LOOSE_DICT || list->count != 2) return TSR_NONE;
  if (!is_number(items[0]) || !is_number(items[1])) return TSR_NONE;
  return tsr__builder_pool(h->builder, items[0].u, items[1].u);
}

/* One member of such a dict. 0 or TSR_ERROR_MEMORY, or what a stack fails with. */
static int read_member(host *h, uint32_t key, tsr__value value, tsr_block *block, uint32_t *pool,
                       tsr_error *error) {
  switch (key) {
  case TSR__NAME_ADDRESS:
  case TSR__NAME_ADDR:
    if (is_number(value)) block->address = value.u;
    break;
  case TSR__NAME_SIZE:
  case TSR__NAME_TOTAL_SIZE:
    if (is_number(value)) block->size_bytes = value.u;
    break;
  case TSR__NAME_REQUESTED_SIZE:
    if (is_number(value)) block->requested_bytes = value.u;
    break;
  case TSR__NAME_SEGMENT_POOL_ID:
  case TSR__NAME_POOL_ID: *pool = pool_of(h, value); break;
  case TSR__NAME_FRAMES: return tsr__resolve_stack(h->assembler, value, &block->stack, error);
  default: break;
  }
  return 0;
}

static bool is_entry(const tsr_block *block) {
  return block->address && block->size_bytes;
}

/* A dict with an address and a size; `*is_one` is false for another. */
static int read_dict(host *h, const tsr__loose *dict, bool *is_one, tsr_error *error) {
  tsr_block block = {.stack = TSR_NONE};
  uint32_t pool = TSR_NONE;
  unsigned flags = 0;
  for (uint64_t i = 0; i + 1 < dict->count; i += 2) {
    tsr__value key = h->snapshot->loose_values.items[dict->first + i];
    tsr__value value = h->snapshot->loose_values.items[dict->first + i + 1];
    if (key.tag != TSR__STRING) continue;
    flags |= flags_of(key.id, value);
    int status = read_member(h, key.id, value, &block, &pool, error);
    if (status) return status;
  }
  *is_one = is_entry(&block);
  if (!*is_one) return 0;
  block.state = (uint8_t)state_of(flags);
  tsr_segment segment = {.address = block.address,
                         .total_bytes = block.size_bytes,
                         .requested_bytes = block.requested_bytes,
                         .stack = block.stack,
                         .pool = pool};
  return add_whole(h, segment, &block) ? 0 : tsr__fail_memory(error);
}

/* ---- entries, however they are listed ---- */

/* Whether this thing is met for the first time; `*ok` is false when out of memory. */
static bool is_new(host *h, tsr__value value, bool *ok) {
  bool added = false;
  *ok = tsr__map_put(&h->seen, (uint64_t)value.tag << 32 | value.id, 0, &added);
  return *ok && added;
}

static int read_segments(host *h, tsr__value value, int level, tsr_error *error) {
  bool ok = true, is_one = true;
  int status = 0;
  switch ((tsr__tag)value.tag) {
  case TSR__SEGMENT:
    if (is_new(h, value, &ok)) ok = read_segment(h, value.id);
    return ok ? 0 : tsr__fail_memory(error);
  case TSR__BLOCK:
    if (is_new(h, value, &ok)) ok = read_block(h, value.id);
    return ok ? 0 : tsr__fail_memory(error);
  case TSR__NOTHING:
  case TSR__NULL:
  case TSR__STACK: return 0; /* an empty list is one without frames */
  case TSR__LOOSE: break;
  default: tsr__builder_warn(h->builder, TSR__WARN_SEGMENTS_MALFORMED); return 0;
  }
  if (!is_new(h, value, &ok)) return ok ? 0 : tsr__fail_memory(error);
  tsr__loose loose = h->snapshot->loose.items[value.id];
  if (loose.kind == TSR__LOOSE_DICT) {
    status = read_dict(h, &loose, &is_one, error);
    if (!status && !is_one) tsr__builder_warn(h->builder, TSR__WARN_SEGMENTS_MALFORMED);
    return status;
  }
  for (uint64_t i = 0; !status && i < loose.count && level < MOST_LEVELS; i++)
    status = read_segments(h, h->snapshot->loose_values.items[loose.first + i], level + 1, error);
  return status;
}

/* ---- events ---- */

/* Traces, and events of tuples (lists of events are traces), as they are listed. */
typedef TSR__VECTOR(tsr__value) host_sources;

static bool find_sources(host *h, host_sources *sources, tsr__value value, int level) {
  bool ok = true;
  switch ((tsr__tag)value.tag) {
  case TSR__EVENT:
  case TSR__TRACE:
    if (is_new(h, value, &ok)) ok = TSR__VECTOR_PUSH(sources, value);
    return ok;
  case TSR__NOTHING:
  case TSR__NULL:
  case TSR__STRING: /* a key */
  case TSR__STACK: return true;
  case TSR__LOOSE: break;
  default: tsr__builder_warn(h->builder, TSR__WARN_EVENTS_MALFORMED); return true;
  }
  if (!is_new(h, value, &ok)) return ok;
  tsr__loose loose = h->snapshot->loose.items[value.id];
  for (uint64_t i = 0; ok && i < loose.count && level < MOST_LEVELS; i++)
    ok = find_sources(h, sources, h->snapshot->loose_values.items[loose.first + i], level + 1);
  return ok;
}

/* An event and when it happened: no earlier than the one that its list has before it. */
typedef struct host_event {
  int64_t time_us;
  uint32_t position, row;
} host_event;

typedef TSR__VECTOR(host_event) host_events;

static int compare_events(const void *a, const void *b) {
  const host_event *x = a, *y = b;
  if (x->time_us != y->time_us) return x->time_us < y->time_us ? -1 : 1;
  return (x->position > y->position) - (x->position < y->position);
}

static bool add_event(host *h, host_events *events, uint64_t row, int64_t *latest) {
  int64_t time_us = h->snapshot->events.time_us[row];
  if (time_us != TSR_TIME_NONE && time_us > *latest) *latest = time_us;
  host_event event = {*latest, (uint32_t)events->count, (uint32_t)row};
  return events->count < TSR_NONE && TSR__VECTOR_PUSH(events, event);
}

static bool add_source(host *h, host_events *events, tsr__value source, int64_t *latest) {
  if (source.tag == TSR__EVENT) return add_event(h, events, source.id, latest);
  const tsr__trace *trace = &h->snapshot->traces.items[source.id];
  *latest = INT64_MIN;
  for (size_t i = 0; i < trace->runs.count; i++)
    for (uint64_t k = 0; k < trace->runs.items[i].count; k++)
      if (!add_event(h, events, trace->runs.items[i].first + k, latest)) return false;
  return true;
}

/* Several lists as one trace, by time. */
static uint32_t merge(host *h, const host_sources *sources) {
  host_events events = {0};
  int64_t latest = INT64_MIN;
  bool ok = true;
  for (size_t i = 0; ok && i < sources->count; i++)
    ok = add_source(h, &events, sources->items[i], &latest);
  if (ok && events.count)
    tsr__sort(events.items, events.count, sizeof *events.items, compare_events);
  uint32_t trace = ok ? tsr__builder_add_trace(h->builder) : TSR_NONE;
  ok = trace != TSR_NONE;
  for (size_t i = 0; ok && i < events.count; i++)
    ok = tsr__builder_extend_trace(h->builder, trace, events.items[i].row);
  TSR__VECTOR_FREE(&events);
  return ok ? trace : TSR_NONE;
}

/* Most often there is one list, which is a trace already. */
static bool read_events(host *h, tsr__value value) {
  host_sources sources = {0};
  bool ok = find_sources(h, &sources, value, 0);
  if (ok && sources.count) {
    bool is_one = sources.count == 1 && sources.items[0].tag == TSR__TRACE;
    uint32_t trace = is_one ? sources.items[0].id : merge(h, &sources);
    ok = trace != TSR_NONE;
    if (ok) tsr__builder_list_host_trace(h->builder, trace);
  }
  TSR__VECTOR_FREE(&sources);
  return ok;
}

int tsr__read_host(tsr__assembler *assembler, tsr__value segments, tsr__value traces,
                   tsr__order *rows, tsr_error *error) {
  host h = {.assembler = assembler,
            .snapshot = assembler->snapshot,
            .builder = assembler->builder,
            .rows = rows};
  int status = 0;
  bool has_segments = segments.tag != TSR__NOTHING;
  if (has_segments && !note_flags(&h)) status = tsr__fail_memory(error);
  if (!status) status = read_segments(&h, segments, 0, error);
  if (!status && !read_events(&h, traces)) status = tsr__fail_memory(error);
  tsr__map_release(&h.flags);
  tsr__map_release(&h.seen);
  return status;
}
