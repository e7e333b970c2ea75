/* arena.h - memory that is released all at once.
 *
 *   tsr__arena arena;
 *   tsr__arena_init(&arena);
 *   thing *t = tsr__arena_alloc(&arena, sizeof *t, _Alignof(thing));
 *   tsr__arena_release(&arena);
 *
 * Pointers stay valid until release. Under AddressSanitizer, bytes not handed out are poisoned.
 * Not thread safe. */
#ifndef TSR_BASE_ARENA_H
#define TSR_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

typedef struct tsr__arena_chunk tsr__arena_chunk;

/* Invariant: chunks == NULL ? next == end == NULL : next <= end, both inside chunks. */
typedef struct tsr__arena {
  tsr__arena_chunk *chunks; /* newest first */
  unsigned char *next, *end;
  size_t chunk_bytes; /* size of the next chunk */
  size_t total_bytes; /* allocated in total, for limits */
} tsr__arena;

void tsr__arena_init(tsr__arena *arena);
/* Release everything; the arena is as after init. A zeroed arena is fine. */
void tsr__arena_release(tsr__arena *arena);

/* `size_bytes` undefined bytes at `alignment` (a power of two up to 16). NULL if out of memory; a
 * size of 0 returns a valid pointer. Amortised O(1). */
void *tsr__arena_alloc(tsr__arena *arena, size_t size_bytes, size_t alignment);
/* A copy of `size_bytes` bytes, or NULL when out of memory. */
void *tsr__arena_copy(tsr__arena *arena, const void *data, size_t size_bytes, size_t alignment);

#endif
