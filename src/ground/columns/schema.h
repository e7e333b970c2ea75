/* schema.h - every name that the snapshot format gives a meaning.
 *
 * They are interned first, in this order, so that a name's string id is its enumerator: a reader
 * that has a string's id knows at once whether it is a key, an action or a state, without comparing
 * text. Where the names come from: PyTorch's torch/csrc/cuda/Module.cpp and memory_snapshot.cpp. */
#ifndef TSR_COLUMNS_SCHEMA_H
#define TSR_COLUMNS_SCHEMA_H

#include <assert.h>

#include "tessera/unstable/columns.h"

/* Keys, then actions in the order of tsr_action, then other values. At most 64 keys: sets of keys
 * are 64-bit masks. */
#define TSR__NAMES(X)                             \
  X(ACTION, "action")                             \
  X(ADDR, "addr")                                 \
  X(DEVICE_FREE, "device_free")                   \
  X(SIZE, "size")                                 \
  X(STREAM, "stream")                             \
  X(TIME_US, "time_us")                           \
  X(COMPILE_CONTEXT, "compile_context")           \
  X(USER_METADATA, "user_metadata")               \
  X(POOL_ID, "pool_id")                           \
  X(FRAMES, "frames")                             \
  X(CATEGORY, "category")                         \
  X(NAME, "name")                                 \
  X(FILENAME, "filename")                         \
  X(LINE, "line")                                 \
  X(DEVICE, "device")                             \
  X(ADDRESS, "address")                           \
  X(TOTAL_SIZE, "total_size")                     \
  X(ALLOCATED_SIZE, "allocated_size")             \
  X(ACTIVE_SIZE, "active_size")                   \
  X(REQUESTED_SIZE, "requested_size")             \
  X(SEGMENT_TYPE, "segment_type")                 \
  X(SEGMENT_POOL_ID, "segment_pool_id")           \
  X(IS_EXPANDABLE, "is_expandable")               \
  X(BLOCKS, "blocks")                             \
  X(STATE, "state")                               \
  X(HISTORY, "history")                           \
  X(REAL_SIZE, "real_size")                       \
  X(STAGE, "stage")                               \
  X(HOST_SEGMENTS, "host_segments")               \
  X(HOST_TRACES, "host_traces")                   \
  X(INTERNAL_METADATA, "internal_metadata")       \
  X(ALLOCATED, "allocated")                       \
  X(ACTIVE, "active")                             \
  X(SEGMENTS, "segments")                         \
  X(DEVICE_TRACES, "device_traces")               \
  X(ALLOCATOR_SETTINGS, "allocator_settings")     \
  X(EXTERNAL_ANNOTATIONS, "external_annotations") \
  X(INITIAL_BLOCKS, "tessera_initial_blocks")     \
  X(SIDECAR, "tessera_sidecar")                   \
  X(INCOMPLETE, "tessera_incomplete")             \
  X(ALLOC, "alloc")                               \
  X(FREE_REQUESTED, "free_requested")             \
  X(FREE_COMPLETED, "free_completed")             \
  X(FREE, "free")                                 \
  X(SEGMENT_ALLOC, "segment_alloc")               \
  X(SEGMENT_FREE, "segment_free")                 \
  X(SEGMENT_MAP, "segment_map")                   \
  X(SEGMENT_UNMAP, "segment_unmap")               \
  X(SNAPSHOT, "snapshot")                         \
  X(OOM, "oom")                                   \
  X(ANNOTATE, "annotate")                         \
  X(USER_DEFINED, "user_defined")                 \
  X(WORKSPACE_SNAPSHOT, "workspace_snapshot")     \
  X(INACTIVE, "inactive")                         \
  X(ACTIVE_ALLOCATED, "active_allocated")         \
  X(ACTIVE_PENDING_FREE, "active_pending_free")   \
  X(ACTIVE_AWAITING_FREE, "active_awaiting_free") \
  X(SMALL, "small")                               \
  X(LARGE, "large")                               \
  X(START, "START")                               \
  X(END, "END")                                   \
  X(PLAN, "tessera_plan")

typedef enum tsr__name {
#define TSR__NAME_ENUM(symbol, text) TSR__NAME_##symbol,
  TSR__NAMES(TSR__NAME_ENUM)
#undef TSR__NAME_ENUM
      TSR__NAME_COUNT,
  TSR__KEY_COUNT = TSR__NAME_ALLOC,    /* names below are keys */
  TSR__FIRST_ACTION = TSR__NAME_ALLOC, /* id - this = tsr_action, for known actions */
  TSR__LAST_ACTION = TSR__NAME_WORKSPACE_SNAPSHOT
} tsr__name;

static_assert(TSR__KEY_COUNT <= 40, "sets of keys are the low bits of a row's shape (key_order.h)");
static_assert(TSR__LAST_ACTION - TSR__FIRST_ACTION == TSR_ACTION_WORKSPACE_SNAPSHOT,
              "actions stand in the order of tsr_action");

/* The set that holds one key. */
#define TSR__KEY(symbol) (UINT64_C(1) << TSR__NAME_##symbol)

/* Beyond the keys, a row's shape remembers how a value was spelled, so that it can be written back.
 */
#define TSR__SHAPE_POOL_IS_LIST  (UINT64_C(1) << 62)
#define TSR__SHAPE_LINE_NEGATIVE (UINT64_C(1) << 61)

/* The text of a name. */
const char *tsr__name_text(tsr__name name);

#endif
