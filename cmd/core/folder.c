/* folder.c - see folder.h.
 *
 *   config.json                 the model
 *   model.safetensors           its weights, for transformers, for sample, and for --resume
 *   training-300.safetensors    the rest of what --resume needs, after step 300
 *
 * Each file is complete or absent (output.h). model.safetensors is written last, and names the training that
 * belongs to it, so a run that is killed at any moment leaves a folder to go on from. Then the training
 * of the save before is removed. */
#define _XOPEN_SOURCE 700

#include "folder.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tessera/unstable/runs.h>
#include <tessera/unstable/training.h>

#include "encode.h"
#include "guard.h"
#include "message.h"
#include "system.h"
#include "textfile.h"

enum { NAME_BYTES = 64, DEFAULT_SEQUENCE = 64 /* of --seq */ };

/* ---- the options of a run ---- */

/* An absolute path is saved: the run may be resumed in another working directory. */
static bool put_path(FILE *out, const char *path) {
  char *whole = realpath(path, NULL);
  bool is_lost = !whole && errno == ENOMEM;
  fputs(whole ? whole : path, out);
  free(whole);
  return !is_lost;
}

static bool put_value(FILE *out, const tsr_params *own, const tsr_parameter *row) {
  switch (row->kind) {
  case TSR_PARAMETER_COUNT: fprintf(out, "%" PRIu64, tsr_params_count(own, row->name)); break;
  case TSR_PARAMETER_BYTES: fprintf(out, "%" PRIu64 "B", tsr_params_count(own, row->name)); break;
  case TSR_PARAMETER_CHOICE: fputs(row->choices[tsr_params_choice(own, row->name)], out); break;
  case TSR_PARAMETER_PATH: return put_path(out, tsr_params_text(own, row->name));
  case TSR_PARAMETER_TEXT: fputs(tsr_params_text(own, row->name), out); break;
  default: fputs("1", out); break;
  }
  return true;
}

/* Lines of that text which are no options. */
#define COMPUTED_BY "computed-by"
#define BEST        "best-validation" /* a step, and its loss */

/* The model whose adapters are saved: its path. */
#define BASE "base"

/* The text that is saved with the run: a line for each option, "seed=7", and one for the plan. NULL when out of memory. */
static char *options_text(const cli_options *options, const cli_folder *folder) {
  cli_text text = {0};
  tsr_run_plan *plan = NULL;
  if (tsr_run_plan_of(options->own, &plan, NULL)) return NULL;
  FILE *out = cli_text_open(&text);
  if (!out) {
    tsr_run_plan_free(plan);
    return NULL;
  }
  const tsr_parameter *row;
  bool ok = true;
  for (size_t i = 0; ok && (row = tsr_params_row(options->own, i)); i++) {
    if (!row->is_resumed || !tsr_params_has(options->own, row->name)) continue;
    if (row->type == &tsr_run_plan_type) continue; /* written below */
    fprintf(out, "%s=", row->name);
    ok = put_value(out, options->own, row);
    fputc('\n', out);
  }
  if (folder->computed_by) fprintf(out, COMPUTED_BY "=%s\n", folder->computed_by);
  if (folder->best.step)
    fprintf(out, BEST "=%" PRIu64 " %.17g\n", folder->best.step, folder->best.loss);
  if (folder->base) fprintf(out, BASE "=%s\n", folder->base);
  fprintf(out, "plan=%s", tsr_run_plan_text(plan));
  tsr_run_plan_free(plan);
  if (cli_text_close(out, &text) && ok) return text.data;
  free(text.data);
  return NULL;
}

/* Whether an earlier version saved an option with a value that it had and this one has not; the run then continues with the
 * default. */
static bool is_gone(const cli_session *session, const char *name, const char *value) {
  if (strcmp(name, "products") != 0 || strcmp(value, "openblas") != 0) return false;
  if (!session->options->quiet)
    cli_say(session->options->command->about.name,
            "%s was saved with --products openblas, which tessera no longer has; continuing with "
            "--products auto",
            session->path);
  return true;
}

/* The folder may be somebody else's, so a path is only taken from it if it leads to where it led when the run was saved, and
 * the user sees it. Standard input is no path. A folder to write in is only shown: the run's own replaces it. */
static int take_path(cli_session *session, const tsr_parameter *row, const char *value) {
  const cli_options *options = session->options;
  const char *option = cli_option_name(row), *name = options->command->about.name;
  char *whole = strcmp(value, "-") == 0 ? strdup(value) : realpath(value, NULL);
  bool is_there = whole && strcmp(whole, value) == 0, is_lost = !whole && errno == ENOMEM;
  free(whole);
  assert(!row->is_written);
  if (is_lost) return TSR_ERROR_MEMORY;
  if (!is_there) {
    cli_say(name, "%s was saved with --%s '%s', which is no longer there; give --%s again",
            session->path, option, value, option);
    return CLI_INPUT;
  }
  bool is_written = strcmp(row->name, "offload_dir") == 0;
  if (!options->quiet)
    cli_say(
        name, "--%s %s, as %s was saved%s", option, value, session->path,
        is_written
            ? ", must be given again to be used; offloading to the folder that the run is saved to"
            : "");
  if (is_written) return 0;
  return tsr_params_set_path(options->own, option, value, &session->error);
}

static int take_option(cli_session *session, const char *name, const char *value) {
  const cli_options *options = session->options;
  const char *command = options->command->about.name;
  const tsr_parameter *row;
  for (size_t i = 0; (row = tsr_params_row(options->own, i)); i++)
    if (strcmp(row->name, name) == 0) break;
  if (!row) {
    cli_say(command, "%s was saved with the option '%s', which does not exist", session->path,
            name);
    return CLI_INPUT;
  }
  if (tsr_params_has(options->own, name)) return 0; /* the command line overrides it */
  if (is_gone(session, name, value)) return 0;
  bool is_constant = tsr_params_choice(options->own, "schedule") == TSR_TRAIN_CONSTANT;
  if (is_constant && strcmp(name, "min_lr") == 0)
    return 0; /* of a schedule that the command line replaces */
  const char *option = cli_option_name(row);
  if (!row->is_resumed && row->stored == TSR_STORED_NONE) {
    cli_say(command, "ignoring --%s, with which %s was saved: give it again if you need it", option,
            session->path);
    return 0;
  }
  if (row->kind == TSR_PARAMETER_PATH) return take_path(session, row, value);
  if (row->kind == TSR_PARAMETER_FLAG)
    return tsr_params_set_integer(options->own, option, 1, &session->error);
  return tsr_params_set_text(options->own, option, value, strlen(value), &session->error);
}

/* As take_path, for the model that adapters are of. */
static int take_base(cli_session *session, const char *value) {
  const cli_options *options = session->options;
  const char *name = options->command->about.name;
  char *whole = realpath(value, NULL);
  bool is_there = whole && strcmp(whole, value) == 0, is_lost = !whole && errno == ENOMEM;
  free(whole);
  if (is_lost) return TSR_ERROR_MEMORY;
  if (options->operand_count) return 0; /* the command line overrides it */
  if (!is_there) {
    cli_say(name,
            "the adapters in %s are of the model '%s', which is no longer there; name it again",
            session->path, value);
    return CLI_INPUT;
  }
  if (!options->quiet) cli_say(name, "the model is %s, as %s was saved", value, session->path);
  return tsr_params_set_path(options->own, "model", value, &session->error);
}

static int take_options(cli_session *session, char *text, char *computed_by, size_t room_bytes) {
  int status = 0;
  for (char *line = text, *next; status == 0 && *line; line = next) {
    char *end = strchr(line, '\n'), *value;
    next = end ? end + 1 : line + strlen(line);
    if (end) *end = '\0';
    if (!(value = strchr(line, '='))) continue;
    *value++ = '\0';
    if (strcmp(line, BASE) == 0)
      status = take_base(session, value);
    else if (strcmp(line, COMPUTED_BY) == 0)
      (void)snprintf(computed_by, room_bytes, "%s", value);
    else if (strcmp(line, BEST) != 0)
      status = take_option(session, line, value);
  }
  return status;
}

int cli_folder_resume(cli_session *session, const char *path, char *computed_by,
                      size_t room_bytes) {
  tsr_train_saved *saved = NULL;
  if (room_bytes) computed_by[0] = '\0';
  session->path = path;
  int status = tsr_train_saved_open(path, &saved, &session->error);
  if (status) return status;
  char *text = strdup(tsr_train_saved_notes(saved));
  tsr_train_saved_free(saved);
  if (!text) return TSR_ERROR_MEMORY;
  status = take_options(session, text, computed_by, room_bytes);
  free(text);
  return status ? status : cli_keep_inputs(session->options);
}

cli_best cli_folder_best(const char *path) {
  tsr_train_saved *saved = NULL;
  tsr_error error;
  cli_best best = {.step = 0};
  if (tsr_train_saved_open(path, &saved, &error)) return best;
  const char *found = strstr(tsr_train_saved_notes(saved), "\n" BEST "=");
  if (!found ||
      sscanf(found + strlen("\n" BEST "="), "%" SCNu64 " %lf", &best.step, &best.loss) != 2)
    best.step = 0;
  tsr_train_saved_free(saved);
  return best;
}

uint64_t cli_folder_sequence(const char *path) {
  tsr_train_saved *saved = NULL;
  tsr_error error;
  if (tsr_train_saved_open(path, &saved, &error)) return 0;
  const char *notes = tsr_train_saved_notes(saved), *found = strstr(notes, "\nseq=");
  if (strncmp(notes, "seq=", 4) == 0) found = notes - 1;
  uint64_t sequence = found ? strtoull(found + 5, NULL, 10) : DEFAULT_SEQUENCE;
  tsr_train_saved_free(saved);
  return sequence;
}

/* ---- saving ---- */

static char *join(const char *folder, const char *name) {
  char *path = malloc(strlen(folder) + strlen(name) + 2);
  if (path) (void)sprintf(path, "%s/%s", folder, name);
  return path;
}

/* Without memory, which may be what has run out. A path that is too long names nothing. */
static bool has_file(const char *folder, const char *name) {
  char path[4096];
  int length = snprintf(path, sizeof path, "%s/%s", folder, name);
  return length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0;
}

static void remove_file(const char *folder, const char *name) {
  char *path = join(folder, name);
  if (path) (void)unlink(path);
  free(path);
}

bool cli_folder_has_weights(const char *path) {
  return has_file(path, "model.safetensors") || has_file(path, "model.safetensors.index.json");
}

bool cli_folder_has_adapters(const char *path) {
  return has_file(path, "adapter_model.safetensors");
}

int cli_folder_open(cli_folder *folder, cli_session *session, const char *path,
                    const char *resumed) {
  *folder =
      (cli_folder){.session = session, .path = path, .tokenizer = folder->tokenizer, .lock = -1};
  const cli_command *command = session->options->command;
  struct stat found;
  folder->is_new = mkdir(path, 0777) == 0;
  if (!folder->is_new && errno != EEXIST) {
    cli_say(command->about.name, "%s: %s", path, cli_reason(errno));
    return CLI_FAULT;
  }
  if (stat(path, &found) != 0 || !S_ISDIR(found.st_mode)) {
    cli_say(command->about.name, "%s: not a folder", path);
    return CLI_FAULT;
  }
  bool is_taken; /* two runs that save to one folder would take each other's files */
  folder->lock = cli_system_lock_folder(path, &is_taken);
  if (is_taken) return cli_usage_error(command, "'%s' is in use: another run saves to it", path);
  bool is_resumed = resumed && cli_is_same_folder(path, resumed);
  folder->is_resumed = is_resumed;
  if (!is_resumed && (cli_folder_has_weights(path) || cli_folder_has_adapters(path)))
    return cli_usage_error(command,
                           "'%s' already contains weights: resume their run with --resume %s, or "
                           "save to another folder",
                           path, path);
  return cli_keep_inputs_in(session->options, path, is_resumed);
}

/* Copy a file, unless it is there already. Returns 0, or a status after printing the reason. */
static int copy_file(const cli_folder *folder, const char *from, const char *name) {
  char *path = join(folder->path, name), *text = NULL;
  cli_output output = {.path = path, .replaces_link = true, .is_synced = true};
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  size_t size = 0;
  const char *about = from;
  int status = path ? cli_read_large_text(from, &text, &size, &error) : TSR_ERROR_MEMORY;
  if (status == 0) {
    about = path;
    if (cli_output_write(&output, text, size) || cli_output_finish(&output))
      status = TSR_ERROR_WRITE;
  }
  if (status)
    cli_say(folder->session->options->command->about.name, "%s: %s", about,
            output.error_number      ? cli_reason(output.error_number)
            : status == TSR_ERROR_IO ? error.message
                                     : tsr_status_text((tsr_status)status));
  cli_output_abandon(&output);
  free(text);
  free(path);
  return status;
}

/* Copy what makes the folder whole for transformers and sample; `*copied` has a bit for each file. Returns as above. */
static int copy_tokenizer(const cli_folder *folder, uint32_t *copied) {
  const char *from = folder->tokenizer;
  bool is_folder = from && cli_is_folder(from);
  int status = 0;
  if (!from || folder->is_saved) return 0;
  for (size_t i = 0; status == 0 && cli_tokenizer_files[i]; i++) {
    const char *name = cli_tokenizer_files[i];
    bool is_there = is_folder ? has_file(from, name) : i == 0;
    if (has_file(folder->path, name) || !is_there) continue;
    char *path = is_folder ? join(from, name) : strdup(from);
    status = path ? copy_file(folder, path, name) : TSR_ERROR_MEMORY;
    if (status == 0) *copied |= UINT32_C(1) << i;
    free(path);
  }
  return status;
}

/* A save that fails leaves none of them. */
static void remove_copied(const cli_folder *folder, uint32_t copied) {
  for (size_t i = 0; cli_tokenizer_files[i]; i++)
    if (copied >> i & 1) remove_file(folder->path, cli_tokenizer_files[i]);
}

/* The content of one file of the folder. */
typedef struct content {
  const tsr_train_state *state;
  const char *options,
      *training;       /* at most one is set; if none is, the content is the model's config.json */
  bool is_of_adapters; /* or that of its adapters, of the model `base` */
  const char *base;
} content;

static int write_content(const content *c, cli_output *output, tsr_error *error) {
  if (c->options)
    return tsr_train_write_training(c->state, c->options, cli_output_write, output, error);
  if (c->training)
    return tsr_train_write_weights(c->state, c->training, cli_output_write, output, error);
  if (c->is_of_adapters)
    return tsr_train_write_adapter_config(c->state, c->base, cli_output_write, output, error);
  return tsr_train_write_config(c->state, cli_output_write, output, error);
}

/* Returns 0, or a status after printing the reason. */
static int write_file(const cli_folder *folder, const char *name, const content *c) {
  char *path = join(folder->path, name);
  cli_output output = {.path = path, .replaces_link = true, .is_synced = true};
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  int status = path ? write_content(c, &output, &error) : TSR_ERROR_MEMORY;
  if (status == 0 && cli_output_finish(&output) != 0) status = TSR_ERROR_WRITE;
  /* A disk may have room later. */
  if (status == TSR_ERROR_WRITE && output.error_number == ENOMEM) status = TSR_ERROR_MEMORY;
  if (status)
    cli_say(folder->session->options->command->about.name, "%s: %s", path ? path : folder->path,
            output.error_number          ? cli_reason(output.error_number)
            : status == TSR_ERROR_FORMAT ? error.message
                                         : tsr_status_text((tsr_status)status));
  cli_output_abandon(&output);
  free(path);
  return status;
}

static bool is_training(const char *name) {
  size_t length = strlen(name), digits = strspn(name + (length < 9 ? length : 9), "0123456789");
  return strncmp(name, "training-", 9) == 0 && digits &&
         strcmp(name + 9 + digits, ".safetensors") == 0;
}

/* Remove the training files of earlier saves. One that cannot be removed does no harm. */
static void remove_others(const char *folder, const char *training) {
  DIR *list = opendir(folder);
  struct dirent *entry;
  while (list && (entry = readdir(list)) != NULL) {
    if (!is_training(entry->d_name) || strcmp(entry->d_name, training) == 0) continue;
    remove_file(folder, entry->d_name);
  }
  if (list) closedir(list);
}

/* Write the files of a save, the last of which makes it one. One that fails leaves none that was not there before. Returns as above. */
static int write_files(const cli_folder *folder, const char *training, const tsr_train_state *state,
                       const char *options) {
  enum { FILES = 4 };
  bool has_adapters = tsr_train_has_adapters(state), is_new[FILES];
  const char *const names[FILES] = {"config.json", "adapter_config.json", training,
                                    has_adapters ? "adapter_model.safetensors"
                                                 : "model.safetensors"};
  const content contents[FILES] = {{.state = state},
                                   {.state = state, .is_of_adapters = true, .base = folder->base},
                                   {.state = state, .options = options},
                                   {.state = state, .training = training}};
  int status = 0;
  for (size_t i = 0; i < FILES; i++) is_new[i] = !has_file(folder->path, names[i]);
  for (size_t i = 0; status == 0 && i < FILES; i++)
    if (!contents[i].is_of_adapters || has_adapters)
      status = write_file(folder, names[i], &contents[i]);
  for (size_t i = 0; status && i < FILES; i++)
    if (is_new[i]) remove_file(folder->path, names[i]);
  return status;
}

/* Room for `count` saves; what the system does not know is not checked. */
static int check_room(const cli_folder *folder, uint64_t state_bytes, uint64_t count) {
  char needed[32], there[32], times[64] = "a save takes";
  uint64_t free_bytes;
  if (!cli_system_free_bytes(folder->path, &free_bytes) || free_bytes / count >= state_bytes)
    return 0;
  if (count > 1) (void)snprintf(times, sizeof times, "saves take up to %" PRIu64 " times", count);
  cli_say(folder->session->options->command->about.name,
          "%s: %s %s%s, and the disk has %s left; free some, or save to another folder",
          folder->path, times, tsr_size_text(state_bytes, needed, sizeof needed),
          count > 1 ? ", since an old one is removed only after the new one is written" : "",
          tsr_size_text(free_bytes, there, sizeof there));
  return CLI_FAULT;
}

int cli_folder_try(const cli_folder *folder, uint64_t state_bytes, uint64_t more) {
  if (!folder->path) return 0;
  char *path = join(folder->path, "training-0.trial");
  cli_output output = {.path = path, .replaces_link = true, .is_synced = true};
  bool ok = path && cli_output_write(&output, "trial\n", 6) == 0 && cli_output_finish(&output) == 0;
  if (!ok)
    cli_say(folder->session->options->command->about.name, "%s: cannot be saved to: %s",
            folder->path,
            path ? cli_reason(output.error_number) : tsr_status_text(TSR_ERROR_MEMORY));
  cli_output_abandon(&output);
  free(path);
  remove_file(folder->path, "training-0.trial");
  return ok ? check_room(folder, state_bytes, (folder->is_resumed ? 1 : 2) + more) : CLI_FAULT;
}

int cli_folder_save(cli_folder *folder, const tsr_train_state *state) {
  char training[NAME_BYTES];
  uint64_t steps = tsr_train_state_steps(state);
  if (!folder->path || (folder->is_saved && folder->saved_steps == steps)) return 0;
  const cli_options *typed = folder->session->options;
  char *options = options_text(typed, folder); /* now, because the run has added what it chose */
  if (!options) {
    cli_say(typed->command->about.name, "%s: %s", folder->path, tsr_status_text(TSR_ERROR_MEMORY));
    return CLI_FAULT;
  }
  (void)snprintf(training, sizeof training, "training-%" PRIu64 ".safetensors", steps);
  uint32_t copied = 0;
  int status = copy_tokenizer(folder, &copied);
  if (status == 0) status = write_files(folder, training, state, options);
  if (status) remove_copied(folder, copied);
  free(options);
  folder->may_be_repeated = status == TSR_ERROR_WRITE;
  if (status) return CLI_FAULT;
  if (folder->lock >= 0) (void)cli_system_sync(folder->lock); /* the names, too */
  remove_others(folder->path, training);
  folder->is_saved = true;
  folder->saved_steps = steps;
  return 0;
}

void cli_folder_say(const cli_folder *folder, bool is_over) {
  if (!folder->is_saved) return; /* a zeroed folder has no session either */
  const cli_options *options = folder->session->options;
  if (options->quiet) return;
  cli_say(options->command->about.name, "saved %s after step %" PRIu64 "%s%s", folder->path,
          folder->saved_steps, is_over ? "" : "; resume with: tessera train --resume ",
          is_over ? "" : folder->path);
}

void cli_folder_release(cli_folder *folder) {
  if (folder->path) {
    cli_system_unlock_folder(folder->lock);
    if (folder->is_new && !folder->is_saved)
      (void)rmdir(folder->path); /* fails if it has files, as it should */
  }
  *folder = (cli_folder){0};
}
