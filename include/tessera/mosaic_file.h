/* tessera/mosaic_file.h - Mosaic's analysis of one source file, answered as Mosaic answers it.
 *
 * The groups of Mosaic's peak (tessera/mosaic.h) are looked at for frames whose file has a name, the
 * part of its path behind the last '/'. Lines are looked up in the source by Mosaic's rules, which
 * know top-level classes, their methods, and top-level functions: nothing nested, nothing inside an
 * `if`, nothing `async`. A group all of whose lines lie outside those is in neither list, as in
 * Mosaic. tessera/source.h asks the same question better.
 */
#ifndef TESSERA_MOSAIC_FILE_H
#define TESSERA_MOSAIC_FILE_H

#include "tessera/mosaic.h"
#include "tessera/source.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Groups whose frames of the file have the same lines. The texts are the answer's own. */
typedef struct tsr_mosaic_file_row {
  tsr_text content;            /* of the innermost line that the source has something to say of */
  tsr_text lines;              /* of all its frames, innermost first: "432,520" */
  tsr_text classes, functions; /* of those the source has something to say of; "_" for none */
  size_t number;               /* 0 for the row of the largest group, 1 for that of the next, ... */
  uint64_t bytes;
  uint64_t occurrences; /* groups, not allocations */
} tsr_mosaic_file_row;

/* A group that is part of a row. */
typedef struct tsr_mosaic_file_stack {
  uint32_t stack;
  size_t row; /* index */
  uint64_t bytes;
} tsr_mosaic_file_stack;

/* A group that has no frame of the file. */
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
  tsr_text *source; /* its lines; they point into the text that was given */
  uint64_t *bytes;  /* by line from 0: of the rows whose first line it is */
  size_t source_count;
} tsr_mosaic_file;

/* Sort the groups of a peak by the lines of `file`, of whose path the part behind the last '/'
 * counts, and whose text must outlive the answer. `*out` is the caller's, for the function below. */
int tsr_mosaic_file_compute(const tsr_snapshot *snapshot, const tsr_mosaic_peak *peak,
                            const tsr_source_file *file, tsr_mosaic_file **out, tsr_error *error);
void tsr_mosaic_file_free(tsr_mosaic_file *analysis);

/* What Mosaic prints for one snapshot, `is_verbose` with all of its tables; for two; and what it
 * calls the augmented view, the source with bytes beside it. */
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
