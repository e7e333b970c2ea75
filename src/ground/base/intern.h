/* intern.h - equal byte strings get one 32-bit id, assigned from 0 in order of first appearance.
 *
 * The table copies the strings. Ids and pointers stay valid until release. It is used for
 * strings (bytes of text), frames (their struct) and stacks (their array of frame ids). Not thread
 * safe. */
#ifndef TSR_BASE_INTERN_H
#define TSR_BASE_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

#define TSR__INTERN_FULL UINT32_MAX

typedef struct tsr__interned {
  const unsigned char *data;
  uint32_t size_bytes;
  uint32_t hash;
} tsr__interned;

/* Invariants: count <= capacity; slots (mask + 1 of them, a power of two) hold id + 1 or 0. */
typedef struct tsr__intern {
  tsr__arena arena;
  tsr__interned *items; /* by id */
  uint32_t count, capacity;
  uint32_t *slots;
  uint32_t mask;
  uint64_t seed;  /* of the hash; set with the first slots */
  uint64_t bytes; /* of all items together */
} tsr__intern;

void tsr__intern_init(tsr__intern *table);
/* A zeroed table is fine. */
void tsr__intern_release(tsr__intern *table);

/* The id of the string, added if new; `*added` (unless NULL) is whether it was. Returns
 * TSR__INTERN_FULL if out of memory, out of ids, or the string is longer than 4 GiB. Amortised
 * O(size_bytes). */
uint32_t tsr__intern_put(tsr__intern *table, const void *data, size_t size_bytes, bool *added);
/* The id, or TSR__INTERN_FULL if the string was never added. */
uint32_t tsr__intern_find(const tsr__intern *table, const void *data, size_t size_bytes);

#endif
