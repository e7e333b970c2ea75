/* help.c - renders the overview and each command's help from the rows of commands.c.
 *
 *   Usage: tessera COMMAND [options] OPERANDS
 *
 *   Paragraphs, wrapped.
 *
 *   Options:
 *     -o, --output FILE    Write the answer ...       a list: heads on the left, texts wrapped
 *                          instead of ...             in a column that fits the widest head
 *
 * The width is fixed, so that help reads the same in a terminal, a pipe and a test.
 */
#define _POSIX_C_SOURCE 200809L

#include "help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"

#define WIDTH 80
/* A head wider than this has its text on the next line. */
#define HEAD_MAX 26

/* Print `text` wrapped, from column `column` on; lines after the first are indented by `indent`.
 * Ends in a newline. An empty line in the text starts a paragraph. */
static void wrap(FILE *stream, const char *text, int column, int indent) {
  bool line_is_empty = true;
  while (*text) {
    int length = (int)strcspn(text, " \n");
    if (!line_is_empty && column + 1 + length > WIDTH) {
      fprintf(stream, "\n%*s", indent, "");
      column = indent;
      line_is_empty = true;
    }
    fprintf(stream, "%s%.*s", line_is_empty ? "" : " ", length, text);
    column += length + !line_is_empty;
    line_is_empty = false;
    text += length;
    if (*text == '\n') {
      fprintf(stream, "\n\n%*s", indent, "");
      column = indent;
      line_is_empty = true;
    }
    text += strspn(text, " \n");
  }
  fputc('\n', stream);
}

/* One entry of a list whose texts start at column `text_column`. */
static void print_entry(FILE *stream, const char *head, const char *text, int text_column) {
  int used = fprintf(stream, "  %s", head);
  if (used + 2 > text_column) {
    fputc('\n', stream);
    used = 0;
  }
  fprintf(stream, "%*s", text_column - used, "");
  wrap(stream, text, text_column, text_column);
}

/* Where texts start when this is the widest head. */
static int text_column(size_t widest) {
  return 2 + (int)(widest > HEAD_MAX ? HEAD_MAX : widest) + 2;
}

static void print_notes(FILE *stream, const char *title, const cli_note *notes) {
  size_t widest = 0;
  for (const cli_note *note = notes; note->name; note++)
    if (strlen(note->name) > widest) widest = strlen(note->name);
  fprintf(stream, "\n%s:\n", title);
  for (const cli_note *note = notes; note->name; note++)
    print_entry(stream, note->name, note->text, text_column(widest));
}

/* "-o, --output FILE"; heads without a letter are indented as if they had one. */
static size_t option_head(const tsr_parameter *row, char *head, size_t size) {
  char letter[] = "    ";
  if (row->letter) memcpy(letter, (char[]){'-', row->letter, ','}, 3);
  snprintf(head, size, "%s--%s%s%s", letter, cli_option_name(row), row->argument ? " " : "",
           row->argument ? row->argument : "");
  return strlen(head);
}

/* The options of a command, or with NULL those that all share. */
static void print_options(FILE *stream, const char *title, const cli_command *command) {
  char head[80], text[TSR_PARAMETER_HELP_BYTES];
  size_t widest = 0;
  const tsr_parameter *row;
  for (size_t i = 0; (row = cli_option_at(command, i)) != NULL; i++) {
    size_t length = option_head(row, head, sizeof head);
    if (length > widest) widest = length;
  }
  fprintf(stream, "\n%s:\n", title);
  for (size_t i = 0; (row = cli_option_at(command, i)) != NULL; i++) {
    option_head(row, head, sizeof head);
    print_entry(stream, head, tsr_parameter_help(row, text, sizeof text), text_column(widest));
  }
}

void cli_help_command(FILE *stream, const cli_command *command) {
  const char *program = command->is_drop_in ? "" : "tessera ";
  const char *operands = cli_command_operands(command);
  const tsr_question *about = &command->about;
  fprintf(stream, "%s%s - %s\n\n", program, about->name, about->summary);
  fprintf(stream, "Usage: %s%s [options]%s%s\n\n", program, about->name, *operands ? " " : "",
          operands);
  wrap(stream, about->description, 0, 0);
  print_options(stream, "Options", command);
  if (!about->examples[0].command) return;
  fputs("\nExamples:\n", stream);
  for (int i = 0; i < TSR_QUESTION_EXAMPLES && about->examples[i].command; i++) {
    fprintf(stream, "  %s\n      ", about->examples[i].command);
    wrap(stream, about->examples[i].text, 6, 6);
  }
}

void cli_help_overview(FILE *stream) {
  size_t widest = 0;
  fprintf(stream, "tessera - %s\n\nUsage: tessera COMMAND [options] FILE\n\n", cli_tagline);
  wrap(stream, cli_description, 0, 0);
  for (size_t i = 0; i < cli_command_count(); i++) {
    size_t length = strlen(cli_command_at(i).about.name);
    if (length > widest) widest = length;
  }
  fputs("\nCommands:\n", stream);
  for (size_t i = 0; i < cli_command_count(); i++) {
    cli_command command = cli_command_at(i);
    print_entry(stream, command.about.name, command.about.summary, text_column(widest));
  }
  fputs("\nReplacements for Mosaic's commands of the same names, with their options:\n", stream);
  for (size_t i = 0; i < cli_drop_in_count(); i++)
    fprintf(stream, "  %s\n", cli_drop_in_at(i).about.name);
  print_options(stream, "Options of every command", NULL);
  print_notes(stream, "Exit status", cli_exits);
  print_notes(stream, "Environment", cli_environment);
  fputs("\n'tessera help COMMAND' explains a command and its options.\n", stream);
}

/* As one piece: a stream that fails in the middle of many small ones forgets why. */
static int write_help(cli_session *session, const cli_command *about) {
  cli_text text = {0};
  FILE *stream = cli_text_open(&text);
  if (!stream) return TSR_ERROR_MEMORY;
  if (about)
    cli_help_command(stream, about);
  else
    cli_help_overview(stream);
  int status = cli_text_close(stream, &text) ? 0 : TSR_ERROR_MEMORY;
  if (status == 0 && cli_output_write(&session->output, text.data, text.size))
    status = TSR_ERROR_WRITE;
  free(text.data);
  return status;
}

/* `tessera help [COMMAND]`, `tessera [COMMAND] --help`. */
int cli_help(cli_session *session) {
  const cli_options *options = session->options;
  const cli_command *about = options->command;
  cli_command named;
  if (about && !about->run && !options->help) about = NULL;
  if (about == NULL && options->operand_count > 0 && !options->help) {
    if (!cli_command_find(options->operands[0], &named))
      return cli_unknown_command(options->operands[0]);
    about = &named;
  }
  return write_help(session, about);
}
