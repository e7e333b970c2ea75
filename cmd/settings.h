/* settings.h - allocator settings and cards, as the command line says them. */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include "session.h"

#define CLI_SETTINGS_MAX 16

/* The configurations of --set, separated by blanks or semicolons: `*count` of them, 0 without the
 * option. Answers 0 or a usage error. */
int cli_read_settings(cli_session *session, tsr_allocator_settings settings[CLI_SETTINGS_MAX],
                      size_t *count);
/* The size of --capacity; without the option `*bytes` is left alone. Answers 0 or a usage error. */
int cli_read_capacity(const cli_options *options, uint64_t *bytes);

#endif
