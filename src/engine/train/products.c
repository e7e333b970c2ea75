/* products.c - see products.h.
 *
 * The last digits of a library's results differ from tessera's, so a choice that varied between runs would make their
 * results vary. oneDNN is therefore used only if it is clearly faster, by more than the noise of a measurement on
 * an idle machine; the choice is printed, and saved with the run. Runs of a few seconds are not measured at all. */
#include "train/products.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/os.h"
#include "kernels/fast.h"

enum { ROWS = 256, WIDEST = 1024, LEAST_ROUNDS = 3, MOST_ROUNDS = 40, ROUND_NS = 10000000 };

#define MEASURED_FLOPS UINT64_C(4000000000000) /* shorter runs do not gain what measuring costs */
#define CLEARLY        1.25                    /* how much faster a library must be */

/* A product like those of the model's MLP. */
typedef struct trial {
  tsr__kernel_args args;
  uint64_t flops;
} trial;

static void release_trial(trial *t) {
  tsr__free(t->args.reads[0].data);
  tsr__free(t->args.reads[1].data);
  tsr__free(t->args.writes[0].data);
}

static tsr__kernel_tensor matrix(tsr__dtype dtype, uint64_t rows, uint64_t columns) {
  return (tsr__kernel_tensor){.data = tsr__calloc(rows * columns, (size_t)tsr__dtype_bytes(dtype)),
                              .dtype = dtype,
                              .layout = tsr__layout_dense(TSR__SHAPE(rows, columns))};
}

static bool init_trial(const tsr__products_question *q, trial *t) {
  uint64_t width = q->width < WIDEST ? q->width : WIDEST;
  tsr__dtype dtype = q->is_half ? TSR__DTYPE_BF16 : TSR__DTYPE_F32;
  *t = (trial){.args.pool = q->pool, .flops = 2 * ROWS * width * 4 * width};
  t->args.reads[0] = matrix(dtype, ROWS, width);
  t->args.reads[1] = matrix(dtype, width, 4 * width);
  t->args.writes[0] = matrix(TSR__DTYPE_F32, ROWS, 4 * width);
  return t->args.reads[0].data && t->args.reads[1].data && t->args.writes[0].data;
}

/* The speed in GFLOP/s, in the fastest of some rounds. */
static double speed(trial *t, tsr__library *library) {
  uint64_t best = UINT64_MAX, start = tsr__os_time_ns(), now = start;
  tsr__kernel_fn *multiply = tsr__kernel_fast(TSR__KERNEL_MM, tsr__isa_best());
  t->args.library = library;
  for (int i = 0; i < MOST_ROUNDS && (i < LEAST_ROUNDS || now - start < ROUND_NS); i++) {
    uint64_t before = tsr__os_time_ns();
    multiply(&t->args);
    now = tsr__os_time_ns();
    if (now - before < best) best = now - before;
  }
  return best ? (double)t->flops / (double)best : 0;
}

static int measure(const tsr__products_question *q, tsr__products *out, tsr_error *error) {
  char other_text[TSR__PRODUCTS_TEXT / 2] = "";
  const char *name = "tessera's own kernels";
  trial t;
  int status = init_trial(q, &t) ? 0 : tsr__fail_memory(error);
  if (status == 0) {
    double own = speed(&t, NULL);
    tsr__library *library = NULL;
    if (tsr__library_open(&library, NULL) == 0) {
      double other = speed(&t, library);
      (void)snprintf(other_text, sizeof other_text, ", %s %.0f", tsr__library_name(library), other);
      if (other > CLEARLY * own) {
        name = tsr__library_name(library);
        out->library = library;
        out->chosen = TSR_TRAIN_PRODUCTS_ONEDNN;
      } else {
        tsr__library_free(library);
      }
    }
    (void)snprintf(out->text, sizeof out->text, "%s (measured: own %.0f GFLOP/s%s)", name, own,
                   other_text);
  }
  release_trial(&t);
  return status;
}

static int open_wanted(const tsr__products_question *q, tsr__products *out, tsr_error *error) {
  if (!q->is_possible)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "oneDNN does not multiply numbers of this type");
  int status = tsr__library_open(&out->library, error);
  if (status == 0)
    (void)snprintf(out->text, sizeof out->text, "%s", tsr__library_name(out->library));
  return status;
}

int tsr__products_choose(const tsr__products_question *q, tsr__products *out, tsr_error *error) {
  *out = (tsr__products){.chosen = TSR_TRAIN_PRODUCTS_OWN};
  switch (q->wanted) {
  case TSR_TRAIN_PRODUCTS_AUTO:
    if (!q->is_possible || q->is_limited || q->flops < MEASURED_FLOPS) return 0;
    return measure(q, out, error);
  case TSR_TRAIN_PRODUCTS_OWN: return 0;
  case TSR_TRAIN_PRODUCTS_ONEDNN: out->chosen = q->wanted; return open_wanted(q, out, error);
  }
  assert(false);
  return 0;
}

void tsr__products_release(tsr__products *products) {
  tsr__library_free(products->library);
  products->library = NULL;
}
