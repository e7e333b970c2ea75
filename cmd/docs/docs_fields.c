/* docs_fields.c - the declared fields of all answers (tessera/unstable/fields.h): as the tables of docs/json.md, which
 * also has those of train's events, as the classes of python/tessera/_answers.py, and as a plain list for the test that
 * every one of them is written.
 *
 * docs/json.md and docs/plan.md are written by people, but for the lines between
 *
 *   <!-- fields of NAME -->   and   <!-- end -->, where NAME is a question, or a record that is documented apart,
 *   <!-- techniques -->       and   <!-- end -->: the words of --allow
 *   <!-- targets -->          and   <!-- end -->: the words of --for
 *   <!-- run options -->      and   <!-- end -->: the keys of plan files
 *   <!-- tables -->           and   <!-- end -->: the tables of `tessera sql` */
#include <assert.h>
#include <stdbool.h>
#include <string.h>
#include <tessera/tessera.h>
#include <tessera/unstable/fields.h>
#include <tessera/unstable/planning.h>
#include <tessera/unstable/relations.h>
#include <tessera/unstable/runs.h>
#include <tessera/unstable/train_report.h>

#include "core/doctor.h"
#include "core/version.h"
#include "docs.h"

enum { RECORDS = 256, PATH_BYTES = 256, LINE_BYTES = 16384 };

static bool is_same(const char *a, const char *b) {
  return strcmp(a, b) == 0;
}

static bool is_devices(const tsr_field *field) {
  return is_same(field->key, "devices");
}

/* The record of an answer's devices. */
static const tsr_record *device_of(const tsr_record *answer) {
  const tsr_field *field = tsr_record_field(answer, "devices", strlen("devices"));
  return field ? field->record : NULL;
}

/* ---- All records, each after those that it refers to ---- */

typedef struct records {
  const tsr_record *items[RECORDS];
  size_t count;
} records;

static void collect(records *all, const tsr_record *record) {
  if (!record) return;
  for (size_t i = 0; i < all->count; i++)
    if (all->items[i] == record) return;
  collect(all, record->base);
  for (const tsr_field *field = record->fields; field && field->key; field++)
    collect(all, field->record);
  assert(all->count < RECORDS);
  all->items[all->count++] = record;
}

static void collect_all(records *all) {
  all->count = 0;
  for (size_t i = 0; i < tsr_question_count(); i++)
    collect(all, tsr_question_fields(tsr_question_at(i)));
}

static const tsr_record *find_record(const records *all, const char *name) {
  for (size_t i = 0; i < all->count; i++)
    if (is_same(all->items[i]->name, name)) return all->items[i];
  return NULL;
}

/* ---- Tables of docs/json.md ---- */

/* A table, and the records that it has shown in full: each is shown once. */
typedef struct table {
  FILE *stream;
  const tsr_record *shown[RECORDS];
  char paths[RECORDS][PATH_BYTES];
  size_t count;
} table;

static void print_link(FILE *stream, const char *name) {
  fprintf(stream, "[%s](#", name);
  for (const char *at = name; *at; at++)
    fputc(*at >= 'A' && *at <= 'Z' ? *at - 'A' + 'a' : *at, stream);
  fputc(')', stream);
}

static const char *type_word(const tsr_field *field) {
  switch (field->kind) {
  case TSR_FIELD_REAL: return "number";
  case TSR_FIELD_FLAG: return "bool";
  case TSR_FIELD_TEXT: return "string";
  case TSR_FIELD_DEVICE: return "integer, `\"cpu\"` or `\"host\"`";
  case TSR_FIELD_PAIR: return "two integers";
  case TSR_FIELD_MAP:
  case TSR_FIELD_JSON:
  case TSR_FIELD_RECORD: return "object";
  default: return "integer";
  }
}

static size_t find_shown(const table *t, const tsr_record *record) {
  size_t i = 0;
  while (i < t->count && t->shown[i] != record) i++;
  return i;
}

static void print_type(table *t, const tsr_field *field) {
  const tsr_record *record = field->record;
  const tsr_record *base = record && record->base && record->base->is_apart ? record->base : NULL;
  size_t seen = find_shown(t, record);
  if (field->is_list) fputs("array of ", t->stream);
  if (record && record->is_apart)
    print_link(t->stream, record->name);
  else if (record && seen < t->count)
    fprintf(t->stream, "%s as `%s`", field->is_list ? "objects" : "object", t->paths[seen]);
  else
    fprintf(t->stream, "%s%s", type_word(field), field->is_list && record ? "s" : "");
  if (record && !record->is_apart && seen == t->count && base) {
    fputs(": ", t->stream);
    print_link(t->stream, base->name);
    fputs(" and", t->stream);
  }
  if (field->is_nullable) fputs(" or null", t->stream);
  if (field->is_optional) fputs(", optional", t->stream);
}

static void print_fields(table *t, const char *prefix, const tsr_record *record, bool is_whole);

static void print_field(table *t, const char *prefix, const tsr_field *field) {
  char path[PATH_BYTES];
  if (!field->about) return;
  snprintf(path, sizeof path, "%s%s", prefix, field->key);
  fprintf(t->stream, "| `%s` | ", path);
  print_type(t, field);
  fprintf(t->stream, " | %s |\n", field->about);
  if (!field->record || field->record->is_apart || find_shown(t, field->record) < t->count) return;
  assert(t->count < RECORDS);
  t->shown[t->count] = field->record;
  memcpy(t->paths[t->count++], path, sizeof path);
  strncat(path, field->is_list ? "[]." : ".", sizeof path - strlen(path) - 1);
  print_fields(t, path, field->record, false);
}

/* Fields of a base that is documented apart are left to that place, unless the record is to be shown `whole`. */
static void print_fields(table *t, const char *prefix, const tsr_record *record, bool is_whole) {
  if (record->base && (is_whole || !record->base->is_apart))
    print_fields(t, prefix, record->base, is_whole);
  for (const tsr_field *field = record->fields; field && field->key; field++)
    print_field(t, prefix, field);
}

static void print_table(FILE *stream, const char *title, const tsr_record *record, bool is_whole) {
  static table t;
  t.stream = stream;
  t.count = 0;
  fprintf(stream, "| %s | type | meaning |\n|---|---|---|\n", title);
  print_fields(&t, "", record, is_whole);
}

/* An answer's own fields, if it has any beside its devices; and those of a device. */
static void print_answer(FILE *stream, const tsr_record *answer) {
  bool has_own = false;
  static table t;
  t.stream = stream;
  t.count = 0;
  for (const tsr_field *field = answer->fields; field->key; field++) {
    if (is_devices(field)) continue;
    if (!has_own) fputs("| field | type | meaning |\n|---|---|---|\n", stream);
    has_own = true;
    print_field(&t, "", field);
  }
  if (has_own) fputc('\n', stream);
  if (device_of(answer)) print_table(stream, "field of a device", device_of(answer), true);
}

static void print_named(FILE *stream, const tsr_record *record) {
  if (tsr_question_find(record->name))
    print_answer(stream, record);
  else
    print_table(stream, "field", record, true);
}

static void print_techniques(FILE *stream) {
  fputs("\n| `--allow` | what may be changed |\n|---|---|\n", stream);
  for (size_t i = 0; tsr_allow_word(i); i++)
    fprintf(stream, "| `%s` | %s |\n", tsr_allow_word(i), tsr_allow_about(i));
  fputc('\n', stream);
}

static void print_targets(FILE *stream) {
  fputs("\n| `--for` | what is printed | file |\n|---|---|---|\n", stream);
  for (size_t i = 0; tsr_target_word(i); i++)
    fprintf(stream, "| `%s` | %s | `%s` |\n", tsr_target_word(i), tsr_target_about(i),
            tsr_target_file(i));
  fputc('\n', stream);
}

static void print_values(FILE *stream, const tsr_parameter *row) {
  if (row->kind == TSR_PARAMETER_FLAG) fputs("true or false", stream);
  if (row->kind == TSR_PARAMETER_COUNT) fputs("number", stream);
  if (row->kind == TSR_PARAMETER_TEXT) fprintf(stream, "string: `%s`", row->example);
  for (size_t i = 0; row->choices && row->choices[i]; i++)
    if (!strstr(row->choices[i], ":KEY")) fprintf(stream, "%s`%s`", i ? ", " : "", row->choices[i]);
}

static void print_run_options(FILE *stream) {
  fputs("\n| key | value | option of `simulate` and `train` |\n|---|---|---|\n", stream);
  for (const tsr_parameter *row = tsr_run_options; row->name; row++) {
    fprintf(stream, "| `%s` | ", row->name);
    print_values(stream, row);
    fprintf(stream, " | %s |\n", row->help);
  }
  fputc('\n', stream);
}

static void print_tables(FILE *stream) {
  for (size_t i = 0; i < tsr_relation_count(); i++) {
    const tsr_relation *relation = tsr_relation_at(i);
    fprintf(stream, "\n### `%s`\n\n%s Key: `%s`.\n\n| column | meaning |\n|---|---|\n",
            relation->name, relation->help, relation->key);
    for (size_t c = 0; c < relation->column_count; c++)
      fprintf(stream, "| `%s` | %s |\n", relation->columns[c].name, relation->columns[c].help);
  }
  fputc('\n', stream);
}

/* What a line begins, or NULL: a table that is not of fields. */
static void (*table_of(const char *line))(FILE *) {
  if (is_same(line, "<!-- techniques -->\n")) return print_techniques;
  if (is_same(line, "<!-- targets -->\n")) return print_targets;
  if (is_same(line, "<!-- tables -->\n")) return print_tables;
  return is_same(line, "<!-- run options -->\n") ? print_run_options : NULL;
}

bool cli_docs_page(FILE *stream, FILE *page) {
  static const char begin[] = "<!-- fields of ", end[] = "<!-- end -->";
  static char line[LINE_BYTES];
  static records all;
  bool is_skipped = false;
  collect_all(&all);
  for (size_t i = 0; tsr_train_event_fields(i); i++) collect(&all, tsr_train_event_fields(i));
  collect(&all, &cli_version_fields);
  collect(&all, &cli_doctor_fields);
  while (fgets(line, sizeof line, page)) {
    if (strncmp(line, end, strlen(end)) == 0) is_skipped = false;
    if (!is_skipped) fputs(line, stream);
    if (table_of(line)) {
      table_of(line)(stream);
      is_skipped = true;
    }
    if (strncmp(line, begin, strlen(begin)) != 0) continue;
    char *name = line + strlen(begin);
    name[strcspn(name, " ")] = '\0';
    const tsr_record *record = find_record(&all, name);
    if (!record) {
      fprintf(stderr, "gendocs: no answer has '%s'\n", name);
      return false;
    }
    print_named(stream, record);
    is_skipped = true;
  }
  return !is_skipped;
}

/* ---- The list ---- */

/* How a list is written: what follows a path, and what precedes each flag. */
typedef struct list_style {
  const char *after_path, *before_flag;
} list_style;

static const list_style plain_list = {" ", " "}, facts_list = {" = ", ", "};

static void list_fields(FILE *stream, const list_style *style, const char *prefix,
                        const tsr_record *record, bool is_optional) {
  if (record->base)
    list_fields(stream, style, prefix, record->base, is_optional || record->may_lack_base);
  for (const tsr_field *field = record->fields; field && field->key; field++) {
    char path[PATH_BYTES];
    static const char *const kinds[] = {
        [TSR_FIELD_BYTES] = "bytes", [TSR_FIELD_COUNT] = "count", [TSR_FIELD_EVENT] = "event",
        [TSR_FIELD_DELTA] = "delta", [TSR_FIELD_TIME] = "time",   [TSR_FIELD_DURATION] = "duration",
        [TSR_FIELD_FLAG] = "flag",   [TSR_FIELD_TEXT] = "text",   [TSR_FIELD_DEVICE] = "device",
        [TSR_FIELD_PAIR] = "pair",   [TSR_FIELD_MAP] = "map",     [TSR_FIELD_RECORD] = "record",
        [TSR_FIELD_REAL] = "real",   [TSR_FIELD_JSON] = "json"};
    if (!field->about) continue;
    snprintf(path, sizeof path, "%s%s%s", prefix, field->key, field->is_list ? "[]" : "");
    fprintf(stream, "%s%s%s", path, style->after_path, kinds[field->kind]);
    if (field->is_nullable) fprintf(stream, "%snullable", style->before_flag);
    if (field->is_optional || is_optional) fprintf(stream, "%soptional", style->before_flag);
    fputc('\n', stream);
    strncat(path, ".", sizeof path - strlen(path) - 1);
    if (field->record) list_fields(stream, style, path, field->record, false);
  }
}

/* The fields of one answer, whose name is between the prefix's two halves. */
static void list_answer(FILE *stream, const list_style *style, const char *before, const char *name,
                        const char *after, const tsr_record *record) {
  char prefix[96];
  snprintf(prefix, sizeof prefix, "%s%s%s", before, name, after);
  if (record) list_fields(stream, style, prefix, record, false);
}

void cli_field_list(FILE *stream) {
  for (size_t i = 0; i < tsr_question_count(); i++)
    list_answer(stream, &plain_list, "", tsr_question_at(i)->name, ": ",
                tsr_question_fields(tsr_question_at(i)));
  list_answer(stream, &plain_list, "", "version", ": ", &cli_version_fields);
}

void cli_field_facts(FILE *stream) {
  const tsr_record *event;
  for (size_t i = 0; i < tsr_question_count(); i++)
    list_answer(stream, &facts_list, "field ", tsr_question_at(i)->name, " ",
                tsr_question_fields(tsr_question_at(i)));
  list_answer(stream, &facts_list, "field ", "version", " ", &cli_version_fields);
  list_answer(stream, &facts_list, "field ", "doctor", " ", &cli_doctor_fields);
  for (size_t i = 0; (event = tsr_train_event_fields(i)) != NULL; i++)
    list_answer(stream, &facts_list, "field train.", event->name, " ", event);
}

/* ---- Classes of python/tessera/_answers.py ---- */

/* Records whose classes have methods, and the class of _fields.py that has these. */
static const char *const behaviours[][2] = {
    {"Frame", "Place"}, {"check", "Judged"}, {"plan", "Unframed"}, {"ranks", "Drawn"}};

static const char *behaviour(const char *name, const char *otherwise) {
  for (size_t i = 0; i < sizeof behaviours / sizeof *behaviours; i++)
    if (is_same(behaviours[i][0], name)) return behaviours[i][1];
  return otherwise;
}

static bool is_keyword(const char *key) {
  static const char *const words[] = {"pass", "in", "from", "is", "as", "if", "for", "with"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (is_same(words[i], key)) return true;
  return false;
}

/* What Answer has itself, or Mapping. */
static bool is_member(const char *key) {
  static const char *const words[] = {"verdict", "keys", "items",  "values",
                                      "get",     "json", "to_dict"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (is_same(words[i], key)) return true;
  return false;
}

/* The class of an answer is called like its question: "peak" -> Peak. */
static void print_class_name(FILE *stream, const char *name) {
  fputc(*name >= 'a' && *name <= 'z' ? *name - 'a' + 'A' : *name, stream);
  fputs(name + 1, stream);
}

static void print_python_type(FILE *stream, const tsr_field *field) {
  static const char *const types[] = {[TSR_FIELD_BYTES] = "int",
                                      [TSR_FIELD_COUNT] = "int",
                                      [TSR_FIELD_EVENT] = "int",
                                      [TSR_FIELD_DELTA] = "int",
                                      [TSR_FIELD_TIME] = "int",
                                      [TSR_FIELD_DURATION] = "int",
                                      [TSR_FIELD_FLAG] = "bool",
                                      [TSR_FIELD_TEXT] = "str",
                                      [TSR_FIELD_DEVICE] = "Union[int, str]",
                                      [TSR_FIELD_PAIR] = "Tuple[int, int]",
                                      [TSR_FIELD_MAP] = "Counts",
                                      [TSR_FIELD_RECORD] = "",
                                      [TSR_FIELD_REAL] = "float",
                                      [TSR_FIELD_JSON] = "Record"};
  if (field->is_nullable) fputs("Optional[", stream);
  if (field->is_list) fputs(is_devices(field) ? "Sequence[" : "Tuple[", stream);
  fputs(field->record ? field->record->name : types[field->kind], stream);
  if (field->is_list) fputs(is_devices(field) ? "]" : ", ...]", stream);
  if (field->is_nullable) fputc(']', stream);
}

/* A docstring: Markdown's links become their texts. */
static void print_docstring(FILE *stream, const char *text) {
  size_t column = strlen("    \"\"\"");
  fputs("    \"\"\"", stream);
  for (const char *at = text; *at; at++) {
    bool is_link_end = at[0] == ']' && at[1] == '(';
    if (is_link_end) at += strcspn(at, ")");
    if (is_link_end || *at == '[') continue;
    bool wraps = *at == ' ' && column + 1 + strcspn(at + 1, " ") > 110;
    fputs(wraps ? "\n    " : "", stream);
    if (!wraps) fputc(*at, stream);
    column = wraps ? 4 : column + 1;
  }
  fputs("\"\"\"\n", stream);
}

static void print_class(FILE *stream, const tsr_record *record) {
  const tsr_record *device = tsr_question_find(record->name) ? device_of(record) : NULL;
  fputs("\n\nclass ", stream);
  print_class_name(stream, record->name);
  fprintf(stream, "(%s", behaviour(record->name, record->base ? record->base->name : "Record"));
  if (record->may_lack_base && record->base) fprintf(stream, ", %s", record->base->name);
  if (device) fprintf(stream, ", %s", device->name);
  fputs("):\n", stream);
  print_docstring(stream, record->about);
  for (const tsr_field *field = record->fields; field && field->key; field++) {
    if (!field->about) continue;
    if (is_keyword(field->key) || is_member(field->key)) {
      fprintf(stream, "    # '%s' is an item only: the name is %s\n", field->key,
              is_keyword(field->key) ? "a keyword" : "that of a member of all answers");
      continue;
    }
    fprintf(stream, "    %s: ", field->key);
    print_python_type(stream, field);
    fputs(field->is_optional ? "  # not always there\n" : "\n", stream);
  }
}

void cli_python_answers(FILE *stream) {
  static records all;
  collect_all(&all);
  fputs("\"\"\"Answers as Python objects: a class for each, and for each of its parts, with the "
        "fields of the JSON.\n\n"
        "docs/json.md explains the fields. Written by gendocs (`./run generate`) from what the "
        "questions declare in\n"
        "their fields.c: change it there.\n\"\"\"\n"
        "from typing import Any, Dict, Optional, Sequence, Tuple, Union\n\n"
        "from ._fields import Answer, Counts, Drawn, Input, Judged, Place, Record, Unframed, "
        "Warning\n\n"
        "__all__ = ['Answer', 'Counts', 'Input', 'Record', 'Warning']\n",
        stream);
  for (size_t i = 0; i < all.count; i++) {
    static const char *const by_hand[] = {"Answer", "Input",
                                          "Warning"}; /* those that every answer has */
    bool is_there = false;
    for (size_t k = 0; k < sizeof by_hand / sizeof *by_hand; k++)
      is_there = is_there || is_same(by_hand[k], all.items[i]->name);
    if (!is_there) print_class(stream, all.items[i]);
  }
  fputs("\n\n# The class of each question's answer; of others it is Answer.\nKINDS: Dict[str, Any] "
        "= {\n",
        stream);
  for (size_t i = 0; i < tsr_question_count(); i++) {
    const char *name = tsr_question_at(i)->name;
    if (!tsr_question_fields(tsr_question_at(i))) continue;
    fprintf(stream, "    '%s': ", name);
    print_class_name(stream, name);
    fputs(",\n", stream);
  }
  fputs("}\n", stream);
}
