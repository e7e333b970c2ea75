/* fields.c - what the answer of "card" has. */
#include "questions/shared/fields.h"
#include "questions/card/card.h"

static const tsr_record part = {
    .name = "CardPart",
    .about = "Who holds a part of the card's used memory.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "name", "for people: `allocated by PyTorch`, `NCCL group dp (0)`"),
        TSR__FIELD(DELTA, "bytes",
                   "how much; negative for `counted_twice` alone, which makes the sum right"),
        TSR__FIELD(TEXT, "kind",
                   "`allocated` and `cached` by PyTorch, `context`, `library`, `communicator`, "
                   "`driver`, `process` (another one), `unaccounted_here` (what NVML "
                   "counts for this process beyond its parts), `unaccounted`, `counted_twice`"),
        TSR__FIELD(COUNT, "holder", "whose it is, an index of `holders`; null if of none of them",
                   .is_nullable = true),
        TSR__FIELD(COUNT, "pid", "of another process", .is_nullable = true),
        TSR__FIELD(TEXT, "group", "of a communicator: its name", .is_nullable = true),
        TSR__FIELD(
            TEXT, "from",
            "how it was measured: `stats` (the library's own count), `nvml`, `first_use` and "
            "`first_collective` (growth of the card's used memory around it); null for a "
            "counter of PyTorch or a difference",
            .is_nullable = true)),
};

static const tsr_record moment = {
    .name = "CardMoment",
    .about = "The card at one sample.",
    TSR__FIELDS(
        TSR__FIELD(TIME, "time_us", "the sample's time", .is_nullable = true),
        TSR__FIELD(TEXT, "mark", "why it was taken; null: by the timer", .is_nullable = true),
        TSR__FIELD(BYTES, "used_bytes", "used on the whole card"),
        TSR__LIST(part, "parts", "they sum to `used_bytes`")),
};

static const tsr_record grown = {
    .name = "CardGrowth",
    .about = "A part outside PyTorch that is larger at the end than at `early`.",
    TSR__FIELDS(TSR__FIELD(TEXT, "name", "as in `parts`"), TSR__FIELD(TEXT, "kind", "likewise"),
                TSR__FIELD(BYTES, "bytes", "by how much"),
                TSR__FIELD(FLAG, "steady", "it grew in each quarter of that time")),
};

static const tsr_record holder = {
    .name = "CardHolder",
    .about = "A process whose file was given.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "path", "its file"),
        TSR__FIELD(COUNT, "pid", "its number, by the sidecar", .is_nullable = true),
        TSR__FIELD(TEXT, "host", "its machine", .is_nullable = true),
        TSR__FIELD(COUNT, "rank", "its rank, by the sidecar or the file's name",
                   .is_nullable = true),
        TSR__FIELD(COUNT, "device", "the number that it gives the card"),
        TSR__FIELD(BYTES, "asleep_bytes",
                   "of what PyTorch has reserved at the peak: in sleeping pools, and not on the "
                   "card"),
        TSR__FIELD(BYTES, "private_pool_bytes", "of the same: in private pools",
                   .is_nullable = true),
        TSR__FIELD(BYTES, "peak_bytes",
                   "with several processes: the most that it held by itself, and when it did not "
                   "matter",
                   .is_optional = true),
        TSR__FIELD(BYTES, "together_bytes",
                   "with several processes: what it held when all together held most",
                   .is_optional = true)),
};

static const tsr_record phase = {
    .name = "CardPhase",
    .about = "What a process does, by its own name for it, and what that needs of the others.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "name", "the outermost range, as `record.phase` names it"),
        TSR__FIELD(COUNT, "holder", "whose, an index of `holders`"),
        TSR__FIELD(COUNT, "times", "how often it was recorded"),
        TSR__FIELD(TIME, "time_us", "when the one began before which the others held most"),
        TSR__FIELD(BYTES, "needs_bytes",
                   "the most that its process held in it, with what was missing if it ran out of "
                   "memory"),
        TSR__FIELD(BYTES, "missing_bytes", "what was missing; 0 if it never ran out in it"),
        TSR__FIELD(BYTES, "sum_bytes", "the most that all held in it together"),
        TSR__FIELD(BYTES, "others_bytes", "what the others held then"),
        TSR__FIELD(BYTES, "room_bytes",
                   "what the others can hold beside it: the card, less `needs_bytes` and what is "
                   "nobody's among them; null if the card's size is not known",
                   .is_nullable = true),
        TSR__FIELD(
            BYTES, "before_bytes",
            "the most that the others held since this phase, or the recording, began before"),
        TSR__FIELD(BYTES, "start_bytes", "what they held when it began"),
        TSR__FIELD(BYTES, "release_bytes",
                   "`before_bytes` less `room_bytes`: what they must have released when it begins"),
        TSR__FIELD(COUNT, "releaser", "which of them held most before; null: none",
                   .is_nullable = true)),
};

static const tsr_record host = {
    .name = "CardHost",
    .about = "Memory of the machine that the process used.",
    TSR__FIELDS(
        TSR__FIELD(BYTES, "peak_resident_bytes", "the most that was resident", .is_nullable = true),
        TSR__FIELD(BYTES, "end_resident_bytes", "resident at the end", .is_nullable = true),
        TSR__FIELD(BYTES, "pinned_bytes", "pinned by PyTorch", .is_nullable = true),
        TSR__FIELD(BYTES, "limit_bytes", "the most that it may have", .is_nullable = true),
        TSR__FIELD(TEXT, "limit_from", "what sets the limit: `cgroup`", .is_nullable = true)),
};

static const tsr_record recording = {
    .name = "CardRecording",
    .about = "How the ledger was recorded.",
    TSR__FIELDS(
        TSR__FIELD(COUNT, "samples", "samples that the files have of this card"),
        TSR__FIELD(COUNT, "samples_taken", "samples that were taken", .is_nullable = true),
        TSR__FIELD(COUNT, "period_ms", "of the timer; null: only at marks", .is_nullable = true),
        TSR__FIELD(DURATION, "sampling_us", "how long taking them took, in all",
                   .is_nullable = true),
        TSR__FIELD(DURATION, "step_us", "the median time of a step", .is_nullable = true),
        TSR__FIELD(TEXT, "nvml", "the version of the driver's library that lists processes",
                   .is_nullable = true),
        TSR__FIELD(TEXT, "nvml_error", "why it could not be asked", .is_nullable = true),
        TSR__FIELD(TEXT, "notes", "what the recorder could not know, and why", .is_list = true)),
};

static const tsr_record device = {
    .name = "CardDevice",
    .about = "A card, and who holds its memory when most of it is used.",
    TSR__FIELDS(
        TSR__FIELD(DEVICE, "device", "the number that the first process gives it"),
        TSR__FIELD(TEXT, "name", "the card's name", .is_nullable = true),
        TSR__FIELD(TEXT, "uuid", "its UUID", .is_nullable = true),
        TSR__FIELD(
            TEXT, "source",
            "`ledger`; `sidecar`: an older one, which only says how much is not PyTorch's at "
            "the end; `nothing`: the parts are what PyTorch has at the end"),
        TSR__FIELD(BYTES, "total_bytes", "the card's memory", .is_nullable = true),
        TSR__FIELD(BYTES, "used_bytes", "the most that was used of it, by all; null if not known",
                   .is_nullable = true),
        TSR__FIELD(TIME, "time_us", "when", .is_nullable = true),
        TSR__FIELD(TEXT, "mark", "what happened then; null: the timer's sample",
                   .is_nullable = true),
        TSR__LIST(part, "parts", "who held it; they sum to `used_bytes`"),
        TSR__FIELD(TEXT, "overlap",
                   "why parts have bytes in common: `none`, `moments` (samples of different "
                   "moments), `first_use` (growth around a first use, where others grew too), "
                   "`counters` (read one after another)"),
        TSR__FIELD(DURATION, "stale_us",
                   "how much older than the peak the oldest sample among its parts is"),
        TSR__PART(moment, "end", "the last sample", .is_nullable = true),
        TSR__PART(moment, "early",
                  "what growth is counted from: the beginning of the second step, or else a "
                  "quarter of the time",
                  .is_nullable = true),
        TSR__PART(moment, "at", "the time that was asked for", .is_nullable = true),
        TSR__LIST(grown, "growth", "what grew outside PyTorch, most first"),
        TSR__LIST(holder, "holders", "the processes on this card whose files were given"),
        TSR__FIELD(BYTES, "together_bytes",
                   "with several processes: the most that they held at one time",
                   .is_optional = true),
        TSR__FIELD(TIME, "together_time_us", "with several processes: when", .is_nullable = true,
                   .is_optional = true),
        TSR__FIELD(BYTES, "sum_of_peaks_bytes",
                   "with several processes: what each held at most, added up", .is_optional = true),
        TSR__LIST(phase, "phases",
                  "with several processes: what they did, in the order of `time_us`",
                  .is_optional = true),
        TSR__PART(host, "host", "of the first process"),
        TSR__PART(recording, "recording", "how it was recorded; null without a ledger",
                  .is_nullable = true)),
};

static const tsr_record apart = {
    .name = "CardApart",
    .about = "A card on which something takes far more than on the others.",
    TSR__FIELDS(TSR__FIELD(COUNT, "card", "an index of `devices`"),
                TSR__FIELD(COUNT, "rank", "the rank of its process", .is_nullable = true),
                TSR__FIELD(TEXT, "path", "its file"), TSR__FIELD(TEXT, "kind", "as in `parts`"),
                TSR__FIELD(BYTES, "bytes", "what all parts of that kind take there"),
                TSR__FIELD(BYTES, "others_bytes", "the most that they take elsewhere")),
};

static const tsr_record broken = {
    .name = "CardBroken",
    .about = "A file that could not be read.",
    TSR__FIELDS(TSR__FIELD(TEXT, "path", "the file"), TSR__FIELD(TEXT, "message", "why")),
};

const tsr_record tsr__fields_card = {
    .name = "card",
    .about = "What is on the card.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(TSR__FIELD(COUNT, "files", "files that were found"),
                TSR__LIST(apart, "apart",
                          "of three cards or more: those on which something takes far more than on "
                          "the others, most first"),
                TSR__LIST(broken, "broken", "files that could not be read, of several"),
                TSR__LIST(device, "devices", "one for each card")),
};
