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
  bool is_half;     /* products are of bf16 */
  bool is_possible; /* they are of types that oneDNN has */
  bool is_limited;  /* the instructions of own kernels are limited */
  uint64_t width;   /* of the model */
  uint64_t flops;   /* of the whole run */
  tsr__thread_pool *pool;
} tsr__products_question;

typedef struct tsr__products {
  tsr_train_products chosen;     /* not AUTO */
  tsr__library *library;         /* NULL: own kernels */
  char text[TSR__PRODUCTS_TEXT]; /* what was measured and chosen; empty if there was no question */
} tsr__products;

/* Choose. AUTO measures for about 100 ms; for a short run it chooses tessera's own kernels without measuring. Fails
 * as tsr__library_open does, if oneDNN is asked for by name. The caller releases `*out`. */
int tsr__products_choose(const tsr__products_question *question, tsr__products *out,
                         tsr_error *error);
void tsr__products_release(tsr__products *products);

#endif
