/* comm_support.h - operations of a communicator, checked from one of its ranks: over threads in test_comm.c, over
 * processes in dist/ranks.c. */
#ifndef TESSERA_TESTS_COMM_SUPPORT_H
#define TESSERA_TESTS_COMM_SUPPORT_H

#include <string.h>

#include "dist/comm.h"
#include "kernels/half.h"

enum { COMM_SHARD = 700, COMM_MOST = 8 };

/* Element i of a rank: of many magnitudes, so that the order of a sum shows. */
static inline float comm_number(uint32_t rank, uint32_t i) {
  uint32_t bits = (i * 2654435761U) ^ (rank * 40503U + 977U) * 2246822519U;
  bits ^= bits >> 13;
  return (float)((int32_t)bits) * ((bits >> 3) % 3 ? 1.0F : 1e-6F);
}

static inline float comm_sum(uint32_t size, uint32_t i) {
  float sum = comm_number(0, i);
  for (uint32_t r = 1; r < size; r++) sum += comm_number(r, i);
  return sum;
}

/* What the ranks of a test have; in static storage of each process or thread. */
typedef struct comm_room {
  float all[COMM_MOST * COMM_SHARD], mine[COMM_SHARD], staging[COMM_MOST * COMM_SHARD];
  uint16_t halves[COMM_MOST * COMM_SHARD], half_sum[COMM_SHARD],
      half_staging[COMM_MOST * COMM_SHARD];
} comm_room;

/* A sum in shards, parts of `staging_count` at a time, in place or not, gathered again: all of the sum. */
static inline bool comm_sums(tsr__comm *g, comm_room *room, uint64_t staging_count, bool in_place) {
  uint32_t size = tsr__comm_size(g), rank = tsr__comm_rank(g), total = size * COMM_SHARD;
  for (uint32_t i = 0; i < total; i++) room->all[i] = comm_number(rank, i);
  float *own = room->all + rank * COMM_SHARD, *to = in_place ? own : room->mine;
  tsr__reduction sum = {room->all, to, room->staging, COMM_SHARD, staging_count, TSR__DTYPE_F32};
  tsr__ticket ticket = tsr__comm_reduce_scatter(g, &sum);
  if (tsr__comm_wait(g, ticket, NULL)) return false;
  ticket = tsr__comm_all_gather(g, to, room->all, sizeof(float) * COMM_SHARD);
  if (tsr__comm_wait(g, ticket, NULL)) return false;
  bool ok = true;
  for (uint32_t i = 0; i < total; i++) ok &= room->all[i] == comm_sum(size, i);
  return ok;
}

/* Numbers of 16 bits are added in fp32, and rounded once. */
static inline bool comm_sums_halves(tsr__comm *g, comm_room *room) {
  uint32_t size = tsr__comm_size(g), rank = tsr__comm_rank(g);
  for (uint32_t i = 0; i < size * COMM_SHARD; i++)
    room->halves[i] = tsr__bf16_of_float(comm_number(rank, i));
  tsr__reduction sum = {room->halves, room->half_sum, room->half_staging,
                        COMM_SHARD,   COMM_SHARD / 3, TSR__DTYPE_BF16};
  if (tsr__comm_wait(g, tsr__comm_reduce_scatter(g, &sum), NULL)) return false;
  bool ok = true;
  for (uint32_t i = 0; i < COMM_SHARD; i++) {
    float expected = 0;
    for (uint32_t r = 0; r < size; r++) {
      float number = tsr__bf16_to_float(tsr__bf16_of_float(comm_number(r, rank * COMM_SHARD + i)));
      expected = r ? expected + number : number;
    }
    ok &= room->half_sum[i] == tsr__bf16_of_float(expected);
  }
  return ok;
}

/* More at a time than a queue holds; each rank is the root in turn. */
static inline bool comm_broadcasts(tsr__comm *g, comm_room *room) {
  uint32_t size = tsr__comm_size(g), rank = tsr__comm_rank(g);
  tsr__ticket last = 0;
  for (uint32_t i = 0; i < 100; i++) {
    room->mine[i] = rank == i % size ? (float)(i + 1) : -1;
    last = tsr__comm_broadcast(g, i % size, &room->mine[i], sizeof(float));
    if (i % 10 == 0) last = tsr__comm_barrier(g);
  }
  bool ok = tsr__comm_wait(g, last, NULL) == 0;
  for (uint32_t i = 0; i < 100; i++) ok &= room->mine[i] == (float)(i + 1);
  return ok;
}

/* For N bytes in all, shards and a gather are 2 N (n-1)/n. */
static inline bool comm_counts(tsr__comm *g, comm_room *room) {
  uint64_t others = tsr__comm_size(g) - 1, before = tsr__comm_sent_bytes(g);
  bool ok = comm_sums(g, room, COMM_SHARD, true);
  return ok && tsr__comm_sent_bytes(g) - before == 2 * others * COMM_SHARD * sizeof(float);
}

#endif
