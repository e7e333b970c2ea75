/* schedule.c - see schedule.h. */
#include "graph/schedule.h"

void tsr__schedule_release(tsr__schedule *s) {
  TSR__VECTOR_FREE(&s->slots);
  TSR__VECTOR_FREE(&s->instrs);
  TSR__VECTOR_FREE(&s->tensors);
  TSR__VECTOR_FREE(&s->ops);
  TSR__VECTOR_FREE(&s->runs);
  TSR__VECTOR_FREE(&s->operands);
  TSR__VECTOR_FREE(&s->scalars);
  TSR__VECTOR_FREE(&s->moves);
  TSR__VECTOR_FREE(&s->work);
  TSR__VECTOR_FREE(&s->saves);
  TSR__VECTOR_FREE(&s->unheld);
  TSR__VECTOR_FREE(&s->parameters);
  TSR__VECTOR_FREE(&s->states);
  TSR__VECTOR_FREE(&s->blocks);
  TSR__VECTOR_FREE(&s->sharding.units);
  TSR__VECTOR_FREE(&s->sharding.pieces);
  TSR__VECTOR_FREE(&s->sharding.owned);
}

const char *tsr__schedule_op_name(const tsr__schedule *s, uint32_t op, uint32_t stack) {
  if (op != TSR_NONE) return s->ops.items[op].name;
  return s->labels.op && stack != TSR_NONE ? s->labels.op(s->labels.context, stack) : "";
}

/* ---- what ranks send ---- */

/* A part is divided among replicas, each of which sends what it has to the others, and then its sum. */
uint64_t tsr__move_replicated_bytes(const tsr__schedule *s, const tsr__move *move) {
  uint64_t replicas = s->sharding.replicas;
  if (move->kind != TSR__MOVE_REDUCE || replicas < 2) return 0;
  return s->slots.items[move->from].bytes / s->sharding.ranks * 2 * (replicas - 1) / replicas;
}

uint64_t tsr__move_sent_bytes(const tsr__schedule *s, const tsr__move *move) {
  uint64_t ranks = s->sharding.ranks;
  const tsr__slot *slots = s->slots.items;
  switch ((tsr__move_kind)move->kind) {
  case TSR__MOVE_GATHER: return slots[move->to].bytes / ranks * (ranks - 1);
  case TSR__MOVE_REDUCE:
    return slots[move->from].bytes / ranks * (ranks - 1) + tsr__move_replicated_bytes(s, move);
  case TSR__MOVE_BROADCAST: return slots[move->to].bytes * (ranks - 1);
  case TSR__MOVE_COPY:
  case TSR__MOVE_KIND_COUNT: break;
  }
  return 0;
}

uint64_t tsr__schedule_sent_bytes(const tsr__schedule *s) {
  uint64_t sum = 0;
  for (size_t i = 0; i < s->moves.count; i++) {
    const tsr__move *m = &s->moves.items[i];
    bool is_others = m->kind == TSR__MOVE_BROADCAST && m->root != s->sharding.rank;
    if (!m->is_once && !m->is_evaluation && !is_others) sum += tsr__move_sent_bytes(s, m);
  }
  return sum;
}
