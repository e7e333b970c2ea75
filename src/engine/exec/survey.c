/* survey.c - see survey.h.
 *
 * Each slot has a class, by who writes it first:
 *
 *   FIXED     there before the step, or made once: counted always
 *   NEEDED    made by a kernel outside of the forward: from its allocation until its last use
 *   FREE      made by a kernel of the forward, or by a copy: in the sum of what is live until its last use, and in
 *             the floor while a kernel has it as an operand
 *
 * The schedule is walked with two sums, of what is needed and of what is free; a second walk stops where the first
 * found its maximum, and lists. */
#include "exec/survey.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/op.h"

enum { BLOCK_BYTES = 512 }; /* the allocator's smallest */

typedef enum slot_class { FIXED, NEEDED, FREE } slot_class;

typedef struct slot_facts {
  uint8_t class;   /* slot_class */
  bool is_counted; /* now */
  uint32_t writer; /* the first run that writes it, or TSR_NONE */
  uint32_t op;     /* that ran when it was allocated, or TSR_NONE */
  size_t last_use; /* place in the schedule; 0: none */
  size_t seen;     /* 1 + the last place at which it was met as an operand */
} slot_facts;

typedef struct walker {
  const tsr__tape *tape;
  slot_facts *slots;
  uint64_t needed_bytes, free_bytes; /* FIXED are among the needed */
  tsr__tape_phase phase;
  uint32_t op;
  size_t most_at, floor_at; /* places in the schedule */
  uint64_t most_bytes, floor_bytes;
} walker;

static uint64_t bytes_of(const walker *w, uint32_t slot) {
  const tsr__tape_slot *s = &w->tape->slots.items[slot];
  if (s->space != TSR__SPACE_DEVICE) return 0;
  return (s->bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

static uint32_t slot_of(const walker *w, tsr__tensor_id tensor) {
  return tsr__tensor_at(w->tape, tensor)->slot;
}

static uint32_t operand_count(const tsr__kernel_run *run) {
  return (uint32_t)run->read_count + run->write_count + run->scratch_count;
}

/* ---- classes ---- */

static void note_phase(walker *w, const tsr__tape_instr *instr) {
  if (instr->kind == TSR__INSTR_BEGIN) w->phase = (tsr__tape_phase)instr->subject;
  if (instr->kind == TSR__INSTR_END) w->phase = TSR__TAPE_PHASE_STEP;
  if (instr->kind == TSR__INSTR_BEGIN || instr->kind == TSR__INSTR_END) w->op = TSR_NONE;
  if (instr->kind == TSR__INSTR_OP) w->op = instr->subject;
}

static void classify_run(walker *w, size_t place, uint32_t index) {
  const tsr__kernel_run *run = &w->tape->runs.items[index];
  const tsr__tensor_id *operands = tsr__run_reads(w->tape, run);
  for (uint32_t i = 0; i < operand_count(run); i++) {
    if (!operands[i]) continue;
    slot_facts *facts = &w->slots[slot_of(w, operands[i])];
    facts->last_use = place;
    bool is_written = i >= run->read_count && i < (uint32_t)run->read_count + run->write_count;
    if (!is_written || facts->writer != TSR_NONE) continue;
    facts->writer = index;
    if (facts->class == NEEDED && w->phase == TSR__TAPE_PHASE_FORWARD) facts->class = FREE;
  }
}

static void classify_move(walker *w, size_t place, uint32_t index) {
  const tsr__tape_move *move = &w->tape->moves.items[index];
  slot_facts *to = &w->slots[move->to];
  w->slots[move->from].last_use = to->last_use = place;
  if (move->staging) w->slots[move->staging].last_use = place;
  if (to->class == NEEDED && to->writer == TSR_NONE) to->class = FREE;
}

static void classify(walker *w) {
  const tsr__tape *t = w->tape;
  for (size_t i = 0; i < t->slots.count; i++)
    w->slots[i] = (slot_facts){
        .class = t->slots.items[i].is_static ? FIXED : NEEDED, .writer = TSR_NONE, .op = TSR_NONE};
  w->op = TSR_NONE;
  for (size_t i = 0; i < t->schedule.count; i++) {
    const tsr__tape_instr *instr = &t->schedule.items[i];
    note_phase(w, instr);
    if (instr->kind == TSR__INSTR_NEW_ONCE) w->slots[instr->subject].class = FIXED;
    if (instr->kind == TSR__INSTR_NEW) w->slots[instr->subject].op = w->op;
    if (instr->kind == TSR__INSTR_RUN) classify_run(w, i, instr->subject);
    if (instr->kind == TSR__INSTR_START || instr->kind == TSR__INSTR_WAIT)
      classify_move(w, i, instr->subject);
  }
}

/* ---- the walk ---- */

static void count(walker *w, uint32_t slot, bool is_counted) {
  slot_facts *facts = &w->slots[slot];
  uint64_t *sum = facts->class == FREE ? &w->free_bytes : &w->needed_bytes;
  if (facts->is_counted == is_counted) return;
  facts->is_counted = is_counted;
  *sum += is_counted ? bytes_of(w, slot) : 0 - bytes_of(w, slot);
}

/* The bytes that every schedule needs while this kernel runs. */
static uint64_t floor_of(walker *w, size_t place, const tsr__kernel_run *run) {
  const tsr__tensor_id *operands = tsr__run_reads(w->tape, run);
  uint64_t sum = w->needed_bytes;
  for (uint32_t i = 0; i < operand_count(run); i++) {
    if (!operands[i]) continue;
    slot_facts *facts = &w->slots[slot_of(w, operands[i])];
    if (facts->class != FREE || facts->seen == place + 1) continue;
    facts->seen = place + 1;
    sum += bytes_of(w, slot_of(w, operands[i]));
  }
  return sum;
}

static void visit_run(walker *w, size_t place, uint32_t index) {
  const tsr__kernel_run *run = &w->tape->runs.items[index];
  uint64_t floor_bytes = floor_of(w, place, run), most = w->needed_bytes + w->free_bytes;
  if (floor_bytes > w->floor_bytes) {
    w->floor_bytes = floor_bytes;
    w->floor_at = place;
  }
  if (most > w->most_bytes) {
    w->most_bytes = most;
    w->most_at = place;
  }
}

/* These slots are not used after this place. */
static void forget_run(walker *w, size_t place, uint32_t index) {
  const tsr__kernel_run *run = &w->tape->runs.items[index];
  const tsr__tensor_id *operands = tsr__run_reads(w->tape, run);
  for (uint32_t i = 0; i < operand_count(run); i++) {
    if (!operands[i]) continue;
    uint32_t slot = slot_of(w, operands[i]);
    if (w->slots[slot].last_use == place && w->slots[slot].class != FIXED) count(w, slot, false);
  }
}

/* Walk up to and including the visit of the instruction at `end`. */
static void walk(walker *w, size_t end) {
  const tsr__tape *t = w->tape;
  w->needed_bytes = w->free_bytes = 0;
  w->op = TSR_NONE;
  w->phase = TSR__TAPE_PHASE_STEP;
  for (size_t i = 1; i < t->slots.count; i++) {
    w->slots[i].is_counted = false;
    w->slots[i].seen = 0;
    if (w->slots[i].class == FIXED) count(w, (uint32_t)i, true);
  }
  for (size_t i = 0; i < t->schedule.count; i++) {
    const tsr__tape_instr *instr = &t->schedule.items[i];
    note_phase(w, instr);
    if (instr->kind == TSR__INSTR_NEW && w->slots[instr->subject].last_use > i)
      count(w, instr->subject, true);
    if (instr->kind == TSR__INSTR_DROP && w->slots[instr->subject].class != FIXED)
      count(w, instr->subject, false);
    if (instr->kind != TSR__INSTR_RUN) continue;
    visit_run(w, i, instr->subject);
    if (i == end) return;
    forget_run(w, i, instr->subject);
  }
}

/* ---- lists ---- */

static const char *op_name(const walker *w, uint32_t op) {
  if (op == TSR_NONE) return "";
  return tsr__op_row_of(w->tape->book, (tsr__op_kind)w->tape->ops.items[op].kind)->name;
}

static const char *kernel_name(const walker *w, uint32_t writer) {
  if (writer == TSR_NONE) return "";
  return tsr__kernel_row_of((tsr__kernel)w->tape->runs.items[writer].kernel)->name;
}

/* The live results of one run are one item, because running it once more makes all of them again. */
static bool add_item(tsr__survey *out, const tsr__survey_item *item) {
  for (size_t i = 0; i < out->items.count; i++) {
    tsr__survey_item *o = &out->items.items[i];
    if (o->bytes != item->bytes || strcmp(o->op, item->op) != 0 ||
        strcmp(o->kernel, item->kernel) != 0 || o->seconds < item->seconds ||
        o->seconds > item->seconds)
      continue;
    o->count++;
    return true;
  }
  return TSR__VECTOR_PUSH(&out->items, *item);
}

static bool list_items(walker *w, const tsr__machine_rates *rates, tsr__survey *out) {
  const tsr__tape *t = w->tape;
  size_t place = w->most_at;
  const tsr__kernel_run *now = &t->runs.items[t->schedule.items[place].subject];
  uint64_t *by_run = TSR__NEW_ARRAY(uint64_t, t->runs.count + 1);
  uint32_t *op_of = TSR__NEW_ARRAY(uint32_t, t->runs.count + 1);
  bool ok = by_run && op_of;
  walk(w, place);
  (void)floor_of(w, place, now); /* marks the operands, which must be there */
  for (uint32_t i = 1; ok && i < t->slots.count; i++) {
    const slot_facts *f = &w->slots[i];
    if (f->class != FREE || !f->is_counted || f->seen == place + 1) continue;
    uint32_t run = f->writer == TSR_NONE ? (uint32_t)t->runs.count : f->writer;
    by_run[run] += bytes_of(w, i);
    op_of[run] = f->op;
  }
  for (uint32_t i = 0; ok && i <= t->runs.count; i++) {
    if (!by_run[i]) continue;
    bool is_made = i < t->runs.count;
    tsr__survey_item item = {.op = is_made ? op_name(w, op_of[i]) : "",
                             .kernel = is_made ? kernel_name(w, i) : "",
                             .bytes = by_run[i],
                             .count = 1};
    if (is_made && rates) item.seconds = tsr__cost_of_run(t, &t->runs.items[i], rates);
    ok = add_item(out, &item);
  }
  tsr__free(by_run);
  tsr__free(op_of);
  return ok;
}

static bool add_need(tsr__survey *out, const tsr__survey_need *need) {
  for (size_t i = 0; i < out->needs.count; i++) {
    tsr__survey_need *o = &out->needs.items[i];
    if (o->category != need->category || strcmp(o->op, need->op) != 0 ||
        strcmp(o->kernel, need->kernel) != 0)
      continue;
    o->bytes += need->bytes;
    return true;
  }
  return TSR__VECTOR_PUSH(&out->needs, *need);
}

static int compare_needs(const void *left, const void *right) {
  const tsr__survey_need *a = left, *b = right;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  int order = (int)a->category - (int)b->category;
  if (order == 0) order = strcmp(a->op, b->op);
  return order ? order : strcmp(a->kernel, b->kernel);
}

static bool list_needs(walker *w, tsr__survey *out) {
  const tsr__tape *t = w->tape;
  const tsr__kernel_run *now = &t->runs.items[t->schedule.items[w->floor_at].subject];
  bool ok = true;
  walk(w, w->floor_at);
  (void)floor_of(w, w->floor_at, now);
  out->floor_op = op_name(w, w->op);
  out->floor_phase = tsr__phase_word((uint8_t)w->phase);
  for (uint32_t i = 1; ok && i < t->slots.count; i++) {
    const slot_facts *f = &w->slots[i];
    bool is_there = f->class == FREE ? f->seen == w->floor_at + 1 : f->is_counted;
    if (!is_there || !bytes_of(w, i)) continue;
    tsr__survey_need need = {(tsr_category)t->slots.items[i].category, "", "", bytes_of(w, i)};
    bool is_made = need.category != TSR_CATEGORY_PARAMETER &&
                   need.category != TSR_CATEGORY_GRADIENT &&
                   need.category != TSR_CATEGORY_OPTIMIZER_STATE;
    if (is_made) need.op = op_name(w, f->op);
    if (is_made) need.kernel = kernel_name(w, f->writer);
    ok = add_need(out, &need);
  }
  if (ok && out->needs.count)
    qsort(out->needs.items, out->needs.count, sizeof *out->needs.items, compare_needs);
  return ok;
}

/* ---- simple sums ---- */

/* Backward passes, less the first if there are several: it finds no gradients. */
static uint64_t count_repeats(const tsr__tape *tape) {
  uint64_t passes = 0;
  for (size_t i = 0; i < tape->schedule.count; i++)
    passes += tape->schedule.items[i].kind == TSR__INSTR_BEGIN &&
              tape->schedule.items[i].subject == TSR__TAPE_PHASE_BACKWARD;
  return passes > 1 ? passes - 1 : 1;
}

static uint64_t forward_bytes(const walker *w) {
  const tsr__tape *t = w->tape;
  uint64_t live = 0;
  for (size_t i = 0; i < t->schedule.count; i++) {
    const tsr__tape_instr *instr = &t->schedule.items[i];
    if (instr->kind == TSR__INSTR_NEW) live += bytes_of(w, instr->subject);
    if (instr->kind == TSR__INSTR_DROP && w->slots[instr->subject].class != FIXED)
      live -= bytes_of(w, instr->subject);
    if (instr->kind == TSR__INSTR_END && instr->subject == TSR__TAPE_PHASE_FORWARD) break;
  }
  return live;
}

static uint64_t fixed_bytes(const walker *w) {
  uint64_t sum = 0;
  for (size_t i = 1; i < w->tape->slots.count; i++)
    if (w->slots[i].class == FIXED) sum += bytes_of(w, (uint32_t)i);
  return sum;
}

int tsr__survey_tape(const tsr__tape *tape, const tsr__machine_rates *rates, tsr__survey *out,
                     tsr_error *error) {
  walker w = {.tape = tape, .slots = TSR__NEW_ARRAY(slot_facts, tape->slots.count)};
  *out = (tsr__survey){.floor_phase = "", .floor_op = "", .repeats = count_repeats(tape)};
  if (!w.slots) return tsr__fail_memory(error);
  if (rates) out->cost = tsr__cost_of_tape(tape, rates);
  for (size_t i = 0; i < tape->parameters.count; i++)
    out->parameter_bytes += tsr__tensor_bytes(tape, tape->parameters.items[i]);
  out->sent_bytes = tsr__tape_sent_bytes(tape);
  classify(&w);
  out->forward_bytes = forward_bytes(&w);
  out->fixed_bytes = fixed_bytes(&w);
  walk(&w, tape->schedule.count);
  out->most_bytes = w.most_bytes;
  out->floor_bytes = w.floor_bytes;
  bool ok = !w.most_bytes || (list_items(&w, rates, out) && list_needs(&w, out));
  tsr__free(w.slots);
  return ok ? 0 : tsr__fail_memory(error);
}

void tsr__survey_release(tsr__survey *survey) {
  TSR__VECTOR_FREE(&survey->items);
  TSR__VECTOR_FREE(&survey->needs);
}

/* ---- the bound ---- */

double tsr__survey_extra(const tsr__survey *s, uint64_t budget_bytes) {
  double seconds = 0, last = -1; /* seconds per byte of the items taken so far */
  if (s->floor_bytes > budget_bytes) return -1;
  if (s->most_bytes <= budget_bytes) return 0;
  uint64_t left = s->most_bytes - budget_bytes;
  while (left) {
    const tsr__survey_item *best = NULL;
    double best_rate = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->items.count; i++) {
      const tsr__survey_item *item = &s->items.items[i];
      double rate = item->seconds / (double)item->bytes;
      if (rate <= last || (best && rate > best_rate)) continue;
      bytes =
          best && rate >= best_rate ? bytes + item->bytes * item->count : item->bytes * item->count;
      best = item;
      best_rate = rate;
    }
    if (!best) return -1;
    uint64_t taken = bytes < left ? bytes : left;
    seconds += best_rate * (double)taken;
    left -= taken;
    last = best_rate;
  }
  return seconds * (double)s->repeats;
}
