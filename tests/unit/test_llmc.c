/* Checkpoints of llm.c: which bytes are which array, and one sentence for each kind of damage. What is computed with
 * them is compared with llm.c's own losses in tests/golden/test_train.py. */
#include "models/llmc.h"

#include <string.h>

#include "models/model.h"
#include "test_support.h"

enum { POSITIONS = 8, VOCABULARY = 5, LAYERS = 11, HEADS = 2, WIDTH = 4, PADDED = 6 };

static const uint32_t fine[8] = {20240326, 3, POSITIONS, VOCABULARY, LAYERS, HEADS, WIDTH, PADDED};

static uint64_t file_bytes(uint64_t each) {
  uint64_t layer = WIDTH * (12 * WIDTH + 13);
  return TSR__LLMC_HEADER_BYTES +
         each * (WIDTH * (PADDED + POSITIONS) + LAYERS * layer + 2 * WIDTH);
}

static void make(unsigned char bytes[TSR__LLMC_HEADER_BYTES], unsigned changed, uint32_t number) {
  memset(bytes, 0, TSR__LLMC_HEADER_BYTES);
  for (unsigned i = 0; i < 8; i++)
    for (unsigned k = 0; k < 4; k++)
      bytes[4 * i + k] = (unsigned char)((i == changed ? number : fine[i]) >> (8 * k));
}

static const tsr__array *find(const tsr__safetensors *file, const char *name) {
  const tsr__array *array = tsr__safetensors_find(file, name);
  if (!array) fail_msg("%s: not there", name);
  return array;
}

static void check_arrays(uint32_t version, uint64_t each, tsr__array_type type) {
  unsigned char bytes[TSR__LLMC_HEADER_BYTES];
  tsr__safetensors file;
  make(bytes, 1, version);
  assert_int_equal(tsr__llmc_parse(bytes, sizeof bytes, file_bytes(each), &file, NULL), 0);
  assert_int_equal(file.count, 4 + 12 * LAYERS);
  assert_int_equal(file.data_start, TSR__LLMC_HEADER_BYTES);
  const tsr__array *a = find(&file, "transformer.wte.weight");
  assert_true(a->type == type && a->offset_bytes == 0 && !a->is_transposed);
  assert_int_equal(a->size_bytes, VOCABULARY * WIDTH * each); /* without the padding */
  a = find(&file, "transformer.wpe.weight");
  assert_int_equal(a->offset_bytes, PADDED * WIDTH * each);
  uint64_t at =
      (PADDED + POSITIONS + 2 * LAYERS) * WIDTH; /* after both of each block's first norm */
  a = find(&file, "transformer.h.10.attn.c_attn.weight");
  assert_true(a->is_transposed && a->rank == 2 && a->dim[0] == WIDTH && a->dim[1] == 3 * WIDTH);
  assert_int_equal(a->offset_bytes, (at + 10 * 3 * WIDTH * WIDTH) * each);
  a = find(&file, "transformer.h.0.attn.c_attn.bias");
  assert_true(!a->is_transposed && a->rank == 1 && a->dim[0] == 3 * WIDTH);
  assert_int_equal(a->offset_bytes, (at + LAYERS * 3 * WIDTH * WIDTH) * each);
  a = find(&file, "transformer.ln_f.bias");
  assert_int_equal(TSR__LLMC_HEADER_BYTES + a->offset_bytes + a->size_bytes, file_bytes(each));
  tsr__safetensors_release(&file);
}

static void arrays(void **state) {
  (void)state;
  check_arrays(3, 4, TSR__ARRAY_F32);
  check_arrays(5, 2, TSR__ARRAY_BF16);
}

static void description(void **state) {
  unsigned char bytes[TSR__LLMC_HEADER_BYTES];
  tsr_model *model = NULL;
  (void)state;
  make(bytes, 0, fine[0]);
  assert_true(tsr_model_is_checkpoint((const char *)bytes, 4));
  assert_false(tsr_model_is_checkpoint((const char *)bytes, 3));
  assert_int_equal(tsr_model_read((const char *)bytes, sizeof bytes, &model, NULL), 0);
  assert_string_equal(tsr_model_name(model), "gpt2");
  assert_true(model->width == WIDTH && model->layers == LAYERS && model->heads == HEADS);
  assert_true(model->vocabulary == VOCABULARY && model->positions == POSITIONS);
  assert_true(model->embedding_dropout == 0 && model->residual_dropout == 0 &&
              model->attention_dropout == 0);
  tsr_model_free(model);
}

static void check_refused(unsigned changed, uint32_t number, size_t size, uint64_t all_bytes,
                          int status, const char *text) {
  unsigned char bytes[TSR__LLMC_HEADER_BYTES];
  tsr__safetensors file;
  tsr_error error = {0};
  make(bytes, changed, number);
  assert_int_equal(tsr__llmc_parse(bytes, size, all_bytes, &file, &error), status);
  assert_string_equal(error.message, text);
}

static void damaged(void **state) {
  const size_t all = TSR__LLMC_HEADER_BYTES;
  const uint64_t fits = file_bytes(4);
  (void)state;
  check_refused(0, fine[0], 100, 100, TSR_ERROR_FORMAT,
                "a checkpoint of llm.c that is cut off within its header");
  check_refused(1, 1, all, fits, TSR_ERROR_UNSUPPORTED,
                "a checkpoint of llm.c in version 1; tessera reads versions 3 (fp32) and 5 (bf16)");
  check_refused(4, 0, all, fits, TSR_ERROR_FORMAT,
                "the header has 0 for the model's layers, which is not a valid size");
  check_refused(4, 5000, all, fits, TSR_ERROR_FORMAT,
                "the header has 5000 for the model's layers, which is not a valid size");
  check_refused(6, UINT32_MAX, all, fits, TSR_ERROR_FORMAT,
                "the header has -1 for the model's width, which is not a valid size");
  check_refused(5, 3, all, fits, TSR_ERROR_FORMAT,
                "the header has 3 heads, which do not divide the width 4");
  check_refused(
      7, 4, all, fits, TSR_ERROR_FORMAT,
      "the header has a padded vocabulary of 4 tokens, fewer than the 5 of the vocabulary");
  check_refused(0, fine[0], all, fits - 4, TSR_ERROR_FORMAT,
                "a checkpoint of llm.c that is cut off: its header needs 10992 bytes of weights, "
                "and the file has 10988");
  check_refused(0, fine[0], all, fits + 1, TSR_ERROR_FORMAT,
                "a checkpoint of llm.c that is too long: its header needs 10992 bytes of weights, "
                "and the file has 10993");
}

/* The largest sizes together are more bytes than can be counted. */
static void enormous(void **state) {
  unsigned char bytes[TSR__LLMC_HEADER_BYTES];
  tsr__safetensors file;
  (void)state;
  make(bytes, 6, 1 << 24);
  bytes[4 * 4 + 1] = 16; /* 4096 layers and some */
  bytes[4 * 4] = 0;
  assert_int_equal(tsr__llmc_parse(bytes, sizeof bytes, UINT64_MAX, &file, NULL), TSR_ERROR_FORMAT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(arrays),
      cmocka_unit_test(description),
      cmocka_unit_test(damaged),
      cmocka_unit_test(enormous),
  };
  return cmocka_run_group_tests_name("llmc", tests, NULL, NULL);
}
