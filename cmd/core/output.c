/* output.c - output files that are either complete or absent.
 *
 * With -o the answer is written to a file without a name, in the folder of the target, which gets its
 * name in the end. So a reader of the target never sees half an answer, a full disk leaves the old
 * one, and a program that is killed leaves nothing. A link is followed first, as cp does: it stays a
 * link, and the file it names is replaced or created. What is not a regular file (a terminal,
 * /dev/null, a named pipe) is written to directly: it must not be replaced.
 *
 *   nameless ──► linked at the target                                  a new file
 *            └─► linked next to the target ──► renamed over the target an old one; link() replaces nothing
 *   named    ──► renamed over the target                               no such files here
 *
 * While a file has a temporary name, signals that would end the program wait. Between the link and
 * the rename that is no time. With a file system that cannot make nameless files it is the whole
 * time of writing, so each write looks for such a signal, removes the file and lets the signal in.
 *
 * Nothing is opened before the first byte, so a command that fails leaves no file. Every
 * failure is noticed at the latest by cli_output_finish: buffered bytes meet a full disk only
 * there.
 */
#define _XOPEN_SOURCE 700

#include "output.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tessera/unstable/params.h>
#include <unistd.h>

#include "message.h"
#include "system.h"

enum {
  LINKS_MOST = 40,
  NAMES_TRIED = 100,
  SIZE_TEXT_BYTES = 32,
  RANDOM_BYTES = 8,
  SIGNALS_MOST = 32 /* those that are held have smaller numbers */
};

static int fail(cli_output *output) {
  if (!output->error_number) output->error_number = cli_system_write_error(output->stream);
  return -1;
}

/* ---- Signals ---- */

/* Those that end a program which does nothing about them; ones that are ignored (nohup) do not. */
static void find_ending_signals(sigset_t *ending) {
  static const int signals[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                                SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU};
  struct sigaction action;
  sigemptyset(ending);
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
    if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
      sigaddset(ending, signals[i]);
}

static bool is_held(const cli_output *output, int signal) {
  return output->held >> signal & 1;
}

/* Other threads block them always (src/ground/base/os_threads_posix.c), so this thread's mask is enough. */
static void hold_signals(cli_output *output) {
  sigset_t ending, before;
  if (output->held) return;
  find_ending_signals(&ending);
  pthread_sigmask(SIG_BLOCK, &ending, &before);
  for (int i = 1; i < SIGNALS_MOST; i++)
    if (sigismember(&ending, i) == 1 && sigismember(&before, i) == 0)
      output->held |= UINT64_C(1) << i;
}

/* One that has waited ends the program here. */
static void release_signals(cli_output *output) {
  sigset_t held;
  sigemptyset(&held);
  for (int i = 1; i < SIGNALS_MOST; i++)
    if (is_held(output, i)) sigaddset(&held, i);
  output->held = 0;
  pthread_sigmask(SIG_UNBLOCK, &held, NULL);
}

static bool is_signal_waiting(const cli_output *output) {
  sigset_t waiting;
  if (!output->held || sigpending(&waiting) != 0) return false;
  for (int i = 1; i < SIGNALS_MOST; i++)
    if (is_held(output, i) && sigismember(&waiting, i) == 1) return true;
  return false;
}

/* ---- Names ---- */

/* `name` in the folder of `path`, or as it is if it begins at the root. */
static char *beside(const char *path, const char *name) {
  const char *slash = *name == '/' ? NULL : strrchr(path, '/');
  size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
  char *joined = malloc(folder + strlen(name) + 1);
  if (!joined) return NULL;
  memcpy(joined, path, folder);
  memcpy(joined + folder, name, strlen(name) + 1);
  return joined;
}

/* What the link at `path` names; NULL with errno EINVAL if there is a file, but no link. */
static char *read_link(const char *path) {
  char name[4096];
  ssize_t length = readlink(path, name, sizeof name);
  if (length < 0) return NULL;
  if ((size_t)length == sizeof name) {
    errno = ENAMETOOLONG;
    return NULL;
  }
  name[length] = '\0';
  return beside(path, name);
}

/* The path with its folder resolved; the file itself need not exist. */
static char *resolve_folder(const char *path) {
  const char *slash = strrchr(path, '/');
  char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
  char *real = folder ? realpath(folder, NULL) : NULL;
  const char *name = slash ? slash + 1 : path;
  char *resolved = real ? malloc(strlen(real) + strlen(name) + 2) : NULL;
  bool is_root = real && strcmp(real, "/") == 0;
  if (resolved) sprintf(resolved, "%s/%s", is_root ? "" : real, name);
  int reason = errno;
  free(folder);
  free(real);
  errno = reason;
  return resolved;
}

char *cli_output_target(const char *path) {
  char *real = realpath(path, NULL);
  if (real || errno != ENOENT) return real;
  char *at = strdup(path);
  for (int links = 0; at; links++) {
    char *next = links < LINKS_MOST ? read_link(at) : NULL;
    if (links == LINKS_MOST) errno = ELOOP;
    if (!next) break;
    free(at);
    at = next;
  }
  char *target = at && errno == ENOENT ? resolve_folder(at) : NULL;
  int reason = errno;
  free(at);
  errno = reason;
  return target;
}

/* Leave the folder of a full path. */
static void cut_to_folder(char *path) {
  char *slash = strrchr(path, '/');
  assert(slash); /* a target is a full path */
  slash[slash == path] = '\0';
}

char *cli_output_place(const char *path) {
  struct stat existing;
  if (stat(path, &existing) == 0 && !S_ISREG(existing.st_mode)) return realpath(path, NULL);
  char *target = cli_output_target(path);
  if (target) cut_to_folder(target);
  return target;
}

/* Make another temporary name next to the target at each call. False with errno set if that fails. */
static bool choose_name(cli_output *output) {
  static const char digits[] = "abcdefghijklmnopqrstuvwxyz012345";
  unsigned char random[RANDOM_BYTES];
  char *end = output->temporary + strlen(output->target);
  if (!cli_system_random(random, sizeof random)) {
    errno = EIO;
    return false;
  }
  memcpy(output->temporary, output->target, strlen(output->target));
  *end++ = '.';
  for (size_t i = 0; i < sizeof random; i++) *end++ = digits[random[i] % 32];
  *end = '\0';
  return true;
}

/* ---- Opening ---- */

/* A file without a name in the folder of the target; -1 where the system has none, and with errno
 * set to something else than 0 for another failure. */
static int open_nameless(const char *target) {
  assert(target);
  char *folder = strdup(target);
  if (!folder) return -1;
  cut_to_folder(folder);
  int handle = cli_system_passing_file(folder);
  int reason = errno;
  free(folder);
  errno = reason;
  return handle;
}

/* A file with a temporary name. Signals wait from here on. */
static int open_named(cli_output *output) {
  hold_signals(output);
  for (int i = 0; i < NAMES_TRIED && choose_name(output); i++) {
    int handle = open(output->temporary, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    output->is_named = handle >= 0;
    if (handle >= 0 || errno != EEXIST) return handle;
  }
  return -1;
}

/* Open an unfinished file, which gets the permissions `mode`; 0: those of any new file. */
static FILE *open_unfinished(cli_output *output, mode_t mode) {
  output->target =
      output->replaces_link ? resolve_folder(output->path) : cli_output_target(output->path);
  if (output->target) output->temporary = malloc(strlen(output->target) + RANDOM_BYTES + 2);
  if (!output->temporary) return NULL;
  int handle = open_nameless(output->target);
  if (handle < 0 && errno == 0) handle = open_named(output);
  if (handle < 0) return NULL;
  FILE *stream = mode == 0 || fchmod(handle, mode) == 0 ? fdopen(handle, "w") : NULL;
  int reason = errno;
  if (!stream) close(handle);
  errno = reason;
  return stream;
}

FILE *cli_output_stream(cli_output *output) {
  if (output->stream || output->error_number) return output->stream;
  struct stat existing;
  if (!output->path || strcmp(output->path, "-") == 0)
    output->stream = stdout;
  else if ((output->replaces_link ? lstat : stat)(output->path, &existing) != 0 ||
           (output->replaces_link && !S_ISREG(existing.st_mode)))
    output->stream = open_unfinished(output, 0);
  else if (S_ISREG(existing.st_mode))
    output->stream = open_unfinished(output, existing.st_mode & 0777);
  else
    output->stream = fopen(output->path, "w");
  if (!output->stream) fail(output);
  return output->stream;
}

/* ---- Writing ---- */

int cli_output_write(void *context, const char *data, size_t size_bytes) {
  cli_output *output = context;
  FILE *stream = cli_output_stream(output);
  if (!stream) return -1;
  if (is_signal_waiting(output)) {
    const char *path = output->path;
    cli_output_abandon(output); /* and the signal ends the program, unless somebody handles it */
    *output = (cli_output){.path = path, .error_number = EINTR};
    return -1;
  }
  errno = 0;
  if (fwrite(data, 1, size_bytes, stream) != size_bytes) return fail(output);
  output->size_bytes += size_bytes;
  if (output->progress)
    cli_progress_update(output->progress, output->size_bytes, output->expected_bytes);
  return 0;
}

int cli_output_flush(cli_output *output) {
  if (output->error_number) return -1;
  errno = 0;
  return output->stream && fflush(output->stream) != 0 ? fail(output) : 0;
}

/* ---- Finishing ---- */

/* Give the nameless file `handle` its name. */
static int link_in_place(cli_output *output, int handle) {
  if (cli_system_keep_file(handle, output->target) == 0) return 0;
  if (errno == EEXIST) hold_signals(output);
  for (int i = 0; errno == EEXIST && i < NAMES_TRIED && choose_name(output); i++) {
    output->is_named = cli_system_keep_file(handle, output->temporary) == 0;
    if (output->is_named) return rename(output->temporary, output->target);
  }
  return -1;
}

/* Close the stream, which may only now meet a full disk, and put a complete file in its place. */
static void close_stream(cli_output *output) {
  FILE *stream = output->stream;
  errno = 0;
  if (fflush(stream) != 0 || ferror(stream)) fail(output);
  if (output->is_synced && !output->error_number && cli_system_sync(fileno(stream)) != 0)
    fail(output);
  output->stream = NULL;
  bool is_nameless = output->target && !output->is_named;
  int handle = is_nameless ? dup(fileno(stream)) : -1;
  if (is_nameless && handle < 0) fail(output);
  if (fclose(stream) != 0) fail(output);
  if (!output->error_number && output->target &&
      (is_nameless ? link_in_place(output, handle) : rename(output->temporary, output->target)) !=
          0)
    fail(output);
  if (handle >= 0) close(handle);
}

/* Forget the unfinished file, of which nothing remains if the output failed. */
static void release(cli_output *output) {
  if (output->is_named && output->error_number) unlink(output->temporary);
  if (output->stream && output->stream != stdout) fclose(output->stream);
  free(output->temporary);
  free(output->target);
  output->temporary = output->target = NULL;
  output->stream = NULL;
  output->is_named = false;
  release_signals(output);
}

int cli_output_finish(cli_output *output) {
  if (output->error_number) return -1;
  if (!output->stream) return 0;
  struct stat written;
  bool is_file = output->target != NULL;
  if (is_file && cli_output_flush(output) == 0 && fstat(fileno(output->stream), &written) == 0)
    output->size_bytes = (uint64_t)written.st_size;
  close_stream(output);
  output->is_in_place = is_file && !output->error_number;
  release(output);
  return output->error_number ? -1 : 0;
}

void cli_output_abandon(cli_output *output) {
  if (!output->error_number && output->stream) output->error_number = ECANCELED;
  release(output);
}

int cli_output_try(const char *path) {
  cli_output output = {.path = path};
  struct stat existing;
  bool is_file = stat(path, &existing) != 0 || S_ISREG(existing.st_mode);
  if (strcmp(path, "-") == 0 || !is_file) return 0; /* opening a pipe would wait for its reader */
  (void)cli_output_stream(&output);
  int reason = output.error_number;
  cli_output_abandon(&output);
  errno = reason;
  return reason ? -1 : 0;
}

void cli_output_say(const cli_output *output, const char *command) {
  char size[SIZE_TEXT_BYTES];
  if (!output->is_in_place) return;
  cli_say(command, "wrote %s, %s", output->path,
          tsr_size_text(output->size_bytes, size, sizeof size));
}
