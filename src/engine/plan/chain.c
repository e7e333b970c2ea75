/* chain.c - see chain.h.
 *
 * T[a][b][m] is the least time to train blocks a to b with m slots. The slots hold everything but x[a], including
 * the gradient of x[b + 1]. Each pair (a, b) has a row of m. Rows of short parts are computed before those of
 * longer ones, and each candidate runs along m, so that the inner loop is two sums and a comparison.
 *
 * Invariant: a row does not increase with m, because a schedule that fits also fits with more memory. */
#include "plan/chain.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/effort.h"
#include "base/memory.h"
#include "base/vector.h"

/* The first decision for blocks a to b: CHOICE_NOW + k runs block a with option k, CHOICE_LATER + j passes up to
 * block j, and CHOICE_NONE means that nothing fits. */
enum { CHOICE_NONE = 0, CHOICE_NOW = 1, CHOICE_LATER = 1 + TSR__CHAIN_OPTIONS };

#define LARGEST_TABLE (UINT64_C(4) << 30)

typedef struct solver {
  const tsr__chain *chain;
  uint64_t slot_bytes;
  uint32_t slots;             /* in the budget, rounded down */
  size_t longest;             /* chain->longest, or the number of blocks */
  uint64_t *inputs;           /* slots of x[0..count] */
  uint64_t *gradients_before; /* slots of the parameter gradients of blocks 0 to i - 1 */
  double *pass_before;        /* time to pass blocks 0 to i - 1 */
  double *time;               /* T, by row_of(a, b) + m */
  double *nothing;            /* a row of zeros */
  const uint64_t *asked;      /* the m of a cell whose candidate is looked for, or NULL */
  uint16_t choice;            /* that candidate's, once it is found */
  TSR__VECTOR(tsr__chain_step) steps;
} solver;

/* Round up. The result saturates at UINT32_MAX, more than any budget has, so that sums of slots cannot wrap
 * around. */
static uint64_t slots_of(const solver *s, uint64_t bytes) {
  uint64_t slots = bytes / s->slot_bytes + (bytes % s->slot_bytes != 0);
  return slots < UINT32_MAX ? slots : UINT32_MAX;
}

/* Only two forms of parts are ever needed: those that end with the last block, and those short enough to be run again. Rows of the
 * former come first, by their first block; then those of the latter, by their first block and their length. */
static size_t row_of(const solver *s, size_t a, size_t b) {
  size_t n = s->chain->count;
  assert(a <= b && b < n && (b == n - 1 || b - a < s->longest));
  size_t row = b == n - 1 ? a : n + a * s->longest + (b - a);
  return row * ((size_t)s->slots + 1);
}

static uint64_t gradients(const solver *s, size_t a, size_t b) {
  return s->gradients_before[b + 1] - s->gradients_before[a];
}

/* A candidate for each m from `least` up: time_s + first[m - minus_first] + second[m - minus_second]. NULL parts
 * are omitted. */
typedef struct candidate {
  uint64_t least;
  double time_s;
  const double *first, *second;
  uint64_t minus_first, minus_second;
  uint16_t choice;
} candidate;

/* The hot loops. */
static void improve(double *restrict time, uint64_t count, double time_s,
                    const double *restrict first) {
  for (uint64_t m = 0; m < count; m++) {
    double sum = time_s + first[m];
    time[m] = sum < time[m] ? sum : time[m];
  }
}

static void improve_by_two(double *restrict time, uint64_t count, double time_s,
                           const double *restrict first, const double *restrict second) {
  for (uint64_t m = 0; m < count; m++) {
    double sum = time_s + first[m] + second[m];
    time[m] = sum < time[m] ? sum : time[m];
  }
}

/* The candidate's time at m, which is at least c->least. */
static double time_of(const candidate *c, uint64_t m) {
  double sum = c->time_s;
  if (c->first) sum += c->first[m - c->minus_first];
  if (c->second) sum += c->second[m - c->minus_second];
  return sum;
}

/* Improve the row by the candidate; or, if a cell is asked for, see whether the candidate made it. The first one that could have did. */
static void consider(solver *s, size_t row, candidate c) {
  double *time = s->time + row;
  if (c.first && c.minus_first > c.least) c.least = c.minus_first;
  if (c.second && c.minus_second > c.least) c.least = c.minus_second;
  if (s->asked) {
    if (s->choice == CHOICE_NONE && *s->asked >= c.least &&
        time_of(&c, *s->asked) <= time[*s->asked])
      s->choice = c.choice;
    return;
  }
  if (c.least > s->slots) return;
  uint64_t count = s->slots + 1 - c.least;
  assert(c.first || !c.second);
  if (c.second)
    improve_by_two(time + c.least, count, c.time_s, c.first + (c.least - c.minus_first),
                   c.second + (c.least - c.minus_second));
  else
    improve(time + c.least, count, c.time_s,
            c.first ? c.first + (c.least - c.minus_first) : s->nothing);
}

/* Run a with an option, train a + 1 to b, then run a's backward. */
static void consider_now(solver *s, size_t a, size_t b) {
  const tsr__chain_block *block = &s->chain->blocks[a];
  uint64_t last_gradient = s->inputs[b + 1], output = s->inputs[a + 1];
  for (size_t k = 0; k < block->option_count; k++) {
    const tsr__chain_option *option = &block->options[k];
    uint64_t saved = slots_of(s, option->saved_bytes);
    uint64_t forward = last_gradient + saved + output + slots_of(s, block->forward_extra_bytes);
    uint64_t backward = saved + output + s->inputs[a] + slots_of(s, block->backward_extra_bytes) +
                        gradients(s, a, b);
    candidate c = {.least = forward > backward ? forward : backward,
                   .time_s = option->forward_s + option->backward_s,
                   .choice = (uint16_t)(CHOICE_NOW + k)};
    if (a < b) {
      c.first = s->time + row_of(s, a + 1, b);
      c.minus_first = saved + output;
    }
    consider(s, row_of(s, a, b), c);
  }
}

/* Pass a to j - 1, train j to b, then train a to j - 1. */
static void consider_later(solver *s, size_t a, size_t b) {
  uint64_t last_gradient = s->inputs[b + 1], sweep = 0;
  for (size_t j = a + 1; j <= b && j - a <= s->longest; j++) {
    uint64_t passing = last_gradient + (j - 1 > a ? s->inputs[j - 1] : 0) + s->inputs[j] +
                       slots_of(s, s->chain->blocks[j - 1].forward_extra_bytes);
    if (passing > sweep) sweep = passing;
    consider(s, row_of(s, a, b),
             (candidate){.least = sweep,
                         .time_s = s->pass_before[j] - s->pass_before[a],
                         .first = s->time + row_of(s, j, b),
                         .minus_first = s->inputs[j],
                         .second = s->time + row_of(s, a, j - 1),
                         .minus_second = gradients(s, j, b),
                         .choice = (uint16_t)(CHOICE_LATER + j)});
  }
}

/* Cells of the table that take as long as an instruction that is simulated. */
enum { CELLS_A_UNIT = 64 };

static uint64_t work_of(const solver *s, size_t length) {
  uint64_t candidates = TSR__CHAIN_OPTIONS + (length < s->longest ? length : s->longest);
  return candidates * s->slots / CELLS_A_UNIT + 1;
}

/* False if it is to end. */
static bool fill(solver *s) {
  size_t n = s->chain->count;
  for (size_t length = 1; length <= n; length++)
    for (size_t a = length <= s->longest ? 0 : n - length; a + length <= n; a++) {
      if (!tsr__effort_go_on(s->chain->effort, work_of(s, length))) return false;
      double *time = s->time + row_of(s, a, a + length - 1);
      for (uint32_t m = 0; m <= s->slots; m++) time[m] = INFINITY;
      consider_now(s, a, a + length - 1);
      consider_later(s, a, a + length - 1);
    }
  return true;
}

/* ---- the schedule ---- */

static bool push(solver *s, size_t block, tsr__chain_kind kind, size_t option, bool keeps_input) {
  return TSR__VECTOR_PUSH(&s->steps, (tsr__chain_step){.block = (uint16_t)block,
                                                       .kind = (uint8_t)kind,
                                                       .option = (uint8_t)option,
                                                       .keeps_input = keeps_input});
}

/* What is done first to train blocks a to b with m slots. It is found again rather than stored: plans have few steps, and the table has
 * millions of cells. */
static uint16_t choice_at(solver *s, size_t a, size_t b, uint64_t m) {
  s->asked = &m;
  s->choice = CHOICE_NONE;
  consider_now(s, a, b);
  consider_later(s, a, b);
  s->asked = NULL;
  return s->choice;
}

static bool is_possible(const solver *s, size_t a, size_t b, uint64_t m) {
  return s->time[row_of(s, a, b) + m] < INFINITY;
}

/* The depth is at most the number of blocks, because each call is for fewer of them. */
static bool follow(solver *s, size_t a, size_t b, uint64_t m) {
  assert(m <= s->slots && is_possible(s, a, b, m));
  uint16_t choice = choice_at(s, a, b, m);
  assert(choice != CHOICE_NONE);
  if (choice < CHOICE_LATER) {
    size_t option = (size_t)choice - CHOICE_NOW;
    uint64_t kept = slots_of(s, s->chain->blocks[a].options[option].saved_bytes) + s->inputs[a + 1];
    return push(s, a, TSR__CHAIN_RUN, option, true) && (a == b || follow(s, a + 1, b, m - kept)) &&
           push(s, a, TSR__CHAIN_BACKWARD, option, false);
  }
  size_t j = (size_t)choice - CHOICE_LATER;
  bool ok = true;
  for (size_t i = a; ok && i < j; i++) ok = push(s, i, TSR__CHAIN_PASS, 0, i == a);
  return ok && follow(s, j, b, m - s->inputs[j]) && follow(s, a, j - 1, m - gradients(s, j, b));
}

typedef struct live {
  uint64_t bytes, peak_bytes;
} live;

static void touch(live *l, uint64_t extra_bytes) {
  uint64_t now = tsr__sum_u64(l->bytes, extra_bytes);
  if (now > l->peak_bytes) l->peak_bytes = now;
}

static uint64_t bytes_of(const tsr__chain *chain, size_t boundary) {
  return boundary < chain->count ? chain->blocks[boundary].input_bytes : chain->output_bytes;
}

/* x[i] counts from when it is made until it is dropped, which happens after block i's backward at the latest. x[0]
 * never counts. */
void tsr__chain_measure(const tsr__chain *chain, const tsr__chain_step *steps, size_t count,
                        uint64_t *peak_bytes, double *time_s) {
  bool has[TSR__CHAIN_BLOCKS + 1] = {false};
  live l = {.bytes = chain->output_bytes}; /* its gradient */
  double time = 0;
  touch(&l, 0);
  for (size_t i = 0; i < count; i++) {
    size_t at = steps[i].block;
    const tsr__chain_block *block = &chain->blocks[at];
    const tsr__chain_option *option = &block->options[steps[i].option];
    uint64_t output = bytes_of(chain, at + 1), input = at ? block->input_bytes : 0;
    assert(at < chain->count && steps[i].option < block->option_count);
    if (steps[i].kind == TSR__CHAIN_BACKWARD) {
      if (has[at + 1]) l.bytes -= output;
      has[at + 1] = false;
      l.bytes += block->input_bytes + block->gradient_bytes;
      touch(&l, block->backward_extra_bytes);
      l.bytes -= option->saved_bytes + output; /* the gradient of x[i + 1] */
      if (at && has[at]) l.bytes -= input;
      has[at] = false;
      time += option->backward_s;
      continue;
    }
    bool saves = steps[i].kind == TSR__CHAIN_RUN;
    assert(at == 0 || has[at]);
    if (!has[at + 1]) l.bytes += output;
    has[at + 1] = true;
    if (saves) l.bytes += option->saved_bytes;
    touch(&l, block->forward_extra_bytes);
    time += saves ? option->forward_s : block->pass_s;
    if (!saves && !steps[i].keeps_input && at) {
      l.bytes -= input;
      has[at] = false;
    }
  }
  *peak_bytes = l.peak_bytes;
  *time_s = time;
}

/* ---- the solver ---- */

static void release(solver *s) {
  tsr__free(s->inputs);
  tsr__free(s->gradients_before);
  tsr__free(s->pass_before);
  tsr__free(s->time);
  tsr__free(s->nothing);
  TSR__VECTOR_FREE(&s->steps);
}

static bool begin(solver *s) {
  const tsr__chain *chain = s->chain;
  size_t n = chain->count, cells = n * (1 + s->longest) * ((size_t)s->slots + 1);
  s->inputs = TSR__NEW_ARRAY(uint64_t, n + 1);
  s->gradients_before = TSR__NEW_ARRAY(uint64_t, n + 1);
  s->pass_before = TSR__NEW_ARRAY(double, n + 1);
  s->time = tsr__realloc(NULL, cells, sizeof *s->time);
  s->nothing = TSR__NEW_ARRAY(double, (size_t)s->slots + 1);
  if (!s->inputs || !s->gradients_before || !s->pass_before || !s->time || !s->nothing)
    return false;
  s->inputs[n] = slots_of(s, chain->output_bytes);
  for (size_t i = 0; i < n; i++) {
    const tsr__chain_block *block = &chain->blocks[i];
    assert(block->option_count && block->option_count <= TSR__CHAIN_OPTIONS && block->pass_s >= 0);
    s->inputs[i] = slots_of(s, block->input_bytes);
    s->gradients_before[i + 1] = s->gradients_before[i] + slots_of(s, block->gradient_bytes);
    s->pass_before[i + 1] = s->pass_before[i] + block->pass_s;
  }
  return true;
}

/* Fill the table. The caller releases the solver even if this fails. */
static int prepare(solver *s, const tsr__chain *chain, uint64_t budget_bytes, uint32_t slots,
                   tsr_error *error) {
  size_t n = chain->count;
  assert(n && n <= TSR__CHAIN_BLOCKS && slots && slots <= UINT16_MAX);
  *s = (solver){.chain = chain, .longest = chain->longest ? chain->longest : n};
  if (s->longest > n) s->longest = n;
  s->slot_bytes = budget_bytes / slots + (budget_bytes % slots != 0);
  if (!s->slot_bytes) s->slot_bytes = 1;
  s->slots = (uint32_t)(budget_bytes / s->slot_bytes);
  if ((uint64_t)n * (1 + s->longest) * ((uint64_t)s->slots + 1) > LARGEST_TABLE / sizeof *s->time)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "too many blocks for this number of slots: use fewer slots");
  if (!begin(s)) return tsr__fail_memory(error);
  return fill(s) ? 0 : tsr__effort_fail(chain->effort, error);
}

/* Read the plan for `m` slots; the caller knows that one exists. */
static bool read_plan(solver *s, uint32_t m, tsr__chain_plan *out) {
  s->steps.count = 0;
  if (!follow(s, 0, s->chain->count - 1, m)) return false;
  tsr__chain_plan plan = {.steps = s->steps.items, .count = s->steps.count};
  s->steps.items = NULL;
  s->steps.count = s->steps.capacity = 0;
  tsr__chain_measure(s->chain, plan.steps, plan.count, &plan.peak_bytes, &plan.time_s);
  assert(plan.peak_bytes <= m * s->slot_bytes);
  *out = plan;
  return true;
}

int tsr__chain_solve(const tsr__chain *chain, uint64_t budget_bytes, uint32_t slots,
                     tsr__chain_answer *answer, tsr__chain_plan *out, tsr_error *error) {
  solver s;
  int status = prepare(&s, chain, budget_bytes, slots, error);
  bool ok = true;
  *answer = TSR__CHAIN_TOO_LARGE;
  if (status == 0 && is_possible(&s, 0, chain->count - 1, s.slots)) {
    ok = read_plan(&s, s.slots, out);
    if (ok) *answer = TSR__CHAIN_FITS;
  }
  release(&s);
  return ok ? status : tsr__fail_memory(error);
}

/* List the budgets at which the time changes: the fewest slots for each time, the fastest first. Returns their
 * number. */
static size_t list_changes(const solver *s, uint32_t *places) {
  size_t row = row_of(s, 0, s->chain->count - 1), count = 0;
  const double *time = s->time + row;
  for (uint32_t m = s->slots + 1; m-- > 0;) {
    bool is_new = time[m] < INFINITY && (m == 0 || time[m] < time[m - 1]);
    if (is_new) places[count++] = m;
  }
  return count;
}

int tsr__chain_front(const tsr__chain *chain, uint64_t budget_bytes, uint32_t slots,
                     tsr__chain_plan *plans, size_t room, size_t *count, tsr_error *error) {
  solver s;
  uint32_t *places = NULL;
  assert(room > 1);
  *count = 0;
  int status = prepare(&s, chain, budget_bytes, slots, error);
  if (status == 0) places = TSR__NEW_ARRAY(uint32_t, (size_t)s.slots + 1);
  if (status == 0 && !places) status = tsr__fail_memory(error);
  size_t changes = status ? 0 : list_changes(&s, places);
  size_t taken = changes < room ? changes : room;
  for (size_t i = 0; status == 0 && i < taken; i++) {
    size_t place = taken > 1 ? i * (changes - 1) / (taken - 1) : 0;
    if (!read_plan(&s, places[place], &plans[i])) status = tsr__fail_memory(error);
    *count += status == 0;
  }
  tsr__free(places);
  release(&s);
  return status;
}

void tsr__chain_plan_release(tsr__chain_plan *plan) {
  tsr__free(plan->steps);
  *plan = (tsr__chain_plan){0};
}
