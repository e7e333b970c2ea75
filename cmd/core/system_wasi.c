/* system_wasi.c - system.h for WebAssembly in a browser (web/): no terminal, no other process, and no file without a name. */
#define _GNU_SOURCE /* fopencookie, getentropy */

#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "output.h"

void cli_system_prepare(int *argc, char ***argv) {
  (void)argc, (void)argv;
}

bool cli_system_program(char *path, size_t room_bytes) {
  (void)path, (void)room_bytes;
  return false;
}

void cli_system_end_with_parent(void) {}

bool cli_system_random(void *out, size_t size_bytes) {
  return getentropy(out, size_bytes) == 0;
}

uint32_t cli_system_columns(void) {
  return 0;
}

int cli_system_passing_file(const char *folder) {
  (void)folder;
  errno = 0;
  return -1;
}

int cli_system_keep_file(int handle, const char *path) {
  (void)handle, (void)path;
  errno = ENOSYS;
  return -1;
}

int64_t cli_system_written_ns(const struct stat *status) {
  return (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec;
}

int cli_system_write_error(FILE *stream) {
  (void)stream;
  return errno ? errno : EIO;
}

/* Nothing outlives the page. */
int cli_system_sync(int handle) {
  (void)handle;
  return 0;
}

bool cli_system_free_bytes(const char *folder, uint64_t *out) {
  (void)folder, (void)out;
  return false;
}

int cli_system_lock_folder(const char *folder, bool *is_taken) {
  *is_taken = false;
  return open(folder, O_RDONLY | O_DIRECTORY);
}

void cli_system_unlock_folder(int handle) {
  if (handle >= 0) (void)close(handle);
}

static ssize_t append(void *context, const char *data, size_t size_bytes) {
  return cli_text_append(context, data, size_bytes) ? 0 : (ssize_t)size_bytes;
}

FILE *cli_text_open(cli_text *text) {
  return fopencookie(text, "w", (cookie_io_functions_t){.write = append});
}

bool cli_text_close(FILE *stream, cli_text *text) {
  return fclose(stream) == 0 && !text->is_lost;
}
