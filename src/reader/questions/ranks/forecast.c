/* forecast.c - the growth of ranks, as text or JSON.
 *
 *   Rank 3 grows by 1.20 GiB an hour; at this rate its card is full 3 h 20 min after its last snapshot, about 2026-11-27 02:10 UTC.
 *
 *   rank  snapshots     first      last   an hour  full (UTC)
 *      3         60  40.1 GiB  41.3 GiB  1.20 GiB  2026-11-27 02:10
 *
 *   In rank 3 these grow:
 *     an hour     first      last  category  allocated at
 *    1.20 GiB  1.02 MiB  1.20 GiB  unknown   cache.py:9 append
 */
#include <inttypes.h>
#include <string.h>

#include "base/format.h"
#include "emit/emitter.h"
#include "emit/text.h"
#include "questions/ranks/ranks.h"

enum { GROWTHS_SHOWN = 8, STACKS_SHOWN = 8, MINUTE_LENGTH = 16 };

/* "2026-11-27 02:10". */
static const char *minute_of(int64_t time_us, char text[TSR__FORMAT_BYTES]) {
  tsr__format_time(time_us, text);
  if (strlen(text) > MINUTE_LENGTH) text[MINUTE_LENGTH] = '\0';
  return text;
}

/* "3 h 20 min", "12 d 4 h", "40 min". */
static void append_span(tsr__buffer *out, int64_t span_us) {
  int64_t minutes = span_us / 60000000, hours = minutes / 60, days = hours / 24;
  if (days)
    tsr__buffer_printf(out, "%" PRId64 " d %" PRId64 " h", days, hours % 24);
  else if (hours)
    tsr__buffer_printf(out, "%" PRId64 " h %" PRId64 " min", hours, minutes % 60);
  else
    tsr__buffer_printf(out, "%" PRId64 " min", minutes);
}

static bool has_rate(double bytes_per_hour) {
  return bytes_per_hour > 0 && bytes_per_hour < 1e18;
}

static tsr__cell rate_cell(double bytes_per_hour) {
  return has_rate(bytes_per_hour) ? tsr__bytes((uint64_t)bytes_per_hour) : tsr__nothing();
}

static tsr__cell rate_value(double bytes_per_hour) {
  return has_rate(bytes_per_hour) ? tsr__real(bytes_per_hour) : tsr__nothing();
}

void tsr__ranks_append_forecast(tsr__buffer *out, const tsr_ranks *ranks) {
  const tsr_rank_growth *g = &ranks->growths[0];
  char rate[TSR__FORMAT_BYTES], when[TSR__FORMAT_BYTES];
  size_t others = 0;
  for (size_t i = 1; i < ranks->growth_count; i++)
    others += ranks->growths[i].full_us != TSR_TIME_NONE;
  tsr__format_size((uint64_t)g->bytes_per_hour, rate);
  tsr__buffer_printf(out, "Rank %" PRId64 " grows by %s an hour; at this rate its card is full%s ",
                     g->rank, rate, others ? " first," : "");
  if (g->full_us > g->last_us)
    append_span(out, g->full_us - g->last_us);
  else
    tsr__buffer_text(out, "at once");
  tsr__buffer_printf(out, " after its last snapshot, about %s UTC.", minute_of(g->full_us, when));
}

/* ---- Text ---- */

static void print_rows(tsr__emitter *emitter, const tsr_ranks *ranks) {
  bool has_full = ranks->growths[0].full_us != TSR_TIME_NONE;
  const tsr__column columns[] = {
      {NULL, "rank", TSR__RIGHT},    {NULL, "snapshots", TSR__RIGHT},
      {NULL, "first", TSR__RIGHT},   {NULL, "last", TSR__RIGHT},
      {NULL, "an hour", TSR__RIGHT}, {NULL, has_full ? "card full (UTC)" : NULL, TSR__LEFT}};
  bool is_short = !emitter->options.verbose && ranks->growth_count > GROWTHS_SHOWN;
  size_t shown = is_short ? GROWTHS_SHOWN : ranks->growth_count;
  char when[TSR__FORMAT_BYTES];
  tsr__emit_table(emitter, NULL, columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < shown; i++) {
    const tsr_rank_growth *g = &ranks->growths[i];
    bool is_full = g->full_us != TSR_TIME_NONE;
    tsr__cell cells[] = {
        tsr__count((uint64_t)g->rank), tsr__count(g->dumps),
        tsr__bytes(g->first_bytes),    tsr__bytes(g->last_bytes),
        rate_cell(g->bytes_per_hour),  tsr__string(is_full ? minute_of(g->full_us, when) : "")};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
  if (is_short)
    tsr__emit_printf(emitter, TSR__DIM, "  ... and %s more (-v shows all)",
                     tsr__format_count(ranks->growth_count - shown, when));
}

static void print_stacks(tsr__stack_printer *printer, const tsr_rank_growth *g) {
  const tsr__column columns[] = {{NULL, has_rate(g->bytes_per_hour) ? "an hour" : NULL, TSR__RIGHT},
                                 {NULL, "first", TSR__RIGHT},
                                 {NULL, "last", TSR__RIGHT},
                                 {NULL, "category", TSR__CATEGORY},
                                 {NULL, "allocated at", TSR__ELASTIC}};
  tsr__emitter *emitter = printer->emitter;
  size_t shown =
      g->stack_count < STACKS_SHOWN || emitter->options.verbose ? g->stack_count : STACKS_SHOWN;
  tsr__row_names names = {0};
  if (!shown) return;
  tsr__emit_space(emitter);
  tsr__emit_printf(emitter, TSR__PLAIN, "In rank %" PRId64 " these grow:", g->rank);
  TSR__STACK_NAMES(printer, tsr_growth_stack, g->stacks, shown, &names);
  tsr__emit_table(emitter, NULL, columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < shown; i++) {
    const tsr_growth_stack *s = &g->stacks[i];
    tsr__cell cells[] = {rate_cell(s->bytes_per_hour), tsr__bytes(s->first_bytes),
                         tsr__bytes(s->last_bytes), tsr__string(tsr_category_name(s->category)),
                         tsr__text(tsr__stack_name(&names, i))};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
  tsr__row_names_release(&names);
}

/* ---- JSON ---- */

static void emit_stack(tsr__stack_printer *printer, const tsr_growth_stack *s) {
  tsr__emitter *emitter = printer->emitter;
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "first_bytes", NULL, tsr__bytes(s->first_bytes));
  tsr__emit_field(emitter, "last_bytes", NULL, tsr__bytes(s->last_bytes));
  tsr__emit_field(emitter, "bytes_per_hour", NULL, rate_value(s->bytes_per_hour));
  tsr__emit_field(emitter, "category", NULL, tsr__string(tsr_category_name(s->category)));
  tsr__stack_emit(printer, s->stack);
  tsr__emit_end(emitter);
}

static void emit_growth(tsr__stack_printer *printer, const tsr_rank_growth *g) {
  tsr__emitter *emitter = printer->emitter;
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "rank", NULL, tsr__count((uint64_t)g->rank));
  tsr__emit_field(emitter, "device", NULL, tsr__device(g->device));
  tsr__emit_field(emitter, "snapshots", NULL, tsr__count(g->dumps));
  tsr__emit_field(emitter, "first_bytes", NULL, tsr__bytes(g->first_bytes));
  tsr__emit_field(emitter, "last_bytes", NULL, tsr__bytes(g->last_bytes));
  tsr__emit_field(emitter, "bytes_per_hour", NULL, rate_value(g->bytes_per_hour));
  tsr__emit_field(emitter, "steady", NULL, tsr__bool(g->is_steady));
  tsr__emit_field(emitter, "limit_bytes", NULL,
                  g->limit_bytes ? tsr__bytes(g->limit_bytes) : tsr__nothing());
  tsr__emit_field(emitter, "full_time_us", NULL, tsr__time(g->full_us));
  tsr__emit_array(emitter, "stacks");
  for (size_t i = 0; i < g->stack_count; i++) emit_stack(printer, &g->stacks[i]);
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
}

void tsr__ranks_emit_growth(tsr__stack_printer *printer, const tsr_ranks *ranks) {
  tsr__emitter *emitter = printer->emitter;
  if (!tsr__emitter_is_text(emitter)) {
    tsr__emit_array(emitter, "growth");
    for (size_t i = 0; i < ranks->growth_count; i++) emit_growth(printer, &ranks->growths[i]);
    tsr__emit_end(emitter);
    return;
  }
  if (!ranks->growth_count) return;
  bool is_verdict = !ranks->dead_count && !ranks->outlier_count;
  tsr__emit_space(emitter);
  if (ranks->growths[0].full_us != TSR_TIME_NONE && !is_verdict) {
    tsr__ranks_append_forecast(&emitter->scratch, ranks);
    tsr__emit_paragraph(emitter, TSR__PLAIN, 0);
  } else {
    tsr__emit_printf(emitter, TSR__PLAIN, "Growth from the first snapshot of a rank to its last:");
  }
  print_rows(emitter, ranks);
  print_stacks(printer, &ranks->growths[0]);
}
