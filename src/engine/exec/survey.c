/* survey.c - see survey.h.
 *
 * The schedule is walked instruction by instruction with two sums: the bytes that are live, and those that are needed. A
 * slot counts in the second
 *
 *   all of it          while it could not be absent, or something uses it
 *   all, or its copy   while autograd alone holds it, and a copy of it on the host is being used
 *   nothing            while it could be absent: dropped and made again later, or on the host
 *
 * Which slots could be absent, and when, is known in one of two ways:
 *
 *   by runs    each kernel lists its operands. What a kernel of the forward wrote, or a move copied, could be absent between
 *              the runs that use it. A slot is live up to its last use, and what the previous step left is not used at all.
 *   by saves   without kernels, the schedule contains what autograd holds. A slot that only autograd holds could be absent
 *              while no node of backward uses it. Everything else is live, and needed, until it is freed.
 *
 * A second walk ends where the first found its maximum, and makes the lists. */
#include "exec/survey.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"

enum { BLOCK_BYTES = 512 }; /* the allocator's smallest */

/* What is known about a slot before the walk, and its state during the walk. */
typedef struct slot_facts {
  uint32_t made;        /* the instruction, or TSR_NONE */
  uint32_t writer;      /* the first run that writes it, or TSR_NONE */
  uint32_t op, stack;   /* names of the op that made it: see tsr__schedule_op_name */
  size_t last_use;      /* place in the schedule; 0: none */
  uint64_t copy_bytes;  /* the smallest tensor of it that is saved */
  bool is_fixed;        /* there before the step, or made once */
  bool can_go;          /* it may be absent while nothing uses it */
  bool is_used;         /* later, by something */
  uint32_t count, lent; /* now: copies of it (two, if the previous step left one), and users */
  bool is_released;     /* now: by the program */
} slot_facts;

/* Something that happens to a slot before an instruction. */
typedef struct change {
  uint32_t at, slot;
  enum { RELEASE, LEND, RETURN } what;
} change;

typedef struct walker {
  const tsr__schedule *s;
  const tsr__survey_options *how;
  bool has_runs;
  slot_facts *slots;
  TSR__VECTOR(change) changes; /* by saves, in order */
  uint8_t phases[TSR__PHASE_COUNT + 1];
  size_t depth;
  uint32_t op, stack; /* the op that runs */
  uint64_t live_bytes, needed_bytes;
  uint64_t most_bytes, floor_bytes;
  size_t most_at, floor_at; /* places in the schedule */
} walker;

static uint64_t rounded(uint64_t bytes) {
  return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

static uint64_t device_bytes(const tsr__schedule *s, uint32_t slot) {
  const tsr__slot *one = &s->slots.items[slot];
  return one->space == TSR__SPACE_DEVICE ? rounded(one->bytes) : 0;
}

static uint64_t bytes_of(const walker *w, uint32_t slot) {
  return device_bytes(w->s, slot);
}

static uint32_t slot_of(const walker *w, tsr__tensor_id tensor) {
  return tsr__schedule_tensor(w->s, tensor)->slot;
}

static bool takes(const tsr__instr *instr) {
  return instr->kind == TSR__INSTR_NEW || instr->kind == TSR__INSTR_NEW_ONCE;
}

/* ---- phases and ops ---- */

static void begin_phases(walker *w) {
  w->depth = 0;
  w->phases[0] = TSR__PHASE_STEP;
  w->op = w->stack = TSR_NONE;
}

static void note_place(walker *w, const tsr__instr *instr) {
  bool begins = instr->kind == TSR__INSTR_BEGIN, ends = instr->kind == TSR__INSTR_END;
  if (begins) w->phases[++w->depth] = (uint8_t)instr->subject;
  if (ends) w->depth--;
  if (begins || ends) w->op = TSR_NONE;
  if (instr->kind == TSR__INSTR_OP) w->op = instr->subject;
  if (takes(instr)) w->stack = instr->stack;
}

/* ---- facts: by runs ---- */

static void classify_run(walker *w, size_t place, uint32_t index) {
  const tsr__kernel_run *run = &w->s->runs.items[index];
  const tsr__tensor_id *operands = tsr__run_reads(w->s, run);
  for (uint32_t i = 0; i < tsr__run_operand_count(run); i++) {
    if (!operands[i]) continue;
    slot_facts *facts = &w->slots[slot_of(w, operands[i])];
    facts->last_use = place;
    bool is_written = i >= run->read_count && i < (uint32_t)run->read_count + run->write_count;
    if (!is_written || facts->writer != TSR_NONE) continue;
    facts->writer = index;
    facts->can_go |= !facts->is_fixed && w->phases[w->depth] == TSR__PHASE_FORWARD;
  }
}

static void classify_move(walker *w, size_t place, uint32_t index) {
  const tsr__move *move = &w->s->moves.items[index];
  slot_facts *to = &w->slots[move->to];
  w->slots[move->from].last_use = to->last_use = place;
  if (move->staging) w->slots[move->staging].last_use = place;
  to->can_go |= !to->is_fixed && to->writer == TSR_NONE;
}

static void classify(walker *w) {
  const tsr__schedule *s = w->s;
  for (size_t i = 0; i < s->slots.count; i++)
    w->slots[i] = (slot_facts){.made = TSR_NONE,
                               .writer = TSR_NONE,
                               .op = TSR_NONE,
                               .stack = TSR_NONE,
                               .last_use = w->has_runs ? 0 : SIZE_MAX,
                               .copy_bytes = UINT64_MAX,
                               .is_fixed = s->slots.items[i].is_static,
                               .is_used = w->has_runs};
  begin_phases(w);
  for (size_t i = 0; i < s->instrs.count; i++) {
    const tsr__instr *instr = &s->instrs.items[i];
    slot_facts *f = takes(instr) ? &w->slots[instr->subject] : NULL;
    note_place(w, instr);
    if (f) f->made = (uint32_t)i;
    if (f && s->slots.items[instr->subject].category != TSR_CATEGORY_WORKSPACE)
      f->stack = instr->stack;
    if (instr->kind == TSR__INSTR_NEW_ONCE) f->is_fixed = true;
    if (instr->kind == TSR__INSTR_NEW) f->op = w->op;
    if (instr->kind == TSR__INSTR_RUN) classify_run(w, i, instr->subject);
    if (instr->kind == TSR__INSTR_START || instr->kind == TSR__INSTR_WAIT)
      classify_move(w, i, instr->subject);
  }
}

/* ---- facts: by saves ---- */

static bool note_change(walker *w, uint32_t at, uint32_t slot, int what) {
  change c = {.at = at, .slot = slot};
  c.what = what == RELEASE ? RELEASE : what == LEND ? LEND : RETURN;
  return at == TSR_NONE || TSR__VECTOR_PUSH(&w->changes, c);
}

static int compare_changes(const void *left, const void *right) {
  const change *a = left, *b = right;
  if (a->at != b->at) return a->at < b->at ? -1 : 1;
  if (a->what != b->what) return a->what < b->what ? -1 : 1; /* LEND before RETURN */
  return (a->slot > b->slot) - (a->slot < b->slot);
}

static bool note_saves(walker *w) {
  const tsr__schedule *s = w->s;
  bool ok = true, may_go = w->how->may_recompute || w->how->may_offload;
  for (size_t i = 0; ok && i < s->saves.count; i++) {
    const tsr__save *save = &s->saves.items[i];
    if (save->slot == TSR_NONE) continue;
    slot_facts *f = &w->slots[save->slot];
    if (save->bytes < f->copy_bytes) f->copy_bytes = save->bytes;
    if (save->used == TSR_NONE) continue;
    f->is_used = true;
    ok = note_change(w, save->used, save->slot, LEND) &&
         note_change(w, save->left, save->slot, RETURN);
  }
  for (uint32_t i = 0; ok && i < (uint32_t)s->unheld.count; i++) {
    slot_facts *f = &w->slots[i];
    bool is_held = f->made == TSR_NONE || f->is_fixed || s->slots.items[i].is_carried;
    if (is_held || s->unheld.items[i] == TSR_NONE) continue;
    f->can_go = may_go;
    ok = note_change(w, s->unheld.items[i], i, RELEASE);
  }
  if (ok && w->changes.count)
    tsr__sort(w->changes.items, w->changes.count, sizeof *w->changes.items, compare_changes);
  return ok;
}

/* ---- the walk ---- */

static bool could_be_absent(const slot_facts *f) {
  return f->can_go && f->is_released && f->count && !f->lent;
}

/* The bytes of a slot that are needed now. */
static uint64_t needed(const walker *w, uint32_t slot) {
  const slot_facts *f = &w->slots[slot];
  uint64_t bytes = bytes_of(w, slot), copy = bytes;
  if (could_be_absent(f)) return 0;
  if (f->copy_bytes < bytes) copy = rounded(f->copy_bytes);
  bool is_copy = !w->has_runs && w->how->may_offload && f->can_go && f->is_released && copy < bytes;
  return f->count * (is_copy ? copy : bytes);
}

static void count(walker *w, uint32_t slot, bool is_more) {
  assert(is_more || w->slots[slot].count);
  w->needed_bytes -= needed(w, slot);
  w->slots[slot].count += is_more ? 1u : 0u - 1u;
  w->live_bytes += is_more ? bytes_of(w, slot) : 0 - bytes_of(w, slot);
  w->needed_bytes += needed(w, slot);
}

static void make_change(walker *w, uint32_t slot, int what) {
  slot_facts *f = &w->slots[slot];
  w->needed_bytes -= needed(w, slot);
  if (what == RELEASE) f->is_released = true;
  if (what == LEND) f->lent++;
  if (what == RETURN && f->lent) f->lent--;
  w->needed_bytes += needed(w, slot);
}

static void change_operands(walker *w, const tsr__instr *instr, int what) {
  if (instr->kind != TSR__INSTR_RUN) return;
  const tsr__kernel_run *run = &w->s->runs.items[instr->subject];
  const tsr__tensor_id *operands = tsr__run_reads(w->s, run);
  for (uint32_t i = 0; i < tsr__run_operand_count(run); i++) {
    uint32_t slot = slot_of(w, operands[i]);
    if (operands[i] && w->slots[slot].can_go) make_change(w, slot, what);
  }
}

/* The operands of a run that are not used after it. */
static void forget_operands(walker *w, size_t place, const tsr__instr *instr) {
  if (instr->kind != TSR__INSTR_RUN) return;
  const tsr__kernel_run *run = &w->s->runs.items[instr->subject];
  const tsr__tensor_id *operands = tsr__run_reads(w->s, run);
  for (uint32_t i = 0; i < tsr__run_operand_count(run); i++) {
    uint32_t slot = slot_of(w, operands[i]);
    const slot_facts *f = &w->slots[slot];
    if (operands[i] && f->last_use == place && !f->is_fixed && f->count) count(w, slot, false);
  }
}

/* The state that the previous step leaves. */
static void begin(walker *w) {
  begin_phases(w);
  w->live_bytes = w->needed_bytes = 0;
  for (uint32_t i = 1; i < (uint32_t)w->s->slots.count; i++) {
    slot_facts *f = &w->slots[i];
    f->count = f->lent = 0;
    f->is_released = w->has_runs;
    if (f->is_fixed || (!w->has_runs && w->s->slots.items[i].is_carried)) count(w, i, true);
  }
}

static void count_instr(walker *w, size_t place, const tsr__instr *instr) {
  bool is_drop =
      instr->kind == TSR__INSTR_DROP || (instr->kind == TSR__INSTR_DROP_PREV && !w->has_runs);
  if (instr->kind == TSR__INSTR_NEW && w->slots[instr->subject].last_use > place)
    count(w, instr->subject, true);
  if (is_drop && w->slots[instr->subject].count) count(w, instr->subject, false);
}

static void note_most(walker *w, size_t place) {
  if (w->needed_bytes > w->floor_bytes) {
    w->floor_bytes = w->needed_bytes;
    w->floor_at = place;
  }
  if (w->live_bytes > w->most_bytes) {
    w->most_bytes = w->live_bytes;
    w->most_at = place;
  }
}

/* Up to the instruction at `end`, while that runs. What is made once exists already, so it is not made again. */
static void walk(walker *w, size_t end) {
  size_t next = 0;
  begin(w);
  for (size_t i = 0; i < w->s->instrs.count; i++) {
    const tsr__instr *instr = &w->s->instrs.items[i];
    note_place(w, instr);
    for (; next < w->changes.count && w->changes.items[next].at <= i; next++)
      make_change(w, w->changes.items[next].slot, (int)w->changes.items[next].what);
    count_instr(w, i, instr);
    change_operands(w, instr, LEND);
    if (!w->has_runs || instr->kind == TSR__INSTR_RUN) note_most(w, i);
    if (i == end) return;
    change_operands(w, instr, RETURN);
    forget_operands(w, i, instr);
  }
}

/* ---- lists ---- */

static const char *kernel_name(const walker *w, uint32_t writer) {
  if (writer == TSR_NONE) return "";
  return tsr__kernel_row_of((tsr__kernel)w->s->runs.items[writer].kernel)->name;
}

/* Runs, or ops of which the work is known. */
static size_t maker_count(const walker *w) {
  return w->has_runs ? w->s->runs.count : w->s->work.count;
}

static double seconds_of(const walker *w, size_t maker) {
  if (!w->how->rates) return 0;
  return w->has_runs ? tsr__cost_of_run(&w->s->runs.items[maker], w->how->rates)
                     : tsr__cost_of_work(&w->s->work.items[maker], w->how->rates);
}

/* What would make the slot again: the run that writes it, or the last op that began before it was made. The number of
 * makers if it is not known. */
static size_t maker_of(const walker *w, uint32_t slot) {
  const slot_facts *f = &w->slots[slot];
  if (w->has_runs) return f->writer == TSR_NONE ? w->s->runs.count : f->writer;
  size_t low = 0, high = w->s->work.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (w->s->work.items[middle].place <= f->made)
      low = middle + 1;
    else
      high = middle;
  }
  return low ? low - 1 : w->s->work.count;
}

/* Slots that can only be made again together: all that one maker made. */
typedef struct group {
  uint64_t bytes;
  double copy_rate; /* the least seconds for a byte */
  uint32_t op, stack;
} group;

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

/* `again_s`: seconds of the maker, which may be absent. */
static bool add_group(const walker *w, const group *g, size_t maker, double again_s,
                      tsr__survey *out) {
  double seconds = again_s, copy_s = (double)g->bytes * g->copy_rate;
  bool is_made = maker < maker_count(w);
  if (!w->has_runs && w->how->may_offload && (!w->how->may_recompute || again_s >= copy_s))
    seconds = copy_s;
  tsr__survey_item item = {
      .op = is_made || !w->has_runs ? tsr__schedule_op_name(w->s, g->op, g->stack) : "",
      .kernel = is_made && w->has_runs ? kernel_name(w, (uint32_t)maker) : "",
      .bytes = g->bytes,
      .count = 1,
      .seconds = seconds};
  return add_item(out, &item);
}

static double copy_rate(const walker *w, uint32_t slot) {
  double link = w->how->rates ? w->how->rates->link_bytes_per_s : 0;
  if (w->has_runs || link <= 0) return 0;
  return 2 * (double)w->slots[slot].copy_bytes / link / (double)bytes_of(w, slot);
}

static bool list_items(walker *w, tsr__survey *out) {
  size_t makers = maker_count(w);
  group *groups = TSR__NEW_ARRAY(group, makers + 1);
  bool ok = groups != NULL;
  walk(w, w->most_at);
  for (uint32_t i = 1; ok && i < (uint32_t)w->s->slots.count; i++) {
    const slot_facts *f = &w->slots[i];
    if (!could_be_absent(f) || !bytes_of(w, i)) continue;
    group one = {bytes_of(w, i), f->is_used ? copy_rate(w, i) : 0, f->op, f->stack};
    if (!f->is_used) { /* nobody needs it any more */
      ok = add_group(w, &one, makers, 0, out);
      continue;
    }
    group *g = &groups[maker_of(w, i)];
    if (!g->bytes || one.copy_rate < g->copy_rate) g->copy_rate = one.copy_rate;
    g->bytes += one.bytes;
    g->op = one.op;
    g->stack = one.stack;
  }
  for (size_t i = 0; ok && i <= makers; i++)
    if (groups[i].bytes) ok = add_group(w, &groups[i], i, i < makers ? seconds_of(w, i) : 0, out);
  tsr__free(groups);
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
  bool ok = true;
  walk(w, w->floor_at);
  out->floor_op = tsr__schedule_op_name(w->s, w->op, w->stack);
  out->floor_phase = tsr__phase_word(w->phases[w->depth]);
  for (uint32_t i = 1; ok && i < (uint32_t)w->s->slots.count; i++) {
    const slot_facts *f = &w->slots[i];
    uint64_t bytes = needed(w, i);
    if (!bytes) continue;
    tsr__survey_need need = {(tsr_category)w->s->slots.items[i].category, "", "", bytes};
    bool is_made = need.category != TSR_CATEGORY_PARAMETER &&
                   need.category != TSR_CATEGORY_GRADIENT &&
                   need.category != TSR_CATEGORY_OPTIMIZER_STATE;
    if (is_made) need.op = tsr__schedule_op_name(w->s, f->op, f->stack);
    if (is_made) need.kernel = kernel_name(w, f->writer);
    ok = add_need(out, &need);
  }
  if (ok && out->needs.count)
    tsr__sort(out->needs.items, out->needs.count, sizeof *out->needs.items, compare_needs);
  return ok;
}

/* ---- simple sums ---- */

static uint64_t forward_bytes(const tsr__schedule *s) {
  uint64_t live = 0;
  for (size_t i = 0; i < s->instrs.count; i++) {
    const tsr__instr *instr = &s->instrs.items[i];
    if (instr->kind == TSR__INSTR_NEW) live += device_bytes(s, instr->subject);
    if (instr->kind == TSR__INSTR_DROP) live -= device_bytes(s, instr->subject);
    if (instr->kind == TSR__INSTR_END && instr->subject == TSR__PHASE_FORWARD) break;
  }
  return live;
}

static uint64_t fixed_bytes(const tsr__schedule *s) {
  uint64_t sum = 0;
  for (uint32_t i = 1; i < (uint32_t)s->slots.count; i++)
    if (s->slots.items[i].is_static) sum += device_bytes(s, i);
  for (size_t i = 0; i < s->instrs.count; i++)
    if (s->instrs.items[i].kind == TSR__INSTR_NEW_ONCE)
      sum += device_bytes(s, s->instrs.items[i].subject);
  return sum;
}

static uint64_t lasting_host_bytes(const tsr__slot *slot) {
  return slot->space == TSR__SPACE_HOST && slot->category != TSR_CATEGORY_ACTIVATION ? slot->bytes
                                                                                     : 0;
}

/* Of parameters, gradients and the optimizer: whatever blocks do, it is there. What the step before left is not counted. */
static uint64_t host_bytes(const tsr__schedule *s) {
  uint64_t live = 0, most = 0;
  for (size_t i = 1; i < s->slots.count; i++)
    if (s->slots.items[i].is_static) live += lasting_host_bytes(&s->slots.items[i]);
  for (size_t i = 0; i < s->instrs.count; i++)
    if (s->instrs.items[i].kind == TSR__INSTR_NEW_ONCE)
      live += lasting_host_bytes(&s->slots.items[s->instrs.items[i].subject]);
  most = live;
  for (size_t i = 0; i < s->instrs.count; i++) {
    const tsr__instr *instr = &s->instrs.items[i];
    bool is_new = instr->kind == TSR__INSTR_NEW, is_drop = instr->kind == TSR__INSTR_DROP;
    if (!is_new && !is_drop) continue;
    uint64_t bytes = lasting_host_bytes(&s->slots.items[instr->subject]);
    assert(is_new || live >= bytes);
    live = is_new ? live + bytes : live - bytes;
    if (live > most) most = live;
  }
  return most;
}

static void add_sums(const tsr__schedule *s, const tsr__machine_rates *rates, tsr__survey *out) {
  if (rates) out->cost = tsr__cost_of_schedule(s, rates);
  out->parameter_bytes = s->parameter_bytes;
  /* If there are several backward passes, the first one finds no gradients. */
  out->repeats = s->backward_count > 1 ? s->backward_count - 1 : 1;
  out->sent_bytes = tsr__schedule_sent_bytes(s);
  out->forward_bytes = forward_bytes(s);
  out->fixed_bytes = fixed_bytes(s);
}

int tsr__survey_schedule(const tsr__schedule *schedule, const tsr__survey_options *options,
                         tsr__survey *out, tsr_error *error) {
  *out = (tsr__survey){.floor_phase = "", .floor_op = ""};
  add_sums(schedule, options->rates, out);
  if (options->sums_only) return 0;
  walker w = {.s = schedule,
              .how = options,
              .has_runs = schedule->runs.count > 0,
              .slots = TSR__NEW_ARRAY(slot_facts, schedule->slots.count)};
  if (!w.slots) return tsr__fail_memory(error);
  classify(&w);
  bool ok = note_saves(&w);
  if (ok) walk(&w, schedule->instrs.count);
  out->host_bytes = host_bytes(schedule);
  out->most_bytes = w.most_bytes;
  out->floor_bytes = w.floor_bytes;
  ok = ok && list_items(&w, out) && list_needs(&w, out);
  TSR__VECTOR_FREE(&w.changes);
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
