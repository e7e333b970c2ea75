/* processes.h - the communicator of tsr_processes, for tsr_train. */
#ifndef TSR_TRAIN_PROCESSES_H
#define TSR_TRAIN_PROCESSES_H

#include "dist/comm.h"
#include "tessera/unstable/training.h"

/* The communicator of all processes, which they own. */
tsr__comm *tsr__processes_comm(const tsr_processes *processes);

#endif
