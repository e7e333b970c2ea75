/* escape.h - texts in the formats of other programs. */
#ifndef TSR_QUESTIONS_SHARED_ESCAPE_H
#define TSR_QUESTIONS_SHARED_ESCAPE_H

#include "base/buffer.h"

/* What is in `words` goes to `out`, escaped for XML, in text and in attributes, or for GitHub's Markdown; `words` is empty afterwards. Control
 * characters and what is no character must have gone before (tsr__text_clean). */
void tsr__put_xml(tsr__buffer *out, tsr__buffer *words);
void tsr__put_markdown(tsr__buffer *out, tsr__buffer *words);

#endif
