/* open.c - from a path or a piece of memory to a snapshot: which form is it, and who reads it?
 *
 *   stream --unwrap--> stream --window--> first bytes --READERS--> columns
 *   gzip, html, ...    plain              pickle, JSON
 *
 * A plain piece of memory is its own window and is never copied. Progress is reported in stored bytes,
 * the only ones whose total is known; offsets of errors are those of the unwrapped data. */
#include "formats/open.h"

#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "formats/csv_file.h"
#include "formats/json.h"
#include "formats/kineto.h"
#include "formats/nsight.h"
#include "formats/pickle.h"
#include "formats/pprof_file.h"
#include "formats/sidecar.h"
#include "formats/sqlite_file.h"
#include "io/detect.h"

/* Is this the beginning of a pickle? Protocol 2 and later say so; 0 and 1 start with a container.
 */
static bool looks_like_pickle(const unsigned char *data, size_t size) {
  if (size >= 2 && data[0] == 0x80 && data[1] <= 5) return true;
  if (size < 2) return false;
  if (data[0] == '(') return strchr("dltp(0123456789", data[1]) || data[1] == 'S' || data[1] == 'V';
  return (data[0] == '}' || data[0] == ']') && strchr("qp(.", data[1]);
}

static int fail_unknown(const tsr__input *source, tsr_error *error) {
  if (!source->size) return tsr__fail(error, TSR_ERROR_FORMAT, 0, "the file is empty (0 bytes)");
  bool is_text = true;
  for (size_t i = 0; i < source->size && i < 512; i++)
    is_text = is_text &&
              (source->data[i] >= 0x20 || (source->data[i] && strchr("\t\r\n\f", source->data[i])));
  return tsr__fail(error, TSR_ERROR_FORMAT, 0, "not a memory snapshot: %s",
                   is_text ? "a text file, but not JSON" : "unrecognized file format");
}

/* Who reads what; the first that knows the beginning. */
static const struct reader {
  const char *name;
  bool (*knows)(const unsigned char *data, size_t size);
  int (*read)(tsr__input *source, tsr__assembler *assembler, const tsr_open_options *options,
              uint64_t total_bytes, tsr_error *error);
} READERS[] = {
    {"pickle", looks_like_pickle, tsr__pickle_read},
    {"kineto", tsr__kineto_looks_like, tsr__kineto_read},
    {"memory timeline", tsr__memory_timeline_looks_like, tsr__memory_timeline_read},
    {"json", tsr__json_looks_like, tsr__json_read},
    {"nsight sqlite", tsr__sqlite_looks_like, tsr__nsight_read},
    {"csv", tsr__csv_looks_like, tsr__csv_read},
    {"pprof", tsr__pprof_looks_like, tsr__pprof_read},
};

static const struct reader *reader_for(const tsr__input *source) {
  for (size_t i = 0; i < sizeof READERS / sizeof *READERS; i++)
    if (READERS[i].knows(source->data, source->size)) return &READERS[i];
  return NULL;
}

/* ---- progress ---- */

/* Turns a reader's progress in what it reads into progress in what is stored. */
typedef struct stored_progress {
  const tsr__input *source;
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
 * end, checks its sum and knows how it ended. What follows is no part of the snapshot, so a
 * failure to read it is none of its. */
static void reach_end(tsr__input *source) {
  tsr_error ignored;
  if (!source->at_end) (void)tsr__input_fill(source, source->size, &ignored);
}

/* What the stream noticed becomes warnings. */
static void warn_of_stream(tsr__builder *builder, const tsr__stream *stream) {
  if (stream->ending == TSR__ENDING_DAMAGED)
    tsr__builder_set_warning(builder, TSR__WARN_DAMAGED, 1);
  if (stream->ending == TSR__ENDING_CUT) tsr__builder_set_warning(builder, TSR__WARN_TRUNCATED, 1);
  tsr__builder_warn_times(builder, TSR__WARN_MORE_PAYLOADS, tsr__stream_more_payloads(stream));
}

/* What can only be said when the reader is done. */
static void describe(tsr__builder *builder, tsr__input *source, uint64_t input_bytes,
                     const char *wrapping, const char *reader) {
  const tsr__stream *stream = source->stream;
  uint64_t read_bytes = source->offset + source->size;
  if (stream) {
    reach_end(source);
    tsr__input_settle(source);
    warn_of_stream(builder, stream);
    read_bytes = tsr__stream_stored_bytes(stream);
  }
  tsr__builder_describe(builder, wrapping, reader, input_bytes ? input_bytes : read_bytes);
}

/* ---- reading ---- */

int tsr__snapshot_from_source(tsr__input *source, uint64_t input_bytes, const char *wrapping,
                              const tsr_open_options *options, tsr__builder *builder,
                              tsr_error *error) {
  source->input_bytes = input_bytes;
  int status = tsr__input_fill(source, 0, error);
  if (status) return status;
  const struct reader *reader = reader_for(source);
  if (!reader) return fail_unknown(source, error);
  if (!tsr__builder_init(builder, options ? &options->limits : NULL))
    return tsr__fail_memory(error);
  tsr_open_options how = options ? *options : (tsr_open_options){0};
  stored_progress stored = {source, options};
  if (how.progress && source->stream) {
    how.progress = tell_stored;
    how.progress_context = &stored;
  }
  tsr__assembler assembler;
  tsr__assembler_init(&assembler, builder);
  status = reader->read(source, &assembler, &how, input_bytes, error);
  tsr__assembler_release(&assembler);
  if (!status) describe(builder, source, input_bytes, wrapping, reader->name);
  return status;
}

/* A file this large is read by its own thread, while what it read is parsed. */
#define WORTH_READING_AHEAD (UINT64_C(4) << 20)

/* The snapshot in `stream`, which is closed. */
static int read_stream(tsr__stream *stream, uint64_t input_bytes, const tsr_open_options *options,
                       tsr__builder *builder, tsr_error *error) {
  tsr__wrapping wrapping = {.payload = options ? options->payload : 0};
  tsr_limits limits = tsr__limits_or_default(options ? &options->limits : NULL);
  wrapping.limits = &limits;
  int status = tsr__stream_unwrap(&stream, &wrapping, error);
  if (status) return status;
  tsr__input source = {0};
  status = tsr__input_open(&source, stream, error);
  /* Not of a pipe: a thread that waits for one cannot be ended. */
  if (!status && input_bytes >= WORTH_READING_AHEAD) tsr__input_read_ahead(&source, input_bytes);
  if (!status)
    status =
        tsr__snapshot_from_source(&source, input_bytes, wrapping.format, options, builder, error);
  tsr__input_close(&source);
  return status;
}

/* The last steps of opening: `status` is what reading returned, `path` is NULL for what was read from
 * memory. Releases the builder. */
static int finish(tsr__builder *builder, int status, const char *path,
                  const tsr_open_options *options, tsr_snapshot **out, tsr_error *error) {
  if (!status) status = tsr__sidecar_find(builder, path, options ? options->sidecar : NULL, error);
  if (!status) status = tsr__builder_finish(builder, out, error);
  tsr__builder_release(builder);
  return status;
}

/* The caller's options, with every size and reserved field checked. */
static int read_options(const tsr_open_options *given, tsr_open_options *own, tsr_error *error) {
  int status = tsr__options_read(given, own, sizeof *own, error);
  for (size_t i = 0; status == 0 && i < sizeof own->limits.reserved / sizeof(uint64_t); i++)
    if (own->limits.reserved[i])
      status = tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                         "a reserved field of tsr_limits is set");
  return status;
}

int tsr_snapshot_open(const char *path, const tsr_open_options *options, tsr_snapshot **out,
                      tsr_error *error) {
  tsr__builder builder = {0};
  tsr__stream *stream;
  uint64_t size_bytes;
  tsr_open_options how;
  int status = read_options(options, &how, error);
  if (status) return status;
  status = tsr__stream_file(path, &stream, &size_bytes, error);
  if (!status) status = read_stream(stream, size_bytes, &how, &builder, error);
  return finish(&builder, status, path, &how, out, error);
}

int tsr_snapshot_read(const void *data, size_t size_bytes, const tsr_open_options *options,
                      tsr_snapshot **out, tsr_error *error) {
  tsr__builder builder = {0};
  tsr_open_options how;
  int status = read_options(options, &how, error);
  if (status) return status;
  if (tsr__detect(data, size_bytes) == TSR__FORM_PLAIN) {
    tsr__input source;
    tsr__input_memory(&source, data, size_bytes);
    status = tsr__snapshot_from_source(&source, size_bytes, "", &how, &builder, error);
  } else {
    tsr__stream *stream;
    status = tsr__stream_memory(data, size_bytes, &stream, error);
    if (!status) status = read_stream(stream, size_bytes, &how, &builder, error);
  }
  return finish(&builder, status, NULL, &how, out, error);
}
