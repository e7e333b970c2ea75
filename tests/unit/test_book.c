/* What tessera's own rule book promises: sums over tokens do not depend on how a batch is cut, a loss or an
 * attention in chunks is the whole one, and a step needs less memory than by PyTorch's book. */
#include <math.h>
#include <stdlib.h>

#include "kernels/random.h"
#include "run_support.h"

enum { SEQUENCE = 256, TOKENS = 4 * SEQUENCE, VOCABULARY = 61, MOST_PARAMETERS = 64 };

static const char gpt2[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"n_positions\":256,\"n_embd\":24,\"n_layer\":2,"
    "\"n_head\":2,\"resid_pdrop\":0,\"embd_pdrop\":0,\"attn_pdrop\":0,"
    "\"tie_word_embeddings\":false}";
static const char tied[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"n_positions\":256,\"n_embd\":24,\"n_layer\":1,"
    "\"n_head\":2,\"resid_pdrop\":0,\"embd_pdrop\":0,\"attn_pdrop\":0}";
static const char qwen2[] =
    "{\"model_type\":\"qwen2\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":40,"
    "\"tie_word_embeddings\":false}";

/* One step, and the gradients that it leaves. */
typedef struct subject {
  training t;
  tsr_simulate_options run;
  int64_t tokens[TOKENS];
  size_t count[MOST_PARAMETERS];
  float *gradients[MOST_PARAMETERS];
  tsr__execution out;
} subject;

static const int64_t *batch(void *context, uint64_t step, uint64_t micro_batch, uint32_t which) {
  subject *s = context;
  (void)step;
  return which == 2 ? NULL : s->tokens + micro_batch * s->run.batch * SEQUENCE;
}

static bool note_step(void *context, const tsr__executor *e, const tsr__executed_step *step) {
  subject *s = context;
  const tsr__schedule *schedule = &s->t.schedule;
  (void)step;
  assert_true(schedule->parameters.count <= MOST_PARAMETERS);
  for (size_t i = 0; i < schedule->parameters.count; i++) {
    tsr__kernel_tensor g = tsr__executor_tensor(
        e, tsr__schedule_tensor(schedule, schedule->parameters.items[i])->grad);
    assert_true(g.dtype == TSR__DTYPE_F32 && tsr__layout_is_dense(g.layout));
    s->count[i] = (size_t)tsr__shape_elements(g.layout.shape);
    s->gradients[i] = calloc(s->count[i], sizeof(float));
    memcpy(s->gradients[i], g.data, s->count[i] * sizeof(float));
  }
  return true;
}

static void run(subject *s, const char *json, const tsr_simulate_options *options) {
  tsr_error error = {0};
  *s = (subject){.run = *options};
  s->run.sequence = SEQUENCE;
  s->run.no_kv_cache = true;
  for (uint64_t i = 0; i < TOKENS; i++) {
    double u;
    tsr__random_uniform(5, i, 1, &u);
    s->tokens[i] = (int64_t)(u * VOCABULARY);
  }
  assert_true(training_open(&s->t, json, &s->run, NULL));
  s->t.options.load = training_load;
  s->t.options.batch = batch;
  s->t.options.step = note_step;
  if (tsr__execute(&s->t.schedule, &s->t.options, &s->out, &error)) fail_msg("%s", error.message);
}

static void done(subject *s) {
  for (size_t i = 0; i < MOST_PARAMETERS; i++) free(s->gradients[i]);
  training_close(&s->t);
}

/* Whether the gradients of a parameter have the same bits. */
static bool is_same(const subject *a, const subject *b, size_t i) {
  assert_int_equal(a->count[i], b->count[i]);
  return memcmp(a->gradients[i], b->gradients[i], a->count[i] * sizeof(float)) == 0;
}

static void same_gradients(const subject *a, const subject *b, const char *what) {
  for (size_t i = 0; i < a->t.schedule.parameters.count; i++)
    if (!is_same(a, b, i)) fail_msg("%s: parameter %zu differs", what, i);
}

/* A batch of four sequences of 256 tokens, and the same as micro-batches, whose number need not be a power
 * of two. */
static void micro_batches(void **state) {
  static const char *const models[] = {gpt2, qwen2};
  (void)state;
  for (size_t m = 0; m < 2; m++) {
    subject whole, parts;
    run(&whole, models[m], &(tsr_simulate_options){.batch = 4, .book = TSR_BOOK_OWN});
    for (uint64_t k = 2; k <= 4; k *= 2) {
      run(&parts, models[m],
          &(tsr_simulate_options){.batch = 4 / k, .accumulate = k, .book = TSR_BOOK_OWN});
      same_gradients(&whole, &parts, "micro-batches");
      done(&parts);
    }
    done(&whole);
    run(&whole, models[m], &(tsr_simulate_options){.batch = 3, .book = TSR_BOOK_OWN});
    run(&parts, models[m],
        &(tsr_simulate_options){.batch = 1, .accumulate = 3, .book = TSR_BOOK_OWN});
    same_gradients(&whole, &parts, "three micro-batches");
    done(&whole);
    done(&parts);
  }
}

/* Where head and embedding are one, their sums alternate, and are only close. */
static void tied_weights(void **state) {
  subject whole, parts;
  double difference = 0, size = 0;
  (void)state;
  run(&whole, tied, &(tsr_simulate_options){.batch = 4, .book = TSR_BOOK_OWN});
  run(&parts, tied, &(tsr_simulate_options){.batch = 1, .accumulate = 4, .book = TSR_BOOK_OWN});
  for (size_t i = 1; i < whole.t.schedule.parameters.count; i++)
    assert_true(is_same(&whole, &parts, i));
  for (size_t i = 0; i < whole.count[0]; i++) {
    difference += pow((double)whole.gradients[0][i] - (double)parts.gradients[0][i], 2);
    size += pow((double)whole.gradients[0][i], 2);
  }
  assert_true(sqrt(difference / size) < 1e-5);
  done(&whole);
  done(&parts);
}

/* Chunks of whole panels of 256 tokens. */
static void chunks(void **state) {
  static const char *const models[] = {gpt2, qwen2};
  (void)state;
  for (size_t m = 0; m < 2; m++) {
    subject whole, parts;
    tsr_simulate_options options = {.batch = 4, .book = TSR_BOOK_OWN};
    run(&whole, models[m], &options);
    options.loss_chunk = 512;
    run(&parts, models[m], &options);
    same_gradients(&whole, &parts, "chunked loss");
    done(&whole);
    done(&parts);
  }
}

/* A step by tessera's own book takes less, and nothing that PyTorch alone needs. */
static void memory(void **state) {
  static const char *const models[] = {gpt2, tied, qwen2};
  (void)state;
  for (size_t m = 0; m < 3; m++)
    for (int attention = 0; attention < 2; attention++) {
      subject torch, own;
      tsr_simulate_options options = {.batch = 2,
                                      .attention = attention ? TSR_ATTENTION_EAGER
                                                   : m == 2  ? TSR_ATTENTION_CHUNKED
                                                             : TSR_ATTENTION_SDPA,
                                      .attention_chunk = 64};
      run(&torch, models[m], &options);
      options.book = TSR_BOOK_OWN;
      run(&own, models[m], &options);
      assert_true(own.out.executed.peak.totals.allocated_bytes <
                  torch.out.executed.peak.totals.allocated_bytes);
      for (size_t i = 0; i < own.t.schedule.slots.count; i++)
        assert_int_not_equal(own.t.schedule.slots.items[i].category, TSR_CATEGORY_WORKSPACE);
      done(&torch);
      done(&own);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(micro_batches),
      cmocka_unit_test(tied_weights),
      cmocka_unit_test(chunks),
      cmocka_unit_test(memory),
  };
  return cmocka_run_group_tests_name("book", tests, NULL, NULL);
}
