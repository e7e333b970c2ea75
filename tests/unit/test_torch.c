/* Training against PyTorch: the same weights, batches and optimizer, and so the same losses and gradients.
 *
 * PyTorch's numbers are in tests/torch/losses.txt; tests/torch/losses.py recorded them, and
 * has the formulas of weights and tokens that this test repeats. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "run_support.h"

enum { VOCABULARY = 96, BATCH = 4, SEQUENCE = 24, MOST_STEPS = 200 };

static const char gpt2[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":96,\"n_positions\":24,\"n_embd\":48,\"n_layer\":2,"
    "\"n_head\":4,\"resid_pdrop\":0,\"embd_pdrop\":0,\"attn_pdrop\":0}";
static const char llama[] =
    "{\"model_type\":\"llama\",\"vocab_size\":96,\"hidden_size\":48,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":80,"
    "\"tie_word_embeddings\":false}";

/* ---- the recipe's formulas ---- */

/* The i-th number of a key, from -1 to 1. */
static double uniform(uint64_t key, uint64_t i) {
  uint64_t z = ((key << 32) + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  z ^= z >> 31;
  return (double)(z >> 11) / 4503599627370496.0 - 1;
}

typedef struct subject {
  training t;
  const tsr__executor *executor;
  uint64_t parameters, key; /* those loaded so far, and which one is being loaded */
  double centre;
  int64_t tokens[BATCH * SEQUENCE];
  double losses[MOST_STEPS], norms[MOST_STEPS];
  double square; /* of the gradients of a step */
} subject;

static double weight(void *context, uint64_t i, double value) {
  const subject *s = context;
  (void)value;
  return s->centre + 0.1 * uniform(s->key, i);
}

static double buffer(void *context, uint64_t i, double value) {
  double *frequencies = context; /* base and count */
  (void)value;
  return pow(frequencies[0], -(double)i / frequencies[1]);
}

static double causal(void *context, uint64_t i, double value) {
  uint64_t columns = *(uint64_t *)context;
  (void)value;
  return i % columns <= i / columns;
}

static void load_tensor(void *context, tsr__tensor_id tensor, tsr__initial_kind kind,
                        double number) {
  subject *s = context;
  tsr__kernel_tensor t = tsr__executor_tensor(s->executor, tensor);
  uint64_t count = tsr__shape_elements(t.layout.shape);
  if (tsr__tensor_at(&s->t.tape, tensor)->is_parameter) {
    s->key = 1; /* of the first in PyTorch's order */
    while (s->t.tape.parameters.items[s->key - 1] != tensor) s->key++;
    s->parameters++;
    s->centre = kind == TSR__INITIAL_CONSTANT ? number : 0;
    each_element(&t, s, true, weight);
  } else if (kind == TSR__INITIAL_ROTARY) {
    each_element(&t, (double[]){number, (double)count}, true, buffer);
  } else {
    uint64_t columns = tsr__shape_from_end(t.layout.shape, 0);
    assert_int_equal(kind, TSR__INITIAL_CAUSAL);
    each_element(&t, &columns, true, causal);
  }
}

static int load(void *context, const tsr__executor *e, tsr_error *error) {
  subject *s = context;
  (void)error;
  s->executor = e;
  tsr__program_initials(&s->t.program, load_tensor, s);
  return 0;
}

static const int64_t *batch(void *context, uint64_t step, uint64_t micro_batch, uint32_t which) {
  subject *s = context;
  assert_int_equal(micro_batch, 0);
  for (uint64_t i = 0; i < BATCH * SEQUENCE; i++) {
    int64_t last = i % SEQUENCE ? s->tokens[i - 1] : 0;
    s->tokens[i] = (last + (int64_t)floor((uniform(1000 + step, i) + 1) * 3)) % VOCABULARY;
  }
  return which == 2 ? NULL : s->tokens;
}

static double add_square(void *context, uint64_t i, double value) {
  (void)i;
  ((subject *)context)->square += value * value;
  return 0;
}

static bool note_step(void *context, const tsr__executor *e, const tsr__executed_step *step) {
  subject *s = context;
  const tsr__tape *tape = &s->t.tape;
  s->square = 0;
  for (size_t i = 0; i < tape->parameters.count; i++) {
    tsr__tensor_id grad = tsr__tensor_at(tape, tape->parameters.items[i])->grad;
    tsr__kernel_tensor g = tsr__executor_tensor(e, grad);
    each_element(&g, s, false, add_square);
  }
  s->losses[step->step - 1] = step->loss;
  s->norms[step->step - 1] = sqrt(s->square);
  return true;
}

static void train(subject *s, const char *json, tsr_simulate_dtype dtype, uint64_t steps) {
  static tsr__run_options run;
  tsr__execution out;
  tsr_error error = {0};
  /* In fp32, kernels of attention that need no scores take no grouped queries. */
  bool is_eager = json == llama && dtype == TSR_SIMULATE_FP32;
  run = (tsr__run_options){.batch = BATCH,
                           .sequence = SEQUENCE,
                           .dtype = dtype,
                           .attention = is_eager ? TSR_ATTENTION_EAGER : TSR_ATTENTION_SDPA,
                           .no_kv_cache = true};
  *s = (subject){.parameters = 0};
  assert_true(training_open(&s->t, json, &run, NULL));
  s->t.options.steps = steps;
  s->t.options.context = s;
  s->t.options.load = load;
  s->t.options.batch = batch;
  s->t.options.step = note_step;
  if (tsr__execute(&s->t.tape, &s->t.options, &out, &error)) fail_msg("%s", error.message);
  assert_int_equal(out.steps_done, steps);
  assert_int_equal(s->parameters, s->t.tape.parameters.count);
  training_close(&s->t);
}

/* ---- the recorded numbers ---- */

typedef struct recorded {
  uint64_t steps;
  double losses[MOST_STEPS], norms[MOST_STEPS];
} recorded;

static void read_recorded(recorded *r, const char *model, const char *type) {
  char path[4096], line[256], name[16], dtype[16];
  const char *folder = getenv("TESSERA_TESTS");
  assert_non_null(folder);
  snprintf(path, sizeof path, "%s/torch/losses.txt", folder);
  FILE *file = fopen(path, "r");
  if (!file) fail_msg("%s: not there", path);
  r->steps = 0;
  while (fgets(line, sizeof line, file)) {
    unsigned step;
    double loss, norm;
    if (sscanf(line, "%15s %15s %u %lf %lf", name, dtype, &step, &loss, &norm) != 5) continue;
    if (strcmp(name, model) != 0 || strcmp(dtype, type) != 0) continue;
    assert_true(step == r->steps + 1 && step <= MOST_STEPS);
    r->losses[r->steps] = loss;
    r->norms[r->steps++] = norm;
  }
  fclose(file);
}

static void check_near(const char *what, uint64_t step, double got, double want, double relative) {
  if (!(fabs(got - want) <= relative * fabs(want)))
    fail_msg("%s of step %" PRIu64 ": %.9g, PyTorch has %.9g", what, step, got, want);
}

static void in_fp32(const char *model, const char *json) {
  recorded want;
  subject s;
  read_recorded(&want, model, "fp32");
  assert_int_equal(want.steps, 20);
  train(&s, json, TSR_SIMULATE_FP32, want.steps);
  for (uint64_t i = 0; i < want.steps; i++) {
    check_near("the loss", i + 1, s.losses[i], want.losses[i], 1e-4);
    check_near("the gradients' norm", i + 1, s.norms[i], want.norms[i], 1e-4);
  }
}

#if !IS_SANITIZED
/* Sums are rounded at other places here, so single steps drift apart. */
static void in_bf16(const char *model, const char *json) {
  recorded want;
  subject s;
  read_recorded(&want, model, "bf16");
  assert_int_equal(want.steps, 200);
  train(&s, json, TSR_SIMULATE_BF16, want.steps);
  check_near("the loss", want.steps, s.losses[want.steps - 1], want.losses[want.steps - 1], 0.01);
}
#endif

static void gpt2_fp32(void **state) {
  (void)state;
  in_fp32("gpt2", gpt2);
}
static void llama_fp32(void **state) {
  (void)state;
  in_fp32("llama", llama);
}
#if !IS_SANITIZED
static void gpt2_bf16(void **state) {
  (void)state;
  in_bf16("gpt2", gpt2);
}
static void llama_bf16(void **state) {
  (void)state;
  in_bf16("llama", llama);
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(gpt2_fp32),
    cmocka_unit_test(llama_fp32),
#if !IS_SANITIZED
    cmocka_unit_test(gpt2_bf16),
    cmocka_unit_test(llama_bf16),
#endif
  };
  return cmocka_run_group_tests_name("torch", tests, NULL, NULL);
}
