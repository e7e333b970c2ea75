/* questions.c - the registry as JSON, from which the page makes its forms: it has no list of questions or options of its own. */
#include "questions.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/tessera.h>
#include <tessera/unstable/runs.h>

/* What the page needs to know of a value: whether it is ticked, chosen, or typed. */
static const char *control_of(tsr_parameter_kind kind) {
  switch (kind) {
  case TSR_PARAMETER_FLAG: return "tick";
  case TSR_PARAMETER_CHOICE:
  case TSR_PARAMETER_CHOICES: return "choose";
  case TSR_PARAMETER_FILE:
  case TSR_PARAMETER_SNAPSHOT: return "file";
  case TSR_PARAMETER_TEXTS:
  case TSR_PARAMETER_SETTINGS: return "several";
  default: return "type";
  }
}

/* Takes over `value`; false if memory has run out. */
static bool put(json_t *object, const char *key, json_t *value) {
  return json_object_set_new(object, key, value) == 0;
}

static bool put_text(json_t *object, const char *key, const char *text) {
  return !text || put(object, key, json_string(text));
}

static json_t *words(const char *const *choices) {
  json_t *list = json_array();
  for (; list && *choices; choices++)
    if (json_array_append_new(list, json_string(*choices)) != 0) break;
  return list;
}

/* A step graph fixes all options but these: only `simulate` has a form that asks. */
static bool is_of_graphs(const tsr_question *question, const tsr_parameter *row) {
  return strcmp(question->name, "simulate") == 0 && tsr_simulate_is_open_to_traced(row->name);
}

static json_t *parameter_json(const tsr_question *question, const tsr_parameter *row) {
  char help[TSR_PARAMETER_HELP_BYTES];
  json_t *out = json_object();
  bool has_default = row->kind == TSR_PARAMETER_COUNT && row->fallback != 0;
  bool ok = put_text(out, "name", row->name) &&
            put_text(out, "option", row->option ? row->option : row->name) &&
            put_text(out, "control", control_of(row->kind)) &&
            put_text(out, "argument", row->argument) &&
            (!has_default || put(out, "default", json_integer(row->fallback))) &&
            put_text(out, "help", tsr_parameter_help(row, help, sizeof help)) &&
            put(out, "is_operand", json_boolean(row->is_operand)) &&
            (!is_of_graphs(question, row) || put(out, "is_of_graphs", json_true())) &&
            put(out, "is_many", json_boolean(row->kind == TSR_PARAMETER_TEXTS)) &&
            (!row->choices || put(out, "choices", words(row->choices)));
  if (ok) return out;
  json_decref(out);
  return NULL;
}

static json_t *question_json(const tsr_question *question) {
  json_t *out = json_object(), *parameters = json_array(), *subjects = json_array();
  const tsr_parameter *row;
  bool ok = put_text(out, "name", question->name) && put_text(out, "summary", question->summary) &&
            put_text(out, "main_options", question->main_options) &&
            put(out, "situation", json_integer(question->situation));
  for (size_t i = 0; ok && i < question->subject_count; i++)
    ok = json_array_append_new(subjects, json_string(question->subjects[i].argument)) == 0;
  for (size_t i = 0; ok && (row = tsr_question_parameter(question, i)); i++)
    if (!(row->hidden_from & TSR_INTERFACE_COMMAND) && !row->is_written)
      ok = json_array_append_new(parameters, parameter_json(question, row)) == 0;
  ok = put(out, "subjects", subjects) && ok;
  ok = put(out, "parameters", parameters) && ok;
  if (ok) return out;
  json_decref(out);
  return NULL;
}

int web_print_questions(void) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (size_t i = 0; ok && i < tsr_question_count(); i++)
    ok = json_array_append_new(list, question_json(tsr_question_at(i))) == 0;
  ok = ok && json_dumpf(list, stdout, JSON_COMPACT) == 0;
  json_decref(list);
  return ok ? 0 : 4;
}

static json_t *card_json(const tsr_gpu *card) {
  json_t *out = json_object();
  bool ok = put_text(out, "name", card->name) && put_text(out, "title", card->title) &&
            put(out, "memory_bytes", json_integer((json_int_t)card->memory_bytes));
  if (ok) return out;
  json_decref(out);
  return NULL;
}

int web_print_lists(void) {
  json_t *out = json_object(), *cards = json_array();
  tsr_gpu card;
  bool ok = put(out, "models", words(tsr_model_names()));
  for (size_t i = 0; ok && tsr_gpu_at(i, &card); i++)
    ok = json_array_append_new(cards, card_json(&card)) == 0;
  ok = put(out, "cards", cards) && ok && json_dumpf(out, stdout, JSON_COMPACT) == 0;
  json_decref(out);
  return ok ? 0 : 4;
}
