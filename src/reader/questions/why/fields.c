/* fields.c - what the answer of "why" has. */
#include "questions/shared/fields.h"

static const tsr_record oom = {
    .name = "OutOfMemory",
    .about = "A request that PyTorch could not serve.",
    TSR__FIELDS(TSR__FIELD(EVENT, "event", "the oom event"),
                TSR__FIELD(TIME, "time_us", "its time", .is_nullable = true),
                TSR__FIELD(BYTES, "request_bytes", "the size of the request, rounded as recorded"),
                TSR__FIELD(BYTES, "device_free_bytes", "free on the device then"),
                TSR__FIELD(FLAG, "recovered", "something was allocated afterwards")),
};

static const tsr_record request = {
    .name = "Request",
    .about = "The request that failed, and what it needed.",
    TSR__FIELDS(TSR__FIELD(BYTES, "request_bytes", "its size, rounded as recorded"),
                TSR__FIELD(BYTES, "needed_bytes", "the segment or pages requested from the driver"),
                TSR__FIELD(BYTES, "device_free_bytes", "free on the device"),
                TSR__FIELD(BYTES, "missing_bytes", "the difference"),
                TSR__FIELD(TEXT, "reason",
                           "why this request failed, whatever the rest of the run needs; see "
                           "`reason` of the device"),
                TSR__FIELD(COUNT, "stream", "the handle of its stream"),
                TSR__FIELD(PAIR, "pool", "the id of its pool"),
                TSR__PART(tsr__fields_frame, "frame", "as in `causes`", .is_nullable = true),
                TSR__PART(tsr__fields_frame, "layer", "as in `causes`", .is_nullable = true),
                TSR__FRAME_FIELDS("its stack, innermost first")),
};

static const tsr_record cache = {
    .name = "FreeMemory",
    .about = "What was free in PyTorch's cache, and could not serve the request.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "cache",
                   "what it is cached for: `own` (such requests), `other_size`, `other_stream` or "
                   "`other_pool`"),
        TSR__FIELD(BYTES, "bytes", "free bytes"), TSR__FIELD(COUNT, "blocks", "free blocks"),
        TSR__FIELD(BYTES, "largest_bytes", "the largest of them"),
        TSR__FIELD(BYTES, "segment_bytes", "of these bytes, those in entirely free segments")),
};

static const tsr_record category = {
    .name = "CategoryShare",
    .about = "What a category holds when memory runs out.",
    TSR__FIELDS(TSR__FIELD(TEXT, "category", "the category"),
                TSR__FIELD(BYTES, "bytes", "requested bytes"),
                TSR__FIELD(BYTES, "block_bytes", "the same with rounding and tails"),
                TSR__FIELD(COUNT, "allocations", "allocations in use or waiting")),
};

static const tsr_record cause = {
    .name = "Cause",
    .about = "A line that held memory when it ran out.",
    TSR__FIELDS(TSR__FIELD(TEXT, "category", "the category of its memory"),
                TSR__FIELD(BYTES, "bytes", "requested bytes"),
                TSR__FIELD(BYTES, "block_bytes", "the same with rounding and tails"),
                TSR__FIELD(COUNT, "allocations", "allocations in use or waiting"),
                TSR__FIELD(FLAG, "covers_missing", "its `bytes` are `missing_bytes` or more"),
                TSR__PART(tsr__fields_frame, "frame",
                          "the program's innermost frame (otherwise that of a library, torch, C++)",
                          .is_nullable = true),
                TSR__PART(tsr__fields_frame, "layer",
                          "the innermost frame of the library that it called", .is_nullable = true),
                TSR__NAME_FIELDS("what the program called this memory"),
                TSR__FIELD(FLAG, "before_recording",
                           "of memory without a stack: it is older than the recording",
                           .is_optional = true),
                TSR__FRAME_FIELDS("the stack of its largest allocation")),
};

static const tsr_record trial = {
    .name = "Trial",
    .about = "The trace with other settings, as far as the failure and beyond.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "settings",
                   "in the syntax of `PYTORCH_CUDA_ALLOC_CONF`; `defaults` for none"),
        TSR__FIELD(FLAG, "recorded", "these are the settings under which the snapshot was taken"),
        TSR__FIELD(FLAG, "fits", "all requests are served, including the one that failed"),
        TSR__FIELD(EVENT, "failed_event", "where it fails: the oom event, or a request before it",
                   .is_nullable = true),
        TSR__FIELD(BYTES, "missing_bytes",
                   "if the request fails: how much more the driver would need"),
        TSR__FIELD(BYTES, "reserved_peak_bytes", "the most reserved up to there"),
        TSR__FIELD(BYTES, "reserved_bytes", "reserved at the end"),
        TSR__FIELD(FLAG, "given_up",
                   "stopped because it took too long: the numbers cover the first events only"),
        TSR__FIELD(FLAG, "rest_fits",
                   "after the request, also what the `outlook` expects is served, for two steps or "
                   "the rest of the forward pass; null if it expects nothing or the request itself "
                   "fails",
                   .is_nullable = true),
        TSR__FIELD(BYTES, "rest_missing_bytes",
                   "if it is not: how much more the driver would need at the first failure")),
};

static const tsr_record outlook = {
    .name = "Outlook",
    .about = "What the step would have needed beyond the failure.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "basis",
                   "what it is taken from: `earlier_step` (what followed the same request in an "
                   "earlier step), `blocks` (what earlier blocks of this forward pass did, until "
                   "the last block), `optimizer_state` (the state that the optimizer's first step "
                   "makes, which does not fit), `none` (the trace does not show it, or the program "
                   "recovered)"),
        TSR__FIELD(TEXT, "phase", "the phase in which it failed"),
        TSR__FIELD(COUNT, "step",
                   "the step in which it failed, from 1, as `steps` counts; null if the trace does "
                   "not show one",
                   .is_nullable = true),
        TSR__FIELD(TEXT, "unit", "`step` or `iteration`"),
        TSR__FIELD(EVENT, "like_event", "the same request, earlier", .is_nullable = true),
        TSR__FIELD(COUNT, "blocks_begun", "repeated blocks of this forward pass that had begun",
                   .is_nullable = true),
        TSR__FIELD(COUNT, "block_count", "how many the model has, by its parameters",
                   .is_nullable = true),
        TSR__FIELD(BYTES, "block_bytes", "what each block keeps in use", .is_nullable = true),
        TSR__FIELD(BYTES, "step_growth_bytes",
                   "how much more is in use from step to step; 0 if it does not grow or fewer than "
                   "three steps show it"),
        TSR__FIELD(BYTES, "peak_bytes",
                   "the most that would have been allocated on a card without limit; a lower bound "
                   "unless `basis` is `earlier_step`; null without a basis",
                   .is_nullable = true),
        TSR__FIELD(BYTES, "asked_bytes", "the same of requested bytes", .is_nullable = true),
        TSR__FIELD(BYTES, "short_bytes",
                   "how far `asked_bytes` is above `trial_capacity_bytes`: if not 0, no setting "
                   "lets the step finish",
                   .is_nullable = true)),
};

static const tsr_record advice = {
    .name = "Advice",
    .about = "A change that helps, and whether it is enough.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "change",
                   "`settings`, `batch` (a smaller one), `checkpoint` (recompute the blocks in "
                   "backward), `growth` (free what grows from step to step), `model` (no batch is "
                   "small enough), `outside` (less of `outside_causes`)"),
        TSR__FIELD(FLAG, "enough", "true: the run should finish; null: not known",
                   .is_nullable = true),
        TSR__FIELD(TEXT, "settings", "of `settings`, which", .is_nullable = true),
        TSR__FIELD(COUNT, "batch_percent",
                   "of `batch`, the largest one, in percent of the recorded one",
                   .is_nullable = true),
        TSR__FIELD(BYTES, "peak_bytes",
                   "allocated at the peak with this change, at most; of `model`, what parameters, "
                   "gradients and the optimizer's state take",
                   .is_nullable = true),
        TSR__FIELD(BYTES, "update_bytes",
                   "of `model`: what the optimizer's step takes beyond that, at most",
                   .is_nullable = true),
        TSR__FIELD(TEXT, "assumes",
                   "`adam`: the trace shows no whole step of the optimizer, so Adam's is assumed",
                   .is_nullable = true)),
};

static const tsr_record outside = {
    .name = "HeldOutside",
    .about = "Who holds a part of the card outside PyTorch.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "kind",
                   "as in the `parts` of "
                   "[`card`](#card-what-else-is-on-the-card-nccl-contexts-other-processes)"),
        TSR__FIELD(TEXT, "name", "of the group, library or process; null for others",
                   .is_nullable = true),
        TSR__FIELD(COUNT, "pid", "of another process", .is_nullable = true),
        TSR__FIELD(BYTES, "bytes", "how much"),
        TSR__FIELD(
            BYTES, "grew_bytes",
            "of it, what it grew by since the second step, or the first quarter of the time"),
        TSR__FIELD(FLAG, "steady", "it grew in each quarter of the time since"),
        TSR__FIELD(FLAG, "covers_missing", "its `bytes` are `missing_bytes` or more")),
};

static const tsr_record outside_cause = {
    .name = "OutsideCause",
    .about = "What outside PyTorch explains the failure.",
    TSR__FIELDS(TSR__FIELD(COUNT, "index",
                           "which of `outside`: the largest of its kind, or what grew most"),
                TSR__FIELD(TEXT, "sort",
                           "`process` (another one), `groups` (NCCL, all groups together), "
                           "`growth`, `context`, `unaccounted`"),
                TSR__FIELD(BYTES, "bytes",
                           "what it holds, with others of its kind; of `growth`, what it grew by")),
};

static const tsr_record device = {
    .name = "WhyDevice",
    .about = "Why a device ran out of memory.",
    .base = &tsr__fields_device,
    TSR__FIELDS(
        TSR__FIELD(
            TEXT, "reason",
            "why it failed, the first that applies: `not_recorded` (no oom event), "
            "`limit` (the driver had enough), `fragmented` (cached for such requests and "
            "free, with what the driver had, is enough), `cached_elsewhere` (enough together "
            "with what is cached for other streams, pools and sizes), `pending` (together "
            "with freed blocks that wait), `rounded` (together with what blocks hold beyond "
            "requests), `outside` (of the card, more is neither PyTorch's nor free than "
            "drivers and CUDA contexts take, 1 GiB and a sixteenth, by at least the missing "
            "bytes, with `--capacity` or a sidecar; or `outside_causes` names one, which comes "
            "first of all if it is an eighth of the card and more than is cached and free), "
            "`in_use`; "
            "`unknown`, if more is in use "
            "than the file has segments for. If the rest of the run needs more than there was "
            "(`outlook.short_bytes`), no arrangement would have been enough: then `fragmented` to "
            "`rounded` are `in_use` here, and only `request.reason` has them"),
        TSR__PART(tsr__fields_moment_of_totals, "moment",
                  "the oom event; without one, when most is reserved"),
        TSR__FIELD(BYTES, "peak_reserved_bytes", "of the whole trace"),
        TSR__LIST(oom, "ooms", "all oom events"),
        TSR__PART(request, "request", "the one explained; null if no oom event was recorded",
                  .is_nullable = true),
        TSR__FIELD(BYTES, "capacity_bytes",
                   "the card's memory, as given, otherwise from the sidecar", .is_nullable = true),
        TSR__FIELD(TEXT, "capacity_from", "`option` or `sidecar`", .is_nullable = true),
        TSR__FIELD(BYTES, "outside_bytes",
                   "the part of it that was neither reserved nor free at the failure; without a "
                   "failure, from the sidecar",
                   .is_nullable = true),
        TSR__LIST(outside, "outside",
                  "of that, who holds it, by the last sample of the ledger up to then, largest "
                  "first; `[]` without a ledger"),
        TSR__FIELD(BYTES, "asleep_bytes",
                   "of what PyTorch has reserved, what was in sleeping pools then, and not on the "
                   "card"),
        TSR__FIELD(TIME, "outside_time_us", "the time of that sample", .is_nullable = true),
        TSR__LIST(outside_cause, "outside_causes",
                  "what holds as much as was missing, and more than is usual, best first; `[]` if "
                  "nothing does, or without a ledger"),
        TSR__FIELD(BYTES, "lost_bytes",
                   "`rounding_bytes` and `unsplit_bytes` of `fragmentation` together"),
        TSR__LIST(cache, "free",
                  "free blocks in reserved memory, grouped by whether the request could use them"),
        TSR__PART(tsr__fields_fragmentation, "fragmentation", "at that moment"),
        TSR__LIST(tsr__fields_private_pool, "private_pools", "at that moment; `[]` without any"),
        TSR__LIST(category, "categories",
                  "memory in use or waiting, largest first (before 0.2: `kinds`, `kind`)"),
        TSR__LIST(cause, "causes", "the same by category and line, largest first"),
        TSR__FIELD(COUNT, "omitted_causes", "causes omitted by `--top`"),
        TSR__FIELD(BYTES, "omitted_bytes", "their bytes"),
        TSR__FIELD(BYTES, "omitted_block_bytes", "the same with rounding and tails"),
        TSR__FIELD(BYTES, "trial_capacity_bytes",
                   "if an oom event is explained: the memory available to PyTorch at that moment",
                   .is_optional = true),
        TSR__FIELD(BYTES, "asked_bytes",
                   "if an oom event is explained: requested bytes of the memory in use",
                   .is_optional = true),
        TSR__FIELD(
            FLAG, "beyond_settings",
            "if an oom event is explained: that plus the request is more than was available: "
            "no setting could help, and none is tried without `--set`",
            .is_optional = true),
        TSR__FIELD(
            FLAG, "model_agrees",
            "if an oom event is explained: under the recorded settings the model fails where "
            "the program did; if false, the other trials mean little",
            .is_nullable = true, .is_optional = true),
        TSR__LIST(trial, "trials",
                  "if an oom event is explained: the same requests under other settings, best "
                  "first",
                  .is_optional = true),
        TSR__PART(outlook, "outlook",
                  "if an oom event is explained: an estimate of how the run would have gone on",
                  .is_optional = true),
        TSR__LIST(advice, "advice",
                  "if an oom event is explained: what would let the run finish, by estimate; what "
                  "should be enough comes first. Each weighs a change against the card's memory; "
                  "`findings` has the program's habits, with line and evidence, whatever the card. "
                  "`checkpoint` may be in both, and is then about the same blocks",
                  .is_optional = true),
        TSR__LIST(tsr__fields_finding, "findings",
                  "what the program can change, as in `peak`; `[]` for a failure while less than "
                  "three quarters of the peak were in use")),
};

const tsr_record tsr__fields_why = {
    .name = "why",
    .about = "Why it ran out of memory.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(TSR__IMBALANCE_FIELD, TSR__LIST(device, "devices", "one for each device")),
};
