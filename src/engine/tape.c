/* tape.c - tensors, slots and the schedule. See tape.h; frames.c has the stacks, backward.c the
 * backward pass.
 *
 * Arrays only grow while a program runs, so an index stays good: tensor 0 stands for "none" and for
 * whatever a failed call would have answered. */
#include "engine/tape.h"

#include "base/checked.h"

bool tsr__tape_init(tsr__tape *tape, tsr_snapshot *names) {
  *tape = (tsr__tape){.names = names, .grad_enabled = true};
  tsr__tensor none = {.op = TSR_NONE, .holders = 1};
  tsr__slot nothing = {.tensors = 1, .is_static = true};
  for (size_t i = 0; i < TSR__CARRY_COUNT; i++) tape->carry_at[i] = SIZE_MAX;
  return TSR__VECTOR_PUSH(&tape->slots, nothing) && TSR__VECTOR_PUSH(&tape->tensors, none);
}

void tsr__tape_release(tsr__tape *tape) {
  TSR__VECTOR_FREE(&tape->tensors);
  TSR__VECTOR_FREE(&tape->slots);
  TSR__VECTOR_FREE(&tape->ops);
  TSR__VECTOR_FREE(&tape->runs);
  TSR__VECTOR_FREE(&tape->schedule);
  TSR__VECTOR_FREE(&tape->scopes);
  TSR__VECTOR_FREE(&tape->locals);
  TSR__VECTOR_FREE(&tape->frames);
  TSR__VECTOR_FREE(&tape->stack);
  TSR__VECTOR_FREE(&tape->ready);
  TSR__VECTOR_FREE(&tape->ready_leaves);
  TSR__VECTOR_FREE(&tape->search);
  TSR__VECTOR_FREE(&tape->held);
  TSR__VECTOR_FREE(&tape->parameters);
  TSR__VECTOR_FREE(&tape->states);
  TSR__VECTOR_FREE(&tape->casts);
}

int tsr__tape_fail(tsr__tape *tape, int status) {
  if (!tape->status) tape->status = status;
  return 0;
}

/* ---- sizes ---- */

static uint64_t times(uint64_t a, uint64_t b) {
  return b && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

uint64_t tsr__elements(tsr__shape shape) {
  uint64_t count = 1;
  for (uint32_t i = 0; i < shape.rank; i++) count = times(count, shape.dim[i]);
  return count;
}

uint64_t tsr__tensor_bytes(const tsr__tape *tape, tsr__tid tensor) {
  const tsr__tensor *t = tsr__tensor_at(tape, tensor);
  return tensor ? times(tsr__elements(t->shape), tsr__dtype_bytes((tsr__dtype)t->dtype)) : 0;
}

/* ---- the schedule ---- */

void tsr__emit_instr(tsr__tape *tape, tsr__instr_kind kind, uint32_t subject, uint32_t stack) {
  tsr__instr instr = {(uint8_t)kind, tape->is_backward, subject, stack};
  if (tape->schedule.count == TSR_SIMULATE_MOST_INSTRUCTIONS) {
    tape->is_too_long |= tape->status == 0;
    tsr__tape_fail(tape, TSR_ERROR_LIMIT);
    return;
  }
  if (!TSR__VECTOR_PUSH(&tape->schedule, instr)) tsr__tape_fail(tape, TSR_ERROR_MEMORY);
}

void tsr__begin(tsr__tape *tape, tsr__phase phase) {
  tsr__emit_instr(tape, TSR__BEGIN, (uint32_t)phase, TSR_NONE);
}

void tsr__end(tsr__tape *tape, tsr__phase phase) {
  tsr__emit_instr(tape, TSR__END, (uint32_t)phase, TSR_NONE);
}

/* ---- tensors ---- */

static tsr__tid push_tensor(tsr__tape *tape, const tsr__tensor *tensor) {
  if (tape->tensors.count >= TSR_NONE || !TSR__VECTOR_PUSH(&tape->tensors, *tensor)) {
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
    return 0;
  }
  return (tsr__tid)tape->tensors.count - 1;
}

/* A tensor in a new slot; nothing is scheduled yet. */
static tsr__tid push_storage(tsr__tape *tape, tsr__dtype dtype, tsr__shape shape,
                             tsr_memory_role role) {
  tsr__slot slot = {.bytes = times(tsr__elements(shape), tsr__dtype_bytes(dtype)),
                    .tensors = 1,
                    .role = (uint8_t)role};
  if (tape->status) return 0;
  if (slot.bytes > TSR__LARGEST_TENSOR) {
    tsr__tape_fail(tape, TSR_ERROR_LIMIT);
    return 0;
  }
  if (tape->slots.count >= TSR_NONE || !TSR__VECTOR_PUSH(&tape->slots, slot)) {
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
    return 0;
  }
  tsr__tensor tensor = {.shape = shape,
                        .slot = (uint32_t)tape->slots.count - 1,
                        .holders = 1,
                        .op = TSR_NONE,
                        .dtype = (uint8_t)dtype,
                        .is_dense = true};
  return push_tensor(tape, &tensor);
}

static tsr__tid allocate(tsr__tape *tape, tsr__instr_kind kind, tsr__kernel kernel,
                         tsr__dtype dtype, tsr__shape shape) {
  tsr_memory_role role = tape->is_backward ? TSR_ROLE_BACKWARD : TSR_ROLE_TEMPORARY;
  tsr__tid tensor = push_storage(tape, dtype, shape, role);
  if (tensor)
    tsr__emit_instr(tape, kind, tsr__tensor_at(tape, tensor)->slot,
                    tsr__current_stack(tape, kernel));
  return tensor;
}

tsr__tid tsr__allocate(tsr__tape *tape, tsr__kernel kernel, tsr__dtype dtype, tsr__shape shape) {
  return allocate(tape, TSR__NEW, kernel, dtype, shape);
}

tsr__tid tsr__allocate_once(tsr__tape *tape, tsr__kernel kernel, tsr__dtype dtype,
                            tsr__shape shape) {
  return allocate(tape, TSR__NEW_ONCE, kernel, dtype, shape);
}

tsr__tid tsr__declare(tsr__tape *tape, tsr__dtype dtype, tsr__shape shape, tsr_memory_role role) {
  tsr__tid tensor = push_storage(tape, dtype, shape, role);
  if (!tensor) return 0;
  tape->slots.items[tsr__tensor_at(tape, tensor)->slot].is_static = true;
  if (role != TSR_ROLE_PARAMETER) return tensor;
  tsr__tensor_at(tape, tensor)->requires_grad = true;
  tsr__tensor_at(tape, tensor)->is_parameter = true;
  if (!TSR__VECTOR_PUSH(&tape->parameters, tensor)) tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  return tensor;
}

tsr__tid tsr__root(const tsr__tape *tape, tsr__tid tensor) {
  tsr__tid base = tsr__tensor_at(tape, tensor)->base;
  return base ? base : tensor;
}

tsr__tid tsr__view(tsr__tape *tape, tsr__tid tensor, tsr__shape shape, bool is_dense) {
  tsr__tensor view = *tsr__tensor_at(tape, tensor);
  if (!tensor || tape->status) return 0;
  view.base = tsr__root(tape, tensor);
  view.shape = shape;
  view.is_dense = is_dense;
  view.holders = 1;
  view.grad = view.incoming = 0;
  view.is_parameter = false;
  tape->slots.items[view.slot].tensors++;
  return push_tensor(tape, &view);
}

tsr__tid tsr__detach(tsr__tape *tape, tsr__tid tensor, bool requires_grad) {
  tsr__tid detached =
      tsr__view(tape, tensor, tsr__shape_of(tape, tensor), tsr__tensor_at(tape, tensor)->is_dense);
  tsr__tensor *t = tsr__tensor_at(tape, detached);
  if (!detached) return 0;
  t->base = 0;
  t->op = TSR_NONE;
  t->expected = 0;
  t->requires_grad = requires_grad;
  return detached;
}

void tsr__hold(tsr__tape *tape, tsr__tid tensor) {
  if (tensor) tsr__tensor_at(tape, tensor)->holders++;
}

void tsr__release(tsr__tape *tape, tsr__tid tensor) {
  if (!tensor || tape->status) return;
  tsr__tensor *t = tsr__tensor_at(tape, tensor);
  if (--t->holders) return;
  tsr__slot *slot = &tape->slots.items[t->slot];
  if (--slot->tensors || slot->is_static) return;
  tsr__emit_instr(tape, TSR__DROP, t->slot, tsr__current_stack(tape, TSR__KERNEL_NONE));
}

void tsr__set_role(tsr__tape *tape, tsr__tid tensor, tsr_memory_role role) {
  tsr__slot *slot = &tape->slots.items[tsr__tensor_at(tape, tensor)->slot];
  if (slot->role == TSR_ROLE_TEMPORARY || slot->role == TSR_ROLE_BACKWARD)
    slot->role = (uint8_t)role;
}

/* ---- variables ---- */

tsr__tid tsr__bind(tsr__tape *tape, tsr__tid tensor) {
  if (tensor && !TSR__VECTOR_PUSH(&tape->locals, tensor)) tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  return tensor;
}

/* Take one variable out of the current function; false where it has no such. */
static bool take_local(tsr__tape *tape, tsr__tid tensor) {
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

void tsr__unbind(tsr__tape *tape, tsr__tid tensor) {
  if (tensor && take_local(tape, tensor)) tsr__release(tape, tensor);
}

tsr__tid tsr__leave(tsr__tape *tape, tsr__tid result) {
  if (!tape->scopes.count) return result;
  if (result && !take_local(tape, result)) tsr__hold(tape, result);
  tsr__scope scope = tape->scopes.items[tape->scopes.count - 1];
  for (size_t i = scope.first_local; i < tape->locals.count; i++)
    tsr__release(tape, tape->locals.items[i]);
  tape->locals.count = scope.first_local;
  tape->scopes.count--;
  tape->frames.count = scope.frame_depth;
  return tsr__bind(tape, result);
}

/* ---- beyond the step ---- */

void tsr__carry_here(tsr__tape *tape, tsr__carry_point point) {
  if (tape->carry_at[point] != SIZE_MAX) return;
  tape->carry_at[point] = tape->schedule.count;
  tape->carry_stack[point] = tsr__current_stack(tape, TSR__KERNEL_NONE);
}

void tsr__hold_until(tsr__tape *tape, tsr__tid tensor, tsr__carry_point point) {
  if (!tensor) return;
  if (!TSR__VECTOR_PUSH(&tape->held, (tsr__held){tensor, point}))
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
}

/* The drops of what is held until `point`, put in its place. */
static bool insert_drops(tsr__tape *tape, tsr__carry_point point) {
  TSR__VECTOR(tsr__instr) drops = {0};
  size_t at = tape->carry_at[point];
  bool ok = true;
  for (size_t i = 0; ok && at != SIZE_MAX && i < tape->held.count; i++) {
    const tsr__held *held = &tape->held.items[i];
    uint32_t number = tsr__tensor_at(tape, held->tensor)->slot;
    tsr__slot *slot = &tape->slots.items[number];
    if (held->until != point || slot->is_carried || slot->is_static) continue;
    slot->is_carried = true;
    tsr__instr drop = {TSR__DROP_PREV, false, number, tape->carry_stack[point]};
    ok = TSR__VECTOR_PUSH(&drops, drop);
  }
  if (ok && drops.count && TSR__VECTOR_RESERVE(&tape->schedule, drops.count)) {
    tsr__instr *items = tape->schedule.items;
    memmove(items + at + drops.count, items + at, (tape->schedule.count - at) * sizeof *items);
    memcpy(items + at, drops.items, drops.count * sizeof *items);
    tape->schedule.count += drops.count;
  } else if (drops.count) {
    ok = false;
  }
  TSR__VECTOR_FREE(&drops);
  return ok;
}

int tsr__tape_finish(tsr__tape *tape) {
  bool done[TSR__CARRY_COUNT] = {false};
  if (tape->status) return tape->status;
  for (size_t round = 0; round < TSR__CARRY_COUNT; round++) { /* the last place first */
    size_t best = TSR__CARRY_COUNT;
    for (size_t i = 0; i < TSR__CARRY_COUNT; i++)
      if (!done[i] && (best == TSR__CARRY_COUNT || tape->carry_at[i] > tape->carry_at[best]))
        best = i;
    done[best] = true;
    if (!insert_drops(tape, (tsr__carry_point)best)) return TSR_ERROR_MEMORY;
  }
  return 0;
}

/* ---- autocast ---- */

void tsr__autocast_begin(tsr__tape *tape) {
  tape->is_autocast = true;
}

void tsr__autocast_end(tsr__tape *tape) {
  tape->is_autocast = false;
  while (tape->casts.count) tsr__release(tape, tape->casts.items[--tape->casts.count].to);
}

void tsr__workspace(tsr__tape *tape) {
  tsr__tid *workspace = &tape->workspace[tape->is_backward];
  if (*workspace) return;
  *workspace =
      tsr__allocate_once(tape, TSR__KERNEL_WORKSPACE, TSR__BOOL8, TSR__SHAPE(TSR__WORKSPACE_BYTES));
  tsr__set_role(tape, *workspace, TSR_ROLE_WORKSPACE);
}
