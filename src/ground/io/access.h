/* access.h - reading an input anywhere, not only from front to back.
 *
 * A database is a file of pages that refer to each other. A plain file is read where it is, through a small
 * cache; everything else (standard input, compressed forms) is first copied into memory, within a
 * bound. */
#ifndef TSR_IO_ACCESS_H
#define TSR_IO_ACCESS_H

#include "base/vector.h"
#include "io/source.h"

enum { TSR__ACCESS_CHUNK = 64 << 10, TSR__ACCESS_SLOTS = 64 };

typedef struct tsr__access {
  tsr__input *source;        /* not owned */
  const unsigned char *data; /* all of the input, or NULL */
  uint64_t size_bytes;
  TSR__VECTOR(unsigned char) copy; /* `data`, if the input had to be copied */
  unsigned char *cache;            /* owned: TSR__ACCESS_SLOTS chunks; NULL if `data` is set */
  uint64_t chunks
      [TSR__ACCESS_SLOTS]; /* number of the chunk in each slot, plus 1; 0: the slot is empty */
} tsr__access;

/* Make all of `source` accessible, of which nothing has been consumed yet. An input that cannot be read anywhere
 * may have `most_bytes`; if it has more, TSR_ERROR_LIMIT. Fails as the source does, or with TSR_ERROR_MEMORY.
 * To be released either way. */
int tsr__access_open(tsr__access *access, tsr__input *source, uint64_t most_bytes,
                     tsr_error *error);
/* The same, and all of it is in memory: at access->data. */
int tsr__access_copy(tsr__access *access, tsr__input *source, uint64_t most_bytes,
                     tsr_error *error);
/* A zeroed one is fine. */
void tsr__access_release(tsr__access *access);

/* The bytes from `offset` on, which are all in one chunk of TSR__ACCESS_CHUNK: `size` at `*out`, valid until the
 * next call. Fails with TSR_ERROR_FORMAT if the input ends before, and as reading does. */
int tsr__access_bytes(tsr__access *access, uint64_t offset, size_t size, const unsigned char **out,
                      tsr_error *error);

/* Bytes of memory held besides the source's window. */
uint64_t tsr__access_held(const tsr__access *access);

#endif
