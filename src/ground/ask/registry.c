/* registry.c - the list of questions, and a function to ask any of them.
 *
 * The rows are a table of the program that links this (src/rows.c): each half of the library supplies its own.
 *
 * An answer is the value that a question computed, with what a report needs to name its inputs. It
 * borrows the studies and owns all else.
 */
#include <assert.h>
#include <string.h>

#include "ask/question.h"
#include "ask/values.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "tessera/study.h"

struct tsr_answer {
  const tsr__question_row *question;
  void *value;
  tsr_report_input inputs[TSR_QUESTION_SUBJECTS];
  size_t input_count;
  char *names;        /* of the inputs, one after the other */
  tsr__values values; /* read when the first is asked for */
};

/* ---- Rows ---- */

size_t tsr_question_count(void) {
  size_t count = 0;
  while (tsr__question_rows[count]) count++;
  return count;
}

const tsr_question *tsr_question_at(size_t index) {
  assert(index < tsr_question_count());
  return &tsr__question_rows[index]->about;
}

const tsr_question *tsr_question_find(const char *name) {
  for (size_t i = 0; tsr__question_rows[i]; i++)
    if (strcmp(tsr__question_rows[i]->about.name, name) == 0) return &tsr__question_rows[i]->about;
  return NULL;
}

const tsr_parameter *tsr_question_parameter(const tsr_question *question, size_t index) {
  return tsr__parameter_at(question->parameters, question->parameter_count, index);
}

int tsr_question_params(const tsr_question *question, tsr_interface interface, tsr_params **out,
                        tsr_error *error) {
  return tsr_params_new(question->parameters, question->parameter_count, interface, out, error);
}

/* The row that `about` is the public part of: its first member. */
static const tsr__question_row *row_of(const tsr_question *about) {
  for (size_t i = 0; tsr__question_rows[i]; i++)
    if (&tsr__question_rows[i]->about == about) return tsr__question_rows[i];
  assert(false && "a question that is not the registry's");
  return NULL;
}

const tsr_record *tsr_question_fields(const tsr_question *question) {
  return row_of(question)->fields;
}

/* ---- Asking ---- */

/* Check required parameters, then the question's own rules. */
int tsr_question_check(const tsr_question *question, const tsr_params *params, tsr_error *error) {
  const tsr__question_row *row = row_of(question);
  const tsr_parameter *parameter;
  for (size_t i = 0; (parameter = tsr_question_parameter(question, i)); i++) {
    bool is_required = parameter->is_operand && !parameter->is_optional;
    if (!is_required || tsr_params_has(params, parameter->name)) continue;
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "%s is missing", parameter->name);
  }
  return row->check ? row->check(params, error) : 0;
}

/* How many snapshots the question is about, with these parameters. */
static size_t subjects_of(const tsr_question *question, const tsr_params *params) {
  size_t count = question->subject_count;
  const tsr_parameter *row;
  for (size_t i = 0; (row = tsr_question_parameter(question, i)); i++)
    if (row->kind == TSR_PARAMETER_SNAPSHOT && tsr_params_has(params, row->name)) count++;
  return count;
}

/* An answer without its value, about copies of the subjects' names. */
static tsr_answer *answer_new(const tsr__question_row *question, const tsr_subject *subjects,
                              size_t subject_count) {
  size_t size = 1;
  for (size_t i = 0; i < subject_count; i++) size += strlen(subjects[i].name) + 1;
  tsr_answer *answer = TSR__NEW(tsr_answer);
  char *at = TSR__NEW_ARRAY(char, size);
  if (!answer || !at) {
    tsr__free(answer);
    tsr__free(at);
    return NULL;
  }
  assert(subject_count <= TSR_QUESTION_SUBJECTS);
  *answer = (tsr_answer){.question = question, .input_count = subject_count, .names = at};
  for (size_t i = 0; i < TSR_QUESTION_SUBJECTS; i++)
    answer->inputs[i].path = ""; /* if nothing is named */
  for (size_t i = 0; i < subject_count; i++) {
    size_t length = strlen(subjects[i].name) + 1;
    memcpy(at, subjects[i].name, length);
    /* Of a question with one subject, one more is of the same kind: that of its SNAPSHOT parameter. */
    const tsr_subject_row *row =
        &question->about.subjects[i < question->about.subject_count ? i : 0];
    bool has_snapshot = subjects[i].study && row->snapshot;
    answer->inputs[i] =
        (tsr_report_input){at, has_snapshot ? row->snapshot(subjects[i].study) : NULL};
    at += length;
  }
  assert(at + 1 == answer->names + size);
  return answer;
}

static int ask(const tsr__question_row *row, const tsr_subject *subjects, size_t subject_count,
               const tsr_params *params, const tsr_query *query, tsr_answer **out,
               tsr_error *error) {
  tsr_study *studies[TSR_QUESTION_SUBJECTS] = {NULL};
  size_t count = 0; /* a subject that is no snapshot, such as a model, is only named */
  for (size_t i = 0; i < subject_count; i++)
    if (subjects[i].study) studies[count++] = subjects[i].study;
  tsr__asked asked = {studies, count, params, query};
  tsr_answer *answer = answer_new(row, subjects, subject_count);
  if (!answer) return tsr__fail_memory(error);
  int status = row->ask(&asked, &answer->value, error);
  if (status) {
    tsr__free(answer->names);
    tsr__free(answer);
    return status;
  }
  assert(answer->value);
  /* A snapshot that a question creates is named after its subject: the model of a simulation. */
  if (row->snapshot) answer->inputs[0].snapshot = row->snapshot(answer->value);
  *out = answer;
  return 0;
}

int tsr_ask(const tsr_question *question, const tsr_subject *subjects, size_t subject_count,
            const tsr_params *params, const tsr_query *query, tsr_answer **out, tsr_error *error) {
  const tsr__question_row *row = row_of(question);
  tsr_params *defaults = NULL;
  tsr_query which;
  int status = tsr__options_read(query, &which, sizeof which, error);
  if (status == 0 && !params) {
    status = tsr_question_params(question, TSR_INTERFACE_PYTHON, &defaults, error);
    params = defaults;
  }
  if (status == 0) status = tsr_question_check(question, params, error);
  if (status == 0 && question->subject_count && subject_count != subjects_of(question, params))
    status =
        tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "'%s' needs %zu snapshot%s, not %zu",
                  question->name, subjects_of(question, params),
                  subjects_of(question, params) == 1 ? "" : "s", subject_count);
  if (status == 0 && subject_count > TSR_QUESTION_SUBJECTS)
    status =
        tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "'%s' takes %d subjects, not %zu",
                  question->name, TSR_QUESTION_SUBJECTS, subject_count);
  if (status == 0)
    status = ask(row, subjects, subject_count, params, query ? &which : NULL, out, error);
  tsr_params_free(defaults);
  return status;
}

void tsr_answer_free(tsr_answer *answer) {
  if (!answer) return;
  answer->question->free(answer->value);
  tsr__values_release(&answer->values);
  tsr__free(answer->names);
  tsr__free(answer);
}

/* ---- Answers ---- */

const tsr_question *tsr_answer_question(const tsr_answer *answer) {
  return &answer->question->about;
}

const void *tsr_answer_value(const tsr_answer *answer) {
  return answer->value;
}

bool tsr_answer_passed(const tsr_answer *answer) {
  return !answer->question->passed || answer->question->passed(answer->value);
}

const tsr_snapshot *tsr_answer_snapshot(const tsr_answer *answer) {
  return answer->question->snapshot ? answer->question->snapshot(answer->value) : NULL;
}

int tsr_answer_write(const tsr_answer *answer, const tsr_report_options *options,
                     tsr_write_fn *write, void *context, tsr_error *error) {
  tsr_report_options how;
  int status = tsr__options_read(options, &how, sizeof how, error);
  tsr__report_call call = {answer->inputs, answer->input_count, answer->value, &how, write,
                           context};
  return status ? status : answer->question->report(&call, error);
}

static int append(void *context, const char *text, size_t size_bytes) {
  tsr__buffer *out = context;
  tsr__buffer_append(out, text, size_bytes);
  return out->failed ? -1 : 0;
}

/* The value at a path, of the JSON that is read once. */
static int find(tsr_answer *answer, const char *path, const tsr__node **out, tsr_error *error) {
  tsr_report_options options = {.format = TSR_REPORT_JSON};
  int status = 0;
  if (!answer->values.nodes.count) {
    status = tsr_answer_write(answer, &options, append, &answer->values.json, error);
    bool is_lost = answer->values.json.failed || (!status && !tsr__values_read(&answer->values));
    if (is_lost) status = tsr__fail_memory(error);
    if (status) tsr__values_release(&answer->values);
  }
  return status ? status
                : tsr__values_find(&answer->values, answer->question->fields, path, out, error);
}

int tsr_answer_number(tsr_answer *answer, const char *path, int64_t *out, tsr_error *error) {
  const tsr__node *node = NULL;
  int status = find(answer, path, &node, error);
  return status ? status : tsr__node_number(node, path, out, error);
}

int tsr_answer_real(tsr_answer *answer, const char *path, double *out, tsr_error *error) {
  const tsr__node *node = NULL;
  int status = find(answer, path, &node, error);
  return status ? status : tsr__node_real(node, path, out, error);
}

int tsr_answer_text(tsr_answer *answer, const char *path, tsr_text *out, tsr_error *error) {
  const tsr__node *node = NULL;
  int status = find(answer, path, &node, error);
  return status ? status : tsr__node_text(node, path, out, error);
}

int tsr_answer_count(tsr_answer *answer, const char *path, uint64_t *out, tsr_error *error) {
  const tsr__node *node = NULL;
  int status = find(answer, path, &node, error);
  return status ? status : tsr__node_count(node, path, out, error);
}

int tsr_answer_verdict(const tsr_answer *answer, tsr_write_fn *write, void *context,
                       tsr_error *error) {
  tsr_report_options options = {.format = TSR_REPORT_VERDICT, .quiet = true};
  return tsr_answer_write(answer, &options, write, context, error);
}

int tsr_answer_write_form(const tsr_answer *answer, const char *form, const char *root,
                          const tsr_report_options *options, tsr_write_fn *write, void *context,
                          tsr_error *error) {
  const tsr__question_row *row = answer->question;
  tsr_report_options how;
  int status = tsr__options_read(options, &how, sizeof how, error);
  if (status) return status;
  tsr__report_call call = {answer->inputs, answer->input_count, answer->value, &how, write,
                           context};
  for (size_t i = 0; row->forms && row->forms[i]; i++)
    if (tsr_word_is(form, strlen(form), row->forms[i])) return row->form(&call, i, root, error);
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "'%s' has no format '%.60s'",
                   row->about.name, form);
}
