/* mcp_parse.c - lines as trees, also of messages that jansson rejects for what is in their texts.
 *
 * A client that sends a request waits for a response with its id. So a line that is JSON but for a \u0000, a
 * lone surrogate, bytes that are no UTF-8, or an integer beyond 63 bits is read once more with these
 * replaced. The result serves only to find the id: the request itself is refused. What the
 * tools get therefore contains no zero byte, which would cut a path or a name at that place.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/json.h>
#include <tessera/unstable/terminal.h>

#include "mcp.h"

static const char zero_problem[] = "a text contains \\u0000";

int mcp_load(const char *text, size_t size_bytes, size_t flags, json_t **out, tsr_error *error) {
  int status = tsr_json_load(text, size_bytes, flags, "not JSON", out, error);
  if (status == TSR_ERROR_MEMORY) mcp_memory_note();
  return status;
}

/* Four digits of an escape, at most; '\0' ends the text. */
static bool is_escape(const char *at, const char *digits) {
  return at[0] == '\\' && at[1] == 'u' && strncmp(at + 2, digits, strlen(digits)) == 0;
}

static bool is_surrogate(const char *at, const char *third) {
  bool is_d = is_escape(at, "d") || is_escape(at, "D");
  return is_d && at[3] && strchr(third, at[3]);
}

void mcp_mend(char *text, size_t size_bytes, bool mends_zeros) {
  for (size_t i = 0; i + 5 < size_bytes; i++) {
    char *at = text + i;
    if (at[0] != '\\') continue;
    bool is_high = is_surrogate(at, "89abAB"), is_low = is_surrogate(at, "cdefCDEF");
    bool has_low = is_high && i + 11 < size_bytes && is_surrogate(at + 6, "cdefCDEF");
    if (has_low)
      i += 11;
    else if (is_high || is_low || (mends_zeros && is_escape(at, "0000")))
      for (size_t k = 0; k < 4; k++) at[2 + k] = "fffd"[k];
    else
      i++;
  }
}

/* Whether any text in it has a zero byte, except the id of a message, which is only sent back. As deep
 * as jansson parses. */
static bool has_zero(json_t *value, bool is_message) {
  if (json_is_string(value)) return strlen(json_string_value(value)) != json_string_length(value);
  for (size_t i = 0; i < json_array_size(value); i++)
    if (has_zero(json_array_get(value, i), is_message)) return true;
  for (void *at = json_object_iter(value); at; at = json_object_iter_next(value, at)) {
    bool is_id = is_message && strcmp(json_object_iter_key(at), "id") == 0;
    if (!is_id && has_zero(json_object_iter_value(at), false)) return true;
  }
  return false;
}

/* The id is sent as it came: an integer that was read as a real is an integer again. */
static void restore_id(json_t *message) {
  const json_t *id = json_object_get(message, "id");
  double number = json_real_value(id);
  bool is_whole = json_is_real(id) && fabs(number) < 9007199254740992.0 && floor(number) == number;
  if (is_whole) json_object_set_new(message, "id", json_integer((json_int_t)number));
}

static json_t *parse_mended(const char *line, size_t size_bytes) {
  const size_t flags = JSON_ALLOW_NUL | JSON_DECODE_ANY;
  json_t *message = NULL;
  char *copy = malloc(size_bytes + 1);
  if (!copy) {
    mcp_memory_note();
    return NULL;
  }
  memcpy(copy, line, size_bytes);
  while (size_bytes && copy[size_bytes - 1] == '\r') size_bytes--;
  size_bytes = tsr_terminal_clean(copy, size_bytes, true);
  copy[size_bytes] = '\0';
  mcp_mend(copy, size_bytes, true);
  if (mcp_load(copy, size_bytes, flags, &message, NULL) == TSR_ERROR_FORMAT)
    (void)mcp_load(copy, size_bytes, flags | JSON_DECODE_INT_AS_REAL, &message, NULL);
  free(copy);
  restore_id(message);
  for (size_t i = 0; i < json_array_size(message); i++) restore_id(json_array_get(message, i));
  return message;
}

json_t *mcp_parse(const char *line, size_t size_bytes, char problem[MCP_PROBLEM_BYTES]) {
  tsr_error why = {.message = ""};
  json_t *message = NULL;
  int status = mcp_load(line, size_bytes, JSON_ALLOW_NUL | JSON_DECODE_ANY, &message, &why);
  (void)snprintf(problem, MCP_PROBLEM_BYTES, "%s", why.message);
  if (message && has_zero(message, true)) memcpy(problem, zero_problem, sizeof zero_problem);
  return status == TSR_ERROR_FORMAT ? parse_mended(line, size_bytes) : message;
}

json_t *mcp_string(tsr_text text) {
  json_t *out = text.data ? json_stringn(text.data, text.size_bytes) : json_string("");
  if (out || !text.data) return out;
  char *clean = malloc(text.size_bytes + 1);
  if (!clean) {
    mcp_memory_note();
    return NULL;
  }
  for (size_t i = 0; i < text.size_bytes; i++)
    clean[i] = (unsigned char)text.data[i] < 0x80 ? text.data[i] : '?';
  out = json_stringn(clean, text.size_bytes);
  free(clean);
  return out;
}
