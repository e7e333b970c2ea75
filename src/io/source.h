/* source.h - where bytes come from: a window that slides over the input, front to back.
 *
 *      offset
 *        |<------- size ------->|
 *   .....[ consumed | unread    ].....      data = first byte of the window
 *
 * A parser works on `data[0 .. size)` and calls tsr__source_fill when it needs more than is there.
 * Memory is one window, however long the input: a file, a pipe and a decompressor look the same,
 * and no file is mapped, so a file that shrinks while it is read cannot crash the reader.
 *
 * A stream is what a window is filled from: files here, decompressors beside them. */
#ifndef TSR_IO_SOURCE_H
#define TSR_IO_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct tsr__stream tsr__stream;
struct tsr__stream {
  /* Up to `size` (never 0) bytes: how many, 0 at the end, or a negative tsr_status. */
  ptrdiff_t (*read)(tsr__stream *stream, unsigned char *buffer, size_t size, tsr_error *error);
  /* Release the stream and what it reads from. */
  void (*close)(tsr__stream *stream);
};

/* Invariants: data[0 .. size) are the bytes offset .. offset + size of the input; at_end says that
 * nothing follows them. */
typedef struct tsr__source {
  const unsigned char *data;
  size_t size;
  uint64_t offset;
  bool at_end;

  tsr__stream *stream;   /* owned; NULL for memory */
  unsigned char *buffer; /* owned; NULL for memory */
  size_t capacity;
} tsr__source;

/* A stream over a file ("-": standard input). `*size_bytes` as in tsr__os_open. Fails with
 * TSR_ERROR_IO or _MEMORY. */
int tsr__stream_file(const char *path, tsr__stream **out, uint64_t *size_bytes, tsr_error *error);

/* A window over `stream`, which the source owns from now on, also on failure. */
int tsr__source_open(tsr__source *source, tsr__stream *stream, tsr_error *error);
/* The whole of a piece of memory, which must outlive the source. */
void tsr__source_memory(tsr__source *source, const void *data, size_t size_bytes);
/* A zeroed source is fine. */
void tsr__source_close(tsr__source *source);

/* Let go of the window's first `consumed` bytes and read on: afterwards the window holds at least
 * one byte more behind what was kept, or at_end is set. Pointers into the old window are invalid.
 * Fails as the stream does, or with TSR_ERROR_MEMORY. */
int tsr__source_fill(tsr__source *source, size_t consumed, tsr_error *error);

#endif
