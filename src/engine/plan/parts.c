/* parts.c - see parts.h. */
#include "plan/parts.h"

#include "base/checked.h"
#include "base/memory.h"
#include "traced/graph_data.h"
#include "traced/rewrite.h"

enum { BLOCK_BYTES = 512 }; /* the allocator's smallest */

static uint64_t rounded(uint64_t bytes) {
  return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

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
  for (size_t i = 0; i < g->instrs.count; i++)
    if (g->instrs.items[i].kind == TSR__INSTR_NEW)
      all[g->instrs.items[i].subject - 1].made = (uint32_t)i;
  return all;
}

/* Of each place, the first instruction from there on that cannot be in a rewritten module, or TSR_NONE. */
static uint32_t *list_obstacles(const tsr__step_graph *g) {
  size_t count = g->instrs.count;
  uint32_t *next = TSR__NEW_ARRAY(uint32_t, count + 1);
  bool *are = next ? tsr__step_graph_obstacles(g) : NULL;
  if (!are) {
    tsr__free(next);
    return NULL;
  }
  next[count] = TSR_NONE;
  for (size_t i = count; i-- > 0;) next[i] = are[i] ? (uint32_t)i : next[i + 1];
  tsr__free(are);
  return next;
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
    const tsr__save *save = &g->saves.items[k];
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
  for (size_t i = tsr__step_graph_first_work(g, g->work.count, m->begin);
       i < g->work.count && g->work.items[i].place < m->end; i++) {
    double seconds = tsr__cost_of_work(&g->work.items[i], rates);
    part->forward_s += seconds;
    if (g->work.items[i].place < last) part->again_s += seconds;
  }
}

static tsr__graph_part part_of(const tsr__step_graph *g, size_t index, slot_saves *all,
                               const uint32_t *obstacles, const tsr__machine_rates *rates) {
  const tsr__graph_module *m = &g->modules.items[index];
  tsr__graph_part part = {.name = g->texts.items[m->name],
                          .kind = g->texts.items[m->kind],
                          .parent = TSR__NO_PART,
                          .begin = m->begin,
                          .end = m->end,
                          .first_input = TSR_NONE,
                          .is_fixed = obstacles[m->begin] < m->end,
                          .is_once = tsr__step_graph_once(g, index) != NULL};
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

/* Calls that began, and may contain later ones: the innermost is the last. */
typedef TSR__VECTOR(size_t) open_calls;

/* The innermost call that contains call `index`, which is then open too. False when out of memory. */
static bool enter_call(const tsr__step_graph *g, size_t index, open_calls *open, size_t *parent) {
  const tsr__graph_module *all = g->modules.items, *m = &all[index];
  while (open->count && all[open->items[open->count - 1]].end < m->begin) open->count--;
  *parent = TSR__NO_PART;
  for (size_t i = open->count; i-- > 0 && *parent == TSR__NO_PART;) {
    const tsr__graph_module *outer = &all[open->items[i]];
    if (outer->end >= m->end && outer->end_save >= m->end_save) *parent = open->items[i];
  }
  return TSR__VECTOR_PUSH(open, index);
}

/* Note where the calls within each call end, in order: `outer` are those that contain all calls up to the one before. */
static bool end_parts(tsr__graph_parts *parts, open_calls *outer) {
  outer->count = 0;
  for (size_t i = 0; i < parts->count; i++) {
    size_t within = parts->items[i].parent; /* or further out, until it is one of them */
    while (outer->count && outer->items[outer->count - 1] != within) {
      size_t last = outer->items[outer->count - 1];
      if (within != TSR__NO_PART && within > last) {
        within = parts->items[within].parent;
      } else {
        parts->items[last].end_part = i;
        outer->count--;
      }
    }
    if (!TSR__VECTOR_PUSH(outer, i)) return false;
  }
  while (outer->count) parts->items[outer->items[--outer->count]].end_part = parts->count;
  return true;
}

/* Saves and ops within a call that take as long as an instruction that is simulated. */
enum { LOOKS_A_UNIT = 16 };

/* Calls within each other have the same saves and instructions, and each argument is compared with saves. */
static uint64_t work_of(const tsr__graph_module *m, const open_calls *open) {
  uint64_t saves = m->end_save - m->first_save;
  return (saves * (1 + m->input_count) + (m->end - m->begin) + open->count) / LOOKS_A_UNIT + 1;
}

int tsr__list_parts(const tsr__step_graph *graph, const tsr__machine_rates *rates,
                    tsr_effort *effort, tsr__graph_parts *out, tsr_error *error) {
  slot_saves *all = list_saves(graph);
  uint32_t *obstacles = list_obstacles(graph);
  open_calls open = {0};
  bool ok = all && obstacles;
  bool goes_on = true;
  for (size_t i = 0; ok && goes_on && i < graph->modules.count; i++) {
    goes_on = tsr__effort_go_on(effort, work_of(&graph->modules.items[i], &open));
    tsr__graph_part part = part_of(graph, i, all, obstacles, rates);
    ok = enter_call(graph, i, &open, &part.parent) && TSR__VECTOR_PUSH(out, part);
  }
  ok = ok && (!goes_on || end_parts(out, &open));
  TSR__VECTOR_FREE(&open);
  tsr__free(obstacles);
  tsr__free(all);
  if (!goes_on) return tsr__effort_fail(effort, error);
  return ok ? 0 : tsr__fail_memory(error);
}
