/* memo.c - the pickle memo: an array of 32-bit slots, because files have tens of millions of them.
 *
 *   slot: [ id : 28 | tag : 4 ]     tag 0 = unset; TSR__MEMO_BOXED: id is an index into `boxed`
 *
 * A slot that names an open container is rewritten when that container becomes a row
 * (tsr__resolve). */
#include "formats/assemble.h"

#include <assert.h>
#include <string.h>

int tsr__memo_reserve(tsr__assembler *assembler, uint64_t index, tsr_error *error) {
  if (index >= assembler->limits.memo_entries)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "more than %u memo entries (tsr_limits.memo_entries)",
                     (unsigned)assembler->limits.memo_entries);
  assert(assembler->memo_count <= assembler->memo_capacity);
  if (index < assembler->memo_count) return 0;
  size_t extra = (size_t)index + 1 - assembler->memo_count;
  if (!tsr__vector_reserve(&assembler->memo, assembler->memo_count, &assembler->memo_capacity,
                           extra, sizeof *assembler->memo))
    return tsr__fail_memory(error);
  memset(assembler->memo + assembler->memo_count, 0, extra * sizeof *assembler->memo);
  assembler->memo_count += extra;
  return 0;
}

static uint32_t slot_of(tsr__value value) {
  tsr__memo_tag tag;
  switch ((tsr__tag)value.tag) {
  case TSR__STRING: tag = TSR__MEMO_STRING; break;
  case TSR__FRAME: tag = TSR__MEMO_FRAME; break;
  case TSR__STACK: tag = TSR__MEMO_STACK; break;
  case TSR__EVENT: tag = TSR__MEMO_EVENT; break;
  case TSR__BLOCK: tag = TSR__MEMO_BLOCK; break;
  case TSR__PAIR: tag = TSR__MEMO_PAIR; break;
  case TSR__CONTAINER: tag = TSR__MEMO_CONTAINER; break;
  default: return TSR__MEMO_UNSET;
  }
  return value.id < TSR__MEMO_ID_LIMIT ? TSR__MEMO_SLOT(tag, value.id) : TSR__MEMO_UNSET;
}

int tsr__memo_put(tsr__assembler *assembler, uint64_t index, tsr__value value, tsr_error *error) {
  value = tsr__current(assembler, value);
  int status = tsr__memo_reserve(assembler, index, error);
  if (status) return status;
  uint32_t slot = slot_of(value);
  if (slot == TSR__MEMO_UNSET) {
    if (assembler->boxed.count >= TSR__MEMO_ID_LIMIT - 1 ||
        !TSR__VECTOR_PUSH(&assembler->boxed, value))
      return tsr__fail_memory(error);
    slot = TSR__MEMO_SLOT(TSR__MEMO_BOXED, assembler->boxed.count - 1);
  }
  assert(slot != TSR__MEMO_UNSET && index < assembler->memo_count);
  tsr__container *container = tsr__container_of(assembler, value);
  if (container) {
    if (container->memo == TSR_NONE && index < TSR_NONE)
      container->memo = (uint32_t)index;
    else
      container->is_pinned = true;
  }
  uint32_t old = assembler->memo[index];
  if (old != slot && (old & ((1u << TSR__MEMO_TAG_BITS) - 1)) == TSR__MEMO_FRAME)
    assembler->has_redefined_frames = true;
  assembler->memo[index] = slot;
  return 0;
}

/* A container that is still open is named from the memo and from wherever it is being filled, or
 * waits to be: its place must not be reused once the new mention has turned it into something. */
static tsr__value pinned(const tsr__assembler *assembler, tsr__value value) {
  value = tsr__current(assembler, value);
  tsr__container *container = tsr__container_of(assembler, value);
  if (container) container->is_pinned = true;
  return value;
}

tsr__value tsr__memo_get(const tsr__assembler *assembler, uint64_t index) {
  if (index >= assembler->memo_count) return tsr__value_plain(TSR__NOTHING);
  uint32_t slot = assembler->memo[index], id = slot >> TSR__MEMO_TAG_BITS;
  switch ((tsr__memo_tag)(slot & ((1u << TSR__MEMO_TAG_BITS) - 1))) {
  case TSR__MEMO_UNSET: return tsr__value_plain(TSR__NOTHING);
  case TSR__MEMO_STRING: return tsr__value_id(TSR__STRING, id);
  case TSR__MEMO_FRAME: return tsr__value_id(TSR__FRAME, id);
  case TSR__MEMO_STACK: return tsr__value_id(TSR__STACK, id);
  case TSR__MEMO_EVENT: return tsr__value_id(TSR__EVENT, id);
  case TSR__MEMO_BLOCK: return tsr__value_id(TSR__BLOCK, id);
  case TSR__MEMO_PAIR: return tsr__value_id(TSR__PAIR, id);
  case TSR__MEMO_CONTAINER: return pinned(assembler, tsr__value_id(TSR__CONTAINER, id));
  case TSR__MEMO_BOXED: break;
  }
  assert(id < assembler->boxed.count);
  return pinned(assembler, assembler->boxed.items[id]);
}
