/* op.h - the op table: what each op allocates, saves, uses temporarily, and runs.
 *
 * An op is declared in one place, its row: two lists of steps, for forward and backward. A step is one kernel - a
 * multiplication, a softmax, a matrix product - with all tensors that it reads and writes and all numbers that it
 * needs, in PyTorch's order; around it are the steps that save a tensor for backward, or release one. Everything else
 * is derived from the steps:
 *
 *   what is allocated, when and for how long    the tape's schedule (tape.h)
 *   what backward keeps                         the SAVE steps
 *   operations and bytes moved                  each kernel's rule (kernel.c) on its operands
 *   what a real executor calls            the tape's runs: kernel, reads, writes, numbers
 *
 * Lists are complete: running the kernels of a tape in order, on the tensors they name, computes
 * the training step. The validator (validate.h) rejects a program for which that is not true.
 *
 * Implementations of one function - attention eager, memory-efficient, flash, chunked - are rows of
 * their own. Types follow from the inputs' types and each step's rule. Rows belong to a rule book:
 * `torch` has what PyTorch's kernels allocate, `own` what tessera's allocate, which are fused.
 *
 * Steps name tensors by registers:
 *
 *   IN(i)        the op's inputs (in backward: their shapes and types alone)
 *   OUT(i)       what forward returns
 *   SAVED(i)     what forward keeps; backward has it until it says otherwise
 *   GRAD_OUT(i)  the gradients that came; GRAD_IN(i): those to hand on
 *   SO_FAR(i)    the gradient of input i that is there already, after a JOIN
 *   T(i)         temporaries: each must be released by the op that made it
 *
 *   forward of a product     {RUN(MUL), .to = OUT(0), .reads = {IN(0), IN(1)}}, {SAVE(0, IN(0))}, ...
 *   backward, one gradient   {RUN(MUL), .to = GRAD_IN(0), .reads = {GRAD_OUT(0), SAVED(1)}}
 *   several results          {MAKE(DROPOUT), .to = OUT(0)}, {MAKE(DROPOUT), .to = OUT(1), BOOL},
 *                            {RUN(DROPOUT), .reads = {IN(0)}, .writes = {OUT(0), OUT(1)}}
 *   in place                 {INTO(ADD), .reads = {T(0), T(1)}, .writes = {T(0)}}
 *   part of a tensor         {VIEW(T(1), IN(0)), .view = rows_of_this_turn}
 *   added to what is there   {JOIN(MM, GRAD_IN(1), IN(1))},
 *                            {INTO(MM), .reads = {SAVED(0), GRAD_OUT(0), SO_FAR(1)},
 *                             .writes = {GRAD_IN(1)}}
 *   in memory that is free   {REUSE(GELU_BACKWARD, GRAD_IN(0), GRAD_OUT(0))},
 *                            {INTO(GELU_BACKWARD), .reads = {GRAD_OUT(0), SAVED(0)},
 *                             .writes = {GRAD_IN(0)}}
 *
 * A register that is assigned again releases what it held, after the new tensor is there, as a
 * variable of Python's does. A step whose result is a gradient that nothing needs is omitted.
 *
 * With JOIN, weights' gradients need no temporary. If a gradient of the input has arrived already (from another use
 * of it, or from an earlier micro-batch) and nothing else holds it, GRAD_IN(i) and SO_FAR(i) are that tensor, the
 * kernel adds to it, and nothing is passed on. Otherwise JOIN is a MAKE, SO_FAR(i) stays empty, and a kernel whose
 * operand is missing adds to nothing. REUSE likewise takes a tensor's memory for the result if nothing but this
 * register holds it and it is not kept in another space, which the kernel must allow (in_place), and is a MAKE
 * otherwise.
 *
 * A gradient has the layout of its tensor, unless the step says otherwise: its dimensions are nested in the same order.
 * If an input is a view, autograd then views the gradient in the shape of the viewed tensor. If the gradient lies
 * otherwise, as those of some of PyTorch's kernels do, autograd copies it (backward.c).
 *
 * A gradient that consists of parts, each the result of another autograd node, may be passed on in parts: GIVE. */
#ifndef TSR_GRAPH_OP_H
#define TSR_GRAPH_OP_H

#include "graph/tape.h"
#include "kernels/kernel.h"

typedef enum tsr__op_kind {
  TSR__OP_EMBEDDING,
  TSR__OP_CONV1D,       /* bias, x, weight (inputs, outputs): GPT-2's linear */
  TSR__OP_LINEAR,       /* bias, x, weight (outputs, inputs): nn.Linear */
  TSR__OP_LINEAR_PLAIN, /* x, weight (outputs, inputs): nn.Linear without a bias */
  TSR__OP_LINEAR_FP8,   /* TransformerEngine's: x, weight (outputs, inputs), bias or 0 (op_fp8.c) */
  TSR__OP_LINEAR_4BIT, /* bitsandbytes' linear layer: x, codes, scales, and more (op_quantised.c) */
  TSR__OP_LAYER_NORM,
  TSR__OP_RMS_NORM,
  TSR__OP_SPLIT, /* one tensor as three views along its last dimension */
  TSR__OP_CACHE, /* append keys or values to a cache that is empty */
  TSR__OP_KEEP, /* own: keys or values, and a cache with room: keep them there, from a position on */
  TSR__OP_REPEAT, /* keys or values of few heads for many */
  TSR__OP_ROTARY_TABLE,
  TSR__OP_ROTARY,
  TSR__OP_ATTENTION_EFFICIENT, /* one kernel */
  TSR__OP_ATTENTION_FLASH,
  TSR__OP_ATTENTION_MATH, /* PyTorch's, where no kernel fits */
  TSR__OP_ATTENTION_CHUNKED,
  TSR__OP_ATTENTION_GPT2, /* eager: matmul, softmax, dropout, matmul */
  TSR__OP_ATTENTION_LLAMA,
  TSR__OP_CAUSAL_MASK,
  TSR__OP_MASK_CHECK,
  TSR__OP_DROPOUT,
  TSR__OP_ADD,
  TSR__OP_MUL,
  TSR__OP_GELU,
  TSR__OP_GELU_FUSED,
  TSR__OP_SILU,
  TSR__OP_SILU_GATE, /* own: SiLU of the first, times the second */
  TSR__OP_CAST,
  TSR__OP_CLONE,
  TSR__OP_SHIFT_LABELS,
  TSR__OP_LOG_SOFTMAX,
  TSR__OP_NLL_LOSS,
  TSR__OP_CROSS_ENTROPY, /* own: both in one */
  TSR__OP_CHUNKED_LOSS,  /* head and cross-entropy, some tokens at a time */
  TSR__OP_SCALE,         /* times a number */
  TSR__OP_MEAN,
  TSR__OP_ARANGE,
  TSR__OP_CHECKPOINT,
  TSR__OP_ADAMW_STATE, /* the optimizers': of one parameter each */
  TSR__OP_ADAMW_COUNT,
  TSR__OP_ADAMW_LOOP,
  TSR__OP_ADAMW_FOREACH,
  TSR__OP_ADAMW_FUSED,
  TSR__OP_SGD,
  TSR__OP_SGD_STATE,
  TSR__OP_SGD_MOMENTUM,
  TSR__OP_SGD_NESTEROV,
  TSR__OP_UNSCALE,
  TSR__OP_MASTER,       /* a parameter in fp32, for the optimizer, */
  TSR__OP_MASTER_STORE, /* and back in its own type */
  TSR__OP_KIND_COUNT
} tsr__op_kind;

/* What autocast does to an op's inputs. */
typedef enum tsr__op_autocast {
  TSR__AUTOCAST_NONE,            /* nothing: it works in what it gets */
  TSR__AUTOCAST_LOW,             /* the 16-bit type */
  TSR__AUTOCAST_LOW_BUT_WEIGHTS, /* the same, but for parameters, which the kernel rounds */
  TSR__AUTOCAST_FULL             /* fp32 */
} tsr__op_autocast;

/* ---- Registers ---- */

enum { TSR__OP_TEMPORARIES = 12, TSR__STEP_DONE = 6 };

enum {
  TSR__REG_NONE,
  TSR__REG_IN,
  TSR__REG_OUT = TSR__REG_IN + TSR__OP_INPUTS,
  TSR__REG_SAVED = TSR__REG_OUT + TSR__OP_OUTPUTS,
  TSR__REG_GRAD_OUT = TSR__REG_SAVED + TSR__OP_SAVED,
  TSR__REG_GRAD_IN = TSR__REG_GRAD_OUT + TSR__OP_OUTPUTS,
  TSR__REG_SO_FAR = TSR__REG_GRAD_IN + TSR__OP_INPUTS,
  TSR__REG_T = TSR__REG_SO_FAR + TSR__OP_INPUTS,
  TSR__REG_COUNT = TSR__REG_T + TSR__OP_TEMPORARIES
};

/* An op under way. */
typedef struct tsr__op_call {
  tsr__tape *tape;
  uint32_t op; /* its index; the op moves when others are recorded */
  const tsr__op_attributes *attributes;
  uint32_t input_count;
  tsr__tensor_id reg[TSR__REG_COUNT];
  bool needs[TSR__OP_INPUTS]; /* a gradient is needed */
  bool is_recorded;           /* backward will come: what is saved is kept */
  bool is_closed;             /* what a checkpoint computed again for it has been fetched */
  bool needs_exact;           /* what it saves now: see tsr__op_step */
  uint8_t over;         /* 1 + the input in whose memory the result goes; 0: none (in_place.c) */
  uint64_t turn, turns; /* of a loop */
  uint32_t draws;       /* of random numbers so far; backward counts as its forward did */
  const char *node;     /* the autograd node whose backward is running */
} tsr__op_call;

/* ---- Steps ---- */

typedef enum tsr__op_action {
  TSR__DO_END,   /* of the list */
  TSR__DO_RUN,   /* allocate `to`, if there is one, and run the kernel */
  TSR__DO_MAKE,  /* allocate `to`, which a RUN or INTO writes later; the kernel is for the stack */
  TSR__DO_ONCE,  /* RUN in the first step of training only: what it makes stays */
  TSR__DO_JOIN,  /* MAKE, or a gradient that is there, for the kernel to add to */
  TSR__DO_REUSE, /* MAKE, or in the memory of reads[0], if nothing else holds it */
  TSR__DO_INTO,  /* run the kernel on tensors that are there; left out where writes[0] is not */
  TSR__DO_TO,    /* reads[0] in the type that is requested: a cast, or the tensor itself */
  TSR__DO_DENSE, /* reads[0] as a product of matrices takes it: a copy in order if it is no list of matrices, or itself */
  TSR__DO_VIEW,  /* `to` shares the memory of reads[0] */
  TSR__DO_MOVE,  /* `to` is what reads[0] was, which is empty now */
  TSR__DO_SAVE,  /* keep reads[0] as `to`, a SAVED register */
  TSR__DO_PASS,  /* `to` is reads[0] too */
  TSR__DO_GIVE, /* reads[0], which is empty then, is a first part of `to`, a gradient, and passed on now */
  TSR__DO_HAND,  /* `to`, a gradient, is complete and passed on now */
  TSR__DO_CLOSE, /* no other tensor that a checkpoint computed again is fetched from here on */
  TSR__DO_FREE,  /* only release what `done` lists */
  TSR__DO_LOOP,  /* what follows, `count` times, */
  TSR__DO_AGAIN  /* up to here */
} tsr__op_action;

/* The layout of a result's elements. */
typedef enum tsr__op_nesting {
  TSR__LIES_DENSE,    /* in order; a gradient as its input does */
  TSR__LIES_IN_ORDER, /* in order, a gradient too */
  TSR__LIES_LIKE,     /* nested as those of `like`, or of the first operand */
  TSR__LIES_ROWS_LAST, /* as the transpose of a product: the last dimension but one is the innermost */
  TSR__LIES_ROWS_FIRST /* heads as if split off rows: tsr__layout_rows_first */
} tsr__op_nesting;

/* A number that a step needs: a tsr__scalar, or the result of a rule. */
typedef struct tsr__op_scalar {
  uint8_t kind; /* tsr__scalar_kind */
  double number;
  double (*rule)(const tsr__op_call *call); /* NULL: `number` */
} tsr__op_scalar;

/* Which type a result has. */
typedef enum tsr__op_type_rule {
  TSR__TYPE_LIKE, /* that of `typed`; else of `like`; else of the first operand */
  TSR__TYPE_F32,
  TSR__TYPE_I64,
  TSR__TYPE_F64,
  TSR__TYPE_BOOL,
  TSR__TYPE_ASKED,    /* attributes.dtype */
  TSR__TYPE_WIDE,     /* fp32 under autocast, else as above */
  TSR__TYPE_LOW,      /* the 16-bit type under autocast, else as above */
  TSR__TYPE_PROMOTED, /* in which the first two operands meet */
} tsr__op_type_rule;

typedef struct tsr__op_step {
  uint8_t action; /* tsr__op_action */
  uint8_t kernel; /* tsr__kernel */
  uint8_t to;     /* what it allocates: of a RUN, writes[0] too */
  uint8_t reads[TSR__KERNEL_READS];
  uint8_t writes[TSR__KERNEL_WRITES];   /* without `to` */
  uint8_t scratch[TSR__KERNEL_SCRATCH]; /* room that the kernel needs while it runs */
  tsr__op_scalar scalars[TSR__KERNEL_SCALARS];
  uint8_t transposed;  /* as tsr__kernel_run has it */
  uint8_t like;        /* whose shape and type; 0: the first operand's */
  uint8_t typed, type; /* another type: a register's, or a rule's */
  uint8_t lies;        /* tsr__op_nesting */
  uint8_t by;          /* the kernel that calls this one, for the stack */
  bool is_exact;       /* of a SAVE: 8 bits are too few for it */
  bool is_viewed;      /* a gradient that is passed on as a view */
  bool is_unread;      /* no kernel needs to read the result: only the host does, or nobody */
  tsr__shape (*shape)(const tsr__op_call *call);                     /* another shape */
  tsr__layout (*view)(const tsr__op_call *call, tsr__layout layout); /* of a VIEW */
  bool (*when)(const tsr__op_call *call);      /* else the step is left out, `done` with it */
  uint64_t (*count)(const tsr__op_call *call); /* of a loop */
  const char *node;                            /* autograd's, from here on */
  const char *within;                          /* a function of FunctionsManual.cpp */
  uint8_t done[TSR__STEP_DONE];                /* release afterwards, in this order */
} tsr__op_step;

enum { TSR__OP_CASTS = 4 };

typedef struct tsr__op_row {
  const char *name; /* in the project's words */
  const char *node; /* PyTorch's autograd node, or NULL: no gradient passes */
  uint8_t autocast; /* tsr__op_autocast */
  /* The order in which it casts inputs, counted from 1; if empty, the last one first: gcc evaluates arguments so. */
  uint8_t casts[TSR__OP_CASTS];
  const tsr__op_step *forward, *backward; /* NULL: nothing happens to memory, or see below */
  /* Instead of steps, for the one op that runs others: checkpoint. */
  void (*run_forward)(tsr__op_call *call);
  void (*run_backward)(tsr__op_call *call);
} tsr__op_row;

/* Each row stands with its steps: op_linear.c, op_norm.c, op_attention.c, ... */
extern const tsr__op_row tsr__op_embedding, tsr__op_conv1d, tsr__op_linear,
    tsr__op_linear_plain;                                      /* op_linear.c */
extern const tsr__op_row tsr__op_linear_fp8;                   /* op_fp8.c */
extern const tsr__op_row tsr__op_linear_4bit;                  /* op_quantised.c */
extern const tsr__op_row tsr__op_layer_norm, tsr__op_rms_norm; /* op_norm.c */
extern const tsr__op_row tsr__op_split, tsr__op_cache, tsr__op_repeat, tsr__op_rotary_table,
    tsr__op_rotary;                                               /* op_heads.c */
extern const tsr__op_row tsr__op_causal_mask, tsr__op_mask_check; /* op_mask.c */
extern const tsr__op_row tsr__op_attention_efficient, tsr__op_attention_flash,
    tsr__op_attention_chunked;                                            /* op_attention.c */
extern const tsr__op_row tsr__op_attention_math;                          /* op_math.c */
extern const tsr__op_row tsr__op_attention_gpt2, tsr__op_attention_llama; /* op_eager.c */
extern const tsr__op_row tsr__op_dropout, tsr__op_add, tsr__op_mul, tsr__op_gelu,
    tsr__op_gelu_fused, tsr__op_silu, tsr__op_cast, tsr__op_clone, tsr__op_scale, tsr__op_mean,
    tsr__op_arange; /* op_pointwise.c */
extern const tsr__op_row tsr__op_shift_labels, tsr__op_log_softmax, tsr__op_nll_loss,
    tsr__op_chunked_loss;                    /* op_loss.c */
extern const tsr__op_row tsr__op_checkpoint; /* checkpoint.c */
extern const tsr__op_row tsr__op_adamw_state, tsr__op_adamw_count, tsr__op_adamw_loop,
    tsr__op_adamw_foreach, tsr__op_adamw_fused, tsr__op_sgd, tsr__op_sgd_state,
    tsr__op_sgd_momentum, tsr__op_sgd_nesterov, tsr__op_unscale, tsr__op_master,
    tsr__op_master_store; /* op_optimizer.c */

/* tessera's own, where they differ: next to those above. */
extern const tsr__op_row tsr__own_embedding, tsr__own_conv1d, tsr__own_linear,
    tsr__own_linear_plain;                                               /* op_linear.c */
extern const tsr__op_row tsr__own_layer_norm, tsr__own_rms_norm;         /* op_norm.c */
extern const tsr__op_row tsr__own_split, tsr__own_keep, tsr__own_rotary; /* op_heads.c */
extern const tsr__op_row tsr__own_attention;                             /* op_attention.c */
extern const tsr__op_row tsr__own_dropout, tsr__own_add, tsr__own_gelu, tsr__own_silu,
    tsr__own_silu_gate;                                                 /* op_pointwise.c */
extern const tsr__op_row tsr__own_cross_entropy, tsr__own_chunked_loss; /* op_loss.c */
extern const tsr__op_row tsr__own_adamw;                                /* op_optimizer.c */

/* A rule book: how one implementation runs each op. A value, so that a program can be built by
 * either's rules: `torch`, what PyTorch's kernels allocate, or `own`, what tessera's do. */
typedef struct tsr__rule_book {
  const char *name;
  bool is_torch; /* the program around the ops is transformers', too: caches, masks, outputs,
                  * workspaces */
  /* A gradient that is a view keeps the viewed tensor alive, so that no other gradient is added to it in place:
   * as_view of torch/csrc/autograd/VariableTypeUtils.h notes the base with gradients disabled, too. */
  bool views_keep_bases;
  bool sums_flat; /* kernels can add to gradients that are there, token after token */
  /* Run the segment of a checkpoint that is not reentrant again, to fill the holders of this frame. */
  void (*refill)(tsr__tape *tape, uint32_t frame);
  const tsr__op_row *rows[TSR__OP_KIND_COUNT]; /* NULL: programs by this book have no such op */
} tsr__rule_book;

extern const tsr__rule_book tsr__book_torch, tsr__book_own; /* ops/ops.c */

static inline const tsr__op_row *tsr__op_row_of(const tsr__rule_book *book, tsr__op_kind kind) {
  assert(book && (unsigned)kind < TSR__OP_KIND_COUNT && book->rows[kind]);
  return book->rows[kind];
}

/* Whether the op changes parameters or an optimizer's state: such ops are left out of a step that is skipped. */
bool tsr__op_is_update(tsr__op_kind kind);
/* Whether an op of the kind is an optimizer's: an update, or the making of state. */
bool tsr__op_is_optimizer(tsr__op_kind kind);

/* ---- Running them ---- */

/* Run an op on inputs that the caller holds. Returns the first output, bound to a variable of
 * the current function; `outputs` (or NULL) gets all. */
tsr__tensor_id tsr__op_apply(tsr__tape *tape, tsr__op_kind kind,
                             const tsr__op_attributes *attributes, const tsr__tensor_id *inputs,
                             uint32_t input_count, tsr__tensor_id *outputs);
#define TSR__OP_APPLY(tape, kind, ...)                                       \
  tsr__op_apply((tape), (kind), NULL, (const tsr__tensor_id[]){__VA_ARGS__}, \
                sizeof((tsr__tensor_id[]){__VA_ARGS__}) / sizeof(tsr__tensor_id), NULL)

/* Run the segment of a checkpoint that is not reentrant, of which attributes->segment, program and index are read, on
 * inputs that the caller holds (0: absent). Its result is bound to the current function. */
tsr__tensor_id tsr__checkpoint_run(tsr__tape *tape, const tsr__op_attributes *attributes,
                                   const tsr__tensor_id *inputs, uint32_t count);
/* See tsr__rule_book. */
void tsr__checkpoint_refill(tsr__tape *tape, uint32_t frame);

/* Run the backward pass from `root`, whose gradient is `grad` (held by the caller, and used up). */
void tsr__tape_backward(tsr__tape *tape, tsr__tensor_id root, tsr__tensor_id grad);

/* Run a list of steps. A list that leaves something in temporaries is wrong. */
void tsr__op_run_steps(tsr__op_call *call, const tsr__op_step *steps);

/* A kernel outside of any op, in full: what autograd, the batch and the optimizer's program run. */
typedef struct tsr__kernel_use {
  tsr__kernel kernel;
  tsr__tensor_id reads[TSR__KERNEL_READS], writes[TSR__KERNEL_WRITES];
  tsr__tensor_id scratch[TSR__KERNEL_SCRATCH];
  tsr__scalar scalars[TSR__KERNEL_SCALARS];
  uint8_t transposed;
  bool is_once;
  uint32_t op, draw; /* as tsr__kernel_run has them */
} tsr__kernel_use;

/* The gradient of a tensor that has arrived so far, if nothing else holds it, or 0. It comes from other uses in this
 * backward pass or, for a leaf, from earlier passes. A kernel may add to it instead of passing on another gradient.
 * Not held. */
tsr__tensor_id tsr__tape_gradient_so_far(const tsr__tape *tape, tsr__tensor_id tensor);

/* Before an op's backward ends: add a part of the gradient of an input to what has arrived for that, and use `part` up;
 * or pass on the i-th gradient, which is complete. */
void tsr__tape_give_gradient(tsr__tape *tape, tsr__tensor_id input, tsr__tensor_id part);
void tsr__op_hand_gradient(tsr__op_call *call, uint32_t i);

/* Note a run of tensors that are there. */
void tsr__tape_run(tsr__tape *tape, const tsr__kernel_use *use);
/* Allocate writes[0] in a layout without gaps, and run. Returns it, held by the caller, or 0. */
tsr__tensor_id tsr__tape_run_new(tsr__tape *tape, tsr__kernel_use *use, tsr__dtype dtype,
                                 tsr__layout layout);
/* Add to a tensor in place. */
void tsr__tape_run_add(tsr__tape *tape, tsr__tensor_id sum, tsr__tensor_id more);

/* Decide whether the op writes its result over an operand; before its steps run. */
void tsr__op_choose_place(tsr__op_call *call);
/* Whether autograd is to have a gradient for an input: predicates of steps. */
bool tsr__op_trains_0(const tsr__op_call *call);
bool tsr__op_trains_1(const tsr__op_call *call);
bool tsr__op_trains_2(const tsr__op_call *call);

/* Check that nothing needs the overwritten tensor; after its steps have run. O(ops) if something does. */
void tsr__op_check_place(tsr__op_call *call);

/* Keep `tensor` for backward as the op's i-th, as the plan says (saved.c). */
void tsr__op_save(tsr__op_call *call, uint32_t i, tsr__tensor_id tensor);
/* Before an op's backward: bring back what it saved, into its registers. */
void tsr__op_unpack(tsr__op_call *call);
/* After it, when these are released: release what was kept to bring it back. */
void tsr__op_forget(tsr__op_call *call);
/* Before that: the last tensor that a checkpoint computed again has been fetched. */
void tsr__op_close(tsr__op_call *call);
/* The autograd node whose backward runs changes, for the stack. */
void tsr__op_node(tsr__op_call *call, const char *node);

/* ---- For the lists' rules ---- */

static inline tsr__shape tsr__op_shape(const tsr__op_call *call, uint32_t reg) {
  return tsr__tensor_shape(call->tape, call->reg[reg]);
}
static inline tsr__layout tsr__op_layout(const tsr__op_call *call, uint32_t reg) {
  return tsr__tensor_layout(call->tape, call->reg[reg]);
}
static inline tsr__dtype tsr__op_dtype(const tsr__op_call *call, uint32_t reg) {
  return tsr__tensor_dtype(call->tape, call->reg[reg]);
}

#endif
