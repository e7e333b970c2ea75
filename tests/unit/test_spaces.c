/* Tests of memory spaces: no number changes, what is away is not on the device, and how much is there at a time. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/pool.h"
#include "run_support.h"

enum { SEQUENCE = 16, BATCH = 4, LAYERS = 6, STEPS = 3 };

static const char gpt2[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_positions\":16,\"n_embd\":64,\"n_layer\":6,"
    "\"n_head\":4,\"initializer_range\":0.1}";
static const char llama[] =
    "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":64,\"num_hidden_layers\":6,"
    "\"num_attention_heads\":4,\"intermediate_size\":128,\"initializer_range\":0.1}";

/* ---- a run ---- */

typedef struct outcome {
  uint64_t hash; /* of losses and parameters after each step */
  double loss;   /* the last */
  tsr__execution run;
} outcome;

typedef struct subject {
  training t;
  tsr_simulate_options run;
  outcome *out;
  int64_t tokens[BATCH * SEQUENCE];
} subject;

static const int64_t *batch(void *context, uint64_t step, uint64_t micro_batch, uint32_t which) {
  subject *s = context;
  for (size_t i = 0; i < BATCH * SEQUENCE; i++)
    s->tokens[i] = (int64_t)((i * 7 + step * 13 + micro_batch * 5) % 64);
  return which == 2 ? NULL : s->tokens;
}

static void add(uint64_t *hash, const void *data, size_t size) {
  for (size_t i = 0; i < size; i++)
    *hash = (*hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
}

static bool see_step(void *context, const tsr__executor *e, const tsr__executed_step *step) {
  subject *s = context;
  add(&s->out->hash, &step->loss, sizeof step->loss);
  for (size_t i = 0; i < s->t.schedule.parameters.count; i++) {
    tsr__kernel_tensor p = tsr__executor_tensor(e, s->t.schedule.parameters.items[i]);
    assert_non_null(p.data);
    add(&s->out->hash, p.data,
        tsr__schedule_bytes(&s->t.schedule, s->t.schedule.parameters.items[i]));
  }
  s->out->loss = step->loss;
  return true;
}

static int load(void *context, const tsr__executor *executor, tsr_error *error) {
  return training_load(&((subject *)context)->t, executor, error);
}

static void open_subject(subject *s, const char *json, const tsr_simulate_options *run,
                         outcome *out) {
  *s = (subject){.run = *run, .out = out};
  *out = (outcome){.hash = 1};
  s->run.batch = BATCH;
  s->run.sequence = SEQUENCE;
  s->run.no_kv_cache = true;
  assert_true(training_open(&s->t, json, &s->run, NULL));
  s->t.options.context = s;
  s->t.options.load = load;
  s->t.options.batch = batch;
  s->t.options.step = see_step;
  s->t.options.steps = STEPS;
  s->t.options.folder = "/tmp";
}

static outcome try_run(const char *json, const tsr_simulate_options *run, unsigned threads) {
  subject s;
  outcome out;
  tsr_error error = {0};
  open_subject(&s, json, run, &out);
  s.t.options.pool = threads > 1 ? tsr__thread_pool_new(threads) : NULL;
  if (tsr__execute(&s.t.schedule, &s.t.options, &out.run, &error)) fail_msg("%s", error.message);
  assert_int_equal(out.run.steps_done, STEPS);
  tsr__thread_pool_free(s.t.options.pool);
  training_close(&s.t);
  return out;
}

static const tsr_offload everything = {TSR_SPACE_HOST, TSR_SPACE_HOST, TSR_SPACE_HOST,
                                       TSR_SPACE_HOST};

/* ---- no number changes ---- */

/* Every choice of spaces, alone and with the others; under a sanitizer every 5th, where each is among them, and kept. */
static void bit_equal(const char *json, tsr_simulate_options run) {
  outcome plain = try_run(json, &run, 1);
  for (unsigned i = 1; i < 24; i += IS_SANITIZED ? 5 : 1) {
    run.offload = (tsr_offload){(tsr_space)(i & 1), (tsr_space)(i >> 1 & 1),
                                (tsr_space)(i >> 2 & 1), (tsr_space)(i / 8)};
    outcome moved = try_run(json, &run, 1 + i % 2);
    if (moved.hash != plain.hash) fail_msg("spaces %u: another result: %s", i, json);
  }
}

static void same_numbers(void **state) {
  (void)state;
  bit_equal(gpt2, (tsr_simulate_options){.optimizer = TSR_OPTIMIZER_ADAMW_FUSED});
  bit_equal(llama, (tsr_simulate_options){.accumulate = 3});
  bit_equal(gpt2,
            (tsr_simulate_options){.dtype = TSR_SIMULATE_BF16, .optimizer = TSR_OPTIMIZER_SGD});
  bit_equal(gpt2, (tsr_simulate_options){.dtype = TSR_SIMULATE_AUTOCAST_FP16, .accumulate = 2});
  bit_equal(llama, (tsr_simulate_options){.checkpoint = TSR_CHECKPOINT_FULL});
  bit_equal(gpt2, (tsr_simulate_options){.checkpoint = TSR_CHECKPOINT_EVERY,
                                         .checkpoint_every = 2,
                                         .loss_chunk = 24,
                                         .optimizer = TSR_OPTIMIZER_ADAMW_LOOP});
}

/* ---- how much is where ---- */

/* Bytes and number of parameters. */
static uint64_t parameter_bytes(const char *json, uint64_t *count) {
  subject s;
  outcome out;
  tsr_simulate_options run = {.optimizer = TSR_OPTIMIZER_SGD};
  uint64_t bytes = 0;
  open_subject(&s, json, &run, &out);
  *count = s.t.schedule.parameters.count;
  for (size_t i = 0; i < *count; i++)
    bytes += tsr__schedule_bytes(&s.t.schedule, s.t.schedule.parameters.items[i]);
  training_close(&s.t);
  return bytes;
}

/* The sizes of this model's parameters are multiples of 512, or two of its norms' would be, to which allocations are
 * rounded. Each has a count of steps, too. */
static void optimizer_state(void **state) {
  tsr_simulate_options run = {.optimizer = TSR_OPTIMIZER_ADAMW_FUSED};
  uint64_t count, bytes = parameter_bytes(llama, &count), norms = 2 * LAYERS + 1;
  (void)state;
  outcome plain = try_run(llama, &run, 1);
  run.offload.optimizer = TSR_SPACE_HOST;
  outcome moved = try_run(llama, &run, 1);
  const tsr__dry_moment *before = &plain.run.executed.peak, *after = &moved.run.executed.peak;
  assert_int_equal(before->category_bytes[TSR_CATEGORY_OPTIMIZER_STATE], 2 * bytes + 4 * count);
  assert_int_equal(after->category_bytes[TSR_CATEGORY_OPTIMIZER_STATE], 0);
  assert_int_equal(before->totals.allocated_bytes - after->totals.allocated_bytes,
                   2 * (bytes + norms * 256) + 512 * count);
  assert_int_equal(moved.run.spaces[0].peak.category_bytes[TSR_CATEGORY_OPTIMIZER_STATE],
                   2 * bytes + 4 * count);
  assert_true(moved.run.copies[0].size_bytes);
}

/* The most bytes of a category that the device has at once, along a step. */
static uint64_t most_on_device(const tsr__schedule *schedule, tsr_category category) {
  uint64_t bytes = 0, most = 0;
  for (size_t i = 0; i < schedule->instrs.count; i++) {
    const tsr__instr *instr = &schedule->instrs.items[i];
    if (instr->kind > TSR__INSTR_DROP) continue;
    const tsr__slot *slot = &schedule->slots.items[instr->subject];
    if (slot->category != category || slot->space != TSR__SPACE_DEVICE) continue;
    bytes = instr->kind == TSR__INSTR_DROP ? bytes - slot->bytes : bytes + slot->bytes;
    if (bytes > most) most = bytes;
  }
  return most;
}

static uint64_t block_bytes(const tsr__schedule *schedule) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < schedule->parameters.count; i++) {
    const tsr__slot *slot =
        &schedule->slots.items[tsr__schedule_tensor(schedule, schedule->parameters.items[i])->slot];
    if (slot->space == TSR__SPACE_HOST) bytes += slot->bytes;
  }
  return bytes / LAYERS;
}

/* Two blocks of parameters at a time; and of gradients two blocks, and the embedding with the head. */
static void live_sets(void **state) {
  (void)state;
  for (int accumulate = 1; accumulate < 4; accumulate++)
    for (int i = 0; i < 2; i++) {
      subject s;
      outcome out;
      tsr_simulate_options run = {.optimizer = TSR_OPTIMIZER_ADAMW_FUSED,
                                  .accumulate = (uint64_t)accumulate,
                                  .checkpoint = i ? TSR_CHECKPOINT_FULL : TSR_CHECKPOINT_NONE,
                                  .offload = everything};
      open_subject(&s, llama, &run, &out);
      const tsr__schedule *schedule = &s.t.schedule;
      uint64_t block = block_bytes(schedule);
      assert_true(block);
      assert_int_equal(most_on_device(schedule, TSR_CATEGORY_PARAMETER), 2 * block);
      assert_true(most_on_device(schedule, TSR_CATEGORY_GRADIENT) <=
                  2 * block + 2 * 64 * 64 * 4 + 256);
      training_close(&s.t);
    }
}

/* With activations away, twice as many blocks take no more on the device, but for the smallest: three of 256 bytes each
 * block. */
static void activations(void **state) {
  static const tsr_space spaces[] = {TSR_SPACE_HOST, TSR_SPACE_DISK};
  (void)state;
  for (size_t k = 0; k < 2; k++) {
    uint64_t most[2];
    for (int i = 0; i < 2; i++) {
      char json[sizeof llama];
      strcpy(json, llama);
      strstr(json, "layers\":6")[8] = i ? '8' : '4';
      subject s;
      outcome out;
      tsr_simulate_options run = {.offload.activations = spaces[k]};
      open_subject(&s, json, &run, &out);
      most[i] = most_on_device(&s.t.schedule, TSR_CATEGORY_ACTIVATION);
      training_close(&s.t);
    }
    assert_true(most[1] - most[0] <= 4 * 3 * 256);
  }
}

/* ---- what is refused, and what fails ---- */

static void no_room(void **state) {
  subject s;
  outcome out;
  tsr_error error = {0};
  tsr_simulate_options run = {.offload.activations = TSR_SPACE_DISK};
  (void)state;
  open_subject(&s, gpt2, &run, &out);
  s.t.options.folder = NULL;
  assert_int_equal(tsr__execute(&s.t.schedule, &s.t.options, &out.run, &error), TSR_ERROR_ARGUMENT);
  s.t.options.folder = "/nonexistent";
  assert_int_equal(tsr__execute(&s.t.schedule, &s.t.options, &out.run, &error), TSR_ERROR_IO);
  assert_non_null(strstr(error.message, "/nonexistent: cannot make a file there"));
  assert_int_equal(out.run.steps_done, 0);
  training_close(&s.t);
  run = (tsr_simulate_options){.offload.optimizer = TSR_SPACE_HOST};
  open_subject(&s, gpt2, &run, &out);
  s.t.options.host_bytes = 4096;
  assert_int_equal(tsr__execute(&s.t.schedule, &s.t.options, &out.run, &error), 0);
  assert_int_equal(out.run.steps_done, 0);
  assert_true(out.run.spaces[0].is_out_of_memory && !out.run.executed.is_out_of_memory);
  training_close(&s.t);
}

/* ---- the copier ---- */

static void copier(void **state) {
  enum { COUNT = 50, SIZE = 5000 };
  static char from[COUNT][SIZE], to[COUNT][SIZE], back[COUNT][SIZE];
  int file;
  tsr_error error = {0};
  (void)state;
  for (size_t i = 0; i < COUNT * SIZE; i++) from[i / SIZE][i % SIZE] = (char)(i * 31 >> 3);
  assert_int_equal(tsr__os_scratch_file("/tmp", COUNT * SIZE, &file, &error), 0);
  tsr__copier *c = tsr__copier_new(3 * COUNT, file);
  assert_non_null(c);
  for (uint32_t i = 0; i < COUNT; i++) {
    tsr__copier_start(c, i, &(tsr__copy){.to = to[i], .from = from[i], .size_bytes = SIZE});
    tsr__copier_start(
        c, COUNT + i,
        &(tsr__copy){.from = from[i], .offset_bytes = (uint64_t)i * SIZE, .size_bytes = SIZE});
  }
  for (uint32_t i = COUNT; i-- > 0;) {
    assert_int_equal(tsr__copier_wait(c, i, &error), 0);
    assert_memory_equal(to[i], from[i], SIZE);
    assert_int_equal(tsr__copier_wait(c, COUNT + i, &error), 0);
    tsr__copier_start(
        c, 2 * COUNT + i,
        &(tsr__copy){.to = back[i], .offset_bytes = (uint64_t)i * SIZE, .size_bytes = SIZE});
    assert_int_equal(tsr__copier_wait(c, 2 * COUNT + i, &error), 0);
    assert_memory_equal(back[i], from[i], SIZE);
  }
  assert_int_equal(tsr__copier_account(c).size_bytes, 3 * COUNT * SIZE);
  /* What is beyond the file fails, then and from then on. */
  tsr__copier_start(c, 0,
                    &(tsr__copy){.to = back[0], .offset_bytes = COUNT * SIZE, .size_bytes = SIZE});
  assert_int_equal(tsr__copier_wait(c, 0, &error), TSR_ERROR_FORMAT);
  assert_int_equal(tsr__copier_wait(c, 1, &error), TSR_ERROR_FORMAT);
  tsr__copier_free(c);
  tsr__os_close(file);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(same_numbers), cmocka_unit_test(optimizer_state),
      cmocka_unit_test(live_sets),    cmocka_unit_test(activations),
      cmocka_unit_test(no_room),      cmocka_unit_test(copier)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
