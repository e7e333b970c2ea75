/* target_rows.c - the table of targets: see paste.h. */
#include "plan/paste.h"

#define TSR__TARGET(row_name, ...) {.name = row_name, __VA_ARGS__},
static const tsr__target_row rows[] = {
#include "plan/target_rows.def"
};
#undef TSR__TARGET

#define TSR__TARGET(row_name, ...) row_name,
const char *const tsr_target_names[] = {
#include "plan/target_rows.def"
    NULL};
#undef TSR__TARGET

const tsr__target_row *tsr__target_at(size_t index) {
  return index < sizeof rows / sizeof *rows ? &rows[index] : NULL;
}

const char *tsr_target_word(size_t index) {
  return index < sizeof rows / sizeof *rows ? rows[index].name : NULL;
}

const char *tsr_target_about(size_t index) {
  return index < sizeof rows / sizeof *rows ? rows[index].about : NULL;
}

const char *tsr_target_file(size_t index) {
  return index < sizeof rows / sizeof *rows ? rows[index].file : NULL;
}
