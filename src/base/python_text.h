/* python_text.h - numbers and texts as Python prints them, for those who compare with Python's
 * output byte for byte. Nothing here depends on the locale. */
#ifndef TSR_BASE_PYTHON_TEXT_H
#define TSR_BASE_PYTHON_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

/* Room for any number and its final zero: "-2.2250738585072014e-308" is the longest. */
enum { TSR__PYTHON_FLOAT_BYTES = 32 };

/* repr() of a float: the fewest digits that are read back as `value`, in plain notation from 1e-4 up
 * to 1e16 and always with a point or an exponent ("0.0", "1e-05", "inf", "nan"). Answers `text`. */
const char *tsr__python_float(double value, char text[TSR__PYTHON_FLOAT_BYTES]);

/* Append repr() of a str: in single quotes, or in double ones where it has single quotes only, with
 * escapes for what str.isprintable() is false of (as of Unicode 14, Python 3.11), lone surrogates
 * among it. Bytes that are no character count as U+FFFD. */
void tsr__python_repr(tsr__buffer *out, const char *data, size_t size_bytes);

/* Append what print() would write: the text itself. A lone surrogate, which print() refuses, and a
 * broken character become '?'; with `is_shown`, for a terminal, control characters do too. */
void tsr__python_print(tsr__buffer *out, const char *data, size_t size_bytes, bool is_shown);

#endif
