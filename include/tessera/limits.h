/* tessera/limits.h - every limit that protects a reader from a hostile or broken file.
 *
 * A snapshot may come from a stranger. Each field limits one quantity that a small file could
 * otherwise make large; exceeding it fails with TSR_ERROR_LIMIT and the byte offset. The defaults
 * leave room for files a hundred times larger than any seen in public. A field of 0 means its
 * default, so a zeroed struct is the documented default.
 */
#ifndef TESSERA_LIMITS_H
#define TESSERA_LIMITS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_limits {
  /* Containers open inside one another. PyTorch writes 6; CPython's pickler itself stops near 1000.
   */
  uint32_t nesting;
  /* Values on the pickle machine's stack at one time. CPython writes batches of 1000, the C++ pickler
   * each list as one batch; events in it are removed from the stack as soon as they are complete. */
  uint32_t stack_values;
  /* Memo entries; one per dict, list, tuple and string. */
  uint32_t memo_entries;
  /* Bytes of one string, and of all distinct strings. */
  uint64_t string_bytes;
  uint64_t all_strings_bytes;
  /* Frames of one stack. The deepest seen in public has 303. */
  uint32_t stack_depth;
  /* Values kept for keys that the format does not define (allocator settings among them); more are
   * dropped, with a warning. Also limits the containers that are open or still referenced at one time. */
  uint32_t loose_values;
  /* Devices with events or segments. */
  uint32_t devices;
  /* Bytes the reader may hold, memo, columns and tables together: at most memory_bytes, and at most
   * memory_base_bytes + memory_ratio * (stored bytes read so far). Real snapshots need
   * less than their own size, compressed ones up to 10 times that. */
  uint64_t memory_bytes;
  uint64_t memory_base_bytes;
  uint32_t memory_ratio;
  /* Bytes that compressed input may expand to: expansion_base_bytes + expansion_ratio * (stored bytes
   * read so far), through all layers of compression together. Real snapshots expand
   * up to 60 times. */
  uint64_t expansion_base_bytes;
  uint32_t expansion_ratio;
  uint64_t reserved[8]; /* for later versions: 0, so that this struct keeps its size */
} tsr_limits;

#define TSR_LIMIT_NESTING              10000u
#define TSR_LIMIT_STACK_VALUES         (16u << 20)
#define TSR_LIMIT_MEMO_ENTRIES         UINT32_C(4000000000)
#define TSR_LIMIT_STRING_BYTES         (UINT64_C(64) << 20)
#define TSR_LIMIT_ALL_STRINGS_BYTES    (UINT64_C(2) << 30)
#define TSR_LIMIT_STACK_DEPTH          100000u
#define TSR_LIMIT_LOOSE_VALUES         (4u << 20)
#define TSR_LIMIT_DEVICES              4096u
#define TSR_LIMIT_MEMORY_BYTES         (UINT64_C(64) << 30)
#define TSR_LIMIT_MEMORY_BASE_BYTES    (UINT64_C(512) << 20)
#define TSR_LIMIT_MEMORY_RATIO         64u
#define TSR_LIMIT_EXPANSION_BASE_BYTES (UINT64_C(64) << 20)
#define TSR_LIMIT_EXPANSION_RATIO      1000u

#ifdef __cplusplus
}
#endif
#endif
