/* optimizer_form.c - see rewrite.h.
 *
 * The tracer has run each optimizer in all of its forms, so this file replaces the instructions of the optimizer's
 * phase by those of another form. Slots that only the old form makes are removed, and the rest are numbered again.
 * Afterwards the indices of saves and modules into the schedule are not valid any more, so this rewrite is the last
 * one. */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "traced/graph_data.h"
#include "traced/rewrite.h"

typedef struct exchange {
  const tsr__step_graph *from;
  tsr__step_graph *to; /* a copy, whose slots and schedule are made again */
  uint32_t *number;    /* by slot of the original: in the copy; TSR_NONE: gone */
  tsr__form_kind form;
} exchange;

static const tsr__graph_form *form_of(const exchange *x, uint32_t optimizer) {
  for (size_t i = 0; i < x->from->forms.count; i++) {
    const tsr__graph_form *form = &x->from->forms.items[i];
    if (form->optimizer == optimizer && form->form == x->form) return form;
  }
  return NULL;
}

/* Depth of optimizers' phases after an instruction. */
static uint32_t depth_after(const tsr__instr *instr, uint32_t depth) {
  bool is_optimizer = instr->subject == TSR__PHASE_OPTIMIZER;
  if (instr->kind == TSR__INSTR_BEGIN && is_optimizer) return depth + 1;
  if (instr->kind == TSR__INSTR_END && is_optimizer) return depth - 1;
  return depth;
}

static bool is_of_slot(const tsr__instr *instr) {
  return instr->kind == TSR__INSTR_NEW || instr->kind == TSR__INSTR_NEW_ONCE ||
         instr->kind == TSR__INSTR_DROP || instr->kind == TSR__INSTR_DROP_PREV;
}

/* Number the slots that stay. False without memory. */
static bool number_slots(exchange *x) {
  const tsr__step_graph *from = x->from;
  uint32_t depth = 0;
  for (size_t i = 0; i < from->instrs.count; i++) {
    const tsr__instr *instr = &from->instrs.items[i];
    bool makes = instr->kind == TSR__INSTR_NEW || instr->kind == TSR__INSTR_NEW_ONCE;
    depth = depth_after(instr, depth);
    if (depth && makes) x->number[instr->subject - 1] = TSR_NONE;
  }
  x->to->slots.count = x->to->unheld.count = 0;
  for (size_t i = 0; i < from->slots.count; i++) {
    if (x->number[i] == TSR_NONE) continue;
    x->number[i] = (uint32_t)x->to->slots.count;
    if (!TSR__VECTOR_PUSH(&x->to->slots, from->slots.items[i]) ||
        !TSR__VECTOR_PUSH(&x->to->unheld, TSR_NONE))
      return false;
  }
  return true;
}

static bool add_form(exchange *x, const tsr__graph_form *form, bool is_backward) {
  uint32_t first = (uint32_t)x->to->slots.count;
  if (first + (uint64_t)form->slot_count > TSR__STEP_GRAPH_MOST_SLOTS) return false;
  for (size_t i = 0; i < form->slot_count; i++)
    if (!TSR__VECTOR_PUSH(&x->to->slots, x->from->form_slots.items[form->first_slot + i]) ||
        !TSR__VECTOR_PUSH(&x->to->unheld, TSR_NONE))
      return false;
  for (size_t i = 0; i < form->instr_count; i++) {
    tsr__instr instr = x->from->form_instrs.items[form->first_instr + i];
    assert(instr.subject && instr.subject <= form->slot_count);
    instr.subject += first;
    instr.is_backward = is_backward;
    if (!TSR__VECTOR_PUSH(&x->to->instrs, instr)) return false;
  }
  return true;
}

/* TSR_ERROR_ARGUMENT if memory of the optimizer is used elsewhere, TSR_ERROR_MEMORY, or 0. */
static int exchange_schedule(exchange *x) {
  const tsr__step_graph *from = x->from;
  uint32_t depth = 0, optimizer = 0;
  x->to->instrs.count = 0;
  for (size_t i = 0; i < from->instrs.count; i++) {
    tsr__instr instr = from->instrs.items[i];
    uint32_t before = depth;
    depth = depth_after(&instr, depth);
    bool begins = depth && !before, is_within = depth && before;
    if (is_of_slot(&instr)) {
      uint32_t number = x->number[instr.subject - 1];
      if (is_within != (number == TSR_NONE)) return TSR_ERROR_ARGUMENT;
      if (is_within) continue;
      instr.subject = number + 1;
    } else if (is_within) {
      continue; /* phases within */
    }
    if (!TSR__VECTOR_PUSH(&x->to->instrs, instr)) return TSR_ERROR_MEMORY;
    if (begins && !add_form(x, form_of(x, optimizer++), instr.is_backward)) return TSR_ERROR_MEMORY;
  }
  return x->to->instrs.count < TSR__MOST_INSTRUCTIONS ? 0 : TSR_ERROR_MEMORY;
}

static uint32_t count_optimizers(const tsr__step_graph *graph) {
  uint32_t depth = 0, count = 0;
  for (size_t i = 0; i < graph->instrs.count; i++) {
    uint32_t before = depth;
    depth = depth_after(&graph->instrs.items[i], depth);
    count += depth && !before;
  }
  return count;
}

static int refuse(const exchange *x, tsr_error *error) {
  static const char *const words[] = {[TSR__OPTIMIZER_FOREACH] = "foreach",
                                      [TSR__OPTIMIZER_LOOP] = "loop",
                                      [TSR__OPTIMIZER_FUSED] = "fused"};
  uint32_t count = count_optimizers(x->from);
  if (!x->from->optimizer_count)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     count ? "this step graph does not contain the forms of its optimizer: trace "
                             "it again"
                           : "no optimizer makes a step in this step graph");
  if (count != x->from->optimizer_count)
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "step graph: %u optimizers, and %u of them in the instructions",
                     x->from->optimizer_count, count);
  for (uint32_t i = 0; i < count; i++)
    if (!form_of(x, i))
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "%.60s has no %s form here: PyTorch does not have it, or the optimizer's "
                       "step does more than that",
                       x->from->optimizer, words[x->form]);
  return 0;
}

int tsr__step_graph_with_form(const tsr__step_graph *graph, tsr__form_kind form,
                              tsr__step_graph **out, tsr_error *error) {
  exchange x = {.from = graph, .form = form};
  int status = refuse(&x, error);
  if (status) return status;
  x.to = tsr__step_graph_copy(graph);
  x.number = TSR__NEW_ARRAY(uint32_t, graph->slots.count + 1);
  bool ok = x.to && x.number && number_slots(&x);
  status = ok ? exchange_schedule(&x) : TSR_ERROR_MEMORY;
  tsr__free(x.number);
  if (x.to) x.to->saves.count = x.to->modules.count = 0;
  if (status == TSR_ERROR_ARGUMENT)
    status = tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "the optimizer's step and the rest of the step share memory, so it cannot "
                       "have another form");
  else if (status)
    status = tsr__fail_memory(error);
  if (status)
    tsr__step_graph_free(x.to);
  else
    *out = x.to;
  return status;
}
