/* parse.c - values that users write in several places, from text. See parse.h. */
#include "parse.h"

#include <ctype.h>
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

bool cli_parse_allocation(const char *text, tsr_at_where *where) {
  char *end = NULL;
  if (text[0] == 'b') text++; /* as the viewer writes it */
  where->address = strtoull(text, &end, 16);
  if (end == text || *end != '_') return false;
  text = end + 1;
  where->version = strtoull(text, &end, 10);
  return end != text && *end == '\0';
}
