/* number.c - see number.h. strtod reads the point of the program's locale, which may be a comma,
 * and a library must not change the locale: where the point stops it, a comma is tried instead. */
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
