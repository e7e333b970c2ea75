/* finish.c - from the top-level value to a finished snapshot.
 *
 * The top is a dict with `segments` and `device_traces` (either may be missing), or, as
 * torch.cuda.memory_snapshot() and releases before 2.0 write it, the bare list of segments. What it
 * lists comes first in the tables; rows that only other values lead to (pinned host memory has
 * segments too) come after, for a writer. */
#include <assert.h>
#include <string.h>

#include "formats/assemble.h"

typedef struct finish {
  tsr__assembler *assembler;
  tsr__builder *builder;
  tsr__order segments;                   /* rows, in the order of the list */
  tsr__value host_segments, host_traces; /* loose values, or TSR__NOTHING */
  tsr__order annotations;
} finish;

/* Is it a segment whose device no GPU can be called? */
static bool is_on_no_device(const finish *f, tsr__value item) {
  return item.tag == TSR__SEGMENT &&
         f->assembler->snapshot->segments.items[item.id].device == TSR_NONE;
}

/* A GPU's segment has blocks. One of pinned host memory may have none. */
static void check_blocks(finish *f, uint32_t row) {
  const tsr_snapshot *snapshot = f->assembler->snapshot;
  bool has_blocks = snapshot->segments_more.items[row].shape & TSR__KEY(BLOCKS);
  if (!has_blocks && snapshot->segments.items[row].total_bytes)
    tsr__builder_warn(f->builder, TSR__WARN_BLOCK_SUMS);
}

/* The rows of one table that a list names; a list that became a stack (an empty one) is empty. */
static int collect_rows(finish *f, tsr__value value, tsr__tag wanted, tsr__warning_kind warning,
                        tsr__order *rows, tsr_error *error) {
  const tsr__value *items;
  size_t count;
  if (!tsr__items_of(f->assembler, value, &items, &count)) {
    if (value.tag != TSR__STACK) tsr__builder_warn(f->builder, warning);
    return 0;
  }
  for (size_t i = 0; i < count; i++) {
    tsr__value item = tsr__current(f->assembler, items[i]);
    if (item.tag != wanted || is_on_no_device(f, item))
      tsr__builder_warn(f->builder, warning);
    else if (!TSR__VECTOR_PUSH(rows, item.id))
      return tsr__fail_memory(error);
    if (item.tag == TSR__SEGMENT) check_blocks(f, item.id);
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
    tsr__builder_warn_times(f->builder, TSR__WARN_EVENTS_MALFORMED, count);
  else if (item.tag != TSR__STACK)
    tsr__builder_warn(f->builder, TSR__WARN_EVENTS_MALFORMED);
  return list ? list->trace : TSR_NONE;
}

static int collect_traces(finish *f, tsr__value value, tsr_error *error) {
  const tsr__value *items;
  size_t count;
  if (!tsr__items_of(f->assembler, value, &items, &count)) {
    if (value.tag != TSR__STACK) tsr__builder_warn(f->builder, TSR__WARN_EVENTS_MALFORMED);
    return 0;
  }
  if (count > f->assembler->limits.devices)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "traces of %zu devices; the limit is %u (tsr_limits.devices)", count,
                     (unsigned)f->assembler->limits.devices);
  for (size_t i = 0; i < count; i++)
    if (!tsr__builder_list_trace(f->builder, trace_of(f, items[i]))) return tsr__fail_memory(error);
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
        (pair[0].id == TSR__NAME_ALLOCATOR_SETTINGS || pair[0].id == TSR__NAME_INITIAL_BLOCKS ||
         pair[0].id == TSR__NAME_SIDECAR || pair[0].id == TSR__NAME_INCOMPLETE ||
         pair[0].id == TSR__NAME_PLAN)))
    tsr__builder_warn(f->builder, TSR__WARN_KEYS_UNKNOWN);
  if (pair[0].tag != TSR__STRING) return 0;
  if (pair[0].id == TSR__NAME_INCOMPLETE) {
    tsr__builder_set_warning(f->builder, TSR__WARN_INCOMPLETE, 1);
    return 0;
  }
  if (pair[0].id == TSR__NAME_SIDECAR && pair[1].tag == TSR__STRING &&
      pair[1].id >= TSR__NAME_COUNT) {
    tsr__builder_embedded_sidecar(f->builder, pair[1].id);
    return 0;
  }
  int status = tsr__resolve_loose(f->assembler, pair[1], &extra.value, error);
  if (status) return status;
  return tsr__builder_add_extra(f->builder, &extra) ? 0 : tsr__fail_memory(error);
}

/* A value under one of those keys; anything but a list is kept as a loose value. */
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

/* What the file has of pinned host memory is kept, for a writer, and read at the end. */
static int collect_host(finish *f, const tsr__value pair[2], tsr_error *error) {
  tsr__value *value = pair[0].id == TSR__NAME_HOST_SEGMENTS ? &f->host_segments : &f->host_traces;
  int status = tsr__resolve_loose(f->assembler, pair[1], value, error);
  if (status) return status;
  tsr__extra extra = {.table = TSR__NULL, .key = pair[0].id, .value = *value};
  return tsr__builder_add_extra(f->builder, &extra) ? 0 : tsr__fail_memory(error);
}

static bool is_host_key(tsr__value key) {
  return key.tag == TSR__STRING &&
         (key.id == TSR__NAME_HOST_SEGMENTS || key.id == TSR__NAME_HOST_TRACES);
}

/* The pairs of the top whose values are lists of rows, or all others. */
static int collect_pairs(finish *f, tsr__value top, bool lists, tsr_error *error) {
  size_t count = tsr__container_of(f->assembler, top)->items.count;
  assert(count % 2 == 0);
  for (size_t i = 0; i + 1 < count; i += 2) {
    tsr__value *items = tsr__container_of(f->assembler, top)->items.items;
    tsr__value pair[2] = {items[i], tsr__current(f->assembler, items[i + 1])};
    if (is_list_key(pair[0]) != lists) continue;
    int status = lists                  ? collect_list(f, pair, error)
                 : is_host_key(pair[0]) ? collect_host(f, pair, error)
                                        : collect_extra(f, pair, error);
    if (status) return status;
    if (pair[0].tag == TSR__STRING && pair[0].id < TSR__KEY_COUNT)
      tsr__builder_add_top_key(f->builder, (tsr__name)pair[0].id);
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
      tsr__builder_warn(f->builder, TSR__WARN_VALUES_DROPPED);
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
  assert(dict->kind == TSR__DICT && dict->items.count >= 2);
  tsr__value last_key = dict->items.items[dict->items.count - 2];
  uint32_t order = 0;
  int status =
      tsr__builder_key_order(f->builder, dict->items.items, dict->items.count, &order, error);
  tsr__builder_set_top(f->builder, order, last_key.tag == TSR__STRING ? last_key.id : TSR_NONE);
  drop_repeated(f, dict);
  dict->is_visiting = true; /* it may hold itself */
  /* The lists go first: an unknown key may name one of them too, and would use it up. */
  if (!status) status = collect_pairs(f, top, true, error);
  return status ? status : collect_pairs(f, top, false, error);
}

/* ---- is it a snapshot at all? ---- */

static const char *kind_in_words(const tsr__assembler *assembler, tsr__value top) {
  tsr__container *container = tsr__container_of(assembler, top);
  if (container) return container->kind == TSR__DICT ? "another dict" : "a list of something else";
  switch ((tsr__tag)top.tag) {
  case TSR__NULL: return "None";
  case TSR__BOOL: return "a boolean";
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

/* Whether one of a dict's values is the schema of step graphs (docs/step-graph.md). */
static bool is_step_graph(const tsr__assembler *assembler, tsr__value top) {
  static const char schema[] = "tessera-step/";
  tsr__container *container = tsr__container_of(assembler, top);
  if (!container || container->kind != TSR__DICT) return false;
  for (size_t i = 1; i < container->items.count; i += 2) {
    tsr__value value = tsr__current(assembler, container->items.items[i]);
    if (value.tag != TSR__STRING) continue;
    tsr_text text = tsr_snapshot_string(assembler->snapshot, value.id);
    if (text.size_bytes >= sizeof schema && memcmp(text.data, schema, sizeof schema - 1) == 0)
      return true;
  }
  return false;
}

static int fail_not_snapshot(const tsr__assembler *assembler, tsr__value top, tsr_error *error) {
  if (assembler->first_global != TSR_NONE) {
    tsr_text name = tsr_snapshot_string(assembler->snapshot, assembler->first_global);
    return tsr__fail(error, TSR_ERROR_FORMAT, assembler->first_global_offset,
                     "not a memory snapshot: the pickle asks to run '%.*s' (nothing was run)",
                     (int)(name.size_bytes < 80 ? name.size_bytes : 80), name.data);
  }
  if (is_step_graph(assembler, top))
    return tsr__fail(
        error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
        "not a memory snapshot, but a step graph: tessera simulate writes its snapshot "
        "with -o");
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "not a memory snapshot: it contains %s, without 'segments' or 'device_traces'",
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
  finish f = {.assembler = assembler,
              .builder = assembler->builder,
              .host_segments = tsr__value_plain(TSR__NOTHING),
              .host_traces = tsr__value_plain(TSR__NOTHING)};
  top = tsr__current(assembler, top);
  if (!is_snapshot(assembler, top)) return fail_not_snapshot(assembler, top, error);
  int status = tsr__container_of(assembler, top)->kind != TSR__DICT
                   ? collect_segments(&f, top, error)
                   : collect_top(&f, top, error);
  size_t listed = f.segments.count;
  if (!status)
    status = tsr__read_host(assembler, f.host_segments, f.host_traces, &f.segments, error);
  if (!status &&
      (!tsr__builder_list_segments(f.builder, f.segments.items, f.segments.count,
                                   f.segments.count - listed) ||
       !tsr__builder_list_annotations(f.builder, f.annotations.items, f.annotations.count)))
    status = tsr__fail_memory(error);
  if (!status) status = tsr__builder_lay_out(f.builder, error);
  TSR__VECTOR_FREE(&f.segments);
  TSR__VECTOR_FREE(&f.annotations);
  return status;
}
