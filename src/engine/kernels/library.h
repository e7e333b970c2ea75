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
/* Accepts NULL. No thread may be using the library. */
void tsr__library_free(tsr__library *library);
/* The name with the version: "oneDNN 2.6.3". Lives as long as the library. */
const char *tsr__library_name(const tsr__library *library);
/* A number for the instruction sets that it uses on this processor (dnnl_cpu_isa_t); 0 if it does not tell. */
int tsr__library_isa(const tsr__library *library);

/* A matrix: rows of contiguous numbers, `pitch` numbers apart. */
typedef struct tsr__library_matrix {
  const void *data;
  uint64_t pitch;
  bool is_transposed; /* stored with rows and columns swapped */
} tsr__library_matrix;

/* a (rows, depth) times b (depth, columns); all sizes are at least 1. */
typedef struct tsr__library_product {
  uint64_t rows, columns, depth;
  tsr__library_matrix a, b;
  bool is_bf16; /* for a and b; else fp32 */
  bool adds;    /* adds to the result's memory */
  float *to;
  uint64_t to_pitch;
} tsr__library_product;

/* Compute in the calling thread. Thread-safe. False, with nothing written, if the library does not compute such a
 * product, which depends only on the numbers and flags of `product`, or when out of memory. */
bool tsr__library_multiply(tsr__library *library, const tsr__library_product *product);

#endif
