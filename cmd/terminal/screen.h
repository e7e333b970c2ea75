/* screen.h - a terminal that shows grids and gives keys. The only file that knows ncurses, which is loaded on demand:
 * docs/decisions/082-the-terminal.md.
 *
 * One at a time: what a signal needs to know is the process's.
 */
#ifndef CLI_TERMINAL_SCREEN_H
#define CLI_TERMINAL_SCREEN_H

#include "grid.h"

typedef struct terminal_screen terminal_screen;

enum { TERMINAL_REASON_BYTES = 160 };

/* Load the library and look at the terminal, without changing it. `wants_color` is whether colours may be used, where the terminal has
 * them. Returns NULL with `*out` set, to be given to terminal_screen_free, or why there can be no screen, a static text or
 * `reason`. */
const char *terminal_screen_new(bool wants_color, char reason[TERMINAL_REASON_BYTES],
                                terminal_screen **out);
/* NULL is fine. */
void terminal_screen_free(terminal_screen *screen);

/* Take over the terminal; from here on signals are this file's. Returns NULL, or why it is not possible. */
const char *terminal_screen_open(terminal_screen *screen);
/* Give the terminal and the signals back as they were. Also where the screen is not open. */
void terminal_screen_close(terminal_screen *screen);

const terminal_traits *terminal_screen_traits(const terminal_screen *screen);
void terminal_screen_size(const terminal_screen *screen, uint32_t *rows, uint32_t *columns);
/* Show a grid. Only what differs from what is shown is sent. */
void terminal_screen_show(terminal_screen *screen, const terminal_grid *grid);

typedef enum terminal_event {
  TERMINAL_PRESSED, /* a key */
  TERMINAL_RESIZED, /* or the terminal was taken back after a stop: draw again */
  TERMINAL_ENDED,   /* by a signal, or because the terminal is gone */
  TERMINAL_NOTHING  /* no key is left: draw, then wait */
} terminal_event;

/* The next event. Waits for one if `waits`, otherwise returns NOTHING. */
terminal_event terminal_screen_next(terminal_screen *screen, bool waits, uint32_t *key);
/* The signal that ended it; 0 if none. */
int terminal_screen_signal(void);

#endif
