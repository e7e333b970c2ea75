/* What a snapshot may be wrapped in: any bytes, opened as a piece of memory, and unwrapped from a
 * stream of small pieces. */
#include "io/detect.h"
#include "questions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What came out of a stream: how much, and a sum over it. */
typedef struct outcome {
  int status;
  uint64_t size_bytes, sum;
  tsr__ending ending;
} outcome;

static outcome unwrap(const uint8_t *data, size_t size, size_t piece, size_t read_bytes) {
  outcome o = {0};
  tsr_error error = {0};
  tsr__wrapping wrapping = {.limits = &fuzz_limits};
  unsigned char buffer[4096];
  tsr__stream *stream = fuzz_pieces(data, size, piece);
  o.status = tsr__stream_unwrap(&stream, &wrapping, &error);
  check_error(o.status, &error);
  if (o.status) return o;
  ptrdiff_t got;
  while ((got = tsr__stream_read(stream, buffer, read_bytes, &error)) > 0)
    for (ptrdiff_t i = 0; i < got; i++, o.size_bytes++) o.sum = o.sum * 31 + buffer[i];
  o.status = (int)got;
  o.ending = stream->ending;
  check_error(o.status, &error);
  stream->close(stream);
  return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr_open_options how = {.limits = fuzz_limits};
  tsr_snapshot *snapshot = NULL;
  tsr_error error = {0};
  int status = tsr_snapshot_read(data, size, &how, &snapshot, &error);
  check_error(status, &error);
  if (!status) fuzz_ask(snapshot);
  tsr_snapshot_free(snapshot);

  /* Where nothing is wrong, the pieces do not matter. */
  outcome large = unwrap(data, size, 4096, 4096), small = unwrap(data, size, 1 + size % 7, 61);
  if (large.status || small.status || large.ending || small.ending) return 0;
  require(large.size_bytes == small.size_bytes && large.sum == small.sum, "the same bytes");
  return 0;
}
