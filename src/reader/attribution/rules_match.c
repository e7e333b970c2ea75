/* rules_match.c - which rule matches a stack, with PCRE2.
 *
 * Strings are interned, so a pattern is tried on a text once, however many frames, stacks and
 * events contain it: `of_text` stores the first rule found in each text. A frame has the earlier of its
 * two texts' rules, a stack the earliest of its frames'.
 *
 * A pattern is an untrusted program, and so are the texts that it is tried on. One attempt is limited by
 * PCRE2's own limits on patterns, a limit on backtracking (which the just-in-time compiler respects; it
 * holds for each place at which a match may begin), and one on the memory of the matcher. All attempts of a
 * rule together are limited too, since a file may have millions of texts:
 *
 *   QUICK_LIMIT    is all that a text gets at first, enough for nearly all;
 *   SLOW_BYTES     of texts that need more are tried again with MATCH_LIMIT;
 *   GIVEN_UP_TEXTS that exceed this as well are tolerated (strict rules: none).
 *
 * A rule that has used up either is disabled: it matches no text that was not tried before. There
 * is no limit on time, so that the same pattern gives the same answer on every machine. */
#include "attribution/rules.h"

#include <assert.h>

#include "base/pcre.h"

/* Enough for realistic patterns on texts as long as file names; at most some milliseconds per text. */
enum { QUICK_LIMIT = 1000, MATCH_LIMIT = 200000, HEAP_LIMIT_KIB = 16 * 1024 };
/* For all texts of a rule. */
enum { SLOW_BYTES = 1 << 20, GIVEN_UP_TEXTS = 16 };
/* For the compiled code; without it PCRE2 uses 32 KiB of the machine's stack. */
enum { JIT_STACK_START = 32 * 1024, JIT_STACK_MOST = 1024 * 1024 };
/* Only this many bytes of a longer text are searched. */
enum { TEXT_BYTES = 64 * 1024 };

struct tsr__pattern {
  pcre2_code *code;
};

static int say_problem(int code, size_t offset, tsr_rule_problem *problem, tsr_error *error) {
  PCRE2_UCHAR message[sizeof problem->message];
  if (pcre2_get_error_message(code, message, sizeof message) == PCRE2_ERROR_BADDATA) message[0] = 0;
  memcpy(problem->message, message, sizeof message);
  problem->offset_bytes = offset;
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                   "rule '%.60s': %s, at offset %zu of its pattern", problem->rule.name,
                   problem->message, offset);
}

int tsr__pattern_new(const char *text, tsr__pattern **out, tsr_rule_problem *problem,
                     tsr_error *error) {
  const uint32_t options =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C;
  pcre2_general_context *memory = tsr__pcre_memory();
  pcre2_compile_context *how = memory ? pcre2_compile_context_create(memory) : NULL;
  tsr__pattern *pattern = how ? TSR__NEW(tsr__pattern) : NULL;
  int code = PCRE2_ERROR_NOMEMORY, status = 0;
  PCRE2_SIZE offset = 0;
  if (pattern && pcre2_set_newline(how, PCRE2_NEWLINE_LF) == 0)
    pattern->code =
        pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options, &code, &offset, how);
  if (pattern && pattern->code) {
    /* If it cannot be compiled further (no executable memory), PCRE2 interprets it. */
    (void)pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    *out = pattern;
  } else {
    status = !pattern || code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED
                 ? tsr__fail_memory(error)
                 : say_problem(code, offset, problem, error);
    tsr__free(pattern);
  }
  pcre2_compile_context_free(how);
  pcre2_general_context_free(memory);
  return status;
}

void tsr__pattern_free(tsr__pattern *pattern) {
  if (!pattern) return;
  pcre2_code_free(pattern->code);
  tsr__free(pattern);
}

/* ---- matching ---- */

/* Not tried yet. */
#define UNTRIED (UINT32_MAX - 1)

/* What a rule has used of its limits. */
typedef struct spent {
  uint32_t slow_bytes, given_up;
  bool is_disabled;
} spent;

typedef struct matcher {
  const tsr_rules *rules;
  const tsr_snapshot *snapshot;
  pcre2_general_context *memory;
  pcre2_match_context *limits;
  pcre2_jit_stack *stack;
  pcre2_match_data *found;
  uint32_t *of_text, *of_frame;
  spent *spent; /* by rule */
  tsr_error *error;
} matcher;

static bool matcher_open(matcher *m) {
  uint32_t string_count = tsr_snapshot_string_count(m->snapshot), has_jit = 0;
  (void)pcre2_config(PCRE2_CONFIG_JIT,
                     &has_jit); /* not everywhere; patterns are interpreted then */
  m->memory = tsr__pcre_memory();
  if (!m->memory) return false;
  m->limits = pcre2_match_context_create(m->memory);
  m->found = pcre2_match_data_create(1, m->memory);
  if (has_jit) m->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MOST, m->memory);
  m->of_text = TSR__NEW_ARRAY(uint32_t, string_count);
  m->of_frame = TSR__NEW_ARRAY(uint32_t, tsr_snapshot_frame_count(m->snapshot));
  m->spent = TSR__NEW_ARRAY(spent, m->rules->items.count);
  bool is_stack_lost = has_jit && !m->stack;
  if (!m->limits || !m->found || is_stack_lost || !m->of_text || !m->of_frame || !m->spent)
    return false;
  (void)pcre2_set_heap_limit(m->limits, HEAP_LIMIT_KIB);
  if (m->stack) pcre2_jit_stack_assign(m->limits, NULL, m->stack);
  for (uint32_t i = 0; i < string_count; i++) m->of_text[i] = UNTRIED;
  return true;
}

static void matcher_close(matcher *m) {
  tsr__free(m->of_text);
  tsr__free(m->of_frame);
  tsr__free(m->spent);
  pcre2_match_data_free(m->found);
  pcre2_match_context_free(m->limits);
  pcre2_jit_stack_free(m->stack);
  pcre2_general_context_free(m->memory);
}

static int try_text(matcher *m, size_t rule, tsr_text text, uint32_t limit) {
  (void)pcre2_set_match_limit(m->limits, limit);
  return pcre2_match(m->rules->patterns[rule]->code, (PCRE2_SPTR)text.data, text.size_bytes, 0, 0,
                     m->found, m->limits);
}

/* A text on which a rule exceeded a limit: 0, not found, if the rules are lenient. */
static int give_up(matcher *m, size_t rule, tsr_text text) {
  const spent *used = &m->spent[rule];
  int shown = text.size_bytes < 80 ? (int)text.size_bytes : 80;
  assert(used->is_disabled || used->given_up);
  if (m->rules->mode == TSR_RULES_LENIENT) return 0;
  return tsr__fail(
      m->error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
      "rule '%.60s': the pattern exceeds the backtracking limit on %s'%.*s'; simplify it",
      m->rules->items.items[rule].name, used->given_up ? "" : "many texts, at last ", shown,
      text.data);
}

/* 1 found, 0 not found, or a negative tsr_status. */
static int is_found(matcher *m, size_t rule, tsr_text text) {
  assert(rule < m->rules->items.count);
  spent *used = &m->spent[rule];
  if (used->is_disabled) return 0;
  assert(used->slow_bytes <= SLOW_BYTES && used->given_up < GIVEN_UP_TEXTS);
  if (text.size_bytes > TEXT_BYTES) text.size_bytes = TEXT_BYTES;
  int code = try_text(m, rule, text, QUICK_LIMIT);
  if (code == PCRE2_ERROR_MATCHLIMIT) {
    used->slow_bytes += (uint32_t)text.size_bytes;
    used->is_disabled = used->slow_bytes > SLOW_BYTES;
    if (used->is_disabled) return give_up(m, rule, text);
    code = try_text(m, rule, text, MATCH_LIMIT);
  }
  if (code >= 0) return 1;
  if (code == PCRE2_ERROR_NOMATCH) return 0;
  if (code == PCRE2_ERROR_NOMEMORY) return tsr__fail_memory(m->error);
  used->is_disabled = ++used->given_up == GIVEN_UP_TEXTS;
  return give_up(m, rule, text);
}

static int match_text(matcher *m, uint32_t string, uint32_t *out) {
  if (string >= tsr_snapshot_string_count(m->snapshot)) {
    *out = TSR__RULE_NONE;
    return 0;
  }
  if (m->of_text[string] == UNTRIED) {
    tsr_text text = tsr_snapshot_string(m->snapshot, string);
    uint32_t rule = 0;
    int answer = 0;
    while (rule < m->rules->items.count && (answer = is_found(m, rule, text)) == 0) rule++;
    if (answer < 0) return answer;
    m->of_text[string] = answer ? rule : TSR__RULE_NONE;
  }
  *out = m->of_text[string];
  return 0;
}

static int match_frames(matcher *m) {
  for (uint32_t i = 0; i < tsr_snapshot_frame_count(m->snapshot); i++) {
    tsr_frame frame = tsr_snapshot_frame(m->snapshot, i);
    uint32_t by_name, by_file;
    int status = match_text(m, frame.name, &by_name);
    if (!status) status = match_text(m, frame.file, &by_file);
    if (status) return status;
    m->of_frame[i] = by_name < by_file ? by_name : by_file;
  }
  return 0;
}

static void match_stacks(const matcher *m, tsr__rule_stacks *out) {
  for (uint32_t i = 0; i < out->count; i++) {
    tsr_stack stack = tsr_snapshot_stack(m->snapshot, i);
    uint32_t first = TSR__RULE_NONE;
    for (uint32_t k = 0; k < stack.depth; k++)
      if (m->of_frame[stack.frames[k]] < first) first = m->of_frame[stack.frames[k]];
    out->stacks[i] = first;
  }
}

static void sum_up(const matcher *m, tsr__rule_stacks *out) {
  out->given_up_rule = out->disabled_rule = TSR__RULE_NONE;
  for (size_t i = m->rules->items.count; i-- > 0;) {
    out->given_up += m->spent[i].given_up;
    out->disabled += m->spent[i].is_disabled;
    if (m->spent[i].given_up) out->given_up_rule = (uint32_t)i;
    if (m->spent[i].is_disabled) out->disabled_rule = (uint32_t)i;
  }
}

int tsr__rules_match(const tsr_rules *rules, const tsr_snapshot *snapshot, tsr__rule_stacks *out,
                     tsr_error *error) {
  matcher m = {.rules = rules, .snapshot = snapshot, .error = error};
  tsr__rule_stacks stacks = {.count = tsr_snapshot_stack_count(snapshot)};
  stacks.stacks = TSR__NEW_ARRAY(uint32_t, stacks.count);
  bool is_open = stacks.stacks && matcher_open(&m);
  int status = is_open ? match_frames(&m) : tsr__fail_memory(error);
  if (is_open && !status) {
    match_stacks(&m, &stacks);
    sum_up(&m, &stacks);
    *out = stacks;
  } else {
    tsr__free(stacks.stacks);
  }
  matcher_close(&m);
  return status;
}

void tsr__rule_stacks_release(tsr__rule_stacks *stacks) {
  tsr__free(stacks->stacks);
  *stacks = (tsr__rule_stacks){0};
}
