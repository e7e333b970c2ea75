/* number.h - numbers spelled as text. */
#ifndef TSR_BASE_NUMBER_H
#define TSR_BASE_NUMBER_H

#include <stdbool.h>

/* Parse a number that must be all of `text`, in C's syntax with a point in any
 * locale; `text` may be modified. False, with `*out` untouched, if it is not a number. */
bool tsr__read_real(char *text, double *out);

#endif
