/* outline.c - the functions and classes of a Python source, by indentation.
 *
 * The source is divided into logical lines: a statement with all its continuation lines, strings of
 * several lines and open brackets. Each logical line has a column. Those whose block could contain the
 * next line are on a stack, in ascending order of columns:
 *
 *   class Block:            column 0   class Block
 *       if fast:            column 4   something
 *           def step(self): column 8   def step     <- top
 *   x = 1                   column 0: all three end before it
 *
 * A line ends those at its own column or further right, and is pushed. So each is pushed and popped
 * once, and the entry below a `def` on the stack contains it. There is no need to know which
 * statements open blocks: in Python only those are followed by a deeper line.
 *
 * `def` and `class` are reserved words: where one begins a line inside brackets, a bracket was never
 * closed, and the line is treated as a new statement. A string in single quotes ends with its line. */
#include "attribution/outline.h"

#include <string.h>

#include "base/memory.h"

/* A logical line that may have a block. */
typedef struct block {
  uint32_t column;
  uint32_t definition; /* the one it is, or TSR_NONE */
  uint32_t around;     /* the innermost definition that it is or is in */
} block;

typedef struct scanner {
  const char *at, *end;
  uint32_t line;     /* of `at`, from 1 */
  uint32_t last_end; /* line on which the last logical line ended */
  TSR__VECTOR(block) blocks;
  tsr__outline *out;
} scanner;

/* ---- characters ---- */

static char peek(const scanner *s, size_t ahead) {
  return ahead < (size_t)(s->end - s->at) ? s->at[ahead] : '\0';
}

/* The length of the end of line here, 0 if absent. */
static size_t newline(const scanner *s) {
  char c = peek(s, 0);
  if (s->at == s->end || (c != '\n' && c != '\r')) return 0;
  return c == '\r' && peek(s, 1) == '\n' ? 2 : 1;
}

static bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\f';
}

static bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         (unsigned char)c >= 0x80;
}

/* Step over an end of line, if there is one. */
static bool pass_newline(scanner *s) {
  size_t length = newline(s);
  s->at += length;
  s->line += length != 0;
  return length != 0;
}

static void pass_comment(scanner *s) {
  while (s->at < s->end && !newline(s)) s->at++;
}

/* Skip blanks and line continuations; returns the column after them. */
static uint32_t pass_indent(scanner *s) {
  uint32_t column = 0;
  for (; s->at < s->end && is_blank(*s->at); s->at++) {
    if (*s->at == '\f')
      column = 0;
    else
      column = *s->at == '\t' ? (column / 8 + 1) * 8 : column + 1;
  }
  return column;
}

/* Skip a string, from its quote on. */
static void pass_string(scanner *s) {
  char quote = *s->at;
  bool is_long = peek(s, 1) == quote && peek(s, 2) == quote;
  s->at += is_long ? 3 : 1;
  while (s->at < s->end) {
    if (*s->at == '\\') {
      s->at++;
      if (s->at < s->end && !pass_newline(s)) s->at++;
    } else if (*s->at == quote && (!is_long || (peek(s, 1) == quote && peek(s, 2) == quote))) {
      s->at += is_long ? 3 : 1;
      return;
    } else if (!is_long && newline(s)) {
      return;
    } else if (!pass_newline(s)) {
      s->at++;
    }
  }
}

/* ---- words ---- */

/* Skip the word `word` at `from` and the blanks after it; returns the position after them, or NULL. */
static const char *after_word(const scanner *s, const char *from, const char *word) {
  size_t length = strlen(word);
  if ((size_t)(s->end - from) <= length || memcmp(from, word, length) != 0) return NULL;
  const char *at = from + length;
  if (!is_blank(*at)) return NULL;
  while (at < s->end && is_blank(*at)) at++;
  return at;
}

/* Does a definition begin here? Fills its name and kind. */
static bool read_header(const scanner *s, tsr__definition *out) {
  const char *at = after_word(s, s->at, "class");
  *out = (tsr__definition){.is_class = at != NULL, .first_line = s->line, .parent = TSR_NONE};
  if (!at) {
    const char *def = after_word(s, s->at, "async");
    out->is_async = def != NULL;
    at = after_word(s, def ? def : s->at, "def");
  }
  if (!at) return false;
  if (at == s->end || (*at >= '0' && *at <= '9')) return false;
  out->name.data = at;
  while (at < s->end && is_name_byte(*at)) at++;
  out->name.size_bytes = (size_t)(at - out->name.data);
  return out->name.size_bytes != 0;
}

/* ---- logical lines ---- */

/* At the beginning of a line inside brackets: is it a definition after all? If so, the scanner does not
 * move. */
static bool is_definition_line(scanner *s) {
  scanner look = *s;
  tsr__definition ignored;
  (void)pass_indent(&look);
  return read_header(&look, &ignored);
}

/* The rest of a logical line, with the end of its last line. */
static void pass_statement(scanner *s) {
  size_t depth = 0;
  while (s->at < s->end) {
    char c = *s->at;
    if (newline(s)) {
      s->last_end = s->line;
      (void)pass_newline(s);
      if (!depth || is_definition_line(s)) return;
    } else if (c == '"' || c == '\'') {
      pass_string(s);
    } else if (c == '#') {
      pass_comment(s);
    } else if (c == '\\') {
      s->at++;
      (void)pass_newline(s);
    } else {
      if (c == '(' || c == '[' || c == '{') depth++;
      if ((c == ')' || c == ']' || c == '}') && depth) depth--;
      s->at++;
    }
  }
  s->last_end = s->line;
}

static void pop_block(scanner *s) {
  const block *top = &s->blocks.items[--s->blocks.count];
  if (top->definition != TSR_NONE)
    s->out->definitions.items[top->definition].last_line = s->last_end;
}

/* A statement that begins here, at `column`. */
static bool read_statement(scanner *s, uint32_t column) {
  while (s->blocks.count && s->blocks.items[s->blocks.count - 1].column >= column) pop_block(s);
  const block *outer = s->blocks.count ? &s->blocks.items[s->blocks.count - 1] : NULL;
  block made = {column, TSR_NONE, outer ? outer->around : TSR_NONE};
  tsr__definition definition;
  if (read_header(s, &definition)) {
    definition.parent = made.around;
    definition.is_direct = !outer || outer->definition != TSR_NONE;
    made.definition = made.around = (uint32_t)s->out->definitions.count;
    if (!TSR__VECTOR_PUSH(&s->out->definitions, definition)) return false;
  }
  if (!TSR__VECTOR_PUSH(&s->blocks, made)) return false;
  pass_statement(s);
  return true;
}

static bool read_all(scanner *s) {
  if (s->end - s->at >= 3 && memcmp(s->at, "\xef\xbb\xbf", 3) == 0) s->at += 3;
  while (s->at < s->end) {
    uint32_t column = pass_indent(s);
    if (peek(s, 0) == '#' && s->at < s->end) pass_comment(s);
    if (s->at == s->end || pass_newline(s)) continue;
    if (!read_statement(s, column)) return false;
  }
  while (s->blocks.count) pop_block(s);
  return true;
}

/* ---- lines ---- */

static bool list_lines(tsr_text source, tsr__outline *out) {
  scanner s = {.at = source.data, .end = source.data + source.size_bytes};
  while (s.at < s.end) {
    const char *begin = s.at;
    while (s.at < s.end && !newline(&s)) s.at++;
    tsr_text line = {begin, (size_t)(s.at - begin)};
    (void)pass_newline(&s);
    if (!TSR__VECTOR_PUSH(&out->lines, line)) return false;
  }
  return true;
}

/* A definition that ends with the source may have ended after the end of its last line. */
static void clamp_ends(tsr__outline *out) {
  uint32_t count = (uint32_t)out->lines.count;
  for (size_t i = 0; i < out->definitions.count; i++)
    if (out->definitions.items[i].last_line > count) out->definitions.items[i].last_line = count;
}

/* Definitions nest, so one walk over the lines knows the innermost. */
static bool own_lines(tsr__outline *out) {
  uint32_t now = TSR_NONE;
  size_t next = 0;
  out->owner = tsr__realloc(NULL, out->lines.count, sizeof *out->owner);
  if (!out->owner) return false;
  for (uint32_t line = 1; line <= out->lines.count; line++) {
    while (now != TSR_NONE && out->definitions.items[now].last_line < line)
      now = out->definitions.items[now].parent;
    while (next < out->definitions.count && out->definitions.items[next].first_line == line)
      now = (uint32_t)next++;
    out->owner[line - 1] = now;
  }
  return true;
}

int tsr__outline_read(tsr_text source, tsr__outline *out, tsr_error *error) {
  scanner s = {.at = source.data, .end = source.data + source.size_bytes, .line = 1, .out = out};
  *out = (tsr__outline){0};
  if (source.size_bytes >= UINT32_MAX)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "the source has 4 GiB or more");
  if (!source.size_bytes) return 0;
  bool ok = read_all(&s) && list_lines(source, out);
  if (ok) clamp_ends(out);
  ok = ok && own_lines(out);
  TSR__VECTOR_FREE(&s.blocks);
  return ok ? 0 : tsr__fail_memory(error);
}

void tsr__outline_release(tsr__outline *outline) {
  TSR__VECTOR_FREE(&outline->definitions);
  TSR__VECTOR_FREE(&outline->lines);
  tsr__free(outline->owner);
  *outline = (tsr__outline){0};
}
