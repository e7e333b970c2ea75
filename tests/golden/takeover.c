/* takeover.c - loaded before the C library (LD_PRELOAD), does what code would do that a file has smuggled in: when the program
 * first reads the file whose name is the environment's TSR_TAKEOVER, or accepts a connection if that is "accept", it tries to
 * harm TSR_OUTSIDE, a folder with a file `old`, and others. For each attempt it prints "takeover: NAME ERRNO" on standard
 * error, 0 for success. In the folder TSR_INSIDE, where the command writes its output, it makes the file `made`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_int is_done;

static void report(const char *name, long result) {
  dprintf(STDERR_FILENO, "takeover: %s %d\n", name, result < 0 ? errno : 0);
}

static const char *in(const char *folder, const char *name) {
  static char paths[4][4096];
  static int next;
  next = (next + 1) % 4;
  (void)snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name);
  return paths[next];
}

static void harm_files(const char *outside) {
  const char *old = in(outside, "old");
  report("overwrite", open(old, O_WRONLY | O_CLOEXEC));
  report("create", open(in(outside, "new"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  report("remove", unlink(old));
  report("rename", rename(old, in(outside, "renamed")));
  report("folder", mkdir(in(outside, "folder"), 0700));
  report("link", symlink("/", in(outside, "link")));
  report("permissions", chmod(old, 0777));
  report("times", utimensat(AT_FDCWD, old, NULL, 0));
}

static void harm_others(void) {
  struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  where.sin_port = htons(1);
  int handle = socket(AF_INET, SOCK_STREAM, 0);
  report("socket", handle);
  if (handle >= 0) report("connect", connect(handle, (struct sockaddr *)&where, sizeof where));
  report("local socket", socket(AF_UNIX, SOCK_STREAM, 0));
  report("signal", kill(getppid(), 0));
  char name[] = "false", *const words[] = {name, NULL};
  report("program", execv("/bin/false", words)); /* reports failures only */
}

static void take_over(void) {
  const char *outside = getenv("TSR_OUTSIDE"), *inside = getenv("TSR_INSIDE");
  int reason = errno;
  if (!outside || atomic_exchange(&is_done, 1)) return;
  report("read", open(in(outside, "old"), O_RDONLY | O_CLOEXEC));
  if (inside) report("output", open(in(inside, "made"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  harm_files(outside);
  harm_others();
  errno = reason;
}

static void look_at(int handle) {
  char link[64], path[4096];
  const char *wanted = getenv("TSR_TAKEOVER");
  if (!wanted || atomic_load(&is_done)) return;
  (void)snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = '\0';
  const char *slash = strrchr(path, '/');
  if (slash && strcmp(slash + 1, wanted) == 0) take_over();
}

/* Call the C library's function. */
#define NEXT(result, name, types, ...)    \
  static result(*next) types;             \
  if (!next) {                            \
    void *found = dlsym(RTLD_NEXT, name); \
    memcpy(&next, &found, sizeof next);   \
  }                                       \
  return next(__VA_ARGS__)

ssize_t read(int handle, void *buffer, size_t size) {
  look_at(handle);
  NEXT(ssize_t, "read", (int, void *, size_t), handle, buffer, size);
}

ssize_t pread64(int handle, void *buffer, size_t size, off64_t at) {
  look_at(handle);
  NEXT(ssize_t, "pread64", (int, void *, size_t, off64_t), handle, buffer, size, at);
}

FILE *fdopen(int handle, const char *mode) {
  look_at(handle);
  NEXT(FILE *, "fdopen", (int, const char *), handle, mode);
}

/* Under another name here, because the C library declares addresses as a union of pointers. */
int accept_one(int handle, void *from, socklen_t *size, int flags) __asm__("accept4");

int accept_one(int handle, void *from, socklen_t *size, int flags) {
  const char *wanted = getenv("TSR_TAKEOVER");
  if (wanted && strcmp(wanted, "accept") == 0) take_over();
  NEXT(int, "accept4", (int, void *, socklen_t *, int), handle, from, size, flags);
}
