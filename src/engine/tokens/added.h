/* added.h - the added tokens of a tokenizer, which are found in a text before anything else is done with it.
 *
 * Some are looked for in the text as it is, others ("normalized") in the normalized text. In both, the leftmost match counts,
 * and of several there the longest. Rule: tokenizers, tokenizer/added_vocabulary.rs. */
#ifndef TSR_TOKENS_ADDED_H
#define TSR_TOKENS_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/vector.h"
#include "tokens/regex.h"

typedef struct tsr__added_token {
  const char *text; /* not owned */
  size_t size_bytes;
  uint32_t id;
  bool takes_left, takes_right; /* the white space on that side ("lstrip", "rstrip") */
  bool is_word;                 /* only where no letter or digit is next to it ("single_word") */
  bool is_normalized, is_special;
} tsr__added_token;

typedef struct tsr__trie_node {
  uint32_t child, sibling; /* 0: none */
  uint32_t token;          /* that ends here: its index + 1; 0: none */
  unsigned char byte;
} tsr__trie_node;

/* The texts that are looked for. Zeroed is empty. */
typedef struct tsr__trie {
  TSR__VECTOR(tsr__trie_node) nodes; /* the first is the root */
  bool begins[256];                  /* a text begins with this byte */
} tsr__trie;

/* A part of a text: a token, or text between tokens. */
typedef struct tsr__section {
  size_t start, end;
  const tsr__added_token *token; /* NULL for text */
} tsr__section;

typedef TSR__VECTOR(tsr__section) tsr__sections;

/* Add a text for the token at `index`; if it is there already, the first one stays. False if out of memory. */
bool tsr__trie_add(tsr__trie *trie, const char *text, size_t size_bytes, uint32_t index);
void tsr__trie_release(tsr__trie *trie);

/* Divide a text into tokens of `list` and what is between them. `word` matches a character of a word, and is NULL unless a
 * token is_word. Parts without bytes are left out. */
int tsr__added_split(const tsr__trie *trie, const tsr__added_token *list, const tsr__regex *word,
                     tsr__matcher *matcher, const char *text, size_t size_bytes, tsr__sections *out,
                     tsr_error *error);
/* Unicode's property White_Space. */
bool tsr__is_white_space(uint32_t code);

#endif
