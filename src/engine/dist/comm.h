/* comm.h - ranks that train together, and the data that they send each other.
 *
 *   tsr__comm *comm;                                        one for each rank
 *   status = tsr__threads_comm_new(&hub, rank, &comm, error);   or tsr__mpi_comm_new, tsr__dry_comm_new
 *   ticket = tsr__comm_reduce_scatter(comm, &(tsr__reduction){...});   starts
 *   ... kernels that do not use its memory ...
 *   status = tsr__comm_wait(comm, ticket, error);           it is done
 *   tsr__comm_free(comm);
 *
 * All ranks of a communicator call the same operations in the same order; each rank has a thread that executes them
 * one after another. The caller must not write or read the memory of an operation until it has waited for it.
 *
 * Sums are made in the order of ranks, 0 first, by the rank that keeps the sum, because a library's sums differ in
 * their last bits between operations, and with the number of ranks on a machine. So a sum over all elements equals
 * the sums of its shards bit for bit. The traffic is the usual one: a shard's parts go to the rank that keeps it,
 * so each of n ranks sends N (n-1)/n bytes for N bytes.
 *
 * If a rank fails (tsr__comm_fail) or ends early, the operations of all others fail with TSR_ERROR_IO, and the
 * message names the rank. The launcher notices a process that is killed. There is no time limit, because a rank may
 * be slow, or stopped by a debugger. */
#ifndef TSR_DIST_COMM_H
#define TSR_DIST_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "kernels/layout.h"

enum { TSR__COMM_RANKS = 1024 }; /* the maximum number of ranks */

typedef struct tsr__comm tsr__comm;
/* The number of an operation that was started, counted from 1. */
typedef uint64_t tsr__ticket;

uint32_t tsr__comm_rank(const tsr__comm *comm);
uint32_t tsr__comm_size(const tsr__comm *comm);

/* A sum over ranks, each of which keeps a shard. */
typedef struct tsr__reduction {
  const void *from; /* size x count elements; shard r starts at element r x count */
  void *to;         /* count elements: this rank's shard of the sum; may be that shard of `from` */
  void *staging;    /* room for size x staging_count elements */
  uint64_t count,
      staging_count; /* elements of a shard; of a part that is summed at once, 1 to count */
  tsr__dtype dtype;  /* fp32, fp16 or bf16; 16-bit numbers are added in fp32 and rounded once */
} tsr__reduction;

/* Start: to = the sum over ranks of this rank's shard. O(size x count). */
tsr__ticket tsr__comm_reduce_scatter(tsr__comm *comm, const tsr__reduction *what);
/* Start: all = every rank's `size_bytes` bytes at `mine`, rank 0's first. `mine` may be its part of `all`. */
tsr__ticket tsr__comm_all_gather(tsr__comm *comm, const void *mine, void *all, uint64_t size_bytes);
/* Start: copy the data of rank `root` to all ranks. */
tsr__ticket tsr__comm_broadcast(tsr__comm *comm, uint32_t root, void *data, uint64_t size_bytes);
/* Start: wait for all ranks. */
tsr__ticket tsr__comm_barrier(tsr__comm *comm);

/* Wait until this operation and all before it are done; 0 waits for nothing. Fails with TSR_ERROR_IO, or with the
 * status of the first operation that failed; later ones then fail the same way. */
int tsr__comm_wait(tsr__comm *comm, tsr__ticket ticket, tsr_error *error);

/* The last operation that was started, or 0. */
tsr__ticket tsr__comm_begun(tsr__comm *comm);

/* Report that this rank has failed, with the reason; the operations of other ranks then fail. Call it before
 * tsr__comm_free if a rank ends early. */
void tsr__comm_fail(tsr__comm *comm, const char *reason);

/* The bytes that this rank has sent to others, in operations that were waited for. */
uint64_t tsr__comm_sent_bytes(const tsr__comm *comm);

/* Wait for the operations that were started, then free. Accepts NULL. */
void tsr__comm_free(tsr__comm *comm);

/* ---- Back ends ---- */

/* Move bytes between ranks. Only one thread of a rank calls these functions, one at a time. They fail with
 * TSR_ERROR_IO. */
typedef struct tsr__comm_backend {
  const char *name;
  bool is_dry; /* nothing moves, so there is nothing to sum */
  /* Send the `size_bytes` bytes at from + i x stride to rank i. The bytes from rank r are received at to + r x
   * size_bytes. */
  int (*exchange)(void *self, const char *from, uint64_t stride_bytes, char *to,
                  uint64_t size_bytes, tsr_error *error);
  /* See tsr__comm_all_gather. */
  int (*gather)(void *self, const char *mine, char *all, uint64_t size_bytes, tsr_error *error);
  int (*broadcast)(void *self, uint32_t root, char *data, uint64_t size_bytes, tsr_error *error);
  int (*barrier)(void *self, tsr_error *error);
  /* Called by any thread, at any time. */
  void (*fail)(void *self, const char *reason);
  void (*release)(void *self);
} tsr__comm_backend;

/* Make the communicator of a back end, which it owns and releases, even if this fails. `self` belongs to the back
 * end. Fails with TSR_ERROR_MEMORY. */
int tsr__comm_new(const tsr__comm_backend *backend, void *self, uint32_t rank, uint32_t size,
                  tsr__comm **out, tsr_error *error);

/* A rank without others, which counts what it would send. It does not use any memory, so pointers may be NULL. */
int tsr__dry_comm_new(uint32_t rank, uint32_t size, tsr__comm **out, tsr_error *error);

/* The meeting point of ranks that are threads of one process. Must outlive their communicators. */
typedef struct tsr__hub tsr__hub;
/* NULL when out of memory or threads. */
tsr__hub *tsr__hub_new(uint32_t size);
/* Make the communicator of one of ranks 0 to size - 1, each once. */
int tsr__threads_comm_new(tsr__hub *hub, uint32_t rank, tsr__comm **out, tsr_error *error);
/* Call it after freeing the communicators. Accepts NULL. */
void tsr__hub_free(tsr__hub *hub);

typedef enum tsr__mpi_kind { TSR__MPI_OPEN, TSR__MPI_MPICH } tsr__mpi_kind;

/* Connect to the processes that an MPI launcher (mpirun, srun) has started, including this one, through its
 * library, which is loaded here. The environment shows the kind: Open MPI sets OMPI_COMM_WORLD_SIZE, MPICH sets
 * PMI_RANK. Call this once per process. Fails with TSR_ERROR_UNSUPPORTED if the library cannot be loaded or does
 * not support threads. */
int tsr__mpi_comm_new(tsr__mpi_kind kind, tsr__comm **out, tsr_error *error);

#endif
