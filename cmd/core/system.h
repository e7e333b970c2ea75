/* system.h - what the command needs of the operating system besides C and the common part of POSIX, which Windows has from
 * src/windows. system_linux.c, system_macos.c and system_windows.c implement this header; cmd/meson.build chooses one, and
 * system_posix.c with the first two; system.c is for all. What only some have is in files of its own: nameless_absent.c,
 * sandbox.h, tracer.h. */
#ifndef CLI_SYSTEM_H
#define CLI_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

/* Prepare the process before anything is read or written: the standard streams are open, a reader that goes away is no
 * signal, text is UTF-8 and is not translated. May replace the words of the command line. */
void cli_system_prepare(int *argc, char ***argv);

/* Have this process killed when the one ends that started it, where the system can do that. */
void cli_system_end_with_parent(void);

/* Fill `out` with numbers that nobody can guess. */
bool cli_system_random(void *out, size_t size_bytes);

/* The full path of the running program's file, in `path`, ended by a zero byte. False if the system does not know it. */
bool cli_system_program(char *path, size_t room_bytes);

/* Columns of the terminal at standard output; 0 if unknown. */
uint32_t cli_system_columns(void);

/* Open an empty file in a folder for reading and writing that is gone with its handle, however the process ends, unless it
 * is put in place. -1 with errno 0 where the system or the file system has no such files; another errno is a failure. */
int cli_system_passing_file(const char *folder);
/* Give such a file its name; replaces nothing: errno is EEXIST then. Returns 0, or -1 with errno set. */
int cli_system_keep_file(int handle, const char *path);

/* When a file was last written, in nanoseconds since 1970. */
int64_t cli_system_written_ns(const struct stat *status);

/* Why writing to a stream has failed just now, as an errno, never 0: EPIPE if its reader has gone. The stream may be NULL. */
int cli_system_write_error(FILE *stream);

/* Have the system write what a handle's file or folder holds to the disk now. Returns 0, or -1 with errno set; a kind of file that
 * cannot be written so is no failure. */
int cli_system_sync(int handle);
/* Bytes that a user may still write to the file system of a folder. False if the system does not know it. */
bool cli_system_free_bytes(const char *folder, uint64_t *out);

/* Lock a folder until the handle is closed or the process ends, whichever way. -1 if that is not possible, in which case
 * `*is_taken` is whether another process has it. */
int cli_system_lock_folder(const char *folder, bool *is_taken);
/* A negative handle is fine. */
void cli_system_unlock_folder(int handle);

#endif
