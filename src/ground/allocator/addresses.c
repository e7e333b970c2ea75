/* addresses.c - where new segments are placed.
 *
 * The model's own addresses grow upward from 0x7f0000000000, where drivers put theirs, in steps of
 * 2 MiB, and none is used twice: the result depends on the requests alone, and two segments can
 * never be confused. Addresses that others chose (seeds, and the caller's segment_address) are an
 * ordered set of ranges, which the model's own addresses skip:
 *
 *   OWN_BASE [ own ... | range (seeded) | own ... ) next_address        | range |     | range |
 *
 * Invariant: ranges do not overlap, and none begins in what is own. */
#include <assert.h>

#include "allocator/allocator.h"

#define OWN_BASE  UINT64_C(0x7f0000000000)
#define ALIGNMENT (UINT64_C(2) << 20)
#define LIMIT     (UINT64_C(1) << 63) /* none that the model places reaches beyond */

static uint64_t aligned(uint64_t address) {
  return (address + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static uint64_t end_of(tsr__address_range range) {
  return range.address + range.size_bytes;
}

static uint64_t own_end(const tsr_allocator *a) {
  return a->next_address ? a->next_address : OWN_BASE;
}

bool tsr__address_is_taken(const tsr_allocator *a, tsr__address_range range) {
  if (tsr__ranges_overlap(&a->ranges, range.address, end_of(range)) != TSR__RANGE_NONE) return true;
  return range.address < own_end(a) && end_of(range) > OWN_BASE;
}

/* The model's own choice, or 0. */
static uint64_t choose_own(tsr_allocator *a, uint64_t size_bytes) {
  uint64_t at = own_end(a);
  uint32_t range;
  while (at && at <= LIMIT - size_bytes &&
         (range = tsr__ranges_overlap(&a->ranges, at, at + size_bytes)) != TSR__RANGE_NONE) {
    at = aligned(tsr__ranges_get(&a->ranges, range)->end); /* 0 at the very end: no room */
    a->steps++;
  }
  return at > LIMIT - size_bytes ? 0 : at;
}

uint64_t tsr__address_choose(tsr_allocator *a, uint64_t size_bytes, bool *is_memory) {
  *is_memory = false;
  if (size_bytes > LIMIT / 2) return 0;
  uint64_t at = 0;
  if (a->options.segment_address)
    at = a->options.segment_address(a->options.segment_address_context, size_bytes);
  if (!at || at % TSR__MIN_BLOCK || at > UINT64_MAX - size_bytes ||
      tsr__address_is_taken(a, (tsr__address_range){at, size_bytes})) {
    a->own_choice = choose_own(a, size_bytes);
    return a->own_choice;
  }
  a->own_choice = 0;
  *is_memory = !tsr__ranges_reserve(&a->ranges, 1);
  return *is_memory ? 0 : at;
}

void tsr__address_take(tsr_allocator *a, tsr__address_range range) {
  assert(range.address && range.size_bytes);
  if (range.address == a->own_choice)
    a->next_address = aligned(end_of(range));
  else
    (void)tsr__address_note(a, range);
}

bool tsr__address_note(tsr_allocator *a, tsr__address_range range) {
  return tsr__ranges_add(&a->ranges, 0, range.address, end_of(range), 0) != TSR__RANGE_NONE;
}

/* The range noted at exactly this address. */
static uint32_t find(const tsr_allocator *a, uint64_t address) {
  uint32_t range = tsr__ranges_last(&a->ranges, 0, address);
  if (range == TSR__RANGE_NONE || tsr__ranges_get(&a->ranges, range)->begin != address)
    return TSR__RANGE_NONE;
  return range;
}

void tsr__address_resize(tsr_allocator *a, tsr__address_range range) {
  uint32_t noted = find(a, range.address);
  if (noted != TSR__RANGE_NONE) tsr__ranges_move(&a->ranges, noted, range.address, end_of(range));
}

void tsr__address_drop(tsr_allocator *a, uint64_t address) {
  uint32_t noted = find(a, address);
  if (noted != TSR__RANGE_NONE) tsr__ranges_remove(&a->ranges, noted);
}

uint64_t tsr__address_next(const tsr_allocator *a, uint64_t address) {
  uint32_t range = tsr__ranges_first(&a->ranges, 0, address);
  return range == TSR__RANGE_NONE ? UINT64_MAX : tsr__ranges_get(&a->ranges, range)->begin;
}
