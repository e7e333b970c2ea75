/* technique_rows.c - the table of techniques. */
#include "plan/technique_rows.h"

const tsr__technique_row tsr__techniques[] = {TSR__TECHNIQUE_ROWS, {.allow = NULL}};
