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

/* One end of a range, a number or (`is_time`) a time; an absent one leaves `*out` alone. False for
 * anything else. */
static bool read_end(const char *text, size_t length, bool is_time, int64_t *out) {
  char copy[40];
  char *end = NULL;
  if (length == 0) return true;
  if (length >= sizeof copy) return false;
  memcpy(copy, text, length);
  copy[length] = '\0';
  if (is_time) return tsr_time_parse(copy, out);
  errno = 0;
  *out = strtoll(copy, &end, 10);
  return *end == '\0' && end != copy && errno == 0;
}

/* "A..B", "A.." or "..B". */
static bool read_range(const char *text, tsr_window *window) {
  const char *dots = strstr(text, "..");
  if (!dots) return false;
  return read_end(text, (size_t)(dots - text), window->is_time, &window->first) &&
         read_end(dots + 2, strlen(dots + 2), window->is_time, &window->last) &&
         window->first <= window->last;
}

int cli_read_window(const cli_options *options, tsr_window *window) {
  const char *events = tsr_params_text(options->own, "events");
  const char *time = tsr_params_text(options->own, "time");
  const char *range = events ? events : time;
  *window = (tsr_window){.is_time = time != NULL, .first = 0, .last = INT64_MAX};
  if (events && time)
    return cli_usage_error(options->command, "--events and --time are mutually exclusive");
  if (!range || read_range(range, window)) return 0;
  return cli_usage_error(options->command, "option '--%s' takes A..B, A.. or ..B, not '%s'",
                         events ? "events" : "time", range);
}
