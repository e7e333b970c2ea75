/* planner.c - see planning.h: the fastest plan that fits.
 *
 * The answer is the fastest of all candidates of all ways that fit, and of the plan as it is. Nothing is left out that could
 * be faster: ways are tried in the order of the time that they take without recomputation, and one is skipped only
 * if its bound is no less than the time of what was found; of the others a candidate is simulated unless its
 * time, which is known before, is more, or the least that it takes, which is known too, is above the budget. A simulation ends where
 * the budget does. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "plan/planner.h"
#include "plan/plan_file.h"

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
             {"narrow", TSR_ALLOW_NARROW},
             {"zero", TSR_ALLOW_ZERO},
             {"none", 0}, /* the words for several follow */
             {"all", TSR_ALLOW_DEFAULT | TSR_ALLOW_PRECISION | TSR_ALLOW_NARROW}};

const char *tsr__allow_word(size_t index) {
  return words[index].allow ? words[index].word : NULL;
}

unsigned tsr__allow_flag(size_t index) {
  return words[index].allow;
}

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
    bool is_whole = words[i].allow == 0 || (words[i].allow & (words[i].allow - 1)) != 0;
    if (is_whole && (at != text || at[length]))
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "'%.*s' cannot be combined with other words", (int)length, at);
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
static bool is_answer(int status) {
  return status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED ||
         status == TSR_ERROR_LIMIT;
}

/* The status, if it is a failure. */
static int is_fault(int status, tsr_error *error) {
  if (!is_answer(status)) return status;
  if (error) *error = (tsr_error){.status = TSR_OK};
  return 0;
}

static int remember(tsr_planning *p, const char *hash, const tsr_run_plan_cost *cost,
                    tsr_error *error) {
  json_t *place = json_integer((json_int_t)p->costs.count);
  bool ok = TSR__VECTOR_PUSH(&p->costs, *cost);
  if (place && ok && json_object_set_new(p->places, hash, place) == 0) return 0;
  return tsr__fail_memory(error);
}

int tsr__planner_measure_within(tsr_planning *p, const json_t *root, uint64_t most_bytes,
                                tsr_run_plan_cost *out, uint64_t *over_bytes, tsr_error *error) {
  tsr_run_plan *plan = NULL;
  int status = tsr__planner_parse(root, &plan, error);
  *out = (tsr_run_plan_cost){.is_possible = false};
  *over_bytes = 0;
  if (status) return status;
  const char *hash = tsr_run_plan_hash(plan);
  const json_t *place = json_object_get(p->places, hash);
  if (place) {
    *out = p->costs.items[json_integer_value(place)];
  } else {
    status = is_fault(
        tsr__run_plan_measure_within(plan, p->model, &p->how, most_bytes, out, over_bytes, error),
        error);
    p->tried++;
    if (status == 0 && !*over_bytes) status = remember(p, hash, out, error);
  }
  tsr_run_plan_free(plan);
  return status;
}

int tsr__planner_measure(tsr_planning *p, const json_t *root, tsr_run_plan_cost *out,
                         tsr_error *error) {
  uint64_t over_bytes;
  return tsr__planner_measure_within(p, root, 0, out, &over_bytes, error);
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

/* The base, or the first precision with which the model is possible: figures of the base, and the keys. */
static int measure_base(tsr_planning *p, tsr_error *error) {
  tsr_run_plan *plan = NULL;
  int status = tsr__planner_parse(p->base, &plan, error);
  if (status) return status;
  status = tsr_run_plan_measure(plan, p->model, &p->how, &p->as_is, error);
  tsr_run_plan_free(plan);
  p->tried = 1;
  p->resolve = "{}";
  if (!is_answer(status)) return status;
  if (error) (void)snprintf(p->refusal, sizeof p->refusal, "%s", error->message);
  for (size_t i = 1; tsr__planner_precision(p, i); i++) {
    tsr_run_plan_cost cost;
    tsr_error ignored;
    json_t *root = tsr__planner_with(p->base, tsr__planner_precision(p, i));
    int other = root ? tsr__planner_measure(p, root, &cost, &ignored) : TSR_ERROR_MEMORY;
    json_decref(root);
    if (other) return tsr__fail_memory(error);
    p->resolve = tsr__planner_precision(p, i);
    if (cost.is_possible) return is_fault(status, error);
  }
  return status;
}

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
  status = tsr__choose_gpu(model, &p->how, error);
  if (p->how.steps < 2) p->how.steps = 2; /* the first lacks the optimizer's state */
  p->base = json_loads(own.plan ? tsr_run_plan_text(own.plan) : "{\"version\":1}", 0, NULL);
  p->places = json_object();
  p->savings = json_array();
  p->refused = json_array();
  bool ok = p->base && p->places && p->savings && p->refused;
  if (!ok) status = tsr__fail_memory(error);
  if (status == 0) status = measure_base(p, error);
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
  for (size_t i = 0; i < p->block_options.count; i++)
    tsr__block_options_free(p->block_options.items[i]);
  TSR__VECTOR_FREE(&p->block_options);
  json_decref(p->savings);
  json_decref(p->refused);
  json_decref(p->base);
  json_decref(p->free);
  json_decref(p->places);
  TSR__VECTOR_FREE(&p->costs);
  tsr__free(p);
}

/* ---- the search ---- */

/* How far a candidate's time may be from its estimate: tests compare all of them. */
#define ESTIMATE_ERROR 0.001
/* And the time of a way without recomputation from what three blocks take. */
#define WAY_ERROR 1e-6

/* How much less than its least a candidate may reserve, which is added up from few blocks: tests compare all of them. */
enum { LEAST_PARTS = 50 };

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

/* `most_bytes`: it is not measured whole if it reserves more; 0: whole. */
static int measure_candidate(tsr_planning *p, tsr__candidate *c, uint64_t most_bytes,
                             tsr_error *error) {
  if (c->is_measured) return 0;
  int status = tsr__planner_measure_within(p, c->root, most_bytes, &c->cost, &c->over_bytes, error);
  c->is_measured = status == 0 && !c->over_bytes;
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

static uint64_t least_of(const tsr__candidate *c) {
  uint64_t least = c->least_bytes - c->least_bytes / LEAST_PARTS;
  return least > c->over_bytes ? least : c->over_bytes;
}

/* Simulate what fits, and may be faster than what was found: a candidate's time is known to `ESTIMATE_ERROR` before. */
static int try_way(tsr_planning *p, tsr__way *way, uint64_t budget, best *found, best *least,
                   tsr_error *error) {
  int status = way->is_listed ? 0 : list_candidates(p, way, error);
  for (size_t i = 0; status == 0 && i < way->candidates.count; i++) {
    tsr__candidate *c = &way->candidates.items[i];
    bool is_slower = found->root && !c->is_measured &&
                     c->estimate_s * (1 - ESTIMATE_ERROR) > found->cost.step_seconds;
    if (is_slower || (!c->is_measured && least_of(c) > budget)) continue;
    status = measure_candidate(p, c, budget, error);
    if (status) return status;
    if (!c->is_measured) continue;
    note_least(c, least);
    if (!c->cost.is_possible || c->cost.reserved_bytes > budget) continue;
    if (is_better(&c->cost, found)) *found = (best){c->root, c->cost};
  }
  return status;
}

/* Of the ways that were tried, or one of them, the candidate that may take least and was not simulated to its end; or NULL. */
static tsr__candidate *next_least(tsr_planning *p, const tsr__way *only) {
  tsr__candidate *next = NULL;
  for (size_t i = 0; i < p->ways.count; i++) {
    tsr__way *way = &p->ways.items[i];
    if (only && way != only) continue;
    if (!only && !way->is_tried) continue;
    for (size_t k = 0; k < way->candidates.count; k++) {
      tsr__candidate *c = &way->candidates.items[k];
      if (!c->is_measured && (!next || least_of(c) < least_of(next))) next = c;
    }
  }
  return next;
}

/* Nothing fits: what takes least is of interest. */
static int find_least(tsr_planning *p, const tsr__way *only, best *least, tsr_error *error) {
  for (;;) {
    tsr__candidate *c = next_least(p, only);
    if (!c || (least->root && least_of(c) >= least->cost.reserved_bytes)) return 0;
    int status = measure_candidate(p, c, 0, error);
    if (status) return status;
    note_least(c, least);
  }
}

/* What takes least is often of the way with the lowest floor. */
static int try_leanest(tsr_planning *p, uint64_t budget, best *found, best *least,
                       tsr_error *error) {
  tsr__way *leanest = NULL;
  for (size_t i = 0; i < p->ways.count; i++) {
    tsr__way *way = &p->ways.items[i];
    if (!leanest || way->survey.floor_bytes < leanest->survey.floor_bytes) leanest = way;
  }
  int status = leanest ? try_way(p, leanest, budget, found, least, error) : 0;
  return status || !leanest || found->root ? status : find_least(p, leanest, least, error);
}

/* A way is left out only if its bound is no less than the time of what was found, or infinite. */
static int search(tsr_planning *p, uint64_t budget, best *found, best *least, tsr_error *error) {
  int status = p->has_ways ? 0 : tsr__planner_list_ways(p, error);
  if (p->as_is.is_possible && p->as_is.reserved_bytes <= budget) *found = (best){p->base, p->as_is};
  for (size_t i = 0; status == 0 && i < p->ways.count; i++) {
    tsr__way *way = &p->ways.items[i];
    double limit = found->cost.step_seconds * (1 + WAY_ERROR);
    way->is_tried = false;
    if (found->root && way->step_s > limit) continue;
    status = tsr__planner_survey_way(p, way, error);
    if (status) return status;
    double least_s = tsr__planner_bound(way, budget);
    bool is_left_out = isinf(least_s) || (found->root && least_s > limit);
    way->is_tried = !is_left_out;
    if (way->is_tried) status = try_way(p, way, budget, found, least, error);
  }
  if (status == 0 && !found->root) status = find_least(p, NULL, least, error);
  if (status || found->root || least->root) return status;
  return try_leanest(p, budget, found, least, error);
}

/* Take back what changes nothing: neither time nor what is reserved. Then the answer's figures are those of the best
 * candidate, which with less memory takes no less time and no more memory. */
static int simplify(tsr_planning *p, json_t *root, tsr_run_plan_cost *cost, tsr_error *error) {
  const char *key;
  json_t *value;
  void *next;
  json_object_foreach_safe(root, next, key, value) {
    tsr_run_plan_cost without;
    if (json_object_get(p->base, key)) continue;
    json_t *fewer = json_copy(root);
    if (!fewer) return tsr__fail_memory(error);
    (void)json_object_del(fewer, key);
    int status = tsr__planner_measure(p, fewer, &without, error);
    json_decref(fewer);
    if (status) return status;
    bool is_same = without.is_possible && without.reserved_bytes == cost->reserved_bytes &&
                   without.peak_bytes == cost->peak_bytes &&
                   fabs(without.step_seconds - cost->step_seconds) <= cost->step_seconds * 1e-12;
    if (!is_same) continue;
    *cost = without; /* but for rounding */
    (void)json_object_del(root, key);
  }
  return 0;
}

static void bound_by(const tsr__way *way, tsr_planned *out) {
  double seconds = way->is_surveyed ? tsr__planner_bound(way, out->budget_bytes) : way->step_s;
  if (seconds < out->bound_seconds) out->bound_seconds = seconds;
  if (way->is_surveyed && way->survey.floor_bytes < out->bound_bytes)
    out->bound_bytes = way->survey.floor_bytes;
}

/* Bounds over all ways. Those that were left out are slower than what was found: their time is a bound. */
static int bound(tsr_planning *p, tsr_planned *out, tsr_error *error) {
  tsr__way other;
  const tsr__way *own;
  out->bound_seconds = INFINITY;
  out->bound_bytes = UINT64_MAX;
  int status = tsr__planner_own_way(p, out->plan, &own, &other, error);
  if (status) return status;
  for (size_t i = 0; i < p->ways.count; i++) {
    bool must = out->verdict == TSR_PLANNING_DOES_NOT_FIT;
    status = must ? tsr__planner_survey_way(p, &p->ways.items[i], error) : 0;
    if (status) break;
    bound_by(&p->ways.items[i], out);
  }
  if (status == 0 && own) bound_by(own, out);
  tsr__way_release(&other);
  out->is_proved = isinf(out->bound_seconds);
  assert(status || !out->is_proved || out->verdict == TSR_PLANNING_DOES_NOT_FIT);
  return status;
}

/* The plan to print: what was found without what is not needed, or what takes least. */
static int choose(tsr_planning *p, const best *found, const best *least, tsr_planned *out,
                  tsr_error *error) {
  const best *from = found->root ? found : least;
  json_t *root = json_deep_copy(from->root ? from->root : p->base);
  if (!root) return tsr__fail_memory(error);
  int status = 0;
  out->with = from->root ? from->cost : p->as_is; /* nothing at all could be tried */
  if (found->root) status = simplify(p, root, &out->with, error);
  if (status == 0) status = tsr__planner_parse(root, &out->plan, error);
  if (status == 0) status = tsr__planner_list_changes(p, root, out, error);
  json_decref(root);
  return status;
}

int tsr_planning_solve(tsr_planning *p, uint64_t budget, tsr_planned *out, tsr_error *error) {
  best found = {NULL, {0}}, least = {NULL, {0}};
  tsr_planned planned = {.verdict = TSR_PLANNING_FITS, .budget_bytes = budget, .as_is = p->as_is};
  bool fits = p->as_is.is_possible && p->as_is.reserved_bytes <= budget;
  (void)snprintf(planned.refusal, sizeof planned.refusal, "%s", p->refusal);
  int status = search(p, budget, &found, &least, error);
  if (!fits)
    planned.verdict = found.root ? TSR_PLANNING_FITS_WITH_CHANGES : TSR_PLANNING_DOES_NOT_FIT;
  if (status == 0) status = choose(p, &found, &least, &planned, error);
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
