/* tokenizer.h - what a tokenizer.json contains, ready to use (tessera/unstable/tokenizer.h).
 *
 *   text ─► added tokens ─► normalizer ─► added tokens ─► pre-tokenizer ─► BPE of each piece ─► post-processor
 *           (added.h)       (normal.h)    ("normalized")  (split.h)        (bpe.h)             (what is before and after)
 *
 * The way back is the decoder's (decode.c). */
#ifndef TSR_TOKENS_TOKENIZER_H
#define TSR_TOKENS_TOKENIZER_H

#include "base/arena.h"
#include "tessera/unstable/tokenizer.h"
#include "tokens/added.h"
#include "tokens/bpe.h"
#include "tokens/normal.h"
#include "tokens/split.h"

typedef enum tsr__decode_kind {
  TSR__DECODE_WORDS, /* without a decoder: tokens with blanks between them */
  TSR__DECODE_BYTE_LEVEL,
  TSR__DECODE_STEPS /* the replacements, and then what the flags say */
} tsr__decode_kind;

typedef struct tsr__decode_rules {
  tsr__decode_kind kind;
  TSR__VECTOR(tsr__normal_step) replacements; /* in each token */
  bool joins_bytes;                           /* tokens such as <0x0A> are bytes ("ByteFallback") */
  bool is_fused;                              /* what comes later is about the whole text */
  char mark[5];           /* "Metaspace": becomes a blank; empty if that is not a step */
  bool drops_first_marks; /* of the first token */
  char stripped[5];       /* a character that is dropped at the beginning */
  uint64_t stripped_most; /* as often as this */
} tsr__decode_rules;

struct tsr_tokenizer {
  tsr__arena arena; /* texts of added tokens */
  tsr__bpe bpe;
  tsr__normal normal;
  tsr__split split;
  tsr__intern added_texts; /* in the order of `added` */
  TSR__VECTOR(tsr__added_token) added;
  tsr__map *added_by_id;        /* to the index in `added` */
  tsr__trie plain, normalized;  /* the texts of `added` */
  tsr__regex *word;             /* NULL unless an added token is_word */
  tsr__token_ids before, after; /* what the post-processor adds */
  tsr__decode_rules decode;
  uint32_t id_count;
};

/* The character that stands for a byte in tokens of ByteLevel: printable ones for themselves, others from U+0100 on. */
uint32_t tsr__byte_character(unsigned char byte);
/* The byte that a character stands for, or -1. */
int tsr__character_byte(uint32_t code);

/* Read the file `name` of a folder, or of the folder of a file; `*out` is NULL if it is absent, unreadable or larger than 16 MiB, else
 * the caller frees it. A zero byte follows the content. Fails with TSR_ERROR_MEMORY alone. */
int tsr__read_beside(const char *path, const char *name, char **out, size_t *size_bytes,
                     tsr_error *error);

/* Read the "decoder" of a tokenizer.json; NULL means that it has none. */
int tsr__decode_read(tsr__decode_rules *rules, const json_t *description, tsr_error *error);
void tsr__decode_release(tsr__decode_rules *rules);

#endif
