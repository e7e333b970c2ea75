/* utf8.c - see utf8.h. The decoder accepts exactly the well-formed sequences of UTF-8 plus the
 * three-byte forms of U+D800..U+DFFF:
 *
 *   lead byte   length   allowed second byte
 *   00..7F      1        -
 *   C2..DF      2        80..BF
 *   E0          3        A0..BF     (below: an overlong form)
 *   E1..EF      3        80..BF     (ED A0..BF: a surrogate)
 *   F0          4        90..BF     (below: overlong)
 *   F1..F3      4        80..BF
 *   F4          4        80..8F     (above: past U+10FFFF)
 */
#include "base/utf8.h"

#include <assert.h>
#include <string.h>

#include "tessera/unstable/terminal.h"

size_t tsr__utf8_decode(const char *data, size_t size_bytes, uint32_t *code) {
  assert(size_bytes);
  const unsigned char *bytes = (const unsigned char *)data;
  unsigned char lead = bytes[0];
  *code = lead < 0x80 ? lead : TSR__CODE_INVALID;
  if (lead < 0xC2 || lead > 0xF4) return 1;
  size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xF4 ? 0x8F : 0xBF;
  uint32_t value = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; i++) {
    if (i >= size_bytes || bytes[i] < low || bytes[i] > high) return i;
    value = value << 6 | (bytes[i] & 0x3Fu);
    low = 0x80, high = 0xBF;
  }
  *code = value;
  return length;
}

bool tsr__utf8_is_text(const char *data, size_t size_bytes) {
  size_t at = 0;
  uint32_t code = 0;
  while (at < size_bytes && code != TSR__CODE_INVALID && !(code >= 0xd800 && code <= 0xdfff))
    at += tsr__utf8_decode(data + at, size_bytes - at, &code);
  return code != TSR__CODE_INVALID && !(code >= 0xd800 && code <= 0xdfff);
}

size_t tsr__utf8_encode(uint32_t code, unsigned char out[TSR__UTF8_BYTES]) {
  static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  assert(code <= 0x10FFFF);
  size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t i = length; --i; code >>= 6) out[i] = (unsigned char)(0x80 | (code & 0x3F));
  out[0] = (unsigned char)(lead[length] | code);
  return length;
}

bool tsr__code_is_unsafe(uint32_t code) {
  static const struct {
    uint32_t first, last;
  } unsafe[] = {{0x00, 0x1F},
                {0x7F, 0x9F},
                {0xAD, 0xAD}, /* soft hyphen */
                {0x61C, 0x61C},
                {0x180E, 0x180E},
                {0x200B, 0x200F}, /* zero width, and bidirectional marks */
                {0x2028, 0x202E},
                {0x2060, 0x206F},
                {0xD800, 0xDFFF},
                {0xFEFF, 0xFEFF},
                {0xFFF9, 0xFFFB},
                {0xE0000, 0xE0FFF}, /* tags, and selectors that draw nothing */
                {TSR__CODE_INVALID, TSR__CODE_INVALID}};
  size_t i = 0;
  while (code > unsafe[i].last) i++; /* the last row ends the search */
  return code >= unsafe[i].first;
}

size_t tsr_terminal_clean(char *text, size_t size_bytes, bool keeps_lines) {
  size_t used = 0;
  for (size_t at = 0; at < size_bytes;) {
    uint32_t code;
    size_t length = tsr__utf8_decode(text + at, size_bytes - at, &code);
    bool is_layout = keeps_lines && (code == '\n' || code == '\t');
    if (tsr__code_is_unsafe(code) && !is_layout) {
      text[used++] = '?';
    } else {
      memmove(text + used, text + at, length);
      used += length;
    }
    at += length;
  }
  assert(used <= size_bytes);
  return used;
}

uint32_t tsr__hex_code(const unsigned char *digits, size_t size_bytes, size_t count) {
  uint32_t code = 0;
  if (size_bytes < count) return TSR__CODE_INVALID;
  for (size_t i = 0; i < count; i++) {
    uint32_t digit = digits[i] - (uint32_t)'0', letter = (digits[i] | 32u) - 'a';
    if (digit > 9 && letter > 5) return TSR__CODE_INVALID;
    if (code > 0x10FFFF >> 4) return TSR__CODE_INVALID;
    code = code << 4 | (digit > 9 ? letter + 10 : digit);
  }
  return code > 0x10FFFF ? TSR__CODE_INVALID : code;
}
