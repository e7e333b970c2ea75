/* stream.c - what all streams share, and the two that hold bytes themselves.
 *
 * A memory stream is the bottom of a stack over the caller's bytes: it copies pieces out, so that
 * decoders need not know where their input is. (A plain pickle in memory takes a shorter way:
 * tsr__input_memory, without any copy.)
 *
 * An ahead stream reads the first bytes of the stream below when it is opened, shows them to
 * detect.c, and delivers them again before it passes reads through:
 *
 *   bytes:  [ handed out | next ... size )   then straight from below, without a copy
 *
 * The bytes are released as soon as they are handed out. */
#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "io/source.h"

/* ---- all streams ---- */

ptrdiff_t tsr__stream_read(tsr__stream *stream, unsigned char *buffer, size_t size,
                           tsr_error *error) {
  ptrdiff_t got = stream->read(stream, buffer, size, error);
  if (got > 0) stream->delivered_bytes += (uint64_t)got;
  return got;
}

uint64_t tsr__stream_stored_bytes(const tsr__stream *stream) {
  while (stream->below) stream = stream->below;
  return stream->delivered_bytes;
}

uint32_t tsr__stream_more_payloads(const tsr__stream *stream) {
  uint32_t count = 0;
  for (; stream; stream = stream->below) count += stream->more_payloads;
  return count;
}

/* ---- memory ---- */

typedef struct memory_stream {
  tsr__stream base;
  const unsigned char *data; /* not owned; what is not read yet */
  size_t size;
} memory_stream;

static ptrdiff_t memory_read(tsr__stream *stream, unsigned char *buffer, size_t size,
                             tsr_error *error) {
  memory_stream *memory = (memory_stream *)stream;
  (void)error;
  assert(buffer || !size);
  if (size > memory->size) size = memory->size;
  if (!size) return 0;
  memcpy(buffer, memory->data, size);
  memory->data += size;
  memory->size -= size;
  return (ptrdiff_t)size;
}

static void memory_close(tsr__stream *stream) {
  tsr__free(stream);
}

int tsr__stream_memory(const void *data, size_t size_bytes, tsr__stream **out, tsr_error *error) {
  memory_stream *memory = TSR__NEW(memory_stream);
  if (!memory) return tsr__fail_memory(error);
  *memory = (memory_stream){
      .base = {.read = memory_read, .close = memory_close}, .data = data, .size = size_bytes};
  *out = &memory->base;
  return 0;
}

/* ---- ahead ---- */

typedef struct ahead_stream {
  tsr__stream base;
  unsigned char *bytes; /* owned; NULL once all are handed out */
  size_t size, next;
} ahead_stream;

static ptrdiff_t ahead_read(tsr__stream *stream, unsigned char *buffer, size_t size,
                            tsr_error *error) {
  ahead_stream *ahead = (ahead_stream *)stream;
  assert(ahead->next <= ahead->size);
  if (ahead->next < ahead->size) {
    size_t left = ahead->size - ahead->next;
    if (size > left) size = left;
    memcpy(buffer, ahead->bytes + ahead->next, size);
    ahead->next += size;
    return (ptrdiff_t)size;
  }
  tsr__free(ahead->bytes);
  ahead->bytes = NULL;
  ptrdiff_t got = tsr__stream_read(stream->below, buffer, size, error);
  if (got == 0) stream->ending = stream->below->ending;
  return got;
}

static ptrdiff_t ahead_read_at(tsr__stream *stream, uint64_t offset, unsigned char *buffer,
                               size_t size, tsr_error *error) {
  return stream->below->read_at(stream->below, offset, buffer, size, error);
}

static void ahead_close(tsr__stream *stream) {
  stream->below->close(stream->below);
  tsr__free(((ahead_stream *)stream)->bytes);
  tsr__free(stream);
}

/* Read until `wanted` bytes are there or the input ends: a pipe gives what it has. */
static int look_ahead(ahead_stream *ahead, size_t wanted, tsr_error *error) {
  while (ahead->size < wanted) {
    ptrdiff_t got = tsr__stream_read(ahead->base.below, ahead->bytes + ahead->size,
                                     wanted - ahead->size, error);
    if (got < 0) return (int)got;
    if (got == 0) break;
    ahead->size += (size_t)got;
    assert(ahead->size <= wanted);
  }
  return 0;
}

int tsr__stream_ahead(tsr__stream *below, size_t wanted, tsr__stream **out,
                      const unsigned char **bytes, size_t *size, tsr_error *error) {
  ahead_stream *ahead = TSR__NEW(ahead_stream);
  if (!ahead) {
    below->close(below);
    return tsr__fail_memory(error);
  }
  ahead->base = (tsr__stream){.read = ahead_read,
                              .close = ahead_close,
                              .read_at = below->read_at ? ahead_read_at : NULL,
                              .below = below};
  ahead->bytes = tsr__realloc(NULL, wanted, 1);
  int status = ahead->bytes ? look_ahead(ahead, wanted, error) : tsr__fail_memory(error);
  if (status) {
    ahead_close(&ahead->base);
    return status;
  }
  *out = &ahead->base;
  *bytes = ahead->bytes;
  *size = ahead->size;
  return 0;
}
