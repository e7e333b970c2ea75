/* tessera/unstable/planning.h - what to change so that a training fits into a budget, and what that costs.
 *
 *   tsr_planning_options options = TSR_OPTIONS_INIT(tsr_planning_options);
 *   options.budget_bytes = ..., options.how = &how;
 *   int status = tsr_planning_new(model, &options, &planning, &error);
 *   if (status == 0) status = tsr_planning_solve(planning, budget, &answer, &error);
 *
 * A budget bounds what the allocator reserves, and every figure of an answer is that of `tsr_simulate` with the
 * answer's plan. Plans that are tried do not depend on the budget, so with less of it a plan takes no less time and no
 * more memory. */
#ifndef TESSERA_UNSTABLE_PLANNING_H
#define TESSERA_UNSTABLE_PLANNING_H

#include "tessera/output.h"
#include "tessera/study.h"
#include "tessera/unstable/estimates.h"
#include "tessera/unstable/plans.h"
#include "tessera/unstable/simulation.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What may be changed. */
#define TSR_ALLOW_KERNELS     1u /* fused kernels and optimizers, no cache of keys and values */
#define TSR_ALLOW_LOSS_CHUNK  2u /* head and loss of some tokens at a time: outputs have no logits */
#define TSR_ALLOW_ACCUMULATE  4u   /* the batch in parts */
#define TSR_ALLOW_RECOMPUTE   8u   /* in backward, what forward did not keep */
#define TSR_ALLOW_OFFLOAD     16u  /* to the host's memory */
#define TSR_ALLOW_IN_BACKWARD 32u  /* the optimizer, parameter by parameter */
#define TSR_ALLOW_PRECISION   64u  /* numbers of 16 bits: results differ */
#define TSR_ALLOW_NARROW      128u /* what backward needs in 8 or 16 bits until then: the same */
#define TSR_ALLOW_ZERO        256u /* ranks keep parts: ZeRO's stage, unless the plan has one */
/* Everything that leaves results as they are, but for rounding. */
unsigned tsr_allow_default(void);
/* Read "recompute,offload": words of the table of techniques, in the order of the flags above; "all" is all of them,
 * "none" none. TSR_ERROR_ARGUMENT, with `*out` untouched, for another word. */
int tsr_allow_parse(const char *text, unsigned *out, tsr_error *error);

/* The index-th word, and what it permits, in Markdown; no word (NULL) past the last. Constants. */
const char *tsr_allow_word(size_t index);
const char *tsr_allow_about(size_t index);

/* ---- Calibration: what a recorded run says about a prediction ---- */

#define TSR_CALIBRATION_PHASES 3
#define TSR_CALIBRATION_ROWS   8

/* Allocations of the recorded run's last step that the predicted one lacks, or has smaller. */
typedef struct tsr_unexplained {
  tsr_category category;
  char place[96]; /* the program's line */
  uint64_t count, bytes;
} tsr_unexplained;

typedef struct tsr_calibration {
  uint64_t steps;                         /* steady ones that were measured */
  double measured_s, predicted_s, factor; /* of a step; measured / predicted, 0 if not measured */
  struct {
    double measured_s, predicted_s; /* measured: 0 if not known */
  } phases[TSR_CALIBRATION_PHASES]; /* tsr_calibration_phase */
  uint64_t recorded_peak_bytes,
      predicted_peak_bytes; /* allocated, of the steps that were compared */
  uint64_t unexplained_bytes, unexplained_allocations; /* live at the recorded peak */
  tsr_unexplained rows[TSR_CALIBRATION_ROWS];          /* the largest */
  size_t row_count;
  struct tsr_rates *rates; /* the card's, times the factor; NULL if no time was measured. Owned */
} tsr_calibration;

/* Compare a recorded run with what is predicted for `how`: the time of a step from the times of its events, and its
 * last step, allocation by allocation. `how` needs a card or rates. The caller owns what `*out` has, for tsr_calibration_release. Fails
 * as tsr_simulate, and with TSR_ERROR_ARGUMENT for a snapshot without a trace, or of which less than half of the allocations are
 * predicted. */
int tsr_calibrate(const tsr_model *model, const tsr_simulate_options *how, tsr_study *recorded,
                  tsr_calibration *out, tsr_error *error);
/* Zeroed is fine. */
void tsr_calibration_release(tsr_calibration *calibration);
/* "forward", "backward", "optimizer". */
const char *tsr_calibration_phase(size_t index);

/* ---- Plans ---- */

typedef struct tsr_planning_options {
  size_t struct_bytes;
  unsigned allow;           /* TSR_ALLOW_...; nothing is changed if it is 0 */
  const tsr_run_plan *plan; /* to begin with; NULL: none. Borrowed */
  const tsr_simulate_options *
      how; /* batch, sequence, steps (at least 2), book, card, rates; its plan does not count. Borrowed */
  const tsr_calibration *calibration; /* for the answer's JSON; NULL: none. Borrowed */
} tsr_planning_options;

/* A model's plans, with what was measured of them so far. One thread at a time. */
typedef struct tsr_planning tsr_planning;

/* Begin. The model, the plan and `how` must outlive `*out`, which is the caller's, for tsr_planning_free. Fails as
 * tsr_simulate does for the plan as it is, unless another precision is allowed and the model is possible with that; and
 * with TSR_ERROR_UNSUPPORTED for a step graph. */
int tsr_planning_new(const tsr_model *model, const tsr_planning_options *options,
                     tsr_planning **out, tsr_error *error);
/* NULL is fine. */
void tsr_planning_free(tsr_planning *planning);

typedef enum tsr_planning_verdict {
  TSR_PLANNING_FITS, /* as it is; the plan may be faster */
  TSR_PLANNING_FITS_WITH_CHANGES,
  TSR_PLANNING_DOES_NOT_FIT
} tsr_planning_verdict;

/* One change of the plan, and what the plan takes with it and those before it. */
typedef struct tsr_planned_change {
  char name[96]; /* "loss of 512 tokens at a time" */
  tsr_run_plan_cost so_far;
} tsr_planned_change;

#define TSR_PLANNED_CHANGES 24

typedef struct tsr_planned {
  tsr_planning_verdict verdict;
  uint64_t budget_bytes;
  tsr_run_plan *plan; /* that fits; else the one that takes least of those tried. Owned */
  tsr_run_plan_cost as_is, with;
  char refusal[256]; /* why the plan to begin with is not possible; "" if it is */
  tsr_planned_change changes[TSR_PLANNED_CHANGES]; /* from the plan to begin with to this one */
  size_t change_count;
  /* No schedule of the same kernels, in any of the ways that were considered, takes less time or less memory. Time:
   * infinite if none fits, which is proved then. */
  double bound_seconds;
  uint64_t bound_bytes;
  bool is_proved;                     /* that nothing fits */
  const tsr_calibration *calibration; /* as in the options */
  /* Of a step graph, if plans were looked for: the modules that are blocks of its chain, and how many of them read what another one than
   * the block before them made. For those the solver's sums are approximate; what is simulated is not. */
  size_t unit_count, far_count;
  size_t tried; /* plans that were simulated so far */
} tsr_planned;

/* The fastest plan that fits. The caller owns what `*out` has, for tsr_planned_release. Fails with TSR_ERROR_MEMORY.
 * Some ten to some hundred simulations of a few milliseconds; less after other budgets. */
int tsr_planning_solve(tsr_planning *planning, uint64_t budget_bytes, tsr_planned *out,
                       tsr_error *error);
/* Zeroed is fine. */
void tsr_planned_release(tsr_planned *planned);

/* ---- The largest that fits ---- */

typedef enum tsr_largest_what {
  TSR_LARGEST_BATCH,    /* sequences, without micro-batches: in parts of one, any batch fits */
  TSR_LARGEST_SEQUENCE, /* tokens, a multiple of 64 */
  /* Parameters. Heads, width and layers in the proportions of the model, vocabulary and all else as they are; then layers are added. With
   * parameters on the host only the largest block has to fit. */
  TSR_LARGEST_MODEL
} tsr_largest_what;

typedef struct tsr_largest {
  tsr_largest_what what;
  uint64_t size, as_is;   /* with changes, and without; 0: not even one */
  bool is_models_limit;   /* one more is too many for the model, whatever the memory */
  tsr_model *model;       /* TSR_LARGEST_MODEL: of that size; else NULL. Owned */
  tsr_planning *planning; /* of that size; NULL if no size fits. Owned, as the following */
  tsr_planned planned;
  tsr_simulate_options how;
} tsr_largest;

/* Find the largest size for which a plan fits; options->how's own is not read. `*out` must stay where it is until it is
 * released with tsr_largest_release. Fails as tsr_planning_new. It
 * may miss a size for which only a plan fits that is not the leanest of its way. One search, and some hundred simulations. */
int tsr_planning_largest(const tsr_model *model, const tsr_planning_options *options,
                         tsr_largest_what what, uint64_t budget_bytes, tsr_largest *out,
                         tsr_error *error);
/* Zeroed is fine. */
void tsr_largest_release(tsr_largest *largest);

/* ---- The front ---- */

#define TSR_FRONT_POINTS 64

/* Plans of which none takes less time and less memory than another: the fastest first. */
typedef struct tsr_front {
  tsr_planned points[TSR_FRONT_POINTS];
  size_t count;
} tsr_front;

/* Plans for less and less memory: first the fastest of all, then each the fastest that reserves 5 % less than the one before,
 * and last the one that reserves least. Large: not for a stack. The caller owns what `*out` has, for
 * tsr_front_release. Fails as tsr_planning_solve. */
int tsr_planning_front(tsr_planning *planning, tsr_front *out, tsr_error *error);
/* Zeroed is fine. */
void tsr_front_release(tsr_front *front);

/* ---- Settings for other programs ---- */

#define TSR_TARGET_CHOICES                                                       \
  (const char *const[]) {                                                        \
    "hf", "deepspeed", "fsdp2", "torchtitan", "megatron", "env", "tessera", NULL \
  }
/* What a plan for this target may change at most, as TSR_ALLOW flags: the default, without what the target cannot express.
 * tsr_allow_default() for a target that is not known. */
unsigned tsr_target_allows(const char *target, const tsr_model *model);
/* Write a plan as what can be pasted: TrainingArguments of transformers (hf), JSON of DeepSpeed, Python (fsdp2), TOML
 * (torchtitan), variables (env), or the plan file. Comments say what it takes, what cannot be said and what comes nearest.
 * `*reserved_bytes` is what the nearest that the target can say reserves; 0 if that is the plan itself, or no plan for the
 * model. Fails with TSR_ERROR_ARGUMENT for another target, TSR_ERROR_WRITE or TSR_ERROR_MEMORY. */
int tsr_plan_paste(const tsr_run_plan *plan, const tsr_model *model,
                   const tsr_simulate_options *how, const char *target, tsr_write_fn *write,
                   void *context, uint64_t *reserved_bytes, tsr_error *error);

/* ---- The answer of the question "plan" ---- */

/* What tsr_answer_value returns for it. Pointers are NULL for what was not asked, and live as long as the answer. */
typedef struct tsr_plan_answer {
  bool fits;                /* false if the budget was not met, also by what `target` can express */
  uint64_t budget_bytes;    /* 0: none */
  const tsr_run_plan *plan; /* to begin with, or to show */
  const tsr_run_plan_effects *effects;        /* of showing it, with a model */
  const tsr_techniques *techniques;           /* each of them, if nothing else was asked */
  const tsr_planned *found;                   /* for the budget, or the largest size */
  const tsr_largest *largest;                 /* of batch, sequence or model */
  const tsr_front *front;                     /* less and less memory */
  const tsr_estimate_question *compared_with; /* what formulas were given */
  const tsr_estimate *estimates;              /* TSR_ESTIMATES of them */
  const char *target, *pasted;                /* a program, and the plan in its words */
  uint64_t pasted_bytes;                      /* reserved with what it can express; 0: all of it */
} tsr_plan_answer;

#ifdef __cplusplus
}
#endif
#endif
