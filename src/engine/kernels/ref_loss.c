/* ref_loss.c - reference kernels of losses and embeddings.
 *
 * Labels and token ids are integers of any shape, used in its order. The caller must check that ids from a file are
 * within the table. */
#include <assert.h>
#include <math.h>

#include "kernels/reference.h"

/* Integers of a tensor, in the order of its shape. */
static int64_t integer_at(const tsr__strided *v, uint64_t i) {
  uint64_t at = tsr__strided_row(v, i / v->dim[3]) + i % v->dim[3] * v->stride[3];
  assert(v->dtype == TSR__DTYPE_I64);
  return ((const int64_t *)v->data)[at];
}

static uint64_t count_labels(const tsr__strided *labels, double ignored) {
  uint64_t count = 0;
  for (uint64_t i = 0; i < tsr__strided_elements(labels); i++)
    count += (double)integer_at(labels, i) != ignored;
  return count;
}

/* The index of the label's number in row `row` of a number for each class. */
static uint64_t class_at(const tsr__strided *v, uint64_t row, int64_t label) {
  assert(label >= 0 && (uint64_t)label < v->dim[3]);
  return tsr__strided_row(v, row) + (uint64_t)label * v->stride[3];
}

void tsr__reference_nll_loss(const tsr__kernel_args *args) {
  tsr__strided from = tsr__strided_of(&args->reads[0]), labels = tsr__strided_of(&args->reads[1]);
  double ignored = args->scalars[0], sum = 0;
  double count = (double)count_labels(&labels, ignored);
  for (uint64_t i = 0; i < tsr__strided_elements(&labels); i++) {
    int64_t label = integer_at(&labels, i);
    if ((double)label != ignored) sum -= tsr__strided_get(&from, class_at(&from, i, label));
  }
  tsr__put_number(&args->writes[0], sum / count);
  tsr__put_number(&args->writes[1], count);
}

void tsr__reference_nll_loss_backward(const tsr__kernel_args *args) {
  tsr__strided labels = tsr__strided_of(&args->reads[2]), to = tsr__strided_of(&args->writes[0]);
  double gradient = tsr__number_of(&args->reads[1]), count = tsr__number_of(&args->reads[3]);
  double ignored = args->scalars[0];
  if (args->reads[0].data != args->writes[0].data) tsr__reference_copy(args);
  for (uint64_t i = 0; i < tsr__strided_elements(&labels); i++) {
    int64_t label = integer_at(&labels, i);
    if ((double)label != ignored) tsr__strided_put(&to, class_at(&to, i, label), -gradient / count);
  }
}

/* The log-sum-exp of a row. */
static double log_sum_of(const tsr__strided *v, uint64_t row) {
  double numbers[TSR__TILE], largest = -INFINITY, sum = 0;
  TSR__EACH_TILE(column, count, v->dim[3]) {
    tsr__strided_load_row(v, tsr__strided_row(v, row), column, count, numbers);
    for (size_t i = 0; i < count; i++) largest = fmax(largest, numbers[i]);
  }
  TSR__EACH_TILE(column, count, v->dim[3]) {
    tsr__strided_load_row(v, tsr__strided_row(v, row), column, count, numbers);
    for (size_t i = 0; i < count; i++) sum += exp(numbers[i] - largest);
  }
  return largest + log(sum);
}

void tsr__reference_cross_entropy(const tsr__kernel_args *args) {
  tsr__strided logits = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  tsr__strided labels = tsr__strided_of(&args->reads[1]), all = tsr__strided_of(&args->reads[2]);
  double numbers[TSR__TILE], ignored = args->scalars[0], loss = 0;
  double weight = 1 / (double)count_labels(&all, ignored);
  double slope = args->scalar_count > 1 ? weight / args->scalars[1] : weight;
  for (uint64_t row = 0; row < tsr__strided_elements(&labels); row++) {
    int64_t label = integer_at(&labels, row);
    bool counts = (double)label != ignored;
    double log_sum = log_sum_of(&logits, row);
    if (counts) loss += log_sum - tsr__strided_get(&logits, class_at(&logits, row, label));
    TSR__EACH_TILE(column, count, to.dim[3]) {
      tsr__strided_load_row(&logits, tsr__strided_row(&logits, row), column, count, numbers);
      for (size_t i = 0; i < count; i++) {
        double is_label = (uint64_t)label == column + i;
        numbers[i] = counts ? (exp(numbers[i] - log_sum) - is_label) * slope : 0;
      }
      tsr__strided_store_row(&to, tsr__strided_row(&to, row), column, count, numbers);
    }
  }
  tsr__put_number(&args->writes[1], tsr__number_of(&args->reads[3]) + loss * weight);
}

void tsr__reference_loss(const tsr__kernel_args *args) {
  tsr__strided logits = tsr__strided_of(&args->reads[0]);
  tsr__strided labels = tsr__strided_of(&args->reads[1]), sums = tsr__strided_of(&args->writes[1]);
  double ignored = args->scalars[0], loss = 0, count = (double)count_labels(&labels, ignored);
  assert(tsr__strided_elements(&sums) == tsr__strided_rows(&logits));
  for (uint64_t row = 0; row < tsr__strided_elements(&labels); row++) {
    int64_t label = integer_at(&labels, row);
    double log_sum = (double)label == ignored ? 0 : log_sum_of(&logits, row);
    if ((double)label != ignored)
      loss += log_sum - tsr__strided_get(&logits, class_at(&logits, row, label));
    tsr__strided_put(&sums, tsr__strided_row(&sums, row), log_sum);
  }
  tsr__put_number(&args->writes[0], loss / count);
  tsr__put_number(&args->writes[2], count);
}

void tsr__reference_loss_backward(const tsr__kernel_args *args) {
  tsr__strided logits = tsr__strided_of(&args->reads[0]), to = tsr__strided_of(&args->writes[0]);
  tsr__strided labels = tsr__strided_of(&args->reads[1]), sums = tsr__strided_of(&args->reads[2]);
  double numbers[TSR__TILE], count_of_labels = tsr__number_of(&args->reads[3]);
  double slope = tsr__number_of(&args->reads[4]) / (count_of_labels * args->scalars[1]);
  for (uint64_t row = 0; row < tsr__strided_elements(&labels); row++) {
    int64_t label = integer_at(&labels, row);
    bool counts = (double)label != args->scalars[0];
    double log_sum = tsr__strided_get(&sums, tsr__strided_row(&sums, row));
    TSR__EACH_TILE(column, count, to.dim[3]) {
      tsr__strided_load_row(&logits, tsr__strided_row(&logits, row), column, count, numbers);
      for (size_t i = 0; i < count; i++) {
        double is_label = (uint64_t)label == column + i;
        numbers[i] = counts ? (exp(numbers[i] - log_sum) - is_label) * slope : 0;
      }
      tsr__strided_store_row(&to, tsr__strided_row(&to, row), column, count, numbers);
    }
  }
}

/* ---- embeddings ---- */

void tsr__reference_embedding(const tsr__kernel_args *args) {
  tsr__strided table = tsr__strided_of(&args->reads[0]), ids = tsr__strided_of(&args->reads[1]);
  tsr__strided to = tsr__strided_of(&args->writes[0]);
  double numbers[TSR__TILE];
  for (uint64_t i = 0; i < tsr__strided_elements(&ids); i++) {
    int64_t id = integer_at(&ids, i);
    assert(id >= 0 && (uint64_t)id < table.dim[2]);
    TSR__EACH_TILE(column, count, to.dim[3]) {
      tsr__strided_load_row(&table, tsr__strided_row(&table, (uint64_t)id), column, count, numbers);
      tsr__strided_store_row(&to, tsr__strided_row(&to, i), column, count, numbers);
    }
  }
}

/* Whether an id occurs before position `end`. */
static bool occurs_before(const tsr__strided *ids, uint64_t end, int64_t id) {
  for (uint64_t i = 0; i < end; i++)
    if (integer_at(ids, i) == id) return true;
  return false;
}

/* At its first occurrence, an id's row of the table gets the sum of the gradients of all occurrences. */
static void add_occurrences(const tsr__kernel_args *args) {
  tsr__strided gradient = tsr__strided_of(&args->reads[0]), ids = tsr__strided_of(&args->reads[1]);
  tsr__strided to = tsr__strided_of(&args->writes[0]);
  uint64_t total = tsr__strided_elements(&ids);
  double numbers[TSR__TILE];
  for (uint64_t i = 0; i < total; i++) {
    int64_t id = integer_at(&ids, i);
    assert(id >= 0 && (uint64_t)id < to.dim[2]);
    if (occurs_before(&ids, i, id)) continue;
    TSR__EACH_TILE(column, count, to.dim[3]) {
      double sums[TSR__TILE];
      tsr__strided_load_row(&to, tsr__strided_row(&to, (uint64_t)id), column, count, sums);
      for (uint64_t j = i; j < total; j++) {
        if (integer_at(&ids, j) != id) continue;
        tsr__strided_load_row(&gradient, tsr__strided_row(&gradient, j), column, count, numbers);
        for (size_t k = 0; k < count; k++) sums[k] += numbers[k];
      }
      tsr__strided_store_row(&to, tsr__strided_row(&to, (uint64_t)id), column, count, sums);
    }
  }
}

void tsr__reference_embedding_backward(const tsr__kernel_args *args) {
  tsr__reference_zeros(args);
  add_occurrences(args);
}

void tsr__reference_embedding_add(const tsr__kernel_args *args) {
  const tsr__kernel_args copy = {.reads = {args->reads[2]}, .writes = {args->writes[0]}};
  if (!args->reads[2].data)
    tsr__reference_zeros(args);
  else if (args->reads[2].data != args->writes[0].data)
    tsr__reference_copy(&copy);
  add_occurrences(args);
}
