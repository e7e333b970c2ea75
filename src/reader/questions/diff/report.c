/* report.c - the report of `tessera diff`.
 *
 *   Device 0: +2.08 GiB at the peak, 20.47 GiB before and 22.55 GiB now; 71.2 % of it activation at
 *   model.py:382 forward.
 *   settings before: expandable_segments:True; now: default
 *
 *   #     change       old       new  allocations  status  category    allocated at
 *   1  +1.48 GiB  1.50 GiB  2.98 GiB     24 -> 48  grown   activation  model.py:382 forward
 *   ... and 33 more changes, +120.00 MiB (--top 0 shows all)
 *
 *   #1  +1.48 GiB, grown from 1.50 GiB to 2.98 GiB, activation
 *     main, train.py:40
 *
 * Stacks are shown with -v or --full-stacks. A change's stack is shown from the new snapshot if it has it. With category, operation and line
 * the last column is the group, and no stacks follow.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/format.h"
#include "emit/emitter.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/diff/report_allocations.h"
#include "questions/reports.h"
#include "questions/shared/moment.h"
#include "questions/shared/names.h"
#include "questions/shared/stepping.h"

/* The emitter, with a printer for the stacks of either snapshot. */
typedef struct diff_printer {
  tsr__emitter *emitter;
  tsr_diff_by by;
  tsr__stack_printer old_stacks, new_stacks;
} diff_printer;

/* A sign and a size: "+2.08 GiB". */
#define DELTA_BYTES (TSR__FORMAT_BYTES + 1)
static const char *format_delta(int64_t delta, char text[DELTA_BYTES]) {
  uint64_t size = delta < 0 ? 0 - (uint64_t)delta : (uint64_t)delta;
  text[0] = delta < 0 ? '-' : '+';
  tsr__format_size(size, text + 1);
  return delta ? text : text + 1;
}

static int64_t difference(uint64_t before, uint64_t after) {
  uint64_t size = before > after ? before - after : after - before;
  if (size > INT64_MAX) size = INT64_MAX;
  return before > after ? -(int64_t)size : (int64_t)size;
}

/* a - b, saturating. */
static int64_t less(int64_t a, int64_t b) {
  if (b < 0 && a > INT64_MAX + b) return INT64_MAX;
  if (b > 0 && a < INT64_MIN + b) return INT64_MIN;
  return a - b;
}

static void choose_stack(diff_printer *printer, const tsr_change *change,
                         tsr__stack_printer **stacks, uint32_t *stack) {
  bool is_new = change->status != TSR_CHANGE_REMOVED;
  *stacks = is_new ? &printer->new_stacks : &printer->old_stacks;
  *stack = is_new ? change->new_stack : change->old_stack;
}

/* Names of the rows by stack; the caller releases them. */
static void name_changes(diff_printer *printer, const tsr_diff_device *device,
                         tsr__row_names *names) {
  tsr__stack_row *rows = TSR__NEW_ARRAY(tsr__stack_row, device->change_count);
  *names = (tsr__row_names){0};
  if (!rows) printer->emitter->scratch.failed = true;
  for (size_t i = 0; rows && i < device->change_count; i++)
    choose_stack(printer, &device->changes[i], &rows[i].printer, &rows[i].stack);
  if (rows && printer->by == TSR_DIFF_BY_STACK) tsr__stack_names(rows, device->change_count, names);
  tsr__free(rows);
}

/* ---- The verdict ---- */

/* "71.2 % of it ", "all of it ", or, where others go the other way, "+3.00 GiB alone, ". */
static void append_part(tsr__buffer *out, int64_t part, int64_t whole) {
  uint64_t some = (uint64_t)(part < 0 ? -part : part);
  uint64_t all = (uint64_t)(whole < 0 ? -whole : whole);
  char text[DELTA_BYTES];
  if (some == all)
    tsr__buffer_text(out, "all of it ");
  else if (some < all)
    tsr__buffer_printf(out, "%s of it ", tsr__format_percent(some, all, text));
  else
    tsr__buffer_printf(out, "%s ", format_delta(part, text));
}

/* "at model.py:382 forward"; a place in brackets stands alone. */
static void append_line(tsr__buffer *out, const char *line) {
  tsr__buffer_printf(out, *line == '(' ? "%s" : "at %s", line);
}

/* Where most of it comes from: a category at a line, if most of the category's change is there, or else the
 * kind. */
static void append_cause(tsr__buffer *out, const tsr_diff_cause *cause, int64_t whole) {
  if (!whole || !cause->kind_delta_bytes || (cause->kind_delta_bytes < 0) != (whole < 0)) return;
  int64_t line = cause->line_delta_bytes, kind = cause->kind_delta_bytes;
  bool is_one_line = cause->line && (whole < 0 ? line <= kind / 2 && line >= kind
                                               : line >= kind / 2 && line <= kind);
  tsr__buffer_text(out, "; ");
  append_part(out, is_one_line ? cause->line_delta_bytes : cause->kind_delta_bytes, whole);
  tsr__buffer_text(out, tsr_category_name(cause->category));
  if (!cause->line) return;
  tsr__buffer_text(out, is_one_line ? " " : ", most ");
  append_line(out, cause->line);
}

static const char *or_default(const char *settings) {
  return *settings ? settings : "default";
}

/* A snapshot without a history shows whatever was allocated when it was taken. */
static void print_moments(tsr__emitter *emitter, const tsr_diff_device *device) {
  bool is_old = device->old_side.is_there && !device->old_side.has_history;
  bool is_new = device->new_side.is_there && !device->new_side.has_history;
  if (!is_old && !is_new) return;
  tsr__buffer_printf(&emitter->scratch, "%s history: what %s allocated at one moment is compared.",
                     is_old && is_new ? "Neither snapshot has a"
                     : is_old         ? "The old snapshot has no"
                                      : "The new snapshot has no",
                     is_old && is_new ? "they had" : "it had");
  tsr__emit_paragraph(emitter, TSR__DIM, 2);
}

static void print_settings(tsr__emitter *emitter, const tsr_diff_device *device) {
  const char *before = device->old_side.settings, *after = device->new_side.settings;
  if (!device->old_side.is_there || !device->new_side.is_there || !strcmp(before, after)) return;
  tsr__emit_printf(emitter, TSR__PLAIN, "  allocator settings before: %s; now: %s",
                   or_default(before), or_default(after));
}

/* What changed between the moments compared. */
static int64_t compared_delta(const tsr_diff_device *device) {
  return difference(device->old_side.compared.totals.allocated_bytes,
                    device->new_side.compared.totals.allocated_bytes);
}

/* What most was allocated in a phase, or why nothing was: memory ran out before it, or the trace has none of it. */
static tsr__cell moment_in(const tsr_diff_side *side, int phase) {
  const tsr_moment *moment = &side->in_phase[phase];
  if (moment->event >= 0) return tsr__bytes(moment->totals.allocated_bytes);
  bool is_before =
      side->is_stopped && side->stop_phase != TSR_PHASE_UNKNOWN && phase > (int)side->stop_phase;
  return tsr__string(is_before ? "not reached" : "not recorded");
}

/* The peaks are of two phases: which, and what changed in the one that is compared. */
static void print_phases(tsr__emitter *emitter, const tsr_diff_device *device) {
  static const tsr__column columns[] = {{NULL, "most allocated in", TSR__LEFT},
                                        {NULL, "old", TSR__RIGHT},
                                        {NULL, "new", TSR__RIGHT},
                                        {NULL, "change", TSR__RIGHT}};
  char delta[DELTA_BYTES];
  const char *phase = tsr__phase_words(device->compared_phase);
  tsr__buffer *out = &emitter->scratch;
  if (!phase) return;
  tsr__buffer_printf(out, "The old peak is in %s", tsr__phase_words(device->old_side.phase));
  tsr__buffer_printf(out, ", the new one in %s; what follows compares %s of both: %s",
                     tsr__phase_words(device->new_side.phase), phase,
                     format_delta(compared_delta(device), delta));
  append_cause(out, &device->cause, compared_delta(device));
  tsr__buffer_text(out, ".");
  tsr__emit_paragraph(emitter, TSR__PLAIN, 2);
  tsr__emit_table(emitter, NULL, columns, sizeof columns / sizeof *columns);
  for (int i = 0; i < TSR_PHASE_COUNT; i++) {
    const tsr_moment *before = &device->old_side.in_phase[i],
                     *after = &device->new_side.in_phase[i];
    const char *words = tsr__phase_words((tsr_phase)i);
    bool is_both = before->event >= 0 && after->event >= 0;
    if (!words || (before->event < 0 && after->event < 0)) continue;
    int64_t change = difference(before->totals.allocated_bytes, after->totals.allocated_bytes);
    tsr__emit_row(emitter, (tsr__cell[]){tsr__string(words), moment_in(&device->old_side, i),
                                         moment_in(&device->new_side, i),
                                         tsr__string(is_both ? format_delta(change, delta) : "")});
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
  tsr__emit_space(emitter);
}

static void print_verdict(diff_printer *printer, const tsr_diff_device *device) {
  tsr__emitter *emitter = printer->emitter;
  tsr__emit_space(emitter);
  if (!tsr__emitter_is_text(emitter)) return;
  if (device->alignment) {
    tsr__alignment_verdict(emitter, device);
    return;
  }
  tsr__buffer *out = &emitter->scratch;
  uint64_t before = device->old_side.peak.totals.allocated_bytes,
           after = device->new_side.peak.totals.allocated_bytes;
  char delta[DELTA_BYTES], old_size[TSR__FORMAT_BYTES], new_size[TSR__FORMAT_BYTES];
  int64_t whole = difference(before, after);
  tsr__buffer_text(out, tsr__device_title(device->device, old_size));
  if (device->old_side.is_there && device->new_side.is_there &&
      device->old_side.device != device->new_side.device)
    tsr__buffer_printf(out, " (%" PRIu32 " before)", device->old_side.device);
  tsr__format_size(before, old_size);
  tsr__format_size(after, new_size);
  if (!device->old_side.is_there)
    tsr__buffer_printf(out, ": only in the new snapshot, peak %s", new_size);
  else if (!device->new_side.is_there)
    tsr__buffer_printf(out, ": only in the old snapshot, peak %s", old_size);
  else if (whole)
    tsr__buffer_printf(out, ": %s %s, %s before and %s now", format_delta(whole, delta),
                       device->old_side.has_history || device->new_side.has_history ? "at the peak"
                                                                                    : "allocated",
                       old_size, new_size);
  else if (device->change_count)
    tsr__buffer_printf(out, ": the same peak of %s, with different content", new_size);
  else
    tsr__buffer_printf(out, ": no change, a peak of %s", new_size);
  if (!device->compared_phase) append_cause(out, &device->cause, whole);
  tsr__buffer_text(out, ".");
  tsr__emit_line(emitter, TSR__VERDICT, 0);
  print_moments(emitter, device);
  print_settings(emitter, device);
  print_phases(emitter, device);
}

/* ---- The list ---- */

static void emit_side(tsr__emitter *emitter, const char *key, const tsr_diff_side *side) {
  tsr__emit_object(emitter, key);
  tsr__emit_field(emitter, "device", NULL,
                  side->is_there ? tsr__device(side->device) : tsr__nothing());
  tsr__emit_field(emitter, "events", NULL, tsr__count(side->event_count));
  tsr__emit_field(emitter, "settings", NULL, tsr__string(side->settings));
  tsr__emit_object(emitter, "peak");
  tsr__emit_field(emitter, "event", NULL, tsr__index(side->is_there ? side->peak.event : -1));
  tsr__emit_field(emitter, "time_us", NULL,
                  side->is_there ? tsr__time(side->peak.time_us) : tsr__nothing());
  tsr__emit_field(emitter, "requested_bytes", NULL, tsr__bytes(side->peak.totals.requested_bytes));
  tsr__emit_field(emitter, "allocated_bytes", NULL, tsr__bytes(side->peak.totals.allocated_bytes));
  tsr__emit_field(emitter, "active_bytes", NULL, tsr__bytes(side->peak.totals.active_bytes));
  tsr__emit_field(emitter, "reserved_bytes", NULL, tsr__bytes(side->peak.totals.reserved_bytes));
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
}

/* "24" where it is the same in both, else "24 -> 48". */
#define COUNTS_BYTES (2 * TSR__FORMAT_BYTES + 4)
static const char *format_counts(const tsr_change *change, char text[COUNTS_BYTES]) {
  char after[TSR__FORMAT_BYTES];
  tsr__format_count(change->old_allocations, text);
  if (change->old_allocations == change->new_allocations) return text;
  size_t used = strlen(text);
  (void)snprintf(text + used, COUNTS_BYTES - used, " -> %s",
                 tsr__format_count(change->new_allocations, after));
  return text;
}

static void emit_stack(diff_printer *printer, const tsr_change *change) {
  tsr__stack_printer *stacks;
  uint32_t stack;
  choose_stack(printer, change, &stacks, &stack);
  if (stack == TSR_NONE && !tsr__emitter_is_text(printer->emitter))
    tsr__emit_field(printer->emitter, "before_recording", NULL, tsr__bool(change->is_older));
  tsr__stack_emit(stacks, stack);
}

static void emit_change(diff_printer *printer, const tsr_named *names, const tsr_change *change,
                        size_t number, tsr_text name) {
  tsr__emitter *emitter = printer->emitter;
  char delta[DELTA_BYTES], counts[COUNTS_BYTES];
  bool is_stack = printer->by == TSR_DIFF_BY_STACK;
  if (is_stack && change->is_older) name = tsr__text_of(TSR__LABEL_BEFORE);
  if (is_stack) name = tsr__with_names(emitter, name, names, &change->names);
  tsr__cell cells[] = {
      tsr__count(number),
      tsr__string(format_delta(change->delta_bytes, delta)),
      tsr__index(change->delta_bytes),
      tsr__bytes(change->old_bytes),
      tsr__bytes(change->new_bytes),
      tsr__string(format_counts(change, counts)),
      tsr__count(change->old_allocations),
      tsr__count(change->new_allocations),
      tsr__string(tsr_change_status_name(change->status)),
      tsr__string(is_stack ? tsr_category_name(change->category) : change->name),
      is_stack ? tsr__text(name) : tsr__string(change->name),
  };
  tsr__emit_row(emitter, cells);
  emitter->scratch.size = 0;
  if (!tsr__emitter_is_text(emitter))
    tsr__emit_field(emitter, "moved", NULL, tsr__bool(change->is_moved));
  if (is_stack) tsr__emit_names(emitter, names, &change->names);
  if (is_stack) emit_stack(printer, change);
  tsr__emit_row_end(emitter);
}

static void emit_omitted(tsr__emitter *emitter, const tsr_diff_device *device) {
  tsr__emit_field(emitter, "omitted_changes", NULL, tsr__count(device->omitted_changes));
  tsr__emit_field(emitter, "omitted_delta_bytes", NULL, tsr__index(device->omitted_delta_bytes));
  if (!device->omitted_changes || !tsr__emitter_is_text(emitter)) return;
  char count[TSR__FORMAT_BYTES], delta[DELTA_BYTES];
  tsr__buffer_printf(&emitter->scratch, "... and %s more change%s, %s (--top 0 shows all)",
                     tsr__format_count(device->omitted_changes, count),
                     tsr__plural(device->omitted_changes),
                     format_delta(device->omitted_delta_bytes, delta));
  tsr__emit_line(emitter, TSR__DIM, 2);
}

/* How many matches are weaker than equal stacks. */
static void say_moved(const diff_printer *printer, const tsr_diff_device *device) {
  char count[TSR__FORMAT_BYTES];
  uint64_t moved = device->moved_stacks;
  if (!moved) return;
  tsr__emit_printf(
      printer->emitter, TSR__DIM,
      printer->by == TSR_DIFF_BY_STACK
          ? "  %s stack%s matched by functions and file names only: lines, paths or versions differ"
          : "  %s line%s matched by function and file name only: the line numbers differ",
      tsr__format_count(moved, count), tsr__plural(moved));
}

/* Changes are in requested bytes, peaks in bytes of blocks. */
static void emit_rounding(tsr__emitter *emitter, const tsr_diff_device *device) {
  char delta[DELTA_BYTES];
  int64_t blocks = compared_delta(device);
  int64_t asked = difference(device->old_side.compared.totals.requested_bytes,
                             device->new_side.compared.totals.requested_bytes);
  int64_t rounding = less(blocks, asked);
  tsr__emit_field(emitter, "rounding_delta_bytes", NULL, tsr__index(rounding));
  if (rounding && tsr__emitter_is_text(emitter))
    tsr__emit_printf(emitter, TSR__DIM,
                     "  and %s that blocks hold beyond their requests: rounding and tails",
                     format_delta(rounding, delta));
}

static void emit_changes(diff_printer *printer, const tsr_diff_device *device) {
  static const char *const titles[] = {"allocated at", "category", "operation", "line",
                                       "allocated at"};
  bool is_stack = printer->by == TSR_DIFF_BY_STACK;
  const tsr__column columns[] = {
      {NULL, "#", TSR__RIGHT},
      {NULL, "change", TSR__RIGHT},
      {"delta_bytes", NULL, TSR__RIGHT},
      {"old_bytes", "old", TSR__RIGHT},
      {"new_bytes", "new", TSR__RIGHT},
      {NULL, "allocations", TSR__RIGHT},
      {"old_allocations", NULL, TSR__RIGHT},
      {"new_allocations", NULL, TSR__RIGHT},
      {"status", is_stack ? NULL : "status", TSR__LEFT}, /* stacks say theirs below */
      {is_stack ? "category" : "name", is_stack ? "category" : NULL, TSR__LEFT},
      {NULL, titles[printer->by], TSR__ELASTIC},
  };
  tsr__emitter *emitter = printer->emitter;
  tsr__row_names names;
  name_changes(printer, device, &names);
  tsr__emit_table(emitter, "changes", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < device->change_count; i++)
    emit_change(printer, device->named, &device->changes[i], i + 1, tsr__stack_name(&names, i));
  tsr__emit_table_end(emitter);
  tsr__row_names_release(&names);
  emit_omitted(emitter, device);
  emit_rounding(emitter, device);
  say_moved(printer, device);
  tsr__emit_field(emitter, "moved_stacks", NULL, tsr__count(device->moved_stacks));
  tsr__emit_field(emitter, "unchanged_stacks", NULL, tsr__count(device->unchanged_stacks));
  tsr__emit_field(emitter, "added_bytes", NULL, tsr__bytes(device->added_bytes));
  tsr__emit_field(emitter, "removed_bytes", NULL, tsr__bytes(device->removed_bytes));
  tsr__emit_field(emitter, "grown_bytes", NULL, tsr__bytes(device->grown_bytes));
  tsr__emit_field(emitter, "shrunk_bytes", NULL, tsr__bytes(device->shrunk_bytes));
}

static void print_stack(diff_printer *printer, const tsr_change *change, size_t number) {
  char rank[TSR__FORMAT_BYTES], delta[DELTA_BYTES], before[TSR__FORMAT_BYTES],
      after[TSR__FORMAT_BYTES];
  tsr__emitter *emitter = printer->emitter;
  tsr__stack_printer *stacks;
  uint32_t stack;
  choose_stack(printer, change, &stacks, &stack);
  if (stack == TSR_NONE || !tsr__emitter_is_text(emitter)) return;
  tsr__emit_space(emitter);
  tsr__buffer_printf(&emitter->scratch, "#%s  %s, %s", tsr__format_count(number, rank),
                     format_delta(change->delta_bytes, delta),
                     tsr_change_status_name(change->status));
  if (change->status == TSR_CHANGE_GROWN || change->status == TSR_CHANGE_SHRUNK)
    tsr__buffer_printf(&emitter->scratch, " from %s to %s",
                       tsr__format_size(change->old_bytes, before),
                       tsr__format_size(change->new_bytes, after));
  tsr__buffer_printf(&emitter->scratch, ", %s", tsr_category_name(change->category));
  tsr__emit_line(emitter, TSR__BOLD, 0);
  tsr__stack_print(stacks, stack);
}

static void emit_cause(tsr__emitter *emitter, const tsr_diff_cause *cause) {
  if (tsr__emitter_is_text(emitter)) return;
  bool is_known = cause->kind_delta_bytes != 0;
  tsr__emit_object(emitter, "cause");
  tsr__emit_field(emitter, "category", NULL,
                  is_known ? tsr__string(tsr_category_name(cause->category)) : tsr__nothing());
  tsr__emit_field(emitter, "delta_bytes", NULL, tsr__index(cause->kind_delta_bytes));
  tsr__emit_field(emitter, "line", NULL, cause->line ? tsr__string(cause->line) : tsr__nothing());
  tsr__emit_field(emitter, "line_delta_bytes", NULL, tsr__index(cause->line_delta_bytes));
  tsr__emit_end(emitter);
}

/* The moments compared, and by phase the highest of both. */
static void emit_compared(tsr__emitter *emitter, const tsr_diff_device *device) {
  static const tsr__column columns[] = {{"phase", NULL, TSR__LEFT},
                                        {"old_event", NULL, TSR__RIGHT},
                                        {"new_event", NULL, TSR__RIGHT},
                                        {"old_bytes", NULL, TSR__RIGHT},
                                        {"new_bytes", NULL, TSR__RIGHT}};
  const tsr_diff_side *before = &device->old_side, *after = &device->new_side;
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_object(emitter, "compared");
  tsr__emit_field(emitter, "phase", NULL,
                  device->compared_phase ? tsr__string(tsr_phase_name(device->compared_phase))
                                         : tsr__nothing());
  tsr__emit_field(emitter, "old_event", NULL,
                  tsr__index(before->is_there ? before->compared.event : -1));
  tsr__emit_field(emitter, "new_event", NULL,
                  tsr__index(after->is_there ? after->compared.event : -1));
  tsr__emit_field(emitter, "delta_bytes", NULL, tsr__index(compared_delta(device)));
  tsr__emit_field(emitter, "requested_delta_bytes", NULL,
                  tsr__index(difference(before->compared.totals.requested_bytes,
                                        after->compared.totals.requested_bytes)));
  tsr__emit_end(emitter);
  tsr__emit_table(emitter, "phases", columns, sizeof columns / sizeof *columns);
  for (int i = TSR_PHASE_UNKNOWN + 1; i < TSR_PHASE_COUNT; i++) {
    const tsr_moment *old_one = &before->in_phase[i], *new_one = &after->in_phase[i];
    bool is_old = before->is_there && old_one->event >= 0,
         is_new = after->is_there && new_one->event >= 0;
    if (!is_old && !is_new) continue;
    tsr__emit_row(
        emitter,
        (tsr__cell[]){tsr__string(tsr_phase_name((tsr_phase)i)),
                      is_old ? tsr__index(old_one->event) : tsr__nothing(),
                      is_new ? tsr__index(new_one->event) : tsr__nothing(),
                      is_old ? tsr__bytes(old_one->totals.allocated_bytes) : tsr__nothing(),
                      is_new ? tsr__bytes(new_one->totals.allocated_bytes) : tsr__nothing()});
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

static void emit_device(diff_printer *printer, const tsr_diff_device *device) {
  static const char *const words[] = {[TSR_DIFF_BY_STACK] = TSR_BY_STACK,
                                      [TSR_DIFF_BY_CATEGORY] = TSR_BY_CATEGORY,
                                      [TSR_DIFF_BY_OP] = TSR_BY_OP,
                                      [TSR_DIFF_BY_LINE] = TSR_BY_LINE,
                                      [TSR_DIFF_BY_ALLOCATION] = TSR_BY_ALLOCATION};
  tsr__emitter *emitter = printer->emitter;
  assert((size_t)printer->by < sizeof words / sizeof *words);
  print_verdict(printer, device);
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "device", NULL, tsr__device(device->device));
  tsr__emit_field(emitter, "by", NULL, tsr__string(words[printer->by]));
  emit_side(emitter, "old", &device->old_side);
  emit_side(emitter, "new", &device->new_side);
  tsr__emit_field(emitter, "delta_bytes", NULL,
                  tsr__index(difference(device->old_side.peak.totals.allocated_bytes,
                                        device->new_side.peak.totals.allocated_bytes)));
  tsr__emit_field(emitter, "requested_delta_bytes", NULL,
                  tsr__index(difference(device->old_side.peak.totals.requested_bytes,
                                        device->new_side.peak.totals.requested_bytes)));
  emit_compared(emitter, device);
  emit_cause(emitter, &device->cause);
  if (device->alignment)
    tsr__alignment_emit(emitter,
                        (tsr__stack_printer *[]){&printer->old_stacks, &printer->new_stacks},
                        device->alignment);
  else
    emit_changes(printer, device);
  tsr__emit_end(emitter);
  if (printer->by != TSR_DIFF_BY_STACK || !tsr__emitter_is_text(emitter)) return;
  bool shows_stacks = emitter->options.verbose || emitter->options.full_stacks;
  for (size_t i = 0; shows_stacks && i < device->change_count; i++)
    print_stack(printer, &device->changes[i], i + 1);
  if (!shows_stacks && device->change_count)
    tsr__emit_printf(emitter, TSR__DIM, "  -v shows whole stacks.");
}

int tsr__report_diff(const tsr_report_input *old_input, const tsr_report_input *new_input,
                     const tsr_diff *diff, const tsr_report_options *options, tsr_write_fn *write,
                     void *context, tsr_error *error) {
  tsr__emitter emitter;
  tsr__warning_list warnings = {0};
  tsr__emitter_init(&emitter, options, write, context);
  diff_printer printer = {.emitter = &emitter, .by = diff->by};
  tsr__stack_printer_init(&printer.old_stacks, &emitter, old_input->snapshot);
  tsr__stack_printer_init(&printer.new_stacks, &emitter, new_input->snapshot);
  tsr__heading_open_pair(&emitter, &tsr__fields_diff, old_input, new_input);
  if (!diff->device_count)
    tsr__emit_printf(&emitter, TSR__VERDICT, "No device has events or segments.");
  for (size_t i = 0; i < diff->device_count; i++) {
    emit_device(&printer, &diff->devices[i]);
    tsr__warnings_add(&warnings, diff->devices[i].warnings, diff->devices[i].warning_count);
  }
  tsr__stack_printer_release(&printer.old_stacks);
  tsr__stack_printer_release(&printer.new_stacks);
  return tsr__heading_close_pair(&emitter, old_input, new_input, &warnings, error);
}
