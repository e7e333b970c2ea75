/* batches.c - see batches.h. */
#include "train/batches.h"

#include <assert.h>

#include "base/checked.h"
#include "base/memory.h"
#include "kernels/random.h"

/* Tokens that are checked before the run; later ones are checked when they are read. */
#define CHECKED_TOKENS (UINT64_C(1) << 28)

static int check(const tsr__batches *b, tsr_error *error) {
  unsigned long long count = b->tokens.count, sequence = b->sequence;
  if (sequence < 2)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "a sequence of one token has nothing to predict: at least 2 are needed");
  if (count < sequence)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "the data has %llu tokens, fewer than a sequence of %llu", count, sequence);
  if (b->is_sequential && (count - 1) / b->batch < sequence - 1)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "the data has %llu tokens, fewer than a batch of %llu sequences in order",
                     count, (unsigned long long)b->batch);
  return tsr__tokens_check(&b->tokens, CHECKED_TOKENS, error);
}

int tsr__batches_init(tsr__batches *b, tsr_error *error) {
  assert(b->batch && b->sequence && b->accumulate && !b->ids);
  int status = check(b, error);
  if (status) return status;
  b->ids = TSR__NEW_ARRAY(int64_t, b->accumulate * b->batch * b->sequence);
  return b->ids ? 0 : tsr__fail_memory(error);
}

/* The distance in tokens between the starts of two consecutive batches. */
static uint64_t batch_tokens(const tsr__batches *b) {
  return b->batch * (b->sequence - 1);
}

static uint64_t place_in_order(const tsr__batches *b, uint64_t number) {
  uint64_t batches = (b->tokens.count - 1) / batch_tokens(b);
  assert(batches);
  return number / b->batch % batches * batch_tokens(b) + number % b->batch * (b->sequence - 1);
}

/* Where sequence `number` of the run starts. A random number has only 32 bits, so two are combined. */
static uint64_t place_of(const tsr__batches *b, uint64_t number) {
  double random[2];
  uint64_t places = b->tokens.count - b->sequence + 1;
  if (b->is_sequential) return place_in_order(b, number);
  tsr__random_uniform(b->key, 2 * number, 2, random);
  uint64_t place = (uint64_t)((random[0] + random[1] * 0x1p-32) * (double)places);
  return place < places ? place : places - 1; /* rounding, if there are more than 2^53 */
}

int tsr__batches_read(tsr__batches *b, uint64_t step, tsr_error *error) {
  uint64_t rows = b->accumulate * b->batch, ranks = b->ranks ? b->ranks : 1;
  uint64_t first = ((step - 1) * ranks + b->rank) * rows;
  assert(step && b->ids);
  b->filled_bytes = 0;
  for (uint64_t row = 0; row < rows; row++) {
    int status = tsr__tokens_read(&b->tokens, place_of(b, first + row), (size_t)b->sequence,
                                  b->ids + row * b->sequence, error);
    if (status) return status;
    b->filled_bytes += b->sequence * sizeof *b->ids;
  }
  return 0;
}

const int64_t *tsr__batches_at(const tsr__batches *b, uint64_t micro_batch) {
  assert(b->ids && micro_batch < b->accumulate);
  return b->ids + micro_batch * b->batch * b->sequence;
}

void tsr__batches_release(tsr__batches *b) {
  tsr__tokens_release(&b->tokens);
  tsr__free(b->ids);
  b->ids = NULL;
}

/* ---- validation ---- */

#define VALIDATION_MOST_BYTES (UINT64_C(1) << 32)

/* Where sequence `number` of `count` starts: the first at the beginning of the data, the last so that it ends with it. */
static uint64_t spread(uint64_t number, uint64_t count, uint64_t last_place) {
  if (count < 2) return 0;
  uint64_t each = last_place / (count - 1), rest = last_place % (count - 1);
  return number * each + number * rest / (count - 1); /* rest < count <= 2^28: no overflow */
}

int tsr__validation_read(tsr__validation *v, tsr_error *error) {
  assert(v->sequence > 1 && v->batch && v->batches && !v->ids);
  if (v->tokens.count < v->sequence)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "the validation data has %llu tokens, fewer than a sequence of %llu",
                     (unsigned long long)v->tokens.count, (unsigned long long)v->sequence);
  uint64_t rows = tsr__product_u64(v->batches, v->batch);
  if (tsr__product_u64(rows, v->sequence * sizeof *v->ids) > VALIDATION_MOST_BYTES)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "%llu batches of %llu sequences are too many to evaluate: their tokens are "
                     "kept in memory, and take more than 4 GiB",
                     (unsigned long long)v->batches, (unsigned long long)v->batch);
  v->ids = TSR__NEW_ARRAY(int64_t, rows * v->sequence);
  if (!v->ids) return tsr__fail_memory(error);
  for (uint64_t row = 0; row < rows; row++) {
    uint64_t place = spread(row, rows, v->tokens.count - v->sequence);
    int status =
        tsr__tokens_read(&v->tokens, place, (size_t)v->sequence, v->ids + row * v->sequence, error);
    if (status) return status;
    v->filled_bytes += v->sequence * sizeof *v->ids;
  }
  return 0;
}

const int64_t *tsr__validation_at(const tsr__validation *v, uint64_t batch) {
  assert(v->ids && batch < v->batches);
  return v->ids + batch * v->batch * v->sequence;
}

void tsr__validation_release(tsr__validation *v) {
  tsr__tokens_release(&v->tokens);
  tsr__free(v->ids);
  v->ids = NULL;
}
