/* fields.c - what the answers of several questions have. */
#include "questions/shared/fields.h"

const tsr_record tsr__fields_frame = {
    .name = "Frame",
    .about = "A function that was being executed.",
    .is_apart = true,
    TSR__FIELDS(TSR__FIELD(TEXT, "name", "the function"),
                TSR__FIELD(TEXT, "file",
                           "its source file; `??` if it is unknown, a shared library for some C++ "
                           "frames"),
                TSR__FIELD(COUNT, "line",
                           "the line; null if the recorder marked it unknown. 0 is what the C++ "
                           "unwinder writes if it knows none; if `file` is a shared library, it is "
                           "a byte offset in that library",
                           .is_nullable = true)),
};

const tsr_record tsr__fields_name = {
    .name = "Name",
    .about = "What the program called memory "
             "([categories.md](categories.md#names-given-by-the-program)).",
    .is_apart = true,
    TSR__FIELDS(
        TSR__FIELD(TEXT, "name",
                   "`h.0.attn.weight`, `exp_avg of h.0.attn.weight`, `layer 3`; at most 512 bytes"),
        TSR__FIELD(TEXT, "type", "`float32 [768, 3072]`; null if it is not known",
                   .is_nullable = true),
        TSR__FIELD(TEXT, "category", "the category that the name gives; null if it gives none",
                   .is_nullable = true),
        TSR__FIELD(
            BYTES, "bytes",
            "of a `sidecar` the size of the tensor, whose block may be larger and hold other "
            "tensors too; otherwise requested bytes of the allocations that have the name"),
        TSR__FIELD(COUNT, "allocations", "live allocations that have the name"),
        TSR__FIELD(
            TEXT, "source",
            "`sidecar`: a tensor of the sidecar, known for memory that lived until the "
            "snapshot; `annotation`: an `annotate` event of this allocation; `metadata`: the "
            "thread's `user_metadata` when it was allocated")),
};

const tsr_record tsr__fields_stack = {
    .name = "Stack",
    .about = "What one stack holds.",
    .is_apart = true,
    TSR__FIELDS(
        TSR__FIELD(BYTES, "bytes", "requested bytes"),
        TSR__FIELD(COUNT, "allocations", "live allocations with this stack"),
        TSR__FIELD(TEXT, "category",
                   "what it is for ([categories.md](categories.md)): `parameter` (and buffers), "
                   "`gradient` (of parameters), `optimizer_state`, `activation`, `recomputed`, "
                   "`temporary`, `input`, `communication`, `workspace`, `kv_cache`, `cast`, "
                   "`unknown`, or `buffer` if the program named it so; if there are several, the "
                   "one with the most bytes"),
        TSR__FIELD(TEXT, "phase",
                   "the phase in which the largest allocation of that category was made: "
                   "`unknown`, `setup`, `data`, `forward`, `recompute`, `backward`, `optimizer` or "
                   "`zero_grad`"),
        TSR__FIELD(TEXT, "evidence", "why it has that category, as a sentence without a full stop"),
        TSR__FIELD(TEXT, "confidence", "how certain that is: `none`, `guess`, `likely` or `sure`"),
        TSR__FIELD(MAP, "categories",
                   "bytes by category of everything that the stack allocated; they add up to "
                   "`bytes`"),
        TSR__NAME_FIELDS(
            "what the program called its memory, largest first; `[]` if it named nothing"),
        TSR__FIELD(FLAG, "before_recording",
                   "of memory without a stack: it is older than the recording",
                   .is_optional = true),
        TSR__FRAME_FIELDS(
            "the stack, innermost first; `[]` for memory whose stack was not recorded")),
};

static const tsr_record finding_option = {
    .name = "FindingOption",
    .about = "A change that makes parameters, gradients or optimizer state smaller.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "option",
                   "`fused_optimizer`, `8bit_optimizer` (more, if the state has 32 bits), "
                   "`factored_optimizer`, `offload_optimizer`, `zero1` and `fsdp` (on two GPUs), "
                   "`lora`, or `4bit_weights` (more, if the frozen ones have 32 bits)"),
        TSR__FIELD(BYTES, "saved_bytes", "about how much lower the peak of the trace would be")),
};

const tsr_record tsr__fields_finding = {
    .name = "Finding",
    .about = "What the program can change, and what that saves ([findings.md](findings.md)).",
    .is_apart = true,
    TSR__FIELDS(
        TSR__FIELD(
            TEXT, "rule",
            "`no_grad`, `checkpoint`, `attention`, `two_forwards`, `old_gradients`, `zero_grad`, "
            "`held_outputs`, `leak`, `states` or `cached`; the last comes last"),
        TSR__FIELD(BYTES, "bytes", "the memory that it is about; of `checkpoint`, of one block"),
        TSR__FIELD(BYTES, "saved_bytes",
                   "about how much lower the peak would be; of `cached`, reserved memory; of "
                   "`states`, with an 8-bit optimizer if there is one to change"),
        TSR__FIELD(COUNT, "count",
                   "`checkpoint`: blocks; `two_forwards`: passes that are alive; others: "
                   "allocations; null for `states` and `cached`",
                   .is_nullable = true),
        TSR__FIELD(EVENT, "event",
                   "the moment: the peak, or of `no_grad`, the end of that forward pass"),
        TSR__PART(tsr__fields_frame, "block", "of `checkpoint`, a line of the block's own code",
                  .is_nullable = true, .is_optional = true),
        TSR__FIELD(
            TEXT, "call",
            "of `checkpoint` and `attention`, how: by the library whose frames run the blocks",
            .is_optional = true),
        TSR__FIELD(BYTES, "step_bytes", "of `leak`, how much more in each step or iteration",
                   .is_optional = true),
        TSR__FIELD(BYTES, "parameter_bytes", "of `states`, parameters at the peak",
                   .is_optional = true),
        TSR__FIELD(BYTES, "gradient_bytes", "of `states`, gradients", .is_optional = true),
        TSR__FIELD(BYTES, "optimizer_state_bytes", "of `states`, the optimizer's state",
                   .is_optional = true),
        TSR__FIELD(BYTES, "copy_bytes",
                   "of `states`, temporaries of an optimizer's step that is the peak",
                   .is_optional = true),
        TSR__FIELD(BYTES, "peak_bytes", "of `states`, all that is requested at the peak",
                   .is_optional = true),
        TSR__LIST(finding_option, "options", "of `states`, what would save how much",
                  .is_optional = true),
        TSR__FIELD(TEXT, "settings",
                   "of `cached`, allocator settings that would have reserved less still, by "
                   "`whatif`",
                   .is_optional = true),
        TSR__FIELD(BYTES, "settings_saved_bytes", "by how much", .is_optional = true),
        TSR__PART(tsr__fields_frame, "frame",
                  "of `checkpoint`, the line that calls the block; of `attention`, a line of the "
                  "function",
                  .is_nullable = true),
        TSR__FRAME_FIELDS("the stack that allocated most of it")),
};

const tsr_record tsr__fields_imbalance = {
    .name = "Imbalance",
    .about = "GPUs that share the work and have very different peaks.",
    .is_apart = true,
    TSR__FIELDS(
        TSR__FIELD(DEVICE, "device", "the one with the highest peak"),
        TSR__FIELD(BYTES, "peak_bytes", "that peak: at least half more than the others' mean"),
        TSR__FIELD(DEVICE, "least_device", "the one with the lowest peak"),
        TSR__FIELD(BYTES, "least_peak_bytes", "its peak"),
        TSR__FIELD(BYTES, "mean_peak_bytes", "of all that are at work"),
        TSR__FIELD(COUNT, "devices_at_work",
                   "GPUs whose peak is a twentieth of the highest or more"),
        TSR__FIELD(FLAG, "data_parallel",
                   "nn.DataParallel, which gathers outputs on one device, is among the frames")),
};

const tsr_record tsr__fields_fragmentation = {
    .name = "Fragmentation",
    .about = "Reserved memory that holds no requested byte, by cause.",
    .is_apart = true,
    TSR__FIELDS(
        TSR__FIELD(BYTES, "rounding_bytes", "requests rounded up to the allocator's unit"),
        TSR__FIELD(BYTES, "unsplit_bytes", "tails of blocks that PyTorch does not split off"),
        TSR__FIELD(BYTES, "waiting_bytes",
                   "blocks freed but waiting for another stream (`requested_bytes` still includes "
                   "their requests)"),
        TSR__FIELD(BYTES, "free_block_bytes", "free blocks in segments that are in use"),
        TSR__FIELD(BYTES, "free_segment_bytes",
                   "segments that are entirely free: what `empty_cache()` would release"),
        TSR__FIELD(BYTES, "largest_free_bytes",
                   "the largest free block: a larger request needs a new segment")),
};

const tsr_record tsr__fields_private_pool = {
    .name = "PrivatePool",
    .about = "What the pool of a CUDA graph or a MemPool keeps on a stream.",
    .is_apart = true,
    TSR__FIELDS(TSR__FIELD(PAIR, "pool", "its id, as in the file"),
                TSR__FIELD(COUNT, "stream", "the handle of the stream"),
                TSR__FIELD(BYTES, "active_bytes", "of the blocks in use"),
                TSR__FIELD(BYTES, "reserved_bytes", "of its segments"),
                TSR__FIELD(BYTES, "high_water_bytes",
                           "the most that was reserved in the trace up to that moment")),
};

const tsr_record tsr__fields_stop = {
    .name = "StepsOutOfMemory",
    .about = "Where memory ran out for good.",
    .is_apart = true,
    TSR__FIELDS(TSR__FIELD(EVENT, "event", "the oom event, as in `why`"),
                TSR__FIELD(TEXT, "phase", "the phase in which it happened"),
                TSR__FIELD(COUNT, "step",
                           "the step, from 1, as `steps` counts; null if it is in none, or if the "
                           "trace does not show which",
                           .is_nullable = true),
                TSR__FIELD(COUNT, "pass", "forward passes that had begun, this one included"),
                TSR__FIELD(BYTES, "allocated_bytes", "allocated at that moment")),
};

const tsr_record tsr__fields_moment_of_totals = {
    .name = "WhyMoment",
    .about = "The moment that the answer is about.",
    TSR__FIELDS(TSR__FIELD(EVENT, "event", "the event; -1 is before the first"),
                TSR__FIELD(TIME, "time_us", "its time", .is_nullable = true),
                TSR__PART(tsr__fields_totals, "totals", "the totals after it")),
};

const tsr_record tsr__fields_held = {
    .name = "ProfilePeak",
    .about = "The moment for which groups or lines are listed.",
    TSR__FIELDS(TSR__FIELD(EVENT, "event", "the event; -1 is before the first"),
                TSR__FIELD(TIME, "time_us", "its time", .is_nullable = true),
                TSR__FIELD(BYTES, "requested_bytes",
                           "requested bytes live at that event that count; what is listed and what "
                           "is omitted add up to it"),
                TSR__FIELD(BYTES, "allocated_bytes",
                           "everything allocated at that event, including memory from before the "
                           "recording")),
};
