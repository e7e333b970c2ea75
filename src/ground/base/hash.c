/* hash.c - a table's seed, from the system's randomisation of addresses. */
#include "base/hash.h"

uint64_t tsr__hash_seed(const void *place) {
  static const char here = 0;
  return tsr__hash_u64(tsr__mix((uint64_t)(uintptr_t)place, (uint64_t)(uintptr_t)&here));
}
