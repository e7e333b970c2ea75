/* library.h - products of matrices by oneDNN, which is loaded on request.
 *
 * tessera's own products are always available. oneDNN may be faster on a processor for which they were not
 * written: it uses AMX. The caller cuts products into panels and pieces
 * (fast_product.c), and each call is the work of one thread, so oneDNN's results do not depend on
 * the number of threads. Their last digits may differ from tessera's own results.
 *
 * oneDNN allocates memory for compiled code and a few small blocks in each call. Its intermediate results are on the stack of
 * the calling thread, like those of tessera's own products. */
#ifndef TSR_KERNELS_LIBRARY_H
#define TSR_KERNELS_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct tsr__library tsr__library;

/* Load it. It stays in the process until that ends. Fails with TSR_ERROR_UNSUPPORTED if it is not
 * installed or lacks what is needed, and with TSR_ERROR_MEMORY. */
int tsr__library_open(tsr__library **out, tsr_error *error);
/* NULL is fine. No thread may use it. */
void tsr__library_free(tsr__library *library);
/* With its version: "oneDNN 2.6.3". Lives as long as the library. */
const char *tsr__library_name(const tsr__library *library);

/* A matrix: rows of numbers one after another, `pitch` numbers apart. */
typedef struct tsr__library_matrix {
  const void *data;
  uint64_t pitch;
  bool is_transposed; /* stored with its rows as columns */
} tsr__library_matrix;

/* a (rows, depth) times b (depth, columns), all at least 1. */
typedef struct tsr__library_product {
  uint64_t rows, columns, depth;
  tsr__library_matrix a, b;
  bool is_bf16; /* a and b; else fp32 */
  bool adds;    /* to what is there */
  float *to;
  uint64_t to_pitch;
} tsr__library_product;

/* Compute, in the calling thread; any number of threads may call. False if the library does not compute such
 * a product, which depends on the numbers and flags of `product` alone, unless memory has run out: then
 * nothing was written. */
bool tsr__library_multiply(tsr__library *library, const tsr__library_product *product);

#endif
