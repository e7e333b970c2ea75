/* A step graph: any text that claims to be one, simulated as it is and with its modules rewritten. */
#include "questions.h"
#include "tessera/tessera.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void simulate(const tsr_model *model, const char *checkpoint, const char *offload) {
  tsr_simulate_options options = {.struct_bytes = sizeof options,
                                  .steps = 3,
                                  .capacity_bytes = UINT64_C(1) << 30,
                                  .checkpoint_modules = checkpoint,
                                  .offload_modules = offload};
  tsr_simulation *simulation = NULL;
  tsr_error error = {0};
  int status = tsr_simulate(model, &options, &simulation, &error);
  check_error(status, &error);
  require((status == 0) == (simulation != NULL), "a simulation, or an error");
  require(checkpoint || offload || status == 0 || status == TSR_ERROR_LIMIT,
          "a graph that was read can be run");
  tsr_simulation_free(simulation);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr_model *model = NULL;
  tsr_error error = {0};
  int status = tsr_model_read((const char *)data, size, &model, &error);
  check_error(status, &error);
  require((status == 0) == (model != NULL), "a model, or an error");
  if (model && tsr_model_is_traced(model)) {
    simulate(model, NULL, NULL);
    simulate(model, "*", NULL);
    simulate(model, "*.*", NULL);
    simulate(model, NULL, "*");
  }
  tsr_model_free(model);
  return 0;
}
