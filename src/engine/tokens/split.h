/* split.h - the pre-tokenizer of a tokenizer: how a text is divided into pieces, each of which is encoded by itself.
 *
 * A list of steps, each of which changes its piece or divides it, and passes the parts to the next one. */
#ifndef TSR_TOKENS_SPLIT_H
#define TSR_TOKENS_SPLIT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buffer.h"
#include "base/vector.h"
#include "tokens/regex.h"

typedef enum tsr__split_kind {
  TSR__SPLIT_PATTERN, /* divide by a pattern */
  TSR__SPLIT_PREFIX,  /* put `mark` in front, if it is not there ("add_prefix_space") */
  TSR__SPLIT_SPACES   /* blanks become `mark`, and then as SPLIT_PREFIX by `prefixes` (Metaspace) */
} tsr__split_kind;

/* What becomes of the parts that match a pattern. */
typedef enum tsr__split_behavior {
  TSR__SPLIT_ISOLATED,
  TSR__SPLIT_REMOVED,
  TSR__SPLIT_CONTIGUOUS, /* neighbours become one part */
  TSR__SPLIT_WITH_PREVIOUS,
  TSR__SPLIT_WITH_NEXT
} tsr__split_behavior;

typedef enum tsr__split_prefixes {
  TSR__PREFIX_NEVER,
  TSR__PREFIX_ALWAYS,
  TSR__PREFIX_FIRST /* of the text alone */
} tsr__split_prefixes;

typedef struct tsr__split_step {
  tsr__split_kind kind;
  tsr__regex *regex; /* owned */
  tsr__split_behavior behavior;
  bool is_inverted; /* what does not match counts as matching, and the other way round */
  tsr__split_prefixes prefixes;
  char mark[5];
} tsr__split_step;

/* A zeroed struct splits nothing. */
typedef struct tsr__split {
  TSR__VECTOR(tsr__split_step) steps;
  bool is_byte_level; /* in the end, each byte of a piece becomes a character */
} tsr__split;

typedef struct tsr__split_range {
  size_t start, end;
  bool is_match;
} tsr__split_range;

typedef TSR__VECTOR(tsr__split_range) tsr__split_ranges;

/* Read the "pre_tokenizer" of a tokenizer.json; NULL means that it has none. The struct is released either way. Fails as tsr__normal_read does. */
int tsr__split_read(tsr__split *split, const json_t *description, tsr_error *error);
void tsr__split_release(tsr__split *split);

/* Whether the parts after a match depend only on the text after it. */
bool tsr__split_is_local(const tsr__split_step *step);
/* Whether a part remains a piece. */
bool tsr__split_keeps(const tsr__split_step *step, bool is_match);
/* Replace `*out` by the pieces that a pattern makes of a text. */
int tsr__split_pattern(const tsr__split_step *step, tsr__matcher *matcher, const char *text,
                       size_t size_bytes, tsr__split_ranges *out, tsr_error *error);
/* Append what another step makes of a text; `is_first` if it is the beginning of all. */
void tsr__split_change(const tsr__split_step *step, const char *text, size_t size_bytes,
                       bool is_first, tsr__buffer *out);

#endif
