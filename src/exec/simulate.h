/* simulate.h - from the options of tsr_simulate to a program, and to its tape: what tsr_simulate and
 * tsr_train have in common. */
#ifndef TSR_EXEC_SIMULATE_H
#define TSR_EXEC_SIMULATE_H

#include "models/program.h"
#include "models/run.h"
#include "tessera/simulate.h"

/* The part of `options` that decides what the program does. */
tsr__run_options tsr__run_options_of(const tsr_simulate_options *options);

/* Run one step of the program on its tape, and finish that. `is_recorded`: all steps together must
 * not be longer than a snapshot can be. 0, TSR_ERROR_LIMIT or TSR_ERROR_MEMORY. */
int tsr__program_record(tsr__program *program, bool is_recorded, tsr_error *error);
/* The same of a forward pass alone. */
int tsr__program_record_infer(tsr__program *program, tsr_error *error);

#endif
