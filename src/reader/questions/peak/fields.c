/* fields.c - what the answer of "peak" has. */
#include "questions/shared/fields.h"

static const tsr_record peak = {
    .name = "PeakMoment",
    .about = "The highest moment.",
    .base = &tsr__fields_moment,
    TSR__FIELDS(TSR__FIELD(BYTES, "unsplit_bytes",
                           "inferred: blocks from before the recording that are freed within it "
                           "count with their rounded request, the minimum possible size; for those "
                           "live at the peak, PyTorch had really allocated this much more")),
};

static const tsr_record recorded = {
    .name = "Recorded",
    .about = "The peak computed from the trace alone: Mosaic's numbers.",
    TSR__FIELDS(
        TSR__FIELD(EVENT, "event",
                   "the first event after which the recorded total is largest; -1 if no event "
                   "allocates"),
        TSR__FIELD(TIME, "time_us", "its time", .is_nullable = true),
        TSR__FIELD(BYTES, "dynamic_peak_bytes",
                   "the total at that event: requested bytes allocated and not yet freed within "
                   "the trace"),
        TSR__FIELD(BYTES, "static_bytes",
                   "blocks allocated at the end whose address appears in no `alloc` or free of the "
                   "trace: they are older than the recording"),
        TSR__FIELD(BYTES, "overall_bytes", "the sum of these two")),
};

static const tsr_record device = {
    .name = "PeakDevice",
    .about = "What held the memory of a device at its peak.",
    .base = &tsr__fields_device,
    TSR__FIELDS(
        TSR__PART(peak, "peak", "the first event after which allocated is largest"),
        TSR__PART(tsr__fields_totals, "start", "before the first event"),
        TSR__FIELD(BYTES, "start_unsplit_bytes", "as `peak.unsplit_bytes`, before the first event"),
        TSR__PART(tsr__fields_totals, "end", "after the last event"),
        TSR__PART(tsr__fields_totals, "maxima",
                  "the maximum of each total, each at its own moment"),
        TSR__PART(tsr__fields_fragmentation, "fragmentation", "at the peak"),
        TSR__LIST(tsr__fields_private_pool, "private_pools",
                  "what private pools keep at the peak; `[]` without any"),
        TSR__PART(recorded, "recorded",
                  "the peak computed from the trace alone, counted from zero at its first event "
                  "(Mosaic's numbers)"),
        TSR__PART(tsr__fields_stop, "out_of_memory",
                  "where memory ran out for good; null if it did not", .is_nullable = true),
        TSR__STACK_FIELDS("what was live at the peak, by stack, largest first"),
        TSR__LIST(tsr__fields_finding, "findings",
                  "what the program can change, largest saving first, at most one of each rule")),
};

const tsr_record tsr__fields_peak = {
    .name = "peak",
    .about = "What held the memory at its peak.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(TSR__IMBALANCE_FIELD, TSR__LIST(device, "devices", "one for each device")),
};
