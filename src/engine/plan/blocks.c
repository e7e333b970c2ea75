/* blocks.c - plans of a way: the chain solver puts choices of its blocks together (effects.c finds them).
 *
 * A chain's schedule runs blocks with options, or passes some of them to run them again as one, within which nothing
 * can be chosen: "full" for one block, "every:K" for K. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"
#include "plan/blocks.h"
#include "plan/chain.h"

enum { SLOTS = 4096, SLOT_BLOCKS = 200000 };

/* ---- the chain ---- */

static uint64_t less(uint64_t bytes, uint64_t taken) {
  return taken < bytes ? bytes - taken : 0;
}

static void list_chain_options(const tsr__chooser *c, tsr__chain_option *out) {
  uint64_t kept = less(c->kept_bytes, c->input_bytes);
  assert(c->of->count && c->forward_s >= 0 && c->backward_s >= 0);
  for (size_t i = 0; i < c->of->count; i++) {
    const tsr__block_effect *effect = &c->of->effects[c->of->options[i]];
    double copies_s = c->way->exposed * tsr__blocks_copies(c, effect);
    out[i] = (tsr__chain_option){.saved_bytes = less(kept, effect->saved_bytes),
                                 .forward_s = c->forward_s,
                                 .backward_s = fmax(c->backward_s + effect->more_s + copies_s, 0)};
  }
}

/* Gradients of parameters exist already where they are added up, and hardly at all where they go at once; of what ranks
 * keep a part of, that part stays. */
static uint64_t gradient_bytes(const tsr__chooser *c) {
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

/* The option of a stretch that is no segment: its blocks are of one sort. */
static const tsr__block_effect *option_of(const tsr__chooser *c, const stretch *s) {
  const struct tsr__block_options *of = tsr__blocks_of(c, s->first)->of;
  assert(s->option < of->count);
  return &of->effects[of->options[s->option]];
}

static bool close_stretch(const tsr__chooser *c, const stretch *s, tsr_run_plan *plan) {
  assert(s->first <= s->end);
  if (s->first == s->end) return true;
  if (!s->segment)
    return tsr__blocks_add_range(c, plan, &option_of(c, s)->fragment, 0, s->first, s->end - 1);
  bool is_one = s->segment == 1;
  const tsr__fragment again = {.checkpoint = is_one ? TSR_CHECKPOINT_FULL : TSR_CHECKPOINT_EVERY};
  return tsr__blocks_add_range(c, plan, &again, is_one ? 0 : s->segment, s->first, s->end - 1);
}

/* What choices change of a micro-batch that keeps all, block by block. */
typedef struct effect {
  double more_s;        /* of backward */
  double more_copies_s; /* to the host and back */
  uint64_t saved_bytes; /* at the end of forward */
  uint64_t kept_bytes;  /* by the blocks so far */
  uint64_t
      again_bytes; /* the most that is live once a segment was run again: it, and what blocks before it keep */
} effect;

/* A block of a segment runs once more, and of a segment its input is kept. */
static void add_segments(const tsr__chooser *c, const stretch *s, effect *to) {
  uint64_t made = 0; /* by the segment that is run again */
  for (size_t i = s->first; i < s->end; i++) {
    const tsr__chooser *own = tsr__blocks_of(c, i);
    bool is_first = (i - s->first) % s->segment == 0;
    to->more_s += own->forward_s;
    to->more_copies_s += own == c ? own->again_copies_s : 0;
    if (is_first) made = 0;
    made += own->kept_bytes;
    if (to->kept_bytes + made > to->again_bytes) to->again_bytes = to->kept_bytes + made;
    to->saved_bytes += less(own->kept_bytes, is_first ? own->input_bytes : 0);
    if ((i - s->first) % s->segment + 1 == s->segment || i + 1 == s->end)
      to->kept_bytes += own->input_bytes;
  }
}

static void add_effect(const tsr__chooser *c, const stretch *s, effect *to) {
  assert(s->first <= s->end);
  if (s->first == s->end) return;
  if (s->segment) {
    add_segments(c, s, to);
    return;
  }
  const tsr__chooser *own = tsr__blocks_of(c, s->first);
  const tsr__block_effect *option = option_of(c, s);
  uint64_t blocks = s->end - s->first, saved = blocks * option->saved_bytes;
  to->more_s += (double)blocks * option->more_s;
  to->more_copies_s += (double)blocks * tsr__blocks_copies(own, option);
  to->saved_bytes += saved;
  to->kept_bytes += less(blocks * own->kept_bytes, saved);
}

/* The first visit of each block, in their order: the steps of a chain's plan begin with them. */
static bool list_ranges(const tsr__chooser *c, const tsr__chain_plan *plan, tsr_run_plan *out,
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
    bool is_other_sort = tsr__blocks_of(c, now.first) != tsr__blocks_of(c, block);
    if (now.segment != segment || now.option != option || (!segment && is_other_sort)) {
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

/* Takes the plan over, with this number of micro-batches; NULL is out of memory. */
static bool add_candidate(tsr__way *way, tsr_run_plan *plan, const effect *changed,
                          uint64_t parts) {
  for (size_t i = 0; plan && i < way->candidates.count; i++)
    if (tsr__run_plan_equal(plan, way->candidates.items[i].plan)) {
      tsr_run_plan_free(plan);
      return true;
    }
  double kernels_s = way->kernels_s + changed->more_s * (double)parts;
  double copies_s = way->copies_s + changed->more_copies_s * (double)parts;
  uint64_t forward = less(way->survey.forward_bytes, changed->saved_bytes);
  uint64_t made = forward > changed->again_bytes ? forward : changed->again_bytes;
  tsr__candidate one = {.plan = plan,
                        .least_bytes = way->survey.fixed_bytes + made,
                        .estimate_s = tsr__planner_estimate(way, kernels_s, copies_s)};
  if (plan && TSR__VECTOR_PUSH(&way->candidates, one)) return true;
  tsr_run_plan_free(plan);
  return false;
}

/* The way's plan, into which ranges are put in place of those that it has. */
tsr_run_plan *tsr__blocks_none(const tsr__way *way) {
  tsr_run_plan *plan = tsr__run_plan_copy(way->plan);
  if (plan) tsr__run_plan_clear_blocks(plan);
  return plan;
}

static bool add_plan(const tsr__chooser *c, const tsr__chain_plan *chain) {
  tsr_run_plan *plan = tsr__blocks_none(c->way);
  effect all = {0, 0, 0, 0, 0};
  if (plan && list_ranges(c, chain, plan, &all)) return add_candidate(c->way, plan, &all, c->parts);
  tsr_run_plan_free(plan);
  return false;
}

/* More than all blocks need that keep everything, also in slots, which are rounded up. */
static uint64_t most_of(const tsr__chooser *c, size_t count) {
  uint64_t most = (count + 1) * (c->kept_bytes + c->input_bytes + gradient_bytes(c) + 1);
  uint64_t at_home = c->home ? most_of(&c->home->chooser, count) : 0;
  return most > at_home ? most : at_home;
}

/* To pass a block is to run it again later, with copies of what is on the host. Where all blocks have those, they decide nothing. */
static double pass_of(const tsr__chooser *c, const tsr__chooser *own) {
  double copies_s = c->home && own == c ? own->way->exposed * own->again_copies_s : 0;
  return own->forward_s + fmax(copies_s, 0);
}

static int solve(const tsr__chooser *c, tsr_error *error) {
  size_t count = c->planning->model->layers, found = 0;
  assert(count);
  tsr__chain_option options[2][1 + TSR__PLANNER_OPTIONS]; /* of blocks that are away, and at home */
  tsr__chain_plan plans[TSR__PLANNER_CANDIDATES];
  tsr__chain_block *blocks = TSR__NEW_ARRAY(tsr__chain_block, count);
  if (!blocks) return tsr__fail_memory(error);
  list_chain_options(c, options[0]);
  if (c->home) list_chain_options(&c->home->chooser, options[1]);
  for (size_t i = 0; i < count; i++) {
    const tsr__chooser *own = tsr__blocks_of(c, i);
    blocks[i] = (tsr__chain_block){.input_bytes = own->input_bytes,
                                   .gradient_bytes = gradient_bytes(own),
                                   .pass_s = pass_of(c, own),
                                   .options = options[own != c],
                                   .option_count = own->of->count};
  }
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

static int run_all_again(const tsr__chooser *c, tsr_error *error) {
  tsr_run_plan *plan = tsr__run_plan_copy(c->way->plan);
  const stretch blocks = {0, c->planning->model->layers, 0, 1};
  effect all = {0, 0, 0, 0, 0};
  if (plan) tsr__option_set("checkpoint", "full", &plan->options);
  add_effect(c, &blocks, &all);
  return add_candidate(c->way, plan, &all, c->parts) ? 0 : tsr__fail_memory(error);
}

/* Where nothing is computed again there is no chain, and where activations are copied, time is no sum over blocks: the first blocks, more and more of them, with each option. */
static int add_firsts(const tsr__chooser *c, size_t option, tsr_error *error) {
  size_t layers = c->home ? c->away : c->planning->model->layers;
  size_t most = TSR__PLANNER_CANDIDATES / 2;
  size_t count = layers < most ? layers : most;
  for (size_t i = 1; i <= count; i++) {
    const stretch some = {0, i * layers / count, option, 0};
    tsr_run_plan *plan = tsr__blocks_none(c->way);
    effect all = {0, 0, 0, 0, 0};
    if (plan && !close_stretch(c, &some, plan)) {
      tsr_run_plan_free(plan);
      plan = NULL;
    }
    add_effect(c, &some, &all);
    if (!add_candidate(c->way, plan, &all, c->parts)) return tsr__fail_memory(error);
  }
  return 0;
}
static int list_all(tsr__chooser *c, tsr_error *error) {
  bool is_possible;
  int status = tsr__blocks_begin(c->planning, c->way, c, &is_possible, error);
  if (status || !is_possible) return status; /* blocks that cannot be run again */
  if (!(c->planning->allow & TSR_ALLOW_RECOMPUTE)) {
    for (size_t i = 1; status == 0 && i < c->of->count; i++) status = add_firsts(c, i, error);
    return status;
  }
  if (status == 0) status = solve(c, error);
  for (size_t i = 1; status == 0 && tsr__way_copies_activations(c->way) && i < c->of->count; i++)
    status = add_firsts(c, i, error); /* as many as take the time of the copies */
  return status ? status : run_all_again(c, error);
}

static int compare_candidates(const void *left, const void *right) {
  const tsr__candidate *a = left, *b = right;
  return (a->estimate_s > b->estimate_s) - (a->estimate_s < b->estimate_s);
}

int tsr__planner_list_candidates(tsr_planning *planning, tsr__way *way, tsr_error *error) {
  tsr__chooser *c = TSR__NEW(tsr__chooser);
  bool ok = c && add_candidate(way, tsr__run_plan_copy(way->plan), &(effect){0, 0, 0, 0, 0}, 1);
  int status = ok ? 0 : tsr__fail_memory(error);
  if (c) *c = (tsr__chooser){.planning = planning, .way = way};
  bool has_options = planning->allow & TSR_ALLOW_RECOMPUTE || way->narrows;
  if (status == 0 && has_options) status = list_all(c, error);
  if (c) tsr__blocks_release(c);
  tsr__free(c);
  tsr__sort(way->candidates.items, way->candidates.count, sizeof *way->candidates.items,
            compare_candidates);
  way->is_listed = status == 0;
  return status;
}
