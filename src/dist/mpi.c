/* mpi.c - ranks that are processes which mpirun started. See comm.h.
 *
 * Neither Open MPI nor MPICH is needed to build tessera: what the launcher belongs to is loaded when it is
 * wanted. Both have the functions of the standard; what differs is in mpi_calls.h: handles are pointers in Open
 * MPI and numbers in MPICH.
 *
 * A rank that is killed is noticed by the launcher, which ends the others and names it; a rank that fails ends them
 * with MPI_Abort. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/os.h"
#include "dist/comm.h"

enum { PIECE_BYTES = 1 << 30, TAG = 7, SERIALIZED = 2 /* MPI_THREAD_SERIALIZED of both */ };

/* One of these calls per operation; pieces are up to 1 GiB, because counts are ints. */
typedef struct calls {
  int (*begin)(void *library, uint32_t *rank, uint32_t *size);
  int (*swap)(const char *from, int to_rank, char *to, int from_rank, int size_bytes);
  int (*broadcast)(char *data, int size_bytes, int root);
  int (*barrier)(void);
  void (*abort)(void);
  void (*finish)(void);
} calls;

/* A function of the library, unless something that was loaded with the program replaces it (LD_PRELOAD). */
static bool find(void *library, const char *name, void *out, size_t size_bytes) {
  void *found = tsr__os_library_find(NULL, name);
  if (!found) found = tsr__os_library_find(library, name);
  assert(size_bytes == sizeof found);
  memcpy(out, &found, size_bytes); /* no cast from data to functions */
  return found != NULL;
}

#define MPI_NAME(name)     open_##name
#define MPI_HANDLE         void *
#define MPI_WORLD(library) tsr__os_library_find(library, "ompi_mpi_comm_world")
#define MPI_BYTES(library) tsr__os_library_find(library, "ompi_mpi_byte")
#define MPI_NO_STATUS      0
#include "dist/mpi_calls.h"

#define MPI_NAME(name)     mpich_##name
#define MPI_HANDLE         int
#define MPI_WORLD(library) 0x44000000
#define MPI_BYTES(library) 0x4c00010d
#define MPI_NO_STATUS      1
#include "dist/mpi_calls.h"

typedef struct process {
  const calls *calls;
  uint32_t rank, size;
} process;

static int explain(int failure, tsr_error *error) {
  return failure ? tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "MPI reports error %d", failure)
                 : 0;
}

/* Send to one rank what another sends here. */
static int swap(const process *p, const char *from, uint32_t to_rank, char *to, uint32_t from_rank,
                uint64_t size_bytes, tsr_error *error) {
  int failure = 0;
  for (uint64_t at = 0, some; failure == 0 && at < size_bytes; at += some) {
    some = size_bytes - at < PIECE_BYTES ? size_bytes - at : PIECE_BYTES;
    failure = p->calls->swap(from + at, (int)to_rank, to + at, (int)from_rank, (int)some);
  }
  return explain(failure, error);
}

static int exchange(void *self, const char *from, uint64_t stride_bytes, char *to,
                    uint64_t size_bytes, tsr_error *error) {
  const process *p = self;
  int status = 0;
  memcpy(to + p->rank * size_bytes, from + p->rank * stride_bytes, (size_t)size_bytes);
  for (uint32_t far = 1; status == 0 && far < p->size; far++) {
    uint32_t to_rank = (p->rank + far) % p->size, from_rank = (p->rank + p->size - far) % p->size;
    status = swap(p, from + to_rank * stride_bytes, to_rank, to + from_rank * size_bytes, from_rank,
                  size_bytes, error);
  }
  return status;
}

static int gather(void *self, const char *mine, char *all, uint64_t size_bytes, tsr_error *error) {
  const process *p = self;
  int status = 0;
  char *own = all + p->rank * size_bytes;
  if (mine != own) memcpy(own, mine, (size_t)size_bytes);
  for (uint32_t far = 1; status == 0 && far < p->size; far++) {
    uint32_t to_rank = (p->rank + far) % p->size, from_rank = (p->rank + p->size - far) % p->size;
    status = swap(p, own, to_rank, all + from_rank * size_bytes, from_rank, size_bytes, error);
  }
  return status;
}

static int broadcast(void *self, uint32_t root, char *data, uint64_t size_bytes, tsr_error *error) {
  const process *p = self;
  int failure = 0;
  for (uint64_t at = 0, some; failure == 0 && at < size_bytes; at += some) {
    some = size_bytes - at < PIECE_BYTES ? size_bytes - at : PIECE_BYTES;
    failure = p->calls->broadcast(data + at, (int)some, (int)root);
  }
  return explain(failure, error);
}

static int barrier(void *self, tsr_error *error) {
  const process *p = self;
  return explain(p->calls->barrier(), error);
}

static void fail(void *self, const char *reason) {
  const process *p = self;
  (void)reason; /* the caller says it, before the launcher ends this process too */
  p->calls->abort();
}

static void release(void *self) {
  process *p = self;
  p->calls->finish();
  tsr__free(p);
}

/* Variables that launchers set for the processes that they start. */
static bool is_open_mpi(void) {
  return getenv("OMPI_COMM_WORLD_SIZE") != NULL;
}

static bool is_mpich(void) {
  return getenv("PMI_RANK") != NULL || getenv("PMIX_RANK") != NULL;
}

bool tsr__mpi_is_launched(void) {
  return is_open_mpi() || is_mpich();
}

int tsr__mpi_comm_new(tsr__comm **out, tsr_error *error) {
  static const tsr__comm_backend mpi = {"MPI",     false,   exchange, gather,
                                        broadcast, barrier, fail,     release};
  static const calls open = {open_begin,   open_swap,  open_broadcast,
                             open_barrier, open_abort, open_finish};
  static const calls mpich = {mpich_begin,   mpich_swap,  mpich_broadcast,
                              mpich_barrier, mpich_abort, mpich_finish};
  const char *name = is_open_mpi() ? "libmpi.so.40" : "libmpich.so.12";
  void *library = tsr__os_library_open(name);
  if (!library)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "%s, the library of the launcher's MPI, cannot be loaded", name);
  process *p = TSR__NEW(process);
  if (!p) return tsr__fail_memory(error);
  p->calls = is_open_mpi() ? &open : &mpich;
  int failure = p->calls->begin(library, &p->rank, &p->size);
  if (failure == 0 && p->size <= TSR__COMM_RANKS)
    return tsr__comm_new(&mpi, p, p->rank, p->size, out, error);
  tsr__free(p);
  return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                   failure
                       ? "%s cannot be used: it lacks a function, or cannot be called by threads"
                       : "%s has started too many ranks",
                   name);
}
