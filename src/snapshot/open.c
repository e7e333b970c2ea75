/* open.c - from a path or a piece of memory to a snapshot: which form is it, and who reads it? */
#include "snapshot/open.h"

#include <stdio.h>
#include <string.h>

#include "snapshot/pickle.h"

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
    is_text = is_text && (source->data[i] >= 0x20 || strchr("\t\r\n\f", source->data[i]));
  return tsr__fail(error, TSR_ERROR_FORMAT, 0, "not a memory snapshot: %s",
                   is_text ? "it is a text, not a pickle" : "it does not begin as a pickle does");
}

int tsr__snapshot_from_source(tsr__source *source, uint64_t input_bytes,
                              const tsr_open_options *options, tsr_snapshot **out,
                              tsr_error *error) {
  int status = tsr__source_fill(source, 0, error);
  if (status) return status;
  if (!looks_like_pickle(source->data, source->size)) return fail_unknown(source, error);
  tsr_limits limits = tsr__limits_or_default(options ? &options->limits : NULL);
  tsr_snapshot *snapshot = tsr__snapshot_new();
  if (!snapshot) return tsr__fail_memory(error);
  tsr__assembler assembler;
  tsr__assembler_init(&assembler, snapshot, &limits);
  status = tsr__pickle_read(source, &assembler, options, input_bytes, error);
  tsr__assembler_release(&assembler);
  if (status) {
    tsr_snapshot_free(snapshot);
    return status;
  }
  (void)snprintf(snapshot->format, sizeof snapshot->format, "pickle");
  snapshot->input_bytes = input_bytes ? input_bytes : source->offset + source->size;
  *out = snapshot;
  return 0;
}

int tsr_snapshot_open(const char *path, const tsr_open_options *options, tsr_snapshot **out,
                      tsr_error *error) {
  tsr__stream *stream;
  uint64_t size_bytes;
  int status = tsr__stream_file(path, &stream, &size_bytes, error);
  if (status) return status;
  tsr__source source = {0};
  status = tsr__source_open(&source, stream, error);
  if (!status) status = tsr__snapshot_from_source(&source, size_bytes, options, out, error);
  tsr__source_close(&source);
  return status;
}

int tsr_snapshot_read(const void *data, size_t size_bytes, const tsr_open_options *options,
                      tsr_snapshot **out, tsr_error *error) {
  tsr__source source;
  tsr__source_memory(&source, data, size_bytes);
  return tsr__snapshot_from_source(&source, size_bytes, options, out, error);
}
