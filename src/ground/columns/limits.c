/* limits.c - what a limit is if nobody set it. The values are in tessera/limits.h. */
#include "columns/tables.h"

tsr_limits tsr__limits_or_default(const tsr_limits *limits) {
  tsr_limits l = limits ? *limits : (tsr_limits){0};
  if (!l.nesting) l.nesting = TSR_LIMIT_NESTING;
  if (!l.stack_values) l.stack_values = TSR_LIMIT_STACK_VALUES;
  if (!l.memo_entries) l.memo_entries = TSR_LIMIT_MEMO_ENTRIES;
  if (!l.string_bytes) l.string_bytes = TSR_LIMIT_STRING_BYTES;
  if (!l.all_strings_bytes) l.all_strings_bytes = TSR_LIMIT_ALL_STRINGS_BYTES;
  if (!l.stack_depth) l.stack_depth = TSR_LIMIT_STACK_DEPTH;
  if (!l.loose_values) l.loose_values = TSR_LIMIT_LOOSE_VALUES;
  if (!l.devices) l.devices = TSR_LIMIT_DEVICES;
  if (!l.memory_bytes) l.memory_bytes = TSR_LIMIT_MEMORY_BYTES;
  if (!l.memory_base_bytes) l.memory_base_bytes = TSR_LIMIT_MEMORY_BASE_BYTES;
  if (!l.memory_ratio) l.memory_ratio = TSR_LIMIT_MEMORY_RATIO;
  if (!l.expansion_base_bytes) l.expansion_base_bytes = TSR_LIMIT_EXPANSION_BASE_BYTES;
  if (!l.expansion_ratio) l.expansion_ratio = TSR_LIMIT_EXPANSION_RATIO;
  return l;
}
