/* rows.c - from a dict's keys and values to a row of a table.
 *
 * The keys of a dict decide what it is, not its place in the file: PyTorch's two writers, the old
 * layouts and third parties disagree about order and place, but not about these names.
 *
 *   action                    an event of a trace
 *   filename, or name + line  a frame
 *   total_size or blocks      a segment
 *   state + size              a block
 *   real_size                 an entry of a block's history (PyTorch 1.13 and 2.0)
 *   stage                     one end of an annotation
 *
 * A value of the wrong type is tallied and counts as absent; no content of a file is an error here.
 * What a column cannot hold exactly is kept next to it, for a writer (tables.h).
 */
#include "formats/assemble.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "columns/key_order.h"
#include "formats/value_text.h"

#define KEY TSR__KEY

/* ---- numbers ---- */

static void tally(const tsr__assembler *assembler, tsr__warning_kind warning) {
  tsr__builder_warn(assembler->builder, warning);
}

/* An integer spelled as text: decimal or, as JSON files have addresses, hexadecimal. */
static bool integer_of_text(tsr_text text, tsr__value *out) {
  char digits[32];
  if (!text.size_bytes || text.size_bytes >= sizeof digits) return false;
  memcpy(digits, text.data, text.size_bytes);
  digits[text.size_bytes] = 0;
  bool negative = digits[0] == '-';
  bool hexadecimal = digits[0] == '0' && (digits[1] | 32) == 'x';
  const char *first = digits + (negative ? 1 : 0) + (hexadecimal ? 2 : 0);
  char *end = NULL;
  if (!(hexadecimal ? isxdigit((unsigned char)*first) : *first >= '0' && *first <= '9'))
    return false;
  errno = 0;
  unsigned long long magnitude = strtoull(first, &end, hexadecimal ? 16 : 10);
  if (end == first || *end || errno || (negative && magnitude > (uint64_t)INT64_MAX + 1))
    return false;
  *out = negative ? tsr__value_int((int64_t)(0 - magnitude)) : tsr__value_u64(magnitude);
  return true;
}

/* Any spelling of an integer: out.tag becomes TSR__INT or TSR__UINT, or false is returned. */
static bool integer_of(tsr__assembler *assembler, tsr__value value, tsr__value *out) {
  bool ok = true;
  switch ((tsr__tag)value.tag) {
  case TSR__INT:
  case TSR__UINT: *out = value; return true;
  case TSR__BOOL: *out = tsr__value_u64(value.u); return true;
  case TSR__FLOAT:
    ok = value.f >= -9.2e18 && value.f < 1.8446744073709552e19;
    if (ok)
      *out = value.f < 0 ? tsr__value_int((int64_t)value.f) : tsr__value_u64((uint64_t)value.f);
    break;
  case TSR__STRING:
    ok = integer_of_text(tsr_snapshot_string(assembler->snapshot, value.id), out);
    break;
  default: ok = false;
  }
  tally(assembler, ok ? TSR__WARN_VALUES_CONVERTED : TSR__WARN_VALUES_UNREADABLE);
  return ok;
}

/* No address space has more bytes: a larger size is a broken file's, mostly a negative number. */
#define MOST_BYTES (UINT64_C(1) << 57)

/* A size: negative, impossible and unreadable ones count as 0. */
static uint64_t size_of(tsr__assembler *assembler, tsr__value value) {
  tsr__value integer;
  if (!integer_of(assembler, value, &integer)) return 0;
  bool is_negative = integer.tag == TSR__INT && integer.i < 0;
  if (is_negative || integer.u > MOST_BYTES) {
    tally(assembler, TSR__WARN_VALUES_UNREADABLE);
    return 0;
  }
  return integer.u;
}

/* An address or handle: PyTorch's C++ writer casts these to signed, so negative ones are taken as
 * the same 64 bits. */
static uint64_t address_of(tsr__assembler *assembler, tsr__value value) {
  tsr__value integer;
  return integer_of(assembler, value, &integer) ? integer.u : 0;
}

static int64_t time_of(tsr__assembler *assembler, tsr__value value) {
  tsr__value integer;
  if (!integer_of(assembler, value, &integer)) return TSR_TIME_NONE;
  return integer.tag == TSR__INT ? integer.i : TSR_TIME_NONE;
}

static uint32_t string_of(tsr__assembler *assembler, tsr__value value) {
  if (value.tag == TSR__STRING) return value.id;
  if (value.tag != TSR__NULL) tally(assembler, TSR__WARN_VALUES_UNREADABLE);
  return TSR_NONE;
}

static bool is_text(const tsr__assembler *assembler, tsr__value value, const char *text) {
  if (value.tag != TSR__STRING) return false;
  tsr_text found = tsr_snapshot_string(assembler->snapshot, value.id);
  return found.size_bytes == strlen(text) && !memcmp(found.data, text, found.size_bytes);
}

static bool truth_of(tsr__value value) {
  return (value.tag == TSR__BOOL || value.tag == TSR__INT || value.tag == TSR__UINT) && value.u;
}

/* ---- what a column can hold ---- */

static bool is_unsigned(tsr__value value) {
  return value.tag == TSR__UINT || (value.tag == TSR__INT && value.i >= 0);
}

/* A tuple or list of two unsigned integers, as pools are written. */
static bool is_pool(const tsr__assembler *assembler, tsr__value value) {
  value = tsr__current(assembler, value);
  const tsr__container *list = tsr__container_of(assembler, value);
  return value.tag == TSR__PAIR ||
         (list && list->kind == TSR__LIST && list->items.count == 2 &&
          is_unsigned(list->items.items[0]) && is_unsigned(list->items.items[1]));
}

/* Tuples pass: they are written back as lists. */
static bool is_list(const tsr__assembler *assembler, tsr__value value) {
  value = tsr__current(assembler, value);
  const tsr__container *list = tsr__container_of(assembler, value);
  return value.tag == TSR__STACK || (list && list->kind != TSR__DICT);
}

/* Whether the column of a known key holds the value as it stands, so that a writer finds it there.
 * To be asked before the value is read, which may use up a list. */
static bool is_exact(const tsr__assembler *assembler, tsr__value key, tsr__value value) {
  switch (key.id) {
  case TSR__NAME_ACTION:
  case TSR__NAME_COMPILE_CONTEXT:
  case TSR__NAME_USER_METADATA:
  case TSR__NAME_CATEGORY:
  case TSR__NAME_NAME:
  case TSR__NAME_FILENAME:
  case TSR__NAME_SEGMENT_TYPE:
  case TSR__NAME_STATE:
  case TSR__NAME_STAGE: return value.tag == TSR__STRING;
  case TSR__NAME_TIME_US: return value.tag == TSR__INT && value.i != TSR_TIME_NONE;
  case TSR__NAME_LINE: return value.tag == TSR__INT || value.tag == TSR__UINT;
  case TSR__NAME_DEVICE: return is_unsigned(value) && value.u < TSR_DEVICE_CPU;
  case TSR__NAME_IS_EXPANDABLE: return value.tag == TSR__BOOL;
  case TSR__NAME_POOL_ID:
  case TSR__NAME_SEGMENT_POOL_ID: return is_pool(assembler, value);
  case TSR__NAME_FRAMES:
  case TSR__NAME_BLOCKS:
  case TSR__NAME_HISTORY: return is_list(assembler, value);
  case TSR__NAME_DEVICE_FREE:
  case TSR__NAME_SIZE:
  case TSR__NAME_REQUESTED_SIZE:
  case TSR__NAME_REAL_SIZE:
  case TSR__NAME_TOTAL_SIZE:
  case TSR__NAME_ALLOCATED_SIZE:
  case TSR__NAME_ACTIVE_SIZE: return is_unsigned(value) && value.u <= MOST_BYTES;
  default: return is_unsigned(value);
  }
}

/* A pool's id from a pair, a list of two, or (third parties) one number. */
static int pool_of(tsr__assembler *assembler, tsr__value value, uint32_t *pool, bool *is_list,
                   tsr_error *error) {
  value = tsr__current(assembler, value);
  tsr__container *list = tsr__container_of(assembler, value);
  uint64_t numbers[2] = {0, 0};
  bool is_plain = is_pool(assembler, value);
  *is_list = false;
  if (value.tag == TSR__PAIR) {
    *pool = value.id;
    return 0;
  }
  if (list && list->kind != TSR__DICT && list->items.count == 2) {
    *is_list = list->kind == TSR__LIST;
    tsr__value first = list->items.items[0], second = list->items.items[1];
    numbers[0] = address_of(assembler, first);
    numbers[1] = address_of(assembler, second);
    /* Events of a JSON file have a list each; one in the memo may be named again as a list. */
    if (is_plain && list->memo == TSR_NONE && !list->is_pinned)
      tsr__resolve(assembler, value.id, tsr__value_plain(TSR__OPAQUE));
  } else {
    numbers[0] = address_of(assembler, value);
  }
  *pool = tsr__builder_pool(assembler->builder, numbers[0], numbers[1]);
  return *pool == TSR_NONE ? tsr__fail_memory(error) : 0;
}

/* Keep a value that no column holds, while there is room; `table` is the row's tag. */
static int keep_extra(tsr__assembler *assembler, tsr__tag table, uint64_t row,
                      const tsr__value pair[2], tsr_error *error) {
  bool is_known = pair[0].tag == TSR__STRING && pair[0].id < TSR__KEY_COUNT;
  if (!is_known) tally(assembler, TSR__WARN_KEYS_UNKNOWN);
  if (pair[0].tag != TSR__STRING) return tsr__let_go(assembler, pair[1], error);
  if (assembler->snapshot->extras.count >= assembler->limits.loose_values) {
    tally(assembler, TSR__WARN_VALUES_DROPPED);
    return tsr__let_go(assembler, pair[1], error);
  }
  tsr__extra extra = {.row = row, .key = pair[0].id, .table = table};
  int status = tsr__resolve_loose(assembler, pair[1], &extra.value, error);
  if (status) return status;
  return tsr__builder_add_extra(assembler->builder, &extra) ? 0 : tsr__fail_memory(error);
}

/* ---- events ---- */

#define EVENT_KEYS                                                                       \
  (KEY(ACTION) | KEY(ADDR) | KEY(DEVICE_FREE) | KEY(SIZE) | KEY(STREAM) | KEY(TIME_US) | \
   KEY(COMPILE_CONTEXT) | KEY(USER_METADATA) | KEY(POOL_ID) | KEY(FRAMES) | KEY(CATEGORY))

static int event_pool(tsr__assembler *assembler, tsr__event *event, tsr__value value,
                      tsr_error *error) {
  bool is_list;
  int status = pool_of(assembler, value, &event->pool, &is_list, error);
  if (is_list) event->shape |= TSR__EVENT_POOL_IS_LIST;
  return status;
}

static int event_field(tsr__assembler *assembler, tsr__event *event, tsr__name key,
                       tsr__value value, tsr_error *error) {
  switch (key) {
  case TSR__NAME_ACTION:
    if (value.tag == TSR__STRING) event->action = tsr__builder_action(assembler->builder, value.id);
    break;
  case TSR__NAME_ADDR: event->addr = address_of(assembler, value); break;
  case TSR__NAME_DEVICE_FREE:
    if (!(event->shape & KEY(ADDR))) event->addr = size_of(assembler, value);
    break;
  case TSR__NAME_SIZE: event->size = size_of(assembler, value); break;
  case TSR__NAME_STREAM:
    if (value.tag == TSR__NULL) { /* pinned host memory belongs to none */
      event->shape |= TSR__EVENT_STREAM_IS_NULL;
      break;
    }
    event->stream = tsr__builder_stream(assembler->builder, address_of(assembler, value));
    if (event->stream == TSR_NONE) return tsr__fail_memory(error);
    break;
  case TSR__NAME_TIME_US: event->time_us = time_of(assembler, value); break;
  case TSR__NAME_COMPILE_CONTEXT: event->context = string_of(assembler, value); break;
  case TSR__NAME_CATEGORY: event->category = string_of(assembler, value); break;
  case TSR__NAME_POOL_ID: return event_pool(assembler, event, value, error);
  case TSR__NAME_FRAMES: return tsr__resolve_stack(assembler, value, &event->stack, error);
  default: break;
  }
  return 0;
}

/* is_exact, and two more cases: action codes may run out, and `addr`, where the event has one
 * (`keys`), shares its column with `device_free`. */
static bool is_exact_in_event(const tsr__assembler *assembler, uint64_t keys,
                              const tsr__value pair[2]) {
  if (pair[0].id == TSR__NAME_DEVICE_FREE && (keys & KEY(ADDR))) return false;
  if (pair[0].id == TSR__NAME_STREAM && pair[1].tag == TSR__NULL) return true;
  if (pair[0].id == TSR__NAME_ACTION && pair[1].tag == TSR__STRING)
    return tsr__builder_action(assembler->builder, pair[1].id) != TSR_ACTION_MISSING;
  return is_exact(assembler, pair[0], pair[1]);
}

/* The allocator tags what it allocates and frees for itself, a pair in front of an allocation at a
 * wished address. Such an event gets an action of its own; the file's is kept as an extra, for a
 * writer. */
static int set_internal(tsr__assembler *assembler, tsr__event *event, const tsr__value *pairs,
                        size_t count, uint64_t row, tsr_error *error) {
  bool is_tagged = false;
  tsr__extra extra = {.row = row, .key = TSR__NAME_ACTION, .table = TSR__EVENT};
  for (size_t i = 0; i < count; i += 2) {
    if (pairs[i].tag != TSR__STRING || pairs[i + 1].tag != TSR__STRING) continue;
    if (pairs[i].id == TSR__NAME_ACTION) extra.value = pairs[i + 1];
    if (pairs[i].id == TSR__NAME_INTERNAL_METADATA)
      is_tagged = tsr_snapshot_string(assembler->snapshot, pairs[i + 1].id).size_bytes;
  }
  if (!is_tagged || event->action > TSR_ACTION_FREE) return 0;
  if (assembler->snapshot->extras.count >= assembler->limits.loose_values) {
    tally(assembler,
          TSR__WARN_VALUES_DROPPED); /* it counts as an allocation, but is written back */
    return 0;
  }
  event->action = TSR_ACTION_INTERNAL;
  return tsr__builder_add_extra(assembler->builder, &extra) ? 0 : tsr__fail_memory(error);
}

/* The text of metadata that is not one: a dict as JSON, once for each. The value is the last that was
 * kept. */
static int metadata_text(tsr__assembler *assembler, uint64_t row, uint32_t *string,
                         tsr_error *error) {
  const tsr_snapshot *s = assembler->snapshot;
  const tsr__extra *kept = s->extras.count ? &s->extras.items[s->extras.count - 1] : NULL;
  bool is_new = false;
  if (!kept || kept->row != row || kept->key != TSR__NAME_USER_METADATA) return 0;
  tsr__value value = kept->value;
  if (value.tag != TSR__LOOSE) return 0;
  uint64_t *place = tsr__map_put(&assembler->texts, value.id, TSR_NONE, &is_new);
  if (!place || (is_new && !tsr__value_text(assembler->builder, value, string)))
    return tsr__fail_memory(error);
  if (is_new) *place = *string;
  *string = (uint32_t)*place;
  return 0;
}

static int make_event(tsr__assembler *assembler, const tsr__value *pairs, size_t count,
                      uint64_t keys, tsr__value *out, tsr_error *error) {
  tsr__event event = TSR__EVENT_EMPTY;
  event.shape = assembler->key_order << TSR__EVENT_ORDER_SHIFT;
  uint64_t row = tsr__builder_event_count(assembler->builder);
  for (size_t i = 0; i < count; i += 2) {
    int status = 0;
    bool is_key = pairs[i].tag == TSR__STRING && pairs[i].id < TSR__KEY_COUNT;
    /* user_metadata is a text, but newer PyTorch accepts other values too. */
    bool is_named = is_key && (EVENT_KEYS >> pairs[i].id & 1);
    bool exact = is_named && is_exact_in_event(assembler, keys, &pairs[i]);
    if (is_named && pairs[i].id == TSR__NAME_USER_METADATA) {
      if (exact) event.metadata = pairs[i + 1].id;
    } else if (is_named) {
      status = event_field(assembler, &event, (tsr__name)pairs[i].id, pairs[i + 1], error);
    }
    if (!status && !exact) status = keep_extra(assembler, TSR__EVENT, row, &pairs[i], error);
    if (!status && is_named && !exact && pairs[i].id == TSR__NAME_USER_METADATA)
      status = metadata_text(assembler, row, &event.metadata, error);
    if (status) return status;
    if (is_named) event.shape |= (uint32_t)1 << pairs[i].id;
  }
  assert(row == tsr__builder_event_count(assembler->builder)); /* values made no events */
  tsr__builder_judge_event(assembler->builder, &event);
  int status = set_internal(assembler, &event, pairs, count, row, error);
  if (status) return status;
  if (!tsr__builder_add_event(assembler->builder, &event)) return tsr__fail_memory(error);
  *out = tsr__value_id(TSR__EVENT, (uint32_t)row);
  return 0;
}

/* What shapes of rows other than events begin with. */
static uint64_t row_order(const tsr__assembler *assembler) {
  return (uint64_t)assembler->key_order << TSR__ROW_ORDER_SHIFT;
}

/* ---- frames ---- */

#define FRAME_KEYS (KEY(NAME) | KEY(FILENAME) | KEY(LINE))

enum { MOST_FRAME_EXTRAS = 16 };

/* The keys and values of a frame that its columns do not hold (fx_..., a name that is None), as one
 * id: they are part of what the frame is. */
static int frame_extras(tsr__assembler *assembler, const tsr__value *pairs, size_t count,
                        tsr__frame_key *key, tsr_error *error) {
  const tsr_snapshot *snapshot = assembler->snapshot;
  tsr__value kept[2 * MOST_FRAME_EXTRAS];
  size_t kept_count = 0;
  for (size_t i = 0; i < count; i += 2) {
    if (pairs[i].tag != TSR__STRING) continue;
    bool is_named = pairs[i].id < TSR__KEY_COUNT && (FRAME_KEYS >> pairs[i].id & 1);
    if (is_named && is_exact(assembler, pairs[i], pairs[i + 1])) continue;
    if (!is_named) tally(assembler, TSR__WARN_KEYS_UNKNOWN);
    if (kept_count == 2 * MOST_FRAME_EXTRAS ||
        snapshot->frame_extras.count >= assembler->limits.loose_values) {
      tally(assembler, TSR__WARN_VALUES_DROPPED);
      continue;
    }
    kept[kept_count++] = tsr__value_id(TSR__STRING, pairs[i].id);
    int status = tsr__resolve_loose(assembler, pairs[i + 1], &kept[kept_count++], error);
    if (status) return status;
  }
  if (!kept_count) return 0;
  uint32_t id = tsr__builder_frame_extras(assembler->builder, kept, kept_count);
  if (id == TSR_NONE) return tsr__fail_memory(error);
  key->extras = (uint64_t)id + 1;
  return 0;
}

static int make_frame(tsr__assembler *assembler, const tsr__value *pairs, size_t count,
                      tsr__value *out, tsr_error *error) {
  tsr__frame_key key = {{TSR_NONE, TSR_NONE, TSR_LINE_UNKNOWN}, row_order(assembler), 0};
  for (size_t i = 0; i < count; i += 2) {
    tsr__value line;
    switch (pairs[i].tag == TSR__STRING ? pairs[i].id : TSR_NONE) {
    case TSR__NAME_NAME: key.frame.name = string_of(assembler, pairs[i + 1]); break;
    case TSR__NAME_FILENAME: key.frame.file = string_of(assembler, pairs[i + 1]); break;
    case TSR__NAME_LINE:
      if (!integer_of(assembler, pairs[i + 1], &line)) break;
      key.frame.line = line.u;
      if (line.tag == TSR__INT && line.i < 0) key.shape |= TSR__SHAPE_LINE_NEGATIVE;
      break;
    default: continue;
    }
    key.shape |= UINT64_C(1) << pairs[i].id;
  }
  int status = frame_extras(assembler, pairs, count, &key, error);
  if (status) return status;
  uint32_t id = tsr__builder_raw_frame(assembler->builder, &key);
  if (id == TSR_NONE) return tsr__fail_memory(error);
  *out = tsr__value_id(TSR__FRAME, id);
  return 0;
}

/* ---- history and blocks ---- */

#define HISTORY_KEYS (KEY(ADDR) | KEY(REAL_SIZE) | KEY(FRAMES))
#define BLOCK_KEYS \
  (KEY(ADDRESS) | KEY(SIZE) | KEY(REQUESTED_SIZE) | KEY(STATE) | KEY(HISTORY) | KEY(FRAMES))

static bool is_key_of(uint64_t keys, tsr__value key) {
  return key.tag == TSR__STRING && key.id < TSR__KEY_COUNT && (keys >> key.id & 1);
}

static int make_history(tsr__assembler *assembler, const tsr__value *pairs, size_t count,
                        tsr__value *out, tsr_error *error) {
  const tsr_snapshot *snapshot = assembler->snapshot;
  tsr__history_row row = {.shape = row_order(assembler), .stack = TSR_NONE};
  for (size_t i = 0; i < count; i += 2) {
    int status = 0;
    bool is_named = is_key_of(HISTORY_KEYS, pairs[i]);
    bool exact = is_named && is_exact(assembler, pairs[i], pairs[i + 1]);
    switch (pairs[i].tag == TSR__STRING ? pairs[i].id : TSR_NONE) {
    case TSR__NAME_ADDR: row.addr = address_of(assembler, pairs[i + 1]); break;
    case TSR__NAME_REAL_SIZE: row.real_size = size_of(assembler, pairs[i + 1]); break;
    case TSR__NAME_FRAMES:
      status = tsr__resolve_stack(assembler, pairs[i + 1], &row.stack, error);
      break;
    default: break;
    }
    if (!status && !exact)
      status = keep_extra(assembler, TSR__HISTORY, snapshot->history.count, &pairs[i], error);
    if (status) return status;
    if (is_named) row.shape |= UINT64_C(1) << pairs[i].id;
  }
  if (!tsr__builder_add_history(assembler->builder, &row)) return tsr__fail_memory(error);
  *out = tsr__value_id(TSR__HISTORY, (uint32_t)snapshot->history.count - 1);
  return 0;
}

static uint8_t state_of(tsr__assembler *assembler, uint32_t string) {
  switch (string) {
  case TSR__NAME_ACTIVE_ALLOCATED: return TSR_BLOCK_ALLOCATED;
  case TSR__NAME_ACTIVE_PENDING_FREE:
  case TSR__NAME_ACTIVE_AWAITING_FREE: return TSR_BLOCK_PENDING_FREE;
  case TSR__NAME_INACTIVE: return TSR_BLOCK_INACTIVE;
  default: tally(assembler, TSR__WARN_VALUES_UNREADABLE); return TSR_BLOCK_UNKNOWN;
  }
}

/* A block's history: its newest entry stands in for the stack and the requested size that the
 * layouts of PyTorch 1.13 and 2.0 do not write on the block itself. */
static int block_history(tsr__assembler *assembler, tsr__value value, tsr_block *block,
                         tsr__block_more *more, tsr_error *error) {
  const tsr_snapshot *snapshot = assembler->snapshot;
  const tsr__value *items;
  size_t count;
  int status = 0;
  value = tsr__current(assembler, value);
  if (!tsr__items_of(assembler, value, &items, &count)) return 0;
  more->first_history = (uint32_t)snapshot->history.count;
  tsr__visit(assembler, value, true);
  for (size_t i = 0; !status && i < count; i++) {
    tsr__value item = tsr__current(assembler, items[i]);
    if (item.tag != TSR__HISTORY) {
      tally(assembler, TSR__WARN_VALUES_UNREADABLE);
      status = tsr__let_go(assembler, item, error);
      continue;
    }
    if (!more->history_count) more->first_history = item.id;
    if (item.id == more->first_history + more->history_count)
      more->history_count++;
    else
      tally(assembler, TSR__WARN_VALUES_UNREADABLE);
  }
  tsr__visit(assembler, value, false);
  if (status) return status;
  if (value.tag == TSR__CONTAINER) tsr__resolve(assembler, value.id, tsr__value_plain(TSR__OPAQUE));
  if (!more->history_count) return 0;
  assert(more->first_history + more->history_count <= snapshot->history.count);
  const tsr__history_row *newest = &snapshot->history.items[more->first_history];
  if (!(more->shape & KEY(REQUESTED_SIZE))) block->requested_bytes = newest->real_size;
  if (block->stack == TSR_NONE) block->stack = newest->stack;
  return 0;
}

static int make_block(tsr__assembler *assembler, const tsr__value *pairs, size_t count,
                      tsr__value *out, tsr_error *error) {
  const tsr_snapshot *snapshot = assembler->snapshot;
  tsr_block block = {.stack = TSR_NONE, .state = TSR_BLOCK_UNKNOWN};
  tsr__block_more more = {.shape = row_order(assembler), .state = TSR_NONE};
  tsr__value history = tsr__value_plain(TSR__NOTHING);
  for (size_t i = 0; i < count; i += 2) {
    int status = 0;
    tsr__value value = pairs[i + 1];
    bool is_named = is_key_of(BLOCK_KEYS, pairs[i]);
    bool exact = is_named && is_exact(assembler, pairs[i], value);
    switch (pairs[i].tag == TSR__STRING ? pairs[i].id : TSR_NONE) {
    case TSR__NAME_ADDRESS: block.address = address_of(assembler, value); break;
    case TSR__NAME_SIZE: block.size_bytes = size_of(assembler, value); break;
    case TSR__NAME_REQUESTED_SIZE: block.requested_bytes = size_of(assembler, value); break;
    case TSR__NAME_STATE: more.state = string_of(assembler, value); break;
    case TSR__NAME_HISTORY: history = value; break;
    case TSR__NAME_FRAMES:
      status = tsr__resolve_stack(assembler, value, &block.stack, error);
      break;
    default: break;
    }
    if (!status && !exact)
      status = keep_extra(assembler, TSR__BLOCK, snapshot->blocks.count, &pairs[i], error);
    if (status) return status;
    if (is_named) more.shape |= UINT64_C(1) << pairs[i].id;
  }
  block.state = state_of(assembler, more.state);
  int status = block_history(assembler, history, &block, &more, error);
  if (status) return status;
  if (!tsr__builder_add_block(assembler->builder, &block, &more)) return tsr__fail_memory(error);
  *out = tsr__value_id(TSR__BLOCK, (uint32_t)snapshot->blocks.count - 1);
  return 0;
}

/* ---- segments ---- */

/* Name the blocks of a segment by one run of rows, copying them if they are not one. */
static int segment_blocks(tsr__assembler *assembler, tsr__value value, tsr_segment *segment,
                          tsr_error *error) {
  const tsr__value *items;
  size_t count, found = 0;
  uint32_t first = TSR_NONE;
  bool is_run = true;
  int status = 0;
  value = tsr__current(assembler, value);
  if (!tsr__items_of(assembler, value, &items, &count)) {
    tally(assembler, TSR__WARN_BLOCKS_MALFORMED);
    return 0;
  }
  tsr__visit(assembler, value, true);
  for (size_t i = 0; !status && i < count; i++) {
    tsr__value item = tsr__current(assembler, items[i]);
    if (item.tag != TSR__BLOCK) {
      tally(assembler, TSR__WARN_BLOCKS_MALFORMED);
      status = tsr__let_go(assembler, item, error);
      continue;
    }
    if (first == TSR_NONE) first = item.id;
    is_run = is_run && item.id == first + found;
    found++;
  }
  segment->first_block = is_run && found ? first : assembler->snapshot->blocks.count;
  for (size_t i = 0; !status && !is_run && i < count; i++) {
    tsr__value item = tsr__current(assembler, items[i]);
    if (item.tag == TSR__BLOCK && !tsr__builder_repeat_block(assembler->builder, item.id))
      status = tsr__fail_memory(error);
  }
  tsr__visit(assembler, value, false);
  if (status) return status;
  segment->block_count = found;
  assert(segment->first_block + found <= assembler->snapshot->blocks.count);
  if (value.tag == TSR__CONTAINER) tsr__resolve(assembler, value.id, tsr__value_plain(TSR__OPAQUE));
  return 0;
}

static int segment_field(tsr__assembler *assembler, tsr_segment *segment, tsr__segment_more *more,
                         const tsr__value *pair, tsr_error *error) {
  tsr__value value = pair[1];
  int status = 0;
  bool is_list = false;
  switch (pair[0].id) {
  case TSR__NAME_ADDRESS: segment->address = address_of(assembler, value); break;
  case TSR__NAME_TOTAL_SIZE: segment->total_bytes = size_of(assembler, value); break;
  case TSR__NAME_ALLOCATED_SIZE: segment->allocated_bytes = size_of(assembler, value); break;
  case TSR__NAME_ACTIVE_SIZE: segment->active_bytes = size_of(assembler, value); break;
  case TSR__NAME_REQUESTED_SIZE: segment->requested_bytes = size_of(assembler, value); break;
  case TSR__NAME_STREAM:
    if (value.tag == TSR__NULL) break;
    segment->stream = address_of(assembler, value);
    if (tsr__builder_stream(assembler->builder, segment->stream) == TSR_NONE)
      return tsr__fail_memory(error);
    break;
  case TSR__NAME_SEGMENT_TYPE: more->type = string_of(assembler, value); break;
  case TSR__NAME_IS_EXPANDABLE: segment->is_expandable = truth_of(value); break;
  case TSR__NAME_SEGMENT_POOL_ID:
    status = pool_of(assembler, value, &segment->pool, &is_list, error);
    if (is_list) more->shape |= TSR__SHAPE_POOL_IS_LIST;
    break;
  case TSR__NAME_FRAMES:
    status = tsr__resolve_stack(assembler, value, &segment->stack, error);
    break;
  default: break; /* device and blocks are read by make_segment */
  }
  return status;
}

#define SEGMENT_KEYS                                                                       \
  (KEY(DEVICE) | KEY(ADDRESS) | KEY(TOTAL_SIZE) | KEY(ALLOCATED_SIZE) | KEY(ACTIVE_SIZE) | \
   KEY(REQUESTED_SIZE) | KEY(STREAM) | KEY(SEGMENT_TYPE) | KEY(SEGMENT_POOL_ID) |          \
   KEY(IS_EXPANDABLE) | KEY(FRAMES) | KEY(BLOCKS))

/* The segment's device, 0 where it names none; TSR_NONE where no GPU can be called so. That is no
 * error among the segments of pinned host memory, which the file lists separately. */
static uint32_t segment_device(tsr__assembler *assembler, const tsr__value *pairs, size_t count) {
  tsr__value value = tsr__value_int(0);
  for (size_t i = 0; i < count; i += 2)
    if (pairs[i].tag == TSR__STRING && pairs[i].id == TSR__NAME_DEVICE) value = pairs[i + 1];
  if (value.tag == TSR__NULL || is_text(assembler, value, "cpu")) return TSR_NONE;
  /* TSR_DEVICE_CPU itself is in what was written of a profile of arrays (pprof_file.h). */
  if (!integer_of(assembler, value, &value) || value.u > TSR_DEVICE_CPU) return TSR_NONE;
  return (uint32_t)value.u;
}

static int make_segment(tsr__assembler *assembler, const tsr__value *pairs, size_t count,
                        tsr__value *out, tsr_error *error) {
  const tsr_snapshot *snapshot = assembler->snapshot;
  tsr_segment segment = {.stack = TSR_NONE, .pool = TSR_NONE};
  tsr__segment_more more = {.shape = row_order(assembler), .type = TSR_NONE};
  tsr__value blocks = tsr__value_plain(TSR__NOTHING);
  segment.device = segment_device(assembler, pairs, count);
  for (size_t i = 0; i < count; i += 2) {
    int status = 0;
    bool is_named = is_key_of(SEGMENT_KEYS, pairs[i]);
    bool exact = is_named && is_exact(assembler, pairs[i], pairs[i + 1]);
    if (is_named) {
      if (pairs[i].id == TSR__NAME_BLOCKS) blocks = pairs[i + 1];
      status = segment_field(assembler, &segment, &more, &pairs[i], error);
      more.shape |= UINT64_C(1) << pairs[i].id;
    }
    if (!status && !exact)
      status = keep_extra(assembler, TSR__SEGMENT, snapshot->segments.count, &pairs[i], error);
    if (status) return status;
  }
  int status = 0;
  if (blocks.tag != TSR__NOTHING) status = segment_blocks(assembler, blocks, &segment, error);
  if (status) return status;
  segment.is_large = more.type != TSR__NAME_SMALL;
  if (!tsr__builder_add_segment(assembler->builder, &segment, &more))
    return tsr__fail_memory(error);
  *out = tsr__value_id(TSR__SEGMENT, (uint32_t)snapshot->segments.count - 1);
  return 0;
}

/* ---- annotations ---- */

#define ANNOTATION_KEYS (KEY(NAME) | KEY(STAGE) | KEY(TIME_US) | KEY(DEVICE))

static int make_annotation(tsr__assembler *assembler, const tsr__value *pairs, size_t count,
                           tsr__value *out, tsr_error *error) {
  const tsr_snapshot *snapshot = assembler->snapshot;
  tsr_annotation row = {.time_us = TSR_TIME_NONE, .name = TSR_NONE, .stage = TSR_NONE};
  tsr__annotation_more more = {.shape = row_order(assembler)};
  for (size_t i = 0; i < count; i += 2) {
    bool is_named = is_key_of(ANNOTATION_KEYS, pairs[i]);
    bool exact = is_named && is_exact(assembler, pairs[i], pairs[i + 1]);
    switch (pairs[i].tag == TSR__STRING ? pairs[i].id : TSR_NONE) {
    case TSR__NAME_NAME: row.name = string_of(assembler, pairs[i + 1]); break;
    case TSR__NAME_STAGE: row.stage = string_of(assembler, pairs[i + 1]); break;
    case TSR__NAME_TIME_US: row.time_us = time_of(assembler, pairs[i + 1]); break;
    case TSR__NAME_DEVICE: row.device = (uint32_t)address_of(assembler, pairs[i + 1]); break;
    default: break;
    }
    if (is_named) more.shape |= UINT64_C(1) << pairs[i].id;
    if (exact) continue;
    int status =
        keep_extra(assembler, TSR__ANNOTATION, snapshot->annotations.count, &pairs[i], error);
    if (status) return status;
  }
  row.is_start = row.stage == TSR__NAME_START;
  row.is_end = row.stage == TSR__NAME_END;
  if (!tsr__builder_add_annotation(assembler->builder, &row, &more)) return tsr__fail_memory(error);
  *out = tsr__value_id(TSR__ANNOTATION, (uint32_t)snapshot->annotations.count - 1);
  return 0;
}

/* ---- which of them? ---- */

static int make_row(tsr__assembler *assembler, const tsr__value *pairs, size_t count, uint64_t keys,
                    tsr__value *out, tsr_error *error) {
  if (keys & (KEY(SEGMENTS) | KEY(DEVICE_TRACES))) return 0;
  if (keys & KEY(ACTION)) return make_event(assembler, pairs, count, keys, out, error);
  if ((keys & KEY(FILENAME)) || ((keys & KEY(NAME)) && (keys & KEY(LINE))))
    return make_frame(assembler, pairs, count, out, error);
  if (keys & (KEY(TOTAL_SIZE) | KEY(BLOCKS)))
    return make_segment(assembler, pairs, count, out, error);
  if (keys & KEY(REAL_SIZE)) return make_history(assembler, pairs, count, out, error);
  if ((keys & KEY(STATE)) && (keys & KEY(SIZE)))
    return make_block(assembler, pairs, count, out, error);
  if (keys & KEY(STAGE)) return make_annotation(assembler, pairs, count, out, error);
  return 0;
}

static bool is_known_key(tsr__value key) {
  return key.tag == TSR__STRING && key.id < TSR__KEY_COUNT;
}

/* The same for a dict that has a known key more than once: the last counts, as in Python. */
static int make_row_once(tsr__assembler *assembler, const tsr__value *pairs, size_t count,
                         uint64_t keys, tsr__value *out, tsr_error *error) {
  size_t last[TSR__KEY_COUNT], kept = 0;
  tsr__value *unique = tsr__realloc(NULL, count, sizeof *unique);
  if (!unique) return tsr__fail_memory(error);
  for (size_t i = 0; i < count; i += 2)
    if (is_known_key(pairs[i])) last[pairs[i].id] = i;
  for (size_t i = 0; i < count; i += 2) {
    if (is_known_key(pairs[i]) && last[pairs[i].id] != i) {
      tally(assembler, TSR__WARN_VALUES_DROPPED);
      continue;
    }
    unique[kept++] = pairs[i];
    unique[kept++] = pairs[i + 1];
  }
  int status = make_row(assembler, unique, kept, keys, out, error);
  tsr__free(unique);
  return status;
}

int tsr__make_row(tsr__assembler *assembler, const tsr__value *pairs, size_t count, tsr__value *out,
                  tsr_error *error) {
  uint64_t keys = 0;
  bool is_unique = true;
  assert(count % 2 == 0);
  for (size_t i = 0; i < count; i += 2) {
    if (!is_known_key(pairs[i])) continue;
    is_unique = is_unique && !(keys >> pairs[i].id & 1);
    keys |= UINT64_C(1) << pairs[i].id;
  }
  int status =
      tsr__builder_key_order(assembler->builder, pairs, count, &assembler->key_order, error);
  if (status) return status;
  return (is_unique ? make_row : make_row_once)(assembler, pairs, count, keys, out, error);
}
