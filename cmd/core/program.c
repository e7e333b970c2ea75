/* program.c - see program.h.
 *
 *   options.c   what does the user want?     (rows: commands.c)
 *   session.c   run it, deliver, explain     (one file per command)
 */
#include "program.h"

#include "help.h"
#include "options.h"
#include "session.h"

int cli_program(int argc, char **argv, bool is_own_process) {
  cli_options options;
  int status = cli_parse(argc, argv, &options);
  options.may_confine = is_own_process;
  if (status == 0) {
    cli_command_fn *run = options.command && !options.help ? options.command->run : NULL;
    status = cli_run(&options, run ? run : cli_help);
  }
  cli_options_release(&options);
  return status;
}
