/* techniques.c - the techniques, and one more. */
#include "plan/techniques.h"

const tsr__technique_row tsr__techniques[] = {
#include "plan/technique_rows.def"
    {.allow = "toy",
     .about = "train with an optimizer that has no state",
     .name = "toy: %s",
     .option = "optimizer",
     .value = "sgd",
     .use = TSR__USE_COMBINED,
     .dimension = 10,
     .listed = 18,
     .changes_results = true},
    {.allow = NULL}};
