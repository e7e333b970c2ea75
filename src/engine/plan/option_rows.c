/* option_rows.c - the table of the options of a run. It is all that this file has, so that a program can have a table with more rows. */
#include <stddef.h>

#include "tessera/unstable/runs.h"

#define FIELD(kind, name) \
  .stored = TSR_STORED_##kind, .stored_at = offsetof(tsr_simulate_options, name)
#define NUMBER(name) .number_at = offsetof(tsr_simulate_options, name)

const tsr_parameter tsr_run_options[] = {
#include "plan/option_rows.def"
    {.name = NULL}};
