/* ref_product.c - reference kernels of matrix products.
 *
 * Blocks of both operands are packed as doubles, rows of the first and columns of the second, and a block of sums
 * stays in the processor's nearest cache during the loop over the inner dimension:
 *
 *              k ─►            columns ─►             columns ─►
 *   rows  ┌────┬────┐     k ┌────┬────┐      rows  ┌────┬────┐
 *     │   │ a  │    │     │ │ b  │    │        │   │sums│    │
 *     ▼   └────┴────┘     ▼ └────┴────┘        ▼   └────┴────┘
 *
 * Each element of the result is one sum in the order of k, and of heads that share it. */
#include <assert.h>
#include <string.h>

#include "kernels/reference.h"

enum { ROWS = 32, COLUMNS = 64, DEPTH = 64 };

/* A matrix of an operand: its stored rows are all leading dimensions, or those of one batch. */
typedef struct matrix {
  tsr__strided view;
  uint64_t rows, columns; /* as stored */
  bool is_transposed;     /* as used */
} matrix;

typedef struct block {
  double a[ROWS][DEPTH], b[DEPTH][COLUMNS], sums[ROWS][COLUMNS];
} block;

static matrix matrix_of(tsr__strided view, bool is_transposed) {
  return (matrix){.view = view,
                  .rows = tsr__strided_rows(&view),
                  .columns = view.dim[3],
                  .is_transposed = is_transposed};
}

/* Load element (row, column) of the matrix, as the product uses it, and those to its right; zeros beyond the
 * end. */
static void load_right(const matrix *m, uint64_t row, uint64_t column, size_t count, size_t room,
                       double *out) {
  if (!m->is_transposed) {
    tsr__strided_load_row(&m->view, tsr__strided_row(&m->view, row), column, count, out);
  } else {
    for (size_t i = 0; i < count; i++)
      out[i] = tsr__strided_get(&m->view,
                                tsr__strided_row(&m->view, column + i) + row * m->view.stride[3]);
  }
  for (size_t i = count; i < room; i++) out[i] = 0;
}

static size_t at_most(uint64_t left, size_t most) {
  return left < most ? (size_t)left : most;
}

/* Pack a block of the first operand, `rows` by `depth`. A transposed operand is read along its stored rows. */
static void pack_a(const matrix *a, uint64_t row, size_t rows, uint64_t k, size_t depth, block *t) {
  double column[ROWS];
  memset(t->a, 0, sizeof t->a);
  if (!a->is_transposed) {
    for (size_t i = 0; i < rows; i++) load_right(a, row + i, k, depth, DEPTH, t->a[i]);
    return;
  }
  for (size_t i = 0; i < depth; i++) {
    tsr__strided_load_row(&a->view, tsr__strided_row(&a->view, k + i), row, rows, column);
    for (size_t j = 0; j < rows; j++) t->a[j][i] = column[j];
  }
}

static void pack_b(const matrix *b, uint64_t k, size_t depth, uint64_t column, size_t columns,
                   block *t) {
  double row[DEPTH];
  memset(t->b, 0, sizeof t->b);
  if (!b->is_transposed) {
    for (size_t i = 0; i < depth; i++) load_right(b, k + i, column, columns, COLUMNS, t->b[i]);
    return;
  }
  for (size_t j = 0; j < columns; j++) {
    tsr__strided_load_row(&b->view, tsr__strided_row(&b->view, column + j), k, depth, row);
    for (size_t i = 0; i < depth; i++) t->b[i][j] = row[i];
  }
}

static void multiply(block *t, size_t rows, size_t depth) {
  for (size_t i = 0; i < rows; i++) {
    double *sums = t->sums[i];
    for (size_t k = 0; k < depth; k++) {
      double a = t->a[i][k];
      const double *b = t->b[k];
      for (size_t j = 0; j < COLUMNS; j++) sums[j] += a * b[j];
    }
  }
}

/* Add the product of two matrices to the sums of a block of the result. */
static void add_product(const matrix *a, const matrix *b, uint64_t row, size_t rows,
                        uint64_t column, size_t columns, block *t) {
  uint64_t inner = a->is_transposed ? a->rows : a->columns;
  assert(inner == (b->is_transposed ? b->columns : b->rows));
  for (uint64_t k = 0; k < inner; k += DEPTH) {
    size_t depth = at_most(inner - k, DEPTH);
    pack_a(a, row, rows, k, depth, t);
    pack_b(b, k, depth, column, columns, t);
    multiply(t, rows, depth);
  }
}

/* Write a block of sums plus the addend, if any. */
static void store_block(const block *t, const tsr__strided *to, const tsr__strided *more,
                        uint64_t row, size_t rows, uint64_t column, size_t columns) {
  double numbers[COLUMNS];
  for (size_t i = 0; i < rows; i++) {
    const double *sums = t->sums[i];
    if (more) {
      tsr__strided_load_row(more, tsr__strided_row(more, row + i), column, columns, numbers);
      for (size_t j = 0; j < columns; j++) numbers[j] += sums[j];
      sums = numbers;
    }
    tsr__strided_store_row(to, tsr__strided_row(to, row + i), column, columns, sums);
  }
}

void tsr__reference_product(const tsr__kernel_args *args) {
  matrix a = matrix_of(tsr__strided_of(&args->reads[0]), args->is_transposed[0]);
  matrix b = matrix_of(tsr__strided_of(&args->reads[1]), args->is_transposed[1]);
  tsr__strided to = tsr__strided_of(&args->writes[0]), more = to;
  block t;
  if (args->reads[2].data) more = tsr__strided_repeated(&args->reads[2], &to);
  uint64_t rows = tsr__strided_rows(&to), columns = to.dim[3];
  for (uint64_t i = 0; i < rows; i += ROWS)
    for (uint64_t j = 0; j < columns; j += COLUMNS) {
      size_t some_rows = at_most(rows - i, ROWS), some = at_most(columns - j, COLUMNS);
      memset(t.sums, 0, sizeof t.sums);
      add_product(&a, &b, i, some_rows, j, some, &t);
      store_block(&t, &to, args->reads[2].data ? &more : NULL, i, some_rows, j, some);
    }
}

/* ---- batches ---- */

/* The matrix of one batch and head. */
static tsr__strided slice_of(tsr__strided v, uint64_t batch, uint64_t head) {
  assert(batch < v.dim[0] && head < v.dim[1]);
  v.offset += batch * v.stride[0] + head * v.stride[1];
  v.dim[0] = v.dim[1] = 1;
  return v;
}

typedef struct batches {
  tsr__strided a, b, to, more;
  bool has_more;
  const bool *is_transposed;
} batches;

/* Compute the result of one batch and head: a sum over the first operand's heads that share it. */
static void multiply_one(const batches *s, uint64_t batch, uint64_t head, block *t) {
  tsr__strided to = slice_of(s->to, batch, head);
  tsr__strided more = s->has_more ? slice_of(s->more, batch, head) : to;
  uint64_t each = s->a.dim[1] / s->to.dim[1], share = s->a.dim[1] / s->b.dim[1];
  for (uint64_t i = 0; i < to.dim[2]; i += ROWS)
    for (uint64_t j = 0; j < to.dim[3]; j += COLUMNS) {
      size_t rows = at_most(to.dim[2] - i, ROWS), columns = at_most(to.dim[3] - j, COLUMNS);
      memset(t->sums, 0, sizeof t->sums);
      for (uint64_t h = head * each; h < (head + 1) * each; h++) {
        matrix a = matrix_of(slice_of(s->a, batch, h), s->is_transposed[0]);
        matrix b = matrix_of(slice_of(s->b, batch, h / share), s->is_transposed[1]);
        add_product(&a, &b, i, rows, j, columns, t);
      }
      store_block(t, &to, s->has_more ? &more : NULL, i, rows, j, columns);
    }
}

void tsr__reference_products(const tsr__kernel_args *args) {
  batches s = {.a = tsr__strided_of(&args->reads[0]),
               .b = tsr__strided_of(&args->reads[1]),
               .to = tsr__strided_of(&args->writes[0]),
               .has_more = args->reads[2].data != NULL,
               .is_transposed = args->is_transposed};
  block t;
  if (s.has_more) s.more = tsr__strided_repeated(&args->reads[2], &s.to);
  assert(s.a.dim[0] == s.to.dim[0] && s.b.dim[0] == s.to.dim[0]);
  for (uint64_t batch = 0; batch < s.to.dim[0]; batch++)
    for (uint64_t head = 0; head < s.to.dim[1]; head++) multiply_one(&s, batch, head, &t);
}
