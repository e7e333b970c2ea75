/* key_order.c - see key_order.h. */
#include "snapshot/key_order.h"

uint32_t tsr__key_order_of_ids(tsr_snapshot *snapshot, const uint32_t *keys, size_t count) {
  size_t size_bytes = count * sizeof *keys;
  uint32_t id = tsr__intern_find(&snapshot->orders, keys, size_bytes);
  if (id != TSR__INTERN_FULL) return id + 1;
  if (snapshot->orders.count >= TSR__ORDER_LIMIT) return 0;
  id = tsr__intern_put(&snapshot->orders, keys, size_bytes, NULL);
  return id == TSR__INTERN_FULL ? TSR_NONE : id + 1;
}

/* A key that the dict has twice stands where it was first, as in Python. */
static bool is_repeated(const uint32_t *keys, size_t count, uint32_t key) {
  for (size_t i = 0; i < count; i++)
    if (keys[i] == key) return true;
  return false;
}

int tsr__key_order(tsr_snapshot *snapshot, const tsr__value *pairs, size_t value_count,
                   uint32_t *order, tsr_error *error) {
  uint32_t keys[TSR__ORDER_KEYS], previous = 0;
  size_t count = 0;
  bool is_plain = true;
  *order = 0;
  for (size_t i = 0; i < value_count; i += 2) {
    if (pairs[i].tag != TSR__STRING) continue;
    uint32_t key = pairs[i].id;
    bool is_next = key < TSR__KEY_COUNT && (count == 0 || key > previous);
    is_plain = is_plain && is_next;
    if (!is_plain && is_repeated(keys, count, key)) continue;
    if (count == TSR__ORDER_KEYS) return 0;
    keys[count++] = previous = key;
  }
  if (is_plain) return 0;
  uint32_t found = tsr__key_order_of_ids(snapshot, keys, count);
  if (found == TSR_NONE) return tsr__fail_memory(error);
  *order = found;
  return 0;
}

const uint32_t *tsr__key_order_keys(const tsr_snapshot *snapshot, uint32_t order, size_t *count) {
  if (!order || order > snapshot->orders.count) return NULL;
  const tsr__interned *item = &snapshot->orders.items[order - 1];
  *count = item->size_bytes / sizeof(uint32_t);
  return (const void *)item->data;
}
