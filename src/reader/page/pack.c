/* pack.c - deflating columns. See pack.h.
 *
 * Bytes are collected in a buffer of 32 KiB (`room`), so that zlib is called rarely; once the stream
 * exceeds its limit, nothing more is compressed. */
#include "page/pack.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"

static voidpf allocate(voidpf opaque, uInt count, uInt item_size) {
  (void)opaque;
  return tsr__calloc(count, item_size);
}

static void release(voidpf opaque, voidpf address) {
  (void)opaque;
  tsr__free(address);
}

int tsr__pack_open(tsr__pack *pack, int level, size_t most_bytes, tsr_error *error) {
  pack->zip = (z_stream){.zalloc = allocate, .zfree = release};
  pack->out = (tsr__buffer){0};
  pack->most_bytes = most_bytes;
  pack->packed = 0;
  pack->used = 0;
  pack->is_failed = pack->is_full = false;
  return deflateInit(&pack->zip, level) == Z_OK ? 0 : tsr__fail_memory(error);
}

void tsr__pack_release(tsr__pack *pack) {
  (void)deflateEnd(&pack->zip);
  tsr__buffer_release(&pack->out);
}

static void compress_room(tsr__pack *pack, int how) {
  unsigned char piece[1 << 14];
  pack->zip.next_in = pack->room;
  pack->zip.avail_in = (uInt)pack->used;
  pack->packed += pack->used;
  pack->used = 0;
  if (pack->is_full || pack->is_failed) return;
  do {
    pack->zip.next_out = piece;
    pack->zip.avail_out = sizeof piece;
    if (deflate(&pack->zip, how) == Z_STREAM_ERROR) pack->is_failed = true;
    tsr__buffer_append(&pack->out, piece, sizeof piece - pack->zip.avail_out);
    if (pack->out.failed) pack->is_failed = true;
    if (pack->out.size > pack->most_bytes) pack->is_full = true;
  } while (pack->zip.avail_out == 0 && !pack->is_failed && !pack->is_full);
  assert(!pack->zip.avail_in || pack->is_failed || pack->is_full);
}

void tsr__pack_flush(tsr__pack *pack) {
  compress_room(pack, Z_NO_FLUSH);
}

void tsr__pack_bytes(tsr__pack *pack, const void *data, size_t size_bytes) {
  const unsigned char *bytes = data;
  while (size_bytes) {
    assert(pack->used < TSR__PACK_ROOM);
    size_t room = TSR__PACK_ROOM - pack->used, piece = size_bytes < room ? size_bytes : room;
    memcpy(pack->room + pack->used, bytes, piece);
    pack->used += piece;
    bytes += piece;
    size_bytes -= piece;
    if (pack->used == TSR__PACK_ROOM) tsr__pack_flush(pack);
  }
}

uint64_t tsr__pack_size(const tsr__pack *pack) {
  return pack->packed + pack->used;
}

int tsr__pack_finish(tsr__pack *pack, tsr_error *error) {
  compress_room(pack, Z_FINISH);
  if (pack->is_failed) return tsr__fail_memory(error);
  if (pack->is_full)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "the page would be too large");
  return 0;
}
