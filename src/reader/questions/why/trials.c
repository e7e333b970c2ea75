/* trials.c - repeats the trace up to an out-of-memory under other settings. See trials.h.
 *
 * The device of a trial has the memory that PyTorch reserved plus the driver's free memory at the
 * failure (or PyTorch's earlier peak reserved, if that is more): memory held by others is
 * assumed unchanged. After the last event before the failure, the failed request itself is made, and if
 * it is served, what outlook.c expects the program to have done next: a setting that saves one request and
 * fails at the next is no help.
 * Under the recorded settings it should fail there too; if it does not,
 * the other figures are worth little. */
#include "questions/why/trials.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"
#include "questions/shared/rerun.h"

static int try_one(const tsr__timeline *t, const tsr_why_device *device,
                   const tsr__rerun_options *options, tsr_why_trial *trial, tsr_error *error) {
  tsr_whatif_run run = {.is_recorded = trial->is_recorded};
  tsr__rerun_end end;
  uint64_t capacity = device->trial_capacity_bytes;
  int status = tsr__rerun_further(t, options, &run, &end, error);
  if (status) return status;
  uint64_t missing = tsr__drop_u64(tsr__sum_u64(end.reserved_bytes, end.needed_bytes), capacity);
  trial->settings = options->settings;
  trial->is_given_up = run.is_given_up;
  trial->reserved_peak_bytes = run.peak.totals.reserved_bytes;
  trial->failed_event = -1;
  if (run.is_out_of_memory) {
    trial->failed_event = run.out_of_memory.event;
    trial->reserved_bytes = run.out_of_memory.totals.reserved_bytes;
  }
  if (run.is_out_of_memory || run.is_given_up) return 0;
  trial->fits = end.is_served;
  trial->reserved_bytes = end.request_reserved_bytes;
  if (trial->reserved_bytes > trial->reserved_peak_bytes)
    trial->reserved_peak_bytes = trial->reserved_bytes;
  if (!trial->fits) {
    trial->failed_event = device->moment.event;
    trial->missing_bytes = missing;
  } else if (options->tail.repeats) {
    trial->is_rest_known = true;
    trial->is_rest_served = end.is_tail_served;
    if (!end.is_tail_served) trial->rest_missing_bytes = missing;
  } else if (device->outlook.basis == TSR_WHY_BASIS_STATES) {
    trial->is_rest_known = true; /* more is asked for than there is, whatever the settings */
    trial->rest_missing_bytes = device->outlook.short_bytes;
  }
  return 0;
}

/* Those that serve the request first, those of them that serve the rest before others, by what they
 * reserve in the end; then the later the failure the better, then
 * by what is missing. */
static int compare_trials(const void *a, const void *b) {
  const tsr_why_trial *x = a, *y = b;
  if (x->is_given_up != y->is_given_up) return x->is_given_up ? 1 : -1;
  if (x->fits != y->fits) return x->fits ? -1 : 1;
  if (x->is_rest_served != y->is_rest_served) return x->is_rest_served ? -1 : 1;
  if (x->rest_missing_bytes != y->rest_missing_bytes)
    return x->rest_missing_bytes > y->rest_missing_bytes ? 1 : -1;
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

int tsr__why_try(const tsr__timeline *timeline, const tsr_why_options *options,
                 const tsr__rerun_tail *tail, tsr__patience *patience, tsr_why_device *device,
                 tsr_error *error) {
  const tsr_allocator_settings *list = options->settings;
  size_t count = options->setting_count;
  tsr__rerun_options how = {.settings = timeline->settings,
                            .capacity_bytes = device->trial_capacity_bytes,
                            .until = device->moment.event,
                            .patience = patience,
                            .tail = *tail};
  assert(device->trial_capacity_bytes);
  weigh_chances(timeline, device);
  if (!count && device->is_beyond_settings) return 0;
  if (!count) list = tsr_whatif_default(&count);
  device->trials = TSR__NEW_ARRAY(tsr_why_trial, count + 1);
  if (!device->trials) return tsr__fail_memory(error);
  device->trials[0].is_recorded = true;
  int status = try_one(timeline, device, &how, &device->trials[0], error);
  device->trial_count = 1;
  for (size_t i = 0; !status && i < count; i++) {
    how.settings = list[i];
    how.settings.tie_break = timeline->settings.tie_break;
    how.settings.rounding_extra_bytes = timeline->settings.rounding_extra_bytes;
    if (same_settings(&how.settings, &timeline->settings)) continue;
    status = try_one(timeline, device, &how, &device->trials[device->trial_count++], error);
  }
  if (!status)
    tsr__sort(device->trials, device->trial_count, sizeof *device->trials, compare_trials);
  return status;
}
