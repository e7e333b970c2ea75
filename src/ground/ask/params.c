/* params.c - the parameters of a question: set by name from texts and numbers, checked in one place.
 *
 * Every interface passes on what its user wrote, and every value goes through `from_text` or
 * `from_integer` below, so the meaning of a word and the message for a wrong one cannot differ between
 * the command line, a language model's call and Python. Only the names are spelled differently:
 *
 *             tsr_parameter_spelling    "{time_us}" in a message    "{=time_us}"
 *   COMMAND   time                      --time                      option '--time'
 *   MCP       time_us                   time_us                     argument 'time_us'
 *   PYTHON    time_us                   time_us                     time_us
 *
 * Layout: one value for each row, in the order of the rows. Texts and what points at them live in one
 * arena until the parameters are freed; a value that is set twice leaves its first text there.
 *
 * Invariants: a value is given exactly if some setter succeeded for it; `text` and the items of
 * `texts` end in a zero byte; `devices` has each number once.
 */
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ask/question.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/format.h"
#include "base/number.h"
#include "base/vector.h"
#include "tessera/unstable/params.h"
#include "tessera/unstable/suggest.h"

typedef struct value {
  bool is_given;
  bool is_all;      /* DEVICES: "all", whatever else was given */
  int choice;       /* CHOICE: the index of the word */
  int64_t integer;  /* INTEGER; FLAG and TRUTH: 0 or 1 */
  uint64_t count;   /* COUNT, BYTES; CHOICE: the number of "word:N" */
  const char *path; /* FILE, OBJECT, PATH, SNAPSHOT */
  const char *text; /* TEXT; FILE: its contents */
  size_t size_bytes;
  TSR__VECTOR(const char *) texts; /* TEXTS, CHOICES */
  TSR__VECTOR(uint32_t) devices;
  TSR__VECTOR(tsr_allocator_settings) settings;
  void *object; /* OBJECT, and FILE with a type */
} value;

struct tsr_params {
  const tsr_parameter **rows; /* none of which stands for a table */
  size_t count;
  tsr_interface interface;
  tsr__arena arena;
  value *values; /* by row */
};

/* ---- Rows ---- */

/* The row number `*index` from `row` up to `end`, or if that is NULL to the end of the table; counts the index down by what it passes. */
static const tsr_parameter *find_row(const tsr_parameter *row, const tsr_parameter *end,
                                     size_t *index) {
  for (; row != end && (row->name || row->rows); row++) {
    const tsr_parameter *found = row;
    if (row->rows)
      found = find_row(row->rows, NULL, index);
    else if ((*index)--)
      found = NULL;
    if (found) return found;
  }
  return NULL;
}

const tsr_parameter *tsr__parameter_at(const tsr_parameter *rows, size_t count, size_t index) {
  return rows ? find_row(rows, rows + count, &index) : NULL;
}

const tsr_parameter *tsr_params_row(const tsr_params *params, size_t index) {
  return index < params->count ? params->rows[index] : NULL;
}

/* ---- Names ---- */

/* Whether the first `length` bytes of both are the same word. */
static bool is_word(const char *typed, const char *name, size_t length) {
  for (size_t i = 0; i < length; i++)
    if ((typed[i] == '_' ? '-' : typed[i]) != (name[i] == '_' ? '-' : name[i])) return false;
  return true;
}

bool tsr_word_is(const char *typed, size_t length, const char *name) {
  return strlen(name) == length && is_word(typed, name, length);
}

void tsr__list_words(const char *(*word)(size_t index), char *text, size_t room) {
  size_t used = 0;
  assert(room);
  text[0] = '\0';
  for (size_t i = 0; word(i) && used < room; i++)
    used += (size_t)snprintf(text + used, room - used, "%s%s",
                             !i            ? ""
                             : word(i + 1) ? ", "
                                           : " and ",
                             word(i));
}

const char *tsr_parameter_help(const tsr_parameter *parameter, char *text, size_t room_bytes) {
  char words[512];
  const char *place = parameter->word ? strstr(parameter->help, "%s") : NULL;
  if (!place) return parameter->help;
  tsr__list_words(parameter->word, words, sizeof words);
  (void)snprintf(text, room_bytes, "%.*s%s%s", (int)(place - parameter->help), parameter->help,
                 words, place + 2);
  return text;
}

const char *tsr_parameter_spelling(const tsr_parameter *parameter, tsr_interface interface) {
  return interface == TSR_INTERFACE_COMMAND && parameter->option ? parameter->option
                                                                 : parameter->name;
}

const tsr_parameter *tsr_params_find(const tsr_params *params, const char *name, size_t length) {
  for (size_t i = 0; i < params->count; i++) {
    const tsr_parameter *row = params->rows[i];
    if (!(row->hidden_from & (unsigned)params->interface) &&
        tsr_word_is(name, length, tsr_parameter_spelling(row, params->interface)))
      return row;
  }
  return NULL;
}

/* The value of the row with exactly this name. It must exist; anything else is a bug in the caller. */
static value *value_at(const tsr_params *params, const char *name, size_t length) {
  for (size_t i = 0; i < params->count; i++)
    if (strncmp(params->rows[i]->name, name, length) == 0 && !params->rows[i]->name[length])
      return &params->values[i];
  return NULL;
}

static const value *value_of(const tsr_params *params, const char *name) {
  const value *found = value_at(params, name, strlen(name));
  assert(found);
  return found;
}

static const tsr_parameter *row_of(const tsr_params *params, const value *v) {
  assert(v >= params->values && v < params->values + params->count);
  return params->rows[v - params->values];
}

/* ---- Messages ---- */

/* "--over-time" for over_time: what the user types. At most `room` bytes, zero included. */
static void spell(const tsr_params *params, const tsr_parameter *row, bool is_subject, char *out,
                  size_t room) {
  const char *name = tsr_parameter_spelling(row, params->interface);
  bool is_operand = params->interface == TSR_INTERFACE_COMMAND && row->is_operand;
  if (is_operand)
    (void)snprintf(out, room, "%s", row->argument);
  else if (params->interface == TSR_INTERFACE_COMMAND)
    (void)snprintf(out, room, is_subject ? "option '--%s'" : "--%s", name);
  else if (params->interface == TSR_INTERFACE_MCP && row->kind == TSR_PARAMETER_FILE)
    (void)snprintf(out, room, is_subject ? "argument '%s_path'" : "%s_path", name);
  else
    (void)snprintf(out, room,
                   is_subject && params->interface == TSR_INTERFACE_MCP ? "argument '%s'" : "%s",
                   name);
}

/* The format with its "{name}"s replaced; names hold no '%', so it stays the same format. */
static void expand(const tsr_params *params, const char *format, char *out, size_t room) {
  size_t used = 0;
  while (*format && used + 1 < room) {
    bool is_subject = format[0] == '{' && format[1] == '=';
    size_t length = format[0] == '{' ? strcspn(format, "}") : 0;
    const char *name = format + 1 + is_subject;
    const value *v =
        length && format[length] ? value_at(params, name, length - 1 - is_subject) : NULL;
    if (v) {
      spell(params, row_of(params, v), is_subject, out + used, room - used);
      used += strlen(out + used);
      format += length + 1;
    } else {
      out[used++] = *format++;
    }
  }
  assert(used < room);
  out[used] = '\0';
}

int tsr_params_fail(const tsr_params *params, tsr_error *error, const char *format, ...) {
  char expanded[384], text[768];
  va_list args;
  expand(params, format, expanded, sizeof expanded);
  va_start(args, format);
  (void)vsnprintf(text, sizeof text, expanded, args);
  va_end(args);
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "%s", text);
}

/* "option '--by' WHAT": about one value. */
static int fail_value(const tsr_params *params, const tsr_parameter *row, tsr_error *error,
                      const char *format, ...) {
  char subject[80], text[512];
  va_list args;
  spell(params, row, true, subject, sizeof subject);
  va_start(args, format);
  (void)vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "%s%s", subject, text);
}

static int fail_unknown(const tsr_params *params, const char *name, tsr_error *error) {
  char all[200] = "";
  for (size_t i = 0; i < params->count; i++) {
    const tsr_parameter *row = params->rows[i];
    size_t used = strlen(all);
    if (row->hidden_from & (unsigned)params->interface) continue;
    (void)snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "",
                   tsr_parameter_spelling(row, params->interface));
  }
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                   "no parameter '%.40s'; the parameters are: %s", name, *all ? all : "none");
}

/* ---- Values from text ---- */

/* The smallest number without a unit that is a size: a smaller one was meant to have a unit. In MiB, as nvidia-smi prints memory,
 * it is more than any card has. */
#define FEWEST_PLAIN (UINT64_C(1) << 19)

bool tsr_size_parse(const char *text, uint64_t *bytes) {
  static const char units[] = "KMGT";
  char digits[64], *end = NULL;
  size_t length = strspn(text, "0123456789.+-eE");
  double number = 0;
  if (length == 0 || length >= sizeof digits) return false;
  /* A plain number of bytes is exact beyond what a double holds. */
  size_t plain = strspn(text, "0123456789");
  const char *after = text + plain + strspn(text + plain, " ");
  if (plain && (!*after || strcmp(after, "B") == 0 || strcmp(after, "b") == 0)) {
    errno = 0;
    unsigned long long exact = strtoull(text, &end, 10);
    if (errno || exact < (*after ? 1 : FEWEST_PLAIN)) return false;
    *bytes = exact;
    return true;
  }
  assert(length < sizeof digits);
  memcpy(digits, text, length);
  digits[length] = '\0';
  if (!tsr__read_real(digits, &number) || !(number > 0)) return false;
  const char *at = text + length;
  while (*at == ' ') at++;
  if (!*at) return false;
  const char *unit = strchr(units, toupper((unsigned char)*at));
  if (unit) at++;
  bool is_decimal = unit && (*at == 'B' || *at == 'b');
  for (const char *u = units; unit && u <= unit; u++) number *= is_decimal ? 1000 : 1024;
  if (unit && *at == 'i') at++;
  if (*at == 'B' || *at == 'b') at++;
  if (*at || !(number >= 1 && number < 1e19)) return false;
  *bytes = (uint64_t)(number < 1e15 ? round(number) : number);
  return true;
}

static bool read_count(const char *text, uint64_t *out) {
  uint64_t number = 0;
  if (!*text) return false;
  for (const char *at = text; *at; at++) {
    if (*at < '0' || *at > '9') return false;
    unsigned digit = (unsigned)(*at - '0');
    if (number > (UINT64_MAX - digit) / 10) return false;
    number = number * 10 + digit;
  }
  *out = number;
  return true;
}

static bool read_integer(const char *text, int64_t *out) {
  char *end = NULL;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (end == text || *end || errno) return false;
  *out = number;
  return true;
}

const char *tsr_size_text(uint64_t bytes, char *text, size_t room_bytes) {
  char whole[TSR__FORMAT_BYTES];
  (void)snprintf(text, room_bytes, "%s", tsr__format_size(bytes, whole));
  return text;
}

bool tsr_time_parse(const char *text, int64_t *time_us) {
  int64_t time = 0;
  if (!read_integer(text, &time) && !tsr__read_time(text, &time)) return false;
  *time_us = time;
  return true;
}

static bool read_truth(const char *text, int64_t *out) {
  static const char *const words[] = {"true", "false", "yes", "no", "on", "off",
                                      "1",    "0",     "y",   "n",  "t",  "f"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcasecmp(words[i], text) == 0) {
      *out = i % 2 == 0;
      return true;
    }
  return false;
}

/* The length of `word` up to its ":KEY", for which users write a text of their own; 0 if it has none. */
static size_t key_at(const char *word) {
  const char *colon = strstr(word, ":KEY");
  return colon && !colon[4] ? (size_t)(colon - word) : 0;
}

/* Whether `text` is the choice `word`; of "chunked:N" also the number, from 1 on; of "metadata:KEY" with any
 * text that is not empty after the colon. */
static bool read_choice(const char *text, const char *word, uint64_t *number) {
  size_t length = strlen(word), key = key_at(word);
  bool has_number = length > 2 && word[length - 2] == ':';
  *number = 0;
  if (key) return strlen(text) > key + 1 && text[key] == ':' && is_word(text, word, key);
  if (!has_number) return tsr_word_is(text, strlen(text), word);
  length--;
  return strncmp(text, word, length) == 0 && text[length] >= '1' && text[length] <= '9' &&
         read_count(text + length, number);
}

/* The word or number that a synonym of the row's stands for; else the text itself. */
static const char *meaning_of(const tsr_parameter *row, const char *text) {
  for (const tsr_synonym *one = row->synonyms; one && one->typed; one++)
    if (tsr_word_is(text, strlen(text), one->typed)) return one->meant;
  return text;
}

static int fail_number(const tsr_params *params, const tsr_parameter *row, const char *text,
                       tsr_error *error) {
  char words[80] = "";
  for (const tsr_synonym *one = row->synonyms; one && one->typed; one++) {
    size_t used = strlen(words);
    (void)snprintf(words + used, sizeof words - used, "%s%s", one[1].typed ? ", " : " or ",
                   one->typed);
  }
  return fail_value(params, row, error, " needs a number%s, not '%s'", words, text);
}

/* The first choice that ends in what was typed, such as rtx4090 in 4090; NULL if none does. */
static const char *choice_ending_in(const tsr_parameter *row, const char *text) {
  enum { SHORTEST_END = 3 };
  size_t length = strlen(text);
  for (int i = 0; length >= SHORTEST_END && row->choices[i]; i++) {
    size_t whole = strlen(row->choices[i]);
    if (whole > length && strcasecmp(row->choices[i] + whole - length, text) == 0)
      return row->choices[i];
  }
  return NULL;
}

static int set_choice(const tsr_params *params, const tsr_parameter *row, value *v,
                      const char *text, tsr_error *error) {
  char list[256] = "";
  tsr_suggestion nearest = tsr_suggestion_start(text, strlen(text));
  assert(row->choices && row->choices[0]);
  const char *meant = meaning_of(row, text);
  for (int i = 0; row->choices[i]; i++) {
    uint64_t number;
    if (read_choice(meant, row->choices[i], &number)) {
      v->choice = i;
      v->count = number;
      return 0;
    }
    const char *between = i == 0 ? "" : row->choices[i + 1] ? ", " : " or ";
    size_t used = strlen(list);
    (void)snprintf(list + used, sizeof list - used, "%s%s", between, row->choices[i]);
    if (!strchr(row->choices[i], ':')) tsr_suggestion_offer(&nearest, row->choices[i]);
  }
  const char *likely = nearest.best ? nearest.best : choice_ending_in(row, text);
  if (likely)
    return fail_value(params, row, error, " takes %s, not '%s'; did you mean '%s'?", list, text,
                      likely);
  return fail_value(params, row, error, " takes %s, not '%s'%s%s", list, text,
                    row->otherwise ? "; " : "", row->otherwise ? row->otherwise : "");
}

/* Add a choice, unless it was given before. */
static int add_choice(const tsr_params *params, const tsr_parameter *row, value *v,
                      const char *text, tsr_error *error) {
  int status = set_choice(params, row, v, text, error);
  if (status) return status;
  const char *word = row->choices[v->choice];
  for (size_t i = 0; i < v->texts.count; i++)
    if (v->texts.items[i] == word) return 0;
  return TSR__VECTOR_PUSH(&v->texts, word) ? 0 : tsr__fail_memory(error);
}

static bool add_device(value *v, uint32_t number) {
  for (size_t i = 0; i < v->devices.count; i++)
    if (v->devices.items[i] == number) return true;
  return TSR__VECTOR_PUSH(&v->devices, number);
}

/* "0,2", "0,host", "cpu" or "all". */
static int set_devices(const tsr_params *params, const tsr_parameter *row, value *v,
                       const char *text, tsr_error *error) {
  for (const char *at = text;; at++) {
    size_t length = strcspn(at, ",");
    char *end = NULL;
    unsigned long number = *at >= '0' && *at <= '9' && length < 11 ? strtoul(at, &end, 10) : 0;
    if (length == 3 && memcmp(at, "all", 3) == 0) {
      v->is_all = true;
    } else if (length == 4 && memcmp(at, "host", 4) == 0) {
      if (!add_device(v, TSR_DEVICE_HOST)) return tsr__fail_memory(error);
    } else if (length == 3 && memcmp(at, "cpu", 3) == 0) {
      if (!add_device(v, TSR_DEVICE_CPU)) return tsr__fail_memory(error);
    } else if (end != at + length || number >= TSR_DEVICE_CPU) {
      return fail_value(params, row, error,
                        " needs device numbers, 'cpu', 'host' or 'all', not '%s'", text);
    } else if (!add_device(v, (uint32_t)number)) {
      return tsr__fail_memory(error);
    }
    at += length;
    if (!*at) return 0;
  }
}

static int add_setting(const tsr_params *params, const tsr_parameter *row, value *v,
                       const char *text, tsr_error *error) {
  tsr_allocator_settings settings;
  tsr_error reason;
  int status = tsr_allocator_settings_parse(text, &settings, &reason);
  if (status) return fail_value(params, row, error, ": %s", reason.message);
  if (row->kind == TSR_PARAMETER_SETTING) v->settings.count = 0;
  return TSR__VECTOR_PUSH(&v->settings, settings) ? 0 : tsr__fail_memory(error);
}

#define SETTINGS_MOST 64

/* Configurations, with blanks or semicolons between them. */
static int add_settings(const tsr_params *params, const tsr_parameter *row, value *v,
                        const char *text, tsr_error *error) {
  char one[512];
  /* Interfaces other than the command line pass a list, possibly with a blank after a comma. */
  if (params->interface != TSR_INTERFACE_COMMAND) return add_setting(params, row, v, text, error);
  while (*(text += strspn(text, " ;"))) {
    size_t length = strcspn(text, " ;");
    if (length >= sizeof one || v->settings.count == SETTINGS_MOST)
      return fail_value(params, row, error, " is too long");
    memcpy(one, text, length);
    one[length] = '\0';
    int status = add_setting(params, row, v, one, error);
    if (status) return status;
    text += length;
  }
  return 0;
}

/* Replace the value's object by what `parse` makes of the text. */
static int set_object(const tsr_parameter *row, value *v,
                      int (*parse)(const char *, size_t, void **, tsr_error *), const char *text,
                      size_t size_bytes, tsr_error *error) {
  void *object = NULL;
  int status = parse(text, size_bytes, &object, error);
  if (status) return status;
  if (v->object) row->type->free(v->object);
  v->object = object;
  return 0;
}

/* A typed object is not in a file, so a message about its text names the parameter. */
static int set_typed(const tsr_params *params, const tsr_parameter *row, value *v, const char *text,
                     size_t size_bytes, tsr_error *error) {
  tsr_error reason = {.status = TSR_OK};
  assert(row->type);
  if (row->type->parse_typed)
    return set_object(row, v, row->type->parse_typed, text, size_bytes, error);
  int status = set_object(row, v, row->type->parse, text, size_bytes, &reason);
  if (status == TSR_ERROR_MEMORY) return tsr__fail_memory(error);
  return status ? fail_value(params, row, error, ": %s", reason.message) : 0;
}

static int from_text(tsr_params *params, const tsr_parameter *row, value *v, const char *text,
                     size_t size_bytes, tsr_error *error) {
  switch (row->kind) {
  case TSR_PARAMETER_FLAG:
  case TSR_PARAMETER_TRUTH:
    if (read_truth(text, &v->integer)) return 0;
    return fail_value(params, row, error, " needs true or false, not '%s'", text);
  case TSR_PARAMETER_COUNT:
    if (read_count(text, &v->count)) return 0;
    return fail_value(params, row, error, " needs a number, not '%s'", text);
  case TSR_PARAMETER_INTEGER:
    if (read_integer(meaning_of(row, text), &v->integer)) return 0;
    return fail_number(params, row, text, error);
  case TSR_PARAMETER_TIME:
    if (tsr_time_parse(text, &v->integer)) return 0;
    return fail_value(params, row, error,
                      " takes microseconds since 1970, or a time as reports print it, not '%s'",
                      text);
  case TSR_PARAMETER_BYTES:
    if (tsr_size_parse(text, &v->count)) return 0;
    if (strspn(text, "0123456789.") == strlen(text) && strspn(text, "0.") != strlen(text))
      return fail_value(params, row, error, " needs a unit: %sGiB, or %sB for bytes", text, text);
    return fail_value(params, row, error, " takes a size such as %s, not '%s'",
                      row->example ? row->example : "40GiB", text);
  case TSR_PARAMETER_CHOICE: return set_choice(params, row, v, text, error);
  case TSR_PARAMETER_CHOICES: return add_choice(params, row, v, text, error);
  case TSR_PARAMETER_TEXTS: return TSR__VECTOR_PUSH(&v->texts, text) ? 0 : tsr__fail_memory(error);
  case TSR_PARAMETER_DEVICES: return set_devices(params, row, v, text, error);
  case TSR_PARAMETER_SETTING: return add_setting(params, row, v, text, error);
  case TSR_PARAMETER_SETTINGS: return add_settings(params, row, v, text, error);
  case TSR_PARAMETER_OBJECT: return set_typed(params, row, v, text, size_bytes, error);
  case TSR_PARAMETER_FILE:
    return row->type ? set_object(row, v, row->type->parse, text, size_bytes, error) : 0;
  case TSR_PARAMETER_PATH:
  case TSR_PARAMETER_SNAPSHOT: v->path = text; return 0;
  case TSR_PARAMETER_TEXT: break;
  }
  return 0; /* the text itself, which the caller keeps */
}

static int from_integer(tsr_params *params, const tsr_parameter *row, value *v, int64_t number,
                        tsr_error *error) {
  char text[32];
  switch (row->kind) {
  case TSR_PARAMETER_FLAG:
  case TSR_PARAMETER_TRUTH: v->integer = number != 0; return 0;
  case TSR_PARAMETER_TIME:
  case TSR_PARAMETER_INTEGER: v->integer = number; return 0;
  case TSR_PARAMETER_BYTES:
    if (number <= 0) break;
    v->count = (uint64_t)number;
    return 0;
  case TSR_PARAMETER_COUNT:
    if (number < 0) break;
    v->count = (uint64_t)number;
    return 0;
  default: break;
  }
  (void)snprintf(text, sizeof text, "%lld", (long long)number);
  return from_text(params, row, v, text, strlen(text), error);
}

/* ---- Setters ---- */

/* The value with this name; NULL with `*status` set if absent. */
static value *open_value(tsr_params *params, const char *name, int *status, tsr_error *error) {
  const tsr_parameter *row = tsr_params_find(params, name, strlen(name));
  if (row) return value_at(params, row->name, strlen(row->name));
  *status = fail_unknown(params, name, error);
  return NULL;
}

/* A copy that ends with a zero byte; NULL if out of memory. */
static char *keep(tsr_params *params, const char *text, size_t size_bytes) {
  if (size_bytes == SIZE_MAX) return NULL;
  char *copy = tsr__arena_alloc(&params->arena, size_bytes + 1, 1);
  if (!copy) return NULL;
  if (size_bytes) memcpy(copy, text, size_bytes);
  copy[size_bytes] = '\0';
  return copy;
}

int tsr_params_set_text(tsr_params *params, const char *name, const char *text, size_t size_bytes,
                        tsr_error *error) {
  int status = 0;
  value *v = open_value(params, name, &status, error);
  if (!v) return status;
  const tsr_parameter *row = row_of(params, v);
  char *copy = keep(params, text, size_bytes);
  if (!copy) return tsr__fail_memory(error);
  bool is_content = row->kind == TSR_PARAMETER_FILE || (row->type && !row->type->parse_typed);
  if (!is_content && memchr(copy, '\0', size_bytes))
    return fail_value(params, row, error, " contains a zero byte");
  status = from_text(params, row, v, copy, size_bytes, error);
  if (status) return status;
  v->text = copy;
  v->size_bytes = size_bytes;
  v->is_given = true;
  return 0;
}

int tsr_params_set_integer(tsr_params *params, const char *name, int64_t number, tsr_error *error) {
  int status = 0;
  value *v = open_value(params, name, &status, error);
  if (!v) return status;
  const tsr_parameter *row = row_of(params, v);
  bool is_number = row->kind == TSR_PARAMETER_FLAG || row->kind == TSR_PARAMETER_TRUTH ||
                   row->kind == TSR_PARAMETER_COUNT || row->kind == TSR_PARAMETER_INTEGER ||
                   row->kind == TSR_PARAMETER_TIME || row->kind == TSR_PARAMETER_BYTES ||
                   row->kind == TSR_PARAMETER_DEVICES;
  if (!is_number) {
    char text[32];
    (void)snprintf(text, sizeof text, "%lld", (long long)number);
    return tsr_params_set_text(params, name, text, strlen(text), error);
  }
  status = from_integer(params, row, v, number, error);
  if (status == 0) v->is_given = true;
  return status;
}

int tsr_params_set_path(tsr_params *params, const char *name, const char *path, tsr_error *error) {
  int status = 0;
  value *v = open_value(params, name, &status, error);
  if (!v) return status;
  v->path = keep(params, path, strlen(path));
  if (!v->path) return tsr__fail_memory(error);
  v->is_given = true;
  return 0;
}

int tsr_params_set_file(tsr_params *params, const char *name, const char *path, const char *text,
                        size_t size_bytes, tsr_error *error) {
  int status = 0;
  value *v = open_value(params, name, &status, error);
  if (!v) return status;
  const tsr_parameter *row = row_of(params, v);
  assert(row->kind == TSR_PARAMETER_FILE || row->kind == TSR_PARAMETER_OBJECT);
  const char *copied_path = keep(params, path, strlen(path));
  const char *copy = keep(params, text, size_bytes);
  if (!copied_path || !copy) return tsr__fail_memory(error);
  if (row->type) status = set_object(row, v, row->type->parse, copy, size_bytes, error);
  if (status) return status;
  v->path = copied_path;
  v->text = copy;
  v->size_bytes = size_bytes;
  v->is_given = true;
  return 0;
}

int tsr_params_set_object(tsr_params *params, const char *name, const tsr_parameter_type *type,
                          void *object, tsr_error *error) {
  int status = 0;
  value *v = open_value(params, name, &status, error);
  if (!v) {
    type->free(object);
    return status;
  }
  assert(row_of(params, v)->type == type);
  if (v->object) type->free(v->object);
  v->object = object;
  v->is_given = true;
  return 0;
}

void tsr_params_clear(tsr_params *params, const char *name) {
  const tsr_parameter *row = tsr_params_find(params, name, strlen(name));
  if (!row) return;
  value *v = value_at(params, row->name, strlen(row->name));
  if (v->object) row->type->free(v->object);
  v->object = NULL;
  v->path = v->text = NULL;
  v->size_bytes = v->texts.count = v->devices.count = v->settings.count = 0;
  v->is_all = v->is_given = false;
}

/* ---- Readers ---- */

bool tsr_params_has(const tsr_params *params, const char *name) {
  return value_of(params, name)->is_given;
}

bool tsr_params_flag(const tsr_params *params, const char *name) {
  const value *v = value_of(params, name);
  assert(row_of(params, v)->kind == TSR_PARAMETER_FLAG ||
         row_of(params, v)->kind == TSR_PARAMETER_TRUTH);
  return v->is_given ? v->integer != 0 : row_of(params, v)->fallback != 0;
}

uint64_t tsr_params_count(const tsr_params *params, const char *name) {
  const value *v = value_of(params, name);
  assert(row_of(params, v)->kind == TSR_PARAMETER_COUNT ||
         row_of(params, v)->kind == TSR_PARAMETER_BYTES);
  return v->is_given ? v->count : (uint64_t)row_of(params, v)->fallback;
}

int64_t tsr_params_integer(const tsr_params *params, const char *name) {
  const value *v = value_of(params, name);
  assert(row_of(params, v)->kind == TSR_PARAMETER_INTEGER ||
         row_of(params, v)->kind == TSR_PARAMETER_TIME);
  return v->is_given ? v->integer : row_of(params, v)->fallback;
}

int tsr_params_choice(const tsr_params *params, const char *name) {
  const value *v = value_of(params, name);
  assert(row_of(params, v)->kind == TSR_PARAMETER_CHOICE);
  return v->is_given ? v->choice : -1;
}

uint64_t tsr_params_choice_number(const tsr_params *params, const char *name) {
  const value *v = value_of(params, name);
  assert(row_of(params, v)->kind == TSR_PARAMETER_CHOICE);
  return v->is_given ? v->count : 0;
}

const char *tsr_params_choice_key(const tsr_params *params, const char *name) {
  const value *v = value_of(params, name);
  const tsr_parameter *row = row_of(params, v);
  assert(row->kind == TSR_PARAMETER_CHOICE);
  size_t key = v->is_given ? key_at(row->choices[v->choice]) : 0;
  return key ? v->text + key + 1 : NULL;
}

const char *tsr_params_text(const tsr_params *params, const char *name) {
  const value *v = value_of(params, name);
  return row_of(params, v)->kind == TSR_PARAMETER_TEXT ? v->text : v->path;
}

const char *const *tsr_params_texts(const tsr_params *params, const char *name, size_t *count) {
  const value *v = value_of(params, name);
  assert(row_of(params, v)->kind == TSR_PARAMETER_TEXTS ||
         row_of(params, v)->kind == TSR_PARAMETER_CHOICES);
  *count = v->texts.count;
  return v->texts.items;
}

const uint32_t *tsr_params_devices(const tsr_params *params, const char *name, size_t *count) {
  const value *v = value_of(params, name);
  assert(row_of(params, v)->kind == TSR_PARAMETER_DEVICES);
  *count = v->is_all ? 0 : v->devices.count;
  return v->devices.items;
}

const char *tsr_params_file(const tsr_params *params, const char *name, const char **path,
                            size_t *size_bytes) {
  const value *v = value_of(params, name);
  assert(row_of(params, v)->kind == TSR_PARAMETER_FILE);
  if (path) *path = v->path ? v->path : "";
  *size_bytes = v->size_bytes;
  return v->text;
}

const tsr_allocator_settings *tsr_params_settings(const tsr_params *params, const char *name,
                                                  size_t *count) {
  const value *v = value_of(params, name);
  assert(row_of(params, v)->kind == TSR_PARAMETER_SETTING ||
         row_of(params, v)->kind == TSR_PARAMETER_SETTINGS);
  *count = v->settings.count;
  return v->settings.items;
}

const void *tsr_params_object(const tsr_params *params, const char *name,
                              const tsr_parameter_type *type) {
  const value *v = value_of(params, name);
  return row_of(params, v)->type == type ? v->object : NULL;
}

/* ---- The whole ---- */

int tsr_params_new(const tsr_parameter *rows, size_t count, tsr_interface interface,
                   tsr_params **out, tsr_error *error) {
  size_t all = 0;
  assert(rows || count == 0);
  while (tsr__parameter_at(rows, count, all)) all++;
  tsr_params *params = TSR__NEW(tsr_params);
  value *values = TSR__NEW_ARRAY(value, all);
  const tsr_parameter **own = TSR__NEW_ARRAY(const tsr_parameter *, all);
  if (!params || !values || !own) {
    tsr__free(params);
    tsr__free(values);
    tsr__free(own);
    return tsr__fail_memory(error);
  }
  for (size_t i = 0; i < all; i++) own[i] = tsr__parameter_at(rows, count, i);
  *params = (tsr_params){.rows = own, .count = all, .interface = interface, .values = values};
  tsr__arena_init(&params->arena);
  *out = params;
  return 0;
}

void tsr_params_free(tsr_params *params) {
  if (!params) return;
  for (size_t i = 0; i < params->count; i++) {
    value *v = &params->values[i];
    TSR__VECTOR_FREE(&v->texts);
    TSR__VECTOR_FREE(&v->devices);
    TSR__VECTOR_FREE(&v->settings);
    if (v->object) params->rows[i]->type->free(v->object);
  }
  tsr__free(params->values);
  tsr__free(params->rows);
  tsr__arena_release(&params->arena);
  tsr__free(params);
}
