/* intern.c - a hash table of ids over an array of items.
 *
 *   slots: [0, 3, 0, 1, ...]  id + 1, probed linearly, at most half full
 *   items: [{data, size, hash}, ...] by id;  data in the arena
 *
 * With the stored hash, growth and most mismatches don't touch the strings. */
#include "base/intern.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/vector.h"

void tsr__intern_init(tsr__intern *table) {
  *table = (tsr__intern){0};
  tsr__arena_init(&table->arena);
}

void tsr__intern_release(tsr__intern *table) {
  tsr__arena_release(&table->arena);
  tsr__free(table->items);
  tsr__free(table->slots);
  tsr__intern_init(table);
}

static bool grow_slots(tsr__intern *table) {
  size_t size = table->slots ? ((size_t)table->mask + 1) * 2 : 64;
  if (size > UINT32_MAX) return false;
  uint32_t *slots = TSR__NEW_ARRAY(uint32_t, size);
  if (!slots) return false;
  if (!table->slots) table->seed = tsr__hash_seed(slots);
  for (uint32_t id = 0; id < table->count; id++) {
    size_t i = table->items[id].hash & (size - 1);
    while (slots[i]) i = (i + 1) & (size - 1);
    slots[i] = id + 1;
  }
  assert(table->count <= size / 2 + 1);
  tsr__free(table->slots);
  table->slots = slots;
  table->mask = (uint32_t)(size - 1);
  return true;
}

/* The slot that holds the string, or the empty one where it belongs. The table must have slots. */
static uint32_t *probe(const tsr__intern *table, const void *data, size_t size_bytes,
                       uint32_t hash) {
  for (uint32_t i = hash & table->mask;; i = (i + 1) & table->mask) {
    uint32_t *slot = &table->slots[i];
    if (!*slot) return slot;
    const tsr__interned *item = &table->items[*slot - 1];
    if (item->hash == hash && item->size_bytes == size_bytes &&
        (!size_bytes || memcmp(item->data, data, size_bytes) == 0))
      return slot;
  }
}

uint32_t tsr__intern_find(const tsr__intern *table, const void *data, size_t size_bytes) {
  if (!table->slots || size_bytes > UINT32_MAX) return TSR__INTERN_FULL;
  uint32_t hash = (uint32_t)tsr__hash_bytes(data, size_bytes, table->seed);
  uint32_t slot = *probe(table, data, size_bytes, hash);
  return slot ? slot - 1 : TSR__INTERN_FULL;
}

uint32_t tsr__intern_put(tsr__intern *table, const void *data, size_t size_bytes, bool *added) {
  if (added) *added = false;
  if (size_bytes > UINT32_MAX) return TSR__INTERN_FULL;
  if (!table->slots || table->count > table->mask / 2)
    if (!grow_slots(table)) return TSR__INTERN_FULL;
  uint32_t hash = (uint32_t)tsr__hash_bytes(data, size_bytes, table->seed);
  uint32_t *slot = probe(table, data, size_bytes, hash);
  if (*slot) return *slot - 1;
  if (table->count == TSR__INTERN_FULL - 1) return TSR__INTERN_FULL;
  if (table->count == table->capacity) {
    size_t larger = tsr__vector_growth(table->capacity, (size_t)table->count + 1);
    if (larger > UINT32_MAX) larger = UINT32_MAX;
    tsr__interned *items = tsr__realloc(table->items, larger, sizeof *items);
    if (!items) return TSR__INTERN_FULL;
    table->items = items;
    table->capacity = (uint32_t)larger;
  }
  const void *copy = tsr__arena_copy(&table->arena, data, size_bytes, 8);
  if (!copy) return TSR__INTERN_FULL;
  table->items[table->count] = (tsr__interned){copy, (uint32_t)size_bytes, hash};
  assert(table->count < table->capacity);
  *slot = ++table->count;
  table->bytes += size_bytes;
  if (added) *added = true;
  return table->count - 1;
}
