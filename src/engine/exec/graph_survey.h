/* graph_survey.h - the time of a step graph's step, the memory that every schedule of its ops needs, and what each of
 * its modules keeps for backward.
 *
 * A graph contains what holds each slot: the program, or only autograd (docs/step-graph.md). A slot that only
 * autograd holds, and that no node of backward is using, could be dropped and made again, or be on the host. All
 * other slots are needed, whatever modules keep. */
#ifndef TSR_EXEC_GRAPH_SURVEY_H
#define TSR_EXEC_GRAPH_SURVEY_H

#include "exec/survey.h"
#include "traced/step_graph.h"

/* Of a graph that was read, or rewritten: its ops, and copies while nothing else runs. O(ops). */
tsr__cost tsr__cost_of_graph(const tsr__step_graph *graph, const tsr__machine_rates *rates);

typedef struct tsr__graph_survey_options {
  const tsr__machine_rates *rates;
  uint64_t workspace_bytes; /* all of cuBLAS's, as allocated, beside the graph's own slots */
  bool may_recompute, may_offload;
} tsr__graph_survey_options;

/* Survey a graph that was read, as survey.h has it. An item costs the op that makes it again, or its copies if those take less. The
 * texts live as long as the graph. The caller releases `*out`, also after a failure, which is TSR_ERROR_MEMORY.
 * O(n log n), and quadratic in the kinds of items. */
int tsr__survey_graph(const tsr__step_graph *graph, const tsr__graph_survey_options *options,
                      tsr__survey *out, tsr_error *error);

#define TSR__NO_PART SIZE_MAX

/* A call of a module. Texts live as long as the graph. */
typedef struct tsr__graph_part {
  const char *name, *kind; /* model.layers.0, LlamaDecoderLayer */
  size_t parent;           /* the innermost call that contains it, or TSR__NO_PART */
  bool is_fixed;           /* it cannot be rewritten */
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
 * TSR_ERROR_MEMORY. O(calls * saves within them). */
int tsr__list_graph_parts(const tsr__step_graph *graph, const tsr__machine_rates *rates,
                          tsr__graph_parts *out, tsr_error *error);

#endif
