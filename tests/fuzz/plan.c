/* A plan file: any text, and a step of a small model with it. */
#include "require.h"
#include "tessera/unstable/plans.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char config[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":31,\"n_positions\":16,\"n_embd\":8,\"n_layer\":5,"
    "\"n_head\":2}";

static void simulate(const tsr_run_plan *plan) {
  tsr_simulate_options options = {
      .struct_bytes = sizeof options, .batch = 4, .sequence = 8, .steps = 2};
  tsr_simulation *simulation = NULL;
  tsr_model *model = NULL;
  tsr_error error = {0};
  tsr_run_plan_options(plan, &options);
  if (options.accumulate > 8) return; /* no other test, but slower */
  require(!tsr_model_read(config, sizeof config - 1, &model, NULL), "a model");
  int status = tsr_simulate(model, &options, &simulation, &error);
  check_error(status, &error);
  require((status == 0) == (simulation != NULL), "a simulation, or an error");
  tsr_simulation_free(simulation);
  tsr_model_free(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr_run_plan *plan = NULL, *again = NULL;
  tsr_error error = {0};
  int status = tsr_run_plan_parse((const char *)data, size, &plan, &error);
  check_error(status, &error);
  require((status == 0) == (plan != NULL), "a plan, or an error");
  if (!plan) return 0;
  const char *text = tsr_run_plan_text(plan);
  require(!tsr_run_plan_parse(text, strlen(text), &again, &error), "what is written is a plan");
  require(strcmp(tsr_run_plan_text(again), text) == 0, "and is written the same");
  tsr_run_plan_free(again);
  simulate(plan);
  tsr_run_plan_free(plan);
  return 0;
}
