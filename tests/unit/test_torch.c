/* Training against PyTorch: the same weights, batches and optimizer, and so the same losses and gradients,
 * by both rule books.
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
/* The same with stretched rotary positions. */
static const char stretched[] =
    "{\"model_type\":\"llama\",\"vocab_size\":96,\"hidden_size\":48,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":80,"
    "\"max_position_embeddings\":24,\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4,"
    "\"original_max_position_embeddings\":6,\"rope_theta\":100,\"beta_fast\":2}}";

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
  training t; /* first: the context of a run, its training, is also the subject */
  int64_t tokens[BATCH * SEQUENCE];
  double losses[MOST_STEPS], norms[MOST_STEPS];
  double square; /* of the gradients of a step */
} subject;

/* Parameters get the centre of their weights: what is random in a run is 0. */
static void fill_centre(void *context, tsr__tensor_id tensor, const tsr__initial_value *initial) {
  static const tsr__initial_value zero = {.kind = TSR__INITIAL_CONSTANT};
  bool is_random = initial->kind == TSR__INITIAL_NORMAL || initial->kind == TSR__INITIAL_UNIFORM;
  training_fill(context, tensor, is_random ? &zero : initial);
}

static double weight(void *context, uint64_t i, double centre) {
  return centre + 0.1 * uniform(*(uint64_t *)context, i);
}

/* The key of a parameter is its number in PyTorch's order, from 1. */
static int load(void *context, const tsr__executor *e, tsr_error *error) {
  training *t = context;
  (void)error;
  t->executor = e;
  tsr__program_initials(&t->program, fill_centre, t);
  for (uint64_t key = 1; key <= t->schedule.parameters.count; key++) {
    tsr__kernel_tensor parameter = tsr__executor_tensor(e, t->schedule.parameters.items[key - 1]);
    each_element(&parameter, &key, true, weight);
  }
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
  const tsr__schedule *schedule = &s->t.schedule;
  s->square = 0;
  for (size_t i = 0; i < schedule->parameters.count; i++) {
    tsr__tensor_id grad = tsr__schedule_tensor(schedule, schedule->parameters.items[i])->grad;
    tsr__kernel_tensor g = tsr__executor_tensor(e, grad);
    each_element(&g, s, false, add_square);
  }
  s->losses[step->step - 1] = step->loss;
  assert_true(isnan(step->gradient_norm) == !s->t.options.gradient_norm);
  s->norms[step->step - 1] = s->t.options.gradient_norm ? step->gradient_norm : sqrt(s->square);
  return true;
}

static void train(subject *s, const char *json, const tsr_simulate_options *options,
                  uint64_t steps) {
  static tsr_simulate_options run;
  tsr__execution out;
  tsr_error error = {0};
  /* In fp32, kernels of attention that need no scores take no grouped queries. */
  bool is_eager = json != gpt2 && options->dtype == TSR_SIMULATE_FP32;
  run = (tsr_simulate_options){.batch = BATCH,
                               .sequence = SEQUENCE,
                               .dtype = options->dtype,
                               .attention = is_eager ? TSR_ATTENTION_EAGER : TSR_ATTENTION_SDPA,
                               .no_kv_cache = true,
                               .book = options->book,
                               .clip_norm = options->clip_norm};
  *s = (subject){.square = 0};
  assert_true(training_open(&s->t, json, &run, NULL));
  s->t.options.steps = steps;
  s->t.options.gradient_norm = s->t.program.gradient_norm;
  s->t.options.load = load;
  s->t.options.batch = batch;
  s->t.options.step = note_step;
  if (tsr__execute(&s->t.schedule, &s->t.options, &out, &error)) fail_msg("%s", error.message);
  assert_int_equal(out.steps_done, steps);
  training_close(&s->t);
}

/* ---- the recorded numbers ---- */

typedef struct recorded {
  uint64_t steps;
  double losses[MOST_STEPS], norms[MOST_STEPS];
} recorded;

static void read_recorded(recorded *r, const char *model, const char *type) {
  char path[4096], line[256], name[32], dtype[16];
  const char *folder = getenv("TESSERA_TESTS");
  assert_non_null(folder);
  snprintf(path, sizeof path, "%s/torch/losses.txt", folder);
  FILE *file = fopen(path, "r");
  if (!file) fail_msg("%s: not there", path);
  r->steps = 0;
  while (fgets(line, sizeof line, file)) {
    unsigned step;
    double loss, norm;
    if (sscanf(line, "%31s %15s %u %lf %lf", name, dtype, &step, &loss, &norm) != 5) continue;
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

/* What a test trains. */
typedef struct family {
  const char *name, *json;
} family;

static family gpt2_family = {"gpt2", gpt2}, llama_family = {"llama", llama},
              stretched_family = {"stretched", stretched};

static void compare_fp32(const family *f, const char *name, double clip_norm) {
  recorded want;
  subject s;
  read_recorded(&want, name, "fp32");
  assert_int_equal(want.steps, 20);
  for (int book = TSR_BOOK_TORCH; book <= TSR_BOOK_OWN; book++) {
    train(&s, f->json,
          &(tsr_simulate_options){.book = (tsr_simulate_book)book, .clip_norm = clip_norm},
          want.steps);
    for (uint64_t i = 0; i < want.steps; i++) {
      check_near("the loss", i + 1, s.losses[i], want.losses[i], 1e-4);
      check_near("the gradients' norm", i + 1, s.norms[i], want.norms[i], 1e-4);
    }
  }
}

static void in_fp32(void **state) {
  const family *f = *state;
  compare_fp32(f, f->name, 0);
}

/* As torch.nn.utils.clip_grad_norm_ does it: the norm is that before clipping. */
static void clipped(void **state) {
  const family *f = *state;
  char name[64];
  snprintf(name, sizeof name, "%s-clipped", f->name);
  compare_fp32(f, name, 1);
}

#if !IS_SANITIZED
/* Sums are rounded at other places here, so single steps drift apart. */
static void in_bf16(void **state) {
  const family *f = *state;
  recorded want;
  subject s;
  read_recorded(&want, f->name, "bf16");
  assert_int_equal(want.steps, 200);
  uint64_t last = want.steps - 1;
  for (int book = TSR_BOOK_TORCH; book <= TSR_BOOK_OWN; book++) {
    train(&s, f->json,
          &(tsr_simulate_options){.dtype = TSR_SIMULATE_BF16, .book = (tsr_simulate_book)book},
          want.steps);
    check_near("the loss", want.steps, s.losses[last], want.losses[last], 0.01);
  }
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
    {"gpt2_fp32", in_fp32, NULL, NULL, &gpt2_family},
    {"llama_fp32", in_fp32, NULL, NULL, &llama_family},
    {"gpt2_clipped", clipped, NULL, NULL, &gpt2_family},
    {"llama_clipped", clipped, NULL, NULL, &llama_family},
    {"stretched_fp32", in_fp32, NULL, NULL, &stretched_family},
#if !IS_SANITIZED
    {"gpt2_bf16", in_bf16, NULL, NULL, &gpt2_family},
    {"llama_bf16", in_bf16, NULL, NULL, &llama_family},
#endif
  };
  return cmocka_run_group_tests_name("torch", tests, NULL, NULL);
}
