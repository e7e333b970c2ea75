/* warnings.h - what a reader may notice about a file; each has a code that never changes. What
 * `truncated` says is put together when it is known what is missing, see warnings.c. */
#ifndef TSR_SNAPSHOT_WARNINGS_H
#define TSR_SNAPSHOT_WARNINGS_H

#define TSR__WARNINGS(X)                                                                           \
  X(TRUNCATED, "truncated", "the file ends too early")                                             \
  X(DAMAGED, "damaged",                                                                            \
    "the compressed data fails its own check; what it holds up to there was read")                 \
  X(MORE_PAYLOADS, "payloads-not-read", "further snapshots in the page, which were not read")      \
  X(GLOBALS, "globals-ignored",                                                                    \
    "the pickle names program code; it was not looked up or run, and stands for nothing here")     \
  X(EVENTS_MALFORMED, "events-malformed", "entries of a trace that are not events were left out")  \
  X(ACTIONS_MISSING, "actions-missing", "events without a readable action")                        \
  X(SEGMENTS_MALFORMED, "segments-malformed",                                                      \
    "entries of the list of segments that are not segments were left out")                         \
  X(BLOCKS_MALFORMED, "blocks-malformed", "entries of a segment's blocks that are not blocks")     \
  X(FRAMES_MALFORMED, "frames-malformed", "entries of a stack that are not frames were left out")  \
  X(ANNOTATIONS_MALFORMED, "annotations-malformed", "annotations that could not be read")          \
  X(VALUES_CONVERTED, "values-converted", "numbers stored as text or with a fraction")             \
  X(VALUES_UNREADABLE, "values-unreadable",                                                        \
    "values of the wrong kind or out of range; they count as 0 or absent")                         \
  X(VALUES_DROPPED, "values-dropped",                                                              \
    "values that another under the same key replaced, or beyond tsr_limits.loose_values")          \
  X(KEYS_UNKNOWN, "keys-unknown", "keys that this version does not know")                          \
  X(BLOCK_SUMS, "block-sums", "segments whose blocks do not add up to their size")                 \
  X(TIME_BACKWARDS, "time-backwards", "events whose time is before that of the event before them") \
  X(SIDECAR_UNREADABLE, "sidecar-unreadable",                                                      \
    "the sidecar beside the snapshot could not be read; nothing of it is used")                    \
  X(SIDECAR_SCHEMA, "sidecar-unknown",                                                             \
    "the sidecar is of a schema that this version does not know; nothing of it is used")           \
  X(SIDECAR_MISFITS, "sidecar-misfits",                                                            \
    "tensors of the sidecar that lie in no allocated block of the snapshot; they name nothing")

typedef enum tsr__warning {
#define TSR__WARNING_ENUM(symbol, code, message) TSR__WARN_##symbol,
  TSR__WARNINGS(TSR__WARNING_ENUM)
#undef TSR__WARNING_ENUM
      TSR__WARNING_COUNT
} tsr__warning;

#endif
