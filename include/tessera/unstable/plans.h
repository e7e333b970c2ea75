/* tessera/unstable/plans.h - the plan file: how a training step is run, as a value.
 *
 * A plan consists of options of `simulate` and `train` (tsr_run_options in runs.h) and choices for ranges of
 * blocks. In a file it is one JSON object (docs/plan.md):
 *
 *   {"blocks":[{"checkpoint":"full","first":0,"last":5}],"dtype":"bf16","version":1}
 *
 * The canonical form has sorted keys, no blanks and no defaults, and ends in a newline, so that two plans that do
 * the same have equal files. The hash of a plan is the SHA-256 of that form. */
#ifndef TESSERA_UNSTABLE_PLANS_H
#define TESSERA_UNSTABLE_PLANS_H

#include "tessera/simulate.h"
#include "tessera/unstable/params.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_run_plan tsr_run_plan;

/* The digits of a hexadecimal hash, and a zero byte. */
#define TSR_RUN_PLAN_HASH_BYTES 65

/* Read a plan from JSON in any layout, or from an answer of `tessera plan --json` that contains one. The caller owns `*out`. Fails with TSR_ERROR_FORMAT, whose message names the
 * place in the file ("blocks[2].last is below blocks[2].first"), or with TSR_ERROR_MEMORY. */
int tsr_run_plan_parse(const char *text, size_t size_bytes, tsr_run_plan **out, tsr_error *error);
/* Make the plan of a command's parameters: tsr_run_options that are set override the plan in the parameter
 * "plan". A "checkpoint" that is set also replaces the blocks of that plan. The caller owns `*out`, which does not
 * depend on `params` afterwards. Fails with TSR_ERROR_ARGUMENT or TSR_ERROR_MEMORY. */
int tsr_run_plan_of(const tsr_params *params, tsr_run_plan **out, tsr_error *error);
/* The canonical text, with its newline; lives as long as the plan. */
const char *tsr_run_plan_text(const tsr_run_plan *plan);
/* The hash; lives as long as the plan. */
const char *tsr_run_plan_hash(const tsr_run_plan *plan);
/* Set the fields of `*out` that a plan decides, including plan_hash. They point to memory that lives as long as the
 * plan. */
void tsr_run_plan_options(const tsr_run_plan *plan, tsr_simulate_options *out);

/* ---- The cost of each choice of a plan ---- */

/* The cost of a step under some plan. */
typedef struct tsr_run_plan_cost {
  bool is_possible; /* whether the model allows the plan; if not, the rest is 0 */
  uint64_t peak_bytes, reserved_bytes;
  uint64_t step_flops, recomputed_flops; /* floating-point operations; of these, repeated */
  double step_seconds;                   /* estimated for the card in the options; else 0 */
  double step_low_seconds,
      step_high_seconds; /* between which it really is (docs/plan.md, The error of times) */
  uint64_t sent_bytes;   /* by each rank to others, in a step */
  double stall_seconds;  /* part of step_seconds: kernels wait for ranks */
  /* The most that a rank reserves in the memory of its host, and that all ranks of a machine reserve there. 0 unless the plan keeps
   * something on the host. */
  uint64_t host_bytes, host_machine_bytes;
} tsr_run_plan_cost;

/* Simulate a model under a plan. `options` contains what a plan does not decide. Fails as tsr_simulate does, with
 * `is_possible` false. */
int tsr_run_plan_measure(const tsr_run_plan *plan, const tsr_model *model,
                         const tsr_simulate_options *options, tsr_run_plan_cost *out,
                         tsr_error *error);

typedef struct tsr_run_plan_effect {
  char name[128];           /* "dtype bf16"; "blocks 0-5: full" */
  tsr_run_plan_cost alone;  /* with only this choice */
  tsr_run_plan_cost so_far; /* with this choice and those before it */
} tsr_run_plan_effect;

#define TSR_RUN_PLAN_EFFECTS 64

typedef struct tsr_run_plan_effects {
  tsr_run_plan_cost without, with; /* without any choice, and with all of them */
  tsr_run_plan_effect choices[TSR_RUN_PLAN_EFFECTS];
  size_t count;
} tsr_run_plan_effects;

/* Simulate a model with each choice of a plan alone, and with the choices added one by one. `options` contains the
 * batch, the sequence, the steps and the device. Fails with TSR_ERROR_LIMIT for more than TSR_RUN_PLAN_EFFECTS
 * choices, or as tsr_simulate does for the complete plan. A choice that is only possible with others does not
 * fail. */
int tsr_run_plan_explain(const tsr_run_plan *plan, const tsr_model *model,
                         const tsr_simulate_options *options, tsr_run_plan_effects *out,
                         tsr_error *error);
/* ---- Every technique, for one model ---- */

/* A technique: the choice in words and as keys of a plan. */
typedef struct tsr_technique {
  char name[96];
  char choice[96];         /* {"gelu":"fused"} */
  bool is_free;            /* needs no more operations and no copies */
  tsr_run_plan_cost alone; /* the plan with only this technique added */
  tsr_run_plan_cost
      so_far; /* with the techniques before it, too; if two exclude each other, the later one */
} tsr_technique;

#define TSR_TECHNIQUES 32

typedef struct tsr_techniques {
  tsr_run_plan_cost without; /* the original plan */
  const char *gpu_title;     /* the card that times are for; a constant */
  tsr_technique items[TSR_TECHNIQUES];
  size_t count;
} tsr_techniques;

/* Simulate a model with each technique added to a plan (NULL: an empty one), alone and one after another: first the
 * free ones, then those that cost time, the cheapest first. `options` as above, with a card for times. Fails as
 * tsr_simulate does for the original plan. A technique that the model does not allow does not fail. */
int tsr_plan_techniques(const tsr_run_plan *plan, const tsr_model *model,
                        const tsr_simulate_options *options, tsr_techniques *out, tsr_error *error);
/* Accepts NULL. */
void tsr_run_plan_free(tsr_run_plan *plan);
/* The type of parameters that contain plan files. */
extern const tsr_parameter_type tsr_run_plan_type;

#ifdef __cplusplus
}
#endif
#endif
