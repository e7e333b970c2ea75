/* snapshot_support.h - for tests of the readers: reads bytes whole or through a narrow window, and
 * compares the results. */
#ifndef TSR_TEST_SNAPSHOT_SUPPORT_H
#define TSR_TEST_SNAPSHOT_SUPPORT_H

#include <string.h>

#include "formats/assemble.h"
#include "formats/open.h"
#include "formats/sidecar.h"
#include "io/source.h"
#include "test_support.h"

/* ---- reading, whole or through a narrow window ---- */

typedef struct slow_stream {
  tsr__stream base;
  const char *data;
  size_t size, chunk;
} slow_stream;

static inline ptrdiff_t slow_read(tsr__stream *stream, unsigned char *buffer, size_t size,
                                  tsr_error *error) {
  (void)error;
  slow_stream *slow = (slow_stream *)stream;
  if (size > slow->chunk) size = slow->chunk;
  if (size > slow->size) size = slow->size;
  if (size) memcpy(buffer, slow->data, size);
  slow->data += size;
  slow->size -= size;
  return (ptrdiff_t)size;
}

static inline void slow_close(tsr__stream *stream) {
  (void)stream;
}

typedef int snapshot_reader(tsr__input *source, tsr__assembler *assembler,
                            const tsr_open_options *options, uint64_t total_bytes,
                            tsr_error *error);

/* `chunk` bytes at a time; 0: all at once, from a copy without a byte to spare. */
static inline int read_in_chunks(snapshot_reader *read, const void *data, size_t size, size_t chunk,
                                 const tsr_limits *limits, tsr_snapshot **out, tsr_error *error) {
  slow_stream slow = {{.read = slow_read, .close = slow_close}, data, size, chunk};
  tsr__input source;
  char *copy = tsr__realloc(NULL, size ? size : 1, 1);
  assert_non_null(copy);
  if (size) memcpy(copy, data, size);
  if (chunk)
    assert_int_equal(tsr__input_open_sized(&source, &slow.base, 2, error), 0);
  else
    tsr__input_memory(&source, copy, size);
  tsr__builder builder;
  assert_true(tsr__builder_init(&builder, limits));
  tsr__assembler assembler;
  tsr__assembler_init(&assembler, &builder);
  int status = read(&source, &assembler, NULL, size, error);
  tsr__assembler_release(&assembler);
  tsr__input_close(&source);
  tsr__free(copy);
  if (!status) status = tsr__builder_finish(&builder, out, error);
  if (!status) assert_null(tsr__snapshot_check(*out));
  tsr__builder_release(&builder);
  return status;
}

/* The snapshot in a JSON text, with a sidecar that is a text as well. */
static inline int read_with_sidecar(const char *json, size_t size_bytes, const char *sidecar,
                                    tsr_snapshot **out, tsr_error *error) {
  tsr__builder builder = {0};
  tsr__input source;
  tsr__input_memory(&source, json, size_bytes);
  int status = tsr__snapshot_from_source(&source, size_bytes, "", NULL, &builder, error);
  if (!status) status = tsr__sidecar_read(&builder, sidecar, strlen(sidecar), error);
  if (!status) status = tsr__builder_finish(&builder, out, error);
  tsr__builder_release(&builder);
  return status;
}

/* ---- comparing ---- */

static inline uint64_t warned(const tsr_snapshot *snapshot, const char *code) {
  size_t count;
  const tsr_warning *warnings = tsr_snapshot_warnings(snapshot, &count);
  for (size_t i = 0; i < count; i++)
    if (!strcmp(warnings[i].code, code)) return warnings[i].count;
  return 0;
}

static inline void assert_text(const tsr_snapshot *snapshot, uint32_t string,
                               const char *expected) {
  tsr_text text = tsr_snapshot_string(snapshot, string);
  assert_int_equal(text.size_bytes, strlen(expected));
  assert_memory_equal(text.data, expected, text.size_bytes);
}

#define ASSERT_SAME_TABLE(a, b, field, count) \
  if (count) assert_memory_equal((a)->field, (b)->field, (count) * sizeof *(a)->field)

static inline void assert_same_ids(const tsr__intern *a, const tsr__intern *b) {
  assert_int_equal(a->count, b->count);
  for (uint32_t i = 0; i < a->count; i++) {
    assert_int_equal(a->items[i].size_bytes, b->items[i].size_bytes);
    assert_memory_equal(a->items[i].data, b->items[i].data, a->items[i].size_bytes);
  }
}

static inline void assert_same_column(const tsr__id_vector *a, const tsr__id_vector *b,
                                      uint64_t count) {
  for (uint64_t row = 0; row < count; row++)
    assert_int_equal(a->values ? a->values[row] : a->uniform,
                     b->values ? b->values[row] : b->uniform);
}

/* The same rows with the same ids, and the same warnings. */
static inline void assert_same(const tsr_snapshot *a, const tsr_snapshot *b) {
  assert_same_ids(&a->strings, &b->strings);
  assert_same_ids(&a->frames, &b->frames);
  assert_same_ids(&a->stacks, &b->stacks);
  assert_same_ids(&a->pools, &b->pools);
  assert_same_ids(&a->streams, &b->streams);
  assert_int_equal(a->events.count, b->events.count);
  uint64_t count = a->events.count;
  ASSERT_SAME_TABLE(&a->events, &b->events, action, count);
  ASSERT_SAME_TABLE(&a->events, &b->events, addr, count);
  ASSERT_SAME_TABLE(&a->events, &b->events, size, count);
  ASSERT_SAME_TABLE(&a->events, &b->events, time_us, count);
  ASSERT_SAME_TABLE(&a->events, &b->events, stack, count);
  assert_same_column(&a->events.stream, &b->events.stream, count);
  assert_same_column(&a->events.pool, &b->events.pool, count);
  assert_same_column(&a->events.context, &b->events.context, count);
  assert_same_column(&a->events.metadata, &b->events.metadata, count);
  assert_int_equal(a->blocks.count, b->blocks.count);
  for (size_t i = 0; i < a->blocks.count; i++) {
    assert_int_equal(a->blocks.items[i].address, b->blocks.items[i].address);
    assert_int_equal(a->blocks.items[i].requested_bytes, b->blocks.items[i].requested_bytes);
    assert_int_equal(a->blocks.items[i].stack, b->blocks.items[i].stack);
    assert_int_equal(a->blocks.items[i].state, b->blocks.items[i].state);
  }
  assert_int_equal(a->segments.count, b->segments.count);
  for (size_t i = 0; i < a->segments.count; i++) {
    assert_int_equal(a->segments.items[i].address, b->segments.items[i].address);
    assert_int_equal(a->segments.items[i].first_block, b->segments.items[i].first_block);
    assert_int_equal(a->segments.items[i].block_count, b->segments.items[i].block_count);
    assert_int_equal(a->segments.items[i].pool, b->segments.items[i].pool);
  }
  assert_int_equal(a->annotations.count, b->annotations.count);
  assert_int_equal(a->history.count, b->history.count);
  assert_int_equal(a->loose_values.count, b->loose_values.count);
  assert_int_equal(a->extras.count, b->extras.count);
  assert_memory_equal(a->tally, b->tally, sizeof a->tally);
}

#endif
