/* tessera/unstable/terminal.h - makes text safe for a terminal. */
#ifndef TESSERA_UNSTABLE_TERMINAL_H
#define TESSERA_UNSTABLE_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Replace in place, with '?', each character of `text` that could drive a terminal or make a line read as
 * another: control characters (C0, DEL and C1), separators of lines, bidirectional marks, characters that
 * are not drawn (zero width, soft hyphens, tags), surrogates and invalid bytes. With `keeps_lines`, newlines and tabs stay. Returns the new size, which is at
 * most `size_bytes`; writes no zero at the end. Linear, thread safe, allocates nothing. */
size_t tsr_terminal_clean(char *text, size_t size_bytes, bool keeps_lines);

#ifdef __cplusplus
}
#endif
#endif
