/* flat.c - rows of allocations and frees become the traces of devices. See flat.h.
 *
 * Each device is gone through twice. The first pass gives addresses to rows without one, and adds up what must
 * have been there before; the second makes events.
 *
 *   live      address -> bytes of what is live there
 *   free list bytes -> newest live row of that size without an address; `older` links to the one before
 *   unlisted  allocations that only totals show, newest last; the first may be from before the recording
 *
 * Addresses that are made up are multiples of 512 from TOP downwards for what is unlisted, and from BOTTOM
 * upwards for rows without one. A file is free to use them too: then the newer of two at one address ends
 * the older, as in any broken trace. */
#include "formats/flat.h"

#include "base/checked.h"
#include "base/sort.h"

enum { UNIT = 512 };
#define BOTTOM UINT64_C(0x1000000)
#define TOP    (UINT64_C(1) << 62)

void tsr__flat_init(tsr__flat *flat, tsr__builder *builder) {
  *flat = (tsr__flat){.builder = builder};
}

void tsr__flat_release(tsr__flat *flat) {
  TSR__VECTOR_FREE(&flat->rows);
}

bool tsr__flat_add(tsr__flat *flat, const tsr__flat_row *row) {
  bool is_host = row->device == TSR_DEVICE_CPU || row->device == TSR_DEVICE_HOST;
  if (is_host || row->device < flat->builder->limits.devices)
    return TSR__VECTOR_PUSH(&flat->rows, *row);
  tsr__builder_warn(flat->builder, TSR__WARN_EVENTS_MALFORMED);
  return true;
}

uint64_t tsr__flat_bytes(const tsr__flat *flat) {
  return flat->rows.capacity * sizeof *flat->rows.items;
}

static int compare_times(const void *a, const void *b) {
  const tsr__flat_row *x = a, *y = b;
  return (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns);
}

void tsr__flat_sort(tsr__flat *flat) {
  tsr__sort(flat->rows.items, flat->rows.count, sizeof *flat->rows.items, compare_times);
}

static int compare_devices(const void *a, const void *b) {
  const tsr__flat_row *x = a, *y = b;
  return (x->device > y->device) - (x->device < y->device);
}

typedef struct unlisted {
  uint64_t address, bytes;
} unlisted;

/* One device. */
typedef struct maker {
  tsr__builder *builder;
  bool lists_all;
  tsr__flat_row *rows;
  size_t count;
  tsr__map live;   /* address -> bytes */
  tsr__map newest; /* bytes -> index + 1 of the newest live row of that size that had no address */
  TSR__VECTOR(size_t) older; /* by row that had no address: the next of its list, index + 1 */
  TSR__VECTOR(unlisted) unlisted;
  uint64_t unlisted_count, unknown_count; /* made-up addresses so far */
  uint64_t before_bytes;                  /* of the blocks that rows free and none allocates */
  uint64_t allocated;                     /* while rows become events */
  int64_t event;                          /* the last one made */
  uint64_t reserved;                      /* the last mark, or TSR__FLAT_UNKNOWN */
} maker;

/* ---- addresses ---- */

static uint64_t unlisted_address(maker *m) {
  return TOP - UNIT * m->unlisted_count++;
}

/* An allocation without an address: its own, and the newest of its size. */
static bool name_alloc(maker *m, size_t index) {
  tsr__flat_row *row = &m->rows[index];
  uint64_t *newest = tsr__map_put(&m->newest, row->bytes, 0, NULL);
  if (!newest) return false;
  row->address = BOTTOM + UNIT * m->unknown_count++;
  m->older.items[index] = (size_t)*newest;
  *newest = index + 1;
  return true;
}

/* A free without an address. One that fits no allocation is of what was there before. */
static void name_free(maker *m, size_t index) {
  tsr__flat_row *row = &m->rows[index];
  uint64_t *newest = tsr__map_find(&m->newest, row->bytes);
  if (newest && *newest) {
    size_t freed = (size_t)*newest - 1;
    row->address = m->rows[freed].address;
    *newest = m->older.items[freed];
  } else {
    row->address = BOTTOM + UNIT * m->unknown_count++;
  }
}

static bool name_rows(maker *m) {
  bool has_unknown = false;
  for (size_t i = 0; i < m->count && !has_unknown; i++)
    has_unknown = m->rows[i].kind != TSR__FLAT_OOM && m->rows[i].address == TSR__FLAT_UNKNOWN;
  if (!has_unknown) return true;
  if (!TSR__VECTOR_RESERVE(&m->older, m->count)) return false;
  for (size_t i = 0; i < m->count; i++) {
    if (m->rows[i].kind == TSR__FLAT_OOM || m->rows[i].address != TSR__FLAT_UNKNOWN) continue;
    tsr__builder_warn(m->builder, TSR__WARN_NO_ADDRESSES);
    if (m->rows[i].kind == TSR__FLAT_FREE)
      name_free(m, i);
    else if (!name_alloc(m, i))
      return false;
  }
  return true;
}

/* ---- before the recording ---- */

/* What a free without a size drops is known from its allocation alone, so nothing is known of one from before. */
static uint64_t known_bytes(const tsr__flat_row *row) {
  return row->bytes == TSR__FLAT_UNKNOWN ? 0 : row->bytes;
}

/* How many bytes a row takes or gives back, as the timeline will count them; `live` follows. */
static bool apply(maker *m, const tsr__flat_row *row, uint64_t *added, uint64_t *dropped) {
  uint64_t *live;
  *added = *dropped = 0;
  if (row->kind == TSR__FLAT_OOM) return true;
  if (row->kind == TSR__FLAT_ALLOC) {
    bool is_new;
    live = tsr__map_put(&m->live, row->address, 0, &is_new);
    if (!live) return false;
    *dropped = is_new ? 0 : *live;
    *added = *live = row->bytes;
    return true;
  }
  live = tsr__map_find(&m->live, row->address);
  if (live) *dropped = *live;
  if (live) tsr__map_remove(&m->live, row->address);
  return true;
}

/* Addresses whose first row is a free. They are live from the start. */
static bool find_before(maker *m) {
  tsr__map seen = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < m->count; i++) {
    const tsr__flat_row *row = &m->rows[i];
    bool is_new;
    if (row->kind == TSR__FLAT_OOM) continue;
    ok = tsr__map_put(&seen, row->address, 0, &is_new);
    if (!ok || !is_new || row->kind != TSR__FLAT_FREE) continue;
    ok = tsr__map_put(&m->live, row->address, known_bytes(row), NULL);
    m->before_bytes = tsr__sum_u64(m->before_bytes, known_bytes(row));
  }
  tsr__map_release(&seen);
  return ok;
}

/* What the first total says was there, beyond the blocks that are freed later; 0 without a total. */
static uint64_t rest_before(const maker *m) {
  uint64_t first = TSR__FLAT_UNKNOWN, sum = 0, dropped = 0;
  for (size_t i = 0; i < m->count && first == TSR__FLAT_UNKNOWN; i++) {
    const tsr__flat_row *row = &m->rows[i];
    if (row->kind == TSR__FLAT_ALLOC) sum = tsr__sum_u64(sum, row->bytes);
    if (row->kind == TSR__FLAT_FREE) dropped = tsr__sum_u64(dropped, known_bytes(row));
    first = row->allocated_bytes;
  }
  if (first == TSR__FLAT_UNKNOWN) return 0;
  return tsr__drop_u64(tsr__drop_u64(tsr__sum_u64(first, dropped), sum), m->before_bytes);
}

/* ---- events ---- */

static int64_t us_of(int64_t time_ns) {
  return time_ns / 1000 - (time_ns % 1000 < 0);
}

static bool add_event(maker *m, const tsr__flat_row *row, tsr_action action, uint64_t address,
                      uint64_t bytes, bool is_listed) {
  m->event++;
  return tsr__builder_flat_event(
      m->builder, row->device,
      &(tsr__flat_event){.action = action,
                         .stack = is_listed ? row->stack : TSR_NONE,
                         .metadata = is_listed && action == TSR_ACTION_ALLOC ? row->says : TSR_NONE,
                         .addr = address,
                         .size_bytes = bytes,
                         .stream = is_listed ? row->stream : 0,
                         .time_us = us_of(row->time_ns)});
}

static bool grow_unlisted(maker *m, const tsr__flat_row *row, uint64_t bytes) {
  unlisted one = {unlisted_address(m), bytes};
  m->allocated = tsr__sum_u64(m->allocated, bytes);
  return TSR__VECTOR_PUSH(&m->unlisted, one) &&
         add_event(m, row, TSR_ACTION_ALLOC, one.address, one.bytes, false);
}

/* Take `bytes` off the unlisted allocations, the newest first. An allocation does not shrink: one that is larger ends,
 * and what is left of it begins. */
static bool shrink_unlisted(maker *m, const tsr__flat_row *row, uint64_t bytes) {
  while (bytes && m->unlisted.count) {
    unlisted last = m->unlisted.items[--m->unlisted.count];
    if (!add_event(m, row, TSR_ACTION_FREE_COMPLETED, last.address, last.bytes, false))
      return false;
    m->allocated = tsr__drop_u64(m->allocated, last.bytes);
    if (last.bytes > bytes && !grow_unlisted(m, row, last.bytes - bytes)) return false;
    bytes = tsr__drop_u64(bytes, last.bytes);
  }
  if (bytes) tsr__builder_warn(m->builder, TSR__WARN_TOTALS_DISAGREE);
  return true;
}

/* Before a row that adds and drops bytes: whatever moved its total besides. */
static bool follow_total(maker *m, const tsr__flat_row *row, uint64_t added, uint64_t dropped) {
  if (row->allocated_bytes == TSR__FLAT_UNKNOWN) return true;
  uint64_t expected = tsr__drop_u64(tsr__sum_u64(m->allocated, added), dropped);
  if (expected == row->allocated_bytes) return true;
  tsr__builder_warn(m->builder, TSR__WARN_TOTALS_MISSED);
  if (expected < row->allocated_bytes)
    return grow_unlisted(m, row, row->allocated_bytes - expected);
  return shrink_unlisted(m, row, expected - row->allocated_bytes);
}

static bool add_row(maker *m, const tsr__flat_row *row) {
  static const tsr_action actions[] = {TSR_ACTION_ALLOC, TSR_ACTION_FREE_COMPLETED, TSR_ACTION_OOM};
  uint64_t added, dropped;
  bool is_oom = row->kind == TSR__FLAT_OOM;
  if (!apply(m, row, &added, &dropped) || !follow_total(m, row, added, dropped)) return false;
  uint64_t bytes = row->bytes == TSR__FLAT_UNKNOWN ? dropped : row->bytes;
  if (!add_event(m, row, actions[row->kind], is_oom ? 0 : row->address, bytes, true)) return false;
  m->allocated = tsr__drop_u64(tsr__sum_u64(m->allocated, added), dropped);
  if (row->reserved_bytes == TSR__FLAT_UNKNOWN || row->reserved_bytes == m->reserved) return true;
  m->reserved = row->reserved_bytes;
  return tsr__builder_reserved_mark(m->builder, m->event, m->reserved);
}

/* Reserved memory at the start: what the first row says, if it did not have to reserve more. */
static bool begin_reserved(maker *m) {
  m->reserved = m->rows[0].reserved_bytes;
  return m->reserved == TSR__FLAT_UNKNOWN ||
         tsr__builder_reserved_mark(m->builder, -1, m->reserved);
}

static bool make_device(maker *m) {
  if (!name_rows(m) || !find_before(m)) return false;
  uint64_t rest = rest_before(m), address = unlisted_address(m);
  bool has_totals = m->lists_all;
  for (size_t i = 0; i < m->count && !has_totals; i++)
    has_totals = m->rows[i].allocated_bytes != TSR__FLAT_UNKNOWN;
  if (!has_totals) tsr__builder_warn(m->builder, TSR__WARN_NO_TOTALS);
  if (rest) tsr__builder_warn_times(m->builder, TSR__WARN_BEFORE_BY_TOTALS, rest);
  m->allocated = tsr__sum_u64(m->before_bytes, rest);
  if (rest && !TSR__VECTOR_PUSH(&m->unlisted, (unlisted){address, rest})) return false;
  if (!tsr__builder_flat_device(m->builder, m->rows[0].device, address, rest) || !begin_reserved(m))
    return false;
  for (size_t i = 0; i < m->count; i++)
    if (!add_row(m, &m->rows[i])) return false;
  return true;
}

static void release(maker *m) {
  tsr__map_release(&m->live);
  tsr__map_release(&m->newest);
  TSR__VECTOR_FREE(&m->older);
  TSR__VECTOR_FREE(&m->unlisted);
}

int tsr__flat_finish(tsr__flat *flat, tsr_error *error) {
  bool ok = true;
  tsr__flat_sort(flat);
  tsr__sort(flat->rows.items, flat->rows.count, sizeof *flat->rows.items, compare_devices);
  tsr__builder_warn(flat->builder, TSR__WARN_NO_SEGMENTS);
  for (size_t i = 0; ok && i < flat->rows.count;) {
    maker m = {.builder = flat->builder,
               .lists_all = flat->lists_all,
               .rows = flat->rows.items + i,
               .event = -1};
    while (i < flat->rows.count && flat->rows.items[i].device == m.rows[0].device) i++, m.count++;
    ok = make_device(&m);
    release(&m);
  }
  TSR__VECTOR_FREE(&flat->rows);
  return ok ? 0 : tsr__fail_memory(error);
}
