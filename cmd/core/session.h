/* session.h - what every command needs around its question: input, output, errors, exit status.
 *
 * A command opens its snapshots with cli_open, and stops at the first call that fails, frees what it
 * got and returns the status; cli_run explains it and turns it into an exit status. Questions all run
 * through ask.c.
 */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include <tessera/tessera.h>
#include <tessera/unstable/columns.h>
#include <tessera/unstable/input.h>
#include <tessera/unstable/runs.h>

#include "options.h"
#include "output.h"

/* Files that a command writes in addition to its answer, at most. */
enum { CLI_ASIDES = 4 };

typedef struct cli_session {
  const cli_options *options;
  const char *path;          /* the input that an error is about; NULL before the first */
  bool is_about_no_input;    /* an error is about none of the files that were read */
  size_t opened_count;       /* snapshots so far */
  size_t operands_taken;     /* words of the command itself, before other operands */
  tsr_query query;           /* from --device and --top */
  tsr_report_options report; /* from --json, --color, ... and the terminal */
  cli_output output;         /* for cli_output_write */
  char *model_source; /* of a training: the model as the user or a saved run named it; owned */
  char *model_folder; /* of a training: where the model's tokenizer may be; owned, or NULL */
  char *model_path;   /* of a model's folder: its config.json; owned */
  bool is_complete;   /* the report is, whatever the exit status */
  bool is_checkpoint; /* the model's file has its weights too */
  int ended_by;       /* a signal that ends the program, once everything is put away; 0: none */
  struct cli_tracer_helper *tracer; /* starts Python for this process; NULL: it does itself */
  tsr_error error;
  cli_output
      asides[CLI_ASIDES]; /* written, and to be put in place when the command has succeeded */
  size_t aside_count;
} cli_session;

/* The file's name as messages have it: "standard input" for "-". */
const char *cli_path_words(const char *path);

/* Print one line about the library's error, which session->error explains; returns the exit status. `status` is negative. */
int cli_explain(const cli_session *session, int status);

/* Run a command, by its function, and deliver its answer; returns the exit status. With --version, print that instead. */
int cli_run(const cli_options *options, cli_command_fn *command);

/* Give up what the command does not need (confine.h), after a helper has been started that traces models if the command does.
 * Returns 0, or TSR_ERROR_MEMORY. */
int cli_session_confine(cli_session *session);

/* Print a part of the answer. Returns 0 or TSR_ERROR_WRITE. */
int cli_put(cli_session *session, const char *text);
/* Start `*out`, a file that is written in addition to the answer, without opening it: 0, or a usage error if it would replace an
 * input. */
int cli_start_aside(const cli_session *session, const char *path, cli_output *out);
/* Finish a file that was written in addition to the answer, unless `status` is a failure, and say what
 * was written or why it failed. Returns the status, CLI_FAULT if the file could not be written. */
int cli_finish_aside(cli_session *session, cli_output *output, int status);
/* The same at the end of the command, and only if that succeeds: what fails then leaves every file as it was. Full disks and
 * other failures of writing are found now. */
int cli_leave_aside(cli_session *session, cli_output *output, int status);
/* Finish now what was left for the end. For commands that run on for hours. */
int cli_finish_asides(cli_session *session, int status);

/* A snapshot, the study that questions are asked of, and how reports name it. */
typedef struct cli_input {
  tsr_snapshot *snapshot;
  tsr_study *study;
  tsr_report_input heading;
} cli_input;

/* Open the operand number `index`, with a progress bar if it takes long. Returns 0 with `*input`
 * filled, to be given to cli_close; a negative tsr_status; or an exit status, if --strict refuses
 * the file and has printed why. */
int cli_open(cli_session *session, size_t index, cli_input *input);
/* The same for several files, at the same time: `*opened` of `inputs`, the first ones, are filled, all
 * unless one fails. Fails as cli_open for the first file in order that does. */
int cli_open_all(cli_session *session, const char *const *paths, size_t count, cli_input *inputs,
                 size_t *opened);
/* The same for a file that is no operand; `path` must outlive the session. */
int cli_open_path(cli_session *session, const char *path, cli_input *input);
/* Print the snapshot's warnings on standard error, unless the user asked for quiet. For commands whose
 * output is not an answer; called once that has succeeded, because an error is a single line. */
void cli_warn_of_file(const cli_session *session, const cli_input *input);
/* Release the study and the snapshot. A zeroed input is fine. */
void cli_close(cli_input *input);

/* ---- Questions (ask.c) ---- */

/* A question in progress: the snapshots that were opened for it, and the answer. Zeroed means
 * empty. */
typedef struct cli_asking {
  const char *name; /* of what is no snapshot, such as a model; NULL: its file's */
  bool has_format;  /* chosen already: the name of -o is that of something else */
  cli_input inputs[TSR_QUESTION_SUBJECTS];
  size_t input_count;
  tsr_answer *answer;
} cli_asking;

/* Ask the command line's question: check the parameters, read the files that they name, open the
 * snapshots, compute. Returns as a cli_command_fn does; `*asking` is to be released in either
 * case. */
int cli_asking_run(cli_session *session, cli_asking *asking);
/* Write the answer as the options say. Fails as tsr_answer_write. */
int cli_asking_print(cli_session *session, const cli_asking *asking);
void cli_asking_release(cli_asking *asking);

/* Set options that are not given from the file of --ds-config, if there is one; `how` needs no context. The note says which
 * of its keys have no effect. Returns as a cli_command_fn does. */
int cli_read_ds_config(cli_session *session, tsr_ds_config_how how);
void cli_say_ds_note(void *context, const char *text);

/* Take the operands that are parameters, and read the files that parameters name. Returns as a cli_command_fn does. */
int cli_read_parameters(cli_session *session);
/* Make config.json in a model's folder the file that errors are about, session->path. Returns 0 or TSR_ERROR_MEMORY. */
int cli_model_in_folder(cli_session *session, const char *folder);
/* Let the name of -o choose the format of an answer, unless an option does. Returns 0 or a usage error. */
int cli_choose_format(cli_session *session);
/* The same for commands with --format, check and ranks: `*form` is the word for tsr_answer_write_form, NULL for text and JSON. */
int cli_choose_form(cli_session *session, const char **form);

/* Write the plan of the command line's options to the file of --write-plan, if it is given. Returns as a
 * cli_command_fn does. */
int cli_write_plan(cli_session *session);

/* ---- The commands ---- */

int cli_ask(cli_session *session); /* any question */
int cli_check(cli_session *session);
int cli_profile(cli_session *session);
int cli_ask_ranks(cli_session *session);
int cli_ask_card(cli_session *session);
int cli_simulate(cli_session *session);
int cli_doctor(cli_session *session);
int cli_export(cli_session *session);
int cli_mcp(cli_session *session);
int cli_browser(cli_session *session);
int cli_serve(cli_session *session);
int cli_trim(cli_session *session);
int cli_plan(cli_session *session);
int cli_report(cli_session *session);
int cli_sample(cli_session *session);
int cli_sql(cli_session *session);
int cli_tokens(cli_session *session);
int cli_trace(cli_session *session);
int cli_train(cli_session *session);
int cli_view(cli_session *session);

#endif
