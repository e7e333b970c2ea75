/* tessera/unstable/training.h - run the training that tsr_simulate predicts, on the CPU.
 *
 * The model, the options and the schedule are the same: each step allocates what was predicted, and each kernel
 * computes. The data is a text whose bytes are the tokens, or a file of tokens. Weights start random, as
 * transformers initialises them, or are read from a file.
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
#include "tessera/unstable/simulation.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- A run saved in a folder ---- */

/* The state between two steps, which can be written to files. In a folder with the model's config.json,
 * transformers can load the weights. With the training file, whose name the weights contain, tsr_train resumes as
 * if the run had never stopped (tsr_train_options.resume). Write the training file first: the folder is saved once
 * model.safetensors is replaced. */
typedef struct tsr_train_state tsr_train_state;

/* The number of steps done before this state. */
uint64_t tsr_train_state_steps(const tsr_train_state *state);
/* Whether the run trains adapters (tsr_simulate_options.lora_rank): tsr_train_write_weights then writes them, for a file with peft's name
 * adapter_model.safetensors, and the model itself is not saved. */
bool tsr_train_has_adapters(const tsr_train_state *state);
/* Write peft's adapter_config.json. `base`: where the model itself is; NULL leaves that out. Fails with TSR_ERROR_WRITE or
 * TSR_ERROR_MEMORY. */
int tsr_train_write_adapter_config(const tsr_train_state *state, const char *base,
                                   tsr_write_fn *write, void *context, tsr_error *error);
/* Write config.json: the model's, with the current type of the weights if it names a type. Fails with
 * TSR_ERROR_WRITE or TSR_ERROR_MEMORY. */
int tsr_train_write_config(const tsr_train_state *state, tsr_write_fn *write, void *context,
                           tsr_error *error);
/* Write model.safetensors. `training` is the name of the training file, without a folder. Fails with TSR_ERROR_WRITE or TSR_ERROR_MEMORY, and with TSR_ERROR_FORMAT, before the first byte, if a
 * weight is not a finite number: it must not replace weights that are. */
int tsr_train_write_weights(const tsr_train_state *state, const char *training, tsr_write_fn *write,
                            void *context, tsr_error *error);
/* Write the training file, which contains what else resuming needs: the optimizer's state and the number of the
 * step. `notes`, a text, is stored with it. Fails as above, with TSR_ERROR_FORMAT for a state that is not finite. */
int tsr_train_write_training(const tsr_train_state *state, const char *notes, tsr_write_fn *write,
                             void *context, tsr_error *error);

/* A run saved in a folder. */
typedef struct tsr_train_saved tsr_train_saved;

/* Open a saved run. Reads all of its files, to compare their checksums. The caller frees `*out`. Fails with
 * TSR_ERROR_IO, TSR_ERROR_FORMAT if a file is damaged, is not the one that was saved, or contains no training,
 * TSR_ERROR_UNSUPPORTED, TSR_ERROR_LIMIT or TSR_ERROR_MEMORY. O(bytes of the files). */
int tsr_train_saved_open(const char *folder, tsr_train_saved **out, tsr_error *error);
uint64_t tsr_train_saved_steps(const tsr_train_saved *saved);
/* The `notes` that were saved; lives as long as `saved`. */
const char *tsr_train_saved_notes(const tsr_train_saved *saved);
/* Accepts NULL. */
void tsr_train_saved_free(tsr_train_saved *saved);

/* ---- Training ---- */

/* The largest instruction set that kernels may use; each contains those before it. The choice affects results
 * slightly. */
typedef enum tsr_train_isa {
  TSR_TRAIN_ISA_BEST, /* the best that the processor supports */
  TSR_TRAIN_ISA_PLAIN,
  TSR_TRAIN_ISA_AVX2,
  TSR_TRAIN_ISA_AVX512,
  TSR_TRAIN_ISA_AVX512_BF16
} tsr_train_isa;

/* Which code multiplies matrices. The choice affects the last digits of results; the number of threads does not. oneDNN
 * is loaded only if chosen, and uses more memory than is predicted. */
typedef enum tsr_train_products {
  TSR_TRAIN_PRODUCTS_AUTO,  /* OWN, unless oneDNN is installed and clearly faster in a long run */
  TSR_TRAIN_PRODUCTS_OWN,   /* tessera's own kernels */
  TSR_TRAIN_PRODUCTS_ONEDNN /* fp32 and bf16; tessera's kernels compute the rest */
} tsr_train_products;

/* A finished step. */
typedef struct tsr_train_step {
  uint64_t step,
      steps;   /* this one, from 1, and the last one; both include the steps before a resumed run */
  double loss; /* the mean over the step's tokens, before its update */
  double gradient_norm;      /* of all gradients, before clipping; NaN without clipping */
  double validation_loss;    /* after the step's update; NaN if it was not evaluated */
  double validation_seconds; /* what the evaluation took */
  bool is_skipped;      /* scaled gradients overflowed, so there was no update (autocast-fp16) */
  uint64_t token_count; /* in this step */
  /* The loss or a gradient is not finite. The step was discarded: the weights are those before it. */
  bool is_diverged;
  double learning_rate;                    /* in this step */
  uint64_t allocated_bytes;                /* now: requested and live */
  uint64_t peak_bytes;                     /* so far: allocated */
  uint64_t parameter_count, trained_count; /* all, and those that are not frozen (LoRA) */
  uint32_t rank_count;                     /* that train together; 1 if alone */
  uint64_t predicted_peak_bytes;           /* of the complete run: allocated */
  uint64_t predicted_reserved_bytes;       /* memory taken from the system */
  tsr_train_products products;             /* the code that multiplies matrices; never AUTO */
  const char
      *products_text; /* how it was chosen, valid during the call; "" if nothing was measured */
  tsr_train_isa isa, best_isa; /* of the run's kernels; of this processor; never BEST */
  /* What the last digits depend on, such as "avx512 kernels, oneDNN 3.1.1 (0xff)"; valid during the call. */
  const char *computed_by;
  /* Valid during the call; the state of step - 1 if this step diverged or was given up. NULL if it diverged after an optimizer in
   * backward had updated some parameters. */
  const tsr_train_state *state;
  /* That the loss rises, and what to try; valid during the call. NULL in most steps, and set at most three times in a run. */
  const char *warning;
  bool is_interrupted; /* `wants_end` of some rank returned true */
  bool
      is_given_up; /* `gives_up` returned true: the weights are those before this step, and it has no loss */
  bool is_last; /* the run ends here, whatever the caller returns */
} tsr_train_step;

/* The format of a data file. */
typedef enum tsr_train_tokens {
  TSR_TRAIN_TOKENS_AUTO,  /* by llm.c's header; without one, U16 for files named .bin, else BYTES */
  TSR_TRAIN_TOKENS_BYTES, /* each byte is a token */
  TSR_TRAIN_TOKENS_U16,   /* little-endian 16-bit numbers */
  TSR_TRAIN_TOKENS_U32    /* little-endian 32-bit numbers */
} tsr_train_tokens;

/* The learning rate. It grows from 0 during `warmup_steps`, reaches its full value in the last of them, and
 * then: */
typedef enum tsr_train_schedule {
  TSR_TRAIN_CONSTANT,
  TSR_TRAIN_COSINE, /* follows half a cosine to the least rate, reached after the last step */
  TSR_TRAIN_LINEAR  /* falls to it linearly */
} tsr_train_schedule;

/* How sequences of a batch are chosen. */
typedef enum tsr_train_order {
  TSR_TRAIN_RANDOM, /* at random positions */
  /* In order; each starts with the last token of the one before. If a batch does not fit before the end of the
   * data, it starts at the beginning. */
  TSR_TRAIN_SEQUENTIAL
} tsr_train_order;

/* The cost of an op's kernels in one phase, over all steps; or of a kernel that belongs to no op. */
typedef struct tsr_train_op {
  const char *name;      /* static text */
  const char *phase;     /* "forward", "backward", ...; static text */
  uint64_t run_count;    /* kernels in one step */
  double seconds;        /* in all steps */
  uint64_t bytes, flops; /* in one step: read and written; floating-point operations */
} tsr_train_op;

/* The maximum number of ops. */
#define TSR_TRAIN_OPS 512

/* The processes that an MPI launcher (mpirun) has started, including this one. */
typedef struct tsr_processes tsr_processes;

typedef enum tsr_launcher { TSR_LAUNCHER_OPEN_MPI, TSR_LAUNCHER_MPICH } tsr_launcher;

/* Connect to the other processes. Loads the launcher's MPI library and initialises it, which returns once every
 * process has called it. Call this once per process, before anything that may fail on a single rank. Fails with
 * TSR_ERROR_UNSUPPORTED if the library cannot be loaded or does not support threads. The caller frees *out. */
int tsr_processes_new(tsr_launcher launcher, tsr_processes **out, tsr_error *error);

/* This process's number, from 0, and the number of processes. */
uint32_t tsr_processes_rank(const tsr_processes *processes);
uint32_t tsr_processes_count(const tsr_processes *processes);

/* Exchange a number: all[r] becomes `mine` of rank r. Every process has to call this; it returns when all have.
 * `all` has tsr_processes_count() elements. Fails with TSR_ERROR_IO. */
int tsr_processes_share(tsr_processes *processes, int32_t mine, int32_t *all, tsr_error *error);

/* Finalise MPI, which waits for the other processes. Accepts NULL. */
void tsr_processes_free(tsr_processes *processes);

/* Where the ranks of tsr_simulate_options run. The choice does not affect results. */
typedef enum tsr_train_launch {
  TSR_TRAIN_ALONE,    /* for a single rank */
  TSR_TRAIN_THREADS,  /* as threads of this process */
  TSR_TRAIN_PROCESSES /* as `processes`; the launcher sets their number and this one's rank */
} tsr_train_launch;

/* The memory and traffic of a rank. */
typedef struct tsr_train_rank {
  uint64_t predicted_peak_bytes, peak_bytes; /* allocated on the device */
  uint64_t predicted_host_bytes, host_bytes; /* allocated on the host */
  uint64_t predicted_sent_bytes, sent_bytes; /* to other ranks, in all steps */
} tsr_train_rank;

/* Values in parentheses are used for zeros. The default has no data, so it trains nothing. */
typedef struct tsr_train_options {
  size_t struct_bytes;
  const char *data; /* the name of a file of any size, with at least one sequence; read as needed */
  tsr_train_tokens tokens; /* its format */
  const char *
      text; /* the data in memory, AUTO is bytes; borrowed during the call. `data` is then its name in errors */
  size_t text_bytes;
  /* A file of tokens to evaluate the model on, or NULL; its format; and the number of batches, of all ranks together (20), which are the same
   * each time. tsr_simulate_options.eval_steps is the number of steps between evaluations (100); the last step has one, too. A batch
   * has tsr_simulate_options.eval_batch sequences. Evaluation changes nothing else about the run. */
  const char *validation;
  tsr_train_tokens validation_tokens;
  const char
      *validation_text; /* it in memory, as `text`; `validation` is then its name in errors */
  size_t validation_text_bytes;
  uint64_t validation_batches;
  uint64_t seed;        /* for weights, batches and dropout */
  double learning_rate; /* (0.001) */
  double least_rate;    /* to which a schedule falls */
  tsr_train_schedule schedule;
  uint64_t warmup_steps;
  double weight_decay; /* for AdamW; for this and the next three, negative means 0 (0.01) */
  double beta_1, beta_2, epsilon; /* (0.9, 0.999, 1e-8) */
  double momentum;                /* for SGD with momentum; negative means 0 (0.9) */
  tsr_train_order order;
  unsigned threads; /* for computing (as many as processors); does not affect results */
  tsr_train_isa isa;
  tsr_train_products products;
  const char *offload_folder; /* for the file of offloaded activations; deleted after the run */
  tsr_train_op *ops; /* receives the ops, the slowest first; TSR_TRAIN_OPS items, or NULL */
  bool measures;     /* also measure the machine's rates: tsr_training.rates */
  bool is_recorded;  /* record the run's events: tsr_training.snapshot */
  bool is_profiled;  /* list what is in memory at the peak: tsr_training.profile */
  const char *
      weights; /* a safetensors file, or a folder with one or an index; NULL: random weights. With `resume`,
                   of the model whose adapters are resumed */
  /* A folder to resume from, instead. With the same model, data and options, and with `steps` of the complete run,
   * the result is bit for bit that of an uninterrupted run. */
  const char *resume;
  bool accepts_other_data; /* allow data that differs from the saved run's */
  /* Called once, on the first rank, when everything is ready for the first step, with the bytes that a saved state takes. A
   * status other than 0 ends the run with it; the caller knows the reason then. May be NULL. */
  int (*ready)(void *context, uint64_t state_bytes);
  /* Called after each step, in the caller's thread. Returning false ends the run without an error. May be NULL. */
  bool (*step)(void *context, const tsr_train_step *step);
  void *context;
  tsr_train_launch launch;
  tsr_processes *processes; /* for TSR_TRAIN_PROCESSES; borrowed */
  /* Returns whether this rank has been asked to stop, by a signal for example. Called on every rank after each
   * step; all ranks stop after the step in which one returns true. Also called about a hundred times a second before the first
   * step, by all ranks that are threads; the run then fails with TSR_ERROR_IO. May be NULL. */
  bool (*wants_end)(void *context);
  /* Before each kernel of a run without ranks: whether the step is to be left unfinished, unless it has begun to update
   * parameters. The run then ends with the state of the step before. May be NULL. */
  bool (*gives_up)(void *context);
  /* Called when this rank cannot continue, with the reason. A launcher may kill the process when this returns. May
   * be NULL. */
  void (*failed)(void *context, uint32_t rank, const char *reason);
  bool *has_begun; /* receives whether all ranks began the first step; or NULL */
  bool *
      is_said; /* receives whether another rank reports the failure, so that this one need not; or NULL */
  tsr_train_rank *ranks; /* receives the cost of each rank; or NULL */
  size_t rank_room;      /* the number of elements in `ranks` */
  /* For recorded runs: receives the snapshots of the other threads, by rank from 1, in an array of `rank_room`
   * zeros. The caller frees them, also after a failure. NULL records only this rank. Processes have a snapshot
   * each. */
  tsr_snapshot **snapshots;
  const char **subject; /* receives the name of the failing file, or NULL; may be NULL */
} tsr_train_options;

/* The result of a run. Bytes were measured while it ran, except those named predicted. */
typedef struct tsr_training {
  uint64_t steps_before; /* of the run that was resumed */
  uint64_t steps_done, parameter_count, trained_count,
      token_count;     /* of this run; a step that diverged does not count */
  uint64_t step_flops; /* floating-point operations of one step */
  double first_loss, last_loss;
  /* Of the last evaluation, and of the best one with the step it followed; NaN and 0 without any. */
  double validation_loss, best_validation_loss;
  uint64_t best_validation_step;
  bool is_diverged; /* the next step's loss or a gradient was not finite, which ended the run */
  bool is_out_of_memory; /* the capacity was too small, which ended the run, as predicted */
  tsr_simulate_moment out_of_memory;         /* when that happened, with categories of memory */
  uint64_t oom_request_bytes;                /* the request that failed */
  size_t op_count;                           /* items in tsr_train_options.ops */
  uint64_t predicted_peak_bytes, peak_bytes; /* allocated */
  uint64_t predicted_reserved_bytes, reserved_bytes; /* memory taken from the system */
  /* With TSR_MEMORY_PLACED, the largest amount live at once, each tensor rounded to 512 bytes, else 0. No placement
   * takes less. */
  uint64_t bound_bytes;
  tsr_space_peak predicted_host, host, predicted_disk, disk; /* offloaded memory */
  /* The tokens of a step, which are read one step ahead: accumulate x batch x sequence x 8 bytes. The rest of the
   * data stays in its file. Those of an evaluation are added: batches x batch x sequence x 8 bytes. */
  uint64_t predicted_data_bytes, data_bytes;
  double host_copy_bytes_per_second,
      disk_copy_bytes_per_second; /* host: between device and host; 0 if nothing was copied */
  double copied_bytes, copy_wait_seconds; /* the total copied, and how long kernels waited for it */
  uint32_t rank, rank_count;              /* this rank, and the number of ranks: 1 if alone */
  tsr_snapshot *snapshot; /* if recorded: as PyTorch would have written it; the caller frees it */
  tsr_memory_profile *profile; /* if `is_profiled`; the caller frees it */
  uint64_t timed_steps;    /* the steps in `ops`: all but the first, unless it is the only one */
  struct tsr_rates *rates; /* if `measures` and a step was timed; the caller frees them */
} tsr_training;

/* Train. `run` NULL selects the default. Fails as tsr_simulate does, and with
 *   TSR_ERROR_ARGUMENT     for data that is too short,
 *   TSR_ERROR_IO           for files that cannot be read, and if another rank fails or is gone,
 *   TSR_ERROR_FORMAT       for files that do not fit the model, and for tokens beyond its vocabulary, before the step
 *                          that would read them,
 *   TSR_ERROR_UNSUPPORTED  for features that are predicted but not computed,
 *   TSR_ERROR_LIMIT        for a run that needs more memory than this machine or its control group has left, or
 *                          whose placed memory exceeds the capacity.
 * `*out` is untouched on failure. */
int tsr_train(const tsr_model *model, const tsr_simulate_options *run,
              const tsr_train_options *options, tsr_training *out, tsr_error *error);

/* Whether a file of data is a text, for tsr_train's TSR_TRAIN_TOKENS_AUTO; false if it cannot be read. */
bool tsr_train_is_text(const char *path);

/* ---- Continuing a text ---- */

/* What a continued text took. The times leave loading out. */
typedef struct tsr_sample_account {
  uint64_t tokens;               /* that were added */
  uint64_t prompt_tokens;        /* of the prompt, that the model saw: its last ones */
  uint64_t cache_bytes;          /* of keys and values; 0 if none were kept */
  uint64_t predicted_peak_bytes; /* allocated, as predicted before the first pass, */
  uint64_t peak_bytes;           /* and as it came; less if the text ended early */
  double prompt_s, tokens_s;     /* up to the first added token; for all others */
} tsr_sample_account;

/* Values in parentheses are used for zeros. */
typedef struct tsr_sample_options {
  size_t struct_bytes;
  const char *weights;   /* as above; required */
  const int64_t *prompt; /* at least one token; borrowed */
  size_t prompt_count;
  uint64_t count;     /* tokens to add */
  uint64_t context;   /* tokens that the model sees at once (its positions, at most 1024) */
  double temperature; /* divides the logits; 0 selects the most likely token */
  uint64_t top_k;     /* choose among the N most likely tokens (all) */
  double top_p;       /* and among the fewest that are this probable together (1) */
  uint64_t seed;
  unsigned threads; /* (as many as processors) */
  /* Called for each token, in the caller's thread. Returning false ends the text without an error. */
  bool (*token)(void *context, int64_t token);
  void *token_context;
  const char **subject;        /* as above */
  tsr_sample_account *account; /* filled in, even after a failure; or NULL */
} tsr_sample_options;

/* Continue a prompt with a model, in fp32 and without dropout. Keys and values are kept, so that each token is
 * computed once, until the text is longer than `context`; from then on the last `context` tokens are computed again for
 * each new one. Equal inputs give equal tokens, with any number of threads. Fails with TSR_ERROR_ARGUMENT for a prompt with tokens beyond the model's
 * vocabulary, as tsr_train does for weights, and with TSR_ERROR_LIMIT or TSR_ERROR_MEMORY. */
int tsr_sample(const tsr_model *model, const tsr_sample_options *options, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
