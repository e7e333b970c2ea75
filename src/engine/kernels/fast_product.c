/* fast_product.c - products of matrices, and of batches of matrices. Compiled for each instruction set (unit.h).
 *
 * The result is cut into panels of 256 rows and some hundred columns, with one task each. Within a panel, the inner
 * dimension is processed in pieces of 256. For each piece, all rows of the first operand are packed, and the
 * columns of the second one some strips at a time, so that the inner loop reads both sequentially:
 *
 *              k ─► 256         strip ─►                      strip ─►
 *   rows  ┌────┬────┐        k ┌──┬──┬──┐            rows  ┌──┬──┬──┐
 *    256  │ a  │    │        │ │  │b │  │              │   │  │▓▓│  │  ▓ stays in registers
 *     ▼   └────┴────┘        ▼ └──┴──┴──┘              ▼   └──┴──┴──┘
 *
 * A piece's sum starts at zero in registers and is added to the result once. So an element is the sum of its
 * pieces' sums, in the order of k, for any panels and threads: a weight's gradient is added up in pieces of 256
 * tokens. Edges are padded with zeros and take the same path. A result that is not fp32 is summed in fp32 next to
 * the panel and rounded once.
 *
 * Numbers are packed in words of 32 bits: an fp32 number, to which 16-bit ones are widened; or, with the
 * instructions for products of bf16, two bf16 numbers that are neighbours along k, which are multiplied and added
 * in fp32. The latter are used if one operand is bf16 and the other bf16 or fp32, which is rounded as it is packed,
 * so that weights in fp32 need no copy in bf16. Packed numbers are on the stack: 256 KiB for rows, 128 KiB for
 * strips, and 256 KiB for sums of results that are not fp32. Lines that are stored as columns are packed for several strips at
 * once: a stored row has a few hundred bytes of them, and the rows of a large matrix are pages apart, so reading each of them
 * once for every strip misses the caches. */
#include "kernels/library.h"
#include "kernels/unit_fast.h"

#if TSR__UNIT_ISA > 0
#include <immintrin.h>
#endif

enum {
#if TSR__UNIT_ISA == 2
  HIGH = 12,
  STEP_ROWS = 4, /* of the inner loop */
#elif TSR__UNIT_ISA == 1
  HIGH = 6,
  STEP_ROWS = 2,
#else
  HIGH = 4,
  STEP_ROWS = 2,
#endif
  VECTORS = 2,
  WIDE = VECTORS * TSR__LANES,
  PANEL_ROWS = 256,
  PANEL_COLUMNS = 512,
  SUM_COLUMNS = 256, /* of a panel with separate sums */
  PIECE = 256,
  STRIPS = 4,         /* of the second operand that are packed at a time */
  BLOCK = TSR__LANES, /* lines and words that are transposed at a time */
  CACHE_LINE = 64     /* bytes */
};

/* ---- the inner loop ---- */

/* Where a tile of sums goes: rows `to_pitch` apart, after adding those at `from`; NULL adds nothing. Only the last
 * rows may be fewer than HIGH. */
typedef struct tile {
  const float *from;
  float *to;
  uint64_t from_pitch, to_pitch;
} tile;

/* Multiply some rows by WIDE columns: packed a (words, HIGH) by b (words, WIDE). */
typedef void multiply_fn(size_t words, const uint32_t *a, const uint32_t *b, const tile *t);

static inline __attribute__((always_inline)) void put_tile(size_t rows, lanes own[][VECTORS],
                                                           const tile *t) {
  const float *from = t->from;
  float *to = t->to;
#pragma GCC unroll 12
  for (size_t i = 0; i < rows; i++) {
    lanes left = own[i][0], right = own[i][1];
    if (from) {
      left = lanes_load(from) + left;
      right = lanes_load(from + TSR__LANES) + right;
      from += t->from_pitch;
    }
    lanes_store(to, left);
    lanes_store(to + TSR__LANES, right);
    to += t->to_pitch;
  }
}

static inline __attribute__((always_inline)) void multiply_floats(size_t rows, size_t words,
                                                                  const uint32_t *a_words,
                                                                  const uint32_t *b_words,
                                                                  const tile *t) {
  const float *a = (const float *)(const void *)a_words, *b = (const float *)(const void *)b_words;
  lanes own[HIGH][VECTORS];
#pragma GCC unroll 12
  for (size_t i = 0; i < rows; i++) own[i][0] = own[i][1] = lanes_of(0);
  for (size_t k = 0; k < words; k++, a += HIGH, b += WIDE) {
    lanes left = lanes_load(b), right = lanes_load(b + TSR__LANES);
#pragma GCC unroll 12
    for (size_t i = 0; i < rows; i++) {
      lanes each = lanes_of(a[i]);
      own[i][0] += each * left;
      own[i][1] += each * right;
    }
  }
  put_tile(rows, own, t);
}

#if TSR__UNIT_ISA == 2
__attribute__((target("avx512bf16"))) static inline __attribute__((always_inline)) void
multiply_pairs(size_t rows, size_t words, const uint32_t *a, const uint32_t *b, const tile *t) {
  lanes own[HIGH][VECTORS];
#pragma GCC unroll 12
  for (size_t i = 0; i < rows; i++) own[i][0] = own[i][1] = lanes_of(0);
  for (size_t k = 0; k < words; k++, a += HIGH, b += WIDE) {
    __m512bh left = (__m512bh)_mm512_loadu_si512(b), right = (__m512bh)_mm512_loadu_si512(b + 16);
#pragma GCC unroll 12
    for (size_t i = 0; i < rows; i++) {
      __m512bh each = (__m512bh)_mm512_set1_epi32((int)a[i]);
      own[i][0] = (lanes)_mm512_dpbf16_ps((__m512)own[i][0], each, left);
      own[i][1] = (lanes)_mm512_dpbf16_ps((__m512)own[i][1], each, right);
    }
  }
  put_tile(rows, own, t);
}
#define PAIRS_OF(rows)                                                     \
  __attribute__((target("avx512bf16"))) static void multiply_pairs_##rows( \
      size_t words, const uint32_t *a, const uint32_t *b, const tile *t) { \
    multiply_pairs(rows, words, a, b, t);                                  \
  }
#endif

#define FLOATS_OF(rows)                                                                  \
  static void multiply_floats_##rows(size_t words, const uint32_t *a, const uint32_t *b, \
                                     const tile *t) {                                    \
    multiply_floats(rows, words, a, b, t);                                               \
  }

/* One loop for each number of rows, in steps of STEP_ROWS: a panel's last rows need not take as long as HIGH. */
#if TSR__UNIT_ISA == 2
FLOATS_OF(4)
FLOATS_OF(8)
FLOATS_OF(12)
PAIRS_OF(4)
PAIRS_OF(8)
PAIRS_OF(12)
static multiply_fn *const float_loops[] = {multiply_floats_4, multiply_floats_8,
                                           multiply_floats_12};
static multiply_fn *const pair_loops[] = {multiply_pairs_4, multiply_pairs_8, multiply_pairs_12};
#elif TSR__UNIT_ISA == 1
FLOATS_OF(2)
FLOATS_OF(4)
FLOATS_OF(6)
static multiply_fn *const float_loops[] = {multiply_floats_2, multiply_floats_4, multiply_floats_6};
#else
FLOATS_OF(2)
FLOATS_OF(4) static multiply_fn *const float_loops[] = {multiply_floats_2, multiply_floats_4};
#endif

/* ---- packing ---- */

typedef struct product {
  tsr__strided a, b, to, more;
  bool has_more;
  bool is_transposed[2];
  bool is_paired;    /* words are two bf16 numbers */
  bool is_direct;    /* sums are added to the result where it is stored */
  uint64_t batches;  /* in dimension 0; 1 if all leading dimensions are rows */
  uint64_t heads;    /* of the result, in dimension 1 */
  uint64_t share[2]; /* heads of a summed into one of the result; that share one of b */
  uint64_t rows, columns, depth;
  uint64_t panel_columns, panels_down, panels_across;
  struct tsr__library *library;
  multiply_fn *const *loops; /* by (rows - 1) / STEP_ROWS */
} product;

typedef struct packed {
  _Alignas(64) uint32_t a[(PANEL_ROWS + HIGH) * PIECE];
  _Alignas(64) uint32_t b[STRIPS * PIECE * WIDE];
  _Alignas(64) float sums[HIGH * WIDE];
} packed;

/* The panel being computed. */
typedef struct panel {
  const product *p;
  packed *t;
  tsr__strided a, b, to, more; /* the matrices */
  uint64_t first_row, first_column;
  size_t rows, columns;
  float *sums; /* (PANEL_ROWS, SUM_COLUMNS), or NULL */
} panel;

/* Join leading dimensions that are nested without gaps into one dimension of rows. */
static void join_rows(tsr__strided *v) {
  for (uint32_t d = 2; d-- > 0;) {
    if (v->dim[d] == 1) continue;
    if (v->dim[2] == 1) v->stride[2] = v->stride[d];
    if (v->stride[d] != v->dim[2] * v->stride[2]) return;
    v->dim[2] *= v->dim[d];
    v->dim[d] = 1;
    v->stride[d] = 0;
  }
}

/* The index of a row's first element. */
static inline uint64_t row_at(const tsr__strided *v, uint64_t row) {
  return row < v->dim[2] ? v->offset + row * v->stride[2] : tsr__strided_row(v, row);
}

/* Load numbers `first` to `first` + `count` - 1 of a stored row, one per word. */
static void load_words(const tsr__strided *m, uint64_t row, uint64_t first, size_t count,
                       uint32_t *out) {
  uint64_t at = row_at(m, row);
  const float *from = (const float *)m->data + at + first;
  bool is_simple = m->dtype == TSR__DTYPE_F32 && m->stride[3] == 1;
  if (is_simple && count == WIDE) /* compilers copy a known size without a call */
    memcpy(out, from, WIDE * sizeof *out);
  else if (is_simple && count == HIGH)
    memcpy(out, from, HIGH * sizeof *out);
  else if (is_simple && count == BLOCK)
    memcpy(out, from, BLOCK * sizeof *out);
  else if (is_simple)
    memcpy(out, from, count * sizeof *out);
  else
    unit_load(m, at + first * m->stride[3], m->stride[3], count, (float *)(void *)out);
}

/* Make words of two bf16 numbers from two rows; fp32 numbers are rounded. */
#define JOIN_PAIRS(name, type, convert)                                                       \
  static inline __attribute__((always_inline)) void name(                                     \
      const type *restrict low, const type *restrict high, uint64_t stride, uint32_t kept,    \
      size_t count, uint32_t *restrict out) {                                                 \
    for (size_t i = 0; i < count; i++)                                                        \
      out[i] = convert(low[i * stride]) | ((uint32_t)convert(high[i * stride]) << 16 & kept); \
  }
JOIN_PAIRS(join_halves, uint16_t, (uint16_t))
JOIN_PAIRS(join_floats, float, tsr__bf16_of_float)
#undef JOIN_PAIRS

/* Load numbers of two stored rows as pairs of bf16; the second row may be absent. */
static void load_pairs(const tsr__strided *m, uint64_t row, bool has_second, uint64_t first,
                       size_t count, uint32_t *out) {
  uint64_t stride = m->stride[3], at = row_at(m, row) + first * stride;
  uint64_t next = has_second ? row_at(m, row + 1) + first * stride : at;
  uint32_t kept = has_second ? 0xffff0000u : 0;
  const uint16_t *halves = m->data;
  const float *floats = m->data;
  bool is_fp32 = m->dtype == TSR__DTYPE_F32;
  if (is_fp32 && stride == 1 && count == WIDE) /* compilers optimise a known size best */
    join_floats(floats + at, floats + next, 1, kept, WIDE, out);
  else if (is_fp32 && stride == 1 && count == HIGH)
    join_floats(floats + at, floats + next, 1, kept, HIGH, out);
  else if (is_fp32)
    join_floats(floats + at, floats + next, stride, kept, count, out);
  else if (stride == 1 && count == WIDE)
    join_halves(halves + at, halves + next, 1, kept, WIDE, out);
  else if (stride == 1 && count == HIGH)
    join_halves(halves + at, halves + next, 1, kept, HIGH, out);
  else
    join_halves(halves + at, halves + next, stride, kept, count, out);
}

/* The same for fp32 numbers, which are rounded. Words are little-endian on all processors with pairs. */
static void round_neighbours(const tsr__strided *m, uint64_t row, uint64_t first, size_t count,
                             uint32_t *out) {
  uint64_t stride = m->stride[3];
  const float *from = (const float *)m->data + row_at(m, row) + first * stride;
  uint16_t halves[PIECE];
  assert(count <= PIECE);
  if (stride == 1 && count == 2 * BLOCK)
    for (size_t i = 0; i < 2 * BLOCK; i++) halves[i] = tsr__bf16_of_float(from[i]);
  else
    for (size_t i = 0; i < count; i++) halves[i] = tsr__bf16_of_float(from[i * stride]);
  if (count % 2) halves[count] = 0;
  memcpy(out, halves, (count + 1) / 2 * sizeof *out);
}

/* Load numbers of one stored row, two neighbours per word; the last may be alone. */
static void load_neighbours(const tsr__strided *m, uint64_t row, uint64_t first, size_t count,
                            uint32_t *out) {
  uint64_t stride = m->stride[3];
  if (m->dtype == TSR__DTYPE_F32) {
    round_neighbours(m, row, first, count, out);
    return;
  }
  const uint16_t *from = (const uint16_t *)m->data + row_at(m, row) + first * stride;
  size_t pairs = count / 2;
  if (stride == 1)
    memcpy(out, from, pairs * sizeof *out);
  else
    for (size_t i = 0; i < pairs; i++)
      out[i] = from[2 * i * stride] | (uint32_t)from[(2 * i + 1) * stride] << 16;
  if (count % 2) out[pairs] = from[(count - 1) * stride];
}

/* The start of each of BLOCK lines of BLOCK words. */
typedef const uint32_t *block_lines[BLOCK];

/* Transpose words of BLOCK lines to BLOCK columns, `width` apart; only the first `count` lines are stored. A column
 * may be longer than `width`, because the next one overwrites its end. */
static inline void transpose(block_lines from, size_t count, size_t width, uint32_t *out) {
  lanes x[BLOCK];
#pragma GCC unroll 16
  for (size_t i = 0; i < BLOCK; i++) memcpy(&x[i], from[i], sizeof x[i]);
  lanes_transpose(x);
  if (count == BLOCK) {
#pragma GCC unroll 16
    for (size_t i = 0; i < BLOCK; i++) memcpy(out + i * width, &x[i], sizeof x[i]);
    return;
  }
  for (size_t i = 0; i < count; i++) memcpy(out + i * width, &x[i], sizeof x[i]);
}

/* Whether the words of lines can be read from the tensor: fp32, or pairs of bf16. */
static bool has_words(const product *p, const tsr__strided *m) {
  return m->dtype == (p->is_paired ? TSR__DTYPE_BF16 : TSR__DTYPE_F32) && m->stride[3] == 1;
}

/* Pack `count` lines, at most BLOCK, that are stored as rows: `depth` numbers of each, from `k` on. */
static void pack_lines(const product *p, const tsr__strided *m, uint64_t line, size_t count,
                       size_t width, uint64_t k, size_t depth, uint32_t *out) {
  static const uint32_t nothing[BLOCK];
  uint32_t room[BLOCK][BLOCK];
  block_lines from;
  uint64_t rows[BLOCK];
  size_t each = p->is_paired ? 2 : 1, words = (depth + each - 1) / each;
  bool is_there = has_words(p, m);
  for (size_t n = 0; n < count; n++) rows[n] = line + n;
  for (size_t n = count; n < BLOCK; n++) from[n] = nothing;
  for (size_t d = 0; d < words; d += BLOCK) {
    size_t some = words - d < BLOCK ? words - d : BLOCK, first = d * each;
    size_t numbers = depth - first < some * each ? depth - first : some * each;
    for (size_t n = 0; n < count; n++) {
      from[n] = room[n];
      if (is_there && numbers == BLOCK * each)
        from[n] = (const uint32_t *)(const void *)((const char *)m->data +
                                                   (row_at(m, rows[n]) + k + first) *
                                                       (sizeof **from / each));
      else if (p->is_paired)
        load_neighbours(m, rows[n], k + first, numbers, room[n]);
      else
        load_words(m, rows[n], k + first, numbers, room[n]);
    }
    transpose(from, some, width, out + d * width);
  }
}

/* Pack lines that are stored as columns: of each stored row the numbers of all strips. */
static void pack_across(const product *p, const tsr__strided *m, uint64_t line, size_t count,
                        size_t width, uint64_t k, size_t depth, uint32_t *out) {
  size_t each = p->is_paired ? 2 : 1, words = (depth + each - 1) / each;
  size_t last = count - count % width; /* where a strip begins that is not full */
  if (last < count) memset(out + last * words, 0, width * words * sizeof *out);
  for (size_t d = 0; d < words; d++)
    for (size_t i = 0; i < count; i += width) {
      size_t some = count - i < width ? count - i : width;
      uint32_t *to = out + i * words + d * width;
      if (p->is_paired)
        load_pairs(m, k + 2 * d, 2 * d + 1 < depth, line + i, some, to);
      else
        load_words(m, k + d, line + i, some, to);
    }
}

/* Pack `count` lines, `depth` numbers of each from `k` on, as strips of `width` lines, one after another: in each they are
 * interleaved word by word, with zeros for lines that the last one lacks. Lines are stored as rows or, if `is_across`, as columns. Up
 * to BLOCK words after the strips may be overwritten. Returns the number of words in a line. */
static size_t pack(const product *p, const tsr__strided *m, bool is_across, uint64_t line,
                   size_t count, size_t width, uint64_t k, size_t depth, uint32_t *out) {
  size_t each = p->is_paired ? 2 : 1, words = (depth + each - 1) / each;
  if (is_across) {
    pack_across(p, m, line, count, width, k, depth, out);
    return words;
  }
  for (size_t strip = 0; strip < count; strip += width)
    for (size_t i = strip; i < strip + width; i += BLOCK) {
      size_t end = strip + width < count ? strip + width : count, left = i < end ? end - i : 0;
      pack_lines(p, m, line + i, left < BLOCK ? left : BLOCK, width, k, depth,
                 out + strip * words + (i - strip));
    }
  return words;
}

/* Prefetch one of `parts` parts of what `pack` will read. */
static void fetch(const tsr__strided *m, bool is_across, uint64_t line, size_t count, uint64_t k,
                  size_t depth, size_t part, size_t parts) {
  uint64_t size = tsr__dtype_bytes(m->dtype);
  size_t rows = is_across ? depth : count, bytes = (is_across ? count : depth) * (size_t)size;
  if (m->stride[3] != 1) return;
  for (size_t i = rows * part / parts; i < rows * (part + 1) / parts; i++) {
    uint64_t at = row_at(m, (is_across ? k : line) + i) + (is_across ? line : k);
    for (size_t b = 0; b < bytes; b += CACHE_LINE)
      __builtin_prefetch((const char *)m->data + at * size + b, 0, 2);
  }
}

/* ---- a panel ---- */

/* Write numbers plus sums; `from` NULL counts as zeros. */
static void add_row(const float *from, const float *sums, size_t count, float *to) {
  size_t i = 0;
  for (; i + TSR__LANES <= count; i += TSR__LANES) {
    lanes x = lanes_load(sums + i);
    lanes_store(to + i, from ? lanes_load(from + i) + x : x);
  }
  for (; i < count; i++) to[i] = from ? from[i] + sums[i] : sums[i];
}

/* Add sums to the result, or to the separate sums. The first piece is added to the call's addend, if any. */
static void add_sums(const panel *n, size_t row, size_t rows, size_t column, size_t columns,
                     bool is_first) {
  float room[WIDE];
  for (size_t i = 0; i < rows; i++) {
    const float *sums = n->t->sums + i * WIDE;
    uint64_t r = n->first_row + row + i, c = n->first_column + column;
    float *to = n->sums ? n->sums + (row + i) * SUM_COLUMNS + column
                        : (float *)n->to.data + row_at(&n->to, r) + c;
    const float *from = is_first ? NULL : to;
    if (is_first && n->p->has_more)
      from = unit_row(&n->more, row_at(&n->more, r), c, columns, room);
    add_row(from, sums, columns, to);
  }
}

/* Prefetch what add_sums will add to. */
static void fetch_sums(const panel *n, size_t row, size_t rows, size_t column) {
  for (size_t i = row; i < row + rows; i++) {
    const float *to = n->sums ? n->sums + i * SUM_COLUMNS + column
                              : (const float *)n->to.data + row_at(&n->to, n->first_row + i) +
                                    n->first_column + column;
    for (size_t k = 0; k < WIDE; k += CACHE_LINE / sizeof *to) __builtin_prefetch(to + k, 1);
  }
}

static size_t at_most(uint64_t left, size_t most) {
  return left < most ? (size_t)left : most;
}

/* Get the distance between rows of contiguous floats, or return false. Single rows repeat. */
static bool has_pitch(const tsr__strided *m, uint64_t *pitch) {
  *pitch = m->dim[0] == 1 && m->dim[1] == 1 ? m->stride[2] : 0;
  return m->dtype == TSR__DTYPE_F32 && m->stride[3] == 1 && m->dim[0] == 1 && m->dim[1] == 1;
}

/* Find the memory to which a tile's sums go directly from registers. False if they must go through `t->sums`. */
static bool find_tile(const panel *n, size_t row, size_t column, bool is_first, tile *t) {
  uint64_t r = n->first_row + row, c = n->first_column + column;
  if (n->sums) {
    t->to = n->sums + row * SUM_COLUMNS + column;
    t->to_pitch = SUM_COLUMNS;
  } else {
    if (!has_pitch(&n->to, &t->to_pitch)) return false;
    t->to = (float *)n->to.data + n->to.offset + r * t->to_pitch + c;
  }
  t->from = is_first ? NULL : t->to;
  t->from_pitch = t->to_pitch;
  if (!is_first || !n->p->has_more) return true;
  if (!has_pitch(&n->more, &t->from_pitch)) return false;
  t->from = (const float *)n->more.data + n->more.offset + r * t->from_pitch + c;
  return true;
}

/* Multiply some rows of a panel by a packed strip, `b`. */
static void multiply_tile(const panel *n, size_t words, const uint32_t *b, size_t row,
                          size_t column, size_t columns, bool is_first) {
  packed *p = n->t;
  const uint32_t *a = p->a + row * words;
  size_t rows = at_most(n->rows - row, HIGH), step = (rows - 1) / STEP_ROWS;
  tile t;
  if (columns == WIDE && rows % STEP_ROWS == 0 && find_tile(n, row, column, is_first, &t)) {
    n->p->loops[step](words, a, b, &t);
    return;
  }
  t = (tile){.to = p->sums, .to_pitch = WIDE};
  n->p->loops[step](words, a, b, &t);
  add_sums(n, row, rows, column, columns, is_first);
}

/* Process one piece of the inner dimension. */
static void multiply_piece(const panel *n, uint64_t k, bool is_first) {
  const product *p = n->p;
  packed *t = n->t;
  bool is_across = !p->is_transposed[1];
  size_t depth = at_most(p->depth - k, PIECE), tiles = (n->rows + HIGH - 1) / HIGH;
  size_t words = pack(p, &n->a, p->is_transposed[0], n->first_row, n->rows, HIGH, k, depth, t->a);
  for (size_t j = 0; j < n->columns; j += STRIPS * WIDE) {
    size_t end = at_most(n->columns - j, STRIPS * WIDE) + j, part = 0;
    size_t next = at_most(n->columns - end, STRIPS * WIDE), parts = STRIPS * tiles;
    pack(p, &n->b, is_across, n->first_column + j, end - j, WIDE, k, depth, t->b);
    for (size_t c = j; c < end; c += WIDE)
      for (size_t i = 0; i < n->rows; i += HIGH, part++) {
        fetch(&n->b, is_across, n->first_column + end, next, k, depth, part, parts);
        fetch_sums(n, i, at_most(n->rows - i, HIGH), c);
        multiply_tile(n, words, t->b + (c - j) * words, i, c, at_most(end - c, WIDE), is_first);
      }
  }
}

/* ---- products by a library ---- */

/* Round some fp32 numbers to bf16, without gaps, in the memory of the packed first operand. */
static void round_matrix(const panel *n, const float *from, uint64_t pitch, size_t rows,
                         size_t columns, tsr__library_matrix *out) {
  uint16_t *room = (uint16_t *)(void *)n->t->a;
  assert(rows * columns * sizeof *room <= sizeof n->t->a);
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < columns; j++)
      room[i * columns + j] = tsr__bf16_of_float(from[i * pitch + j]);
  out->data = room;
  out->pitch = columns;
}

/* Describe rows and columns of a matrix for a library. False if a row is not contiguous, or the rows are not
 * equally far apart. */
static bool library_matrix(const panel *n, const tsr__strided *m, bool is_transposed, uint64_t row,
                           size_t rows, uint64_t column, size_t columns, tsr__library_matrix *out) {
  bool is_simple = m->stride[3] == 1 && m->dim[0] == 1 && m->dim[1] == 1;
  /* A single row has no pitch. */
  uint64_t pitch = m->dim[2] == 1 ? m->dim[3] : m->stride[2];
  uint64_t at = m->offset + (is_transposed ? column * pitch + row : row * pitch + column);
  if (!is_simple || pitch < m->dim[3]) return false;
  *out = (tsr__library_matrix){.data = (const char *)m->data + at * tsr__dtype_bytes(m->dtype),
                               .pitch = pitch,
                               .is_transposed = is_transposed};
  if (n->p->is_paired && m->dtype == TSR__DTYPE_F32)
    round_matrix(n, out->data, pitch, is_transposed ? columns : rows,
                 is_transposed ? rows : columns, out);
  return true;
}

/* Copy the addend to the memory for a panel's sums, which is returned. */
static float *begin_sums(const panel *n, uint64_t *pitch, bool is_first) {
  float *to = n->sums;
  *pitch = SUM_COLUMNS;
  if (!to) {
    if (!has_pitch(&n->to, pitch)) return NULL;
    if (n->to.dim[2] == 1) *pitch = n->to.dim[3];
    to = (float *)n->to.data + n->to.offset + n->first_row * *pitch + n->first_column;
  }
  for (size_t i = 0; is_first && n->p->has_more && i < n->rows; i++) {
    float *row = to + i * *pitch;
    const float *from =
        unit_row(&n->more, row_at(&n->more, n->first_row + i), n->first_column, n->columns, row);
    if (from != row) memmove(row, from, n->columns * sizeof *row);
  }
  return to;
}

/* Multiply the rest of the inner dimension from `k` on. If it consists of tokens, or if an operand is rounded,
 * multiply only one piece, because sums over tokens must have the same order with every library. Returns how much
 * was done, or 0 if the library cannot do it. */
static uint64_t multiply_by_library(const panel *n, uint64_t k, bool is_first) {
  const product *p = n->p;
  bool is_across = p->is_transposed[0], is_mixed = n->a.dtype != n->b.dtype;
  size_t depth = at_most(p->depth - k, is_across || is_mixed ? PIECE : SIZE_MAX);
  tsr__library_product call = {.rows = n->rows,
                               .columns = n->columns,
                               .depth = depth,
                               .is_bf16 = p->is_paired,
                               .adds = !is_first || p->has_more};
  if (!library_matrix(n, &n->a, is_across, n->first_row, n->rows, k, depth, &call.a) ||
      !library_matrix(n, &n->b, p->is_transposed[1], k, depth, n->first_column, n->columns,
                      &call.b))
    return 0;
  call.to = begin_sums(n, &call.to_pitch, is_first);
  return call.to && tsr__library_multiply(p->library, &call) ? depth : 0;
}

/* ---- all pieces of a panel ---- */

/* Process some of the inner dimension, from `k` on. Returns how much. */
static uint64_t multiply_some(const panel *n, uint64_t k, bool is_first) {
  uint64_t done = n->p->library ? multiply_by_library(n, k, is_first) : 0;
  if (done) return done;
  multiply_piece(n, k, is_first);
  return at_most(n->p->depth - k, PIECE);
}

/* The matrix of one batch and head. */
static tsr__strided slice_of(const product *p, tsr__strided v, uint64_t batch, uint64_t head) {
  if (!p->batches) return v;
  assert(batch < v.dim[0] && head < v.dim[1]);
  v.offset += batch * v.stride[0] + head * v.stride[1];
  v.dim[0] = v.dim[1] = 1;
  return v;
}

/* Without elements in the inner dimension, the result is the addend, or zeros. */
static void multiply_nothing(const panel *n) {
  memset(n->t->sums, 0, sizeof n->t->sums);
  for (size_t i = 0; i < n->rows; i += HIGH)
    for (size_t j = 0; j < n->columns; j += WIDE)
      add_sums(n, i, at_most(n->rows - i, HIGH), j, at_most(n->columns - j, WIDE), true);
}

static void multiply_panel(panel *n, uint64_t batch, uint64_t head) {
  const product *p = n->p;
  n->to = slice_of(p, p->to, batch, head);
  join_rows(&n->to);
  if (p->has_more) n->more = slice_of(p, p->more, batch, head);
  if (p->has_more) join_rows(&n->more);
  if (!p->depth) multiply_nothing(n);
  assert(p->share[0]);
  for (uint64_t i = 0; i < p->share[0]; i++) {
    uint64_t h = head * p->share[0] + i;
    n->a = slice_of(p, p->a, batch, h);
    n->b = slice_of(p, p->b, batch, h / p->share[1]);
    join_rows(&n->a);
    join_rows(&n->b);
    for (uint64_t k = 0; k < p->depth;) k += multiply_some(n, k, k == 0 && i == 0);
  }
  for (size_t i = 0; n->sums && i < n->rows; i++)
    unit_store(&n->to, row_at(&n->to, n->first_row + i) + n->first_column * n->to.stride[3],
               n->to.stride[3], n->columns, n->sums + i * SUM_COLUMNS);
}

/* Compute the panel with this task index. */
static void multiply_task(const product *p, size_t index, float *sums) {
  packed t;
  uint64_t across = index % p->panels_across, down = index / p->panels_across % p->panels_down;
  uint64_t which = index / p->panels_across / p->panels_down;
  panel n = {.p = p,
             .t = &t,
             .first_row = down * PANEL_ROWS,
             .first_column = across * p->panel_columns,
             .sums = sums};
  n.rows = at_most(p->rows - n.first_row, PANEL_ROWS);
  n.columns = at_most(p->columns - n.first_column, (size_t)p->panel_columns);
  multiply_panel(&n, which / p->heads, which % p->heads);
}

static int multiply_direct(void *context, size_t index, tsr_error *error) {
  (void)error;
  multiply_task(context, index, NULL);
  return 0;
}

static int multiply_apart(void *context, size_t index, tsr_error *error) {
  _Alignas(64) float sums[PANEL_ROWS * SUM_COLUMNS];
  (void)error;
  multiply_task(context, index, sums);
  return 0;
}

/* ---- calls ---- */

/* Choose the width of panels: the best for one thread, or narrower so that each thread gets some. Results do not
 * depend on it, except a library's, so with a library the width is that for two threads. */
static void cut(product *p, struct tsr__thread_pool *pool) {
  uint64_t most = p->is_direct ? PANEL_COLUMNS : SUM_COLUMNS,
           threads = p->library ? 2 : tsr__thread_pool_width(pool);
  p->panels_down = (p->rows + PANEL_ROWS - 1) / PANEL_ROWS;
  uint64_t others = p->panels_down * p->heads * (p->batches ? p->batches : 1);
  uint64_t across = (p->columns + most - 1) / most;
  while (others * across % threads && others * across < 4 * threads &&
         p->columns / (across + 1) >= 128)
    across++;
  p->panel_columns = ((p->columns + across - 1) / across + WIDE - 1) / WIDE * WIDE;
  if (p->panel_columns > most) p->panel_columns = most;
  p->panels_across = (p->columns + p->panel_columns - 1) / p->panel_columns;
}

/* Whether one operand is bf16, and the other bf16 or fp32. */
static bool is_bf16(const tsr__kernel_args *args) {
  tsr__dtype a = args->reads[0].dtype, b = args->reads[1].dtype;
  return (a == TSR__DTYPE_BF16 && (b == a || b == TSR__DTYPE_F32)) ||
         (b == TSR__DTYPE_BF16 && a == TSR__DTYPE_F32);
}

/* Whether a library may compute it: a single product, in fp32 or of pairs of bf16. */
static bool is_for_library(const product *p, const tsr__kernel_args *args) {
  bool is_fp32 = args->reads[0].dtype == TSR__DTYPE_F32 && args->reads[1].dtype == TSR__DTYPE_F32;
  return args->library && !p->batches && (is_fp32 || p->is_paired);
}

static void multiply(product *p, const tsr__kernel_args *args, bool has_pairs) {
  tsr_error error;
  p->is_paired = has_pairs && is_bf16(args);
  if (is_for_library(p, args)) p->library = args->library;
  p->loops = float_loops;
#if TSR__UNIT_ISA == 2
  if (p->is_paired) p->loops = pair_loops;
#endif
  if (p->has_more) p->more = tsr__strided_repeated(&args->reads[2], &p->to);
  p->is_direct = p->to.dtype == TSR__DTYPE_F32 && (p->to.stride[3] == 1 || p->to.dim[3] == 1);
  p->columns = p->to.dim[3];
  if (!p->rows || !p->columns || !p->heads) return;
  cut(p, args->pool);
  size_t tasks =
      (size_t)(p->panels_across * p->panels_down * p->heads * (p->batches ? p->batches : 1));
  int status = tsr__thread_pool_each(args->pool, NULL, tasks,
                                     p->is_direct ? multiply_direct : multiply_apart, p, &error);
  assert(status == 0); /* tasks do not fail, and nothing cancels them */
  (void)status;
}

static void multiply_matrices(const tsr__kernel_args *args, bool has_pairs) {
  if (!unit_has_types(args)) {
    tsr__reference_product(args);
    return;
  }
  if (TSR__UNIT(tsr__fast_row)(args)) return;
  product p = {.a = tsr__strided_of(&args->reads[0]),
               .b = tsr__strided_of(&args->reads[1]),
               .to = tsr__strided_of(&args->writes[0]),
               .has_more = args->reads[2].data != NULL,
               .is_transposed = {args->is_transposed[0], args->is_transposed[1]},
               .heads = 1,
               .share = {1, 1}};
  p.rows = tsr__strided_rows(&p.to);
  p.depth = p.is_transposed[0] ? tsr__strided_rows(&p.a) : p.a.dim[3];
  multiply(&p, args, has_pairs);
}

static void multiply_batches(const tsr__kernel_args *args, bool has_pairs) {
  if (!unit_has_types(args)) {
    tsr__reference_products(args);
    return;
  }
  product p = {.a = tsr__strided_of(&args->reads[0]),
               .b = tsr__strided_of(&args->reads[1]),
               .to = tsr__strided_of(&args->writes[0]),
               .has_more = args->reads[2].data != NULL,
               .is_transposed = {args->is_transposed[0], args->is_transposed[1]}};
  if (!tsr__strided_elements(&p.to)) return;
  p.batches = p.to.dim[0];
  p.heads = p.to.dim[1];
  p.share[0] = p.a.dim[1] / p.heads;
  p.share[1] = p.a.dim[1] / p.b.dim[1];
  p.rows = p.to.dim[2];
  p.depth = p.a.dim[p.is_transposed[0] ? 2 : 3];
  assert(p.a.dim[0] == p.batches && p.b.dim[0] == p.batches);
  multiply(&p, args, has_pairs);
}

void TSR__UNIT(tsr__fast_product)(const tsr__kernel_args *args) {
  multiply_matrices(args, false);
}
void TSR__UNIT(tsr__fast_products)(const tsr__kernel_args *args) {
  multiply_batches(args, false);
}
#if TSR__UNIT_ISA == 2
void TSR__UNIT(tsr__fast_product_bf16)(const tsr__kernel_args *args) {
  multiply_matrices(args, true);
}
void TSR__UNIT(tsr__fast_products_bf16)(const tsr__kernel_args *args) {
  multiply_batches(args, true);
}
#endif
