/* Annotations that nest, overlap, repeat and lack partners, followed through traces. */
#include "attribution/annotations.h"

#include <stdio.h>
#include <string.h>

#include "test_support.h"

#define START(name, time) \
  "{\"name\": \"" name "\", \"stage\": \"START\", \"device\": 0, \"time_us\": " time "}"
#define END(name, time) \
  "{\"name\": \"" name "\", \"stage\": \"END\", \"device\": 0, \"time_us\": " time "}"

/* A trace of one event a microsecond, 0 to 9, of which each allocates. */
static tsr_snapshot *with_annotations(const char *annotations) {
  char text[8192];
  int length = snprintf(text, sizeof text, "{\"segments\": [], \"device_traces\": [[");
  for (int i = 0; i < 10; i++)
    length += snprintf(text + length, sizeof text - (size_t)length,
                       "%s{\"action\": \"alloc\", \"addr\": %d, \"size\": 1, \"time_us\": %d}",
                       i ? ", " : "", 4096 + 512 * i, i);
  length += snprintf(text + length, sizeof text - (size_t)length,
                     "]], \"external_annotations\": [%s]}", annotations);
  tsr_snapshot *snapshot = NULL;
  assert_int_equal(tsr_snapshot_read(text, (size_t)length, NULL, &snapshot, NULL), 0);
  return snapshot;
}

/* The name that each event falls under, one letter each ('.': none), and what was odd, in the order
 * of tsr__annotation_odd. */
static void expect(const char *annotations, const char *letters, const char *odd) {
  tsr_snapshot *snapshot = with_annotations(annotations);
  tsr_events events = tsr_snapshot_events(snapshot, 0);
  tsr__annotations found = {0};
  char got[32] = "", counts[64] = "";
  assert_int_equal(tsr__annotations_compute(snapshot, &events, &found, NULL), 0);
  assert_int_equal(found.spans.items[0].first_event, 0);
  for (uint64_t i = 0; i < events.count; i++) {
    tsr_text name =
        tsr_snapshot_string(snapshot, found.spans.items[tsr__annotations_span(&found, i)].name);
    got[i] = name.size_bytes ? name.data[0] : '.';
  }
  for (size_t i = 0; i < TSR__ANNOTATION_ODD_COUNT; i++) counts[i] = (char)('0' + found.odd[i]);
  assert_string_equal(got, letters);
  assert_string_equal(counts, odd);
  tsr_warning warnings[TSR__ANNOTATION_ODD_COUNT];
  size_t kinds = 0, count = tsr__annotations_warnings(&found, warnings);
  for (size_t i = 0; odd[i]; i++) kinds += odd[i] != '0';
  assert_int_equal(count, kinds);
  tsr__annotations_release(&found);
  tsr_snapshot_free(snapshot);
}

static void none(void **state) {
  (void)state;
  expect("", "..........", "00000");
}

/* An entry takes effect at the first event at its time or later. */
static void one(void **state) {
  (void)state;
  expect(START("a", "2") ", " END("a", "5"), "..aaa.....", "00000");
  expect(START("a", "-5") ", " END("a", "50"), "aaaaaaaaaa", "00000");
}

static void nested(void **state) {
  (void)state;
  expect(START("a", "1") ", " START("b", "3") ", " END("b", "6") ", " END("a", "8"), ".aabbbaa..",
         "00000");
}

static void repeated(void **state) {
  (void)state;
  expect(START("a", "1") ", " END("a", "3") ", " START("a", "5") ", " END("a", "7"), ".aa..aa...",
         "00000");
  /* A name within itself: the inner one ends first. */
  expect(START("a", "1") ", " START("b", "2") ", " START("a", "3") ", " END("a", "5") ", " END(
             "b", "6") ", " END("a", "8"),
         ".abaabaa..", "00000");
}

/* END takes the last entry of its name out, also from under others. */
static void overlapping(void **state) {
  (void)state;
  expect(START("a", "1") ", " START("b", "3") ", " END("a", "5") ", " END("b", "7"), ".aabbbb...",
         "00100");
  expect(START("a", "1") ", " START("b", "2") ", " START("c", "3") ", " END("b", "4") ", " END(
             "c", "5") ", " END("a", "6"),
         ".abcca....", "00100");
}

static void without_partners(void **state) {
  (void)state;
  expect(END("a", "1") ", " START("b", "4"), "....bbbbbb", "11000");
  expect(START("a", "1") ", " END("a", "2") ", " END("a", "3"), ".a........", "10000");
}

/* An entry that comes late holds up those after it; one of no stage or time counts for nothing. */
static void out_of_order(void **state) {
  (void)state;
  expect(START("a", "6") ", " START("b", "2") ", " END("b", "8") ", " END("a", "9"), "......bba.",
         "00010");
  expect("{\"name\": \"x\", \"stage\": \"MIDDLE\", \"time_us\": 1}, "
         "{\"name\": \"y\", \"stage\": \"START\"}, " START("a", "4"),
         "....aaaaaa", "01002");
}

/* Many open at once, ended from the bottom: each END costs the same. */
static void deep(void **state) {
  (void)state;
  enum { DEPTH = 60000, ENTRY = 90 };
  char *text = TSR__NEW_ARRAY(char, 2 * DEPTH * ENTRY);
  assert_non_null(text);
  size_t length = 0;
  length += (size_t)sprintf(text, "{\"segments\": [], \"device_traces\": [[{\"action\": \"alloc\", "
                                  "\"addr\": 1, \"size\": 1, \"time_us\": 9}]], "
                                  "\"external_annotations\": [");
  for (int i = 0; i < 2 * DEPTH; i++)
    length +=
        (size_t)sprintf(text + length, "%s{\"name\": \"n%d\", \"stage\": \"%s\", \"time_us\": 1}",
                        i ? ", " : "", i % DEPTH, i < DEPTH ? "START" : "END");
  length += (size_t)sprintf(text + length, "]}");
  tsr_snapshot *snapshot = NULL;
  assert_int_equal(tsr_snapshot_read(text, length, NULL, &snapshot, NULL), 0);
  tsr_events events = tsr_snapshot_events(snapshot, 0);
  tsr__annotations found = {0};
  assert_int_equal(tsr__annotations_compute(snapshot, &events, &found, NULL), 0);
  assert_int_equal(found.odd[TSR__ANNOTATION_CROSSED], DEPTH - 1);
  assert_int_equal(found.odd[TSR__ANNOTATION_NO_END], 0);
  tsr__annotations_release(&found);
  tsr_snapshot_free(snapshot);
  tsr__free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(none),         cmocka_unit_test(one),
      cmocka_unit_test(nested),       cmocka_unit_test(repeated),
      cmocka_unit_test(overlapping),  cmocka_unit_test(without_partners),
      cmocka_unit_test(out_of_order), cmocka_unit_test(deep),
  };
  return cmocka_run_group_tests_name("annotations", tests, NULL, NULL);
}
