/* outside.h - what a process holds of a card outside of PyTorch's allocator, and what that leaves to the allocator.
 *
 *   memory of the data sheet   24 GiB on an RTX 4090
 *   - what the driver keeps                        ─► visible (card.h)
 *   - context, libraries, NCCL: the high end       ─► the share: what the allocator can have for certain
 *
 * A limit that users give (--budget, --capacity) is PyTorch's own, as long as the card leaves it: the share is the smaller of the two. So
 * a limit that leaves room for the rest is not reduced again, and one that is the whole card is. If nobody named a card, but the
 * limit is the memory of cards in the table, to the byte ("24GiB", or "24GB"), it is taken for such a card: of those, the one that leaves most.
 *
 * The numbers of a range are sums of those of its parts. */
#ifndef TSR_EXEC_OUTSIDE_H
#define TSR_EXEC_OUTSIDE_H

#include "exec/cost.h"
#include "tessera/simulate.h"
#include "tessera/unstable/outside.h"

/* ---- NCCL's buffers ---- */

/* Where a communicator is used, and NCCL's settings. */
typedef struct tsr__nccl_job {
  uint8_t capability;
  bool has_links;                  /* NVLink, or AMD's links */
  uint64_t ranks, ranks_a_machine; /* 0: up to 8 ranks are on one machine */
  uint64_t
      peers; /* that this rank sends to and receives from directly, besides rings and trees: an all-to-all has all others */
  uint64_t channels; /* of rings and trees; 0: those of the table */
  uint64_t simple_bytes, ll_bytes,
      ll128_bytes; /* NCCL_BUFFSIZE, NCCL_LL_BUFFSIZE and NCCL_LL128_BUFFSIZE; 0: NCCL's defaults */
} tsr__nccl_job;

/* What one communicator holds on a rank's card after its first collectives; nothing for fewer than two ranks. At least: rings alone,
 * on the fewest channels of such cards. Probably: rings and trees, the mean over ranks. At most: the rank with most peers, and NVLink SHARP. The three
 * are in order, and grow with ranks on up to 8 cards, with peers, with channels and with sizes of buffers. O(1). */
tsr_outside_range tsr__nccl_bytes(const tsr__nccl_job *job);
/* The table's row for it: where its numbers are from. */
const char *tsr__nccl_source(const tsr__nccl_job *job);

/* ---- All of it ---- */

typedef struct tsr__machine tsr__machine;

/* A file of what was measured. The caller frees it. Fails as tsr_machine_file_check does. */
int tsr__machine_parse(const char *text, size_t size_bytes, tsr__machine **out, tsr_error *error);
void tsr__machine_free(tsr__machine *machine);

/* Whether the card of the data sheet is what its driver calls `name`, as torch.cuda.get_device_name() returns it: "Tesla T4", "NVIDIA
 * A100-SXM4-40GB". */
bool tsr__card_is_called(const tsr__data_sheet *gpu, const char *name);

typedef struct tsr__outside_question {
  const char *text;           /* of --outside: a size, "auto" or "none"; NULL: "auto" */
  const tsr__data_sheet *gpu; /* that was named; NULL: none */
  /* That a step was traced for, if nobody named one: it counts for a limit, unless that is more than its memory, or the memory of other
   * cards; NULL: none. */
  const tsr__data_sheet *traced_gpu;
  uint64_t limit_bytes;            /* 0: none */
  const tsr_simulate_options *how; /* ranks, replicas, ranks_per_node and the book are read */
  const tsr__machine *machine;     /* or NULL */
} tsr__outside_question;

/* Answer it. Fails with TSR_ERROR_ARGUMENT, whose message is what is wrong with the text, which follows "--outside ". */
int tsr__outside_of(const tsr__outside_question *question, tsr_outside *out, tsr_error *error);

/* The same for a card alone, by the table. */
tsr_outside tsr__outside_by_table(const tsr__data_sheet *gpu, const tsr_simulate_options *how);

/* The row of the table for such cards: where its numbers are from. */
const char *tsr__outside_card_source(const tsr__data_sheet *gpu);

#endif
