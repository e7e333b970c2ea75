/* replay.c - a fuzz target as a normal test: gives it every file that the command line names, alone
 * or by its folder, and nothing at all, and reports as TAP. libFuzzer takes this file's place in
 * build-fuzz; AFL++ runs it unchanged, with one file (CONTRIBUTING.md). */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned test_count;

/* The target crashes on a defect, so returning means success. */
static void replay(const char *title, const uint8_t *data, size_t size_bytes) {
  (void)LLVMFuzzerTestOneInput(data, size_bytes);
  printf("ok %u - %s\n", ++test_count, title);
  (void)fflush(stdout);
}

/* The buffer is exactly as long as the file, so that reading past it is seen. */
static void replay_file(const char *path, const char *title) {
  FILE *stream = fopen(path, "rb");
  long size_bytes = -1;
  if (stream && fseek(stream, 0, SEEK_END) == 0) size_bytes = ftell(stream);
  uint8_t *data = size_bytes < 0 ? NULL : malloc((size_t)size_bytes);
  if (data && fseek(stream, 0, SEEK_SET) == 0 &&
      fread(data, 1, (size_t)size_bytes, stream) == (size_t)size_bytes)
    replay(title, data, (size_t)size_bytes);
  else if (size_bytes != 0)
    printf("not ok %u - %s # cannot be read\n", ++test_count, path);
  free(data);
  if (stream) (void)fclose(stream);
}

static void replay_folder(DIR *folder, const char *name) {
  for (struct dirent *entry; (entry = readdir(folder));) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", name, entry->d_name);
    if (entry->d_name[0] != '.') replay_file(path, entry->d_name);
  }
  (void)closedir(folder);
}

int main(int argument_count, char **arguments) {
  replay("nothing", (const uint8_t *)"", 0);
  for (int i = 1; i < argument_count; i++) {
    DIR *folder = opendir(arguments[i]);
    if (folder)
      replay_folder(folder, arguments[i]);
    else
      replay_file(arguments[i], arguments[i]);
  }
  printf("1..%u\n", test_count);
  return 0;
}
