/* profile.h - the part of reports that prints a tsr_memory_profile. */
#ifndef TSR_QUESTIONS_SIMULATE_PROFILE_H
#define TSR_QUESTIONS_SIMULATE_PROFILE_H

#include "emit/emitter.h"
#include "tessera/unstable/simulation.h"

/* Emit a profile as text, or as members of the open object. Text has at most `top` blocks and groups of memory (0:
 * all). False when out of memory. */
bool tsr__emit_memory_profile(tsr__emitter *emitter, const tsr_memory_profile *profile,
                              uint64_t top);

#endif
