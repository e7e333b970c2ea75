/* tessera/limits.h - every bound that protects a reader from a hostile or broken file.
 *
 * A snapshot may come from a stranger. Each field bounds one thing that a small file could
 * otherwise make large; passing a bound ends in TSR_ERROR_LIMIT with the byte offset. The defaults
 * leave room for files a hundred times larger than any seen in public. A field left at 0 means its
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
  /* Values on the pickle machine's stack at one time. CPython batches 1000, the C++ pickler writes
   * each list in one batch, of which events are taken off the stack as they come. */
  uint32_t stack_values;
  /* Memo entries; one a dict, list, tuple and string. */
  uint32_t memo_entries;
  /* Bytes of one string, and of all distinct strings. */
  uint64_t string_bytes;
  uint64_t all_strings_bytes;
  /* Frames of one stack. The deepest seen in public has 303. */
  uint32_t stack_depth;
  /* Values kept for keys that no rule of the format names (allocator settings among them); more are
   * dropped, with a warning. Also, containers open or still named at one time. */
  uint32_t loose_values;
  /* Devices with events or segments. */
  uint32_t devices;
  /* Bytes the reader may hold, memo, columns and tables together: memory_bytes at most, and at most
   * memory_base_bytes and memory_ratio more for each stored byte read so far. Real snapshots need
   * less than their own size, compressed ones up to 10 times that. */
  uint64_t memory_bytes;
  uint64_t memory_base_bytes;
  uint32_t memory_ratio;
  /* Bytes that compressed input may grow to: expansion_base_bytes, and expansion_ratio more for
   * each stored byte read so far, through all layers of compression together. Real snapshots grow
   * up to 60 times. */
  uint64_t expansion_base_bytes;
  uint32_t expansion_ratio;
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
