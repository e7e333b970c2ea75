/* docs_man.c - manual pages in mdoc(7), the macro language that mandoc and groff both read.
 *
 * Texts in the table are plain; troff is not. A backslash, and a dot or quote at the start of a line,
 * would be commands, and on macro lines mdoc interprets words that look like macros. So each text
 * starts on a new line, each sentence too, and every special
 * character goes through print_text.
 */
#include <string.h>
#include <tessera/tessera.h>

#include "docs.h"

/* Pages change with the table, not with the build date: the same sources give the
 * same bytes. */
#define PAGE_DATE "November 20, 2026"

/* Print plain text as troff input, without the newline at its end. */
static void print_text(FILE *stream, const char *text) {
  if (*text == '.' || *text == '\'') fputs("\\&", stream);
  for (const char *at = text; *at; at++) {
    bool ends_sentence = at[0] == '.' && at[1] == ' ';
    switch (*at) {
    case '\\': fputs("\\e", stream); break;
    case '-': fputs("\\-", stream); break;
    case '\'': fputs("\\(aq", stream); break;
    case '\n':
      /* Newlines occur only in pairs, between paragraphs. */
      fputs("\n.Pp\n", stream);
      at += strspn(at, "\n") - 1;
      break;
    default: fputc(*at, stream);
    }
    if (ends_sentence && at[2]) {
      fputc('\n', stream);
      at++;
    }
  }
}

static void print_line(FILE *stream, const char *text) {
  print_text(stream, text);
  fputc('\n', stream);
}

static void print_notes(FILE *stream, const cli_note *notes) {
  fputs(".Bl -tag -width Ds\n", stream);
  for (const cli_note *note = notes; note->name; note++) {
    fprintf(stream, ".It %s\n", note->name);
    print_line(stream, note->text);
  }
  fputs(".El\n", stream);
}

static void print_option(FILE *stream, const tsr_parameter *row) {
  fputs(".It ", stream);
  if (row->letter) fprintf(stream, "Fl %c , ", row->letter);
  fprintf(stream, "Fl \\-%s", cli_option_name(row));
  if (row->argument) fprintf(stream, " Ar %s", row->argument);
  fputc('\n', stream);
  char text[TSR_PARAMETER_HELP_BYTES];
  print_line(stream, tsr_parameter_help(row, text, sizeof text));
}

/* The options of a command, or if NULL those that all share. */
static void print_options(FILE *stream, const cli_command *command) {
  fputs(".Bl -tag -width Ds\n", stream);
  const tsr_parameter *row;
  for (size_t i = 0; (row = cli_option_at(command, i)) != NULL; i++) print_option(stream, row);
  fputs(".El\n", stream);
}

static void print_examples(FILE *stream, const cli_command *command) {
  const tsr_example *examples = command->about.examples;
  if (!examples[0].command) return;
  fputs(".Sh EXAMPLES\n.Bl -tag -width Ds\n", stream);
  for (int i = 0; i < TSR_QUESTION_EXAMPLES && examples[i].command; i++) {
    fputs(".It Li \"", stream);
    print_text(stream, examples[i].command);
    fputs("\"\n", stream);
    print_line(stream, examples[i].text);
  }
  fputs(".El\n", stream);
}

/* Operands of the usage line: words in brackets are optional. */
static void print_operands(FILE *stream, const char *operands) {
  for (const char *at = operands; *at; at += strspn(at, " ")) {
    size_t length = strcspn(at, " ");
    bool optional = *at == '[';
    size_t trim = optional ? 1 : 0;
    fprintf(stream, "%s %.*s\n", optional ? ".Op Ar" : ".Ar", (int)(length - 2 * trim), at + trim);
    at += length;
  }
}

static void print_prologue(FILE *stream, const char *name, const char *summary) {
  fprintf(stream, ".\\\" Written by gendocs.\n.Dd %s\n.Dt ", PAGE_DATE);
  for (const char *at = name; *at; at++)
    fputc(*at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at, stream);
  fprintf(stream, " 1\n.Os \"tessera %s\"\n.Sh NAME\n.Nm %s\n.Nd ", tsr_version(), name);
  print_line(stream, summary);
}

static void print_epilogue(FILE *stream) {
  fputs(".Sh ENVIRONMENT\n", stream);
  print_notes(stream, cli_environment);
  fputs(".Sh EXIT STATUS\n", stream);
  print_notes(stream, cli_exits);
}

void cli_man_command(FILE *stream, const cli_command *command) {
  char name[64];
  const char *program = command->is_drop_in ? "" : "tessera ";
  snprintf(name, sizeof name, "%s%s", command->is_drop_in ? "" : "tessera-", command->about.name);
  print_prologue(stream, name, command->about.summary);
  fprintf(stream, ".Sh SYNOPSIS\n.Nm %s%s\n.Op Ar options\n", program, command->about.name);
  print_operands(stream, cli_command_operands(command));
  fputs(".Sh DESCRIPTION\n", stream);
  print_line(stream, command->about.description);
  fputs(".Pp\nThe options are as follows:\n", stream);
  print_options(stream, command);
  print_epilogue(stream);
  print_examples(stream, command);
  fputs(".Sh SEE ALSO\n.Xr tessera 1\n", stream);
}

void cli_man_overview(FILE *stream) {
  print_prologue(stream, "tessera", cli_tagline);
  fputs(".Sh SYNOPSIS\n.Nm tessera\n.Ar command\n.Op Ar options\n.Ar\n.Sh DESCRIPTION\n", stream);
  print_line(stream, cli_description);
  fputs(".Pp\nThe commands, each with its own page:\n.Bl -tag -width Ds\n", stream);
  for (size_t i = 0; i < cli_command_count(); i++) {
    cli_command row = cli_command_at(i);
    fprintf(stream, ".It Xr tessera-%s 1\n", row.about.name);
    print_line(stream, row.about.summary);
  }
  fputs(".El\n.Pp\nThe replacements for Mosaic's commands of the same names:\n.Bl -tag -width Ds\n",
        stream);
  for (size_t i = 0; i < cli_drop_in_count(); i++) {
    cli_command row = cli_drop_in_at(i);
    fprintf(stream, ".It Xr %s 1\n", row.about.name);
    print_line(stream, row.about.summary);
  }
  fputs(".El\n.Pp\nOptions that all commands about files share.\nThey may stand before or after "
        "the files; a\n.Sq \\-\\-\nends them.\n",
        stream);
  print_options(stream, NULL);
  print_epilogue(stream);
}
