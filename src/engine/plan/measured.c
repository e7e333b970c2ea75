/* measured.c - plans that were simulated, each only once, and whether they fit. */
#include <assert.h>

#include "base/memory.h"
#include "plan/planner.h"

bool tsr__planner_is_refused(const tsr_effort *effort, int status) {
  if (tsr__effort_is_over(effort)) return false;
  return status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED ||
         status == TSR_ERROR_LIMIT;
}

int tsr__planner_fault(const tsr_planning *p, int status, tsr_error *error) {
  if (!tsr__planner_is_refused(p->how.effort, status)) return status;
  if (error) *error = (tsr_error){.status = TSR_OK};
  return 0;
}

/* What is known of an equal plan, or NULL; lost ones only if nothing else is. `*head`: the place of the first plan with its
 * number, from 1; 0: none. */
static tsr__simulated *find_simulated(const tsr_planning *p, const tsr_run_plan *plan,
                                      uint64_t number, uint32_t *head) {
  tsr__map places = p->places; /* a copy that is only looked into */
  const uint64_t *place = tsr__map_find(&places, number);
  tsr__simulated *lost = NULL;
  *head = place ? (uint32_t)*place : 0;
  for (uint32_t at = *head; at; at = p->simulated.items[at - 1].next) {
    tsr__simulated *row = &p->simulated.items[at - 1];
    if (!tsr__run_plan_equal(row->plan, plan)) continue;
    if (row->what != TSR__KNOWN_LOST) return row;
    lost = row;
  }
  return lost;
}

static int remember(tsr_planning *p, const tsr_run_plan *plan, uint64_t number,
                    const tsr__simulated *found, tsr_error *error) {
  tsr__simulated row = *found;
  row.plan = tsr__run_plan_copy(plan);
  uint64_t *place = row.plan ? tsr__map_put(&p->places, number, 0, NULL) : NULL;
  if (place && TSR__VECTOR_PUSH(&p->simulated, row)) {
    *place = p->simulated.count;
    return 0;
  }
  tsr_run_plan_free(row.plan);
  return tsr__fail_memory(error);
}

static int run(tsr_planning *p, const tsr_run_plan *plan, tsr__measure_limit *limit,
               tsr_run_plan_cost *out, tsr_error *error) {
  return tsr__planner_fault(p, tsr__plan_measure(plan, p->model, &p->how, limit, out, error),
                            error);
}

/* Run a plan that was not run because it was slow, as if it had been. */
static int resolve(tsr_planning *p, tsr__simulated *known, tsr_error *error) {
  tsr__measure_limit limit = {.most_reserved_bytes = known->bytes};
  int status = run(p, known->plan, &limit, &known->cost, error);
  known->what = limit.over_bytes ? TSR__KNOWN_LOST : TSR__KNOWN_COST;
  known->bytes = limit.over_bytes;
  return status;
}

int tsr__planner_resolve(tsr_planning *p, const tsr_run_plan *plan, const tsr__simulated **out,
                         tsr_error *error) {
  uint32_t head;
  tsr__simulated *known = find_simulated(p, plan, tsr__run_plan_number(plan), &head);
  assert(known);
  *out = known;
  return known->what == TSR__KNOWN_SLOW ? resolve(p, known, error) : 0;
}

static tsr__simulated what_was_found(const tsr_run_plan_cost *cost,
                                     const tsr__measure_limit *limit) {
  tsr__simulated found = {.cost = *cost, .what = TSR__KNOWN_COST};
  if (limit->over_bytes) found.what = TSR__KNOWN_LARGE;
  if (limit->over_bytes) found.bytes = limit->over_bytes;
  if (limit->is_slower) found.what = TSR__KNOWN_SLOW;
  if (limit->is_slower) found.bytes = limit->most_reserved_bytes;
  return found;
}

int tsr__planner_measure_within(tsr_planning *p, const tsr_run_plan *plan,
                                tsr__measure_limit *limit, bool keeps_large, tsr_run_plan_cost *out,
                                tsr_error *error) {
  uint64_t number = tsr__run_plan_number(plan), most = limit->most_reserved_bytes;
  uint32_t head;
  tsr__simulated *known = find_simulated(p, plan, number, &head);
  int status = known && known->what == TSR__KNOWN_SLOW ? resolve(p, known, error) : 0;
  if (status) return status;
  if (known && known->what == TSR__KNOWN_LOST) known = NULL;
  bool is_large = known && known->what == TSR__KNOWN_LARGE;
  if (known && (!is_large || (most && known->bytes > most))) {
    *out = known->cost;
    limit->over_bytes = is_large ? known->bytes : 0;
    return 0;
  }
  status = run(p, plan, limit, out, error);
  p->tried += !known;
  if (status || (limit->over_bytes && !keeps_large)) return status;
  tsr__simulated found = what_was_found(out, limit);
  found.next = head;
  if (!known) return remember(p, plan, number, &found, error);
  found.plan = known->plan;
  found.next = known->next;
  *known = found;
  return 0;
}

bool tsr__planner_host_fits(const tsr_planning *p, const tsr_run_plan_cost *cost) {
  return !p->host_budget_bytes || cost->host_machine_bytes <= p->host_budget_bytes;
}

bool tsr__planner_fits(const tsr_planning *p, const tsr_run_plan_cost *cost, uint64_t budget) {
  return cost->is_possible && cost->reserved_bytes <= budget && tsr__planner_host_fits(p, cost);
}

int tsr__planner_measure(tsr_planning *p, const tsr_run_plan *plan, tsr_run_plan_cost *out,
                         tsr_error *error) {
  return tsr__planner_measure_within(p, plan, &(tsr__measure_limit){.most_reserved_bytes = 0},
                                     false, out, error);
}

int tsr__planner_try(tsr_planning *p, const tsr_run_plan *plan, uint64_t budget, double most_s,
                     tsr_run_plan_cost *out, bool *fits, tsr_error *error) {
  tsr__measure_limit limit = {.most_reserved_bytes = budget, .most_seconds = most_s};
  int status = tsr__planner_measure_within(p, plan, &limit, false, out, error);
  *fits = status == 0 && !limit.over_bytes && !limit.is_slower &&
          tsr__planner_fits(p, out, budget) && out->step_seconds <= most_s;
  return status;
}

int tsr__planner_survey(const tsr_planning *p, const tsr_run_plan *plan, uint64_t layers,
                        uint64_t batch, tsr__survey *out, bool *is_possible, tsr_error *error) {
  tsr_simulate_options options = p->how;
  tsr_run_plan_options(plan, &options);
  if (batch) options.batch = batch;
  assert(!options.profile && options.steps > 1);
  const tsr__survey_options wanted = {.sums_only = layers != 0,
                                      .may_recompute = p->allow & TSR_ALLOW_RECOMPUTE,
                                      .may_offload = p->allow & TSR_ALLOW_OFFLOAD};
  int status = tsr__measure_survey(p->model, &options, layers, &wanted, out, error);
  *is_possible = status == 0;
  return tsr__planner_fault(p, status, error);
}
