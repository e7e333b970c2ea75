/* expansion.h - how much compressed input may grow: the bound that ends a decompression bomb.
 *
 * A kilobyte can hold a gigabyte of zeros, and layers multiply. So every stream that makes more of
 * what it reads compares what it has delivered with what was taken from the bottom of the whole
 * stack, not with its own input: nested bombs gain nothing by nesting. */
#ifndef TSR_IO_EXPANSION_H
#define TSR_IO_EXPANSION_H

#include <inttypes.h>

#include "base/checked.h"
#include "io/source.h"
#include "tessera/limits.h"

typedef struct tsr__expansion {
  uint64_t base_bytes, ratio; /* tsr_limits.expansion_... , defaults filled in */
} tsr__expansion;

static inline tsr__expansion tsr__expansion_of(const tsr_limits *limits) {
  return (tsr__expansion){
      limits->expansion_base_bytes ? limits->expansion_base_bytes : TSR_LIMIT_EXPANSION_BASE_BYTES,
      limits->expansion_ratio ? limits->expansion_ratio : TSR_LIMIT_EXPANSION_RATIO};
}

/* Memory that one decoder's window or dictionary may take: one 128th of what the reader may. */
static inline uint64_t tsr__decoder_memory(const tsr_limits *limits) {
  return (limits->memory_bytes ? limits->memory_bytes : TSR_LIMIT_MEMORY_BYTES) / 128;
}

/* May `stream` have made `made_bytes`? TSR_ERROR_LIMIT where not. */
static inline int tsr__expansion_check(tsr__expansion expansion, const tsr__stream *stream,
                                       uint64_t made_bytes, tsr_error *error) {
  uint64_t stored = tsr__stream_stored_bytes(stream);
  uint64_t grown = stored > UINT64_MAX / expansion.ratio ? UINT64_MAX : stored * expansion.ratio;
  if (made_bytes <= tsr__sum_u64(expansion.base_bytes, grown)) return 0;
  return tsr__fail(error, TSR_ERROR_LIMIT, made_bytes,
                   "%" PRIu64 " stored bytes expand to more than %" PRIu64
                   " times their size (tsr_limits.expansion_ratio)",
                   stored, expansion.ratio);
}

#endif
