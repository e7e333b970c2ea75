/* check.c - the invariants of a finished tape. Debug builds check every schedule that is built.
 *
 * Slots, along the schedule:
 *
 *   static                 exists throughout: no instruction names it
 *   NEW ... DROP           exists between them, once each
 *   NEW ..... (carried)    exists to the end; the next step's DROP_PREV frees it, wherever that is
 *   NEW ..... (leaked)     exists for good, and the next step makes another one
 *   NEW_ONCE ............  exists from there on, for good
 *
 * A kernel runs on slots that exist, in its own space. A move starts once and is waited for once. Phases nest. At the
 * end no variable is left, no gradient is on its way, no op waits for one, and each slot's count equals the number of
 * its live tensors. */
#include <string.h>

#include "graph/tape.h"

#ifdef NDEBUG

int tsr__tape_check(const tsr__tape *tape) {
  (void)tape;
  return 0;
}

#else

typedef enum slot_state { ABSENT, LIVE, FOREVER, DROPPED } slot_state;

typedef struct checker {
  const tsr__tape *tape;
  uint8_t *state;      /* slot_state, by slot */
  uint8_t *prev_drops; /* DROP_PREVs, by slot */
  uint32_t *alive;     /* tensors with holders, by slot */
  bool *is_flying;     /* by move */
  uint32_t phases[TSR__TAPE_PHASE_COUNT];
  size_t depth;
} checker;

static bool exists(const checker *c, tsr__tensor_id tensor) {
  uint32_t slot = tsr__tensor_at(c->tape, tensor)->slot;
  assert(slot < c->tape->slots.count);
  return !tensor || c->state[slot] == LIVE || c->state[slot] == FOREVER;
}

static void check_move(checker *c, uint32_t index, bool is_start) {
  assert(index < c->tape->moves.count);
  const tsr__tape_move *move = &c->tape->moves.items[index];
  assert(c->state[move->from] == LIVE || c->state[move->from] == FOREVER);
  assert(c->state[move->to] == LIVE || c->state[move->to] == FOREVER);
  assert(!move->staging || c->state[move->staging] == LIVE);
  assert(is_start ? !c->is_flying[index] : c->is_flying[index]);
  c->is_flying[index] = is_start;
  (void)move;
}

static void check_run(const checker *c, uint32_t index) {
  assert(index < c->tape->runs.count);
  const tsr__kernel_run *run = &c->tape->runs.items[index];
  const tsr__tensor_id *operands = tsr__run_reads(c->tape, run);
  assert(run->op == TSR_NONE || run->op < c->tape->ops.count);
  for (int i = 0; i < run->read_count + run->write_count + run->scratch_count; i++)
    assert(exists(c, operands[i]) &&
           (!operands[i] ||
            c->tape->slots.items[tsr__tensor_at(c->tape, operands[i])->slot].space == run->space));
  (void)operands;
}

static void check_slot(checker *c, tsr__tape_instr_kind kind, uint32_t slot) {
  assert(slot && slot < c->tape->slots.count && !c->tape->slots.items[slot].is_static);
  bool is_carried = c->tape->slots.items[slot].is_carried;
  if (kind == TSR__INSTR_NEW || kind == TSR__INSTR_NEW_ONCE) {
    assert(c->state[slot] == ABSENT);
    c->state[slot] = kind == TSR__INSTR_NEW ? LIVE : FOREVER;
  } else if (kind == TSR__INSTR_DROP) {
    assert(c->state[slot] == LIVE && !is_carried);
    c->state[slot] = DROPPED;
  } else {
    assert(kind == TSR__INSTR_DROP_PREV && is_carried && !c->prev_drops[slot]);
    c->prev_drops[slot]++;
  }
}

static void check_instr(checker *c, const tsr__tape_instr *instr) {
  switch ((tsr__tape_instr_kind)instr->kind) {
  case TSR__INSTR_NEW:
  case TSR__INSTR_NEW_ONCE:
  case TSR__INSTR_DROP:
  case TSR__INSTR_DROP_PREV:
    check_slot(c, (tsr__tape_instr_kind)instr->kind, instr->subject);
    break;
  case TSR__INSTR_RUN: check_run(c, instr->subject); break;
  case TSR__INSTR_START:
  case TSR__INSTR_WAIT: check_move(c, instr->subject, instr->kind == TSR__INSTR_START); break;
  case TSR__INSTR_OP: assert(instr->subject < c->tape->ops.count); break;
  case TSR__INSTR_BEGIN:
    assert(instr->subject < TSR__TAPE_PHASE_COUNT && c->depth < TSR__TAPE_PHASE_COUNT);
    c->phases[c->depth++] = instr->subject;
    break;
  case TSR__INSTR_END:
    assert(c->depth && c->phases[c->depth - 1] == instr->subject);
    c->depth--;
    break;
  }
}

static void check_leftovers(checker *c) {
  const tsr__tape *t = c->tape;
  assert(!t->scopes.count && !t->locals.count && !t->casts.count);
  assert(!t->ready.count && !t->ready_leaves.count && !t->recomputing);
  assert(t->grad_enabled && !t->is_backward && !t->is_autocast && t->block == TSR_NONE);
  for (size_t i = 0; i < t->ops.count; i++) assert(!t->ops.items[i].expected);
  for (size_t i = 0; i < t->moves.count; i++) assert(!c->is_flying[i]);
  for (size_t i = 1; i < t->tensors.count; i++) {
    const tsr__tape_tensor *tensor = &t->tensors.items[i];
    assert(!tensor->incoming && !tensor->through && !tensor->expected);
    if (tensor->holders) c->alive[tensor->slot]++;
  }
  for (size_t i = 1; i < t->slots.count; i++) {
    const tsr__tape_slot *slot = &t->slots.items[i];
    assert(c->alive[i] == slot->tensors);
    assert(c->prev_drops[i] == slot->is_carried);
    assert(slot->category < TSR_CATEGORY_COUNT);
    if (c->state[i] == LIVE) assert((slot->is_carried || slot->is_leaked) && slot->tensors);
    if (c->state[i] == DROPPED) assert(!slot->tensors);
  }
}

int tsr__tape_check(const tsr__tape *tape) {
  size_t slots = tape->slots.count;
  checker c = {.tape = tape,
               .state = TSR__NEW_ARRAY(uint8_t, slots),
               .prev_drops = TSR__NEW_ARRAY(uint8_t, slots),
               .alive = TSR__NEW_ARRAY(uint32_t, slots),
               .is_flying = TSR__NEW_ARRAY(bool, tape->moves.count + 1)};
  int status = c.state && c.prev_drops && c.alive && c.is_flying ? 0 : TSR_ERROR_MEMORY;
  for (size_t i = 0; status == 0 && i < slots; i++)
    if (tape->slots.items[i].is_static) c.state[i] = FOREVER;
  for (size_t i = 0; status == 0 && i < tape->schedule.count; i++)
    check_instr(&c, &tape->schedule.items[i]);
  if (status == 0) {
    assert(!c.depth);
    check_leftovers(&c);
  }
  tsr__free(c.state);
  tsr__free(c.prev_drops);
  tsr__free(c.alive);
  tsr__free(c.is_flying);
  return status;
}

#endif
