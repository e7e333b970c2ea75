/* system_windows.c - system.h and the streams of output.h, for Windows.
 *
 * A file that is gone with its handle is one with a name that nobody else may open, marked to be removed when it is closed. To
 * keep it, the mark is taken away and the file renamed, both through the handle. */
#define WIN32_LEAN_AND_MEAN

#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <windows.h>

#include <shellapi.h>

#include "output.h"

enum { NAMES_TRIED = 100 };

/* ---- the process ---- */

/* Messages and tables are UTF-8, and colours are sequences. What the console was set to is set again in the end, because it is
 * the shell's too. */
static UINT pages_before[2];
static DWORD mode_before;

static void restore_console(void) {
  (void)SetConsoleOutputCP(pages_before[0]);
  (void)SetConsoleCP(pages_before[1]);
  (void)SetConsoleMode(GetStdHandle(STD_OUTPUT_HANDLE), mode_before);
}

static void prepare_console(void) {
  HANDLE out = GetStdHandle(STD_OUTPUT_HANDLE);
  pages_before[0] = GetConsoleOutputCP();
  pages_before[1] = GetConsoleCP();
  if (!pages_before[0]) return; /* no console */
  (void)SetConsoleOutputCP(CP_UTF8);
  (void)SetConsoleCP(CP_UTF8);
  if (GetConsoleMode(out, &mode_before))
    (void)SetConsoleMode(out, mode_before | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
  (void)atexit(restore_console);
}

/* A word with backslashes whose folder is there is a path: with slashes instead, it is one to all commands. In an option
 * it begins after "=". */
static void use_slashes(char *word) {
  char *path = word[0] == '-' && strchr(word, '=') ? strchr(word, '=') + 1 : word;
  char *last = strrchr(path, '\\');
  if (!last) return;
  char *slash = strrchr(path, '/');
  if (slash > last) last = slash;
  char end = *last;
  *last = '\0';
  bool is_path = last == path || (path[1] == ':' && last == path + 2) || access(path, F_OK) == 0;
  *last = end;
  if (is_path)
    for (char *at = path; *at; at++)
      if (*at == '\\') *at = '/';
}

/* The words of the command line in UTF-8; the C library's are in the user's code page. */
static char **read_words(int *count) {
  wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), count);
  char **words = wide ? calloc((size_t)*count + 1, sizeof *words) : NULL;
  for (int i = 0; words && i < *count; i++) {
    int size = WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, NULL, 0, NULL, NULL);
    words[i] = malloc(size > 0 ? (size_t)size : 1);
    if (!words[i]) return NULL;
    words[i][0] = '\0';
    (void)WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, words[i], size, NULL, NULL);
    use_slashes(words[i]);
  }
  if (wide) LocalFree((HLOCAL)wide);
  return words;
}

/* "tessera.exe" and "C:/bin/tessera.exe" are tessera: a command may be known by its name. */
static void cut_ending(char *name) {
  size_t length = strlen(name);
  if (length > 4 && _stricmp(name + length - 4, ".exe") == 0) name[length - 4] = '\0';
}

void cli_system_prepare(int *argc, char ***argv) {
  int count = 0;
  char **words = read_words(&count);
  if (words) {
    *argc = count;
    *argv = words;
    for (char *at = words[0]; *at; at++)
      if (*at == '\\') *at = '/';
    cut_ending(words[0]);
  }
  for (int handle = STDIN_FILENO; handle <= STDERR_FILENO; handle++)
    (void)_setmode(handle, _O_BINARY);
  prepare_console();
}

bool cli_system_random(void *out, size_t size_bytes) {
  unsigned char *bytes = out;
  for (size_t i = 0; i < size_bytes; i++) {
    unsigned number;
    if (rand_s(&number)) return false;
    bytes[i] = (unsigned char)(number >> 8);
  }
  return true;
}

uint32_t cli_system_columns(void) {
  CONSOLE_SCREEN_BUFFER_INFO about;
  if (!GetConsoleScreenBufferInfo(GetStdHandle(STD_OUTPUT_HANDLE), &about)) return 0;
  return (uint32_t)(about.srWindow.Right - about.srWindow.Left + 1);
}

bool cli_system_program(char *path, size_t room_bytes) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  DWORD length = GetModuleFileNameW(NULL, wide, TSR__WINDOWS_PATH_UNITS);
  if (length == 0 || length >= TSR__WINDOWS_PATH_UNITS ||
      !WideCharToMultiByte(CP_UTF8, 0, wide, -1, path, (int)room_bytes, NULL, NULL))
    return false;
  for (char *at = path; *at; at++)
    if (*at == '\\') *at = '/';
  return true;
}

void cli_system_end_with_parent(void) {}

/* ---- Files that are gone with their handle ---- */

static bool mark(HANDLE file, bool is_removed) {
  FILE_DISPOSITION_INFO about = {.DeleteFile = is_removed};
  return SetFileInformationByHandle(file, FileDispositionInfo, &about, sizeof about);
}

int cli_system_passing_file(const char *folder) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  char path[4096];
  uint64_t number;
  for (int i = 0; i < NAMES_TRIED && cli_system_random(&number, sizeof number); i++) {
    int length =
        snprintf(path, sizeof path, "%s/.tessera-%016llx", folder, (unsigned long long)number);
    if (length < 0 || (size_t)length >= sizeof path) {
      errno = ENAMETOOLONG;
      return -1;
    }
    if (!tsr__windows_path(path, wide)) return -1;
    HANDLE file = CreateFileW(wide, GENERIC_READ | GENERIC_WRITE | DELETE, FILE_SHARE_DELETE, NULL,
                              CREATE_NEW, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file != INVALID_HANDLE_VALUE) {
      (void)mark(file, true);
      return _open_osfhandle((intptr_t)file, _O_RDWR | _O_BINARY);
    }
    errno = tsr__windows_errno();
    if (errno != EEXIST) return -1;
  }
  return -1;
}

int cli_system_keep_file(int handle, const char *path) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  HANDLE file = (HANDLE)_get_osfhandle(handle);
  if (!tsr__windows_path(path, wide)) return -1;
  DWORD name_bytes = (DWORD)(wcslen(wide) * sizeof *wide);
  size_t size = offsetof(FILE_RENAME_INFO, FileName) + name_bytes + sizeof *wide;
  FILE_RENAME_INFO *about = calloc(1, size);
  if (!about) return -1;
  about->ReplaceIfExists = FALSE;
  about->FileNameLength = name_bytes;
  memcpy(about->FileName, wide, name_bytes);
  bool is_kept =
      mark(file, false) && SetFileInformationByHandle(file, FileRenameInfo, about, (DWORD)size);
  if (!is_kept) {
    errno = tsr__windows_errno();
    (void)mark(file, true);
  }
  free(about);
  return is_kept ? 0 : -1;
}

/* The C library takes a pipe without a reader for a mistake of the caller. */
int cli_system_write_error(FILE *stream) {
  int reason = errno ? errno : EIO;
  struct stat status;
  bool is_pipe = stream && fstat(_fileno(stream), &status) == 0 && S_ISFIFO(status.st_mode);
  return reason == EINVAL && is_pipe ? EPIPE : reason;
}

/* ---- Locks ---- */

int cli_system_sync(int handle) {
  return _commit(handle) == 0 || errno == EBADF || errno == EINVAL ? 0 : -1;
}

bool cli_system_free_bytes(const char *folder, uint64_t *out) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  ULARGE_INTEGER free_bytes;
  if (!tsr__windows_path(folder, wide) || !GetDiskFreeSpaceExW(wide, &free_bytes, NULL, NULL))
    return false;
  *out = free_bytes.QuadPart;
  return true;
}

int cli_system_lock_folder(const char *folder, bool *is_taken) {
  wchar_t wide[TSR__WINDOWS_PATH_UNITS];
  char path[4096];
  int length = snprintf(path, sizeof path, "%s/.tessera-lock", folder);
  *is_taken = false;
  if (length < 0 || (size_t)length >= sizeof path || !tsr__windows_path(path, wide)) return -1;
  HANDLE file = CreateFileW(wide, GENERIC_WRITE, 0, NULL, OPEN_ALWAYS,
                            FILE_ATTRIBUTE_HIDDEN | FILE_FLAG_DELETE_ON_CLOSE, NULL);
  if (file != INVALID_HANDLE_VALUE) return _open_osfhandle((intptr_t)file, _O_WRONLY);
  *is_taken = GetLastError() == ERROR_SHARING_VIOLATION;
  return -1;
}

void cli_system_unlock_folder(int handle) {
  if (handle >= 0) (void)close(handle);
}

/* ---- Streams ---- */

/* Windows has no stream that calls a function: what is printed goes to a file, which is read when it is closed. */
FILE *cli_text_open(cli_text *text) {
  (void)text;
  return tmpfile();
}

bool cli_text_close(FILE *stream, cli_text *text) {
  char piece[4096];
  size_t count;
  bool is_complete = fflush(stream) == 0 && !ferror(stream);
  rewind(stream);
  while (is_complete && (count = fread(piece, 1, sizeof piece, stream)) > 0)
    is_complete = cli_text_append(text, piece, count) == 0;
  return fclose(stream) == 0 && is_complete && !text->is_lost;
}
