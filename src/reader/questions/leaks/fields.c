/* fields.c - what the answer of "leaks" has. */
#include "questions/shared/fields.h"

static const tsr_record leak = {
    .name = "Leak",
    .about = "A stack that holds more after each step.",
    TSR__FIELDS(
        TSR__FIELD(BYTES, "bytes_per_step", "growth, divided by the steps since it began"),
        TSR__FIELD(BYTES, "bytes", "not freed at the end of the last step"),
        TSR__FIELD(COUNT, "allocations", "not freed at the end of the last step"),
        TSR__FIELD(COUNT, "since_step",
                   "the first step that left something; its number in `tessera steps`, from 1"),
        TSR__FIELD(COUNT, "growing_steps", "number of steps in which it grew"),
        TSR__FIELD(EVENT, "first_event", "the first allocation that was not freed"),
        TSR__FIELD(TIME, "first_time_us", "its time", .is_nullable = true),
        TSR__FIELD(COUNT, "loop", "the loop in which it grows: its number in `loops`"),
        TSR__NAME_FIELDS("what the program called the allocations that were not freed"),
        TSR__FRAME_FIELDS("the stack; `[]` for allocations without one, which are distinguished by "
                          "size")),
};

static const tsr_record loop = {
    .name = "LeaksLoop",
    .about = "A loop, judged by itself.",
    TSR__FIELDS(
        TSR__FIELD(COUNT, "loop",
                   "its number, as in `steps`; one more than the last for rounds of all"),
        TSR__FIELD(TEXT, "unit",
                   "what its steps are: `step`, `iteration`, or `round` of loops that take turns, "
                   "such as an epoch; rounds are only there if something grows with each that "
                   "grows in none of the loops"),
        TSR__PART(tsr__fields_frame, "frame", "its line, as in `steps`", .is_nullable = true),
        TSR__FIELD(COUNT, "whole_steps", "its steps that were compared"),
        TSR__FIELD(FLAG, "answered", "false if these are fewer than three"),
        TSR__FIELD(COUNT, "leak_count", "number of leaks in it"),
        TSR__FIELD(BYTES, "bytes_per_step", "all of them together")),
};

static const tsr_record device = {
    .name = "LeaksDevice",
    .about = "What grows on a device.",
    .base = &tsr__fields_device,
    TSR__FIELDS(
        TSR__FIELD(TEXT, "basis", "how the steps were found, as in `steps`"),
        TSR__FIELD(TEXT, "unit", "what the steps are, as in `steps`"),
        TSR__FIELD(COUNT, "whole_steps",
                   "steps that were compared, of the loop in which most grows in a step; if "
                   "nothing does, of the one with most steps"),
        TSR__FIELD(FLAG, "answered",
                   "false if that loop has fewer than three whole steps, too few to decide"),
        TSR__PART(tsr__fields_stop, "out_of_memory",
                  "where memory ran out for good; null if it did not", .is_nullable = true),
        TSR__FIELD(BYTES, "bytes_per_step", "all leaks of that loop together"),
        TSR__LIST(loop, "loops", "all loops, each judged by itself"),
        TSR__LIST(leak, "leaks", "of all loops, by bytes per step, largest first"),
        TSR__FIELD(COUNT, "omitted_leaks", "leaks omitted by `--top`"),
        TSR__FIELD(BYTES, "omitted_bytes_per_step", "their growth")),
};

const tsr_record tsr__fields_leaks = {
    .name = "leaks",
    .about = "What grows from step to step.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(TSR__LIST(device, "devices", "one for each device")),
};
