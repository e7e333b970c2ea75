/* ways.c - ways to run a model, before any block is run again: what is free first, then all combinations of what is
 * not. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "planner/planner.h"

/* What is taken for granted if it costs no time. Of two for one key, the second is tried if the first was not taken. */
static const struct {
  const char *key, *keys;
  unsigned allow;
} savings[] = {
    {"gelu", "{\"gelu\":\"fused\"}", TSR_ALLOW_KERNELS},
    {"no_kv_cache", "{\"no_kv_cache\":true}", TSR_ALLOW_KERNELS},
    {"attention", "{\"attention\":\"sdpa\"}", TSR_ALLOW_KERNELS},
    {"optimizer", "{\"optimizer\":\"adamw-fused\"}", TSR_ALLOW_KERNELS},
    {"loss", "{\"loss\":\"chunked:512\"}", TSR_ALLOW_LOSS_CHUNK},
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
  if (!with->is_possible || with->step_seconds > without->step_seconds * 1.0005) return false;
  return with->peak_bytes <= without->peak_bytes + without->peak_bytes / 1000 ||
         with->step_seconds < without->step_seconds * 0.9995;
}

static int save_for_free(tsr_planning *p, tsr_error *error) {
  tsr_run_plan_cost cost = p->as_is, with;
  p->free = json_deep_copy(p->base);
  if (!p->free) return tsr__fail_memory(error);
  for (size_t i = 0; i < sizeof savings / sizeof *savings; i++) {
    if (!(p->allow & savings[i].allow) || !may_replace(p->free, savings[i].key)) continue;
    json_t *root = tsr__planner_with(p->free, savings[i].keys);
    int status = root ? tsr__planner_measure(p, root, &with, error) : tsr__fail_memory(error);
    if (status == 0 && is_saving(&with, &cost)) {
      json_t *before = p->free;
      p->free = root;
      root = before;
      cost = with;
    }
    json_decref(root);
    if (status) return status;
  }
  return 0;
}

/* ---- combinations ---- */

static bool is_turing(const tsr_planning *p) {
  return p->how.gpu && (strcmp(p->how.gpu, "t4") == 0 || strcmp(p->how.gpu, "v100") == 0);
}

enum { CHOICES = 10, KEYS_BYTES = 80, DIMENSIONS = 5 };

/* One thing to decide, and its choices: keys that are laid over a plan. The first choice changes nothing. */
typedef struct dimension {
  char keys[CHOICES][KEYS_BYTES];
  size_t count;
} dimension;

static void choose(dimension *d, const char *keys) {
  assert(d->count < CHOICES);
  (void)snprintf(d->keys[d->count++], KEYS_BYTES, "%s", keys);
}

/* Halves, as long as that goes, and single sequences. */
static void list_micro_batches(const tsr_planning *p, dimension *d) {
  char keys[KEYS_BYTES];
  uint64_t batch = p->how.batch ? p->how.batch : 1;
  bool may = p->allow & TSR_ALLOW_ACCUMULATE && !json_object_get(p->base, "micro_batch") &&
             !json_object_get(p->base, "backward");
  for (uint64_t parts = 2; may && parts <= batch && d->count < CHOICES - 1; parts *= 2) {
    if (batch % parts) break;
    (void)snprintf(keys, sizeof keys, "{\"micro_batch\":%llu}",
                   (unsigned long long)(batch / parts));
    choose(d, keys);
  }
  if (may && batch > 1 && (batch & (batch - 1))) choose(d, "{\"micro_batch\":1}");
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

static void list_dimensions(const tsr_planning *p, dimension d[DIMENSIONS]) {
  bool has_loss = json_object_get(p->base, "loss"), has_dtype = json_object_get(p->base, "dtype");
  for (size_t i = 0; i < DIMENSIONS; i++) choose(&d[i], "{}");
  list_micro_batches(p, &d[0]);
  list_offloads(p, &d[1]);
  if (p->allow & TSR_ALLOW_LOSS_CHUNK && !has_loss) {
    if (!json_object_get(p->free, "loss")) choose(&d[2], "{\"loss\":\"chunked:512\"}");
    choose(&d[2], "{\"loss\":\"chunked:128\"}");
  }
  if (p->allow & TSR_ALLOW_IN_BACKWARD && !json_object_get(p->base, "optimizer_in_backward"))
    choose(&d[3], "{\"optimizer_in_backward\":true}");
  if (!(p->allow & TSR_ALLOW_PRECISION) || has_dtype) return;
  choose(&d[4], is_turing(p) ? "{\"dtype\":\"autocast-fp16\"}" : "{\"dtype\":\"autocast-bf16\"}");
  if (!is_turing(p)) choose(&d[4], "{\"dtype\":\"bf16\"}");
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

/* What the way takes if all is kept. */
static int estimate(const tsr_planning *p, tsr__way *way, bool *is_possible, tsr_error *error) {
  tsr__survey two, three;
  int status = tsr__planner_survey(p, way->root, 2, 0, &two, is_possible, error);
  if (status || !*is_possible) return status;
  status = tsr__planner_survey(p, way->root, 3, 0, &three, is_possible, error);
  if (status == 0 && *is_possible) {
    way->kernels_s = extend(kernels_of(&two.cost), kernels_of(&three.cost), p->model->layers);
    way->copies_s = extend(two.cost.copies_s, three.cost.copies_s, p->model->layers);
    way->step_s = fmax(way->kernels_s, way->copies_s);
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

/* Takes `root` over. */
static int add_way(tsr_planning *p, json_t *root, tsr_error *error) {
  tsr__way way = {.root = root};
  bool is_possible = false;
  if (!root) return tsr__fail_memory(error);
  if (p->allow & TSR_ALLOW_RECOMPUTE) {
    (void)json_object_del(root, "checkpoint");
    (void)json_object_del(root, "blocks");
  }
  int status = estimate(p, &way, &is_possible, error);
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

/* The plan of one choice in each dimension. */
static json_t *combine(const tsr_planning *p, const dimension *d, const size_t *at) {
  assert(p->free);
  json_t *root = json_deep_copy(p->free);
  for (size_t i = 0; root && i < DIMENSIONS; i++) {
    json_t *with = tsr__planner_with(root, d[i].keys[at[i]]);
    json_decref(root);
    root = with;
  }
  return root;
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
  tsr__way way = {.root = json_deep_copy(p->base)};
  p->free = json_deep_copy(p->base);
  if (way.root && p->allow & TSR_ALLOW_RECOMPUTE) (void)json_object_del(way.root, "checkpoint");
  if (way.root && p->allow & TSR_ALLOW_OFFLOAD) (void)json_object_del(way.root, "offload");
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
  do status = add_way(p, combine(p, d, at), error);
  while (status == 0 && advance(d, at));
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
  way->step_s = way->survey.cost.step_s;
  return 0;
}

/* What is copied for backward need not be: such copies bound nothing. */
static bool copies_activations(const tsr__way *way) {
  const char *offload = json_string_value(json_object_get(way->root, "offload"));
  return offload && strstr(offload, "activations");
}

double tsr__planner_bound(const tsr__way *way, uint64_t budget_bytes) {
  assert(way->is_surveyed);
  double extra = tsr__survey_extra(&way->survey, budget_bytes);
  if (extra < 0) return INFINITY;
  if (copies_activations(way)) return way->kernels_s;
  return fmax(way->kernels_s + extra, way->copies_s);
}
