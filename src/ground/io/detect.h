/* detect.h - telling the wrapping of an input by its first bytes, and taking it off. */
#ifndef TSR_IO_DETECT_H
#define TSR_IO_DETECT_H

#include "io/source.h"
#include "tessera/limits.h"

/* Bytes that are enough to identify any form; fewer only if the input is shorter. */
#define TSR__DETECT_BYTES 4096

/* Layers that tsr__stream_unwrap takes off. */
#define TSR__MOST_LAYERS 4

typedef enum tsr__form {
  TSR__FORM_PLAIN, /* none of the below: a pickle, a text, or anything else */
  TSR__FORM_GZIP,
  TSR__FORM_ZSTD,
  TSR__FORM_XZ,
  TSR__FORM_ZIP,
  TSR__FORM_HTML,
  TSR__FORM_BZIP2, /* this and the following are recognised in order to be refused */
  TSR__FORM_LZ4,
  TSR__FORM_7Z,
  TSR__FORM_TAR
} tsr__form;

/* The form of an input that begins with these bytes, TSR__DETECT_BYTES or all there are. */
tsr__form tsr__detect(const unsigned char *bytes, size_t size);

/* How to take wrappings off, and which there were. */
typedef struct tsr__wrapping {
  const tsr_limits *limits; /* zeroed ones are the defaults */
  uint32_t payload;         /* of a page's snapshots, which; from 0 */
  char format[32];          /* see below */
} tsr__wrapping;

/* Take all wrappings off `*stream`, which becomes a stream over what is inside; a plain one stays
 * as it is, but for a first look at it. `wrapping->format` receives the names of the wrappings,
 * outermost first, each followed by a blank: "", "gzip ", "zip gzip "; there is always room.
 *
 * On failure the stream is closed and `*stream` and the format are of no value. Fails with
 * TSR_ERROR_FORMAT where a wrapping is damaged from its beginning or empty, _UNSUPPORTED for forms
 * that are recognised but not read, _LIMIT for more than TSR__MOST_LAYERS and for bombs, _MEMORY,
 * and as the stream does. */
int tsr__stream_unwrap(tsr__stream **stream, tsr__wrapping *wrapping, tsr_error *error);

#endif
