/* modules.c - candidates for plans of step graphs: what each module keeps for backward.
 *
 *   calls of modules ──► units in sequence ──► chain solver, with options of each unit ──┐
 *                   └──► classes: all of one ────────────────────────────────────────────┴─► lists of modules ──► simulated
 *
 * A unit is a child of a ModuleList or Sequential, by its name (layers.0), outermost first, or a module that is
 * called next to those, such as an embedding or a head. The solver may checkpoint a whole unit (a pass of the chain),
 * offload it, do either to all parts of one class within it, or keep it. The solver's sums of bytes are only
 * estimates: its plans are simulated afterwards. So if a program's modules are no chain, as in a U-Net, better
 * candidates may be missed, but results are right. */
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "plan/chain.h"
#include "plan/planner.h"

enum {
  OPTIONS = 12,       /* of a unit, besides the whole unit checkpointed */
  PLANS = 64,         /* of the solver */
  KINDS = 24,         /* classes of which all modules are tried */
  SLOTS = 500,        /* of the solver */
  SLOT_UNITS = 32000, /* slots * units at most, beyond which slots are larger */
  MOST_UNITS = 400,   /* that the solver is asked about */
};

/* A choice for the outermost parts of one class within a unit, or for the unit itself. */
typedef struct option {
  const char *kind; /* NULL: the unit */
  tsr_module_how how;
  bool is_keep;
  uint64_t saves_bytes;
  double seconds;
} option;

typedef struct unit {
  size_t part;
  option options[OPTIONS];
  size_t option_count;
  tsr__chain_option chain[OPTIONS];
} unit;

typedef struct search {
  tsr_planning *planning;
  tsr__way *way;
  tsr__graph_parts parts;
  TSR__VECTOR(unit) units;
} search;

static bool may(const search *s, tsr_module_how how) {
  return s->planning->allow &
         (how == TSR_MODULE_CHECKPOINT ? TSR_ALLOW_RECOMPUTE : TSR_ALLOW_OFFLOAD);
}

static bool can(const tsr__graph_part *part, tsr_module_how how) {
  return !part->is_fixed && (how != TSR_MODULE_CHECKPOINT || !part->is_once);
}

/* ---- units ---- */

/* Where the number begins that ends a name: "layers.12" has it at 7. The name's length without a number. */
static size_t number_at(const char *name) {
  size_t length = strlen(name), at = length;
  while (at && isdigit((unsigned char)name[at - 1])) at--;
  return at < length && at && name[at - 1] == '.' ? at : length;
}

/* layers.0 and layers.1, which are called within the same module. */
static bool are_siblings(const tsr__graph_part *a, const tsr__graph_part *b) {
  size_t at = number_at(a->name);
  return a->name[at] && a->parent == b->parent && number_at(b->name) == at &&
         strncmp(a->name, b->name, at) == 0 && strcmp(a->name, b->name) != 0;
}

static bool has_sibling(const search *s, size_t i) {
  for (size_t k = 0; k < s->parts.count; k++)
    if (are_siblings(&s->parts.items[i], &s->parts.items[k])) return true;
  return false;
}

static bool is_within(const search *s, size_t part, size_t outer) {
  for (; part != TSR__NO_PART; part = s->parts.items[part].parent)
    if (part == outer) return true;
  return false;
}

/* Numbered calls, the outermost; then, for `has_unit`, all that contains one. */
static void mark_numbered(const search *s, bool *is_unit, bool *has_unit) {
  for (size_t i = 0; i < s->parts.count; i++) {
    size_t parent = s->parts.items[i].parent;
    bool is_inner = parent != TSR__NO_PART && is_unit[parent];
    is_unit[i] = is_inner || (*s->parts.items[i].name && has_sibling(s, i));
  }
  for (size_t i = s->parts.count; i-- > 0;) { /* of units within each other the outer ones */
    size_t parent = s->parts.items[i].parent;
    if (is_unit[i] && parent != TSR__NO_PART && is_unit[parent]) is_unit[i] = false;
  }
  for (size_t i = 0; i < s->parts.count; i++)
    for (size_t k = s->parts.items[i].parent; is_unit[i] && k != TSR__NO_PART;
         k = s->parts.items[k].parent)
      has_unit[k] = true;
}

static int list_units(search *s, tsr_error *error) {
  bool *is_unit = TSR__NEW_ARRAY(bool, s->parts.count + 1);
  bool *has_unit = TSR__NEW_ARRAY(bool, s->parts.count + 1);
  bool ok = is_unit && has_unit;
  if (ok) mark_numbered(s, is_unit, has_unit);
  for (size_t i = 0; ok && i < s->parts.count; i++) {
    size_t parent = s->parts.items[i].parent;
    bool is_beside = !has_unit[i] && (parent == TSR__NO_PART || has_unit[parent]);
    if (is_unit[i] || is_beside) ok = TSR__VECTOR_PUSH(&s->units, (unit){.part = i});
  }
  tsr__free(is_unit);
  tsr__free(has_unit);
  return ok ? 0 : tsr__fail_memory(error);
}

/* Count the units that read results of a unit other than their neighbour: such units are no chain. */
static size_t count_far(const search *s) {
  size_t count = 0;
  for (size_t i = 2; i < s->units.count; i++) {
    uint32_t made = s->parts.items[s->units.items[i].part].first_input;
    bool is_far = false;
    for (size_t k = 0; k + 1 < i && !is_far; k++) {
      const tsr__graph_part *other = &s->parts.items[s->units.items[k].part];
      is_far = made >= other->begin && made < other->end;
    }
    count += is_far;
  }
  return count;
}

/* ---- options of a unit ---- */

/* The outermost parts of a class within a part: what the choice does for them together. They are added to the plan, which may be
 * NULL; then `*ok` becomes false when out of memory. */
static option sum_of(const search *s, size_t outer, const char *kind, tsr_module_how how,
                     tsr_run_plan *plan, bool *ok) {
  option sum = {.kind = kind, .how = how};
  size_t last = TSR__NO_PART;
  for (size_t i = outer; i < s->parts.count && is_within(s, i, outer); i++) {
    const tsr__graph_part *part = &s->parts.items[i];
    bool is_inner = last != TSR__NO_PART && is_within(s, i, last);
    bool is_chosen = kind ? strcmp(part->kind, kind) == 0 : i == outer;
    if (!is_chosen || is_inner || !can(part, how) || !*part->name) continue;
    last = i;
    sum.saves_bytes += how == TSR_MODULE_CHECKPOINT ? part->again_bytes : part->moved_bytes;
    sum.seconds += how == TSR_MODULE_CHECKPOINT ? part->again_s : part->copies_s;
    if (plan) *ok = *ok && tsr__run_plan_add_module(plan, part->name, how);
  }
  return sum;
}

/* Keep the options for which no other saves more in less time. If there is no room, the one that saves the fewest
 * bytes per second is removed. */
static void add_option(unit *u, const option *o) {
  assert(u->option_count && u->options[0].is_keep && u->option_count <= OPTIONS);
  if (!o->saves_bytes) return;
  for (size_t i = 0; i < u->option_count; i++)
    if (u->options[i].saves_bytes >= o->saves_bytes && u->options[i].seconds <= o->seconds) return;
  size_t kept = 0;
  for (size_t i = 0; i < u->option_count; i++)
    if (u->options[i].is_keep || u->options[i].saves_bytes > o->saves_bytes ||
        u->options[i].seconds < o->seconds)
      u->options[kept++] = u->options[i];
  u->option_count = kept;
  size_t at = kept;
  if (kept == OPTIONS) {
    at = 1;
    for (size_t i = 2; i < kept; i++)
      if ((double)u->options[i].saves_bytes / fmax(u->options[i].seconds, 1e-9) <
          (double)u->options[at].saves_bytes / fmax(u->options[at].seconds, 1e-9))
        at = i;
  } else {
    u->option_count++;
  }
  u->options[at] = *o;
}

static void list_options(const search *s, unit *u) {
  u->options[0] = (option){.is_keep = true};
  u->option_count = 1;
  for (size_t i = u->part; i < s->parts.count && is_within(s, i, u->part); i++)
    for (int how = 0; how <= TSR_MODULE_OFFLOAD; how++) {
      bool is_whole = i == u->part;
      if (!may(s, (tsr_module_how)how) || (is_whole && how == TSR_MODULE_CHECKPOINT)) continue;
      option o = sum_of(s, u->part, is_whole ? NULL : s->parts.items[i].kind, (tsr_module_how)how,
                        NULL, NULL);
      add_option(u, &o);
    }
}

/* ---- the chain ---- */

static const tsr__graph_part *part_of(const search *s, const unit *u) {
  return &s->parts.items[u->part];
}

static uint64_t less(uint64_t bytes, uint64_t taken) {
  return taken < bytes ? bytes - taken : 0;
}

/* So long that it is never chosen. */
#define NEVER_S 1e9

static void fill_block(const search *s, unit *u, tsr__chain_block *block) {
  const tsr__graph_part *part = part_of(s, u);
  uint64_t kept = part->moved_bytes > part->again_bytes ? part->moved_bytes : part->again_bytes;
  assert(u->option_count && part->again_s >= 0 && part->forward_s >= part->again_s);
  bool may_pass = may(s, TSR_MODULE_CHECKPOINT) && can(part, TSR_MODULE_CHECKPOINT) && *part->name;
  for (size_t i = 0; i < u->option_count; i++)
    u->chain[i] = (tsr__chain_option){.saved_bytes = less(kept, u->options[i].saves_bytes),
                                      .forward_s = part->forward_s,
                                      .backward_s = u->options[i].seconds};
  *block = (tsr__chain_block){.input_bytes = part->input_bytes,
                              .pass_s = may_pass ? part->again_s : NEVER_S,
                              .options = u->chain,
                              .option_count = u->option_count};
}

/* The part with the choice goes into the plan. False when out of memory. */
static bool choose(const search *s, size_t part, const char *kind, tsr_module_how how,
                   tsr_run_plan *plan) {
  bool ok = true;
  (void)sum_of(s, part, kind, how, plan, &ok);
  return ok;
}

/* Takes the plan over; NULL is out of memory. */
static bool add_candidate(search *s, tsr_run_plan *plan) {
  tsr__candidates *all = &s->way->candidates;
  for (size_t i = 0; plan && i < all->count; i++)
    if (tsr__run_plan_equal(plan, all->items[i].plan)) {
      tsr_run_plan_free(plan);
      return true;
    }
  if (plan && TSR__VECTOR_PUSH(all, (tsr__candidate){.plan = plan})) return true;
  tsr_run_plan_free(plan);
  return false;
}

static bool add_plan(search *s, const tsr__chain_plan *chain) {
  tsr_run_plan *plan = tsr__run_plan_copy(s->way->plan);
  size_t next = 0;
  bool ok = plan != NULL;
  for (size_t i = 0; ok && i < chain->count && next < s->units.count; i++) {
    const tsr__chain_step *step = &chain->steps[i];
    if (step->kind == TSR__CHAIN_BACKWARD || step->block != next) continue;
    const unit *u = &s->units.items[next++];
    assert(step->option < u->option_count);
    const option *o = &u->options[step->option];
    if (step->kind == TSR__CHAIN_PASS)
      ok = choose(s, u->part, NULL, TSR_MODULE_CHECKPOINT, plan);
    else if (!o->is_keep)
      ok = choose(s, u->part, o->kind, o->how, plan);
  }
  if (ok) return add_candidate(s, plan);
  tsr_run_plan_free(plan);
  return false;
}

static int solve_chain(search *s, tsr_error *error) {
  size_t count = s->units.count, found = 0;
  tsr__chain_plan plans[PLANS];
  if (!count || count > MOST_UNITS) return 0;
  tsr__chain_block *blocks = TSR__NEW_ARRAY(tsr__chain_block, count);
  if (!blocks) return tsr__fail_memory(error);
  uint64_t most = 1;
  for (size_t i = 0; i < count; i++) {
    fill_block(s, &s->units.items[i], &blocks[i]);
    most += blocks[i].options[0].saved_bytes + 2 * blocks[i].input_bytes + (1 << 20);
  }
  tsr__chain chain = {.blocks = blocks, .count = count, .longest = 1};
  uint32_t slots = count * SLOTS > SLOT_UNITS ? (uint32_t)(SLOT_UNITS / count) : SLOTS;
  int status = tsr__chain_front(&chain, most, slots, plans, PLANS, &found, error);
  for (size_t i = 0; i < found; i++) {
    if (status == 0 && plans[i].time_s < NEVER_S && !add_plan(s, &plans[i]))
      status = tsr__fail_memory(error);
    tsr__chain_plan_release(&plans[i]);
  }
  tsr__free(blocks);
  return status;
}

/* ---- classes ---- */

typedef struct kind_choice {
  const char *kind;
  tsr_module_how how;
  uint64_t bytes;
} kind_choice;

static int compare_kinds(const void *left, const void *right) {
  const kind_choice *a = left, *b = right;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  int order = strcmp(a->kind, b->kind);
  return order ? order : (int)a->how - (int)b->how;
}

/* A candidate with all outermost parts of a class, in the whole graph. */
static bool add_kind(search *s, const kind_choice *choice) {
  tsr_run_plan *plan = tsr__run_plan_copy(s->way->plan);
  bool ok = plan != NULL;
  for (size_t i = 0; ok && i < s->parts.count; i++)
    if (s->parts.items[i].parent == TSR__NO_PART)
      ok = choose(s, i, choice->kind, choice->how, plan);
  if (ok) return add_candidate(s, plan);
  tsr_run_plan_free(plan);
  return false;
}

/* The classes whose parts keep most. */
static int add_kinds(search *s, tsr_error *error) {
  TSR__VECTOR(kind_choice) all = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < s->parts.count; i++) {
    const tsr__graph_part *part = &s->parts.items[i];
    for (int how = 0; ok && how <= TSR_MODULE_OFFLOAD; how++) {
      size_t k = 0;
      if (!may(s, (tsr_module_how)how) || !can(part, (tsr_module_how)how)) continue;
      while (k < all.count &&
             (strcmp(all.items[k].kind, part->kind) != 0 || (int)all.items[k].how != how))
        k++;
      if (k == all.count)
        ok = TSR__VECTOR_PUSH(&all, (kind_choice){part->kind, (tsr_module_how)how, 0});
      if (ok)
        all.items[k].bytes += how == TSR_MODULE_CHECKPOINT ? part->again_bytes : part->moved_bytes;
    }
  }
  if (ok && all.count) qsort(all.items, all.count, sizeof *all.items, compare_kinds);
  for (size_t i = 0; ok && i < all.count && i < KINDS; i++)
    if (all.items[i].bytes) ok = add_kind(s, &all.items[i]);
  TSR__VECTOR_FREE(&all);
  return ok ? 0 : tsr__fail_memory(error);
}

/* All units offloaded: often the plan with the least memory. */
static int add_all_offloaded(search *s, tsr_error *error) {
  if (!may(s, TSR_MODULE_OFFLOAD)) return 0;
  tsr_run_plan *plan = tsr__run_plan_copy(s->way->plan);
  bool ok = plan != NULL;
  for (size_t i = 0; ok && i < s->units.count; i++)
    ok = choose(s, s->units.items[i].part, NULL, TSR_MODULE_OFFLOAD, plan);
  if (ok) return add_candidate(s, plan) ? 0 : tsr__fail_memory(error);
  tsr_run_plan_free(plan);
  return tsr__fail_memory(error);
}

/* ---- all of it ---- */

static int compare_candidates(const void *left, const void *right) {
  const tsr__candidate *a = left, *b = right;
  if (a->cost.is_possible != b->cost.is_possible) return a->cost.is_possible ? -1 : 1;
  if (a->cost.step_seconds < b->cost.step_seconds || a->cost.step_seconds > b->cost.step_seconds)
    return a->cost.step_seconds < b->cost.step_seconds ? -1 : 1;
  return (a->cost.reserved_bytes > b->cost.reserved_bytes) -
         (a->cost.reserved_bytes < b->cost.reserved_bytes);
}

/* Simulate all, the fastest first, and the leanest once more at the end, where a search looks first. */
static int rank(search *s, tsr_error *error) {
  tsr__candidates *all = &s->way->candidates;
  size_t least = 0;
  for (size_t i = 0; i < all->count; i++) {
    tsr__candidate *c = &all->items[i];
    int status = tsr__planner_measure(s->planning, c->plan, &c->cost, error);
    if (status) return status;
    c->is_measured = true;
  }
  if (!all->count) return 0;
  qsort(all->items, all->count, sizeof *all->items, compare_candidates);
  for (size_t i = 0; i < all->count; i++)
    if (all->items[i].cost.is_possible &&
        all->items[i].cost.reserved_bytes < all->items[least].cost.reserved_bytes)
      least = i;
  tsr__candidate last = all->items[least];
  last.plan = tsr__run_plan_copy(last.plan);
  if (last.plan && TSR__VECTOR_PUSH(all, last)) return 0;
  tsr_run_plan_free(last.plan);
  return tsr__fail_memory(error);
}

int tsr__planner_list_modules(tsr_planning *planning, tsr__way *way, tsr_error *error) {
  search s = {.planning = planning, .way = way};
  tsr__machine_rates rates;
  if (!tsr__rates_for(&planning->how, tsr__gpu_of(&planning->how), &rates))
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "step times need --gpu or --rates");
  int status = add_candidate(&s, tsr__run_plan_copy(way->plan)) ? 0 : tsr__fail_memory(error);
  if (status == 0) status = tsr__list_parts(planning->model->graph, &rates, &s.parts, error);
  if (status == 0 && !s.parts.count)
    status = tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                       "this step graph does not contain its modules, as those of several ranks do "
                       "not: if it is of one, trace it again");
  if (status == 0) status = list_units(&s, error);
  planning->unit_count = s.units.count;
  planning->far_count = count_far(&s);
  for (size_t i = 0; status == 0 && i < s.units.count; i++) list_options(&s, &s.units.items[i]);
  if (status == 0) status = solve_chain(&s, error);
  if (status == 0) status = add_kinds(&s, error);
  if (status == 0) status = add_all_offloaded(&s, error);
  if (status == 0) status = rank(&s, error);
  way->is_listed = status == 0;
  TSR__VECTOR_FREE(&s.parts);
  TSR__VECTOR_FREE(&s.units);
  return status;
}
