/* os_posix.c - what Linux and macOS do alike, and Windows differently, of the files of os.h: names, folders and patterns. */
#define _POSIX_C_SOURCE 200809L
#include "base/os_posix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/os.h"

bool tsr__os_is_absolute(const char *path) {
  return path[0] == '/';
}

/* Whether a name in a folder is a folder, too; `*is_link` for a link to one. */
static bool is_folder_in(int folder, const char *name, bool *is_link) {
  struct stat status;
  *is_link = false;
  if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return false;
  if (S_ISDIR(status.st_mode)) return true;
  *is_link =
      S_ISLNK(status.st_mode) && fstatat(folder, name, &status, 0) == 0 && S_ISDIR(status.st_mode);
  return false;
}

int tsr__os_list(const char *folder, tsr__os_visit *visit, void *context, tsr_error *error) {
  DIR *stream = opendir(folder);
  if (!stream) return tsr__posix_fail(error, "cannot list");
  const struct dirent *entry;
  bool goes_on = true;
  while (goes_on && (errno = 0, entry = readdir(stream)) != NULL) {
    const char *name = entry->d_name;
    if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
    bool is_link, is_folder = is_folder_in(dirfd(stream), name, &is_link);
    if (!is_link) goes_on = visit(context, name, is_folder);
  }
  int status = goes_on && errno ? tsr__posix_fail(error, "cannot list") : 0;
  (void)closedir(stream);
  return status;
}

int tsr__os_match(const char *pattern, tsr__os_visit *visit, void *context, tsr_error *error) {
  glob_t found;
  int failure = glob(pattern, 0, NULL, &found);
  if (failure == GLOB_NOSPACE) return tsr__fail_memory(error);
  if (failure) return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "no file matches");
  bool goes_on = true;
  for (size_t i = 0; goes_on && i < found.gl_pathc; i++)
    goes_on = visit(context, found.gl_pathv[i], tsr__os_is_folder(found.gl_pathv[i]));
  globfree(&found);
  return 0;
}

/* A file without a name is gone with its handle, however the process ends. */
int tsr__posix_unnamed(const char *folder) {
  char path[4096];
  if ((size_t)snprintf(path, sizeof path, "%s/tessera-XXXXXX", folder) >= sizeof path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  int fd = mkstemp(path);
  if (fd >= 0) (void)unlink(path);
  return fd;
}
