/* bpe.h - the model of a tokenizer: its vocabulary, and byte pair encoding of one piece of text.
 *
 * A piece is divided into characters, each a symbol; then the pair of neighbours whose merge has the lowest rank is
 * merged, the leftmost first, until none is left. A heap has the pairs, so n characters take O(n log n).
 * Rule: tokenizers, models/bpe/model.rs (merge_word) and word.rs (merge_all). */
#ifndef TSR_TOKENS_BPE_H
#define TSR_TOKENS_BPE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buffer.h"
#include "base/intern.h"
#include "base/map.h"
#include "base/vector.h"

#define TSR__TOKEN_NONE    UINT32_MAX
#define TSR__TOKEN_ID_MOST (UINT32_C(1) << 24) /* ids are smaller */

typedef TSR__VECTOR(uint32_t) tsr__token_ids;

typedef enum tsr__unknown {
  TSR__UNKNOWN_DROPPED, /* without an unk_token: characters outside the vocabulary vanish */
  TSR__UNKNOWN_TOKEN,
  TSR__UNKNOWN_REFUSED /* the unk_token is not in the vocabulary */
} tsr__unknown;

/* Constant once read. */
typedef struct tsr__bpe {
  tsr__intern texts; /* of tokens, in the order of the file */
  uint32_t *ids;     /* by index in `texts` */
  uint32_t *indices; /* by id: index in `texts`, or TSR__TOKEN_NONE */
  uint32_t id_count; /* one more than the largest id */
  tsr__map *merges;  /* two ids to rank << 32 | id of the result */
  tsr__map *pairs; /* two characters that are neighbours in the result of a merge; NULL: unknown */
  uint32_t of_byte[256];  /* ids of <0x00> and so on */
  uint32_t of_low[0x180]; /* ids of the characters below U+0180 */
  tsr__unknown unknown;
  uint32_t unk_id;
  bool fuses_unk, has_byte_fallback, ignores_merges;
} tsr__bpe;

typedef struct tsr__bpe_symbol {
  uint32_t id, previous, next; /* TSR__TOKEN_NONE: at the ends */
  bool is_removed;
} tsr__bpe_symbol;

typedef struct tsr__bpe_merge {
  uint64_t key; /* rank << 32 | position */
  uint32_t id;  /* of the result */
} tsr__bpe_merge;

/* What one thread needs to encode. Zeroed is empty. */
typedef struct tsr__bpe_room {
  TSR__VECTOR(tsr__bpe_symbol) symbols;
  TSR__VECTOR(tsr__bpe_merge) heap;
} tsr__bpe_room;

/* Read the "model" of a tokenizer.json into a zeroed struct, which is released either way. Fails with TSR_ERROR_FORMAT,
 * _UNSUPPORTED, _MEMORY. */
int tsr__bpe_read(tsr__bpe *bpe, const json_t *model, tsr_error *error);
/* Find out which characters are neighbours in tokens, so that tsr__bpe_cut works. */
int tsr__bpe_find_pairs(tsr__bpe *bpe, tsr_error *error);
void tsr__bpe_release(tsr__bpe *bpe);

/* The id of a token, or TSR__TOKEN_NONE. */
uint32_t tsr__bpe_id(const tsr__bpe *bpe, const char *text, size_t size_bytes);
/* The text of a token; false if there is no such id. */
bool tsr__bpe_text(const tsr__bpe *bpe, uint32_t id, const char **text, size_t *size_bytes);

/* Append the tokens of a piece, which is valid UTF-8. */
int tsr__bpe_encode(const tsr__bpe *bpe, tsr__bpe_room *room, const char *text, size_t size_bytes,
                    tsr__token_ids *out, tsr_error *error);
/* The first place after `from` that no merge can cross: the tokens of the whole are those before and after it. The size of the
 * text without one. Needs tsr__bpe_find_pairs. */
size_t tsr__bpe_cut(const tsr__bpe *bpe, const char *text, size_t size_bytes, size_t from);
void tsr__bpe_room_release(tsr__bpe_room *room);

#endif
