/* Files of tokens: bytes, 16 and 32 bits, llm.c's headers, and files that hold no tokens. */
#define _XOPEN_SOURCE 700

#include "train/batches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test_support.h"

enum { GPT2 = 50257, HEADER = 1024 };

typedef struct place {
  char folder[64], path[128];
} place;

static int setup(void **state) {
  static place p;
  strcpy(p.folder, "/tmp/tessera-tokens-XXXXXX");
  if (!mkdtemp(p.folder)) return 1;
  *state = &p;
  return 0;
}

static int teardown(void **state) {
  place *p = *state;
  (void)unlink(p->path);
  return rmdir(p->folder);
}

static const char *put(void **state, const char *name, const void *data, size_t size_bytes) {
  place *p = *state;
  (void)unlink(p->path);
  (void)snprintf(p->path, sizeof p->path, "%s/%s", p->folder, name);
  FILE *file = fopen(p->path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, size_bytes, file), size_bytes);
  assert_int_equal(fclose(file), 0);
  return p->path;
}

static void test_any_file_is_bytes(void **state) {
  tsr__tokens tokens;
  int64_t out[7];
  const char *path = put(state, "text", "ab\xff", 3);
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_AUTO, 256, &tokens, NULL), 0);
  assert_int_equal(tokens.count, 3);
  assert_int_equal(tsr__tokens_read(&tokens, 4, 7, out, NULL), 0); /* goes round twice */
  static const int64_t expected[] = {'b', 255, 'a', 'b', 255, 'a', 'b'};
  assert_memory_equal(out, expected, sizeof out);
  tsr__tokens_release(&tokens);
}

static void test_names_a_token_out_of_range(void **state) {
  tsr__tokens tokens;
  int64_t out[3];
  tsr_error error = {0};
  const char *path = put(state, "text", "ab\xff", 3);
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_AUTO, 128, &tokens, NULL), 0);
  assert_int_equal(tsr__tokens_read(&tokens, 0, 2, out, NULL), 0);
  assert_int_equal(tsr__tokens_read(&tokens, 0, 3, out, &error), TSR_ERROR_FORMAT);
  assert_string_equal(error.message,
                      "token 255 at position 2 is not in the model's vocabulary of 128 tokens");
  assert_int_equal(error.offset, 2);
  assert_int_equal(tsr__tokens_check(&tokens, 2, &error), 0);
  assert_int_equal(tsr__tokens_check(&tokens, 3, &error), TSR_ERROR_FORMAT);
  tsr__tokens_release(&tokens);
}

static void test_a_text_in_memory(void **state) {
  tsr__tokens tokens;
  int64_t out[5];
  static const int64_t expected[] = {'c', 'a', 'b', 'c', 'a'};
  (void)state;
  assert_int_equal(tsr__tokens_of_text("abc", 3, 256, &tokens, NULL), 0);
  assert_int_equal(tsr__tokens_read(&tokens, 2, 5, out, NULL), 0);
  assert_memory_equal(out, expected, sizeof out);
  tsr__tokens_release(&tokens);
  assert_int_equal(tsr__tokens_of_text("a", 1, 256, &tokens, NULL), TSR_ERROR_FORMAT);
}

/* Every place of the data is reached, none beyond it, and a step reads the same whenever it is read. */
static void test_batches(void **state) {
  enum { ROWS = 6, SEQUENCE = 3, STEPS = 40 };
  static const char text[] = "abcdefg";
  int64_t seen[STEPS][ROWS * SEQUENCE];
  bool is_seen[256] = {false};
  tsr__batches b = {.sequence = SEQUENCE, .batch = ROWS / 2, .accumulate = 2, .key = 5};
  (void)state;
  assert_int_equal(tsr__tokens_of_text(text, 7, 256, &b.tokens, NULL), 0);
  assert_int_equal(tsr__batches_init(&b, NULL), 0);
  for (uint64_t step = 1; step <= STEPS; step++) {
    assert_int_equal(tsr__batches_read(&b, step, NULL), 0);
    memcpy(seen[step - 1], b.ids, sizeof seen[0]);
    assert_ptr_equal(tsr__batches_at(&b, 1), b.ids + ROWS / 2 * SEQUENCE);
    for (size_t row = 0; row < ROWS; row++) {
      const int64_t *ids = b.ids + row * SEQUENCE;
      assert_true(ids[0] >= 'a' && ids[0] <= 'e' && ids[1] == ids[0] + 1 && ids[2] == ids[0] + 2);
      is_seen[ids[0]] = true;
    }
  }
  for (int c = 'a'; c <= 'e'; c++) assert_true(is_seen[c]);
  for (uint64_t step = STEPS; step; step--) {
    assert_int_equal(tsr__batches_read(&b, step, NULL), 0);
    assert_memory_equal(b.ids, seen[step - 1], sizeof seen[0]);
  }
  tsr__batches_release(&b);
  tsr_error error = {0};
  tsr__batches longer = {.sequence = 8, .batch = 1, .accumulate = 1};
  assert_int_equal(tsr__tokens_of_text(text, 7, 256, &longer.tokens, NULL), 0);
  assert_int_equal(tsr__batches_init(&longer, &error), TSR_ERROR_ARGUMENT);
  assert_string_equal(error.message, "the data has 7 tokens, fewer than a sequence of 8");
  tsr__batches_release(&longer);
}

static void test_numbers(void **state) {
  static const unsigned char bytes[] = {1, 2, 0, 0, 0xff, 0xff, 1, 0};
  tsr__tokens tokens;
  int64_t out[4];
  const char *path = put(state, "train.bin", bytes, sizeof bytes);
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_AUTO, 1 << 17, &tokens, NULL), 0);
  assert_int_equal(tokens.count, 4);
  assert_int_equal(tsr__tokens_read(&tokens, 0, 4, out, NULL), 0);
  assert_int_equal(out[0], 513);
  assert_int_equal(out[2], 65535);
  tsr__tokens_release(&tokens);
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_U32, 1 << 18, &tokens, NULL), 0);
  assert_int_equal(tokens.count, 2);
  assert_int_equal(tsr__tokens_read(&tokens, 1, 1, out, NULL), 0);
  assert_int_equal(out[0], 0x1ffff);
  tsr__tokens_release(&tokens);
}

/* Longer than a piece that is read at once. */
static void test_many(void **state) {
  enum { MANY = 50000 };
  static unsigned char bytes[2 * MANY];
  static int64_t out[MANY];
  tsr__tokens tokens;
  for (int i = 0; i < MANY; i++) {
    bytes[2 * i] = (unsigned char)i;
    bytes[2 * i + 1] = (unsigned char)(i >> 8);
  }
  const char *path = put(state, "many.bin", bytes, sizeof bytes);
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_AUTO, GPT2, &tokens, NULL), 0);
  assert_int_equal(tsr__tokens_read(&tokens, 10, MANY, out, NULL), 0);
  for (int i = 0; i < MANY; i++) assert_int_equal(out[i], (i + 10) % MANY);
  tsr__tokens_release(&tokens);
}

static void set(unsigned char *bytes, size_t index, uint32_t number) {
  for (unsigned i = 0; i < 4; i++) bytes[4 * index + i] = (unsigned char)(number >> (8 * i));
}

static void test_headers_of_llm_c(void **state) {
  unsigned char bytes[HEADER + 12] = {0};
  tsr__tokens tokens;
  int64_t out[3];
  tsr_error error = {0};
  set(bytes, 0, 20240520);
  set(bytes, 1, 1);
  set(bytes, 2, 6);
  bytes[HEADER] = 7;
  const char *path = put(state, "tiny_val.bin", bytes, sizeof bytes);
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_AUTO, GPT2, &tokens, NULL), 0);
  assert_int_equal(tokens.format, TSR__TOKENS_U16);
  assert_int_equal(tokens.count, 6);
  assert_int_equal(tsr__tokens_read(&tokens, 0, 2, out, NULL), 0);
  assert_int_equal(out[0], 7);
  tsr__tokens_release(&tokens);
  set(bytes, 0, 20240801);
  set(bytes, 1, 7);
  set(bytes, 2, 3);
  path = put(state, "llama3", bytes, sizeof bytes);
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_AUTO, 128256, &tokens, NULL), 0);
  assert_int_equal(tokens.format, TSR__TOKENS_U32);
  assert_int_equal(tokens.count, 3);
  tsr__tokens_release(&tokens);
  /* As bytes, whatever they say. */
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_BYTES, 256, &tokens, NULL), 0);
  assert_int_equal(tokens.count, sizeof bytes);
  tsr__tokens_release(&tokens);
  path = put(state, "cut", bytes, sizeof bytes - 4);
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_AUTO, GPT2, &tokens, &error),
                   TSR_ERROR_FORMAT);
  assert_non_null(strstr(error.message, "announces 3 tokens"));
  path = put(state, "short", bytes, 12);
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_AUTO, GPT2, &tokens, NULL), TSR_ERROR_FORMAT);
  set(bytes, 1, 8);
  path = put(state, "newer", bytes, sizeof bytes);
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_AUTO, GPT2, &tokens, NULL),
                   TSR_ERROR_UNSUPPORTED);
}

static void test_refuses_what_is_no_tokens(void **state) {
  tsr__tokens tokens;
  const char *path = put(state, "odd.bin", "abc", 3);
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_AUTO, GPT2, &tokens, NULL), TSR_ERROR_FORMAT);
  path = put(state, "one", "a", 1);
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_AUTO, GPT2, &tokens, NULL), TSR_ERROR_FORMAT);
  path = put(state, "none", "", 0);
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_AUTO, GPT2, &tokens, NULL), TSR_ERROR_FORMAT);
  assert_int_equal(tsr__tokens_open("/tmp", TSR__TOKENS_AUTO, GPT2, &tokens, NULL), TSR_ERROR_IO);
}

static void test_a_file_that_shrinks(void **state) {
  tsr__tokens tokens;
  int64_t out[3];
  const char *path = put(state, "text", "abc", 3);
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_AUTO, GPT2, &tokens, NULL), 0);
  assert_int_equal(truncate(path, 1), 0);
  assert_int_equal(tsr__tokens_read(&tokens, 0, 3, out, NULL), TSR_ERROR_FORMAT);
  tsr__tokens_release(&tokens);
}

static uint64_t hash_of(const tsr__tokens *tokens) {
  uint64_t hash = 0;
  assert_int_equal(tsr__tokens_hash(tokens, &hash, NULL), 0);
  return hash;
}

/* The same in any kind of file; another for another token, order or number of them. */
static void test_hashes(void **state) {
  static const unsigned char small[] = {1, 2, 3}, wide[] = {1, 0, 2, 0, 3, 0};
  static const char *const others[] = {"\1\3\2", "\1\2\4", "\1\2\3\1", "\1\2"};
  tsr__tokens tokens;
  assert_int_equal(tsr__tokens_of_text((const char *)small, 3, 256, &tokens, NULL), 0);
  uint64_t hash = hash_of(&tokens);
  assert_int_equal(hash, UINT64_C(0x4fef9d65107b0e80)); /* saved runs contain it */
  const char *path = put(state, "wide.bin", wide, sizeof wide);
  assert_int_equal(tsr__tokens_open(path, TSR__TOKENS_AUTO, 256, &tokens, NULL), 0);
  assert_int_equal(hash_of(&tokens), hash);
  tsr__tokens_release(&tokens);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    assert_int_equal(tsr__tokens_of_text(others[i], strlen(others[i]), 256, &tokens, NULL), 0);
    assert_int_not_equal(hash_of(&tokens), hash);
  }
}

/* Of many tokens some are hashed, the first and the last among them. */
static void test_hashes_many(void **state) {
  (void)state;
  enum { MANY = 5000003 };
  tsr__tokens tokens;
  char *text = calloc(MANY, 1);
  assert_non_null(text);
  assert_int_equal(tsr__tokens_of_text(text, MANY, 256, &tokens, NULL), 0);
  uint64_t hash = hash_of(&tokens);
  static const size_t places[] = {0, 16383, MANY / 255, MANY - 16384, MANY - 1};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    text[places[i]] = 1;
    assert_int_not_equal(hash_of(&tokens), hash);
    text[places[i]] = 0;
  }
  assert_int_equal(hash_of(&tokens), hash);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_any_file_is_bytes),
      cmocka_unit_test(test_names_a_token_out_of_range),
      cmocka_unit_test(test_a_text_in_memory),
      cmocka_unit_test(test_batches),
      cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_many),
      cmocka_unit_test(test_headers_of_llm_c),
      cmocka_unit_test(test_refuses_what_is_no_tokens),
      cmocka_unit_test(test_a_file_that_shrinks),
      cmocka_unit_test(test_hashes),
      cmocka_unit_test(test_hashes_many),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
