/* system.c - what differs between systems in a name only. */
#define _GNU_SOURCE /* times in nanoseconds */

#include "system.h"

#ifdef __APPLE__
#define st_mtim st_mtimespec
#endif

int64_t cli_system_written_ns(const struct stat *status) {
  return (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec;
}
