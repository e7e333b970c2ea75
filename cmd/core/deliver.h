/* deliver.h - the answer of `tessera ranks`: printed, drawn and judged, whichever process has it. */
#ifndef CLI_DELIVER_H
#define CLI_DELIVER_H

#include <tessera/unstable/fleet.h>

#include "session.h"

/* Print the answer in the format that the options choose, and write its page. Returns 0 or a status. */
int cli_ranks_deliver(cli_session *session, const cli_asking *asking);
/* The exit status of what was delivered: budgets that failed, or passed with a doubt, which is explained; or no rank could be read. */
int cli_ranks_judge(cli_session *session, const tsr_ranks *ranks);

#endif
