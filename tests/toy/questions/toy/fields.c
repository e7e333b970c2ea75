/* fields.c - what the answer of "toy" has. */
#include "toy.h"

const tsr_record tsr__fields_toy = {
    .name = "toy",
    .about = "How often something happens.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(TSR__LIST(tsr__fields_device, "devices", "one for each device")),
};
