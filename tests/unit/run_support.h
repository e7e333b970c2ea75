/* run_support.h - a model's training step as a schedule, ready to be executed. */
#ifndef TSR_TEST_RUN_SUPPORT_H
#define TSR_TEST_RUN_SUPPORT_H

#include <string.h>

#include "exec/run.h"
#include "graph/validate.h"
#include "models/program.h"
#include "test_support.h"
#include "train/fill.h"

typedef struct training {
  tsr_model *model;
  tsr__tape tape; /* that recorded it, or could not */
  tsr__program program;
  tsr__schedule schedule;
  tsr__execute_options options;  /* batch and step are the test's, and perhaps context and load */
  const tsr__executor *executor; /* while it loads */
  uint64_t filled;               /* tensors */
} training;

/* Fill a tensor as a run does: see tsr__program_initials. */
static inline void training_fill(void *context, tsr__tensor_id tensor,
                                 const tsr__initial_value *initial) {
  training *t = context;
  tsr__fill(t->executor, tensor, initial, ++t->filled);
}

/* Fill all of them. */
static inline int training_load(void *context, const tsr__executor *executor, tsr_error *error) {
  training *t = context;
  (void)error;
  t->executor = executor;
  tsr__program_initials(&t->program, training_fill, t);
  return 0;
}

/* `json`: a config.json. `run` must outlive the training, which is closed either way. False if the options
 * do not suit the model, which is found before anything runs. */
static inline bool training_open(training *t, const char *json, const tsr_simulate_options *run,
                                 const tsr__plan *plan) {
  tsr_error error = {0};
  *t = (training){.model = NULL};
  if (tsr_model_read(json, strlen(json), &t->model, &error))
    fail_msg("%s: %s", json, error.message);
  assert_true(tsr__tape_init(&t->tape, &tsr__book_torch, NULL));
  int status = tsr__program_init(&t->program, t->model, run, plan, &t->tape, &error);
  if (status == 0) tsr__program_step(&t->program);
  if (status == 0) status = tsr__tape_finish(&t->tape, &t->schedule);
  if (status) {
    assert_true(status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED);
    return false;
  }
  tsr__violation violation;
  if (tsr__schedule_validate(&t->schedule, &violation)) fail_msg("%s: %s", json, violation.text);
  t->program.schedule = &t->schedule;
  t->options = (tsr__execute_options){.steps = 1,
                                      .seed = 1,
                                      .numbers = {.learning_rate = 1e-3,
                                                  .beta_1 = 0.9,
                                                  .beta_2 = 0.999,
                                                  .epsilon = 1e-8,
                                                  .decay = 0.01},
                                      .losses = t->program.losses.items,
                                      .loss_count = t->program.losses.count,
                                      .context = t,
                                      .load = training_load};
  return true;
}

static inline void training_close(training *t) {
  tsr__program_release(&t->program);
  tsr__tape_release(&t->tape);
  tsr__schedule_release(&t->schedule);
  tsr_model_free(t->model);
}

/* Call number(context, i, value) with each element i of a dense tensor, and if `writes`, let its result be the
 * element. */
static inline void each_element(const tsr__kernel_tensor *t, void *context, bool writes,
                                double (*number)(void *context, uint64_t i, double value)) {
  double value = 0;
  tsr__kernel_tensor own = {.data = &value,
                            .dtype = TSR__DTYPE_F64,
                            .layout = tsr__layout_dense((tsr__shape){.rank = 0})};
  uint64_t count = tsr__shape_elements(t->layout.shape);
  assert_non_null(t->data);
  assert_true(tsr__layout_is_dense(t->layout));
  for (uint64_t i = 0; i < count; i++) {
    tsr__kernel_tensor one = {.data = (char *)t->data + i * tsr__dtype_bytes(t->dtype),
                              .dtype = t->dtype,
                              .layout = own.layout};
    tsr__kernel_args read = {.reads = {one}, .writes = {own}};
    tsr__kernel_args write = {.reads = {own}, .writes = {one}};
    tsr__kernel_row_of(TSR__KERNEL_TO_COPY)->reference(&read);
    value = number(context, i, value);
    if (writes) tsr__kernel_row_of(TSR__KERNEL_TO_COPY)->reference(&write);
  }
}

#endif
