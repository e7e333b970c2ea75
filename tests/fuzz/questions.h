/* questions.h - for fuzz targets: every question about a snapshot, whatever it contains.
 *
 * A target opens what it is given within small limits and hands the snapshot to fuzz_ask, so that
 * answers, reports and writers meet weird snapshots too. */
#ifndef TSR_FUZZ_QUESTIONS_H
#define TSR_FUZZ_QUESTIONS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/study_support.h"
#include "base/buffer.h"
#include "io/source.h"
#include "questions/reports.h"
#include "require.h"
#include "tessera/tessera.h"
#include "tessera/unstable/unstable.h"

/* Bounds that keep one input quick; a target's fields are its own to change. */
static const tsr_limits fuzz_limits = {.nesting = 200,
                                       .stack_values = 1 << 14,
                                       .memo_entries = 1 << 16,
                                       .string_bytes = 1 << 16,
                                       .all_strings_bytes = 1 << 20,
                                       .stack_depth = 1000,
                                       .loose_values = 1 << 12,
                                       .devices = 16,
                                       .memory_bytes = 64 << 20,
                                       .expansion_base_bytes = 1 << 20,
                                       .expansion_ratio = 20};

/* ---- reading through a narrow window ---- */

typedef struct fuzz_stream {
  tsr__stream base;
  const uint8_t *data;
  size_t size, piece;
} fuzz_stream;

static inline ptrdiff_t fuzz_read(tsr__stream *stream, unsigned char *buffer, size_t size,
                                  tsr_error *error) {
  fuzz_stream *f = (fuzz_stream *)stream;
  (void)error;
  if (size > f->piece) size = f->piece;
  if (size > f->size) size = f->size;
  if (size) memcpy(buffer, f->data, size);
  f->data += size;
  f->size -= size;
  return (ptrdiff_t)size;
}

static inline void fuzz_close(tsr__stream *stream) {
  free(stream);
}

/* A stream that gives `piece` bytes a read. */
static inline tsr__stream *fuzz_pieces(const uint8_t *data, size_t size, size_t piece) {
  fuzz_stream *f = calloc(1, sizeof *f);
  if (!f) abort();
  *f = (fuzz_stream){{.read = fuzz_read, .close = fuzz_close}, data, size, piece};
  return &f->base;
}

/* ---- questions ---- */

enum { FUZZ_MOST_WRITTEN = 8 << 20 };

/* Collects what is written, and refuses more than is useful. */
static inline int fuzz_write(void *context, const char *data, size_t size_bytes) {
  tsr__buffer *buffer = context;
  if (buffer->size + size_bytes > FUZZ_MOST_WRITTEN) return -1;
  tsr__buffer_append(buffer, data, size_bytes);
  return buffer->failed ? -1 : 0;
}

static inline void check_written(int status, const tsr_error *error, tsr__buffer *written) {
  check_error(status, error);
  require(!status || status == TSR_ERROR_WRITE, "a report can be written");
  for (size_t i = 0; i < written->size; i++)
    require((unsigned char)written->data[i] >= 0x20 || written->data[i] == '\n',
            "a report drives no terminal");
  tsr__buffer_release(written);
}

/* Ask one question and write its report, as text and as JSON. */
#define FUZZ_ASK(snapshot, name, ...)                                                          \
  do {                                                                                         \
    tsr_error error_ = {0};                                                                    \
    tsr_##name *answer_ = NULL;                                                                \
    tsr_report_input heading_ = {"file", (snapshot)};                                          \
    int status_ = tsr_##name##_compute(test_study(snapshot), __VA_ARGS__, &answer_, &error_);  \
    check_error(status_, &error_);                                                             \
    for (int json_ = 0; !status_ && json_ < 2; json_++) {                                      \
      tsr_report_options how_ = {.format = json_ ? TSR_REPORT_JSON : TSR_REPORT_TEXT,          \
                                 .verbose = true,                                              \
                                 .full_stacks = true};                                         \
      tsr__buffer written_ = {0};                                                              \
      tsr_error why_ = {0};                                                                    \
      int done_ = tsr__report_##name(&heading_, answer_, &how_, fuzz_write, &written_, &why_); \
      check_written(done_, &why_, &written_);                                                  \
    }                                                                                          \
    tsr_##name##_free(answer_);                                                                \
  } while (0)

static inline uint64_t fuzz_event_count(const tsr_snapshot *snapshot) {
  size_t count;
  uint64_t sum = 0;
  const uint32_t *devices = tsr_snapshot_devices(snapshot, &count);
  for (size_t i = 0; i < count; i++) sum += tsr_snapshot_events(snapshot, devices[i]).count;
  return sum;
}

/* What is written can be read again, and holds as much. */
static inline void fuzz_export(const tsr_snapshot *snapshot, tsr_export_format format) {
  tsr__buffer written = {0};
  tsr_error error = {0};
  int status = tsr_snapshot_export(snapshot, format, fuzz_write, &written, &error);
  check_error(status, &error);
  if (!status) {
    tsr_snapshot *again = NULL;
    status = tsr_snapshot_read(written.data, written.size, NULL, &again, &error);
    if (status) fprintf(stderr, "%s at %llu\n", error.message, (unsigned long long)error.offset);
    require(!status, "an export can be read again");
    size_t count, count_again;
    tsr_snapshot_segments(snapshot, &count);
    tsr_snapshot_segments(again, &count_again);
    require(fuzz_event_count(snapshot) == fuzz_event_count(again), "an export has all events");
    require(count == count_again, "an export has all segments");
    tsr_snapshot_free(again);
  }
  tsr__buffer_release(&written);
}

/* A page of a device, and a part of it, with so few allocations told one by one that there is a
 * rest. */
static inline void fuzz_page(const tsr_snapshot *snapshot, const tsr_view *view,
                             const tsr_view_cut *cuts) {
  tsr_page_input input = {{"file", snapshot}, view, cuts};
  tsr_page_options how = {.is_served = true};
  tsr_page *page = NULL;
  tsr_error error = {0};
  tsr__buffer written = {0};
  int status = tsr_page_open(&input, 1, &how, &page, &error);
  check_error(status, &error);
  if (status) return;
  status = tsr_page_write(page, fuzz_write, &written, &error);
  check_written(status, &error, &written);
  for (size_t i = 0; i < view->device_count; i++) {
    written = (tsr__buffer){0};
    status = tsr_page_write_part(page, i, &cuts[i], fuzz_write, &written, &error);
    check_error(status, &error);
    tsr__buffer_release(&written);
  }
  tsr_page_free(page);
}

static inline void fuzz_view(const tsr_snapshot *snapshot) {
  tsr_view *view = NULL;
  tsr_view_cut cuts[4] = {{0}};
  tsr_error error = {0};
  int status = tsr_view_compute(test_study(snapshot), NULL, NULL, &view, &error);
  check_error(status, &error);
  if (status) return;
  tsr_view first = *view;
  if (first.device_count > 4) first.device_count = 4;
  for (size_t i = 0; !status && i < first.device_count; i++) {
    uint32_t end = (uint32_t)view->devices[i].event_count;
    tsr_view_stretch how = {end / 3, end - end / 4, 2, 3};
    status = tsr_view_cut_compute(&view->devices[i], &how, &cuts[i], &error);
    check_error(status, &error);
  }
  if (!status) fuzz_page(snapshot, &first, cuts);
  for (size_t i = 0; i < first.device_count; i++) tsr_view_cut_release(&cuts[i]);
  tsr_view_free(view);
}

static inline void fuzz_trim(const tsr_snapshot *snapshot) {
  tsr_window window = {.first = 1, .last = 3};
  tsr_snapshot *part = NULL;
  tsr_error error = {0};
  int status = tsr_snapshot_trim(test_study(snapshot), &window, NULL, &part, &error);
  check_error(status, &error);
  if (status) return;
  FUZZ_ASK(part, peak, NULL);
  fuzz_export(part, TSR_EXPORT_PICKLE);
  tsr_snapshot_free(part);
}

/* A snapshot does not differ from itself. */
static inline void fuzz_diff(const tsr_snapshot *snapshot, tsr_diff_by by) {
  tsr_diff *diff = NULL;
  tsr_error error = {0};
  tsr_report_input heading = {"file", snapshot};
  tsr_report_options how = {.format = TSR_REPORT_JSON, .stack_frames = 2};
  tsr__buffer written = {0};
  int status =
      tsr_diff_compute(test_study(snapshot), test_study(snapshot), by, NULL, &diff, &error);
  check_error(status, &error);
  for (size_t i = 0; !status && i < diff->device_count; i++) {
    const tsr_alignment *alignment = diff->devices[i].alignment;
    require(diff->devices[i].change_count == 0, "no change");
    require(!alignment || alignment->change_count == 0, "all allocations are pairs");
  }
  status = tsr__report_diff(&heading, &heading, diff, &how, fuzz_write, &written, &error);
  check_written(status, &error, &written);
  tsr_diff_free(diff);
}

/* Sizes whose sums stop at the largest number add up to nothing. */
static inline bool has_sane_sizes(const tsr_snapshot *snapshot, uint32_t device) {
  tsr_events events = tsr_snapshot_events(snapshot, device);
  for (uint64_t i = 0; i < events.count; i++)
    if (events.size[i] > UINT64_C(1) << 40) return false;
  return true;
}

/* The parts of each moment add up to it, and none is above the most that was requested: at the peak, which is of allocated memory, less may be
 * requested than at another moment, since memory that waits for a stream is requested, too, and sizes are rounded. */
static inline void check_moments(const tsr_profile *profile, const tsr_profile_device *device,
                                 uint64_t most_requested) {
  for (size_t i = 0; i < device->moment_count; i++) {
    const tsr_profile_moment *moment = &device->moments[i];
    uint64_t shares = 0, cells = 0;
    for (size_t k = 0; k < moment->share_count; k++)
      shares += device->shares[moment->first_share + k].bytes;
    for (size_t k = 0; k < moment->cell_count; k++)
      cells += device->cells[moment->first_cell + k].bytes;
    require(shares == moment->bytes, "what groups hold adds up");
    require(!profile->is_ordered || cells == moment->bytes, "what bands hold adds up");
    require(moment->bytes <= most_requested, "no moment is above the most that was requested");
  }
}

static inline void fuzz_profile(const tsr_snapshot *snapshot, const tsr_profile_options *how) {
  tsr_profile *profile = NULL;
  tsr_error error = {0};
  FUZZ_ASK(snapshot, profile, how, NULL);
  if (tsr_profile_compute(test_study(snapshot), how, NULL, &profile, &error)) return;
  tsr_peak *peak = NULL;
  require(!tsr_peak_compute(test_study(snapshot), NULL, &peak, &error), "a peak");
  require(peak->device_count == profile->device_count, "of the same devices");
  for (size_t i = 0; i < profile->device_count; i++)
    if (has_sane_sizes(snapshot, profile->devices[i].device))
      check_moments(profile, &profile->devices[i], peak->devices[i].maxima.requested_bytes);
  tsr_peak_free(peak);
  tsr_profile_free(profile);
}

static inline void fuzz_profiles(const tsr_snapshot *snapshot) {
  FUZZ_ASK(snapshot, profile, NULL, NULL);
  for (int by = TSR_PROFILE_BY_CATEGORY; by <= TSR_PROFILE_BY_COMPILE_CONTEXT; by++)
    fuzz_profile(snapshot, &(tsr_profile_options){.by = (tsr_profile_by)by,
                                                  .is_ordered = by != TSR_PROFILE_BY_ANNOTATION,
                                                  .moment_count = 9,
                                                  .series_count = 2});
}

/* A run is within its own lock, and every form can be written whatever names hold. */
static inline void fuzz_check(const tsr_snapshot *snapshot) {
  tsr_check_limit limits[] = {{TSR_CHECK_MAX_PEAK, TSR_CATEGORY_UNKNOWN, 1},
                              {TSR_CHECK_MAX_CATEGORY, TSR_CATEGORY_ACTIVATION, 1}};
  tsr_check_options how = {.wants_causes = true};
  tsr_report_input heading = {"file", snapshot};
  tsr__buffer text = {0};
  tsr_check *check = NULL;
  tsr_lock *lock = NULL;
  tsr_error error = {0};
  require(!tsr_check_compute(test_study(snapshot), &how, NULL, &check, &error), "a check");
  require(!tsr_lock_write(check, fuzz_write, &text, &error), "a lock can be written");
  int status = tsr_lock_parse(text.data, text.size, &lock, &error);
  if (status) fprintf(stderr, "%s\n", error.message);
  require(!status, "a lock can be read again");
  tsr_check_free(check);
  how = (tsr_check_options){.limits = limits, .limit_count = 2, .lock = lock};
  require(!tsr_check_compute(test_study(snapshot), &how, NULL, &check, &error), "a check");
  for (size_t i = 0; i < check->result_count; i++)
    require(check->results[i].rule < TSR_CHECK_LOCK_DEVICE || check->results[i].is_passed,
            "a run is what its lock says");
  for (int format = TSR_CHECK_TEXT; format <= TSR_CHECK_MARKDOWN; format++) {
    tsr_check_face face = {.format = (tsr_check_format)format, .root = "/a"};
    tsr__buffer written = {0};
    status = tsr__report_check(&heading, check, &face, NULL, fuzz_write, &written, &error);
    check_written(status, &error, &written);
  }
  tsr__buffer_release(&text);
  tsr_check_free(check);
  tsr_lock_free(lock);
}

/* Every question, report and form, and what all of them share. */
static inline void fuzz_ask(const tsr_snapshot *snapshot) {
  size_t count;
  const tsr_warning *warnings = tsr_snapshot_warnings(snapshot, &count);
  for (size_t i = 0; i < count; i++)
    require(warnings[i].count && warnings[i].code[0] && warnings[i].message[0], "a warning");
  require(tsr_snapshot_format(snapshot)[0], "a form");
  FUZZ_ASK(snapshot, info, NULL);
  FUZZ_ASK(snapshot, peak, NULL);
  fuzz_profiles(snapshot);
  tsr_at_where event = {.kind = TSR_AT_EVENT, .event = 2}, time = {.kind = TSR_AT_TIME};
  FUZZ_ASK(snapshot, at, &event, NULL);
  FUZZ_ASK(snapshot, at, &time, NULL);
  FUZZ_ASK(snapshot, why, NULL, NULL);
  fuzz_check(snapshot);
  fuzz_diff(snapshot, TSR_DIFF_BY_LINE);
  fuzz_diff(snapshot, TSR_DIFF_BY_ALLOCATION);
  fuzz_export(snapshot, TSR_EXPORT_PICKLE);
  fuzz_export(snapshot, TSR_EXPORT_JSON);
  fuzz_trim(snapshot);
  fuzz_view(snapshot);
}

/* ---- two ways of reading that must agree ---- */

typedef int fuzz_reader(tsr__input *source, tsr_snapshot **out, tsr_error *error);

/* Read `data` as one piece of memory and through a window that is fed `piece` bytes at a time; ask
 * every question about the result. */
static inline void fuzz_both_ways(fuzz_reader *read, const uint8_t *data, size_t size,
                                  size_t piece) {
  tsr__input source;
  tsr_snapshot *whole = NULL, *narrow = NULL;
  tsr_error error = {0}, narrow_error = {0};
  tsr__input_memory(&source, data, size);
  int status = read(&source, &whole, &error);
  tsr__input_close(&source);
  check_error(status, &error);
  if (tsr__input_open_sized(&source, fuzz_pieces(data, size, piece), 2, NULL)) abort();
  int narrow_status = read(&source, &narrow, &narrow_error);
  tsr__input_close(&source);
  if (status != narrow_status)
    fprintf(stderr, "whole: %s\nnarrow: %s\n", error.message, narrow_error.message);
  require(status == narrow_status, "a narrow window reads the same");
  if (!status) {
    require(fuzz_event_count(whole) == fuzz_event_count(narrow), "the same events");
    size_t count, narrow_count;
    tsr_snapshot_warnings(whole, &count);
    tsr_snapshot_warnings(narrow, &narrow_count);
    require(count == narrow_count, "the same warnings");
    fuzz_ask(whole);
  }
  tsr_snapshot_free(whole);
  tsr_snapshot_free(narrow);
}

#endif
