/* parse.c - values that users write in several places, from text. See parse.h. */
#include "parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool cli_parse_size(const char *text, uint64_t *bytes) {
  static const char units[] = "KMGT";
  char *end = NULL;
  double number = strtod(text, &end);
  if (end == text || !(number > 0)) return false;
  while (*end == ' ') end++;
  const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
  for (const char *u = units; unit && u <= unit; u++) number *= 1024;
  if (unit) end++;
  if (unit && *end == 'i') end++;
  if (*end == 'B' || *end == 'b') end++;
  *bytes = number < 1e19 ? (uint64_t)number : 0;
  return *end == '\0' && *bytes;
}

static bool parse_allocation(const char *text, tsr_at_where *where) {
  char *end = NULL;
  errno = 0;
  if (!isxdigit((unsigned char)*text)) return false;
  where->address = strtoull(text, &end, 16);
  if (*end != '_' || !isdigit((unsigned char)end[1])) return false;
  where->version = strtoull(end + 1, &end, 10);
  return *end == '\0' && errno == 0;
}

/* The viewer writes a `b` in front of some. */
bool cli_parse_allocation(const char *text, tsr_at_where *where) {
  return parse_allocation(text, where) || (*text == 'b' && parse_allocation(text + 1, where));
}
