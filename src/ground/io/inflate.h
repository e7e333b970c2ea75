/* inflate.h - zlib's inflate with this library's memory, for gzip.c and zip.c. */
#ifndef TSR_IO_INFLATE_H
#define TSR_IO_INFLATE_H

#define ZLIB_CONST
#include <zlib.h>

#include "io/decoder.h"

/* windowBits of inflateInit2: the largest window, and which wrapping to expect. */
enum { TSR__INFLATE_RAW = -15, TSR__INFLATE_GZIP = 15 + 16 };

/* A zeroed z_stream may be given to inflateEnd. Fails with TSR_ERROR_MEMORY. */
int tsr__inflate_open(z_stream *z, int window_bits, tsr_error *error);
/* One call of inflate on `io`; returns what inflate does. */
int tsr__inflate(z_stream *z, tsr__decoder_io *io);

#endif
