/* options.h - read a struct of options whose size its caller states (tessera/options.h). */
#ifndef TSR_BASE_OPTIONS_H
#define TSR_BASE_OPTIONS_H

#include <stddef.h>

#include "tessera/options.h"
#include "tessera/status.h"

/* Copy `given`, or nothing if it is NULL, into the zeroed `own` of `own_bytes`, whose first member is
 * its size_t struct_bytes; that becomes own_bytes. TSR_ERROR_ARGUMENT if `given` sets
 * what is not in `own`, or is smaller than its size. O(sizes). */
int tsr__options_read(const void *given, void *own, size_t own_bytes, tsr_error *error);

#endif
