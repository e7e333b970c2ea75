/* tessera/unstable/mosaic_file.h - Mosaic's analysis of one source file, with Mosaic's answer.
 *
 * The groups of Mosaic's peak (tessera/unstable/mosaic.h) are searched for frames whose file has the given
 * name, the part of its path after the last '/'. Lines are looked up in the source by Mosaic's rules,
 * which recognize top-level classes, their methods, and top-level functions: nothing nested, nothing
 * inside an `if`, nothing `async`. A group whose lines are all outside of these is in neither list, as
 * in Mosaic. tessera/unstable/source.h has a better answer to the same question.
 */
#ifndef TESSERA_UNSTABLE_MOSAIC_FILE_H
#define TESSERA_UNSTABLE_MOSAIC_FILE_H

#include "tessera/unstable/mosaic.h"
#include "tessera/unstable/source.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Groups whose frames in the file have the same lines. The texts are owned by the answer. */
typedef struct tsr_mosaic_file_row {
  tsr_text content;            /* text of the innermost line that is inside a class or function */
  tsr_text lines;              /* of all its frames, innermost first: "432,520" */
  tsr_text classes, functions; /* of the lines that are inside one; "_" for none */
  size_t number;               /* 0 for the row of the largest group, 1 for the next, ... */
  uint64_t bytes;
  uint64_t occurrences; /* groups, not allocations */
} tsr_mosaic_file_row;

/* A group that is part of a row. */
typedef struct tsr_mosaic_file_stack {
  uint32_t stack;
  size_t row; /* index */
  uint64_t bytes;
} tsr_mosaic_file_stack;

/* A group that has no frame in the file. */
typedef struct tsr_mosaic_file_other {
  uint32_t stack;
  uint64_t bytes;
} tsr_mosaic_file_other;

/* All lists are sorted by bytes, largest first. */
typedef struct tsr_mosaic_file {
  tsr_mosaic_file_row *rows;
  size_t row_count;
  tsr_mosaic_file_stack *stacks;
  size_t stack_count;
  tsr_mosaic_file_other *others;
  size_t other_count;
  tsr_text *source; /* its lines; they point into the caller's text */
  uint64_t *bytes;  /* by line, from 0: bytes of the rows whose first line it is */
  size_t source_count;
} tsr_mosaic_file;

/* Sort the groups of a peak by the lines of `file`. Only the part of its path after the last '/'
 * counts, and its text must outlive the answer. The caller owns `*out` and passes it to
 * tsr_mosaic_file_free. */
int tsr_mosaic_file_compute(tsr_study *study, const tsr_mosaic_peak *peak,
                            const tsr_source_file *file, tsr_mosaic_file **out, tsr_error *error);
void tsr_mosaic_file_free(tsr_mosaic_file *analysis);

/* What Mosaic prints for one snapshot (with `is_verbose` all of its tables), for two, and what it
 * calls the augmented view, the source with bytes next to its lines. */
int tsr_mosaic_print_file(const tsr_snapshot *snapshot, const tsr_mosaic_peak *peak,
                          const tsr_mosaic_file *analysis, bool is_verbose, tsr_write_fn *write,
                          void *context, tsr_error *error);
int tsr_mosaic_print_file_comparison(const tsr_mosaic_file *first, const tsr_mosaic_file *second,
                                     tsr_write_fn *write, void *context, tsr_error *error);
int tsr_mosaic_print_file_view(const tsr_mosaic_file *analysis, tsr_write_fn *write, void *context,
                               tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
