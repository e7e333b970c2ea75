/* open.h - telling forms of snapshot apart, by content and never by name. */
#ifndef TSR_SNAPSHOT_OPEN_H
#define TSR_SNAPSHOT_OPEN_H

#include "io/source.h"
#include "tessera/snapshot.h"

/* Read the snapshot that `source` holds; `input_bytes` is the input's size, 0 where unknown. */
int tsr__snapshot_from_source(tsr__source *source, uint64_t input_bytes,
                              const tsr_open_options *options, tsr_snapshot **out,
                              tsr_error *error);

#endif
