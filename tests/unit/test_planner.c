/* The planner: what it finds fits, is what simulations say, gets no faster with less memory, and never beats its own
 * bound. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/planning.h>

#include "models/model.h"
#include "plan/planner.h"
#include "test_support.h"

/* Every 45th budget, each of which is simulated, and all in `./run test all`; under a sanitizer those of the last case. */
enum { BUDGETS = 100, STRIDE = 45, EACH_SIMULATED = 9 };

static const struct {
  const char *model, *plan, *gpu;
  uint64_t batch, sequence;
} cases[] = {
    {"gpt2", "{\"version\":1}", "t4", 4, 512},
    {"gpt2", "{\"version\":1,\"attention\":\"eager\"}", "a100", 2, 256},
    {"gpt2-medium", "{\"version\":1,\"dtype\":\"autocast-bf16\"}", "a10", 3, 128},
    {"llama-3.2-1b", "{\"version\":1,\"dtype\":\"bf16\"}", "h100", 2, 512},
    {"mistral-7b", "{\"version\":1,\"dtype\":\"bf16\"}", "h200", 1, 1024},
    {"gpt2-bytes", "{\"version\":1}", "l4", 8, 64},
};

static tsr_model *model_named(const char *name) {
  tsr_model *model = NULL;
  tsr_error error;
  assert_int_equal(tsr_model_named(name, &model, &error), 0);
  return model;
}

static tsr_run_plan *plan_of(const char *text) {
  tsr_run_plan *plan = NULL;
  tsr_error error;
  assert_int_equal(tsr_run_plan_parse(text, strlen(text), &plan, &error), 0);
  return plan;
}

static tsr_planning *begin(const tsr_model *model, const tsr_run_plan *plan,
                           const tsr_simulate_options *how, unsigned allow) {
  tsr_planning_options options = TSR_OPTIONS_INIT(tsr_planning_options);
  tsr_planning *planning = NULL;
  tsr_error error;
  options.plan = plan;
  options.how = how;
  options.allow = allow;
  assert_int_equal(tsr_planning_new(model, &options, &planning, &error), 0);
  return planning;
}

/* The figures of `simulate --plan`. */
static void check_simulated(const tsr_model *model, const tsr_simulate_options *how,
                            const tsr_planned *planned) {
  tsr_simulate_options options = *how;
  tsr_simulation *simulation = NULL;
  tsr_error error;
  tsr_run_plan_options(planned->plan, &options);
  assert_int_equal(tsr_simulate(model, &options, &simulation, &error), 0);
  assert_int_equal(simulation->peak.totals.allocated_bytes, planned->with.peak_bytes);
  assert_int_equal(simulation->peak_reserved_bytes, planned->with.reserved_bytes);
  assert_true(simulation->step_seconds == planned->with.step_seconds);
  tsr_simulation_free(simulation);
}

static void check_one(const tsr_planned *now, const tsr_planned *before) {
  if (now->verdict == TSR_PLANNING_DOES_NOT_FIT) {
    assert_true(now->with.reserved_bytes > now->budget_bytes);
    return;
  }
  assert_true(now->with.reserved_bytes <= now->budget_bytes);
  assert_true(now->bound_seconds <= now->with.step_seconds * (1 + 1e-9));
  assert_true(now->bound_bytes <= now->with.peak_bytes);
  assert_false(now->is_proved);
  if (before->verdict == TSR_PLANNING_DOES_NOT_FIT) return;
  assert_true(now->with.reserved_bytes <= before->with.reserved_bytes);
  assert_true(now->with.step_seconds >= before->with.step_seconds * (1 - 1e-9));
}

static void check_budgets(size_t index, unsigned allow) {
  tsr_simulate_options how = TSR_OPTIONS_INIT(tsr_simulate_options);
  how.batch = cases[index].batch;
  how.sequence = cases[index].sequence;
  how.steps = 3;
  how.gpu = cases[index].gpu;
  tsr_model *model = model_named(cases[index].model);
  tsr_run_plan *plan = plan_of(cases[index].plan);
  tsr_planning *planning = begin(model, plan, &how, allow);
  tsr_planned before = {.verdict = TSR_PLANNING_DOES_NOT_FIT};
  uint64_t most = 0;
  for (size_t i = 0; i < BUDGETS; i += getenv("TESSERA_WHOLE") ? 1 : STRIDE) {
    tsr_planned now;
    tsr_error error;
    uint64_t budget = i ? most - most / BUDGETS * i : UINT64_MAX;
    assert_int_equal(tsr_planning_solve(planning, budget, &now, &error), 0);
    if (i == 0) most = now.as_is.reserved_bytes;
    check_one(&now, &before);
    if (i % EACH_SIMULATED == 0) check_simulated(model, &how, &now);
    before = now; /* its plan is gone */
    tsr_planned_release(&now);
  }
  tsr_error error;
  assert_int_equal(tsr_planning_solve(planning, most / 100, &before, &error), 0);
  assert_int_equal(before.verdict, TSR_PLANNING_DOES_NOT_FIT);
  tsr_planned_release(&before);
  tsr_planning_free(planning);
  tsr_run_plan_free(plan);
  tsr_model_free(model);
}

static void test_less_memory_takes_no_less_time(void **state) {
  (void)state;
  for (size_t i = IS_SANITIZED ? 5 : 0; i < sizeof cases / sizeof *cases; i++) {
    unsigned simple = TSR_ALLOW_KERNELS | TSR_ALLOW_LOSS_CHUNK | TSR_ALLOW_RECOMPUTE;
    bool is_whole = getenv("TESSERA_WHOLE") != NULL;
    if (i % 2) check_budgets(i, simple);
    if (i % 2 == 0 || is_whole) check_budgets(i, tsr_allow_default());
  }
}

/* The figures of `simulate --plan` are those of every rank: it is not known which of them a card runs. */
static void check_ranks(const tsr_model *model, const tsr_simulate_options *how,
                        const tsr_planned *planned) {
  tsr_simulate_options options = *how;
  tsr_error error;
  tsr_run_plan_options(planned->plan, &options);
  for (uint64_t rank = 1; rank < options.ranks; rank++) {
    tsr_simulation *simulation = NULL;
    options.rank = rank;
    assert_int_equal(tsr_simulate(model, &options, &simulation, &error), 0);
    assert_int_equal(simulation->peak.totals.allocated_bytes, planned->with.peak_bytes);
    assert_int_equal(simulation->peak_reserved_bytes, planned->with.reserved_bytes);
    tsr_simulation_free(simulation);
  }
}

enum { RANK_BUDGETS = 20 };

/* ZeRO's stage is one choice more: with less memory, ranks take no less time, and all stages are of use. */
static void check_cards(const char *name, const char *plan_text, const char *gpu, uint64_t ranks,
                        unsigned *stages) {
  tsr_simulate_options how = TSR_OPTIONS_INIT(tsr_simulate_options);
  char text[128];
  how.batch = 2;
  how.sequence = 128;
  how.steps = 3;
  how.gpu = gpu;
  (void)snprintf(text, sizeof text, plan_text, (unsigned long long)ranks);
  tsr_model *model = model_named(name);
  tsr_run_plan *plan = plan_of(text);
  tsr_planning *planning = begin(model, plan, &how, tsr_allow_default());
  tsr_planned before = {.verdict = TSR_PLANNING_DOES_NOT_FIT};
  uint64_t most = 0;
  for (size_t i = 0; i < RANK_BUDGETS; i += IS_SANITIZED || !getenv("TESSERA_WHOLE") ? 14 : 1) {
    tsr_planned now;
    tsr_error error;
    uint64_t budget = i ? most - most / RANK_BUDGETS * i : UINT64_MAX;
    assert_int_equal(tsr_planning_solve(planning, budget, &now, &error), 0);
    if (i == 0) most = now.as_is.reserved_bytes;
    check_one(&now, &before);
    check_simulated(model, &how, &now);
    if (i % EACH_SIMULATED == 5) check_ranks(model, &how, &now);
    tsr_simulate_options found = how;
    tsr_run_plan_options(now.plan, &found);
    assert_int_equal(found.ranks, ranks);
    assert_true(now.with.sent_bytes > 0 && now.with.stall_seconds >= 0);
    *stages |= 1u << found.zero;
    before = now; /* its plan is gone */
    tsr_planned_release(&now);
  }
  tsr_planning_free(planning);
  tsr_run_plan_free(plan);
  tsr_model_free(model);
}

static void test_chooses_what_ranks_share(void **state) {
  (void)state;
  unsigned stages = 0;
  bool is_whole = getenv("TESSERA_WHOLE") != NULL;
  for (uint64_t ranks = 2; ranks <= 8; ranks += 6) {
    if (ranks > 2 || is_whole)
      check_cards("gpt2", "{\"ranks\":%llu,\"version\":1}", "t4", ranks, &stages);
    if ((ranks == 2 && !IS_SANITIZED) || is_whole)
      check_cards("llama-3.2-1b", "{\"dtype\":\"bf16\",\"ranks\":%llu,\"version\":1}", "h100",
                  ranks, &stages);
  }
  assert_true(stages & 1u << 3); /* the leanest */
}

/* A stage that the plan to begin with has is kept, and 0 if none may be chosen. */
static void test_keeps_the_stage(void **state) {
  enum { OTHERS = IS_SANITIZED ? TSR_ALLOW_KERNELS | TSR_ALLOW_RECOMPUTE : 63 };
  static const struct {
    const char *plan;
    unsigned allow;
    uint64_t stage;
  } kept[] = {{"{\"ranks\":4,\"version\":1,\"zero\":1}", OTHERS | TSR_ALLOW_ZERO, 1},
              {"{\"ranks\":4,\"version\":1}", OTHERS, 0},
              {"{\"ranks\":1,\"version\":1}", OTHERS | TSR_ALLOW_ZERO, 0}};
  (void)state;
  tsr_model *model = model_named("gpt2-bytes");
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
    tsr_simulate_options how = TSR_OPTIONS_INIT(tsr_simulate_options);
    how.batch = 4;
    how.sequence = 64;
    tsr_run_plan *plan = plan_of(kept[i].plan);
    tsr_planning *planning = begin(model, plan, &how, kept[i].allow);
    tsr_planned planned;
    tsr_error error;
    for (uint64_t budget = UINT64_C(1) << 40; budget >= UINT64_C(1) << 20; budget >>= 10) {
      assert_int_equal(tsr_planning_solve(planning, budget, &planned, &error), 0);
      tsr_simulate_options found = how;
      tsr_run_plan_options(planned.plan, &found);
      assert_int_equal(found.zero, kept[i].stage);
      tsr_planned_release(&planned);
    }
    tsr_planning_free(planning);
    tsr_run_plan_free(plan);
  }
  tsr_model_free(model);
}

/* The bound extrapolated from few blocks is not above the whole model's; times of kernels, copies and the link are equal. */
static void check_bounds(const char *name, const char *plan_text, double link_bytes_per_s) {
  tsr_simulate_options how = TSR_OPTIONS_INIT(tsr_simulate_options);
  how.batch = 4;
  how.sequence = 128;
  how.steps = 3;
  how.gpu = "a100";
  how.link_bytes_per_s = link_bytes_per_s;
  tsr_model *model = model_named(name);
  tsr_run_plan *plan = plan_of(plan_text);
  tsr_planning *planning = begin(model, plan, &how, tsr_allow_default());
  tsr_error error;
  assert_int_equal(tsr__planner_list_ways(planning, &error), 0);
  assert_true(planning->ways.count > 100);
  for (size_t i = 0; i < planning->ways.count; i += IS_SANITIZED ? 39 : 13) {
    tsr__way *way = &planning->ways.items[i];
    double step_s = way->step_s, links_s = way->links_s, waited_s = way->waited_s;
    assert_int_equal(tsr__planner_survey_way(planning, way, &error), 0);
    const tsr__cost *cost = &way->survey.cost;
    assert_true(step_s <= way->step_s * (1 + 1e-6));
    assert_true(fabs(waited_s - cost->waited_s) <= 1e-6 * cost->waited_s);
    assert_true(fabs(links_s - cost->links_s) <= 1e-6 * cost->links_s);
    assert_true(way->step_s <= cost->step_s * (1 + 1e-9));
  }
  tsr_planning_free(planning);
  tsr_run_plan_free(plan);
  tsr_model_free(model);
}

static void test_few_blocks_tell_of_all(void **state) {
  (void)state;
  for (double rate = 1e9; rate <= 1e12; rate *= 1000) {
    check_bounds("gpt2", "{\"ranks\":8,\"version\":1}", rate);
    if (IS_SANITIZED) return;
    check_bounds("llama-3.2-1b", "{\"dtype\":\"bf16\",\"ranks\":3,\"version\":1}", rate);
    check_bounds("gpt2-medium", "{\"clip\":\"1.0\",\"ranks\":2,\"version\":1}", rate);
  }
}

/* A slower link: no stage sends less, so that what takes less memory is not for nothing. */
static void test_a_slow_link_costs(void **state) {
  (void)state;
  tsr_model *model = model_named("gpt2");
  tsr_run_plan *plan = plan_of("{\"ranks\":8,\"version\":1}");
  double last_s = 0;
  for (double rate = 1e12; rate > 1e8; rate /= 10) {
    tsr_simulate_options how = TSR_OPTIONS_INIT(tsr_simulate_options);
    how.batch = 2;
    how.sequence = 128;
    how.gpu = "a100";
    how.link_bytes_per_s = rate;
    tsr_planning *planning = begin(model, plan, &how, TSR_ALLOW_ZERO);
    tsr_planned planned;
    tsr_error error;
    assert_int_equal(tsr_planning_solve(planning, UINT64_C(1) << 40, &planned, &error), 0);
    assert_true(planned.with.step_seconds > last_s);
    assert_true(planned.with.step_seconds >= (double)planned.with.sent_bytes / rate);
    assert_true(planned.bound_seconds <= planned.with.step_seconds * (1 + 1e-9));
    last_s = planned.with.step_seconds;
    tsr_planned_release(&planned);
    tsr_planning_free(planning);
  }
  tsr_run_plan_free(plan);
  tsr_model_free(model);
}

/* What fits as it is stays as it is; where nothing may be changed, nothing is. */
static void test_changes_nothing_without_need(void **state) {
  (void)state;
  tsr_simulate_options how = TSR_OPTIONS_INIT(tsr_simulate_options);
  how.batch = 4;
  how.sequence = 64;
  tsr_model *model = model_named("gpt2-bytes");
  tsr_planning *planning = begin(model, NULL, &how, 0);
  tsr_planned planned;
  tsr_error error;
  assert_int_equal(tsr_planning_solve(planning, UINT64_C(1) << 40, &planned, &error), 0);
  assert_int_equal(planned.verdict, TSR_PLANNING_FITS);
  assert_string_equal(tsr_run_plan_text(planned.plan), "{\"version\":1}\n");
  assert_int_equal(planned.change_count, 0);
  tsr_planned_release(&planned);
  assert_int_equal(tsr_planning_solve(planning, UINT64_C(1) << 20, &planned, &error), 0);
  assert_int_equal(planned.verdict, TSR_PLANNING_DOES_NOT_FIT);
  assert_true(planned.is_proved);
  assert_string_equal(tsr_run_plan_text(planned.plan), "{\"version\":1}\n");
  tsr_planned_release(&planned);
  tsr_planning_free(planning);
  tsr_model_free(model);
}

/* GPT-2 of PyTorch's tutorial on memory: below what full checkpointing takes, and nothing is computed again. */
static void test_finds_what_is_free(void **state) {
  (void)state;
  tsr_simulate_options how = TSR_OPTIONS_INIT(tsr_simulate_options);
  how.batch = 4;
  how.sequence = 512;
  how.steps = 3;
  how.gpu = "t4";
  tsr_model *model = model_named("gpt2");
  tsr_planning *planning =
      begin(model, NULL, &how, tsr_allow_default() & ~(unsigned)TSR_ALLOW_OFFLOAD);
  tsr_planned planned;
  tsr_error error;
  assert_int_equal(tsr_planning_solve(planning, UINT64_C(3) << 30, &planned, &error), 0);
  assert_int_equal(planned.verdict, TSR_PLANNING_FITS_WITH_CHANGES);
  assert_int_equal(planned.with.recomputed_flops, 0);
  assert_true(planned.with.reserved_bytes <= UINT64_C(3) << 30);
  assert_true(planned.with.step_seconds < planned.as_is.step_seconds);
  tsr_planned_release(&planned);
  tsr_planning_free(planning);
  tsr_model_free(model);
}

static void test_reads_what_is_allowed(void **state) {
  (void)state;
  unsigned allow = 77;
  tsr_error error;
  assert_int_equal(tsr_allow_parse("recompute,offload", &allow, &error), 0);
  assert_int_equal(allow, TSR_ALLOW_RECOMPUTE | TSR_ALLOW_OFFLOAD);
  assert_int_equal(tsr_allow_parse("zero", &allow, &error), 0);
  assert_int_equal(allow, TSR_ALLOW_ZERO);
  assert_int_equal(tsr_allow_parse("all", &allow, &error), 0);
  assert_int_equal(allow, tsr_allow_default() | TSR_ALLOW_PRECISION | TSR_ALLOW_NARROW);
  assert_int_equal(tsr_allow_parse("adapters,quantize", &allow, &error), 0); /* not among "all" */
  assert_int_equal(allow, TSR_ALLOW_ADAPTERS | TSR_ALLOW_QUANTIZE);
  assert_int_equal(tsr_allow_parse("all", &allow, &error), 0);
  assert_int_equal(tsr_allow_parse("recompute,", &allow, &error), TSR_ERROR_ARGUMENT);
  assert_int_equal(tsr_allow_parse("fsdp", &allow, &error), TSR_ERROR_ARGUMENT);
  assert_int_equal(allow, tsr_allow_default() | TSR_ALLOW_PRECISION | TSR_ALLOW_NARROW);
}

/* The cheapest bytes first, the last tensor in part. */
static void test_bounds_time(void **state) {
  tsr__survey_item items[] = {{"", "", 100, 2, 4}, {"", "", 50, 1, 1}, {"", "", 10, 1, 0}};
  tsr__survey survey = {.most_bytes = 1000,
                        .floor_bytes = 600,
                        .repeats = 1,
                        .items = {items, sizeof items / sizeof *items, 3}};
  (void)state;
  assert_true(tsr__survey_extra(&survey, 1000) == 0);
  assert_true(tsr__survey_extra(&survey, 990) == 0);
  assert_true(fabs(tsr__survey_extra(&survey, 965) - 0.5) < 1e-12);
  assert_true(fabs(tsr__survey_extra(&survey, 940) - 1) < 1e-12);
  assert_true(fabs(tsr__survey_extra(&survey, 840) - 5) < 1e-12);
  assert_true(fabs(tsr__survey_extra(&survey, 740) - 9) < 1e-12);
  assert_true(tsr__survey_extra(&survey, 739) < 0); /* all is dropped */
  survey.repeats = 3;
  assert_true(fabs(tsr__survey_extra(&survey, 840) - 15) < 1e-12);
  survey.floor_bytes = 900;
  assert_true(tsr__survey_extra(&survey, 899) < 0);
}

/* What is known of candidates before they are simulated: their time, to 0.1 % (5 %, where activations are copied: those of the last block
 * are not), and what they reserve at least, to 2 %. */
static void check_way(tsr_planning *p, const tsr__way *way, size_t *checked) {
  for (size_t i = 0; i < way->candidates.count; i++) {
    const tsr__candidate *c = &way->candidates.items[i];
    tsr_run_plan_cost cost;
    tsr_error error;
    if (i % EACH_SIMULATED && i + 1 < way->candidates.count) continue;
    assert_int_equal(tsr__planner_measure(p, c->plan, &cost, &error), 0);
    if (!cost.is_possible) continue;
    if (c->least_bytes - c->least_bytes / 50 > cost.reserved_bytes)
      fail_msg("%llu are not the least of %llu", (unsigned long long)c->least_bytes,
               (unsigned long long)cost.reserved_bytes);
    double error_part = tsr__way_copies_activations(way) ? 0.05 : 0.001;
    assert_true(c->estimate_s * (1 - error_part) <= cost.step_seconds);
    ++*checked;
  }
}

static size_t check_ways(size_t at, const char *text) {
  static const uint64_t budgets[] = {UINT64_C(1) << 40, UINT64_C(3) << 30, UINT64_C(1) << 30};
  size_t checked = 0;
  tsr_model *model = model_named(cases[at].model);
  tsr_run_plan *plan = plan_of(text);
  tsr_simulate_options how = TSR_OPTIONS_INIT(tsr_simulate_options);
  how.batch = cases[at].batch;
  how.sequence = cases[at].sequence;
  how.steps = 2;
  how.gpu = cases[at].gpu;
  tsr_planning *p = begin(model, plan, &how, tsr_allow_default() | TSR_ALLOW_NARROW);
  for (size_t k = 0; k < (getenv("TESSERA_WHOLE") ? sizeof budgets / sizeof *budgets : 2); k++) {
    tsr_planned planned;
    tsr_error error;
    assert_int_equal(tsr_planning_solve(p, budgets[k], &planned, &error), 0);
    tsr_planned_release(&planned);
  }
  for (size_t k = 0; k < p->ways.count; k += getenv("TESSERA_WHOLE") ? 1 : IS_SANITIZED ? 30 : 12)
    if (p->ways.items[k].is_listed) check_way(p, &p->ways.items[k], &checked);
  tsr_planning_free(p);
  tsr_run_plan_free(plan);
  tsr_model_free(model);
  return checked;
}

/* The time of a way is estimated before it is surveyed, and is what the survey finds, also if some blocks are recomputed whose
 * activations the others keep on the host. */
static void check_estimate(uint64_t layers, const char *choices) {
  char text[256];
  tsr_simulate_options how = TSR_OPTIONS_INIT(tsr_simulate_options);
  tsr_model *small = model_named("gpt2-bytes"), *model = NULL;
  tsr_planned planned;
  tsr_error error;
  how.batch = 2;
  how.sequence = 64;
  how.steps = 3;
  how.gpu = "a100";
  (void)snprintf(text, sizeof text, "{\"version\":1,\"offload\":\"activations\",%s}", choices);
  assert_int_equal(tsr__model_resized(small, layers, small->heads, &model, &error), 0);
  tsr_run_plan *plan = plan_of(text);
  tsr_planning *planning = begin(model, plan, &how, TSR_ALLOW_KERNELS);
  assert_int_equal(tsr_planning_solve(planning, UINT64_MAX, &planned, &error), 0);
  assert_true(planned.bound_seconds <= planned.with.step_seconds * (1 + 1e-9));
  assert_true(planning->ways.count > 0);
  for (size_t i = 0; i < planning->ways.count; i++) {
    tsr__way *way = &planning->ways.items[i];
    double kernels_s = way->kernels_s, copies_s = way->copies_s, step_s = way->step_s;
    if (way->is_surveyed) continue;
    assert_int_equal(tsr__planner_survey_way(planning, way, &error), 0);
    assert_true(fabs(kernels_s - way->kernels_s) <= 1e-6 * way->kernels_s);
    assert_true(fabs(copies_s - way->copies_s) <= 1e-6 * way->copies_s);
    assert_true(fabs(step_s - way->step_s) <= 1e-6 * way->step_s);
  }
  tsr_planned_release(&planned);
  tsr_planning_free(planning);
  tsr_run_plan_free(plan);
  tsr_model_free(model);
  tsr_model_free(small);
}

static void test_estimates_unequal_blocks(void **state) {
  (void)state;
  check_estimate(1, "\"checkpoint\":\"none\"");
  check_estimate(1, "\"blocks\":[{\"first\":0,\"last\":0,\"checkpoint\":\"full\"}]");
  check_estimate(8, "\"checkpoint\":\"full\"");
  check_estimate(8, "\"checkpoint\":\"every:3\"");
  check_estimate(8, "\"blocks\":[{\"first\":0,\"last\":1,\"checkpoint\":\"full\"}]");
  check_estimate(8, "\"blocks\":[{\"first\":2,\"last\":6,\"checkpoint\":\"full\"}]");
}

static void test_knows_candidates(void **state) {
  const size_t count = sizeof cases / sizeof *cases;
  size_t checked = check_ways(count - 1, "{\"version\":1,\"ranks\":4}");
  (void)state;
  bool is_whole = getenv("TESSERA_WHOLE") != NULL;
  for (size_t i = 0; i < count && (is_whole || !IS_SANITIZED); i += is_whole ? 1 : 3)
    checked += check_ways(i, cases[i].plan);
  assert_true(checked > 100 || IS_SANITIZED);
}

/* Proportions are kept, and all that is no size. Where heads do not divide a width, it is a multiple of 64 as it was. */
static void test_resizes_models(void **state) {
  static const struct {
    const char *model;
    uint64_t layers, heads, width, inner, kv_heads, head_width;
  } rows[] = {{"gpt2", 20, 25, 1600, 6400, 25, 64},
              {"llama-2-7b", 30, 33, 4224, 11328, 33, 128},
              {"llama-3-8b", 43, 36, 4608, 16128, 9, 128},
              {"llama-3.2-1b", 4, 4, 256, 1024, 1, 64}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    tsr_model *model = model_named(rows[i].model), *other = NULL;
    tsr_model_sizes before, after;
    tsr_error error;
    assert_int_equal(tsr__model_resized(model, rows[i].layers, rows[i].heads, &other, &error), 0);
    assert_true(tsr_model_sizes_of(model, &before) && tsr_model_sizes_of(other, &after));
    assert_int_equal(after.layers, rows[i].layers);
    assert_int_equal(after.heads, rows[i].heads);
    assert_int_equal(after.width, rows[i].width);
    assert_int_equal(after.inner, rows[i].inner);
    assert_int_equal(after.kv_heads, rows[i].kv_heads);
    assert_int_equal(after.head_width, rows[i].head_width);
    assert_int_equal(after.vocabulary, before.vocabulary);
    assert_int_equal(after.positions, before.positions);
    assert_int_equal(model->is_tied, other->is_tied);
    tsr_model_free(other);
    assert_true(tsr__model_resized(model, 5000, rows[i].heads, &other, &error) != 0);
    tsr_model_free(model);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_less_memory_takes_no_less_time),
      cmocka_unit_test(test_chooses_what_ranks_share),
      cmocka_unit_test(test_keeps_the_stage),
      cmocka_unit_test(test_few_blocks_tell_of_all),
      cmocka_unit_test(test_a_slow_link_costs),
      cmocka_unit_test(test_changes_nothing_without_need),
      cmocka_unit_test(test_finds_what_is_free),
      cmocka_unit_test(test_reads_what_is_allowed),
      cmocka_unit_test(test_bounds_time),
      cmocka_unit_test(test_estimates_unequal_blocks),
      cmocka_unit_test(test_knows_candidates),
      cmocka_unit_test(test_resizes_models),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
