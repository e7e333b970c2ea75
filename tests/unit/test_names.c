/* What the program says of its memory: how a text is read, and which allocation it names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attribution/named.h"
#include "questions/shared/names.h"
#include "test_support.h"

static tsr_text text_of(const char *text) {
  return (tsr_text){text, strlen(text)};
}

static void check_remark(const char *text, const char *name, const char *category) {
  tsr__arena texts;
  tsr__remark remark;
  tsr__arena_init(&texts);
  assert_true(tsr__remark_read(text_of(text), &texts, &remark));
  if (remark.name.size_bytes != strlen(name) || memcmp(remark.name.data, name, strlen(name)) != 0)
    fail_msg("'%s' is called '%.*s'", text, (int)remark.name.size_bytes, remark.name.data);
  if (strcmp(tsr_category_name(remark.category), category) != 0)
    fail_msg("'%s' is %s", text, tsr_category_name(remark.category));
  tsr__arena_release(&texts);
}

static void words(void **state) {
  (void)state;
  check_remark("", "", "unknown");
  check_remark("  \n", "", "unknown");
  check_remark("packed into the autograd graph", "packed into the autograd graph", "unknown");
  check_remark("kv_cache", "kv_cache", "kv_cache");
  check_remark(" KV-Cache ", "KV-Cache", "kv_cache");
  check_remark("KV cache: layer 3", "layer 3", "kv_cache");
  check_remark("activation/block 7", "block 7", "activation");
  check_remark("Optimizer State:", "Optimizer State:", "optimizer_state");
  check_remark("unknown: x", "unknown: x", "unknown");
  check_remark("parameters", "parameters", "unknown");
  check_remark("input embeddings", "input embeddings", "unknown");
  check_remark("cast of a weight", "cast of a weight", "unknown");
}

/* Names of tensors, as tessera.record spells them. */
static void tensors(void **state) {
  (void)state;
  check_remark("exp_avg of h.0.weight", "exp_avg of h.0.weight", "optimizer_state");
  check_remark("momentum_buffer of parameter 7", "momentum_buffer of parameter 7",
               "optimizer_state");
  check_remark("h.0.weight.grad", "h.0.weight.grad", "gradient");
  check_remark(".grad", ".grad", "unknown");
  check_remark("sum of losses", "sum of losses", "unknown");
  check_remark("{\"name\": \"h.0.weight.grad\"}", "h.0.weight.grad", "gradient");
}

static void objects(void **state) {
  (void)state;
  check_remark("{\"category\":\"kv_cache\"}", "{\"category\":\"kv_cache\"}", "kv_cache");
  check_remark("{\"category\":\"KV cache/layer 1\",\"step\":3}", "layer 1", "kv_cache");
  check_remark("{\"category\":\"parameter\",\"name\":\"caf\\u00e9\"}", "caf\xc3\xa9", "parameter");
  check_remark("{\"category\":[\"parameter\"],\"name\":7}",
               "{\"category\":[\"parameter\"],\"name\":7}", "unknown");
  check_remark("{\"category\":\"mine\",\"name\":\"x\"}", "x", "unknown");
  check_remark("{\"category\":\"parameter\"", "{\"category\":\"parameter\"", "unknown");
  check_remark("[\"parameter\"]", "[\"parameter\"]", "unknown");
}

static char *repeated(const char *unit, size_t times, const char *end) {
  size_t length = strlen(unit);
  char *text = malloc(times * length + strlen(end) + 1);
  assert_non_null(text);
  for (size_t i = 0; i < times; i++) memcpy(text + i * length, unit, length);
  memcpy(text + times * length, end, strlen(end) + 1);
  return text;
}

/* Deep, long, cut within a character, and with zero bytes. */
static void hostile(void **state) {
  (void)state;
  tsr__arena texts;
  tsr__remark remark;
  tsr__arena_init(&texts);
  char *deep = repeated("{\"a\":", 10000, "1");
  char *more = repeated("[", 5000, "");
  char *long_name = repeated("\xe2\x82\xac", 400, "");
  char *huge = repeated(" ", 1 << 20, "kv_cache");
  assert_true(tsr__remark_read(text_of(deep), &texts, &remark));
  assert_int_equal(remark.name.size_bytes, TSR__REMARK_NAME_BYTES);
  assert_true(tsr__remark_read(text_of(more), &texts, &remark));
  assert_int_equal(remark.category, TSR_CATEGORY_UNKNOWN);
  assert_true(tsr__remark_read(text_of(long_name), &texts, &remark));
  assert_int_equal(remark.name.size_bytes, TSR__REMARK_NAME_BYTES / 3 * 3);
  assert_true(tsr__remark_read(text_of(huge), &texts, &remark));
  assert_int_equal(remark.category, TSR_CATEGORY_KV_CACHE);
  static const char zero[] = "{\"name\":\"a\\u0000b\",\"category\":\"input\"}";
  assert_true(tsr__remark_read(text_of(zero), &texts, &remark));
  assert_int_equal(remark.name.size_bytes, 3);
  assert_int_equal(remark.category, TSR_CATEGORY_INPUT);
  free(deep);
  free(more);
  free(long_name);
  free(huge);
  tsr__arena_release(&texts);
}

static void check_member(const char *text, const char *key, const char *expected) {
  tsr__buffer out = {0};
  bool is_there;
  assert_true(tsr__remark_member(text_of(text), key, &out, &is_there));
  assert_int_equal(is_there, expected != NULL);
  if (expected) {
    assert_int_equal(out.size, strlen(expected));
    assert_memory_equal(out.data, expected, out.size);
  }
  tsr__buffer_release(&out);
}

static void members(void **state) {
  (void)state;
  check_member("{\"layer\": 3, \"of\": {\"rank\": [0, 1]}, \"note\": \"x\", \"none\": null}",
               "layer", "3");
  check_member("{\"of\": {\"rank\": [0, 1]}}", "of", "{\"rank\":[0,1]}");
  check_member("{\"note\": \"x y\"}", "note", "x y");
  check_member("{\"none\": null}", "none", "null");
  check_member("{\"none\": null}", "other", NULL);
  check_member("none", "none", NULL);
  check_member("", "", NULL);
}

/* ---- Allocations ---- */

#define EVENT(action, address, size, metadata)                                              \
  "{\"action\": \"" action "\", \"addr\": " address ", \"size\": " size ", \"stream\": 0, " \
  "\"user_metadata\": \"" metadata "\"}"

/* An address is used twice; annotations are of what is live then. */
#define BLOCK(address, size, state)                                                          \
  "{\"address\": " address ", \"size\": " size ", \"requested_size\": " size ", \"state\": " \
  "\"" state "\"}"
#define USED "active_allocated"
static const char segments[] =
    "{\"segments\": [{\"device\": 0, \"address\": 4096, \"total_size\": 4096, \"stream\": 0, "
    "\"segment_type\": \"small\", \"blocks\": [";
static const char *const parts[] = {
    segments,
    BLOCK("4096", "512", USED) ", " BLOCK("4608", "1024", USED) ", ",
    BLOCK("5632", "2560", "inactive") "]}], \"device_traces\": [[",
    EVENT("alloc", "4608", "1024", "first") ", ",
    EVENT("annotate", "4608", "0", "gradient: of the first") ", ",
    EVENT("free_completed", "4608", "1024", "") ", ",
    EVENT("annotate", "4608", "0", "nobody's") ", ",
    EVENT("alloc", "4608", "1024", "second") ", ",
    EVENT("annotate", "4700", "0", "inside") ", ",
    EVENT("annotate", "4608", "0", "second") ", ",
    EVENT("annotate", "4096", "0", "parameter/older") "]]}"};

static void check_names(const tsr__names *names, uint32_t allocation, const char *expected) {
  char all[200] = "";
  for (size_t i = 0; i < tsr__names_count(names, allocation); i++) {
    tsr__given_name name = tsr__names_at(names, allocation, i);
    size_t used = strlen(all);
    (void)snprintf(all + used, sizeof all - used, "%s%s %.*s", i ? ", " : "",
                   tsr_name_source_name(name.source), (int)name.text.size_bytes, name.text.data);
  }
  assert_string_equal(all, expected);
}

static void allocations(void **state) {
  (void)state;
  tsr_snapshot *snapshot = NULL;
  tsr__timeline t;
  tsr__names names;
  tsr_category category = TSR_CATEGORY_UNKNOWN;
  char trace[4096] = "";
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    strncat(trace, parts[i], sizeof trace - strlen(trace) - 1);
  assert_int_equal(tsr_snapshot_read(trace, strlen(trace), NULL, &snapshot, NULL), 0);
  assert_int_equal(tsr__timeline_compute(snapshot, 0, false, NULL, &t, NULL), 0);
  assert_int_equal(tsr__names_compute(&t, &names, NULL), 0);
  assert_int_equal(t.birth.count, 3);
  assert_int_equal(t.misfits[TSR__MISFIT_ANNOTATE], 1);
  check_names(&names, 0, "annotation older");
  check_names(&names, 1, "annotation of the first, metadata first");
  check_names(&names, 2, "annotation inside, annotation second");
  assert_true(tsr__names_category(&names, 0, &category));
  assert_int_equal(category, TSR_CATEGORY_PARAMETER);
  assert_true(tsr__names_category(&names, 1, &category));
  assert_int_equal(category, TSR_CATEGORY_GRADIENT);
  assert_false(tsr__names_category(&names, 2, &category));
  tsr__names_release(&names);
  tsr__timeline_release(&t);
  tsr_snapshot_free(snapshot);
}

/* Equal names of an entry are one; the smallest are omitted. */
static void sums(void **state) {
  (void)state;
  tsr__name_sums sums;
  tsr_name_range ranges[3];
  tsr_named *rows = NULL;
  tsr__name_sums_init(&sums);
  static const char *const texts[] = {"a", "b", "a", "c"};
  for (size_t i = 0; i < 4; i++) {
    tsr_named name = {
        .name = text_of(texts[i]), .type = "float32", .bytes = i + 1, .allocations = 1};
    assert_true(tsr__name_sums_put(&sums, 2, &name));
    assert_true(tsr__name_sums_put(&sums, 0, &name));
  }
  assert_int_equal(tsr__name_sums_take(&sums, 2, 3, ranges, &rows, NULL), 0);
  assert_int_equal(ranges[1].count, 0);
  for (size_t k = 0; k < 3; k += 2) {
    assert_int_equal(ranges[k].count, 2);
    assert_int_equal(ranges[k].omitted, 1);
    const tsr_named *row = &rows[ranges[k].first];
    assert_memory_equal(row[0].name.data, "a", 1); /* 1 + 3, as many bytes as c and before it */
    assert_int_equal(row[0].bytes, 4);
    assert_int_equal(row[0].allocations, 2);
    assert_memory_equal(row[1].name.data, "c", 1);
    assert_string_equal(row[1].type, "float32");
  }
  tsr__name_sums_release(&sums);
  free(rows);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(words),   cmocka_unit_test(tensors), cmocka_unit_test(objects),
      cmocka_unit_test(hostile), cmocka_unit_test(members), cmocka_unit_test(allocations),
      cmocka_unit_test(sums),
  };
  return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
