/* explain.c - what a plan takes, what each of its choices does, and what each technique would do for a model. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "exec/build.h"
#include "exec/card.h"
#include "exec/measure.h"
#include "plan/planner.h"

int tsr__plan_measure(const tsr_run_plan *plan, const tsr_model *model,
                      const tsr_simulate_options *options, tsr__measure_limit *limit,
                      tsr_run_plan_cost *out, tsr_error *error) {
  tsr_simulate_options own = *options;
  tsr_run_plan_options(plan, &own);
  return tsr__measure(model, &own, limit, out, error);
}

int tsr_run_plan_measure(const tsr_run_plan *plan, const tsr_model *model,
                         const tsr_simulate_options *options, tsr_run_plan_cost *out,
                         tsr_error *error) {
  return tsr__plan_measure(plan, model, options, NULL, out, error);
}

/* What plans are measured for. */
typedef struct subject {
  const tsr_model *model;
  const tsr_simulate_options *how;
} subject;

/* A choice that does not suit the model, cannot stand alone, or makes a step too long to be simulated, has no figures. */
static int measure(void *context, const tsr_run_plan *plan, tsr_run_plan_cost *out,
                   tsr_error *error) {
  const subject *s = context;
  tsr_error why;
  int status = tsr_run_plan_measure(plan, s->model, s->how, out, &why);
  bool has_ended = s->how->effort && tsr_effort_ended(s->how->effort);
  bool is_too_long = status == TSR_ERROR_LIMIT && !has_ended;
  if (status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED || is_too_long) return 0;
  if (status && error) *error = why;
  return status;
}

/* Measure all of the changes of `base`, and put the figures where the `alone` and `so_far` of an answer's rows are. */
static int walk(const tsr_run_plan *base, const tsr__plan_changes *changes, bool skips_impossible,
                subject *s, tsr_run_plan_cost **alone, tsr_error *error) {
  size_t count = changes->count;
  tsr_run_plan_cost *costs = TSR__NEW_ARRAY(tsr_run_plan_cost, 2 * count + 1);
  if (!costs) return tsr__fail_memory(error);
  int status = tsr__walk_changes(base, changes->items, count, skips_impossible, measure, s, costs,
                                 costs + count, error);
  if (status)
    tsr__free(costs);
  else
    *alone = costs;
  return status;
}

static int explain(const tsr_run_plan *plan, subject *s, const tsr__plan_changes *changes,
                   tsr_run_plan_effects *out, tsr_error *error) {
  tsr_run_plan *none = tsr__run_plan_new();
  tsr_run_plan_cost *alone = NULL;
  if (changes->count > TSR_RUN_PLAN_EFFECTS) {
    tsr_run_plan_free(none);
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "the plan has %zu choices, and %d can be explained", changes->count,
                     TSR_RUN_PLAN_EFFECTS);
  }
  out->count = changes->count;
  int status = none ? 0 : tsr__fail_memory(error);
  if (status == 0) status = tsr_run_plan_measure(none, s->model, s->how, &out->without, error);
  if (status == 0) status = tsr_run_plan_measure(plan, s->model, s->how, &out->with, error);
  if (status == 0) status = walk(none, changes, false, s, &alone, error);
  for (size_t i = 0; status == 0 && i < out->count; i++) {
    tsr_run_plan_effect *e = &out->choices[i];
    (void)snprintf(e->name, sizeof e->name, "%s", changes->items[i].name);
    e->alone = alone[i];
    e->so_far = alone[out->count + i];
  }
  tsr__free(alone);
  tsr_run_plan_free(none);
  return status;
}

int tsr_run_plan_explain(const tsr_run_plan *plan, const tsr_model *model,
                         const tsr_simulate_options *options, tsr_run_plan_effects *out,
                         tsr_error *error) {
  subject s = {model, options};
  tsr__plan_changes changes = {0};
  bool ok = tsr__list_changes(NULL, plan, false, SIZE_MAX, &changes);
  int status = ok ? explain(plan, &s, &changes, out, error) : tsr__fail_memory(error);
  TSR__VECTOR_FREE(&changes);
  return status;
}

/* ---- every technique ---- */

/* The technique of that place in the list, or NULL. */
static const tsr__technique_row *listed_at(unsigned place) {
  for (const tsr__technique_row *t = tsr__techniques; t->allow; t++)
    if (t->listed == place) return t;
  return NULL;
}

/* The technique to list instead of one that the card has no hardware for, or NULL: of those of cards without bf16, the one that sets the
 * same options and takes as many (the table has fp16 under autocast for bf16 under autocast). */
static const tsr__technique_row *instead_of(const tsr__technique_row *bf16) {
  bool is_autocast = strncmp(bf16->value, "autocast", strlen("autocast")) == 0;
  for (const tsr__technique_row *t = tsr__techniques; is_autocast && t->allow; t++)
    if (t->is_of_old_cards && !t->option2 && t->dimension == bf16->dimension) return t;
  return NULL;
}

static const tsr__technique_row *suited(const tsr__technique_row *t, const tsr__data_sheet *card) {
  bool is_precision = t->option && strcmp(t->option, "dtype") == 0;
  bool lacks_it = card && !tsr__card_has_bf16(card) && is_precision && !t->is_of_old_cards;
  return lacks_it ? instead_of(t) : t;
}

/* The changes of the list, each with a plan of its own in `plans`, which the caller frees. */
static bool list_techniques(const tsr_run_plan *base, const tsr__data_sheet *card,
                            tsr_run_plan **plans, tsr__plan_changes *changes, tsr_techniques *out) {
  const tsr__technique_row *t;
  bool ok = true;
  for (unsigned place = 1; ok && (t = listed_at(place)) != NULL; place++) {
    if (t->needs_ranks && base->options.ranks < 2) continue;
    t = suited(t, card);
    if (!t) continue;
    size_t i = out->count++;
    tsr__plan_change change;
    assert(i < TSR_TECHNIQUES);
    tsr_technique *item = &out->items[i];
    item->is_free = t->is_free;
    tsr__technique_keys(t, item->choice);
    ok = (plans[i] = tsr__run_plan_new()) != NULL;
    if (!ok) break;
    tsr__technique_change(t, plans[i], &change);
    (void)snprintf(item->name, sizeof item->name, "%s", change.name);
    ok = TSR__VECTOR_PUSH(changes, change);
  }
  return ok;
}

static const char *title_of(const tsr_simulate_options *options) {
  tsr_gpu gpu;
  if (options->rates) return "machine of --rates";
  for (size_t i = 0; options->gpu && tsr_gpu_at(i, &gpu); i++)
    if (strcmp(gpu.name, options->gpu) == 0) return gpu.title;
  return "";
}

int tsr_plan_techniques(const tsr_run_plan *plan, const tsr_model *model,
                        const tsr_simulate_options *options, tsr_techniques *out,
                        tsr_error *error) {
  subject s = {model, options};
  tsr_techniques found = {.gpu_title = title_of(options)};
  tsr_run_plan *base = plan ? tsr__run_plan_copy(plan) : tsr__run_plan_new();
  tsr_run_plan *plans[TSR_TECHNIQUES] = {NULL};
  tsr__plan_changes changes = {0};
  tsr_run_plan_cost *alone = NULL;
  const tsr__data_sheet *card = options->rates ? NULL : tsr__gpu_of(options);
  bool ok = base && list_techniques(base, card, plans, &changes, &found);
  int status = ok ? 0 : tsr__fail_memory(error);
  if (status == 0) status = tsr_run_plan_measure(base, model, options, &found.without, error);
  if (status == 0) status = walk(base, &changes, true, &s, &alone, error);
  for (size_t i = 0; status == 0 && i < found.count; i++) {
    found.items[i].alone = alone[i];
    found.items[i].so_far = alone[found.count + i];
  }
  for (size_t i = 0; i < TSR_TECHNIQUES; i++) tsr_run_plan_free(plans[i]);
  tsr_run_plan_free(base);
  TSR__VECTOR_FREE(&changes);
  tsr__free(alone);
  if (status == 0) *out = found;
  return status;
}
