/* source.h - what a source file holds, for callers that already know the devices. */
#ifndef TSR_QUESTIONS_SOURCE_SOURCE_H
#define TSR_QUESTIONS_SOURCE_SOURCE_H

#include "tessera/unstable/source.h"

/* tsr_source_compute for these devices (possibly none), which the snapshot must have. */
int tsr__source_of(tsr_study *study, const tsr_source_file *file, const uint32_t *devices,
                   size_t device_count, size_t top, tsr_source **out, tsr_error *error);

#endif
