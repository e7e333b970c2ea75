/* rules.h - rules that the user gives on the command line, as text or in a file. */
#ifndef CLI_RULES_H
#define CLI_RULES_H

#include "session.h"

/* Read the rules that `option` gives: a file's name; or the text itself, which begins with '{' or
 * '[', or holds a line break, or is `name: pattern` where no file is so called. Returns 0, or an
 * exit status after explaining what is wrong: the rule, its pattern, and a mark at the place. */
int cli_rules_load(const cli_session *session, const char *option, const char *text,
                   tsr_rules_mode mode, tsr_rules **out);

#endif
