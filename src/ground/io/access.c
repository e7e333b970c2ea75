/* access.c - reading an input anywhere.
 *
 * The cache has a slot for each of TSR__ACCESS_SLOTS chunks, chosen by the chunk's number. Tables are mostly
 * stored in the order in which they are read, so a larger or cleverer cache would save little. */
#include "io/access.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"

/* Copy the windows one after the other: to let one window grow would copy it each time. */
static int copy_all(tsr__access *access, uint64_t most_bytes, tsr_error *error) {
  tsr__input *source = access->source;
  for (;;) {
    if (source->size > most_bytes - access->copy.count)
      return tsr__fail(error, TSR_ERROR_LIMIT, access->copy.count,
                       "more than %" PRIu64
                       " bytes that cannot be read in place; save and extract the file first",
                       most_bytes);
    if (!TSR__VECTOR_RESERVE(&access->copy, source->size + 1)) return tsr__fail_memory(error);
    memcpy(access->copy.items + access->copy.count, source->data, source->size);
    access->copy.count += source->size;
    if (source->at_end) return 0;
    int status = tsr__input_fill(source, source->size, error);
    if (status) return status;
  }
}

int tsr__access_copy(tsr__access *access, tsr__input *source, uint64_t most_bytes,
                     tsr_error *error) {
  *access = (tsr__access){.source = source};
  assert(!source->offset);
  int status = source->at_end ? 0 : copy_all(access, most_bytes, error);
  access->data = access->copy.items ? access->copy.items : source->data;
  access->size_bytes = access->copy.items ? access->copy.count : source->size;
  return status;
}

int tsr__access_open(tsr__access *access, tsr__input *source, uint64_t most_bytes,
                     tsr_error *error) {
  bool can_seek = source->stream && source->stream->read_at && source->input_bytes;
  if (source->at_end || !can_seek) return tsr__access_copy(access, source, most_bytes, error);
  *access = (tsr__access){.source = source, .size_bytes = source->input_bytes};
  assert(!source->offset);
  tsr__input_settle(source);
  source->stored_bytes = source->input_bytes;
  access->cache = tsr__realloc(NULL, TSR__ACCESS_SLOTS, TSR__ACCESS_CHUNK);
  return access->cache ? 0 : tsr__fail_memory(error);
}

void tsr__access_release(tsr__access *access) {
  tsr__free(access->cache);
  TSR__VECTOR_FREE(&access->copy);
  *access = (tsr__access){0};
}

uint64_t tsr__access_held(const tsr__access *access) {
  uint64_t cached = access->cache ? (uint64_t)TSR__ACCESS_SLOTS * TSR__ACCESS_CHUNK : 0;
  return cached + access->copy.capacity;
}

static int fail_short(uint64_t offset, tsr_error *error) {
  return tsr__fail(error, TSR_ERROR_FORMAT, offset, "the file is truncated");
}

/* Read a chunk into its slot; the file may have become shorter. */
static int load(tsr__access *access, uint64_t chunk, size_t *filled, tsr_error *error) {
  unsigned char *slot = access->cache + chunk % TSR__ACCESS_SLOTS * TSR__ACCESS_CHUNK;
  tsr__stream *stream = access->source->stream;
  *filled = 0;
  access->chunks[chunk % TSR__ACCESS_SLOTS] = 0;
  while (*filled < TSR__ACCESS_CHUNK) {
    ptrdiff_t got = stream->read_at(stream, chunk * TSR__ACCESS_CHUNK + *filled, slot + *filled,
                                    TSR__ACCESS_CHUNK - *filled, error);
    if (got < 0) return (int)got;
    if (got == 0) break;
    *filled += (size_t)got;
  }
  if (*filled == TSR__ACCESS_CHUNK) access->chunks[chunk % TSR__ACCESS_SLOTS] = chunk + 1;
  return 0;
}

int tsr__access_bytes(tsr__access *access, uint64_t offset, size_t size, const unsigned char **out,
                      tsr_error *error) {
  uint64_t chunk = offset / TSR__ACCESS_CHUNK;
  size_t within = (size_t)(offset % TSR__ACCESS_CHUNK), filled = TSR__ACCESS_CHUNK;
  assert(within + size <= TSR__ACCESS_CHUNK);
  if (offset > access->size_bytes || size > access->size_bytes - offset)
    return fail_short(access->size_bytes, error);
  if (access->data) {
    *out = access->data + offset;
    return 0;
  }
  if (access->chunks[chunk % TSR__ACCESS_SLOTS] != chunk + 1) {
    int status = load(access, chunk, &filled, error);
    if (status) return status;
  }
  if (within + size > filled) return fail_short(offset, error);
  *out = access->cache + chunk % TSR__ACCESS_SLOTS * TSR__ACCESS_CHUNK + within;
  return 0;
}
