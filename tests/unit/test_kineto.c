/* A profiler's trace and PyTorch's memory timeline: what becomes of their rows, which errors name what and where, and thousands of
 * texts that were changed at random, none of which may do harm. */
#include "formats/kineto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "columns/tables.h"
#include "snapshot_support.h"
#include "study_support.h"
#include "tessera/tessera.h"
#include "tessera/unstable/unstable.h"

#define SLICE(category, name, start, duration)                                                  \
  "{\"ph\": \"X\", \"cat\": \"" category "\", \"name\": \"" name "\", \"pid\": 1, \"tid\": 2, " \
  "\"ts\": " start ", \"dur\": " duration "},\n"
#define MEMORY(time, type, address, bytes, allocated, reserved)                                 \
  "{\"ph\": \"i\", \"s\": \"t\", \"name\": \"[memory]\", \"pid\": 1, \"tid\": 2, \"ts\": " time \
  ", \"args\": {\"Total Reserved\": " reserved ", \"Total Allocated\": " allocated              \
  ", \"Bytes\": " bytes ", \"Device Id\": 0, \"Device Type\": " type ", \"Addr\": " address "}}"

static const char trace[] =
    "{\"schemaVersion\": 1, \"baseTimeNanoseconds\": 5000,\n\"traceEvents\": [\n" SLICE(
        "user_annotation", "ProfilerStep#3", "1.000", "90.000")
        SLICE("python_function", "train.py(7): step", "1.500", "80.000")
            SLICE("cpu_op", "aten::mm", "2.000", "1.500")
                MEMORY("30.000", "1", "8192", "-512", "1212", "4096") ",\n" MEMORY(
                    "3.250", "1", "4096", "1024", "1724",
                    "4096") ",\n" MEMORY("4.000", "0", "77", "100", "100",
                                         "0") ",\n" MEMORY("40.000", "1", "4096", "-1024", "0",
                                                           "2048") "\n"
                                                                   "], \"traceName\": \"x\"}";

static const char timeline[] =
    "[[-1, 1, 64, 0], [1000, 2, 32, 4], [2000, 3, -32, 4], [2000, 3, 32, 5], [3000, 4, -32, 5]]";
static const char sums[] =
    "[[1, 2, 3, 4], [[0, 64, 0, 0, 0, 0, 0, 0, 0], [0, 64, 0, 0, 0, 9, 0, 0, 0], "
    "[0, 64, 0, 0, 0, 2, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, 0, 0]]]";

static int read_text(const char *text, size_t size, tsr_snapshot **out, tsr_error *error) {
  *out = NULL;
  return tsr_snapshot_read(text, size, NULL, out, error);
}

static void rows(void **state) {
  (void)state;
  tsr_snapshot *s;
  tsr_error error = {0};
  size_t count;
  assert_int_equal(read_text(trace, sizeof trace - 1, &s, &error), 0);
  const uint32_t *devices = tsr_snapshot_devices(s, &count);
  assert_int_equal(count, 2);
  assert_int_equal(devices[0], 0);
  assert_int_equal(devices[1], TSR_DEVICE_CPU);
  (void)tsr_snapshot_gpus(s, &count);
  assert_int_equal(count, 1);

  /* 700 bytes were there before, of which an event frees 512. The last total is lower by 188 than the events say: the rest ends, too. */
  const tsr__flat_device *flat = tsr__snapshot_flat(s, 0);
  assert_non_null(flat);
  assert_int_equal(flat->before_bytes, 188);
  tsr_events events = tsr_snapshot_events(s, 0);
  assert_int_equal(events.count, 4);
  assert_int_equal(events.action[0], TSR_ACTION_ALLOC);
  assert_int_equal(events.time_us[0], 8);
  tsr_stack stack = tsr_snapshot_stack(s, events.stack[0]);
  assert_int_equal(stack.depth, 2);
  tsr_text inner = tsr_snapshot_string(s, tsr_snapshot_frame(s, stack.frames[0]).name);
  tsr_text outer = tsr_snapshot_string(s, tsr_snapshot_frame(s, stack.frames[1]).name);
  assert_memory_equal(inner.data, "aten::mm", 8);
  assert_memory_equal(outer.data, "step", 4);
  assert_int_equal(tsr_snapshot_frame(s, stack.frames[1]).line, 7);
  tsr_snapshot_annotations(s, &count);
  assert_int_equal(count, 2);
  tsr_snapshot_free(s);
}

static void totals(void **state) {
  (void)state;
  tsr_snapshot *s;
  tsr_error error = {0};
  tsr_peak *peak = NULL;
  assert_int_equal(read_text(trace, sizeof trace - 1, &s, &error), 0);
  assert_int_equal(tsr_peak_compute(test_study(s), NULL, &peak, &error), 0);
  assert_int_equal(peak->device_count, 2);
  const tsr_peak_device *gpu = &peak->devices[0];
  assert_int_equal(gpu->start.allocated_bytes, 700);
  assert_int_equal(gpu->start.reserved_bytes, 4096);
  assert_int_equal(gpu->peak.totals.allocated_bytes, 1724);
  assert_int_equal(gpu->end.allocated_bytes, 0);
  assert_int_equal(gpu->end.reserved_bytes, 2048);
  assert_int_equal(peak->devices[1].peak.totals.allocated_bytes, 100);
  tsr_peak_free(peak);
  tsr_snapshot_free(s);
}

static void timelines(void **state) {
  (void)state;
  const char *const texts[] = {timeline, sums};
  const uint64_t peaks[] = {96, 73};
  for (size_t i = 0; i < 2; i++) {
    tsr_snapshot *s;
    tsr_error error = {0};
    tsr_peak *peak = NULL;
    assert_int_equal(read_text(texts[i], strlen(texts[i]), &s, &error), 0);
    assert_string_equal(tsr_snapshot_format(s), "memory timeline");
    assert_int_equal(tsr_peak_compute(test_study(s), NULL, &peak, &error), 0);
    assert_int_equal(peak->devices[0].peak.totals.allocated_bytes, peaks[i]);
    assert_int_equal(peak->devices[0].end.allocated_bytes, i ? 0 : 64);
    tsr_peak_free(peak);
    tsr_snapshot_free(s);
  }
}

static void errors(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
    uint64_t offset;
  } rows_of[] = {
      {"{\"traceEvents\": []}",
       "a profiler's trace without allocations: record it with "
       "torch.profiler.profile(profile_memory=True)",
       TSR_OFFSET_NONE},
      {"{\"traceEvents\": [", "the trace is truncated before its first allocation", 17},
      {"{\"traceEvents\": [{\"ph\" 1}]}", "damaged JSON: expected ':'", 23},
      {"{\"traceEvents\": [{}{}]}", "damaged JSON: expected ',' or ']'", 19},
      {"{\"traceEvents\": [{\"a\": }]}", "damaged JSON: expected a value", 23},
      {"{\"traceEvents\": [{\"a\" \"b\"]}", "damaged JSON: expected ':'", 22},
      {"{\"traceEvents\": [], 5}", "damaged JSON: expected a key in quotes or '}'", 20},
      {"{\"traceEvents\": []: 5}", "damaged JSON: expected ',' or '}'", 18},
      {"[[], []]", "a memory timeline without any memory: export it for the device that was used",
       TSR_OFFSET_NONE},
      {"[[1, 2, 3, 4] 5]", "damaged JSON: expected ',' or ']'", 14},
  };
  for (size_t i = 0; i < sizeof rows_of / sizeof *rows_of; i++) {
    tsr_snapshot *s;
    tsr_error error = {0};
    int status = read_text(rows_of[i].text, strlen(rows_of[i].text), &s, &error);
    assert_int_equal(status, TSR_ERROR_FORMAT);
    assert_null(s);
    assert_string_equal(error.message, rows_of[i].message);
    assert_int_equal(error.offset, rows_of[i].offset);
  }
}

/* ---- texts changed at random ---- */

static uint64_t random_state;

static uint32_t next_random(uint32_t below) {
  random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(random_state >> 33) % below;
}

/* One change of a text of `*size` bytes, which has room for twice as many. */
static void mutate(char *text, size_t *size, size_t room) {
  static const char *const parts[] = {
      "{",
      "}",
      "[",
      "]",
      "\"",
      ",",
      ":",
      "\\",
      "\\u12",
      "-",
      "null",
      "18446744073709551615",
      "-9223372036854775808",
      "1e308",
      "0.5",
      "[memory]",
      "[OutOfMemory]",
      "\n",
      "\xff",
      "4294967293",
      "{\"ph\":\"i\",\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Bytes\":9}},"};
  size_t at = next_random((uint32_t)*size), length = 1 + next_random(24);
  const char *part = parts[next_random(sizeof parts / sizeof *parts)];
  if (length > *size - at) length = *size - at;
  switch (next_random(6)) {
  case 0: text[at] = (char)next_random(256); break;
  case 1: text[at] = (char)(text[at] ^ (1 << next_random(8))); break;
  case 2: /* a part goes */
    memmove(text + at, text + at + length, *size - at - length);
    *size -= length;
    break;
  case 3: /* a part comes twice */
    if (*size + length > room) return;
    memmove(text + at + length, text + at, *size - at);
    *size += length;
    break;
  case 4: /* something that means something comes */
    length = strlen(part);
    if (*size + length > room) return;
    memmove(text + at + length, text + at, *size - at);
    memcpy(text + at, part, length);
    *size += length;
    break;
  default: *size = at + 1; break; /* the end is missing */
  }
}

static void ask(const tsr_snapshot *snapshot) {
  tsr_peak *peak = NULL;
  tsr_why *why = NULL;
  tsr_error error = {0};
  assert_null(tsr__snapshot_check(snapshot));
  assert_int_equal(tsr_peak_compute(test_study(snapshot), NULL, &peak, &error), 0);
  assert_int_equal(tsr_why_compute(test_study(snapshot), NULL, NULL, &why, &error), 0);
  tsr_peak_free(peak);
  tsr_why_free(why);
}

static void mutations(void **state) {
  (void)state;
  const char *const texts[] = {trace, timeline, sums};
  size_t rounds = getenv("TESSERA_WHOLE") ? 100000 : 20000, answered = 0;
  for (size_t i = 0; i < rounds; i++) {
    char text[2 * sizeof trace];
    const char *from = texts[i % 4 == 3 ? 2 : i % 4 == 2];
    size_t size = strlen(from);
    random_state = i;
    memcpy(text, from, size);
    for (uint32_t left = 1 + next_random(4); left && size; left--) mutate(text, &size, sizeof text);
    char *exact = malloc(size + !size); /* reading past the end is seen */
    memcpy(exact, text, size);
    tsr_snapshot *s;
    tsr_error error = {0};
    int status = read_text(exact, size, &s, &error);
    if (status) {
      assert_true(status == TSR_ERROR_FORMAT || status == TSR_ERROR_LIMIT);
      assert_int_equal(error.status, status);
      assert_true(error.message[0]);
      assert_null(s);
    } else {
      ask(s);
      answered++;
    }
    tsr_snapshot_free(s);
    free(exact);
  }
  assert_true(answered > rounds / 20 && answered < rounds);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows),   cmocka_unit_test(totals),    cmocka_unit_test(timelines),
      cmocka_unit_test(errors), cmocka_unit_test(mutations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
