/* validate.h - checks that a program could be run: every kernel gets what it needs, and writes what others need.
 *
 * The validator walks a finished schedule as an executor would, without data, and checks
 *
 *   memory      what a kernel touches is there, views are within their storage, and a kernel's
 *               operands and results share memory only as its row allows
 *   data flow   what is read has been written, element by element; memory is written in full before it
 *               is released, so loops over slices cover the whole; results are used; backward reads
 *               only what forward saved, and gradients
 *   kernels     operands, results and numbers are as many as the kernel's row asks for, shapes fit, and
 *               random numbers have a key
 *
 * Static storage (parameters, buffers) counts as written; what the program holds when the step ends counts as used.
 * The validator stops at the first violation. */
#ifndef TSR_GRAPH_VALIDATE_H
#define TSR_GRAPH_VALIDATE_H

#include "graph/schedule.h"

typedef enum tsr__violation_rule {
  TSR__VIOLATION_NONE,
  TSR__VIOLATION_ABSENT,    /* memory that is not there */
  TSR__VIOLATION_BOUNDS,    /* a view beyond its storage */
  TSR__VIOLATION_ALIAS,     /* operands and results share memory */
  TSR__VIOLATION_UNWRITTEN, /* read before it is written */
  TSR__VIOLATION_PARTIAL,   /* released before all of it is written */
  TSR__VIOLATION_UNUSED,    /* a kernel whose results nobody reads */
  TSR__VIOLATION_UNSAVED,   /* backward reads what forward did not save */
  TSR__VIOLATION_READS,     /* too few or too many operands, */
  TSR__VIOLATION_WRITES,    /* results, */
  TSR__VIOLATION_SCRATCH,   /* tensors of scratch memory, */
  TSR__VIOLATION_SCALARS,   /* numbers */
  TSR__VIOLATION_RANDOM,    /* random numbers without a key, or a key without them */
  TSR__VIOLATION_SHAPE,     /* shapes that do not fit */
  TSR__VIOLATION_SPACE,     /* memory in another space than the kernel's */
  TSR__VIOLATION_FLIGHT,    /* memory that a move is copying is used, or goes */
  TSR__VIOLATION_ONCE /* state that is made in every step, or anything else in the first only */
} tsr__violation_rule;

typedef struct tsr__violation {
  tsr__violation_rule rule;
  size_t instr; /* where in the schedule it was found; its length: at the end */
  char text[240];
} tsr__violation;

/* Check a finished schedule of kernels. 0, TSR_ERROR_ARGUMENT with the first
 * violation in `out`, or TSR_ERROR_MEMORY. Time: the schedule, and the pieces that slices leave. */
int tsr__schedule_validate(const tsr__schedule *schedule, tsr__violation *out);

#endif
