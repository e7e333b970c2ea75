/* layout.h - element types, shapes, and where the elements of a tensor are in its storage.
 *
 * A layout is a shape, a stride for each dimension and an offset, all counted in elements. Element (i, j, k) is at
 * offset + i * stride[0] + j * stride[1] + k * stride[2] of the storage. Views are other layouts of the same
 * storage:
 *
 *   qkv      (batch, rows, 3 * heads * width)   strides (rows * 3hw, 3hw, 1)           offset 0
 *   keys     (batch, rows, heads * width)       strides (rows * 3hw, 3hw, 1)           offset hw
 *   by head  (batch, heads, rows, width)        strides (rows * 3hw, width, 3hw, 1)    offset hw
 *
 * A layout is dense if its elements are in the order of its shape without gaps. The stride of a dimension of size 1
 * has no meaning and is never read. A stride of 0 repeats elements.
 *
 * All functions are pure, take a few steps for each dimension, and do not allocate. */
#ifndef TSR_KERNELS_LAYOUT_H
#define TSR_KERNELS_LAYOUT_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/checked.h"

typedef enum tsr__dtype {
  TSR__DTYPE_F32,
  TSR__DTYPE_BF16,
  TSR__DTYPE_F16,
  TSR__DTYPE_I64,
  TSR__DTYPE_BOOL,
  TSR__DTYPE_F64,
  TSR__DTYPE_I8 /* codes; the last four bytes of each row are a scale (QUANTISE) */
} tsr__dtype;

static inline uint64_t tsr__dtype_bytes(tsr__dtype dtype) {
  static const uint8_t bytes[] = {4, 2, 2, 8, 1, 8, 1};
  assert((unsigned)dtype < sizeof bytes);
  return bytes[dtype];
}
static inline bool tsr__dtype_is_half(tsr__dtype dtype) {
  return dtype == TSR__DTYPE_BF16 || dtype == TSR__DTYPE_F16;
}
/* The smallest number of a type of real numbers: torch.finfo's min. */
static inline double tsr__dtype_lowest(tsr__dtype dtype) {
  return dtype == TSR__DTYPE_F16    ? -65504.0
         : dtype == TSR__DTYPE_BF16 ? -0x1.FEp127
                                    : -0x1.FFFFFEp127;
}
/* The type of a sum of both types. */
static inline tsr__dtype tsr__dtype_promote(tsr__dtype a, tsr__dtype b) {
  return a == b ? a : TSR__DTYPE_F32;
}

enum { TSR__SHAPE_RANK = 4 };

typedef struct tsr__shape {
  uint64_t dim[TSR__SHAPE_RANK];
  uint32_t rank; /* 0 for a scalar */
} tsr__shape;

#define TSR__SHAPE(...) \
  ((tsr__shape){.dim = {__VA_ARGS__}, .rank = sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)})
#define TSR__SCALAR ((tsr__shape){.rank = 0})

/* The number of elements; saturates. */
static inline uint64_t tsr__shape_elements(tsr__shape shape) {
  uint64_t count = 1;
  assert(shape.rank <= TSR__SHAPE_RANK);
  for (uint32_t i = 0; i < shape.rank; i++) count = tsr__product_u64(count, shape.dim[i]);
  return count;
}
/* The size of dimension `back`, counted from the last, which is 0; 1 beyond the first. */
static inline uint64_t tsr__shape_from_end(tsr__shape shape, uint32_t back) {
  return back < shape.rank ? shape.dim[shape.rank - 1 - back] : 1;
}
bool tsr__shape_is_same(tsr__shape a, tsr__shape b);
/* The next multiple of `unit`. Both must be far below 2^64. */
static inline uint64_t tsr__shape_round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

typedef struct tsr__layout {
  tsr__shape shape;
  uint64_t stride[TSR__SHAPE_RANK], offset; /* in elements */
} tsr__layout;

/* A layout in the order of the shape, from the start of the storage. */
tsr__layout tsr__layout_dense(tsr__shape shape);
/* A layout without gaps and with the shape of `model`, whose dimensions are nested as in `model`: PyTorch's
 * preserved format of an element-by-element result. */
tsr__layout tsr__layout_like(tsr__layout model);
/* (batch, heads, rows, width) without gaps, where each row has all heads side by side, as a view of (batch, rows,
 * heads * width) would. For other ranks: dense. */
tsr__layout tsr__layout_rows_first(tsr__shape shape);
bool tsr__layout_is_dense(tsr__layout layout);
/* Whether both have the same shape and each element in the same place. */
bool tsr__layout_is_same(tsr__layout a, tsr__layout b);
/* One more than the largest index into the storage, or 0 without elements; saturates. */
uint64_t tsr__layout_end(tsr__layout layout);

/* ---- Views ---- */

/* The same elements in the same logical order in another shape. False if that needs a copy. */
bool tsr__layout_reshape(tsr__layout layout, tsr__shape shape, tsr__layout *out);
/* The same, for callers that know that no copy is needed. */
tsr__layout tsr__layout_reshaped(tsr__layout layout, tsr__shape shape);
/* (batch, rows, heads * width) as (batch, heads, rows, width). */
tsr__layout tsr__layout_heads(tsr__layout layout, uint64_t heads);
/* Elements `first` to `first` + `count` - 1 along a dimension. */
tsr__layout tsr__layout_slice(tsr__layout layout, uint32_t dim, uint64_t first, uint64_t count);
/* The layout with two dimensions swapped. */
tsr__layout tsr__layout_swap(tsr__layout layout, uint32_t a, uint32_t b);
/* The layout repeated to a larger shape by NumPy's rule: dimensions are aligned at the last, and those that are
 * missing or 1 are repeated. */
tsr__layout tsr__layout_broadcast(tsr__layout layout, tsr__shape shape);
/* Given `view`, a view of all elements of `root`, and `gradient`, which has the view's shape but may be in other
 * memory: find the layout of the gradient in the root's shape, so that elements correspond. False if the order of
 * the gradient's elements does not allow that. */
bool tsr__layout_unview(tsr__layout view, tsr__layout root, tsr__layout gradient, tsr__layout *out);

#endif
