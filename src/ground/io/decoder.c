/* decoder.c - the loop around a decompressor's step.
 *
 *   below --> source window (64 KiB) --> step --> the reader's buffer
 *
 * A read goes on until the buffer is full or the data ends, so that readers see full windows
 * whatever the size of the compressed pieces. There are four ways to end:
 *
 *   - the step reports the end, or the input ends where it may (at_boundary): whole, unless the
 *     input itself was cut;
 *   - the input ends elsewhere: cut;
 *   - the step finds damage: damaged;
 *   - a limit, memory or reading fails: an error, and nothing more.
 *
 * Cut and damaged before the first byte was delivered are errors as well, because there is nothing
 * to read. Each step must use input, make output or end; one that does nothing although it has both
 * would loop forever and counts as damage. */
#include "io/decoder.h"

#include <assert.h>

#include "base/memory.h"

enum { INPUT_WINDOW_BYTES = 64 << 10 };

int tsr__decoder_damaged(const tsr__decoder *decoder, const char *detail, tsr_error *error) {
  return tsr__fail(error, TSR_ERROR_FORMAT, decoder->base.delivered_bytes,
                   "the %s data is damaged: %s", decoder->name, detail);
}

/* The data ends here, after `made` bytes in all. A failure is what it is where nothing was made. */
static int end_at(tsr__decoder *decoder, tsr__ending ending, uint64_t made, int failure) {
  tsr__ending below = decoder->base.below->ending;
  if (ending != TSR__ENDING_WHOLE && !made) return failure;
  assert(!decoder->has_ended && failure <= 0);
  decoder->has_ended = true;
  decoder->base.ending = decoder->source.at_end && below > ending ? below : ending;
  return 0;
}

/* Read input for the next step, or find its end. */
static int want_input(tsr__decoder *decoder, tsr_error *error) {
  if (decoder->source.size || decoder->source.at_end) return 0;
  return tsr__input_fill(&decoder->source, 0, error);
}

/* One step into `*buffer`; `made` bytes were made before it. */
static int advance(tsr__decoder *decoder, unsigned char **buffer, size_t *size, uint64_t made,
                   tsr_error *error) {
  int status = want_input(decoder, error);
  if (status) return status;
  tsr__input *source = &decoder->source;
  tsr__decoder_io io = {source->data, source->size, *buffer, *size, source->at_end};
  status = decoder->step(decoder, &io, error);
  assert(io.in_size <= source->size && io.out_size <= *size);
  assert(io.in == source->data + (source->size - io.in_size));
  size_t used = source->size - io.in_size, got = *size - io.out_size;
  source->data += used;
  source->size -= used;
  source->offset += used;
  *buffer += got;
  *size -= got;
  made += got;
  int limit = tsr__expansion_check(decoder->expansion, &decoder->base, made, error);
  if (limit) return limit;
  if (status == TSR__DECODED_ALL) return end_at(decoder, TSR__ENDING_WHOLE, made, 0);
  if (status == TSR_ERROR_FORMAT) return end_at(decoder, TSR__ENDING_DAMAGED, made, status);
  if (status || used || got) return status;
  if (!source->at_end)
    return end_at(decoder, TSR__ENDING_DAMAGED, made,
                  tsr__decoder_damaged(decoder, "it leads nowhere", error));
  if (decoder->at_boundary) return end_at(decoder, TSR__ENDING_WHOLE, made, 0);
  return end_at(decoder, TSR__ENDING_CUT, made,
                tsr__decoder_damaged(decoder, "it ends before any data", error));
}

static ptrdiff_t decoder_read(tsr__stream *stream, unsigned char *buffer, size_t size,
                              tsr_error *error) {
  tsr__decoder *decoder = (tsr__decoder *)stream;
  size_t left = size;
  tsr_error why = {0}; /* so that damage that only ends the stream leaves `error` alone */
  while (left && !decoder->has_ended) {
    int status = advance(decoder, &buffer, &left, stream->delivered_bytes + (size - left), &why);
    if (!status) continue;
    if (error) *error = why;
    return status;
  }
  assert(left <= size && (!left || decoder->has_ended));
  return (ptrdiff_t)(size - left);
}

void tsr__decoder_close(tsr__stream *stream) {
  tsr__decoder *decoder = (tsr__decoder *)stream;
  tsr__input_close(&decoder->source);
  decoder->release(decoder);
  tsr__free(decoder);
}

int tsr__decoder_open(tsr__decoder *decoder, tsr__stream *below, const tsr_limits *limits,
                      tsr_error *error) {
  assert(decoder->step && decoder->release && decoder->name);
  decoder->base = (tsr__stream){.read = decoder_read, .close = tsr__decoder_close, .below = below};
  decoder->expansion = tsr__expansion_of(limits);
  int status = tsr__input_open_sized(&decoder->source, below, INPUT_WINDOW_BYTES, error);
  if (status) tsr__decoder_close(&decoder->base);
  return status;
}
