/* The search for plans: a small model and a run that the input chooses, and two budgets. It ends, its answer is what a simulation of
 * its plan finds, and with less memory nothing becomes faster. */
#include <math.h>

#include "require.h"
#include "tessera/tessera.h"
#include "tessera/unstable/planning.h"
#include "tessera/unstable/simulation.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Bytes of the input, one choice after another; zeros after the last. */
typedef struct choices {
  const uint8_t *data;
  size_t left;
} choices;

static unsigned choose(choices *c, unsigned count) {
  if (!c->left) return 0;
  c->left--;
  return *c->data++ % count;
}

static tsr_model *make_model(choices *c) {
  char text[512];
  tsr_model *model = NULL;
  tsr_error error = {0};
  unsigned heads = 1 + choose(c, 3), width = heads * 2 * (1 + choose(c, 24));
  unsigned layers = 1 + choose(c, 3), vocabulary = 1 + 16 * choose(c, 64);
  bool is_llama = choose(c, 2);
  (void)snprintf(text, sizeof text,
                 is_llama ? "{\"model_type\":\"llama\",\"vocab_size\":%u,\"hidden_size\":%u,"
                            "\"num_hidden_layers\":%u,\"num_attention_heads\":%u,"
                            "\"intermediate_size\":%u,\"tie_word_embeddings\":%s}"
                          : "{\"model_type\":\"gpt2\",\"vocab_size\":%u,\"n_embd\":%u,"
                            "\"n_layer\":%u,\"n_head\":%u,\"n_inner\":%u,"
                            "\"scale_attn_weights\":%s}",
                 vocabulary, width, layers, heads, 1 + width * choose(c, 5),
                 choose(c, 2) ? "true" : "false");
  int status = tsr_model_read(text, strlen(text), &model, &error);
  check_error(status, &error);
  return model;
}

static tsr_simulate_options choose_run(choices *c) {
  static const char *const gpus[] = {"a100", "t4", "h100", "rtx4090"};
  return (tsr_simulate_options){.struct_bytes = sizeof(tsr_simulate_options),
                                .batch = 1 + choose(c, 4),
                                .sequence = 1 + 8 * choose(c, 12),
                                .steps = 2,
                                .book = (tsr_simulate_book)choose(c, 2),
                                .gpu = gpus[choose(c, 4)],
                                .ranks = choose(c, 3)};
}

/* What `simulate --plan` finds. */
static void check_simulated(const tsr_model *model, const tsr_simulate_options *how,
                            const tsr_planned *planned) {
  tsr_simulate_options options = *how;
  tsr_simulation *simulation = NULL;
  tsr_error error = {0};
  if (!planned->plan || !planned->with.is_possible) return;
  tsr_run_plan_options(planned->plan, &options);
  int status = tsr_simulate(model, &options, &simulation, &error);
  check_error(status, &error);
  require(!status, "the plan can be run");
  require(simulation->peak.totals.allocated_bytes == planned->with.peak_bytes, "with this peak");
  require(simulation->peak_reserved_bytes == planned->with.reserved_bytes, "and as much reserved");
  require(simulation->step_seconds == planned->with.step_seconds, "in this time");
  tsr_simulation_free(simulation);
}

static void check(const tsr_planned *planned) {
  bool fits = planned->with.reserved_bytes <= planned->budget_bytes;
  require(fits == (planned->verdict != TSR_PLANNING_DOES_NOT_FIT), "the verdict is true");
  require(planned->with.step_seconds >= 0 && isfinite(planned->with.step_seconds), "a time");
  if (!fits) return;
  require(!planned->is_proved, "what fits is not proved to be impossible");
  require(planned->bound_bytes <= planned->with.peak_bytes, "no less memory than is possible");
  require(planned->bound_seconds <= planned->with.step_seconds * (1 + 1e-9), "and no less time");
}

static void search(const tsr_model *model, const tsr_planning_options *options, choices *c) {
  tsr_planning *planning = NULL;
  tsr_planned most = {.budget_bytes = 0}, less = {.budget_bytes = 0};
  tsr_error error = {0};
  int status = tsr_planning_new(model, options, &planning, &error);
  check_error(status, &error);
  if (status) return;
  uint64_t budget = (UINT64_C(1) << (10 + choose(c, 20))) + choose(c, 256) * UINT64_C(4099);
  require(!tsr_planning_solve(planning, budget, &most, &error), "an answer");
  require(!tsr_planning_solve(planning, budget - budget / 4, &less, &error), "another one");
  check_error(0, &error);
  check(&most);
  check(&less);
  check_simulated(model, options->how, &less);
  if (less.verdict != TSR_PLANNING_DOES_NOT_FIT) {
    require(most.verdict != TSR_PLANNING_DOES_NOT_FIT, "more memory is enough, too");
    require(most.with.step_seconds <= less.with.step_seconds * (1 + 1e-9), "and not slower");
  }
  tsr_planned_release(&most);
  tsr_planned_release(&less);
  tsr_planning_free(planning);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  choices c = {data, size};
  tsr_model *model = make_model(&c);
  if (!model) return 0;
  tsr_simulate_options how = choose_run(&c);
  unsigned allow = choose(&c, 256) | choose(&c, 2) << 8;
  tsr_planning_options options = {.struct_bytes = sizeof options, .allow = allow, .how = &how};
  search(model, &options, &c);
  tsr_model_free(model);
  return 0;
}
