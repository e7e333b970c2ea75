/* Rules: the forms they are written in, what is wrong with them, and what they match. */
#include "attribution/rules.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "test_support.h"

static int parse(const char *text, tsr_rules_mode mode, tsr_rules **rules, tsr_error *error) {
  return tsr_rules_parse(text, strlen(text), mode, rules, NULL, error);
}

/* "name=pattern(priority) ..." in the order of trying. */
static void expect_rules(const char *text, const char *expected) {
  tsr_rules *rules = NULL;
  tsr_error error = {0};
  char got[512] = "";
  if (parse(text, TSR_RULES_STRICT, &rules, &error)) fail_msg("%s: %s", text, error.message);
  for (size_t i = 0; i < tsr_rules_count(rules); i++) {
    tsr_rule rule = tsr_rules_at(rules, i);
    size_t used = strlen(got);
    (void)snprintf(got + used, sizeof got - used, "%s%s=%s(%d)", i ? " " : "", rule.name,
                   rule.pattern, (int)rule.priority);
  }
  assert_string_equal(got, expected);
  tsr_rules_free(rules);
}

static void forms(void **state) {
  (void)state;
  expect_rules("{\"b\": \"x|y\", \"a\": \".\"}", "b=x|y(0) a=.(0)");
  expect_rules(" [{\"name\": \"b\", \"pattern\": \"x\"}, {\"name\": \"b\", \"pattern\": \"y\"}]",
               "b=x(0) b=y(0)");
  expect_rules("{\"rules\": [{\"name\": \"b\", \"pattern\": \"x\", \"description\": null}]}",
               "b=x(0)");
  expect_rules("{\"b\": {\"pattern\": \"x\", \"description\": \"d\", \"priority\": -3}}",
               "b=x(-3)");
  expect_rules("{\"rules\": \"x\"}", "rules=x(0)");
  expect_rules("b: x|y\na: '.'\n", "b=x|y(0) a=.(0)");
  expect_rules("rules:\n- name: b\n  pattern: x\n  description: words\n- {name: a, pattern: 7}\n",
               "b=x(0) a=7(0)");
  expect_rules("rules:\n  b: x\n  a: {pattern: y, priority: 4}\n", "b=x(0) a=y(4)");
  expect_rules("- &one {name: a, pattern: x}\n- *one\n", "a=x(0) a=x(0)");
}

/* Smallest first; equal ones in the order of the text. */
static void priorities(void **state) {
  (void)state;
  expect_rules("[{\"name\": \"a\", \"pattern\": \"1\"}, {\"name\": \"b\", \"pattern\": \"2\", "
               "\"priority\": 5}, {\"name\": \"c\", \"pattern\": \"3\"}, {\"name\": \"d\", "
               "\"pattern\": \"4\", \"priority\": 5}, {\"name\": \"e\", \"pattern\": \"5\", "
               "\"priority\": -1}]",
               "e=5(-1) a=1(0) c=3(0) b=2(5) d=4(5)");
}

static void refuse(const char *text, tsr_status status, const char *message) {
  tsr_rules *rules = NULL;
  tsr_error error = {0};
  assert_int_equal(parse(text, TSR_RULES_STRICT, &rules, &error), status);
  assert_null(rules);
  assert_string_equal(error.message, message);
}

static void malformed(void **state) {
  (void)state;
  refuse("", TSR_ERROR_FORMAT, "line 1: expected a mapping of names to patterns, or a list");
  refuse("{}", TSR_ERROR_FORMAT, "no rules given");
  refuse("{\"a\": 1}", TSR_ERROR_FORMAT, "a rule must be a pattern or an object");
  refuse("{\"a\": \"x\", \"a\": \"y\"}", TSR_ERROR_FORMAT,
         "line 1: duplicate object key near '\"a\"'");
  refuse("[{\"pattern\": \"x\"}]", TSR_ERROR_FORMAT, "rule 1 has no name");
  refuse("[{\"name\": \"x\"}]", TSR_ERROR_FORMAT, "rule 'x' has no pattern");
  refuse("[{\"name\": \"x\", \"pattern\": \"y\", \"priority\": \"high\"}]", TSR_ERROR_FORMAT,
         "a priority must be an integer");
  refuse("just text", TSR_ERROR_FORMAT,
         "line 1: expected a mapping of names to patterns, or a list");
  refuse("a: x\nb: [y]\n", TSR_ERROR_FORMAT, "line 2: a rule must be a pattern or a mapping");
  refuse("- name: x\n  pattern: y\n  priority: high\n", TSR_ERROR_FORMAT,
         "line 3: a priority must be an integer");
  refuse("a: x\na: y\n", TSR_ERROR_FORMAT,
         "two patterns for the name 'a'; use a list to repeat names");
  refuse("a: 'x\n", TSR_ERROR_FORMAT, "line 2: found unexpected end of stream");
  /* A node that contains itself. */
  refuse("&a [*a]\n", TSR_ERROR_FORMAT, "line 1: a rule must be a pattern or a mapping");
}

static void bounds(void **state) {
  (void)state;
  size_t size = (size_t)TSR_RULES_TEXT_BYTES + 1;
  char *text = TSR__NEW_ARRAY(char, size);
  tsr_rules *rules = NULL;
  assert_non_null(text);
  memset(text, 'a', size);
  assert_int_equal(tsr_rules_parse(text, size, TSR_RULES_STRICT, &rules, NULL, NULL),
                   TSR_ERROR_LIMIT);
  text[1] = ':';
  text[2] = ' ';
  assert_int_equal(
      tsr_rules_parse(text, TSR_RULES_PATTERN_BYTES + 8, TSR_RULES_STRICT, &rules, NULL, NULL),
      TSR_ERROR_LIMIT);
  size_t used = 0;
  for (unsigned i = 0; i <= TSR_RULES_COUNT; i++)
    used += (size_t)sprintf(text + used, "n%u: x\n", i);
  assert_int_equal(tsr_rules_parse(text, used, TSR_RULES_STRICT, &rules, NULL, NULL),
                   TSR_ERROR_LIMIT);
  assert_null(rules);
  tsr__free(text);
}

/* ---- patterns ---- */

static void bad_pattern(void **state) {
  (void)state;
  const char *text = "{\"good\": \"a\", \"bad\": \"b|(c\"}";
  tsr_rules *rules = NULL;
  tsr_rule_problem problem = {0};
  tsr_error error = {0};
  assert_int_equal(tsr_rules_parse(text, strlen(text), TSR_RULES_STRICT, &rules, &problem, &error),
                   TSR_ERROR_ARGUMENT);
  assert_string_equal(error.message,
                      "rule 'bad': missing closing parenthesis, at offset 4 of its pattern");
  assert_string_equal(problem.rule.name, "bad");
  assert_string_equal(problem.rule.pattern, "b|(c");
  assert_string_equal(problem.message, "missing closing parenthesis");
  assert_int_equal(problem.offset_bytes, 4);
  tsr_rule_problem_release(&problem);
}

/* Mosaic passes a bad pattern over, and its dict keeps the last of equal names. */
static void lenient(void **state) {
  (void)state;
  tsr_rules *rules = NULL;
  size_t count;
  tsr_error error = {0};
  assert_int_equal(parse("{\"bad\": \"(\", \"a\": \"x\", \"b\": \"y\", \"a\": \"z\"}",
                         TSR_RULES_LENIENT, &rules, &error),
                   0);
  assert_int_equal(error.status, 0); /* success leaves it alone */
  const tsr_rule_problem *problems = tsr_rules_skipped(rules, &count);
  assert_int_equal(count, 1);
  assert_string_equal(problems[0].rule.name, "bad");
  assert_int_equal(tsr_rules_count(rules), 2);
  assert_string_equal(tsr_rules_at(rules, 0).name, "a");
  assert_string_equal(tsr_rules_at(rules, 0).pattern, "z");
  tsr_rules_free(rules);
}

/* ---- matching ---- */

/* A snapshot of one alloc, whose stack has frames of these names and files. */
static tsr_snapshot *with_stack(const char *frames) {
  char text[4096];
  int length = snprintf(text, sizeof text,
                        "{\"segments\": [], \"device_traces\": [[{\"action\": \"alloc\", "
                        "\"addr\": 1, \"size\": 1, \"frames\": [%s]}]]}",
                        frames);
  tsr_snapshot *snapshot = NULL;
  assert_int_equal(tsr_snapshot_read(text, (size_t)length, NULL, &snapshot, NULL), 0);
  return snapshot;
}

#define FRAME(name, file) "{\"name\": \"" name "\", \"filename\": \"" file "\", \"line\": 1}"

/* The rule that names the stack, or "". */
static void expect_match(const char *frames, const char *text, const char *name) {
  tsr_snapshot *snapshot = with_stack(frames);
  tsr_rules *rules = NULL;
  tsr__rule_stacks stacks = {0};
  assert_int_equal(parse(text, TSR_RULES_STRICT, &rules, NULL), 0);
  assert_int_equal(tsr__rules_match(rules, snapshot, &stacks, NULL), 0);
  uint32_t rule = stacks.stacks[tsr_snapshot_events(snapshot, 0).stack[0]];
  assert_string_equal(rule == TSR__RULE_NONE ? "" : tsr_rules_at(rules, rule).name, name);
  tsr__rule_stacks_release(&stacks);
  tsr_rules_free(rules);
  tsr_snapshot_free(snapshot);
}

static void matching(void **state) {
  (void)state;
  const char *frames = FRAME("softmax", "/x/nn.py") ", " FRAME("forward", "/x/modell\\u00e9.py");
  expect_match(frames, "{\"a\": \"soft\"}", "a");
  expect_match(frames, "{\"a\": \"^soft$\"}", "");
  expect_match(frames, "{\"a\": \"nn\\\\.py$\"}", "a");
  /* The first rule that any frame fits, not the first frame that fits any rule. */
  expect_match(frames, "{\"outer\": \"forward\", \"inner\": \"softmax\"}", "outer");
  expect_match(frames,
               "{\"outer\": \"forward\", \"inner\": {\"pattern\": \"softmax\", "
               "\"priority\": -1}}",
               "inner");
  expect_match(frames,
               "[{\"name\": \"rest\", \"pattern\": \".*\", \"priority\": 999}, {\"name\": "
               "\"special\", \"pattern\": \"softmax\", \"priority\": 1}]",
               "special");
  expect_match(frames, "{\"a\": \"Forward\"}", "");
  expect_match(frames, "{\"a\": \"(?i)Forward\"}", "a");
  /* Characters, not bytes; words of every script. */
  expect_match(frames, "{\"a\": \"modell.\\\\.py\"}", "a");
  expect_match(frames, "{\"a\": \"^/x/\\\\w+\\\\.py$\"}", "a");
  expect_match(frames, "{\"a\": \"(?P<q>l)(?P=q)\"}", "a");
  expect_match(frames, "{\"a\": \"\"}", "a");
  expect_match("", "{\"a\": \"\"}", "");
}

/* A pattern that would take longer than the universe ends at once. */
static void catastrophe(void **state) {
  (void)state;
  const char *bad = "{\"slow\": \"(?:(?:a+)+)+$\", \"rest\": \"aab$\"}";
  tsr_snapshot *snapshot = with_stack(FRAME("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", "f"));
  tsr_rules *rules = NULL;
  tsr__rule_stacks stacks = {0};
  tsr_error error = {0};
  assert_int_equal(parse(bad, TSR_RULES_STRICT, &rules, NULL), 0);
  assert_int_equal(tsr__rules_match(rules, snapshot, &stacks, &error), TSR_ERROR_ARGUMENT);
  assert_non_null(
      strstr(error.message, "rule 'slow': the pattern exceeds the backtracking limit on 'aaaa"));
  tsr_rules_free(rules);
  assert_int_equal(parse(bad, TSR_RULES_LENIENT, &rules, NULL), 0);
  assert_int_equal(tsr__rules_match(rules, snapshot, &stacks, &error), 0);
  assert_int_equal(stacks.given_up, 1);
  assert_int_equal(stacks.stacks[tsr_snapshot_events(snapshot, 0).stack[0]], 1);
  tsr__rule_stacks_release(&stacks);
  tsr_rules_free(rules);
  tsr_snapshot_free(snapshot);
}

/* A trace with one frame per allocation: `count` names that begin with `start` and are otherwise unique and
 * `name_bytes` long. */
static tsr_snapshot *with_names(const char *start, size_t name_bytes, unsigned count) {
  tsr__buffer text = {0};
  tsr_snapshot *snapshot = NULL;
  tsr__buffer_text(&text, "{\"segments\": [], \"device_traces\": [[");
  for (unsigned i = 0; i < count; i++) {
    tsr__buffer_printf(&text,
                       "%s{\"action\": \"alloc\", \"addr\": %u, \"size\": 1, \"frames\": "
                       "[{\"name\": \"%s%04u",
                       i ? ", " : "", i + 1, start, i);
    tsr__buffer_fill(&text, 'x', name_bytes - strlen(start) - 4);
    tsr__buffer_text(&text, "\", \"filename\": \"f\", \"line\": 1}]}");
  }
  tsr__buffer_text(&text, "]]}");
  assert_int_equal(tsr_snapshot_read(text.data, text.size, NULL, &snapshot, NULL), 0);
  tsr__buffer_release(&text);
  return snapshot;
}

#define AS "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" /* 40 */

/* A rule that meets its limit again and again is disabled; others still match. */
static void many_catastrophes(void **state) {
  (void)state;
  const char *bad = "{\"fine\": \"0099\", \"slow\": \"(?:(?:a+)+)+$\", \"rest\": \"x\"}";
  tsr_snapshot *snapshot = with_names(AS, 64, 100);
  tsr_rules *rules = NULL;
  tsr__rule_stacks stacks = {0};
  assert_int_equal(parse(bad, TSR_RULES_LENIENT, &rules, NULL), 0);
  assert_int_equal(tsr__rules_match(rules, snapshot, &stacks, NULL), 0);
  assert_int_equal(stacks.given_up, 16);
  assert_int_equal(stacks.given_up_rule, 1);
  assert_int_equal(stacks.disabled, 1);
  assert_int_equal(stacks.disabled_rule, 1);
  tsr_events events = tsr_snapshot_events(snapshot, 0);
  for (uint64_t i = 0; i < events.count; i++)
    assert_int_equal(stacks.stacks[events.stack[i]], i == 99 ? 0 : 2);
  tsr__rule_stacks_release(&stacks);
  tsr_rules_free(rules);
  tsr_snapshot_free(snapshot);
}

/* Nor may it come close to its limit on every text of a large file; strict rules are refused then. */
static void slow_but_not_catastrophic(void **state) {
  (void)state;
  const char *slow = "{\"fine\": \"0000\", \"steep\": \"(?:a|aa)+(b|d)\"}";
  tsr_rules *rules = NULL;
  tsr__rule_stacks stacks = {0};
  tsr_error error = {0};
  /* A few such texts are fine, */
  tsr_snapshot *snapshot = with_names("aaaaaaaaaaaaaaaaaaaa", 4096, 20);
  assert_int_equal(parse(slow, TSR_RULES_STRICT, &rules, NULL), 0);
  assert_int_equal(tsr__rules_match(rules, snapshot, &stacks, NULL), 0);
  assert_int_equal(stacks.given_up + stacks.disabled, 0);
  assert_int_equal(stacks.disabled_rule, TSR__RULE_NONE);
  tsr__rule_stacks_release(&stacks);
  tsr_snapshot_free(snapshot);
  /* more than 1 MiB of them is not. */
  snapshot = with_names("aaaaaaaaaaaaaaaaaaaa", 4096, 300);
  assert_int_equal(tsr__rules_match(rules, snapshot, &stacks, &error), TSR_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "rule 'steep': the pattern exceeds the backtracking limit "
                                        "on many texts, at last 'aaaa"));
  tsr_rules_free(rules);
  assert_int_equal(parse(slow, TSR_RULES_LENIENT, &rules, NULL), 0);
  assert_int_equal(tsr__rules_match(rules, snapshot, &stacks, NULL), 0);
  assert_int_equal(stacks.given_up, 0);
  assert_int_equal(stacks.disabled, 1);
  assert_int_equal(stacks.disabled_rule, 1);
  tsr__rule_stacks_release(&stacks);
  tsr_rules_free(rules);
  tsr_snapshot_free(snapshot);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forms),
      cmocka_unit_test(priorities),
      cmocka_unit_test(malformed),
      cmocka_unit_test(bounds),
      cmocka_unit_test(bad_pattern),
      cmocka_unit_test(lenient),
      cmocka_unit_test(matching),
      cmocka_unit_test(catastrophe),
      cmocka_unit_test(many_catastrophes),
      cmocka_unit_test(slow_but_not_catastrophic),
  };
  return cmocka_run_group_tests_name("rules", tests, NULL, NULL);
}
