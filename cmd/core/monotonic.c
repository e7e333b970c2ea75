/* monotonic.c - see monotonic.h. */
#define _POSIX_C_SOURCE 200809L

#include "monotonic.h"

#include <time.h>

double cli_now_s(void) {
  struct timespec now = {0};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int64_t cli_now_ms(void) {
  struct timespec now = {0};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
