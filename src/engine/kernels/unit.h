/* unit.h - for files that are compiled once for each instruction set.
 *
 * fast_*.c and all that they include are compiled several times, with TSR__UNIT_ISA and the flags of one set each
 * time (meson.build). TSR__UNIT(name) is the name of a function in one of them. So a kernel is written once, as
 * plain loops over floats that compilers vectorise, and with `lanes`, vectors as wide as the set supports. Nothing
 * here may be called before tsr__isa_best has shown that the processor has the set (fast.h).
 *
 * Elements of any type are loaded into tiles of floats, and stored from there: one loop serves fp32, bf16 and
 * fp16. */
#ifndef TSR_KERNELS_UNIT_H
#define TSR_KERNELS_UNIT_H

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/pool.h"
#include "kernels/fast.h"
#include "kernels/half.h"
#include "kernels/reference.h"

#ifndef TSR__UNIT_ISA
#define TSR__UNIT_ISA 0
#endif

#if TSR__UNIT_ISA == 2
#define TSR__UNIT(name) name##_avx512
#define TSR__LANES      16
#elif TSR__UNIT_ISA == 1
#define TSR__UNIT(name) name##_avx2
#define TSR__LANES      8
#else
#define TSR__UNIT(name) name##_plain
#define TSR__LANES      4
#endif

/* Marks a loop whose iterations are independent, although its operands may be its results. */
#if defined(__clang__)
#define TSR__EACH_TURN _Pragma("clang loop vectorize(enable) interleave(enable)")
#elif defined(__GNUC__)
#define TSR__EACH_TURN _Pragma("GCC ivdep")
#else
#define TSR__EACH_TURN
#endif

/* ---- lanes ---- */

typedef float lanes __attribute__((vector_size(TSR__LANES * sizeof(float))));

static inline lanes lanes_load(const float *from) {
  lanes x;
  memcpy(&x, from, sizeof x);
  return x;
}
static inline void lanes_store(float *to, lanes x) {
  memcpy(to, &x, sizeof x);
}
static inline lanes lanes_of(float x) {
  lanes zero = {0};
  return x - zero; /* a difference, not a sum, so that -0 stays -0 */
}
/* The sum of lanes: adds the second half to the first, and so on. */
static inline float lanes_sum(lanes x) {
  float part[TSR__LANES];
  lanes_store(part, x);
  for (size_t half = TSR__LANES / 2; half; half /= 2)
    for (size_t i = 0; i < half; i++) part[i] += part[i + half];
  return part[0];
}

/* Interleave the words of the lower, or of the upper halves of two vectors. */
#if TSR__LANES == 16
#define UNIT_LOW_WORDS  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define UNIT_HIGH_WORDS 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif TSR__LANES == 8
#define UNIT_LOW_WORDS  0, 8, 1, 9, 2, 10, 3, 11
#define UNIT_HIGH_WORDS 4, 12, 5, 13, 6, 14, 7, 15
#else
#define UNIT_LOW_WORDS  0, 4, 1, 5
#define UNIT_HIGH_WORDS 2, 6, 3, 7
#endif

/* Transpose a square. Each turn moves the first bit of an element's index to the end; after as many turns as a
 * row's number has bits, row and column have changed places. */
static inline __attribute__((always_inline)) void lanes_transpose(lanes x[TSR__LANES]) {
  lanes y[TSR__LANES];
#pragma GCC unroll 4
  for (size_t turn = 1; turn < TSR__LANES; turn *= 2) {
#pragma GCC unroll 8
    for (size_t i = 0; i < TSR__LANES / 2; i++) {
      y[2 * i] = __builtin_shufflevector(x[i], x[i + TSR__LANES / 2], UNIT_LOW_WORDS);
      y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + TSR__LANES / 2], UNIT_HIGH_WORDS);
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < TSR__LANES; i++) x[i] = y[i];
  }
}

/* The sum of floats: in lanes, four at a time, then the rest. */
static inline float floats_sum(const float *x, size_t count) {
  lanes sums[4] = {{0}};
  size_t i = 0;
  for (; count - i >= 4 * (size_t)TSR__LANES; i += 4 * (size_t)TSR__LANES)
    for (size_t k = 0; k < 4; k++) sums[k] += lanes_load(x + i + k * TSR__LANES);
  for (; count - i >= TSR__LANES; i += TSR__LANES) sums[0] += lanes_load(x + i);
  float sum = lanes_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < count; i++) sum += x[i];
  return sum;
}

/* The sum of products, in the same way. */
static inline float floats_dot(const float *x, const float *y, size_t count) {
  lanes sums[4] = {{0}};
  size_t i = 0;
  for (; count - i >= 4 * (size_t)TSR__LANES; i += 4 * (size_t)TSR__LANES)
    for (size_t k = 0; k < 4; k++)
      sums[k] += lanes_load(x + i + k * TSR__LANES) * lanes_load(y + i + k * TSR__LANES);
  for (; count - i >= TSR__LANES; i += TSR__LANES) sums[0] += lanes_load(x + i) * lanes_load(y + i);
  float sum = lanes_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < count; i++) sum += x[i] * y[i];
  return sum;
}

/* The largest of some floats, ignoring NaN, or -infinity. */
static inline float floats_largest(const float *x, size_t count) {
  enum { MANY = 4 * TSR__LANES };
  float most[MANY], largest = -INFINITY;
  size_t whole = count - count % MANY;
  for (size_t k = 0; k < MANY; k++) most[k] = -INFINITY;
  for (size_t i = 0; i < whole; i += MANY)
    for (size_t k = 0; k < MANY; k++) most[k] = x[i + k] > most[k] ? x[i + k] : most[k];
  for (size_t k = 0; k < MANY; k++) largest = most[k] > largest ? most[k] : largest;
  for (size_t i = whole; i < count; i++) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

/* ---- tiles ---- */

/* The numbers in a tile on the stack. */
enum { UNIT_TILE = 512 };

/* The types that tiles can be loaded from and stored to. */
static inline bool unit_has_type(tsr__dtype dtype) {
  return dtype == TSR__DTYPE_F32 || dtype == TSR__DTYPE_BF16 || dtype == TSR__DTYPE_F16 ||
         dtype == TSR__DTYPE_BOOL;
}
/* Whether all operands and results of a call have such types. */
static inline bool unit_has_types(const tsr__kernel_args *args) {
  for (uint32_t i = 0; i < TSR__KERNEL_READS; i++)
    if (args->reads[i].data && !unit_has_type(args->reads[i].dtype)) return false;
  for (uint32_t i = 0; i < TSR__KERNEL_WRITES; i++)
    if (args->writes[i].data && !unit_has_type(args->writes[i].dtype)) return false;
  return true;
}

static inline float unit_of_bool(uint8_t x) {
  return x ? 1.0f : 0.0f;
}
static inline uint8_t unit_to_bool(float x) {
  return x != 0;
}

/* Not inlined: four types in two layouts at each of many calls would take compilers most of a minute, and a call
 * costs little compared with a tile. */
#define UNIT_ONCE __attribute__((noinline, unused))

#define UNIT_LOAD(name, type, convert)                                       \
  case name: {                                                               \
    const type *from = (const type *)v->data + at;                           \
    if (stride == 1) {                                                       \
      TSR__EACH_TURN                                                         \
      for (size_t i = 0; i < count; i++) out[i] = convert(from[i]);          \
    } else {                                                                 \
      for (size_t i = 0; i < count; i++) out[i] = convert(from[i * stride]); \
    }                                                                        \
    break;                                                                   \
  }

/* Load `count` numbers from element `at` of the storage on, `stride` apart. */
static UNIT_ONCE void unit_load(const tsr__strided *v, uint64_t at, uint64_t stride, size_t count,
                                float *out) {
  if (stride == 0 && count > 1) {
    unit_load(v, at, 1, 1, out);
    for (size_t i = 1; i < count; i++) out[i] = out[0];
    return;
  }
  switch (v->dtype) {
    UNIT_LOAD(TSR__DTYPE_F32, float, (float))
    UNIT_LOAD(TSR__DTYPE_BF16, uint16_t, tsr__bf16_to_float)
    UNIT_LOAD(TSR__DTYPE_F16, uint16_t, tsr__f16_to_float)
    UNIT_LOAD(TSR__DTYPE_BOOL, uint8_t, unit_of_bool)
  default: /* see unit_has_types */
    assert(false);
    for (size_t i = 0; i < count; i++) out[i] = 0;
  }
}
#undef UNIT_LOAD

#define UNIT_STORE(name, type, convert)                                   \
  case name: {                                                            \
    type *to = (type *)v->data + at;                                      \
    if (stride == 1) {                                                    \
      TSR__EACH_TURN                                                      \
      for (size_t i = 0; i < count; i++) to[i] = convert(in[i]);          \
    } else {                                                              \
      for (size_t i = 0; i < count; i++) to[i * stride] = convert(in[i]); \
    }                                                                     \
    break;                                                                \
  }

static UNIT_ONCE void unit_store(const tsr__strided *v, uint64_t at, uint64_t stride, size_t count,
                                 const float *in) {
  assert(v->data || !count);
  switch (v->dtype) {
    UNIT_STORE(TSR__DTYPE_F32, float, (float))
    UNIT_STORE(TSR__DTYPE_BF16, uint16_t, tsr__bf16_of_float)
    UNIT_STORE(TSR__DTYPE_F16, uint16_t, tsr__f16_of_float)
    UNIT_STORE(TSR__DTYPE_BOOL, uint8_t, unit_to_bool)
  default: assert(false);
  }
}
#undef UNIT_STORE

/* Numbers `first` to `first` + `count` - 1 of the row whose first element is at `at`: a pointer into the tensor if
 * they are contiguous floats, else loaded into `room`. */
static inline const float *unit_row(const tsr__strided *v, uint64_t at, uint64_t first,
                                    size_t count, float *room) {
  uint64_t stride = v->stride[3];
  if (v->dtype == TSR__DTYPE_F32 && (stride == 1 || count == 1))
    return (const float *)v->data + at + first * stride;
  unit_load(v, at + first * stride, stride, count, room);
  return room;
}
/* Get room for results of a row: in the tensor if they are contiguous floats, else `room`, from which unit_row_done
 * stores them. */
static inline float *unit_row_room(const tsr__strided *v, uint64_t at, uint64_t first,
                                   float *room) {
  if (v->dtype == TSR__DTYPE_F32 && v->stride[3] == 1) return (float *)v->data + at + first;
  return room;
}
static inline void unit_row_done(const tsr__strided *v, uint64_t at, uint64_t first, size_t count,
                                 const float *room) {
  if (v->dtype == TSR__DTYPE_F32 && v->stride[3] == 1) return;
  unit_store(v, at + first * v->stride[3], v->stride[3], count, room);
}

static inline size_t unit_tile(uint64_t left) {
  return left < UNIT_TILE ? (size_t)left : UNIT_TILE;
}
/* Iterate over tiles of `total` numbers: `first` and `count`. */
#define UNIT_EACH_TILE(first, count, total)                           \
  for (uint64_t first = 0, count = unit_tile(total); first < (total); \
       first += count, count = unit_tile((total)-first))

/* ---- threads ---- */

/* UNIT_TASK elements are worth a task. Up to UNIT_EVEN tasks for each thread, all threads get equally many. */
enum { UNIT_TASK = 32768, UNIT_EVEN = 8 };

typedef void unit_range_fn(void *context, uint64_t first, uint64_t end);

/* Used only by unit_split. */
typedef struct unit_ranges {
  unit_range_fn *run;
  void *context;
  uint64_t count, each;
} unit_ranges;

static inline int unit_run_range(void *context, size_t index, tsr_error *error) {
  const unit_ranges *r = context;
  uint64_t first = index * r->each, left = r->count - first;
  (void)error;
  r->run(r->context, first, first + (left < r->each ? left : r->each));
  return 0;
}

/* Call `run` for ranges that cover 0 to `count` - 1, spread over the pool; an item costs as much as `cost`
 * elements. */
static inline void unit_split(struct tsr__thread_pool *pool, uint64_t count, uint64_t cost,
                              unit_range_fn *run, void *context) {
  uint64_t each = UNIT_TASK / (cost ? cost : 1);
  unit_ranges r = {.run = run, .context = context, .count = count, .each = each ? each : 1};
  tsr_error error;
  if (!count) return;
  if (!pool || count <= r.each) {
    run(context, 0, count);
    return;
  }
  uint64_t tasks = (count + r.each - 1) / r.each, threads = tsr__thread_pool_width(pool);
  if (tasks < UNIT_EVEN * threads) {
    tasks = (tasks + threads - 1) / threads * threads;
    r.each = (count + tasks - 1) / tasks;
    tasks = (count + r.each - 1) / r.each;
  }
  int status = tsr__thread_pool_each(pool, NULL, (size_t)tasks, unit_run_range, &r, &error);
  assert(status == 0); /* tasks do not fail, and nothing cancels them */
  (void)status;
}

#endif
