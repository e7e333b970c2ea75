/* trim.c - `tessera trim FILE -o OUT --events A..B`: a part of a trace as a snapshot of its own.
 *
 * For viewers that cannot hold the whole, and for showing someone one step: PyTorch's own tools
 * read what is written, and every answer about it is that about the whole at the same moment.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "session.h"

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

static int read_window(const cli_options *options, tsr_window *window) {
  const char *range = options->events ? options->events : options->time;
  *window = (tsr_window){.is_time = options->time != NULL, .first = 0, .last = INT64_MAX};
  if (options->events && options->time)
    return cli_usage_error(options->command, "--events and --time exclude each other");
  if (!range || read_range(range, window)) return 0;
  return cli_usage_error(options->command, "option '--%s' takes A..B, A.. or ..B, not '%s'",
                         options->events ? "events" : "time", range);
}

int cli_trim(cli_session *session) {
  cli_input input = {0};
  tsr_snapshot *part = NULL;
  tsr_window window;
  int status = read_window(session->options, &window);
  if (status == 0) status = cli_export_check(session->options);
  if (status == 0) status = cli_open(session, 0, &input);
  if (status == 0)
    status = tsr_snapshot_trim(input.snapshot, &window, &session->query, &part, &session->error);
  if (status == 0) status = cli_export_write(session, part);
  tsr_snapshot_free(part);
  cli_close(&input);
  return status;
}
