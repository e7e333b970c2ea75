/* schedule.h - one training step as a value: which memory it takes and releases, and what it computes, in order.
 *
 *   program of a model ─► recorder (tape.h) ───┐
 *                                              ├─► schedule ─► dry, record, run, cost, survey, placement, profile
 *   step of a PyTorch program ─► step graph ───┘
 *
 * A schedule is immutable once it is finished, and does not depend on what made it, except that its labels (names and
 * stacks, for people) live elsewhere. Executors need nothing else:
 *
 *   slots     the storages: some bytes of memory each
 *   instrs    what happens, in order: NEW and DROP of slots, RUN of kernels, moves, ops, phases
 *   runs      each kernel that runs: on which tensors, at what cost
 *   work      the same of ops of which only operations and bytes are known
 *   saves     what autograd holds, if no kernel says what is needed when
 *
 * The recorder fills runs, with tensors, ops and numbers, and leaves work and saves empty; a step graph has it the other way
 * round, because its trace shows neither kernels nor their operands. A brief schedule, for peaks and times alone, has runs without
 * tensors and ops: their numbers then mean nothing.
 *
 * Invariants of a finished schedule (tsr__schedule_check):
 *   - number 0 of slots and of tensors stands for none
 *   - a slot is static, or made by one NEW or NEW_ONCE; what NEW made is dropped once after that, or is carried into the
 *     next step and has one DROP_PREV, or is leaked
 *   - a run finds all of its tensors, in its own space; a move starts once and is waited for once, later
 *   - phases are nested
 *   - work is ordered by place, except for what a rewrite adds at the end */
#ifndef TSR_GRAPH_SCHEDULE_H
#define TSR_GRAPH_SCHEDULE_H

#include <assert.h>

#include "base/error.h"
#include "base/vector.h"
#include "kernels/kernel.h"
#include "tessera/category.h"
#include "tessera/types.h"

/* No tensor is larger: sums of their bytes cannot overflow. */
#define TSR__TENSOR_MOST_BYTES (UINT64_C(1) << 48)

/* Instructions of a schedule, and so of a whole run: about a gigabyte of trace, made in seconds. */
#define TSR__MOST_INSTRUCTIONS (UINT64_C(16) << 20)

enum { TSR__OP_INPUTS = 8, TSR__OP_OUTPUTS = 3, TSR__OP_SAVED = 10 };
/* At least as many as there are kinds of ops, and the largest number of an op in its block: others have that number, too. */
enum { TSR__OP_KINDS = 64, TSR__OP_NUMBERS = 100 };

/* Index of a tensor of the schedule; 0 means no tensor. */
typedef uint32_t tsr__tensor_id;

/* A shape over a slot. */
typedef struct tsr__step_tensor {
  tsr__layout layout;
  uint32_t slot;
  tsr__tensor_id grad; /* of a parameter: its gradient, once the step has made it */
  uint8_t dtype;       /* tsr__dtype */
  bool is_parameter;
  bool is_module_output; /* a module of the model returned it: a forward hook sees it */
} tsr__step_tensor;

/* Where memory is. No kernel runs on a disk. */
typedef enum tsr__memory_space {
  TSR__SPACE_DEVICE,
  TSR__SPACE_HOST,
  TSR__SPACE_DISK,
  TSR__SPACE_COUNT
} tsr__memory_space;

typedef struct tsr__slot {
  uint64_t bytes;
  uint16_t device;  /* from 0 */
  uint16_t stream;  /* of the device; 0: its default stream */
  uint8_t category; /* tsr_category */
  uint8_t space;    /* tsr__memory_space */
  bool is_static;   /* there before the recording, and to stay */
  bool is_carried;  /* held when the step ends: the next step drops it */
  bool is_leaked;   /* held for good: each step leaves its own behind */
  bool is_room;     /* a kernel's own, which no run lists: only its bytes count */
  bool is_root; /* no kernel needs to read its value: a backward pass began here, the host reads it,
                 * or it is the gradient of an embedding's result */
} tsr__slot;

typedef enum tsr__instr_kind {
  TSR__INSTR_NEW,       /* allocate the slot */
  TSR__INSTR_NEW_ONCE,  /* allocate it unless an earlier step did: optimizer state */
  TSR__INSTR_DROP,      /* free it */
  TSR__INSTR_DROP_PREV, /* free what the step before left in it, if there was one */
  TSR__INSTR_RUN,       /* a kernel: where a real executor computes */
  TSR__INSTR_START,     /* a move begins: what it copies is there and complete */
  TSR__INSTR_WAIT,      /* a move has ended: only from here on is what it made used */
  TSR__INSTR_OP,        /* the forward or backward of an op begins */
  TSR__INSTR_BEGIN,     /* of a phase; subject is a tsr__phase_kind */
  TSR__INSTR_END
} tsr__instr_kind;

typedef enum tsr__phase_kind {
  TSR__PHASE_STEP,
  TSR__PHASE_ZERO_GRAD,
  TSR__PHASE_FORWARD,
  TSR__PHASE_BACKWARD,
  TSR__PHASE_OPTIMIZER,
  TSR__PHASE_EVALUATION, /* leaves nothing behind, so that a step may skip or repeat it */
  TSR__PHASE_GENERATION, /* one more token: leaves only rows of the key-value cache behind, and may be repeated, too */
  TSR__PHASE_COUNT
} tsr__phase_kind;

/* Whether a step may run the phase several times, or not at all. */
static inline bool tsr__phase_has_rounds(tsr__phase_kind phase) {
  return phase == TSR__PHASE_EVALUATION || phase == TSR__PHASE_GENERATION;
}

typedef struct tsr__instr {
  uint8_t kind; /* tsr__instr_kind */
  bool is_backward;
  uint32_t subject; /* slot, run, move, op or phase */
  uint32_t stack;   /* of the call, a label, or TSR_NONE */
} tsr__instr;

typedef TSR__VECTOR(tsr__instr) tsr__instrs;

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
  TSR__SCALAR_MOMENTUM, /* of SGD */
  TSR__SCALAR_POSITION, /* `number`, plus how often the generation phase has run before in this step */
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

typedef struct tsr__move {
  uint32_t from, to;
  uint32_t staging; /* of a sum: where the parts of all ranks arrive; else 0 */
  uint32_t root;
  uint8_t kind;       /* tsr__move_kind */
  uint8_t dtype;      /* tsr__dtype, of a sum */
  bool is_once;       /* done in the first step only */
  bool is_update;     /* only what an optimizer made: left out with the optimizer's ops */
  bool is_evaluation; /* of the evaluation, which not every step has */
} tsr__move;

/* A kernel, run: what it read and wrote. Its tensors are in `operands` from `first_operand` on: reads, then writes, then
 * scratch, 0 for an absent one; its numbers are in `scalars`. Operations and bytes are those of this one run. */
typedef struct tsr__kernel_run {
  uint8_t kernel; /* tsr__kernel */
  uint8_t read_count, write_count, scratch_count, scalar_count;
  uint8_t transposed; /* bits, of a product: 1 for the first operand, 2 for the second */
  uint8_t space;      /* tsr__memory_space: of the processor that runs it, and of all its tensors */
  bool is_once;       /* run in the first step only: what it writes stays */
  bool is_again;      /* computed again, with more than one purpose: its result may not be needed */
  bool is_half;       /* an operand or a result has 16 bits */
  bool is_optimizer;  /* it belongs to an optimizer's op, */
  bool is_update;     /* which changes parameters or state: a step that is skipped leaves it out */
  uint32_t op;        /* the op that runs it, or TSR_NONE: autograd itself, or the program */
  uint32_t block;     /* of the op */
  uint32_t draw;      /* of random numbers, from 1; 0: none. Backward draws as its forward did */
  uint32_t first_operand, first_scalar;
  uint64_t flops, bytes_moved;
} tsr__kernel_run;

/* An op instance. */
typedef struct tsr__op {
  const char *name; /* static text */
  uint8_t kind;     /* tsr__op_kind */
  uint8_t number;   /* among the ops of its kind in its block, from 0; at most TSR__OP_NUMBERS */
  uint8_t input_count, output_count, saved_count;
  uint32_t block; /* of the model, from 0; TSR_NONE: of none */
  tsr__tensor_id in[TSR__OP_INPUTS], out[TSR__OP_OUTPUTS], saved[TSR__OP_SAVED];
} tsr__op;

/* An op of which only the work is known. */
typedef struct tsr__op_work {
  uint32_t
      place; /* the instruction before which it runs; of rewritten graphs those of the original */
  uint8_t phase; /* tsr__phase_kind */
  bool is_half;  /* numbers of 16 bits */
  uint64_t flops, bytes;
} tsr__op_work;

/* A tensor that autograd saves. Places are the instructions before which something happens, up to the number of instructions. */
typedef struct tsr__save {
  uint32_t slot; /* TSR_NONE: no memory of the card */
  /* Saved, requested by a node of backward, not needed by it any more, released; TSR_NONE: not in this step. */
  uint32_t made, used, left, gone;
  uint64_t bytes; /* of the tensor, which may be part of its slot */
} tsr__save;

typedef TSR__VECTOR(tsr__save) tsr__saves;

/* What an optimizer keeps of a parameter; 0: nothing. */
typedef struct tsr__optimizer_state {
  tsr__tensor_id count, first, second;
  tsr__tensor_id master;   /* of a parameter of 16 bits: the same in fp32, */
  tsr__tensor_id gradient; /* and its gradient in fp32, which is gone when the optimizer is done */
  bool is_updated;         /* in this step's backward */
} tsr__optimizer_state;

/* A parameter's place in its unit: elements `first` to `first` + `count`. */
typedef struct tsr__unit_piece {
  uint32_t unit;
  uint64_t first, count;
} tsr__unit_piece;

/* Parameters whose gradients are summed together: a block's, the embeddings', or those after the last block. Each begins
 * at a multiple of 64 elements, and all of them are a multiple of 64 for each rank. */
typedef struct tsr__unit {
  uint64_t elements; /* with what fills it up */
  uint32_t slot;     /* of its parameters, side by side; 0: each has its own */
  uint32_t parameter_count;
  uint32_t first, end; /* its parameters are among these; most often they are all of them */
  bool is_block;
} tsr__unit;

/* How state is spread over ranks that train together. Ranks have the same schedule, except for the part of each unit
 * that they keep. */
typedef struct tsr__sharding {
  uint32_t ranks, rank; /* 0 ranks: there is one process, and nothing is summed */
  uint32_t
      replicas; /* such groups of ranks, over which sums go as well; 0 and 1: there are no others */
  uint32_t
      stage; /* ZeRO's: 0: nothing is spread; 1: optimizer state; 2: gradients, too; 3: parameters, too */
  TSR__VECTOR(tsr__unit) units;
  TSR__VECTOR(tsr__unit_piece) pieces; /* by parameter */
  TSR__VECTOR(tsr__tensor_id)
  owned; /* from stage 1 on: of each unit, the part that this rank updates */
} tsr__sharding;

/* A tensor that exists before the step, of a block of the model. */
typedef struct tsr__block_tensor {
  tsr__tensor_id tensor;
  uint32_t block;
} tsr__block_tensor;

/* ---- Labels: what people read ---- */

/* A frame of a stack. Texts live as long as the labels. */
typedef struct tsr__trace_frame {
  uint32_t id; /* equal frames have equal ids, counted from 0 */
  uint32_t line;
  const char *name, *file;
} tsr__trace_frame;

/* What the stacks of instructions mean; all NULL: no stacks exist. What `context` points to belongs to the maker of the
 * schedule, and outlives that. */
typedef struct tsr__stack_labels {
  const void *context;
  /* The innermost frame of a stack; returns the stack of its caller, or TSR_NONE. */
  uint32_t (*parent)(const void *context, uint32_t stack, tsr__trace_frame *frame);
  /* The op that a stack ends in, such as mm, or ""; NULL: ops are those of the schedule. */
  const char *(*op)(const void *context, uint32_t stack);
} tsr__stack_labels;

/* ---- The schedule ---- */

typedef struct tsr__schedule {
  TSR__VECTOR(tsr__slot) slots;
  tsr__instrs instrs;
  TSR__VECTOR(tsr__step_tensor) tensors;
  TSR__VECTOR(tsr__op) ops;
  TSR__VECTOR(tsr__kernel_run) runs;
  TSR__VECTOR(tsr__tensor_id) operands; /* of runs */
  TSR__VECTOR(tsr__scalar) scalars;     /* of runs */
  TSR__VECTOR(tsr__move) moves;
  TSR__VECTOR(tsr__op_work) work;
  tsr__saves saves; /* in the order in which they were made */
  /* By slot, if there are saves: before which instruction the program releases it; TSR_NONE: when it is freed. */
  TSR__VECTOR(uint32_t) unheld;
  TSR__VECTOR(tsr__tensor_id) parameters;   /* in the order of model.parameters() */
  TSR__VECTOR(tsr__optimizer_state) states; /* an optimizer's, of each parameter */
  TSR__VECTOR(tsr__block_tensor) blocks;
  tsr__sharding sharding;
  tsr__stack_labels labels;
  uint64_t flops, recomputed_flops;
  uint64_t parameter_count, parameter_bytes, largest_parameter; /* elements, bytes, elements */
  uint64_t trained_count; /* elements of parameters that are not frozen */
  uint64_t waited_bytes;  /* copied to the host and back while nothing else runs */
  uint64_t
      evaluation_interval; /* steps from one evaluation to the next, whose last one has it; 0 = 1 */
  uint32_t draws;          /* of random numbers */
  uint32_t block_count;    /* of the model; 0: it has none, or they are not known */
  uint32_t backward_count; /* backward passes that are alike; 0: not known */
  bool has_leaks;          /* some slot is leaked: memory grows with each step */
  bool updates_in_backward; /* the optimizer runs there, one parameter after another */
  bool waits_for_copies;    /* none is made while something else runs */
} tsr__schedule;

/* Release what it owns. A zeroed one is fine. */
void tsr__schedule_release(tsr__schedule *schedule);
/* Assert the invariants (check.c). 0, or TSR_ERROR_MEMORY when there was no memory to check with; release builds check
 * nothing. O(instructions + operands). */
int tsr__schedule_check(const tsr__schedule *schedule);

static inline const tsr__step_tensor *tsr__schedule_tensor(const tsr__schedule *s,
                                                           tsr__tensor_id tensor) {
  assert(tensor < s->tensors.count);
  return &s->tensors.items[tensor];
}
static inline tsr__shape tsr__schedule_shape(const tsr__schedule *s, tsr__tensor_id tensor) {
  return tsr__schedule_tensor(s, tensor)->layout.shape;
}
static inline tsr__dtype tsr__schedule_dtype(const tsr__schedule *s, tsr__tensor_id tensor) {
  return (tsr__dtype)tsr__schedule_tensor(s, tensor)->dtype;
}
/* Of the tensor's elements; a view's may be fewer than its slot's. */
static inline uint64_t tsr__schedule_bytes(const tsr__schedule *s, tsr__tensor_id tensor) {
  return tsr__shape_elements(tsr__schedule_shape(s, tensor)) *
         tsr__dtype_bytes(tsr__schedule_dtype(s, tensor));
}

static inline const tsr__tensor_id *tsr__run_reads(const tsr__schedule *s,
                                                   const tsr__kernel_run *run) {
  return s->operands.items + run->first_operand;
}
static inline const tsr__tensor_id *tsr__run_writes(const tsr__schedule *s,
                                                    const tsr__kernel_run *run) {
  return tsr__run_reads(s, run) + run->read_count;
}
static inline const tsr__tensor_id *tsr__run_scratch(const tsr__schedule *s,
                                                     const tsr__kernel_run *run) {
  return tsr__run_writes(s, run) + run->write_count;
}
static inline uint32_t tsr__run_operand_count(const tsr__kernel_run *run) {
  return (uint32_t)run->read_count + run->write_count + run->scratch_count;
}
static inline const tsr__scalar *tsr__run_scalars(const tsr__schedule *s,
                                                  const tsr__kernel_run *run) {
  return s->scalars.items + run->first_scalar;
}

/* The name of op `op`; if that is TSR_NONE, of the op that the stack ends in. "" if neither is known. */
const char *tsr__schedule_op_name(const tsr__schedule *schedule, uint32_t op, uint32_t stack);

/* What the optimizer updates: parameters, or this rank's part of each unit. */
static inline size_t tsr__schedule_updated_count(const tsr__schedule *s) {
  return s->sharding.stage ? s->sharding.owned.count : s->parameters.count;
}
static inline tsr__tensor_id tsr__schedule_updated(const tsr__schedule *s, size_t i) {
  return s->sharding.stage ? s->sharding.owned.items[i] : s->parameters.items[i];
}
/* Elements of a unit that one rank keeps. */
static inline uint64_t tsr__unit_part(const tsr__schedule *s, uint32_t unit) {
  return s->sharding.units.items[unit].elements / s->sharding.ranks;
}
/* Bytes that a rank sends to others in a move; of a broadcast, what its root sends. 0 for a copy. */
uint64_t tsr__move_sent_bytes(const tsr__schedule *schedule, const tsr__move *move);
/* Of these, what it sends to the ranks of other replicas, which have the same part. */
uint64_t tsr__move_replicated_bytes(const tsr__schedule *schedule, const tsr__move *move);
/* Bytes that a rank sends to others in a step, after the first and without an evaluation. O(moves). */
uint64_t tsr__schedule_sent_bytes(const tsr__schedule *schedule);

#endif
