/* report.c - ranks, as text or JSON.
 *
 *   Rank 17 ran out of memory first; it holds 3.10 GiB more than its 63 equals, allocated at train.py:88.
 *     64 ranks in 64 files, known by their names; equals by likeness
 *
 *   group        ranks  lowest    median    highest
 *   like rank 0     64  20.1 GiB  20.3 GiB  23.4 GiB
 *
 *   rank  more than equals  why                       allocated at
 *     17          3.10 GiB  the optimizer's state twice  train.py:88
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "emit/emitter.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/ranks/ranks.h"
#include "stacks/stacks.h"

enum { OUTLIERS_SHOWN = 12, GROUPS_SHOWN = 16, LIST_SHOWN = 8, CHANGES_SHOWN = 3 };

static const char *const rank_words[] = {"sidecar", "pattern", "name", "order"};
static const char *const mesh_words[] = {"sidecar", "name", "mesh", "likeness"};

/* ---- The verdict ---- */

static const tsr_rank_outlier *outlier_of(const tsr_ranks *ranks, size_t row) {
  for (size_t i = 0; i < ranks->outlier_count; i++)
    if (ranks->outliers[i].row == row) return &ranks->outliers[i];
  return NULL;
}

/* "it holds 3.10 GiB more than its 63 equals, allocated at train.py:88: a leak ..." */
static void append_outlier(tsr__stack_printer *printer, const tsr_ranks *ranks,
                           const tsr_rank_outlier *outlier) {
  tsr__buffer *out = &printer->emitter->scratch;
  char size[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES];
  const tsr_rank_row *row = &ranks->rows[outlier->row];
  size_t equals = ranks->groups[outlier->group].rank_count - 1;
  tsr__format_size(outlier->excess_bytes, size);
  if (row->is_other)
    tsr__buffer_printf(out, "holds %s on device %" PRIu32 ", which is not its own", size,
                       row->device);
  else
    tsr__buffer_printf(out, "holds %s more than its %s equals", size,
                       tsr__format_count(equals, count));
  if (outlier->stack != TSR_NONE) {
    tsr__buffer_text(out, ", allocated at ");
    tsr__stack_append_name(printer, TSR__LABEL_LINE, outlier->stack);
  }
  if (outlier->cause != TSR_CAUSE_UNKNOWN && !row->is_other)
    tsr__buffer_printf(out, ": %s", outlier->cause_text);
}

static void append_even(tsr__buffer *out, const tsr_ranks *ranks) {
  char count[TSR__FORMAT_BYTES], low[TSR__FORMAT_BYTES], high[TSR__FORMAT_BYTES];
  uint64_t least = UINT64_MAX, most = 0;
  size_t compared = 0;
  for (size_t i = 0; i < ranks->row_count; i++) {
    const tsr_rank_row *row = &ranks->rows[i];
    if (row->is_other) continue;
    if (row->peak_allocated_bytes < least) least = row->peak_allocated_bytes;
    if (row->peak_allocated_bytes > most) most = row->peak_allocated_bytes;
    compared += ranks->groups[row->group].rank_count > 2 && !row->is_partial;
  }
  tsr__format_size(least, low);
  tsr__format_size(most, high);
  tsr__format_count(ranks->rank_count, count);
  if (ranks->rank_count == 1)
    tsr__buffer_printf(out, "One rank, which peaks at %s: nothing can be compared with it.", high);
  else if (!compared)
    tsr__buffer_printf(out, "%s ranks peak at %s to %s; too few are alike to say that one differs.",
                       count, low, high);
  else if (least == most)
    tsr__buffer_printf(out, "None of %s ranks holds more than its equals; all peak at %s.", count,
                       high);
  else
    tsr__buffer_printf(out, "None of %s ranks holds more than its equals; they peak at %s to %s.",
                       count, low, high);
}

static void append_straggler(tsr__buffer *out, const tsr_ranks *ranks) {
  const tsr_straggler *s = &ranks->stragglers[0];
  char late[TSR__FORMAT_BYTES], step[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "Rank %" PRId64 " is %s late in steps of %s. ", ranks->rows[s->row].rank,
                     tsr__format_duration((double)s->late_us / 1e6, late),
                     tsr__format_duration((double)s->step_us / 1e6, step));
}

/* ", asking for 1.00 GiB at train.py:88" */
static void append_request(tsr__stack_printer *printer, const tsr_rank_row *row) {
  tsr__buffer *out = &printer->emitter->scratch;
  char size[TSR__FORMAT_BYTES];
  if (!row->stop_bytes) return;
  tsr__buffer_printf(out, ", asking for %s", tsr__format_size(row->stop_bytes, size));
  if (row->stop_stack == TSR_NONE) return;
  tsr__buffer_text(out, " at ");
  tsr__stack_append_name(printer, TSR__LABEL_LINE, row->stop_stack);
}

static void emit_verdict(tsr__stack_printer *printer, const tsr_ranks *ranks) {
  tsr__emitter *emitter = printer->emitter;
  tsr__buffer *out = &emitter->scratch;
  char count[TSR__FORMAT_BYTES];
  if (!tsr__emitter_is_text(emitter)) return;
  if (!ranks->rank_count) {
    tsr__buffer_text(out, "No file could be read.");
  } else if (ranks->dead_count) {
    const tsr_rank_row *row = &ranks->rows[ranks->dead[0]];
    const tsr_rank_outlier *outlier = outlier_of(ranks, ranks->dead[0]);
    bool is_first = ranks->dead_count > 1 && row->stop_us != TSR_TIME_NONE;
    tsr__buffer_printf(out, "Rank %" PRId64 " ran out of memory%s", row->rank,
                       is_first ? " first" : "");
    append_request(printer, row);
    if (outlier) {
      tsr__buffer_text(out, "; it ");
      append_outlier(printer, ranks, outlier);
    } else {
      tsr__buffer_printf(out, "; it holds no more than its equals, which peak at %s",
                         tsr__format_size(ranks->groups[row->group].median_bytes, count));
    }
    tsr__buffer_text(out, ".");
  } else if (ranks->outlier_count) {
    tsr__buffer_printf(out, "Rank %" PRId64 " ", ranks->rows[ranks->outliers[0].row].rank);
    append_outlier(printer, ranks, &ranks->outliers[0]);
    tsr__buffer_text(out, ".");
  } else if (ranks->growth_count && ranks->growths[0].full_us != TSR_TIME_NONE) {
    tsr__ranks_append_forecast(out, ranks);
  } else {
    if (ranks->straggler_count) append_straggler(out, ranks);
    append_even(out, ranks);
  }
  if (ranks->missing_part_count && ranks->rank_count)
    tsr__buffer_text(out, " Ranks of missing parts were not compared.");
  tsr__emit_line(emitter, TSR__VERDICT, 0);
}

static void emit_basis(tsr__emitter *emitter, const tsr_ranks *ranks) {
  static const char *const by_rank[] = {"their sidecars", "the pattern", "their names",
                                        "their order"};
  static const char *const by_mesh[] = {"the sidecars' mesh", "the names' mesh", "the given mesh",
                                        "likeness"};
  char count[TSR__FORMAT_BYTES], files[TSR__FORMAT_BYTES], world[TSR__FORMAT_BYTES];
  tsr__buffer *out = &emitter->scratch;
  if (!tsr__emitter_is_text(emitter) || !ranks->rank_count) return;
  tsr__buffer_printf(out, "%s rank%s", tsr__format_count(ranks->rank_count, count),
                     tsr__plural(ranks->rank_count));
  if (ranks->world_size > (int64_t)ranks->rank_count)
    tsr__buffer_printf(out, " of %s", tsr__format_count((uint64_t)ranks->world_size, world));
  tsr__buffer_printf(out, " in %s file%s, known by %s", tsr__format_count(ranks->file_count, files),
                     tsr__plural(ranks->file_count), by_rank[ranks->rank_source]);
  if (ranks->name_form && ranks->rank_source == TSR_RANK_FROM_NAME)
    tsr__buffer_printf(out, " (as %s gives)", ranks->name_form);
  tsr__buffer_printf(out, "; equals by %s", by_mesh[ranks->mesh_source]);
  tsr__emit_line(emitter, TSR__PLAIN, 2);
}

/* ---- Lists of ranks ---- */

/* "3, 8 to 15, 20 and 4 more" of ascending numbers. */
static void append_ranks(tsr__buffer *out, const int64_t *ranks, size_t count) {
  size_t shown = 0, i = 0;
  char more[TSR__FORMAT_BYTES];
  while (i < count && shown++ < LIST_SHOWN) {
    size_t end = i;
    while (end + 1 < count && ranks[end + 1] == ranks[end] + 1) end++;
    tsr__buffer_printf(out, "%s%" PRId64, shown > 1 ? ", " : "", ranks[i]);
    if (end > i) tsr__buffer_printf(out, end > i + 1 ? " to %" PRId64 : ", %" PRId64, ranks[end]);
    i = end + 1;
  }
  if (i < count) tsr__buffer_printf(out, " and %s more", tsr__format_count(count - i, more));
}

static void emit_numbers(tsr__emitter *emitter, const char *key, const int64_t *numbers,
                         size_t count) {
  tsr__emit_inline_array(emitter, key);
  for (size_t i = 0; i < count; i++) tsr__emit_item(emitter, tsr__count((uint64_t)numbers[i]));
  tsr__emit_end(emitter);
}

static void emit_dead(tsr__emitter *emitter, const tsr_ranks *ranks) {
  tsr__emit_inline_array(emitter, "out_of_memory");
  for (size_t i = 0; i < ranks->dead_count; i++)
    tsr__emit_item(emitter, tsr__count((uint64_t)ranks->rows[ranks->dead[i]].rank));
  tsr__emit_end(emitter);
  if (ranks->dead_count < 2 || !tsr__emitter_is_text(emitter)) return;
  tsr__emit_space(emitter);
  tsr__buffer *out = &emitter->scratch;
  char more[TSR__FORMAT_BYTES];
  tsr__buffer_text(out, "Out of memory, in order: rank ");
  for (size_t i = 0; i < ranks->dead_count && i < LIST_SHOWN; i++)
    tsr__buffer_printf(out, "%s%" PRId64, i ? ", " : "", ranks->rows[ranks->dead[i]].rank);
  if (ranks->dead_count > LIST_SHOWN)
    tsr__buffer_printf(out, " and %s more",
                       tsr__format_count(ranks->dead_count - LIST_SHOWN, more));
  tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
}

/* ---- Rows ---- */

static void emit_row(tsr__emitter *emitter, const tsr_ranks *ranks, const tsr_rank_row *row) {
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "rank", NULL, tsr__count((uint64_t)row->rank));
  tsr__emit_field(emitter, "path", NULL, tsr__string(row->path));
  tsr__emit_field(emitter, "device", NULL, tsr__device(row->device));
  tsr__emit_field(emitter, "group", NULL, tsr__string(ranks->groups[row->group].name));
  tsr__emit_field(emitter, "peak_allocated_bytes", NULL, tsr__bytes(row->peak_allocated_bytes));
  tsr__emit_field(emitter, "peak_reserved_bytes", NULL, tsr__bytes(row->peak_reserved_bytes));
  tsr__emit_field(emitter, "end_allocated_bytes", NULL, tsr__bytes(row->end_allocated_bytes));
  tsr__emit_field(emitter, "end_reserved_bytes", NULL, tsr__bytes(row->end_reserved_bytes));
  tsr__emit_field(emitter, "out_of_memory", NULL, tsr__bool(row->is_out_of_memory));
  tsr__emit_field(emitter, "out_of_memory_time_us", NULL,
                  row->is_out_of_memory ? tsr__time(row->stop_us) : tsr__nothing());
  tsr__emit_field(emitter, "out_of_memory_bytes", NULL,
                  row->stop_bytes ? tsr__bytes(row->stop_bytes) : tsr__nothing());
  tsr__emit_field(emitter, "partial", NULL, tsr__bool(row->is_partial));
  tsr__emit_field(emitter, "step", NULL,
                  row->step >= 0 ? tsr__count((uint64_t)row->step) : tsr__nothing());
  tsr__emit_field(emitter, "clock_ahead_us", NULL,
                  row->clock_us ? tsr__index(row->clock_us) : tsr__nothing());
  tsr__emit_inline_object(emitter, "coordinates");
  for (size_t i = 0; i < row->axis_count; i++)
    tsr__emit_member(emitter, tsr__text_of(row->axes[i].name), tsr__count(row->axes[i].at));
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
}

static void emit_rows(tsr__emitter *emitter, const tsr_ranks *ranks) {
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_array(emitter, "ranks");
  for (size_t i = 0; i < ranks->row_count; i++) emit_row(emitter, ranks, &ranks->rows[i]);
  tsr__emit_end(emitter);
}

static void emit_groups(tsr__emitter *emitter, const tsr_ranks *ranks) {
  static const tsr__column columns[] = {
      {"name", "equals", TSR__LEFT},          {NULL, "ranks", TSR__RIGHT},
      {"median_rank", NULL, TSR__RIGHT},      {"min_bytes", "lowest peak", TSR__RIGHT},
      {"median_bytes", "median", TSR__RIGHT}, {"max_bytes", "highest", TSR__RIGHT}};
  bool is_text = tsr__emitter_is_text(emitter), is_verbose = emitter->options.verbose;
  size_t shown = is_text && !is_verbose && ranks->group_count > GROUPS_SHOWN ? GROUPS_SHOWN
                                                                             : ranks->group_count;
  char count[TSR__FORMAT_BYTES];
  tsr__emit_space(emitter);
  tsr__emit_table(emitter, "groups", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < shown; i++) {
    const tsr_rank_group *g = &ranks->groups[i];
    tsr__cell cells[] = {
        tsr__string(g->name),     tsr__count(g->rank_count),   tsr__count((uint64_t)g->median_rank),
        tsr__bytes(g->min_bytes), tsr__bytes(g->median_bytes), tsr__bytes(g->max_bytes)};
    tsr__emit_row(emitter, cells);
    if (!is_text) emit_numbers(emitter, "ranks", g->ranks, g->rank_count);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
  if (shown < ranks->group_count)
    tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more (-v shows all)",
                     tsr__format_count(ranks->group_count - shown, count));
}

/* ---- Outliers ---- */

static void emit_changes(tsr__stack_printer *printer, const tsr_rank_outlier *outlier) {
  tsr__emitter *emitter = printer->emitter;
  tsr__emit_array(emitter, "changes");
  for (size_t i = 0; i < outlier->change_count; i++) {
    const tsr_rank_change *c = &outlier->changes[i];
    bool is_last = outlier->others && i + 1 == outlier->change_count;
    tsr__emit_object(emitter, NULL);
    tsr__emit_field(emitter, "delta_bytes", NULL,
                    (tsr__cell){.kind = TSR__CELL_INDEX, .integer = c->delta_bytes});
    tsr__emit_field(emitter, "median_bytes", NULL, tsr__bytes(c->median_bytes));
    tsr__emit_field(emitter, "bytes", NULL, tsr__bytes(c->bytes));
    tsr__emit_field(emitter, "category", NULL, tsr__string(tsr_category_name(c->category)));
    tsr__emit_field(emitter, "others", NULL, tsr__count(is_last ? outlier->others : 0));
    tsr__stack_emit(printer, c->stack);
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
}

static void emit_outliers_json(tsr__stack_printer *printer, const tsr_ranks *ranks) {
  tsr__emitter *emitter = printer->emitter;
  tsr__emit_array(emitter, "outliers");
  for (size_t i = 0; i < ranks->outlier_count; i++) {
    const tsr_rank_outlier *o = &ranks->outliers[i];
    const tsr_rank_row *row = &ranks->rows[o->row];
    tsr__emit_object(emitter, NULL);
    tsr__emit_field(emitter, "rank", NULL, tsr__count((uint64_t)row->rank));
    tsr__emit_field(emitter, "device", NULL, tsr__device(row->device));
    tsr__emit_field(emitter, "group", NULL, tsr__string(ranks->groups[o->group].name));
    tsr__emit_field(emitter, "compared_with", NULL,
                    o->compared_with >= 0 ? tsr__count((uint64_t)o->compared_with)
                                          : tsr__nothing());
    tsr__emit_field(emitter, "delta_bytes", NULL,
                    (tsr__cell){.kind = TSR__CELL_INDEX, .integer = o->delta_bytes});
    tsr__emit_field(emitter, "excess_bytes", NULL, tsr__bytes(o->excess_bytes));
    tsr__emit_field(emitter, "cause_code", NULL, tsr__string(tsr_rank_cause_name(o->cause)));
    tsr__emit_field(emitter, "cause", NULL, tsr__string(o->cause_text));
    emit_changes(printer, o);
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
}

/* "+3.10 GiB" */
static const char *signed_size(int64_t bytes, char text[TSR__FORMAT_BYTES + 1]) {
  text[0] = bytes < 0 ? '-' : '+';
  tsr__format_size(bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes, text + 1);
  return text;
}

static void emit_outliers_text(tsr__stack_printer *printer, const tsr_ranks *ranks) {
  static const tsr__column columns[] = {{NULL, "rank", TSR__RIGHT},
                                        {NULL, "more than equals", TSR__RIGHT},
                                        {NULL, "peak to median", TSR__RIGHT},
                                        {NULL, "why", TSR__LEFT},
                                        {NULL, "allocated at", TSR__ELASTIC}};
  tsr__emitter *emitter = printer->emitter;
  size_t count = ranks->outlier_count;
  size_t shown = count > OUTLIERS_SHOWN && !emitter->options.verbose ? OUTLIERS_SHOWN : count;
  tsr__row_names names = {0};
  char more[TSR__FORMAT_BYTES];
  if (!count) return;
  tsr__emit_space(emitter);
  TSR__STACK_NAMES(printer, tsr_rank_outlier, ranks->outliers, shown, &names);
  tsr__emit_table(emitter, NULL, columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < shown; i++) {
    const tsr_rank_outlier *o = &ranks->outliers[i];
    char peak[TSR__FORMAT_BYTES + 1];
    tsr__cell cells[] = {tsr__count((uint64_t)ranks->rows[o->row].rank),
                         tsr__bytes(o->excess_bytes),
                         tsr__string(signed_size(o->delta_bytes, peak)), tsr__string(o->cause_text),
                         tsr__text(tsr__stack_name(&names, i))};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
  tsr__row_names_release(&names);
  if (shown < count)
    tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more (-v shows all)",
                     tsr__format_count(count - shown, more));
}

/* How many of the changes, largest first, are more than a fiftieth of the first. */
static size_t count_telling(const tsr_rank_outlier *o, size_t listed) {
  size_t count = 0;
  double first = listed ? fabs((double)o->changes[0].delta_bytes) : 0;
  while (count < listed && fabs((double)o->changes[count].delta_bytes) * 50 >= first) count++;
  return count;
}

/* The difference of the first outlier, by stack. */
static void emit_first(tsr__stack_printer *printer, const tsr_ranks *ranks) {
  static const tsr__column columns[] = {{NULL, "difference", TSR__RIGHT},
                                        {NULL, "category", TSR__CATEGORY},
                                        {NULL, "allocated at", TSR__ELASTIC}};
  tsr__emitter *emitter = printer->emitter;
  if (!ranks->outlier_count) return;
  const tsr_rank_outlier *o = &ranks->outliers[0];
  const tsr_rank_row *row = &ranks->rows[o->row];
  tsr__row_names names = {0};
  tsr__emit_space(emitter);
  if (row->is_other)
    tsr__emit_printf(emitter, TSR__PLAIN, "Rank %" PRId64 " on device %" PRIu32 ":", row->rank,
                     row->device);
  else
    tsr__emit_printf(emitter, TSR__PLAIN,
                     "Rank %" PRId64 " at its peak, compared with rank %" PRId64
                     ", the median of its equals:",
                     row->rank, o->compared_with);
  size_t listed = o->change_count - (o->others != 0);
  size_t shown = emitter->options.verbose ? listed : count_telling(o, listed);
  size_t others = o->others + listed - shown;
  int64_t left = o->delta_bytes;
  TSR__STACK_NAMES(printer, tsr_rank_change, o->changes, shown, &names);
  tsr__emit_table(emitter, NULL, columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < shown; i++) {
    const tsr_rank_change *c = &o->changes[i];
    char text[TSR__FORMAT_BYTES + 1];
    left -= c->delta_bytes;
    tsr__cell cells[] = {tsr__string(signed_size(c->delta_bytes, text)),
                         tsr__string(tsr_category_name(c->category)),
                         tsr__text(tsr__stack_name(&names, i))};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  if (others) {
    char text[TSR__FORMAT_BYTES + 1], words[64], count[TSR__FORMAT_BYTES];
    (void)snprintf(words, sizeof words, "(%s other%s)", tsr__format_count(others, count),
                   tsr__plural(others));
    tsr__cell cells[] = {tsr__string(signed_size(left, text)), tsr__string(""), tsr__string(words)};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
  tsr__row_names_release(&names);
}

/* ---- The rest ---- */

static void emit_stragglers(tsr__emitter *emitter, const tsr_ranks *ranks) {
  static const tsr__column columns[] = {
      {"rank", "rank", TSR__RIGHT},          {"group", NULL, TSR__LEFT},
      {"late_us", NULL, TSR__RIGHT},         {NULL, "late by", TSR__RIGHT},
      {"step_us", NULL, TSR__RIGHT},         {NULL, "a step takes", TSR__RIGHT},
      {"late_steps", "late in", TSR__RIGHT}, {"steps", "steps compared", TSR__RIGHT}};
  size_t count = ranks->straggler_count;
  bool is_short = tsr__emitter_is_text(emitter) && !emitter->options.verbose;
  size_t shown = is_short && count > OUTLIERS_SHOWN ? OUTLIERS_SHOWN : count;
  char more[TSR__FORMAT_BYTES];
  if (count) tsr__emit_space(emitter);
  if (count) tsr__emit_printf(emitter, TSR__PLAIN, "Late in their steps, by when they allocate:");
  tsr__emit_table(emitter, "stragglers", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < shown; i++) {
    const tsr_straggler *s = &ranks->stragglers[i];
    const tsr_rank_row *row = &ranks->rows[s->row];
    char late[TSR__FORMAT_BYTES], step[TSR__FORMAT_BYTES];
    tsr__cell cells[] = {tsr__count((uint64_t)row->rank),
                         tsr__string(ranks->groups[row->group].name),
                         tsr__count((uint64_t)s->late_us),
                         tsr__string(tsr__format_duration((double)s->late_us / 1e6, late)),
                         tsr__count((uint64_t)s->step_us),
                         tsr__string(tsr__format_duration((double)s->step_us / 1e6, step)),
                         tsr__count(s->late_steps),
                         tsr__count(s->steps)};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
  if (shown < count)
    tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more (-v shows all)",
                     tsr__format_count(count - shown, more));
}

/* Which ranks' files lack a part, and who has memory where it does not belong. */
static void emit_notes(tsr__emitter *emitter, const tsr_ranks *ranks) {
  tsr__buffer *out = &emitter->scratch;
  char size[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES];
  size_t cut = 0, others = 0;
  uint64_t most = 0;
  if (!tsr__emitter_is_text(emitter)) return;
  for (size_t i = 0; i < ranks->row_count; i++) {
    const tsr_rank_row *row = &ranks->rows[i];
    bool is_said = row->is_other && outlier_of(ranks, i);
    if (row->is_other && !is_said && row->peak_allocated_bytes > most)
      most = row->peak_allocated_bytes;
    others += row->is_other && !is_said;
    if (!row->is_partial || row->is_other) continue;
    if (!cut) tsr__emit_space(emitter);
    if (cut < LIST_SHOWN)
      tsr__buffer_printf(out, "%s%" PRId64,
                         cut ? ", " : "Truncated or damaged, and compared with nothing: rank ",
                         row->rank);
    cut++;
  }
  if (cut > LIST_SHOWN)
    tsr__buffer_printf(out, " and %s more", tsr__format_count(cut - LIST_SHOWN, count));
  if (cut) tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
  if (!others) return;
  tsr__emit_space(emitter);
  tsr__buffer_printf(out, "%s rank%s also hold%s memory on a device besides their own, up to %s.",
                     tsr__format_count(others, count), tsr__plural(others), others == 1 ? "s" : "",
                     tsr__format_size(most, size));
  tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
}

static void emit_missing(tsr__emitter *emitter, const tsr_ranks *ranks) {
  tsr__buffer *out = &emitter->scratch;
  emit_numbers(emitter, "missing", ranks->missing, ranks->missing_count);
  tsr__emit_inline_array(emitter, "missing_parts");
  for (size_t i = 0; i < ranks->missing_part_count; i++)
    tsr__emit_item(emitter, tsr__count(ranks->missing_parts[i]));
  tsr__emit_end(emitter);
  if (!tsr__emitter_is_text(emitter)) return;
  bool says_missing = ranks->missing_count && ranks->rank_count && !ranks->missing_part_count;
  if (says_missing || ranks->missing_part_count) tsr__emit_space(emitter);
  if (says_missing) {
    tsr__buffer_printf(out, "No snapshot of rank%s ", tsr__plural(ranks->missing_count));
    append_ranks(out, ranks->missing, ranks->missing_count);
    tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
  }
  if (!ranks->missing_part_count) return;
  tsr__buffer_printf(out, "Missing part%s: ", tsr__plural(ranks->missing_part_count));
  for (size_t i = 0; i < ranks->missing_part_count && i < LIST_SHOWN; i++)
    tsr__buffer_printf(out, "%s%" PRIu32, i ? ", " : "", ranks->missing_parts[i]);
  if (ranks->missing_part_count > LIST_SHOWN) tsr__buffer_text(out, ", ...");
  tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
}

/* The array stays open for tsr__heading_close. */
static void emit_broken(tsr__emitter *emitter, const tsr_ranks *ranks) {
  bool is_text = tsr__emitter_is_text(emitter);
  char count[TSR__FORMAT_BYTES];
  size_t shown = is_text && !emitter->options.verbose && ranks->broken_count > LIST_SHOWN
                     ? LIST_SHOWN
                     : ranks->broken_count;
  if (is_text && ranks->broken_count) {
    tsr__emit_space(emitter);
    tsr__emit_printf(emitter, TSR__PLAIN,
                     "%s file%s could not be read:", tsr__format_count(ranks->broken_count, count),
                     tsr__plural(ranks->broken_count));
  }
  tsr__emit_array(emitter, "broken");
  for (size_t i = 0; i < shown; i++) {
    const tsr_broken_file *b = &ranks->broken[i];
    tsr__emit_object(emitter, NULL);
    tsr__emit_field(emitter, "path", NULL, tsr__string(b->path));
    tsr__emit_field(emitter, "message", NULL, tsr__string(b->message));
    tsr__emit_end(emitter);
    if (!is_text) continue;
    tsr__buffer_printf(&emitter->scratch, "%s: %s", b->path, b->message);
    tsr__emit_paragraph(emitter, TSR__PLAIN, 2);
  }
  if (shown < ranks->broken_count)
    tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more (-v shows all)",
                     tsr__format_count(ranks->broken_count - shown, count));
}

int tsr__report_ranks(const tsr_report_input *input, const tsr_ranks *ranks,
                      const tsr_report_options *options, tsr_write_fn *write, void *context,
                      tsr_error *error) {
  tsr__emitter emitter;
  tsr__stack_printer printer;
  tsr__emitter_init(&emitter, options, write, context);
  tsr__stack_printer_init(&printer, &emitter, ranks->stacks);
  tsr__heading_begin(&emitter, &tsr__fields_ranks, input);
  tsr__ranks_emit_checks(&printer, ranks);
  emit_verdict(&printer, ranks);
  emit_basis(&emitter, ranks);
  tsr__emit_field(&emitter, "files", NULL, tsr__count(ranks->file_count));
  tsr__emit_field(&emitter, "known_files", NULL, tsr__count(ranks->known_count));
  tsr__emit_field(&emitter, "world_size", NULL,
                  ranks->world_size > 0 ? tsr__count((uint64_t)ranks->world_size) : tsr__nothing());
  tsr__emit_field(&emitter, "ranks_by", NULL, tsr__string(rank_words[ranks->rank_source]));
  tsr__emit_field(&emitter, "groups_by", NULL, tsr__string(mesh_words[ranks->mesh_source]));
  tsr__emit_field(&emitter, "first_out_of_memory", NULL,
                  ranks->dead_count ? tsr__count((uint64_t)ranks->rows[ranks->dead[0]].rank)
                                    : tsr__nothing());
  emit_rows(&emitter, ranks);
  emit_groups(&emitter, ranks);
  if (tsr__emitter_is_text(&emitter)) {
    emit_outliers_text(&printer, ranks);
    emit_first(&printer, ranks);
  } else {
    emit_outliers_json(&printer, ranks);
  }
  emit_dead(&emitter, ranks);
  tsr__ranks_emit_growth(&printer, ranks);
  emit_stragglers(&emitter, ranks);
  emit_notes(&emitter, ranks);
  emit_missing(&emitter, ranks);
  emit_broken(&emitter, ranks);
  tsr__stack_printer_release(&printer);
  return tsr__heading_close(&emitter, input, NULL, error);
}
