/* machine.c - see machine.h.
 *
 *   /proc/meminfo                                     MemAvailable, SwapFree
 *   /proc/self/cgroup                                 "0::/a/b" (version 2), "4:memory:/a/b" (version 1)
 *   /sys/fs/cgroup/a/b/memory.max                     version 2: the limits of /a/b, of /a and of the root
 *   /sys/fs/cgroup/memory/a/b/memory.limit_in_bytes   version 1
 *
 * In a container, the path may be one that exists only outside. Then the files of the root are the container's,
 * so all groups from the path up to the root are tried.
 * Rule: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst, filesystems/proc.rst. */
#include "base/machine.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/format.h"
#include "base/os.h"

enum { TEXT_BYTES = 16384, PATH_BYTES = 1024, GROUP_BYTES = 512 };

/* How a version of control groups is laid out. */
typedef struct group_version {
  const char *controllers; /* in its line of /proc/self/cgroup */
  const char *folder, *limit, *usage, *caches[2];
} group_version;

static const group_version versions[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file"}},
    {"memory",
     "/sys/fs/cgroup/memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file", "total_active_file"}},
};

/* The beginning of a file as text; "" if it cannot be read. */
static void read_text(const char *root, const char *folder, const char *group, const char *name,
                      char text[TEXT_BYTES]) {
  char path[PATH_BYTES];
  int handle, length = snprintf(path, sizeof path, "%s%s%s/%s", root, folder, group, name);
  size_t size = 0;
  ptrdiff_t got = 1;
  text[0] = '\0';
  if (length < 0 || length >= PATH_BYTES || tsr__os_open_regular(path, &handle, NULL)) return;
  while (got > 0 && size < TEXT_BYTES - 1) {
    got = tsr__os_read(handle, text + size, TEXT_BYTES - 1 - size, NULL);
    if (got > 0) size += (size_t)got;
  }
  tsr__os_close(handle);
  text[size] = '\0';
}

static const char *next_line(const char *line) {
  const char *end = strchr(line, '\n');
  return end ? end + 1 : NULL;
}

/* The number after a word at the beginning of a line; `fallback` without one, as in "max". */
static uint64_t number_after(const char *text, const char *word, uint64_t fallback) {
  size_t length = strlen(word);
  for (const char *line = text; line; line = next_line(line)) {
    if (strncmp(line, word, length) != 0) continue;
    const char *digits = line + length + strspn(line + length, " \t:");
    if (digits[0] < '0' || digits[0] > '9' || (length && digits == line + length)) continue;
    return strtoull(digits, NULL, 10);
  }
  return fallback;
}

/* Whether a word is in a list with commas that ends at a colon. */
static bool has_controller(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *at = list;; at++) {
    size_t here = strcspn(at, ",:\n");
    if (here == length && strncmp(at, word, length) == 0) return true;
    at += here;
    if (*at != ',') return false;
  }
}

/* The path of this process's group, without a slash at its end: "" for the root. Lines are
 * "NUMBER:CONTROLLERS:PATH". */
static void find_group(const char *text, const group_version *version, char group[GROUP_BYTES]) {
  size_t length = 0;
  for (const char *line = text; line; line = next_line(line)) {
    const char *list = line + strcspn(line, ":\n");
    if (*list != ':' || !has_controller(++list, version->controllers)) continue;
    const char *path = list + strcspn(list, ":\n");
    if (*path != ':') continue;
    length = strcspn(++path, "\n");
    if (length >= GROUP_BYTES) length = 0;
    memcpy(group, path, length);
    break;
  }
  while (length && group[length - 1] == '/') length--;
  group[length] = '\0';
}

static void apply_limit(const char *root, const group_version *version, const char *group,
                        tsr__machine_memory *out) {
  char text[TEXT_BYTES];
  uint64_t cache = 0;
  read_text(root, version->folder, group, version->limit, text);
  uint64_t limit = number_after(text, "", UINT64_MAX);
  if (limit == UINT64_MAX) return;
  read_text(root, version->folder, group, version->usage, text);
  uint64_t usage = number_after(text, "", 0);
  read_text(root, version->folder, group, "memory.stat", text);
  for (size_t i = 0; i < sizeof version->caches / sizeof *version->caches; i++) {
    uint64_t bytes = number_after(text, version->caches[i], 0);
    cache += bytes < usage - cache ? bytes : usage - cache;
  }
  assert(cache <= usage);
  uint64_t used = usage - cache, left = limit > used ? limit - used : 0;
  if (left >= out->available_bytes) return;
  *out = (tsr__machine_memory){.available_bytes = left, .is_limited = true};
}

/* The limits of a group and of all around it. `group` is shortened to "". */
static void apply_limits(const char *root, const group_version *version, char group[GROUP_BYTES],
                         tsr__machine_memory *out) {
  for (;;) {
    apply_limit(root, version, group, out);
    char *slash = strrchr(group, '/');
    if (!slash) return;
    *slash = '\0';
  }
}

tsr__machine_memory tsr__machine_memory_below(const char *root) {
  tsr__machine_memory memory = {.available_bytes = UINT64_MAX};
  char text[TEXT_BYTES], group[GROUP_BYTES];
  read_text(root, "/proc", "", "meminfo", text);
  uint64_t available = number_after(text, "MemAvailable", UINT64_MAX),
           swap = number_after(text, "SwapFree", 0);
  if (available < UINT64_MAX / 4096 && swap < UINT64_MAX / 4096)
    memory.available_bytes = 1024 * (available + swap);
  for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
    read_text(root, "/proc/self", "", "cgroup", text);
    find_group(text, &versions[i], group);
    apply_limits(root, &versions[i], group, &memory);
  }
  return memory;
}

int tsr__machine_check(uint64_t needs_bytes, tsr_error *error) {
  uint64_t all_bytes = tsr__os_memory_bytes();
  char needed[TSR__FORMAT_BYTES], has[TSR__FORMAT_BYTES];
  tsr__format_size(needs_bytes, needed);
  if (all_bytes && needs_bytes > all_bytes)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "the run needs %s of memory, and this machine has %s", needed,
                     tsr__format_size(all_bytes, has));
  tsr__machine_memory memory = tsr__machine_memory_below("");
  if (needs_bytes <= memory.available_bytes) return 0;
  return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                   "the run needs %s of memory, and %s has only %s left", needed,
                   memory.is_limited ? "the limit of this container or control group"
                                     : "this machine",
                   tsr__format_size(memory.available_bytes, has));
}
