/* posix.h - functions of POSIX that Windows lacks or has with other rules, for the command, the Python package and
 * os_files.c. The first two are compiled with this header in front of every file, so they are written for POSIX alone.
 *
 * Names of files are UTF-8, may have more than 260 characters, and may be written with / or \; "/dev/null" is the null
 * device. Files are binary. What Windows has no notion of does nothing (permissions) or is not found (links); there are
 * no signals but SIGINT and SIGTERM. The headers that Windows lacks are in include/, and include this one. */
#ifndef TSR_WINDOWS_POSIX_H
#define TSR_WINDOWS_POSIX_H

#define _CRT_RAND_S /* rand_s */
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

enum { TSR__WINDOWS_PATH_UNITS = 32768 };
/* What the system's functions take for a path in UTF-8. False with errno set if it is too long or not UTF-8. */
bool tsr__windows_path(const char *path, wchar_t wide[TSR__WINDOWS_PATH_UNITS]);
/* The error of the last call of the system, as an errno. */
int tsr__windows_errno(void);

/* ---- files ---- */

struct tsr__windows_stat {
  uint64_t st_dev, st_ino; /* of all files alike, unlike in C libraries for Windows */
  unsigned st_mode;
  int64_t st_size, st_mtime;
  struct timespec st_mtim;
  struct timespec
      st_ctim; /* when anything about it changed; 0 where the file system does not know */
};
int tsr__windows_stat(const char *path, struct tsr__windows_stat *out);
int tsr__windows_lstat(const char *path, struct tsr__windows_stat *out);
int tsr__windows_fstat(int handle, struct tsr__windows_stat *out);
int tsr__windows_open(const char *path, int flags, ...);
FILE *tsr__windows_fopen(const char *path, const char *mode);
ssize_t tsr__windows_read(int handle, void *buffer, size_t size);
ssize_t tsr__windows_write(int handle, const void *data, size_t size);
ssize_t tsr__windows_pread(int handle, void *buffer, size_t size, int64_t offset);
ssize_t tsr__windows_pwrite(int handle, const void *data, size_t size, int64_t offset);
int tsr__windows_truncate(int handle, int64_t size);
int tsr__windows_fchmod(int handle, unsigned mode);
int tsr__windows_access(const char *path, int how);
int tsr__windows_mkdir(const char *path, unsigned mode);
int tsr__windows_rmdir(const char *path);
int tsr__windows_unlink(const char *path);
/* Replaces what is at `to`. */
int tsr__windows_rename(const char *from, const char *to);
/* With / between the folders. `room` is NULL: the caller frees the result. */
char *tsr__windows_realpath(const char *path, char *room);
char *tsr__windows_getcwd(char *room, size_t size);
ssize_t tsr__windows_readlink(const char *path, char *room, size_t size);
/* Whether a handle is a terminal; the null device is not. */
int tsr__windows_isatty(int handle);

struct tsr__windows_dirent {
  char d_name[780]; /* 260 units, each of at most three bytes */
};
typedef struct tsr__windows_dir tsr__windows_dir;
tsr__windows_dir *tsr__windows_opendir(const char *path);
struct tsr__windows_dirent *tsr__windows_readdir(tsr__windows_dir *folder);
int tsr__windows_closedir(tsr__windows_dir *folder);

/* ---- text ---- */

ssize_t tsr__windows_getline(char **line, size_t *room, FILE *stream);
char *tsr__windows_strndup(const char *text, size_t most);

/* ---- signals ---- */

typedef unsigned tsr__windows_sigset;
struct tsr__windows_sigaction {
  void (*sa_handler)(int);
  tsr__windows_sigset sa_mask;
  int sa_flags; /* handlers are reset when they are called, always */
};
int tsr__windows_sigaction(int number, const struct tsr__windows_sigaction *now,
                           struct tsr__windows_sigaction *before);
/* Signals are never blocked, and so never wait. */
int tsr__windows_sigmask(int how, const tsr__windows_sigset *set, tsr__windows_sigset *before);
int tsr__windows_sigpending(tsr__windows_sigset *set);
int tsr__windows_sigfillset(tsr__windows_sigset *set);
int tsr__windows_sigemptyset(tsr__windows_sigset *set);
int tsr__windows_sigaddset(tsr__windows_sigset *set, int number);
int tsr__windows_sigismember(const tsr__windows_sigset *set, int number);

/* ---- input and output ---- */

struct tsr__windows_pollfd {
  int fd;
  short events, revents;
};
/* Of one handle, without waiting: whether there is something to read. */
int tsr__windows_poll(struct tsr__windows_pollfd *files, size_t count, int wait_ms);

/* ---- libraries ---- */

void *tsr__windows_dlopen(const char *name, int how);
void *tsr__windows_dlsym(void *library, const char *name);
const char *tsr__windows_dlerror(void);

#define stat  tsr__windows_stat
#define lstat tsr__windows_lstat
#undef fstat
#define fstat  tsr__windows_fstat
#define open   tsr__windows_open
#define fopen  tsr__windows_fopen
#define read   tsr__windows_read
#define write  tsr__windows_write
#define pread  tsr__windows_pread
#define pwrite tsr__windows_pwrite
#undef ftruncate
#define ftruncate tsr__windows_truncate
#define fchmod    tsr__windows_fchmod
#define access    tsr__windows_access
#define mkdir     tsr__windows_mkdir
#define rmdir     tsr__windows_rmdir
#define unlink    tsr__windows_unlink
#define rename    tsr__windows_rename
#define realpath  tsr__windows_realpath
#define getcwd    tsr__windows_getcwd
#define readlink  tsr__windows_readlink
#define isatty    tsr__windows_isatty
#define dirent    tsr__windows_dirent
#define DIR       tsr__windows_dir
#define opendir   tsr__windows_opendir
#define readdir   tsr__windows_readdir
#define closedir  tsr__windows_closedir
#define getline   tsr__windows_getline
#define strndup   tsr__windows_strndup
#undef sigset_t
#define sigset_t  tsr__windows_sigset
#define sigaction tsr__windows_sigaction
#undef pthread_sigmask
#define pthread_sigmask                tsr__windows_sigmask
#define sigpending                     tsr__windows_sigpending
#define sigfillset                     tsr__windows_sigfillset
#define sigemptyset                    tsr__windows_sigemptyset
#define sigaddset                      tsr__windows_sigaddset
#define sigismember                    tsr__windows_sigismember
#define pollfd                         tsr__windows_pollfd
#define poll                           tsr__windows_poll
#define dlopen                         tsr__windows_dlopen
#define dlsym                          tsr__windows_dlsym
#define dlerror                        tsr__windows_dlerror
#define localtime_r(at, out)           (localtime_s((out), (at)) ? NULL : (out))
#define gmtime_r(at, out)              (gmtime_s((out), (at)) ? NULL : (out))
#define strerror_r(number, room, size) strerror_s((room), (size), (number))

/* Numbers that no function of the system takes: signals that never come, which sigaction() says are ignored. */
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
