/* kernels.c - how fast matrix products and attention are on this machine.
 *
 *   kernels THREADS
 *
 * prints one JSON object: the fp32 and bf16 peaks of a thread that only multiplies in registers (0 if the
 * processor lacks AVX-512); for the products of training steps the GFLOP/s of tessera's own kernels with
 * THREADS threads and, if THREADS is 1, of oneDNN if it is installed; and the milliseconds of
 * causal attention, forward and backward, with GPT-2's heads and 4 sequences of 1,024 tokens. Medians of
 * rounds in which own kernels and oneDNN take turns. */
#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/pool.h"
#include "kernels/fast.h"
#include "kernels/library.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

enum { ROUNDS = 9, MAKERS = 2, SUMS = 24, TURNS = 1000000 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *numbers, size_t count) {
  qsort(numbers, count, sizeof *numbers, compare);
  return numbers[count / 2];
}

/* ---- registers only ---- */

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx512f,avx512bf16"))) static double peak(int is_bf16) {
  __m512 sums[SUMS], one = _mm512_set1_ps(1.0f), all = _mm512_setzero_ps();
  double best = 0;
  for (int i = 0; i < SUMS; i++) sums[i] = one;
  for (int round = 0; round < 5; round++) {
    double start = now();
    for (int turn = 0; turn < TURNS; turn++) {
#pragma GCC unroll 24
      for (int i = 0; i < SUMS; i++)
        sums[i] = is_bf16 ? _mm512_dpbf16_ps(sums[i], (__m512bh)one, (__m512bh)one)
                          : _mm512_fmadd_ps(one, one, sums[i]);
      __asm__ volatile("" : "+v"(one));
    }
    double speed = (double)TURNS * SUMS * 16 * (is_bf16 ? 4 : 2) / (now() - start) * 1e-9;
    if (speed > best) best = speed;
  }
  for (int i = 0; i < SUMS; i++) all = _mm512_add_ps(all, sums[i]);
  __asm__ volatile("" : : "v"(all));
  return best;
}
#else
static double peak(int is_bf16) {
  (void)is_bf16;
  return 0;
}
#endif

/* ---- products ---- */

typedef struct product {
  const char *name;
  uint64_t rows, depth, columns;
  bool is_transposed[2];
} product;

static const product products[] = {
    {"GPT-2 124M, 4 x 64: qkv", 256, 768, 2304, {false, false}},
    {"... up", 256, 768, 3072, {false, false}},
    {"... head", 256, 768, 50257, {false, true}},
    {"... gradient of up's input", 256, 3072, 768, {false, true}},
    {"... of up's weight", 768, 256, 3072, {true, false}},
    {"... of head's weight", 50257, 256, 768, {true, false}},
    {"GPT-2 124M, 4 x 1024: up", 4096, 768, 3072, {false, false}},
    {"... gradient of its weight", 768, 4096, 3072, {true, false}},
    {"L6 C256, 2 x 256: up", 512, 256, 1024, {false, false}},
    {"... gradient of its weight", 256, 512, 1024, {true, false}},
    {"... head", 512, 256, 4096, {false, true}},
    {"2048 x 2048 x 2048", 2048, 2048, 2048, {false, false}},
};
enum { PRODUCTS = sizeof products / sizeof *products };

static tsr__kernel_tensor tensor(tsr__dtype dtype, tsr__layout layout) {
  size_t count = (size_t)tsr__layout_end(layout);
  tsr__kernel_tensor t = {
      .data = calloc(count, (size_t)tsr__dtype_bytes(dtype)), .dtype = dtype, .layout = layout};
  if (!t.data) exit(1);
  for (size_t i = 0; i < count; i++) {
    float x = (float)(i % 7) * 0.25f - 0.75f;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (dtype == TSR__DTYPE_F32)
      ((float *)t.data)[i] = x;
    else
      ((uint16_t *)t.data)[i] = (uint16_t)(bits >> 16);
  }
  return t;
}

static tsr__kernel_tensor matrix(tsr__dtype dtype, uint64_t rows, uint64_t columns,
                                 bool is_transposed) {
  return tensor(dtype, tsr__layout_dense(is_transposed ? TSR__SHAPE(columns, rows)
                                                       : TSR__SHAPE(rows, columns)));
}

/* Seconds; below 0 if the library does not compute it. */
static double time_of(const product *p, tsr__kernel_args *args, tsr__library *library) {
  double start = now();
  if (!library) {
    tsr__kernel_fast(TSR__KERNEL_MM, tsr__isa_best())(args);
    return now() - start;
  }
  const bool *is_across = p->is_transposed;
  tsr__library_product call = {
      .rows = p->rows,
      .columns = p->columns,
      .depth = p->depth,
      .a = {args->reads[0].data, is_across[0] ? p->rows : p->depth, is_across[0]},
      .b = {args->reads[1].data, is_across[1] ? p->depth : p->columns, is_across[1]},
      .is_bf16 = args->reads[0].dtype == TSR__DTYPE_BF16,
      .to = args->writes[0].data,
      .to_pitch = p->columns};
  return tsr__library_multiply(library, &call) ? now() - start : -1;
}

static void measure(const product *p, tsr__dtype dtype, tsr__thread_pool *pool,
                    tsr__library *const libraries[MAKERS]) {
  static const char *const names[MAKERS] = {"own", "onednn"};
  double seconds[MAKERS][ROUNDS];
  tsr__kernel_args args = {.pool = pool,
                           .is_transposed = {p->is_transposed[0], p->is_transposed[1]}};
  args.reads[0] = matrix(dtype, p->rows, p->depth, p->is_transposed[0]);
  args.reads[1] = matrix(dtype, p->depth, p->columns, p->is_transposed[1]);
  args.writes[0] = matrix(TSR__DTYPE_F32, p->rows, p->columns, false);
  for (int round = -1; round < ROUNDS; round++) /* the first one warms up */
    for (int maker = 0; maker < MAKERS; maker++)
      if (maker == 0 || libraries[maker])
        seconds[maker][round < 0 ? 0 : round] = time_of(p, &args, libraries[maker]);
  printf("\"%s\": {", dtype == TSR__DTYPE_F32 ? "fp32" : "bf16");
  for (int maker = 0; maker < MAKERS; maker++) {
    if (maker > 0 && (!libraries[maker] || seconds[maker][0] < 0)) continue;
    double flops = 2.0 * (double)p->rows * (double)p->depth * (double)p->columns;
    printf("%s\"%s\": %.1f", maker ? ", " : "", names[maker],
           flops / median(seconds[maker], ROUNDS) * 1e-9);
  }
  printf("}");
  for (int i = 0; i < 2; i++) free(args.reads[i].data);
  free(args.writes[0].data);
}

/* ---- attention ---- */

enum { BATCH = 4, HEADS = 12, TOKENS = 1024, WIDTH = 64 };

static void measure_attention(tsr__dtype dtype, tsr__thread_pool *pool) {
  double forward_s[ROUNDS], backward_s[ROUNDS];
  tsr__layout all = tsr__layout_dense(TSR__SHAPE(BATCH, TOKENS, 3 * HEADS * WIDTH));
  tsr__layout rows = tsr__layout_dense(TSR__SHAPE(BATCH, TOKENS, HEADS * WIDTH));
  tsr__kernel_tensor qkv = tensor(dtype, all), gradients = tensor(dtype, all), part[6];
  tsr__kernel_tensor result = tensor(dtype, rows), gradient = tensor(dtype, rows);
  tsr__kernel_tensor sums =
      tensor(TSR__DTYPE_F32, tsr__layout_dense(TSR__SHAPE(BATCH, HEADS, TOKENS)));
  int64_t keys[2] = {0};
  tsr__kernel_tensor key = {
      .data = keys, .dtype = TSR__DTYPE_I64, .layout = tsr__layout_dense(TSR__SHAPE(2))};
  for (uint32_t i = 0; i < 6; i++) {
    part[i] = i < 3 ? qkv : gradients;
    part[i].layout = tsr__layout_heads(
        tsr__layout_slice(all, 2, (uint64_t)(i % 3) * HEADS * WIDTH, HEADS * WIDTH), HEADS);
  }
  tsr__kernel_args forward = {.pool = pool,
                              .reads = {part[0], part[1], part[2]},
                              .writes = {result, sums, key, key},
                              .scalars = {0.125, 0, 1, 0},
                              .scalar_count = 4};
  tsr__kernel_args backward = {.pool = pool,
                               .reads = {part[0], part[1], part[2], gradient, result, sums, key},
                               .writes = {part[3], part[4], part[5]},
                               .scalars = {0.125, 0, 1, 0},
                               .scalar_count = 4};
  for (int round = -1; round < ROUNDS; round++) {
    double start = now();
    tsr__kernel_fast(TSR__KERNEL_FLASH, tsr__isa_best())(&forward);
    double middle = now();
    tsr__kernel_fast(TSR__KERNEL_FLASH_BACKWARD, tsr__isa_best())(&backward);
    forward_s[round < 0 ? 0 : round] = middle - start;
    backward_s[round < 0 ? 0 : round] = now() - middle;
  }
  printf("\"%s\": {\"forward\": %.1f, \"backward\": %.1f}",
         dtype == TSR__DTYPE_F32 ? "fp32" : "bf16", 1e3 * median(forward_s, ROUNDS),
         1e3 * median(backward_s, ROUNDS));
  free(qkv.data), free(gradients.data), free(result.data), free(gradient.data), free(sums.data);
}

int main(int count, char **words) {
  unsigned threads = count > 1 ? (unsigned)atoi(words[1]) : 1;
  tsr__thread_pool *pool = tsr__thread_pool_new(threads);
  tsr__library *libraries[MAKERS] = {NULL};
  bool has_pairs = tsr__isa_best() == TSR__ISA_AVX512_BF16;
  printf("{\"peak\": {\"fp32\": %.1f, \"bf16\": %.1f}, \"libraries\": [", has_pairs ? peak(0) : 0,
         has_pairs ? peak(1) : 0);
  if (threads == 1 && tsr__library_open(&libraries[1], NULL) == 0)
    printf("\"%s\"", tsr__library_name(libraries[1]));
  printf("], \"products\": {");
  for (int i = 0; i < PRODUCTS; i++) {
    const product *p = &products[i];
    printf("%s\"%s (%d x %d x %d)\": {", i ? ", " : "", p->name, (int)p->rows, (int)p->depth,
           (int)p->columns);
    measure(p, TSR__DTYPE_F32, pool, libraries);
    printf(", ");
    measure(p, TSR__DTYPE_BF16, pool, libraries);
    printf("}");
  }
  printf("}, \"attention\": {");
  measure_attention(TSR__DTYPE_F32, pool);
  printf(", ");
  measure_attention(TSR__DTYPE_BF16, pool);
  printf("}}\n");
  for (int i = 0; i < MAKERS; i++) tsr__library_free(libraries[i]);
  tsr__thread_pool_free(pool);
  return 0;
}
