/* step_graph.h - one training step of any PyTorch program, as tessera.trace() noted it.
 *
 *   step graph (JSON) ─► schedule ─► executors, as for a model
 *                    └─► stacks ─► labels
 *
 * A graph has no tensors and no kernels: which storages a step takes, when, in which phase, and the Python lines
 * that took them. What kernels allocate while they run is added as the file is read (temporaries.h).
 * docs/step-graph.md describes the file. */
#ifndef TSR_TRACED_STEP_GRAPH_H
#define TSR_TRACED_STEP_GRAPH_H

#include <jansson.h>

#include "graph/schedule.h"

enum { TSR__STEP_GRAPH_MOST_SLOTS = 1 << 22, TSR__STEP_GRAPH_MOST_FRAMES = 1 << 22 };

typedef struct tsr__step_graph tsr__step_graph;

/* Whether this is a step graph, of whatever version. */
bool tsr__step_graph_is(const json_t *root);
/* Whether a text that is not JSON begins as step graphs do, so that the message can say so: those that tessera.trace() writes have their
 * schema first. */
bool tsr__step_graph_begins(const char *text, size_t size_bytes);

/* Read one. Every index, size and order is checked: a slot is taken once and given back at most once, phases are
 * nested. TSR_ERROR_FORMAT, whose message names the place, TSR_ERROR_UNSUPPORTED for other versions, or
 * TSR_ERROR_MEMORY. On success *out is the caller's. O(size). */
int tsr__step_graph_read(const json_t *root, tsr__step_graph **out, tsr_error *error);
/* NULL is fine. */
void tsr__step_graph_free(tsr__step_graph *graph);

/* Make the schedule, with what cuBLAS takes for each workspace, `workspace_bytes`: before the step, or in a fresh process
 * with the first product that needs it. The graph must outlive it, because it has the labels. Fails with
 * TSR_ERROR_MEMORY. O(size). */
int tsr__step_graph_schedule(const tsr__step_graph *graph, uint64_t workspace_bytes, bool is_fresh,
                             tsr__schedule *out);
/* How many workspaces cuBLAS has: one for each thread, forward's or backward's, and stream that run matrix products. More than 64 are
 * not counted. O(instructions). */
size_t tsr__step_graph_workspaces(const tsr__step_graph *graph);

/* Whether PyTorch would choose other attention kernels on a card that has flash attention's, or has not: those of 16 bits. `had_flash`: the
 * card that it was traced for has them. O(texts and ops). */
bool tsr__step_graph_needs_kernels(const tsr__step_graph *graph, bool had_flash);

/* Whether the file does not contain what its ops compute. */
bool tsr__step_graph_assumes_work(const tsr__step_graph *graph);
/* Whether the file does not list the calls of kernels that allocate temporaries, as older ones don't. */
bool tsr__step_graph_lacks_kernels(const tsr__step_graph *graph);

/* Elements of the model's parameters. */
uint64_t tsr__step_graph_parameters(const tsr__step_graph *graph);
/* The card it was traced for, by the name of its data sheet; unknown ones are possible. */
const char *tsr__step_graph_gpu(const tsr__step_graph *graph);
/* Sentences about what the trace assumes, then NULL: how tokens were distributed to the experts of a mixture if sizes
 * depend on that, and that compiled code was traced uncompiled. */
const char *const *tsr__step_graph_notes(const tsr__step_graph *graph);
/* The optimizer's class, or "". */
const char *tsr__step_graph_optimizer(const tsr__step_graph *graph);

#endif
