/* blocks.c - what each block keeps: options of one block, and the chain solver over all of them.
 *
 * An option is a list of saved tensors that backward computes again, or that are kept in fewer bits. All blocks are alike, so options are found on
 * a model of two: beginning with none, always the tensors whose bytes cost the least time are added, and the lists on
 * the way are the options. What an option keeps and costs is measured there, too, and is right to a few bytes of
 * rounding; what a plan really takes is simulated later.
 *
 * A chain's schedule runs blocks with options, or passes some of them to run them again as one, within which nothing
 * can be chosen: "full" for one block, "every:K" for K. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"
#include "plan/chain.h"
#include "plan/planner.h"

/* If tensors may also be narrowed, this many of a block's options are reserved for sets that only recompute. */
enum { WIDE_OPTIONS = 3 };

enum { NAMES = 60, MOST_SETS = 128, SLOTS = 4096, SLOT_BLOCKS = 200000 };

/* Saved tensors, as a set of names: bits. */
typedef uint64_t name_set;

/* A choice for a block: all of it is run again, or some saved tensors. */
typedef struct fragment {
  tsr_simulate_checkpoint checkpoint;
  name_set names;       /* recomputed */
  tsr_saved_place rest; /* where the other tensors are until backward */
} fragment;

typedef struct set_gain {
  name_set names;
  double gain; /* bytes in a second, when it was last looked at; infinite at first */
} set_gain;

/* What two blocks take with an option. */
typedef struct option_facts {
  uint64_t forward_bytes;
  double seconds;
} option_facts;

/* What can be chosen for a block. It depends on types, kernels and the micro-batch, and not on the loss, the optimizer, or where parameters
 * are: ways that differ in those alone share it. To find it takes a hundred surveys. */
struct tsr__block_options {
  /* What they depend on: the plan without other choices, which is owned; where activations are, the micro-batch, and
   * whether tensors are kept in fewer bits. */
  tsr_run_plan *key;
  tsr_space activations;
  uint64_t batch;
  bool narrows;
  char names[NAMES][64];
  size_t name_count;
  fragment fragments[1 + TSR__PLANNER_OPTIONS]; /* the first keeps all */
  size_t count;
};

typedef struct chooser {
  tsr_planning *planning;
  tsr__way *way;
  tsr_run_plan *plan;            /* the way's, of one micro-batch; owned */
  uint64_t batch;                /* of it */
  uint64_t parts;                /* micro-batches */
  struct tsr__block_options *of; /* the planning's */
  option_facts facts[1 + TSR__PLANNER_OPTIONS];
  /* While they are looked for: */
  set_gain sets[MOST_SETS];
  size_t set_count;
  name_set chosen
      [WIDE_OPTIONS]; /* of the options that compute again, where more may be kept in fewer bits */
  size_t chosen_count;
  /* Of a block: */
  uint64_t kept_bytes, input_bytes, parameter_bytes;
  double forward_s, backward_s;
} chooser;

void tsr__block_options_free(struct tsr__block_options *options) {
  if (!options) return;
  tsr_run_plan_free(options->key);
  tsr__free(options);
}

/* ---- names ---- */

static size_t number_of(chooser *c, const char *name) {
  for (size_t i = 0; i < c->of->name_count; i++)
    if (strcmp(c->of->names[i], name) == 0) return i;
  if (c->of->name_count == NAMES) return NAMES;
  (void)snprintf(c->of->names[c->of->name_count], sizeof c->of->names[0], "%s", name);
  return c->of->name_count++;
}

static void add_set(chooser *c, name_set names) {
  for (size_t i = 0; i < c->set_count; i++)
    if (c->sets[i].names == names) return;
  if (c->set_count < MOST_SETS) c->sets[c->set_count++] = (set_gain){names, INFINITY};
}

/* Each name, and all names of each storage. */
static int list_sets(chooser *c, const tsr_simulate_options *options, tsr_error *error) {
  tsr__saved_name *saved = NULL;
  size_t count = 0;
  int status = tsr__measure_saved(c->planning->model, options, &saved, &count, error);
  if (status) return status;
  for (size_t i = 0; i < count; i++) {
    name_set all = 0;
    for (size_t k = 0; k < count; k++) {
      size_t number = number_of(c, saved[k].name);
      if (saved[k].storage == saved[i].storage && number < NAMES) all |= (name_set)1 << number;
      if (k == i && number < NAMES) add_set(c, (name_set)1 << number);
    }
    if (all) add_set(c, all);
  }
  tsr__free(saved);
  return 0;
}

/* ---- what they take ---- */

static const fragment keep = {TSR_CHECKPOINT_NONE, 0, TSR_SAVED_KEEP};

/* Add the choice for blocks first to last; every:K for a segment of K. A fragment that keeps all adds nothing. */
static bool add_range(const chooser *c, tsr_run_plan *plan, const fragment *f, uint64_t every,
                      size_t first, size_t last) {
  tsr_saved_choice saved[NAMES];
  tsr_block_choice choice = {.first = first,
                             .last = last,
                             .checkpoint = f->checkpoint,
                             .checkpoint_every = every,
                             .saved = saved};
  bool has_rest = f->rest != TSR_SAVED_KEEP;
  assert(first <= last);
  for (size_t i = 0; (f->names || has_rest) && i < c->of->name_count; i++) {
    bool is_again = f->names >> i & 1;
    if (is_again || has_rest)
      saved[choice.saved_count++] =
          (tsr_saved_choice){c->of->names[i], is_again ? TSR_SAVED_RECOMPUTE : f->rest};
  }
  if (choice.checkpoint == TSR_CHECKPOINT_NONE && !choice.saved_count) return true;
  return tsr__run_plan_add_blocks(plan, &choice);
}

/* Survey the way's plan with the fragment for all of `layers` blocks. */
static int survey_with(const chooser *c, const fragment *f, uint64_t layers, tsr__survey *out,
                       bool *is_possible, tsr_error *error) {
  tsr_run_plan *plan = tsr__run_plan_copy(c->plan);
  int status = 0;
  *is_possible = false;
  if (!plan || !add_range(c, plan, f, 0, 0, layers - 1)) status = tsr__fail_memory(error);
  if (status == 0)
    status = tsr__planner_survey(c->planning, plan, layers, c->batch, out, is_possible, error);
  tsr_run_plan_free(plan);
  return status;
}

static int facts_with(const chooser *c, const fragment *f, option_facts *out, bool *is_possible,
                      tsr_error *error) {
  tsr__survey survey;
  int status = survey_with(c, f, 2, &survey, is_possible, error);
  if (status || !*is_possible) return status;
  *out = (option_facts){survey.forward_bytes, 0};
  for (size_t i = 0; i < TSR__PHASE_COUNT; i++) out->seconds += survey.cost.phase_s[i];
  tsr__survey_release(&survey);
  return 0;
}

/* A block is what three have more than two. `*is_possible`: they can be run again. */
static int measure_block(chooser *c, bool *is_possible, tsr_error *error) {
  tsr__survey s[4]; /* of two and of three blocks that keep all, and that are run again */
  size_t count = 0;
  const fragment full = {.checkpoint = TSR_CHECKPOINT_FULL};
  int status = 0;
  *is_possible = true;
  while (status == 0 && *is_possible && count < 4) {
    status =
        survey_with(c, count < 2 ? &keep : &full, 2 + count % 2, &s[count], is_possible, error);
    if (status == 0 && *is_possible) count++;
  }
  if (count == 4) {
    double two = 0, three = 0;
    for (size_t i = 0; i < TSR__PHASE_COUNT; i++) two += s[0].cost.phase_s[i];
    for (size_t i = 0; i < TSR__PHASE_COUNT; i++) three += s[1].cost.phase_s[i];
    c->facts[0] = (option_facts){s[0].forward_bytes, two};
    c->kept_bytes = s[1].forward_bytes - s[0].forward_bytes;
    c->input_bytes = s[3].forward_bytes - s[2].forward_bytes;
    c->parameter_bytes = s[1].parameter_bytes - s[0].parameter_bytes;
    c->forward_s =
        fmax(s[1].cost.phase_s[TSR__PHASE_FORWARD] - s[0].cost.phase_s[TSR__PHASE_FORWARD], 0);
    c->backward_s = fmax(three - two - c->forward_s, 0);
  }
  for (size_t i = 0; i < count; i++) tsr__survey_release(&s[i]);
  return status;
}

/* ---- options ---- */

/* Bytes that are saved by each second that the set adds to what is chosen already. */
static int look_at(chooser *c, set_gain *set, name_set chosen, const option_facts *so_far,
                   option_facts *out, tsr_error *error) {
  bool is_possible;
  const fragment f = {.names = chosen | set->names};
  int status = facts_with(c, &f, out, &is_possible, error);
  set->gain = 0;
  if (status || !is_possible || out->forward_bytes >= so_far->forward_bytes) return status;
  double more = fmax(out->seconds - so_far->seconds, 1e-9);
  set->gain = (double)(so_far->forward_bytes - out->forward_bytes) / more;
  return 0;
}

static set_gain *best_set(chooser *c) {
  set_gain *best = NULL;
  for (size_t i = 0; i < c->set_count; i++)
    if (c->sets[i].gain > 0 && (!best || c->sets[i].gain > best->gain)) best = &c->sets[i];
  return best;
}

/* The best set to add next, or NULL: the one that still is best after a second look. */
static int next_set(chooser *c, name_set chosen, const option_facts *so_far, option_facts *facts,
                    set_gain **out, tsr_error *error) {
  *out = NULL;
  for (;;) {
    set_gain *set = best_set(c);
    if (!set) return 0;
    if ((set->names & ~chosen) == 0) {
      set->gain = 0;
      continue;
    }
    int status = look_at(c, set, chosen, so_far, facts, error);
    if (status) return status;
    if (set->gain > 0 && best_set(c) == set) {
      *out = set;
      return 0;
    }
  }
}

static void keep_option(chooser *c, fragment f, const option_facts *facts) {
  assert(c->of->count && c->of->count <= TSR__PLANNER_OPTIONS);
  c->of->fragments[c->of->count] = f;
  c->facts[c->of->count++] = *facts;
}

/* At most as many as there is room for, evenly spread, with the last. */
static void keep_some(chooser *c, const name_set *sets, const option_facts *facts, size_t count) {
  assert(c->of->count == 1); /* keep */
  size_t room = c->way->narrows ? WIDE_OPTIONS : TSR__PLANNER_OPTIONS - 1;
  size_t taken = count < room ? count : room;
  for (size_t i = 0; i < taken; i++) {
    size_t at = taken > 1 ? i * (count - 1) / (taken - 1) : count - 1;
    keep_option(c, (fragment){.names = sets[at]}, &facts[at]);
    if (c->way->narrows) c->chosen[c->chosen_count++] = sets[at];
  }
}

static int choose_options(chooser *c, tsr_error *error) {
  name_set sets[MOST_SETS], chosen = 0;
  option_facts facts[MOST_SETS], now = c->facts[0];
  size_t count = 0;
  while (count < MOST_SETS) {
    set_gain *set;
    option_facts with;
    int status = next_set(c, chosen, &now, &with, &set, error);
    if (status) return status;
    if (!set) break;
    chosen |= set->names;
    now = with;
    /* What costs nothing more replaces what is there. */
    bool is_free = count && with.seconds <= facts[count - 1].seconds;
    if (is_free) count--;
    sets[count] = chosen;
    facts[count++] = with;
  }
  keep_some(c, sets, facts, count);
  return 0;
}

/* Add an option if it is possible and keeps less than the block as it is. */
static int add_if_less(chooser *c, fragment f, tsr_error *error) {
  option_facts facts;
  bool is_possible;
  int status = facts_with(c, &f, &facts, &is_possible, error);
  if (status == 0 && is_possible && facts.forward_bytes < c->facts[0].forward_bytes)
    keep_option(c, f, &facts);
  return status;
}

/* 16 and 8 bits, and 8 beside the first choices of what is computed again. */
static int add_narrows(chooser *c, tsr_error *error) {
  if (!c->way->narrows) return 0;
  int status = add_if_less(c, (fragment){.rest = TSR_SAVED_NARROW16}, error);
  if (status == 0) status = add_if_less(c, (fragment){.rest = TSR_SAVED_NARROW8}, error);
  for (size_t i = 0; status == 0 && i < c->chosen_count && i + 1 < WIDE_OPTIONS; i++)
    status = add_if_less(c, (fragment){.names = c->chosen[i], .rest = TSR_SAVED_NARROW8}, error);
  return status;
}

/* ---- the chain ---- */

static uint64_t less(uint64_t bytes, uint64_t taken) {
  return taken < bytes ? bytes - taken : 0;
}

static void list_chain_options(const chooser *c, tsr__chain_option *out) {
  uint64_t kept = less(c->kept_bytes, c->input_bytes);
  assert(c->of->count && c->forward_s >= 0 && c->backward_s >= 0);
  for (size_t i = 0; i < c->of->count; i++) {
    uint64_t saves = less(c->facts[0].forward_bytes, c->facts[i].forward_bytes) / 2;
    out[i] = (tsr__chain_option){
        .saved_bytes = less(kept, saves),
        .forward_s = c->forward_s,
        .backward_s = c->backward_s + fmax(c->facts[i].seconds - c->facts[0].seconds, 0) / 2};
  }
}

/* Gradients of parameters exist already where they are added up, and hardly at all where they go at once; of what ranks
 * keep a part of, that part stays. */
static uint64_t gradient_bytes(const chooser *c) {
  const tsr_simulate_options *o = &c->plan->options;
  bool is_spread = o->zero >= 2 && o->ranks > 0;
  bool is_away = o->offload.gradients != TSR_SPACE_DEVICE;
  if (is_away || o->update_in_backward || c->parts > 1) return 0;
  uint64_t replicas = o->replicas ? o->replicas : 1;
  return is_spread ? c->parameter_bytes / o->ranks * replicas : c->parameter_bytes;
}

/* A range of the same: blocks with an option, or segments of one length. */
typedef struct stretch {
  size_t first, end, option, segment; /* segment: blocks that are run again as one; 0: none */
} stretch;

static bool close_stretch(const chooser *c, const stretch *s, tsr_run_plan *plan) {
  assert(s->first <= s->end && s->option < c->of->count);
  if (s->first == s->end) return true;
  if (!s->segment) return add_range(c, plan, &c->of->fragments[s->option], 0, s->first, s->end - 1);
  bool is_one = s->segment == 1;
  const fragment again = {.checkpoint = is_one ? TSR_CHECKPOINT_FULL : TSR_CHECKPOINT_EVERY};
  return add_range(c, plan, &again, is_one ? 0 : s->segment, s->first, s->end - 1);
}

/* What choices change of a micro-batch that keeps all, block by block. */
typedef struct effect {
  double more_s;        /* of backward */
  uint64_t saved_bytes; /* at the end of forward */
  uint64_t kept_bytes;  /* by the blocks so far */
  uint64_t
      again_bytes; /* the most that is live once a segment was run again: it, and what blocks before it keep */
} effect;

/* A block of a segment runs once more, and of a segment its input is kept. */
static void add_effect(const chooser *c, const stretch *s, effect *to) {
  assert(s->first <= s->end && s->option < c->of->count);
  uint64_t blocks = s->end - s->first;
  if (s->segment) {
    to->more_s += (double)blocks * c->forward_s;
    uint64_t inputs = blocks / s->segment * c->input_bytes;
    uint64_t again = to->kept_bytes + less(inputs, c->input_bytes) + s->segment * c->kept_bytes;
    if (again > to->again_bytes) to->again_bytes = again;
    to->saved_bytes += less(blocks * c->kept_bytes, inputs);
    to->kept_bytes += inputs;
    return;
  }
  const option_facts *option = &c->facts[s->option];
  to->more_s += (double)blocks * fmax(option->seconds - c->facts[0].seconds, 0) / 2;
  uint64_t saved = blocks * less(c->facts[0].forward_bytes, option->forward_bytes) / 2;
  to->saved_bytes += saved;
  to->kept_bytes += less(blocks * c->kept_bytes, saved);
}

/* The first visit of each block, in their order: the steps of a chain's plan begin with them. */
static bool list_ranges(const chooser *c, const tsr__chain_plan *plan, tsr_run_plan *out,
                        effect *all) {
  stretch now = {0, 0, 0, 0};
  size_t block = 0;
  bool ok = true;
  for (size_t i = 0; ok && i < plan->count && block < c->planning->model->layers;) {
    const tsr__chain_step *step = &plan->steps[i];
    size_t segment = 0;
    assert(step->block == block && step->kind != TSR__CHAIN_BACKWARD);
    if (step->kind == TSR__CHAIN_PASS) do
        segment++;
      while (plan->steps[i + segment].kind == TSR__CHAIN_PASS &&
             !plan->steps[i + segment].keeps_input);
    size_t option = segment ? 0 : step->option, length = segment ? segment : 1;
    if (now.segment != segment || now.option != option) {
      ok = close_stretch(c, &now, out);
      add_effect(c, &now, all);
      now = (stretch){block, block, option, segment};
    }
    now.end += length;
    block += length;
    i += length;
  }
  add_effect(c, &now, all);
  return ok && close_stretch(c, &now, out);
}

/* Takes the plan over, with this number of micro-batches; NULL is out of memory. Where activations are copied, what is computed
 * again need not be, so that copies are no part of the estimate. */
static bool add_candidate(tsr__way *way, tsr_run_plan *plan, const effect *changed,
                          uint64_t parts) {
  for (size_t i = 0; plan && i < way->candidates.count; i++)
    if (tsr__run_plan_equal(plan, way->candidates.items[i].plan)) {
      tsr_run_plan_free(plan);
      return true;
    }
  double kernels_s = way->kernels_s + changed->more_s * (double)parts;
  uint64_t forward = less(way->survey.forward_bytes, changed->saved_bytes);
  uint64_t made = forward > changed->again_bytes ? forward : changed->again_bytes;
  tsr__candidate one = {.plan = plan,
                        .least_bytes = way->survey.fixed_bytes + made,
                        .estimate_s = tsr__planner_step(way, kernels_s)};
  if (plan && TSR__VECTOR_PUSH(&way->candidates, one)) return true;
  tsr_run_plan_free(plan);
  return false;
}

/* The way's plan, into which ranges are put in place of those that it has. */
static tsr_run_plan *without_blocks(const tsr__way *way) {
  tsr_run_plan *plan = tsr__run_plan_copy(way->plan);
  if (plan) tsr__run_plan_clear_blocks(plan);
  return plan;
}

static bool add_plan(const chooser *c, const tsr__chain_plan *chain) {
  tsr_run_plan *plan = without_blocks(c->way);
  effect all = {0, 0, 0, 0};
  if (plan && list_ranges(c, chain, plan, &all)) return add_candidate(c->way, plan, &all, c->parts);
  tsr_run_plan_free(plan);
  return false;
}

/* More than all blocks need that keep everything, also in slots, which are rounded up. */
static uint64_t most_of(const chooser *c, size_t count) {
  return (count + 1) * (c->kept_bytes + c->input_bytes + gradient_bytes(c) + 1);
}

static int solve(const chooser *c, tsr_error *error) {
  size_t count = c->planning->model->layers, found = 0;
  assert(count);
  tsr__chain_option options[1 + TSR__PLANNER_OPTIONS];
  tsr__chain_plan plans[TSR__PLANNER_CANDIDATES];
  tsr__chain_block *blocks = TSR__NEW_ARRAY(tsr__chain_block, count);
  if (!blocks) return tsr__fail_memory(error);
  list_chain_options(c, options);
  for (size_t i = 0; i < count; i++)
    blocks[i] = (tsr__chain_block){.input_bytes = c->input_bytes,
                                   .gradient_bytes = gradient_bytes(c),
                                   .pass_s = c->forward_s,
                                   .options = options,
                                   .option_count = c->of->count};
  tsr__chain chain = {blocks, count, c->input_bytes, TSR__PLANNER_SEGMENT, c->planning->how.effort};
  uint32_t slots = (uint32_t)(SLOT_BLOCKS / count < SLOTS ? SLOT_BLOCKS / count : SLOTS);
  int status = tsr__chain_front(&chain, most_of(c, count), slots < 64 ? 64 : slots, plans,
                                TSR__PLANNER_CANDIDATES, &found, error);
  bool ok = true;
  for (size_t i = 0; i < found; i++) {
    if (status == 0) ok = ok && add_plan(c, &plans[i]);
    tsr__chain_plan_release(&plans[i]);
  }
  tsr__free(blocks);
  return status == 0 && !ok ? tsr__fail_memory(error) : status;
}

/* ---- all of it ---- */

/* A micro-batch on its own is what the chain is made of. */
static int begin(chooser *c, tsr_error *error) {
  const tsr_simulate_options *o = &c->way->plan->options;
  uint64_t batch = c->planning->how.batch ? c->planning->how.batch : 1;
  c->batch = o->micro_batch ? o->micro_batch : batch;
  c->parts = batch / c->batch * o->accumulate;
  c->plan = without_blocks(c->way);
  if (!c->plan) return tsr__fail_memory(error);
  tsr__option_reset(tsr__option_find("micro_batch"), &c->plan->options);
  tsr__option_reset(tsr__option_find("accumulate"), &c->plan->options);
  return 0;
}

/* The plan without choices that decide nothing of what a block can keep; NULL when out of memory. */
static tsr_run_plan *key_of(const chooser *c) {
  static const char *const others[] = {"loss", "optimizer_in_backward", "offload"};
  tsr_run_plan *key = tsr__run_plan_copy(c->plan);
  for (size_t i = 0; key && i < sizeof others / sizeof *others; i++)
    tsr__option_reset(tsr__option_find(others[i]), &key->options);
  return key;
}

/* Those of another way that has the same blocks, or none. */
static struct tsr__block_options *find_options(const chooser *c, const tsr_run_plan *key) {
  for (size_t i = 0; i < c->planning->block_options.count; i++) {
    struct tsr__block_options *o = c->planning->block_options.items[i];
    if (o->key && o->activations == c->plan->options.offload.activations && o->batch == c->batch &&
        o->narrows == c->way->narrows && tsr__run_plan_equal(o->key, key))
      return o;
  }
  return NULL;
}

static int list_options(chooser *c, tsr_error *error) {
  tsr_simulate_options options = c->planning->how;
  tsr_run_plan_options(c->plan, &options);
  options.batch = c->batch;
  int status = list_sets(c, &options, error);
  bool may = c->planning->allow & TSR_ALLOW_RECOMPUTE;
  if (status == 0 && may) status = choose_options(c, error);
  if (status == 0) status = add_narrows(c, error);
  return status || !may ? status
                        : add_if_less(c, (fragment){.checkpoint = TSR_CHECKPOINT_SELECTIVE}, error);
}

static int run_all_again(const chooser *c, tsr_error *error) {
  tsr_run_plan *plan = tsr__run_plan_copy(c->way->plan);
  const stretch blocks = {0, c->planning->model->layers, 0, 1};
  effect all = {0, 0, 0, 0};
  if (plan) tsr__option_set("checkpoint", "full", &plan->options);
  add_effect(c, &blocks, &all);
  return add_candidate(c->way, plan, &all, c->parts) ? 0 : tsr__fail_memory(error);
}

/* Where nothing is computed again there is no chain: the first blocks, more and more of them, with each option. */
static int add_firsts(const chooser *c, size_t option, tsr_error *error) {
  size_t layers = c->planning->model->layers, most = TSR__PLANNER_CANDIDATES / 2;
  size_t count = layers < most ? layers : most;
  for (size_t i = 1; i <= count; i++) {
    const stretch some = {0, i * layers / count, option, 0};
    tsr_run_plan *plan = without_blocks(c->way);
    effect all = {0, 0, 0, 0};
    if (plan && !close_stretch(c, &some, plan)) {
      tsr_run_plan_free(plan);
      plan = NULL;
    }
    add_effect(c, &some, &all);
    if (!add_candidate(c->way, plan, &all, c->parts)) return tsr__fail_memory(error);
  }
  return 0;
}

/* Takes the key over. */
static int find_new_options(chooser *c, tsr_run_plan *key, tsr_error *error) {
  c->of = TSR__NEW(struct tsr__block_options);
  /* NOLINTNEXTLINE(bugprone-sizeof-expression): a list of pointers */
  if (!c->of || !TSR__VECTOR_PUSH(&c->planning->block_options, c->of)) {
    tsr__block_options_free(c->of);
    tsr_run_plan_free(key);
    return tsr__fail_memory(error);
  }
  c->of->fragments[0] = keep;
  c->of->count = 1;
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

/* Make c->of and c->facts. */
static int measure_options(chooser *c, tsr_error *error) {
  tsr_run_plan *key = key_of(c);
  if (!key) return tsr__fail_memory(error);
  c->of = find_options(c, key);
  bool is_new = !c->of, is_possible = true;
  int status = is_new ? find_new_options(c, key, error) : 0;
  if (!is_new) tsr_run_plan_free(key);
  for (size_t i = 1; status == 0 && is_possible && !is_new && i < c->of->count; i++)
    status = facts_with(c, &c->of->fragments[i], &c->facts[i], &is_possible, error);
  assert(status || is_possible); /* it is for other ways */
  return status;
}

static int list_all(chooser *c, tsr_error *error) {
  bool is_possible = false;
  int status = begin(c, error);
  if (status == 0) status = measure_block(c, &is_possible, error);
  if (status || !is_possible) return status; /* blocks that cannot be run again */
  status = measure_options(c, error);
  if (!(c->planning->allow & TSR_ALLOW_RECOMPUTE)) {
    for (size_t i = 1; status == 0 && i < c->of->count; i++) status = add_firsts(c, i, error);
    return status;
  }
  if (status == 0) status = solve(c, error);
  return status ? status : run_all_again(c, error);
}

static int compare_candidates(const void *left, const void *right) {
  const tsr__candidate *a = left, *b = right;
  return (a->estimate_s > b->estimate_s) - (a->estimate_s < b->estimate_s);
}

int tsr__planner_list_candidates(tsr_planning *planning, tsr__way *way, tsr_error *error) {
  chooser *c = TSR__NEW(chooser);
  bool ok = c && add_candidate(way, tsr__run_plan_copy(way->plan), &(effect){0, 0, 0, 0}, 1);
  int status = ok ? 0 : tsr__fail_memory(error);
  if (c) *c = (chooser){.planning = planning, .way = way};
  bool has_options = planning->allow & TSR_ALLOW_RECOMPUTE || way->narrows;
  if (status == 0 && has_options) status = list_all(c, error);
  if (c) tsr_run_plan_free(c->plan);
  tsr__free(c);
  tsr__sort(way->candidates.items, way->candidates.count, sizeof *way->candidates.items,
            compare_candidates);
  way->is_listed = status == 0;
  return status;
}
