/* rows.c - the questions of both halves, and what one takes from the other.
 *
 * The registry (ask/registry.c) knows no question by name: it walks this table. Meson compiles it for each program or
 * library with the names of its questions, from the folders of questions, as TSR__QUESTION_ROWS, and with
 * TSR__RECORDED_RUN, which is NULL without the reader. */
#include "ask/question.h"
#include "ask/recorded.h"

#define DECLARE(name) extern const tsr__question_row tsr__question_##name;
TSR__QUESTION_ROWS(DECLARE)
#undef DECLARE

#define ROW(name) &tsr__question_##name,
const tsr__question_row *const tsr__question_rows[] = {TSR__QUESTION_ROWS(ROW) NULL};
#undef ROW

tsr__recorded_run_fn *const tsr__recorded_run = TSR__RECORDED_RUN;
