/* open.h - telling forms of snapshot apart, by content and never by name. */
#ifndef TSR_FORMATS_OPEN_H
#define TSR_FORMATS_OPEN_H

#include "columns/builder.h"
#include "io/source.h"
#include "tessera/unstable/columns.h"

/* Read the snapshot that `source` holds, unwrapped already, into a builder that is initialised here:
 * all but its sidecar, laid out. The builder must be released either way. `input_bytes` is the size
 * of the input as stored, 0 if unknown, and `wrapping` what it was wrapped in, as
 * tsr__stream_unwrap returns it ("", "gzip "). Errors are those of tsr_snapshot_read. */
int tsr__snapshot_from_source(tsr__input *source, uint64_t input_bytes, const char *wrapping,
                              const tsr_open_options *options, tsr__builder *builder,
                              tsr_error *error);

#endif
