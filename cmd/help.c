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
#include "help.h"

#include <string.h>

#include "options.h"
#include "session.h"

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
static size_t option_head(const cli_option *row, char *head, size_t size) {
  char letter[] = "    ";
  if (row->letter) memcpy(letter, (char[]){'-', row->letter, ','}, 3);
  snprintf(head, size, "%s--%s%s%s", letter, row->name, row->argument ? " " : "",
           row->argument ? row->argument : "");
  return strlen(head);
}

/* The options of a command, or with NULL those that all share. */
static bool is_listed(const cli_option *row, const cli_command *command) {
  return command ? cli_option_applies(row, command) : cli_option_is_shared(row);
}

static void print_options(FILE *stream, const char *title, const cli_command *command) {
  char head[80];
  size_t widest = 0;
  for (const cli_option *row = cli_options_of(command); row->name; row++) {
    if (!is_listed(row, command)) continue;
    size_t length = option_head(row, head, sizeof head);
    if (length > widest) widest = length;
  }
  fprintf(stream, "\n%s:\n", title);
  for (const cli_option *row = cli_options_of(command); row->name; row++) {
    if (!is_listed(row, command)) continue;
    option_head(row, head, sizeof head);
    print_entry(stream, head, row->help, text_column(widest));
  }
}

void cli_help_command(FILE *stream, const cli_command *command) {
  const char *program = command->is_drop_in ? "" : "tessera ";
  fprintf(stream, "%s%s - %s\n\n", program, command->name, command->summary);
  fprintf(stream, "Usage: %s%s [options]%s%s\n\n", program, command->name,
          *command->operands ? " " : "", command->operands);
  wrap(stream, command->description, 0, 0);
  print_options(stream, "Options", command);
  if (!command->examples[0].name) return;
  fputs("\nExamples:\n", stream);
  for (int i = 0; i < CLI_EXAMPLES_MAX && command->examples[i].name; i++) {
    fprintf(stream, "  %s\n      ", command->examples[i].name);
    wrap(stream, command->examples[i].text, 6, 6);
  }
}

void cli_help_overview(FILE *stream) {
  size_t widest = 0;
  fprintf(stream, "tessera - %s\n\nUsage: tessera COMMAND [options] FILE\n\n", cli_tagline);
  wrap(stream, cli_description, 0, 0);
  for (const cli_command *row = cli_commands; row->name; row++)
    if (strlen(row->name) > widest) widest = strlen(row->name);
  fputs("\nCommands:\n", stream);
  for (const cli_command *row = cli_commands; row->name; row++)
    print_entry(stream, row->name, row->summary, text_column(widest));
  fputs("\nIn place of Mosaic's commands of the same names, each with its options:\n", stream);
  for (const cli_command *row = cli_drop_ins; row->name; row++)
    fprintf(stream, "  %s\n", row->name);
  print_options(stream, "Options of every command", NULL);
  print_notes(stream, "Exit status", cli_exits);
  print_notes(stream, "Environment", cli_environment);
  fputs("\n'tessera help COMMAND' explains a command and its options.\n", stream);
}

/* `tessera help [COMMAND]`, `tessera [COMMAND] --help`. */
int cli_help(cli_session *session) {
  const cli_options *options = session->options;
  const cli_command *about = options->command;
  if (about && about->run == cli_help && !options->help) about = NULL;
  if (about == NULL && options->operand_count > 0 && !options->help) {
    about = cli_command_find(options->operands[0]);
    if (!about) return cli_unknown_command(options->operands[0]);
  }
  FILE *stream = cli_output_stream(&session->output);
  if (!stream) return TSR_ERROR_WRITE;
  if (about)
    cli_help_command(stream, about);
  else
    cli_help_overview(stream);
  return 0;
}
