/* machine.h - how much memory a process may take before the system ends it. */
#ifndef TSR_BASE_MACHINE_H
#define TSR_BASE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera/status.h"

typedef struct tsr__machine_memory {
  uint64_t available_bytes; /* now; UINT64_MAX if unknown */
  bool is_limited;          /* by a control group, to less than the machine has available */
} tsr__machine_memory;

/* The least of what the machine has available, with free swap, and what is left below the limits of the
 * process's control group and of the groups around it (Linux, versions 1 and 2: what containers and systemd set).
 * Caches of files count as available, because the system drops them when it needs memory; a group's swap does
 * not count. The system's files are read below the folder `root`: "" except in tests. A file that is absent
 * sets no limit. Reads a few small files; no errors. */
tsr__machine_memory tsr__machine_memory_below(const char *root);

/* Refuse a run that the system would end with a signal when its memory is touched: TSR_ERROR_LIMIT. */
int tsr__machine_check(uint64_t needs_bytes, tsr_error *error);

#endif
