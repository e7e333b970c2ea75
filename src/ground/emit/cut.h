/* cut.h - makes texts fit the terminal: words, and the names of places in the program.
 *
 * All texts are cleaned (tsr__text_clean): one column per character. Stateless and thread safe; linear in the
 * text, except that a name's length is found by trying. */
#ifndef TSR_EMIT_CUT_H
#define TSR_EMIT_CUT_H

#include "base/buffer.h"
#include "tessera/unstable/columns.h"

/* Append a text of `width` columns, cut to `columns` with "..." in the middle if it is wider. */
void tsr__text_shorten(tsr__buffer *out, tsr_text text, size_t width, size_t columns);

/* The same, but showing what is around column `at` (below `width`) as well as the beginning: "..." comes
 * after the beginning, and again at the end if the text goes on. For texts that would otherwise read
 * alike. */
void tsr__text_shorten_at(tsr__buffer *out, tsr_text text, size_t width, size_t columns, size_t at);
/* The first column in which two cleaned texts differ; the width of the shorter if it begins the other. */
size_t tsr__text_difference(tsr_text a, tsr_text b);

/* tsr__text_shorten for a text that may name places, `folder/file:line name (operation), from file:line`,
 * several joined by " > ", after blanks that indent it. What readers miss least goes first: the callers,
 * the places after the first, the middle of the name, folders, the operation, the name, and last the beginning of
 * the file; the line stays. If `is_chain`, the places are calls of one stack, and keep their lines as long as
 * possible. " ..." shows that something was left out. Of a list of words, the first that fit; other
 * texts are cut in the middle. Returns the columns it takes, which may be fewer. */
size_t tsr__place_shorten(tsr__buffer *out, tsr_text text, size_t width, size_t columns,
                          bool is_chain);
/* tsr__text_shorten_at for such a text: its first file and line stay if there is room for more. If
 * `keeps_pieces`, the caller, operation or place that contains column `at` follows, in full if possible. */
size_t tsr__place_shorten_at(tsr__buffer *out, tsr_text text, size_t width, size_t columns,
                             size_t at, bool keeps_pieces);
/* tsr__place_shorten for a row whose first place many rows share: if not all of its places fit, only those after the
 * first, after "> ": "> linear.py:125 forward (mm)". Returns the columns it takes; 0, with nothing appended, if there
 * are none, or they do not fit with their lines. */
size_t tsr__place_shorten_rest(tsr__buffer *out, tsr_text text, size_t width, size_t columns);
/* The file and line that a text names first, with the folder; empty if no other place follows. */
tsr_text tsr__place_first(tsr_text text);
/* The file and line that three texts of a list or more, and more than half of those that name a place, name before another one:
 * what rows have in common tells readers nothing. Empty if none is. `at` returns a text of the list. */
typedef tsr_text tsr__text_at_fn(const void *context, size_t index);
tsr_text tsr__place_shared(tsr__text_at_fn *at, const void *context, size_t count);
/* The columns that a text needs to show the file and line that it names first, and in what it differs from
 * others with the same line; 0 if it names none. It may be shorter than that. */
size_t tsr__place_least(tsr_text text);

#endif
