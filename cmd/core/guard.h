/* guard.h - no command writes over a file that it reads. */
#ifndef CLI_GUARD_H
#define CLI_GUARD_H

#include <stdbool.h>

#include <tessera/unstable/fleet.h>

#include "options.h"

/* The file that the command writes because of an option; NULL if it writes none. "-" is standard output. */
const char *cli_output_path(const cli_options *options, const tsr_parameter *row);

/* Compare each file that the command line writes with each other file that it names, and with the files in a folder that it
 * names, by device and inode, so that links do not hide that two are the same. Returns 0, or the status to exit with
 * after explaining on standard error. */
int cli_keep_inputs(const cli_options *options);

/* The same for a file to be written that no option names. */
int cli_keep_inputs_from(const cli_options *options, const char *path);

/* The same for the files of a run that is saved to the folder `path`, with the outputs that options name in addition. A run
 * that is resumed from there may replace its own. */
int cli_keep_inputs_in(const cli_options *options, const char *path, bool is_resumed);

/* The same for a file that was read and that the command line does not name: the sidecar `path` of
 * the snapshot `owner`. */
int cli_keep_sidecar(const cli_options *options, const char *path, const char *owner);

/* After the files of ranks have been read, and before anything is written: 0, or a usage error if an output would replace one of them,
 * which the command line may not name. O(outputs x files) for outputs that exist. */
int cli_keep_ranks(const cli_options *options, const tsr_ranks *ranks);

/* Whether two paths lead to the same existing file or folder; NULL leads nowhere. */
bool cli_is_same_folder(const char *a, const char *b);

/* The files besides config.json and weights that make a folder one of transformers, tokenizer.json first; NULL at the end. */
extern const char *const cli_tokenizer_files[];

#endif
