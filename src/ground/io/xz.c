/* xz.c - the .xz form: streams, one after the other, with padding of zeros between them.
 *
 * liblzma walks from stream to stream by itself (LZMA_CONCATENATED) and checks the sums. A stream
 * names the size of the dictionary that its decoder must keep, up to 4 GiB; liblzma refuses one
 * beyond the limit it is given, one 128th of tsr_limits.memory_bytes. Other than gzip, xz forbids
 * anything after its data, so what is found there counts as damage; the data itself has been
 * delivered by then. */
#include <lzma.h>

#include "base/memory.h"
#include "io/decoder.h"
#include "io/forms.h"

typedef struct xz_stream {
  tsr__decoder decoder;
  lzma_stream lzma;
} xz_stream;

static void *allocate(void *opaque, size_t count, size_t item_size) {
  (void)opaque;
  return tsr__realloc(NULL, count, item_size);
}

static void release(void *opaque, void *address) {
  (void)opaque;
  tsr__free(address);
}

static int fail_code(const tsr__decoder *decoder, lzma_ret result, tsr_error *error) {
  switch (result) {
  case LZMA_MEM_ERROR: return tsr__fail_memory(error);
  case LZMA_MEMLIMIT_ERROR:
    return tsr__fail(error, TSR_ERROR_LIMIT, decoder->base.delivered_bytes,
                     "the xz data needs a dictionary of more than one 128th of "
                     "tsr_limits.memory_bytes");
  case LZMA_OPTIONS_ERROR:
    return tsr__decoder_damaged(decoder, "it uses options that do not exist", error);
  case LZMA_FORMAT_ERROR: return tsr__decoder_damaged(decoder, "it has no xz header", error);
  default: return tsr__decoder_damaged(decoder, "it does not decode", error);
  }
}

static int xz_step(tsr__decoder *decoder, tsr__decoder_io *io, tsr_error *error) {
  lzma_stream *lzma = &((xz_stream *)decoder)->lzma;
  lzma->next_in = io->in;
  lzma->avail_in = io->in_size;
  lzma->next_out = io->out;
  lzma->avail_out = io->out_size;
  lzma_ret result = lzma_code(lzma, io->in_ended ? LZMA_FINISH : LZMA_RUN);
  io->in += io->in_size - lzma->avail_in;
  io->in_size = lzma->avail_in;
  io->out += io->out_size - lzma->avail_out;
  io->out_size = lzma->avail_out;
  if (result == LZMA_STREAM_END) return TSR__DECODED_ALL;
  if (result == LZMA_OK || result == LZMA_BUF_ERROR) return 0;
  return fail_code(decoder, result, error);
}

static void xz_release(tsr__decoder *decoder) {
  lzma_end(&((xz_stream *)decoder)->lzma);
}

int tsr__stream_xz(tsr__stream *below, const tsr_limits *limits, tsr__stream **out,
                   tsr_error *error) {
  static const lzma_allocator memory = {.alloc = allocate, .free = release};
  xz_stream *xz = TSR__NEW(xz_stream);
  if (!xz) {
    below->close(below);
    return tsr__fail_memory(error);
  }
  xz->decoder = (tsr__decoder){.name = "xz", .step = xz_step, .release = xz_release};
  xz->lzma = (lzma_stream)LZMA_STREAM_INIT;
  xz->lzma.allocator = &memory;
  int status = tsr__decoder_open(&xz->decoder, below, limits, error);
  if (status) return status;
  if (lzma_stream_decoder(&xz->lzma, tsr__decoder_memory(limits), LZMA_CONCATENATED) != LZMA_OK) {
    tsr__decoder_close(&xz->decoder.base);
    return tsr__fail_memory(error);
  }
  *out = &xz->decoder.base;
  return 0;
}
