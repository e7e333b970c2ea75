/* Weights in safetensors files: what is written is what is read; damaged headers; folders. */
#define _XOPEN_SOURCE 700

#include "models/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "test_support.h"

/* ---- in memory ---- */

typedef struct made {
  unsigned char bytes[4096];
  size_t size;
} made;

/* A file with this header, `data_bytes` bytes after it. */
static made with_header(const char *header, size_t data_bytes) {
  made file = {.size = 8 + strlen(header) + data_bytes};
  assert_true(file.size <= sizeof file.bytes);
  file.bytes[0] = (unsigned char)strlen(header);
  file.bytes[1] = (unsigned char)(strlen(header) >> 8);
  memcpy(file.bytes + 8, header, strlen(header));
  return file;
}

static int parse(const char *header, size_t data_bytes, tsr__safetensors *out, tsr_error *error) {
  made file = with_header(header, data_bytes);
  return tsr__safetensors_parse(file.bytes, file.size, file.size, out, error);
}

static void assert_refused(const char *header, size_t data_bytes, tsr_status status,
                           const char *message) {
  tsr__safetensors file;
  tsr_error error = {0};
  assert_int_equal(parse(header, data_bytes, &file, &error), status);
  assert_non_null(strstr(error.message, message));
}

static void test_reads_a_header(void **state) {
  tsr__safetensors file;
  (void)state;
  assert_int_equal(
      parse("{\"b\": {\"dtype\": \"BF16\", \"shape\": [2, 3], \"data_offsets\": [8, 20]},"
            " \"a\": {\"dtype\": \"I64\", \"shape\": [], \"data_offsets\": [0, 8]},"
            " \"none\": {\"dtype\": \"F32\", \"shape\": [0, 7], \"data_offsets\": [20, 20]},"
            " \"__metadata__\": {\"format\": \"pt\"}}  ",
            20, &file, NULL),
      0);
  assert_int_equal(file.count, 3);
  const tsr__array *b = tsr__safetensors_find(&file, "b");
  assert_non_null(b);
  assert_int_equal(b->type, TSR__ARRAY_BF16);
  assert_int_equal(b->rank, 2);
  assert_int_equal(b->dim[1], 3);
  assert_int_equal(b->size_bytes, 12);
  assert_int_equal(tsr__safetensors_find(&file, "a")->rank, 0);
  assert_int_equal(tsr__safetensors_find(&file, "none")->size_bytes, 0);
  assert_null(tsr__safetensors_find(&file, "c"));
  assert_null(tsr__safetensors_find(&file, "__metadata__"));
  tsr__safetensors_release(&file);
}

static void test_no_arrays_are_a_file(void **state) {
  tsr__safetensors file;
  (void)state;
  assert_int_equal(parse("{}", 0, &file, NULL), 0);
  assert_null(tsr__safetensors_find(&file, "a"));
  tsr__safetensors_release(&file);
}

#define ARRAY(type, shape, offsets) \
  "{\"a\": {\"dtype\": \"" type "\", \"shape\": [" shape "], \"data_offsets\": [" offsets "]}}"

static void test_refuses_damaged_headers(void **state) {
  (void)state;
  assert_refused("[]", 0, TSR_ERROR_FORMAT, "not a JSON object");
  assert_refused("{", 0, TSR_ERROR_FORMAT, "the header");
  assert_refused("{\"a\": 1}", 0, TSR_ERROR_FORMAT, "\"a\" is not described");
  assert_refused("{\"a\": {}}", 0, TSR_ERROR_FORMAT, "\"a\" has no \"dtype\"");
  assert_refused(ARRAY("F31", "1", "0, 4"), 4, TSR_ERROR_UNSUPPORTED, "F31");
  assert_refused(ARRAY("F32", "-1", "0, 4"), 4, TSR_ERROR_FORMAT, "not a whole number");
  assert_refused(ARRAY("F32", "1.0", "0, 4"), 4, TSR_ERROR_FORMAT, "not a whole number");
  assert_refused(ARRAY("F32", "1,1,1,1,1,1,1,1,1", "0, 4"), 4, TSR_ERROR_LIMIT, "8 dimensions");
  assert_refused(ARRAY("F32", "1", "4, 0"), 4, TSR_ERROR_FORMAT, "ascending");
  assert_refused(ARRAY("F32", "1", "0"), 4, TSR_ERROR_FORMAT, "ascending");
  assert_refused(ARRAY("F32", "2", "0, 4"), 4, TSR_ERROR_FORMAT, "match its shape and type");
  assert_refused(ARRAY("F32", "4611686018427387904, 4", "0, 0"), 0, TSR_ERROR_FORMAT,
                 "match its shape and type"); /* the product is 2^64 elements */
  assert_refused(ARRAY("F32", "1", "0, 4"), 2, TSR_ERROR_FORMAT, "cut off");
  assert_refused(ARRAY("F32", "1", "0, 4"), 5, TSR_ERROR_FORMAT, "1 bytes after the last");
  assert_refused(ARRAY("F32", "1", "4, 8"), 8, TSR_ERROR_FORMAT, "belong to no array");
  assert_refused("{\"a\": {\"dtype\": \"U8\", \"shape\": [2], \"data_offsets\": [0, 2]}, "
                 "\"b\": {\"dtype\": \"U8\", \"shape\": [2], \"data_offsets\": [1, 3]}}",
                 3, TSR_ERROR_FORMAT, "\"b\" overlaps");
  assert_refused("{\"a\": {\"dtype\": \"U8\", \"shape\": [], \"data_offsets\": [0, 1]}, "
                 "\"a\": {\"dtype\": \"U8\", \"shape\": [], \"data_offsets\": [1, 2]}}",
                 2, TSR_ERROR_FORMAT, "duplicate");
}

static void test_the_length_is_checked_before_memory_is_taken(void **state) {
  unsigned char bytes[8] = {0, 0, 0, 0, 0, 0, 0, 1};
  uint64_t end;
  tsr_error error = {0};
  (void)state;
  assert_int_equal(tsr__safetensors_header_end(bytes, 7, &end, &error), TSR_ERROR_FORMAT);
  assert_int_equal(tsr__safetensors_header_end(bytes, 4096, &end, &error), TSR_ERROR_FORMAT);
  assert_non_null(strstr(error.message, "longer than the file"));
  assert_int_equal(tsr__safetensors_header_end(bytes, UINT64_MAX, &end, &error), TSR_ERROR_LIMIT);
}

/* ---- files ---- */

static int append(void *buffer, const char *data, size_t size_bytes) {
  tsr__buffer_append(buffer, data, size_bytes);
  return 0;
}

/* A folder of the test's own; `path` is one file in it at a time. */
typedef struct place {
  char folder[64], path[128];
} place;

static const char *at(place *p, const char *name) {
  (void)snprintf(p->path, sizeof p->path, "%s/%s", p->folder, name);
  return p->path;
}

static void put(place *p, const char *name, const void *data, size_t size_bytes) {
  FILE *file = fopen(at(p, name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, size_bytes, file), size_bytes);
  assert_int_equal(fclose(file), 0);
}

static place new_place(void) {
  place p;
  strcpy(p.folder, "/tmp/tessera-weights-XXXXXX");
  assert_non_null(mkdtemp(p.folder));
  return p;
}

static void end_place(place *p, const char *const *names) {
  for (; *names; names++) (void)unlink(at(p, *names));
  assert_int_equal(rmdir(p->folder), 0);
}

static void test_reads_what_it_wrote(void **state) {
  static const char *const names[] = {"a.safetensors", NULL};
  static const char *const metadata[] = {"format", "pt", "\"odd\\\n", "\x01", NULL};
  const float weights[] = {1.5F, -2, 0.25F};
  const uint16_t half = 0x3f80;
  tsr__array arrays[] = {{.name = "scale", .type = TSR__ARRAY_BF16},
                         {.name = "a \"name\"", .type = TSR__ARRAY_F32, .rank = 2, .dim = {3, 1}}};
  tsr__buffer file = {0};
  tsr__safetensors read;
  float back[2];
  place p = new_place();
  (void)state;
  assert_int_equal(tsr__safetensors_write_header(arrays, 2, metadata, append, &file, NULL), 0);
  assert_int_equal(file.size % 8, 0);
  assert_int_equal(arrays[0].type, TSR__ARRAY_F32); /* larger elements first */
  tsr__buffer_append(&file, weights, sizeof weights);
  tsr__buffer_append(&file, &half, sizeof half);
  put(&p, names[0], file.data, file.size);
  assert_int_equal(tsr__safetensors_open(at(&p, names[0]), &read, NULL), 0);
  const tsr__array *array = tsr__safetensors_find(&read, "a \"name\"");
  assert_non_null(array);
  assert_int_equal(tsr__safetensors_read(&read, array, 4, back, sizeof back, NULL), 0);
  assert_true(back[0] == -2 && back[1] == 0.25F);
  const json_t *said = json_object_get(read.header, "__metadata__");
  assert_string_equal(json_string_value(json_object_get(said, "\"odd\\\n")), "\x01");
  /* Cut off behind our back. */
  assert_int_equal(truncate(p.path, (off_t)(file.size - 4)), 0);
  assert_int_equal(
      tsr__safetensors_read(&read, tsr__safetensors_find(&read, "scale"), 0, back, 2, NULL),
      TSR_ERROR_FORMAT);
  tsr__safetensors_release(&read);
  tsr__buffer_release(&file);
  end_place(&p, names);
}

static int fails(void *context, const char *data, size_t size_bytes) {
  (void)context, (void)data, (void)size_bytes;
  return 1;
}

static void test_says_that_writing_failed(void **state) {
  tsr__array array = {.name = "a", .type = TSR__ARRAY_U8};
  (void)state;
  assert_int_equal(tsr__safetensors_write_header(&array, 1, NULL, fails, NULL, NULL),
                   TSR_ERROR_WRITE);
}

static void test_no_such_file(void **state) {
  tsr__safetensors read;
  (void)state;
  assert_int_equal(tsr__safetensors_open("/tmp", &read, NULL), TSR_ERROR_IO);
  assert_int_equal(tsr__safetensors_open("/nowhere/x", &read, NULL), TSR_ERROR_IO);
}

/* ---- folders ---- */

static void put_array(place *p, const char *name, const char *array) {
  char header[256];
  (void)snprintf(header, sizeof header,
                 "{\"%s\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]}}", array);
  made file = with_header(header, 1);
  put(p, name, file.bytes, file.size);
}

static void test_opens_folders(void **state) {
  static const char *const names[] = {"1.safetensors", "2.safetensors", "model.safetensors",
                                      "model.safetensors.index.json", NULL};
  static const char index[] = "{\"weight_map\": {\"x\": \"1.safetensors\", \"y\": "
                              "\"2.safetensors\", \"x2\": \"1.safetensors\"}}";
  static const char outside[] = "{\"weight_map\": {\"x\": \"../1.safetensors\"}}";
  tsr__weight_files weights;
  const tsr__safetensors *file;
  tsr_error error = {0};
  place p = new_place();
  (void)state;
  assert_int_equal(tsr__weight_files_open(p.folder, &weights, &error), TSR_ERROR_IO);
  assert_non_null(strstr(error.message, "neither"));
  put_array(&p, names[0], "x");
  put_array(&p, names[1], "y");
  put(&p, names[3], index, sizeof index - 1);
  assert_int_equal(tsr__weight_files_open(p.folder, &weights, NULL), 0);
  assert_int_equal(weights.file_count, 2);
  assert_non_null(tsr__weight_files_find(&weights, "y", &file));
  assert_ptr_equal(file, &weights.files[1]);
  assert_null(tsr__weight_files_find(&weights, "z", &file));
  tsr__weight_files_release(&weights);
  put_array(&p, names[1], "x"); /* twice */
  assert_int_equal(tsr__weight_files_open(p.folder, &weights, &error), TSR_ERROR_FORMAT);
  assert_non_null(strstr(error.message, "in two files"));
  put(&p, names[1], "short", 5);
  assert_int_equal(tsr__weight_files_open(p.folder, &weights, &error), TSR_ERROR_FORMAT);
  assert_non_null(strstr(error.message, "2.safetensors"));
  put(&p, names[3], outside, sizeof outside - 1);
  assert_int_equal(tsr__weight_files_open(p.folder, &weights, &error), TSR_ERROR_FORMAT);
  assert_non_null(strstr(error.message, "not a plain file name"));
  put_array(&p, names[2], "z"); /* goes before the index */
  assert_int_equal(tsr__weight_files_open(p.folder, &weights, NULL), 0);
  assert_non_null(tsr__weight_files_find(&weights, "z", &file));
  tsr__weight_files_release(&weights);
  end_place(&p, names);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reads_a_header),
      cmocka_unit_test(test_no_arrays_are_a_file),
      cmocka_unit_test(test_refuses_damaged_headers),
      cmocka_unit_test(test_the_length_is_checked_before_memory_is_taken),
      cmocka_unit_test(test_reads_what_it_wrote),
      cmocka_unit_test(test_says_that_writing_failed),
      cmocka_unit_test(test_no_such_file),
      cmocka_unit_test(test_opens_folders),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
