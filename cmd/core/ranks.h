/* ranks.h - a command that mpirun has started several times, once for each rank. */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include <stdint.h>
#include <tessera/unstable/training.h>

#include "session.h"

typedef struct cli_ranks cli_ranks;

/* Connect to the other ranks if a launcher has started this process; *out is NULL otherwise. Call it before anything that may
 * fail on one rank alone. From here on, ranks other than 0 hold their messages back. Returns 0, or an exit status after saying why.
 * The caller calls cli_ranks_leave. */
int cli_ranks_join(const cli_session *session, cli_ranks **out);

/* NULL stands for a process alone: rank 0 of 1. */
uint32_t cli_ranks_rank(const cli_ranks *ranks);
uint32_t cli_ranks_count(const cli_ranks *ranks);
tsr_processes *cli_ranks_processes(const cli_ranks *ranks);

/* Continue together, or not at all. Every rank calls it with its own status: 0, an exit status, or a negative tsr_status. If any
 * of them failed, the first one prints its messages, all others drop theirs, and all return that rank's exit status, once it has
 * been printed. Returns 0 otherwise. */
int cli_ranks_agree(cli_ranks *ranks, const cli_session *session, int status);

/* Waits for the other ranks. NULL is fine. */
void cli_ranks_leave(cli_ranks *ranks);

#endif
