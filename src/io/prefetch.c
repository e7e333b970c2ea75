/* prefetch.c - reading the next window while a parser works on this one.
 *
 *   spare:  [ room | next chunk ............ ]     the thread reads into it
 *   window: [ room | consumed | tail ]             the parser's; both buffers change places
 *
 * When the parser asks for more, the tail it has not consumed (less than one token) is copied into
 * the room in front of the chunk, and that is the new window: no byte of the chunk is moved. A tail
 * longer than the room goes, with the chunk, into a buffer of its own, from which the next window
 * comes back.
 *
 * Two semaphores pass the spare buffer to and fro: `empty` says that the thread may fill it,
 * `filled` that the parser may have it. Nothing else is shared while the thread runs; `stop`,
 * `size`, `status` and the rest are written by one side before it posts and read by the other after
 * it waited. */
#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"
#include "base/os.h"
#include "io/source.h"

enum { ROOM_BYTES = 64 << 10 };

/* The longer the chunks, the fewer times one thread wakes the other, which costs some microseconds each; the
 * shorter, the less memory, and the sooner the parser begins. */
#define SHORTEST_CHUNK ((size_t)512 << 10)
#define LONGEST_CHUNK  ((size_t)2 << 20)
#define CHUNKS         128 /* as many in an input of middling size */

struct tsr__prefetch {
  tsr__stream *stream; /* the source's */
  tsr__os_thread *thread;
  tsr__os_semaphore *empty, *filled;
  unsigned char *spare, *window; /* ROOM_BYTES + chunk_bytes each */
  unsigned char *joined;         /* a window that did not fit, or NULL */
  size_t chunk_bytes;
  size_t size; /* of the chunk in `spare` */
  uint64_t stored_bytes;
  int status; /* of the read that ended the chunk */
  tsr_error error;
  bool is_last; /* the thread ends with this chunk */
  atomic_bool stop;
};

/* Fill the spare buffer; short chunks are the last ones. */
static void read_chunk(struct tsr__prefetch *p) {
  p->size = 0;
  p->is_last = false;
  while (p->size < p->chunk_bytes && !p->is_last) {
    ptrdiff_t got = tsr__stream_read(p->stream, p->spare + ROOM_BYTES + p->size,
                                     p->chunk_bytes - p->size, &p->error);
    p->status = got < 0 ? (int)got : 0;
    p->is_last = got <= 0;
    if (got > 0) p->size += (size_t)got;
  }
  p->stored_bytes = tsr__stream_stored_bytes(p->stream);
}

static void read_on(void *context) {
  struct tsr__prefetch *p = context;
  do {
    tsr__os_semaphore_wait(p->empty);
    if (p->stop) return;
    read_chunk(p);
    tsr__os_semaphore_post(p->filled);
  } while (!p->is_last);
}

static void release(struct tsr__prefetch *p) {
  tsr__os_semaphore_free(p->empty);
  tsr__os_semaphore_free(p->filled);
  tsr__free(p->spare);
  tsr__free(p->window);
  tsr__free(p->joined);
  tsr__free(p);
}

static void end_thread(struct tsr__prefetch *p) {
  if (!p->thread) return;
  p->stop = true;
  tsr__os_semaphore_post(p->empty);
  tsr__os_thread_join(p->thread);
  p->thread = NULL;
}

void tsr__prefetch_close(struct tsr__prefetch *ahead) {
  if (!ahead) return;
  end_thread(ahead);
  release(ahead);
}

static size_t chunk_of(uint64_t input_bytes) {
  uint64_t bytes = input_bytes / CHUNKS;
  if (bytes > LONGEST_CHUNK) return LONGEST_CHUNK;
  return bytes > SHORTEST_CHUNK ? (size_t)bytes : SHORTEST_CHUNK;
}

void tsr__source_read_ahead(tsr__source *source, uint64_t input_bytes) {
  struct tsr__prefetch *p = TSR__NEW(struct tsr__prefetch);
  if (!p) return;
  p->stream = source->stream;
  p->chunk_bytes = chunk_of(input_bytes);
  p->empty = tsr__os_semaphore_new(1);
  p->filled = tsr__os_semaphore_new(0);
  p->spare = tsr__realloc(NULL, ROOM_BYTES + p->chunk_bytes, 1);
  p->window = tsr__realloc(NULL, ROOM_BYTES + p->chunk_bytes, 1);
  if (p->empty && p->filled && p->spare && p->window) p->thread = tsr__os_thread_start(read_on, p);
  if (p->thread)
    source->ahead = p;
  else
    release(p);
}

void tsr__source_settle(tsr__source *source) {
  if (source->ahead) end_thread(source->ahead);
}

/* Put the tail and the chunk together where the room in front of the chunk is too small. */
static int join(struct tsr__prefetch *p, tsr__source *source, tsr_error *error) {
  unsigned char *joined = tsr__realloc(NULL, source->size + p->size, 1);
  if (!joined) return tsr__fail_memory(error);
  memcpy(joined, source->data, source->size);
  memcpy(joined + source->size, p->spare + ROOM_BYTES, p->size);
  tsr__free(p->joined);
  p->joined = joined;
  source->data = joined;
  return 0;
}

int tsr__prefetch_fill(tsr__source *source, tsr_error *error) {
  struct tsr__prefetch *p = source->ahead;
  if (p->thread) tsr__os_semaphore_wait(p->filled);
  if (p->status && !p->size) {
    if (error) *error = p->error;
    return p->status;
  }
  if (source->size <= ROOM_BYTES) {
    unsigned char *begin = p->spare + ROOM_BYTES - source->size;
    if (source->size) memcpy(begin, source->data, source->size);
    unsigned char *worked_on = p->window;
    p->window = p->spare;
    p->spare = worked_on;
    source->data = begin;
  } else {
    int status = join(p, source, error);
    if (status) return status;
  }
  source->size += p->size;
  source->at_end = p->is_last && !p->status;
  source->stored_bytes = p->stored_bytes;
  p->size = 0;
  if (p->is_last)
    end_thread(p);
  else
    tsr__os_semaphore_post(p->empty);
  return 0;
}
