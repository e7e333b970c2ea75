/* question.h - a question: the row that every interface shows, and the functions that implement it.
 *
 * One folder, src/reader/questions/NAME or src/engine/questions/NAME, holds one question:
 *
 *   question.c   the row, `const tsr__question_row tsr__question_NAME`
 *   fields.c     the fields of the answer's JSON, `const tsr_record tsr__fields_NAME`
 *   answer.c     study and parameters -> a value
 *   report.c     value -> emitter
 *
 * and one line in the meson.build beside it adds it. No interface has a table of questions of its
 * own: command line, help, manual pages, completions, MCP, Python and serve iterate the registry.
 */
#ifndef TSR_ASK_QUESTION_H
#define TSR_ASK_QUESTION_H

#include "emit/fields.h"
#include "tessera/output.h"
#include "tessera/query.h"
#include "tessera/registry.h"
#include "tessera/unstable/input.h"
#include "tessera/unstable/params.h"

/* What a question is asked: the first `study_count` studies, as many as the row has subjects, and
 * one more where its SNAPSHOT parameter is given. `params` is never NULL. */
typedef struct tsr__asked {
  tsr_study *const *studies;
  size_t study_count;
  const tsr_params *params;
  const tsr_query *query; /* or NULL: every device and everything */
} tsr__asked;

/* A value being reported: `inputs` are the subjects, in their order. */
typedef struct tsr__report_call {
  const tsr_report_input *inputs;
  size_t input_count;
  const void *value;
  const tsr_report_options *options;
  tsr_write_fn *write;
  void *context;
} tsr__report_call;

typedef struct tsr__question_row {
  tsr_question about;
  const tsr_record
      *fields; /* of the answer's JSON: docs/json.md and the classes of Python come from it */
  /* Parameters that need or exclude one another: 0, or tsr_params_fail. NULL: nothing to check. */
  int (*check)(const tsr_params *params, tsr_error *error);
  /* Compute the value. `*out` is untouched on failure. */
  int (*ask)(const tsr__asked *asked, void **out, tsr_error *error);
  /* Write the whole report. */
  int (*report)(const tsr__report_call *call, tsr_error *error);
  /* Release the value; never called with NULL. */
  void (*free)(void *value);
  /* The rest is optional. */
  bool (*passed)(const void *value);
  const tsr_snapshot *(*snapshot)(const void *value);
  const char *const *forms; /* names of forms of its own, ends at NULL; and writing one of them */
  int (*form)(const tsr__report_call *call, size_t form, const char *root, tsr_error *error);
} tsr__question_row;

/* Every question, in the order in which help lists them; ends at NULL. The program or library that links the
 * registry defines it: src/rows.c has the rows of both halves. */
extern const tsr__question_row *const tsr__question_rows[];

/* The index-th of `count` rows, where a row that stands for a table is replaced by the rows of that table; NULL past the last. Linear in the
 * index. */
const tsr_parameter *tsr__parameter_at(const tsr_parameter *rows, size_t count, size_t index);

/* The words from the first up to NULL as a sentence has them, "a, b and c", truncated to `room` bytes. */
void tsr__list_words(const char *(*word)(size_t index), char *text, size_t room);

/* The fields of a list of rows. */
#define TSR__PARAMETERS(rows) .parameters = (rows), .parameter_count = sizeof(rows) / sizeof *(rows)

#endif
