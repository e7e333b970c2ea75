/* addresses.c - where new segments lie.
 *
 * The model's own addresses grow upward from 0x7f0000000000, where drivers put theirs, in steps of
 * 2 MiB, and none is used twice: the result depends on the requests alone, and two segments can
 * never be confused. What others chose - seeds, and the caller's segment_address - is a sorted list
 * of ranges, which the model's own step over:
 *
 *   OWN_BASE [ own ... | range (seeded) | own ... ) next_address        | range |     | range |
 *
 * Invariant: ranges do not overlap, and none begins in what is own. Lists are short: finding is a
 * binary search, adding and dropping move what lies above. */
#include <string.h>

#include "allocator/allocator.h"

#define OWN_BASE  UINT64_C(0x7f0000000000)
#define ALIGNMENT (UINT64_C(2) << 20)
#define LIMIT     (UINT64_C(1) << 63) /* none that the model places reaches beyond */

static uint64_t aligned(uint64_t address) {
  return (address + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static uint64_t end_of(tsr__range range) {
  return range.address + range.size_bytes;
}

/* The first range that ends above an address. */
static size_t first_above(const tsr_allocator *a, uint64_t address) {
  size_t low = 0, high = a->ranges.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (end_of(a->ranges.items[middle]) > address)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static uint64_t own_end(const tsr_allocator *a) {
  return a->next_address ? a->next_address : OWN_BASE;
}

bool tsr__address_is_taken(const tsr_allocator *a, tsr__range range) {
  size_t i = first_above(a, range.address);
  if (i < a->ranges.count && a->ranges.items[i].address < end_of(range)) return true;
  return range.address < own_end(a) && end_of(range) > OWN_BASE;
}

/* The model's own choice, or 0. */
static uint64_t choose_own(const tsr_allocator *a, uint64_t size_bytes) {
  uint64_t at = own_end(a);
  for (size_t i = first_above(a, at); i < a->ranges.count && at <= LIMIT - size_bytes &&
                                      a->ranges.items[i].address < at + size_bytes;
       i++)
    at = aligned(end_of(a->ranges.items[i])); /* 0 at the very end of addresses: no room */
  return at > LIMIT - size_bytes ? 0 : at;
}

uint64_t tsr__address_choose(tsr_allocator *a, uint64_t size_bytes, bool *is_memory) {
  *is_memory = false;
  if (size_bytes > LIMIT / 2) return 0;
  uint64_t at = 0;
  if (a->options.segment_address)
    at = a->options.segment_address(a->options.segment_address_context, size_bytes);
  if (!at || at % TSR__MIN_BLOCK || at > UINT64_MAX - size_bytes ||
      tsr__address_is_taken(a, (tsr__range){at, size_bytes}))
    return choose_own(a, size_bytes);
  *is_memory = !TSR__VECTOR_RESERVE(&a->ranges, 1);
  return *is_memory ? 0 : at;
}

static void insert(tsr_allocator *a, tsr__range range) {
  size_t i = first_above(a, range.address), behind = a->ranges.count++ - i;
  memmove(a->ranges.items + i + 1, a->ranges.items + i, behind * sizeof *a->ranges.items);
  a->ranges.items[i] = range;
}

void tsr__address_take(tsr_allocator *a, tsr__range range) {
  if (range.address == choose_own(a, range.size_bytes))
    a->next_address = aligned(end_of(range));
  else
    insert(a, range);
}

bool tsr__address_note(tsr_allocator *a, tsr__range range) {
  if (!TSR__VECTOR_RESERVE(&a->ranges, 1)) return false;
  insert(a, range);
  return true;
}

tsr__range *tsr__address_find(tsr_allocator *a, uint64_t address) {
  size_t i = first_above(a, address);
  return i < a->ranges.count && a->ranges.items[i].address == address ? &a->ranges.items[i] : NULL;
}

void tsr__address_drop(tsr_allocator *a, uint64_t address) {
  tsr__range *range = tsr__address_find(a, address);
  if (!range) return;
  size_t behind = (size_t)(a->ranges.items + --a->ranges.count - range);
  memmove(range, range + 1, behind * sizeof *range);
}

uint64_t tsr__address_next(const tsr_allocator *a, uint64_t address) {
  size_t i = first_above(a, address);
  if (i < a->ranges.count && a->ranges.items[i].address < address) i++;
  return i < a->ranges.count ? a->ranges.items[i].address : UINT64_MAX;
}
