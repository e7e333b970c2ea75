/* ways.c - ways to run a model before any block is recomputed: first the savings that cost no time, then all
 * combinations of the others. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "plan/planner.h"

/* Savings that are always applied if they cost no time. Of two for the same key, the second is tried if the first was
 * not applied. */
static const struct {
  const char *key, *keys;
  unsigned allow;
  uint64_t most_tokens; /* of a batch, for which the next is the same */
} savings[] = {
    {"gelu", "{\"gelu\":\"fused\"}", TSR_ALLOW_KERNELS, 0},
    {"no_kv_cache", "{\"no_kv_cache\":true}", TSR_ALLOW_KERNELS, 0},
    {"attention", "{\"attention\":\"sdpa\"}", TSR_ALLOW_KERNELS, 0},
    {"optimizer", "{\"optimizer\":\"adamw-fused\"}", TSR_ALLOW_KERNELS, 0},
    {"loss", "{\"loss\":\"chunked:2048\"}", TSR_ALLOW_LOSS_CHUNK, 512},
    {"loss", "{\"loss\":\"chunked:512\"}", TSR_ALLOW_LOSS_CHUNK, 0},
    {"in_place", "{\"in_place\":\"add,dropout\"}", TSR_ALLOW_KERNELS, 0},
    {"in_place", "{\"in_place\":\"add\"}", TSR_ALLOW_KERNELS, 0},
    {"in_place", "{\"in_place\":\"dropout\"}", TSR_ALLOW_KERNELS, 0},
};

/* "sgd" is no adamw, and "flash" is what somebody wanted. */
static bool may_replace(const json_t *root, const char *key) {
  const char *word = json_string_value(json_object_get(root, key));
  if (strcmp(key, "attention") == 0) return word && strcmp(word, "eager") == 0;
  if (strcmp(key, "optimizer") == 0) return !word || strncmp(word, "adamw", 5) == 0;
  return !json_object_get(root, key);
}

/* No slower, and no larger unless it is faster. What saves nothing at the peak as it is may do so once the peak is
 * elsewhere, so it counts as well, even if blocks at other places make the peak a little larger. */
static bool is_saving(const tsr_run_plan_cost *with, const tsr_run_plan_cost *without) {
  if (!with->is_possible || with->step_seconds > without->step_seconds * (1 + 1e-9)) return false;
  return with->peak_bytes <= without->peak_bytes + without->peak_bytes / 1000 ||
         with->step_seconds < without->step_seconds * 0.9995;
}

/* What a plan takes, with the precision that makes it possible. */
static int measure_resolved(tsr_planning *p, const json_t *root, tsr_run_plan_cost *out,
                            tsr_error *error) {
  json_t *resolved = tsr__planner_with(root, p->resolve);
  int status = resolved ? tsr__planner_measure(p, resolved, out, error) : tsr__fail_memory(error);
  json_decref(resolved);
  return status;
}

/* For the certificate: {"keys": ..., "peak_allocated_bytes": ..., "step_time_us": ...}, null if not possible. */
static int note_saving(tsr_planning *p, const char *keys, const tsr_run_plan_cost *cost,
                       tsr_error *error) {
  json_t *peak = cost->is_possible ? json_integer((json_int_t)cost->peak_bytes) : json_null();
  json_t *time = cost->is_possible ? json_real(cost->step_seconds * 1e6) : json_null();
  json_t *row = json_pack("{s:o,s:o,s:o}", "keys", json_loads(keys, 0, NULL),
                          "peak_allocated_bytes", peak, "step_time_us", time);
  return row && json_array_append_new(p->savings, row) == 0 ? 0 : tsr__fail_memory(error);
}

static uint64_t tokens_of(const tsr_planning *p) {
  return tsr__product_u64(p->how.batch ? p->how.batch : 1, p->how.sequence ? p->how.sequence : 1);
}

/* Where an op writes is part of the program: not changed for nothing. */
static bool is_worth_it(const char *key, const tsr_run_plan_cost *with,
                        const tsr_run_plan_cost *without) {
  bool is_much = with->peak_bytes < without->peak_bytes - without->peak_bytes / 100;
  return is_saving(with, without) && (strcmp(key, "in_place") != 0 || is_much);
}

static int save_for_free(tsr_planning *p, tsr_error *error) {
  tsr_run_plan_cost cost, with;
  p->free = json_deep_copy(p->base);
  int status = p->free ? measure_resolved(p, p->free, &cost, error) : tsr__fail_memory(error);
  if (status == 0) status = note_saving(p, "{}", &cost, error);
  for (size_t i = 0; status == 0 && i < sizeof savings / sizeof *savings; i++) {
    if (!(p->allow & savings[i].allow) || !may_replace(p->free, savings[i].key)) continue;
    if (savings[i].most_tokens && tokens_of(p) <= savings[i].most_tokens) continue;
    json_t *root = tsr__planner_with(p->free, savings[i].keys);
    status = root ? measure_resolved(p, root, &with, error) : tsr__fail_memory(error);
    if (status == 0) status = note_saving(p, savings[i].keys, &with, error);
    if (status == 0 && is_worth_it(savings[i].key, &with, &cost)) {
      json_t *before = p->free;
      p->free = root;
      root = before;
      cost = with;
    }
    json_decref(root);
  }
  return status;
}

/* ---- combinations ---- */

static bool is_turing(const tsr_planning *p) {
  return p->how.gpu && (strcmp(p->how.gpu, "t4") == 0 || strcmp(p->how.gpu, "v100") == 0);
}

/* A T4 has no tensor cores for bf16. There, fp16 with fp32 masters has its loss scaled, and autocast, too. */
const char *tsr__planner_precision(const tsr_planning *p, size_t index) {
  static const char *const turing[] = {NULL, "{\"dtype\":\"autocast-fp16\"}",
                                       "{\"dtype\":\"fp16\",\"master_weights\":true}"};
  static const char *const other[] = {NULL, "{\"dtype\":\"autocast-bf16\"}",
                                      "{\"dtype\":\"bf16\"}"};
  bool may = p->allow & TSR_ALLOW_PRECISION && !json_object_get(p->base, "dtype");
  if (!may || index >= sizeof other / sizeof *other) return NULL;
  return is_turing(p) ? turing[index] : other[index];
}

enum { CHOICES = 10, KEYS_BYTES = 80, DIMENSIONS = 7 };

/* One thing to decide, and its choices: keys that are laid over a plan. The first choice changes nothing. */
typedef struct dimension {
  char keys[CHOICES][KEYS_BYTES];
  size_t count;
} dimension;

static void choose(dimension *d, const char *keys) {
  assert(d->count < CHOICES);
  (void)snprintf(d->keys[d->count++], KEYS_BYTES, "%s", keys);
}

/* Halves of the batch, halves of these and so on, and single sequences. A step of more parts may be too long to be
 * planned. */
enum { MOST_PARTS = 256 };

static void list_micro_batches(const tsr_planning *p, dimension *d) {
  char keys[KEYS_BYTES];
  uint64_t batch = p->how.batch ? p->how.batch : 1;
  bool may = p->allow & TSR_ALLOW_ACCUMULATE && !json_object_get(p->base, "micro_batch") &&
             !json_object_get(p->base, "backward");
  for (uint64_t parts = 2; may && parts <= batch && parts <= MOST_PARTS; parts *= 2) {
    if (batch % parts) break;
    (void)snprintf(keys, sizeof keys, "{\"micro_batch\":%llu}",
                   (unsigned long long)(batch / parts));
    choose(d, keys);
  }
  if (may && batch > 1 && batch <= MOST_PARTS && (batch & (batch - 1)))
    choose(d, "{\"micro_batch\":1}");
}

static void list_offloads(const tsr_planning *p, dimension *d) {
  if (!(p->allow & TSR_ALLOW_OFFLOAD) || json_object_get(p->base, "offload")) return;
  choose(d, "{\"offload\":\"activations\"}");
  choose(d, "{\"offload\":\"optimizer\"}");
  choose(d, "{\"offload\":\"optimizer,activations\"}");
  choose(d, "{\"offload\":\"optimizer,gradients\"}");
  choose(d, "{\"offload\":\"optimizer,gradients,activations\"}");
  choose(d, "{\"offload\":\"optimizer,gradients,parameters\"}");
  choose(d, "{\"offload\":\"optimizer,gradients,parameters,activations\"}");
}

/* What ranks keep a part of. One alone keeps all. */
static void list_stages(const tsr_planning *p, dimension *d) {
  bool may = p->allow & TSR_ALLOW_ZERO && !json_object_get(p->base, "zero");
  if (!may || json_integer_value(json_object_get(p->base, "ranks")) < 2) return;
  choose(d, "{\"zero\":1}");
  choose(d, "{\"zero\":2}");
  choose(d, "{\"zero\":3}");
}

/* Choices of the plan to begin with are kept, unless others may be made for what is computed again. */
static bool may_narrow(const tsr_planning *p) {
  bool has_choices = json_object_get(p->base, "blocks") || json_object_get(p->base, "checkpoint");
  return p->allow & TSR_ALLOW_NARROW && (p->allow & TSR_ALLOW_RECOMPUTE || !has_choices);
}

static void list_dimensions(const tsr_planning *p, dimension d[DIMENSIONS]) {
  bool has_loss = json_object_get(p->base, "loss");
  for (size_t i = 0; i < DIMENSIONS; i++) choose(&d[i], "{}");
  list_micro_batches(p, &d[0]);
  list_offloads(p, &d[1]);
  if (p->allow & TSR_ALLOW_LOSS_CHUNK && !has_loss) {
    choose(&d[2], "{\"loss\":\"chunked:512\"}");
    if (tokens_of(p) > 128) choose(&d[2], "{\"loss\":\"chunked:128\"}");
  }
  bool has_ranks = json_object_get(p->base, "ranks"); /* their gradients are summed first */
  if (p->allow & TSR_ALLOW_IN_BACKWARD && !has_ranks &&
      !json_object_get(p->base, "optimizer_in_backward"))
    choose(&d[3], "{\"optimizer_in_backward\":true}");
  for (size_t i = 1; tsr__planner_precision(p, i); i++) choose(&d[4], tsr__planner_precision(p, i));
  if (may_narrow(p)) choose(&d[5], "{\"narrow\":true}");
  list_stages(p, &d[6]);
}

/* Time is a sum over blocks, so that of few of them tells that of all. */
static double extend(double two, double three, uint64_t layers) {
  return two + (three - two) * ((double)layers - 2);
}

static double kernels_of(const tsr__cost *cost) {
  double sum = 0;
  for (size_t i = 0; i < TSR__TAPE_PHASE_COUNT; i++) sum += cost->phase_s[i];
  return sum;
}

/* A tensor that is recomputed need not be copied for backward, so such copies are no part of the bound. */
bool tsr__way_copies_activations(const tsr__way *way) {
  const char *offload = json_string_value(json_object_get(way->root, "offload"));
  return offload && strstr(offload, "activations");
}

/* Computing more may hide what ranks send, but never ends a step sooner. */
double tsr__planner_step(const tsr__way *way, double kernels_s) {
  assert(kernels_s >= 0 && way->copies_s >= 0 && way->waited_s >= 0);
  double copies_s = tsr__way_copies_activations(way) ? 0 : way->copies_s;
  double step_s = tsr__cost_step(kernels_s, copies_s, way->exposed) + way->waited_s;
  return fmax(step_s, way->links_s);
}

/* Of two and three blocks: the link's own time is a sum over blocks; what kernels wait for in between is not. */
static void extend_cost(tsr__way *way, const tsr__cost *two, const tsr__cost *three,
                        uint64_t layers) {
  way->kernels_s = extend(kernels_of(two), kernels_of(three), layers);
  way->copies_s = extend(two->copies_s, three->copies_s, layers);
  way->waited_s = extend(two->waited_s, three->waited_s, layers);
  way->links_s = extend(two->links_s, three->links_s, layers);
  way->exposed = two->exposed;
  way->step_s = tsr__planner_step(way, way->kernels_s);
}

/* What the way takes if all is kept. `why` says why it is not possible. */
static int estimate(const tsr_planning *p, tsr__way *way, bool *is_possible, tsr_error *why) {
  tsr__survey two, three;
  int status = tsr__planner_survey(p, way->root, 2, 0, &two, is_possible, why);
  if (status || !*is_possible) return status;
  status = tsr__planner_survey(p, way->root, 3, 0, &three, is_possible, why);
  if (status == 0 && *is_possible) {
    extend_cost(way, &two.cost, &three.cost, p->model->layers);
    tsr__survey_release(&three);
  }
  tsr__survey_release(&two);
  return status;
}

void tsr__way_release(tsr__way *way) {
  json_decref(way->root);
  if (way->is_surveyed) tsr__survey_release(&way->survey);
  for (size_t i = 0; i < way->candidates.count; i++) json_decref(way->candidates.items[i].root);
  TSR__VECTOR_FREE(&way->candidates);
}

/* The plan without choices for blocks that the planner makes, in its canonical form: a way's. */
static json_t *way_root(const tsr_planning *p, const json_t *plan, tsr_error *error) {
  json_t *root = json_deep_copy(plan), *canonical = NULL;
  tsr_run_plan *parsed = NULL;
  if (root && (p->allow & TSR_ALLOW_RECOMPUTE || may_narrow(p))) {
    (void)json_object_del(root, "checkpoint");
    (void)json_object_del(root, "blocks");
  }
  bool is_traced = tsr_model_is_traced(p->model); /* its modules are offloaded one by one */
  if (root && is_traced && p->allow & TSR_ALLOW_OFFLOAD) (void)json_object_del(root, "offload");
  int status = root ? tsr__planner_parse(root, &parsed, error) : tsr__fail_memory(error);
  if (status == 0) canonical = json_loads(tsr_run_plan_text(parsed), 0, NULL);
  tsr_run_plan_free(parsed);
  json_decref(root);
  return canonical;
}

static const tsr__way *find_way(const tsr_planning *p, const json_t *root, bool narrows) {
  assert(json_is_object(root));
  for (size_t i = 0; i < p->ways.count; i++)
    if (p->ways.items[i].narrows == narrows && json_equal(p->ways.items[i].root, root))
      return &p->ways.items[i];
  return NULL;
}

static int refuse_way(tsr_planning *p, const tsr__way *way, const tsr_error *why,
                      tsr_error *error) {
  const char *reason = *why->message ? why->message : "the model or another choice excludes it";
  json_t *row =
      json_pack("{s:O,s:b,s:s}", "plan", way->root, "narrows", way->narrows, "reason", reason);
  return row && json_array_append_new(p->refused, row) == 0 ? 0 : tsr__fail_memory(error);
}

/* Of two that are the same, one. */
static int add_way(tsr_planning *p, const json_t *plan, bool narrows, tsr_error *error) {
  tsr__way way = {.root = plan ? way_root(p, plan, error) : NULL, .narrows = narrows};
  tsr_error why = {.status = TSR_OK};
  bool is_possible = false;
  if (!way.root) return tsr__fail_memory(error);
  bool is_new = !find_way(p, way.root, narrows);
  const tsr__way *wide = narrows ? find_way(p, way.root, false) : NULL;
  int status = 0;
  if (wide && is_new) { /* it keeps all, too */
    is_possible = true;
    way.kernels_s = wide->kernels_s;
    way.copies_s = wide->copies_s;
    way.waited_s = wide->waited_s;
    way.links_s = wide->links_s;
    way.exposed = wide->exposed;
    way.step_s = wide->step_s;
  } else if (is_new) {
    status = estimate(p, &way, &is_possible, &why);
  }
  if (status && error) *error = why;
  if (status == 0 && is_new && !is_possible) status = refuse_way(p, &way, &why, error);
  bool is_kept = status == 0 && is_possible && TSR__VECTOR_PUSH(&p->ways, way);
  if (status == 0 && is_possible && !is_kept) status = tsr__fail_memory(error);
  if (!is_kept) tsr__way_release(&way);
  return status;
}

/* Ways of equal time in the order in which they were made: the simpler first. */
static int compare_ways(const void *left, const void *right) {
  const tsr__way *a = left, *b = right;
  if (a->step_s < b->step_s || a->step_s > b->step_s) return a->step_s < b->step_s ? -1 : 1;
  return (int)json_object_size(a->root) - (int)json_object_size(b->root);
}

/* The plan of one choice in each dimension. "narrow" is no key of plans. */
static int add_combination(tsr_planning *p, const dimension *d, const size_t *at,
                           tsr_error *error) {
  assert(p->free);
  json_t *root = json_deep_copy(p->free);
  for (size_t i = 0; root && i < DIMENSIONS; i++) {
    json_t *with = tsr__planner_with(root, d[i].keys[at[i]]);
    json_decref(root);
    root = with;
  }
  bool narrows = root && json_object_del(root, "narrow") == 0;
  /* Under autocast, sums have another type than what they add to. */
  const char *dtype = json_string_value(json_object_get(root, "dtype"));
  bool is_autocast = dtype && strncmp(dtype, "autocast", 8) == 0;
  if (is_autocast && !json_object_get(p->base, "in_place")) (void)json_object_del(root, "in_place");
  int status = root ? add_way(p, root, narrows, error) : tsr__fail_memory(error);
  json_decref(root);
  return status;
}

/* Count up; false after the last combination. */
static bool advance(const dimension *d, size_t *at) {
  for (size_t i = 0; i < DIMENSIONS; i++) {
    if (++at[i] < d[i].count) return true;
    at[i] = 0;
  }
  return false;
}

/* A step graph has its program's types and kernels: one way, in which each module may keep what it likes. */
static int list_traced(tsr_planning *p, tsr_error *error) {
  tsr__way way = {.root = way_root(p, p->base, error)};
  p->free = json_deep_copy(p->base);
  int status = way.root && p->free ? 0 : tsr__fail_memory(error);
  if (status == 0) status = tsr__planner_survey_way(p, &way, error);
  bool is_kept = status == 0 && TSR__VECTOR_PUSH(&p->ways, way);
  if (status == 0 && !is_kept) status = tsr__fail_memory(error);
  if (!is_kept) tsr__way_release(&way);
  p->has_ways = status == 0;
  return status;
}

int tsr__planner_list_ways(tsr_planning *p, tsr_error *error) {
  if (tsr_model_is_traced(p->model)) return list_traced(p, error);
  dimension d[DIMENSIONS] = {{{{0}}, 0}};
  size_t at[DIMENSIONS] = {0};
  int status = save_for_free(p, error);
  if (status) return status;
  list_dimensions(p, d);
  do status = add_combination(p, d, at, error);
  while (status == 0 && advance(d, at));
  if (status == 0) status = add_way(p, p->base, false, error);
  if (status) return status;
  if (p->ways.count) qsort(p->ways.items, p->ways.count, sizeof *p->ways.items, compare_ways);
  p->has_ways = true;
  return 0;
}

/* ---- bounds ---- */

int tsr__planner_survey_way(const tsr_planning *p, tsr__way *way, tsr_error *error) {
  if (way->is_surveyed) return 0;
  int status = tsr__planner_survey(p, way->root, 0, 0, &way->survey, &way->is_surveyed, error);
  if (status == 0 && !way->is_surveyed) /* smaller ones were possible, or it is the base */
    status = tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                       "a step of this model is too long to be planned");
  if (status) return status;
  assert(way->survey.floor_bytes <= way->survey.most_bytes);
  way->kernels_s = kernels_of(&way->survey.cost);
  way->copies_s = way->survey.cost.copies_s;
  way->exposed = way->survey.cost.exposed;
  way->waited_s = way->survey.cost.waited_s;
  way->links_s = way->survey.cost.links_s > 0 ? way->kernels_s + way->survey.cost.stalls_s : 0;
  way->step_s = tsr__planner_step(way, way->kernels_s);
  return 0;
}

double tsr__planner_bound(const tsr__way *way, uint64_t budget_bytes) {
  assert(way->is_surveyed);
  double extra = tsr__survey_extra(&way->survey, budget_bytes);
  if (extra < 0) return INFINITY;
  /* A tensor on the host, or in fewer bits, is not made again. */
  if (tsr__way_copies_activations(way) || way->narrows) extra = 0;
  return tsr__planner_step(way, way->kernels_s + extra);
}

int tsr__planner_own_way(tsr_planning *p, const tsr_run_plan *plan, const tsr__way **out,
                         tsr__way *other, tsr_error *error) {
  json_t *text = json_loads(tsr_run_plan_text(plan), 0, NULL);
  *other = (tsr__way){.root = text ? way_root(p, text, error) : NULL};
  json_decref(text);
  *out = NULL;
  if (!other->root) return tsr__fail_memory(error);
  *out = find_way(p, other->root, false);
  if (*out) return 0;
  if (!p->as_is.is_possible && json_object_get(other->root, "dtype") == NULL) return 0;
  int status = tsr__planner_survey_way(p, other, error);
  if (status) tsr__way_release(other);
  if (status == 0) *out = other;
  return status;
}
