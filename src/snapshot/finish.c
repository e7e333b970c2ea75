/* finish.c - from the top-level value to a finished snapshot.
 *
 * The top is a dict with `segments` and `device_traces` (either may be missing), or, as
 * torch.cuda.memory_snapshot() and releases before 2.0 write it, the bare list of segments. What it
 * lists comes first in the tables; rows that only other values lead to (pinned host memory has
 * segments too) come behind, for a writer. */
#include <string.h>

#include "snapshot/assemble.h"

/* Row numbers of a table. */
typedef TSR__VECTOR(uint32_t) tsr__order;

typedef struct finish {
  tsr__assembler *assembler;
  tsr_snapshot *snapshot;
  TSR__VECTOR(uint32_t) order; /* per device: index of its trace, or TSR_NONE */
  tsr__order segments;         /* rows, in the order of the list */
  tsr__order annotations;
} finish;

/* The rows of one table that a list names; a list that became a stack (an empty one) is empty. */
static int collect_rows(finish *f, tsr__value value, tsr__tag wanted, tsr__warning warning,
                        tsr__order *rows, tsr_error *error) {
  const tsr__value *items;
  size_t count;
  if (!tsr__items_of(f->assembler, value, &items, &count)) {
    if (value.tag != TSR__STACK) tsr__tally(f->snapshot, warning);
    return 0;
  }
  for (size_t i = 0; i < count; i++) {
    tsr__value item = tsr__current(f->assembler, items[i]);
    if (item.tag != wanted)
      tsr__tally(f->snapshot, warning);
    else if (!TSR__VECTOR_PUSH(rows, item.id))
      return tsr__fail_memory(error);
  }
  return 0;
}

static int collect_segments(finish *f, tsr__value value, tsr_error *error) {
  return collect_rows(f, value, TSR__SEGMENT, TSR__WARN_SEGMENTS_MALFORMED, &f->segments, error);
}

static int collect_annotations(finish *f, tsr__value value, tsr_error *error) {
  return collect_rows(f, value, TSR__ANNOTATION, TSR__WARN_ANNOTATIONS_MALFORMED, &f->annotations,
                      error);
}

/* The trace that an item of the list of traces is: its index, or TSR_NONE for an empty one. What
 * else it holds is no event. */
static uint32_t trace_of(finish *f, tsr__value item) {
  const tsr__value *others;
  size_t count;
  item = tsr__current(f->assembler, item);
  const tsr__container *list = tsr__container_of(f->assembler, item);
  if (item.tag == TSR__TRACE) return item.id;
  if (tsr__items_of(f->assembler, item, &others, &count))
    f->snapshot->tally[TSR__WARN_EVENTS_MALFORMED] += count;
  else if (item.tag != TSR__STACK)
    tsr__tally(f->snapshot, TSR__WARN_EVENTS_MALFORMED);
  return list ? list->trace : TSR_NONE;
}

static int collect_traces(finish *f, tsr__value value, tsr_error *error) {
  const tsr__value *items;
  size_t count;
  if (!tsr__items_of(f->assembler, value, &items, &count)) {
    if (value.tag != TSR__STACK) tsr__tally(f->snapshot, TSR__WARN_EVENTS_MALFORMED);
    return 0;
  }
  if (count > f->assembler->limits.devices)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "traces of %zu devices; the limit is %u (tsr_limits.devices)", count,
                     (unsigned)f->assembler->limits.devices);
  for (size_t i = 0; i < count; i++)
    if (!TSR__VECTOR_PUSH(&f->order, trace_of(f, items[i]))) return tsr__fail_memory(error);
  return 0;
}

/* Is it a key of the top whose value is a list of rows? */
static bool is_list_key(tsr__value key) {
  return key.tag == TSR__STRING &&
         (key.id == TSR__NAME_SEGMENTS || key.id == TSR__NAME_DEVICE_TRACES ||
          key.id == TSR__NAME_EXTERNAL_ANNOTATIONS);
}

static int collect_extra(finish *f, const tsr__value pair[2], tsr_error *error) {
  tsr__extra extra = {.table = TSR__NULL, .key = pair[0].id};
  if (!is_list_key(pair[0]) &&
      !(pair[0].tag == TSR__STRING &&
        (pair[0].id == TSR__NAME_ALLOCATOR_SETTINGS || pair[0].id == TSR__NAME_INITIAL_BLOCKS)))
    tsr__tally(f->snapshot, TSR__WARN_KEYS_UNKNOWN);
  if (pair[0].tag != TSR__STRING) return 0;
  int status = tsr__resolve_loose(f->assembler, pair[1], &extra.value, error);
  if (status) return status;
  return TSR__VECTOR_PUSH(&f->snapshot->extras, extra) ? 0 : tsr__fail_memory(error);
}

/* A value under one of those keys; what is no list is kept as it is. */
static int collect_list(finish *f, const tsr__value pair[2], tsr_error *error) {
  const tsr__value *items;
  size_t count;
  bool is_list = pair[1].tag == TSR__STACK || tsr__items_of(f->assembler, pair[1], &items, &count);
  int status;
  if (pair[0].id == TSR__NAME_SEGMENTS)
    status = collect_segments(f, pair[1], error);
  else if (pair[0].id == TSR__NAME_DEVICE_TRACES)
    status = collect_traces(f, pair[1], error);
  else
    status = collect_annotations(f, pair[1], error);
  return status || is_list ? status : collect_extra(f, pair, error);
}

/* The pairs of the top whose values are lists of rows, or all others. */
static int collect_pairs(finish *f, tsr__value top, bool lists, tsr_error *error) {
  size_t count = tsr__container_of(f->assembler, top)->items.count;
  for (size_t i = 0; i + 1 < count; i += 2) {
    tsr__value *items = tsr__container_of(f->assembler, top)->items.items;
    tsr__value pair[2] = {items[i], tsr__current(f->assembler, items[i + 1])};
    if (is_list_key(pair[0]) != lists) continue;
    int status = lists ? collect_list(f, pair, error) : collect_extra(f, pair, error);
    if (status) return status;
    if (pair[0].tag == TSR__STRING && pair[0].id < TSR__KEY_COUNT)
      f->snapshot->top_keys |= UINT64_C(1) << pair[0].id;
  }
  return 0;
}

/* Of a known key that the top has more than once the last value counts, as in Python. */
static void drop_repeated(finish *f, tsr__container *dict) {
  uint64_t seen = 0;
  size_t first = dict->items.count;
  for (size_t i = dict->items.count; i; i -= 2) {
    tsr__value *pair = &dict->items.items[i - 2];
    bool is_known = pair[0].tag == TSR__STRING && pair[0].id < TSR__KEY_COUNT;
    if (is_known && (seen >> pair[0].id & 1)) {
      tsr__tally(f->snapshot, TSR__WARN_VALUES_DROPPED);
      continue;
    }
    if (is_known) seen |= UINT64_C(1) << pair[0].id;
    first -= 2;
    dict->items.items[first + 1] = pair[1];
    dict->items.items[first] = pair[0];
  }
  dict->items.count -= first;
  memmove(dict->items.items, dict->items.items + first, dict->items.count * sizeof(tsr__value));
}

static int collect_top(finish *f, tsr__value top, tsr_error *error) {
  tsr__container *dict = tsr__container_of(f->assembler, top);
  tsr__value last_key = dict->items.items[dict->items.count - 2];
  f->snapshot->cut_key = last_key.tag == TSR__STRING ? last_key.id : TSR_NONE;
  int status = tsr__key_order(f->snapshot, dict->items.items, dict->items.count,
                              &f->snapshot->top_order, error);
  drop_repeated(f, dict);
  dict->is_visiting = true; /* it may hold itself */
  /* The lists go first: an unknown key may name one of them too, and would use it up. */
  if (!status) status = collect_pairs(f, top, true, error);
  return status ? status : collect_pairs(f, top, false, error);
}

/* ---- first what the top lists, then the rest ---- */

/* The rows of a table in their new order, and what becomes of the values that name them. */
static int order_rows(finish *f, tsr__tag tag, const uint32_t *listed, size_t listed_count,
                      size_t table_count, tsr__order *order, tsr_error *error) {
  tsr_snapshot *s = f->snapshot;
  uint32_t *moved = TSR__NEW_ARRAY(uint32_t, table_count);
  if (!moved || !TSR__VECTOR_RESERVE(order, listed_count + table_count)) {
    tsr__free(moved);
    return tsr__fail_memory(error);
  }
  for (size_t i = 0; i < table_count; i++) moved[i] = TSR_NONE;
  for (size_t i = 0; i < listed_count; i++) {
    moved[listed[i]] = (uint32_t)i;
    order->items[order->count++] = listed[i];
  }
  for (size_t i = 0; i < table_count; i++) {
    if (moved[i] != TSR_NONE) continue;
    moved[i] = (uint32_t)order->count;
    order->items[order->count++] = (uint32_t)i;
  }
  for (size_t i = 0; i < s->loose_values.count; i++)
    if (s->loose_values.items[i].tag == (uint32_t)tag)
      s->loose_values.items[i].id = moved[s->loose_values.items[i].id];
  for (size_t i = 0; i < s->extras.count; i++)
    if (s->extras.items[i].value.tag == (uint32_t)tag)
      s->extras.items[i].value.id = moved[s->extras.items[i].value.id];
  tsr__free(moved);
  return 0;
}

/* Put a vector's items into that order. */
#define REORDER(vector, order)                                                          \
  do {                                                                                  \
    size_t old_ = (vector)->count, count_ = (order)->count;                             \
    if (!TSR__VECTOR_RESERVE((vector), count_)) goto out;                               \
    for (size_t i_ = 0; i_ < count_; i_++)                                              \
      (vector)->items[old_ + i_] = (vector)->items[(order)->items[i_]];                 \
    memmove((vector)->items, (vector)->items + old_, count_ * sizeof *(vector)->items); \
    (vector)->count = count_;                                                           \
  } while (0)

static bool is_identity(const uint32_t *rows, size_t count, size_t table_count) {
  if (count != table_count) return false;
  for (size_t i = 0; i < count; i++)
    if (rows[i] != i) return false;
  return true;
}

static int gather_segments(finish *f, tsr_error *error) {
  tsr_snapshot *s = f->snapshot;
  tsr__order order = {0};
  s->segment_count = f->segments.count;
  if (is_identity(f->segments.items, f->segments.count, s->segments.count)) return 0;
  int status = order_rows(f, TSR__SEGMENT, f->segments.items, f->segments.count, s->segments.count,
                          &order, error);
  if (status) goto out;
  status = TSR_ERROR_MEMORY;
  REORDER(&s->segments, &order);
  REORDER(&s->segments_more, &order);
  status = 0;
out:
  TSR__VECTOR_FREE(&order);
  return status == TSR_ERROR_MEMORY ? tsr__fail_memory(error) : status;
}

static int gather_annotations(finish *f, tsr_error *error) {
  tsr_snapshot *s = f->snapshot;
  tsr__order order = {0};
  s->annotation_count = f->annotations.count;
  if (is_identity(f->annotations.items, f->annotations.count, s->annotations.count)) return 0;
  int status = order_rows(f, TSR__ANNOTATION, f->annotations.items, f->annotations.count,
                          s->annotations.count, &order, error);
  if (status) goto out;
  status = TSR_ERROR_MEMORY;
  REORDER(&s->annotations, &order);
  REORDER(&s->annotations_more, &order);
  status = 0;
out:
  TSR__VECTOR_FREE(&order);
  return status == TSR_ERROR_MEMORY ? tsr__fail_memory(error) : status;
}

/* ---- is it a snapshot at all? ---- */

static const char *kind_in_words(const tsr__assembler *assembler, tsr__value top) {
  tsr__container *container = tsr__container_of(assembler, top);
  if (container) return container->kind == TSR__DICT ? "another dict" : "a list of other things";
  switch ((tsr__tag)top.tag) {
  case TSR__NULL: return "None";
  case TSR__BOOL: return "a truth value";
  case TSR__INT:
  case TSR__UINT:
  case TSR__BIG:
  case TSR__FLOAT: return "a number";
  case TSR__STRING:
  case TSR__BYTES: return "a text";
  case TSR__EVENT: return "a single event";
  case TSR__SEGMENT: return "a single segment";
  default: return "something else";
  }
}

static int fail_not_snapshot(const tsr__assembler *assembler, tsr__value top, tsr_error *error) {
  if (assembler->first_global != TSR_NONE) {
    tsr_text name = tsr_snapshot_string(assembler->snapshot, assembler->first_global);
    return tsr__fail(error, TSR_ERROR_FORMAT, assembler->first_global_offset,
                     "not a memory snapshot: the pickle asks to run '%.*s' (nothing was run)",
                     (int)(name.size_bytes < 80 ? name.size_bytes : 80), name.data);
  }
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "not a memory snapshot: it holds %s, without 'segments' or 'device_traces'",
                   kind_in_words(assembler, top));
}

static bool is_snapshot(const tsr__assembler *assembler, tsr__value top) {
  tsr__container *container = tsr__container_of(assembler, top);
  if (!container) return false;
  if (container->kind != TSR__DICT) {
    for (size_t i = 0; i < container->items.count; i++)
      if (tsr__current(assembler, container->items.items[i]).tag != TSR__SEGMENT) return false;
    bool is_list = container->kind == TSR__LIST || container->items.count;
    return is_list && container->trace == TSR_NONE;
  }
  for (size_t i = 0; i + 1 < container->items.count; i += 2) {
    tsr__value key = container->items.items[i];
    if (key.tag == TSR__STRING &&
        (key.id == TSR__NAME_SEGMENTS || key.id == TSR__NAME_DEVICE_TRACES))
      return true;
  }
  return false;
}

int tsr__assemble_finish(tsr__assembler *assembler, tsr__value top, tsr_error *error) {
  finish f = {.assembler = assembler, .snapshot = assembler->snapshot};
  top = tsr__current(assembler, top);
  if (!is_snapshot(assembler, top)) return fail_not_snapshot(assembler, top, error);
  int status = tsr__container_of(assembler, top)->kind != TSR__DICT
                   ? collect_segments(&f, top, error)
                   : collect_top(&f, top, error);
  if (!status) status = gather_segments(&f, error);
  if (!status) status = gather_annotations(&f, error);
  if (!status)
    status = tsr__snapshot_finish(f.snapshot, f.order.items, (uint32_t)f.order.count,
                                  &assembler->limits, error);
  TSR__VECTOR_FREE(&f.order);
  TSR__VECTOR_FREE(&f.segments);
  TSR__VECTOR_FREE(&f.annotations);
  return status;
}
