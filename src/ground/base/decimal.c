/* decimal.c - see decimal.h. A magnitude is an array of 32-bit words, the lowest first; nine decimal
 * digits at a time are removed from it, or added. */
#include "base/decimal.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { WORDS = TSR__DECIMAL_BYTES / 4, GROUP_DIGITS = 9, GROUP = 1000000000 };

/* Turn a magnitude into its two's complement, or back. */
static void negate(uint32_t words[WORDS]) {
  uint64_t carry = 1;
  for (size_t i = 0; i < WORDS; i++) {
    carry += (uint32_t)~words[i];
    words[i] = (uint32_t)carry;
    carry >>= 32;
  }
}

static bool is_zero(const uint32_t words[WORDS]) {
  uint32_t any = 0;
  for (size_t i = 0; i < WORDS; i++) any |= words[i];
  return !any;
}

/* Divide by GROUP; returns the remainder. */
static uint32_t take_group(uint32_t words[WORDS]) {
  uint64_t rest = 0;
  for (size_t i = WORDS; i-- > 0;) {
    rest = rest << 32 | words[i];
    words[i] = (uint32_t)(rest / GROUP);
    rest %= GROUP;
  }
  return (uint32_t)rest;
}

/* Multiply and add; false if the result is too large. */
static bool put_group(uint32_t words[WORDS], uint32_t factor, uint32_t group) {
  uint64_t carry = group;
  for (size_t i = 0; i < WORDS; i++) {
    carry += (uint64_t)words[i] * factor;
    words[i] = (uint32_t)carry;
    carry >>= 32;
  }
  return !carry;
}

size_t tsr__decimal_of_bytes(const unsigned char *bytes, size_t size,
                             char text[TSR__DECIMAL_TEXT]) {
  uint32_t words[WORDS];
  char digits[TSR__DECIMAL_DIGITS + GROUP_DIGITS], *end = digits + sizeof digits, *first = end;
  bool is_negative = size && bytes[size - 1] & 0x80;
  if (size > TSR__DECIMAL_BYTES) return 0;
  for (size_t i = 0; i < WORDS; i++) {
    words[i] = 0;
    for (size_t k = 4; k-- > 0;) {
      unsigned byte = 4 * i + k < size ? bytes[4 * i + k] : is_negative ? 0xff : 0;
      words[i] = words[i] << 8 | byte;
    }
  }
  if (is_negative) negate(words);
  do {
    uint32_t group = take_group(words);
    if (first - digits < GROUP_DIGITS) return 0;
    for (int k = 0; k < GROUP_DIGITS; k++, group /= 10) *--first = (char)('0' + group % 10);
  } while (!is_zero(words));
  while (first + 1 < end && *first == '0') first++;
  size_t count = (size_t)(end - first);
  if (count > TSR__DECIMAL_DIGITS) return 0;
  if (is_negative) *text++ = '-';
  memcpy(text, first, count);
  return count + is_negative;
}

size_t tsr__bytes_of_decimal(const char *text, size_t size,
                             unsigned char bytes[TSR__DECIMAL_BYTES]) {
  uint32_t words[WORDS] = {0};
  bool is_negative = size && *text == '-';
  for (size_t i = is_negative; i < size;) {
    uint32_t group = 0, factor = 1;
    for (int k = 0; k < GROUP_DIGITS && i < size; k++, i++) {
      group = group * 10 + (uint32_t)(text[i] - '0');
      factor *= 10;
    }
    if (!put_group(words, factor, group)) return 0;
  }
  if (words[WORDS - 1] >> 31) return 0; /* no room for the sign */
  if (is_negative) negate(words);
  for (size_t i = 0; i < TSR__DECIMAL_BYTES; i++)
    bytes[i] = (unsigned char)(words[i / 4] >> 8 * (i % 4));
  unsigned fill = is_negative ? 0xff : 0;
  size_t count = TSR__DECIMAL_BYTES;
  while (count > 1 && bytes[count - 1] == fill && ((bytes[count - 2] ^ fill) & 0x80) == 0) count--;
  return count;
}
