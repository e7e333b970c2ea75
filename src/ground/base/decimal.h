/* decimal.h - integers of more than 64 bits, as text and as the bytes in a pickle.
 *
 * tessera does not calculate with them; it only keeps them, so that files can be written again. Time
 * is quadratic in the length, so the length is limited. */
#ifndef TSR_BASE_DECIMAL_H
#define TSR_BASE_DECIMAL_H

#include <stddef.h>

enum {
  TSR__DECIMAL_BYTES = 256, /* of two's complement */
  TSR__DECIMAL_DIGITS =
      613, /* any integer with at most this many fits in 255 bytes, the limit of LONG1 */
  TSR__DECIMAL_TEXT = 1 + TSR__DECIMAL_DIGITS
};

/* The digits of an integer in two's complement, the lowest byte first, after a '-' if it is
 * negative; returns the number of characters, or 0 if there is no room for them. */
size_t tsr__decimal_of_bytes(const unsigned char *bytes, size_t size, char text[TSR__DECIMAL_TEXT]);

/* The reverse: the fewest bytes that show the sign in the last one. `text` is digits, optionally
 * after a '-'; returns the number of bytes, or 0 if there is no room for them. */
size_t tsr__bytes_of_decimal(const char *text, size_t size,
                             unsigned char bytes[TSR__DECIMAL_BYTES]);

#endif
