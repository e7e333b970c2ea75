/* remark.h - what one text of the program says of memory: a name, and perhaps a category.
 *
 * The texts are those of `user_metadata` and of `annotate` events (PyTorch 2.10 and later):
 *
 *   kv_cache                              a category
 *   kv_cache: layer 3, kv_cache/layer3    a category and a name
 *   {"category": "kv_cache", "name": "layer 3", ...}   the same in JSON
 *   exp_avg of h.0.weight, h.0.weight.grad             a name that implies one
 *   packed into the autograd graph        a name alone
 *
 * They are written by strangers: any bytes, any length, JSON of any depth. */
#ifndef TSR_ATTRIBUTION_REMARK_H
#define TSR_ATTRIBUTION_REMARK_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "tessera/category.h"
#include "tessera/unstable/columns.h"

/* Longer names are cut, between characters. */
#define TSR__REMARK_NAME_BYTES 512
/* A longer text is not parsed as JSON. */
#define TSR__REMARK_JSON_BYTES (64u << 10)

typedef struct tsr__remark {
  tsr_text text;         /* the whole text, without blanks around it */
  tsr_text name;         /* what to call the memory; empty only for an empty text */
  tsr_category category; /* UNKNOWN: it names none */
} tsr__remark;

/* The category that a text names: one of tsr_category_name's words, in any case, with blanks or dashes
 * for underscores ("KV cache"). False, and `*category` untouched, for any other text; "unknown" names
 * none. */
bool tsr__category_from_text(tsr_text text, tsr_category *category);

/* Read a text. `out->name` points into it, or to a copy in `texts`, which must outlive its use. False when
 * out of memory. Linear in the text. */
bool tsr__remark_read(tsr_text text, tsr__arena *texts, tsr__remark *out);

/* At most TSR__REMARK_NAME_BYTES of a text, not within a character. */
tsr_text tsr__remark_cut(tsr_text text);

/* Append what a JSON object says for `key`: a string as it is, other values as compact JSON. The name
 * limit applies. `*is_there`: the text is an object that has the key. False when out of memory. */
bool tsr__remark_member(tsr_text text, const char *key, tsr__buffer *out, bool *is_there);

#endif
