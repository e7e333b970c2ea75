/* Tests of snapshot/json.h. */
#include "formats/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "snapshot_support.h"

/* `chunk` bytes at a time; 0: all at once. */
static int read_chunks(const char *text, size_t size, size_t chunk, const tsr_limits *limits,
                       tsr_snapshot **out, tsr_error *error) {
  return read_in_chunks(tsr__json_read, text, size, chunk, limits, out, error);
}

static tsr_snapshot *read_text(const char *text) {
  tsr_snapshot *snapshot = NULL;
  tsr_error error = {0};
  int status = read_chunks(text, strlen(text), 0, NULL, &snapshot, &error);
  if (status) print_error("%s\n%s\n", text, error.message);
  assert_int_equal(status, 0);
  return snapshot;
}

/* ---- single values ---- */

/* Read `text` as the value of a key that no rule names. */
static tsr_snapshot *read_value(const char *text, tsr__value *value) {
  char whole[512];
  int size = snprintf(whole, sizeof whole, "{\"segments\": [], \"loose\": %s}", text);
  assert_true(size > 0 && (size_t)size < sizeof whole);
  tsr_snapshot *snapshot = read_text(whole);
  assert_int_equal(snapshot->extras.count, 1);
  *value = snapshot->extras.items[0].value;
  return snapshot;
}

static void integers_are_exact(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint32_t tag;
    uint64_t bits;
  } cases[] = {
      {"0", TSR__INT, 0},
      {"-0", TSR__INT, 0},
      {"7", TSR__INT, 7},
      {"-7", TSR__INT, (uint64_t)-7},
      {"999999999999999999", TSR__INT, UINT64_C(999999999999999999)},
      {"1000000000000000000", TSR__INT, UINT64_C(1000000000000000000)},
      {"9223372036854775807", TSR__INT, INT64_MAX},
      {"9223372036854775808", TSR__UINT, (uint64_t)INT64_MAX + 1},
      {"18446744073709551615", TSR__UINT, UINT64_MAX},
      {"18446744073709551616", TSR__BIG, 0},
      {"99999999999999999999999999", TSR__BIG, 0},
      {"-9223372036854775807", TSR__INT, (uint64_t)-INT64_MAX},
      {"-9223372036854775808", TSR__INT, (uint64_t)INT64_MIN},
      {"-9223372036854775809", TSR__BIG, 0},
      {"-18446744073709551616", TSR__BIG, 0},
      {"true", TSR__BOOL, 1},
      {"false", TSR__BOOL, 0},
      {"null", TSR__NULL, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr__value value;
    tsr_snapshot *snapshot = read_value(cases[i].text, &value);
    assert_int_equal(value.tag, cases[i].tag);
    assert_true(value.u == cases[i].bits);
    if (value.tag == TSR__BIG) {
      tsr_text digits = tsr_snapshot_string(snapshot, value.id);
      assert_int_equal(digits.size_bytes, strlen(cases[i].text));
      assert_memory_equal(digits.data, cases[i].text, digits.size_bytes);
    }
    tsr_snapshot_free(snapshot);
  }
}

static void floats_are_nearest(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double value;
  } cases[] = {
      {"0.5", 0.5},
      {"-2.25", -2.25},
      {"0.1", 0.1},
      {"1e3", 1000},
      {"1E+3", 1000},
      {"25e-1", 2.5},
      {"1.7976931348623157e308", 1.7976931348623157e308},
      {"1e400", (double)INFINITY},
      {"-1e400", -(double)INFINITY},
      {"1e-400", 0},
      {"0.30000000000000004", 0.30000000000000004},
      {"123456789012345678901234567890.0", 123456789012345678901234567890.0},
      {"Infinity", (double)INFINITY},
      {"-Infinity", -(double)INFINITY},
  };
  tsr__value value;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_snapshot *snapshot = read_value(cases[i].text, &value);
    assert_int_equal(value.tag, TSR__FLOAT);
    assert_true(value.f == cases[i].value);
    tsr_snapshot_free(snapshot);
  }
  tsr_snapshot_free(read_value("-0.0", &value));
  assert_true(value.tag == TSR__FLOAT && value.f == 0 && signbit(value.f));
  tsr_snapshot_free(read_value("NaN", &value));
  assert_true(value.tag == TSR__FLOAT && isnan(value.f));
}

static void strings_lose_their_escapes(void **state) {
  (void)state;
  static const struct {
    const char *text, *expected;
  } cases[] = {
      {"\"\"", ""},
      {"\"plain\"", "plain"},
      {"\"exactly8\"", "exactly8"},
      {"\"a quote far behind the first word: \\\"\"", "a quote far behind the first word: \""},
      {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
      {"\"\\u0041\\u00e9\\u20AC\\uFFFF\"", "A\xc3\xa9\xe2\x82\xac\xef\xbf\xbf"},
      {"\"\\ud83d\\ude00!\"", "\xf0\x9f\x98\x80!"},
      {"\"\\uDBFF\\uDFFF\"", "\xf4\x8f\xbf\xbf"},
      {"\"\\ud83d\"", "\xed\xa0\xbd"},
      {"\"\\ud83dx\"", "\xed\xa0\xbdx"},
      {"\"\\ude00\\ud83d\"", "\xed\xb8\x80\xed\xa0\xbd"},
      {"\"\\ud83d\\ud83d\\ude00\"", "\xed\xa0\xbd\xf0\x9f\x98\x80"},
      {"\"\\ud83d\\n\"", "\xed\xa0\xbd\n"},
      {"\"\xc3\xa9 \xff\x80 \x7f\"", "\xc3\xa9 \xff\x80 \x7f"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr__value value;
    tsr_snapshot *snapshot = read_value(cases[i].text, &value);
    assert_int_equal(value.tag, TSR__STRING);
    assert_text(snapshot, value.id, cases[i].expected);
    tsr_snapshot_free(snapshot);
  }
  tsr__value value;
  tsr_snapshot *snapshot = read_value("\"a\\u0000b\"", &value);
  tsr_text text = tsr_snapshot_string(snapshot, value.id);
  assert_int_equal(text.size_bytes, 3);
  assert_memory_equal(text.data, "a\0b", 3);
  tsr_snapshot_free(snapshot);
}

static void containers_are_kept(void **state) {
  (void)state;
  tsr__value value;
  tsr_snapshot *snapshot = read_value("[ ] ", &value);
  assert_int_equal(value.tag, TSR__LOOSE);
  assert_int_equal(snapshot->loose.items[value.id].count, 0);
  tsr_snapshot_free(snapshot);
  snapshot = read_value("{\"a\" : [1,\t{}, [[2]]\r\n] , \"b\":null}", &value);
  tsr__loose dict = snapshot->loose.items[value.id];
  assert_int_equal(dict.kind, TSR__DICT);
  assert_int_equal(dict.count, 4);
  tsr__value list = snapshot->loose_values.items[dict.first + 1];
  assert_int_equal(list.tag, TSR__LOOSE);
  assert_int_equal(snapshot->loose.items[list.id].kind, TSR__LIST);
  assert_int_equal(snapshot->loose.items[list.id].count, 3);
  tsr_snapshot_free(snapshot);
}

/* ---- whole snapshots ---- */

#define FRAMES_A                                                              \
  "[{\"name\": \"empty\", \"filename\": \"a.py\", \"line\""                   \
  ": 3}, {\"name\": \"main]\", \"filename\": \"\\\"b\\u00e9.py\", \"line\": " \
  "18446744073709551615}]"
#define FRAMES_B "[{\"name\": \"empty\", \"filename\": \"a.py\", \"line\": 4}]"
#define EVENT(action, addr, frames)                                                        \
  "{\"action\": \"" action "\", \"addr\": " addr ", \"size\": 512, \"stream\": 0, "        \
  "\"time_us\": 1783874422288288, \"compile_context\": \"N/A\", \"user_metadata\": \"\", " \
  "\"pool_id\": [0, 1], \"frames\": " frames "}"

static const char small[] =
    "{\"segments\": [{\"device\": 0, \"address\": 4096, \"total_size\": 2097152, "
    "\"segment_type\": \"small\", \"segment_pool_id\": [0, 0], \"is_expandable\": false, "
    "\"frames\": [], \"blocks\": ["
    "{\"address\": 4096, \"size\": 512, \"requested_size\": 500, \"state\": \"active_allocated\", "
    "\"frames\": " FRAMES_A "}, {\"address\": 4608, \"size\": 2096640, \"requested_size\": 0, "
    "\"state\": \"inactive\", \"frames\": []}]}],\n"
    "\"device_traces\": [[], [" EVENT("alloc", "4096", FRAMES_A) ", " //
    EVENT("free_requested", "4096", FRAMES_B) ", "                    //
    EVENT("alloc", "4096", FRAMES_A) ", "                             //
    EVENT("free_requested", "4096", FRAMES_B) ", "                    //
    EVENT("alloc", "12297829382473034410",
          "[]") ", " //
                "{\"action\": \"oom\", \"device_free\": 77, \"size\": 1, \"stream\": 9}]],\n"
                "\"allocator_settings\": {\"max_split_size\": -1, "
                "\"garbage_collection_threshold\": 0.8}, "
                "\"external_annotations\": [{\"name\": \"step\", \"stage\": \"START\", \"device\": "
                "0, "
                "\"time_us\": 5}]}\n";

static void reads_a_snapshot(void **state) {
  (void)state;
  tsr_snapshot *snapshot = read_text(small);
  tsr_events events = tsr_snapshot_events(snapshot, 1);
  assert_int_equal(events.count, 6);
  assert_int_equal(tsr_snapshot_events(snapshot, 0).count, 0);
  assert_int_equal(events.action[1], TSR_ACTION_FREE_REQUESTED);
  assert_int_equal(events.addr[0], 4096);
  assert_true(events.addr[4] == UINT64_C(12297829382473034410));
  assert_int_equal(events.addr[5], 77);
  assert_int_equal(events.time_us[0], INT64_C(1783874422288288));
  assert_int_equal(events.stack[0], events.stack[2]);
  assert_int_equal(events.stack[1], events.stack[3]);
  assert_int_equal(tsr_snapshot_stack(snapshot, events.stack[4]).depth, 0);
  assert_int_equal(events.stack[5], TSR_NONE);
  assert_int_equal(tsr_snapshot_stream(snapshot, tsr_id_at(events.stream, 5)), 9);
  assert_int_equal(tsr_snapshot_pool(snapshot, tsr_id_at(events.pool, 0)).second, 1);

  tsr_stack stack = tsr_snapshot_stack(snapshot, events.stack[0]);
  assert_int_equal(stack.depth, 2);
  tsr_frame frame = tsr_snapshot_frame(snapshot, stack.frames[1]);
  assert_text(snapshot, frame.name, "main]");
  assert_text(snapshot, frame.file, "\"b\xc3\xa9.py");
  assert_true(frame.line == TSR_LINE_UNKNOWN);

  size_t count;
  const tsr_block *blocks = tsr_snapshot_blocks(snapshot, &count);
  assert_int_equal(count, 2);
  assert_int_equal(blocks[0].stack, events.stack[0]);
  const tsr_segment *segments = tsr_snapshot_segments(snapshot, &count);
  assert_int_equal(count, 1);
  assert_int_equal(segments[0].block_count, 2);
  assert_true(tsr_snapshot_annotations(snapshot, &count)->is_start);
  tsr_snapshot_warnings(snapshot, &count);
  assert_int_equal(count, 0);
  tsr_snapshot_free(snapshot);
}

/* Values of every kind, cut everywhere by a window that begins with a few bytes. */
static void any_window_reads_the_same(void **state) {
  (void)state;
  static const char loose[] =
      " {\"segments\": [ ], \"x\": [1, -2, 3.5e1 , true, false, null, NaN, -Infinity, Infinity, "
      "12345678901234567890123, \"\\ud83d\\ude00 \\n\\\\\", \"\", {\"a\": {}}, [[]], 0]} ";
  const char *texts[] = {small, loose};
  for (size_t i = 0; i < 2; i++) {
    tsr_snapshot *whole = read_text(texts[i]);
    for (size_t chunk = 1; chunk <= 7; chunk++) {
      tsr_snapshot *snapshot = NULL;
      assert_int_equal(read_chunks(texts[i], strlen(texts[i]), chunk, NULL, &snapshot, NULL), 0);
      assert_same(whole, snapshot);
      tsr_snapshot_free(snapshot);
    }
    tsr_snapshot_free(whole);
  }
}

/* More text than one window holds: stacks are recognised, and read again where they are cut. */
static void long_traces_repeat_their_stacks(void **state) {
  (void)state;
  enum { EVENTS = 6000 };
  tsr__buffer text = {0};
  tsr__buffer_text(&text, "{\"device_traces\": [[");
  for (size_t i = 0; i < EVENTS; i++) {
    if (i) tsr__buffer_text(&text, ", ");
    tsr__buffer_text(&text, i % 3 ? EVENT("alloc", "4096", FRAMES_A)
                                  : EVENT("free_requested", "4096", FRAMES_B));
  }
  tsr__buffer_text(&text, "]]}");
  assert_false(text.failed);
  const size_t chunks[] = {0, 1000, 4096, 1 << 20};
  for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
    tsr_snapshot *snapshot = NULL;
    assert_int_equal(read_chunks(text.data, text.size, chunks[k], NULL, &snapshot, NULL), 0);
    tsr_events events = tsr_snapshot_events(snapshot, 0);
    assert_int_equal(events.count, EVENTS);
    assert_int_equal(tsr_snapshot_stack_count(snapshot), 2);
    for (size_t i = 0; i < EVENTS; i++)
      assert_int_equal(tsr_snapshot_stack(snapshot, events.stack[i]).depth, i % 3 ? 2 : 1);
    tsr_snapshot_free(snapshot);
  }
  tsr__buffer_release(&text);
}

/* The same list twice under "frames" counts twice where it is no stack, or an odd one. */
static void odd_frames_are_not_remembered(void **state) {
  (void)state;
  static const char odd[] =
      "{\"device_traces\": [[{\"action\": \"alloc\", \"frames\": [{\"name\": \"f\"}, 7, \"g\"]}, "
      "{\"action\": \"alloc\", \"frames\": [{\"name\": \"f\"}, 7, \"g\"]}, "
      "{\"action\": \"alloc\", \"frames\": [{\"frames\": [{\"filename\": \"a\"}]}]}, "
      "{\"action\": \"alloc\", \"frames\": {\"a\": [[]]}}, "
      "{\"action\": \"alloc\", \"frames\": [{\"filename\": \"a\", \"odd\": 1}]}, "
      "{\"action\": \"alloc\", \"frames\": [{\"filename\": \"a\", \"odd\": 1}]}]]}";
  tsr_snapshot *snapshot = read_text(odd);
  tsr_events events = tsr_snapshot_events(snapshot, 0);
  assert_int_equal(events.count, 6);
  assert_int_equal(warned(snapshot, "frames-malformed"), 6);
  assert_int_equal(warned(snapshot, "keys-unknown"), 2);
  assert_int_equal(events.stack[4], events.stack[5]);
  assert_int_equal(tsr_snapshot_stack(snapshot, events.stack[1]).depth, 1);
  tsr_snapshot_free(snapshot);
}

/* Containers in a stack that are no frames do not pile up: room for a few is enough. */
static void unused_containers_are_let_go(void **state) {
  (void)state;
  enum { EVENTS = 1000 };
  tsr__buffer text = {0};
  tsr__buffer_text(&text, "{\"device_traces\": [[");
  for (int i = 0; i < EVENTS; i++)
    tsr__buffer_printf(&text, "%s{\"action\": \"alloc\", \"frames\": [{\"x\": [%d]}, [[]]]}",
                       i ? ", " : "", i);
  tsr__buffer_text(&text, "]]}");
  assert_false(text.failed);
  tsr_limits limits = {.loose_values = 32};
  tsr_snapshot *snapshot = NULL;
  tsr_error error = {0};
  assert_int_equal(read_chunks(text.data, text.size, 0, &limits, &snapshot, &error), 0);
  assert_int_equal(tsr_snapshot_events(snapshot, 0).count, EVENTS);
  assert_int_equal(warned(snapshot, "frames-malformed"), 2 * EVENTS);
  tsr_snapshot_free(snapshot);
  tsr__buffer_release(&text);
}

static void other_spellings(void **state) {
  (void)state;
  static const char *const texts[] = {
      "\xef\xbb\xbf{\"segments\": []}",
      "\r\n\t [{\"total_size\": 1, \"device\": 0}]",
      "[]",
      "{\"segments\":[]}\n\n",
      "{\"segments\":[]} and then something else",
      "{\"segments\":[]}}",
      "{\"segments\": 1, \"segments\": []}",
      "{\"\\u0073egments\": []}",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) tsr_snapshot_free(read_text(texts[i]));
  static const char zeros[] = "{\"segments\":[]}\0\0\0";
  tsr_snapshot *snapshot = NULL;
  assert_int_equal(read_chunks(zeros, sizeof zeros, 0, NULL, &snapshot, NULL), 0);
  assert_int_equal(warned(snapshot, "truncated"), 0);
  tsr_snapshot_free(snapshot);
}

/* ---- texts that are damaged ---- */

static void assert_fails(const char *text, const tsr_limits *limits, int status, uint64_t offset,
                         const char *reason) {
  for (size_t chunk = 0; chunk < 4; chunk++) {
    tsr_snapshot *untouched = NULL;
    tsr_error error = {0};
    int got = read_chunks(text, strlen(text), chunk, limits, &untouched, &error);
    if (got != status || error.offset != offset || !strstr(error.message, reason))
      print_error("%s\n%d at %llu: %s\n", text, got, (unsigned long long)error.offset,
                  error.message);
    assert_int_equal(got, status);
    assert_int_equal(error.status, status);
    assert_int_equal(error.offset, offset);
    assert_non_null(strstr(error.message, reason));
    assert_null(untouched);
  }
}

static void damage_is_found(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint64_t offset;
    const char *reason;
  } cases[] = {
      {"{\"a\" 1}", 5, "expected ':'"},
      {"{\"a\": }", 6, "expected a value"},
      {"{\"a\": 1 \"b\"", 8, "expected ',' or '}'"},
      {"{\"a\": 1]", 7, "expected ',' or '}'"},
      {"{\"a\": 1,}", 8, "expected a key in quotes"},
      {"{a: 1}", 1, "expected a key in quotes or '}'"},
      {"{1: 1}", 1, "expected a key in quotes or '}'"},
      {"{,}", 1, "expected a key in quotes or '}'"},
      {"[1 2]", 3, "expected ',' or ']'"},
      {"[1}", 2, "expected ',' or ']'"},
      {"[1,]", 3, "expected a value"},
      {"[,]", 1, "expected a value"},
      {"[}", 1, "expected a value"},
      {"]", 0, "expected a value"},
      {"[nul]", 1, "expected a value"},
      {"[nulls]", 5, "expected ',' or ']'"},
      {"[True]", 1, "expected a value"},
      {"['a']", 1, "expected a value"},
      {"[01]", 2, "expected ',' or ']'"},
      {"[-01]", 3, "expected ',' or ']'"},
      {"[-]", 2, "expected a digit"},
      {"[-a]", 2, "expected a digit"},
      {"[+1]", 1, "expected a value"},
      {"[.5]", 1, "expected a value"},
      {"[1.]", 3, "expected a digit"},
      {"[1.e5]", 3, "expected a digit"},
      {"[1e]", 3, "expected a digit"},
      {"[1e+]", 4, "expected a digit"},
      {"[1.5.5]", 4, "expected ',' or ']'"},
      {"[1-1]", 2, "expected ',' or ']'"},
      {"[0x10]", 2, "expected ',' or ']'"},
      {"[-Infinite]", 1, "expected a value"},
      {"[\"a\nb\"]", 3, "a control character in a string"},
      {"[\"a\tb\"]", 3, "a control character in a string"},
      {"[\"a\\x41\"]", 3, "an unknown escape"},
      {"[\"a\\U00000041\"]", 3, "an unknown escape"},
      {"[\"\\u12g4\"]", 2, "\\u without four hexadecimal digits"},
      {"[\"\\u123\"]", 2, "\\u without four hexadecimal digits"},
      {"[\"\\ud83d\\u\"]", 8, "\\u without four hexadecimal digits"},
      {"{\"segments\": [], \"x\" /* why */: 1}", 21, "expected ':'"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_fails(cases[i].text, NULL, TSR_ERROR_FORMAT, cases[i].offset, cases[i].reason);
}

static void what_is_no_snapshot(void **state) {
  (void)state;
  static const struct {
    const char *text, *reason;
  } cases[] = {
      {"{}", "another dict"},
      {"{\"a\": 1}", "another dict"},
      {"[1]", "a list of something else"},
      {"7", "a number"},
      {"-1.5", "a number"},
      {"\"text\"", "a text"},
      {"null", "None"},
      {"true", "a boolean"},
      {"{} []", "another dict"},
      {"18446744073709551616", "a number"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_fails(cases[i].text, NULL, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, cases[i].reason);
}

static void limits_hold(void **state) {
  (void)state;
  tsr_limits nesting = {.nesting = 3};
  tsr_snapshot_free(read_text("{\"segments\": [], \"x\": [[]]}"));
  assert_fails("{\"segments\": [], \"x\": [[[]]]}", &nesting, TSR_ERROR_LIMIT, 24, "nesting");
  assert_fails("{\"segments\": [], \"x\": [[{}]]}", &nesting, TSR_ERROR_LIMIT, 24, "nesting");
  tsr_limits strings = {.string_bytes = 8};
  assert_fails("{\"segments\": [], \"x\": \"12345678\", \"y\": \"123456789\"}", &strings,
               TSR_ERROR_LIMIT, 39, "string_bytes");
  assert_fails("{\"segments\": [], \"x\": 123456789.5}", &strings, TSR_ERROR_LIMIT, 22,
               "string_bytes");
  tsr_limits all_strings = {.all_strings_bytes = 8};
  assert_fails("[\"x\"]", &all_strings, TSR_ERROR_LIMIT, 1, "all_strings_bytes");
  tsr_limits depth = {.stack_depth = 1};
  assert_fails("[{\"total_size\": 1, \"frames\": " FRAMES_A "}]", &depth, TSR_ERROR_LIMIT,
               29 + strlen(FRAMES_A), "stack_depth");
  tsr_limits values = {.stack_values = 4};
  assert_fails("{\"a\": 1, \"b\": 2, \"c\": 3}", &values, TSR_ERROR_LIMIT, 20, "stack_values");
}

/* ---- texts that are cut short ---- */

/* Every prefix is answered or refused for a reason; an answer reports the cut, and is the beginning
 * of the whole. */
static void any_prefix_is_answered(void **state) {
  (void)state;
  tsr_snapshot *whole = read_text(small);
  size_t size = strlen(small) - 2, answered = 0;
  uint64_t most_events = 0;
  for (size_t i = 0; i <= size; i++) {
    for (size_t chunk = 0; chunk <= 64; chunk += 64) {
      tsr_snapshot *snapshot = NULL;
      tsr_error error = {0};
      int status = read_chunks(small, i, chunk, NULL, &snapshot, &error);
      if (status) {
        assert_int_equal(status, TSR_ERROR_FORMAT);
        assert_int_equal(error.offset, i);
        assert_non_null(strstr(error.message, "is truncated"));
        continue;
      }
      answered++;
      assert_int_equal(warned(snapshot, "truncated"), 1);
      uint64_t count = snapshot->events.count;
      assert_true(count >= most_events);
      most_events = count;
      ASSERT_SAME_TABLE(&snapshot->events, &whole->events, addr, count);
      ASSERT_SAME_TABLE(&snapshot->events, &whole->events, stack, count);
      tsr_snapshot_free(snapshot);
    }
  }
  assert_true(answered > size);
  assert_int_equal(most_events, whole->events.count);
  tsr_snapshot_free(whole);
}

static void incomplete_objects_are_left_out(void **state) {
  (void)state;
  tsr_snapshot *snapshot =
      read_text("{\"segments\": [{\"device\": 0, \"total_size\": 1}, {\"device\": 0, \"total_si");
  size_t count;
  tsr_snapshot_segments(snapshot, &count);
  assert_int_equal(count, 1);
  tsr_snapshot_free(snapshot);
  /* A number may go on. */
  snapshot = read_text("{\"segments\": [], \"a\": 1, \"b\": {\"c\": 2, \"d\": 12");
  assert_int_equal(snapshot->extras.count, 1);
  tsr_snapshot_free(snapshot);
  snapshot = read_text("{\"segments\": [], \"a\": [1, 2, 34");
  assert_int_equal(snapshot->loose.items[0].count, 2);
  tsr_snapshot_free(snapshot);
  snapshot = read_text("[{\"total_size\": 1}, {\"total_size\": 2}, tru");
  tsr_snapshot_segments(snapshot, &count);
  assert_int_equal(count, 2);
  tsr_snapshot_free(snapshot);
  static const char *const nothing[] = {"", "  ", "{", "{\"segments\"", "{\"segments\": ", "\"a"};
  for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++)
    assert_fails(nothing[i], NULL, TSR_ERROR_FORMAT, strlen(nothing[i]), "is truncated");
}

/* ---- is it JSON? ---- */

static void looks_at_the_beginning(void **state) {
  (void)state;
  static const char *const yes[] = {"{",   "[",     " \n{ ", "{\"a",          "{}",
                                    "[]",  "[ {",   "[[",    "[\"",           "[1",
                                    "[-1", "[null", "[NaN",  "\xef\xbb\xbf {"};
  static const char *const no[] = {"",     " ",     "}q\1",         "](lp0",   "(lp0",   "\x80\4",
                                   "{a",   "{1",    "[a]",          "[x",      "<html>", "\"a\"",
                                   "null", "{\x01", "\xef\xbb\xbf", "\x1f\x8b"};
  for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
    assert_true(tsr__json_looks_like((const unsigned char *)yes[i], strlen(yes[i])));
  for (size_t i = 0; i < sizeof no / sizeof *no; i++)
    assert_false(tsr__json_looks_like((const unsigned char *)no[i], strlen(no[i])));
  assert_false(tsr__json_looks_like((const unsigned char *)"{\0", 2));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(integers_are_exact),
      cmocka_unit_test(floats_are_nearest),
      cmocka_unit_test(strings_lose_their_escapes),
      cmocka_unit_test(containers_are_kept),
      cmocka_unit_test(reads_a_snapshot),
      cmocka_unit_test(any_window_reads_the_same),
      cmocka_unit_test(long_traces_repeat_their_stacks),
      cmocka_unit_test(odd_frames_are_not_remembered),
      cmocka_unit_test(unused_containers_are_let_go),
      cmocka_unit_test(other_spellings),
      cmocka_unit_test(damage_is_found),
      cmocka_unit_test(what_is_no_snapshot),
      cmocka_unit_test(limits_hold),
      cmocka_unit_test(any_prefix_is_answered),
      cmocka_unit_test(incomplete_objects_are_left_out),
      cmocka_unit_test(looks_at_the_beginning),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
