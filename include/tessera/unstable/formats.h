/* tessera/unstable/formats.h - allocations as files for other programs, and a smaller snapshot.
 *
 * Reads the values of tessera/unstable/allocations.h. All functions are thread safe for shared values. */
#ifndef TESSERA_UNSTABLE_FORMATS_H
#define TESSERA_UNSTABLE_FORMATS_H

#include "tessera/export.h"
#include "tessera/unstable/allocations.h"
#include "tessera/unstable/input.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tsr_stacks_format {
  /* One line per stack, outermost frame first: `main (train.py:40);step (train.py:31) 8804794368`. */
  TSR_STACKS_FOLDED,
  TSR_STACKS_SPEEDSCOPE, /* https://www.speedscope.app/file-format-schema.json */
  TSR_STACKS_PPROF       /* profile.proto, gzipped: a heap profile, with categories as labels */
} tsr_stacks_format;

/* Write weights in a format that flame graph programs read. Stacks show what the page shows: the program's
 * frames, the library's that they called, and the operation, `aten::mul`; with `full_stacks` every
 * frame. All other options are ignored, and `options` may be NULL. Fails with TSR_ERROR_MEMORY or _WRITE. */
int tsr_report_weights(const tsr_report_input *input, const tsr_weights *weights,
                       tsr_stacks_format format, const tsr_report_options *options,
                       tsr_write_fn *write, void *context, tsr_error *error);

typedef enum tsr_lives_format {
  /* RFC 4180: one row per allocation; `full_stacks`: with all its frames. A text that begins with '=',
   * '+', '-' or '@' gets an apostrophe before it, because spreadsheet programs would execute it. */
  TSR_LIVES_CSV,
  /* Trace events in JSON, for Perfetto and chrome://tracing, on the trace's own clock (microseconds
   * since 1970, as in Kineto). One process for each device, with counters of the totals and of each
   * category, thinned out to some 50,000 points that keep every extreme; out-of-memory events; and
   * tracks for annotations, phases, and the largest allocations of each category, as nested slices.
   * Their stacks are those of the flame graphs; `full_stacks`: with every frame. */
  TSR_LIVES_PERFETTO
} tsr_lives_format;

/* Write the allocations of all devices of `lives`. Fails with TSR_ERROR_MEMORY or _WRITE. */
int tsr_report_lives(const tsr_report_input *input, const tsr_lives *lives, tsr_lives_format format,
                     const tsr_report_options *options, tsr_write_fn *write, void *context,
                     tsr_error *error);

/* ---- all formats ---- */

typedef enum tsr_format_content {
  TSR_FORMAT_SNAPSHOT, /* everything: `form` is a tsr_export_format */
  TSR_FORMAT_STACKS,   /* what each stack holds: a tsr_stacks_format */
  TSR_FORMAT_LIVES,    /* every allocation: a tsr_lives_format */
  TSR_FORMAT_TABLES /* relations (tessera/unstable/relations.h): a tsr_tables_format, which only the command writes */
} tsr_format_content;

typedef enum tsr_tables_format {
  TSR_TABLES_ARROW,   /* the relation of allocations as an Arrow IPC file */
  TSR_TABLES_PARQUET, /* the same as a Parquet file, by DuckDB where it is installed */
  TSR_TABLES_SQLITE   /* all relations as tables of an SQLite database */
} tsr_tables_format;

#define TSR_FORMAT_ENDINGS 4

typedef struct tsr_format {
  const char *name; /* "pprof" */
  const char
      *endings[TSR_FORMAT_ENDINGS]; /* of file names, ".pb.gz"; the usual one first, then NULL */
  tsr_format_content content;
  int form;
  bool is_binary;
} tsr_format;

/* The formats, in the order of help; NULL for an index beyond the last. */
const tsr_format *tsr_format_at(size_t index);
/* The format of that name, or NULL. */
const tsr_format *tsr_format_named(const char *name);
/* The format for a file by its name: a pickle if the name has no ending. NULL if no format has its
 * ending, which `*ending` is then. */
const tsr_format *tsr_format_for(const char *path, const char **ending);
/* "auto", which stands for tsr_format_for, and the names that a user can choose: of all formats, and of those
 * that are a snapshot. Each ends at NULL. */
extern const char *const tsr_format_words[];
extern const char *const tsr_snapshot_format_words[];

/* A zeroed struct is the default. */
typedef struct tsr_format_options {
  tsr_weigh_options weigh;   /* of stacks: at the peak, at a moment, or over a range */
  tsr_query query;           /* of stacks and allocations: the devices */
  tsr_report_options report; /* of stacks and allocations: `full_stacks` */
} tsr_format_options;

/* Write the study's snapshot in a format; `name` is what the file is called in it. Fails as the
 * functions for its content do, and for tables with TSR_ERROR_UNSUPPORTED. */
int tsr_format_write(const tsr_format *format, tsr_study *study, const char *name,
                     const tsr_format_options *options, tsr_write_fn *write, void *context,
                     tsr_error *error);

/* About how many bytes that would write; 0 for a format whose size is near the input's, or when out of
 * memory. Linear in events and in distinct stacks' depth. */
uint64_t tsr_format_estimate(const tsr_format *format, const tsr_snapshot *snapshot,
                             bool full_stacks);

/* ---- a smaller snapshot ---- */

/* A snapshot of that window alone: its events, and as segments and blocks the state after its last
 * event. Its answers equal those of the whole snapshot at the same moments, except for categories,
 * which may depend on events outside the window. Devices that the query does not select are omitted.
 * The caller owns `*out` and passes it to tsr_snapshot_free. A window without events is
 * TSR_ERROR_ARGUMENT. */
int tsr_snapshot_trim(tsr_study *study, const tsr_window *window, const tsr_query *query,
                      tsr_snapshot **out, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
