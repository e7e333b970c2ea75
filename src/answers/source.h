/* source.h - what a source file holds, for whom the devices are known. */
#ifndef TSR_ANSWERS_SOURCE_H
#define TSR_ANSWERS_SOURCE_H

#include "tessera/source.h"

/* tsr_source_compute for these devices, perhaps none, which the snapshot must have. */
int tsr__source_of(const tsr_snapshot *snapshot, const tsr_source_file *file,
                   const uint32_t *devices, size_t device_count, size_t top, tsr_source **out,
                   tsr_error *error);

#endif
