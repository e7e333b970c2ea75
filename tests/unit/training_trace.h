/* training_trace.h - traces of a small training run in which the purpose of every allocation is
 * known.
 *
 * A loop of data, forward, loss, backward, optimizer and zero_grad over a few layers, written as
 * JSON with the stacks that PyTorch records, and in each event's `category` the truth. Addresses are
 * never used twice, and one segment holds them all, so that a trace may be cut anywhere. */
#ifndef TSR_TEST_TRAINING_TRACE_H
#define TSR_TEST_TRAINING_TRACE_H

#include "tessera/unstable/columns.h"
#include "test_support.h"

/* Zeroed fields are features left out. */
typedef struct training {
  uint32_t layers, steps;
  bool checkpoint;   /* each layer is computed again in backward */
  bool autocast;     /* weights are cast for forward, and the casts kept for backward */
  bool is_fused;     /* the optimizer allocates its state, and nothing else */
  bool replaces;     /* the optimizer puts new parameters and state in the place of the old */
  bool adds_up;      /* two backward passes a step */
  bool python_only;  /* no C++ frames: none at all in backward */
  bool is_anonymous; /* frames whose names are no evidence */
  bool has_no_frames;
  bool varies;         /* the batch is of another size in each step */
  bool annotates;      /* Optimizer.step and ProfilerStep */
  uint32_t cut_events; /* this many at the start were not recorded */
  uint64_t leak_bytes; /* left behind in each step, from leak_from on, every leak_every steps */
  uint32_t leak_from, leak_every;
  uint32_t cache_steps; /* a cache keeps one allocation of each of this many last steps */
  uint32_t noise;       /* further temporaries a layer */
} training;

/* The run as a snapshot; the caller's to free. Whatever fails fails the test. */
tsr_snapshot *training_snapshot(const training *run);
/* The same, taken over from JSON text that ends in a zero, which is freed. */
char *training_json(const training *run);

#endif
