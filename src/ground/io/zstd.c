/* zstd.c - Zstandard: frames, one after the other.
 *
 * libzstd walks from frame to frame and over skippable ones by itself; this file says which errors
 * mean what. Bytes after the last frame that begin no frame end the data.
 *
 * A frame's header says how large a window its decoder must keep. libzstd takes that memory when it
 * sees the header, so it is bounded: by the largest power of two within one 128th of
 * tsr_limits.memory_bytes, and by the 2 GiB that `zstd --long=31` needs. By default that is all
 * that zstd can write. The system fills the memory only as data arrives.
 *
 * libzstd's own allocator hook is no stable interface, so this is the only library memory that does
 * not go through base/memory.h. */
#include <zstd.h>
#include <zstd_errors.h>

#include "base/memory.h"
#include "io/decoder.h"
#include "io/forms.h"

enum { LEAST_WINDOW_LOG = 10, MOST_WINDOW_LOG = 31 };

typedef struct zstd_stream {
  tsr__decoder decoder;
  ZSTD_DCtx *context;
  bool has_frame; /* at least one frame is complete */
} zstd_stream;

static int fail_code(zstd_stream *zstd, size_t result, tsr_error *error) {
  switch (ZSTD_getErrorCode(result)) {
  case ZSTD_error_memory_allocation: return tsr__fail_memory(error);
  case ZSTD_error_frameParameter_windowTooLarge:
    return tsr__fail(error, TSR_ERROR_LIMIT, zstd->decoder.base.delivered_bytes,
                     "the zstd data needs a window of more than one 128th of "
                     "tsr_limits.memory_bytes");
  case ZSTD_error_prefix_unknown:
    if (zstd->has_frame) return TSR__DECODED_ALL;
    break;
  case ZSTD_error_dictionary_wrong:
    if (zstd->has_frame) break;
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, 0, "the zstd data needs its dictionary");
  default: break;
  }
  return tsr__decoder_damaged(&zstd->decoder, ZSTD_getErrorName(result), error);
}

static int zstd_step(tsr__decoder *decoder, tsr__decoder_io *io, tsr_error *error) {
  zstd_stream *zstd = (zstd_stream *)decoder;
  if (decoder->at_boundary && !io->in_size) return 0;
  ZSTD_inBuffer in = {io->in, io->in_size, 0};
  ZSTD_outBuffer out = {io->out, io->out_size, 0};
  size_t result = ZSTD_decompressStream(zstd->context, &out, &in);
  io->in += in.pos;
  io->in_size -= in.pos;
  io->out += out.pos;
  io->out_size -= out.pos;
  if (ZSTD_isError(result)) return fail_code(zstd, result, error);
  decoder->at_boundary = result == 0;
  zstd->has_frame = zstd->has_frame || decoder->at_boundary;
  return 0;
}

static void zstd_release(tsr__decoder *decoder) {
  (void)ZSTD_freeDCtx(((zstd_stream *)decoder)->context);
}

static int window_log(const tsr_limits *limits) {
  int log = LEAST_WINDOW_LOG;
  while (log < MOST_WINDOW_LOG && UINT64_C(2) << log <= tsr__decoder_memory(limits)) log++;
  return log;
}

int tsr__stream_zstd(tsr__stream *below, const tsr_limits *limits, tsr__stream **out,
                     tsr_error *error) {
  zstd_stream *zstd = TSR__NEW(zstd_stream);
  if (!zstd) {
    below->close(below);
    return tsr__fail_memory(error);
  }
  zstd->decoder = (tsr__decoder){.name = "zstd", .step = zstd_step, .release = zstd_release};
  int status = tsr__decoder_open(&zstd->decoder, below, limits, error);
  if (status) return status;
  zstd->context = ZSTD_createDCtx();
  if (!zstd->context || ZSTD_isError(ZSTD_DCtx_setParameter(zstd->context, ZSTD_d_windowLogMax,
                                                            window_log(limits)))) {
    tsr__decoder_close(&zstd->decoder.base);
    return tsr__fail_memory(error);
  }
  *out = &zstd->decoder.base;
  return 0;
}
