/* when.c - see when.h. */
#include "when.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int cli_read_integer(const cli_options *options, const char *name, const char *text, int64_t *out) {
  char *end = NULL;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (end == text || *end || errno)
    return cli_usage_error(options->command, "option '--%s' needs a number, not '%s'", name, text);
  *out = number;
  return 0;
}

/* One end of a range; absent ones leave `*out` alone. False where it is no number. */
static bool read_end(const char *text, size_t length, int64_t *out) {
  char digits[32];
  char *end = NULL;
  if (length == 0) return true;
  if (length >= sizeof digits) return false;
  memcpy(digits, text, length);
  digits[length] = '\0';
  errno = 0;
  *out = strtoll(digits, &end, 10);
  return *end == '\0' && end != digits && errno == 0;
}

/* "A..B", "A.." or "..B". */
static bool read_range(const char *text, tsr_window *window) {
  const char *dots = strstr(text, "..");
  if (!dots) return false;
  return read_end(text, (size_t)(dots - text), &window->first) &&
         read_end(dots + 2, strlen(dots + 2), &window->last) && window->first <= window->last;
}

int cli_read_window(const cli_options *options, tsr_window *window) {
  const char *range = options->events ? options->events : options->time;
  *window = (tsr_window){.is_time = options->time != NULL, .first = 0, .last = INT64_MAX};
  if (options->events && options->time)
    return cli_usage_error(options->command, "--events and --time exclude each other");
  if (!range || read_range(range, window)) return 0;
  return cli_usage_error(options->command, "option '--%s' takes A..B, A.. or ..B, not '%s'",
                         options->events ? "events" : "time", range);
}
