/* batches.h - which tokens each step of a run trains on, and which its evaluations use.
 *
 * A batch consists of sequences from random positions in the data, or of consecutive ones, each beginning with the
 * last token of the previous one, so that every token but the first is predicted once. A consecutive batch that would
 * go beyond the end starts again at the beginning, as llm.c's does. A position depends only on the seed, the step and
 * the sequence, so a resumed run reads what an uninterrupted one would have read, and only the step's number has to
 * be saved. Labels are the same tokens: the model shifts them. */
#ifndef TSR_TRAIN_BATCHES_H
#define TSR_TRAIN_BATCHES_H

#include <stdbool.h>

#include "train/tokens.h"

typedef struct tsr__batches {
  tsr__tokens tokens;
  uint64_t sequence, batch,
      accumulate;        /* of a sequence in tokens; of a batch in sequences; in micro-batches */
  uint64_t ranks, rank;  /* a step's sequences belong to all ranks, rank 0's first; 0 ranks: 1 */
  uint64_t key;          /* for random positions */
  bool is_sequential;    /* in the order of the data */
  uint64_t filled_bytes; /* of `ids`, filled by the last read */
  int64_t *ids;          /* of the step read last: accumulate x batch x sequence; owned */
} tsr__batches;

/* Prepare to read. `*batches` contains tokens, which it owns from now on, sizes of at least 1, and a key. Fails
 * with TSR_ERROR_ARGUMENT if a sequence, or a batch of consecutive ones, is longer than the data, with
 * TSR_ERROR_FORMAT if one of the first 2^28 tokens is outside the vocabulary, and with TSR_ERROR_MEMORY. The caller
 * releases the batches even after a failure. */
int tsr__batches_init(tsr__batches *batches, tsr_error *error);
/* Read the tokens of a step, counted from 1, into `ids`. Fails as tsr__tokens_read does. */
int tsr__batches_read(tsr__batches *batches, uint64_t step, tsr_error *error);
/* The tokens of a micro-batch, counted from 0, of the step read last. */
const int64_t *tsr__batches_at(const tsr__batches *batches, uint64_t micro_batch);
void tsr__batches_release(tsr__batches *batches);

/* Batches that a run is evaluated on, the same ones each time: sequences at equal distances from the first tokens of the data to the last
 * ones. They are read before the run, so that a file that disappears does not end it. */
typedef struct tsr__validation {
  tsr__tokens tokens;
  uint64_t sequence, batch, batches; /* a batch in sequences */
  uint64_t filled_bytes;             /* of `ids` */
  int64_t *ids;                      /* batches x batch x sequence; owned */
} tsr__validation;

/* Read them. `*validation` contains tokens, which it owns from now on, and sizes of at least 1. Fails as tsr__batches_init does,
 * with TSR_ERROR_FORMAT for any token outside the vocabulary, and with TSR_ERROR_LIMIT if they take more than 4 GiB. The caller
 * releases it even after a failure. */
int tsr__validation_read(tsr__validation *validation, tsr_error *error);
/* The tokens of a batch, counted from 0. */
const int64_t *tsr__validation_at(const tsr__validation *validation, uint64_t batch);
void tsr__validation_release(tsr__validation *validation);

#endif
