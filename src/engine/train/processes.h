/* processes.h - the communicator of tsr_processes, for tsr_train. */
#ifndef TSR_TRAIN_PROCESSES_H
#define TSR_TRAIN_PROCESSES_H

#include "dist/comm.h"
#include "tessera/unstable/training.h"

/* Of all processes; it belongs to them. */
tsr__comm *tsr__processes_comm(const tsr_processes *processes);

#endif
