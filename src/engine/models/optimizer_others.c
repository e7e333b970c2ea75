/* optimizer_others.c - optimizers that are simulated, not run: Adafactor and Muon of PyTorch 2.9 (torch/optim/_adafactor.py,
 * _muon.py), 8-bit AdamW and Lion of bitsandbytes 0.50 (bitsandbytes/optim/optimizer.py).
 *
 * Each function follows the source: which tensors are state, which variables hold temporaries, and until when. In a loop over parameters a
 * variable keeps the last parameter's tensor until the next one is computed, so two of them exist at a time. Kernels stand for the work that is done;
 * those of one element are not listed.
 *
 *               state of a matrix of R x C                      temporaries
 *   Adafactor   R + C                                           the estimates of two neighbours, one of them as large as each
 *   Muon        as large                                        one update as large, then 16-bit copies and squares of the shorter side
 *   8-bit AdamW 2 bytes an element, 8 for each 256 of them      none; parameters below 4096 elements have 8 bytes an element
 *   Lion        4 bytes an element                              none */
#include <assert.h>

#include "models/optimizer.h"

enum { LEAST_8BIT = 4096, QUANTILES = 256, BLOCK_8BIT = 256, NEWTON_STEPS = 5 };

/* ---- tensors ---- */

/* State, zero at first; held for good. */
static tsr__tensor_id make_state(tsr__tape *t, tsr__dtype dtype, tsr__shape shape) {
  tsr__layout layout = tsr__layout_dense(shape);
  tsr__tensor_id state =
      tsr__tensor_make(t, TSR__INSTR_NEW_ONCE, TSR__KERNEL_ZEROS, dtype, &layout);
  if (!state) return 0;
  tsr__tensor_set_category(t, state, TSR_CATEGORY_OPTIMIZER_STATE);
  tsr__tape_run(
      t, &(tsr__kernel_use){
             .kernel = TSR__KERNEL_ZEROS, .op = TSR_NONE, .is_once = true, .writes = {state}});
  return state;
}

/* A result, held by the caller. */
static tsr__tensor_id make(tsr__tape *t, tsr__kernel_use use, tsr__dtype dtype, tsr__shape shape) {
  use.op = TSR_NONE;
  return tsr__tape_run_new(t, &use, dtype, tsr__layout_dense(shape));
}

/* Bind a new tensor to a variable, whose former tensor goes afterwards. */
static void assign(tsr__tape *t, tsr__tensor_id *variable, tsr__tensor_id made) {
  (void)tsr__scope_bind(t, made);
  tsr__scope_unbind(t, *variable);
  *variable = made;
}

/* A number that is computed of one tensor, and by which another is divided. */
static void divide_by_mean(tsr__tape *t, tsr__tensor_id tensor, tsr__tensor_id from) {
  if (t->status) return;
  tsr__tensor_id number = make(t, (tsr__kernel_use){.kernel = TSR__KERNEL_MEAN, .reads = {from}},
                               tsr__tensor_dtype(t, from), TSR__SCALAR);
  if (!t->status)
    tsr__tape_run(t, &(tsr__kernel_use){.kernel = TSR__KERNEL_DIV,
                                        .op = TSR_NONE,
                                        .reads = {tensor, number},
                                        .writes = {tensor}});
  tsr__tensor_release(t, number);
}

/* A parameter takes a step along `update`. */
static void descend(tsr__tape *t, tsr__tensor_id parameter, tsr__tensor_id update) {
  if (t->status) return;
  tsr__tape_run(t, &(tsr__kernel_use){.kernel = TSR__KERNEL_ADD,
                                      .op = TSR_NONE,
                                      .reads = {parameter, update},
                                      .writes = {parameter}});
}

static void mix(tsr__tape *t, tsr__tensor_id state, tsr__tensor_id with) {
  if (t->status) return;
  tsr__tape_run(t, &(tsr__kernel_use){.kernel = TSR__KERNEL_LERP,
                                      .op = TSR_NONE,
                                      .scalars = {{TSR__SCALAR_NUMBER, 0.1}},
                                      .reads = {state, with},
                                      .writes = {state}});
}

static bool is_matrix(const tsr__tape *t, tsr__tensor_id tensor) {
  return tsr__tensor_shape(t, tensor).rank == 2;
}

/* ---- Adafactor ---- */

typedef struct adafactor_state {
  tsr__tensor_id row, column; /* or the variance of a vector, and 0 */
} adafactor_state;

static adafactor_state init_adafactor(tsr__tape *t, tsr__tensor_id gradient) {
  tsr__dtype dtype = tsr__tensor_dtype(t, gradient);
  tsr__shape shape = tsr__tensor_shape(t, gradient);
  if (!is_matrix(t, gradient)) return (adafactor_state){make_state(t, dtype, shape), 0};
  uint64_t rows = tsr__shape_from_end(shape, 1), columns = tsr__shape_from_end(shape, 0);
  return (adafactor_state){make_state(t, dtype, TSR__SHAPE(rows, 1)),
                           make_state(t, dtype, TSR__SHAPE(1, columns))};
}

/* The variables of the loop. */
typedef struct adafactor_variables {
  tsr__tensor_id row_mean, column_mean, squared, estimate;
} adafactor_variables;

static tsr__tensor_id estimate_of(tsr__tape *t, adafactor_variables *v, adafactor_state s,
                                  tsr__tensor_id gradient) {
  tsr__dtype dtype = tsr__tensor_dtype(t, gradient);
  tsr__shape shape = tsr__tensor_shape(t, gradient);
  tsr__kernel_use mean = {.kernel = TSR__KERNEL_MEAN, .reads = {gradient}};
  if (!s.column) {
    tsr__kernel_use square = {.kernel = TSR__KERNEL_MUL, .reads = {gradient, gradient}};
    assign(t, &v->squared, make(t, square, dtype, shape));
    mix(t, s.row, v->squared);
    return make(t, (tsr__kernel_use){.kernel = TSR__KERNEL_CLONE, .reads = {s.row}}, dtype, shape);
  }
  assign(t, &v->row_mean, make(t, mean, dtype, tsr__tensor_shape(t, s.row)));
  mix(t, s.row, v->row_mean);
  assign(t, &v->column_mean, make(t, mean, dtype, tsr__tensor_shape(t, s.column)));
  mix(t, s.column, v->column_mean);
  tsr__kernel_use product = {.kernel = TSR__KERNEL_MM, .reads = {s.row, s.column}};
  tsr__tensor_id estimate = make(t, product, dtype, shape);
  divide_by_mean(t, estimate, s.row);
  return estimate;
}

static void adafactor(tsr__tape *t, tsr__update_range r) {
  adafactor_variables v = {0};
  TSR__VECTOR(adafactor_state) states = {0};
  size_t at = 0;
  tsr__scope_enter(t, TSR__PLACE_ADAFACTOR);
  for (size_t i = r.first; i < r.end && !t->status; i++)
    if (tsr__updates(t, r, i) &&
        !TSR__VECTOR_PUSH(&states, init_adafactor(t, tsr__update_gradient(t, i))))
      tsr__tape_fail(t, TSR_ERROR_MEMORY);
  for (size_t i = r.first; i < r.end && !t->status; i++) {
    if (!tsr__updates(t, r, i)) continue;
    tsr__tensor_id parameter = tsr__update_target(t, i);
    assert(at < states.count && states.items);
    adafactor_state state = states.items[at++];
    divide_by_mean(t, state.row, parameter); /* the parameter's norm, which the host reads */
    assign(t, &v.estimate, estimate_of(t, &v, state, tsr__update_gradient(t, i)));
    divide_by_mean(t, v.estimate, v.estimate);
    descend(t, parameter, v.estimate);
  }
  TSR__VECTOR_FREE(&states);
  (void)tsr__scope_leave(t, 0);
}

/* ---- Muon ---- */

/* Divide by the norm, which is kept above 0 in a second number. */
static void normalise(tsr__tape *t, tsr__tensor_id matrix) {
  tsr__kernel_use norm = {.kernel = TSR__KERNEL_NORM, .reads = {matrix}};
  tsr__tensor_id number = make(t, norm, tsr__tensor_dtype(t, matrix), TSR__SCALAR);
  tsr__kernel_use bound = {
      .kernel = TSR__KERNEL_AT_MOST, .scalars = {{TSR__SCALAR_NUMBER, 1}}, .reads = {number}};
  tsr__tensor_id bounded = make(t, bound, tsr__tensor_dtype(t, matrix), TSR__SCALAR);
  tsr__tensor_release(t, number);
  if (!t->status)
    tsr__tape_run(t, &(tsr__kernel_use){.kernel = TSR__KERNEL_DIV,
                                        .op = TSR_NONE,
                                        .reads = {matrix, bounded},
                                        .writes = {matrix}});
  tsr__tensor_release(t, bounded);
}

/* An approximation of the nearest orthogonal matrix, in 16 bits (_zeropower_via_newtonschulz). `update` is used up. */
static tsr__tensor_id orthogonal(tsr__tape *t, tsr__tensor_id update) {
  tsr__shape shape = tsr__tensor_shape(t, update);
  uint64_t rows = tsr__shape_from_end(shape, 1), columns = tsr__shape_from_end(shape, 0);
  uint64_t shorter = rows < columns ? rows : columns, longer = rows < columns ? columns : rows;
  tsr__tensor_id gram = 0, mixed = 0, made = update;
  bool is_turned = rows > columns; /* the first product reads the transposed copy */
  tsr__scope_enter(t, TSR__PLACE_MUON_ORTHOGONAL);
  if (tsr__tensor_dtype(t, update) == TSR__DTYPE_BF16)
    tsr__tensor_hold(t, update);
  else
    made = make(t, (tsr__kernel_use){.kernel = TSR__KERNEL_TO_COPY, .reads = {update}},
                TSR__DTYPE_BF16, shape);
  (void)tsr__scope_bind(t, made);
  if (!t->status) normalise(t, made);
  for (int k = 0; k < NEWTON_STEPS && !t->status; k++, is_turned = false) {
    tsr__kernel_use squares = {
        .kernel = TSR__KERNEL_MM, .reads = {made, made}, .transposed = is_turned ? 1 : 2};
    assign(t, &gram, make(t, squares, TSR__DTYPE_BF16, TSR__SHAPE(shorter, shorter)));
    tsr__kernel_use both = {.kernel = TSR__KERNEL_MM, .reads = {gram, gram}};
    assign(t, &mixed, make(t, both, TSR__DTYPE_BF16, TSR__SHAPE(shorter, shorter)));
    tsr__kernel_use next = {
        .kernel = TSR__KERNEL_MM, .reads = {mixed, made}, .transposed = is_turned ? 2 : 0};
    assign(t, &made, make(t, next, TSR__DTYPE_BF16, TSR__SHAPE(shorter, longer)));
  }
  return tsr__scope_leave(t, made);
}

static void muon(tsr__tape *t, tsr__update_range r) {
  TSR__VECTOR(tsr__tensor_id) buffers = {0};
  tsr__tensor_id update = 0;
  size_t at = 0;
  tsr__scope_enter(t, TSR__PLACE_MUON);
  for (size_t i = r.first; i < r.end && !t->status; i++) {
    if (!tsr__updates(t, r, i)) continue;
    tsr__tensor_id gradient = tsr__update_gradient(t, i);
    tsr__tensor_id made =
        make_state(t, tsr__tensor_dtype(t, gradient), tsr__tensor_shape(t, gradient));
    if (!TSR__VECTOR_PUSH(&buffers, made)) tsr__tape_fail(t, TSR_ERROR_MEMORY);
  }
  for (size_t i = r.first; i < r.end && !t->status; i++) {
    if (!tsr__updates(t, r, i)) continue;
    assert(at < buffers.count && buffers.items);
    tsr__tensor_id gradient = tsr__update_gradient(t, i), buffer = buffers.items[at++];
    mix(t, buffer, gradient);
    tsr__kernel_use ahead = {.kernel = TSR__KERNEL_LERP,
                             .scalars = {{TSR__SCALAR_NUMBER, 0.95}},
                             .reads = {gradient, buffer}};
    assign(t, &update,
           make(t, ahead, tsr__tensor_dtype(t, gradient), tsr__tensor_shape(t, gradient)));
    if (t->status) break;
    tsr__tensor_id made = orthogonal(t, update); /* bound to this function */
    tsr__scope_unbind(t, update);
    update = made;
    tsr__tensor_id like = tsr__tensor_view(
        t, update, tsr__layout_dense(tsr__tensor_shape(t, tsr__update_target(t, i))));
    descend(t, tsr__update_target(t, i), like);
    tsr__tensor_release(t, like);
  }
  TSR__VECTOR_FREE(&buffers);
  (void)tsr__scope_leave(t, 0);
}

/* ---- bitsandbytes: one kernel per parameter, which is listed as the addition alone ---- */

static void state_of_32_bits(tsr__tape *t, tsr__tensor_id parameter, int count) {
  for (int k = 0; k < count && !t->status; k++)
    (void)make_state(t, TSR__DTYPE_F32, tsr__tensor_shape(t, parameter));
}

/* Two codes of 8 bits per element, and the largest number of each block. The tables of quantiles are made for the first parameter. */
static void state_of_8_bits(tsr__tape *t, tsr__tensor_id parameter, bool *has_tables) {
  uint64_t elements = tsr__shape_elements(tsr__tensor_shape(t, parameter));
  uint64_t blocks = (elements + BLOCK_8BIT - 1) / BLOCK_8BIT;
  for (int k = 0; k < 2 && !t->status && !*has_tables; k++)
    (void)make_state(t, TSR__DTYPE_F32, TSR__SHAPE(QUANTILES));
  *has_tables = true;
  for (int k = 0; k < 2 && !t->status; k++)
    (void)make_state(t, TSR__DTYPE_BOOL, tsr__tensor_shape(t, parameter));
  for (int k = 0; k < 2 && !t->status; k++) (void)make_state(t, TSR__DTYPE_F32, TSR__SHAPE(blocks));
}

static void bitsandbytes(tsr__program *p, tsr__update_range r) {
  tsr__tape *t = p->tape;
  bool is_lion = p->options->optimizer == TSR_OPTIMIZER_LION, has_tables = p->has_8bit_tables;
  tsr__scope_enter(t, TSR__PLACE_BITSANDBYTES);
  for (size_t i = r.first; i < r.end && !t->status; i++) {
    if (!tsr__updates(t, r, i)) continue;
    tsr__tensor_id parameter = tsr__update_target(t, i);
    uint64_t elements = tsr__shape_elements(tsr__tensor_shape(t, parameter));
    if (is_lion || elements < LEAST_8BIT)
      state_of_32_bits(t, parameter, is_lion ? 1 : 2);
    else
      state_of_8_bits(t, parameter, &has_tables);
    descend(t, parameter, tsr__update_gradient(t, i));
  }
  p->has_8bit_tables = has_tables;
  (void)tsr__scope_leave(t, 0);
}

void tsr__program_update_otherwise(tsr__program *p, tsr__update_range r) {
  switch (p->options->optimizer) {
  case TSR_OPTIMIZER_ADAFACTOR: adafactor(p->tape, r); break;
  case TSR_OPTIMIZER_MUON: muon(p->tape, r); break;
  case TSR_OPTIMIZER_ADAMW_8BIT:
  case TSR_OPTIMIZER_LION: bitsandbytes(p, r); break;
  default: assert(false && "an optimizer that runs"); break;
  }
}
