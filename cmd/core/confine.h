/* confine.h - a command can do to the system what its command line says, and nothing else, whatever the files make of it.
 *
 * Before a command reads its files, it gives up what it does not need (sandbox.h). All functions do nothing unless the process
 * is the command's own (cli_options). A command that `confines` calls them itself; cli_run calls cli_confine for the others. */
#ifndef CLI_CONFINE_H
#define CLI_CONFINE_H

#include "options.h"
#include "sandbox.h"

/* Keep reading files, and writing outputs that options name. */
void cli_confine(const cli_options *options);

/* The same in two steps, for commands that learn later where they write, or that accept connections at a socket. The first
 * has no effect on paths. */
void cli_confine_calls(const cli_options *options, const cli_sandbox_use *use);
/* `folders` are written in addition to outputs, and made if they are absent; NULL is skipped. */
void cli_confine_files(const cli_options *options, const char *const *folders, size_t count);

/* Open no file any more. */
void cli_confine_no_files(const cli_options *options);

#endif
