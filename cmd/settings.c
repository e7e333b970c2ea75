/* settings.c - see settings.h. */
#include "settings.h"

#include <string.h>

#include "parse.h"

int cli_read_settings(cli_session *session, tsr_allocator_settings settings[CLI_SETTINGS_MAX],
                      size_t *count) {
  const char *text = session->options->settings;
  char one[512];
  *count = 0;
  while (text && *(text += strspn(text, " ;"))) {
    size_t length = strcspn(text, " ;");
    if (length >= sizeof one || *count == CLI_SETTINGS_MAX)
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

int cli_read_capacity(const cli_options *options, uint64_t *bytes) {
  if (!options->capacity || cli_parse_size(options->capacity, bytes)) return 0;
  return cli_usage_error(options->command,
                         "option '--capacity' takes a size such as 40GiB, not '%s'",
                         options->capacity);
}
