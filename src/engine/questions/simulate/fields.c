/* fields.c - what the answer of "simulate" has. */
#include "questions/outside.h"
#include "questions/reports.h"

/* A moment of a simulated run: it has no time, but a place in a step. */
static const tsr_record moment = {
    .name = "SimulatedMoment",
    .about = "The totals after an event, and where in a step that is.",
    .base = &tsr__fields_totals,
    .is_apart = true,
    TSR__FIELDS(TSR__FIELD(EVENT, "event", "the event; -1 is before the first"),
                TSR__FIELD(COUNT, "step", "its step, from 1; 0: before the first"),
                TSR__FIELD(TEXT, "phase", "`forward`, `backward`, `optimizer`, ..."),
                TSR__FIELD(TEXT, "op", "what was running")),
};

static const tsr_record space = {
    .name = "SimulatedSpace",
    .about = "What is kept outside the GPU.",
    TSR__FIELDS(TSR__FIELD(BYTES, "allocated_bytes", "allocated at its peak"),
                TSR__FIELD(BYTES, "reserved_bytes", "reserved at its peak")),
};

static const tsr_record category = {
    .name = "SimulatedCategory",
    .about = "What a category holds.",
    TSR__FIELDS(TSR__FIELD(TEXT, "name", "the category; of the last row `rounding and tails`"),
                TSR__FIELD(BYTES, "bytes", "its requested bytes")),
};

static const tsr_record phase = {
    .name = "SimulatedPhase",
    .about = "The highest moment of a phase.",
    TSR__FIELDS(TSR__FIELD(TEXT, "name", "`forward`, `backward`, `optimizer` or `evaluation`"),
                TSR__FIELD(BYTES, "allocated_bytes", "its peak"),
                TSR__FIELD(BYTES, "requested_bytes", "requested then"),
                TSR__FIELD(COUNT, "step", "the step of that moment"),
                TSR__FIELD(TEXT, "op", "what was running")),
};

static const tsr_record note = {
    .name = "Note",
    .about = "What the simulation assumes.",
    TSR__FIELDS(TSR__FIELD(TEXT, "message", "one sentence")),
};

/* ---- With --profile ---- */

static const tsr_record profile_phase = {
    .name = "SimulatedProfilePhase",
    .about = "The memory of a phase.",
    TSR__FIELDS(TSR__FIELD(TEXT, "phase", "`forward`, `backward`, `optimizer`, ..."),
                TSR__FIELD(BYTES, "end_allocated_bytes", "allocated at its end"),
                TSR__FIELD(BYTES, "end_reserved_bytes", "reserved at its end"),
                TSR__FIELD(BYTES, "peak_allocated_bytes",
                           "allocated at its peak; null if the phase only frees",
                           .is_nullable = true),
                TSR__FIELD(BYTES, "peak_reserved_bytes", "reserved then", .is_nullable = true),
                TSR__FIELD(COUNT, "peak_step", "the step of that moment", .is_nullable = true),
                TSR__FIELD(TEXT, "peak_op", "what was running")),
};

static const tsr_record profile_block = {
    .name = "SimulatedBlock",
    .about = "What is in memory for a block at the peak.",
    TSR__FIELDS(
        TSR__FIELD(COUNT, "block", "the block, from 0; null for what belongs to none",
                   .is_nullable = true),
        TSR__FIELD(TEXT, "name", "the block, `outside blocks` or `rounding and tails`"),
        TSR__FIELD(BYTES, "bytes", "its memory at the peak"),
        TSR__FIELD(BYTES, "kept_bytes", "of these, activations kept for backward"),
        TSR__FIELD(BYTES, "hooks_bytes", "of those, what forward hooks on all modules would show")),
};

static const tsr_record profile_tensors = {
    .name = "SimulatedTensors",
    .about = "Tensors of one sort at the peak.",
    TSR__FIELDS(TSR__FIELD(TEXT, "category", "the category, or `rounding and tails`"),
                TSR__FIELD(TEXT, "dtype", "the type of their elements"),
                TSR__FIELD(TEXT, "op", "the op that made them"),
                TSR__FIELD(TEXT, "kernel", "the kernel of it"),
                TSR__FIELD(FLAG, "is_backward", "the op's backward made them"),
                TSR__FIELD(TEXT, "saved_for", "the op whose backward needs them; `\"\"` for none"),
                TSR__FIELD(FLAG, "is_module_output", "they are what a module returns"),
                TSR__FIELD(COUNT, "count", "how many there are"),
                TSR__FIELD(BYTES, "bytes", "their memory")),
};

static const tsr_record profile_type = {
    .name = "SimulatedType",
    .about = "A category in one of its types.",
    TSR__FIELDS(TSR__FIELD(TEXT, "category", "the category"),
                TSR__FIELD(TEXT, "dtype", "the type of its elements"),
                TSR__FIELD(COUNT, "count", "tensors in a step"),
                TSR__FIELD(BYTES, "bytes", "their memory"),
                TSR__FIELD(BYTES, "peak_bytes", "what of it is in memory at the peak")),
};

const tsr_record tsr__fields_memory_profile = {
    .name = "SimulatedProfile",
    .about = "What is in memory at the peak, by phase, block, saved tensor and type.",
    .is_apart = true,
    TSR__FIELDS(
        TSR__LIST(profile_phase, "phases", "the memory of each phase"),
        TSR__FIELD(BYTES, "peak_allocated_bytes", "allocated at the peak"),
        TSR__FIELD(BYTES, "peak_reserved_bytes", "the most that is reserved"),
        TSR__FIELD(EVENT, "peak_event", "the event of the peak"),
        TSR__FIELD(BYTES, "lost_bytes", "what rounding and unsplit tails take at the peak"),
        TSR__LIST(profile_block, "blocks",
                  "the peak by block; the bytes add up to `peak_allocated_bytes`"),
        TSR__LIST(profile_tensors, "tensors",
                  "the peak by sort of tensor, largest first; adds up to the same"),
        TSR__LIST(profile_type, "types", "every category in each type that it has"),
        TSR__FIELD(BYTES, "kept_bytes", "what all blocks keep for backward"),
        TSR__FIELD(BYTES, "hooks_bytes", "of these, what forward hooks on all modules would show")),
};

/* ---- The answer ---- */

static const tsr_record device = {
    .name = "SimulationDevice",
    .about = "What the run needs of a device.",
    .base = &tsr__fields_device,
    TSR__FIELDS(
        TSR__FIELD(COUNT, "parameters",
                   "number of elements in `model.parameters()`, tied weights counted once"),
        TSR__FIELD(COUNT, "steps", "completed steps"),
        TSR__FIELD(BYTES, "capacity_bytes", "as given; null without a limit", .is_nullable = true),
        TSR__FIELD(FLAG, "fits", "false if the run ran out of memory"),
        TSR__FIELD(BYTES, "start_allocated_bytes",
                   "memory of the model and workspaces, before the first event"),
        TSR__FIELD(BYTES, "peak_reserved_bytes", "the most that is reserved"),
        TSR__FIELD(COUNT, "step_flops", "floating-point operations of one step"),
        TSR__FIELD(COUNT, "step_recomputed_flops", "of these, those that are recomputation"),
        TSR__PART(moment, "peak", "the first moment at which most is allocated"),
        TSR__PART(moment, "out_of_memory", "if it does not fit: the moment of the failure",
                  .is_optional = true),
        TSR__FIELD(BYTES, "oom_request_bytes", "if it does not fit: the size of the request",
                   .is_optional = true),
        TSR__FIELD(TEXT, "gpu", "the card or machine of `--gpu` or `--rates`", .is_nullable = true),
        TSR__FIELD(DURATION, "step_time_us", "the estimated time of a step there",
                   .is_nullable = true),
        TSR__FIELD(DURATION, "step_time_low_us", "what it really is at least", .is_nullable = true),
        TSR__FIELD(DURATION, "step_time_high_us", "and at most", .is_nullable = true),
        TSR__FIELD(TEXT, "step_time_source",
                   "what these two are from: `the card's data sheet`, `measured rates`, `the "
                   "recorded run`, or `rates without a known error`",
                   .is_nullable = true),
        TSR__PART(tsr__fields_outside, "outside",
                  "with a card, or a limit that is the memory of one: what is outside of PyTorch's "
                  "allocator; else null",
                  .is_nullable = true),
        TSR__PART(space, "host", "if `--offload` keeps something on the host", .is_optional = true),
        TSR__FIELD(BYTES, "host_machine_bytes",
                   "reserved there by all ranks of a machine, or by the only process",
                   .is_optional = true),
        TSR__PART(space, "disk", "if `--offload` keeps something on disk", .is_optional = true),
        TSR__FIELD(TEXT, "message", "if it does not fit: the text of PyTorch's exception",
                   .is_optional = true),
        TSR__LIST(
            category, "categories",
            "at the peak or when memory ran out, largest first. The last row is what rounding "
            "and unsplit tails add; all rows add up to `allocated_bytes`"),
        TSR__LIST(phase, "phases", "the peak of each phase"),
        TSR__PART(tsr__fields_memory_profile, "profile", "with `--profile`", .is_optional = true),
        TSR__LIST(note, "notes", "assumptions that the answer depends on")),
};

const tsr_record tsr__fields_simulate = {
    .name = "simulate",
    .about = "What a training run would need.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(TSR__LIST(device, "devices", "exactly one")),
};
