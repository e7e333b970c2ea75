/* ref_copy.c - reference kernels that copy elements, or write constants.
 *
 * The shapes of a copy's operand and result may differ if they have equally many elements, which are copied in the
 * order of the shapes. Integers are converted to doubles and back; these hold 53 bits, more than token ids,
 * positions and counts need. */
#include <assert.h>

#include "kernels/reference.h"

/* Elements of a view, in the order of its shape. */
typedef struct cursor {
  tsr__strided view;
  uint64_t row, column;
} cursor;

/* The number of elements left in the cursor's row, at most `most`. */
static size_t left_in_row(const cursor *c, size_t most) {
  uint64_t left = c->view.dim[3] - c->column;
  return left < most ? (size_t)left : most;
}

static void advance(cursor *c, size_t count) {
  c->column += count;
  assert(c->column <= c->view.dim[3]);
  if (c->column == c->view.dim[3]) {
    c->column = 0;
    c->row++;
  }
}

static void take(cursor *c, size_t count, double *out) {
  for (size_t done = 0, some; done < count; done += some) {
    some = left_in_row(c, count - done);
    tsr__strided_load_row(&c->view, tsr__strided_row(&c->view, c->row), c->column, some,
                          out + done);
    advance(c, some);
  }
}

static void give(cursor *c, size_t count, const double *in) {
  for (size_t done = 0, some; done < count; done += some) {
    some = left_in_row(c, count - done);
    tsr__strided_store_row(&c->view, tsr__strided_row(&c->view, c->row), c->column, some,
                           in + done);
    advance(c, some);
  }
}

static void copy(tsr__strided from, tsr__strided to) {
  cursor source = {.view = from}, target = {.view = to};
  double numbers[TSR__TILE];
  assert(tsr__strided_elements(&from) == tsr__strided_elements(&to));
  TSR__EACH_TILE(first, count, tsr__strided_elements(&to)) {
    take(&source, count, numbers);
    give(&target, count, numbers);
  }
}

static void fill(tsr__strided to, double number) {
  cursor target = {.view = to};
  double numbers[TSR__TILE];
  for (size_t i = 0; i < TSR__TILE; i++) numbers[i] = number;
  TSR__EACH_TILE(first, count, tsr__strided_elements(&to)) give(&target, count, numbers);
}

/* `count` elements from `first` on along one of four dimensions. */
static tsr__strided part(tsr__strided v, uint32_t dim, uint64_t first, uint64_t count) {
  assert(first <= v.dim[dim] && count <= v.dim[dim] - first);
  v.offset += first * v.stride[dim];
  v.dim[dim] = count;
  return v;
}

void tsr__reference_copy(const tsr__kernel_args *args) {
  copy(tsr__strided_of(&args->reads[0]), tsr__strided_of(&args->writes[0]));
}

void tsr__reference_repeat(const tsr__kernel_args *args) {
  tsr__strided from = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  uint64_t times = from.dim[1] ? to.dim[1] / from.dim[1] : 0;
  assert(times * from.dim[1] == to.dim[1]);
  for (uint64_t head = 0; head < to.dim[1]; head++)
    copy(part(from, 1, head / times, 1), part(to, 1, head, 1));
}

void tsr__reference_cat(const tsr__kernel_args *args) {
  tsr__strided to = tsr__strided_of(&args->writes[0]);
  uint32_t dim = (uint32_t)(TSR__SHAPE_RANK + (int)args->scalars[0]);
  uint64_t first = 0;
  assert(dim < TSR__SHAPE_RANK);
  for (uint32_t i = 0; i < TSR__KERNEL_READS && args->reads[i].data; i++) {
    tsr__strided from = tsr__strided_of(&args->reads[i]);
    copy(from, part(to, dim, first, from.dim[dim]));
    first += from.dim[dim];
  }
  assert(first == to.dim[dim]);
}

void tsr__reference_pad(const tsr__kernel_args *args) {
  tsr__strided from = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  copy(from, part(to, 3, 0, from.dim[3]));
  fill(part(to, 3, from.dim[3], to.dim[3] - from.dim[3]), args->scalars[0]);
}

void tsr__reference_slice_backward(const tsr__kernel_args *args) {
  tsr__strided from = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  uint64_t first = (uint64_t)args->scalars[0], end = first + from.dim[3];
  fill(part(to, 3, 0, first), 0);
  copy(from, part(to, 3, first, from.dim[3]));
  fill(part(to, 3, end, to.dim[3] - end), 0);
}

void tsr__reference_set_rows(const tsr__kernel_args *args) {
  tsr__strided from = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  copy(from, part(to, 2, (uint64_t)args->scalars[0], from.dim[2]));
}

void tsr__reference_zeros(const tsr__kernel_args *args) {
  fill(tsr__strided_of(&args->writes[0]), 0);
}

void tsr__reference_ones(const tsr__kernel_args *args) {
  fill(tsr__strided_of(&args->writes[0]), 1);
}

void tsr__reference_full(const tsr__kernel_args *args) {
  fill(tsr__strided_of(&args->writes[0]), args->scalars[0]);
}

void tsr__reference_arange(const tsr__kernel_args *args) {
  cursor target = {.view = tsr__strided_of(&args->writes[0])};
  double numbers[TSR__TILE];
  TSR__EACH_TILE(first, count, tsr__strided_elements(&target.view)) {
    for (size_t i = 0; i < count; i++)
      numbers[i] = args->scalars[0] + (double)(first + i) * args->scalars[1];
    give(&target, count, numbers);
  }
}

void tsr__reference_batch(const tsr__kernel_args *args) {
  cursor target = {.view = tsr__strided_of(&args->writes[0])};
  double numbers[TSR__TILE];
  TSR__EACH_TILE(first, count, tsr__strided_elements(&target.view)) {
    for (size_t i = 0; i < count; i++)
      numbers[i] = args->batch ? (double)args->batch[first + i] : 1;
    give(&target, count, numbers);
  }
}
