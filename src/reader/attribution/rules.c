/* rules.c - turns a text of rules into compiled patterns in the order in which they are tried.
 *
 *   text --(rules_json.c, rules_yaml.c)--> items --(here)--> sorted, compiled --(rules_match.c)-->
 *   the rule that names each stack
 *
 * All texts live in one arena. Sorting is by insertion and therefore stable: rules of one priority
 * keep the order of the text. */
#include "attribution/rules.h"

#include <string.h>

static const char *copy_text(tsr__arena *arena, const char *text) {
  if (!text) return "";
  return tsr__arena_copy(arena, text, strlen(text) + 1, 1);
}

static size_t find_name(const tsr_rules *rules, const char *name) {
  size_t i = 0;
  while (i < rules->items.count && strcmp(rules->items.items[i].name, name) != 0) i++;
  return i;
}

int tsr__rules_add(tsr_rules *rules, const tsr_rule *rule, bool is_named_once, tsr_rules_mode mode,
                   tsr_error *error) {
  if (!rule->name || !*rule->name)
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "rule %zu has no name",
                     rules->items.count + 1);
  if (!rule->pattern)
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "rule '%.100s' has no pattern",
                     rule->name);
  if (rules->items.count >= TSR_RULES_COUNT)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "more than %u rules",
                     TSR_RULES_COUNT);
  if (strlen(rule->pattern) > TSR_RULES_PATTERN_BYTES)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "the pattern of rule '%.100s' is longer than %u bytes", rule->name,
                     (unsigned)TSR_RULES_PATTERN_BYTES);
  size_t same = is_named_once ? find_name(rules, rule->name) : rules->items.count;
  if (same < rules->items.count && mode == TSR_RULES_STRICT)
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "two patterns for the name '%.100s'; use a list to repeat names", rule->name);
  tsr_rule copy = {.name = copy_text(&rules->arena, rule->name),
                   .pattern = copy_text(&rules->arena, rule->pattern),
                   .description = copy_text(&rules->arena, rule->description),
                   .priority = rule->priority};
  if (!copy.name || !copy.pattern || !copy.description) return tsr__fail_memory(error);
  if (same < rules->items.count)
    rules->items.items[same] = copy;
  else if (!TSR__VECTOR_PUSH(&rules->items, copy))
    return tsr__fail_memory(error);
  return 0;
}

static void sort_by_priority(tsr_rules *rules) {
  tsr_rule *items = rules->items.items;
  for (size_t i = 1; i < rules->items.count; i++) {
    tsr_rule rule = items[i];
    size_t k = i;
    for (; k > 0 && items[k - 1].priority > rule.priority; k--) items[k] = items[k - 1];
    items[k] = rule;
  }
}

/* The problem outlives the rules, so its texts are copied, in one piece. */
static int hand_out(const tsr_rule_problem *problem, tsr_rule_problem *out, tsr_error *error) {
  if (!out) return 0;
  size_t name_bytes = strlen(problem->rule.name) + 1;
  size_t pattern_bytes = strlen(problem->rule.pattern) + 1;
  char *texts = TSR__NEW_ARRAY(char, name_bytes + pattern_bytes);
  if (!texts) return tsr__fail_memory(error);
  memcpy(texts, problem->rule.name, name_bytes);
  memcpy(texts + name_bytes, problem->rule.pattern, pattern_bytes);
  *out = *problem;
  out->rule.name = texts;
  out->rule.pattern = texts + name_bytes;
  out->rule.description = "";
  return 0;
}

void tsr_rule_problem_release(tsr_rule_problem *problem) {
  /* One piece, which begins with the name. */
  char *texts;
  memcpy(&texts, &problem->rule.name, sizeof texts);
  tsr__free(texts);
  *problem = (tsr_rule_problem){0};
}

/* Compile the rules. An invalid pattern ends this, or its rule is removed. */
static int compile(tsr_rules *rules, tsr_rule_problem *out, tsr_error *error) {
  size_t kept = 0;
  rules->patterns = TSR__NEW_ARRAY(tsr__pattern *, rules->items.count);
  if (!rules->patterns) return tsr__fail_memory(error);
  for (size_t i = 0; i < rules->items.count; i++) {
    tsr_rule_problem problem = {.rule = rules->items.items[i]};
    tsr_error said = {0}; /* success must leave the caller's error alone */
    int status = tsr__pattern_new(problem.rule.pattern, &rules->patterns[kept], &problem, &said);
    if (status == TSR_ERROR_ARGUMENT && rules->mode == TSR_RULES_LENIENT) {
      if (!TSR__VECTOR_PUSH(&rules->passed_over, problem)) return tsr__fail_memory(error);
      continue;
    }
    if (status && error) *error = said;
    if (status == TSR_ERROR_ARGUMENT && hand_out(&problem, out, error)) return TSR_ERROR_MEMORY;
    if (status) return status;
    rules->items.items[kept++] = problem.rule;
  }
  rules->items.count = kept;
  return 0;
}

static bool begins_like_json(const char *text, size_t size_bytes) {
  size_t at = 0;
  while (at < size_bytes &&
         (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n'))
    at++;
  return at < size_bytes && (text[at] == '{' || text[at] == '[');
}

int tsr_rules_parse(const char *text, size_t size_bytes, tsr_rules_mode mode, tsr_rules **out,
                    tsr_rule_problem *problem, tsr_error *error) {
  if (size_bytes > TSR_RULES_TEXT_BYTES)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "more than %u bytes of rules",
                     (unsigned)TSR_RULES_TEXT_BYTES);
  tsr_rules *rules = TSR__NEW(tsr_rules);
  if (!rules) return tsr__fail_memory(error);
  tsr__arena_init(&rules->arena);
  rules->mode = mode;
  bool is_json = begins_like_json(text, size_bytes);
  int status = is_json ? tsr__rules_read_json(text, size_bytes, mode, rules, error)
                       : tsr__rules_read_yaml(text, size_bytes, mode, rules, error);
  if (!status && !rules->items.count && mode == TSR_RULES_STRICT)
    status = tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "no rules given");
  if (!status) {
    sort_by_priority(rules);
    status = compile(rules, problem, error);
  }
  if (status)
    tsr_rules_free(rules);
  else
    *out = rules;
  return status;
}

void tsr_rules_free(tsr_rules *rules) {
  if (!rules) return;
  for (size_t i = 0; rules->patterns && i < rules->items.count; i++)
    tsr__pattern_free(rules->patterns[i]);
  tsr__free(rules->patterns);
  TSR__VECTOR_FREE(&rules->items);
  TSR__VECTOR_FREE(&rules->passed_over);
  tsr__arena_release(&rules->arena);
  tsr__free(rules);
}

size_t tsr_rules_count(const tsr_rules *rules) {
  return rules->items.count;
}

tsr_rule tsr_rules_at(const tsr_rules *rules, size_t index) {
  return rules->items.items[index];
}

const tsr_rule_problem *tsr_rules_skipped(const tsr_rules *rules, size_t *count) {
  *count = rules->passed_over.count;
  return rules->passed_over.items;
}

static int parse_object(const char *text, size_t size_bytes, void **out, tsr_error *error) {
  tsr_rules *rules = NULL;
  tsr_rule_problem problem = {0};
  int status = tsr_rules_parse(text, size_bytes, TSR_RULES_STRICT, &rules, &problem, error);
  if (status == 0) *out = rules;
  if (status && problem.message[0])
    status =
        tsr__fail(error, status, TSR_OFFSET_NONE, "rule '%.60s': %s, at offset %zu of '%.80s'",
                  problem.rule.name, problem.message, problem.offset_bytes, problem.rule.pattern);
  tsr_rule_problem_release(&problem);
  return status;
}

static void free_object(void *rules) {
  tsr_rules_free(rules);
}

const tsr_parameter_type tsr_rules_type = {
    .name = "rules", .parse = parse_object, .free = free_object};
