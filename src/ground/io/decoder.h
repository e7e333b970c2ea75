/* decoder.h - what gzip, zstd and xz have in common: a stream that turns its input into more bytes.
 *
 * A kind of decoder supplies `step`, one call of its library, and `release`. decoder.c does the
 * rest: input, the bound on expansion, and what happens where the data is cut or damaged. */
#ifndef TSR_IO_DECODER_H
#define TSR_IO_DECODER_H

#include "io/expansion.h"

/* What a step works on; it moves the pointers past what it used. */
typedef struct tsr__decoder_io {
  const unsigned char *in;
  size_t in_size;
  unsigned char *out;
  size_t out_size; /* never 0 */
  bool in_ended;   /* nothing follows `in` */
} tsr__decoder_io;

/* What a step returns when all is decoded, and whatever input follows is no part of it. */
#define TSR__DECODED_ALL 1

typedef struct tsr__decoder tsr__decoder;
struct tsr__decoder {
  tsr__stream base;
  tsr__input source; /* the encoded bytes, over base.below */
  tsr__expansion expansion;
  const char *name; /* for messages: "gzip" */
  /* Decode some: 0 (no progress means that it needs input), TSR__DECODED_ALL or a negative
   * tsr_status, where TSR_ERROR_FORMAT means damaged data. */
  int (*step)(tsr__decoder *decoder, tsr__decoder_io *io, tsr_error *error);
  /* Release what the kind itself holds; a decoder whose opening failed has it called too. */
  void (*release)(tsr__decoder *decoder);
  bool at_boundary; /* kept by `step`: the input may end here */
  bool has_ended;
};

/* Make `decoder`, a zeroed struct of some kind with `name`, `step` and `release` set, a stream over
 * `below`, which it owns from now on. On failure it and `below` are released. TSR_ERROR_MEMORY. */
int tsr__decoder_open(tsr__decoder *decoder, tsr__stream *below, const tsr_limits *limits,
                      tsr_error *error);
/* The stream's close. Releases the kind and frees the decoder. */
void tsr__decoder_close(tsr__stream *stream);

/* Fail with TSR_ERROR_FORMAT, "the gzip data is damaged: <detail>". */
int tsr__decoder_damaged(const tsr__decoder *decoder, const char *detail, tsr_error *error);

#endif
