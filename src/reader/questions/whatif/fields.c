/* fields.c - what the answer of "whatif" has. */
#include "questions/shared/fields.h"

static const tsr_record end = {
    .name = "RunEnd",
    .about = "After the last event.",
    TSR__FIELDS(TSR__FIELD(BYTES, "reserved_bytes", "reserved after the last event"),
                TSR__FIELD(COUNT, "segments", "segments then")),
};

static const tsr_record run_out = {
    .name = "RunOutOfMemory",
    .about = "The first request that could not be served.",
    .base = &tsr__fields_moment,
    TSR__FIELDS(TSR__FIELD(BYTES, "request_bytes", "its size")),
};

static const tsr_record recorded_out = {
    .name = "RecordedOutOfMemory",
    .about = "The first oom event of the trace, and the number of them.",
    TSR__FIELDS(TSR__FIELD(EVENT, "event", "the first oom event"),
                TSR__FIELD(BYTES, "request_bytes", "the size of its request"),
                TSR__FIELD(COUNT, "count", "how many oom events the trace has")),
};

static const tsr_record run = {
    .name = "Run",
    .about = "The trace on an allocator with other settings.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "settings",
                   "in the syntax of `PYTORCH_CUDA_ALLOC_CONF`; `defaults` for none"),
        TSR__FIELD(FLAG, "recorded", "these are the settings under which the snapshot was taken"),
        TSR__FIELD(FLAG, "fits",
                   "every request is served, those included that failed in the recorded run; null "
                   "if given up",
                   .is_nullable = true),
        TSR__FIELD(EVENT, "failed_event",
                   "if it does not fit: the first request that fails; -1 if too much was reserved "
                   "before the first event",
                   .is_optional = true),
        TSR__FIELD(BYTES, "peak_reserved_bytes", "the most that is reserved"),
        TSR__FIELD(BYTES, "waste_bytes", "the part of it that is not allocated"),
        TSR__PART(tsr__fields_moment, "peak", "the first event after which most is reserved"),
        TSR__PART(tsr__fields_fragmentation, "fragmentation", "at that event"),
        TSR__PART(end, "end", "after the last event"),
        TSR__FIELD(COUNT, "cache_flushes",
                   "requests for which the whole cache had to be emptied first"),
        TSR__FIELD(COUNT, "out_of_memory_count", "requests that could not be served"),
        TSR__FIELD(FLAG, "given_up",
                   "the search was stopped because it took too long (no real trace does that): the "
                   "numbers of this run cover the first events only"),
        TSR__PART(run_out, "out_of_memory",
                  "if requests failed: the first of them, and the totals then",
                  .is_optional = true)),
};

static const tsr_record device = {
    .name = "WhatifDevice",
    .about = "What other settings would have done on a device.",
    .base = &tsr__fields_device,
    TSR__FIELDS(
        TSR__FIELD(TEXT, "not_comparable",
                   "why `runs` cannot be compared with the recording: `no_events`; "
                   "`reserved_before`, most was reserved already when the recording began; "
                   "`reserved_unknown`, more was in use than the file has segments for. Text then "
                   "has no table, except of what fits in `--capacity`",
                   .is_nullable = true),
        TSR__FIELD(BYTES, "recorded_peak_reserved_bytes",
                   "the most that was reserved in the trace itself"),
        TSR__FIELD(BYTES, "capacity_bytes", "the memory that the runs had; null for no limit",
                   .is_nullable = true),
        TSR__FIELD(TEXT, "capacity_from",
                   "`option`, as given; `out_of_memory`, what PyTorch had when the recorded run "
                   "failed",
                   .is_nullable = true),
        TSR__FIELD(BYTES, "outside_bytes",
                   "of `--capacity`, what is outside of PyTorch's allocator; null if nothing is "
                   "counted",
                   .is_nullable = true),
        TSR__LIST(run, "runs",
                  "one per configuration; first those that fit, by reserved bytes; then the rest, "
                  "those that run out latest first"),
        TSR__FIELD(COUNT, "segments_recorded", "segments at the end"),
        TSR__FIELD(COUNT, "segments_reproduced",
                   "of these, those that the model also ends with under the recorded settings and "
                   "without a limit"),
        TSR__PART(recorded_out, "recorded_out_of_memory", "if the trace has oom events",
                  .is_optional = true),
        TSR__STACK_FIELDS(
            "what was live when the best configuration first ran out of memory; empty if "
            "it fits")),
};

const tsr_record tsr__fields_whatif = {
    .name = "whatif",
    .about = "What other settings, or another card, would have done.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(TSR__LIST(device, "devices", "one for each GPU")),
};
