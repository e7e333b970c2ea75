/* A step graph: any text that claims to be one, simulated as it is and with its modules rewritten. */
#include "exec/build.h"
#include "require.h"
#include "tessera/tessera.h"
#include "tessera/unstable/planning.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* NULL, the graph's own card; or one that tessera knows, if it does not know that. */
static const char *card_of(const tsr_model *model) {
  tsr_simulate_options options = {.struct_bytes = sizeof options};
  tsr_error error = {0};
  int status = tsr__choose_gpu(model, &options, &error);
  check_error(status, &error);
  require(!status || status == TSR_ERROR_UNSUPPORTED, "a card is known, or is not");
  return status ? "a100" : NULL;
}

static void simulate(const tsr_model *model, const char *gpu, const char *checkpoint,
                     const char *offload, tsr_optimizer_form form) {
  tsr_simulate_options options = {.struct_bytes = sizeof options,
                                  .steps = 3,
                                  .capacity_bytes = UINT64_C(1) << 30,
                                  .gpu = gpu,
                                  .checkpoint_modules = checkpoint,
                                  .offload_modules = offload,
                                  .optimizer_form = form};
  tsr_simulation *simulation = NULL;
  tsr_error error = {0};
  int status = tsr_simulate(model, &options, &simulation, &error);
  check_error(status, &error);
  require((status == 0) == (simulation != NULL), "a simulation, or an error");
  require(checkpoint || offload || form || status == 0 || status == TSR_ERROR_LIMIT,
          "a graph that was read can be run");
  tsr_simulation_free(simulation);
}

/* Plan the graph for 4 MiB: the answer fits in the budget, or says that nothing does. */
static void plan(const tsr_model *model, const char *gpu) {
  tsr_simulate_options how = {.struct_bytes = sizeof how, .steps = 2, .gpu = gpu};
  tsr_planning_options options = {
      .struct_bytes = sizeof options, .allow = tsr_allow_default(), .how = &how};
  tsr_planning *planning = NULL;
  tsr_planned planned = {.budget_bytes = 0};
  tsr_error error = {0};
  int status = tsr_planning_new(model, &options, &planning, &error);
  check_error(status, &error);
  if (status == 0) {
    status = tsr_planning_solve(planning, UINT64_C(1) << 22, &planned, &error);
    check_error(status, &error);
    require(status || planned.verdict == TSR_PLANNING_DOES_NOT_FIT ||
                planned.with.reserved_bytes <= planned.budget_bytes,
            "what is found fits");
  }
  tsr_planned_release(&planned);
  tsr_planning_free(planning);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr_model *model = NULL;
  tsr_error error = {0};
  int status = tsr_model_read((const char *)data, size, &model, &error);
  check_error(status, &error);
  require((status == 0) == (model != NULL), "a model, or an error");
  if (model && tsr_model_is_traced(model)) {
    const char *gpu = card_of(model);
    simulate(model, gpu, NULL, NULL, TSR_OPTIMIZER_FORM_TRACED);
    simulate(model, gpu, "*", NULL, TSR_OPTIMIZER_FORM_TRACED);
    simulate(model, gpu, "*.*", NULL, TSR_OPTIMIZER_FORM_FOREACH);
    simulate(model, gpu, NULL, "*", TSR_OPTIMIZER_FORM_TRACED);
    simulate(model, gpu, NULL, NULL, TSR_OPTIMIZER_FORM_LOOP);
    plan(model, gpu);
  }
  tsr_model_free(model);
  return 0;
}
