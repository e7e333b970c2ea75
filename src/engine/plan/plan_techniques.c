/* plan_techniques.c - tsr_plan_techniques: every technique for one model, alone and one after another.
 *
 * A technique is a few keys of a plan file, laid over the plan that was given. The order is the one to try them in:
 * what costs nothing first, then what costs a little. */
#include <assert.h>
#include <jansson.h>
#include <string.h>

#include "base/error.h"
#include "tessera/unstable/plans.h"

static const struct {
  const char *name, *choice;
  bool is_free;
  bool needs_ranks; /* two at least */
} techniques[] = {
    {"GELU as one kernel", "{\"gelu\":\"fused\"}", true, false},
    {"no key-value cache", "{\"no_kv_cache\":true}", true, false},
    {"fused attention kernel", "{\"attention\":\"sdpa\"}", true, false},
    {"loss of 512 tokens at a time", "{\"loss\":\"chunked:512\"}", true, false},
    {"fused optimizer", "{\"optimizer\":\"adamw-fused\"}", true, false},
    {"ZeRO stage 1", "{\"zero\":1}", true, true},
    {"ZeRO stage 2", "{\"zero\":2}", true, true},
    {"bf16 under autocast", "{\"dtype\":\"autocast-bf16\"}", true, false},
    {"bf16 weights, too", "{\"dtype\":\"bf16\"}", true, false},
    {"sums in place", "{\"in_place\":\"add\"}", true, false},
    {"ZeRO stage 3", "{\"zero\":3}", false, true},
    {"one sequence at a time", "{\"micro_batch\":1}", false, false},
    {"attention computed again", "{\"checkpoint\":\"selective\"}", false, false},
    {"optimizer state on the host", "{\"offload\":\"optimizer\"}", false, false},
    {"blocks computed again", "{\"checkpoint\":\"full\"}", false, false},
    {"and gradients on the host", "{\"offload\":\"optimizer,gradients\"}", false, false},
    {"and parameters on the host", "{\"offload\":\"optimizer,gradients,parameters\"}", false,
     false},
};
enum { COUNT = sizeof techniques / sizeof *techniques };
static_assert(COUNT <= TSR_TECHNIQUES, "all of them fit");

enum { PLAN_BYTES = 64 * 1024 };

/* Simulate the plan that `root` describes. */
static int measure(const json_t *root, const tsr_model *model, const tsr_simulate_options *how,
                   tsr_run_plan_cost *out, tsr_error *error) {
  tsr_run_plan *plan = NULL;
  char text[PLAN_BYTES];
  assert(json_is_object(root));
  size_t size = json_dumpb(root, text, sizeof text, JSON_COMPACT);
  *out = (tsr_run_plan_cost){.is_possible = false};
  if (size > sizeof text)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "a plan of more than %d bytes is not explained", PLAN_BYTES);
  if (!size) return tsr__fail_memory(error);
  int status = tsr_run_plan_parse(text, size, &plan, error);
  if (status == 0) status = tsr_run_plan_measure(plan, model, how, out, error);
  tsr_run_plan_free(plan);
  return status;
}

/* A technique that does not suit the model, or the others, has no figures. */
static int try(const json_t *root, const tsr_model *model, const tsr_simulate_options *how,
               tsr_run_plan_cost *out, tsr_error *error) {
  int status = measure(root, model, how, out, error);
  return status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED ? 0 : status;
}

static int add(json_t *root, const char *choice, tsr_error *error) {
  json_t *keys = json_loads(choice, 0, NULL);
  bool ok = keys && json_object_update(root, keys) == 0;
  json_decref(keys);
  return ok ? 0 : tsr__fail_memory(error);
}

static int explain(const json_t *base, json_t *all, const tsr_model *model,
                   const tsr_simulate_options *how, tsr_technique *t, tsr_error *error) {
  json_t *one = json_deep_copy(base), *more = json_copy(all);
  int status = one && more ? 0 : tsr__fail_memory(error);
  if (status == 0) status = add(one, t->choice, error);
  if (status == 0) status = add(more, t->choice, error);
  if (status == 0) status = try(one, model, how, &t->alone, error);
  if (status == 0) status = try(more, model, how, &t->so_far, error);
  if (status == 0 && t->so_far.is_possible) status = add(all, t->choice, error);
  json_decref(one);
  json_decref(more);
  return status;
}

int tsr_plan_techniques(const tsr_run_plan *plan, const tsr_model *model,
                        const tsr_simulate_options *options, tsr_techniques *out,
                        tsr_error *error) {
  tsr_techniques found = {.count = 0};
  json_t *base = json_loads(plan ? tsr_run_plan_text(plan) : "{\"version\":1}", 0, NULL);
  json_t *all = json_copy(base);
  int status =
      base && all ? measure(base, model, options, &found.without, error) : tsr__fail_memory(error);
  bool has_ranks = json_integer_value(json_object_get(base, "ranks")) > 1;
  for (size_t i = 0; status == 0 && i < COUNT; i++) {
    if (techniques[i].needs_ranks && !has_ranks) continue;
    tsr_technique *t = &found.items[found.count++];
    *t = (tsr_technique){.name = techniques[i].name,
                         .choice = techniques[i].choice,
                         .is_free = techniques[i].is_free};
    status = explain(base, all, model, options, t, error);
  }
  json_decref(base);
  json_decref(all);
  tsr_gpu gpu;
  found.gpu_title = options->rates ? "machine of --rates" : "";
  for (size_t i = 0; options->gpu && !options->rates && tsr_gpu_at(i, &gpu); i++)
    if (strcmp(gpu.name, options->gpu) == 0) found.gpu_title = gpu.title;
  if (status == 0) *out = found;
  return status;
}
