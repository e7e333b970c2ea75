/* python_text.h - numbers and texts as Python prints them, for output that must equal Python's
 * byte for byte. Nothing here depends on the locale. */
#ifndef TSR_BASE_PYTHON_TEXT_H
#define TSR_BASE_PYTHON_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

/* Enough for any number and its final zero: "-2.2250738585072014e-308" is the longest. */
enum { TSR__PYTHON_FLOAT_BYTES = 32 };

/* repr() of a float: the fewest digits that are read back as `value`, in plain notation from 1e-4 up
 * to 1e16 and always with a point or an exponent ("0.0", "1e-05", "inf", "nan"). Returns `text`. */
const char *tsr__python_float(double value, char text[TSR__PYTHON_FLOAT_BYTES]);

/* Append repr() of a str: in single quotes, or in double ones if it contains only single quotes, with
 * escapes for characters for which str.isprintable() is false (Unicode 14, Python 3.11), including lone
 * surrogates. Invalid bytes count as U+FFFD. */
void tsr__python_repr(tsr__buffer *out, const char *data, size_t size_bytes);

/* Append what print() would write: the text itself. A lone surrogate, which print() rejects, and an
 * invalid byte sequence become '?'; if `is_shown`, for a terminal, every unsafe character does (tsr__code_is_unsafe). */
void tsr__python_print(tsr__buffer *out, const char *data, size_t size_bytes, bool is_shown);

#endif
