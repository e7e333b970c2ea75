/* Sketches: the bytes of one, or of several, without the sum at their end, which is added here. What is read is written again, and read
 * the same; names of files are read and settled as those of ranks. */
#include "fleet/fleet.h"
#include "questions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void append_sum(tsr__buffer *out) {
  uint64_t sum = 14695981039346656037u;
  for (size_t i = 0; i < out->size; i++) sum = (sum ^ (uint8_t)out->data[i]) * 1099511628211u;
  for (size_t i = 0; i < 8; i++) {
    char byte = (char)(sum >> 8 * i);
    tsr__buffer_append(out, &byte, 1);
  }
}

static void one(const tsr__buffer *bytes) {
  tsr__sketch sketch = {0}, again = {0};
  tsr__buffer written = {0}, twice = {0};
  tsr_error error = {0};
  int status = tsr__sketch_decode(bytes->data, bytes->size, &sketch, &error);
  check_error(status, &error);
  if (!status) {
    require(tsr__sketch_encode(&sketch, &written), "it can be written");
    require(written.size <= TSR__SKETCH_MOST_BYTES, "in 64 KiB");
    require(!tsr__sketch_decode(written.data, written.size, &again, &error), "and read");
    require(tsr__sketch_encode(&again, &twice), "and written again");
    require(twice.size == written.size && !memcmp(twice.data, written.data, twice.size),
            "the same");
  }
  tsr__sketch_release(&sketch);
  tsr__sketch_release(&again);
  tsr__buffer_release(&written);
  tsr__buffer_release(&twice);
}

/* The name of a file, which need not be there. */
static void name(const uint8_t *data, size_t size) {
  char text[512];
  tsr__file_name names[2];
  tsr__name_pattern *pattern = NULL;
  tsr_error error = {0};
  size_t length = size < sizeof text - 1 ? size : sizeof text - 1;
  memcpy(text, data, length);
  text[length] = '\0';
  tsr__file_name_read(text, &names[0]);
  tsr__file_name_read("run/snapshot_1.pickle", &names[1]);
  check_error(tsr__file_names_settle(names, 2, &error), &error);
  int status = tsr__name_pattern_new(text, &pattern, &error);
  check_error(status, &error);
  if (!status)
    check_error(tsr__name_pattern_read(pattern, "run/rank7.pickle", &names[0], &error), &error);
  tsr__name_pattern_free(pattern);
}

static void several(const tsr__buffer *bytes) {
  tsr__fleet fleet = {0}, again = {0};
  tsr__buffer written = {0}, twice = {0};
  tsr_error error = {0};
  int status = tsr__fleet_decode(bytes->data, bytes->size, &fleet, &error);
  check_error(status, &error);
  if (!status) {
    require(tsr__fleet_encode(&fleet, &written), "they can be written");
    require(!tsr__fleet_decode(written.data, written.size, &again, &error), "and read");
    require(tsr__fleet_encode(&again, &twice), "and written again");
    require(twice.size == written.size && !memcmp(twice.data, written.data, twice.size),
            "the same");
  }
  tsr__fleet_release(&fleet);
  tsr__fleet_release(&again);
  tsr__buffer_release(&written);
  tsr__buffer_release(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr__buffer bytes = {0};
  tsr__buffer_append(&bytes, data, size);
  append_sum(&bytes);
  if (tsr__is_fleet(data, size))
    several(&bytes);
  else if (size && data[0] == 't')
    one(&bytes);
  else
    name(data, size);
  tsr__buffer_release(&bytes);
  return 0;
}
