/* os_posix.h - what os_posix.c needs of os_linux.c and os_macos.c. These two also have the functions of os.h that
 * neither POSIX nor its threads have: tsr__os_populate, tsr__os_forget and tsr__os_processor_count. */
#ifndef TSR_BASE_OS_POSIX_H
#define TSR_BASE_OS_POSIX_H

#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Reserve the first `size` bytes of an empty file on the disk, which then has that size. Returns 0 or an error number. */
int tsr__posix_reserve(int fd, off_t size);
/* When a file was last written, and when anything about it changed, in nanoseconds since 1970. */
void tsr__posix_times(const struct stat *status, int64_t *written_ns, int64_t *changed_ns);

#endif
