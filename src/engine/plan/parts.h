/* parts.h - the calls of modules in a step graph: what each keeps for backward, and what it takes not to keep that. */
#ifndef TSR_PLAN_PARTS_H
#define TSR_PLAN_PARTS_H

#include "base/effort.h"
#include "exec/cost.h"
#include "traced/step_graph.h"

#define TSR__NO_PART SIZE_MAX

/* A call of a module. Texts live as long as the graph. */
typedef struct tsr__graph_part {
  const char *name, *kind; /* model.layers.0, LlamaDecoderLayer */
  size_t parent;           /* the innermost call that contains it, or TSR__NO_PART */
  size_t end_part;         /* the next call that it does not contain */
  bool is_fixed;           /* it cannot be rewritten */
  bool is_once;            /* it cannot run again, so it cannot be checkpointed */
  uint32_t begin, end;     /* instructions */
  uint32_t first_input;    /* the instruction that makes the oldest of its arguments, or TSR_NONE */
  uint64_t input_bytes;    /* of its arguments that the step makes */
  /* The bytes that would not be kept for backward if the module were checkpointed, or offloaded; and the seconds that
   * this costs. */
  uint64_t again_bytes, moved_bytes;
  double again_s, copies_s;
  double forward_s;
} tsr__graph_part;

typedef TSR__VECTOR(tsr__graph_part) tsr__graph_parts;

/* List the calls, in the order in which they begin. The caller frees `*out` with TSR__VECTOR_FREE, also after a failure, which is
 * TSR_ERROR_MEMORY or as tsr__effort_fail. O(instructions + calls * saves within them). */
int tsr__list_parts(const tsr__step_graph *graph, const tsr__machine_rates *rates,
                    tsr_effort *effort, tsr__graph_parts *out, tsr_error *error);

#endif
