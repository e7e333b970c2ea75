/* cost.h - how long a step takes: what each kernel does, over what a machine does in a second.
 *
 *   a run     the longer of its operations and its bytes, and a launch
 *   a step    the sum of its runs, which come one after another; copies go beside them, and hide in part: what is
 *             computed and what is copied next wait for one another. A quarter of the shorter is taken as not hidden on
 *             a card, and all of it on processors, whose threads do both (docs/benchmarks.md)
 *   ranks     what they send goes over a link of its own, one move after another, from the instruction that starts it;
 *             at the instruction that waits for it, kernels wait until it has arrived
 *
 *     kernels   | block 3 | block 2 |wait| block 1 | ...
 *     link                | sum of 3 ....| sum of 2 ....|
 *
 * Rates come from a vendor's data sheet and a share of it that programs reach (an estimate), or from a run that
 * was measured (tsr__rates_measure): then each kernel has its own. What other processes or the clock of a
 * processor do to a step is not in them. */
#ifndef TSR_EXEC_COST_H
#define TSR_EXEC_COST_H

#include "exec/band.h"
#include "graph/schedule.h"

/* Nanoseconds per operation and per byte of one kernel. */
typedef struct tsr__kernel_rate {
  double ns_per_flop, ns_per_byte;
} tsr__kernel_rate;

/* Of operands whose smallest type has 32 bits, and 16. */
typedef enum tsr__rate_width { TSR__RATE_FULL, TSR__RATE_HALF, TSR__RATE_WIDTHS } tsr__rate_width;

typedef struct tsr__machine_rates {
  tsr__kernel_rate kernel[TSR__KERNEL_COUNT][TSR__RATE_WIDTHS];
  double launch_ns;
  double link_bytes_per_s, disk_bytes_per_s; /* copies to the host and to a disk, one way */
  double peer_bytes_per_s; /* what a rank sends to others of its machine; 0: that takes no time */
  double peer_latency_s;   /* of each message, besides its bytes */
  double network_bytes_per_s, network_latency_s; /* the same to other machines */
  uint64_t ranks_a_machine;                      /* 0: all ranks are on one machine */
  double
      host_bytes_per_s; /* what the host's processors read and write: an optimizer's step there */
  bool is_measured;
  tsr__time_band band; /* how far real times may be from those of these rates */
} tsr__machine_rates;

/* A GPU, by its data sheet. */
typedef struct tsr__data_sheet {
  const char *name; /* as users type it */
  const char *title;
  double full_flops, half_flops; /* per second: fp32 outside of tensor cores, and 16 bits in them */
  double memory_bytes_per_s, link_bytes_per_s;
  uint64_t memory_bytes;        /* of the card */
  double visible_bytes;         /* what its driver reports to programs: the least seen (card.h) */
  uint8_t capability;           /* 80: compute capability 8.0 */
  uint16_t processors, threads; /* multiprocessors, and the most threads of each */
  double
      peer_bytes_per_s; /* to other cards of its machine: one direction of all its NVLinks, or of PCIe */
  const char *peer_source; /* where that is from, and of when */
} tsr__data_sheet;

/* What cuBLAS allocates on it for each thread's handle (plan/card_memory.h). */
uint64_t tsr__data_sheet_workspace_bytes(const tsr__data_sheet *gpu);

/* The i-th card, or NULL past the last; and the one with this name, or NULL. */
const tsr__data_sheet *tsr__data_sheet_at(size_t i);
const tsr__data_sheet *tsr__data_sheet_of_name(const char *name);

/* What programs reach of a card's numbers: 60 % of its operations in products, 80 % of its bandwidth and of its link to
 * other cards, and 5 us between two kernels. The host reads and writes 40 GB in a second, its disk 2. */
void tsr__rates_of_sheet(const tsr__data_sheet *gpu, tsr__machine_rates *rates);

/* From a run of a schedule: `run_ns` has the time of each of its runs, over `steps` steps. Kernels that did not run
 * get the mean of those that did. `steps_s` are the times of single steps, which are sorted: from them, and from how well the rates explain
 * each phase, the band of errors is learned. O(runs). */
void tsr__rates_measure(const tsr__schedule *schedule, const uint64_t *run_ns, uint64_t steps,
                        double *steps_s, size_t step_count, tsr__machine_rates *rates);

/* Seconds of a run. */
double tsr__cost_of_run(const tsr__kernel_run *run, const tsr__machine_rates *rates);

/* Seconds that ranks take for a move, if nothing else uses their links. Ranks of a machine are neighbours. Each kind is a ring
 * inside of machines and one between them (docs/plan.md has the formulas and where they come from):
 *
 *   gather      first each rank gets what the ranks in its place on the other machines have, then what its neighbours have
 *   reduction   the other way round; if there are replicas, the sum over them follows: a reduction and a gather
 *   broadcast   the root sends to one rank of each other machine, and each of these to its neighbours
 *
 * 0 for a copy. */
double tsr__cost_of_move(const tsr__schedule *schedule, const tsr__move *move,
                         const tsr__machine_rates *rates);

/* Seconds of an op of which only its operations and bytes are known: those of a product if it has operations. 0 for an op
 * that has neither. */
double tsr__cost_of_work(const tsr__op_work *work, const tsr__machine_rates *rates);

typedef struct tsr__cost {
  double phase_s[TSR__PHASE_COUNT]; /* of kernels */
  double copies_s; /* from and to other memory, both ways at once, beside the kernels */
  double
      exposed; /* the part of the shorter of kernels and copies that is not hidden by the longer */
  double
      links_s; /* that ranks send, one move after another, in parallel with kernels if the schedule has any in between */
  double
      waited_s; /* of links_s, what no kernel can hide: the schedule waits for a move that it has just started */
  double stalls_s; /* that kernels wait for ranks; at least waited_s, at most links_s */
  double step_s;   /* tsr__cost_step of kernels and copies, and stalls_s */
} tsr__cost;

/* Seconds of all kernels of a step. */
double tsr__cost_kernels(const tsr__cost *cost);
/* Seconds of a step: the longer of kernels and copies, and the exposed part of the shorter. */
double tsr__cost_step(double kernels_s, double copies_s, double exposed);

/* The cost of a step after the first. O(instructions + work). */
tsr__cost tsr__cost_of_schedule(const tsr__schedule *schedule, const tsr__machine_rates *rates);

#endif
