/* Tests of the engine (src/engine/graph, models, exec): blocks against counts made by hand, whole steps against the published numbers
 * of a real run, and what must hold of any program. test_ops.c has single ops. */
#include <stdio.h>

#include "graph/validate.h"
#include "models/program.h"
#include "study_support.h"
#include "tessera/tessera.h"
#include "tessera/unstable/unstable.h"
#include "test_support.h"

#define MIB (UINT64_C(1) << 20)

static tsr_model *model_of(const char *text) {
  tsr_model *model = NULL;
  tsr_error error = {0};
  int status = text[0] == '{' ? tsr_model_read(text, strlen(text), &model, &error)
                              : tsr_model_named(text, &model, &error);
  if (status) fail_msg("%s: %s", text, error.message);
  return model;
}

static tsr_simulation *simulate(const char *text, const tsr_simulate_options *options) {
  tsr_model *model = model_of(text);
  tsr_simulation *simulation = NULL;
  tsr_error error = {0};
  if (tsr_simulate(model, options, &simulation, &error)) fail_msg("%s", error.message);
  tsr_model_free(model);
  return simulation;
}

/* ---- models ---- */

static void parameter_counts(void **state) {
  static const struct {
    const char *name;
    uint64_t parameters;
  } known[] = {{"gpt2", 124439808},          {"gpt2-medium", 354823168},
               {"gpt2-large", 774030080},    {"gpt2-xl", 1557611200},
               {"llama-2-7b", 6738415616},   {"llama-2-13b", 13015864320},
               {"llama-2-70b", 68976648192}, {"llama-3-8b", 8030261248},
               {"llama-3-70b", 70553706496}, {"llama-3-405b", 405853388800},
               {"llama-3.2-1b", 1235814400}, {"llama-3.2-3b", 3212749824},
               {"mistral-7b", 7241732096},   {"qwen2.5-7b", 7615616512},
               {"gpt2-bytes", 858880}};
  (void)state;
  size_t count = 0;
  for (; tsr_model_names()[count]; count++) {
    assert_string_equal(tsr_model_names()[count], known[count].name);
    tsr_model *model = model_of(known[count].name);
    assert_int_equal(tsr_model_parameter_count(model), known[count].parameters);
    assert_string_equal(tsr_model_name(model), known[count].name);
    tsr_model_free(model);
  }
  assert_int_equal(count, sizeof known / sizeof *known);
}

static void descriptions(void **state) {
  static const struct {
    const char *text;
    uint64_t parameters;
  } good[] = {
      {"{\"model_type\":\"gpt2\"}", 124439808}, /* the class's defaults */
      {"{\"model_type\":\"gpt2\",\"tie_word_embeddings\":false}", 124439808 + 50257 * 768},
      {"{\"model_type\":\"gpt2\",\"n_inner\":null,\"unknown\":[1]}", 124439808},
      {"{\"model_type\":\"mistral\"}", 7241732096},
      {"{\"model_type\":\"gpt2\",\"tessera_modules\":[{\"name\":\"probe\",\"kind\":"
       "\"linear-per-layer\",\"features\":3072}]}",
       124439808 + 28348416},
  };
  (void)state;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    tsr_model *model = model_of(good[i].text);
    assert_int_equal(tsr_model_parameter_count(model), good[i].parameters);
    tsr_model_free(model);
  }
}

static void bad_descriptions(void **state) {
  static const struct {
    const char *text, *why;
    int status;
  } bad[] = {
      {"", "not a model description", TSR_ERROR_FORMAT},
      {"[1]", "not a JSON object", TSR_ERROR_FORMAT},
      {"{}", "model_type", TSR_ERROR_FORMAT},
      {"{\"model_type\":\"bert\"}", "model_type", TSR_ERROR_UNSUPPORTED},
      {"{\"model_type\":\"gpt2\",\"n_head\":7}", "n_head", TSR_ERROR_FORMAT},
      {"{\"model_type\":\"gpt2\",\"n_embd\":0}", "n_embd", TSR_ERROR_FORMAT},
      {"{\"model_type\":\"gpt2\",\"n_embd\":1e3}", "n_embd", TSR_ERROR_FORMAT},
      {"{\"model_type\":\"gpt2\",\"n_layer\":5000}", "layers", TSR_ERROR_LIMIT},
      {"{\"model_type\":\"gpt2\",\"attn_pdrop\":2}", "attn_pdrop", TSR_ERROR_FORMAT},
      {"{\"model_type\":\"gpt2\",\"use_cache\":1}", "use_cache", TSR_ERROR_FORMAT},
      {"{\"model_type\":\"gpt2\",\"add_cross_attention\":true}", "add_cross",
       TSR_ERROR_UNSUPPORTED},
      {"{\"model_type\":\"gpt2\",\"activation_function\":\"mish\"}", "activ",
       TSR_ERROR_UNSUPPORTED},
      {"{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"}", "hidden_act", TSR_ERROR_UNSUPPORTED},
      {"{\"model_type\":\"llama\",\"num_key_value_heads\":5}", "num_key", TSR_ERROR_FORMAT},
      {"{\"model_type\":\"llama\",\"num_attention_heads\":24}", "num_attention_heads",
       TSR_ERROR_FORMAT},
      {"{\"model_type\":\"llama\",\"num_attention_heads\":8,\"hidden_size\":4}",
       "num_attention_heads", TSR_ERROR_FORMAT},
      {"{\"model_type\":\"qwen2\",\"use_sliding_window\":true}", "slid", TSR_ERROR_UNSUPPORTED},
      {"{\"model_type\":\"gpt2\",\"tessera_modules\":[{\"name\":\"x\"}]}", "tessera_modules",
       TSR_ERROR_UNSUPPORTED},
      {"{\"model_type\":\"gpt2\",\"tessera_modules\":[{\"name\":\"x\",\"kind\":"
       "\"linear-per-layer\",\"size\":1}]}",
       "size", TSR_ERROR_FORMAT},
      {"{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2ForSequenceClassification\"]}", "causal",
       TSR_ERROR_UNSUPPORTED},
      {"{\"model_type\":\"llama\",\"architectures\":[\"LlamaModel\"]}", "causal",
       TSR_ERROR_UNSUPPORTED},
  };
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    tsr_model *model = NULL;
    tsr_error error = {0};
    assert_int_equal(tsr_model_read(bad[i].text, strlen(bad[i].text), &model, &error),
                     bad[i].status);
    if (!strstr(error.message, bad[i].why)) fail_msg("%s: %s", bad[i].text, error.message);
    assert_null(model);
  }
  tsr_model *model = NULL;
  assert_int_equal(tsr_model_named("gpt5", &model, NULL), TSR_ERROR_ARGUMENT);
}

static void unknown_models_get_advice(void **state) {
  (void)state;
  tsr_model *model = NULL;
  static const struct {
    const char *name, *advice;
  } unknown[] = {
      {"gtp2", "did you mean 'gpt2'? The models are"},
      {"llama3", "did you mean 'llama-3-8b'?"},
      {"qwen", "did you mean 'qwen2.5-7b'?"},
      {"bert-base-uncased", "the models are gpt2"},
      {"Qwen/Qwen3-0.6B", "https://huggingface.co/Qwen/Qwen3-0.6B/resolve/main/config.json"},
      {"Qwen/Qwen2.5-7B", "'qwen2.5-7b' is built in"},
  };
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
    tsr_error error;
    assert_int_equal(tsr_model_named(unknown[i].name, &model, &error), TSR_ERROR_ARGUMENT);
    if (!strstr(error.message, unknown[i].advice)) fail_msg("%s", error.message);
  }
  assert_false(tsr_model_is_hub_id("runs/config.json"));
  assert_false(tsr_model_is_hub_id("./gpt2"));
  assert_false(tsr_model_is_hub_id("/models/gpt2"));
}

/* ---- blocks, by hand ---- */

/* What one more layer keeps for backward: the memory of a category at the loss's backward with one
 * layer more, less that without it. */
static uint64_t category_per_layer(const char *format, tsr_simulate_options options,
                                   tsr_category category) {
  uint64_t bytes[2];
  options.steps = 1;
  options.optimizer = TSR_OPTIMIZER_SGD;
  for (unsigned i = 0; i < 2; i++) {
    char text[512];
    (void)snprintf(text, sizeof text, format, 2 + i);
    tsr_simulation *simulation = simulate(text, &options);
    assert_string_equal(simulation->peak.op, "log-softmax");
    bytes[i] = simulation->peak.category_bytes[category];
    tsr_simulation_free(simulation);
  }
  return bytes[1] - bytes[0];
}

static uint64_t bytes_per_layer(const char *format, tsr_simulate_options options) {
  return category_per_layer(format, options, TSR_CATEGORY_ACTIVATION);
}

#define SMALL_GPT2                                                                           \
  "{\"model_type\":\"gpt2\",\"vocab_size\":9001,\"n_embd\":64,\"n_head\":4,\"n_inner\":200," \
  "\"n_positions\":128,\"n_layer\":%u}"

static void gpt2_block(void **state) {
  const uint64_t b = 3, t = 100, c = 64, f = 200, heads = 4, u = b * t * c;
  (void)state;
  uint64_t rows = 2 * b * t * 4;                                 /* mean and deviation of a norm */
  uint64_t lse = b * heads * 128 * 4;                            /* rows in multiples of 32 */
  uint64_t gelu = 5 * b * t * f * 4;                             /* x, half, tanh, one, product */
  uint64_t norms = 2 * (2 * u * 4 + rows);                       /* input and output of two */
  uint64_t attention = 3 * u * 4 + 2 * u * 4 + u * 4 + lse + 16; /* qkv, cached k and v, out */
  uint64_t masks = 2 * u;                                        /* dropout, a byte each */
  tsr_simulate_options options = {.batch = b, .sequence = t};
  assert_int_equal(bytes_per_layer(SMALL_GPT2, options), norms + attention + gelu + masks);
  options.gelu_fused = true;
  assert_int_equal(bytes_per_layer(SMALL_GPT2, options),
                   norms + attention + masks + 2 * b * t * f * 4);
  options.no_kv_cache = true;
  assert_int_equal(bytes_per_layer(SMALL_GPT2, options),
                   norms + attention + masks + 2 * b * t * f * 4 - 2 * u * 4);
  options = (tsr_simulate_options){.batch = b, .sequence = t, .attention = TSR_ATTENTION_EAGER};
  uint64_t scores = (4 + 4 + 1) * b * heads * t * t; /* softmax, weights, mask */
  assert_int_equal(bytes_per_layer(SMALL_GPT2, options),
                   norms + gelu + masks + scores + 4 * u * 4 +
                       4); /* q copied, k, v, out; the divisor */
  options = (tsr_simulate_options){.batch = b, .sequence = t, .checkpoint = TSR_CHECKPOINT_FULL};
  assert_int_equal(bytes_per_layer(SMALL_GPT2, options), u * 4);
}

/* Under autocast the residual stream and the GELU's inside stay fp32. */
static void gpt2_block_autocast(void **state) {
  const uint64_t b = 3, t = 100, c = 64, f = 200, heads = 4, u = b * t * c;
  tsr_simulate_options options = {.batch = b, .sequence = t, .dtype = TSR_SIMULATE_AUTOCAST_FP16};
  (void)state;
  uint64_t norms = 2 * (u * 4 + u * 2 + 2 * b * t * 4);
  uint64_t attention = (3 + 2 + 1) * u * 2 + b * heads * t * 4 + 24;
  uint64_t gelu = 3 * b * t * f * 4 + 2 * b * t * f * 2;
  uint64_t weights = (4 * c * c + 2 * c * f) * 2; /* cast, and kept; biases are not */
  assert_int_equal(bytes_per_layer(SMALL_GPT2, options), norms + attention + gelu + 2 * u);
  assert_int_equal(category_per_layer(SMALL_GPT2, options, TSR_CATEGORY_CAST), weights);
}

#define SMALL_LLAMA                                                                             \
  "{\"model_type\":\"llama\",\"vocab_size\":9001,\"hidden_size\":96,\"intermediate_size\":250," \
  "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"num_hidden_layers\":%u}"

static void llama_block(void **state) {
  const uint64_t b = 2, t = 130, c = 96, f = 250, heads = 6, u = b * t * c;
  tsr_simulate_options options = {.batch = b, .sequence = t, .dtype = TSR_SIMULATE_BF16};
  (void)state;
  uint64_t norms = 2 * (u * 4 + u * 2 + b * t * 4 + u * 2); /* fp32 copy, normalised, root, out */
  uint64_t attention = u * 2 + 2 * u * 2 / 3 + u * 2 + b * heads * t * 4 + 24; /* q, k and v, out */
  uint64_t mlp = 4 * b * t * f * 2; /* gate, its SiLU, up, product */
  assert_int_equal(bytes_per_layer(SMALL_LLAMA, options), norms + attention + mlp);
}

/* ---- whole peaks, by hand: every tensor that is there, in bytes ---- */

/* Grouped heads, 16 bits, a chunked loss: the norm before the head has the last word, whose
 * backward has five tensors of the hidden states' size in fp32. */
static void peak_of_a_norm(void **state) {
  const uint64_t n = 3 * 1000, c = 512, keys = 128, f = 1408, v = 10007, layers = 3, u = n * c;
  tsr_simulate_options options = {.batch = 3,
                                  .sequence = 1000,
                                  .steps = 3,
                                  .dtype = TSR_SIMULATE_BF16,
                                  .optimizer = TSR_OPTIMIZER_SGD,
                                  .loss_chunk = 256};
  (void)state;
  tsr_simulation *s = simulate("{\"model_type\":\"llama\",\"hidden_size\":512,"
                               "\"num_attention_heads\":8,\"num_key_value_heads\":2,"
                               "\"intermediate_size\":1408,\"num_hidden_layers\":3,"
                               "\"vocab_size\":10007}",
                               &options);
  uint64_t parameters = 2 * v * c + c + layers * (2 * c * c + 2 * c * keys + 3 * c * f + 2 * c);
  uint64_t norms = 2 * (u * 4 + u * 2 + n * 4 + u * 2);
  uint64_t attention = u * 2 + 2 * n * keys * 2 + u * 2 + n * 8 * 4 + 24; /* q, cached, out, lse */
  uint64_t block = norms + attention + 4 * n * f * 2;
  uint64_t always = parameters * 2 + 32 * 4 + 2 * UINT64_C(8519680);
  uint64_t batch = 2 * n * 8, tables = 2 * 1000 * 64 * 2; /* ids, labels; cos, sin */
  uint64_t gradients = v * c * 2 + c * 2, scalars = 2 * 4;
  assert_string_equal(s->peak.op, "RMS norm");
  assert_int_equal(s->peak.totals.requested_bytes,
                   always + layers * block + batch + tables + gradients + scalars + 6 * u * 4);
  tsr_simulation_free(s);
}

/* A tied head, biases, eager attention whose mask the checkpointed blocks' calls hold, two batches
 * a step and so gradients of all parameters; the logits' gradients have the last word. */
static void peak_of_a_loss(void **state) {
  const uint64_t n = 2 * 300, t = 300, c = 256, keys = 128, f = 704, v = 5003, layers = 2,
                 u = n * c;
  tsr_simulate_options options = {.batch = 2,
                                  .sequence = 300,
                                  .steps = 3,
                                  .accumulate = 2,
                                  .dtype = TSR_SIMULATE_FP16,
                                  .optimizer = TSR_OPTIMIZER_ADAMW_FUSED,
                                  .attention = TSR_ATTENTION_EAGER,
                                  .checkpoint = TSR_CHECKPOINT_FULL};
  (void)state;
  tsr_simulation *s = simulate("{\"model_type\":\"qwen2\",\"hidden_size\":256,"
                               "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                               "\"intermediate_size\":704,\"num_hidden_layers\":2,"
                               "\"vocab_size\":5003,\"tie_word_embeddings\":true}",
                               &options);
  uint64_t layer = 2 * c * c + 2 * c * keys + c + 2 * keys + 3 * c * f + 2 * c;
  uint64_t parameters = v * c + c + layers * layer, tensors = 2 + layers * 12;
  uint64_t always = parameters * 2 + 32 * 4 + 2 * UINT64_C(8519680);
  uint64_t adam = 2 * parameters * 2 + tensors * 4, gradients = parameters * 2;
  uint64_t calls = n * t * 2 + 2 * t * 64 * 2 + t * 8; /* mask; cos, sin; positions */
  uint64_t norm = u * 4 + u * 2 + n * 4 + u * 2;
  uint64_t logits = n * v * 2 + 3 * n * v * 4; /* and log-softmax, and two gradients */
  uint64_t batch = 2 * n * 8, scalars = 3 * 4; /* the loss, a part of it, its gradient */
  assert_string_equal(s->peak.op, "log-softmax");
  assert_int_equal(s->peak.totals.requested_bytes, always + adam + gradients + layers * u * 2 +
                                                       calls + norm + logits + batch + scalars);
  tsr_simulation_free(s);
}

/* ---- the tutorial's runs ---- */

static void tutorial(void **state) {
  tsr_simulate_options options = {.batch = 4, .sequence = 512, .steps = 5};
  (void)state;
  tsr_simulation *s = simulate("gpt2", &options);
  assert_int_equal(s->peak.category_bytes[TSR_CATEGORY_ACTIVATION], 3141832900);
  assert_int_equal(s->peak.category_bytes[TSR_CATEGORY_TEMPORARY], 823410692);
  assert_int_equal(s->peak.category_bytes[TSR_CATEGORY_OPTIMIZER_STATE], 995518464);
  assert_int_equal(s->peak.category_bytes[TSR_CATEGORY_INPUT], 32768);
  assert_int_equal(s->peak.category_bytes[TSR_CATEGORY_GRADIENT], 0);
  double peak = (double)s->peak.totals.allocated_bytes / (1024.0 * MIB);
  assert_true(peak > 5.13 * 0.997 && peak < 5.13 * 1.003);
  tsr_simulation_free(s);
  options.checkpoint = TSR_CHECKPOINT_FULL;
  s = simulate("gpt2", &options);
  assert_int_equal(s->peak.category_bytes[TSR_CATEGORY_ACTIVATION], 914132996);
  assert_int_equal(s->peak.category_bytes[TSR_CATEGORY_TEMPORARY], 823410692);
  double less = (double)s->peak.totals.allocated_bytes / (1024.0 * MIB);
  assert_true(less > 3.04 * 0.997 && less < 3.04 * 1.003);
  assert_int_equal((int)((peak - less) / peak * 1000 + 0.5), 406);
  /* The blocks' forward, once more: 23.7 % of three times everything's. */
  assert_int_equal(s->step_recomputed_flops / 100000000, 3875);
  tsr_simulation_free(s);
}

/* Peaks in GiB of requested bytes, to two decimals, with each of these changes in turn. */
static void without_recomputation(void **state) {
  static const struct {
    tsr_simulate_options options;
    double gib;
  } cases[] = {
      {{.no_kv_cache = true}, 4.97},
      {{.no_kv_cache = true, .gelu_fused = true}, 4.13},
      {{.no_kv_cache = true, .gelu_fused = true, .loss_chunk = 256}, 2.84},
      {{.no_kv_cache = true,
        .gelu_fused = true,
        .loss_chunk = 256,
        .optimizer = TSR_OPTIMIZER_ADAMW_FUSED},
       2.84},
      {{.checkpoint = TSR_CHECKPOINT_FULL, .loss_chunk = 256}, 2.35},
      {{.checkpoint = TSR_CHECKPOINT_FULL,
        .loss_chunk = 256,
        .gelu_fused = true,
        .optimizer = TSR_OPTIMIZER_ADAMW_FUSED},
       2.03},
      {{.batch = 2, .accumulate = 2}, 3.73},
      {{.batch = 1, .accumulate = 4}, 2.80},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_simulate_options options = cases[i].options;
    if (!options.batch) options.batch = 4;
    options.sequence = 512;
    options.steps = 3;
    tsr_simulation *s = simulate("gpt2", &options);
    double gib = (double)s->peak.totals.requested_bytes / (1024.0 * MIB);
    if (gib < cases[i].gib * 0.99 || gib > cases[i].gib * 1.01)
      fail_msg("case %zu: %.4f GiB, not %.2f", i, gib, cases[i].gib);
    tsr_simulation_free(s);
  }
}

/* ---- what holds of every program ---- */

/* What is allocated at the end is the same after more steps: nothing leaks, nothing is lost. */
static uint64_t end_bytes(const tsr_simulation *s, const char *what) {
  tsr_info *info = NULL;
  assert_int_equal(tsr_info_compute(test_study(s->snapshot), NULL, &info, NULL), 0);
  const tsr_replay_check *check = &info->devices[0].replay;
  if (check->reused != check->reused_matched || check->segments_new != check->segments_matched ||
      check->final_blocks != check->final_matched)
    fail_msg("%s: the trace does not replay to its segments", what);
  uint64_t bytes = info->devices[0].end.allocated_bytes;
  tsr_info_free(info);
  return bytes;
}

static void check_program(const char *text, tsr_simulate_options options) {
  char what[128];
  uint64_t ends[2];
  (void)snprintf(what, sizeof what, "dtype %d attention %d checkpoint %d optimizer %d loss %d",
                 (int)options.dtype, (int)options.attention, (int)options.checkpoint,
                 (int)options.optimizer, (int)options.loss_chunk);
  for (unsigned i = 0; i < 2; i++) {
    options.steps = 2 + 3 * i;
    tsr_simulation *s = simulate(text, &options);
    assert_int_equal(s->steps_done, options.steps);
    uint64_t sum = 0;
    for (int role = 0; role < TSR_CATEGORY_COUNT; role++) sum += s->peak.category_bytes[role];
    assert_int_equal(sum, s->peak.totals.requested_bytes);
    ends[i] = end_bytes(s, what);
    tsr_simulation_free(s);
  }
  /* Placement may differ in unsplit tails; these are small models, of small tensors. */
  if (ends[0] != ends[1]) fail_msg("%s: %zu, then %zu", what, (size_t)ends[0], (size_t)ends[1]);
}

static void programs_are_sound(void **state) {
  (void)state;
  static const char *const models[] = {
      "{\"model_type\":\"gpt2\",\"vocab_size\":300,\"n_embd\":32,\"n_head\":4,\"n_layer\":3}",
      "{\"model_type\":\"gpt2\",\"vocab_size\":300,\"n_embd\":32,\"n_head\":4,\"n_layer\":3,"
      "\"resid_pdrop\":0,\"embd_pdrop\":0,\"attn_pdrop\":0,\"activation_function\":\"silu\","
      "\"tessera_modules\":[{\"name\":\"probe\",\"kind\":\"linear-per-layer\"}]}",
      "{\"model_type\":\"llama\",\"vocab_size\":300,\"hidden_size\":32,\"intermediate_size\":50,"
      "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_hidden_layers\":3}",
      "{\"model_type\":\"qwen2\",\"vocab_size\":300,\"hidden_size\":32,\"intermediate_size\":50,"
      "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"num_hidden_layers\":3,"
      "\"tie_word_embeddings\":true}"};
  for (size_t m = 0; m < sizeof models / sizeof *models; m++)
    for (int dtype = 0; dtype < 5; dtype += IS_SANITIZED ? 2 : 1)
      for (int attention = 0; attention < 5; attention++)
        for (int checkpoint = 0; checkpoint < 4; checkpoint++) {
          tsr_simulate_options options = {.batch = 2,
                                          .sequence = 33,
                                          .dtype = (tsr_simulate_dtype)dtype,
                                          .attention = (tsr_simulate_attention)attention,
                                          .attention_chunk = 10,
                                          .checkpoint = (tsr_simulate_checkpoint)checkpoint,
                                          .checkpoint_every = 2,
                                          .optimizer =
                                              (tsr_simulate_optimizer)((dtype + attention) % 5),
                                          .loss_chunk = (unsigned)(attention + checkpoint) % 2 * 17,
                                          .accumulate = 1 + (unsigned)checkpoint % 2,
                                          .no_kv_cache = (dtype + checkpoint) % 3 == 0,
                                          .fresh_process = attention == 1};
          bool is_refused = (attention == TSR_ATTENTION_FLASH && dtype == 0) ||
                            (m == 1 && checkpoint == TSR_CHECKPOINT_EVERY);
          tsr_model *model = model_of(models[m]);
          tsr_simulation *s = NULL;
          int status = tsr_simulate(model, &options, &s, NULL);
          tsr_simulation_free(s);
          tsr_model_free(model);
          if (is_refused) {
            assert_true(status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED);
            continue;
          }
          check_program(models[m], options);
        }
}

static void refusals(void **state) {
  static const struct {
    const char *model;
    tsr_simulate_options options;
    int status;
  } cases[] = {
      {"gpt2", {.attention = TSR_ATTENTION_FLASH}, TSR_ERROR_ARGUMENT},
      {"gpt2", {.sequence = 1025}, TSR_ERROR_ARGUMENT},
      {"gpt2", {.attention = TSR_ATTENTION_CHUNKED}, TSR_ERROR_ARGUMENT},
      {"gpt2", {.checkpoint = TSR_CHECKPOINT_EVERY}, TSR_ERROR_ARGUMENT},
      {"gpt2", {.batch = UINT64_C(1) << 40}, TSR_ERROR_LIMIT},
      {"gpt2", {.sequence = 1, .steps = 1000000}, TSR_ERROR_LIMIT},
      {"gpt2", {.sequence = 1, .accumulate = 1000000}, TSR_ERROR_LIMIT},
      {"gpt2",
       {.batch = 1 << 20, .sequence = 1024, .loss_chunk = 1, .dtype = TSR_SIMULATE_BF16},
       TSR_ERROR_LIMIT},
      {"llama-3-8b", {.gelu_fused = true}, TSR_ERROR_ARGUMENT},
      {"gpt2", {.eval_steps = 2}, TSR_ERROR_ARGUMENT},
      {"gpt2", {.eval_batch = 2}, TSR_ERROR_ARGUMENT},
      {"gpt2", {.eval_steps = 1, .eval_batch = 1 << 21}, TSR_ERROR_LIMIT},
      {"gpt2", {.eval_steps = 1, .offload = {.parameters = TSR_SPACE_HOST}}, TSR_ERROR_UNSUPPORTED},
      {"gpt2", {.eval_steps = 1, .ranks = 2}, TSR_ERROR_UNSUPPORTED},
      {"llama-3-8b",
       {.batch = 1 << 20, .sequence = 1 << 24, .dtype = TSR_SIMULATE_BF16},
       TSR_ERROR_LIMIT},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_model *model = model_of(cases[i].model);
    tsr_simulation *s = NULL;
    tsr_error error = {0};
    assert_int_equal(tsr_simulate(model, &cases[i].options, &s, &error), cases[i].status);
    assert_null(s);
    assert_true(error.message[0]);
    tsr_model_free(model);
  }
}

static void out_of_memory(void **state) {
  tsr_simulate_options options = {
      .batch = 4, .sequence = 512, .steps = 5, .capacity_bytes = 4096 * MIB};
  (void)state;
  tsr_simulation *s = simulate("gpt2", &options);
  assert_true(s->is_out_of_memory);
  assert_int_equal(s->steps_done, 0);
  assert_string_equal(s->out_of_memory.phase, "backward");
  assert_int_equal(s->oom_request_bytes, 411705344);
  tsr_events events = tsr_snapshot_events(s->snapshot, 0);
  assert_int_equal(events.action[events.count - 1], TSR_ACTION_OOM);
  assert_true(s->peak_reserved_bytes <= options.capacity_bytes);
  (void)end_bytes(s, "out of memory");
  /* What was asked, in whole segments; what there was; and the stack of who asked. */
  assert_int_equal(events.size[events.count - 1], 411705344);
  assert_int_equal(events.addr[events.count - 1], s->oom_device_free_bytes);
  assert_int_equal(s->oom_segment_bytes, 394 * MIB / 2 * 2);
  assert_true(s->oom_device_free_bytes < s->oom_segment_bytes);
  tsr_stack stack = tsr_snapshot_stack(s->snapshot, events.stack[events.count - 1]);
  bool has_node = false;
  for (uint32_t i = 0; i < stack.depth; i++) {
    tsr_text name =
        tsr_snapshot_string(s->snapshot, tsr_snapshot_frame(s->snapshot, stack.frames[i]).name);
    char text[256];
    (void)snprintf(text, sizeof text, "%.*s", (int)name.size_bytes, name.data);
    has_node |= strstr(text, "LogSoftmaxBackward0::apply") != NULL;
  }
  assert_true(has_node);
  char message[TSR_SIMULATE_TEXT_BYTES], start[128];
  tsr_simulation_message(s, options.capacity_bytes, message, sizeof message);
  (void)snprintf(start, sizeof start,
                 "CUDA out of memory. Tried to allocate 394.00 MiB. GPU 0 has a total capacity of "
                 "4.00 GiB of which %.2f MiB is free. Of the allocated memory ",
                 (double)s->oom_device_free_bytes / (double)MIB);
  assert_memory_equal(message, start, strlen(start));
  tsr_simulation_free(s);
  options.capacity_bytes = 256 * MIB; /* not even the model */
  s = simulate("gpt2", &options);
  assert_true(s->is_out_of_memory);
  assert_int_equal(s->out_of_memory.step, 0);
  tsr_simulation_free(s);
  options.capacity_bytes = 40960 * MIB;
  s = simulate("gpt2", &options);
  assert_false(s->is_out_of_memory);
  tsr_simulation_message(s, options.capacity_bytes, message, sizeof message);
  assert_string_equal(message, "");
  tsr_simulation_free(s);
}

/* ---- the snapshot ---- */

static void categories_and_annotations(void **state) {
  tsr_simulate_options options = {.batch = 1, .sequence = 16, .steps = 2, .categories = true};
  size_t count, with_category = 0, starts = 0;
  (void)state;
  tsr_simulation *s = simulate("gpt2", &options);
  tsr_events events = tsr_snapshot_events(s->snapshot, 0);
  for (uint64_t i = 0; i < events.count; i++) {
    bool is_segment = events.action[i] == TSR_ACTION_SEGMENT_ALLOC;
    tsr_text category = tsr_snapshot_string(s->snapshot, tsr_id_at(events.category, i));
    bool is_unknown = category.size_bytes == 7 && memcmp(category.data, "unknown", 7) == 0;
    assert_int_equal(is_unknown, is_segment);
    with_category += !is_segment;
    assert_int_not_equal(events.stack[i], TSR_NONE);
    assert_true(i == 0 || events.time_us[i] >= events.time_us[i - 1]);
  }
  assert_true(with_category > 1000);
  const tsr_annotation *annotations = tsr_snapshot_annotations(s->snapshot, &count);
  for (size_t i = 0; i < count; i++) starts += annotations[i].is_start;
  assert_int_equal(count, 2 * 5 * 2); /* a step and its four phases, begun and ended, twice */
  assert_int_equal(starts, count / 2);
  tsr_simulation_free(s);
}

/* ---- plans ---- */

static void plans_are_values(void **state) {
  tsr__plan plan, copy;
  (void)state;
  assert_true(tsr__plan_init(&plan, 7));
  assert_false(tsr__plan_has(&plan, TSR__PLAN_RECOMPUTE));
  tsr__plan_choose_runs(&plan, 0, 7, 3); /* 0-2, 3-5, 6 */
  assert_int_equal(tsr__plan_segment_end(&plan, 0), 3);
  assert_int_equal(tsr__plan_segment_end(&plan, 3), 6);
  assert_int_equal(tsr__plan_segment_end(&plan, 6), 7);
  tsr__plan_choose(&plan, 3, 4, TSR__PLAN_KEEP); /* 4-5 is its own run now */
  assert_int_equal(tsr__plan_segment_end(&plan, 3), 4);
  assert_int_equal(tsr__plan_segment_end(&plan, 4), 6);
  assert_true(tsr__plan_copy(&copy, &plan));
  tsr__plan_choose(&plan, 0, 7, TSR__PLAN_RECOMPUTE_ATTENTION);
  assert_int_equal(tsr__plan_choice_of(&copy, 5), TSR__PLAN_RECOMPUTE_RUN);
  assert_false(tsr__plan_has(&plan, TSR__PLAN_KEEP));
  tsr__plan_release(&plan);
  tsr__plan_release(&copy);
}

/* Bytes of slots that are allocated when forward ends, and ops recorded for each of 4 blocks until
 * then. */
static uint64_t held_by_forward(const tsr_model *model, const tsr__plan *plan, uint32_t ops[4]) {
  tsr_simulate_options options = {.batch = 2, .sequence = 16, .no_kv_cache = true};
  tsr__tape tape;
  tsr__schedule schedule;
  tsr__program program = {0};
  tsr__violation violation;
  uint64_t bytes = 0;
  assert_true(tsr__tape_init(&tape, &tsr__book_torch, NULL));
  assert_int_equal(tsr__program_init(&program, model, &options, plan, &tape, NULL), 0);
  tsr__program_step(&program);
  assert_int_equal(tsr__tape_finish(&tape, &schedule), 0);
  if (tsr__schedule_validate(&schedule, &violation)) fail_msg("%s", violation.text);
  for (size_t i = 0; i < schedule.instrs.count; i++) {
    const tsr__instr *instr = &schedule.instrs.items[i];
    if (instr->kind == TSR__INSTR_END && instr->subject == TSR__PHASE_FORWARD) break;
    if (instr->kind == TSR__INSTR_NEW) bytes += schedule.slots.items[instr->subject].bytes;
    if (instr->kind == TSR__INSTR_DROP) bytes -= schedule.slots.items[instr->subject].bytes;
    if (instr->kind == TSR__INSTR_OP && schedule.ops.items[instr->subject].block != TSR_NONE) {
      assert_true(schedule.ops.items[instr->subject].block < 4);
      ops[schedule.ops.items[instr->subject].block]++;
    }
  }
  tsr__program_release(&program);
  tsr__tape_release(&tape);
  tsr__schedule_release(&schedule);
  return bytes;
}

/* Each block that is recomputed takes the same from what forward leaves behind, whatever happens to
 * the others; forward itself is the same ops. */
static void blocks_are_chosen_one_by_one(void **state) {
  tsr_model *model = model_of("{\"model_type\":\"gpt2\",\"n_layer\":4,\"n_embd\":64,\"n_head\":4}");
  tsr__plan plan;
  uint32_t kept[4] = {0};
  (void)state;
  assert_true(tsr__plan_init(&plan, 4));
  uint64_t all = held_by_forward(model, &plan, kept), each = 0;
  assert_true(kept[0] > 5 && kept[0] == kept[1] && kept[0] == kept[3]);
  for (uint64_t set = 1; set < 16; set++) {
    uint64_t count = 0;
    uint32_t ops[4] = {0};
    for (uint64_t i = 0; i < 4; i++) {
      bool is_recomputed = set >> i & 1;
      tsr__plan_choose(&plan, i, i + 1, is_recomputed ? TSR__PLAN_RECOMPUTE : TSR__PLAN_KEEP);
      count += is_recomputed;
    }
    uint64_t held = held_by_forward(model, &plan, ops);
    if (set == 1) each = all - held;
    assert_true(each > 0);
    assert_int_equal(held, all - count * each);
    for (size_t i = 0; i < 4; i++) assert_int_equal(ops[i], kept[i]);
  }
  tsr__plan_release(&plan);
  tsr_model_free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parameter_counts),
      cmocka_unit_test(descriptions),
      cmocka_unit_test(bad_descriptions),
      cmocka_unit_test(unknown_models_get_advice),
      cmocka_unit_test(gpt2_block),
      cmocka_unit_test(gpt2_block_autocast),
      cmocka_unit_test(llama_block),
      cmocka_unit_test(peak_of_a_norm),
      cmocka_unit_test(peak_of_a_loss),
      cmocka_unit_test(tutorial),
      cmocka_unit_test(without_recomputation),
      cmocka_unit_test(programs_are_sound),
      cmocka_unit_test(refusals),
      cmocka_unit_test(out_of_memory),
      cmocka_unit_test(categories_and_annotations),
      cmocka_unit_test(plans_are_values),
      cmocka_unit_test(blocks_are_chosen_one_by_one),
  };
  return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
