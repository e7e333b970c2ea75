/* report.c - prints the answer of "plan", as text and as JSON of one line.
 *
 *   gpt2: fits in 3.00 GiB with these changes, and a step takes 19.3 % less.
 *     as it is      5.43 GiB reserved     5.12 GiB allocated     478 ms a step
 *     this plan     2.93 GiB reserved     2.80 GiB allocated     386 ms a step
 *
 *     change                                peak so far        saved     a step
 *     GELU as one kernel                       4.28 GiB   864.00 MiB     429 ms
 *     ... */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/format.h"
#include "exec/rates.h"
#include "models/model.h"
#include "questions/outside.h"
#include "questions/plan/plan.h"
#include "questions/reports.h"
#include "tessera/category.h"
#include "traced/step_graph.h"

enum { ROWS = 8, COLUMNS = 80, NAME_COLUMNS = 36 };
#define FAR_FACTOR 5.0 /* a measured step compared with its estimate */

typedef char text[TSR__FORMAT_BYTES];

/* "1.2 GiB", or "-1.2 GiB" if memory grows. */
static const char *saved_text(uint64_t before, uint64_t after, text out) {
  bool is_more = after > before;
  text size;
  (void)snprintf(out, TSR__FORMAT_BYTES, "%s%s", is_more ? "-" : "",
                 tsr__format_size(is_more ? after - before : before - after, size));
  return out;
}

/* Seconds as whole microseconds, for JSON. */
static tsr__cell whole_microseconds(double seconds) {
  return tsr__count((uint64_t)nearbyint(seconds * 1e6));
}

/* The operations added by recomputation, in percent: "4.2 %"; "-" where they are not known, as those of a step graph. */
static const char *extra_operations(const tsr_run_plan_cost *cost, text out) {
  uint64_t own = cost->step_flops - cost->recomputed_flops;
  if (!own) return "-";
  (void)snprintf(out, sizeof(text), "%.1f %%", 100 * (double)cost->recomputed_flops / (double)own);
  return out;
}

/* What a plan costs, for its verdict: ", for 4.2 % more operations", or more time where operations are not known; "" if
 * that is not known either. */
static const char *extra_words(const tsr_run_plan_effects *all, char out[64]) {
  text more;
  double before_s = all->without.step_seconds, after_s = all->with.step_seconds;
  *out = '\0';
  if (all->with.step_flops)
    (void)snprintf(out, 64, ", for %s more operations", extra_operations(&all->with, more));
  else if (before_s > 0 && after_s > 0)
    (void)snprintf(out, 64, ", for %.1f %% %s time", 100 * fabs(after_s / before_s - 1),
                   after_s < before_s ? "less" : "more");
  return out;
}

static void emit_cost(tsr__emitter *e, const char *key, const tsr_run_plan_cost *cost) {
  if (!cost->is_possible) {
    tsr__emit_field(e, key, NULL, tsr__nothing());
    return;
  }
  tsr__emit_object(e, key);
  tsr__emit_field(e, "peak_allocated_bytes", NULL, tsr__bytes(cost->peak_bytes));
  tsr__emit_field(e, "peak_reserved_bytes", NULL, tsr__bytes(cost->reserved_bytes));
  tsr__emit_field(e, "step_flops", NULL, tsr__count(cost->step_flops));
  tsr__emit_field(e, "step_recomputed_flops", NULL, tsr__count(cost->recomputed_flops));
  tsr__emit_field(e, "step_time_us", NULL, whole_microseconds(cost->step_seconds));
  tsr__emit_field(e, "step_time_low_us", NULL, whole_microseconds(cost->step_low_seconds));
  tsr__emit_field(e, "step_time_high_us", NULL, whole_microseconds(cost->step_high_seconds));
  tsr__emit_host_bytes(e, cost);
  tsr__emit_end(e);
}

/* Emit the lines of a text that has its own format: a file, or part of a program. */
static void emit_lines(tsr__emitter *e, const char *lines) {
  if (!tsr__emitter_is_text(e)) return;
  while (*lines) {
    size_t length = strcspn(lines, "\n");
    tsr__buffer_append(&e->scratch, lines, length);
    tsr__emit_unbroken(e, TSR__PLAIN, 0);
    lines += length + (lines[length] == '\n');
  }
}

/* Emit a sentence after a label, in lines of 80 columns; later lines are indented by `indent` blanks. */
static void emit_words(tsr__emitter *e, const char *label, size_t indent, const char *sentence) {
  if (!tsr__emitter_is_text(e)) return;
  size_t column = strlen(label);
  tsr__buffer_text(&e->scratch, label);
  for (const char *word = sentence; *word;) {
    size_t length = strcspn(word, " ");
    if (word > sentence && column + 1 + length > COLUMNS) {
      tsr__emit_unbroken(e, TSR__PLAIN, 0);
      tsr__buffer_fill(&e->scratch, ' ', indent);
      column = indent;
    } else if (word > sentence) {
      tsr__buffer_text(&e->scratch, " ");
      column++;
    }
    tsr__buffer_append(&e->scratch, word, length);
    column += length;
    word += length + (word[length] == ' ');
  }
  tsr__emit_unbroken(e, TSR__PLAIN, 0);
}

static void emit_header(tsr__emitter *e) {
  tsr__emit_field(e, "schema", NULL, tsr__string("tessera/1"));
  tsr__emit_field(e, "command", NULL, tsr__string("plan"));
}

static void emit_plan(tsr__emitter *e, const tsr_run_plan *plan) {
  const char *form = tsr_run_plan_text(plan);
  tsr__emit_field(e, "plan_hash", NULL, tsr__string(tsr_run_plan_hash(plan)));
  tsr__emit_json(e, "plan", (tsr_text){form, strlen(form)});
  tsr__emit_printf(e, TSR__PLAIN, "plan %s", tsr_run_plan_hash(plan));
  emit_lines(e, form);
}

/* The i-th note, or NULL past the last. */
static const char *note_at(const tsr__plan_value *value, size_t i) {
  static const char *const none[] = {NULL};
  const tsr_model *model = value->model;
  const char *const *of_graph = model && model->graph ? tsr__step_graph_notes(model->graph) : none;
  for (; *of_graph; of_graph++, i--)
    if (i == 0) return *of_graph;
  if (*value->near_note && i-- == 0) return value->near_note;
  return i < value->card_notes.count ? value->card_notes.text[i] : NULL;
}

/* What the range of each time is from. */
static const char *time_source(const tsr__plan_value *value) {
  const tsr_rates *rates = value->how.rates;
  return tsr__band_words(rates ? tsr__rates_numbers(rates)->band.source : TSR__BAND_SHEET);
}

void tsr__emit_time_band(tsr__emitter *e, const tsr__plan_value *value,
                         const tsr_run_plan_cost *cost, bool is_of_all) {
  text low, high;
  char sentence[256];
  if (!tsr__emitter_is_text(e) || cost->step_seconds <= 0) return;
  double least = cost->step_low_seconds / cost->step_seconds;
  double most = cost->step_high_seconds / cost->step_seconds;
  if (is_of_all)
    (void)snprintf(sentence, sizeof sentence,
                   "Times are estimates from %s: expect %.2f to %.2f times as long.",
                   time_source(value), least, most);
  else
    (void)snprintf(sentence, sizeof sentence,
                   "Expect %s to %s a step, %.2f to %.2f times the estimate, which is from %s.",
                   tsr__format_duration(cost->step_low_seconds, low),
                   tsr__format_duration(cost->step_high_seconds, high), least, most,
                   time_source(value));
  emit_words(e, "", 0, sentence);
}

/* Why the budget is taken for a card that nobody has named, as text: JSON has it in `outside`. */
static void emit_inferred(tsr__emitter *e, const tsr__plan_value *value) {
  char note[TSR__OUTSIDE_TEXT_BYTES];
  if (!tsr__emitter_is_text(e) || e->options.quiet || !tsr__outside_note(&value->outside, note))
    return;
  tsr__emit_space(e);
  emit_words(e, "note: ", 6, note);
}

void tsr__emit_plan_notes(tsr__emitter *e, const tsr__plan_value *value) {
  const char *note;
  if (value->model && !tsr__emitter_is_text(e))
    tsr__emit_field(e, "step_time_source", NULL, tsr__string(time_source(value)));
  if (value->model && !value->about.found)
    tsr__emit_outside(e, &value->outside, tsr__plan_reserved_bytes(value));
  emit_inferred(e, value);
  if (!note_at(value, 0)) return;
  tsr__emit_array(e, "notes");
  for (size_t i = 0; (note = note_at(value, i)) != NULL; i++) {
    tsr__emit_object(e, NULL);
    tsr__emit_field(e, "message", NULL, tsr__string(note));
    tsr__emit_end(e);
  }
  tsr__emit_end(e);
  if (e->options.quiet) return;
  tsr__emit_space(e);
  for (size_t i = 0; (note = note_at(value, i)) != NULL; i++) emit_words(e, "note: ", 6, note);
}

/* ---- plan show ---- */

static void emit_effects_verdict(tsr__emitter *e, const char *model,
                                 const tsr_run_plan_effects *all) {
  text peak, saved, before, time, time_before, low, high;
  char more[64];
  tsr__emit_printf(e, TSR__VERDICT, "%.200s: peak %s with this plan, %s without it: saves %s%s.",
                   model, tsr__format_size(all->with.peak_bytes, peak),
                   tsr__format_size(all->without.peak_bytes, before),
                   saved_text(all->without.peak_bytes, all->with.peak_bytes, saved),
                   extra_words(all, more));
  if (all->with.step_seconds > 0)
    tsr__emit_printf(e, TSR__PLAIN, "  a step takes about %s (%s to %s), and %s without it",
                     tsr__format_duration(all->with.step_seconds, time),
                     tsr__format_duration(all->with.step_low_seconds, low),
                     tsr__format_duration(all->with.step_high_seconds, high),
                     tsr__format_duration(all->without.step_seconds, time_before));
  if (all->with.host_bytes)
    tsr__emit_printf(e, TSR__PLAIN, "  on the host, it reserves %s%s",
                     tsr__format_size(all->with.host_machine_bytes, peak),
                     all->with.host_machine_bytes > all->with.host_bytes ? " of a machine" : "");
  tsr__emit_space(e);
}

static void emit_effects(tsr__emitter *e, const tsr_run_plan_effects *all) {
  static const tsr__column columns[] = {
      {NULL, "choice", TSR__LEFT},  {NULL, "peak so far", TSR__RIGHT},
      {NULL, "saved", TSR__RIGHT},  {NULL, "operations", TSR__RIGHT},
      {NULL, "a step", TSR__RIGHT}, {NULL, "saved alone", TSR__RIGHT},
      {"choice", NULL, TSR__LEFT},
  };
  static const size_t widths[] = {40, 12, 12, 10, 9, 14, 0};
  const tsr_run_plan_cost *last = &all->without;
  emit_cost(e, "without", &all->without);
  emit_cost(e, "with", &all->with);
  tsr__emit_space(e);
  tsr__emit_ruled_table(e, "choices", columns, widths, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < all->count; i++) {
    const tsr_run_plan_effect *one = &all->choices[i];
    const tsr_run_plan_cost *so_far = &one->so_far;
    text name, peak = "-", saved = "-", alone = "-", more, time = "-";
    (void)snprintf(name, sizeof name, "%.40s", one->name);
    if (so_far->is_possible) {
      tsr__format_size(so_far->peak_bytes, peak);
      tsr__format_duration(so_far->step_seconds, time);
      saved_text(last->peak_bytes, so_far->peak_bytes, saved);
      last = so_far;
    }
    if (one->alone.is_possible) saved_text(all->without.peak_bytes, one->alone.peak_bytes, alone);
    tsr__emit_row(e, (tsr__cell[]){tsr__string(name), tsr__string(peak), tsr__string(saved),
                                   tsr__string(extra_operations(so_far, more)), tsr__string(time),
                                   tsr__string(alone), tsr__string(one->name)});
    emit_cost(e, "alone", &one->alone);
    emit_cost(e, "so_far", so_far);
    tsr__emit_row_end(e);
  }
  tsr__emit_table_end(e);
}

static void report_shown(tsr__emitter *e, const char *name, const tsr__plan_value *value) {
  const tsr_plan_answer *a = &value->about;
  tsr__emit_json_line(e, NULL);
  emit_header(e);
  if (a->effects) emit_effects_verdict(e, name, a->effects);
  emit_plan(e, a->plan);
  if (a->effects) emit_effects(e, a->effects);
  tsr__emit_plan_notes(e, value);
  tsr__emit_end(e);
}

/* ---- every technique ---- */

static void emit_techniques_verdict(tsr__emitter *e, const char *model, const tsr_techniques *all) {
  uint64_t lowest = all->without.peak_bytes, free_lowest = lowest;
  const tsr_run_plan_cost *leanest = &all->without;
  text peak, least, free_least, time, low, high;
  for (size_t i = 0; i < all->count; i++) {
    const tsr_technique *t = &all->items[i];
    if (!t->so_far.is_possible) continue;
    if (t->so_far.peak_bytes < lowest) leanest = &t->so_far, lowest = leanest->peak_bytes;
    if (t->is_free && t->so_far.peak_bytes < free_lowest) free_lowest = t->so_far.peak_bytes;
  }
  tsr__emit_printf(e, TSR__VERDICT,
                   "%.200s: peak %s as it is; %s with what costs no time; %s with everything.",
                   model, tsr__format_size(all->without.peak_bytes, peak),
                   tsr__format_size(free_lowest, free_least), tsr__format_size(lowest, least));
  tsr__emit_printf(e, TSR__PLAIN, "  a step takes about %s (%s to %s) on the %s",
                   tsr__format_duration(all->without.step_seconds, time),
                   tsr__format_duration(all->without.step_low_seconds, low),
                   tsr__format_duration(all->without.step_high_seconds, high), all->gpu_title);
  if (leanest->host_bytes)
    tsr__emit_printf(e, TSR__PLAIN, "  with everything, %s is reserved on the host%s",
                     tsr__format_size(leanest->host_machine_bytes, peak),
                     leanest->host_machine_bytes > leanest->host_bytes ? " of a machine" : "");
  tsr__emit_space(e);
}

static void report_techniques(tsr__emitter *e, const char *name, const tsr__plan_value *value) {
  static const tsr__column columns[] = {
      {"technique", "technique", TSR__LEFT},
      {NULL, "alone saves", TSR__RIGHT},
      {NULL, "time", TSR__RIGHT},
      {NULL, "peak so far", TSR__RIGHT},
      {NULL, "a step", TSR__RIGHT},
  };
  static const size_t widths[] = {28, 12, 9, 12, 9};
  const tsr_techniques *all = value->about.techniques;
  const tsr_run_plan_cost *without = &all->without;
  tsr__emit_json_line(e, NULL);
  emit_header(e);
  tsr__emit_field(e, "gpu", NULL, tsr__string(all->gpu_title));
  emit_cost(e, "without", without);
  emit_techniques_verdict(e, name, all);
  tsr__emit_ruled_table(e, "techniques", columns, widths, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < all->count; i++) {
    const tsr_technique *t = &all->items[i];
    text saved = "-", more = "-", peak = "-", time = "-";
    double ratio =
        without->step_seconds > 0 ? t->alone.step_seconds / without->step_seconds - 1 : 0;
    if (t->alone.is_possible) {
      saved_text(without->peak_bytes, t->alone.peak_bytes, saved);
      (void)snprintf(more, sizeof more, "%+.1f %%", 100 * ratio);
    }
    if (t->so_far.is_possible) {
      tsr__format_size(t->so_far.peak_bytes, peak);
      tsr__format_duration(t->so_far.step_seconds, time);
    }
    tsr__emit_row(e, (tsr__cell[]){tsr__string(t->name), tsr__string(saved), tsr__string(more),
                                   tsr__string(peak), tsr__string(time)});
    tsr__emit_json(e, "choice", (tsr_text){t->choice, strlen(t->choice)});
    tsr__emit_field(e, "is_free", NULL, tsr__bool(t->is_free));
    emit_cost(e, "alone", &t->alone);
    emit_cost(e, "so_far", &t->so_far);
    tsr__emit_row_end(e);
  }
  tsr__emit_table_end(e);
  tsr__emit_space(e);
  emit_lines(e,
             "'-' where the model or an earlier choice does not allow a technique.\n"
             "\"so far\" includes those above; of two that exclude each other, the later counts.");
  tsr__emit_plan_notes(e, value);
  tsr__emit_end(e);
}

/* ---- a budget: the verdict ---- */

void tsr__emit_ranks(tsr__emitter *e, const tsr_run_plan *plan) {
  tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
  tsr_run_plan_options(plan, &options);
  if (options.ranks > 1)
    tsr__emit_printf(e, TSR__PLAIN, "  on each of %" PRIu64 " ranks, with a batch of its own",
                     options.ranks);
}

static void emit_figures(tsr__emitter *e, const char *label, const tsr_run_plan_cost *cost) {
  text reserved, peak, time;
  tsr__emit_printf(e, TSR__PLAIN, "  %-9s  %11s reserved  %11s allocated  %9s a step", label,
                   tsr__format_size(cost->reserved_bytes, reserved),
                   tsr__format_size(cost->peak_bytes, peak),
                   tsr__format_duration(cost->step_seconds, time));
}

/* "11.25 GiB reserved by each rank, 45.00 GiB by the 4 of a machine" */
static void put_host(char *out, size_t room_bytes, const tsr_run_plan_cost *cost) {
  text rank, machine;
  uint64_t ranks = cost->host_bytes ? cost->host_machine_bytes / cost->host_bytes : 1;
  tsr__format_size(cost->host_bytes, rank);
  tsr__format_size(cost->host_machine_bytes, machine);
  if (ranks > 1)
    (void)snprintf(out, room_bytes,
                   "%10s reserved by each rank, %s by the %" PRIu64 " of a machine", rank, machine,
                   ranks);
  else
    (void)snprintf(out, room_bytes, "%10s reserved", rank);
}

/* Emit a line with what is kept on the host, if anything is. `as_is` may be NULL. */
static void emit_host(tsr__emitter *e, const tsr_run_plan_cost *with,
                      const tsr_run_plan_cost *as_is, uint64_t host_budget_bytes) {
  enum { HOST_COLUMNS = 80 - 14 };
  char host[192], as_is_text[192], more[80] = "";
  text size;
  if (!with->host_bytes && !(as_is && as_is->host_bytes) && !host_budget_bytes) return;
  put_host(host, sizeof host, with);
  if (as_is && as_is->host_bytes) {
    (void)snprintf(more, sizeof more, "; %s as it is", tsr__format_size(as_is->host_bytes, size));
    put_host(as_is_text, sizeof as_is_text, as_is);
  }
  const char *hint = host_budget_bytes ? "" : " (--host-budget limits it)";
  bool is_long = strlen(host) + strlen(more) + strlen(hint) > HOST_COLUMNS;
  tsr__emit_printf(e, TSR__PLAIN, "  on the host %s%s%s", host, is_long ? "" : more,
                   is_long ? "" : hint);
  if (is_long && *more) tsr__emit_printf(e, TSR__PLAIN, "  as it is    %s", as_is_text);
  if (host_budget_bytes)
    tsr__emit_printf(e, TSR__PLAIN, "  of at most  %10s (--host-budget)",
                     tsr__format_size(host_budget_bytes, size));
}

static void emit_as_is(tsr__emitter *e, const tsr_planned *p) {
  if (p->as_is.is_possible)
    emit_figures(e, "as it is", &p->as_is);
  else
    emit_words(e, "  as it is   ", 13, p->refusal);
  bool has_changes = p->verdict != TSR_PLANNING_FITS || p->change_count;
  if (has_changes) emit_figures(e, "this plan", &p->with);
  emit_host(e, &p->with, has_changes ? &p->as_is : NULL, p->host_budget_bytes);
}

typedef char room_words[2 * TSR__FORMAT_BYTES + 32];

/* The budget, and what of it is left to PyTorch. */
static const char *room_text(const tsr__plan_value *value, const char *budget, room_words out) {
  text share;
  if (!value || !tsr__outside_lowers(&value->outside)) return budget;
  (void)snprintf(out, sizeof(room_words), "%s, of which PyTorch can have %s", budget,
                 tsr__format_size(value->outside.share_bytes, share));
  return out;
}

/* What the card needs for the plan, and for what is outside of PyTorch. */
static void emit_card(tsr__emitter *e, const tsr__plan_value *value, const tsr_planned *p) {
  char words[TSR__OUTSIDE_TEXT_BYTES];
  const tsr_outside *o = value ? &value->outside : NULL;
  if (!o || o->source == TSR_OUTSIDE_NOT_COUNTED) return;
  if (p->verdict != TSR_PLANNING_DOES_NOT_FIT)
    tsr__emit_printf(e, TSR__PLAIN, "  on the card %s",
                     tsr__outside_card_words(o, p->with.reserved_bytes, words));
  tsr__emit_printf(e, TSR__PLAIN, "  outside PyTorch %s", tsr__outside_words(o, words));
}

/* `value` has what the card lacks; NULL without a card. */
static void emit_verdict(tsr__emitter *e, const char *model, const tsr_planned *p,
                         uint64_t budget_bytes, const tsr__plan_value *value) {
  text budget, least, floor;
  room_words room;
  tsr__buffer *out = &e->scratch;
  if (!tsr__emitter_is_text(e)) return;
  tsr__format_size(budget_bytes, budget);
  tsr__format_size(p->bound_bytes, floor);
  tsr__format_size(p->with.reserved_bytes, least);
  bool is_refused = p->verdict == TSR_PLANNING_DOES_NOT_FIT;
  if (is_refused && strcmp(budget, p->is_proved ? floor : least) == 0) { /* equal when rounded */
    (void)snprintf(budget, sizeof budget, "%" PRIu64 " B", budget_bytes);
    (void)snprintf(floor, sizeof floor, "%" PRIu64 " B", p->bound_bytes);
    (void)snprintf(least, sizeof least, "%" PRIu64 " B", p->with.reserved_bytes);
  }
  double more = p->as_is.step_seconds > 0 ? p->with.step_seconds / p->as_is.step_seconds - 1 : 0;
  double percent = 100 * fabs(more);
  const char *than = more < 0 ? "less" : "more";
  tsr__buffer_printf(out, "%.200s: ", model);
  if (value && value->card_lacks)
    tsr__buffer_printf(out, "within %s%s, but %s on the card.", budget,
                       p->change_count ? " with these changes" : " as it is", value->card_lacks);
  else if (p->verdict == TSR_PLANNING_FITS && p->change_count)
    tsr__buffer_printf(out, "fits in %s as it is; with these changes a step takes %.1f %% %s.",
                       budget, percent, than);
  else if (p->verdict == TSR_PLANNING_FITS && p->stopped_by)
    tsr__buffer_printf(out, "fits in %s as it is; nothing faster was found.", budget);
  else if (p->verdict == TSR_PLANNING_FITS)
    tsr__buffer_printf(out, "fits in %s as it is; nothing that may be changed is faster.", budget);
  else if (!is_refused && !p->as_is.is_possible)
    tsr__buffer_printf(out, "fits in %s with these changes.", budget);
  else if (!is_refused)
    tsr__buffer_printf(out, "fits in %s with these changes, and a step takes %.1f %% %s.", budget,
                       percent, than);
  else if (p->is_proved)
    tsr__buffer_printf(out, "cannot fit in %s: no plan needs less than %s at its peak.",
                       room_text(value, budget, room), floor);
  else
    tsr__buffer_printf(out, "no plan found fits in %s: the smallest found reserves %s.",
                       room_text(value, budget, room), least);
  tsr__emit_line(e, TSR__VERDICT, 0);
  tsr__emit_end_of_search(e, p->stopped_by,
                          is_refused ? "another plan may fit" : "another plan may be faster");
  tsr__emit_ranks(e, p->plan);
  emit_as_is(e, p);
  emit_card(e, value, p);
}

void tsr__emit_end_of_search(tsr__emitter *e, tsr_effort_end stopped_by, const char *what) {
  if (!stopped_by) return;
  const char *limit = stopped_by == TSR_EFFORT_TIME ? "time" : "work";
  tsr__emit_printf(e, TSR__PLAIN, "  the search ended at --%s-limit: %s", limit, what);
}

/* ---- a budget: the changes ---- */

/* Emit the changes in order, as text. For JSON, the certificate contains them. */
static void emit_changes(tsr__emitter *e, const tsr_planned *p) {
  static const tsr__column columns[] = {{NULL, "change", TSR__LEFT},
                                        {NULL, "peak so far", TSR__RIGHT},
                                        {NULL, "saved", TSR__RIGHT},
                                        {NULL, "a step", TSR__RIGHT}};
  static const size_t widths[] = {NAME_COLUMNS, 12, 12, 10};
  const tsr_run_plan_cost *last = &p->as_is;
  tsr__emit_space(e);
  tsr__emit_ruled_table(e, NULL, columns, widths, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < p->change_count; i++) {
    const tsr_planned_change *change = &p->changes[i];
    const tsr_run_plan_cost *so_far = &change->so_far;
    bool is_long = strlen(change->name) > NAME_COLUMNS;
    text name, peak = "-", saved = "-", time = "-";
    (void)snprintf(name, sizeof name, "%.*s%s", is_long ? NAME_COLUMNS - 3 : NAME_COLUMNS,
                   change->name, is_long ? "..." : "");
    if (so_far->is_possible) {
      tsr__format_size(so_far->peak_bytes, peak);
      if (last->is_possible) saved_text(last->peak_bytes, so_far->peak_bytes, saved);
      tsr__format_duration(so_far->step_seconds, time);
      last = so_far;
    }
    tsr__emit_row(e, (tsr__cell[]){tsr__string(name), tsr__string(peak), tsr__string(saved),
                                   tsr__string(time)});
    tsr__emit_row_end(e);
  }
  tsr__emit_table_end(e);
}

/* ---- a budget: the peak ---- */

static void emit_memory(tsr__emitter *e, const char *name, uint64_t bytes, uint64_t of) {
  text size;
  tsr__emit_printf(e, TSR__PLAIN, "  %-56.56s %12s %5.1f %%", name, tsr__format_size(bytes, size),
                   100 * (double)bytes / (double)of);
}

static bool is_same_kind(const tsr_memory_row *a, const tsr_memory_row *b) {
  return a->category == b->category && strcmp(a->op, b->op) == 0 &&
         strcmp(a->kernel, b->kernel) == 0;
}

/* Add up the rows of all blocks, the largest first, and store the first ROWS in `out`. Returns their total
 * number. */
static size_t join_rows(const tsr_memory_profile *profile, tsr_memory_row out[ROWS]) {
  size_t count = 0;
  for (size_t i = 0; i < profile->row_count; i++) {
    const tsr_memory_row *row = &profile->rows[i];
    tsr_memory_row whole = *row;
    bool is_first = true;
    for (size_t k = 0; k < i && is_first; k++) is_first = !is_same_kind(&profile->rows[k], row);
    if (!is_first) continue;
    for (size_t k = i + 1; k < profile->row_count; k++)
      if (is_same_kind(&profile->rows[k], row)) whole.bytes += profile->rows[k].bytes;
    size_t at = count < ROWS ? count++ : ROWS;
    for (; at > 0 && out[at - 1].bytes < whole.bytes; at--)
      if (at < ROWS) out[at] = out[at - 1];
    if (at < ROWS) out[at] = whole;
  }
  return count;
}

static void emit_moment(tsr__emitter *e, const tsr_memory_profile *profile) {
  const tsr_simulate_moment *peak = &profile->peak;
  uint64_t all = peak->totals.allocated_bytes, shown = 0;
  tsr_memory_row rows[ROWS];
  char name[128];
  text size;
  if (!tsr__emitter_is_text(e)) return;
  tsr__emit_space(e);
  tsr__emit_printf(e, TSR__PLAIN, "At the peak, %s, in the %s of step %" PRIu64 "%s%s%s:",
                   tsr__format_size(all, size), peak->phase, peak->step, *peak->op ? " (" : "",
                   peak->op, *peak->op ? ")" : "");
  size_t count = join_rows(profile, rows);
  for (size_t i = 0; i < count; i++) {
    tsr__name_memory(name, sizeof name, rows[i].category, rows[i].op, rows[i].kernel);
    emit_memory(e, name, rows[i].bytes, all);
    shown += rows[i].bytes;
  }
  if (shown < all) emit_memory(e, "all other", all - shown, all);
}

/* ---- a budget: the bound, and other costs ---- */

static void emit_bound(tsr__emitter *e, const tsr_planned *p) {
  text time, bytes;
  bool is_refused = p->verdict == TSR_PLANNING_DOES_NOT_FIT;
  bool is_unknown = is_refused ? p->bound_bytes == UINT64_MAX : p->bound_seconds <= 0;
  if (p->is_proved || is_unknown) return;
  tsr__emit_space(e);
  if (p->verdict == TSR_PLANNING_DOES_NOT_FIT) {
    tsr__emit_printf(e, TSR__PLAIN,
                     "It is not proved that nothing fits: only %s are certainly needed at once.",
                     tsr__format_size(p->bound_bytes, bytes));
    return;
  }
  double gap = p->bound_seconds > 0 ? p->with.step_seconds / p->bound_seconds - 1 : 0;
  /* Not every number of blocks on the host is a combination with a bound: ways.c. */
  const char *what =
      p->with.host_bytes ? "the combinations compared" : "these kernels within the budget";
  if (gap < 0.0005) {
    tsr__emit_printf(e, TSR__PLAIN, "No schedule of %s is faster.", what);
    return;
  }
  tsr__emit_printf(e, TSR__PLAIN, "No schedule of %s takes less than %s: this one", what,
                   tsr__format_duration(p->bound_seconds, time));
  tsr__emit_printf(e, TSR__PLAIN, "takes %.1f %% more.", 100 * fmax(gap, 0));
}

/* What was searched. */
static void emit_searched(tsr__emitter *e, const tsr_planned *p) {
  tsr__buffer *out = &e->scratch;
  if (p->way_count < 2 || p->unit_count || !tsr__emitter_is_text(e)) return;
  tsr__buffer_printf(out, "Compared %zu combinations of choices and simulated %zu %s.",
                     p->way_count - p->skipped_count, p->tried, p->tried == 1 ? "plan" : "plans");
  tsr__emit_line(e, TSR__PLAIN, 0);
  if (p->target)
    tsr__emit_printf(e, TSR__PLAIN, "Plans were limited to what %s can express (--for).",
                     p->target_count > 1 ? "all of these programs" : p->target);
  if (p->skipped_count)
    tsr__emit_printf(e, TSR__PLAIN,
                     "Skipped %zu others: their steps have too many operations to simulate.",
                     p->skipped_count);
}

static void emit_sent(tsr__emitter *e, const tsr_planned *p) {
  text sent, time;
  if (!p->with.sent_bytes) return;
  if (p->is_proved && p->verdict == TSR_PLANNING_DOES_NOT_FIT) tsr__emit_space(e);
  tsr__emit_printf(e, TSR__PLAIN, "Each rank sends %s in a step, for which kernels wait %s.",
                   tsr__format_size(p->with.sent_bytes, sent),
                   tsr__format_duration(p->with.stall_seconds, time));
}

/* Emit where a step graph was cut. */
static void emit_units(tsr__emitter *e, const tsr_planned *p) {
  if (!p->unit_count) return;
  tsr__emit_printf(e, TSR__PLAIN, "Choices were made for %zu block%s of modules%s", p->unit_count,
                   p->unit_count == 1 ? "" : "s",
                   p->far_count || p->unit_count == 1 ? "." : ", a chain.");
  if (!p->far_count) return;
  tsr__emit_printf(
      e, TSR__PLAIN,
      "%zu of them read results of other blocks than the one before. The solver assumes",
      p->far_count);
  tsr__emit_printf(e, TSR__PLAIN, "a chain, so it may have missed a better plan.");
}

/* ---- a budget: comparison with a recorded run ---- */

static void emit_times(tsr__emitter *e, const tsr_calibration *c, const char *path) {
  text measured, estimated;
  tsr__emit_space(e);
  if (c->measured_s <= 0) {
    tsr__emit_printf(e, TSR__PLAIN,
                     "From %.200s: no steps with times, so times are estimates for the card.",
                     path);
    return;
  }
  tsr__emit_printf(e, TSR__PLAIN,
                   "From %.200s: a step took %s, the median of %" PRIu64 "; estimated %s.", path,
                   tsr__format_duration(c->measured_s, measured), c->steps,
                   tsr__format_duration(c->predicted_s, estimated));
  tsr__emit_printf(e, TSR__PLAIN, "Times are estimates, multiplied by %.3g.", c->factor);
  if (c->factor < 1 / FAR_FACTOR || c->factor > FAR_FACTOR)
    emit_lines(e, "That is far from the estimate: is --gpu the card of the recording? A simulated\n"
                  "snapshot's times are invented.");
  for (size_t i = 0; i < TSR_CALIBRATION_PHASES; i++)
    if (c->phases[i].measured_s > 0)
      tsr__emit_printf(e, TSR__PLAIN, "  %-12s %9s   estimated %s", tsr_calibration_phase(i),
                       tsr__format_duration(c->phases[i].measured_s, measured),
                       tsr__format_duration(c->phases[i].predicted_s, estimated));
}

static void emit_unexplained(tsr__emitter *e, const tsr_calibration *c) {
  uint64_t shown = 0;
  text size;
  if (!c->unexplained_bytes) {
    tsr__emit_printf(e, TSR__PLAIN, "All that it has at its peak is predicted.");
    return;
  }
  tsr__emit_printf(e, TSR__PLAIN,
                   "%s at its peak are not predicted, and are taken from the budget:",
                   tsr__format_size(c->unexplained_bytes, size));
  for (size_t i = 0; i < c->row_count; i++) {
    const tsr_unexplained *row = &c->rows[i];
    tsr__emit_printf(e, TSR__PLAIN, "  %-15s %-38.38s %11s, %" PRIu64 " of them",
                     tsr_category_name(row->category), row->place,
                     tsr__format_size(row->bytes, size), row->count);
    shown += row->bytes;
  }
  if (shown != c->unexplained_bytes)
    tsr__emit_printf(e, TSR__PLAIN, "  %-54s %11s", "all other",
                     tsr__format_size(c->unexplained_bytes - shown, size));
}

/* ---- a budget ---- */

void tsr__emit_found(tsr__emitter *e, const char *name, const tsr_planned *p,
                     uint64_t budget_bytes) {
  emit_verdict(e, name, p, budget_bytes, NULL);
  emit_changes(e, p);
  if (p->verdict == TSR_PLANNING_DOES_NOT_FIT) emit_bound(e, p);
}

/* `key` is NULL in a list. */
static void emit_target(tsr__emitter *e, const char *key, const tsr_pasted *one) {
  tsr__emit_object(e, key);
  tsr__emit_field(e, "target", NULL, tsr__string(one->target));
  tsr__emit_field(e, "file", NULL, tsr__string(one->file));
  tsr__emit_field(e, "text", NULL, tsr__string(one->text));
  tsr__emit_field(e, "notes", NULL, one->notes ? tsr__string(one->notes) : tsr__nothing());
  tsr__emit_field(e, "reserved_bytes", NULL,
                  one->reserved_bytes ? tsr__bytes(one->reserved_bytes) : tsr__nothing());
  tsr__emit_end(e);
}

/* With `for`, text contains the pasted plan instead of the answer, except for its verdict. Several have headings, as tail(1) has them. */
static void emit_pasted(tsr__emitter *e, const tsr_plan_answer *a) {
  if (!a->pasted_count) return;
  emit_target(e, "for", &a->pasted[0]);
  if (a->pasted_count > 1) {
    tsr__emit_array(e, "also_for");
    for (size_t i = 1; i < a->pasted_count; i++) emit_target(e, NULL, &a->pasted[i]);
    tsr__emit_end(e);
  }
  for (size_t i = 0; i < a->pasted_count; i++) {
    if (i) tsr__emit_space(e);
    if (a->pasted_count > 1) tsr__emit_printf(e, TSR__PLAIN, "==> %s <==", a->pasted[i].file);
    emit_lines(e, a->pasted[i].text);
  }
}

tsr__asked_text tsr__asked_text_of(const tsr__plan_value *value) {
  const char *rates = value->rates ? tsr_rates_text(value->rates) : "";
  return (tsr__asked_text){.options = {value->given.data, value->given.size},
                           .rates = {rates, strcspn(rates, "\n")}};
}

static void report_found(tsr__emitter *e, const char *key, const tsr__report_call *call,
                         const tsr__plan_value *value) {
  const tsr_plan_answer *a = &value->about;
  const tsr_planned *p = a->found;
  tsr__emit_json_line(e, key);
  const tsr__asked_text asked = tsr__asked_text_of(value);
  tsr__emit_certificate(e, a->largest ? a->largest->planning : value->planning, p,
                        &value->certificate, &asked);
  tsr__emit_outside(e, &value->outside, tsr__plan_reserved_bytes(value));
  emit_pasted(e, a);
  if (!key && !tsr__emitter_is_text(e)) tsr__emit_plan_notes(e, value);
  tsr__emit_end(e);
  if (a->pasted_count && call->options->format == TSR_REPORT_TEXT) return;
  emit_verdict(e, call->inputs[0].path, p, a->budget_bytes, value);
  emit_changes(e, p);
  emit_moment(e, value->certificate.peak);
  emit_bound(e, p);
  if (p->verdict != TSR_PLANNING_DOES_NOT_FIT) {
    if (p->is_proved) tsr__emit_space(e);
    tsr__emit_time_band(e, value, &p->with, false);
  }
  emit_searched(e, p);
  emit_sent(e, p);
  emit_units(e, p);
  if (p->calibration) {
    emit_times(e, p->calibration, call->inputs[call->input_count - 1].path);
    emit_unexplained(e, p->calibration);
  }
  if (tsr__emitter_is_text(e)) tsr__emit_plan_notes(e, value);
  tsr__emit_space(e);
  tsr__emit_printf(e, TSR__PLAIN, "plan %s", tsr_run_plan_hash(p->plan));
  emit_lines(e, tsr_run_plan_text(p->plan));
}

/* ---- the largest size ---- */

static void emit_largest_verdict(tsr__emitter *e, const char *name, const tsr_largest *l) {
  static const char *const things[] = {"batch of %" PRIu64 " sequences",
                                       "sequence of %" PRIu64 " tokens",
                                       "model of %" PRIu64 " parameters"};
  text size, on_host, as_is = "none";
  tsr_model_sizes sizes;
  if (!l->size) {
    tsr__emit_printf(e, TSR__VERDICT, "%.200s: no plan found fits even the smallest.", name);
    return;
  }
  const tsr_run_plan_cost *with = &l->planned.with;
  char host[160] = "";
  if (with->host_bytes)
    (void)snprintf(host, sizeof host, ", with %s on the host%s,",
                   tsr__format_size(with->host_machine_bytes, on_host),
                   with->host_machine_bytes > with->host_bytes ? " of a machine" : "");
  const char *fits = l->is_models_limit ? "fits, the model's limit"
                     : l->stopped_by    ? "fits"
                                        : "is the largest found";
  (void)snprintf(size, sizeof size, things[l->what], l->size);
  if (l->as_is) (void)snprintf(as_is, sizeof as_is, "%" PRIu64, l->as_is);
  if (!l->as_is && l->stopped_by) (void)snprintf(as_is, sizeof as_is, "unknown");
  if (!l->model || !tsr_model_sizes_of(l->model, &sizes)) {
    tsr__emit_printf(e, TSR__VERDICT, "%.200s: a %s%s %s (%s as it is).", name, size, host, fits,
                     as_is);
    return;
  }
  tsr__emit_printf(e, TSR__VERDICT, "%.200s: a %s%s %s.", name, size, host, fits);
  tsr__emit_printf(e, TSR__PLAIN,
                   "  %" PRIu64 " layers of width %" PRIu64 ", %" PRIu64
                   " heads; %s parameters as it is",
                   sizes.layers, sizes.width, sizes.heads, as_is);
}

static void report_largest(tsr__emitter *e, const tsr__report_call *call,
                           const tsr__plan_value *value) {
  static const char *const words[] = {"batch", "seq", "model"};
  const tsr_largest *l = value->about.largest;
  tsr__emit_json_line(e, NULL);
  emit_header(e);
  tsr__emit_field(e, "largest", NULL, tsr__string(words[l->what]));
  tsr__emit_field(e, "size", NULL, tsr__count(l->size));
  tsr__emit_field(e, "size_as_is", NULL, tsr__count(l->as_is));
  if (l->model) tsr__emit_config(e, "model", tsr_model_config(l->model));
  tsr__emit_stopped(e, l->stopped_by);
  emit_largest_verdict(e, call->inputs[0].path, l);
  tsr__emit_end_of_search(e, l->stopped_by, "a larger one may fit");
  if (value->about.found)
    report_found(e, "answer", call, value);
  else
    tsr__emit_field(e, "answer", NULL, tsr__nothing());
  if (!tsr__emitter_is_text(e)) tsr__emit_plan_notes(e, value);
  if (l->model && value->about.fits && !value->about.pasted_count) {
    tsr__emit_space(e);
    tsr__emit_printf(e, TSR__PLAIN, "model");
    emit_lines(e, tsr_model_config(l->model));
  }
  tsr__emit_end(e);
}

/* ---- what a search compares ---- */

static void report_ways(tsr__emitter *e, const char *name, const tsr__plan_value *value) {
  const tsr_planning *p = value->planning;
  const tsr__asked_text asked = tsr__asked_text_of(value);
  text time;
  tsr__emit_json_line(e, NULL);
  if (!tsr__emitter_is_text(e)) emit_header(e);
  tsr__emit_object(e, "listing");
  tsr__emit_ways(e, p, &value->certificate, &asked);
  tsr__emit_end(e);
  tsr__emit_printf(e, TSR__VERDICT, "%.200s: %zu ways to run it; %zu more are not possible.", name,
                   p->ways.count, p->refused.count);
  tsr__emit_space(e);
  if (p->ways.count) tsr__emit_printf(e, TSR__PLAIN, "%11s  choices", "at least");
  for (size_t i = 0; i < p->ways.count && tsr__emitter_is_text(e); i++) {
    const tsr__way *way = &p->ways.items[i];
    tsr__buffer_printf(&e->scratch, "%11s  ", tsr__format_duration(way->step_s, time));
    if (!tsr__run_plan_write(way->plan, &e->scratch)) e->out.failed = true;
    if (way->narrows) tsr__buffer_text(&e->scratch, " with fewer bits");
    tsr__emit_unbroken(e, TSR__PLAIN, 0);
  }
  if (!tsr__emitter_is_text(e)) tsr__emit_plan_notes(e, value);
  tsr__emit_end(e);
}

/* ---- estimates of papers ---- */

static const char *estimate_text(double bytes, text out) {
  return bytes > 0 ? tsr__format_size((uint64_t)bytes, out) : "-";
}

static void emit_bytes(tsr__emitter *e, const char *source, const char *what, double device_bytes,
                       double host_bytes) {
  text device, host;
  tsr__emit_printf(e, TSR__PLAIN, "  %-14s %-34s  %10s  %10s", source, what,
                   estimate_text(device_bytes, device), estimate_text(host_bytes, host));
}

static bool is_there(const tsr_estimate *estimate) {
  return estimate->device_bytes > 0 || estimate->host_bytes > 0;
}

static void emit_kind(tsr__emitter *e, tsr_estimate_kind kind, const tsr_estimate *all) {
  for (size_t i = 0; i < TSR_ESTIMATES; i++)
    if (all[i].kind == kind && is_there(&all[i]))
      emit_bytes(e, all[i].source, all[i].what, all[i].device_bytes, all[i].host_bytes);
}

static void emit_estimates(tsr__emitter *e, const tsr_estimate *all) {
  tsr__emit_array(e, "estimates");
  for (size_t i = 0; i < TSR_ESTIMATES; i++) {
    const tsr_estimate *one = &all[i];
    bool is_states = one->kind == TSR_ESTIMATE_STATES;
    if (!is_there(one) || tsr__emitter_is_text(e)) continue;
    tsr__emit_object(e, NULL);
    tsr__emit_field(e, "source", NULL, tsr__string(one->source));
    tsr__emit_field(e, "what", NULL, tsr__string(one->what));
    tsr__emit_field(e, "counts", NULL, tsr__string(is_states ? "states" : "activations"));
    tsr__emit_field(e, "device_bytes", NULL, tsr__bytes((uint64_t)nearbyint(one->device_bytes)));
    tsr__emit_field(e, "host_bytes", NULL, tsr__bytes((uint64_t)nearbyint(one->host_bytes)));
    tsr__emit_field(e, "remark", NULL, one->remark ? tsr__string(one->remark) : tsr__nothing());
    tsr__emit_end(e);
  }
  tsr__emit_end(e);
}

static void emit_remarks(tsr__emitter *e, const tsr_estimate *all) {
  char line[512];
  tsr__emit_space(e);
  for (size_t i = 0; i < TSR_ESTIMATES; i++) {
    if (!all[i].remark || !is_there(&all[i])) continue;
    (void)snprintf(line, sizeof line, "%s, %s: %s.", all[i].source, all[i].what, all[i].remark);
    emit_words(e, "  ", 4, line);
  }
}

static void emit_compared(tsr__emitter *e, const char *name, const tsr__plan_value *value) {
  const tsr_estimate_question *q = &value->compared_with;
  char largest[TSR__FORMAT_BYTES] = "";
  if (q->largest_layer)
    (void)snprintf(largest, sizeof largest, ", %" PRIu64 " in the largest", q->largest_layer);
  tsr__emit_printf(e, TSR__VERDICT,
                   "%.200s on %" PRIu64 " card%s, %" PRIu64 " in a machine: %" PRIu64
                   " parameters%s.",
                   value->model ? name : "A model", q->cards, q->cards == 1 ? "" : "s",
                   q->cards_a_node, q->parameters, largest);
  tsr__emit_space(e);
  tsr__emit_printf(e, TSR__PLAIN, "States:");
  tsr__emit_printf(e, TSR__PLAIN, "  %-14s %-34s  %10s  %10s", "source", "what", "a card",
                   "a machine");
  emit_kind(e, TSR_ESTIMATE_STATES, value->estimates);
  if (value->model) {
    tsr__emit_space(e);
    tsr__emit_printf(e, TSR__PLAIN,
                     "Saved for backward, of %" PRIu64 " x %" PRIu64 " tokens on each card:",
                     q->batch, q->sequence);
    emit_kind(e, TSR_ESTIMATE_ACTIVATIONS, value->estimates);
    tsr__emit_space(e);
    tsr__emit_printf(e, TSR__PLAIN, "All of it, simulated:");
    emit_bytes(e, "tessera", "one card, peak allocated", (double)value->compared_peak_bytes, 0);
    emit_bytes(e, "tessera", "one card, peak reserved", (double)value->compared_reserved_bytes,
               (double)value->compared_host_bytes);
    tsr__emit_space(e);
    emit_lines(e,
               "The others are formulas of states, or of what is saved for backward, in 16 bits.\n"
               "tessera's peak has both, temporaries and the allocator's rounding.");
  }
  emit_remarks(e, value->estimates);
}

static void report_compared(tsr__emitter *e, const char *name, const tsr__plan_value *value) {
  const tsr_estimate_question *q = &value->compared_with;
  tsr__emit_json_line(e, NULL);
  tsr__emit_field(e, "parameters", NULL, tsr__count(q->parameters));
  tsr__emit_field(e, "largest_layer_parameters", NULL, tsr__count(q->largest_layer));
  tsr__emit_field(e, "cards", NULL, tsr__count(q->cards));
  tsr__emit_field(e, "cards_per_node", NULL, tsr__count(q->cards_a_node));
  if (value->model) {
    tsr__emit_field(e, "peak_allocated_bytes", NULL, tsr__bytes(value->compared_peak_bytes));
    tsr__emit_field(e, "peak_reserved_bytes", NULL, tsr__bytes(value->compared_reserved_bytes));
  }
  emit_estimates(e, value->estimates);
  emit_compared(e, name, value);
  tsr__emit_end(e);
}

/* ---- the answer ---- */

static void report_pasted(tsr__emitter *e, const tsr_plan_answer *a) {
  tsr__emit_json_line(e, NULL);
  if (!tsr__emitter_is_text(e)) {
    emit_header(e);
    emit_plan(e, a->plan);
  }
  emit_pasted(e, a);
  tsr__emit_end(e);
}

int tsr__report_plan(const tsr__report_call *call, tsr_error *error) {
  const tsr__plan_value *value = call->value;
  const tsr_plan_answer *a = &value->about;
  const char *name = call->input_count ? call->inputs[0].path : "";
  tsr__emitter emitter;
  tsr__emitter_init(&emitter, call->options, call->write, call->context);
  emitter.fields = &tsr__fields_plan;
  if (a->largest)
    report_largest(&emitter, call, value);
  else if (a->found)
    report_found(&emitter, NULL, call, value);
  else if (a->front)
    tsr__emit_front(&emitter, name, value);
  else if (value->lists_ways)
    report_ways(&emitter, name, value);
  else if (a->techniques)
    report_techniques(&emitter, name, value);
  else if (a->compared_with)
    report_compared(&emitter, name, value);
  else if (a->pasted_count)
    report_pasted(&emitter, a);
  else
    report_shown(&emitter, name, value);
  return tsr__emitter_finish(&emitter, error);
}

/* ---- files ---- */

static int write_text(const tsr__report_call *call, const char *content, tsr_error *error) {
  return call->write(call->context, content, strlen(content))
             ? tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "the file could not be written")
             : 0;
}

int tsr__form_plan(const tsr__report_call *call, size_t form, const char *root, tsr_error *error) {
  enum { PLAN, MODEL, CSV, PAGE };
  const tsr__plan_value *value = call->value;
  const tsr_plan_answer *a = &value->about;
  (void)root;
  if (form == PLAN && (a->found || !a->front))
    return write_text(call, tsr_run_plan_text(a->found ? a->found->plan : a->plan), error);
  if (form == MODEL && a->largest && a->largest->model)
    return write_text(call, tsr_model_config(a->largest->model), error);
  if ((form == CSV || form == PAGE) && a->front)
    return tsr__write_front(a, call->inputs[0].path, form == PAGE, call->write, call->context,
                            error);
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                   "this answer of 'plan' has no such file");
}
