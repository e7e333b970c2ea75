/* posix.c - see posix.h. */
#define WIN32_LEAN_AND_MEAN
#include "windows/posix.h"

#include <stdarg.h>
#include <windows.h>

/* The C library's own, from here on. */
#undef open
#undef read
#undef write
#undef fopen
#undef isatty

enum { LONG_PATH = 240, LARGEST_TRANSFER = 1 << 30 };
/* Seconds from 1601, where Windows begins to count, to 1970; and how many of its units a second has. */
static const int64_t EPOCH_S = 11644473600, UNITS_PER_S = 10000000;

/* ---- names of files ---- */

int tsr__windows_errno(void) {
  switch (GetLastError()) {
  case ERROR_FILE_NOT_FOUND:
  case ERROR_PATH_NOT_FOUND:
  case ERROR_INVALID_NAME:
  case ERROR_INVALID_DRIVE:
  case ERROR_BAD_NETPATH:
  case ERROR_BAD_NET_NAME: return ENOENT;
  case ERROR_ACCESS_DENIED:
  case ERROR_SHARING_VIOLATION:
  case ERROR_LOCK_VIOLATION:
  case ERROR_USER_MAPPED_FILE: return EACCES;
  case ERROR_NOT_ENOUGH_MEMORY:
  case ERROR_OUTOFMEMORY: return ENOMEM;
  case ERROR_FILE_EXISTS:
  case ERROR_ALREADY_EXISTS: return EEXIST;
  case ERROR_DIR_NOT_EMPTY: return ENOTEMPTY;
  case ERROR_DIRECTORY: return ENOTDIR;
  case ERROR_DISK_FULL:
  case ERROR_HANDLE_DISK_FULL: return ENOSPC;
  case ERROR_BROKEN_PIPE:
  case ERROR_NO_DATA: return EPIPE;
  case ERROR_FILENAME_EXCED_RANGE: return ENAMETOOLONG;
  case ERROR_TOO_MANY_OPEN_FILES: return EMFILE;
  default: return EIO;
  }
}

static int fail(void) {
  errno = tsr__windows_errno();
  return -1;
}

/* Long paths are passed as \\?\C:\..., in which the system resolves nothing, so it is resolved before. */
static bool make_long(wchar_t wide[TSR__WINDOWS_PATH_UNITS]) {
  static const wchar_t local[] = L"\\\\?\\", network[] = L"\\\\?\\UNC";
  wchar_t full[TSR__WINDOWS_PATH_UNITS];
  DWORD length = GetFullPathNameW(wide, TSR__WINDOWS_PATH_UNITS, full, NULL);
  bool is_network = full[0] == L'\\' && full[1] == L'\\';
  const wchar_t *prefix = is_network ? network : local, *rest = is_network ? full + 1 : full;
  size_t before = wcslen(prefix);
  if (!length || length + before + 1 > TSR__WINDOWS_PATH_UNITS) {
    errno = ENAMETOOLONG;
    return false;
  }
  memcpy(wide, prefix, before * sizeof *wide);
  memcpy(wide + before, rest, (wcslen(rest) + 1) * sizeof *wide);
  return true;
}

bool tsr__windows_path(const char *path, wchar_t wide[TSR__WINDOWS_PATH_UNITS]) {
  if (strcmp(path, "/dev/null") == 0) path = "NUL";
  int units =
      MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, TSR__WINDOWS_PATH_UNITS);
  if (!units) {
    errno = GetLastError() == ERROR_INSUFFICIENT_BUFFER ? ENAMETOOLONG : ENOENT;
    return false;
  }
  for (wchar_t *at = wide; *at; at++)
    if (*at == L'/') *at = L'\\';
  if (!*wide) {
    errno = ENOENT;
    return false;
  }
  return units < LONG_PATH || wcsncmp(wide, L"\\\\?\\", 4) == 0 || make_long(wide);
}

/* ---- what a file is ---- */

static struct timespec time_of(int64_t units) {
  struct timespec time = {.tv_sec = units / UNITS_PER_S - EPOCH_S,
                          .tv_nsec = (long)(units % UNITS_PER_S * 100)};
  return units ? time : (struct timespec){0};
}

static int64_t units_of(FILETIME time) {
  return (int64_t)(((uint64_t)time.dwHighDateTime << 32) | time.dwLowDateTime);
}

/* What is no file on a disk has a mode, and nothing else. Neither has a file that another system has opened for this program:
 * Wine cannot examine those, and they are read like pipes. */
static int examine(HANDLE handle, struct tsr__windows_stat *out) {
  BY_HANDLE_FILE_INFORMATION about;
  FILE_BASIC_INFO basic;
  DWORD kind = GetFileType(handle);
  *out = (struct tsr__windows_stat){.st_mode = kind == FILE_TYPE_PIPE ? _S_IFIFO : _S_IFCHR};
  if (kind != FILE_TYPE_DISK) return 0;
  if (!GetFileInformationByHandle(handle, &about)) {
    out->st_mode = _S_IFIFO;
    return 0;
  }
  bool is_folder = about.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY;
  unsigned rights = about.dwFileAttributes & FILE_ATTRIBUTE_READONLY ? 0444 : 0666;
  out->st_mode = is_folder ? _S_IFDIR | 0777 : _S_IFREG | rights;
  out->st_dev = about.dwVolumeSerialNumber;
  out->st_ino = ((uint64_t)about.nFileIndexHigh << 32) | about.nFileIndexLow;
  out->st_size = (int64_t)(((uint64_t)about.nFileSizeHigh << 32) | about.nFileSizeLow);
  out->st_mtim = time_of(units_of(about.ftLastWriteTime));
  out->st_mtime = out->st_mtim.tv_sec;
  if (GetFileInformationByHandleEx(handle, FileBasicInfo, &basic, sizeof basic))
    out->st_ctim = time_of(basic.ChangeTime.QuadPart);
  return 0;
}

int tsr__windows_stat(const char *path, struct tsr__windows_stat *out) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  if (!tsr__windows_path(path, wide)) return -1;
  HANDLE handle = CreateFileW(wide, FILE_READ_ATTRIBUTES,
                              FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                              OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
  if (handle == INVALID_HANDLE_VALUE) return fail();
  int status = examine(handle, out);
  CloseHandle(handle);
  return status;
}

int tsr__windows_lstat(const char *path, struct tsr__windows_stat *out) {
  return tsr__windows_stat(path, out);
}

int tsr__windows_fstat(int handle, struct tsr__windows_stat *out) {
  intptr_t of_system = _get_osfhandle(handle);
  if (of_system < 0) {
    errno = EBADF;
    return -1;
  }
  return examine((HANDLE)of_system, out);
}

int tsr__windows_access(const char *path, int how) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  if (!tsr__windows_path(path, wide)) return -1;
  DWORD attributes = GetFileAttributesW(wide);
  if (attributes == INVALID_FILE_ATTRIBUTES) return fail();
  bool is_kept = (how & W_OK) && (attributes & FILE_ATTRIBUTE_READONLY) &&
                 !(attributes & FILE_ATTRIBUTE_DIRECTORY);
  if (is_kept) errno = EACCES;
  return is_kept ? -1 : 0;
}

/* The null device is a terminal to the C library. */
int tsr__windows_isatty(int handle) {
  DWORD mode;
  intptr_t of_system = _get_osfhandle(handle);
  return of_system >= 0 && GetConsoleMode((HANDLE)of_system, &mode);
}

/* ---- opening, reading and writing ---- */

static bool is_folder(const wchar_t *wide) {
  DWORD attributes = GetFileAttributesW(wide);
  return attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY);
}

/* A folder can be opened for reading in POSIX, and then is found to be one. */
static int open_folder(const wchar_t *wide) {
  if (!is_folder(wide)) return -1;
  HANDLE handle = CreateFileW(wide, FILE_READ_ATTRIBUTES,
                              FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                              OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
  return handle == INVALID_HANDLE_VALUE ? -1
                                        : _open_osfhandle((intptr_t)handle, _O_RDONLY | _O_BINARY);
}

/* A file that is read may be replaced and removed at the same time, as elsewhere; the C library's open() does not allow that. */
static int open_to_read(const wchar_t *wide) {
  HANDLE handle =
      CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                  OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
  if (handle != INVALID_HANDLE_VALUE)
    return _open_osfhandle((intptr_t)handle, _O_RDONLY | _O_BINARY);
  int reason = tsr__windows_errno(), folder = open_folder(wide);
  errno = reason;
  return folder;
}

int tsr__windows_open(const char *path, int flags, ...) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  if (!tsr__windows_path(path, wide)) return -1;
  if (!(flags & (_O_WRONLY | _O_RDWR | _O_CREAT))) return open_to_read(wide);
  int handle = _wopen(wide, flags | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE);
  if (handle < 0 && errno == EACCES && is_folder(wide)) errno = EISDIR;
  return handle;
}

FILE *tsr__windows_fopen(const char *path, const char *mode) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS], wide_mode[8];
  size_t length = 0;
  if (!tsr__windows_path(path, wide)) return NULL;
  for (; mode[length] && length < 6; length++) wide_mode[length] = (wchar_t)mode[length];
  if (!strchr(mode, 'b')) wide_mode[length++] = L'b';
  wide_mode[length] = L'\0';
  FILE *file = _wfopen(wide, wide_mode);
  if (!file && errno == EACCES && is_folder(wide)) errno = EISDIR;
  return file;
}

static unsigned piece(size_t size) {
  return size < LARGEST_TRANSFER ? (unsigned)size : LARGEST_TRANSFER;
}

ssize_t tsr__windows_read(int handle, void *buffer, size_t size) {
  (void)_setmode(handle, _O_BINARY); /* standard input is not when a program starts */
  return _read(handle, buffer, piece(size));
}

ssize_t tsr__windows_write(int handle, const void *data, size_t size) {
  return _write(handle, data, piece(size));
}

/* Of a file that was opened for waiting, the offset is that of the call; it moves the file's own, which nobody uses. */
static OVERLAPPED from_offset(int64_t offset) {
  OVERLAPPED at = {0};
  at.Offset = (DWORD)(uint64_t)offset;
  at.OffsetHigh = (DWORD)((uint64_t)offset >> 32);
  return at;
}

ssize_t tsr__windows_pread(int handle, void *buffer, size_t size, int64_t offset) {
  OVERLAPPED at = from_offset(offset);
  DWORD got = 0;
  if (ReadFile((HANDLE)_get_osfhandle(handle), buffer, piece(size), &got, &at)) return got;
  return GetLastError() == ERROR_HANDLE_EOF ? 0 : fail();
}

ssize_t tsr__windows_pwrite(int handle, const void *data, size_t size, int64_t offset) {
  OVERLAPPED at = from_offset(offset);
  DWORD put = 0;
  return WriteFile((HANDLE)_get_osfhandle(handle), data, piece(size), &put, &at) ? (ssize_t)put
                                                                                 : fail();
}

int tsr__windows_truncate(int handle, int64_t size) {
  int reason = _chsize_s(handle, size);
  errno = reason;
  return reason ? -1 : 0;
}

int tsr__windows_fchmod(int handle, unsigned mode) {
  (void)handle, (void)mode;
  return 0;
}

/* ---- names in folders ---- */

int tsr__windows_mkdir(const char *path, unsigned mode) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  (void)mode;
  if (!tsr__windows_path(path, wide)) return -1;
  return CreateDirectoryW(wide, NULL) ? 0 : fail();
}

int tsr__windows_rmdir(const char *path) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  if (!tsr__windows_path(path, wide)) return -1;
  return RemoveDirectoryW(wide) ? 0 : fail();
}

int tsr__windows_unlink(const char *path) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  if (!tsr__windows_path(path, wide)) return -1;
  return DeleteFileW(wide) ? 0 : fail();
}

/* Replace a file that is open for reading: it is renamed, and goes with its last handle. */
static bool replace_open(const wchar_t *from, const wchar_t *to) {
  static const wchar_t ending[] = L".replaced";
  wchar_t aside[TSR__WINDOWS_PATH_UNITS];
  if (wcslen(to) + sizeof ending / sizeof *ending > TSR__WINDOWS_PATH_UNITS) return false;
  wcscat(wcscpy(aside, to), ending);
  if (!MoveFileExW(to, aside, MOVEFILE_REPLACE_EXISTING)) return false;
  bool is_done = MoveFileExW(from, to, 0);
  if (is_done)
    (void)DeleteFileW(aside);
  else
    (void)MoveFileExW(aside, to, 0);
  return is_done;
}

int tsr__windows_rename(const char *from, const char *to) {
  wchar_t before[TSR__WINDOWS_PATH_UNITS], after[TSR__WINDOWS_PATH_UNITS];
  if (!tsr__windows_path(from, before) || !tsr__windows_path(to, after)) return -1;
  if (MoveFileExW(before, after, MOVEFILE_REPLACE_EXISTING)) return 0;
  int reason = tsr__windows_errno();
  if (reason == EACCES && replace_open(before, after)) return 0;
  errno = reason;
  return -1;
}

/* UTF-8 of a path, with / between the folders and without the mark of long ones. The caller frees it. */
static char *narrow_path(const wchar_t *wide) {
  bool is_network = wcsncmp(wide, L"\\\\?\\UNC\\", 8) == 0;
  if (is_network)
    wide += 7;
  else if (wcsncmp(wide, L"\\\\?\\", 4) == 0)
    wide += 4;
  int size = WideCharToMultiByte(CP_UTF8, 0, wide, -1, NULL, 0, NULL, NULL);
  char *text = size > 0 ? malloc((size_t)size + 1) : NULL;
  if (!text) {
    errno = ENOMEM;
    return NULL;
  }
  (void)WideCharToMultiByte(CP_UTF8, 0, wide, -1, text + is_network, size, NULL, NULL);
  if (is_network) text[0] = '/';
  for (char *at = text; *at; at++)
    if (*at == '\\') *at = '/';
  return text;
}

char *tsr__windows_realpath(const char *path, char *room) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  (void)room;
  if (!tsr__windows_path(path, wide)) return NULL;
  HANDLE handle = CreateFileW(wide, 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                              OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
  if (handle == INVALID_HANDLE_VALUE) {
    (void)fail();
    return NULL;
  }
  DWORD length = GetFinalPathNameByHandleW(handle, wide, TSR__WINDOWS_PATH_UNITS, 0);
  CloseHandle(handle);
  if (!length || length >= TSR__WINDOWS_PATH_UNITS) {
    (void)fail();
    return NULL;
  }
  return narrow_path(wide);
}

char *tsr__windows_getcwd(char *room, size_t size) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  DWORD length = GetCurrentDirectoryW(TSR__WINDOWS_PATH_UNITS, wide);
  char *text = length && length < TSR__WINDOWS_PATH_UNITS ? narrow_path(wide) : NULL;
  bool fits = text && strlen(text) < size;
  if (fits) memcpy(room, text, strlen(text) + 1);
  free(text);
  if (!fits) errno = ERANGE;
  return fits ? room : NULL;
}

ssize_t tsr__windows_readlink(const char *path, char *room, size_t size) {
  struct tsr__windows_stat found;
  (void)room, (void)size;
  if (tsr__windows_stat(path, &found) == 0) errno = EINVAL;
  return -1;
}

struct tsr__windows_dir {
  HANDLE search;
  WIN32_FIND_DATAW found;
  bool is_first;
  struct tsr__windows_dirent entry;
};

tsr__windows_dir *tsr__windows_opendir(const char *path) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  if (!tsr__windows_path(path, wide)) return NULL;
  size_t length = wcslen(wide);
  DWORD attributes = GetFileAttributesW(wide);
  if (attributes == INVALID_FILE_ATTRIBUTES) {
    (void)fail();
    return NULL;
  }
  if (!(attributes & FILE_ATTRIBUTE_DIRECTORY) || length + 3 > TSR__WINDOWS_PATH_UNITS) {
    errno = ENOTDIR;
    return NULL;
  }
  wcscpy(wide + length, wide[length - 1] == L'\\' ? L"*" : L"\\*");
  tsr__windows_dir *folder = calloc(1, sizeof *folder);
  if (!folder) return NULL;
  folder->search = FindFirstFileW(wide, &folder->found);
  folder->is_first = true;
  if (folder->search != INVALID_HANDLE_VALUE) return folder;
  (void)fail();
  free(folder);
  return NULL;
}

struct tsr__windows_dirent *tsr__windows_readdir(tsr__windows_dir *folder) {
  if (!folder->is_first && !FindNextFileW(folder->search, &folder->found)) {
    if (GetLastError() != ERROR_NO_MORE_FILES) (void)fail();
    return NULL;
  }
  folder->is_first = false;
  (void)WideCharToMultiByte(CP_UTF8, 0, folder->found.cFileName, -1, folder->entry.d_name,
                            (int)sizeof folder->entry.d_name, NULL, NULL);
  return &folder->entry;
}

int tsr__windows_closedir(tsr__windows_dir *folder) {
  FindClose(folder->search);
  free(folder);
  return 0;
}

/* ---- text ---- */

ssize_t tsr__windows_getline(char **line, size_t *room, FILE *stream) {
  size_t size = 0;
  int byte = 0;
  while (byte != '\n' && (byte = getc(stream)) != EOF) {
    if (size + 2 > *room) {
      size_t larger = *room ? 2 * *room : 128;
      char *moved = realloc(*line, larger);
      if (!moved) return -1;
      *line = moved;
      *room = larger;
    }
    (*line)[size++] = (char)byte;
  }
  if (!size) return -1;
  (*line)[size] = '\0';
  return (ssize_t)size;
}

char *tsr__windows_strndup(const char *text, size_t most) {
  size_t size = strnlen(text, most);
  char *copy = malloc(size + 1);
  if (!copy) return NULL;
  memcpy(copy, text, size);
  copy[size] = '\0';
  return copy;
}

/* ---- signals ---- */

int tsr__windows_sigaction(int number, const struct tsr__windows_sigaction *now,
                           struct tsr__windows_sigaction *before) {
  if (number != SIGINT && number != SIGTERM) {
    if (before) *before = (struct tsr__windows_sigaction){.sa_handler = SIG_IGN};
    return 0;
  }
  void (*was)(int) = signal(number, now ? now->sa_handler : SIG_DFL);
  if (was == SIG_ERR) return -1;
  if (!now) (void)signal(number, was);
  if (before) *before = (struct tsr__windows_sigaction){.sa_handler = was};
  return 0;
}

int tsr__windows_sigmask(int how, const tsr__windows_sigset *set, tsr__windows_sigset *before) {
  (void)how, (void)set;
  if (before) *before = ~0u;
  return 0;
}

int tsr__windows_sigpending(tsr__windows_sigset *set) {
  *set = 0;
  return 0;
}

int tsr__windows_sigfillset(tsr__windows_sigset *set) {
  *set = ~0u;
  return 0;
}

int tsr__windows_sigemptyset(tsr__windows_sigset *set) {
  *set = 0;
  return 0;
}

int tsr__windows_sigaddset(tsr__windows_sigset *set, int number) {
  if (number < 32) *set |= 1u << number;
  return 0;
}

int tsr__windows_sigismember(const tsr__windows_sigset *set, int number) {
  return number < 32 && (*set >> number & 1);
}

/* ---- input and output ---- */

int tsr__windows_poll(struct tsr__windows_pollfd *files, size_t count, int wait_ms) {
  (void)count, (void)wait_ms;
  HANDLE handle = (HANDLE)_get_osfhandle(files->fd);
  DWORD there = 1; /* in a file, and at the end of a pipe that was closed */
  if (GetFileType(handle) == FILE_TYPE_PIPE && !PeekNamedPipe(handle, NULL, 0, NULL, &there, NULL))
    there = 1;
  if (GetFileType(handle) == FILE_TYPE_CHAR && WaitForSingleObject(handle, 0) != WAIT_OBJECT_0)
    there = 0;
  files->revents = there ? POLLIN : 0;
  return there ? 1 : 0;
}

/* ---- libraries ---- */

void *tsr__windows_dlopen(const char *name, int how) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  (void)how;
  return tsr__windows_path(name, wide) ? (void *)LoadLibraryW(wide) : NULL;
}

void *tsr__windows_dlsym(void *library, const char *name) {
  FARPROC found = GetProcAddress((HMODULE)library, name);
  void *address;
  memcpy(&address, &found, sizeof address); /* no cast from functions to data */
  return address;
}

const char *tsr__windows_dlerror(void) {
  return "the library was not found";
}
