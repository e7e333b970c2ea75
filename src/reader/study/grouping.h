/* grouping.h - the group that each allocation of one device falls into, by any of a few rules.
 *
 * Groups are numbered by the grouping, in no order that a reader should rely on, and each has a
 * name of its own: two rules of one name are one group. By category, operation, module, line, stack,
 * pool and metadata what was there before the recording has a group too; by the others it has none. */
#ifndef TSR_STUDY_GROUPING_H
#define TSR_STUDY_GROUPING_H

#include "attribution/rules.h"
#include "base/intern.h"
#include "study/study.h"
#include "tessera/unstable/attribution.h"

/* What groupings of every device of a snapshot share: what each stack is. All but the rules' stacks
 * is the study's. */
typedef struct tsr__grouper {
  tsr_study *study; /* neither is owned */
  const tsr_rules *rules;
  const char *key;              /* BY_METADATA, or NULL */
  const tsr_snapshot *snapshot; /* the study's */
  tsr_profile_by by;
  const tsr__mosaic_categories *categories; /* BY_MOSAIC_CATEGORY, else NULL */
  const tsr__labels *places;                /* BY_OP, _MODULE, _LINE, _STACK, else NULL */
  tsr__rule_stacks rule_stacks;             /* BY_RULES */
} tsr__grouper;

/* BY_RULES needs `rules`, which must outlive it; without them it fails with TSR_ERROR_ARGUMENT. Fails
 * also with TSR_ERROR_MEMORY, and as tsr__rules_match does. */
int tsr__grouper_init(tsr__grouper *grouper, tsr_study *study, tsr_profile_by by,
                      const tsr_rules *rules, tsr_error *error);
/* By metadata, or by the values that `key` has in it, unless that is NULL; it must outlive the grouper. */
void tsr__grouper_by_metadata(tsr__grouper *grouper, tsr_study *study, const char *key);
/* A zeroed one is fine. */
void tsr__grouper_release(tsr__grouper *grouper);

typedef struct tsr__grouping {
  const tsr__grouper *grouper;   /* neither is owned */
  const tsr__timeline *timeline; /* the study's */
  tsr__intern names;             /* of groups, by id */
  uint32_t *of_rule, *of_key; /* group by rule (the last: none); by category, string or place id */
  uint32_t before;            /* by place: of memory from before the recording, without a stack */
  const tsr__categories *categories;   /* BY_CATEGORY, else NULL */
  const tsr__annotations *annotations; /* BY_ANNOTATION, else NULL */
  const tsr__names *said;              /* BY_METADATA, else NULL */
  uint32_t *of_span;                   /* group by span */
  uint32_t *of_allocation;             /* BY_POOL, BY_METADATA: group by allocation */
} tsr__grouping;

/* What memory without metadata is called, and memory whose metadata lacks the key. */
#define TSR__NO_METADATA    "(no metadata)"
#define TSR__OTHER_METADATA "(other metadata)"

/* Does every allocation count that is live, and not only what the recording saw being made? */
bool tsr__grouping_is_whole(tsr_profile_by by);

/* Groups of one device's allocations. `out` is released by tsr__grouping_release, also when zeroed.
 * Time, besides that of what the study has to compute first, is linear in annotations and events, or
 * in distinct strings. Fails with TSR_ERROR_MEMORY. */
int tsr__grouping_init(tsr__grouping *out, const tsr__grouper *grouper, uint32_t device,
                       tsr_error *error);
void tsr__grouping_release(tsr__grouping *grouping);

/* The group of an allocation: below tsr__grouping_count, or TSR_NONE. O(1), by annotation
 * O(log annotations). */
uint32_t tsr__grouping_of(const tsr__grouping *grouping, uint32_t allocation);
/* BY_RULES: the group of whatever a stack allocates; any other id is an absent stack. */
uint32_t tsr__grouping_of_stack(const tsr__grouping *grouping, uint32_t stack);
uint32_t tsr__grouping_count(const tsr__grouping *grouping);
tsr_text tsr__grouping_name(const tsr__grouping *grouping, uint32_t group);

#endif
