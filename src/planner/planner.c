/* planner.c - see planning.h: the fastest plan that fits.
 *
 * Ways are tried in the order of the time that they take without recomputation. One that takes longer so than the best
 * plan found, or whose floor is above the budget, is left out. Of the others the candidates are simulated, the fastest
 * first, until one fits. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "planner/planner.h"

/* ---- words ---- */

static const struct {
  const char *word;
  unsigned allow;
} words[] = {{"kernels", TSR_ALLOW_KERNELS},
             {"loss-chunk", TSR_ALLOW_LOSS_CHUNK},
             {"accumulate", TSR_ALLOW_ACCUMULATE},
             {"recompute", TSR_ALLOW_RECOMPUTE},
             {"offload", TSR_ALLOW_OFFLOAD},
             {"in-backward", TSR_ALLOW_IN_BACKWARD},
             {"precision", TSR_ALLOW_PRECISION},
             {"none", 0},
             {"all", TSR_ALLOW_DEFAULT | TSR_ALLOW_PRECISION}};

int tsr_allow_parse(const char *text, unsigned *out, tsr_error *error) {
  unsigned allow = 0;
  for (const char *at = text;; at++) {
    size_t length = strcspn(at, ","), i = 0, count = sizeof words / sizeof *words;
    while (i < count && !(strlen(words[i].word) == length && !strncmp(words[i].word, at, length)))
      i++;
    if (i == count)
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "'%.*s' is nothing that can be allowed: " TSR_ALLOW_WORDS
                       " are, and all and none",
                       (int)(length < 40 ? length : 40), at);
    allow |= words[i].allow;
    at += length;
    if (!*at) break;
  }
  *out = allow;
  return 0;
}

/* ---- measuring ---- */

enum { PLAN_BYTES = 256 * 1024 };

int tsr__planner_parse(const json_t *root, tsr_run_plan **out, tsr_error *error) {
  char *text = tsr__realloc(NULL, PLAN_BYTES, 1);
  if (!text) return tsr__fail_memory(error);
  size_t size = json_dumpb(root, text, PLAN_BYTES, JSON_COMPACT);
  int status = 0;
  if (!size || size > PLAN_BYTES)
    status = tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "the plan is too long");
  if (status == 0) status = tsr_run_plan_parse(text, size, out, error);
  tsr__free(text);
  return status;
}

/* Not every combination makes sense, and not every step is short enough: that is an answer, not a failure. */
static int is_fault(int status, tsr_error *error) {
  bool is_answer =
      status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED || status == TSR_ERROR_LIMIT;
  if (is_answer && error) *error = (tsr_error){.status = TSR_OK};
  return is_answer ? 0 : status;
}

static int remember(tsr_planning *p, const char *hash, const tsr_run_plan_cost *cost,
                    tsr_error *error) {
  json_t *place = json_integer((json_int_t)p->costs.count);
  bool ok = TSR__VECTOR_PUSH(&p->costs, *cost);
  if (place && ok && json_object_set_new(p->places, hash, place) == 0) return 0;
  return tsr__fail_memory(error);
}

int tsr__planner_measure(tsr_planning *p, const json_t *root, tsr_run_plan_cost *out,
                         tsr_error *error) {
  tsr_run_plan *plan = NULL;
  int status = tsr__planner_parse(root, &plan, error);
  *out = (tsr_run_plan_cost){.is_possible = false};
  if (status) return status;
  const char *hash = tsr_run_plan_hash(plan);
  const json_t *place = json_object_get(p->places, hash);
  if (place) {
    *out = p->costs.items[json_integer_value(place)];
  } else {
    status = is_fault(tsr_run_plan_measure(plan, p->model, &p->how, out, error), error);
    if (status == 0) status = remember(p, hash, out, error);
    p->tried++;
  }
  tsr_run_plan_free(plan);
  return status;
}

int tsr__planner_survey(const tsr_planning *p, const json_t *root, uint64_t layers, uint64_t batch,
                        tsr__survey *out, bool *is_possible, tsr_error *error) {
  tsr_run_plan *plan = NULL;
  tsr_simulate_options options = p->how;
  *is_possible = false;
  int status = tsr__planner_parse(root, &plan, error);
  if (status) return status;
  tsr_run_plan_options(plan, &options);
  if (batch) options.batch = batch;
  assert(!options.profile && options.steps > 1);
  if (!tsr_model_is_traced(p->model)) {
    status = tsr__measure_survey(p->model, &options, layers, out, error);
  } else {
    status = tsr__measure_graph_survey(p->model, &options, p->allow & TSR_ALLOW_RECOMPUTE,
                                       p->allow & TSR_ALLOW_OFFLOAD, out, error);
    if (status) tsr__survey_release(out);
  }
  *is_possible = status == 0;
  tsr_run_plan_free(plan);
  return is_fault(status, error);
}

json_t *tsr__planner_with(const json_t *root, const char *keys) {
  json_t *with = json_deep_copy(root), *more = json_loads(keys, 0, NULL);
  bool ok = with && more && json_object_update(with, more) == 0;
  json_decref(more);
  if (ok) return with;
  json_decref(with);
  return NULL;
}

/* ---- beginning ---- */

int tsr_planning_new(const tsr_model *model, const tsr_planning_options *options,
                     tsr_planning **out, tsr_error *error) {
  tsr_planning_options own;
  int status = tsr__options_read(options, &own, sizeof own, error);
  if (status) return status;
  tsr_planning *p = TSR__NEW(tsr_planning);
  if (!p) return tsr__fail_memory(error);
  *p = (tsr_planning){.model = model,
                      .plan = own.plan,
                      .how = *own.how,
                      .allow = own.allow,
                      .calibration = own.calibration};
  if (!p->how.gpu && !p->how.rates) p->how.gpu = "a100";
  if (p->how.steps < 2) p->how.steps = 2; /* the first lacks the optimizer's state */
  p->base = json_loads(own.plan ? tsr_run_plan_text(own.plan) : "{\"version\":1}", 0, NULL);
  p->as_it_is.root = json_deep_copy(p->base);
  p->places = json_object();
  tsr_run_plan *plan = NULL;
  status = p->base && p->as_it_is.root && p->places ? 0 : tsr__fail_memory(error);
  if (status == 0) status = tsr__planner_parse(p->base, &plan, error);
  if (status == 0) status = tsr_run_plan_measure(plan, model, &p->how, &p->as_is, error);
  tsr_run_plan_free(plan);
  p->tried = 1;
  if (status)
    tsr_planning_free(p);
  else
    *out = p;
  return status;
}

void tsr_planning_free(tsr_planning *p) {
  if (!p) return;
  for (size_t i = 0; i < p->ways.count; i++) tsr__way_release(&p->ways.items[i]);
  TSR__VECTOR_FREE(&p->ways);
  tsr__way_release(&p->as_it_is);
  json_decref(p->base);
  json_decref(p->free);
  json_decref(p->places);
  TSR__VECTOR_FREE(&p->costs);
  tsr__free(p);
}

/* ---- the search ---- */

/* What was found: a candidate's plan, not owned. */
typedef struct best {
  const json_t *root;
  tsr_run_plan_cost cost;
} best;

static bool is_better(const tsr_run_plan_cost *a, const best *than) {
  if (!than->root) return true;
  if (a->step_seconds < than->cost.step_seconds || a->step_seconds > than->cost.step_seconds)
    return a->step_seconds < than->cost.step_seconds;
  return a->reserved_bytes < than->cost.reserved_bytes;
}

static int measure_candidate(tsr_planning *p, tsr__candidate *c, tsr_error *error) {
  if (c->is_measured) return 0;
  int status = tsr__planner_measure(p, c->root, &c->cost, error);
  c->is_measured = status == 0;
  return status;
}

/* The least that was reserved by any plan that was tried. */
static void note_least(const tsr__candidate *c, best *least) {
  if (c->cost.is_possible && (!least->root || c->cost.reserved_bytes < least->cost.reserved_bytes))
    *least = (best){c->root, c->cost};
}

static int list_candidates(tsr_planning *p, tsr__way *way, tsr_error *error) {
  return tsr_model_is_traced(p->model) ? tsr__planner_list_modules(p, way, error)
                                       : tsr__planner_list_candidates(p, way, error);
}

static int try_way(tsr_planning *p, tsr__way *way, uint64_t budget, best *found, best *least,
                   tsr_error *error) {
  int status = way->is_listed ? 0 : list_candidates(p, way, error);
  if (status || !way->candidates.count) return status;
  tsr__candidate *leanest = &way->candidates.items[way->candidates.count - 1];
  status = measure_candidate(p, leanest, error);
  if (status) return status;
  note_least(leanest, least);
  assert(leanest->is_measured && way->is_listed);
  if (!leanest->cost.is_possible || leanest->cost.reserved_bytes > budget) return 0;
  for (size_t i = 0; i < way->candidates.count; i++) {
    tsr__candidate *c = &way->candidates.items[i];
    status = measure_candidate(p, c, error);
    if (status) return status;
    note_least(c, least);
    if (!c->cost.is_possible || c->cost.reserved_bytes > budget) continue;
    if (is_better(&c->cost, found)) *found = (best){c->root, c->cost};
    return 0;
  }
  return 0;
}

/* Nothing fits: what takes least is of interest, and often of the way with the lowest floor. */
static int try_leanest(tsr_planning *p, uint64_t budget, best *found, best *least,
                       tsr_error *error) {
  tsr__way *leanest = NULL;
  for (size_t i = 0; i < p->ways.count; i++) {
    tsr__way *way = &p->ways.items[i];
    if (!leanest || way->survey.floor_bytes < leanest->survey.floor_bytes) leanest = way;
  }
  return leanest ? try_way(p, leanest, budget, found, least, error) : 0;
}

static int search(tsr_planning *p, uint64_t budget, best *found, best *least, tsr_error *error) {
  int status = p->has_ways ? 0 : tsr__planner_list_ways(p, error);
  for (size_t i = 0; status == 0 && i < p->ways.count; i++) {
    tsr__way *way = &p->ways.items[i];
    if (found->root && way->step_s > found->cost.step_seconds * (1 + 1e-9)) break;
    status = tsr__planner_survey_way(p, way, error);
    if (status) return status;
    bool is_hopeless = way->survey.floor_bytes > budget && least->root;
    if (!is_hopeless) status = try_way(p, way, budget, found, least, error);
  }
  return status || found->root ? status : try_leanest(p, budget, found, least, error);
}

static int measure_leanest(tsr_planning *p, const tsr__way *way, tsr_run_plan_cost *out,
                           tsr_error *error) {
  bool may = p->allow & TSR_ALLOW_RECOMPUTE;
  json_t *root = tsr__planner_with(way->root, may ? "{\"checkpoint\":\"full\"}" : "{}");
  int status = root ? tsr__planner_measure(p, root, out, error) : tsr__fail_memory(error);
  json_decref(root);
  return status;
}

/* The slowest ways need the least memory. */
int tsr__planner_fits(tsr_planning *p, uint64_t budget, bool *out, tsr_error *error) {
  *out = p->as_is.reserved_bytes <= budget;
  if (*out || !p->allow) return 0;
  int status = p->has_ways ? 0 : tsr__planner_list_ways(p, error);
  for (size_t i = p->ways.count; status == 0 && !*out && i-- > 0;) {
    tsr_run_plan_cost cost;
    status = measure_leanest(p, &p->ways.items[i], &cost, error);
    *out = status == 0 && cost.is_possible && cost.reserved_bytes <= budget;
  }
  return status;
}

/* Take back what is not needed: each change, if the rest still fits and takes no longer. */
static int simplify(tsr_planning *p, uint64_t budget, json_t *root, tsr_run_plan_cost *cost,
                    tsr_error *error) {
  const char *key;
  json_t *value;
  void *next;
  json_object_foreach_safe(root, next, key, value) {
    tsr_run_plan_cost without;
    json_t *before = json_object_get(p->base, key), *fewer = json_copy(root);
    if (!fewer) return tsr__fail_memory(error);
    if (!before) (void)json_object_del(fewer, key);
    bool is_same = before != NULL;
    int status = is_same ? 0 : tsr__planner_measure(p, fewer, &without, error);
    json_decref(fewer);
    if (status) return status;
    if (is_same || !without.is_possible || without.reserved_bytes > budget ||
        without.step_seconds > cost->step_seconds)
      continue;
    *cost = without;
    (void)json_object_del(root, key);
  }
  return 0;
}

/* Bounds over all ways. Those that were left out are slower than what was found: their time is a bound. */
static int bound(tsr_planning *p, tsr_planned *out, tsr_error *error) {
  bool is_as_is = out->verdict == TSR_PLANNING_FITS;
  size_t count = is_as_is ? 1 : p->ways.count;
  out->bound_seconds = INFINITY;
  out->bound_bytes = UINT64_MAX;
  for (size_t i = 0; i < count; i++) {
    tsr__way *way = is_as_is ? &p->as_it_is : &p->ways.items[i];
    bool must = is_as_is || out->verdict == TSR_PLANNING_DOES_NOT_FIT;
    int status = must ? tsr__planner_survey_way(p, way, error) : 0;
    if (status) return status;
    double seconds = way->is_surveyed ? tsr__planner_bound(way, out->budget_bytes) : way->step_s;
    if (seconds < out->bound_seconds) out->bound_seconds = seconds;
    if (way->is_surveyed && way->survey.floor_bytes < out->bound_bytes)
      out->bound_bytes = way->survey.floor_bytes;
  }
  out->is_proved = isinf(out->bound_seconds);
  assert(!out->is_proved || out->verdict == TSR_PLANNING_DOES_NOT_FIT);
  return 0;
}

int tsr_planning_solve(tsr_planning *p, uint64_t budget, tsr_planned *out, tsr_error *error) {
  best found = {NULL, {0}}, least = {NULL, {0}};
  tsr_planned planned = {.verdict = TSR_PLANNING_FITS, .budget_bytes = budget, .as_is = p->as_is};
  bool fits = p->as_is.reserved_bytes <= budget;
  int status = fits ? 0 : search(p, budget, &found, &least, error);
  if (status) return status;
  if (!fits)
    planned.verdict = found.root ? TSR_PLANNING_FITS_WITH_CHANGES : TSR_PLANNING_DOES_NOT_FIT;
  const json_t *from = found.root ? found.root : least.root;
  planned.with = fits ? p->as_is : found.root ? found.cost : least.cost;
  if (!fits && !from) { /* nothing at all could be tried: the plan as it is */
    from = p->base;
    planned.with = p->as_is;
  }
  json_t *root = json_deep_copy(fits ? p->base : from);
  if (!root) return tsr__fail_memory(error);
  if (found.root) status = simplify(p, budget, root, &planned.with, error);
  if (status == 0) status = tsr__planner_parse(root, &planned.plan, error);
  if (status == 0) status = tsr__planner_list_changes(p, root, &planned, error);
  json_decref(root);
  if (status == 0) status = bound(p, &planned, error);
  planned.tried = p->tried;
  planned.calibration = p->calibration;
  planned.unit_count = p->unit_count;
  planned.far_count = p->far_count;
  if (status)
    tsr_planned_release(&planned);
  else
    *out = planned;
  return status;
}

void tsr_planned_release(tsr_planned *planned) {
  tsr_run_plan_free(planned->plan);
  planned->plan = NULL;
}
