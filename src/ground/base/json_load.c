/* json_load.c - see json_load.h.
 *
 * jansson has an error code for running out of memory but hardly uses it. If an allocation fails
 * while a value is made, there is no message at all. If it fails while a string is copied, the
 * string counts as a token that cannot stand there, although every string that is wrong has
 * another message. Both are recognized here. Its allocation hooks would be
 * exact, but they are global, and this library shares jansson with the rest of the program. */
#include "base/json_load.h"

#include <stdbool.h>
#include <string.h>

static bool begins_with(const char *text, const char *start) {
  return strncmp(text, start, strlen(start)) == 0;
}

/* Whether jansson refused a string that it should have taken. */
static bool is_lost_string(const char *text, size_t size_bytes, const json_error_t *at) {
  bool is_token =
      begins_with(at->text, "invalid token") || begins_with(at->text, "string or '}' expected");
  bool is_inside = at->position > 0 && (size_t)at->position <= size_bytes;
  return is_token && is_inside && text[at->position - 1] == '"';
}

int tsr__json_load(const char *text, size_t size_bytes, size_t flags, const char *what,
                   json_t **out, tsr_error *error) {
  json_error_t at = {.line = -1};
  json_t *root = json_loadb(text, size_bytes, flags, &at);
  if (root) {
    *out = root;
    return 0;
  }
  if (json_error_code(&at) == json_error_out_of_memory || !at.text[0] ||
      is_lost_string(text, size_bytes, &at))
    return tsr__fail_memory(error);
  uint64_t offset = at.position > 0 ? (uint64_t)at.position : 0;
  if (what) return tsr__fail(error, TSR_ERROR_FORMAT, offset, "%s: %s", what, at.text);
  return tsr__fail(error, TSR_ERROR_FORMAT, offset, "line %d: %s", at.line, at.text);
}
