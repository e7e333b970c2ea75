/* options.c - read a struct of options whose size its caller states. */
#include "base/options.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"

int tsr__options_read(const void *given, void *own, size_t own_bytes, tsr_error *error) {
  size_t given_bytes = 0;
  assert(own && own_bytes >= sizeof given_bytes);
  memset(own, 0, own_bytes);
  if (given) memcpy(&given_bytes, given, sizeof given_bytes);
  if (given && given_bytes == 0) given_bytes = own_bytes;
  if (given && given_bytes < sizeof given_bytes)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "a struct of options cannot have a size of %zu bytes", given_bytes);
  for (size_t i = own_bytes; i < given_bytes; i++)
    if (((const unsigned char *)given)[i])
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "an option is set that this version of the library does not have (byte %zu "
                       "of a struct of %zu, of which it knows %zu)",
                       i, given_bytes, own_bytes);
  if (given) memcpy(own, given, given_bytes < own_bytes ? given_bytes : own_bytes);
  memcpy(own, &own_bytes, sizeof own_bytes);
  return 0;
}
