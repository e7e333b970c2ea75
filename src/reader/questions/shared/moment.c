/* moment.c - the state at one moment, as text or JSON: see moment.h.
 *
 * JSON has each stack complete, in one object. Text has two parts: one row per stack, to compare
 * them, then each stack in full, numbered like its row. */
#include "questions/shared/moment.h"

#include <assert.h>
#include <inttypes.h>

#include "base/checked.h"
#include "base/format.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/shared/categories.h"
#include "questions/shared/names.h"
#include "questions/shared/stack_tree.h"

void tsr__emit_totals(tsr__emitter *emitter, const char *key, const tsr_totals *totals) {
  tsr__emit_object(emitter, key);
  tsr__emit_field(emitter, "requested_bytes", NULL, tsr__bytes(totals->requested_bytes));
  tsr__emit_field(emitter, "allocated_bytes", NULL, tsr__bytes(totals->allocated_bytes));
  tsr__emit_field(emitter, "active_bytes", NULL, tsr__bytes(totals->active_bytes));
  tsr__emit_field(emitter, "reserved_bytes", NULL, tsr__bytes(totals->reserved_bytes));
  tsr__emit_end(emitter);
}

void tsr__emit_loss(tsr__emitter *emitter, bool is_partial) {
  if (is_partial && tsr__emitter_is_text(emitter))
    tsr__emit_printf(
        emitter, TSR__PLAIN,
        "  A part of the file is missing or damaged, so these figures are approximate.");
}

void tsr__say_no_history(tsr__buffer *out, uint64_t event_count) {
  char count[TSR__FORMAT_BYTES];
  if (!event_count)
    tsr__buffer_text(out, "no events were recorded");
  else
    tsr__buffer_printf(out, "no history was recorded, only %s event%s",
                       tsr__format_count(event_count, count), tsr__plural(event_count));
}

void tsr__say_held(tsr__buffer *out, const tsr_totals *totals) {
  char allocated[TSR__FORMAT_BYTES], reserved[TSR__FORMAT_BYTES];
  bool is_less = totals->reserved_bytes < totals->allocated_bytes;
  if (!totals->reserved_bytes &&
      totals->allocated_bytes) { /* a file without segments and without totals of them */
    tsr__buffer_printf(out, "%s allocated", tsr__format_size(totals->allocated_bytes, allocated));
    return;
  }
  tsr__buffer_printf(
      out, is_less ? "%s allocated (only %s of segments known)" : "%s allocated of %s reserved",
      tsr__format_size(totals->allocated_bytes, allocated),
      tsr__format_size(totals->reserved_bytes, reserved));
}

/* In text, parts that are 0 are omitted. */
static void emit_part(tsr__emitter *emitter, const char *key, const char *title, uint64_t bytes) {
  tsr__emit_field(emitter, key, bytes ? title : NULL, tsr__bytes(bytes));
}

void tsr__emit_fragmentation(tsr__emitter *emitter, const tsr_fragmentation *fragmentation) {
  tsr__emit_object(emitter, "fragmentation");
  emit_part(emitter, "rounding_bytes", "lost to rounding", fragmentation->rounding_bytes);
  emit_part(emitter, "unsplit_bytes", "lost to unsplit tails", fragmentation->unsplit_bytes);
  emit_part(emitter, "waiting_bytes", "waiting for another stream", fragmentation->waiting_bytes);
  emit_part(emitter, "free_block_bytes", "free, in segments in use",
            fragmentation->free_block_bytes);
  emit_part(emitter, "free_segment_bytes", "free, whole segments",
            fragmentation->free_segment_bytes);
  emit_part(emitter, "largest_free_bytes", "largest free block", fragmentation->largest_free_bytes);
  tsr__emit_end(emitter);
  tsr__emit_space(emitter);
}

/* ---- Private pools ---- */

/* Graphs may be captured one pool each: text shows the largest few and sums up the rest. */
enum { MOST_POOLS = 8 };

static bool is_same_pool(const tsr_private_pool *a, const tsr_private_pool *b) {
  return a->pool.first == b->pool.first && a->pool.second == b->pool.second;
}

/* "private pool (0, 1)", with its stream if the pool has memory of several. Pools are sorted. */
static void print_pool(tsr__emitter *emitter, const tsr_private_pool *pools, size_t count,
                       size_t i) {
  char in_use[TSR__FORMAT_BYTES], kept[TSR__FORMAT_BYTES], most[TSR__FORMAT_BYTES];
  const tsr_private_pool *pool = &pools[i];
  bool has_siblings =
      (i && is_same_pool(pool, pool - 1)) || (i + 1 < count && is_same_pool(pool, pool + 1));
  tsr__buffer *out = &emitter->scratch;
  tsr__buffer_printf(out, "private pool (%" PRIu64 ", %" PRIu64 ")", pool->pool.first,
                     pool->pool.second);
  if (has_siblings) tsr__buffer_printf(out, ", stream 0x%" PRIx64, pool->stream);
  tsr__buffer_printf(out, ": %s in use of %s that it keeps",
                     tsr__format_size(pool->active_bytes, in_use),
                     tsr__format_size(pool->reserved_bytes, kept));
  if (pool->high_water_bytes > pool->reserved_bytes)
    tsr__buffer_printf(out, ", %s at its highest", tsr__format_size(pool->high_water_bytes, most));
  tsr__emit_paragraph(emitter, TSR__PLAIN, 2);
}

/* The largest, largest first; of equal ones the first. Returns how many, at most MOST_POOLS. */
static size_t find_largest(const tsr_private_pool *pools, size_t count, size_t order[MOST_POOLS]) {
  size_t found = 0;
  for (size_t i = 0; i < count; i++) {
    size_t at = found;
    while (at && pools[order[at - 1]].reserved_bytes < pools[i].reserved_bytes) at--;
    if (at == MOST_POOLS) continue;
    if (found < MOST_POOLS) found++;
    for (size_t k = found - 1; k > at; k--) order[k] = order[k - 1];
    order[at] = i;
  }
  for (size_t k = 1; k < found; k++)
    assert(pools[order[k - 1]].reserved_bytes >= pools[order[k]].reserved_bytes);
  return found;
}

static void print_pools(tsr__emitter *emitter, const tsr_private_pool *pools, size_t count) {
  char number[TSR__FORMAT_BYTES], in_use[TSR__FORMAT_BYTES], kept[TSR__FORMAT_BYTES];
  size_t order[MOST_POOLS], shown = find_largest(pools, count, order);
  uint64_t active_bytes = 0, reserved_bytes = 0;
  for (size_t i = 0; i < count; i++) {
    active_bytes = tsr__sum_u64(active_bytes, pools[i].active_bytes);
    reserved_bytes = tsr__sum_u64(reserved_bytes, pools[i].reserved_bytes);
  }
  for (size_t i = 0; i < shown; i++) {
    active_bytes = tsr__drop_u64(active_bytes, pools[order[i]].active_bytes);
    reserved_bytes = tsr__drop_u64(reserved_bytes, pools[order[i]].reserved_bytes);
    print_pool(emitter, pools, count, order[i]);
  }
  if (shown == count) return;
  tsr__buffer_printf(
      &emitter->scratch, "... and %s more private pool%s: %s in use of %s that they keep",
      tsr__format_count(count - shown, number), tsr__plural(count - shown),
      tsr__format_size(active_bytes, in_use), tsr__format_size(reserved_bytes, kept));
  tsr__emit_line(emitter, TSR__DIM, 2);
}

void tsr__emit_private_pools(tsr__emitter *emitter, const tsr_private_pool *pools, size_t count) {
  if (tsr__emitter_is_text(emitter)) {
    if (count) print_pools(emitter, pools, count);
    if (count) tsr__emit_space(emitter);
    return;
  }
  tsr__emit_array(emitter, "private_pools");
  for (size_t i = 0; i < count; i++) {
    tsr__emit_inline_object(emitter, NULL);
    tsr__emit_inline_array(emitter, "pool");
    tsr__emit_item(emitter, tsr__count(pools[i].pool.first));
    tsr__emit_item(emitter, tsr__count(pools[i].pool.second));
    tsr__emit_end(emitter);
    tsr__emit_field(emitter, "stream", NULL, tsr__count(pools[i].stream));
    tsr__emit_field(emitter, "active_bytes", NULL, tsr__bytes(pools[i].active_bytes));
    tsr__emit_field(emitter, "reserved_bytes", NULL, tsr__bytes(pools[i].reserved_bytes));
    tsr__emit_field(emitter, "high_water_bytes", NULL, tsr__bytes(pools[i].high_water_bytes));
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
}

/* ---- Stacks ---- */

uint64_t tsr__whole_of(const tsr_totals *totals) {
  return totals->allocated_bytes > totals->requested_bytes ? totals->allocated_bytes
                                                           : totals->requested_bytes;
}

static bool is_older(const tsr__share_list *shares, const tsr_stack_share *share) {
  return share->stack == TSR_NONE && share->older_allocations && shares->has_history;
}

tsr_text tsr__share_name(const tsr__share_list *shares, const tsr__row_names *names, size_t i) {
  const tsr_stack_share *share = &shares->items[i];
  if (is_older(shares, share)) return tsr__text_of(TSR__LABEL_BEFORE);
  return share->stack == TSR_NONE ? tsr__text_of("(no stack recorded)") : tsr__stack_name(names, i);
}

static void emit_stack(tsr__stack_printer *printer, const tsr__share_list *shares,
                       const tsr__row_names *names, size_t i) {
  tsr__emitter *emitter = printer->emitter;
  const tsr_stack_share *share = &shares->items[i];
  tsr__buffer *kind = &emitter->scratch;
  if (tsr__emitter_is_text(emitter))
    tsr__append_category(kind, share);
  else
    tsr__buffer_text(kind, tsr_category_name(share->category));
  size_t kind_bytes = kind->size;
  tsr_text name =
      tsr__with_names(emitter, tsr__share_name(shares, names, i), shares->names, &share->names);
  tsr__emit_row(emitter, (tsr__cell[]){
                             tsr__count(i + 1),
                             tsr__percent(share->bytes, shares->whole_bytes),
                             tsr__bytes(share->bytes),
                             tsr__count(share->allocations),
                             tsr__bytes(share->allocations ? share->bytes / share->allocations : 0),
                             tsr__text((tsr_text){kind->data, kind_bytes}),
                             tsr__text(name),
                         });
  kind->size = 0;
  tsr__emit_categories(emitter, share);
  tsr__emit_names(emitter, shares->names, &share->names);
  if (share->stack == TSR_NONE && !tsr__emitter_is_text(emitter))
    tsr__emit_field(emitter, "before_recording", NULL, tsr__bool(is_older(shares, share)));
  tsr__stack_emit(printer, share->stack);
  tsr__emit_row_end(emitter);
}

static void emit_table(tsr__stack_printer *printer, const tsr__share_list *shares) {
  const tsr__column columns[] = {
      {NULL, "#", TSR__RIGHT},
      {NULL, "share", TSR__RIGHT},
      {"bytes", "bytes", TSR__RIGHT},
      {"allocations", "count", TSR__RIGHT},
      {NULL, printer->emitter->options.verbose ? "average" : NULL, TSR__RIGHT},
      {"category", "category", TSR__CATEGORY},
      {NULL, "allocated at", TSR__ELASTIC},
  };
  tsr__row_names names;
  TSR__STACK_NAMES(printer, tsr_stack_share, shares->items, shares->count, &names);
  tsr__emit_table(printer->emitter, "stacks", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < shares->count; i++) emit_stack(printer, shares, &names, i);
  tsr__emit_table_end(printer->emitter);
  tsr__row_names_release(&names);
}

static void emit_omitted(tsr__emitter *emitter, const tsr__share_list *shares) {
  tsr__emit_field(emitter, "omitted_stacks", NULL, tsr__count(shares->omitted_stacks));
  tsr__emit_field(emitter, "omitted_bytes", NULL, tsr__bytes(shares->omitted_bytes));
  if (!shares->omitted_stacks || !tsr__emitter_is_text(emitter)) return;
  char count[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES];
  tsr__buffer_printf(&emitter->scratch, "... and %s more stack%s, %s (--top 0 shows all)",
                     tsr__format_count(shares->omitted_stacks, count),
                     tsr__plural(shares->omitted_stacks),
                     tsr__format_size(shares->omitted_bytes, size));
  tsr__emit_line(emitter, TSR__DIM, 2);
}

void tsr__emit_shares(tsr__stack_printer *printer, const tsr__share_list *shares) {
  emit_table(printer, shares);
  emit_omitted(printer->emitter, shares);
}

static bool is_mixed(const tsr_stack_share *share) {
  return share->category_bytes[share->category] != share->bytes;
}

/* ---- One screen ---- */

enum { ROWS_BY_DEFAULT = 10 };

tsr_report_options tsr__screen_options(const tsr_report_options *options) {
  tsr_report_options screen = options ? *options : (tsr_report_options){0};
  bool is_whole = screen.verbose || screen.full_stacks;
  if (!is_whole && (!screen.width || screen.width > TSR__SCREEN_COLUMNS))
    screen.width = TSR__SCREEN_COLUMNS;
  return screen;
}

size_t tsr__screen_lines(const tsr__share_list *shares, size_t pool_count,
                         const tsr_fragmentation *fragmentation) {
  enum { VERDICT = 2, FACTS = 6, HEADER = 1, SPACES = 3 };
  const uint64_t parts[] = {fragmentation->rounding_bytes,     fragmentation->unsplit_bytes,
                            fragmentation->waiting_bytes,      fragmentation->free_block_bytes,
                            fragmentation->free_segment_bytes, fragmentation->largest_free_bytes};
  size_t lines = VERDICT + FACTS + HEADER + SPACES + shares->count + (shares->omitted_stacks != 0);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) lines -= parts[i] == 0;
  lines++; /* the moment's time */
  if (pool_count) lines += (pool_count < MOST_POOLS ? pool_count : MOST_POOLS + 1) + 1;
  return lines;
}

void tsr__screen_add_warnings(tsr__screen *screen, size_t count) {
  enum { WARNING = 2 };
  screen->warning_lines += count ? WARNING * count + 1 : 0;
}

void tsr__screen_add(tsr__screen *screen, const tsr__share_list *shares, size_t lines) {
  screen->fixed_lines += lines;
  screen->devices++;
  screen->is_long |= shares->count > ROWS_BY_DEFAULT;
}

size_t tsr__screen_take(tsr__screen *screen, size_t lines, size_t printed) {
  assert(screen->devices && lines <= screen->fixed_lines);
  screen->fixed_lines -= lines;
  size_t taken = printed + screen->warning_lines + screen->fixed_lines, devices = screen->devices--;
  if (screen->is_long) return 0;
  size_t left = taken < TSR__SCREEN_LINES ? (TSR__SCREEN_LINES - taken) / devices : 0;
  return left ? left : 1;
}

/* ---- Each stack in full ---- */

/* For memory without a stack the row is enough, unless it has several categories. */
static void print_each(tsr__stack_printer *printer, const tsr__share_list *shares) {
  char rank[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES];
  tsr__emitter *emitter = printer->emitter;
  for (size_t i = 0; i < shares->count; i++) {
    const tsr_stack_share *share = &shares->items[i];
    bool has_stack =
        share->stack != TSR_NONE && tsr_snapshot_stack(printer->snapshot, share->stack).depth;
    if (!has_stack && !is_mixed(share) && !emitter->options.verbose) continue;
    tsr__emit_space(emitter);
    tsr__buffer_printf(&emitter->scratch, "#%s  %s in %s allocation%s%s ",
                       tsr__format_count(i + 1, rank), tsr__format_size(share->bytes, size),
                       tsr__format_count(share->allocations, count),
                       tsr__plural(share->allocations), is_mixed(share) ? ":" : ",");
    tsr__append_categories(&emitter->scratch, share);
    tsr__emit_line(emitter, TSR__BOLD, 0);
    if (emitter->options.verbose) {
      if (is_mixed(share))
        tsr__buffer_printf(&emitter->scratch, "%s: ", tsr_category_name(share->category));
      tsr__append_reason(&emitter->scratch, share->evidence);
      tsr__emit_line(emitter, TSR__DIM, 2);
      tsr__print_names(emitter, shares->names, &share->names);
    }
    if (has_stack) tsr__stack_print(printer, share->stack);
  }
}

/* ---- The stacks together ---- */

enum { MIXED_HEADER = 2 };

static size_t count_mixed(const tsr__share_list *shares) {
  size_t mixed = 0;
  for (size_t i = 0; i < shares->count; i++) mixed += is_mixed(&shares->items[i]);
  return mixed;
}

/* The lines that what rows of several categories hold takes, of `most_lines`, 0 for no limit: all that it needs if that
 * leaves half of them to the stacks, and room for one row in any case. The table of rows only counts these categories. */
static size_t mixed_lines(const tsr__share_list *shares, size_t most_lines) {
  size_t mixed = count_mixed(shares), needed = mixed ? mixed + MIXED_HEADER : 0;
  size_t least = mixed == 1 ? MIXED_HEADER + 1 : MIXED_HEADER + 2;
  if (!most_lines || needed <= most_lines / 2 || needed <= least) return needed;
  return most_lines / 2 > least ? most_lines / 2 : least;
}

/* What the rows of several categories hold, in at most `most_lines` lines. The last one says how to see those that have
 * no room. */
static void print_mixed(tsr__emitter *emitter, const tsr__share_list *shares, size_t most_lines) {
  const tsr__column columns[] = {{NULL, "#", TSR__RIGHT}, {NULL, "categories", TSR__ELASTIC}};
  size_t all = count_mixed(shares), mixed = all;
  tsr__buffer *text = &emitter->scratch;
  if (mixed + MIXED_HEADER > most_lines)
    mixed = most_lines > MIXED_HEADER + 1 ? most_lines - MIXED_HEADER - 1 : 0;
  bool is_cut = mixed < all;
  if (!mixed) return;
  tsr__emit_space(emitter);
  tsr__emit_table(emitter, NULL, columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < shares->count && mixed; i++) {
    if (!is_mixed(&shares->items[i])) continue;
    tsr__append_categories(text, &shares->items[i]);
    tsr__emit_row(emitter,
                  (tsr__cell[]){tsr__count(i + 1), tsr__text((tsr_text){text->data, text->size})});
    tsr__emit_row_end(emitter);
    text->size = 0;
    mixed--;
  }
  assert(!mixed);
  tsr__emit_table_end(emitter);
  if (is_cut) tsr__emit_printf(emitter, TSR__DIM, "  -v shows those of the other rows.");
}

void tsr__print_shares(tsr__stack_printer *printer, const tsr__share_list *shares,
                       size_t most_lines) {
  tsr__emitter *emitter = printer->emitter;
  if (!tsr__emitter_is_text(emitter)) return;
  if (emitter->options.verbose || emitter->options.full_stacks) {
    print_each(printer, shares);
    return;
  }
  size_t mixed = mixed_lines(shares, most_lines), lines = 0;
  if (!most_lines || most_lines > mixed)
    lines = tsr__print_stack_tree(printer, shares, most_lines ? most_lines - mixed : 0);
  print_mixed(emitter, shares, most_lines > lines + mixed ? most_lines - lines : mixed);
}
