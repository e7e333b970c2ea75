/* message.h - messages on standard error. */
#ifndef CLI_MESSAGE_H
#define CLI_MESSAGE_H

#include <stdarg.h>
#include <stdio.h>

#include "command.h"

#if defined(__GNUC__)
#define CLI_PRINTF(format_index, first_arg) __attribute__((format(printf, format_index, first_arg)))
#else
#define CLI_PRINTF(format_index, first_arg)
#endif

/* Print "tessera: ..." on standard error, or "tessera COMMAND: ..." when `command` is not NULL. A drop-in's message
 * begins with its name alone. Always exactly one line, whatever the arguments hold: names given by the user may contain
 * anything. */
void cli_say(const char *command, const char *format, ...) CLI_PRINTF(2, 3);
void cli_vsay(const char *command, const char *format, va_list args) CLI_PRINTF(2, 0);

/* Explain what is wrong with the command line and which help text helps; returns CLI_USAGE. `command` NULL: none is
 * known. */
int cli_usage_error(const cli_command *command, const char *format, ...) CLI_PRINTF(2, 3);
/* The same for what a tsr_params function refused: CLI_FAULT when memory ran out. */
int cli_params_error(const cli_command *command, int status, const tsr_error *error);

/* strerror, but "out of memory" in the words of all other messages. */
const char *cli_reason(int error_number);

/* Whether the library failed because of what was asked, so that the command line is wrong and not a file. */
bool cli_is_about_options(int status);

/* A message is cut at this size. PATH_MAX on Linux is 4096: it may hold a path and some words. */
#define CLI_MESSAGE_BYTES 6000

/* Print a text of a user or a file as part of a line, made safe like a message and cut at its size. */
void cli_put_clean(FILE *stream, const char *text);

/* Make the one line, without its end. */
void cli_format_line(char text[CLI_MESSAGE_BYTES], const char *format, va_list args)
    CLI_PRINTF(2, 0);

#endif
