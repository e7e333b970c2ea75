/* message.c - messages on standard error: one line, and for a wrong command line another that names the help.
 *
 * A message quotes what the user typed, how files are called and what is in them. None of it may break
 * the line or drive the terminal (tsr_terminal_clean). A message is cut at the size of its
 * buffer, which leaves room for the longest path.
 */
#include "message.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <tessera/unstable/terminal.h>

void cli_format_line(char text[CLI_MESSAGE_BYTES], const char *format, va_list args) {
  if (vsnprintf(text, CLI_MESSAGE_BYTES, format, args) < 0) text[0] = '\0';
  text[tsr_terminal_clean(text, strlen(text), false)] = '\0';
}

void cli_put_clean(FILE *stream, const char *text) {
  char piece[CLI_MESSAGE_BYTES];
  (void)snprintf(piece, sizeof piece, "%s", text);
  (void)fwrite(piece, 1, tsr_terminal_clean(piece, strlen(piece), false), stream);
}

void cli_vsay(const char *command, const char *format, va_list args) {
  char text[CLI_MESSAGE_BYTES];
  cli_format_line(text, format, args);
  /* A drop-in is its own program to its users. */
  bool is_program = command && strncmp(command, "mosaic_", 7) == 0;
  fprintf(stderr, "%s%s%s: %s\n", is_program ? "" : "tessera", command && !is_program ? " " : "",
          command ? command : "", text);
}

void cli_say(const char *command, const char *format, ...) {
  va_list args;
  va_start(args, format);
  cli_vsay(command, format, args);
  va_end(args);
}

int cli_usage_error(const cli_command *command, const char *format, ...) {
  const char *name = command ? command->about.name : NULL;
  va_list args;
  va_start(args, format);
  cli_vsay(name, format, args);
  va_end(args);
  if (command && command->is_drop_in)
    fprintf(stderr, "Try '%s --help'.\n", name);
  else
    fprintf(stderr, "Try 'tessera help%s%s'.\n", name ? " " : "", name ? name : "");
  return CLI_USAGE;
}

int cli_params_error(const cli_command *command, int status, const tsr_error *error) {
  if (status == TSR_ERROR_ARGUMENT) return cli_usage_error(command, "%s", error->message);
  cli_say(NULL, "out of memory");
  return CLI_FAULT;
}

const char *cli_reason(int error_number) {
  return error_number == ENOMEM ? tsr_status_text(TSR_ERROR_MEMORY) : strerror(error_number);
}

bool cli_is_about_options(int status) {
  return status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED ||
         status == TSR_ERROR_LIMIT;
}
