/* Every allocation on the way through each form fails once. (What libzstd allocates is its own.) */
#include <lzma.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "../unit/test_support.h"
#include "base/buffer.h"
#include "io/detect.h"
#include "oom.h"

enum { TEXT_BYTES = 100000, ROOM_BYTES = 200000 };

/* The input of a form, and the expected output. */
typedef struct wrapped {
  unsigned char *text, *bytes;
  size_t size;
  const char *format;
} wrapped;

static int read_all(void *context) {
  const wrapped *w = context;
  static const tsr_limits limits;
  tsr__stream *stream;
  int status = tsr__stream_memory(w->bytes, w->size, &stream, NULL);
  if (status) return status;
  tsr__wrapping wrapping = {.limits = &limits};
  status = tsr__stream_unwrap(&stream, &wrapping, NULL);
  if (status) return status;
  assert_string_equal(wrapping.format, w->format);
  unsigned char piece[5000];
  size_t total = 0;
  ptrdiff_t got;
  while ((got = tsr__stream_read(stream, piece, sizeof piece, NULL)) > 0) {
    assert_memory_equal(piece, w->text + total, (size_t)got);
    total += (size_t)got;
  }
  if (!got) assert_int_equal(total, TEXT_BYTES);
  stream->close(stream);
  return (int)got;
}

static unsigned char text[TEXT_BYTES], room[ROOM_BYTES];

static wrapped make(const char *format, size_t size) {
  return (wrapped){.text = text, .bytes = room, .size = size, .format = format};
}

static void gzip(void **state) {
  (void)state;
  z_stream z = {.next_in = text, .avail_in = TEXT_BYTES, .next_out = room, .avail_out = ROOM_BYTES};
  assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  wrapped w = make("gzip ", z.total_out);
  assert_int_equal(deflateEnd(&z), Z_OK);
  tsr_test_oom(read_all, &w, 8);
}

static void zstd(void **state) {
  (void)state;
  size_t size = ZSTD_compress(room, ROOM_BYTES, text, TEXT_BYTES, 3);
  assert_false(ZSTD_isError(size));
  wrapped w = make("zstd ", size);
  tsr_test_oom(read_all, &w, 7);
}

static void xz(void **state) {
  (void)state;
  size_t size = 0;
  assert_int_equal(
      lzma_easy_buffer_encode(0, LZMA_CHECK_CRC32, NULL, text, TEXT_BYTES, room, &size, ROOM_BYTES),
      LZMA_OK);
  wrapped w = make("xz ", size);
  tsr_test_oom(read_all, &w, 10);
}

static void zip(void **state) {
  (void)state;
  static const unsigned char header[30] = {'P', 'K', 3, 4, 20, 0, 8, 0, 0, 0, [26] = 5};
  uint32_t tail[4] = {0x08074b50, (uint32_t)crc32(0, text, TEXT_BYTES), TEXT_BYTES, TEXT_BYTES};
  memcpy(room, header, 30);
  memcpy(room + 30, "a.pkl", 5);
  memcpy(room + 35, text, TEXT_BYTES);
  memcpy(room + 35 + TEXT_BYTES, tail, 16); /* little-endian machines */
  wrapped w = make("zip ", 35 + TEXT_BYTES + 16);
  tsr_test_oom(read_all, &w, 8);
}

/* The text is made so that its base64 is easy: "0000" is d3 4d 34. */
static void html(void **state) {
  (void)state;
  static const char head[] = "<html>local_files = [{'base64': '";
  memcpy(room, head, sizeof head - 1);
  size_t size = sizeof head - 1;
  for (size_t i = 0; i < TEXT_BYTES; i++) text[i] = (unsigned char)"\xd3\x4d\x34"[i % 3];
  memset(room + size, '0', (TEXT_BYTES * 8 + 5) / 6);
  size += (TEXT_BYTES * 8 + 5) / 6;
  room[size++] = '\'';
  wrapped w = make("html ", size);
  tsr_test_oom(read_all, &w, 6);
}

int main(void) {
  uint32_t seed = 1;
  for (size_t i = 0; i < TEXT_BYTES; i++) {
    seed = seed * 1664525 + 1013904223;
    text[i] = (unsigned char)(seed >> 28);
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gzip), cmocka_unit_test(zstd), cmocka_unit_test(xz),
      cmocka_unit_test(zip),  cmocka_unit_test(html),
  };
  return cmocka_run_group_tests_name("oom io", tests, NULL, NULL);
}
