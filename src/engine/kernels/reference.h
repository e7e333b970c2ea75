/* reference.h - the reference kernels: plain C, one function for each row of kernel.h, for all types and layouts.
 *
 * Other kernels are compared with them. All numbers are read and computed as doubles, and rounded once, to the type
 * of the result. So a kernel has one code path for fp32, both 16-bit types and fp64, and gradients of fp64 operands
 * can be checked with central differences. Sums are in the order of the elements. Nothing is allocated: rows are
 * processed in tiles on the stack.
 *
 * The first half of this header contains how ref_*.c access elements; the second half declares the functions, which
 * kernel.c puts into the rows. */
#ifndef TSR_KERNELS_REFERENCE_H
#define TSR_KERNELS_REFERENCE_H

#include <assert.h>
#include <stddef.h>

#include "kernels/kernel.h"

/* ---- elements ---- */

/* The numbers in a tile on the stack. */
enum { TSR__TILE = 256 };

/* A tensor with four dimensions; missing leading ones are 1. */
typedef struct tsr__strided {
  void *data;
  tsr__dtype dtype;
  uint64_t dim[TSR__SHAPE_RANK], stride[TSR__SHAPE_RANK], offset;
} tsr__strided;

tsr__strided tsr__strided_of(const tsr__kernel_tensor *tensor);
/* A view with another layout of the same storage. */
tsr__strided tsr__strided_with(const tsr__kernel_tensor *tensor, tsr__layout layout);
/* A view repeated to the dimensions of `model` by NumPy's rule. */
tsr__strided tsr__strided_repeated(const tsr__kernel_tensor *tensor, const tsr__strided *model);

/* Join neighbouring dimensions that are nested without gaps in all of `count` views with the same dimensions.
 * Absent views are ignored; at least one is present. */
void tsr__strided_join(tsr__strided *views, const bool *is_there, uint32_t count);

/* The index of an element in the storage. */
static inline uint64_t tsr__strided_at(const tsr__strided *v, uint64_t a, uint64_t b, uint64_t c,
                                       uint64_t d) {
  return v->offset + a * v->stride[0] + b * v->stride[1] + c * v->stride[2] + d * v->stride[3];
}
/* The index of the first element of row `row` of all leading dimensions. */
static inline uint64_t tsr__strided_row(const tsr__strided *v, uint64_t row) {
  assert(v->dim[1] && v->dim[2]);
  uint64_t c = row % v->dim[2], b = row / v->dim[2];
  return tsr__strided_at(v, b / v->dim[1], b % v->dim[1], c, 0);
}
static inline uint64_t tsr__strided_rows(const tsr__strided *v) {
  return v->dim[0] * v->dim[1] * v->dim[2];
}
static inline uint64_t tsr__strided_elements(const tsr__strided *v) {
  return tsr__strided_rows(v) * v->dim[3];
}

/* Load `count` numbers from element `at` of the storage on, `stride` apart. */
void tsr__strided_load(const tsr__strided *v, uint64_t at, uint64_t stride, size_t count,
                       double *out);
void tsr__strided_store(const tsr__strided *v, uint64_t at, uint64_t stride, size_t count,
                        const double *in);
double tsr__strided_get(const tsr__strided *v, uint64_t at);
void tsr__strided_put(const tsr__strided *v, uint64_t at, double number);
/* Load numbers `first` to `first` + `count` - 1 of the row whose first element is at `at`. */
static inline void tsr__strided_load_row(const tsr__strided *v, uint64_t at, uint64_t first,
                                         size_t count, double *out) {
  tsr__strided_load(v, at + first * v->stride[3], v->stride[3], count, out);
}
static inline void tsr__strided_store_row(const tsr__strided *v, uint64_t at, uint64_t first,
                                          size_t count, const double *in) {
  tsr__strided_store(v, at + first * v->stride[3], v->stride[3], count, in);
}
/* The number in a scalar operand, or the first element. */
double tsr__number_of(const tsr__kernel_tensor *tensor);
void tsr__put_number(const tsr__kernel_tensor *tensor, double number);
/* View (batch, rows, heads * width) as (batch, heads, rows, width). */
tsr__strided tsr__strided_by_head(const tsr__kernel_tensor *tensor, uint64_t heads);
/* Store the key of an attention's random numbers in an integer tensor; a second element is the offset, 0. */
void tsr__put_key(const tsr__kernel_tensor *tensor, uint64_t key);
uint64_t tsr__get_key(const tsr__kernel_tensor *tensor);

/* The size of the next tile if `left` numbers remain. */
static inline size_t tsr__tile_size(uint64_t left) {
  return left < TSR__TILE ? (size_t)left : TSR__TILE;
}
/* The squares in a block, which are summed before the blocks (FOREACH_NORM). */
enum { TSR__NORM_BLOCK = 4096 };

/* Iterate over tiles of `total` numbers: `first` and `count`. */
#define TSR__EACH_TILE(first, count, total)                                \
  for (uint64_t first = 0, count = tsr__tile_size(total); first < (total); \
       first += count, count = tsr__tile_size((total)-first))

/* ---- one function for each row ---- */

/* ref_each.c */
tsr__kernel_fn tsr__reference_add, tsr__reference_mul, tsr__reference_div, tsr__reference_sub,
    tsr__reference_neg, tsr__reference_pow, tsr__reference_at_most, tsr__reference_sqrt,
    tsr__reference_rsqrt, tsr__reference_reciprocal, tsr__reference_tanh,
    tsr__reference_tanh_backward, tsr__reference_cos, tsr__reference_sin, tsr__reference_gelu,
    tsr__reference_gelu_backward, tsr__reference_silu, tsr__reference_silu_backward,
    tsr__reference_silu_gate, tsr__reference_silu_gate_backward, tsr__reference_drop,
    tsr__reference_where, tsr__reference_ne, tsr__reference_eq, tsr__reference_and,
    tsr__reference_not, tsr__reference_is_neginf, tsr__reference_attends, tsr__reference_dropout,
    tsr__reference_dropout_noise, tsr__reference_dropout_backward, tsr__reference_lerp,
    tsr__reference_addcmul, tsr__reference_addcdiv;
/* ref_copy.c */
tsr__kernel_fn tsr__reference_copy, tsr__reference_repeat, tsr__reference_cat, tsr__reference_pad,
    tsr__reference_slice_backward, tsr__reference_set_rows, tsr__reference_zeros,
    tsr__reference_ones, tsr__reference_full, tsr__reference_arange, tsr__reference_batch;
/* ref_narrow.c */
tsr__kernel_fn tsr__reference_quantise, tsr__reference_dequantise;
/* ref_rows.c */
tsr__kernel_fn tsr__reference_sum, tsr__reference_sum_groups, tsr__reference_mean,
    tsr__reference_all, tsr__reference_tril, tsr__reference_cumsum, tsr__reference_differences,
    tsr__reference_softmax, tsr__reference_softmax_backward, tsr__reference_log_softmax,
    tsr__reference_log_softmax_backward, tsr__reference_layer_norm,
    tsr__reference_layer_norm_backward, tsr__reference_rms_norm, tsr__reference_rms_norm_backward,
    tsr__reference_rotate;
/* ref_product.c */
tsr__kernel_fn tsr__reference_product, tsr__reference_products;
/* ref_attention.c */
tsr__kernel_fn tsr__reference_efficient, tsr__reference_efficient_backward, tsr__reference_flash,
    tsr__reference_flash_backward, tsr__reference_chunk_softmax, tsr__reference_chunk_weights,
    tsr__reference_chunk_backward;
/* ref_loss.c */
tsr__kernel_fn tsr__reference_nll_loss, tsr__reference_nll_loss_backward,
    tsr__reference_cross_entropy, tsr__reference_loss, tsr__reference_loss_backward,
    tsr__reference_embedding, tsr__reference_embedding_backward, tsr__reference_embedding_add;
/* ref_optimizer.c */
tsr__kernel_fn tsr__reference_fused_adamw, tsr__reference_adamw, tsr__reference_unscale,
    tsr__reference_update_scale, tsr__reference_norm, tsr__reference_norm_part,
    tsr__reference_norm_end;

#endif
