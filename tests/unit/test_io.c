/* Tests of the streams of io/: every form, whole, cut and damaged, in pieces of awkward sizes. */
#include <stdio.h>

#include "io_support.h"
#include "tessera/unstable/columns.h"

/* ---- detection ---- */

static tsr__form detect(const char *bytes, size_t size) {
  return tsr__detect((const unsigned char *)bytes, size);
}

static void detects_forms(void **state) {
  (void)state;
  assert_int_equal(detect("", 0), TSR__FORM_PLAIN);
  assert_int_equal(detect("\x80\x04}(", 4), TSR__FORM_PLAIN);
  assert_int_equal(detect("{\"segments\": []}", 16), TSR__FORM_PLAIN);
  assert_int_equal(detect("\x1f", 1), TSR__FORM_PLAIN);
  assert_int_equal(detect("\x1f\x8b", 2), TSR__FORM_GZIP);
  assert_int_equal(detect("\x28\xb5\x2f\xfd", 4), TSR__FORM_ZSTD);
  assert_int_equal(detect("\x5f\x2a\x4d\x18", 4), TSR__FORM_ZSTD);
  assert_int_equal(detect("\x60\x2a\x4d\x18", 4), TSR__FORM_PLAIN);
  assert_int_equal(detect("\xfd"
                          "7zXZ\0",
                          6),
                   TSR__FORM_XZ);
  assert_int_equal(detect("PK\3\4", 4), TSR__FORM_ZIP);
  assert_int_equal(detect("PK\5\6", 4), TSR__FORM_ZIP);
  assert_int_equal(detect(" \r\n\t<!DOCTYPE html>", 18), TSR__FORM_HTML);
  assert_int_equal(detect("\xef\xbb\xbf<Html>", 9), TSR__FORM_HTML);
  assert_int_equal(detect("<", 1), TSR__FORM_PLAIN);
  assert_int_equal(detect("< 3", 3), TSR__FORM_PLAIN);
  assert_int_equal(detect("    ", 4), TSR__FORM_PLAIN);
}

/* The magic and the sum of all bytes, in which the sum itself counts as blanks. */
static void fill_tar_header(char header[512]) {
  unsigned sum = 0;
  memcpy(header + 257, "ustar", 5);
  memset(header + 148, ' ', 8);
  for (size_t i = 0; i < 512; i++) sum += (unsigned char)header[i];
  (void)snprintf(header + 148, 7, "%06o", sum);
}

/* "ustar" may stand in any text, even where tar archives have it. */
static void knows_tar_by_its_sum(void **state) {
  (void)state;
  char header[512] = "{";
  fill_tar_header(header);
  assert_int_equal(detect(header, sizeof header), TSR__FORM_TAR);
  assert_int_equal(detect(header, sizeof header - 1), TSR__FORM_PLAIN);
  header[300]++;
  assert_int_equal(detect(header, sizeof header), TSR__FORM_PLAIN);
}

static void refuses_forms(void **state) {
  (void)state;
  char tar[512] = "snapshot.pickle";
  fill_tar_header(tar);
  const struct {
    const char *bytes;
    size_t size;
    const char *message;
  } refused[] = {
      {"BZh91AY", 7, "bzip2 is not supported; recompress with zstd or gzip"},
      {"\x04\x22\x4d\x18zz", 6, "lz4 is not supported"},
      {"7z\xbc\xaf\x27\x1c", 6, "7z archives are not supported"},
      {tar, sizeof tar, "tar archives are not supported"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    tsr__buffer bytes = bytes_of(refused[i].bytes, refused[i].size);
    assert_fails(&bytes, TSR_ERROR_UNSUPPORTED, refused[i].message);
    tsr__buffer outer = packed(put_gzip, &bytes);
    assert_fails(&outer, TSR_ERROR_UNSUPPORTED, refused[i].message);
    tsr__buffer_release(&outer);
    tsr__buffer_release(&bytes);
  }
}

static void plain_stays_plain(void **state) {
  (void)state;
  tsr__buffer text = sample(SAMPLE_BYTES), nothing = {0};
  assert_whole(&text, &text, "");
  assert_whole(&nothing, &nothing, "");
  tsr__buffer_release(&text);
}

/* ---- all forms alike ---- */

static void reads_every_form_in_any_pieces(void **state) {
  (void)state;
  static const size_t pieces[] = {1, 7, 4096, 1 << 20};
  tsr__buffer text = sample(SAMPLE_BYTES);
  for (size_t f = 0; f < FORM_COUNT; f++) {
    tsr__buffer bytes = packed(FORMS[f].put, &text);
    for (size_t in = 0; in < 4; in++)
      for (size_t out = 0; out < 4; out++) {
        tsr__stream *bottom = new_trickle(&bytes, pieces[in], SIZE_MAX);
        outcome o = unwrap_stream(bottom, pieces[out], NULL);
        assert_int_equal(o.status, 0);
        assert_string_equal(o.format, FORMS[f].format);
        assert_int_equal(o.data.size, text.size);
        assert_true(is_prefix(&o.data, &text));
        assert_int_equal(o.ending, TSR__ENDING_WHOLE);
        assert_true(o.stored_bytes <= bytes.size);
        release(&o);
      }
    tsr__buffer_release(&bytes);
  }
  tsr__buffer_release(&text);
}

/* Wherever it is cut: a prefix and the word that it was cut, or an error before the first byte. */
static void tells_that_input_was_cut(void **state) {
  (void)state;
  tsr__buffer text = sample(SAMPLE_BYTES);
  for (size_t f = 0; f < FORM_COUNT; f++) {
    tsr__buffer bytes = packed(FORMS[f].put, &text);
    size_t needed = bytes.size - (FORMS[f].put == put_page ? 70 : 0);
    if (FORMS[f].put == put_zip) needed = bytes.size - 64;
    unsigned answered = 0;
    for (size_t i = 1; i < 60; i++) {
      tsr__buffer part = {.data = bytes.data, .size = i < 20 ? i + 5 : needed * i / 60};
      if (i >= 55) part.size = needed - (60 - i);
      outcome o = unwrap(&part);
      assert_true(o.status == 0 || o.status == TSR_ERROR_FORMAT);
      assert_true(is_prefix(&o.data, &text));
      if (!o.status) assert_int_equal(o.ending, TSR__ENDING_CUT);
      if (!o.status) assert_true(o.data.size > 0);
      answered += !o.status;
      release(&o);
    }
    assert_true(answered > 5);
    tsr__buffer_release(&bytes);
  }
  tsr__buffer_release(&text);
}

static void tells_that_input_was_damaged(void **state) {
  (void)state;
  tsr__buffer text = sample(SAMPLE_BYTES);
  for (size_t f = 0; f < 4; f++) { /* a page has no sum */
    tsr__buffer bytes = packed(FORMS[f].put, &text);
    for (size_t i = 0; i < 50; i++) {
      size_t at = 100 + (bytes.size - 200) * i / 50;
      bytes.data[at] ^= 0x55;
      outcome o = unwrap(&bytes);
      assert_true(o.status == TSR_ERROR_FORMAT || o.status == 0);
      if (!o.status) assert_int_not_equal(o.ending, TSR__ENDING_WHOLE);
      release(&o);
      bytes.data[at] ^= 0x55;
    }
    tsr__buffer_release(&bytes);
  }
  tsr__buffer_release(&text);
}

static void garbage_behind_a_magic_number_fails(void **state) {
  (void)state;
  static const char xz_magic[] = "\xfd"
                                 "7zXZ"; /* apart, or the 7 would belong to the escape */
  static const char *const magics[] = {"\x1f\x8b", "\x28\xb5\x2f\xfd", xz_magic, "PK\3\4",
                                       "<html>"};
  for (size_t f = 0; f < FORM_COUNT; f++) {
    tsr__buffer bytes = {0};
    tsr__buffer_text(&bytes, magics[f]);
    tsr__buffer_fill(&bytes, 0, f == 2);
    tsr__buffer_fill(&bytes, (char)0xee, 300);
    assert_fails(&bytes, TSR_ERROR_FORMAT, "");
    tsr__buffer_release(&bytes);
  }
}

static void passes_errors_of_the_bottom_on(void **state) {
  (void)state;
  tsr__buffer text = sample(SAMPLE_BYTES);
  for (size_t f = 0; f < FORM_COUNT; f++) {
    tsr__buffer bytes = packed(FORMS[f].put, &text);
    for (size_t at = 0; at < bytes.size; at += 1 + bytes.size / 3) {
      outcome o = unwrap_stream(new_trickle(&bytes, 100, at), 5000, NULL);
      assert_int_equal(o.status, TSR_ERROR_IO);
      assert_string_equal(o.error.message, "no more");
      release(&o);
    }
    tsr__buffer_release(&bytes);
  }
  tsr__buffer_release(&text);
}

static void empty_content_is_empty(void **state) {
  (void)state;
  tsr__buffer nothing = {0};
  for (size_t f = 0; f < 4; f++) {
    tsr__buffer bytes = packed(FORMS[f].put, &nothing);
    assert_whole(&bytes, &nothing, FORMS[f].format);
    tsr__buffer_release(&bytes);
  }
}

/* ---- layers ---- */

static void takes_off_four_layers(void **state) {
  (void)state;
  tsr__buffer text = sample(SAMPLE_BYTES);
  tsr__buffer page = packed(put_page, &text), zip = packed(put_zip, &page);
  tsr__buffer xz = packed(put_xz, &zip), gzip = packed(put_gzip, &xz);
  assert_whole(&gzip, &text, "gzip xz zip html ");
  tsr__buffer fifth = packed(put_zstd, &gzip);
  assert_fails(&fifth, TSR_ERROR_LIMIT, "more than 4 layers");
  gzip.size /= 2; /* a cut is reported through all layers */
  assert_ends(&gzip, &text, TSR__ENDING_CUT);
  tsr__buffer *all[] = {&text, &page, &zip, &xz, &gzip, &fifth};
  for (size_t i = 0; i < 6; i++) tsr__buffer_release(all[i]);
}

/* ---- bombs ---- */

static void bombs_end_at_the_limit(void **state) {
  (void)state;
  tsr__buffer zeros = {0};
  tsr__buffer_fill(&zeros, 0, 8 << 20);
  tsr_limits limits = {.expansion_base_bytes = 100000, .expansion_ratio = 20};
  for (size_t f = 0; f < 4; f++) {
    tsr__buffer bytes = packed(FORMS[f].put, &zeros);
    outcome o = unwrap_stream(new_trickle(&bytes, 500, SIZE_MAX), 4096, &limits);
    assert_int_equal(o.status, TSR_ERROR_LIMIT);
    assert_non_null(strstr(o.error.message, "tsr_limits.expansion_ratio"));
    assert_true(o.data.size <= 100000 + 20 * bytes.size);
    assert_true(o.error.offset > o.data.size && o.error.offset <= o.data.size + 4096);
    release(&o);
    assert_whole(&bytes, &zeros, FORMS[f].format); /* within the defaults */
    tsr__buffer_release(&bytes);
  }
  tsr__buffer_release(&zeros);
}

static void nested_bombs_gain_nothing(void **state) {
  (void)state;
  tsr__buffer zeros = {0};
  tsr__buffer_fill(&zeros, 0, 8 << 20);
  tsr__buffer inner = packed(put_gzip, &zeros), outer = packed(put_gzip, &inner);
  tsr_limits limits = {.expansion_base_bytes = 10000, .expansion_ratio = 1100};
  outcome o = unwrap_stream(new_trickle(&inner, 500, SIZE_MAX), 4096, &limits);
  assert_int_equal(o.status, 0);
  release(&o);
  o = unwrap_stream(new_trickle(&outer, 500, SIZE_MAX), 4096, &limits);
  assert_int_equal(o.status, TSR_ERROR_LIMIT);
  release(&o);
  tsr__buffer_release(&zeros);
  tsr__buffer_release(&inner);
  tsr__buffer_release(&outer);
}

static void decoders_have_bounded_memory(void **state) {
  (void)state;
  tsr__buffer text = sample(SAMPLE_BYTES);
  tsr_limits limits = {.memory_bytes = 64 << 10};
  for (size_t f = 1; f < 3; f++) {
    tsr__buffer bytes = packed(FORMS[f].put, &text);
    outcome o = unwrap_stream(new_trickle(&bytes, 500, SIZE_MAX), 4096, &limits);
    assert_int_equal(o.status, TSR_ERROR_LIMIT);
    assert_non_null(strstr(o.error.message, "tsr_limits.memory_bytes"));
    release(&o);
    tsr__buffer_release(&bytes);
  }
  tsr__buffer_release(&text);
}

/* ---- several members ---- */

static void reads_all_members(void **state) {
  (void)state;
  tsr__buffer text = sample(SAMPLE_BYTES), first = text, second = text;
  first.size = 30000;
  second.data += first.size;
  second.size -= first.size;
  for (size_t f = 0; f < 3; f++) {
    tsr__buffer bytes = packed(FORMS[f].put, &first);
    size_t one = bytes.size;
    if (f == 1) tsr__buffer_append(&bytes, "\x50\x2a\x4d\x18\3\0\0\0xyz", 11);
    if (f == 2) tsr__buffer_fill(&bytes, 0, 8);
    FORMS[f].put(&bytes, &second);
    assert_whole(&bytes, &text, FORMS[f].format);
    size_t all = bytes.size;
    bytes.size = one + (all - one) / 2;
    assert_ends(&bytes, &text, TSR__ENDING_CUT);
    bytes.size = all;
    if (f < 2) {
      tsr__buffer_text(&bytes, "garbage behind it");
      assert_whole(&bytes, &text, FORMS[f].format);
      bytes.size = all;
      tsr__buffer_fill(&bytes, 0, 100000);
      assert_whole(&bytes, &text, FORMS[f].format);
    } else {
      tsr__buffer_text(&bytes, "garbage behind it");
      assert_ends(&bytes, &text, TSR__ENDING_DAMAGED);
    }
    tsr__buffer_release(&bytes);
  }
  tsr__buffer bytes = packed(put_gzip, &text); /* half a magic number, and half of a wrong one */
  tsr__buffer_append(&bytes, "\x1f", 1);
  assert_whole(&bytes, &text, "gzip ");
  tsr__buffer_append(&bytes, "\x8c", 1);
  assert_whole(&bytes, &text, "gzip ");
  tsr__buffer_release(&bytes);
  tsr__buffer_release(&text);
}

/* A skippable frame may come first. */
static void skips_zstd_frames(void **state) {
  (void)state;
  tsr__buffer text = sample(5000), bytes = bytes_of("\x5a\x2a\x4d\x18\4\0\0\0abcd", 12);
  put_zstd(&bytes, &text);
  assert_whole(&bytes, &text, "zstd ");
  tsr__buffer_release(&bytes);
  tsr__buffer_release(&text);
}

/* A frame whose header names a dictionary. */
static void refuses_zstd_dictionaries(void **state) {
  (void)state;
  tsr__buffer bytes = bytes_of("\x28\xb5\x2f\xfd\x01\x40\x07\x01\x00\x00", 10);
  assert_fails(&bytes, TSR_ERROR_UNSUPPORTED, "dictionary");
  tsr__buffer_release(&bytes);
}

/* ---- snapshots ---- */

static const char TINY[] = "\x80\x04}(\x8c\x08segments]\x8c\rdevice_traces]u.";

typedef struct told {
  uint64_t done, total;
  unsigned calls;
} told;

static bool tell(void *context, uint64_t done_bytes, uint64_t total_bytes) {
  told *t = context;
  assert_true(done_bytes >= t->done && done_bytes <= total_bytes);
  *t = (told){done_bytes, total_bytes, t->calls + 1};
  return true;
}

static void opens_wrapped_snapshots(void **state) {
  (void)state;
  tsr__buffer pickle = bytes_of(TINY, sizeof TINY - 1);
  tsr__buffer_fill(&pickle, 0, 3);
  static const char *const formats[] = {"gzip pickle", "zstd pickle", "xz pickle", "zip pickle",
                                        "html pickle"};
  for (size_t f = 0; f < FORM_COUNT; f++) {
    tsr__buffer bytes = packed(FORMS[f].put, &pickle);
    told progress = {0};
    tsr_open_options how = {.progress = tell, .progress_context = &progress};
    tsr_snapshot *snapshot = NULL;
    assert_int_equal(tsr_snapshot_read(bytes.data, bytes.size, &how, &snapshot, NULL), 0);
    assert_string_equal(tsr_snapshot_format(snapshot), formats[f]);
    assert_int_equal(tsr_snapshot_input_bytes(snapshot), bytes.size);
    size_t count;
    (void)tsr_snapshot_warnings(snapshot, &count);
    assert_int_equal(count, 0);
    assert_true(progress.calls > 0);
    assert_int_equal(progress.total, bytes.size);
    tsr_snapshot_free(snapshot);
    tsr__buffer_release(&bytes);
  }
  tsr__buffer_release(&pickle);
}

/* The pickle is whole, but not what it came in: its sum was never checked. */
static void warns_of_a_missing_end(void **state) {
  (void)state;
  tsr__buffer pickle = bytes_of(TINY, sizeof TINY - 1), bytes = packed(put_gzip, &pickle);
  tsr_snapshot *snapshot = NULL;
  assert_int_equal(tsr_snapshot_read(bytes.data, bytes.size - 5, NULL, &snapshot, NULL), 0);
  size_t count;
  const tsr_warning *warnings = tsr_snapshot_warnings(snapshot, &count);
  assert_int_equal(count, 1);
  assert_string_equal(warnings[0].code, "truncated");
  assert_int_equal(warnings[0].count, 1);
  tsr_snapshot_free(snapshot);
  tsr__buffer_release(&bytes);
  tsr__buffer_release(&pickle);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(detects_forms),
      cmocka_unit_test(knows_tar_by_its_sum),
      cmocka_unit_test(refuses_forms),
      cmocka_unit_test(plain_stays_plain),
      cmocka_unit_test(reads_every_form_in_any_pieces),
      cmocka_unit_test(tells_that_input_was_cut),
      cmocka_unit_test(tells_that_input_was_damaged),
      cmocka_unit_test(garbage_behind_a_magic_number_fails),
      cmocka_unit_test(passes_errors_of_the_bottom_on),
      cmocka_unit_test(empty_content_is_empty),
      cmocka_unit_test(takes_off_four_layers),
      cmocka_unit_test(bombs_end_at_the_limit),
      cmocka_unit_test(nested_bombs_gain_nothing),
      cmocka_unit_test(decoders_have_bounded_memory),
      cmocka_unit_test(reads_all_members),
      cmocka_unit_test(skips_zstd_frames),
      cmocka_unit_test(refuses_zstd_dictionaries),
      cmocka_unit_test(opens_wrapped_snapshots),
      cmocka_unit_test(warns_of_a_missing_end),
  };
  return cmocka_run_group_tests_name("io", tests, NULL, NULL);
}
