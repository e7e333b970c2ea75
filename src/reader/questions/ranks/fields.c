/* fields.c - what the answer of "ranks" has. */
#include "questions/shared/fields.h"
#include "questions/ranks/ranks.h"

static const tsr_record rank = {
    .name = "Rank",
    .about = "A device of a rank, in its last snapshot.",
    TSR__FIELDS(
        TSR__FIELD(COUNT, "rank", "its number"), TSR__FIELD(TEXT, "path", "the snapshot"),
        TSR__FIELD(DEVICE, "device", "the device's number in that file"),
        TSR__FIELD(TEXT, "group", "the name of its group"),
        TSR__FIELD(BYTES, "peak_allocated_bytes", "the most that was allocated"),
        TSR__FIELD(BYTES, "peak_reserved_bytes", "the most that was reserved"),
        TSR__FIELD(BYTES, "end_allocated_bytes", "allocated when the snapshot was taken"),
        TSR__FIELD(BYTES, "end_reserved_bytes", "reserved then"),
        TSR__FIELD(FLAG, "out_of_memory",
                   "whether it ran out of memory for good, by its trace or its file's name"),
        TSR__FIELD(TIME, "out_of_memory_time_us", "when; null if it did not, or nobody knows",
                   .is_nullable = true),
        TSR__FIELD(BYTES, "out_of_memory_bytes", "the request that failed; null without one",
                   .is_nullable = true),
        TSR__FIELD(
            FLAG, "partial",
            "whether its file is truncated or damaged: it may have held more, and is compared "
            "with nothing"),
        TSR__FIELD(COUNT, "step", "the step in the file's name", .is_nullable = true),
        TSR__FIELD(DURATION, "clock_ahead_us",
                   "how far its clock is ahead of the median rank's, by the steps that they have "
                   "in common, negative if behind; null if by no more than a step, or unknown",
                   .is_nullable = true),
        TSR__FIELD(MAP, "coordinates", "its place in the mesh, by axis; empty if it is not known")),
};

static const tsr_record group = {
    .name = "RankGroup",
    .about = "Ranks of equal role, and the peaks of what they allocated.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "name",
                   "`pp 0` for a pipeline stage, `like rank 0` if found by likeness, `all`, "
                   "or `other devices`"),
        TSR__FIELD(COUNT, "ranks", "its ranks, ascending", .is_list = true),
        TSR__FIELD(COUNT, "median_rank", "the rank whose peak is the median, the lower of two"),
        TSR__FIELD(BYTES, "min_bytes", "the lowest peak"),
        TSR__FIELD(BYTES, "median_bytes", "the median of the peaks"),
        TSR__FIELD(BYTES, "max_bytes", "the highest peak")),
};

static const tsr_record change = {
    .name = "RankChange",
    .about =
        "A stack and category in which the rank differs from the one that it is compared with.",
    TSR__FIELDS(TSR__FIELD(DELTA, "delta_bytes", "how much more the rank has at its peak"),
                TSR__FIELD(BYTES, "median_bytes", "what the other has at its own peak"),
                TSR__FIELD(BYTES, "bytes", "what the rank has"),
                TSR__FIELD(TEXT, "category", "a [category](categories.md)"),
                TSR__FIELD(COUNT, "others",
                           "of the last entry, if it stands for what `--top` leaves out: how many; "
                           "else 0"),
                TSR__FRAME_FIELDS("the stack's frames that a reader would look at, innermost "
                                  "first")),
};

static const tsr_record outlier = {
    .name = "RankOutlier",
    .about = "A rank that holds more than its equals do, whatever they vary by.",
    TSR__FIELDS(
        TSR__FIELD(COUNT, "rank", "its number"), TSR__FIELD(DEVICE, "device", "the device"),
        TSR__FIELD(TEXT, "group", "its group's name"),
        TSR__FIELD(
            COUNT, "compared_with",
            "the group's median rank, or for that one itself the next lower; null for another "
            "device, which is compared with nothing",
            .is_nullable = true),
        TSR__FIELD(DELTA, "delta_bytes", "its peak less that of the rank that it is compared with"),
        TSR__FIELD(
            BYTES, "excess_bytes",
            "what sets it apart, by stacks in which it is beyond all others, and of a leak, over "
            "all steps; at most what it has more in its peak, by stack"),
        TSR__FIELD(TEXT, "cause_code",
                   "`leak`, `optimizer_state`, `parameters`, `extra_work`, `other_device`, "
                   "`expert_load`, `in_flight`, `longer_sequences` or `unknown`"),
        TSR__FIELD(TEXT, "cause", "the same in words, for people"),
        TSR__LIST(change, "changes", "largest first; they add up to `delta_bytes`")),
};

static const tsr_record growth_stack = {
    .name = "RankGrowthStack",
    .about = "A stack that grew from the first snapshot of a rank to its last.",
    TSR__FIELDS(TSR__FIELD(BYTES, "first_bytes", "allocated at the end of the first snapshot"),
                TSR__FIELD(BYTES, "last_bytes", "allocated at the end of the last"),
                TSR__FIELD(REAL, "bytes_per_hour", "as that of the rank", .is_nullable = true),
                TSR__FIELD(TEXT, "category", "a [category](categories.md)"),
                TSR__FRAME_FIELDS("the stack's frames that a reader would look at, innermost "
                                  "first")),
};

static const tsr_record growth = {
    .name = "RankGrowth",
    .about =
        "A device of a rank with several snapshots that grew: of two, from one to the other; of "
        "more, steadily.",
    TSR__FIELDS(
        TSR__FIELD(COUNT, "rank", "its number"), TSR__FIELD(DEVICE, "device", "the device"),
        TSR__FIELD(COUNT, "snapshots", "how many there are"),
        TSR__FIELD(BYTES, "first_bytes", "allocated at the end of the first"),
        TSR__FIELD(BYTES, "last_bytes", "allocated at the end of the last"),
        TSR__FIELD(REAL, "bytes_per_hour",
                   "of a line through all of them, or where only stacks grow steadily, their sum; "
                   "null without times",
                   .is_nullable = true),
        TSR__FIELD(FLAG, "steady", "whether there are at least three, along a line"),
        TSR__FIELD(
            BYTES, "limit_bytes",
            "`--capacity`, or what the sidecar shows that PyTorch can have of the card; null "
            "if unknown",
            .is_nullable = true),
        TSR__FIELD(TIME, "full_time_us",
                   "when the peak, growing like this, reaches `limit_bytes`; null if that is "
                   "unknown, or not within a year",
                   .is_nullable = true),
        TSR__LIST(growth_stack, "stacks", "that grew, fastest first; with `--top`")),
};

static const tsr_record straggler = {
    .name = "RankStraggler",
    .about = "A rank that is late in its steps, by when it allocates in them.",
    TSR__FIELDS(TSR__FIELD(COUNT, "rank", "its number"),
                TSR__FIELD(TEXT, "group", "its group's name"),
                TSR__FIELD(DURATION, "late_us", "how late it is in a step: the median"),
                TSR__FIELD(DURATION, "step_us", "how long a step takes: the median"),
                TSR__FIELD(COUNT, "late_steps", "steps in which it was late"),
                TSR__FIELD(COUNT, "steps", "steps that were compared")),
};

static const tsr_record broken = {
    .name = "BrokenFile",
    .about = "A file that says nothing about a rank.",
    TSR__FIELDS(TSR__FIELD(TEXT, "path", "the file"), TSR__FIELD(TEXT, "message", "why")),
};

static const tsr_record check = {
    .name = "RankCheck",
    .about = "A budget, and the rank or the group that is furthest above it, or nearest below.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "rule", "`max-peak`, `max-category`, `max-reserved` or `max-spread`"),
        TSR__FIELD(TEXT, "category", "of `max-category`; else null", .is_nullable = true),
        TSR__FIELD(FLAG, "passed", "whether no rank, or no group, is above it"),
        TSR__FIELD(BYTES, "bytes",
                   "what that rank held at most, or how far the peaks of that "
                   "group are apart"),
        TSR__FIELD(BYTES, "limit_bytes", "the budget"),
        TSR__FIELD(COUNT, "rank", "the rank; of a spread the one with the highest peak"),
        TSR__FIELD(DEVICE, "device", "its device"),
        TSR__FIELD(COUNT, "lowest_rank",
                   "of a spread: the rank with the lowest peak in its group; else null",
                   .is_nullable = true),
        TSR__FIELD(TEXT, "group", "the name of its group"),
        TSR__FIELD(COUNT, "failed_ranks", "all ranks that are above; of a spread empty",
                   .is_list = true),
        TSR__FIELD(COUNT, "failed", "how many ranks, or groups, are above"),
        TSR__FIELD(TEXT, "message", "the result in a sentence, for people"),
        TSR__FIELD(BYTES, "stack_bytes",
                   "what the stack below holds at the rank's peak; null without one",
                   .is_nullable = true),
        TSR__FRAME_FIELDS("of the stack that holds most of what is checked, at the rank's peak")),
};

const tsr_record tsr__fields_ranks = {
    .name = "ranks",
    .about = "Which of many ranks ran out of memory, or differs from its equals.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(
        TSR__FIELD(FLAG, "passed",
                   "whether no check failed, and nothing leaves a doubt; null without budgets",
                   .is_nullable = true),
        TSR__FIELD(
            TEXT, "doubt",
            "why checks that did not fail cannot pass either: `broken` (files that cannot be "
            "read), `missing` (ranks or parts), `partial` (truncated or damaged files), "
            "`out-of-memory` or `unknown` (a category has a budget, but most of a rank's memory "
            "has no category)",
            .is_nullable = true),
        TSR__LIST(check, "checks", "in the order of `max`, `max_reserved` and `max_spread`"),
        TSR__FIELD(COUNT, "files", "files that were read, broken ones included"),
        TSR__FIELD(COUNT, "known_files",
                   "of these, files whose sketches were given or had been kept, and which were not "
                   "read"),
        TSR__FIELD(COUNT, "world_size", "how many ranks there are; null if nothing says",
                   .is_nullable = true),
        TSR__FIELD(TEXT, "ranks_by",
                   "how ranks were recognised: `sidecar`, `pattern`, `name`, or `order` (a single "
                   "file)"),
        TSR__FIELD(TEXT, "groups_by",
                   "how equals were found: `sidecar`, `name`, `mesh` (given) or `likeness`"),
        TSR__FIELD(COUNT, "first_out_of_memory",
                   "the rank that ran out of memory first; null if none did", .is_nullable = true),
        TSR__LIST(rank, "ranks", "by rank, then device"),
        TSR__LIST(group, "groups", "in the order of their lowest ranks"),
        TSR__LIST(outlier, "outliers", "most telling first"),
        TSR__FIELD(COUNT, "out_of_memory",
                   "ranks that ran out of memory, in the order in which they did", .is_list = true),
        TSR__LIST(growth, "growth",
                  "of ranks with several snapshots: the card that is full first, then the largest"),
        TSR__LIST(straggler, "stragglers", "ranks that are late in their steps, latest first"),
        TSR__FIELD(COUNT, "missing", "ranks without a snapshot", .is_list = true),
        TSR__FIELD(COUNT, "missing_parts", "parts whose sketches are not there", .is_list = true),
        TSR__LIST(broken, "broken", "files that cannot be read, by path")),
};
