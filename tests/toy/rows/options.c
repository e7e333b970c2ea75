/* options.c - the options of runs, and one more. Its field is that of `leak`, which no plan decides otherwise. */
#include "plan/options.h"
#include "tessera/unstable/runs.h"

const tsr_parameter tsr_run_options[] = {
#include "plan/option_rows.def"
    {.name = "toy_habit",
     TSR__OPTION_FIELD(WORD, leak),
     .option = "toy-habit",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "HABIT",
     .help = "What the program keeps of every step: nothing (tidy, default) or graphs (hoarder).",
     .choices = (const char *const[]){"tidy", "hoarder", NULL}},
    {.name = NULL}};
