/* op.h - the op table: what each op makes, keeps, needs for a moment, and runs.
 *
 * An op is declared in one place, its row: two lists of steps, for forward and backward. A step is
 * one kernel - a multiplication, a softmax, a matrix product - with the tensors it reads and the one
 * it makes, in PyTorch's order; around it stand the steps that keep a tensor for backward, or let
 * one go. Everything else is derived from the steps:
 *
 *   what is allocated, when and for how long    the tape's schedule (tape.h)
 *   what backward keeps                         the SAVE steps
 *   operations and bytes moved                  each kernel's rule (kernel.c) on its operands
 *   what a real executor has to call            the tape's runs: kernel, operands, results
 *
 * Implementations of one function - attention eager, memory-efficient, flash, chunked - are rows of
 * their own. Types follow from the inputs' types and each step's rule.
 *
 * Steps name tensors by registers:
 *
 *   IN(i)        the op's inputs (in backward: their shapes and types alone)
 *   OUT(i)       what forward answers
 *   SAVED(i)     what forward keeps; backward has it until it says otherwise
 *   GRAD_OUT(i)  the gradients that came; GRAD_IN(i): those to hand on
 *   T(i)         temporaries: each must be let go of by the op that made it
 *
 *   forward of a product          {MUL, .to = OUT(0), .from = {IN(0), IN(1)}}, {SAVE, SAVED(0), IN(0)}, ...
 *   backward, one gradient        {MUL, .to = GRAD_IN(0), .from = {GRAD_OUT(0), SAVED(1)}}
 *
 * A register that is assigned anew lets go of what it held, after the new tensor is there, as a
 * variable of Python's does. A step whose result is a gradient that nobody wants is left out. */
#ifndef TSR_ENGINE_OP_H
#define TSR_ENGINE_OP_H

#include "engine/kernel.h"
#include "engine/tape.h"

typedef enum tsr__op_kind {
  TSR__OP_EMBEDDING,
  TSR__OP_ADDMM, /* bias, x, weight: Conv1D, or linear with a bias */
  TSR__OP_MM,    /* x, weight: linear without a bias */
  TSR__OP_LAYER_NORM,
  TSR__OP_RMS_NORM,
  TSR__OP_SPLIT,  /* one tensor as three views along its last dimension */
  TSR__OP_CACHE,  /* append keys or values to a cache that is empty */
  TSR__OP_REPEAT, /* keys or values of few heads for many */
  TSR__OP_ROTARY_TABLE,
  TSR__OP_ROTARY,
  TSR__OP_ATTENTION_EFFICIENT, /* one kernel */
  TSR__OP_ATTENTION_FLASH,
  TSR__OP_ATTENTION_CHUNKED,
  TSR__OP_ATTENTION_GPT2, /* eager: matmul, softmax, dropout, matmul */
  TSR__OP_ATTENTION_LLAMA,
  TSR__OP_CAUSAL_MASK,
  TSR__OP_DROPOUT,
  TSR__OP_ADD,
  TSR__OP_MUL,
  TSR__OP_GELU,
  TSR__OP_GELU_FUSED,
  TSR__OP_SILU,
  TSR__OP_CAST,
  TSR__OP_SHIFT_LABELS,
  TSR__OP_LOG_SOFTMAX,
  TSR__OP_NLL_LOSS,
  TSR__OP_CHUNKED_LOSS, /* head and cross-entropy, some tokens at a time */
  TSR__OP_SCALE,        /* times a number */
  TSR__OP_MEAN,
  TSR__OP_ARANGE,
  TSR__OP_CHECKPOINT,
  TSR__OP_ADAMW_STATE, /* the optimizers': of one parameter each */
  TSR__OP_ADAMW_COUNT,
  TSR__OP_ADAMW_LOOP,
  TSR__OP_ADAMW_FOREACH,
  TSR__OP_ADAMW_FUSED,
  TSR__OP_SGD,
  TSR__OP_UNSCALE,
  TSR__OP_KIND_COUNT
} tsr__op_kind;

/* What autocast does to an op's inputs. */
typedef enum tsr__autocast {
  TSR__AUTOCAST_NONE, /* nothing: it works in what it gets */
  TSR__AUTOCAST_LOW,  /* the 16-bit type */
  TSR__AUTOCAST_FULL  /* fp32 */
} tsr__autocast;

/* ---- Registers ---- */

enum {
  TSR__REG_NONE,
  TSR__REG_IN,
  TSR__REG_OUT = TSR__REG_IN + TSR__OP_INPUTS,
  TSR__REG_SAVED = TSR__REG_OUT + TSR__OP_OUTPUTS,
  TSR__REG_GRAD_OUT = TSR__REG_SAVED + TSR__OP_SAVED,
  TSR__REG_GRAD_IN = TSR__REG_GRAD_OUT + TSR__OP_OUTPUTS,
  TSR__REG_T = TSR__REG_GRAD_IN + TSR__OP_INPUTS,
  TSR__REG_COUNT = TSR__REG_T + 8
};

/* An op under way. */
typedef struct tsr__call {
  tsr__tape *tape;
  uint32_t op; /* its index; the op moves when others are recorded */
  const tsr__attributes *attributes;
  uint32_t input_count;
  tsr__tid reg[TSR__REG_COUNT];
  bool needs[TSR__OP_INPUTS]; /* a gradient is wanted */
  bool is_recorded;           /* backward will come: what is saved is kept */
  uint64_t turn, turns;       /* of a loop */
  const char *node;           /* the autograd node whose backward is running */
} tsr__call;

/* ---- Steps ---- */

typedef enum tsr__action {
  TSR__DO_END,   /* of the list */
  TSR__DO_RUN,   /* allocate `to`, if there is one, and run the kernel */
  TSR__DO_MAKE,  /* allocate `to`: one more result of the kernel that the next RUN names */
  TSR__DO_ONCE,  /* RUN whose result is made in the first step of training, and stays */
  TSR__DO_INTO,  /* run the kernel on `from`, the first of which it changes in place */
  TSR__DO_TO,    /* `from` in the type that is asked for: a cast, or the tensor itself */
  TSR__DO_DENSE, /* `from` with its elements in order: a copy, or the tensor itself */
  TSR__DO_VIEW,  /* `to` shares the memory of `from` */
  TSR__DO_MOVE,  /* `to` is what `from` was, which is empty now */
  TSR__DO_SAVE,  /* keep `from` as `to`, a SAVED register */
  TSR__DO_PASS,  /* the gradient `to` is `from` too */
  TSR__DO_FREE,  /* only let go of what `done` lists */
  TSR__DO_LOOP,  /* what follows, `count` times, */
  TSR__DO_AGAIN  /* up to here */
} tsr__action;

/* Which type a result has. */
typedef enum tsr__type {
  TSR__TYPE_LIKE, /* that of `typed`; else of `like`; else of the first operand */
  TSR__TYPE_F32,
  TSR__TYPE_I64,
  TSR__TYPE_BOOL,
  TSR__TYPE_ASKED,    /* attributes.dtype */
  TSR__TYPE_WIDE,     /* fp32 under autocast, else as above */
  TSR__TYPE_PROMOTED, /* in which the first two operands meet */
} tsr__type;

typedef struct tsr__step {
  uint8_t action; /* tsr__action */
  uint8_t kernel; /* tsr__kernel */
  uint8_t to;
  uint8_t from[4];
  uint8_t like;                               /* whose shape and type; 0: the first operand's */
  uint8_t typed, type;                        /* another type: a register's, or a rule's */
  bool is_strided;                            /* the result's elements are not in order */
  bool is_transposed;                         /* a product over the first operand's rows */
  uint8_t by;                                 /* the kernel that calls this one, for the stack */
  tsr__shape (*shape)(const tsr__call *call); /* another shape */
  bool (*when)(const tsr__call *call);        /* else the step is left out, `done` with it */
  uint64_t (*count)(const tsr__call *call);   /* of a loop */
  const char *node;                           /* autograd's, from here on */
  const char *within;                         /* a function of FunctionsManual.cpp */
  uint8_t done[4];                            /* let go of afterwards, in this order */
} tsr__step;

typedef struct tsr__op_row {
  const char *name;                    /* in the project's words */
  const char *node;                    /* PyTorch's autograd node, or NULL: no gradient passes */
  uint8_t autocast;                    /* tsr__autocast */
  const tsr__step *forward, *backward; /* NULL: nothing happens to memory, or see below */
  /* Instead of steps, for the one op that runs others: checkpoint. */
  void (*run_forward)(tsr__call *call);
  void (*run_backward)(tsr__call *call);
} tsr__op_row;

/* Each row stands with its steps: op_linear.c, op_norm.c, op_attention.c, ... */
extern const tsr__op_row tsr__op_embedding, tsr__op_addmm, tsr__op_mm; /* op_linear.c */
extern const tsr__op_row tsr__op_layer_norm, tsr__op_rms_norm;         /* op_norm.c */
extern const tsr__op_row tsr__op_split, tsr__op_cache, tsr__op_repeat, tsr__op_rotary_table,
    tsr__op_rotary, tsr__op_causal_mask; /* op_heads.c */
extern const tsr__op_row tsr__op_attention_efficient, tsr__op_attention_flash,
    tsr__op_attention_chunked;                                            /* op_attention.c */
extern const tsr__op_row tsr__op_attention_gpt2, tsr__op_attention_llama; /* op_eager.c */
extern const tsr__op_row tsr__op_dropout, tsr__op_add, tsr__op_mul, tsr__op_gelu,
    tsr__op_gelu_fused, tsr__op_silu, tsr__op_cast, tsr__op_scale, tsr__op_mean,
    tsr__op_arange; /* op_pointwise.c */
extern const tsr__op_row tsr__op_shift_labels, tsr__op_log_softmax, tsr__op_nll_loss,
    tsr__op_chunked_loss;                    /* op_loss.c */
extern const tsr__op_row tsr__op_checkpoint; /* checkpoint.c */
extern const tsr__op_row tsr__op_adamw_state, tsr__op_adamw_count, tsr__op_adamw_loop,
    tsr__op_adamw_foreach, tsr__op_adamw_fused, tsr__op_sgd, tsr__op_unscale; /* op_optimizer.c */

const tsr__op_row *tsr__op_row_of(tsr__op_kind kind);

/* ---- Running them ---- */

/* Run an op on inputs that the caller holds. The first output is answered, bound to a variable of
 * the current function; `outputs` (or NULL) gets all. */
tsr__tid tsr__apply(tsr__tape *tape, tsr__op_kind kind, const tsr__attributes *attributes,
                    const tsr__tid *inputs, uint32_t input_count, tsr__tid *outputs);
#define TSR__APPLY(tape, kind, ...)                                 \
  tsr__apply((tape), (kind), NULL, (const tsr__tid[]){__VA_ARGS__}, \
             sizeof((tsr__tid[]){__VA_ARGS__}) / sizeof(tsr__tid), NULL)

/* Run the backward pass from `root`, whose gradient is `grad` (held by the caller, and used up). */
void tsr__backward(tsr__tape *tape, tsr__tid root, tsr__tid grad);

/* Run a list of steps. What they leave in temporaries is a fault of the list. */
void tsr__run_steps(tsr__call *call, const tsr__step *steps);

/* A kernel outside of any op on one or two tensors, which makes one: autograd's own sums and casts. */
tsr__tid tsr__run_kernel(tsr__tape *tape, tsr__kernel kernel, tsr__dtype dtype, tsr__shape shape,
                         tsr__tid a, tsr__tid b);
/* ... or adds to one in place. */
void tsr__run_add(tsr__tape *tape, tsr__tid sum, tsr__tid more);

/* Keep `tensor` for backward as the op's i-th. */
void tsr__save(tsr__call *call, uint32_t i, tsr__tid tensor);
/* The autograd node whose backward runs changes, for the stack. */
void tsr__node(tsr__call *call, const char *node);

/* ---- For the lists' rules ---- */

static inline tsr__shape tsr__shape_in(const tsr__call *call, uint32_t reg) {
  return tsr__shape_of(call->tape, call->reg[reg]);
}
static inline tsr__dtype tsr__type_in(const tsr__call *call, uint32_t reg) {
  return tsr__dtype_of(call->tape, call->reg[reg]);
}
static inline uint64_t tsr__round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

#endif
