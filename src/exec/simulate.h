/* simulate.h - from the options of tsr_simulate to those of a program. */
#ifndef TSR_EXEC_SIMULATE_H
#define TSR_EXEC_SIMULATE_H

#include "models/run.h"
#include "tessera/simulate.h"

/* The part of `options` that decides what the program does. */
tsr__run_options tsr__run_options_of(const tsr_simulate_options *options);

#endif
