/* Small JSON texts are read as jansson's own parser reads them: the same texts, values, messages and places. That parser serves as the
 * reference here, where memory does not run out. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tessera/unstable/json.h"
#include "test_support.h"

static const char *const texts[] = {
    "{}",
    "[]",
    " [ ] \t\r\n",
    "[1, -2, 0, -0, 12345678901234567890, 9223372036854775807, -9223372036854775808]",
    "[9223372036854775808]",
    "[-9223372036854775809]",
    "[1.5, -0.25e3, 1E+2, 1e-400, 0.1, 123456789012345678901234567890.0]",
    "[1e999]",
    "[01]",
    "[-]",
    "[-a]",
    "[1.]",
    "[.5]",
    "[1e]",
    "[1e+]",
    "[+1]",
    "[true, false, null]",
    "[tru]",
    "[nulls]",
    "[NaN]",
    "[\"\", \"a\", \"\\\"\\\\\\/\\b\\f\\n\\r\\t\", \"\\u0041\\u00e9\\u20ac\\ud83d\\ude00 after\"]",
    "[\"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"]",
    "[\"\\ud83d\"]",
    "[\"\\ude00\"]",
    "[\"\\ud83d\\u0041\"]",
    "[\"\\u12\"]",
    "[\"\\x\"]",
    "[\"\\",
    "[\"a\nb\"]",
    "[\"a\x01\"]",
    "[\"\x80\"]",
    "[\"\xed\xa0\x80\"]",
    "[\xc3\xa9]",
    "[\xff]",
    "[\"no end",
    "[\"a\\u0000b\"]",
    "{\"a\\u0000b\": 1}",
    "{\"a\": 1, \"b\": {\"c\": [1, {\"d\": \"e\"}]}, \"f\\n\\u00e9\": {\"g\\t\": [\"\\t\", 1.5]}}",
    "{\"a\": 1, \"a\": 2}",
    "{\"a\": 1, \"\\u0061\": {\"a\": 3}}",
    "{\"a\" 1}",
    "{\"a\": }",
    "{\"a\": 1,}",
    "{\"a\": 1",
    "{\"a\"",
    "{\"a\":",
    "{1: 2}",
    "{a: 2}",
    "{,}",
    "[1,]",
    "[1 2]",
    "[1",
    "[,1]",
    "[}",
    "[]]",
    "[] x",
    "",
    "  ",
    "1",
    "\"text\"",
    "null",
    "\xef\xbb\xbf{}",
    "\n\n{\"rules\":\n  [\"a\", \"b\" \"a string of more than twenty bytes\"]}",
};
enum { TEXTS = sizeof texts / sizeof *texts };

static const size_t flag_sets[] = {0, JSON_REJECT_DUPLICATES, JSON_ALLOW_NUL,
                                   JSON_DECODE_ANY | JSON_ALLOW_NUL,
                                   JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL};

/* jansson names its flag in one message, and refuses escapes at the end of what they could have been. */
static bool is_worded_otherwise(const tsr_error *error) {
  return strstr(error->message, "\\u0000 is not allowed") ||
         strstr(error->message, "invalid Unicode") || strstr(error->message, "invalid escape");
}

static void same(const char *text, size_t size, size_t flags, bool has_message) {
  json_error_t at = {.text = ""};
  tsr_error error = {.message = ""};
  json_t *expected = json_loadb(text, size, flags, &at), *got = NULL;
  char message[sizeof error.message + 8];
  int status = tsr_json_load(text, size, flags, NULL, &got, &error);
  if (expected) {
    assert_int_equal(status, 0);
    assert_true(json_equal(expected, got));
    char *a = json_dumps(expected, JSON_ENCODE_ANY), *b = json_dumps(got, JSON_ENCODE_ANY);
    assert_string_equal(a, b); /* the order of members, too */
    free(a);
    free(b);
  } else {
    assert_int_equal(status, TSR_ERROR_FORMAT);
    assert_null(got);
    if (has_message && !is_worded_otherwise(&error)) {
      tsr_error wanted;
      (void)snprintf(message, sizeof message, "line %d: %s", at.line, at.text);
      (void)tsr__fail(&wanted, TSR_ERROR_FORMAT, 0, "%s", message);
      assert_string_equal(error.message, wanted.message);
      assert_int_equal(error.offset, at.position);
    }
  }
  json_decref(expected);
  json_decref(got);
}

static void chosen(void **state) {
  (void)state;
  for (size_t i = 0; i < TEXTS; i++)
    for (size_t f = 0; f < sizeof flag_sets / sizeof *flag_sets; f++)
      same(texts[i], strlen(texts[i]), flag_sets[f], true);
}

/* Every prefix, and every text with one byte of another: not a zero byte, which jansson skips after a number. */
static void changed(void **state) {
  static const char bytes[] = "{}[]:,\"\\ \n019-.eEut\x7f\x80\xc3\xa9\xed";
  char text[256];
  (void)state;
  for (size_t i = 0; i < TEXTS; i++) {
    size_t size = strlen(texts[i]);
    assert_true(size < sizeof text);
    for (size_t end = 0; end < size; end++) same(texts[i], end, JSON_REJECT_DUPLICATES, false);
    for (size_t at = 0; at < size; at++)
      for (size_t b = 0; b + 1 < sizeof bytes; b++) {
        memcpy(text, texts[i], size + 1);
        text[at] = bytes[b];
        same(text, size, JSON_ALLOW_NUL, false);
      }
  }
}

static void deep(void **state) {
  enum { MOST = 2048 };
  char text[2 * MOST + 2];
  (void)state;
  for (size_t depth = MOST - 1; depth <= MOST + 1; depth++) {
    memset(text, '[', depth);
    memset(text + depth, ']', depth);
    same(text, depth == MOST + 1 ? depth + 1 : 2 * depth, 0, true);
  }
}

static void titles(void **state) {
  (void)state;
  tsr_error error = {.message = ""};
  json_t *root = NULL;
  assert_int_equal(tsr_json_load("[x]", 3, 0, "not rates", &root, &error), TSR_ERROR_FORMAT);
  assert_string_equal(error.message, "not rates: invalid token near 'x'");
  assert_int_equal(tsr_json_load("[x]", 3, 0, NULL, &root, NULL), TSR_ERROR_FORMAT);
  assert_null(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(chosen), cmocka_unit_test(changed),
                                     cmocka_unit_test(deep), cmocka_unit_test(titles)};
  return cmocka_run_group_tests_name("json load", tests, NULL, NULL);
}
