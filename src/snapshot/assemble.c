/* assemble.c - containers while they are open, and what becomes of them. See assemble.h.
 *
 * A container lives from its opening until it becomes something with an id of its own: a dict a
 * row, a list of frames a stack. Its index is then reused, unless it is pinned: a value on the
 * stack, or a memo slot besides `memo`, may still name it and must find `resolved` there. A list of
 * events keeps no values at all: its events go to the end of a trace as they come. */
#include "snapshot/assemble.h"

#include <assert.h>
#include <string.h>

tsr_limits tsr__limits_or_default(const tsr_limits *limits) {
  tsr_limits l = limits ? *limits : (tsr_limits){0};
  if (!l.nesting) l.nesting = TSR_LIMIT_NESTING;
  if (!l.stack_values) l.stack_values = TSR_LIMIT_STACK_VALUES;
  if (!l.memo_entries) l.memo_entries = TSR_LIMIT_MEMO_ENTRIES;
  if (!l.string_bytes) l.string_bytes = TSR_LIMIT_STRING_BYTES;
  if (!l.all_strings_bytes) l.all_strings_bytes = TSR_LIMIT_ALL_STRINGS_BYTES;
  if (!l.stack_depth) l.stack_depth = TSR_LIMIT_STACK_DEPTH;
  if (!l.loose_values) l.loose_values = TSR_LIMIT_LOOSE_VALUES;
  if (!l.devices) l.devices = TSR_LIMIT_DEVICES;
  if (!l.memory_bytes) l.memory_bytes = TSR_LIMIT_MEMORY_BYTES;
  if (!l.memory_base_bytes) l.memory_base_bytes = TSR_LIMIT_MEMORY_BASE_BYTES;
  if (!l.memory_ratio) l.memory_ratio = TSR_LIMIT_MEMORY_RATIO;
  if (!l.expansion_base_bytes) l.expansion_base_bytes = TSR_LIMIT_EXPANSION_BASE_BYTES;
  if (!l.expansion_ratio) l.expansion_ratio = TSR_LIMIT_EXPANSION_RATIO;
  return l;
}

void tsr__assembler_init(tsr__assembler *assembler, tsr_snapshot *snapshot,
                         const tsr_limits *limits) {
  *assembler = (tsr__assembler){.snapshot = snapshot,
                                .limits = *limits,
                                .first_free = TSR_NONE,
                                .first_global = TSR_NONE,
                                .first_global_offset = TSR_OFFSET_NONE};
}

void tsr__assembler_release(tsr__assembler *assembler) {
  for (size_t i = 0; i < assembler->containers.count; i++)
    TSR__VECTOR_FREE(&assembler->containers.items[i].items);
  TSR__VECTOR_FREE(&assembler->containers);
  tsr__free(assembler->memo);
  TSR__VECTOR_FREE(&assembler->boxed);
  TSR__VECTOR_FREE(&assembler->frame_ids);
}

/* ---- what all this holds ---- */

/* Bytes of an event's row, and of a trace with its first runs. */
enum { EVENT_BYTES = 53, TRACE_BYTES = 280 };

static uint64_t intern_bytes(const tsr__intern *table) {
  uint64_t slots = table->slots ? (uint64_t)table->mask + 1 : 0;
  return table->arena.total_bytes + table->capacity * sizeof *table->items +
         slots * sizeof *table->slots;
}

static uint64_t held_bytes(const tsr__assembler *assembler) {
#define VECTOR_BYTES(vector) ((uint64_t)(vector).capacity * sizeof *(vector).items)
  const tsr_snapshot *s = assembler->snapshot;
  return intern_bytes(&s->strings) + intern_bytes(&s->frames) + intern_bytes(&s->stacks) +
         intern_bytes(&s->frame_extras) + intern_bytes(&s->orders) + intern_bytes(&s->pools) +
         intern_bytes(&s->streams) + s->events.capacity * EVENT_BYTES +
         s->traces.capacity * TRACE_BYTES + VECTOR_BYTES(s->segments) +
         VECTOR_BYTES(s->segments_more) + VECTOR_BYTES(s->blocks) + VECTOR_BYTES(s->blocks_more) +
         VECTOR_BYTES(s->annotations) + VECTOR_BYTES(s->annotations_more) +
         VECTOR_BYTES(s->history) + VECTOR_BYTES(s->extras) + VECTOR_BYTES(s->loose) +
         VECTOR_BYTES(s->loose_values) + assembler->memo_capacity * sizeof *assembler->memo +
         VECTOR_BYTES(assembler->boxed) + VECTOR_BYTES(assembler->containers) +
         assembler->item_bytes;
#undef VECTOR_BYTES
}

int tsr__check_memory(const tsr__assembler *assembler, uint64_t reader_bytes,
                      const tsr__source *source, uint64_t offset, tsr_error *error) {
  const tsr_limits *limits = &assembler->limits;
  uint64_t held = reader_bytes + held_bytes(assembler);
  uint64_t stored = source->stream ? source->stored_bytes : source->offset + source->size;
  if (held > limits->memory_bytes)
    return tsr__fail(error, TSR_ERROR_LIMIT, offset,
                     "more memory needed than tsr_limits.memory_bytes");
  if (held <= limits->memory_base_bytes ||
      (held - limits->memory_base_bytes) / limits->memory_ratio < stored)
    return 0;
  return tsr__fail(error, TSR_ERROR_LIMIT, offset,
                   "more than %u times the memory that the file takes (tsr_limits.memory_ratio)",
                   (unsigned)limits->memory_ratio);
}

/* Make room for more items of a container. */
static bool reserve_items(tsr__assembler *assembler, tsr__container *container, size_t extra) {
  size_t before = container->items.capacity;
  bool ok = TSR__VECTOR_RESERVE(&container->items, extra);
  assembler->item_bytes += (container->items.capacity - before) * sizeof(tsr__value);
  return ok;
}

static void free_items(tsr__assembler *assembler, tsr__container *container) {
  assembler->item_bytes -= container->items.capacity * sizeof(tsr__value);
  TSR__VECTOR_FREE(&container->items);
}

/* ---- opening and letting go ---- */

int tsr__open_container(tsr__assembler *assembler, tsr__container_kind kind, tsr__value *out,
                        tsr_error *error) {
  uint32_t index = assembler->first_free;
  if (assembler->live_containers >= assembler->limits.loose_values)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "more than %u lists and dicts that are no part of a snapshot "
                     "(tsr_limits.loose_values)",
                     (unsigned)assembler->limits.loose_values);
  if (index == TSR_NONE) {
    if (!TSR__VECTOR_PUSH(&assembler->containers, (tsr__container){0}))
      return tsr__fail_memory(error);
    index = (uint32_t)assembler->containers.count - 1;
  } else {
    assembler->first_free = assembler->containers.items[index].next_free;
  }
  assembler->live_containers++;
  tsr__container *container = &assembler->containers.items[index];
  container->items.count = 0;
  container->resolved = tsr__value_plain(TSR__NOTHING);
  container->trace = container->memo = TSR_NONE;
  container->kind = (uint8_t)kind;
  container->is_pinned = container->is_visiting = false;
  *out = tsr__value_id(TSR__CONTAINER, index);
  return 0;
}

tsr__container *tsr__container_of(const tsr__assembler *assembler, tsr__value value) {
  return value.tag == TSR__CONTAINER ? &assembler->containers.items[value.id] : NULL;
}

tsr__value tsr__current(const tsr__assembler *assembler, tsr__value value) {
  while (value.tag == TSR__CONTAINER) {
    const tsr__container *container = &assembler->containers.items[value.id];
    if (container->resolved.tag == TSR__NOTHING) break;
    value = container->resolved;
  }
  return value;
}

bool tsr__items_of(const tsr__assembler *assembler, tsr__value value, const tsr__value **items,
                   size_t *count) {
  value = tsr__current(assembler, value);
  const tsr__container *list = tsr__container_of(assembler, value);
  const tsr_snapshot *snapshot = assembler->snapshot;
  if (list) {
    *items = list->items.items;
    *count = list->items.count;
    return list->kind != TSR__DICT && !list->is_visiting;
  }
  if (value.tag != TSR__LOOSE) return false;
  const tsr__loose *loose = &snapshot->loose.items[value.id];
  *items = snapshot->loose_values.items + loose->first;
  *count = loose->count;
  return loose->kind != TSR__LOOSE_DICT;
}

void tsr__visit(tsr__assembler *assembler, tsr__value value, bool is_visiting) {
  tsr__container *container = tsr__container_of(assembler, value);
  if (container) container->is_visiting = is_visiting;
}

void tsr__pin(tsr__assembler *assembler, tsr__value value) {
  tsr__container *container = tsr__container_of(assembler, value);
  if (container) container->is_pinned = true;
}

/* Items larger than this are given back rather than kept for the next container. */
enum { KEPT_ITEMS = 4096 };

void tsr__resolve(tsr__assembler *assembler, uint32_t index, tsr__value resolved) {
  tsr__container *container = &assembler->containers.items[index];
  assert(container->resolved.tag == TSR__NOTHING || container->is_pinned);
  container->resolved = resolved;
  container->items.count = 0;
  if (container->items.capacity > KEPT_ITEMS || container->is_pinned)
    free_items(assembler, container);
  /* The slot is known to have room, so this cannot fail unless the value must be boxed; then the
   * container stays as the place to look it up. */
  if (container->memo != TSR_NONE && tsr__memo_put(assembler, container->memo, resolved, NULL))
    container->is_pinned = true;
  if (container->is_pinned) return;
  container->next_free = assembler->first_free;
  assembler->first_free = index;
  assembler->live_containers--;
}

/* ---- filling ---- */

static int append_event(tsr__assembler *assembler, uint32_t index, uint32_t row, tsr_error *error) {
  tsr_snapshot *snapshot = assembler->snapshot;
  tsr__container *list = &assembler->containers.items[index];
  if (list->trace == TSR_NONE) {
    if (!TSR__VECTOR_PUSH(&snapshot->traces, (tsr__trace){0})) return tsr__fail_memory(error);
    list->trace = (uint32_t)snapshot->traces.count - 1;
  }
  if (!tsr__trace_append(&snapshot->traces.items[list->trace], row)) return tsr__fail_memory(error);
  return 0;
}

/* A dict that was filled key by key becomes a row when its parent takes it in. */
static int settle(tsr__assembler *assembler, tsr__value *value, tsr_error *error) {
  *value = tsr__current(assembler, *value);
  tsr__container *dict = tsr__container_of(assembler, *value);
  if (!dict || dict->kind != TSR__DICT || !dict->items.count) return 0;
  tsr__value row = tsr__value_plain(TSR__NOTHING);
  dict->is_visiting = true; /* it may hold itself, and its items must stay while they are read */
  int status = tsr__make_row(assembler, dict->items.items, dict->items.count, &row, error);
  assembler->containers.items[value->id].is_visiting = false;
  if (status || row.tag == TSR__NOTHING) return status;
  tsr__resolve(assembler, value->id, row);
  *value = row;
  return 0;
}

/* A container whose new value, on settling, used it up: one that holds itself. */
static bool has_become_other(const tsr__assembler *assembler, tsr__value container) {
  return assembler->containers.items[container.id].resolved.tag != TSR__NOTHING;
}

int tsr__append(tsr__assembler *assembler, tsr__value target, tsr__value *values, size_t count,
                tsr_error *error) {
  target = tsr__current(assembler, target);
  tsr__container *list = tsr__container_of(assembler, target);
  if (!list || list->kind == TSR__DICT) {
    assembler->snapshot->tally[TSR__WARN_VALUES_UNREADABLE] += count;
    return 0;
  }
  for (size_t i = 0; i < count; i++) {
    int status = settle(assembler, &values[i], error);
    if (status) return status;
    if (has_become_other(assembler, target)) {
      tsr__tally(assembler->snapshot, TSR__WARN_VALUES_UNREADABLE);
      continue;
    }
    if (values[i].tag == TSR__EVENT) {
      status = append_event(assembler, target.id, values[i].id, error);
      if (status) return status;
    } else {
      list = &assembler->containers.items[target.id];
      if (!reserve_items(assembler, list, 1)) return tsr__fail_memory(error);
      list->items.items[list->items.count++] = values[i];
    }
  }
  return 0;
}

int tsr__set(tsr__assembler *assembler, tsr__value *target, tsr__value *pairs, size_t count,
             tsr_error *error) {
  *target = tsr__current(assembler, *target);
  tsr__container *dict = tsr__container_of(assembler, *target);
  if (!dict || dict->kind != TSR__DICT) {
    if (count) tsr__tally(assembler->snapshot, TSR__WARN_VALUES_UNREADABLE);
    return 0;
  }
  if (count % 2) {
    tsr__tally(assembler->snapshot, TSR__WARN_VALUES_UNREADABLE);
    count--;
  }
  for (size_t i = 1; i < count; i += 2) {
    int status = settle(assembler, &pairs[i], error);
    if (status) return status;
  }
  if (has_become_other(assembler, *target)) {
    tsr__tally(assembler->snapshot, TSR__WARN_VALUES_UNREADABLE);
    *target = tsr__current(assembler, *target);
    return 0;
  }
  dict = &assembler->containers.items[target->id];
  if (!dict->items.count && count > 2) {
    tsr__value row = tsr__value_plain(TSR__NOTHING);
    int status = tsr__make_row(assembler, pairs, count, &row, error);
    if (status) return status;
    if (row.tag != TSR__NOTHING) {
      tsr__resolve(assembler, target->id, row);
      *target = row;
      return 0;
    }
    dict = &assembler->containers.items[target->id];
  }
  if (!reserve_items(assembler, dict, count)) return tsr__fail_memory(error);
  if (count) memcpy(dict->items.items + dict->items.count, pairs, count * sizeof *pairs);
  dict->items.count += count;
  return 0;
}

static bool is_unsigned(tsr__value value) {
  return value.tag == TSR__UINT || (value.tag == TSR__INT && value.i >= 0);
}

int tsr__make_tuple(tsr__assembler *assembler, const tsr__value *values, size_t count,
                    tsr__value *out, tsr_error *error) {
  if (count == 2 && is_unsigned(values[0]) && is_unsigned(values[1])) {
    uint32_t id = tsr__snapshot_pool_id(assembler->snapshot, values[0].u, values[1].u);
    if (id == TSR_NONE) return tsr__fail_memory(error);
    *out = tsr__value_id(TSR__PAIR, id);
    return 0;
  }
  tsr__value tuple;
  int status = tsr__open_container(assembler, TSR__TUPLE, &tuple, error);
  if (status) return status;
  tsr__container *container = tsr__container_of(assembler, tuple);
  if (!reserve_items(assembler, container, count)) return tsr__fail_memory(error);
  if (count) memcpy(container->items.items, values, count * sizeof *values);
  container->items.count = count;
  *out = tuple;
  return 0;
}

/* ---- what lists become ---- */

/* A frame that is only a text, as some third parties write. */
static int frame_of_text(tsr__assembler *assembler, uint32_t string, uint32_t *frame,
                         tsr_error *error) {
  tsr__frame_key key = {{string, TSR_NONE, TSR_LINE_UNKNOWN}, 0, 0};
  *frame = tsr__snapshot_frame_id(assembler->snapshot, &key);
  return *frame == TSR_NONE ? tsr__fail_memory(error) : 0;
}

/* Collect the ids of the frames among a list's items in `frame_ids`. */
static int collect_frames(tsr__assembler *assembler, const tsr__value *items, size_t count,
                          tsr_error *error) {
  assembler->frame_ids.count = 0;
  if (count > assembler->limits.stack_depth)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "a stack of %zu frames; the limit is %u (tsr_limits.stack_depth)", count,
                     (unsigned)assembler->limits.stack_depth);
  if (!TSR__VECTOR_RESERVE(&assembler->frame_ids, count)) return tsr__fail_memory(error);
  for (size_t i = 0; i < count; i++) {
    tsr__value item = tsr__current(assembler, items[i]);
    uint32_t frame = item.id;
    int status = 0;
    if (item.tag == TSR__STRING) {
      status = frame_of_text(assembler, item.id, &frame, error);
    } else if (item.tag != TSR__FRAME) {
      tsr__tally(assembler->snapshot, TSR__WARN_FRAMES_MALFORMED);
      frame = TSR_NONE;
      status = tsr__let_go(assembler, item, error);
    }
    if (status) return status;
    if (frame != TSR_NONE) assembler->frame_ids.items[assembler->frame_ids.count++] = frame;
  }
  return 0;
}

int tsr__resolve_stack(tsr__assembler *assembler, tsr__value value, uint32_t *stack,
                       tsr_error *error) {
  const tsr__value *items;
  size_t count;
  value = tsr__current(assembler, value);
  *stack = TSR_NONE;
  if (value.tag == TSR__STACK) {
    *stack = value.id;
    return 0;
  }
  if (!tsr__items_of(assembler, value, &items, &count)) {
    if (value.tag != TSR__NULL) tsr__tally(assembler->snapshot, TSR__WARN_FRAMES_MALFORMED);
    return 0;
  }
  tsr__visit(assembler, value, true);
  int status = collect_frames(assembler, items, count, error);
  tsr__visit(assembler, value, false);
  if (status) return status;
  *stack = tsr__snapshot_stack_id(assembler->snapshot, assembler->frame_ids.items,
                                  (uint32_t)assembler->frame_ids.count);
  if (*stack == TSR_NONE) return tsr__fail_memory(error);
  if (value.tag == TSR__CONTAINER)
    tsr__resolve(assembler, value.id, tsr__value_id(TSR__STACK, *stack));
  return 0;
}

/* ---- loose values ---- */

static int resolve_loose(tsr__assembler *assembler, tsr__value value, uint32_t depth,
                         tsr__value *out, tsr_error *error);

/* Keep what the container holds, and all that is in there. Where there is no more room nothing of
 * it is kept. */
static int keep_container(tsr__assembler *assembler, uint32_t index, uint32_t depth,
                          tsr__value *out, tsr_error *error) {
  tsr_snapshot *snapshot = assembler->snapshot;
  size_t count = assembler->containers.items[index].items.count;
  uint64_t first = snapshot->loose_values.count;
  if (assembler->containers.items[index].trace != TSR_NONE) {
    snapshot->tally[TSR__WARN_EVENTS_MALFORMED] += count;
    *out = tsr__value_id(TSR__TRACE, assembler->containers.items[index].trace);
    return 0;
  }
  if (first + count > assembler->limits.loose_values ||
      snapshot->loose.count >= assembler->limits.loose_values) {
    tsr__tally(snapshot, TSR__WARN_VALUES_DROPPED);
    *out = tsr__value_plain(TSR__OPAQUE);
    return 0;
  }
  /* One more than needed, so that there are items to point to also where all are empty. */
  if (!TSR__VECTOR_RESERVE(&snapshot->loose_values, count + 1)) return tsr__fail_memory(error);
  snapshot->loose_values.count += count;
  assembler->containers.items[index].is_visiting = true;
  for (size_t i = 0; i < count; i++) {
    tsr__value item = assembler->containers.items[index].items.items[i];
    int status = resolve_loose(assembler, item, depth + 1, &item, error);
    if (status) return status;
    snapshot->loose_values.items[first + i] = item;
  }
  tsr__container *container = &assembler->containers.items[index];
  container->is_visiting = false;
  tsr__loose loose = {container->kind, (uint32_t)count, first};
  if (!TSR__VECTOR_PUSH(&snapshot->loose, loose)) return tsr__fail_memory(error);
  *out = tsr__value_id(TSR__LOOSE, (uint32_t)snapshot->loose.count - 1);
  return 0;
}

static int resolve_loose(tsr__assembler *assembler, tsr__value value, uint32_t depth,
                         tsr__value *out, tsr_error *error) {
  value = tsr__current(assembler, value);
  tsr__container *container = tsr__container_of(assembler, value);
  if (!container) {
    *out = value;
    return 0;
  }
  if (container->is_visiting || depth > assembler->limits.nesting || depth > 1000) {
    tsr__tally(assembler->snapshot, TSR__WARN_VALUES_UNREADABLE);
    *out = tsr__value_plain(TSR__OPAQUE);
    return 0;
  }
  int status = keep_container(assembler, value.id, depth, out, error);
  if (!status) tsr__resolve(assembler, value.id, *out);
  return status;
}

int tsr__resolve_loose(tsr__assembler *assembler, tsr__value value, tsr__value *out,
                       tsr_error *error) {
  return resolve_loose(assembler, value, 0, out, error);
}

int tsr__let_go(tsr__assembler *assembler, tsr__value value, tsr_error *error) {
  value = tsr__current(assembler, value);
  tsr__container *container = tsr__container_of(assembler, value);
  if (!container || container->is_visiting) return 0;
  if (container->memo != TSR_NONE || container->is_pinned)
    return tsr__resolve_loose(assembler, value, &value, error);
  tsr__resolve(assembler, value.id, tsr__value_plain(TSR__OPAQUE));
  return 0;
}
