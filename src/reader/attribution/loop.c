/* loop.c - steps from the loop in the user's code. See cycle.h.
 *
 * Python frames say where a loop is: the outermost function whose lines, as its callees allocate, come again.
 *
 *   main:56  profile:11 __init__            one line each, once: no loop in profile
 *            profile:21 forward:44          the line of a loop is always 21; but forward begins again,
 *                       forward:47 ...      so line 21 has called it again
 *                       forward:51
 *            profile:21 forward:44
 *            ...
 *
 * Allocations are grouped by their outermost frame, then by the next, and so on:
 *
 *   - One frame only: look at the next.
 *   - Frames that come again after others: a loop. In a function of the user each round of it is a step. In
 *     the forward of a module it may be one over layers, which is no step. It is a further call only if all
 *     that runs comes again: a loop over layers has something before it or after it that does not.
 *   - Frames that do not come again: those whose forward is the same are calls of one model, and those of them that
 *     call it several times are loops. If one of them alone runs forward, look into it.
 *
 * A forward that torch.compile has translated runs generated code, whose lines are in no layer: if all of them
 * come again, the model was called again.
 *
 * Nothing inside one call of a module is ever a step, nor are rounds of torch's own containers, nor calls
 * of a module by a module that does nothing else: those are layers. Only stacks that show a forward pass
 * have weight, so that loading a checkpoint, parameter by parameter, is no loop. */
#include <assert.h>
#include <string.h>

#include "attribution/callers.h"
#include "attribution/cycle.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"

enum {
  DEPTH_MAX = 400, /* frames from the outside; no loop of a user is deeper */
  PLACES_MAX = 64  /* ranges that are examined, each in time linear in it */
};

#define ALIKE   0.6 /* calls of one model */
#define SEVERAL UINT32_MAX

/* An allocation with Python frames. */
typedef struct item {
  uint32_t event, stack;
} item;

/* Consecutive allocations with the same frame at one depth. */
typedef struct run {
  uint32_t symbol;      /* number of the frame among those at this depth */
  uint32_t first, last; /* items */
} run;

/* A frame at one depth. */
typedef struct symbol {
  uint32_t frame; /* or TSR_NONE: the stack ends before */
  uint32_t runs, first_run, last_run;
  uint32_t items;
  uint64_t weight;
} symbol;

typedef TSR__VECTOR(run) runs;
typedef TSR__VECTOR(symbol) symbols;

/* Items first .. last are one round; all of one call, or of one round of a loop. */
typedef struct round {
  uint32_t first_event, last_event; /* of allocations */
  uint32_t line; /* number of the line from which it is called, among those of one function */
  uint32_t loop; /* of this number */
  bool is_whole;
  tsr__bag bag; /* of its forward pass */
  uint32_t
      call; /* the frame of the outermost forward of the user's that it calls; TSR_NONE: unknown */
} round;

typedef TSR__VECTOR(round) rounds;

typedef struct finder {
  const tsr__timeline *t;
  const tsr__roles *roles;
  tsr__callers callers;
  item *items;       /* in the order of the trace; places shrink in it */
  bool may_be_small; /* a loop may have less than half of the weight */
} finder;

/* One function, as its allocations show it: items first .. past - 1 share the frames above `depth`. */
typedef struct place {
  uint32_t first, past, depth;
  uint32_t modules; /* user's modules above: calls of modules by modules */
  bool in_module;
} place;

/* ---- Items ---- */

static bool is_forward(const finder *f, const item *at) {
  return f->roles->stacks[at->stack].phase == TSR_PHASE_FORWARD;
}

/* Allocations that have Python frames and do not belong to setup. */
static uint32_t read_items(const finder *f, item *items, uint64_t *weight) {
  uint32_t count = 0;
  for (size_t i = f->t->initial.count; i < f->t->birth.count; i++) {
    item at = {f->t->birth.items[i], f->t->events.stack[f->t->birth.items[i]]};
    if (at.stack >= f->roles->count || f->callers.at[at.stack] == f->callers.at[at.stack + 1])
      continue;
    if (f->roles->stacks[at.stack].phase == TSR_PHASE_SETUP) continue;
    *weight += is_forward(f, &at);
    items[count++] = at;
  }
  return count;
}

static uint32_t frame_at(const finder *f, const item *at, uint32_t depth) {
  uint32_t first = f->callers.at[at->stack];
  return depth < f->callers.at[at->stack + 1] - first ? f->callers.frames[first + depth] : TSR_NONE;
}

/* ---- Runs ---- */

static bool read_runs(const finder *f, const place *p, runs *list, symbols *all) {
  tsr__map ids = {0};
  bool ok = true;
  for (uint32_t i = p->first; ok && i < p->past; i++) {
    uint32_t frame = frame_at(f, &f->items[i], p->depth);
    uint64_t *id = tsr__map_put(&ids, frame, all->count, NULL);
    ok = id && (*id < all->count || TSR__VECTOR_PUSH(all, (symbol){.frame = frame}));
    if (!ok) break;
    symbol *s = &all->items[*id];
    s->items++;
    s->weight += is_forward(f, &f->items[i]);
    if (list->count && list->items[list->count - 1].symbol == *id) {
      list->items[list->count - 1].last = i;
      continue;
    }
    ok = TSR__VECTOR_PUSH(list, (run){(uint32_t)*id, i, i});
    if (!s->runs++) s->first_run = (uint32_t)list->count - 1;
    s->last_run = (uint32_t)list->count - 1;
  }
  tsr__map_release(&ids);
  return ok;
}

/* Which lines are in several rounds of the loop that begins with a symbol: `seen` becomes SEVERAL. */
static void find_shared(const runs *list, const symbols *all, const symbol *s, uint32_t *seen) {
  uint32_t number = 0, id = list->items[s->first_run].symbol;
  memset(seen, 0, all->count * sizeof *seen);
  for (uint32_t i = s->first_run; i < list->count; i++) {
    uint32_t *last = &seen[list->items[i].symbol];
    number += list->items[i].symbol == id;
    *last = *last && *last != number ? SEVERAL : number;
  }
}

/* The weight of a loop that begins with a symbol: of its rounds but the last, and as much for that. Lines of one
 * round alone are no part of a loop. */
static uint64_t reach_of(const finder *f, const runs *list, const symbols *all, const symbol *s,
                         uint32_t *seen) {
  uint64_t weight = 0;
  if (s->runs < 2) return 0;
  find_shared(list, all, s, seen);
  for (uint32_t i = s->first_run; i < s->last_run; i++) {
    const run *r = &list->items[i];
    for (uint32_t k = r->first; seen[r->symbol] == SEVERAL && k <= r->last; k++)
      weight += is_forward(f, &f->items[k]);
  }
  return weight * s->runs / (s->runs - 1);
}

/* Of two symbols that may begin a loop: that whose line comes first, if one function has both; rounds may
 * begin anywhere in a trace. */
static bool is_before(const tsr_snapshot *snapshot, const symbol *a, const symbol *b) {
  if (a->frame != TSR_NONE && b->frame != TSR_NONE) {
    tsr_frame x = tsr_snapshot_frame(snapshot, a->frame),
              y = tsr_snapshot_frame(snapshot, b->frame);
    if (x.name == y.name && x.file == y.file && x.line != y.line) return x.line < y.line;
  }
  return a->first_run < b->first_run;
}

/* Whether two symbols come equally often: the recording may begin or end between them. */
static bool is_as_often(const symbol *a, const symbol *b) {
  return a->runs <= b->runs + 1 && b->runs <= a->runs + 1;
}

/* The symbol with which a loop begins that has most of the weight; NULL if absent. In a module the
 * one that comes least often counts: others come again in its layers. */
static const symbol *head_of(const finder *f, const runs *list, const symbols *all, uint64_t weight,
                             bool is_module) {
  enum { TRIES = 256 }; /* more lines than a loop has */
  uint64_t most = 0, *reach = TSR__NEW_ARRAY(uint64_t, all->count < TRIES ? all->count : TRIES);
  uint32_t *seen = TSR__NEW_ARRAY(uint32_t, all->count);
  const symbol *best = NULL;
  size_t count = reach && seen ? all->count : 0;
  for (size_t i = 0; i < count && i < TRIES; i++) {
    reach[i] = reach_of(f, list, all, &all->items[i], seen);
    if (reach[i] > most) most = reach[i];
  }
  for (size_t i = 0; i < count && i < TRIES; i++) {
    const symbol *s = &all->items[i];
    if (!reach[i] || reach[i] * 10 < most * 8) continue;
    if (most * 2 < weight && (is_module || !f->may_be_small)) continue;
    bool is_better = !best || (is_module && !is_as_often(s, best))
                         ? !best || s->runs < best->runs
                         : is_before(f->t->snapshot, s, best);
    if (is_better) best = s;
  }
  tsr__free(reach);
  tsr__free(seen);
  return best;
}

/* Whether all that a module runs comes again: then it was called again. What only the first call makes (a
 * mask, a buffer) may come once, within the first round. */
static bool is_called_again(const runs *list, const symbols *all, const symbol *head) {
  uint32_t second = head->first_run + 1;
  while (list->items[second].symbol != list->items[head->first_run].symbol) second++;
  for (uint32_t i = 0; i < list->count; i++) {
    const symbol *s = &all->items[list->items[i].symbol];
    if (s->runs == 1 && (i < head->first_run || i > second)) return false;
  }
  return true;
}

/* ---- Rounds ---- */

static void fill_bag(const finder *f, uint32_t first, uint32_t last, tsr__bag *bag) {
  for (uint32_t i = first; i <= last; i++)
    if (is_forward(f, &f->items[i])) tsr__bag_add(bag, f->callers.inner[f->items[i].stack]);
}

static uint32_t call_of(const finder *f, uint32_t first, uint32_t last) {
  for (uint32_t i = first; i <= last; i++) {
    uint32_t stack = f->items[i].stack;
    for (uint32_t k = f->callers.at[stack]; k < f->callers.at[stack + 1]; k++) {
      uint8_t kind = f->callers.kind[f->callers.frames[k]];
      if ((kind & TSR__CALLER_FORWARD) && !(kind & TSR__CALLER_TORCH)) return f->callers.frames[k];
    }
  }
  return TSR_NONE;
}

static bool add_round(const finder *f, rounds *out, uint32_t first, uint32_t last, bool is_whole) {
  round r = {f->items[first].event,  f->items[last].event, 0, 0, is_whole, {{0}, 0},
             call_of(f, first, last)};
  fill_bag(f, first, last, &r.bag);
  return !r.bag.count || TSR__VECTOR_PUSH(out, r);
}

/* Cut a loop into rounds. The last is whole if it has every line that all before it have, and ends before
 * a line that none of them has: what follows the loop. */
static bool cut_rounds(const finder *f, const runs *list, const symbols *all, const symbol *head,
                       rounds *out) {
  uint32_t *seen = TSR__NEW_ARRAY(uint32_t, all->count); /* rounds before the last that have it */
  uint32_t *round_of = TSR__NEW_ARRAY(uint32_t, all->count); /* the last that counted it */
  uint32_t number = 0, id = list->items[head->first_run].symbol;
  bool ok = seen && round_of, leads = head->first_run != 0;
  for (uint32_t i = 0; ok && i < head->first_run; i++)
    leads &= all->items[list->items[i].symbol].last_run > head->first_run;
  if (ok && leads) /* the recording began within a round */
    ok = add_round(f, out, list->items[0].first, list->items[head->first_run].first - 1, false);
  uint32_t begin = head->first_run;
  for (uint32_t i = begin; ok && i < head->last_run; i++) {
    uint32_t symbol_id = list->items[i].symbol;
    if (symbol_id == id) {
      number++;
      if (i != begin)
        ok = add_round(f, out, list->items[begin].first, list->items[i].first - 1, true);
      begin = i;
    }
    if (round_of[symbol_id] != number) seen[symbol_id]++;
    round_of[symbol_id] = number;
  }
  if (ok)
    ok = add_round(f, out, list->items[begin].first, list->items[head->last_run].first - 1, true);
  uint32_t end = head->last_run, missing = 0;
  for (size_t i = 0; ok && i < all->count; i++) missing += seen[i] == number;
  for (uint32_t i = head->last_run; ok && i < list->count; i++, end = i) {
    uint32_t symbol_id = list->items[i].symbol;
    if (!seen[symbol_id]) break;
    if (round_of[symbol_id] != UINT32_MAX && seen[symbol_id] == number) missing--;
    round_of[symbol_id] = UINT32_MAX;
  }
  assert(!ok || end > head->last_run);
  if (ok)
    ok = add_round(f, out, list->items[head->last_run].first, list->items[end - 1].last, !missing);
  tsr__free(seen);
  tsr__free(round_of);
  return ok;
}

/* ---- Places ---- */

/* Keep the items of a place that have one symbol. */
static void keep_symbol(finder *f, place *p, const runs *list, uint32_t id) {
  uint32_t at = p->first;
  for (uint32_t i = 0; i < list->count; i++) {
    const run *r = &list->items[i];
    if (r->symbol != id) continue;
    memmove(&f->items[at], &f->items[r->first], (r->last - r->first + 1) * sizeof *f->items);
    at += r->last - r->first + 1;
  }
  p->past = at;
}

/* Keep what begins in the function in which most begins: not that of other threads. */
static void keep_root(finder *f, place *p, uint32_t frame) {
  const tsr_snapshot *snapshot = f->t->snapshot;
  tsr_frame root = tsr_snapshot_frame(snapshot, frame);
  uint32_t at = p->first;
  for (uint32_t i = p->first; i < p->past; i++) {
    tsr_frame other = tsr_snapshot_frame(snapshot, frame_at(f, &f->items[i], 0));
    if (other.name == root.name && other.file == root.file) f->items[at++] = f->items[i];
  }
  p->past = at;
}

static uint32_t heaviest_of(const symbols *all) {
  uint32_t best = 0;
  for (uint32_t i = 1; i < all->count; i++)
    if (all->items[i].weight > all->items[best].weight) best = i;
  return best;
}

/* Whether a frame at some depth of a stack is one that torch.compile has translated: it calls nothing but
 * torch and the code that was generated for it. Such a frame runs all of what is below it in one call. */
static bool is_compiled(const finder *f, uint32_t stack, uint32_t depth) {
  uint32_t end = f->callers.at[stack + 1], at = f->callers.at[stack] + depth + 1;
  if (at >= end || !(f->callers.kind[f->callers.frames[at]] & TSR__CALLER_DYNAMO)) return false;
  while (at < end && (f->callers.kind[f->callers.frames[at]] & TSR__CALLER_TORCH)) at++;
  return at == end;
}

/* Go one frame inward, into the only one. False if nothing in it can be a step. */
static bool enter(const finder *f, place *p, uint32_t frame) {
  if (frame == TSR_NONE || (f->callers.kind[frame] & TSR__CALLER_CONTAINER)) return false;
  uint8_t kind = f->callers.kind[frame];
  bool is_call = (kind & TSR__CALLER_FORWARD) && !(kind & TSR__CALLER_TORCH);
  p->modules += is_call && !is_compiled(f, f->items[p->first].stack, p->depth);
  p->in_module |= (kind & TSR__CALLER_MODULE) != 0;
  p->depth++;
  return p->depth < DEPTH_MAX;
}

static bool find_rounds(finder *f, place p, rounds *out, bool *is_loop);

/* Drop the rounds of lines that have only one: such a line is no loop, it calls the model once. */
static void drop_single(rounds *list) {
  size_t kept = 0;
  for (size_t first = 0, past; first < list->count; first = past) {
    past = first + 1;
    while (past < list->count && list->items[past].line == list->items[first].line) past++;
    for (size_t i = first; past - first > 1 && i < past; i++) list->items[kept++] = list->items[i];
  }
  list->count = kept;
}

/* Whether two frames are of one function. */
static bool calls_same(const finder *f, uint32_t a, uint32_t b) {
  if (a == TSR_NONE || b == TSR_NONE) return false;
  tsr_frame x = tsr_snapshot_frame(f->t->snapshot, a), y = tsr_snapshot_frame(f->t->snapshot, b);
  return x.name == y.name && x.file == y.file;
}

/* Keep the rounds that run the same forward as the longest of them; none if all of those are of one line,
 * for that may be the layers of a model, and the other lines what comes before and after them. */
static void keep_alike(const finder *f, rounds *list) {
  size_t longest = 0, kept = 0;
  bool is_of_several = false;
  if (!list->count) return;
  for (size_t i = 1; i < list->count; i++)
    if (list->items[i].bag.count > list->items[longest].bag.count) longest = i;
  round model = list->items[longest];
  for (size_t i = 0; i < list->count; i++)
    if (tsr__bag_likeness(&model.bag, &list->items[i].bag) >= ALIKE ||
        calls_same(f, model.call, list->items[i].call))
      list->items[kept++] = list->items[i];
  for (size_t i = 1; i < kept; i++) is_of_several |= list->items[i].line != list->items[0].line;
  list->count = is_of_several ? kept : 0;
  drop_single(list);
}

/* Keep the rounds of one line. */
static void keep_line(rounds *list, uint32_t line) {
  size_t kept = 0;
  for (size_t i = 0; i < list->count; i++)
    if (list->items[i].line == line) list->items[kept++] = list->items[i];
  list->count = kept;
}

/* Lines of a user's function, none of which comes again. If each calls something several times, these are loops: a
 * model has lines before its layers or after them. A loop in what one of them calls is one; else each
 * that calls the same model is a round. */
static bool find_in_lines(finder *f, const place *p, const runs *list, const symbols *all,
                          rounds *out, bool *is_loop) {
  rounds calls = {0};
  uint64_t loop_weight = 0, most = 0;
  uint32_t heaviest = 0;
  bool ok = true, all_again = true;
  for (uint32_t i = 0; ok && i < list->count; i++) {
    const run *r = &list->items[i];
    const symbol *s = &all->items[r->symbol];
    if (!s->weight) continue;
    place inner = *p;
    rounds found = {0};
    bool is_inner_loop = false;
    size_t before = calls.count;
    ok = add_round(f, &calls, r->first, r->last, true);
    inner.first = r->first;
    inner.past = r->last + 1;
    if (ok && enter(f, &inner, s->frame)) ok = find_rounds(f, inner, &found, &is_inner_loop);
    all_again &= found.count > 1;
    if (s->weight > most) heaviest = i;
    if (s->weight > most) most = s->weight;
    if (ok && is_inner_loop && s->weight > loop_weight) {
      TSR__VECTOR_FREE(out);
      *out = found;
      found = (rounds){0};
      loop_weight = s->weight;
      *is_loop = true;
    } else if (ok && found.count) {
      calls.count = before; /* it makes several */
      for (size_t k = 0; ok && k < found.count; k++) ok = TSR__VECTOR_PUSH(&calls, found.items[k]);
    }
    for (size_t k = before; k < calls.count; k++) calls.items[k].line = i;
    TSR__VECTOR_FREE(&found);
  }
  uint64_t weight = 0;
  for (size_t i = 0; i < all->count; i++) weight += all->items[i].weight;
  if (!ok || loop_weight * 2 >= weight) {
    TSR__VECTOR_FREE(&calls);
    return ok;
  }
  if (f->may_be_small && out->count) {
    TSR__VECTOR_FREE(&calls);
    return true;
  }
  if (f->may_be_small && all_again)
    keep_line(&calls, heaviest);
  else
    keep_alike(f, &calls);
  TSR__VECTOR_FREE(out);
  *out = calls;
  *is_loop = false;
  return true;
}

/* The rounds at a place whose runs are known and of several symbols. `is_done` is false if the place
 * shrank, and is to be looked at again. */
static bool find_in_runs(finder *f, place *p, const runs *list, const symbols *all, rounds *out,
                         bool *is_loop, bool *is_done) {
  uint32_t heaviest = heaviest_of(all), weighty = 0;
  uint64_t weight = 0;
  bool recurs = false, is_module = p->in_module;
  *is_done = true;
  for (size_t i = 0; i < all->count; i++) {
    const symbol *s = &all->items[i];
    weight += s->weight;
    weighty += s->weight != 0;
    recurs |= s->weight && s->runs > 1;
    is_module |=
        s->weight && s->frame != TSR_NONE && (f->callers.kind[s->frame] & TSR__CALLER_FORWARD);
  }
  if (!weight) return true;
  const symbol *head = head_of(f, list, all, weight, is_module);
  if (!head && !is_module && all->items[heaviest].runs > 1) { /* it is in some loop */
    bool may_be_small = f->may_be_small;
    f->may_be_small = true;
    head = head_of(f, list, all, weight, false);
    f->may_be_small = may_be_small;
  }
  if (is_module && (!head || p->modules || !is_called_again(list, all, head))) return true;
  if (head) {
    *is_loop = !is_module;
    return cut_rounds(f, list, all, head, out);
  }
  if (weighty > 1 && !recurs) return find_in_lines(f, p, list, all, out, is_loop);
  keep_symbol(f, p, list, heaviest);
  *is_done = false;
  return true;
}

static bool find_rounds(finder *f, place p, rounds *out, bool *is_loop) {
  bool ok = true, is_done = false;
  while (ok && !is_done) {
    runs list = {0};
    symbols all = {0};
    ok = read_runs(f, &p, &list, &all);
    uint32_t before = p.past;
    assert(!ok || all.count); /* a place has items, and so symbols */
    if (ok && !p.depth) keep_root(f, &p, all.items[heaviest_of(&all)].frame);
    if (ok && p.past == before) {
      if (all.count == 1)
        is_done = !enter(f, &p, all.items[0].frame);
      else
        ok = find_in_runs(f, &p, &list, &all, out, is_loop, &is_done);
    }
    TSR__VECTOR_FREE(&list);
    TSR__VECTOR_FREE(&all);
  }
  return ok;
}

/* ---- Steps ---- */

/* The allocations of a stack in first .. last. */
static uint32_t count_of(const tsr__timeline *t, uint32_t first, uint32_t last, uint32_t stack) {
  uint32_t count = 0;
  for (uint32_t e = first; e <= last; e++)
    count += t->events.action[e] == TSR_ACTION_ALLOC && t->events.stack[e] == stack;
  return count;
}

/* Where memory ran out after the last round, which has all its lines: a round may have begun with that
 * request. It has if rounds make that request, and the last one made it as often as the one before. */
static bool begins_round(const tsr__timeline *t, const rounds *list, uint32_t stop) {
  const round *last = &list->items[list->count - 1];
  const round *before = list->count > 1 ? last - 1 : last;
  uint32_t stack = t->events.stack[stop];
  uint32_t made = count_of(t, last->first_event, last->last_event, stack);
  return made && made >= count_of(t, before->first_event, before->last_event, stack);
}

/* Whether the failure at the event `stop` is the first request after the last round. */
static bool follows(const tsr__timeline *t, const rounds *list, uint32_t stop) {
  uint32_t last = list->items[list->count - 1].last_event;
  if (stop <= last) return false;
  for (uint32_t e = last + 1; e < stop; e++)
    if (t->events.action[e] == TSR_ACTION_ALLOC) return false;
  return true;
}

/* Where a round ends that nothing of its loop follows: before the next allocation. */
static uint32_t end_of(const tsr__timeline *t, const round *r, uint32_t past) {
  assert(r);
  for (uint32_t e = r->last_event + 1; e < past; e++)
    if (t->events.action[e] == TSR_ACTION_ALLOC) return e;
  return past;
}

/* Steps of one loop follow each other without gaps; its last ends before what is allocated after it. One that
 * memory ended (`stop`, or NULL) is one even if that was its first request. */
static bool make_steps(const tsr__timeline *t, const rounds *list, const tsr__failure *stop,
                       tsr__cycle_steps *out) {
  uint32_t end = (uint32_t)t->events.count;
  bool has_died = stop && list->count && follows(t, list, stop->event);
  for (size_t i = 0; i < list->count; i++) {
    const round *r = &list->items[i], *next = i + 1 < list->count ? r + 1 : NULL;
    uint32_t past = next ? next->first_event : end;
    if (!next || next->loop != r->loop) past = end_of(t, r, past);
    if (!next && has_died && r->is_whole) past = stop->event;
    if (past <= r->first_event) continue;
    if (!TSR__VECTOR_PUSH(out, (tsr__cycle_step){r->first_event, past - 1, r->is_whole}))
      return false;
  }
  if (!has_died || !list->items[list->count - 1].is_whole) return true;
  if (!begins_round(t, list, stop->event)) return true;
  return TSR__VECTOR_PUSH(out, (tsr__cycle_step){stop->event, end - 1, false});
}

/* ---- All loops ---- */

/* Items first .. past - 1 of the trace, which may have a loop. */
typedef struct range {
  uint32_t first, past;
} range;

typedef struct search {
  finder f;
  item *all; /* the items of the trace; `f.items` is a copy of some */
  uint32_t count;
  TSR__VECTOR(range) open;
  rounds found;
  uint32_t loops, places;
} search;

/* The first item at an event or after it. */
static uint32_t item_at(const search *s, uint64_t event) {
  uint32_t low = 0, high = s->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (s->all[middle].event < event)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Examine a range later if it may have two rounds. */
static bool put_off(search *s, uint32_t first, uint32_t past) {
  uint32_t weight = 0;
  for (uint32_t i = first; i < past && weight < 2; i++) weight += is_forward(&s->f, &s->all[i]);
  return weight < 2 || TSR__VECTOR_PUSH(&s->open, (range){first, past});
}

/* What a loop does not cover may have others: before it, after it, and between its rounds. Rounds of several lines
 * are several loops. */
static bool add_loop(search *s, range at, const rounds *list) {
  uint32_t from = at.first;
  bool ok = true;
  for (size_t i = 0; ok && i < list->count; i++) {
    round r = list->items[i];
    s->loops += i && r.line != list->items[i - 1].line;
    r.loop = s->loops;
    ok = put_off(s, from, item_at(s, r.first_event)) && TSR__VECTOR_PUSH(&s->found, r);
    from = item_at(s, (uint64_t)r.last_event + 1);
  }
  s->loops++;
  return ok && put_off(s, from, at.past);
}

static bool examine(search *s, range at, bool may_be_small, rounds *list) {
  bool is_loop = false;
  uint32_t count = at.past - at.first;
  memcpy(s->f.items, &s->all[at.first], count * sizeof *s->all);
  s->f.may_be_small = may_be_small;
  list->count = 0;
  return find_rounds(&s->f, (place){.past = count}, list, &is_loop);
}

static int compare_rounds(const void *a, const void *b) {
  const round *x = a, *y = b;
  return (x->first_event > y->first_event) - (x->first_event < y->first_event);
}

/* The loop that has most of the weight first, and then in what it leaves. */
static bool find_loops(search *s, range all) {
  bool ok = TSR__VECTOR_PUSH(&s->open, all);
  while (ok && s->open.count && s->places++ < PLACES_MAX) {
    range at = s->open.items[--s->open.count];
    rounds list = {0};
    ok = examine(s, at, false, &list);
    if (ok && list.count < 2) ok = examine(s, at, true, &list);
    if (ok && list.count > 1) ok = add_loop(s, at, &list);
    TSR__VECTOR_FREE(&list);
  }
  tsr__sort(s->found.items, s->found.count, sizeof *s->found.items, compare_rounds);
  return ok;
}

static bool begin_search(search *s, const tsr__timeline *timeline, const tsr__roles *roles,
                         uint64_t *weight) {
  size_t most = timeline->birth.count - timeline->initial.count;
  *s = (search){.f = {.t = timeline, .roles = roles}};
  s->all = TSR__NEW_ARRAY(item, most);
  s->f.items = TSR__NEW_ARRAY(item, most);
  if (!s->all || !s->f.items || !tsr__callers_read(timeline->snapshot, &s->f.callers)) return false;
  s->count = read_items(&s->f, s->all, weight);
  return true;
}

static void end_search(search *s) {
  tsr__callers_release(&s->f.callers);
  TSR__VECTOR_FREE(&s->open);
  TSR__VECTOR_FREE(&s->found);
  tsr__free(s->all);
  tsr__free(s->f.items);
}

bool tsr__loop_find_in(const tsr__timeline *timeline, const tsr__roles *roles,
                       const tsr__cycle_step *ranges, size_t range_count, tsr__cycle_steps *out) {
  search s;
  uint64_t weight = 0;
  bool ok = begin_search(&s, timeline, roles, &weight);
  for (size_t i = 0; ok && i < range_count; i++) {
    range at = {item_at(&s, ranges[i].first), item_at(&s, (uint64_t)ranges[i].last + 1)};
    s.found.count = s.open.count = s.places = 0;
    ok = at.first >= at.past || find_loops(&s, at);
    for (size_t k = 0; ok && k < s.found.count; k++) {
      const round *r = &s.found.items[k], *next = k + 1 < s.found.count ? r + 1 : NULL;
      uint32_t past = next ? next->first_event : (uint32_t)timeline->events.count;
      if (!next || next->loop != r->loop) past = end_of(timeline, r, past);
      ok = TSR__VECTOR_PUSH(out, (tsr__cycle_step){r->first_event, past - 1, r->is_whole});
    }
  }
  end_search(&s);
  return ok;
}

bool tsr__loop_find(const tsr__timeline *timeline, const tsr__roles *roles,
                    const tsr__failure *stop, tsr__cycle_steps *out, bool *shows_forward) {
  assert(timeline->birth.count >= timeline->initial.count && !out->count);
  search s;
  uint64_t weight = 0;
  bool ok = begin_search(&s, timeline, roles, &weight);
  *shows_forward = weight != 0;
  if (ok && weight) ok = find_loops(&s, (range){0, s.count});
  if (ok) ok = make_steps(timeline, &s.found, stop, out);
  end_search(&s);
  return ok;
}
