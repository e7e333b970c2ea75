/* memory.h - the only place that multiplies a count by a size and allocates memory.
 *
 * All memory of the library comes from here, so the out-of-memory tests (tests/oom) have a single
 * place to make fail. NULL always means "out of memory"; a count of 0 still returns a pointer that may
 * be freed. */
#ifndef TSR_BASE_MEMORY_H
#define TSR_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* `count` items of `item_size` bytes, zeroed. NULL if out of memory or the product overflows. */
void *tsr__calloc(size_t count, size_t item_size);
/* Resize to `count` items; new bytes are undefined. On failure returns NULL and leaves `items`
 * valid. */
void *tsr__realloc(void *items, size_t count, size_t item_size);
/* NULL is fine. */
void tsr__free(void *items);

#define TSR__NEW(type)              ((type *)tsr__calloc(1, sizeof(type)))
#define TSR__NEW_ARRAY(type, count) ((type *)tsr__calloc((count), sizeof(type)))

#endif
