/* local.c - improves a plan by changing one block, or two, and at last some at random, until no change that is tried makes it faster within
 * the budget.
 *
 * The chain solver adds up what blocks keep, and what a plan reserves is only known once it is simulated: segments of the allocator
 * have gaps, and the peak may be elsewhere. So plans near the one that was found may be faster and fit all the same.
 *
 *   plan ──► a cell for each block ──► moves ──► pairs of moves that save time ──► simulated, the fastest first
 *                  ▲                                                                     │
 *                  └──────────────────── the first that fits ◄──────────────────────────┘
 *
 * A move puts another choice into blocks of one stretch: its first block, its last, or all. Its time is known to a thousandth, and
 * what it does to memory to about two hundredths, before it is simulated. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"
#include "plan/blocks.h"

enum {
  MOST_MOVES = 1024, /* that are combined */
  MOST_GROUP = 6,    /* blocks that are run again as one */
  /* What is reserved is a guess: off by such a part of the budget, or by what is reserved at once. */
  LEVEL_PARTS = 64,
  LEVEL_BYTES = 2 << 20,
  /* Pairs of a level that are simulated before it is given up, and more of few blocks; single moves. */
  TRIES = 12,
  SMALL_TRIES = 120,
  SINGLE_TRIES = 48,
  ALIKE = 3,  /* pairs that take as long, of which that many are tried */
  FAILED = 3, /* pairs with one move */
  /* Random changes that are looked at, and, divided by blocks, how many plans of them are simulated. */
  SHAKES = 20000,
  SHAKE_TRIES = 1200,
  /* Blocks in all simulations of one search, at most; but not fewer simulations than: */
  WORK = 6000,
  LEAST_SIMULATIONS = 64
};

/* Budgets above this are as good as this one, and sums with them are safe. */
#define MOST_BUDGET (UINT64_C(1) << 60)
/* A step must become faster by this part. */
#define LEAST_GAIN 1e-6

/* A block: its choice, or the first block of the segment with which it is run again, plus 1. */
typedef struct cell {
  uint16_t choice, group;
} cell;

typedef struct move {
  uint16_t first, count;
  uint16_t failed; /* pairs with it that did not fit */
  cell to;         /* group: 1: the blocks become a segment */
  double more_s, more_copies_s;
  int64_t more_bytes;
} move;

typedef struct pair {
  uint16_t a, b; /* moves; equal: one alone */
  double more_s;
  int64_t bytes; /* reserved, by estimate */
} pair;

/* What choices change of a step that keeps all. */
typedef struct estimate {
  double more_s, more_copies_s;
  uint64_t forward_bytes; /* live at the end of a forward, or when a segment was run again */
} estimate;

typedef struct local {
  tsr_planning *planning;
  tsr__way *way;
  uint64_t budget;
  tsr__chooser chooser;
  size_t layers;
  cell *cells, *other; /* of the plan, and of one that is tried; owned */
  tsr_run_plan *plan;  /* the best; owned */
  tsr_run_plan_cost cost;
  double limit_s; /* what a step must take less than */
  estimate now;
  /* By places in chooser.of->effects: the place in that of blocks at home, plus 1; 0: not looked for. */
  uint16_t at_home[TSR__BLOCK_EFFECTS];
  uint16_t
      choices[TSR__BLOCK_EFFECTS + 1 + TSR__PLANNER_OPTIONS]; /* that are tried in each block */
  size_t choice_count;
  move moves[MOST_MOVES];
  size_t move_count;
  size_t simulations, most_simulations;
  tsr__map tried; /* hashes of cells */
  uint64_t random;
  bool is_thorough;
} local;

/* ---- plan to cells, and back ---- */

static bool is_range_known(const tsr_block_choice *r) {
  return r->checkpoint <= TSR_CHECKPOINT_EVERY;
}

/* The fragment of a range; false if a name is not one of the block's. */
static bool fragment_of(const local *l, const tsr_block_choice *r, tsr__fragment *out) {
  const struct tsr__block_options *of = l->chooser.of;
  *out = (tsr__fragment){.checkpoint = r->checkpoint, .rest = TSR_SAVED_KEEP};
  for (size_t i = 0; i < r->saved_count; i++) {
    tsr__name_set named = tsr__blocks_named(of, r->saved[i].name);
    if (!named) return false;
    if (r->saved[i].place == TSR_SAVED_RECOMPUTE)
      out->names |= named;
    else
      out->rest = r->saved[i].place;
  }
  return true;
}

/* Fill cells `first` to `last` of the range. `*ok` is false for what this file cannot say. */
static int read_range(local *l, const tsr_block_choice *r, bool *ok, tsr_error *error) {
  tsr__fragment f;
  size_t number = 0, last = r->last < l->layers ? (size_t)r->last : l->layers - 1;
  bool is_again = r->checkpoint == TSR_CHECKPOINT_FULL || r->checkpoint == TSR_CHECKPOINT_EVERY;
  size_t length = r->checkpoint == TSR_CHECKPOINT_EVERY ? (size_t)r->checkpoint_every : 1;
  *ok = is_range_known(r) && length && fragment_of(l, r, &f);
  if (!*ok) return 0;
  int status = is_again ? 0 : tsr__blocks_effect(&l->chooser, &f, &number, error);
  *ok = status == 0 && number < TSR__BLOCK_EFFECTS;
  for (size_t i = (size_t)r->first; *ok && i <= last; i++)
    l->cells[i] = is_again ? (cell){0, (uint16_t)(i - (i - r->first) % length + 1)}
                           : (cell){(uint16_t)number, 0};
  return status;
}

static int read_cells(local *l, const tsr_run_plan *plan, bool *ok, tsr_error *error) {
  int status = 0;
  *ok = plan->options.checkpoint == TSR_CHECKPOINT_NONE ||
        plan->options.checkpoint == TSR_CHECKPOINT_FULL;
  for (size_t i = 0; i < l->layers; i++)
    l->cells[i] =
        (cell){0, plan->options.checkpoint == TSR_CHECKPOINT_FULL ? (uint16_t)(i + 1) : 0};
  for (size_t i = 0; *ok && status == 0 && i < plan->blocks.count; i++)
    status = read_range(l, &plan->blocks.items[i], ok, error);
  return status;
}

/* Where the stretch that begins at a block ends: blocks of one segment, or with the same choice. */
static size_t end_of(const local *l, const cell *cells, size_t first) {
  size_t end = first + 1;
  while (end < l->layers && cells[end].group == cells[first].group &&
         (cells[first].group || cells[end].choice == cells[first].choice))
    end++;
  return end;
}

/* The end of segments of equal length, beginning with that at `first`. */
static size_t end_of_segments(const local *l, const cell *cells, size_t first) {
  size_t end = end_of(l, cells, first), length = end - first;
  while (end < l->layers && cells[end].group && end_of(l, cells, end) - end == length)
    end += length;
  return end;
}

/* NULL when out of memory. */
static tsr_run_plan *plan_of(const local *l, const cell *cells) {
  const tsr__block_effect *effects = l->chooser.of->effects;
  tsr_run_plan *plan = tsr__blocks_none(l->way);
  bool ok = plan != NULL;
  for (size_t i = 0, end; ok && i < l->layers; i = end) {
    size_t length = end_of(l, cells, i) - i;
    const tsr__fragment again = {.checkpoint =
                                     length == 1 ? TSR_CHECKPOINT_FULL : TSR_CHECKPOINT_EVERY};
    end = cells[i].group ? end_of_segments(l, cells, i) : i + length;
    const tsr__fragment *f = cells[i].group ? &again : &effects[cells[i].choice].fragment;
    ok = tsr__blocks_add_range(&l->chooser, plan, f, cells[i].group && length > 1 ? length : 0, i,
                               end - 1);
  }
  if (ok) return plan;
  tsr_run_plan_free(plan);
  return NULL;
}

/* ---- estimates ---- */

/* What a choice is for a block; NULL: unknown. */
static const tsr__block_effect *effect_of(const local *l, size_t block, size_t choice) {
  const tsr__chooser *c = &l->chooser, *own = tsr__blocks_of(c, block);
  if (own->of == c->of) return &c->of->effects[choice];
  return l->at_home[choice] ? &own->of->effects[l->at_home[choice] - 1] : NULL;
}

static bool may_choose(const local *l, size_t block, size_t choice) {
  const tsr__block_effect *effect = effect_of(l, block, choice);
  return effect && (effect->is_possible || choice == 0);
}

static bool has_two_sorts(const local *l) {
  return l->chooser.home && l->chooser.home->chooser.of != l->chooser.of;
}

/* Look for a choice among those of blocks at home. */
static int find_at_home(local *l, size_t number, tsr_error *error) {
  size_t place;
  if (!has_two_sorts(l) || number >= TSR__BLOCK_EFFECTS || l->at_home[number]) return 0;
  int status = tsr__blocks_effect_of(&l->chooser, l->chooser.away, number, &place, error);
  if (status == 0 && place < TSR__BLOCK_EFFECTS) l->at_home[number] = (uint16_t)(place + 1);
  return status;
}

/* List the choices that are tried in each block: the best ones of both sorts of blocks. */
static int list_choices(local *l, tsr_error *error) {
  const tsr__chooser *c = &l->chooser;
  int status = 0;
  for (size_t i = 0; status == 0 && i < c->of->best_count; i++) {
    l->choices[l->choice_count++] = (uint16_t)i;
    status = find_at_home(l, i, error);
  }
  if (!has_two_sorts(l)) return status;
  const struct tsr__block_options *home = c->home->chooser.of;
  for (size_t i = 0; status == 0 && i < home->count; i++) {
    size_t number;
    status = tsr__blocks_effect(c, &home->effects[home->options[i]].fragment, &number, error);
    if (status || number >= TSR__BLOCK_EFFECTS || number < c->of->best_count) continue;
    l->at_home[number] = (uint16_t)(home->options[i] + 1);
    l->choices[l->choice_count++] = (uint16_t)number;
  }
  return status;
}

static estimate estimate_of(const local *l, const cell *cells) {
  const tsr__chooser *c = &l->chooser;
  uint64_t kept = 0, again = 0, made = 0;
  double more_s = 0, copies_s = 0, parts = (double)c->parts;
  for (size_t i = 0; i < l->layers; i++) {
    const tsr__chooser *own = tsr__blocks_of(c, i);
    bool is_first = !i || cells[i].group != cells[i - 1].group;
    if (cells[i].group) {
      more_s += own->forward_s;
      copies_s += own == c ? own->again_copies_s : 0;
      made = (is_first ? 0 : made) + own->kept_bytes;
      if (kept + made > again) again = kept + made;
      if (i + 1 == l->layers || cells[i + 1].group != cells[i].group) kept += own->input_bytes;
    } else {
      const tsr__block_effect *of = effect_of(l, i, cells[i].choice);
      if (!of) continue; /* as if it kept nothing: no move makes it */
      more_s += of->more_s;
      copies_s += tsr__blocks_copies(own, of);
      kept += of->saved_bytes < own->kept_bytes ? own->kept_bytes - of->saved_bytes : 0;
    }
  }
  return (estimate){more_s * parts, copies_s * parts, kept > again ? kept : again};
}

/* Seconds of a step. */
static double step_of(const local *l, double more_s, double more_copies_s) {
  return tsr__planner_estimate(l->way, fmax(l->way->kernels_s + more_s, 0),
                               l->way->copies_s + more_copies_s);
}

/* ---- moves ---- */

static void add_move(local *l, size_t first, size_t count, cell to) {
  if (l->move_count == MOST_MOVES || first + count > l->layers || !count) return;
  bool is_possible =
      to.group || (may_choose(l, first, to.choice) && may_choose(l, first + count - 1, to.choice));
  if (!is_possible) return;
  for (size_t i = l->move_count; i-- > 0;) {
    const move *m = &l->moves[i];
    if (m->first == first && m->count == count && m->to.choice == to.choice &&
        m->to.group == to.group)
      return;
  }
  l->moves[l->move_count++] = (move){.first = (uint16_t)first, .count = (uint16_t)count, .to = to};
}

/* Put a choice, or a segment, into the first block of a stretch, the last, and all. */
static void add_places(local *l, size_t first, size_t end, cell to) {
  add_move(l, first, 1, to);
  if (end - first == 1) return;
  add_move(l, end - 1, 1, to);
  add_move(l, first, end - first, to);
}

static int add_toggles(local *l, bool of_kinds, size_t first, size_t end, tsr_error *error) {
  const struct tsr__block_options *of = l->chooser.of;
  tsr__fragment f = of->effects[l->cells[first].choice].fragment;
  int status = 0;
  if (l->cells[first].group || f.checkpoint) return 0;
  const tsr__name_set names = f.names;
  for (size_t i = 0; status == 0 && i < of->set_count; i++) {
    size_t number;
    if (of->of_kinds[i] != of_kinds) continue;
    f.names = (of->sets[i] & ~names) ? names | of->sets[i] : names & ~of->sets[i];
    status = tsr__blocks_effect(&l->chooser, &f, &number, error);
    if (status == 0 && end > l->chooser.away) status = find_at_home(l, number, error);
    if (status == 0 && number < TSR__BLOCK_EFFECTS)
      add_places(l, first, end, (cell){(uint16_t)number, 0});
  }
  return status;
}

/* Segments that begin or end where the stretch does, or move the end of one that is there by a block. */
static void add_segments(local *l, size_t first, size_t end) {
  for (size_t count = 1; count <= MOST_GROUP && count <= l->layers; count++) {
    add_move(l, first, count, (cell){0, 1});
    if (end >= count && end - count > first) add_move(l, end - count, count, (cell){0, 1});
  }
  if (!l->cells[first].group) return;
  if (end < l->layers) add_move(l, first, end - first + 1, (cell){0, 1});
  if (first) add_move(l, first - 1, end - first + 1, (cell){0, 1});
}

static void add_choices(local *l, bool of_kinds, size_t first, size_t end) {
  const struct tsr__block_options *of = l->chooser.of;
  for (size_t i = 0; i < l->choice_count; i++) {
    size_t k = l->choices[i];
    bool is_other = l->cells[first].group || k != l->cells[first].choice;
    bool is_alike = tsr__blocks_is_of_kinds(&l->chooser, &of->effects[k].fragment);
    if (is_other && is_alike == of_kinds) add_places(l, first, end, (cell){(uint16_t)k, 0});
  }
}

/* Those in which all ops of a kind do the same come first: there may be too many others. */
static int list_moves(local *l, tsr_error *error) {
  int status = 0;
  l->move_count = 0;
  for (int of_kinds = 1; of_kinds >= 0; of_kinds--)
    for (size_t i = 0, end; status == 0 && i < l->layers; i = end) {
      end = end_of(l, l->cells, i);
      add_choices(l, of_kinds, i, end);
      if (of_kinds) add_segments(l, i, end);
      status = add_toggles(l, of_kinds, i, end, error);
    }
  return status;
}

/* What is left of a segment stays one. */
static void make(const local *l, const move *m, cell *cells) {
  for (size_t i = m->first; i < (size_t)m->first + m->count; i++)
    cells[i] = m->to.group ? (cell){0, (uint16_t)(m->first + 1)} : m->to;
  size_t end = (size_t)m->first + m->count, group = end < l->layers ? cells[end].group : 0;
  for (size_t i = end; group && group <= end && i < l->layers && cells[i].group == group; i++)
    cells[i].group = (uint16_t)(end + 1);
}

static void copy_cells(local *l) {
  memcpy(l->other, l->cells, l->layers * sizeof *l->cells);
}

static void estimate_moves(local *l) {
  for (size_t i = 0; i < l->move_count; i++) {
    copy_cells(l);
    make(l, &l->moves[i], l->other);
    estimate with = estimate_of(l, l->other);
    l->moves[i].more_s = with.more_s - l->now.more_s;
    l->moves[i].more_copies_s = with.more_copies_s - l->now.more_copies_s;
    l->moves[i].more_bytes = (int64_t)with.forward_bytes - (int64_t)l->now.forward_bytes;
  }
}

static bool is_apart(const move *a, const move *b) {
  return a->first + a->count <= b->first || b->first + b->count <= a->first;
}

/* ---- trying ---- */

static int compare_pairs(const void *left, const void *right) {
  const pair *a = left, *b = right;
  if (a->more_s < b->more_s || a->more_s > b->more_s) return a->more_s < b->more_s ? -1 : 1;
  return a->a != b->a ? (int)a->a - (int)b->a : (int)a->b - (int)b->b;
}

typedef TSR__VECTOR(pair) pairs;

/* How far what is reserved may be from the estimate. */
static int64_t part_of(const local *l) {
  int64_t part = (int64_t)(l->budget / LEVEL_PARTS);
  return part > LEVEL_BYTES ? part : LEVEL_BYTES;
}

/* Pairs and single moves with which a step takes less than the limit, and that by estimate reserve at most so much; the fastest first. */
static bool list_pairs(const local *l, int64_t most, pairs *out) {
  double most_s = l->limit_s * (1 - LEAST_GAIN) - l->cost.step_seconds;
  double now_s = step_of(l, l->now.more_s, l->now.more_copies_s);
  int64_t reserved = (int64_t)l->cost.reserved_bytes;
  out->count = 0;
  for (size_t i = 0; i < l->move_count; i++)
    for (size_t k = i; k < l->move_count; k++) {
      const move *a = &l->moves[i], *b = &l->moves[k];
      bool is_one = i == k;
      int64_t bytes = reserved + a->more_bytes + (is_one ? 0 : b->more_bytes);
      if (bytes > most || (!is_one && !is_apart(a, b))) continue;
      double kernels_s = l->now.more_s + a->more_s + (is_one ? 0 : b->more_s);
      double copies_s = l->now.more_copies_s + a->more_copies_s + (is_one ? 0 : b->more_copies_s);
      double more_s = step_of(l, kernels_s, copies_s) - now_s;
      if (more_s >= most_s) continue;
      pair one = {(uint16_t)i, (uint16_t)k, more_s, bytes};
      if (!TSR__VECTOR_PUSH(out, one)) return false;
    }
  tsr__sort(out->items, out->count, sizeof *out->items, compare_pairs);
  return true;
}

/* A hash. */
static uint64_t number_of_cells(const local *l, const cell *cells) {
  uint64_t number = 14695981039346656037u;
  for (size_t i = 0; i < l->layers; i++)
    number = (number ^ ((uint64_t)cells[i].choice << 16 | cells[i].group)) * 1099511628211u;
  return number;
}

/* Simulate the plan of `other`, unless it was tried already; make it the best plan if it fits and is faster. */
static int try_other(local *l, bool *is_better, tsr_error *error) {
  tsr_run_plan_cost cost;
  bool is_new = false;
  *is_better = false;
  if (!tsr__map_put(&l->tried, number_of_cells(l, l->other), 0, &is_new))
    return tsr__fail_memory(error);
  if (!is_new) return 0;
  tsr_run_plan *plan = plan_of(l, l->other);
  if (!plan) return tsr__fail_memory(error);
  int status = tsr__planner_try(l->planning, plan, l->budget, l->limit_s, &cost, is_better, error);
  l->simulations++;
  *is_better = status == 0 && *is_better && cost.step_seconds < l->limit_s * (1 - LEAST_GAIN);
  if (*is_better) {
    tsr_run_plan *before = l->plan;
    cell *cells = l->cells;
    l->plan = plan;
    plan = before;
    l->cells = l->other;
    l->other = cells;
    l->cost = cost;
    l->limit_s = cost.step_seconds;
    l->now = estimate_of(l, l->cells);
  }
  tsr_run_plan_free(plan);
  return status;
}

static int try_pair(local *l, const pair *p, bool *is_better, tsr_error *error) {
  copy_cells(l);
  make(l, &l->moves[p->a], l->other);
  if (p->b != p->a) make(l, &l->moves[p->b], l->other);
  return try_other(l, is_better, error);
}

/* Which of the pairs are tried: single moves, or those that reserve more than `above` and at most `most`; and how many. */
typedef struct level {
  bool singly;
  int64_t above, most;
  size_t tries;
} level;

static bool is_of(const level *v, const pair *p) {
  return v->singly ? p->a == p->b : p->bytes > v->above && p->bytes <= v->most;
}

/* Try pairs of a level, the fastest first. Of those that take as long, which are often the same change of other blocks, only some; and of those
 * with one move, too: what it reserves may be far from the estimate. What copies under way take is not part of the estimate at all: where
 * activations are copied, larger and larger steps are made through the list, down to the slowest. */
static int try_level(local *l, const pairs *list, const level *v, bool *is_better,
                     tsr_error *error) {
  const pair *last = NULL;
  size_t count = 0, at = 0, alike = 0, first = l->simulations, most = first + v->tries;
  bool is_blind = tsr__way_copies_activations(l->way);
  int status = 0;
  if (most > l->most_simulations) most = l->most_simulations;
  for (size_t i = 0; is_blind && i < list->count; i++) count += is_of(v, &list->items[i]);
  for (size_t i = 0; status == 0 && !*is_better && i < list->count && l->simulations < most; i++) {
    const pair *one = &list->items[i];
    size_t tried = l->simulations - first;
    if (!is_of(v, one) || (is_blind && at++ < count * tried * tried / (v->tries * v->tries)))
      continue;
    move *a = &l->moves[one->a], *b = &l->moves[one->b];
    bool is_alike = last && one->more_s - last->more_s < l->cost.step_seconds * LEAST_GAIN;
    alike = is_alike ? alike + 1 : 0;
    last = one;
    if (alike >= ALIKE || (a != b && (a->failed >= FAILED || b->failed >= FAILED))) continue;
    status = try_pair(l, one, is_better, error);
    if (a != b && !*is_better) a->failed++, b->failed++;
  }
  return status;
}

/* One round: make the best change that there is. What a change reserves is a guess: the allocator reserves whole segments, and the
 * peak may be elsewhere. So changes are tried at several levels of memory: a little above the budget, and below it, the steps finer near
 * what is reserved now. */
static int improve_once(local *l, pairs *list, bool *is_better, tsr_error *error) {
  int64_t budget = (int64_t)l->budget, now = (int64_t)l->cost.reserved_bytes;
  int64_t room = now < budget ? budget - now : 0, part = part_of(l);
  size_t tries = l->is_thorough ? TRIES + SMALL_TRIES / l->layers : TRIES / 2;
  const int64_t levels[] = {budget + part, budget,        budget - room / 2, budget - room * 3 / 4,
                            budget - room, budget - part, budget - 2 * part, INT64_MIN};
  int status = list_moves(l, error);
  if (status) return status;
  estimate_moves(l);
  if (!list_pairs(l, levels[0], list)) return tsr__fail_memory(error);
  *is_better = false;
  status = try_level(l, list, &(level){.singly = true, .tries = SINGLE_TRIES}, is_better, error);
  for (size_t i = 0; status == 0 && !*is_better && i + 1 < sizeof levels / sizeof *levels; i++) {
    const level one = {.above = levels[i + 1], .most = levels[i], .tries = tries};
    if (one.above < one.most) status = try_level(l, list, &one, is_better, error);
  }
  return status;
}

/* ---- random changes ---- */

/* Numbers that are the same in every search: xorshift64*. */
static size_t below(local *l, size_t limit) {
  l->random ^= l->random >> 12, l->random ^= l->random << 25, l->random ^= l->random >> 27;
  return (size_t)(l->random * 2685821657736338717u >> 32) % limit;
}

/* Change two to four blocks of `other`, or stretches of them. False if a choice is not possible. */
static bool shake(local *l) {
  const struct tsr__block_options *of = l->chooser.of;
  copy_cells(l);
  for (size_t n = 2 + below(l, 3); n; n--) {
    bool is_known = below(l, 2);
    size_t choice = below(l, is_known ? of->best_count : of->effect_count);
    move m = {.first = (uint16_t)below(l, l->layers), .count = 1, .to = {(uint16_t)choice, 0}};
    if (below(l, 4) == 0) m.count = (uint16_t)(1 + below(l, l->layers - m.first));
    if (!may_choose(l, m.first, choice) || !may_choose(l, m.first + m.count - 1u, choice))
      return false;
    make(l, &m, l->other);
  }
  return true;
}

/* Random changes of the plan of which each, by estimate, is faster and reserves at most a little more than the budget. They find what no
 * two moves lead to. */
static int shake_some(local *l, bool *is_better, tsr_error *error) {
  int64_t part = part_of(l);
  int status = 0;
  size_t most = l->simulations + SHAKE_TRIES / l->layers;
  if (most > l->most_simulations) most = l->most_simulations;
  *is_better = false;
  for (size_t i = 0; status == 0 && !*is_better && i < SHAKES && l->simulations < most; i++) {
    if (!shake(l)) continue;
    estimate with = estimate_of(l, l->other);
    int64_t more = (int64_t)with.forward_bytes - (int64_t)l->now.forward_bytes;
    double more_s = step_of(l, with.more_s, with.more_copies_s) -
                    step_of(l, l->now.more_s, l->now.more_copies_s);
    if (l->cost.step_seconds + more_s >= l->limit_s * (1 - LEAST_GAIN)) continue;
    if ((int64_t)l->cost.reserved_bytes + more > (int64_t)l->budget + part) continue;
    status = try_other(l, is_better, error);
  }
  return status;
}

/* ---- all of it ---- */

static int improve(local *l, const tsr_run_plan *plan, tsr_error *error) {
  pairs list = {0};
  bool ok, is_better = true;
  int status = list_choices(l, error);
  if (status == 0) status = read_cells(l, plan, &ok, error);
  for (size_t i = 0; status == 0 && ok && i < l->layers; i++)
    status = find_at_home(l, l->cells[i].choice, error);
  if (status || !ok) return status;
  l->now = estimate_of(l, l->cells);
  size_t work = l->layers * (size_t)l->chooser.parts, most = work ? WORK / work : WORK;
  l->most_simulations = most > LEAST_SIMULATIONS ? most : LEAST_SIMULATIONS;
  if (!l->is_thorough) l->most_simulations = LEAST_SIMULATIONS;
  while (status == 0 && is_better && l->simulations < l->most_simulations) {
    status = improve_once(l, &list, &is_better, error);
    if (status == 0 && !is_better && l->is_thorough) status = shake_some(l, &is_better, error);
  }
  TSR__VECTOR_FREE(&list);
  return status;
}

int tsr__planner_improve(tsr_planning *p, tsr__way *way, const tsr_run_plan *plan,
                         const tsr_run_plan_cost *cost, uint64_t budget_bytes, double limit_s,
                         bool is_thorough, tsr_run_plan **out, tsr_run_plan_cost *with,
                         tsr_error *error) {
  local *l = TSR__NEW(local);
  bool is_possible = false;
  *out = NULL;
  if (!l) return tsr__fail_memory(error);
  *l = (local){.planning = p,
               .way = way,
               .budget = budget_bytes < MOST_BUDGET ? budget_bytes : MOST_BUDGET,
               .cost = *cost,
               .limit_s = limit_s,
               .random = 1,
               .is_thorough = is_thorough};
  l->layers = p->model->layers;
  assert(l->layers < UINT16_MAX); /* the chain solver refuses more */
  l->cells = TSR__NEW_ARRAY(cell, l->layers);
  l->other = TSR__NEW_ARRAY(cell, l->layers);
  int status = l->cells && l->other ? 0 : tsr__fail_memory(error);
  if (status == 0) status = tsr__blocks_begin(p, way, &l->chooser, &is_possible, error);
  if (status == 0 && is_possible) status = improve(l, plan, error);
  tsr__blocks_release(&l->chooser);
  tsr__map_release(&l->tried);
  tsr__free(l->cells);
  tsr__free(l->other);
  *out = l->plan;
  *with = l->cost;
  tsr__free(l);
  return status;
}
