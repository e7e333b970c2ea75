/* Every allocation of a simulation fails once: an error comes of it, and nothing else. What reads
 * descriptions is its own library, whose allocations are not among them. */
#include <string.h>

#include "../unit/test_support.h"
#include "oom.h"
#include "tessera/unstable/simulation.h"

typedef struct question {
  const char *text;
  tsr_simulate_options options;
} question;

static int run(void *context) {
  const question *q = context;
  tsr_model *model = NULL;
  tsr_simulation *simulation = NULL;
  int status = tsr_model_read(q->text, strlen(q->text), &model, NULL);
  if (status == 0) status = tsr_simulate(model, &q->options, &simulation, NULL);
  if (status) assert_null(simulation);
  tsr_simulation_free(simulation);
  tsr_model_free(model);
  return status;
}

static void steps(void **state) {
  (void)state;
  question plain = {"{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_embd\":8,\"n_head\":2,"
                    "\"n_layer\":1,\"tessera_modules\":[{\"name\":\"a\",\"kind\":"
                    "\"linear-per-layer\"}]}",
                    {.batch = 1, .sequence = 4, .steps = 1}};
  question again = {"{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":8,"
                    "\"intermediate_size\":8,\"num_attention_heads\":2,\"num_hidden_layers\":1}",
                    {.batch = 1,
                     .sequence = 4,
                     .steps = 1,
                     .dtype = TSR_SIMULATE_AUTOCAST_BF16,
                     .checkpoint = TSR_CHECKPOINT_FULL}};
  question traced = {
      "{\"schema\":\"tessera-step/1\",\"gpu\":\"a100\",\"parameters\":2,\"optimizer\":\"SGD\","
      "\"texts\":[\"f\"],\"frames\":[[0,0,1]],\"stacks\":[[0]],\"static\":1,"
      "\"slots\":{\"bytes\":[8,16,24],\"category\":[\"parameter\",\"activation\","
      "\"gradient\"]},\"instructions\":[[\"begin\",0],[\"drop_previous\",2],[\"new\",1,0],"
      "[\"new\",2,0],[\"drop\",1],[\"end\",0]]}",
      {.steps = 2}};
  tsr_test_oom(run, &plain, 50);
  tsr_test_oom(run, &traced, 10);
  tsr_test_oom(run, &again, 50);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(steps)};
  return cmocka_run_group_tests_name("oom engine", tests, NULL, NULL);
}
