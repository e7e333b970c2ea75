/* regex.h - the patterns of a tokenizer.json, which are written for Oniguruma (as Ruby spells them), matched with PCRE2.
 *
 * Both agree on what the common constructs mean, and differ in others: what \s is, possessive counts, ^ and $, sets
 * inside sets, letters that fold to several. A pattern is therefore read completely and written again for PCRE2, and
 * one with anything else is refused. Look-behind is refused as well: what a pattern matches from a place on must not
 * depend on what is before it, since texts are divided among threads (encode.c). */
#ifndef TSR_TOKENS_REGEX_H
#define TSR_TOKENS_REGEX_H

#include <stddef.h>

#include "base/error.h"

typedef struct tsr__regex tsr__regex;
/* What matching needs besides a pattern; one per thread. */
typedef struct tsr__matcher tsr__matcher;

/* Compile a pattern. Fails with TSR_ERROR_UNSUPPORTED for what is not translated, or may match an empty text;
 * TSR_ERROR_FORMAT for what is no pattern; TSR_ERROR_MEMORY. */
int tsr__regex_new(const char *pattern, size_t size_bytes, tsr__regex **out, tsr_error *error);
/* A pattern that matches just this text, which is not empty. */
int tsr__regex_literal(const char *text, size_t size_bytes, tsr__regex **out, tsr_error *error);
/* A character that may be part of a word, as \w is in Rust. */
int tsr__regex_word(tsr__regex **out, tsr_error *error);
/* NULL is fine. */
void tsr__regex_free(tsr__regex *regex);

/* NULL when out of memory. */
tsr__matcher *tsr__matcher_new(void);
void tsr__matcher_free(tsr__matcher *matcher);

/* Find the first match at or after `from` in a text that is valid UTF-8. Returns 1 with its range, 0 without a match,
 * or a negative status: TSR_ERROR_LIMIT if the pattern tries too many ways, TSR_ERROR_MEMORY. */
int tsr__regex_find(const tsr__regex *regex, tsr__matcher *matcher, const char *text,
                    size_t size_bytes, size_t from, size_t *start, size_t *end, tsr_error *error);

#endif
