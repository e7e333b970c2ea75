/* source.h - where bytes come from: a window that slides over the input, front to back.
 *
 *      offset
 *        |<------- size ------->|
 *   .....[ consumed | unread    ].....      data = first byte of the window
 *
 * A parser works on `data[0 .. size)` and calls tsr__input_fill when it needs more. Memory is one
 * window, however long the input: a file, a pipe and a decompressor look the same, and no file is
 * mapped, so a file that shrinks while it is read cannot crash the reader.
 *
 * A stream is what a window is filled from. Streams are stacked: each owns the one below it and
 * pulls from it piece by piece, so no input is ever entirely in memory.
 *
 *   a .pickle.gz in a zip:   file <- ahead <- zip <- ahead <- gzip <- ahead <- window
 *
 * "Ahead" streams let detect.h look at the first bytes; the bottom is a file or a piece of memory.
 */
#ifndef TSR_IO_SOURCE_H
#define TSR_IO_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* How a stream ended, worst last. Damage found before the first byte is an error instead; later it
 * ends the stream, because what was read up to there can still be used. */
typedef enum tsr__ending {
  TSR__ENDING_WHOLE,
  TSR__ENDING_CUT,    /* the input ended before the form said so */
  TSR__ENDING_DAMAGED /* what followed could not be decoded, or a checksum is wrong */
} tsr__ending;

/* A stream's own fields and functions; a kind of stream is a struct that begins with this one. Only
 * tsr__stream_read calls `read`. */
typedef struct tsr__stream tsr__stream;
struct tsr__stream {
  /* Up to `size` (never 0) bytes: how many, 0 at the end and ever after, or a negative tsr_status,
   * after which there is nothing to do but to close. */
  ptrdiff_t (*read)(tsr__stream *stream, unsigned char *buffer, size_t size, tsr_error *error);
  /* Release the stream and what it reads from. */
  void (*close)(tsr__stream *stream);
  /* Up to `size` bytes from `offset` of what the stream delivers, which moves nothing for `read`; returns as it
   * does. NULL if only `read` is possible. */
  ptrdiff_t (*read_at)(tsr__stream *stream, uint64_t offset, unsigned char *buffer, size_t size,
                       tsr_error *error);
  tsr__stream *below;       /* what it reads from, which `close` closes; NULL at the bottom */
  uint64_t delivered_bytes; /* by all reads so far */
  uint32_t more_payloads;   /* snapshots in the input besides the one delivered; set at the end */
  tsr__ending ending;       /* set at the end; never better than that of the stream below */
};

/* Read from `stream`, as its `read` says. */
ptrdiff_t tsr__stream_read(tsr__stream *stream, unsigned char *buffer, size_t size,
                           tsr_error *error);
/* Bytes taken from the bottom so far: of the input as stored, a window's read-ahead included. */
uint64_t tsr__stream_stored_bytes(const tsr__stream *stream);
/* more_payloads of this stream and all below it. */
uint32_t tsr__stream_more_payloads(const tsr__stream *stream);

/* A stream over a file ("-": standard input). `*size_bytes` as in tsr__os_open. Fails with
 * TSR_ERROR_IO or _MEMORY. */
int tsr__stream_file(const char *path, tsr__stream **out, uint64_t *size_bytes, tsr_error *error);
/* A stream over a piece of memory, which must outlive it. Fails with TSR_ERROR_MEMORY. */
int tsr__stream_memory(const void *data, size_t size_bytes, tsr__stream **out, tsr_error *error);
/* A stream that delivers what `below` does, and shows its first `*size` bytes beforehand: `wanted`,
 * or less where the input is shorter. They are valid until the first read. Owns `below` from now
 * on, also on failure. Fails as `below` does, or with TSR_ERROR_MEMORY. */
int tsr__stream_ahead(tsr__stream *below, size_t wanted, tsr__stream **out,
                      const unsigned char **bytes, size_t *size, tsr_error *error);

/* Invariants: data[0 .. size) are the bytes offset .. offset + size of the input; at_end means that
 * nothing follows them. */
typedef struct tsr__input {
  const unsigned char *data;
  size_t size;
  uint64_t offset;
  bool at_end;

  tsr__stream *stream;   /* owned; NULL for memory */
  unsigned char *buffer; /* owned; NULL for memory */
  size_t capacity;
  uint64_t stored_bytes;       /* taken from the bottom of the stream when the window was filled */
  uint64_t input_bytes;        /* that there are at the bottom; 0 if nobody knows */
  struct tsr__prefetch *ahead; /* a thread that reads the next window, or NULL (prefetch.c) */
} tsr__input;

/* A window over `stream`, which the source owns from now on, also on failure. */
int tsr__input_open(tsr__input *source, tsr__stream *stream, tsr_error *error);
/* The same with a window of `window_bytes` (at least 2) to begin with. */
int tsr__input_open_sized(tsr__input *source, tsr__stream *stream, size_t window_bytes,
                          tsr_error *error);
/* From now on read the next window in its own thread while this one is worked on. Until
 * tsr__input_settle nobody else may touch the stream. If no thread can be started, nothing changes.
 * `input_bytes` is the approximate size of the input. */
void tsr__input_read_ahead(tsr__input *source, uint64_t input_bytes);
/* Memory that a parser is going to fill, while it works on the next window or two: the thread that
 * reads ahead, if there is one, has the system back it with pages at the same time. Advice only, taken with
 * the next tsr__input_fill; `count` is at most TSR__REGIONS_MAX. The parser need not keep the
 * memory where it is: to prepare what has been freed or moved does nothing (tsr__os_populate). */
typedef struct tsr__region {
  void *data;
  size_t size_bytes;
} tsr__region;
enum { TSR__REGIONS_MAX = 16 };
void tsr__input_prepare(tsr__input *source, const tsr__region *regions, size_t count);
/* End that thread; the stream's fields may be looked at again. What it has read is kept. */
void tsr__input_settle(tsr__input *source);
/* The whole of a piece of memory, which must outlive the source. */
void tsr__input_memory(tsr__input *source, const void *data, size_t size_bytes);
/* A zeroed source is fine. */
void tsr__input_close(tsr__input *source);

/* Release the window's first `consumed` bytes and read on: afterwards the window holds at least one
 * byte more after what was kept, or at_end is set. Pointers into the old window are invalid. Fails
 * as the stream does, or with TSR_ERROR_MEMORY. */
int tsr__input_fill(tsr__input *source, size_t consumed, tsr_error *error);

/* ---- prefetch.c ---- */

/* The next window: moves what is kept in front of the bytes that the thread has read, and sends the
 * thread on. Returns what tsr__input_fill does; what was consumed is gone already. */
int tsr__prefetch_fill(tsr__input *source, tsr_error *error);
/* End the thread and release it; NULL is fine. */
void tsr__prefetch_close(struct tsr__prefetch *ahead);

#endif
