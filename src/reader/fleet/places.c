/* places.c - see places.h. */
#include "fleet/places.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "base/os.h"
#include "base/sort.h"

enum { MOST_LEVELS = 16, LIST_BYTES = 64 << 20 };
#define MOST_FILES ((size_t)4 << 20)

typedef struct walk {
  tsr__path_list *out;
  tsr__path_list folders; /* of the folder that is being read */
  const char *folder;
  bool is_failed, is_full;
} walk;

void tsr__path_list_release(tsr__path_list *list) {
  for (size_t i = 0; i < list->count; i++) tsr__free(list->items[i]);
  TSR__VECTOR_FREE(list);
}

static int compare_paths(const void *a, const void *b) {
  char *const *x = a, *const *y = b;
  return strcmp(*x, *y);
}

void tsr__path_list_sort(tsr__path_list *list) {
  size_t kept = 0;
  tsr__sort(list->items, list->count, sizeof *list->items, compare_paths);
  for (size_t i = 0; i < list->count; i++) {
    if (kept && !strcmp(list->items[kept - 1], list->items[i]))
      tsr__free(list->items[i]);
    else
      list->items[kept++] = list->items[i];
  }
  list->count = kept;
}

/* Append `folder`/`name`, or `name` alone. */
static bool add_path(tsr__path_list *list, const char *folder, const char *name,
                     size_t name_bytes) {
  size_t before = folder ? strlen(folder) : 0;
  while (before > 1 && folder[before - 1] == '/') before--;
  bool has_slash = before && folder[before - 1] != '/';
  char *path = TSR__NEW_ARRAY(char, before + has_slash + name_bytes + 1);
  if (!path || !TSR__VECTOR_RESERVE(list, 1)) {
    tsr__free(path);
    return false;
  }
  if (before) memcpy(path, folder, before);
  if (has_slash) path[before] = '/';
  memcpy(path + before + has_slash, name, name_bytes);
  path[before + has_slash + name_bytes] = '\0';
  list->items[list->count++] = path;
  return true;
}

/* ---- Folders ---- */

static bool ends_with(const char *name, size_t size, const char *ending) {
  size_t length = strlen(ending);
  return size >= length && !memcmp(name + size - length, ending, length);
}

bool tsr__is_snapshot_name(const char *name) {
  static const char *const packed[] = {".gz", ".zst", ".xz", NULL};
  static const char *const forms[] = {".pickle", ".pkl",      ".html", ".zip",
                                      ".sketch", ".snapshot", NULL};
  size_t size = strlen(name);
  if (*name == '.') return false;
  for (size_t i = 0; packed[i]; i++)
    if (ends_with(name, size, packed[i])) {
      size -= strlen(packed[i]);
      break;
    }
  for (size_t i = 0; forms[i]; i++)
    if (ends_with(name, size, forms[i])) return true;
  return false;
}

static bool visit_entry(void *context, const char *name, bool is_folder) {
  walk *w = context;
  tsr__path_list *list = is_folder ? &w->folders : w->out;
  if (!is_folder && !tsr__is_snapshot_name(name)) return true;
  w->is_full = w->out->count >= MOST_FILES;
  w->is_failed = !w->is_full && !add_path(list, w->folder, name, strlen(name));
  return !w->is_failed && !w->is_full;
}

static int walk_folder(const char *folder, unsigned level, tsr__path_list *out, tsr_error *error) {
  walk w = {.out = out, .folder = folder};
  int status = level > MOST_LEVELS ? tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                                               "folders in folders, more than %d deep", MOST_LEVELS)
                                   : tsr__os_list(folder, visit_entry, &w, error);
  if (!status && w.is_failed) status = tsr__fail_memory(error);
  if (!status && w.is_full)
    status = tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "more than %zu files", MOST_FILES);
  for (size_t i = 0; !status && i < w.folders.count; i++)
    status = walk_folder(w.folders.items[i], level + 1, out, error);
  tsr__path_list_release(&w.folders);
  return status;
}

/* ---- Lists ---- */

size_t tsr__folder_bytes(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (size_t)(slash - path) + 1 : 0;
}

static int read_lines(const char *path, const char *text, size_t size, tsr__path_list *out,
                      tsr_error *error) {
  size_t before = tsr__folder_bytes(path);
  char *folder = TSR__NEW_ARRAY(char, before + 1);
  bool ok = folder != NULL;
  if (ok) memcpy(folder, path, before);
  for (size_t at = 0; ok && at < size;) {
    const char *newline = memchr(text + at, '\n', size - at);
    size_t length = newline ? (size_t)(newline - text) - at : size - at, used = length;
    while (used && (text[at + used - 1] == '\r' || text[at + used - 1] == ' ')) used--;
    bool is_absolute = tsr__os_is_absolute(text + at);
    if (used && text[at] != '#' && !memchr(text + at, 0, used))
      ok = add_path(out, is_absolute || !before ? NULL : folder, text + at, used);
    at += length + 1;
  }
  tsr__free(folder);
  return ok ? 0 : tsr__fail_memory(error);
}

static int read_list(const char *path, tsr__path_list *out, tsr_error *error) {
  int handle;
  uint64_t size;
  int status = tsr__os_open_sized(path, &handle, &size, error);
  if (status) return status;
  if (size > LIST_BYTES)
    status = tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "longer than a list of files is");
  char *text = status ? NULL : TSR__NEW_ARRAY(char, (size_t)size + 1);
  if (!status && !text) status = tsr__fail_memory(error);
  if (!status) status = tsr__os_read_exactly(handle, 0, text, (size_t)size, error);
  if (!status) status = read_lines(path, text, (size_t)size, out, error);
  tsr__free(text);
  tsr__os_close(handle);
  return status;
}

/* ---- Any ---- */

static bool visit_match(void *context, const char *path, bool is_folder) {
  walk *w = context;
  w->is_failed = !add_path(is_folder ? &w->folders : w->out, NULL, path, strlen(path));
  return !w->is_failed;
}

static int match(const char *pattern, tsr__path_list *out, tsr_error *error) {
  walk w = {.out = out};
  int status = tsr__os_match(pattern, visit_match, &w, error);
  if (!status && w.is_failed) status = tsr__fail_memory(error);
  for (size_t i = 0; !status && i < w.folders.count; i++)
    status = walk_folder(w.folders.items[i], 1, out, error);
  tsr__path_list_release(&w.folders);
  return status;
}

int tsr__places_find(const char *text, tsr__path_list *out, tsr_error *error) {
  if (strstr(text, "://"))
    return tsr__fail(
        error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
        "the command reads files; addresses are read in Python, by tessera.ranks(...)");
  if (*text == '@') return read_list(text + 1, out, error);
  if (tsr__os_is_folder(text)) return walk_folder(text, 1, out, error);
  if (!tsr__os_is_there(text) && strpbrk(text, "*?[")) return match(text, out, error);
  return add_path(out, NULL, text, strlen(text)) ? 0 : tsr__fail_memory(error);
}
