/* fields.c - what the answer of "steps" has. */
#include "questions/shared/fields.h"

static const tsr_record steady = {
    .name = "Steady",
    .about = "The peaks of a loop's steps past the warm-up.",
    TSR__FIELDS(TSR__FIELD(BYTES, "peak_bytes", "the highest peak of a steady step"),
                TSR__FIELD(EVENT, "peak_event", "its event; null without steady steps",
                           .is_nullable = true),
                TSR__FIELD(BYTES, "lowest_peak_bytes", "the lowest peak of a steady step"),
                TSR__FIELD(BYTES, "growth_bytes",
                           "how much more is allocated before each than before the last one, "
                           "median; 0 unless that is so of nearly all, and none has less")),
};

static const tsr_record warmup = {
    .name = "Warmup",
    .about = "The peaks of steps before those.",
    TSR__FIELDS(
        TSR__FIELD(BYTES, "peak_bytes",
                   "the highest peak of whole steps before the steady ones; 0 without such steps"),
        TSR__FIELD(BYTES, "surplus_bytes",
                   "how far that is above the steady peak; 0 if it is not")),
};

static const tsr_record annotations = {
    .name = "StepAnnotations",
    .about = "How many ranges of a name match a step.",
    TSR__FIELDS(TSR__FIELD(TEXT, "name", "`Optimizer.step` or `ProfilerStep`"),
                TSR__FIELD(COUNT, "ranges", "ranges of that name"),
                TSR__FIELD(COUNT, "matched",
                           "of these, those that match a step: an optimizer's is alone in its "
                           "step and followed by nothing that comes before it; the "
                           "profiler's is nine tenths in one step, and two thirds of it")),
};

static const tsr_record phase = {
    .name = "StepPhase",
    .about = "The peak of a phase, of all steady steps of the main loop.",
    TSR__FIELDS(TSR__FIELD(TEXT, "phase",
                           "`setup`, `data`, `forward`, `recompute`, `backward`, `optimizer`, "
                           "`zero_grad` or `unknown`; `forward` is any forward pass in the step, "
                           "also that of an evaluation"),
                TSR__FIELD(COUNT, "steps", "number of steps that have it"),
                TSR__FIELD(BYTES, "peak_bytes", "the most allocated in it"),
                TSR__FIELD(EVENT, "peak_event", "the first event after which that was so")),
};

static const tsr_record step = {
    .name = "Step",
    .about = "A step; both its events are part of it.",
    TSR__FIELDS(
        TSR__FIELD(COUNT, "step", "its number, from 1, as in `why` and `leaks` and on the page"),
        TSR__FIELD(EVENT, "first_event", "its first event: a step begins where the previous ended"),
        TSR__FIELD(EVENT, "last_event", "its last event, inclusive"),
        TSR__FIELD(TIME, "first_time_us", "time of its first event", .is_nullable = true),
        TSR__FIELD(TIME, "last_time_us", "time of its last event", .is_nullable = true),
        TSR__FIELD(COUNT, "allocations", "allocations made in it"),
        TSR__FIELD(BYTES, "start_bytes", "allocated before it"),
        TSR__FIELD(BYTES, "end_bytes", "allocated after it"),
        TSR__FIELD(BYTES, "peak_bytes", "the most allocated in it"),
        TSR__FIELD(EVENT, "peak_event", "the first event after which that was so"),
        TSR__FIELD(FLAG, "whole", "it counts in `whole_steps`"),
        TSR__FIELD(FLAG, "steady", "it counts in `steady_steps`"),
        TSR__FIELD(COUNT, "loop", "the number of its loop in `loops`")),
};

static const tsr_record loop = {
    .name = "StepsLoop",
    .about = "Steps that are rounds of one loop: run from one line, and doing the same.",
    TSR__FIELDS(
        TSR__FIELD(COUNT, "loop", "its number, from 1, by first event"),
        TSR__FIELD(
            FLAG, "main",
            "the figures of the device are those of this loop: of the loops that train, or of "
            "all if none does, the one whose steps peak highest"),
        TSR__FIELD(FLAG, "listed",
                   "its steps are in `steps`; false of forward passes that a program that trains "
                   "makes in a loop of their own, such as an evaluation"),
        TSR__FIELD(TEXT, "unit", "what its steps are: `step` or `iteration`"),
        TSR__PART(
            tsr__fields_frame, "frame",
            "the line that runs it, or the one that distinguishes it from other loops; null if "
            "its stacks have no Python frames",
            .is_nullable = true),
        TSR__FIELD(COUNT, "first_step",
                   "number of its first step in `steps`; from 1 in the loop if it is not listed"),
        TSR__FIELD(COUNT, "last_step",
                   "number of its last step; steps of other loops may be between the two"),
        TSR__FIELD(EVENT, "first_event", "the first event of its first step"),
        TSR__FIELD(EVENT, "last_event", "the last event of its last step"),
        TSR__FIELD(COUNT, "step_count", "all of its steps"),
        TSR__FIELD(COUNT, "whole_steps", "of these, those that are whole"),
        TSR__FIELD(COUNT, "steady_steps", "of the whole steps, those past the warm-up"),
        TSR__FIELD(BYTES, "peak_bytes", "the most allocated in any of its steps"),
        TSR__FIELD(EVENT, "peak_event", "the first event after which that was so"),
        TSR__FIELD(COUNT, "peak_step", "the step that it is in"),
        TSR__FIELD(COUNT, "step_allocations", "allocations of a steady step, median"),
        TSR__FIELD(DURATION, "step_time_us", "of a steady step, median", .is_nullable = true),
        TSR__PART(steady, "steady", "the peaks of its steady steps"),
        TSR__PART(warmup, "warmup", "the peaks of its steps before those")),
};

static const tsr_record file_peak = {
    .name = "StepsPeak",
    .about = "Where the peak of the whole trace is.",
    TSR__FIELDS(TSR__FIELD(EVENT, "event", "its event; -1: before the first"),
                TSR__FIELD(BYTES, "allocated_bytes", "allocated there"),
                TSR__FIELD(TEXT, "phase", "what the program was doing"),
                TSR__FIELD(COUNT, "loop", "the loop that it is in; null outside of all loops",
                           .is_nullable = true),
                TSR__FIELD(COUNT, "step", "the step of that loop", .is_nullable = true)),
};

static const tsr_record device = {
    .name = "StepsDevice",
    .about = "The steps of a device's trace.",
    .base = &tsr__fields_device,
    TSR__FIELDS(
        TSR__FIELD(
            TEXT, "basis",
            "how the steps were found: `phases` (each ends with the optimizer's step, or "
            "with backward if no optimizer is visible), `annotations` (`ProfilerStep` or "
            "`Optimizer.step`, if no backward is visible), `loop` (the outermost loop in the "
            "program's Python, or calls of one model), `sequence` (without stacks of a "
            "forward pass: the same stacks and sizes repeat), `none`"),
        TSR__FIELD(
            TEXT, "unit",
            "what the steps are: `step`, or `iteration` if nothing runs backward (inference, "
            "generation) and no annotation means training. Field names are the same for "
            "both"),
        TSR__FIELD(FLAG, "counts_backwards",
                   "no optimizer's step, `zero_grad` or mark of a step is visible: each backward "
                   "pass counts as a step, even if gradients accumulate over several"),
        TSR__PART(tsr__fields_stop, "out_of_memory",
                  "where memory ran out for good; null if it did not", .is_nullable = true),
        TSR__PART(file_peak, "peak", "where the peak of the whole trace is"),
        TSR__LIST(loop, "loops",
                  "all loops, by first event; what the program does once is in none of them, "
                  "whether before, after or between"),
        TSR__FIELD(COUNT, "step_count", "length of `steps`, the steps of all listed loops"),
        TSR__FIELD(
            COUNT, "whole_steps",
            "of these, steps that the recording does not cut and that did not end early, out "
            "of memory or otherwise"),
        TSR__FIELD(
            COUNT, "steady_steps",
            "of the whole steps, those past the warm-up of their loop. That is its first steps, at "
            "most half, that do something else than most of the later half: their "
            "optimizer, or that of a later one of them, makes more state; or their "
            "allocations differ by stack, or are several times as large as those of the "
            "next, or they leave more behind, and their peak is more than 1 % off"),
        TSR__FIELD(COUNT, "step_allocations",
                   "allocations of a steady step of the main loop, median"),
        TSR__FIELD(DURATION, "step_time_us",
                   "time from the first event of a steady step of the main loop to that of the "
                   "next step, median; of "
                   "a single step, to its last event",
                   .is_nullable = true),
        TSR__PART(steady, "steady", "the peaks of steady steps of the main loop"),
        TSR__PART(warmup, "warmup", "the peaks of steps before those"),
        TSR__LIST(annotations, "annotations",
                  "`Optimizer.step` and `ProfilerStep`, if the file has them"),
        TSR__LIST(phase, "phases", "phases of the steady steps of the main loop"),
        TSR__LIST(step, "steps", "all of them, whatever `--top` says")),
};

const tsr_record tsr__fields_steps = {
    .name = "steps",
    .about = "Where steps begin, and what one needs.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(TSR__LIST(device, "devices", "one for each device")),
};
