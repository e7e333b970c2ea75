/* fields.c - what the answer of "pools" has. */
#include "questions/shared/fields.h"

static const tsr_record sums = {
    .name = "PoolSums",
    .about = "Reserved memory, which the other four add up to.",
    TSR__FIELDS(
        TSR__FIELD(BYTES, "reserved_bytes", "of segments"),
        TSR__FIELD(BYTES, "used_bytes",
                   "of live blocks, with their rounding and the tails that are not split off"),
        TSR__FIELD(BYTES, "pinned_bytes",
                   "free, in a segment (of expandable memory: a page) in which a block is live"),
        TSR__FIELD(BYTES, "releasable_bytes",
                   "free segments and pages, which `empty_cache()` releases, and PyTorch itself "
                   "before it runs out of memory"),
        TSR__FIELD(BYTES, "kept_bytes",
                   "free in private pools, which release nothing as long as they have users")),
};

#define POOL_FIELDS                                                 \
  TSR__FIELD(PAIR, "pool", "its id; `[0, 0]` is the default pool"), \
      TSR__FIELD(COUNT, "stream", "the handle of the stream"),      \
      TSR__FIELD(TEXT, "size", "`large` or `small`: the requests it is for")

static const tsr_record pool = {
    .name = "Pool",
    .about = "Blocks that serve each other's requests: of one id, one stream and one size class.",
    .base = &sums,
    TSR__FIELDS(
        POOL_FIELDS,
        TSR__FIELD(
            TEXT, "kind",
            "`default`; `graph`, of CUDA graphs: by its id, or because a stack in it shows a "
            "capture; or `handle`, of a MemPool or of "
            "`torch.cuda.graph_pool_handle()`, which the file does not tell apart"),
        TSR__FIELD(COUNT, "segments", "segments, or ranges of expandable memory, at the moment"),
        TSR__FIELD(BYTES, "end_reserved_bytes", "reserved after the last event"),
        TSR__FIELD(BYTES, "end_used_bytes", "of blocks that are live then"),
        TSR__FIELD(BYTES, "most_reserved_bytes", "the most that was reserved in the trace"),
        TSR__FIELD(EVENT, "most_reserved_event", "the first event after which that was so"),
        TSR__FIELD(BYTES, "most_used_bytes", "the most that its live blocks had, at any event"),
        TSR__FRAME_FIELDS("the stack of its first allocation in the trace; without one, of its "
                          "largest block from before; `[]` if none is recorded")),
};

static const tsr_record holder = {
    .name = "PoolHolder",
    .about = "Live blocks of one stack in a pool, in segments that are free in part.",
    TSR__FIELDS(
        POOL_FIELDS,
        TSR__FIELD(COUNT, "segments",
                   "segments, or pages of expandable memory, in which nothing else is live"),
        TSR__FIELD(BYTES, "segment_bytes", "their bytes"),
        TSR__FIELD(BYTES, "free_bytes", "what is free of these: pinned by this stack alone"),
        TSR__FIELD(COUNT, "blocks", "blocks of the stack in them"),
        TSR__FIELD(BYTES, "block_bytes", "bytes of these blocks"),
        TSR__FIELD(COUNT, "shared_segments",
                   "segments that are free in part and that other stacks have blocks in, too"),
        TSR__FIELD(BYTES, "shared_free_bytes", "what is free of those"),
        TSR__FRAME_FIELDS("the stack; `[]` if it is not recorded")),
};

static const tsr_record segment = {
    .name = "PinnedSegment",
    .about = "A segment that is free in part.",
    TSR__FIELDS(
        TSR__FIELD(COUNT, "address", "where it begins"),
        TSR__FIELD(BYTES, "size_bytes", "its bytes"),
        TSR__FIELD(BYTES, "free_bytes", "what is free of these"), POOL_FIELDS,
        TSR__FIELD(FLAG, "page", "it is a page of expandable memory"),
        TSR__FIELD(COUNT, "blocks", "live blocks in it"),
        TSR__FIELD(BYTES, "block_bytes", "their bytes; a page may hold only a part of a block"),
        TSR__FIELD(COUNT, "stacks", "stacks that these blocks are of"),
        TSR__FRAME_FIELDS("the stack of the largest; `[]` if it is not recorded")),
};

static const tsr_record pool_then = {
    .name = "PoolThen",
    .about = "What a pool held at another moment.",
    .base = &sums,
    TSR__FIELDS(POOL_FIELDS),
};

static const tsr_record moment = {
    .name = "PoolMoment",
    .about = "Another moment: a step's end, or where most was free in a phase.",
    .base = &sums,
    TSR__FIELDS(
        TSR__FIELD(TEXT, "at",
                   "`phase`: the first event of all in its phase after which most of what is "
                   "reserved is not in use; `step_end`"),
        TSR__FIELD(COUNT, "step", "of a step's end: its number, as `steps` counts",
                   .is_optional = true),
        TSR__FIELD(TEXT, "phase", "the phase of the event"),
        TSR__FIELD(EVENT, "event", "the event"),
        TSR__FIELD(TIME, "time_us", "its time", .is_nullable = true),
        TSR__LIST(pool_then, "pools",
                  "what each pool held then; those that held nothing are omitted"),
        TSR__PART(holder, "holder",
                  "the stack of the default pools that alone kept most free memory pinned; null if "
                  "none did",
                  .is_nullable = true)),
};

static const tsr_record trial = {
    .name = "PoolTrial",
    .about = "The trace with other pools, repeated on the model of the allocator.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "pools",
                   "`shared`: all private pools are one, as graphs can share if they are replayed "
                   "in the order of their captures; `none`: there are no private pools; `without`: "
                   "all but one"),
        TSR__FIELD(PAIR, "pool", "of `without`, that one", .is_optional = true),
        TSR__FIELD(BYTES, "peak_reserved_bytes", "the most that is reserved"),
        TSR__FIELD(
            FLAG, "at_least",
            "replays of a graph that has no pool would allocate, too, and the trace does not "
            "show how much: the figure is a lower bound"),
        TSR__FIELD(FLAG, "given_up", "as in `whatif`")),
};

static const tsr_record device = {
    .name = "PoolsDevice",
    .about = "The pools of a device.",
    .base = &tsr__fields_device,
    TSR__FIELDS(
        TSR__FIELD(TEXT, "reason",
                   "what the moment is: `out_of_memory`, where memory ran out for good; otherwise "
                   "`peak`, where most is reserved, as `why` chooses it; or `event`, as asked"),
        TSR__PART(tsr__fields_moment, "moment", "the moment, and the totals then"),
        TSR__PART(sums, "sums", "what is reserved then, of all pools"),
        TSR__FIELD(BYTES, "card_bytes",
                   "the card's memory, by the sidecar; null if it is not known. More can be "
                   "reserved, if some of it is managed memory (`torch.cuda._use_uvm()`), which is "
                   "paged to the host",
                   .is_nullable = true),
        TSR__LIST(pool, "pools", "what each pool holds then; the default pool first"),
        TSR__LIST(holder, "holders",
                  "who keeps free memory pinned then; those that alone keep most first"),
        TSR__FIELD(COUNT, "omitted_holders", "holders omitted by `--top`"),
        TSR__FIELD(BYTES, "omitted_holder_bytes", "what these alone keep"),
        TSR__LIST(segment, "segments", "segments that are free in part then, most free first"),
        TSR__FIELD(COUNT, "omitted_segments", "segments omitted by `--top`"),
        TSR__FIELD(BYTES, "omitted_segment_bytes", "what is free in these"),
        TSR__LIST(moment, "moments", "the worst moment of each phase, and ends of steps"),
        TSR__FIELD(COUNT, "omitted_step_ends",
                   "ends of steps that were not measured: of many, 64 are, evenly chosen"),
        TSR__FIELD(BYTES, "recorded_peak_reserved_bytes",
                   "the most that was reserved in the trace, to compare `trials` with"),
        TSR__LIST(trial, "trials",
                  "what other pools would reserve; `[]` without private pools, and where `whatif` "
                  "has nothing to compare with")),
};

const tsr_record tsr__fields_pools = {
    .name = "pools",
    .about = "Which pools reserved memory is in, and what keeps it there.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(TSR__LIST(device, "devices", "one for each GPU")),
};
