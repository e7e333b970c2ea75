/* tessera/unstable/card.h - what else is on the card: its memory, as nvidia-smi shows it, divided among those who hold it.
 *
 * The ledgers of one or more processes (tessera/unstable/ledger.h) have samples of the whole card's used memory and of what
 * each process knows about itself. At a moment the parts add up to the used memory, to the byte: what nobody accounts for is
 * a part of its own, and what is counted twice is one with negative bytes. */
#ifndef TESSERA_UNSTABLE_CARD_H
#define TESSERA_UNSTABLE_CARD_H

#include "tessera/study.h"
#include "tessera/unstable/ledger.h"
#include "tessera/unstable/sidecar.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tsr_card_kind {
  TSR_CARD_ALLOCATED, /* by PyTorch, on the card: not what sleeping pools have unmapped */
  TSR_CARD_CACHED,    /* reserved by PyTorch, and free */
  TSR_CARD_CONTEXT,
  TSR_CARD_LIBRARY,
  TSR_CARD_COMMUNICATOR,
  TSR_CARD_DRIVER,
  TSR_CARD_PROCESS,     /* another one, that wrote none of the files */
  TSR_CARD_HERE,        /* of this process by NVML's count, and in no part of its own */
  TSR_CARD_UNACCOUNTED, /* in no part at all */
  TSR_CARD_TWICE,       /* negative: what parts have in common */
  TSR_CARD_KIND_COUNT
} tsr_card_kind;

/* "allocated", "communicator", ...; static text, never NULL. */
const char *tsr_card_kind_name(tsr_card_kind kind);

typedef enum tsr_card_moment_kind {
  TSR_CARD_PEAK, /* when most of the card was used, the first such sample */
  TSR_CARD_END,  /* the last sample */
  TSR_CARD_EARLY, /* what growth is counted from: the second step's mark, or else a quarter of the time */
  TSR_CARD_AT, /* the time that was asked for: the last sample up to it */
  TSR_CARD_MOMENTS
} tsr_card_moment_kind;

typedef struct tsr_card_part {
  tsr_card_kind kind;
  const char *name; /* of the library, group or process; else "" */
  const char *from; /* how it was measured; "" if not recorded */
  uint32_t holder;  /* whose; TSR_NONE: of no process that wrote a file */
  uint64_t pid;     /* PROCESS */
  uint64_t ranks;   /* COMMUNICATOR; 0: not recorded */
  bool is_suspended;
  bool is_known[TSR_CARD_MOMENTS];
  int64_t bytes[TSR_CARD_MOMENTS]; /* 0 where it is not known */
  bool is_steady;                  /* it grew in each quarter of the time from EARLY to END */
} tsr_card_part;

typedef struct tsr_card_moment {
  bool is_there;
  int64_t time_us;
  const char *mark; /* of the sample; "": the timer's */
  uint64_t used_bytes;
} tsr_card_moment;

/* A device of a process that wrote a file. */
typedef struct tsr_card_holder {
  const char *path;
  int64_t rank, world_size; /* -1: unknown */
  uint64_t pid;             /* 0: unknown */
  const char *host;         /* "" likewise */
  const char *label;        /* how text names it: "trainer.pickle", "rank 3" */
  uint32_t device;
  uint64_t asleep_bytes[TSR_CARD_MOMENTS];  /* of what PyTorch has reserved: not mapped */
  uint64_t private_bytes[TSR_CARD_MOMENTS]; /* of the same: in private pools; TSR_LEDGER_UNKNOWN */
  uint64_t peak_bytes;     /* the most that it held by itself, on the common clock; 0: unknown */
  uint64_t together_bytes; /* what it held when all together held most */
} tsr_card_holder;

/* What a card's process does from one time to another, by its own name for it; and what others must have released by then. */
typedef struct tsr_card_phase {
  const char *name;
  uint32_t holder;
  uint64_t times;        /* how often */
  int64_t first_us;      /* of the most demanding one */
  uint64_t needs_bytes;  /* the most that the holder had in it, with a request that failed */
  uint64_t others_bytes; /* what the others had when all together had most */
  uint64_t sum_bytes;    /* that sum */
  uint64_t room_bytes;   /* what the others may hold at most */
  uint64_t
      before_bytes; /* the most that the others held between this phase and the one of its name before */
  uint64_t start_bytes; /* what they held when it began */
  uint64_t
      release_bytes; /* before - room: what they must have released when it begins; 0: nothing */
  uint32_t releaser; /* who held most of it; TSR_NONE */
  uint64_t missing_bytes; /* the holder ran out of memory in it: so much was missing */
} tsr_card_phase;

/* How much the file says about its card. */
typedef enum tsr_card_source {
  TSR_CARD_FROM_LEDGER,
  TSR_CARD_FROM_SIDECAR, /* an older one: what is not PyTorch's is one figure, of the end */
  TSR_CARD_FROM_NOTHING
} tsr_card_source;

/* "ledger", "sidecar", "nothing"; static text, never NULL. */
const char *tsr_card_source_name(tsr_card_source source);

/* Why parts have bytes in common. */
typedef enum tsr_card_overlap {
  TSR_CARD_OVERLAP_NONE,
  TSR_CARD_OVERLAP_MOMENTS, /* samples of different moments were added */
  TSR_CARD_OVERLAP_FIRST, /* what a library or group takes was measured around its first use, where others grew too */
  TSR_CARD_OVERLAP_COUNTERS /* the counters of one sample were read one after another */
} tsr_card_overlap;

/* "none", "moments", "first_use", "counters"; static text, never NULL. */
const char *tsr_card_overlap_name(tsr_card_overlap overlap);

typedef struct tsr_card_use {
  tsr_card_source source;
  const char *name, *uuid; /* "" if not recorded */
  uint64_t total_bytes;    /* TSR_LEDGER_UNKNOWN */
  tsr_card_holder *holders;
  size_t holder_count;
  bool is_one_by_uuid; /* several holders: their files name the same card */
  tsr_card_moment moments[TSR_CARD_MOMENTS];
  tsr_card_part
      *parts; /* those that are not 0 at all moments; FROM_NOTHING: what PyTorch had at the end */
  size_t part_count;
  tsr_card_overlap overlap;       /* at the peak */
  uint64_t stale_us;              /* several holders: how old the oldest sample of the peak is */
  size_t sample_count;            /* of all holders */
  tsr_ledger_recording recording; /* of the first holder */
  const char *const *notes;       /* of the recorder, of this card: what is not known, and why */
  size_t note_count;
  tsr_host_ledger host;                     /* of the first holder; without its columns */
  uint64_t host_peak_bytes, host_end_bytes; /* resident; TSR_LEDGER_UNKNOWN */

  /* Several holders with times. */
  int64_t together_us; /* when all together held most; TSR_TIME_NONE: not known */
  uint64_t together_bytes, sum_of_peaks_bytes;
  tsr_card_phase *phases;
  size_t phase_count;
} tsr_card_use;

/* A card of which one kind is larger than on the others. */
typedef struct tsr_card_apart {
  size_t card;
  tsr_card_kind kind;
  uint64_t bytes, others_bytes; /* its own, and the most of those that do not stand apart */
} tsr_card_apart;

typedef struct tsr_card_broken {
  const char *path, *message;
} tsr_card_broken;

typedef struct tsr_cards {
  tsr_card_use *cards; /* in the order of files, and devices */
  size_t card_count, file_count;
  bool is_table; /* cards are compared, not explained one by one */
  tsr_card_apart *apart;
  size_t apart_count;
  tsr_card_broken *broken;
  size_t broken_count;
  const tsr_snapshot *first; /* of the files: for the heading */
  tsr_warning *warnings;     /* of the other files */
  size_t warning_count;
  size_t top;   /* rows that text lists; 0: all */
  void *memory; /* private */
} tsr_cards;

typedef struct tsr_card_options {
  const char *const *places; /* folders, patterns, lists, files */
  size_t place_count;
  bool has_time;
  int64_t time_us;
  bool has_device;
  uint32_t device;
} tsr_card_options;

/* Read the files and divide their cards. A study, if not NULL, is asked in place of files and outlives the answer. Processes are of one
 * card if their files say so by its UUID, or, without one, if they were named one by one and may be: same device number, size and
 * machine, and no two ranks of one job. Time is that of replaying the traces if there are several files, and of opening them otherwise.
 * Fails with TSR_ERROR_ARGUMENT, TSR_ERROR_IO, TSR_ERROR_MEMORY, and as tsr_snapshot_open if there is one file. */
int tsr_cards_compute(tsr_study *study, const tsr_card_options *options, tsr_cards **out,
                      tsr_error *error);
void tsr_cards_free(tsr_cards *cards);

#ifdef __cplusplus
}
#endif
#endif
