/* normal.h - the normalizer of a tokenizer: what is done with a text before it is divided. */
#ifndef TSR_TOKENS_NORMAL_H
#define TSR_TOKENS_NORMAL_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buffer.h"
#include "base/vector.h"

typedef enum tsr__normal_kind {
  TSR__NORMAL_NFC,     /* Unicode's canonical composition */
  TSR__NORMAL_PREPEND, /* put `to` in front of a text that is not empty */
  TSR__NORMAL_REPLACE  /* `from` by `to` */
} tsr__normal_kind;

typedef struct tsr__normal_step {
  tsr__normal_kind kind;
  char *from, *to; /* owned */
  size_t from_bytes, to_bytes;
} tsr__normal_step;

/* In the order in which they are applied. A zeroed struct changes nothing. */
typedef struct tsr__normal {
  TSR__VECTOR(tsr__normal_step) steps;
} tsr__normal;

/* Read the "normalizer" of a tokenizer.json; NULL means that it has none. The struct is released either way. Fails with
 * TSR_ERROR_UNSUPPORTED, which names what is not implemented; TSR_ERROR_FORMAT; TSR_ERROR_MEMORY. */
int tsr__normal_read(tsr__normal *normal, const json_t *description, tsr_error *error);
void tsr__normal_release(tsr__normal *normal);

/* Read the pattern of a replacement, {"String": "..."}, and what replaces it. Both are owned by `step`. */
int tsr__replace_read(tsr__normal_step *step, const json_t *description, tsr_error *error);
void tsr__replace_release(tsr__normal_step *step);
/* Append the text with each occurrence replaced. */
void tsr__replace(const tsr__normal_step *step, const char *text, size_t size_bytes,
                  tsr__buffer *out);

/* Normalize a text, which is valid UTF-8. `*text` and `*size_bytes` become the result: the text itself if nothing changes, else
 * the content of one of the two buffers. */
int tsr__normal_apply(const tsr__normal *normal, const char **text, size_t *size_bytes,
                      tsr__buffer rooms[2], tsr_error *error);

#endif
