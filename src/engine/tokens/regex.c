/* regex.c - see regex.h. */
#include "tokens/regex.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/pcre.h"

/* Backtracking: as much as Oniguruma does at most, and some for each byte of long runs. */
enum { MATCH_LIMIT = 10000000, MATCH_LIMIT_PER_BYTE = 16, HEAP_LIMIT_KIB = 256 * 1024 };
enum { JIT_STACK_START = 32 * 1024, JIT_STACK_MOST = 8 * 1024 * 1024 };

struct tsr__regex {
  pcre2_code *code; /* NULL for a literal */
  char *literal;
  size_t literal_bytes;
};

struct tsr__matcher {
  pcre2_general_context *memory;
  pcre2_match_context *limits;
  pcre2_jit_stack *stack;
  pcre2_match_data *found;
};

/* ---- translation ---- */

typedef struct translator {
  const char *text;
  size_t size, at;
  tsr__buffer out;
  unsigned depth, folded_depth; /* open groups; the group that ignores case, or 0 */
  bool has_atom, has_count;     /* what a quantifier may follow; the item before was {n,m} */
  int status;
  tsr_error *error;
} translator;

static void refuse(translator *t, const char *what) {
  if (t->status) return;
  t->status = tsr__fail(t->error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                        "the pattern '%.100s' has %s at byte %zu, which tessera does not support",
                        t->text, what, t->at);
}

static char next(const translator *t, size_t ahead) {
  return t->at + ahead < t->size ? t->text[t->at + ahead] : 0;
}

static void copy(translator *t, size_t count) {
  tsr__buffer_append(&t->out, t->text + t->at, count);
  t->at += count;
}

/* General categories, which both libraries spell alike. */
static const char *const categories[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No", "P", "Pc",
    "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp"};
/* Scripts, where a bare name means the script's extensions to PCRE2. */
static const char *const scripts[] = {"Han",      "Hiragana", "Katakana", "Hangul", "Latin",
                                      "Cyrillic", "Greek",    "Arabic",   "Thai",   "Hebrew"};

static bool is_listed(const char *const *list, size_t count, const char *name, size_t length) {
  for (size_t i = 0; i < count; i++)
    if (strlen(list[i]) == length && memcmp(list[i], name, length) == 0) return true;
  return false;
}

static const struct {
  uint32_t first, last;
  char category[3];
} newer[] = {
#define X(first, last, category) {first, last, category},
#include "tokens/newer.def"
#undef X
};

/* A category, "L" or "Lu", with the characters that PCRE2 may not know yet. */
static void category(translator *t, const char *name, size_t length) {
  tsr__buffer_printf(&t->out, "\\p{%.*s}", (int)length, name);
  for (size_t i = 0; i < sizeof newer / sizeof *newer; i++)
    if (memcmp(newer[i].category, name, length) == 0)
      tsr__buffer_printf(&t->out, "\\x{%X}-\\x{%X}", (unsigned)newer[i].first,
                         (unsigned)newer[i].last);
}

/* A property or its negation, which only stands by itself. */
static void characters(translator *t, const char *name, size_t length, bool is_negated,
                       bool is_in_set) {
  bool is_category = is_listed(categories, sizeof categories / sizeof *categories, name, length);
  if (is_negated && is_in_set)
    refuse(t, "a negated property in a set");
  else if (!is_category && !is_listed(scripts, sizeof scripts / sizeof *scripts, name, length))
    refuse(t, "a property");
  if (!is_in_set) tsr__buffer_text(&t->out, is_negated ? "[^" : "[");
  if (is_category)
    category(t, name, length);
  else
    tsr__buffer_printf(&t->out, "\\p{sc:%.*s}", (int)length, name);
  if (!is_in_set) tsr__buffer_text(&t->out, "]");
}

/* \p{Name} and \P{Name}. */
static void property(translator *t, bool is_in_set) {
  const char *name = t->text + t->at + 3;
  const char *end = next(t, 2) == '{' ? memchr(name, '}', t->size - t->at - 3) : NULL;
  if (!end) {
    refuse(t, "a property without braces");
    return;
  }
  size_t length = (size_t)(end - name);
  characters(t, name, length, next(t, 1) == 'P', is_in_set);
  t->at += length + 4;
}

/* An escape, inside a set or not. */
static void escape(translator *t, bool is_in_set) {
  char letter = next(t, 1);
  if (t->folded_depth && letter && strchr("pPsSdD", letter)) {
    refuse(t, "a class that ignores case");
  } else if (letter == 'p' || letter == 'P') {
    property(t, is_in_set);
  } else if (letter == 's' || letter == 'S') {
    tsr__buffer_printf(&t->out, "\\%c{White_Space}", letter == 's' ? 'p' : 'P');
    t->at += 2;
  } else if (letter == 'd' || letter == 'D') {
    characters(t, "Nd", 2, letter == 'D', is_in_set);
    t->at += 2;
  } else if ((letter && strchr("rntfv", letter)) ||
             (letter > ' ' && letter < 127 && !strchr("0123456789", letter) &&
              !((letter | 32) >= 'a' && (letter | 32) <= 'z'))) {
    if (letter == 'v')
      tsr__buffer_text(&t->out, "\\x0b");
    else
      tsr__buffer_append(&t->out, t->text + t->at, 2);
    t->at += 2;
  } else {
    refuse(t, "an escape");
  }
}

static size_t character_bytes(const translator *t) {
  size_t length = 1;
  while (((unsigned char)next(t, length) & 0xC0) == 0x80) length++;
  return length;
}

/* A set in brackets. */
static void set(translator *t) {
  size_t first = t->at;
  copy(t, next(t, 1) == '^' ? 2 : 1);
  bool is_negated = t->text[t->at - 1] == '^';
  if (next(t, 0) == ']') refuse(t, "an empty set");
  while (!t->status && t->at < t->size && next(t, 0) != ']') {
    if (next(t, 0) == '[')
      refuse(t, "a set in a set");
    else if (next(t, 0) == '&' && next(t, 1) == '&')
      refuse(t, "an intersection of sets");
    else if (t->folded_depth && (is_negated || next(t, 0) == '\\' || character_bytes(t) > 1))
      refuse(t, "a set that ignores case");
    else if (next(t, 0) == '\\')
      escape(t, true);
    else
      copy(t, character_bytes(t));
  }
  if (t->at >= t->size) {
    t->at = first;
    refuse(t, "a set without an end");
  } else if (!t->status) {
    copy(t, 1);
  }
}

static void open_group(translator *t) {
  static const char *const forms[] = {"(?:", "(?!", "(?=", "(?i:", "("};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    size_t length = strlen(forms[i]);
    if (t->size - t->at < length || memcmp(t->text + t->at, forms[i], length) != 0) continue;
    if (length == 1 && next(t, 1) == '?') break;
    t->depth++;
    if (length == 4 && !t->folded_depth) t->folded_depth = t->depth;
    copy(t, length);
    t->has_atom = false;
    return;
  }
  refuse(t, "a group of another form than (?:...), (?i:...), (?=...) and (?!...)");
}

static void close_group(translator *t) {
  if (t->folded_depth == t->depth) t->folded_depth = 0;
  if (!t->depth)
    refuse(t, "a parenthesis too many");
  else
    t->depth--;
  copy(t, 1);
  t->has_atom = true;
}

/* {n}, {n,} and {n,m}. */
static void count(translator *t) {
  size_t length = 1, digits = 0, commas = 0;
  for (; next(t, length) && strchr("0123456789,", next(t, length)); length++) {
    commas += next(t, length) == ',';
    digits += next(t, length) != ',' && !commas;
  }
  if (next(t, length) != '}' || !digits || digits > 4 || length > 10 || commas > 1)
    refuse(t, "a count");
  else
    copy(t, length + 1);
  t->has_count = true;
}

static void quantifier(translator *t) {
  if (!t->has_atom) {
    refuse(t, "a quantifier of nothing");
    return;
  }
  t->has_atom = t->has_count = false;
  if (next(t, 0) == '{')
    count(t);
  else
    copy(t, 1);
  char more = next(t, 0);
  if (more && strchr("*{", more)) refuse(t, "a quantifier of a quantifier");
  if (more != '+' && more != '?') return;
  if (t->has_count)
    refuse(t, "a count that is lazy or possessive");
  else
    copy(t, 1);
  more = next(t, 0);
  if (more && strchr("*{+?", more)) refuse(t, "a quantifier of a quantifier");
}

/* Letters that another character folds to together, as the ligatures do. */
static void literal(translator *t) {
  static const char *const pairs[] = {"ss", "ff", "fi", "fl", "st"};
  size_t length = character_bytes(t);
  if (t->folded_depth) {
    char two[3] = {(char)(next(t, 0) | 32), (char)(next(t, 1) | 32), 0};
    if (length > 1) refuse(t, "a character beyond ASCII that ignores case");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
      if (strcmp(pairs[i], two) == 0) refuse(t, "letters with ligatures that ignore case");
  }
  copy(t, length);
  t->has_atom = true;
}

static void item(translator *t) {
  char c = next(t, 0);
  bool is_atom = true;
  if (c == '\\')
    escape(t, false);
  else if (c == '[')
    set(t);
  else if (c == '^' || c == '$')
    refuse(t, "an anchor");
  else if (!c)
    refuse(t, "a zero byte");
  else if (strchr("*+?{", c))
    quantifier(t), is_atom = false;
  else if (c == '(')
    open_group(t), is_atom = false;
  else if (c == ')')
    close_group(t);
  else if (c == '|')
    copy(t, 1), is_atom = false, t->has_atom = false;
  else
    literal(t);
  if (is_atom) t->has_atom = true;
}

/* ---- compiling ---- */

/* Compile `written`, PCRE2's form of `pattern`. */
static int compile(tsr__regex *regex, const char *pattern, const char *written, size_t size_bytes,
                   tsr_error *error) {
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY;
  pcre2_general_context *memory = tsr__pcre_memory();
  pcre2_compile_context *how = memory ? pcre2_compile_context_create(memory) : NULL;
  int code = PCRE2_ERROR_NOMEMORY;
  uint32_t may_be_empty = 0;
  PCRE2_SIZE offset = 0;
  if (how && pcre2_set_newline(how, PCRE2_NEWLINE_LF) == 0)
    regex->code = pcre2_compile((PCRE2_SPTR)written, size_bytes, options, &code, &offset, how);
  pcre2_compile_context_free(how);
  pcre2_general_context_free(memory);
  if (!regex->code) {
    PCRE2_UCHAR message[120] = {0};
    if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
      return tsr__fail_memory(error);
    (void)pcre2_get_error_message(code, message, sizeof message);
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "the pattern '%.100s': %s", pattern,
                     (const char *)message);
  }
  (void)pcre2_pattern_info(regex->code, PCRE2_INFO_MATCHEMPTY, &may_be_empty);
  if (may_be_empty)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "the pattern '%.100s' may match an empty text, which tessera does not support",
                     pattern);
  /* Without executable memory PCRE2 interprets it. */
  (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
  return 0;
}

int tsr__regex_new(const char *pattern, size_t size_bytes, tsr__regex **out, tsr_error *error) {
  translator t = {.text = pattern, .size = size_bytes, .error = error};
  while (!t.status && t.at < t.size) item(&t);
  if (t.depth) refuse(&t, "a parenthesis too few");
  tsr__buffer_append(&t.out, "", 1);
  t.out.size -= !t.out.failed;
  tsr__regex *regex = t.out.failed ? NULL : TSR__NEW(tsr__regex);
  int status = t.status;
  if (!status)
    status =
        regex ? compile(regex, pattern, t.out.data, t.out.size, error) : tsr__fail_memory(error);
  tsr__buffer_release(&t.out);
  if (status)
    tsr__regex_free(regex);
  else
    *out = regex;
  return status;
}

int tsr__regex_word(tsr__regex **out, tsr_error *error) {
  static const char *const names[] = {"L", "M", "Nd", "Nl", "Pc"};
  translator t = {0};
  tsr__buffer_text(&t.out, "[\\p{Alphabetic}\\p{Join_Control}");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    category(&t, names[i], strlen(names[i]));
  tsr__buffer_text(&t.out, "]");
  tsr__regex *regex = t.out.failed ? NULL : TSR__NEW(tsr__regex);
  int status =
      regex ? compile(regex, "\\w", t.out.data, t.out.size, error) : tsr__fail_memory(error);
  tsr__buffer_release(&t.out);
  if (status)
    tsr__regex_free(regex);
  else
    *out = regex;
  return status;
}

int tsr__regex_literal(const char *text, size_t size_bytes, tsr__regex **out, tsr_error *error) {
  assert(size_bytes);
  tsr__regex *regex = TSR__NEW(tsr__regex);
  char *literal = TSR__NEW_ARRAY(char, size_bytes);
  if (!regex || !literal) {
    tsr__free(regex);
    tsr__free(literal);
    return tsr__fail_memory(error);
  }
  memcpy(literal, text, size_bytes);
  *regex = (tsr__regex){.literal = literal, .literal_bytes = size_bytes};
  *out = regex;
  return 0;
}

void tsr__regex_free(tsr__regex *regex) {
  if (!regex) return;
  pcre2_code_free(regex->code);
  tsr__free(regex->literal);
  tsr__free(regex);
}

/* ---- matching ---- */

tsr__matcher *tsr__matcher_new(void) {
  tsr__matcher *m = TSR__NEW(tsr__matcher);
  uint32_t has_jit = 0;
  if (!m) return NULL;
  (void)pcre2_config(PCRE2_CONFIG_JIT, &has_jit);
  m->memory = tsr__pcre_memory();
  if (m->memory) {
    m->limits = pcre2_match_context_create(m->memory);
    m->found = pcre2_match_data_create(1, m->memory);
    if (has_jit) m->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MOST, m->memory);
  }
  if (!m->memory || !m->limits || !m->found || (has_jit && !m->stack)) {
    tsr__matcher_free(m);
    return NULL;
  }
  (void)pcre2_set_heap_limit(m->limits, HEAP_LIMIT_KIB);
  if (m->stack) pcre2_jit_stack_assign(m->limits, NULL, m->stack);
  return m;
}

void tsr__matcher_free(tsr__matcher *m) {
  if (!m) return;
  pcre2_match_data_free(m->found);
  pcre2_match_context_free(m->limits);
  pcre2_jit_stack_free(m->stack);
  pcre2_general_context_free(m->memory);
  tsr__free(m);
}

static int find_literal(const tsr__regex *regex, const char *text, size_t size_bytes, size_t from,
                        size_t *start, size_t *end) {
  size_t wanted = regex->literal_bytes;
  while (size_bytes - from >= wanted) {
    const char *at = memchr(text + from, regex->literal[0], size_bytes - from - wanted + 1);
    if (!at) return 0;
    if (memcmp(at, regex->literal, wanted) == 0) {
      *start = (size_t)(at - text);
      *end = *start + wanted;
      return 1;
    }
    from = (size_t)(at - text) + 1;
  }
  return 0;
}

int tsr__regex_find(const tsr__regex *regex, tsr__matcher *matcher, const char *text,
                    size_t size_bytes, size_t from, size_t *start, size_t *end, tsr_error *error) {
  assert(from <= size_bytes);
  if (!regex->code) return find_literal(regex, text, size_bytes, from, start, end);
  uint64_t limit = MATCH_LIMIT + (uint64_t)MATCH_LIMIT_PER_BYTE * (size_bytes - from);
  (void)pcre2_set_match_limit(matcher->limits, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
  int code = pcre2_match(regex->code, (PCRE2_SPTR)text, size_bytes, from, PCRE2_NO_UTF_CHECK,
                         matcher->found, matcher->limits);
  if (code == PCRE2_ERROR_JIT_STACKLIMIT)
    code = pcre2_match(regex->code, (PCRE2_SPTR)text, size_bytes, from,
                       PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, matcher->found, matcher->limits);
  if (code == PCRE2_ERROR_NOMATCH) return 0;
  if (code == PCRE2_ERROR_NOMEMORY) return tsr__fail_memory(error);
  if (code < 0)
    return tsr__fail(error, TSR_ERROR_LIMIT, from,
                     "the tokenizer's pattern tries too many ways to divide the text from here on");
  const PCRE2_SIZE *range = pcre2_get_ovector_pointer(matcher->found);
  assert(range[1] > range[0]);
  *start = range[0];
  *end = range[1];
  return 1;
}
