/* buffer.c - see buffer.h. */
#include "base/buffer.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/vector.h"

static bool reserve(tsr__buffer *buffer, size_t extra) {
  if (!buffer->failed &&
      !tsr__vector_reserve(&buffer->data, buffer->size, &buffer->capacity, extra, 1))
    buffer->failed = true;
  assert(buffer->failed || extra <= buffer->capacity - buffer->size);
  return !buffer->failed;
}

void tsr__buffer_append(tsr__buffer *buffer, const void *data, size_t size_bytes) {
  if (!size_bytes || !reserve(buffer, size_bytes)) return;
  memcpy(buffer->data + buffer->size, data, size_bytes);
  buffer->size += size_bytes;
}

void tsr__buffer_text(tsr__buffer *buffer, const char *text) {
  tsr__buffer_append(buffer, text, strlen(text));
}

void tsr__buffer_fill(tsr__buffer *buffer, char byte, size_t count) {
  if (!count || !reserve(buffer, count)) return;
  memset(buffer->data + buffer->size, byte, count);
  buffer->size += count;
}

void tsr__buffer_printf(tsr__buffer *buffer, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (length < 0 || !reserve(buffer, (size_t)length + 1)) return;
  va_start(arguments, format);
  (void)vsnprintf(buffer->data + buffer->size, (size_t)length + 1, format, arguments);
  va_end(arguments);
  buffer->size += (size_t)length;
}

void tsr__buffer_release(tsr__buffer *buffer) {
  tsr__free(buffer->data);
  *buffer = (tsr__buffer){0};
}
