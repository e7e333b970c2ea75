/* largest.c - the largest batch or sequence that fits, and the plans on the way from fast to small. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "planner/planner.h"

/* ---- the largest ---- */

typedef struct growth {
  const tsr_model *model;
  tsr_simulate_options how;
  tsr_planning_options own;
  tsr_largest_what what;
  uint64_t budget;
} growth;

/* What is counted in steps of more than one. */
static uint64_t unit_of(tsr_largest_what what) {
  return what == TSR_LARGEST_SEQUENCE ? 64 : 1;
}

static void grow(growth *g, uint64_t units) {
  assert(units && (g->what == TSR_LARGEST_BATCH || g->what == TSR_LARGEST_SEQUENCE));
  uint64_t size = units * unit_of(g->what);
  if (g->what == TSR_LARGEST_BATCH) g->how.batch = size;
  if (g->what == TSR_LARGEST_SEQUENCE) g->how.sequence = size;
  g->own.how = &g->how;
}

/* A size that the model does not allow does not fit. */
static bool is_refused(int status) {
  return status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_LIMIT;
}

/* A plan that may be the one that fits longest. */
typedef struct lean_plan {
  tsr_run_plan *plan; /* owned */
  uint64_t reserved_bytes;
} lean_plan;

typedef TSR__VECTOR(lean_plan) lean_plans;

static void release_plans(lean_plans *plans, size_t from) {
  for (size_t i = from; i < plans->count; i++) tsr_run_plan_free(plans->items[i].plan);
  plans->count = from;
}

static int add_lean(lean_plans *plans, const json_t *root, const char *keys, tsr_error *error) {
  lean_plan one = {NULL, 0};
  assert(json_is_object(root));
  json_t *with = tsr__planner_with(root, keys);
  int status = with ? tsr__planner_parse(with, &one.plan, error) : tsr__fail_memory(error);
  json_decref(with);
  if (status) return status;
  if (TSR__VECTOR_PUSH(plans, one)) return 0;
  tsr_run_plan_free(one.plan);
  return tsr__fail_memory(error);
}

enum { WAYS_TOKENS = 1024, MOST_LEAN = 12 };

/* The leanest plan of each way. Ways depend on the number of tokens, if there are few: those for many. */
static int list_lean(growth *g, unsigned allow, lean_plans *plans, tsr_error *error) {
  tsr_planning *planning = NULL;
  uint64_t tokens = g->what == TSR_LARGEST_BATCH ? g->how.sequence : unit_of(g->what);
  uint64_t units = tokens < WAYS_TOKENS ? WAYS_TOKENS / (tokens ? tokens : 1) : 1;
  int status = TSR_ERROR_ARGUMENT;
  g->own.allow = allow;
  for (; units && is_refused(status); units /= 2) {
    grow(g, units);
    status = tsr_planning_new(g->model, &g->own, &planning, error);
  }
  if (status == 0) status = add_lean(plans, planning->base, "{}", error);
  if (status == 0 && allow) status = tsr__planner_list_ways(planning, error);
  const char *keys = allow & TSR_ALLOW_RECOMPUTE ? "{\"checkpoint\":\"full\"}" : "{}";
  for (size_t i = 0; status == 0 && allow && i < planning->ways.count; i++)
    if (!planning->ways.items[i].narrows)
      status = add_lean(plans, planning->ways.items[i].root, keys, error);
  tsr_planning_free(planning);
  return status;
}

static int compare_lean(const void *left, const void *right) {
  const lean_plan *a = left, *b = right;
  return (a->reserved_bytes > b->reserved_bytes) - (a->reserved_bytes < b->reserved_bytes);
}

static int measure_lean(growth *g, lean_plan *lean, tsr_error *error) {
  tsr_run_plan_cost cost = {.is_possible = false};
  int status = tsr_run_plan_measure(lean->plan, g->model, &g->how, &cost, error);
  bool is_impossible = is_refused(status) || status == TSR_ERROR_UNSUPPORTED;
  lean->reserved_bytes = cost.is_possible ? cost.reserved_bytes : UINT64_MAX;
  return is_impossible ? 0 : status;
}

/* Keep those that fit, the leanest: what does not fit a size fits no larger one. */
static int keep_fitting(growth *g, uint64_t units, lean_plans *plans, bool *is_fit,
                        tsr_error *error) {
  size_t kept = 0;
  grow(g, units);
  for (size_t i = 0; i < plans->count; i++) {
    int status = measure_lean(g, &plans->items[i], error);
    if (status) return status;
    kept += plans->items[i].reserved_bytes <= g->budget;
  }
  *is_fit = kept > 0;
  if (!kept) return 0;
  qsort(plans->items, plans->count, sizeof *plans->items, compare_lean);
  release_plans(plans, kept < MOST_LEAN ? kept : MOST_LEAN);
  assert(plans->count && plans->items[0].reserved_bytes <= g->budget);
  return 0;
}

/* Whether one of them fits, the leanest of a smaller size first. */
static int fits_any(growth *g, uint64_t units, lean_plans *plans, bool *is_fit, tsr_error *error) {
  *is_fit = false;
  grow(g, units);
  for (size_t i = 0; i < plans->count && !*is_fit; i++) {
    int status = measure_lean(g, &plans->items[i], error);
    if (status) return status;
    *is_fit = plans->items[i].reserved_bytes <= g->budget;
  }
  return 0;
}

/* The most units that fit, 0 if one does not: doubled until they do not, then halved between. */
static int most_of(growth *g, lean_plans *plans, uint64_t *out, tsr_error *error) {
  uint64_t fit = 0, more = 1;
  bool is_fit = true;
  while (is_fit && more <= UINT64_C(1) << 24) {
    int status = keep_fitting(g, more, plans, &is_fit, error);
    if (status) return status;
    if (is_fit) fit = more;
    if (is_fit) more *= 2;
  }
  while (more - fit > 1) {
    uint64_t middle = fit + (more - fit) / 2;
    int status = fits_any(g, middle, plans, &is_fit, error);
    if (status) return status;
    *(is_fit ? &fit : &more) = middle;
  }
  assert(more == fit + 1 || fit > UINT64_C(1) << 23);
  *out = fit;
  return 0;
}

static int most(growth *g, unsigned allow, uint64_t *out, tsr_error *error) {
  lean_plans plans = {0};
  int status = list_lean(g, allow, &plans, error);
  bool is_refused_at_all = is_refused(status);
  *out = 0;
  if (status == 0) status = most_of(g, &plans, out, error);
  release_plans(&plans, 0);
  TSR__VECTOR_FREE(&plans);
  return is_refused_at_all ? 0 : status;
}

/* Whether the model allows no more, whatever the memory. */
static bool is_models_limit(growth *g, uint64_t units) {
  tsr_run_plan *plan = NULL;
  tsr_run_plan_cost cost;
  tsr_error ignored;
  if (tsr_run_plan_parse("{\"version\":1}", 13, &plan, &ignored)) return false;
  grow(g, units);
  int status = tsr_run_plan_measure(plan, g->model, &g->how, &cost, &ignored);
  tsr_run_plan_free(plan);
  return status == TSR_ERROR_ARGUMENT;
}

/* The plan for that size. Where the least plan is not among those of the search, for less. */
static int solve(growth *g, uint64_t *units, unsigned allow, tsr_largest *out, tsr_error *error) {
  for (; *units; --*units) {
    tsr_planned_release(&out->planned);
    tsr_planning_free(out->planning);
    out->planning = NULL;
    grow(g, *units);
    g->own.allow = allow;
    out->how = g->how;
    g->own.how = &out->how;
    int status = tsr_planning_new(g->model, &g->own, &out->planning, error);
    if (status == 0) status = tsr_planning_solve(out->planning, g->budget, &out->planned, error);
    if (status || out->planned.verdict != TSR_PLANNING_DOES_NOT_FIT) return status;
  }
  return 0;
}

int tsr_planning_largest(const tsr_model *model, const tsr_planning_options *options,
                         tsr_largest_what what, uint64_t budget_bytes, tsr_largest *out,
                         tsr_error *error) {
  growth g = {.model = model, .what = what, .budget = budget_bytes};
  tsr_largest found = {.what = what};
  uint64_t as_is = 0, units = 0;
  if (tsr_model_is_traced(model))
    return tsr__fail(
        error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
        "a step graph has the batch that it was traced with: trace it with another one");
  g.own = *options;
  g.how = *options->how;
  /* In parts, any batch fits that one sequence of it does. */
  unsigned allow = options->allow;
  if (what == TSR_LARGEST_BATCH) allow &= ~(unsigned)TSR_ALLOW_ACCUMULATE;
  int status = most(&g, 0, &as_is, error);
  if (status == 0) status = most(&g, allow, &units, error);
  if (status == 0) found.is_models_limit = is_models_limit(&g, units + 1);
  if (status == 0) status = solve(&g, &units, allow, &found, error);
  found.as_is = as_is * unit_of(what);
  found.size = units * unit_of(what);
  if (status)
    tsr_largest_release(&found);
  else
    *out = found;
  return status;
}

void tsr_largest_release(tsr_largest *largest) {
  tsr_planned_release(&largest->planned);
  tsr_planning_free(largest->planning);
  *largest = (tsr_largest){.size = 0};
}

/* ---- the front ---- */

/* The next budget is at least this part of what was found below it. */
enum { PARTS = 20 };

static int add_point(tsr_planning *planning, tsr_front *front, uint64_t budget, bool *fits,
                     uint64_t *least_bytes, tsr_error *error) {
  tsr_planned *point = &front->points[front->count];
  int status = tsr_planning_solve(planning, budget, point, error);
  if (status) return status;
  *fits = point->verdict != TSR_PLANNING_DOES_NOT_FIT;
  *least_bytes = point->with.reserved_bytes;
  assert(!*fits || *least_bytes <= budget);
  if (*fits)
    front->count++;
  else
    tsr_planned_release(point);
  return 0;
}

/* Where nothing fits any more, what takes least was tried as well: the last point, if it is below. */
int tsr_planning_front(tsr_planning *planning, tsr_front *out, tsr_error *error) {
  tsr_front *front = out;
  uint64_t budget = UINT64_MAX, last = UINT64_MAX, bytes;
  bool fits = true;
  int status = 0;
  front->count = 0;
  while (status == 0 && fits && front->count < TSR_FRONT_POINTS - 1) {
    status = add_point(planning, front, budget, &fits, &bytes, error);
    if (status || !fits) break;
    last = bytes;
    budget = bytes - bytes / PARTS - 1;
  }
  if (status == 0 && !fits && bytes < last && front->count)
    status = add_point(planning, front, bytes, &fits, &bytes, error);
  if (status) tsr_front_release(front);
  return status;
}

void tsr_front_release(tsr_front *front) {
  for (size_t i = 0; i < front->count; i++) tsr_planned_release(&front->points[i]);
  front->count = 0;
}
