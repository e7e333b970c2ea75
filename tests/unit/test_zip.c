/* Tests of io/zip.c and io/html.c: containers that are searched for a snapshot. */
#include "io_support.h"

/* ---- zip ---- */

static const zip_style STYLES[] = {
    {.deflated = false},
    {.deflated = true},
    {.padded = true},
    {.wide = true, .padded = true},
    {.wide = true, .deflated = true},
    {.descriptor = true, .padded = true}, /* torch.save */
    {.descriptor = true, .wide = true},
    {.descriptor = true, .deflated = true},
    {.descriptor = true, .deflated = true, .wide = true},
    {.descriptor = true, .deflated = true, .unsigned_descriptor = true},
    {.descriptor = true, .deflated = true, .unsigned_descriptor = true, .wide = true},
};

enum { STYLE_COUNT = sizeof STYLES / sizeof *STYLES };

/* Every way to write the wanted member, after every way to write one that is not. */
static void reads_zip_members_however_written(void **state) {
  (void)state;
  tsr__buffer text = sample(SAMPLE_BYTES), nothing = {0};
  tsr__buffer other = sample(3000);
  tsr__buffer_append(&other, "PK\7\10 looks like a descriptor", 28);
  for (size_t first = 0; first < STYLE_COUNT; first++)
    for (size_t wanted = 0; wanted < STYLE_COUNT; wanted++) {
      tsr__buffer bytes = {0};
      put_member(&bytes, "archive/version", &other, STYLES[first]);
      put_member(&bytes, "archive/data/0", &nothing, STYLES[first]);
      put_member(&bytes, "archive/data.pkl", &text, STYLES[wanted]);
      put_member(&bytes, "archive/data/1", &other, STYLES[first]);
      put_directory(&bytes);
      assert_whole(&bytes, &text, "zip ");
      tsr__buffer_release(&bytes);
    }
  tsr__buffer_release(&other);
  tsr__buffer_release(&text);
}

static void chooses_zip_members_by_name(void **state) {
  (void)state;
  tsr__buffer text = sample(500), other = sample(300);
  static const char *const wanted[] = {"a.pickle", "x/DATA.PKL", "s.json",   "page.HTML",
                                       "p.htm",    "a.pkl.gz",   "a.pk.zst", "a.xz"};
  static const char *const passed[] = {"pkl", "a.pkl/", "a.txt", "__MACOSX/._a.pickle", ""};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    tsr__buffer bytes = {0};
    for (size_t k = 0; k < sizeof passed / sizeof *passed; k++)
      put_member(&bytes, passed[k], &other, STYLES[0]);
    size_t size = bytes.size;
    put_directory(&bytes);
    assert_fails(&bytes, TSR_ERROR_FORMAT, "contains no .pkl");
    bytes.size = size;
    assert_fails(&bytes, TSR_ERROR_FORMAT, "is truncated");
    put_member(&bytes, wanted[i], &text, STYLES[0]);
    assert_whole(&bytes, &text, "zip ");
    tsr__buffer_release(&bytes);
  }
  tsr__buffer_release(&other);
  tsr__buffer_release(&text);
}

static void refuses_zip_members(void **state) {
  (void)state;
  tsr__buffer text = sample(500), bytes = {0};
  put_member(&bytes, "a.pickle", &text, (zip_style){.flags = 1});
  assert_fails(&bytes, TSR_ERROR_UNSUPPORTED, "encrypted");
  bytes.size = 0;
  put_member(&bytes, "a.pickle", &text, (zip_style){.method = 14});
  assert_fails(&bytes, TSR_ERROR_UNSUPPORTED, "method 14");
  bytes.size = 0;
  put_member(&bytes, "a.txt", &text, (zip_style){.method = 14, .descriptor = true});
  assert_fails(&bytes, TSR_ERROR_UNSUPPORTED, "method 14");
  bytes.size = 0;
  put_member(&bytes, "a.txt", &text, (zip_style){.method = 14}); /* need not be read */
  put_member(&bytes, "a.pickle", &text, STYLES[0]);
  assert_whole(&bytes, &text, "zip ");
  bytes.size = 0;
  tsr__buffer_append(&bytes, "PK\5\6", 4);
  tsr__buffer_fill(&bytes, 0, 18);
  assert_fails(&bytes, TSR_ERROR_FORMAT, "contains no .pkl");
  tsr__buffer_release(&bytes);
  tsr__buffer_release(&text);
}

static void checks_zip_members(void **state) {
  (void)state;
  tsr__buffer text = sample(SAMPLE_BYTES), bytes = {0};
  for (size_t i = 0; i < STYLE_COUNT; i++) {
    zip_style style = STYLES[i];
    style.crc_error = 1;
    bytes.size = 0;
    put_member(&bytes, "a.pickle", &text, style);
    put_directory(&bytes);
    assert_ends(&bytes, &text, TSR__ENDING_DAMAGED);
  }
  bytes.size = 0;
  put_member(&bytes, "a.txt", &text, STYLES[0]);
  tsr__buffer_text(&bytes, "no header");
  assert_fails(&bytes, TSR_ERROR_FORMAT, "a member is missing");
  bytes.size = 0;
  put_member(&bytes, "a.txt", &text, STYLES[7]);
  bytes.data[bytes.size - 1] ^= 1;
  put_member(&bytes, "a.pickle", &text, STYLES[0]);
  assert_fails(&bytes, TSR_ERROR_FORMAT, "sizes");
  tsr__buffer_release(&bytes);
  tsr__buffer_release(&text);
}

/* ---- pages ---- */

static void page_with(tsr__buffer *out, const char *script) {
  out->size = 0;
  tsr__buffer_printf(out, "<html><script>const local_files = %s</script></html>", script);
}

static void reads_pages_however_written(void **state) {
  (void)state;
  static const char *const scripts[] = {
      "[{\"name\":\"s\",\"base64\":\"aGVsbG8=\"}]",
      "[{name: 's', base64: 'aGVsbG8'}]",
      "[{`base64` :\n `aGVs\n  bG8=`, x: 1}]",
      "[{\"name\": \"base64\", \"type\": \"data:base64,\", \"base64\": \"aGVsbG8====\"}]",
  };
  tsr__buffer page = {0}, text = bytes_of("hello", 5);
  for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
    page_with(&page, scripts[i]);
    assert_whole(&page, &text, "html ");
  }
  tsr__buffer_release(&text);
  tsr__buffer_release(&page);
}

static void reads_several_payloads(void **state) {
  (void)state;
  static const char *const texts[] = {"hello", "there", "world"};
  static const tsr_limits limits;
  tsr__buffer page = {0};
  page_with(&page, "[{\"base64\": \"aGVsbG8=\"}, {\"base64\": \"dGhlcmU=\"}, "
                   "{\"base64\": \"d29ybGQ=\"}]");
  for (uint32_t i = 0; i < 3; i++) {
    outcome o = {0};
    tsr__stream *stream = new_trickle(&page, 10, SIZE_MAX);
    assert_int_equal(tsr__stream_html_payload(stream, i, &stream, NULL), 0);
    drain(stream, 100, &o);
    assert_int_equal(o.data.size, 5);
    assert_memory_equal(o.data.data, texts[i], 5);
    assert_int_equal(o.more_payloads, 2);
    release(&o);
  }
  tsr_error error;
  tsr__stream *stream = new_trickle(&page, 10, SIZE_MAX);
  assert_int_equal(tsr__stream_html_payload(stream, 3, &stream, &error), TSR_ERROR_FORMAT);
  assert_string_equal(error.message, "the page contains only 3 snapshots");
  stream = new_trickle(&page, 10, SIZE_MAX);
  assert_int_equal(tsr__stream_html(stream, &limits, &stream, &error), 0);
  stream->close(stream);
  assert_int_equal(open_streams, 0);
  tsr__buffer_release(&page);
}

static void judges_bad_pages(void **state) {
  (void)state;
  tsr__buffer page = {0}, text = bytes_of("hello", 5);
  page_with(&page, "[]");
  assert_fails(&page, TSR_ERROR_FORMAT, "the page contains no snapshot");
  page_with(&page, "[{\"base64\": 3}]");
  assert_fails(&page, TSR_ERROR_FORMAT, "the page contains no snapshot");
  page_with(&page, "[{\"base64\": \"\"}]");
  assert_fails(&page, TSR_ERROR_FORMAT, "is empty");
  page_with(&page, "[{\"base64\": \"!!!!\"}]");
  assert_fails(&page, TSR_ERROR_FORMAT, "is not base64");
  page_with(&page, "[{\"base64\": \"aGVs!G8=\"}]");
  assert_ends(&page, &text, TSR__ENDING_DAMAGED);
  page.size = 0;
  tsr__buffer_text(&page, "<html>local_files = [{'base64': 'aGVs");
  assert_ends(&page, &text, TSR__ENDING_CUT);
  page.size = 0;
  tsr__buffer_text(&page, "<html>\"base64\": \"aGVsbG8=\""); /* of something else */
  assert_fails(&page, TSR_ERROR_FORMAT, "the page contains no snapshot");
  tsr__buffer_release(&text);
  tsr__buffer_release(&page);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_zip_members_however_written),
      cmocka_unit_test(chooses_zip_members_by_name),
      cmocka_unit_test(refuses_zip_members),
      cmocka_unit_test(checks_zip_members),
      cmocka_unit_test(reads_pages_however_written),
      cmocka_unit_test(reads_several_payloads),
      cmocka_unit_test(judges_bad_pages),
  };
  return cmocka_run_group_tests_name("zip", tests, NULL, NULL);
}
