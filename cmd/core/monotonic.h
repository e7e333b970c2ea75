/* monotonic.h - the time on a clock that nobody sets, since some moment in the past. */
#ifndef CLI_MONOTONIC_H
#define CLI_MONOTONIC_H

#include <stdint.h>

/* Seconds, and whole milliseconds. */
double cli_now_s(void);
int64_t cli_now_ms(void);

#endif
