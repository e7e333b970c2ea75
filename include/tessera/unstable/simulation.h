/* tessera/unstable/simulation.h - the results of a simulated run. */
#ifndef TESSERA_UNSTABLE_SIMULATION_H
#define TESSERA_UNSTABLE_SIMULATION_H

#include "tessera/category.h"
#include "tessera/simulate.h"
#include "tessera/unstable/outside.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The peaks of a memory space other than the device. */
typedef struct tsr_space_peak {
  uint64_t allocated_bytes, reserved_bytes;
} tsr_space_peak;

/* A moment of the simulated run. */
typedef struct tsr_simulate_moment {
  int64_t event;     /* its number in the snapshot's trace; -1: before the first event */
  uint64_t step;     /* from 1; 0: before the first step */
  const char *phase; /* "forward", "backward", ...; static text */
  char op[48];       /* the running op, possibly truncated, or "" */
  tsr_allocator_totals totals;
  uint64_t category_bytes[TSR_CATEGORY_COUNT]; /* requested */
} tsr_simulate_moment;

/* ---- What is in memory at a run's peak ---- */

/* Requested memory, grouped by the fields below. Texts are static. */
typedef struct tsr_memory_row {
  uint32_t block; /* of the model, from 0, or TSR_NONE */
  tsr_category category;
  const char *dtype;       /* of its first tensor: "fp32", "bf16", "fp16", "int64", ... */
  const char *op, *kernel; /* that made it, or "": parameters exist from the start */
  bool is_backward;        /* made by the op's backward */
  const char *saved_for;   /* the first op whose backward reads it, or "" */
  bool is_module_output;   /* visible to a forward hook on every module */
  uint64_t count, bytes;
} tsr_memory_row;

/* A phase of the run: its peak, and its end in the last step. Step 0 means that the phase was never reached. */
typedef struct tsr_memory_phase {
  tsr_simulate_moment peak, end;
} tsr_memory_phase;

#define TSR_MEMORY_PHASES 5

/* All memory of one category and type: what exists from the start, and what one step allocates. */
typedef struct tsr_memory_type {
  tsr_category category;
  const char *dtype;
  uint64_t count, bytes, peak_bytes; /* of all, and of what is live at the peak */
} tsr_memory_type;

#define TSR_MEMORY_TYPES (TSR_CATEGORY_COUNT * 8)

/* The complete profile. The rows' bytes and `lost_bytes` add up to what is allocated at the peak. */
typedef struct tsr_memory_profile {
  tsr_memory_row *rows; /* the largest first */
  size_t row_count;
  uint64_t lost_bytes; /* rounding and tails of blocks */
  uint32_t block_count;
  tsr_simulate_moment peak;
  uint64_t peak_reserved_bytes;
  tsr_memory_phase
      phases[TSR_MEMORY_PHASES];           /* zero_grad, forward, backward, optimizer, evaluation */
  tsr_memory_type types[TSR_MEMORY_TYPES]; /* type_count items, by category */
  size_t type_count;
} tsr_memory_profile;

/* Accepts NULL. */
void tsr_memory_profile_free(tsr_memory_profile *profile);

/* ---- A simulated run ---- */

#define TSR_SIMULATE_NOTES      12
#define TSR_SIMULATE_CARD_NOTES 2

typedef enum tsr_simulate_phase {
  TSR_SIMULATE_FORWARD,
  TSR_SIMULATE_BACKWARD,
  TSR_SIMULATE_OPTIMIZER,
  TSR_SIMULATE_EVALUATION,
  TSR_SIMULATE_PHASES
} tsr_simulate_phase;

struct tsr_simulation {
  tsr_snapshot *snapshot; /* owned by the simulation */
  uint64_t parameter_count;
  uint64_t largest_parameter; /* its elements, usually of the embedding; 0 for a step graph */
  uint64_t event_count, steps_done;
  tsr_simulate_moment peak; /* the first moment with the most allocated */
  tsr_simulate_moment
      phases[TSR_SIMULATE_PHASES]; /* the peak of each phase; step 0: never reached */
  uint64_t peak_reserved_bytes;
  uint64_t start_allocated_bytes;                    /* before the first event */
  uint64_t start_category_bytes[TSR_CATEGORY_COUNT]; /* requested */
  tsr_space_peak host, disk;                         /* offloaded memory, of one rank */
  uint64_t host_machine_bytes; /* reserved on the host by all ranks of a machine */
  bool is_out_of_memory;
  tsr_simulate_moment out_of_memory;
  uint64_t oom_request_bytes;
  uint64_t oom_segment_bytes;     /* what the allocator requested from the driver */
  uint64_t oom_device_free_bytes; /* what the driver had free */
  uint64_t step_flops;            /* of one step, including recomputation */
  uint64_t step_recomputed_flops;
  const char *gpu_title;                      /* the title of the chosen card, or NULL */
  double step_seconds;                        /* estimated for that card; 0 without one */
  double step_low_seconds, step_high_seconds; /* between which it really is */
  const char
      *step_source; /* what this range is from: "the card's data sheet"; NULL without a card */
  const char *notes[TSR_SIMULATE_NOTES]; /* assumptions that matter; live as long as this */
  size_t note_count;
  char card_notes[TSR_SIMULATE_CARD_NOTES][384]; /* the texts of notes on the chosen card */
  const char *card_title;                        /* NULL without a chosen card; static */
  const char *
      card_lacks; /* what is wrong with the run on it: "does not fit" or "may run out of memory"; NULL if nothing; static */
  tsr_memory_profile *profile; /* if requested; owned */
  tsr_outside outside;         /* of the options; not counted where they have none */
};

#ifdef __cplusplus
}
#endif
#endif
