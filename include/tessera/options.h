/* tessera/options.h - structs of options that may grow.
 *
 * The options of functions (tsr_open_options, tsr_query, tsr_report_options, ...) are structs that a
 * program fills. So that a later version of the library can add a field without breaking programs
 * that were built before, the first field of each is its size:
 *
 *   tsr_query query = TSR_OPTIONS_INIT(tsr_query);
 *   query.top = 10;
 *
 * All other fields are then 0, which always means the default; NULL in place of the struct means
 * that everything is default. In C, `tsr_query query = {.struct_bytes = sizeof query, .top = 10}` is the same.
 *
 * A struct that is smaller than the library's lacks the fields at its end: they are 0. A larger one is of a later
 * version: its excess must be 0, or the function fails with TSR_ERROR_ARGUMENT. A size of 0, as in
 * a zeroed struct, means the size that the library itself was built with. This is
 * for programs that are linked with the static library or are built with it; others
 * should set the size. */
#ifndef TESSERA_OPTIONS_H
#define TESSERA_OPTIONS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __cplusplus
#define TSR_OPTIONS_INIT(type)            \
  ([] {                                   \
    type options_ = type();               \
    options_.struct_bytes = sizeof(type); \
    return options_;                      \
  }())
#else
#define TSR_OPTIONS_INIT(type) ((type){.struct_bytes = sizeof(type)})
#endif

#ifdef __cplusplus
}
#endif
#endif
