/* tessera/unstable/source.h - what the lines, functions and classes of one source file hold at the peak.
 *
 * The caller provides the file's name and its text, which need not be on this machine's disk. Frames
 * of the snapshot belong to it if their file has the same base name. If several files of the
 * snapshot have it, the one whose path agrees longest from the end is chosen; among equals, one
 * that is not in an installed package; among those, the one with the most frames.
 *
 *   self        bytes of the stacks whose innermost frame in the file is there
 *   inclusive   bytes of the stacks that have any frame in the file there, counted once per stack
 *
 * A line belongs to the innermost function or class around it. A function's self excludes the
 * functions inside it; a class's includes everything in it.
 */
#ifndef TESSERA_UNSTABLE_SOURCE_H
#define TESSERA_UNSTABLE_SOURCE_H

#include "tessera/unstable/answers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A Python source file, in any encoding that includes ASCII. */
typedef struct tsr_source_file {
  const char *path; /* its name, optionally with folders */
  const char *text; /* may contain any bytes */
  size_t size_bytes;
} tsr_source_file;

/* What a place in the file holds: requested bytes and number of allocations. */
typedef struct tsr_source_use {
  uint64_t self_bytes, self_allocations;
  uint64_t inclusive_bytes, inclusive_allocations;
} tsr_source_use;

/* A function or class. */
typedef struct tsr_source_definition {
  const char *name; /* qualified: "Block.forward"; owned by the answer */
  bool is_class;
  uint32_t parent;                /* index of the definition directly around it, or TSR_NONE */
  uint32_t first_line, last_line; /* from its `def` or `class` to its last statement, from 1 */
} tsr_source_definition;

typedef struct tsr_source_line {
  uint32_t line;       /* from 1; may be beyond the end of the text */
  uint32_t definition; /* index of the innermost around it, or TSR_NONE */
  tsr_source_use use;
} tsr_source_line;

typedef struct tsr_source_device {
  uint32_t device;
  uint64_t event_count;
  tsr_moment peak;        /* as in tsr_peak_device */
  tsr_source_use whole;   /* of the whole file; self and inclusive are equal */
  tsr_source_line *lines; /* those that hold something, ascending */
  size_t line_count;
  tsr_source_use *uses; /* by definition */
  /* Indexes of the lines, functions and classes that hold something: most
   * self bytes first, then most inclusive ones; cut to tsr_query.top. */
  uint32_t *top_lines, *top_functions, *top_classes;
  size_t top_line_count, top_function_count, top_class_count;
  uint64_t omitted_lines, omitted_functions, omitted_classes;
  tsr_warning *warnings; /* where trace and segments disagree */
  size_t warning_count;
} tsr_source_device;

typedef struct tsr_source {
  uint32_t file;         /* string id of the snapshot's name for the file, TSR_NONE if absent */
  uint32_t *other_files; /* other files of that base name, which are ignored */
  size_t other_count;
  tsr_text *text; /* by line, from 0, without line ends; owned by the answer */
  size_t text_count;
  tsr_source_definition *definitions; /* in the order of the file */
  size_t definition_count;
  /* Does the text match the snapshot? Lines of the file that the snapshot mentions anywhere; of these,
   * lines beyond the end of the text, and lines that are in another function than in the snapshot. */
  uint64_t mentioned_lines, beyond_lines, other_lines;
  uint32_t beyond_line;      /* the last of those beyond */
  uint32_t other_line;       /* the first of those elsewhere, */
  uint32_t other_name;       /* string id of its function in the snapshot, */
  uint32_t other_definition; /* and the definition around it in the text, or TSR_NONE */
  tsr_source_device *devices;
  size_t device_count;
} tsr_source;

/* Compute what the file holds at the peak of each device that the query selects. The caller owns `*out`
 * and passes it to tsr_source_free. Time is linear in events, the text, and the frames of distinct
 * stacks. Fails with TSR_ERROR_MEMORY, _ARGUMENT, or _LIMIT for a text of 4 GiB or more. */
int tsr_source_compute(tsr_study *study, const tsr_source_file *file, const tsr_query *query,
                       tsr_source **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_source_free(tsr_source *source);

/* ---- two snapshots, one file ---- */

/* A line, function or class, and what it holds in the first and in the second snapshot. */
typedef struct tsr_source_change {
  uint32_t index;      /* line from 1, or definition */
  uint32_t definition; /* the definition, or the innermost one around the line, or TSR_NONE */
  tsr_source_use first, second;
} tsr_source_change;

typedef struct tsr_source_pair {
  uint32_t device;
  const tsr_source_device *first, *second; /* NULL if that snapshot does not have the device */
  /* All that hold something on either side: the largest difference of self bytes first, then of
   * inclusive ones; cut to tsr_query.top. */
  tsr_source_change *lines, *functions, *classes;
  size_t line_count, function_count, class_count;
  uint64_t omitted_lines, omitted_functions, omitted_classes;
} tsr_source_pair;

typedef struct tsr_source_comparison {
  tsr_source *first, *second; /* the sides, uncut */
  tsr_source_pair *devices;   /* of either side, those that the query selects, ascending */
  size_t device_count;
} tsr_source_comparison;

/* Compute the answer for both snapshots and pair them by line and definition. A device that
 * the query names may be missing on one side, but not on both. Otherwise as tsr_source_compute. */
int tsr_source_compare(tsr_study *first, tsr_study *second, const tsr_source_file *file,
                       const tsr_query *query, tsr_source_comparison **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_source_comparison_free(tsr_source_comparison *comparison);

#ifdef __cplusplus
}
#endif
#endif
