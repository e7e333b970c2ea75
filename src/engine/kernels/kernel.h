/* kernel.h - the kernels that steps run: what each reads, writes and costs.
 *
 * A kernel is a function on tensors. Its row states how many tensors it reads and writes, which of them may share
 * memory, how many numbers it needs, how shapes must fit, and how its operations are counted; the comment next to
 * its name states what it computes. The validator (graph/validate.h) checks every program against these rows, and
 * an executor calls the row's functions.
 *
 * The position of an operand has a meaning. An absent optional operand is 0 in a run and has no data in a call; the
 * others keep their positions. */
#ifndef TSR_KERNELS_KERNEL_H
#define TSR_KERNELS_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/layout.h"

/* PyTorch's memory-efficient attention has ten operands in backward. */
enum {
  TSR__KERNEL_READS = 10,
  TSR__KERNEL_WRITES = 4,
  TSR__KERNEL_SCRATCH = 4,
  TSR__KERNEL_SCALARS = 6,
  TSR__NORM_SUMS = 9 /* running sums of squares: 8 of a block, and the total of blocks */
};

/* r0, r1, ...: operands; w0, ...: results; s0, ...: numbers. */
typedef enum tsr__kernel {
  TSR__KERNEL_NONE,
  /* Element by element. s0 replaces an absent r1. */
  TSR__KERNEL_ADD,           /* r0 + r1, or r0 + s0 * r1 where both and a number are given */
  TSR__KERNEL_MUL,           /* r0 * r1, or s0 * r0 * r1 */
  TSR__KERNEL_DIV,           /* r0 / r1 */
  TSR__KERNEL_SUB,           /* r0 - r1 */
  TSR__KERNEL_NEG,           /* -r0 */
  TSR__KERNEL_POW,           /* r0 to the power of s0 */
  TSR__KERNEL_AT_MOST,       /* the smaller of r0 and s0 */
  TSR__KERNEL_SQRT,          /* square root of r0 */
  TSR__KERNEL_RSQRT,         /* 1 / square root of r0 */
  TSR__KERNEL_RECIPROCAL,    /* 1 / r0 */
  TSR__KERNEL_TANH,          /* tanh r0 */
  TSR__KERNEL_TANH_BACKWARD, /* r0 * (1 - r1 * r1), where r1 = tanh x */
  TSR__KERNEL_COS,           /* cos r0 */
  TSR__KERNEL_SIN,           /* sin r0 */
  TSR__KERNEL_GELU,          /* GELU of r0: exact where s0 is 0, by tanh where it is 1 */
  TSR__KERNEL_GELU_BACKWARD, /* r0 * its derivative at r1; s0 as above */
  TSR__KERNEL_SILU,          /* r0 * sigmoid r0 */
  TSR__KERNEL_SILU_BACKWARD, /* r0 * its derivative at r1 */
  TSR__KERNEL_SILU_GATE,     /* r0 * sigmoid r0 * r1, where r0 is the gate */
  TSR__KERNEL_SILU_GATE_BACKWARD, /* r0: gradient, r1: gate, r2: what it multiplies; w0, w1: their gradients */
  TSR__KERNEL_WHERE,     /* r1 where r0 is true, else r2; missing ones are s0, or s0 and s1 */
  TSR__KERNEL_NE,        /* r0 != r1 */
  TSR__KERNEL_EQ,        /* r0 == r1 */
  TSR__KERNEL_AND,       /* r0 and r1, booleans */
  TSR__KERNEL_NOT,       /* not r0 */
  TSR__KERNEL_IS_NEGINF, /* r0 is -infinity */
  TSR__KERNEL_ATTENDS, /* r0 <= r1, columns against rows; and r0 > r1 - s0 unless s0, a window, is 0 */
  TSR__KERNEL_DROPOUT,          /* w1: booleans, true with chance 1 - s0; w0 = r0 * w1 / (1 - s0) */
  TSR__KERNEL_DROPOUT_NOISE,    /* random: 1 / (1 - s0) with chance 1 - s0, else 0 */
  TSR__KERNEL_DROPOUT_BACKWARD, /* r0 * r1 * s0, where r1 is the mask */
  TSR__KERNEL_DROP, /* r0 / (1 - s0) with chance 1 - s0, else 0; depends on the key only */
  /* Copies and constants */
  TSR__KERNEL_TO_COPY, /* r0 in another type */
  TSR__KERNEL_QUANTISE, /* r0 row by row as integers from -127 to 127, w0 (rows, columns + 4): each row's codes, then
                           * their scale, an fp32 number: the row's largest absolute number / 127 */
  TSR__KERNEL_DEQUANTISE, /* r0, a result of QUANTISE, as numbers again */
  TSR__KERNEL_DEQUANTISE_4BIT, /* bitsandbytes' codes r0 and scales r1 as numbers; simulated only: its function writes
                                * zeros. Both are absent in backward, which saves neither */
  TSR__KERNEL_QUANTISE_FP8, /* r0 in FP8, and w1, optional, the same transposed; one alone may be either. Simulated only, as is: */
  TSR__KERNEL_SCALED_MM,    /* r0 * r1 + r2 of operands in FP8 */
  TSR__KERNEL_CLONE,        /* r0 */
  TSR__KERNEL_INDEX,        /* r0 at all of its indices, which is a copy */
  TSR__KERNEL_REPEAT,       /* each of r0's heads (dimension 1) several times, one after another */
  TSR__KERNEL_CAT,          /* r0, r1, ... along dimension s0, which counts from the end: -1 */
  TSR__KERNEL_PAD,          /* r0, each row filled up with s0 to w0's length */
  TSR__KERNEL_SLICE_BACKWARD, /* zeros, except r0 from index s0 on in each row */
  TSR__KERNEL_SET_ROWS, /* w0's rows (dimension 2) from s0 on become r0; the others stay as they are */
  TSR__KERNEL_ZEROS,
  TSR__KERNEL_ZEROS_LIKE,
  TSR__KERNEL_ONES_LIKE,
  TSR__KERNEL_EMPTY_LIKE, /* never run: names memory that others fill */
  TSR__KERNEL_FULL,       /* s0 everywhere */
  TSR__KERNEL_ARANGE,     /* s0, s0 + s1, s0 + 2 * s1, ... */
  TSR__KERNEL_BATCH,      /* from the data: token ids (s0 = 0), labels (1), attention mask (2) */
  /* Along rows, the last dimension, unless stated otherwise */
  TSR__KERNEL_SUM,        /* r0 summed to w0's shape; r1, optional, is added, and may be w0 */
  TSR__KERNEL_SUM_GROUPS, /* r0's heads (dimension 1) summed in groups of neighbours */
  TSR__KERNEL_MEAN,       /* r0's mean to w0's shape */
  TSR__KERNEL_MEAN_DIM,
  TSR__KERNEL_ALL,  /* whether r0 is true in the whole row */
  TSR__KERNEL_TRIL, /* r0, but 0 in columns beyond the row */
  TSR__KERNEL_CUMSUM,
  TSR__KERNEL_SOFTMAX,
  TSR__KERNEL_SOFTMAX_BACKWARD, /* (r0 - sum of r0 * r1) * r1, where r1 = the softmax */
  TSR__KERNEL_LOG_SOFTMAX,
  TSR__KERNEL_LOG_SOFTMAX_BACKWARD, /* r0 - exp(r1) * sum of r0, where r1 = the log-softmax */
  TSR__KERNEL_LAYER_NORM,           /* r0: x, r1: weight, r2: bias, s0: epsilon;
                                     * w0, w1: mean, w2: 1 / deviation */
  TSR__KERNEL_LAYER_NORM_BACKWARD,  /* r0: gradient, r1: x, r2: mean, r3: 1 / deviation,
                                     * r4: weight; w0, w1, w2: gradients of x, weight, bias;
                                     * r5, r6, r7, optional: addends, may be w0, w1, w2 */
  TSR__KERNEL_RMS_NORM,             /* r0: x, r1: weight, s0: epsilon; w0, w1: 1 / square root of
                                     * the mean square */
  TSR__KERNEL_RMS_NORM_BACKWARD,    /* r0: gradient, r1: x, r2: w1 of forward, r3: weight; w0, w1:
                                     * gradients of x and weight; r4, r5, optional: addends */
  TSR__KERNEL_NLL_LOSS,             /* r0: log-probabilities, r1: labels, where s0 means no label;
                                     * w0: the mean loss, w1: how many labels count */
  TSR__KERNEL_NLL_LOSS_BACKWARD,    /* r0: zeros, r1: gradient, r2: labels, r3: their count;
                                     * w0: the log-probabilities' gradient, s0 as above */
  TSR__KERNEL_EMBEDDING,            /* rows of r0 with the numbers in r1 */
  TSR__KERNEL_EMBEDDING_BACKWARD,   /* r0: gradient, r1: the numbers */
  TSR__KERNEL_EMBEDDING_ADD, /* the same; r2, optional, is added, and may be w0 itself; scratch:
                                     * integers, one for each number and one for each row of w0 */
  TSR__KERNEL_ROTATE,        /* r0: q, r1: k (batch, heads, rows, width), turned by angles with
                                     * cosines r2 and sines r3 (rows, width) with two equal halves;
                                     * s0: 1, or -1 to turn back; w0, w1 */
  /* Matrix products. Transposed operands are marked in the run; r2, optional, is added, and may be
   * w0 itself. */
  TSR__KERNEL_ADDMM, /* r0 r1 + r2, where r2 is one row */
  TSR__KERNEL_MM,    /* r0 r1, matrices; leading dimensions are rows */
  TSR__KERNEL_BMM,   /* the same for batches of matrices; if one operand has fewer heads
                      * (dimension 1), several of the other's share one, and are summed in w0 */
  /* Attention. q: (batch, heads, rows, width); k and v: (batch, kv heads, columns, width); results
   * (batch, rows, heads * width). s0: scale of scores. A window of 0 means no window. */
  TSR__KERNEL_EFFICIENT, /* r0: q, r1: k, r2: v, r3: what is added to scores, with rows as long or
                          * longer; s1: dropout, s2: is causal; w0: result; optional: w1:
                          * log-sum-exp, w2, w3: seed and offset of the random numbers */
  TSR__KERNEL_EFFICIENT_BACKWARD, /* r0-r2: q, k, v, r3: gradient, r4: result, r5: log-sum-exp,
                                   * r6, r7: seed and offset, r8: what was added to scores,
                                   * r9: row sums of gradient * result; s0-s2 as above;
                                   * w0-w2: gradients of q, k, v */
  TSR__KERNEL_FLASH, /* r0-r2: q, k, v; s1: dropout, s2: is causal, s3: window, s4, optional: the
                      * position of q's first row among k's; w0: result, w1: log-sum-exp; optional: w2:
                      * seed and offset, w3: nothing */
  TSR__KERNEL_FLASH_BACKWARD, /* r0-r2: q, k, v, r3: gradient, r4: result, r5: log-sum-exp,
                               * r6: seed and offset, or absent, to draw as forward did; s0-s3
                               * as above; w0-w2: gradients */
  TSR__KERNEL_CHUNK_SOFTMAX,  /* of some rows' scores r0, from row s1 on, scaled and causal, s2:
                               * dropout, s3: window; w0: weights, dropped, w1: log-sum-exp */
  TSR__KERNEL_CHUNK_WEIGHTS,  /* r0: some rows of q, r1: k, r2: their log-sum-exp, s1: the first of
                               * these rows, s2: window; w0: the softmax again */
  TSR__KERNEL_CHUNK_BACKWARD, /* r0: rows of the gradient, r1: v, r2: rows of the result, r3: the
                               * softmax, s1: dropout; w0: the gradient of r0 k before scaling,
                               * w1: r3 after dropout */
  TSR__KERNEL_CHUNKED,        /* never run: names memory of the chunked backward */
  /* Losses */
  TSR__KERNEL_CROSS_ENTROPY, /* of some rows: r0: logits, r1: their labels, r2: all labels, r3: the
                              * sum so far, s0: the value that means no label; w0: the logits'
                              * gradient, w1: the sum, each divided by how many of all labels
                              * count; the gradient also by s1, if that is given */
  TSR__KERNEL_LOSS, /* r0: logits, r1: labels, s0 as above; w0: the mean loss, w1: each row's
                              * log-sum-exp, w2: how many labels count */
  TSR__KERNEL_LOSS_BACKWARD, /* r0, r1: as above, r2: w1, r3: w2, r4: gradient of the loss; s0 as above,
                              * s1: what the gradient is divided by; w0: the logits' gradient */
  /* Optimizers. p: parameter, g: gradient */
  TSR__KERNEL_LERP,         /* r0 + s0 * (r1 - r0) */
  TSR__KERNEL_ADDCMUL,      /* r0 + s0 * r1 * r2 */
  TSR__KERNEL_ADDCDIV,      /* r0 + s0 * r1 / r2 */
  TSR__KERNEL_FOREACH_SQRT, /* square root of r0 */
  TSR__KERNEL_FUSED_ADAMW,  /* r0: p, r1: g, r2, r3: moments, r4: steps done; s0: learning rate,
                             * s1, s2: betas, s3: epsilon, s4: decay; w0: p, w1, w2: moments, w3 */
  TSR__KERNEL_ADAMW, /* r0: p, r1: g, r2, r3: moments; s0: what decay keeps, s1: 1 - beta 1, s2: beta 2,
                      * s3: the root of beta 2's correction, s4: the step, negative, s5: epsilon;
                      * w0: p, w1, w2: moments */
  /* Loss scaling */
  TSR__KERNEL_FOREACH_NORM, /* square root of the sum of r0's squares, summed in double: 4096
                             * elements at a time, then these sums in order */
  TSR__KERNEL_NORM,         /* the same as FOREACH_NORM */
  TSR__KERNEL_NORM_PART, /* r0: elements from s0 on, a multiple of 8, of a tensor; r1: TSR__NORM_SUMS doubles;
                          * w0: r1 plus the squares of r0; after all parts, the sums that NORM computes */
  TSR__KERNEL_NORM_END,     /* r0: the sums of NORM_PART; w0: the norm */
  TSR__KERNEL_UNSCALE,      /* r0: g, r1: 1 / scale, r2: 1 if some g overflowed; w0, w1: g, r2 */
  TSR__KERNEL_UPDATE_SCALE, /* r0: scale, r1: good steps in a row, r2: overflow, s0: steps to double
                             * after; w0, w1: r0, r1 */
  TSR__KERNEL_WORKSPACE,    /* never run: cuBLAS's workspace */
  TSR__KERNEL_COUNT
} tsr__kernel;

/* How operations are counted. */
typedef enum tsr__kernel_work {
  TSR__WORK_NONE,    /* moves bytes only */
  TSR__WORK_RESULTS, /* `operations` for each element of the first result */
  TSR__WORK_READS,   /* `operations` for each element of the first operand */
  TSR__WORK_PRODUCT, /* 2 m n k: a multiplication and an addition each */
  TSR__WORK_PAIRS    /* attention: `operations` for each pair of positions and element of a head */
} tsr__kernel_work;

/* How the shapes of operands and results must fit. */
typedef enum tsr__kernel_shapes {
  TSR__SHAPES_OWN,     /* see the kernel's comment */
  TSR__SHAPES_EACH,    /* every operand repeats to the shape of every result (NumPy's rule) */
  TSR__SHAPES_COPY,    /* the operand has as many elements as the result */
  TSR__SHAPES_REDUCE,  /* the result repeats to the operand's shape */
  TSR__SHAPES_PRODUCT, /* (m, k) by (k, n) gives (m, n) */
  TSR__SHAPES_BATCHES  /* the same within the last two dimensions */
} tsr__kernel_shapes;

/* A tensor as a kernel gets it. */
typedef struct tsr__kernel_tensor {
  void *data; /* the start of its storage; NULL if absent */
  tsr__dtype dtype;
  tsr__layout layout;
} tsr__kernel_tensor;

struct tsr__thread_pool; /* base/pool.h */
struct tsr__library;     /* kernels/library.h */

/* A call. Absent operands, unwanted results and unused numbers are zeroed. */
typedef struct tsr__kernel_args {
  tsr__kernel_tensor reads[TSR__KERNEL_READS], writes[TSR__KERNEL_WRITES];
  tsr__kernel_tensor scratch[TSR__KERNEL_SCRATCH]; /* contents undefined before and after */
  double scalars[TSR__KERNEL_SCALARS];
  uint32_t scalar_count;         /* of `scalars` */
  bool is_transposed[2];         /* for a product's r0 and r1 */
  uint64_t key;                  /* for random numbers: the same key gives the same numbers */
  const int64_t *batch;          /* for BATCH: the data to copy; NULL: ones */
  struct tsr__thread_pool *pool; /* threads that may help, or NULL; does not affect results */
  struct tsr__library
      *library; /* for fast products of matrices where possible, or NULL: see library.h */
} tsr__kernel_args;

/* Run a kernel. The validator has checked its operands; it writes only its results and scratch. Allocates nothing
 * and cannot fail. Thread-safe. */
typedef void tsr__kernel_fn(const tsr__kernel_args *args);

typedef struct tsr__kernel_row {
  const char *name;                  /* for messages; src/engine/torch has PyTorch's names */
  uint8_t work, operations;          /* tsr__kernel_work */
  uint8_t shapes;                    /* tsr__kernel_shapes */
  uint8_t least_reads, most_reads;   /* the first `least_reads` are required */
  uint8_t least_writes, most_writes; /* the same; every kernel has a result */
  uint8_t most_scratch;
  uint8_t in_place[TSR__KERNEL_WRITES]; /* 1 + the operand that it may overwrite, or 0 */
  uint8_t scalars;                      /* numbers required */
  uint8_t more_scalars;                 /* further numbers allowed */
  bool fills;                           /* a number replaces each absent operand */
  bool draws;                           /* needs random numbers */
  bool has_blas;                        /* uses cuBLAS's workspace */
  tsr__kernel_fn *reference;            /* plain C; NULL of a kernel that is never run. The same in
                                         * less time: fast.h */
} tsr__kernel_row;

const tsr__kernel_row *tsr__kernel_row_of(tsr__kernel kernel);

#endif
