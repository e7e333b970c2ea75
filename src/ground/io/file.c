/* file.c - a stream over a file or standard input.
 *
 * The bottom of every stack of streams that does not stand on memory. What it reads goes straight
 * into the reader's window; it keeps nothing but the handle. Standard input is left open. */
#include <string.h>

#include "base/memory.h"
#include "base/os.h"
#include "io/source.h"

typedef struct file_stream {
  tsr__stream base;
  int handle;
} file_stream;

static ptrdiff_t file_read(tsr__stream *stream, unsigned char *buffer, size_t size,
                           tsr_error *error) {
  return tsr__os_read(((file_stream *)stream)->handle, buffer, size, error);
}

static ptrdiff_t file_read_at(tsr__stream *stream, uint64_t offset, unsigned char *buffer,
                              size_t size, tsr_error *error) {
  return tsr__os_read_at(((file_stream *)stream)->handle, offset, buffer, size, error);
}

static void file_close(tsr__stream *stream) {
  tsr__os_close(((file_stream *)stream)->handle);
  tsr__free(stream);
}

int tsr__stream_file(const char *path, tsr__stream **out, uint64_t *size_bytes, tsr_error *error) {
  file_stream *file = TSR__NEW(file_stream);
  if (!file) return tsr__fail_memory(error);
  int status = tsr__os_open(path, &file->handle, size_bytes, error);
  if (status) {
    tsr__free(file);
    return status;
  }
  file->base = (tsr__stream){.read = file_read, .close = file_close};
  /* Standard input may be a file of which a part was read already, so its offsets are unknown. */
  if (*size_bytes && strcmp(path, "-") != 0) file->base.read_at = file_read_at;
  *out = &file->base;
  return 0;
}
