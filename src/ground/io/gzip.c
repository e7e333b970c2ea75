/* gzip.c - gzip: members, one after the other.
 *
 *   1f 8b .. header | deflated data | CRC-32, size     1f 8b ... | ... | ...     anything
 *   '------------------ member ------------------'     '------ member ------'    ignored
 *
 * `gzip -c >>` and pigz write several members; their contents belong together. After the last one
 * tapes and transfers leave zeros or worse, which gzip itself ignores, and so does this file: what
 * does not begin with a member's two magic bytes ends the data. zlib checks each member's sum. */
#include "base/memory.h"
#include "io/forms.h"
#include "io/inflate.h"

enum { FIRST_MAGIC_BYTE = 0x1f, MAGIC_BYTES = 2 };

typedef struct gzip_stream {
  tsr__decoder decoder;
  z_stream z;
  bool between_members, has_member; /* a member is just complete; was there one at all? */
} gzip_stream;

/* Has this member given us nothing but (perhaps) its magic bytes? */
static bool is_untouched(const z_stream *z) {
  return z->total_out == 0 && z->total_in <= MAGIC_BYTES;
}

static int gzip_step(tsr__decoder *decoder, tsr__decoder_io *io, tsr_error *error) {
  gzip_stream *gzip = (gzip_stream *)decoder;
  if (gzip->between_members) {
    if (!io->in_size) return 0;
    if (*io->in != FIRST_MAGIC_BYTE) return TSR__DECODED_ALL;
    (void)inflateReset(&gzip->z);
    gzip->between_members = false;
  }
  int result = tsr__inflate(&gzip->z, io);
  if (result == Z_STREAM_END) gzip->between_members = gzip->has_member = true;
  decoder->at_boundary = gzip->between_members || (gzip->has_member && is_untouched(&gzip->z) &&
                                                   gzip->z.total_in < MAGIC_BYTES);
  if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR) return 0;
  if (result == Z_MEM_ERROR) return tsr__fail_memory(error);
  if (gzip->has_member && is_untouched(&gzip->z)) return TSR__DECODED_ALL;
  return tsr__decoder_damaged(decoder, gzip->z.msg ? gzip->z.msg : "unknown form", error);
}

static void gzip_release(tsr__decoder *decoder) {
  (void)inflateEnd(&((gzip_stream *)decoder)->z);
}

int tsr__stream_gzip(tsr__stream *below, const tsr_limits *limits, tsr__stream **out,
                     tsr_error *error) {
  gzip_stream *gzip = TSR__NEW(gzip_stream);
  if (!gzip) {
    below->close(below);
    return tsr__fail_memory(error);
  }
  gzip->decoder = (tsr__decoder){.name = "gzip", .step = gzip_step, .release = gzip_release};
  int status = tsr__decoder_open(&gzip->decoder, below, limits, error);
  if (status) return status;
  status = tsr__inflate_open(&gzip->z, TSR__INFLATE_GZIP, error);
  if (status) {
    tsr__decoder_close(&gzip->decoder.base);
    return status;
  }
  *out = &gzip->decoder.base;
  return 0;
}
