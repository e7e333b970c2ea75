/* sequence.c - steps from repetition, if no phase is known. See cycle.h.
 *
 * Each allocation is combined with those after it into one symbol: their stacks and sizes. Single sizes
 * repeat everywhere; eight in a row rarely do. A symbol that occurs once per step then recurs at even
 * distances, as many times as there are steps:
 *
 *   allocations  i i w w  a l l l l h  a l l l l h  a l l l l h  a l
 *   a, h         even, 3 or 4 times                l: uneven, unless there is one step only
 *
 * Symbols are grouped by how often they occur, and groups are tried from the longest distance down.
 * A group gives the steps if it covers most of the trace, if ranges between its symbols are alike,
 * if the rest after the last symbol is of the same kind, and if memory behaves accordingly: it
 * returns to its level (the layers of a model repeat too, but each leaves something allocated), and
 * the part outside frees no more than a range does (the loop of an optimizer repeats, but forward
 * and backward before it free far more).
 *
 * A step begins at the symbol of the group at which the least memory is in use, on average. */
#include <assert.h>

#include "attribution/cycle.h"
#include "base/checked.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"

enum {
  TRIES = 16,   /* groups that are examined closely, each in time linear in the trace */
  TOGETHER = 8, /* allocations in a symbol */
};

#define LIKE 0.95 /* a step like another */

/* One kind of allocation; positions count allocations, not events. */
typedef struct symbol {
  uint32_t count, first, last, shortest, longest; /* distances between one and the next */
  uint64_t
      live_sum; /* sum over its occurrences: bytes live before each, capped; to find the best start */
} symbol;

typedef TSR__VECTOR(symbol) symbols;

/* A symbol that recurs at even distances. */
typedef struct even {
  uint32_t count, period, id;
} even;

/* Symbols that occur equally often and at similar distances. */
typedef struct group {
  uint32_t count, members, anchor; /* anchor: the member that comes first */
  uint64_t period;                 /* the middle one */
} group;

typedef TSR__VECTOR(group) groups;

typedef struct finder {
  const tsr__timeline *t;
  const tsr__roles *roles;
  uint32_t count;               /* of allocations */
  uint32_t *event, *symbol_of;  /* by position */
  uint64_t *live_before, *size; /* by position: bytes */
  uint8_t *place;               /* by position: of the allocation itself in a bag */
  symbols symbols;
  groups groups;
} finder;

/* ---- Symbols ---- */

static bool note(finder *f, tsr__map *ids, uint32_t position, uint64_t key) {
  bool is_new;
  uint64_t *id = tsr__map_put(ids, key, f->symbols.count, &is_new);
  if (!id) return false;
  f->symbol_of[position] = (uint32_t)*id;
  if (is_new)
    return TSR__VECTOR_PUSH(&f->symbols, (symbol){1, position, position, UINT32_MAX, 0, 0});
  symbol *s = &f->symbols.items[*id];
  uint32_t distance = position - s->last;
  if (distance < s->shortest) s->shortest = distance;
  if (distance > s->longest) s->longest = distance;
  s->last = position;
  s->count++;
  return true;
}

/* The last allocations read, as one number: the symbol of the first of them. */
typedef struct memory_of {
  uint64_t keys[TOGETHER];
  uint32_t next;
} memory_of;

static uint64_t remember(memory_of *m, uint64_t key) {
  m->keys[m->next++ % TOGETHER] = key;
  uint64_t all = 0;
  for (uint32_t i = 0; i < TOGETHER; i++) all = tsr__mix(all, m->keys[(m->next + i) % TOGETHER]);
  return all;
}

/* Assign the symbol to the allocation with which it begins. */
static bool note_window(finder *f, tsr__map *ids, memory_of *last, uint32_t position,
                        uint64_t key) {
  uint64_t all = remember(last, key);
  return position < TOGETHER - 1 || note(f, ids, position - (TOGETHER - 1), all);
}

/* Fill positions, symbols and what is live before each. `by_size`: sizes are part of the symbol. */
static bool read_trace(finder *f, bool by_size) {
  const tsr_events *events = &f->t->events;
  tsr__map ids = {0};
  uint64_t live = 0;
  uint32_t position = 0;
  memory_of last = {0};
  bool ok = true;
  for (uint64_t e = 0; ok && e < events->count; e++) {
    uint32_t allocation = f->t->allocation_of[e];
    if (allocation == TSR_NONE) continue;
    uint64_t size = tsr__timeline_requested(f->t, allocation);
    if (f->t->birth.items[allocation] == e) {
      uint64_t key = tsr__symbol(f->roles, events, e);
      if (by_size) key = tsr__mix(key, size);
      f->event[position] = (uint32_t)e;
      f->live_before[position] = live;
      f->size[position] = size;
      f->place[position] = (uint8_t)(tsr__mix(key, 1) % TSR__BAG_PLACES);
      ok = note_window(f, &ids, &last, position++, key);
      live = tsr__sum_u64(live, size);
    } else if (f->t->death.items[allocation] == e) {
      live = tsr__drop_u64(live, size);
    }
  }
  f->count = position;
  for (uint32_t i = 0; ok && i < TOGETHER - 1 && position >= TOGETHER - 1; i++)
    ok = note_window(f, &ids, &last, position + i, UINT64_MAX); /* nothing follows */
  tsr__map_release(&ids);
  return ok;
}

/* ---- Groups ---- */

static bool is_even(const symbol *s) {
  return s->count >= 2 && s->longest <= s->shortest + s->shortest / 2;
}

static int compare_even(const void *a, const void *b) {
  const even *x = a, *y = b;
  if (x->count != y->count) return x->count < y->count ? -1 : 1;
  if (x->period != y->period) return x->period < y->period ? -1 : 1;
  return (x->id > y->id) - (x->id < y->id);
}

static int compare_groups(const void *a, const void *b) {
  const group *x = a, *y = b;
  if (x->period != y->period) return x->period < y->period ? 1 : -1;
  return (x->count > y->count) - (x->count < y->count);
}

/* Among symbols that occur equally often, by distance: the densest tenth. */
static group densest(const finder *f, const even *items, size_t count) {
  group best = {.count = items[0].count};
  size_t from = 0;
  for (size_t to = 0; to < count; to++) {
    while (items[to].period > items[from].period + items[from].period / 10) from++;
    if (to - from + 1 < best.members) continue;
    best.members = (uint32_t)(to - from + 1);
    best.period = items[from + (to - from) / 2].period;
    best.anchor = items[from].id;
    for (size_t i = from; i <= to; i++)
      if (f->symbols.items[items[i].id].first < f->symbols.items[best.anchor].first)
        best.anchor = items[i].id;
  }
  return best;
}

/* One group for each number of occurrences. */
static bool make_groups(finder *f) {
  TSR__VECTOR(even) list = {0};
  bool ok = true;
  for (uint32_t i = 0; ok && i < f->symbols.count; i++) {
    const symbol *s = &f->symbols.items[i];
    if (is_even(s))
      ok = TSR__VECTOR_PUSH(&list, (even){s->count, (s->last - s->first) / (s->count - 1), i});
  }
  tsr__sort(list.items, list.count, sizeof *list.items, compare_even);
  for (size_t i = 0, past; ok && i < list.count; i = past) {
    for (past = i; past < list.count && list.items[past].count == list.items[i].count;) past++;
    ok = TSR__VECTOR_PUSH(&f->groups, densest(f, &list.items[i], past - i));
  }
  TSR__VECTOR_FREE(&list);
  tsr__sort(f->groups.items, f->groups.count, sizeof *f->groups.items, compare_groups);
  return ok;
}

/* ---- Does a group give the steps? ---- */

/* Positions at which a symbol occurs. */
typedef TSR__VECTOR(uint32_t) positions;

static bool positions_of(const finder *f, uint32_t id, positions *out) {
  out->count = 0;
  for (uint32_t p = f->symbols.items[id].first; p <= f->symbols.items[id].last; p++)
    if (f->symbol_of[p] == id && !TSR__VECTOR_PUSH(out, p)) return false;
  return true;
}

static tsr__bag bag_of(const finder *f, uint32_t from, uint32_t to) {
  tsr__bag bag = {0};
  for (uint32_t p = from; p < to; p++) bag.place[f->place[p]]++;
  bag.count = to - from;
  return bag;
}

/* Whether most ranges are like the previous one. */
static bool are_alike(const finder *f, const positions *at) {
  double sum = 0;
  tsr__bag before = bag_of(f, at->items[0], at->items[1]);
  for (size_t i = 1; i + 1 < at->count; i++) {
    tsr__bag bag = bag_of(f, at->items[i], at->items[i + 1]);
    sum += tsr__bag_likeness(&before, &bag);
    before = bag;
  }
  return at->count < 3 || sum / (double)(at->count - 2) >= 0.6;
}

/* The rest after the last symbol: at most a step, with nothing in it that ranges lack. */
static bool ends_alike(const finder *f, const positions *at, uint64_t period) {
  assert(at->count >= 2 && at->items[at->count - 1] < f->count);
  uint32_t last = at->items[at->count - 1], unknown = 0;
  if (f->count - last > period + period / 5) return false;
  for (uint32_t p = last; p + TOGETHER <= f->count; p++) {
    const symbol *s = &f->symbols.items[f->symbol_of[p]];
    unknown += s->first >= last;
  }
  return unknown * 32 <= f->count - last;
}

/* Whether what a range leaves allocated is small compared with what it uses. The first may be
 * warm-up. */
static bool comes_back(const finder *f, const positions *at) {
  assert(at->count >= 2 && at->items[0] < at->items[at->count - 1]);
  double left = 0, used = 0;
  for (size_t i = (at->count - 1) / 2; i + 1 < at->count; i++) {
    uint64_t low = UINT64_MAX, high = 0;
    for (uint32_t p = at->items[i]; p < at->items[i + 1]; p++) {
      if (f->live_before[p] < low) low = f->live_before[p];
      if (f->live_before[p] > high) high = f->live_before[p];
    }
    uint64_t a = f->live_before[at->items[i]], b = f->live_before[at->items[i + 1]];
    left += a > b ? (double)(a - b) : (double)(b - a);
    used += (double)(high - low);
  }
  return left <= used * 0.3;
}

/* Bytes that are freed within a range. */
static double freed_in(const finder *f, uint32_t from, uint32_t to) {
  double freed = 0;
  assert(from <= to && to <= f->count);
  for (uint32_t p = from; p + 1 < to; p++) {
    uint64_t with = tsr__sum_u64(f->live_before[p], f->size[p]);
    freed += (double)tsr__drop_u64(with, f->live_before[p + 1]);
  }
  return freed;
}

/* The part outside frees no more than one and a half steps; building a model frees little. */
static bool is_most_of_it(const finder *f, const positions *at) {
  uint32_t first = at->items[0], last = at->items[at->count - 1];
  double inside = freed_in(f, first, last) / (double)(at->count - 1) * 1.5;
  return freed_in(f, 0, first) <= inside && freed_in(f, last, f->count) <= inside;
}

/* Many symbols, or a good part of them if there are only two steps; and most of the trace. */
static bool may_give_steps(const finder *f, const group *g) {
  if (g->members < 2 && f->symbols.count > 8) return false;
  if (g->count < 3 && (uint64_t)g->members * 10 < f->symbols.count) return false;
  return g->period * g->count * 2 >= (uint64_t)f->count;
}

static bool gives_steps(const finder *f, const group *g, const positions *at) {
  if (!at->items || at->count < 2) return false;
  return ends_alike(f, at, g->period) && are_alike(f, at) && comes_back(f, at) &&
         is_most_of_it(f, at);
}

/* ---- The steps ---- */

static bool is_near(const group *g, uint64_t period) {
  return period * 10 >= g->period * 9 && period * 10 <= g->period * 11;
}

/* The member of a group before which the least memory is live. */
static uint32_t best_start(finder *f, const group *g) {
  uint32_t best = g->anchor;
  assert(best < f->symbols.count);
  for (uint32_t p = 0; p < f->count; p++) {
    symbol *s = &f->symbols.items[f->symbol_of[p]];
    s->live_sum = tsr__sum_u64(s->live_sum, f->live_before[p] / s->count);
  }
  for (uint32_t i = 0; i < f->symbols.count; i++) {
    const symbol *s = &f->symbols.items[i], *b = &f->symbols.items[best];
    if (s->count != g->count || !is_even(s) || !is_near(g, (s->last - s->first) / (s->count - 1)))
      continue;
    if (s->live_sum < b->live_sum || (s->live_sum == b->live_sum && s->first < b->first)) best = i;
  }
  return best;
}

static bool add_step(tsr__cycle_steps *out, uint32_t first, uint32_t past, bool is_whole) {
  assert(!out->count || out->items[out->count - 1].last < first); /* without overlap */
  return past <= first || TSR__VECTOR_PUSH(out, (tsr__cycle_step){first, past - 1, is_whole});
}

static bool make_steps(finder *f, const group *g, positions *at, tsr__cycle_steps *out) {
  if (!positions_of(f, best_start(f, g), at)) return false;
  uint32_t end = (uint32_t)f->t->events.count;
  tsr__bag first = bag_of(f, at->items[0], at->items[1]), before = bag_of(f, 0, at->items[0]);
  if (tsr__bag_likeness(&first, &before) >= LIKE &&
      !add_step(out, f->event[0], f->event[at->items[0]], true))
    return false;
  for (size_t i = 0; i + 1 < at->count; i++)
    if (!add_step(out, f->event[at->items[i]], f->event[at->items[i + 1]], true)) return false;
  uint32_t last = at->items[at->count - 1];
  tsr__bag one = bag_of(f, at->items[at->count - 2], last), rest = bag_of(f, last, f->count);
  return add_step(out, f->event[last], end, tsr__bag_likeness(&one, &rest) >= LIKE);
}

static bool search(finder *f, bool by_size, tsr__cycle_steps *out) {
  positions at = {0};
  bool ok = read_trace(f, by_size) && make_groups(f), is_found = false;
  for (size_t i = 0, tried = 0; ok && !is_found && i < f->groups.count && tried < TRIES; i++) {
    const group *g = &f->groups.items[i];
    if (!may_give_steps(f, g)) continue;
    tried++;
    ok = positions_of(f, g->anchor, &at);
    is_found = ok && gives_steps(f, g, &at);
    if (is_found) ok = make_steps(f, g, &at, out);
  }
  TSR__VECTOR_FREE(&at);
  TSR__VECTOR_FREE(&f->symbols);
  TSR__VECTOR_FREE(&f->groups);
  return ok;
}

bool tsr__sequence_find(const tsr__timeline *timeline, const tsr__roles *roles,
                        tsr__cycle_steps *out) {
  assert(timeline->birth.count >= timeline->initial.count && !out->count);
  size_t count = timeline->birth.count - timeline->initial.count;
  finder f = {.t = timeline, .roles = roles};
  f.event = TSR__NEW_ARRAY(uint32_t, count);
  f.symbol_of = TSR__NEW_ARRAY(uint32_t, count);
  f.live_before = TSR__NEW_ARRAY(uint64_t, count);
  f.size = TSR__NEW_ARRAY(uint64_t, count);
  f.place = TSR__NEW_ARRAY(uint8_t, count);
  bool ok = f.event && f.symbol_of && f.live_before && f.size && f.place && search(&f, true, out);
  /* Batches of changing length: the sizes change, the stacks do not. */
  if (ok && !out->count) ok = search(&f, false, out);
  tsr__free(f.event);
  tsr__free(f.symbol_of);
  tsr__free(f.live_before);
  tsr__free(f.size);
  tsr__free(f.place);
  return ok;
}
