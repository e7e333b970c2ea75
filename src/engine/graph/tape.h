/* tape.h - one training step, recorded op by op, and the memory that it needs.
 *
 * A program (src/engine/models) is written the way PyTorch's is: it calls ops on tensors, binds results to
 * the variables of functions, and starts the backward pass. The tape runs it once, without data,
 * and records
 *
 *   ops       each op instance: kind, inputs, outputs, what it saved for backward, its block
 *   runs      each kernel that ran: on what tensors, at what cost
 *   schedule  what happens, in order: NEW and DROP of slots, RUN of kernels, ops, phases
 *
 * The schedule is all that an executor needs. The dry one (src/engine/exec/dry.c) gives NEW and DROP to the
 * allocator model, step after step; a real one would also call each RUN's kernel, whose operands and
 * results are in memory at that point.
 *
 * Lifetimes follow PyTorch's reference counts:
 *
 *   slot    a storage: some bytes of device memory           held by tensors
 *   tensor  a shape over a slot; a view shares the slot      held by variables, by what ops saved,
 *                                                            and by gradients on their way
 *
 * A slot lives in one memory space: the device, the host or a disk. A kernel runs on the device or on the host. Where
 * the two differ, tsr__tape_finish adds copies (spaces.c): a copy is a slot of its own, from START to WAIT both are there,
 * and what a kernel wrote to one is copied back.
 *
 * Ranks that train together have the same tape, except for the part of each unit that they keep (tsr__sharding).
 * Their sums and copies of each other's data are moves, too, from START to WAIT (shards.c).
 *
 * A slot is dropped with its last tensor, a tensor with its last holder. Variables belong to
 * functions (tsr__scope_enter) and go when these return (tsr__scope_leave), or when the program
 * binds the name again (tsr__scope_unbind).
 *
 * Backward is derived: ops run in the order of PyTorch's engine (of those that are ready, the one
 * recorded last), a gradient is passed on once all contributions have arrived, is added in place
 * if nothing else holds it, and what an op saved is released as soon as its backward has returned
 * (torch/csrc/autograd/engine.cpp, input_buffer.cpp, functions/accumulate_grad.h).
 *
 * Errors are sticky: a call that fails marks the tape and returns tensor 0, later calls do little,
 * and tsr__tape_finish returns the status. */
#ifndef TSR_GRAPH_TAPE_H
#define TSR_GRAPH_TAPE_H

#include "graph/schedule.h"
#include "graph/tracer.h"

/* What cuBLAS allocates for each thread's handle before Hopper: 4096 KiB twice and 16 KiB eight
 * times. */
#define TSR__TAPE_WORKSPACE_BYTES 8519680u
/* Of an A100: multiprocessors, and the most threads of each. */
#define TSR__TAPE_PROCESSORS 108u
#define TSR__TAPE_THREADS    2048u

typedef struct tsr__tape_tensor {
  tsr__layout layout;
  uint64_t bytes; /* of its elements; a view's may be fewer than its slot's */
  uint32_t slot;
  uint32_t holders;
  uint32_t op;             /* that made it, or TSR_NONE: a leaf, or made without gradients */
  tsr__tensor_id base;     /* of a view: the tensor whose gradient this one's is */
  tsr__tensor_id grad;     /* of a leaf: its .grad */
  tsr__tensor_id incoming; /* gradient that waits for more contributions, */
  tsr__tensor_id
      through; /* as that of this view, of which a copy is to be made first; 0: of the tensor itself */
  uint32_t expected;     /* contributions to come, of a leaf */
  uint8_t dtype;         /* tsr__dtype */
  bool requires_grad;    /* a gradient is needed for it */
  bool is_module_output; /* a module of the model returned it: a forward hook sees it */
  bool is_parameter;
  bool stays_near; /* a parameter: its gradient and state stay on the device (--offload-blocks) */
  bool is_overwritten;   /* an op wrote its result over it: who still holds it will not read it */
  tsr__tensor_id again;  /* the same elements, computed again; perhaps gone, too */
  tsr__tensor_id narrow; /* the same in bfloat16 or 8 bits; perhaps gone */
  tsr__tensor_id wide;   /* of codes in 8 bits: what they were made of, which is perhaps gone */
  bool
      has_base; /* a gradient that autograd holds as a view: what it is a view of holds the slot too */
} tsr__tape_tensor;

/* What the recorder knows of a slot, next to the schedule's. */
typedef struct tsr__tape_slot {
  uint32_t tensors;     /* that share it, */
  uint32_t overwritten; /* those of them that are overwritten */
  /* A unit's parameters, of which each rank keeps a part, in this slot: there only while runs use them (spaces.c). 0: it is
   * like any other. */
  uint32_t shard;
  bool is_of_block; /* such a unit is a block */
} tsr__tape_slot;

struct tsr__tape;
typedef tsr__tensor_id tsr__tape_segment_fn(void *program, struct tsr__tape *tape, uint32_t index,
                                            const tsr__tensor_id *inputs);

/* What a causal mask is made of (ops/op_mask.c). */
typedef enum tsr__mask_form { TSR__MASK_PLAIN, TSR__MASK_PADDED, TSR__MASK_PACKED } tsr__mask_form;

/* What an op needs besides its inputs; each kind reads its own (op.h). */
typedef struct tsr__op_attributes {
  uint64_t features; /* outputs of a linear; rows of a mask; heads' width of a rotary table */
  uint64_t chunk;    /* query rows, or tokens, at a time */
  uint64_t repeats;  /* of each head; of a loss: what its gradient is divided by, 0 = 1 */
  uint64_t window;   /* positions that a row may look back at, itself included; 0: all */
  uint64_t position; /* of the first row among all that the text has */
  double factor;     /* of a scale */
  double dropout;    /* the probability that an element is dropped */
  double epsilon;    /* of a normalisation */
  uint8_t dtype;     /* tsr__dtype: of a cast */
  uint8_t which;     /* of the tensors of a batch; of a mask: a tsr__mask_form */
  bool is_tanh;      /* of a fused GELU: approximated */
  bool
      takes_both_orders; /* of a product in FP8: of its operands, so that no transposed copies are made */
  bool is_made_again; /* of the same: backward makes the weight's copy itself */
  bool is_packed;     /* q, k and v are views of one tensor */
  bool is_autocast;   /* of a checkpoint */
  bool is_scaled;     /* of a loss: its gradient may be another number than 1 */
  uint8_t
      spent; /* 1 + the operand in whose memory the result may be: nothing reads it afterwards; 0: none */
  bool is_in_place; /* it must be there: see tsr__clash */
  uint32_t draws;   /* of a checkpoint: the tape's count of draws when the segment began */
  tsr__tape_segment_fn *segment; /* of a checkpoint: what to run again, */
  void *program;                 /* for what, */
  uint32_t index;                /* and which part */
} tsr__op_attributes;

/* An op instance. */
typedef struct tsr__tape_op {
  uint8_t kind;   /* tsr__op_kind */
  uint8_t number; /* as tsr__op has it */
  uint8_t input_count, output_count, saved_count;
  tsr__tensor_id in[TSR__OP_INPUTS], out[TSR__OP_OUTPUTS], saved[TSR__OP_SAVED];
  tsr__op_attributes attributes;
  /* What is special about what it saved: bits of `saved`, numbers of holders, bits of `in` (saved.c). */
  uint16_t narrowed, remade, internal;
  uint32_t holder[TSR__OP_SAVED]; /* from 1; 0: none */
  uint8_t pinned;
  bool is_pinned;    /* it may be run again */
  bool is_autocast;  /* it ran under autocast */
  uint32_t block;    /* of the model, from 0; TSR_NONE: of none */
  uint32_t expected; /* gradients of its outputs that are still to come */
  uint32_t draws;    /* the tape's count of draws when it began */
  bool is_reached;   /* by the backward pass that runs */
  bool is_done;      /* its backward has run: what it saved may be gone */
} tsr__tape_op;

/* Stands for a tensor that a checkpoint computes again. */
typedef struct tsr__tape_holder {
  uint32_t frame;
  tsr__tensor_id tensor; /* once it has been computed, until it is used */
} tsr__tape_holder;

/* A checkpoint that is not reentrant: a segment whose saved tensors have holders. */
typedef struct tsr__tape_frame {
  tsr__tape_segment_fn *segment;
  void *program;
  uint32_t index, block, draws;          /* as the segment began */
  tsr__tensor_id inputs[TSR__OP_INPUTS]; /* held until the last holder is used up */
  uint32_t input_count;
  uint32_t first_holder, holder_count, filled, unpacked;
  bool is_autocast, is_filled;
} tsr__tape_frame;

/* A function of the program that has not returned. */
typedef struct tsr__tape_scope {
  size_t first_local; /* its variables are locals from here on */
  uint8_t place;      /* tsr__program_place */
} tsr__tape_scope;

/* Points of the program at which the step before releases something. */
typedef enum tsr__tape_carry_point {
  TSR__CARRY_BATCH,
  TSR__CARRY_GRADS,
  TSR__CARRY_OUTPUTS,
  TSR__CARRY_COUNT
} tsr__tape_carry_point;

typedef struct tsr__tape_carried {
  tsr__tensor_id tensor;
  tsr__tape_carry_point until; /* in the next step */
} tsr__tape_carried;

typedef struct tsr__tape_cast {
  tsr__tensor_id from, to;
} tsr__tape_cast;

/* Where each class of tensors is kept; the device unless stated otherwise. */
typedef struct tsr__homes {
  uint8_t optimizer;   /* tsr__memory_space: of its state, and where it runs */
  uint8_t gradients;   /* of parameters, once they are complete */
  uint8_t parameters;  /* of blocks */
  uint8_t activations; /* that backward needs */
  uint32_t
      blocks; /* if not 0, these homes are for the first so many blocks alone: all else is on the device */
} tsr__homes;

/* Where a block's tensor is kept, if its class has that home. `block`: TSR_NONE for a tensor outside of blocks. */
static inline uint8_t tsr__home_in_block(const tsr__homes *homes, uint8_t home, uint32_t block) {
  return homes->blocks && block >= homes->blocks ? (uint8_t)TSR__SPACE_DEVICE : home;
}

/* Why an op that must write over an operand cannot. */
typedef enum tsr__clash_reason {
  TSR__CLASH_NONE,
  TSR__CLASH_SAVED, /* an op saved the operand for backward */
  TSR__CLASH_HELD,  /* the program holds it */
  TSR__CLASH_TYPE,  /* the result has another type or shape */
  TSR__CLASH_ABSENT /* the program runs no such op */
} tsr__clash_reason;

typedef struct tsr__clash {
  uint8_t reason;     /* tsr__clash_reason */
  uint32_t op, saver; /* the saver may be the op itself */
  const char *absent; /* what the program has none of */
} tsr__clash;

struct tsr__rule_book;

/* A recorder: the schedule under construction, and what it has to know about the program and its autograd graph until then. */
typedef struct tsr__tape {
  tsr__schedule schedule;            /* without tensors and ops, until the tape is finished */
  const struct tsr__rule_book *book; /* whose rows its ops run: op.h */
  tsr__tracer *tracer;               /* not owned; NULL: no stacks */
  TSR__VECTOR(tsr__tape_tensor) tensors;
  TSR__VECTOR(tsr__tape_slot) slots; /* by slot of the schedule */
  TSR__VECTOR(tsr__tape_op) ops;
  TSR__VECTOR(tsr__tape_scope) scopes;
  TSR__VECTOR(tsr__tensor_id) locals;
  TSR__VECTOR(uint32_t) ready; /* heap of ops whose gradients are complete, the latest on top */
  size_t ready_bottom;         /* where the heap of the innermost backward begins */
  TSR__VECTOR(tsr__tensor_id) ready_leaves;
  TSR__VECTOR(uint32_t) search; /* scratch of the backward pass */
  TSR__VECTOR(tsr__tape_carried) held;
  TSR__VECTOR(tsr__tape_cast) casts; /* autocast's cache of weights */
  size_t carry_at[TSR__CARRY_COUNT]; /* places in the schedule */
  uint32_t carry_stack[TSR__CARRY_COUNT];
  uint64_t workspace_bytes;     /* of cuBLAS, for each thread */
  uint32_t processors, threads; /* of the card: multiprocessors, and the most threads of each */
  uint8_t capability;          /* of the card: 80 is compute capability 8.0; 0: no card was named */
  tsr__tensor_id workspace[2]; /* of cuBLAS, of the forward and the backward thread; 0: not yet */
  uint32_t block;              /* of the model, that is running: for ops that are recorded */
  uint8_t of_kind[TSR__OP_KINDS];      /* how many ops of each kind it has recorded so far, */
  uint8_t most_of_kind[TSR__OP_KINDS]; /* and at most in any block */
  const struct tsr__plan *plan;        /* of saved tensors, not owned; NULL: they are kept */
  TSR__VECTOR(tsr__tape_holder) holders;
  TSR__VECTOR(tsr__tape_frame) frames;
  uint32_t packing,
      filling;     /* the frame whose segment runs for the first time, or again, from 1; 0: none */
  bool is_stopped; /* the segment that runs again has nothing left to do: all calls return 0 */
  uint16_t remaking;  /* bits of what an op that runs again still has to save; 0: none does */
  uint32_t replaying; /* ops that run again on their own, one within another */
  TSR__VECTOR(tsr__tensor_id)
  remade;           /* outputs of these, held while an op's backward gathers what it saved */
  uint8_t saves_to; /* tsr__memory_space, of what is being saved */
  tsr__homes homes;
  uint8_t space; /* tsr__memory_space: in which kernels run, and new tensors are */
  bool grad_enabled, is_backward;
  bool is_brief;   /* its schedule needs no tensors and ops */
  bool is_grouped; /* gradients of micro-batches are made apart, and then added */
  /* Called in backward with each parameter once its gradient is stored, which is once for each that no two checkpoints
   * share; may be NULL. */
  void (*gradient_stored)(void *program, tsr__tensor_id parameter);
  /* Called with each parameter once all of a backward pass has been added to its gradient; may be NULL. */
  void (*gradient_complete)(void *program, tsr__tensor_id parameter);
  void *program; /* of these */
  bool is_autocast;
  uint8_t low_dtype;         /* of autocast */
  uint32_t recomputing;      /* segments that are being run again */
  struct tsr_effort *effort; /* of recording; or NULL */
  bool is_too_long;          /* why it failed with TSR_ERROR_LIMIT, if not for a tensor's size */
  tsr__clash clash;          /* why it failed with TSR_ERROR_ARGUMENT */
  int status;                /* sticky */
} tsr__tape;

/* An empty tape, for ops of that rule book. False when out of memory; it must be released either way. `tracer` may be
 * NULL, and must outlive the tape and its schedule. */
bool tsr__tape_init(tsr__tape *tape, const struct tsr__rule_book *book, tsr__tracer *tracer);
void tsr__tape_release(tsr__tape *tape);
/* Make room for about as many runs of kernels and what belongs to them, so that lists need not grow. */
void tsr__tape_expect(tsr__tape *tape, size_t run_count);

static inline tsr__tape_tensor *tsr__tensor_at(const tsr__tape *tape, tsr__tensor_id tensor) {
  assert(tensor < tape->tensors.count);
  return &tape->tensors.items[tensor];
}
static inline tsr__shape tsr__tensor_shape(const tsr__tape *tape, tsr__tensor_id tensor) {
  return tape->tensors.items[tensor].layout.shape;
}
static inline tsr__layout tsr__tensor_layout(const tsr__tape *tape, tsr__tensor_id tensor) {
  return tape->tensors.items[tensor].layout;
}
static inline tsr__dtype tsr__tensor_dtype(const tsr__tape *tape, tsr__tensor_id tensor) {
  return (tsr__dtype)tape->tensors.items[tensor].dtype;
}
static inline uint64_t tsr__tensor_bytes(const tsr__tape *tape, tsr__tensor_id tensor) {
  return tsr__tensor_at(tape, tensor)->bytes;
}

/* Where a parameter's gradient or state is kept, if its class has that home. */
static inline uint8_t tsr__home_of_parameter(const tsr__tape *tape, uint8_t home,
                                             tsr__tensor_id parameter) {
  return tsr__tensor_at(tape, parameter)->stays_near ? (uint8_t)TSR__SPACE_DEVICE : home;
}

/* Add a slot; returns its number, or 0 after a failure. */
uint32_t tsr__tape_slot_add(tsr__tape *tape, const tsr__slot *slot, const tsr__tape_slot *state);

/* ---- Tensors. Each function that returns one returns it held once, by the caller. ---- */

/* A new tensor in its own slot, allocated here and now; the kernel is for the stack. */
tsr__tensor_id tsr__tensor_new(tsr__tape *tape, tsr__kernel kernel, tsr__dtype dtype,
                               tsr__shape shape);
/* The same in any layout without gaps; `kind`: NEW, or NEW_ONCE for one that is allocated in the first step only. */
tsr__tensor_id tsr__tensor_make(tsr__tape *tape, tsr__instr_kind kind, tsr__kernel kernel,
                                tsr__dtype dtype, const tsr__layout *layout);
/* A tensor that is there before the recording. Parameters are listed in their order. */
tsr__tensor_id tsr__tensor_declare(tsr__tape *tape, tsr__dtype dtype, tsr__shape shape,
                                   tsr_category category);
/* A declared tensor belongs to that block of the model. Tensor 0 is fine. */
void tsr__tensor_set_block(tsr__tape *tape, tsr__tensor_id tensor, uint32_t block);
/* Other elements, or the same in another order, of the tensor's storage. */
tsr__tensor_id tsr__tensor_view(tsr__tape *tape, tsr__tensor_id tensor, tsr__layout layout);
/* Note that autograd made this gradient as a view of another. The view has no gradient itself; with some rule books,
 * the viewed gradient continues to hold the storage. */
void tsr__gradient_is_view(tsr__tape *tape, tsr__tensor_id gradient);
/* The same elements in another shape, which must not need a copy. */
tsr__tensor_id tsr__tensor_reshape(tsr__tape *tape, tsr__tensor_id tensor, tsr__shape shape);
/* (batch, rows, heads * width) as (batch, heads, rows, width). */
tsr__tensor_id tsr__tensor_heads(tsr__tape *tape, tsr__tensor_id tensor, uint64_t heads);
/* The same elements, as a leaf of a separate graph. */
tsr__tensor_id tsr__tensor_detach(tsr__tape *tape, tsr__tensor_id tensor, bool requires_grad);
void tsr__tensor_hold(tsr__tape *tape, tsr__tensor_id tensor);
void tsr__tensor_release(tsr__tape *tape, tsr__tensor_id tensor);
/* The tensor itself, or what it is a view of. */
tsr__tensor_id tsr__tensor_root(const tsr__tape *tape, tsr__tensor_id tensor);
/* Whether the tensor is held once, and its memory by no other tensor. */
static inline bool tsr__tensor_is_sole(const tsr__tape *tape, tsr__tensor_id tensor) {
  const tsr__tape_tensor *t = tsr__tensor_at(tape, tensor);
  return t->holders == 1 && !t->has_base && tape->slots.items[t->slot].tensors == 1;
}
/* Set the category of its memory, if it is more specific than the current one. */
void tsr__tensor_set_category(tsr__tape *tape, tsr__tensor_id tensor, tsr_category category);
/* Keep its storage in that space between uses. An activation stays where it is used if the program holds it at the
 * end of the step, or if it would not be away for at least two sections (spaces.c). */
void tsr__tensor_set_home(tsr__tape *tape, tsr__tensor_id tensor, tsr__memory_space space);

/* ---- Ranks: shards.c ---- */

/* Parameter number `i` belongs to a unit; the last call for a unit completes it. Parameters are declared, and no other
 * tensor uses their slots. */
void tsr__unit_add(tsr__tape *tape, size_t parameter, uint32_t unit, bool is_block);
/* All parameters have units: these get their sizes and, by stage, slots. */
void tsr__units_finish(tsr__tape *tape);
/* Begin what all ranks make together; returns the move's number, to wait for. */
uint32_t tsr__tape_start(tsr__tape *tape, const tsr__move *move);
void tsr__tape_wait(tsr__tape *tape, uint32_t move);
/* ---- Functions of the program and their variables ---- */

/* The program calls a function. */
void tsr__scope_enter(tsr__tape *tape, tsr__program_place place);
/* Bind a tensor that the caller holds to a variable of the current function. */
tsr__tensor_id tsr__scope_bind(tsr__tape *tape, tsr__tensor_id tensor);
/* The variable's name is bound to something else, or deleted. */
void tsr__scope_unbind(tsr__tape *tape, tsr__tensor_id tensor);
/* Return `result` (0: nothing): the other variables go. The result is the calling function's. */
tsr__tensor_id tsr__scope_leave(tsr__tape *tape, tsr__tensor_id result);
/* autocast begins or ends; its cache of weights goes with it. */
void tsr__tape_autocast_begin(tsr__tape *tape);
void tsr__tape_autocast_end(tsr__tape *tape);
/* cuBLAS's workspace of the thread that runs: taken once, where the process has none yet, and by the
 * book `torch`. */
void tsr__tape_workspace(tsr__tape *tape);
/* ---- Where the program is, for the tracer. A function without variables is entered and left here;
 * one with variables by tsr__scope_enter and _leave, which call these. ---- */

static inline void tsr__trace_enter(const tsr__tape *tape, tsr__program_place place) {
  if (tape->tracer) tape->tracer->enter(tape->tracer, place);
}
static inline void tsr__trace_leave(const tsr__tape *tape) {
  if (tape->tracer) tape->tracer->leave(tape->tracer);
}
/* The current function has reached one of its own statements. */
static inline void tsr__trace_at(const tsr__tape *tape, tsr__program_place place) {
  if (tape->tracer) tape->tracer->at(tape->tracer, place);
}
/* The current stack, under the kernel's allocation, or, for TSR__KERNEL_NONE, under a free; TSR_NONE
 * without a tracer. */
uint32_t tsr__trace_stack(tsr__tape *tape, tsr__kernel kernel);

/* ---- Phases, and what outlives a step ---- */

void tsr__tape_begin(tsr__tape *tape, tsr__phase_kind phase);
void tsr__tape_end(tsr__tape *tape, tsr__phase_kind phase);
/* Mark the place at which the previous step releases what it held until this point. */
void tsr__tape_carry_here(tsr__tape *tape, tsr__tape_carry_point point);
/* From here on, ops are of that block of the model. */
void tsr__tape_begin_block(tsr__tape *tape, uint32_t block);
/* The program holds the tensor beyond the step, until that point of the next. */
void tsr__tape_hold_until(tsr__tape *tape, tsr__tensor_id tensor, tsr__tape_carry_point point);
/* The program holds the tensor for good, as one that appends it to a list in each step. Does nothing for
 * tensor 0 and for what is there before the recording. */
void tsr__tape_leak(tsr__tape *tape, tsr__tensor_id tensor);

/* Add to the schedule. */
void tsr__tape_emit(tsr__tape *tape, tsr__instr_kind kind, uint32_t subject, uint32_t stack);
/* Note a failure; returns 0. */
int tsr__tape_fail(tsr__tape *tape, int status);
/* Fail because an op cannot be in place. The first clash counts. */
void tsr__clash_note(tsr__tape *tape, tsr__clash clash);
/* Fill `error` with the reason of the tape's status, and return it. */
int tsr__tape_explain(const tsr__tape *tape, int status, tsr_error *error);
/* Say in `out` what clashed; the tape has failed with TSR_ERROR_ARGUMENT. */
void tsr__clash_describe(const tsr__tape *tape, char *out, size_t room);
/* The program has ended: insert the drops of carried slots, add the copies between memory spaces, and hand the
 * schedule over, checked in debug builds. The tape can only be released afterwards. 0 or the sticky status, which leaves
 * `*out`. O(instructions). */
int tsr__tape_finish(tsr__tape *tape, tsr__schedule *out);
/* Add the copies between memory spaces (spaces.c). Called by tsr__tape_finish. 0, TSR_ERROR_LIMIT or
 * TSR_ERROR_MEMORY. O(instructions log instructions). */
int tsr__tape_place_moves(tsr__tape *tape);
/* Assert that the program has left nothing open, and the invariants of the schedule (check.c). As tsr__schedule_check. */
int tsr__tape_check(const tsr__tape *tape);
#endif
