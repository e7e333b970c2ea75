/* Tests of the op table: what single ops keep and need, against counts made by hand; that every list
 * of steps cleans up after itself; and that a schedule is one that could be executed. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/program.h"
#include "tessera/tessera.h"
#include "test_support.h"

typedef struct bench {
  tsr_snapshot *names;
  tsr__tape tape;
} bench;

static void open_bench(bench *b) {
  b->names = tsr__snapshot_new();
  assert_non_null(b->names);
  assert_true(tsr__tape_init(&b->tape, b->names));
  tsr__enter(&b->tape, "test", "test.py");
  for (size_t i = 0; i < 2; i++)
    b->tape.workspace[i] = tsr__declare(&b->tape, TSR__BOOL8, TSR__SHAPE(1), TSR_ROLE_WORKSPACE);
}

static void close_bench(bench *b) {
  assert_int_equal(b->tape.status, 0);
  tsr__tape_release(&b->tape);
  tsr_snapshot_free(b->names);
}

/* Bytes that the schedule has taken and not given back. */
static uint64_t live_bytes(const bench *b) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < b->tape.schedule.count; i++) {
    const tsr__instr *instr = &b->tape.schedule.items[i];
    if (instr->kind == TSR__NEW) bytes += b->tape.slots.items[instr->subject].bytes;
    if (instr->kind == TSR__DROP) bytes -= b->tape.slots.items[instr->subject].bytes;
  }
  return bytes;
}

/* The most that was live at a time, from an instruction on before which `bytes` were. */
static uint64_t most_after(const bench *b, size_t from, uint64_t bytes) {
  uint64_t most = bytes;
  for (size_t i = from; i < b->tape.schedule.count; i++) {
    const tsr__instr *instr = &b->tape.schedule.items[i];
    if (instr->kind == TSR__NEW) bytes += b->tape.slots.items[instr->subject].bytes;
    if (instr->kind == TSR__DROP) bytes -= b->tape.slots.items[instr->subject].bytes;
    if (bytes < UINT64_C(1) << 63 && bytes > most) most = bytes;
  }
  return most;
}

static uint64_t most_bytes(const bench *b, size_t from) {
  return most_after(b, from, 0);
}

static tsr__tid leaf(bench *b, tsr__dtype dtype, tsr__shape shape) {
  return tsr__declare(&b->tape, dtype, shape, TSR_ROLE_PARAMETER);
}

/* Let go of the result, run backward from it, and see that nothing is left but gradients. */
static void back(bench *b, tsr__tid result, uint64_t gradient_bytes) {
  tsr__tid grad = tsr__allocate(&b->tape, TSR__KERNEL_ONES_LIKE, tsr__dtype_of(&b->tape, result),
                                tsr__shape_of(&b->tape, result));
  tsr__backward(&b->tape, result, grad);
  tsr__leave(&b->tape, 0);
  assert_int_equal(live_bytes(b), gradient_bytes);
}

static void op_layer_norm(void **state) {
  bench b;
  (void)state;
  open_bench(&b);
  tsr__tid x = leaf(&b, TSR__F32, TSR__SHAPE(2, 3, 40)), w = leaf(&b, TSR__F32, TSR__SHAPE(40));
  tsr__tid bias = leaf(&b, TSR__F32, TSR__SHAPE(40));
  tsr__tid y = TSR__APPLY(&b.tape, TSR__OP_LAYER_NORM, x, w, bias);
  assert_int_equal(live_bytes(&b), 2 * 3 * 40 * 4 + 2 * 2 * 3 * 4); /* out, mean, deviation */
  assert_int_equal(b.tape.ops.items[0].saved_count, 3);
  back(&b, y, (2 * 3 * 40 + 40 + 40) * 4);
  close_bench(&b);
}

static void op_linear(void **state) {
  bench b;
  (void)state;
  open_bench(&b);
  tsr__tid x = leaf(&b, TSR__BF16, TSR__SHAPE(5, 7, 30));
  tsr__tid w = leaf(&b, TSR__BF16, TSR__SHAPE(30, 11)), bias = leaf(&b, TSR__BF16, TSR__SHAPE(11));
  tsr__attributes attributes = {.features = 11};
  tsr__tid y = tsr__apply(&b.tape, TSR__OP_ADDMM, &attributes, (tsr__tid[]){bias, x, w}, 3, NULL);
  assert_int_equal(live_bytes(&b), 5 * 7 * 11 * 2);
  assert_int_equal(b.tape.ops.items[0].flops, 2 * 5 * 7 * 30 * 11);
  assert_int_equal(b.tape.ops.items[0].bytes_moved, (5 * 7 * 30 + 30 * 11 + 11 + 5 * 7 * 11) * 2);
  back(&b, y, (5 * 7 * 30 + 30 * 11 + 11) * 2);
  assert_int_equal(b.tape.ops.items[0].backward_flops, 4 * 5 * 7 * 30 * 11);
  assert_int_equal(b.tape.ops.items[0].backward_bytes_moved,
                   2 * (5 * 7 * 30 + 30 * 11 + 5 * 7 * 11) * 2);
  close_bench(&b);
}

/* Four tensors of its width stay for backward, beside the product. */
static void op_gelu(void **state) {
  bench b;
  uint64_t u = 6 * 50 * 4;
  (void)state;
  open_bench(&b);
  tsr__tid x = leaf(&b, TSR__F32, TSR__SHAPE(6, 50));
  tsr__tid y = TSR__APPLY(&b.tape, TSR__OP_GELU, x);
  assert_int_equal(live_bytes(&b), 4 * u); /* half, tanh, one, product; x is no one's here */
  assert_int_equal(most_bytes(&b, 0), 4 * u);
  back(&b, y, u);
  close_bench(&b);
  open_bench(&b);
  x = leaf(&b, TSR__F32, TSR__SHAPE(6, 50));
  y = TSR__APPLY(&b.tape, TSR__OP_GELU_FUSED, x);
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
  tsr__tid x = leaf(&b, TSR__F32, TSR__SHAPE(100));
  tsr__tid y = TSR__APPLY(&b.tape, TSR__OP_GELU_FUSED, x);
  tsr__tid z = TSR__APPLY(&b.tape, TSR__OP_ADD, y, x);
  tsr__tid grad = tsr__allocate(&b.tape, TSR__KERNEL_ONES_LIKE, TSR__F32, TSR__SHAPE(100));
  size_t from = b.tape.schedule.count;
  tsr__backward(&b.tape, z, grad);
  assert_int_equal(most_bytes(&b, from), u); /* one more than the gradient that came */
  tsr__leave(&b.tape, 0);
  assert_int_equal(live_bytes(&b), u);
  close_bench(&b);
}

/* x + x: both gradients are the one that came; .grad cannot take it over while it is shared. */
static void shared_gradients_are_copied(void **state) {
  bench b;
  (void)state;
  open_bench(&b);
  tsr__tid x = leaf(&b, TSR__F32, TSR__SHAPE(64)), y = leaf(&b, TSR__F32, TSR__SHAPE(64));
  tsr__tid z = TSR__APPLY(&b.tape, TSR__OP_ADD, x, y);
  back(&b, z, 2 * 64 * 4);
  assert_int_not_equal(tsr__tensor_at(&b.tape, x)->grad, tsr__tensor_at(&b.tape, y)->grad);
  close_bench(&b);
}

/* Every kind of op has a row that is whole. */
static void table_is_whole(void **state) {
  (void)state;
  for (int kind = 0; kind < TSR__OP_KIND_COUNT; kind++) {
    const tsr__op_row *row = tsr__op_row_of((tsr__op_kind)kind);
    assert_non_null(row->name);
    assert_true((row->forward != NULL) != (row->run_forward != NULL));
    assert_int_equal(row->node != NULL, row->backward || row->run_backward);
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
  tsr__dtype dtype; /* of inputs that a gradient is wanted for */
  tsr__shape inputs[4];
  uint32_t input_count, without_gradient; /* the last ones */
  tsr__attributes attributes;
  uint64_t kept;                        /* bytes after forward: outputs, and what was saved */
  uint64_t most_forward, most_backward; /* beyond inputs, at the highest */
} op_case;

/* Sizes in bytes: 4 and 2 an element. In backward the gradient that came counts, too. */
static const op_case cases[] = {
    {"embedding",
     TSR__OP_EMBEDDING,
     TSR__F32,
     {{{50, C}, 2}, {{B, R}, 2}},
     2,
     1,
     {0},
     4 * U,
     4 * U,
     4 * U + 4 * 50 * C},
    {"linear",
     TSR__OP_ADDMM,
     TSR__F32,
     {{{70}, 1}, {{B, R, C}, 3}, {{C, 70}, 2}},
     3,
     0,
     {.features = 70},
     4 * B *R * 70,
     4 * B *R * 70,
     4 * B *R * 70 + 4 * U + 4 * C * 70 + 4 * 70},
    {"RMS norm fp32",
     TSR__OP_RMS_NORM,
     TSR__F32,
     {{{B, R, C}, 3}, {{C}, 1}},
     2,
     0,
     {0},
     2 * 4 * U + 4 * B *R,     /* normalised, root, out */
     2 * 4 * U + 2 * 4 * B *R, /* and the variance */
     5 * 4 * U + 4 * C},
    {"RMS norm bf16",
     TSR__OP_RMS_NORM,
     TSR__BF16,
     {{{B, R, C}, 3}, {{C}, 1}},
     2,
     0,
     {0},
     4 * U + 4 * B *R + 2 * U + 2 * U, /* fp32 copy, root, normalised, out */
     4 * U + 2 * 4 * B *R + 4 * U + 2 * U + 2 * U,
     0},
    {"dropout",
     TSR__OP_DROPOUT,
     TSR__BF16,
     {{{B, R, C}, 3}},
     1,
     0,
     {0},
     2 * U + U,
     3 * U,
     2 * U + U + 2 * U},
    {"product",
     TSR__OP_MUL,
     TSR__F32,
     {{{B, R, C}, 3}, {{B, R, C}, 3}},
     2,
     0,
     {0},
     4 * U,
     4 * U,
     3 * 4 * U},
    {"eager GELU", TSR__OP_GELU, TSR__F32, {{{B, R, C}, 3}}, 1, 0, {0}, 4 * 4 * U, 4 * 4 * U, 0},
    {"GELU", TSR__OP_GELU_FUSED, TSR__F16, {{{B, R, C}, 3}}, 1, 0, {0}, 2 * U, 2 * U, 4 * U},
    {"SiLU", TSR__OP_SILU, TSR__F16, {{{B, R, C}, 3}}, 1, 0, {0}, 2 * U, 2 * U, 4 * U},
    {"cast",
     TSR__OP_CAST,
     TSR__F32,
     {{{B, R, C}, 3}},
     1,
     0,
     {.dtype = TSR__BF16},
     2 * U,
     2 * U,
     2 * U + 4 * U},
    {"repeated heads",
     TSR__OP_REPEAT,
     TSR__BF16,
     {{{B, KV, R, W}, 4}},
     1,
     0,
     {.repeats = 2},
     2 * U,
     2 * U,
     2 * U + U},
    {"memory-efficient fp32",
     TSR__OP_ATTENTION_EFFICIENT,
     TSR__F32,
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
     TSR__BF16,
     {{{B, H, R, W}, 4}, {{B, H, R, W}, 4}, {{B, H, R, W}, 4}},
     3,
     0,
     {0},
     2 * U + 4 * B *H * 32 + 16,
     2 * U + 4 * B *H * 32 + 16,
     2 * 2 * U + 4 * B *H * 32 + 16 + 3 * 2 * U + 4 * B *H *R + 4 * U}, /* dq adds up in fp32 */
    {"flash, grouped",
     TSR__OP_ATTENTION_FLASH,
     TSR__BF16,
     {{{B, H, R, W}, 4}, {{B, KV, R, W}, 4}, {{B, KV, R, W}, 4}},
     3,
     0,
     {0},
     2 * U + 4 * B *H *R + 24,
     2 * U + 4 * B *H *R + 24,
     0},
    {"chunked",
     TSR__OP_ATTENTION_CHUNKED,
     TSR__F32,
     {{{B, H, R, W}, 4}, {{B, H, R, W}, 4}, {{B, H, R, W}, 4}},
     3,
     0,
     {.chunk = 4},
     4 * U + 4 * B *H *R,
     4 * U + 4 * B *H *R + 2 * 4 * B *H * 4 * R,
     2 * 4 * U + 4 * B *H *R + 3 * 4 * U + 2 * 4 * B *H * 4 * R},
    {"eager, GPT-2",
     TSR__OP_ATTENTION_GPT2,
     TSR__F32,
     {{{B, H, R, W}, 4}, {{B, H, R, W}, 4}, {{B, H, R, W}, 4}},
     3,
     0,
     {.has_dropout = true},
     4 * U + (4 + 4 + 1) * PAIRS,
     2 * 4 * U + (4 + 4 + 1) * PAIRS,
     0},
    {"eager, Llama bf16",
     TSR__OP_ATTENTION_LLAMA,
     TSR__BF16,
     {{{B, H, R, W}, 4}, {{B, H, R, W}, 4}, {{B, H, R, W}, 4}},
     3,
     0,
     {0},
     2 * U + (4 + 2) * PAIRS,
     0,
     0},
    {"log-softmax",
     TSR__OP_LOG_SOFTMAX,
     TSR__F32,
     {{{B * R, 90}, 2}},
     1,
     0,
     {0},
     4 * B *R * 90,
     4 * B *R * 90,
     3 * 4 * B *R * 90},
    {"chunked loss",
     TSR__OP_CHUNKED_LOSS,
     TSR__BF16,
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
    tsr__tid in[4], out[TSR__OP_OUTPUTS];
    uint64_t gradients = 0;
    open_bench(&b);
    for (uint32_t n = 0; n < c->input_count; n++) {
      bool is_leaf = n + c->without_gradient < c->input_count;
      in[n] = is_leaf ? leaf(&b, c->dtype, c->inputs[n])
                      : tsr__declare(&b.tape, TSR__I64, c->inputs[n], TSR_ROLE_INPUT);
      if (is_leaf) gradients += tsr__tensor_bytes(&b.tape, in[n]);
    }
    tsr__tid y = tsr__apply(&b.tape, c->kind, &c->attributes, in, c->input_count, out);
    for (uint32_t n = 1; n < TSR__OP_OUTPUTS; n++) tsr__unbind(&b.tape, out[n]);
    if (live_bytes(&b) != c->kept)
      fail_msg("%s keeps %llu bytes, not %llu", c->what, (unsigned long long)live_bytes(&b),
               (unsigned long long)c->kept);
    uint64_t most = most_bytes(&b, 0);
    if (c->most_forward && most != c->most_forward)
      fail_msg("%s: forward takes up to %llu bytes, not %llu", c->what, (unsigned long long)most,
               (unsigned long long)c->most_forward);
    tsr__tid grad = tsr__allocate(&b.tape, TSR__KERNEL_ONES_LIKE, tsr__dtype_of(&b.tape, y),
                                  tsr__shape_of(&b.tape, y));
    tsr__unbind(&b.tape, y);
    size_t from = b.tape.schedule.count;
    uint64_t before = live_bytes(&b);
    tsr__backward(&b.tape, y, grad);
    most = most_after(&b, from, before);
    if (c->most_backward && most != c->most_backward)
      fail_msg("%s: backward takes up to %llu bytes, not %llu", c->what, (unsigned long long)most,
               (unsigned long long)c->most_backward);
    tsr__leave(&b.tape, 0);
    if (live_bytes(&b) != gradients)
      fail_msg("%s leaves %llu bytes, and its gradients are %llu", c->what,
               (unsigned long long)live_bytes(&b), (unsigned long long)gradients);
    close_bench(&b);
  }
}

/* ---- schedules ---- */

/* At each kernel, what it reads and makes is in memory. */
static void check_schedule(const tsr__tape *tape, const char *what) {
  bool *is_there = calloc(tape->slots.count, sizeof *is_there);
  assert_non_null(is_there);
  for (size_t i = 0; i < tape->slots.count; i++) is_there[i] = tape->slots.items[i].is_static;
  for (size_t i = 0; i < tape->schedule.count; i++) {
    const tsr__instr *instr = &tape->schedule.items[i];
    if (instr->kind == TSR__NEW || instr->kind == TSR__NEW_ONCE) {
      assert_false(is_there[instr->subject]);
      is_there[instr->subject] = true;
    } else if (instr->kind == TSR__DROP) {
      assert_true(is_there[instr->subject]);
      is_there[instr->subject] = false;
    } else if (instr->kind == TSR__RUN) {
      const tsr__run *run = &tape->runs.items[instr->subject];
      const tsr__kernel_row *kernel = tsr__kernel_row_of((tsr__kernel)run->kernel);
      assert_true(kernel->name[0]);
      if (run->is_in_place) assert_true(run->operand[0]);
      for (uint32_t n = 0; n < TSR__RUN_OPERANDS; n++)
        if (run->operand[n] && !is_there[tsr__tensor_at(tape, run->operand[n])->slot])
          fail_msg("%s: operand %u of %s is not there", what, n, kernel->name);
      for (uint32_t n = 0; n < TSR__RUN_RESULTS; n++)
        if (run->result[n] && !is_there[tsr__tensor_at(tape, run->result[n])->slot])
          fail_msg("%s: result %u of %s is not there", what, n, kernel->name);
    }
  }
  free(is_there);
}

static void kernels_find_their_tensors(void **state) {
  static const char *const models[] = {
      "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"n_embd\":32,\"n_head\":4,\"n_layer\":3,"
      "\"tessera_modules\":[{\"name\":\"x\",\"kind\":\"linear-per-layer\",\"features\":5}]}",
      "{\"model_type\":\"qwen2\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,"
      "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_hidden_layers\":3}"};
  (void)state;
  for (int i = 0; i < 2 * 5 * 4 * 4; i++) {
    int attention = i / 2 % 4, dtype = i / 8 % 5, checkpoint = i / 40;
    tsr_simulate_options options = {.batch = 2,
                                    .sequence = 20,
                                    .dtype = (tsr_simulate_dtype)dtype,
                                    .attention = (tsr_simulate_attention)attention,
                                    .attention_chunk = 7,
                                    .checkpoint = (tsr_simulate_checkpoint)checkpoint,
                                    .checkpoint_every = 2,
                                    .optimizer = (tsr_simulate_optimizer)(i % 5),
                                    .loss_chunk = i % 3 == 1 ? 9 : 0,
                                    .accumulate = 1 + (unsigned)i % 2,
                                    .no_kv_cache = i % 4 == 3};
    tsr_model *model = NULL;
    tsr__tape tape;
    tsr__program program = {0};
    char what[64];
    tsr_snapshot *names = tsr__snapshot_new();
    (void)snprintf(what, sizeof what, "program %d", i);
    assert_int_equal(tsr_model_read(models[i % 2], strlen(models[i % 2]), &model, NULL), 0);
    assert_true(tsr__tape_init(&tape, names));
    if (tsr__program_init(&program, model, &options, &tape, NULL) == 0) {
      tsr__program_step(&program);
      assert_int_equal(tsr__tape_finish(&tape), 0);
      assert_true(tape.runs.count > 100);
      check_schedule(&tape, what);
    }
    tsr__program_release(&program);
    tsr__tape_release(&tape);
    tsr_model_free(model);
    tsr_snapshot_free(names);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(op_layer_norm),
      cmocka_unit_test(op_linear),
      cmocka_unit_test(op_gelu),
      cmocka_unit_test(gradients_add_up),
      cmocka_unit_test(shared_gradients_are_copied),
      cmocka_unit_test(table_is_whole),
      cmocka_unit_test(each_op),
      cmocka_unit_test(kernels_find_their_tensors),
  };
  return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
