/* pack.h - packs the columns of a page: variable-length numbers, deflated immediately.
 *
 * Numbers are little-endian groups of seven bits, the last without its high bit; signed ones have
 * their sign in the lowest bit. Everything becomes one zlib stream. A failure is recorded and
 * returned by tsr__pack_finish. */
#ifndef TSR_PAGE_PACK_H
#define TSR_PAGE_PACK_H

#define ZLIB_CONST
#include <zlib.h>

#include "base/buffer.h"

enum { TSR__PACK_ROOM = 1 << 15 };

typedef struct tsr__pack {
  z_stream zip;
  tsr__buffer out;   /* compressed so far */
  size_t most_bytes; /* of it */
  uint64_t packed;   /* bytes before compression */
  size_t used;       /* of room */
  bool is_failed, is_full;
  unsigned char room[TSR__PACK_ROOM];
} tsr__pack;

/* `level` is zlib's. Fails with TSR_ERROR_MEMORY; released by tsr__pack_release in any case. */
int tsr__pack_open(tsr__pack *pack, int level, size_t most_bytes, tsr_error *error);
void tsr__pack_release(tsr__pack *pack);

/* Compress the content of `room`; for the functions below. */
void tsr__pack_flush(tsr__pack *pack);

static inline void tsr__pack_number(tsr__pack *pack, uint64_t number) {
  if (pack->used > TSR__PACK_ROOM - 10) tsr__pack_flush(pack);
  for (; number > 127; number >>= 7) pack->room[pack->used++] = (unsigned char)(number | 128);
  pack->room[pack->used++] = (unsigned char)number;
}

static inline void tsr__pack_signed(tsr__pack *pack, int64_t number) {
  tsr__pack_number(pack, (uint64_t)number << 1 ^ (uint64_t)(number >> 63));
}

void tsr__pack_bytes(tsr__pack *pack, const void *data, size_t size_bytes);
/* Bytes packed so far, including those in `room`. */
uint64_t tsr__pack_size(const tsr__pack *pack);
/* End the stream. Fails with TSR_ERROR_MEMORY, or _LIMIT if it exceeds `most_bytes`. */
int tsr__pack_finish(tsr__pack *pack, tsr_error *error);

#endif
