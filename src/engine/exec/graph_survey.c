/* graph_survey.c - see graph_survey.h.
 *
 * The step (the second one or later) is walked instruction by instruction. In the sum of needed memory, a slot counts
 * for
 *
 *   all of it          while it is there and the program holds it
 *   all, or its copy   while a node of backward uses what autograd saved of it
 *   nothing            while autograd alone holds it
 *
 * In the sum of live memory it counts with all its bytes. A second walk ends where the first found its maximum, and
 * makes the lists. */
#include "exec/graph_survey.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "traced/graph_data.h"
#include "traced/rewrite.h"

enum { BLOCK_BYTES = 512 }; /* the allocator's smallest */

/* What is known about a slot before the walk, and its state during the walk. */
typedef struct slot_facts {
  uint32_t made;        /* the instruction, or TSR_NONE */
  uint32_t stack;       /* of it */
  uint64_t copy_bytes;  /* the smallest tensor of it that is saved */
  bool is_saved;        /* the step makes it, and autograd holds it longer than the program does */
  bool is_used;         /* by a node of backward */
  uint32_t count, lent; /* now: of it, and nodes that use it */
  bool is_released;     /* now: by the program */
} slot_facts;

/* Something that happens to a slot before an instruction. */
typedef struct change {
  uint32_t at, slot;
  enum { RELEASE, LEND, RETURN } what;
} change;

typedef struct walker {
  const tsr__step_graph *g;
  const tsr__graph_survey_options *how;
  slot_facts *slots;
  TSR__VECTOR(change) changes;
  uint64_t live_bytes, needed_bytes;
  uint64_t most_bytes, floor_bytes;
  size_t most_at, floor_at;
} walker;

static uint64_t rounded(uint64_t bytes) {
  return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

/* ---- time ---- */

static double seconds_of(const tsr__graph_work *work, const tsr__machine_rates *rates) {
  return tsr__cost_of_op(rates, work->flops, work->bytes, work->is_half);
}

tsr__cost tsr__cost_of_graph(const tsr__step_graph *graph, const tsr__machine_rates *rates) {
  tsr__cost cost = {.exposed = 1};
  for (size_t i = 0; i < graph->work.count; i++) {
    double seconds = seconds_of(&graph->work.items[i], rates);
    cost.phase_s[graph->work.items[i].phase] += seconds;
    cost.step_s += seconds;
  }
  if (rates->link_bytes_per_s > 0) /* save_on_cpu() waits for each */
    cost.step_s += (double)graph->copied_bytes / rates->link_bytes_per_s;
  return cost;
}

/* ---- before the walk ---- */

static uint32_t slot_of(const tsr__tape_instr *instr) {
  assert(instr->subject);
  return instr->subject - 1;
}

static bool takes(const tsr__tape_instr *instr) {
  return instr->kind == TSR__INSTR_NEW || instr->kind == TSR__INSTR_NEW_ONCE;
}

static void note_makers(walker *w) {
  const tsr__step_graph *g = w->g;
  for (size_t i = 0; i < g->slots.count; i++)
    w->slots[i] = (slot_facts){.made = TSR_NONE, .stack = TSR_NONE, .copy_bytes = UINT64_MAX};
  for (size_t i = 0; i < g->schedule.count; i++) {
    const tsr__tape_instr *instr = &g->schedule.items[i];
    if (!takes(instr)) continue;
    slot_facts *f = &w->slots[slot_of(instr)];
    f->stack = instr->stack;
    f->made = (uint32_t)i;
    f->is_saved = instr->kind == TSR__INSTR_NEW;
  }
}

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

/* What a rewrite would free, whatever the file says of it, may be missing. */
static bool note_saves(walker *w) {
  const tsr__step_graph *g = w->g;
  bool ok = true;
  for (size_t i = 0; ok && i < g->saves.count; i++) {
    const tsr__graph_save *save = &g->saves.items[i];
    if (save->slot == TSR_NONE) continue;
    slot_facts *f = &w->slots[save->slot];
    if (save->bytes < f->copy_bytes) f->copy_bytes = save->bytes;
    f->is_used |= save->used != TSR_NONE;
    if (save->used == TSR_NONE) continue;
    ok = note_change(w, save->used, save->slot, LEND) &&
         note_change(w, save->left, save->slot, RETURN);
  }
  for (uint32_t i = 0; ok && i < (uint32_t)g->slots.count; i++) {
    w->slots[i].is_saved =
        w->slots[i].is_saved && g->unheld.items[i] != TSR_NONE && !g->slots.items[i].is_carried;
    if (w->slots[i].is_saved) ok = note_change(w, g->unheld.items[i], i, RELEASE);
  }
  if (ok && w->changes.count)
    qsort(w->changes.items, w->changes.count, sizeof *w->changes.items, compare_changes);
  return ok;
}

/* ---- the walk ---- */

static bool is_free(const walker *w, const slot_facts *f) {
  return (w->how->may_recompute || w->how->may_offload) && f->is_saved && f->is_released &&
         f->count && !f->lent;
}

/* The bytes of a slot that are needed now. */
static uint64_t needed(const walker *w, uint32_t slot) {
  const slot_facts *f = &w->slots[slot];
  uint64_t bytes = rounded(w->g->slots.items[slot].bytes), copy = bytes;
  if (f->copy_bytes < bytes) copy = rounded(f->copy_bytes);
  if (is_free(w, f)) return 0;
  bool is_copy = w->how->may_offload && f->is_saved && f->is_released && copy < bytes;
  return f->count * (is_copy ? copy : bytes);
}

static void count(walker *w, uint32_t slot, bool is_more) {
  uint64_t bytes = rounded(w->g->slots.items[slot].bytes);
  assert(is_more || w->slots[slot].count);
  w->needed_bytes -= needed(w, slot);
  w->slots[slot].count += is_more ? 1u : 0u - 1u;
  w->live_bytes += is_more ? bytes : 0 - bytes;
  w->needed_bytes += needed(w, slot);
}

static void make_change(walker *w, const change *c) {
  slot_facts *f = &w->slots[c->slot];
  w->needed_bytes -= needed(w, c->slot);
  if (c->what == RELEASE) f->is_released = true;
  if (c->what == LEND) f->lent++;
  if (c->what == RETURN && f->lent) f->lent--;
  w->needed_bytes += needed(w, c->slot);
}

/* The state that the previous step leaves. */
static void begin(walker *w) {
  const tsr__step_graph *g = w->g;
  w->live_bytes = w->needed_bytes = w->how->workspace_bytes;
  for (uint32_t i = 0; i < (uint32_t)g->slots.count; i++) {
    w->slots[i].count = w->slots[i].lent = 0;
    w->slots[i].is_released = false;
    bool is_once = w->slots[i].made != TSR_NONE &&
                   g->schedule.items[w->slots[i].made].kind == TSR__INSTR_NEW_ONCE;
    if (i < g->static_count || is_once || g->slots.items[i].is_carried) count(w, i, true);
  }
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

/* Up to and including the instruction at `end`. What is made once exists already, so it is not made again. */
static void walk(walker *w, size_t end) {
  const tsr__step_graph *g = w->g;
  size_t next = 0;
  begin(w);
  for (size_t i = 0; i < g->schedule.count && i <= end; i++) {
    const tsr__tape_instr *instr = &g->schedule.items[i];
    for (; next < w->changes.count && w->changes.items[next].at <= i; next++)
      make_change(w, &w->changes.items[next]);
    bool is_drop = instr->kind == TSR__INSTR_DROP || instr->kind == TSR__INSTR_DROP_PREV;
    if (instr->kind == TSR__INSTR_NEW) count(w, slot_of(instr), true);
    if (is_drop && w->slots[slot_of(instr)].count) count(w, slot_of(instr), false);
    note_most(w, i);
  }
}

/* ---- lists ---- */

/* The index of the op that makes a slot, which is the last op that began before it; the number of ops if there is
 * none. */
static size_t work_of(const walker *w, uint32_t slot) {
  size_t low = 0, high = w->g->work.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (w->g->work.items[middle].place <= w->slots[slot].made)
      low = middle + 1;
    else
      high = middle;
  }
  return low ? low - 1 : w->g->work.count;
}

/* Slots that can only be dropped together: all that one op made. */
typedef struct group {
  uint64_t bytes;
  double copy_rate; /* the least seconds for a byte */
  uint32_t stack;
} group;

static bool add_item(tsr__survey *out, const tsr__survey_item *item) {
  for (size_t i = 0; i < out->items.count; i++) {
    tsr__survey_item *o = &out->items.items[i];
    if (o->bytes != item->bytes || strcmp(o->op, item->op) != 0 || o->seconds < item->seconds ||
        o->seconds > item->seconds)
      continue;
    o->count++;
    return true;
  }
  return TSR__VECTOR_PUSH(&out->items, *item);
}

static bool add_group(const walker *w, const group *g, double again_s, tsr__survey *out) {
  double seconds = (double)g->bytes * g->copy_rate;
  if (!w->how->may_offload || (w->how->may_recompute && again_s < seconds)) seconds = again_s;
  tsr__survey_item item = {.op = tsr__step_graph_op(&w->g->tracer, g->stack),
                           .kernel = "",
                           .bytes = g->bytes,
                           .count = 1,
                           .seconds = seconds};
  return add_item(out, &item);
}

static double copy_rate(const walker *w, uint32_t slot) {
  double link = w->how->rates->link_bytes_per_s;
  if (link <= 0) return 0;
  return 2 * (double)w->slots[slot].copy_bytes / link /
         (double)rounded(w->g->slots.items[slot].bytes);
}

static bool list_items(walker *w, tsr__survey *out) {
  size_t works = w->g->work.count;
  group *groups = TSR__NEW_ARRAY(group, works + 1);
  bool ok = groups != NULL;
  walk(w, w->most_at);
  for (uint32_t i = 0; ok && i < (uint32_t)w->g->slots.count; i++) {
    const slot_facts *f = &w->slots[i];
    if (!is_free(w, f)) continue;
    group one = {rounded(w->g->slots.items[i].bytes), f->is_used ? copy_rate(w, i) : 0, f->stack};
    if (!f->is_used) { /* nobody needs it any more */
      ok = add_group(w, &one, 0, out);
      continue;
    }
    group *g = &groups[work_of(w, i)];
    if (!g->bytes) g->copy_rate = one.copy_rate;
    g->bytes += one.bytes;
    g->stack = one.stack;
    if (one.copy_rate < g->copy_rate) g->copy_rate = one.copy_rate;
  }
  for (size_t i = 0; ok && i <= works; i++)
    if (groups[i].bytes)
      ok = add_group(w, &groups[i], i < works ? seconds_of(&w->g->work.items[i], w->how->rates) : 0,
                     out);
  tsr__free(groups);
  return ok;
}

static bool add_need(tsr__survey *out, tsr_category category, const char *op, uint64_t bytes) {
  for (size_t i = 0; i < out->needs.count; i++) {
    tsr__survey_need *o = &out->needs.items[i];
    if (o->category != category || strcmp(o->op, op) != 0) continue;
    o->bytes += bytes;
    return true;
  }
  return TSR__VECTOR_PUSH(&out->needs, (tsr__survey_need){category, op, "", bytes});
}

static int compare_needs(const void *left, const void *right) {
  const tsr__survey_need *a = left, *b = right;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return a->category != b->category ? (int)a->category - (int)b->category : strcmp(a->op, b->op);
}

static void name_floor(const walker *w, tsr__survey *out) {
  const tsr__step_graph *g = w->g;
  tsr__tape_phase stack[TSR__TAPE_PHASE_COUNT + 1] = {TSR__TAPE_PHASE_STEP};
  size_t depth = 0;
  for (size_t i = 0; i <= w->floor_at && i < g->schedule.count; i++) {
    const tsr__tape_instr *instr = &g->schedule.items[i];
    if (instr->kind == TSR__INSTR_BEGIN) stack[++depth] = (tsr__tape_phase)instr->subject;
    if (instr->kind == TSR__INSTR_END) depth--;
    if (takes(instr)) out->floor_op = tsr__step_graph_op(&g->tracer, instr->stack);
  }
  out->floor_phase = tsr__phase_word((uint8_t)stack[depth]);
}

static bool list_needs(walker *w, tsr__survey *out) {
  uint64_t workspaces = w->how->workspace_bytes;
  bool ok = !workspaces || add_need(out, TSR_CATEGORY_WORKSPACE, "", workspaces);
  walk(w, w->floor_at);
  for (uint32_t i = 0; ok && i < (uint32_t)w->g->slots.count; i++) {
    tsr_category category = (tsr_category)w->g->slots.items[i].category;
    bool is_made = category != TSR_CATEGORY_PARAMETER && category != TSR_CATEGORY_GRADIENT &&
                   category != TSR_CATEGORY_OPTIMIZER_STATE;
    const char *op = is_made ? tsr__step_graph_op(&w->g->tracer, w->slots[i].stack) : "";
    uint64_t bytes = needed(w, i);
    if (bytes) ok = add_need(out, category, op, bytes);
  }
  if (ok && out->needs.count)
    qsort(out->needs.items, out->needs.count, sizeof *out->needs.items, compare_needs);
  name_floor(w, out);
  return ok;
}

int tsr__survey_graph(const tsr__step_graph *graph, const tsr__graph_survey_options *options,
                      tsr__survey *out, tsr_error *error) {
  walker w = {
      .g = graph, .how = options, .slots = TSR__NEW_ARRAY(slot_facts, graph->slots.count + 1)};
  *out = (tsr__survey){.floor_phase = "", .floor_op = "", .repeats = 1};
  out->cost = tsr__cost_of_graph(graph, options->rates);
  bool ok = w.slots != NULL;
  if (ok) note_makers(&w);
  ok = ok && note_saves(&w);
  if (ok) walk(&w, graph->schedule.count);
  out->most_bytes = w.most_bytes;
  out->floor_bytes = w.floor_bytes;
  ok = ok && list_items(&w, out) && list_needs(&w, out);
  TSR__VECTOR_FREE(&w.changes);
  tsr__free(w.slots);
  return ok ? 0 : tsr__fail_memory(error);
}

/* ---- parts ---- */

/* A slot, with all its saves. */
typedef struct slot_saves {
  uint32_t first, last, made; /* saves; the instruction that makes it, or TSR_NONE */
  size_t seen;                /* 1 + the last call at which it was met */
} slot_saves;

static slot_saves *list_saves(const tsr__step_graph *g) {
  slot_saves *all = TSR__NEW_ARRAY(slot_saves, g->slots.count + 1);
  if (!all) return NULL;
  for (size_t i = 0; i < g->slots.count; i++) all[i] = (slot_saves){TSR_NONE, 0, TSR_NONE, 0};
  for (size_t i = 0; i < g->saves.count; i++) {
    uint32_t slot = g->saves.items[i].slot;
    if (slot == TSR_NONE) continue;
    if (all[slot].first == TSR_NONE) all[slot].first = (uint32_t)i;
    all[slot].last = (uint32_t)i;
  }
  for (size_t i = 0; i < g->schedule.count; i++)
    if (g->schedule.items[i].kind == TSR__INSTR_NEW)
      all[slot_of(&g->schedule.items[i])].made = (uint32_t)i;
  return all;
}

static bool is_input(const tsr__step_graph *g, const tsr__graph_module *m, uint32_t slot) {
  for (uint32_t i = 0; i < m->input_count; i++)
    if (g->inputs.items[m->first_input + i] == slot) return true;
  return false;
}

static void add_saves(const tsr__step_graph *g, size_t index, slot_saves *all,
                      const tsr__machine_rates *rates, tsr__graph_part *part) {
  const tsr__graph_module *m = &g->modules.items[index];
  uint64_t copied = 0;
  for (uint32_t k = m->first_save; k < m->end_save; k++) {
    const tsr__graph_save *save = &g->saves.items[k];
    if (save->slot == TSR_NONE) continue;
    slot_saves *s = &all[save->slot];
    copied = tsr__sum_u64(copied, save->used == TSR_NONE ? save->bytes : 2 * save->bytes);
    bool is_own = s->made != TSR_NONE && s->seen != index + 1 && s->first >= m->first_save &&
                  s->last < m->end_save && g->unheld.items[save->slot] != TSR_NONE;
    s->seen = index + 1;
    if (!is_own) continue;
    uint64_t bytes = rounded(g->slots.items[save->slot].bytes);
    part->moved_bytes += bytes;
    if (s->made >= m->begin && s->made < m->end && !is_input(g, m, save->slot))
      part->again_bytes += bytes;
  }
  if (rates->link_bytes_per_s > 0) part->copies_s = (double)copied / rates->link_bytes_per_s;
}

/* Recomputation ends with the last save. */
static void add_work(const tsr__step_graph *g, const tsr__graph_module *m,
                     const tsr__machine_rates *rates, tsr__graph_part *part) {
  uint32_t last = m->begin;
  for (uint32_t k = m->first_save; k < m->end_save; k++)
    if (g->saves.items[k].made > last) last = g->saves.items[k].made;
  for (size_t i = 0; i < g->work.count && g->work.items[i].place < m->end; i++) {
    if (g->work.items[i].place < m->begin) continue;
    double seconds = seconds_of(&g->work.items[i], rates);
    part->forward_s += seconds;
    if (g->work.items[i].place < last) part->again_s += seconds;
  }
}

static tsr__graph_part part_of(const tsr__step_graph *g, size_t index, slot_saves *all,
                               const tsr__machine_rates *rates) {
  const tsr__graph_module *m = &g->modules.items[index];
  tsr__graph_part part = {.name = g->texts.items[m->name],
                          .kind = g->texts.items[m->kind],
                          .parent = TSR__NO_PART,
                          .begin = m->begin,
                          .end = m->end,
                          .first_input = TSR_NONE,
                          .is_fixed = tsr__step_graph_obstacle(g, index) != NULL};
  for (uint32_t i = 0; i < m->input_count; i++) {
    uint32_t slot = g->inputs.items[m->first_input + i];
    if (all[slot].made == TSR_NONE) continue;
    part.input_bytes += rounded(g->slots.items[slot].bytes);
    if (all[slot].made < part.first_input) part.first_input = all[slot].made;
  }
  add_saves(g, index, all, rates, &part);
  add_work(g, m, rates, &part);
  return part;
}

int tsr__list_graph_parts(const tsr__step_graph *graph, const tsr__machine_rates *rates,
                          tsr__graph_parts *out, tsr_error *error) {
  slot_saves *all = list_saves(graph);
  bool ok = all != NULL;
  for (size_t i = 0; ok && i < graph->modules.count; i++) {
    tsr__graph_part part = part_of(graph, i, all, rates);
    for (size_t k = i; k-- > 0 && part.parent == TSR__NO_PART;)
      if (graph->modules.items[k].end >= graph->modules.items[i].end &&
          graph->modules.items[k].end_save >= graph->modules.items[i].end_save)
        part.parent = k;
    ok = TSR__VECTOR_PUSH(out, part);
  }
  tsr__free(all);
  return ok ? 0 : tsr__fail_memory(error);
}
