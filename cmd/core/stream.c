/* stream.c - output.h's streams to functions, on all systems but Windows, which has none (system_windows.c). */
#define _GNU_SOURCE /* fopencookie */

#include <stdio.h>
#include <sys/types.h>

#include "output.h"

#ifdef __APPLE__
static int append(void *context, const char *data, int size_bytes) {
  return cli_text_append(context, data, (size_t)size_bytes) ? -1 : size_bytes;
}

FILE *cli_text_open(cli_text *text) {
  return funopen(text, NULL, append, NULL, NULL);
}
#else
static ssize_t append(void *context, const char *data, size_t size_bytes) {
  return cli_text_append(context, data, size_bytes) ? 0 : (ssize_t)size_bytes;
}

FILE *cli_text_open(cli_text *text) {
  return fopencookie(text, "w", (cookie_io_functions_t){.write = append});
}
#endif

bool cli_text_close(FILE *stream, cli_text *text) {
  return fclose(stream) == 0 && !text->is_lost;
}
