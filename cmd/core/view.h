/* view.h - what `view` and `serve` have in common: a page of the files on the command line. */
#ifndef CLI_VIEW_H
#define CLI_VIEW_H

#include "page.h"

typedef int cli_page_fn(cli_session *session, const cli_page *page);

/* Open the operands, make a page of them from the options, and show it. Returns as a cli_command_fn
 * does. */
int cli_with_page(cli_session *session, bool is_served, cli_page_fn *show);

#endif
