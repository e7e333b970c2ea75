/* schema.c - the relations and their columns, each declared once: name, type, access, what it needs, and what it means.
 *
 * The documentation (docs/sql.md), `.schema` and the virtual tables of `tessera sql` read these rows. The order of columns is that
 * of the enumerations in columns.h, by which values.c finds them. */
#include <assert.h>
#include <string.h>

#include "tables/columns.h"
#include "tables/relations.h"

#define COLUMN_NAME(id, name, type, access, domain, needs, help) \
  {name, help, TSR_RELATION_##type, TSR_ACCESS_##access},
#define COLUMN_EXTRA(id, name, type, access, domain, needs, help) {(needs), TSR__DOMAIN_##domain},

#define RELATION(lower, UPPER)                                                                 \
  static const tsr_relation_column lower##_columns[] = {TSR__COLUMNS_OF_##UPPER(COLUMN_NAME)}; \
  static const tsr__relation_extra lower##_extras[] = {TSR__COLUMNS_OF_##UPPER(COLUMN_EXTRA)}; \
  static_assert(sizeof lower##_extras / sizeof *lower##_extras <= TSR_RELATION_COLUMNS,        \
                "a bit each");

RELATION(device, DEVICES)
RELATION(event, EVENTS)
RELATION(allocation, ALLOCATIONS)
RELATION(stack, STACKS)
RELATION(frame, FRAMES)
RELATION(segment, SEGMENTS)
RELATION(block, BLOCKS)
RELATION(span, SPANS)
RELATION(step, STEPS)
RELATION(annotation, ANNOTATIONS)
RELATION(rank, RANKS)
RELATION(outlier, OUTLIERS)
RELATION(change, CHANGES)

#define COLUMNS(lower) \
  .columns = lower##_columns, .column_count = sizeof lower##_columns / sizeof *lower##_columns

static const tsr_relation relations[] = {
    [TSR__DEVICES] = {"devices", "Each device, with its peaks.", "device", COLUMNS(device)},
    [TSR__EVENTS] = {"events",
                     "The trace: each recorded allocator event, with the totals after it.",
                     "device, event", COLUMNS(event)},
    [TSR__ALLOCATIONS] =
        {"allocations",
         "Each allocation from its alloc to its free, also those from before the first event.",
         "device, allocation", COLUMNS(allocation)},
    [TSR__STACKS] = {"stacks", "Each distinct call stack.", "stack", COLUMNS(stack)},
    [TSR__FRAMES] = {"frames", "The frames of each stack.", "stack, depth", COLUMNS(frame)},
    [TSR__SEGMENTS] = {"segments", "The segments at the end, as the file has them.",
                       "device, segment", COLUMNS(segment)},
    [TSR__BLOCKS] = {"blocks", "The blocks of these segments.", "device, block", COLUMNS(block)},
    [TSR__SPANS] = {"spans",
                    "Reserved memory over time: each segment, or range that is mapped without a "
                    "gap, while it had one size.",
                    "device, span", COLUMNS(span)},
    [TSR__STEPS] = {"steps", "The steps of the training loop, or the iterations of another loop.",
                    "device, step", COLUMNS(step)},
    [TSR__ANNOTATIONS] = {"annotations",
                          "What the program recorded: each START and END of a named range.",
                          "device, annotation", COLUMNS(annotation)},
    [TSR__RANKS] = {"ranks", "Over a folder: each device of each rank, by its last snapshot.",
                    "rank, device", COLUMNS(rank)},
    [TSR__OUTLIERS] = {"outliers", "Over a folder: ranks that hold more than their equals.",
                       "outlier", COLUMNS(outlier)},
    [TSR__CHANGES] = {"changes",
                      "Over a folder: what an outlier holds more, or less, by category and stack.",
                      "outlier, change", COLUMNS(change)},
};

static const tsr__relation_extra *const extras[] = {
    device_extras,  event_extras,   allocation_extras, stack_extras, frame_extras,
    segment_extras, block_extras,   span_extras,       step_extras,  annotation_extras,
    rank_extras,    outlier_extras, change_extras};

size_t tsr_relation_count(void) {
  return TSR__RELATION_COUNT;
}

const tsr_relation *tsr_relation_at(size_t index) {
  assert(index < TSR__RELATION_COUNT);
  return &relations[index];
}

size_t tsr_relation_find(const char *name) {
  size_t i = 0;
  while (i < TSR__RELATION_COUNT && strcmp(relations[i].name, name) != 0) i++;
  return i;
}

const tsr__relation_extra *tsr__relation_extras(size_t relation) {
  assert(relation < TSR__RELATION_COUNT);
  return extras[relation];
}
