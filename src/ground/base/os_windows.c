/* os_windows.c - what Windows does differently of the files of os.h: names, folders and patterns. os_files.c has the rest,
 * through windows/posix.h, which knows how Windows spells names of files. */
#include "base/os_posix.h"

#include <windows.h>

#include "base/memory.h"
#include "base/os.h"
#include "base/vector.h"

enum { NAMES_TRIED = 100 };

bool tsr__os_is_absolute(const char *path) {
  bool has_drive = ((path[0] | 32) >= 'a' && (path[0] | 32) <= 'z') && path[1] == ':';
  return path[0] == '/' || path[0] == '\\' || has_drive;
}

/* ---- folders ---- */

static char *join(const char *folder, const char *name) {
  char *path = TSR__NEW_ARRAY(char, strlen(folder) + strlen(name) + 2);
  if (!path) return NULL;
  size_t length = strlen(folder);
  bool has_slash = !length || strchr("/\\:", folder[length - 1]) != NULL;
  return strcat(strcat(strcpy(path, folder), has_slash ? "" : "/"), name);
}

int tsr__os_list(const char *folder, tsr__os_visit *visit, void *context, tsr_error *error) {
  const struct dirent *entry;
  bool goes_on = true, is_lost = false;
  DIR *stream = opendir(folder);
  if (!stream) return tsr__posix_fail(error, "cannot list");
  while (goes_on && (errno = 0, entry = readdir(stream)) != NULL) {
    const char *name = entry->d_name;
    if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
    char *path = join(folder, name);
    is_lost = !path;
    goes_on = path && visit(context, name, tsr__os_is_folder(path));
    tsr__free(path);
  }
  int status = is_lost            ? tsr__fail_memory(error)
               : goes_on && errno ? tsr__posix_fail(error, "cannot list")
                                  : 0;
  (void)closedir(stream);
  return status;
}

/* ---- patterns ---- */

/* Whether a byte is in the set that begins at `*pattern`, after its bracket; moves on past the set. */
static bool is_in_set(const char **pattern, char byte) {
  const char *at = *pattern;
  bool is_inverted = *at == '!' || *at == '^', is_found = false;
  if (is_inverted) at++;
  for (bool is_first = true; *at && (is_first || *at != ']'); is_first = false) {
    char from = *at++, to = from;
    if (*at == '-' && at[1] && at[1] != ']') {
      to = at[1];
      at += 2;
    }
    is_found |= from <= byte && byte <= to;
  }
  *pattern = *at ? at + 1 : at;
  return is_found != is_inverted;
}

/* Whether a name is what a pattern without separators says. Each star is tried at the places after the one before. */
static bool fits(const char *pattern, const char *name) {
  const char *star = NULL, *retry = NULL;
  if (*name == '.' && *pattern != '.') return false;
  while (*name) {
    const char *next = pattern + 1;
    if (*pattern == '*') {
      star = next;
      retry = name;
      pattern = star;
      continue;
    }
    bool is_fit = *pattern && (*pattern == '?' || *pattern == *name);
    if (*pattern == '[') is_fit = is_in_set(&next, *name);
    if (is_fit) {
      pattern = next;
      name++;
      continue;
    }
    if (!star) return false;
    pattern = star;
    name = ++retry;
  }
  while (*pattern == '*') pattern++;
  return !*pattern;
}

typedef struct matches {
  TSR__VECTOR(char *) paths;
  const char *folder,
      *pattern; /* of the level that is looked through; the folder is "" for the current one */
  bool wants_folders, is_lost;
} matches;

static bool visit_name(void *context, const char *name, bool is_folder) {
  matches *m = context;
  if ((m->wants_folders && !is_folder) || !fits(m->pattern, name)) return true;
  char *path = *m->folder ? join(m->folder, name) : join("", name);
  m->is_lost = !path || !TSR__VECTOR_PUSH(&m->paths, path);
  if (m->is_lost) tsr__free(path);
  return !m->is_lost;
}

static int compare(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_paths(matches *m) {
  for (size_t i = 0; i < m->paths.count; i++) tsr__free(m->paths.items[i]);
  TSR__VECTOR_FREE(&m->paths);
}

/* Visit what the rest of a pattern matches below a folder. False stops. */
static bool match_below(const char *folder, char *rest, tsr__os_visit *visit, void *context,
                        size_t *count, bool *is_lost) {
  char *slash = strpbrk(rest, "/\\");
  matches m = {.folder = folder, .pattern = rest, .wants_folders = slash != NULL};
  bool goes_on = true;
  if (slash) *slash = '\0';
  if (strpbrk(rest, "*?["))
    (void)tsr__os_list(*folder ? folder : ".", visit_name, &m, NULL);
  else {
    char *path = join(folder, rest);
    m.is_lost = !path || !TSR__VECTOR_PUSH(&m.paths, path);
  }
  if (m.paths.count) qsort(m.paths.items, m.paths.count, sizeof *m.paths.items, compare);
  for (size_t i = 0; goes_on && !m.is_lost && i < m.paths.count; i++) {
    const char *path = m.paths.items[i];
    if (slash)
      goes_on = match_below(path, slash + 1, visit, context, count, &m.is_lost);
    else if (tsr__os_is_there(path)) {
      goes_on = visit(context, path, tsr__os_is_folder(path));
      ++*count;
    }
  }
  if (slash) *slash = '/';
  *is_lost |= m.is_lost;
  free_paths(&m);
  return goes_on && !*is_lost;
}

int tsr__os_match(const char *pattern, tsr__os_visit *visit, void *context, tsr_error *error) {
  size_t count = 0, root = 0;
  bool is_lost = false;
  char *copy = join("", pattern), *start = TSR__NEW_ARRAY(char, strlen(pattern) + 1);
  if (copy && start) {
    if (copy[0] && copy[1] == ':') root = 2; /* of a drive */
    while (copy[root] == '/' || copy[root] == '\\') root++;
    memcpy(start, copy, root);
    (void)match_below(start, copy + root, visit, context, &count, &is_lost);
  }
  is_lost |= !copy || !start;
  tsr__free(copy);
  tsr__free(start);
  if (is_lost) return tsr__fail_memory(error);
  return count ? 0 : tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "no file matches");
}

/* ---- files that go with their handle ---- */

int tsr__posix_unnamed(const char *folder) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  char name[40];
  for (unsigned i = 0; i < NAMES_TRIED; i++) {
    (void)snprintf(name, sizeof name, "tessera-%lx-%llx", GetCurrentProcessId(),
                   (unsigned long long)tsr__os_time_ns() + i);
    char *path = join(folder, name);
    bool is_fit = path && tsr__windows_path(path, wide);
    if (!path) errno = ENOMEM;
    tsr__free(path);
    if (!is_fit) return -1;
    HANDLE file =
        CreateFileW(wide, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_DELETE, NULL, CREATE_NEW,
                    FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE, NULL);
    if (file != INVALID_HANDLE_VALUE) return _open_osfhandle((intptr_t)file, _O_RDWR | _O_BINARY);
    errno = tsr__windows_errno();
    if (errno != EEXIST) return -1;
  }
  return -1;
}

int tsr__posix_reserve(int fd, int64_t size) {
  return ftruncate(fd, size) == 0 ? 0 : errno;
}
