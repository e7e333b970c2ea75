/* formats.c - the formats in which a snapshot can be written: the only list of them.
 *
 * The command line, Python and their messages all read this table. A format is one of three kinds: the
 * snapshot itself, what each stack holds (write_weights.c), or every allocation (write_lives.c). */
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "tessera/unstable/formats.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static const tsr_format formats[] = {
    {.name = "pickle",
     .endings = {".pickle", ".pkl", ".pt", ".bin"},
     .content = TSR_FORMAT_SNAPSHOT,
     .form = TSR_EXPORT_PICKLE,
     .is_binary = true},
    {.name = "json", .endings = {".json"}, .content = TSR_FORMAT_SNAPSHOT, .form = TSR_EXPORT_JSON},
    {.name = "folded",
     .endings = {".folded"},
     .content = TSR_FORMAT_STACKS,
     .form = TSR_STACKS_FOLDED},
    {.name = "speedscope",
     .endings = {".speedscope.json"},
     .content = TSR_FORMAT_STACKS,
     .form = TSR_STACKS_SPEEDSCOPE},
    {.name = "pprof",
     .endings = {".pb.gz", ".pprof"},
     .content = TSR_FORMAT_STACKS,
     .form = TSR_STACKS_PPROF,
     .is_binary = true},
    {.name = "perfetto",
     .endings = {".perfetto.json"},
     .content = TSR_FORMAT_LIVES,
     .form = TSR_LIVES_PERFETTO},
    {.name = "csv", .endings = {".csv"}, .content = TSR_FORMAT_LIVES, .form = TSR_LIVES_CSV},
    {.name = "arrow",
     .endings = {".arrow", ".feather"},
     .content = TSR_FORMAT_TABLES,
     .form = TSR_TABLES_ARROW,
     .is_binary = true},
    {.name = "parquet",
     .endings = {".parquet"},
     .content = TSR_FORMAT_TABLES,
     .form = TSR_TABLES_PARQUET,
     .is_binary = true},
    {.name = "sqlite",
     .endings = {".sqlite", ".sqlite3", ".db"},
     .content = TSR_FORMAT_TABLES,
     .form = TSR_TABLES_SQLITE,
     .is_binary = true},
    /* For programs that compare with Python's own output; no file name selects it. */
    {.name = "python-json", .content = TSR_FORMAT_SNAPSHOT, .form = TSR_EXPORT_PYTHON_JSON},
};

/* In the order of the table, without what has no ending. */
#define SNAPSHOT_WORDS "auto", "pickle", "json"
const char *const tsr_snapshot_format_words[] = {SNAPSHOT_WORDS, NULL};
const char *const tsr_format_words[] = {SNAPSHOT_WORDS, "folded", "speedscope", "pprof",
                                        "perfetto",     "csv",    "arrow",      "parquet",
                                        "sqlite",       NULL};

const tsr_format *tsr_format_at(size_t index) {
  return index < COUNT_OF(formats) ? &formats[index] : NULL;
}

const tsr_format *tsr_format_named(const char *name) {
  for (size_t i = 0; i < COUNT_OF(formats); i++)
    if (strcmp(formats[i].name, name) == 0) return &formats[i];
  return NULL;
}

static bool ends_in(const char *name, const char *ending) {
  size_t length = strlen(name), of_ending = strlen(ending);
  return length > of_ending && strcasecmp(name + length - of_ending, ending) == 0;
}

/* Of two endings that fit, the longer one counts: ".perfetto.json" is also a ".json". */
static const tsr_format *find_ending(const char *name) {
  const tsr_format *found = NULL;
  size_t longest = 0;
  for (size_t i = 0; i < COUNT_OF(formats); i++)
    for (size_t e = 0; e < TSR_FORMAT_ENDINGS && formats[i].endings[e]; e++) {
      size_t length = strlen(formats[i].endings[e]);
      if (length <= longest || !ends_in(name, formats[i].endings[e])) continue;
      longest = length;
      found = &formats[i];
    }
  return found;
}

const tsr_format *tsr_format_for(const char *path, const char **ending) {
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  const tsr_format *found = find_ending(name);
  if (found) return found;
  const char *dot = *name ? strrchr(name + 1, '.') : NULL; /* ".hidden" has no ending */
  if (!dot || !dot[1]) return tsr_format_named("pickle");
  *ending = dot;
  return NULL;
}

static int write_stacks(const tsr_report_input *input, tsr_study *study, const tsr_format *format,
                        const tsr_format_options *options, tsr_write_fn *write, void *context,
                        tsr_error *error) {
  tsr_weights *weights = NULL;
  int status = tsr_weights_compute(study, &options->weigh, &options->query, &weights, error);
  if (!status)
    status = tsr_report_weights(input, weights, (tsr_stacks_format)format->form, &options->report,
                                write, context, error);
  tsr_weights_free(weights);
  return status;
}

static int write_lives(const tsr_report_input *input, tsr_study *study, const tsr_format *format,
                       const tsr_format_options *options, tsr_write_fn *write, void *context,
                       tsr_error *error) {
  tsr_lives *lives = NULL;
  int status = tsr_lives_compute(study, &options->query, &lives, error);
  if (!status)
    status = tsr_report_lives(input, lives, (tsr_lives_format)format->form, &options->report, write,
                              context, error);
  tsr_lives_free(lives);
  return status;
}

int tsr_format_write(const tsr_format *format, tsr_study *study, const char *name,
                     const tsr_format_options *options, tsr_write_fn *write, void *context,
                     tsr_error *error) {
  tsr_report_input input = {.path = name, .snapshot = tsr_study_snapshot(study)};
  switch (format->content) {
  case TSR_FORMAT_STACKS:
    return write_stacks(&input, study, format, options, write, context, error);
  case TSR_FORMAT_LIVES: return write_lives(&input, study, format, options, write, context, error);
  case TSR_FORMAT_TABLES:
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "only the command tessera export writes the format %s", format->name);
  case TSR_FORMAT_SNAPSHOT: break;
  }
  return tsr_snapshot_export(input.snapshot, (tsr_export_format)format->form, write, context,
                             error);
}
