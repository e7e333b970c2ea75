/* Tokenizers: what the package tokenizers makes of a few hundred texts (tests/golden/tokens, written by
 * tests/torch/tokens.py), long texts on several threads, and files that are refused. */
#include "tokens/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "test_support.h"

typedef TSR__VECTOR(uint32_t) id_list;

static int collect(void *context, const uint32_t *ids, size_t count) {
  id_list *list = context;
  for (size_t i = 0; i < count; i++) assert_true(TSR__VECTOR_PUSH(list, ids[i]));
  return 0;
}

static void encode(const tsr_tokenizer *t, const char *text, size_t size, unsigned threads,
                   id_list *out) {
  tsr_encode_options options = {
      .struct_bytes = sizeof options, .adds_special = !threads, .threads = threads};
  tsr_error error;
  out->count = 0;
  int status = tsr_tokenizer_encode(t, text, size, &options, collect, out, &error);
  if (status) fail_msg("%s", error.message);
}

static void decode(const tsr_tokenizer *t, const json_t *ids, tsr__buffer *out) {
  tsr_token_decoder *decoder = tsr_token_decoder_new(t, false);
  tsr_text text;
  assert_non_null(decoder);
  out->size = 0;
  for (size_t i = 0; i < json_array_size(ids); i++) {
    uint32_t id = (uint32_t)json_integer_value(json_array_get(ids, i));
    assert_int_equal(tsr_token_decoder_put(decoder, id, &text, NULL), 0);
    tsr__buffer_append(out, text.data, text.size_bytes);
  }
  assert_int_equal(tsr_token_decoder_finish(decoder, &text, NULL), 0);
  tsr__buffer_append(out, text.data, text.size_bytes);
  tsr_token_decoder_free(decoder);
}

static void compare_case(const tsr_tokenizer *t, const json_t *expected) {
  const json_t *text = json_array_get(expected, 0), *ids = json_array_get(expected, 1);
  const json_t *decoded = json_array_get(expected, 2);
  id_list list = {0};
  tsr__buffer out = {0};
  encode(t, json_string_value(text), json_string_length(text), 0, &list);
  assert_int_equal(list.count, json_array_size(ids));
  for (size_t i = 0; i < list.count; i++)
    assert_int_equal(list.items[i], json_integer_value(json_array_get(ids, i)));
  decode(t, ids, &out);
  assert_int_equal(out.size, json_string_length(decoded));
  if (out.size) assert_memory_equal(out.data, json_string_value(decoded), out.size);
  tsr__buffer_release(&out);
  TSR__VECTOR_FREE(&list);
}

static const char *place(const char *name) {
  static char path[512];
  const char *folder = getenv("TESSERA_TESTS");
  (void)snprintf(path, sizeof path, "%s/golden/tokens/%s", folder ? folder : "tests", name);
  return path;
}

static void compare_all(const char *name) {
  tsr_tokenizer *t = NULL;
  tsr_error error;
  char file[64];
  (void)snprintf(file, sizeof file, "%s.json", name);
  if (tsr_tokenizer_open(place(file), &t, &error)) fail_msg("%s", error.message);
  (void)snprintf(file, sizeof file, "%s.cases.json", name);
  json_t *cases = json_load_file(place(file), JSON_ALLOW_NUL, NULL);
  assert_true(json_array_size(cases) >= 100);
  for (size_t i = 0; i < json_array_size(cases); i++) compare_case(t, json_array_get(cases, i));
  json_decref(cases);
  tsr_tokenizer_free(t);
}

static void test_gpt2(void **state) {
  (void)state;
  compare_all("gpt2");
}

static void test_qwen(void **state) {
  (void)state;
  compare_all("qwen");
}

static void test_llama2(void **state) {
  (void)state;
  compare_all("llama2");
}

/* ---- long texts ---- */

enum { LONG_BYTES = IS_SANITIZED ? 1 << 17 : 1 << 20 };

/* Runs without a place to divide them at, and text. */
static char *long_text(void) {
  static const char *const runs[] = {"1234567890", " ", "abc def 12 ", "\n ", "e\xCC\x81", "x"};
  char *text = malloc(LONG_BYTES);
  assert_non_null(text);
  for (size_t at = 0, i = 0; at < LONG_BYTES; i++) {
    const char *run = runs[i * 7 % 6];
    size_t length = strlen(run), count = (i * 7919 % 50000) / length;
    for (; count && LONG_BYTES - at >= length; count--, at += length)
      memcpy(text + at, run, length);
    if (LONG_BYTES - at < 8)
      while (at < LONG_BYTES) text[at++] = '.';
  }
  return text;
}

/* One thread takes a long text in parts as several do. A part at a time is what is compared with the whole. */
static void test_threads_change_nothing(void **state) {
  static const char *const names[] = {"gpt2.json", "qwen.json", "llama2.json"};
  char *text = long_text();
  (void)state;
  for (size_t i = 0; i < 3; i++) {
    id_list one = {0}, many = {0};
    tsr_tokenizer *t = NULL;
    assert_int_equal(tsr_tokenizer_open(place(names[i]), &t, NULL), 0);
    encode(t, text, LONG_BYTES, 1, &one);
    for (unsigned threads = 2; threads < 8; threads += 3) {
      encode(t, text, LONG_BYTES, threads, &many);
      assert_int_equal(one.count, many.count);
      assert_memory_equal(one.items, many.items, one.count * sizeof *one.items);
    }
    tsr_tokenizer_free(t);
    TSR__VECTOR_FREE(&one);
    TSR__VECTOR_FREE(&many);
  }
  free(text);
}

/* A megabyte of one letter: a piece that a quadratic algorithm would take minutes for. */
static void test_a_piece_may_be_long(void **state) {
  char *text = malloc(LONG_BYTES);
  tsr_tokenizer *t = NULL;
  id_list ids = {0};
  (void)state;
  assert_non_null(text);
  memset(text, 'a', LONG_BYTES);
  assert_int_equal(tsr_tokenizer_open(place("gpt2.json"), &t, NULL), 0);
  encode(t, text, LONG_BYTES, 2, &ids);
  assert_true(ids.count && ids.count <= LONG_BYTES);
  TSR__VECTOR_FREE(&ids);
  tsr_tokenizer_free(t);
  free(text);
}

/* ---- refusals ---- */

#define MODEL(more) \
  "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]" more "}"

static void test_refuses_what_it_does_not_implement(void **state) {
  static const struct {
    const char *json, *message;
  } cases[] = {
      {"[]", "not a tokenizer.json: not a JSON object"},
      {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}",
       "the model is Unigram; tessera encodes with BPE models only"},
      {"{\"model\":{\"type\":\"WordPiece\"}}",
       "the model is WordPiece; tessera encodes with BPE models only"},
      {"{" MODEL(",\"dropout\":0.1") "}",
       "the model drops merges at random (\"dropout\"), which tessera does not support"},
      {"{" MODEL(",\"end_of_word_suffix\":\"</w>\"") "}",
       "the model has a \"end_of_word_suffix\", which tessera does not support"},
      {"{\"normalizer\":{\"type\":\"Lowercase\"}," MODEL("") "}",
       "the normalizer 'Lowercase' is not supported"},
      {"{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}," MODEL("") "}",
       "the pre-tokenizer 'BertPreTokenizer' is not supported"},
      {"{\"post_processor\":{\"type\":\"BertProcessing\"}," MODEL("") "}",
       "the post-processor 'BertProcessing' is not supported"},
      {"{\"decoder\":{\"type\":\"WordPiece\"}," MODEL("") "}",
       "the decoder 'WordPiece' is not supported here"},
      {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?<=a)b\"},\"behavior\":"
       "\"Isolated\",\"invert\":false}," MODEL("") "}",
       "the pattern '(?<=a)b' has a group of another form than (?:...), (?i:...), (?=...) and "
       "(?!...) at byte 0, which tessera does not support"},
      {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a*\"},\"behavior\":"
       "\"Isolated\",\"invert\":false}," MODEL("") "}",
       "the pattern 'a*' may match an empty text, which tessera does not support"},
      {"{\"version\":\"2.0\"," MODEL("") "}", "a tokenizer.json of another version than 1.0"},
      {"{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}",
       "two tokens of the vocabulary have the id 0"},
      {"{\"model\":{\"vocab\":{\"a\":4294967296},\"merges\":[]}}",
       "token 'a' has an id that is not below 16777216"},
      {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}",
       "token 'a' has an id that is not below 16777216"},
      {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"b\"]]}}",
       "merge 0 needs 'b', which is not a token"},
      {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", "merge 0 is not two tokens"},
      {"{\"model\":{\"vocab\":{},\"merges\":[]}}", "the tokenizer has no tokens"},
      {"{\"added_tokens\":[{\"id\":7,\"content\":\"x\",\"single_word\":false,\"lstrip\":false,"
       "\"rstrip\":false,\"normalized\":false,\"special\":true}]," MODEL("") "}",
       "the added token 'x' has the id 7; by the vocabulary it is 3"},
      {"{\"added_tokens\":[{\"id\":3,\"content\":\"x\"}]," MODEL("") "}",
       "an added token has no \"lstrip\" that is true or false"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_tokenizer *t = NULL;
    tsr_error error = {0};
    assert_true(tsr_tokenizer_read(cases[i].json, strlen(cases[i].json), &t, &error) < 0);
    assert_string_equal(error.message, cases[i].message);
    assert_null(t);
  }
}

static void test_refuses_what_is_no_text(void **state) {
  static const char json[] = "{" MODEL("") "}";
  tsr_tokenizer *t = NULL;
  tsr_error error;
  id_list ids = {0};
  (void)state;
  assert_int_equal(tsr_tokenizer_read(json, sizeof json - 1, &t, NULL), 0);
  assert_int_equal(tsr_tokenizer_encode(t, "ab\xff", 3, NULL, collect, &ids, &error),
                   TSR_ERROR_FORMAT);
  assert_int_equal(error.offset, 2);
  assert_int_equal(ids.count, 0);
  encode(t, "abcab", 5, 1, &ids); /* without an unk_token, unknown characters vanish */
  assert_int_equal(ids.count, 2);
  assert_int_equal(ids.items[1], 2);
  assert_int_equal(tsr_tokenizer_id(t, "ab"), 2);
  assert_int_equal(tsr_tokenizer_id(t, "c"), -1);
  assert_int_equal(tsr_tokenizer_vocabulary(t), 3);
  TSR__VECTOR_FREE(&ids);
  tsr_tokenizer_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gpt2),
      cmocka_unit_test(test_qwen),
      cmocka_unit_test(test_llama2),
      cmocka_unit_test(test_threads_change_nothing),
      cmocka_unit_test(test_a_piece_may_be_long),
      cmocka_unit_test(test_refuses_what_it_does_not_implement),
      cmocka_unit_test(test_refuses_what_is_no_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
