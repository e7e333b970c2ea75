/* open.c - from a path or a piece of memory to a snapshot: which form is it, and who reads it?
 *
 *   stream --unwrap--> stream --window--> first bytes --READERS--> columns
 *   gzip, html, ...    plain              pickle, JSON
 *
 * A plain piece of memory is its own window and is never copied. Progress is told in stored bytes,
 * the only ones whose total is known; offsets of errors are those of the unwrapped data. */
#include "snapshot/open.h"

#include <stdio.h>
#include <string.h>

#include "io/detect.h"
#include "snapshot/json.h"
#include "snapshot/pickle.h"
#include "snapshot/sidecar.h"

/* Is this the beginning of a pickle? Protocol 2 and later say so; 0 and 1 start with a container.
 */
static bool looks_like_pickle(const unsigned char *data, size_t size) {
  if (size >= 2 && data[0] == 0x80 && data[1] <= 5) return true;
  if (size < 2) return false;
  if (data[0] == '(') return strchr("dltp(0123456789", data[1]) || data[1] == 'S' || data[1] == 'V';
  return (data[0] == '}' || data[0] == ']') && strchr("qp(.", data[1]);
}

static int fail_unknown(const tsr__source *source, tsr_error *error) {
  if (!source->size) return tsr__fail(error, TSR_ERROR_FORMAT, 0, "the file is empty (0 bytes)");
  bool is_text = true;
  for (size_t i = 0; i < source->size && i < 512; i++)
    is_text = is_text &&
              (source->data[i] >= 0x20 || (source->data[i] && strchr("\t\r\n\f", source->data[i])));
  return tsr__fail(error, TSR_ERROR_FORMAT, 0, "not a memory snapshot: %s",
                   is_text ? "it is a text, neither pickle nor JSON"
                           : "it begins like none of the forms that snapshots have");
}

/* Who reads what; the first that knows the beginning. */
static const struct reader {
  const char *name;
  bool (*knows)(const unsigned char *data, size_t size);
  int (*read)(tsr__source *source, tsr__assembler *assembler, const tsr_open_options *options,
              uint64_t total_bytes, tsr_error *error);
} READERS[] = {
    {"pickle", looks_like_pickle, tsr__pickle_read},
    {"json", tsr__json_looks_like, tsr__json_read},
};

static const struct reader *reader_for(const tsr__source *source) {
  for (size_t i = 0; i < sizeof READERS / sizeof *READERS; i++)
    if (READERS[i].knows(source->data, source->size)) return &READERS[i];
  return NULL;
}

/* ---- progress ---- */

/* Turns a reader's progress in what it reads into progress in what is stored. */
typedef struct stored_progress {
  const tsr__source *source;
  const tsr_open_options *options;
} stored_progress;

static bool tell_stored(void *context, uint64_t done_bytes, uint64_t total_bytes) {
  const stored_progress *stored = context;
  (void)done_bytes;
  return stored->options->progress(stored->options->progress_context, stored->source->stored_bytes,
                                   total_bytes);
}

/* ---- the end ---- */

/* A reader stops where the snapshot does. Ask for what follows, so that the stream comes to its
 * end, checks its sum and can tell how it ended. What follows is no part of the snapshot, so a
 * failure to read it is none of its. */
static void reach_end(tsr__source *source) {
  tsr_error ignored;
  if (!source->at_end) (void)tsr__source_fill(source, source->size, &ignored);
}

/* What the stream noticed becomes warnings. */
static void warn_of_stream(tsr_snapshot *snapshot, const tsr__stream *stream) {
  uint64_t *tally = snapshot->tally;
  if (stream->ending == TSR__ENDING_DAMAGED) tally[TSR__WARN_DAMAGED] = 1;
  if (stream->ending == TSR__ENDING_CUT) tally[TSR__WARN_TRUNCATED] = 1;
  tally[TSR__WARN_MORE_PAYLOADS] += tsr__stream_more_payloads(stream);
  tsr__snapshot_warn(snapshot);
}

/* What can only be said when the reader is done. */
static void describe(tsr_snapshot *snapshot, tsr__source *source, uint64_t input_bytes,
                     const char *wrapping, const char *reader) {
  const tsr__stream *stream = source->stream;
  uint64_t read_bytes = source->offset + source->size;
  if (stream) {
    reach_end(source);
    tsr__source_settle(source);
    warn_of_stream(snapshot, stream);
    read_bytes = tsr__stream_stored_bytes(stream);
  }
  (void)snprintf(snapshot->format, sizeof snapshot->format, "%s%s", wrapping, reader);
  snapshot->input_bytes = input_bytes ? input_bytes : read_bytes;
}

/* ---- reading ---- */

int tsr__snapshot_from_source(tsr__source *source, uint64_t input_bytes, const char *wrapping,
                              const tsr_open_options *options, tsr_snapshot **out,
                              tsr_error *error) {
  int status = tsr__source_fill(source, 0, error);
  if (status) return status;
  const struct reader *reader = reader_for(source);
  if (!reader) return fail_unknown(source, error);
  tsr_limits limits = tsr__limits_or_default(options ? &options->limits : NULL);
  tsr_snapshot *snapshot = tsr__snapshot_new();
  if (!snapshot) return tsr__fail_memory(error);
  tsr_open_options how = options ? *options : (tsr_open_options){0};
  stored_progress stored = {source, options};
  if (how.progress && source->stream) {
    how.progress = tell_stored;
    how.progress_context = &stored;
  }
  tsr__assembler assembler;
  tsr__assembler_init(&assembler, snapshot, &limits);
  status = reader->read(source, &assembler, &how, input_bytes, error);
  tsr__assembler_release(&assembler);
  if (status) {
    tsr_snapshot_free(snapshot);
    return status;
  }
  describe(snapshot, source, input_bytes, wrapping, reader->name);
  *out = snapshot;
  return 0;
}

/* A file this large is read by a thread of its own, while what it read is parsed. */
#define WORTH_READING_AHEAD (UINT64_C(4) << 20)

/* The snapshot in `stream`, which is closed. */
static int read_stream(tsr__stream *stream, uint64_t input_bytes, const tsr_open_options *options,
                       tsr_snapshot **out, tsr_error *error) {
  tsr__wrapping wrapping = {.payload = options ? options->payload : 0};
  tsr_limits limits = tsr__limits_or_default(options ? &options->limits : NULL);
  wrapping.limits = &limits;
  int status = tsr__stream_unwrap(&stream, &wrapping, error);
  if (status) return status;
  tsr__source source = {0};
  status = tsr__source_open(&source, stream, error);
  /* Not of a pipe: a thread that waits for one cannot be ended. */
  if (!status && input_bytes >= WORTH_READING_AHEAD) tsr__source_read_ahead(&source, input_bytes);
  if (!status)
    status = tsr__snapshot_from_source(&source, input_bytes, wrapping.format, options, out, error);
  tsr__source_close(&source);
  return status;
}

/* The last step of opening; `path` is NULL for what was read from memory. */
static int add_sidecar(const char *path, const tsr_open_options *options, tsr_snapshot *snapshot,
                       tsr_snapshot **out, tsr_error *error) {
  int status = tsr__sidecar_find(snapshot, path, options ? options->sidecar : NULL, error);
  if (status)
    tsr_snapshot_free(snapshot);
  else
    *out = snapshot;
  return status;
}

int tsr_snapshot_open(const char *path, const tsr_open_options *options, tsr_snapshot **out,
                      tsr_error *error) {
  tsr_snapshot *snapshot = NULL;
  tsr__stream *stream;
  uint64_t size_bytes;
  int status = tsr__stream_file(path, &stream, &size_bytes, error);
  if (!status) status = read_stream(stream, size_bytes, options, &snapshot, error);
  return status ? status : add_sidecar(path, options, snapshot, out, error);
}

int tsr_snapshot_read(const void *data, size_t size_bytes, const tsr_open_options *options,
                      tsr_snapshot **out, tsr_error *error) {
  tsr_snapshot *snapshot = NULL;
  if (tsr__detect(data, size_bytes) == TSR__FORM_PLAIN) {
    tsr__source source;
    tsr__source_memory(&source, data, size_bytes);
    int status = tsr__snapshot_from_source(&source, size_bytes, "", options, &snapshot, error);
    return status ? status : add_sidecar(NULL, options, snapshot, out, error);
  }
  tsr__stream *stream;
  int status = tsr__stream_memory(data, size_bytes, &stream, error);
  if (!status) status = read_stream(stream, size_bytes, options, &snapshot, error);
  return status ? status : add_sidecar(NULL, options, snapshot, out, error);
}
