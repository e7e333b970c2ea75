/* decimal.h - integers of more than 64 bits, as text and as the bytes that a pickle has.
 *
 * Nothing is calculated with them; they are kept for whoever wrote them. Time grows with the square
 * of the length, which is why that is bounded. */
#ifndef TSR_BASE_DECIMAL_H
#define TSR_BASE_DECIMAL_H

#include <stddef.h>

enum {
  TSR__DECIMAL_BYTES = 256,  /* of two's complement */
  TSR__DECIMAL_DIGITS = 613, /* whatever has no more fits 255 bytes, as many as LONG1 takes */
  TSR__DECIMAL_TEXT = 1 + TSR__DECIMAL_DIGITS
};

/* The digits of an integer in two's complement, the lowest byte first, behind a '-' where it is
 * negative; answers how many characters, or 0 where there is no room for them. */
size_t tsr__decimal_of_bytes(const unsigned char *bytes, size_t size, char text[TSR__DECIMAL_TEXT]);

/* The reverse: as few bytes as leave the sign to be seen in the last. `text` is digits, perhaps
 * behind a '-'; answers how many bytes, or 0 where there is no room for them. */
size_t tsr__bytes_of_decimal(const char *text, size_t size,
                             unsigned char bytes[TSR__DECIMAL_BYTES]);

#endif
