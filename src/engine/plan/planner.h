/* planner.h - the parts of the search for a plan.
 *
 *   base ──► free savings ──► ways ──► candidates of each way ──► simulated ──► the fastest that fits ──► blocks changed
 *                              │             │
 *                 types, micro-batches,   what each block keeps: choices of a block, put together
 *                 offload, loss ...       by the chain solver
 *
 * A way is a plan without choices for blocks. Its time without recomputation is known before anything is simulated,
 * and ways are tried in that order, until none is left that could be faster. Neither ways nor candidates depend on the
 * budget; which of them are simulated and changed does. */
#ifndef TSR_PLAN_PLANNER_H
#define TSR_PLAN_PLANNER_H

#include "base/effort.h"
#include "base/map.h"
#include "base/vector.h"
#include "exec/measure.h"
#include "plan/parts.h"
#include "plan/techniques.h"
#include "tessera/unstable/planning.h"

enum {
  TSR__PLANNER_OPTIONS = 12,    /* of a block, besides the whole block */
  TSR__PLANNER_CANDIDATES = 24, /* of a way, by the chain solver */
  TSR__PLANNER_SEGMENT = 4,     /* blocks that are run again as one, at most */
};

/* A plan, and what it takes once that was asked for. */
typedef struct tsr__candidate {
  tsr_run_plan *plan; /* owned */
  double
      estimate_s; /* of a step, without simulating it: right to 0.1 %, or less than it where activations are copied or
                     kernels wait for ranks */
  uint64_t
      least_bytes; /* live at the end of a forward, or when a segment was run again: right to 2 % */
  uint64_t
      over_bytes; /* reserved when its simulation stopped early, over a limit; 0 if it ran to completion */
  bool is_measured;
  bool is_slow; /* it was not run, because another plan that fits takes less time */
  tsr_run_plan_cost cost;
} tsr__candidate;

typedef TSR__VECTOR(tsr__candidate) tsr__candidates;

/* Seconds, which are sums over blocks and over micro-batches; but for the link between ranks, whose own time is one, and what kernels wait
 * for in between is not. */
typedef struct tsr__way_sums {
  double kernels_s, copies_s, waited_s, links_s, exposed;
} tsr__way_sums;

typedef struct tsr__way {
  tsr_run_plan *plan; /* without choices for blocks; owned */
  uint64_t number;    /* of the plan: tsr__run_plan_number */
  double step_s;      /* at least, whatever is kept; of kernels, and of copies if all is kept: */
  double kernels_s, copies_s, exposed;
  double waited_s;       /* for ranks, whatever is kept; */
  double links_s;        /* and with kernels, at least: the tape's clock once it is surveyed */
  tsr__way_sums a_block; /* what one block more takes; 0 if blocks differ */
  bool narrows;          /* candidates keep tensors in fewer bits, too */
  bool is_fine;          /* tried after the others: see tsr__technique_row */
  bool is_surveyed, is_listed;
  bool is_skipped; /* its step is too long to be surveyed: it is not tried */
  bool is_tried;   /* for the budget of this search: its bound did not exclude it */
  tsr__survey survey;
  tsr__candidates candidates; /* the fastest first, by estimate; the last takes the least memory */
} tsr__way;

/* A way that the model or the program does not allow, and why. */
typedef struct tsr__refused_way {
  tsr_run_plan *plan; /* owned */
  bool narrows;
  char reason[256];
} tsr__refused_way;

/* A technique that was tried because it may cost no time, and the plan's cost with it; NULL: the plan without any. */
typedef struct tsr__saving {
  const tsr__technique_row *technique;
  tsr_run_plan_cost cost;
} tsr__saving;

/* What is known of a plan that was simulated. */
typedef enum tsr__knowledge {
  TSR__KNOWN_COST, /* all */
  TSR__KNOWN_LARGE, /* it reserves more than `bytes`, at which it stopped, and so does not take the least */
  TSR__KNOWN_SLOW, /* its time: another plan that fits takes less, so it was not run. `bytes`: the budget */
  TSR__KNOWN_LOST /* once slow, then run: it was over its budget, and stopped at `bytes` */
} tsr__knowledge;

typedef struct tsr__simulated {
  tsr_run_plan *plan; /* owned */
  tsr_run_plan_cost cost;
  uint64_t bytes;
  tsr__knowledge what;
  uint32_t next; /* the place, from 1, of another plan with the same number; 0: none */
} tsr__simulated;

struct tsr__block_options; /* blocks.c */

struct tsr_planning {
  const tsr_model *model;
  tsr_simulate_options how;
  unsigned allow;
  uint64_t host_budget_bytes; /* of a machine; 0: unlimited */
  const char *const *targets; /* as in tsr_planning_options */
  size_t target_count;
  const tsr_calibration *calibration; /* or NULL */
  size_t unit_count, far_count;       /* as in tsr_planned */
  tsr_run_plan *base;                 /* the plan to begin with; owned */
  tsr_run_plan *free;                 /* with what costs no time; owned */
  TSR__VECTOR(tsr__saving) savings;   /* what was tried for that */
  TSR__VECTOR(tsr__refused_way) refused;
  const tsr__technique_row
      *resolve;            /* the precision that makes the base possible; NULL: none is needed */
  tsr_run_plan_cost as_is; /* not possible: only with `resolve` */
  char refusal[256];       /* why */
  bool is_coarse;          /* fine techniques are left out, for searches of many sizes */
  bool
      is_any_enough; /* the first plan that fits ends the search: whether one does is the question */
  bool has_ways;     /* `ways` is complete */
  TSR__VECTOR(tsr__way) ways; /* the fastest first; that of the base is among them */
  TSR__VECTOR(tsr__way *)
  others; /* that differ from one of these in the number of blocks on the host; owned */
  TSR__VECTOR(struct tsr__block_options *) block_options; /* of blocks that ways have; owned */
  const tsr_run_plan
      *known; /* fits; the answer if a limit is reached before another is found; or NULL */
  TSR__VECTOR(tsr_run_plan *) improved; /* plans that local.c made; owned */
  size_t tried;
  double least_ratio; /* of what candidates reserved to their least_bytes; 0: none was simulated */
  TSR__VECTOR(tsr__simulated) simulated;
  tsr__map places; /* from a plan's number to its place in `simulated`, from 1 */
};

/* ---- explain.c ---- */

/* tsr_run_plan_measure that stops at a limit: see tsr__measure. */
int tsr__plan_measure(const tsr_run_plan *plan, const tsr_model *model,
                      const tsr_simulate_options *options, tsr__measure_limit *limit,
                      tsr_run_plan_cost *out, tsr_error *error);

/* ---- measured.c ---- */

/* Whether a status means that a plan does not suit the model, or is too long: that is an answer, and no failure. */
bool tsr__planner_is_refused(const tsr_effort *effort, int status);
/* The status, if it is a failure; else 0, and no error. */
int tsr__planner_fault(const tsr_planning *planning, int status, tsr_error *error);

/* Whether a plan that takes `cost` is within the budget of the host, if there is one. */
bool tsr__planner_host_fits(const tsr_planning *planning, const tsr_run_plan_cost *cost);
/* Whether it is possible and within the budgets of the card and of the host. */
bool tsr__planner_fits(const tsr_planning *planning, const tsr_run_plan_cost *cost,
                       uint64_t budget_bytes);

/* Simulate. What the model does not allow, or is too long, is not possible, and no failure. */
int tsr__planner_measure(tsr_planning *planning, const tsr_run_plan *plan, tsr_run_plan_cost *out,
                         tsr_error *error);
/* Survey one step; with a number of `layers`, of as many blocks, and only its sums. `*is_possible` as above, and only then is there
 * something to release. `batch`: sequences, 0 as planned. */
int tsr__planner_survey(const tsr_planning *planning, const tsr_run_plan *plan, uint64_t layers,
                        uint64_t batch, tsr__survey *out, bool *is_possible, tsr_error *error);

/* Measure a plan until it reserves more than the budget, and only if a step takes at most `most_s`. `*fits`: it is possible and within
 * both, and within the host's budget. */
int tsr__planner_try(tsr_planning *planning, const tsr_run_plan *plan, uint64_t budget_bytes,
                     double most_s, tsr_run_plan_cost *out, bool *fits, tsr_error *error);

/* Simulate up to a limit, unless an equal plan was. `keeps_large`: a plan over the limit is done with, because only the least memory is of
 * interest. */
int tsr__planner_measure_within(tsr_planning *planning, const tsr_run_plan *plan,
                                tsr__measure_limit *limit, bool keeps_large, tsr_run_plan_cost *out,
                                tsr_error *error);
/* What is known of a plan that was measured. It is run if it was not, because it was slow. Borrowed until another plan is measured. */
int tsr__planner_resolve(tsr_planning *planning, const tsr_run_plan *plan,
                         const tsr__simulated **out, tsr_error *error);

/* ---- search.c ---- */

/* What was found: a plan, not owned, and its way, which is NULL for a plan to begin with. No plan: NULL. */
typedef struct tsr__best {
  const tsr_run_plan *plan;
  tsr_run_plan_cost cost;
  tsr__way *way;
} tsr__best;

/* Look for the fastest plan that fits, `*found`, or, if none does, for the smallest, `*least`. Both are zeroed before, and hold what was
 * found until then after a failure. */
int tsr__planner_search(tsr_planning *planning, uint64_t budget_bytes, tsr__best *found,
                        tsr__best *least, tsr_error *error);
/* A limit was reached: what fits so far is the answer, or a plan that is known to fit. */
int tsr__planner_end_search(tsr_planning *planning, uint64_t budget_bytes, tsr__best *found,
                            tsr__best *least, tsr_error *error);

/* ---- ways.c ---- */

/* The index-th precision that may be tried; NULL past the last. */
const tsr__technique_row *tsr__planner_precision(const tsr_planning *planning, size_t index);
/* Make planning->free and planning->ways. */
int tsr__planner_list_ways(tsr_planning *planning, tsr_error *error);
/* The way of a plan: among planning->ways, or `*other`, which is surveyed then; NULL if that is not possible.
 * Either way the caller releases that by tsr__way_release. */
int tsr__planner_own_way(tsr_planning *planning, const tsr_run_plan *plan, const tsr__way **out,
                         tsr__way *other, tsr_error *error);
/* Make way->survey, of the whole model; or set way->is_skipped. */
int tsr__planner_survey_way(const tsr_planning *planning, tsr__way *way, tsr_error *error);
/* Seconds of a step whose kernels take `kernels_s`, at least: copies and ranks take what the way's do. */
double tsr__planner_step(const tsr__way *way, double kernels_s);
/* Seconds of a step whose kernels and copies take this; less than that where kernels wait for ranks. */
double tsr__planner_estimate(const tsr__way *way, double kernels_s, double copies_s);
/* Seconds that no schedule of the way's kernels stays below within the budget; infinite if none fits. */
double tsr__planner_bound(const tsr__way *way, uint64_t budget_bytes);
/* Whether it keeps anything on the host. */
bool tsr__plan_is_away(const tsr_run_plan *plan);
/* Whether ways are searched that do so for some blocks alone. */
bool tsr__planner_has_parts(const tsr_planning *planning);
/* Whether what backward needs goes to the host. */
bool tsr__way_copies_activations(const tsr__way *way);
void tsr__way_release(tsr__way *way);

/* ---- local.c ---- */

/* Improve a plan of the way that takes `cost` by changes of single blocks and pairs of them. Each must make a step within the budget take less
 * than `limit_s`, which then is what that step takes. Ends when none of those that are tried does, or at a number of simulations: a small
 * one, without random changes, unless `is_thorough`. The plan itself need not fit. `*out`: the better plan, which the caller frees, or NULL;
 * `*with`: what it takes. After a failure they are what was found until then. */
int tsr__planner_improve(tsr_planning *p, tsr__way *way, const tsr_run_plan *plan,
                         const tsr_run_plan_cost *cost, uint64_t budget_bytes, double limit_s,
                         bool is_thorough, tsr_run_plan **out, tsr_run_plan_cost *with,
                         tsr_error *error);

/* ---- modules.c ---- */

/* Make way->candidates of a step graph. */
int tsr__planner_list_modules(tsr_planning *planning, tsr__way *way, tsr_error *error);

/* ---- effects.c ---- */

/* NULL is fine. */
void tsr__block_options_free(struct tsr__block_options *options);

/* ---- blocks.c ---- */

/* Make way->candidates. */
int tsr__planner_list_candidates(tsr_planning *planning, tsr__way *way, tsr_error *error);

#endif
