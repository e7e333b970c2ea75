/* message.c - one line on standard error.
 *
 * A message quotes what the user typed and how files are called. Neither may break the line or
 * drive the terminal, so control characters become '?'. A message is cut at the size of its
 * buffer, which leaves room for the longest path.
 */
#include "message.h"

#include <stdio.h>

/* PATH_MAX on Linux is 4096; a message may hold a path and some words. */
#define MESSAGE_BYTES 6000

void cli_vsay(const char *command, const char *format, va_list args) {
  char text[MESSAGE_BYTES];
  if (vsnprintf(text, sizeof text, format, args) < 0) text[0] = '\0';
  for (char *at = text; *at; at++)
    if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
  fprintf(stderr, "tessera%s%s: %s\n", command ? " " : "", command ? command : "", text);
}

void cli_say(const char *command, const char *format, ...) {
  va_list args;
  va_start(args, format);
  cli_vsay(command, format, args);
  va_end(args);
}
