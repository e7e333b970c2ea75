/* assemble.c - containers while they are open, and what becomes of them. See assemble.h.
 *
 * A container lives from its opening until it becomes something with its own id: a dict a row, a
 * list of frames a stack. Its index is then reused, unless it is pinned: a value on the stack, or a
 * memo slot besides `memo`, may still name it and must find `resolved` there. A list of events
 * keeps no values at all: its events go to the end of a trace as they come. */
#include "formats/assemble.h"

#include <assert.h>
#include <string.h>

void tsr__assembler_init(tsr__assembler *assembler, tsr__builder *builder) {
  assert(builder->snapshot && !builder->is_laid_out);
  *assembler = (tsr__assembler){.builder = builder,
                                .snapshot = builder->snapshot,
                                .limits = builder->limits,
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
  tsr__map_release(&assembler->texts);
}

/* ---- what all this holds ---- */

static uint64_t held_bytes(const tsr__assembler *assembler) {
  return tsr__builder_bytes(assembler->builder) +
         assembler->memo_capacity * sizeof *assembler->memo +
         assembler->boxed.capacity * sizeof *assembler->boxed.items +
         assembler->containers.capacity * sizeof *assembler->containers.items +
         assembler->item_bytes;
}

int tsr__check_memory(const tsr__assembler *assembler, uint64_t reader_bytes,
                      const tsr__input *source, uint64_t offset, tsr_error *error) {
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
                   "more than %u times the size of the file in memory (tsr_limits.memory_ratio)",
                   (unsigned)limits->memory_ratio);
}

/* ---- memory that is about to be written ---- */

/* Of a table that grows like this one: up to where should its memory be ready, if a window holds
 * `pace` rows? The thread prepares while the window that is being handed out is parsed, and reads
 * after that, so it must be one window ahead at the least. More costs memory that no row may need. */
static uint64_t ready_until(uint64_t count, uint64_t capacity, uint64_t pace) {
  enum { WINDOWS_AHEAD = 2 };
  uint64_t room = capacity - count;
  return pace < room / WINDOWS_AHEAD ? count + WINDOWS_AHEAD * pace : capacity;
}

/* The capacity that a table of `count` rows should have, if the rest of the input is like what was
 * read of it; 0: it has room for the next windows, or too little was read to judge by. Growing by
 * half again as rows come would leave a third of the memory unused in the end, and the smaller
 * arrays as holes, which a system without virtual memory never gives back.
 *
 * What was read first names things that later rows repeat, so rows grow denser: a plain file may
 * grow fourfold at a time and is judged again. A compressed one may hold any number of rows in its next
 * byte, and what is held is limited by what was read (tsr_limits.memory_ratio): it grows as ever,
 * but no further than it seems to need. */
static uint64_t capacity_for(uint64_t count, uint64_t capacity, uint64_t pace,
                             const tsr__input *input) {
  enum { JUDGED_BY = 1 << 15, WINDOWS_AHEAD = 2, SPARE = 32 };
  bool is_plain = !input->stream || !input->stream->below;
  uint64_t stored = input->stream ? input->stored_bytes : input->offset + input->size;
  if (count < JUDGED_BY || !stored || capacity - count > WINDOWS_AHEAD * pace) return 0;
  double whole = (double)count * ((double)input->input_bytes / (double)stored);
  uint64_t most = is_plain ? 4 * capacity : capacity + capacity / 2;
  uint64_t least = capacity + capacity / 8;
  if (whole + whole / SPARE >= (double)most) return most;
  uint64_t wanted = (uint64_t)(whole + whole / SPARE);
  return wanted > least ? wanted : least;
}

/* Let the tables grow before they are full. A memory that has run out is for the next row to say. */
static void expect(tsr__assembler *a, const tsr__input *input) {
  const tsr__event_table *events = &a->snapshot->events;
  if (!input->input_bytes) return;
  tsr__builder_expect_events(a->builder, capacity_for(events->count, events->capacity,
                                                      events->count - a->rows_then, input));
  uint64_t slots =
      capacity_for(a->memo_count, a->memo_capacity, a->memo_count - a->slots_then, input);
  uint32_t *memo =
      slots > a->memo_capacity ? tsr__realloc(a->memo, (size_t)slots, sizeof *a->memo) : NULL;
  if (!memo) return;
  a->memo = memo;
  a->memo_capacity = (size_t)slots;
}

void tsr__assembler_prepare(tsr__assembler *a, tsr__input *input) {
  const tsr__event_table *events = &a->snapshot->events;
  expect(a, input);
  tsr__region regions[TSR__REGIONS_MAX];
  size_t count = 0, slots = a->memo_count;
  uint64_t until = ready_until(events->count, events->capacity, events->count - a->rows_then);
  uint64_t from = a->rows_ready > events->count ? a->rows_ready : events->count;
  /* Pages stay ready when a large column grows: the system moves them, it does not copy them. */
  if (until > from) {
    count = tsr__events_regions(events, from, until - from, regions);
    a->rows_ready = until;
  }
  size_t slots_until = (size_t)ready_until(slots, a->memo_capacity, slots - a->slots_then);
  size_t slots_from = a->slots_ready > slots ? a->slots_ready : slots;
  if (slots_until > slots_from) {
    regions[count++] =
        (tsr__region){a->memo + slots_from, (slots_until - slots_from) * sizeof *a->memo};
    a->slots_ready = slots_until;
  }
  a->rows_then = events->count;
  a->slots_then = slots;
  tsr__input_prepare(input, regions, count);
}

/* Make room for more items of a container. */
static bool reserve_items(tsr__assembler *assembler, tsr__container *container, size_t extra) {
  size_t before = container->items.capacity;
  bool ok = TSR__VECTOR_RESERVE(&container->items, extra);
  assembler->item_bytes += (container->items.capacity - before) * sizeof(tsr__value);
  return ok;
}

static void free_items(tsr__assembler *assembler, tsr__container *container) {
  assert(assembler->item_bytes >= container->items.capacity * sizeof(tsr__value));
  assembler->item_bytes -= container->items.capacity * sizeof(tsr__value);
  TSR__VECTOR_FREE(&container->items);
}

/* ---- opening and letting go ---- */

int tsr__open_container(tsr__assembler *assembler, tsr__container_kind kind, tsr__value *out,
                        tsr_error *error) {
  uint32_t index = assembler->first_free;
  assert(assembler->live_containers <= assembler->containers.count);
  assert(index == TSR_NONE || index < assembler->containers.count);
  if (assembler->live_containers >= assembler->limits.loose_values)
    return tsr__fail(
        error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
        "more than %u lists and dicts that do not belong to a snapshot (tsr_limits.loose_values)",
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
  assert(value.tag != TSR__CONTAINER || value.id < assembler->containers.count);
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
  assert(value.id < snapshot->loose.count);
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

/* Larger buffers are released instead of being kept for the next container. */
enum { KEPT_ITEMS = 4096 };

void tsr__resolve(tsr__assembler *assembler, uint32_t index, tsr__value resolved) {
  assert(index < assembler->containers.count && assembler->live_containers);
  assert(resolved.tag != TSR__NOTHING);
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
  tsr__container *list = &assembler->containers.items[index];
  if (list->trace == TSR_NONE) list->trace = tsr__builder_add_trace(assembler->builder);
  if (list->trace == TSR_NONE || !tsr__builder_extend_trace(assembler->builder, list->trace, row))
    return tsr__fail_memory(error);
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
    tsr__builder_warn_times(assembler->builder, TSR__WARN_VALUES_UNREADABLE, count);
    return 0;
  }
  for (size_t i = 0; i < count; i++) {
    int status = settle(assembler, &values[i], error);
    if (status) return status;
    if (has_become_other(assembler, target)) {
      tsr__builder_warn(assembler->builder, TSR__WARN_VALUES_UNREADABLE);
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
    if (count) tsr__builder_warn(assembler->builder, TSR__WARN_VALUES_UNREADABLE);
    return 0;
  }
  if (count % 2) {
    tsr__builder_warn(assembler->builder, TSR__WARN_VALUES_UNREADABLE);
    count--;
  }
  for (size_t i = 1; i < count; i += 2) {
    int status = settle(assembler, &pairs[i], error);
    if (status) return status;
  }
  if (has_become_other(assembler, *target)) {
    tsr__builder_warn(assembler->builder, TSR__WARN_VALUES_UNREADABLE);
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
    uint32_t id = tsr__builder_pool(assembler->builder, values[0].u, values[1].u);
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
  *frame = tsr__builder_raw_frame(assembler->builder, &key);
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
      tsr__builder_warn(assembler->builder, TSR__WARN_FRAMES_MALFORMED);
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
    if (value.tag != TSR__NULL) tsr__builder_warn(assembler->builder, TSR__WARN_FRAMES_MALFORMED);
    return 0;
  }
  tsr__visit(assembler, value, true);
  int status = collect_frames(assembler, items, count, error);
  tsr__visit(assembler, value, false);
  if (status) return status;
  *stack = tsr__builder_stack(assembler->builder, assembler->frame_ids.items,
                              (uint32_t)assembler->frame_ids.count);
  if (*stack == TSR_NONE) return tsr__fail_memory(error);
  if (value.tag == TSR__CONTAINER)
    tsr__resolve(assembler, value.id, tsr__value_id(TSR__STACK, *stack));
  return 0;
}

/* ---- loose values ---- */

static int resolve_loose(tsr__assembler *assembler, tsr__value value, uint32_t depth,
                         tsr__value *out, tsr_error *error);

/* Keep the container's values, nested ones included. If tsr_limits.loose_values is reached, nothing
 * of it is kept. */
static int keep_container(tsr__assembler *assembler, uint32_t index, uint32_t depth,
                          tsr__value *out, tsr_error *error) {
  const tsr_snapshot *snapshot = assembler->snapshot;
  tsr__builder *builder = assembler->builder;
  size_t count = assembler->containers.items[index].items.count;
  uint64_t first = snapshot->loose_values.count;
  if (assembler->containers.items[index].trace != TSR_NONE) {
    tsr__builder_warn_times(builder, TSR__WARN_EVENTS_MALFORMED, count);
    *out = tsr__value_id(TSR__TRACE, assembler->containers.items[index].trace);
    return 0;
  }
  if (first + count > assembler->limits.loose_values ||
      snapshot->loose.count >= assembler->limits.loose_values) {
    tsr__builder_warn(builder, TSR__WARN_VALUES_DROPPED);
    *out = tsr__value_plain(TSR__OPAQUE);
    return 0;
  }
  if (!tsr__builder_reserve_loose(builder, count)) return tsr__fail_memory(error);
  assembler->containers.items[index].is_visiting = true;
  for (size_t i = 0; i < count; i++) {
    tsr__value item = assembler->containers.items[index].items.items[i];
    int status = resolve_loose(assembler, item, depth + 1, &item, error);
    if (status) return status;
    tsr__builder_set_loose(builder, first + i, item);
  }
  tsr__container *container = &assembler->containers.items[index];
  container->is_visiting = false;
  tsr__loose loose = {container->kind, (uint32_t)count, first};
  return tsr__builder_add_loose(builder, loose, out) ? 0 : tsr__fail_memory(error);
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
    tsr__builder_warn(assembler->builder, TSR__WARN_VALUES_UNREADABLE);
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
