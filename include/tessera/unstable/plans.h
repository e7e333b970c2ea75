/* tessera/unstable/plans.h - the plan file: how a training is run, as a value.
 *
 * A plan is what the options of `simulate` and `train` say (tsr_run_options in runs.h) and choices for
 * ranges of blocks. In a file it is one JSON object (docs/plan.md):
 *
 *   {"blocks":[{"checkpoint":"full","first":0,"last":5}],"dtype":"bf16","version":1}
 *
 * Its canonical form has sorted keys, no blanks, nothing that is default, and ends in a newline; two plans that do
 * the same are the same file. The hash of a plan is the SHA-256 of that form. */
#ifndef TESSERA_UNSTABLE_PLANS_H
#define TESSERA_UNSTABLE_PLANS_H

#include "tessera/simulate.h"
#include "tessera/unstable/params.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_run_plan tsr_run_plan;

/* Hexadecimal digits of a hash, and a zero byte. */
#define TSR_RUN_PLAN_HASH_BYTES 65

/* Read a plan, in any form of JSON. The caller owns `*out`. Fails with TSR_ERROR_FORMAT: the message names the
 * place inside the file ("blocks[2].last is below blocks[2].first"); or with TSR_ERROR_MEMORY. */
int tsr_run_plan_parse(const char *text, size_t size_bytes, tsr_run_plan **out, tsr_error *error);
/* The plan of a command's parameters: what is given for its tsr_run_options, and for the rest the plan in
 * its parameter "plan". A "checkpoint" that is given replaces the blocks of that plan, too. The caller owns `*out`,
 * which needs `params` no longer. Fails with TSR_ERROR_ARGUMENT or TSR_ERROR_MEMORY. */
int tsr_run_plan_of(const tsr_params *params, tsr_run_plan **out, tsr_error *error);
/* The canonical form, with its newline; lives as long as the plan. */
const char *tsr_run_plan_text(const tsr_run_plan *plan);
/* Its hash; lives as long as the plan. */
const char *tsr_run_plan_hash(const tsr_run_plan *plan);
/* Set the fields of `*out` that a plan decides, plan_hash included. What they point to lives as long as the
 * plan. */
void tsr_run_plan_options(const tsr_run_plan *plan, tsr_simulate_options *out);

/* ---- What each choice of a plan does ---- */

/* What a step takes under some plan. */
typedef struct tsr_run_plan_cost {
  bool is_possible; /* the model allows it; else all is 0 */
  uint64_t peak_bytes, reserved_bytes;
  uint64_t step_flops,
      recomputed_flops; /* floating-point operations; those among them that are done again */
  double step_seconds;  /* an estimate, on the card that the options name; else 0 */
  uint64_t sent_bytes;  /* by each rank to others, in a step */
  double stall_seconds; /* of step_seconds: kernels wait for ranks */
} tsr_run_plan_cost;

/* Simulate a model under a plan. `options` has what a plan does not decide. Fails as tsr_simulate does; `*out` is then
 * not possible. */
int tsr_run_plan_measure(const tsr_run_plan *plan, const tsr_model *model,
                         const tsr_simulate_options *options, tsr_run_plan_cost *out,
                         tsr_error *error);

typedef struct tsr_run_plan_effect {
  char name[128];           /* "dtype bf16"; "blocks 0-5: full" */
  tsr_run_plan_cost alone;  /* of the plan with this choice only */
  tsr_run_plan_cost so_far; /* with this one and those before it */
} tsr_run_plan_effect;

#define TSR_RUN_PLAN_EFFECTS 64

typedef struct tsr_run_plan_effects {
  tsr_run_plan_cost without, with; /* of the plan without and with all choices */
  tsr_run_plan_effect choices[TSR_RUN_PLAN_EFFECTS];
  size_t count;
} tsr_run_plan_effects;

/* Simulate a model with each choice of a plan alone, and one after another. `options` has the batch, the sequence,
 * the steps and the device. Fails with TSR_ERROR_LIMIT for more choices than TSR_RUN_PLAN_EFFECTS, or as
 * tsr_simulate does for the whole plan; choices that cannot stand alone are no failure. */
int tsr_run_plan_explain(const tsr_run_plan *plan, const tsr_model *model,
                         const tsr_simulate_options *options, tsr_run_plan_effects *out,
                         tsr_error *error);
/* ---- Every technique, for one model ---- */

/* A technique: what is chosen, as words and as keys of a plan. */
typedef struct tsr_technique {
  char name[96];
  char choice[96];         /* {"gelu":"fused"} */
  bool is_free;            /* it takes no more operations, and no copies */
  tsr_run_plan_cost alone; /* of the plan with this one added */
  tsr_run_plan_cost
      so_far; /* with this one and those before it; of two that exclude one another, the later */
} tsr_technique;

#define TSR_TECHNIQUES 32

typedef struct tsr_techniques {
  tsr_run_plan_cost without; /* the plan as it was given */
  const char *gpu_title;     /* of the card of the times; a constant */
  tsr_technique items[TSR_TECHNIQUES];
  size_t count;
} tsr_techniques;

/* Simulate a model with each technique added to a plan (NULL: an empty one), alone and one after another: first
 * those that are free, then those that cost time, the cheaper first. `options` as above, and a card for times. Fails
 * as tsr_simulate does for the plan as it is; techniques that the model does not allow are no failure. */
int tsr_plan_techniques(const tsr_run_plan *plan, const tsr_model *model,
                        const tsr_simulate_options *options, tsr_techniques *out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_run_plan_free(tsr_run_plan *plan);
/* The type of parameters that are plan files. */
extern const tsr_parameter_type tsr_run_plan_type;

#ifdef __cplusplus
}
#endif
#endif
