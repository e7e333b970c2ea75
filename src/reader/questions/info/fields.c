/* fields.c - what the answer of "info" has. */
#include "questions/shared/fields.h"

static const tsr_record replay = {
    .name = "ReplayCheck",
    .about =
        "How well the replay agrees with the file; the numbers of a pair are equal if it does.",
    TSR__FIELDS(
        TSR__FIELD(COUNT, "reused", "allocs served from cached memory"),
        TSR__FIELD(COUNT, "reused_matched",
                   "of these, those at the address where the allocator's rules place them"),
        TSR__FIELD(COUNT, "segments_new", "allocs served from a new segment"),
        TSR__FIELD(COUNT, "segments_matched",
                   "of these, those whose segment has the size that the rules give"),
        TSR__FIELD(COUNT, "final_blocks", "live blocks at the end"),
        TSR__FIELD(COUNT, "final_matched",
                   "of these, those that the replay ends with, at the same address and with the "
                   "same size")),
};

static const tsr_record device = {
    .name = "InfoDevice",
    .about = "What a device's trace contains.",
    .base = &tsr__fields_device,
    TSR__FIELDS(
        TSR__FIELD(
            MAP, "actions",
            "events by action, `{\"alloc\": 9120, ...}`; only actions that occur; unknown "
            "ones under their name in the file. `(internal)` are allocations and frees that "
            "the allocator made for itself and tagged (`internal_metadata`): no other answer "
            "counts them"),
        TSR__FIELD(COUNT, "segments", "segments when the snapshot was taken"),
        TSR__FIELD(COUNT, "blocks", "blocks in them"),
        TSR__FIELD(COUNT, "stacks", "distinct stacks among the events"),
        TSR__FIELD(COUNT, "frames", "distinct frames in those stacks"),
        TSR__FIELD(TIME, "first_time_us",
                   "time of the first event; null if the file has no times (before PyTorch 2.2)",
                   .is_nullable = true),
        TSR__FIELD(TIME, "last_time_us", "time of the last event", .is_nullable = true),
        TSR__FIELD(COUNT, "frees_without_alloc",
                   "`free_completed` events of an address that no earlier `alloc` of the trace "
                   "returned: memory older than the recording"),
        TSR__PART(tsr__fields_totals, "end", "after the last event"),
        TSR__PART(replay, "replay",
                  "how well the exact replay agrees with the file; with PyTorch's default "
                  "configuration both numbers of every pair are equal"),
        TSR__FIELD(TEXT, "plan_hash",
                   "of a snapshot that tessera wrote while it followed a plan: the plan's hash "
                   "([plan.md](plan.md))",
                   .is_optional = true)),
};

const tsr_record tsr__fields_info = {
    .name = "info",
    .about = "What is in a file.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(TSR__LIST(device, "devices", "one for each device")),
};
