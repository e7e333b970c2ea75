/* fragmentation.c - reserved memory that holds nothing, by cause.
 *
 * The live blocks and the spans that are there, each sorted by address, are walked side by side:
 * what of a span no block covers is free. A gap in a span is one free block, since PyTorch joins
 * neighbours. */

#include "base/checked.h"
#include "base/sort.h"
#include "timeline/timeline.h"

/* A run of addresses. */
typedef struct run {
  uint64_t address, size_bytes;
  const tsr__span *span; /* NULL for a block */
} run;

typedef TSR__VECTOR(run) runs;

static int compare_runs(const void *a, const void *b) {
  const run *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

/* The live blocks as runs; what they hold beyond requests goes to `out`. */
static bool collect_blocks(const tsr__timeline *t, const tsr__live_set *live, runs *blocks,
                           tsr_fragmentation *out) {
  for (size_t i = 0; i < live->count; i++) {
    uint32_t allocation = live->items[i];
    uint64_t requested = tsr__timeline_requested(t, allocation);
    uint64_t size = t->block_bytes.items[allocation];
    uint64_t rounded = tsr__timeline_round(t, requested);
    if (rounded > size || t->host_round_max_bytes) rounded = size;
    out->rounding_bytes += tsr__drop_u64(rounded, requested);
    out->unsplit_bytes += size - rounded;
    if (!TSR__VECTOR_PUSH(
            blocks, (run){.address = tsr__timeline_address(t, allocation), .size_bytes = size}))
      return false;
  }
  tsr__sort(blocks->items, blocks->count, sizeof *blocks->items, compare_runs);
  return true;
}

static bool collect_spans(const tsr__timeline *t, int64_t event, runs *spans) {
  for (size_t i = 0; i < t->spans.count; i++) {
    const tsr__span *span = &t->spans.items[i];
    if (tsr__span_is_there(span, event) &&
        !TSR__VECTOR_PUSH(spans, (run){span->address, span->size_bytes, span}))
      return false;
  }
  tsr__sort(spans->items, spans->count, sizeof *spans->items, compare_runs);
  return true;
}

/* Where a walk reports what it finds. */
typedef struct walk {
  tsr_fragmentation parts;
  tsr__gap_fn *gap; /* or NULL */
  void *context;
} walk;

static void found(walk *w, const run *span, uint64_t begin, uint64_t bytes, bool is_whole) {
  uint64_t *sum = is_whole ? &w->parts.free_segment_bytes : &w->parts.free_block_bytes;
  *sum = tsr__sum_u64(*sum, bytes);
  if (bytes > w->parts.largest_free_bytes) w->parts.largest_free_bytes = bytes;
  if (w->gap) w->gap(w->context, &(tsr__gap){begin, bytes, span->span, is_whole});
}

/* What is between blocks, or after the last. In a plain segment of the large pool no free block is
 * as small as 1 MiB (see start.c): a small rest after a block belongs to it. */
static void add_gap(walk *w, const run *span, uint64_t begin, uint64_t bytes) {
  bool keeps_tails = span->span->is_large && !span->span->is_expandable;
  if (keeps_tails && begin > span->address && bytes <= TSR__SMALL_MAX)
    w->parts.unsplit_bytes += bytes;
  else
    found(w, span, begin, bytes, false);
}

/* The free parts of one span; `*next` is the first block not before it. */
static void walk_span(walk *w, const run *span, const runs *blocks, size_t *next) {
  uint64_t at = span->address, end = span->address + span->size_bytes;
  bool is_used = false;
  while (*next < blocks->count && blocks->items[*next].address < at) ++*next;
  for (; *next < blocks->count && blocks->items[*next].address < end; ++*next) {
    const run *block = &blocks->items[*next];
    is_used = true;
    if (block->address > at) add_gap(w, span, at, block->address - at);
    uint64_t block_end = tsr__sum_u64(block->address, block->size_bytes);
    if (block_end > at) at = block_end < end ? block_end : end;
  }
  if (!is_used)
    found(w, span, span->address, span->size_bytes, true);
  else if (end > at)
    add_gap(w, span, at, end - at);
}

int tsr__timeline_gaps(const tsr__timeline *timeline, int64_t event, const tsr__live_set *live,
                       tsr__gap_fn *gap, void *context, tsr_fragmentation *out, tsr_error *error) {
  runs blocks = {0}, spans = {0};
  walk w = {.gap = gap, .context = context};
  bool ok =
      collect_blocks(timeline, live, &blocks, &w.parts) && collect_spans(timeline, event, &spans);
  size_t next = 0;
  for (size_t i = 0; ok && i < spans.count; i++) walk_span(&w, &spans.items[i], &blocks, &next);
  tsr_totals totals = tsr__timeline_totals(timeline, event, live);
  w.parts.waiting_bytes = tsr__drop_u64(totals.active_bytes, totals.allocated_bytes);
  TSR__VECTOR_FREE(&blocks);
  TSR__VECTOR_FREE(&spans);
  if (!ok) return tsr__fail_memory(error);
  *out = w.parts;
  return 0;
}

int tsr__timeline_fragmentation(const tsr__timeline *timeline, int64_t event,
                                const tsr__live_set *live, tsr_fragmentation *out,
                                tsr_error *error) {
  return tsr__timeline_gaps(timeline, event, live, NULL, NULL, out, error);
}
