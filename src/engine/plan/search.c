/* search.c - the fastest of all plans that fit, or the smallest that is found.
 *
 * First ways are tried in the order of the time that they take without recomputation. One is skipped if its bound is no less than the time
 * of what was found; of the others the fastest candidate that fits is found by bisection, as candidates that take more time mostly need less
 * memory. A simulation ends where the budget does. Then plans of the ways that could still be faster are changed block by block
 * (local.c). */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"
#include "plan/planner.h"

/* ---- candidates ---- */

/* How far a candidate's time may be from its estimate, and where activations are copied: tests compare them. */
#define ESTIMATE_ERROR 0.001
#define COPIES_ERROR   0.05
/* And the time of a way without recomputation from what three blocks take. */
#define WAY_ERROR 1e-6
/* The same where something is on the host: how many copies there are in few blocks and micro-batches is not always how many there are in each
 * of many. Once surveyed, a way's time is known. */
#define AWAY_ERROR 0.02

/* Candidates of a way that do not fit, after which faster ones are not tried. */
enum { MISSES = 2 };
/* Candidates that are tried of a way that copies activations, where less copied need not be less memory. */
enum { COPYING_TRIES = 24 };
/* How much less than its least a candidate may reserve, which is added up from few blocks: tests compare all of them. */
enum { LEAST_PARTS = 50 };

static bool is_better(const tsr_run_plan_cost *a, const tsr__best *than) {
  if (!than->plan) return true;
  if (a->step_seconds < than->cost.step_seconds || a->step_seconds > than->cost.step_seconds)
    return a->step_seconds < than->cost.step_seconds;
  return a->reserved_bytes < than->cost.reserved_bytes;
}

/* Measure a candidate, up to the limit. */
static int measure_candidate(tsr_planning *p, tsr__candidate *c, tsr__measure_limit limit,
                             bool keeps_large, tsr_error *error) {
  if (c->is_measured) return 0;
  int status = tsr__planner_measure_within(p, c->plan, &limit, keeps_large, &c->cost, error);
  c->over_bytes = limit.over_bytes;
  c->is_slow = limit.is_slower;
  c->is_measured = status == 0 && !c->over_bytes && !c->is_slow;
  if (c->is_measured && c->cost.is_possible) {
    double ratio = (double)c->cost.reserved_bytes / (double)c->least_bytes;
    if (p->least_ratio <= 0 || ratio < p->least_ratio) p->least_ratio = ratio;
  }
  return status;
}

/* Run a candidate that was not run because it was slow, as if it had been. */
static int resolve_candidate(tsr_planning *p, tsr__candidate *c, tsr_error *error) {
  const tsr__simulated *known;
  if (!c->is_slow) return 0;
  int status = tsr__planner_resolve(p, c->plan, &known, error);
  c->is_slow = false;
  c->is_measured = status == 0 && known->what == TSR__KNOWN_COST;
  c->over_bytes = c->is_measured ? 0 : known->bytes;
  c->cost = known->cost;
  return status;
}

/* Whether a plan is better than another if neither fits: within the host's budget, or nearer to it; then what reserves less. */
static bool is_leaner(const tsr_planning *p, const tsr_run_plan_cost *a,
                      const tsr_run_plan_cost *b) {
  bool a_fits = tsr__planner_host_fits(p, a), b_fits = tsr__planner_host_fits(p, b);
  if (a_fits != b_fits) return a_fits;
  if (!a_fits && a->host_machine_bytes != b->host_machine_bytes)
    return a->host_machine_bytes < b->host_machine_bytes;
  return a->reserved_bytes < b->reserved_bytes;
}

/* Whether a plan was tried that is within the host's budget. */
static bool has_least(const tsr_planning *p, const tsr__best *least) {
  return least->plan && tsr__planner_host_fits(p, &least->cost);
}

/* The least that was reserved by any plan that was tried. */
static void note_least(const tsr_planning *p, const tsr__candidate *c, tsr__way *way,
                       tsr__best *least) {
  if (c->cost.is_possible && (!least->plan || is_leaner(p, &c->cost, &least->cost)))
    *least = (tsr__best){c->plan, c->cost, way};
}

static int list_candidates(tsr_planning *p, tsr__way *way, tsr_error *error) {
  return tsr_model_is_traced(p->model) ? tsr__planner_list_modules(p, way, error)
                                       : tsr__planner_list_candidates(p, way, error);
}

static uint64_t least_of(const tsr__candidate *c) {
  uint64_t least = c->least_bytes - c->least_bytes / LEAST_PARTS;
  return least > c->over_bytes ? least : c->over_bytes;
}

/* Whether a candidate cannot be better than what was found: its time is known to `ESTIMATE_ERROR` before it is simulated, and
 * exactly once it is recorded. */
static bool is_slower(const tsr__way *way, const tsr__candidate *c, const tsr__best *found) {
  if (!found->plan || c->is_measured) return false;
  double part = tsr__way_copies_activations(way) ? COPIES_ERROR : ESTIMATE_ERROR;
  double least_s = c->is_slow ? c->cost.step_seconds : c->estimate_s * (1 - part);
  return least_s > found->cost.step_seconds;
}

/* Simulate a candidate, unless it cannot be better than what was found. `*is_over`: it does not fit. */
static int try_candidate(tsr_planning *p, tsr__way *way, tsr__candidate *c, uint64_t budget,
                         tsr__best *found, tsr__best *least, bool *is_over, tsr_error *error) {
  *is_over = false;
  if (is_slower(way, c, found)) return 0;
  int status = resolve_candidate(p, c, error);
  *is_over = !c->is_measured && least_of(c) > budget;
  if (status || *is_over) return status;
  tsr__measure_limit limit = {.most_reserved_bytes = budget};
  if (found->plan) limit.most_seconds = found->cost.step_seconds;
  status = measure_candidate(p, c, limit, false, error);
  *is_over = c->over_bytes != 0;
  if (status || !c->is_measured) return status;
  note_least(p, c, way, least);
  *is_over = c->cost.is_possible && !tsr__planner_fits(p, &c->cost, budget);
  if (!c->cost.is_possible || *is_over) return 0;
  if (is_better(&c->cost, found)) *found = (tsr__best){c->plan, c->cost, way};
  return 0;
}

/* Modules: candidates that take more time often need more memory, too, or put more on the host. All of them are simulated already. */
static int try_all(tsr_planning *p, tsr__way *way, uint64_t budget, tsr__best *found,
                   tsr__best *least, tsr_error *error) {
  int status = 0;
  bool ignored;
  for (size_t i = 0; status == 0 && i < way->candidates.count; i++)
    status =
        try_candidate(p, way, &way->candidates.items[i], budget, found, least, &ignored, error);
  return status;
}

/* Simulate what may be faster than what was found. Candidates are in the order of their times, and most that take more time need
 * less memory: so the fastest that fits is found by bisection, from the slowest that would be faster than what there is, and then some of those
 * before it are tried, until MISSES in a row do not fit. */
static int try_way(tsr_planning *p, tsr__way *way, uint64_t budget, tsr__best *found,
                   tsr__best *least, tsr_error *error) {
  int status = way->is_listed ? 0 : list_candidates(p, way, error);
  tsr__candidate *items = way->candidates.items;
  size_t low = 0, high = 0, misses = 0;
  bool is_over = true;
  if (status) return status;
  if (tsr_model_is_traced(p->model)) return try_all(p, way, budget, found, least, error);
  while (high < way->candidates.count && !is_slower(way, &items[high], found)) high++;
  if (tsr__way_copies_activations(way)) {
    for (; status == 0 && is_over && low < high && low < COPYING_TRIES; low++)
      status = try_candidate(p, way, &items[low], budget, found, least, &is_over, error);
    if (status || !is_over) return status;
    low = 0;
  }
  if (high > MISSES &&
      items->least_bytes <= budget) { /* the fastest may need less than slower ones */
    status = try_candidate(p, way, items, budget, found, least, &is_over, error);
    if (status || !is_over) return status;
  }
  for (; status == 0 && is_over && misses < MISSES && high > 0; misses += is_over)
    status = try_candidate(p, way, &items[--high], budget, found, least, &is_over, error);
  if (status || is_over) return status;
  while (status == 0 && low < high) {
    size_t middle = low + (high - low) / 2;
    status = try_candidate(p, way, &items[middle], budget, found, least, &is_over, error);
    if (is_over)
      low = middle + 1;
    else
      high = middle;
  }
  for (misses = 0; status == 0 && misses < MISSES && high > 0; misses = is_over ? misses + 1 : 0)
    status = try_candidate(p, way, &items[--high], budget, found, least, &is_over, error);
  return status;
}

/* What a candidate is likely to reserve at least, going by what others did. */
static double likely_bytes(const tsr_planning *p, const tsr__candidate *c) {
  if (c->is_measured) return (double)c->cost.reserved_bytes;
  return fmax((double)least_of(c), (double)c->least_bytes * fmax(p->least_ratio, 1));
}

/* Of the ways that were tried, the candidate that may take least and was not simulated to its end; or NULL. `lasts_only`: of each way only
 * the one that takes the least memory of the card, and of the host. */
static tsr__candidate *next_least(tsr_planning *p, bool lasts_only, tsr__way **of) {
  tsr__candidate *next = NULL;
  for (size_t i = 0; i < p->ways.count; i++) {
    tsr__way *way = &p->ways.items[i];
    size_t k = lasts_only && way->candidates.count ? way->candidates.count - 1 : 0;
    for (; way->is_tried && k < way->candidates.count; k++) {
      tsr__candidate *c = &way->candidates.items[k];
      if (c->is_measured || (next && least_of(c) >= least_of(next))) continue;
      next = c;
      *of = way;
    }
  }
  return next;
}

/* Candidates that are simulated at most to find one that takes less. */
enum { LEAST_TRIES = 200 };

/* Nothing fits: what takes least is of interest. */
static int find_least(tsr_planning *p, tsr__best *least, tsr_error *error) {
  int status = 0;
  for (size_t i = 0; i < p->ways.count; i++)
    for (size_t k = 0; status == 0 && k < p->ways.items[i].candidates.count; k++)
      status = resolve_candidate(p, &p->ways.items[i].candidates.items[k], error);
  for (size_t i = 0; status == 0 && (i < LEAST_TRIES || !least->plan); i++) {
    bool is_known = has_least(p, least);
    tsr__way *way = NULL;
    tsr__candidate *c = next_least(p, least->plan && !is_known, &way);
    if (!c || (is_known && least_of(c) >= least->cost.reserved_bytes)) return 0;
    tsr__measure_limit limit = {.most_reserved_bytes = is_known ? least->cost.reserved_bytes : 0};
    status = measure_candidate(p, c, limit, true, error);
    if (status == 0 && c->is_measured) note_least(p, c, way, least);
  }
  return status;
}

/* Whether what the way keeps on the host, whatever its blocks do, is within the budget. */
static bool may_fit_host(const tsr_planning *p, const tsr__way *way) {
  tsr_run_plan_cost cost = {.is_possible = true};
  tsr_simulate_options how = p->how;
  tsr_run_plan_options(way->plan, &how);
  cost.host_machine_bytes = tsr__machine_bytes(&how, way->survey.host_bytes);
  return tsr__planner_host_fits(p, &cost);
}

/* What takes least is often of the way with the lowest floor. `keeps_none`: of those whose blocks keep nothing on the host. */
static int try_leanest(tsr_planning *p, uint64_t budget, bool keeps_none, tsr__best *found,
                       tsr__best *least, tsr_error *error) {
  tsr__way *leanest = NULL;
  for (size_t i = 0; i < p->ways.count; i++) {
    tsr__way *way = &p->ways.items[i];
    if (!way->is_surveyed || !may_fit_host(p, way)) continue;
    if (keeps_none && tsr__way_copies_activations(way)) continue;
    if (!leanest || way->survey.floor_bytes < leanest->survey.floor_bytes) leanest = way;
  }
  if (!leanest) return 0;
  leanest->is_tried = true;
  int status = try_way(p, leanest, budget, found, least, error);
  return status || found->plan ? status : find_least(p, least, error);
}

/* Try a way unless its bound is no less than the time of what was found, or infinite. */
static int search_way(tsr_planning *p, tsr__way *way, uint64_t budget, tsr__best *found,
                      tsr__best *least, tsr_error *error) {
  double limit = found->cost.step_seconds * (1 + WAY_ERROR);
  bool is_rough = !way->is_surveyed && tsr__plan_is_away(way->plan);
  way->is_tried = false;
  if (found->plan && way->step_s > limit * (is_rough ? 1 + AWAY_ERROR : 1)) return 0;
  int status = tsr__planner_survey_way(p, way, error);
  if (status || way->is_skipped) return status;
  double least_s = tsr__planner_bound(way, budget);
  bool is_left_out = isinf(least_s) || (found->plan && least_s > limit) || !may_fit_host(p, way);
  way->is_tried = !is_left_out;
  return way->is_tried ? try_way(p, way, budget, found, least, error) : 0;
}

/* ---- improving what was found ---- */

/* Ways whose plans are changed locally, at most; and how much longer than what was found the first plan of another way may take. */
enum { IMPROVED_WAYS = 12, SMALL_IMPROVED = 48 /* more of few blocks */ };
#define FIRST_ERROR 0.05
/* The same of ways that are tried near the best. */
#define NEAR_ERROR 0.02
/* And how far above the budget candidates may be by estimate. */
enum { NEAR_PARTS = 32 };

/* The choices for blocks of the plan that was found, in another way; NULL when out of memory. */
static tsr_run_plan *transplant(const tsr__best *found, const tsr__way *way) {
  tsr_run_plan *plan = tsr__run_plan_copy(way->plan);
  if (!plan) return NULL;
  tsr__run_plan_clear_blocks(plan);
  plan->options.checkpoint = found->plan->options.checkpoint;
  plan->options.checkpoint_every = found->plan->options.checkpoint_every;
  if (tsr__run_plan_add_ranges_of(plan, found->plan)) return plan;
  tsr_run_plan_free(plan);
  return NULL;
}

/* Where a local search begins. */
typedef struct begun {
  tsr_run_plan *plan; /* owned; NULL: no plan of the way fits */
  tsr_run_plan_cost cost;
} begun;

/* The fastest plan of the way that fits, among its candidates and with the choices of what was found. */
static int find_first(tsr_planning *p, tsr__way *way, uint64_t budget, const tsr__best *found,
                      begun *first, tsr_error *error) {
  /* Anything faster than this is taken: it stands for no plan, until a way is set. */
  tsr__best own = {p->base, {.step_seconds = found->cost.step_seconds * (1 + FIRST_ERROR)}, NULL};
  tsr__best ignored = {NULL, {0}, NULL};
  tsr_run_plan *plan = transplant(found, way);
  bool fits = false;
  int status = plan ? 0 : tsr__fail_memory(error);
  if (status == 0)
    status = tsr__planner_try(p, plan, budget, own.cost.step_seconds, &first->cost, &fits, error);
  if (fits) own.cost = first->cost;
  if (status == 0) status = try_way(p, way, budget, &own, &ignored, error);
  bool is_other = status == 0 && own.way;
  if (status || !fits || is_other) {
    tsr_run_plan_free(plan);
    plan = NULL;
  }
  if (is_other && !(plan = tsr__run_plan_copy(own.plan))) status = tsr__fail_memory(error);
  *first = (begun){plan, own.cost};
  return status;
}

/* What a candidate reserves, as far as is known: where its simulation stopped, which is just above the budget for those that nearly fit, or what
 * others lead one to expect. */
static double near_bytes(const tsr_planning *p, const tsr__candidate *c) {
  return c->over_bytes ? (double)c->over_bytes : likely_bytes(p, c);
}

/* Of the candidates that do not fit, a copy of the one that comes nearest to the budget and is fast enough. */
static int copy_nearest(const tsr_planning *p, const tsr__way *way, double most_s,
                        tsr_run_plan **out, tsr_error *error) {
  const tsr__candidate *nearest = NULL;
  for (size_t i = 0; i < way->candidates.count; i++) {
    const tsr__candidate *c = &way->candidates.items[i];
    if (c->estimate_s > most_s) continue;
    if (!nearest || near_bytes(p, c) < near_bytes(p, nearest)) nearest = c;
  }
  *out = nearest ? tsr__run_plan_copy(nearest->plan) : NULL;
  return nearest && !*out ? tsr__fail_memory(error) : 0;
}

/* Change single blocks of a plan that does not fit, until it does and is faster than `*first`, which then is replaced. */
static int improve_unfit(tsr_planning *p, tsr__way *way, uint64_t budget, double limit_s,
                         const tsr_run_plan *plan, begun *first, tsr_error *error) {
  begun better = {NULL, {0}};
  tsr_run_plan_cost cost;
  if (first->plan) limit_s = first->cost.step_seconds;
  int status = tsr__planner_measure(p, plan, &cost, error);
  if (status == 0 && cost.is_possible)
    status = tsr__planner_improve(p, way, plan, &cost, budget, limit_s, false, &better.plan,
                                  &better.cost, error);
  if (!better.plan) return status;
  tsr_run_plan_free(first->plan);
  *first = better;
  return status;
}

/* Take the way's fastest plan that fits, and change single blocks of it, or of plans that hardly do not fit, if blocks may recompute. */
static int improve_way(tsr_planning *p, tsr__way *way, uint64_t budget, tsr__best *found,
                       tsr_error *error) {
  begun first = {NULL, {0}}, better = {NULL, {0}};
  double limit_s = found->cost.step_seconds;
  bool changes_blocks = p->allow & TSR_ALLOW_RECOMPUTE;
  int status = find_first(p, way, budget, found, &first, error);
  if (status == 0 && first.plan && changes_blocks) {
    status = tsr__planner_improve(p, way, first.plan, &first.cost, budget, first.cost.step_seconds,
                                  way == found->way, &better.plan, &better.cost, error);
    if (better.plan) tsr_run_plan_free(first.plan);
    if (better.plan) first = better;
  } else if (status == 0 && changes_blocks) {
    tsr_run_plan *same = transplant(found, way), *nearest = NULL;
    status = same ? copy_nearest(p, way, limit_s, &nearest, error) : tsr__fail_memory(error);
    if (status == 0) status = improve_unfit(p, way, budget, limit_s, same, &first, error);
    if (status == 0 && nearest)
      status = improve_unfit(p, way, budget, limit_s, nearest, &first, error);
    tsr_run_plan_free(same);
    tsr_run_plan_free(nearest);
  }
  bool is_kept =
      first.plan && tsr__planner_fits(p, &first.cost, budget) && is_better(&first.cost, found);
  /* NOLINTNEXTLINE(bugprone-sizeof-expression): a list of pointers */
  if (is_kept && TSR__VECTOR_PUSH(&p->improved, first.plan))
    *found = (tsr__best){first.plan, first.cost, way};
  else
    tsr_run_plan_free(first.plan);
  return status;
}

/* Rounds in which the smallest plan becomes smaller, each by such a part at least. */
enum { SHRINKS = 16, SHRINK_PARTS = 64 };

/* Change single blocks of the plan that takes least until it fits. If it does not come to that, until it gets no smaller. */
static int shrink(tsr_planning *p, uint64_t budget, tsr__best *found, tsr__best *least,
                  tsr_error *error) {
  uint64_t target = budget;
  int status = 0;
  for (int i = 0; status == 0 && !found->plan && i < SHRINKS; i++) {
    begun better = {NULL, {0}};
    status = tsr__planner_improve(p, least->way, least->plan, &least->cost, target, INFINITY, i < 2,
                                  &better.plan, &better.cost, error);
    if (!better.plan && i) break;
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): a list of pointers */
    if (better.plan && !TSR__VECTOR_PUSH(&p->improved, better.plan)) {
      tsr_run_plan_free(better.plan);
      return tsr__fail_memory(error);
    }
    if (better.plan) *least = (tsr__best){better.plan, better.cost, least->way};
    if (tsr__planner_fits(p, &least->cost, budget)) *found = *least;
    target = least->cost.reserved_bytes - least->cost.reserved_bytes / SHRINK_PARTS - 1;
    if (target < budget) target = budget;
  }
  return status;
}

/* A way, and what a step is likely to take at best. */
typedef struct promising {
  tsr__way *way;
  double step_s;
} promising;

static int compare_promising(const void *left, const void *right) {
  const promising *a = left, *b = right;
  return (a->step_s > b->step_s) - (a->step_s < b->step_s);
}

/* The least time of a candidate that may fit, going by what others reserved; infinite if none may. */
static double promise_of(const tsr_planning *p, const tsr__way *way, uint64_t budget) {
  double least = INFINITY, most = (double)budget * (1 + 1.0 / NEAR_PARTS);
  for (size_t i = 0; i < way->candidates.count; i++) {
    const tsr__candidate *c = &way->candidates.items[i];
    double bytes = (double)c->least_bytes * fmax(p->least_ratio, 1);
    if (c->is_measured) bytes = (double)c->cost.reserved_bytes;
    if (bytes <= most) least = fmin(least, c->estimate_s);
  }
  return least;
}

/* In how many options two ways differ. */
static size_t distance(const tsr__way *a, const tsr__way *b) {
  size_t count = a->narrows != b->narrows;
  for (size_t i = 0; tsr__option_at(i); i++)
    count += !tsr__option_equal(tsr__option_at(i), &a->plan->options, &b->plan->options);
  return count;
}

/* Ways that could still be faster: that of what was found, those that differ from it in one option, and the most promising others; the most
 * promising first. */
static size_t list_promising(const tsr_planning *p, uint64_t budget, const tsr__best *found,
                             promising *out) {
  double most_s = found->cost.step_seconds * (1 + FIRST_ERROR);
  size_t count = 0, kept = 0, others = IMPROVED_WAYS + SMALL_IMPROVED / p->model->layers;
  for (size_t i = 0; i < p->ways.count; i++) {
    tsr__way *way = &p->ways.items[i];
    if (!way->is_tried || !way->is_surveyed) continue;
    if (tsr__planner_bound(way, budget) >= found->cost.step_seconds * (1 - WAY_ERROR)) continue;
    double step_s = way == found->way ? 0 : promise_of(p, way, budget);
    if (step_s <= most_s || distance(way, found->way) <= 1) out[count++] = (promising){way, step_s};
  }
  tsr__sort(out, count, sizeof *out, compare_promising);
  for (size_t i = 0; i < count; i++) {
    bool is_near = distance(out[i].way, found->way) <= 1;
    if (!is_near && !others) continue;
    others -= !is_near;
    out[kept++] = out[i];
  }
  return kept;
}

/* Blocks in all simulations of plans that are improved, at most; but not fewer simulations than: */
enum { IMPROVED_BLOCKS = 24000, LEAST_IMPROVED = 1000 };

/* Until nothing is better: a plan that one way improved may be the first of another. */
static int improve(tsr_planning *p, uint64_t budget, tsr__best *found, tsr_error *error) {
  promising *list = TSR__NEW_ARRAY(promising, p->ways.count);
  const tsr_run_plan *before = NULL;
  size_t most = IMPROVED_BLOCKS / p->model->layers;
  most = p->tried + (most > LEAST_IMPROVED ? most : LEAST_IMPROVED);
  int status = list ? 0 : tsr__fail_memory(error);
  while (status == 0 && found->plan != before && p->tried < most) {
    before = found->plan;
    size_t count = list_promising(p, budget, found, list);
    for (size_t i = 0; status == 0 && i < count && p->tried < most; i++)
      if (tsr__planner_bound(list[i].way, budget) < found->cost.step_seconds * (1 - WAY_ERROR))
        status = improve_way(p, list[i].way, budget, found, error);
  }
  tsr__free(list);
  return status;
}

/* ---- blocks on the host ---- */

/* The way of that plan among those that were tried near the best, or a new one. Takes the plan over. NULL when out of
 * memory. */
static tsr__way *other_way(tsr_planning *p, tsr_run_plan *plan, bool narrows) {
  for (size_t i = 0; plan && i < p->others.count; i++) {
    tsr__way *way = p->others.items[i];
    if (way->narrows != narrows || !tsr__run_plan_equal(way->plan, plan)) continue;
    tsr_run_plan_free(plan);
    return way;
  }
  tsr__way *way = plan ? TSR__NEW(tsr__way) : NULL;
  if (way) *way = (tsr__way){.plan = plan, .narrows = narrows};
  /* NOLINTNEXTLINE(bugprone-sizeof-expression): a list of pointers */
  if (way && TSR__VECTOR_PUSH(&p->others, way)) return way;
  tsr_run_plan_free(plan);
  tsr__free(way);
  return NULL;
}

/* Try a way that was not listed. Takes its plan over. */
static int try_other(tsr_planning *p, tsr_run_plan *plan, uint64_t budget, bool tries_all,
                     tsr__best *found, tsr_error *error) {
  tsr__way *way = other_way(p, plan, found->way->narrows);
  if (!way) return tsr__fail_memory(error);
  int status = tsr__planner_survey_way(p, way, error);
  if (status || !way->is_surveyed) return status;
  if (tsr__planner_bound(way, budget) >= found->cost.step_seconds * (1 - WAY_ERROR)) return 0;
  if (!may_fit_host(p, way)) return 0;
  status = way->is_listed ? 0 : list_candidates(p, way, error);
  double least_s = promise_of(p, way, budget);
  bool is_near =
      isinf(least_s) ? tries_all : least_s <= found->cost.step_seconds * (1 + NEAR_ERROR);
  return status || !is_near ? status : improve_way(p, way, budget, found, error);
}

/* Try what the way that was found does, but with these choices of where tensors are. */
static int try_places(tsr_planning *p, const tsr_offload *away, uint64_t blocks, uint64_t budget,
                      bool tries_all, tsr__best *found, tsr_error *error) {
  tsr_run_plan *plan = tsr__run_plan_copy(found->way->plan);
  if (plan) plan->options.offload = *away;
  if (plan) plan->options.offload_blocks = blocks;
  return try_other(p, plan, budget, tries_all, found, error);
}

static uint64_t count_of(const tsr_planning *p, const tsr__best *found) {
  uint64_t blocks = found->way->plan->options.offload_blocks;
  return blocks ? blocks : p->model->layers + 1; /* all blocks, and what is in none */
}

/* Try numbers of blocks near the one that was found, in smaller and smaller steps. */
static int vary_count(tsr_planning *p, uint64_t budget, size_t most, tsr__best *found,
                      tsr_error *error) {
  uint64_t layers = p->model->layers, step = layers < 8 ? 1 : layers / 8;
  int status = 0;
  while (status == 0 && step && p->tried < most) {
    const tsr_offload away = found->way->plan->options.offload;
    uint64_t now = count_of(p, found);
    if (now > step) status = try_places(p, &away, now - step, budget, true, found, error);
    if (status == 0 && count_of(p, found) == now && now + step <= layers)
      status = try_places(p, &away, now + step, budget, true, found, error);
    if (status == 0 && count_of(p, found) == now) step /= 2;
  }
  return status;
}

/* A way that may be tried, and what no plan of it takes less than. */
typedef struct bounded {
  tsr__way *way;
  double least_s;
} bounded;

static int compare_bounded(const void *left, const void *right) {
  const bounded *a = left, *b = right;
  if (a->least_s < b->least_s || a->least_s > b->least_s) return a->least_s < b->least_s ? -1 : 1;
  return (int)tsr__run_plan_size(a->way->plan) - (int)tsr__run_plan_size(b->way->plan);
}

enum { PARTS = 4, KINDS = 8, ADDED_TRIES = 8 };

/* The way of what was found, but with activations of so many blocks on the host, and the kinds of tensors whose bits `set` has. */
static int add_activation_way(tsr_planning *p, uint64_t budget, unsigned set, uint64_t blocks,
                              const tsr__best *found, bounded *list, size_t *count,
                              tsr_error *error) {
  tsr_run_plan *plan = tsr__run_plan_copy(found->way->plan);
  if (plan) {
    plan->options.offload = (tsr_offload){.optimizer = set & 1 ? TSR_SPACE_HOST : TSR_SPACE_DEVICE,
                                          .gradients = set & 2 ? TSR_SPACE_HOST : TSR_SPACE_DEVICE,
                                          .parameters = set & 4 ? TSR_SPACE_HOST : TSR_SPACE_DEVICE,
                                          .activations = TSR_SPACE_HOST};
    plan->options.offload_blocks = blocks;
  }
  tsr__way *way = other_way(p, plan, found->way->narrows);
  if (!way) return tsr__fail_memory(error);
  int status = way->is_tried ? 0 : tsr__planner_survey_way(p, way, error);
  if (status || way->is_tried || !way->is_surveyed || !may_fit_host(p, way)) return status;
  list[(*count)++] = (bounded){way, tsr__planner_bound(way, budget)};
  return 0;
}

/* Try quarters of the blocks with their activations on the host, and any other kinds with them: no way has that. Those with the lowest bounds
 * come first. */
static int add_activations(tsr_planning *p, uint64_t budget, tsr__best *found, tsr_error *error) {
  bounded list[PARTS * KINDS];
  uint64_t layers = p->model->layers, last = 0;
  size_t count = 0;
  int status = 0;
  for (uint64_t part = 1; part <= PARTS; part++) {
    uint64_t blocks = (layers * part + 2) / PARTS;
    for (unsigned set = 0; set < KINDS && status == 0 && blocks > last; set++)
      status = add_activation_way(p, budget, set, blocks, found, list, &count, error);
    if (blocks > last) last = blocks;
  }
  tsr__sort(list, count, sizeof *list, compare_bounded);
  if (count > ADDED_TRIES) count = ADDED_TRIES;
  for (size_t i = 0; status == 0 && i < count; i++) {
    if (list[i].least_s >= found->cost.step_seconds * (1 - WAY_ERROR)) break;
    list[i].way->is_tried = true;
    status = improve_way(p, list[i].way, budget, found, error);
  }
  return status;
}

/* Try one kind of tensors more on the host, or one less, of as many blocks, and of a few more or fewer. */
static int vary_kinds(tsr_planning *p, uint64_t budget, size_t most, tsr__best *found,
                      tsr_error *error) {
  int64_t layers = (int64_t)p->model->layers, step = layers < 16 ? 2 : layers / 8;
  const int64_t sides[] = {0, -1, 1, -step, step};
  int status = 0;
  for (int kind = 0; kind < 4; kind++)
    for (size_t i = 0; status == 0 && i < sizeof sides / sizeof *sides && p->tried < most; i++) {
      tsr_offload away = found->way->plan->options.offload;
      tsr_space *const homes[] = {&away.optimizer, &away.gradients, &away.parameters,
                                  &away.activations};
      *homes[kind] = *homes[kind] ? TSR_SPACE_DEVICE : TSR_SPACE_HOST;
      if (!found->way->plan->options.offload_blocks) return status; /* ways have all blocks */
      int64_t blocks = (int64_t)found->way->plan->options.offload_blocks + sides[i];
      bool is_some = away.optimizer || away.gradients || away.parameters || away.activations;
      if (is_some && blocks > 0 && blocks <= layers)
        status = try_places(p, &away, (uint64_t)blocks, budget, !sides[i], found, error);
    }
  return status;
}

/* Try the option's value of `like`, with `fewer` blocks on the host. */
static int try_value(tsr_planning *p, const tsr_parameter *row, const tsr_run_plan *like,
                     uint64_t fewer, uint64_t budget, tsr__best *found, tsr_error *error) {
  uint64_t blocks = found->way->plan->options.offload_blocks;
  if (blocks <= fewer) return 0;
  tsr_run_plan *plan = tsr__run_plan_copy(found->way->plan);
  if (plan) tsr__option_copy(row, &like->options, &plan->options);
  if (plan) plan->options.offload_blocks = blocks - fewer;
  return try_other(p, plan, budget, false, found, error);
}

/* Try the values that an option has in other ways. */
static int vary_option(tsr_planning *p, const tsr_parameter *row, uint64_t fewer, uint64_t budget,
                       size_t most, tsr__best *found, tsr_error *error) {
  int status = 0;
  for (size_t i = 0; i < p->ways.count && status == 0 && p->tried < most; i++) {
    const tsr__way *way = &p->ways.items[i];
    bool is_new = way->narrows == found->way->narrows &&
                  !tsr__option_equal(row, &way->plan->options, &found->way->plan->options);
    for (size_t k = 0; is_new && k < i; k++)
      is_new = !tsr__option_equal(row, &way->plan->options, &p->ways.items[k].plan->options);
    if (is_new) status = try_value(p, row, way->plan, fewer, budget, found, error);
  }
  return status;
}

/* Try one option otherwise, with `fewer` blocks on the host: it may free memory. */
static int vary_options(tsr_planning *p, uint64_t fewer, uint64_t budget, size_t most,
                        tsr__best *found, tsr_error *error) {
  int status = 0;
  for (size_t i = 0; tsr__option_at(i) && status == 0; i++) {
    const tsr_parameter *row = tsr__option_at(i);
    bool is_place = strcmp(row->name, "offload") == 0 || strcmp(row->name, "offload_blocks") == 0;
    if (!found->way->plan->options.offload_blocks) return 0; /* ways have all blocks */
    if (!is_place) status = vary_option(p, row, fewer, budget, most, found, error);
  }
  return status;
}

/* Change numbers of blocks, kinds and other options until nothing is better. */
static int vary_near(tsr_planning *p, uint64_t budget, tsr__best *found, tsr_error *error) {
  const tsr_run_plan *before = NULL;
  size_t most = p->tried + LEAST_IMPROVED;
  int status = 0;
  while (status == 0 && found->plan != before && p->tried < most) {
    before = found->plan;
    status = vary_count(p, budget, most, found, error);
    if (status == 0 && p->tried < most) status = vary_kinds(p, budget, most, found, error);
    for (uint64_t fewer = 0; fewer < 3 && (!fewer || found->plan == before); fewer++)
      if (status == 0 && p->tried < most)
        status = vary_options(p, fewer, budget, most, found, error);
    if (status == 0 && found->plan == before) /* of the best way more is tried */
      status = improve_way(p, found->way, budget, found, error);
  }
  return status;
}

enum { VARIED = 3 };

/* Ways have quarters of the blocks on the host, and no activations of these. What is near the best is tried, then what is far, and then
 * what is near that. */
static int vary_places(tsr_planning *p, uint64_t budget, tsr__best *found, tsr_error *error) {
  const tsr_run_plan *before = NULL;
  int status = 0;
  if (!found->way || !tsr__plan_is_away(found->way->plan) || !tsr__planner_has_parts(p)) return 0;
  for (int i = 0; status == 0 && found->plan != before && i < VARIED; i++) {
    status = vary_near(p, budget, found, error);
    before = found->plan;
    if (status == 0) status = add_activations(p, budget, found, error);
  }
  return status;
}

/* ---- all of it ---- */

/* The plan that is known to fit, if there is one. */
static int try_known(tsr_planning *p, uint64_t budget, tsr__best *found, tsr_error *error) {
  tsr_run_plan_cost cost;
  if (!p->known) return 0;
  int status = tsr__planner_measure(p, p->known, &cost, error);
  if (status == 0 && tsr__planner_fits(p, &cost, budget))
    *found = (tsr__best){p->known, cost, NULL};
  return status;
}

/* Nothing fits: what takes least of all that was tried, of the leanest way, and of the plans to begin with. */
static int find_smallest(tsr_planning *p, uint64_t budget, tsr__best *found, tsr__best *least,
                         tsr_error *error) {
  tsr_run_plan_cost cost;
  int status = find_least(p, least, error);
  if (status == 0 && !has_least(p, least))
    status = try_leanest(p, budget, false, found, least, error);
  if (status || found->plan) return status;
  if (p->as_is.is_possible && (!least->plan || is_leaner(p, &p->as_is, &least->cost)))
    *least = (tsr__best){p->base, p->as_is, NULL};
  status = p->free ? tsr__planner_measure(p, p->free, &cost, error) : 0;
  if (status == 0 && p->free && cost.is_possible &&
      (!least->plan || is_leaner(p, &cost, &least->cost)))
    *least = (tsr__best){p->free, cost, NULL};
  if (status || has_least(p, least) || !p->host_budget_bytes) return status;
  return try_leanest(p, budget, true, found, least, error);
}

/* Fine ways last: most of them cannot be faster than what the others found. */
static int search_ways(tsr_planning *p, uint64_t budget, tsr__best *found, tsr__best *least,
                       tsr_error *error) {
  int status = 0;
  for (int pass = 0; pass < 2; pass++)
    for (size_t i = 0; status == 0 && i < p->ways.count; i++) {
      if (found->plan && p->is_any_enough) return 0;
      if (p->ways.items[i].is_fine == (pass == 1))
        status = search_way(p, &p->ways.items[i], budget, found, least, error);
    }
  return status;
}

static tsr_space *place_of(tsr_offload *away, int kind) {
  tsr_space *const places[] = {&away->optimizer, &away->gradients, &away->parameters,
                               &away->activations};
  return places[kind];
}

/* Put on the device again what the search put on the host for nothing: an optimizer that steps in backward leaves no
 * gradients to be copied. */
static int drop_idle(tsr_planning *p, uint64_t budget, tsr__best *found, tsr_error *error) {
  int status = 0;
  for (int kind = 0; status == 0 && found->plan && kind < 4; kind++) {
    tsr_run_plan_cost cost;
    tsr_offload asked = p->base->options.offload, away = found->plan->options.offload;
    bool is_given = *place_of(&asked, kind) != TSR_SPACE_DEVICE, is_idle = false;
    if (is_given || *place_of(&away, kind) == TSR_SPACE_DEVICE) continue;
    tsr_run_plan *plan = tsr__run_plan_copy(found->plan);
    if (!plan) return tsr__fail_memory(error);
    *place_of(&away, kind) = TSR_SPACE_DEVICE;
    bool has_any = away.optimizer || away.gradients || away.parameters || away.activations;
    plan->options.offload = away;
    if (!has_any) plan->options.offload_blocks = 0;
    status = tsr__planner_measure(p, plan, &cost, error);
    if (status == 0)
      is_idle = tsr__planner_fits(p, &cost, budget) &&
                cost.step_seconds <= found->cost.step_seconds &&
                cost.reserved_bytes <= found->cost.reserved_bytes;
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): a list of pointers */
    if (is_idle && TSR__VECTOR_PUSH(&p->improved, plan)) {
      *found = (tsr__best){plan, cost, found->way};
      continue;
    }
    tsr_run_plan_free(plan);
    if (is_idle) return tsr__fail_memory(error);
  }
  return status;
}

int tsr__planner_search(tsr_planning *p, uint64_t budget, tsr__best *found, tsr__best *least,
                        tsr_error *error) {
  int status = p->has_ways ? 0 : tsr__planner_list_ways(p, error);
  if (tsr__planner_fits(p, &p->as_is, budget)) *found = (tsr__best){p->base, p->as_is, NULL};
  if (status == 0) status = search_ways(p, budget, found, least, error);
  bool is_local = p->allow & TSR_ALLOW_RECOMPUTE && !tsr_model_is_traced(p->model);
  if (status == 0 && !found->plan) status = try_known(p, budget, found, error);
  if (status == 0 && !found->plan) status = find_smallest(p, budget, found, least, error);
  if (status == 0 && is_local && !found->plan && least->way && has_least(p, least))
    status = shrink(p, budget, found, least, error);
  if (status || p->is_any_enough) return status;
  if (is_local && found->way) status = improve(p, budget, found, error);
  if (status == 0 && !tsr_model_is_traced(p->model)) status = vary_places(p, budget, found, error);
  return status ? status : drop_idle(p, budget, found, error);
}

/* Candidates that were measured while they were listed: of step graphs, all are. */
static void take_measured(const tsr_planning *p, uint64_t budget, tsr__best *found,
                          tsr__best *least) {
  for (size_t i = 0; i < p->ways.count; i++)
    for (size_t k = 0; k < p->ways.items[i].candidates.count; k++) {
      const tsr__candidate *c = &p->ways.items[i].candidates.items[k];
      if (!c->is_measured || !c->cost.is_possible) continue;
      note_least(p, c, &p->ways.items[i], least);
      if (tsr__planner_fits(p, &c->cost, budget) && is_better(&c->cost, found))
        *found = (tsr__best){c->plan, c->cost, NULL};
    }
}

int tsr__planner_end_search(tsr_planning *p, uint64_t budget, tsr__best *found, tsr__best *least,
                            tsr_error *error) {
  tsr__effort_lift(p->how.effort);
  take_measured(p, budget, found, least);
  return found->plan ? 0 : try_known(p, budget, found, error);
}
