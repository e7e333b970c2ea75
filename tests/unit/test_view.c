/* Tests of answers/view and report/page: the data of pictures, compared with the model that made
 * the trace. What is listed individually and in sums must add up to what the model knew. */
#include "tessera/unstable/view.h"

#include <string.h>

#include "base/buffer.h"
#include "model_trace.h"
#include "study_support.h"
#include "tessera/tessera.h"
#include "tessera/unstable/unstable.h"

static tsr_view *view_of(const tsr_snapshot *snapshot) {
  tsr_view *view = NULL;
  tsr_error error = {0};
  assert_int_equal(tsr_view_compute(test_study(snapshot), NULL, NULL, &view, &error), 0);
  assert_int_equal(error.status, 0);
  return view;
}

static tsr_view_cut cut_of(const tsr_view_device *d, tsr_view_stretch stretch) {
  tsr_view_cut cut = {0};
  tsr_error error = {0};
  assert_int_equal(tsr_view_cut_compute(d, &stretch, &cut, &error), 0);
  assert_int_equal(error.status, 0);
  return cut;
}

static const tsr_totals *truth_at(const model_trace *m, uint32_t moment) {
  static const tsr_totals nothing;
  return moment ? &m->events.items[moment - 1].after : &nothing;
}

/* What the individual allocations hold at a moment. */
static tsr_totals told_at(const tsr_view_device *d, const tsr_view_cut *cut, uint32_t moment,
                          uint64_t *blocks) {
  tsr_totals totals = {0};
  *blocks = 0;
  for (size_t k = 0; k < cut->listed_count; k++) {
    size_t i = cut->listed[k];
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

/* The span that holds a whole block at a moment; the test fails without one. */
static const tsr_view_span *span_of_block(const tsr_view_device *d, size_t block, uint32_t moment) {
  for (size_t i = 0; i < d->span_count; i++) {
    const tsr_view_span *span = &d->spans[i];
    if (span->born > moment || span->died <= moment || d->address[block] < span->address) continue;
    uint64_t before = d->address[block] - span->address;
    if (before < span->size_bytes && d->block_bytes[block] <= span->size_bytes - before)
      return span;
  }
  fail_msg("no segment holds all of block %zu at moment %u", block, moment);
  return NULL;
}

/* A map of the segments at a moment: mapped ranges of one reservation that touch are one, every
 * block is in one of them as a whole, and no block overlaps another. */
static void check_map(const tsr_view_device *d, uint32_t moment) {
  uint64_t mapped = 0, used = 0;
  for (size_t i = 0; i < d->span_count; i++) {
    const tsr_view_span *a = &d->spans[i];
    if (a->born > moment || a->died <= moment) continue;
    mapped += a->size_bytes;
    for (size_t k = 0; k < d->span_count; k++) {
      const tsr_view_span *b = &d->spans[k];
      if (b == a || b->born > moment || b->died <= moment) continue;
      assert_true(a->address >= b->address + b->size_bytes ||
                  b->address >= a->address + a->size_bytes);
      bool is_one = a->is_expandable && b->is_expandable && a->stream == b->stream &&
                    a->pool == b->pool && a->is_large == b->is_large;
      assert_false(is_one && a->address + a->size_bytes == b->address);
    }
  }
  for (size_t i = 0; i < d->allocation_count; i++) {
    if (d->born[i] > moment || d->died[i] <= moment) continue;
    const tsr_view_span *span = span_of_block(d, i, moment);
    used += d->block_bytes[i];
    assert_true(used <= mapped);
    for (size_t k = i + 1; k < d->allocation_count && d->born[k] <= moment; k++)
      assert_true(d->died[k] <= moment || d->address[k] >= d->address[i] + d->block_bytes[i] ||
                  d->address[i] >= d->address[k] + d->block_bytes[k]);
    assert_true(span->size_bytes >= d->block_bytes[i]);
  }
}

static void check_all_told(const model_trace *m, const tsr_view_device *d) {
  tsr_view_cut cut = cut_of(d, (tsr_view_stretch){0});
  check_order(d);
  assert_int_equal(cut.rest_count, 0);
  assert_int_equal(cut.listed_count, d->allocation_count);
  for (uint32_t moment = 0; moment <= d->event_count; moment += 7) {
    uint64_t blocks;
    tsr_totals got = told_at(d, &cut, moment, &blocks);
    const tsr_totals *want = truth_at(m, moment);
    assert_int_equal(got.requested_bytes, want->requested_bytes);
    assert_int_equal(got.allocated_bytes, want->allocated_bytes);
    assert_int_equal(got.active_bytes, want->active_bytes);
    assert_int_equal(got.reserved_bytes, want->reserved_bytes);
    if (moment) assert_int_equal(blocks, m->events.items[moment - 1].live_count);
    if (moment % 5 == 0) check_map(d, moment);
  }
  check_map(d, (uint32_t)d->event_count);
  tsr_view_cut_release(&cut);
}

/* One of a bucket's two moments: the individual allocations and the rest are everything. */
static void check_sample(const model_trace *m, const tsr_view_device *d, const tsr_view_cut *cut,
                         size_t bucket, bool is_high) {
  uint32_t moment = is_high ? cut->high[bucket] : cut->low[bucket];
  uint64_t blocks;
  tsr_totals told = told_at(d, cut, moment, &blocks);
  const tsr_totals *want = truth_at(m, moment);
  assert_int_equal((moment - cut->from) / cut->bucket_moments, bucket);
  assert_int_equal((is_high ? cut->allocated_high : cut->allocated_low)[bucket],
                   want->allocated_bytes);
  assert_int_equal((is_high ? cut->active_high : cut->active_low)[bucket], want->active_bytes);
  if (!cut->rest_count) return;
  uint32_t rest_blocks = (is_high ? cut->rest_blocks_high : cut->rest_blocks_low)[bucket];
  if (moment) assert_int_equal(blocks + rest_blocks, m->events.items[moment - 1].live_count);
  for (size_t g = 0; g < d->grouping_count; g++) {
    const uint64_t *sums = is_high ? cut->rest[g].high : cut->rest[g].low;
    uint64_t sum = told.requested_bytes;
    for (size_t k = 0; k < d->groupings[g].count; k++)
      sum += sums[bucket * d->groupings[g].count + k];
    assert_int_equal(sum, want->requested_bytes);
  }
}

static void check_cut(const model_trace *m, const tsr_view_device *d, tsr_view_stretch stretch) {
  tsr_view_cut cut = cut_of(d, stretch);
  assert_true(cut.listed_count <= stretch.most_allocations);
  for (size_t k = 1; k < cut.listed_count; k++) assert_true(cut.listed[k - 1] < cut.listed[k]);
  for (size_t k = 0; k < cut.listed_count; k++)
    assert_true(d->born[cut.listed[k]] <= cut.to && d->died[cut.listed[k]] > cut.from);
  for (size_t i = 0; i < cut.bucket_count; i++) {
    check_sample(m, d, &cut, i, true);
    check_sample(m, d, &cut, i, false);
  }
  for (uint32_t moment = cut.from; moment <= cut.to; moment++) {
    uint64_t bytes = truth_at(m, moment)->allocated_bytes;
    size_t bucket = (moment - cut.from) / cut.bucket_moments;
    assert_true(bytes <= cut.allocated_high[bucket]);
    assert_true(bytes >= cut.allocated_low[bucket]);
  }
  tsr_view_cut_release(&cut);
}

static void check_program(const model_program *program) {
  model_trace m = {0};
  model_random(&m, program);
  tsr_snapshot *snapshot = model_snapshot(&m, 1, NULL);
  tsr_view *view = view_of(snapshot);
  assert_int_equal(view->device_count, 1);
  const tsr_view_device *d = view->devices;
  uint32_t last = (uint32_t)d->event_count;
  check_all_told(&m, d);
  for (uint64_t most = 1; most < 1000; most = most * 7 + 2) {
    check_cut(&m, d, (tsr_view_stretch){0, 0, most, 37});
    check_cut(&m, d, (tsr_view_stretch){last / 3, last / 2, most, 11});
    check_cut(&m, d, (tsr_view_stretch){last - 1, UINT32_MAX, most, 5});
    check_cut(&m, d, (tsr_view_stretch){last / 2, last / 2, most, 1});
  }
  tsr_view_cut cut = {0};
  tsr_view_stretch past = {.from = last + 1};
  assert_int_equal(tsr_view_cut_compute(d, &past, &cut, NULL), TSR_ERROR_ARGUMENT);
  tsr_view_cut_release(&cut);
  tsr_view_free(view);
  tsr_snapshot_free(snapshot);
  model_release(&m);
}

/* A single moment is listed in full: the table of a served page. */
static void one_moment(void **state) {
  (void)state;
  model_trace m = {0};
  model_random(&m, &(model_program){.operations = 3000, .seed = 9});
  tsr_snapshot *snapshot = model_snapshot(&m, 1, NULL);
  tsr_view *view = view_of(snapshot);
  const tsr_view_device *d = view->devices;
  for (uint32_t moment = 1; moment <= d->event_count; moment += 13) {
    tsr_view_cut cut = cut_of(d, (tsr_view_stretch){.from = moment, .to = moment});
    uint64_t blocks;
    tsr_totals got = told_at(d, &cut, moment, &blocks);
    assert_int_equal(blocks, m.events.items[moment - 1].live_count);
    assert_int_equal(blocks, cut.listed_count);
    assert_int_equal(got.requested_bytes, truth_at(&m, moment)->requested_bytes);
    tsr_view_cut_release(&cut);
  }
  tsr_view_free(view);
  tsr_snapshot_free(snapshot);
  model_release(&m);
}

static bool is_listed(const tsr_view_cut *cut, uint32_t row) {
  for (size_t i = 0; i < cut->listed_count; i++)
    if (cut->listed[i] == row) return true;
  return false;
}

/* What a finding is about is listed before what is larger, as far as it fits. */
static void findings_are_listed(void **state) {
  (void)state;
  enum { FEW = 6, MOST = 40 };
  model_trace m = {0};
  model_random(&m, &(model_program){.operations = 3000, .seed = 21});
  tsr_snapshot *snapshot = model_snapshot(&m, 1, NULL);
  tsr_view *view = view_of(snapshot);
  tsr_view_device d = view->devices[0];
  uint32_t smallest[MOST], count = 0;
  tsr_view_cut plain = cut_of(&d, (tsr_view_stretch){.most_allocations = MOST});
  for (uint32_t row = 0; row < d.allocation_count && count < MOST; row += 5)
    if (!is_listed(&plain, row)) smallest[count++] = row;
  assert_int_equal(count, MOST);
  tsr_view_cut_release(&plain);
  tsr_view_finding findings[] = {{.rows = smallest, .row_count = MOST}, /* too many */
                                 {.rows = smallest, .row_count = FEW}};
  d.findings = findings;
  d.finding_count = 2;
  check_cut(&m, &d, (tsr_view_stretch){0, 0, MOST, 37});
  tsr_view_cut cut = cut_of(&d, (tsr_view_stretch){.most_allocations = MOST});
  for (uint32_t i = 0; i < FEW; i++) assert_true(is_listed(&cut, smallest[i]));
  assert_in_range(cut.listed_count, FEW + 1, MOST);
  tsr_view_cut_release(&cut);
  tsr_view_free(view);
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
  /* The large pool too maps 2 MiB then: its class follows from what the mapping continues. */
  check_program(&(model_program){.operations = 3000,
                                 .seed = 10,
                                 .conf = "expandable_segments:True,large_segment_size_mb:2",
                                 .empty_one_in = 300});
}

/* A reservation mapped piece by piece is one segment, and one again after a piece in its middle was
 * unmapped and mapped once more. */
static void one_reservation(void **state) {
  (void)state;
  model_trace m = {0};
  uint32_t blocks[6];
  model_start(&m, &(model_program){.conf = "expandable_segments:True"});
  for (size_t i = 0; i < 6; i++) blocks[i] = model_malloc(&m, 40 * MODEL_MIB, 0, (tsr_pool){0, 0});
  uint32_t grown = (uint32_t)m.events.count;
  model_free(&m, blocks[2], 0);
  model_free(&m, blocks[3], 0);
  model_empty(&m);
  uint32_t split = (uint32_t)m.events.count;
  (void)model_malloc(&m, 80 * MODEL_MIB, 0, (tsr_pool){0, 0});
  tsr_snapshot *snapshot = model_snapshot(&m, 1, NULL);
  tsr_view *view = view_of(snapshot);
  const tsr_view_device *d = view->devices;
  const struct {
    uint32_t moment;
    size_t segments;
    uint64_t bytes;
  } want[] = {{grown, 1, 240 * MODEL_MIB},
              {split, 2, 160 * MODEL_MIB},
              {(uint32_t)d->event_count, 1, 240 * MODEL_MIB}};
  for (size_t w = 0; w < sizeof want / sizeof *want; w++) {
    size_t segments = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < d->span_count; i++) {
      if (d->spans[i].born > want[w].moment || d->spans[i].died <= want[w].moment) continue;
      segments++;
      bytes += d->spans[i].size_bytes;
    }
    assert_int_equal(segments, want[w].segments);
    assert_int_equal(bytes, want[w].bytes);
    check_map(d, want[w].moment);
  }
  tsr_view_free(view);
  tsr_snapshot_free(snapshot);
  model_release(&m);
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
  tsr_view *view = view_of(snapshot);
  tsr_view_cut cut = cut_of(view->devices, (tsr_view_stretch){0});
  tsr_page_input input = {{"</script><b>&\"\xff", snapshot}, view, &cut};
  tsr__buffer text = {0};
  tsr_error error = {0};
  tsr_page *page = NULL;
  assert_int_equal(tsr_page_open(&input, 1, NULL, &page, &error), 0);
  assert_int_equal(tsr_page_write(page, keep, &text, &error), 0);
  assert_int_equal(error.status, 0);
  tsr_page_free(page);
  assert_non_null(find(&text, "<script type=\"application/json\""));
  assert_non_null(find(&text, "\\u003c/script>\\u003cb>&\\\"\xEF\xBF\xBD"));
  assert_non_null(find(&text, "connect-src 'none'"));
  assert_null(find(&text, "connect-src 'self'"));
  size_t size = text.size;
  tsr_page_options small = {.most_bytes = size / 2};
  page = NULL;
  assert_int_equal(tsr_page_open(&input, 1, &small, &page, &error), TSR_ERROR_LIMIT);
  assert_int_equal(error.status, TSR_ERROR_LIMIT);
  assert_null(page);
  tsr__buffer_release(&text);
  tsr_view_cut_release(&cut);
  tsr_view_free(view);
  tsr_view_free(NULL);
  tsr_page_free(NULL);
  tsr_snapshot_free(snapshot);
  model_release(&m);
}

static int refuse(void *context, const char *data, size_t size_bytes) {
  (void)context, (void)data, (void)size_bytes;
  return -1;
}

/* A part contains the length of its head, and exists for existing tracks only. */
static void parts(void **state) {
  (void)state;
  model_trace m = {0};
  model_random(&m, &(model_program){.operations = 2000, .seed = 8});
  tsr_snapshot *snapshot = model_snapshot(&m, 1, NULL);
  tsr_view *view = view_of(snapshot);
  tsr_view_cut few = cut_of(view->devices, (tsr_view_stretch){.most_allocations = 10});
  tsr_view_cut part = cut_of(view->devices, (tsr_view_stretch){.from = 100, .to = 200});
  tsr_page_input input = {{"file", snapshot}, view, &few};
  tsr_page_options served = {.is_served = true};
  tsr_page *page = NULL;
  tsr__buffer text = {0};
  assert_int_equal(tsr_page_open(&input, 1, &served, &page, NULL), 0);
  assert_int_equal(tsr_page_write(page, keep, &text, NULL), 0);
  assert_non_null(find(&text, "connect-src 'self'"));
  text.size = 0;
  assert_int_equal(tsr_page_write_part(page, 0, &part, keep, &text, NULL), 0);
  const unsigned char *bytes = (const unsigned char *)text.data;
  size_t head = bytes[0] | (size_t)bytes[1] << 8 | (size_t)bytes[2] << 16;
  assert_true(head + 4 < text.size && bytes[3] == 0);
  assert_memory_equal(text.data + 4, "{\"from\":100,\"to\":200,", 21);
  assert_int_equal(text.data[4 + head - 1], '}');
  assert_int_equal(text.data[4 + head], 0x78); /* a zlib stream */
  assert_int_equal(tsr_page_write_part(page, 1, &part, keep, &text, NULL), TSR_ERROR_ARGUMENT);
  assert_int_equal(tsr_page_write_part(page, 0, &part, refuse, NULL, NULL), TSR_ERROR_WRITE);
  assert_int_equal(tsr_page_write(page, refuse, NULL, NULL), TSR_ERROR_WRITE);
  tsr__buffer_release(&text);
  tsr_page_free(page);
  tsr_view_cut_release(&few);
  tsr_view_cut_release(&part);
  tsr_view_free(view);
  tsr_snapshot_free(snapshot);
  model_release(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults),
      cmocka_unit_test(streams_and_pools),
      cmocka_unit_test(expandable),
      cmocka_unit_test(one_moment),
      cmocka_unit_test(findings_are_listed),
      cmocka_unit_test(one_reservation),
      cmocka_unit_test(page_is_bounded),
      cmocka_unit_test(parts),
  };
  return cmocka_run_group_tests_name("view", tests, NULL, NULL);
}
