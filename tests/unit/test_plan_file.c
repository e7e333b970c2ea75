/* Tests of tessera/unstable/plans.h: plan files, read, written and merged with options. */
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"
#include "plan/paste.h"
#include "plan/techniques.h"
#include "tessera/tessera.h"
#include "tessera/unstable/runs.h"
#include "tessera/unstable/unstable.h"
#include "test_support.h"

/* ---- hashes ---- */

static void expect_hash(const char *text, size_t size, const char *expected) {
  char hash[TSR__SHA256_TEXT_BYTES];
  tsr__sha256_text(text, size, hash);
  assert_string_equal(hash, expected);
}

/* What `sha256sum` prints, around the sizes at which the padding changes. */
static void hashes(void **state) {
  static char text[1000];
  (void)state;
  memset(text, 'a', sizeof text);
  expect_hash("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  expect_hash("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  expect_hash(text, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  expect_hash(text, 56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  expect_hash(text, 63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
  expect_hash(text, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  expect_hash(text, 65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0");
  expect_hash(text, 119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb");
  expect_hash(text, 120, "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c");
  expect_hash(text, 1000, "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}

/* ---- techniques ---- */

/* Every row sets options that exist to values that they have, and no dimension is too large. */
static void table_of_techniques(void **state) {
  size_t rows[TSR__TECHNIQUE_DIMENSIONS] = {0};
  (void)state;
  for (const tsr__technique_row *t = tsr__techniques; t->allow; t++) {
    const char *const names[] = {t->option, t->option2}, *const values[] = {t->value, t->value2};
    for (size_t i = 0; i < 2; i++) {
      tsr_simulate_options options = {.batch = 0};
      char text[TSR__OPTION_BYTES];
      if (!names[i]) continue;
      const tsr_parameter *option = tsr__option_find(names[i]);
      assert_non_null(option);
      tsr__options_default(&options);
      tsr__option_set(names[i], values[i], &options);
      tsr__option_text(option, &options, text);
      assert_string_equal(text, option->kind == TSR_PARAMETER_FLAG ? "" : values[i]);
    }
    if (t->use != TSR__USE_COMBINED && t->use != TSR__USE_DIVIDED) continue;
    assert_in_range(t->dimension, 1, TSR__TECHNIQUE_DIMENSIONS);
    rows[t->dimension - 1] += t->use == TSR__USE_DIVIDED ? 9 : 1; /* parts: 2 to 256, and all */
    assert_in_range(rows[t->dimension - 1] + 1, 1, TSR__TECHNIQUE_CHOICES);
  }
}

/* ---- targets ---- */

/* The names of a row are those of options that exist, each name and file is of one row, and each row can be written. */
static void table_of_targets(void **state) {
  const tsr__target_row *row;
  (void)state;
  for (size_t i = 0; (row = tsr__target_at(i)) != NULL; i++) {
    const char *options = row->options ? row->options : "";
    char option[64];
    int read;
    assert_string_equal(tsr_target_names[i], row->name);
    assert_string_equal(tsr_target_word(i), row->name);
    assert_string_equal(tsr_target_about(i), row->about);
    assert_string_equal(tsr_target_file(i), row->file);
    assert_true(row->write || row->is_plan);
    for (; sscanf(options, "%63s%n", option, &read) == 1; options += read)
      if (!tsr__option_find(option)) fail_msg("%s: no option '%s'", row->name, option);
    for (size_t other = 0; other < i; other++) {
      assert_string_not_equal(tsr_target_word(other), row->name);
      assert_string_not_equal(tsr_target_file(other), row->file);
    }
  }
}

/* ---- files ---- */

static tsr_run_plan *parse(const char *text) {
  tsr_run_plan *plan = NULL;
  tsr_error error = {0};
  if (tsr_run_plan_parse(text, strlen(text), &plan, &error))
    fail_msg("%s: %s", text, error.message);
  return plan;
}

static void expect_text(const char *text, const char *canonical) {
  tsr_run_plan *plan = parse(text), *again;
  char hash[TSR__SHA256_TEXT_BYTES];
  assert_string_equal(tsr_run_plan_text(plan), canonical);
  tsr__sha256_text(canonical, strlen(canonical), hash);
  assert_string_equal(tsr_run_plan_hash(plan), hash);
  again = parse(tsr_run_plan_text(plan));
  assert_string_equal(tsr_run_plan_hash(again), hash);
  tsr_run_plan_free(again);
  tsr_run_plan_free(plan);
}

static void canonical_form(void **state) {
  (void)state;
  expect_text("{\"version\": 1}", "{\"version\":1}\n");
  expect_text(" {\"version\": 1, \"dtype\": \"fp32\", \"accumulate\": 1, \"blocks\": [], "
              "\"no_kv_cache\": false}",
              "{\"version\":1}\n");
  expect_text("{\"version\": 1, \"loss\": \"chunked:64\", \"attention\": \"eager\", "
              "\"no_kv_cache\": true, \"accumulate\": 3, \"dtype\": \"autocast_bf16\"}",
              "{\"accumulate\":3,\"attention\":\"eager\",\"dtype\":\"autocast-bf16\","
              "\"loss\":\"chunked:64\",\"no_kv_cache\":true,\"version\":1}\n");
  expect_text("{\"blocks\": [{\"last\": 3, \"first\": 0, \"checkpoint\": \"every:2\"}, "
              "{\"first\": 4, \"last\": 4, \"saved\": {\"layer norm\": \"keep\", \"gelu.2\": "
              "\"narrow16\"}, \"checkpoint\": \"none\"}], \"version\": 1}",
              "{\"blocks\":[{\"checkpoint\":\"every:2\",\"first\":0,\"last\":3},{\"first\":4,"
              "\"last\":4,\"saved\":{\"gelu.2\":\"narrow16\",\"layer norm\":\"keep\"}}],"
              "\"version\":1}\n");
}

/* Lists of modules: sorted, each once. */
static void modules(void **state) {
  tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
  (void)state;
  const char *text = "{\"checkpoint\":[\"a.0\",\"a.1\"],\"offload\":[\"b\"],\"version\":1}\n";
  expect_text("{\"version\": 1, \"offload\": [\"b\"], \"checkpoint\": [\"a.1\", \"a.0\", \"a.1\"]}",
              text);
  expect_text("{\"version\": 1, \"offload\": [], \"checkpoint\": []}", "{\"version\":1}\n");
  tsr_run_plan *plan = parse(text);
  tsr_run_plan_options(plan, &options);
  assert_int_equal(options.module_count, 3);
  assert_string_equal(options.modules[1].name, "a.1");
  assert_int_equal(options.modules[1].how, TSR_MODULE_CHECKPOINT);
  assert_string_equal(options.modules[2].name, "b");
  assert_int_equal(options.modules[2].how, TSR_MODULE_OFFLOAD);
  tsr_run_plan_free(plan);
}

static void refuse(const char *text, const char *message) {
  tsr_run_plan *plan = NULL;
  tsr_error error = {0};
  assert_int_equal(tsr_run_plan_parse(text, strlen(text), &plan, &error), TSR_ERROR_FORMAT);
  assert_null(plan);
  if (!strstr(error.message, message)) fail_msg("%s: %s", text, error.message);
}

#define RANGE(keys) "{\"version\":1,\"blocks\":[{\"first\":0,\"last\":1}," keys "]}"

static void refusals(void **state) {
  (void)state;
  refuse("", "line 1");
  refuse("[1]", "a plan must be a JSON object");
  refuse("{\"version\":1,\"clip\":\"1e-400\"}", "must be a number above 0, not '1e-400'");
  refuse("{\"version\":1,\"clip\":\"inf\"}", "must be a number above 0");
  refuse("{}", "version is missing");
  refuse("{\"version\":2}", "version is not 1");
  refuse("{\"version\":1,\"version\":1}", "duplicate");
  refuse("{\"version\":1,\"precision\":\"bf16\"}", "precision is not a key of plans");
  refuse("{\"version\":1,\"dtype\":\"bf17\"}", "dtype takes fp32, bf16");
  refuse("{\"version\":1,\"dtype\":16}", "dtype is not a text");
  refuse("{\"version\":1,\"accumulate\":0}", "accumulate is a number, at least 1");
  refuse("{\"version\":1,\"accumulate\":1.5}", "accumulate is a number");
  refuse("{\"version\":1,\"accumulate\":\"2\"}", "accumulate is a number");
  refuse("{\"version\":1,\"no_kv_cache\":1}", "no_kv_cache is neither true nor false");
  refuse("{\"version\":1,\"checkpoint\":\"blocks:0-3\"}", "cannot list blocks in a plan file");
  refuse("{\"version\":1,\"in_place\":\"tanh\"}", "'tanh' cannot be in place");
  refuse("{\"version\":1,\"offload\":\"weights\"}", "'weights' cannot be offloaded");
  refuse("{\"version\":1,\"blocks\":{}}", "blocks is not a list");
  refuse("{\"version\":1,\"checkpoint\":[\"a\",\"\"]}",
         "checkpoint[1] is not the name of a module");
  refuse("{\"version\":1,\"offload\":[7]}", "offload[0] is not the name of a module");
  refuse("{\"version\":1,\"gelu\":[\"a\"]}", "gelu is not a text");
  refuse(RANGE("3"), "blocks[1] is not an object");
  refuse(RANGE("{\"first\":0}"), "blocks[1] lacks first or last");
  refuse(RANGE("{\"first\":2,\"last\":1}"), "blocks[1].last is below first");
  refuse(RANGE("{\"first\":-2,\"last\":1}"), "blocks[1].first is not the number of a block");
  refuse(RANGE("{\"first\":0,\"last\":1,\"keep\":1}"), "blocks[1].keep is not a key");
  refuse(RANGE("{\"first\":0,\"last\":1,\"checkpoint\":\"all\"}"),
         "blocks[1].checkpoint: checkpoint takes none");
  refuse(RANGE("{\"first\":0,\"last\":1,\"saved\":[]}"), "blocks[1].saved is not an object");
  refuse(RANGE("{\"first\":0,\"last\":1,\"saved\":{\"gelu\":\"gone\"}}"),
         "blocks[1].saved.gelu is not keep, recompute");
}

/* ---- options ---- */

static const tsr_parameter rows[] = {{.rows = tsr_run_parameters}};

static tsr_params *params_of(const char *const *pairs) {
  tsr_params *params;
  assert_int_equal(
      tsr_params_new(rows, sizeof rows / sizeof *rows, TSR_INTERFACE_COMMAND, &params, NULL), 0);
  for (; *pairs; pairs += 2)
    assert_int_equal(tsr_params_set_text(params, pairs[0], pairs[1], strlen(pairs[1]), NULL), 0);
  return params;
}

#define PLAN_OF(...) plan_of((const char *const[]){__VA_ARGS__, NULL})

static tsr_run_plan *plan_of(const char *const *pairs) {
  tsr_params *params = params_of(pairs);
  tsr_run_plan *plan = NULL;
  assert_int_equal(tsr_run_plan_of(params, &plan, NULL), 0);
  tsr_params_free(params);
  return plan;
}

static void expect_plan(tsr_run_plan *plan, const char *text) {
  assert_string_equal(tsr_run_plan_text(plan), text);
  tsr_run_plan_free(plan);
}

/* Options are shorthands, and go before the plan. */
static void options_and_plan(void **state) {
  static const char base[] =
      "{\"blocks\":[{\"checkpoint\":\"full\",\"first\":1,\"last\":2,\"saved\":{\"gelu\":"
      "\"recompute\"}}],\"dtype\":\"bf16\",\"version\":1}";
  (void)state;
  expect_plan(PLAN_OF("dtype", "bf16", "micro-batch", "2", "checkpoint-form", "non-reentrant"),
              "{\"checkpoint_form\":\"non-reentrant\",\"dtype\":\"bf16\",\"micro_batch\":2,"
              "\"version\":1}\n");
  expect_plan(PLAN_OF("checkpoint", "blocks:0-2,7"),
              "{\"blocks\":[{\"checkpoint\":\"full\",\"first\":0,\"last\":2},{\"checkpoint\":"
              "\"full\",\"first\":7,\"last\":7}],\"version\":1}\n");
  expect_plan(PLAN_OF("plan", base, "dtype", "fp32", "gelu", "fused"),
              "{\"blocks\":[{\"checkpoint\":\"full\",\"first\":1,\"last\":2,\"saved\":{\"gelu\":"
              "\"recompute\"}}],\"gelu\":\"fused\",\"version\":1}\n");
  expect_plan(PLAN_OF("in_place", "product,dropout,add"),
              "{\"in_place\":\"add,dropout,product\",\"version\":1}\n");
  expect_plan(PLAN_OF("offload", "activations:disk,optimizer:host"),
              "{\"offload\":\"optimizer,activations:disk\",\"version\":1}\n");
  expect_plan(PLAN_OF("clip", "1.0"), "{\"clip\":\"1\",\"version\":1}\n");
  expect_plan(PLAN_OF("clip", "0.10"), "{\"clip\":\"0.1\",\"version\":1}\n");
  expect_plan(PLAN_OF("plan", base, "checkpoint", "sqrt"),
              "{\"checkpoint\":\"sqrt\",\"dtype\":\"bf16\",\"version\":1}\n");
}

static void wrong_lists(void **state) {
  static const char *const lists[] = {"blocks:3-1", "blocks:a",        "blocks:1,",
                                      "blocks:1-",  "blocks:12345678", "blocks:1 2"};
  (void)state;
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    tsr_params *params = params_of((const char *const[]){"checkpoint", lists[i], NULL});
    tsr_run_plan *plan = NULL;
    assert_int_equal(tsr_run_plan_of(params, &plan, NULL), TSR_ERROR_ARGUMENT);
    assert_null(plan);
    tsr_params_free(params);
  }
}

static tsr_simulate_options options_of(const tsr_run_plan *plan) {
  tsr_simulate_options options = {
      .struct_bytes = sizeof options, .batch = 8, .sequence = 64, .steps = 2};
  tsr_run_plan_options(plan, &options);
  return options;
}

static uint64_t peak_of(const tsr_run_plan *plan, char hash[TSR_RUN_PLAN_HASH_BYTES]) {
  tsr_simulate_options options = options_of(plan);
  tsr_model *model;
  tsr_simulation *simulation;
  tsr_error error = {0};
  assert_int_equal(tsr_model_named("gpt2", &model, NULL), 0);
  if (tsr_simulate(model, &options, &simulation, &error)) fail_msg("%s", error.message);
  uint64_t peak = tsr_simulation_peak(simulation).allocated_bytes;
  if (hash) strcpy(hash, tsr_run_plan_hash(plan));
  tsr_simulation_free(simulation);
  tsr_model_free(model);
  return peak;
}

/* Plans of the same blocks need the same memory; sqrt of 12 blocks is 3. */
static void same_blocks(void **state) {
  (void)state;
  tsr_run_plan *full = PLAN_OF("checkpoint", "full"), *all = PLAN_OF("checkpoint", "blocks:0-11"),
               *root = PLAN_OF("checkpoint", "sqrt"), *three = PLAN_OF("checkpoint", "every:3"),
               *none = PLAN_OF("dtype", "fp32");
  assert_int_equal(peak_of(full, NULL), peak_of(all, NULL));
  assert_int_equal(peak_of(root, NULL), peak_of(three, NULL));
  assert_true(peak_of(root, NULL) < peak_of(none, NULL));
  tsr_run_plan_free(full);
  tsr_run_plan_free(all);
  tsr_run_plan_free(root);
  tsr_run_plan_free(three);
  tsr_run_plan_free(none);
}

static void refuse_for_gpt2(const char *text, const char *message) {
  tsr_run_plan *plan = parse(text);
  tsr_simulate_options options = options_of(plan);
  tsr_model *model;
  tsr_simulation *simulation;
  tsr_error error = {0};
  assert_int_equal(tsr_model_named("gpt2", &model, NULL), 0);
  assert_true(tsr_simulate(model, &options, &simulation, &error) < 0);
  if (!strstr(error.message, message)) fail_msg("%s", error.message);
  tsr_model_free(model);
  tsr_run_plan_free(plan);
}

static void not_for_this_model(void **state) {
  (void)state;
  refuse_for_gpt2("{\"version\":1,\"blocks\":[{\"first\":3,\"last\":12}]}",
                  "blocks 3 to 12, but the model has blocks 0 to 11");
  refuse_for_gpt2("{\"version\":1,\"blocks\":[{\"first\":0,\"last\":1,\"saved\":{\"gellu\":"
                  "\"recompute\"}}]}",
                  "'gellu'");
  refuse_for_gpt2("{\"version\":1,\"micro_batch\":3}", "a batch of 8 sequences");
  refuse_for_gpt2("{\"version\":1,\"micro_batch\":2,\"accumulation\":\"flat\"}",
                  "flat accumulation");
}

/* The text's own form of micro-batches keeps every graph until the end. */
static void micro_batches(void **state) {
  (void)state;
  tsr_run_plan *whole = PLAN_OF("dtype", "fp32"), *each = PLAN_OF("micro-batch", "2"),
               *once = PLAN_OF("micro-batch", "2", "backward", "once");
  uint64_t all = peak_of(whole, NULL), split = peak_of(each, NULL), late = peak_of(once, NULL);
  assert_true(split < all);
  assert_true(late > split);
  assert_true(late > all - all / 20);
  tsr_run_plan_free(whole);
  tsr_run_plan_free(each);
  tsr_run_plan_free(once);
}

static void effects(void **state) {
  static tsr_run_plan_effects e;
  (void)state;
  tsr_run_plan *plan = PLAN_OF("dtype", "bf16", "checkpoint", "blocks:0-5,8");
  tsr_simulate_options how = {.struct_bytes = sizeof how, .batch = 8, .sequence = 64, .steps = 2};
  tsr_model *model;
  assert_int_equal(tsr_model_named("gpt2", &model, NULL), 0);
  assert_int_equal(tsr_run_plan_explain(plan, model, &how, &e, NULL), 0);
  assert_int_equal(e.count, 3);
  assert_string_equal(e.choices[0].name, "bf16 weights");
  assert_string_equal(e.choices[1].name, "blocks 0-5: computed again");
  assert_int_equal(e.choices[2].so_far.peak_bytes, e.with.peak_bytes);
  assert_int_equal(e.choices[0].alone.peak_bytes, e.choices[0].so_far.peak_bytes);
  assert_true(e.with.peak_bytes < e.without.peak_bytes);
  assert_int_equal(e.without.recomputed_flops, 0);
  assert_int_equal(e.choices[1].alone.recomputed_flops, 6 * e.choices[2].alone.recomputed_flops);
  tsr_model_free(model);
  tsr_run_plan_free(plan);
}

/* The snapshot has the hash of the plan, which `info` prints. */
static void hash_in_snapshot(void **state) {
  (void)state;
  tsr_run_plan *plan = PLAN_OF("dtype", "bf16");
  tsr_simulate_options options = options_of(plan);
  tsr_model *model;
  tsr_simulation *simulation;
  assert_int_equal(tsr_model_named("gpt2", &model, NULL), 0);
  assert_int_equal(tsr_simulate(model, &options, &simulation, NULL), 0);
  const tsr_snapshot *snapshot = tsr_simulation_snapshot(simulation);
  bool is_there = false;
  for (uint32_t i = 0; i < tsr_snapshot_string_count(snapshot); i++) {
    tsr_text text = tsr_snapshot_string(snapshot, i);
    is_there |= text.size_bytes == 64 && !memcmp(text.data, tsr_run_plan_hash(plan), 64);
  }
  assert_true(is_there);
  tsr_simulation_free(simulation);
  tsr_model_free(model);
  tsr_run_plan_free(plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hashes),           cmocka_unit_test(table_of_techniques),
      cmocka_unit_test(table_of_targets), cmocka_unit_test(canonical_form),
      cmocka_unit_test(modules),          cmocka_unit_test(refusals),
      cmocka_unit_test(options_and_plan), cmocka_unit_test(wrong_lists),
      cmocka_unit_test(same_blocks),      cmocka_unit_test(not_for_this_model),
      cmocka_unit_test(micro_batches),    cmocka_unit_test(effects),
      cmocka_unit_test(hash_in_snapshot),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
