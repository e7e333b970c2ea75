/* planner.h - the parts of the search for a plan.
 *
 *   base ──► free savings ──► ways ──► candidates of each way ──► simulated ──► the fastest that fits
 *                              │             │
 *                 types, micro-batches,   what each block keeps: options of a block, put together
 *                 offload, loss ...       by the chain solver
 *
 * A way is a plan without choices for blocks. Its time without recomputation is known before anything is simulated,
 * and ways are tried in that order, until none is left that could be faster. Neither ways nor candidates depend on the
 * budget. */
#ifndef TSR_PLAN_PLANNER_H
#define TSR_PLAN_PLANNER_H

#include <jansson.h>

#include "base/vector.h"
#include "exec/measure.h"
#include "tessera/unstable/planning.h"

enum {
  TSR__PLANNER_OPTIONS = 8,     /* of a block, besides the whole block */
  TSR__PLANNER_CANDIDATES = 24, /* of a way, by the chain solver */
  TSR__PLANNER_SEGMENT = 4,     /* blocks that are run again as one, at most */
};

/* A plan, and what it takes once that was asked for. */
typedef struct tsr__candidate {
  json_t *root; /* owned */
  double
      estimate_s; /* of a step, without simulating it: right to 0.1 %, or less than it where activations are copied or
                     kernels wait for ranks */
  uint64_t
      least_bytes; /* live at the end of a forward, or when a segment was run again: right to 2 % */
  uint64_t over_bytes; /* it was seen to reserve as much; 0: not simulated */
  bool is_measured;
  tsr_run_plan_cost cost;
} tsr__candidate;

typedef TSR__VECTOR(tsr__candidate) tsr__candidates;

typedef struct tsr__way {
  json_t *root;  /* the plan, without choices for blocks; owned */
  double step_s; /* at least, whatever is kept; of kernels and copies: */
  double kernels_s, copies_s, exposed;
  double waited_s; /* for ranks, whatever is kept; */
  double links_s;  /* and with kernels, at least: the tape's clock once it is surveyed */
  bool narrows;    /* candidates keep tensors in fewer bits, too */
  bool is_surveyed, is_listed;
  bool is_tried; /* for the budget of this search: its bound did not leave it out */
  tsr__survey survey;
  tsr__candidates candidates; /* the fastest first, by estimate; the last takes the least memory */
} tsr__way;

struct tsr__block_options; /* blocks.c */

struct tsr_planning {
  const tsr_model *model;
  const tsr_run_plan *plan;
  tsr_simulate_options how;
  unsigned allow;
  const tsr_calibration *calibration; /* or NULL */
  size_t unit_count, far_count;       /* as in tsr_planned */
  json_t *base;                       /* the plan to begin with; owned */
  json_t *free;                       /* with what costs no time; owned */
  json_t *savings;                    /* what was tried for that, and its figures; owned */
  json_t *refused;         /* ways that the model or the program does not allow, and why; owned */
  const char *resolve;     /* keys that make the base possible; "{}" if it is */
  tsr_run_plan_cost as_is; /* not possible: only with `resolve` */
  char refusal[256];       /* why */
  bool has_ways;           /* `ways` is complete */
  TSR__VECTOR(tsr__way) ways; /* the fastest first; that of the base is among them */
  TSR__VECTOR(struct tsr__block_options *) block_options; /* of blocks that ways have; owned */
  size_t tried;
  json_t *places; /* the place in `costs` of each plan that was simulated, by its hash; owned */
  TSR__VECTOR(tsr_run_plan_cost) costs;
};

/* The i-th word for what may be changed, and its flag; NULL past the last. */
const char *tsr__allow_word(size_t index);
unsigned tsr__allow_flag(size_t index);

/* ---- measuring ---- */

/* A plan of its JSON. */
int tsr__planner_parse(const json_t *root, tsr_run_plan **out, tsr_error *error);
/* Simulate. What the model does not allow, or is too long, is not possible, and no failure. */
int tsr__planner_measure(tsr_planning *planning, const json_t *root, tsr_run_plan_cost *out,
                         tsr_error *error);
/* The same, which ends once more than `most_bytes` are reserved: `*over_bytes` is what was reserved then, else 0, and `*out` only part of
 * the figures. */
int tsr__planner_measure_within(tsr_planning *planning, const json_t *root, uint64_t most_bytes,
                                tsr_run_plan_cost *out, uint64_t *over_bytes, tsr_error *error);
/* Survey one step; `*is_possible` as above, and only then is there something to release. `batch`: sequences, 0 as
 * planned. */
int tsr__planner_survey(const tsr_planning *planning, const json_t *root, uint64_t layers,
                        uint64_t batch, tsr__survey *out, bool *is_possible, tsr_error *error);
/* A copy of `root` with the keys of a literal laid over it; NULL when out of memory. */
json_t *tsr__planner_with(const json_t *root, const char *keys);

/* ---- ways.c ---- */

/* The keys of precisions that may be tried, the first being NULL: as it is. NULL past the last, too. */
const char *tsr__planner_precision(const tsr_planning *planning, size_t index);
/* Make planning->free and planning->ways. */
int tsr__planner_list_ways(tsr_planning *planning, tsr_error *error);
/* The way of a plan: among planning->ways, or `*other`, which is surveyed then, and released by tsr__way_release. */
int tsr__planner_own_way(tsr_planning *planning, const tsr_run_plan *plan, const tsr__way **out,
                         tsr__way *other, tsr_error *error);
/* Make way->survey, of the whole model. */
int tsr__planner_survey_way(const tsr_planning *planning, tsr__way *way, tsr_error *error);
/* Seconds of a step whose kernels take `kernels_s`, at least: copies and ranks take what the way's do. */
double tsr__planner_step(const tsr__way *way, double kernels_s);
/* Seconds that no schedule of the way's kernels stays below within the budget; infinite if none fits. */
double tsr__planner_bound(const tsr__way *way, uint64_t budget_bytes);
/* Whether what backward needs goes to the host. */
bool tsr__way_copies_activations(const tsr__way *way);
void tsr__way_release(tsr__way *way);

/* ---- changes.c ---- */

/* Make out->changes. */
int tsr__planner_list_changes(tsr_planning *planning, const json_t *plan, tsr_planned *out,
                              tsr_error *error);

/* ---- modules.c ---- */

/* Make way->candidates of a step graph. */
int tsr__planner_list_modules(tsr_planning *planning, tsr__way *way, tsr_error *error);

/* ---- blocks.c ---- */

/* NULL is fine. */
void tsr__block_options_free(struct tsr__block_options *options);
/* Make way->candidates. */
int tsr__planner_list_candidates(tsr_planning *planning, tsr__way *way, tsr_error *error);

#endif
