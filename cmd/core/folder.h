/* folder.h - the folder that a training is saved in, and goes on from. */
#ifndef CLI_FOLDER_H
#define CLI_FOLDER_H

#include <stdbool.h>
#include <tessera/unstable/training.h>

#include "session.h"

/* A folder to save to. Zeroed: nothing is saved. */
typedef struct cli_folder {
  const cli_session *session;
  const char *path;
  uint64_t saved_steps;
  bool is_saved, is_new;
  int lock; /* a handle of the folder, locked while the run may save to it; -1 without one */
} cli_folder;

/* Prepare to save to `path`, which is created unless it is there. A folder with weights is refused, unless
 * `resumed` is the same one, and so is a folder that another run saves to. Returns as a cli_command_fn does; release either way. */
int cli_folder_open(cli_folder *folder, cli_session *session, const char *path,
                    const char *resumed);
/* Save; at once if nothing has changed. Says why it fails. Returns 0 or an exit status. */
int cli_folder_save(cli_folder *folder, const tsr_train_state *state);
/* Say where the run is, and how to go on if it is not over. */
void cli_folder_say(const cli_folder *folder, bool is_over);
void cli_folder_release(cli_folder *folder);

/* Take the options that a saved run had, unless the command line has them. Returns as a cli_command_fn does. */
int cli_folder_resume(cli_session *session, const char *path);
/* Whether a folder has weights as transformers saves them. */
bool cli_folder_has_weights(const char *path);

#endif
