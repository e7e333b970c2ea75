/* fields.c - what the answer of "check" has. */
#include "questions/shared/fields.h"

static const tsr_record cause = {
    .name = "CheckCause",
    .about = "What most likely made a rule fail: what a function holds in one category.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "name", "the function, as in a lock"),
        TSR__FIELD(TEXT, "category", "the category"),
        TSR__FIELD(BYTES, "peak_bytes", "the most it holds"),
        TSR__FIELD(COUNT, "allocations", "its allocations then"),
        TSR__FIELD(EVENT, "peak_event", "when that was"),
        TSR__FIELD(BYTES, "bytes", "what it holds at the device's peak"),
        TSR__FIELD(FLAG, "locked", "the lock lists it; null without a lock", .is_nullable = true),
        TSR__FIELD(BYTES, "locked_bytes",
                   "the lock's figure; if it is not listed, an upper bound; null without a lock",
                   .is_nullable = true),
        TSR__PART(tsr__fields_frame, "frame",
                  "the line of the function that holds most at `peak_event`", .is_nullable = true),
        TSR__PART(tsr__fields_frame, "layer", "the innermost frame of the library that it called",
                  .is_nullable = true),
        TSR__NAME_FIELDS("what the program called this memory when it held most"),
        TSR__FRAME_FIELDS("the stack of the largest allocation of that line")),
};

static const tsr_record result = {
    .name = "CheckResult",
    .about = "A rule, and what it found.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "rule",
                   "`max-peak`, `max-category`, `max-reserved`, `lock-device`, `lock-peak` or "
                   "`lock-category`"),
        TSR__FIELD(DEVICE, "device", "a device of the lock may be missing in the snapshot"),
        TSR__FIELD(TEXT, "category", "the category, for the `-category` rules (before 0.2: `kind`)",
                   .is_nullable = true),
        TSR__FIELD(FLAG, "passed", "the rule is kept"),
        TSR__FIELD(BYTES, "bytes", "the measured value"),
        TSR__FIELD(EVENT, "event", "at which event"),
        TSR__FIELD(BYTES, "limit_bytes", "the budget, or the lock's figure"),
        TSR__FIELD(BYTES, "tolerance_bytes", "the allowed deviation from it"),
        TSR__FIELD(TEXT, "message", "one sentence for a person; may change"),
        TSR__FIELD(FLAG, "by_change",
                   "`causes` are ranked by their change from the lock, not by "
                   "size"),
        TSR__LIST(
            cause, "causes",
            "of a failure, what functions hold in one category, most important first, at most "
            "`--top`"),
        TSR__FIELD(COUNT, "omitted_causes", "how many more there are"),
        TSR__FIELD(BYTES, "omitted_bytes", "their bytes as they are ranked")),
};

static const tsr_record moment = {
    .name = "CheckMoment",
    .about = "The peak.",
    .base = &tsr__fields_moment_of_totals,
};

static const tsr_record reserved = {
    .name = "CheckReserved",
    .about = "The most that was reserved.",
    TSR__FIELDS(TSR__FIELD(EVENT, "event", "when that was"),
                TSR__FIELD(BYTES, "bytes", "the most that was reserved")),
};

static const tsr_record category = {
    .name = "CheckCategory",
    .about = "A category when it held most, and at the peak.",
    TSR__FIELDS(TSR__FIELD(TEXT, "category", "the category"),
                TSR__FIELD(BYTES, "peak_bytes", "the most it holds"),
                TSR__FIELD(EVENT, "peak_event", "when that was"),
                TSR__FIELD(BYTES, "bytes", "what it holds at the peak")),
};

static const tsr_record device = {
    .name = "CheckDevice",
    .about = "What was measured on a device.",
    .base = &tsr__fields_device,
    TSR__FIELDS(TSR__PART(moment, "peak", "the peak, and the totals then"),
                TSR__PART(reserved, "reserved", "the most that was reserved"),
                TSR__LIST(category, "categories", "empty if no check needs them")),
};

const tsr_record tsr__fields_check = {
    .name = "check",
    .about = "A check; true if it passed: something was checked, nothing failed, and the file "
             "leaves no doubt (`doubt`), for example because it is truncated.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(
        TSR__FIELD(FLAG, "passed", "nothing failed, there was something to check, and no doubt"),
        TSR__FIELD(
            TEXT, "doubt",
            "why a check that did not fail cannot pass either: `truncated`, `damaged`, "
            "`unreadable` (a part of the file could not be read), `unknown` (a category has "
            "a budget, but most of the memory has no category) or `out-of-memory` (a request "
            "failed, so the run needed more than it got)",
            .is_nullable = true),
        TSR__FIELD(FLAG, "cut", "the file is truncated: the missing part could hold more"),
        TSR__FIELD(COUNT, "failed", "results that did not pass"),
        TSR__FIELD(FLAG, "counts_blocks",
                   "false: bytes of categories and causes are requested bytes, as in `profile`. "
                   "True with a lock of version 1: they include rounding and tails, as in the "
                   "lock"),
        TSR__LIST(result, "results", "by device, in the order of rules"),
        TSR__LIST(device, "devices", "one for each device")),
};
