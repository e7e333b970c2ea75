/* tracer.h - follows where a program is, so that allocations get call stacks.
 *
 * The tape runs the same with and without a tracer; without one (NULL) allocations have no stacks, and
 * no strings are made at all. The one implementation is src/engine/torch, whose stacks look like PyTorch's.
 *
 *   program, tape, ops ──enter, leave, at, begin_op, node──► tracer
 *   tape, when memory changes ────────────stack────────────► tracer ──► id
 *   the writer of a snapshot ────────────parent───────────► its labels ──► frames
 *
 * Calls nest: each enter is followed by its leave, unless the tracer ran out of memory. After that
 * it does nothing, and `stack` returns false. */
#ifndef TSR_GRAPH_TRACER_H
#define TSR_GRAPH_TRACER_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/place.h"
#include "graph/schedule.h"

typedef struct tsr__tracer tsr__tracer;
struct tsr__op_step;

struct tsr__tracer {
  tsr__stack_labels labels; /* of the stacks that it has returned */
  /* The current function calls `place`, or returns to its caller. */
  void (*enter)(tsr__tracer *tracer, tsr__program_place place);
  void (*leave)(tsr__tracer *tracer);
  /* The current function has reached one of its own statements. */
  void (*at)(tsr__tracer *tracer, tsr__program_place place);
  /* It is about to run an op (a tsr__op_kind), or a phase of the step (a tsr__phase_kind) begins. */
  void (*begin_op)(tsr__tracer *tracer, uint32_t kind);
  void (*begin_phase)(tsr__tracer *tracer, uint32_t phase);
  /* Within TSR__PLACE_NODE: which autograd node runs from here on. */
  void (*node)(tsr__tracer *tracer, const char *node);
  /* A kernel step of an op's list is about to run, or has. */
  void (*begin_step)(tsr__tracer *tracer, const struct tsr__op_step *step);
  void (*end_step)(tsr__tracer *tracer);
  /* The current stack, under an allocation for `kernel`, or, for TSR__KERNEL_NONE, under a free. False
   * when out of memory. */
  bool (*stack)(tsr__tracer *tracer, tsr__kernel kernel, uint32_t *stack);
};

#endif
