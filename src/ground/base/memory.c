/* memory.c - see memory.h. */
#include "base/memory.h"

#include <stdlib.h>

#include "base/checked.h"

void *tsr__calloc(size_t count, size_t item_size) {
  size_t bytes;
  if (!tsr__mul_size(count, item_size, &bytes)) return NULL;
  return calloc(1, bytes ? bytes : 1);
}

void *tsr__realloc(void *items, size_t count, size_t item_size) {
  size_t bytes;
  if (!tsr__mul_size(count, item_size, &bytes)) return NULL;
  return realloc(items, bytes ? bytes : 1);
}

void tsr__free(void *items) {
  free(items);
}
