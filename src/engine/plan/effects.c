/* effects.c - what a block may keep, and what each such choice changes: found on a model of three blocks, since all are alike.
 *
 *   saved tensors ──► sets ──► the greedy path: always what costs least ──┐
 *                      │                                                  ├──► measured ──► those that no other choice beats
 *                      └─────► sums of what sets do alone: the best sums ─┘
 *
 * A choice is a list of saved tensors that backward computes again, and a place for the others. What it keeps and costs is measured by
 * a survey of three blocks, and is right to a few bytes of rounding; what a plan really takes is simulated later. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"
#include "plan/blocks.h"

enum {
  COMBINED_SETS = 12,  /* of which all sums are looked at */
  COMBINED_TRIED = 40, /* sums that are measured */
  PLACED_TRIED =
      6, /* choices of the greedy path that are measured with another place for the rest */
};

void tsr__block_options_free(struct tsr__block_options *options) {
  if (!options) return;
  tsr_run_plan_free(options->key);
  tsr__free(options);
}

/* ---- names ---- */

static size_t number_of(tsr__chooser *c, const char *name) {
  for (size_t i = 0; i < c->of->name_count; i++)
    if (strcmp(c->of->names[i], name) == 0) return i;
  if (c->of->name_count == TSR__BLOCK_NAMES) return TSR__BLOCK_NAMES;
  (void)snprintf(c->of->names[c->of->name_count], sizeof c->of->names[0], "%s", name);
  return c->of->name_count++;
}

/* The name of what all ops of a kind save there: "linear.0" for "linear#1.0". */
static void name_of_all(const char *name, char out[64]) {
  size_t length = strcspn(name, "#");
  const char *dot = strrchr(name, '.');
  (void)snprintf(out, 64, "%.*s%s", (int)length, name, name[length] && dot ? dot : "");
}

tsr__name_set tsr__blocks_named(const struct tsr__block_options *of, const char *name) {
  tsr__name_set names = 0;
  for (size_t i = 0; i < of->name_count; i++) {
    char all[64];
    name_of_all(of->names[i], all);
    if (strcmp(of->names[i], name) == 0 || strcmp(all, name) == 0) names |= (tsr__name_set)1 << i;
  }
  return names;
}

static void add_set(tsr__chooser *c, tsr__name_set names, bool of_kinds) {
  for (size_t i = 0; i < c->of->set_count; i++)
    if (c->of->sets[i] == names) {
      c->of->of_kinds[i] = c->of->of_kinds[i] || of_kinds;
      return;
    }
  if (c->of->set_count == TSR__BLOCK_SETS) return;
  c->of->of_kinds[c->of->set_count] = of_kinds;
  c->gains[c->of->set_count] = INFINITY;
  c->of->sets[c->of->set_count++] = names;
}

/* The number's name alone, or that of all ops of its kind. */
static tsr__name_set set_of(const tsr__chooser *c, size_t number, bool of_kinds) {
  char all[64];
  if (number == TSR__BLOCK_NAMES) return 0;
  name_of_all(c->of->names[number], all);
  return of_kinds ? tsr__blocks_named(c->of, all) : (tsr__name_set)1 << number;
}

/* Add each name, and all names of each storage. */
static void add_sets(tsr__chooser *c, const tsr__saved_name *saved, size_t count, bool of_kinds) {
  for (size_t i = 0; i < count; i++) {
    tsr__name_set one = set_of(c, number_of(c, saved[i].name), of_kinds), all = 0;
    for (size_t k = 0; k < count; k++)
      if (saved[k].storage == saved[i].storage)
        all |= set_of(c, number_of(c, saved[k].name), of_kinds);
    if (one) add_set(c, one, of_kinds);
    if (all) add_set(c, all, of_kinds);
  }
}

/* Sets of what single ops save, and of what all ops of a kind do, which lead to good choices sooner. */
static int list_sets(tsr__chooser *c, const tsr_simulate_options *options, tsr_error *error) {
  tsr__saved_name *saved = NULL;
  size_t count = 0;
  int status = tsr__measure_saved(c->planning->model, options, &saved, &count, error);
  if (status) return status;
  for (size_t i = 0; i < count; i++)
    (void)number_of(c, saved[i].name); /* kinds have all of theirs */
  add_sets(c, saved, count, false);
  add_sets(c, saved, count, true);
  tsr__free(saved);
  return 0;
}

/* ---- what they take ---- */

static const tsr__fragment keep = {TSR_CHECKPOINT_NONE, 0, TSR_SAVED_KEEP};

/* What a fragment does with the saved tensors that have names, as choices of a plan. Where all ops of a kind do the same, that is one choice. */
typedef struct spelled {
  tsr_saved_choice items[TSR__BLOCK_NAMES];
  char names[TSR__BLOCK_NAMES][64];
  size_t count;
} spelled;

static void spell(const struct tsr__block_options *of, const tsr__fragment *f, spelled *out) {
  tsr__name_set done = 0;
  bool has_rest = f->rest != TSR_SAVED_KEEP;
  out->count = 0;
  if (!f->names && !has_rest) return; /* names need not be known yet */
  for (size_t i = 0; i < of->name_count; i++) {
    tsr__name_set one = (tsr__name_set)1 << i;
    bool is_again = f->names & one;
    if (done & one || !(is_again || has_rest)) continue;
    char *name = out->names[out->count];
    name_of_all(of->names[i], name);
    tsr__name_set all = tsr__blocks_named(of, name);
    bool is_whole = (f->names & all) == (is_again ? all : 0);
    if (!is_whole) (void)snprintf(name, sizeof out->names[0], "%s", of->names[i]);
    done |= is_whole ? all : one;
    out->items[out->count++] = (tsr_saved_choice){name, is_again ? TSR_SAVED_RECOMPUTE : f->rest};
  }
}

/* Add the choice for blocks first to last; every:K for a segment of K. A fragment that keeps all adds nothing. */
bool tsr__blocks_add_range(const tsr__chooser *c, tsr_run_plan *plan, const tsr__fragment *f,
                           uint64_t every, size_t first, size_t last) {
  spelled saved;
  assert(first <= last);
  spell(c->of, f, &saved);
  tsr_block_choice choice = {.first = first,
                             .last = last,
                             .checkpoint = f->checkpoint,
                             .checkpoint_every = every,
                             .saved = saved.items,
                             .saved_count = saved.count};
  if (choice.checkpoint == TSR_CHECKPOINT_NONE && !choice.saved_count) return true;
  return tsr__run_plan_add_blocks(plan, &choice);
}

/* Survey the way's plan, of `layers` blocks, with the fragment for blocks first to last. */
static int survey_with(const tsr__chooser *c, const tsr__fragment *f, uint64_t layers, size_t first,
                       size_t last, tsr__survey *out, bool *is_possible, tsr_error *error) {
  tsr_run_plan *plan = tsr__run_plan_copy(c->plan);
  int status = 0;
  *is_possible = false;
  if (!plan || !tsr__blocks_add_range(c, plan, f, 0, first, last)) status = tsr__fail_memory(error);
  if (status == 0)
    status = tsr__planner_survey(c->planning, plan, layers, c->batch, out, is_possible, error);
  tsr_run_plan_free(plan);
  return status;
}

static tsr__blocks_sum sum_of(const tsr__survey *survey) {
  return (tsr__blocks_sum){survey->forward_bytes, tsr__cost_kernels(&survey->cost),
                           survey->cost.copies_s};
}

static bool is_same(const tsr__fragment *a, const tsr__fragment *b) {
  return a->checkpoint == b->checkpoint && a->names == b->names && a->rest == b->rest;
}

/* Measure a choice in the middle of three blocks: what the first and the last take may differ. */
static int measure_choice(const tsr__chooser *c, const tsr__fragment *f, tsr__block_effect *out,
                          tsr_error *error) {
  tsr__survey survey;
  bool is_possible;
  *out = (tsr__block_effect){.fragment = *f};
  int status = survey_with(c, f, 3, 1, 1, &survey, &is_possible, error);
  if (status || !is_possible) return status;
  const tsr__blocks_sum with = sum_of(&survey), *all = &c->all;
  if (with.forward_bytes < all->forward_bytes)
    out->saved_bytes = all->forward_bytes - with.forward_bytes;
  out->more_s = fmax(with.kernels_s - all->kernels_s, 0);
  out->more_copies_s = with.copies_s - all->copies_s;
  out->is_possible = out->saved_bytes || out->more_copies_s < 0;
  tsr__survey_release(&survey);
  return 0;
}

int tsr__blocks_effect(const tsr__chooser *c, const tsr__fragment *f, size_t *out,
                       tsr_error *error) {
  struct tsr__block_options *of = c->of;
  for (*out = 0; *out < of->effect_count; ++*out)
    if (is_same(&of->effects[*out].fragment, f)) return 0;
  if (*out == TSR__BLOCK_EFFECTS) return 0;
  int status = measure_choice(c, f, &of->effects[*out], error);
  if (status == 0) of->effect_count++;
  return status;
}

/* A block is what three have more than two. `*is_possible`: they can be run again. */
static int measure_block(tsr__chooser *c, bool *is_possible, tsr_error *error) {
  tsr__survey s[4]; /* of two and of three blocks that keep all, and that are run again */
  size_t count = 0;
  const tsr__fragment full = {.checkpoint = TSR_CHECKPOINT_FULL};
  int status = 0;
  *is_possible = true;
  while (status == 0 && *is_possible && count < 4) {
    status = survey_with(c, count < 2 ? &keep : &full, 2 + count % 2, 0, 1 + count % 2, &s[count],
                         is_possible, error);
    if (status == 0 && *is_possible) count++;
  }
  if (count == 4) {
    c->all = sum_of(&s[1]);
    c->kept_bytes = s[1].forward_bytes - s[0].forward_bytes;
    c->input_bytes = s[3].forward_bytes - s[2].forward_bytes;
    c->parameter_bytes = s[1].parameter_bytes - s[0].parameter_bytes;
    c->forward_s =
        fmax(s[1].cost.phase_s[TSR__PHASE_FORWARD] - s[0].cost.phase_s[TSR__PHASE_FORWARD], 0);
    c->backward_s = fmax(c->all.kernels_s - sum_of(&s[0]).kernels_s - c->forward_s, 0);
    c->again_copies_s = s[3].cost.copies_s - s[2].cost.copies_s;
    c->again_copies_s -= s[1].cost.copies_s - s[0].cost.copies_s;
  }
  for (size_t i = 0; i < count; i++) tsr__survey_release(&s[i]);
  return status;
}
/* ---- the greedy path ---- */

static double gain_of(const tsr__chooser *c, const tsr__block_effect *with,
                      const tsr__block_effect *without) {
  double more = fmax(with->more_s - without->more_s, 1e-9);
  double saved = (double)with->saved_bytes - (double)without->saved_bytes;
  if (tsr__way_copies_activations(c->way)) saved = without->more_copies_s - with->more_copies_s;
  return with->is_possible ? fmax(saved, 0) / more : 0;
}

/* What a set saves by each second that it adds to what is chosen already: bytes, or, of a way that copies activations, seconds of copies. */
static int look_at(tsr__chooser *c, size_t set, size_t so_far, size_t *with, tsr_error *error) {
  const tsr__block_effect *effects = c->of->effects;
  const tsr__fragment f = {.names = effects[so_far].fragment.names | c->of->sets[set]};
  int status = tsr__blocks_effect(c, &f, with, error);
  bool is_known = status == 0 && *with < TSR__BLOCK_EFFECTS;
  c->gains[set] = is_known ? gain_of(c, &effects[*with], &effects[so_far]) : 0;
  return status;
}

/* of->set_count if no set saves anything. */
static size_t best_set(const tsr__chooser *c) {
  size_t best = c->of->set_count;
  for (size_t i = 0; i < c->of->set_count; i++)
    if (c->gains[i] > 0 && (best == c->of->set_count || c->gains[i] > c->gains[best])) best = i;
  return best;
}

/* The best set to add next, or of->set_count: the one that still is best after a second look. `*with`: the place of both together. */
static int next_set(tsr__chooser *c, size_t so_far, size_t *with, size_t *out, tsr_error *error) {
  for (;;) {
    size_t set = *out = best_set(c);
    if (set == c->of->set_count) return 0;
    if ((c->of->sets[set] & ~c->of->effects[so_far].fragment.names) == 0) {
      c->gains[set] = 0;
      continue;
    }
    int status = look_at(c, set, so_far, with, error);
    if (status || (c->gains[set] > 0 && best_set(c) == set)) return status;
  }
}

/* Add sets until none saves more; `path`: places of what there was after each. What costs nothing more replaces what is there. */
static int walk(tsr__chooser *c, bool of_kinds, size_t *path, size_t *count, tsr_error *error) {
  const tsr__block_effect *effects = c->of->effects;
  size_t now = 0;
  *count = 0;
  for (size_t i = 0; i < c->of->set_count; i++)
    c->gains[i] = !of_kinds || c->of->of_kinds[i] ? INFINITY : 0;
  while (*count < TSR__BLOCK_SETS) {
    size_t set, with;
    int status = next_set(c, now, &with, &set, error);
    if (status || set == c->of->set_count) return status;
    if (*count && effects[with].more_s <= effects[now].more_s) --*count;
    path[(*count)++] = now = with;
  }
  return 0;
}

/* ---- sums ---- */

/* A set, alone. */
typedef struct single {
  tsr__name_set names;
  double more_s, saved; /* saved: bytes, or seconds of copies */
} single;

static int compare_singles(const void *left, const void *right) {
  const single *a = left, *b = right;
  double x = a->saved / fmax(a->more_s, 1e-9), y = b->saved / fmax(b->more_s, 1e-9);
  return (x < y) - (x > y);
}

/* Those that save most in a second, at most COMBINED_SETS, none within another. */
static int list_singles(tsr__chooser *c, bool of_kinds, single *out, size_t *count,
                        tsr_error *error) {
  single all[TSR__BLOCK_SETS];
  size_t found = 0;
  bool copies = tsr__way_copies_activations(c->way);
  *count = 0;
  for (size_t i = 0; i < c->of->set_count; i++) {
    size_t with;
    if (of_kinds && !c->of->of_kinds[i]) continue;
    int status = look_at(c, i, 0, &with, error);
    if (status) return status;
    if (!(c->gains[i] > 0)) continue;
    const tsr__block_effect *effect = &c->of->effects[with];
    double saved = copies ? -effect->more_copies_s : (double)effect->saved_bytes;
    all[found++] = (single){c->of->sets[i], effect->more_s, saved};
  }
  tsr__sort(all, found, sizeof *all, compare_singles);
  for (size_t i = 0; i < found && *count < COMBINED_SETS; i++) {
    bool is_apart = true;
    for (size_t k = 0; k < *count; k++) is_apart = is_apart && !(out[k].names & all[i].names);
    if (is_apart) out[(*count)++] = all[i];
  }
  return 0;
}

static int compare_sums(const void *left, const void *right) {
  const single *a = left, *b = right;
  if (a->more_s < b->more_s || a->more_s > b->more_s) return a->more_s < b->more_s ? -1 : 1;
  return (a->saved < b->saved) - (a->saved > b->saved);
}

/* Measure sums of sets of which none is slower and saves less than another. What sets do together may differ, where one is computed from
 * another. */
static int combine(tsr__chooser *c, bool of_kinds, tsr_error *error) {
  single singles[COMBINED_SETS], *sums;
  size_t count, sum_count = 0, best = 0, ignored;
  double most = 0;
  int status = list_singles(c, of_kinds, singles, &count, error);
  if (status || count < 2) return status;
  sums = TSR__NEW_ARRAY(single, (size_t)1 << count);
  if (!sums) return tsr__fail_memory(error);
  for (size_t bits = 1; bits < (size_t)1 << count; bits++) {
    single sum = {0, 0, 0};
    for (size_t i = 0; i < count; i++) {
      if (!(bits >> i & 1)) continue;
      sum.names |= singles[i].names;
      sum.more_s += singles[i].more_s;
      sum.saved += singles[i].saved;
    }
    sums[sum_count++] = sum;
  }
  tsr__sort(sums, sum_count, sizeof *sums, compare_sums);
  for (size_t i = 0; i < sum_count; i++) { /* only those that save more than all before */
    if (sums[i].saved <= most) continue;
    most = sums[i].saved;
    sums[best++] = sums[i];
  }
  size_t tried = best < COMBINED_TRIED ? best : COMBINED_TRIED;
  for (size_t i = 0; status == 0 && i < tried; i++) {
    const single *sum = &sums[tried > 1 ? i * (best - 1) / (tried - 1) : 0];
    status = tsr__blocks_effect(c, &(tsr__fragment){.names = sum->names}, &ignored, error);
  }
  tsr__free(sums);
  return status;
}

/* ---- the best choices ---- */

/* Another place for the rest of what is not computed again: with nothing, and some of the greedy path. */
static int place_rest(tsr__chooser *c, tsr_saved_place place, const size_t *path, size_t count,
                      tsr_error *error) {
  size_t ignored, tried = count < PLACED_TRIED ? count : PLACED_TRIED;
  int status = tsr__blocks_effect(c, &(tsr__fragment){.rest = place}, &ignored, error);
  for (size_t i = 0; status == 0 && i < tried; i++) {
    size_t at = path[tried > 1 ? i * (count - 1) / (tried - 1) : 0];
    const tsr__fragment f = {.names = c->of->effects[at].fragment.names, .rest = place};
    status = tsr__blocks_effect(c, &f, &ignored, error);
  }
  return status;
}

/* Whether a choice is no worse than another in anything; of equal ones, the first. */
static bool beats(const struct tsr__block_options *of, size_t a, size_t b) {
  const tsr__block_effect *x = &of->effects[a], *y = &of->effects[b];
  if (x->more_s > y->more_s || x->more_copies_s > y->more_copies_s ||
      x->saved_bytes < y->saved_bytes)
    return false;
  return a < b || x->more_s < y->more_s || x->more_copies_s < y->more_copies_s ||
         x->saved_bytes > y->saved_bytes;
}

static int compare_effects(const void *left, const void *right) {
  const tsr__block_effect *a = left, *b = right;
  if (a->saved_bytes != b->saved_bytes) return a->saved_bytes < b->saved_bytes ? -1 : 1;
  return (a->more_s > b->more_s) - (a->more_s < b->more_s);
}

double tsr__blocks_copies(const tsr__chooser *c, const tsr__block_effect *effect) {
  return tsr__plan_is_away(c->way->plan) ? effect->more_copies_s : 0;
}

/* Seconds of a step that a choice adds, as far as one can say for a block alone. */
static double seconds_of(const tsr__chooser *c, const tsr__block_effect *effect) {
  return effect->more_s + c->way->exposed * effect->more_copies_s;
}

bool tsr__blocks_is_of_kinds(const tsr__chooser *c, const tsr__fragment *f) {
  for (size_t i = 0; i < c->of->name_count; i++)
    if (f->names >> i & 1 && set_of(c, i, true) & ~f->names) return false;
  return true;
}

/* Mark the choices that mixtures of others do not beat: with many blocks, these are what matters. Effects are in the order of what they save. */
static void mark_hull(const tsr__chooser *c, bool *is_marked) {
  const struct tsr__block_options *of = c->of;
  for (size_t at = 0; at < of->best_count;) {
    size_t next = at + 1;
    double least = INFINITY; /* seconds for a byte, from `at` on */
    is_marked[at] = true;
    for (size_t i = at + 1; i < of->best_count; i++) {
      double saved = (double)(of->effects[i].saved_bytes - of->effects[at].saved_bytes);
      double more = seconds_of(c, &of->effects[i]) - seconds_of(c, &of->effects[at]);
      if (saved > 0 && more / saved <= least) next = i, least = more / saved;
    }
    if (isinf(least)) return;
    at = next;
  }
}

/* The chain's options: those that mixtures do not beat, and others if there is room; of too many every second, and so on. */
static void choose_options(const tsr__chooser *c) {
  struct tsr__block_options *of = c->of;
  bool is_marked[TSR__BLOCK_EFFECTS] = {false};
  size_t places[2][TSR__BLOCK_EFFECTS], count[2] = {0, 0};
  mark_hull(c, is_marked);
  for (size_t i = 1; i < of->best_count; i++) places[!is_marked[i]][count[!is_marked[i]]++] = i;
  of->options[0] = 0;
  of->count = 1;
  for (int kind = 0; kind < 2; kind++) {
    size_t room = 1 + TSR__PLANNER_OPTIONS - of->count;
    size_t taken = count[kind] < room ? count[kind] : room;
    for (size_t i = 0; i < taken; i++)
      of->options[of->count++] =
          places[kind][taken > 1 ? i * (count[kind] - 1) / (taken - 1) : count[kind] - 1];
  }
}

/* Keep the choices that none beats, first all that is kept, then by what they save. */
static void keep_best(struct tsr__block_options *of) {
  size_t kept = 0;
  tsr__block_effect best[TSR__BLOCK_EFFECTS];
  for (size_t i = 0; i < of->effect_count; i++) {
    bool is_best = of->effects[i].is_possible;
    for (size_t k = 0; is_best && k < of->effect_count; k++)
      is_best = k == i || !of->effects[k].is_possible || !beats(of, k, i);
    if (is_best || i == 0) best[kept++] = of->effects[i];
  }
  tsr__sort(best + 1, kept - 1, sizeof *best, compare_effects);
  memcpy(of->effects, best, kept * sizeof *best);
  of->effect_count = of->best_count = kept;
}

static int list_options(tsr__chooser *c, tsr_error *error) {
  tsr_simulate_options options = c->planning->how;
  size_t path[TSR__BLOCK_SETS], count = 0, ignored;
  bool may = c->planning->allow & TSR_ALLOW_RECOMPUTE;
  tsr_run_plan_options(c->plan, &options);
  options.batch = c->batch;
  int status = list_sets(c, &options, error);
  for (int of_kinds = 1; status == 0 && may && of_kinds >= 0; of_kinds--) {
    status = walk(c, of_kinds, path, &count, error);
    if (status == 0) status = combine(c, of_kinds, error);
  }
  if (status == 0 && may)
    status = tsr__blocks_effect(c, &(tsr__fragment){.checkpoint = TSR_CHECKPOINT_SELECTIVE},
                                &ignored, error);
  if (status == 0 && c->way->narrows) status = place_rest(c, TSR_SAVED_NARROW16, path, 0, error);
  if (status == 0 && c->way->narrows) status = place_rest(c, TSR_SAVED_NARROW8, path, count, error);
  if (status) return status;
  keep_best(c->of);
  choose_options(c);
  return 0;
}

/* ---- all of it ---- */

/* A micro-batch on its own is what the chain is made of. */
static int begin(tsr__chooser *c, tsr_error *error) {
  const tsr_simulate_options *o = &c->way->plan->options;
  uint64_t batch = c->planning->how.batch ? c->planning->how.batch : 1;
  c->batch = o->micro_batch ? o->micro_batch : batch;
  c->parts = batch / c->batch * o->accumulate;
  c->plan = tsr__blocks_none(c->way);
  if (!c->plan) return tsr__fail_memory(error);
  tsr__option_reset(tsr__option_find("micro_batch"), &c->plan->options);
  tsr__option_reset(tsr__option_find("accumulate"), &c->plan->options);
  tsr__option_reset(tsr__option_find("offload_blocks"), &c->plan->options);
  return 0;
}

/* The plan without choices that decide nothing of what a block can keep; NULL when out of memory. */
static tsr_run_plan *key_of(const tsr__chooser *c) {
  static const char *const others[] = {"loss", "optimizer_in_backward", "offload"};
  tsr_run_plan *key = tsr__run_plan_copy(c->plan);
  for (size_t i = 0; key && i < sizeof others / sizeof *others; i++)
    tsr__option_reset(tsr__option_find(others[i]), &key->options);
  return key;
}

/* Those of another way that has the same blocks, or none. */
static struct tsr__block_options *find_options(const tsr__chooser *c, const tsr_run_plan *key) {
  for (size_t i = 0; i < c->planning->block_options.count; i++) {
    struct tsr__block_options *o = c->planning->block_options.items[i];
    if (o->key && o->activations == c->plan->options.offload.activations && o->batch == c->batch &&
        o->narrows == c->way->narrows && tsr__run_plan_equal(o->key, key))
      return o;
  }
  return NULL;
}
/* Takes the key over. */
static int find_new_options(tsr__chooser *c, tsr_run_plan *key, tsr_error *error) {
  c->of = TSR__NEW(struct tsr__block_options);
  /* NOLINTNEXTLINE(bugprone-sizeof-expression): a list of pointers */
  if (!c->of || !TSR__VECTOR_PUSH(&c->planning->block_options, c->of)) {
    tsr__block_options_free(c->of);
    tsr_run_plan_free(key);
    return tsr__fail_memory(error);
  }
  c->of->effects[0] = (tsr__block_effect){.fragment = keep, .is_possible = true};
  c->of->count = c->of->effect_count = 1;
  c->of->activations = c->plan->options.offload.activations;
  c->of->batch = c->batch;
  c->of->narrows = c->way->narrows;
  int status = list_options(c, error);
  if (status)
    tsr_run_plan_free(key); /* without a key they are not found */
  else
    c->of->key = key;
  return status;
}

/* Make c->of. */
static int measure_options(tsr__chooser *c, tsr_error *error) {
  tsr_run_plan *key = key_of(c);
  if (!key) return tsr__fail_memory(error);
  c->of = find_options(c, key);
  if (!c->of) return find_new_options(c, key, error);
  tsr_run_plan_free(key);
  return 0;
}

static int begin_alike(tsr__chooser *c, bool *is_possible, tsr_error *error) {
  *is_possible = false;
  int status = begin(c, error);
  if (status == 0) status = measure_block(c, is_possible, error);
  return status || !*is_possible ? status : measure_options(c, error);
}

static bool has_same_names(const struct tsr__block_options *a, const struct tsr__block_options *b) {
  bool is_same_list = a->name_count == b->name_count;
  for (size_t i = 0; is_same_list && i < a->name_count; i++)
    is_same_list = strcmp(a->names[i], b->names[i]) == 0;
  return is_same_list;
}

static void release_home(tsr__home_blocks *home) {
  if (!home) return;
  tsr__blocks_release(&home->chooser);
  tsr_run_plan_free(home->way.plan);
  tsr__free(home);
}

/* Make c->home, if the first blocks alone keep something on the host. */
static int begin_home(tsr__chooser *c, tsr_error *error) {
  const tsr__way *way = c->way;
  uint64_t away = way->plan->options.offload_blocks;
  bool is_possible = false;
  if (!tsr__plan_is_away(way->plan) || !away || away >= c->planning->model->layers) return 0;
  tsr__home_blocks *home = TSR__NEW(tsr__home_blocks);
  if (!home) return tsr__fail_memory(error);
  home->way = (tsr__way){
      .plan = tsr__run_plan_copy(way->plan), .narrows = way->narrows, .exposed = way->exposed};
  home->chooser = (tsr__chooser){.planning = c->planning, .way = &home->way};
  if (home->way.plan) tsr__option_reset(tsr__option_find("offload"), &home->way.plan->options);
  if (home->way.plan)
    tsr__option_reset(tsr__option_find("offload_blocks"), &home->way.plan->options);
  int status =
      home->way.plan ? begin_alike(&home->chooser, &is_possible, error) : tsr__fail_memory(error);
  if (status || !is_possible || !has_same_names(c->of, home->chooser.of)) {
    release_home(home);
    return status;
  }
  c->home = home;
  c->away = (size_t)away;
  return 0;
}

int tsr__blocks_begin(tsr_planning *planning, tsr__way *way, tsr__chooser *c, bool *is_possible,
                      tsr_error *error) {
  *c = (tsr__chooser){.planning = planning, .way = way};
  int status = begin_alike(c, is_possible, error);
  return status || !*is_possible ? status : begin_home(c, error);
}

const tsr__chooser *tsr__blocks_of(const tsr__chooser *c, size_t block) {
  return c->home && block >= c->away ? &c->home->chooser : c;
}

int tsr__blocks_effect_of(const tsr__chooser *c, size_t block, size_t number, size_t *out,
                          tsr_error *error) {
  const tsr__chooser *own = tsr__blocks_of(c, block);
  *out = number;
  if (own->of == c->of) return 0;
  return tsr__blocks_effect(own, &c->of->effects[number].fragment, out, error);
}

void tsr__blocks_release(tsr__chooser *c) {
  release_home(c->home);
  c->home = NULL;
  tsr_run_plan_free(c->plan);
  c->plan = NULL;
}
