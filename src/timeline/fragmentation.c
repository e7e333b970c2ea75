/* fragmentation.c - reserved memory that holds nothing, by cause.
 *
 * The live blocks and the spans that are there, each sorted by address, are walked side by side:
 * what of a span no block covers is free. A gap in a span is one free block, since PyTorch joins
 * neighbours; spans of expandable memory that touch are one. */
#include <stdlib.h>

#include "base/checked.h"
#include "timeline/timeline.h"

/* A run of addresses. */
typedef struct run {
  uint64_t address, size_bytes;
  bool is_expandable;
  bool keeps_tails; /* no free block in it is as small as 1 MiB: see start.c */
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
    uint64_t rounded = tsr__round_request(&t->settings, requested);
    if (rounded > size) rounded = size;
    out->rounding_bytes += tsr__drop_u64(rounded, requested);
    out->unsplit_bytes += size - rounded;
    if (!TSR__VECTOR_PUSH(
            blocks, (run){.address = tsr__timeline_address(t, allocation), .size_bytes = size}))
      return false;
  }
  if (blocks->count) qsort(blocks->items, blocks->count, sizeof *blocks->items, compare_runs);
  return true;
}

static bool collect_spans(const tsr__timeline *t, int64_t event, runs *spans) {
  for (size_t i = 0; i < t->spans.count; i++) {
    const tsr__span *span = &t->spans.items[i];
    if (tsr__span_is_there(span, event) &&
        !TSR__VECTOR_PUSH(spans, (run){span->address, span->size_bytes, span->is_expandable,
                                       span->is_large && !span->is_expandable}))
      return false;
  }
  if (!spans->count) return true;
  qsort(spans->items, spans->count, sizeof *spans->items, compare_runs);
  size_t kept = 0;
  for (size_t i = 1; i < spans->count; i++) {
    run *last = &spans->items[kept], *next = &spans->items[i];
    if (last->is_expandable && next->is_expandable &&
        last->address + last->size_bytes == next->address)
      last->size_bytes += next->size_bytes;
    else
      spans->items[++kept] = *next;
  }
  spans->count = kept + 1;
  return true;
}

/* What lies between blocks, or behind the last; a small rest behind a block belongs to it. */
static void add_gap(const run *span, uint64_t begin, uint64_t bytes, tsr_fragmentation *out) {
  if (span->keeps_tails && begin > span->address && bytes <= TSR__SMALL_MAX) {
    out->unsplit_bytes += bytes;
    return;
  }
  out->free_block_bytes = tsr__sum_u64(out->free_block_bytes, bytes);
  if (bytes > out->largest_free_bytes) out->largest_free_bytes = bytes;
}

/* The free parts of one span; `*next` is the first block not before it. */
static void walk_span(const run *span, const runs *blocks, size_t *next, tsr_fragmentation *out) {
  uint64_t at = span->address, end = span->address + span->size_bytes;
  bool is_used = false;
  while (*next < blocks->count && blocks->items[*next].address < at) ++*next;
  for (; *next < blocks->count && blocks->items[*next].address < end; ++*next) {
    const run *block = &blocks->items[*next];
    is_used = true;
    if (block->address > at) add_gap(span, at, block->address - at, out);
    uint64_t block_end = tsr__sum_u64(block->address, block->size_bytes);
    if (block_end > at) at = block_end < end ? block_end : end;
  }
  if (is_used) {
    if (end > at) add_gap(span, at, end - at, out);
    return;
  }
  out->free_segment_bytes = tsr__sum_u64(out->free_segment_bytes, span->size_bytes);
  if (span->size_bytes > out->largest_free_bytes) out->largest_free_bytes = span->size_bytes;
}

int tsr__timeline_fragmentation(const tsr__timeline *timeline, int64_t event,
                                const tsr__live_set *live, tsr_fragmentation *out,
                                tsr_error *error) {
  runs blocks = {0}, spans = {0};
  tsr_fragmentation result = {0};
  bool ok =
      collect_blocks(timeline, live, &blocks, &result) && collect_spans(timeline, event, &spans);
  size_t next = 0;
  for (size_t i = 0; ok && i < spans.count; i++)
    walk_span(&spans.items[i], &blocks, &next, &result);
  tsr_totals totals = tsr__timeline_totals(timeline, event, live);
  result.waiting_bytes = tsr__drop_u64(totals.active_bytes, totals.allocated_bytes);
  TSR__VECTOR_FREE(&blocks);
  TSR__VECTOR_FREE(&spans);
  if (!ok) return tsr__fail_memory(error);
  *out = result;
  return 0;
}
