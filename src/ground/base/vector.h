/* vector.h - growable arrays of any type.
 *
 *   TSR__VECTOR(uint32_t) ids = {0};
 *   if (!TSR__VECTOR_PUSH(&ids, 7)) out of memory;
 *   ids.items[0], ids.count
 *   TSR__VECTOR_FREE(&ids);
 *
 * Invariant: count <= capacity; items holds `capacity` items, or is NULL when capacity is 0.
 * Growth is by half again, so pushing is amortised O(1); large arrays grow in place where the
 * system's allocator can remap pages. */
#ifndef TSR_BASE_VECTOR_H
#define TSR_BASE_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/memory.h"

#define TSR__VECTOR(type)   \
  struct {                  \
    type *items;            \
    size_t count, capacity; \
  }

/* The capacity to grow to so that `needed` items fit; saturates instead of overflowing. */
static inline size_t tsr__vector_growth(size_t capacity, size_t needed) {
  size_t larger = capacity + capacity / 2 + 16;
  return larger < capacity || larger < needed ? needed : larger;
}

/* Make room for `extra` more items after `count`. If out of memory, returns false and changes nothing.
 * `items_place` is the address of the array's pointer, of whatever type: the pointer is copied in
 * and out, because a pointer of one type may not be written through another. */
static inline bool tsr__vector_reserve(void *items_place, size_t count, size_t *capacity,
                                       size_t extra, size_t item_size) {
  if (extra <= *capacity - count) return true;
  if (extra > (size_t)-1 - count) return false;
  size_t larger = tsr__vector_growth(*capacity, count + extra);
  void *items;
  memcpy(&items, items_place, sizeof items);
  void *moved = tsr__realloc(items, larger, item_size);
  if (!moved) return false;
  memcpy(items_place, &moved, sizeof moved);
  *capacity = larger;
  return true;
}

#define TSR__VECTOR_RESERVE(vector, extra)                                             \
  tsr__vector_reserve(&(vector)->items, (vector)->count, &(vector)->capacity, (extra), \
                      sizeof *(vector)->items)

#define TSR__VECTOR_PUSH(vector, ...)                                                          \
  (TSR__VECTOR_RESERVE(vector, 1) ? ((vector)->items[(vector)->count++] = (__VA_ARGS__), true) \
                                  : false)

#define TSR__VECTOR_FREE(vector) \
  (tsr__free((vector)->items), (vector)->items = NULL, (vector)->count = (vector)->capacity = 0)

#endif
