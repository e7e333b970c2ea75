/* number.c - see number.h. strtod expects the decimal point of the program's locale, which may be a
 * comma, and a library must not change the locale. If parsing stops at the point, a comma is tried. */
#include "base/number.h"

#include <stdlib.h>
#include <string.h>

bool tsr__read_real(char *text, double *out) {
  char *end = text, *point = strchr(text, '.');
  double value = strtod(text, &end);
  if (point && end == point) {
    *point = ',';
    value = strtod(text, &end);
  }
  if (end == text || *end) return false;
  *out = value;
  return true;
}
