/* A DeepSpeed configuration: any text, for one rank and for two, and a step of the run that it asks for. What it sets is what a
 * plan file can hold. */
#include "small_model.h"
#include "tessera/registry.h"
#include "tessera/unstable/runs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A note is one line without control characters. */
static void take_note(void *context, const char *text) {
  (void)context;
  require(text[0], "a note");
  for (; *text; text++)
    require((unsigned char)*text >= 0x20 && *text != 0x7f, "a note that prints in one line");
}

static void simulate(const tsr_params *params) {
  tsr_run_plan *plan = NULL, *again = NULL;
  tsr_simulate_options how = {.struct_bytes = sizeof how};
  tsr_error error = {0};
  int status = tsr_simulate_options_of(params, &plan, &how, &error);
  check_error(status, &error);
  if (status) return;
  const char *text = tsr_run_plan_text(plan);
  require(!tsr_run_plan_parse(text, strlen(text), &again, &error), "a plan file can hold it");
  require(strcmp(tsr_run_plan_text(again), text) == 0, "all of it");
  how.steps = 2;
  how.sequence = 8;
  tsr_model *model = fuzz_small_model(3);
  if (fuzz_is_short(&how)) fuzz_simulate(model, &how);
  tsr_model_free(model);
  tsr_run_plan_free(again);
  tsr_run_plan_free(plan);
}

static void apply(const uint8_t *data, size_t size, uint64_t ranks) {
  tsr_ds_config_how how = {.ranks = ranks, .note = take_note};
  const tsr_question *question = tsr_question_find("simulate");
  tsr_params *params = NULL;
  tsr_error error = {0};
  int status = tsr_question_params(question, TSR_INTERFACE_COMMAND, &params, &error);
  require(!status, "parameters");
  status = tsr_ds_config_apply((const char *)data, size, &how, params, &error);
  check_error(status, &error);
  require(!status || status == TSR_ERROR_FORMAT || status == TSR_ERROR_ARGUMENT,
          "only a wrong configuration is refused");
  if (status == 0) simulate(params);
  tsr_params_free(params);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  apply(data, size, 0);
  apply(data, size, 2);
  return 0;
}
