/* tessera/source.h - what the lines, functions and classes of one source file hold at the peak.
 *
 * The caller gives the file's name and its text, which need not be on this machine's disk. Frames of
 * the snapshot belong to it when their file has the same base name; where several files of the
 * snapshot have it, the one whose path agrees longest from the end is meant.
 *
 *   self        bytes of the stacks whose innermost frame of the file is there
 *   inclusive   bytes of the stacks that have any frame of the file there, counted once a stack
 *
 * A line belongs to the innermost function or class around it. A function's self leaves out the
 * functions inside it; a class's counts all that lies in it.
 */
#ifndef TESSERA_SOURCE_H
#define TESSERA_SOURCE_H

#include "tessera/answers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A source file: Python, in any encoding that has ASCII in it. */
typedef struct tsr_source_file {
  const char *path; /* its name, perhaps with folders */
  const char *text; /* may hold any bytes */
  size_t size_bytes;
} tsr_source_file;

/* What a place in the file holds: requested bytes, and how many allocations. */
typedef struct tsr_source_use {
  uint64_t self_bytes, self_allocations;
  uint64_t inclusive_bytes, inclusive_allocations;
} tsr_source_use;

/* A function or class. */
typedef struct tsr_source_definition {
  const char *name; /* with what is around it: "Block.forward"; the answer's own */
  bool is_class;
  uint32_t parent;                /* index of what is directly around it, or TSR_NONE */
  uint32_t first_line, last_line; /* from its `def` or `class` to its last statement, from 1 */
} tsr_source_definition;

typedef struct tsr_source_line {
  uint32_t line;       /* from 1; may lie beyond the end of the text */
  uint32_t definition; /* index of the innermost around it, or TSR_NONE */
  tsr_source_use use;
} tsr_source_line;

typedef struct tsr_source_device {
  uint32_t device;
  uint64_t event_count;
  tsr_moment peak;        /* as in tsr_peak_device */
  tsr_source_use whole;   /* of the file, wherever in it; its self is its inclusive */
  tsr_source_line *lines; /* those that hold something, ascending */
  size_t line_count;
  tsr_source_use *uses; /* by definition */
  /* Indexes of lines, and of definitions that are functions and classes, that hold something: most
   * self bytes first, then most inclusive ones; cut to tsr_query.top. */
  uint32_t *top_lines, *top_functions, *top_classes;
  size_t top_line_count, top_function_count, top_class_count;
  uint64_t omitted_lines, omitted_functions, omitted_classes;
  tsr_warning *warnings; /* where trace and segments disagree */
  size_t warning_count;
} tsr_source_device;

typedef struct tsr_source {
  uint32_t file;         /* string id of the snapshot's name for the file, TSR_NONE: it has none */
  uint32_t *other_files; /* other files of that base name, which are left out */
  size_t other_count;
  tsr_text *text; /* by line, from 0, without the line's end; the answer's own */
  size_t text_count;
  tsr_source_definition *definitions; /* in the order of the file */
  size_t definition_count;
  /* Does the text fit? Lines of the file that the snapshot mentions anywhere, those that the text
   * does not have, and those that lie in another function than the snapshot says. */
  uint64_t mentioned_lines, beyond_lines, other_lines;
  uint32_t beyond_line;      /* the last of those beyond */
  uint32_t other_line;       /* the first of those elsewhere, */
  uint32_t other_name;       /* the string id of the function the snapshot says it is in, */
  uint32_t other_definition; /* and the definition that it is in, or TSR_NONE */
  tsr_source_device *devices;
  size_t device_count;
} tsr_source;

/* Tell what the file holds at the peak of each device the query means; `*out` is the caller's, to be
 * given to the function below. Time is linear in events, the text, and the frames of distinct
 * stacks. Fails with TSR_ERROR_MEMORY, _ARGUMENT, or _LIMIT for a text of 4 GiB or more. */
int tsr_source_compute(const tsr_snapshot *snapshot, const tsr_source_file *file,
                       const tsr_query *query, tsr_source **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_source_free(tsr_source *source);

/* ---- two snapshots, one file ---- */

/* A line, function or class and what it holds in the first and in the second. */
typedef struct tsr_source_change {
  uint32_t index;      /* line from 1, or definition */
  uint32_t definition; /* the definition, or the innermost one around the line, or TSR_NONE */
  tsr_source_use first, second;
} tsr_source_change;

typedef struct tsr_source_pair {
  uint32_t device;
  const tsr_source_device *first, *second; /* NULL where that snapshot does not have the device */
  /* All that holds something on either side: the largest difference of self bytes first, then of
   * inclusive ones; cut to tsr_query.top. */
  tsr_source_change *lines, *functions, *classes;
  size_t line_count, function_count, class_count;
  uint64_t omitted_lines, omitted_functions, omitted_classes;
} tsr_source_pair;

typedef struct tsr_source_comparison {
  tsr_source *first, *second; /* the sides, uncut */
  tsr_source_pair *devices;   /* of either side that the query means, ascending */
  size_t device_count;
} tsr_source_comparison;

/* Ask both snapshots the same and put the answers side by side, by line and definition. Devices that
 * the query names may lack on one side, not on both. As tsr_source_compute otherwise. */
int tsr_source_compare(const tsr_snapshot *first, const tsr_snapshot *second,
                       const tsr_source_file *file, const tsr_query *query,
                       tsr_source_comparison **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_source_comparison_free(tsr_source_comparison *comparison);

#ifdef __cplusplus
}
#endif
#endif
