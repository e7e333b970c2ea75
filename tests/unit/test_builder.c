/* The builder: what it records can be read back as if PyTorch had written it, what it finishes is in
 * order, and the check of a whole snapshot finds what is broken. */
#include "columns/builder.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "tessera/export.h"
#include "test_support.h"

#define BASE UINT64_C(0x7f0000000000)
#define MIB  (UINT64_C(1) << 20)

/* ---- a small recording ---- */

static tsr__builder start(void) {
  tsr__builder b;
  assert_true(tsr__builder_init(&b, NULL));
  tsr__builder_record(&b, "recorded");
  return b;
}

static tsr_snapshot *finish(tsr__builder *b) {
  tsr_snapshot *snapshot = NULL;
  tsr_error error = {0};
  if (tsr__builder_finish(b, &snapshot, &error)) fail_msg("%s", error.message);
  tsr__builder_release(b);
  assert_null(tsr__snapshot_check(snapshot));
  return snapshot;
}

static uint32_t stack_of(tsr__builder *b, const char *function, uint64_t line) {
  tsr_frame frame = {.name = tsr__builder_text(b, function),
                     .file = tsr__builder_text(b, "train.py"),
                     .line = line};
  uint32_t frames[] = {tsr__builder_frame(b, frame), TSR_NONE};
  frames[1] = tsr__builder_frame(b, (tsr_frame){frame.name, frame.file, line + 1});
  return tsr__builder_stack(b, frames, 2);
}

static void event(tsr__builder *b, uint32_t device, tsr_action action, uint64_t offset,
                  uint32_t stack) {
  int64_t time_us = 1000 + (int64_t)tsr__builder_event_count(b);
  assert_true(tsr__builder_event(b, device,
                                 &(tsr__trace_event){.action = action,
                                                     .stack = stack,
                                                     .category = TSR_NONE,
                                                     .addr = BASE + offset,
                                                     .size_bytes = 512,
                                                     .time_us = time_us}));
}

static void block(tsr__builder *b, uint64_t offset, uint64_t size, tsr_block_state state) {
  assert_true(tsr__builder_block(b, &(tsr_block){.address = BASE + offset,
                                                 .size_bytes = size,
                                                 .requested_bytes = state ? size - 12 : 0,
                                                 .stack = TSR_NONE,
                                                 .state = (uint8_t)state}));
}

/* Two devices whose events alternate, a segment each, settings and a range. */
static void record(tsr__builder *b) {
  uint32_t stack = stack_of(b, "forward", 12);
  event(b, 0, TSR_ACTION_ALLOC, 0, stack);
  event(b, 2, TSR_ACTION_ALLOC, 4096, TSR_NONE);
  event(b, 0, TSR_ACTION_ALLOC, 512, stack_of(b, "forward", 12));
  event(b, 2, TSR_ACTION_FREE_REQUESTED, 4096, stack);
  event(b, 0, TSR_ACTION_OOM, 77, stack);
  assert_true(tsr__builder_event(b, 0,
                                 &(tsr__trace_event){.action = TSR_ACTION_SEGMENT_ALLOC,
                                                     .stack = TSR_NONE,
                                                     .category = tsr__builder_text(b, "other"),
                                                     .addr = BASE,
                                                     .size_bytes = 2 * MIB,
                                                     .time_us = 2000,
                                                     .stream = 7,
                                                     .pool = {0, 1}}));
  for (uint32_t device = 0; device <= 2; device += 2) {
    tsr_segment segment = {.address = BASE,
                           .total_bytes = 2 * MIB,
                           .allocated_bytes = 99, /* ignored: blocks are added up */
                           .device = device,
                           .stream = 7,
                           .stack = TSR_NONE,
                           .pool = device ? TSR_NONE : tsr__builder_pool(b, 0, 0)};
    assert_true(tsr__builder_segment(b, &segment));
    block(b, 0, 512, TSR_BLOCK_ALLOCATED);
    block(b, 512, 1024, TSR_BLOCK_PENDING_FREE);
    block(b, 1536, 2 * MIB - 1536, TSR_BLOCK_INACTIVE);
  }
  assert_true(tsr__builder_annotation(b, 0, 1000, "step", true));
  assert_true(tsr__builder_annotation(b, 0, 1005, "step", false));
  tsr__setting inner[] = {{"1", tsr__value_u64(8)}};
  tsr__setting settings[] = {{"conf", tsr__builder_text_value(b, "a:b")},
                             {"max_split_size", tsr__value_int(-1)},
                             {"divisions", tsr__builder_dict(b, inner, 1)}};
  assert_true(tsr__builder_settings(b, settings, 3));
}

static void recording(void **state) {
  (void)state;
  tsr__builder b = start();
  record(&b);
  assert_true(tsr__builder_bytes(&b) > sizeof(tsr_block) * 6);
  tsr_snapshot *s = finish(&b);
  size_t count;
  const uint32_t *devices = tsr_snapshot_devices(s, &count);
  assert_int_equal(count, 2);
  assert_int_equal(devices[1], 2);
  assert_int_equal(s->trace_count, 3); /* device 1 has an empty trace */

  tsr_events events = tsr_snapshot_events(s, 0);
  assert_int_equal(events.count, 4);
  assert_int_equal(events.addr[1], BASE + 512);
  assert_int_equal(events.time_us[3], 2000);
  assert_int_equal(events.stack[0], events.stack[1]);
  assert_int_equal(tsr_snapshot_stack(s, events.stack[0]).depth, 2);
  assert_int_equal(tsr_snapshot_stack(s, events.stack[3]).depth, 0);
  assert_int_equal(tsr_snapshot_stream(s, tsr_id_at(events.stream, 3)), 7);
  assert_int_equal(tsr_snapshot_pool(s, tsr_id_at(events.pool, 3)).second, 1);
  assert_int_equal(tsr_id_at(events.category, 0), TSR_NONE);
  assert_int_equal(tsr_snapshot_events(s, 2).count, 2);
  assert_int_equal(tsr_snapshot_events(s, 2).action[1], TSR_ACTION_FREE_REQUESTED);

  const tsr_segment *segments = tsr_snapshot_segments(s, &count);
  assert_int_equal(count, 2);
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(segments[i].first_block, 3 * i);
    assert_int_equal(segments[i].block_count, 3);
    assert_int_equal(segments[i].allocated_bytes, 512);
    assert_int_equal(segments[i].active_bytes, 512 + 1024);
    assert_int_equal(segments[i].requested_bytes, 512 + 1024 - 24);
  }
  const tsr_annotation *annotations = tsr_snapshot_annotations(s, &count);
  assert_int_equal(count, 2);
  assert_true(annotations[0].is_start && annotations[1].is_end);
  double number;
  assert_true(tsr_snapshot_setting(s, "max_split_size", NULL, &number) && number == -1);
  assert_true(tsr_snapshot_setting(s, "divisions", "1", &number) && number == 8);
  assert_string_equal(tsr_snapshot_format(s), "recorded");
  tsr_snapshot_warnings(s, &count);
  assert_int_equal(count, 0);
  tsr_snapshot_free(s);
}

/* ---- as a file ---- */

static int append(void *context, const char *data, size_t size_bytes) {
  tsr__buffer_append(context, data, size_bytes);
  return 0;
}

static tsr__buffer written(const tsr_snapshot *snapshot, tsr_export_format format) {
  tsr__buffer out = {0};
  assert_int_equal(tsr_snapshot_export(snapshot, format, append, &out, NULL), 0);
  assert_false(out.failed);
  return out;
}

/* Written, read and written again it is the same, in each format; and nothing in it is odd. */
static void round_trip(void **state) {
  (void)state;
  tsr__builder b = start();
  record(&b);
  tsr_snapshot *s = finish(&b);
  for (int format = TSR_EXPORT_PICKLE; format <= TSR_EXPORT_PYTHON_JSON; format++) {
    tsr__buffer first = written(s, (tsr_export_format)format);
    tsr_snapshot *again = NULL;
    size_t count;
    assert_int_equal(tsr_snapshot_read(first.data, first.size, NULL, &again, NULL), 0);
    tsr_snapshot_warnings(again, &count);
    assert_int_equal(count, 0);
    tsr__buffer second = written(again, (tsr_export_format)format);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    tsr__buffer_release(&first);
    tsr__buffer_release(&second);
    tsr_snapshot_free(again);
  }
  tsr__buffer json = written(s, TSR_EXPORT_PYTHON_JSON);
  tsr__buffer_append(&json, "", 1);
  /* As PyTorch writes it: keys that every event has, one that events of running out of memory have
   * in place of the address, and the pool only of segments that name one. */
  assert_non_null(strstr(json.data, "\"compile_context\": \"N/A\""));
  assert_non_null(strstr(json.data, "\"device_free\": 139637976727629"));
  assert_non_null(strstr(json.data, "\"category\": \"other\""));
  const char *pool = strstr(json.data, "\"segment_pool_id\"");
  assert_non_null(pool);
  assert_null(strstr(pool + 1, "\"segment_pool_id\""));
  tsr__buffer_release(&json);
  tsr_snapshot_free(s);
}

static void nothing_recorded(void **state) {
  (void)state;
  tsr__builder b = start();
  tsr_snapshot *s = finish(&b);
  size_t count;
  tsr_snapshot_devices(s, &count);
  assert_int_equal(count, 0);
  tsr_snapshot_free(s);
  tsr__builder none = {0};
  tsr__builder_release(&none);
  b = start();
  tsr__builder_release(&b);
}

static void devices_without_events(void **state) {
  (void)state;
  tsr__builder b = start();
  assert_true(tsr__builder_devices(&b, 4));
  event(&b, 1, TSR_ACTION_ALLOC, 0, TSR_NONE);
  tsr_snapshot *s = finish(&b);
  size_t count;
  assert_int_equal(*tsr_snapshot_devices(s, &count), 1);
  assert_int_equal(count, 1);
  assert_int_equal(s->trace_count, 4);
  tsr_snapshot_free(s);
}

static void too_many_devices(void **state) {
  (void)state;
  tsr__builder b;
  tsr_limits limits = {.devices = 2};
  tsr_snapshot *s = NULL;
  tsr_error error = {0};
  assert_true(tsr__builder_init(&b, &limits));
  for (uint32_t device = 0; device < 3; device++) event(&b, device, TSR_ACTION_ALLOC, 0, TSR_NONE);
  assert_int_equal(tsr__builder_finish(&b, &s, &error), TSR_ERROR_LIMIT);
  assert_null(s);
  assert_non_null(strstr(error.message, "tsr_limits.devices"));
  tsr__builder_release(&b);
}

/* Failures are sticky: invalid ids may be passed on, and finishing reports the reason. */
static void failure_is_remembered(void **state) {
  (void)state;
  tsr__builder b = start();
  tsr_snapshot *s = NULL;
  assert_int_equal(tsr__builder_frame(&b, (tsr_frame){TSR_NONE, TSR_NONE, 1}), TSR_NONE);
  uint32_t frame = TSR_NONE;
  assert_int_equal(tsr__builder_stack(&b, &frame, 1), TSR_NONE);
  assert_int_equal(tsr__builder_finish(&b, &s, NULL), TSR_ERROR_MEMORY);
  assert_null(s);
  tsr__builder_release(&b);
}

/* ---- a part of another ---- */

static void part_of_another(void **state) {
  (void)state;
  tsr__builder b = start();
  record(&b);
  tsr_snapshot *whole = finish(&b);
  tsr__builder part;
  assert_true(tsr__builder_init(&part, NULL) && tsr__builder_copy_names(&part, whole) &&
              tsr__builder_devices(&part, whole->trace_count));
  uint64_t first = whole->device_traces.items[1].first;
  assert_int_equal(whole->device_traces.items[1].device, 2);
  assert_true(tsr__builder_copy_event(&part, 2, whole, first + 1));
  tsr_block initial[] = {{.address = BASE + 4096, .size_bytes = 512, .stack = TSR_NONE}};
  assert_true(tsr__builder_initial_blocks(&part, 2, initial, 1));
  assert_true(tsr__builder_initial_blocks(&part, 0, NULL, 0));
  assert_true(tsr__builder_segment(
      &part, &(tsr_segment){.address = BASE, .stack = TSR_NONE, .pool = TSR_NONE, .device = 2}));
  assert_true(tsr__builder_copy_annotation(&part, whole, 1));
  tsr_snapshot *s = finish(&part);
  tsr_events events = tsr_snapshot_events(s, 2), all = tsr_snapshot_events(whole, 2);
  assert_int_equal(events.count, 1);
  assert_int_equal(events.stack[0], all.stack[1]); /* names have the same ids */
  size_t count;
  const tsr__value *blocks = tsr__snapshot_initial_blocks(s, 2, &count);
  assert_int_equal(count, 1);
  assert_int_equal(blocks->tag, TSR__BLOCK);
  assert_int_equal(s->blocks.items[blocks->id].address, BASE + 4096);
  (void)tsr__snapshot_initial_blocks(s, 0, &count);
  assert_int_equal(count, 0);
  assert_int_equal(s->segments.items[0].block_count, 0);
  assert_true(tsr_snapshot_annotations(s, &count)->is_end);
  double number;
  assert_true(tsr_snapshot_setting(s, "divisions", "1", &number) && number == 8);
  assert_string_equal(tsr_snapshot_format(s), "recorded");
  tsr_snapshot_free(s);
  tsr_snapshot_free(whole);
}

/* ---- the check of a whole ---- */

static tsr_snapshot *broken;

static void expect_defect(const char *place, const char *part) {
  const char *defect = tsr__snapshot_check(broken);
  if (!defect) fail_msg("%s is broken, and nothing was found", place);
  if (!strstr(defect, part)) fail_msg("%s: %s", place, defect);
}

/* Put `value` in a place, look for a defect whose sentence has `part`, and put it back. */
#define BREAK(place, value, part)                    \
  do {                                               \
    unsigned char before_[sizeof broken->place];     \
    memcpy(before_, &broken->place, sizeof before_); \
    broken->place = (value);                         \
    expect_defect(#place, part);                     \
    memcpy(&broken->place, before_, sizeof before_); \
    assert_null(tsr__snapshot_check(broken));        \
  } while (0)

static void check(void **state) {
  (void)state;
  tsr__builder b = start();
  record(&b);
  tsr_segment last = {.address = BASE, .stack = TSR_NONE, .pool = TSR_NONE, .device = 1};
  assert_true(tsr__builder_segment(&b, &last));
  tsr__extra extra = {
      .row = 1, .value = tsr__value_int(3), .key = TSR__NAME_NAME, .table = TSR__BLOCK};
  assert_true(tsr__builder_add_extra(&b, &extra));
  broken = finish(&b);
  BREAK(events.action[1], TSR_ACTION_KNOWN_COUNT, "action");
  BREAK(events.stack[2], broken->stacks.count, "stack");
  BREAK(events.stream.values[3], broken->streams.count, "stream");
  BREAK(events.pool.values[0], broken->pools.count, "pool");
  BREAK(events.context.uniform, broken->strings.count, "context");
  BREAK(events.shape.values[0], UINT32_C(7) << 12, "order of keys");
  BREAK(events.count, broken->events.capacity + 1, "room");
  BREAK(device_traces.items[1].count, 40, "ends after the events");
  BREAK(device_traces.items[1].count, 0, "empty");
  BREAK(device_traces.items[1].device, 0, "not in order");
  BREAK(device_traces.items[1].device, 9, "among the file's");
  BREAK(traces.items[0].runs.items[0].first, UINT64_MAX, "run of a trace");
  BREAK(blocks.count, 5, "differ in length");
  BREAK(blocks.items[2].stack, broken->stacks.count, "stack");
  BREAK(blocks.items[2].state, 4, "state");
  BREAK(blocks_more.items[2].state, broken->strings.count, "state");
  BREAK(blocks_more.items[2].history_count, 1, "history");
  BREAK(blocks_more.items[2].origin, 100, "row that does not exist");
  BREAK(segments_more.count, 1, "differ in length");
  BREAK(segments.items[0].block_count, 100, "blocks do not exist");
  BREAK(segments.items[0].first_block, UINT64_MAX, "blocks do not exist");
  BREAK(segments.items[0].pool, broken->pools.count, "pool");
  BREAK(segments.items[0].device, 5, "not in order");
  BREAK(segment_count, 4, "more segments are listed");
  BREAK(segments_by_device.items[0], 3, "does not exist");
  BREAK(annotations.items[0].name, broken->strings.count, "name");
  BREAK(annotations.items[0].is_end, true, "both");
  BREAK(annotation_count, 3, "more annotations");
  BREAK(loose.items[0].kind, 3, "no kind");
  BREAK(loose.items[0].count, 1000, "do not exist");
  BREAK(loose.items[1].first, UINT64_MAX, "do not exist");
  BREAK(loose_values.items[0].tag, TSR__CONTAINER, "names nothing");
  BREAK(loose_values.items[0], tsr__value_id(TSR__LOOSE, 0), "hold itself");
  BREAK(extras.items[0].table, TSR__FRAME, "no row");
  BREAK(extras.items[0].row, 1, "no row");
  BREAK(extras.items[1].row, 6, "no row");
  BREAK(extras.items[1].key, broken->strings.count, "key");
  BREAK(devices.items[0], 1, "devices are not in order");
  BREAK(default_pool, broken->pools.count, "default pool");
  BREAK(top_order, 1, "order of keys");
  BREAK(strings.count, TSR__NAME_COUNT - 1, "missing");
  tsr_snapshot_free(broken);
}

/* Extras are found by bisection, so they must be in order. */
static void check_of_extras(void **state) {
  (void)state;
  tsr__builder b = start();
  record(&b);
  for (uint64_t row = 3; row-- > 0;) {
    tsr__extra extra = {
        .row = row, .value = tsr__value_int(3), .key = TSR__NAME_NAME, .table = TSR__BLOCK};
    assert_true(tsr__builder_add_extra(&b, &extra));
  }
  broken = finish(&b);
  size_t count;
  assert_int_equal(tsr__extras_of(broken, TSR__BLOCK, 1, 2, &count)->row, 1);
  assert_int_equal(count, 2);
  BREAK(extras.items[1].row, 2, "order");
  tsr_snapshot_free(broken);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(recording),        cmocka_unit_test(round_trip),
      cmocka_unit_test(nothing_recorded), cmocka_unit_test(devices_without_events),
      cmocka_unit_test(too_many_devices), cmocka_unit_test(failure_is_remembered),
      cmocka_unit_test(part_of_another),  cmocka_unit_test(check),
      cmocka_unit_test(check_of_extras),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
