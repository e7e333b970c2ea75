/* posix.h - functions of POSIX that Windows lacks or has with other rules, for the command, the Python package and
 * os_windows.c. The first two are compiled with this header in front of every file, so they are written for POSIX alone.
 *
 * Names of files are UTF-8, may have more than 260 characters, and may be written with / or \; "/dev/null" is the null
 * device. Files are binary. What Windows has no notion of does nothing (permissions) or is not found (links); there are
 * no signals but SIGINT and SIGTERM. The headers that Windows lacks are in include/, and include this one. */
#ifndef TSR_WINDOWS_POSIX_H
#define TSR_WINDOWS_POSIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* Before the names below are given another meaning. */
#include <direct.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* ---- names of files ---- */

enum { TSR_WINDOWS_PATH_UNITS = 32768 };
/* What the system's functions take for a path in UTF-8. False with errno set if it is too long or not UTF-8. */
bool tsr_windows_path(const char *path, wchar_t wide[TSR_WINDOWS_PATH_UNITS]);
/* The error of the last call of the system, as an errno. */
int tsr_windows_errno(void);

/* ---- files ---- */

struct tsr_windows_stat {
  uint64_t st_dev, st_ino; /* of all files alike, unlike in C libraries for Windows */
  unsigned st_mode;
  int64_t st_size, st_mtime;
  struct timespec st_mtim;
  struct timespec
      st_ctim; /* when anything about it changed; 0 where the file system does not know */
};
int tsr_windows_stat(const char *path, struct tsr_windows_stat *out);
int tsr_windows_lstat(const char *path, struct tsr_windows_stat *out);
int tsr_windows_fstat(int handle, struct tsr_windows_stat *out);
int tsr_windows_open(const char *path, int flags, ...);
FILE *tsr_windows_fopen(const char *path, const char *mode);
ssize_t tsr_windows_read(int handle, void *buffer, size_t size);
ssize_t tsr_windows_write(int handle, const void *data, size_t size);
ssize_t tsr_windows_pread(int handle, void *buffer, size_t size, int64_t offset);
ssize_t tsr_windows_pwrite(int handle, const void *data, size_t size, int64_t offset);
int tsr_windows_truncate(int handle, int64_t size);
int tsr_windows_fchmod(int handle, unsigned mode);
int tsr_windows_access(const char *path, int how);
int tsr_windows_mkdir(const char *path, unsigned mode);
int tsr_windows_rmdir(const char *path);
int tsr_windows_unlink(const char *path);
/* Replaces what is at `to`. */
int tsr_windows_rename(const char *from, const char *to);
/* With / between the folders. `room` is NULL: the caller frees the result. */
char *tsr_windows_realpath(const char *path, char *room);
char *tsr_windows_getcwd(char *room, size_t size);
ssize_t tsr_windows_readlink(const char *path, char *room, size_t size);
/* Whether a handle is a terminal; the null device is not. */
int tsr_windows_isatty(int handle);

struct tsr_windows_dirent {
  char d_name[780]; /* 260 units, each of at most three bytes */
};
typedef struct tsr_windows_dir tsr_windows_dir;
tsr_windows_dir *tsr_windows_opendir(const char *path);
struct tsr_windows_dirent *tsr_windows_readdir(tsr_windows_dir *folder);
int tsr_windows_closedir(tsr_windows_dir *folder);

/* ---- text ---- */

ssize_t tsr_windows_getline(char **line, size_t *room, FILE *stream);
char *tsr_windows_strndup(const char *text, size_t most);

/* ---- signals ---- */

typedef unsigned tsr_windows_sigset;
struct tsr_windows_sigaction {
  void (*sa_handler)(int);
  tsr_windows_sigset sa_mask;
  int sa_flags; /* handlers are reset when they are called, always */
};
int tsr_windows_sigaction(int number, const struct tsr_windows_sigaction *now,
                          struct tsr_windows_sigaction *before);
/* Signals are never blocked, and so never wait. */
int tsr_windows_sigmask(int how, const tsr_windows_sigset *set, tsr_windows_sigset *before);
int tsr_windows_sigpending(tsr_windows_sigset *set);
int tsr_windows_sigfillset(tsr_windows_sigset *set);
int tsr_windows_sigemptyset(tsr_windows_sigset *set);
int tsr_windows_sigaddset(tsr_windows_sigset *set, int number);
int tsr_windows_sigismember(const tsr_windows_sigset *set, int number);

/* ---- input and output ---- */

struct tsr_windows_pollfd {
  int fd;
  short events, revents;
};
/* Of one handle, without waiting: whether there is something to read. */
int tsr_windows_poll(struct tsr_windows_pollfd *files, size_t count, int wait_ms);

/* ---- libraries ---- */

void *tsr_windows_dlopen(const char *name, int how);
void *tsr_windows_dlsym(void *library, const char *name);
const char *tsr_windows_dlerror(void);

#define stat  tsr_windows_stat
#define lstat tsr_windows_lstat
#undef fstat
#define fstat  tsr_windows_fstat
#define open   tsr_windows_open
#define fopen  tsr_windows_fopen
#define read   tsr_windows_read
#define write  tsr_windows_write
#define pread  tsr_windows_pread
#define pwrite tsr_windows_pwrite
#undef ftruncate
#define ftruncate tsr_windows_truncate
#define fchmod    tsr_windows_fchmod
#define access    tsr_windows_access
#define mkdir     tsr_windows_mkdir
#define rmdir     tsr_windows_rmdir
#define unlink    tsr_windows_unlink
#define rename    tsr_windows_rename
#define realpath  tsr_windows_realpath
#define getcwd    tsr_windows_getcwd
#define readlink  tsr_windows_readlink
#define isatty    tsr_windows_isatty
#define dirent    tsr_windows_dirent
#define DIR       tsr_windows_dir
#define opendir   tsr_windows_opendir
#define readdir   tsr_windows_readdir
#define closedir  tsr_windows_closedir
#define getline   tsr_windows_getline
#define strndup   tsr_windows_strndup
#undef sigset_t
#define sigset_t  tsr_windows_sigset
#define sigaction tsr_windows_sigaction
#undef pthread_sigmask
#define pthread_sigmask      tsr_windows_sigmask
#define sigpending           tsr_windows_sigpending
#define sigfillset           tsr_windows_sigfillset
#define sigemptyset          tsr_windows_sigemptyset
#define sigaddset            tsr_windows_sigaddset
#define sigismember          tsr_windows_sigismember
#define pollfd               tsr_windows_pollfd
#define poll                 tsr_windows_poll
#define dlopen               tsr_windows_dlopen
#define dlsym                tsr_windows_dlsym
#define dlerror              tsr_windows_dlerror
#define localtime_r(at, out) (localtime_s((out), (at)) ? NULL : (out))
#define gmtime_r(at, out)    (gmtime_s((out), (at)) ? NULL : (out))

/* Numbers that no function of the system takes: sigaction() says that there is no such signal. */
enum {
  SIGHUP = 33,
  SIGQUIT,
  SIGALRM,
  SIGUSR1,
  SIGUSR2,
  SIGXCPU,
  SIGPIPE,
};
enum { SA_RESETHAND = 1, SA_RESTART = 2 };
#undef SIG_BLOCK
#undef SIG_UNBLOCK
#undef SIG_SETMASK
enum { SIG_BLOCK, SIG_UNBLOCK, SIG_SETMASK };
enum { POLLIN = 1 };
enum { RTLD_NOW = 1, RTLD_LOCAL = 2 };

#define O_CLOEXEC  _O_NOINHERIT
#define O_NONBLOCK 0
#define O_NOFOLLOW 0
#undef S_ISLNK
#define S_ISLNK(mode) 0
#ifndef S_ISFIFO
#define S_ISFIFO(mode) (((mode)&_S_IFMT) == _S_IFIFO)
#endif

#endif
