/* sidecar.h - reading the JSON that tessera.record writes next to a snapshot, and keeping it in snapshots
 * that tessera writes. */
#ifndef TSR_FORMATS_SIDECAR_H
#define TSR_FORMATS_SIDECAR_H

#include "columns/builder.h"

/* The type of a row that is not a tensor: its name is what the program said of the whole block, as
 * metadata or in an annotation that `trim` left behind. */
#define TSR__SIDECAR_SAID "metadata"

/* A larger file is not read: that of a hundred thousand tensors is half of it. */
#define TSR__SIDECAR_BYTES ((size_t)64 << 20)

/* Find and read the sidecar of a snapshot whose rows are laid out (tsr__builder_lay_out). `choice`
 * is tsr_open_options.sidecar; `path` that of the snapshot, or NULL if it was read from memory. A
 * file found by its name that cannot be read becomes a warning; one that was requested by name
 * makes this fail with TSR_ERROR_IO, _FORMAT or _LIMIT, and a message that names it. Otherwise the
 * only failure is TSR_ERROR_MEMORY. O(n log n) in tensors and blocks. */
int tsr__sidecar_find(tsr__builder *builder, const char *path, const char *choice,
                      tsr_error *error);

/* The same for a text in memory: TSR_ERROR_FORMAT or _MEMORY, and no sidecar then. */
int tsr__sidecar_read(tsr__builder *builder, const char *text, size_t size_bytes, tsr_error *error);

/* Set `sidecar->string` to a text with everything in it, which is written with the snapshot and read
 * again where there is no file next to it. One that is larger than TSR__SIDECAR_BYTES is not. Fails with
 * TSR_ERROR_MEMORY. */
int tsr__sidecar_embed(tsr__builder *builder, tsr__sidecar *sidecar, tsr_error *error);

#endif
