/* tessera/unstable/training.h - run the training that tsr_simulate predicts, on the CPU.
 *
 * The same model, the same options and the same schedule: each step allocates what was predicted, and
 * each kernel computes. Data is a text, whose bytes are the tokens, or a file of tokens; weights begin
 * random, as transformers initialises them, unless a file has them.
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

/* ---- A run in a folder ---- */

/* A moment between two steps, at which the run can be written to files. In a folder with the model's
 * config.json, the weights are what transformers loads, and with the training file, whose name they
 * contain, tsr_train goes on as if it had never ended (tsr_train_options.resume). Write the training first:
 * the folder is saved when model.safetensors is replaced. */
typedef struct tsr_train_state tsr_train_state;

/* The steps that it comes after. */
uint64_t tsr_train_state_steps(const tsr_train_state *state);
/* Write the contents of config.json: the model's, with the type that its weights now have if it names one.
 * Fails with TSR_ERROR_WRITE or TSR_ERROR_MEMORY. */
int tsr_train_write_config(const tsr_train_state *state, tsr_write_fn *write, void *context,
                           tsr_error *error);
/* Write the contents of model.safetensors. `training` is the name of the file below, without a folder. Fails
 * with TSR_ERROR_WRITE or TSR_ERROR_MEMORY. */
int tsr_train_write_weights(const tsr_train_state *state, const char *training, tsr_write_fn *write,
                            void *context, tsr_error *error);
/* Write what else is needed to go on: the optimizer's state and the number of the step. `notes`, a text, is
 * kept with it. Fails as above. */
int tsr_train_write_training(const tsr_train_state *state, const char *notes, tsr_write_fn *write,
                             void *context, tsr_error *error);

/* What was saved in a folder. */
typedef struct tsr_train_saved tsr_train_saved;

/* Open it. The caller frees `*out`. Fails with TSR_ERROR_IO, TSR_ERROR_FORMAT if the files are damaged or no
 * training was saved there, TSR_ERROR_UNSUPPORTED, TSR_ERROR_LIMIT or TSR_ERROR_MEMORY. */
int tsr_train_saved_open(const char *folder, tsr_train_saved **out, tsr_error *error);
uint64_t tsr_train_saved_steps(const tsr_train_saved *saved);
/* The text that was written with it; lives as long as it. */
const char *tsr_train_saved_notes(const tsr_train_saved *saved);
/* NULL is fine. */
void tsr_train_saved_free(tsr_train_saved *saved);

/* ---- Training ---- */

/* Who multiplies matrices. Results depend on it, in last digits, but not on the number of threads. Libraries
 * are loaded when they are wanted, and take memory of their own besides what is predicted. */
typedef enum tsr_train_products {
  TSR_TRAIN_PRODUCTS_AUTO, /* OWN, unless a library that is there is clearly faster in a long run */
  TSR_TRAIN_PRODUCTS_OWN,  /* tessera's own kernels */
  TSR_TRAIN_PRODUCTS_ONEDNN /* fp32 and bf16; what it does not compute is computed by own kernels */
} tsr_train_products;

/* A finished step. */
typedef struct tsr_train_step {
  uint64_t step,
      steps;   /* from 1, those before a run that goes on included; the last one's number */
  double loss; /* the mean over its tokens, before its update */
  double gradient_norm; /* of all gradients, before they were clipped; NaN if they are not */
  bool is_skipped;      /* scaled gradients overflowed: no update (autocast-fp16) */
  uint64_t token_count; /* of this step */
  /* The loss or a gradient is not a finite number. It was not used: weights are as before this step. */
  bool is_diverged;
  double learning_rate;     /* of this step */
  uint64_t allocated_bytes; /* now: requested, and live */
  uint64_t peak_bytes;      /* so far: allocated */
  uint64_t parameter_count;
  uint32_t rank_count;               /* that train together; 1 alone */
  uint64_t predicted_peak_bytes;     /* of the whole run: allocated */
  uint64_t predicted_reserved_bytes; /* memory that it takes from the system */
  tsr_train_products products;       /* who multiplies matrices: not AUTO */
  const char *products_text; /* how that was chosen, during the call; "" if nothing was measured */
  /* During the call; of step - 1 if this one diverged. NULL if it diverged when an optimizer in backward had updated some of
   * the parameters. */
  const tsr_train_state *state;
  bool is_interrupted; /* `wants_end` of this or another rank has returned true */
  bool is_last;        /* the run ends here, whatever the caller returns */
} tsr_train_step;

/* What a file of data holds. */
typedef enum tsr_train_tokens {
  TSR_TRAIN_TOKENS_AUTO, /* what llm.c's header says; without one, U16 in files named .bin, else BYTES */
  TSR_TRAIN_TOKENS_BYTES, /* each byte is a token */
  TSR_TRAIN_TOKENS_U16,   /* little-endian numbers of 16 */
  TSR_TRAIN_TOKENS_U32    /* or 32 bits */
} tsr_train_tokens;

/* How the learning rate changes. It grows from 0 for `warmup_steps`, reaches its full value with the last
 * of them, and then: */
typedef enum tsr_train_schedule {
  TSR_TRAIN_CONSTANT,
  TSR_TRAIN_COSINE, /* falls to 0 as half a cosine does, which it would reach after the last step */
  TSR_TRAIN_LINEAR  /* falls to 0 in a line */
} tsr_train_schedule;

/* Which sequences a batch has. */
typedef enum tsr_train_order {
  TSR_TRAIN_RANDOM, /* from random places */
  /* One after the other, each beginning with the last token of the one before. A batch that does not fit
   * before the end begins at the start. */
  TSR_TRAIN_SEQUENTIAL
} tsr_train_order;

/* Where tensors are. No result depends on it. */
typedef enum tsr_train_memory {
  TSR_TRAIN_CACHING, /* where PyTorch's allocator would put them */
  TSR_TRAIN_PLACED /* at places chosen before the run, in one range of memory, which all steps use */
} tsr_train_memory;

/* Instructions that kernels use at most; each set contains those before it. Results depend on it, a little. */
typedef enum tsr_train_isa {
  TSR_TRAIN_ISA_BEST, /* that the processor has */
  TSR_TRAIN_ISA_PLAIN,
  TSR_TRAIN_ISA_AVX2,
  TSR_TRAIN_ISA_AVX512,
  TSR_TRAIN_ISA_AVX512_BF16
} tsr_train_isa;

/* What the kernels of an op took, in one phase of all steps; or a kernel that belongs to no op. */
typedef struct tsr_train_op {
  const char *name;      /* static text */
  const char *phase;     /* "forward", "backward", ...; static text */
  uint64_t run_count;    /* kernels of one step */
  double seconds;        /* of all steps */
  uint64_t bytes, flops; /* of one step: read and written, and floating-point operations */
} tsr_train_op;

/* There are never more. */
#define TSR_TRAIN_OPS 512

/* The processes that a launcher of MPI (mpirun) has started, this one among them. */
typedef struct tsr_processes tsr_processes;

typedef enum tsr_launcher { TSR_LAUNCHER_OPEN_MPI, TSR_LAUNCHER_MPICH } tsr_launcher;

/* Connect to the other processes: loads the launcher's MPI library and initialises it, which returns once every process has
 * called it. Once per process, and before anything that may fail on one rank alone. Fails with TSR_ERROR_UNSUPPORTED if the library
 * cannot be loaded or cannot be called by threads. The caller frees *out. */
int tsr_processes_new(tsr_launcher launcher, tsr_processes **out, tsr_error *error);

/* This process's number, from 0, and how many there are. */
uint32_t tsr_processes_rank(const tsr_processes *processes);
uint32_t tsr_processes_count(const tsr_processes *processes);

/* Exchange a number: all[r] becomes the `mine` of rank r. Every process has to call it; it returns when all have. `all` has
 * tsr_processes_count() elements. Fails with TSR_ERROR_IO. */
int tsr_processes_share(tsr_processes *processes, int32_t mine, int32_t *all, tsr_error *error);

/* Finalises MPI, which waits for the other processes. NULL is fine. */
void tsr_processes_free(tsr_processes *processes);

/* Where the ranks of tsr_simulate_options run. No result depends on it. */
typedef enum tsr_train_launch {
  TSR_TRAIN_ALONE,    /* there is one rank, or none is named */
  TSR_TRAIN_THREADS,  /* as threads of this process */
  TSR_TRAIN_PROCESSES /* as `processes`: their number and this one's rank are the launcher's */
} tsr_train_launch;

/* What a rank took. */
typedef struct tsr_train_rank {
  uint64_t predicted_peak_bytes, peak_bytes; /* allocated, on the device */
  uint64_t predicted_host_bytes, host_bytes; /* allocated there */
  uint64_t predicted_sent_bytes, sent_bytes; /* to other ranks, by all steps */
} tsr_train_rank;

/* The default trains nothing: it has no data. Zeros stand for the values in parentheses. */
typedef struct tsr_train_options {
  size_t struct_bytes;
  const char *data; /* the name of a file of any size, at least one sequence long; read as needed */
  tsr_train_tokens tokens; /* what it holds */
  const char *text;        /* instead of a file: bytes, borrowed during the call */
  size_t text_bytes;
  uint64_t seed;        /* of weights, batches and dropout */
  double learning_rate; /* (0.001) */
  tsr_train_schedule schedule;
  uint64_t warmup_steps;
  double weight_decay;            /* of AdamW; negative: 0 (0.01), and so for those that follow: */
  double beta_1, beta_2, epsilon; /* (0.9, 0.999, 1e-8) */
  tsr_train_order order;
  unsigned threads; /* that compute (as many as there are processors); no result depends on it */
  tsr_train_isa isa;
  tsr_train_products products;
  tsr_train_memory memory;
  const char
      *offload_folder; /* for the file of activations that are kept on disk; gone after the run */
  tsr_train_op
      *ops;      /* receives what each op took, the longest first: TSR_TRAIN_OPS of them; or NULL */
  bool measures; /* also measure what the machine does in a second: tsr_training.rates */
  bool is_recorded; /* keep the run's events, for tsr_training.snapshot */
  bool is_profiled; /* list what is in memory at the peak: tsr_training.profile */
  const char *
      weights; /* a safetensors file, or a folder with one or an index, to begin with; NULL: random */
  /* A folder to go on from, instead: with the same model, data and options, and `steps` of the whole run, the
   * result is bit for bit that of a run without a break. */
  const char *resume;
  bool
      accepts_other_data; /* else data that is not the saved run's is refused: another number of tokens, or other ones */
  /* After each step, in the caller's thread. False ends the run, without an error. May be NULL. */
  bool (*step)(void *context, const tsr_train_step *step);
  void *context;
  tsr_train_launch launch;
  tsr_processes *processes; /* of TSR_TRAIN_PROCESSES; borrowed */
  /* Whether this rank has been asked to end, by a signal for example. Called on every rank after each step; all ranks end after
   * the step in which one returns true. May be NULL. */
  bool (*wants_end)(void *context);
  /* This rank cannot continue, for that reason; a launcher may end the process when this returns. May be NULL. */
  void (*failed)(void *context, uint32_t rank, const char *reason);
  bool *has_begun; /* receives whether all ranks began the first step; or NULL */
  bool *
      is_said; /* receives whether another rank reports a failure, so that this one need not; or NULL */
  tsr_train_rank *ranks; /* receives what each rank took: as many as there are; or NULL */
  size_t rank_room;      /* of how many there is room */
  /* Of runs that are recorded: receives the snapshots of the other threads, by their ranks from 1 on, in an array of
   * `rank_room` zeros; the caller's, also after a failure. NULL: only this rank is recorded. Processes have their own. */
  tsr_snapshot **snapshots;
  const char *
      *subject; /* receives the name of the file that a failure is about, or NULL; or is NULL */
} tsr_train_options;

/* What came of it. Bytes were measured while it ran, but for those called predicted. */
typedef struct tsr_training {
  uint64_t steps_before; /* of a run that went on */
  uint64_t steps_done, parameter_count,
      token_count;     /* of this run; steps that diverged are not done */
  uint64_t step_flops; /* floating-point operations of one step */
  double first_loss, last_loss;
  bool
      is_diverged; /* the loss or a gradient of the next step is no finite number: it ended there */
  bool is_out_of_memory;             /* the capacity was too small: it ended there, as predicted */
  tsr_simulate_moment out_of_memory; /* where that was, and what memory was for */
  uint64_t oom_request_bytes;        /* what was asked for then */
  size_t op_count;                   /* of tsr_train_options.ops, if they were wanted */
  uint64_t predicted_peak_bytes, peak_bytes;         /* allocated */
  uint64_t predicted_reserved_bytes, reserved_bytes; /* memory that was taken from the system */
  /* With TSR_TRAIN_PLACED, the most that lives at once, each tensor rounded to 512 bytes: no choice of places
   * takes less than that. Else 0. */
  uint64_t bound_bytes;
  tsr_space_peak predicted_host, host, predicted_disk, disk; /* of what is offloaded */
  /* Tokens of a step, which are read one step ahead: accumulate x batch x sequence x 8 bytes. The rest of the data stays in its
   * file. */
  uint64_t predicted_data_bytes, data_bytes;
  double host_copy_bytes_per_second,
      disk_copy_bytes_per_second; /* between device and host, and with the disk; 0: nothing was copied */
  double copied_bytes,
      copy_wait_seconds;     /* all that was copied, and how long kernels waited for it */
  uint32_t rank, rank_count; /* this one, and how many trained together: 1 alone */
  tsr_snapshot *snapshot; /* if it was recorded: as PyTorch would have written it; the caller's */
  tsr_memory_profile *profile; /* if it was asked for; the caller's */
  uint64_t
      timed_steps; /* whose time is in tsr_train_options.ops: all but the first, unless that is the only one */
  struct tsr_rates *rates; /* if they were asked for, and a step was timed; the caller's */
} tsr_training;

/* Train. `run` NULL means its default. Fails as tsr_simulate does, and with TSR_ERROR_ARGUMENT for
 * data that is too short, TSR_ERROR_IO or TSR_ERROR_FORMAT for files that cannot be read or do not fit the
 * model, and for data that cannot be read or has tokens beyond
 * the model's vocabulary (before the step that would read them), TSR_ERROR_UNSUPPORTED for features that
 * are predicted but not computed, or TSR_ERROR_LIMIT for a run that needs more memory than this machine
 * or its control group has left, or whose placed memory exceeds the capacity; with other ranks with TSR_ERROR_IO if one of them
 * fails or is gone. `*out` is untouched then. */
int tsr_train(const tsr_model *model, const tsr_simulate_options *run,
              const tsr_train_options *options, tsr_training *out, tsr_error *error);

/* ---- Continuing a text ---- */

/* Zeros stand for the values in parentheses, where there are some. */
typedef struct tsr_sample_options {
  size_t struct_bytes;
  const char *weights;   /* as above; required */
  const int64_t *prompt; /* at least one token; borrowed */
  size_t prompt_count;
  uint64_t count; /* tokens to add */
  uint64_t
      context; /* the most tokens that the model sees at a time (its positions, 1024 at most) */
  double temperature; /* logits are divided by it; 0: the most likely token each time */
  uint64_t top_k;     /* choose among the most likely ones, this many of them (all) */
  uint64_t seed;
  unsigned threads; /* (as many as there are processors) */
  /* Each token, in the caller's thread. False ends it, without an error. */
  bool (*token)(void *context, int64_t token);
  void *token_context;
  const char **subject; /* as above */
} tsr_sample_options;

/* Continue a prompt with a model, in fp32 and without dropout. The whole context is computed again for each token.
 * Equal inputs give equal tokens. Fails with TSR_ERROR_ARGUMENT for a prompt with tokens beyond the model's
 * vocabulary, as tsr_train does for weights, and with TSR_ERROR_LIMIT or TSR_ERROR_MEMORY. */
int tsr_sample(const tsr_model *model, const tsr_sample_options *options, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
