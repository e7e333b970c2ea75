/* system_macos.c - what system.h needs of macOS in particular. */
#include "system.h"

#include <mach-o/dyld.h>
#include <stdio.h>
#include <sys/random.h>

enum { RANDOM_MOST = 256 /* at once */ };

bool cli_system_random(void *out, size_t size_bytes) {
  return size_bytes <= RANDOM_MOST && getentropy(out, size_bytes) == 0;
}

bool cli_system_program(char *path, size_t room_bytes) {
  uint32_t size = (uint32_t)room_bytes;
  return _NSGetExecutablePath(path, &size) == 0;
}

void cli_system_end_with_parent(void) {}
