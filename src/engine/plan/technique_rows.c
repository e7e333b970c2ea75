/* technique_rows.c - the table of techniques. It is all that this file has, so that a program can have a table with more rows. */
#include "plan/techniques.h"

const tsr__technique_row tsr__techniques[] = {
#include "plan/technique_rows.def"
    {.allow = NULL}};
