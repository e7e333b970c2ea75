/* number.h - numbers spelled as text. */
#ifndef TSR_BASE_NUMBER_H
#define TSR_BASE_NUMBER_H

#include <stdbool.h>

/* The number that the whole of `text` spells, in C's syntax with a point whatever the program's
 * locale; `text` may be changed. False, with `*out` untouched, where it is none. */
bool tsr__read_real(char *text, double *out);

#endif
