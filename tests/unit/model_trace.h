/* model_trace.h - traces that the allocator model made, and what the model knows of them.
 *
 * A model_trace drives a tsr_allocator and keeps what PyTorch would have recorded, next to what
 * PyTorch does not record: the totals after every event, and the true size of every block. Written
 * out as a snapshot and read again, it is a file whose every answer is known.
 *
 *   model_trace m = {0};
 *   model_random(&m, &(model_program){.operations = 1000});
 *   tsr_snapshot *snapshot = model_snapshot(&m, 1, NULL);
 *
 * and, at last, tsr_snapshot_free and model_release. Whatever fails fails the test. */
#ifndef TSR_TEST_MODEL_TRACE_H
#define TSR_TEST_MODEL_TRACE_H

#include "base/map.h"
#include "base/vector.h"
#include "tessera/allocator.h"
#include "tessera/unstable/answers.h"
#include "test_support.h"

#define MODEL_MIB (UINT64_C(1) << 20)

/* One event, and the state after it. */
typedef struct model_event {
  tsr_allocator_event event;
  int64_t time_us;
  tsr_totals after;
  uint64_t block_bytes;          /* true size of the block, for alloc and free events */
  uint64_t live_count, live_sum; /* of what is live: how many, and a sum over model_mark of each */
} model_event;

typedef enum model_call_kind {
  MODEL_MALLOC,
  MODEL_FREE,
  MODEL_COMPLETE, /* what a stream had to do is done */
  MODEL_EMPTY,    /* empty_cache, that gave something back */
  MODEL_WAIT      /* empty_cache, that gave nothing back: all streams are done */
} model_call_kind;

/* What the allocator was asked, to ask another one the same. */
typedef struct model_call {
  model_call_kind kind;
  uint32_t allocation;    /* MALLOC numbers them from 0; FREE names one */
  uint32_t used_on;       /* FREE: the stream that used it, plus 1; 0 for none */
  uint64_t bytes, stream; /* MALLOC; COMPLETE: the stream */
  tsr_pool pool;          /* MALLOC */
  uint64_t event;         /* MALLOC: its alloc event, where `is_served` */
  bool is_served;
} model_call;

/* What a random trace is made of. Zeroed fields are features left out. */
typedef struct model_program {
  const char *conf;              /* PYTORCH_CUDA_ALLOC_CONF */
  uint64_t rounding_extra_bytes; /* as Ascend adds */
  uint64_t capacity_bytes, memory_limit_bytes;
  uint64_t largest_bytes;           /* of a request; 0 = 24 MiB */
  uint32_t operations, live_target; /* 0 = 60 live allocations */
  uint32_t seed;
  uint32_t streams;     /* foreign ones; the default stream is always there */
  uint32_t wait_one_in; /* one of this many frees is of a block that another stream used */
  uint32_t pools;       /* private ones */
  bool ends_pools;      /* now and then they lose their users, so that their memory may go */
  uint32_t capture_one_in, empty_one_in; /* operations */
} model_program;

typedef struct model_trace {
  tsr_allocator *allocator;
  tsr_allocator_settings settings;
  TSR__VECTOR(model_event) events;
  TSR__VECTOR(model_call) calls;
  TSR__VECTOR(uint64_t) address; /* by allocation: where it is, 0 once freed or never served */
  model_event now;               /* totals and live set; the rest is unused */
  tsr__map block_bytes;          /* address -> size of the block in use there */
  int64_t clock_us;
  uint64_t random;
  uint32_t capture_depth;
} model_trace;

/* What an allocation adds to live_sum. */
uint64_t model_mark(uint64_t address, uint64_t requested_bytes);

/* ---- making one ---- */

/* Begin, by hand; the program's operations are not run. */
void model_start(model_trace *m, const model_program *program);
/* Allocate: the allocation's number, or TSR_NONE when the device has no more. */
uint32_t model_malloc(model_trace *m, uint64_t bytes, uint64_t stream, tsr_pool pool);
/* Free an allocation, which `used_on` (a stream plus 1; 0 for none) has used too. */
void model_free(model_trace *m, uint32_t allocation, uint32_t used_on);
void model_complete(model_trace *m, uint64_t stream);
void model_empty(model_trace *m);
/* Begin and run a random program. */
void model_random(model_trace *m, const model_program *program);
/* Insert an event that did not happen: the totals no longer fit then. */
void model_insert(model_trace *m, size_t index, tsr_allocator_event event);
void model_release(model_trace *m);

/* ---- as a snapshot ---- */

typedef struct model_form {
  uint64_t cut_events;       /* this many events at the start were lost: a late recording or a full
                              * ring */
  bool drops_pool_id;        /* of events, as releases before 2.12 do */
  bool drops_settings;       /* as old releases and Ascend do */
  const char *more_segments; /* JSON of further segments, each with a comma before it */
} model_form;

/* The snapshot of devices 0 .. count - 1, taken at the end of each trace. */
tsr_snapshot *model_snapshot(const model_trace *traces, size_t count, const model_form *form);
/* The same, written as a pickle and read again. */
tsr_snapshot *model_reread(const tsr_snapshot *snapshot);

#endif
