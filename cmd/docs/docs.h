/* docs.h - the writers of gendocs: manual pages and shell completions, from the rows of
 * commands.h. */
#ifndef CLI_DOCS_H
#define CLI_DOCS_H

#include <stdio.h>

#include "core/commands.h"

/* tessera(1), and the page of one command. */
void cli_man_overview(FILE *stream);
void cli_man_command(FILE *stream, const cli_command *command);

/* Scripts that complete `tessera ...` in that shell. */
void cli_complete_bash(FILE *stream);
void cli_complete_zsh(FILE *stream);
void cli_complete_fish(FILE *stream);

#endif
