/* arena.c - a list of chunks, each twice the last up to a bound.
 *
 *   chunks -> [header | used ... | next    end]  -> [header | used ............] -> NULL
 *
 * A request larger than a chunk gets its own chunk after the current one, so the room left in
 * the current chunk is not lost. */
#include "base/arena.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"

#if defined(__SANITIZE_ADDRESS__)
#define TSR__ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TSR__ASAN 1
#endif
#endif
#ifdef TSR__ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size)   ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

enum { FIRST_CHUNK = 4096, LARGEST_CHUNK = 1 << 20 };

struct tsr__arena_chunk {
  tsr__arena_chunk *older;
  size_t size_bytes;
  _Alignas(16) unsigned char data[];
};

void tsr__arena_init(tsr__arena *arena) {
  *arena = (tsr__arena){.chunk_bytes = FIRST_CHUNK};
}

void tsr__arena_release(tsr__arena *arena) {
  for (tsr__arena_chunk *chunk = arena->chunks; chunk;) {
    tsr__arena_chunk *older = chunk->older;
    ASAN_UNPOISON_MEMORY_REGION(chunk->data, chunk->size_bytes);
    tsr__free(chunk);
    chunk = older;
  }
  tsr__arena_init(arena);
}

static tsr__arena_chunk *new_chunk(tsr__arena *arena, size_t size_bytes) {
  if (size_bytes > SIZE_MAX - sizeof(tsr__arena_chunk)) return NULL;
  tsr__arena_chunk *chunk = tsr__realloc(NULL, sizeof *chunk + size_bytes, 1);
  if (!chunk) return NULL;
  chunk->size_bytes = size_bytes;
  arena->total_bytes += sizeof *chunk + size_bytes;
  ASAN_POISON_MEMORY_REGION(chunk->data, size_bytes);
  return chunk;
}

/* Serve a large request from its own chunk, inserted after the current one. */
static void *alloc_alone(tsr__arena *arena, size_t size_bytes) {
  tsr__arena_chunk *chunk = new_chunk(arena, size_bytes);
  if (!chunk) return NULL;
  if (arena->chunks) {
    chunk->older = arena->chunks->older;
    arena->chunks->older = chunk;
  } else {
    chunk->older = NULL;
    arena->chunks = chunk;
    arena->next = arena->end = chunk->data + size_bytes;
  }
  ASAN_UNPOISON_MEMORY_REGION(chunk->data, size_bytes);
  return chunk->data;
}

void *tsr__arena_alloc(tsr__arena *arena, size_t size_bytes, size_t alignment) {
  assert(alignment && alignment <= 16 && !(alignment & (alignment - 1)));
  size_t padding = (size_t)(-(uintptr_t)arena->next & (alignment - 1));
  size_t room = (size_t)(arena->end - arena->next);
  if (padding > room || size_bytes > room - padding || !arena->next) {
    if (!arena->chunk_bytes) arena->chunk_bytes = FIRST_CHUNK;
    if (size_bytes > arena->chunk_bytes / 4) return alloc_alone(arena, size_bytes);
    tsr__arena_chunk *chunk = new_chunk(arena, arena->chunk_bytes);
    if (!chunk) return NULL;
    chunk->older = arena->chunks;
    arena->chunks = chunk;
    arena->next = chunk->data;
    arena->end = chunk->data + arena->chunk_bytes;
    if (arena->chunk_bytes < LARGEST_CHUNK) arena->chunk_bytes *= 2;
    padding = 0;
  }
  unsigned char *result = arena->next + padding;
  assert(result + size_bytes <= arena->end && ((uintptr_t)result & (alignment - 1)) == 0);
  arena->next = result + size_bytes;
  ASAN_UNPOISON_MEMORY_REGION(result, size_bytes);
  return result;
}

void *tsr__arena_copy(tsr__arena *arena, const void *data, size_t size_bytes, size_t alignment) {
  void *copy = tsr__arena_alloc(arena, size_bytes, alignment);
  if (copy && size_bytes) memcpy(copy, data, size_bytes);
  return copy;
}
