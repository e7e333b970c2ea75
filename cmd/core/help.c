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
 * Short help is the first paragraph of each text, the first sentence about the options that most users need, and the names of
 * the others; --help-all prints all. The width is that of the terminal or COLUMNS within limits, and 80 for a pipe.
 */
#define _POSIX_C_SOURCE 200809L

#include "help.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"

#define WIDTH        80
#define WIDTH_MIN    60
#define WIDTH_MAX    100
#define WIDTH_NARROW 72
/* A head wider than this has its text on the next line. */
#define HEAD_MAX 26

/* Where a page is printed, and how. */
typedef struct page {
  FILE *stream;
  int width;
  bool is_short; /* the first paragraph, and the main options */
} page;

/* The commands in the order of the situations in which a user looks for one. */
static const struct {
  tsr_situation situation;
  const char *title;
} groups[] = {
    {TSR_SITUATION_FAILURE, "It ran out of memory:"},
    {TSR_SITUATION_USE, "What used the memory:"},
    {TSR_SITUATION_CHANGE, "What changed:"},
    {TSR_SITUATION_FORECAST, "Before anything has run:"},
    {TSR_SITUATION_TRAINING, "Training:"},
    {TSR_SITUATION_PROGRAMS, "For other programs:"},
};
static_assert(sizeof groups / sizeof *groups == TSR_SITUATION_COUNT, "a title for each situation");

/* Those of the shared options that short help explains. */
static const char main_shared[] = "device top json output";

static int width_of(uint32_t columns) {
  if (!columns) return WIDTH;
  return columns < WIDTH_MIN ? WIDTH_MIN : columns > WIDTH_MAX ? WIDTH_MAX : (int)columns;
}

/* The length of a text's first paragraph, and of its first sentence with the full stop. */
static size_t first_paragraph(const char *text) {
  return strcspn(text, "\n");
}

static size_t first_sentence(const char *text) {
  const char *end = strstr(text, ". ");
  return end ? (size_t)(end - text) + 1 : strlen(text);
}

/* Print at most `size` bytes of `text` wrapped, from column `column` on; lines after the first are indented by `indent`.
 * Ends in a newline. An empty line in the text starts a paragraph. */
static void wrap_part(const page *p, const char *text, size_t size, int column, int indent) {
  FILE *stream = p->stream;
  bool line_is_empty = true;
  const char *end = text + strnlen(text, size);
  while (text < end) {
    int length = (int)strcspn(text, " \n");
    if (!line_is_empty && column + 1 + length > p->width) {
      fprintf(stream, "\n%*s", indent, "");
      column = indent;
      line_is_empty = true;
    }
    fprintf(stream, "%s%.*s", line_is_empty ? "" : " ", length, text);
    column += length + !line_is_empty;
    line_is_empty = false;
    text += length;
    if (text < end && *text == '\n') {
      fprintf(stream, "\n\n%*s", indent, "");
      column = indent;
      line_is_empty = true;
    }
    text += strspn(text, " \n");
  }
  fputc('\n', stream);
}

static void wrap(const page *p, const char *text, int column, int indent) {
  wrap_part(p, text, SIZE_MAX, column, indent);
}

/* One entry of a list whose texts start at column `text_column`. */
static void print_entry(const page *p, const char *head, const char *text, int text_column) {
  int used = fprintf(p->stream, "  %s", head);
  if (used + 2 > text_column) {
    fputc('\n', p->stream);
    used = 0;
  }
  fprintf(p->stream, "%*s", text_column - used, "");
  wrap(p, text, text_column, text_column);
}

/* Where texts start when this is the widest head: on a narrow terminal, on the lines below. */
static int text_column(const page *p, size_t widest) {
  if (p->width < WIDTH_NARROW) return 8;
  return 2 + (int)(widest > HEAD_MAX ? HEAD_MAX : widest) + 2;
}

static void print_notes(const page *p, const char *title, const cli_note *notes) {
  size_t widest = 0;
  for (const cli_note *note = notes; note->name; note++)
    if (strlen(note->name) > widest) widest = strlen(note->name);
  fprintf(p->stream, "\n%s:\n", title);
  for (const cli_note *note = notes; note->name; note++)
    print_entry(p, note->name, note->text, text_column(p, widest));
}

/* "-o, --output FILE"; heads without a letter are indented as if they had one. */
static size_t option_head(const tsr_parameter *row, char *head, size_t size) {
  char letter[] = "    ";
  if (row->letter) memcpy(letter, (char[]){'-', row->letter, ','}, 3);
  snprintf(head, size, "%s--%s%s%s", letter, cli_option_name(row), row->argument ? " " : "",
           row->argument ? row->argument : "");
  return strlen(head);
}

/* Whether `list`, words with blanks between, has the option; NULL has each that is not shared. */
static bool is_main(const char *list, const tsr_parameter *row) {
  const char *name = cli_option_name(row);
  if (cli_option_is_shared(row)) list = main_shared;
  if (!list) return true;
  size_t length = strlen(name);
  for (const char *at = list; (at = strstr(at, name)) != NULL; at += length)
    if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return true;
  return false;
}

/* The options of a command, or with NULL those that all share. */
static void print_options(const page *p, const char *title, const cli_command *command) {
  char head[80], text[TSR_PARAMETER_HELP_BYTES];
  size_t widest = 0;
  const tsr_parameter *row;
  for (size_t i = 0; (row = cli_option_at(command, i)) != NULL; i++) {
    if (p->is_short && !is_main(command->about.main_options, row)) continue;
    size_t length = option_head(row, head, sizeof head);
    if (length > widest) widest = length;
  }
  if (widest) fprintf(p->stream, "\n%s:\n", title);
  for (size_t i = 0; (row = cli_option_at(command, i)) != NULL; i++) {
    if (p->is_short && !is_main(command->about.main_options, row)) continue;
    const char *help = tsr_parameter_help(row, text, sizeof text);
    char sentence[TSR_PARAMETER_HELP_BYTES];
    (void)snprintf(sentence, sizeof sentence, "%.*s",
                   (int)(p->is_short ? first_sentence(help) : strlen(help)), help);
    option_head(row, head, sizeof head);
    print_entry(p, head, sentence, text_column(p, widest));
  }
}

/* The names of the options that short help does not explain. */
static void print_others(const page *p, const cli_command *command) {
  const tsr_parameter *row;
  char text[2048] = "More options:";
  for (size_t i = 0; (row = cli_option_at(command, i)) != NULL; i++) {
    size_t used = strlen(text);
    if (!is_main(command->about.main_options, row))
      (void)snprintf(text + used, sizeof text - used, " --%s", cli_option_name(row));
  }
  fputc('\n', p->stream);
  wrap(p, text, 0, 2);
}

static void print_examples(const page *p, const tsr_question *about) {
  if (!about->examples[0].command) return;
  fputs("\nExamples:\n", p->stream);
  for (int i = 0; i < TSR_QUESTION_EXAMPLES && about->examples[i].command; i++) {
    fprintf(p->stream, "  %s\n      ", about->examples[i].command);
    wrap(p, about->examples[i].text, 6, 6);
  }
}

static void print_command(const page *p, const cli_command *command) {
  const char *program = command->is_drop_in ? "" : "tessera ";
  const char *operands = cli_command_operands(command);
  const tsr_question *about = &command->about;
  char title[200];
  (void)snprintf(title, sizeof title, "%s%s - %s", program, about->name, about->summary);
  wrap(p, title, 0, 2);
  fputc('\n', p->stream);
  fprintf(p->stream, "Usage: %s%s [options]%s%s\n\n", program, about->name, *operands ? " " : "",
          operands);
  wrap_part(p, about->description, p->is_short ? first_paragraph(about->description) : SIZE_MAX, 0,
            0);
  print_options(p, "Options", command);
  if (p->is_short) print_others(p, command);
  print_examples(p, about);
  if (p->is_short)
    fprintf(p->stream, "\n'tessera %s --help-all' explains every option.\n", about->name);
}

/* By situation; help itself is in the last line of the page. */
static void print_commands(const page *p) {
  size_t widest = 0;
  for (size_t i = 0; i < cli_command_count(); i++) {
    size_t length = strlen(cli_command_at(i).about.name);
    if (length > widest) widest = length;
  }
  for (size_t group = 0; group < sizeof groups / sizeof *groups; group++) {
    fprintf(p->stream, "\n%s\n", groups[group].title);
    for (size_t i = 0; i < cli_command_count(); i++) {
      cli_command command = cli_command_at(i);
      if (command.run && command.about.situation == groups[group].situation)
        print_entry(p, command.about.name, command.about.summary, text_column(p, widest));
    }
  }
}

static void print_overview(const page *p) {
  fprintf(p->stream, "tessera - %s\n\nUsage: tessera COMMAND [options] FILE\n\n", cli_tagline);
  wrap_part(p, cli_description, p->is_short ? first_paragraph(cli_description) : SIZE_MAX, 0, 0);
  print_commands(p);
  if (p->is_short) {
    fputc('\n', p->stream);
    wrap(p, "'tessera help COMMAND' explains a command, 'tessera --help-all' everything else.", 0,
         0);
    return;
  }
  fputc('\n', p->stream);
  wrap(p, "Replacements for Mosaic's commands of the same names, with their options:", 0, 0);
  for (size_t i = 0; i < cli_drop_in_count(); i++)
    fprintf(p->stream, "  %s\n", cli_drop_in_at(i).about.name);
  print_options(p, "Options of every command", NULL);
  print_notes(p, "Exit status", cli_exits);
  print_notes(p, "Environment", cli_environment);
  fputs("\n'tessera help COMMAND' explains a command and its options.\n", p->stream);
}

/* As one piece: a stream that fails in the middle of many small ones forgets why. */
static int write_help(cli_session *session, const cli_command *about) {
  cli_text text = {0};
  page p = {.stream = cli_text_open(&text),
            .width = width_of(session->report.width),
            .is_short = !session->options->help_all && !(about && about->is_drop_in)};
  if (!p.stream) return TSR_ERROR_MEMORY;
  if (about)
    print_command(&p, about);
  else
    print_overview(&p);
  int status = cli_text_close(p.stream, &text) ? 0 : TSR_ERROR_MEMORY;
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
  bool is_about_help = options->help && !options->help_all;
  if (about && !about->run && !is_about_help) about = NULL;
  if (about == NULL && options->operand_count > 0 && !is_about_help) {
    if (!cli_command_find(options->operands[0], &named))
      return cli_unknown_command(options->operands[0]);
    about = &named;
  }
  return write_help(session, about);
}
