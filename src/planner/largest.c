/* largest.c - the largest batch or sequence that fits, and the plans on the way from fast to small. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

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

/* Whether some plan fits at this size; with `allow` 0, as it is. */
static int fits(growth *g, uint64_t units, unsigned allow, bool *out, tsr_error *error) {
  tsr_planning *planning = NULL;
  grow(g, units);
  g->own.allow = allow;
  *out = false;
  int status = tsr_planning_new(g->model, &g->own, &planning, error);
  if (status == 0) status = tsr__planner_fits(planning, g->budget, out, error);
  tsr_planning_free(planning);
  return is_refused(status) ? 0 : status;
}

/* The most units that fit, 0 if one does not: doubled until they do not, then halved between. */
static int most(growth *g, unsigned allow, uint64_t *out, tsr_error *error) {
  uint64_t fit = 0, not = 1;
  bool is_fit = true;
  while (is_fit && not <= UINT64_C(1) << 24) {
    int status = fits(g, not, allow, &is_fit, error);
    if (status) return status;
    if (is_fit) fit = not ;
    if (is_fit) not *= 2;
  }
  while (not -fit > 1) {
    uint64_t middle = fit + (not -fit) / 2;
    int status = fits(g, middle, allow, &is_fit, error);
    if (status) return status;
    *(is_fit ? &fit : &not ) = middle;
  }
  assert(not == fit + 1 || fit > UINT64_C(1) << 23);
  *out = fit;
  return 0;
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

/* Budgets go down from what was found by at least this part of it. */
enum { STEPS = 64 };

int tsr_planning_front(tsr_planning *planning, tsr_front *out, tsr_error *error) {
  tsr_front front = {.count = 0};
  uint64_t budget = planning->as_is.reserved_bytes ? planning->as_is.reserved_bytes - 1 : 0;
  uint64_t step = budget / STEPS + 1;
  int status = 0;
  while (status == 0 && front.count < TSR_FRONT_POINTS) {
    tsr_planned *point = &front.points[front.count];
    status = tsr_planning_solve(planning, budget, point, error);
    if (status) break;
    if (point->verdict == TSR_PLANNING_DOES_NOT_FIT) {
      tsr_planned_release(point);
      break;
    }
    assert(point->with.reserved_bytes <= budget);
    front.count++;
    uint64_t reserved = point->with.reserved_bytes;
    budget = reserved > step ? reserved - step : 0;
  }
  if (status)
    tsr_front_release(&front);
  else
    *out = front;
  return status;
}

void tsr_front_release(tsr_front *front) {
  for (size_t i = 0; i < front->count; i++) tsr_planned_release(&front->points[i]);
  front->count = 0;
}
