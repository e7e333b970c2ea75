/* bands.c - a linked list of bands under a union-find forest. See bands.h.
 *
 *   list    bottom <-> band <-> band <-> top         only roots are in it
 *   forest  a band that merged into another points to it (`parent`); a ticket is the band that
 *           the allocation joined, and its root is the band to which it belongs now
 *   parts   the members of a root's tree, itself first, in a chain (next_part .. last_part)
 *
 * Looking a root up halves the path on the way, which makes it O(log bands) on average. When a root
 * has no allocation left, no ticket of its tree is in use any more: the whole chain goes to the
 * spares at once, and new bands are made of those. So memory does not grow with the trace. */
#include "questions/profile/bands.h"

#include <assert.h>

#include "base/checked.h"

static uint32_t find_root(tsr__bands *bands, uint32_t band) {
  tsr__band *items = bands->items.items;
  assert(band < bands->items.count);
  while (items[band].parent != band) {
    items[band].parent = items[items[band].parent].parent;
    band = items[band].parent;
  }
  return band;
}

static uint32_t new_band(tsr__bands *bands) {
  uint32_t band = bands->spare;
  if (band != TSR_NONE) {
    bands->spare = bands->items.items[band].next_part;
    return band;
  }
  band = (uint32_t)bands->items.count;
  return band < TSR_NONE - 1 && TSR__VECTOR_PUSH(&bands->items, (tsr__band){0}) ? band : TSR_NONE;
}

uint32_t tsr__bands_take(tsr__bands *bands, uint32_t group, uint64_t bytes, int64_t event) {
  uint32_t band = bands->top;
  if (band == TSR_NONE || bands->items.items[band].group != group) {
    band = new_band(bands);
    if (band == TSR_NONE) return TSR_NONE;
    bands->items.items[band] = (tsr__band){.group = group,
                                           .below = bands->top,
                                           .above = TSR_NONE,
                                           .mark = TSR_NONE,
                                           .birth_event = event,
                                           .parent = band,
                                           .next_part = TSR_NONE,
                                           .last_part = band};
    if (bands->top == TSR_NONE)
      bands->bottom = band;
    else
      bands->items.items[bands->top].above = band;
    bands->top = band;
  }
  tsr__band *b = &bands->items.items[band];
  b->bytes = tsr__sum_u64(b->bytes, bytes);
  b->allocations++;
  if (b->bytes > b->peak_bytes) b->peak_bytes = b->bytes;
  return band;
}

static void say_end(tsr__bands *bands, const tsr__band *band, int64_t event) {
  if (bands->on_end) bands->on_end(bands->context, band, event);
}

static void unlink_band(tsr__bands *bands, uint32_t band) {
  tsr__band *items = bands->items.items;
  uint32_t below = items[band].below, above = items[band].above;
  if (below == TSR_NONE)
    bands->bottom = above;
  else
    items[below].above = above;
  if (above == TSR_NONE)
    bands->top = below;
  else
    items[above].below = below;
}

/* Merge the upper neighbour into the lower one. */
static void merge(tsr__bands *bands, uint32_t lower, uint32_t upper, int64_t event) {
  tsr__band *into = &bands->items.items[lower], *part = &bands->items.items[upper];
  assert(into->group == part->group && into->above == upper && part->below == lower);
  say_end(bands, part, event);
  unlink_band(bands, upper);
  into->bytes = tsr__sum_u64(into->bytes, part->bytes);
  into->allocations += part->allocations;
  if (into->bytes > into->peak_bytes) into->peak_bytes = into->bytes;
  part->parent = lower;
  bands->items.items[into->last_part].next_part = upper;
  into->last_part = part->last_part;
}

static void end_band(tsr__bands *bands, uint32_t band, int64_t event) {
  tsr__band *ended = &bands->items.items[band];
  uint32_t below = ended->below, above = ended->above;
  assert(!ended->bytes && !ended->allocations);
  say_end(bands, ended, event);
  unlink_band(bands, band);
  bands->items.items[ended->last_part].next_part = bands->spare;
  bands->spare = band;
  if (below != TSR_NONE && above != TSR_NONE &&
      bands->items.items[below].group == bands->items.items[above].group)
    merge(bands, below, above, event);
}

void tsr__bands_free(tsr__bands *bands, uint32_t ticket, uint64_t bytes, int64_t event) {
  uint32_t band = find_root(bands, ticket);
  tsr__band *b = &bands->items.items[band];
  assert(b->allocations && b->parent == band);
  b->bytes = tsr__drop_u64(b->bytes, bytes);
  if (--b->allocations == 0) end_band(bands, band, event);
}

void tsr__bands_release(tsr__bands *bands) {
  TSR__VECTOR_FREE(&bands->items);
  *bands = TSR__BANDS_EMPTY;
}
