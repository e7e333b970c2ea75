/* fields.c - what the answer of "at" has. */
#include "questions/shared/fields.h"

static const tsr_record device = {
    .name = "AtDevice",
    .about = "What held the memory of a device at a moment.",
    .base = &tsr__fields_device,
    TSR__FIELDS(TSR__FIELD(EVENT, "event", "the state after this event; -1: before the first"),
                TSR__FIELD(TIME, "time_us", "its time", .is_nullable = true),
                TSR__FIELD(BYTES, "requested_bytes", "the four totals, as in [Totals](#totals)"),
                TSR__FIELD(BYTES, "allocated_bytes", "blocks, rounding included"),
                TSR__FIELD(BYTES, "active_bytes", "and those that wait for another stream"),
                TSR__FIELD(BYTES, "reserved_bytes", "segments"),
                TSR__FIELD(COUNT, "live_allocations", "allocations that are active"),
                TSR__PART(tsr__fields_fragmentation, "fragmentation", "at that moment"),
                TSR__LIST(tsr__fields_private_pool, "private_pools",
                          "what private pools keep then; `[]` without any"),
                TSR__STACK_FIELDS("what was live then, by stack, largest first")),
};

const tsr_record tsr__fields_at = {
    .name = "at",
    .about = "What held the memory at a moment.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(TSR__LIST(device, "devices", "one for each device whose trace has the moment")),
};
