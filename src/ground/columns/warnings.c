/* warnings.c - what the reader noticed, in words.
 *
 * Texts stand in warnings.h, but for a file that ends too early: there, what is missing matters,
 * and depends on what was read. PyTorch writes segments first and traces next; other writers may
 * have them the other way round. */
#include <inttypes.h>
#include <stdio.h>

#include "columns/tables.h"

/* "the trace of device 1 was read up to event 22", or that no event was read. */
static int say_traces(const tsr_snapshot *snapshot, char *text, size_t size) {
  if (!snapshot->device_traces.count) return snprintf(text, size, "no event of a trace was read");
  const tsr__device_trace *last = &snapshot->device_traces.items[snapshot->device_traces.count - 1];
  if (last->device == TSR_DEVICE_HOST && snapshot->device_traces.count > 1) last--;
  return snprintf(text, size, "the trace of device %" PRIu32 " was read up to event %" PRIu64,
                  last->device, last->count - 1);
}

/* The input ended in the midst of the snapshot. */
static void say_cut(const tsr_snapshot *snapshot, char *text, size_t size) {
  bool has_segments = !snapshot->top_keys || (snapshot->top_keys & TSR__KEY(SEGMENTS));
  bool has_traces = snapshot->top_keys & TSR__KEY(DEVICE_TRACES);
  if (snapshot->cut_key == TSR__NAME_DEVICE_TRACES) {
    int length = say_traces(snapshot, text, size);
    (void)snprintf(text + length, size - (size_t)length, "; %s",
                   has_segments
                       ? "all segments were read, in their final state, so totals are approximate"
                       : "the segments after it are missing, so totals are approximate");
  } else if (has_segments && has_traces) {
    (void)snprintf(text, size, "segments and traces were read; the rest is missing");
  } else if (has_segments) {
    (void)snprintf(text, size, "%zu %s read; %s", snapshot->listed_segment_count,
                   snapshot->listed_segment_count == 1 ? "segment was" : "segments were",
                   snapshot->top_keys ? "the traces after them are missing"
                                      : "the rest is missing");
  } else {
    (void)snprintf(text, size, "traces were read; the segments after them are missing");
  }
}

static const char *say_truncated(tsr_snapshot *snapshot) {
  static const char after[] = "the file is truncated, but after the snapshot, which is complete";
  if (!snapshot->is_cut) return after;
  if (snapshot->flat.count)
    return "the file is truncated; it was read up to there, so what followed is missing";
  char *text = snapshot->truncated;
  int length = snprintf(text, sizeof snapshot->truncated, "the file is truncated: ");
  say_cut(snapshot, text + length, sizeof snapshot->truncated - (size_t)length);
  return text;
}

static const char *say_ignored(tsr_snapshot *snapshot, const char *message) {
  (void)snprintf(snapshot->ignored, sizeof snapshot->ignored, "%s%s", message,
                 snapshot->ignored_columns);
  return snapshot->ignored;
}

bool tsr__snapshot_is_incomplete(const tsr_snapshot *snapshot) {
  static const tsr__warning_kind kinds[] = {TSR__WARN_TRUNCATED, TSR__WARN_DAMAGED,
                                            TSR__WARN_INCOMPLETE};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (snapshot->tally[kinds[i]]) return true;
  return false;
}

tsr__loss tsr__snapshot_loss(const tsr_snapshot *snapshot) {
  static const struct {
    tsr__warning_kind kind;
    tsr__loss loss;
  } rows[] = {
      {TSR__WARN_TRUNCATED, TSR__LOSS_TRUNCATED},
      {TSR__WARN_INCOMPLETE, TSR__LOSS_TRUNCATED},
      {TSR__WARN_DAMAGED, TSR__LOSS_DAMAGED},
      {TSR__WARN_EVENTS_MALFORMED, TSR__LOSS_UNREADABLE},
      {TSR__WARN_ACTIONS_MISSING, TSR__LOSS_UNREADABLE},
      {TSR__WARN_SIZES_MISSING, TSR__LOSS_UNREADABLE},
      {TSR__WARN_SEGMENTS_MALFORMED, TSR__LOSS_UNREADABLE},
      {TSR__WARN_BLOCKS_MALFORMED, TSR__LOSS_UNREADABLE},
      {TSR__WARN_VALUES_UNREADABLE, TSR__LOSS_UNREADABLE},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (snapshot->tally[rows[i].kind]) return rows[i].loss;
  return TSR__LOSS_NONE;
}

bool tsr__lacks_a_part(const tsr_snapshot *snapshot) {
  tsr__loss loss = tsr__snapshot_loss(snapshot);
  return loss != TSR__LOSS_NONE &&
         (snapshot->is_cut || !snapshot->tally[TSR__WARN_TRUNCATED] || loss != TSR__LOSS_TRUNCATED);
}

void tsr__snapshot_warn(tsr_snapshot *snapshot) {
  static const struct {
    const char *code, *message;
  } texts[] = {
#define TSR__WARNING_TEXT(symbol, code, message) {code, message},
      TSR__WARNINGS(TSR__WARNING_TEXT)
#undef TSR__WARNING_TEXT
  };
  snapshot->warning_count = 0;
  for (size_t i = 0; i < TSR__WARNING_COUNT; i++) {
    if (!snapshot->tally[i]) continue;
    const char *message = i == TSR__WARN_TRUNCATED         ? say_truncated(snapshot)
                          : i == TSR__WARN_COLUMNS_IGNORED ? say_ignored(snapshot, texts[i].message)
                                                           : texts[i].message;
    snapshot->warnings[snapshot->warning_count++] =
        (tsr_warning){texts[i].code, snapshot->tally[i], message};
  }
}
