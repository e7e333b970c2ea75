/* card.h - between the files of the question "card". */
#ifndef TSR_QUESTIONS_CARD_H
#define TSR_QUESTIONS_CARD_H

#include "base/arena.h"
#include "base/error.h"
#include "base/vector.h"
#include "columns/tables.h"
#include "emit/fields.h"
#include "tessera/output.h"
#include "tessera/study.h"
#include "tessera/unstable/card.h"
#include "tessera/unstable/input.h"

/* From this time on, so much. */
typedef struct tsr__card_step {
  int64_t time_us;
  uint64_t bytes;
} tsr__card_step;

/* What a process did, by an annotation. */
typedef struct tsr__card_range {
  const char *name;
  int64_t from_us, to_us;
} tsr__card_range;

typedef struct tsr__card_oom {
  int64_t time_us;
  uint64_t missing_bytes;
} tsr__card_oom;

/* A device of a file, as much of it as is needed when the snapshot is gone. Texts and ledgers are in the answer's arena. */
typedef struct tsr__card_member {
  size_t file;      /* files are numbered as they were given */
  bool is_explicit; /* the file was named by itself */
  tsr_card_holder holder;
  const tsr_ledger *ledger; /* NULL: none with samples */
  tsr_ledger_recording recording;
  tsr_host_ledger host;
  tsr_card old; /* of the sidecar */
  uint64_t end_allocated_bytes, end_reserved_bytes;
  TSR__VECTOR(tsr__card_step)
  reserved; /* by the trace, where it has times; empty unless files are joined */
  TSR__VECTOR(tsr__card_range) ranges; /* by their beginnings */
  TSR__VECTOR(tsr__card_oom) ooms;
  size_t card;
} tsr__card_member;

typedef TSR__VECTOR(tsr__card_member) tsr__card_members;

/* What an answer owns. */
typedef struct tsr__cards_memory {
  tsr__arena texts;
  tsr_snapshot *first; /* NULL if it is the caller's */
} tsr__cards_memory;

/* Read a snapshot's devices; `reads_trace`: with what joining needs. TSR_ERROR_MEMORY. */
int tsr__card_read_members(tsr_study *study, const tsr__card_member *like, bool reads_trace,
                           tsr__arena *texts, tsr__card_members *out, tsr_error *error);
void tsr__card_members_release(tsr__card_members *members);

/* Divide a card among its members, `count` of them. TSR_ERROR_MEMORY. O(samples x parts). */
int tsr__card_divide(const tsr__card_member *const *members, size_t count,
                     const tsr_card_options *options, tsr__arena *texts, tsr_card_use *out,
                     tsr_error *error);
/* What the members held together, and what each must release, when. TSR_ERROR_MEMORY. */
int tsr__card_join(const tsr__card_member *const *members, size_t count, tsr__arena *texts,
                   tsr_card_use *out, tsr_error *error);

extern const tsr_record tsr__fields_card;
int tsr__report_card(const tsr_report_input *input, const tsr_cards *cards,
                     const tsr_report_options *options, tsr_write_fn *write, void *context,
                     tsr_error *error);

#endif
