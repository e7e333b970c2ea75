/* Tests of answers/view and report/page: what pictures are drawn from, against the model that made
 * the trace. Whatever is told one by one and in sums must add up to what the model knew. */
#include "tessera/view.h"

#include <string.h>

#include "base/buffer.h"
#include "model_trace.h"
#include "tessera/tessera.h"

static tsr_view *view_of(const tsr_snapshot *snapshot, uint64_t most, uint32_t buckets) {
  tsr_view_options how = {most, buckets};
  tsr_view *view = NULL;
  tsr_error error = {0};
  assert_int_equal(tsr_view_compute(snapshot, &how, NULL, &view, &error), 0);
  assert_int_equal(error.status, 0);
  return view;
}

static const tsr_totals *truth_at(const model_trace *m, uint32_t moment) {
  static const tsr_totals nothing;
  return moment ? &m->events.items[moment - 1].after : &nothing;
}

/* What the told hold at a moment. */
static tsr_totals told_at(const tsr_view_device *d, uint32_t moment, uint64_t *blocks) {
  tsr_totals totals = {0};
  *blocks = 0;
  for (size_t i = 0; i < d->allocation_count; i++) {
    if (d->born[i] > moment || d->died[i] <= moment) continue;
    ++*blocks;
    totals.requested_bytes += d->requested_bytes[i];
    totals.active_bytes += d->block_bytes[i];
    if (d->released[i] > moment) totals.allocated_bytes += d->block_bytes[i];
  }
  for (size_t i = 0; i < d->span_count; i++)
    if (d->spans[i].born <= moment && d->spans[i].died > moment)
      totals.reserved_bytes += d->spans[i].size_bytes;
  return totals;
}

static void check_order(const tsr_view_device *d) {
  for (size_t i = 0; i < d->allocation_count; i++) {
    if (i) assert_true(d->born[i - 1] <= d->born[i]);
    assert_true(d->born[i] < d->died[i] && d->died[i] <= d->event_count + 1);
    assert_true(d->released[i] <= d->died[i]);
    for (size_t g = 0; g < d->grouping_count; g++)
      assert_true(d->groupings[g].group[i] < d->groupings[g].count);
  }
  for (size_t i = 1; i < d->time_count; i++) assert_true(d->times_us[i - 1] <= d->times_us[i]);
}

static void check_all_told(const model_trace *m, const tsr_view_device *d) {
  check_order(d);
  assert_int_equal(d->rest_count, 0);
  for (uint32_t moment = 0; moment <= d->event_count; moment += 7) {
    uint64_t blocks;
    tsr_totals got = told_at(d, moment, &blocks);
    const tsr_totals *want = truth_at(m, moment);
    assert_int_equal(got.requested_bytes, want->requested_bytes);
    assert_int_equal(got.allocated_bytes, want->allocated_bytes);
    assert_int_equal(got.active_bytes, want->active_bytes);
    assert_int_equal(got.reserved_bytes, want->reserved_bytes);
    if (moment) assert_int_equal(blocks, m->events.items[moment - 1].live_count);
  }
}

/* One of a bucket's two moments: the told and the rest are everything. */
static void check_sample(const model_trace *m, const tsr_view_device *d, size_t bucket,
                         bool is_high) {
  uint32_t moment = is_high ? d->high[bucket] : d->low[bucket];
  uint64_t blocks;
  tsr_totals told = told_at(d, moment, &blocks);
  const tsr_totals *want = truth_at(m, moment);
  assert_int_equal(moment / d->bucket_moments, bucket);
  assert_int_equal((is_high ? d->allocated_high : d->allocated_low)[bucket], want->allocated_bytes);
  assert_int_equal((is_high ? d->active_high : d->active_low)[bucket], want->active_bytes);
  uint32_t rest_blocks = (is_high ? d->rest_blocks_high : d->rest_blocks_low)[bucket];
  if (moment) assert_int_equal(blocks + rest_blocks, m->events.items[moment - 1].live_count);
  for (size_t g = 0; g < d->grouping_count; g++) {
    const tsr_view_grouping *grouping = &d->groupings[g];
    const uint64_t *sums = is_high ? grouping->rest_high : grouping->rest_low;
    uint64_t sum = told.requested_bytes;
    for (size_t k = 0; k < grouping->count; k++) sum += sums[bucket * grouping->count + k];
    assert_int_equal(sum, want->requested_bytes);
  }
}

static void check_buckets(const model_trace *m, const tsr_view_device *d, uint64_t most) {
  check_order(d);
  assert_true(d->allocation_count <= most && d->rest_count);
  for (size_t i = 0; i < d->bucket_count; i++) {
    check_sample(m, d, i, true);
    check_sample(m, d, i, false);
  }
  for (uint32_t moment = 0; moment <= d->event_count; moment++) {
    uint64_t bytes = truth_at(m, moment)->allocated_bytes;
    assert_true(bytes <= d->allocated_high[moment / d->bucket_moments]);
    assert_true(bytes >= d->allocated_low[moment / d->bucket_moments]);
  }
  assert_int_equal(d->high[d->peak / d->bucket_moments], d->peak);
}

static void check_program(const model_program *program) {
  model_trace m = {0};
  model_random(&m, program);
  tsr_snapshot *snapshot = model_snapshot(&m, 1, NULL);
  tsr_view *all = view_of(snapshot, 0, 0);
  assert_int_equal(all->device_count, 1);
  check_all_told(&m, &all->devices[0]);
  tsr_view_free(all);
  for (uint64_t most = 1; most < 1000; most = most * 7 + 2) {
    tsr_view *few = view_of(snapshot, most, 37);
    check_buckets(&m, &few->devices[0], most);
    tsr_view_free(few);
  }
  tsr_snapshot_free(snapshot);
  model_release(&m);
}

static void defaults(void **state) {
  (void)state;
  check_program(&(model_program){.operations = 4000, .seed = 3});
}

static void streams_and_pools(void **state) {
  (void)state;
  check_program(
      &(model_program){.operations = 3000, .seed = 4, .streams = 3, .wait_one_in = 4, .pools = 2});
}

static void expandable(void **state) {
  (void)state;
  check_program(&(model_program){
      .operations = 3000, .seed = 5, .conf = "expandable_segments:True", .empty_one_in = 300});
}

/* ---- the page ---- */

static int keep(void *context, const char *data, size_t size_bytes) {
  tsr__buffer_append(context, data, size_bytes);
  return 0;
}

static const char *find(const tsr__buffer *page, const char *text) {
  size_t size = strlen(text);
  for (size_t i = 0; i + size <= page->size; i++)
    if (memcmp(page->data + i, text, size) == 0) return page->data + i;
  return NULL;
}

static void page_is_bounded(void **state) {
  (void)state;
  model_trace m = {0};
  model_random(&m, &(model_program){.operations = 4000, .seed = 6});
  tsr_snapshot *snapshot = model_snapshot(&m, 1, NULL);
  tsr_view *view = view_of(snapshot, 0, 0);
  tsr_page_input input = {{"</script><b>&\"\xff", snapshot}, view};
  tsr__buffer page = {0};
  tsr_error error = {0};
  assert_int_equal(tsr_report_page(&input, 1, NULL, keep, &page, &error), 0);
  assert_int_equal(error.status, 0);
  const char *head = find(&page, "<script type=\"application/json\"");
  assert_non_null(head);
  assert_non_null(find(&page, "\\u003c/script>\\u003cb>&\\\"\xEF\xBF\xBD"));
  size_t size = page.size;
  page.size = 0;
  tsr_page_options small = {.most_bytes = size / 2};
  assert_int_equal(tsr_report_page(&input, 1, &small, keep, &page, &error), TSR_ERROR_LIMIT);
  assert_int_equal(error.status, TSR_ERROR_LIMIT);
  assert_int_equal(page.size, 0);
  tsr__buffer_release(&page);
  tsr_view_free(view);
  tsr_view_free(NULL);
  tsr_snapshot_free(snapshot);
  model_release(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults),
      cmocka_unit_test(streams_and_pools),
      cmocka_unit_test(expandable),
      cmocka_unit_test(page_is_bounded),
  };
  return cmocka_run_group_tests_name("view", tests, NULL, NULL);
}
