/* docs_man.c - manual pages in mdoc(7), the macro language that mandoc and groff both read.
 *
 * Texts from the table are plain; troff is not. A backslash, and a dot or quote that starts a line,
 * would be commands, and mdoc takes words that look like macros as such on macro lines. So texts
 * always start their own line, one line a sentence where sentences end, and every special
 * character goes through print_text.
 */
#include <string.h>
#include <tessera/tessera.h>

#include "docs.h"

/* The pages change with the table, not with the day they are built on: the same sources give the
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
      /* Only between paragraphs, as two. */
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

static void print_option(FILE *stream, const cli_option *row) {
  fputs(".It ", stream);
  if (row->letter) fprintf(stream, "Fl %c , ", row->letter);
  fprintf(stream, "Fl \\-%s", row->name);
  if (row->argument) fprintf(stream, " Ar %s", row->argument);
  fputc('\n', stream);
  print_line(stream, row->help);
}

/* The options of a command, or with NULL those that all share. */
static void print_options(FILE *stream, const cli_command *command) {
  fputs(".Bl -tag -width Ds\n", stream);
  for (const cli_option *row = cli_options_of(command); row->name; row++)
    if (command ? cli_option_applies(row, command) : cli_option_is_shared(row))
      print_option(stream, row);
  fputs(".El\n", stream);
}

static void print_examples(FILE *stream, const cli_command *command) {
  if (!command->examples[0].name) return;
  fputs(".Sh EXAMPLES\n.Bl -tag -width Ds\n", stream);
  for (int i = 0; i < CLI_EXAMPLES_MAX && command->examples[i].name; i++) {
    fputs(".It Li \"", stream);
    print_text(stream, command->examples[i].name);
    fputs("\"\n", stream);
    print_line(stream, command->examples[i].text);
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
  fprintf(stream, ".\\\" Written by gendocs from cmd/commands.c.\n.Dd %s\n.Dt ", PAGE_DATE);
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
  snprintf(name, sizeof name, "%s%s", command->is_drop_in ? "" : "tessera-", command->name);
  print_prologue(stream, name, command->summary);
  fprintf(stream, ".Sh SYNOPSIS\n.Nm %s%s\n.Op Ar options\n", program, command->name);
  print_operands(stream, command->operands);
  fputs(".Sh DESCRIPTION\n", stream);
  print_line(stream, command->description);
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
  fputs(".Pp\nThe commands, each with a page of its own:\n.Bl -tag -width Ds\n", stream);
  for (const cli_command *row = cli_commands; row->name; row++) {
    fprintf(stream, ".It Xr tessera-%s 1\n", row->name);
    print_line(stream, row->summary);
  }
  fputs(
      ".El\n.Pp\nThe commands that stand in for Mosaic's of the same names:\n.Bl -tag -width Ds\n",
      stream);
  for (const cli_command *row = cli_drop_ins; row->name; row++) {
    fprintf(stream, ".It Xr %s 1\n", row->name);
    print_line(stream, row->summary);
  }
  fputs(".El\n.Pp\nOptions that all commands about files share.\nThey may stand before or after "
        "the files; a\n.Sq \\-\\-\nends them.\n",
        stream);
  print_options(stream, NULL);
  print_epilogue(stream);
}
