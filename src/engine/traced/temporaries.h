/* temporaries.h - what CUDA kernels of PyTorch allocate while they run, by op: fake tensors cannot show it.
 *
 * A dated table. Each row says which file of PyTorch its sizes are from, and as of when. The file of a step graph lists the calls of these
 * ops with their sizes (docs/step-graph.md, `kernels`); from then on their temporaries are slots and instructions like all others. */
#ifndef TSR_TRACED_TEMPORARIES_H
#define TSR_TRACED_TEMPORARIES_H

#include "traced/step_graph.h"

enum { TSR__KERNEL_SIZES = 7, TSR__KERNEL_TEMPORARIES = 4 };

/* Bytes of a temporary; saturates. `bits`: of an element of the op's tensors. */
typedef uint64_t tsr__temporary_fn(const uint64_t *sizes, uint64_t bits);

typedef struct tsr__temporary {
  tsr__temporary_fn *bytes;
  bool is_before; /* allocated before the op's results, not after them */
  uint8_t until;  /* the temporary after whose allocation this one is freed; 0: at the end */
} tsr__temporary;

/* The kernels of an op for elements of one size. */
typedef struct tsr__temporaries {
  const char *op;
  uint8_t bits;       /* of an element; 0: any */
  uint8_t size_count; /* in the file */
  uint8_t count;
  tsr__temporary items[TSR__KERNEL_TEMPORARIES]; /* in the order in which they are allocated */
  const char *source, *as_of;
} tsr__temporaries;

/* The row of an op; NULL if it has none, because its kernels allocate nothing or because it is not known what. O(rows). */
const tsr__temporaries *tsr__temporaries_of(const char *op, uint64_t bits);

/* A call of such an op. Its results are allocated by the instructions from `begin` to `end` - 1. */
typedef struct tsr__kernel_call {
  uint32_t begin, end;
  const tsr__temporaries *row;
  uint64_t bytes[TSR__KERNEL_TEMPORARIES]; /* 0: not allocated, because there are no elements */
} tsr__kernel_call;

/* Insert the temporaries of `calls`, which are in order and do not overlap, into a graph that has just been read, and move all places in it
 * accordingly. What happens at the place where a call begins happens before its temporaries, and what happens where it ends after them.
 * False without memory; the graph can then only be freed. O(graph). */
bool tsr__step_graph_add_temporaries(tsr__step_graph *graph, const tsr__kernel_call *calls,
                                     size_t count);

#endif
