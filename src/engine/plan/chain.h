/* chain.h - decides which blocks of a model to keep and which to run again: the least time that fits the memory.
 *
 * A model is a chain of blocks. Block i reads x[i] and makes x[i + 1]. Its backward reads what one of its *options*
 * saves and the gradient of x[i + 1], and makes the gradients of x[i] and of its parameters. A schedule runs a
 * block forward with one of its options, or without saving anything ("passing"), in which case the block has to run
 * again later.
 *
 * The schedules considered are those that this recursion makes. To train blocks a to b, given x[a] and the gradient
 * of x[b + 1], either
 *   now    run a with an option, train a + 1 to b, then run a's backward; or
 *   later  pass a to j - 1 keeping only x[j], train j to b, then train a to j - 1, from x[a] again.
 * Within this family the result is the best one (tests/unit/test_chain.c enumerates all). Parameter gradients that
 * exist when a part is run again count; plans made without them would not fit.
 *
 * In memory at each step, besides what other steps keep (the peak of a step is the sum):
 *   passing block i     x[i], x[i + 1], the temporaries of the block's forward
 *   running it          the same, and what the option saves
 *   its backward        what the option saves, the gradients of x[i + 1] and x[i], the temporaries of backward,
 *                       the gradients of its parameters
 * The gradient of x[i] has the size of x[i].
 *
 * Rule: rotor (Beaumont et al., "Optimal checkpointing for heterogeneous chains", 2019) with any number of options
 * for a block, and with parameter gradients. */
#ifndef TSR_PLAN_CHAIN_H
#define TSR_PLAN_CHAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { TSR__CHAIN_BLOCKS = 4096, TSR__CHAIN_OPTIONS = 16 };

/* One way to run a block: what it saves, and how long forward and backward then take. */
typedef struct tsr__chain_option {
  uint64_t saved_bytes; /* excludes x[i] and x[i + 1] */
  double forward_s,
      backward_s; /* not negative; recomputation inside the block is part of backward */
} tsr__chain_option;

typedef struct tsr__chain_block {
  uint64_t input_bytes;         /* of x[i] */
  uint64_t forward_extra_bytes; /* its temporaries */
  uint64_t backward_extra_bytes;
  uint64_t gradient_bytes;          /* of its parameters; 0 if they are added to existing memory */
  double pass_s;                    /* time of forward without saving */
  const tsr__chain_option *options; /* not owned; at least one */
  size_t option_count;
} tsr__chain_block;

typedef struct tsr__chain {
  const tsr__chain_block *blocks; /* not owned */
  size_t count;                   /* 1 to TSR__CHAIN_BLOCKS */
  uint64_t output_bytes;          /* of x[count]; its gradient exists from the beginning */
  size_t longest; /* the largest number of blocks to pass and run again at once; 0: unlimited */
  struct tsr_effort *effort; /* what may be taken, or NULL */
} tsr__chain;

typedef enum tsr__chain_kind {
  TSR__CHAIN_PASS,     /* forward without saving; x[i] is dropped afterwards unless keeps_input */
  TSR__CHAIN_RUN,      /* forward with an option */
  TSR__CHAIN_BACKWARD, /* drops x[i + 1] before, if it still exists, and x[i] after */
} tsr__chain_kind;

typedef struct tsr__chain_step {
  uint16_t block;
  uint8_t kind, option; /* option: for RUN and BACKWARD */
  bool keeps_input;     /* for PASS */
} tsr__chain_step;

typedef struct tsr__chain_plan {
  tsr__chain_step *steps; /* owned */
  size_t count;
  double time_s;
  uint64_t peak_bytes; /* exact: computed from the steps, not from rounded sizes */
} tsr__chain_plan;

typedef enum tsr__chain_answer { TSR__CHAIN_FITS, TSR__CHAIN_TOO_LARGE } tsr__chain_answer;

/* Find the fastest schedule whose peak, without x[0], is at most `budget_bytes`.
 *
 * Sizes are rounded up to slots, of which the budget has at most `slots` (1 to 65,535). So the result always fits,
 * but may be a little slower than the best: 500 slots lose at most 0.2 % of the budget for each tensor that is live
 * at once. If the budget has at most `slots` bytes, nothing is rounded. Sets TSR__CHAIN_TOO_LARGE and leaves `*out`
 * untouched if nothing fits. The caller releases `*out` with tsr__chain_plan_release. Returns 0, TSR_ERROR_MEMORY,
 * TSR_ERROR_LIMIT for tables of more than 4 GiB, or as tsr__effort_fail.
 *
 * Time O(slots * count^2 * (count + options)), memory 8 bytes * slots * count * (longest + 1): 128 blocks
 * with 500 slots take some 66 MB, and 2.6 MB with segments of at most 4. */
int tsr__chain_solve(const tsr__chain *chain, uint64_t budget_bytes, uint32_t slots,
                     tsr__chain_answer *answer, tsr__chain_plan *out, tsr_error *error);

/* The same for every budget up to `budget_bytes`, from one table: plans with different times, the fastest first. If
 * more than `room` exist, returns `room` of them, evenly spread, including the first and the last. `*count` is 0 if
 * nothing fits. The caller releases each of `plans`. Time as above and O(room * steps); with chain->longest,
 * O(slots * count * longest * (longest + options)). */
int tsr__chain_front(const tsr__chain *chain, uint64_t budget_bytes, uint32_t slots,
                     tsr__chain_plan *plans, size_t room, size_t *count, tsr_error *error);

/* Compute the peak and the time of any list of steps. It must be a schedule: each block's backward occurs once,
 * after a RUN of the block with the same option and after the backward of the next block. O(count). */
void tsr__chain_measure(const tsr__chain *chain, const tsr__chain_step *steps, size_t count,
                        uint64_t *peak_bytes, double *time_s);

/* Accepts a zeroed plan, and leaves a zeroed plan. */
void tsr__chain_plan_release(tsr__chain_plan *plan);

#endif
