/* blocks.h - the blocks of one way: what each may keep, and what that takes (effects.c). blocks.c puts choices of blocks together by the
 * chain solver; local.c changes single blocks of a plan that was found. */
#ifndef TSR_PLAN_BLOCKS_H
#define TSR_PLAN_BLOCKS_H

#include "plan/planner.h"

enum {
  TSR__BLOCK_EFFECTS = 384, /* choices of a block that are known */
  TSR__BLOCK_NAMES = 60,    /* saved tensors of a block that can be chosen */
  TSR__BLOCK_SETS = 128
};

/* Saved tensors, as a set of names: bits. */
typedef uint64_t tsr__name_set;

/* A choice for a block: all of it is run again, or some saved tensors. */
typedef struct tsr__fragment {
  tsr_simulate_checkpoint checkpoint;
  tsr__name_set names;  /* recomputed */
  tsr_saved_place rest; /* where the other tensors are until backward */
} tsr__fragment;

/* What a choice changes of one block that keeps all, in one micro-batch. */
typedef struct tsr__block_effect {
  tsr__fragment fragment;
  double more_s;        /* of kernels */
  double more_copies_s; /* of copies to the host and back: negative if there are fewer */
  uint64_t saved_bytes; /* at the end of forward */
  bool is_possible;     /* the model allows it, and it saves memory or copies */
} tsr__block_effect;

/* What a model of few blocks takes. */
typedef struct tsr__blocks_sum {
  uint64_t forward_bytes;
  double kernels_s, copies_s;
} tsr__blocks_sum;

/* What can be chosen for a block. It depends on types, kernels and the micro-batch, and not on the loss, the optimizer, or where parameters
 * are: ways that differ in those alone share it. To find it takes a hundred surveys. */
struct tsr__block_options {
  /* What they depend on: the plan without other choices, which is owned; where activations are, the micro-batch, and
   * whether tensors are kept in fewer bits. */
  tsr_run_plan *key;
  tsr_space activations;
  uint64_t batch;
  bool narrows;
  char names[TSR__BLOCK_NAMES][64];
  size_t name_count;
  tsr__name_set
      sets[TSR__BLOCK_SETS]; /* single names, those of each storage, and of all ops of a kind */
  bool of_kinds[TSR__BLOCK_SETS]; /* the set has all ops of its kinds */
  size_t set_count;
  /* What is known of choices, found once. The first keeps all; none beats another of the first `best_count`. */
  tsr__block_effect effects[TSR__BLOCK_EFFECTS];
  size_t effect_count, best_count;
  size_t options[1 + TSR__PLANNER_OPTIONS]; /* of the chain: places in `effects`; the first is 0 */
  size_t count;
};

typedef struct tsr__chooser {
  tsr_planning *planning;
  tsr__way *way;
  struct tsr__home_blocks *
      home; /* the blocks of which nothing is on the host, if others are; owned, or NULL: all are alike */
  size_t away;                   /* with `home`: the number of the others, which come first */
  tsr_run_plan *plan;            /* the way's, of one micro-batch; owned */
  uint64_t batch;                /* of it */
  uint64_t parts;                /* micro-batches */
  struct tsr__block_options *of; /* the planning's */
  tsr__blocks_sum all;           /* of three blocks that keep all */
  /* While they are looked for: */
  double gains
      [TSR__BLOCK_SETS]; /* of of->sets: what a second saves, when last looked at; infinite at first */
  /* Of a block: */
  uint64_t kept_bytes, input_bytes, parameter_bytes;
  double forward_s, backward_s;
  double again_copies_s; /* more, or less, if it is run again; in a segment of several, even less */
} tsr__chooser;

/* Blocks of which nothing is on the host, in a way that keeps other blocks' tensors there. */
typedef struct tsr__home_blocks {
  tsr__chooser chooser;
  tsr__way way; /* only what a chooser needs: its plan, owned, and which times are hidden */
} tsr__home_blocks;

/* The tensors that a name of a plan stands for: "linear.0" for those of all ops of that kind. */
tsr__name_set tsr__blocks_named(const struct tsr__block_options *of, const char *name);
/* What `c` is for the block: `c`, or that of the blocks of which nothing is on the host. Both give names the same bits. */
const tsr__chooser *tsr__blocks_of(const tsr__chooser *c, size_t block);
/* The place in the block's options->effects of the choice that has place `number` in c->of->effects, as above; measured if it is new. */
int tsr__blocks_effect_of(const tsr__chooser *c, size_t block, size_t number, size_t *out,
                          tsr_error *error);
/* Begin to choose for the blocks of a way: measure what a block takes that keeps all, and what each option of blocks takes. `*is_possible` is
 * false for blocks that cannot be run again. The caller releases `*c`, also after a failure. Takes a hundred surveys of three blocks, or a dozen
 * if another way had the same blocks. */
int tsr__blocks_begin(tsr_planning *planning, tsr__way *way, tsr__chooser *c, bool *is_possible,
                      tsr_error *error);
void tsr__blocks_release(tsr__chooser *c);

/* Seconds of copies that a choice adds to a block of the way. Ways share choices wherever parameters are, so in a way that keeps nothing on
 * the host a choice may have the copies of another way: it has none. */
double tsr__blocks_copies(const tsr__chooser *c, const tsr__block_effect *effect);
/* Whether all ops of a kind do the same in a choice. */
bool tsr__blocks_is_of_kinds(const tsr__chooser *c, const tsr__fragment *f);

/* The place of a choice in of->effects, where it is measured by a survey of three blocks if it is new; TSR__BLOCK_EFFECTS if there is no
 * room. */
int tsr__blocks_effect(const tsr__chooser *c, const tsr__fragment *f, size_t *out,
                       tsr_error *error);

/* Add the choice for blocks first to last; every:K for a segment of K. A choice that keeps all adds nothing. False when out of memory. */
bool tsr__blocks_add_range(const tsr__chooser *c, tsr_run_plan *plan, const tsr__fragment *f,
                           uint64_t every, size_t first, size_t last);

/* The way's plan without choices for blocks; NULL when out of memory. */
tsr_run_plan *tsr__blocks_none(const tsr__way *way);

#endif
