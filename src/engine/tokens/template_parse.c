/* template_parse.c - see template.h. Rule: jinja2, lexer.py and parser.py. */
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokens/template.h"

enum { MOST_DEPTH = 100 };

typedef enum token_kind { TOKEN_END, TOKEN_NAME, TOKEN_TEXT, TOKEN_INTEGER, TOKEN_SIGN } token_kind;

/* What becomes of white space after a tag. */
typedef enum trimming { TRIM_NOTHING, TRIM_LINE, TRIM_ALL } trimming;

typedef struct parser {
  tsr__arena *arena;
  tsr_text source;
  size_t at;
  token_kind kind; /* of the token before `at` */
  tsr_text token;  /* its text; of a TEXT, its content */
  size_t token_at;
  char tag;         /* the one that begins before `at`: '{', '%' or '#'; 0 at the end */
  bool is_variable; /* inside {{ }} and not {% %} */
  trimming trim;
  unsigned depth;
  int status;
  tsr_error *error;
} parser;

static void refuse(parser *p, tsr_status status, const char *what) {
  if (!p->status)
    p->status = tsr__fail(p->error, status, p->token_at, "the chat template has %s", what);
}

static void *allocate(parser *p, size_t size) {
  void *memory = p->status ? NULL : tsr__arena_alloc(p->arena, size, 8);
  if (!memory && !p->status) p->status = tsr__fail_memory(p->error);
  return memory;
}

static tsr__template_node *node(parser *p, tsr__template_kind kind, tsr__template_node *a,
                                tsr__template_node *b) {
  tsr__template_node *made = allocate(p, sizeof *made);
  if (made) *made = (tsr__template_node){.kind = kind, .text = p->token, .a = a, .b = b};
  return made;
}

static char peek(const parser *p, size_t ahead) {
  size_t at = p->at + ahead;
  return at < p->source.size_bytes ? p->source.data[at] : 0;
}

static bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool text_is(tsr_text text, const char *word) {
  return text.size_bytes == strlen(word) && memcmp(text.data, word, text.size_bytes) == 0;
}

/* ---- tokens in tags ---- */

/* One escape of a text, which is a backslash and `letter`; returns the number of bytes after the backslash that it takes. */
static size_t unescape(const parser *p, char letter, unsigned char *out, size_t *length) {
  static const char from[] = "ntr\\'\"", to[] = "\n\t\r\\'\"";
  const char *found = letter ? strchr(from, letter) : NULL;
  size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 0;
  if (found) {
    out[0] = (unsigned char)to[found - from];
    *length = 1;
    return 1;
  }
  uint32_t code = digits ? tsr__hex_code((const unsigned char *)p->source.data + p->at + 2,
                                         p->source.size_bytes - p->at - 2, digits)
                         : TSR__CODE_INVALID;
  if (code == TSR__CODE_INVALID || (code >= 0xD800 && code <= 0xDFFF)) {
    out[0] = '\\';
    *length = 1;
    return 0;
  }
  *length = tsr__utf8_encode(code, out);
  return 1 + digits;
}

static void lex_text(parser *p) {
  char quote = peek(p, 0), *out = allocate(p, p->source.size_bytes - p->at + 4);
  size_t size = 0;
  if (!out) return;
  for (p->at++; p->at < p->source.size_bytes && peek(p, 0) != quote;) {
    if (peek(p, 0) == '\\' && p->at + 1 < p->source.size_bytes) {
      size_t length;
      p->at += 1 + unescape(p, peek(p, 1), (unsigned char *)out + size, &length);
      size += length;
    } else {
      out[size++] = peek(p, 0);
      p->at++;
    }
  }
  if (p->at >= p->source.size_bytes) refuse(p, TSR_ERROR_FORMAT, "a text without an end");
  p->at++;
  p->kind = TOKEN_TEXT;
  p->token = (tsr_text){out, size};
}

/* The end of the tag, if it is here. */
static bool lex_end(parser *p) {
  char sign = peek(p, 0);
  size_t skip = sign == '-' || (sign == '+' && !p->is_variable);
  if (peek(p, skip) != (p->is_variable ? '}' : '%') || peek(p, skip + 1) != '}') return false;
  p->at += skip + 2;
  p->trim = skip && sign == '-' ? TRIM_ALL : skip || p->is_variable ? TRIM_NOTHING : TRIM_LINE;
  p->kind = TOKEN_END;
  return true;
}

static void lex(parser *p) {
  static const char *const signs[] = {"==", "!=", "<=", ">=", "//", "**"};
  while (is_space(peek(p, 0))) p->at++;
  p->token_at = p->at;
  p->kind = TOKEN_END;
  p->token = (tsr_text){p->source.data + p->at, 0};
  if (p->at >= p->source.size_bytes) refuse(p, TSR_ERROR_FORMAT, "a tag without an end");
  if (p->status || lex_end(p)) return;
  char c = peek(p, 0);
  if (c == '\'' || c == '"') {
    lex_text(p);
    return;
  }
  size_t length = 1;
  p->kind = is_word(c) ? c >= '0' && c <= '9' ? TOKEN_INTEGER : TOKEN_NAME : TOKEN_SIGN;
  if (is_word(c))
    while (is_word(peek(p, length))) length++;
  else
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
      if (c == signs[i][0] && peek(p, 1) == signs[i][1]) length = 2;
  p->token.size_bytes = length;
  p->at += length;
}

static bool is_sign(const parser *p, const char *sign) {
  return p->kind == TOKEN_SIGN && text_is(p->token, sign);
}

static bool is_name(const parser *p, const char *name) {
  return p->kind == TOKEN_NAME && text_is(p->token, name);
}

static bool take_sign(parser *p, const char *sign) {
  if (p->status || !is_sign(p, sign)) return false;
  lex(p);
  return true;
}

static bool take_name(parser *p, const char *name) {
  if (p->status || !is_name(p, name)) return false;
  lex(p);
  return true;
}

static void expect_sign(parser *p, const char *sign) {
  if (!take_sign(p, sign)) refuse(p, TSR_ERROR_UNSUPPORTED, "an expression that is not supported");
}

/* ---- expressions ---- */

static tsr__template_node *expression(parser *p);

/* Arguments or items, up to a sign. */
static tsr__template_node *list(parser *p, const char *end) {
  tsr__template_node *first = NULL, **last = &first;
  while (!p->status && !is_sign(p, end)) {
    tsr__template_node *item = expression(p);
    if (item && item->kind == TSR__NODE_NAME && take_sign(p, "=")) {
      tsr_text name = item->text;
      item = node(p, TSR__NODE_NAMED, expression(p), NULL);
      if (item) item->text = name;
    }
    if (!item) break;
    *last = item;
    last = &item->next;
    if (!take_sign(p, ",")) break;
  }
  expect_sign(p, end);
  return first;
}

static tsr__template_node *integer(parser *p) {
  tsr__template_node *made = node(p, TSR__NODE_INTEGER, NULL, NULL);
  if (!made) return NULL;
  for (size_t i = 0; i < made->text.size_bytes; i++) {
    char digit = made->text.data[i];
    if (digit < '0' || digit > '9' || i > 15) {
      refuse(p, TSR_ERROR_UNSUPPORTED, "a number that is not supported");
      break;
    }
    made->integer = made->integer * 10 + (digit - '0');
  }
  lex(p);
  return made;
}

static tsr__template_node *text(parser *p) {
  tsr__template_node *made = node(p, TSR__NODE_TEXT, NULL, NULL);
  if (made) lex(p);
  if (p->kind == TOKEN_TEXT) refuse(p, TSR_ERROR_UNSUPPORTED, "two texts in a row");
  return made;
}

static tsr__template_node *name(parser *p) {
  tsr__template_node *made = node(p, TSR__NODE_NAME, NULL, NULL);
  bool is_true = is_name(p, "true") || is_name(p, "True");
  if (!made) return NULL;
  if (is_true || is_name(p, "false") || is_name(p, "False")) made->kind = TSR__NODE_TRUTH;
  if (is_name(p, "none") || is_name(p, "None")) made->kind = TSR__NODE_NONE;
  made->integer = is_true;
  lex(p);
  return made;
}

static tsr__template_node *primary(parser *p) {
  tsr__template_node *made;
  if (p->kind == TOKEN_NAME) return name(p);
  if (p->kind == TOKEN_TEXT) return text(p);
  if (p->kind == TOKEN_INTEGER) return integer(p);
  if (take_sign(p, "(")) {
    made = expression(p);
    expect_sign(p, ")");
    return made;
  }
  if (is_sign(p, "[")) {
    made = node(p, TSR__NODE_LIST, NULL, NULL);
    lex(p);
    tsr__template_node *items = list(p, "]");
    if (made) made->body = items;
    return made;
  }
  refuse(p, TSR_ERROR_UNSUPPORTED, "an expression that is not supported");
  return NULL;
}

/* a[b], a[b:c] */
static tsr__template_node *subscript(parser *p, tsr__template_node *of) {
  tsr__template_node *made = node(p, TSR__NODE_ITEM, of, NULL), *from = NULL, *to = NULL;
  if (!is_sign(p, ":")) from = expression(p);
  if (take_sign(p, ":")) {
    if (made) made->kind = TSR__NODE_SLICE;
    if (!is_sign(p, "]") && !is_sign(p, ":")) to = expression(p);
    if (take_sign(p, ":")) { /* with steps, as in messages[::-1] */
      if (made) made->kind = TSR__NODE_UNSUPPORTED;
      (void)expression(p);
    }
  }
  expect_sign(p, "]");
  if (!made) return NULL;
  made->b = from;
  made->c = to;
  return made;
}

static tsr__template_node *postfix(parser *p, tsr__template_node *of) {
  while (!p->status && of) {
    if (take_sign(p, ".")) {
      of = node(p, TSR__NODE_ATTRIBUTE, of, NULL);
      if (p->kind != TOKEN_NAME) refuse(p, TSR_ERROR_FORMAT, "an attribute without a name");
      lex(p);
    } else if (take_sign(p, "[")) {
      of = subscript(p, of);
    } else if (is_sign(p, "(")) {
      of = node(p, TSR__NODE_CALL, of, NULL);
      lex(p);
      tsr__template_node *arguments = list(p, ")");
      if (of) of->body = arguments;
    } else {
      break;
    }
  }
  return of;
}

/* Whether an argument of a test may begin here without parentheses. */
static bool begins_argument(const parser *p) {
  static const char *const others[] = {"and", "or", "else", "is"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (is_name(p, others[i])) return false;
  return p->kind == TOKEN_NAME || p->kind == TOKEN_TEXT || p->kind == TOKEN_INTEGER ||
         is_sign(p, "[");
}

static tsr__template_node *filters(parser *p, tsr__template_node *of) {
  bool was_test = false;
  while (!p->status && of && (is_sign(p, "|") || is_name(p, "is"))) {
    bool is_test = is_name(p, "is");
    lex(p);
    bool is_negated = is_test && take_name(p, "not");
    if (is_test && was_test) refuse(p, TSR_ERROR_FORMAT, "a test of a test");
    if (p->kind != TOKEN_NAME) refuse(p, TSR_ERROR_FORMAT, "a filter without a name");
    of = node(p, is_test ? TSR__NODE_TEST : TSR__NODE_FILTER, of, NULL);
    lex(p);
    tsr__template_node *arguments = NULL;
    if (take_sign(p, "("))
      arguments = list(p, ")");
    else if (is_test && begins_argument(p))
      arguments = postfix(p, primary(p));
    if (!of) break;
    of->body = arguments;
    of->integer = is_negated;
    was_test = is_test && !arguments;
  }
  return of;
}

static tsr__template_node *unary(parser *p) {
  if (is_sign(p, "-")) {
    tsr__template_node *made = node(p, TSR__NODE_NEGATIVE, NULL, NULL);
    lex(p);
    tsr__template_node *of = postfix(p, primary(p));
    if (made) made->a = of;
    return filters(p, made);
  }
  return filters(p, postfix(p, primary(p)));
}

/* Binary operators, the strongest level last. */
static const char *const levels[][8] = {
    {"or"},     {"and"}, {NULL} /* not */,      {"==", "!=", "<", ">", "<=", ">=", "in", "not"},
    {"+", "-"}, {"~"},   {"*", "/", "//", "%"},
};
enum { LEVELS = sizeof levels / sizeof *levels, LEVEL_NOT = 2, LEVEL_COMPARE = 3 };

static bool is_operator(const parser *p, unsigned level) {
  for (size_t i = 0; i < 8 && levels[level][i]; i++)
    if (is_sign(p, levels[level][i]) || is_name(p, levels[level][i])) return true;
  return false;
}

static tsr__template_node *operation(parser *p, unsigned level) {
  if (level == LEVELS) return unary(p);
  if (level == LEVEL_NOT) {
    if (!is_name(p, "not")) return operation(p, level + 1);
    tsr__template_node *made = node(p, TSR__NODE_NOT, NULL, NULL);
    lex(p);
    if (++p->depth > MOST_DEPTH) refuse(p, TSR_ERROR_LIMIT, "expressions that are nested too deep");
    tsr__template_node *of = operation(p, level);
    p->depth--;
    if (made) made->a = of;
    return made;
  }
  tsr__template_node *left = operation(p, level + 1), *before = NULL;
  while (!p->status && left && is_operator(p, level)) {
    bool is_not_in = is_name(p, "not");
    tsr__template_node *made = node(p, TSR__NODE_BINARY, before ? before : left, NULL);
    lex(p);
    if (is_not_in && !take_name(p, "in")) refuse(p, TSR_ERROR_FORMAT, "a 'not' without 'in'");
    tsr__template_node *right = operation(p, level + 1);
    if (made) made->b = right;
    if (before && made) { /* a < b < c: both */
      made = node(p, TSR__NODE_BINARY, left, made);
      if (made) made->text = (tsr_text){"and", 3};
    }
    if (level == LEVEL_COMPARE) before = right;
    left = made;
  }
  return left;
}

static tsr__template_node *expression(parser *p) {
  if (++p->depth > MOST_DEPTH) refuse(p, TSR_ERROR_LIMIT, "expressions that are nested too deep");
  tsr__template_node *value = p->status ? NULL : operation(p, 0);
  while (value && take_name(p, "if")) {
    tsr__template_node *made = node(p, TSR__NODE_CHOICE, NULL, value);
    tsr__template_node *condition = operation(p, 0);
    tsr__template_node *other = take_name(p, "else") ? expression(p) : NULL;
    if (!made) break;
    made->a = condition;
    made->c = other;
    value = made;
  }
  p->depth--;
  return p->status ? NULL : value;
}

/* ---- statements ---- */

static tsr__template_node *body(parser *p, const char *const *ends);

static void end_tag(parser *p) {
  if (!p->status && p->kind != TOKEN_END)
    refuse(p, TSR_ERROR_UNSUPPORTED, "an expression that is not supported");
}

static tsr__template_node *parse_for(parser *p) {
  static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
  tsr__template_node *made =
      node(p, TSR__NODE_FOR, NULL, NULL); /* its text is the variable's name */
  if (p->kind != TOKEN_NAME) refuse(p, TSR_ERROR_FORMAT, "a loop without a variable");
  lex(p);
  while (!p->status && take_sign(p, ",")) { /* for key, value in ... */
    if (made) made->integer = 1;
    lex(p);
  }
  if (!take_name(p, "in")) refuse(p, TSR_ERROR_FORMAT, "a loop without 'in'");
  tsr__template_node *over = p->status ? NULL : operation(p, 0), *condition = NULL;
  if (take_name(p, "if")) condition = expression(p);
  end_tag(p);
  tsr__template_node *statements = body(p, ends), *otherwise = NULL;
  if (is_name(p, "else")) {
    lex(p);
    end_tag(p);
    otherwise = body(p, last);
  }
  lex(p);
  end_tag(p);
  if (!made) return NULL;
  made->a = over;
  made->b = condition;
  made->body = statements;
  made->otherwise = otherwise;
  return made;
}

/* After "if" or "elif". */
static tsr__template_node *parse_if(parser *p) {
  static const char *const ends[] = {"elif", "else", "endif", NULL};
  tsr__template_node *made = node(p, TSR__NODE_IF, NULL, NULL);
  if (++p->depth > MOST_DEPTH) refuse(p, TSR_ERROR_LIMIT, "statements that are nested too deep");
  tsr__template_node *condition = p->status ? NULL : expression(p), *otherwise = NULL;
  end_tag(p);
  tsr__template_node *statements = body(p, ends);
  if (take_name(p, "elif")) {
    otherwise = parse_if(p);
  } else {
    if (take_name(p, "else")) {
      end_tag(p);
      otherwise = body(p, ends + 2);
    }
    lex(p);
    end_tag(p);
  }
  p->depth--;
  if (!made) return NULL;
  made->a = condition;
  made->body = statements;
  made->otherwise = otherwise;
  return made;
}

static tsr__template_node *parse_set(parser *p) {
  tsr__template_node *made = node(p, TSR__NODE_SET, NULL, NULL);
  tsr__template_node *target = postfix(p, primary(p));
  if (!take_sign(p, "=")) refuse(p, TSR_ERROR_UNSUPPORTED, "a 'set' without a value");
  tsr__template_node *value = expression(p);
  end_tag(p);
  if (!made) return NULL;
  made->a = target;
  made->b = value;
  return made;
}

static tsr__template_node *statement(parser *p) {
  static const char *const ends[] = {"endgeneration", NULL};
  tsr__template_node *made;
  if (take_name(p, "for")) return parse_for(p);
  if (take_name(p, "if")) return parse_if(p);
  if (take_name(p, "set")) return parse_set(p);
  if (take_name(p, "generation")) { /* marks what the model wrote */
    end_tag(p);
    made = node(p, TSR__NODE_IF, NULL, NULL);
    tsr__template_node *statements = body(p, ends);
    lex(p);
    end_tag(p);
    if (made) made->body = statements;
    return made;
  }
  if (!p->status) {
    int length = p->token.size_bytes < 40 ? (int)p->token.size_bytes : 40;
    p->status = tsr__fail(p->error, TSR_ERROR_UNSUPPORTED, p->token_at,
                          "the chat template has the statement '%.*s', which is not supported",
                          length, p->token.data);
  }
  return NULL;
}

/* The text up to the next tag, without the white space that the tags around it take; NULL if nothing is left. */
static tsr__template_node *data(parser *p) {
  const char *source = p->source.data;
  size_t size = p->source.size_bytes;
  if (p->trim == TRIM_LINE && peek(p, 0) == '\n') p->at++;
  while (p->trim == TRIM_ALL && is_space(peek(p, 0))) p->at++;
  size_t start = p->at, end = start;
  while (end < size && !(source[end] == '{' && end + 1 < size && strchr("{%#", source[end + 1])))
    end++;
  p->trim = TRIM_NOTHING;
  p->tag = end < size ? source[end + 1] : 0;
  p->at = end;
  if (p->tag) {
    char sign = peek(p, 2);
    size_t line = end;
    p->at += sign == '-' || sign == '+' ? 3 : 2;
    while (line > start && source[line - 1] != '\n' && is_space(source[line - 1])) line--;
    if (sign == '-')
      while (end > start && is_space(source[end - 1])) end--;
    else if (sign != '+' && p->tag != '{' && (!line || source[line - 1] == '\n'))
      end = line;
  }
  tsr__template_node *made = end > start ? node(p, TSR__NODE_DATA, NULL, NULL) : NULL;
  if (made) made->text = (tsr_text){source + start, end - start};
  return made;
}

static void skip_comment(parser *p) {
  while (p->at < p->source.size_bytes && !(peek(p, 0) == '#' && peek(p, 1) == '}')) p->at++;
  if (p->at >= p->source.size_bytes) refuse(p, TSR_ERROR_FORMAT, "a comment without an end");
  bool is_all = p->at && p->source.data[p->at - 1] == '-';
  bool is_kept = p->at && p->source.data[p->at - 1] == '+';
  p->at += 2;
  p->trim = is_all ? TRIM_ALL : is_kept ? TRIM_NOTHING : TRIM_LINE;
}

static bool is_end(const parser *p, const char *const *ends) {
  for (; ends && *ends; ends++)
    if (is_name(p, *ends)) return true;
  return false;
}

/* Statements up to the tag of one of these words, which is then the token; NULL: to the end of the template. */
static tsr__template_node *body(parser *p, const char *const *ends) {
  tsr__template_node *first = NULL, **last = &first;
  if (++p->depth > MOST_DEPTH) refuse(p, TSR_ERROR_LIMIT, "statements that are nested too deep");
  while (!p->status) {
    tsr__template_node *made = data(p);
    if (made) *last = made, last = &made->next;
    if (!p->tag) {
      if (ends) refuse(p, TSR_ERROR_FORMAT, "a block without an end");
      break;
    }
    if (p->tag == '#') {
      skip_comment(p);
      continue;
    }
    p->is_variable = p->tag == '{';
    lex(p);
    if (!p->is_variable && is_end(p, ends)) break;
    if (p->is_variable) {
      made = node(p, TSR__NODE_OUTPUT, NULL, NULL);
      tsr__template_node *value = expression(p);
      end_tag(p);
      if (made) made->a = value;
    } else {
      made = statement(p);
    }
    if (made) *last = made, last = &made->next;
  }
  p->depth--;
  return first;
}

/* Line ends become '\n', and the last one is left out. */
static bool normalize(tsr__arena *arena, tsr_text *source) {
  char *copy = tsr__arena_alloc(arena, source->size_bytes + 1, 1);
  size_t size = 0;
  for (size_t i = 0; copy && i < source->size_bytes; i++) {
    char c = source->data[i];
    if (c == '\r' && i + 1 < source->size_bytes && source->data[i + 1] == '\n') continue;
    copy[size++] = c == '\r' ? '\n' : c;
  }
  if (!copy) return false;
  if (size && copy[size - 1] == '\n') size--;
  copy[size] = 0;
  *source = (tsr_text){copy, size};
  return true;
}

int tsr__template_parse(tsr__arena *arena, tsr_text source, tsr__template_node **out,
                        tsr_error *error) {
  parser p = {.arena = arena, .source = source, .error = error};
  if (!normalize(arena, &p.source)) return tsr__fail_memory(error);
  tsr__template_node *first = body(&p, NULL);
  if (p.status == 0) *out = first;
  return p.status;
}
