/* json_load.h - a small JSON text as jansson's values, with running out of memory as its own error.
 *
 * For texts that users write: rules, model descriptions, sidecars. Snapshots have their own reader. */
#ifndef TSR_BASE_JSON_LOAD_H
#define TSR_BASE_JSON_LOAD_H

#include <jansson.h>

#include "base/error.h"

/* Parse an object or an array; `flags` are jansson's. On success the caller owns `*out`. Fails with
 * TSR_ERROR_MEMORY, or with TSR_ERROR_FORMAT: the message is "`what`: ...", or "line 3: ..." if
 * `what` is NULL, and the offset that of the place. Thread safe. */
int tsr__json_load(const char *text, size_t size_bytes, size_t flags, const char *what,
                   json_t **out, tsr_error *error);

#endif
