/* tessera/rules.h - groups defined by the user: names, and patterns for the stacks in them.
 *
 *   {"attention": "attention|softmax", "optimizer": "optim|adam"}
 *
 *   rules:
 *     - name: attention
 *       pattern: attention|softmax
 *       description: scores and what follows from them # for people; not used
 *       priority: 10                                    # an integer, 0 by default
 *
 * Rules are JSON or YAML: a mapping from names to patterns, a list of rules, or a mapping with
 * the key `rules` and one of these as its value; a mapping's value may also be a rule without a name.
 * They are tried in order of priority, the smallest number first (as in Mosaic's documentation: 1 for
 * special cases, 999 for the fallback), and those of one priority in the order of the text. The
 * first rule whose pattern is found in the function or file name of any frame of a
 * stack names the group; several rules may share a name. Stacks that match no rule are "unknown".
 *
 * Patterns are PCRE2's, in UTF mode with Unicode classes, searched for anywhere, and case-sensitive:
 * as in Python's re.search, except for \Z (also matches before a last newline; \z is the very end),
 * {,n} (literal; write {0,n}), \u and \N escapes (write \x{...}), and (?i) in mid-pattern, which PCRE2
 * accepts and Python rejects. A pattern that exceeds the backtracking limit is stopped and reported; one that
 * does so, or comes close, on many texts is not tried on the rest of them.
 */
#ifndef TESSERA_RULES_H
#define TESSERA_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/registry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits of a text of rules; a larger one is refused with TSR_ERROR_LIMIT. */
#define TSR_RULES_TEXT_BYTES    (UINT32_C(1) << 20)
#define TSR_RULES_COUNT         1000u
#define TSR_RULES_PATTERN_BYTES (UINT32_C(1) << 14)

/* Compiled rules. Immutable: any number of threads may use them at once. */
typedef struct tsr_rules tsr_rules;

/* One rule; its strings are UTF-8 and valid as long as the rules. */
typedef struct tsr_rule {
  const char *name, *pattern;
  const char *description; /* "" if absent */
  int64_t priority;
} tsr_rule;

/* An invalid pattern. */
typedef struct tsr_rule_problem {
  tsr_rule rule;
  size_t offset_bytes; /* in its pattern */
  char message[128];   /* PCRE2's error message */
} tsr_rule_problem;

/* What to do about a rule whose pattern is invalid. */
typedef enum tsr_rules_mode {
  TSR_RULES_STRICT, /* refuse all rules: TSR_ERROR_ARGUMENT */
  TSR_RULES_LENIENT /* skip it, as Mosaic does; for a duplicate name the last pattern counts */
} tsr_rules_mode;

/* Parse `size_bytes` bytes of JSON (if the first character is '{' or '[') or of YAML. On success the
 * caller owns `*out` and passes it to tsr_rules_free. Fails with TSR_ERROR_FORMAT (invalid JSON or
 * YAML, or not of the form above; `error->offset` is the place), _ARGUMENT, _LIMIT or _MEMORY.
 * `problem` may be NULL; it is filled if the error is in a pattern, with strings that are valid
 * until tsr_rule_problem_release. */
int tsr_rules_parse(const char *text, size_t size_bytes, tsr_rules_mode mode, tsr_rules **out,
                    tsr_rule_problem *problem, tsr_error *error);
/* Release a problem's strings; a zeroed one is fine. */
void tsr_rule_problem_release(tsr_rule_problem *problem);
/* Release them. NULL is fine. */
void tsr_rules_free(tsr_rules *rules);

/* The rules in the order in which they are tried. `index` must be below the count. */
size_t tsr_rules_count(const tsr_rules *rules);
tsr_rule tsr_rules_at(const tsr_rules *rules, size_t index);
/* The rules that TSR_RULES_LENIENT skipped; valid as long as the rules. */
const tsr_rule_problem *tsr_rules_skipped(const tsr_rules *rules, size_t *count);

/* The type of parameters that are rules; their text is parsed strictly. */
extern const tsr_parameter_type tsr_rules_type;

#ifdef __cplusplus
}
#endif
#endif
