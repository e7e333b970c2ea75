/* json.h - jansson's values as text. tsr_json_load reads them. */
#ifndef TSR_BASE_JSON_H
#define TSR_BASE_JSON_H

#include <jansson.h>

#include "base/buffer.h"
#include "tessera/unstable/json.h"

/* Append a value, spelled by jansson with its flags; NULL is no value. False if memory has run out, which marks the
 * buffer too: its content is then not to be used. */
bool tsr__json_append(tsr__buffer *out, const json_t *value, size_t flags);

#endif
