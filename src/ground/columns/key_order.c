/* key_order.c - see key_order.h. */
#include "columns/key_order.h"

#include <assert.h>

const uint32_t *tsr__key_order_keys(const tsr_snapshot *snapshot, uint32_t order, size_t *count) {
  if (!order || order > snapshot->orders.count) return NULL;
  const tsr__interned *item = &snapshot->orders.items[order - 1];
  assert(item->size_bytes % sizeof(uint32_t) == 0);
  *count = item->size_bytes / sizeof(uint32_t);
  return (const void *)item->data;
}
