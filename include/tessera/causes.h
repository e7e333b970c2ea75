/* tessera/causes.h - memory by what it is for and the line of the program that took it: the words
 * in which `why` and `check` say who held a card. */
#ifndef TESSERA_CAUSES_H
#define TESSERA_CAUSES_H

#include "tessera/attribution.h"
#include "tessera/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What allocations of one kind hold that one line took. The line is the program's own innermost
 * frame; where a stack has none, a library's, torch's or C++'s. */
typedef struct tsr_cause {
  tsr_kind kind;
  uint32_t frame; /* frame id of the line, or TSR_NONE: memory whose stack was not recorded */
  uint32_t layer; /* of the library that the line called, its innermost frame there, or TSR_NONE */
  uint32_t stack; /* of its largest allocation, or TSR_NONE */
  uint64_t bytes, allocations;
} tsr_cause;

/* What all allocations of one kind hold. */
typedef struct tsr_kind_share {
  tsr_kind kind;
  uint64_t bytes, allocations;
} tsr_kind_share;

#ifdef __cplusplus
}
#endif
#endif
