/* largest.c - finds the largest batch, sequence or model that fits, and the plans from the fastest to the
 * smallest. */
#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/sort.h"
#include "models/model.h"
#include "plan/planner.h"

/* The shares of a limit that the search for the size as it is, for the size with changes, and for a larger one may have used; the rest is for
 * the plan. */
static const double as_is_share = 0.25, size_share = 0.5, more_share = 0.75;

/* ---- sizes ---- */

/* A size to try. Batches and sequences only have units. A model of N units has N heads of keys, and its other heads
 * and its layers keep the proportions of the base model; `extra` layers are added on top of that. */
typedef struct size_at {
  uint64_t units, extra;
} size_at;

typedef struct growth {
  const tsr_model *base, *model; /* as given; resized to the size last tried */
  tsr_model *resized;            /* owned; NULL while `model` is `base` */
  tsr_simulate_options how;
  tsr_planning_options own;
  tsr_largest_what what;
  uint64_t budget;
  tsr_run_plan *fitting;     /* the last plan that fitted; owned, or NULL */
  tsr_effort_end stopped_by; /* a limit at which a search for a size ended */
  uint64_t
      units; /* of the model to which layers are being added; 0 while units are being searched */
} growth;

/* Sequences grow in steps of 64 tokens, or of all that a model has if it has fewer; the rest one by one. */
static uint64_t unit_of(const growth *g) {
  uint64_t positions = g->base->positions;
  if (g->what != TSR_LARGEST_SEQUENCE) return 1;
  return positions && positions < 64 ? positions : 64;
}

/* The layers keep the base model's ratio of layers to heads, rounded. */
static int resize(growth *g, size_at size, tsr_error *error) {
  const tsr_model *m = g->base;
  uint64_t heads = size.units * (m->heads / m->kv_heads);
  uint64_t layers = (2 * m->layers * heads + m->heads) / (2 * m->heads);
  assert(g->what == TSR_LARGEST_MODEL && size.units);
  tsr_model_free(g->resized);
  g->resized = NULL;
  g->model = g->base;
  int status = tsr__model_resized(m, (layers ? layers : 1) + size.extra, heads, &g->resized, error);
  if (status == 0) g->model = g->resized;
  return status;
}

static size_at size_of(const growth *g, uint64_t count) {
  return g->units ? (size_at){g->units, count} : (size_at){count, 0};
}

static int grow_to(growth *g, size_at size, tsr_error *error) {
  uint64_t amount = size.units * unit_of(g);
  g->own.how = &g->how;
  if (g->what == TSR_LARGEST_MODEL) return resize(g, size, error);
  assert(amount && !size.extra);
  if (g->what == TSR_LARGEST_BATCH) g->how.batch = amount;
  if (g->what == TSR_LARGEST_SEQUENCE) g->how.sequence = amount;
  return 0;
}

/* The size in the answer's unit: sequences, tokens or parameters. */
static int amount_of(growth *g, size_at size, uint64_t *out, tsr_error *error) {
  *out = size.units * unit_of(g);
  if (g->what != TSR_LARGEST_MODEL || !size.units) return 0;
  int status = resize(g, size, error);
  if (status == 0) *out = tsr_model_parameter_count(g->model);
  if (status == 0 && !*out) status = tsr__fail_memory(error);
  return status;
}

/* These statuses mean that the model does not allow this size, so it does not fit. A model may also exceed a limit
 * on sizes. */
static bool is_refused(const growth *g, int status) {
  return status != TSR_ERROR_UNSUPPORTED && tsr__planner_is_refused(g->how.effort, status);
}

static bool is_no_size(const growth *g, int status) {
  return status == TSR_ERROR_FORMAT || tsr__planner_is_refused(g->how.effort, status);
}

/* A candidate for the plan with which the largest size fits. */
typedef struct lean_plan {
  tsr_run_plan *plan;    /* owned */
  uint64_t needed_bytes; /* of the card's budget, or the same share of the host's if that is more */
} lean_plan;

typedef TSR__VECTOR(lean_plan) lean_plans;

static void release_plans(lean_plans *plans, size_t from) {
  for (size_t i = from; i < plans->count; i++) tsr_run_plan_free(plans->items[i].plan);
  plans->count = from;
}

/* `is_again`: recompute all blocks. */
static int add_lean(lean_plans *plans, const tsr_run_plan *plan, bool is_again, tsr_error *error) {
  lean_plan one = {tsr__run_plan_copy(plan), 0};
  if (one.plan && is_again) tsr__option_set("checkpoint", "full", &one.plan->options);
  if (one.plan && TSR__VECTOR_PUSH(plans, one)) return 0;
  tsr_run_plan_free(one.plan);
  return tsr__fail_memory(error);
}

enum { WAYS_TOKENS = 1024, MOST_LEAN = 12 };

/* Start a search that can list every way. With few tokens some ways are missing, so this uses at least WAYS_TOKENS
 * tokens where the model allows as many. The size of a model does not matter: the base model is used. */
static int begin_lean(growth *g, tsr_planning **out, tsr_error *error) {
  uint64_t tokens = g->what == TSR_LARGEST_BATCH ? g->how.sequence : unit_of(g);
  uint64_t units = tokens < WAYS_TOKENS ? WAYS_TOKENS / (tokens ? tokens : 1) : 1;
  int status = TSR_ERROR_ARGUMENT;
  if (g->what == TSR_LARGEST_MODEL) {
    g->own.how = &g->how;
    return tsr_planning_new(g->base, &g->own, out, error);
  }
  for (; units && is_refused(g, status); units /= 2) {
    status = grow_to(g, (size_at){units, 0}, error);
    if (status == 0) status = tsr_planning_new(g->model, &g->own, out, error);
  }
  return status;
}

/* The leanest plans of a way. A block that is computed again keeps only its input, so one that sends what it keeps to the host may need less. */
static int add_lean_of(const tsr__way *way, bool may_recompute, lean_plans *plans,
                       tsr_error *error) {
  int status = add_lean(plans, way->plan, may_recompute, error);
  bool has_other = may_recompute && tsr__way_copies_activations(way);
  return status || !has_other ? status : add_lean(plans, way->plan, false, error);
}

/* List the leanest plans of each way. */
static int list_lean(growth *g, unsigned allow, lean_plans *plans, tsr_error *error) {
  tsr_planning *planning = NULL;
  g->own.allow = allow;
  int status = begin_lean(g, &planning, error);
  if (status == 0) status = add_lean(plans, planning->base, false, error);
  if (planning) planning->is_coarse = true;
  if (status == 0 && allow) status = tsr__planner_list_ways(planning, error);
  bool may_recompute = allow & TSR_ALLOW_RECOMPUTE;
  for (size_t i = 0; status == 0 && allow && i < planning->ways.count; i++)
    if (!planning->ways.items[i].narrows)
      status = add_lean_of(&planning->ways.items[i], may_recompute, plans, error);
  tsr_planning_free(planning);
  return status;
}

static int compare_lean(const void *left, const void *right) {
  const lean_plan *a = left, *b = right;
  return (a->needed_bytes > b->needed_bytes) - (a->needed_bytes < b->needed_bytes);
}

/* What a plan needs of a budget that is shared between card and host in the proportion of their own. */
static uint64_t needed_bytes(const growth *g, const tsr_run_plan_cost *cost) {
  uint64_t host = g->own.host_budget_bytes;
  if (!host || cost->host_machine_bytes == 0) return cost->reserved_bytes;
  if (cost->host_machine_bytes > host) return UINT64_MAX;
  double needs = (double)cost->host_machine_bytes / (double)host * (double)g->budget;
  uint64_t bytes = needs < (double)g->budget ? (uint64_t)needs : g->budget;
  return bytes > cost->reserved_bytes ? bytes : cost->reserved_bytes;
}

/* `most_bytes`: more than that is as good as infinite. */
static int measure_lean(growth *g, lean_plan *lean, uint64_t most_bytes, tsr_error *error) {
  tsr_run_plan_cost cost;
  tsr__measure_limit limit = {.most_reserved_bytes = most_bytes};
  int status = tsr__plan_measure(lean->plan, g->model, &g->how, &limit, &cost, error);
  bool is_impossible = tsr__planner_is_refused(g->how.effort, status);
  bool is_known = cost.is_possible && !limit.over_bytes;
  lean->needed_bytes = is_known ? needed_bytes(g, &cost) : UINT64_MAX;
  return is_impossible ? 0 : status;
}

/* Insert into a list that ascends; the last one is dropped. */
static void note_lean(uint64_t leanest[MOST_LEAN], uint64_t bytes) {
  size_t at = MOST_LEAN;
  while (at && leanest[at - 1] > bytes) at--;
  if (at == MOST_LEAN) return;
  memmove(&leanest[at + 1], &leanest[at], (MOST_LEAN - 1 - at) * sizeof *leanest);
  leanest[at] = bytes;
}

static int note_fitting(growth *g, const tsr_run_plan *plan, tsr_error *error) {
  tsr_run_plan_free(g->fitting);
  g->fitting = tsr__run_plan_copy(plan);
  return g->fitting ? 0 : tsr__fail_memory(error);
}

/* Keep the leanest plans that fit. A plan that does not fit this size fits no larger one. */
static int keep_fitting(growth *g, uint64_t count, lean_plans *plans, bool *is_fit,
                        tsr_error *error) {
  size_t kept = 0;
  uint64_t leanest[MOST_LEAN]; /* so far: a plan that takes more than all of them is not kept */
  for (size_t i = 0; i < MOST_LEAN; i++) leanest[i] = g->budget;
  int grown = grow_to(g, size_of(g, count), error);
  *is_fit = false;
  if (grown) return is_no_size(g, grown) ? 0 : grown;
  for (size_t i = 0; i < plans->count; i++) {
    int status = measure_lean(g, &plans->items[i], leanest[MOST_LEAN - 1], error);
    if (status) return status;
    kept += plans->items[i].needed_bytes <= g->budget;
    note_lean(leanest, plans->items[i].needed_bytes);
  }
  *is_fit = kept > 0;
  if (!kept) return 0;
  tsr__sort(plans->items, plans->count, sizeof *plans->items, compare_lean);
  release_plans(plans, kept < MOST_LEAN ? kept : MOST_LEAN);
  assert(plans->count && plans->items[0].needed_bytes <= g->budget);
  return note_fitting(g, plans->items[0].plan, error);
}

/* Check whether one of the plans fits, trying first those that were leanest at a smaller size. */
static int fits_any(growth *g, uint64_t count, lean_plans *plans, bool *is_fit, tsr_error *error) {
  int grown = grow_to(g, size_of(g, count), error);
  *is_fit = false;
  if (grown) return is_no_size(g, grown) ? 0 : grown;
  for (size_t i = 0; i < plans->count && !*is_fit; i++) {
    int status = measure_lean(g, &plans->items[i], g->budget, error);
    if (status) return status;
    *is_fit = plans->items[i].needed_bytes <= g->budget;
    if (*is_fit) return note_fitting(g, plans->items[i].plan, error);
  }
  return 0;
}

/* Find the largest count that fits, or 0: double it until nothing fits, then bisect. At a limit, it is the largest so far. */
static int most_of(growth *g, lean_plans *plans, uint64_t *out, tsr_error *error) {
  uint64_t fit = 0, more = 1;
  bool is_fit = true;
  int status = 0;
  while (status == 0 && is_fit && more <= UINT64_C(1) << 24) {
    status = keep_fitting(g, more, plans, &is_fit, error);
    if (status == 0 && is_fit) fit = more;
    if (status == 0 && is_fit) more *= 2;
  }
  while (status == 0 && more - fit > 1) {
    uint64_t middle = fit + (more - fit) / 2;
    status = fits_any(g, middle, plans, &is_fit, error);
    if (status == 0) *(is_fit ? &fit : &more) = middle;
  }
  assert(status || more == fit + 1 || fit > UINT64_C(1) << 23);
  *out = fit;
  return fit && tsr__effort_is_spent(g->how.effort) ? 0 : status;
}

/* Find the largest size for which one of the leanest plans fits. For models, first grow in proportion, then add
 * layers. */
static int most(growth *g, unsigned allow, size_at *out, tsr_error *error) {
  lean_plans plans = {0};
  *out = (size_at){0, 0};
  g->units = 0;
  int status = list_lean(g, allow, &plans, error);
  /* Without changes, a model may be unsupported only because of its precision. Then nothing fits unchanged. */
  bool is_refused_at_all = is_refused(g, status) || (!allow && status == TSR_ERROR_UNSUPPORTED);
  if (status == 0) status = most_of(g, &plans, &out->units, error);
  bool has_work = !tsr__effort_is_over(g->how.effort);
  if (status == 0 && out->units && has_work && g->what == TSR_LARGEST_MODEL) {
    g->units = out->units;
    status = most_of(g, &plans, &out->extra, error);
    if (tsr__effort_is_spent(g->how.effort)) status = 0; /* without more layers it fits */
  }
  g->units = 0;
  release_plans(&plans, 0);
  TSR__VECTOR_FREE(&plans);
  return is_refused_at_all ? 0 : status;
}

/* The same with a share of the limits. */
static int most_within(growth *g, unsigned allow, double share, size_at *out, tsr_error *error) {
  tsr__effort_share(g->how.effort, share);
  int status = most(g, allow, out, error);
  if (tsr__effort_is_spent(g->how.effort)) g->stopped_by = tsr_effort_ended(g->how.effort);
  return status;
}

/* ---- beyond the leanest plans ---- */

/* Sizes that are tried in this way, at most: each is a search of its own. */
enum { MORE_TRIES = 24 };

/* Whether any plan that a search finds fits the size. */
static int search_size(growth *g, size_at size, unsigned allow, bool *is_fit, tsr_error *error) {
  tsr_planning *planning = NULL;
  tsr__best found = {NULL, {0}, NULL}, least = {NULL, {0}, NULL};
  *is_fit = false;
  int status = grow_to(g, size, error);
  if (status) return is_no_size(g, status) ? 0 : status;
  g->own.allow = allow;
  status = tsr_planning_new(g->model, &g->own, &planning, error);
  if (status) return is_refused(g, status) ? 0 : status;
  planning->is_coarse = true;
  planning->is_any_enough = true;
  status = tsr__planner_search(planning, g->budget, &found, &least, error);
  *is_fit = found.plan != NULL;
  if (*is_fit) status = note_fitting(g, found.plan, error);
  tsr_planning_free(planning);
  return status;
}

static size_at plus(const growth *g, size_at size, uint64_t more) {
  bool adds_layers = g->what == TSR_LARGEST_MODEL && size.units;
  return adds_layers ? (size_at){size.units, size.extra + more} : (size_at){size.units + more, 0};
}

/* The leanest plans of ways are only close to the smallest plans there are: sizes a little larger may fit too. */
static int search_larger(growth *g, unsigned allow, size_at *size, tsr_error *error) {
  uint64_t fit = 0, more = 1, none = 0;
  int status = 0;
  for (size_t tries = 0; status == 0 && more > fit && tries < MORE_TRIES; tries++) {
    bool is_fit;
    status = search_size(g, plus(g, *size, more), allow, &is_fit, error);
    if (status) break;
    *(is_fit ? &fit : &none) = more;
    more = none ? fit + (none - fit) / 2 : 2 * more;
  }
  *size = plus(g, *size, fit);
  return status;
}

/* The same with a share of the limits. At a limit it is the largest so far. */
static int search_within(growth *g, unsigned allow, size_at *size, tsr_error *error) {
  tsr__effort_share(g->how.effort, more_share);
  int status = search_larger(g, allow, size, error);
  if (!tsr__effort_is_spent(g->how.effort)) return status;
  g->stopped_by = tsr_effort_ended(g->how.effort);
  return 0;
}

/* Whether the model forbids the next larger size, regardless of memory. */
static bool is_models_limit(growth *g, size_at size) {
  tsr_run_plan_cost cost;
  tsr_error ignored;
  bool is_model = g->what == TSR_LARGEST_MODEL;
  size_at next =
      is_model && size.units ? (size_at){size.units, size.extra + 1} : (size_at){size.units + 1, 0};
  int status = grow_to(g, next, &ignored);
  if (status) return is_no_size(g, status);
  tsr_run_plan *plan = is_model ? NULL : tsr__run_plan_new();
  if (!plan) return false;
  status = tsr_run_plan_measure(plan, g->model, &g->how, &cost, &ignored);
  tsr_run_plan_free(plan);
  return status == TSR_ERROR_ARGUMENT;
}

static void make_smaller(size_at *size) {
  assert(size->units);
  if (size->extra)
    size->extra--;
  else
    size->units--;
}

/* Find the plan for the size. The search may not consider the leanest plan; if nothing that it considers fits, the
 * next smaller size is tried. The answer owns the model. */
static int solve(growth *g, size_at *size, unsigned allow, tsr_largest *out, tsr_error *error) {
  for (; size->units; make_smaller(size)) {
    tsr_planned_release(&out->planned);
    tsr_planning_free(out->planning);
    out->planning = NULL;
    tsr_model_free(out->model);
    out->model = NULL;
    int status = grow_to(g, *size, error);
    if (status) return status;
    out->model = g->resized;
    g->resized = NULL;
    g->own.allow = allow;
    out->how = g->how;
    g->own.how = &out->how;
    status = tsr_planning_new(g->model, &g->own, &out->planning, error);
    if (status == 0) out->planning->known = g->fitting;
    if (status == 0) status = tsr_planning_solve(out->planning, g->budget, &out->planned, error);
    if (status == 0) out->planning->known = NULL;
    if (status || out->planned.verdict != TSR_PLANNING_DOES_NOT_FIT || out->planned.stopped_by)
      return status;
  }
  return 0;
}

int tsr_planning_largest(const tsr_model *model, const tsr_planning_options *options,
                         tsr_largest_what what, uint64_t budget_bytes, tsr_largest *out,
                         tsr_error *error) {
  growth g = {.base = model, .model = model, .what = what, .budget = budget_bytes};
  tsr_largest found = {.what = what};
  size_at as_is = {0, 0}, size = {0, 0};
  tsr_error why; /* also why sizes and plans that were tried are impossible, which is no failure */
  if (tsr_model_is_traced(model))
    return tsr__fail(
        error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
        "a step graph has the batch that it was traced with: trace it with another one");
  int read = tsr__options_read(options, &g.own, sizeof g.own, error);
  if (read) return read;
  if (what == TSR_LARGEST_MODEL && g.own.plan && g.own.plan->options.offload_blocks)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "the largest model is searched among models of other numbers of blocks, so "
                     "--offload-blocks has no meaning");
  g.how = *options->how;
  /* With micro-batches, every batch fits if one sequence does, so there would be no largest batch. */
  unsigned allow = options->allow;
  if (what == TSR_LARGEST_BATCH) allow &= ~(unsigned)TSR_ALLOW_ACCUMULATE;
  tsr__effort_share(g.how.effort, as_is_share);
  int status = most_within(&g, 0, as_is_share, &as_is, &why);
  if (status && tsr__effort_is_spent(g.how.effort)) status = 0;
  if (status == 0) status = most_within(&g, allow, size_share, &size, &why);
  if (status == 0 && allow && !g.stopped_by) status = search_within(&g, allow, &size, &why);
  if (status && as_is.units && tsr__effort_is_spent(g.how.effort)) {
    size = as_is;
    status = 0;
  }
  found.stopped_by = g.stopped_by;
  if (status == 0) tsr__effort_share(g.how.effort, 1);
  if (status == 0 && !g.stopped_by) found.is_models_limit = is_models_limit(&g, size);
  if (status == 0) status = amount_of(&g, as_is, &found.as_is, &why);
  if (status == 0) status = solve(&g, &size, allow, &found, &why);
  if (status == 0) status = amount_of(&g, size, &found.size, &why);
  tsr_run_plan_free(g.fitting);
  tsr_model_free(g.resized);
  if (status)
    tsr_largest_release(&found);
  else
    *out = found;
  if (status && error) *error = why;
  return status;
}

void tsr_largest_release(tsr_largest *largest) {
  tsr_planned_release(&largest->planned);
  tsr_planning_free(largest->planning);
  tsr_model_free(largest->model);
  *largest = (tsr_largest){.size = 0};
}

/* ---- the front of time and memory ---- */

/* Each budget is 1/PARTS below what the previous plan reserves; near the end also half of that, and a quarter. */
enum { PARTS = 20, MOST_PARTS = 80 };

/* Drop the points before the last that take as long or longer: it needs less memory. */
static void drop_dominated(tsr_front *front) {
  while (front->count > 1) {
    tsr_planned *last = &front->points[front->count - 1], *before = last - 1;
    if (before->with.step_seconds < last->with.step_seconds) return;
    tsr_planned_release(before);
    *before = *last;
    front->count--;
  }
}

/* If nothing fits, `*smallest`, which is owned, becomes the smallest plan found. */
static int add_point(tsr_planning *planning, tsr_front *front, uint64_t budget, bool *fits,
                     uint64_t *least_bytes, tsr_run_plan **smallest, tsr_error *error) {
  tsr_planned *point = &front->points[front->count];
  int status = tsr_planning_solve(planning, budget, point, error);
  if (status) return status;
  *fits = point->verdict != TSR_PLANNING_DOES_NOT_FIT;
  front->stopped_by = point->stopped_by;
  *least_bytes = point->with.reserved_bytes;
  assert(!*fits || *least_bytes <= budget);
  if (*fits) {
    front->count++;
    drop_dominated(front);
    return 0;
  }
  tsr_run_plan_free(*smallest);
  *smallest = point->plan;
  point->plan = NULL;
  tsr_planned_release(point);
  return 0;
}

/* When a budget is too small, the search has still found the smallest plan. It becomes the last point if it needs
 * less than the point before it. */
int tsr_planning_front(tsr_planning *planning, tsr_front *out, tsr_error *error) {
  tsr_front *front = out;
  uint64_t budget = UINT64_MAX, last = UINT64_MAX, bytes;
  const tsr_run_plan *known = planning->known;
  tsr_run_plan *smallest = NULL;
  bool fits = true;
  int status = 0;
  front->count = 0;
  front->stopped_by = TSR_EFFORT_LEFT;
  while (status == 0 && fits && front->count < TSR_FRONT_POINTS - 1) {
    status = add_point(planning, front, budget, &fits, &bytes, &smallest, error);
    if (status || !fits) break;
    last = bytes;
    budget = bytes - bytes / PARTS - 1;
    if (front->stopped_by) break;
  }
  for (uint64_t parts = 2 * PARTS; parts <= MOST_PARTS && front->count; parts *= 2) {
    if (status || fits || bytes < last || front->stopped_by) break;
    status = add_point(planning, front, last - last / parts - 1, &fits, &bytes, &smallest, error);
  }
  planning->known = smallest;
  if (status == 0 && !fits && bytes < last && front->count && !front->stopped_by)
    status = add_point(planning, front, bytes, &fits, &bytes, &smallest, error);
  planning->known = known;
  tsr_run_plan_free(smallest);
  if (status == 0 && !front->count && front->stopped_by)
    status = tsr__effort_fail(planning->how.effort, error);
  if (status) tsr_front_release(front);
  return status;
}

void tsr_front_release(tsr_front *front) {
  for (size_t i = 0; i < front->count; i++) tsr_planned_release(&front->points[i]);
  front->count = 0;
}
