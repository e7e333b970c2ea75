/* when.h - moments and ranges of a trace on the command line. */
#ifndef CLI_WHEN_H
#define CLI_WHEN_H

#include <tessera/tessera.h>
#include <tessera/unstable/window.h>

#include "options.h"

/* The option --events of cli_read_window. */
#define CLI_EVENTS_PARAMETER                                            \
  {                                                                     \
    .name = "events", .kind = TSR_PARAMETER_TEXT, .argument = "A..B",   \
    .help = "The events from A to B, inclusive; either may be omitted." \
  }

/* The number that `text`, given with --NAME, is. Returns 0 or a usage error. */
int cli_read_integer(const cli_options *options, const char *name, const char *text, int64_t *out);
/* The window of --events or --time; everything without either. Returns 0 or a usage error. */
int cli_read_window(const cli_options *options, tsr_window *window);

#endif
