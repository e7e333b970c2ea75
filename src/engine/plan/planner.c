/* planner.c - see planning.h: the answer to a budget. search.c looks for the plan; here it is made simpler, compared with what no plan
 * stays below, and taken apart into changes. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "plan/paste.h"
#include "plan/planner.h"

/* ---- beginning ---- */

/* The base, or the first precision with which the model is possible: figures of the base, and the precision. */
static int measure_base(tsr_planning *p, tsr_error *error) {
  const tsr__technique_row *precision;
  int status = tsr_run_plan_measure(p->base, p->model, &p->how, &p->as_is, error);
  p->tried = 1;
  if (!tsr__planner_is_refused(p->how.effort, status)) return status;
  if (error) (void)snprintf(p->refusal, sizeof p->refusal, "%s", error->message);
  for (size_t i = 0; (precision = tsr__planner_precision(p, i)) != NULL; i++) {
    tsr_run_plan_cost cost;
    tsr_error ignored;
    tsr_run_plan *plan = tsr__run_plan_copy(p->base);
    if (plan) tsr__technique_apply(precision, plan);
    int other = plan ? tsr__planner_measure(p, plan, &cost, &ignored) : tsr__fail_memory(&ignored);
    tsr_run_plan_free(plan);
    if (other && error) *error = ignored;
    if (other) return other;
    p->resolve = precision;
    if (cost.is_possible) return tsr__planner_fault(p, status, error);
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
  *p = (tsr_planning){
      .model = model, .how = *own.how, .allow = own.allow, .calibration = own.calibration};
  p->host_budget_bytes = own.host_budget_bytes;
  p->targets = own.targets;
  p->target_count = own.target_count;
  status = tsr__choose_gpu(model, &p->how, error);
  if (p->how.steps < 2) p->how.steps = 2; /* the first lacks the optimizer's state */
  p->base = own.plan ? tsr__run_plan_copy(own.plan) : tsr__run_plan_new();
  if (!p->base) status = tsr__fail_memory(error);
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
  for (size_t i = 0; i < p->others.count; i++) {
    tsr__way_release(p->others.items[i]);
    tsr__free(p->others.items[i]);
  }
  TSR__VECTOR_FREE(&p->others);
  for (size_t i = 0; i < p->block_options.count; i++)
    tsr__block_options_free(p->block_options.items[i]);
  TSR__VECTOR_FREE(&p->block_options);
  for (size_t i = 0; i < p->refused.count; i++) tsr_run_plan_free(p->refused.items[i].plan);
  TSR__VECTOR_FREE(&p->refused);
  for (size_t i = 0; i < p->simulated.count; i++) tsr_run_plan_free(p->simulated.items[i].plan);
  TSR__VECTOR_FREE(&p->simulated);
  for (size_t i = 0; i < p->improved.count; i++) tsr_run_plan_free(p->improved.items[i]);
  TSR__VECTOR_FREE(&p->improved);
  tsr__map_release(&p->places);
  TSR__VECTOR_FREE(&p->savings);
  tsr_run_plan_free(p->base);
  tsr_run_plan_free(p->free);
  tsr__free(p);
}

/* ---- the answer ---- */

/* Try the plan without one of its choices, and take the choice back if that changes neither time nor memory. */
static int take_back(tsr_planning *p, tsr_run_plan *fewer, tsr_run_plan **plan,
                     tsr_run_plan_cost *cost, tsr_error *error) {
  tsr_run_plan_cost without;
  int status = fewer ? tsr__planner_measure(p, fewer, &without, error) : tsr__fail_memory(error);
  bool is_same = status == 0 && without.is_possible &&
                 without.reserved_bytes == cost->reserved_bytes &&
                 without.peak_bytes == cost->peak_bytes && without.host_bytes <= cost->host_bytes &&
                 fabs(without.step_seconds - cost->step_seconds) <= cost->step_seconds * 1e-12;
  if (is_same) *cost = without; /* but for rounding */
  tsr_run_plan_free(is_same ? *plan : fewer);
  if (is_same) *plan = fewer;
  return status;
}

/* Options in the order of their names, which is that of a plan file, and what blocks do last. NULL: the first; past the last. */
static const tsr_parameter *next_option(const tsr_parameter *last) {
  const tsr_parameter *checkpoint = tsr__option_find("checkpoint"), *next = NULL;
  if (last == checkpoint) return NULL;
  for (size_t i = 0; tsr__option_at(i); i++) {
    const tsr_parameter *row = tsr__option_at(i);
    bool is_after = row != checkpoint && (!last || strcmp(row->name, last->name) > 0);
    if (is_after && (!next || strcmp(row->name, next->name) < 0)) next = row;
  }
  return next ? next : checkpoint;
}

/* Take back what changes nothing: neither time nor what is reserved. Then the answer's figures are those of the best
 * candidate, which with less memory takes no less time and no more memory. Choices of the base stay. */
static int simplify(tsr_planning *p, tsr_run_plan **plan, tsr_run_plan_cost *cost,
                    tsr_error *error) {
  const tsr_parameter *row = NULL;
  int status = 0;
  while (status == 0 && (row = next_option(row)) != NULL) {
    if (!tsr__option_is_default(row, &p->base->options) ||
        tsr__option_is_default(row, &(*plan)->options))
      continue;
    tsr_run_plan *fewer = tsr__run_plan_copy(*plan);
    if (fewer) tsr__option_reset(row, &fewer->options);
    status = take_back(p, fewer, plan, cost, error);
  }
  for (int how = 0; status == 0 && how <= TSR_MODULE_OFFLOAD; how++) {
    if (tsr__run_plan_modules(p->base, (tsr_module_how)how) ||
        !tsr__run_plan_modules(*plan, (tsr_module_how)how))
      continue;
    tsr_run_plan *fewer = tsr__run_plan_copy(*plan);
    if (fewer) tsr__run_plan_clear_modules(fewer, (tsr_module_how)how);
    status = take_back(p, fewer, plan, cost, error);
  }
  if (status || p->base->blocks.count || !(*plan)->blocks.count) return status;
  tsr_run_plan *fewer = tsr__run_plan_copy(*plan);
  if (fewer) tsr__run_plan_clear_blocks(fewer);
  return take_back(p, fewer, plan, cost, error);
}

static void bound_by(const tsr__way *way, tsr_planned *out) {
  double seconds = way->is_surveyed ? tsr__planner_bound(way, out->budget_bytes) : way->step_s;
  if (seconds < out->bound_seconds) out->bound_seconds = seconds;
  if (way->is_surveyed && way->survey.floor_bytes < out->bound_bytes)
    out->bound_bytes = way->survey.floor_bytes;
}

/* Bounds over all ways. Those that were left out are slower than what was found, or were not reached: their time is a bound. If the
 * search ended before it knew all ways, there is no bound. */
static int bound(tsr_planning *p, tsr_planned *out, tsr_error *error) {
  tsr__way other;
  const tsr__way *own;
  bool is_known = true;
  out->bound_seconds = p->has_ways ? INFINITY : 0;
  out->bound_bytes = UINT64_MAX;
  if (!p->has_ways) return 0;
  int status = tsr__planner_own_way(p, out->plan, &own, &other, error);
  if (status) return status;
  for (size_t i = 0; i < p->ways.count; i++) {
    bool must = out->verdict == TSR_PLANNING_DOES_NOT_FIT && !out->stopped_by;
    status = must ? tsr__planner_survey_way(p, &p->ways.items[i], error) : 0;
    if (status) break;
    bound_by(&p->ways.items[i], out);
    is_known = is_known && p->ways.items[i].is_surveyed;
    out->skipped_count += p->ways.items[i].is_skipped;
  }
  if (status == 0 && own) bound_by(own, out);
  tsr__way_release(&other);
  if ((out->stopped_by || out->skipped_count) && !is_known) out->bound_bytes = UINT64_MAX;
  out->is_proved = isinf(out->bound_seconds);
  assert(status || !out->is_proved || out->verdict == TSR_PLANNING_DOES_NOT_FIT);
  return status;
}

static int measure_change(void *context, const tsr_run_plan *plan, tsr_run_plan_cost *out,
                          tsr_error *error) {
  return tsr__planner_measure(context, plan, out, error);
}

/* The changes from the base to the answer's plan. What the planner chooses for blocks replaces what was there. */
static int list_changes(tsr_planning *p, tsr_planned *out, tsr_error *error) {
  tsr_run_plan *from = tsr__run_plan_copy(p->base);
  tsr_run_plan_cost so_far[TSR_PLANNED_CHANGES];
  tsr__plan_changes changes = {0};
  bool ok = from != NULL;
  if (ok && !tsr__run_plan_same_blocks(p->base, out->plan)) tsr__run_plan_clear_blocks(from);
  ok = ok && tsr__list_changes(p->base, out->plan, true, TSR_PLANNED_CHANGES, &changes);
  size_t ranges = out->plan->blocks.count;
  if (ok && changes.count > TSR_PLANNED_CHANGES) { /* all ranges as one */
    changes.count = 0;
    ok = tsr__list_changes(p->base, out->plan, true, ranges ? ranges - 1 : 0, &changes);
  }
  assert(!ok || changes.count <= TSR_PLANNED_CHANGES);
  int status = ok ? 0 : tsr__fail_memory(error);
  for (size_t i = 0; out->stopped_by && i < TSR_PLANNED_CHANGES; i++)
    so_far[i] = (tsr_run_plan_cost){.is_possible = false};
  if (status == 0 && !out->stopped_by)
    status = tsr__walk_changes(from, changes.items, changes.count, false, measure_change, p, NULL,
                               so_far, error);
  out->change_count = status == 0 ? changes.count : 0;
  for (size_t i = 0; i < out->change_count; i++) {
    (void)snprintf(out->changes[i].name, sizeof out->changes[i].name, "%s", changes.items[i].name);
    out->changes[i].so_far = so_far[i];
  }
  TSR__VECTOR_FREE(&changes);
  tsr_run_plan_free(from);
  return status;
}

/* The plan to print: what was found without what is not needed, or what takes least. */
static int choose(tsr_planning *p, const tsr__best *found, const tsr__best *least, tsr_planned *out,
                  tsr_error *error) {
  const tsr__best *from = found->plan ? found : least;
  out->plan = tsr__run_plan_copy(from->plan ? from->plan : p->base);
  if (!out->plan) return tsr__fail_memory(error);
  int status = 0;
  out->with = from->plan ? from->cost : p->as_is; /* nothing at all could be tried */
  if (found->plan && !out->stopped_by) status = simplify(p, &out->plan, &out->with, error);
  if (status == 0) status = tsr__run_plan_seal(out->plan, error);
  return status ? status : list_changes(p, out, error);
}

/* What the allocator reserves, it reserves in such parts: budgets between them are the same question. */
enum { RESERVED_PART = 2 << 20 };

static uint64_t round_budget(const tsr_planning *p, uint64_t budget) {
  bool is_whole = p->how.memory == TSR_MEMORY_PLACED || budget < RESERVED_PART;
  return is_whole ? budget : budget - budget % RESERVED_PART;
}

int tsr_planning_solve(tsr_planning *p, uint64_t budget, tsr_planned *out, tsr_error *error) {
  tsr__best found = {NULL, {0}, NULL}, least = {NULL, {0}, NULL};
  tsr_planned planned = {.verdict = TSR_PLANNING_FITS, .budget_bytes = budget, .as_is = p->as_is};
  bool fits = tsr__planner_fits(p, &p->as_is, budget);
  planned.host_budget_bytes = p->host_budget_bytes;
  (void)snprintf(planned.refusal, sizeof planned.refusal, "%s", p->refusal);
  int status = tsr__effort_go_on(p->how.effort, 0)
                   ? tsr__planner_search(p, round_budget(p, budget), &found, &least, error)
                   : tsr__effort_fail(p->how.effort, error);
  if (status == 0) status = choose(p, &found, &least, &planned, error);
  if (status && tsr__effort_is_spent(p->how.effort)) {
    tsr_planned_release(&planned);
    planned.stopped_by = tsr_effort_ended(p->how.effort);
    status = tsr__planner_end_search(p, round_budget(p, budget), &found, &least, error);
    if (status == 0) status = choose(p, &found, &least, &planned, error);
  }
  if (!fits)
    planned.verdict = found.plan ? TSR_PLANNING_FITS_WITH_CHANGES : TSR_PLANNING_DOES_NOT_FIT;
  if (status == 0) status = bound(p, &planned, error);
  planned.tried = p->tried;
  planned.way_count = p->ways.count;
  planned.refused_count = p->refused.count;
  planned.target = p->target_count ? tsr__target_name(p->targets[0]) : NULL;
  planned.target_count = p->target_count;
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
