/* check.c - the invariants of a finished schedule, and of the recorder that made it. Debug builds check every schedule
 * that is built.
 *
 * Slots, along the schedule:
 *
 *   static                 exists throughout: no instruction names it
 *   NEW ... DROP           exists between them, once each
 *   NEW ..... (carried)    exists to the end; the next step's DROP_PREV frees it, wherever that is
 *   NEW ..... (leaked)     exists for good, and the next step makes another one
 *   NEW_ONCE ............  exists from there on, for good
 *
 * A kernel runs on slots that exist, in its own space. A move starts once and is waited for once. Phases nest. When the
 * recorder has finished, no variable is left, no gradient is on its way, no op waits for one, and each slot's count
 * equals the number of its live tensors, of which there are some only if the slot still exists. */
#include "graph/tape.h"

#ifdef NDEBUG

int tsr__schedule_check(const tsr__schedule *schedule) {
  (void)schedule;
  return 0;
}

int tsr__tape_check(const tsr__tape *tape) {
  (void)tape;
  return 0;
}

#else

typedef enum slot_state { ABSENT, LIVE, FOREVER, DROPPED } slot_state;

typedef struct checker {
  const tsr__schedule *s;
  uint8_t *state;      /* slot_state, by slot */
  uint8_t *prev_drops; /* DROP_PREVs, by slot */
  bool *is_flying;     /* by move */
  uint32_t phases[TSR__PHASE_COUNT];
  size_t depth;
} checker;

static bool exists(const checker *c, tsr__tensor_id tensor) {
  uint32_t slot = tsr__schedule_tensor(c->s, tensor)->slot;
  assert(slot < c->s->slots.count);
  return !tensor || c->state[slot] == LIVE || c->state[slot] == FOREVER;
}

static void check_move(checker *c, uint32_t index, bool is_start) {
  assert(index < c->s->moves.count);
  const tsr__move *move = &c->s->moves.items[index];
  assert(c->state[move->from] == LIVE || c->state[move->from] == FOREVER);
  assert(c->state[move->to] == LIVE || c->state[move->to] == FOREVER);
  assert(!move->staging || c->state[move->staging] == LIVE);
  assert(is_start ? !c->is_flying[index] : c->is_flying[index]);
  c->is_flying[index] = is_start;
  (void)move;
}

static void check_run(const checker *c, uint32_t index) {
  assert(index < c->s->runs.count);
  const tsr__kernel_run *run = &c->s->runs.items[index];
  if (!c->s->tensors.count) return; /* brief */
  const tsr__tensor_id *operands = tsr__run_reads(c->s, run);
  assert(run->op == TSR_NONE || run->op < c->s->ops.count);
  for (uint32_t i = 0; i < tsr__run_operand_count(run); i++) {
    uint32_t slot = tsr__schedule_tensor(c->s, operands[i])->slot;
    assert(exists(c, operands[i]) && (!operands[i] || c->s->slots.items[slot].space == run->space));
    (void)slot;
  }
}

static void check_slot(checker *c, tsr__instr_kind kind, uint32_t slot) {
  assert(slot && slot < c->s->slots.count && !c->s->slots.items[slot].is_static);
  bool is_carried = c->s->slots.items[slot].is_carried;
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

static void check_instr(checker *c, const tsr__instr *instr) {
  switch ((tsr__instr_kind)instr->kind) {
  case TSR__INSTR_NEW:
  case TSR__INSTR_NEW_ONCE:
  case TSR__INSTR_DROP:
  case TSR__INSTR_DROP_PREV: check_slot(c, (tsr__instr_kind)instr->kind, instr->subject); break;
  case TSR__INSTR_RUN: check_run(c, instr->subject); break;
  case TSR__INSTR_START:
  case TSR__INSTR_WAIT: check_move(c, instr->subject, instr->kind == TSR__INSTR_START); break;
  case TSR__INSTR_OP: assert(!c->s->ops.count || instr->subject < c->s->ops.count); break;
  case TSR__INSTR_BEGIN:
    assert(instr->subject < TSR__PHASE_COUNT && c->depth < TSR__PHASE_COUNT);
    c->phases[c->depth++] = instr->subject;
    break;
  case TSR__INSTR_END:
    assert(c->depth && c->phases[c->depth - 1] == instr->subject);
    c->depth--;
    break;
  }
}

static void check_end(const checker *c) {
  const tsr__schedule *s = c->s;
  assert(!c->depth && (!s->unheld.count || s->unheld.count == s->slots.count));
  for (size_t i = 0; i < s->moves.count; i++) assert(!c->is_flying[i]);
  for (size_t i = 1; i < s->slots.count; i++) {
    const tsr__slot *slot = &s->slots.items[i];
    assert(c->prev_drops[i] == slot->is_carried && slot->category < TSR_CATEGORY_COUNT);
    assert((c->state[i] == LIVE) == (slot->is_carried || slot->is_leaked));
    (void)slot;
  }
}

static void release(checker *c) {
  tsr__free(c->state);
  tsr__free(c->prev_drops);
  tsr__free(c->is_flying);
}

static int check(const tsr__schedule *s, checker *c) {
  size_t slots = s->slots.count;
  *c = (checker){.s = s,
                 .state = TSR__NEW_ARRAY(uint8_t, slots),
                 .prev_drops = TSR__NEW_ARRAY(uint8_t, slots),
                 .is_flying = TSR__NEW_ARRAY(bool, s->moves.count + 1)};
  if (!c->state || !c->prev_drops || !c->is_flying) return TSR_ERROR_MEMORY;
  for (size_t i = 0; i < slots; i++)
    if (s->slots.items[i].is_static) c->state[i] = FOREVER;
  for (size_t i = 0; i < s->instrs.count; i++) check_instr(c, &s->instrs.items[i]);
  check_end(c);
  return 0;
}

int tsr__schedule_check(const tsr__schedule *schedule) {
  checker c;
  int status = check(schedule, &c);
  release(&c);
  return status;
}

/* ---- the recorder ---- */

static void check_leftovers(const tsr__tape *t, const checker *c, uint32_t *alive) {
  assert(!t->scopes.count && !t->locals.count && !t->casts.count);
  assert(!t->ready.count && !t->ready_leaves.count && !t->recomputing);
  assert(t->grad_enabled && !t->is_backward && !t->is_autocast && t->block == TSR_NONE);
  for (size_t i = 0; i < t->ops.count; i++) assert(!t->ops.items[i].expected);
  for (size_t i = 1; i < t->tensors.count; i++) {
    const tsr__tape_tensor *tensor = &t->tensors.items[i];
    assert(!tensor->incoming && !tensor->through && !tensor->expected);
    if (tensor->holders) alive[tensor->slot]++;
  }
  for (size_t i = 1; i < t->slots.count; i++) {
    assert(alive[i] == t->slots.items[i].tensors);
    if (c->state[i] == LIVE) assert(alive[i]);
    if (c->state[i] == DROPPED) assert(!alive[i]);
  }
}

int tsr__tape_check(const tsr__tape *tape) {
  checker c;
  int status = check(&tape->schedule, &c);
  uint32_t *alive = TSR__NEW_ARRAY(uint32_t, tape->slots.count); /* tensors with holders, by slot */
  assert(tape->slots.count == tape->schedule.slots.count);
  if (status == 0 && alive) check_leftovers(tape, &c, alive);
  release(&c);
  tsr__free(alive);
  return alive ? status : TSR_ERROR_MEMORY;
}

#endif
