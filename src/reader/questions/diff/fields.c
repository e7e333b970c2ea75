/* fields.c - what the answer of "diff" has. */
#include "questions/shared/fields.h"

static const tsr_record side = {
    .name = "DiffSide",
    .about = "One of the two files.",
    TSR__FIELDS(
        TSR__FIELD(DEVICE, "device", "null if the file does not have it", .is_nullable = true),
        TSR__FIELD(COUNT, "events", "events in its trace"),
        TSR__FIELD(TEXT, "settings",
                   "the allocator's settings, in the syntax of PYTORCH_CUDA_ALLOC_CONF; "
                   "`\"\"` for the default"),
        TSR__PART(tsr__fields_moment, "peak", "its peak")),
};

static const tsr_record compared = {
    .name = "DiffCompared",
    .about = "The moments whose content is compared.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "phase",
                   "null: they are the peaks; else the peaks are of different phases, and this is "
                   "the phase in which more changed",
                   .is_nullable = true),
        TSR__FIELD(EVENT, "old_event", "in the old file: when most is allocated in that phase"),
        TSR__FIELD(EVENT, "new_event", "and in the new one"),
        TSR__FIELD(DELTA, "delta_bytes", "allocated then, new less old"),
        TSR__FIELD(DELTA, "requested_delta_bytes",
                   "requested then, new less old: the sum of all changes")),
};

static const tsr_record phase = {
    .name = "DiffPhase",
    .about = "When most is allocated in a phase.",
    TSR__FIELDS(TSR__FIELD(TEXT, "phase", "`forward`, `backward` (with recomputation), ..."),
                TSR__FIELD(EVENT, "old_event", "null if the old file does not show the phase",
                           .is_nullable = true),
                TSR__FIELD(EVENT, "new_event", "likewise", .is_nullable = true),
                TSR__FIELD(BYTES, "old_bytes", "allocated then", .is_nullable = true),
                TSR__FIELD(BYTES, "new_bytes", "likewise", .is_nullable = true)),
};

static const tsr_record cause = {
    .name = "DiffCause",
    .about = "What most of the difference is made of.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "category",
                   "the category that changed most in the same direction as the total",
                   .is_nullable = true),
        TSR__FIELD(DELTA, "delta_bytes", "by how much"),
        TSR__FIELD(
            TEXT, "line",
            "the program line at which most of that changed, named as in `profile --by line`",
            .is_nullable = true),
        TSR__FIELD(DELTA, "line_delta_bytes", "by how much")),
};

static const tsr_record change = {
    .name = "Change",
    .about = "What a stack, or another group, holds in one file and the other.",
    TSR__FIELDS(
        TSR__FIELD(DELTA, "delta_bytes", "new less old"),
        TSR__FIELD(BYTES, "old_bytes",
                   "requested bytes live at the moment compared of the old file"),
        TSR__FIELD(BYTES, "new_bytes", "and of the new one"),
        TSR__FIELD(COUNT, "old_allocations", "live allocations then"),
        TSR__FIELD(COUNT, "new_allocations", "and in the new file"),
        TSR__FIELD(TEXT, "status", "`added`, `removed`, `grown` or `shrunk`"),
        TSR__FIELD(FLAG, "moved", "the match ignores lines, paths or versions"),
        TSR__FIELD(TEXT, "name",
                   "with other groupings than by stack: the group, named as in `profile`",
                   .is_optional = true),
        TSR__FIELD(TEXT, "category",
                   "by stack: the one that changed most in the direction of `delta_bytes`",
                   .is_optional = true),
        TSR__LIST(tsr__fields_name, "names",
                  "by stack: what the program called this memory, in the file whose stack is shown",
                  .is_optional = true),
        TSR__FIELD(COUNT, "omitted_names", "by stack: names omitted by `--top`",
                   .is_optional = true),
        TSR__FIELD(FLAG, "before_recording",
                   "by stack, of memory without a stack: it is older than the recording",
                   .is_optional = true),
        TSR__LIST(tsr__fields_frame, "frames",
                  "by stack: innermost first; `[]` for memory whose stack was not recorded",
                  .is_optional = true),
        TSR__FIELD(COUNT, "folded_frames", NULL, .is_optional = true)),
};

static const tsr_record aligned_side = {
    .name = "AlignedSide",
    .about = "A step whose allocations were compared one by one.",
    TSR__FIELDS(TSR__FIELD(COUNT, "step",
                           "the last whole step, which is compared; null: all of the trace",
                           .is_nullable = true),
                TSR__FIELD(COUNT, "allocations", "those live when it begins or made in it"),
                TSR__FIELD(EVENT, "peak_event", "its peak"),
                TSR__FIELD(BYTES, "peak_requested_bytes", "requested then"),
                TSR__FIELD(BYTES, "peak_allocated_bytes", "allocated then")),
};

static const tsr_record aligned_sum = {
    .name = "AlignedSum",
    .about = "How many allocations differ in one way.",
    TSR__FIELDS(TSR__FIELD(COUNT, "allocations", "how many"),
                TSR__FIELD(BYTES, "bytes", "their sizes; of a pair, the larger")),
};

static const tsr_record aligned_change = {
    .name = "AlignedChange",
    .about = "Allocations that only one file has, or that differ in the same way.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "status", "`removed`, `added`, `resized` or `lifetime`"),
        TSR__FIELD(COUNT, "count", "allocations, or pairs"),
        TSR__FIELD(BYTES, "old_size_bytes",
                   "requested bytes of each in the old file; null if it "
                   "has none",
                   .is_nullable = true),
        TSR__FIELD(BYTES, "new_size_bytes", "and in the new one", .is_nullable = true),
        TSR__FIELD(BYTES, "old_peak_bytes",
                   "what they hold together at the peak of the old step; the differences add up to "
                   "that of `peak_requested_bytes`"),
        TSR__FIELD(BYTES, "new_peak_bytes", "and at that of the new step"),
        TSR__FIELD(EVENT, "old_event",
                   "the event that made the first one in the old file; -1: before the recording, "
                   "or none"),
        TSR__FIELD(EVENT, "new_event", "and in the new one"),
        TSR__FIELD(TEXT, "category", "in the new file if it has them"),
        TSR__FRAME_FIELDS("in the new file if it has them")),
};

static const tsr_record alignment = {
    .name = "Alignment",
    .about = "The last whole steps of two files, allocation by allocation.",
    .is_apart = true,
    TSR__FIELDS(
        TSR__PART(aligned_side, "old", "the step of the old file"),
        TSR__PART(aligned_side, "new", "the step of the new file"),
        TSR__FIELD(COUNT, "same", "pairs of one size"),
        TSR__FIELD(COUNT, "moved", "of these, those that the two steps make in different orders"),
        TSR__PART(aligned_sum, "removed", "what only the old side has"),
        TSR__PART(aligned_sum, "added", "what only the new side has"),
        TSR__PART(aligned_sum, "resized", "pairs of different sizes"),
        TSR__PART(aligned_sum, "lifetime",
                  "pairs of one size of which one is live at its side's peak and the other is not"),
        TSR__LIST(aligned_change, "changes",
                  "these, together if stack, category and sizes are equal; by their difference at "
                  "the peak, then by size, largest first"),
        TSR__FIELD(COUNT, "omitted_changes", "changes omitted by `--top`")),
};

static const tsr_record device = {
    .name = "DiffDevice",
    .about = "What changed on a device.",
    TSR__FIELDS(
        TSR__FIELD(DEVICE, "device", "its number, that of the new file if it has the device"),
        TSR__FIELD(TEXT, "by",
                   "what is compared: `stack`, `category`, `op`, `line` or `allocation`"),
        TSR__PART(side, "old", "the old file"), TSR__PART(side, "new", "the new file"),
        TSR__FIELD(DELTA, "delta_bytes",
                   "allocated at the new peak less allocated at the old one, as "
                   "`torch.cuda.memory_allocated()` counts"),
        TSR__FIELD(DELTA, "requested_delta_bytes", "the same for requested bytes"),
        TSR__PART(compared, "compared", "the moments whose content is compared below"),
        TSR__LIST(phase, "phases", "the highest moment of each phase, in either file"),
        TSR__PART(cause, "cause",
                  "where most of the change between the moments compared comes from"),
        TSR__PART(alignment, "alignment",
                  "with `--by allocation`, which takes the place of all that follows",
                  .is_optional = true),
        TSR__LIST(change, "changes",
                  "stacks or groups that hold more or less than before, by the absolute value of "
                  "`delta_bytes`, largest first",
                  .is_optional = true),
        TSR__FIELD(COUNT, "omitted_changes", "changes omitted by `--top`", .is_optional = true),
        TSR__FIELD(DELTA, "omitted_delta_bytes", "the sum of their deltas", .is_optional = true),
        TSR__FIELD(
            DELTA, "rounding_delta_bytes",
            "the rest of `compared.delta_bytes`: rounding and tails, less blocks that wait for "
            "another stream (they are not allocated, but requested)",
            .is_optional = true),
        TSR__FIELD(COUNT, "moved_stacks",
                   "stacks or lines in both files whose match ignores lines, paths or versions",
                   .is_optional = true),
        TSR__FIELD(COUNT, "unchanged_stacks", "stacks or groups that hold the same as before",
                   .is_optional = true),
        TSR__FIELD(BYTES, "added_bytes", "over all changes, the sum of those that are `added`",
                   .is_optional = true),
        TSR__FIELD(BYTES, "removed_bytes", "of those that are `removed`", .is_optional = true),
        TSR__FIELD(BYTES, "grown_bytes", "of those that are `grown`", .is_optional = true),
        TSR__FIELD(BYTES, "shrunk_bytes", "of those that are `shrunk`", .is_optional = true)),
};

const tsr_record tsr__fields_diff = {
    .name = "diff",
    .about = "What changed from one file to the other.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(TSR__LIST(device, "devices", "one for each device")),
};
