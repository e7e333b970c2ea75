/* io_support.h - for tests of streams: makes inputs of every form, feeds them in pieces, and
 * compares the result. */
#ifndef TSR_TEST_IO_SUPPORT_H
#define TSR_TEST_IO_SUPPORT_H

#include <lzma.h>
#include <stdlib.h>
#include <string.h>
#define ZLIB_CONST
#include <zlib.h>
#include <zstd.h>

#include "base/buffer.h"
#include "io/detect.h"
#include "io/forms.h"
#include "test_support.h"

enum { SAMPLE_BYTES = 300000, LONGEST_FORMAT = 64 };

/* ---- a bottom that delivers in pieces, and may fail ---- */

typedef struct trickle {
  tsr__stream base;
  const tsr__buffer *bytes;
  size_t next, piece, fail_at;
} trickle;

static unsigned open_streams;

static inline ptrdiff_t trickle_read(tsr__stream *stream, unsigned char *buffer, size_t size,
                                     tsr_error *error) {
  trickle *t = (trickle *)stream;
  if (t->next >= t->fail_at) return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "no more");
  if (size > t->piece) size = t->piece;
  if (size > t->bytes->size - t->next) size = t->bytes->size - t->next;
  if (size) memcpy(buffer, t->bytes->data + t->next, size);
  t->next += size;
  return (ptrdiff_t)size;
}

static inline void trickle_close(tsr__stream *stream) {
  open_streams--;
  free(stream);
}

static inline tsr__stream *new_trickle(const tsr__buffer *bytes, size_t piece, size_t fail_at) {
  trickle *t = calloc(1, sizeof *t);
  assert_non_null(t);
  *t = (trickle){.base = {.read = trickle_read, .close = trickle_close},
                 .bytes = bytes,
                 .piece = piece,
                 .fail_at = fail_at};
  open_streams++;
  return &t->base;
}

/* ---- unwrapping and looking at what came out ---- */

typedef struct outcome {
  int status;
  tsr_error error;
  tsr__buffer data;
  char format[LONGEST_FORMAT];
  tsr__ending ending;
  uint32_t more_payloads;
  uint64_t stored_bytes;
} outcome;

static inline void drain(tsr__stream *stream, size_t piece, outcome *o) {
  unsigned char *buffer = malloc(piece);
  assert_non_null(buffer);
  ptrdiff_t got;
  while ((got = tsr__stream_read(stream, buffer, piece, &o->error)) > 0)
    tsr__buffer_append(&o->data, buffer, (size_t)got);
  o->status = (int)got;
  if (!got) assert_int_equal(tsr__stream_read(stream, buffer, piece, NULL), 0);
  o->ending = stream->ending;
  o->more_payloads = tsr__stream_more_payloads(stream);
  o->stored_bytes = tsr__stream_stored_bytes(stream);
  assert_int_equal(stream->delivered_bytes, o->data.size);
  stream->close(stream);
  free(buffer);
}

static inline outcome unwrap_stream(tsr__stream *stream, size_t piece, const tsr_limits *limits) {
  static const tsr_limits defaults;
  outcome o = {0};
  tsr__wrapping wrapping = {.limits = limits ? limits : &defaults};
  o.status = tsr__stream_unwrap(&stream, &wrapping, &o.error);
  memcpy(o.format, wrapping.format, sizeof wrapping.format);
  if (!o.status) drain(stream, piece, &o);
  assert_int_equal(open_streams, 0);
  assert_false(o.data.failed);
  if (o.status) {
    assert_int_equal(o.error.status, o.status);
    assert_true(o.error.message[0]);
  } else {
    assert_int_equal(o.error.status, 0); /* untouched */
  }
  return o;
}

static inline outcome unwrap(const tsr__buffer *bytes) {
  return unwrap_stream(new_trickle(bytes, 1000, SIZE_MAX), 3000, NULL);
}

static inline void release(outcome *o) {
  tsr__buffer_release(&o->data);
}

static inline bool is_prefix(const tsr__buffer *part, const tsr__buffer *whole) {
  return part->size <= whole->size &&
         (!part->size || memcmp(part->data, whole->data, part->size) == 0);
}

static inline void assert_whole(const tsr__buffer *bytes, const tsr__buffer *content,
                                const char *format) {
  outcome o = unwrap(bytes);
  if (o.status) print_message("# %s: %s\n", format, o.error.message);
  assert_int_equal(o.status, 0);
  assert_string_equal(o.format, format);
  assert_int_equal(o.data.size, content->size);
  assert_true(is_prefix(&o.data, content));
  assert_int_equal(o.ending, TSR__ENDING_WHOLE);
  assert_int_equal(o.more_payloads, 0);
  release(&o);
}

static inline void assert_ends(const tsr__buffer *bytes, const tsr__buffer *content,
                               tsr__ending ending) {
  outcome o = unwrap(bytes);
  assert_int_equal(o.status, 0);
  assert_true(o.data.size > 0);
  assert_true(is_prefix(&o.data, content));
  assert_int_equal(o.ending, ending);
  release(&o);
}

static inline void assert_fails(const tsr__buffer *bytes, int status, const char *message) {
  outcome o = unwrap(bytes);
  if (o.status && !strstr(o.error.message, message)) print_message("# %s\n", o.error.message);
  assert_int_equal(o.status, status);
  assert_non_null(strstr(o.error.message, message));
  release(&o);
}

/* ---- making inputs ---- */

/* Lines that repeat, and differ: they compress some ten times, in several blocks. */
static inline tsr__buffer sample(size_t size) {
  tsr__buffer text = {0};
  uint32_t seed = 1;
  for (size_t i = 0; text.size < size; i++) {
    seed = seed * 1664525 + 1013904223;
    tsr__buffer_printf(&text, "PK event %zu at 0x%08x of a stack of frames\n", i, (unsigned)seed);
  }
  text.size = size;
  return text;
}

static inline void put_deflated(tsr__buffer *out, const tsr__buffer *in, int window_bits) {
  z_stream z = {0};
  assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
  size_t bound = deflateBound(&z, in->size) + 32;
  unsigned char *packed = malloc(bound);
  assert_non_null(packed);
  z.next_in = (const unsigned char *)in->data;
  z.avail_in = (uInt)in->size;
  z.next_out = packed;
  z.avail_out = (uInt)bound;
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  tsr__buffer_append(out, packed, z.total_out);
  assert_int_equal(deflateEnd(&z), Z_OK);
  free(packed);
}

static inline void put_gzip(tsr__buffer *out, const tsr__buffer *in) {
  put_deflated(out, in, 15 + 16);
}

static inline void put_zstd(tsr__buffer *out, const tsr__buffer *in) {
  size_t bound = ZSTD_compressBound(in->size);
  unsigned char *packed = malloc(bound);
  ZSTD_CCtx *context = ZSTD_createCCtx();
  assert_true(packed && context);
  (void)ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  size_t size = ZSTD_compress2(context, packed, bound, in->data, in->size);
  assert_false(ZSTD_isError(size));
  tsr__buffer_append(out, packed, size);
  (void)ZSTD_freeCCtx(context);
  free(packed);
}

static inline void put_xz(tsr__buffer *out, const tsr__buffer *in) {
  size_t bound = lzma_stream_buffer_bound(in->size), size = 0;
  unsigned char *packed = malloc(bound);
  assert_non_null(packed);
  assert_int_equal(lzma_easy_buffer_encode(0, LZMA_CHECK_CRC32, NULL, (const uint8_t *)in->data,
                                           in->size, packed, &size, bound),
                   LZMA_OK);
  tsr__buffer_append(out, packed, size);
  free(packed);
}

static inline void put_base64(tsr__buffer *out, const tsr__buffer *in) {
  static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < in->size; i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; k++)
      group = group << 8 | (i + k < in->size ? (unsigned char)in->data[i + k] : 0);
    char text[4];
    for (size_t k = 0; k < 4; k++)
      text[k] = i + k > in->size ? '=' : alphabet[group >> (18 - 6 * k) & 63];
    tsr__buffer_append(out, text, 4);
  }
}

static inline void put_page(tsr__buffer *out, const tsr__buffer *in) {
  tsr__buffer_text(out, "\n<!DOCTYPE html>\n<html>\n<script>import {add_local_files} from 'x'\n"
                        "const local_files = [{\"name\": \"snapshot.pickle\", \"base64\": \"");
  put_base64(out, in);
  tsr__buffer_text(out, "\"}]\nadd_local_files(local_files, 'View')\n</script></html>");
}

static inline void put_u16(tsr__buffer *out, unsigned value) {
  char bytes[2] = {(char)value, (char)(value >> 8)};
  tsr__buffer_append(out, bytes, 2);
}

static inline void put_u32(tsr__buffer *out, uint32_t value) {
  put_u16(out, value & 0xffff);
  put_u16(out, value >> 16);
}

/* How a member is written: what its header and descriptor look like. */
typedef struct zip_style {
  bool deflated, descriptor, unsigned_descriptor, wide, padded;
  unsigned flags, method; /* in addition to what follows from the above */
  uint32_t crc_error;
} zip_style;

static inline void put_sizes(tsr__buffer *out, size_t stored, size_t whole, bool wide) {
  put_u32(out, (uint32_t)stored);
  if (wide) put_u32(out, 0);
  put_u32(out, (uint32_t)whole);
  if (wide) put_u32(out, 0);
}

static inline void put_member(tsr__buffer *out, const char *name, const tsr__buffer *in,
                              zip_style style) {
  tsr__buffer data = {0};
  if (style.deflated)
    put_deflated(&data, in, -15);
  else
    tsr__buffer_append(&data, in->data, in->size);
  uint32_t crc = (uint32_t)crc32_z(0, (const unsigned char *)in->data, in->size) + style.crc_error;
  bool wide_header = style.wide && !style.descriptor;
  tsr__buffer_append(out, "PK\3\4\24\0", 6);
  put_u16(out, (style.descriptor ? 8 : 0) | style.flags);
  put_u16(out, (style.deflated ? 8 : 0) | style.method);
  put_u32(out, 0); /* time */
  put_u32(out, style.descriptor ? 0 : crc);
  if (style.wide)
    put_sizes(out, UINT32_MAX, UINT32_MAX, false);
  else
    put_sizes(out, style.descriptor ? 0 : data.size, style.descriptor ? 0 : in->size, false);
  put_u16(out, (unsigned)strlen(name));
  put_u16(out, (style.wide ? 20u : 0) + (style.padded ? 18u : 0));
  tsr__buffer_text(out, name);
  if (style.padded) tsr__buffer_append(out, "FB\16\0ZZZZZZZZZZZZZZ", 18);
  if (style.wide) {
    put_u16(out, 1);
    put_u16(out, 16);
    put_sizes(out, wide_header ? in->size : 0, wide_header ? data.size : 0, true);
  }
  tsr__buffer_append(out, data.data, data.size);
  if (style.descriptor) {
    if (!style.unsigned_descriptor) tsr__buffer_append(out, "PK\7\10", 4);
    put_u32(out, crc);
    put_sizes(out, data.size, in->size, style.wide);
  }
  tsr__buffer_release(&data);
}

static inline void put_directory(tsr__buffer *out) {
  tsr__buffer_append(out, "PK\1\2", 4);
  tsr__buffer_fill(out, 'x', 60);
}

static inline void put_zip(tsr__buffer *out, const tsr__buffer *in) {
  put_member(out, "snapshot.pickle", in, (zip_style){.deflated = true});
  put_directory(out);
}

typedef void put_fn(tsr__buffer *out, const tsr__buffer *in);

static const struct {
  const char *format;
  put_fn *put;
} FORMS[] = {{"gzip ", put_gzip},
             {"zstd ", put_zstd},
             {"xz ", put_xz},
             {"zip ", put_zip},
             {"html ", put_page}};

enum { FORM_COUNT = sizeof FORMS / sizeof *FORMS };

static inline tsr__buffer packed(put_fn *put, const tsr__buffer *in) {
  tsr__buffer out = {0};
  put(&out, in);
  assert_false(out.failed);
  return out;
}

static inline tsr__buffer bytes_of(const void *data, size_t size) {
  tsr__buffer out = {0};
  tsr__buffer_append(&out, data, size);
  return out;
}

#endif
