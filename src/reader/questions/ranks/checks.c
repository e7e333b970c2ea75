/* checks.c - budgets of ranks, as text or JSON.
 *
 *   Memory check failed: 1 of 2 checks.
 *     result  check          is  allowed            difference  rank
 *     FAILED  peak    72.10 GiB  at most 70.00 GiB   +2.10 GiB    17
 *     ok      spread   1.20 GiB  at most 2.00 GiB   -0.80 GiB    17
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/format.h"
#include "emit/emitter.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/ranks/ranks.h"

#define SIZE(bytes) tsr__format_size((bytes), (char[TSR__FORMAT_BYTES]){0})

const char *tsr__ranks_check_subject(const tsr_rank_check *check) {
  switch (check->limit.rule) {
  case TSR_RANK_MAX_CATEGORY: return tsr_category_name(check->limit.category);
  case TSR_RANK_MAX_RESERVED: return "reserved";
  case TSR_RANK_MAX_SPREAD: return "spread";
  default: return "peak";
  }
}

void tsr__ranks_doubt_words(tsr__buffer *out, const tsr_ranks *ranks) {
  static const struct {
    const char *one, *several;
  } words[TSR_RANK_DOUBT_COUNT] = {
      [TSR_RANK_BROKEN] = {"file cannot be read", "files cannot be read"},
      [TSR_RANK_MISSING] = {"rank has no snapshot", "ranks have no snapshot"},
      [TSR_RANK_PARTIAL] = {"snapshot is truncated or damaged, and could hold more",
                            "snapshots are truncated or damaged, and could hold more"},
      [TSR_RANK_OUT_OF_MEMORY] = {"rank ran out of memory: it needed more than it got",
                                  "ranks ran out of memory: they needed more than they got"},
      [TSR_RANK_UNKNOWN] = {"rank has mostly memory without a category",
                            "ranks have mostly memory without a category"}};
  char count[TSR__FORMAT_BYTES];
  if (!ranks->doubt) return;
  bool is_one = ranks->doubt_count == 1;
  tsr__format_count(ranks->doubt_count, count);
  if (ranks->doubt == TSR_RANK_MISSING && ranks->missing_part_count)
    tsr__buffer_printf(out, "%s part%s missing", count, is_one ? " is" : "s are");
  else
    tsr__buffer_printf(out, "%s %s", count,
                       is_one ? words[ranks->doubt].one : words[ranks->doubt].several);
}

void tsr__ranks_check_verdict(tsr__buffer *out, const tsr_ranks *ranks) {
  char count[TSR__FORMAT_BYTES], failed[TSR__FORMAT_BYTES];
  const char *plural = tsr__plural(ranks->check_count);
  tsr__format_count(ranks->check_count, count);
  if (ranks->failed_count) {
    tsr__buffer_printf(out, "failed: %s of %s check%s",
                       tsr__format_count(ranks->failed_count, failed), count, plural);
  } else if (ranks->doubt) {
    tsr__buffer_printf(out, "inconclusive: %s check%s passed, but ", count, plural);
    tsr__ranks_doubt_words(out, ranks);
  } else {
    tsr__buffer_printf(out, "passed: %s check%s", count, plural);
  }
}

void tsr__ranks_check_sentence(tsr__buffer *out, const tsr_ranks *ranks,
                               const tsr_rank_check *check) {
  int64_t rank = ranks->rows[check->row].rank;
  uint64_t limit = check->limit.bytes;
  if (check->limit.rule == TSR_RANK_MAX_SPREAD)
    tsr__buffer_printf(out, "the peaks of ranks %" PRId64 " and %" PRId64 ", which are equals, ",
                       rank, ranks->rows[check->low_row].rank);
  else
    tsr__buffer_printf(out, "%s memory of rank %" PRId64 " is %s, ",
                       tsr__ranks_check_subject(check), rank, SIZE(check->bytes));
  if (check->limit.rule == TSR_RANK_MAX_SPREAD)
    tsr__buffer_printf(out, "are %s apart, ", SIZE(check->bytes));
  if (check->is_passed)
    tsr__buffer_printf(out, "within the budget of %s", SIZE(limit));
  else
    tsr__buffer_printf(out, "%s above the budget of %s", SIZE(check->bytes - limit), SIZE(limit));
}

/* ---- Text ---- */

static void print_table(tsr__emitter *emitter, const tsr_ranks *ranks) {
  static const tsr__column columns[] = {
      {NULL, "result", TSR__LEFT},  {NULL, "check", TSR__LEFT},       {NULL, "is", TSR__RIGHT},
      {NULL, "allowed", TSR__LEFT}, {NULL, "difference", TSR__RIGHT}, {NULL, "rank", TSR__RIGHT}};
  tsr__emit_table(emitter, NULL, columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < ranks->check_count; i++) {
    const tsr_rank_check *c = &ranks->checks[i];
    char allowed[TSR__FORMAT_BYTES + 16], difference[TSR__FORMAT_BYTES + 1];
    uint64_t limit = c->limit.bytes;
    uint64_t by = c->bytes >= limit ? c->bytes - limit : limit - c->bytes;
    (void)snprintf(allowed, sizeof allowed, "at most %s", SIZE(limit));
    (void)snprintf(difference, sizeof difference, "%c%s", c->bytes >= limit ? '+' : '-', SIZE(by));
    tsr__cell cells[] = {tsr__string(c->is_passed ? "ok" : "FAILED"),
                         tsr__string(tsr__ranks_check_subject(c)),
                         tsr__bytes(c->bytes),
                         tsr__string(allowed),
                         tsr__string(difference),
                         tsr__count((uint64_t)ranks->rows[c->row].rank)};
    tsr__emit_row(emitter, cells);
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

static void print_failure(tsr__stack_printer *printer, const tsr_ranks *ranks,
                          const tsr_rank_check *check) {
  tsr__emitter *emitter = printer->emitter;
  tsr__buffer *out = &emitter->scratch;
  char count[TSR__FORMAT_BYTES];
  tsr__ranks_check_sentence(out, ranks, check);
  if (check->stack != TSR_NONE) {
    tsr__buffer_printf(out, "; %s of it are allocated at ", SIZE(check->stack_bytes));
    tsr__stack_append_name(printer, TSR__LABEL_LINE, check->stack);
  }
  if (check->failed_count > 1) {
    bool is_spread = check->limit.rule == TSR_RANK_MAX_SPREAD;
    tsr__buffer_printf(out, "; %s %s are above", tsr__format_count(check->failed_count, count),
                       is_spread ? "groups" : "ranks");
  }
  tsr__emit_paragraph(emitter, TSR__PLAIN, 2);
}

static void print_checks(tsr__stack_printer *printer, const tsr_ranks *ranks) {
  tsr__emitter *emitter = printer->emitter;
  if (!ranks->check_count) return;
  tsr__buffer_text(&emitter->scratch, "Memory check ");
  tsr__ranks_check_verdict(&emitter->scratch, ranks);
  tsr__buffer_text(&emitter->scratch, ".");
  tsr__emit_line(emitter, TSR__VERDICT, 0);
  print_table(emitter, ranks);
  for (size_t i = 0; i < ranks->check_count; i++)
    if (!ranks->checks[i].is_passed) print_failure(printer, ranks, &ranks->checks[i]);
  tsr__emit_space(emitter);
}

/* ---- JSON ---- */

static void emit_check(tsr__stack_printer *printer, const tsr_ranks *ranks,
                       const tsr_rank_check *check) {
  tsr__emitter *emitter = printer->emitter;
  const tsr_rank_row *row = &ranks->rows[check->row];
  bool is_spread = check->limit.rule == TSR_RANK_MAX_SPREAD;
  bool is_category = check->limit.rule == TSR_RANK_MAX_CATEGORY;
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "rule", NULL, tsr__string(tsr_rank_rule_name(check->limit.rule)));
  tsr__emit_field(emitter, "category", NULL,
                  is_category ? tsr__string(tsr_category_name(check->limit.category))
                              : tsr__nothing());
  tsr__emit_field(emitter, "passed", NULL, tsr__bool(check->is_passed));
  tsr__emit_field(emitter, "bytes", NULL, tsr__bytes(check->bytes));
  tsr__emit_field(emitter, "limit_bytes", NULL, tsr__bytes(check->limit.bytes));
  tsr__emit_field(emitter, "rank", NULL, tsr__count((uint64_t)row->rank));
  tsr__emit_field(emitter, "device", NULL, tsr__device(row->device));
  tsr__emit_field(emitter, "lowest_rank", NULL,
                  is_spread ? tsr__count((uint64_t)ranks->rows[check->low_row].rank)
                            : tsr__nothing());
  tsr__emit_field(emitter, "group", NULL, tsr__string(ranks->groups[row->group].name));
  tsr__emit_inline_array(emitter, "failed_ranks");
  for (size_t i = 0; !is_spread && i < check->failed_count; i++)
    tsr__emit_item(emitter, tsr__count((uint64_t)check->failed[i]));
  tsr__emit_end(emitter);
  tsr__emit_field(emitter, "failed", NULL, tsr__count(check->failed_count));
  tsr__buffer *words = &emitter->scratch;
  tsr__ranks_check_sentence(words, ranks, check);
  tsr__emit_field(emitter, "message", NULL, tsr__text((tsr_text){words->data, words->size}));
  words->size = 0;
  bool has_stack = check->stack != TSR_NONE;
  tsr__emit_field(emitter, "stack_bytes", NULL,
                  has_stack ? tsr__bytes(check->stack_bytes) : tsr__nothing());
  tsr__stack_emit(printer, check->stack);
  tsr__emit_end(emitter);
}

void tsr__ranks_emit_checks(tsr__stack_printer *printer, const tsr_ranks *ranks) {
  tsr__emitter *emitter = printer->emitter;
  bool is_passed = !ranks->failed_count && !ranks->doubt;
  if (tsr__emitter_is_text(emitter)) {
    print_checks(printer, ranks);
    return;
  }
  tsr__emit_field(emitter, "passed", NULL,
                  ranks->check_count ? tsr__bool(is_passed) : tsr__nothing());
  tsr__emit_field(emitter, "doubt", NULL,
                  ranks->doubt ? tsr__string(tsr_rank_doubt_name(ranks->doubt)) : tsr__nothing());
  tsr__emit_array(emitter, "checks");
  for (size_t i = 0; i < ranks->check_count; i++) emit_check(printer, ranks, &ranks->checks[i]);
  tsr__emit_end(emitter);
}
