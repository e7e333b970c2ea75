/* source.c - the sliding window of source.h.
 *
 * Filling moves what is kept to the front of the buffer and reads after it. Parsers keep little
 * (less than one token), so the move is small against the read; the buffer only grows when one
 * token is longer than the whole window. The window is sized to stay in the second-level cache: the
 * parser then finds there what the read just wrote. */
#include "io/source.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"

enum { WINDOW_BYTES = 512 << 10 };

int tsr__input_open(tsr__input *source, tsr__stream *stream, tsr_error *error) {
  return tsr__input_open_sized(source, stream, WINDOW_BYTES, error);
}

int tsr__input_open_sized(tsr__input *source, tsr__stream *stream, size_t window_bytes,
                          tsr_error *error) {
  assert(stream && window_bytes >= 2);
  unsigned char *buffer = tsr__realloc(NULL, window_bytes, 1);
  if (!buffer) {
    stream->close(stream);
    return tsr__fail_memory(error);
  }
  *source =
      (tsr__input){.data = buffer, .buffer = buffer, .capacity = window_bytes, .stream = stream};
  return 0;
}

void tsr__input_memory(tsr__input *source, const void *data, size_t size_bytes) {
  assert(data || !size_bytes);
  *source =
      (tsr__input){.data = data, .size = size_bytes, .at_end = true, .input_bytes = size_bytes};
}

void tsr__input_close(tsr__input *source) {
  tsr__prefetch_close(source->ahead);
  if (source->stream) source->stream->close(source->stream);
  tsr__free(source->buffer);
  *source = (tsr__input){0};
}

int tsr__input_fill(tsr__input *source, size_t consumed, tsr_error *error) {
  assert(consumed <= source->size);
  source->data += consumed;
  source->size -= consumed;
  source->offset += consumed;
  if (source->at_end || !source->stream) return 0;
  if (source->ahead) return tsr__prefetch_fill(source, error);
  assert(source->data >= source->buffer && source->size <= source->capacity);
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
  assert((size_t)got <= source->capacity - source->size);
  source->size += (size_t)got;
  source->at_end = got == 0;
  source->stored_bytes = tsr__stream_stored_bytes(source->stream);
  return 0;
}
