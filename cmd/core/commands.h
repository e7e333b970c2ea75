/* commands.h - all commands. Only the parser, help and what is generated need the list: a command knows its own row
 * (command.h). */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "command.h"

/* All commands of tessera's own, in the order of help; and those that stand in for another program's
 * (mosaic/drop_ins.c). `index` must be below the count. */
size_t cli_command_count(void);
cli_command cli_command_at(size_t index);
size_t cli_drop_in_count(void);
cli_command cli_drop_in_at(size_t index);
/* The command of that name, drop-ins included; false if absent. */
bool cli_command_find(const char *name, cli_command *out);

extern const cli_note cli_exits[];       /* ends at a NULL name */
extern const cli_note cli_environment[]; /* ends at a NULL name */

/* What tessera is: one line, and paragraphs for its own manual page. */
extern const char cli_tagline[];
extern const char cli_description[];

#endif
