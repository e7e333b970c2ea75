/* report_allocations.c - the report of `tessera diff --by allocation`.
 *
 *   Device 0: 412 allocations of a step are in both, 2 only in the old snapshot, 5 only in the new one; +12.00 MiB at the peak of
 *   the step, 1.00 GiB before and 1.01 GiB now.
 *     compared: step 3 of the old snapshot and step 7 of the new one
 *
 *   #  difference  count       old       new  at the peak  category    allocated at
 *   1  only new        2             8.13 MiB   +16.25 MiB  workspace   model.py:382 forward
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/format.h"
#include "emit/emitter.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/diff/diff.h"
#include "questions/diff/report_allocations.h"

#define DELTA_BYTES (TSR__FORMAT_BYTES + 1)

static const char *delta_text(int64_t delta, char text[DELTA_BYTES]) {
  uint64_t size = delta < 0 ? 0 - (uint64_t)delta : (uint64_t)delta;
  text[0] = delta < 0 ? '-' : '+';
  tsr__format_size(size, text + 1);
  return delta ? text : text + 1;
}

/* ---- The verdict ---- */

static void append_counts(tsr__buffer *out, const tsr_alignment *a) {
  static const struct {
    tsr_allocation_status status;
    const char *one, *many;
  } words[] = {
      {TSR_ALLOCATION_REMOVED, "is only in the old snapshot", "are only in the old snapshot"},
      {TSR_ALLOCATION_ADDED, "is only in the new one", "are only in the new one"},
      {TSR_ALLOCATION_RESIZED, "has another size", "have another size"},
      {TSR_ALLOCATION_LIFETIME, "of both is live at one of the peaks only",
       "of both are live at one of the peaks only"}};
  char count[TSR__FORMAT_BYTES];
  bool is_equal = true;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    uint64_t n = a->counts[words[i].status];
    if (!n) continue;
    is_equal = false;
    tsr__buffer_printf(out, ", %s %s", tsr__format_count(n, count),
                       n == 1 ? words[i].one : words[i].many);
  }
  if (is_equal) tsr__buffer_text(out, ", and nothing else");
}

void tsr__alignment_verdict(tsr__emitter *emitter, const tsr_diff_device *device) {
  const tsr_alignment *a = device->alignment;
  char delta[DELTA_BYTES], before[TSR__FORMAT_BYTES], after[TSR__FORMAT_BYTES];
  tsr__buffer *out = &emitter->scratch;
  uint64_t was = a->sides[0].peak_allocated_bytes, is = a->sides[1].peak_allocated_bytes;
  tsr__buffer_text(out, tsr__device_title(device->device, before));
  tsr__buffer_printf(out, ": %s allocation%s in both", tsr__format_count(a->same, before),
                     a->same == 1 ? " is" : "s are");
  append_counts(out, a);
  tsr__format_size(was, before);
  tsr__format_size(is, after);
  if (was == is)
    tsr__buffer_printf(out, "; the same peak of %s.", after);
  else
    tsr__buffer_printf(out, "; %s at the peak, %s before and %s now.",
                       delta_text(tsr__diff_delta(was, is), delta), before, after);
  tsr__emit_line(emitter, TSR__VERDICT, 0);
  if (a->sides[0].step && a->sides[1].step)
    tsr__emit_printf(emitter, TSR__PLAIN,
                     "  compared: step %" PRIu64 " of the old snapshot, step %" PRIu64
                     " of the new one",
                     a->sides[0].step, a->sides[1].step);
  else
    tsr__emit_printf(emitter, TSR__PLAIN, "  compared: %s of the old snapshot, %s of the new one",
                     a->sides[0].step ? "the last whole step" : "all",
                     a->sides[1].step ? "the last whole step" : "all");
}

/* ---- The list ---- */

static const char *difference_text(tsr_allocation_status status) {
  switch (status) {
  case TSR_ALLOCATION_REMOVED: return "only old";
  case TSR_ALLOCATION_ADDED: return "only new";
  case TSR_ALLOCATION_RESIZED: return "size";
  case TSR_ALLOCATION_LIFETIME: return "lifetime";
  }
  return "";
}

/* A size, nothing for what is not there. */
static tsr__cell size_cell(const tsr_allocation_change *change, int side) {
  bool is_missing = change->status == (side ? TSR_ALLOCATION_REMOVED : TSR_ALLOCATION_ADDED);
  return is_missing ? tsr__nothing() : tsr__bytes(change->sides[side].size_bytes);
}

static int shown_side(const tsr_allocation_change *change) {
  return change->status == TSR_ALLOCATION_REMOVED ? 0 : 1;
}

static void emit_change(tsr__emitter *emitter, tsr__stack_printer *const stacks[2],
                        const tsr_allocation_change *change, size_t number, tsr_text name) {
  char delta[DELTA_BYTES];
  const tsr_allocation_side *before = &change->sides[0], *after = &change->sides[1];
  int64_t at_peak = tsr__diff_delta(before->peak_bytes, after->peak_bytes);
  tsr__cell cells[] = {
      tsr__count(number),
      tsr__string(difference_text(change->status)),
      tsr__string(tsr_allocation_status_name(change->status)),
      tsr__count(change->count),
      size_cell(change, 0),
      size_cell(change, 1),
      tsr__string(at_peak ? delta_text(at_peak, delta) : ""),
      tsr__bytes(before->peak_bytes),
      tsr__bytes(after->peak_bytes),
      tsr__index(before->event),
      tsr__index(after->event),
      tsr__string(tsr_category_name(change->category)),
      tsr__text(name),
  };
  tsr__emit_row(emitter, cells);
  int side = shown_side(change);
  tsr__stack_emit(stacks[side], change->sides[side].stack);
  tsr__emit_row_end(emitter);
}

/* Names of the rows; the caller releases them. */
static void name_rows(tsr__emitter *emitter, tsr__stack_printer *const stacks[2],
                      const tsr_alignment *a, tsr__row_names *names) {
  tsr__stack_row *rows = TSR__NEW_ARRAY(tsr__stack_row, a->change_count);
  *names = (tsr__row_names){0};
  if (!rows) emitter->scratch.failed = true;
  for (size_t i = 0; rows && i < a->change_count; i++) {
    int side = shown_side(&a->changes[i]);
    rows[i] = (tsr__stack_row){stacks[side], a->changes[i].sides[side].stack};
  }
  if (rows) tsr__stack_names(rows, a->change_count, names);
  tsr__free(rows);
}

static void emit_side(tsr__emitter *emitter, const char *key, const tsr_aligned_side *side) {
  tsr__emit_object(emitter, key);
  tsr__emit_field(emitter, "step", NULL, side->step ? tsr__count(side->step) : tsr__nothing());
  tsr__emit_field(emitter, "allocations", NULL, tsr__count(side->allocations));
  tsr__emit_field(emitter, "peak_event", NULL, tsr__index(side->peak_event));
  tsr__emit_field(emitter, "peak_requested_bytes", NULL, tsr__bytes(side->peak_requested_bytes));
  tsr__emit_field(emitter, "peak_allocated_bytes", NULL, tsr__bytes(side->peak_allocated_bytes));
  tsr__emit_end(emitter);
}

static void emit_counts(tsr__emitter *emitter, const tsr_alignment *a) {
  tsr__emit_field(emitter, "same", NULL, tsr__count(a->same));
  tsr__emit_field(emitter, "moved", NULL, tsr__count(a->moved));
  for (int i = 0; i < TSR_ALLOCATION_STATUSES; i++) {
    tsr__emit_object(emitter, tsr_allocation_status_name((tsr_allocation_status)i));
    tsr__emit_field(emitter, "allocations", NULL, tsr__count(a->counts[i]));
    tsr__emit_field(emitter, "bytes", NULL, tsr__bytes(a->bytes[i]));
    tsr__emit_end(emitter);
  }
}

void tsr__alignment_emit(tsr__emitter *emitter, tsr__stack_printer *const stacks[2],
                         const tsr_alignment *a) {
  static const tsr__column columns[] = {
      {NULL, "#", TSR__RIGHT},
      {NULL, "differs", TSR__LEFT},
      {"status", NULL, TSR__LEFT},
      {"count", "count", TSR__RIGHT},
      {"old_size_bytes", "old", TSR__RIGHT},
      {"new_size_bytes", "new", TSR__RIGHT},
      {NULL, "at the peak", TSR__RIGHT},
      {"old_peak_bytes", NULL, TSR__RIGHT},
      {"new_peak_bytes", NULL, TSR__RIGHT},
      {"old_event", NULL, TSR__RIGHT},
      {"new_event", NULL, TSR__RIGHT},
      {"category", "category", TSR__LEFT},
      {NULL, "allocated at", TSR__ELASTIC},
  };
  tsr__row_names names;
  char count[TSR__FORMAT_BYTES];
  tsr__emit_object(emitter, "alignment");
  emit_side(emitter, "old", &a->sides[0]);
  emit_side(emitter, "new", &a->sides[1]);
  emit_counts(emitter, a);
  name_rows(emitter, stacks, a, &names);
  tsr__emit_table(emitter, "changes", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < a->change_count; i++)
    emit_change(emitter, stacks, &a->changes[i], i + 1, tsr__stack_name(&names, i));
  tsr__emit_table_end(emitter);
  tsr__row_names_release(&names);
  tsr__emit_field(emitter, "omitted_changes", NULL, tsr__count(a->omitted_changes));
  tsr__emit_end(emitter);
  if (a->omitted_changes)
    tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more row%s (--top 0 shows all)",
                     tsr__format_count(a->omitted_changes, count), tsr__plural(a->omitted_changes));
  if (a->moved)
    tsr__emit_printf(emitter, TSR__DIM, "  %s %s made in another order",
                     tsr__format_count(a->moved, count), a->moved == 1 ? "is" : "are");
}
