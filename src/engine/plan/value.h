/* value.h - a plan as a value: how a training step is run. Plans can be copied, compared and changed.
 *
 *   options   what a plan decides for the whole run (options.h)
 *   blocks    choices for ranges of blocks; if several contain a block, the last one counts
 *   modules   choices for modules of a step graph, by name
 *
 * JSON exists only at the edge: codec.c reads a plan from a file or from parameters and writes its canonical text.
 * The search makes plans by copying one and setting options; such a plan has no text until tsr__run_plan_seal makes
 * it.
 *
 * Invariants: the saved tensors of a range are sorted by name; modules are sorted by choice, then by name, and
 * occur once per choice; all texts are in the plan's arena. Two plans are equal exactly if their canonical texts
 * are. */
#ifndef TSR_PLAN_VALUE_H
#define TSR_PLAN_VALUE_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/vector.h"
#include "plan/options.h"
#include "tessera/unstable/plans.h"

struct tsr_run_plan {
  tsr_simulate_options options; /* only the fields of run options are set; the rest is 0 */
  tsr__arena arena;             /* owns what the lists point to */
  TSR__VECTOR(tsr_block_choice) blocks;
  TSR__VECTOR(tsr_module_choice) modules;
  tsr__buffer text; /* canonical, ends in a zero byte; empty until the plan is sealed */
  char hash[TSR_RUN_PLAN_HASH_BYTES];
};

/* A plan without any choice. The caller owns it. NULL when out of memory. */
tsr_run_plan *tsr__run_plan_new(void);
/* A copy that is not sealed. NULL when out of memory, or if `plan` is NULL. O(size of the plan). */
tsr_run_plan *tsr__run_plan_copy(const tsr_run_plan *plan);
/* Whether both make the same choices. O(size of the plans). */
bool tsr__run_plan_equal(const tsr_run_plan *a, const tsr_run_plan *b);
/* Whether both make the same choices for blocks; for modules with one choice. */
bool tsr__run_plan_same_blocks(const tsr_run_plan *a, const tsr_run_plan *b);
bool tsr__run_plan_same_modules(const tsr_run_plan *a, const tsr_run_plan *b, tsr_module_how how);
/* A hash for tables: equal plans have equal numbers. O(size of the plan). */
uint64_t tsr__run_plan_number(const tsr_run_plan *plan);

/* The number of choices in the plan: options that are not default, ranges and modules. */
size_t tsr__run_plan_size(const tsr_run_plan *plan);

/* Add a choice for a range of blocks, after the existing ones. False when out of memory. */
bool tsr__run_plan_add_blocks(tsr_run_plan *plan, const tsr_block_choice *choice);
/* Add a choice for a module. False when out of memory. O(modules). */
bool tsr__run_plan_add_module(tsr_run_plan *plan, const char *name, tsr_module_how how);
/* Add the ranges, or the modules with one choice, of another plan. False when out of memory. */
bool tsr__run_plan_add_ranges_of(tsr_run_plan *plan, const tsr_run_plan *from);
bool tsr__run_plan_add_modules_of(tsr_run_plan *plan, const tsr_run_plan *from, tsr_module_how how);
/* The number of modules with that choice. */
size_t tsr__run_plan_modules(const tsr_run_plan *plan, tsr_module_how how);
/* Remove all choices for blocks; all modules with that choice. */
void tsr__run_plan_clear_blocks(tsr_run_plan *plan);
void tsr__run_plan_clear_modules(tsr_run_plan *plan, tsr_module_how how);

/* ---- codec.c ---- */

/* Words in a plan file. */
const char *tsr__saved_word(tsr_saved_place place);
const char *tsr__module_key(tsr_module_how how);

/* Append the canonical text, without its newline. False when out of memory. O(size of the plan). */
bool tsr__run_plan_write(const tsr_run_plan *plan, tsr__buffer *out);
/* Make the canonical text and its hash. The plan must not change afterwards. Returns 0, or TSR_ERROR_MEMORY. */
int tsr__run_plan_seal(tsr_run_plan *plan, tsr_error *error);

#endif
