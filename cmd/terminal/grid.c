/* grid.c - see grid.h. */
#include "grid.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/terminal.h>

bool terminal_grid_resize(terminal_grid *grid, uint32_t rows, uint32_t columns) {
  rows = rows < TERMINAL_ROWS_MAX ? rows : TERMINAL_ROWS_MAX;
  columns = columns < TERMINAL_COLUMNS_MAX ? columns : TERMINAL_COLUMNS_MAX;
  size_t count = (size_t)rows * columns;
  if (count > grid->room) {
    terminal_cell *cells = realloc(grid->cells, count * sizeof *cells);
    grid->rows = grid->columns = 0;
    if (!cells) return false;
    grid->cells = cells;
    grid->room = count;
  }
  grid->rows = rows;
  grid->columns = columns;
  for (size_t i = 0; i < count; i++) grid->cells[i] = (terminal_cell){.character = ' '};
  return true;
}

void terminal_grid_release(terminal_grid *grid) {
  free(grid->cells);
  *grid = (terminal_grid){.traits = grid->traits};
}

terminal_cell *terminal_cell_at(terminal_grid *grid, uint32_t row, uint32_t column) {
  if (row >= grid->rows || column >= grid->columns) return NULL;
  return &grid->cells[(size_t)row * grid->columns + column];
}

terminal_span terminal_part(terminal_span span, uint32_t from, uint32_t columns) {
  if (from > span.columns) from = span.columns;
  span.column += from;
  span.columns -= from;
  if (columns < span.columns) span.columns = columns;
  return span;
}

/* ---- Characters ---- */

enum { REPLACED = '?' };

/* The character at the start of a text, and the number of its bytes. */
static uint32_t decode(const unsigned char *at, size_t left, size_t *bytes) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  size_t count = at[0] < 0x80 ? 1 : at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : at[0] >= 0xc0 ? 2 : 0;
  *bytes = 1;
  if (count == 1) return at[0];
  if (!count || count > left || at[0] > 0xf4) return REPLACED;
  uint32_t value = at[0] & (0xffU >> (count + 1));
  for (size_t i = 1; i < count; i++) {
    if ((at[i] & 0xc0) != 0x80) return REPLACED;
    value = value << 6 | (at[i] & 0x3fU);
  }
  if (value < least[count] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
    return REPLACED;
  *bytes = count;
  return value;
}

/* What the terminal is to show of a character, and in how many columns: 0, 1 or 2. */
static uint32_t shown(const terminal_traits *traits, uint32_t character, uint32_t *columns) {
  *columns = 1;
  if (character < 0x20 || (character >= 0x7f && character < 0xa0)) return REPLACED;
  if (character < 0x7f) return character;
  if (!traits->is_utf8) return REPLACED;
  int width = traits->width_of ? traits->width_of(character) : 1;
  if (width < 0 || width > 2) return REPLACED;
  *columns = (uint32_t)width;
  return character;
}

/* A copy that a terminal can be given, which the library makes: it knows which characters drive one. Short texts, as almost all
 * are, need no memory; of longer ones the beginning is taken. */
typedef struct clean_text {
  char bytes[4 * TERMINAL_COLUMNS_MAX];
  size_t size;
} clean_text;

static void clean(clean_text *out, tsr_text text) {
  out->size = text.size_bytes < sizeof out->bytes ? text.size_bytes : sizeof out->bytes;
  if (out->size) memcpy(out->bytes, text.data, out->size);
  out->size = tsr_terminal_clean(out->bytes, out->size, false);
}

static uint32_t width_of(const terminal_traits *traits, const clean_text *text) {
  uint32_t columns = 0, width;
  size_t bytes;
  for (size_t i = 0; i < text->size; i += bytes) {
    (void)shown(traits, decode((const unsigned char *)text->bytes + i, text->size - i, &bytes),
                &width);
    columns += width;
  }
  return columns;
}

uint32_t terminal_width(const terminal_traits *traits, tsr_text text) {
  clean_text copy;
  clean(&copy, text);
  return width_of(traits, &copy);
}

/* ---- Drawing ---- */

static void put(terminal_span span, uint32_t column, uint32_t character, terminal_style style) {
  terminal_cell *cell = terminal_cell_at(span.grid, span.row, span.column + column);
  if (cell) *cell = (terminal_cell){character, style};
}

void terminal_fill(terminal_span span, terminal_style style) {
  for (uint32_t i = 0; i < span.columns; i++) put(span, i, ' ', style);
}

void terminal_sign(terminal_span span, uint32_t character, char plain, terminal_style style) {
  if (span.columns)
    put(span, 0, span.grid->traits->is_utf8 ? character : (unsigned char)plain, style);
}

uint32_t terminal_text(terminal_span span, tsr_text text, terminal_style style) {
  const terminal_traits *traits = span.grid->traits;
  clean_text copy;
  clean(&copy, text);
  bool is_cut = width_of(traits, &copy) > span.columns;
  uint32_t room = is_cut && span.columns ? span.columns - 1 : span.columns, column = 0, width;
  size_t bytes;
  for (size_t i = 0; i < copy.size; i += bytes) {
    uint32_t character =
        shown(traits, decode((const unsigned char *)copy.bytes + i, copy.size - i, &bytes), &width);
    if (width > room - column) break;
    if (width) put(span, column, character, style);
    if (width == 2) put(span, column + 1, 0, style);
    column += width;
  }
  if (is_cut && column < span.columns)
    terminal_sign(terminal_part(span, column++, 1), 0x2026, '~', style);
  assert(column <= span.columns);
  return column;
}

uint32_t terminal_words(terminal_span span, const char *text, terminal_style style) {
  return terminal_text(span, (tsr_text){text, strlen(text)}, style);
}

void terminal_words_right(terminal_span span, const char *text, terminal_style style) {
  uint32_t width = terminal_width(span.grid->traits, (tsr_text){text, strlen(text)});
  if (width <= span.columns)
    (void)terminal_words(terminal_part(span, span.columns - width, width), text, style);
}
