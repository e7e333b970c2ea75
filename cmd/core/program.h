/* program.h - a whole command line, for programs that carry the command in them. */
#ifndef CLI_PROGRAM_H
#define CLI_PROGRAM_H

#include <stdbool.h>

/* Run a command line, the program's name first; returns the exit status. The words of `argv` are
 * rearranged. `is_own_process`: the process ends afterwards and does nothing else, so it can be confined (confine.h). A reader that closes its pipe early is not a failure if SIGPIPE is ignored; otherwise
 * it ends the process. */
int cli_program(int argc, char **argv, bool is_own_process);

#endif
