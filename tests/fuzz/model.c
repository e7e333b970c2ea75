/* A model's description: any text, and one step of what it describes, with choices taken from its first two bytes.
 */
#include "models/model.h"
#include "questions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A step of more layers would be no other test, but slower. */
enum { MOST_LAYERS = 6 };

static tsr_simulate_options choose(uint8_t a, uint8_t b) {
  return (tsr_simulate_options){.batch = 1 + a % 3,
                                .sequence = 1 + b % 40,
                                .steps = 2,
                                .accumulate = 1 + (a >> 4) % 2,
                                .optimizer = (tsr_simulate_optimizer)(a % 5),
                                .dtype = (tsr_simulate_dtype)(b % 5),
                                .attention = (tsr_simulate_attention)(a >> 6),
                                .attention_chunk = 1 + b % 16,
                                .checkpoint = (tsr_simulate_checkpoint)(b >> 6),
                                .checkpoint_every = 1 + a % 4,
                                .loss_chunk = b & 32 ? 7 : 0,
                                .gelu_fused = a & 8,
                                .no_kv_cache = b & 16,
                                .fresh_process = a & 32,
                                .categories = b & 8,
                                .capacity_bytes = b & 4 ? UINT64_C(1) << (20 + a % 24) : 0};
}

static void ask(const tsr_model *model, const tsr_simulate_options *options) {
  tsr_simulation *simulation = NULL;
  tsr_error error = {0};
  int status = tsr_simulate(model, options, &simulation, &error);
  check_error(status, &error);
  require((status == 0) == (simulation != NULL), "a simulation, or an error");
  if (!simulation) return;
  require(simulation->parameter_count == tsr_model_parameter_count(model), "one count");
  require(simulation->is_out_of_memory || simulation->steps_done == 2, "all steps");
  tsr_info *info = NULL;
  require(tsr_info_compute(test_study(simulation->snapshot), NULL, &info, NULL) == 0, "an answer");
  for (size_t i = 0; i < info->device_count; i++) {
    const tsr_replay_check *check = &info->devices[i].replay;
    require(check->reused == check->reused_matched, "blocks where they are predicted");
    require(check->final_blocks == check->final_matched, "a trace that leads to its segments");
  }
  tsr_info_free(info);
  tsr_simulation_free(simulation);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  tsr_model *model = NULL;
  tsr_error error = {0};
  int status = tsr_model_read((const char *)data + 2, size - 2, &model, &error);
  check_error(status, &error);
  require((status == 0) == (model != NULL), "a model, or an error");
  if (!model) return 0;
  tsr_simulate_options options = choose(data[0], data[1]);
  if (tsr_model_is_traced(model))
    options = (tsr_simulate_options){.steps = 2,
                                     .fresh_process = options.fresh_process,
                                     .categories = options.categories,
                                     .capacity_bytes = options.capacity_bytes};
  if (model->layers <= MOST_LAYERS) ask(model, &options);
  tsr_model_free(model);
  return 0;
}
