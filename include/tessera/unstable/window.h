/* tessera/unstable/window.h - a part of a trace. */
#ifndef TESSERA_UNSTABLE_WINDOW_H
#define TESSERA_UNSTABLE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A part of a trace: from `first` to `last`, inclusive, as event numbers of each device or as
 * times in microseconds. */
typedef struct tsr_window {
  bool is_time;
  int64_t first, last;
} tsr_window;

#ifdef __cplusplus
}
#endif
#endif
