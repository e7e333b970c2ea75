/* batches.h - which tokens each step of a run trains on.
 *
 * A batch is sequences from random places of the data; or sequences in its order, each beginning with the last
 * token of the one before, so that every token but the first is predicted once. Then a batch that would go
 * beyond the end begins at the start again, as llm.c's does. A place depends on the seed, the step and the sequence
 * alone, so a run that is resumed reads what it would have read, and nothing but the step's number has to be
 * saved. Labels are the same tokens: the model shifts them. */
#ifndef TSR_TRAIN_BATCHES_H
#define TSR_TRAIN_BATCHES_H

#include <stdbool.h>

#include "train/tokens.h"

typedef struct tsr__batches {
  tsr__tokens tokens;
  uint64_t sequence, batch, accumulate; /* tokens; sequences; micro-batches */
  uint64_t ranks, rank;  /* a step's sequences are all ranks', rank 0's first; 0 ranks: 1 */
  uint64_t key;          /* of places */
  bool is_sequential;    /* in the order of the data */
  uint64_t filled_bytes; /* of `ids`, by the last read */
  int64_t *ids;          /* of the step that was read: accumulate x batch x sequence; owned */
} tsr__batches;

/* Prepare to read: `*batches` has tokens, which it owns from now on, sizes of at least 1 and a key. Fails
 * with TSR_ERROR_ARGUMENT if a sequence, or in order a batch, is longer than the data, with TSR_ERROR_FORMAT if the first
 * 2^28 tokens have one outside the vocabulary, and TSR_ERROR_MEMORY; the batches are to be released
 * either way. */
int tsr__batches_init(tsr__batches *batches, tsr_error *error);
/* Read the tokens of a step, which counts from 1, into `ids`. Fails as tsr__tokens_read does. */
int tsr__batches_read(tsr__batches *batches, uint64_t step, tsr_error *error);
/* The tokens of a micro-batch of the step that was read, from 0. */
const int64_t *tsr__batches_at(const tsr__batches *batches, uint64_t micro_batch);
void tsr__batches_release(tsr__batches *batches);

#endif
