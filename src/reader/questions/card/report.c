/* report.c - a card's memory and who holds it, as text or JSON.
 *
 *   Device 0: 91.20 GiB of 94.00 GiB are used at the worst moment: 82.10 GiB by PyTorch, 7.40 GiB by NCCL in 6 groups, ...
 *
 *         bytes   share  at the end      grew  what
 *     78.00 GiB  85.5 %   60.00 GiB            allocated by PyTorch
 *      4.10 GiB   4.5 %    9.00 GiB            cached by PyTorch, free
 *     ...
 *
 * Several cards are rows of one table. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/format.h"
#include "base/memory.h"
#include "base/sort.h"
#include "emit/emitter.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/card/card.h"

#define SIZE(bytes)   tsr__format_size((bytes), (char[TSR__FORMAT_BYTES]){0})
#define COUNT(number) tsr__format_count((number), (char[TSR__FORMAT_BYTES]){0})
#define TIME(time_us) tsr__format_time((time_us), (char[TSR__FORMAT_BYTES]){0})

/* Growth of less is not told. */
#define LEAST_GROWTH ((int64_t)16 << 20)

static bool has_several(const tsr_card_use *use) {
  return use->holder_count > 1;
}

static tsr__cell known(uint64_t value) {
  return value == TSR_LEDGER_UNKNOWN ? tsr__nothing() : tsr__bytes(value);
}

static tsr__cell known_count(uint64_t value) {
  return value == TSR_LEDGER_UNKNOWN ? tsr__nothing() : tsr__count(value);
}

static tsr__cell known_text(const char *text) {
  return text && *text ? tsr__string(text) : tsr__nothing();
}

/* Whether the peak is the last sample. */
static bool is_end(const tsr_card_use *use) {
  return use->moments[TSR_CARD_PEAK].time_us == use->moments[TSR_CARD_END].time_us;
}

/* ---- Names of parts ---- */

/* What text and JSON call a part; whose it is, if there are several processes. */
static void append_name(tsr__buffer *out, const tsr_card_use *use, const tsr_card_part *part) {
  const char *owner =
      has_several(use) && part->holder != TSR_NONE ? use->holders[part->holder].label : NULL;
  switch (part->kind) {
  case TSR_CARD_ALLOCATED: tsr__buffer_text(out, "allocated by PyTorch"); break;
  case TSR_CARD_CACHED: tsr__buffer_text(out, "cached by PyTorch, free"); break;
  case TSR_CARD_CONTEXT: tsr__buffer_text(out, "CUDA context"); break;
  case TSR_CARD_LIBRARY:
    tsr__buffer_printf(out, "%s", *part->name ? part->name : "a library");
    break;
  case TSR_CARD_COMMUNICATOR:
    tsr__buffer_printf(out, "NCCL, group %s", *part->name ? part->name : "without a name");
    if (part->ranks > 1) tsr__buffer_printf(out, ", %s ranks", COUNT(part->ranks));
    if (part->is_suspended) tsr__buffer_text(out, ", suspended");
    break;
  case TSR_CARD_DRIVER: tsr__buffer_text(out, "the driver's own"); break;
  case TSR_CARD_PROCESS:
    if (!part->pid) {
      tsr__buffer_text(out, "other processes, each of which has little");
      break;
    }
    tsr__buffer_printf(out, "%s, pid %" PRIu64, *part->name ? part->name : "another process",
                       part->pid);
    break;
  case TSR_CARD_HERE: tsr__buffer_text(out, "unaccounted, this process"); break;
  case TSR_CARD_TWICE: tsr__buffer_text(out, "counted twice"); break;
  default: tsr__buffer_text(out, "unaccounted");
  }
  if (owner) tsr__buffer_printf(out, " (%s)", owner);
}

/* The name in scratch, as a text that lives until the next use of scratch. */
static tsr_text name_of(tsr__emitter *emitter, const tsr_card_use *use, const tsr_card_part *part) {
  tsr__buffer *out = &emitter->scratch;
  out->size = 0;
  append_name(out, use, part);
  tsr_text name = {out->data, out->failed ? 0 : out->size};
  return name;
}

/* ---- Sums ---- */

static int64_t sum_of(const tsr_card_use *use, tsr_card_moment_kind moment, tsr_card_kind kind) {
  int64_t sum = 0;
  for (size_t i = 0; i < use->part_count; i++)
    if (use->parts[i].kind == kind) sum += use->parts[i].bytes[moment];
  return sum;
}

static size_t count_of(const tsr_card_use *use, tsr_card_moment_kind moment, tsr_card_kind kind) {
  size_t count = 0;
  for (size_t i = 0; i < use->part_count; i++)
    count += use->parts[i].kind == kind && use->parts[i].bytes[moment] > 0;
  return count;
}

/* ---- The verdict ---- */

static void append_device(tsr__buffer *out, const tsr_card_use *use) {
  char title[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "%s: ", tsr__device_title(use->holders[0].device, title));
}

/* "82.10 GiB by PyTorch", largest first, and nothing for less than a hundredth. */
typedef struct share {
  int64_t bytes;
  const char *text;
} share;

static int compare_shares(const void *a, const void *b) {
  const share *x = a, *y = b;
  return x->bytes == y->bytes ? 0 : x->bytes < y->bytes ? 1 : -1;
}

static void append_shares(tsr__buffer *out, const tsr_card_use *use, tsr_card_moment_kind moment) {
  char groups[TSR__FORMAT_BYTES + 32], others[160];
  size_t group_count = count_of(use, moment, TSR_CARD_COMMUNICATOR);
  size_t process_count = count_of(use, moment, TSR_CARD_PROCESS);
  (void)snprintf(groups, sizeof groups, "by NCCL in %s group%s", COUNT(group_count),
                 tsr__plural(group_count));
  (void)snprintf(others, sizeof others, "by %s other processes", COUNT(process_count));
  for (size_t i = 0; process_count == 1 && i < use->part_count; i++)
    if (use->parts[i].kind == TSR_CARD_PROCESS && use->parts[i].bytes[moment] && use->parts[i].pid)
      (void)snprintf(others, sizeof others, "by another process (%.80s%spid %" PRIu64 ")",
                     use->parts[i].name, *use->parts[i].name ? ", " : "", use->parts[i].pid);
  share shares[] = {{sum_of(use, moment, TSR_CARD_ALLOCATED) + sum_of(use, moment, TSR_CARD_CACHED),
                     "by PyTorch"},
                    {sum_of(use, moment, TSR_CARD_COMMUNICATOR), groups},
                    {sum_of(use, moment, TSR_CARD_CONTEXT),
                     has_several(use) ? "by CUDA contexts" : "by the CUDA context"},
                    {sum_of(use, moment, TSR_CARD_LIBRARY), "by libraries"},
                    {sum_of(use, moment, TSR_CARD_DRIVER), "by the driver"},
                    {sum_of(use, moment, TSR_CARD_PROCESS), others},
                    {sum_of(use, moment, TSR_CARD_HERE) + sum_of(use, moment, TSR_CARD_UNACCOUNTED),
                     "unaccounted"}};
  enum { SHARES = sizeof shares / sizeof *shares };
  tsr__sort(shares, SHARES, sizeof *shares, compare_shares);
  int64_t least = (int64_t)(use->moments[moment].used_bytes / 100);
  for (size_t i = 0; i < SHARES && shares[i].bytes > 0 && (!i || shares[i].bytes >= least); i++)
    tsr__buffer_printf(out, "%s%s %s", i ? ", " : "", SIZE((uint64_t)shares[i].bytes),
                       shares[i].text);
}

static void append_of_total(tsr__buffer *out, const tsr_card_use *use, uint64_t used) {
  tsr__buffer_text(out, SIZE(used));
  if (use->total_bytes != TSR_LEDGER_UNKNOWN)
    tsr__buffer_printf(out, " of %s", SIZE(use->total_bytes));
}

static void append_verdict(tsr__buffer *out, const tsr_card_use *use) {
  const tsr_card_moment *peak = &use->moments[TSR_CARD_PEAK];
  append_device(out, use);
  if (use->source == TSR_CARD_FROM_NOTHING) {
    tsr__buffer_printf(out, "how much of the card is used is not known; PyTorch has %s at the end.",
                       SIZE((uint64_t)(sum_of(use, TSR_CARD_END, TSR_CARD_ALLOCATED) +
                                       sum_of(use, TSR_CARD_END, TSR_CARD_CACHED))));
    return;
  }
  append_of_total(out, use, peak->used_bytes);
  tsr__buffer_text(out, use->source == TSR_CARD_FROM_LEDGER ? " are used at the worst moment: "
                                                            : " are used at the end: ");
  append_shares(out, use, TSR_CARD_PEAK);
  tsr__buffer_text(out, ".");
}

/* Several processes: what they hold together, and what must be released. */
static void append_together(tsr__buffer *out, const tsr_card_use *use) {
  tsr__buffer_printf(out, "The %s processes hold at most %s together", COUNT(use->holder_count),
                     SIZE(use->together_bytes));
  for (size_t i = 0; i < use->holder_count && i < 4; i++)
    tsr__buffer_printf(out, "%s%s %s", i ? ", " : " (", use->holders[i].label,
                       SIZE(use->holders[i].together_bytes));
  tsr__buffer_printf(out, "%s), while their separate peaks add up to %s.",
                     use->holder_count > 4 ? ", ..." : "", SIZE(use->sum_of_peaks_bytes));
}

static void append_release(tsr__buffer *out, const tsr_card_use *use, const tsr_card_phase *phase) {
  uint64_t released = tsr__drop_u64(phase->before_bytes, phase->start_bytes);
  const char *owner = use->holders[phase->holder].label;
  const char *who =
      phase->releaser == TSR_NONE ? "the others" : use->holders[phase->releaser].label;
  if (use->holder_count > 2) who = "the other processes";
  if (phase->missing_bytes)
    tsr__buffer_printf(out,
                       "%s ran out of memory in '%s', %s short: before it begins, %s must have "
                       "released %s of the %s that %s held",
                       owner, phase->name, SIZE(phase->missing_bytes), who,
                       SIZE(phase->release_bytes), SIZE(phase->before_bytes),
                       use->holder_count > 2 ? "they" : "it");
  else
    tsr__buffer_printf(out,
                       "For '%s' (%s) to fit, %s must have released %s of the %s that %s held "
                       "before it begins",
                       phase->name, owner, who, SIZE(phase->release_bytes),
                       SIZE(phase->before_bytes), use->holder_count > 2 ? "they" : "it");
  tsr__buffer_printf(out, "; %s had released %s by then%s.", use->holder_count > 2 ? "they" : "it",
                     SIZE(released), released < phase->release_bytes ? "" : ", which is enough");
}

static const tsr_card_phase *worst_phase(const tsr_card_use *use) {
  const tsr_card_phase *worst = NULL;
  for (size_t i = 0; i < use->phase_count; i++) {
    const tsr_card_phase *p = &use->phases[i];
    bool is_worse =
        !worst || (p->missing_bytes && !worst->missing_bytes) ||
        (!p->missing_bytes == !worst->missing_bytes && p->release_bytes > worst->release_bytes);
    if (p->release_bytes && is_worse) worst = p;
  }
  return worst;
}

static void print_verdict(tsr__emitter *emitter, const tsr_card_use *use) {
  tsr__emit_space(emitter);
  if (!tsr__emitter_is_text(emitter)) return;
  const tsr_card_phase *phase = worst_phase(use);
  append_verdict(&emitter->scratch, use);
  tsr__emit_line(emitter, TSR__VERDICT, 0);
  if (has_several(use) && use->together_us != TSR_TIME_NONE) {
    append_together(&emitter->scratch, use);
    tsr__emit_line(emitter, TSR__VERDICT, 0);
  }
  if (!phase) return;
  append_release(&emitter->scratch, use, phase);
  tsr__emit_line(emitter, phase->missing_bytes ? TSR__ALARM : TSR__PLAIN, 0);
}

/* ---- Parts ---- */

static void emit_part(tsr__emitter *emitter, const tsr_card_use *use, const tsr_card_part *part,
                      tsr_card_moment_kind moment) {
  tsr__emit_inline_object(emitter, NULL);
  tsr__emit_field(emitter, "name", NULL, tsr__text(name_of(emitter, use, part)));
  tsr__emit_field(emitter, "bytes", NULL, tsr__index(part->bytes[moment]));
  tsr__emit_field(emitter, "kind", NULL, tsr__string(tsr_card_kind_name(part->kind)));
  tsr__emit_field(emitter, "holder", NULL,
                  part->holder == TSR_NONE ? tsr__nothing() : tsr__count(part->holder));
  tsr__emit_field(emitter, "pid", NULL,
                  part->kind == TSR_CARD_PROCESS && part->pid ? tsr__count(part->pid)
                                                              : tsr__nothing());
  tsr__emit_field(emitter, "group", NULL,
                  part->kind == TSR_CARD_COMMUNICATOR ? tsr__string(part->name) : tsr__nothing());
  tsr__emit_field(emitter, "from", NULL, known_text(part->from));
  tsr__emit_end(emitter);
  emitter->scratch.size = 0;
}

/* Only those that are known then. */
static void emit_parts(tsr__emitter *emitter, const tsr_card_use *use,
                       tsr_card_moment_kind moment) {
  tsr__emit_array(emitter, "parts");
  for (size_t i = 0; i < use->part_count; i++)
    if (use->parts[i].is_known[moment]) emit_part(emitter, use, &use->parts[i], moment);
  tsr__emit_end(emitter);
}

static void emit_moment(tsr__emitter *emitter, const char *key, const tsr_card_use *use,
                        tsr_card_moment_kind kind) {
  const tsr_card_moment *moment = &use->moments[kind];
  if (!moment->is_there) {
    tsr__emit_field(emitter, key, NULL, tsr__nothing());
    return;
  }
  tsr__emit_object(emitter, key);
  tsr__emit_field(emitter, "time_us", NULL, tsr__time(moment->time_us));
  tsr__emit_field(emitter, "mark", NULL, known_text(moment->mark));
  tsr__emit_field(emitter, "used_bytes", NULL, tsr__bytes(moment->used_bytes));
  emit_parts(emitter, use, kind);
  tsr__emit_end(emitter);
}

/* A number of bytes that may be negative, as text. */
static const char *signed_size(int64_t bytes, bool has_plus, char text[TSR__FORMAT_BYTES + 2]) {
  char size[TSR__FORMAT_BYTES];
  uint64_t magnitude = bytes < 0 ? (uint64_t)-bytes : (uint64_t)bytes;
  (void)snprintf(text, TSR__FORMAT_BYTES + 2, "%s%s",
                 bytes < 0  ? "-"
                 : has_plus ? "+"
                            : "",
                 tsr__format_size(magnitude, size));
  return text;
}

static const char *size_cell(int64_t bytes, bool is_known, char text[TSR__FORMAT_BYTES + 2]) {
  return is_known ? signed_size(bytes, false, text) : "-";
}

static const char *growth_cell(const tsr_card_part *part, char text[TSR__FORMAT_BYTES + 2]) {
  int64_t grew = part->bytes[TSR_CARD_END] - part->bytes[TSR_CARD_EARLY];
  bool is_told = part->is_known[TSR_CARD_EARLY] && part->is_known[TSR_CARD_END] && grew;
  return is_told ? signed_size(grew, true, text) : "";
}

/* Whether any part is larger or smaller at the end than early. */
static bool has_change(const tsr_card_use *use) {
  char text[TSR__FORMAT_BYTES + 2];
  for (size_t i = 0; i < use->part_count; i++)
    if (*growth_cell(&use->parts[i], text)) return true;
  return false;
}

/* The rows of the table: those that are left out are summed. */
typedef struct rows {
  const tsr_card_part **items;
  size_t count, shown;
} rows;

static int compare_sizes(const void *a, const void *b) {
  const tsr_card_part *const *x = a, *const *y = b;
  int64_t p = (*x)->bytes[TSR_CARD_PEAK], q = (*y)->bytes[TSR_CARD_PEAK];
  bool is_rest = (*x)->kind >= TSR_CARD_HERE, is_other = (*y)->kind >= TSR_CARD_HERE;
  if (is_rest != is_other) return is_rest ? 1 : -1;
  if (is_rest) return (int)(*x)->kind - (int)(*y)->kind;
  return p == q ? 0 : p < q ? 1 : -1;
}

static void print_row(tsr__emitter *emitter, const tsr_card_use *use, const tsr_card_part *part) {
  char peak[TSR__FORMAT_BYTES + 2], end[TSR__FORMAT_BYTES + 2], grew[TSR__FORMAT_BYTES + 2],
      at[TSR__FORMAT_BYTES + 2];
  uint64_t used = use->moments[TSR_CARD_PEAK].used_bytes;
  int64_t bytes = part->bytes[TSR_CARD_PEAK];
  tsr__cell cells[] = {
      tsr__string(size_cell(bytes, part->is_known[TSR_CARD_PEAK], peak)),
      bytes > 0 ? tsr__percent((uint64_t)bytes, used) : tsr__string(""),
      tsr__string(size_cell(part->bytes[TSR_CARD_END], part->is_known[TSR_CARD_END], end)),
      tsr__string(size_cell(part->bytes[TSR_CARD_AT], part->is_known[TSR_CARD_AT], at)),
      tsr__string(growth_cell(part, grew)),
      tsr__text(name_of(emitter, use, part))};
  tsr__emit_row(emitter, cells);
  tsr__emit_row_end(emitter);
  emitter->scratch.size = 0;
}

/* What --top leaves out, and everything together. */
static void print_sum(tsr__emitter *emitter, const tsr_card_use *use, const rows *r, bool is_rest) {
  char peak[TSR__FORMAT_BYTES + 2], end[TSR__FORMAT_BYTES + 2], grew[TSR__FORMAT_BYTES + 2],
      at[TSR__FORMAT_BYTES + 2], text[TSR__FORMAT_BYTES + 32];
  tsr_card_part sum = {.holder = TSR_NONE};
  for (size_t i = is_rest ? r->shown : 0; i < r->count; i++) {
    if (is_rest && r->items[i]->kind >= TSR_CARD_HERE) continue;
    for (int k = 0; k < TSR_CARD_MOMENTS; k++) {
      sum.bytes[k] += r->items[i]->bytes[k];
      sum.is_known[k] = use->moments[k].is_there;
    }
  }
  size_t hidden = 0;
  for (size_t i = r->shown; i < r->count; i++) hidden += r->items[i]->kind < TSR_CARD_HERE;
  if (is_rest && !hidden) return;
  (void)snprintf(text, sizeof text, is_rest ? "%s other parts (--top 0 shows them)" : "used in all",
                 COUNT(hidden));
  uint64_t used = use->moments[TSR_CARD_PEAK].used_bytes;
  tsr__cell cells[] = {
      tsr__string(size_cell(sum.bytes[TSR_CARD_PEAK], true, peak)),
      is_rest ? tsr__percent((uint64_t)sum.bytes[TSR_CARD_PEAK], used) : tsr__string(""),
      tsr__string(size_cell(sum.bytes[TSR_CARD_END], sum.is_known[TSR_CARD_END], end)),
      tsr__string(size_cell(sum.bytes[TSR_CARD_AT], sum.is_known[TSR_CARD_AT], at)),
      tsr__string(growth_cell(&sum, grew)),
      tsr__string(text)};
  tsr__emit_row(emitter, cells);
  tsr__emit_row_end(emitter);
}

static bool is_anything(const tsr_card_part *part) {
  for (int k = 0; k < TSR_CARD_MOMENTS; k++)
    if (part->bytes[k]) return true;
  return false;
}

static void print_table(tsr__emitter *emitter, const tsr_card_use *use, size_t top) {
  bool has_early = has_change(use);
  bool is_ledger = use->source == TSR_CARD_FROM_LEDGER;
  const tsr__column columns[] = {
      {NULL, is_ledger ? "at the peak" : "at the end", TSR__RIGHT},
      {NULL, "share", TSR__RIGHT},
      {NULL, is_ledger && !is_end(use) ? "at the end" : NULL, TSR__RIGHT},
      {NULL, use->moments[TSR_CARD_AT].is_there ? "then" : NULL, TSR__RIGHT},
      {NULL, has_early ? "grew" : NULL, TSR__RIGHT},
      {NULL, "what", TSR__ELASTIC}};
  if (!tsr__emitter_is_text(emitter) || use->source == TSR_CARD_FROM_NOTHING) return;
  rows r = {.items = TSR__NEW_ARRAY(const tsr_card_part *, use->part_count),
            .count = use->part_count};
  if (!r.items) {
    emitter->scratch.failed = true;
    return;
  }
  r.count = 0;
  for (size_t i = 0; i < use->part_count; i++)
    if (is_anything(&use->parts[i])) r.items[r.count++] = &use->parts[i];
  tsr__sort(r.items, r.count, sizeof *r.items, compare_sizes);
  while (r.shown < r.count && r.items[r.shown]->kind < TSR_CARD_HERE) r.shown++;
  if (top && top + 1 < r.shown) r.shown = top; /* a single one takes no more room than its sum */
  tsr__emit_space(emitter);
  tsr__emit_table(emitter, NULL, columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < r.shown; i++)
    if (r.items[i]->kind < TSR_CARD_HERE) print_row(emitter, use, r.items[i]);
  print_sum(emitter, use, &r, true);
  for (size_t i = 0; i < r.count; i++)
    if (r.items[i]->kind >= TSR_CARD_HERE) print_row(emitter, use, r.items[i]);
  print_sum(emitter, use, &r, false);
  tsr__emit_table_end(emitter);
  tsr__free(r.items);
}

/* ---- What is to be said of it ---- */

/* A time, without its day if that is the day of another one. */
static void append_time(tsr__buffer *out, int64_t time_us, int64_t known_us) {
  enum { DAY = sizeof "2026-07-12" };
  char text[TSR__FORMAT_BYTES], other[TSR__FORMAT_BYTES] = "";
  tsr__format_time(time_us, text);
  if (known_us != TSR_TIME_NONE) tsr__format_time(known_us, other);
  bool is_same_day = !strncmp(text, other, DAY);
  tsr__buffer_text(out, is_same_day && strlen(text) > DAY ? text + DAY : text);
}

static void print_when(tsr__emitter *emitter, const tsr_card_use *use) {
  const tsr_card_moment *peak = &use->moments[TSR_CARD_PEAK], *end = &use->moments[TSR_CARD_END],
                        *early = &use->moments[TSR_CARD_EARLY], *at = &use->moments[TSR_CARD_AT];
  tsr__buffer *out = &emitter->scratch;
  if (use->source != TSR_CARD_FROM_LEDGER) return;
  tsr__buffer_text(out, "The peak is ");
  append_time(out, peak->time_us, TSR_TIME_NONE);
  tsr__buffer_text(out, " UTC");
  if (*peak->mark) tsr__buffer_printf(out, " (%s)", peak->mark);
  tsr__buffer_text(out, is_end(use) ? ", the last sample" : ", the end ");
  if (!is_end(use)) append_time(out, end->time_us, peak->time_us);
  if (has_change(use)) {
    tsr__buffer_text(out, ". Growth is counted from ");
    append_time(out, early->time_us, peak->time_us);
    if (*early->mark) tsr__buffer_printf(out, " (%s)", early->mark);
  }
  if (at->is_there) {
    tsr__buffer_text(out, ". 'Then' is ");
    append_time(out, at->time_us, peak->time_us);
  }
  tsr__buffer_text(out, ".");
  tsr__emit_space(emitter);
  tsr__emit_paragraph(emitter, TSR__DIM, 0);
  int64_t driver = sum_of(use, TSR_CARD_PEAK, TSR_CARD_DRIVER);
  if (driver <= 0 || (uint64_t)driver > peak->used_bytes) return;
  tsr__buffer_printf(out,
                     "nvidia-smi shows %s then: since driver 510 it leaves out the driver's own.",
                     SIZE(peak->used_bytes - (uint64_t)driver));
  tsr__emit_paragraph(emitter, TSR__DIM, 0);
}

static void print_overlap(tsr__emitter *emitter, const tsr_card_use *use) {
  static const char *const reasons[] = {
      [TSR_CARD_OVERLAP_NONE] = "",
      [TSR_CARD_OVERLAP_MOMENTS] = "samples of different moments are added here",
      [TSR_CARD_OVERLAP_FIRST] =
          ("what a library or a group takes was measured around its first use, "
           "where other parts grew too"),
      [TSR_CARD_OVERLAP_COUNTERS] = "the counters are read one after another, and may overlap"};
  if (use->overlap == TSR_CARD_OVERLAP_NONE) return;
  int64_t twice = -sum_of(use, TSR_CARD_PEAK, TSR_CARD_TWICE);
  tsr__buffer_printf(&emitter->scratch, "The parts add up to %s more than is used: %s",
                     SIZE((uint64_t)twice), reasons[use->overlap]);
  if (use->overlap == TSR_CARD_OVERLAP_MOMENTS)
    tsr__buffer_printf(&emitter->scratch, ", up to %.1f s apart", (double)use->stale_us / 1e6);
  tsr__buffer_text(&emitter->scratch, ".");
  tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
}

static void print_asleep(tsr__emitter *emitter, const tsr_card_use *use) {
  for (size_t i = 0; i < use->holder_count; i++) {
    const tsr_card_holder *h = &use->holders[i];
    uint64_t in_pools = h->private_bytes[TSR_CARD_PEAK];
    if (h->asleep_bytes[TSR_CARD_PEAK]) {
      tsr__buffer_printf(
          &emitter->scratch,
          "%s%s%s more that PyTorch counts as reserved are in sleeping pools, and not "
          "on the card at the peak.",
          has_several(use) ? h->label : "", has_several(use) ? ": " : "",
          SIZE(h->asleep_bytes[TSR_CARD_PEAK]));
      tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
    }
    if (in_pools == TSR_LEDGER_UNKNOWN || !in_pools) continue;
    tsr__buffer_printf(
        &emitter->scratch,
        "%s%sOf what PyTorch has reserved at the peak, %s are in private pools (CUDA "
        "graphs, MemPool).",
        has_several(use) ? h->label : "", has_several(use) ? ": " : "", SIZE(in_pools));
    tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
  }
}

/* Whether a part is outside PyTorch, and larger at the end by what is worth telling. */
static bool has_grown(const tsr_card_use *use, const tsr_card_part *part) {
  bool is_outside = part->kind > TSR_CARD_CACHED && part->kind != TSR_CARD_TWICE;
  return is_outside && use->moments[TSR_CARD_EARLY].is_there && part->is_known[TSR_CARD_EARLY] &&
         part->bytes[TSR_CARD_END] - part->bytes[TSR_CARD_EARLY] >= LEAST_GROWTH;
}

static const tsr_card_part *next_grown(const tsr_card_use *use, const tsr_card_part *last) {
  const tsr_card_part *next = NULL;
  int64_t limit = last ? last->bytes[TSR_CARD_END] - last->bytes[TSR_CARD_EARLY] : INT64_MAX,
          most = 0;
  for (size_t i = 0; i < use->part_count; i++) {
    const tsr_card_part *part = &use->parts[i];
    int64_t grew = part->bytes[TSR_CARD_END] - part->bytes[TSR_CARD_EARLY];
    bool is_after = grew < limit || (grew == limit && part > last);
    if (!has_grown(use, part) || !is_after || grew <= most) continue;
    next = part;
    most = grew;
  }
  return next;
}

static void emit_growth(tsr__emitter *emitter, const tsr_card_use *use) {
  static const tsr__column columns[] = {{"name", NULL, TSR__LEFT},
                                        {"kind", NULL, TSR__LEFT},
                                        {"bytes", NULL, TSR__RIGHT},
                                        {"steady", NULL, TSR__LEFT}};
  const tsr_card_part *part = NULL;
  enum { SHOWN = 4 };
  if (tsr__emitter_is_text(emitter)) {
    for (int i = 0; i < SHOWN && (part = next_grown(use, part)); i++) {
      tsr__buffer *out = &emitter->scratch;
      tsr__buffer_printf(out, "Grew by %s%s: ",
                         SIZE((uint64_t)(part->bytes[TSR_CARD_END] - part->bytes[TSR_CARD_EARLY])),
                         part->is_steady ? ", in each quarter of the time" : "");
      append_name(out, use, part);
      tsr__buffer_text(out, ".");
      tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
    }
    return;
  }
  tsr__emit_table(emitter, "growth", columns, sizeof columns / sizeof *columns);
  while ((part = next_grown(use, part))) {
    tsr__cell cells[] = {
        tsr__text(name_of(emitter, use, part)), tsr__string(tsr_card_kind_name(part->kind)),
        tsr__bytes((uint64_t)(part->bytes[TSR_CARD_END] - part->bytes[TSR_CARD_EARLY])),
        tsr__bool(part->is_steady)};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
    emitter->scratch.size = 0;
  }
  tsr__emit_table_end(emitter);
}

/* What the recorder could not know. */
static void print_notes(tsr__emitter *emitter, const tsr_card_use *use) {
  enum { SHOWN = 3 };
  size_t shown = emitter->options.verbose || use->note_count <= SHOWN ? use->note_count : SHOWN;
  for (size_t i = 0; i < shown; i++) {
    tsr__buffer_printf(&emitter->scratch, "The recorder reports: %s", use->notes[i]);
    tsr__emit_paragraph(emitter, TSR__DIM, 0);
  }
  if (shown < use->note_count)
    tsr__emit_printf(emitter, TSR__DIM, "... and %s more (-v shows all)",
                     COUNT(use->note_count - shown));
}

/* What the figures lack, and how to have it. */
static void print_lacks(tsr__emitter *emitter, const tsr_card_use *use) {
  const tsr_ledger_recording *r = &use->recording;
  tsr__buffer *out = &emitter->scratch;
  tsr__emit_space(emitter);
  if (use->source == TSR_CARD_FROM_NOTHING) {
    tsr__buffer_text(out,
                     use->recording.is_there
                         ? "The sidecar has no samples of this card."
                         : "The file comes without a record of the card: a snapshot has PyTorch's "
                           "memory alone.");
    tsr__buffer_text(out,
                     " Record the program under tessera.record (`with "
                     "tessera.record(\"out/\"):`), which samples the card and writes that next "
                     "to each snapshot.");
    tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
  } else if (use->source == TSR_CARD_FROM_SIDECAR) {
    tsr__buffer_text(out,
                     "The sidecar is of an older tessera.record, or the card was not sampled: it "
                     "has one figure for all that is not PyTorch's, of the moment of the "
                     "snapshot. What it consists of, and what it was before, is not known.");
    tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
  } else if (*r->nvml_error) {
    tsr__buffer_printf(out, "Other processes are not told apart: NVML could not be asked (%s).",
                       r->nvml_error);
    tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
  }
  print_notes(emitter, use);
}

/* ---- Processes that share it ---- */

static void emit_holders(tsr__emitter *emitter, const tsr_card_use *use) {
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_array(emitter, "holders");
  for (size_t i = 0; i < use->holder_count; i++) {
    const tsr_card_holder *h = &use->holders[i];
    tsr__emit_object(emitter, NULL);
    tsr__emit_field(emitter, "path", NULL, tsr__string(h->path));
    tsr__emit_field(emitter, "pid", NULL, h->pid ? tsr__count(h->pid) : tsr__nothing());
    tsr__emit_field(emitter, "host", NULL, known_text(h->host));
    tsr__emit_field(emitter, "rank", NULL,
                    h->rank >= 0 ? tsr__count((uint64_t)h->rank) : tsr__nothing());
    tsr__emit_field(emitter, "device", NULL, tsr__count(h->device));
    tsr__emit_field(emitter, "asleep_bytes", NULL, tsr__bytes(h->asleep_bytes[TSR_CARD_PEAK]));
    tsr__emit_field(emitter, "private_pool_bytes", NULL, known(h->private_bytes[TSR_CARD_PEAK]));
    if (has_several(use)) {
      tsr__emit_field(emitter, "peak_bytes", NULL, tsr__bytes(h->peak_bytes));
      tsr__emit_field(emitter, "together_bytes", NULL, tsr__bytes(h->together_bytes));
    }
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
  if (!has_several(use)) return;
  tsr__emit_field(emitter, "together_bytes", NULL, tsr__bytes(use->together_bytes));
  tsr__emit_field(emitter, "together_time_us", NULL, tsr__time(use->together_us));
  tsr__emit_field(emitter, "sum_of_peaks_bytes", NULL, tsr__bytes(use->sum_of_peaks_bytes));
}

static void emit_phases(tsr__emitter *emitter, const tsr_card_use *use) {
  static const tsr__column columns[] = {{"name", "phase", TSR__LEFT},
                                        {NULL, "of", TSR__LEFT},
                                        {"times", "times", TSR__SPARE},
                                        {"needs_bytes", "needs", TSR__RIGHT},
                                        {"room_bytes", "leaves", TSR__RIGHT},
                                        {"before_bytes", "before", TSR__RIGHT},
                                        {"start_bytes", "at start", TSR__RIGHT},
                                        {"release_bytes", "to release", TSR__RIGHT}};
  if (!has_several(use)) return;
  if (tsr__emitter_is_text(emitter) && use->phase_count) {
    tsr__emit_space(emitter);
    tsr__buffer_text(&emitter->scratch, "What each phase needs and leaves to the others, what they "
                                        "held before it and at its start, and what they must have "
                                        "released by then:");
    tsr__emit_paragraph(emitter, TSR__BOLD, 0);
  }
  tsr__emit_table(emitter, "phases", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < use->phase_count; i++) {
    const tsr_card_phase *p = &use->phases[i];
    tsr__cell cells[] = {tsr__string(p->name),       tsr__string(use->holders[p->holder].label),
                         tsr__count(p->times),       tsr__bytes(p->needs_bytes),
                         known(p->room_bytes),       tsr__bytes(p->before_bytes),
                         tsr__bytes(p->start_bytes), tsr__bytes(p->release_bytes)};
    tsr__emit_row(emitter, cells);
    tsr__emit_field(emitter, "holder", NULL, tsr__count(p->holder));
    tsr__emit_field(emitter, "time_us", NULL, tsr__time(p->first_us));
    tsr__emit_field(emitter, "missing_bytes", NULL, tsr__bytes(p->missing_bytes));
    tsr__emit_field(emitter, "sum_bytes", NULL, tsr__bytes(p->sum_bytes));
    tsr__emit_field(emitter, "others_bytes", NULL, tsr__bytes(p->others_bytes));
    tsr__emit_field(emitter, "releaser", NULL,
                    p->releaser == TSR_NONE ? tsr__nothing() : tsr__count(p->releaser));
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

static void print_basis(tsr__emitter *emitter, const tsr_card_use *use) {
  if (!has_several(use)) return;
  tsr__emit_space(emitter);
  tsr__buffer_text(&emitter->scratch,
                   use->is_one_by_uuid
                       ? "The files name the same card by its UUID."
                       : "The files are taken for processes on one card: they give it the same "
                         "number and size, and have no UUID that says otherwise.");
  tsr__emit_paragraph(emitter, TSR__DIM, 0);
}

/* ---- The rest ---- */

static void emit_host(tsr__emitter *emitter, const tsr_card_use *use) {
  const tsr_ledger_recording *r = &use->recording;
  if (tsr__emitter_is_text(emitter)) {
    if (use->host_peak_bytes == TSR_LEDGER_UNKNOWN || !emitter->options.verbose) return;
    tsr__buffer_printf(&emitter->scratch, "On the host, the process had at most %s resident",
                       SIZE(use->host_peak_bytes));
    if (use->host.limit_bytes != TSR_LEDGER_UNKNOWN && r->is_there)
      tsr__buffer_printf(&emitter->scratch, "; its limit is %s", SIZE(use->host.limit_bytes));
    tsr__buffer_text(&emitter->scratch, ".");
    tsr__emit_space(emitter);
    tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
    return;
  }
  tsr__emit_object(emitter, "host");
  tsr__emit_field(emitter, "peak_resident_bytes", NULL, known(use->host_peak_bytes));
  tsr__emit_field(emitter, "end_resident_bytes", NULL, known(use->host_end_bytes));
  tsr__emit_field(emitter, "pinned_bytes", NULL,
                  r->is_there ? known(use->host.pinned_bytes) : tsr__nothing());
  tsr__emit_field(emitter, "limit_bytes", NULL,
                  r->is_there ? known(use->host.limit_bytes) : tsr__nothing());
  tsr__emit_field(emitter, "limit_from", NULL, known_text(use->host.limit_from));
  tsr__emit_end(emitter);
}

static void emit_recording(tsr__emitter *emitter, const tsr_card_use *use) {
  const tsr_ledger_recording *r = &use->recording;
  if (tsr__emitter_is_text(emitter)) {
    if (!emitter->options.verbose || use->source != TSR_CARD_FROM_LEDGER) return;
    tsr__buffer_printf(&emitter->scratch, "%s samples", COUNT(use->sample_count));
    if (r->period_ms != TSR_LEDGER_UNKNOWN)
      tsr__buffer_printf(&emitter->scratch, ", one every %s ms and at marks", COUNT(r->period_ms));
    if (r->sampling_us != TSR_LEDGER_UNKNOWN)
      tsr__buffer_printf(&emitter->scratch, "; taking them took %.1f ms in all",
                         (double)r->sampling_us / 1e3);
    tsr__buffer_text(&emitter->scratch, ".");
    tsr__emit_space(emitter);
    tsr__emit_paragraph(emitter, TSR__DIM, 0);
    return;
  }
  if (!r->is_there) {
    tsr__emit_field(emitter, "recording", NULL, tsr__nothing());
    return;
  }
  tsr__emit_object(emitter, "recording");
  tsr__emit_field(emitter, "samples", NULL, tsr__count(use->sample_count));
  tsr__emit_field(emitter, "samples_taken", NULL, known_count(r->samples_taken));
  tsr__emit_field(emitter, "period_ms", NULL, known_count(r->period_ms));
  tsr__emit_field(emitter, "sampling_us", NULL, known_count(r->sampling_us));
  tsr__emit_field(emitter, "step_us", NULL, known_count(r->step_us));
  tsr__emit_field(emitter, "nvml", NULL, known_text(r->nvml));
  tsr__emit_field(emitter, "nvml_error", NULL, known_text(r->nvml_error));
  tsr__emit_inline_array(emitter, "notes");
  for (size_t i = 0; i < use->note_count; i++) tsr__emit_item(emitter, tsr__string(use->notes[i]));
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
}

/* JSON alone. */
static void emit_figures(tsr__emitter *emitter, const tsr_card_use *use) {
  const tsr_card_moment *peak = &use->moments[TSR_CARD_PEAK];
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_field(emitter, "device", NULL, tsr__device(use->holders[0].device));
  tsr__emit_field(emitter, "name", NULL, known_text(use->name));
  tsr__emit_field(emitter, "uuid", NULL, known_text(use->uuid));
  tsr__emit_field(emitter, "source", NULL, tsr__string(tsr_card_source_name(use->source)));
  tsr__emit_field(emitter, "total_bytes", NULL, known(use->total_bytes));
  tsr__emit_field(emitter, "used_bytes", NULL,
                  peak->is_there ? tsr__bytes(peak->used_bytes) : tsr__nothing());
  tsr__emit_field(emitter, "time_us", NULL,
                  peak->is_there ? tsr__time(peak->time_us) : tsr__nothing());
  tsr__emit_field(emitter, "mark", NULL, known_text(peak->mark));
  emit_parts(emitter, use, TSR_CARD_PEAK);
  tsr__emit_field(emitter, "overlap", NULL, tsr__string(tsr_card_overlap_name(use->overlap)));
  tsr__emit_field(emitter, "stale_us", NULL, tsr__count(use->stale_us));
  emit_moment(emitter, "end", use, TSR_CARD_END);
  emit_moment(emitter, "early", use, TSR_CARD_EARLY);
  emit_moment(emitter, "at", use, TSR_CARD_AT);
}

static void emit_card(tsr__emitter *emitter, const tsr_card_use *use, size_t top, bool is_row) {
  bool is_text = tsr__emitter_is_text(emitter);
  if (is_row && is_text) return;
  print_verdict(emitter, use);
  tsr__emit_object(emitter, NULL);
  emit_figures(emitter, use);
  print_table(emitter, use, top);
  if (is_text) {
    emit_phases(emitter, use);
    print_when(emitter, use);
    print_overlap(emitter, use);
    print_asleep(emitter, use);
    emit_growth(emitter, use);
    print_lacks(emitter, use);
    print_basis(emitter, use);
  } else {
    emit_growth(emitter, use);
    emit_holders(emitter, use);
    emit_phases(emitter, use);
  }
  emit_host(emitter, use);
  emit_recording(emitter, use);
  tsr__emit_end(emitter);
}

/* ---- Many cards ---- */

static const char *kind_words(tsr_card_kind kind) {
  static const char *const words[TSR_CARD_KIND_COUNT] = {
      "what PyTorch has allocated",
      "what PyTorch has cached",
      "the CUDA context",
      "libraries",
      "NCCL",
      "the driver",
      "other processes",
      "what this process has and nobody accounts for",
      "what nobody accounts for",
      ""};
  return words[kind];
}

static void append_many(tsr__buffer *out, const tsr_cards *cards) {
  size_t known_count = 0, fullest = 0;
  uint64_t most = 0;
  for (size_t i = 0; i < cards->card_count; i++) {
    const tsr_card_use *use = &cards->cards[i];
    if (use->source == TSR_CARD_FROM_NOTHING) continue;
    known_count++;
    if (use->moments[TSR_CARD_PEAK].used_bytes <= most) continue;
    most = use->moments[TSR_CARD_PEAK].used_bytes;
    fullest = i;
  }
  if (!known_count) {
    tsr__buffer_printf(out,
                       "How much of the %s cards is used is not known: their files have no "
                       "record of it.",
                       COUNT(cards->card_count));
    return;
  }
  tsr__buffer_printf(out, "Of %s cards, that of %s is the fullest: ", COUNT(cards->card_count),
                     cards->cards[fullest].holders[0].label);
  append_of_total(out, &cards->cards[fullest], most);
  tsr__buffer_text(out, " used.");
  if (!cards->apart_count) {
    if (known_count >= 3) tsr__buffer_text(out, " None stands apart from the others.");
    return;
  }
  const tsr_card_apart *a = &cards->apart[0];
  tsr__buffer_printf(out, " On that of %s, %s takes %s, and at most %s on the others.",
                     cards->cards[a->card].holders[0].label, kind_words(a->kind), SIZE(a->bytes),
                     SIZE(a->others_bytes));
}

/* A card and what decides whether it is listed, if not all are. */
typedef struct listed {
  const tsr_card_use *use;
  bool is_apart;
} listed;

/* Those that stand apart, then the fullest. */
static int compare_listed(const void *a, const void *b) {
  const listed *x = a, *y = b;
  uint64_t p = x->use->moments[TSR_CARD_PEAK].used_bytes;
  uint64_t q = y->use->moments[TSR_CARD_PEAK].used_bytes;
  if (x->is_apart != y->is_apart) return x->is_apart ? -1 : 1;
  return (p < q) - (p > q);
}

/* All cards in their order, or if only some are shown, in that of what matters. NULL when out of memory. */
static listed *list_cards(const tsr_cards *cards, size_t shown) {
  listed *list = TSR__NEW_ARRAY(listed, cards->card_count);
  if (!list) return NULL;
  for (size_t i = 0; i < cards->card_count; i++) list[i].use = &cards->cards[i];
  for (size_t i = 0; i < cards->apart_count; i++) list[cards->apart[i].card].is_apart = true;
  if (shown < cards->card_count) tsr__sort(list, cards->card_count, sizeof *list, compare_listed);
  return list;
}

static void print_cards(tsr__emitter *emitter, const tsr_cards *cards) {
  static const tsr__column columns[] = {
      {NULL, "used", TSR__RIGHT},      {NULL, "of", TSR__SPARE},
      {NULL, "allocated", TSR__RIGHT}, {NULL, "cached", TSR__RIGHT},
      {NULL, "NCCL", TSR__RIGHT},      {NULL, "other parts", TSR__SPARE},
      {NULL, "processes", TSR__RIGHT}, {NULL, "unaccounted", TSR__RIGHT},
      {NULL, "device", TSR__SPARE},    {NULL, "process", TSR__ELASTIC}};
  size_t shown = cards->top && cards->top < cards->card_count ? cards->top : cards->card_count;
  if (emitter->options.verbose) shown = cards->card_count;
  listed *list = list_cards(cards, shown);
  if (!list) {
    emitter->scratch.failed = true;
    return;
  }
  tsr__emit_space(emitter);
  tsr__emit_table(emitter, NULL, columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < shown; i++) {
    const tsr_card_use *use = list[i].use;
    const tsr_card_moment_kind k = TSR_CARD_PEAK;
    bool is_known = use->source != TSR_CARD_FROM_NOTHING;
    int64_t parts = sum_of(use, k, TSR_CARD_CONTEXT) + sum_of(use, k, TSR_CARD_LIBRARY) +
                    sum_of(use, k, TSR_CARD_DRIVER);
    int64_t rest = sum_of(use, k, TSR_CARD_HERE) + sum_of(use, k, TSR_CARD_UNACCOUNTED);
    tsr__cell cells[] = {
        is_known ? tsr__bytes(use->moments[k].used_bytes) : tsr__nothing(),
        known(use->total_bytes),
        tsr__bytes((uint64_t)sum_of(use, k, TSR_CARD_ALLOCATED)),
        tsr__bytes((uint64_t)sum_of(use, k, TSR_CARD_CACHED)),
        is_known ? tsr__bytes((uint64_t)sum_of(use, k, TSR_CARD_COMMUNICATOR)) : tsr__nothing(),
        is_known ? tsr__bytes((uint64_t)parts) : tsr__nothing(),
        is_known ? tsr__bytes((uint64_t)sum_of(use, k, TSR_CARD_PROCESS)) : tsr__nothing(),
        is_known ? tsr__bytes((uint64_t)rest) : tsr__nothing(),
        tsr__count(use->holders[0].device),
        tsr__string(use->holders[0].label)};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
  tsr__free(list);
  if (shown < cards->card_count)
    tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more (--top 0 shows all)",
                     COUNT(cards->card_count - shown));
}

static void emit_apart(tsr__emitter *emitter, const tsr_cards *cards) {
  static const tsr__column columns[] = {
      {"card", NULL, TSR__RIGHT}, {"rank", NULL, TSR__RIGHT},  {"path", NULL, TSR__LEFT},
      {"kind", NULL, TSR__LEFT},  {"bytes", NULL, TSR__RIGHT}, {"others_bytes", NULL, TSR__RIGHT}};
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_table(emitter, "apart", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < cards->apart_count; i++) {
    const tsr_card_apart *a = &cards->apart[i];
    const tsr_card_holder *h = &cards->cards[a->card].holders[0];
    tsr__cell cells[] = {
        tsr__count(a->card),  h->rank >= 0 ? tsr__count((uint64_t)h->rank) : tsr__nothing(),
        tsr__string(h->path), tsr__string(tsr_card_kind_name(a->kind)),
        tsr__bytes(a->bytes), tsr__bytes(a->others_bytes)};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

static void emit_broken(tsr__emitter *emitter, const tsr_cards *cards) {
  enum { SHOWN = 8 };
  if (tsr__emitter_is_text(emitter)) {
    if (cards->broken_count) tsr__emit_space(emitter);
    if (cards->broken_count)
      tsr__emit_printf(emitter, TSR__PLAIN,
                       "%s file%s could not be read:", COUNT(cards->broken_count),
                       tsr__plural(cards->broken_count));
    for (size_t i = 0; i < cards->broken_count && (i < SHOWN || emitter->options.verbose); i++) {
      tsr__buffer_printf(&emitter->scratch, "%s: %s", cards->broken[i].path,
                         cards->broken[i].message);
      tsr__emit_paragraph(emitter, TSR__PLAIN, 2);
    }
    if (cards->broken_count > SHOWN && !emitter->options.verbose)
      tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more (-v shows all)",
                       COUNT(cards->broken_count - SHOWN));
    return;
  }
  tsr__emit_array(emitter, "broken");
  for (size_t i = 0; i < cards->broken_count; i++) {
    tsr__emit_object(emitter, NULL);
    tsr__emit_field(emitter, "path", NULL, tsr__string(cards->broken[i].path));
    tsr__emit_field(emitter, "message", NULL, tsr__string(cards->broken[i].message));
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
}

int tsr__report_card(const tsr_report_input *input, const tsr_cards *cards,
                     const tsr_report_options *options, tsr_write_fn *write, void *context,
                     tsr_error *error) {
  tsr__emitter emitter;
  tsr__warning_list warnings = {0};
  tsr__emitter_init(&emitter, options, write, context);
  tsr__warnings_add(&warnings, cards->warnings, cards->warning_count);
  tsr__heading_begin(&emitter, &tsr__fields_card, input);
  bool is_text = tsr__emitter_is_text(&emitter);
  tsr__emit_field(&emitter, "files", NULL, tsr__count(cards->file_count));
  emit_apart(&emitter, cards);
  if (!is_text) emit_broken(&emitter, cards);
  if (!cards->card_count) tsr__emit_printf(&emitter, TSR__VERDICT, "The file is about no GPU.");
  if (is_text && cards->is_table) {
    append_many(&emitter.scratch, cards);
    tsr__emit_line(&emitter, TSR__VERDICT, 0);
    print_cards(&emitter, cards);
  }
  tsr__emit_array(&emitter, "devices");
  for (size_t i = 0; i < cards->card_count; i++) {
    const tsr_card_use *use = &cards->cards[i];
    bool is_row = cards->is_table && !has_several(use) && !emitter.options.verbose;
    emit_card(&emitter, use, emitter.options.verbose ? 0 : cards->top, is_row);
  }
  if (is_text) emit_broken(&emitter, cards);
  return tsr__heading_close(&emitter, input, &warnings, error);
}
