/* mpi.c - ranks that are processes started by mpirun. See comm.h.
 *
 * tessera is built without Open MPI and MPICH: the launcher's library is loaded on demand, and its functions are
 * declared here. Both libraries have the functions of the MPI standard, but a handle (of all processes, of the type
 * of a byte) is a pointer in Open MPI and an int in MPICH. Calls pass a handle as a machine word: on the platforms
 * of these libraries, ints and pointers are passed in the same registers, and a function that takes an int reads
 * only the lower half of the word. Requests, whose addresses are passed, are words of zeros, of which MPICH writes a half.
 *
 * If a rank is killed, the launcher notices and ends the others; a rank that fails ends them with MPI_Abort. */
#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "base/os.h"
#include "dist/comm.h"

enum { PIECE_BYTES = 1 << 30, TAG = 7, SERIALIZED = 2 /* MPI_THREAD_SERIALIZED of both */ };
/* Ranks that a rank swaps with at once, and its rests while it waits. */
enum { AT_ONCE = 8, YIELDS = 64, REST_NS = 20000, REST_MOST_NS = 320000 };

typedef uintptr_t handle;

typedef struct calls {
  int (*Init_thread)(int *count, char ***arguments, int wanted, int *given);
  int (*Comm_rank)(handle world, int *rank);
  int (*Comm_size)(handle world, int *size);
  int (*Isend)(const void *data, int count, handle type, int rank, int tag, handle world,
               handle *request);
  int (*Irecv)(void *data, int count, handle type, int rank, int tag, handle world,
               handle *request);
  int (*Test)(handle *request, int *is_done, uintptr_t status);
  int (*Ibcast)(void *data, int count, handle type, int root, handle world, handle *request);
  int (*Ibarrier)(handle world, handle *request);
  int (*Abort)(handle world, int status);
  int (*Finalize)(void);
} calls;

typedef struct process {
  calls mpi;
  handle world, bytes;
  uintptr_t no_status; /* the value that ignores the status */
  uint32_t rank, size;
} process;

/* Find a function of the library; one that was loaded with the program (LD_PRELOAD) replaces it. */
static bool find(void *library, const char *name, void *out) {
  void *found = tsr__os_library_find(NULL, name);
  if (!found) found = tsr__os_library_find(library, name);
  memcpy(out, &found, sizeof found); /* no cast from data to functions */
  return found != NULL;
}

static bool find_calls(void *library, calls *out) {
  return find(library, "MPI_Init_thread", &out->Init_thread) &&
         find(library, "MPI_Comm_rank", &out->Comm_rank) &&
         find(library, "MPI_Comm_size", &out->Comm_size) &&
         find(library, "MPI_Isend", &out->Isend) && find(library, "MPI_Irecv", &out->Irecv) &&
         find(library, "MPI_Test", &out->Test) && find(library, "MPI_Ibcast", &out->Ibcast) &&
         find(library, "MPI_Ibarrier", &out->Ibarrier) && find(library, "MPI_Abort", &out->Abort) &&
         find(library, "MPI_Finalize", &out->Finalize);
}

/* Find the handles: symbols in Open MPI, numbers in MPICH's header. */
static void find_handles(void *library, tsr__mpi_kind kind, process *p) {
  bool is_open = kind == TSR__MPI_OPEN;
  p->world = is_open ? (handle)tsr__os_library_find(library, "ompi_mpi_comm_world") : 0x44000000;
  p->bytes = is_open ? (handle)tsr__os_library_find(library, "ompi_mpi_byte") : 0x4c00010d;
  p->no_status = is_open ? 0 : 1;
}

/* Returns a value other than 0 if the library cannot be used. */
static int begin(process *p) {
  int rank = 0, size = 0, given = 0, failure = p->mpi.Init_thread(NULL, NULL, SERIALIZED, &given);
  if (!failure) failure = p->mpi.Comm_rank(p->world, &rank);
  if (!failure) failure = p->mpi.Comm_size(p->world, &size);
  p->rank = (uint32_t)rank;
  p->size = (uint32_t)size;
  return failure ? failure : given < SERIALIZED;
}

static int explain(int failure, tsr_error *error) {
  return failure ? tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "MPI reports error %d", failure)
                 : 0;
}

/* Wait for requests, in their order; testing one makes progress with all. MPI's own waits keep a processor busy, which threads that
 * compute need: ranks often share a machine, and each has more threads than processors. So this lets them run: at first for as long as
 * they like, because a message may be on its way, and then for longer and longer, up to REST_MOST_NS, so that a large message, which
 * moves piece by piece as it is tested, is not held up much (docs/distributed.md has measurements). */
static int await(const process *p, handle *requests, size_t count) {
  int failure = 0;
  uint64_t rest_ns = 0;
  for (size_t done = 0, tests = 0; !failure && done < count; tests++) {
    int is_done = 0;
    failure = p->mpi.Test(&requests[done], &is_done, p->no_status);
    if (is_done) {
      done++;
      rest_ns = tests = 0;
      continue;
    }
    if (tests > YIELDS) rest_ns = rest_ns ? 2 * rest_ns : REST_NS;
    if (rest_ns > REST_MOST_NS) rest_ns = REST_MOST_NS;
    tsr__os_rest(rest_ns);
  }
  return failure;
}

/* What ranks send one another: this one to rank i from + i x stride_bytes, and rank i's is put to to + i x size_bytes. */
typedef struct swap {
  const char *from;
  char *to;
  uint64_t stride_bytes, size_bytes;
} swap;

/* A piece of what this rank sends to one rank and receives from another, as two requests. */
static int begin_swap(const process *p, const swap *s, uint32_t far, uint64_t at, uint64_t some,
                      handle requests[2]) {
  uint32_t to_rank = (p->rank + far) % p->size, from_rank = (p->rank + p->size - far) % p->size;
  int failure = p->mpi.Irecv(s->to + from_rank * s->size_bytes + at, (int)some, p->bytes,
                             (int)from_rank, TAG, p->world, &requests[0]);
  return failure ? failure
                 : p->mpi.Isend(s->from + to_rank * s->stride_bytes + at, (int)some, p->bytes,
                                (int)to_rank, TAG, p->world, &requests[1]);
}

/* With several ranks at once, so that one that is late does not keep the others waiting. */
static int swap_all(const process *p, const swap *s, tsr_error *error) {
  int failure = 0;
  for (uint64_t at = 0, some; !failure && at < s->size_bytes; at += some) {
    some = s->size_bytes - at < PIECE_BYTES ? s->size_bytes - at : PIECE_BYTES;
    for (uint32_t far = 1; !failure && far < p->size;) {
      handle requests[2 * AT_ONCE] = {0};
      size_t count = 0;
      for (; !failure && far < p->size && count < 2 * AT_ONCE; far++, count += 2)
        failure = begin_swap(p, s, far, at, some, &requests[count]);
      if (!failure) failure = await(p, requests, count);
    }
  }
  return explain(failure, error);
}

static int exchange(void *self, const char *from, uint64_t stride_bytes, char *to,
                    uint64_t size_bytes, tsr_error *error) {
  const process *p = self;
  memcpy(to + p->rank * size_bytes, from + p->rank * stride_bytes, (size_t)size_bytes);
  return swap_all(p, &(swap){from, to, stride_bytes, size_bytes}, error);
}

static int gather(void *self, const char *mine, char *all, uint64_t size_bytes, tsr_error *error) {
  const process *p = self;
  char *own = all + p->rank * size_bytes;
  if (mine != own) memcpy(own, mine, (size_t)size_bytes);
  return swap_all(p, &(swap){own, all, 0, size_bytes}, error);
}

static int broadcast(void *self, uint32_t root, char *data, uint64_t size_bytes, tsr_error *error) {
  const process *p = self;
  int failure = 0;
  for (uint64_t at = 0, some; failure == 0 && at < size_bytes; at += some) {
    handle request = 0;
    some = size_bytes - at < PIECE_BYTES ? size_bytes - at : PIECE_BYTES;
    failure = p->mpi.Ibcast(data + at, (int)some, p->bytes, (int)root, p->world, &request);
    if (!failure) failure = await(p, &request, 1);
  }
  return explain(failure, error);
}

static int barrier(void *self, tsr_error *error) {
  const process *p = self;
  handle request = 0;
  int failure = p->mpi.Ibarrier(p->world, &request);
  return explain(failure ? failure : await(p, &request, 1), error);
}

static void fail(void *self, const char *reason) {
  const process *p = self;
  (void)reason; /* the caller reports it, before the launcher ends this process too */
  (void)p->mpi.Abort(p->world, 1);
}

static void release(void *self) {
  process *p = self;
  (void)p->mpi.Finalize();
  tsr__free(p);
}

int tsr__mpi_comm_new(tsr__mpi_kind kind, tsr__comm **out, tsr_error *error) {
  static const tsr__comm_backend mpi = {"MPI",     false,   exchange, gather,
                                        broadcast, barrier, fail,     release};
  const char *name = kind == TSR__MPI_OPEN ? "libmpi.so.40" : "libmpich.so.12";
  void *library = tsr__os_library_open(name);
  if (!library)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "%s, the library of the launcher's MPI, cannot be loaded", name);
  process *p = TSR__NEW(process);
  if (!p) return tsr__fail_memory(error);
  find_handles(library, kind, p);
  if (find_calls(library, &p->mpi) && begin(p) == 0 && p->size <= TSR__COMM_RANKS)
    return tsr__comm_new(&mpi, p, p->rank, p->size, out, error);
  tsr__free(p);
  return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                   "%s cannot be used: it lacks a function, cannot be called by threads, or has "
                   "started more than %d ranks",
                   name, TSR__COMM_RANKS);
}
