/* shards.c - see shards.h. */
#include "train/shards.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"

typedef enum order { END, GATHER } order;

/* What rank 0 says. */
typedef struct command {
  uint32_t order, kind, unit, goes_on;
} command;

void tsr__shards_clear(const tsr__tape *tape, const tsr__executor *executor) {
  for (size_t u = 0; u < tape->sharding.owned.count; u++) {
    tsr__kernel_tensor part = tsr__executor_tensor(executor, tape->sharding.owned.items[u]);
    uint32_t slot = tsr__tensor_at(tape, tape->sharding.owned.items[u])->slot;
    assert(part.data);
    memset(part.data, 0, (size_t)tape->slots.items[slot].bytes);
  }
}

void tsr__shards_put(const tsr__tape *tape, size_t parameter, const tsr__kernel_tensor *whole,
                     const tsr__kernel_tensor *part) {
  const tsr__tape_piece *piece = &tape->sharding.pieces.items[parameter];
  uint64_t count = tsr__unit_part(tape, piece->unit), begin = count * tape->sharding.rank;
  uint64_t first = piece->first > begin ? piece->first : begin;
  uint64_t end = piece->first + piece->count, each = tsr__dtype_bytes(whole->dtype);
  if (end > begin + count) end = begin + count;
  if (first >= end) return;
  assert(whole->dtype == part->dtype);
  memcpy((char *)part->data + (part->layout.offset + first - begin) * each,
         (const char *)whole->data + (whole->layout.offset + first - piece->first) * each,
         (size_t)((end - first) * each));
}

static tsr__tensor_id tensor_of(const tsr__tape *tape, tsr__kept kind, uint32_t unit) {
  const tsr__optimizer_state *state = unit < tape->states.count ? &tape->states.items[unit] : NULL;
  switch (kind) {
  case TSR__KEPT_PARAMETER: return tsr__tape_updated(tape, unit);
  case TSR__KEPT_FIRST: return state ? state->first : 0;
  case TSR__KEPT_SECOND: return state ? state->second : 0;
  case TSR__KEPT_MASTER: return state ? state->master : 0;
  case TSR__KEPT_COUNT: break;
  }
  return 0;
}

/* All ranks' parts of a unit, which all of them call. */
static int gather(tsr__comm *comm, const tsr__tape *tape, const tsr__executor *executor,
                  tsr__kept kind, uint32_t unit, tsr__gathered *to, tsr_error *error) {
  tsr__kernel_tensor part = tsr__executor_tensor(executor, tensor_of(tape, kind, unit));
  uint64_t each = tsr__dtype_bytes(part.dtype), size = tsr__unit_part(tape, unit) * each;
  assert(part.data);
  tsr__free(to->data[kind]);
  to->data[kind] = tsr__calloc((size_t)tape->sharding.ranks, (size_t)size);
  to->unit[kind] = unit;
  if (!to->data[kind]) return tsr__fail_memory(error);
  const char *mine = (const char *)part.data + part.layout.offset * each;
  return tsr__comm_wait(comm, tsr__comm_all_gather(comm, mine, to->data[kind], size), error);
}

static int send(tsr__comm *comm, command *c, tsr_error *error) {
  return tsr__comm_wait(comm, tsr__comm_broadcast(comm, 0, c, sizeof *c), error);
}

int tsr__shards_read(tsr__comm *comm, const tsr__tape *tape, const tsr__executor *executor,
                     tsr__kept kind, size_t parameter, tsr__gathered *gathered, const void **out,
                     tsr_error *error) {
  const tsr__tape_piece *piece = &tape->sharding.pieces.items[parameter];
  assert(tsr__comm_rank(comm) == 0 && parameter < tape->sharding.pieces.count);
  if (!gathered->data[kind] || gathered->unit[kind] != piece->unit) {
    command c = {.order = GATHER, .kind = kind, .unit = piece->unit};
    int status = send(comm, &c, error);
    if (status == 0) status = gather(comm, tape, executor, kind, piece->unit, gathered, error);
    if (status) return status;
  }
  tsr__dtype dtype = tsr__tensor_dtype(tape, tensor_of(tape, kind, piece->unit));
  *out = gathered->data[kind] + piece->first * tsr__dtype_bytes(dtype);
  return 0;
}

int tsr__shards_end(tsr__comm *comm, bool goes_on, tsr_error *error) {
  command c = {.order = END, .goes_on = goes_on};
  return send(comm, &c, error);
}

int tsr__shards_serve(tsr__comm *comm, const tsr__tape *tape, const tsr__executor *executor,
                      bool *goes_on, tsr_error *error) {
  tsr__gathered gathered = {0};
  command c = {0};
  int status;
  do {
    status = send(comm, &c, error);
    if (status == 0 && c.order == GATHER)
      status = gather(comm, tape, executor, (tsr__kept)c.kind, c.unit, &gathered, error);
  } while (status == 0 && c.order == GATHER);
  *goes_on = c.goes_on;
  tsr__gathered_release(&gathered);
  return status;
}

void tsr__gathered_release(tsr__gathered *gathered) {
  for (size_t i = 0; i < TSR__KEPT_COUNT; i++) tsr__free(gathered->data[i]);
  *gathered = (tsr__gathered){0};
}
