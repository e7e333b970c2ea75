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

#include <assert.h>

#include "base/error.h"
#include "base/vector.h"
#include "graph/tracer.h"
#include "kernels/kernel.h"
#include "tessera/category.h"
#include "tessera/types.h"

/* No tensor is larger: sums of their bytes cannot overflow. */
#define TSR__TENSOR_MOST_BYTES (UINT64_C(1) << 48)

/* Instructions of a schedule, and so of a whole run: about a gigabyte of trace, made in seconds. */
#define TSR__TAPE_MOST_INSTRUCTIONS (UINT64_C(16) << 20)

/* What cuBLAS allocates for each thread's handle before Hopper: 4096 KiB twice and 16 KiB eight
 * times. */
#define TSR__TAPE_WORKSPACE_BYTES 8519680u

enum { TSR__OP_INPUTS = 8, TSR__OP_OUTPUTS = 3, TSR__OP_SAVED = 10 };

/* Index of a tensor of the tape; 0 means no tensor. */
typedef uint32_t tsr__tensor_id;

typedef struct tsr__tape_tensor {
  tsr__layout layout;
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
  bool is_overwritten;   /* an op wrote its result over it: who still holds it will not read it */
  tsr__tensor_id again;  /* the same elements, computed again; perhaps gone, too */
  tsr__tensor_id narrow; /* the same in bfloat16 or 8 bits; perhaps gone */
  tsr__tensor_id wide;   /* of codes in 8 bits: what they were made of, which is perhaps gone */
  bool
      has_base; /* a gradient that autograd holds as a view: what it is a view of holds the slot too */
} tsr__tape_tensor;

/* Where memory is. No kernel runs on a disk. */
typedef enum tsr__memory_space {
  TSR__SPACE_DEVICE,
  TSR__SPACE_HOST,
  TSR__SPACE_DISK,
  TSR__SPACE_COUNT
} tsr__memory_space;

/* A storage. Its category is final only when the program has ended. */
typedef struct tsr__tape_slot {
  uint64_t bytes;
  uint32_t tensors;     /* that share it, */
  uint32_t overwritten; /* those of them that are overwritten */
  uint8_t category;     /* tsr_category */
  /* tsr__memory_space. Until the tape is finished: where it is to be kept, although kernels elsewhere may use it. */
  uint8_t space;
  uint16_t device; /* from 0 */
  uint16_t stream; /* of the device; 0: its default stream */
  bool is_static;  /* there before the recording, and to stay */
  bool is_carried; /* held when the step ends: the next step drops it */
  bool is_leaked;  /* held for good: each step leaves its own behind */
  bool
      is_root; /* a backward pass began here, or the host reads it: no kernel needs to read its value */
  /* A unit's parameters, of which each rank keeps a part, in this slot: there only while runs use them (spaces.c). 0: it is
   * like any other. */
  uint32_t shard;
  bool is_of_block; /* such a unit is a block */
} tsr__tape_slot;

typedef enum tsr__tape_instr_kind {
  TSR__INSTR_NEW,       /* allocate the slot */
  TSR__INSTR_NEW_ONCE,  /* allocate it unless an earlier step did: optimizer state */
  TSR__INSTR_DROP,      /* free it */
  TSR__INSTR_DROP_PREV, /* free what the step before left in it, if there was one */
  TSR__INSTR_RUN,       /* a kernel: where a real executor computes */
  TSR__INSTR_START,     /* a move begins: what it copies is there and complete */
  TSR__INSTR_WAIT,      /* a move has ended: only from here on is what it made used */
  TSR__INSTR_OP,        /* the forward or backward of an op begins */
  TSR__INSTR_BEGIN,     /* of a phase; subject is a tsr__tape_phase */
  TSR__INSTR_END
} tsr__tape_instr_kind;

typedef enum tsr__tape_phase {
  TSR__TAPE_PHASE_STEP,
  TSR__TAPE_PHASE_ZERO_GRAD,
  TSR__TAPE_PHASE_FORWARD,
  TSR__TAPE_PHASE_BACKWARD,
  TSR__TAPE_PHASE_OPTIMIZER,
  TSR__TAPE_PHASE_EVALUATION, /* leaves nothing behind, so that a step may skip it */
  TSR__TAPE_PHASE_COUNT
} tsr__tape_phase;

typedef struct tsr__tape_instr {
  uint8_t kind; /* tsr__tape_instr_kind */
  bool is_backward;
  uint32_t subject; /* slot, run, move, op or phase */
  uint32_t stack;   /* of the call, or TSR_NONE */
} tsr__tape_instr;

typedef TSR__VECTOR(tsr__tape_instr) tsr__tape_schedule;

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
  double factor;     /* of a scale */
  double dropout;    /* the probability that an element is dropped */
  double epsilon;    /* of a normalisation */
  uint8_t dtype;     /* tsr__dtype: of a cast */
  uint8_t which;     /* of the tensors of a batch; of a mask: a tsr__mask_form */
  bool is_tanh;      /* of a fused GELU: approximated */
  bool is_packed;    /* q, k and v are views of one tensor */
  bool is_autocast;  /* of a checkpoint */
  bool is_scaled;    /* of a loss: its gradient may be another number than 1 */
  uint8_t
      spent; /* 1 + the operand in whose memory the result may be: nothing reads it afterwards; 0: none */
  bool is_in_place; /* it must be there: see tsr__clash */
  uint32_t draws;   /* of a checkpoint: the tape's count of draws when the segment began */
  tsr__tape_segment_fn *segment; /* of a checkpoint: what to run again, */
  void *program;                 /* for what, */
  uint32_t index;                /* and which part */
} tsr__op_attributes;

/* A number that a kernel needs. Those of an optimizer change from step to step: an executor computes
 * them when the step runs, from the optimizer's settings and the number of the step, which counts
 * from 1. */
typedef enum tsr__scalar_kind {
  TSR__SCALAR_NONE,
  TSR__SCALAR_NUMBER,        /* `number` */
  TSR__SCALAR_KEPT,          /* 1 - learning rate * weight decay */
  TSR__SCALAR_LEARNING_RATE, /* and its negative, */
  TSR__SCALAR_DESCENT,       /* - learning rate */
  TSR__SCALAR_BETA_1,        /* of AdamW, */
  TSR__SCALAR_BETA_1_REST,   /* 1 - beta 1 */
  TSR__SCALAR_BETA_2,
  TSR__SCALAR_BETA_2_REST, /* 1 - beta 2 */
  TSR__SCALAR_BETA_2_ROOT, /* the root of (1 - beta 2 to the power of the step) */
  TSR__SCALAR_ADAM_STEP,   /* - learning rate / (1 - beta 1 to the power of the step) */
  TSR__SCALAR_ADAM_EPSILON,
  TSR__SCALAR_WEIGHT_DECAY,
  TSR__SCALAR_KIND_COUNT
} tsr__scalar_kind;

typedef struct tsr__scalar {
  uint8_t kind; /* tsr__scalar_kind */
  double number;
} tsr__scalar;

/* What a move does. All but copies are made by all ranks together, in the same order. */
typedef enum tsr__move_kind {
  TSR__MOVE_COPY, /* the slot's bytes, into a slot in another space */
  TSR__MOVE_GATHER, /* `to` = what each rank has at `from`, rank 0's first; `to` itself: in its place there */
  TSR__MOVE_REDUCE,    /* `to` = this rank's part of the sum over ranks of `from`; as above */
  TSR__MOVE_BROADCAST, /* `to`, which is `from`, becomes that of rank `root` */
  TSR__MOVE_KIND_COUNT
} tsr__move_kind;

typedef struct tsr__tape_move {
  uint32_t from, to;
  uint32_t staging; /* of a sum: where the parts of all ranks arrive; else 0 */
  uint32_t root;
  uint8_t kind;   /* tsr__move_kind */
  uint8_t dtype;  /* tsr__dtype, of a sum */
  bool is_once;   /* done in the first step only */
  bool is_update; /* only what an optimizer made: left out with the optimizer's ops */
} tsr__tape_move;

/* A kernel, run: what it read and wrote. Its tensors are in the tape's `operands` from
 * `first_operand` on: reads, then writes, then scratch, 0 for an absent one; its numbers are in
 * `scalars`. Operations and bytes are those of this one run. */
typedef struct tsr__kernel_run {
  uint8_t kernel; /* tsr__kernel */
  uint8_t read_count, write_count, scratch_count, scalar_count;
  uint8_t transposed; /* bits, of a product: 1 for the first operand, 2 for the second */
  uint8_t space;      /* tsr__memory_space: of the processor that runs it, and of all its tensors */
  bool is_once;       /* run in the first step only: what it writes stays */
  bool is_again;      /* computed again, with more than one purpose: its result may not be needed */
  uint32_t op;        /* the op that runs it, or TSR_NONE: autograd itself, or the program */
  uint32_t draw;      /* of random numbers, from 1; 0: none. Backward draws as its forward did */
  uint32_t first_operand, first_scalar;
  uint64_t flops, bytes_moved;
} tsr__kernel_run;

/* An op instance. */
typedef struct tsr__op {
  uint8_t kind; /* tsr__op_kind */
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
  /* Sums over its runs; those of backward once that has run, without what is computed again. */
  uint64_t flops, bytes_moved, backward_flops, backward_bytes_moved;
} tsr__op;

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

/* What an optimizer keeps of a parameter; 0: nothing. */
typedef struct tsr__optimizer_state {
  tsr__tensor_id count, first, second;
  tsr__tensor_id master;   /* of a parameter of 16 bits: the same in fp32, */
  tsr__tensor_id gradient; /* and its gradient in fp32, which is gone when the optimizer is done */
  bool is_updated;         /* in this step's backward */
} tsr__optimizer_state;

/* Where each class of tensors is kept; the device unless stated otherwise. */
typedef struct tsr__homes {
  uint8_t optimizer;   /* tsr__memory_space: of its state, and where it runs */
  uint8_t gradients;   /* of parameters, once they are complete */
  uint8_t parameters;  /* of blocks */
  uint8_t activations; /* that backward needs */
} tsr__homes;

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

/* A parameter's place in its unit: elements `first` to `first` + `count`. */
typedef struct tsr__tape_piece {
  uint32_t unit;
  uint64_t first, count;
} tsr__tape_piece;

/* Parameters whose gradients are summed together: a block's, the embeddings', or those after the last block. Each begins
 * at a multiple of 64 elements, and all of them are a multiple of 64 for each rank. */
typedef struct tsr__tape_unit {
  uint64_t elements; /* with what fills it up */
  uint32_t slot;     /* of its parameters, side by side; 0: each has its own */
  uint32_t parameter_count;
  uint32_t stored; /* gradients that this backward pass has completed */
  bool is_block;
} tsr__tape_unit;

/* How state is spread over ranks that train together. */
typedef struct tsr__sharding {
  uint32_t ranks, rank; /* 0 ranks: there is one process, and nothing is summed */
  uint32_t
      stage; /* ZeRO's: 0: nothing is spread; 1: optimizer state; 2: gradients, too; 3: parameters, too */
  TSR__VECTOR(tsr__tape_unit) units;
  TSR__VECTOR(tsr__tape_piece) pieces; /* by parameter */
  TSR__VECTOR(tsr__tensor_id)
  owned; /* from stage 1 on: of each unit, the part that this rank updates */
} tsr__sharding;

typedef struct tsr__tape {
  const struct tsr__rule_book *book; /* whose rows its ops run: op.h */
  tsr__tracer *tracer;               /* not owned; NULL: no stacks */
  TSR__VECTOR(tsr__tape_tensor) tensors;
  TSR__VECTOR(tsr__tape_slot) slots;
  TSR__VECTOR(tsr__op) ops;
  TSR__VECTOR(tsr__kernel_run) runs;
  TSR__VECTOR(tsr__tensor_id) operands; /* of runs */
  TSR__VECTOR(tsr__scalar) scalars;     /* of runs */
  TSR__VECTOR(tsr__tape_move) moves;
  tsr__tape_schedule schedule;
  TSR__VECTOR(tsr__tape_scope) scopes;
  TSR__VECTOR(tsr__tensor_id) locals;
  TSR__VECTOR(uint32_t) ready; /* heap of ops whose gradients are complete, the latest on top */
  size_t ready_bottom;         /* where the heap of the innermost backward begins */
  TSR__VECTOR(tsr__tensor_id) ready_leaves;
  TSR__VECTOR(uint32_t) search; /* scratch of the backward pass */
  TSR__VECTOR(tsr__tape_carried) held;
  TSR__VECTOR(tsr__tensor_id) parameters;   /* in the order of model.parameters() */
  TSR__VECTOR(tsr__optimizer_state) states; /* an optimizer's, of each parameter */
  TSR__VECTOR(tsr__tape_cast) casts;        /* autocast's cache of weights */
  size_t carry_at[TSR__CARRY_COUNT];        /* places in the schedule */
  uint32_t carry_stack[TSR__CARRY_COUNT];
  uint64_t workspace_bytes;     /* of cuBLAS, for each thread */
  tsr__tensor_id workspace[2];  /* of cuBLAS, of the forward and the backward thread; 0: not yet */
  uint32_t block;               /* of the model, that is running: for ops that are recorded */
  const struct tsr__plan *plan; /* of saved tensors, not owned; NULL: they are kept */
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
  bool is_grouped; /* gradients of micro-batches are made apart, and then added */
  /* Called in backward with each parameter once its gradient is stored, which is once for each that no two checkpoints
   * share; may be NULL. */
  void (*gradient_stored)(void *program, tsr__tensor_id parameter);
  /* Called with each parameter once all of a backward pass has been added to its gradient; may be NULL. */
  void (*gradient_complete)(void *program, tsr__tensor_id parameter);
  void *program; /* of these */
  tsr__sharding sharding;
  bool is_autocast;
  uint8_t low_dtype; /* of autocast */
  uint64_t flops, recomputed_flops;
  uint32_t recomputing; /* segments that are being run again */
  uint32_t draws;       /* of random numbers so far */
  uint64_t
      evaluation_interval; /* steps from one evaluation to the next, whose last one has it; 0 = 1 */
  bool has_leaks;          /* some slot is leaked: memory grows with each step */
  bool is_too_long;        /* why it failed with TSR_ERROR_LIMIT, if not for a tensor's size */
  tsr__clash clash;        /* why it failed with TSR_ERROR_ARGUMENT */
  int status;              /* sticky */
} tsr__tape;

/* An empty tape. False when out of memory; it must be released either way. `tracer` may be NULL, and
 * must outlive the tape. */
bool tsr__tape_init(tsr__tape *tape, tsr__tracer *tracer);
void tsr__tape_release(tsr__tape *tape);

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
/* Bytes of the tensor's elements; a view's may be fewer than its slot's. */
uint64_t tsr__tensor_bytes(const tsr__tape *tape, tsr__tensor_id tensor);

static inline const tsr__tensor_id *tsr__run_reads(const tsr__tape *tape,
                                                   const tsr__kernel_run *run) {
  return tape->operands.items + run->first_operand;
}
static inline const tsr__tensor_id *tsr__run_writes(const tsr__tape *tape,
                                                    const tsr__kernel_run *run) {
  return tsr__run_reads(tape, run) + run->read_count;
}
static inline const tsr__tensor_id *tsr__run_scratch(const tsr__tape *tape,
                                                     const tsr__kernel_run *run) {
  return tsr__run_writes(tape, run) + run->write_count;
}
static inline const tsr__scalar *tsr__run_scalars(const tsr__tape *tape,
                                                  const tsr__kernel_run *run) {
  return tape->scalars.items + run->first_scalar;
}

/* ---- Tensors. Each function that returns one returns it held once, by the caller. ---- */

/* A new tensor in its own slot, allocated here and now; the kernel is for the stack. */
tsr__tensor_id tsr__tensor_new(tsr__tape *tape, tsr__kernel kernel, tsr__dtype dtype,
                               tsr__shape shape);
/* The same, allocated in the first step only. */
tsr__tensor_id tsr__tensor_new_once(tsr__tape *tape, tsr__kernel kernel, tsr__dtype dtype,
                                    tsr__shape shape);
/* A tensor that is there before the recording. Parameters are listed in their order. */
tsr__tensor_id tsr__tensor_declare(tsr__tape *tape, tsr__dtype dtype, tsr__shape shape,
                                   tsr_category category);
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

/* What the optimizer updates: parameters, or this rank's part of each unit. */
static inline size_t tsr__tape_updated_count(const tsr__tape *tape) {
  return tape->sharding.stage ? tape->sharding.owned.count : tape->parameters.count;
}
static inline tsr__tensor_id tsr__tape_updated(const tsr__tape *tape, size_t i) {
  return tape->sharding.stage ? tape->sharding.owned.items[i] : tape->parameters.items[i];
}
/* Elements of a unit that one rank keeps. */
static inline uint64_t tsr__unit_part(const tsr__tape *tape, uint32_t unit) {
  return tape->sharding.units.items[unit].elements / tape->sharding.ranks;
}
/* Parameter number `i` belongs to a unit; the last call for a unit completes it. Parameters are declared, and no other
 * tensor uses their slots. */
void tsr__unit_add(tsr__tape *tape, size_t parameter, uint32_t unit, bool is_block);
/* All parameters have units: these get their sizes and, by stage, slots. */
void tsr__units_finish(tsr__tape *tape);
/* Begin what all ranks make together; returns the move's number, to wait for. */
uint32_t tsr__tape_start(tsr__tape *tape, const tsr__tape_move *move);
void tsr__tape_wait(tsr__tape *tape, uint32_t move);
/* Bytes that a rank sends to others in a move; of a broadcast, what its root sends. 0 for a copy. */
uint64_t tsr__move_sent_bytes(const tsr__tape *tape, const tsr__tape_move *move);
/* Bytes that a rank sends to others in a step, after the first. O(moves). */
uint64_t tsr__tape_sent_bytes(const tsr__tape *tape);

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

void tsr__tape_begin(tsr__tape *tape, tsr__tape_phase phase);
void tsr__tape_end(tsr__tape *tape, tsr__tape_phase phase);
/* Mark the place at which the previous step releases what it held until this point. */
void tsr__tape_carry_here(tsr__tape *tape, tsr__tape_carry_point point);
/* The program holds the tensor beyond the step, until that point of the next. */
void tsr__tape_hold_until(tsr__tape *tape, tsr__tensor_id tensor, tsr__tape_carry_point point);
/* The program holds the tensor for good, as one that appends it to a list in each step. Does nothing for
 * tensor 0 and for what is there before the recording. */
void tsr__tape_leak(tsr__tape *tape, tsr__tensor_id tensor);

/* Run a frame's segment again, to fill its holders (ops/checkpoint.c). */
void tsr__tape_refill(tsr__tape *tape, uint32_t frame);

/* Add to the schedule. */
void tsr__tape_emit(tsr__tape *tape, tsr__tape_instr_kind kind, uint32_t subject, uint32_t stack);
/* Note a failure; returns 0. */
int tsr__tape_fail(tsr__tape *tape, int status);
/* Fail because an op cannot be in place. The first clash counts. */
void tsr__clash_note(tsr__tape *tape, tsr__clash clash);
/* Say in `out` what clashed; the tape has failed with TSR_ERROR_ARGUMENT. */
void tsr__clash_describe(const tsr__tape *tape, char *out, size_t room);
/* The program has ended: insert the drops of carried slots, add the copies between memory spaces, and check the
 * result in debug builds. 0 or the sticky status. O(instructions). */
int tsr__tape_finish(tsr__tape *tape);
/* Add the copies between memory spaces (spaces.c). Called by tsr__tape_finish. 0, TSR_ERROR_LIMIT or
 * TSR_ERROR_MEMORY. O(instructions log instructions). */
int tsr__tape_place_moves(tsr__tape *tape);
/* Assert what must hold of a finished tape (check.c). 0, or TSR_ERROR_MEMORY when there was no memory
 * to check with; release builds check nothing. O(instructions + tensors). */
int tsr__tape_check(const tsr__tape *tape);

#endif
