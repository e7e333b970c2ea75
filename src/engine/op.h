/* op.h - the op table: what each op makes, keeps, needs for a moment, and costs.
 *
 * An op is declared in one row of ops.c's table: its forward and backward are functions that do to
 * a tape what PyTorch's do to memory, in their order - allocate outputs and temporaries, let go of
 * temporaries, save tensors for backward - and its cost is a function of its shapes. Everything
 * else (the tape, the dry executor, planners) is generic over rows.
 *
 *   forward   reads call->in; makes call->out; tsr__save() what backward needs
 *   backward  reads call->grad_out and call->saved; makes call->grad_in[i] where call->needs[i]
 *
 * A temporary is a tsr__make() without a place to stay, undone with tsr__drop(). An op's gradient
 * that is the gradient it got is tsr__pass(). The rules of each row say where they come from. */
#ifndef TSR_ENGINE_OP_H
#define TSR_ENGINE_OP_H

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
  TSR__OP_ATTENTION,       /* one kernel: memory-efficient, flash, chunked */
  TSR__OP_EAGER_ATTENTION, /* matmul, softmax, dropout, matmul */
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
  TSR__OP_ADAMW_LOOP,
  TSR__OP_ADAMW_FOREACH,
  TSR__OP_ADAMW_FUSED,
  TSR__OP_SGD,
  TSR__OP_UNSCALE,
  TSR__OP_KIND_COUNT
} tsr__op_kind;

typedef enum tsr__attention_kernel {
  TSR__KERNEL_EFFICIENT,
  TSR__KERNEL_FLASH,
  TSR__KERNEL_CHUNKED
} tsr__attention_kernel;

/* What autocast does to an op's inputs. */
typedef enum tsr__autocast {
  TSR__AUTOCAST_NONE, /* nothing: it works in what it gets */
  TSR__AUTOCAST_LOW,  /* the 16-bit type */
  TSR__AUTOCAST_FULL  /* fp32 */
} tsr__autocast;

/* An op under way. */
typedef struct tsr__call {
  tsr__tape *tape;
  uint32_t op; /* its index; the op moves when others are recorded */
  const tsr__attributes *attributes;
  uint32_t input_count;
  tsr__tid in[TSR__OP_INPUTS], out[TSR__OP_OUTPUTS];
  tsr__tid saved[TSR__OP_SAVED];
  uint32_t saved_count;
  tsr__tid grad_out[TSR__OP_OUTPUTS], grad_in[TSR__OP_INPUTS];
  bool needs[TSR__OP_INPUTS];
  bool is_recorded; /* backward will come: what is saved is kept */
  const char *node; /* the autograd node whose backward is running */
} tsr__call;

/* Operations, and bytes read and written, of one execution. */
typedef struct tsr__cost {
  uint64_t flops, bytes;
} tsr__cost;

typedef struct tsr__op_row {
  const char *name; /* in the project's words */
  const char *node; /* PyTorch's autograd node, or NULL: no gradient passes */
  tsr__autocast autocast;
  void (*forward)(tsr__call *call);
  void (*backward)(tsr__call *call);
  /* NULL: a pass over its inputs and outputs, one operation an element. */
  void (*cost)(const tsr__call *call, tsr__cost *forward, tsr__cost *backward);
} tsr__op_row;

const tsr__op_row *tsr__op_row_of(tsr__op_kind kind);

/* Run an op on inputs that the caller holds. The first output is answered, bound to a variable of
 * the current function; `outputs` (or NULL) gets all. */
tsr__tid tsr__apply(tsr__tape *tape, tsr__op_kind kind, const tsr__attributes *attributes,
                    const tsr__tid *inputs, uint32_t input_count, tsr__tid *outputs);
#define TSR__APPLY(tape, kind, ...)                                 \
  tsr__apply((tape), (kind), NULL, (const tsr__tid[]){__VA_ARGS__}, \
             sizeof((tsr__tid[]){__VA_ARGS__}) / sizeof(tsr__tid), NULL)

/* Run the backward pass from `root`, whose gradient is `grad` (held by the caller, and used up). */
void tsr__backward(tsr__tape *tape, tsr__tid root, tsr__tid grad);

/* ---- For the rows ---- */

/* A new tensor, made by the step `what` of the op ("mul"). In a backward whose step belongs to
 * another node than the row's, say so first with tsr__node. */
tsr__tid tsr__make(tsr__call *call, const char *what, tsr__dtype dtype, tsr__shape shape);
tsr__tid tsr__make_like(tsr__call *call, const char *what, tsr__tid tensor);
void tsr__drop(tsr__call *call, tsr__tid tensor);
void tsr__node(tsr__call *call, const char *node);
/* Keep for backward. */
void tsr__save(tsr__call *call, tsr__tid tensor);
/* Inside a composite op's backward: the gradient it got, or what it saved, is not needed from here
 * on. */
void tsr__done_with_grad(tsr__call *call, uint32_t output);
void tsr__done_with(tsr__call *call, uint32_t saved);
/* A new tensor made inside `function` of PyTorch's FunctionsManual.cpp. */
tsr__tid tsr__make_in(tsr__call *call, const char *function, const char *what, tsr__dtype dtype,
                      tsr__shape shape);
/* cuBLAS's workspace of the thread that runs: taken once, where the process has none yet. */
void tsr__workspace(tsr__call *call);
/* The type in which two types meet. */
tsr__dtype tsr__promote(tsr__dtype a, tsr__dtype b);
/* The gradient of input `i` is `tensor` too. */
void tsr__pass(tsr__call *call, uint32_t i, tsr__tid tensor);

static inline tsr__shape tsr__in_shape(const tsr__call *call, uint32_t i) {
  return tsr__shape_of(call->tape, call->in[i]);
}
static inline tsr__dtype tsr__in_dtype(const tsr__call *call, uint32_t i) {
  return tsr__dtype_of(call->tape, call->in[i]);
}

/* The rows' functions, by file. */
#define TSR__ROW(name)                     \
  void tsr__##name##_forward(tsr__call *); \
  void tsr__##name##_backward(tsr__call *)
#define TSR__COST(name) void tsr__##name##_cost(const tsr__call *, tsr__cost *, tsr__cost *)
TSR__ROW(embedding); /* op_linear.c */
TSR__ROW(addmm);
TSR__ROW(mm);
TSR__COST(linear);
TSR__ROW(layer_norm); /* op_norm.c */
TSR__ROW(rms_norm);
TSR__COST(norm);
TSR__ROW(split); /* op_attention.c */
TSR__ROW(cache);
TSR__ROW(repeat);
TSR__ROW(rotary_table);
TSR__ROW(rotary);
TSR__ROW(attention);
TSR__ROW(eager_attention); /* op_eager.c */
TSR__ROW(causal_mask);
TSR__COST(attention);
TSR__ROW(dropout); /* op_pointwise.c */
TSR__ROW(add);
TSR__ROW(mul);
TSR__ROW(gelu);
TSR__ROW(gelu_fused);
TSR__ROW(silu);
TSR__ROW(cast);
TSR__ROW(scale);
TSR__ROW(mean);
TSR__ROW(arange);
TSR__COST(gelu);
TSR__ROW(shift_labels); /* op_loss.c */
TSR__ROW(log_softmax);
TSR__ROW(nll_loss);
TSR__ROW(chunked_loss);
TSR__COST(chunked_loss);
TSR__ROW(checkpoint); /* checkpoint.c */
TSR__COST(checkpoint);
void tsr__adamw_loop_forward(tsr__call *); /* op_optimizer.c */
void tsr__adamw_foreach_forward(tsr__call *);
void tsr__adamw_fused_forward(tsr__call *);
void tsr__sgd_forward(tsr__call *);
void tsr__unscale_forward(tsr__call *);

#endif
