/* options.h - what the user asked for, parsed from the command line. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdint.h>

#include "commands.h"
#include "message.h"

typedef enum cli_color { CLI_COLOR_AUTO, CLI_COLOR_ALWAYS, CLI_COLOR_NEVER } cli_color;

/* What `export` writes; in the order of --format's words. */
typedef enum cli_format {
  CLI_FORMAT_AUTO,
  CLI_FORMAT_PICKLE,
  CLI_FORMAT_JSON,
  CLI_FORMAT_FOLDED,
  CLI_FORMAT_SPEEDSCOPE,
  CLI_FORMAT_PPROF,
  CLI_FORMAT_PERFETTO,
  CLI_FORMAT_CSV
} cli_format;

/* Devices named by --device, each once; none means all. */
typedef struct cli_devices {
  uint32_t *numbers;
  size_t count;
  bool all; /* "all" was given, which outdoes any number */
} cli_devices;

/* A number that may have been left out. */
typedef struct cli_integer {
  int64_t value;
  bool is_given;
} cli_integer;

/* The arguments of an option that may be repeated, in order; they live in argv. */
typedef struct cli_texts {
  const char **items;
  size_t count;
} cli_texts;

/* What drop-ins for Mosaic's commands are told (mosaic.c). A text that is NULL was not given. */
typedef struct cli_mosaic_options {
  const char *snapshot, *snapshot_base, *snapshot_diff, *trace;
  const char *allocation;
  const char *output_file;
  const char *out_path, *custom_profile;
  int profile; /* index of --profile's word */
  bool keeps_order;
  cli_integer sampling_rate, start_index, end_index;
  const char *file_path, *file_name, *file_content; /* the source of the per-file analysis */
  bool augmented_view, all_tables;
  int action; /* index of --action's word; -1: not given */
  bool print_stack;
  bool paste, upload; /* to services that only Meta has */
  cli_integer start_time, end_time;
  cli_texts annotations;
} cli_mosaic_options;

typedef struct cli_options {
  const cli_command *command; /* NULL when the line names none: then `help` or `version` is set */
  char **operands;            /* what follows the command, in order; lives in argv */
  size_t operand_count;
  cli_devices devices;
  const char *sidecar;                   /* NULL: the one beside the snapshot */
  uint64_t top, payload;                 /* 0: not given */
  const char *output;                    /* NULL: standard output */
  int color;                             /* cli_color */
  int by;                                /* tsr_profile_by, or -1: not given */
  uint64_t blocks;                       /* most that `view` tells one by one; 0: the default */
  int diff_by;                           /* tsr_diff_by */
  int rules_of_categories;               /* index of --categories' word: true, mosaic */
  int view_by;                           /* index of --by's word, for `view`, or -1: not given */
  const char *host;                      /* where `serve` listens, and at which */
  uint64_t port;                         /* port; 0: any that is free */
  int format;                            /* cli_format */
  const char *event, *time, *allocation; /* where `at` looks; NULL: not given */
  const char *events;                    /* what `trim` keeps, with `time`; NULL: not given */
  const char *settings, *capacity;       /* what `whatif` tries; NULL: not given */
  const char *max_answer;                /* of `mcp`; NULL: not given */
  int tools;                             /* which of them `mcp` offers: index of the word */
  const char *rules, *html;              /* of `profile`, `view`; NULL: not given */
  uint64_t samples;                      /* 0: not given */
  cli_texts matches;                     /* of annotations' names, for `stages` */
  const char *compare;                   /* the other snapshot of `source`; NULL: none */
  int action;                            /* index of --action's word, -1 when it is not given */
  cli_texts budgets;                     /* of `check`: --max */
  const char *max_reserved, *tolerance;  /* of `check`; NULL: not given */
  const char *lock, *root;
  int check_format; /* tsr_check_format */
  bool update;
  bool is_ordered, over_time;
  uint64_t batch, sequence, steps, accumulate; /* of `simulate` */
  int optimizer, dtype, gelu;                  /* tsr_simulate_... */
  const char *attention, *checkpoint, *loss;   /* NULL: not given */
  bool no_kv_cache, fresh_process, categories;
  bool json, full_stacks, quiet, verbose, strict, help, version;
  cli_mosaic_options mosaic;
} cli_options;

/* Parse the command line. Options may stand anywhere, also before the command, up to "--". The
 * words of `argv` are rearranged. Answers 0, or the status to exit with after explaining on
 * standard error what is wrong. `*options` is to be released in either case. */
int cli_parse(int argc, char **argv, cli_options *options);
void cli_options_release(cli_options *options);

/* Explain what is wrong with the command line and which help text helps; answers CLI_USAGE. */
int cli_usage_error(const cli_command *command, const char *format, ...) CLI_PRINTF(2, 3);
/* cli_usage_error for a command that does not exist. */
int cli_unknown_command(const char *name);

#endif
