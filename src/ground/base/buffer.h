/* buffer.h - a growable run of bytes for building text. Zeroed is empty.
 *
 * A failed append marks the buffer (`failed`) and later appends do nothing, so a writer can append
 * freely and check once at the end. */
#ifndef TSR_BASE_BUFFER_H
#define TSR_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

typedef struct tsr__buffer {
  char *data; /* not terminated */
  size_t size, capacity;
  bool failed; /* out of memory; the content is a prefix of what was appended */
} tsr__buffer;

void tsr__buffer_append(tsr__buffer *buffer, const void *data, size_t size_bytes);
void tsr__buffer_text(tsr__buffer *buffer, const char *text); /* zero-terminated */
void tsr__buffer_printf(tsr__buffer *buffer, const char *format, ...) TSR__PRINTF(2, 3);
void tsr__buffer_fill(tsr__buffer *buffer, char byte, size_t count);
void tsr__buffer_release(tsr__buffer *buffer);

#endif
