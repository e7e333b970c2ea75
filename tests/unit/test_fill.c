/* What is in memory before a run does not depend on the threads that put it there. */
#include "base/pool.h"
#include "run_support.h"

enum { NUMBERS = 1024 * 128 };

typedef struct filled {
  training t;
  float embedding[NUMBERS];
} filled;

static int load(void *context, const tsr__executor *executor, tsr_error *error) {
  filled *f = context;
  int status = training_load(&f->t, executor, error);
  tsr__kernel_tensor to = tsr__executor_tensor(executor, f->t.program.embedding);
  assert_int_equal(tsr__shape_elements(to.layout.shape), NUMBERS);
  memcpy(f->embedding, (const float *)to.data + to.layout.offset, sizeof f->embedding);
  return status;
}

static const int64_t *batch(void *context, uint64_t step, uint64_t micro_batch, uint32_t which) {
  static const int64_t tokens[8];
  (void)context, (void)step, (void)micro_batch, (void)which;
  return tokens;
}

static void fill_with(filled *f, unsigned threads) {
  static const char json[] = "{\"model_type\":\"gpt2\",\"vocab_size\":1024,\"n_positions\":8,"
                             "\"n_embd\":128,\"n_layer\":1,\"n_head\":2}";
  const tsr_simulate_options run = {.batch = 1, .sequence = 4, .no_kv_cache = true};
  tsr__execution out;
  tsr_error error = {0};
  assert_true(training_open(&f->t, json, &run, NULL));
  f->t.options.context = f;
  f->t.options.load = load;
  f->t.options.batch = batch;
  f->t.options.pool = tsr__thread_pool_new(threads);
  if (tsr__execute(&f->t.schedule, &f->t.options, &out, &error)) fail_msg("%s", error.message);
  tsr__thread_pool_free(f->t.options.pool);
  training_close(&f->t);
}

static void threads(void **state) {
  filled *one = calloc(1, sizeof *one), *three = calloc(1, sizeof *three);
  (void)state;
  assert_true(one && three);
  fill_with(one, 1);
  fill_with(three, 3);
  assert_true(one->embedding[NUMBERS - 1] != 0 && one->embedding[0] != one->embedding[NUMBERS / 2]);
  assert_memory_equal(one->embedding, three->embedding, sizeof one->embedding);
  free(one);
  free(three);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(threads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
