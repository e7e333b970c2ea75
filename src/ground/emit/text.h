/* text.h - makes strings from a file safe for output.
 *
 * Strings of a snapshot are untrusted: not always UTF-8, sometimes with lone surrogates
 * (three bytes each, as Python's surrogatepass writes them), sometimes with control characters that
 * a terminal would obey. Everything a report prints passes through here. Stateless and thread safe;
 * linear in the number of bytes. */
#ifndef TSR_EMIT_TEXT_H
#define TSR_EMIT_TEXT_H

#include "base/buffer.h"
#include "base/format.h"
#include "base/utf8.h"
#include "tessera/unstable/columns.h"

/* Append characters of `text`, from byte `from` on, as the inside of a JSON string, until the end
 * or until byte `until` is reached or passed. Returns where it stopped, always between characters.
 * The appended text is valid UTF-8 without control characters: these, and lone surrogates, are
 * escaped; invalid bytes become U+FFFD. */
size_t tsr__json_escape(tsr__buffer *out, tsr_text text, size_t from, size_t until);

/* Append `text` with '?' in place of each control character, character that reorders or breaks a
 * line, surrogate and invalid byte sequence. Returns the columns it takes: one per character, which is
 * right for the scripts in which code is written and too small for wide ones. */
size_t tsr__text_clean(tsr__buffer *out, tsr_text text);

/* A zero-terminated string as a tsr_text; NULL is empty. */
tsr_text tsr__text_of(const char *string);

/* "device 3", or "pinned host memory" for TSR_DEVICE_HOST, written to `text`, which is returned; the title
 * begins with a capital letter. */
const char *tsr__device_name(uint32_t device, char text[TSR__FORMAT_BYTES]);
const char *tsr__device_title(uint32_t device, char text[TSR__FORMAT_BYTES]);

#endif
