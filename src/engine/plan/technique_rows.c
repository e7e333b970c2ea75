/* technique_rows.c - the table of techniques. It is all that this file has, so that a program can have a table with more rows. */
#include "plan/techniques.h"

#define TARGETS_OF_OFFLOAD \
  (TSR__TARGET_DEEPSPEED | TSR__TARGET_FSDP2 | TSR__TARGET_TORCHTITAN | TSR__TARGET_MEGATRON)

const tsr__technique_row tsr__techniques[] = {
#include "plan/technique_rows.def"
    {.allow = NULL}};
