/* small_model.h - for fuzz targets: a model that is simulated in a moment, and one step of it. */
#ifndef TSR_FUZZ_SMALL_MODEL_H
#define TSR_FUZZ_SMALL_MODEL_H

#include "require.h"
#include "tessera/unstable/simulation.h"

/* Micro-batches, steps and evaluations of a run beyond which it is the same, but slower. */
enum { FUZZ_MOST_REPEATS = 8 };

static inline tsr_model *fuzz_small_model(unsigned layers) {
  char config[128];
  tsr_model *model = NULL;
  (void)snprintf(config, sizeof config,
                 "{\"model_type\":\"gpt2\",\"vocab_size\":31,\"n_positions\":16,\"n_embd\":8,"
                 "\"n_layer\":%u,\"n_head\":2}",
                 layers);
  require(!tsr_model_read(config, strlen(config), &model, NULL), "a model");
  return model;
}

/* Whether a run of the small model takes a moment. */
static inline bool fuzz_is_short(const tsr_simulate_options *how) {
  uint64_t batch = how->batch ? how->batch : 1;
  uint64_t pieces = how->micro_batch ? batch / how->micro_batch : 1;
  uint64_t accumulate = how->accumulate ? how->accumulate : 1;
  return accumulate <= FUZZ_MOST_REPEATS && pieces <= FUZZ_MOST_REPEATS &&
         how->steps <= FUZZ_MOST_REPEATS && (!how->eval_steps || how->eval_batch <= batch);
}

/* Simulate it; the result has finite times. */
static inline void fuzz_simulate(const tsr_model *model, const tsr_simulate_options *how) {
  tsr_simulation *simulation = NULL;
  tsr_error error = {0};
  int status = tsr_simulate(model, how, &simulation, &error);
  check_error(status, &error);
  require((status == 0) == (simulation != NULL), "a simulation, or an error");
  if (simulation)
    require(simulation->step_seconds >= 0 && simulation->step_seconds < 1e300,
            "a time of a step that is a number");
  tsr_simulation_free(simulation);
}

#endif
