/* budget.h - what `tessera check` and its tool of `mcp` are told, from text. */
#ifndef CLI_BUDGET_H
#define CLI_BUDGET_H

#include <tessera/tessera.h>

/* What is wrong with a text, to be said behind the option's or argument's name. */
#define CLI_BUDGET_WHY_BYTES 384

/* "18GiB", or "activation=3GiB". */
bool cli_budget_parse(const char *text, tsr_check_limit *limit, char why[CLI_BUDGET_WHY_BYTES]);
/* "20GiB" of reserved memory. */
bool cli_budget_parse_reserved(const char *text, tsr_check_limit *limit,
                               char why[CLI_BUDGET_WHY_BYTES]);
/* "1%", "16MiB" or "0": how far a figure may be off the lock's. NULL: 1 % of the locked peak. */
bool cli_budget_parse_tolerance(const char *text, tsr_check_options *how,
                                char why[CLI_BUDGET_WHY_BYTES]);

#endif
