/* fast_rows.c - fast kernels along rows: sums, softmax, norms, rotary positions. Compiled for each instruction set
 * (unit.h).
 *
 * A row is summed in lanes within a tile, and in double over tiles. Rows are summed in pieces of 256, each of which
 * starts at zero and is added once, so that micro-batches of 256 tokens give the sum of the whole batch. Rows, or
 * tiles of columns, are split over the threads. */
#include "kernels/unit_fast.h"
#include "kernels/unit_math.h"

enum { PIECE = 256 };

/* ---- sums ---- */

typedef struct summing {
  tsr__strided from, to, more; /* more: the addend, if has_more */
  bool has_more;
  uint64_t reach[3]; /* rows summed into one of the result, in each leading dimension */
  double scale;
} summing;

/* The start of summand `index` of row `row` of the result. */
static uint64_t summand_at(const summing *s, uint64_t row, uint64_t index) {
  uint64_t c = row % s->to.dim[2], b = row / s->to.dim[2] % s->to.dim[1];
  uint64_t a = row / s->to.dim[2] / s->to.dim[1];
  uint64_t i = index % s->reach[2], j = index / s->reach[2] % s->reach[1];
  return tsr__strided_at(&s->from, a + index / s->reach[2] / s->reach[1], b + j, c + i, 0);
}

/* Sum tiles of columns, numbered row by row of the result. */
static void sum_columns(void *context, uint64_t first, uint64_t end) {
  const summing *s = context;
  uint64_t tiles = (s->to.dim[3] + UNIT_TILE - 1) / UNIT_TILE;
  uint64_t rows = s->reach[0] * s->reach[1] * s->reach[2];
  float room[UNIT_TILE], piece[UNIT_TILE], total[UNIT_TILE];
  for (uint64_t i = first; i < end; i++) {
    uint64_t row = i / tiles, column = i % tiles * UNIT_TILE;
    size_t count = unit_tile(s->to.dim[3] - column);
    memset(total, 0, sizeof total);
    if (s->has_more)
      unit_load(&s->more, tsr__strided_row(&s->more, row) + column * s->more.stride[3],
                s->more.stride[3], count, total);
    for (uint64_t from = 0; from < rows; from += PIECE) {
      memset(piece, 0, sizeof piece);
      for (uint64_t k = from; k < rows && k < from + PIECE; k++) {
        const float *x = unit_row(&s->from, summand_at(s, row, k), column, count, room);
        for (size_t n = 0; n < count; n++) piece[n] += x[n];
      }
      for (size_t n = 0; n < count; n++) total[n] += piece[n];
    }
    for (size_t n = 0; s->scale != 1 && n < count; n++) total[n] *= (float)s->scale;
    unit_store(&s->to, tsr__strided_row(&s->to, row) + column * s->to.stride[3], s->to.stride[3],
               count, total);
  }
}

/* Sum all elements of all rows that belong to each of these rows of the result. */
static void sum_rows(void *context, uint64_t first, uint64_t end) {
  const summing *s = context;
  uint64_t rows = s->reach[0] * s->reach[1] * s->reach[2];
  float room[UNIT_TILE];
  for (uint64_t row = first; row < end; row++) {
    double total = 0;
    if (s->has_more) {
      float number = 0;
      unit_load(&s->more, tsr__strided_row(&s->more, row), 1, 1, &number);
      total = (double)number;
    }
    for (uint64_t k = 0; k < rows; k++) {
      uint64_t at = summand_at(s, row, k);
      UNIT_EACH_TILE(column, count, s->from.dim[3])
      total += (double)floats_sum(unit_row(&s->from, at, column, count, room), count);
    }
    float result = (float)(total * s->scale);
    unit_store(&s->to, tsr__strided_row(&s->to, row), 1, 1, &result);
  }
}

static void sum_to(const tsr__kernel_args *args, double scale) {
  summing s = {.from = tsr__strided_of(&args->reads[0]),
               .to = tsr__strided_of(&args->writes[0]),
               .has_more = args->reads[1].data != NULL,
               .scale = scale};
  if (s.has_more) s.more = tsr__strided_repeated(&args->reads[1], &s.to);
  uint64_t reached = 1, rows = tsr__strided_rows(&s.to);
  for (uint32_t i = 0; i < 3; i++) {
    assert(s.to.dim[i] == s.from.dim[i] || s.to.dim[i] == 1);
    s.reach[i] = s.to.dim[i] == s.from.dim[i] ? 1 : s.from.dim[i];
    reached *= s.reach[i];
  }
  if (s.to.dim[3] == s.from.dim[3]) {
    uint64_t tiles = (s.to.dim[3] + UNIT_TILE - 1) / UNIT_TILE;
    unit_split(args->pool, rows * tiles, reached * unit_tile(s.to.dim[3]), sum_columns, &s);
  } else {
    unit_split(args->pool, rows, reached * s.from.dim[3], sum_rows, &s);
  }
}

void TSR__UNIT(tsr__fast_sum)(const tsr__kernel_args *args) {
  if (unit_has_types(args))
    sum_to(args, 1);
  else
    tsr__reference_sum(args);
}

void TSR__UNIT(tsr__fast_mean)(const tsr__kernel_args *args) {
  uint64_t from = tsr__shape_elements(args->reads[0].layout.shape);
  uint64_t to = tsr__shape_elements(args->writes[0].layout.shape);
  assert(from && to && from % to == 0);
  if (unit_has_types(args))
    sum_to(args, (double)to / (double)from);
  else
    tsr__reference_mean(args);
}

/* ---- softmax ---- */

/* The operands and results of a row-by-row kernel. */
typedef struct rows_job {
  tsr__strided a, b, to;
  bool is_log;
} rows_job;

static void softmax_rows(void *context, uint64_t first, uint64_t end) {
  const rows_job *j = context;
  float room[UNIT_TILE], other[UNIT_TILE];
  for (uint64_t row = first; row < end; row++) {
    uint64_t from = tsr__strided_row(&j->a, row), to = tsr__strided_row(&j->to, row);
    float largest = -INFINITY;
    double sum = 0;
    UNIT_EACH_TILE(column, count, j->to.dim[3]) {
      float some = floats_largest(unit_row(&j->a, from, column, count, room), count);
      largest = some > largest ? some : largest;
    }
    UNIT_EACH_TILE(column, count, j->to.dim[3]) {
      const float *x = unit_row(&j->a, from, column, count, room);
      for (size_t i = 0; i < count; i++) other[i] = unit_exp(x[i] - largest);
      sum += (double)floats_sum(other, count);
    }
    float log_sum = (float)log(sum), factor = (float)(1 / sum);
    UNIT_EACH_TILE(column, count, j->to.dim[3]) {
      const float *x = unit_row(&j->a, from, column, count, room);
      float *out = unit_row_room(&j->to, to, column, other);
      TSR__EACH_TURN
      for (size_t i = 0; i < count; i++)
        out[i] = j->is_log ? x[i] - largest - log_sum : unit_exp(x[i] - largest) * factor;
      unit_row_done(&j->to, to, column, count, other);
    }
  }
}

static void softmax(const tsr__kernel_args *args, bool is_log) {
  rows_job j = {.a = tsr__strided_of(&args->reads[0]),
                .to = tsr__strided_of(&args->writes[0]),
                .is_log = is_log};
  unit_split(args->pool, tsr__strided_rows(&j.to), 4 * j.to.dim[3], softmax_rows, &j);
}

void TSR__UNIT(tsr__fast_softmax)(const tsr__kernel_args *args) {
  if (unit_has_types(args))
    softmax(args, false);
  else
    tsr__reference_softmax(args);
}

void TSR__UNIT(tsr__fast_log_softmax)(const tsr__kernel_args *args) {
  if (unit_has_types(args))
    softmax(args, true);
  else
    tsr__reference_log_softmax(args);
}

static void softmax_backward_rows(void *context, uint64_t first, uint64_t end) {
  const rows_job *j = context;
  float room[UNIT_TILE], other[UNIT_TILE], result[UNIT_TILE];
  for (uint64_t row = first; row < end; row++) {
    uint64_t from = tsr__strided_row(&j->a, row), at = tsr__strided_row(&j->b, row);
    uint64_t to = tsr__strided_row(&j->to, row);
    double total = 0;
    UNIT_EACH_TILE(column, count, j->to.dim[3]) {
      const float *g = unit_row(&j->a, from, column, count, room);
      if (j->is_log)
        total += (double)floats_sum(g, count);
      else
        total += (double)floats_dot(g, unit_row(&j->b, at, column, count, other), count);
    }
    float sum = (float)total;
    UNIT_EACH_TILE(column, count, j->to.dim[3]) {
      const float *g = unit_row(&j->a, from, column, count, room);
      const float *y = unit_row(&j->b, at, column, count, other);
      float *out = unit_row_room(&j->to, to, column, result);
      TSR__EACH_TURN
      for (size_t i = 0; i < count; i++)
        out[i] = j->is_log ? g[i] - unit_exp(y[i]) * sum : (g[i] - sum) * y[i];
      unit_row_done(&j->to, to, column, count, result);
    }
  }
}

static void softmax_backward(const tsr__kernel_args *args, bool is_log) {
  rows_job j = {.a = tsr__strided_of(&args->reads[0]),
                .b = tsr__strided_of(&args->reads[1]),
                .to = tsr__strided_of(&args->writes[0]),
                .is_log = is_log};
  unit_split(args->pool, tsr__strided_rows(&j.to), 2 * j.to.dim[3], softmax_backward_rows, &j);
}

void TSR__UNIT(tsr__fast_softmax_backward)(const tsr__kernel_args *args) {
  if (unit_has_types(args))
    softmax_backward(args, false);
  else
    tsr__reference_softmax_backward(args);
}

void TSR__UNIT(tsr__fast_log_softmax_backward)(const tsr__kernel_args *args) {
  if (unit_has_types(args))
    softmax_backward(args, true);
  else
    tsr__reference_log_softmax_backward(args);
}

/* ---- layer norm ---- */

typedef struct norm {
  tsr__strided gradient, x, means, factors, weight, bias, to, more; /* more: added to `to` */
  tsr__kernel_tensor dw, db, more_w, more_b;
  float epsilon;
  bool has_means, has_bias, has_more; /* an RMS norm has no means and no bias */
} norm;

static float number_at(const tsr__strided *v, uint64_t at) {
  float number = 0; /* compilers do not see that it is loaded */
  unit_load(v, at, 1, 1, &number);
  return number;
}

static void norm_rows(void *context, uint64_t first, uint64_t end) {
  const norm *n = context;
  static const float zeros[UNIT_TILE];
  float room[UNIT_TILE], w_room[UNIT_TILE], b_room[UNIT_TILE], other[UNIT_TILE];
  double width = (double)n->x.dim[3];
  for (uint64_t row = first; row < end; row++) {
    uint64_t at = tsr__strided_row(&n->x, row), to = tsr__strided_row(&n->to, row);
    double sum = 0, squares = 0;
    if (n->has_means) UNIT_EACH_TILE(column, count, n->x.dim[3])
    sum += (double)floats_sum(unit_row(&n->x, at, column, count, room), count);
    float mean = (float)(sum / width);
    UNIT_EACH_TILE(column, count, n->x.dim[3]) {
      const float *x = unit_row(&n->x, at, column, count, room);
      for (size_t i = 0; i < count; i++) other[i] = x[i] - mean;
      squares += (double)floats_dot(other, other, count);
    }
    float factor = (float)(1 / sqrt(squares / width + (double)n->epsilon));
    UNIT_EACH_TILE(column, count, n->x.dim[3]) {
      const float *x = unit_row(&n->x, at, column, count, room);
      const float *w = unit_row(&n->weight, n->weight.offset, column, count, w_room);
      const float *b = zeros;
      if (n->has_bias) b = unit_row(&n->bias, n->bias.offset, column, count, b_room);
      float *out = unit_row_room(&n->to, to, column, other);
      TSR__EACH_TURN
      for (size_t i = 0; i < count; i++) out[i] = (x[i] - mean) * factor * w[i] + b[i];
      unit_row_done(&n->to, to, column, count, other);
    }
    if (n->has_means) unit_store(&n->means, tsr__strided_row(&n->means, row), 1, 1, &mean);
    unit_store(&n->factors, tsr__strided_row(&n->factors, row), 1, 1, &factor);
  }
}

void TSR__UNIT(tsr__fast_layer_norm)(const tsr__kernel_args *args) {
  if (!unit_has_types(args)) {
    tsr__reference_layer_norm(args);
    return;
  }
  norm n = {.x = tsr__strided_of(&args->reads[0]),
            .weight = tsr__strided_of(&args->reads[1]),
            .bias = tsr__strided_of(&args->reads[2]),
            .to = tsr__strided_of(&args->writes[0]),
            .means = tsr__strided_of(&args->writes[1]),
            .factors = tsr__strided_of(&args->writes[2]),
            .epsilon = (float)args->scalars[0],
            .has_means = true,
            .has_bias = true};
  unit_split(args->pool, tsr__strided_rows(&n.x), 3 * n.x.dim[3], norm_rows, &n);
}

void TSR__UNIT(tsr__fast_rms_norm)(const tsr__kernel_args *args) {
  if (!unit_has_types(args)) {
    tsr__reference_rms_norm(args);
    return;
  }
  norm n = {.x = tsr__strided_of(&args->reads[0]),
            .weight = tsr__strided_of(&args->reads[1]),
            .to = tsr__strided_of(&args->writes[0]),
            .factors = tsr__strided_of(&args->writes[1]),
            .epsilon = (float)args->scalars[0]};
  unit_split(args->pool, tsr__strided_rows(&n.x), 3 * n.x.dim[3], norm_rows, &n);
}

static float mean_of(const norm *n, uint64_t row) {
  return n->has_means ? number_at(&n->means, tsr__strided_row(&n->means, row)) : 0;
}

/* dx = factor * (g w - mean of g w - y * mean of g w y), with y = x normalised; an RMS norm has no first mean. */
static void norm_back_rows(void *context, uint64_t first, uint64_t end) {
  const norm *n = context;
  static const float zeros[UNIT_TILE];
  float g_room[UNIT_TILE], x_room[UNIT_TILE], w_room[UNIT_TILE], gw[UNIT_TILE], y[UNIT_TILE];
  float own_room[UNIT_TILE];
  double width = (double)n->x.dim[3];
  for (uint64_t row = first; row < end; row++) {
    uint64_t from = tsr__strided_row(&n->gradient, row), at = tsr__strided_row(&n->x, row);
    uint64_t to = tsr__strided_row(&n->to, row);
    float mean = mean_of(n, row);
    float factor = number_at(&n->factors, tsr__strided_row(&n->factors, row));
    double sum = 0, product = 0;
    for (int is_second = 0; is_second < 2; is_second++) {
      float mean_g = n->has_means ? (float)(sum / width) : 0, mean_y = (float)(product / width);
      UNIT_EACH_TILE(column, count, n->x.dim[3]) {
        const float *g = unit_row(&n->gradient, from, column, count, g_room);
        const float *x = unit_row(&n->x, at, column, count, x_room);
        const float *w = unit_row(&n->weight, n->weight.offset, column, count, w_room);
        for (size_t i = 0; i < count; i++) gw[i] = g[i] * w[i];
        for (size_t i = 0; i < count; i++) y[i] = (x[i] - mean) * factor;
        if (!is_second) {
          sum += (double)floats_sum(gw, count);
          product += (double)floats_dot(gw, y, count);
          continue;
        }
        const float *own = zeros;
        if (n->has_more)
          own = unit_row(&n->more, tsr__strided_row(&n->more, row), column, count, own_room);
        float *out = unit_row_room(&n->to, to, column, g_room);
        TSR__EACH_TURN
        for (size_t i = 0; i < count; i++)
          out[i] = own[i] + factor * (gw[i] - mean_g - y[i] * mean_y);
        unit_row_done(&n->to, to, column, count, g_room);
      }
    }
  }
}

/* Start sums of columns with the addend, or zeros. */
static void load_column_sums(const tsr__kernel_tensor *tensor, uint64_t column, size_t count,
                             float *sums) {
  memset(sums, 0, count * sizeof *sums);
  if (!tensor->data) return;
  tsr__strided from = tsr__strided_of(tensor);
  unit_load(&from, from.offset + column * from.stride[3], from.stride[3], count, sums);
}

static void store_column_sums(const tsr__kernel_tensor *tensor, uint64_t column, size_t count,
                              const float *sums) {
  if (!tensor->data) return;
  tsr__strided to = tsr__strided_of(tensor);
  unit_store(&to, to.offset + column * to.stride[3], to.stride[3], count, sums);
}

/* Compute the gradients of weight and bias for some tiles of columns. */
static void norm_back_columns(void *context, uint64_t first, uint64_t end) {
  const norm *n = context;
  float g_room[UNIT_TILE], x_room[UNIT_TILE];
  uint64_t rows = tsr__strided_rows(&n->x);
  for (uint64_t tile = first; tile < end; tile++) {
    uint64_t column = tile * UNIT_TILE;
    size_t count = unit_tile(n->x.dim[3] - column);
    float dw[UNIT_TILE], db[UNIT_TILE];
    load_column_sums(&n->more_w, column, count, dw);
    load_column_sums(&n->more_b, column, count, db);
    for (uint64_t from = 0; from < rows; from += PIECE) {
      float some_w[UNIT_TILE] = {0}, some_b[UNIT_TILE] = {0};
      for (uint64_t row = from; row < rows && row < from + PIECE; row++) {
        float mean = mean_of(n, row);
        float factor = number_at(&n->factors, tsr__strided_row(&n->factors, row));
        const float *g =
            unit_row(&n->gradient, tsr__strided_row(&n->gradient, row), column, count, g_room);
        const float *x = unit_row(&n->x, tsr__strided_row(&n->x, row), column, count, x_room);
        for (size_t i = 0; i < count; i++) {
          some_w[i] += g[i] * ((x[i] - mean) * factor);
          some_b[i] += g[i];
        }
      }
      for (size_t i = 0; i < count; i++) dw[i] += some_w[i], db[i] += some_b[i];
    }
    store_column_sums(&n->dw, column, count, dw);
    store_column_sums(&n->db, column, count, db);
  }
}

/* Compute the gradients of weight and bias, then that of x, whose addend may have the same memory. */
static void norm_back(norm *n, const tsr__kernel_args *args, const tsr__kernel_tensor *more) {
  uint64_t rows = tsr__strided_rows(&n->x), columns = n->x.dim[3];
  if (n->dw.data || n->db.data)
    unit_split(args->pool, (columns + UNIT_TILE - 1) / UNIT_TILE, rows * unit_tile(columns),
               norm_back_columns, n);
  if (!args->writes[0].data) return;
  n->to = tsr__strided_of(&args->writes[0]);
  n->has_more = more->data != NULL;
  if (n->has_more) n->more = tsr__strided_of(more);
  unit_split(args->pool, rows, 4 * columns, norm_back_rows, n);
}

void TSR__UNIT(tsr__fast_layer_norm_backward)(const tsr__kernel_args *args) {
  if (!unit_has_types(args)) {
    tsr__reference_layer_norm_backward(args);
    return;
  }
  norm n = {.gradient = tsr__strided_of(&args->reads[0]),
            .x = tsr__strided_of(&args->reads[1]),
            .means = tsr__strided_of(&args->reads[2]),
            .factors = tsr__strided_of(&args->reads[3]),
            .weight = tsr__strided_of(&args->reads[4]),
            .dw = args->writes[1],
            .db = args->writes[2],
            .more_w = args->reads[6],
            .more_b = args->reads[7],
            .has_means = true};
  norm_back(&n, args, &args->reads[5]);
}

void TSR__UNIT(tsr__fast_rms_norm_backward)(const tsr__kernel_args *args) {
  if (!unit_has_types(args)) {
    tsr__reference_rms_norm_backward(args);
    return;
  }
  norm n = {.gradient = tsr__strided_of(&args->reads[0]),
            .x = tsr__strided_of(&args->reads[1]),
            .factors = tsr__strided_of(&args->reads[2]),
            .weight = tsr__strided_of(&args->reads[3]),
            .dw = args->writes[1],
            .more_w = args->reads[5]};
  norm_back(&n, args, &args->reads[4]);
}

/* ---- rotary positions ---- */

typedef struct rotation {
  tsr__strided from, to, cosines, sines;
  float sign;
} rotation;

static void rotate_rows(void *context, uint64_t first, uint64_t end) {
  const rotation *r = context;
  uint64_t half = r->from.dim[3] / 2;
  float x_room[UNIT_TILE], y_room[UNIT_TILE], c_room[UNIT_TILE], s_room[UNIT_TILE];
  float x_out[UNIT_TILE], y_out[UNIT_TILE];
  for (uint64_t row = first; row < end; row++) {
    uint64_t from = tsr__strided_row(&r->from, row), to = tsr__strided_row(&r->to, row);
    uint64_t c_at = tsr__strided_row(&r->cosines, row % r->from.dim[2]);
    uint64_t s_at = tsr__strided_row(&r->sines, row % r->from.dim[2]);
    UNIT_EACH_TILE(column, count, half) {
      const float *x = unit_row(&r->from, from, column, count, x_room);
      const float *y = unit_row(&r->from, from, half + column, count, y_room);
      const float *c = unit_row(&r->cosines, c_at, column, count, c_room);
      const float *s = unit_row(&r->sines, s_at, column, count, s_room);
      float *to_x = unit_row_room(&r->to, to, column, x_out);
      float *to_y = unit_row_room(&r->to, to, half + column, y_out);
      TSR__EACH_TURN
      for (size_t i = 0; i < count; i++) {
        float own = x[i], other = y[i], sine = s[i] * r->sign;
        to_x[i] = own * c[i] - other * sine;
        to_y[i] = other * c[i] + own * sine;
      }
      unit_row_done(&r->to, to, column, count, x_out);
      unit_row_done(&r->to, to, half + column, count, y_out);
    }
  }
}

void TSR__UNIT(tsr__fast_rotate)(const tsr__kernel_args *args) {
  if (!unit_has_types(args)) {
    tsr__reference_rotate(args);
    return;
  }
  for (uint32_t i = 0; i < 2; i++) {
    rotation r = {.from = tsr__strided_of(&args->reads[i]),
                  .to = tsr__strided_of(&args->writes[i]),
                  .cosines = tsr__strided_of(&args->reads[2]),
                  .sines = tsr__strided_of(&args->reads[3]),
                  .sign = (float)args->scalars[0]};
    unit_split(args->pool, tsr__strided_rows(&r.from), r.from.dim[3], rotate_rows, &r);
  }
}
