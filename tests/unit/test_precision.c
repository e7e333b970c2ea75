/* Tests of mixed precision: what is too small for 16 bits is not lost, and what is too large skips a step. */
#include <stdlib.h>

#include "run_support.h"

enum { SEQUENCE = 16, BATCH = 8, VOCABULARY = 64 };

static const char gpt2[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_positions\":16,\"n_embd\":32,\"n_layer\":2,"
    "\"n_head\":4,\"resid_pdrop\":0,\"embd_pdrop\":0,\"attn_pdrop\":0}";
/* The head's weights are so small that what they pass back is, too. */
static const char faint[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_positions\":16,\"n_embd\":32,\"n_layer\":2,"
    "\"n_head\":4,\"tie_word_embeddings\":false,\"initializer_range\":3e-7}";

typedef struct subject {
  training t;
  tsr_simulate_options run;
  int64_t tokens[BATCH * SEQUENCE];
  double loss, scale; /* after the last step */
  uint64_t skipped, hash, steps;
  bool sees_weight;
  uint64_t moved; /* elements of the table of positions that have changed since the first step */
  float first[SEQUENCE * 32];
} subject;

/* Sentences of a language with a rule: each token follows from the one before, mostly. */
static const int64_t *batch(void *context, uint64_t step, uint64_t micro_batch, uint32_t which) {
  subject *s = context;
  uint64_t random = step * 0x9e3779b97f4a7c15u + micro_batch;
  for (size_t i = 0; i < BATCH * SEQUENCE; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    bool is_free = i % SEQUENCE == 0 || random >> 61 == 0;
    s->tokens[i] =
        is_free ? (int64_t)(random >> 33) % VOCABULARY : (s->tokens[i - 1] * 5 + 3) % VOCABULARY;
  }
  return which == 2 ? NULL : s->tokens;
}

static double number_of(const tsr__executor *e, tsr__tensor_id tensor) {
  tsr__kernel_tensor t = tsr__executor_tensor(e, tensor);
  double number;
  tsr__kernel_tensor own = {.data = &number, .dtype = TSR__DTYPE_F64, .layout = t.layout};
  tsr__kernel_row_of(TSR__KERNEL_TO_COPY)
      ->reference(&(tsr__kernel_args){.reads = {t}, .writes = {own}});
  return number;
}

/* What the optimizer has made of a weight, in fp32. */
static void see_weight(subject *s, const tsr__executor *e) {
  tsr__tensor_id weight = s->t.program.position_embedding;
  const tsr__schedule *schedule = &s->t.schedule;
  for (size_t i = 0; i < schedule->states.count; i++)
    if (schedule->parameters.items[i] == weight && schedule->states.items[i].master)
      weight = schedule->states.items[i].master;
  tsr__kernel_tensor t = tsr__executor_tensor(e, weight);
  const float *now = t.data;
  uint64_t count = tsr__shape_elements(t.layout.shape);
  assert_true(t.dtype == TSR__DTYPE_F32 && count <= sizeof s->first / sizeof *s->first);
  if (s->steps == 0) memcpy(s->first, now, count * sizeof *now);
  s->moved = 0;
  for (uint64_t i = 0; i < count; i++) s->moved += memcmp(&s->first[i], &now[i], sizeof *now) != 0;
}

static bool see_step(void *context, const tsr__executor *e, const tsr__executed_step *step) {
  subject *s = context;
  const tsr__schedule *schedule = &s->t.schedule;
  s->hash = 1;
  for (size_t i = 0; i < schedule->parameters.count; i++) {
    tsr__tensor_id p = schedule->parameters.items[i];
    const unsigned char *bytes = tsr__executor_tensor(e, p).data;
    for (uint64_t k = 0; k < tsr__schedule_bytes(schedule, p); k++)
      s->hash = (s->hash ^ bytes[k]) * UINT64_C(0x100000001b3);
  }
  if (s->sees_weight) see_weight(s, e);
  s->loss = step->loss;
  s->skipped += step->is_skipped;
  s->steps++;
  if (s->t.program.loss_scale) s->scale = number_of(e, s->t.program.loss_scale);
  return true;
}

static int load(void *context, const tsr__executor *executor, tsr_error *error) {
  return training_load(&((subject *)context)->t, executor, error);
}

static void open_subject(subject *s, const char *json, tsr_simulate_options run) {
  *s = (subject){.run = run};
  if (!run.optimizer) s->run.optimizer = TSR_OPTIMIZER_ADAMW_FUSED;
  s->run.batch = BATCH;
  s->run.sequence = SEQUENCE;
  s->run.no_kv_cache = true;
  assert_true(training_open(&s->t, json, &s->run, NULL));
  s->t.options.context = s;
  s->t.options.load = load;
  s->t.options.batch = batch;
  s->t.options.step = see_step;
}

static void run_steps(subject *s, uint64_t steps) {
  tsr__execution out;
  tsr_error error = {0};
  s->t.options.steps = steps;
  s->steps = s->skipped = s->moved = 0;
  s->t.filled = 0;
  if (tsr__execute(&s->t.schedule, &s->t.options, &out, &error)) fail_msg("%s", error.message);
}

static double loss_after(const char *json, tsr_simulate_options run, uint64_t steps) {
  subject s;
  open_subject(&s, json, run);
  run_steps(&s, steps);
  assert_int_equal(s.steps, steps);
  training_close(&s.t);
  return s.loss;
}

/* 200 steps in 16 bits come to the loss of fp32, to a hundredth. */
static void same_loss(void **state) {
  static const tsr_simulate_options runs[] = {{.dtype = TSR_SIMULATE_BF16, .master_weights = true},
                                              {.dtype = TSR_SIMULATE_FP16, .master_weights = true},
                                              {.dtype = TSR_SIMULATE_AUTOCAST_BF16},
                                              {.dtype = TSR_SIMULATE_AUTOCAST_FP16}};
  uint64_t steps = IS_SANITIZED ? 5 : 200;
  (void)state;
  double full = loss_after(gpt2, (tsr_simulate_options){.dtype = TSR_SIMULATE_FP32}, steps);
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
    double loss = loss_after(gpt2, runs[i], steps);
    if (!(loss < full * 1.01 && loss > full * 0.99))
      fail_msg("run %zu: a loss of %g instead of %g", i, loss, full);
  }
  if (!IS_SANITIZED) assert_true(full < 3);
}

/* Gradients that vanish in fp16 at a scale of 1 are there at 2^16: weights learn that did not. */
static void underflow(void **state) {
  static const tsr_simulate_options runs[] = {{.dtype = TSR_SIMULATE_AUTOCAST_FP16},
                                              {.dtype = TSR_SIMULATE_FP16, .master_weights = true}};
  uint64_t elements = SEQUENCE * 32;
  (void)state;
  for (size_t i = 0; i < 4; i++) {
    subject *s = calloc(1, sizeof *s);
    tsr_simulate_options run = runs[i / 2];
    run.loss_scale = i % 2 ? 0x1p16 : 1;
    run.optimizer = TSR_OPTIMIZER_SGD; /* AdamW would make the head large at once */
    open_subject(s, faint, run);
    s->sees_weight = true;
    s->t.options.numbers.learning_rate = 1e-4;
    s->t.options.numbers.decay = 0;
    run_steps(s, 3);
    if (i % 2 ? s->moved < elements / 2 : s->moved)
      fail_msg("run %zu: %llu elements have moved", i, (unsigned long long)s->moved);
    training_close(&s->t);
    free(s);
  }
}

/* An overflow skips the step and halves the scale: nothing else changes, master weights and state included. */
static void overflow(void **state) {
  static const tsr_offload host = {.optimizer = TSR_SPACE_HOST, .gradients = TSR_SPACE_HOST};
  (void)state;
  for (int i = 0; i < 4; i++) {
    subject s;
    bool is_autocast = i & 1;
    open_subject(&s, gpt2,
                 (tsr_simulate_options){
                     .dtype = is_autocast ? TSR_SIMULATE_AUTOCAST_FP16 : TSR_SIMULATE_FP16,
                     .master_weights = !is_autocast,
                     .loss_scale = 0x1p120,
                     .offload = i & 2 ? host : (tsr_offload){.optimizer = TSR_SPACE_DEVICE}});
    run_steps(&s, 1);
    uint64_t hash = s.hash;
    assert_int_equal(s.skipped, 1);
    assert_true(s.scale == 0x1p119);
    run_steps(&s, 3);
    assert_int_equal(s.skipped, 3);
    assert_true(s.scale == 0x1p117);
    assert_int_equal(s.hash, hash);
    training_close(&s.t);
  }
}

/* After so many good steps it doubles. */
static void window(void **state) {
  subject s;
  (void)state;
  open_subject(&s, gpt2,
               (tsr_simulate_options){.dtype = TSR_SIMULATE_FP16,
                                      .master_weights = true,
                                      .loss_scale = 8,
                                      .loss_scale_window = 3});
  run_steps(&s, 7);
  assert_int_equal(s.skipped, 0);
  assert_true(s.scale == 32);
  training_close(&s.t);
}

/* Bytes of a parameter: 4 in fp32, 2 in 16 bits, and with a master 2 for itself, 4 for the master, 8 for the moments. */
static void bytes(void **state) {
  static const struct {
    tsr_simulate_dtype dtype;
    bool has_masters;
    uint64_t parameter, gradient, states;
  } cases[] = {{TSR_SIMULATE_FP32, false, 4, 4, 8},
               {TSR_SIMULATE_BF16, false, 2, 2, 4},
               {TSR_SIMULATE_BF16, true, 2, 2, 12},
               {TSR_SIMULATE_FP16, true, 2, 2, 12}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    subject s;
    open_subject(
        &s, gpt2,
        (tsr_simulate_options){.dtype = cases[i].dtype, .master_weights = cases[i].has_masters});
    const tsr__schedule *t = &s.t.schedule;
    for (size_t k = 0; k < t->parameters.count; k++) {
      tsr__tensor_id p = t->parameters.items[k];
      const tsr__optimizer_state *state_of = &t->states.items[k];
      uint64_t count = tsr__shape_elements(tsr__schedule_shape(t, p));
      uint64_t states =
          tsr__schedule_bytes(t, state_of->first) + tsr__schedule_bytes(t, state_of->second);
      if (state_of->master) states += tsr__schedule_bytes(t, state_of->master);
      assert_int_equal(tsr__schedule_bytes(t, p), cases[i].parameter * count);
      assert_int_equal(states, cases[i].states * count);
      tsr__tensor_id grad = tsr__schedule_tensor(t, p)->grad;
      assert_true(!grad == cases[i].has_masters); /* gone, when it has been made fp32 */
      if (grad) assert_int_equal(tsr__schedule_bytes(t, grad), cases[i].gradient * count);
    }
    training_close(&s.t);
  }
}

static void refused(void **state) {
  static const tsr_simulate_options runs[] = {
      {.master_weights = true},
      {.dtype = TSR_SIMULATE_AUTOCAST_BF16, .master_weights = true},
      {.dtype = TSR_SIMULATE_BF16, .loss_scale = 2},
      {.loss_scale_window = 2},
      {.dtype = TSR_SIMULATE_FP16, .loss_scale = -1}};
  (void)state;
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
    training t;
    assert_false(training_open(&t, gpt2, &runs[i], NULL));
    training_close(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_loss), cmocka_unit_test(underflow),
                                     cmocka_unit_test(overflow),  cmocka_unit_test(window),
                                     cmocka_unit_test(bytes),     cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
