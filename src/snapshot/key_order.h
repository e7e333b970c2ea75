/* key_order.h - in which order a dict had its keys, for writers that give the order back.
 *
 * A row's shape is the set of its keys; 12 further bits of it are the number of an order. Orders are
 * interned, since a file has few: 0 stands for known keys in the order of schema.h and nothing else,
 * and n for the n-th array of string ids in snapshot->orders. Where a file has more than fit, or a
 * dict has very many keys, 0 says that the order is not known. */
#ifndef TSR_SNAPSHOT_KEY_ORDER_H
#define TSR_SNAPSHOT_KEY_ORDER_H

#include "snapshot/tables.h"

enum { TSR__ORDER_KEYS = 64, TSR__ORDER_LIMIT = 4095 };

/* Where the number stands in shapes: of events (32 bits), and of everything else. */
#define TSR__EVENT_ORDER_SHIFT 12
#define TSR__ROW_ORDER_SHIFT   40
#define TSR__EVENT_ORDER_BITS  ((uint32_t)TSR__ORDER_LIMIT << TSR__EVENT_ORDER_SHIFT)
#define TSR__ROW_ORDER_BITS    ((uint64_t)TSR__ORDER_LIMIT << TSR__ROW_ORDER_SHIFT)

/* The number of the order of a dict's keys; keys that are no text are passed over. */
int tsr__key_order(tsr_snapshot *snapshot, const tsr__value *pairs, size_t value_count,
                   uint32_t *order, tsr_error *error);
/* The same for `count` known keys; TSR_NONE when out of memory. */
uint32_t tsr__key_order_of_ids(tsr_snapshot *snapshot, const uint32_t *keys, size_t count);
/* The keys of an order, `*count` of them; NULL where it is 0. */
const uint32_t *tsr__key_order_keys(const tsr_snapshot *snapshot, uint32_t order, size_t *count);

#endif
