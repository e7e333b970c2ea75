/* stack_tree.h - the stacks of a ranked list as one tree, for people. */
#ifndef TSR_QUESTIONS_SHARED_STACK_TREE_H
#define TSR_QUESTIONS_SHARED_STACK_TREE_H

#include "questions/shared/moment.h"
#include "stacks/stacks.h"

/* Print the stacks of the list's rows as one tree, outermost frames first, in at most `most_lines` lines, 0 for
 * no limit. Frames that several stacks share are one branch, with the bytes and allocations of those
 * rows; where a stack ends, the row's number stands. Rows that do not fit are left out, the smallest
 * first, and one of the lines states how many are missing. Returns how many lines it printed. Prints nothing if no row has a stack, if there is no room, or in
 * JSON. When out of memory the emitter reports it. Time is linear in the stacks' frames times the
 * branches of a node. */
size_t tsr__print_stack_tree(tsr__stack_printer *printer, const tsr__share_list *shares,
                             size_t most_lines);

#endif
