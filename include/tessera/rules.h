/* tessera/rules.h - groups of a user's own: names, and patterns for the stacks that belong to them.
 *
 *   {"attention": "attention|softmax", "optimizer": "optim|adam"}
 *
 *   rules:
 *     - name: attention
 *       pattern: attention|softmax
 *       description: scores and what is made of them    # for people; not used
 *       priority: 10                                    # a whole number, 0 where not given
 *
 * Rules are JSON or YAML: a mapping from names to patterns, a list of rules, or a mapping with
 * `rules:` over either; a mapping's value may also be a rule without a name. They are tried in
 * order of priority, the smallest number first (as Mosaic's documentation has it: 1 for what is
 * special, 999 for what catches the rest), and those of one priority in the order of the text. The
 * first rule whose pattern is found in the function's name or the file's name of any frame of a
 * stack names the group; several rules may share a name. What no rule names is "unknown".
 *
 * Patterns are PCRE2's, in UTF mode with Unicode classes, searched for anywhere, and case matters:
 * what Python's re.search does, but for \Z (also before a last newline; \z is the very end), {,n}
 * (literal; write {0,n}), \u and \N escapes (write \x{...}), and (?i) in mid-pattern, which PCRE2
 * takes and Python refuses. A pattern that backtracks without end is stopped and reported.
 */
#ifndef TESSERA_RULES_H
#define TESSERA_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bounds of a text of rules; beyond them it is refused with TSR_ERROR_LIMIT. */
#define TSR_RULES_TEXT_BYTES    (UINT32_C(1) << 20)
#define TSR_RULES_COUNT         1000u
#define TSR_RULES_PATTERN_BYTES (UINT32_C(1) << 14)

/* Compiled rules. Immutable, and so usable from many threads at once. */
typedef struct tsr_rules tsr_rules;

/* One rule; texts live as long as the rules, and are UTF-8. */
typedef struct tsr_rule {
  const char *name, *pattern;
  const char *description; /* "" where not given */
  int64_t priority;
} tsr_rule;

/* A pattern that is wrong. */
typedef struct tsr_rule_problem {
  tsr_rule rule;
  size_t offset_bytes; /* in its pattern */
  char message[128];   /* what PCRE2 says of it */
} tsr_rule_problem;

/* What to do about a rule whose pattern is wrong. */
typedef enum tsr_rules_mode {
  TSR_RULES_STRICT, /* refuse all rules: TSR_ERROR_ARGUMENT */
  TSR_RULES_LENIENT /* pass it over, as Mosaic does; a name given twice means its last pattern */
} tsr_rules_mode;

/* Parse `size_bytes` bytes of JSON (where the first character is '{' or '[') or of YAML. On success
 * `*out` is the caller's, to be given to tsr_rules_free. Fails with TSR_ERROR_FORMAT (no JSON or
 * YAML, or not of the form above; `error->offset` is the place), _ARGUMENT, _LIMIT or _MEMORY.
 * `problem` may be NULL; it is filled where the error is one pattern's, with texts that are valid
 * until tsr_rule_problem_release. */
int tsr_rules_parse(const char *text, size_t size_bytes, tsr_rules_mode mode, tsr_rules **out,
                    tsr_rule_problem *problem, tsr_error *error);
/* Release a problem's texts; a zeroed one is fine. */
void tsr_rule_problem_release(tsr_rule_problem *problem);
/* Release them. NULL is fine. */
void tsr_rules_free(tsr_rules *rules);

/* The rules in the order in which they are tried. `index` must be below the count. */
size_t tsr_rules_count(const tsr_rules *rules);
tsr_rule tsr_rules_at(const tsr_rules *rules, size_t index);
/* The rules that TSR_RULES_LENIENT passed over; valid as long as the rules. */
const tsr_rule_problem *tsr_rules_passed_over(const tsr_rules *rules, size_t *count);

#ifdef __cplusplus
}
#endif
#endif
