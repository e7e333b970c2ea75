/* tape.h - what a training program did, op by op, and what that asks of memory.
 *
 * A program (program.c, gpt2.c, llama.c) is written as PyTorch's is: it calls ops on tensors, binds
 * results to the variables of functions, and at last asks for the backward pass. The tape runs it
 * once, without data, and writes down two things:
 *
 *   ops       the list of op instances: kind, inputs, outputs, what each saved for backward
 *   runs      the list of kernels they ran: which, on what tensors, at what cost
 *   schedule  what happens, in order: NEW and DROP of slots, RUN of kernels, ops, phases
 *
 * The schedule is all that an executor needs. The dry one (dry.c) gives NEW and DROP to the
 * allocator model, step after step; a real one would also call each RUN's kernel, whose operands and
 * results are in memory at that point.
 *
 * Lifetimes follow PyTorch's reference counts:
 *
 *   slot    a storage: some bytes of device memory           held by tensors
 *   tensor  a shape over a slot; a view shares it             held by variables, by what ops saved,
 *                                                             and by gradients on their way
 *
 * A slot is dropped with its last tensor, a tensor with its last holder. Variables belong to
 * functions (tsr__enter) and go when these return (tsr__leave), or when the program binds the name
 * anew (tsr__unbind).
 *
 * Backward is derived: ops run in the order of PyTorch's engine (of those that are ready, the one
 * recorded last), a gradient is passed on once all that contribute to it have, is added in place
 * where nothing else holds it, and what an op saved is let go as soon as its backward has returned
 * (torch/csrc/autograd/engine.cpp, input_buffer.cpp, functions/accumulate_grad.h).
 *
 * Errors are sticky: a call that fails marks the tape and answers tensor 0, later calls do little,
 * and tsr__tape_status says at the end what happened. */
#ifndef TSR_ENGINE_TAPE_H
#define TSR_ENGINE_TAPE_H

#include "base/error.h"
#include "base/vector.h"
#include "engine/kernel.h"
#include "snapshot/tables.h"
#include "tessera/simulate.h"

/* No tensor is larger: sums of their bytes cannot overflow. */
#define TSR__LARGEST_TENSOR (UINT64_C(1) << 48)

/* What cuBLAS takes for each thread's handle before Hopper: 4096 KiB twice and 16 KiB eight times. */
#define TSR__WORKSPACE_BYTES 8519680

enum { TSR__RANK = 4, TSR__OP_INPUTS = 8, TSR__OP_OUTPUTS = 3, TSR__OP_SAVED = 10 };
enum { TSR__RUN_OPERANDS = 4, TSR__RUN_RESULTS = 8 };

typedef enum tsr__dtype { TSR__F32, TSR__BF16, TSR__F16, TSR__I64, TSR__BOOL8 } tsr__dtype;

static inline uint64_t tsr__dtype_bytes(tsr__dtype dtype) {
  static const uint8_t bytes[] = {4, 2, 2, 8, 1};
  return bytes[dtype];
}
static inline bool tsr__is_half(tsr__dtype dtype) {
  return dtype == TSR__BF16 || dtype == TSR__F16;
}

/* Index of a tensor of the tape; 0 is none. */
typedef uint32_t tsr__tid;

typedef struct tsr__shape {
  uint64_t dim[TSR__RANK];
  uint32_t rank; /* 0: a scalar */
} tsr__shape;

#define TSR__SHAPE(...) \
  ((tsr__shape){.dim = {__VA_ARGS__}, .rank = sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)})
#define TSR__SCALAR ((tsr__shape){.rank = 0})

/* Elements; saturates instead of overflowing. */
uint64_t tsr__elements(tsr__shape shape);

typedef struct tsr__tensor {
  tsr__shape shape;
  uint32_t slot;
  uint32_t holders;
  uint32_t op;        /* that made it, or TSR_NONE: a leaf, or made without gradients */
  tsr__tid base;      /* of a view: the tensor whose gradient this one's is */
  tsr__tid grad;      /* of a leaf: its .grad */
  tsr__tid incoming;  /* gradient that waits for more contributions */
  uint32_t expected;  /* contributions to come, of a leaf */
  uint8_t dtype;      /* tsr__dtype */
  bool requires_grad; /* a gradient is wanted for it */
  bool is_dense;      /* elements lie in the order of its shape, without gaps */
  bool is_parameter;
} tsr__tensor;

/* A storage. What it is for is known for certain only when the program has ended. */
typedef struct tsr__slot {
  uint64_t bytes;
  uint32_t tensors; /* that share it */
  uint8_t role;     /* tsr_memory_role */
  bool is_static;   /* there before the recording, and to stay */
  bool is_carried;  /* held when the step ends: the next step drops it */
} tsr__slot;

typedef enum tsr__instr_kind {
  TSR__NEW,       /* allocate the slot */
  TSR__NEW_ONCE,  /* allocate it unless an earlier step did: optimizer state */
  TSR__DROP,      /* free it */
  TSR__DROP_PREV, /* free what the step before left in it, if there was one */
  TSR__RUN,       /* a kernel: where a real executor computes */
  TSR__OP,        /* the forward or backward of an op begins */
  TSR__BEGIN,     /* of a phase; subject is a tsr__phase */
  TSR__END
} tsr__instr_kind;

typedef enum tsr__phase {
  TSR__PHASE_STEP,
  TSR__PHASE_ZERO_GRAD,
  TSR__PHASE_FORWARD,
  TSR__PHASE_BACKWARD,
  TSR__PHASE_OPTIMIZER,
  TSR__PHASE_COUNT
} tsr__phase;

typedef struct tsr__instr {
  uint8_t kind; /* tsr__instr_kind */
  bool is_backward;
  uint32_t subject; /* slot, run, op or phase */
  uint32_t stack;   /* of the call, or TSR_NONE */
} tsr__instr;

typedef TSR__VECTOR(tsr__instr) tsr__schedule;

struct tsr__tape;
typedef tsr__tid tsr__segment_fn(void *program, struct tsr__tape *tape, uint32_t index,
                                 const tsr__tid *inputs);

/* What an op is told besides its inputs; each kind reads its own (op.h). */
typedef struct tsr__attributes {
  uint64_t features; /* outputs of a linear */
  uint64_t chunk;    /* query rows, or tokens, at a time */
  uint64_t repeats;  /* of each head */
  uint8_t dtype;     /* tsr__dtype: of a cast */
  bool has_dropout;
  bool is_packed;           /* q, k and v are views of one tensor */
  bool is_autocast;         /* of a checkpoint */
  tsr__segment_fn *segment; /* of a checkpoint: what to run again, */
  void *program;            /* for what, */
  uint32_t index;           /* and which part */
} tsr__attributes;

/* A kernel, run: what it read and made. Operations and bytes are those of this one run. */
typedef struct tsr__run {
  uint8_t kernel;     /* tsr__kernel */
  bool is_in_place;   /* it changes its first operand */
  bool is_transposed; /* a product over the first operand's rows */
  uint32_t op;        /* whose step it is, or TSR_NONE: autograd's own */
  tsr__tid operand[TSR__RUN_OPERANDS], result[TSR__RUN_RESULTS]; /* 0: none */
  uint64_t flops, bytes_moved;
} tsr__run;

/* An op instance. */
typedef struct tsr__op {
  uint8_t kind; /* tsr__op_kind */
  uint8_t input_count, output_count, saved_count;
  tsr__tid in[TSR__OP_INPUTS], out[TSR__OP_OUTPUTS], saved[TSR__OP_SAVED];
  tsr__attributes attributes;
  uint32_t expected; /* gradients of its outputs that are still to come */
  bool is_reached;   /* by the backward pass that runs */
  /* Sums over its runs; those of backward once that has run, without what is computed again. */
  uint64_t flops, bytes_moved, backward_flops, backward_bytes_moved;
} tsr__op;

/* A function of the program that has not returned. */
typedef struct tsr__scope {
  size_t first_local; /* its variables are locals from here on */
  uint32_t frame_depth;
} tsr__scope;

/* Points of the program at which the step before lets go of something. */
typedef enum tsr__carry_point {
  TSR__CARRY_BATCH,
  TSR__CARRY_GRADS,
  TSR__CARRY_OUTPUTS,
  TSR__CARRY_COUNT
} tsr__carry_point;

typedef struct tsr__held {
  tsr__tid tensor;
  tsr__carry_point until; /* in the next step */
} tsr__held;

typedef struct tsr__cast {
  tsr__tid from, to;
} tsr__cast;

/* What an optimizer keeps of a parameter; 0: nothing. */
typedef struct tsr__state {
  tsr__tid count, first, second;
} tsr__state;

typedef struct tsr__tape {
  tsr_snapshot *names; /* not owned: interns frames and stacks */
  TSR__VECTOR(tsr__tensor) tensors;
  TSR__VECTOR(tsr__slot) slots;
  TSR__VECTOR(tsr__op) ops;
  TSR__VECTOR(tsr__run) runs;
  tsr__schedule schedule;
  TSR__VECTOR(tsr__scope) scopes;
  TSR__VECTOR(tsr__tid) locals;
  TSR__VECTOR(uint32_t) frames; /* ids, outermost first, */
  size_t frame_base;            /* of the thread that runs: from here on */
  TSR__VECTOR(uint32_t) stack;  /* scratch: the stack being made */
  TSR__VECTOR(uint32_t) ready;  /* heap of ops whose gradients are complete, the latest on top */
  size_t ready_bottom;          /* where the heap of the innermost backward begins */
  TSR__VECTOR(tsr__tid) ready_leaves;
  TSR__VECTOR(uint32_t) search; /* scratch of the backward pass */
  TSR__VECTOR(tsr__held) held;
  TSR__VECTOR(tsr__tid) parameters;  /* in the order of model.parameters() */
  TSR__VECTOR(tsr__state) states;    /* an optimizer's, of each parameter */
  TSR__VECTOR(tsr__cast) casts;      /* autocast's cache of weights */
  size_t carry_at[TSR__CARRY_COUNT]; /* places in the schedule */
  uint32_t carry_stack[TSR__CARRY_COUNT];
  tsr__tid workspace[2]; /* of cuBLAS, of the forward and the backward thread; 0: not yet */
  bool grad_enabled, is_backward;
  bool is_autocast;
  uint8_t low_dtype; /* of autocast */
  uint64_t flops, recomputed_flops;
  uint32_t recomputing; /* segments that are being run again */
  bool is_too_long;     /* why it failed with TSR_ERROR_LIMIT, if not for a tensor's size */
  int status;           /* sticky */
} tsr__tape;

bool tsr__tape_init(tsr__tape *tape, tsr_snapshot *names);
void tsr__tape_release(tsr__tape *tape);

static inline tsr__tensor *tsr__tensor_at(const tsr__tape *tape, tsr__tid tensor) {
  return &tape->tensors.items[tensor];
}
static inline tsr__shape tsr__shape_of(const tsr__tape *tape, tsr__tid tensor) {
  return tape->tensors.items[tensor].shape;
}
static inline tsr__dtype tsr__dtype_of(const tsr__tape *tape, tsr__tid tensor) {
  return (tsr__dtype)tape->tensors.items[tensor].dtype;
}
/* Bytes of the tensor's elements; a view's may be fewer than its slot's. */
uint64_t tsr__tensor_bytes(const tsr__tape *tape, tsr__tid tensor);

/* ---- Tensors. Each function that answers one answers it held once, by the caller. ---- */

/* A new tensor in a slot of its own, allocated here and now; the kernel is for the stack. */
tsr__tid tsr__allocate(tsr__tape *tape, tsr__kernel kernel, tsr__dtype dtype, tsr__shape shape);
/* The same, allocated in the first step only. */
tsr__tid tsr__allocate_once(tsr__tape *tape, tsr__kernel kernel, tsr__dtype dtype,
                            tsr__shape shape);
/* A tensor that is there before the recording. Parameters are listed in their order. */
tsr__tid tsr__declare(tsr__tape *tape, tsr__dtype dtype, tsr__shape shape, tsr_memory_role role);
/* The same elements in another shape. `is_dense` says whether they lie in that shape's order. */
tsr__tid tsr__view(tsr__tape *tape, tsr__tid tensor, tsr__shape shape, bool is_dense);
/* The same elements, as a leaf of a graph of its own. */
tsr__tid tsr__detach(tsr__tape *tape, tsr__tid tensor, bool requires_grad);
void tsr__hold(tsr__tape *tape, tsr__tid tensor);
void tsr__release(tsr__tape *tape, tsr__tid tensor);
/* The tensor itself, or what it is a view of. */
tsr__tid tsr__root(const tsr__tape *tape, tsr__tid tensor);
/* Say what its memory is for, if that says more than what is known. */
void tsr__set_role(tsr__tape *tape, tsr__tid tensor, tsr_memory_role role);

/* ---- Functions of the program and their variables ---- */

/* Call a function of `file` from line `line` of the current one. */
void tsr__enter(tsr__tape *tape, const char *function, const char *file);
/* The same for the forward of a module, called as PyTorch does. */
void tsr__enter_module(tsr__tape *tape, const char *file);
/* The line at which the current function stands. */
void tsr__line(tsr__tape *tape, uint64_t line);
/* Bind a tensor that the caller holds to a variable of the current function. */
tsr__tid tsr__bind(tsr__tape *tape, tsr__tid tensor);
/* The variable's name is bound to something else, or deleted. */
void tsr__unbind(tsr__tape *tape, tsr__tid tensor);
/* Return `result` (0: nothing): the other variables go. The result is the calling function's. */
tsr__tid tsr__leave(tsr__tape *tape, tsr__tid result);
/* Frames of native code on top, without variables; undo with tsr__pop_frames. */
void tsr__push_frame(tsr__tape *tape, const char *function, const char *file, uint64_t line);
void tsr__pop_frames(tsr__tape *tape, size_t count);
/* Go on in autograd's thread, whose stack is its own; answers what tsr__leave_thread needs. */
size_t tsr__enter_thread(tsr__tape *tape);
void tsr__leave_thread(tsr__tape *tape, size_t before);
/* autocast begins or ends; its cache of weights goes with it. */
void tsr__autocast_begin(tsr__tape *tape);
void tsr__autocast_end(tsr__tape *tape);
/* The current stack, below the frames of the kernel's allocation, or, of none, of a free. */
uint32_t tsr__current_stack(tsr__tape *tape, tsr__kernel kernel);

/* cuBLAS's workspace of the thread that runs: taken once, where the process has none yet. */
void tsr__workspace(tsr__tape *tape);
/* The type in which two types meet. */
static inline tsr__dtype tsr__promote(tsr__dtype a, tsr__dtype b) {
  return a == b ? a : TSR__F32;
}

/* ---- Phases, and what outlives a step ---- */

void tsr__begin(tsr__tape *tape, tsr__phase phase);
void tsr__end(tsr__tape *tape, tsr__phase phase);
/* Here the step before lets go of what it held until this point. */
void tsr__carry_here(tsr__tape *tape, tsr__carry_point point);
/* The program holds the tensor beyond the step, until that point of the next. */
void tsr__hold_until(tsr__tape *tape, tsr__tid tensor, tsr__carry_point point);

/* Add to the schedule. */
void tsr__emit_instr(tsr__tape *tape, tsr__instr_kind kind, uint32_t subject, uint32_t stack);
/* Note a failure; answers 0. */
int tsr__tape_fail(tsr__tape *tape, int status);
/* The program has ended: put the drops of what is carried in their places. 0 or the sticky status.
 */
int tsr__tape_finish(tsr__tape *tape);

#endif
