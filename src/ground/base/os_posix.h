/* os_posix.h - the functions of POSIX, which Windows has from windows/posix.h, and what os_files.c needs of each system besides:
 * os_posix.c with os_linux.c or os_macos.c, or os_windows.c. */
#ifndef TSR_BASE_OS_POSIX_H
#define TSR_BASE_OS_POSIX_H

#ifdef _WIN32
#include "windows/posix.h"
#else
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#endif
#ifdef __APPLE__ /* had them before POSIX */
#define st_mtim st_mtimespec
#define st_ctim st_ctimespec
#endif

#include "base/error.h"

/* Fails with what errno says: TSR_ERROR_MEMORY, or TSR_ERROR_IO. */
int tsr__posix_fail(tsr_error *error, const char *what);
/* Make a file in a folder, for reading and writing, that is gone with its handle, however the process ends. -1 with errno set. */
int tsr__posix_unnamed(const char *folder);
/* Reserve the first `size` bytes of an empty file on the disk, which then has that size. Returns 0 or an error number. */
int tsr__posix_reserve(int fd, int64_t size);

#endif
