/* folder.h - the folder that a training is saved in, and resumed from. */
#ifndef CLI_FOLDER_H
#define CLI_FOLDER_H

#include <stdbool.h>
#include <tessera/unstable/training.h>

#include "session.h"

/* The evaluation whose weights are saved as the best; step 0: none. */
typedef struct cli_best {
  uint64_t step;
  double loss;
} cli_best;

/* The folder in a run's folder that has the best weights. */
#define CLI_BEST_FOLDER "best"

/* A folder to save to. A zeroed one saves nothing. */
typedef struct cli_folder {
  const cli_session *session;
  const char *path;
  uint64_t saved_steps;
  cli_best best; /* saved with the rest */
  const char *
      tokenizer; /* set by the caller before saving: a folder whose files of a tokenizer are saved too, or a
                            tokenizer.json; NULL: none */
  bool is_saved, is_new, is_resumed;
  bool may_be_repeated; /* the last save failed, and not for what it was to save */
  const char *
      computed_by; /* what is saved of what the numbers depend on (tsr_train_step); NULL or valid at each save */
  const char *base; /* the model whose adapters are saved; or NULL */
  int lock; /* a handle of the folder, locked while the run may save to it; -1 without one */
} cli_folder;

/* Prepare to save to `path`, which is created unless it is there. A folder with weights is refused, unless
 * `resumed` is the same one, and so is a folder that another run saves to. Returns as a cli_command_fn does; release either way. */
int cli_folder_open(cli_folder *folder, cli_session *session, const char *path,
                    const char *resumed);
/* Find out whether the folder can be saved to: a file is written there, and the disk has room for two saves of `state_bytes`, since
 * the one before is removed last, and for `more` besides. Returns 0, or an exit status after printing the reason. A zeroed folder
 * is fine. */
int cli_folder_try(const cli_folder *folder, uint64_t state_bytes, uint64_t more);
/* Save; does nothing if the same step is saved already. Files are on the disk before they replace others. Returns 0, or an exit
 * status after printing the reason; the save before is then as it was. */
int cli_folder_save(cli_folder *folder, const tsr_train_state *state);
/* Print where the run is saved, and how to resume it if it is not over. */
void cli_folder_say(const cli_folder *folder, bool is_over);
void cli_folder_release(cli_folder *folder);

/* Take the options that a saved run had, unless the command line has them. `computed_by` gets what was saved of what its numbers
 * depend on, or ""; truncated to `room_bytes`. Returns as a cli_command_fn does. */
int cli_folder_resume(cli_session *session, const char *path, char *computed_by, size_t room_bytes);
/* What was saved in a folder as the best; step 0 if it has no run. */
cli_best cli_folder_best(const char *path);
/* The sequence length of the training that was saved in a folder; 0 if it has none. */
uint64_t cli_folder_sequence(const char *path);
/* Whether a folder has adapters as peft saves them. */
bool cli_folder_has_adapters(const char *path);
/* Whether a folder has weights as transformers saves them. */
bool cli_folder_has_weights(const char *path);

#endif
