/* system_wasi.c - system.h for WebAssembly in a browser (web/): no terminal, no other process, and no file without a name. */
#define _GNU_SOURCE /* getentropy */

#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

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
