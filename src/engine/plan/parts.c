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
  for (size_t i = 0; i < g->work.count && g->work.items[i].place < m->end; i++) {
    if (g->work.items[i].place < m->begin) continue;
    double seconds = tsr__cost_of_work(&g->work.items[i], rates);
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
                          .is_fixed = tsr__step_graph_obstacle(g, index) != NULL,
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

int tsr__list_parts(const tsr__step_graph *graph, const tsr__machine_rates *rates,
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
