/* spaces.c - copies between memory spaces, for kernels that run in one space on tensors that are kept in another.
 *
 * A finished schedule has a space for each slot, its home, and one for each run. Where they differ, this file gives the
 * run a copy. Neighbouring runs share it: they are a *visit* of the slot.
 *
 *   home, on the host     ======================================================
 *   sections                | block 1  | block 2  | block 3  |   ...
 *   visit of block 3                   NEW START  WAIT run run | clean: DROP
 *                                                              | written to: START ... WAIT, DROP
 *
 * A section consists of the runs of one block, or of one op of the optimizer. The copy for a visit starts at the
 * beginning of the previous section (prefetch 1), and is awaited before the visit's first run. Results are copied
 * home during the next section. So at any time the device has the moved tensors of two sections, and each copy has
 * the time of a section.
 *
 * A slot that is made by its first visit (an activation, a gradient) starts there, and its home is allocated when it
 * is copied home. Uses less than three sections apart are one visit, because there is no time to copy the slot away
 * and back between them.
 *
 * Parameters of which each rank keeps a part (tape.h) have no home: a visit gathers the parts, and its copy is
 * dropped after its last run. It ends with its phase at the latest. So every unit is gathered once in each forward
 * and once in each backward pass, and once more if a block is recomputed long before its backward.
 *
 * Invariants, checked by the validator: a run's tensors are in its space; nothing writes what is being copied, nothing
 * reads a copy before its WAIT; a slot is made once and dropped once, a copy like any other. */
#include <assert.h>
#include <string.h>

#include "graph/op.h"

enum {
  TOO_CLOSE = 3,           /* sections */
  LEAST_MOVED_BYTES = 1024 /* smaller activations stay */
};

/* Edits at one place of the schedule, in this order unless a slot's own order says otherwise. */
enum { RANK_HOME, RANK_DROP, RANK_NEW, RANK_START, RANK_WAIT };

typedef struct edit {
  uint32_t at; /* before this instruction */
  uint32_t rank, number;
  tsr__instr instr;
} edit;

typedef struct use {
  uint32_t at, section, run; /* run: TSR_NONE if ranks move it together, which they do at home */
  uint32_t began;            /* where the phase begins */
  bool is_evaluation;        /* in an evaluation, which not every step has: its visits are apart */
  uint32_t next;             /* of the same slot, 1 + index; 0: the last */
  uint8_t space;
  bool reads, writes;
} use;

/* Where a slot is made, and its uses. */
typedef struct life {
  uint32_t made, first, last; /* uses: 1 + index */
  bool is_moved, is_once;
} life;

typedef struct clone {
  tsr__tensor_id from, to;
} clone;

typedef struct visit {
  const use *first, *last, *after; /* after: the slot's next use, or NULL */
  bool is_written, is_once, is_update;
} visit;

typedef struct mover {
  tsr__tape *tape;
  life *lives; /* by slot */
  TSR__VECTOR(use) uses;
  TSR__VECTOR(uint32_t) sections; /* where each begins */
  TSR__VECTOR(uint32_t) ends;     /* of phases */
  uint32_t began;                 /* where the phase begins that is being walked */
  bool is_evaluating;             /* that phase is an evaluation */
  TSR__VECTOR(edit) edits;
  TSR__VECTOR(clone) clones;   /* of the visit */
  uint32_t last_at, last_rank; /* of the slot's last edit */
  bool has_failed;
} mover;

/* ---- uses ---- */

static bool is_foreign(const mover *m, const tsr__kernel_run *run, tsr__tensor_id tensor) {
  uint32_t slot = tsr__tensor_at(m->tape, tensor)->slot;
  return tensor && m->tape->schedule.slots.items[slot].space != run->space;
}

/* Some slots stay: outputs that the program holds, slots that are too small to matter, and memory that is used again
 * within one block. */
static void settle_homes(mover *m) {
  for (size_t i = 1; i < m->tape->schedule.slots.count; i++) {
    tsr__slot *slot = &m->tape->schedule.slots.items[i];
    bool is_activation = slot->category == TSR_CATEGORY_ACTIVATION && !slot->is_static;
    if (slot->space != TSR__SPACE_DEVICE && is_activation &&
        (slot->is_carried || slot->is_leaked || slot->bytes < LEAST_MOVED_BYTES))
      slot->space = TSR__SPACE_DEVICE;
  }
}

/* Whether some memory is elsewhere, or only there at times. */
static bool has_moved(const tsr__tape *t) {
  const tsr__schedule *s = &t->schedule;
  for (size_t i = 1; i < s->slots.count; i++)
    if (s->slots.items[i].space != TSR__SPACE_DEVICE || t->slots.items[i].shard) return true;
  for (size_t i = 0; i < s->runs.count; i++)
    if (s->runs.items[i].space != TSR__SPACE_DEVICE) return true;
  return false;
}

static bool find_moved(mover *m) {
  const tsr__tape *t = m->tape;
  bool any = false;
  for (size_t i = 1; i < t->schedule.slots.count; i++)
    if (t->slots.items[i].shard) m->lives[i].is_moved = any = true;
  for (size_t i = 0; i < t->schedule.runs.count; i++) {
    const tsr__kernel_run *run = &t->schedule.runs.items[i];
    const tsr__tensor_id *operands = tsr__run_reads(&t->schedule, run);
    for (uint32_t k = 0; k < tsr__run_operand_count(run); k++) {
      if (!is_foreign(m, run, operands[k])) continue;
      m->lives[tsr__tensor_at(t, operands[k])->slot].is_moved = any = true;
    }
  }
  return any;
}

static void add_use(mover *m, const use *one, uint32_t slot) {
  assert(m->lives && (!m->lives[slot].last || m->uses.items));
  life *l = &m->lives[slot];
  if (l->last && one->run != TSR_NONE && m->uses.items[l->last - 1].run == one->run) {
    m->uses.items[l->last - 1].reads |= one->reads;
    m->uses.items[l->last - 1].writes |= one->writes;
    return;
  }
  if (!TSR__VECTOR_PUSH(&m->uses, *one)) {
    m->has_failed = true;
    return;
  }
  if (l->last)
    m->uses.items[l->last - 1].next = (uint32_t)m->uses.count;
  else
    l->first = (uint32_t)m->uses.count;
  l->last = (uint32_t)m->uses.count;
}

static void add_uses(mover *m, uint32_t at, uint32_t index) {
  const tsr__tape *t = m->tape;
  const tsr__kernel_run *run = &t->schedule.runs.items[index];
  const tsr__tensor_id *operands = tsr__run_reads(&t->schedule, run);
  for (uint32_t k = 0; k < tsr__run_operand_count(run); k++) {
    uint32_t slot = tsr__tensor_at(t, operands[k])->slot;
    if (!operands[k] || !m->lives[slot].is_moved) continue;
    use one = {.at = at,
               .section = (uint32_t)m->sections.count - 1,
               .run = index,
               .began = m->began,
               .is_evaluation = m->is_evaluating,
               .space = run->space,
               .reads = k < run->read_count,
               .writes = k >= run->read_count};
    add_use(m, &one, slot);
  }
}

static void add_move_use(mover *m, uint32_t at, uint32_t slot, bool reads, bool writes) {
  use one = {.at = at,
             .section = m->sections.count ? (uint32_t)m->sections.count - 1 : 0,
             .run = TSR_NONE,
             .began = m->began,
             .is_evaluation = m->is_evaluating,
             .space = m->tape->schedule.slots.items[slot].space,
             .reads = reads,
             .writes = writes};
  if (m->lives[slot].is_moved) add_use(m, &one, slot);
}

/* Moves of ranks work on homes. */
static void add_move_uses(mover *m, uint32_t at, const tsr__move *move) {
  add_move_use(m, at, move->from, true, move->from == move->to);
  if (move->to != move->from) add_move_use(m, at, move->to, false, true);
}

/* The section of a run: its block or, in the optimizer, its op. Autograd's own runs belong to the current section,
 * and so does an optimizer within backward. */
static uint64_t section_of(const tsr__kernel_run *run, bool is_optimizer, uint64_t current) {
  if (run->op == TSR_NONE || (run->is_optimizer && !is_optimizer)) return current;
  return is_optimizer ? (UINT64_C(1) << 32) + run->op : run->block;
}

static void walk(mover *m) {
  const tsr__tape *t = m->tape;
  uint64_t current = UINT64_MAX;
  bool is_optimizer = false;
  for (uint32_t i = 0; i < t->schedule.instrs.count && !m->has_failed; i++) {
    const tsr__instr *instr = &t->schedule.instrs.items[i];
    switch ((tsr__instr_kind)instr->kind) {
    case TSR__INSTR_NEW_ONCE: m->lives[instr->subject].is_once = true; break;
    case TSR__INSTR_NEW: m->lives[instr->subject].made = i; break;
    case TSR__INSTR_BEGIN:
      m->is_evaluating = instr->subject == TSR__PHASE_EVALUATION;
      is_optimizer = !m->is_evaluating && (is_optimizer || instr->subject == TSR__PHASE_OPTIMIZER);
      m->began = i;
      break;
    case TSR__INSTR_START:
    case TSR__INSTR_WAIT: add_move_uses(m, i, &t->schedule.moves.items[instr->subject]); break;
    case TSR__INSTR_END: m->has_failed |= !TSR__VECTOR_PUSH(&m->ends, i); break;
    case TSR__INSTR_RUN: {
      uint64_t next = section_of(&t->schedule.runs.items[instr->subject], is_optimizer, current);
      if (next != current || !m->sections.count)
        m->has_failed |= !TSR__VECTOR_PUSH(&m->sections, i);
      current = next;
      if (!m->has_failed) add_uses(m, i, instr->subject);
      break;
    }
    default: break;
    }
  }
}

/* ---- edits ---- */

/* Later edits of a slot come after its earlier ones. */
static void edit_at(mover *m, uint32_t at, uint32_t rank, tsr__instr_kind kind, uint32_t subject) {
  assert(at >= m->last_at);
  if (at == m->last_at && rank <= m->last_rank) rank = m->last_rank + 1;
  m->last_at = at;
  m->last_rank = rank;
  edit one = {at,
              rank,
              (uint32_t)m->edits.count,
              {.kind = (uint8_t)kind,
               .is_backward = m->tape->schedule.instrs.items[at].is_backward,
               .subject = subject,
               .stack = TSR_NONE}};
  m->has_failed |= !TSR__VECTOR_PUSH(&m->edits, one);
}

static bool comes_before(const edit *x, const edit *y) {
  return x->rank != y->rank ? x->rank < y->rank : x->number < y->number;
}

/* Sort them by place, then by rank, then by number. Few are at one place. */
static bool sort_edits(mover *m) {
  size_t count = m->edits.count, places = m->tape->schedule.instrs.count + 1;
  uint32_t *next = TSR__NEW_ARRAY(uint32_t, places + 1); /* by place: where its next one goes */
  edit *sorted = TSR__NEW_ARRAY(edit, count);
  bool ok = next && sorted;
  for (size_t i = 0; ok && i < count; i++) next[m->edits.items[i].at + 1]++;
  for (size_t i = 0; ok && i < places; i++) next[i + 1] += next[i];
  for (size_t i = 0; ok && i < count; i++) {
    const edit *one = &m->edits.items[i];
    size_t to = next[one->at]++;
    for (; to && sorted[to - 1].at == one->at && comes_before(one, &sorted[to - 1]); to--)
      sorted[to] = sorted[to - 1];
    sorted[to] = *one;
  }
  if (ok) memcpy(m->edits.items, sorted, count * sizeof *sorted);
  tsr__free(next);
  tsr__free(sorted);
  return ok;
}

/* Put the edits into the schedule, from its end. */
static void apply_edits(mover *m) {
  tsr__instrs *s = &m->tape->schedule.instrs;
  size_t from = s->count, more = m->edits.count;
  if (m->has_failed || !more) return;
  if (!sort_edits(m)) {
    m->has_failed = true;
    return;
  }
  if (s->count + more > TSR__MOST_INSTRUCTIONS) {
    m->tape->is_too_long = true;
    tsr__tape_fail(m->tape, TSR_ERROR_LIMIT);
    return;
  }
  if (!TSR__VECTOR_RESERVE(s, more)) {
    m->has_failed = true;
    return;
  }
  s->count += more;
  for (size_t to = s->count; more; to--) {
    const edit *last = &m->edits.items[more - 1];
    bool is_edit = last->at >= from;
    s->items[to - 1] = is_edit ? last->instr : s->items[from - 1];
    if (is_edit)
      more--;
    else
      from--;
  }
}

static uint32_t new_move(mover *m, uint32_t from, uint32_t to, const visit *v) {
  tsr__move move = {
      .from = from, .to = to, .is_once = v->is_once, .is_evaluation = v->first->is_evaluation};
  if (m->tape->slots.items[from].shard) {
    move.kind = TSR__MOVE_GATHER;
    move.from = m->tape->slots.items[from].shard;
  }
  m->has_failed |= !TSR__VECTOR_PUSH(&m->tape->schedule.moves, move);
  return (uint32_t)m->tape->schedule.moves.count - 1;
}

/* ---- copies ---- */

static uint32_t new_slot(mover *m, uint32_t of, tsr__memory_space space) {
  tsr__slot copy = m->tape->schedule.slots.items[of];
  copy.space = (uint8_t)space;
  copy.is_static = copy.is_carried = copy.is_leaked = copy.is_root = false;
  uint32_t number = tsr__tape_slot_add(m->tape, &copy, &(tsr__tape_slot){.tensors = 0});
  m->has_failed |= !number;
  return number;
}

/* The tensor, over the slot of the copy. */
static tsr__tensor_id clone_of(mover *m, tsr__tensor_id tensor, uint32_t slot) {
  for (size_t i = 0; i < m->clones.count; i++)
    if (m->clones.items[i].from == tensor) return m->clones.items[i].to;
  tsr__tape_tensor copy = *tsr__tensor_at(m->tape, tensor);
  copy.slot = slot;
  copy.holders = 0;
  copy.base = copy.grad = copy.incoming = copy.through = 0;
  copy.expected = 0;
  copy.op = TSR_NONE;
  copy.requires_grad = copy.is_parameter = false;
  clone one = {tensor, (tsr__tensor_id)m->tape->tensors.count};
  m->has_failed |= !TSR__VECTOR_PUSH(&m->tape->tensors, copy) || !TSR__VECTOR_PUSH(&m->clones, one);
  return m->has_failed ? 0 : one.to;
}

/* The runs of a visit use the copy. */
static void redirect(mover *m, const visit *v, uint32_t slot, uint32_t copy) {
  tsr__tape *t = m->tape;
  m->clones.count = 0;
  for (const use *u = v->first; u != v->after; u = u->next ? &m->uses.items[u->next - 1] : NULL) {
    if (u->run == TSR_NONE) continue; /* at home */
    const tsr__kernel_run *run = &t->schedule.runs.items[u->run];
    tsr__tensor_id *operands = t->schedule.operands.items + run->first_operand;
    for (uint32_t k = 0; u->space == v->first->space && k < tsr__run_operand_count(run); k++)
      if (operands[k] && tsr__tensor_at(t, operands[k])->slot == slot)
        operands[k] = clone_of(m, operands[k], copy);
  }
}

/* ---- visits ---- */

static const use *next_use(const mover *m, const use *u) {
  return u->next ? &m->uses.items[u->next - 1] : NULL;
}

/* The uses from `first` on that share a copy: up to a gap that is long enough to copy the slot away and back, or a
 * change of its home. */
static visit gather(const mover *m, const use *first) {
  visit v = {.first = first, .last = first, .is_once = true, .is_update = true};
  for (const use *u = first; u; u = next_use(m, u)) {
    bool is_home = u->space != first->space;
    v.after = u;
    if (u->is_evaluation != first->is_evaluation) return v;
    if (is_home && (u->writes || v.is_written)) return v;
    if (!is_home && u->section - v.last->section >= TOO_CLOSE) return v;
    if (is_home) continue;
    v.last = u;
    v.is_written |= u->writes;
    v.is_once &= m->tape->schedule.runs.items[u->run].is_once;
    v.is_update &= !u->writes || m->tape->schedule.runs.items[u->run].is_update;
  }
  v.after = NULL;
  return v;
}

/* Whether the visit's first run writes all of the slot and reads nothing of it. */
static bool overwrites(const mover *m, const visit *v, uint32_t slot) {
  const tsr__tape *t = m->tape;
  const tsr__kernel_run *run = &t->schedule.runs.items[v->first->run];
  const tsr__tensor_id *writes = tsr__run_writes(&t->schedule, run);
  if (v->first->reads) return false;
  for (uint32_t i = 0; i < run->write_count; i++) {
    if (!writes[i] || tsr__tensor_at(t, writes[i])->slot != slot) continue;
    return tsr__layout_is_dense(tsr__tensor_layout(t, writes[i])) &&
           tsr__tensor_bytes(t, writes[i]) == t->schedule.slots.items[slot].bytes;
  }
  return false;
}

static uint32_t begin_of(const mover *m, uint32_t section) {
  assert(section < m->sections.count && m->sections.items);
  return m->sections.items[section];
}

/* Where a copy home must have ended after the use: at the end of the next section, or of the phase. */
static uint32_t home_by(const mover *m, const visit *v) {
  const use *last = v->last;
  uint32_t by = (uint32_t)m->tape->schedule.instrs.count - 1;
  if (last->section + 2 < m->sections.count) by = begin_of(m, last->section + 2);
  for (size_t i = 0; i < m->ends.count; i++) {
    if (m->ends.items[i] <= last->at) continue;
    if (m->ends.items[i] < by) by = m->ends.items[i];
    break;
  }
  if (v->after && v->after->at < by) by = v->after->at;
  return by;
}

/* Copy the slot to the space where it is needed. `settled`: from this instruction on its home is up to date. */
static void fetch(mover *m, const visit *v, uint32_t slot, uint32_t copy, uint32_t settled) {
  uint32_t at = v->first->at, from = begin_of(m, v->first->section ? v->first->section - 1 : 0);
  if (overwrites(m, v, slot)) {
    edit_at(m, at, RANK_NEW, TSR__INSTR_NEW, copy);
    return;
  }
  if (from < settled) from = settled;
  if (v->first->is_evaluation && from <= v->first->began) from = v->first->began + 1;
  assert(from <= at);
  uint32_t move = new_move(m, slot, copy, v);
  edit_at(m, from, RANK_NEW, TSR__INSTR_NEW, copy);
  edit_at(m, from, RANK_START, TSR__INSTR_START, move);
  edit_at(m, at, RANK_WAIT, TSR__INSTR_WAIT, move);
}

/* Copy the slot home. Returns the instruction from which on its home is up to date. */
static uint32_t bring_home(mover *m, const visit *v, uint32_t slot, uint32_t copy, bool is_first) {
  uint32_t from = v->last->at + 1, by = home_by(m, v);
  assert(by >= from);
  uint32_t move = new_move(m, copy, slot, v);
  if (m->has_failed) return by;
  m->tape->schedule.moves.items[move].is_update = v->is_update;
  if (is_first) edit_at(m, from, RANK_NEW, TSR__INSTR_NEW, slot);
  edit_at(m, from, RANK_START, TSR__INSTR_START, move);
  edit_at(m, by, RANK_HOME, TSR__INSTR_WAIT, move);
  edit_at(m, by, RANK_DROP, TSR__INSTR_DROP, copy);
  return by;
}

/* Give each visit of a slot its copy. */
static void place_slot(mover *m, uint32_t slot) {
  const life l = m->lives[slot];
  const tsr__slot *s = &m->tape->schedule.slots.items[slot];
  uint8_t home = s->space;
  bool lasts = s->is_static || s->is_carried || s->is_leaked || l.is_once;
  bool exists = s->is_static || l.is_once;
  uint32_t settled = 0;
  m->last_at = m->last_rank = 0;
  for (const use *u = &m->uses.items[l.first - 1]; u && !m->has_failed;) {
    if (u->space == home) {
      if (u->writes) settled = u->at + 1;
      exists = true;
      u = next_use(m, u);
      continue;
    }
    visit v = gather(m, u);
    bool goes_home = v.is_written && (v.after || lasts), is_first = !exists;
    if (is_first && !goes_home) { /* it is made and dropped there */
      m->tape->schedule.slots.items[slot].space = u->space;
      return;
    }
    uint32_t copy = new_slot(m, slot, (tsr__memory_space)u->space);
    if (is_first)
      m->tape->schedule.instrs.items[l.made].subject = copy;
    else
      fetch(m, &v, slot, copy, settled);
    redirect(m, &v, slot, copy);
    if (goes_home)
      settled = bring_home(m, &v, slot, copy, is_first);
    else
      edit_at(m, v.last->at + 1, RANK_DROP, TSR__INSTR_DROP, copy);
    exists = true;
    u = v.after;
  }
}

/* The uses from `first` on that share what is gathered. */
static visit gather_parts(const mover *m, const use *first, bool is_of_block) {
  visit v = {.first = first, .last = first};
  for (const use *u = first; u; u = next_use(m, u)) {
    v.after = u;
    if (u->began != first->began) return v;
    if (is_of_block && u->section - v.last->section >= TOO_CLOSE) return v;
    v.last = u;
  }
  v.after = NULL;
  return v;
}

/* Gather a unit's parts for each visit, from the section before on, if that is in the same phase. */
static void place_unit(mover *m, uint32_t slot) {
  bool is_of_block = m->tape->slots.items[slot].is_of_block;
  m->last_at = m->last_rank = 0;
  if (!m->lives[slot].first) return;
  for (const use *u = &m->uses.items[m->lives[slot].first - 1]; u && !m->has_failed;) {
    visit v = gather_parts(m, u, is_of_block);
    uint32_t from = begin_of(m, u->section ? u->section - 1 : 0);
    uint32_t copy = new_slot(m, slot, TSR__SPACE_DEVICE), move = new_move(m, slot, copy, &v);
    if (from <= u->began) from = u->began + 1;
    edit_at(m, from, RANK_NEW, TSR__INSTR_NEW, copy);
    edit_at(m, from, RANK_START, TSR__INSTR_START, move);
    edit_at(m, u->at, RANK_WAIT, TSR__INSTR_WAIT, move);
    redirect(m, &v, slot, copy);
    edit_at(m, v.last->at + 1, RANK_DROP, TSR__INSTR_DROP, copy);
    u = v.after;
  }
}

static void place_all(mover *m) {
  size_t count = m->tape->schedule.slots.count;
  if (!find_moved(m)) return;
  walk(m);
  for (uint32_t i = 1; i < count && !m->has_failed; i++)
    if (m->lives[i].is_moved) (m->tape->slots.items[i].shard ? place_unit : place_slot)(m, i);
  apply_edits(m);
}

int tsr__tape_place_moves(tsr__tape *tape) {
  mover m = {.tape = tape};
  assert(tape->status == 0);
  settle_homes(&m);
  if (!has_moved(tape)) return 0;
  m.lives = TSR__NEW_ARRAY(life, tape->schedule.slots.count);
  if (m.lives)
    place_all(&m);
  else
    m.has_failed = true;
  tsr__free(m.lives);
  TSR__VECTOR_FREE(&m.uses);
  TSR__VECTOR_FREE(&m.sections);
  TSR__VECTOR_FREE(&m.ends);
  TSR__VECTOR_FREE(&m.edits);
  TSR__VECTOR_FREE(&m.clones);
  return m.has_failed ? TSR_ERROR_MEMORY : tape->status;
}
