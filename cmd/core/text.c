/* text.c - a text that grows. The streams that print into it are the system's (system.h). */
#include <stdlib.h>
#include <string.h>

#include "output.h"

int cli_text_append(void *context, const char *data, size_t size_bytes) {
  cli_text *text = context;
  size_t needed = text->size + size_bytes + 1;
  if (needed > text->capacity && !text->is_lost) {
    char *larger = realloc(text->data, 2 * needed);
    text->is_lost = !larger;
    if (larger) text->data = larger;
    if (larger) text->capacity = 2 * needed;
  }
  if (text->is_lost) return -1;
  memcpy(text->data + text->size, data, size_bytes);
  text->size += size_bytes;
  text->data[text->size] = '\0';
  return 0;
}
