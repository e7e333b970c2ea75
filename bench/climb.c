/* climb.c - how far plans are from the best that a long random climb finds: what `./run bench climb` asks.
 *
 *   climb MODEL BATCH SEQUENCE CARD DTYPE BUDGET TRIES SEED [ALLOW]
 *
 * asks the planner for the fastest plan within the budget (bytes), and then changes one or two choices of the best
 * plan at random, TRIES times in all, from the planner's plan and from ones that it made up. With "all" for TRIES it
 * measures every plan of the space that docs/plan.md states for ALLOW (words of --allow). It shares nothing with the search but the measurement, and knows nothing
 * of how plans are ranked. Prints the planner's time and the other's, the relative gain, and the plan that is
 * faster, if any. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/measure.h"
#include "plan/value.h"
#include "tessera/tessera.h"
#include "tessera/unstable/planning.h"

enum { NAMES = 60, LAYERS = 512 };

static uint64_t randoms;

/* xorshift64*. */
static uint64_t below(uint64_t limit) {
  randoms ^= randoms >> 12, randoms ^= randoms << 25, randoms ^= randoms >> 27;
  return randoms * 2685821657736338717u % limit;
}

/* What a block does: it is computed again in a segment, or keeps all but some tensors. */
typedef struct block {
  unsigned segment; /* the blocks that are run again together; 0: tensors are chosen */
  bool is_selective;
  uint64_t names;
} block;

typedef struct point {
  tsr_simulate_options options;
  block blocks[LAYERS];
} point;

typedef struct climb {
  tsr_model *model;
  tsr_simulate_options how;
  uint64_t budget, layers, batch;
  char names[NAMES][64];
  size_t name_count;
  uint64_t measured;
  unsigned allow;
  double most_s;                                    /* slower plans need not be run */
  uint64_t most;                                    /* plans of a search through all of them */
  enum { FITS, TOO_LARGE, SLOWER, IMPOSSIBLE } end; /* of the last measurement */
} climb;

static void fail(const char *what, const tsr_error *error) {
  (void)fprintf(stderr, "climb: %s: %s\n", what, error->message);
  exit(1);
}

static tsr_run_plan *plan_of(const climb *c, const point *p) {
  tsr_run_plan *plan = tsr__run_plan_new();
  if (!plan) exit(1);
  plan->options = p->options;
  plan->options.blocks = NULL;
  for (size_t i = 0; i < c->layers;) {
    const block *b = &p->blocks[i];
    size_t end = i + 1;
    tsr_saved_choice saved[NAMES];
    tsr_block_choice choice = {.first = i, .saved = saved};
    if (b->segment) {
      while (end < c->layers && end < i + b->segment && p->blocks[end].segment == b->segment) end++;
      choice.checkpoint = end - i > 1 ? TSR_CHECKPOINT_EVERY : TSR_CHECKPOINT_FULL;
      choice.checkpoint_every = end - i > 1 ? end - i : 0;
    } else if (b->is_selective) {
      choice.checkpoint = TSR_CHECKPOINT_SELECTIVE;
    } else {
      for (size_t n = 0; n < c->name_count; n++)
        if (b->names >> n & 1)
          saved[choice.saved_count++] = (tsr_saved_choice){c->names[n], TSR_SAVED_RECOMPUTE};
    }
    choice.last = end - 1;
    if (choice.checkpoint || choice.saved_count)
      if (!tsr__run_plan_add_blocks(plan, &choice)) exit(1);
    i = end;
  }
  return plan;
}

/* Seconds of a step, infinite if it is not possible or does not fit. */
static double time_of(climb *c, const point *p) {
  tsr_run_plan *plan = plan_of(c, p);
  tsr_simulate_options options = c->how;
  tsr_run_plan_cost cost;
  tsr_error error = {.status = TSR_OK};
  tsr__measure_limit limit = {.most_reserved_bytes = c->budget, .most_seconds = c->most_s};
  tsr_run_plan_options(plan, &options);
  int status = tsr__measure(c->model, &options, &limit, &cost, &error);
  bool fits = status == 0 && cost.is_possible && !limit.over_bytes && !limit.is_slower &&
              cost.reserved_bytes <= c->budget;
  tsr_run_plan_free(plan);
  c->measured++;
  c->end = fits               ? FITS
           : status           ? IMPOSSIBLE
           : limit.is_slower  ? SLOWER
           : limit.over_bytes ? TOO_LARGE
           : cost.is_possible ? TOO_LARGE
                              : IMPOSSIBLE;
  return fits ? cost.step_seconds : INFINITY;
}

static void change_block(const climb *c, point *p) {
  size_t at = below(c->layers), end = at + 1;
  block new = p->blocks[at];
  switch (below(6)) {
  case 0:
    new = (block){.segment = (unsigned)(1 + below(6))};
    end = at + new.segment;
    break;
  case 1: new = (block){0}; break;
  case 2: new = p->blocks[below(c->layers)]; break;
  case 3:
    if (below(4) == 0)
      new = (block){.is_selective = true};
    else
      new.segment = 0, new.names ^= (uint64_t)1 << below(c->name_count);
    break;
  default:
    new.segment = 0, new.is_selective = false;
    new.names ^= (uint64_t)1 << below(c->name_count);
    if (below(3) == 0) end = at + 1 + below(c->layers);
  }
  for (size_t i = at; i < end && i < c->layers; i++) p->blocks[i] = new;
}

static void change_option(const climb *c, point *p) {
  static const uint64_t chunks[] = {0, 64, 128, 256, 512, 1024, 2048};
  tsr_simulate_options *o = &p->options;
  tsr_space *homes[] = {&o->offload.optimizer, &o->offload.gradients, &o->offload.parameters,
                        &o->offload.activations};
  switch (below(6)) {
  case 0: o->loss_chunk = chunks[below(7)]; break;
  case 1: {
    uint64_t parts = 1 + below(c->batch);
    o->micro_batch = c->batch % parts || parts == 1 ? 0 : c->batch / parts;
    break;
  }
  case 2:
  case 3: {
    tsr_space *home = homes[below(4)];
    *home = *home ? TSR_SPACE_DEVICE : TSR_SPACE_HOST;
    bool is_away = false;
    for (size_t i = 0; i < 4; i++) is_away = is_away || *homes[i];
    o->offload_blocks = is_away && below(2) ? 1 + below(c->layers) : 0;
    break;
  }
  case 4: o->update_in_backward = !o->update_in_backward; break;
  default: o->in_place ^= 1u << below(2); /* sums, dropout: others depend on what blocks keep */
  }
}

/* Whether a plan's name, "linear.0", is that of a tensor, "linear#1.0", or of what all ops of its kind save there. */
static bool stands_for(const char *name, const char *tensor) {
  size_t length = strcspn(tensor, "#");
  const char *dot = strrchr(tensor, '.');
  if (strcmp(name, tensor) == 0) return true;
  return tensor[length] && dot && strncmp(name, tensor, length) == 0 &&
         strcmp(name + length, dot) == 0;
}

static void change(const climb *c, point *p) {
  for (uint64_t n = 1 + below(3); n; n--)
    if (below(5) == 0)
      change_option(c, p);
    else
      change_block(c, p);
}

static void read_planned(climb *c, const tsr_run_plan *plan, point *p) {
  *p = (point){.options = plan->options};
  for (size_t i = 0; i < plan->blocks.count; i++) {
    const tsr_block_choice *r = &plan->blocks.items[i];
    for (size_t b = r->first; b <= r->last && b < c->layers; b++) {
      p->blocks[b] = (block){.is_selective = r->checkpoint == TSR_CHECKPOINT_SELECTIVE};
      if (r->checkpoint == TSR_CHECKPOINT_FULL) p->blocks[b].segment = 1;
      if (r->checkpoint == TSR_CHECKPOINT_EVERY)
        p->blocks[b].segment = (unsigned)r->checkpoint_every;
      for (size_t s = 0; s < r->saved_count; s++)
        for (size_t n = 0; n < c->name_count; n++)
          if (stands_for(r->saved[s].name, c->names[n])) p->blocks[b].names |= (uint64_t)1 << n;
    }
  }
  if (p->options.checkpoint == TSR_CHECKPOINT_FULL)
    for (size_t b = 0; b < c->layers; b++) p->blocks[b].segment = 1;
  p->options.checkpoint = TSR_CHECKPOINT_NONE;
}

static void list_names(climb *c, const tsr_run_plan *plan) {
  tsr_simulate_options options = c->how;
  tsr__saved_name *saved;
  size_t count;
  tsr_error error;
  tsr_run_plan_options(plan, &options);
  options.blocks = NULL;
  options.block_count = 0;
  options.checkpoint = TSR_CHECKPOINT_NONE;
  options.micro_batch = 0;
  if (tsr__measure_saved(c->model, &options, &saved, &count, &error)) fail("names", &error);
  for (size_t i = 0; i < count && c->name_count < NAMES; i++) {
    bool is_new = true;
    for (size_t n = 0; n < c->name_count; n++)
      is_new = is_new && strcmp(c->names[n], saved[i].name) != 0;
    if (is_new) (void)snprintf(c->names[c->name_count++], 64, "%s", saved[i].name);
  }
  tsr__free(saved);
}

/* ---- every plan ---- */

/* A choice and how many values it has; `set` gives the point one of them. */
typedef struct choice {
  uint64_t (*count)(const climb *c);
  void (*set)(const climb *c, point *p, uint64_t value);
} choice;

static const uint64_t all_chunks[] = {0, 2048, 1024, 512, 256, 128, 64};
enum { CHUNKS = sizeof all_chunks / sizeof *all_chunks, MOST_PARTS = 256, PLACES = 16 };

static uint64_t count_chunks(const climb *c) {
  return c->allow & TSR_ALLOW_LOSS_CHUNK ? CHUNKS : 1;
}
static void set_chunk(const climb *c, point *p, uint64_t value) {
  uint64_t tokens = c->batch * c->how.sequence, chunk = all_chunks[value];
  p->options.loss_chunk = chunk && chunk < tokens && tokens <= chunk * MOST_PARTS ? chunk : 0;
}

static uint64_t count_parts(const climb *c) {
  return c->allow & TSR_ALLOW_ACCUMULATE ? c->batch : 1;
}
static void set_parts(const climb *c, point *p, uint64_t value) {
  p->options.micro_batch = value && c->batch % (value + 1) == 0 ? c->batch / (value + 1) : 0;
}

static uint64_t count_places(const climb *c) {
  return c->allow & TSR_ALLOW_OFFLOAD ? PLACES * (c->layers + 1) : 1;
}
static void set_places(const climb *c, point *p, uint64_t value) {
  tsr_simulate_options *o = &p->options;
  unsigned kinds = (unsigned)(value % PLACES);
  if (!(c->allow & TSR_ALLOW_OFFLOAD)) return;
  o->offload.optimizer = kinds & 1 ? TSR_SPACE_HOST : TSR_SPACE_DEVICE;
  o->offload.gradients = kinds & 2 ? TSR_SPACE_HOST : TSR_SPACE_DEVICE;
  o->offload.parameters = kinds & 4 ? TSR_SPACE_HOST : TSR_SPACE_DEVICE;
  o->offload.activations = kinds & 8 ? TSR_SPACE_HOST : TSR_SPACE_DEVICE;
  o->offload_blocks = kinds ? value / PLACES : 0;
}

static uint64_t count_updates(const climb *c) {
  return c->allow & TSR_ALLOW_IN_BACKWARD ? 2 : 1;
}
static void set_update(const climb *c, point *p, uint64_t value) {
  if (c->allow & TSR_ALLOW_IN_BACKWARD) p->options.update_in_backward = value;
}

static uint64_t count_in_place(const climb *c) {
  return c->allow & TSR_ALLOW_KERNELS ? 3 : 1;
}
static void set_in_place(const climb *c, point *p, uint64_t value) {
  static const unsigned sets[] = {0, 1, 3};
  if (c->allow & TSR_ALLOW_KERNELS) p->options.in_place = sets[value];
}

static const choice choices[] = {{count_chunks, set_chunk},
                                 {count_parts, set_parts},
                                 {count_places, set_places},
                                 {count_updates, set_update},
                                 {count_in_place, set_in_place}};
enum { CHOICES = sizeof choices / sizeof *choices };

/* The best plan of all, and the one that is being tried. */
typedef struct search {
  climb *c;
  point best, now;
  double best_s;
} search;

/* Measure a plan; false if it takes longer than the best. */
static bool try_now(search *s) {
  s->c->most_s = isinf(s->best_s) ? 0 : s->best_s;
  double step_s = time_of(s->c, &s->now);
  if (step_s < s->best_s) s->best = s->now, s->best_s = step_s;
  return s->c->end != SLOWER;
}

/* Try every set of tensors, of those from number `from` on, in addition to the ones that are computed again now. More
 * computed again never takes less time, so that a set which takes longer than the best is not extended. Tensors of
 * which `is_out` says so are left out. */
static void try_sets(search *s, size_t from, const bool *is_out) {
  climb *c = s->c;
  for (size_t i = from; i < c->layers * c->name_count && c->measured < c->most; i++) {
    block *b = &s->now.blocks[i / c->name_count];
    if (b->segment || is_out[i]) continue;
    b->names |= (uint64_t)1 << i % c->name_count;
    if (try_now(s)) try_sets(s, i + 1, is_out);
    b->names &= ~((uint64_t)1 << i % c->name_count);
  }
}

/* Which tensors cannot be computed again by themselves, or take too long. */
static void leave_out(search *s, bool *is_out) {
  climb *c = s->c;
  for (size_t i = 0; i < c->layers * c->name_count; i++) {
    block *b = &s->now.blocks[i / c->name_count];
    if (b->segment) continue;
    b->names = (uint64_t)1 << i % c->name_count;
    is_out[i] = !try_now(s) || c->end == IMPOSSIBLE;
    b->names = 0;
  }
}

/* Try every way to compute whole blocks again, alone and together, from block `from` on, and all sets of tensors of the
 * others. */
static void try_blocks(search *s, size_t from) {
  climb *c = s->c;
  bool is_out[LAYERS] = {false};
  bool is_single = !(c->allow & TSR_ALLOW_ALL_BLOCKS);
  if (from == c->layers) {
    if (!try_now(s) || !is_single || !(c->allow & TSR_ALLOW_RECOMPUTE)) return;
    leave_out(s, is_out);
    try_sets(s, 0, is_out);
    return;
  }
  for (size_t length = 0; from + length <= c->layers && length <= 6; length++) {
    if (length && !(c->allow & TSR_ALLOW_RECOMPUTE)) break;
    size_t end = from + (length ? length : 1);
    for (size_t i = from; i < end; i++) s->now.blocks[i] = (block){.segment = (unsigned)length};
    try_blocks(s, end);
    for (size_t i = from; i < end; i++) s->now.blocks[i] = (block){0};
  }
}

/* Measure every combination of the choices' values; what a model does not allow is not possible, and counts as slow. */
static double exhaust(climb *c, point *best, double best_s) {
  uint64_t combinations = 1;
  search *s = calloc(1, sizeof *s);
  if (!s || c->layers * c->name_count > LAYERS) exit(1);
  *s = (search){.c = c, .best = *best, .best_s = best_s};
  for (size_t i = 0; i < CHOICES; i++) combinations *= choices[i].count(c);
  for (uint64_t n = 0; n < combinations && c->measured < c->most; n++) {
    uint64_t left = n;
    s->now = (point){.options = best->options};
    for (size_t i = 0; i < CHOICES; i++) {
      choices[i].set(c, &s->now, left % choices[i].count(c));
      left /= choices[i].count(c);
    }
    try_blocks(s, 0);
  }
  *best = s->best, best_s = s->best_s;
  free(s);
  return best_s;
}

static unsigned allow_of(const char *words) {
  unsigned allow;
  tsr_error error;
  if (tsr_allow_parse(words, &allow, &error)) fail("allow", &error);
  return allow;
}

int main(int argc, char **argv) {
  climb *c = calloc(1, sizeof *c);
  point *best = calloc(1, sizeof *best), *now = calloc(1, sizeof *now),
        *try = calloc(1, sizeof *try);
  tsr_error error = {.status = TSR_OK};
  tsr_planning *planning = NULL;
  tsr_planned planned;
  if (argc < 9 || argc > 10 || !c || !best || !now || !try) return 2;
  size_t bytes = 0;
  char text[1 << 16];
  FILE *file = fopen(argv[1], "rb");
  if (file) bytes = fread(text, 1, sizeof text, file), (void)fclose(file);
  int status = file ? tsr_model_read(text, bytes, &c->model, &error)
                    : tsr_model_named(argv[1], &c->model, &error);
  if (status) fail("model", &error);
  c->layers = c->model->layers;
  if (c->layers > LAYERS) return 2;
  c->how = TSR_OPTIONS_INIT(tsr_simulate_options);
  c->how.batch = c->batch = strtoull(argv[2], NULL, 10);
  c->how.sequence = strtoull(argv[3], NULL, 10);
  c->how.steps = 3;
  c->how.gpu = argv[4];
  tsr_run_plan *base = tsr__run_plan_new();
  tsr__option_set("dtype", argv[5], &base->options);
  double budget = strtod(argv[6], NULL);
  uint64_t tries = strtoull(argv[7], NULL, 10);
  randoms = strtoull(argv[8], NULL, 10) * 2654435761u + 1;
  tsr_planning_options asked = TSR_OPTIONS_INIT(tsr_planning_options);
  asked.allow = c->allow = argc > 9 ? allow_of(argv[9]) : tsr_allow_default();
  asked.how = &c->how, asked.plan = base;
  if (tsr_planning_new(c->model, &asked, &planning, &error)) fail("plan", &error);
  tsr_run_plan_cost as_is;
  if (tsr_run_plan_measure(base, c->model, &c->how, &as_is, &error)) fail("as is", &error);
  c->budget = budget < 4 ? (uint64_t)(budget * (double)as_is.reserved_bytes) : (uint64_t)budget;
  if (tsr_planning_solve(planning, c->budget, &planned, &error)) fail("solve", &error);
  list_names(c, planned.plan);
  read_planned(c, planned.plan, best);
  double planner_s =
      planned.verdict == TSR_PLANNING_DOES_NOT_FIT ? INFINITY : planned.with.step_seconds;
  double best_s = time_of(c, best), now_s = best_s;
  if (fabs(best_s - planner_s) > 1e-9 * planner_s)
    (void)fprintf(stderr, "climb: own %g, planner %g\n", best_s, planner_s);
  *now = *best;
  uint64_t since = 0;
  bool is_all = strcmp(argv[7], "all") == 0;
  c->most = 1000000;
  if (is_all) best_s = exhaust(c, best, best_s);
  while (!is_all && c->measured < tries) {
    *try = *now;
    change(c, try);
    double s = time_of(c, try);
    if (s <= now_s) { /* sideways, too */
      since = s < now_s ? 0 : since + 1;
      *now = *try, now_s = s;
    } else {
      since++;
    }
    if (now_s < best_s) *best = *now, best_s = now_s;
    if (since > 400) { /* elsewhere */
      *now = *best;
      for (int i = 0; i < 4; i++) change(c, now);
      now_s = time_of(c, now);
      if (isinf(now_s)) now_s = INFINITY;
      since = 0;
    }
  }
  printf("%s budget %.1f MiB (%.2f): planner %.4f ms in %zu sims, climb %.4f ms, gain %.3f %%, gap "
         "%.3f %%\n",
         argv[1], (double)c->budget / 1048576, (double)c->budget / (double)as_is.reserved_bytes,
         planner_s * 1e3, planned.tried, best_s * 1e3, (planner_s / best_s - 1) * 100,
         (best_s / planned.bound_seconds - 1) * 100);
  if (is_all)
    printf("  %s after %" PRIu64 " plans\n", c->measured < c->most ? "all" : "STOPPED",
           c->measured);
  if (best_s < planner_s * 0.9999) {
    tsr_run_plan *plan = plan_of(c, best);
    if (tsr__run_plan_seal(plan, &error)) fail("plan", &error);
    if (tsr__run_plan_seal(planned.plan, &error)) {}
    printf("  planner %s  climb   %s", tsr_run_plan_text(planned.plan), tsr_run_plan_text(plan));
  }
  return 0;
}
