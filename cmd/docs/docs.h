/* docs.h - the writers of gendocs: manual pages and shell completions, from the rows of
 * commands.h; and what is written from the fields that questions declare. */
#ifndef CLI_DOCS_H
#define CLI_DOCS_H

#include <stdbool.h>
#include <stdio.h>

#include "core/commands.h"

/* tessera(1), and the page of one command. */
void cli_man_overview(FILE *stream);
void cli_man_command(FILE *stream, const cli_command *command);

/* Scripts that complete `tessera ...` in that shell. */
void cli_complete_bash(FILE *stream);
void cli_complete_zsh(FILE *stream);
void cli_complete_fish(FILE *stream);

/* A page of docs, read from `page`, with its generated tables. False if a table is of something that no
 * answer has, or has no end. */
bool cli_docs_page(FILE *stream, FILE *page);
/* python/tessera/_answers.py. */
void cli_python_answers(FILE *stream);
/* python/tessera/_calls.py. */
void cli_python_calls(FILE *stream);
/* Every field on a line: "peak: devices[].peak.time_us time nullable". */
void cli_field_list(FILE *stream);
/* The same as facts of the contract, and those of train's events: "field peak devices[].peak.time_us = time, nullable". */
void cli_field_facts(FILE *stream);
/* What scripts rely on, a fact a line (docs_contract.c). */
void cli_contract(FILE *stream);

#endif
