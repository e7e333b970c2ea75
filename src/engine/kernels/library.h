/* library.h - products of matrices by a library that is loaded when it is asked for.
 *
 * tessera's own products are always there. A library may be faster on a processor for which they were not
 * written: oneDNN is how machines with AMX use it. The caller cuts products into panels and pieces
 * (fast_product.c), and each call is the work of one thread: so what a library returns does not depend on
 * the number of threads. It may differ from tessera's own results, and from another library's, in last
 * digits.
 *
 * Libraries take memory of their own: compiled code, OpenBLAS some 32 MiB of buffers for each thread, and
 * oneDNN a few small blocks in each call. What oneDNN needs for intermediate results is on the stack of the
 * calling thread, like that of tessera's own products. */
#ifndef TSR_KERNELS_LIBRARY_H
#define TSR_KERNELS_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef enum tsr__library_kind {
  TSR__LIBRARY_ONEDNN,   /* fp32 and bf16 */
  TSR__LIBRARY_OPENBLAS, /* fp32 */
  TSR__LIBRARY_COUNT
} tsr__library_kind;

typedef struct tsr__library tsr__library;

/* Load it. It stays in the process until that ends. Fails with TSR_ERROR_UNSUPPORTED, if it is not
 * installed, lacks what is needed, or, as OpenBLAS does, takes the processor for another one than it is; or
 * with TSR_ERROR_MEMORY. */
int tsr__library_open(tsr__library_kind kind, tsr__library **out, tsr_error *error);
/* Accepts NULL. No thread may be using the library. */
void tsr__library_free(tsr__library *library);
/* The name with the version: "oneDNN 2.6.3". Lives as long as the library. */
const char *tsr__library_name(const tsr__library *library);
tsr__library_kind tsr__library_kind_of(const tsr__library *library);

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
