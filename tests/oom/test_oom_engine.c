/* Every allocation of a simulation, and of the report of a training, fails once: an error comes of it, and nothing else. */
#include <string.h>

#include "../unit/test_support.h"
#include "oom.h"
#include "tessera/unstable/simulation.h"
#include "tessera/unstable/train_report.h"

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

static int discard(void *context, const char *data, size_t size_bytes) {
  (void)context, (void)data, (void)size_bytes;
  return 0;
}

static int report_training(void *context) {
  const tsr_report_options *how = context;
  tsr_train_report *report = NULL;
  tsr_train_step step = {.step = 1, .steps = 1, .products_text = "", .peak_bytes = 1};
  tsr_train_rank ranks[2] = {{.sent_bytes = 3}, {.sent_bytes = 4}};
  tsr_train_op op = {.name = "linear", .phase = "forward"};
  tsr_training training = {
      .steps_done = 1, .op_count = 1, .rank_count = 2, .is_out_of_memory = true};
  tsr_train_ending ending = {.training = &training, .ranks = ranks, .plan_hash = "0"};
  training.out_of_memory = (tsr_simulate_moment){.step = 1, .phase = "forward", .op = "linear"};
  training.out_of_memory.category_bytes[TSR_CATEGORY_PARAMETER] = 1;
  step.predicted_peak_bytes = 1;
  training.copied_bytes = 1;
  int status = tsr_train_report_new(how, discard, NULL, &report, NULL);
  if (status) return status;
  (void)tsr_train_report_begin(report, "gpt2", false, &step);
  (void)tsr_train_report_step(report, &step, &(tsr_train_times){.step = 1, .since = 1});
  (void)tsr_train_report_ops(report, &training, &op);
  (void)tsr_train_report_out_of_memory(report, &training, 1);
  (void)tsr_train_report_end(report, &ending);
  return tsr_train_report_finish(report, NULL);
}

static void reports(void **state) {
  tsr_report_options text = TSR_OPTIONS_INIT(tsr_report_options), json = text;
  (void)state;
  json.format = TSR_REPORT_JSON;
  tsr_test_oom(report_training, &text, 3);
  tsr_test_oom(report_training, &json, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(steps), cmocka_unit_test(reports)};
  return cmocka_run_group_tests_name("oom engine", tests, NULL, NULL);
}
