/* map.c - growth of the table in map.h; the probes are inline there, for hot loops. */
#include "base/map.h"

#include <assert.h>

#include "base/memory.h"

void tsr__map_release(tsr__map *map) {
  tsr__free(map->slots);
  *map = (tsr__map){0};
}

bool tsr__map_grow(tsr__map *map) {
  size_t size = map->slots ? (map->mask + 1) * 2 : 64;
  if (size < map->mask) return false;
  tsr__map_slot *slots = tsr__realloc(NULL, size, sizeof *slots);
  if (!slots) return false;
  for (size_t i = 0; i < size; i++) slots[i] = (tsr__map_slot){TSR__MAP_EMPTY, 0};
  assert(!(size & (size - 1)) && (!map->slots || map->count <= map->mask));
  tsr__map larger = *map;
  if (!map->slots) larger.seed = tsr__hash_seed(slots);
  larger.slots = slots;
  larger.mask = size - 1;
  for (size_t i = 0; map->slots && i <= map->mask; i++) {
    if (map->slots[i].key == TSR__MAP_EMPTY) continue;
    size_t j = tsr__map_home(&larger, map->slots[i].key);
    while (slots[j].key != TSR__MAP_EMPTY) j = (j + 1) & larger.mask;
    slots[j] = map->slots[i];
  }
  tsr__free(map->slots);
  *map = larger;
  return true;
}

void tsr__map_remove(tsr__map *map, uint64_t key) {
  if (key == TSR__MAP_EMPTY) map->has_reserved = false;
  if (key == TSR__MAP_EMPTY || !map->slots) return;
  size_t hole = tsr__map_home(map, key);
  while (map->slots[hole].key != key) {
    if (map->slots[hole].key == TSR__MAP_EMPTY) return;
    hole = (hole + 1) & map->mask;
  }
  /* A later key of the run may move into the hole if its own slot is not between the two. */
  for (size_t i = (hole + 1) & map->mask; map->slots[i].key != TSR__MAP_EMPTY;
       i = (i + 1) & map->mask) {
    size_t home = tsr__map_home(map, map->slots[i].key);
    if (((i - home) & map->mask) < ((i - hole) & map->mask)) continue;
    map->slots[hole] = map->slots[i];
    hole = i;
  }
  assert(map->count);
  map->slots[hole].key = TSR__MAP_EMPTY;
  map->count--;
}
