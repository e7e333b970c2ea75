/* tessera/unstable/json.h - a JSON text as jansson's values, with running out of memory as its own error. */
#ifndef TESSERA_UNSTABLE_JSON_H
#define TESSERA_UNSTABLE_JSON_H

#include <stddef.h>

#include "tessera/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* jansson's json_t. */
struct json_t;

/* Parse an object or an array, as json_loadb of jansson does; `flags` are JSON_REJECT_DUPLICATES, JSON_ALLOW_NUL,
 * JSON_DECODE_ANY and JSON_DECODE_INT_AS_REAL. For texts that users and clients write: rules, model descriptions, sidecars,
 * messages. On success the caller owns `*out`. Linear, thread safe. Fails with TSR_ERROR_MEMORY, or with
 * TSR_ERROR_FORMAT: the message is "`what`: ...", or "line 3: ..." if `what` is NULL, and the offset that of the place. */
int tsr_json_load(const char *text, size_t size_bytes, size_t flags, const char *what,
                  struct json_t **out, tsr_error *error);

/* Write `text` to `out` as the inside of a JSON string, which is valid UTF-8 whatever the text is: control characters and lone
 * surrogates are escaped, invalid bytes become U+FFFD. `out` has room for 6 bytes for each byte of the text and 16 more. Returns the number
 * of bytes written. Allocates nothing. */
size_t tsr_json_text(const char *text, size_t size_bytes, char *out);

#ifdef __cplusplus
}
#endif
#endif
