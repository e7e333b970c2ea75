/* coverage.c - see coverage.h.
 *
 * A layout becomes a set in three steps: its dimensions are sorted by stride and neighbours that nest
 * without a gap are joined; the outermost that is left gives the period, if it spans the storage; the
 * others are walked, and give the pieces. Repeated elements (a stride of 0) count once. */
#include "graph/coverage.h"

#include <assert.h>

/* More pieces than any program of the engine's has. */
enum { MOST_PIECES = 1 << 20 };

typedef struct dims {
  uint64_t size[TSR__SHAPE_RANK], stride[TSR__SHAPE_RANK]; /* outermost first */
  uint32_t count;
} dims;

static dims dims_of(const tsr__layout *layout) {
  dims d = {.count = 0};
  for (uint32_t i = 0; i < layout->shape.rank; i++) {
    uint64_t size = layout->shape.dim[i], stride = layout->stride[i];
    if (size == 1 || stride == 0) continue;
    uint32_t at = d.count++;
    for (; at > 0 && d.stride[at - 1] < stride; at--) {
      d.size[at] = d.size[at - 1];
      d.stride[at] = d.stride[at - 1];
    }
    d.size[at] = size;
    d.stride[at] = stride;
  }
  uint32_t kept = 0; /* join from the outside in */
  for (uint32_t i = 1; i < d.count; i++) {
    if (d.stride[kept] == d.size[i] * d.stride[i]) {
      d.size[kept] *= d.size[i];
    } else {
      kept++;
      d.size[kept] = d.size[i];
    }
    d.stride[kept] = d.stride[i];
  }
  if (d.count) d.count = kept + 1;
  return d;
}

/* Append a piece that begins no earlier than the last one. */
static bool push_piece(tsr__coverage *set, uint64_t first, uint64_t end) {
  tsr__piece *last = set->pieces.count ? &set->pieces.items[set->pieces.count - 1] : NULL;
  assert(first < end && end <= set->period && (!last || last->first <= first));
  if (last && first <= last->end) {
    if (end > last->end) last->end = end;
    return true;
  }
  return set->pieces.count < MOST_PIECES &&
         TSR__VECTOR_PUSH(&set->pieces, (tsr__piece){first, end});
}

/* The pieces of dimensions from `dim` on, from `at` on. Those of strided innermost elements are one
 * element each. */
static bool walk(tsr__coverage *set, const dims *d, uint32_t dim, uint64_t at) {
  if (dim == d->count) return push_piece(set, at, at + 1);
  if (dim + 1 == d->count && d->stride[dim] == 1) return push_piece(set, at, at + d->size[dim]);
  bool ok = true;
  for (uint64_t i = 0; ok && i < d->size[dim]; i++)
    ok = walk(set, d, dim + 1, at + i * d->stride[dim]);
  return ok;
}

/* The set of a layout's elements, in an empty set. Dimensions that overlap each other are not walked in
 * order; no layout of the engine's has them. */
static bool set_of(tsr__coverage *set, const tsr__layout *layout) {
  dims d = dims_of(layout);
  assert(tsr__coverage_is_empty(set) && tsr__layout_end(*layout) <= set->elements);
  if (!tsr__shape_elements(layout->shape)) return true;
  uint64_t end = layout->offset + 1; /* of what the inner dimensions reach */
  for (uint32_t i = 1; i < d.count; i++) end += (d.size[i] - 1) * d.stride[i];
  bool spans =
      d.count && d.stride[0] > 1 && d.size[0] * d.stride[0] == set->elements && end <= d.stride[0];
  set->period = spans ? d.stride[0] : set->elements;
  return walk(set, &d, spans ? 1 : 0, layout->offset);
}

static bool copy_set(tsr__coverage *copy, const tsr__coverage *set) {
  *copy = (tsr__coverage){.elements = set->elements, .period = set->period};
  if (!TSR__VECTOR_RESERVE(&copy->pieces, set->pieces.count)) return false;
  for (size_t i = 0; i < set->pieces.count; i++) copy->pieces.items[i] = set->pieces.items[i];
  copy->pieces.count = set->pieces.count;
  return true;
}

/* Repeat the pieces up to a longer period, which the set's divides. The last of one period may join
 * the first of the next, so they are read from a copy. */
static bool lengthen(tsr__coverage *set, uint64_t period) {
  tsr__coverage once;
  assert(period % set->period == 0 && set->elements % period == 0);
  if (period == set->period) return true;
  bool ok = copy_set(&once, set);
  set->period = period;
  for (uint64_t from = once.period; ok && from < period; from += once.period)
    for (size_t i = 0; ok && i < once.pieces.count; i++)
      ok = push_piece(set, from + once.pieces.items[i].first, from + once.pieces.items[i].end);
  tsr__coverage_release(&once);
  return ok;
}

/* Bring two sets that are not empty to one period. */
static bool align(tsr__coverage *a, tsr__coverage *b) {
  uint64_t period = a->period > b->period ? a->period : b->period;
  uint64_t shorter = a->period < b->period ? a->period : b->period;
  assert(shorter);
  if (period % shorter) period = a->elements;
  return lengthen(a, period) && lengthen(b, period);
}

void tsr__coverage_release(tsr__coverage *coverage) {
  TSR__VECTOR_FREE(&coverage->pieces);
  coverage->period = 0;
}

bool tsr__coverage_is_full(const tsr__coverage *coverage) {
  const tsr__piece *piece = coverage->pieces.items;
  return coverage->pieces.count == 1 && piece->first == 0 && piece->end == coverage->period;
}

uint64_t tsr__coverage_first_gap(const tsr__coverage *coverage) {
  const tsr__piece *piece = coverage->pieces.items;
  if (tsr__coverage_is_full(coverage)) return coverage->elements;
  return coverage->pieces.count && piece->first == 0 ? piece->end : 0;
}

static bool merge(tsr__coverage *out, const tsr__coverage *a, const tsr__coverage *b) {
  size_t i = 0, j = 0;
  bool ok = true;
  while (ok && (i < a->pieces.count || j < b->pieces.count)) {
    bool takes_a = j == b->pieces.count ||
                   (i < a->pieces.count && a->pieces.items[i].first <= b->pieces.items[j].first);
    tsr__piece piece = takes_a ? a->pieces.items[i++] : b->pieces.items[j++];
    ok = push_piece(out, piece.first, piece.end);
  }
  return ok;
}

bool tsr__coverage_add(tsr__coverage *coverage, const tsr__layout *layout) {
  tsr__coverage more = {.elements = coverage->elements};
  tsr__coverage both = {.elements = coverage->elements};
  if (tsr__coverage_is_full(coverage)) return true;
  if (tsr__coverage_is_empty(coverage)) return set_of(coverage, layout);
  bool ok = set_of(&more, layout) && align(coverage, &more);
  both.period = coverage->period;
  ok = ok && merge(&both, coverage, &more);
  tsr__coverage_release(&more);
  if (!ok) {
    tsr__coverage_release(&both);
    return false;
  }
  tsr__coverage_release(coverage);
  *coverage = both;
  return true;
}

bool tsr__coverage_has(const tsr__coverage *coverage, const tsr__layout *layout, bool *has) {
  tsr__coverage wanted = {.elements = coverage->elements}, own;
  *has = tsr__coverage_is_full(coverage) || !tsr__shape_elements(layout->shape);
  if (*has || tsr__coverage_is_empty(coverage)) return true;
  bool ok = copy_set(&own, coverage) && set_of(&wanted, layout) && align(&own, &wanted);
  *has = ok;
  for (size_t i = 0, j = 0; *has && i < wanted.pieces.count; i++) {
    const tsr__piece *piece = &wanted.pieces.items[i];
    while (j < own.pieces.count && own.pieces.items[j].end < piece->end) j++;
    *has = j < own.pieces.count && own.pieces.items[j].first <= piece->first;
  }
  tsr__coverage_release(&own);
  tsr__coverage_release(&wanted);
  return ok;
}

bool tsr__coverage_overlap(uint64_t elements, const tsr__layout *a, const tsr__layout *b,
                           bool *overlaps) {
  tsr__coverage x = {.elements = elements}, y = {.elements = elements};
  *overlaps = false;
  if (!tsr__shape_elements(a->shape) || !tsr__shape_elements(b->shape)) return true;
  bool ok = set_of(&x, a) && set_of(&y, b) && align(&x, &y);
  for (size_t i = 0, j = 0; ok && !*overlaps && i < x.pieces.count && j < y.pieces.count;) {
    const tsr__piece *p = &x.pieces.items[i], *q = &y.pieces.items[j];
    if (p->end <= q->first)
      i++;
    else if (q->end <= p->first)
      j++;
    else
      *overlaps = true;
  }
  tsr__coverage_release(&x);
  tsr__coverage_release(&y);
  return ok;
}
