/* products.h - what multiplies matrices in a run: tessera's own kernels, or oneDNN. */
#ifndef TSR_TRAIN_PRODUCTS_H
#define TSR_TRAIN_PRODUCTS_H

#include "base/pool.h"
#include "kernels/library.h"
#include "tessera/unstable/training.h"

enum { TSR__PRODUCTS_TEXT = 256 };

/* What the choice depends on. */
typedef struct tsr__products_question {
  tsr_train_products wanted;
  bool is_half;     /* products are in bf16 */
  bool is_possible; /* oneDNN supports the types of the products */
  bool is_limited;  /* the instruction set of tessera's kernels is limited */
  uint64_t width;   /* of the model */
  uint64_t flops;   /* of the complete run */
  tsr__thread_pool *pool;
} tsr__products_question;

typedef struct tsr__products {
  tsr_train_products chosen;     /* never AUTO */
  tsr__library *library;         /* NULL selects tessera's kernels */
  char text[TSR__PRODUCTS_TEXT]; /* what was measured and chosen; empty if nothing was measured */
} tsr__products;

/* Choose. AUTO measures for about 100 ms; for a short run it chooses tessera's kernels without measuring. Fails as
 * tsr__library_open does if oneDNN was requested by name. The caller releases `*out`. */
int tsr__products_choose(const tsr__products_question *question, tsr__products *out,
                         tsr_error *error);
void tsr__products_release(tsr__products *products);

#endif
