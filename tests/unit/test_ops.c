/* Tests of the op table: what single ops keep and need, against counts made by hand; that every list
 * of steps cleans up after itself; and that a schedule is one that could be executed. */
#include <stdio.h>
#include <stdlib.h>

#include "exec/simulate.h"
#include "graph/validate.h"
#include "models/program.h"
#include "tessera/tessera.h"
#include "tessera/unstable/unstable.h"
#include "test_support.h"
#include "torch/kernels.h"
#include "torch/torch.h"

typedef struct bench {
  tsr__tape tape;
} bench;

static void open_bench(bench *b) {
  assert_true(tsr__tape_init(&b->tape, &tsr__book_torch, NULL));
  tsr__scope_enter(&b->tape, TSR__PLACE_NONE);
  for (size_t i = 0; i < 2; i++)
    b->tape.workspace[i] =
        tsr__tensor_declare(&b->tape, TSR__DTYPE_BOOL, TSR__SHAPE(1), TSR_CATEGORY_WORKSPACE);
}

static void close_bench(bench *b) {
  assert_int_equal(b->tape.status, 0);
  tsr__tape_release(&b->tape);
}

/* Bytes that the schedule has allocated and not freed. */
static uint64_t live_bytes(const bench *b) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < b->tape.schedule.instrs.count; i++) {
    const tsr__instr *instr = &b->tape.schedule.instrs.items[i];
    if (instr->kind == TSR__INSTR_NEW) bytes += b->tape.schedule.slots.items[instr->subject].bytes;
    if (instr->kind == TSR__INSTR_DROP) bytes -= b->tape.schedule.slots.items[instr->subject].bytes;
  }
  return bytes;
}

/* The most that was live at a time, from an instruction on before which `bytes` were. */
static uint64_t most_after(const bench *b, size_t from, uint64_t bytes) {
  uint64_t most = bytes;
  for (size_t i = from; i < b->tape.schedule.instrs.count; i++) {
    const tsr__instr *instr = &b->tape.schedule.instrs.items[i];
    if (instr->kind == TSR__INSTR_NEW) bytes += b->tape.schedule.slots.items[instr->subject].bytes;
    if (instr->kind == TSR__INSTR_DROP) bytes -= b->tape.schedule.slots.items[instr->subject].bytes;
    if (bytes < UINT64_C(1) << 63 && bytes > most) most = bytes;
  }
  return most;
}

static uint64_t most_bytes(const bench *b, size_t from) {
  return most_after(b, from, 0);
}

static tsr__tensor_id leaf(bench *b, tsr__dtype dtype, tsr__shape shape) {
  return tsr__tensor_declare(&b->tape, dtype, shape, TSR_CATEGORY_PARAMETER);
}

/* The gradient that a backward pass begins with. */
static tsr__tensor_id ones_like(bench *b, tsr__tensor_id tensor) {
  tsr__kernel_use use = {.kernel = TSR__KERNEL_ONES_LIKE, .op = TSR_NONE};
  return tsr__tape_run_new(&b->tape, &use, tsr__tensor_dtype(&b->tape, tensor),
                           tsr__layout_dense(tsr__tensor_shape(&b->tape, tensor)));
}

/* Release the result, run backward from it, and see that nothing is left but gradients. */
static void back(bench *b, tsr__tensor_id result, uint64_t gradient_bytes) {
  tsr__tensor_id grad = ones_like(b, result);
  tsr__tape_backward(&b->tape, result, grad);
  tsr__scope_leave(&b->tape, 0);
  assert_int_equal(live_bytes(b), gradient_bytes);
}

static void op_layer_norm(void **state) {
  bench b;
  (void)state;
  open_bench(&b);
  tsr__tensor_id x = leaf(&b, TSR__DTYPE_F32, TSR__SHAPE(2, 3, 40)),
                 w = leaf(&b, TSR__DTYPE_F32, TSR__SHAPE(40));
  tsr__tensor_id bias = leaf(&b, TSR__DTYPE_F32, TSR__SHAPE(40));
  tsr__op_attributes attributes = {.epsilon = 1e-5};
  tsr__tensor_id y = tsr__op_apply(&b.tape, TSR__OP_LAYER_NORM, &attributes,
                                   (tsr__tensor_id[]){x, w, bias}, 3, NULL);
  assert_int_equal(live_bytes(&b), 2 * 3 * 40 * 4 + 2 * 2 * 3 * 4); /* out, mean, deviation */
  assert_int_equal(b.tape.ops.items[0].saved_count, 4);             /* x, mean, deviation, weight */
  back(&b, y, (2 * 3 * 40 + 40 + 40) * 4);
  close_bench(&b);
}

/* What the first op has done since that run. */
static void expect_work(const bench *b, size_t from, uint64_t flops, uint64_t bytes) {
  for (size_t i = from; i < b->tape.schedule.runs.count; i++) {
    const tsr__kernel_run *run = &b->tape.schedule.runs.items[i];
    if (run->op != 0) continue;
    flops -= run->flops;
    bytes -= run->bytes_moved;
  }
  assert_int_equal(flops, 0);
  assert_int_equal(bytes, 0);
}

static void op_linear(void **state) {
  bench b;
  (void)state;
  open_bench(&b);
  tsr__tensor_id x = leaf(&b, TSR__DTYPE_BF16, TSR__SHAPE(5, 7, 30));
  tsr__tensor_id w = leaf(&b, TSR__DTYPE_BF16, TSR__SHAPE(30, 11)),
                 bias = leaf(&b, TSR__DTYPE_BF16, TSR__SHAPE(11));
  tsr__op_attributes attributes = {.features = 11};
  tsr__tensor_id y =
      tsr__op_apply(&b.tape, TSR__OP_CONV1D, &attributes, (tsr__tensor_id[]){bias, x, w}, 3, NULL);
  assert_int_equal(live_bytes(&b), 5 * 7 * 11 * 2);
  size_t forward = b.tape.schedule.runs.count;
  expect_work(&b, 0, 2 * 5 * 7 * 30 * 11, (5 * 7 * 30 + 30 * 11 + 11 + 5 * 7 * 11) * 2);
  back(&b, y, (5 * 7 * 30 + 30 * 11 + 11) * 2);
  expect_work(&b, forward, 4 * 5 * 7 * 30 * 11, 2 * (5 * 7 * 30 + 30 * 11 + 5 * 7 * 11) * 2);
  close_bench(&b);
}

/* Four tensors of its width stay for backward, next to the product. */
static void op_gelu(void **state) {
  bench b;
  uint64_t u = 6 * 50 * 4;
  (void)state;
  open_bench(&b);
  tsr__tensor_id x = leaf(&b, TSR__DTYPE_F32, TSR__SHAPE(6, 50));
  tsr__tensor_id y = TSR__OP_APPLY(&b.tape, TSR__OP_GELU, x);
  assert_int_equal(live_bytes(&b), 4 * u); /* half, tanh, one, product; x is no one's here */
  assert_int_equal(most_bytes(&b, 0), 4 * u);
  back(&b, y, u);
  close_bench(&b);
  open_bench(&b);
  x = leaf(&b, TSR__DTYPE_F32, TSR__SHAPE(6, 50));
  y = TSR__OP_APPLY(&b.tape, TSR__OP_GELU_FUSED, x);
  assert_int_equal(live_bytes(&b), u);
  back(&b, y, u);
  close_bench(&b);
}

/* A gradient that two ops contribute to is added in place where nothing else holds it. */
static void gradients_add_up(void **state) {
  bench b;
  uint64_t u = 100 * 4;
  (void)state;
  open_bench(&b);
  tsr__tensor_id x = leaf(&b, TSR__DTYPE_F32, TSR__SHAPE(100));
  tsr__tensor_id y = TSR__OP_APPLY(&b.tape, TSR__OP_GELU_FUSED, x);
  tsr__tensor_id z = TSR__OP_APPLY(&b.tape, TSR__OP_ADD, y, x);
  tsr__tensor_id grad = ones_like(&b, z);
  size_t from = b.tape.schedule.instrs.count;
  tsr__tape_backward(&b.tape, z, grad);
  assert_int_equal(most_bytes(&b, from), u); /* one more than the gradient that came */
  tsr__scope_leave(&b.tape, 0);
  assert_int_equal(live_bytes(&b), u);
  close_bench(&b);
}

/* x + x: both gradients are the one that came; .grad cannot take it over while it is shared. */
static void shared_gradients_are_copied(void **state) {
  bench b;
  (void)state;
  open_bench(&b);
  tsr__tensor_id x = leaf(&b, TSR__DTYPE_F32, TSR__SHAPE(64)),
                 y = leaf(&b, TSR__DTYPE_F32, TSR__SHAPE(64));
  tsr__tensor_id z = TSR__OP_APPLY(&b.tape, TSR__OP_ADD, x, y);
  back(&b, z, 2 * 64 * 4);
  assert_int_not_equal(tsr__tensor_at(&b.tape, x)->grad, tsr__tensor_at(&b.tape, y)->grad);
  close_bench(&b);
}

/* Every kind of op has a row that is whole. */
static void table_is_whole(void **state) {
  (void)state;
  for (int i = 0; i < 2 * TSR__OP_KIND_COUNT; i++) {
    const tsr__op_row *row = (i % 2 ? &tsr__book_own : &tsr__book_torch)->rows[i / 2];
    if (!row) continue;
    assert_non_null(row->name);
    assert_true((row->forward != NULL) != (row->run_forward != NULL));
    assert_int_equal(row->node != NULL, row->backward || row->run_backward);
  }
}

/* Every kernel has a row that makes sense, and a name in PyTorch. */
static void kernels_are_whole(void **state) {
  (void)state;
  for (int kind = 1; kind < TSR__KERNEL_COUNT; kind++) {
    const tsr__kernel_row *row = tsr__kernel_row_of((tsr__kernel)kind);
    assert_true(row->name[0] && tsr__torch_kernel_of((tsr__kernel)kind)->name[0]);
    assert_true(row->least_reads <= row->most_reads && row->most_reads <= TSR__KERNEL_READS);
    assert_true(row->least_writes <= row->most_writes && row->most_writes <= TSR__KERNEL_WRITES);
    assert_true(row->most_scratch <= TSR__KERNEL_SCRATCH);
    assert_true(row->scalars + row->more_scalars <= TSR__KERNEL_SCALARS);
    for (int i = 0; i < TSR__KERNEL_WRITES; i++) {
      assert_true(row->in_place[i] <= row->most_reads);
      if (i >= row->most_writes) assert_int_equal(row->in_place[i], 0);
    }
  }
}

/* ---- every op, by hand ---- */

enum { B = 2, H = 4, R = 6, W = 8, C = H * W, KV = 2 }; /* batch, heads, rows, width, ... */

#define HEADS    TSR__SHAPE(B, H, R, W)
#define KV_HEADS TSR__SHAPE(B, KV, R, W)
#define HIDDEN   TSR__SHAPE(B, R, C)
#define U        (B * R * C) /* elements of a hidden state */
#define PAIRS    (B * H * R * R)

typedef struct op_case {
  const char *what;
  tsr__op_kind kind;
  tsr__dtype dtype; /* of inputs that a gradient is needed for */
  tsr__shape inputs[5];
  uint32_t input_count, without_gradient; /* the last ones */
  tsr__op_attributes attributes;
  uint64_t kept;                        /* bytes after forward: outputs, and what was saved */
  uint64_t most_forward, most_backward; /* beyond inputs, at the highest */
} op_case;

/* Sizes in bytes: 4 and 2 an element. In backward the gradient that came counts, too. */
static const op_case cases[] = {
    {"embedding",
     TSR__OP_EMBEDDING,
     TSR__DTYPE_F32,
     {{{50, C}, 2}, {{B, R}, 2}},
     2,
     1,
     {0},
     4 * U,
     4 * U,
     4 * U + 4 * 50 * C},
    {"linear",
     TSR__OP_CONV1D,
     TSR__DTYPE_F32,
     {{{70}, 1}, {{B, R, C}, 3}, {{C, 70}, 2}},
     3,
     0,
     {.features = 70},
     4 * B *R * 70,
     4 * B *R * 70,
     4 * B *R * 70 + 4 * U + 4 * C * 70 + 4 * 70},
    {"RMS norm fp32",
     TSR__OP_RMS_NORM,
     TSR__DTYPE_F32,
     {{{B, R, C}, 3}, {{C}, 1}},
     2,
     0,
     {.epsilon = 1e-6},
     2 * 4 * U + 4 * B *R,     /* normalised, root, out */
     2 * 4 * U + 2 * 4 * B *R, /* and the variance */
     5 * 4 * U + 4 * C},
    {"RMS norm bf16",
     TSR__OP_RMS_NORM,
     TSR__DTYPE_BF16,
     {{{B, R, C}, 3}, {{C}, 1}},
     2,
     0,
     {.epsilon = 1e-6},
     4 * U + 4 * B *R + 2 * U + 2 * U, /* fp32 copy, root, normalised, out */
     4 * U + 2 * 4 * B *R + 4 * U + 2 * U + 2 * U,
     0},
    {"dropout",
     TSR__OP_DROPOUT,
     TSR__DTYPE_BF16,
     {{{B, R, C}, 3}},
     1,
     0,
     {.dropout = 0.1},
     2 * U + U,
     3 * U,
     2 * U + U + 2 * U},
    {"product",
     TSR__OP_MUL,
     TSR__DTYPE_F32,
     {{{B, R, C}, 3}, {{B, R, C}, 3}},
     2,
     0,
     {0},
     4 * U,
     4 * U,
     3 * 4 * U},
    {"eager GELU",
     TSR__OP_GELU,
     TSR__DTYPE_F32,
     {{{B, R, C}, 3}},
     1,
     0,
     {0},
     4 * 4 * U,
     4 * 4 * U,
     0},
    {"GELU", TSR__OP_GELU_FUSED, TSR__DTYPE_F16, {{{B, R, C}, 3}}, 1, 0, {0}, 2 * U, 2 * U, 4 * U},
    {"SiLU", TSR__OP_SILU, TSR__DTYPE_F16, {{{B, R, C}, 3}}, 1, 0, {0}, 2 * U, 2 * U, 4 * U},
    {"cast",
     TSR__OP_CAST,
     TSR__DTYPE_F32,
     {{{B, R, C}, 3}},
     1,
     0,
     {.dtype = TSR__DTYPE_BF16},
     2 * U,
     2 * U,
     2 * U + 4 * U},
    {"repeated heads",
     TSR__OP_REPEAT,
     TSR__DTYPE_BF16,
     {{{B, KV, R, W}, 4}},
     1,
     0,
     {.repeats = 2},
     2 * U,
     2 * U,
     2 * U + U},
    {"memory-efficient fp32",
     TSR__OP_ATTENTION_EFFICIENT,
     TSR__DTYPE_F32,
     {{{B, H, R, W}, 4}, {{B, H, R, W}, 4}, {{B, H, R, W}, 4}},
     3,
     0,
     {0},
     4 * U + 4 * B *H * 32 + 16,
     4 * U + 4 * B *H * 32 + 16,
     2 * 4 * U + 4 * B *H * 32 + 16 + 3 * 4 * U + 4 * U +
         4 * B *H *R}, /* + gradients, product, sums */
    {"memory-efficient bf16",
     TSR__OP_ATTENTION_EFFICIENT,
     TSR__DTYPE_BF16,
     {{{B, H, R, W}, 4}, {{B, H, R, W}, 4}, {{B, H, R, W}, 4}},
     3,
     0,
     {0},
     2 * U + 4 * B *H * 32 + 16,
     2 * U + 4 * B *H * 32 + 16,
     2 * 2 * U + 4 * B *H * 32 + 16 + 3 * 2 * U + 4 * B *H *R + 4 * U}, /* dq adds up in fp32 */
    {"flash, grouped",
     TSR__OP_ATTENTION_FLASH,
     TSR__DTYPE_BF16,
     {{{B, H, R, W}, 4}, {{B, KV, R, W}, 4}, {{B, KV, R, W}, 4}},
     3,
     0,
     {0},
     2 * U + 4 * B *H *R + 24,
     2 * U + 4 * B *H *R + 24,
     0},
    {"chunked",
     TSR__OP_ATTENTION_CHUNKED,
     TSR__DTYPE_F32,
     {{{B, H, R, W}, 4}, {{B, H, R, W}, 4}, {{B, H, R, W}, 4}},
     3,
     0,
     {.chunk = 4},
     4 * U + 4 * B *H *R,
     4 * U + 4 * B *H *R + 2 * 4 * B *H * 4 * R,
     2 * 4 * U + 4 * B *H *R + 3 * 4 * U + 2 * 4 * B *H * 4 * R},
    {"eager, GPT-2",
     TSR__OP_ATTENTION_GPT2,
     TSR__DTYPE_F32,
     {{{B, H, R, W}, 4}, {{B, H, R, W}, 4}, {{B, H, R, W}, 4}, {{0}, 0}, {{R, R}, 2}},
     5,
     2,
     {.dropout = 0.1},
     4 * U + (4 + 4 + 1) * PAIRS + 4, /* and the divisor */
     2 * 4 * U + (4 + 4 + 1) * PAIRS + 4,
     0},
    {"eager, Llama bf16",
     TSR__OP_ATTENTION_LLAMA,
     TSR__DTYPE_BF16,
     {{{B, H, R, W}, 4}, {{B, H, R, W}, 4}, {{B, H, R, W}, 4}},
     3,
     0,
     {0},
     2 * U + (4 + 2) * PAIRS,
     0,
     0},
    {"log-softmax",
     TSR__OP_LOG_SOFTMAX,
     TSR__DTYPE_F32,
     {{{B * R, 90}, 2}},
     1,
     0,
     {0},
     4 * B *R * 90,
     4 * B *R * 90,
     3 * 4 * B *R * 90},
    {"chunked loss",
     TSR__OP_CHUNKED_LOSS,
     TSR__DTYPE_BF16,
     {{{B * R, C}, 2}, {{90, C}, 2}, {{B, R}, 2}},
     3,
     1,
     {.chunk = 5},
     4 + 2 * U + 2 * 90 * C,                    /* loss, and both gradients already */
     4 + 2 * U + 2 * 90 * C + (4 + 2) * 5 * 90, /* a chunk's logits, as softmax and as gradient */
     0},
};

/* Forward, a look, backward from ones; what is left are the inputs' gradients, each once. */
static void each_op(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const op_case *c = &cases[i];
    bench b;
    tsr__tensor_id in[5], out[TSR__OP_OUTPUTS];
    uint64_t gradients = 0;
    open_bench(&b);
    for (uint32_t n = 0; n < c->input_count; n++) {
      bool is_leaf = n + c->without_gradient < c->input_count;
      bool is_table = c->kind == TSR__OP_ATTENTION_GPT2; /* of what may attend to what */
      in[n] = 0;
      if (!is_leaf && !c->inputs[n].rank) continue; /* absent */
      in[n] = is_leaf ? leaf(&b, c->dtype, c->inputs[n])
                      : tsr__tensor_declare(&b.tape, is_table ? TSR__DTYPE_BOOL : TSR__DTYPE_I64,
                                            c->inputs[n], TSR_CATEGORY_INPUT);
      if (is_leaf) gradients += tsr__tensor_bytes(&b.tape, in[n]);
    }
    tsr__tensor_id y = tsr__op_apply(&b.tape, c->kind, &c->attributes, in, c->input_count, out);
    for (uint32_t n = 1; n < TSR__OP_OUTPUTS; n++) tsr__scope_unbind(&b.tape, out[n]);
    if (live_bytes(&b) != c->kept)
      fail_msg("%s keeps %llu bytes, not %llu", c->what, (unsigned long long)live_bytes(&b),
               (unsigned long long)c->kept);
    uint64_t most = most_bytes(&b, 0);
    if (c->most_forward && most != c->most_forward)
      fail_msg("%s: forward takes up to %llu bytes, not %llu", c->what, (unsigned long long)most,
               (unsigned long long)c->most_forward);
    tsr__tensor_id grad = ones_like(&b, y);
    tsr__scope_unbind(&b.tape, y);
    size_t from = b.tape.schedule.instrs.count;
    uint64_t before = live_bytes(&b);
    tsr__tape_backward(&b.tape, y, grad);
    most = most_after(&b, from, before);
    if (c->most_backward && most != c->most_backward)
      fail_msg("%s: backward takes up to %llu bytes, not %llu", c->what, (unsigned long long)most,
               (unsigned long long)c->most_backward);
    tsr__scope_leave(&b.tape, 0);
    if (live_bytes(&b) != gradients)
      fail_msg("%s leaves %llu bytes, and its gradients are %llu", c->what,
               (unsigned long long)live_bytes(&b), (unsigned long long)gradients);
    close_bench(&b);
  }
}

/* ---- schedules ---- */

/* Small models of each class: grouped heads, a window, biases, tied and added weights. */
static const char *const models[] = {
    "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"n_embd\":32,\"n_head\":4,\"n_layer\":3,"
    "\"tessera_modules\":[{\"name\":\"x\",\"kind\":\"linear-per-layer\",\"features\":5}]}",
    "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"n_embd\":16,\"n_head\":1,\"n_layer\":2,"
    "\"activation_function\":\"gelu\",\"attn_pdrop\":0,\"resid_pdrop\":0}",
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"num_hidden_layers\":2}",
    "{\"model_type\":\"qwen2\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_hidden_layers\":3,"
    "\"tie_word_embeddings\":true}",
    "{\"model_type\":\"mistral\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":1,\"num_hidden_layers\":2,"
    "\"sliding_window\":8,\"attention_dropout\":0.2}"};
enum { MODELS = sizeof models / sizeof *models };

/* One of all combinations: the next digit of a number whose digits have different bases. */
static int digit(int *number, int base) {
  int value = *number % base;
  *number /= base;
  return value;
}

/* False for options that do not go together. */
static bool check_program(const tsr_model *model, const tsr_simulate_options *options,
                          tsr__tracer *tracer, int number) {
  tsr__tape tape;
  tsr__schedule schedule = {.flops = 0};
  tsr__program program = {0};
  tsr__violation violation;
  assert_true(tsr__tape_init(&tape, &tsr__book_torch, tracer));
  tsr_simulate_options run = *options;
  bool is_program = tsr__program_init(&program, model, &run, NULL, &tape, NULL) == 0;
  if (is_program) {
    tsr__program_step(&program);
    assert_int_equal(tsr__tape_finish(&tape, &schedule), 0);
    assert_true(schedule.runs.count > 60);
    if (tsr__schedule_validate(&schedule, &violation))
      fail_msg("program %d of %.22s: %s", number, tsr_model_name(model), violation.text);
  }
  tsr__program_release(&program);
  tsr__tape_release(&tape);
  tsr__schedule_release(&schedule);
  return is_program;
}

/* Every model, type, attention, checkpoint, loss and number of micro-batches; and, in turn, each
 * optimizer, lengths that chunks do not divide, one token, and the smaller options. */
static void every_program_could_run(void **state) {
  enum { ATTENTIONS = TSR_ATTENTION_CHUNKED + 1, OPTIMIZERS = TSR_OPTIMIZER_SGD + 1 };
  enum { DTYPES = TSR_SIMULATE_AUTOCAST_FP16 + 1, CHECKPOINTS = TSR_CHECKPOINT_EVERY + 1 };
  int programs = 0;
  (void)state;
  for (int m = 0; m < MODELS; m++) {
    tsr_model *model = NULL;
    assert_int_equal(tsr_model_read(models[m], strlen(models[m]), &model, NULL), 0);
    tsr__tracer *tracer = tsr__torch_new(model);
    assert_non_null(tracer);
    for (int i = 0; i < DTYPES * ATTENTIONS * CHECKPOINTS * 2 * 2; i++) {
      int rest = i;
      tsr_simulate_options options = {.batch = 1 + (unsigned)i % 2,
                                      .sequence = i % 7 == 6 ? 1 : 20,
                                      .attention_chunk = 7,
                                      .checkpoint_every = 2,
                                      .no_kv_cache = i % 4 == 3,
                                      .gelu_fused = m == 0 && i % 3 == 2,
                                      .optimizer = (tsr_simulate_optimizer)(i / 3 % OPTIMIZERS),
                                      .fresh_process = i % 9 == 4};
      options.dtype = (tsr_simulate_dtype)digit(&rest, DTYPES);
      options.attention = (tsr_simulate_attention)digit(&rest, ATTENTIONS);
      options.checkpoint = (tsr_simulate_checkpoint)digit(&rest, CHECKPOINTS);
      options.loss_chunk = digit(&rest, 2) ? 9 : 0;
      options.accumulate = 1 + (unsigned)digit(&rest, 2);
      programs += check_program(model, &options, i % 3 ? tracer : NULL, i);
    }
    tsr_model_free(model);
    tsr__torch_free(tracer);
  }
  assert_true(programs > 1500);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(op_layer_norm),
      cmocka_unit_test(op_linear),
      cmocka_unit_test(op_gelu),
      cmocka_unit_test(gradients_add_up),
      cmocka_unit_test(shared_gradients_are_copied),
      cmocka_unit_test(table_is_whole),
      cmocka_unit_test(kernels_are_whole),
      cmocka_unit_test(each_op),
      cmocka_unit_test(every_program_could_run),
  };
  return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
