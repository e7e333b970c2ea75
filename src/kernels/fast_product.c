/* fast_product.c - products of fp32 matrices.
 *
 * The result is cut into panels of 256 rows and 512 columns, one task each. Within a panel the inner
 * dimension goes by in pieces of 256; of each piece, all rows of the first operand are packed, and
 * columns of the second a strip at a time, so that the inner loop reads both one after another:
 *
 *              k ─► 256         strip ─►                      strip ─►
 *   rows  ┌────┬────┐        k ┌──┬──┬──┐            rows  ┌──┬──┬──┐
 *    256  │ a  │    │        │ │  │b │  │              │   │  │▓▓│  │  ▓ stays in registers
 *     ▼   └────┴────┘        ▼ └──┴──┴──┘              ▼   └──┴──┴──┘
 *
 * A piece's sum begins at zero in registers and is added to the result once. So an element is the sum
 * of its pieces' sums, in the order of k, whatever panels and threads there are: a weight's gradient
 * is added up in pieces of 256 tokens. Edges are padded with zeros and take the same path.
 *
 * What is packed is on the stack: 256 KiB for rows, up to 32 KiB for a strip. */
#include "kernels/fast.h"

#include <assert.h>
#include <string.h>

#include "base/pool.h"
#include "kernels/reference.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_X86 1
#include <immintrin.h>
#else
#define HAS_X86 0
#endif

enum { PANEL_ROWS = 256, PANEL_COLUMNS = 512, PIECE = 256, MOST_ROWS = 12, MOST_COLUMNS = 32 };

/* The inner loop: sums (rows, columns) of packed a (depth, rows) and b (depth, columns). */
typedef void multiply_fn(size_t depth, const float *a, const float *b, float *sums);

typedef struct inner {
  size_t rows, columns;
  multiply_fn *multiply;
} inner;

/* ---- inner loops ---- */

enum { PLAIN_ROWS = 4, PLAIN_COLUMNS = 16 };

static void multiply_plain(size_t depth, const float *a, const float *b, float *sums) {
  float own[PLAIN_ROWS][PLAIN_COLUMNS] = {{0}};
  for (size_t k = 0; k < depth; k++)
    for (size_t i = 0; i < PLAIN_ROWS; i++)
      for (size_t j = 0; j < PLAIN_COLUMNS; j++)
        own[i][j] += a[k * PLAIN_ROWS + i] * b[k * PLAIN_COLUMNS + j];
  memcpy(sums, own, sizeof own);
}

#if HAS_X86
enum { AVX2_ROWS = 6, AVX2_COLUMNS = 16, AVX512_ROWS = 12, AVX512_COLUMNS = 32 };

__attribute__((target("avx2,fma"))) static void multiply_avx2(size_t depth, const float *a,
                                                              const float *b, float *sums) {
  __m256 own[AVX2_ROWS][2];
#pragma GCC unroll 6
  for (int i = 0; i < AVX2_ROWS; i++) own[i][0] = own[i][1] = _mm256_setzero_ps();
  for (size_t k = 0; k < depth; k++, a += AVX2_ROWS, b += AVX2_COLUMNS) {
    __m256 left = _mm256_load_ps(b), right = _mm256_load_ps(b + 8);
#pragma GCC unroll 6
    for (int i = 0; i < AVX2_ROWS; i++) {
      __m256 each = _mm256_broadcast_ss(a + i);
      own[i][0] = _mm256_fmadd_ps(each, left, own[i][0]);
      own[i][1] = _mm256_fmadd_ps(each, right, own[i][1]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < AVX2_ROWS; i++) {
    _mm256_store_ps(sums + i * AVX2_COLUMNS, own[i][0]);
    _mm256_store_ps(sums + i * AVX2_COLUMNS + 8, own[i][1]);
  }
}

__attribute__((target("avx512f"))) static void multiply_avx512(size_t depth, const float *a,
                                                               const float *b, float *sums) {
  __m512 own[AVX512_ROWS][2];
#pragma GCC unroll 12
  for (int i = 0; i < AVX512_ROWS; i++) own[i][0] = own[i][1] = _mm512_setzero_ps();
  for (size_t k = 0; k < depth; k++, a += AVX512_ROWS, b += AVX512_COLUMNS) {
    __m512 left = _mm512_load_ps(b), right = _mm512_load_ps(b + 16);
#pragma GCC unroll 12
    for (int i = 0; i < AVX512_ROWS; i++) {
      __m512 each = _mm512_set1_ps(a[i]);
      own[i][0] = _mm512_fmadd_ps(each, left, own[i][0]);
      own[i][1] = _mm512_fmadd_ps(each, right, own[i][1]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < AVX512_ROWS; i++) {
    _mm512_store_ps(sums + i * AVX512_COLUMNS, own[i][0]);
    _mm512_store_ps(sums + i * AVX512_COLUMNS + 16, own[i][1]);
  }
}
#endif

tsr__isa tsr__isa_best(void) {
#if HAS_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return TSR__ISA_AVX512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return TSR__ISA_AVX2;
#endif
  return TSR__ISA_PLAIN;
}

static inner inner_of(tsr__isa isa) {
  assert(isa <= tsr__isa_best());
#if HAS_X86
  if (isa == TSR__ISA_AVX512) return (inner){AVX512_ROWS, AVX512_COLUMNS, multiply_avx512};
  if (isa == TSR__ISA_AVX2) return (inner){AVX2_ROWS, AVX2_COLUMNS, multiply_avx2};
#endif
  (void)isa;
  return (inner){PLAIN_ROWS, PLAIN_COLUMNS, multiply_plain};
}

/* ---- packing ---- */

typedef struct product {
  tsr__strided a, b, to, more;
  bool has_more;
  bool is_transposed[2];
  uint64_t rows, columns, depth;
  uint64_t panels_across; /* panels beside each other */
  inner inner;
} product;

typedef struct packed {
  _Alignas(64) float a[(PANEL_ROWS + MOST_ROWS) * PIECE];
  _Alignas(64) float b[PIECE * MOST_COLUMNS];
  _Alignas(64) float sums[MOST_ROWS * MOST_COLUMNS];
} packed;

static const float *row_of(const tsr__strided *m, uint64_t row) {
  return (const float *)m->data + tsr__strided_row(m, row);
}

/* `count` of a strip's `width` lines, `depth` numbers each, one number of each line after another; zeros
 * for the lines that are missing. Lines are stored as rows, or (`is_across`) as columns. */
static void pack(const tsr__strided *m, bool is_across, uint64_t line, size_t count, size_t width,
                 uint64_t k, size_t depth, float *out) {
  uint64_t stride = m->stride[3];
  if (count < width) memset(out, 0, width * depth * sizeof *out);
  if (is_across) {
    for (size_t d = 0; d < depth; d++, out += width) {
      const float *from = row_of(m, k + d) + line * stride;
      if (stride == 1)
        memcpy(out, from, count * sizeof *out);
      else
        for (size_t i = 0; i < count; i++) out[i] = from[i * stride];
    }
    return;
  }
  for (size_t i = 0; i < count; i++) {
    const float *from = row_of(m, line + i) + k * stride;
    for (size_t d = 0; d < depth; d++) out[d * width + i] = from[d * stride];
  }
}

/* ---- a panel ---- */

/* Add sums to the result; the first piece's to what is added, if anything is. */
static void add_sums(const product *p, const float *sums, uint64_t row, size_t rows,
                     uint64_t column, size_t columns, bool is_first) {
  for (size_t i = 0; i < rows; i++, sums += p->inner.columns) {
    uint64_t stride = p->to.stride[3];
    float *to = (float *)p->to.data + tsr__strided_row(&p->to, row + i) + column * stride;
    const float *from = to;
    uint64_t step = stride;
    if (is_first && p->has_more) {
      step = p->more.stride[3];
      from = row_of(&p->more, row + i) + column * step;
    }
    if (is_first && !p->has_more)
      for (size_t j = 0; j < columns; j++) to[j * stride] = sums[j];
    else
      for (size_t j = 0; j < columns; j++) to[j * stride] = from[j * step] + sums[j];
  }
}

static size_t at_most(uint64_t left, size_t most) {
  return left < most ? (size_t)left : most;
}

static void multiply_panel(const product *p, uint64_t first_row, uint64_t first_column) {
  packed t;
  size_t rows = at_most(p->rows - first_row, PANEL_ROWS), high = p->inner.rows;
  size_t columns = at_most(p->columns - first_column, PANEL_COLUMNS), wide = p->inner.columns;
  for (uint64_t k = 0; k < p->depth; k += PIECE) {
    size_t depth = at_most(p->depth - k, PIECE);
    for (size_t i = 0; i < rows; i += high)
      pack(&p->a, p->is_transposed[0], first_row + i, at_most(rows - i, high), high, k, depth,
           t.a + i * depth);
    for (size_t j = 0; j < columns; j += wide) {
      size_t some = at_most(columns - j, wide);
      pack(&p->b, !p->is_transposed[1], first_column + j, some, wide, k, depth, t.b);
      for (size_t i = 0; i < rows; i += high) {
        p->inner.multiply(depth, t.a + i * depth, t.b, t.sums);
        add_sums(p, t.sums, first_row + i, at_most(rows - i, high), first_column + j, some, k == 0);
      }
    }
  }
}

static int multiply_task(void *context, size_t index, tsr_error *error) {
  const product *p = context;
  (void)error;
  multiply_panel(p, index / p->panels_across * PANEL_ROWS,
                 index % p->panels_across * PANEL_COLUMNS);
  return 0;
}

void tsr__fast_product_with(const tsr__kernel_args *args, tsr__isa isa) {
  product p = {.a = tsr__strided_of(&args->reads[0]),
               .b = tsr__strided_of(&args->reads[1]),
               .to = tsr__strided_of(&args->writes[0]),
               .has_more = args->reads[2].data != NULL,
               .is_transposed = {args->is_transposed[0], args->is_transposed[1]},
               .inner = inner_of(isa)};
  tsr_error error;
  if (p.has_more) p.more = tsr__strided_repeated(&args->reads[2], &p.to);
  p.rows = tsr__strided_rows(&p.to);
  p.columns = p.to.dim[3];
  p.depth = p.is_transposed[0] ? tsr__strided_rows(&p.a) : p.a.dim[3];
  if (!p.rows || !p.columns) return;
  p.panels_across = (p.columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
  size_t panels = (size_t)((p.rows + PANEL_ROWS - 1) / PANEL_ROWS * p.panels_across);
  int status = tsr__thread_pool_each(args->pool, NULL, panels, multiply_task, &p, &error);
  assert(status == 0); /* tasks do not fail, and nothing cancels them */
  (void)status;
}

void tsr__fast_product(const tsr__kernel_args *args) {
  bool is_float = args->reads[0].dtype == TSR__DTYPE_F32 &&
                  args->reads[1].dtype == TSR__DTYPE_F32 &&
                  args->writes[0].dtype == TSR__DTYPE_F32 &&
                  (!args->reads[2].data || args->reads[2].dtype == TSR__DTYPE_F32);
  tsr__strided a = tsr__strided_of(&args->reads[0]);
  if (is_float && tsr__strided_elements(&a))
    tsr__fast_product_with(args, tsr__isa_best());
  else
    tsr__reference_product(args);
}
