/* temporaries.c - see temporaries.h. docs/step-graph.md shows the table.
 *
 *   before   ... | new dq | new dk | new dv | ...                              a call: begin 1, end 4
 *   after    ... | new dq | new dk | new dv | new t0, new t1, drop t1, drop t0 | ...
 *                ^ place 1 stays                                               ^ place 4 is here now
 *
 * Names and orders of temporaries are those of the functions in PyTorch; sizes are shared with the op table (kernels/scratch.h). */
#include "traced/temporaries.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "kernels/scratch.h"
#include "traced/graph_data.h"

#define AS_OF "PyTorch 2.9.1"

static uint64_t in_f32(tsr__shape shape) {
  return tsr__product_u64(tsr__shape_elements(shape), tsr__dtype_bytes(TSR__DTYPE_F32));
}

/* ---- attention ---- */

enum { BATCH, HEADS, KV_HEADS, ROWS, COLUMNS, WIDTH, VALUE_WIDTH, ATTENTION_SIZES };

static tsr__shape queries(const uint64_t *n) {
  return TSR__SHAPE(n[BATCH], n[HEADS], n[ROWS], n[WIDTH]);
}

/* Gradient times result. */
static uint64_t product(const uint64_t *n, uint64_t bits) {
  (void)bits;
  return in_f32(TSR__SHAPE(n[BATCH], n[ROWS], n[HEADS], n[VALUE_WIDTH]));
}

static uint64_t rows(const uint64_t *n, uint64_t bits) {
  (void)bits;
  return in_f32(tsr__scratch_rows(queries(n)));
}

/* What the queries' gradient is added up in. */
static uint64_t query_sums(const uint64_t *n, uint64_t bits) {
  (void)bits;
  return in_f32(queries(n));
}

static uint64_t flash_rows(const uint64_t *n, uint64_t bits) {
  (void)bits;
  return in_f32(tsr__scratch_flash_rows(queries(n)));
}

static uint64_t flash_query_sums(const uint64_t *n, uint64_t bits) {
  (void)bits;
  return in_f32(tsr__scratch_flash_queries(queries(n)));
}

/* Nothing if no heads share keys and values. */
static uint64_t expanded(const uint64_t *n, uint64_t bits) {
  if (n[HEADS] == n[KV_HEADS]) return 0;
  tsr__shape k = TSR__SHAPE(n[BATCH], n[KV_HEADS], n[COLUMNS], n[WIDTH]);
  return tsr__product_u64(tsr__shape_elements(tsr__scratch_all_heads(k, n[HEADS])), bits / 8);
}

/* ---- embeddings ---- */

enum { INDICES, FEATURES, INDEX_BITS, EMBEDDING_SIZES };

static uint64_t indices(const uint64_t *n, uint64_t bits) {
  (void)bits;
  return tsr__scratch_sorts(n[INDICES]) ? tsr__product_u64(n[INDICES], n[INDEX_BITS] / 8) : 0;
}

/* At most as many as there are indices. */
static uint64_t segment_sums(const uint64_t *n, uint64_t bits) {
  (void)bits;
  return tsr__scratch_sorts(n[INDICES]) ? in_f32(TSR__SHAPE(n[INDICES], n[FEATURES])) : 0;
}

/* ---- losses and matrix products ---- */

enum { ELEMENTS, MORE_ELEMENTS, TWO_SIZES };

static uint64_t elements(const uint64_t *n, uint64_t bits) {
  return tsr__product_u64(n[ELEMENTS], bits / 8);
}

static uint64_t more_elements(const uint64_t *n, uint64_t bits) {
  return tsr__product_u64(n[MORE_ELEMENTS], bits / 8);
}

/* ---- reductions ---- */

enum { OUTPUTS, INPUTS, OUTPUTS_AT_ONCE, INPUTS_AT_ONCE, PROCESSORS, THREADS, REDUCTION_SIZES };

static void reduction(const uint64_t *n, uint64_t *numbers, uint64_t *semaphores) {
  tsr__reduced of = {.outputs = n[OUTPUTS],
                     .inputs = n[INPUTS],
                     .outputs_at_once = n[OUTPUTS_AT_ONCE],
                     .inputs_at_once = n[INPUTS_AT_ONCE],
                     .processors = n[PROCESSORS],
                     .threads = n[THREADS]};
  tsr__scratch_reduction(&of, numbers, semaphores);
}

static uint64_t partial_results(const uint64_t *n, uint64_t bits) {
  uint64_t numbers, semaphores;
  reduction(n, &numbers, &semaphores);
  return tsr__product_u64(numbers, bits / 8);
}

static uint64_t finished_blocks(const uint64_t *n, uint64_t bits) {
  uint64_t numbers, semaphores;
  (void)bits;
  reduction(n, &numbers, &semaphores);
  return tsr__product_u64(semaphores, sizeof(int32_t));
}

/* ---- norms of many tensors ---- */

static uint64_t norms_of_chunks(const uint64_t *n, uint64_t bits) {
  return tsr__product_u64(tsr__product_u64(n[0], n[1]), bits / 8);
}

/* ---- the table ---- */

#define ATTENTION "aten/src/ATen/native/transformers/cuda/attention_backward.cu"
#define FLASH     "aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp"
#define EMBEDDING "aten/src/ATen/native/cuda/Embedding.cu"
#define BLAS      "aten/src/ATen/native/cuda/Blas.cpp"
#define LOSS      "aten/src/ATen/native/Loss.cpp"

#define REDUCE                                                       \
  .size_count = REDUCTION_SIZES, .count = 2,                         \
  .items = {{.bytes = partial_results}, {.bytes = finished_blocks}}, \
  .source = "aten/src/ATen/native/cuda/Reduce.cuh", .as_of = AS_OF

static const tsr__temporaries table[] = {
    {.op = "sum", REDUCE},
    {.op = "sum_dim_IntList", REDUCE},
    {.op = "mean", REDUCE},
    {.op = "mean_dim", REDUCE},
    {.op = "linalg_vector_norm", REDUCE},
    {.op = "amax", REDUCE},
    {.op = "amin", REDUCE},
    {.op = "_foreach_norm_Scalar",
     .size_count = 2,
     .count = 1,
     .items = {{.bytes = norms_of_chunks, .is_before = true}},
     .source = "aten/src/ATen/native/cuda/ForeachReduceOp.cu",
     .as_of = AS_OF},
    {.op = "_scaled_dot_product_efficient_attention_backward",
     .bits = 32,
     .size_count = ATTENTION_SIZES,
     .count = 3, /* of other ops: a product, its sum, and that without gaps */
     .items = {{.bytes = product, .until = 1}, {.bytes = rows, .until = 2}, {.bytes = rows}},
     .source = ATTENTION,
     .as_of = AS_OF},
    {.op = "_scaled_dot_product_efficient_attention_backward",
     .bits = 16,
     .size_count = ATTENTION_SIZES,
     .count = 2,
     .items = {{.bytes = rows}, {.bytes = query_sums}},
     .source = ATTENTION,
     .as_of = AS_OF},
    {.op = "_scaled_dot_product_flash_attention_backward",
     .bits = 16,
     .size_count = ATTENTION_SIZES,
     .count = 4,
     .items = {{.bytes = flash_rows},
               {.bytes = flash_query_sums},
               {.bytes = expanded},
               {.bytes = expanded}},
     .source = FLASH,
     .as_of = AS_OF},
    {.op = "embedding_dense_backward",
     .size_count = EMBEDDING_SIZES,
     .count = 4, /* sorted indices, and where they were; segments, and their sums */
     .items = {{.bytes = indices, .is_before = true},
               {.bytes = indices, .is_before = true},
               {.bytes = indices},
               {.bytes = segment_sums}},
     .source = EMBEDDING,
     .as_of = AS_OF},
    {.op = "mm", /* operands that cuBLAS cannot read as they lie */
     .size_count = TWO_SIZES,
     .count = 2,
     .items = {{.bytes = elements}, {.bytes = more_elements}},
     .source = BLAS,
     .as_of = AS_OF},
    {.op = "bmm", /* operands that cuBLAS cannot read as they lie */
     .size_count = TWO_SIZES,
     .count = 2,
     .items = {{.bytes = elements}, {.bytes = more_elements}},
     .source = BLAS,
     .as_of = AS_OF},
    {.op = "addmm", /* operands that cuBLAS cannot read as they lie */
     .size_count = TWO_SIZES,
     .count = 2,
     .items = {{.bytes = elements}, {.bytes = more_elements}},
     .source = BLAS,
     .as_of = AS_OF},
    {.op = "baddbmm", /* operands that cuBLAS cannot read as they lie */
     .size_count = TWO_SIZES,
     .count = 2,
     .items = {{.bytes = elements}, {.bytes = more_elements}},
     .source = BLAS,
     .as_of = AS_OF},
    {.op = "mse_loss", /* unreduced */
     .size_count = 1,
     .count = 1,
     .items = {{.bytes = elements}},
     .source = LOSS,
     .as_of = AS_OF},
    {.op =
         "smooth_l1_loss", /* unreduced; with a beta of 0, differences and their absolute values */
     .size_count = TWO_SIZES,
     .count = 2,
     .items = {{.bytes = elements}, {.bytes = more_elements}},
     .source = LOSS,
     .as_of = AS_OF},
    {.op = "huber_loss", /* unreduced */
     .size_count = 1,
     .count = 1,
     .items = {{.bytes = elements, .is_before = true}},
     .source = LOSS,
     .as_of = AS_OF},
    {.op = "binary_cross_entropy", /* the reduced loss, before it is copied to the result */
     .size_count = 1,
     .count = 1,
     .items = {{.bytes = elements}},
     .source = "aten/src/ATen/native/cuda/Loss.cu",
     .as_of = AS_OF},
};

const tsr__temporaries *tsr__temporaries_of(const char *op, uint64_t bits) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (strcmp(op, table[i].op) == 0 && (!table[i].bits || table[i].bits == bits)) return &table[i];
  return NULL;
}

/* ---- insertion ---- */

typedef struct inserter {
  tsr__step_graph *g;
  tsr__instrs out;
  uint32_t *place;                         /* by place of the file: the new one */
  uint32_t slots[TSR__KERNEL_TEMPORARIES]; /* of the call under work */
} inserter;

static bool put(inserter *in, const tsr__kernel_call *call, uint8_t i, tsr__instr_kind kind) {
  const tsr__instr *first = &in->g->instrs.items[call->begin];
  tsr__instr instr = {.kind = (uint8_t)kind,
                      .is_backward = first->is_backward,
                      .subject = in->slots[i] + 1,
                      .stack = kind == TSR__INSTR_NEW ? first->stack : TSR_NONE};
  return !call->bytes[i] || TSR__VECTOR_PUSH(&in->out, instr);
}

/* A slot on the stream of the op's results. */
static bool add_slot(inserter *in, const tsr__kernel_call *call, uint8_t i) {
  tsr__step_graph *g = in->g;
  uint32_t result = g->instrs.items[call->begin].subject - 1;
  tsr__slot slot = {.bytes = call->bytes[i],
                    .category = TSR_CATEGORY_TEMPORARY,
                    .stream = g->slots.items[result].stream};
  in->slots[i] = (uint32_t)g->slots.count;
  return !slot.bytes ||
         (TSR__VECTOR_PUSH(&g->slots, slot) && TSR__VECTOR_PUSH(&g->unheld, TSR_NONE));
}

/* Allocate the temporaries that come before the results, or after them. */
static bool allocate(inserter *in, const tsr__kernel_call *call, bool is_before) {
  bool ok = true;
  for (uint8_t i = 0; ok && i < call->row->count; i++) {
    if (call->row->items[i].is_before != is_before) continue;
    ok = add_slot(in, call, i) && put(in, call, i, TSR__INSTR_NEW);
    for (uint8_t k = 0; ok && k < i; k++)
      if (call->row->items[k].until == i) ok = put(in, call, k, TSR__INSTR_DROP);
  }
  return ok;
}

/* Free those that are left, the last one first, as C++ does with variables. */
static bool free_rest(inserter *in, const tsr__kernel_call *call) {
  bool ok = true;
  for (uint8_t i = call->row->count; ok && i-- > 0;)
    if (!call->row->items[i].until) ok = put(in, call, i, TSR__INSTR_DROP);
  return ok;
}

/* The schedule with the temporaries, and where its places have moved. */
static bool insert(inserter *in, const tsr__kernel_call *calls, size_t count) {
  size_t begun = 0, ended = 0;
  bool ok = true;
  for (uint32_t i = 0; ok && i <= in->g->instrs.count; i++) {
    if (ended < count && calls[ended].end == i) {
      ok = allocate(in, &calls[ended], false) && free_rest(in, &calls[ended]);
      ended++;
    }
    in->place[i] = (uint32_t)in->out.count;
    if (ok && begun < count && calls[begun].begin == i) {
      assert(begun == ended); /* calls do not overlap */
      ok = allocate(in, &calls[begun++], true);
    }
    if (ok && i < in->g->instrs.count) ok = TSR__VECTOR_PUSH(&in->out, in->g->instrs.items[i]);
  }
  assert(!ok || (begun == count && ended == count));
  return ok;
}

static void move(const inserter *in, uint32_t *place) {
  if (*place != TSR_NONE) *place = in->place[*place];
}

static void move_places(inserter *in) {
  tsr__step_graph *g = in->g;
  for (size_t i = 0; i < g->saves.count; i++) {
    tsr__save *save = &g->saves.items[i];
    move(in, &save->made);
    move(in, &save->used);
    move(in, &save->left);
    move(in, &save->gone);
  }
  for (size_t i = 0; i < g->modules.count; i++) {
    move(in, &g->modules.items[i].begin);
    move(in, &g->modules.items[i].end);
  }
  for (size_t i = 0; i < g->unheld.count; i++) move(in, &g->unheld.items[i]);
  for (size_t i = 0; i < g->work.count; i++) move(in, &g->work.items[i].place);
}

bool tsr__step_graph_add_temporaries(tsr__step_graph *graph, const tsr__kernel_call *calls,
                                     size_t count) {
  if (!count) return true;
  inserter in = {.g = graph, .place = TSR__NEW_ARRAY(uint32_t, graph->instrs.count + 1)};
  bool ok = in.place && insert(&in, calls, count);
  if (ok) {
    move_places(&in);
    tsr__instrs before = graph->instrs;
    graph->instrs = in.out;
    in.out = before;
  }
  TSR__VECTOR_FREE(&in.out);
  tsr__free(in.place);
  return ok;
}
