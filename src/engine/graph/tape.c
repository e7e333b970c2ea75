/* tape.c - tensors, slots and the schedule. See tape.h; backward.c has the backward pass.
 *
 * Arrays only grow while a program runs, so an index stays valid. Tensor 0 stands for "none" and is what
 * a failed call returns. */
#include "graph/tape.h"

#include <assert.h>

#include "base/checked.h"
#include "base/effort.h"
#include "base/error.h"
#include "graph/op.h"

bool tsr__tape_init(tsr__tape *tape, const tsr__rule_book *book, tsr__tracer *tracer) {
  *tape = (tsr__tape){.book = book,
                      .tracer = tracer,
                      .block = TSR_NONE,
                      .grad_enabled = true,
                      .workspace_bytes = TSR__TAPE_WORKSPACE_BYTES,
                      .processors = TSR__TAPE_PROCESSORS,
                      .threads = TSR__TAPE_THREADS};
  assert(book);
  if (tracer) tape->schedule.labels = tracer->labels;
  tsr__tape_tensor none = {.op = TSR_NONE, .holders = 1};
  for (size_t i = 0; i < TSR__CARRY_COUNT; i++) tape->carry_at[i] = SIZE_MAX;
  (void)tsr__tape_slot_add(tape, &(tsr__slot){.is_static = true}, &(tsr__tape_slot){.tensors = 1});
  return !tape->status && TSR__VECTOR_PUSH(&tape->tensors, none);
}

void tsr__tape_release(tsr__tape *tape) {
  tsr__schedule_release(&tape->schedule);
  TSR__VECTOR_FREE(&tape->tensors);
  TSR__VECTOR_FREE(&tape->slots);
  TSR__VECTOR_FREE(&tape->ops);
  TSR__VECTOR_FREE(&tape->scopes);
  TSR__VECTOR_FREE(&tape->locals);
  TSR__VECTOR_FREE(&tape->ready);
  TSR__VECTOR_FREE(&tape->ready_leaves);
  TSR__VECTOR_FREE(&tape->search);
  TSR__VECTOR_FREE(&tape->held);
  TSR__VECTOR_FREE(&tape->casts);
  TSR__VECTOR_FREE(&tape->holders);
  TSR__VECTOR_FREE(&tape->frames);
  TSR__VECTOR_FREE(&tape->remade);
}

/* For each run there are about two tensors, one and a half slots, half an op, and, with what it allocates and frees, five
 * instructions. */
enum { MOST_EXPECTED = 1 << 16 };

void tsr__tape_expect(tsr__tape *tape, size_t run_count) {
  tsr__schedule *s = &tape->schedule;
  if (run_count > MOST_EXPECTED) run_count = MOST_EXPECTED;
  if (!TSR__VECTOR_RESERVE(&tape->tensors, 2 * run_count) ||
      !TSR__VECTOR_RESERVE(&tape->slots, 3 * run_count / 2) ||
      !TSR__VECTOR_RESERVE(&s->slots, 3 * run_count / 2) ||
      !TSR__VECTOR_RESERVE(&tape->ops, run_count / 2) ||
      !TSR__VECTOR_RESERVE(&s->runs, run_count) ||
      !TSR__VECTOR_RESERVE(&s->operands, 4 * run_count) ||
      !TSR__VECTOR_RESERVE(&s->scalars, run_count) ||
      !TSR__VECTOR_RESERVE(&s->instrs, 5 * run_count))
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
}

int tsr__tape_fail(tsr__tape *tape, int status) {
  if (!tape->status) tape->status = status;
  return 0;
}

int tsr__tape_explain(const tsr__tape *tape, int status, tsr_error *error) {
  if (status && tsr__effort_is_over(tape->effort)) return tsr__effort_fail(tape->effort, error);
  if (status == TSR_ERROR_LIMIT && tape->is_too_long)
    return tsr__fail(
        error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
        "a step takes more than %u instructions; use fewer micro-batches or larger chunks",
        (unsigned)TSR__MOST_INSTRUCTIONS);
  if (status == TSR_ERROR_LIMIT)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "one of the tensors would be larger than 256 TiB");
  if (status == TSR_ERROR_ARGUMENT) {
    char text[256];
    tsr__clash_describe(tape, text, sizeof text);
    return tsr__fail(error, status, TSR_OFFSET_NONE, "%s", text);
  }
  return status ? tsr__fail_memory(error) : 0;
}

/* ---- the schedule ---- */

void tsr__tape_emit(tsr__tape *tape, tsr__instr_kind kind, uint32_t subject, uint32_t stack) {
  assert(tape->schedule.instrs.count <= TSR__MOST_INSTRUCTIONS);
  tsr__instr instr = {(uint8_t)kind, tape->is_backward, subject, stack};
  if (tape->schedule.instrs.count == TSR__MOST_INSTRUCTIONS) {
    tape->is_too_long |= tape->status == 0;
    tsr__tape_fail(tape, TSR_ERROR_LIMIT);
    return;
  }
  if (!TSR__VECTOR_PUSH(&tape->schedule.instrs, instr)) tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  if (tape->schedule.instrs.count % TSR__EFFORT_UNITS == 0 &&
      !tsr__effort_go_on(tape->effort, TSR__EFFORT_UNITS))
    tsr__tape_fail(tape, TSR_ERROR_LIMIT);
}

void tsr__tape_begin(tsr__tape *tape, tsr__phase_kind phase) {
  tape->schedule.backward_count += phase == TSR__PHASE_BACKWARD;
  if (tape->tracer) tape->tracer->begin_phase(tape->tracer, (uint32_t)phase);
  tsr__tape_emit(tape, TSR__INSTR_BEGIN, (uint32_t)phase, TSR_NONE);
}

void tsr__tape_end(tsr__tape *tape, tsr__phase_kind phase) {
  tsr__tape_emit(tape, TSR__INSTR_END, (uint32_t)phase, TSR_NONE);
}

/* ---- tensors ---- */

static tsr__tensor_id push_tensor(tsr__tape *tape, const tsr__tape_tensor *tensor) {
  if (tape->tensors.count >= TSR_NONE || !TSR__VECTOR_PUSH(&tape->tensors, *tensor)) {
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
    return 0;
  }
  return (tsr__tensor_id)tape->tensors.count - 1;
}

uint32_t tsr__tape_slot_add(tsr__tape *tape, const tsr__slot *slot, const tsr__tape_slot *state) {
  if (tape->schedule.slots.count >= TSR_NONE || !TSR__VECTOR_PUSH(&tape->schedule.slots, *slot) ||
      !TSR__VECTOR_PUSH(&tape->slots, *state)) {
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
    return 0;
  }
  return (uint32_t)tape->schedule.slots.count - 1;
}

/* A tensor in a new slot; nothing is scheduled yet. */
static tsr__tensor_id push_storage(tsr__tape *tape, tsr__dtype dtype, const tsr__layout *layout,
                                   tsr_category category) {
  uint64_t elements = tsr__shape_elements(layout->shape);
  tsr__slot slot = {.bytes = tsr__product_u64(elements, tsr__dtype_bytes(dtype)),
                    .category = (uint8_t)category,
                    .space = tape->space};
  if (tape->status) return 0;
  assert(!layout->offset);
  if (slot.bytes > TSR__TENSOR_MOST_BYTES) {
    tsr__tape_fail(tape, TSR_ERROR_LIMIT);
    return 0;
  }
  tsr__tape_tensor tensor = {.layout = *layout,
                             .bytes = slot.bytes,
                             .slot =
                                 tsr__tape_slot_add(tape, &slot, &(tsr__tape_slot){.tensors = 1}),
                             .holders = 1,
                             .op = TSR_NONE,
                             .dtype = (uint8_t)dtype};
  return tape->status ? 0 : push_tensor(tape, &tensor);
}

tsr__tensor_id tsr__tensor_make(tsr__tape *tape, tsr__instr_kind kind, tsr__kernel kernel,
                                tsr__dtype dtype, const tsr__layout *layout) {
  tsr__tensor_id tensor = push_storage(tape, dtype, layout, TSR_CATEGORY_TEMPORARY);
  assert(kind == TSR__INSTR_NEW || kind == TSR__INSTR_NEW_ONCE);
  if (tensor)
    tsr__tape_emit(tape, kind, tsr__tensor_at(tape, tensor)->slot, tsr__trace_stack(tape, kernel));
  return tensor;
}

tsr__tensor_id tsr__tensor_new(tsr__tape *tape, tsr__kernel kernel, tsr__dtype dtype,
                               tsr__shape shape) {
  tsr__layout layout = tsr__layout_dense(shape);
  return tsr__tensor_make(tape, TSR__INSTR_NEW, kernel, dtype, &layout);
}

tsr__tensor_id tsr__tensor_declare(tsr__tape *tape, tsr__dtype dtype, tsr__shape shape,
                                   tsr_category category) {
  /* A snapshot does not distinguish buffers, so their memory counts as everywhere else. */
  tsr_category counted = category == TSR_CATEGORY_BUFFER ? TSR_CATEGORY_PARAMETER : category;
  tsr__layout layout = tsr__layout_dense(shape);
  tsr__tensor_id tensor = push_storage(tape, dtype, &layout, counted);
  if (!tensor) return 0;
  tape->schedule.slots.items[tsr__tensor_at(tape, tensor)->slot].is_static = true;
  if (category != TSR_CATEGORY_PARAMETER) return tensor;
  tsr__tensor_at(tape, tensor)->requires_grad = true;
  tsr__tensor_at(tape, tensor)->is_parameter = true;
  if (!TSR__VECTOR_PUSH(&tape->schedule.parameters, tensor)) tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  return tensor;
}

void tsr__tensor_set_block(tsr__tape *tape, tsr__tensor_id tensor, uint32_t block) {
  if (tensor && !TSR__VECTOR_PUSH(&tape->schedule.blocks, (tsr__block_tensor){tensor, block}))
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
}

tsr__tensor_id tsr__tensor_root(const tsr__tape *tape, tsr__tensor_id tensor) {
  tsr__tensor_id base = tsr__tensor_at(tape, tensor)->base;
  assert(!base || !tsr__tensor_at(tape, base)->base); /* views of views name the tensor itself */
  return base ? base : tensor;
}

tsr__tensor_id tsr__tensor_view(tsr__tape *tape, tsr__tensor_id tensor, tsr__layout layout) {
  tsr__tape_tensor view = *tsr__tensor_at(tape, tensor);
  if (!tensor || tape->status) return 0;
  tsr__tape_slot *slot = &tape->slots.items[view.slot];
  assert(view.holders && slot->tensors &&
         tsr__layout_end(layout) <= tape->schedule.slots.items[view.slot].bytes /
                                        tsr__dtype_bytes((tsr__dtype)view.dtype));
  view.base = tsr__tensor_root(tape, tensor);
  view.layout = layout;
  view.bytes =
      tsr__product_u64(tsr__shape_elements(layout.shape), tsr__dtype_bytes((tsr__dtype)view.dtype));
  view.holders = 1;
  view.grad = view.incoming = view.through = 0;
  view.expected = 0;
  view.narrow = view.wide = 0;
  view.is_parameter = view.is_overwritten = false;
  slot->tensors++;
  return push_tensor(tape, &view);
}

void tsr__gradient_is_view(tsr__tape *tape, tsr__tensor_id gradient) {
  tsr__tape_tensor *t = tsr__tensor_at(tape, gradient);
  if (!gradient) return;
  t->base = 0;
  t->has_base = tape->book->views_keep_bases;
}

tsr__tensor_id tsr__tensor_reshape(tsr__tape *tape, tsr__tensor_id tensor, tsr__shape shape) {
  tsr__layout layout = tsr__tensor_layout(tape, tensor);
  if (!tensor || tape->status) return 0;
  return tsr__tensor_view(tape, tensor, tsr__layout_reshaped(layout, shape));
}

tsr__tensor_id tsr__tensor_heads(tsr__tape *tape, tsr__tensor_id tensor, uint64_t heads) {
  if (!tensor || tape->status) return 0;
  return tsr__tensor_view(tape, tensor, tsr__layout_heads(tsr__tensor_layout(tape, tensor), heads));
}

tsr__tensor_id tsr__tensor_detach(tsr__tape *tape, tsr__tensor_id tensor, bool requires_grad) {
  tsr__tensor_id detached = tsr__tensor_view(tape, tensor, tsr__tensor_layout(tape, tensor));
  tsr__tape_tensor *t = tsr__tensor_at(tape, detached);
  if (!detached) return 0;
  t->base = 0;
  t->op = TSR_NONE;
  t->expected = 0;
  t->requires_grad = requires_grad;
  return detached;
}

void tsr__tensor_hold(tsr__tape *tape, tsr__tensor_id tensor) {
  if (!tensor) return;
  assert(tsr__tensor_at(tape, tensor)->holders); /* a released tensor cannot be held again */
  tsr__tensor_at(tape, tensor)->holders++;
}

void tsr__tensor_release(tsr__tape *tape, tsr__tensor_id tensor) {
  if (!tensor || tape->status) return;
  tsr__tape_tensor *t = tsr__tensor_at(tape, tensor);
  assert(t->holders);
  if (--t->holders) return;
  tsr__tape_slot *slot = &tape->slots.items[t->slot];
  assert(slot->tensors && slot->overwritten <= slot->tensors);
  slot->overwritten -= t->is_overwritten;
  if (--slot->tensors || tape->schedule.slots.items[t->slot].is_static) return;
  tsr__tape_emit(tape, TSR__INSTR_DROP, t->slot, tsr__trace_stack(tape, TSR__KERNEL_NONE));
}

void tsr__tensor_set_category(tsr__tape *tape, tsr__tensor_id tensor, tsr_category category) {
  tsr__slot *slot = &tape->schedule.slots.items[tsr__tensor_at(tape, tensor)->slot];
  if (category == TSR_CATEGORY_ACTIVATION && tape->recomputing) category = TSR_CATEGORY_RECOMPUTED;
  if (slot->category == TSR_CATEGORY_TEMPORARY) slot->category = (uint8_t)category;
}

void tsr__tensor_set_home(tsr__tape *tape, tsr__tensor_id tensor, tsr__memory_space space) {
  assert(space < TSR__SPACE_COUNT);
  tape->schedule.slots.items[tsr__tensor_at(tape, tensor)->slot].space = (uint8_t)space;
}

/* ---- functions and variables ---- */

uint32_t tsr__trace_stack(tsr__tape *tape, tsr__kernel kernel) {
  uint32_t stack = TSR_NONE;
  if (tape->tracer && !tape->status && !tape->tracer->stack(tape->tracer, kernel, &stack))
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  return stack;
}

void tsr__scope_enter(tsr__tape *tape, tsr__program_place place) {
  tsr__tape_scope scope = {tape->locals.count, (uint8_t)place};
  if (!TSR__VECTOR_PUSH(&tape->scopes, scope)) tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  tsr__trace_enter(tape, place);
}

tsr__tensor_id tsr__scope_bind(tsr__tape *tape, tsr__tensor_id tensor) {
  if (tensor && !TSR__VECTOR_PUSH(&tape->locals, tensor)) tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  return tensor;
}

/* Take one variable out of the current function; false if it has no such variable. */
static bool take_local(tsr__tape *tape, tsr__tensor_id tensor) {
  size_t first = tape->scopes.count ? tape->scopes.items[tape->scopes.count - 1].first_local : 0;
  for (size_t i = tape->locals.count; i > first; i--) {
    if (tape->locals.items[i - 1] != tensor) continue;
    memmove(&tape->locals.items[i - 1], &tape->locals.items[i],
            (tape->locals.count - i) * sizeof *tape->locals.items);
    tape->locals.count--;
    return true;
  }
  return false;
}

void tsr__scope_unbind(tsr__tape *tape, tsr__tensor_id tensor) {
  if (!tensor) return;
  bool is_local = take_local(tape, tensor);
  assert(is_local || tape->status);
  if (is_local) tsr__tensor_release(tape, tensor);
}

/* Whether a place is an nn.Module whose forward returns a tensor. Attention and blocks return tuples. */
static bool is_module(tsr__program_place place) {
  switch (place) {
  case TSR__PLACE_TOKEN_EMBEDDING:
  case TSR__PLACE_POSITION_EMBEDDING:
  case TSR__PLACE_LAST_NORM:
  case TSR__PLACE_HEAD:
  case TSR__PLACE_NORM_1:
  case TSR__PLACE_NORM_2:
  case TSR__PLACE_QKV:
  case TSR__PLACE_Q:
  case TSR__PLACE_K:
  case TSR__PLACE_V:
  case TSR__PLACE_OUT:
  case TSR__PLACE_MLP:
  case TSR__PLACE_GATE:
  case TSR__PLACE_UP:
  case TSR__PLACE_ACTIVATION:
  case TSR__PLACE_ACTIVATION_EAGER:
  case TSR__PLACE_DOWN:
  case TSR__PLACE_DROPOUT: return true;
  default: return false;
  }
}

tsr__tensor_id tsr__scope_leave(tsr__tape *tape, tsr__tensor_id result) {
  assert(tape->scopes.count || tape->status);
  if (!tape->scopes.count) return result;
  if (result && !take_local(tape, result)) tsr__tensor_hold(tape, result);
  tsr__tape_scope scope = tape->scopes.items[tape->scopes.count - 1];
  assert(scope.first_local <= tape->locals.count);
  if (is_module((tsr__program_place)scope.place))
    tsr__tensor_at(tape, result)->is_module_output = result != 0;
  for (size_t i = scope.first_local; i < tape->locals.count; i++)
    tsr__tensor_release(tape, tape->locals.items[i]);
  tape->locals.count = scope.first_local;
  tape->scopes.count--;
  tsr__trace_leave(tape);
  return tsr__scope_bind(tape, result);
}

/* ---- beyond the step ---- */

void tsr__tape_carry_here(tsr__tape *tape, tsr__tape_carry_point point) {
  assert(point < TSR__CARRY_COUNT);
  if (tape->carry_at[point] != SIZE_MAX) return;
  tape->carry_at[point] = tape->schedule.instrs.count;
  tape->carry_stack[point] = tsr__trace_stack(tape, TSR__KERNEL_NONE);
}

void tsr__tape_begin_block(tsr__tape *tape, uint32_t block) {
  tape->block = block;
  memset(tape->of_kind, 0, sizeof tape->of_kind);
}

void tsr__tape_hold_until(tsr__tape *tape, tsr__tensor_id tensor, tsr__tape_carry_point point) {
  if (!tensor) return;
  if (!TSR__VECTOR_PUSH(&tape->held, (tsr__tape_carried){tensor, point}))
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
}

void tsr__tape_leak(tsr__tape *tape, tsr__tensor_id tensor) {
  tsr__slot *slot = &tape->schedule.slots.items[tsr__tensor_at(tape, tensor)->slot];
  if (!tensor || tape->status || slot->is_static || slot->is_leaked) return;
  tsr__tensor_hold(tape, tensor);
  slot->is_leaked = tape->schedule.has_leaks = true;
}

/* At the place of `point`, insert the drops of the tensors that are held until then. */
static bool insert_drops(tsr__tape *tape, tsr__tape_carry_point point) {
  TSR__VECTOR(tsr__instr) drops = {0};
  size_t at = tape->carry_at[point];
  bool ok = true;
  for (size_t i = 0; ok && at != SIZE_MAX && i < tape->held.count; i++) {
    const tsr__tape_carried *held = &tape->held.items[i];
    uint32_t number = tsr__tensor_at(tape, held->tensor)->slot;
    tsr__slot *slot = &tape->schedule.slots.items[number];
    if (held->until != point || slot->is_carried || slot->is_static || slot->is_leaked) continue;
    slot->is_carried = true;
    tsr__instr drop = {TSR__INSTR_DROP_PREV, false, number, tape->carry_stack[point]};
    ok = TSR__VECTOR_PUSH(&drops, drop);
  }
  if (ok && drops.count && TSR__VECTOR_RESERVE(&tape->schedule.instrs, drops.count)) {
    tsr__instr *items = tape->schedule.instrs.items;
    memmove(items + at + drops.count, items + at,
            (tape->schedule.instrs.count - at) * sizeof *items);
    memcpy(items + at, drops.items, drops.count * sizeof *items);
    tape->schedule.instrs.count += drops.count;
  } else if (drops.count) {
    ok = false;
  }
  TSR__VECTOR_FREE(&drops);
  return ok;
}

/* ---- the end ---- */

static bool list_tensors(tsr__tape *tape) {
  tsr__schedule *s = &tape->schedule;
  if (!TSR__VECTOR_RESERVE(&s->tensors, tape->tensors.count)) return false;
  for (size_t i = 0; i < tape->tensors.count; i++) {
    const tsr__tape_tensor *t = &tape->tensors.items[i];
    s->tensors.items[s->tensors.count++] =
        (tsr__step_tensor){.layout = t->layout,
                           .slot = t->slot,
                           .grad = t->grad,
                           .dtype = t->dtype,
                           .is_parameter = t->is_parameter,
                           .is_module_output = t->is_module_output};
  }
  return true;
}

static bool list_ops(tsr__tape *tape) {
  tsr__schedule *s = &tape->schedule;
  if (tape->ops.count && !TSR__VECTOR_RESERVE(&s->ops, tape->ops.count)) return false;
  for (size_t i = 0; i < tape->ops.count; i++) {
    const tsr__tape_op *o = &tape->ops.items[i];
    tsr__op *op = &s->ops.items[s->ops.count++];
    *op = (tsr__op){.name = tsr__op_row_of(tape->book, (tsr__op_kind)o->kind)->name,
                    .kind = o->kind,
                    .input_count = o->input_count,
                    .output_count = o->output_count,
                    .saved_count = o->saved_count,
                    .number = o->number,
                    .block = o->block};
    memcpy(op->in, o->in, sizeof op->in);
    memcpy(op->out, o->out, sizeof op->out);
    memcpy(op->saved, o->saved, sizeof op->saved);
  }
  return true;
}

static void sum_parameters(tsr__tape *tape) {
  tsr__schedule *s = &tape->schedule;
  for (size_t i = 0; i < s->parameters.count; i++) {
    tsr__tensor_id parameter = s->parameters.items[i];
    uint64_t count = tsr__shape_elements(tsr__tensor_shape(tape, parameter));
    s->parameter_count += count;
    if (tsr__tensor_at(tape, parameter)->requires_grad) s->trained_count += count;
    s->parameter_bytes += tsr__tensor_bytes(tape, parameter);
    if (count > s->largest_parameter) s->largest_parameter = count;
  }
}

/* From the last place backwards, so that places stay valid. */
static bool insert_all_drops(tsr__tape *tape) {
  bool done[TSR__CARRY_COUNT] = {false};
  for (size_t round = 0; round < TSR__CARRY_COUNT; round++) {
    size_t best = TSR__CARRY_COUNT;
    for (size_t i = 0; i < TSR__CARRY_COUNT; i++)
      if (!done[i] && (best == TSR__CARRY_COUNT || tape->carry_at[i] > tape->carry_at[best]))
        best = i;
    done[best] = true;
    if (!insert_drops(tape, (tsr__tape_carry_point)best)) return false;
  }
  return true;
}

int tsr__tape_finish(tsr__tape *tape, tsr__schedule *out) {
  if (tape->status) return tape->status;
  int status = insert_all_drops(tape) ? tsr__tape_place_moves(tape) : TSR_ERROR_MEMORY;
  bool is_listed = status == 0 && (tape->is_brief || (list_tensors(tape) && list_ops(tape)));
  if (status == 0 && !is_listed) status = TSR_ERROR_MEMORY;
  if (status == 0) status = tsr__tape_check(tape);
  if (status) {
    tsr__tape_fail(tape, status);
    return status;
  }
  sum_parameters(tape);
  tape->schedule.updates_in_backward = tape->gradient_stored != NULL;
  *out = tape->schedule;
  tape->schedule = (tsr__schedule){.flops = 0};
  return 0;
}

/* ---- autocast ---- */

void tsr__tape_autocast_begin(tsr__tape *tape) {
  assert(!tape->is_autocast && !tape->casts.count);
  tape->is_autocast = true;
}

void tsr__tape_autocast_end(tsr__tape *tape) {
  tape->is_autocast = false;
  tsr__trace_enter(tape, TSR__PLACE_AUTOCAST_EXIT);
  while (tape->casts.count) tsr__tensor_release(tape, tape->casts.items[--tape->casts.count].to);
  tsr__trace_leave(tape);
}

void tsr__tape_workspace(tsr__tape *tape) {
  tsr__tensor_id *workspace = &tape->workspace[tape->is_backward];
  if (*workspace || !tape->book->is_torch) return;
  tsr__layout layout = tsr__layout_dense(TSR__SHAPE(tape->workspace_bytes));
  *workspace =
      tsr__tensor_make(tape, TSR__INSTR_NEW_ONCE, TSR__KERNEL_WORKSPACE, TSR__DTYPE_BOOL, &layout);
  tsr__tensor_set_category(tape, *workspace, TSR_CATEGORY_WORKSPACE);
}
