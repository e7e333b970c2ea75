/* rewrite.c - see rewrite.h.
 *
 *   forward        begin ── instructions of the module ── last save ── end        what only its saves held is freed early
 *   backward       ... first use of a save ── the same instructions again, up to the last save ── the node that uses it ...
 *
 * A copy of the graph gets edits: instructions to insert before others, and drops to leave out. Places are always
 * indices of the original's instructions. As in PyTorch, recomputation ends with the last tensor that is saved.
 * Tensors that it made without saving them are freed then; saved ones are freed when the node that uses them has
 * finished. The arguments of a checkpointed module stay until everything that it saved has been used, and so do copies of tensors that it
 * changes, as they were before; it runs again on copies of those.
 *
 * The file's information about saves is not trusted: the result is checked like the instructions of a file. */
#include "traced/rewrite.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"
#include "traced/graph_data.h"

/* An instruction to insert before the original's instruction `at`; several are inserted in the order in which they
 * were noted. */
typedef struct edit {
  uint32_t at, order;
  tsr__instr instr;
} edit;

/* A call of a module that is rewritten. */
typedef struct selection {
  uint32_t module;
  tsr__rewrite how;
} selection;

typedef struct rewriter {
  tsr__step_graph *g; /* the copy, whose schedule is the original's until the end */
  TSR__VECTOR(edit) edits;
  TSR__VECTOR(selection) selected;
  uint32_t *module_of;          /* by save: a selected module, or TSR_NONE */
  uint32_t *made_at, *freed_at; /* by slot of the original; TSR_NONE: not in this step */
  uint32_t *
      held; /* by slot of the original: how long it is held without the saves of selected modules */
  uint32_t *clone;    /* by slot of the original: its copy in the module under work, or TSR_NONE */
  uint32_t *released; /* by slot of the original: when the last save of its copy is */
  uint32_t *next_backward; /* by instruction: the first instruction of backward at or after it */
  bool *is_left_out;       /* by instruction */
  size_t slot_count, instr_count, work_count; /* of the original */
  size_t root, copy_root;       /* in the chain: where recomputation, and copies, are called from */
  size_t keep_root, clone_root; /* where state is copied, in forward and in backward */
  tsr__map called;              /* stack of the original -> the same, called from the former */
  const char *missing;          /* a pattern that matches nothing, or NULL */
  bool is_both;                 /* a call is to be checkpointed and offloaded, or a part of it is */
} rewriter;

/* ---- Names ---- */

static bool matches(const char *text, const char *pattern) {
  const char *star = NULL, *from = NULL;
  while (*text) {
    if (*pattern == '*') {
      star = pattern++;
      from = text;
    } else if (*pattern == *text) {
      pattern++;
      text++;
    } else if (star) {
      pattern = star + 1;
      text = ++from;
    } else {
      return false;
    }
  }
  while (*pattern == '*') pattern++;
  return !*pattern;
}

/* ---- The copy ---- */

static bool add_text(tsr__step_graph *g, const char *text) {
  size_t size = strlen(text) + 1;
  char *copy = TSR__NEW_ARRAY(char, size);
  if (!copy) return false;
  memcpy(copy, text, size);
  if (TSR__VECTOR_PUSH(&g->texts, copy)) return true;
  tsr__free(copy);
  return false;
}

#define COPY(to, from)                               \
  do {                                               \
    for (size_t c = 0; ok && c < (from)->count; c++) \
      ok = TSR__VECTOR_PUSH((to), (from)->items[c]); \
  } while (0)

tsr__step_graph *tsr__step_graph_copy(const tsr__step_graph *from) {
  tsr__step_graph *to = TSR__NEW(tsr__step_graph);
  bool ok = to != NULL;
  if (!ok) return NULL;
  to->static_count = from->static_count;
  to->parameter_count = from->parameter_count;
  to->is_work_assumed = from->is_work_assumed;
  to->lacks_kernels = from->lacks_kernels;
  to->origin = from->origin ? from->origin : from;
  memcpy(to->optimizer, from->optimizer, sizeof to->optimizer);
  memcpy(to->gpu, from->gpu, sizeof to->gpu);
  memcpy(to->notes, from->notes, sizeof to->notes);
  for (size_t i = 0; ok && i < from->texts.count; i++) ok = add_text(to, from->texts.items[i]);
  COPY(&to->frames, &from->frames);
  COPY(&to->chain, &from->chain);
  COPY(&to->first, &from->first);
  COPY(&to->slots, &from->slots);
  COPY(&to->instrs, &from->instrs);
  COPY(&to->saves, &from->saves);
  COPY(&to->inputs, &from->inputs);
  COPY(&to->modules, &from->modules);
  COPY(&to->unheld, &from->unheld);
  COPY(&to->work, &from->work);
  COPY(&to->form_slots, &from->form_slots);
  COPY(&to->form_instrs, &from->form_instrs);
  COPY(&to->forms, &from->forms);
  to->optimizer_count = from->optimizer_count;
  if (ok) return to;
  tsr__step_graph_free(to);
  return NULL;
}

/* ---- Stacks ---- */

/* Add a frame to the end of the chain. */
static bool add_frame(tsr__step_graph *g, const char *name, const char *file) {
  tsr__graph_frame frame = {(uint32_t)g->texts.count, (uint32_t)g->texts.count + 1, 0};
  return add_text(g, name) && add_text(g, file) && TSR__VECTOR_PUSH(&g->frames, frame) &&
         TSR__VECTOR_PUSH(&g->chain, (uint32_t)g->frames.count - 1);
}

/* A frame that calls what the rewrite adds, as a stack of its own: an op first if there is one. */
static bool add_call(rewriter *w, size_t *root, const char *op, const char *name,
                     const char *file) {
  tsr__step_graph *g = w->g;
  *root = g->chain.count;
  return (!op || add_frame(g, op, "??")) && add_frame(g, name, file) &&
         TSR__VECTOR_PUSH(&g->chain, TSR_NONE);
}

/* The same, called by backward. */
static bool add_root(rewriter *w, size_t *root, const char *op, const char *name,
                     const char *file) {
  tsr__step_graph *g = w->g;
  if (!add_call(w, root, op, name, file)) return false;
  g->chain.count--;
  return add_frame(g, "torch::autograd::Engine::evaluate_function", "??") &&
         TSR__VECTOR_PUSH(&g->chain, TSR_NONE);
}

/* The stack of an instruction, called by the root. */
static bool add_stack(rewriter *w, uint32_t stack, uint32_t *out) {
  tsr__step_graph *g = w->g;
  bool is_new;
  assert(stack < w->root && w->root < g->chain.count);
  const uint64_t *known = tsr__map_put(&w->called, stack, g->chain.count, &is_new);
  if (!known || g->chain.count >= UINT32_MAX / 2) return false;
  *out = (uint32_t)*known;
  if (!is_new) return true;
  for (size_t i = stack; g->chain.items[i] != TSR_NONE; i++)
    if (!TSR__VECTOR_PUSH(&g->chain, g->chain.items[i])) return false;
  for (size_t i = w->root; g->chain.items[i] != TSR_NONE; i++)
    if (!TSR__VECTOR_PUSH(&g->chain, g->chain.items[i])) return false;
  return TSR__VECTOR_PUSH(&g->chain, TSR_NONE);
}

/* ---- Edits ---- */

static bool insert(rewriter *w, uint32_t at, tsr__instr_kind kind, uint32_t slot, uint32_t stack) {
  assert(at <= w->instr_count && slot < w->g->slots.count);
  edit e = {.at = at,
            .order = (uint32_t)w->edits.count,
            .instr = {.kind = (uint8_t)kind,
                      .subject = slot + 1,
                      .stack = stack,
                      .is_backward = kind == TSR__INSTR_NEW}};
  return w->edits.count < TSR__MOST_INSTRUCTIONS && TSR__VECTOR_PUSH(&w->edits, e);
}

static bool add_slot(rewriter *w, uint64_t bytes, tsr_category category, uint32_t *slot) {
  assert(bytes && category < TSR_CATEGORY_COUNT);
  tsr__slot made = {.bytes = bytes, .category = (uint8_t)category};
  *slot = (uint32_t)w->g->slots.count;
  return w->g->slots.count < TSR__STEP_GRAPH_MOST_SLOTS && TSR__VECTOR_PUSH(&w->g->slots, made);
}

/* ---- What the step does ---- */

static uint32_t slot_of(const tsr__instr *instr) {
  assert(instr->subject);
  return instr->subject - 1;
}

static void read_lives(rewriter *w) {
  for (size_t i = 0; i < w->slot_count; i++)
    w->made_at[i] = w->freed_at[i] = w->held[i] = w->clone[i] = TSR_NONE;
  uint32_t backward = w->next_backward[w->instr_count] = (uint32_t)w->instr_count;
  for (size_t i = w->instr_count; i-- > 0;) {
    const tsr__instr *instr = &w->g->instrs.items[i];
    if (instr->kind == TSR__INSTR_BEGIN && instr->subject == TSR__PHASE_BACKWARD)
      backward = (uint32_t)i;
    w->next_backward[i] = backward;
    if (instr->kind == TSR__INSTR_NEW) w->made_at[slot_of(instr)] = (uint32_t)i;
    if (instr->kind == TSR__INSTR_DROP) w->freed_at[slot_of(instr)] = (uint32_t)i;
  }
}

static bool is_within(const tsr__graph_module *inner, const tsr__graph_module *outer) {
  return inner->begin >= outer->begin && inner->end <= outer->end &&
         inner->first_save >= outer->first_save && inner->end_save <= outer->end_save;
}

/* A choice that a call may match. Those with * come first, then names, sorted. */
typedef struct candidate {
  const char *pattern;
  size_t order; /* among the choices */
  tsr__rewrite how;
  bool is_wild, has_matched;
} candidate;

typedef struct candidates {
  candidate *items;
  size_t count, wild_count;
} candidates;

static int compare_candidates(const void *left, const void *right) {
  const candidate *a = left, *b = right;
  if (a->is_wild != b->is_wild) return a->is_wild ? -1 : 1;
  int order = a->is_wild ? 0 : strcmp(a->pattern, b->pattern);
  return order ? order : (a->order > b->order) - (a->order < b->order);
}

static bool sort_choices(const tsr__rewrite_choice *choices, size_t count, candidates *out) {
  out->items = TSR__NEW_ARRAY(candidate, count + 1);
  if (!out->items) return false;
  for (size_t i = 0; i < count; i++) {
    bool is_wild = strchr(choices[i].pattern, '*') != NULL;
    out->items[i] = (candidate){choices[i].pattern, i, choices[i].how, is_wild, false};
    out->wild_count += is_wild;
  }
  out->count = count;
  tsr__sort(out->items, count, sizeof *out->items, compare_candidates);
  return true;
}

/* A call that is chosen: the first of its choices, and whether another one differs. */
typedef struct chosen {
  const candidate *first; /* or NULL */
  bool is_both;
} chosen;

static void note_choice(candidate *c, chosen *out) {
  c->has_matched = true;
  out->is_both |= out->first && out->first->how != c->how;
  if (!out->first || c->order < out->first->order) out->first = c;
}

/* The choices of exactly this text. */
static void choose_text(const candidates *all, const char *text, chosen *out) {
  size_t low = all->wild_count, high = all->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (strcmp(all->items[middle].pattern, text) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < all->count && strcmp(all->items[low].pattern, text) == 0; low++)
    note_choice(&all->items[low], out);
}

static chosen choose(const tsr__step_graph *g, const tsr__graph_module *module,
                     const candidates *all) {
  const char *name = g->texts.items[module->name], *kind = g->texts.items[module->kind];
  chosen out = {.first = NULL};
  for (size_t i = 0; i < all->wild_count; i++)
    if (matches(name, all->items[i].pattern) || matches(kind, all->items[i].pattern))
      note_choice(&all->items[i], &out);
  choose_text(all, name, &out);
  choose_text(all, kind, &out);
  return out;
}

/* Calls are in the order in which they begin, so what contains a call is before it. */
static bool select_calls(rewriter *w, const candidates *all) {
  const tsr__step_graph *g = w->g;
  for (uint32_t i = 0; i < (uint32_t)g->modules.count; i++) {
    const tsr__graph_module *module = &g->modules.items[i];
    chosen choice = choose(g, module, all);
    w->is_both |= choice.is_both;
    if (!choice.first) continue;
    assert(w->selected.items || !w->selected.count);
    const selection *last = w->selected.count ? &w->selected.items[w->selected.count - 1] : NULL;
    if (last && is_within(module, &g->modules.items[last->module])) {
      w->is_both |= last->how != choice.first->how;
      continue;
    }
    if (!TSR__VECTOR_PUSH(&w->selected, (selection){i, choice.first->how})) return false;
    for (uint32_t k = module->first_save; k < module->end_save; k++) w->module_of[k] = i;
  }
  return true;
}

/* The first pattern that matches no call. */
static const char *missing_of(const candidates *all) {
  const candidate *first = NULL;
  for (size_t i = 0; i < all->count; i++) {
    const candidate *c = &all->items[i];
    if (!c->has_matched && (!first || c->order < first->order)) first = c;
  }
  return first ? first->pattern : NULL;
}

static bool select_modules(rewriter *w, const tsr__rewrite_choice *choices, size_t count) {
  candidates all = {.count = 0};
  bool ok = sort_choices(choices, count, &all) && select_calls(w, &all);
  if (ok) w->missing = missing_of(&all);
  tsr__free(all.items);
  return ok;
}

/* Whether a frame of a stack is PyTorch's checkpointing. */
static bool is_checkpointed(const tsr__step_graph *g, uint32_t stack) {
  static const char file[] = "torch/utils/checkpoint.py";
  for (size_t i = stack; g->chain.items[i] != TSR_NONE; i++) {
    const char *path = g->texts.items[g->frames.items[g->chain.items[i]].file];
    size_t size = strlen(path);
    if (size >= sizeof file - 1 && strcmp(path + size - (sizeof file - 1), file) == 0) return true;
  }
  return false;
}

static bool bounds_phase(const tsr__instr *instr) {
  return instr->kind == TSR__INSTR_BEGIN || instr->kind == TSR__INSTR_END;
}

bool *tsr__step_graph_obstacles(const tsr__step_graph *g) {
  enum { UNKNOWN, PLAIN, CHECKPOINTED };
  bool *are = TSR__NEW_ARRAY(bool, g->instrs.count + 1);
  uint8_t *known = TSR__NEW_ARRAY(uint8_t, g->chain.count + 1); /* by stack */
  for (size_t i = 0; are && known && i < g->instrs.count; i++) {
    const tsr__instr *instr = &g->instrs.items[i];
    are[i] = bounds_phase(instr);
    if (are[i] || instr->stack == TSR_NONE) continue;
    uint8_t *stack = &known[instr->stack];
    if (*stack == UNKNOWN) *stack = is_checkpointed(g, instr->stack) ? CHECKPOINTED : PLAIN;
    are[i] = *stack == CHECKPOINTED;
  }
  if (!known) {
    tsr__free(are);
    are = NULL;
  }
  tsr__free(known);
  return are;
}

const char *tsr__step_graph_once(const tsr__step_graph *g, size_t index) {
  uint32_t why = g->modules.items[index].why_once;
  return why == TSR_NONE ? NULL : g->texts.items[why];
}

/* The reason why a module cannot run again, with its name; NULL if there is no such module. */
static const char *why_once(const rewriter *w, const char **name) {
  for (size_t k = 0; k < w->selected.count; k++) {
    uint32_t module = w->selected.items[k].module;
    const char *why = tsr__step_graph_once(w->g, module);
    *name = w->g->texts.items[w->g->modules.items[module].name];
    if (why && w->selected.items[k].how == TSR__REWRITE_CHECKPOINT) return why;
  }
  return NULL;
}

/* The reason why a module cannot be rewritten, with its name; NULL if there is no such module. */
static const char *obstacle(const rewriter *w, const bool *are, const char **name) {
  uint32_t end = 0;
  for (size_t k = 0; k < w->selected.count; k++) {
    const tsr__graph_module *module = &w->g->modules.items[w->selected.items[k].module];
    *name = w->g->texts.items[module->name];
    if (module->begin < end) return "begins before another one has ended";
    end = module->end;
    for (uint32_t i = module->begin; i < module->end; i++)
      if (are[i])
        return bounds_phase(&w->g->instrs.items[i]) ? "contains a phase of the step"
                                                    : "is checkpointed already";
  }
  return NULL;
}

static uint32_t later(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

/* When the last save of a module is released; TSR_NONE, which is later than all others, if that is not in this
 * step. */
static uint32_t end_of_saves(const rewriter *w, const tsr__graph_module *module) {
  uint32_t end = 0;
  for (uint32_t k = module->first_save; k < module->end_save; k++)
    end = later(end, w->g->saves.items[k].gone);
  return end;
}

/* How long each slot is held without the saves that are removed. */
static void find_held(rewriter *w) {
  const tsr__step_graph *g = w->g;
  for (size_t i = 0; i < w->slot_count; i++)
    w->held[i] = g->unheld.items[i] == TSR_NONE ? w->freed_at[i] : g->unheld.items[i];
  for (size_t k = 0; k < g->saves.count; k++) {
    const tsr__save *save = &g->saves.items[k];
    if (w->module_of[k] == TSR_NONE && save->slot != TSR_NONE)
      w->held[save->slot] = later(w->held[save->slot], save->gone);
  }
  for (size_t k = 0; k < w->selected.count; k++) {
    if (w->selected.items[k].how != TSR__REWRITE_CHECKPOINT) continue;
    const tsr__graph_module *module = &g->modules.items[w->selected.items[k].module];
    uint32_t end = end_of_saves(w, module);
    for (uint32_t i = 0; i < module->input_count; i++) {
      uint32_t slot = g->inputs.items[module->first_input + i];
      w->held[slot] = later(w->held[slot], end);
    }
  }
}

/* Free each slot when nothing holds it any more. That may be later than before, for arguments of checkpoints. Slots
 * that are freed before backward begins do not count as kept for backward; others do. */
static bool free_when_unheld(rewriter *w) {
  for (uint32_t i = 0; i < (uint32_t)w->slot_count; i++) {
    uint32_t at = w->held[i] < w->instr_count ? w->held[i] : (uint32_t)w->instr_count;
    if (w->made_at[i] == TSR_NONE || w->freed_at[i] == TSR_NONE || at == w->freed_at[i]) continue;
    tsr__slot *slot = &w->g->slots.items[i];
    bool is_kept = at > w->next_backward[w->made_at[i]];
    if (slot->category == TSR_CATEGORY_ACTIVATION && !is_kept)
      slot->category = TSR_CATEGORY_TEMPORARY;
    else if (slot->category == TSR_CATEGORY_TEMPORARY && is_kept)
      slot->category = TSR_CATEGORY_ACTIVATION;
    w->is_left_out[w->freed_at[i]] = true;
    if (!insert(w, at, TSR__INSTR_DROP, i, TSR_NONE)) return false;
  }
  return true;
}

/* ---- Checkpoints ---- */

/* The first use of a save of the module, and the last place at which one is made. False if none is used in this step. */
static bool range_of(const rewriter *w, const tsr__graph_module *module, uint32_t *use,
                     uint32_t *last) {
  assert(module->first_save <= module->end_save && module->end_save <= w->g->saves.count);
  *use = TSR_NONE;
  *last = module->begin;
  for (uint32_t k = module->first_save; k < module->end_save; k++) {
    const tsr__save *save = &w->g->saves.items[k];
    if (save->used < *use) *use = save->used;
    *last = later(*last, save->made);
  }
  if (*last > module->end) *last = module->end;
  return *use != TSR_NONE;
}

/* Make the slots of the module again, and free those that the program releases before the last save. */
static bool replay(rewriter *w, const tsr__graph_module *module, uint32_t use, uint32_t last) {
  assert(module->begin <= last && last <= w->instr_count && use <= w->instr_count);
  for (uint32_t i = module->begin; i < last; i++) {
    const tsr__instr instr = w->g->instrs.items[i];
    if (instr.kind == TSR__INSTR_NEW) {
      uint32_t slot = slot_of(&instr), stack = instr.stack;
      bool is_saved = w->released[slot] != 0;
      tsr_category before = (tsr_category)w->g->slots.items[slot].category;
      tsr_category category = before == TSR_CATEGORY_CAST ? before
                              : is_saved                  ? TSR_CATEGORY_RECOMPUTED
                                                          : TSR_CATEGORY_TEMPORARY;
      if (!add_slot(w, w->g->slots.items[slot].bytes, category, &w->clone[slot])) return false;
      if (stack != TSR_NONE && !add_stack(w, instr.stack, &stack)) return false;
      if (!insert(w, use, TSR__INSTR_NEW, w->clone[slot], stack)) return false;
    }
    /* Nothing held the slot at the original's drop, so the program had released it by then. */
    bool is_drop = instr.kind == TSR__INSTR_DROP && w->clone[slot_of(&instr)] != TSR_NONE;
    if (!is_drop || w->released[slot_of(&instr)]) continue;
    if (!insert(w, use, TSR__INSTR_DROP, w->clone[slot_of(&instr)], TSR_NONE)) return false;
    w->clone[slot_of(&instr)] = TSR_NONE;
  }
  return true;
}

/* Free the slots that are left: saved ones when they have been used, the rest when recomputation stops. */
static bool end_replay(rewriter *w, const tsr__graph_module *module, uint32_t use, uint32_t last) {
  for (uint32_t i = module->begin; i < last; i++) {
    const tsr__instr *instr = &w->g->instrs.items[i];
    uint32_t slot = instr->kind == TSR__INSTR_NEW ? slot_of(instr) : TSR_NONE;
    if (slot == TSR_NONE || w->clone[slot] == TSR_NONE) continue;
    uint32_t at = later(use, w->released[slot]);
    if (at > w->instr_count) at = (uint32_t)w->instr_count;
    if (!insert(w, at, TSR__INSTR_DROP, w->clone[slot], TSR_NONE)) return false;
    w->clone[slot] = TSR_NONE;
  }
  return true;
}

size_t tsr__step_graph_first_work(const tsr__step_graph *g, size_t count, uint32_t place) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (g->work.items[middle].place < place)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* What runs before the instructions from `begin` on runs once more. */
static bool repeat_work(rewriter *w, uint32_t begin, uint32_t last) {
  for (size_t i = tsr__step_graph_first_work(w->g, w->work_count, begin);
       i < w->work_count && w->g->work.items[i].place < last; i++) {
    tsr__op_work work = w->g->work.items[i];
    work.phase = TSR__PHASE_BACKWARD;
    if (!TSR__VECTOR_PUSH(&w->g->work, work)) return false;
  }
  return true;
}

/* Copy the module's state before it runs. */
static bool keep_state(rewriter *w, const tsr__graph_module *module) {
  uint32_t end = module->first_save < module->end_save ? end_of_saves(w, module) : module->end;
  if (end > w->instr_count) end = (uint32_t)w->instr_count;
  for (uint32_t i = 0; i < module->state_count; i++) {
    uint64_t bytes = w->g->slots.items[w->g->inputs.items[module->first_state + i]].bytes;
    uint32_t slot;
    if (!add_slot(w, bytes, TSR_CATEGORY_ACTIVATION, &slot) ||
        !insert(w, module->begin, TSR__INSTR_NEW, slot, (uint32_t)w->keep_root))
      return false;
    w->edits.items[w->edits.count - 1].instr.is_backward = false;
    if (!insert(w, end, TSR__INSTR_DROP, slot, TSR_NONE)) return false;
  }
  return true;
}

/* Copy what keep_state() kept, for the module to change when it runs again. Autograd may save a copy. */
static bool copy_state(rewriter *w, const tsr__graph_module *module, uint32_t use) {
  for (uint32_t i = 0; i < module->state_count; i++) {
    uint32_t of = w->g->inputs.items[module->first_state + i], slot;
    tsr_category category = w->released[of] ? TSR_CATEGORY_RECOMPUTED : TSR_CATEGORY_TEMPORARY;
    if (!add_slot(w, w->g->slots.items[of].bytes, category, &slot) ||
        !insert(w, use, TSR__INSTR_NEW, slot, (uint32_t)w->clone_root))
      return false;
    w->clone[of] = slot;
  }
  return true;
}

/* Free these copies. */
static bool drop_state(rewriter *w, const tsr__graph_module *module, uint32_t use) {
  for (uint32_t i = 0; i < module->state_count; i++) {
    uint32_t of = w->g->inputs.items[module->first_state + i];
    if (w->clone[of] == TSR_NONE) continue; /* listed twice, or freed with what the step makes */
    uint32_t at = later(use, w->released[of]);
    if (at > w->instr_count) at = (uint32_t)w->instr_count;
    if (!insert(w, at, TSR__INSTR_DROP, w->clone[of], TSR_NONE)) return false;
    w->clone[of] = TSR_NONE;
  }
  return true;
}

static bool checkpoint(rewriter *w, const tsr__graph_module *module) {
  uint32_t use, last;
  if (!keep_state(w, module)) return false;
  if (!range_of(w, module, &use, &last)) return true;
  for (uint32_t k = module->first_save; k < module->end_save; k++) {
    const tsr__save *save = &w->g->saves.items[k];
    if (save->slot != TSR_NONE)
      w->released[save->slot] = later(w->released[save->slot], save->left);
  }
  bool ok = repeat_work(w, module->begin, last) && copy_state(w, module, use) &&
            replay(w, module, use, last) && end_replay(w, module, use, last) &&
            drop_state(w, module, use);
  for (uint32_t k = module->first_save; k < module->end_save; k++)
    if (w->g->saves.items[k].slot != TSR_NONE) w->released[w->g->saves.items[k].slot] = 0;
  return ok;
}

/* ---- Offloading ---- */

/* The host has a copy of a saved tensor from when it is saved until autograd releases it, in this step or after it. */
static bool keep_on_host(rewriter *w, const tsr__save *save) {
  uint32_t slot, gone = save->gone == TSR_NONE ? (uint32_t)w->instr_count : save->gone;
  if (!add_slot(w, save->bytes, TSR_CATEGORY_ACTIVATION, &slot)) return false;
  w->g->slots.items[slot].space = TSR__SPACE_HOST;
  if (!insert(w, save->made, TSR__INSTR_NEW, slot, (uint32_t)w->copy_root)) return false;
  w->edits.items[w->edits.count - 1].instr.is_backward = false;
  return insert(w, later(gone, save->made), TSR__INSTR_DROP, slot, TSR_NONE);
}

/* Copy each saved tensor back for the node that uses it. */
static bool offload(rewriter *w, const tsr__graph_module *module) {
  for (uint32_t k = module->first_save; k < module->end_save; k++) {
    const tsr__save save = w->g->saves.items[k];
    uint32_t slot;
    if (save.slot == TSR_NONE || !save.bytes) continue;
    w->g->copied_bytes = tsr__sum_u64(w->g->copied_bytes, save.bytes);
    if (!keep_on_host(w, &save)) return false;
    if (save.used == TSR_NONE) continue;
    w->g->copied_bytes = tsr__sum_u64(w->g->copied_bytes, save.bytes);
    uint32_t gone = save.left == TSR_NONE ? (uint32_t)w->instr_count : save.left;
    if (!add_slot(w, save.bytes, TSR_CATEGORY_ACTIVATION, &slot) ||
        !insert(w, save.used, TSR__INSTR_NEW, slot, (uint32_t)w->copy_root) ||
        !insert(w, gone, TSR__INSTR_DROP, slot, TSR_NONE))
      return false;
  }
  return true;
}

/* ---- The result ---- */

static int compare_edits(const void *a, const void *b) {
  const edit *x = a, *y = b;
  if (x->at != y->at) return x->at < y->at ? -1 : 1;
  return (x->order > y->order) - (x->order < y->order);
}

/* Put the edits into the schedule. TSR_ERROR_FORMAT if one of them has no place. */
static int apply(rewriter *w) {
  tsr__instrs out = {0};
  size_t next = 0;
  bool ok = true;
  tsr__sort(w->edits.items, w->edits.count, sizeof *w->edits.items, compare_edits);
  for (size_t i = 0; ok && i <= w->instr_count; i++) {
    for (; ok && next < w->edits.count && w->edits.items[next].at == i; next++)
      ok = TSR__VECTOR_PUSH(&out, w->edits.items[next].instr);
    if (ok && i < w->instr_count && !w->is_left_out[i])
      ok = TSR__VECTOR_PUSH(&out, w->g->instrs.items[i]);
  }
  TSR__VECTOR_FREE(&w->g->instrs);
  w->g->instrs = out;
  if (!ok) return TSR_ERROR_MEMORY;
  return next == w->edits.count ? 0 : TSR_ERROR_FORMAT;
}

/* TSR_ERROR_FORMAT unless each slot is made once and freed at most once after it, in this step or in the next. */
static int check(const tsr__step_graph *g) {
  enum { NOT_MADE, LIVE, FREED, FOR_GOOD };
  uint8_t *state = TSR__NEW_ARRAY(uint8_t, g->slots.count + 1);
  if (!state) return TSR_ERROR_MEMORY;
  bool ok = g->instrs.count < TSR__MOST_INSTRUCTIONS;
  for (size_t i = 0; ok && i < g->instrs.count; i++) {
    const tsr__instr *instr = &g->instrs.items[i];
    bool makes = instr->kind == TSR__INSTR_NEW || instr->kind == TSR__INSTR_NEW_ONCE;
    if (!makes && instr->kind != TSR__INSTR_DROP) continue;
    uint32_t slot = slot_of(instr);
    ok = slot >= g->static_count && state[slot] == (makes ? NOT_MADE : LIVE);
    state[slot] = (uint8_t)(!makes ? FREED : instr->kind == TSR__INSTR_NEW_ONCE ? FOR_GOOD : LIVE);
  }
  for (size_t i = g->static_count; ok && i < g->slots.count; i++)
    ok = state[i] != NOT_MADE && (state[i] == LIVE) == g->slots.items[i].is_carried;
  tsr__free(state);
  return ok ? 0 : TSR_ERROR_FORMAT;
}

/* ---- All of it ---- */

static bool open_rewriter(rewriter *w, const tsr__step_graph *graph) {
  assert(graph->unheld.count == graph->slots.count);
  w->slot_count = graph->slots.count;
  w->instr_count = graph->instrs.count;
  w->work_count = graph->work.count;
  w->g = tsr__step_graph_copy(graph);
  w->module_of = TSR__NEW_ARRAY(uint32_t, graph->saves.count + 1);
  uint32_t **columns[] = {&w->made_at, &w->freed_at, &w->held, &w->clone, &w->released};
  bool ok = w->g && w->module_of;
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
    *columns[i] = TSR__NEW_ARRAY(uint32_t, w->slot_count + 1);
    ok = ok && *columns[i];
  }
  w->is_left_out = TSR__NEW_ARRAY(bool, w->instr_count + 1);
  w->next_backward = TSR__NEW_ARRAY(uint32_t, w->instr_count + 1);
  ok = ok && w->is_left_out && w->next_backward;
  for (size_t k = 0; ok && k < graph->saves.count; k++) w->module_of[k] = TSR_NONE;
  if (ok) read_lives(w);
  return ok;
}

static void close_rewriter(rewriter *w) {
  TSR__VECTOR_FREE(&w->edits);
  TSR__VECTOR_FREE(&w->selected);
  tsr__map_release(&w->called);
  tsr__free(w->module_of);
  tsr__free(w->made_at);
  tsr__free(w->freed_at);
  tsr__free(w->held);
  tsr__free(w->clone);
  tsr__free(w->released);
  tsr__free(w->is_left_out);
  tsr__free(w->next_backward);
}

static bool edit_all(rewriter *w) {
  bool has[2] = {false, false};
  for (size_t i = 0; i < w->selected.count; i++) has[w->selected.items[i].how] = true;
  static const char file[] = "torch/utils/checkpoint.py", clone[] = "at::_ops::clone::call";
  bool ok =
      !has[TSR__REWRITE_CHECKPOINT] || (add_root(w, &w->root, NULL, "unpack_hook", file) &&
                                        add_root(w, &w->clone_root, clone, "unpack_hook", file) &&
                                        add_call(w, &w->keep_root, clone, "checkpoint", file));
  if (ok && has[TSR__REWRITE_OFFLOAD])
    ok = add_root(w, &w->copy_root, "at::_ops::_to_copy::call", "unpack_from_cpu",
                  "torch/autograd/graph.py");
  find_held(w);
  ok = ok && free_when_unheld(w);
  /* In the order of backward: what a module has there is freed before the next one runs again. */
  for (size_t i = w->selected.count; ok && i-- > 0;) {
    const tsr__graph_module module = w->g->modules.items[w->selected.items[i].module];
    bool is_checkpoint = w->selected.items[i].how == TSR__REWRITE_CHECKPOINT;
    ok = is_checkpoint ? checkpoint(w, &module) : offload(w, &module);
  }
  return ok;
}

static int refuse(const rewriter *w, tsr_error *error) {
  const char *name = NULL;
  if (!w->g->modules.count)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "this step graph does not contain its modules: trace it again");
  if (w->missing)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "no module of the step graph has a name or a class like '%.80s'; one is "
                     "called '%.80s', of class '%.80s'",
                     w->missing,
                     w->g->texts.items[w->g->modules.items[w->g->modules.count / 2].name],
                     w->g->texts.items[w->g->modules.items[w->g->modules.count / 2].kind]);
  if (w->is_both)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "a module of a step graph can be checkpointed or offloaded, not both, and "
                     "neither can a part of it");
  bool *are = tsr__step_graph_obstacles(w->g);
  if (!are) return tsr__fail_memory(error);
  const char *why = obstacle(w, are, &name);
  tsr__free(are);
  if (why)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "the module '%.80s' %s", name,
                     why);
  why = why_once(w, &name);
  if (!why) return 0;
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                   "the module '%.80s' cannot run again in backward: it %.120s", name, why);
}

int tsr__step_graph_rewrite(const tsr__step_graph *graph, const tsr__rewrite_choice *choices,
                            size_t count, tsr__step_graph **out, tsr_error *error) {
  rewriter w = {0};
  int status =
      open_rewriter(&w, graph) && select_modules(&w, choices, count) ? 0 : tsr__fail_memory(error);
  if (status == 0) status = refuse(&w, error);
  if (status == 0 && !edit_all(&w)) status = tsr__fail_memory(error);
  int made = status ? 0 : apply(&w);
  if (status == 0 && made == 0) made = check(w.g);
  if (made == TSR_ERROR_MEMORY) status = tsr__fail_memory(error);
  if (made == TSR_ERROR_FORMAT)
    status = tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                       "step graph: what is saved contradicts the instructions");
  close_rewriter(&w);
  if (status)
    tsr__step_graph_free(w.g);
  else
    *out = w.g;
  return status;
}
