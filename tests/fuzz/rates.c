/* Rates of a machine: any text, and what a step and a plan cost with them. What is read is written the same. */
#include "small_model.h"
#include "tessera/unstable/planning.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever the rates are, the answer fits in the budget, or says that nothing does. */
static void plan(const tsr_model *model, const tsr_simulate_options *how) {
  tsr_planning_options options = {
      .struct_bytes = sizeof options, .allow = TSR_ALLOW_RECOMPUTE | TSR_ALLOW_OFFLOAD, .how = how};
  tsr_planning *planning = NULL;
  tsr_planned planned = {.budget_bytes = 0};
  tsr_error error = {0};
  int status = tsr_planning_new(model, &options, &planning, &error);
  check_error(status, &error);
  if (status == 0) status = tsr_planning_solve(planning, UINT64_C(1) << 22, &planned, &error);
  check_error(status, &error);
  require(status || planned.verdict == TSR_PLANNING_DOES_NOT_FIT ||
              planned.with.reserved_bytes <= planned.budget_bytes,
          "what is found fits");
  tsr_planned_release(&planned);
  tsr_planning_free(planning);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr_rates *rates = NULL, *again = NULL;
  tsr_error error = {0};
  int status = tsr_rates_parse((const char *)data, size, &rates, &error);
  check_error(status, &error);
  require((status == 0) == (rates != NULL), "rates, or an error");
  if (!rates) return 0;
  const char *text = tsr_rates_text(rates);
  status = tsr_rates_parse(text, strlen(text), &again, &error);
  require(!status, "what is written are rates");
  require(strcmp(tsr_rates_text(again), text) == 0, "and are written the same");
  tsr_rates_free(again);
  tsr_model *model = fuzz_small_model(2);
  tsr_simulate_options how = {.struct_bytes = sizeof how,
                              .batch = 2,
                              .sequence = 8,
                              .steps = 2,
                              .checkpoint = TSR_CHECKPOINT_FULL,
                              .rates = rates};
  fuzz_simulate(model, &how);
  how.checkpoint = TSR_CHECKPOINT_NONE;
  how.ranks = 2;
  how.zero = 3;
  fuzz_simulate(model, &how);
  how.ranks = how.zero = 0;
  plan(model, &how);
  tsr_model_free(model);
  tsr_rates_free(rates);
  return 0;
}
