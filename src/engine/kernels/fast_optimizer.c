/* fast_optimizer.c - fast kernels of the fused optimizer and of loss scaling. Compiled for each instruction set
 * (unit.h). */
#include "kernels/unit_fast.h"

typedef struct update {
  tsr__strided from[4], to[3]; /* p, g, m, v; p, m, v */
  float decayed, rest_1, beta_2, rest_2, rate, root, epsilon;
  uint64_t tiles;
} update;

static void update_tiles(void *context, uint64_t first, uint64_t end) {
  const update *u = context;
  float in_room[4][UNIT_TILE], out_room[3][UNIT_TILE];
  const float *in[4];
  float *out[3];
  for (uint64_t i = first; i < end; i++) {
    uint64_t row = i / u->tiles, column = i % u->tiles * UNIT_TILE;
    size_t count = unit_tile(u->from[0].dim[3] - column);
    for (size_t k = 0; k < 4; k++)
      in[k] = unit_row(&u->from[k], tsr__strided_row(&u->from[k], row), column, count, in_room[k]);
    for (size_t k = 0; k < 3; k++)
      out[k] = unit_row_room(&u->to[k], tsr__strided_row(&u->to[k], row), column, out_room[k]);
    const float *p = in[0], *g = in[1], *m = in[2], *v = in[3];
    float *to_p = out[0], *to_m = out[1], *to_v = out[2];
    TSR__EACH_TURN
    for (size_t n = 0; n < count; n++) {
      float own_m = m[n] + u->rest_1 * (g[n] - m[n]);
      float own_v = u->beta_2 * v[n] + u->rest_2 * g[n] * g[n];
      to_p[n] = p[n] * u->decayed - u->rate * own_m / (sqrtf(own_v) * u->root + u->epsilon);
      to_m[n] = own_m;
      to_v[n] = own_v;
    }
    for (size_t k = 0; k < 3; k++)
      unit_row_done(&u->to[k], tsr__strided_row(&u->to[k], row), column, count, out_room[k]);
  }
}

static void update_all(update *u, const tsr__kernel_args *args) {
  const tsr__strided model = tsr__strided_of(&args->reads[0]);
  tsr__strided views[7];
  bool is_there[7];
  for (uint32_t k = 0; k < 7; k++) {
    views[k] = tsr__strided_repeated(k < 4 ? &args->reads[k] : &args->writes[k - 4], &model);
    is_there[k] = true;
  }
  tsr__strided_join(views, is_there, 7);
  memcpy(u->from, views, sizeof u->from);
  memcpy(u->to, views + 4, sizeof u->to);
  u->tiles = (views[0].dim[3] + UNIT_TILE - 1) / UNIT_TILE;
  unit_split(args->pool, tsr__strided_rows(&views[0]) * u->tiles, unit_tile(views[0].dim[3]),
             update_tiles, u);
}

void TSR__UNIT(tsr__fast_fused_adamw)(const tsr__kernel_args *args) {
  const double *s = args->scalars;
  if (!unit_has_types(args)) {
    tsr__reference_fused_adamw(args);
    return;
  }
  double step = tsr__number_of(&args->reads[4]) + 1;
  update u = {.decayed = (float)(1 - s[0] * s[4]),
              .rest_1 = (float)(1 - s[1]),
              .beta_2 = (float)s[2],
              .rest_2 = (float)(1 - s[2]),
              .rate = (float)(s[0] / (1 - pow(s[1], step))),
              .root = (float)(1 / sqrt(1 - pow(s[2], step))),
              .epsilon = (float)s[3]};
  assert(step >= 1);
  update_all(&u, args);
  tsr__put_number(&args->writes[3], step);
}

void TSR__UNIT(tsr__fast_adamw)(const tsr__kernel_args *args) {
  const double *s = args->scalars;
  if (!unit_has_types(args)) {
    tsr__reference_adamw(args);
    return;
  }
  update u = {.decayed = (float)s[0],
              .rest_1 = (float)s[1],
              .beta_2 = (float)s[2],
              .rest_2 = (float)(1 - s[2]),
              .rate = (float)-s[4],
              .root = (float)(1 / s[3]),
              .epsilon = (float)s[5]};
  update_all(&u, args);
}

/* ---- norms ---- */

enum {
  NORM_ROUND = 1024,
  NORM_LANES = 8
}; /* blocks whose sums are on the stack; parts of a block */

typedef struct squares {
  tsr__strided x; /* one row */
  uint64_t first; /* its first element */
  double sums[NORM_ROUND];
} squares;

static double sum_of_squares(const tsr__strided *x, uint64_t first, uint64_t count) {
  float room[UNIT_TILE];
  double parts[NORM_LANES] = {0}, sum = 0;
  for (uint64_t done = 0; done < count; done += UNIT_TILE) {
    size_t here = unit_tile(count - done), i = 0;
    const float *v = unit_row(x, x->offset, first + done, here, room);
    for (; i + NORM_LANES <= here; i += NORM_LANES)
      for (size_t k = 0; k < NORM_LANES; k++) parts[k] += (double)v[i + k] * (double)v[i + k];
    for (size_t k = 0; i < here; i++, k++) parts[k] += (double)v[i] * (double)v[i];
  }
  for (size_t k = 0; k < NORM_LANES; k++) sum += parts[k];
  return sum;
}

static void square_blocks(void *context, uint64_t first, uint64_t end) {
  squares *s = context;
  for (uint64_t i = first; i < end; i++) {
    uint64_t at = s->first + i * TSR__NORM_BLOCK, left = s->x.dim[3] - at;
    s->sums[i] = sum_of_squares(&s->x, at, left < TSR__NORM_BLOCK ? left : TSR__NORM_BLOCK);
  }
}

void TSR__UNIT(tsr__fast_norm)(const tsr__kernel_args *args) {
  tsr__kernel_tensor flat = args->reads[0];
  uint64_t count = tsr__shape_elements(flat.layout.shape), offset = flat.layout.offset;
  double total = 0;
  if (!unit_has_types(args) || !tsr__layout_is_dense(flat.layout)) {
    tsr__reference_norm(args);
    return;
  }
  flat.layout = tsr__layout_dense(TSR__SHAPE(count));
  flat.layout.offset = offset;
  squares s = {.x = tsr__strided_of(&flat)};
  for (; s.first < count; s.first += (uint64_t)NORM_ROUND * TSR__NORM_BLOCK) {
    uint64_t left = (count - s.first + TSR__NORM_BLOCK - 1) / TSR__NORM_BLOCK;
    uint64_t blocks = left < NORM_ROUND ? left : NORM_ROUND;
    unit_split(args->pool, blocks, TSR__NORM_BLOCK, square_blocks, &s);
    for (uint64_t i = 0; i < blocks; i++) total += s.sums[i];
  }
  tsr__put_number(&args->writes[0], sqrt(total));
}

/* ---- loss scaling ---- */

/* Overflow is known only once all numbers were read, so they are first checked, then multiplied. */
static bool has_overflow(const tsr__strided *v) {
  float room[UNIT_TILE];
  for (uint64_t row = 0; row < tsr__strided_rows(v); row++) {
    uint64_t at = tsr__strided_row(v, row);
    UNIT_EACH_TILE(column, count, v->dim[3]) {
      const float *x = unit_row(v, at, column, count, room);
      uint32_t is_odd = 0; /* an exponent of all ones: infinity or NaN */
      for (size_t i = 0; i < count; i++)
        is_odd |= (tsr__bits_of_float(x[i]) & 0x7f800000u) == 0x7f800000u;
      if (is_odd) return true;
    }
  }
  return false;
}

void TSR__UNIT(tsr__fast_unscale)(const tsr__kernel_args *args) {
  if (!unit_has_types(args)) {
    tsr__reference_unscale(args);
    return;
  }
  tsr__strided g = tsr__strided_of(&args->reads[0]);
  double overflowed = tsr__number_of(&args->reads[2]);
  bool is_there = true;
  tsr__strided_join(&g, &is_there, 1);
  if (has_overflow(&g)) overflowed = 1;
  tsr__kernel_args scale = {.reads = {args->reads[0]},
                            .writes = {args->writes[0]},
                            .scalars = {tsr__number_of(&args->reads[1])},
                            .pool = args->pool};
  scale.scalar_count = 2;
  scale.scalars[1] = 1;
  TSR__UNIT(tsr__fast_mul)(&scale);
  tsr__put_number(&args->writes[1], overflowed);
}
