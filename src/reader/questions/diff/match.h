/* match.h - which stacks of two snapshots match? */
#ifndef TSR_QUESTIONS_DIFF_MATCH_H
#define TSR_QUESTIONS_DIFF_MATCH_H

#include "base/error.h"
#include "tessera/unstable/columns.h"

/* A number that equal stacks of a pair of snapshots share, and no others. */
typedef struct tsr__match {
  uint32_t *old_class, *new_class; /* by stack id */
  uint32_t class_count;            /* classes run from 0 to class_count - 1 */
  bool *is_moved;                  /* by class: its stacks are the same but for lines and paths */
} tsr__match;

/* Two stacks match if they have the same frames in the same order: function, file and
 * line. Stacks that only one side has also match if the program's own frames
 * and those of libraries are the same functions in files of the same names, and the outermost
 * operation is the same: lines move, folders are renamed, PyTorch and Python change. Time and memory are linear in frames, and in the depth of all stacks. `out` is released by
 * tsr__match_release, also when zeroed. Fails with TSR_ERROR_MEMORY. */
int tsr__match_compute(const tsr_snapshot *old_snapshot, const tsr_snapshot *new_snapshot,
                       tsr__match *out, tsr_error *error);
void tsr__match_release(tsr__match *match);

/* A line of code, named as TSR__LABEL_LINE names it. */
typedef struct tsr__line {
  const char *name;
  uint8_t sides; /* 1: the old side has it, 2: the new one, 3: both; 0: neither */
  uint32_t into; /* out: the line whose row it is in: one of the new side, or itself */
} tsr__line;

/* Fill `into`. Lines that one side alone has match if file name and functions are the same: in order if
 * both sides have the same number of them, otherwise all become one row. Time is O(count log count).
 * Fails with TSR_ERROR_MEMORY. */
int tsr__match_lines(tsr__line *lines, uint32_t count, tsr_error *error);

#endif
