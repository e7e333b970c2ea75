/* tessera/unstable/training.h - run the training that tsr_simulate predicts, on the CPU.
 *
 * The same model, the same options and the same schedule: each step allocates what was predicted, and
 * each kernel computes. Data is a text, whose bytes are the tokens, or a file of tokens; weights begin
 * random, as transformers initialises them. The learning rate is constant.
 *
 *   tsr_training training;
 *   tsr_simulate_options run = TSR_OPTIONS_INIT(tsr_simulate_options);
 *   tsr_train_options train = TSR_OPTIONS_INIT(tsr_train_options);
 *   run.batch = 4, run.sequence = 64, run.steps = 100;
 *   train.data = "book.txt";
 *   int status = tsr_train(model, &run, &train, &training, &error);
 *
 * Equal inputs give equal results, bit for bit, on one machine. */
#ifndef TESSERA_UNSTABLE_TRAINING_H
#define TESSERA_UNSTABLE_TRAINING_H

#include "tessera/simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A finished step. */
typedef struct tsr_train_step {
  uint64_t step, steps;     /* from 1; how many there will be */
  double loss;              /* the mean over its tokens, before its update */
  bool is_skipped;          /* scaled gradients overflowed: no update (autocast-fp16) */
  uint64_t token_count;     /* of this step */
  uint64_t allocated_bytes; /* now: requested, and live */
  uint64_t parameter_count;
  uint64_t predicted_peak_bytes; /* of the whole run: allocated */
  bool is_last;                  /* the run ends here, whatever the caller returns */
} tsr_train_step;

/* What a file of data holds. */
typedef enum tsr_train_tokens {
  TSR_TRAIN_TOKENS_AUTO, /* what llm.c's header says; without one, U16 in files named .bin, else BYTES */
  TSR_TRAIN_TOKENS_BYTES, /* each byte is a token */
  TSR_TRAIN_TOKENS_U16,   /* little-endian numbers of 16 */
  TSR_TRAIN_TOKENS_U32    /* or 32 bits */
} tsr_train_tokens;

/* The default trains nothing: it has no data. Zeros stand for the values in parentheses. */
typedef struct tsr_train_options {
  size_t struct_bytes;
  const char *data; /* the name of a file of any size, at least one sequence long; read as needed */
  tsr_train_tokens tokens; /* what it holds */
  const char *text;        /* instead of a file: bytes, borrowed during the call */
  size_t text_bytes;
  uint64_t seed;        /* of weights, batches and dropout */
  double learning_rate; /* (0.001) */
  double weight_decay;  /* of AdamW; negative: none (0.01) */
  unsigned threads; /* that compute (as many as there are processors); no result depends on it */
  bool is_recorded; /* keep the run's events, for tsr_training.snapshot */
  /* After each step, in the caller's thread. False ends the run, without an error. May be NULL. */
  bool (*step)(void *context, const tsr_train_step *step);
  void *context;
  const char *
      *subject; /* receives the name of the file that a failure is about, or NULL; or is NULL */
} tsr_train_options;

/* What came of it. Bytes were measured while it ran, but for those called predicted. */
typedef struct tsr_training {
  uint64_t steps_done, parameter_count, token_count;
  uint64_t step_flops; /* floating-point operations of one step */
  double first_loss, last_loss;
  bool is_diverged;      /* the loss of the last step is not a finite number: it ended there */
  bool is_out_of_memory; /* the capacity was too small: it ended there, as predicted */
  uint64_t predicted_peak_bytes, peak_bytes;         /* allocated */
  uint64_t predicted_reserved_bytes, reserved_bytes; /* memory that was taken from the system */
  tsr_snapshot *snapshot; /* if it was recorded: as PyTorch would have written it; the caller's */
} tsr_training;

/* Train. `run` NULL means its default. Fails as tsr_simulate does, and with TSR_ERROR_ARGUMENT for
 * data that is too short, TSR_ERROR_IO or TSR_ERROR_FORMAT for data that cannot be read or has tokens beyond
 * the model's vocabulary (before the step that would read them), TSR_ERROR_UNSUPPORTED for features that
 * are predicted but not computed, or TSR_ERROR_LIMIT for a run that needs more memory than this machine
 * has. `*out` is untouched then. */
int tsr_train(const tsr_model *model, const tsr_simulate_options *run,
              const tsr_train_options *options, tsr_training *out, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
