/* open.h - telling forms of snapshot apart, by content and never by name. */
#ifndef TSR_SNAPSHOT_OPEN_H
#define TSR_SNAPSHOT_OPEN_H

#include "io/source.h"
#include "tessera/snapshot.h"

/* Read the snapshot that `source` holds, unwrapped already; `input_bytes` is the size of the input
 * as stored, 0 where unknown, and `wrapping` what it was wrapped in, as tsr__stream_unwrap says
 * ("", "gzip "). */
int tsr__snapshot_from_source(tsr__source *source, uint64_t input_bytes, const char *wrapping,
                              const tsr_open_options *options, tsr_snapshot **out,
                              tsr_error *error);

#endif
