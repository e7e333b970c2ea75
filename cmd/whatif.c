/* whatif.c - `tessera whatif FILE`: what would other settings, or another card, have made of it? */
#include <string.h>

#include "session.h"
#include "size.h"

/* The configurations of --set; several are separated by blanks or semicolons. */
static int read_settings(cli_session *session, tsr_allocator_settings *settings, size_t room,
                         size_t *count) {
  const char *text = session->options->settings;
  char one[512];
  *count = 0;
  while (text && *(text += strspn(text, " ;"))) {
    size_t length = strcspn(text, " ;");
    if (length >= sizeof one || *count == room)
      return cli_usage_error(session->options->command, "option '--set' is too long");
    memcpy(one, text, length);
    one[length] = '\0';
    if (tsr_allocator_settings_parse(one, &settings[*count], &session->error))
      return cli_usage_error(session->options->command, "option '--set': %s",
                             session->error.message);
    ++*count;
    text += length;
  }
  return 0;
}

int cli_whatif(cli_session *session) {
  const cli_options *options = session->options;
  tsr_allocator_settings settings[16];
  tsr_whatif_options how = {.settings = settings};
  cli_input input = {0};
  tsr_whatif *whatif = NULL;
  tsr_error *error = &session->error;
  if (options->capacity && !cli_parse_size(options->capacity, &how.capacity_bytes))
    return cli_usage_error(options->command,
                           "option '--capacity' takes a size such as 40GiB, not "
                           "'%s'",
                           options->capacity);
  int status =
      read_settings(session, settings, sizeof settings / sizeof *settings, &how.setting_count);
  if (status) return status;
  status = cli_open(session, 0, &input);
  if (status == 0)
    status = tsr_whatif_compute(input.snapshot, &how, &session->query, &whatif, error);
  if (status == 0)
    status = tsr_report_whatif(&input.heading, whatif, &session->report, cli_output_write,
                               &session->output, error);
  tsr_whatif_free(whatif);
  cli_close(&input);
  return status;
}
