/* processes.c - see tessera/unstable/training.h: processes that mpirun has started.
 *
 * Processes connect before a command reads its options and files: if one rank ends without having initialised MPI,
 * MPICH's launcher waits for it, and so do the other ranks. */
#include "train/processes.h"

#include <assert.h>

#include "base/memory.h"

struct tsr_processes {
  tsr__comm *comm;
};

tsr__comm *tsr__processes_comm(const tsr_processes *processes) {
  assert(processes->comm);
  return processes->comm;
}

int tsr_processes_new(tsr_launcher launcher, tsr_processes **out, tsr_error *error) {
  tsr_processes *processes = TSR__NEW(tsr_processes);
  if (!processes) return tsr__fail_memory(error);
  tsr__mpi_kind kind = launcher == TSR_LAUNCHER_OPEN_MPI ? TSR__MPI_OPEN : TSR__MPI_MPICH;
  int status = tsr__mpi_comm_new(kind, &processes->comm, error);
  if (status)
    tsr__free(processes);
  else
    *out = processes;
  return status;
}

uint32_t tsr_processes_rank(const tsr_processes *processes) {
  return tsr__comm_rank(processes->comm);
}

uint32_t tsr_processes_count(const tsr_processes *processes) {
  return tsr__comm_size(processes->comm);
}

int tsr_processes_share(tsr_processes *processes, int32_t mine, int32_t *all, tsr_error *error) {
  all[tsr__comm_rank(processes->comm)] = mine;
  return tsr__comm_wait(processes->comm,
                        tsr__comm_all_gather(processes->comm, &all[tsr__comm_rank(processes->comm)],
                                             all, sizeof mine),
                        error);
}

void tsr_processes_free(tsr_processes *processes) {
  if (processes) tsr__comm_free(processes->comm);
  tsr__free(processes);
}
