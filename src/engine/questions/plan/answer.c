/* answer.c - computes the answer of "plan" from its parameters.
 *
 * Seven questions are possible: what a plan's choices do (show), what papers estimate (compare), what to change for a
 * budget, what is the largest size that fits, what less and less memory costs (front), what a search compares (ways), or what
 * each technique does.
 * Each starts with the plan of the parameters. `for` writes the plan that was found, or the original one, in
 * another program's format. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "models/model.h"
#include "plan/paste.h"
#include "questions/outside.h"
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

/* An A100, which is what most figures are published for, or the first card with FP8 if that is asked for. */
static void choose_card(const tsr_params *params, tsr__plan_value *a) {
  const char *allow = tsr_params_text(params, "allow");
  bool is_chosen = tsr_params_gpu(params) || (a->model && tsr_model_is_traced(a->model));
  bool is_fp8 = a->plan->options.fp8 || (allow && strstr(allow, "fp8"));
  if (!is_chosen && is_fp8) a->how.gpu = "h100";
}

static json_t *given_texts(const tsr_params *params, const char *name) {
  size_t count;
  const char *const *texts = tsr_params_texts(params, name, &count);
  json_t *list = json_array();
  for (size_t i = 0; list && i < count; i++)
    (void)json_array_append_new(list, json_string(texts[i]));
  return list;
}

/* A parameter as it was given: a word with its number, say. NULL if it has no value, or when out of memory. */
static json_t *given_value(const tsr_params *params, const tsr_parameter *row) {
  const char *name = row->name, *key;
  char text[160];
  int index;
  uint64_t number;
  switch (row->kind) {
  case TSR_PARAMETER_FLAG: return json_boolean(tsr_params_flag(params, name));
  case TSR_PARAMETER_COUNT:
  case TSR_PARAMETER_BYTES: return json_integer((json_int_t)tsr_params_count(params, name));
  case TSR_PARAMETER_CHOICE:
    index = tsr_params_choice(params, name);
    key = tsr_params_choice_key(params, name);
    number = tsr_params_choice_number(params, name);
    (void)snprintf(text, sizeof text, "%s", index >= 0 ? row->choices[index] : "");
    if (number || key) text[strcspn(text, ":") + 1] = '\0';
    if (number) return json_sprintf("%s%" PRIu64, text, number);
    return json_sprintf("%s%s", text, key ? key : "");
  case TSR_PARAMETER_CHOICES: return given_texts(params, name);
  default: return json_string(tsr_params_text(params, name)); /* NULL for NULL */
  }
}

static bool names_file(const tsr_parameter *row) {
  return row->kind == TSR_PARAMETER_OBJECT || row->kind == TSR_PARAMETER_FILE ||
         row->kind == TSR_PARAMETER_PATH || row->kind == TSR_PARAMETER_SNAPSHOT;
}

/* What this machine's file has, as a size that has the same effect: the question may be asked again on another machine. */
static json_t *outside_given(const tsr_outside *o) {
  uint64_t bytes = o->is_card_inferred ? o->asked_bytes - o->share_bytes : o->whole.high_bytes;
  return json_sprintf("%" PRIu64 "B", bytes);
}

/* Note the parameters that were given, but for the names of files: the answer has what was read from them. */
static int write_given(const tsr_params *params, tsr__plan_value *a, tsr_error *error) {
  const tsr_parameter *row;
  json_t *given = json_object();
  for (size_t i = 0; given && (row = tsr_params_row(params, i)); i++) {
    json_t *value =
        !names_file(row) && tsr_params_has(params, row->name) ? given_value(params, row) : NULL;
    if (value) (void)json_object_set_new(given, row->name, value);
  }
  if (given && a->outside.source == TSR_OUTSIDE_MEASURED)
    (void)json_object_set_new(given, "outside", outside_given(&a->outside));
  bool ok = tsr__json_append(&a->given, given, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENSURE_ASCII);
  json_decref(given);
  return ok ? 0 : tsr__fail_memory(error);
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
  a->how.ranks_per_node = whole.ranks_per_node;
  a->how.network_bytes_per_s = whole.network_bytes_per_s;
  a->how.has_latency = whole.has_latency;
  a->how.latency_s = whole.latency_s;
  a->how.network_latency_s = whole.network_latency_s;
  return status;
}

static int allow_of(const tsr_params *params, const tsr_model *model, unsigned *allow,
                    tsr_error *error) {
  const char *words = tsr_params_text(params, "allow");
  size_t target_count;
  const char *const *targets = tsr_params_texts(params, "for", &target_count);
  bool is_model = tsr_params_choice(params, "largest") == TSR_LARGEST_MODEL;
  *allow = tsr_allow_default();
  for (size_t i = 0; i < target_count; i++) *allow = tsr_target_allows(targets[i], model, *allow);
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

/* Write the plan for each target. One that cannot express all of the plan may exceed the budget. */
static int paste(const tsr_params *params, const tsr_run_plan *plan, const tsr_model *model,
                 const tsr_simulate_options *how, tsr__plan_value *a, tsr_error *error) {
  uint64_t budget = a->about.found ? a->about.found->budget_bytes : 0;
  size_t count;
  const char *const *targets = tsr_params_texts(params, "for", &count);
  a->pasted = TSR__NEW_ARRAY(tsr_pasted, count);
  if (!a->pasted) return tsr__fail_memory(error);
  a->about.pasted = a->pasted;
  for (size_t i = 0; i < count; i++) {
    tsr_pasted *one = &a->pasted[a->about.pasted_count++];
    /* Of several, the plan to begin with is the nearest for all of them: what one lacks explains another's text wrongly. */
    const tsr_run_plan *own = count == 1 ? a->asked : NULL;
    const char *remark = count > 1 && *a->near_note ? a->near_note : NULL;
    int status = tsr__plan_paste_found(plan, own, remark, model, how, targets[i], one, error);
    if (status) return status;
    if (budget && one->reserved_bytes > budget) a->about.fits = false;
  }
  return 0;
}

/* The plan that needs least memory of those near `plan` with what may be changed in any trainer. */
static void make_lean(tsr_run_plan *plan, unsigned allow, uint64_t batch) {
  if (allow & (TSR_ALLOW_RECOMPUTE | TSR_ALLOW_ALL_BLOCKS)) {
    tsr__run_plan_clear_blocks(plan);
    plan->options.checkpoint = TSR_CHECKPOINT_FULL;
  }
  if (allow & TSR_ALLOW_ACCUMULATE && batch > 1) plan->options.micro_batch = 1;
}

/* Whether the plan is within the budget; false also if it is not possible. */
static int meets(tsr_run_plan *plan, const tsr_model *model, const tsr_simulate_options *how,
                 uint64_t budget_bytes, bool *out, tsr_error *error) {
  tsr_run_plan_cost cost = {0};
  *out = false;
  int status = tsr_run_plan_measure(plan, model, how, &cost, error);
  if (status == TSR_ERROR_MEMORY) return status;
  *out = status == 0 && cost.is_possible && cost.reserved_bytes <= budget_bytes;
  return 0;
}

/* Find out whether the trainer that most users have can run the plan, or one near it within the budget. */
static int find_next(const tsr_params *params, const tsr_planned *found, const tsr_model *model,
                     const tsr_simulate_options *how, tsr__plan_value *a, tsr_error *error) {
  static const char target[] = "hf";
  tsr_simulate_options own = *how;
  tsr_run_plan *near = NULL;
  unsigned allow = 0;
  size_t replaced = 0;
  bool is_enough = false;
  if (tsr_model_is_traced(model)) return 0;
  own.effort = NULL;
  int status = allow_of(params, model, &allow, error);
  if (status == 0)
    status = tsr__target_nearest(target, model, &own, found->plan, &near, &replaced, error);
  if (status == 0 && replaced)
    status = meets(near, model, &own, found->budget_bytes, &is_enough, error);
  if (status == 0 && replaced && !is_enough) {
    make_lean(near, allow, own.batch);
    status = meets(near, model, &own, found->budget_bytes, &is_enough, error);
  }
  tsr_run_plan_free(near);
  if (status == 0 && (!replaced || is_enough)) a->about.next_target = target;
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
  else if (status == 0 && a->about.fits)
    status = find_next(params, found, model, how, a, error);
  return status;
}

/* Memory that a recorded run needs beyond the prediction is not available to the plan, and what is outside of the allocator is not
 * either. */
static uint64_t left_of_budget(const tsr__plan_value *a) {
  uint64_t taken = a->is_calibrated ? a->calibration.unexplained_bytes : 0;
  return taken < a->outside.share_bytes ? a->outside.share_bytes - taken : 1;
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
  a->lists_ways = tsr_params_flag(params, "ways");
  if (a->lists_ways) return tsr__certify_ways(a->planning, &a->certificate, error);
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

/* Say how the plan to begin with differs from what was asked for. */
static bool note_near(tsr__plan_value *a) {
  tsr__plan_changes changes = {0};
  bool ok = tsr__list_changes(a->asked, a->plan, false, SIZE_MAX, &changes);
  size_t length =
      (size_t)snprintf(a->near_note, sizeof a->near_note,
                       "the search began with the nearest plan that --for can express: ");
  for (size_t i = 0; i < changes.count && length < sizeof a->near_note; i++)
    length += (size_t)snprintf(a->near_note + length, sizeof a->near_note - length, "%s%s",
                               i ? ", " : "", changes.items[i].name);
  TSR__VECTOR_FREE(&changes);
  return ok;
}

/* Let the search begin with a plan that all targets can express: the nearest. Without one, it begins with what was asked for. */
static int begin_near(const tsr_params *params, tsr__plan_value *a, tsr_error *error) {
  size_t count, replaced = 1;
  const char *const *targets = tsr_params_texts(params, "for", &count);
  tsr_run_plan *near = tsr__run_plan_copy(a->plan);
  int status = near ? 0 : tsr__fail_memory(error);
  for (size_t turn = 0; status == 0 && replaced && turn <= count; turn++) {
    replaced = 0;
    for (size_t i = 0; status == 0 && i < count; i++) {
      tsr_run_plan *next;
      size_t more;
      status = tsr__target_nearest(targets[i], a->model, &a->how, near, &next, &more, error);
      replaced += more;
      if (status == 0) tsr_run_plan_free(near);
      if (status == 0) near = next;
    }
  }
  if (status == 0) status = tsr__run_plan_seal(near, error);
  if (status || replaced || tsr__run_plan_equal(near, a->plan)) {
    tsr_run_plan_free(near);
    return status;
  }
  a->asked = a->plan;
  a->about.plan = a->plan = near;
  return note_near(a) ? 0 : tsr__fail_memory(error);
}

static int find(const tsr__asked *asked, tsr__plan_value *a, tsr_error *error) {
  const tsr_params *params = asked->params;
  tsr_planning_options options = TSR_OPTIONS_INIT(tsr_planning_options);
  int status = allow_of(params, a->model, &options.allow, error);
  if (status == 0) status = calibrate(asked, a, error);
  if (status) return status;
  bool is_search = tsr_params_has(params, "budget") || tsr_params_flag(params, "front") ||
                   tsr_params_flag(params, "ways");
  if (is_search && !tsr_model_is_traced(a->model)) status = begin_near(params, a, error);
  if (status) return status;
  options.plan = a->plan;
  options.how = &a->how;
  options.calibration = a->is_calibrated ? &a->calibration : NULL;
  a->about.budget_bytes = tsr_params_count(params, "budget");
  a->about.host_budget_bytes = tsr_params_count(params, "host_budget");
  options.host_budget_bytes = a->about.host_budget_bytes;
  options.targets = tsr_params_texts(params, "for", &options.target_count);
  bool lists_ways = tsr_params_flag(params, "ways");
  if (tsr_params_has(params, "largest") && !lists_ways)
    return find_largest(params, &options, a, error);
  if (a->about.budget_bytes || tsr_params_flag(params, "front") || lists_ways)
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

/* ---- the card ---- */

uint64_t tsr__plan_reserved_bytes(const tsr__plan_value *value) {
  const tsr_plan_answer *about = &value->about;
  if (about->found) return about->fits ? about->found->with.reserved_bytes : 0;
  if (about->techniques) return about->techniques->without.reserved_bytes;
  return about->effects ? about->effects->with.reserved_bytes : 0;
}

static void note_card(const tsr_params *params, tsr__plan_value *a) {
  const tsr__data_sheet *card = tsr__params_card(params, a->model);
  const tsr_plan_answer *about = &a->about;
  tsr_simulate_options how = a->how;
  if (!card || about->compared_with) return;
  bool is_counted = a->outside.source != TSR_OUTSIDE_NOT_COUNTED;
  tsr_run_plan_options(about->found ? about->found->plan : a->plan, &how);
  tsr_outside outside = is_counted ? a->outside : tsr__outside_by_table(card, &how);
  if (about->found && about->fits)
    a->card_lacks = tsr__card_lacks_room(card, about->found->with.reserved_bytes, &outside);
  if (!tsr_model_is_traced(a->model)) tsr__card_note_types(card, &how, &a->card_notes);
  tsr__card_note_room(card,
                      &(tsr__card_room){.limit = "budget",
                                        .limit_bytes = a->outside.share_bytes,
                                        .run = about->techniques ? "the run as it is" : "this plan",
                                        .reserved_bytes = tsr__plan_reserved_bytes(a),
                                        .outside = &outside},
                      &a->card_notes);
}

/* What is outside of PyTorch's allocator, with the ranks of the plan to begin with, which no search changes. */
static int find_outside(const tsr_params *params, tsr__plan_value *a, tsr_error *error) {
  tsr_simulate_options whole = a->how;
  tsr_run_plan_options(a->plan, &whole);
  return tsr__params_outside(params, a->model, "budget", &whole, &a->outside, error);
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
  if (status == 0) choose_card(params, a);
  if (status == 0 && !is_shown) status = tsr_params_rates(params, &a->rates, error);
  if (status == 0) status = find_link(params, a, error);
  if (status == 0) status = find_outside(params, a, error);
  if (status == 0) status = write_given(params, a, error);
  if (status) return status;
  a->how.rates = a->rates;
  if (is_shown) return show(a, error);
  if (tsr_params_flag(params, "compare")) return compare(params, a, error);
  if (tsr_params_has(params, "budget") || tsr_params_flag(params, "front") ||
      tsr_params_flag(params, "ways") || tsr_params_has(params, "for"))
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
  if (status == 0 && a->model) note_card(asked->params, a);
  return status;
}

void tsr__plan_value_free(tsr__plan_value *a) {
  tsr__buffer_release(&a->given);
  for (size_t i = 0; i < a->about.pasted_count; i++) tsr_pasted_release(&a->pasted[i]);
  tsr__free(a->pasted);
  tsr__certificate_release(&a->certificate);
  tsr_front_release(&a->front);
  tsr_largest_release(&a->largest);
  tsr_planned_release(&a->found);
  tsr_planning_free(a->planning);
  tsr_calibration_release(&a->calibration);
  tsr_rates_free(a->rates);
  tsr_effort_free(a->effort);
  tsr_run_plan_free(a->plan);
  tsr_run_plan_free(a->asked);
  tsr_model_free(a->model);
  tsr__free(a);
}
