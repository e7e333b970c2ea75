/* machine.h - the file of what tessera doctor measured on this machine. */
#ifndef CLI_MACHINE_H
#define CLI_MACHINE_H

#include <tessera/tessera.h>

/* Give the parameter "machine" this machine's file, if the parameters have it and it was not given: $TESSERA_MACHINE, or
 * tessera/machine.json in $XDG_CONFIG_HOME or ~/.config. A file that is absent is left out; one that cannot be used is, too, with a
 * warning. Returns 0 or TSR_ERROR_MEMORY. */
int cli_take_machine(tsr_params *params, tsr_error *error);

#endif
