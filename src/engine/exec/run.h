/* run.h - executing a schedule: the walk of the dry executor, on real memory.
 *
 * What is allocated, when and where is decided by exactly the code that predicts it (dry.h); this
 * executor watches, keeps memory at the addresses (arena.h), and calls each kernel. So a run's memory
 * is the predicted one by construction, and the arena's own account shows that it is.
 *
 * Host memory is an arena of its own. Tensors on a disk are in one temporary file, which is reserved before the run
 * and deleted after it; addresses of its allocator are offsets in the file. Copies between spaces are made by threads
 * of their own (copies.h), and no result depends on them.
 *
 * The caller fills the static tensors once they are allocated, supplies the tokens of each batch, and gets each
 * finished step with its loss. */
#ifndef TSR_EXEC_RUN_H
#define TSR_EXEC_RUN_H

#include "dist/comm.h"
#include "exec/arena.h"
#include "exec/copies.h"
#include "exec/dry.h"
#include "exec/placed.h"

/* An optimizer's settings; those that it does not have are ignored. */
typedef struct tsr__optimizer_numbers {
  double learning_rate, beta_1, beta_2, epsilon, decay, momentum;
} tsr__optimizer_numbers;

typedef struct tsr__executor tsr__executor;

enum { TSR__FORECAST_PLACES = 1 + TSR__DRY_SPACES };

/* Addresses that a space uses. */
typedef struct tsr__reach {
  uint64_t first, end;
  uint64_t ends[TSR__WALKED_STEPS + 1]; /* after each of the first steps */
  uint64_t lately[TSR__WALKED_AFTER +
                  2]; /* after each of the last steps that were walked, the latest one first */
} tsr__reach;

/* What a run will take. */
typedef struct tsr__forecast {
  tsr__dry_device device, spaces[TSR__DRY_SPACES]; /* of the steps that were walked */
  uint64_t reserved_bytes;  /* of the device: by the allocator, or by placed memory */
  tsr__placement placement; /* empty unless memory is placed; owned */
  tsr__reach reach[TSR__FORECAST_PLACES];
  uint64_t steps_done;
} tsr__forecast;

/* A finished step. */
typedef struct tsr__executed_step {
  uint64_t step;   /* from 1, or what follows steps_before */
  double loss;     /* the mean of its micro-batches */
  bool is_skipped; /* gradients overflowed, and a loss scaler left the parameters as they were */
  /* The loss or a gradient is not a finite number: the optimizer did not run, and parameters and its
   * state are as they were before the step. */
  bool is_diverged;
  bool is_interrupted; /* a rank wants the run to end */
  bool
      is_given_up; /* `gives_up` said so before any parameter was updated, which is as before the step */
  bool is_torn; /* it diverged after an optimizer in backward had updated some of the parameters */
  double gradient_norm; /* before clipping; NaN if it was not computed */
  bool is_evaluated;
  double evaluation;    /* if so, the mean loss of the evaluation after the step; else NaN */
  double evaluation_s;  /* seconds that it took */
  uint64_t block_bytes; /* allocated now: requested */
  uint64_t peak_bytes;  /* so far: allocated, as the prediction counts */
  uint64_t updates;     /* steps so far in which the optimizer ran, those before the run included */
} tsr__executed_step;

typedef struct tsr__execute_options {
  tsr_allocator_settings settings;
  uint64_t capacity_bytes; /* 0: unlimited */
  bool
      is_placed; /* tensors are where placed.h puts them; the allocator model only keeps the books */
  uint64_t host_bytes;            /* the host memory that slots may use; 0: unlimited */
  struct tsr_effort *effort;      /* of a forecast; or NULL: unlimited */
  const char *folder;             /* for the file of slots on a disk; NULL: there must be none */
  uint64_t steps;                 /* 0 = 1 */
  uint64_t steps_before;          /* of a resumed run: steps are counted from there, */
  uint64_t updates_before;        /* and those in which the optimizer ran */
  uint64_t seed;                  /* of dropout */
  tsr__optimizer_numbers numbers; /* of the first step */
  const tsr__tensor_id *losses;   /* the loss of each micro-batch */
  size_t loss_count;
  tsr__tensor_id gradient_norm; /* or 0 */
  /* The losses of one round of an evaluation; how many batches an evaluation has, of all ranks; and whether the last step has one whatever its
   * number. */
  const tsr__tensor_id *evaluation_losses;
  size_t evaluation_loss_count;
  uint64_t evaluation_batches;
  bool evaluates_last;
  /* Of a schedule that generates: how often that phase runs, at most; and the tensors that `output` sees. */
  uint64_t generation_rounds;
  const tsr__tensor_id *outputs;
  size_t output_count;
  /* By run of the tape: its time is added, in nanoseconds; or NULL. Of several steps the first is left out: it touches
   * memory for the first time. */
  uint64_t *run_ns;
  bool uses_reference;           /* even where there is a fast kernel */
  unsigned isa_limit;            /* 1 + a tsr__isa that fast kernels do not go beyond, or 0 */
  struct tsr__thread_pool *pool; /* for kernels, or NULL; no result depends on it */
  struct tsr__library *library;  /* for products of matrices, or NULL */
  tsr__comm *comm; /* to the other ranks of the schedule, which execute at the same time; or NULL */
  const tsr__forecast *forecast;     /* of this run, or NULL: it is made first */
  const tsr__dry_observer *observer; /* sees the same run, or NULL; its run, memory and loaded are
                                      * not called */
  void *context;                     /* of the functions below */
  /* Fill static tensors (tsr__executor_tensor). 0, or a failure that ends the run. */
  int (*load)(void *context, const tsr__executor *executor, tsr_error *error);
  /* A tensor of state has got its first value, in the run's first step, and may be given another. Fails
   * as `load`. May be NULL. */
  int (*restore)(void *context, const tsr__executor *executor, tsr__tensor_id tensor,
                 tsr_error *error);
  /* The tokens of a micro-batch, which stay until the next call: of kind 0 (ids) and 1 (labels). NULL
   * for kind 2, an attention mask of ones. Tokens are below the vocabulary. Rounds of a generation count as
   * micro-batches. */
  const int64_t *(*batch)(void *context, uint64_t step, uint64_t micro_batch, uint32_t which);
  /* A kernel has written one of `outputs`, which may be gone afterwards. False ends the generation. */
  bool (*output)(void *context, const tsr__executor *executor, tsr__tensor_id tensor);
  /* The same of an evaluation's batch, from 0, which is this rank's. */
  const int64_t *(*evaluation_batch)(void *context, uint64_t number, uint32_t which);
  /* Called when the run fails, so that the caller can inform other ranks before this rank waits for operations that
   * it has started. May be NULL. */
  void (*failed)(void *context, const tsr_error *error);
  /* With `comm`, after each step on every rank: whether this one wants the run to end. All of them then see is_interrupted. May
   * be NULL. */
  bool (*wants_end)(void *context);
  /* Before each kernel, without `comm`: whether the step is to be left unfinished, and the run to end. May be NULL. */
  bool (*gives_up)(void *context);
  /* A step is done. False ends the run, without an error. May be NULL. */
  bool (*step)(void *context, const tsr__executor *executor, const tsr__executed_step *step);
} tsr__execute_options;

typedef struct tsr__execution {
  uint64_t steps_done;
  tsr__dry_device predicted; /* of the same run without running it: tsr__forecast */
  tsr__dry_device executed;
  uint64_t usable_peak_bytes; /* the arena's account: of segments, or of placed memory, */
  uint64_t block_peak_bytes;  /* and of requested bytes */
  uint64_t bound_bytes;       /* of placed memory: the most that lives at once; else 0 */
  /* The same of host and disk; their usable bytes are of the host's arena, and of the file. */
  tsr__dry_device predicted_spaces[TSR__DRY_SPACES], spaces[TSR__DRY_SPACES];
  uint64_t space_usable_bytes[TSR__DRY_SPACES], space_block_bytes[TSR__DRY_SPACES];
  tsr__copy_account copies[TSR__DRY_SPACES]; /* between device and host; with the disk */
} tsr__execution;

/* Forecast a run: of `options`, settings, capacity, is_placed, host_bytes, steps and what evaluations have are read. Placed memory that exceeds the
 * capacity is TSR_ERROR_LIMIT. Otherwise fails as tsr__dry_run does. Release it either way. */
int tsr__forecast_run(const tsr__schedule *schedule, const tsr__execute_options *options,
                      tsr__forecast *out, tsr_error *error);
/* A zeroed one is fine. */
void tsr__forecast_release(tsr__forecast *forecast);

/* Run. Running out of the capacity ends the run and is not an error: see `executed`. Placed memory that
 * exceeds it is TSR_ERROR_LIMIT, before anything runs; a disk without room for what is kept there is TSR_ERROR_WRITE,
 * before anything runs, too. Fails with TSR_ERROR_MEMORY, TSR_ERROR_ARGUMENT for settings that make no sense, or what `load` returned. */
int tsr__execute(const tsr__schedule *schedule, const tsr__execute_options *options,
                 tsr__execution *out, tsr_error *error);

/* ---- For the caller's functions ---- */

/* A tensor that is allocated now, in its own space; without data if it is not allocated, or is on a disk. */
tsr__kernel_tensor tsr__executor_tensor(const tsr__executor *executor, tsr__tensor_id tensor);
/* Whether all elements are finite numbers; true for layouts with gaps, and for types but fp32, bf16 and fp16. The
 * tensor has data. O(elements). */
bool tsr__tensor_is_finite(const tsr__kernel_tensor *tensor);
/* Bytes that a rank sends in a step: the tape's, and what ranks agree on. A step that updates nothing, because it diverged or
 * a scaled loss overflowed, shares no parameters. 0 for one alone. O(moves). */
uint64_t tsr__executed_sent_bytes(const tsr__schedule *schedule, bool is_updated);
/* How often the recorded evaluation runs for all batches; 0 if the options have none. */
uint64_t tsr__evaluation_rounds(const tsr__schedule *schedule, const tsr__execute_options *options);
/* Bytes that a rank sends in an evaluation: the schedule's, in each of its rounds, and the losses. O(moves). */
uint64_t tsr__evaluation_sent_bytes(const tsr__schedule *schedule,
                                    const tsr__execute_options *options);
/* The threads that may help, or NULL: the options' pool. */
struct tsr__thread_pool *tsr__executor_pool(const tsr__executor *executor);
/* The settings of the next step, which `step` may change. */
tsr__optimizer_numbers *tsr__executor_numbers(const tsr__executor *executor);

#endif
