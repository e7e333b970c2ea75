/* tessera/unstable/planning.h - what to change so that a training run fits into a budget, and what that costs.
 *
 *   tsr_planning_options options = TSR_OPTIONS_INIT(tsr_planning_options);
 *   options.allow = tsr_allow_default(), options.how = &how;
 *   int status = tsr_planning_new(model, &options, &planning, &error);
 *   if (status == 0) status = tsr_planning_solve(planning, budget, &answer, &error);
 *
 * A budget bounds what the allocator reserves, or, with TSR_MEMORY_PLACED, what the one range takes; a budget of the
 * host, what offloaded memory of all ranks of a machine reserves there. Every figure of an answer is what
 * `tsr_simulate` returns with the answer's plan. */
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

/* Techniques that the search may use. */
#define TSR_ALLOW_KERNELS     1u    /* fused kernels and optimizers, no cache of keys and values */
#define TSR_ALLOW_LOSS_CHUNK  2u    /* loss of some tokens at a time: outputs have no logits */
#define TSR_ALLOW_ACCUMULATE  4u    /* micro-batches */
#define TSR_ALLOW_RECOMPUTE   8u    /* recomputes in backward what forward did not keep */
#define TSR_ALLOW_OFFLOAD     16u   /* moves memory to the host */
#define TSR_ALLOW_IN_BACKWARD 32u   /* updates each parameter in backward */
#define TSR_ALLOW_PRECISION   64u   /* 16-bit numbers: results differ */
#define TSR_ALLOW_NARROW      128u  /* stores what backward needs in 8 or 16 bits: results differ */
#define TSR_ALLOW_ZERO        256u  /* shards over ranks: ZeRO's stage, unless the plan sets one */
#define TSR_ALLOW_ADAPTERS    512u  /* trains adapters instead of the model */
#define TSR_ALLOW_QUANTIZE    1024u /* keeps weights in 4 bits, with adapters */
#define TSR_ALLOW_FP8         2048u /* multiplies in FP8: results differ */
#define TSR_ALLOW_ALL_BLOCKS  4096u /* recomputes all blocks, or none */
/* Every technique that changes results by no more than rounding. */
unsigned tsr_allow_default(void);
/* Read words of the table of techniques, such as "recompute,offload"; "all" sets every flag but those of
 * adapters and quantisation, which change what is trained, of FP8, and of what `recompute` contains, "none" no flag. Fails
 * with TSR_ERROR_ARGUMENT for any other word and leaves `*out` untouched. */
int tsr_allow_parse(const char *text, unsigned *out, tsr_error *error);
/* The flags of `allow` whose techniques set none of the options that these parameters were given: options override a plan, so a search
 * must not change what they set. */
unsigned tsr_allow_unset(const tsr_params *params, unsigned allow);

/* The index-th word, and what it permits, in Markdown; no word (NULL) past the last. Constants. */
const char *tsr_allow_word(size_t index);
const char *tsr_allow_about(size_t index);

/* ---- Calibration: compare a recorded run with a prediction ---- */

#define TSR_CALIBRATION_PHASES 3
#define TSR_CALIBRATION_ROWS   8

/* Allocations of the recorded run's last step that the predicted step lacks, or that are smaller there. */
typedef struct tsr_unexplained {
  tsr_category category;
  char place[96]; /* the program line */
  uint64_t count, bytes;
} tsr_unexplained;

typedef struct tsr_calibration {
  uint64_t steps;                         /* steady steps that were measured */
  double measured_s, predicted_s, factor; /* of a step; factor: measured / predicted, or 0 */
  struct {
    double measured_s, predicted_s;                    /* measured: 0 if unknown */
  } phases[TSR_CALIBRATION_PHASES];                    /* see tsr_calibration_phase */
  uint64_t recorded_peak_bytes, predicted_peak_bytes;  /* allocated, in the steps compared */
  uint64_t unexplained_bytes, unexplained_allocations; /* live at the recorded peak */
  tsr_unexplained rows[TSR_CALIBRATION_ROWS];          /* the largest */
  size_t row_count;
  struct tsr_rates *rates; /* the card's, scaled by `factor`; owned; NULL if no time was measured */
} tsr_calibration;

/* Compare a recorded run with the prediction for `how`: the time of a step, and the last step allocation by
 * allocation. `how` needs a card or rates. The caller releases `*out` with tsr_calibration_release. Fails as
 * tsr_simulate does, and with TSR_ERROR_ARGUMENT for a snapshot without a trace, or if less than half of its
 * allocations are predicted. */
int tsr_calibrate(const tsr_model *model, const tsr_simulate_options *how, tsr_study *recorded,
                  tsr_calibration *out, tsr_error *error);
/* Accepts a zeroed calibration. */
void tsr_calibration_release(tsr_calibration *calibration);
/* Returns "forward", "backward" or "optimizer". */
const char *tsr_calibration_phase(size_t index);

/* ---- Plans ---- */

typedef struct tsr_planning_options {
  size_t struct_bytes;
  unsigned allow;           /* TSR_ALLOW_...; 0 allows no change */
  const tsr_run_plan *plan; /* the plan to start from, or NULL; borrowed */
  const tsr_simulate_options *
      how; /* batch, sequence, steps (at least 2), rule book, card, rates; its plan is ignored; borrowed */
  const tsr_calibration *calibration; /* only for the answer's JSON; may be NULL; borrowed */
  /* What plans may reserve in the memory of each machine's host, for all of its ranks; 0: no limit. */
  uint64_t host_budget_bytes;
  /* Programs (tsr_target_names) that plans are for: no option is changed that one of them lacks. Borrowed. */
  const char *const *targets;
  size_t target_count;
} tsr_planning_options;

/* A search for plans of a model, with what has been measured so far. Not thread-safe. */
typedef struct tsr_planning tsr_planning;

/* Start a search. The model, the plan and `how` must outlive `*out`, which the caller frees with tsr_planning_free.
 * Fails as tsr_simulate does for the unchanged plan, unless another precision is allowed and makes the model
 * possible. */
int tsr_planning_new(const tsr_model *model, const tsr_planning_options *options,
                     tsr_planning **out, tsr_error *error);
/* Accepts NULL. */
void tsr_planning_free(tsr_planning *planning);

typedef enum tsr_planning_verdict {
  TSR_PLANNING_FITS, /* without changes; the plan may be faster */
  TSR_PLANNING_FITS_WITH_CHANGES,
  TSR_PLANNING_DOES_NOT_FIT
} tsr_planning_verdict;

/* One change of the plan, and the costs with it and the changes before it. */
typedef struct tsr_planned_change {
  char name[96]; /* "loss of 512 tokens at a time" */
  tsr_run_plan_cost so_far;
} tsr_planned_change;

#define TSR_PLANNED_CHANGES 24

typedef struct tsr_planned {
  tsr_planning_verdict verdict;
  uint64_t budget_bytes, host_budget_bytes; /* of the host: 0 without a limit */
  tsr_run_plan *plan; /* one that fits, or else the smallest that was found, if possible within the
                         budget of the host; owned */
  tsr_run_plan_cost as_is, with;
  char refusal[256];                               /* why the original plan is impossible, or "" */
  tsr_planned_change changes[TSR_PLANNED_CHANGES]; /* from the original plan to this one */
  size_t change_count;
  /* No schedule of the same kernels, in any way that was considered, takes less time or memory. If it is proved
   * that none fits, the time is infinite. */
  double bound_seconds;
  uint64_t bound_bytes;
  bool is_proved; /* it is proved that nothing fits */
  /* The limit of how->effort at which the search ended, if any: another plan may be faster, or fit, and `changes` have no
   * figures. The time of the bound is 0, and its memory UINT64_MAX, if they are not known. */
  tsr_effort_end stopped_by;
  const tsr_calibration *calibration; /* from the options */
  /* For step graphs: the number of modules that are blocks of its chain, and how many of them read what a block
   * before the previous one made. The solver's sums are approximate for those; simulated figures are exact. */
  size_t unit_count, far_count;
  size_t tried; /* the number of plans simulated so far */
  /* Ways: combinations of all choices but those for blocks. Considered; not considered, as their step is too long; excluded by the
   * model or by another choice. */
  size_t way_count, skipped_count, refused_count;
  const char
      *target; /* the program that plans are for, or the first of several, a constant; NULL: none */
  size_t target_count; /* of these programs */
} tsr_planned;

/* Find the fastest plan that fits. The caller releases `*out` with tsr_planned_release. Fails with
 * TSR_ERROR_MEMORY, or TSR_ERROR_IO if it was stopped. Takes ten to some hundred simulations of a few milliseconds; fewer after other budgets. */
int tsr_planning_solve(tsr_planning *planning, uint64_t budget_bytes, tsr_planned *out,
                       tsr_error *error);
/* Accepts a zeroed struct. */
void tsr_planned_release(tsr_planned *planned);

/* ---- The largest size that fits ---- */

typedef enum tsr_largest_what {
  TSR_LARGEST_BATCH,    /* sequences, without micro-batches, with which every batch would fit */
  TSR_LARGEST_SEQUENCE, /* tokens, a multiple of 64 */
  /* Parameters. Heads, width and layers grow in the model's proportions, then layers are added; the vocabulary and
   * the rest do not change. With parameters on the host, only the largest block has to fit. */
  TSR_LARGEST_MODEL
} tsr_largest_what;

typedef struct tsr_largest {
  tsr_largest_what what;
  uint64_t size, as_is; /* with changes, and without; 0 if no size fits */
  bool is_models_limit; /* the model itself forbids the next larger size */
  /* The limit of options->how->effort at which the search ended, if any: a larger size may fit. */
  tsr_effort_end stopped_by;
  tsr_model *model;       /* for TSR_LARGEST_MODEL: of that size, owned; else NULL */
  tsr_planning *planning; /* for that size, or NULL if no size fits; owned, like the rest */
  tsr_planned planned;
  tsr_simulate_options how;
} tsr_largest;

/* Find the largest size for which a plan fits; ignores that size in options->how. `*out` must not move until the
 * caller releases it with tsr_largest_release. Fails as tsr_planning_new does, and with TSR_ERROR_UNSUPPORTED for a
 * step graph, or TSR_ERROR_LIMIT if a limit of the effort was reached before anything was found. May miss a size that fits only with a plan that is not the leanest of its way. Takes one search and
 * some hundred simulations. */
int tsr_planning_largest(const tsr_model *model, const tsr_planning_options *options,
                         tsr_largest_what what, uint64_t budget_bytes, tsr_largest *out,
                         tsr_error *error);
/* Accepts a zeroed struct. */
void tsr_largest_release(tsr_largest *largest);

/* ---- The front ---- */

#define TSR_FRONT_POINTS 64

/* Plans from the fastest to the smallest: none takes both less time and less memory than another. */
typedef struct tsr_front {
  tsr_planned points[TSR_FRONT_POINTS];
  size_t count;
  tsr_effort_end stopped_by; /* a limit at which the list ended: smaller plans may exist */
} tsr_front;

/* Find plans for less and less memory. The first is the fastest of all; each next one is the fastest that reserves
 * 5 % less than the one before; the last reserves the least. `*out` is too large for a stack. The caller releases
 * it with tsr_front_release. Fails as tsr_planning_solve does. */
int tsr_planning_front(tsr_planning *planning, tsr_front *out, tsr_error *error);
/* Accepts a zeroed struct. */
void tsr_front_release(tsr_front *front);

/* ---- Settings for other programs ---- */

/* The programs that a plan can be written for, by name; ends at NULL. */
extern const char *const tsr_target_names[];
/* The index-th of them, what its text is, in Markdown, and what the text is called in a folder: "hf.py". NULL past the
 * last. */
const char *tsr_target_word(size_t index);
const char *tsr_target_about(size_t index);
const char *tsr_target_file(size_t index);
/* Of the flags `allow`, those that a plan for this target may use: without what it cannot express, and with all blocks instead of single
 * tensors for a target that knows no others. All of them for an unknown target. */
unsigned tsr_target_allows(const char *name, const tsr_model *model, unsigned allow);

/* A plan as settings for another program: `target` and `file` are tsr_target_word and tsr_target_file. The texts are
 * owned. Notes are a line each, for a format without comments, such as JSON; NULL if the text has them as comments.
 * `reserved_bytes` is of the nearest plan that the target can express; 0 if that is impossible for the model, or for the
 * plan file. */
typedef struct tsr_pasted {
  const char *target, *file;
  char *text, *notes;
  uint64_t reserved_bytes;
} tsr_pasted;

/* Write a plan for pasting into a program of tsr_target_names. Notes contain the
 * plan's cost, what the target cannot express, and the nearest choice instead. The caller releases `*out` with
 * tsr_pasted_release, also after a failure: TSR_ERROR_ARGUMENT for an unknown target, TSR_ERROR_UNSUPPORTED for a step
 * graph and a target other than tessera, or TSR_ERROR_MEMORY. */
int tsr_plan_paste(const tsr_run_plan *plan, const tsr_model *model,
                   const tsr_simulate_options *how, const char *name, tsr_pasted *out,
                   tsr_error *error);
/* Accepts a zeroed struct. */
void tsr_pasted_release(tsr_pasted *pasted);

/* ---- The answer of the question "plan" ---- */

/* The value that tsr_answer_value returns. Pointers are NULL for parts that were not asked for, and live as long as
 * the answer. */
typedef struct tsr_plan_answer {
  bool fits;             /* false if the budget is not met, also by what a target can express */
  uint64_t budget_bytes; /* 0 if none was given */
  uint64_t host_budget_bytes;          /* the same */
  const tsr_run_plan *plan;            /* the plan to start from, or to show */
  const tsr_run_plan_effects *effects; /* of each choice, when a plan is shown with a model */
  const tsr_techniques *techniques;    /* each technique, if nothing else was asked for */
  const tsr_planned *found;            /* for the budget, or for the largest size */
  const tsr_largest *largest;          /* batch, sequence or model */
  const tsr_front *front;              /* plans for less and less memory */
  const tsr_estimate_question *compared_with; /* the input of the formulas */
  const tsr_estimate *estimates;              /* TSR_ESTIMATES items */
  const tsr_pasted *pasted; /* for each target, in the order in which they were given */
  size_t pasted_count;
  const char *
      next_target; /* that can express a plan within the budget: "hf"; NULL if it cannot, or was not asked */
} tsr_plan_answer;

#ifdef __cplusplus
}
#endif
#endif
