/* inflate.c - between zlib's idea of a buffer and ours.
 *
 * zlib counts buffers in 32 bits and takes its memory through callbacks. Here its memory comes from
 * base/memory.h like all other, and pieces longer than zlib can count are given to it in part: the
 * loop in decoder.c calls again. */
#include "io/inflate.h"

#include <assert.h>
#include <limits.h>

#include "base/memory.h"

static voidpf allocate(voidpf opaque, uInt count, uInt item_size) {
  (void)opaque;
  return tsr__calloc(count, item_size);
}

static void release(voidpf opaque, voidpf address) {
  (void)opaque;
  tsr__free(address);
}

int tsr__inflate_open(z_stream *z, int window_bits, tsr_error *error) {
  *z = (z_stream){.zalloc = allocate, .zfree = release};
  return inflateInit2(z, window_bits) == Z_OK ? 0 : tsr__fail_memory(error);
}

int tsr__inflate(z_stream *z, tsr__decoder_io *io) {
  uInt in_size = io->in_size < UINT_MAX ? (uInt)io->in_size : UINT_MAX;
  uInt out_size = io->out_size < UINT_MAX ? (uInt)io->out_size : UINT_MAX;
  z->next_in = io->in;
  z->avail_in = in_size;
  z->next_out = io->out;
  z->avail_out = out_size;
  int result = inflate(z, Z_NO_FLUSH);
  assert(z->avail_in <= in_size && z->avail_out <= out_size);
  io->in += in_size - z->avail_in;
  io->in_size -= in_size - z->avail_in;
  io->out += out_size - z->avail_out;
  io->out_size -= out_size - z->avail_out;
  return result;
}
