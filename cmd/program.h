/* program.h - a whole command line, for programs that carry the command in them. */
#ifndef CLI_PROGRAM_H
#define CLI_PROGRAM_H

/* Do what the command line says, its program's name first; answers the exit status. The words of
 * `argv` are rearranged. A reader that closes its pipe early is no failure where SIGPIPE is ignored;
 * else it ends the process. */
int cli_program(int argc, char **argv);

#endif
