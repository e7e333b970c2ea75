/* fields.h - declarations of what the answers of several questions have (emit/fields.h). */
#ifndef TSR_QUESTIONS_SHARED_FIELDS_H
#define TSR_QUESTIONS_SHARED_FIELDS_H

#include "emit/fields.h"

/* A line of code; and the fields of a stack, as tsr__stack_emit writes them. */
extern const tsr_record tsr__fields_frame;
#define TSR__FRAME_FIELDS(...)                         \
  TSR__LIST(tsr__fields_frame, "frames", __VA_ARGS__), \
      TSR__FIELD(COUNT, "folded_frames", NULL, .is_optional = true)

/* What the program called its memory: tsr__emit_names. */
extern const tsr_record tsr__fields_name;
#define TSR__NAME_FIELDS(...)                        \
  TSR__LIST(tsr__fields_name, "names", __VA_ARGS__), \
      TSR__FIELD(COUNT, "omitted_names", "names omitted by `--top`")

/* A ranked list of stacks: tsr__emit_shares. */
extern const tsr_record tsr__fields_stack;
#define TSR__STACK_FIELDS(...)                                          \
  TSR__LIST(tsr__fields_stack, "stacks", __VA_ARGS__),                  \
      TSR__FIELD(COUNT, "omitted_stacks", "stacks omitted by `--top`"), \
      TSR__FIELD(BYTES, "omitted_bytes", "their bytes")

/* tsr__imbalance_emit. */
extern const tsr_record tsr__fields_imbalance;
#define TSR__IMBALANCE_FIELD                    \
  TSR__PART(tsr__fields_imbalance, "imbalance", \
            "null if the GPUs are used alike, or there is one", .is_nullable = true)

/* tsr__emit_fragmentation, tsr__emit_private_pools, tsr__findings_emit, tsr__emit_stop_fields. */
extern const tsr_record tsr__fields_fragmentation, tsr__fields_private_pool, tsr__fields_finding,
    tsr__fields_stop;

/* A moment with its totals as an object of their own; and one with the two that matter for groups and lines. */
extern const tsr_record tsr__fields_moment_of_totals, tsr__fields_held;

#endif
