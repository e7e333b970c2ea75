/* template_run.c - see template.h. Rule: jinja2, runtime.py, filters.py and tests.py, and Python's methods of texts. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokens/added.h"
#include "tokens/template.h"

enum { MOST_STEPS = 1000000, MOST_BYTES = 64 << 20, MOST_DEPTH = 200 };

typedef enum value_kind { UNDEFINED, NONE, TRUTH, INTEGER, TEXT, LIST, MAP } value_kind;

typedef struct value value;
typedef struct entry entry;

struct value {
  value_kind kind;
  int64_t integer; /* INTEGER, TRUTH */
  tsr_text text;
  value *items; /* LIST */
  size_t count;
  entry **map; /* MAP: the first entry, in order of their making */
};

struct entry {
  tsr_text key;
  value value;
  entry *next;
};

/* Names that a block has given. */
typedef struct scope {
  entry *first;
  struct scope *outer;
} scope;

typedef struct run {
  tsr__arena arena;
  tsr__buffer *out;
  size_t steps, first_size;
  unsigned depth;
  scope *scope;
  int status;
  tsr_error *error;
} run;

static const value nothing = {.kind = UNDEFINED};

static value refuse(run *r, tsr_status status, const char *what, tsr_text about) {
  int shown = about.size_bytes < 150 ? (int)about.size_bytes : 150;
  if (!r->status)
    r->status = tsr__fail(r->error, status, TSR_OFFSET_NONE, "the chat template %s%.*s", what,
                          shown, about.data ? about.data : "");
  return nothing;
}

static value unsupported(run *r, const char *what, tsr_text name) {
  return refuse(r, TSR_ERROR_UNSUPPORTED, what, name);
}

static void *allocate(run *r, size_t count, size_t size) {
  void *memory = NULL;
  if (r->status) return NULL;
  if (count > MOST_BYTES / size || r->arena.total_bytes > MOST_BYTES)
    (void)refuse(r, TSR_ERROR_LIMIT, "takes more memory than chat templates may", (tsr_text){0});
  else if (!(memory = tsr__arena_alloc(&r->arena, count * size, 8)))
    r->status = tsr__fail_memory(r->error);
  return memory;
}

/* ---- values ---- */

static tsr_text words(const char *text) {
  return (tsr_text){text, strlen(text)};
}

static bool is_same_text(tsr_text a, tsr_text b) {
  return a.size_bytes == b.size_bytes &&
         (!a.size_bytes || memcmp(a.data, b.data, a.size_bytes) == 0);
}

static bool text_is(tsr_text text, const char *word) {
  return is_same_text(text, words(word));
}

static value text_value(tsr_text text) {
  return (value){.kind = TEXT, .text = text};
}

static value truth_value(bool is_true) {
  return (value){.kind = TRUTH, .integer = is_true};
}

static value integer_value(int64_t integer) {
  return (value){.kind = INTEGER, .integer = integer};
}

static bool is_true(value v) {
  switch (v.kind) {
  case UNDEFINED:
  case NONE: return false;
  case TRUTH:
  case INTEGER: return v.integer != 0;
  case TEXT: return v.text.size_bytes != 0;
  case LIST: return v.count != 0;
  case MAP: return *v.map != NULL;
  }
  return false;
}

static bool is_equal(value a, value b) {
  bool is_number = (a.kind == INTEGER || a.kind == TRUTH) && (b.kind == INTEGER || b.kind == TRUTH);
  if (is_number) return a.integer == b.integer;
  if (a.kind != b.kind) return false;
  if (a.kind == TEXT) return is_same_text(a.text, b.text);
  if (a.kind == MAP) return a.map == b.map;
  if (a.kind != LIST) return true;
  bool is_same = a.count == b.count;
  for (size_t i = 0; is_same && i < a.count; i++) is_same = is_equal(a.items[i], b.items[i]);
  return is_same;
}

static entry *find(entry *first, tsr_text key) {
  while (first && !is_same_text(first->key, key)) first = first->next;
  return first;
}

static void put(run *r, entry **first, tsr_text key, value v) {
  entry *found = find(*first, key);
  if (!found) {
    while (*first) first = &(*first)->next;
    found = allocate(r, 1, sizeof *found);
    if (!found) return;
    *found = (entry){.key = key};
    *first = found;
  }
  found->value = v;
}

static value new_map(run *r) {
  value made = {.kind = MAP, .map = allocate(r, 1, sizeof *made.map)};
  if (!made.map) return nothing;
  *made.map = NULL;
  return made;
}

static value lookup(const run *r, tsr_text name) {
  for (const scope *s = r->scope; s; s = s->outer) {
    entry *found = find(s->first, name);
    if (found) return found->value;
  }
  return nothing;
}

/* What {{ }} writes. */
static tsr_text as_text(run *r, value v) {
  char *digits;
  switch (v.kind) {
  case UNDEFINED: return (tsr_text){"", 0};
  case NONE: return words("None");
  case TRUTH: return words(v.integer ? "True" : "False");
  case TEXT: return v.text;
  case INTEGER:
    digits = allocate(r, 24, 1);
    if (!digits) break;
    (void)snprintf(digits, 24, "%lld", (long long)v.integer);
    return words(digits);
  case LIST:
  case MAP: (void)unsupported(r, "writes a list, which is not supported", (tsr_text){0});
  }
  return (tsr_text){"", 0};
}

static tsr_text joined(run *r, tsr_text a, tsr_text b) {
  char *made = allocate(r, a.size_bytes + b.size_bytes + 1, 1);
  if (!made) return (tsr_text){"", 0};
  if (a.size_bytes) memcpy(made, a.data, a.size_bytes);
  if (b.size_bytes) memcpy(made + a.size_bytes, b.data, b.size_bytes);
  return (tsr_text){made, a.size_bytes + b.size_bytes};
}

/* ---- texts ---- */

/* White space as Python's strip has it. */
static bool is_blank(uint32_t code) {
  return tsr__is_white_space(code) || (code >= 0x1C && code <= 0x1F);
}

static bool is_stripped(uint32_t code, const tsr_text *set) {
  if (!set) return is_blank(code);
  for (size_t at = 0; at < set->size_bytes;) {
    uint32_t other;
    at += tsr__utf8_decode(set->data + at, set->size_bytes - at, &other);
    if (other == code) return true;
  }
  return false;
}

/* `set` NULL: white space. */
static tsr_text strip(tsr_text text, const tsr_text *set, bool left, bool right) {
  uint32_t code;
  while (left && text.size_bytes) {
    size_t length = tsr__utf8_decode(text.data, text.size_bytes, &code);
    if (!is_stripped(code, set)) break;
    text.data += length;
    text.size_bytes -= length;
  }
  while (right && text.size_bytes) {
    size_t at = text.size_bytes - 1;
    while (at && ((unsigned char)text.data[at] & 0xC0) == 0x80) at--;
    (void)tsr__utf8_decode(text.data + at, text.size_bytes - at, &code);
    if (!is_stripped(code, set)) break;
    text.size_bytes = at;
  }
  return text;
}

static const char *search(tsr_text text, tsr_text wanted) {
  for (size_t at = 0; at + wanted.size_bytes <= text.size_bytes; at++)
    if (memcmp(text.data + at, wanted.data, wanted.size_bytes) == 0) return text.data + at;
  return NULL;
}

static size_t character_count(tsr_text text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size_bytes; i++)
    count += ((unsigned char)text.data[i] & 0xC0) != 0x80;
  return count;
}

/* The byte at which a character begins. */
static size_t byte_of(tsr_text text, size_t character) {
  size_t at = 0;
  for (; at < text.size_bytes; at++)
    if (((unsigned char)text.data[at] & 0xC0) != 0x80 && character-- == 0) break;
  return at;
}

static value split(run *r, tsr_text text, tsr_text by) {
  size_t count = 1;
  for (const char *at = text.data, *found;
       (found = search((tsr_text){at, text.size_bytes - (size_t)(at - text.data)}, by));
       at = found + by.size_bytes)
    count++;
  value made = {.kind = LIST, .items = allocate(r, count, sizeof *made.items), .count = count};
  if (!made.items) return nothing;
  for (size_t i = 0; i < count; i++) {
    const char *found = search(text, by);
    size_t length = found ? (size_t)(found - text.data) : text.size_bytes;
    made.items[i] = text_value((tsr_text){text.data, length});
    text.data += length + (found ? by.size_bytes : 0);
    text.size_bytes -= length + (found ? by.size_bytes : 0);
  }
  return made;
}

static value changed_case(run *r, tsr_text text, bool is_upper) {
  char *made = allocate(r, text.size_bytes + 1, 1);
  for (size_t i = 0; made && i < text.size_bytes; i++) {
    char c = text.data[i], from = is_upper ? 'a' : 'A';
    if ((unsigned char)c >= 0x80)
      return unsupported(r, "changes the case of letters beyond ASCII", (tsr_text){0});
    made[i] = c >= from && c <= from + 25 ? (char)(c ^ 32) : c;
  }
  return made ? text_value((tsr_text){made, text.size_bytes}) : nothing;
}

static value replaced(run *r, tsr_text text, tsr_text from, tsr_text to) {
  if (!from.size_bytes) return unsupported(r, "replaces an empty text", (tsr_text){0});
  value parts = split(r, text, from);
  tsr_text made = {"", 0};
  for (size_t i = 0; !r->status && i < parts.count; i++) {
    if (i) made = joined(r, made, to);
    made = joined(r, made, parts.items[i].text);
  }
  return text_value(made);
}

/* ---- expressions ---- */

static value evaluate(run *r, const tsr__template_node *n);

enum { ARGUMENTS_MOST = 4 };

/* Positional arguments that are texts; returns their number, or -1 for others. */
static int text_arguments(run *r, const tsr__template_node *first, tsr_text out[ARGUMENTS_MOST]) {
  int count = 0;
  for (const tsr__template_node *at = first; at; at = at->next) {
    value v = evaluate(r, at);
    if (count == ARGUMENTS_MOST || at->kind == TSR__NODE_NAMED || v.kind != TEXT) return -1;
    out[count++] = v.text;
  }
  return count;
}

static value method(run *r, tsr_text of, tsr_text name, const tsr__template_node *arguments) {
  tsr_text given[ARGUMENTS_MOST];
  int count = text_arguments(r, arguments, given);
  const tsr_text *set = count == 1 ? &given[0] : NULL;
  if (r->status) return nothing;
  if (count == 0 || count == 1) {
    if (text_is(name, "strip")) return text_value(strip(of, set, true, true));
    if (text_is(name, "lstrip")) return text_value(strip(of, set, true, false));
    if (text_is(name, "rstrip")) return text_value(strip(of, set, false, true));
  }
  if (count == 1) {
    size_t size = given[0].size_bytes;
    bool fits = size <= of.size_bytes;
    if (text_is(name, "startswith"))
      return truth_value(fits && is_same_text((tsr_text){of.data, size}, given[0]));
    if (text_is(name, "endswith"))
      return truth_value(fits &&
                         is_same_text((tsr_text){of.data + of.size_bytes - size, size}, given[0]));
    if (text_is(name, "split") && size) return split(r, of, given[0]);
  }
  if (count == 2 && text_is(name, "replace")) return replaced(r, of, given[0], given[1]);
  if (count == 0 && (text_is(name, "upper") || text_is(name, "lower")))
    return changed_case(r, of, text_is(name, "upper"));
  return unsupported(r, "calls a method that is not supported: ", name);
}

static value call(run *r, const tsr__template_node *n) {
  const tsr__template_node *of = n->a;
  if (of->kind == TSR__NODE_ATTRIBUTE) {
    value v = evaluate(r, of->a);
    if (v.kind == TEXT) return method(r, v.text, of->text, n->body);
    return unsupported(r, "calls a method that is not supported: ", of->text);
  }
  if (of->kind == TSR__NODE_NAME && text_is(of->text, "raise_exception")) {
    tsr_text given[ARGUMENTS_MOST];
    if (text_arguments(r, n->body, given) != 1) given[0] = words("an error");
    return refuse(r, TSR_ERROR_ARGUMENT, "refuses the conversation: ", given[0]);
  }
  if (of->kind != TSR__NODE_NAME || !text_is(of->text, "namespace"))
    return unsupported(r, "calls a function that is not supported: ", of->text);
  value made = new_map(r);
  for (const tsr__template_node *at = n->body; at && !r->status; at = at->next) {
    if (at->kind != TSR__NODE_NAMED) return unsupported(r, "has a namespace of a value", of->text);
    value v = evaluate(r, at->a);
    if (!r->status) put(r, made.map, at->text, v);
  }
  return made;
}

static value item_of(run *r, value of, value key) {
  if (of.kind == UNDEFINED)
    return refuse(r, TSR_ERROR_ARGUMENT, "looks into what is not defined", (tsr_text){0});
  if (of.kind == MAP && key.kind == TEXT) {
    entry *found = find(*of.map, key.text);
    return found ? found->value : nothing;
  }
  if ((of.kind != LIST && of.kind != TEXT) || (key.kind != INTEGER && key.kind != TRUTH))
    return nothing;
  int64_t count = (int64_t)(of.kind == LIST ? of.count : character_count(of.text));
  int64_t index = key.integer < 0 ? key.integer + count : key.integer;
  if (index < 0 || index >= count) return nothing;
  if (of.kind == LIST) return of.items[index];
  size_t at = byte_of(of.text, (size_t)index), end = byte_of(of.text, (size_t)index + 1);
  return text_value((tsr_text){of.text.data + at, end - at});
}

/* The end of a slice as Python counts it. */
static bool read_bound(run *r, const tsr__template_node *n, int64_t count, int64_t fallback,
                       int64_t *out) {
  value v = n ? evaluate(r, n) : (value){.kind = NONE};
  *out = fallback;
  if (v.kind == NONE) return true;
  if (v.kind != INTEGER) return false;
  *out = v.integer < 0 ? v.integer + count : v.integer;
  if (*out < 0) *out = 0;
  if (*out > count) *out = count;
  return true;
}

static value slice(run *r, const tsr__template_node *n) {
  value of = evaluate(r, n->a);
  int64_t count = (int64_t)(of.kind == LIST ? of.count : character_count(of.text)), from, to;
  bool ok = (of.kind == LIST || of.kind == TEXT) && read_bound(r, n->b, count, 0, &from) &&
            read_bound(r, n->c, count, count, &to);
  if (!ok || r->status) return unsupported(r, "has a slice that is not supported", (tsr_text){0});
  if (to < from) to = from;
  if (of.kind == LIST) {
    of.items += from;
    of.count = (size_t)(to - from);
    return of;
  }
  size_t at = byte_of(of.text, (size_t)from), end = byte_of(of.text, (size_t)to);
  return text_value((tsr_text){of.text.data + at, end - at});
}

static value json_text(run *r, value v) {
  tsr_text text = v.kind == TEXT ? v.text : (tsr_text){0};
  char *made, *at;
  if (v.kind == NONE) return text_value(words("null"));
  if (v.kind == TRUTH) return text_value(words(v.integer ? "true" : "false"));
  if (v.kind == INTEGER) return text_value(as_text(r, v));
  if (v.kind != TEXT) return unsupported(r, "has 'tojson' of what is no text", text);
  at = made = allocate(r, 6 * text.size_bytes + 3, 1);
  if (!made) return nothing;
  *at++ = '"';
  for (size_t i = 0; i < text.size_bytes; i++) {
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    char c = text.data[i];
    const char *found = c ? strchr(from, c) : NULL;
    if (found)
      *at++ = '\\', *at++ = to[found - from];
    else if ((unsigned char)c < 0x20)
      at += snprintf(at, 7, "\\u%04x", (unsigned)c);
    else
      *at++ = c;
  }
  *at++ = '"';
  return text_value((tsr_text){made, (size_t)(at - made)});
}

static value filter(run *r, const tsr__template_node *n) {
  value v = evaluate(r, n->a);
  tsr_text name = n->text;
  if (r->status) return nothing;
  if (text_is(name, "default") || text_is(name, "d")) {
    if (!n->body || n->body->next || n->body->kind == TSR__NODE_NAMED)
      return unsupported(r, "has a filter with arguments that are not supported: ", name);
    return v.kind == UNDEFINED ? evaluate(r, n->body) : v;
  }
  if (n->body) return unsupported(r, "has a filter with arguments that are not supported: ", name);
  if (text_is(name, "trim")) return text_value(strip(as_text(r, v), NULL, true, true));
  if (text_is(name, "string")) return text_value(as_text(r, v));
  if (text_is(name, "tojson")) return json_text(r, v);
  if (text_is(name, "upper") || text_is(name, "lower"))
    return changed_case(r, as_text(r, v), text_is(name, "upper"));
  if (text_is(name, "length") || text_is(name, "count")) {
    size_t count = 0;
    if (v.kind == MAP)
      for (const entry *at = *v.map; at; at = at->next) count++;
    else if (v.kind == LIST || v.kind == TEXT)
      count = v.kind == LIST ? v.count : character_count(v.text);
    else if (v.kind != UNDEFINED)
      return refuse(r, TSR_ERROR_ARGUMENT, "has 'length' of what has none", (tsr_text){0});
    return integer_value((int64_t)count);
  }
  if ((text_is(name, "first") || text_is(name, "last")) && v.kind == LIST)
    return v.count ? v.items[text_is(name, "first") ? 0 : v.count - 1] : nothing;
  return unsupported(r, "has a filter that is not supported: ", name);
}

/* Tests that ask for one kind of value. */
static const struct {
  const char *name;
  int kind;
} kind_tests[] = {{"undefined", UNDEFINED}, {"none", NONE},     {"string", TEXT},
                  {"mapping", MAP},         {"boolean", TRUTH}, {"integer", INTEGER}};
enum { KIND_TESTS = sizeof kind_tests / sizeof *kind_tests };

/* False if there is no such test. */
static bool test_without_argument(tsr_text name, value v, bool *result) {
  bool is_number = v.kind == INTEGER || v.kind == TRUTH;
  for (size_t i = 0; i < KIND_TESTS; i++) {
    if (!text_is(name, kind_tests[i].name)) continue;
    *result = (int)v.kind == kind_tests[i].kind;
    return true;
  }
  if (text_is(name, "defined"))
    *result = v.kind != UNDEFINED;
  else if (text_is(name, "true") || text_is(name, "false"))
    *result = v.kind == TRUTH && (v.integer != 0) == text_is(name, "true");
  else if (text_is(name, "number"))
    *result = is_number;
  else if (text_is(name, "iterable") || text_is(name, "sequence"))
    *result = v.kind == TEXT || v.kind == LIST || v.kind == MAP || v.kind == UNDEFINED;
  else if ((text_is(name, "odd") || text_is(name, "even")) && is_number)
    *result = (v.integer % 2 != 0) == text_is(name, "odd");
  else
    return false;
  return true;
}

static value test(run *r, const tsr__template_node *n) {
  value v = evaluate(r, n->a);
  tsr_text name = n->text;
  bool result = false, is_equality = text_is(name, "equalto") && n->body && !n->body->next;
  if (r->status) return nothing;
  if (is_equality)
    result = is_equal(v, evaluate(r, n->body));
  else if (n->body || !test_without_argument(name, v, &result))
    return unsupported(r, "has a test that is not supported: ", name);
  return truth_value(result != (n->integer != 0));
}

static bool contains(run *r, value in, value what) {
  if (in.kind == TEXT && what.kind == TEXT) return search(in.text, what.text) != NULL;
  if (in.kind == MAP) return what.kind == TEXT && find(*in.map, what.text);
  for (size_t i = 0; in.kind == LIST && i < in.count; i++)
    if (is_equal(in.items[i], what)) return true;
  if (in.kind != LIST && in.kind != UNDEFINED)
    (void)refuse(r, TSR_ERROR_ARGUMENT, "has 'in' with what contains nothing", (tsr_text){0});
  return false;
}

static value arithmetic(run *r, tsr_text sign, value a, value b) {
  bool is_number = (a.kind == INTEGER || a.kind == TRUTH) && (b.kind == INTEGER || b.kind == TRUTH);
  if (text_is(sign, "+") && a.kind == TEXT && b.kind == TEXT)
    return text_value(joined(r, a.text, b.text));
  if (text_is(sign, "+") && a.kind == LIST && b.kind == LIST) {
    value made = {.kind = LIST, .count = a.count + b.count};
    made.items = allocate(r, made.count + 1, sizeof *made.items);
    if (!made.items) return nothing;
    for (size_t i = 0; i < made.count; i++)
      made.items[i] = i < a.count ? a.items[i] : b.items[i - a.count];
    return made;
  }
  if (!is_number || a.integer > INT32_MAX || a.integer < INT32_MIN || b.integer > INT32_MAX ||
      b.integer < INT32_MIN)
    return refuse(r, TSR_ERROR_ARGUMENT, "computes with values that do not fit together: ", sign);
  if (text_is(sign, "+")) return integer_value(a.integer + b.integer);
  if (text_is(sign, "-")) return integer_value(a.integer - b.integer);
  if (text_is(sign, "*")) return integer_value(a.integer * b.integer);
  if (!b.integer) return refuse(r, TSR_ERROR_ARGUMENT, "divides by zero: ", sign);
  if (text_is(sign, "/")) return unsupported(r, "has an operator that is not supported: ", sign);
  int64_t rest = a.integer % b.integer; /* as Python rounds: down */
  if (rest && (rest < 0) != (b.integer < 0)) rest += b.integer;
  return integer_value(text_is(sign, "%") ? rest : (a.integer - rest) / b.integer);
}

static int order(run *r, tsr_text sign, value a, value b) {
  bool is_number = (a.kind == INTEGER || a.kind == TRUTH) && (b.kind == INTEGER || b.kind == TRUTH);
  if (is_number) return (a.integer > b.integer) - (a.integer < b.integer);
  if (a.kind == LIST && b.kind == LIST)
    (void)unsupported(r, "orders lists, which is not supported: ", sign);
  if (a.kind != TEXT || b.kind != TEXT) {
    (void)refuse(r, TSR_ERROR_ARGUMENT, "compares values that do not fit together: ", sign);
    return 0;
  }
  size_t common = a.text.size_bytes < b.text.size_bytes ? a.text.size_bytes : b.text.size_bytes;
  int found = common ? memcmp(a.text.data, b.text.data, common) : 0;
  if (found) return found;
  return (a.text.size_bytes > b.text.size_bytes) - (a.text.size_bytes < b.text.size_bytes);
}

static value binary(run *r, const tsr__template_node *n) {
  tsr_text sign = n->text;
  value a = evaluate(r, n->a);
  if (text_is(sign, "and")) return is_true(a) ? evaluate(r, n->b) : a;
  if (text_is(sign, "or")) return is_true(a) ? a : evaluate(r, n->b);
  value b = evaluate(r, n->b);
  if (r->status) return nothing;
  if (text_is(sign, "==")) return truth_value(is_equal(a, b));
  if (text_is(sign, "!=")) return truth_value(!is_equal(a, b));
  if (text_is(sign, "in")) return truth_value(contains(r, b, a));
  if (text_is(sign, "not")) return truth_value(!contains(r, b, a));
  if (text_is(sign, "~")) {
    tsr_text left = as_text(r, a);
    return text_value(joined(r, left, as_text(r, b)));
  }
  if (text_is(sign, "<")) return truth_value(order(r, sign, a, b) < 0);
  if (text_is(sign, ">")) return truth_value(order(r, sign, a, b) > 0);
  if (text_is(sign, "<=")) return truth_value(order(r, sign, a, b) <= 0);
  if (text_is(sign, ">=")) return truth_value(order(r, sign, a, b) >= 0);
  return arithmetic(r, sign, a, b);
}

static value list(run *r, const tsr__template_node *n) {
  value made = {.kind = LIST};
  for (const tsr__template_node *at = n->body; at; at = at->next) made.count++;
  made.items = allocate(r, made.count + 1, sizeof *made.items);
  size_t i = 0;
  for (const tsr__template_node *at = n->body; at && made.items; at = at->next)
    made.items[i++] = evaluate(r, at);
  return made.items ? made : nothing;
}

static bool count_step(run *r) {
  if (!r->status && ++r->steps > MOST_STEPS)
    (void)refuse(r, TSR_ERROR_LIMIT, "takes more steps than chat templates may", (tsr_text){0});
  if (!r->status && r->depth > MOST_DEPTH)
    (void)refuse(r, TSR_ERROR_LIMIT, "is nested too deep", (tsr_text){0});
  return r->status == 0;
}

static value compute(run *r, const tsr__template_node *n) {
  switch (n->kind) {
  case TSR__NODE_TEXT: return text_value(n->text);
  case TSR__NODE_INTEGER: return integer_value(n->integer);
  case TSR__NODE_TRUTH: return truth_value(n->integer != 0);
  case TSR__NODE_NONE: return (value){.kind = NONE};
  case TSR__NODE_NAME: return lookup(r, n->text);
  case TSR__NODE_LIST: return list(r, n);
  case TSR__NODE_ATTRIBUTE: return item_of(r, evaluate(r, n->a), text_value(n->text));
  case TSR__NODE_SLICE: return slice(r, n);
  case TSR__NODE_CALL: return call(r, n);
  case TSR__NODE_FILTER: return filter(r, n);
  case TSR__NODE_TEST: return test(r, n);
  case TSR__NODE_NOT: return truth_value(!is_true(evaluate(r, n->a)));
  case TSR__NODE_BINARY: return binary(r, n);
  case TSR__NODE_CHOICE:
    if (is_true(evaluate(r, n->a))) return evaluate(r, n->b);
    return n->c ? evaluate(r, n->c) : nothing;
  case TSR__NODE_ITEM: {
    value of = evaluate(r, n->a);
    return item_of(r, of, evaluate(r, n->b));
  }
  case TSR__NODE_NEGATIVE: {
    value of = evaluate(r, n->a);
    if (of.kind == INTEGER) return integer_value(-of.integer);
    break;
  }
  default: break;
  }
  return unsupported(r, "has an expression that is not supported", (tsr_text){0});
}

static value evaluate(run *r, const tsr__template_node *n) {
  if (!n || !count_step(r)) return nothing;
  r->depth++;
  value made = compute(r, n);
  r->depth--;
  return r->status ? nothing : made;
}

/* ---- statements ---- */

static void execute(run *r, const tsr__template_node *n);

static void execute_set(run *r, const tsr__template_node *n) {
  const tsr__template_node *target = n->a;
  value v = evaluate(r, n->b);
  if (r->status) return;
  if (target->kind == TSR__NODE_NAME) {
    put(r, &r->scope->first, target->text, v);
    return;
  }
  value of = target->kind == TSR__NODE_ATTRIBUTE ? evaluate(r, target->a) : nothing;
  if (of.kind == MAP)
    put(r, of.map, target->text, v);
  else
    (void)unsupported(r, "sets what is no name and no attribute of a namespace", (tsr_text){0});
}

static void put_loop(run *r, value loop, const value *items, size_t index, size_t count) {
  const struct {
    const char *name;
    value value;
  } facts[] = {
      {"index", integer_value((int64_t)index + 1)},
      {"index0", integer_value((int64_t)index)},
      {"revindex", integer_value((int64_t)(count - index))},
      {"revindex0", integer_value((int64_t)(count - index) - 1)},
      {"first", truth_value(index == 0)},
      {"last", truth_value(index + 1 == count)},
      {"length", integer_value((int64_t)count)},
      {"previtem", index ? items[index - 1] : nothing},
      {"nextitem", index + 1 < count ? items[index + 1] : nothing},
  };
  for (size_t i = 0; !r->status && i < sizeof facts / sizeof *facts; i++)
    put(r, loop.map, words(facts[i].name), facts[i].value);
}

/* The items for which the loop's condition is true. */
static value chosen(run *r, const tsr__template_node *n, value over) {
  value made = {.kind = LIST, .items = allocate(r, over.count + 1, sizeof *made.items)};
  for (size_t i = 0; made.items && i < over.count && !r->status; i++) {
    scope inner = {.outer = r->scope};
    r->scope = &inner;
    put(r, &inner.first, n->text, over.items[i]);
    if (is_true(evaluate(r, n->b))) made.items[made.count++] = over.items[i];
    r->scope = inner.outer;
  }
  return made.items ? made : nothing;
}

/* Each iteration has its own names. */
static void execute_for(run *r, const tsr__template_node *n) {
  value over = evaluate(r, n->a);
  if (r->status) return;
  if (over.kind != LIST && over.kind != UNDEFINED) {
    (void)unsupported(r, "has a loop over what is no list", (tsr_text){0});
    return;
  }
  if (n->integer && over.count) {
    (void)unsupported(r, "has a loop with several variables", (tsr_text){0});
    return;
  }
  if (n->b) over = chosen(r, n, over);
  for (size_t i = 0; i < over.count && !r->status; i++) {
    scope inner = {.outer = r->scope};
    value loop = new_map(r);
    if (r->status) return;
    put_loop(r, loop, over.items, i, over.count);
    r->scope = &inner;
    put(r, &inner.first, words("loop"), loop);
    put(r, &inner.first, n->text, over.items[i]);
    execute(r, n->body);
    r->scope = inner.outer;
  }
  if (!over.count) execute(r, n->otherwise);
}

static void write_text(run *r, tsr_text text) {
  if (r->status) return;
  if (r->out->size - r->first_size > MOST_BYTES - text.size_bytes || text.size_bytes > MOST_BYTES)
    (void)refuse(r, TSR_ERROR_LIMIT, "writes more than chat templates may", (tsr_text){0});
  else
    tsr__buffer_append(r->out, text.data, text.size_bytes);
  if (!r->status && r->out->failed) r->status = tsr__fail_memory(r->error);
}

static void execute(run *r, const tsr__template_node *n) {
  r->depth++;
  for (; n && count_step(r); n = n->next) {
    value v = nothing;
    switch (n->kind) {
    case TSR__NODE_DATA: write_text(r, n->text); break;
    case TSR__NODE_OUTPUT:
      v = evaluate(r, n->a);
      write_text(r, as_text(r, v));
      break;
    case TSR__NODE_SET: execute_set(r, n); break;
    case TSR__NODE_FOR: execute_for(r, n); break;
    case TSR__NODE_IF:
      execute(r, !n->a || is_true(evaluate(r, n->a)) ? n->body : n->otherwise);
      break;
    default: (void)unsupported(r, "has a statement that is not supported", (tsr_text){0});
    }
  }
  r->depth--;
}

static void put_input(run *r, const tsr__template_input *input) {
  entry **names = &r->scope->first;
  value messages = {.kind = LIST, .count = input->message_count};
  messages.items = allocate(r, input->message_count + 1, sizeof *messages.items);
  for (size_t i = 0; i < input->message_count && !r->status; i++) {
    messages.items[i] = new_map(r);
    if (r->status) return;
    put(r, messages.items[i].map, words("role"), text_value(input->messages[i].role));
    put(r, messages.items[i].map, words("content"), text_value(input->messages[i].content));
  }
  put(r, names, words("messages"), messages);
  put(r, names, words("tools"), (value){.kind = NONE});
  put(r, names, words("documents"), (value){.kind = NONE});
  put(r, names, words("add_generation_prompt"), truth_value(input->adds_prompt));
  for (size_t i = 0; i < input->variable_count && !r->status; i++)
    put(r, names, input->variables[i].name, text_value(input->variables[i].value));
}

int tsr__template_run(const tsr__template_node *first, const tsr__template_input *input,
                      tsr__buffer *out, tsr_error *error) {
  scope global = {0};
  run r = {.out = out, .scope = &global, .first_size = out->size, .error = error};
  tsr__arena_init(&r.arena);
  put_input(&r, input);
  if (!r.status) execute(&r, first);
  tsr__arena_release(&r.arena);
  return r.status;
}
