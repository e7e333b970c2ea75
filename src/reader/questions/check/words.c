/* words.c - see words.h. */
#include "questions/check/words.h"

#include "questions/shared/names.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/format.h"
#include "emit/heading.h"
#include "emit/text.h"

#define SIZE(bytes) tsr__format_size((bytes), (char[TSR__FORMAT_BYTES]){0})

const char *tsr__check_subject(const tsr_check_result *result) {
  switch (result->rule) {
  case TSR_CHECK_MAX_CATEGORY:
  case TSR_CHECK_LOCK_CATEGORY: return tsr_category_name(result->category);
  case TSR_CHECK_MAX_RESERVED: return "reserved";
  case TSR_CHECK_LOCK_DEVICE: return "device";
  default: return "peak";
  }
}

static bool is_lock(const tsr_check_result *result) {
  return result->rule >= TSR_CHECK_LOCK_DEVICE;
}

void tsr__check_allowed(tsr__buffer *out, const tsr_check_result *result) {
  if (result->rule == TSR_CHECK_LOCK_DEVICE)
    tsr__buffer_text(out, "as in the lock");
  else if (is_lock(result))
    tsr__buffer_printf(out, "%s +- %s", SIZE(result->limit_bytes), SIZE(result->tolerance_bytes));
  else
    tsr__buffer_printf(out, "at most %s", SIZE(result->limit_bytes));
}

void tsr__check_difference(tsr__buffer *out, const tsr_check_result *result) {
  if (result->rule == TSR_CHECK_LOCK_DEVICE) return;
  if (result->bytes >= result->limit_bytes)
    tsr__buffer_printf(out, "+%s", SIZE(result->bytes - result->limit_bytes));
  else
    tsr__buffer_printf(out, "-%s", SIZE(result->limit_bytes - result->bytes));
}

static void append_lock_sentence(tsr__buffer *out, const tsr_check_result *r) {
  if (r->bytes == r->limit_bytes) {
    tsr__buffer_printf(out, "is %s, as in the lock", SIZE(r->bytes));
    return;
  }
  if (r->bytes >= r->limit_bytes)
    tsr__buffer_printf(out, "grew by %s, from %s to %s", SIZE(r->bytes - r->limit_bytes),
                       SIZE(r->limit_bytes), SIZE(r->bytes));
  else
    tsr__buffer_printf(out, "shrank by %s, from %s to %s", SIZE(r->limit_bytes - r->bytes),
                       SIZE(r->limit_bytes), SIZE(r->bytes));
  if (r->is_passed)
    tsr__buffer_printf(out, ", within the lock's %s", SIZE(r->tolerance_bytes));
  else if (r->bytes < r->limit_bytes)
    tsr__buffer_text(out, "; update the lock to keep the gain");
  else
    tsr__buffer_printf(out, "; the lock allows %s", SIZE(r->tolerance_bytes));
}

void tsr__check_sentence(tsr__buffer *out, const tsr_check_result *r) {
  char name[TSR__FORMAT_BYTES];
  if (r->rule == TSR_CHECK_LOCK_DEVICE) {
    tsr__buffer_printf(out, "%s is in the %s, but not in the %s", tsr__device_name(r->device, name),
                       r->limit_bytes ? "lock" : "snapshot", r->limit_bytes ? "snapshot" : "lock");
    return;
  }
  bool is_peak = !strcmp(tsr__check_subject(r), "peak");
  const char *what = is_peak && r->is_one_moment ? "allocated" : tsr__check_subject(r);
  if (r->device == TSR_DEVICE_HOST)
    tsr__buffer_printf(out, "%s pinned host memory ", what);
  else if (r->device == TSR_DEVICE_CPU)
    tsr__buffer_printf(out, "%s CPU memory ", what);
  else
    tsr__buffer_printf(out, "%s memory of device %" PRIu32 " ", what, r->device);
  if (r->is_one_moment) tsr__buffer_text(out, "at the only moment that the snapshot shows ");
  if (is_lock(r)) {
    append_lock_sentence(out, r);
    return;
  }
  tsr__buffer_printf(out, "is %s, ", SIZE(r->bytes));
  if (r->is_passed)
    tsr__buffer_printf(out, "within its budget of %s", SIZE(r->limit_bytes));
  else
    tsr__buffer_printf(out, "%s above its budget of %s", SIZE(r->bytes - r->limit_bytes),
                       SIZE(r->limit_bytes));
}

void tsr__check_append_place(tsr__stack_printer *printer, const tsr_check_device *device,
                             const tsr_check_cause *cause) {
  tsr__buffer *out = &printer->emitter->scratch;
  if (cause->cause.frame != TSR_NONE || !cause->is_locked)
    tsr__stack_append_name(printer, TSR__LABEL_LINE, cause->cause.stack);
  else
    (void)tsr__text_clean(out, tsr__text_of(cause->name));
  tsr__append_names(printer->emitter, device->named, &cause->cause.names);
}

void tsr__check_omitted(tsr__buffer *out, const tsr_check_result *result) {
  char count[TSR__FORMAT_BYTES];
  if (!result->omitted_causes) return;
  tsr__buffer_printf(out, "... and %s more function%s, %s (--top 0 shows all)",
                     tsr__format_count(result->omitted_causes, count),
                     tsr__plural(result->omitted_causes), SIZE(result->omitted_bytes));
}

void tsr__check_cause_words(tsr__stack_printer *printer, tsr__buffer *out,
                            const tsr_check_device *device, const tsr_check_result *result,
                            const tsr_check_cause *cause) {
  tsr__buffer *scratch = &printer->emitter->scratch;
  bool is_kind = result->rule == TSR_CHECK_MAX_CATEGORY || result->rule == TSR_CHECK_LOCK_CATEGORY;
  uint64_t now = result->is_change || is_kind ? cause->cause.bytes : cause->bytes_at_peak;
  tsr__buffer_printf(out, "%s of %s", SIZE(now), tsr_category_name(cause->cause.category));
  if (result->is_change) {
    uint64_t was = cause->locked_bytes;
    tsr__buffer_printf(out, ", %s %s than the lock's %s%s", SIZE(now > was ? now - was : was - now),
                       now > was ? "more" : "less", cause->is_locked ? "" : "at most ", SIZE(was));
  }
  tsr__buffer_text(out, result->is_change ? ", in " : " in ");
  tsr__check_append_place(printer, device, cause);
  (void)tsr__text_clean(out, (tsr_text){scratch->data, scratch->size});
  scratch->size = 0;
}

const tsr_check_device *tsr__check_device_of(const tsr_check *check,
                                             const tsr_check_result *result) {
  for (size_t i = 0; i < check->device_count; i++)
    if (check->devices[i].device == result->device) return &check->devices[i];
  return NULL;
}

const char *tsr__check_doubt_fact(tsr_check_doubt doubt) {
  static const char *const texts[TSR_CHECK_DOUBT_COUNT] = {"",
                                                           "the file is truncated",
                                                           "the compressed data is damaged",
                                                           "a part of the file could not be read",
                                                           "most of the memory has no category",
                                                           "the run ran out of memory"};
  assert((unsigned)doubt < TSR_CHECK_DOUBT_COUNT);
  return texts[doubt];
}

const char *tsr_check_doubt_reason(tsr_check_doubt doubt) {
  static const char *const texts[TSR_CHECK_DOUBT_COUNT] = {
      "",
      "the file is truncated, and the missing part could hold more",
      "the compressed data is damaged, and what is lost could hold more",
      "a part of the file could not be read, and could hold more",
      "most of the memory has no category, and could belong to one that has a budget",
      "the run ran out of memory: it needed more than it got"};
  return texts[(unsigned)doubt < TSR_CHECK_DOUBT_COUNT ? doubt : 0];
}

void tsr__check_verdict(tsr__buffer *out, const tsr_check *check) {
  char count[TSR__FORMAT_BYTES], failed[TSR__FORMAT_BYTES];
  tsr__format_count(check->result_count, count);
  if (check->failed_count)
    tsr__buffer_printf(out, "failed: %s of %s check%s",
                       tsr__format_count(check->failed_count, failed), count,
                       tsr__plural(check->result_count));
  else if (!check->device_count)
    tsr__buffer_text(out, "failed: no device has memory to check");
  else if (!check->result_count)
    tsr__buffer_text(out, "without a budget or lock: nothing was checked");
  else if (check->doubt)
    tsr__buffer_printf(out, "inconclusive: %s check%s passed, but %s", count,
                       tsr__plural(check->result_count), tsr__check_doubt_fact(check->doubt));
  else
    tsr__buffer_printf(out, "passed: %s check%s", count, tsr__plural(check->result_count));
  if (check->is_unrecorded && check->result_count)
    tsr__buffer_text(out, "; no history was recorded, so only one moment was checked");
}
