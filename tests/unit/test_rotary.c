/* Rotary frequencies against transformers': tests/torch/rotary.py recorded them in rotary.txt. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "test_support.h"

static tsr_model *read_model(const char *json) {
  tsr_model *model = NULL;
  tsr_error error = {0};
  if (tsr_model_read(json, strlen(json), &model, &error)) fail_msg("%s: %s", json, error.message);
  return model;
}

/* "SEQUENCE CONFIG | MAGNITUDE FREQUENCIES" */
static void check_line(char *line) {
  char *json, *numbers;
  uint64_t sequence = strtoull(line, &json, 10);
  char *bar = strchr(json, '|');
  assert_non_null(bar);
  *bar = '\0';
  tsr_model *model = read_model(json);
  const tsr__rotary *r = &model->rotary;
  assert_int_equal(tsr__model_check_computed(model, NULL), 0);
  double magnitude = strtod(bar + 1, &numbers);
  if (!(fabs(r->magnitude - magnitude) < 1e-9)) fail_msg("%s: %.9g", json, r->magnitude);
  for (uint64_t i = 0; i < r->head_width / 2; i++) {
    double want = strtod(numbers, &numbers), got = tsr__rotary_frequency(r, sequence, i);
    if (!(fabs(got - want) <= 1e-6 * want))
      fail_msg("%s: pair %d has %.9g, transformers %.9g", json, (int)i, got, want);
  }
  tsr_model_free(model);
}

static void as_transformers(void **state) {
  char path[4096], line[4096];
  unsigned checked = 0;
  (void)state;
  const char *folder = getenv("TESSERA_TESTS");
  assert_non_null(folder);
  snprintf(path, sizeof path, "%s/torch/rotary.txt", folder);
  FILE *file = fopen(path, "r");
  if (!file) fail_msg("%s: not there", path);
  while (fgets(line, sizeof line, file)) {
    if (line[0] == '#') continue;
    check_line(line);
    checked++;
  }
  fclose(file);
  assert_true(checked >= 10);
}

static void check_refused(const char *scaling, int status, const char *text) {
  char json[512];
  tsr_model *model = NULL;
  tsr_error error = {0};
  snprintf(json, sizeof json, "{\"model_type\":\"llama\",\"rope_scaling\":%s}", scaling);
  assert_int_equal(tsr_model_read(json, strlen(json), &model, &error), status);
  assert_string_equal(error.message, text);
}

static void incomplete(void **state) {
  (void)state;
  check_refused("7", TSR_ERROR_FORMAT, "\"rope_scaling\" is not an object");
  check_refused("{\"type\":\"linear\"}", TSR_ERROR_FORMAT,
                "\"factor\" is missing, which this type of rotary positions needs");
  check_refused("{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1}", TSR_ERROR_FORMAT,
                "\"high_freq_factor\" is missing, which this type of rotary positions needs");
  check_refused("{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
                "\"high_freq_factor\":4}",
                TSR_ERROR_FORMAT, "\"high_freq_factor\" is not above \"low_freq_factor\"");
  check_refused("{\"rope_type\":\"yarn\",\"factor\":-1}", TSR_ERROR_FORMAT,
                "\"factor\" is not a number above 0");
  check_refused("{\"rope_type\":\"dynamic\",\"factor\":2,\"rope_theta\":0.5}", TSR_ERROR_FORMAT,
                "\"rope_theta\" is not above 1");
}

/* What is not known can be simulated, and is named when it is to be computed. */
static void unknown(void **state) {
  tsr_error error = {0};
  (void)state;
  tsr_model *model =
      read_model("{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"longrope\"}}");
  assert_int_equal(tsr__model_check_computed(model, &error), TSR_ERROR_UNSUPPORTED);
  assert_string_equal(error.message,
                      "rotary positions of the type \"longrope\" (rope_scaling) are not computed; "
                      "linear, dynamic, yarn and llama3 are");
  tsr_model_free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_transformers),
      cmocka_unit_test(incomplete),
      cmocka_unit_test(unknown),
  };
  return cmocka_run_group_tests_name("rotary", tests, NULL, NULL);
}
