/* ways.c - ways to run a model before any block is recomputed: first the savings that cost no time, then all
 * combinations of the others. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"
#include "exec/build.h"
#include "exec/card.h"
#include "plan/paste.h"
#include "plan/planner.h"

/* No slower, and no larger unless it is faster. What saves nothing at the peak as it is may do so once the peak is
 * elsewhere, so it counts as well, even if blocks at other places make the peak a little larger. */
static bool is_saving(const tsr_run_plan_cost *with, const tsr_run_plan_cost *without) {
  if (!with->is_possible || with->step_seconds > without->step_seconds * (1 + 1e-9)) return false;
  return with->peak_bytes <= without->peak_bytes + without->peak_bytes / 1000 ||
         with->step_seconds < without->step_seconds * 0.9995;
}

/* What a plan takes, with the precision that makes it possible. */
static int measure_resolved(tsr_planning *p, const tsr_run_plan *plan, tsr_run_plan_cost *out,
                            tsr_error *error) {
  tsr_run_plan *resolved = tsr__run_plan_copy(plan);
  if (!resolved) return tsr__fail_memory(error);
  if (p->resolve) tsr__technique_apply(p->resolve, resolved);
  int status = tsr__planner_measure(p, resolved, out, error);
  tsr_run_plan_free(resolved);
  return status;
}

/* For the certificate. */
static int note_saving(tsr_planning *p, const tsr__technique_row *technique,
                       const tsr_run_plan_cost *cost, tsr_error *error) {
  tsr__saving saving = {technique, *cost};
  return TSR__VECTOR_PUSH(&p->savings, saving) ? 0 : tsr__fail_memory(error);
}

static uint64_t tokens_of(const tsr_planning *p) {
  return tsr__product_u64(p->how.batch ? p->how.batch : 1, p->how.sequence ? p->how.sequence : 1);
}

/* Where an op writes is part of the program: not changed for nothing. */
static bool is_worth_it(const tsr__technique_row *technique, const tsr_run_plan_cost *with,
                        const tsr_run_plan_cost *without) {
  bool is_much = with->peak_bytes < without->peak_bytes - without->peak_bytes / 100;
  return is_saving(with, without) && (strcmp(technique->option, "in_place") != 0 || is_much);
}

/* Whether all programs that the plan is for have what a technique sets. */
static bool is_expressible(const tsr_planning *p, const tsr__technique_row *technique) {
  for (size_t i = 0; i < p->target_count; i++)
    if ((technique->option && !tsr__target_has(p->targets[i], technique->option)) ||
        (technique->option2 && !tsr__target_has(p->targets[i], technique->option2)))
      return false;
  return true;
}

static bool is_allowed(const tsr_planning *p, const tsr__technique_row *technique) {
  unsigned flag = tsr__technique_flag(technique);
  if (flag == TSR_ALLOW_ALL_BLOCKS && p->allow & (TSR_ALLOW_RECOMPUTE | TSR_ALLOW_NARROW))
    return false;
  return p->allow & flag && is_expressible(p, technique);
}

/* Try a technique, and keep it in p->free if it costs no time. `*cost`: of p->free. */
static int try_saving(tsr_planning *p, const tsr__technique_row *technique, tsr_run_plan_cost *cost,
                      tsr_error *error) {
  tsr_run_plan_cost with;
  tsr_run_plan *plan = tsr__run_plan_copy(p->free);
  if (!plan) return tsr__fail_memory(error);
  tsr__technique_apply(technique, plan);
  int status = measure_resolved(p, plan, &with, error);
  if (status == 0) status = note_saving(p, technique, &with, error);
  bool is_kept = status == 0 && is_worth_it(technique, &with, cost);
  if (is_kept) *cost = with;
  tsr_run_plan_free(is_kept ? p->free : plan);
  if (is_kept) p->free = plan;
  return status;
}

/* Of two techniques that set the same option, the second is tried if the first was not applied. */
static int save_for_free(tsr_planning *p, tsr_error *error) {
  tsr_run_plan_cost cost;
  p->free = tsr__run_plan_copy(p->base);
  int status = p->free ? measure_resolved(p, p->free, &cost, error) : tsr__fail_memory(error);
  if (status == 0) status = note_saving(p, NULL, &cost, error);
  for (const tsr__technique_row *t = tsr__techniques; status == 0 && t->allow; t++) {
    if (t->use != TSR__USE_IF_FREE || !is_allowed(p, t)) continue;
    if (!tsr__technique_may_apply(t, p->free)) continue;
    if (t->most_tokens && tokens_of(p) <= t->most_tokens) continue;
    status = try_saving(p, t, &cost, error);
  }
  return status;
}

/* ---- combinations ---- */

/* Cards without bf16 have other rows: fp16 with fp32 masters has its loss scaled there, and autocast, too. */
static bool suits_card(const tsr_planning *p, const tsr__technique_row *technique) {
  const tsr__data_sheet *card = tsr__gpu_of(&p->how);
  bool is_old = card && !tsr__card_has_bf16(card);
  return strcmp(technique->allow, "precision") != 0 || technique->is_of_old_cards == is_old;
}

/* Choices of the plan to begin with are kept, unless others may be made for what is computed again. */
static bool may_narrow(const tsr_planning *p) {
  bool has_choices = p->base->blocks.count || p->base->options.checkpoint ||
                     tsr__run_plan_modules(p->base, TSR_MODULE_CHECKPOINT);
  return p->allow & TSR_ALLOW_NARROW && (p->allow & TSR_ALLOW_RECOMPUTE || !has_choices);
}

static bool is_combined(const tsr_planning *p, const tsr__technique_row *t) {
  if (t->use != TSR__USE_COMBINED && t->use != TSR__USE_DIVIDED) return false;
  if (!is_allowed(p, t) || !suits_card(p, t) || !tsr__technique_may_apply(t, p->base)) return false;
  if (t->most_tokens && tokens_of(p) <= t->most_tokens) return false;
  return t->option || may_narrow(p); /* the only one without an option */
}

const tsr__technique_row *tsr__planner_precision(const tsr_planning *p, size_t index) {
  for (const tsr__technique_row *t = tsr__techniques; t->allow; t++)
    if (strcmp(t->allow, "precision") == 0 && is_combined(p, t) && index-- == 0) return t;
  return NULL;
}

enum { MOST_PARTS = 256 };

/* A technique, and the micro-batch of one that divides the batch. */
typedef struct choice {
  const tsr__technique_row *technique; /* NULL: nothing is changed */
  uint64_t micro_batch;
} choice;

/* One thing to decide, and its choices. The first choice changes nothing. */
typedef struct dimension {
  choice choices[TSR__TECHNIQUE_CHOICES];
  size_t count;
} dimension;

static void add_choice(dimension *d, const tsr__technique_row *technique, uint64_t micro_batch) {
  assert(d->count < TSR__TECHNIQUE_CHOICES);
  d->choices[d->count++] = (choice){technique, micro_batch};
}

/* Every number of equal parts of the batch, the smallest numbers first, and single sequences. Searches for sizes only use halves,
 * halves of these and so on. */
static void divide_batch(const tsr_planning *p, const tsr__technique_row *technique, dimension *d) {
  uint64_t batch = p->how.batch ? p->how.batch : 1;
  uint64_t most = batch < MOST_PARTS ? batch : MOST_PARTS;
  for (uint64_t parts = 2; parts <= most; parts++) {
    bool is_half = (parts & (parts - 1)) == 0;
    if (batch % parts || (p->is_coarse && !is_half && parts < batch)) continue;
    if (parts < batch && d->count + 1 == TSR__TECHNIQUE_CHOICES) continue; /* room for the last */
    add_choice(d, technique, batch / parts);
  }
}

/* A tensor that is recomputed need not be copied for backward, so such copies are no part of the bound. */
bool tsr__way_copies_activations(const tsr__way *way) {
  return way->plan->options.offload.activations != TSR_SPACE_DEVICE;
}

/* Computing more may hide what ranks send, but never ends a step sooner. */
double tsr__planner_estimate(const tsr__way *way, double kernels_s, double copies_s) {
  assert(kernels_s >= 0 && way->copies_s >= 0 && way->waited_s >= 0);
  double step_s = tsr__cost_step(kernels_s, fmax(copies_s, 0), way->exposed) + way->waited_s;
  return fmax(step_s, way->links_s);
}

double tsr__planner_step(const tsr__way *way, double kernels_s) {
  return tsr__planner_estimate(way, kernels_s,
                               tsr__way_copies_activations(way) ? 0 : way->copies_s);
}

/* Whether each block takes as long as the others. If the planner may not change what is recomputed, a way has the choices of the
 * base, and those may be for some blocks. */
static bool has_equal_blocks(const tsr_run_plan *plan) {
  return !plan->blocks.count && !plan->modules.count && !plan->options.offload_blocks &&
         plan->options.checkpoint < TSR_CHECKPOINT_EVERY;
}

typedef tsr__way_sums sums;

static sums less(const sums *a, const sums *b) {
  return (sums){a->kernels_s - b->kernels_s, a->copies_s - b->copies_s, a->waited_s - b->waited_s,
                a->links_s - b->links_s, a->exposed};
}

static sums add(const sums *to, const sums *more, double times) {
  return (sums){to->kernels_s + more->kernels_s * times, to->copies_s + more->copies_s * times,
                to->waited_s + more->waited_s * times, to->links_s + more->links_s * times,
                to->exposed};
}

/* Of `count`, by what three take more than two. */
static sums extend(const sums *two, const sums *three, uint64_t count) {
  const sums more = less(three, two);
  return add(two, &more, (double)count - 2);
}

static int survey_sums(const tsr_planning *p, const tsr__way *way, uint64_t layers, uint64_t batch,
                       sums *out, bool *is_possible, tsr_error *why) {
  tsr__survey survey;
  int status = tsr__planner_survey(p, way->plan, layers, batch, &survey, is_possible, why);
  if (status || !*is_possible) return status;
  const tsr__cost *cost = &survey.cost;
  *out =
      (sums){tsr__cost_kernels(cost), cost->copies_s, cost->waited_s, cost->links_s, cost->exposed};
  tsr__survey_release(&survey);
  return 0;
}

/* Of as many blocks as the model has, from two and three of them, and of one more. */
static int survey_blocks(const tsr_planning *p, const tsr__way *way, uint64_t batch, sums *out,
                         sums *a_block, bool *is_possible, tsr_error *why) {
  uint64_t layers = p->model->layers;
  bool is_sum = layers > 1 && has_equal_blocks(way->plan);
  sums three;
  *a_block = (sums){.kernels_s = 0};
  int status = survey_sums(p, way, is_sum || !layers ? 2 : layers, batch, out, is_possible, why);
  if (status || !*is_possible || !is_sum) return status;
  status = survey_sums(p, way, 3, batch, &three, is_possible, why);
  if (status || !*is_possible) return status;
  *a_block = less(&three, out);
  *out = extend(out, &three, layers);
  return 0;
}

/* A way's times if all is kept. */
static void set_times(tsr__way *way, const sums *all, const sums *a_block) {
  way->kernels_s = all->kernels_s;
  way->copies_s = all->copies_s;
  way->waited_s = all->waited_s;
  way->links_s = all->links_s;
  way->exposed = all->exposed;
  way->a_block = *a_block;
  way->step_s = tsr__planner_step(way, way->kernels_s);
}

/* What the way takes if all is kept. `why` says why it is not possible. */
static int estimate(const tsr_planning *p, tsr__way *way, bool *is_possible, tsr_error *why) {
  const tsr_simulate_options *o = &way->plan->options;
  uint64_t batch = p->how.batch ? p->how.batch : 1;
  uint64_t parts = o->micro_batch ? batch / o->micro_batch : 1;
  bool is_sum = parts > 3 && o->accumulate <= 1 && !o->ranks;
  sums all, three, a_block, of_three;
  int status =
      survey_blocks(p, way, is_sum ? 2 * o->micro_batch : 0, &all, &a_block, is_possible, why);
  if (status || !*is_possible) return status;
  if (is_sum) {
    status = survey_blocks(p, way, 3 * o->micro_batch, &three, &of_three, is_possible, why);
    if (status || !*is_possible) return status;
    all = extend(&all, &three, parts);
    a_block = extend(&a_block, &of_three, parts);
  }
  set_times(way, &all, &a_block);
  return 0;
}

void tsr__way_release(tsr__way *way) {
  tsr_run_plan_free(way->plan);
  if (way->is_surveyed) tsr__survey_release(&way->survey);
  for (size_t i = 0; i < way->candidates.count; i++)
    tsr_run_plan_free(way->candidates.items[i].plan);
  TSR__VECTOR_FREE(&way->candidates);
  *way = (tsr__way){.plan = NULL};
}

/* Seconds of a step with a technique, if the model allows it: the least and the most of all that were asked for. */
typedef struct spread {
  double least_s, most_s;
} spread;

static int widen(const tsr_planning *p, const tsr__technique_row *technique, spread *of,
                 tsr_error *error) {
  tsr__way way = {.plan = tsr__run_plan_copy(p->free)};
  tsr_error why = {.status = TSR_OK};
  bool is_possible = false;
  if (!way.plan) return tsr__fail_memory(error);
  if (technique) tsr__technique_apply(technique, way.plan);
  int status = estimate(p, &way, &is_possible, &why);
  if (status && error) *error = why;
  if (status == 0 && is_possible) {
    of->least_s = fmin(of->least_s, way.step_s);
    of->most_s = fmax(of->most_s, way.step_s);
  }
  tsr__way_release(&way);
  return status;
}

/* A step must take this much more with the costliest of a dimension's choices than with the cheapest, for values between them to be of use. */
#define FINE_SPREAD 0.001

/* Whether fine techniques of a dimension are tried. Those that have no others always are. */
static int choose_fine(const tsr_planning *p, bool *has_fine, tsr_error *error) {
  for (uint8_t d = 1; !p->is_coarse && d <= TSR__TECHNIQUE_DIMENSIONS; d++) {
    spread all = {INFINITY, 0};
    size_t coarse = 0, fine = 0;
    for (const tsr__technique_row *t = tsr__techniques; t->allow; t++) {
      if (t->dimension != d || !is_combined(p, t)) continue;
      fine += t->is_fine;
      coarse += !t->is_fine;
    }
    int status = fine && coarse ? widen(p, NULL, &all, error) : 0;
    for (const tsr__technique_row *t = tsr__techniques; status == 0 && fine && t->allow; t++)
      if (t->dimension == d && !t->is_fine && is_combined(p, t)) status = widen(p, t, &all, error);
    if (status) return status;
    has_fine[d] = fine && (!coarse || all.most_s > all.least_s * (1 + FINE_SPREAD));
  }
  return 0;
}

static void list_dimensions(const tsr_planning *p, const bool *has_fine,
                            dimension d[TSR__TECHNIQUE_DIMENSIONS]) {
  for (size_t i = 0; i < TSR__TECHNIQUE_DIMENSIONS; i++) add_choice(&d[i], NULL, 0);
  for (const tsr__technique_row *t = tsr__techniques; t->allow; t++) {
    if (!is_combined(p, t) || (t->is_fine && !has_fine[t->dimension])) continue;
    assert(t->dimension && t->dimension <= TSR__TECHNIQUE_DIMENSIONS);
    dimension *of = &d[t->dimension - 1];
    if (t->use == TSR__USE_DIVIDED)
      divide_batch(p, t, of);
    else
      add_choice(of, t, 0);
  }
}

/* The plan without choices for blocks that the planner makes: a way's. NULL when out of memory. */
static tsr_run_plan *way_plan(const tsr_planning *p, const tsr_run_plan *plan) {
  tsr_run_plan *way = tsr__run_plan_copy(plan);
  if (way && (p->allow & TSR_ALLOW_RECOMPUTE || may_narrow(p))) {
    tsr__option_reset(tsr__option_find("checkpoint"), &way->options);
    tsr__run_plan_clear_modules(way, TSR_MODULE_CHECKPOINT);
    tsr__run_plan_clear_blocks(way);
  }
  bool is_traced = tsr_model_is_traced(p->model); /* its modules are offloaded one by one */
  if (way && is_traced && p->allow & TSR_ALLOW_OFFLOAD) {
    tsr__option_reset(tsr__option_find("offload"), &way->options);
    tsr__run_plan_clear_modules(way, TSR_MODULE_OFFLOAD);
  }
  return way;
}

static const tsr__way *find_way(const tsr_planning *p, const tsr_run_plan *plan, bool narrows) {
  uint64_t number = tsr__run_plan_number(plan);
  for (size_t i = 0; i < p->ways.count; i++) {
    const tsr__way *way = &p->ways.items[i];
    if (way->number == number && way->narrows == narrows && tsr__run_plan_equal(way->plan, plan))
      return way;
  }
  return NULL;
}

static int refuse_way(tsr_planning *p, const tsr__way *way, const tsr_error *why,
                      tsr_error *error) {
  tsr__refused_way row = {.plan = tsr__run_plan_copy(way->plan), .narrows = way->narrows};
  (void)snprintf(row.reason, sizeof row.reason, "%s",
                 *why->message ? why->message : "the model or another choice excludes it");
  if (row.plan && TSR__VECTOR_PUSH(&p->refused, row)) return 0;
  tsr_run_plan_free(row.plan);
  return tsr__fail_memory(error);
}

static sums sums_of(const tsr__way *way) {
  return (sums){way->kernels_s, way->copies_s, way->waited_s, way->links_s, way->exposed};
}

/* Of two that are the same, one. */
static int add_way(tsr_planning *p, const tsr_run_plan *plan, bool narrows, bool is_fine,
                   tsr_error *error) {
  tsr__way way = {.plan = way_plan(p, plan), .narrows = narrows, .is_fine = is_fine};
  tsr_error why = {.status = TSR_OK};
  bool is_possible = false;
  if (!way.plan) return tsr__fail_memory(error);
  way.number = tsr__run_plan_number(way.plan);
  bool is_new = !find_way(p, way.plan, narrows);
  const tsr__way *wide = narrows ? find_way(p, way.plan, false) : NULL;
  int status = 0;
  if (wide && is_new) { /* it keeps all, too */
    const sums all = sums_of(wide);
    is_possible = true;
    set_times(&way, &all, &wide->a_block);
  } else if (is_new) {
    status = estimate(p, &way, &is_possible, &why);
  }
  if (status && error) *error = why;
  if (status == 0 && is_new && !is_possible) status = refuse_way(p, &way, &why, error);
  bool is_kept = status == 0 && is_possible && TSR__VECTOR_PUSH(&p->ways, way);
  if (status == 0 && is_possible && !is_kept) status = tsr__fail_memory(error);
  if (!is_kept) tsr__way_release(&way);
  return status;
}

/* ---- some blocks on the host ---- */

bool tsr__plan_is_away(const tsr_run_plan *plan) {
  const tsr_offload *away = &plan->options.offload;
  return away->optimizer || away->gradients || away->parameters || away->activations;
}

/* The same for the first `blocks` blocks alone. Its time follows from what a block takes on the device, and on the host. A block less is
 * counted, because copies may not be needed where the uses of the first and of the last block meet: so this is the least. */
static int add_part(tsr_planning *p, size_t all, size_t none, uint64_t blocks, tsr_error *error) {
  tsr__way way = {.plan = tsr__run_plan_copy(p->ways.items[all].plan),
                  .narrows = p->ways.items[all].narrows,
                  .is_fine = true};
  if (!way.plan) return tsr__fail_memory(error);
  const tsr__way *near = &p->ways.items[none], *far = &p->ways.items[all];
  const sums more = less(&far->a_block, &near->a_block), of_near = sums_of(near);
  const sums of_far = sums_of(far);
  sums least = add(&of_near, &more, (double)blocks);
  double from_far = of_far.copies_s - more.copies_s * (double)(p->model->layers - blocks);
  bool has_sums = near->a_block.kernels_s > 0 && far->a_block.kernels_s > 0, is_possible = true;
  least.copies_s = fmax(fmin(least.copies_s, from_far) - fmax(more.copies_s, 0), 0);
  way.plan->options.offload_blocks = blocks;
  way.number = tsr__run_plan_number(way.plan);
  set_times(&way, &least, &(sums){.kernels_s = 0});
  int status = has_sums ? 0 : estimate(p, &way, &is_possible, error);
  if (status == 0 && is_possible && TSR__VECTOR_PUSH(&p->ways, way)) return 0;
  tsr__way_release(&way);
  return status || !is_possible ? status : tsr__fail_memory(error);
}

enum { BLOCK_PARTS = 4 };

bool tsr__planner_has_parts(const tsr_planning *p) {
  bool is_given = tsr__plan_is_away(p->base); /* the user chose: it stays */
  if (p->is_coarse || is_given) return false;
  return is_allowed(p, tsr__technique_of("offload_blocks"));
}

/* Add each way that keeps state, gradients or parameters on the host for the first quarter, half and three quarters of the blocks, and for all
 * blocks without the embeddings and the head. Ways that copy activations are varied later (search.c). */
static int add_parts(tsr_planning *p, tsr_error *error) {
  size_t count = p->ways.count;
  uint64_t layers = p->model->layers;
  if (!tsr__planner_has_parts(p)) return 0;
  for (size_t i = 0; i < count; i++) {
    bool is_away = tsr__plan_is_away(p->ways.items[i].plan);
    if (!is_away || tsr__way_copies_activations(&p->ways.items[i])) continue;
    tsr_run_plan *plan = tsr__run_plan_copy(p->ways.items[i].plan);
    if (!plan) return tsr__fail_memory(error);
    tsr__option_reset(tsr__option_find("offload"), &plan->options);
    const tsr__way *none = find_way(p, plan, p->ways.items[i].narrows);
    tsr_run_plan_free(plan);
    if (!none) continue;
    size_t at = (size_t)(none - p->ways.items);
    uint64_t last = 0;
    for (uint64_t k = 1; k <= BLOCK_PARTS; k++) {
      uint64_t blocks = (layers * k + BLOCK_PARTS - 1) / BLOCK_PARTS;
      int status = blocks > last ? add_part(p, i, at, blocks, error) : 0;
      if (status) return status;
      last = blocks;
    }
  }
  return 0;
}

/* Ways of equal time in the order in which they were made: the simpler first. */
static int compare_ways(const void *left, const void *right) {
  const tsr__way *a = left, *b = right;
  if (a->step_s < b->step_s || a->step_s > b->step_s) return a->step_s < b->step_s ? -1 : 1;
  return (int)tsr__run_plan_size(a->plan) - (int)tsr__run_plan_size(b->plan);
}

/* More chunks of the loss than this save no more memory, and their steps take long to simulate. */
enum { MOST_CHUNKS = 256 };

static bool has_many_chunks(const tsr_planning *p, const tsr_run_plan *plan) {
  const tsr_simulate_options *o = &plan->options;
  uint64_t batch = p->how.batch ? p->how.batch : 1, sequence = p->how.sequence;
  if (!o->loss_chunk || o->loss_chunk == p->base->options.loss_chunk) return false;
  if (o->loss_chunk == p->free->options.loss_chunk) return false;
  uint64_t tokens =
      tsr__product_u64(o->micro_batch ? o->micro_batch : batch, sequence ? sequence : 1);
  return tokens / o->loss_chunk > MOST_CHUNKS;
}

/* Replace a plan by the nearest one that the program can express, if that replaces more than of the plan to begin with. */
static int bring_near(const tsr_planning *p, const char *target, tsr_run_plan **plan,
                      bool *is_changed, tsr_error *error) {
  tsr_run_plan *of_base = NULL, *nearest = NULL;
  size_t before, with;
  int status = tsr__target_nearest(target, p->model, &p->how, p->base, &of_base, &before, error);
  tsr_run_plan_free(of_base);
  if (status == 0)
    status = tsr__target_nearest(target, p->model, &p->how, *plan, &nearest, &with, error);
  *is_changed = status == 0 && with > before;
  tsr_run_plan_free(*is_changed ? *plan : nearest);
  if (*is_changed) *plan = nearest;
  return status;
}

/* The same for all programs that the plan is for. `*is_possible`: there is a plan that all can express. */
static int express(const tsr_planning *p, tsr_run_plan **plan, bool *is_possible,
                   tsr_error *error) {
  bool is_changed = p->target_count > 0;
  int status = 0;
  for (size_t turn = 0; status == 0 && is_changed && turn <= p->target_count; turn++) {
    is_changed = false;
    for (size_t i = 0; status == 0 && i < p->target_count; i++) {
      bool is_now;
      status = bring_near(p, p->targets[i], plan, &is_now, error);
      is_changed = is_changed || is_now;
    }
  }
  *is_possible = !is_changed;
  return status;
}

/* The plan of one choice in each dimension. */
static int add_combination(tsr_planning *p, const dimension *d, const size_t *at,
                           tsr_error *error) {
  assert(p->free);
  tsr_run_plan *plan = tsr__run_plan_copy(p->free);
  bool narrows = false, is_fine = false;
  if (!plan) return tsr__fail_memory(error);
  for (size_t i = 0; i < TSR__TECHNIQUE_DIMENSIONS; i++) {
    const choice *chosen = &d[i].choices[at[i]];
    if (!chosen->technique) continue;
    tsr__technique_apply(chosen->technique, plan);
    if (chosen->micro_batch) plan->options.micro_batch = chosen->micro_batch;
    narrows = narrows || !chosen->technique->option;
    is_fine = is_fine || chosen->technique->is_fine;
  }
  /* Under autocast, sums have another type than what they add to. */
  bool is_autocast = plan->options.dtype == TSR_SIMULATE_AUTOCAST_BF16 ||
                     plan->options.dtype == TSR_SIMULATE_AUTOCAST_FP16;
  if (is_autocast && !p->base->options.in_place) plan->options.in_place = 0;
  bool is_possible;
  int status = express(p, &plan, &is_possible, error);
  if (status == 0 && is_possible && !has_many_chunks(p, plan))
    status = add_way(p, plan, narrows, is_fine, error);
  tsr_run_plan_free(plan);
  return status;
}

/* Count up; false after the last combination. */
static bool advance(const dimension *d, size_t *at) {
  for (size_t i = 0; i < TSR__TECHNIQUE_DIMENSIONS; i++) {
    if (++at[i] < d[i].count) return true;
    at[i] = 0;
  }
  return false;
}

/* A step graph has its program's types and kernels: one way, in which each module may keep what it likes. */
static int list_traced(tsr_planning *p, tsr_error *error) {
  tsr__way way = {.plan = way_plan(p, p->base)};
  if (way.plan) way.number = tsr__run_plan_number(way.plan);
  p->free = tsr__run_plan_copy(p->base);
  int status = way.plan && p->free ? 0 : tsr__fail_memory(error);
  if (status == 0) status = tsr__planner_survey_way(p, &way, error);
  if (status == 0 && way.is_skipped)
    status = tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                       "a step of this program is too long to be planned");
  bool is_kept = status == 0 && TSR__VECTOR_PUSH(&p->ways, way);
  if (status == 0 && !is_kept) status = tsr__fail_memory(error);
  if (!is_kept) tsr__way_release(&way);
  p->has_ways = status == 0;
  return status;
}

int tsr__planner_list_ways(tsr_planning *p, tsr_error *error) {
  if (tsr_model_is_traced(p->model)) return list_traced(p, error);
  dimension d[TSR__TECHNIQUE_DIMENSIONS] = {0};
  size_t at[TSR__TECHNIQUE_DIMENSIONS] = {0};
  bool has_fine[TSR__TECHNIQUE_DIMENSIONS + 1] = {false};
  int status = save_for_free(p, error);
  if (status == 0) status = choose_fine(p, has_fine, error);
  if (status) return status;
  list_dimensions(p, has_fine, d);
  do status = add_combination(p, d, at, error);
  while (status == 0 && advance(d, at));
  if (status == 0) status = add_way(p, p->base, false, false, error);
  if (status == 0) status = add_parts(p, error);
  if (status) return status;
  tsr__sort(p->ways.items, p->ways.count, sizeof *p->ways.items, compare_ways);
  p->has_ways = true;
  return 0;
}

/* ---- bounds ---- */

int tsr__planner_survey_way(const tsr_planning *p, tsr__way *way, tsr_error *error) {
  if (way->is_surveyed || way->is_skipped) return 0;
  int status = tsr__planner_survey(p, way->plan, 0, 0, &way->survey, &way->is_surveyed, error);
  way->is_skipped =
      status == 0 && !way->is_surveyed; /* smaller ones were possible, or it is the base */
  if (status || way->is_skipped) return status;
  assert(way->survey.floor_bytes <= way->survey.most_bytes);
  way->kernels_s = tsr__cost_kernels(&way->survey.cost);
  way->copies_s = way->survey.cost.copies_s;
  way->exposed = way->survey.cost.exposed;
  way->waited_s = way->survey.cost.waited_s;
  way->links_s = way->survey.cost.links_s > 0 ? way->kernels_s + way->survey.cost.stalls_s : 0;
  way->step_s = tsr__planner_step(way, way->kernels_s);
  return 0;
}

double tsr__planner_bound(const tsr__way *way, uint64_t budget_bytes) {
  assert(way->is_surveyed);
  double extra = tsr__survey_extra(&way->survey, budget_bytes);
  if (extra < 0) return INFINITY;
  /* A tensor on the host, or in fewer bits, is not made again. */
  if (tsr__way_copies_activations(way) || way->narrows) extra = 0;
  return tsr__planner_step(way, way->kernels_s + extra);
}

int tsr__planner_own_way(tsr_planning *p, const tsr_run_plan *plan, const tsr__way **out,
                         tsr__way *other, tsr_error *error) {
  *other = (tsr__way){.plan = way_plan(p, plan)};
  *out = NULL;
  if (!other->plan) return tsr__fail_memory(error);
  *out = find_way(p, other->plan, false);
  if (*out) return 0;
  if (!p->as_is.is_possible && other->plan->options.dtype == TSR_SIMULATE_FP32) return 0;
  int status = tsr__planner_survey_way(p, other, error);
  if (status == 0 && other->is_surveyed)
    *out = other;
  else
    tsr__way_release(other);
  return status;
}
