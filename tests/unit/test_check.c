/* Tests of answers/check.c, check_peaks.c and lock.c: budgets and locks on training runs of which
 * everything is known, and invalid locks. */
#include "tessera/unstable/check.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "study_support.h"
#include "tessera/unstable/answers.h"
#include "training_trace.h"

typedef struct checked {
  tsr_snapshot *snapshot;
  tsr_check *check;
} checked;

static checked check_run(const training *run, const tsr_check_options *how) {
  checked c = {.snapshot = training_snapshot(run)};
  assert_int_equal(tsr_check_compute(test_study(c.snapshot), how, NULL, &c.check, NULL), 0);
  return c;
}

static void end(checked *c) {
  tsr_check_free(c->check);
  tsr_snapshot_free(c->snapshot);
}

static int append(void *context, const char *data, size_t size_bytes) {
  tsr__buffer_append(context, data, size_bytes);
  return 0;
}

/* What a run holds, as a lock that is written and read again. */
static tsr_lock *lock_of(const training *run, tsr__buffer *text) {
  checked c = check_run(run, &(tsr_check_options){.wants_causes = true});
  tsr_lock *lock = NULL;
  assert_true(c.check->is_passed);
  assert_int_equal(c.check->result_count, 0);
  text->size = 0;
  assert_int_equal(tsr_lock_write(c.check, append, text, NULL), 0);
  tsr_error error = {0};
  if (tsr_lock_parse(text->data, text->size, &lock, &error)) fail_msg("%s", error.message);
  end(&c);
  return lock;
}

static const training small = {.layers = 3, .steps = 3};
static const training checkpointed = {.layers = 3, .steps = 3, .checkpoint = true};

/* ---- figures ---- */

/* Peaks by kind and by cause against a walk over all lives. */
static void figures(void **state) {
  (void)state;
  checked c = check_run(&checkpointed, &(tsr_check_options){.wants_causes = true});
  const tsr_check_device *d = c.check->devices;
  tsr_peak *peak = NULL;
  assert_int_equal(tsr_peak_compute(test_study(c.snapshot), NULL, &peak, NULL), 0);
  assert_int_equal(d->peak.event, peak->devices[0].peak.event);
  assert_int_equal(d->peak.totals.allocated_bytes, peak->devices[0].peak.totals.allocated_bytes);
  assert_int_equal(d->peak_reserved_bytes, peak->devices[0].maxima.reserved_bytes);
  uint64_t kinds = 0, causes = 0;
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++) {
    uint64_t largest = 0;
    kinds += d->categories[i].bytes;
    assert_true(d->categories[i].bytes <= d->categories[i].peak_bytes);
    for (size_t k = 0; k < d->cause_count; k++)
      if (d->causes[k].cause.category == (tsr_category)i && d->causes[k].cause.bytes > largest)
        largest = d->causes[k].cause.bytes;
    assert_true(largest <= d->categories[i].peak_bytes);
    assert_true(!d->categories[i].peak_bytes == !largest);
  }
  for (size_t k = 0; k < d->cause_count; k++) {
    causes += d->causes[k].bytes_at_peak;
    assert_true(d->causes[k].bytes_at_peak <= d->causes[k].cause.bytes);
    assert_true(d->causes[k].cause.allocations > 0);
    if (k) assert_true(d->causes[k].cause.bytes <= d->causes[k - 1].cause.bytes);
  }
  assert_int_equal(kinds, d->peak.totals.requested_bytes);
  assert_int_equal(causes, d->peak.totals.requested_bytes);
  assert_true(d->categories[TSR_CATEGORY_RECOMPUTED].peak_bytes > 0);
  tsr_peak_free(peak);
  end(&c);
}

/* ---- budgets ---- */

static void budgets(void **state) {
  (void)state;
  checked c = check_run(&small, &(tsr_check_options){.wants_causes = true});
  uint64_t peak = c.check->devices[0].peak.totals.allocated_bytes;
  uint64_t activation = c.check->devices[0].categories[TSR_CATEGORY_ACTIVATION].peak_bytes;
  uint64_t reserved = c.check->devices[0].peak_reserved_bytes;
  end(&c);
  tsr_check_limit limits[] = {{TSR_CHECK_MAX_RESERVED, 0, reserved},
                              {TSR_CHECK_MAX_CATEGORY, TSR_CATEGORY_ACTIVATION, activation},
                              {TSR_CHECK_MAX_PEAK, 0, peak}};
  tsr_check_options how = {.limits = limits, .limit_count = 3};
  c = check_run(&small, &how);
  assert_true(c.check->is_passed);
  assert_int_equal(c.check->result_count, 3);
  assert_int_equal(c.check->results[0].rule, TSR_CHECK_MAX_PEAK);
  assert_int_equal(c.check->results[1].rule, TSR_CHECK_MAX_CATEGORY);
  assert_int_equal(c.check->results[2].rule, TSR_CHECK_MAX_RESERVED);
  for (size_t i = 0; i < 3; i++) assert_int_equal(c.check->results[i].cause_count, 0);
  end(&c);
  for (size_t i = 0; i < 3; i++) limits[i].bytes--;
  c = check_run(&small, &how);
  assert_false(c.check->is_passed);
  assert_int_equal(c.check->failed_count, 3);
  for (size_t i = 0; i < 3; i++) assert_true(c.check->results[i].cause_count > 0);
  const tsr_check_result *kind = &c.check->results[1];
  for (size_t i = 0; i < kind->cause_count; i++)
    assert_int_equal(c.check->devices[0].causes[kind->causes[i]].cause.category,
                     TSR_CATEGORY_ACTIVATION);
  end(&c);
  /* A budget for the peak alone computes nothing expensive. */
  c = check_run(&small,
                &(tsr_check_options){.limits = &(tsr_check_limit){TSR_CHECK_MAX_PEAK, 0, peak},
                                     .limit_count = 1});
  assert_false(c.check->devices[0].has_causes);
  end(&c);
}

/* ---- locks ---- */

static void matches_itself(void **state) {
  (void)state;
  tsr__buffer text = {0};
  tsr_lock *lock = lock_of(&small, &text);
  assert_int_equal(lock->version, 2);
  assert_int_equal(lock->device_count, 1);
  assert_true(lock->devices[0].cause_count > 0);
  checked c = check_run(&small, &(tsr_check_options){.lock = lock});
  assert_true(c.check->is_passed);
  assert_true(c.check->result_count > 3);
  for (size_t i = 0; i < c.check->result_count; i++)
    assert_int_equal(c.check->results[i].bytes, c.check->results[i].limit_bytes);
  end(&c);
  /* Where the recording began, and whether the run is longer, does not matter. */
  training longer = small;
  longer.steps = 6;
  c = check_run(&longer, &(tsr_check_options){.lock = lock});
  assert_true(c.check->is_passed);
  end(&c);
  tsr_lock_free(lock);
  tsr__buffer_release(&text);
}

static const tsr_check_result *result_of(const tsr_check *check, tsr_check_rule rule,
                                         tsr_category kind) {
  for (size_t i = 0; i < check->result_count; i++)
    if (check->results[i].rule == rule && check->results[i].category == kind)
      return &check->results[i];
  fail_msg("no such result");
  return NULL;
}

static void grows_and_shrinks(void **state) {
  (void)state;
  tsr__buffer text = {0};
  training more = small;
  more.layers = 6;
  tsr_lock *lock = lock_of(&small, &text);
  tsr_check_options how = {.lock = lock, .tolerance_millionths = 10000};
  checked c = check_run(&more, &how);
  const tsr_check_result *peak = result_of(c.check, TSR_CHECK_LOCK_PEAK, 0);
  assert_false(peak->is_passed);
  assert_true(peak->is_change && peak->cause_count > 0);
  const tsr_check_cause *cause = &c.check->devices[0].causes[peak->causes[0]];
  assert_true(cause->cause.bytes > cause->locked_bytes);
  assert_int_equal(peak->tolerance_bytes, peak->limit_bytes / 100);
  uint64_t off = peak->bytes - peak->limit_bytes;
  end(&c);
  /* Just enough tolerance for the peak, and a byte too little. */
  how = (tsr_check_options){.lock = lock, .tolerance_bytes = off};
  c = check_run(&more, &how);
  assert_true(result_of(c.check, TSR_CHECK_LOCK_PEAK, 0)->is_passed);
  end(&c);
  how.tolerance_bytes--;
  c = check_run(&more, &how);
  assert_false(result_of(c.check, TSR_CHECK_LOCK_PEAK, 0)->is_passed);
  end(&c);
  tsr_lock_free(lock);
  lock = lock_of(&more, &text);
  how = (tsr_check_options){.lock = lock, .tolerance_millionths = 10000};
  c = check_run(&small, &how);
  peak = result_of(c.check, TSR_CHECK_LOCK_PEAK, 0);
  assert_false(peak->is_passed);
  assert_true(peak->is_change);
  cause = &c.check->devices[0].causes[peak->causes[0]];
  assert_true(cause->cause.bytes < cause->locked_bytes);
  end(&c);
  tsr_lock_free(lock);
  tsr__buffer_release(&text);
}

static tsr_lock *lock_from(const char *text) {
  tsr_lock *lock = NULL;
  tsr_error error = {0};
  if (tsr_lock_parse(text, strlen(text), &lock, &error)) fail_msg("%s", error.message);
  return lock;
}

/* Devices that one side alone has; and a cause that is gone. */
/* The lock contains `kind`, as locks once did; it means `category`. */
static void other_devices(void **state) {
  (void)state;
  tsr_lock *lock = lock_from("tessera memory lock 1\r\n\n# a remark\n  device 7 # seven\npeak 5\n"
                             "kind input 3 # 3 B\ncause input 3 data.py:load # 3 B\nrest 2\n");
  assert_int_equal(lock->version, 1);
  assert_int_equal(lock->device_count, 1);
  assert_int_equal(lock->devices[0].device, 7);
  assert_int_equal(lock->devices[0].peak_bytes, 5);
  assert_int_equal(lock->devices[0].categories[TSR_CATEGORY_INPUT], 3);
  assert_int_equal(lock->devices[0].cause_count, 1);
  assert_string_equal(lock->devices[0].causes[0].name, "data.py:load");
  assert_int_equal(lock->devices[0].rest_bytes, 2);
  checked c = check_run(&small, &(tsr_check_options){.lock = lock});
  assert_int_equal(c.check->result_count, 2);
  assert_int_equal(c.check->failed_count, 2);
  assert_int_equal(c.check->results[0].device, 0);
  assert_int_equal(c.check->results[0].rule, TSR_CHECK_LOCK_DEVICE);
  assert_int_equal(c.check->results[1].device, 7);
  end(&c);
  tsr_lock_free(lock);
  lock = lock_from("tessera memory lock 1\ndevice 0\npeak 5\ncause input 99 gone.py:load\n");
  c = check_run(&small, &(tsr_check_options){.lock = lock});
  const tsr_check_cause *last = &c.check->devices[0].causes[c.check->devices[0].cause_count - 1];
  assert_string_equal(last->name, "gone.py:load");
  assert_true(last->is_locked);
  assert_int_equal(last->cause.bytes, 0);
  end(&c);
  tsr_lock_free(lock);
}

/* ---- invalid locks ---- */

static void refuses(const char *text, size_t size, tsr_status status, const char *message) {
  tsr_lock *lock = NULL;
  tsr_error error = {0};
  int got = tsr_lock_parse(text, size, &lock, &error);
  if (got != (int)status || !strstr(error.message, message))
    fail_msg("'%.60s': %d, %s", text, got, error.message);
  assert_null(lock);
}

#define HEAD "tessera memory lock 1\n"

static void broken_locks(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"", "line 1 of the lock: the lock is empty"},
      {"import torch\n", "line 1 of the lock: not a memory lock"},
      {"tessera", "line 1 of the lock: not a memory lock"},
      {"tessera memory lock 3\n", "line 1 of the lock: unsupported lock version"},
      {"tessera memory lock\n", "line 1 of the lock: unsupported lock version"},
      {"tessera memory lock 21\n", "line 1 of the lock: unsupported lock version"},
      {"tessera memory lock 2 x\n", "line 1 of the lock: unexpected text"},
      {"tessera memory lock 1 x\n", "line 1 of the lock: unexpected text"},
      {HEAD "peak 5\n", "line 2 of the lock: a device line must come first"},
      {HEAD "device\n", "line 2 of the lock: 'device' takes a number"},
      {HEAD "device x\n", "line 2 of the lock: 'device' takes a number"},
      {HEAD "device 4294967295\n", "line 2 of the lock: 'device' takes a number"},
      {HEAD "device 0 1\n", "line 2 of the lock: unexpected text"},
      {HEAD "device 0\n", "of the lock: the previous device has no peak"},
      {HEAD "device 0\ndevice 1\n", "line 3 of the lock: the previous device has no peak"},
      {HEAD "device 1\npeak 1\ndevice 1\n", "line 4 of the lock: devices must ascend"},
      {HEAD "device 0\npeak\n", "line 3 of the lock: a number of bytes is missing"},
      {HEAD "device 0\npeak 18446744073709551616\n", "a number of bytes is missing"},
      {HEAD "device 0\npeak -1\n", "a number of bytes is missing"},
      {HEAD "device 0\npeak 1\npeak 1\n", "line 4 of the lock: duplicate"},
      {HEAD "device 0\npeak 1\ncategory brain 5\n", "line 4 of the lock: no such category"},
      {HEAD "device 0\npeak 1\ncategory input 5\nkind input 5\n", "line 5 of the lock: duplicate"},
      {HEAD "device 0\npeak 1\ncause input 5\n", "line 4 of the lock: the cause has no name"},
      {HEAD "device 0\npeak 1\ncause input 5 a\ncause input 6 a\n", "duplicate"},
      {HEAD "device 0\npeak 1\ncategory input 5 6\n", "unexpected text"},
      {HEAD "device 0\npeak 1\nshrink 5\n", "it must begin with device"},
      {HEAD "device 0\npeak 1\x1b\n", "line 3 of the lock: it contains a control character"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    refuses(cases[i].text, strlen(cases[i].text), TSR_ERROR_FORMAT, cases[i].message);
  refuses(HEAD "device 0\0", strlen(HEAD) + 9, TSR_ERROR_FORMAT, "control character");
}

/* Bounds: a long line, many causes, many devices, a large text. */
static void large_locks(void **state) {
  (void)state;
  tsr__buffer text = {0};
  tsr__buffer_text(&text, HEAD "# ");
  tsr__buffer_fill(&text, 'x', TSR_LOCK_LINE_BYTES);
  refuses(text.data, text.size, TSR_ERROR_LIMIT, "line 2 of the lock: the line is too long");
  text.size = 0;
  tsr__buffer_text(&text, HEAD "device 0\npeak 1\n");
  for (unsigned i = 0; i <= TSR_LOCK_MAX_CAUSES; i++)
    tsr__buffer_printf(&text, "cause input 1 f%u\n", i);
  refuses(text.data, text.size, TSR_ERROR_LIMIT, "too many causes");
  text.size = 0;
  tsr__buffer_text(&text, HEAD);
  for (unsigned i = 0; i <= TSR_LOCK_MAX_DEVICES; i++)
    tsr__buffer_printf(&text, "device %u\npeak 1\n", i);
  refuses(text.data, text.size, TSR_ERROR_LIMIT, "too many devices");
  tsr__buffer_fill(&text, '\n', TSR_LOCK_MAX_BYTES);
  refuses(text.data, text.size, TSR_ERROR_LIMIT, "may have at most");
  tsr__buffer_release(&text);
}

/* ---- names ---- */

/* Names in a lock are one printable word, whatever a file calls its functions. */
static void names(void **state) {
  (void)state;
  static const char text[] =
      "{\"segments\": [], \"device_traces\": [[{\"action\": \"alloc\", \"addr\": 4096, \"size\": "
      "512, \"frames\": [{\"name\": \"a b\\n\\u001b\\u202e#\", \"filename\": \"/x y/m n.py\", "
      "\"line\": 3}]}, {\"action\": \"alloc\", \"addr\": 8192, \"size\": 512, \"frames\": "
      "[{\"name\": \"torch::autograd::generated::MmBackward0::apply(int)\", \"filename\": "
      "\"F.cpp\", "
      "\"line\": 3}]}]]}";
  tsr_snapshot *snapshot = NULL;
  tsr_check *check = NULL;
  tsr_check_options how = {.wants_causes = true};
  assert_int_equal(tsr_snapshot_read(text, sizeof text - 1, NULL, &snapshot, NULL), 0);
  assert_int_equal(tsr_check_compute(test_study(snapshot), &how, NULL, &check, NULL), 0);
  assert_int_equal(check->devices[0].cause_count, 2);
  assert_string_equal(check->devices[0].causes[0].name, "MmBackward0");
  assert_string_equal(check->devices[0].causes[1].name, "m_n.py:a_b???#");
  tsr_check_free(check);
  tsr_snapshot_free(snapshot);
}

/* A function may be called like a comment, or not at all; its line in a lock is read as that name.
 * Frames without a known file have the function's name alone. */
static void names_are_read_back(void **state) {
  (void)state;
  static const char *const odd[] = {"#x", "", "\\\\", "\\\\#y", "a#b", "C:\\\\run"};
  tsr__buffer text = {0};
  tsr__buffer_text(&text, "{\"segments\": [], \"device_traces\": [[");
  for (unsigned i = 0; i < 6; i++)
    tsr__buffer_printf(&text,
                       "%s{\"action\": \"alloc\", \"addr\": %u, \"size\": 512, \"frames\": "
                       "[{\"name\": \"%s\", \"filename\": \"\", \"line\": 3}]}",
                       i ? ", " : "", 4096 * (i + 1), odd[i]);
  tsr__buffer_text(&text, "]]}");
  tsr_snapshot *snapshot = NULL;
  tsr_check *check = NULL;
  tsr_check_options how = {.wants_causes = true};
  tsr_lock *lock = NULL;
  tsr_error error = {0};
  assert_int_equal(tsr_snapshot_read(text.data, text.size, NULL, &snapshot, NULL), 0);
  assert_int_equal(tsr_check_compute(test_study(snapshot), &how, NULL, &check, NULL), 0);
  const tsr_check_device *device = &check->devices[0];
  text.size = 0;
  assert_int_equal(tsr_lock_write(check, append, &text, NULL), 0);
  if (tsr_lock_parse(text.data, text.size, &lock, &error)) fail_msg("%s", error.message);
  assert_int_equal(device->cause_count, 6);
  assert_int_equal(lock->devices[0].cause_count, 6);
  for (size_t i = 0; i < 6; i++)
    assert_string_equal(lock->devices[0].causes[i].name, device->causes[i].name);
  tsr__buffer_append(&text, "", 1);
  assert_non_null(strstr(text.data, " \\#x # 512 B\n"));
  assert_non_null(strstr(text.data, " \\ # 512 B\n"));
  assert_non_null(strstr(text.data, " C:\\run # 512 B\n")); /* as older locks have it */
  tsr_check_free(check);
  /* And the run passes its own lock. */
  how = (tsr_check_options){.lock = lock};
  assert_int_equal(tsr_check_compute(test_study(snapshot), &how, NULL, &check, NULL), 0);
  assert_true(check->is_passed);
  for (size_t i = 0; i < 6; i++) assert_true(check->devices[0].causes[i].is_locked);
  tsr_check_free(check);
  tsr_lock_free(lock);
  tsr_snapshot_free(snapshot);
  tsr__buffer_release(&text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(figures),
      cmocka_unit_test(budgets),
      cmocka_unit_test(matches_itself),
      cmocka_unit_test(grows_and_shrinks),
      cmocka_unit_test(other_devices),
      cmocka_unit_test(broken_locks),
      cmocka_unit_test(large_locks),
      cmocka_unit_test(names),
      cmocka_unit_test(names_are_read_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
