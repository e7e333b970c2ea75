/* answer.c - computes the answer of "plan" from its parameters.
 *
 * Six questions are possible: what a plan's choices do (show), what papers estimate (compare), what to change for a
 * budget, what is the largest size that fits, what less and less memory costs (front), or what each technique does.
 * Each starts with the plan of the parameters. `for` writes the plan that was found, or the original one, in
 * another program's format. */
#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "models/model.h"
#include "questions/plan/plan.h"
#include "tessera/unstable/runs.h"

/* ---- parameters ---- */

static tsr_simulate_options options_of(const tsr_params *params) {
  const tsr_model *model = tsr_params_object(params, "model", &tsr_model_type);
  bool is_traced = model && tsr_model_is_traced(model); /* its card is fixed */
  bool is_own = tsr_params_choice(params, "book") == TSR_BOOK_OWN;
  const char *gpu = tsr_params_gpu(params);
  return (tsr_simulate_options){.struct_bytes = sizeof(tsr_simulate_options),
                                .batch = tsr_params_count(params, "batch"),
                                .sequence = tsr_params_count(params, "seq"),
                                .steps = tsr_params_count(params, "steps"),
                                .gpu = gpu || is_traced ? gpu : "a100",
                                .book = is_own ? TSR_BOOK_OWN : TSR_BOOK_TORCH};
}

/* Copy the plan for another number of ranks; one rank is a single process. */
static int set_ranks(tsr_run_plan **plan, uint64_t ranks, tsr_error *error) {
  tsr_run_plan *changed = tsr__run_plan_copy(*plan);
  if (!changed) return tsr__fail_memory(error);
  changed->options.ranks = ranks > 1 ? ranks : 0;
  tsr_run_plan_free(*plan);
  *plan = changed;
  return tsr__run_plan_seal(changed, error);
}

/* Make the plan to start from, with a rank for each card. */
static int find_plan(const tsr_params *params, tsr__plan_value *a, tsr_error *error) {
  bool has_cards = tsr_params_has(params, "gpus") && !tsr_params_flag(params, "compare");
  int status = tsr_run_plan_of(params, &a->plan, error);
  if (status == 0 && has_cards)
    status = set_ranks(&a->plan, tsr_params_count(params, "gpus"), error);
  a->about.plan = a->plan;
  return status;
}

static int find_link(const tsr_params *params, tsr__plan_value *a, tsr_error *error) {
  tsr_simulate_options whole = a->how;
  tsr_run_plan_options(a->plan, &whole);
  int status = tsr_params_link(params, &whole, error);
  a->how.link_bytes_per_s = whole.link_bytes_per_s;
  return status;
}

static const char *target_of(const tsr_params *params) {
  const char *const *targets = TSR_TARGET_CHOICES;
  return tsr_params_has(params, "for") ? targets[tsr_params_choice(params, "for")] : NULL;
}

static int allow_of(const tsr_params *params, const tsr_model *model, unsigned *allow,
                    tsr_error *error) {
  const char *words = tsr_params_text(params, "allow"), *target = target_of(params);
  bool is_model = tsr_params_choice(params, "largest") == TSR_LARGEST_MODEL;
  *allow = target ? tsr_target_allows(target, model) : tsr_allow_default();
  if (is_model && !tsr_params_has(params, "host_budget"))
    *allow &= ~TSR_ALLOW_OFFLOAD; /* with unlimited host memory, every model would fit */
  int status = words ? tsr_allow_parse(words, allow, error) : 0;
  /* --zero 0 is a choice too, although plans do not contain it. */
  if (tsr_params_has(params, "zero")) *allow &= ~TSR_ALLOW_ZERO;
  return status;
}

/* ---- the questions ---- */

static int compare(const tsr_params *params, tsr__plan_value *a, tsr_error *error) {
  tsr_estimate_question *q = &a->compared_with;
  tsr_simulation *simulation = NULL;
  tsr_simulate_options options = a->how;
  *q = (tsr_estimate_question){.parameters = tsr_params_count(params, "parameters"),
                               .largest_layer = tsr_params_count(params, "largest_layer"),
                               .cards = tsr_params_count(params, "gpus"),
                               .cards_a_node = tsr_params_count(params, "gpus_per_node"),
                               .bucket_elements = tsr_params_count(params, "bucket"),
                               .batch = a->how.batch,
                               .sequence = a->how.sequence,
                               .tensor_cards = tsr_params_count(params, "tp"),
                               .adapter_rank = tsr_params_count(params, "lora_rank")};
  if (!q->cards_a_node) q->cards_a_node = q->cards;
  if (a->model) {
    tsr_run_plan_options(a->plan, &options);
    int status = tsr_simulate(a->model, &options, &simulation, error);
    if (status) return status;
    q->parameters = simulation->parameter_count;
    q->largest_layer = simulation->largest_parameter;
    (void)tsr_model_sizes_of(a->model, &q->sizes);
    a->compared_peak_bytes = simulation->peak.totals.allocated_bytes;
    a->compared_reserved_bytes = simulation->peak_reserved_bytes;
    a->compared_host_bytes = simulation->host_machine_bytes;
    tsr_simulation_free(simulation);
  }
  tsr_estimates(q, a->estimates);
  a->about.compared_with = q;
  a->about.estimates = a->estimates;
  return 0;
}

static int append(void *context, const char *data, size_t size_bytes) {
  tsr__buffer *out = context;
  tsr__buffer_append(out, data, size_bytes);
  return out->failed ? -1 : 0;
}

/* A target that cannot express all of the plan may exceed the budget. */
static int paste(const tsr_params *params, const tsr_run_plan *plan, const tsr_model *model,
                 const tsr_simulate_options *how, tsr__plan_value *a, tsr_error *error) {
  uint64_t budget = a->about.found ? a->about.found->budget_bytes : 0;
  a->about.target = target_of(params);
  int status = tsr_plan_paste(plan, model, how, a->about.target, append, &a->pasted,
                              &a->about.pasted_bytes, error);
  tsr__buffer_append(&a->pasted, "", 1);
  if (a->pasted.failed) return tsr__fail_memory(error);
  a->about.pasted = a->pasted.data;
  if (budget && a->about.pasted_bytes > budget) a->about.fits = false;
  return status;
}

/* Keep a plan that the search found, with its certificate. */
static int take_found(const tsr_params *params, tsr_planning *planning, const tsr_planned *found,
                      const tsr_model *model, const tsr_simulate_options *how, tsr__plan_value *a,
                      tsr_error *error) {
  a->about.found = found;
  a->about.fits = found->verdict != TSR_PLANNING_DOES_NOT_FIT;
  int status = tsr__certify(planning, found, &a->certificate, error);
  if (status == 0 && a->about.fits && tsr_params_has(params, "for"))
    status = paste(params, found->plan, model, how, a, error);
  return status;
}

/* Memory that a recorded run needs beyond the prediction is not available to the plan. */
static uint64_t left_of_budget(const tsr__plan_value *a) {
  uint64_t taken = a->is_calibrated ? a->calibration.unexplained_bytes : 0;
  return taken < a->about.budget_bytes ? a->about.budget_bytes - taken : 1;
}

static int find_largest(const tsr_params *params, const tsr_planning_options *options,
                        tsr__plan_value *a, tsr_error *error) {
  tsr_largest *l = &a->largest;
  tsr_largest_what what = (tsr_largest_what)tsr_params_choice(params, "largest");
  int status = tsr_planning_largest(a->model, options, what, left_of_budget(a), l, error);
  if (status) return status;
  a->about.largest = l;
  if (l->size)
    return take_found(params, l->planning, &l->planned, l->model ? l->model : a->model, &l->how, a,
                      error);
  a->about.fits = false;
  return 0;
}

static int search(const tsr_params *params, const tsr_planning_options *options, tsr__plan_value *a,
                  tsr_error *error) {
  int status = tsr_planning_new(a->model, options, &a->planning, error);
  if (status) return status;
  if (tsr_params_flag(params, "front")) {
    a->about.front = &a->front;
    return tsr_planning_front(a->planning, &a->front, error);
  }
  status = tsr_planning_solve(a->planning, left_of_budget(a), &a->found, error);
  if (status) return status;
  return take_found(params, a->planning, &a->found, a->model, &a->how, a, error);
}

/* Read times and memory of a recorded run. */
static int calibrate(const tsr__asked *asked, tsr__plan_value *a, tsr_error *error) {
  tsr_simulate_options options = a->how;
  if (!tsr_params_has(asked->params, "from")) return 0;
  if (!asked->study_count) return tsr_params_fail(asked->params, error, "{=from} needs a snapshot");
  tsr_run_plan_options(a->plan, &options);
  int status = tsr_calibrate(a->model, &options, asked->studies[0], &a->calibration, error);
  a->is_calibrated = status == 0;
  if (a->calibration.rates) a->how.rates = a->calibration.rates;
  return status;
}

static int find(const tsr__asked *asked, tsr__plan_value *a, tsr_error *error) {
  const tsr_params *params = asked->params;
  tsr_planning_options options = TSR_OPTIONS_INIT(tsr_planning_options);
  int status = allow_of(params, a->model, &options.allow, error);
  if (status == 0) status = calibrate(asked, a, error);
  if (status) return status;
  options.plan = a->plan;
  options.how = &a->how;
  options.calibration = a->is_calibrated ? &a->calibration : NULL;
  a->about.budget_bytes = tsr_params_count(params, "budget");
  a->about.host_budget_bytes = tsr_params_count(params, "host_budget");
  options.host_budget_bytes = a->about.host_budget_bytes;
  if (tsr_params_has(params, "largest")) return find_largest(params, &options, a, error);
  if (a->about.budget_bytes || tsr_params_flag(params, "front"))
    return search(params, &options, a, error);
  return paste(params, a->plan, a->model, &a->how, a, error);
}

static int show(tsr__plan_value *a, tsr_error *error) {
  if (!a->model) return 0;
  a->about.effects = &a->effects;
  return tsr_run_plan_explain(a->plan, a->model, &a->how, &a->effects, error);
}

static int list_techniques(tsr__plan_value *a, tsr_error *error) {
  a->about.techniques = &a->techniques;
  return tsr_plan_techniques(a->plan, a->model, &a->how, &a->techniques, error);
}

static int answer(const tsr__asked *asked, tsr__plan_value *a, tsr_error *error) {
  const tsr_params *params = asked->params;
  const tsr_model *model = tsr_params_object(params, "model", &tsr_model_type);
  bool is_shown = tsr_params_flag(params, "show");
  if (model) a->model = tsr__model_share(model);
  a->about.fits = true;
  a->how = options_of(params);
  int status = tsr_params_effort(params, asked->query, &a->effort, error);
  a->how.effort = a->effort;
  if (status == 0) status = find_plan(params, a, error);
  if (status == 0 && !is_shown) status = tsr_params_rates(params, &a->rates, error);
  if (status == 0) status = find_link(params, a, error);
  if (status) return status;
  a->how.rates = a->rates;
  if (is_shown) return show(a, error);
  if (tsr_params_flag(params, "compare")) return compare(params, a, error);
  if (tsr_params_has(params, "budget") || tsr_params_flag(params, "front") ||
      tsr_params_has(params, "for"))
    return find(asked, a, error);
  return list_techniques(a, error);
}

int tsr__ask_plan(const tsr__asked *asked, void **out, tsr_error *error) {
  tsr__plan_value *a = TSR__NEW(tsr__plan_value);
  if (!a) return tsr__fail_memory(error);
  int status = answer(asked, a, error);
  if (status == TSR_ERROR_LIMIT && a->effort && tsr_effort_ended(a->effort))
    status = tsr_params_effort_fail(asked->params, a->effort, error);
  if (status)
    tsr__plan_value_free(a);
  else
    *out = a;
  return status;
}

void tsr__plan_value_free(tsr__plan_value *a) {
  tsr__buffer_release(&a->pasted);
  tsr__certificate_release(&a->certificate);
  tsr_front_release(&a->front);
  tsr_largest_release(&a->largest);
  tsr_planned_release(&a->found);
  tsr_planning_free(a->planning);
  tsr_calibration_release(&a->calibration);
  tsr_rates_free(a->rates);
  tsr_effort_free(a->effort);
  tsr_run_plan_free(a->plan);
  tsr_model_free(a->model);
  tsr__free(a);
}
