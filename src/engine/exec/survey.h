/* survey.h - what one step consists of, read from its schedule: its time, what blocks keep, and the memory that every
 * schedule of the same kernels needs.
 *
 * A step, as recorded, keeps some tensors until backward. Another schedule may drop any tensor that a forward kernel
 * made, and make it again by running that kernel a second time. So two numbers hold for every schedule of these
 * kernels that has each kernel's backward once:
 *
 *   floor     the most that one moment needs, whatever is dropped: parameters, optimizer state, gradients and
 *             other results of backward that are still to be read, and the operands of the kernel that runs
 *   extra     at the moment at which the recorded step has most, what exceeds a budget has to be dropped, and what is
 *             dropped costs the kernel that makes it. The least sum is at least that of the fractional knapsack
 *             over these tensors: the cheapest for their bytes first, the last one in part
 *
 * A schedule without kernels contains what autograd holds instead (docs/step-graph.md). A slot that only autograd holds, and
 * that no node of backward is using, could be dropped and made again, or be on the host; all others are needed.
 *
 * Sums over ranks are begun and awaited where the step has them, and what they need until then counts.
 *
 * Bytes are those of blocks without tails, as they are on the device at least: multiples of 512. */
#ifndef TSR_EXEC_SURVEY_H
#define TSR_EXEC_SURVEY_H

#include "exec/cost.h"
#include "exec/dry.h"

/* Tensors that could be dropped and made again, at the moment at which most is live; equal ones are one item. */
typedef struct tsr__survey_item {
  const char *op, *kernel; /* that makes it; static texts, "" if none */
  uint64_t bytes, count;   /* of one; how many */
  double seconds;          /* of the kernel, for one */
} tsr__survey_item;

/* What is needed at the moment of the floor. */
typedef struct tsr__survey_need {
  tsr_category category;
  const char *op, *kernel; /* "": there from the start, or of parameters */
  uint64_t bytes;          /* all together */
} tsr__survey_need;

typedef struct tsr__survey {
  tsr__cost cost;           /* zeros without rates */
  uint64_t forward_bytes;   /* made by the step, and live at the end of its first forward */
  uint64_t fixed_bytes;     /* there before the step, or made once */
  uint64_t parameter_bytes; /* on any device */
  uint64_t sent_bytes;      /* to other ranks */
  uint64_t most_bytes;      /* the most that is live and needed at once */
  uint64_t repeats;         /* backward passes for which that holds, each with tensors of its own */
  uint64_t floor_bytes;
  uint64_t host_bytes; /* the most on the host at once, without what backward needs */
  const char *floor_phase, *floor_op;
  TSR__VECTOR(tsr__survey_item) items; /* with the bytes of each, part of most_bytes */
  TSR__VECTOR(tsr__survey_need) needs; /* floor_bytes, the largest first */
} tsr__survey;

typedef struct tsr__survey_options {
  const tsr__machine_rates *rates; /* NULL: without times */
  bool
      sums_only; /* without the most, the floor, their lists and the host, which take longest to find */
  /* What may be done with memory that only autograd holds, if the schedule lists it: make it again, or copy it to the host,
   * whichever takes less time. */
  bool may_recompute, may_offload;
} tsr__survey_options;

/* Survey a schedule. What is made in the first step only counts as there from the start. Texts live as long as the
 * schedule's labels. The caller releases `*out`, also after a failure, which is TSR_ERROR_MEMORY. O(n log n) for
 * instructions and operands, and quadratic in the kinds of items. */
int tsr__survey_schedule(const tsr__schedule *schedule, const tsr__survey_options *options,
                         tsr__survey *out, tsr_error *error);
/* Zeroed is fine. */
void tsr__survey_release(tsr__survey *survey);

/* Seconds that any schedule takes beyond the recorded one, if it is to have at most `budget_bytes` live. Negative if
 * none can: the items are not enough, or the floor is above. O(items squared). */
double tsr__survey_extra(const tsr__survey *survey, uint64_t budget_bytes);

#endif
