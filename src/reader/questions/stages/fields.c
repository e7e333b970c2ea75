/* fields.c - what the answer of "stages" has. */
#include "questions/shared/fields.h"

static const tsr_record place = {
    .name = "StagePlace",
    .about = "A stage, by its number and name.",
    TSR__FIELDS(TSR__FIELD(COUNT, "id", "its number, as in `stages`"),
                TSR__FIELD(TEXT, "name", "the annotation's name"),
                TSR__FIELD(COUNT, "repetition", "its number among the stages of this name")),
};

static const tsr_record stage = {
    .name = "Stage",
    .about = "An annotated range, and the highest moment in it.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "name", "the annotation's name"),
        TSR__FIELD(COUNT, "id", "from 0, in the order in which stages begin"),
        TSR__FIELD(COUNT, "parent", "`id` of the innermost stage around it", .is_nullable = true),
        TSR__FIELD(COUNT, "depth", "how many stages are around it"),
        TSR__FIELD(COUNT, "repetition", "its number among the stages of this name, from 1"),
        TSR__FIELD(COUNT, "repetitions", "how many stages have this name"),
        TSR__FIELD(COUNT, "annotation_device",
                   "the current device of the thread that recorded it; not where memory was used"),
        TSR__FIELD(FLAG, "start_recorded", "the file has the annotation that starts it"),
        TSR__FIELD(FLAG, "end_recorded", "and the one that ends it"),
        TSR__PART(tsr__fields_moment, "start",
                  "the last event up to its start, and the totals then; `time_us` is that of the "
                  "annotation, null if it was not recorded; then the totals are those of the "
                  "beginning of "
                  "the trace, and what the stage had before is not known"),
        TSR__PART(tsr__fields_moment, "end", "the same at its end"),
        TSR__PART(tsr__fields_moment, "peak",
                  "the first event from `start` to `end` after which most is allocated; of a stage "
                  "whose start is not recorded, among the events of the trace"),
        TSR__FIELD(
            DELTA, "delta_bytes",
            "allocated at `end` less allocated at `start`; null if the start is not recorded",
            .is_nullable = true)),
};

static const tsr_record group = {
    .name = "StageGroup",
    .about = "Stages of one name.",
    TSR__FIELDS(TSR__FIELD(TEXT, "name", "the name, with `*` for numbers that differ"),
                TSR__FIELD(COUNT, "stages", "number of stages"),
                TSR__FIELD(COUNT, "depth", "groups around it"),
                TSR__PART(stage, "highest",
                          "the stage with the highest peak, the first if several; as in `stages`")),
};

static const tsr_record device = {
    .name = "StagesDevice",
    .about = "How high a device's memory went in each stage.",
    .base = &tsr__fields_device,
    TSR__FIELDS(
        TSR__PART(tsr__fields_moment, "peak", "the peak of the whole trace"),
        TSR__LIST(place, "peak_stages",
                  "the stages that contain it, outermost first; `[]` if none does"),
        TSR__LIST(stage, "stages",
                  "in the order in which they begin; with `--top` the highest ones, each with the "
                  "stages around it"),
        TSR__FIELD(COUNT, "omitted_stages", "stages omitted by `--top`"),
        TSR__LIST(group, "groups",
                  "stages with the same name, ignoring numbers in it, within the same outer group; "
                  "each listed before those inside it"),
        TSR__FIELD(COUNT, "omitted_groups", "groups omitted by `--top`")),
};

const tsr_record tsr__fields_stages = {
    .name = "stages",
    .about = "How high memory went in each stage.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(TSR__LIST(device, "devices", "one for each device")),
};
