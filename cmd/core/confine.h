/* confine.h - a command can do to the system what its command line says, and nothing else, whatever the files make of it.
 *
 * Before a command reads its files, it gives up what it does not need (sandbox.h). Both functions do nothing unless the process
 * is the command's own (cli_options). A command that `confines` calls them itself; cli_run does so for the others. */
#ifndef CLI_CONFINE_H
#define CLI_CONFINE_H

#include "options.h"

/* What a command needs in addition to reading files and to writing the outputs that its options name. */
typedef struct cli_needs {
  const char *const
      *folders; /* to write in; one that is absent is made. NULL entries are skipped */
  size_t folder_count;
  bool accepts; /* connections at a socket that is bound already */
} cli_needs;

/* Keep what the command needs; `more` may be NULL. */
void cli_confine(const cli_options *options, const cli_needs *more);

/* Open no file any more. */
void cli_confine_no_files(const cli_options *options);

#endif
