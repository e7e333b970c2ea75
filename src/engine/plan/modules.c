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
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"
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
  uint32_t last_end; /* where the last of the units up to this one ends */
  option options[OPTIONS];
  size_t option_count;
  tsr__chain_option chain[OPTIONS];
} unit;

/* The options of a class within the unit that it was last met in. */
typedef struct class_sum {
  const unit *unit;
  size_t end_part[TSR_MODULE_OFFLOAD + 1]; /* of the last part that was added */
  option options[TSR_MODULE_OFFLOAD + 1];
} class_sum;

typedef struct search {
  tsr_planning *planning;
  tsr__way *way;
  tsr__graph_parts parts;
  size_t *class_of; /* by part: equal texts have the same number */
  class_sum *classes;
  TSR__VECTOR(unit) units;
} search;

static bool may(const search *s, tsr_module_how how) {
  return s->planning->allow &
         (how == TSR_MODULE_CHECKPOINT ? TSR_ALLOW_RECOMPUTE : TSR_ALLOW_OFFLOAD);
}

/* ---- classes of modules ---- */

typedef struct class_name {
  const char *kind;
  size_t part;
} class_name;

static int compare_names(const void *left, const void *right) {
  const class_name *a = left, *b = right;
  return strcmp(a->kind, b->kind);
}

static bool number_classes(search *s) {
  size_t count = s->parts.count, class = 0;
  class_name *names = TSR__NEW_ARRAY(class_name, count + 1);
  s->class_of = TSR__NEW_ARRAY(size_t, count + 1);
  s->classes = TSR__NEW_ARRAY(class_sum, count + 1);
  bool ok = names && s->class_of && s->classes;
  for (size_t i = 0; ok && i < count; i++) names[i] = (class_name){s->parts.items[i].kind, i};
  if (ok && count) tsr__sort(names, count, sizeof *names, compare_names);
  for (size_t i = 0; ok && i < count; i++) {
    class += i && compare_names(&names[i - 1], &names[i]) != 0;
    s->class_of[names[i].part] = class;
  }
  tsr__free(names);
  return ok;
}

static bool can(const tsr__graph_part *part, tsr_module_how how) {
  return !part->is_fixed && (how != TSR_MODULE_CHECKPOINT || !part->is_once);
}

/* ---- units ---- */

/* Where the number begins that ends a name: "layers.12" has it at 7, and "12", of a program that is a Sequential, at 0. The name's length
 * without a number. */
static size_t number_at(const char *name) {
  size_t length = strlen(name), at = length;
  while (at && isdigit((unsigned char)name[at - 1])) at--;
  return at < length && (!at || name[at - 1] == '.') ? at : length;
}

/* A call whose name ends in a number. */
typedef struct numbered {
  const char *name;
  size_t part, parent, number_at;
} numbered;

/* By the module that they are called in, and by what is before the number. */
static int compare_lists(const numbered *a, const numbered *b) {
  if (a->parent != b->parent) return a->parent < b->parent ? -1 : 1;
  if (a->number_at != b->number_at) return a->number_at < b->number_at ? -1 : 1;
  return strncmp(a->name, b->name, a->number_at);
}

static int compare_numbered(const void *left, const void *right) {
  const numbered *a = left, *b = right;
  int order = compare_lists(a, b);
  return order ? order : strcmp(a->name, b->name);
}

/* Mark layers.0 and layers.1, which are called within the same module, but not what is called alone, however often. */
static bool mark_siblings(const search *s, bool *has_sibling) {
  TSR__VECTOR(numbered) all = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < s->parts.count; i++) {
    const tsr__graph_part *part = &s->parts.items[i];
    size_t at = number_at(part->name);
    if (part->name[at]) ok = TSR__VECTOR_PUSH(&all, (numbered){part->name, i, part->parent, at});
  }
  if (ok && all.count) tsr__sort(all.items, all.count, sizeof *all.items, compare_numbered);
  for (size_t first = 0, end; ok && first < all.count; first = end) {
    for (end = first + 1; end < all.count; end++)
      if (compare_lists(&all.items[first], &all.items[end]) != 0) break;
    bool is_list = strcmp(all.items[first].name, all.items[end - 1].name) != 0;
    for (size_t i = first; is_list && i < end; i++) has_sibling[all.items[i].part] = true;
  }
  TSR__VECTOR_FREE(&all);
  return ok;
}

/* Numbered calls with siblings, the outermost; then, for `has_unit`, all that contains one. */
static void mark_units(const search *s, bool *is_unit, bool *has_unit) {
  for (size_t i = 0; i < s->parts.count; i++) {
    size_t parent = s->parts.items[i].parent;
    is_unit[i] = is_unit[i] || (parent != TSR__NO_PART && is_unit[parent]);
  }
  for (size_t i = s->parts.count; i-- > 0;) { /* of units within each other the outer ones */
    size_t parent = s->parts.items[i].parent;
    if (is_unit[i] && parent != TSR__NO_PART && is_unit[parent]) is_unit[i] = false;
  }
  for (size_t i = s->parts.count; i-- > 0;) {
    size_t parent = s->parts.items[i].parent;
    if (parent != TSR__NO_PART && (is_unit[i] || has_unit[i])) has_unit[parent] = true;
  }
}

static int list_units(search *s, tsr_error *error) {
  bool *is_unit = TSR__NEW_ARRAY(bool, s->parts.count + 1);
  bool *has_unit = TSR__NEW_ARRAY(bool, s->parts.count + 1);
  bool ok = is_unit && has_unit && mark_siblings(s, is_unit);
  if (ok) mark_units(s, is_unit, has_unit);
  for (size_t i = 0; ok && i < s->parts.count; i++) {
    size_t parent = s->parts.items[i].parent;
    bool is_beside = !has_unit[i] && (parent == TSR__NO_PART || has_unit[parent]);
    if (is_unit[i] || is_beside) ok = TSR__VECTOR_PUSH(&s->units, (unit){.part = i});
  }
  tsr__free(is_unit);
  tsr__free(has_unit);
  return ok ? 0 : tsr__fail_memory(error);
}

static const tsr__graph_part *part_of(const search *s, const unit *u) {
  return &s->parts.items[u->part];
}

/* The number of units that begin at an instruction or before it. */
static size_t begun_at(const search *s, uint32_t at) {
  size_t low = 0, high = s->units.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (part_of(s, &s->units.items[middle])->begin <= at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Count the units that read results of a unit other than their neighbour: such units are no chain. */
static size_t count_far(search *s) {
  size_t count = 0;
  uint32_t last_end = 0;
  for (size_t i = 0; i < s->units.count; i++) {
    unit *u = &s->units.items[i];
    if (part_of(s, u)->end > last_end) last_end = part_of(s, u)->end;
    u->last_end = last_end;
  }
  for (size_t i = 2; i < s->units.count; i++) {
    uint32_t made = part_of(s, &s->units.items[i])->first_input;
    size_t before = made == TSR_NONE ? 0 : begun_at(s, made);
    if (before > i - 1) before = i - 1;
    count += before && made < s->units.items[before - 1].last_end;
  }
  return count;
}

/* ---- options of a unit ---- */

/* Whether it can be in a plan. */
static bool is_free(const tsr__graph_part *part, tsr_module_how how) {
  return can(part, how) && *part->name;
}

static void add_part(option *sum, const tsr__graph_part *part) {
  bool is_again = sum->how == TSR_MODULE_CHECKPOINT;
  sum->saves_bytes += is_again ? part->again_bytes : part->moved_bytes;
  sum->seconds += is_again ? part->again_s : part->copies_s;
}

/* Sum up the outermost parts of each class within a unit, for both choices. */
static void sum_classes(search *s, const unit *u) {
  for (size_t i = u->part; i < part_of(s, u)->end_part; i++) {
    const tsr__graph_part *part = &s->parts.items[i];
    class_sum *class = &s->classes[s->class_of[i]];
    if (class->unit != u) {
      *class = (class_sum){.unit = u};
      for (int how = 0; how <= TSR_MODULE_OFFLOAD; how++)
        class->options[how] = (option){.kind = part->kind, .how = (tsr_module_how)how};
    }
    for (int how = 0; how <= TSR_MODULE_OFFLOAD; how++) {
      if (i < class->end_part[how] || !is_free(part, (tsr_module_how)how)) continue;
      class->end_part[how] = part->end_part;
      add_part(&class->options[how], part);
    }
  }
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

static void list_options(search *s, unit *u) {
  const tsr__graph_part *whole = part_of(s, u);
  u->options[0] = (option){.is_keep = true};
  u->option_count = 1;
  sum_classes(s, u);
  for (size_t i = u->part; i < whole->end_part; i++)
    for (int how = 0; how <= TSR_MODULE_OFFLOAD; how++) {
      bool is_whole = i == u->part;
      if (!may(s, (tsr_module_how)how) || (is_whole && how == TSR_MODULE_CHECKPOINT)) continue;
      option o = {.how = (tsr_module_how)how};
      if (is_whole && is_free(whole, (tsr_module_how)how)) add_part(&o, whole);
      add_option(u, is_whole ? &o : &s->classes[s->class_of[i]].options[how]);
    }
}

/* ---- the chain ---- */

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

/* Put the outermost parts of a class within a part into the plan; without a class, the part. False when out of memory. */
static bool choose(const search *s, size_t outer, const char *kind, tsr_module_how how,
                   tsr_run_plan *plan) {
  size_t end = kind ? s->parts.items[outer].end_part : outer + 1;
  bool ok = true;
  for (size_t i = outer, next; ok && i < end; i = next) {
    const tsr__graph_part *part = &s->parts.items[i];
    bool is_chosen = is_free(part, how) && (!kind || strcmp(part->kind, kind) == 0);
    next = is_chosen ? part->end_part : i + 1;
    if (is_chosen) ok = tsr__run_plan_add_module(plan, part->name, how);
  }
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
  tsr__chain chain = {
      .blocks = blocks, .count = count, .longest = 1, .effort = s->planning->how.effort};
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
  size_t count = 0, *place = TSR__NEW_ARRAY(size_t, s->parts.count + 1); /* by class, from 1 */
  kind_choice *all = TSR__NEW_ARRAY(kind_choice, 2 * s->parts.count + 1);
  bool ok = place && all;
  for (size_t i = 0; ok && i < s->parts.count; i++) {
    const tsr__graph_part *part = &s->parts.items[i];
    size_t *at = &place[s->class_of[i]];
    if (part->is_fixed) continue;
    if (!*at) {
      *at = count + 1;
      all[count++] = (kind_choice){part->kind, TSR_MODULE_CHECKPOINT, 0};
      all[count++] = (kind_choice){part->kind, TSR_MODULE_OFFLOAD, 0};
    }
    if (may(s, TSR_MODULE_CHECKPOINT) && can(part, TSR_MODULE_CHECKPOINT))
      all[*at - 1].bytes += part->again_bytes;
    if (may(s, TSR_MODULE_OFFLOAD)) all[*at].bytes += part->moved_bytes;
  }
  if (ok && count) tsr__sort(all, count, sizeof *all, compare_kinds);
  for (size_t i = 0; ok && i < count && i < KINDS; i++)
    if (all[i].bytes) ok = add_kind(s, &all[i]);
  tsr__free(place);
  tsr__free(all);
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
  tsr__sort(all->items, all->count, sizeof *all->items, compare_candidates);
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
  if (status == 0)
    status = tsr__list_parts(planning->model->graph, &rates, planning->how.effort, &s.parts, error);
  if (status == 0 && !s.parts.count)
    status = tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                       "this step graph does not contain its modules, as those of several ranks do "
                       "not: if it is of one, trace it again");
  if (status == 0 && !number_classes(&s)) status = tsr__fail_memory(error);
  if (status == 0) status = list_units(&s, error);
  planning->unit_count = s.units.count;
  planning->far_count = count_far(&s);
  for (size_t i = 0; status == 0 && i < s.units.count; i++) list_options(&s, &s.units.items[i]);
  if (status == 0) status = solve_chain(&s, error);
  if (status == 0) status = add_kinds(&s, error);
  if (status == 0) status = add_all_offloaded(&s, error);
  if (status == 0) status = rank(&s, error);
  way->is_listed = status == 0;
  tsr__free(s.class_of);
  tsr__free(s.classes);
  TSR__VECTOR_FREE(&s.parts);
  TSR__VECTOR_FREE(&s.units);
  return status;
}
