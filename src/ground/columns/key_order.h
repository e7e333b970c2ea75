/* key_order.h - the order in which a dict had its keys, for writers that keep it.
 *
 * Besides a row's keys, its shape has 12 bits for the number of an order. Orders are interned, since
 * a file has few. 0 means known keys in the order of schema.h and no others; n is the n-th array of
 * string ids in snapshot->orders. If a file has more orders than fit, or a dict has too many keys,
 * the number is 0 as well and the order is lost. */
#ifndef TSR_COLUMNS_KEY_ORDER_H
#define TSR_COLUMNS_KEY_ORDER_H

#include "columns/tables.h"

enum { TSR__ORDER_KEYS = 64, TSR__ORDER_LIMIT = 4095 };

/* The bits of the number in a shape: of an event (32 bits), and of any other row. */
#define TSR__EVENT_ORDER_SHIFT 12
#define TSR__ROW_ORDER_SHIFT   40
#define TSR__EVENT_ORDER_BITS  ((uint32_t)TSR__ORDER_LIMIT << TSR__EVENT_ORDER_SHIFT)
#define TSR__ROW_ORDER_BITS    ((uint64_t)TSR__ORDER_LIMIT << TSR__ROW_ORDER_SHIFT)

/* The keys of an order, `*count` of them; NULL for 0. */
const uint32_t *tsr__key_order_keys(const tsr_snapshot *snapshot, uint32_t order, size_t *count);

#endif
