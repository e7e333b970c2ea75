/* rewrite.h - changes a traced step without tracing it again: checkpoints modules, offloads what they save to the
 * host, or gives the optimizer another form.
 *
 * A slot lives as long as the program holds it or autograd has it saved. The graph contains both lifetimes
 * (docs/step-graph.md), so a save that is no longer made can be removed, and the remaining holders decide when the
 * slot is freed. */
#ifndef TSR_TRACED_REWRITE_H
#define TSR_TRACED_REWRITE_H

#include "traced/step_graph.h"

typedef enum tsr__rewrite {
  TSR__REWRITE_CHECKPOINT, /* torch.utils.checkpoint(..., use_reentrant=False) around each call */
  TSR__REWRITE_OFFLOAD     /* torch.autograd.graph.save_on_cpu() around each call */
} tsr__rewrite;

/* Modules by name or class, with * for any text. */
typedef struct tsr__rewrite_choice {
  const char *pattern;
  tsr__rewrite how;
} tsr__rewrite_choice;

/* Of each instruction, whether a call that has it cannot be rewritten. The caller frees it with tsr__free; NULL when out of memory.
 * O(instructions + frames). */
bool *tsr__step_graph_obstacles(const tsr__step_graph *g);

/* Among the first `count` ops that compute something, which are sorted, the first at an instruction or after it. */
size_t tsr__step_graph_first_work(const tsr__step_graph *g, size_t count, uint32_t place);

/* Why the module of modules[index] cannot run again in backward, as the end of a sentence about it; NULL if it can. */
const char *tsr__step_graph_once(const tsr__step_graph *g, size_t index);

/* Rewrite all calls in forward of the modules that are chosen; of modules within each other, the outer ones. `*out`
 * is a new graph, the caller's; `graph` stays. TSR_ERROR_ARGUMENT if a pattern matches no module, if the graph lacks
 * the necessary data, if a module runs backward or is checkpointed itself, if one to be checkpointed cannot run twice, or if a module or a
 * part of it is to be both; TSR_ERROR_FORMAT if the graph contradicts itself; TSR_ERROR_MEMORY. O(n log n), and for choices with *
 * O(modules * choices). */
int tsr__step_graph_rewrite(const tsr__step_graph *graph, const tsr__rewrite_choice *choices,
                            size_t count, tsr__step_graph **out, tsr_error *error);

/* How PyTorch's optimizers work: on lists of tensors, on one parameter after another, or in one kernel. */
typedef enum tsr__form_kind {
  TSR__OPTIMIZER_FOREACH,
  TSR__OPTIMIZER_LOOP,
  TSR__OPTIMIZER_FUSED,
  TSR__OPTIMIZER_FORMS
} tsr__form_kind;

/* Each optimizer of the step in this form. As above; TSR_ERROR_ARGUMENT also if one does not have it. O(n). */
int tsr__step_graph_with_form(const tsr__step_graph *graph, tsr__form_kind form,
                              tsr__step_graph **out, tsr_error *error);

#endif
