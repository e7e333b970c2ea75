/* fast_row.c - the product of a single row with a matrix, as in generating a text token by token. Compiled for each
 * instruction set (unit.h).
 *
 * Every number of the matrix is needed once, so nothing is packed: it is read where it is, as fast as memory delivers it.
 *
 *   a matrix (depth, columns)   four of its rows at a time are added to a row of sums, which stays in the cache
 *   transposed                  squares of LANES columns by LANES numbers of each are transposed in registers
 *
 * An element is the sum of its pieces' sums, in the order of k, exactly as in fast_product.c: a row has the same
 * result, to the bit, alone or among others. */
#include "kernels/unit_fast.h"

enum {
  PIECE = 256,  /* as in fast_product.c */
  COLUMNS = 512 /* of a row of sums */
};

typedef struct product {
  const float *a, *b, *more; /* more: NULL if nothing is added */
  float *to;
  uint64_t depth, columns, pitch; /* pitch: from one row of b to the next */
} product;

/* ---- a matrix as it is ---- */

/* Add four rows of b, times a number each, to the sums. */
static inline void add_four(const float *a, const float *b, uint64_t pitch, size_t columns,
                            float *sums) {
  size_t j = 0;
  lanes a0 = lanes_of(a[0]), a1 = lanes_of(a[1]), a2 = lanes_of(a[2]), a3 = lanes_of(a[3]);
  for (; j + TSR__LANES <= columns; j += TSR__LANES) {
    lanes own = lanes_load(sums + j);
    own += a0 * lanes_load(b + j);
    own += a1 * lanes_load(b + pitch + j);
    own += a2 * lanes_load(b + 2 * pitch + j);
    own += a3 * lanes_load(b + 3 * pitch + j);
    lanes_store(sums + j, own);
  }
  for (; j < columns; j++) {
    sums[j] += a[0] * b[j];
    sums[j] += a[1] * b[pitch + j];
    sums[j] += a[2] * b[2 * pitch + j];
    sums[j] += a[3] * b[3 * pitch + j];
  }
}

static inline void add_one(float a, const float *b, size_t columns, float *sums) {
  size_t j = 0;
  for (; j + TSR__LANES <= columns; j += TSR__LANES)
    lanes_store(sums + j, lanes_load(sums + j) + lanes_of(a) * lanes_load(b + j));
  for (; j < columns; j++) sums[j] += a * b[j];
}

static void multiply_some(const product *p, uint64_t first, size_t columns) {
  float sums[COLUMNS];
  for (uint64_t k = 0; k < p->depth; k += PIECE) {
    size_t depth = p->depth - k < PIECE ? (size_t)(p->depth - k) : PIECE, i = 0;
    const float *a = p->a + k, *b = p->b + k * p->pitch + first;
    const float *before = k ? p->to : p->more;
    memset(sums, 0, columns * sizeof *sums);
    for (; i + 4 <= depth; i += 4) add_four(a + i, b + i * p->pitch, p->pitch, columns, sums);
    for (; i < depth; i++) add_one(a[i], b + i * p->pitch, columns, sums);
    for (size_t j = 0; j < columns; j++)
      p->to[first + j] = before ? before[first + j] + sums[j] : sums[j];
  }
}

/* A unit_range_fn: some columns. */
static void multiply_columns(void *context, uint64_t first, uint64_t end) {
  for (uint64_t j = first; j < end; j += COLUMNS)
    multiply_some(context, j, end - j < COLUMNS ? (size_t)(end - j) : COLUMNS);
}

/* ---- a transposed matrix: each of its rows is a column ---- */

/* The products of a piece with LANES columns, of which `count` exist. */
static inline lanes multiply_square(const product *p, uint64_t first, size_t count, uint64_t k,
                                    size_t depth) {
  const float *rows[TSR__LANES];
  lanes own = lanes_of(0);
  size_t i = 0;
  for (size_t r = 0; r < TSR__LANES; r++)
    rows[r] = p->b + (first + (r < count ? r : count - 1)) * p->pitch + k;
  for (; i + TSR__LANES <= depth; i += TSR__LANES) {
    lanes x[TSR__LANES];
#pragma GCC unroll 16
    for (size_t r = 0; r < TSR__LANES; r++) x[r] = lanes_load(rows[r] + i);
    lanes_transpose(x);
#pragma GCC unroll 16
    for (size_t r = 0; r < TSR__LANES; r++) own += lanes_of(p->a[k + i + r]) * x[r];
  }
  for (; i < depth; i++) {
    float each[TSR__LANES];
    for (size_t r = 0; r < TSR__LANES; r++) each[r] = rows[r][i];
    own += lanes_of(p->a[k + i]) * lanes_load(each);
  }
  return own;
}

/* A unit_range_fn: columns, TSR__LANES at a time, which `first` and `end` count. */
static void multiply_rows(void *context, uint64_t first, uint64_t end) {
  const product *p = context;
  for (uint64_t square = first; square < end; square++) {
    uint64_t column = square * TSR__LANES, left = p->columns - column;
    size_t count = left < TSR__LANES ? (size_t)left : TSR__LANES;
    float sums[TSR__LANES];
    for (uint64_t k = 0; k < p->depth; k += PIECE) {
      size_t depth = p->depth - k < PIECE ? (size_t)(p->depth - k) : PIECE;
      const float *before = k ? p->to : p->more;
      lanes_store(sums, multiply_square(p, column, count, k, depth));
      for (size_t j = 0; j < count; j++)
        p->to[column + j] = before ? before[column + j] + sums[j] : sums[j];
    }
  }
}

/* ---- the call ---- */

/* Whether a tensor is floats whose rows are contiguous, `*pitch` apart. */
static bool is_plain(const tsr__kernel_tensor *tensor, uint64_t *pitch) {
  tsr__strided v = tsr__strided_of(tensor);
  *pitch = v.stride[2];
  return v.dtype == TSR__DTYPE_F32 && v.dim[0] == 1 && v.dim[1] == 1 &&
         (v.stride[3] == 1 || v.dim[3] == 1);
}

static float *floats_of(const tsr__kernel_tensor *tensor) {
  return tensor->data ? (float *)tensor->data + tensor->layout.offset : NULL;
}

bool TSR__UNIT(tsr__fast_row)(const tsr__kernel_args *args) {
  const tsr__kernel_tensor *a = &args->reads[0], *b = &args->reads[1], *more = &args->reads[2];
  const tsr__kernel_tensor *to = &args->writes[0];
  uint64_t columns = tsr__shape_from_end(to->layout.shape, 0), unused;
  product p = {.a = floats_of(a), .b = floats_of(b), .more = floats_of(more), .to = floats_of(to)};
  bool is_row = columns && tsr__shape_elements(to->layout.shape) == columns;
  if (!is_row || args->library || args->is_transposed[0]) return false;
  if (!is_plain(a, &unused) || !is_plain(to, &unused) || !is_plain(b, &p.pitch)) return false;
  if (more->data &&
      (!is_plain(more, &unused) || tsr__shape_elements(more->layout.shape) != columns))
    return false;
  p.depth = tsr__shape_from_end(a->layout.shape, 0);
  p.columns = columns;
  if (!p.depth) return false;
  if (args->is_transposed[1])
    unit_split(args->pool, (columns + TSR__LANES - 1) / TSR__LANES, TSR__LANES * p.depth,
               multiply_rows, &p);
  else
    unit_split(args->pool, columns, p.depth, multiply_columns, &p);
  return true;
}
