/* rules.h - the content of tsr_rules, and which rule matches a stack. See tessera/rules.h. */
#ifndef TSR_ATTRIBUTION_RULES_H
#define TSR_ATTRIBUTION_RULES_H

#include "base/arena.h"
#include "base/error.h"
#include "base/vector.h"
#include "tessera/rules.h"
#include "tessera/unstable/columns.h"

/* A compiled pattern: pcre2_code. Only rules_match.c looks inside. */
typedef struct tsr__pattern tsr__pattern;

struct tsr_rules {
  tsr__arena arena;            /* of all texts */
  TSR__VECTOR(tsr_rule) items; /* first in the order of the text, later in the order of trying */
  tsr__pattern **patterns;     /* by rule */
  TSR__VECTOR(tsr_rule_problem) passed_over;
  tsr_rules_mode mode;
};

/* ---- reading: JSON or YAML into rules->items; nothing is compiled yet ---- */

/* Fail with TSR_ERROR_FORMAT, _LIMIT or _MEMORY; what was read so far stays in `rules`. */
int tsr__rules_read_json(const char *text, size_t size_bytes, tsr_rules_mode mode, tsr_rules *rules,
                         tsr_error *error);
int tsr__rules_read_yaml(const char *text, size_t size_bytes, tsr_rules_mode mode, tsr_rules *rules,
                         tsr_error *error);
/* Add a rule; texts are zero-terminated, NULL if absent. A missing pattern or name
 * is TSR_ERROR_FORMAT. `is_named_once`: a rule with the name of an earlier one replaces
 * it (lenient), or is TSR_ERROR_FORMAT (strict). */
int tsr__rules_add(tsr_rules *rules, const tsr_rule *rule, bool is_named_once, tsr_rules_mode mode,
                   tsr_error *error);

/* ---- matching ---- */

/* Compile; for an invalid pattern returns TSR_ERROR_ARGUMENT with the problem's message and offset. */
int tsr__pattern_new(const char *text, tsr__pattern **out, tsr_rule_problem *problem,
                     tsr_error *error);
/* NULL is fine. */
void tsr__pattern_free(tsr__pattern *pattern);

/* No rule matches. */
#define TSR__RULE_NONE UINT32_MAX

/* The index of the rule that matches each stack of a snapshot. */
typedef struct tsr__rule_stacks {
  uint32_t *stacks; /* rule by stack id, or TSR__RULE_NONE */
  uint32_t count;
  /* Lenient rules: how many times a pattern exceeded its limit on a text, which counts as not
   * found; how many rules were disabled, because all their texts together took too much; and the first
   * rule of either sort, or TSR__RULE_NONE. */
  uint64_t given_up, disabled;
  uint32_t given_up_rule, disabled_rule;
} tsr__rule_stacks;

/* Each pattern is tried on each distinct text at most once, however many frames, stacks and events
 * share it. A pattern that exceeds its limit is TSR_ERROR_ARGUMENT if the rules were parsed
 * strictly; lenient ones count it, and are disabled when they exceed it often. The work of a rule is linear in
 * the bytes of the texts, whatever its pattern (see rules_match.c). Fails with TSR_ERROR_MEMORY. */
int tsr__rules_match(const tsr_rules *rules, const tsr_snapshot *snapshot, tsr__rule_stacks *out,
                     tsr_error *error);
void tsr__rule_stacks_release(tsr__rule_stacks *stacks);

#endif
