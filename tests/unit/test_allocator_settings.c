/* Tests of allocator/settings.c: PYTORCH_CUDA_ALLOC_CONF, read and written. */
#include <math.h>
#include <string.h>

#include "tessera/allocator.h"
#include "test_support.h"

static void settings_round_trip(void **state) {
  (void)state;
  static const char *const same[] = {
      "",
      "expandable_segments:True",
      "max_split_size_mb:128",
      ("expandable_segments:True,max_split_size_mb:20,max_non_split_rounding_mb:30,"
       "large_segment_size_mb:12,garbage_collection_threshold:0.8,roundup_power2_divisions:4"),
      "garbage_collection_threshold:0.123456789",
      "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
      "roundup_power2_divisions:[64:0,128:2,256:4,>:0]",
      "roundup_power2_divisions:[1:2,>:0]",
      "expandable_segments:True,expandable_segments_reserve:0.5",
      "expandable_segments_reserve:1.125",
      "expandable_segments_reserve:40G,max_split_size_mb:128",
      "expandable_segments_reserve:0.25G",
  };
  char text[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES];
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
    tsr_allocator_settings settings;
    assert_int_equal(tsr_allocator_settings_parse(same[i], &settings, NULL), 0);
    assert_string_equal(tsr_allocator_settings_text(&settings, text), same[i]);
  }
  tsr_allocator_settings settings;
  assert_int_equal(tsr_allocator_settings_parse(NULL, &settings, NULL), 0);
  assert_string_equal(tsr_allocator_settings_text(&settings, text), "");
  /* A snapshot's own can be anything. */
  const double thresholds[] = {5, 1e308, INFINITY, -1, NAN};
  for (size_t i = 0; i < sizeof thresholds / sizeof *thresholds; i++) {
    settings.garbage_collection_threshold = thresholds[i];
    assert_string_equal(tsr_allocator_settings_text(&settings, text),
                        thresholds[i] > 0 ? "garbage_collection_threshold:0.9" : "");
  }
  assert_int_equal(
      tsr_allocator_settings_parse(" backend:native, pinned_use_background_threads : True,"
                                   "per_process_memory_fraction:0.5,expandable_segments:False,",
                                   &settings, NULL),
      0);
  assert_string_equal(tsr_allocator_settings_text(&settings, text), "");
  assert_int_equal(
      tsr_allocator_settings_parse("roundup_power2_divisions:[2:4,8:2]", &settings, NULL), 0);
  const uint32_t slots[] = {4, 4, 0, 2, 0};
  assert_memory_equal(settings.roundup_divisions, slots, sizeof slots);
}

static void reserves_are_read(void **state) {
  (void)state;
  tsr_allocator_settings settings;
  char text[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES];
  /* PyTorch ignores invalid values of a reserve; that of a class is recorded nowhere. */
  static const char *const reserves[][2] = {
      {"expandable_segments_reserve:abc", ""},
      {"expandable_segments_reserve:G", ""},
      {"expandable_segments_reserve:-1", ""},
      {"expandable_segments_reserve:0", ""},
      {"expandable_segments_reserve:inf", ""},
      {"expandable_segments_reserve:7", "expandable_segments_reserve:1.125"},
      {"expandable_segments_reserve:1e20G", "expandable_segments_reserve:1048576G"},
      {"expandable_segments_reserve:0.5,expandable_segments_reserve:abc",
       "expandable_segments_reserve:0.5"},
      {"expandable_segments_reserve:0.5,expandable_segments_reserve:2g",
       "expandable_segments_reserve:2G"},
      {"expandable_segments_reserve_by_class:[serving:0.25,loading:40G],max_split_size_mb:20",
       "max_split_size_mb:20"},
      {"expandable_segments_reserve_by_class:[],expandable_segments:True",
       "expandable_segments:True"},
  };
  for (size_t i = 0; i < sizeof reserves / sizeof *reserves; i++) {
    assert_int_equal(tsr_allocator_settings_parse(reserves[i][0], &settings, NULL), 0);
    assert_string_equal(tsr_allocator_settings_text(&settings, text), reserves[i][1]);
  }
}

static void settings_are_refused(void **state) {
  (void)state;
  static const char *const wrong[][2] = {
      {"nonsense:1", "unknown allocator option \"nonsense\"; known: expandable_segments[_reserve"},
      {"expandable_segments:true", "expandable_segments: expected True or False"},
      {"expandable_segments", "expandable_segments: expected \":\", not \"\""},
      {"max_split_size_mb:19", "max_split_size_mb: must be at least 20"},
      {"max_split_size_mb:-1", "max_split_size_mb: expected a whole number"},
      {"max_split_size_mb:99999999999999999999", "expected a whole number"},
      {"max_non_split_rounding_mb:1", "max_non_split_rounding_mb: must be at least 20"},
      {"large_segment_size_mb:1", "must be more than 1"},
      {"garbage_collection_threshold:1", "must be between 0 and 1"},
      {"garbage_collection_threshold:0", "must be between 0 and 1"},
      {"garbage_collection_threshold:0.8.1", "must be between 0 and 1"},
      {"roundup_power2_divisions:3", "divisions must be a power of two"},
      {"roundup_power2_divisions:[3:1]", "intervals must be powers of two, or >"},
      {"roundup_power2_divisions:[4:3]", "divisions must be powers of two, or 0"},
      {"roundup_power2_divisions:[4:2", "expected \",\" or \"]\" in the list"},
      {"roundup_power2_divisions:[4,2]", "expected \":\", not \",\""},
      {"max_split_size_mb:20 30 expandable_segments:True", "max_split_size_mb: expected"},
      {"max_split_size_mb:20:", "expected \",\" after its value"},
      {"backend:nonsense", "backend: expected native or cudaMallocAsync"},
      {"pinned_use_background_threads:,", "expected a value"},
      {"expandable_segments_reserve:,", "expected a fraction such as 0.5, or 40G"},
      {"expandable_segments_reserve_by_class:0.5", "expected \"[\", not \"0.5\""},
      {"expandable_segments_reserve_by_class:[a:0.5", "expected \",\" or \"]\" in the list"},
      {"expandable_segments_reserve_by_class:[", "expected a class, or \"]\""},
      {"expandable_segments_reserve_by_class:[a]", "expected \":\", not \"]\""},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    tsr_allocator_settings settings = {.max_split_bytes = 7};
    tsr_error error;
    assert_int_equal(tsr_allocator_settings_parse(wrong[i][0], &settings, &error),
                     TSR_ERROR_ARGUMENT);
    assert_int_equal(settings.max_split_bytes, 7);
    if (!strstr(error.message, wrong[i][1])) assert_string_equal(error.message, wrong[i][1]);
  }
  tsr_allocator_settings settings;
  assert_int_equal(tsr_allocator_settings_parse("backend:cudaMallocAsync", &settings, NULL),
                   TSR_ERROR_UNSUPPORTED);
  tsr_allocator_options options = {.settings.expandable_reserve_fraction = 2};
  tsr_allocator *a = NULL;
  assert_int_equal(tsr_allocator_new(&options, &a, NULL), TSR_ERROR_ARGUMENT);
  options = (tsr_allocator_options){.settings.roundup_divisions = {3}};
  assert_int_equal(tsr_allocator_new(&options, &a, NULL), TSR_ERROR_ARGUMENT);
  assert_null(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(settings_round_trip),
      cmocka_unit_test(reserves_are_read),
      cmocka_unit_test(settings_are_refused),
  };
  return cmocka_run_group_tests_name("allocator settings", tests, NULL, NULL);
}
