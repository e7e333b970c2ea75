/* The chain solver: against all schedules of small chains, against rotor's own recursion, and on plans that
 * are easy to see. Times are whole numbers, so sums are exact. */
#include "base/effort.h"
#include "plan/chain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test_support.h"

enum { BLOCKS = 12, OPTIONS = 3, CHAINS = 10000, ROTOR_CHAINS = 1000, PEAKS = 4096 };

typedef struct made {
  tsr__chain_option options[BLOCKS][OPTIONS];
  tsr__chain_block blocks[BLOCKS];
  tsr__chain chain;
} made;

static uint64_t state_of_random;
static uint32_t random_below(uint32_t end) {
  state_of_random = state_of_random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(state_of_random >> 33) % end;
}

/* Options save more and take less time, or anything at all. */
static void make(made *m, size_t blocks, size_t options, bool has_gradients) {
  memset(m, 0, sizeof *m);
  for (size_t i = 0; i < blocks; i++) {
    tsr__chain_block *b = &m->blocks[i];
    b->input_bytes = 1 + random_below(9);
    b->forward_extra_bytes = random_below(6);
    b->backward_extra_bytes = random_below(8);
    b->gradient_bytes = has_gradients ? random_below(7) : 0;
    b->pass_s = 1 + random_below(20);
    b->options = m->options[i];
    b->option_count = 1 + random_below((uint32_t)options);
    for (size_t k = 0; k < b->option_count; k++)
      m->options[i][k] = (tsr__chain_option){.saved_bytes = random_below(20),
                                             .forward_s = b->pass_s + random_below(2),
                                             .backward_s = 5 + random_below(30)};
  }
  m->chain = (tsr__chain){m->blocks, blocks, random_below(5), 0, NULL};
}

/* ---- all schedules ---- */

typedef struct pending {
  size_t a, b, option;
  bool is_backward;
} pending;

typedef struct search {
  const tsr__chain *chain;
  tsr__chain_step steps[256];
  size_t count;
  pending waiting[64];
  size_t waiting_count;
  double best[PEAKS]; /* by peak */
} search;

static void step(search *s, size_t block, tsr__chain_kind kind, size_t option, bool keeps) {
  assert_true(s->count < 256);
  s->steps[s->count++] = (tsr__chain_step){(uint16_t)block, (uint8_t)kind, (uint8_t)option, keeps};
}

static void explore(search *s) {
  if (!s->waiting_count) {
    uint64_t peak;
    double time;
    tsr__chain_measure(s->chain, s->steps, s->count, &peak, &time);
    assert_true(peak < PEAKS);
    if (time < s->best[peak]) s->best[peak] = time;
    return;
  }
  pending next = s->waiting[--s->waiting_count];
  size_t count = s->count, waiting = s->waiting_count;
  if (next.is_backward) {
    step(s, next.a, TSR__CHAIN_BACKWARD, next.option, false);
    explore(s);
    s->count = count;
    s->waiting_count = waiting;
  } else {
    for (size_t k = 0; k < s->chain->blocks[next.a].option_count; k++) {
      step(s, next.a, TSR__CHAIN_RUN, k, true);
      s->waiting[s->waiting_count++] = (pending){next.a, next.a, k, true};
      if (next.a < next.b) s->waiting[s->waiting_count++] = (pending){next.a + 1, next.b, 0, false};
      explore(s);
      s->count = count;
      s->waiting_count = waiting;
    }
    for (size_t j = next.a + 1; j <= next.b; j++) {
      for (size_t i = next.a; i < j; i++) step(s, i, TSR__CHAIN_PASS, 0, i == next.a);
      s->waiting[s->waiting_count++] = (pending){next.a, j - 1, 0, false};
      s->waiting[s->waiting_count++] = (pending){j, next.b, 0, false};
      explore(s);
      s->count = count;
      s->waiting_count = waiting;
    }
  }
  s->waiting[s->waiting_count++] = next;
}

/* The least time of any schedule within each budget. */
static void best_of_all(search *s, const tsr__chain *chain) {
  s->chain = chain;
  s->count = 0;
  s->waiting[0] = (pending){0, chain->count - 1, 0, false};
  s->waiting_count = 1;
  for (size_t i = 0; i < PEAKS; i++) s->best[i] = INFINITY;
  explore(s);
  for (size_t i = 1; i < PEAKS; i++)
    if (s->best[i - 1] < s->best[i]) s->best[i] = s->best[i - 1];
}

static double solved(const tsr__chain *chain, uint64_t budget, uint32_t slots) {
  tsr__chain_plan plan = {0};
  tsr__chain_answer answer;
  assert_int_equal(tsr__chain_solve(chain, budget, slots, &answer, &plan, NULL), 0);
  if (answer == TSR__CHAIN_TOO_LARGE) return INFINITY;
  assert_true(plan.peak_bytes <= budget);
  double time = plan.time_s;
  tsr__chain_plan_release(&plan);
  return time;
}

static void test_equals_exhaustive_search(void **state) {
  static search s;
  static made m;
  (void)state;
  state_of_random = 1;
  size_t feasible = 0;
  for (int i = 0; i < CHAINS; i++) {
    size_t blocks = 1 + random_below(6);
    make(&m, blocks, blocks < 6 || i % 100 == 0 ? 3 : 2, i % 4 != 0);
    best_of_all(&s, &m.chain);
    uint64_t least = 0, most;
    double time;
    while (s.best[least] == INFINITY) least++;
    for (most = least; s.best[most] > s.best[PEAKS - 1];) most++;
    uint64_t budgets[] = {least ? least - 1 : 0, least,
                          least + random_below((uint32_t)(most - least) + 1), most};
    for (size_t k = 0; k < 4; k++) {
      time = solved(&m.chain, budgets[k], 1000);
      assert_true(time == s.best[budgets[k]]);
      feasible += time < INFINITY;
    }
  }
  assert_true(feasible >= 3 * CHAINS);
}

/* ---- rotor ---- */

/* Theorem 1 of the paper, as it is written there: blocks 1 to L, block s makes a[s] and, if it saves,
 * abar[s], which contains a[s]; d[s] is the size of the gradient of a[s]. */
typedef struct rotor {
  int length;
  int64_t a[BLOCKS + 1], d[BLOCKS + 1], abar[BLOCKS + 1], of[BLOCKS + 1], ob[BLOCKS + 1];
  double uf[BLOCKS + 1], ub[BLOCKS + 1];
} rotor;

static int64_t largest(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static double rotor_time(const rotor *r, int s, int t, int64_t m) {
  int64_t needs_all = largest(r->d[t] + r->abar[s] + r->of[s], r->d[s] + r->abar[s] + r->ob[s]);
  double best = INFINITY;
  if (m >= needs_all)
    best = r->uf[s] + r->ub[s] + (s < t ? rotor_time(r, s + 1, t, m - r->abar[s]) : 0);
  int64_t needs_none = r->d[t] + r->a[s] + r->of[s];
  for (int j = s + 1; j < t; j++)
    needs_none = largest(needs_none, r->d[t] + r->a[j - 1] + r->a[j] + r->of[j]);
  double sweep = 0;
  for (int split = s + 1; split <= t && m >= needs_none; split++) {
    sweep += r->uf[split - 1];
    double right = rotor_time(r, split, t, m - r->a[split - 1]);
    if (right == INFINITY) continue;
    best = fmin(best, sweep + right + rotor_time(r, s, split - 1, m));
  }
  return best;
}

/* The same chain in the paper's terms. Its backward counts x[s + 1] and not the gradient of x[s]. */
static rotor rotor_of(const made *m) {
  rotor r = {.length = (int)m->chain.count};
  for (int s = 1; s <= r.length; s++) {
    const tsr__chain_block *b = &m->blocks[s - 1];
    int64_t output = (int64_t)(s < r.length ? m->blocks[s].input_bytes : m->chain.output_bytes);
    r.a[s] = r.d[s] = output;
    r.abar[s] = output + (int64_t)b->options[0].saved_bytes;
    r.of[s] = (int64_t)b->forward_extra_bytes;
    r.ob[s] = (int64_t)b->backward_extra_bytes + (int64_t)b->input_bytes - output;
    r.uf[s] = b->pass_s;
    r.ub[s] = b->options[0].forward_s - b->pass_s + b->options[0].backward_s;
  }
  return r;
}

static void test_equals_rotor(void **state) {
  static made m;
  (void)state;
  state_of_random = 2;
  for (int i = 0; i < ROTOR_CHAINS; i++) {
    make(&m, 2 + random_below(7), 1, false);
    rotor r = rotor_of(&m);
    for (int k = 0; k < 4; k++) {
      int64_t budget = 10 + random_below(120);
      assert_true(solved(&m.chain, (uint64_t)budget, 1000) == rotor_time(&r, 1, r.length, budget));
    }
  }
}

/* ---- revolve ---- */

/* Passes that it takes to reverse `steps` equal steps with `slots` for states besides the first: the recurrence of Griewank
 * and Walther. Each step also runs once to be reversed. */
static uint64_t revolve_passes(uint64_t steps, uint64_t slots) {
  uint64_t best = steps * (steps - 1) / 2; /* each from the first state */
  for (uint64_t middle = 1; slots && middle < steps; middle++) {
    uint64_t right = revolve_passes(steps - middle, slots - 1);
    uint64_t sum = middle + right + revolve_passes(middle, slots);
    if (sum < best) best = sum;
  }
  return best;
}

static uint64_t binomial(uint64_t n, uint64_t k) {
  uint64_t result = 1;
  for (uint64_t i = 1; i <= k; i++) result = result * (n - k + i) / i;
  return result;
}

/* The most that any block runs. */
static size_t most_runs(const tsr__chain_plan *plan) {
  size_t runs[BLOCKS] = {0}, most = 0;
  for (size_t i = 0; i < plan->count; i++) {
    size_t *of = &runs[plan->steps[i].block];
    if (plan->steps[i].kind != TSR__CHAIN_BACKWARD && ++*of > most) most = *of;
  }
  return most;
}

/* Equal blocks of which only one can be run with what it saves, so that each but the last is passed before: binomial checkpointing.
 * Beside that block and `slots` states, the first among them, two states live: what it makes, and a gradient. Up to
 * C(slots + times, slots) steps, none is passed more than `times` times: 10 for three slots and two. */
static void test_equals_revolve(void **state) {
  enum { SAVED = 100 };
  (void)state;
  const tsr__chain_option option = {.saved_bytes = SAVED, .forward_s = 1, .backward_s = 0};
  tsr__chain_block blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++)
    blocks[i] =
        (tsr__chain_block){.input_bytes = 1, .pass_s = 1, .options = &option, .option_count = 1};
  for (size_t steps = 2; steps <= BLOCKS; steps++)
    for (uint64_t slots = 1; slots <= 4; slots++) {
      tsr__chain chain = {blocks, steps, 1, 0, NULL};
      tsr__chain_plan plan = {0};
      tsr__chain_answer answer;
      uint64_t budget = SAVED + slots + 2, times = 1;
      while (binomial(slots + times, slots) < steps) times++;
      assert_int_equal(tsr__chain_solve(&chain, budget, SAVED * 10, &answer, &plan, NULL), 0);
      assert_int_equal(answer, TSR__CHAIN_FITS);
      assert_int_equal((uint64_t)plan.time_s, revolve_passes(steps, slots - 1) + steps);
      assert_int_equal(most_runs(&plan), times + 1);
      tsr__chain_plan_release(&plan);
    }
  assert_int_equal(binomial(3 + 2, 3), 10);
}

/* ---- plans that are easy to see ---- */

/* The longest row of passes that are run again as one. */
static size_t longest_of(const tsr__chain_plan *plan) {
  size_t longest = 0, now = 0;
  for (size_t i = 0; i < plan->count; i++) {
    bool is_pass = plan->steps[i].kind == TSR__CHAIN_PASS;
    now = !is_pass ? 0 : plan->steps[i].keeps_input ? 1 : now + 1;
    if (now > longest) longest = now;
  }
  return longest;
}

/* One table has the plans of every budget; with a limit to what is passed, none passes more. */
static void test_front(void **state) {
  enum { ROOM = 256, MOST = 120, FRONTS = 200 };
  static made m;
  static tsr__chain_plan plans[ROOM];
  (void)state;
  state_of_random = 11;
  for (int i = 0; i < FRONTS; i++) {
    tsr_error error;
    size_t count;
    make(&m, 1 + random_below(5), OPTIONS, true);
    m.chain.longest = random_below(3);
    assert_int_equal(tsr__chain_front(&m.chain, MOST, MOST, plans, ROOM, &count, &error), 0);
    for (size_t k = 0; k < count; k++) {
      assert_true(solved(&m.chain, plans[k].peak_bytes, MOST) == plans[k].time_s);
      assert_true(k == 0 || plans[k].time_s > plans[k - 1].time_s);
      assert_true(k == 0 || plans[k].peak_bytes < plans[k - 1].peak_bytes);
      if (m.chain.longest) assert_true(longest_of(&plans[k]) <= m.chain.longest);
    }
    if (count) assert_true(solved(&m.chain, MOST, MOST) == plans[0].time_s);
    uint64_t least = count ? plans[count - 1].peak_bytes : MOST;
    if (least) assert_true(solved(&m.chain, least - !!count, MOST) == INFINITY);
    for (size_t k = 0; k < count; k++) tsr__chain_plan_release(&plans[k]);
  }
}

/* Equal blocks that save 10 or nothing, whose inputs are 1. */
static void equal_blocks(made *m, size_t count, uint64_t scale) {
  memset(m, 0, sizeof *m);
  for (size_t i = 0; i < count; i++) {
    m->options[i][0] = (tsr__chain_option){10 * scale, 1, 2};
    m->options[i][1] = (tsr__chain_option){0, 1, 3};
    m->blocks[i] = (tsr__chain_block){.input_bytes = scale,
                                      .backward_extra_bytes = 10 * scale,
                                      .pass_s = 1,
                                      .options = m->options[i],
                                      .option_count = 2};
  }
  m->chain = (tsr__chain){m->blocks, count, 0, 0, NULL};
}

static void test_takes_what_is_fast_where_there_is_room(void **state) {
  static made m;
  (void)state;
  equal_blocks(&m, 10, 1);
  assert_true(solved(&m.chain, 1000, 1000) == 30);
  assert_true(solved(&m.chain, 5, 1000) == INFINITY);
}

static void test_less_memory_never_takes_less_time(void **state) {
  static made m;
  double before = INFINITY;
  (void)state;
  equal_blocks(&m, BLOCKS, 1);
  for (uint64_t budget = 0; budget < 200; budget++) {
    double time = solved(&m.chain, budget, 1000);
    assert_true(time <= before);
    before = time;
  }
}

/* Slots that are many bytes long: what is found fits, and is hardly slower. */
static void test_rounds_up(void **state) {
  static made fine, rough;
  (void)state;
  equal_blocks(&fine, BLOCKS, 1);
  equal_blocks(&rough, BLOCKS, 1000003);
  for (uint64_t budget = 30; budget < 150; budget += 10) {
    double exact = solved(&fine.chain, budget, 1000);
    double rounded = solved(&rough.chain, budget * 1000003, 500);
    assert_true(rounded >= exact);
    assert_true(rounded <= exact + 3);
  }
}

static void test_sizes_beyond_every_budget(void **state) {
  static made m;
  (void)state;
  equal_blocks(&m, 3, 1);
  m.options[1][0].saved_bytes = UINT64_MAX;
  m.blocks[2].gradient_bytes = UINT64_MAX / 2;
  assert_true(solved(&m.chain, 1 << 20, 500) == INFINITY);
}

static void test_many_blocks(void **state) {
  enum { MANY = 128 };
  static tsr__chain_option options[2] = {{10, 1, 2}, {2, 1, 2.1}};
  static tsr__chain_block blocks[MANY];
  tsr__chain chain = {blocks, MANY, 1, 0, NULL};
  (void)state;
  for (size_t i = 0; i < MANY; i++)
    blocks[i] = (tsr__chain_block){.input_bytes = 1,
                                   .backward_extra_bytes = 10,
                                   .gradient_bytes = 1,
                                   .pass_s = 1,
                                   .options = options,
                                   .option_count = 2};
  double all = solved(&chain, 10000, 500), some = solved(&chain, 700, 500),
         few = solved(&chain, 160, 500);
  assert_true(fabs(all - 3 * MANY) < 1e-6);
  assert_true(all < some && some < few && few < INFINITY);
}

/* More than 1,024, in segments of at most four. */
static void test_most_blocks(void **state) {
  enum { ROOM = 8, MANY = 1100 };
  static const tsr__chain_option options[2] = {{10, 1, 2}, {1, 1, 2.1}};
  static tsr__chain_block blocks[MANY];
  tsr_effort effort;
  tsr__chain chain = {blocks, MANY, 1, 4, &effort};
  tsr__chain_plan plans[ROOM];
  size_t count = 0;
  tsr_error error;
  (void)state;
  for (size_t i = 0; i < MANY; i++)
    blocks[i] =
        (tsr__chain_block){.input_bytes = 1, .pass_s = 1, .options = options, .option_count = 2};
  assert_int_equal(tsr__effort_init(&effort, NULL, &error), 0);
  assert_int_equal(tsr__chain_front(&chain, 600, 600, plans, ROOM, &count, &error), 0);
  assert_true(count > 1);
  for (size_t i = 0; i < count; i++) tsr__chain_plan_release(&plans[i]);
  uint64_t work = effort.work;
  assert_true(work > MANY);
  const tsr_effort_options half = {.struct_bytes = sizeof half, .most_work = work / 2};
  assert_int_equal(tsr__effort_init(&effort, &half, &error), 0);
  assert_int_equal(tsr__chain_front(&chain, 600, 600, plans, ROOM, &count, &error),
                   TSR_ERROR_LIMIT);
  assert_true(count == 0 && tsr__effort_is_spent(&effort));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_equals_exhaustive_search),
      cmocka_unit_test(test_equals_rotor),
      cmocka_unit_test(test_equals_revolve),
      cmocka_unit_test(test_takes_what_is_fast_where_there_is_room),
      cmocka_unit_test(test_less_memory_never_takes_less_time),
      cmocka_unit_test(test_rounds_up),
      cmocka_unit_test(test_front),
      cmocka_unit_test(test_sizes_beyond_every_budget),
      cmocka_unit_test(test_most_blocks),
      cmocka_unit_test(test_many_blocks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
