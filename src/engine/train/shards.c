/* shards.c - see shards.h. */
#include "train/shards.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"

enum { ROOM_BYTES = 1 << 20 }; /* the memory that a rank needs to help in saving */

typedef enum order { END, GATHER } order;

/* A command that rank 0 sends to the others. */
typedef struct command {
  uint32_t order, kind, unit, goes_on;
} command;

void tsr__shards_clear(const tsr__schedule *schedule, const tsr__executor *executor) {
  for (size_t u = 0; u < schedule->sharding.owned.count; u++) {
    tsr__kernel_tensor part = tsr__executor_tensor(executor, schedule->sharding.owned.items[u]);
    uint32_t slot = tsr__schedule_tensor(schedule, schedule->sharding.owned.items[u])->slot;
    assert(part.data);
    memset(part.data, 0, (size_t)schedule->slots.items[slot].bytes);
  }
}

void tsr__shards_put(const tsr__schedule *schedule, size_t parameter,
                     const tsr__kernel_tensor *whole, const tsr__kernel_tensor *part) {
  const tsr__unit_piece *piece = &schedule->sharding.pieces.items[parameter];
  uint64_t count = tsr__unit_part(schedule, piece->unit), begin = count * schedule->sharding.rank;
  uint64_t first = piece->first > begin ? piece->first : begin;
  uint64_t end = piece->first + piece->count, each = tsr__dtype_bytes(whole->dtype);
  if (end > begin + count) end = begin + count;
  if (first >= end) return;
  assert(whole->dtype == part->dtype);
  memcpy((char *)part->data + (part->layout.offset + first - begin) * each,
         (const char *)whole->data + (whole->layout.offset + first - piece->first) * each,
         (size_t)((end - first) * each));
}

static tsr__tensor_id tensor_of(const tsr__schedule *schedule, tsr__kept kind, uint32_t unit) {
  const tsr__optimizer_state *state =
      unit < schedule->states.count ? &schedule->states.items[unit] : NULL;
  switch (kind) {
  case TSR__KEPT_PARAMETER: return tsr__schedule_updated(schedule, unit);
  case TSR__KEPT_FIRST: return state ? state->first : 0;
  case TSR__KEPT_SECOND: return state ? state->second : 0;
  case TSR__KEPT_MASTER: return state ? state->master : 0;
  case TSR__KEPT_COUNT: break;
  }
  return 0;
}

/* The number of elements of a part to send at once, so that the pieces of all ranks fit into ROOM_BYTES. */
static uint64_t piece_of(uint64_t part, uint64_t each, uint64_t ranks) {
  uint64_t most = ROOM_BYTES / (each * ranks);
  if (!most) most = 1;
  return part < most ? part : most;
}

/* Copy one piece of each rank's part to its place in the unit. */
static void put_pieces(char *unit, const char *pieces, uint64_t ranks, uint64_t part_bytes,
                       uint64_t at_bytes, uint64_t size_bytes) {
  assert(at_bytes + size_bytes <= part_bytes);
  for (uint64_t r = 0; r < ranks; r++)
    memcpy(unit + r * part_bytes + at_bytes, pieces + r * size_bytes, (size_t)size_bytes);
}

/* Gather all ranks' parts of a unit into `to` on rank 0. All ranks call this, the others with NULL: they need little memory, because
 * parts are sent piece by piece. */
static int gather(tsr__comm *comm, const tsr__schedule *schedule, const tsr__executor *executor,
                  tsr__kept kind, uint32_t unit, char *to, tsr_error *error) {
  tsr__kernel_tensor part = tsr__executor_tensor(executor, tensor_of(schedule, kind, unit));
  uint64_t each = tsr__dtype_bytes(part.dtype), ranks = schedule->sharding.ranks;
  uint64_t count = tsr__unit_part(schedule, unit), most = piece_of(count, each, ranks), some;
  assert(part.data && (to != NULL) == (tsr__comm_rank(comm) == 0));
  const char *mine = (const char *)part.data + part.layout.offset * each;
  char *pieces = tsr__calloc((size_t)ranks, (size_t)(most * each));
  int status = pieces ? 0 : tsr__fail_memory(error);
  for (uint64_t at = 0; status == 0 && at < count; at += some) {
    some = count - at < most ? count - at : most;
    status = tsr__comm_wait(comm, tsr__comm_all_gather(comm, mine + at * each, pieces, some * each),
                            error);
    if (status == 0 && to) put_pieces(to, pieces, ranks, count * each, at * each, some * each);
  }
  tsr__free(pieces);
  return status;
}

/* Room for a unit of this kind. Weights are written apart from the optimizer's state, so either is held, never both. */
static char *room_for(tsr__gathered *gathered, const tsr__schedule *schedule, tsr__kept kind,
                      uint32_t unit, uint64_t each) {
  bool is_weight = kind == TSR__KEPT_PARAMETER;
  for (size_t i = 0; i < TSR__KEPT_COUNT; i++) {
    if (i != (size_t)kind && (i == TSR__KEPT_PARAMETER) == is_weight) continue;
    tsr__free(gathered->data[i]);
    gathered->data[i] = NULL;
  }
  size_t size = (size_t)(tsr__unit_part(schedule, unit) * each);
  gathered->data[kind] = tsr__calloc((size_t)schedule->sharding.ranks, size);
  gathered->unit[kind] = unit;
  return gathered->data[kind];
}

static int send(tsr__comm *comm, command *c, tsr_error *error) {
  return tsr__comm_wait(comm, tsr__comm_broadcast(comm, 0, c, sizeof *c), error);
}

int tsr__shards_read(tsr__comm *comm, const tsr__schedule *schedule, const tsr__executor *executor,
                     tsr__kept kind, size_t parameter, tsr__gathered *gathered, const void **out,
                     tsr_error *error) {
  const tsr__unit_piece *piece = &schedule->sharding.pieces.items[parameter];
  assert(tsr__comm_rank(comm) == 0 && parameter < schedule->sharding.pieces.count);
  uint64_t each =
      tsr__dtype_bytes(tsr__schedule_dtype(schedule, tensor_of(schedule, kind, piece->unit)));
  if (!gathered->data[kind] || gathered->unit[kind] != piece->unit) {
    command c = {.order = GATHER, .kind = kind, .unit = piece->unit};
    char *room = room_for(gathered, schedule, kind, piece->unit, each);
    int status = room ? send(comm, &c, error) : tsr__fail_memory(error);
    if (status == 0) status = gather(comm, schedule, executor, kind, piece->unit, room, error);
    if (status) return status;
  }
  *out = gathered->data[kind] + piece->first * each;
  return 0;
}

int tsr__shards_end(tsr__comm *comm, bool goes_on, tsr_error *error) {
  command c = {.order = END, .goes_on = goes_on};
  return send(comm, &c, error);
}

int tsr__shards_serve(tsr__comm *comm, const tsr__schedule *schedule, const tsr__executor *executor,
                      bool *goes_on, tsr_error *error) {
  command c = {0};
  int status;
  do {
    status = send(comm, &c, error);
    if (status == 0 && c.order == GATHER)
      status = gather(comm, schedule, executor, (tsr__kept)c.kind, c.unit, NULL, error);
  } while (status == 0 && c.order == GATHER);
  *goes_on = c.goes_on;
  return status;
}

void tsr__gathered_release(tsr__gathered *gathered) {
  for (size_t i = 0; i < TSR__KEPT_COUNT; i++) tsr__free(gathered->data[i]);
  *gathered = (tsr__gathered){0};
}
