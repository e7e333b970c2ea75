/* placed.c - see placed.h.
 *
 * A time is the index of an instruction on the circle: the odd step's indices start at 0, the even step's at the
 * length of the schedule. A slot lives from its NEW up to its DROP; a slot that a later instruction makes may use the
 * same bytes. Invariant of the search: `placed` ascends by offset. */
#include "exec/placed.h"

#include <string.h>

#include "base/memory.h"
#include "base/sort.h"

#define ALIGNMENT UINT64_C(512)

/* A slot in odd or even steps. */
typedef struct item {
  uint32_t slot;
  bool is_odd;
  bool is_permanent;
  uint32_t begin, end; /* its lifetime on the circle; end <= begin: it goes around */
  uint64_t bytes, offset;
} item;

typedef TSR__VECTOR(item) items;

typedef struct life {
  uint32_t made, gone; /* instructions; TSR_NONE */
  uint32_t count;      /* of instructions that make it */
  bool is_permanent;
} life;

static uint64_t rounded(uint64_t bytes) {
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* ---- lives ---- */

static life *find_lives(const tsr__schedule *schedule) {
  life *lives = TSR__NEW_ARRAY(life, schedule->slots.count);
  if (!lives) return NULL;
  for (size_t i = 0; i < schedule->slots.count; i++)
    lives[i] = (life){
        .made = TSR_NONE, .gone = TSR_NONE, .is_permanent = schedule->slots.items[i].is_static};
  for (size_t i = 0; i < schedule->instrs.count; i++) {
    const tsr__instr *instr = &schedule->instrs.items[i];
    life *l = instr->kind <= TSR__INSTR_DROP_PREV ? &lives[instr->subject] : NULL;
    switch ((tsr__instr_kind)instr->kind) {
    case TSR__INSTR_NEW:
      l->made = (uint32_t)i;
      l->count++;
      break;
    case TSR__INSTR_NEW_ONCE: l->is_permanent = true; break;
    case TSR__INSTR_DROP:
    case TSR__INSTR_DROP_PREV: l->gone = (uint32_t)i; break;
    default: break;
    }
  }
  return lives;
}

static bool list_items(const tsr__schedule *schedule, const life *lives, items *out) {
  uint32_t length = (uint32_t)schedule->instrs.count;
  assert(!schedule->has_leaks);
  for (size_t i = 1; i < schedule->slots.count; i++) {
    const tsr__slot *slot = &schedule->slots.items[i];
    life l = lives[i];
    item one = {.slot = (uint32_t)i, .bytes = rounded(slot->bytes)};
    bool is_elsewhere = slot->space != TSR__SPACE_DEVICE;
    if (!slot->bytes || is_elsewhere || (!l.is_permanent && l.made == TSR_NONE)) continue;
    /* Made twice in a step, or never dropped: treated as if it existed all the time. */
    one.is_permanent = l.is_permanent || l.count != 1 || l.gone == TSR_NONE;
    for (int odd = 1; odd >= (one.is_permanent ? 1 : 0); odd--) {
      uint32_t here = odd ? 0 : length, next = odd ? length : 0;
      one.is_odd = odd;
      one.begin = here + l.made;
      one.end = (slot->is_carried ? next : here) + l.gone;
      assert(one.is_permanent || slot->is_carried || one.begin < one.end);
      if (!TSR__VECTOR_PUSH(out, one)) return false;
    }
  }
  return true;
}

/* ---- the bound ---- */

static bool find_bound(const items *all, uint32_t circle, uint64_t *bound) {
  uint64_t *begins = TSR__NEW_ARRAY(uint64_t, (size_t)circle + 1);
  uint64_t *ends = TSR__NEW_ARRAY(uint64_t, (size_t)circle + 1);
  bool ok = begins && ends;
  uint64_t live = 0;
  for (size_t i = 0; ok && i < all->count; i++) {
    const item *a = &all->items[i];
    if (a->is_permanent || a->end <= a->begin) live += a->bytes; /* exists at time 0 */
    if (a->is_permanent) continue;
    begins[a->begin] += a->bytes;
    ends[a->end] += a->bytes;
  }
  *bound = live;
  for (uint32_t i = 0; ok && i < circle; i++) {
    assert(live >= ends[i]);
    live = live - ends[i] + begins[i];
    if (live > *bound) *bound = live;
  }
  tsr__free(begins);
  tsr__free(ends);
  return ok;
}

/* ---- places ---- */

/* Lifetimes that go around the circle count as the longest. */
static uint32_t span_of(const item *a) {
  return a->end > a->begin ? a->end - a->begin : UINT32_MAX;
}

static int compare(const void *a, const void *b) {
  const item *x = a, *y = b;
  uint32_t x_life = span_of(x), y_life = span_of(y);
  if (x->is_permanent != y->is_permanent) return x->is_permanent ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  if (x_life != y_life) return x_life > y_life ? -1 : 1;
  if (x->slot != y->slot) return x->slot < y->slot ? -1 : 1;
  return (y->is_odd > x->is_odd) - (y->is_odd < x->is_odd);
}

static bool covers(const item *a, uint32_t time) {
  return a->end > a->begin ? time >= a->begin && time < a->end : time >= a->begin || time < a->end;
}

/* Whether the lifetimes overlap: then one of them contains the beginning of the other. */
static bool meet(const item *a, const item *b) {
  return a->is_permanent || b->is_permanent || covers(a, b->begin) || covers(b, a->begin);
}

/* The offset of the smallest gap that is large enough, or the end if there is no such gap. */
static uint64_t find_place(const item *placed, size_t count, const item *one) {
  uint64_t end = 0, best = UINT64_MAX, best_left = UINT64_MAX;
  for (size_t i = 0; i < count; i++) {
    const item *other = &placed[i];
    if (!meet(other, one)) continue;
    uint64_t left = other->offset > end ? other->offset - end : 0;
    if (left >= one->bytes && left - one->bytes < best_left) {
      best = end;
      best_left = left - one->bytes;
    }
    if (other->offset + other->bytes > end) end = other->offset + other->bytes;
  }
  return best != UINT64_MAX ? best : end;
}

static int place_all(items *all, tsr_effort *effort, tsr__placement *out, tsr_error *error) {
  item *placed = TSR__NEW_ARRAY(item, all->count);
  int status = 0;
  if (!placed) return tsr__fail_memory(error);
  tsr__sort(all->items, all->count, sizeof *all->items, compare);
  for (size_t i = 0; i < all->count; i++) {
    if (!tsr__effort_go_on(effort, i)) {
      status = tsr__effort_fail(effort, error);
      break;
    }
    item one = all->items[i];
    size_t at = i;
    one.offset = find_place(placed, i, &one);
    if (one.offset + one.bytes > out->total_bytes) out->total_bytes = one.offset + one.bytes;
    while (at && placed[at - 1].offset > one.offset) at--;
    memmove(&placed[at + 1], &placed[at], (i - at) * sizeof *placed);
    placed[at] = one;
    out->offsets[one.is_odd][one.slot] = one.offset;
    if (one.is_permanent) out->offsets[0][one.slot] = one.offset;
  }
  tsr__free(placed);
  return status;
}

int tsr__placement_solve(const tsr__schedule *schedule, tsr_effort *effort, tsr__placement *out,
                         tsr_error *error) {
  items all = {0};
  uint32_t circle = 2 * (uint32_t)schedule->instrs.count;
  assert(schedule->instrs.count < UINT32_MAX / 2);
  *out = (tsr__placement){0};
  for (int i = 0; i < 2; i++) out->offsets[i] = TSR__NEW_ARRAY(uint64_t, schedule->slots.count);
  life *lives = find_lives(schedule);
  bool ok = out->offsets[0] && out->offsets[1] && lives && list_items(schedule, lives, &all) &&
            find_bound(&all, circle, &out->bound_bytes);
  int status = ok ? place_all(&all, effort, out, error) : tsr__fail_memory(error);
  assert(status || out->total_bytes >= out->bound_bytes);
  TSR__VECTOR_FREE(&all);
  tsr__free(lives);
  return status;
}

void tsr__placement_release(tsr__placement *placement) {
  tsr__free(placement->offsets[0]);
  tsr__free(placement->offsets[1]);
  *placement = (tsr__placement){0};
}
