/* why_trials.c - the trace up to an out-of-memory again, under other settings. See why_trials.h.
 *
 * The device of a trial is as large as what PyTorch reserved and what the driver had free at the
 * failure together (or what PyTorch reserved at its highest before, if that is more): what others
 * held is taken to have stayed as it was. After the last event before the failure the model is asked
 * for the request itself. Under the recorded settings it should fail there too; where it does not,
 * the other figures are worth as little. */
#include "answers/why_trials.h"

#include <stdlib.h>
#include <string.h>

#include "answers/rerun.h"
#include "base/checked.h"
#include "base/memory.h"

uint64_t tsr__why_needed(const tsr_allocator_settings *settings, uint64_t request_bytes) {
  if (!settings->expandable_segments) return tsr__segment_size(settings, request_bytes);
  uint64_t page = tsr__is_large(request_bytes) ? TSR__LARGE_SEGMENT : TSR__SMALL_SEGMENT;
  uint64_t rest = request_bytes % page;
  return rest ? tsr__sum_u64(request_bytes, page - rest) : request_bytes;
}

/* The most that is reserved up to an event. */
static uint64_t highest_reserved(const tsr__timeline *t, int64_t event) {
  uint64_t now = t->start.reserved_bytes, most = now;
  for (int64_t i = 0; i < event; i++) {
    switch ((tsr_action)t->events.action[i]) {
    case TSR_ACTION_SEGMENT_ALLOC:
    case TSR_ACTION_SEGMENT_MAP: now = tsr__sum_u64(now, t->events.size[i]); break;
    case TSR_ACTION_SEGMENT_FREE:
    case TSR_ACTION_SEGMENT_UNMAP: now = tsr__drop_u64(now, t->events.size[i]); break;
    default: break;
    }
    if (now > most) most = now;
  }
  return most;
}

static uint64_t capacity_at(const tsr__timeline *t, const tsr_why_device *device) {
  uint64_t most = highest_reserved(t, device->moment.event);
  uint64_t there = device->moment.totals.reserved_bytes;
  /* A limit of the process's own is nowhere told; what it had reserved was allowed. */
  if (device->missing_bytes) there = tsr__sum_u64(there, device->device_free_bytes);
  uint64_t capacity = most > there ? most : there;
  return capacity ? capacity : 1; /* 0 would be a device without end */
}

/* Ask for what failed, in the state that the rerun has led to. */
static int ask_again(tsr_allocator *allocator, const tsr_why_device *device, tsr_why_trial *trial,
                     tsr_error *error) {
  uint64_t address;
  int status = tsr_allocator_malloc(allocator, device->request_bytes, device->stream, device->pool,
                                    &address);
  if (status < 0) return tsr__fail_memory(error);
  uint64_t reserved = tsr_allocator_now(allocator).reserved_bytes;
  trial->fits = status == 0;
  trial->reserved_bytes = reserved;
  if (reserved > trial->reserved_peak_bytes) trial->reserved_peak_bytes = reserved;
  if (trial->fits) return 0;
  trial->failed_event = device->moment.event;
  uint64_t needed = tsr__why_needed(&trial->settings, device->request_bytes);
  trial->missing_bytes =
      tsr__drop_u64(tsr__sum_u64(reserved, needed), device->trial_capacity_bytes);
  return 0;
}

static int try_one(const tsr__timeline *t, const tsr_why_device *device,
                   const tsr_allocator_settings *settings, uint64_t *patience, tsr_why_trial *trial,
                   tsr_error *error) {
  tsr__rerun_options how = {.settings = *settings,
                            .capacity_bytes = device->trial_capacity_bytes,
                            .until = device->moment.event,
                            .patience = patience};
  tsr_whatif_run run = {.is_recorded = trial->is_recorded};
  tsr_allocator *allocator = NULL;
  int status = tsr__rerun(t, &how, &run, &allocator, error);
  trial->settings = *settings;
  trial->is_given_up = run.is_given_up;
  trial->reserved_peak_bytes = run.peak.totals.reserved_bytes;
  trial->failed_event = -1;
  if (!status && run.is_out_of_memory) {
    trial->failed_event = run.out_of_memory.event;
    trial->reserved_bytes = run.out_of_memory.totals.reserved_bytes;
  } else if (!status && !run.is_given_up) {
    status = ask_again(allocator, device, trial, error);
  }
  tsr_allocator_destroy(allocator);
  return status;
}

/* Those that fit first, by what they reserve in the end; then the later the failure the better, then
 * by what is missing. */
static int compare_trials(const void *a, const void *b) {
  const tsr_why_trial *x = a, *y = b;
  if (x->is_given_up != y->is_given_up) return x->is_given_up ? 1 : -1;
  if (x->fits != y->fits) return x->fits ? -1 : 1;
  if (x->failed_event != y->failed_event) return x->failed_event < y->failed_event ? 1 : -1;
  if (x->missing_bytes != y->missing_bytes) return x->missing_bytes > y->missing_bytes ? 1 : -1;
  if (x->reserved_bytes != y->reserved_bytes) return x->reserved_bytes > y->reserved_bytes ? 1 : -1;
  return y->is_recorded - x->is_recorded;
}

static bool same_settings(const tsr_allocator_settings *a, const tsr_allocator_settings *b) {
  char x[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES], y[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES];
  return strcmp(tsr_allocator_settings_text(a, x), tsr_allocator_settings_text(b, y)) == 0;
}

/* Whatever the settings, what was asked for has to be there. Of the request, its rounding may be lost. */
static void weigh_chances(const tsr__timeline *t, tsr_why_device *device) {
  bool rounds_up = false;
  for (size_t i = 0; i < TSR_ROUNDUP_SLOTS; i++) rounds_up |= t->settings.roundup_divisions[i] > 1;
  uint64_t request = tsr__drop_u64(device->request_bytes, TSR__MIN_BLOCK - 1);
  device->asked_bytes =
      tsr__drop_u64(device->moment.totals.requested_bytes, device->fragmentation.waiting_bytes);
  device->is_beyond_settings =
      !rounds_up && device->missing_bytes &&
      tsr__sum_u64(device->asked_bytes, request) > device->trial_capacity_bytes;
}

int tsr__why_try(const tsr__timeline *timeline, const tsr_why_options *options, uint64_t *patience,
                 tsr_why_device *device, tsr_error *error) {
  const tsr_allocator_settings *list = options->settings;
  size_t count = options->setting_count;
  device->trial_capacity_bytes = capacity_at(timeline, device);
  weigh_chances(timeline, device);
  if (!count && device->is_beyond_settings) return 0;
  if (!count) list = tsr_whatif_default(&count);
  device->trials = TSR__NEW_ARRAY(tsr_why_trial, count + 1);
  if (!device->trials) return tsr__fail_memory(error);
  device->trials[0].is_recorded = true;
  int status = try_one(timeline, device, &timeline->settings, patience, &device->trials[0], error);
  device->trial_count = 1;
  for (size_t i = 0; !status && i < count; i++) {
    tsr_allocator_settings settings = list[i];
    settings.tie_break = timeline->settings.tie_break;
    settings.rounding_extra_bytes = timeline->settings.rounding_extra_bytes;
    if (same_settings(&settings, &timeline->settings)) continue;
    status = try_one(timeline, device, &settings, patience, &device->trials[device->trial_count++],
                     error);
  }
  if (!status) qsort(device->trials, device->trial_count, sizeof *device->trials, compare_trials);
  return status;
}
