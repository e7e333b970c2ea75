/* source.c - the sliding window of source.h.
 *
 * Filling moves what is kept to the front of the buffer and reads behind it. Parsers keep little
 * (less than one token), so the move is small against the read; the buffer only grows when one
 * token is longer than the whole window. The window is sized to stay in the second-level cache: the
 * parser then finds there what the read just wrote. */
#include "io/source.h"

#include <string.h>

#include "base/memory.h"

enum { WINDOW_BYTES = 512 << 10 };

int tsr__source_open(tsr__source *source, tsr__stream *stream, tsr_error *error) {
  return tsr__source_open_sized(source, stream, WINDOW_BYTES, error);
}

int tsr__source_open_sized(tsr__source *source, tsr__stream *stream, size_t window_bytes,
                           tsr_error *error) {
  unsigned char *buffer = tsr__realloc(NULL, window_bytes, 1);
  if (!buffer) {
    stream->close(stream);
    return tsr__fail_memory(error);
  }
  *source =
      (tsr__source){.data = buffer, .buffer = buffer, .capacity = window_bytes, .stream = stream};
  return 0;
}

void tsr__source_memory(tsr__source *source, const void *data, size_t size_bytes) {
  *source = (tsr__source){.data = data, .size = size_bytes, .at_end = true};
}

void tsr__source_close(tsr__source *source) {
  tsr__prefetch_close(source->ahead);
  if (source->stream) source->stream->close(source->stream);
  tsr__free(source->buffer);
  *source = (tsr__source){0};
}

int tsr__source_fill(tsr__source *source, size_t consumed, tsr_error *error) {
  source->data += consumed;
  source->size -= consumed;
  source->offset += consumed;
  if (source->at_end || !source->stream) return 0;
  if (source->ahead) return tsr__prefetch_fill(source, error);
  if (source->size > source->capacity / 2) {
    unsigned char *larger = tsr__realloc(NULL, source->capacity, 2);
    if (!larger) return tsr__fail_memory(error);
    memcpy(larger, source->data, source->size);
    tsr__free(source->buffer);
    source->buffer = larger;
    source->capacity *= 2;
  } else {
    memmove(source->buffer, source->data, source->size);
  }
  source->data = source->buffer;
  ptrdiff_t got = tsr__stream_read(source->stream, source->buffer + source->size,
                                   source->capacity - source->size, error);
  if (got < 0) return (int)got;
  source->size += (size_t)got;
  source->at_end = got == 0;
  source->stored_bytes = tsr__stream_stored_bytes(source->stream);
  return 0;
}
