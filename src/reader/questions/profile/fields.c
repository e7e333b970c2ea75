/* fields.c - what the answer of "profile" has. */
#include "questions/shared/fields.h"

static const tsr_record trace = {
    .name = "GroupTrace",
    .about = "A group over the whole trace.",
    TSR__FIELDS(TSR__FIELD(COUNT, "allocations", "allocations in the whole trace"),
                TSR__FIELD(BYTES, "bytes", "the sum of their sizes"),
                TSR__FIELD(BYTES, "largest_bytes", "the largest of them"),
                TSR__FIELD(COUNT, "freed", "those both allocated and freed in the trace"),
                TSR__FIELD(COUNT, "mean_life_events",
                           "the mean lifetime of those; null if none was freed",
                           .is_nullable = true),
                TSR__FIELD(DURATION, "mean_life_us",
                           "the same as time; null if none was freed, or without times",
                           .is_nullable = true)),
};

static const tsr_record reason = {
    .name = "Reason",
    .about = "Why memory is in its category.",
    TSR__FIELDS(TSR__FIELD(TEXT, "phase", "the phase in which it was allocated"),
                TSR__FIELD(TEXT, "evidence", "why, as a sentence without a full stop"),
                TSR__FIELD(TEXT, "confidence",
                           "how certain that is: `none`, `guess`, `likely` or "
                           "`sure`"),
                TSR__FIELD(BYTES, "bytes", "of the memory that is in the group for this reason"),
                TSR__FIELD(COUNT, "allocations", "its live allocations")),
};

static const tsr_record later_group = {
    .name = "LaterGroup",
    .about = "A group that holds nothing up to the peak.",
    TSR__FIELDS(TSR__FIELD(TEXT, "name", "the group, as in `groups`"),
                TSR__FIELD(BYTES, "peak_bytes", "the most it holds at any event"),
                TSR__FIELD(EVENT, "peak_event", "the first such event"),
                TSR__FIELD(EVENT, "first_event",
                           "its first allocation; -1: it existed before the first event"),
                TSR__PART(trace, "trace", "over the whole trace, as in `groups`")),
};

static const tsr_record group = {
    .name = "Group",
    .about = "A group of allocations, at the peak and at its own highest.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "name", "the group, see [Names of groups](#names-of-groups)"),
        TSR__FIELD(BYTES, "bytes",
                   "requested bytes live at the peak; 0 for a group that was live at other moments "
                   "only"),
        TSR__FIELD(COUNT, "allocations", "live allocations at the peak"),
        TSR__FIELD(BYTES, "peak_bytes", "the most it holds at any event"),
        TSR__FIELD(EVENT, "peak_event", "the first such event"),
        TSR__FIELD(EVENT, "first_event",
                   "its first allocation; -1: it existed before the first event"),
        TSR__PART(trace, "trace", "over the whole trace"),
        TSR__LIST(reason, "reasons",
                  "with `--by category`: why the memory live at the peak is in the group, largest "
                  "first",
                  .is_optional = true),
        TSR__LIST(tsr__fields_frame, "frames", "with `--by stack`: innermost first",
                  .is_optional = true),
        TSR__FIELD(COUNT, "folded_frames", NULL, .is_optional = true)),
};

static const tsr_record layer = {
    .name = "Layer",
    .about = "A band of allocations of one group, one after another.",
    TSR__FIELDS(TSR__FIELD(TEXT, "name", "the group"),
                TSR__FIELD(BYTES, "bytes", "requested bytes at the peak"),
                TSR__FIELD(COUNT, "allocations", "live allocations at the peak"),
                TSR__FIELD(EVENT, "birth_event", "the event that started the band")),
};

static const tsr_record history_group = {
    .name = "HistoryGroup",
    .about = "A group of a history; the last combines those that are not listed, and has no name.",
    TSR__FIELDS(TSR__FIELD(TEXT, "name", "null for the last one, which combines all others",
                           .is_nullable = true),
                TSR__FIELD(COUNT, "groups", "number of groups in it: 1, or more for the last"),
                TSR__FIELD(BYTES, "peak_bytes",
                           "the most it holds at any event; of the last, its largest group"),
                TSR__FIELD(EVENT, "peak_event", "the first such event")),
};

static const tsr_record band = {
    .name = "HistoryBand",
    .about = "A band that moments refer to.",
    TSR__FIELDS(TSR__FIELD(COUNT, "group", "index in `history.groups`"),
                TSR__FIELD(EVENT, "birth_event", "the event that started it"),
                TSR__FIELD(EVENT, "death_event",
                           "the event at which it ended or merged into the band below; null if it "
                           "did not",
                           .is_nullable = true),
                TSR__FIELD(BYTES, "peak_bytes", "the most it holds at any event")),
};

static const tsr_record moment = {
    .name = "HistoryMoment",
    .about = "What groups hold after an event.",
    TSR__FIELDS(
        TSR__FIELD(EVENT, "event", "the moment after this event"),
        TSR__FIELD(TIME, "time_us", "its time", .is_nullable = true),
        TSR__FIELD(BYTES, "requested_bytes", "requested bytes live then that count"),
        TSR__FIELD(BYTES, "older_bytes",
                   "requested bytes live then that do not count, because they are from before the "
                   "recording"),
        TSR__FIELD(PAIR, "groups",
                   "`[group, bytes]` of the groups that are not empty; they add up to "
                   "`requested_bytes`",
                   .is_list = true),
        TSR__FIELD(
            PAIR, "bands",
            "with `--ordered`: `[band, bytes]`, bottom first, which add up to "
            "`requested_bytes`; band -1: neighbours too thin to distinguish (below 1/2048 of "
            "the peak, or more if there are very many)",
            .is_list = true, .is_optional = true)),
};

static const tsr_record history = {
    .name = "History",
    .about = "Groups over time.",
    .is_apart = true,
    TSR__FIELDS(
        TSR__LIST(history_group, "groups",
                  "the 20 groups with the highest peaks, then one that combines all others"),
        TSR__LIST(band, "bands", "with `--ordered`: the bands that moments refer to",
                  .is_optional = true),
        TSR__LIST(moment, "moments", "by event")),
};

static const tsr_record device = {
    .name = "ProfileDevice",
    .about = "A device's memory by group.",
    .base = &tsr__fields_device,
    TSR__FIELDS(
        TSR__FIELD(TEXT, "by", "what the groups are, see above"),
        TSR__PART(tsr__fields_held, "peak", "the event for which groups are listed"),
        TSR__LIST(group, "groups", "groups that occur up to the peak, those largest at it first"),
        TSR__FIELD(COUNT, "omitted_groups", "groups omitted by `--top`"),
        TSR__FIELD(BYTES, "omitted_bytes", "their bytes"),
        TSR__LIST(later_group, "later_groups",
                  "groups that hold nothing up to the peak, largest maximum first"),
        TSR__FIELD(COUNT, "omitted_later_groups", "of these, omitted by `--top`"),
        TSR__LIST(
            layer, "layers",
            "with `--ordered`: the bands at the peak, bottom first; with `--top`, the largest "
            "ones in that order",
            .is_optional = true),
        TSR__FIELD(COUNT, "omitted_layers", "bands omitted by `--top`", .is_optional = true),
        TSR__FIELD(BYTES, "omitted_layer_bytes", "their bytes", .is_optional = true),
        TSR__PART(history, "history", "with `--over-time`", .is_optional = true)),
};

const tsr_record tsr__fields_profile = {
    .name = "profile",
    .about = "Memory by group.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(TSR__LIST(device, "devices", "one for each device")),
};
