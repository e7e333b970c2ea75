/* ranks WHAT: one rank of a group of processes. run.py starts several with mpirun.
 *
 *   check   operations give what they should; exit status 0, or 1 after saying what does not
 *   fail    rank 1 fails after a while; the others wait for it
 *   die     rank 1 is killed */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../unit/comm_support.h"

static bool check(tsr__comm *g, comm_room *room) {
  const struct {
    const char *name;
    bool ok;
  } all[] = {{"sums", comm_sums(g, room, COMM_SHARD, false)},
             {"sums in parts", comm_sums(g, room, 100, true)},
             {"sums of halves", comm_sums_halves(g, room)},
             {"broadcasts", comm_broadcasts(g, room)},
             {"counts", comm_counts(g, room)}};
  bool ok = true;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    ok &= all[i].ok;
    if (!all[i].ok) fprintf(stderr, "rank %u: %s\n", tsr__comm_rank(g), all[i].name);
  }
  return ok;
}

int main(int count, char **arguments) {
  static comm_room room;
  tsr__comm *g = NULL;
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  const char *what = count == 2 ? arguments[1] : "check";
  bool is_open = getenv("OMPI_COMM_WORLD_SIZE") != NULL;
  if (!is_open && !getenv("PMI_RANK")) return 2; /* no launcher */
  if (tsr__mpi_comm_new(is_open ? TSR__MPI_OPEN : TSR__MPI_MPICH, &g, &error)) {
    fprintf(stderr, "%s\n", error.message);
    return 3;
  }
  printf("rank %u of %u\n", tsr__comm_rank(g), tsr__comm_size(g));
  fflush(stdout);
  bool ok = check(g, &room);
  if (strcmp(what, "check") != 0 && tsr__comm_rank(g) == 1) {
    if (strcmp(what, "die") == 0) (void)raise(SIGKILL);
    fprintf(stderr, "rank 1 cannot go on\n");
    /* MPICH's launcher drops what it has not passed on yet when a rank aborts. */
    (void)nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    tsr__comm_fail(g, "it cannot go on");
  }
  if (strcmp(what, "check") != 0) ok &= tsr__comm_wait(g, tsr__comm_barrier(g), NULL) == 0;
  tsr__comm_free(g);
  return ok ? 0 : 1;
}
