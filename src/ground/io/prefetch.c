/* prefetch.c - reading the next window while a parser works on this one.
 *
 *   chunks:  [ room | consumed | tail ]    [ room | filled ..... ]    [ room | being read .. ]
 *                window of the parser                                      the thread's
 *
 * The thread fills a ring of chunks. When the parser asks for more, the tail it has not consumed (less
 * than one token) is copied into the room in front of the next chunk, and that is the new window: no
 * byte of the chunk is moved. A tail longer than the room goes, with the chunk, into a buffer of its
 * own. Either way the chunk of the old window goes back to the thread. One chunk is between the two
 * sides, so that neither waits for the other because of a chunk that took it longer than usual.
 *
 * Two semaphores count the chunks that the thread may fill (`empty`) and those that the parser may take
 * (`filled`). A chunk, with all its fields, belongs to one side at a time; nothing else is shared while
 * the thread runs but `stop`.
 *
 * Reading a chunk takes less time than parsing it, so the thread has some to spare, and takes over
 * what a parser does without noticing: the first write to each page of its tables stops it until
 * the system has found and cleared a page, which adds up to a tenth of all its time. Before it reads
 * the next chunk the thread asks for the pages that the parser has announced. */
#include <assert.h>
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

enum { CHUNKS_HELD = 3 };

/* A buffer of the ring. Between two posts it belongs to one side, with all its fields. */
typedef struct chunk {
  unsigned char *bytes; /* ROOM_BYTES + chunk_bytes */
  size_t size;          /* read into it, after the room */
  uint64_t stored_bytes;
  int status; /* of the read that ended the chunk */
  tsr_error error;
  bool is_last; /* the thread ends with this chunk */
  /* Memory to prepare before it is filled again. */
  tsr__region regions[TSR__REGIONS_MAX];
  size_t region_count;
} chunk;

struct tsr__prefetch {
  tsr__stream *stream; /* the source's */
  tsr__os_thread *thread;
  tsr__os_semaphore *empty, *filled; /* how many chunks are */
  chunk chunks[CHUNKS_HELD];
  size_t chunk_bytes;
  atomic_bool stop;
  /* The parser's: the next chunk to take, the one that the window is in (or NULL), and a window that
   * did not fit in one (or NULL). */
  size_t next;
  chunk *window;
  unsigned char *joined;
  /* Announced, and passed on with the chunk that goes back next. */
  tsr__region regions[TSR__REGIONS_MAX];
  size_t region_count;
};

/* Fill a chunk; short ones are the last ones. */
static void read_chunk(struct tsr__prefetch *p, chunk *c) {
  c->size = 0;
  c->is_last = false;
  while (c->size < p->chunk_bytes && !c->is_last) {
    ptrdiff_t got = tsr__stream_read(p->stream, c->bytes + ROOM_BYTES + c->size,
                                     p->chunk_bytes - c->size, &c->error);
    assert(got < 0 || (size_t)got <= p->chunk_bytes - c->size);
    c->status = got < 0 ? (int)got : 0;
    c->is_last = got <= 0;
    if (got > 0) c->size += (size_t)got;
  }
  assert(c->size == p->chunk_bytes || c->is_last);
  c->stored_bytes = tsr__stream_stored_bytes(p->stream);
}

static void read_on(void *context) {
  struct tsr__prefetch *p = context;
  chunk *c = NULL;
  for (size_t i = 0; !c || !c->is_last; i = (i + 1) % CHUNKS_HELD) {
    tsr__os_semaphore_wait(p->empty);
    if (p->stop) return;
    c = &p->chunks[i];
    /* Before it is read: the parser comes to these pages sooner than to these bytes. */
    for (size_t k = 0; k < c->region_count; k++)
      tsr__os_populate(c->regions[k].data, c->regions[k].size_bytes);
    read_chunk(p, c);
    tsr__os_semaphore_post(p->filled);
  }
}

static void release(struct tsr__prefetch *p) {
  tsr__os_semaphore_free(p->empty);
  tsr__os_semaphore_free(p->filled);
  for (size_t i = 0; i < CHUNKS_HELD; i++) tsr__free(p->chunks[i].bytes);
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

void tsr__input_read_ahead(tsr__input *source, uint64_t input_bytes) {
  struct tsr__prefetch *p = TSR__NEW(struct tsr__prefetch);
  if (!p) return;
  assert(source->stream && !source->ahead);
  p->stream = source->stream;
  p->chunk_bytes = chunk_of(input_bytes);
  p->empty = tsr__os_semaphore_new(CHUNKS_HELD);
  p->filled = tsr__os_semaphore_new(0);
  bool ok = p->empty && p->filled;
  for (size_t i = 0; ok && i < CHUNKS_HELD; i++)
    ok = (p->chunks[i].bytes = tsr__realloc(NULL, ROOM_BYTES + p->chunk_bytes, 1)) != NULL;
  if (ok) p->thread = tsr__os_thread_start(read_on, p);
  if (p->thread)
    source->ahead = p;
  else
    release(p);
}

void tsr__input_prepare(tsr__input *source, const tsr__region *regions, size_t count) {
  struct tsr__prefetch *p = source->ahead;
  assert(count <= TSR__REGIONS_MAX);
  if (!p) return;
  if (count) memcpy(p->regions, regions, count * sizeof *regions);
  p->region_count = count;
}

void tsr__input_settle(tsr__input *source) {
  if (source->ahead) end_thread(source->ahead);
}

/* Give a chunk back to the thread, in the order in which they were taken. */
static void give_back(struct tsr__prefetch *p, chunk *c) {
  if (!c) return;
  c->size = 0;
  memcpy(c->regions, p->regions, p->region_count * sizeof *p->regions);
  c->region_count = p->region_count;
  p->region_count = 0;
  tsr__os_semaphore_post(p->empty);
}

/* Put the tail and the chunk together where the room in front of the chunk is too small. */
static int join(struct tsr__prefetch *p, tsr__input *source, const chunk *c, tsr_error *error) {
  assert(source->size > ROOM_BYTES);
  unsigned char *joined = tsr__realloc(NULL, source->size + c->size, 1);
  if (!joined) return tsr__fail_memory(error);
  memcpy(joined, source->data, source->size);
  memcpy(joined + source->size, c->bytes + ROOM_BYTES, c->size);
  tsr__free(p->joined);
  p->joined = joined;
  source->data = joined;
  return 0;
}

/* The tail in front of a chunk, or both in a buffer of their own; then the window is there, and what
 * it was in before goes back. */
static int take(struct tsr__prefetch *p, tsr__input *source, chunk *c, tsr_error *error) {
  if (source->size > ROOM_BYTES) {
    int status = join(p, source, c, error);
    if (status) return status;
    give_back(p, p->window);
    give_back(p, c);
    p->window = NULL;
    return 0;
  }
  unsigned char *begin = c->bytes + ROOM_BYTES - source->size;
  if (source->size) memcpy(begin, source->data, source->size);
  source->data = begin;
  give_back(p, p->window);
  p->window = c;
  return 0;
}

int tsr__prefetch_fill(tsr__input *source, tsr_error *error) {
  struct tsr__prefetch *p = source->ahead;
  chunk *c = &p->chunks[p->next];
  if (p->thread) tsr__os_semaphore_wait(p->filled);
  if (c->status && !c->size) {
    if (error) *error = c->error;
    return c->status;
  }
  assert(c->size <= p->chunk_bytes && c != p->window);
  size_t size = c->size;
  bool is_last = c->is_last;
  source->stored_bytes = c->stored_bytes;
  source->at_end = is_last && !c->status;
  int status = take(p, source, c, error);
  if (status) return status;
  source->size += size;
  if (is_last) {
    end_thread(p);
    c->size = 0; /* if reading failed after these bytes, the next call reports it */
  } else {
    p->next = (p->next + 1) % CHUNKS_HELD;
  }
  return 0;
}
