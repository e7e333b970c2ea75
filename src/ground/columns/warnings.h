/* warnings.h - what a reader may notice about a file; each has a code that never changes. The text
 * of `truncated` is composed once it is known what is missing, see warnings.c. */
#ifndef TSR_COLUMNS_WARNINGS_H
#define TSR_COLUMNS_WARNINGS_H

#include <stdbool.h>

#define TSR__WARNINGS(X)                                                                           \
  X(TRUNCATED, "truncated", "the file is truncated")                                               \
  X(DAMAGED, "damaged", "the compressed data is damaged; it was read up to the damage")            \
  X(INCOMPLETE, "incomplete",                                                                      \
    "the file was made from one that was truncated or damaged; it lacks what could not be read")   \
  X(MORE_PAYLOADS, "payloads-not-read", "further snapshots in the page, which were not read")      \
  X(GLOBALS, "globals-ignored",                                                                    \
    "the pickle refers to program code; it was not looked up or run, and counts as an absent "     \
    "value")                                                                                       \
  X(EVENTS_MALFORMED, "events-malformed", "entries of a trace that are not events were ignored")   \
  X(ACTIONS_MISSING, "actions-missing", "events without a readable action")                        \
  X(ACTIONS_UNKNOWN, "actions-unknown", "events with an unknown action; they change no memory")    \
  X(SIZES_MISSING, "sizes-missing", "events without a size; it counts as 0")                       \
  X(SEGMENTS_MALFORMED, "segments-malformed",                                                      \
    "entries in the list of segments that are not segments were ignored")                          \
  X(BLOCKS_MALFORMED, "blocks-malformed",                                                          \
    "entries of a segment's blocks that are not blocks were ignored")                              \
  X(FRAMES_MALFORMED, "frames-malformed", "entries of a stack that are not frames were ignored")   \
  X(ANNOTATIONS_MALFORMED, "annotations-malformed", "annotations that could not be read")          \
  X(VALUES_CONVERTED, "values-converted", "numbers stored as text or with a fraction")             \
  X(VALUES_UNREADABLE, "values-unreadable",                                                        \
    "values of the wrong type or out of range; they count as 0 or absent")                         \
  X(VALUES_DROPPED, "values-dropped",                                                              \
    "values replaced by another with the same key, or beyond tsr_limits.loose_values")             \
  X(KEYS_UNKNOWN, "keys-unknown", "unknown keys")                                                  \
  X(BLOCK_SUMS, "block-sums", "segments whose blocks do not add up to their size")                 \
  X(TIME_BACKWARDS, "time-backwards", "events whose time is before that of the previous event")    \
  X(DRIVER_ONLY, "driver-allocations",                                                             \
    "allocations as the CUDA driver saw them: memory of PyTorch appears as the segments of its "   \
    "caching allocator, not as tensors")                                                           \
  X(DRIVER_POOLS, "driver-pools",                                                                  \
    "allocations from memory pools of CUDA (cudaMallocAsync); what such a pool keeps reserved "    \
    "is not counted")                                                                              \
  X(MANAGED, "managed-memory",                                                                     \
    "allocations of managed memory, which count for the device in full; their pages may be in "    \
    "host memory")                                                                                 \
  X(KINDS_MISSING, "kinds-missing",                                                                \
    "allocations of an unknown kind of memory; they count for the device")                         \
  X(PROCESSES, "processes-together",                                                               \
    "processes share a device; their memory is added up, and each is the outermost frame of its "  \
    "stacks (profile --by metadata adds up what each has)")                                        \
  X(ROWS_MALFORMED, "rows-malformed", "rows of the table that are no allocations were ignored")    \
  X(TABLES_UNREADABLE, "tables-unreadable",                                                        \
    "tables of names, stacks or ranges that could not be read in full")                            \
  X(LOG_UNREAD, "log-unread",                                                                      \
    "the database has a write-ahead log, which is another file; what is only there was not read")  \
  X(DEVICES_MISSING, "devices-missing",                                                            \
    "samples without a device, such as executables; they count for the first device")              \
  X(COLUMNS_IGNORED, "columns-ignored", "columns that have no meaning here were ignored")          \
  X(SIDECAR_UNREADABLE, "sidecar-unreadable",                                                      \
    "the sidecar of the snapshot could not be read; it is not used")                               \
  X(SIDECAR_SCHEMA, "sidecar-unknown", "the sidecar has an unknown schema; it is not used")        \
  X(SIDECAR_MISFITS, "sidecar-misfits",                                                            \
    "tensors in the sidecar that are in no allocated block of the snapshot; they are ignored")     \
  X(SIDECAR_CARD, "sidecar-card",                                                                  \
    "values in the sidecar's ledger of the card that cannot be right; they count as unknown")      \
  X(NO_SEGMENTS, "no-segments",                                                                    \
    "the file lists allocations and frees, not segments: cached and fragmented memory is unknown") \
  X(NO_TOTALS, "no-totals",                                                                        \
    "allocations and frees without totals: what was there before the recording is unknown")        \
  X(NO_ADDRESSES, "no-addresses",                                                                  \
    "allocations and frees without an address; a free is taken for that of the newest allocation " \
    "of its size")                                                                                 \
  X(BEFORE_BY_TOTALS, "before-by-totals",                                                          \
    "bytes were allocated before the recording began; they are known as a total, without stacks")  \
  X(TOTALS_MISSED, "totals-moved",                                                                 \
    "totals changed without an allocation or free that explains it; the difference counts as "     \
    "memory without a stack")                                                                      \
  X(TOTALS_DISAGREE, "totals-disagree",                                                            \
    "totals are smaller than what the file lists as live; they are not followed there")            \
  X(NO_STACKS, "no-stacks",                                                                        \
    "the recording has no Python stacks (with_stack=True adds them); operators stand for them")    \
  X(TIMELINE, "memory-timeline",                                                                   \
    "PyTorch's memory timeline has no stacks, no addresses and no device (it is shown as device "  \
    "0); its categories are PyTorch's own guesses")                                                \
  X(STACKS_CUT, "stacks-cut",                                                                      \
    "times at which more than 2,048 functions were open; their outermost frames are missing")

typedef enum tsr__warning_kind {
#define TSR__WARNING_ENUM(symbol, code, message) TSR__WARN_##symbol,
  TSR__WARNINGS(TSR__WARNING_ENUM)
#undef TSR__WARNING_ENUM
      TSR__WARNING_COUNT
} tsr__warning_kind;

/* Why the run may have held more than the file shows, by its warnings; the first that applies. */
typedef enum tsr__loss {
  TSR__LOSS_NONE,
  TSR__LOSS_TRUNCATED, /* or made from a file that was */
  TSR__LOSS_DAMAGED,
  TSR__LOSS_UNREADABLE /* a part that matters: events, segments, sizes */
} tsr__loss;
struct tsr_snapshot;
tsr__loss tsr__snapshot_loss(const struct tsr_snapshot *snapshot);
/* Whether that is so, and what is missing is part of the snapshot rather than behind it. */
bool tsr__lacks_a_part(const struct tsr_snapshot *snapshot);

#endif
