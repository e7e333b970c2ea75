/* utf8.h - characters and their bytes, with lone surrogates as Python's surrogatepass writes them.
 * Stateless and thread safe. */
#ifndef TSR_BASE_UTF8_H
#define TSR_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What tsr__utf8_decode stores for invalid bytes. */
#define TSR__CODE_INVALID UINT32_MAX

enum { TSR__UTF8_BYTES = 4 }; /* of the longest character */

/* Decode the character at `data`, of which `size_bytes` (at least 1) may be read. Returns its
 * length in bytes and stores its code point; lone surrogates are code points here. For invalid
 * bytes stores TSR__CODE_INVALID and returns the length of the longest prefix of a character they
 * form (Unicode 15, section 3.9, "maximal subpart"), so that one broken character is replaced once.
 */
size_t tsr__utf8_decode(const char *data, size_t size_bytes, uint32_t *code);

/* Whether all bytes are characters, and none is a surrogate. */
bool tsr__utf8_is_text(const char *data, size_t size_bytes);

/* Write the character `code`, at most U+10FFFF and possibly a surrogate; returns the number of bytes. */
size_t tsr__utf8_encode(uint32_t code, unsigned char out[TSR__UTF8_BYTES]);

/* Whether a character must not reach a terminal: C0, DEL and C1 controls, which move its cursor and
 * change its state; the separators of lines and paragraphs; the bidirectional marks, which make a text
 * read as another; characters without a width (zero width, soft hyphens, tags), which hide a text in another; surrogates; and TSR__CODE_INVALID. The only list of such characters;
 * tsr_terminal_clean and emit/text.h replace them. */
bool tsr__code_is_unsafe(uint32_t code);

/* Parse `count` (at most 8) hexadecimal digits at `digits`, of which `size_bytes`
 * may be read; TSR__CODE_INVALID if there are fewer, or the number is above U+10FFFF. */
uint32_t tsr__hex_code(const unsigned char *digits, size_t size_bytes, size_t count);

#endif
