/* mpi_calls.h - the calls of mpi.c for one kind of handles; included once for each.
 *
 *   MPI_NAME(name)      what the functions here are called
 *   MPI_HANDLE          the type of communicators and data types
 *   MPI_WORLD(library)  all processes
 *   MPI_BYTES(library)  the data type of a byte
 *   MPI_NO_STATUS       the address that stands for no status */

static struct {
  int (*Init_thread)(int *count, char ***arguments, int wanted, int *given);
  int (*Comm_rank)(MPI_HANDLE world, int *rank);
  int (*Comm_size)(MPI_HANDLE world, int *size);
  int (*Sendrecv)(const void *from, int from_count, MPI_HANDLE from_type, int to_rank, int to_tag,
                  void *to, int to_count, MPI_HANDLE to_type, int from_rank, int from_tag,
                  MPI_HANDLE world, void *status);
  int (*Bcast)(void *data, int count, MPI_HANDLE type, int root, MPI_HANDLE world);
  int (*Barrier)(MPI_HANDLE world);
  int (*Abort)(MPI_HANDLE world, int status);
  int (*Finalize)(void);
  MPI_HANDLE world;
  MPI_HANDLE bytes;
} MPI_NAME(mpi);

/* Returns 0, or something else if the library cannot be used. */
static int MPI_NAME(begin)(void *library, uint32_t *rank, uint32_t *size) {
  int found_rank = 0, found_size = 0, given = 0;
#define FIND(name) find(library, "MPI_" #name, &MPI_NAME(mpi).name, sizeof MPI_NAME(mpi).name)
  if (!FIND(Init_thread) || !FIND(Comm_rank) || !FIND(Comm_size) || !FIND(Sendrecv) ||
      !FIND(Bcast) || !FIND(Barrier) || !FIND(Abort) || !FIND(Finalize))
    return -1;
#undef FIND
  MPI_NAME(mpi).world = MPI_WORLD(library);
  MPI_NAME(mpi).bytes = MPI_BYTES(library);
  int failure = MPI_NAME(mpi).Init_thread(NULL, NULL, SERIALIZED, &given);
  if (!failure) failure = MPI_NAME(mpi).Comm_rank(MPI_NAME(mpi).world, &found_rank);
  if (!failure) failure = MPI_NAME(mpi).Comm_size(MPI_NAME(mpi).world, &found_size);
  if (!failure && given < SERIALIZED) failure = -1;
  *rank = (uint32_t)found_rank;
  *size = (uint32_t)found_size;
  return failure;
}

static int MPI_NAME(swap)(const char *from, int to_rank, char *to, int from_rank, int size_bytes) {
  void *status = (void *)(uintptr_t)MPI_NO_STATUS;
  return MPI_NAME(mpi).Sendrecv(from, size_bytes, MPI_NAME(mpi).bytes, to_rank, TAG, to, size_bytes,
                                MPI_NAME(mpi).bytes, from_rank, TAG, MPI_NAME(mpi).world, status);
}

static int MPI_NAME(broadcast)(char *data, int size_bytes, int root) {
  return MPI_NAME(mpi).Bcast(data, size_bytes, MPI_NAME(mpi).bytes, root, MPI_NAME(mpi).world);
}

static int MPI_NAME(barrier)(void) {
  return MPI_NAME(mpi).Barrier(MPI_NAME(mpi).world);
}

static void MPI_NAME(abort)(void) {
  (void)MPI_NAME(mpi).Abort(MPI_NAME(mpi).world, 1);
}

static void MPI_NAME(finish)(void) {
  (void)MPI_NAME(mpi).Finalize();
}

#undef MPI_NAME
#undef MPI_HANDLE
#undef MPI_WORLD
#undef MPI_BYTES
#undef MPI_NO_STATUS
