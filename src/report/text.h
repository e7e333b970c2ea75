/* text.h - strings from a file on their way to a person or a program.
 *
 * Strings of a snapshot are what a stranger wrote: not always UTF-8, sometimes with lone surrogates
 * (three bytes each, as Python's surrogatepass writes them), sometimes with control characters that
 * a terminal would obey. Whatever a report prints passes through here. Stateless and thread safe;
 * linear in the bytes given. */
#ifndef TSR_REPORT_TEXT_H
#define TSR_REPORT_TEXT_H

#include "base/buffer.h"
#include "base/utf8.h"
#include "tessera/snapshot.h"

/* Append characters of `text`, from byte `from` on, as the inside of a JSON string, until the end
 * or until byte `until` is reached or passed. Answers where it stopped, always between characters.
 * What is appended is valid UTF-8 and holds no control character: those, and lone surrogates, are
 * escaped; invalid bytes become U+FFFD. */
size_t tsr__json_escape(tsr__buffer *out, tsr_text text, size_t from, size_t until);

/* Append `text` with '?' for each control character, character that reorders or breaks a line,
 * surrogate and broken character. Answers the columns it takes: one a character, which is right for
 * the scripts code is written in and too small for wide ones. */
size_t tsr__text_clean(tsr__buffer *out, tsr_text text);

/* Append a cleaned text of `width` columns, cut to `columns` with "..." in its middle when it is
 * wider. */
void tsr__text_shorten(tsr__buffer *out, tsr_text text, size_t width, size_t columns);

/* A zero-terminated string as a tsr_text; NULL is empty. */
tsr_text tsr__text_of(const char *string);

#endif
