/* comm.h - ranks that train together, and the data that they send each other.
 *
 *   tsr__comm *comm;                                        one for each rank
 *   status = tsr__threads_comm_new(&hub, rank, &comm, error);   or tsr__mpi_comm_new, tsr__dry_comm_new
 *   ticket = tsr__comm_reduce_scatter(comm, &(tsr__reduction){...});   begins
 *   ... kernels that touch none of its memory ...
 *   status = tsr__comm_wait(comm, ticket, error);           it has happened
 *   tsr__comm_free(comm);
 *
 * All ranks of a communicator call the same operations in the same order; each rank has a thread of its own that
 * makes them one after another. The caller must not write or read the memory of an operation until it has waited for
 * it.
 *
 * Sums are made in the order of ranks, 0 first, by the rank that keeps the sum: a library's own sums differ
 * in their last bits between one operation and another, and with the number of ranks that share a machine.
 * So a sum over all elements, and its shards summed apart, are equal bit for bit. What moves is the same:
 * a shard's parts go to the rank that keeps it, N (n-1)/n bytes sent by each of n ranks for N bytes.
 *
 * If a rank fails (tsr__comm_fail) or ends early, the operations of all others fail with TSR_ERROR_IO, and the message names the
 * rank. A process that is killed is the launcher's to notice. There is no time limit: a rank may be slow, or stopped by a debugger. */
#ifndef TSR_DIST_COMM_H
#define TSR_DIST_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "kernels/layout.h"

enum { TSR__COMM_RANKS = 1024 }; /* at most */

typedef struct tsr__comm tsr__comm;
/* The number of an operation that was started, from 1. */
typedef uint64_t tsr__ticket;

uint32_t tsr__comm_rank(const tsr__comm *comm);
uint32_t tsr__comm_size(const tsr__comm *comm);

/* A sum over ranks, of which each keeps a shard. */
typedef struct tsr__reduction {
  const void *from; /* size x count elements; shard r begins at element r x count */
  void *to;         /* count elements: this rank's shard of the sum; may be that shard of `from` */
  void *staging;    /* room for size x staging_count elements */
  uint64_t count,
      staging_count; /* of a shard; of a part of it that is summed at once, 1 to count */
  tsr__dtype dtype;  /* fp32, fp16 or bf16; 16 bits are added in fp32, and rounded once */
} tsr__reduction;

/* Begin: to = sum over ranks of this rank's shard. O(size x count). */
tsr__ticket tsr__comm_reduce_scatter(tsr__comm *comm, const tsr__reduction *what);
/* Begin: all = every rank's `size_bytes` bytes at `mine`, rank 0's first. `mine` may be its place in `all`. */
tsr__ticket tsr__comm_all_gather(tsr__comm *comm, const void *mine, void *all, uint64_t size_bytes);
/* Begin: data of all ranks becomes that of rank `root`. */
tsr__ticket tsr__comm_broadcast(tsr__comm *comm, uint32_t root, void *data, uint64_t size_bytes);
/* Begin: wait for all ranks. */
tsr__ticket tsr__comm_barrier(tsr__comm *comm);

/* Wait until this operation and all before it have happened; 0 waits for nothing. Fails with TSR_ERROR_IO, or as the first
 * operation that failed did; later ones then fail the same way. */
int tsr__comm_wait(tsr__comm *comm, tsr__ticket ticket, tsr_error *error);

/* The last operation that was begun; 0: none was. */
tsr__ticket tsr__comm_begun(tsr__comm *comm);

/* Report that this rank has failed, because of `reason`. The operations of other ranks then fail. Call it before
 * tsr__comm_free when a rank ends early. */
void tsr__comm_fail(tsr__comm *comm, const char *reason);

/* Bytes that this rank has sent to others, by operations that were waited for. */
uint64_t tsr__comm_sent_bytes(const tsr__comm *comm);

/* Finishes the operations that were started. NULL is fine. */
void tsr__comm_free(tsr__comm *comm);

/* ---- Back ends ---- */

/* Move bytes between ranks. Functions are called by one thread of a rank, never two at a time, and fail with
 * TSR_ERROR_IO. */
typedef struct tsr__comm_backend {
  const char *name;
  bool is_dry; /* nothing moves: there is nothing to sum */
  /* Bytes from + i x stride, of size_bytes, go to rank i, and arrive at its to + r x size_bytes, r being the rank
   * that sends. */
  int (*exchange)(void *self, const char *from, uint64_t stride_bytes, char *to,
                  uint64_t size_bytes, tsr_error *error);
  /* As tsr__comm_all_gather. */
  int (*gather)(void *self, const char *mine, char *all, uint64_t size_bytes, tsr_error *error);
  int (*broadcast)(void *self, uint32_t root, char *data, uint64_t size_bytes, tsr_error *error);
  int (*barrier)(void *self, tsr_error *error);
  /* Any thread, at any time. */
  void (*fail)(void *self, const char *reason);
  void (*release)(void *self);
} tsr__comm_backend;

/* The communicator of a back end, which it releases in the end, also when this fails. `self` belongs to it. TSR_ERROR_MEMORY. */
int tsr__comm_new(const tsr__comm_backend *backend, void *self, uint32_t rank, uint32_t size,
                  tsr__comm **out, tsr_error *error);

/* A rank without others, which counts what it would send: memory is neither read nor written, and may be NULL. */
int tsr__dry_comm_new(uint32_t rank, uint32_t size, tsr__comm **out, tsr_error *error);

/* Where ranks that are threads of one process meet. Outlives their communicators. */
typedef struct tsr__hub tsr__hub;
/* NULL when out of memory or threads. */
tsr__hub *tsr__hub_new(uint32_t size);
/* Ranks 0 to size - 1, each once. */
int tsr__threads_comm_new(tsr__hub *hub, uint32_t rank, tsr__comm **out, tsr_error *error);
/* After the communicators. NULL is fine. */
void tsr__hub_free(tsr__hub *hub);

typedef enum tsr__mpi_kind { TSR__MPI_OPEN, TSR__MPI_MPICH } tsr__mpi_kind;

/* The processes that a launcher of MPI (mpirun, srun) has started, this one among them; the library is loaded here. Which
 * kind it is shows in the environment: OMPI_COMM_WORLD_SIZE is Open MPI's, PMI_RANK MPICH's. Once per process. Fails
 * with TSR_ERROR_UNSUPPORTED if the library cannot be loaded or cannot be called by threads. */
int tsr__mpi_comm_new(tsr__mpi_kind kind, tsr__comm **out, tsr_error *error);

#endif
