/* require.h - for fuzz targets: what no input may do is checked with `require`, so a target that returns has passed. */
#ifndef TSR_FUZZ_REQUIRE_H
#define TSR_FUZZ_REQUIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tessera/status.h"

static inline void require(bool is_so, const char *what) {
  if (is_so) return;
  fprintf(stderr, "what must be so is not: %s\n", what);
  abort();
}

/* A failure has a message of one printable line; a success has none. */
static inline void check_error(int status, const tsr_error *error) {
  require((int)error->status == status, "the error names the status that was answered");
  if (!status) return;
  require(status < 0 && status >= TSR_ERROR_WRITE, "a status of tsr_status");
  require(status != TSR_ERROR_MEMORY, "no input makes this machine run out of memory");
  require(error->message[0] && memchr(error->message, 0, sizeof error->message), "a message");
  for (const char *c = error->message; *c; c++)
    require((unsigned char)*c >= 0x20 && *c != 0x7f, "a message that prints in one line");
}

#endif
