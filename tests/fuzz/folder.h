/* folder.h - for fuzz targets: an input as the files of a folder, which a model or a saved run is.
 *
 *   file 0xff file 0xff ...     the first byte of a file chooses its name among those of the target
 *
 * No JSON has the byte 0xff. Of a safetensors file, only the header is in the input: its length is written before it, and as many
 * bytes after it as its last array needs, because a fuzzer would rarely find the two numbers that agree with the header. */
#ifndef TSR_FUZZ_FOLDER_H
#define TSR_FUZZ_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "require.h"

enum { FUZZ_MOST_DATA = 1 << 16, FUZZ_PATH_BYTES = 256 };

/* A folder of the process, and the folder in it that inputs fill. */
static char fuzz_root[FUZZ_PATH_BYTES], fuzz_files[2 * FUZZ_PATH_BYTES];

static inline void fuzz_folder_empty(const char *path) {
  DIR *list = opendir(path);
  const struct dirent *entry;
  while (list && (entry = readdir(list)) != NULL)
    if (entry->d_name[0] != '.') (void)unlinkat(dirfd(list), entry->d_name, 0);
  if (list) (void)closedir(list);
}

static inline void fuzz_folder_remove(void) {
  fuzz_folder_empty(fuzz_files);
  (void)rmdir(fuzz_files);
  fuzz_folder_empty(fuzz_root);
  (void)rmdir(fuzz_root);
}

/* Make both folders, in memory if possible. They go with the process. */
static inline const char *fuzz_folder(void) {
  if (fuzz_root[0]) return fuzz_files;
  const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  (void)snprintf(fuzz_root, sizeof fuzz_root, "%s/tessera-fuzz-XXXXXX", base);
  require(mkdtemp(fuzz_root) != NULL, "a folder for files");
  (void)snprintf(fuzz_files, sizeof fuzz_files, "%s/files", fuzz_root);
  require(!mkdir(fuzz_files, 0700), "a folder in it");
  (void)atexit(fuzz_folder_remove);
  return fuzz_files;
}

static inline FILE *fuzz_create(const char *path) {
  FILE *file = fopen(path, "wb");
  require(file != NULL, "a file");
  return file;
}

static inline void fuzz_put(const char *path, const void *data, size_t size) {
  FILE *file = fuzz_create(path);
  if (size) (void)fwrite(data, 1, size, file);
  (void)fclose(file);
}

/* The same in the folder of the process. */
static inline void fuzz_put_aside(const char *name, const void *data, size_t size) {
  char path[2 * FUZZ_PATH_BYTES];
  (void)fuzz_folder();
  (void)snprintf(path, sizeof path, "%s/%s", fuzz_root, name);
  fuzz_put(path, data, size);
}

/* The largest end that the header has, up to FUZZ_MOST_DATA. */
static inline size_t fuzz_data_bytes(const char *header, size_t size) {
  static const char key[] = "\"data_offsets\"";
  size_t most = 0;
  for (size_t i = 0; i + sizeof key < size; i++) {
    if (memcmp(header + i, key, sizeof key - 1) != 0) continue;
    size_t number = 0;
    for (size_t k = i + sizeof key; k < size && header[k] != ']'; k++) {
      bool is_digit = header[k] >= '0' && header[k] <= '9';
      number = is_digit ? number * 10 + (size_t)(header[k] - '0') : 0;
      if (number > FUZZ_MOST_DATA) break;
      if (number > most) most = number;
    }
  }
  return most;
}

static inline void fuzz_put_safetensors(const char *path, const void *header, size_t size) {
  static const unsigned char data[FUZZ_MOST_DATA];
  unsigned char length[8];
  for (size_t i = 0; i < sizeof length; i++) length[i] = (unsigned char)((uint64_t)size >> 8 * i);
  FILE *file = fuzz_create(path);
  (void)fwrite(length, 1, sizeof length, file);
  if (size) (void)fwrite(header, 1, size, file);
  (void)fwrite(data, 1, fuzz_data_bytes(header, size), file);
  (void)fclose(file);
}

/* Replace what is in the folder with the files of an input. */
static inline void fuzz_folder_fill(const uint8_t *data, size_t size, const char *const *names,
                                    size_t name_count) {
  fuzz_folder_empty(fuzz_folder());
  for (size_t begin = 0, end; begin < size; begin = end + 1) {
    const uint8_t *next = memchr(data + begin, 0xff, size - begin);
    end = next ? (size_t)(next - data) : size;
    if (end == begin) continue;
    const char *name = names[data[begin] % name_count];
    const char *content = (const char *)data + begin + 1;
    char path[3 * FUZZ_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", fuzz_files, name);
    if (strstr(name, ".safetensors") && !strstr(name, ".json"))
      fuzz_put_safetensors(path, content, end - begin - 1);
    else
      fuzz_put(path, content, end - begin - 1);
  }
}

#endif
