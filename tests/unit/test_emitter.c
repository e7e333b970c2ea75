/* test_emitter.c - both formats of the emitter, the safety of strings, and how failures end. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emit/cut.h"
#include "emit/emitter.h"
#include "emit/text.h"
#include "test_support.h"

/* ---- Where the output goes ---- */

typedef struct sink {
  tsr__buffer out;
  size_t calls, largest;
  size_t fail_at; /* the call that fails, from 1; 0 = none */
} sink;

static int sink_write(void *context, const char *data, size_t size_bytes) {
  sink *to = context;
  if (++to->calls == to->fail_at) return 1;
  if (size_bytes > to->largest) to->largest = size_bytes;
  tsr__buffer_append(&to->out, data, size_bytes);
  return 0;
}

static void assert_output(sink *from, const char *expected) {
  tsr__buffer_append(&from->out, "", 1);
  assert_string_equal(from->out.data, expected);
  tsr__buffer_release(&from->out);
}

static tsr_report_options options_of(tsr_report_format format) {
  return (tsr_report_options){.format = format};
}

/* One of everything, described once. */
static void describe(tsr__emitter *e) {
  static const tsr__column columns[] = {{"bytes", "bytes", TSR__RIGHT},
                                        {NULL, "share", TSR__RIGHT},
                                        {"name", "name", TSR__ELASTIC},
                                        {"rank", NULL, TSR__RIGHT}};
  tsr__emit_object(e, NULL);
  tsr__emit_printf(e, TSR__BOLD, "Device %d: fine.", 0);
  tsr__emit_field(e, "events", "events", tsr__count(22331));
  tsr__emit_field(e, "peak_bytes", "peak", tsr__bytes(UINT64_C(19112604467)));
  tsr__emit_field(e, "event", "at event", tsr__index(-1));
  tsr__emit_field(e, "time_us", "time", tsr__time(INT64_C(1783866822365713)));
  tsr__emit_field(e, "last_us", "last", tsr__time(TSR_TIME_NONE));
  tsr__emit_field(e, "exact", "exact", tsr__bool(true));
  tsr__emit_field(e, "share", "share", tsr__percent(2, 3));
  tsr__emit_field(e, "address", "address", tsr__address(0x7f36b8000000));
  tsr__emit_field(e, "json_only", NULL, tsr__string("j"));
  tsr__emit_field(e, NULL, "text only", tsr__string("t"));
  tsr__emit_space(e);
  tsr__emit_table(e, "rows", columns, 4);
  tsr__emit_row(
      e, (tsr__cell[]){tsr__bytes(512), tsr__percent(1, 200), tsr__string("a"), tsr__count(1)});
  tsr__emit_array(e, "frames");
  tsr__emit_inline_object(e, NULL);
  tsr__emit_field(e, "line", NULL, tsr__nothing());
  tsr__emit_object(e, "inner");
  tsr__emit_field(e, "x", NULL, tsr__count(1));
  tsr__emit_end(e);
  tsr__emit_end(e);
  tsr__emit_end(e);
  tsr__emit_row_end(e);
  tsr__emit_row(e, (tsr__cell[]){tsr__bytes(UINT64_C(1) << 30), tsr__percent(199, 200),
                                 tsr__string("b"), tsr__count(2)});
  tsr__emit_row_end(e);
  tsr__emit_table_end(e);
  tsr__emit_array(e, "none");
  tsr__emit_end(e);
  tsr__emit_end(e);
}

static void test_json_face(void **state) {
  (void)state;
  sink to = {0};
  tsr__emitter e;
  tsr_report_options options = options_of(TSR_REPORT_JSON);
  tsr__emitter_init(&e, &options, sink_write, &to);
  describe(&e);
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_output(&to, "{\n"
                     "  \"events\": 22331,\n"
                     "  \"peak_bytes\": 19112604467,\n"
                     "  \"event\": -1,\n"
                     "  \"time_us\": 1783866822365713,\n"
                     "  \"last_us\": null,\n"
                     "  \"exact\": true,\n"
                     "  \"share\": 66.7,\n"
                     "  \"address\": 139872991969280,\n"
                     "  \"json_only\": \"j\",\n"
                     "  \"rows\": [\n"
                     "    {\n"
                     "      \"bytes\": 512,\n"
                     "      \"name\": \"a\",\n"
                     "      \"rank\": 1,\n"
                     "      \"frames\": [\n"
                     "        {\"line\": null, \"inner\": {\"x\": 1}}\n"
                     "      ]\n"
                     "    },\n"
                     "    {\n"
                     "      \"bytes\": 1073741824,\n"
                     "      \"name\": \"b\",\n"
                     "      \"rank\": 2\n"
                     "    }\n"
                     "  ],\n"
                     "  \"none\": []\n"
                     "}\n");
}

static void test_text_face(void **state) {
  (void)state;
  sink to = {0};
  tsr__emitter e;
  tsr__emitter_init(&e, NULL, sink_write, &to);
  describe(&e);
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_output(&to, "Device 0: fine.\n"
                     "  events     22,331\n"
                     "  peak       17.80 GiB\n"
                     "  at event   -\n"
                     "  time       2026-07-12 14:33:42.365713 UTC\n"
                     "  last       -\n"
                     "  exact      yes\n"
                     "  share      66.7 %\n"
                     "  address    0x7f36b8000000\n"
                     "  text only  t\n"
                     "\n"
                     "     bytes   share  name\n"
                     "     512 B   0.5 %  a\n"
                     "  1.00 GiB  99.5 %  b\n");
}

static void test_colors(void **state) {
  (void)state;
  sink to = {0};
  tsr__emitter e;
  tsr_report_options options = {.color = true};
  tsr__emitter_init(&e, &options, sink_write, &to);
  tsr__emit_space(&e);
  tsr__emit_printf(&e, TSR__BOLD, "b");
  tsr__emit_space(&e);
  tsr__emit_space(&e);
  tsr__buffer_text(&e.scratch, "d");
  tsr__emit_line(&e, TSR__DIM, 2);
  tsr__emit_printf(&e, TSR__PLAIN, "p");
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_output(&to, "\033[1mb\033[0m\n\n  \033[2md\033[0m\np\n");
}

/* ---- Tables ---- */

static void emit_name_table(tsr__emitter *e, const char *key, const char *name) {
  static const tsr__column columns[] = {
      {"n", "n", TSR__RIGHT}, {"name", "name", TSR__ELASTIC}, {NULL, "last", TSR__LEFT}};
  tsr__emit_table(e, key, columns, 3);
  tsr__emit_row(e, (tsr__cell[]){tsr__count(1), tsr__string(name), tsr__string("")});
  tsr__emit_row_end(e);
  tsr__emit_row(e, (tsr__cell[]){tsr__count(10), tsr__string("x"), tsr__string("y")});
  tsr__emit_row_end(e);
  tsr__emit_table_end(e);
}

static void test_table_keeps_to_the_width(void **state) {
  (void)state;
  sink to = {0};
  tsr__emitter e;
  tsr_report_options options = {.width = 32};
  tsr__emitter_init(&e, &options, sink_write, &to);
  emit_name_table(&e, NULL, "/home/me/a/long/way/to/model.py");
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_output(&to, "   n  name                  last\n"
                     "   1  /home/me/...model.py\n"
                     "  10  x                     y\n");
}

static void test_columns_are_characters(void **state) {
  (void)state;
  sink to = {0};
  tsr__emitter e;
  tsr__emitter_init(&e, NULL, sink_write, &to);
  emit_name_table(&e, NULL, "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\x1b[31m");
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_output(&to, "   n  name      last\n"
                     "   1  \xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80?[31m\n"
                     "  10  x         y\n");
}

static void test_empty_tables(void **state) {
  (void)state;
  static const tsr__column columns[] = {{"n", "n", TSR__RIGHT}};
  for (int format = TSR_REPORT_TEXT; format <= TSR_REPORT_JSON; format++) {
    sink to = {0};
    tsr__emitter e;
    tsr_report_options options = options_of((tsr_report_format)format);
    tsr__emitter_init(&e, &options, sink_write, &to);
    tsr__emit_object(&e, NULL);
    tsr__emit_table(&e, "rows", columns, 1);
    tsr__emit_table_end(&e);
    emit_name_table(&e, format == TSR_REPORT_JSON ? NULL : "t", "z");
    tsr__emit_end(&e);
    assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
    assert_output(&to, format == TSR_REPORT_JSON ? "{\n  \"rows\": []\n}\n"
                                                 : "   n  name  last\n"
                                                   "   1  z\n"
                                                   "  10  x     y\n");
  }
}

static void test_cells_may_all_be_empty(void **state) {
  (void)state;
  sink to = {0};
  tsr__emitter e;
  tsr__emitter_init(&e, NULL, sink_write, &to);
  tsr__emit_field(&e, NULL, "", tsr__string(NULL));
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_output(&to, "\n");
}

/* ---- Strings ---- */

typedef struct string_case {
  const char *bytes;
  size_t size_bytes;
  const char *json, *text;
} string_case;

#define BYTES(literal) literal, sizeof(literal) - 1

static const string_case strings[] = {
    {BYTES("plain"), "plain", "plain"},
    {BYTES("a\"b\\c/"), "a\\\"b\\\\c/", "a\"b\\c/"},
    {BYTES("\b\f\n\r\t"), "\\b\\f\\n\\r\\t", "?????"},
    {BYTES("\0\x01\x1b[2J\x7f"), "\\u0000\\u0001\\u001b[2J\\u007f", "???[2J?"},
    {BYTES("\xC2\x9B"), "\\u009b", "?"}, /* C1: one byte of CSI on some terminals */
    {BYTES("\xE2\x80\xAE\xE2\x80\xA8"), "\\u202e\\u2028", "??"},
    {BYTES("\xC2\xAD\xE2\x80\x8B\xF3\xA0\x81\x81"), "\\u00ad\\u200b\\udb40\\udc41",
     "???"}, /* not drawn */
    {BYTES("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80",
     "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
    {BYTES("\xED\xA0\xBDx\xED\xBF\xBF"), "\\ud83dx\\udfff", "?x?"},
    {BYTES("a\x80z"), "a\xEF\xBF\xBDz", "a?z"},
    {BYTES("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD", "??"},                  /* overlong */
    {BYTES("\xE0\x80\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", "???"}, /* overlong */
    {BYTES("\xE2\x82"), "\xEF\xBF\xBD", "?"},                               /* cut off */
    {BYTES("\xF0\x9F\x98\"x"), "\xEF\xBF\xBD\\\"x", "?\"x"},                /* cut off */
    {BYTES("\xF4\x90\x80\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", "????"},
    {BYTES("\xFF\xFE"), "\xEF\xBF\xBD\xEF\xBF\xBD", "??"},
};

static void test_strings_are_made_safe(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
    const string_case *one = &strings[i];
    tsr__buffer json = {0}, text = {0};
    size_t columns = tsr__text_clean(&text, (tsr_text){one->bytes, one->size_bytes});
    size_t end = tsr__json_escape(&json, (tsr_text){one->bytes, one->size_bytes}, 0, SIZE_MAX);
    assert_int_equal(end, one->size_bytes);
    assert_int_equal(json.size, strlen(one->json));
    assert_memory_equal(json.data, one->json, json.size);
    assert_int_equal(text.size, strlen(one->text));
    assert_memory_equal(text.data, one->text, text.size);
    assert_true(columns <= one->size_bytes);
    tsr__buffer_release(&json);
    tsr__buffer_release(&text);
  }
}

/* Any two bytes after any lead byte: the decoder stays inside and always moves on. */
static void test_every_short_sequence_decodes(void **state) {
  (void)state;
  for (unsigned lead = 0; lead < 256; lead++)
    for (unsigned second = 0; second < 256; second++)
      for (size_t size = 1; size <= 3; size++) {
        char *bytes = malloc(size); /* exact, so that AddressSanitizer sees a step too far */
        assert_non_null(bytes);
        const char three[3] = {(char)lead, (char)second, (char)0x80};
        memcpy(bytes, three, size);
        uint32_t code;
        size_t length = tsr__utf8_decode(bytes, size, &code);
        assert_in_range(length, 1, size);
        assert_true(code <= 0x10FFFF || code == TSR__CODE_INVALID);
        free(bytes);
      }
}

static void test_keys_from_data(void **state) {
  (void)state;
  sink to = {0};
  tsr__emitter e;
  tsr_report_options options = options_of(TSR_REPORT_JSON);
  tsr__emitter_init(&e, &options, sink_write, &to);
  tsr__emit_object(&e, NULL);
  tsr__emit_member(&e, (tsr_text){"a\"\n", 3}, tsr__count(1));
  tsr__emit_member(&e, (tsr_text){0}, tsr__count(2));
  tsr__emit_end(&e);
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_output(&to, "{\n  \"a\\\"\\n\": 1,\n  \"\": 2\n}\n");
}

static void test_lines_are_cleaned(void **state) {
  (void)state;
  sink to = {0};
  tsr__emitter e;
  tsr__emitter_init(&e, NULL, sink_write, &to);
  tsr__buffer_text(&e.scratch, "a\nb\033[0m");
  tsr__emit_line(&e, TSR__PLAIN, 1);
  tsr__emit_printf(&e, TSR__PLAIN, "%s", "c\rd");
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_output(&to, " a?b?[0m\nc?d\n");
}

static void test_shortening(void **state) {
  (void)state;
  static const struct {
    size_t columns;
    const char *expected;
  } cases[] = {{10, "0123456789"}, {9, "012...789"}, {8, "012...89"}, {4, "0..."},
               {3, "..."},         {1, "."},         {0, ""}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr__buffer out = {0};
    tsr__text_shorten(&out, tsr__text_of("0123456789"), 10, cases[i].columns);
    assert_int_equal(out.size, strlen(cases[i].expected));
    if (out.size) assert_memory_equal(out.data, cases[i].expected, out.size);
    tsr__buffer_release(&out);
  }
}

/* Two texts that differ where the usual cut hides it. */
static void test_shortening_shows_differences(void **state) {
  (void)state;
  static const struct {
    size_t columns, at;
    const char *expected;
  } cases[] = {
      {26, 0, "abcdefghijklmnopqrstuvwxyz"}, {16, 0, "abcdefg...uvwxyz"},
      {16, 2, "abcdefg...uvwxyz"},           {16, 10, "abcd...hijklm..."},
      {16, 24, "abcd...rstuvwxyz"},          {8, 10, "abc...yz"},
  };
  tsr_text text = tsr__text_of("abcdefghijklmnopqrstuvwxyz");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr__buffer out = {0};
    tsr__text_shorten_at(&out, text, 26, cases[i].columns, cases[i].at);
    tsr__buffer_append(&out, "", 1);
    assert_string_equal(out.data, cases[i].expected);
    tsr__buffer_release(&out);
  }
  assert_int_equal(tsr__text_difference(text, tsr__text_of("abcd")), 4);
  assert_int_equal(tsr__text_difference(tsr__text_of("\xC3\xA4 x"), tsr__text_of("\xC3\xA4 y")), 2);
}

/* Rows that differ stay different when they are cut; equal ones stay equal. */
static void test_cut_rows_stay_distinct(void **state) {
  (void)state;
  static const char *const texts[] = {"aaaaaaaaaaaaaaaaaaaaaaaaaa 1 zzzzzzzzzzzzzzzzzzzzzzzzzz",
                                      "aaaaaaaaaaaaaaaaaaaaaaaaaa 2 zzzzzzzzzzzzzzzzzzzzzzzzzz",
                                      "aaaaaaaaaaaaaaaaaaaaaaaaaa 3 zzzzzzzzzzzzzzzzzzzzzzzzzz",
                                      "aaaaaaaaaaaaaaaaaaaaaaaaaa 3 zzzzzzzzzzzzzzzzzzzzzzzzzz"};
  static const tsr__column columns[] = {{NULL, "name", TSR__ELASTIC}};
  sink to = {0};
  tsr__emitter e;
  tsr__emitter_init(&e, &(tsr_report_options){.width = 24}, sink_write, &to);
  tsr__emit_table(&e, NULL, columns, 1);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    tsr__emit_row(&e, (tsr__cell[]){tsr__string(texts[i])});
    tsr__emit_row_end(&e);
  }
  tsr__emit_table_end(&e);
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_output(&to, "  name\n"
                     "  aaaaaaaaaa...zzzzzzzzz\n"
                     "  aaaaa...aaa 2 zzzzz...\n"
                     "  aaaaa...aaa 3 zzzzz...\n"
                     "  aaaaa...aaa 3 zzzzz...\n");
}

static void test_paragraphs(void **state) {
  (void)state;
  sink to = {0};
  tsr__emitter e;
  tsr__emitter_init(&e, &(tsr_report_options){.width = 12}, sink_write, &to);
  tsr__buffer_text(&e.scratch, "short");
  tsr__emit_paragraph(&e, TSR__PLAIN, 0);
  tsr__buffer_text(&e.scratch, "twelve signs");
  tsr__emit_paragraph(&e, TSR__PLAIN, 0);
  tsr__buffer_text(&e.scratch, "one two three four overlong-word-here end");
  tsr__emit_paragraph(&e, TSR__VERDICT, 1);
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_output(
      &to, "short\ntwelve signs\n one two\n   three\n   four\n   overlong-word-here\n   end\n");
}

static const struct {
  const char *text;
  size_t columns;
  const char *expected;
} place_cases[] = {
    {"model.py:382 forward", 20, "model.py:382 forward"},
    {"model.py:382 forward", 19, "model.py:382 ..."},
    {"model.py:382 forward", 12, "model.py:382"},
    {"model.py:382 forward", 11, "...l.py:382"},
    {"model.py:382 forward", 4, "...2"},
    {"model.py:382 forward", 2, ".."},
    {"model.py:382 forward", 0, ""},
    {"model.py:382 training_step", 22, "model.py:382 tra...tep"},
    {"model.py:382 training_step", 20, "model.py:382 ..."},
    {"model.py:382 forward (aten::mul)", 31, "model.py:382 forward (mul)"},
    {"model.py:382 forward (aten::mul)", 25, "model.py:382 forward ..."},
    {"model.py:382 forward (aten::mul), from train.py:9", 47,
     "model.py:382 forward (mul), from train.py:9"},
    {"model.py:382 forward (aten::mul), from train.py:9", 42, "model.py:382 forward (mul) ..."},
    {"model.py:382 forward (aten::mul), from train.py:9", 29, "model.py:382 forward ..."},
    {"model.py:382 forward (aten::mul), from train.py:9", 23, "model.py:382 ..."},
    {"model.py:39 forward > einsum.py:291 einsum (aten::einsum)", 51,
     "model.py:39 forward > einsum.py:291 einsum (einsum)"},
    {"model.py:39 forward > einsum.py:291 einsum (aten::einsum)", 50,
     "model.py:39 forward (einsum) ..."},
    {"train.py:31 training_step > linear.py:125 forward", 48, "train.py:31 training_step ..."},
    {"train.py:31 training_step > linear.py:125 forward", 28, "train.py:31 train...step ..."},
    {"train.py:31 training_step > linear.py:125 forward", 18, "train.py:31 ..."},
    {"train.py:31 training_step > linear.py:125 forward", 13, "train.py:31"},
    {"a.py:1 f > b.py:2 g > c.py:3 h > d.py:4 i > e.py:5 jjjjjjjjjj", 52,
     "a.py:1 f > b.py:2 g > c.py:3 h > d.py:4 i ..."},
    {"    src/a/model.py:382 forward", 28, "    .../model.py:382 forward"},
    {"    src/a/model.py:382 forward", 24, "    .../model.py:382 ..."},
    {"    src/a/model.py:382 forward", 18, "    model.py:382"},
    {"    src/a/model.py:382 forward", 14, "    ....py:382"},
    {"work/b/c/model.py:382 forward", 27, ".../c/model.py:382 forward"},
    {"AddmmBackward0 (autograd)", 12, "Addmm...rad)"},
    {"parameter 1.58 GiB, workspace 16.25 MiB, unknown 5 B", 51,
     "parameter 1.58 GiB, workspace 16.25 MiB, ..."},
    {"parameter 1.58 GiB, workspace 16.25 MiB, unknown 5 B", 22, "parameter ...known 5 B"},
    {"10:30 at noon, a stage", 12, "10:30...tage"},
    {"time: 12 of a stage", 10, "time...age"},
    {"\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4.py:7 \xC3\xA9t\xC3\xA9\xC3\xA9t\xC3\xA9", 14,
     "\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4.py:7 ..."},
    {" > ", 2, " ."},
    {":1", 1, "."},
};

/* The callers go first, the file and its line last. */
static void test_places_are_shortened(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof place_cases / sizeof *place_cases; i++) {
    tsr__buffer clean = {0}, out = {0};
    size_t width = tsr__text_clean(&clean, tsr__text_of(place_cases[i].text));
    size_t taken = tsr__place_shorten(&out, (tsr_text){clean.data, clean.size}, width,
                                      place_cases[i].columns, false);
    tsr__buffer_append(&out, "", 1);
    assert_string_equal(out.data, place_cases[i].expected);
    tsr__buffer again = {0};
    assert_int_equal(taken, tsr__text_clean(&again, tsr__text_of(out.data)));
    assert_true(taken <= place_cases[i].columns);
    tsr__buffer_release(&again);
    tsr__buffer_release(&clean);
    tsr__buffer_release(&out);
  }
}

/* A chain of calls keeps its lines longer than its names. */
static void test_chains_are_shortened(void **state) {
  (void)state;
  static const struct {
    size_t columns;
    const char *expected;
  } cases[] = {
      {59, "source/train.py:31 training_step > source/lib/m.py:5 step"},
      {56, "source/train.py:31 training_step > .../lib/m.py:5 step"},
      {50, ".../train.py:31 training_step > .../m.py:5 step"},
      {44, ".../train.py:31 trai...tep > .../m.py:5 step"},
      {38, ".../train.py:31 > .../m.py:5"},
      {24, ".../train.py:31 ..."},
  };
  tsr_text text = tsr__text_of("source/train.py:31 training_step > source/lib/m.py:5 step");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr__buffer out = {0};
    size_t taken = tsr__place_shorten(&out, text, text.size_bytes, cases[i].columns, true);
    assert_int_equal(taken, out.size);
    tsr__buffer_append(&out, "", 1);
    assert_string_equal(out.data, cases[i].expected);
    tsr__buffer_release(&out);
  }
  tsr__buffer windows = {0};
  text = tsr__text_of("source\\lib\\train.py:31 training_step");
  (void)tsr__place_shorten(&windows, text, text.size_bytes, 34, true);
  tsr__buffer_append(&windows, "", 1);
  assert_string_equal(windows.data, "...\\lib\\train.py:31 training_step");
  tsr__buffer_release(&windows);
}

static void assert_rows(const char *const *texts, size_t count, uint32_t width,
                        const char *expected) {
  static const tsr__column columns[] = {{NULL, "name", TSR__ELASTIC}};
  sink to = {0};
  tsr__emitter e;
  tsr__emitter_init(&e, &(tsr_report_options){.width = width}, sink_write, &to);
  tsr__emit_table(&e, NULL, columns, 1);
  for (size_t i = 0; i < count; i++) {
    tsr__emit_row(&e, (tsr__cell[]){tsr__string(texts[i])});
    tsr__emit_row_end(&e);
  }
  tsr__emit_table_end(&e);
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_output(&to, expected);
}

/* Of rows that would read alike, each shows the caller or the operation in which it differs. */
static void test_cut_rows_show_what_differs(void **state) {
  static const char *const texts[] = {
      "model.py:382 forward (aten::multiply), from trainer.py:9",
      "model.py:382 forward (aten::multiply), from trainer.py:10, from train.py:2",
      "model.py:382 forward (aten::divide), from trainer.py:9",
      "model.py:382 forward > linear.py:7 call (aten::multiply)"};
  (void)state;
  assert_rows(texts, sizeof texts / sizeof *texts, 28,
              "  name\n"
              "  model.py:382 forward ...\n"
              "  model.py:382, from...py:10\n"
              "  model.py:382 (divide)\n"
              "  model.py:382 > linear.py:7\n");
}

/* If there is no room for the line that most have in common, the other one is shown alone, with the operation for
 * as long as that fits; in the first row as in the others, and in those that the operation would tell apart. */
static void test_cut_rows_show_the_line_that_differs(void **state) {
  static const char *const operations[] = {
      "train.py:57 train > modeling_llama.py:191 eager_attention_forward (aten::_softmax)",
      "train.py:57 train > modeling_llama.py:155 forward (aten::mul), via module.py:1773",
      "train.py:9 main > modeling_llama.py:155 forward (aten::mul)",
      "train.py:57 train > modeling_llama.py:191 eager_attention_forward (aten::_to_copy)"};
  static const char *const texts[] = {"train.py:57 train > modeling_gpt2.py:1092 forward",
                                      "train.py:57 train > modeling_gpt2.py:412 forward",
                                      "train.py:57 train > lib/short.py:4 go"};
  (void)state;
  assert_rows(texts, sizeof texts / sizeof *texts, 28,
              "  name\n"
              "  > modeling_gpt2.py:1092\n"
              "  > modeling_gpt2.py:412\n"
              "  > lib/short.py:4 go\n");
  assert_rows(operations, sizeof operations / sizeof *operations, 52,
              "  name\n"
              "  > modeling_llama.py:191 eager_...orward (_softmax)\n"
              "  > modeling_llama.py:155 forward (mul) ...\n"
              "  train.py:9 main (mul) ...\n"
              "  > modeling_llama.py:191 eager_...orward (_to_copy)\n");
}

static void assert_table(uint32_t width, bool is_last, const char *expected) {
  static const tsr__column last[] = {
      {NULL, "bytes", TSR__RIGHT}, {NULL, "category", TSR__LEFT}, {NULL, "line", TSR__ELASTIC}};
  static const tsr__column first[] = {
      {NULL, "line", TSR__ELASTIC}, {NULL, "bytes", TSR__RIGHT}, {NULL, "category", TSR__LEFT}};
  sink to = {0};
  tsr__emitter e;
  tsr_report_options options = {.width = width};
  tsr__cell bytes = tsr__bytes(512), category = tsr__string("optimizer_state");
  tsr__cell line = tsr__string("a_long_name_of_a_file.py:123 a_long_name_of_a_function");
  tsr__emitter_init(&e, &options, sink_write, &to);
  tsr__emit_table(&e, NULL, is_last ? last : first, 3);
  if (is_last)
    tsr__emit_row(&e, (tsr__cell[]){bytes, category, line});
  else
    tsr__emit_row(&e, (tsr__cell[]){line, bytes, category});
  tsr__emit_row_end(&e);
  tsr__emit_table_end(&e);
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_output(&to, expected);
}

/* Without a width nothing is cut; where too little would be left of a name, it gets a line. */
static void test_tables_give_way(void **state) {
  (void)state;
  assert_table(
      0, true,
      "  bytes  category         line\n"
      "  512 B  optimizer_state  a_long_name_of_a_file.py:123 a_long_name_of_a_function\n");
  assert_table(64, true,
               "  bytes  category         line\n"
               "  512 B  optimizer_state  a_long_name_of_a_file.py:123 a_l...ion\n");
  assert_table(52, true,
               "  bytes  category         line\n"
               "  512 B  optimizer_state  ...g_name_of_a_file.py:123\n");
  assert_table(51, true,
               "  bytes  category\n"
               "     line\n"
               "  512 B  optimizer_state\n"
               "     a_long_name_of_a_file.py:123 a_long_...unction\n");
  assert_table(40, true,
               "  bytes  category\n"
               "     line\n"
               "  512 B  optimizer_state\n"
               "     a_long_name_of_a_file.py:123 ...\n");
  assert_table(40, false,
               "  line\n"
               "     bytes  category\n"
               "  a_long_name_of_a_file.py:123 ...\n"
               "     512 B  optimizer_state\n");
}

static void assert_spare(uint32_t width, const char *name, const char *expected) {
  static const tsr__column columns[] = {{NULL, "bytes", TSR__RIGHT},
                                        {NULL, "times", TSR__SPARE},
                                        {NULL, "name", TSR__ELASTIC},
                                        {NULL, "life", TSR__SPARE}};
  sink to = {0};
  tsr__emitter e;
  tsr_report_options options = {.width = width};
  tsr__emitter_init(&e, &options, sink_write, &to);
  tsr__emit_table(&e, NULL, columns, 4);
  tsr__emit_row(&e, (tsr__cell[]){tsr__bytes(512), tsr__count(12345), tsr__string(name),
                                  tsr__string("1.5 ms")});
  tsr__emit_row_end(&e);
  tsr__emit_table_end(&e);
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_output(&to, expected);
}

/* Spare columns go, the last first, before a name becomes too short; a name on its own line leaves room for them. */
static void test_spare_columns_are_left_out(void **state) {
  (void)state;
  assert_spare(0, "gradient",
               "  bytes   times  name        life\n  512 B  12,345  gradient  1.5 ms\n");
  assert_spare(33, "gradient",
               "  bytes   times  name        life\n  512 B  12,345  gradient  1.5 ms\n");
  assert_spare(32, "gradient", "  bytes   times  name\n  512 B  12,345  gradient\n");
  assert_spare(24, "gradient", "  bytes  name\n  512 B  gradient\n");
  assert_spare(30, "a_long_name_of_a_file.py:123 call",
               "  bytes   times    life\n     name\n  512 B  12,345  1.5 ms\n"
               "     ..._name_of_a_file.py:123\n");
}

static void assert_wrapped(uint32_t width, const char *expected) {
  static const tsr__column columns[] = {
      {NULL, "what", TSR__WRAPPED}, {NULL, "count", TSR__RIGHT}, {NULL, "for", TSR__WRAPPED}};
  sink to = {0};
  tsr__emitter e;
  tsr_report_options options = {.width = width};
  tsr__emitter_init(&e, &options, sink_write, &to);
  tsr__emit_table(&e, NULL, columns, 3);
  tsr__emit_row(
      &e, (tsr__cell[]){tsr__string("one:1,two:2"), tsr__count(7), tsr__string("4.75 GiB of it")});
  tsr__emit_row_end(&e);
  tsr__emit_row(&e, (tsr__cell[]){tsr__string("three"), tsr__count(8), tsr__string("")});
  tsr__emit_row_end(&e);
  tsr__emit_table_end(&e);
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_output(&to, expected);
}

/* The widest column is narrowed first, down to its longest word; a size and its unit are one word. */
static void test_words_go_on_below(void **state) {
  (void)state;
  assert_wrapped(36, "  what         count  for\n"
                     "  one:1,two:2      7  4.75 GiB of it\n"
                     "  three            8\n");
  assert_wrapped(32, "  what         count  for\n"
                     "  one:1,two:2      7  4.75 GiB\n"
                     "                      of it\n"
                     "  three            8\n");
  assert_wrapped(10, "  what    count  for\n"
                     "  one:1,      7  4.75 GiB\n"
                     "  two:2          of it\n"
                     "  three       8\n");
}

/* A field's text continues below itself. */
static void test_fields_go_on_below(void **state) {
  (void)state;
  sink to = {0};
  tsr__emitter e;
  tsr_report_options options = {.width = 24};
  tsr__emitter_init(&e, &options, sink_write, &to);
  tsr__emit_field(&e, NULL, "peak", tsr__string("512 B in step 3, at event 7"));
  tsr__emit_field(&e, NULL, "events", tsr__count(12));
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_output(&to, "  peak    512 B in step\n"
                     "          3, at event 7\n"
                     "  events  12\n");
}

/* ---- Large output and failures ---- */

static int emit_much(tsr_report_format format, sink *to, tsr_error *error) {
  tsr__emitter e;
  tsr_report_options options = options_of(format);
  tsr__emitter_init(&e, &options, sink_write, to);
  tsr__emit_array(&e, NULL);
  for (size_t i = 0; i < 20000; i++) {
    tsr__emit_object(&e, NULL);
    tsr__emit_field(&e, "i", NULL, tsr__count(i));
    tsr__emit_end(&e);
    tsr__emit_printf(&e, TSR__PLAIN, "line %zu of what is a lot of text", i);
  }
  tsr__emit_end(&e);
  return tsr__emitter_finish(&e, error);
}

/* Each event is a line of its own that its reader sees at once, as JSON or as text. */
static void test_streams_of_events(void **state) {
  static const char *const expected[] = {
      "step 1\nstep 2\n",
      "{\"event\":\"step\",\"loss\":0.5,\"rows\":[{\"row\":1}],\"plan\":{ }}\n"
      "{\"event\":\"step\",\"loss\":null,\"rows\":[{\"row\":2}],\"plan\":{ }}\n"};
  (void)state;
  for (int json = 0; json < 2; json++) {
    sink to = {.calls = 0};
    tsr_report_options options = options_of(json ? TSR_REPORT_JSON : TSR_REPORT_TEXT);
    tsr__emitter e;
    tsr__emitter_init(&e, &options, sink_write, &to);
    for (unsigned i = 1; i <= 2; i++) {
      tsr__emit_json_line(&e, NULL);
      tsr__emit_field(&e, "event", NULL, tsr__string("step"));
      tsr__emit_printf(&e, TSR__PLAIN, "step %u", i);
      tsr__emit_field(&e, "loss", NULL, tsr__real(i == 1 ? 0.5 : (double)NAN));
      tsr__emit_array(&e, "rows");
      tsr__emit_object(&e, NULL);
      tsr__emit_field(&e, "row", NULL, tsr__count(i));
      tsr__emit_end(&e);
      tsr__emit_end(&e);
      tsr__emit_json(&e, "plan", (tsr_text){"{ }", 3});
      tsr__emit_end(&e);
      assert_true(tsr__emitter_flush(&e));
      assert_int_equal(to.calls, i);
    }
    assert_int_equal(tsr__emitter_finish(&e, NULL), 0);
    assert_output(&to, expected[json]);
  }
}

static void test_reals(void **state) {
  static const struct {
    tsr__cell value;
    const char *json;
  } all[] = {{{.kind = TSR__CELL_REAL, .real = 2}, "2.0"},
             {{.kind = TSR__CELL_REAL, .real = 0.1}, "0.10000000000000001"},
             {{.kind = TSR__CELL_REAL, .real = 1e-7}, "9.9999999999999995e-8"},
             {{.kind = TSR__CELL_REAL, .real = 1e300}, "1.0000000000000001e300"},
             {{.kind = TSR__CELL_REAL, .real = -INFINITY}, "null"},
             {{.kind = TSR__CELL_REAL, .real = 2, .format = "%.3f"}, "2.000"},
             {{.kind = TSR__CELL_REAL, .real = 1e-7, .format = "%.9g"}, "1e-07"}};
  (void)state;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    sink to = {.calls = 0};
    char line[64];
    tsr_report_options options = options_of(TSR_REPORT_JSON);
    tsr__emitter e;
    tsr__emitter_init(&e, &options, sink_write, &to);
    tsr__emit_json_line(&e, NULL);
    tsr__emit_field(&e, "r", NULL, all[i].value);
    tsr__emit_end(&e);
    assert_int_equal(tsr__emitter_finish(&e, NULL), 0);
    (void)snprintf(line, sizeof line, "{\"r\":%s}\n", all[i].json);
    assert_output(&to, line);
  }
}

static void test_ruled_tables(void **state) {
  static const tsr__column columns[] = {{NULL, "what", TSR__LEFT}, {NULL, "bytes", TSR__RIGHT}};
  static const size_t widths[] = {6, 8};
  tsr_report_options options = options_of(TSR_REPORT_TEXT);
  sink to = {.calls = 0};
  tsr__emitter e;
  (void)state;
  tsr__emitter_init(&e, &options, sink_write, &to);
  tsr__emit_ruled_table(&e, NULL, columns, widths, 2);
  tsr__emit_row(&e, (tsr__cell[]){tsr__string("a"), tsr__bytes(1)});
  tsr__emit_row_end(&e);
  tsr__emit_table_end(&e);
  tsr__emit_field(&e, NULL, "title", tsr__count(1));
  assert_int_equal(tsr__emitter_finish(&e, NULL), 0);
  assert_output(&to, "  what      bytes\n  a           1 B\n  title  1\n");
}

static void test_output_goes_out_in_pieces(void **state) {
  (void)state;
  for (int format = TSR_REPORT_TEXT; format <= TSR_REPORT_JSON; format++) {
    sink to = {0};
    assert_int_equal(emit_much((tsr_report_format)format, &to, NULL), TSR_OK);
    assert_true(to.calls > 5);
    assert_in_range(to.largest, 64 << 10, 66 << 10);
    tsr__buffer_release(&to.out);
  }
}

static void test_long_strings_go_out_in_pieces(void **state) {
  (void)state;
  const size_t size = (size_t)1 << 20;
  sink to = {0};
  tsr__emitter e;
  tsr_report_options options = options_of(TSR_REPORT_JSON);
  char *controls = malloc(size);
  assert_non_null(controls);
  memset(controls, 1, size);
  tsr__emitter_init(&e, &options, sink_write, &to);
  tsr__emit_array(&e, NULL);
  tsr__emit_object(&e, NULL);
  tsr__emit_member(&e, tsr__text_of("s"), tsr__text((tsr_text){controls, size}));
  tsr__emit_end(&e);
  tsr__emit_end(&e);
  assert_int_equal(tsr__emitter_finish(&e, NULL), TSR_OK);
  assert_in_range(to.largest, 64 << 10, 96 << 10);
  assert_int_equal(to.out.size, 6 * size + strlen("[\n  {\n    \"s\": \"\"\n  }\n]\n"));
  tsr__buffer_release(&to.out);
  free(controls);
}

static void test_failed_write_is_reported_once(void **state) {
  (void)state;
  for (int format = TSR_REPORT_TEXT; format <= TSR_REPORT_JSON; format++)
    for (size_t fail_at = 1; fail_at <= 3; fail_at++) {
      sink to = {.fail_at = fail_at};
      tsr_error error = {0};
      assert_int_equal(emit_much((tsr_report_format)format, &to, &error), TSR_ERROR_WRITE);
      assert_int_equal(error.status, TSR_ERROR_WRITE);
      assert_int_equal(error.offset, TSR_OFFSET_NONE);
      assert_string_equal(error.message, "the report could not be written");
      assert_int_equal(to.calls, fail_at);
      tsr__buffer_release(&to.out);
    }
}

/* Memory that runs out in any of the emitter's buffers ends in TSR_ERROR_MEMORY. */
static void test_out_of_memory(void **state) {
  (void)state;
  for (int which = 0; which < 3; which++) {
    sink to = {0};
    tsr_error error = {0};
    tsr__emitter e;
    tsr__emitter_init(&e, NULL, sink_write, &to);
    tsr__emit_printf(&e, TSR__PLAIN, "first");
    if (which == 0) e.out.failed = true;
    if (which == 1) e.scratch.failed = true;
    if (which == 2) e.cell_text.failed = true;
    describe(&e);
    assert_int_equal(tsr__emitter_finish(&e, &error), TSR_ERROR_MEMORY);
    assert_int_equal(error.status, TSR_ERROR_MEMORY);
    assert_int_equal(to.calls, 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_json_face),
      cmocka_unit_test(test_text_face),
      cmocka_unit_test(test_colors),
      cmocka_unit_test(test_table_keeps_to_the_width),
      cmocka_unit_test(test_words_go_on_below),
      cmocka_unit_test(test_fields_go_on_below),
      cmocka_unit_test(test_columns_are_characters),
      cmocka_unit_test(test_empty_tables),
      cmocka_unit_test(test_cells_may_all_be_empty),
      cmocka_unit_test(test_strings_are_made_safe),
      cmocka_unit_test(test_every_short_sequence_decodes),
      cmocka_unit_test(test_keys_from_data),
      cmocka_unit_test(test_lines_are_cleaned),
      cmocka_unit_test(test_shortening),
      cmocka_unit_test(test_shortening_shows_differences),
      cmocka_unit_test(test_cut_rows_stay_distinct),
      cmocka_unit_test(test_paragraphs),
      cmocka_unit_test(test_places_are_shortened),
      cmocka_unit_test(test_chains_are_shortened),
      cmocka_unit_test(test_cut_rows_show_what_differs),
      cmocka_unit_test(test_cut_rows_show_the_line_that_differs),
      cmocka_unit_test(test_tables_give_way),
      cmocka_unit_test(test_spare_columns_are_left_out),
      cmocka_unit_test(test_streams_of_events),
      cmocka_unit_test(test_reals),
      cmocka_unit_test(test_ruled_tables),
      cmocka_unit_test(test_output_goes_out_in_pieces),
      cmocka_unit_test(test_long_strings_go_out_in_pieces),
      cmocka_unit_test(test_failed_write_is_reported_once),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
