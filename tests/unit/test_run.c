/* Tests of the executor: gradients against central differences, optimizers against their formulas,
 * models that learn, and memory that is what was predicted.
 *
 * Gradients are checked in fp64. No program of PyTorch's asks for that, so a finished schedule is widened:
 * each of its fp32 tensors becomes an fp64 one, in a storage of twice the size. Its lists of steps,
 * views and kernels are those that run in fp32. */
#include "exec/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/validate.h"
#include "kernels/random.h"
#include "models/program.h"
#include "test_support.h"

static const char gpt2[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":31,\"n_positions\":8,\"n_embd\":12,\"n_layer\":2,"
    "\"n_head\":3,\"initializer_range\":0.3}";
/* With widths that FP8 takes. */
static const char gpt2_wide[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":31,\"n_positions\":8,\"n_embd\":16,\"n_layer\":2,"
    "\"n_head\":2}";
static const char gpt2_silent[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":31,\"n_positions\":8,\"n_embd\":12,\"n_layer\":2,"
    "\"n_head\":3,\"initializer_range\":0.3,\"resid_pdrop\":0,\"embd_pdrop\":0,\"attn_pdrop\":0}";
static const char gpt2_untied[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":31,\"n_positions\":8,\"n_embd\":12,\"n_layer\":2,"
    "\"n_head\":3,\"initializer_range\":0.3,\"activation_function\":\"gelu\","
    "\"tie_word_embeddings\":false,"
    "\"tessera_modules\":[{\"name\":\"extra\",\"kind\":\"linear-per-layer\",\"features\":5}]}";
static const char gpt2_silu[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":31,\"n_positions\":8,\"n_embd\":12,\"n_layer\":1,"
    "\"n_head\":3,\"initializer_range\":0.3,\"activation_function\":\"silu\"}";
static const char llama[] =
    "{\"model_type\":\"llama\",\"vocab_size\":31,\"hidden_size\":12,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":3,\"head_dim\":4,\"num_key_value_heads\":3,\"intermediate_size\":20,"
    "\"initializer_range\":0.3}";
static const char mistral[] =
    "{\"model_type\":\"mistral\",\"vocab_size\":31,\"hidden_size\":16,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"head_dim\":4,\"num_key_value_heads\":2,\"intermediate_size\":20,"
    "\"initializer_range\":0.3,\"sliding_window\":3,\"attention_dropout\":0.1}";
static const char qwen2[] =
    "{\"model_type\":\"qwen2\",\"vocab_size\":31,\"hidden_size\":16,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":20,"
    "\"initializer_range\":0.3,\"tie_word_embeddings\":true}";

enum { VOCABULARY = 31, BATCH = 2, SEQUENCE = 7, MOST_PARAMETERS = 64 };

/* ---- a program that is run ---- */

typedef struct bench {
  tsr_model *model;
  tsr_simulate_options run;
  tsr__tape tape;
  tsr__program program;
  tsr__schedule schedule;
  tsr__execute_options options;
  tsr__execution out;
  int64_t tokens[4][BATCH * SEQUENCE];
  /* The parameter that is moved, how far, along a random direction of this key. */
  size_t moved;
  double distance;
  bool keeps_gradients;
  double *gradients[MOST_PARAMETERS], *parameters[MOST_PARAMETERS];
  double losses[64];
  uint64_t steps, block_bytes, skipped;
} bench;

static void each_number(const tsr__kernel_tensor *t, double *numbers, bool writes) {
  uint64_t count = tsr__shape_elements(t->layout.shape);
  tsr__kernel_tensor own = {
      .data = numbers, .dtype = TSR__DTYPE_F64, .layout = tsr__layout_dense(t->layout.shape)};
  tsr__kernel_args copy = {.reads = {writes ? own : *t}, .writes = {writes ? *t : own}};
  assert_non_null(t->data);
  if (count) tsr__kernel_row_of(TSR__KERNEL_TO_COPY)->reference(&copy);
}

/* Numbers of a tensor, which the caller frees. */
static double *numbers_of(const tsr__executor *e, tsr__tensor_id tensor) {
  tsr__kernel_tensor t = tsr__executor_tensor(e, tensor);
  double *numbers = calloc(tsr__shape_elements(t.layout.shape) + 1, sizeof *numbers);
  each_number(&t, numbers, false);
  return numbers;
}

typedef struct filler {
  bench *b;
  const tsr__executor *e;
  uint64_t tensors;
} filler;

static void fill(void *context, tsr__tensor_id tensor, const tsr__initial_value *initial) {
  tsr__initial_kind kind = initial->kind;
  double number = initial->number;
  filler *f = context;
  tsr__kernel_tensor t = tsr__executor_tensor(f->e, tensor);
  uint64_t count = tsr__shape_elements(t.layout.shape);
  uint64_t key = tsr__schedule_tensor(&f->b->schedule, tensor)->is_parameter ? ++f->tensors : 0;
  double *numbers = calloc(count + 1, sizeof *numbers);
  uint64_t columns = tsr__shape_from_end(t.layout.shape, 0);
  if (kind == TSR__INITIAL_NORMAL || kind == TSR__INITIAL_CONSTANT)
    tsr__random_normal(key, 0, count, numbers);
  if (kind == TSR__INITIAL_UNIFORM) tsr__random_uniform(key, 0, count, numbers);
  for (uint64_t i = 0; i < count; i++) {
    switch (kind) {
    /* Norms and biases are random as well, or zeros would hide mistakes. */
    case TSR__INITIAL_CONSTANT:
      numbers[i] = number > 1 || !tsr__schedule_tensor(&f->b->schedule, tensor)->is_parameter
                       ? number
                       : number + 0.1 * numbers[i];
      break;
    case TSR__INITIAL_NORMAL: numbers[i] *= number; break;
    case TSR__INITIAL_UNIFORM: numbers[i] = (2 * numbers[i] - 1) * number; break;
    case TSR__INITIAL_CAUSAL: numbers[i] = i % columns <= i / columns; break;
    case TSR__INITIAL_ROTARY:
      numbers[i] = tsr__rotary_frequency(initial->rotary, initial->sequence, i);
      break;
    }
  }
  each_number(&t, numbers, true);
  free(numbers);
}

static void move(const bench *b, const tsr__executor *e) {
  tsr__tensor_id parameter = b->schedule.parameters.items[b->moved];
  tsr__kernel_tensor t = tsr__executor_tensor(e, parameter);
  double *numbers = numbers_of(e, parameter), direction;
  for (uint64_t i = 0; i < tsr__shape_elements(t.layout.shape); i++) {
    tsr__random_normal(1000 + b->moved, i, 1, &direction);
    numbers[i] += b->distance * direction;
  }
  each_number(&t, numbers, true);
  free(numbers);
}

static int load(void *context, const tsr__executor *e, tsr_error *error) {
  bench *b = context;
  filler f = {.b = b, .e = e};
  (void)error;
  tsr__program_initials(&b->program, fill, &f);
  if (b->distance != 0) move(b, e);
  return 0;
}

static const int64_t *batch(void *context, uint64_t step, uint64_t micro_batch, uint32_t which) {
  bench *b = context;
  (void)step;
  assert_true(micro_batch < 4);
  return which == 2 ? NULL : b->tokens[micro_batch];
}

static bool see_step(void *context, const tsr__executor *e, const tsr__executed_step *step) {
  bench *b = context;
  assert_int_equal(step->step, b->steps + 1);
  b->losses[b->steps++ % 64] = step->loss;
  b->skipped += step->is_skipped;
  b->block_bytes = step->block_bytes;
  for (size_t i = 0; b->keeps_gradients && i < b->schedule.parameters.count; i++) {
    tsr__tensor_id parameter = b->schedule.parameters.items[i];
    free(b->gradients[i]);
    free(b->parameters[i]);
    b->parameters[i] = numbers_of(e, parameter);
    tsr__tensor_id gradient = tsr__schedule_tensor(&b->schedule, parameter)->grad;
    b->gradients[i] = gradient ? numbers_of(e, gradient) : NULL; /* none: it is frozen */
  }
  return true;
}

/* fp32 becomes fp64. */
static void widen(tsr__schedule *schedule) {
  bool *is_wide = calloc(schedule->slots.count, sizeof *is_wide);
  for (size_t i = 1; i < schedule->tensors.count; i++) {
    tsr__step_tensor *t = &schedule->tensors.items[i];
    if (t->dtype != TSR__DTYPE_F32) continue;
    t->dtype = TSR__DTYPE_F64;
    if (!is_wide[t->slot]) schedule->slots.items[t->slot].bytes *= 2;
    is_wide[t->slot] = true;
  }
  free(is_wide);
}

static void open_bench(bench *b, const char *json, const tsr_simulate_options *run) {
  *b = (bench){.run = *run};
  b->run.batch = BATCH;
  if (!b->run.sequence) b->run.sequence = SEQUENCE;
  assert_int_equal(tsr_model_read(json, strlen(json), &b->model, NULL), 0);
  assert_true(tsr__tape_init(&b->tape, &tsr__book_torch, NULL));
  tsr_error error = {0};
  if (tsr__program_init(&b->program, b->model, &b->run, NULL, &b->tape, &error))
    fail_msg("%s", error.message);
  for (size_t m = 0; m < 4; m++)
    for (size_t i = 0; i < BATCH * SEQUENCE; i++) {
      double u;
      tsr__random_uniform(m, i, 1, &u);
      b->tokens[m][i] = (int64_t)(u * VOCABULARY);
    }
}

static void finish_tape(bench *b) {
  tsr__violation violation;
  tsr__program_step(&b->program);
  assert_int_equal(tsr__tape_finish(&b->tape, &b->schedule), 0);
  b->program.schedule = &b->schedule;
  if (tsr__schedule_validate(&b->schedule, &violation)) fail_msg("%s", violation.text);
  assert_true(b->schedule.parameters.count <= MOST_PARAMETERS);
  b->options = (tsr__execute_options){.steps = 1,
                                      .seed = 3,
                                      .numbers = {.learning_rate = 1e-3,
                                                  .beta_1 = 0.9,
                                                  .beta_2 = 0.999,
                                                  .epsilon = 1e-8,
                                                  .decay = 0.01},
                                      .losses = b->program.losses.items,
                                      .loss_count = b->program.losses.count,
                                      .context = b,
                                      .load = load,
                                      .batch = batch,
                                      .step = see_step};
}

static void execute(bench *b) {
  tsr_error error = {0};
  b->steps = b->skipped = 0;
  if (tsr__execute(&b->schedule, &b->options, &b->out, &error)) fail_msg("%s", error.message);
  assert_int_equal(b->out.steps_done, b->options.steps);
  /* What was used is what was predicted, to the byte: of the first four steps, after which nothing
   * is new. */
  const tsr__dry_device *p = &b->out.predicted, *e = &b->out.executed;
  assert_int_equal(p->peak.totals.allocated_bytes, e->peak.totals.allocated_bytes);
  assert_int_equal(p->peak_reserved_bytes, e->peak_reserved_bytes);
  if (b->options.is_placed)
    assert_true(b->out.usable_peak_bytes >= b->out.bound_bytes && b->out.bound_bytes);
  else
    assert_int_equal(b->out.usable_peak_bytes, e->peak_reserved_bytes);
}

static void close_bench(bench *b) {
  for (size_t i = 0; i < MOST_PARAMETERS; i++) free(b->gradients[i]), free(b->parameters[i]);
  tsr__program_release(&b->program);
  tsr__tape_release(&b->tape);
  tsr__schedule_release(&b->schedule);
  tsr_model_free(b->model);
}

/* ---- gradients ---- */

/* The gradient along a direction of each parameter, against the loss at both sides; under a sanitizer of every
 * 7th, since each runs the same step again. */
static void check_gradients(bench *b, const char *what) {
  const double h = 1e-4;
  widen(&b->schedule);
  b->keeps_gradients = true;
  execute(b);
  b->keeps_gradients = false;
  for (b->moved = 0; b->moved < b->schedule.parameters.count; b->moved += IS_SANITIZED ? 7 : 1) {
    if (!b->gradients[b->moved]) continue;
    uint64_t count = tsr__shape_elements(
        tsr__schedule_shape(&b->schedule, b->schedule.parameters.items[b->moved]));
    double slope = 0, size = 0, direction, at[4];
    for (uint64_t i = 0; i < count; i++) {
      tsr__random_normal(1000 + b->moved, i, 1, &direction);
      slope += b->gradients[b->moved][i] * direction;
      size += fabs(b->gradients[b->moved][i] * direction);
    }
    for (int i = 0; i < 4; i++) {
      b->distance = (double[]){-2 * h, -h, h, 2 * h}[i];
      execute(b);
      at[i] = b->losses[0];
    }
    b->distance = 0;
    double found = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h);
    assert_true(size > 0);
    if (!(fabs(found - slope) <= 1e-6 * (fabs(slope) + 1e-3 * size) + 1e-10))
      fail_msg("%s, parameter %zu: %.12g by differences, %.12g by backward", what, b->moved, found,
               slope);
  }
}

typedef struct gradient_case {
  const char *what, *model;
  tsr_simulate_options run;
  uint8_t attention; /* another op than the options choose; 0: none */
} gradient_case;

static const gradient_case gradient_cases[] = {
    {"GPT-2, SDPA", gpt2, {0}, 0},
    {"GPT-2, no cache", gpt2, {.no_kv_cache = true}, 0},
    {"GPT-2, eager", gpt2, {.attention = TSR_ATTENTION_EAGER}, 0},
    {"GPT-2, flash", gpt2, {.no_kv_cache = true}, TSR__OP_ATTENTION_FLASH},
    {"GPT-2, flash, cache", gpt2, {0}, TSR__OP_ATTENTION_FLASH},
    {"GPT-2, chunked", gpt2, {.attention = TSR_ATTENTION_CHUNKED, .attention_chunk = 3}, 0},
    {"GPT-2, fused GELU", gpt2, {.gelu_fused = true}, 0},
    {"GPT-2, exact GELU, modules", gpt2_untied, {0}, 0},
    {"GPT-2, SiLU", gpt2_silu, {0}, 0},
    {"GPT-2, chunked loss", gpt2, {.loss_chunk = 4}, 0},
    {"GPT-2, micro-batches", gpt2, {.accumulate = 3}, 0},
    {"GPT-2, checkpoints", gpt2, {.checkpoint = TSR_CHECKPOINT_FULL}, 0},
    {"GPT-2, one checkpoint", gpt2, {.checkpoint = TSR_CHECKPOINT_EVERY, .checkpoint_every = 2}, 0},
    {"GPT-2, attention again", gpt2, {.checkpoint = TSR_CHECKPOINT_SELECTIVE}, 0},
    {"GPT-2, checkpoints, not reentrant",
     gpt2,
     {.checkpoint = TSR_CHECKPOINT_FULL, .non_reentrant = true},
     0},
    {"GPT-2, micro-batches, one backward", gpt2, {.accumulate = 3, .backward_once = true}, 0},
    {"Llama, checkpoint, not reentrant",
     llama,
     {.checkpoint = TSR_CHECKPOINT_SQRT, .non_reentrant = true},
     0},
    {"GPT-2, adapters", gpt2, {.lora_rank = 2}, 0},
    {"Llama, adapters", llama, {.lora_rank = 3, .lora_alpha = 5}, 0},
    {"Llama, adapters with dropout, checkpoints",
     llama,
     {.lora_rank = 3, .lora_dropout = 0.3, .checkpoint = TSR_CHECKPOINT_FULL},
     0},
    {"Llama, eager, adapters, checkpoints",
     llama,
     {.lora_rank = 2,
      .lora_targets = TSR_LORA_ALL,
      .attention = TSR_ATTENTION_EAGER,
      .checkpoint = TSR_CHECKPOINT_FULL},
     0},
    {"Qwen2, math, adapters of queries",
     qwen2,
     {.lora_rank = 2, .lora_targets = TSR_LORA_Q_PROJ},
     0},
    {"Qwen2, eager, adapters of keys",
     qwen2,
     {.lora_rank = 2, .lora_targets = TSR_LORA_K_PROJ, .attention = TSR_ATTENTION_EAGER},
     0},
    {"Llama, SDPA", llama, {0}, 0},
    {"Llama, checkpoints", llama, {.checkpoint = TSR_CHECKPOINT_FULL}, 0},
    {"Llama, eager", llama, {.attention = TSR_ATTENTION_EAGER}, 0},
    {"Mistral, masked", mistral, {0}, 0},
    {"Mistral, flash",
     mistral,
     {.attention = TSR_ATTENTION_CHUNKED, .attention_chunk = 2},
     TSR__OP_ATTENTION_FLASH},
    {"Mistral, chunked", mistral, {.attention = TSR_ATTENTION_CHUNKED, .attention_chunk = 2}, 0},
    {"Qwen2, math", qwen2, {0}, 0},
    {"Qwen2, math, checkpoints", qwen2, {.checkpoint = TSR_CHECKPOINT_FULL}, 0},
    {"Qwen2, eager", qwen2, {.attention = TSR_ATTENTION_EAGER, .accumulate = 2}, 0},
    {"Qwen2, chunked",
     qwen2,
     {.attention = TSR_ATTENTION_CHUNKED, .attention_chunk = 3, .loss_chunk = 5},
     0},
};

static void gradients(void **state) {
  bench b;
  (void)state;
  for (size_t i = 0; i < 2 * sizeof gradient_cases / sizeof *gradient_cases; i++) {
    const gradient_case *c = &gradient_cases[i / 2];
    tsr_simulate_options run = c->run;
    run.book = i % 2 ? TSR_BOOK_OWN : TSR_BOOK_TORCH;
    open_bench(&b, c->model, &run);
    if (c->attention) b.program.attention = (tsr__op_kind)c->attention;
    finish_tape(&b);
    check_gradients(&b, c->what);
    close_bench(&b);
  }
}

/* Mark the ops of a text that a model continues. */
static void see_generation(bool is_seen[TSR__OP_KIND_COUNT]) {
  tsr__violation violation;
  bench b;
  open_bench(&b, llama, &(tsr_simulate_options){.book = TSR_BOOK_OWN, .sequence = 3});
  tsr__program_generate(&b.program, SEQUENCE, true);
  assert_int_equal(tsr__tape_finish(&b.tape, &b.schedule), 0);
  b.program.schedule = &b.schedule;
  if (tsr__schedule_validate(&b.schedule, &violation)) fail_msg("%s", violation.text);
  for (size_t op = 0; op < b.schedule.ops.count; op++)
    is_seen[b.schedule.ops.items[op].kind] = true;
  close_bench(&b);
}

/* Each row of a rule book is in one of these programs, or in those below. */
static void see_every_op(tsr_simulate_book book, const tsr__rule_book *rows) {
  bool is_seen[TSR__OP_KIND_COUNT] = {false};
  const tsr__op_row *seen[TSR__OP_KIND_COUNT] = {NULL};
  static const tsr_simulate_options more[] = {
      {.optimizer = TSR_OPTIMIZER_ADAMW_LOOP},
      {.optimizer = TSR_OPTIMIZER_ADAMW_FUSED},
      {.optimizer = TSR_OPTIMIZER_SGD},
      {.optimizer = TSR_OPTIMIZER_SGD_MOMENTUM},
      {.optimizer = TSR_OPTIMIZER_SGD_MOMENTUM, .nesterov = true},
      {.dtype = TSR_SIMULATE_AUTOCAST_FP16},
      {.dtype = TSR_SIMULATE_BF16, .master_weights = true},
      {.dtype = TSR_SIMULATE_BF16, .lora_rank = 2, .quantize = TSR_QUANTIZE_NF4},
      {.dtype = TSR_SIMULATE_BF16, .sequence = 8, .fp8 = TSR_FP8_TE}};
  size_t count = sizeof gradient_cases / sizeof *gradient_cases;
  bench b;
  for (size_t i = 0; i < count + sizeof more / sizeof *more; i++) {
    tsr_simulate_options run = i < count ? gradient_cases[i].run : more[i - count];
    run.book = book;
    if ((run.quantize || run.fp8) && book == TSR_BOOK_OWN) continue;     /* refused */
    bool has_modules = run.dtype != TSR_SIMULATE_FP32 && !run.lora_rank; /* which need casts */
    const char *other = run.fp8 ? gpt2_wide : has_modules ? gpt2_untied : gpt2;
    open_bench(&b, i < count ? gradient_cases[i].model : other, &run);
    if (i < count && gradient_cases[i].attention)
      b.program.attention = (tsr__op_kind)gradient_cases[i].attention;
    finish_tape(&b);
    for (size_t op = 0; op < b.schedule.ops.count; op++)
      is_seen[b.schedule.ops.items[op].kind] = true;
    close_bench(&b);
  }
  if (book == TSR_BOOK_OWN) see_generation(is_seen);
  for (size_t kind = 0; kind < TSR__OP_KIND_COUNT; kind++)
    if (is_seen[kind]) seen[kind] = tsr__op_row_of(rows, (tsr__op_kind)kind);
  for (size_t kind = 0; kind < TSR__OP_KIND_COUNT; kind++) {
    bool is_run = !rows->rows[kind]; /* under this kind, or another that has the same row */
    for (size_t i = 0; i < TSR__OP_KIND_COUNT; i++)
      is_run |= seen[i] && seen[i] == rows->rows[kind];
    if (!is_run) fail_msg("%s is in no program", rows->rows[kind]->name);
  }
}

static void every_op_is_run(void **state) {
  (void)state;
  see_every_op(TSR_BOOK_TORCH, &tsr__book_torch);
  see_every_op(TSR_BOOK_OWN, &tsr__book_own);
}

/* ---- types ---- */

/* How far gradients are from those of another run, relative to their size. */
static double distance_of(const bench *a, const bench *b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a->schedule.parameters.count; i++) {
    uint64_t count =
        tsr__shape_elements(tsr__schedule_shape(&a->schedule, a->schedule.parameters.items[i]));
    for (uint64_t k = 0; k < count; k++) {
      difference += pow(a->gradients[i][k] - b->gradients[i][k], 2);
      size += pow(a->gradients[i][k], 2);
    }
  }
  return sqrt(difference / size);
}

static void types(void **state) {
  static const struct {
    tsr_simulate_dtype dtype;
    double precision;
  } all[] = {{TSR_SIMULATE_FP32, 1e-5},
             {TSR_SIMULATE_BF16, 0.1},
             {TSR_SIMULATE_FP16, 1e-2},
             {TSR_SIMULATE_AUTOCAST_BF16, 0.1},
             {TSR_SIMULATE_AUTOCAST_FP16, 1e-2}};
  static const char *const models[] = {gpt2_silent, qwen2};
  static const tsr_simulate_attention attention[] = {TSR_ATTENTION_CHUNKED, TSR_ATTENTION_EAGER,
                                                     TSR_ATTENTION_SDPA};
  bench wide, b;
  (void)state;
  for (size_t m = 0; m < 2; m++) {
    tsr_simulate_options run = {.attention = TSR_ATTENTION_CHUNKED, .attention_chunk = 3};
    open_bench(&wide, models[m], &run);
    finish_tape(&wide);
    widen(&wide.schedule);
    wide.keeps_gradients = true;
    execute(&wide);
    for (size_t i = 0; i < 6 * sizeof all / sizeof *all; i++) {
      run.dtype = all[i / 6].dtype;
      run.attention = attention[i % 3];
      run.book = i / 3 % 2 ? TSR_BOOK_OWN : TSR_BOOK_TORCH;
      if (m && run.book == TSR_BOOK_TORCH && run.dtype == TSR_SIMULATE_FP32 &&
          run.attention == TSR_ATTENTION_SDPA)
        continue;
      open_bench(&b, models[m], &run);
      finish_tape(&b);
      b.keeps_gradients = true;
      execute(&b);
      double distance = distance_of(&wide, &b);
      if (!(distance <= all[i / 6].precision))
        fail_msg("model %zu, type %d, attention %d, book %d: gradients are off by %g", m,
                 (int)run.dtype, (int)run.attention, (int)run.book, distance);
      close_bench(&b);
    }
    close_bench(&wide);
  }
}

/* ---- optimizers ---- */

/* After one step of AdamW from moments of zero, p (1 - lr decay) - lr g / (|g| + epsilon); the variants
 * agree after three. */
static void optimizers(void **state) {
  static const tsr_simulate_optimizer variants[] = {TSR_OPTIMIZER_SGD, TSR_OPTIMIZER_ADAMW_FOREACH,
                                                    TSR_OPTIMIZER_ADAMW_LOOP,
                                                    TSR_OPTIMIZER_ADAMW_FUSED, TSR_OPTIMIZER_ADAMW};
  enum { VARIANTS = sizeof variants / sizeof *variants }; /* the last one: of the own book */
  bench b[VARIANTS], start;
  (void)state;
  open_bench(&start, gpt2_silent, &(tsr_simulate_options){.optimizer = TSR_OPTIMIZER_SGD});
  finish_tape(&start);
  widen(&start.schedule);
  start.options.numbers.learning_rate = 0; /* what the parameters are at first */
  start.keeps_gradients = true;
  execute(&start);
  for (size_t i = 0; i < VARIANTS; i++) {
    tsr_simulate_book book = i + 1 == VARIANTS ? TSR_BOOK_OWN : TSR_BOOK_TORCH;
    open_bench(&b[i], gpt2_silent, &(tsr_simulate_options){.optimizer = variants[i], .book = book});
    finish_tape(&b[i]);
    widen(&b[i].schedule);
    b[i].keeps_gradients = true;
    execute(&b[i]);
    for (size_t k = 0; k < b[i].schedule.parameters.count; k++) {
      double g = start.gradients[k][0], p = start.parameters[k][0];
      double want = i ? p * (1 - 1e-5) - 1e-3 * g / (fabs(g) + 1e-8) : p - 1e-3 * g;
      assert_true(fabs(b[i].parameters[k][0] - want) < 1e-12);
    }
    b[i].options.steps = 3;
    execute(&b[i]);
    for (size_t k = 0; i > 1 && k < b[i].schedule.parameters.count; k++)
      assert_true(fabs(b[i].parameters[k][0] - b[1].parameters[k][0]) < 1e-12);
  }
  for (size_t i = 0; i < VARIANTS; i++) close_bench(&b[i]);
  close_bench(&start);
}

/* An overflow skips the optimizer, and halves the scale. */
static int load_overflow(void *context, const tsr__executor *e, tsr_error *error) {
  bench *b = context;
  double scale = 0x1p127;
  int status = load(context, e, error);
  tsr__kernel_tensor t = tsr__executor_tensor(e, b->program.loss_scale);
  each_number(&t, &scale, true);
  return status;
}

static void overflows(void **state) {
  bench b;
  (void)state;
  for (int book = TSR_BOOK_TORCH; book <= TSR_BOOK_OWN; book++) {
    open_bench(&b, gpt2,
               &(tsr_simulate_options){.dtype = TSR_SIMULATE_AUTOCAST_FP16,
                                       .book = (tsr_simulate_book)book});
    finish_tape(&b);
    b.options.load = load_overflow;
    b.options.steps = 3;
    b.keeps_gradients = true;
    execute(&b);
    assert_int_equal(b.skipped, 3);
    double moved = b.parameters[0][0];
    b.options.steps = 1;
    execute(&b);
    assert_true(b.parameters[0][0] == moved); /* nothing has changed it */
    close_bench(&b);
  }
}

/* ---- learning, and memory ---- */

static void models_learn(void **state) {
  static const tsr_simulate_dtype types[] = {TSR_SIMULATE_FP32, TSR_SIMULATE_AUTOCAST_BF16,
                                             TSR_SIMULATE_AUTOCAST_FP16};
  bench b, again;
  (void)state;
  for (size_t i = 0; i < 12; i++) {
    const char *json = i % 2 ? llama : gpt2_silent;
    tsr_simulate_options run = {.dtype = types[i / 2 % 3],
                                .book = i < 6 ? TSR_BOOK_TORCH : TSR_BOOK_OWN};
    open_bench(&b, json, &run);
    finish_tape(&b);
    b.options.steps = 50;
    b.options.numbers.learning_rate = 1e-2;
    execute(&b);
    if (!(b.losses[49] < 0.5 * b.losses[0]))
      fail_msg("model %zu: loss %g after %g", i, b.losses[49], b.losses[0]);
    /* The same seed gives the same bits. */
    open_bench(&again, json, &run);
    finish_tape(&again);
    again.options = b.options;
    again.options.context = &again;
    again.options.losses = again.program.losses.items;
    execute(&again);
    assert_memory_equal(again.losses, b.losses, sizeof b.losses);
    close_bench(&again);
    close_bench(&b);
  }
}

/* Recomputing does not change a bit, dropout included; nor do settings of the allocator, nor places that were
 * chosen before the run. */
static void bits(void **state) {
  static const tsr_simulate_options runs[] = {
      {.no_kv_cache = true},
      {.no_kv_cache = true, .checkpoint = TSR_CHECKPOINT_FULL},
      {.no_kv_cache = true, .checkpoint = TSR_CHECKPOINT_SELECTIVE},
      {.no_kv_cache = true, .checkpoint = TSR_CHECKPOINT_EVERY, .checkpoint_every = 2},
      {.no_kv_cache = true},
      {.no_kv_cache = true},
      {.no_kv_cache = true, .checkpoint = TSR_CHECKPOINT_FULL},
      {.no_kv_cache = true, .checkpoint = TSR_CHECKPOINT_FULL, .non_reentrant = true},
      {.no_kv_cache = true, .checkpoint = TSR_CHECKPOINT_SELECTIVE, .non_reentrant = true},
      {.no_kv_cache = true, .checkpoint = TSR_CHECKPOINT_SQRT, .non_reentrant = true}};
  enum { RUNS = sizeof runs / sizeof *runs };
  static const char *const models[] = {gpt2, mistral};
  bench b[RUNS];
  (void)state;
  for (int which = 0; which < 3; which++) {
    for (size_t i = 0; i < RUNS; i++) {
      tsr_simulate_options run = runs[i];
      run.book = which ? TSR_BOOK_OWN : TSR_BOOK_TORCH;
      open_bench(&b[i], models[which == 2], &run);
      finish_tape(&b[i]);
      b[i].options.steps = 4;
      if (i == 4) b[i].options.settings.expandable_segments = true;
      b[i].options.is_placed = i > 4 && i < 7;
      execute(&b[i]);
      assert_memory_equal(b[i].losses, b[0].losses, sizeof b[0].losses);
    }
    for (size_t i = 0; i < RUNS; i++) close_bench(&b[i]);
  }
}

/* Updated in backward, each parameter has the same bits as in a step of its own, of all of them; a tied one is updated
 * once. Gradients are not there together, so the peak is
 * lower, unless it is elsewhere. */
static void updates_in_backward(void **state) {
  static const tsr_simulate_options runs[] = {
      {.optimizer = TSR_OPTIMIZER_ADAMW},
      {.optimizer = TSR_OPTIMIZER_ADAMW_LOOP, .checkpoint = TSR_CHECKPOINT_FULL},
      {.optimizer = TSR_OPTIMIZER_ADAMW_FUSED, .loss_chunk = 4},
      {.optimizer = TSR_OPTIMIZER_SGD, .checkpoint = TSR_CHECKPOINT_SQRT, .non_reentrant = true},
      {.offload = {.optimizer = TSR_SPACE_HOST, .gradients = TSR_SPACE_HOST}},
      {.dtype = TSR_SIMULATE_BF16, .master_weights = true}};
  static const char *const models[] = {gpt2, gpt2_untied, llama};
  bench b[2];
  size_t lower = 0;
  (void)state;
  for (size_t i = 0; i < 6 * sizeof runs / sizeof *runs; i++) {
    tsr_simulate_options run = runs[i / 6];
    const char *model = models[i % 3];
    if (model == gpt2_untied && run.checkpoint) continue; /* its modules need hidden states */
    for (int in_backward = 0; in_backward < 2; in_backward++) {
      bench *one = &b[in_backward];
      run.no_kv_cache = true;
      run.book = i / 3 % 2 ? TSR_BOOK_OWN : TSR_BOOK_TORCH;
      run.update_in_backward = in_backward;
      open_bench(one, model, &run);
      finish_tape(one);
      one->options.steps = 4;
      execute(one);
    }
    assert_memory_equal(b[1].losses, b[0].losses, sizeof b[0].losses);
    uint64_t peak = b[0].out.executed.peak.totals.allocated_bytes;
    uint64_t in_backward = b[1].out.executed.peak.totals.allocated_bytes;
    if (in_backward > peak) fail_msg("run %zu: more", i);
    lower += in_backward < peak;
    close_bench(&b[0]);
    close_bench(&b[1]);
  }
  assert_true(lower >= 12); /* of 32; elsewhere the peak is in forward */
}

/* ---- saved tensors ---- */

/* Four steps in which all that the ops of all blocks save is in one place. */
static void run_saved(bench *b, const gradient_case *c, tsr_saved_place place) {
  static const char *const names[] = {"linear",
                                      "linear without bias",
                                      "layer norm",
                                      "RMS norm",
                                      "eager GELU",
                                      "GELU",
                                      "SiLU",
                                      "product",
                                      "dropout",
                                      "eager attention",
                                      "memory-efficient attention",
                                      "flash attention",
                                      "chunked attention",
                                      "rotary embedding"};
  enum { NAMES = sizeof names / sizeof *names };
  tsr_saved_choice saved[NAMES];
  tsr_block_choice blocks = {.first = 0, .saved = saved, .saved_count = NAMES};
  tsr_simulate_options run = c->run;
  tsr_model *model;
  assert_int_equal(tsr_model_read(c->model, strlen(c->model), &model, NULL), 0);
  blocks.last = model->layers - 1;
  tsr_model_free(model);
  for (size_t i = 0; i < NAMES; i++) saved[i] = (tsr_saved_choice){names[i], place};
  run.blocks = &blocks;
  run.block_count = 1;
  open_bench(b, c->model, &run);
  if (c->attention) b->program.attention = (tsr__op_kind)c->attention;
  finish_tape(b);
  b->options.steps = 4;
  execute(b);
}

/* What is computed again is the same to the bit, wherever it is saved, by whichever op; so is what was on the host. Narrowed
 * tensors change the loss a little. */
static void saved_tensors(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof gradient_cases / sizeof *gradient_cases; i++) {
    const gradient_case *c = &gradient_cases[i];
    bench kept, again, host, narrow, narrower;
    run_saved(&kept, c, TSR_SAVED_KEEP);
    run_saved(&again, c, TSR_SAVED_RECOMPUTE);
    run_saved(&host, c, TSR_SAVED_HOST);
    run_saved(&narrow, c, TSR_SAVED_NARROW16);
    run_saved(&narrower, c, TSR_SAVED_NARROW8);
    assert_memory_equal(again.losses, kept.losses, sizeof kept.losses);
    assert_memory_equal(host.losses, kept.losses, sizeof kept.losses);
    for (size_t k = 0; k < sizeof kept.losses / sizeof *kept.losses; k++)
      assert_true(fabs(narrow.losses[k] - kept.losses[k]) <= 1e-3 * fabs(kept.losses[k]));
    for (size_t k = 0; k < sizeof kept.losses / sizeof *kept.losses; k++)
      if (!(fabs(narrower.losses[k] - kept.losses[k]) <= 2e-3 * fabs(kept.losses[k])))
        fail_msg("case %zu: in 8 bits the loss is %g, not %g", i, narrower.losses[k],
                 kept.losses[k]);
    if (!c->run.checkpoint) {
      assert_true(again.schedule.recomputed_flops > 0);
      assert_int_equal(kept.schedule.recomputed_flops, 0);
    }
    close_bench(&kept);
    close_bench(&again);
    close_bench(&host);
    close_bench(&narrow);
    close_bench(&narrower);
  }
}

/* Blocks in use, counted from events, are those that the dry executor names. */
static void memory(void **state) {
  bench b;
  uint64_t peak = 0;
  (void)state;
  open_bench(&b, gpt2, &(tsr_simulate_options){.accumulate = 2});
  finish_tape(&b);
  b.options.steps = 6;
  execute(&b);
  for (size_t i = 0; i < TSR_CATEGORY_COUNT; i++) peak += b.out.executed.peak.category_bytes[i];
  assert_true(b.out.block_peak_bytes >= peak);
  assert_true(b.block_bytes > 0 && b.block_bytes < b.out.block_peak_bytes);
  /* With too little memory it ends, where it was predicted to. */
  b.options.capacity_bytes = b.out.executed.peak_reserved_bytes - (2 << 20);
  tsr_error error;
  assert_int_equal(tsr__execute(&b.schedule, &b.options, &b.out, &error), 0);
  assert_true(b.out.executed.is_out_of_memory && b.out.predicted.is_out_of_memory);
  assert_int_equal(b.out.executed.out_of_memory.event_count,
                   b.out.predicted.out_of_memory.event_count);
  close_bench(&b);
}

static int refuse(void *context, const tsr__executor *e, tsr_error *error) {
  (void)context, (void)e;
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "no such weights");
}
static bool stop(void *context, const tsr__executor *e, const tsr__executed_step *step) {
  (void)context, (void)e;
  return step->step < 3;
}

static void ends(void **state) {
  bench b;
  tsr_error error;
  (void)state;
  open_bench(&b, gpt2, &(tsr_simulate_options){0});
  finish_tape(&b);
  b.options.steps = 10;
  b.options.step = stop;
  assert_int_equal(tsr__execute(&b.schedule, &b.options, &b.out, &error), 0);
  assert_int_equal(b.out.steps_done, 3);
  b.options.load = refuse;
  assert_int_equal(tsr__execute(&b.schedule, &b.options, &b.out, &error), TSR_ERROR_FORMAT);
  assert_string_equal(error.message, "no such weights");
  close_bench(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gradients),
                                     cmocka_unit_test(every_op_is_run),
                                     cmocka_unit_test(types),
                                     cmocka_unit_test(optimizers),
                                     cmocka_unit_test(overflows),
                                     cmocka_unit_test(models_learn),
                                     cmocka_unit_test(bits),
                                     cmocka_unit_test(saved_tensors),
                                     cmocka_unit_test(updates_in_backward),
                                     cmocka_unit_test(memory),
                                     cmocka_unit_test(ends)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
