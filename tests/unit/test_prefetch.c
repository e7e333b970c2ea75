/* test_prefetch.c - a window that is read ahead by a thread shows the same bytes as one that is
 * not. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "io/source.h"
#include "tessera/unstable/columns.h"
#include "test_support.h"

enum { SIZE = 3 << 20 };

/* A stream of known bytes, in pieces, that may fail on the way. */
typedef struct pieces {
  tsr__stream base;
  size_t piece, next, size;
  bool fails;
} pieces;

static unsigned char byte_at(size_t i) {
  return (unsigned char)(i * 2654435761u >> 13);
}

static ptrdiff_t pieces_read(tsr__stream *stream, unsigned char *buffer, size_t size,
                             tsr_error *error) {
  pieces *p = (pieces *)stream;
  if (p->next == p->size && p->fails)
    return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "the disk is gone");
  if (size > p->piece) size = p->piece;
  if (size > p->size - p->next) size = p->size - p->next;
  for (size_t i = 0; i < size; i++) buffer[i] = byte_at(p->next + i);
  p->next += size;
  return (ptrdiff_t)size;
}

static void pieces_close(tsr__stream *stream) {
  tsr__free(stream);
}

static void open_pieces(tsr__input *source, size_t size, bool fails) {
  pieces *p = TSR__NEW(pieces);
  assert_non_null(p);
  *p = (pieces){.base = {.read = pieces_read, .close = pieces_close},
                .piece = 70001,
                .size = size,
                .fails = fails};
  assert_int_equal(tsr__input_open(source, &p->base, NULL), 0);
  tsr__input_read_ahead(source, 0);
}

/* Consume `step` bytes at a time, keeping the rest of each window. */
static void check_all(size_t size, size_t step) {
  tsr__input source = {0};
  size_t seen = 0;
  open_pieces(&source, size, false);
  while (!source.at_end || source.size) {
    if (source.size < step && !source.at_end) {
      assert_int_equal(tsr__input_fill(&source, 0, NULL), 0);
      continue;
    }
    size_t take = source.size < step ? source.size : step;
    assert_int_equal(source.offset, seen);
    for (size_t i = 0; i < take; i++)
      if (source.data[i] != byte_at(seen + i)) fail_msg("byte %zu is wrong", seen + i);
    seen += take;
    assert_int_equal(tsr__input_fill(&source, take, NULL), 0);
  }
  assert_int_equal(seen, size);
  tsr__input_close(&source);
}

static void test_every_byte_arrives(void **state) {
  (void)state;
  check_all(SIZE, 500000);
  check_all(SIZE, 33333);
  check_all(512 << 10, 4096);
  check_all(1, 1);
  check_all(0, 1);
}

static void test_tokens_longer_than_a_window(void **state) {
  (void)state;
  check_all(SIZE, 1500000);
  check_all(SIZE, SIZE);
}

static void test_closing_early(void **state) {
  (void)state;
  tsr__input source = {0};
  open_pieces(&source, SIZE, false);
  tsr__input_close(&source);
  open_pieces(&source, SIZE, false);
  assert_int_equal(tsr__input_fill(&source, 0, NULL), 0);
  tsr__input_settle(&source);
  tsr__input_close(&source);
}

static void test_a_failing_stream(void **state) {
  (void)state;
  tsr__input source = {0};
  tsr_error error = {0};
  int status = 0;
  size_t seen = 0;
  open_pieces(&source, SIZE, true);
  while (!status) {
    seen += source.size;
    status = tsr__input_fill(&source, source.size, &error);
  }
  assert_int_equal(status, TSR_ERROR_IO);
  assert_string_equal(error.message, "the disk is gone");
  assert_int_equal(seen, SIZE);
  tsr__input_close(&source);
}

/* Memory that is prepared keeps its bytes, also what its owner frees or moves meanwhile. */
static void test_preparing_memory(void **state) {
  (void)state;
  enum { BYTES = 1 << 20 };
  tsr__input source = {0};
  unsigned char *kept = tsr__realloc(NULL, BYTES, 1), *freed = tsr__realloc(NULL, BYTES, 1);
  assert_non_null(kept);
  assert_non_null(freed);
  for (size_t i = 0; i < BYTES; i++) kept[i] = byte_at(i);
  tsr__region regions[TSR__REGIONS_MAX];
  for (size_t i = 0; i < TSR__REGIONS_MAX; i++) regions[i] = (tsr__region){kept + i, BYTES - i};
  regions[1] = (tsr__region){freed, BYTES};
  regions[2] = (tsr__region){NULL, 0};
  open_pieces(&source, SIZE, false);
  while (!source.at_end) {
    tsr__input_prepare(&source, regions, TSR__REGIONS_MAX);
    assert_int_equal(tsr__input_fill(&source, source.size, NULL), 0);
    tsr__free(freed);
    freed = NULL;
  }
  for (size_t i = 0; i < BYTES; i++) assert_int_equal(kept[i], byte_at(i));
  tsr__input_close(&source);
  /* Without a thread there is nobody to prepare anything. */
  tsr__input_memory(&source, kept, BYTES);
  tsr__input_prepare(&source, regions, 1);
  tsr__input_close(&source);
  tsr__free(kept);
}

static bool count_progress(void *context, uint64_t done_bytes, uint64_t total_bytes) {
  (void)total_bytes;
  *(uint64_t *)context = done_bytes;
  return true;
}

/* A file large enough to be read ahead, with the progress reported during it. */
static void test_a_large_file(void **state) {
  (void)state;
  const char *path = "prefetch.json";
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  (void)fputs("{\"segments\": [], \"device_traces\": [[]]", file);
  for (int i = 0; i < 60000; i++) (void)fprintf(file, ", \"key %d\": \"%0100d\"", i, i);
  (void)fputs("}", file);
  long size = ftell(file);
  (void)fclose(file);
  uint64_t done = 0;
  tsr_open_options options = {.progress = count_progress, .progress_context = &done};
  tsr_snapshot *snapshot = NULL;
  assert_int_equal(tsr_snapshot_open(path, &options, &snapshot, NULL), 0);
  assert_int_equal(tsr_snapshot_input_bytes(snapshot), size);
  assert_int_equal(done, size);
  tsr_snapshot_free(snapshot);
  (void)remove(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_byte_arrives), cmocka_unit_test(test_tokens_longer_than_a_window),
      cmocka_unit_test(test_closing_early),      cmocka_unit_test(test_a_failing_stream),
      cmocka_unit_test(test_preparing_memory),   cmocka_unit_test(test_a_large_file)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
