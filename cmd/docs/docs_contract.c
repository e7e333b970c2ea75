/* docs_contract.c - what scripts and programs rely on of the command line, of questions and of the JSON, one fact a line:
 *
 *   command tessera peak = 1 to 1 operands
 *   option tessera peak --quiet = flag, letter q
 *   choice tessera profile --by category = a word
 *   parameter at time_us = time
 *   field peak devices[].peak.time_us = time, nullable
 *   exit answered = 0
 *
 * `./run release contract` keeps these lines for each version, in tests/stable, and a test compares them with those of the tree
 * (docs/stability.md). They are read from the rows that the parser and the emitter use, so none is missing. */
#include <stdint.h>
#include <string.h>
#include <tessera/tessera.h>
#include <tessera/unstable/fields.h>
#include <tessera/unstable/params.h>
#include <tessera/unstable/relations.h>
#include <tessera/unstable/runs.h>

#include "docs.h"

static const char *kind_word(tsr_parameter_kind kind) {
  static const char *const words[] = {
      [TSR_PARAMETER_FLAG] = "flag",       [TSR_PARAMETER_TRUTH] = "truth",
      [TSR_PARAMETER_COUNT] = "count",     [TSR_PARAMETER_INTEGER] = "integer",
      [TSR_PARAMETER_TIME] = "time",       [TSR_PARAMETER_BYTES] = "bytes",
      [TSR_PARAMETER_CHOICE] = "choice",   [TSR_PARAMETER_TEXT] = "text",
      [TSR_PARAMETER_TEXTS] = "texts",     [TSR_PARAMETER_DEVICES] = "devices",
      [TSR_PARAMETER_SETTING] = "setting", [TSR_PARAMETER_SETTINGS] = "settings",
      [TSR_PARAMETER_OBJECT] = "object",   [TSR_PARAMETER_FILE] = "file",
      [TSR_PARAMETER_PATH] = "path",       [TSR_PARAMETER_SNAPSHOT] = "snapshot",
      [TSR_PARAMETER_CHOICES] = "choices"};
  return words[kind];
}

/* What a parameter is, without the end of the line. */
static void put_parameter(FILE *stream, const tsr_parameter *row) {
  fputs(kind_word(row->kind), stream);
  if ((row->kind == TSR_PARAMETER_COUNT || row->kind == TSR_PARAMETER_INTEGER) && row->fallback)
    fprintf(stream, ", default %lld", (long long)row->fallback);
}

/* The words of a choice, or of a list whose words a function has. */
static void put_choices(FILE *stream, const char *owner, const char *name,
                        const tsr_parameter *row) {
  for (size_t i = 0; row->choices && row->choices[i]; i++)
    fprintf(stream, "choice %s %s %s = a word\n", owner, name, row->choices[i]);
  for (size_t i = 0; !row->choices && row->word && row->word(i); i++)
    fprintf(stream, "choice %s %s %s = a word\n", owner, name, row->word(i));
  for (const tsr_synonym *one = row->synonyms; one && one->typed; one++)
    fprintf(stream, "choice %s %s %s = the same as %s\n", owner, name, one->typed, one->meant);
}

static void put_option(FILE *stream, const char *owner, const tsr_parameter *row) {
  char name[128];
  snprintf(name, sizeof name, "--%s", cli_option_name(row));
  fprintf(stream, "option %s %s = ", owner, name);
  put_parameter(stream, row);
  if (row->letter) fprintf(stream, ", letter %c", row->letter);
  fputc('\n', stream);
  put_choices(stream, owner, name, row);
}

static void put_command(FILE *stream, const cli_command *command) {
  char owner[128];
  const tsr_parameter *row;
  snprintf(owner, sizeof owner, "%s%s", command->is_drop_in ? "" : "tessera ", command->about.name);
  fprintf(stream, "command %s = %zu to ", owner, command->operand_min);
  if (command->operand_max == SIZE_MAX)
    fputs("any operands\n", stream);
  else
    fprintf(stream, "%zu operands\n", command->operand_max);
  for (size_t i = 0; (row = cli_option_at(command, i)) != NULL; i++) put_option(stream, owner, row);
}

/* What Python and C programs call the parameters of a question. */
static void put_question(FILE *stream, const tsr_question *question) {
  const tsr_parameter *row;
  fprintf(stream, "question %s = %zu snapshots\n", question->name, question->subject_count);
  for (size_t i = 0; (row = tsr_question_parameter(question, i)) != NULL; i++) {
    if (row->hidden_from & TSR_INTERFACE_PYTHON) continue;
    fprintf(stream, "parameter %s %s = ", question->name, row->name);
    put_parameter(stream, row);
    if (row->is_operand && !row->is_optional) fputs(", required", stream);
    fputc('\n', stream);
    put_choices(stream, question->name, row->name, row);
  }
}

static void put_exits(FILE *stream) {
  static const struct {
    const char *word;
    cli_exit status;
  } exits[] = {{"answered", CLI_ANSWERED},
               {"check-failed", CLI_CHECK_FAILED},
               {"usage", CLI_USAGE},
               {"input", CLI_INPUT},
               {"fault", CLI_FAULT}};
  for (size_t i = 0; i < sizeof exits / sizeof *exits; i++)
    fprintf(stream, "exit %s = %d\n", exits[i].word, exits[i].status);
}

static void put_environment(FILE *stream) {
  for (const cli_note *note = cli_environment; note->name; note++)
    for (const char *at = note->name; *at;) {
      size_t length = strcspn(at, ",");
      fprintf(stream, "environment %.*s = read\n", (int)length, at);
      at += length;
      at += strspn(at, ", ");
    }
}

static void put_tables(FILE *stream) {
  for (size_t i = 0; i < tsr_relation_count(); i++) {
    const tsr_relation *relation = tsr_relation_at(i);
    fprintf(stream, "table %s = key %s\n", relation->name, relation->key);
    for (size_t c = 0; c < relation->column_count; c++)
      fprintf(stream, "column %s.%s = %s\n", relation->name, relation->columns[c].name,
              relation->columns[c].type == TSR_RELATION_TEXT ? "text" : "integer");
  }
}

void cli_contract(FILE *stream) {
  for (size_t i = 0; i < cli_command_count(); i++) {
    cli_command command = cli_command_at(i);
    put_command(stream, &command);
  }
  for (size_t i = 0; i < cli_drop_in_count(); i++) {
    cli_command command = cli_drop_in_at(i);
    put_command(stream, &command);
  }
  for (size_t i = 0; i < tsr_question_count(); i++) put_question(stream, tsr_question_at(i));
  for (const tsr_parameter *row = tsr_run_options; row->name; row++) {
    fprintf(stream, "option plan-file %s = ", row->name);
    put_parameter(stream, row);
    fputc('\n', stream);
  }
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++)
    fprintf(stream, "category %s = %d\n", tsr_category_name((tsr_category)i), i);
  put_exits(stream);
  put_environment(stream);
  put_tables(stream);
  cli_field_facts(stream);
}
