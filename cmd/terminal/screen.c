/* screen.c - see screen.h.
 *
 * Signals set a bit and write a byte to a pipe, which is waited for together with the keyboard. So they arrive whichever thread
 * gets them, and nothing happens in a handler. ncurses has handlers of its own only for signals that have none: for Ctrl-Z it
 * would call kill(), which a confined process may not (core/sandbox.h), and raise() may.
 *
 * The library's variables (stdscr, LINES, COLORS) are not used: they are not functions, and a build of the library may have them
 * as such. Its window is our own, and what the terminal can do is asked of terminfo.
 */
#define _GNU_SOURCE
#define NCURSES_NOMACROS 1
#define NCURSES_WIDECHAR 1

#include "screen.h"

#include <assert.h>
#include <curses.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "keys.h"

#define LIBRARY CLI_LIBRARY_CURSES /* cmd/meson.build */

/* <term.h> declares these, and makes macros of words such as `columns`. */
struct term;
int setupterm(const char *name, int handle, int *found);
struct term *set_curterm(struct term *terminal);
int del_curterm(struct term *terminal);

enum { ESCAPE_MS = 50, EMPTY_READS_MOST = 100 };

/* clang-format off */
#define CURSES_FUNCTIONS(X) \
  X(setupterm) X(set_curterm) X(del_curterm) X(tigetstr) X(tigetnum) X(newterm) X(endwin) X(delscreen) X(newwin) X(delwin) X(cbreak) \
  X(noecho) X(nonl) X(keypad) X(nodelay) X(set_escdelay) X(curs_set) X(start_color) X(use_default_colors) \
  X(init_pair) X(resizeterm) X(wresize) X(wmove) X(wattr_set) X(waddnwstr) X(clearok) X(wnoutrefresh) \
  X(doupdate) X(wgetch)
/* clang-format on */

struct terminal_screen {
#define CURSES_FIELD(name) __typeof__(name) *name;
  CURSES_FUNCTIONS(CURSES_FIELD)
#undef CURSES_FIELD
  terminal_traits traits;
  bool has_many_colors; /* 256 */
  SCREEN *terminal;     /* NULL: not open */
  WINDOW *window;
  uint32_t rows, columns;
  uint32_t partial;     /* a character of several bytes, as far as it has come */
  unsigned missing;     /* bytes of it */
  unsigned empty_reads; /* in a row: the keyboard was ready and had no key */
};

/* ---- Signals ---- */

static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
enum { HANDLED = sizeof handled / sizeof *handled, ENDING = 4 /* the first of them */ };

static atomic_uint arrived; /* a bit for each of `handled` */
static atomic_int wake_handle = -1, ending_signal;
static struct sigaction before[HANDLED];
static int wake_read = -1;

static void take(int signal) {
  int saved_errno = errno, handle = atomic_load(&wake_handle);
  for (unsigned i = 0; i < HANDLED; i++) {
    if (handled[i] != signal) continue;
    (void)atomic_fetch_or(&arrived, 1U << i);
    if (i < ENDING) atomic_store(&ending_signal, signal);
  }
  if (handle >= 0 && write(handle, "", 1) < 0) errno = saved_errno; /* a full pipe wakes, too */
  errno = saved_errno;
}

/* What was ignored, as after nohup, stays so. */
static void handle_signal(unsigned index, bool notes) {
  struct sigaction action = {.sa_handler = take, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  if (before[index].sa_handler != SIG_IGN)
    (void)sigaction(handled[index], notes ? &action : &before[index], NULL);
}

static bool watch_signals(void) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  wake_read = ends[0];
  atomic_store(&arrived, 0);
  atomic_store(&ending_signal, 0);
  atomic_store(&wake_handle, ends[1]);
  for (unsigned i = 0; i < HANDLED; i++) {
    (void)sigaction(handled[i], NULL, &before[i]);
    handle_signal(i, true);
  }
  return true;
}

static void unwatch_signals(void) {
  int handle = atomic_exchange(&wake_handle, -1);
  if (handle < 0) return;
  for (unsigned i = 0; i < HANDLED; i++) handle_signal(i, false);
  (void)close(handle);
  (void)close(wake_read);
}

int terminal_screen_signal(void) {
  return atomic_load(&ending_signal);
}

static bool has_arrived(unsigned taken, int signal) {
  for (unsigned i = 0; i < HANDLED; i++)
    if (handled[i] == signal) return taken >> i & 1;
  return false;
}

/* ---- The library and the terminal ---- */

/* Returns NULL, or why not. */
static const char *load(terminal_screen *s) {
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), *found;
  if (!library) return "the library " LIBRARY " is not installed";
#define LOAD(name)                                           \
  found = dlsym(library, #name);                             \
  if (!found) return "the library " LIBRARY " lacks " #name; \
  memcpy(&s->name, &found, sizeof found); /* no cast from data to functions */
  CURSES_FUNCTIONS(LOAD)
#undef LOAD
  return NULL;
}

static int width_of(uint32_t character) {
  return wcwidth((wchar_t)character);
}

static bool is_text(const char *capability) {
  return capability && capability != (const char *)(intptr_t)-1;
}

/* Returns NULL, or why the terminal will not do. `reason` has room for that. */
static const char *look(terminal_screen *s, bool wants_color, char reason[TERMINAL_REASON_BYTES]) {
  const char *name = getenv("TERM");
  int found = 0;
  (void)setlocale(LC_CTYPE, "");
  bool ok = name && *name && s->setupterm(NULL, STDOUT_FILENO, &found) == OK && found == 1;
  ok = ok && is_text(s->tigetstr("cup")) && is_text(s->tigetstr("clear"));
  int colors = ok ? s->tigetnum("colors") : 0;
  if (found == 1) (void)s->del_curterm(s->set_curterm(NULL)); /* newterm makes its own */
  s->traits = (terminal_traits){.is_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
                                .has_color = wants_color && colors >= 8,
                                .width_of = width_of};
  s->has_many_colors = colors >= 256;
  if (ok) return NULL;
  (void)snprintf(reason, TERMINAL_REASON_BYTES,
                 "this terminal cannot move its cursor (TERM is '%.60s')", name ? name : "");
  return reason;
}

const char *terminal_screen_new(bool wants_color, char reason[TERMINAL_REASON_BYTES],
                                terminal_screen **out) {
  terminal_screen *s = calloc(1, sizeof *s);
  if (!s) return "out of memory";
  const char *refused = load(s);
  if (!refused) refused = look(s, wants_color, reason);
  if (refused)
    free(s);
  else
    *out = s;
  return refused;
}

void terminal_screen_free(terminal_screen *s) {
  if (s) terminal_screen_close(s);
  free(s);
}

const terminal_traits *terminal_screen_traits(const terminal_screen *s) {
  return &s->traits;
}

/* ---- Colours ---- */

/* By colour of grid.h: of 256 colours, and of 8. Those of groups are the page's (viewer/src/theme.ts) as reports have
 * them in text, which are seen on light and on dark ground. */
static const short palette[TERMINAL_COLORS][2] = {
    [TERMINAL_PLAIN] = {-1, -1},
    [TERMINAL_MUTED] = {245, -1},
    [TERMINAL_ACCENT] = {75, COLOR_CYAN},
    [TERMINAL_ALARM] = {203, COLOR_RED},
    [TERMINAL_MORE] = {203, COLOR_RED},
    [TERMINAL_LESS] = {71, COLOR_GREEN},
    [TERMINAL_GROUP] = {67, COLOR_BLUE},
    {173, COLOR_YELLOW},
    {71, COLOR_GREEN},
    {97, COLOR_MAGENTA},
    {72, COLOR_CYAN},
    {169, COLOR_MAGENTA},
    {137, COLOR_YELLOW},
    {101, COLOR_YELLOW},
    {74, COLOR_CYAN},
    {167, COLOR_RED},
    {61, COLOR_BLUE},
    {108, COLOR_GREEN},
    {145, COLOR_WHITE},
    {179, COLOR_YELLOW},
    {114, COLOR_GREEN},
    {146, COLOR_MAGENTA},
};

static void choose_colors(const terminal_screen *s) {
  if (!s->traits.has_color) return;
  (void)s->start_color();
  (void)s->use_default_colors();
  for (int i = 1; i < TERMINAL_COLORS; i++)
    (void)s->init_pair((short)i, palette[i][!s->has_many_colors], -1);
}

/* ---- Opening and closing ---- */

static void measure(terminal_screen *s) {
  struct winsize size = {0};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || !size.ws_row || !size.ws_col)
    size = (struct winsize){.ws_row = 24, .ws_col = 80};
  s->rows = size.ws_row < TERMINAL_ROWS_MAX ? size.ws_row : TERMINAL_ROWS_MAX;
  s->columns = size.ws_col < TERMINAL_COLUMNS_MAX ? size.ws_col : TERMINAL_COLUMNS_MAX;
}

void terminal_screen_size(const terminal_screen *s, uint32_t *rows, uint32_t *columns) {
  *rows = s->rows;
  *columns = s->columns;
}

static void resize(terminal_screen *s) {
  measure(s);
  (void)s->resizeterm((int)s->rows, (int)s->columns);
  (void)s->wresize(s->window, (int)s->rows, (int)s->columns);
  (void)s->clearok(s->window, TRUE);
}

const char *terminal_screen_open(terminal_screen *s) {
  assert(!s->terminal);
  if (!watch_signals()) return "out of files";
  s->terminal = s->newterm(NULL, stdout, stdin);
  if (!s->terminal) {
    unwatch_signals();
    return "the terminal cannot be used";
  }
  measure(s);
  (void)s->resizeterm((int)s->rows, (int)s->columns);
  s->window = s->newwin((int)s->rows, (int)s->columns, 0, 0);
  if (!s->window) {
    terminal_screen_close(s);
    return "out of memory";
  }
  (void)s->cbreak();
  (void)s->noecho();
  (void)s->nonl();
  (void)s->keypad(s->window, TRUE);
  (void)s->nodelay(s->window, TRUE);
  (void)s->set_escdelay(ESCAPE_MS);
  (void)s->curs_set(0);
  choose_colors(s);
  return NULL;
}

void terminal_screen_close(terminal_screen *s) {
  if (!s->terminal) return;
  (void)s->curs_set(1);
  (void)s->endwin();
  if (s->window) (void)s->delwin(s->window);
  s->delscreen(s->terminal);
  s->terminal = NULL;
  s->window = NULL;
  unwatch_signals();
}

/* ---- Showing ---- */

static void show_run(const terminal_screen *s, const terminal_cell *cells, uint32_t count, int row,
                     int column) {
  wchar_t text[TERMINAL_COLUMNS_MAX + 1];
  int length = 0;
  attr_t weight = A_NORMAL;
  terminal_style style = cells->style;
  assert(count <= TERMINAL_COLUMNS_MAX && style.color < TERMINAL_COLORS);
  for (uint32_t i = 0; i < count; i++)
    if (cells[i].character) text[length++] = (wchar_t)cells[i].character;
  if (style.weight & TERMINAL_BOLD) weight |= A_BOLD;
  if (style.weight & TERMINAL_REVERSE) weight |= A_REVERSE;
  short pair = s->traits.has_color ? (short)style.color : 0;
  (void)s->wmove(s->window, row, column);
  (void)s->wattr_set(s->window, weight, pair, NULL);
  (void)s->waddnwstr(s->window, text, length);
}

static bool same_style(terminal_style a, terminal_style b) {
  return a.color == b.color && a.weight == b.weight;
}

void terminal_screen_show(terminal_screen *s, const terminal_grid *grid) {
  for (uint32_t row = 0; row < grid->rows && row < s->rows; row++) {
    const terminal_cell *cells = &grid->cells[(size_t)row * grid->columns];
    uint32_t columns = grid->columns < s->columns ? grid->columns : s->columns;
    for (uint32_t from = 0, to; from < columns; from = to) {
      to = from + 1;
      while (to < columns && same_style(cells[to].style, cells[from].style)) to++;
      show_run(s, cells + from, to - from, (int)row, (int)from);
    }
  }
  (void)s->wnoutrefresh(s->window);
  (void)s->doupdate();
}

/* ---- Events ---- */

static const struct {
  int curses;
  uint32_t key;
} keys[] = {
    {KEY_LEFT, TERMINAL_KEY_LEFT},     {KEY_RIGHT, TERMINAL_KEY_RIGHT},
    {KEY_UP, TERMINAL_KEY_UP},         {KEY_DOWN, TERMINAL_KEY_DOWN},
    {KEY_HOME, TERMINAL_KEY_HOME},     {KEY_END, TERMINAL_KEY_END},
    {KEY_PPAGE, TERMINAL_KEY_PAGE_UP}, {KEY_NPAGE, TERMINAL_KEY_PAGE_DOWN},
    {KEY_ENTER, TERMINAL_KEY_ENTER},   {KEY_BACKSPACE, TERMINAL_KEY_BACKSPACE},
};

/* Decode UTF-8: the character that ends with this byte, or 0 if none does. wget_wch would leave what follows an invalid byte for later. */
static uint32_t character_of(terminal_screen *s, uint32_t byte) {
  if (byte < 0x80) s->missing = 0;
  if (byte < 0x80) return byte;
  if (!s->traits.is_utf8) return 0;
  if (byte >= 0xc0) {
    s->missing = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    s->partial = byte & (0x3fU >> s->missing);
    return 0;
  }
  if (!s->missing) return 0;
  s->partial = s->partial << 6 | (byte & 0x3f);
  return --s->missing || s->partial >= 0x110000 ? 0 : s->partial;
}

/* A key of the model's for what the library has read; 0: none. */
static uint32_t key_for(terminal_screen *s, int code) {
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (keys[i].curses == code) return keys[i].key;
  switch (code) {
  case '\r':
  case '\n': return TERMINAL_KEY_ENTER;
  case 0x1b: return TERMINAL_KEY_ESCAPE;
  case 0x08:
  case 0x7f: return TERMINAL_KEY_BACKSPACE;
  default: return code >= 0 && code < 0x100 ? character_of(s, (uint32_t)code) : 0;
  }
}

/* Stop as if there were no handler, and take the terminal back when the process goes on. */
static void stop(terminal_screen *s, unsigned index) {
  (void)s->curs_set(1);
  (void)s->endwin();
  handle_signal(index, false);
  (void)raise(handled[index]);
  handle_signal(index, true);
}

static void take_back(terminal_screen *s) {
  (void)s->endwin(); /* so that the next refresh sets the terminal's modes again */
  resize(s);
  (void)s->wnoutrefresh(s->window);
  (void)s->doupdate();
  (void)s->curs_set(0);
}

/* What has to be done for the signals that have arrived. */
static terminal_event obey(terminal_screen *s) {
  char bytes[64];
  while (read(wake_read, bytes, sizeof bytes) > 0) continue;
  unsigned taken = atomic_exchange(&arrived, 0);
  if (atomic_load(&ending_signal)) return TERMINAL_ENDED;
  for (unsigned i = 0; i < HANDLED; i++)
    if (handled[i] == SIGTSTP && taken >> i & 1) stop(s, i);
  if (has_arrived(taken, SIGTSTP) || has_arrived(taken, SIGCONT)) {
    take_back(s);
    return TERMINAL_RESIZED;
  }
  if (!has_arrived(taken, SIGWINCH)) return TERMINAL_NOTHING;
  resize(s);
  return TERMINAL_RESIZED;
}

terminal_event terminal_screen_next(terminal_screen *s, bool waits, uint32_t *key) {
  for (;;) {
    int code = s->wgetch(s->window);
    *key = code == ERR ? 0 : key_for(s, code);
    if (code != ERR) s->empty_reads = 0;
    if (*key) return TERMINAL_PRESSED;
    if (code != ERR) continue;
    struct pollfd from[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                            {.fd = wake_read, .events = POLLIN}};
    int ready = poll(from, 2, waits ? -1 : 0);
    if (ready < 0 && errno != EINTR) return TERMINAL_ENDED;
    if (ready > 0 && from[1].revents) {
      terminal_event event = obey(s);
      if (event != TERMINAL_NOTHING) return event;
    } else if (ready > 0 && (from[0].revents & ~POLLIN || ++s->empty_reads > EMPTY_READS_MOST)) {
      return TERMINAL_ENDED; /* the terminal is gone */
    }
    if (!waits && ready <= 0) return TERMINAL_NOTHING;
  }
}
