/* option_rows.c - the table of the options of a run. It is all that this file has, so that a program can have a table with more rows. */
#include "plan/options.h"
#include "tessera/unstable/runs.h"

const tsr_parameter tsr_run_options[] = {
#include "plan/option_rows.def"
    {.name = NULL}};
