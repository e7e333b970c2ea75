/* map.h - a hash map from 64-bit keys to 64-bit values, for device addresses and similar keys.
 *
 * Open addressing with linear probing, at most 5/8 full; one key (TSR__MAP_EMPTY) is reserved for
 * empty slots and stored separately, so that every key may be used. Amortised O(1). */
#ifndef TSR_BASE_MAP_H
#define TSR_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

#define TSR__MAP_EMPTY UINT64_MAX

typedef struct tsr__map_slot {
  uint64_t key, value;
} tsr__map_slot;

/* Invariants: mask + 1 is a power of two or slots is NULL; count <= (mask + 1) * 5 / 8. */
typedef struct tsr__map {
  tsr__map_slot *slots;
  size_t mask, count; /* count excludes the reserved key */
  uint64_t seed;      /* of the hash; set with the first slots */
  bool has_reserved;
  uint64_t reserved_value;
} tsr__map;

/* A zeroed map is empty. Release its memory; the map is empty again. */
void tsr__map_release(tsr__map *map);

/* Remove a key; does nothing if it is absent. Amortised O(1): later keys of its run move up.
 */
void tsr__map_remove(tsr__map *map, uint64_t key);

/* Double the table; for tsr__map_put. */
bool tsr__map_grow(tsr__map *map);

/* The slot at which the search for a key begins. */
static inline size_t tsr__map_home(const tsr__map *map, uint64_t key) {
  return (size_t)tsr__hash_u64(key ^ map->seed) & map->mask;
}

/* The address of the value for `key`, or NULL if the key is absent. Valid until the next put. */
static inline uint64_t *tsr__map_find(tsr__map *map, uint64_t key) {
  if (key == TSR__MAP_EMPTY) return map->has_reserved ? &map->reserved_value : NULL;
  if (!map->slots) return NULL;
  for (size_t i = tsr__map_home(map, key);; i = (i + 1) & map->mask) {
    if (map->slots[i].key == key) return &map->slots[i].value;
    if (map->slots[i].key == TSR__MAP_EMPTY) return NULL;
  }
}

/* The address of the value for `key`, added with `initial` if it was absent; `*added` (unless NULL)
 * is whether it was. NULL if out of memory. Valid until the next put. */
static inline uint64_t *tsr__map_put(tsr__map *map, uint64_t key, uint64_t initial, bool *added) {
  if (added) *added = false;
  if (key == TSR__MAP_EMPTY) {
    if (!map->has_reserved) {
      map->has_reserved = true;
      map->reserved_value = initial;
      if (added) *added = true;
    }
    return &map->reserved_value;
  }
  if (!map->slots || map->count >= (map->mask + 1) / 8 * 5) {
    uint64_t *present = tsr__map_find(map, key);
    if (present) return present;
    if (!tsr__map_grow(map)) return NULL;
  }
  size_t i = tsr__map_home(map, key);
  while (map->slots[i].key != key && map->slots[i].key != TSR__MAP_EMPTY) i = (i + 1) & map->mask;
  if (map->slots[i].key != key) {
    map->slots[i] = (tsr__map_slot){key, initial};
    map->count++;
    if (added) *added = true;
  }
  return &map->slots[i].value;
}

#endif
