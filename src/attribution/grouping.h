/* grouping.h - the group that each allocation of one device falls into, by any of a few rules.
 *
 * Groups are numbered by the grouping, in no order that a reader should rely on, and each has a
 * name of its own: two rules of one name are one group. By category, operation, module, line and stack
 * what was there before the recording has a group too; by the others it has none. */
#ifndef TSR_ATTRIBUTION_GROUPING_H
#define TSR_ATTRIBUTION_GROUPING_H

#include "attribution/annotations.h"
#include "attribution/category.h"
#include "attribution/kind.h"
#include "attribution/labels.h"
#include "attribution/rules.h"
#include "base/intern.h"

/* What groupings of every device of a snapshot share: what each stack is. */
typedef struct tsr__grouper {
  const tsr_snapshot *snapshot; /* neither is owned */
  const tsr_rules *rules;
  tsr_profile_by by;
  tsr__categories categories;   /* BY_MOSAIC_CATEGORY */
  tsr__roles roles;             /* BY_CATEGORY, and by place */
  tsr__labels places;           /* BY_OP, _MODULE, _LINE, _STACK */
  tsr__rule_stacks rule_stacks; /* BY_RULES */
} tsr__grouper;

/* `rules` are needed BY_RULES, where their absence is TSR_ERROR_ARGUMENT, and must outlive it. Fails
 * also with TSR_ERROR_MEMORY, and as tsr__rules_match does. */
int tsr__grouper_init(tsr__grouper *grouper, const tsr_snapshot *snapshot, tsr_profile_by by,
                      const tsr_rules *rules, tsr_error *error);
/* A zeroed one is fine. */
void tsr__grouper_release(tsr__grouper *grouper);

typedef struct tsr__grouping {
  const tsr__grouper *grouper; /* neither is owned */
  const tsr__timeline *timeline;
  tsr__intern names;          /* of groups, by id */
  uint32_t *of_rule, *of_key; /* group by rule (the last: none); by category, string or place id */
  uint32_t before;            /* by place: of memory from before the recording, without a stack */
  tsr__kinds kinds;           /* BY_CATEGORY */
  tsr__annotations annotations; /* BY_ANNOTATION */
  uint32_t *of_span;            /* group by span */
} tsr__grouping;

/* Does every allocation count that is live, and not only what the recording saw being made? */
bool tsr__grouping_is_whole(tsr_profile_by by);

/* Groups of one device's allocations; the timeline must outlive them. `out` is released by tsr__grouping_release, also when zeroed. Time
 * is linear in annotations and events, or in distinct strings. Fails with TSR_ERROR_MEMORY. */
int tsr__grouping_init(tsr__grouping *out, const tsr__grouper *grouper,
                       const tsr__timeline *timeline, tsr_error *error);
void tsr__grouping_release(tsr__grouping *grouping);

/* The group of an allocation: below tsr__grouping_count, or TSR_NONE. O(1), by annotation
 * O(log annotations). */
uint32_t tsr__grouping_of(const tsr__grouping *grouping, uint32_t allocation);
/* BY_RULES: the group of whatever a stack allocates; any other id is an absent stack. */
uint32_t tsr__grouping_of_stack(const tsr__grouping *grouping, uint32_t stack);
uint32_t tsr__grouping_count(const tsr__grouping *grouping);
tsr_text tsr__grouping_name(const tsr__grouping *grouping, uint32_t group);

#endif
