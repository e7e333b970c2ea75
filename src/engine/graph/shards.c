/* shards.c - units of parameters that are spread over ranks, and the moves that all ranks make together.
 *
 *   unit    | weight ......... | bias .. | weight ........ | bias . |
 *   pieces  0                  64 k      64 l              64 m     elements: a multiple of 64 for each rank
 *   parts   | rank 0    | rank 1    | rank 2    | rank 3    |
 *
 * A part may begin anywhere within a parameter, at a multiple of 64 elements. From stage 1 on the parameters of a
 * unit are views of one slot, so that a rank's part is a view, too; in stage 3 that slot is there only while runs use
 * it (spaces.c), and the part is a slot of its own. */
#include <assert.h>

#include "graph/tape.h"

enum { ALIGNMENT = 64 }; /* elements */

static uint64_t rounded_up(uint64_t count, uint64_t to) {
  return (count + to - 1) / to * to;
}

void tsr__unit_add(tsr__tape *tape, size_t parameter, uint32_t unit, bool is_block) {
  tsr__sharding *s = &tape->schedule.sharding;
  uint64_t count =
      tsr__shape_elements(tsr__tensor_shape(tape, tape->schedule.parameters.items[parameter]));
  assert(s->pieces.count == parameter && s->ranks);
  while (s->units.count <= unit && !tape->status)
    if (!TSR__VECTOR_PUSH(&s->units, (tsr__unit){0})) tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  if (tape->status) return;
  tsr__unit *u = &s->units.items[unit];
  tsr__unit_piece piece = {unit, u->elements, count};
  if (!TSR__VECTOR_PUSH(&s->pieces, piece)) tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  u->elements += rounded_up(count, ALIGNMENT);
  if (!u->parameter_count++) u->first = (uint32_t)parameter;
  u->end = (uint32_t)parameter + 1;
  u->is_block = is_block;
}

/* The unit's parameters become views of one slot. */
static void join(tsr__tape *tape, uint32_t unit) {
  tsr__sharding *s = &tape->schedule.sharding;
  tsr__slot joined = {.category = TSR_CATEGORY_PARAMETER, .is_static = s->stage < 3};
  tsr__tape_slot state = {.is_of_block = s->units.items[unit].is_block};
  s->units.items[unit].slot = (uint32_t)tape->schedule.slots.count;
  for (size_t i = s->units.items[unit].first; i < s->units.items[unit].end; i++) {
    if (s->pieces.items[i].unit != unit) continue;
    tsr__tape_tensor *t = tsr__tensor_at(tape, tape->schedule.parameters.items[i]);
    tsr__slot *own = &tape->schedule.slots.items[t->slot];
    assert(tape->slots.items[t->slot].tensors == 1 && own->is_static &&
           tsr__layout_is_dense(t->layout));
    joined.bytes = s->units.items[unit].elements * tsr__dtype_bytes((tsr__dtype)t->dtype);
    joined.space = own->space;
    state.tensors++;
    *own = (tsr__slot){.category = TSR_CATEGORY_PARAMETER};
    tape->slots.items[t->slot] = (tsr__tape_slot){.tensors = 0};
    t->slot = s->units.items[unit].slot;
    t->layout.offset = s->pieces.items[i].first;
  }
  (void)tsr__tape_slot_add(tape, &joined, &state);
}

/* This rank's part as a view of the unit's slot; in stage 3 in a slot of its own. */
static void own_part(tsr__tape *tape, uint32_t unit, tsr__dtype dtype) {
  tsr__sharding *s = &tape->schedule.sharding;
  uint32_t slot = s->units.items[unit].slot;
  tsr__slot *joined = &tape->schedule.slots.items[slot];
  uint64_t count = tsr__unit_part(&tape->schedule, unit);
  tsr__tape_tensor part = {.layout = tsr__layout_dense(TSR__SHAPE(count)),
                           .bytes = count * tsr__dtype_bytes(dtype),
                           .slot = slot,
                           .holders = 1,
                           .op = TSR_NONE,
                           .dtype = (uint8_t)dtype};
  tsr__slot own = {.bytes = part.bytes,
                   .category = TSR_CATEGORY_PARAMETER,
                   .space = joined->space,
                   .is_static = true};
  if (s->stage < 3) {
    tape->slots.items[slot].tensors++;
    part.layout.offset = s->rank * count;
  } else {
    joined->space = TSR__SPACE_DEVICE;
    part.slot = tsr__tape_slot_add(tape, &own, &(tsr__tape_slot){.tensors = 1});
    tape->slots.items[slot].shard = part.slot;
  }
  if (!TSR__VECTOR_PUSH(&tape->tensors, part) ||
      !TSR__VECTOR_PUSH(&s->owned, (tsr__tensor_id)tape->tensors.count - 1))
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
}

void tsr__units_finish(tsr__tape *tape) {
  tsr__sharding *s = &tape->schedule.sharding;
  assert(tape->status || s->pieces.count == tape->schedule.parameters.count);
  for (uint32_t u = 0; u < s->units.count && !tape->status; u++) {
    assert(s->units.items[u].parameter_count);
    s->units.items[u].elements =
        rounded_up(s->units.items[u].elements, (uint64_t)ALIGNMENT * s->ranks);
    if (!s->stage) continue;
    join(tape, u);
    if (!tape->status)
      own_part(tape, u, tsr__tensor_dtype(tape, tape->schedule.parameters.items[0]));
  }
}

/* ---- moves ---- */

uint32_t tsr__tape_start(tsr__tape *tape, const tsr__move *move) {
  assert(tape->schedule.sharding.ranks && move->kind != TSR__MOVE_COPY);
  if (tape->status) return 0;
  if (!TSR__VECTOR_PUSH(&tape->schedule.moves, *move)) {
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
    return 0;
  }
  uint32_t number = (uint32_t)tape->schedule.moves.count - 1;
  tsr__tape_emit(tape, TSR__INSTR_START, number, TSR_NONE);
  return number;
}

void tsr__tape_wait(tsr__tape *tape, uint32_t move) {
  if (tape->status) return;
  assert(move < tape->schedule.moves.count);
  tsr__tape_emit(tape, TSR__INSTR_WAIT, move, TSR_NONE);
}
