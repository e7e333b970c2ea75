/* gather.h - `tessera ranks` in several processes of Slurm, which share a folder: each reads its part of the files, and one of them puts
 * the parts together and prints the answer. */
#ifndef CLI_GATHER_H
#define CLI_GATHER_H

#include "session.h"

/* How launchers tell a process its number, and how many there are. `job` and `step` name what its processes have in common. */
typedef struct cli_launcher {
  const char *number, *first, *count, *last, *job, *step;
} cli_launcher;

/* A number from the environment; -1 if the variable is not set, or has no number. */
int64_t cli_launcher_number(const char *name);

/* Whether the processes of this launcher can be gathered. */
bool cli_gathers(const cli_launcher *launcher);

/* Read part `part` of `parts`, from 1 on, and leave its sketches in the current folder. Then the last process of an array, or the first of
 * a step, answers for all, and removes what they left. A part that does not come is read by that process. Returns a status. */
int cli_gather(cli_session *session, const cli_launcher *launcher, int64_t part, int64_t parts);

#endif
