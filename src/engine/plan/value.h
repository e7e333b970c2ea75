/* value.h - a plan as a value: how a training is run, to be copied, compared and changed.
 *
 *   options   what a plan decides for the whole run (options.h)
 *   blocks    choices for ranges of blocks; of several that name a block, the last one counts
 *   modules   choices for modules of a step graph, by name
 *
 * JSON exists at the edge alone: codec.c reads a plan from a file or from parameters and writes its canonical text. The
 * search makes plans by copying one and setting options; such a plan has no text until tsr__run_plan_seal makes it.
 *
 * Invariants: saved tensors of a range are sorted by name; modules are sorted by what happens to them, then by name, and
 * occur once; all texts are in the plan's arena. Two plans are equal exactly if their canonical texts are. */
#ifndef TSR_PLAN_VALUE_H
#define TSR_PLAN_VALUE_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/vector.h"
#include "plan/options.h"
#include "tessera/unstable/plans.h"

struct tsr_run_plan {
  tsr_simulate_options options; /* of the rows of run options; all other fields are 0 */
  tsr__arena arena;             /* of what the lists point to */
  TSR__VECTOR(tsr_block_choice) blocks;
  TSR__VECTOR(tsr_module_choice) modules;
  tsr__buffer text; /* canonical, ends in a zero byte; empty until it is sealed */
  char hash[TSR_RUN_PLAN_HASH_BYTES];
};

/* A plan that chooses nothing. The caller owns it; NULL when out of memory. */
tsr_run_plan *tsr__run_plan_new(void);
/* A copy, not sealed. NULL when out of memory, and of NULL. O(size of the plan). */
tsr_run_plan *tsr__run_plan_copy(const tsr_run_plan *plan);
/* Whether both choose the same. O(size of the plans). */
bool tsr__run_plan_equal(const tsr_run_plan *a, const tsr_run_plan *b);
/* The same of the choices for blocks alone, and of modules with one choice. */
bool tsr__run_plan_same_blocks(const tsr_run_plan *a, const tsr_run_plan *b);
bool tsr__run_plan_same_modules(const tsr_run_plan *a, const tsr_run_plan *b, tsr_module_how how);
/* A number for tables: equal plans have equal ones. O(size of the plan). */
uint64_t tsr__run_plan_number(const tsr_run_plan *plan);

/* How many choices the plan has: options that are not default, ranges, and modules. */
size_t tsr__run_plan_size(const tsr_run_plan *plan);

/* Add a choice for a range of blocks, after those that the plan has. False when out of memory. */
bool tsr__run_plan_add_blocks(tsr_run_plan *plan, const tsr_block_choice *choice);
/* Add a choice for a module. False when out of memory. O(modules). */
bool tsr__run_plan_add_module(tsr_run_plan *plan, const char *name, tsr_module_how how);
/* Add the ranges, or the modules with one choice, of another plan. False when out of memory. */
bool tsr__run_plan_add_ranges_of(tsr_run_plan *plan, const tsr_run_plan *from);
bool tsr__run_plan_add_modules_of(tsr_run_plan *plan, const tsr_run_plan *from, tsr_module_how how);
/* How many modules have that choice. */
size_t tsr__run_plan_modules(const tsr_run_plan *plan, tsr_module_how how);
/* Remove the choices for blocks; for modules. */
void tsr__run_plan_clear_blocks(tsr_run_plan *plan);
void tsr__run_plan_clear_modules(tsr_run_plan *plan, tsr_module_how how);

/* ---- codec.c ---- */

/* Words of a plan file. */
const char *tsr__saved_word(tsr_saved_place place);
const char *tsr__module_key(tsr_module_how how);

/* Append the canonical text, without its newline. False when out of memory. O(size of the plan). */
bool tsr__run_plan_write(const tsr_run_plan *plan, tsr__buffer *out);
/* Make the canonical text and its hash: the plan must not change any more. TSR_ERROR_MEMORY. */
int tsr__run_plan_seal(tsr_run_plan *plan, tsr_error *error);

#endif
