/* tessera/registry.h - every question that the library can answer, as rows to iterate over.
 *
 * A program that offers questions to people (a command line, a protocol, a language binding) need
 * not know any of them: it lists the rows, shows their parameters, sets what its user typed, asks,
 * and prints the answer. A question added to the library then appears in that program by itself.
 *
 *   const tsr_question *question = tsr_question_find("peak");
 *   tsr_params *params = NULL;
 *   tsr_answer *answer = NULL;
 *   tsr_subject subject = {study, "snapshot.pickle"};
 *   tsr_report_options how = TSR_OPTIONS_INIT(tsr_report_options);
 *   how.format = TSR_REPORT_JSON;
 *   int status = tsr_question_params(question, TSR_INTERFACE_COMMAND, &params, &error);
 *   if (status == 0) status = tsr_ask(question, &subject, 1, params, NULL, &answer, &error);
 *   if (status == 0) status = tsr_answer_write(answer, &how, write, context, &error);
 *   out: tsr_answer_free(answer), tsr_params_free(params);
 *
 * Rows are constant and live as long as the program. Later versions add fields at the end of the
 * row structs, whose zero means what the absence of the field meant. A row is handed out by pointer,
 * so that a program built for an earlier version reads its own fields; rows that a program defines
 * itself are for the version that it was built for.
 *
 * Rows may be read from any thread. A tsr_params or a tsr_answer is used by one thread at a time;
 * any number of threads may ask the same study.
 */
#ifndef TESSERA_REGISTRY_H
#define TESSERA_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/output.h"
#include "tessera/query.h"
#include "tessera/study.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Rows ---- */

/* Who is asking: it decides which parameters exist, and how messages spell their names. Bits, for
 * tsr_parameter.hidden_from. */
typedef enum tsr_interface {
  TSR_INTERFACE_COMMAND = 1, /* "--time" */
  TSR_INTERFACE_MCP = 2,     /* "time_us" */
  TSR_INTERFACE_PYTHON = 4   /* "time_us" */
} tsr_interface;

/* What a parameter's value is. */
typedef enum tsr_parameter_kind {
  TSR_PARAMETER_FLAG,    /* true or false; an option without an argument */
  TSR_PARAMETER_TRUTH,   /* the same as an option with one: true, yes, on, ... */
  TSR_PARAMETER_COUNT,   /* unsigned, 64 bits */
  TSR_PARAMETER_INTEGER, /* signed, 64 bits */
  TSR_PARAMETER_TIME,    /* microseconds since 1970; as text also as reports print times, in UTC */
  TSR_PARAMETER_BYTES, /* a size above 0: "18GiB" (binary), "18GB" (decimal), or a number of bytes */
  TSR_PARAMETER_CHOICE,   /* one of `choices`, in which '-' and '_' are the same */
  TSR_PARAMETER_TEXT,     /* a text without zero bytes */
  TSR_PARAMETER_TEXTS,    /* several of them: each call of a setter adds one */
  TSR_PARAMETER_DEVICES,  /* device numbers separated by commas, or "all" */
  TSR_PARAMETER_SETTING,  /* allocator settings, as PYTORCH_CUDA_ALLOC_CONF has them */
  TSR_PARAMETER_SETTINGS, /* several of those, separated by blanks or semicolons */
  TSR_PARAMETER_OBJECT, /* what `type` parses, from what a user types or from a file: rules, a model */
  TSR_PARAMETER_FILE, /* a file's name and its contents, which `type` parses if there is one: a lock */
  TSR_PARAMETER_PATH,     /* the name of a file or folder that the caller writes or names */
  TSR_PARAMETER_SNAPSHOT, /* one more snapshot, which the caller opens and adds to the subjects */
  TSR_PARAMETER_CHOICES /* several of `choices`, none of which takes a number: each call of a setter adds one */
} tsr_parameter_kind;

/* What an OBJECT or FILE is parsed into: a row of the library, which rows of parameters refer to. It keeps its size, because
 * a program that names tsr_model_type or tsr_rules_type may contain a copy of that row. */
typedef struct tsr_parameter_type {
  const char *name; /* "lock" */
  /* Parse a text; `*out` is untouched on failure. The message does not name the parameter. */
  int (*parse)(const char *text, size_t size_bytes, void **out, tsr_error *error);
  /* Parse what a user types instead of a file's name: the name of a model, say. NULL: `parse` does. */
  int (*parse_typed)(const char *text, size_t size_bytes, void **out, tsr_error *error);
  void (*free)(void *object);
} tsr_parameter_type;

/* The number that `choices` ask for: "chunked:N" is typed as chunked:64. */
#define TSR_CHOICE_NUMBER 'N'

/* What kind of field of tsr_simulate_options holds an option of a run. */
typedef enum tsr_option_storage {
  TSR_STORED_NONE, /* the parameter is not an option of a run */
  TSR_STORED_COUNT, /* uint64_t, of a COUNT; of a CHOICE: the number of "word:N", and 0 for other words */
  TSR_STORED_REAL,     /* double; of a COUNT, or of a TEXT that is a number */
  TSR_STORED_FLAG,     /* bool; of a CHOICE: whether it is the second word */
  TSR_STORED_WORD,     /* an enum whose values are in the order of the words of a CHOICE */
  TSR_STORED_OFFLOAD,  /* tsr_offload, of a TEXT */
  TSR_STORED_IN_PLACE, /* unsigned: flags of tsr_in_place, of a TEXT */
  TSR_STORED_LORA      /* unsigned: flags of tsr_lora_target, of a TEXT */
} tsr_option_storage;

/* A word that users type, and the choice or the number that it means. */
typedef struct tsr_synonym {
  const char *typed, *meant;
} tsr_synonym;

typedef struct tsr_parameter {
  const char *name;   /* in Python, JSON and MCP: "time_us" */
  const char *option; /* on the command line; NULL: the name */
  char letter;        /* the option's short form, or 0 */
  tsr_parameter_kind kind;
  unsigned hidden_from; /* tsr_interface bits */
  bool is_operand;      /* required; on the command line an operand after the snapshots */
  bool is_written;      /* of a PATH: the caller writes this file */
  const char *argument; /* how help names the value: "US"; NULL for a flag */
  const char *help;     /* for people: one or two sentences (tsr_parameter_help) */
  const char *advice;   /* for a language model that has to fill it in; NULL: `help` */
  /* Of a FILE in MCP: its contents can be given in place of its name, and this explains that. */
  const char *contents_advice;
  const char *const *choices; /* of CHOICE(S); ends at NULL. "word:N" takes a number from 1 on */
  const char *example;        /* of BYTES: a typical size, for messages; NULL: "40GiB" */
  int64_t fallback;           /* of COUNT and INTEGER: the value where none is given */
  int64_t least;              /* of COUNT and INTEGER: in schemas, the smallest value */
  const tsr_parameter_type *type; /* of an OBJECT, and of a FILE that is parsed */
  bool may_be_absent;             /* of a FILE: one that does not exist counts as empty */
  const char *written_with;       /* of a FILE: the FLAG with which the caller writes it instead */
  bool is_optional;               /* of an operand: not required after all */
  /* Of an option of a run: the offset of its field in tsr_simulate_options, and of a WORD with a number, "chunked:N", that of
   * the number's uint64_t (else 0). */
  tsr_option_storage stored;
  size_t stored_at, number_at;
  /* If not NULL, this row stands for those of a table that several questions have, and all else of it is 0. The table ends at a row without
   * a name. */
  const struct tsr_parameter *rows;
  /* Of a TEXT that is a list of words: the index-th of them, or NULL past the last. `help` then has "%s" in their place. */
  const char *(*word)(size_t index);
  /* Of `train`: a saved run keeps the value, and --resume takes it from there. Never of a path that is written: the folder may
   * be somebody else's. Options of a run (`stored`) are kept in the plan. */
  bool is_resumed;
  const char
      *otherwise; /* of a CHOICE: what to do if none of the words fits, for messages; or NULL */
  /* Of a CHOICE or an INTEGER: words that are taken for one of the choices, or for a number; ends at a NULL `typed`. NULL: none. */
  const struct tsr_synonym *synonyms;
} tsr_parameter;

/* A command line, and what it does. */
typedef struct tsr_example {
  const char *command, *text;
} tsr_example;

#define TSR_QUESTION_SUBJECTS 2
#define TSR_QUESTION_EXAMPLES 4

/* A snapshot that a question is about. */
typedef struct tsr_subject_row {
  const char *argument; /* how help names it: "FILE" */
  const char *name;     /* in MCP: "path" */
  const char *advice;   /* for a language model */
  const tsr_snapshot *(*snapshot)(const tsr_study *subject);
} tsr_subject_row;

/* When a user wants to ask: help lists commands by it. */
typedef enum tsr_situation {
  TSR_SITUATION_USE,      /* what used the memory? */
  TSR_SITUATION_FAILURE,  /* it ran out of memory */
  TSR_SITUATION_CHANGE,   /* what changed? */
  TSR_SITUATION_FORECAST, /* before anything has run */
  TSR_SITUATION_TRAINING,
  TSR_SITUATION_PROGRAMS, /* for other programs */
  TSR_SITUATION_COUNT
} tsr_situation;

typedef struct tsr_question {
  const char *name;
  const char *summary;     /* a few words, no full stop */
  const char *description; /* paragraphs, an empty line between them */
  tsr_subject_row subjects[TSR_QUESTION_SUBJECTS];
  size_t subject_count;            /* 0, 1 or 2 */
  const tsr_parameter *parameters; /* tsr_question_parameter iterates them */
  size_t parameter_count;
  tsr_example examples[TSR_QUESTION_EXAMPLES]; /* ends at a NULL command */
  /* For language models. A question without a title is not offered to them. */
  const char *title;
  const char *advice;     /* when to ask it, and what comes back */
  const char *ranks;      /* what tsr_query.top counts; NULL: nothing is ranked */
  bool has_stacks;        /* the answer has stacks to fold */
  bool verbose_lists_all; /* text: with `verbose`, tsr_query.top should be 0 */
  tsr_situation situation;
  /* The options that its short help explains, as they are typed, blanks between; NULL: all of its own. */
  const char *main_options;
} tsr_question;

/* The questions, in the order in which help lists them. `index` must be below the count. */
size_t tsr_question_count(void);
const tsr_question *tsr_question_at(size_t index);
/* The question of that name, or NULL. Linear in the number of questions. */
const tsr_question *tsr_question_find(const char *name);
/* Its parameter number `index`, from 0; NULL past the last. A program iterates with this instead of
 * tsr_question.parameters, of which a row may stand for a table, and may be larger in a later version of the library. */
const tsr_parameter *tsr_question_parameter(const tsr_question *question, size_t index);

#define TSR_PARAMETER_HELP_BYTES 1024
/* The help of a parameter with the words that it lists, in `text` if it lists any; truncated to `room_bytes`, of which
 * TSR_PARAMETER_HELP_BYTES are enough. Returns `text`, or the row's own help. */
const char *tsr_parameter_help(const tsr_parameter *parameter, char *text, size_t room_bytes);

/* ---- Parameters: values by name, typed and checked ---- */

typedef struct tsr_params tsr_params;

/* Values for the parameters of a question, all at their defaults, as `interface` spells their names.
 * The caller owns `*out` and passes it to tsr_params_free. Fails with TSR_ERROR_MEMORY. */
int tsr_question_params(const tsr_question *question, tsr_interface interface, tsr_params **out,
                        tsr_error *error);

/* Release them. NULL is fine. */
void tsr_params_free(tsr_params *params);
/* The row of that name or option as the interface spells it, or NULL; '-' and '_' are the same. */
const tsr_parameter *tsr_params_find(const tsr_params *params, const char *name, size_t length);
/* Setters. All take the name as the interface spells it, copy what they are given, and fail with
 * TSR_ERROR_ARGUMENT, whose message is a sentence for the user, if there is no such parameter or
 * the value is not of its kind; or with TSR_ERROR_MEMORY. A value that is set again is replaced,
 * but for the kinds that gather several.
 *
 * From a text, whatever the kind. For FILE the text is the contents, for OBJECT what a user types. */
int tsr_params_set_text(tsr_params *params, const char *name, const char *text, size_t size_bytes,
                        tsr_error *error);
/* From a number: FLAG (0 or 1), TRUTH, COUNT, INTEGER, BYTES. */
int tsr_params_set_integer(tsr_params *params, const char *name, int64_t number, tsr_error *error);
/* The name of a file, for PATH and SNAPSHOT; for FILE and OBJECT only that it is given:
 * the caller reads the file and calls tsr_params_set_file before tsr_ask. */
int tsr_params_set_path(tsr_params *params, const char *name, const char *path, tsr_error *error);
/* FILE and OBJECT: what a file holds, and its name. If `type` cannot parse it, the error is about the file. */
int tsr_params_set_file(tsr_params *params, const char *name, const char *path, const char *text,
                        size_t size_bytes, tsr_error *error);

/* FILE and OBJECT with this type: what the caller has parsed already. Takes it, also when it fails. */
int tsr_params_set_object(tsr_params *params, const char *name, const tsr_parameter_type *type,
                          void *object, tsr_error *error);

/* ---- Asking ---- */

/* A snapshot that is asked about, and how the answer names it. */
typedef struct tsr_subject {
  tsr_study *study;
  const char *name; /* copied */
} tsr_subject;

typedef struct tsr_answer tsr_answer;

/* Check what single values cannot show: parameters that need or exclude one another. Cheap; a caller
 * does this before it opens files. tsr_ask does it too. TSR_ERROR_ARGUMENT, or 0. */
int tsr_question_check(const tsr_question *question, const tsr_params *params, tsr_error *error);

/* Ask. `subjects` are the row's subject_count snapshots, and one more where a SNAPSHOT parameter is
 * given; their studies must outlive the answer. `params` NULL: all defaults. `query` NULL: every
 * device and everything. Fails as the question's own function does, with TSR_ERROR_MEMORY or
 * TSR_ERROR_ARGUMENT. `*out` is the caller's, for tsr_answer_free; it needs `params` no longer. */
int tsr_ask(const tsr_question *question, const tsr_subject *subjects, size_t subject_count,
            const tsr_params *params, const tsr_query *query, tsr_answer **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_answer_free(tsr_answer *answer);
/* The question that it answers. */
const tsr_question *tsr_answer_question(const tsr_answer *answer);
/* False for a check that failed; true for all other answers. */
bool tsr_answer_passed(const tsr_answer *answer);
/* The snapshot that the answer itself made (of "simulate"), which lives as long as it; or NULL. */
const tsr_snapshot *tsr_answer_snapshot(const tsr_answer *answer);

/* ---- Values of an answer ---- */

/* One value by its path: names of fields as the JSON has them (docs/json.md), and numbers of the entries of lists, from 0:
 *
 *   "devices[0].stacks[2].bytes"
 *   "peak.allocated_bytes"         the same as "devices[0].peak.allocated_bytes"
 *
 * A path whose first name is not a field of the answer itself is about its first device. Names that contain a point or a bracket, which
 * some objects have whose names depend on the file, cannot be part of a path.
 *
 * The first call reads the whole JSON, in time and memory linear in it; later ones are linear in the entries before the
 * one that is named. A tsr_answer is used by one thread at a time. All of them leave `*out` untouched unless they return 0; else
 *   TSR_ERROR_ARGUMENT  `path` is not a path, or names a field that no answer of this question has
 *   TSR_ERROR_ABSENT    this answer lacks it: an entry beyond the end of a list, or a field that is left out where it does not apply
 *   TSR_ERROR_NULL      it is null, or within something that is
 *   TSR_ERROR_TYPE      it is of another type, or within a value that is neither an object nor, for an entry, a list
 *   TSR_ERROR_MEMORY    nothing has changed; the call can be repeated
 *
 * A whole number; 1 and 0 for true and false. TSR_ERROR_LIMIT for one beyond 63 bits. */
int tsr_answer_number(tsr_answer *answer, const char *path, int64_t *out, tsr_error *error);
/* Any number, rounded to a double. */
int tsr_answer_real(tsr_answer *answer, const char *path, double *out, tsr_error *error);
/* A text in UTF-8, with a zero byte after its end (and any in it that the file has). It lives as long as the answer. */
int tsr_answer_text(tsr_answer *answer, const char *path, tsr_text *out, tsr_error *error);
/* How many entries a list has. */
int tsr_answer_count(tsr_answer *answer, const char *path, uint64_t *out, tsr_error *error);

/* ---- Writing it ---- */

/* Write the answer as text or JSON. Fails with TSR_ERROR_MEMORY or TSR_ERROR_WRITE. */
int tsr_answer_write(const tsr_answer *answer, const tsr_report_options *options,
                     tsr_write_fn *write, void *context, tsr_error *error);
/* Write its verdict: the lines of the text that say what was found, one for each device or for the
 * whole, each ended by a newline. Fails as tsr_answer_write. */
int tsr_answer_verdict(const tsr_answer *answer, tsr_write_fn *write, void *context,
                       tsr_error *error);
/* Write it in its own form for other programs, as `form` names it ("sarif" of "check"). `root` is
 * the folder that the program was run in, or NULL. Fails as tsr_answer_write, or with
 * TSR_ERROR_ARGUMENT where the question has no such form. */
int tsr_answer_write_form(const tsr_answer *answer, const char *form, const char *root,
                          const tsr_report_options *options, tsr_write_fn *write, void *context,
                          tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
