/* grid.h - a screen as a value: rows of cells, each a character and how it looks. What draws fills a grid, and screen.c shows it;
 * so what is drawn is tested without a terminal.
 *
 * Texts come from files. A grid takes what a terminal would obey or could not show as '?', whatever draws it.
 */
#ifndef CLI_TERMINAL_GRID_H
#define CLI_TERMINAL_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tessera/types.h>

/* What the terminal can show. */
typedef struct terminal_traits {
  bool is_utf8;   /* otherwise ASCII */
  bool has_color; /* otherwise groups differ by their pattern, or by letters in ASCII */
  int (*width_of)(
      uint32_t character); /* columns: 0, 1 or 2; below 0: not shown. NULL: all have 1 */
} terminal_traits;

/* Colours. From TERMINAL_GROUP on they are those of groups. */
enum {
  TERMINAL_PLAIN,
  TERMINAL_MUTED,
  TERMINAL_ACCENT,
  TERMINAL_ALARM,
  TERMINAL_MORE, /* a difference that grew, and one that shrank */
  TERMINAL_LESS,
  TERMINAL_GROUP,
  TERMINAL_GROUP_COLORS = 16,
  TERMINAL_COLORS = TERMINAL_GROUP + TERMINAL_GROUP_COLORS
};
enum { TERMINAL_BOLD = 1, TERMINAL_REVERSE = 2 };

typedef struct terminal_style {
  uint8_t color, weight;
} terminal_style;

typedef struct terminal_cell {
  uint32_t character; /* 0: the second half of a wide one to the left */
  terminal_style style;
} terminal_cell;

typedef struct terminal_grid {
  const terminal_traits *traits;
  uint32_t rows, columns;
  terminal_cell *cells; /* by row */
  size_t room;
} terminal_grid;

/* Screens are not larger; of a larger terminal, a part is used. */
enum { TERMINAL_ROWS_MAX = 500, TERMINAL_COLUMNS_MAX = 1000 };

/* Make the grid one of blanks of this size. False if memory ran out; the grid is empty then. */
bool terminal_grid_resize(terminal_grid *grid, uint32_t rows, uint32_t columns);
void terminal_grid_release(terminal_grid *grid);

/* A part of the grid's row, from `column` on. Nothing is drawn outside of it or of the grid. */
typedef struct terminal_span {
  terminal_grid *grid;
  uint32_t row, column, columns;
} terminal_span;

static inline terminal_span terminal_row(terminal_grid *grid, uint32_t row) {
  return (terminal_span){grid, row, 0, grid->columns};
}
/* The part of a span that begins at its column `from`, with at most `columns`. */
terminal_span terminal_part(terminal_span span, uint32_t from, uint32_t columns);

/* Make all of a span blanks. */
void terminal_fill(terminal_span span, terminal_style style);
/* Draw a character of the house's own, in its first column; in ASCII `plain`. */
void terminal_sign(terminal_span span, uint32_t character, char plain, terminal_style style);
/* Draw a text, cut at the end of the span, with a sign for that. Returns the columns it takes. */
uint32_t terminal_text(terminal_span span, tsr_text text, terminal_style style);
uint32_t terminal_words(terminal_span span, const char *text, terminal_style style);
/* The same at the right end of the span, if it fits. */
void terminal_words_right(terminal_span span, const char *text, terminal_style style);
/* The columns that a text takes. */
uint32_t terminal_width(const terminal_traits *traits, tsr_text text);
/* The cell at a place; NULL outside of the grid. */
terminal_cell *terminal_cell_at(terminal_grid *grid, uint32_t row, uint32_t column);

#endif
