/* tessera/unstable/causes.h - memory by category and by the program line that allocated it: how `why` and
 * `check` report what held the card. */
#ifndef TESSERA_UNSTABLE_CAUSES_H
#define TESSERA_UNSTABLE_CAUSES_H

#include "tessera/unstable/attribution.h"
#include "tessera/unstable/columns.h"
#include "tessera/unstable/names.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the allocations of one category and one line hold. The line is the program's innermost
 * frame, or if a stack has none, a library's, torch's or C++'s. */
typedef struct tsr_cause {
  tsr_category category;
  uint32_t frame; /* frame id of the line, or TSR_NONE: memory whose stack was not recorded */
  uint32_t layer; /* innermost frame of the library that the line called, or TSR_NONE */
  uint32_t stack; /* of its largest allocation, or TSR_NONE */
  bool is_older;  /* without a line: it is older than the recording */
  uint64_t bytes; /* requested bytes, as every question counts what an allocation holds */
  uint64_t allocations;
  uint64_t block_bytes; /* the same with rounding and tails */
  tsr_name_range names; /* what the program called it */
} tsr_cause;

/* What all allocations of one category hold. */
typedef struct tsr_category_share {
  tsr_category category;
  uint64_t bytes; /* as in tsr_cause */
  uint64_t allocations;
  uint64_t block_bytes;
} tsr_category_share;

#ifdef __cplusplus
}
#endif
#endif
