/* card.h - whether a run can be on a card as it is: what its driver leaves to PyTorch's allocator, and which types it
 * computes with.
 *
 *   memory of the data sheet  16 GiB on a T4
 *   - what the driver keeps   page tables, ECC and more          ─► visible: what torch.cuda.mem_get_info() calls total
 *   - context and libraries   CUDA context, kernels, cuBLAS, NCCL ─► safe: what the allocator may reserve
 *
 * The visible memory of each card (gpu_rows.def) is the smallest total that PyTorch's out-of-memory messages in public
 * issues have for it, as of 2026. What context, libraries and NCCL take is in outside.h. docs/plan.md has the table. */
#ifndef TSR_EXEC_CARD_H
#define TSR_EXEC_CARD_H

#include "exec/cost.h"
#include "exec/outside.h"
#include "tessera/simulate.h"

/* Whether its tensor cores multiply bf16: from compute capability 8.0 on. */
bool tsr__card_has_bf16(const tsr__data_sheet *gpu);

/* What PyTorch's allocator may reserve so that what is outside of it has room, also at its most. `outside` must be counted. */
uint64_t tsr__card_safe_bytes(const tsr__data_sheet *gpu, const tsr_outside *outside);

/* What is wrong with a run of so many reserved bytes on the card: "does not fit" or "may run out of memory"; NULL if it fits. */
const char *tsr__card_lacks_room(const tsr__data_sheet *gpu, uint64_t reserved_bytes,
                                 const tsr_outside *outside);

enum { TSR__CARD_NOTES = 2, TSR__CARD_NOTE_BYTES = 384 };

/* Sentences without full stops. */
typedef struct tsr__card_notes {
  char text[TSR__CARD_NOTES][TSR__CARD_NOTE_BYTES];
  size_t count;
} tsr__card_notes;

/* Note types that the card has no hardware for. `how` has a model's types, so it must not be for a step graph. */
void tsr__card_note_types(const tsr__data_sheet *gpu, const tsr_simulate_options *how,
                          tsr__card_notes *out);

/* A limit on what the allocator reserves, and a run to compare with the card. */
typedef struct tsr__card_room {
  const char *limit;          /* what the limit is called: "budget" */
  uint64_t limit_bytes;       /* 0: none */
  const char *run;            /* what is compared: "this plan" */
  uint64_t reserved_bytes;    /* 0: there is no run */
  const tsr_outside *outside; /* counted */
} tsr__card_room;

/* Note a limit, or, without one, a run, that leaves no room for context and libraries. */
void tsr__card_note_room(const tsr__data_sheet *gpu, const tsr__card_room *room,
                         tsr__card_notes *out);

#endif
