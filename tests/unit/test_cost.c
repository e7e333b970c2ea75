/* How long a step takes: rates of cards, rates that were measured, and what a checkpoint adds. */
#include "exec/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run_support.h"

#define MODEL                                                                                  \
  "{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_positions\":64,\"n_embd\":32,\"n_layer\":3," \
  "\"n_head\":2,\"resid_pdrop\":0,\"attn_pdrop\":0,\"embd_pdrop\":0,\"use_cache\":false}"

static void assert_near(double got, double want) {
  if (fabs(got - want) > 1e-9 * fabs(want)) fail_msg("%.17g is not %.17g", got, want);
}

static void open_step(training *t, tsr_simulate_options *run) {
  run->batch = 2;
  run->sequence = 16;
  assert_true(training_open(t, MODEL, run, NULL));
}

static void test_cards(void **state) {
  (void)state;
  training t;
  tsr_simulate_options run = {0};
  open_step(&t, &run);
  double slowest = 0, fastest = INFINITY;
  for (size_t i = 0; tsr__data_sheet_at(i); i++) {
    const tsr__data_sheet *gpu = tsr__data_sheet_at(i);
    tsr__machine_rates rates;
    assert_ptr_equal(tsr__data_sheet_of_name(gpu->name), gpu);
    tsr__rates_of_sheet(gpu, &rates);
    tsr__cost cost = tsr__cost_of_schedule(&t.schedule, &rates);
    double sum = 0;
    for (size_t k = 0; k < TSR__PHASE_COUNT; k++) sum += cost.phase_s[k];
    assert_near(sum, cost.step_s);
    assert_true(cost.phase_s[TSR__PHASE_BACKWARD] > cost.phase_s[TSR__PHASE_FORWARD]);
    if (cost.step_s > slowest) slowest = cost.step_s;
    if (cost.step_s < fastest) fastest = cost.step_s;
    assert_false(rates.is_measured);
    assert_true(rates.peer_bytes_per_s > 0.75 * rates.link_bytes_per_s && *gpu->peer_source);
  }
  assert_true(fastest < slowest);
  assert_null(tsr__data_sheet_of_name("abacus"));
  training_close(&t);
}

/* What was measured is predicted, whatever the numbers were. */
static void test_measured(void **state) {
  (void)state;
  training t;
  tsr_simulate_options run = {0};
  tsr__machine_rates rates;
  uint64_t total = 0, random = 1;
  open_step(&t, &run);
  uint64_t *ns = calloc(t.schedule.runs.count, sizeof *ns);
  assert_non_null(ns);
  for (size_t i = 0; i < t.schedule.runs.count; i++) {
    random = random * UINT64_C(6364136223846793005) + 1;
    ns[i] = 3 * (1000 + (random >> 40) % 5000);
    if (!t.schedule.runs.items[i].is_once) total += ns[i];
  }
  tsr__rates_measure(&t.schedule, ns, 3, NULL, 0, &rates);
  assert_true(rates.is_measured);
  assert_near(tsr__cost_of_schedule(&t.schedule, &rates).step_s, (double)total / 3 * 1e-9);
  free(ns);
  training_close(&t);
}

/* Rates of one run predict another one: blocks that are computed again take the time of their forward. */
static void test_recomputation(void **state) {
  (void)state;
  training plain, again;
  tsr_simulate_options run = {0}, full = {.checkpoint = TSR_CHECKPOINT_FULL};
  tsr__machine_rates rates;
  open_step(&plain, &run);
  open_step(&again, &full);
  tsr__rates_of_sheet(tsr__data_sheet_of_name("a100"), &rates);
  rates.launch_ns = 0;
  double forward = tsr__cost_of_schedule(&plain.schedule, &rates).phase_s[TSR__PHASE_FORWARD];
  double extra = tsr__cost_of_schedule(&again.schedule, &rates).step_s -
                 tsr__cost_of_schedule(&plain.schedule, &rates).step_s;
  assert_true(extra > 0.2 * forward && extra < forward);
  training_close(&plain);
  training_close(&again);
}

static double kernels_of(const tsr__cost *cost) {
  double sum = 0;
  for (size_t i = 0; i < TSR__PHASE_COUNT; i++) sum += cost->phase_s[i];
  return sum;
}

static tsr__cost cost_of_ranks(uint64_t zero, bool no_overlap, double bytes_per_s, bool is_measured,
                               double *sent_bytes) {
  training t;
  tsr_simulate_options run = {.ranks = 4, .zero = zero, .no_overlap = no_overlap};
  tsr__machine_rates rates;
  open_step(&t, &run);
  tsr__rates_of_sheet(tsr__data_sheet_of_name("a100"), &rates);
  rates.peer_bytes_per_s = bytes_per_s;
  rates.peer_latency_s = 0;
  rates.network_latency_s = 0;
  rates.is_measured = is_measured;
  tsr__cost cost = tsr__cost_of_schedule(&t.schedule, &rates);
  *sent_bytes = (double)tsr__schedule_sent_bytes(&t.schedule);
  training_close(&t);
  return cost;
}

/* What ranks send takes its bytes over the link's rate; kernels wait for what they do not hide. */
static void test_ranks(void **state) {
  (void)state;
  for (uint64_t zero = 0; zero <= 3; zero++)
    for (double rate = 1e6; rate <= 1e14; rate *= 100) {
      double sent;
      tsr__cost cost = cost_of_ranks(zero, false, rate, false, &sent);
      assert_near(cost.links_s, sent / rate);
      assert_near(cost.step_s, kernels_of(&cost) + cost.stalls_s);
      assert_true(cost.waited_s > 0 && cost.waited_s <= cost.stalls_s * (1 + 1e-9));
      assert_true(cost.stalls_s <= cost.links_s * (1 + 1e-9));
      assert_true(cost.step_s >= cost.links_s);
      /* What is summed beside the block before is not all waited for. */
      assert_true(cost.waited_s < cost.links_s);
      tsr__cost all = cost_of_ranks(zero, false, rate, true, &sent);
      assert_near(all.stalls_s, all.links_s); /* a processor sends with the same threads */
      tsr__cost one = cost_of_ranks(zero, true, rate, false, &sent);
      if (zero < 3) assert_near(one.waited_s, one.links_s); /* parameters are gathered ahead */
      assert_true(one.step_s >= cost.step_s * (1 - 1e-9));
    }
  double sent;
  tsr__cost none = cost_of_ranks(3, false, 0, false, &sent);
  assert_true(sent > 0 && none.links_s <= 0 && none.stalls_s <= 0);
}

/* ---- links by machine: what rings of messages take, counted message by message ---- */

enum { MOST = 64 };

/* What each rank has: a bit for each rank's chunk. Ranks of a machine are neighbours. */
typedef struct rings {
  uint64_t has[MOST];
  unsigned ranks, inside;
  double now_s;
} rings;

/* One ring: each rank sends what it got last to the next one at `stride`, in a ring of `length`, until it would send what the next
 * one began with. All send at once, so that each message takes as long as its chunks do. */
static void go_round(rings *r, unsigned length, unsigned stride, double chunk_bytes, double rate,
                     double latency) {
  uint64_t last[MOST], next[MOST];
  memcpy(last, r->has, sizeof last);
  for (unsigned step = 1; step < length; step++) {
    unsigned most = 0;
    for (unsigned i = 0; i < r->ranks; i++) {
      unsigned place = i / stride % length, to = i - place * stride + (place + 1) % length * stride;
      next[to] = last[i];
      assert_int_equal(r->has[to] & last[i], 0); /* nothing is sent twice */
      unsigned chunks = (unsigned)__builtin_popcountll(last[i]);
      if (chunks > most) most = chunks;
    }
    for (unsigned i = 0; i < r->ranks; i++) r->has[i] |= next[i];
    memcpy(last, next, sizeof last);
    r->now_s += latency + chunk_bytes * most / rate;
  }
}

/* Seconds until each rank of `count`, `inside` to a machine, has all of `bytes`. */
static double gather_seconds(unsigned count, unsigned inside, double bytes,
                             const tsr__machine_rates *m) {
  rings r = {.ranks = count, .inside = inside};
  for (unsigned i = 0; i < count; i++) r.has[i] = UINT64_C(1) << i;
  double chunk = bytes / count;
  go_round(&r, count / inside, inside, chunk, m->network_bytes_per_s, m->network_latency_s);
  go_round(&r, inside, 1, chunk, m->peer_bytes_per_s, m->peer_latency_s);
  uint64_t all = count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
  for (unsigned i = 0; i < count; i++) assert_true(r.has[i] == all);
  return r.now_s;
}

static unsigned draw(uint64_t *random, unsigned count) {
  *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407U;
  return (unsigned)((*random >> 33) % count);
}

/* Gathers are rings as above, and sums are gathers backwards. Replicas add a sum and a gather of a part. */
static void test_machines(void **state) {
  (void)state;
  uint64_t random = 5;
  for (unsigned round = 0; round < 20000; round++) {
    unsigned inside = 1u << draw(&random, 4), machines = 1 + draw(&random, 64 / inside);
    unsigned count = inside * machines, replicas = 1;
    if (draw(&random, 2))
      replicas = draw(&random, 2) ? machines : count; /* whole machines, or single ranks */
    else if (inside > 1 && draw(&random, 2))
      replicas = machines * 2; /* half machines */
    unsigned shared = count / replicas;
    double bytes = 64.0 * count * (1 + draw(&random, 100000)), part = bytes / shared;
    tsr__machine_rates m = {.peer_bytes_per_s = 1e9 * (1 + draw(&random, 900)),
                            .peer_latency_s = 1e-6 * draw(&random, 10),
                            .network_bytes_per_s = 1e8 * (1 + draw(&random, 900)),
                            .network_latency_s = 1e-6 * draw(&random, 50),
                            .ranks_a_machine = inside};
    tsr__slot slots[] = {
        {0}, {.bytes = (uint64_t)bytes}, {.bytes = (uint64_t)part}, {.bytes = (uint64_t)bytes}};
    tsr__schedule s = {.sharding = {.ranks = shared, .replicas = replicas}};
    s.slots.items = slots;
    s.slots.count = 4;
    tsr__move gather = {.kind = TSR__MOVE_GATHER, .from = 2, .to = 1};
    tsr__move sum = {.kind = TSR__MOVE_REDUCE, .from = 1, .to = 2, .staging = 3};
    unsigned shared_inside = shared < inside ? shared : inside;
    double want = gather_seconds(shared, shared_inside, bytes, &m);
    assert_near(tsr__cost_of_move(&s, &gather, &m), want);
    unsigned copies_inside = inside > shared ? inside / shared : 1;
    double copied = gather_seconds(replicas, copies_inside, part, &m);
    assert_near(tsr__cost_of_move(&s, &sum, &m), want + 2 * copied);
    /* What is sent, however long it takes. */
    m = (tsr__machine_rates){.peer_bytes_per_s = 1e9};
    double sent = (double)tsr__move_sent_bytes(&s, &sum);
    if (fabs(sent / 1e9 - tsr__cost_of_move(&s, &sum, &m)) > 2e-9 * replicas)
      fail_msg("%.17g bytes in %.17g s", sent, tsr__cost_of_move(&s, &sum, &m));
  }
}

/* A sum in parts has the latency of each; the sums of replicas of whole machines take what sums over all ranks do. */
static void test_parts_and_replicas(void **state) {
  (void)state;
  tsr__slot slots[] = {{0}, {.bytes = 1 << 20}, {.bytes = 1 << 16}, {.bytes = 1 << 18}};
  tsr__schedule s = {.sharding = {.ranks = 16}};
  s.slots.items = slots;
  s.slots.count = 4;
  tsr__move sum = {.kind = TSR__MOVE_REDUCE, .from = 1, .to = 2, .staging = 3};
  tsr__move gather = {.kind = TSR__MOVE_GATHER, .from = 2, .to = 1};
  tsr__machine_rates m = {.peer_bytes_per_s = 1e11,
                          .peer_latency_s = 1e-6,
                          .network_bytes_per_s = 1e10,
                          .network_latency_s = 1e-5,
                          .ranks_a_machine = 4};
  double parts = tsr__cost_of_move(&s, &sum, &m);
  slots[3].bytes = 1 << 20;
  double whole = tsr__cost_of_move(&s, &sum, &m);
  assert_near(parts - whole, 3 * (3e-6 + 3e-5));
  double flat = whole + tsr__cost_of_move(&s, &gather, &m);
  s.sharding.ranks = 4;
  s.sharding.replicas = 4;
  slots[2].bytes = 1 << 18;
  assert_near(tsr__cost_of_move(&s, &sum, &m) + tsr__cost_of_move(&s, &gather, &m), flat);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cards),         cmocka_unit_test(test_measured),
      cmocka_unit_test(test_recomputation), cmocka_unit_test(test_ranks),
      cmocka_unit_test(test_machines),      cmocka_unit_test(test_parts_and_replicas),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
