/* cost.c - see cost.h.
 *
 * Cards: peak rates without sparsity, from NVIDIA's data sheets of the T4, V100 SXM2, L4, A10, A100 (40 and 80
 * GB, SXM), H100, H200 and B200 SXM, of AMD's of the MI300X, and of Ampere, Ada and Blackwell GeForce (whitepapers; 16 bits with sums in fp32). Links
 * are one direction of PCIe as it is measured, about 80 % of its nominal rate. Links between cards are nominal: half of the
 * data sheet's NVLink, which counts both directions, or PCIe for cards without NVLink, or with a bridge for two only. */
#include "exec/cost.h"

#include <assert.h>
#include <string.h>

#include "exec/card_memory.h"
#include "tessera/unstable/runs.h"

#define GB  1e9
#define TF  1e12
#define GiB ((uint64_t)1 << 30)

/* One direction: 3.0, 4.0 and 5.0 with 16 lanes. */
#define PCIE_3 (12 * GB)
#define PCIE_4 (25 * GB)
#define PCIE_5 (50 * GB)
/* Nominal, of which the rates take a share as of NVLink's. */
#define PEER_PCIE_3 (15.75 * GB)
#define PEER_PCIE_4 (31.5 * GB)
#define PEER_PCIE_5 (63 * GB)

#define TSR__GPU(name, ...) {name, __VA_ARGS__},
static const tsr__data_sheet gpus[] = {
#include "exec/gpu_rows.def"
};
#undef TSR__GPU

#define TSR__GPU(name, ...) name,
const char *const tsr_gpu_names[] = {
#include "exec/gpu_rows.def"
    NULL};
#undef TSR__GPU

const char *tsr_gpu_word(size_t i) {
  return i < sizeof gpus / sizeof *gpus ? tsr_gpu_names[i] : NULL;
}

/* What programs reach. */
#define SHARE_OF_FLOPS 0.6
/* Products in FP8, as all cards that have them state it. */
#define FP8_OF_HALF    2.0
#define SHARE_OF_BYTES 0.8
#define LAUNCH_NS      5000.0
#define EXPOSED        0.25 /* of copies, or of the kernels that they are beside */
/* Of a message, by NCCL's table of latencies (rings, protocol Simple): NVLink, PCIe, and the network. */
#define LATENCY_NVLINK  3.4e-6
#define LATENCY_PCIE    5.7e-6
#define LATENCY_NETWORK 14e-6
#define DISK            (2 * GB)
#define HOST            (40 * GB)

const tsr__data_sheet *tsr__data_sheet_at(size_t i) {
  return i < sizeof gpus / sizeof *gpus ? &gpus[i] : NULL;
}

const tsr__data_sheet *tsr__data_sheet_of_name(const char *name) {
  assert(name);
  for (size_t i = 0; tsr__data_sheet_at(i); i++)
    if (strcmp(gpus[i].name, name) == 0) return &gpus[i];
  return NULL;
}

uint64_t tsr__data_sheet_workspace_bytes(const tsr__data_sheet *gpu) {
  return tsr__card_memory_of(TSR__CARD_CUBLAS, gpu->capability)->bytes;
}

void tsr__rates_of_sheet(const tsr__data_sheet *gpu, tsr__machine_rates *rates) {
  assert(gpu->full_flops > 0 && gpu->half_flops > 0 && gpu->memory_bytes_per_s > 0);
  *rates = (tsr__machine_rates){
      .band = tsr__band_of_sheet(),
      .launch_ns = LAUNCH_NS,
      .link_bytes_per_s = gpu->link_bytes_per_s,
      .disk_bytes_per_s = DISK,
      .host_bytes_per_s = HOST,
      .peer_bytes_per_s = SHARE_OF_BYTES * gpu->peer_bytes_per_s,
      .peer_latency_s = gpu->peer_bytes_per_s > PEER_PCIE_5 ? LATENCY_NVLINK : LATENCY_PCIE,
      .network_latency_s = LATENCY_NETWORK};
  for (size_t k = 0; k < TSR__KERNEL_COUNT; k++) {
    uint8_t work = tsr__kernel_row_of((tsr__kernel)k)->work;
    bool is_product =
        work == TSR__WORK_PRODUCT || work == TSR__WORK_PAIRS; /* tensor cores have these */
    double half = is_product ? gpu->half_flops : gpu->full_flops;
    for (size_t width = 0; width < TSR__RATE_WIDTHS; width++) {
      double flops = k == TSR__KERNEL_SCALED_MM ? FP8_OF_HALF * gpu->half_flops
                     : width == TSR__RATE_HALF  ? half
                                                : gpu->full_flops;
      rates->kernel[k][width] = (tsr__kernel_rate){
          1e9 / (SHARE_OF_FLOPS * flops), 1e9 / (SHARE_OF_BYTES * gpu->memory_bytes_per_s)};
    }
  }
}

static tsr__rate_width width_of(bool is_half) {
  return is_half ? TSR__RATE_HALF : TSR__RATE_FULL;
}

double tsr__cost_of_run(const tsr__kernel_run *run, const tsr__machine_rates *rates) {
  const tsr__kernel_rate *rate = &rates->kernel[run->kernel][width_of(run->is_half)];
  if (run->space != TSR__SPACE_DEVICE && rates->host_bytes_per_s > 0)
    return (double)run->bytes_moved / rates->host_bytes_per_s;
  double by_flops = rate->ns_per_flop * (double)run->flops;
  double by_bytes = rate->ns_per_byte * (double)run->bytes_moved;
  return ((by_flops > by_bytes ? by_flops : by_bytes) + rates->launch_ns) * 1e-9;
}

double tsr__cost_of_work(const tsr__op_work *work, const tsr__machine_rates *rates) {
  tsr__rate_width width = width_of(work->is_half);
  double by_flops = rates->kernel[TSR__KERNEL_MM][width].ns_per_flop * (double)work->flops;
  double by_bytes = rates->kernel[TSR__KERNEL_ADD][width].ns_per_byte * (double)work->bytes;
  if (!work->flops && !work->bytes) return 0;
  return ((by_flops > by_bytes ? by_flops : by_bytes) + rates->launch_ns) * 1e-9;
}

/* Copies go out and come in at once; a disk is behind the host. */
static double cost_of_moves(const tsr__schedule *schedule, const tsr__machine_rates *rates) {
  double out = 0, in = 0, disk = 0;
  for (size_t i = 0; i < schedule->moves.count; i++) {
    const tsr__slot *from = &schedule->slots.items[schedule->moves.items[i].from];
    const tsr__slot *to = &schedule->slots.items[schedule->moves.items[i].to];
    if (schedule->moves.items[i].is_once || schedule->moves.items[i].kind != TSR__MOVE_COPY)
      continue;
    double bytes = (double)from->bytes;
    if (from->space == TSR__SPACE_DEVICE)
      out += bytes;
    else
      in += bytes;
    if (from->space == TSR__SPACE_DISK || to->space == TSR__SPACE_DISK) disk += bytes;
  }
  double link = out > in ? out : in, slow = 0;
  if (link > 0 && rates->link_bytes_per_s > 0) slow = link / rates->link_bytes_per_s;
  if (disk > 0 && rates->disk_bytes_per_s > 0 && disk / rates->disk_bytes_per_s > slow)
    slow = disk / rates->disk_bytes_per_s;
  return slow;
}

double tsr__cost_kernels(const tsr__cost *cost) {
  double sum = 0;
  for (size_t i = 0; i < TSR__PHASE_COUNT; i++) sum += cost->phase_s[i];
  return sum;
}

double tsr__cost_step(double kernels_s, double copies_s, double exposed) {
  assert(kernels_s >= 0 && copies_s >= 0 && exposed >= 0 && exposed <= 1);
  bool is_long = copies_s > kernels_s;
  return is_long ? copies_s + exposed * kernels_s : kernels_s + exposed * copies_s;
}

/* ---- ranks ---- */

/* Ranks that move something together: as many on each of some machines. */
typedef struct group {
  double inside, machines;
} group;

/* Neighbours of the same replica. */
static group parts_of(const tsr__sharding *s, uint64_t a_machine) {
  uint64_t inside = a_machine && a_machine < s->ranks ? a_machine : s->ranks;
  uint64_t machines = s->ranks / inside;
  assert(machines * inside == s->ranks);
  return (group){(double)inside, (double)machines};
}

/* The ranks that have the same part: one of each replica. */
static group replicas_of(const tsr__sharding *s, uint64_t a_machine) {
  uint64_t count = s->replicas ? s->replicas : 1, inside = a_machine ? a_machine / s->ranks : count;
  if (inside > count) inside = count;
  if (!inside) inside = 1;
  uint64_t machines = count / inside;
  assert(machines * inside == count);
  return (group){(double)inside, (double)machines};
}

/* Seconds for `count` messages of `bytes` each, sent one after another. */
static double cost_of_messages(double count, double bytes, double bytes_per_s, double latency_s) {
  return count * (latency_s + (bytes_per_s > 0 ? bytes / bytes_per_s : 0));
}

/* Seconds for `bytes` to go round a ring inside each machine and a ring between machines, split into `parts` that go round separately. */
static double cost_of_rings(const tsr__machine_rates *r, group g, double bytes, double parts) {
  return cost_of_messages(g.inside - 1, bytes / g.inside, r->peer_bytes_per_s,
                          parts * r->peer_latency_s) +
         cost_of_messages(g.machines - 1, bytes / g.inside / g.machines, r->network_bytes_per_s,
                          parts * r->network_latency_s);
}

/* Of a sum: as many as the room for what arrives requires. */
static double parts_of_sum(const tsr__schedule *s, const tsr__move *move) {
  uint64_t room = s->slots.items[move->staging].bytes, bytes = s->slots.items[move->from].bytes;
  uint64_t parts = move->staging && room && room < bytes ? (bytes + room - 1) / room : 1;
  return (double)parts;
}

double tsr__cost_of_move(const tsr__schedule *s, const tsr__move *move,
                         const tsr__machine_rates *r) {
  const tsr__slot *slots = s->slots.items;
  if (move->kind == TSR__MOVE_COPY || !s->sharding.ranks) return 0;
  group g = parts_of(&s->sharding, r->ranks_a_machine);
  double bytes = (double)slots[move->kind == TSR__MOVE_REDUCE ? move->from : move->to].bytes;
  if (move->kind == TSR__MOVE_GATHER) return cost_of_rings(r, g, bytes, 1);
  if (move->kind == TSR__MOVE_BROADCAST)
    return cost_of_messages(g.inside - 1, bytes, r->peer_bytes_per_s, r->peer_latency_s) +
           cost_of_messages(g.machines - 1, bytes, r->network_bytes_per_s, r->network_latency_s);
  double parts = parts_of_sum(s, move);
  return cost_of_rings(r, g, bytes, parts) +
         2 * cost_of_rings(r, replicas_of(&s->sharding, r->ranks_a_machine),
                           bytes / (double)s->sharding.ranks, parts);
}

enum { OPEN_MOVES = 64 };

/* Where kernels and the link between ranks are in a step, in seconds. */
typedef struct link_clock {
  const tsr__schedule *schedule;
  const tsr__machine_rates *rates; /* NULL: sending takes no time */
  bool is_shared; /* the threads that compute also send: kernels wait for all of it */
  double now_s;   /* of kernels */
  double free_s;  /* when the link has sent all that was started */
  double busy_s, waited_s, stalls_s;
  struct {
    uint32_t move;
    double seconds, started_s, end_s;
  } open[OPEN_MOVES]; /* started and not yet awaited, the oldest first */
  size_t count;
} link_clock;

/* Copies have a link of their own. */
static bool is_sent(const link_clock *c, uint32_t number) {
  const tsr__move *move = &c->schedule->moves.items[number];
  return move->kind != TSR__MOVE_COPY && !move->is_once && c->rates;
}

static void start_move(link_clock *c, uint32_t number) {
  const tsr__move *move = &c->schedule->moves.items[number];
  double seconds = tsr__cost_of_move(c->schedule, move, c->rates);
  assert(c->count < OPEN_MOVES); /* sums are open one at a time, and gathers one section ahead */
  c->free_s = (c->free_s > c->now_s ? c->free_s : c->now_s) + seconds;
  c->busy_s += seconds;
  if (c->count == OPEN_MOVES) return;
  c->open[c->count].move = number;
  c->open[c->count].seconds = seconds;
  c->open[c->count].started_s = c->now_s;
  c->open[c->count++].end_s = c->free_s;
}

/* If no kernel ran since the start, all of the move's time is waited for, in any schedule. */
static void wait_for_move(link_clock *c, uint32_t number) {
  size_t i = 0;
  while (i < c->count && c->open[i].move != number) i++;
  if (i == c->count) return;
  double stall_s = c->is_shared ? c->open[i].seconds : c->open[i].end_s - c->now_s;
  bool is_waited = c->is_shared || c->open[i].started_s >= c->now_s;
  if (is_waited) c->waited_s += c->open[i].seconds;
  if (stall_s > 0) c->now_s += stall_s;
  if (stall_s > 0) c->stalls_s += stall_s;
  for (c->count--; i < c->count; i++) c->open[i] = c->open[i + 1];
}

/* The ops of which only the work is known. Returns their seconds. */
static double add_work(const tsr__schedule *schedule, const tsr__machine_rates *rates,
                       tsr__cost *cost) {
  double sum = 0;
  for (size_t i = 0; i < schedule->work.count; i++) {
    double seconds = tsr__cost_of_work(&schedule->work.items[i], rates);
    cost->phase_s[schedule->work.items[i].phase] += seconds;
    sum += seconds;
  }
  return sum;
}

static bool has_links(const tsr__schedule *schedule, const tsr__machine_rates *r) {
  return schedule->sharding.ranks && (r->peer_bytes_per_s > 0 || r->network_bytes_per_s > 0 ||
                                      r->peer_latency_s > 0 || r->network_latency_s > 0);
}

tsr__cost tsr__cost_of_schedule(const tsr__schedule *schedule, const tsr__machine_rates *rates) {
  bool is_exposed = rates->is_measured || schedule->waits_for_copies;
  tsr__cost cost = {.copies_s = cost_of_moves(schedule, rates),
                    .exposed = is_exposed ? 1 : EXPOSED};
  link_clock c = {.schedule = schedule,
                  .rates = has_links(schedule, rates) ? rates : NULL,
                  .is_shared = rates->is_measured};
  double kernels_s = add_work(schedule, rates, &cost);
  tsr__phase_kind phase = TSR__PHASE_STEP;
  for (size_t i = 0; schedule->runs.count && i < schedule->instrs.count; i++) {
    const tsr__instr *instr = &schedule->instrs.items[i];
    bool is_move = instr->kind == TSR__INSTR_START || instr->kind == TSR__INSTR_WAIT;
    if (instr->kind == TSR__INSTR_BEGIN) phase = (tsr__phase_kind)instr->subject;
    if (instr->kind == TSR__INSTR_END) phase = TSR__PHASE_STEP;
    if (is_move && is_sent(&c, instr->subject))
      (instr->kind == TSR__INSTR_START ? start_move : wait_for_move)(&c, instr->subject);
    if (instr->kind != TSR__INSTR_RUN) continue;
    const tsr__kernel_run *run = &schedule->runs.items[instr->subject];
    if (run->is_once || tsr__phase_has_rounds(phase)) continue;
    double seconds = tsr__cost_of_run(run, rates);
    cost.phase_s[phase] += seconds;
    kernels_s += seconds;
    c.now_s += seconds;
  }
  cost.links_s = c.busy_s;
  cost.waited_s = c.waited_s;
  cost.stalls_s = c.stalls_s;
  cost.step_s = tsr__cost_step(kernels_s, cost.copies_s, cost.exposed) + cost.stalls_s;
  if (rates->link_bytes_per_s > 0)
    cost.step_s += (double)schedule->waited_bytes / rates->link_bytes_per_s;
  return cost;
}

/* ---- from a run ---- */

typedef struct sums {
  double ns, flops, bytes;
} sums;

/* Products are bound by their operations, everything else by its bytes: one number for each kernel. */
static tsr__kernel_rate rate_of(tsr__kernel kernel, const sums *sum) {
  uint8_t work = tsr__kernel_row_of(kernel)->work;
  bool is_product = work == TSR__WORK_PRODUCT || work == TSR__WORK_PAIRS;
  if (is_product && sum->flops > 0) return (tsr__kernel_rate){sum->ns / sum->flops, 0};
  return (tsr__kernel_rate){0, sum->bytes > 0 ? sum->ns / sum->bytes : 0};
}

static void add(sums *to, const sums *more) {
  to->ns += more->ns;
  to->flops += more->flops;
  to->bytes += more->bytes;
}

/* A run that each step has, its number, and the phase that it is in. */
typedef struct phased_run {
  const tsr__kernel_run *run;
  size_t number;
  tsr__phase_kind phase;
} phased_run;

/* The next run that was timed, from instruction `*at` on; false after the last. `out->phase` must be kept between calls. */
static bool next_run(const tsr__schedule *schedule, size_t *at, phased_run *out) {
  while (*at < schedule->instrs.count) {
    const tsr__instr *instr = &schedule->instrs.items[(*at)++];
    if (instr->kind == TSR__INSTR_BEGIN) out->phase = (tsr__phase_kind)instr->subject;
    if (instr->kind == TSR__INSTR_END) out->phase = TSR__PHASE_STEP;
    if (instr->kind != TSR__INSTR_RUN || tsr__phase_has_rounds(out->phase)) continue;
    out->number = instr->subject;
    out->run = &schedule->runs.items[instr->subject];
    if (!out->run->is_once) return true;
  }
  return false;
}

static tsr__time_band learn(const tsr__schedule *schedule, const uint64_t *run_ns, uint64_t steps,
                            double *steps_s, size_t step_count, const tsr__machine_rates *rates) {
  tsr__band_sample phases[TSR__PHASE_COUNT] = {{0}};
  phased_run r = {.phase = TSR__PHASE_STEP};
  for (size_t at = 0; next_run(schedule, &at, &r);) {
    phases[r.phase].measured_s += (double)run_ns[r.number] * 1e-9 / (double)steps;
    phases[r.phase].predicted_s += tsr__cost_of_run(r.run, rates);
  }
  double step_s = step_count ? tsr__cost_of_schedule(schedule, rates).step_s : 0;
  return tsr__band_learn(TSR__BAND_RATES, phases, TSR__PHASE_COUNT, steps_s, step_count, step_s);
}

void tsr__rates_measure(const tsr__schedule *schedule, const uint64_t *run_ns, uint64_t steps,
                        double *steps_s, size_t step_count, tsr__machine_rates *rates) {
  sums by_kernel[TSR__KERNEL_COUNT][TSR__RATE_WIDTHS] = {{{0}}}, all = {0};
  assert(steps);
  phased_run r = {.phase = TSR__PHASE_STEP};
  for (size_t at = 0; next_run(schedule, &at, &r);) {
    sums one = {(double)run_ns[r.number] / (double)steps, (double)r.run->flops,
                (double)r.run->bytes_moved};
    add(&by_kernel[r.run->kernel][width_of(r.run->is_half)], &one);
    add(&all, &one);
  }
  *rates = (tsr__machine_rates){.is_measured = true};
  for (size_t k = 0; k < TSR__KERNEL_COUNT; k++)
    for (size_t width = 0; width < TSR__RATE_WIDTHS; width++) {
      const sums *sum = &by_kernel[k][width], *other = &by_kernel[k][!width];
      if (sum->ns <= 0) sum = other->ns > 0 ? other : &all;
      rates->kernel[k][width] = rate_of((tsr__kernel)k, sum);
    }
  rates->band = learn(schedule, run_ns, steps, steps_s, step_count, rates);
}
