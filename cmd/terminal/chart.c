/* chart.c - see chart.h. First every dot gets an owner, then cells are made of dots: a cell has the colour of the group that owns
 * most of its dots. */
#include "chart.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/attribution.h>

enum { ACROSS = 2, UP = 4, BRAILLE = 0x2800, TOO_HIGH = 4 };

/* Owners of dots: groups from OWN_GROUP on. */
enum { OWN_NOTHING, OWN_ALLOCATED, OWN_RESERVED, OWN_CAPACITY, OWN_REST, OWN_GROUP };

typedef struct canvas {
  uint8_t *owners; /* by row from the top, then by column */
  uint32_t columns, rows;
} canvas;

/* ---- How groups look ---- */

/* The colours of categories, as on the page; other groups go by their number. */
static const struct {
  tsr_category category;
  uint8_t color;
  char letter;
} looks[] = {
    {TSR_CATEGORY_PARAMETER, 0, 'P'}, {TSR_CATEGORY_ACTIVATION, 1, 'A'},
    {TSR_CATEGORY_GRADIENT, 2, 'G'},  {TSR_CATEGORY_OPTIMIZER_STATE, 3, 'O'},
    {TSR_CATEGORY_TEMPORARY, 4, 'T'}, {TSR_CATEGORY_RECOMPUTED, 13, 'R'},
    {TSR_CATEGORY_INPUT, 8, 'I'},     {TSR_CATEGORY_COMMUNICATION, 9, 'N'},
    {TSR_CATEGORY_WORKSPACE, 6, 'W'}, {TSR_CATEGORY_BUFFER, 7, 'B'},
    {TSR_CATEGORY_KV_CACHE, 10, 'K'}, {TSR_CATEGORY_CAST, 5, 'C'},
    {TSR_CATEGORY_UNKNOWN, 12, 'U'},
};
enum { LOOKS = sizeof looks / sizeof *looks };

/* The row of a group in `looks`; LOOKS if it is no category. */
static size_t look_of(const tsr_view_grouping *grouping, size_t group) {
  size_t i = LOOKS;
  if (strcmp(grouping->key, TSR_BY_CATEGORY) == 0)
    for (i = 0; i < LOOKS && looks[i].category != (tsr_category)group; i++) continue;
  return i;
}

uint8_t terminal_group_color(const tsr_view_grouping *grouping, size_t group) {
  size_t look = look_of(grouping, group);
  size_t color = look < LOOKS ? looks[look].color : group % TERMINAL_GROUP_COLORS;
  return (uint8_t)(TERMINAL_GROUP + color);
}

char terminal_group_letter(const tsr_view_grouping *grouping, size_t group) {
  size_t look = look_of(grouping, group);
  return look < LOOKS ? looks[look].letter : (char)('a' + group % 26);
}

/* Without colours, whether a dot of a group is drawn: each has a pattern of its own, as far as there are patterns. */
static bool is_drawn(uint32_t color, uint32_t x, uint32_t y) {
  switch (color % 8) {
  case 0: return true;
  case 1: return (x + y) % 2 == 0;
  case 2: return y % 2 == 0;
  case 3: return x % 2 == 0;
  case 4: return (x + y) % 4 != 0;
  case 5: return x % 2 == 0 && y % 2 == 0;
  case 6: return y % 4 < 2;
  default: return y % 4 != 0;
  }
}

static const uint8_t dot_bits[UP][ACROSS] = {
    {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

void terminal_group_sign(terminal_span span, const tsr_view_grouping *grouping, size_t group) {
  const terminal_traits *traits = span.grid->traits;
  uint8_t color = terminal_group_color(grouping, group);
  uint32_t sign = BRAILLE;
  for (uint32_t y = 0; y < UP; y++)
    for (uint32_t x = 0; x < ACROSS; x++)
      if (traits->has_color || is_drawn(color - TERMINAL_GROUP, x, y)) sign |= dot_bits[y][x];
  terminal_sign(span, sign, terminal_group_letter(grouping, group),
                (terminal_style){.color = color});
}

/* ---- Moments and columns ---- */

bool terminal_chart_column(const terminal_model *m, uint32_t moment, uint32_t columns,
                           uint32_t *column) {
  if (moment < m->from || moment >= m->to || !columns) return false;
  *column = (uint32_t)((uint64_t)(moment - m->from) * columns / (m->to - m->from));
  return true;
}

/* The moment that column `x` of `columns` shows; false if the track has none there. */
static bool moment_at(const terminal_model *m, const terminal_track *t, uint32_t x,
                      uint32_t columns, uint32_t *moment) {
  uint64_t width = m->to - m->from;
  uint64_t from = m->from + width * x / columns, to = m->from + width * (x + 1) / columns;
  if (to <= from) to = from + 1;
  if (to > t->history.moment_count) to = t->history.moment_count;
  if (from >= to) return false;
  *moment = terminal_history_high(&t->history, (uint32_t)from, (uint32_t)to);
  return true;
}

/* ---- Scale ---- */

static uint64_t larger(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

/* A line far above what is allocated would make that flat: it is left out, and named elsewhere. */
static uint64_t with_line(uint64_t high, uint64_t line) {
  return line / TOO_HIGH <= high ? larger(high, line) : high;
}

static terminal_scale fitted(const terminal_model *m, uint32_t columns) {
  terminal_scale scale = {UINT64_MAX, 0};
  for (size_t i = 0; i < m->file_count; i++) {
    const terminal_track *t = &m->tracks[m->shown[i]];
    for (uint32_t x = 0; x < columns; x++) {
      uint32_t moment;
      if (!moment_at(m, t, x, columns, &moment)) continue;
      uint64_t bytes = t->history.allocated[moment];
      if (bytes < scale.low) scale.low = bytes;
      scale.high = larger(scale.high, bytes);
    }
  }
  uint64_t air = scale.high > scale.low ? (scale.high - scale.low) / 16 : scale.high / 16;
  scale.low = scale.low > air ? scale.low - air : 0;
  if (scale.high <= UINT64_MAX - air) scale.high += air;
  return scale;
}

terminal_scale terminal_chart_scale(const terminal_model *m, uint32_t columns) {
  terminal_scale scale = {0, 0};
  for (size_t i = 0; i < m->file_count; i++) {
    const tsr_totals *maxima = &m->tracks[m->shown[i]].device->maxima;
    scale.high = larger(scale.high, larger(maxima->allocated_bytes, maxima->requested_bytes));
  }
  uint64_t allocated = scale.high;
  for (size_t i = 0; i < m->file_count; i++)
    scale.high = larger(scale.high,
                        with_line(allocated, m->tracks[m->shown[i]].device->maxima.reserved_bytes));
  scale.high = with_line(scale.high, m->capacity_bytes);
  for (unsigned i = 0; i < m->stretch; i++) scale.high -= scale.high / 5;
  if (m->fits_height) scale = fitted(m, columns * ACROSS);
  if (scale.high <= scale.low) scale.high = scale.low + 1;
  return scale;
}

/* The height of a number of bytes, in dots: 0 to `rows`. */
static uint32_t height_of(terminal_scale scale, uint64_t bytes, uint32_t rows) {
  if (bytes <= scale.low) return 0;
  if (bytes >= scale.high) return rows;
  double part = (double)(bytes - scale.low) / (double)(scale.high - scale.low);
  return (uint32_t)(part * rows + 0.5);
}

/* ---- Dots ---- */

/* The dots from height `from` up to `to`. */
static void own(const canvas *c, uint32_t x, uint32_t from, uint32_t to, uint8_t owner) {
  for (uint32_t y = from; y < to; y++) c->owners[(c->rows - 1 - y) * c->columns + x] = owner;
}

/* A dot of a line, where no area is. */
static void own_line(const canvas *c, uint32_t x, uint32_t height, uint8_t owner) {
  if (!height || height > c->rows) return;
  uint8_t *at = &c->owners[(c->rows - height) * c->columns + x];
  if (*at == OWN_NOTHING) *at = owner;
}

/* Areas from the bottom; `*sum` is what is below, and then also what was added. */
static void stack_groups(const canvas *c, uint32_t x, const terminal_track *t, terminal_scale scale,
                         const uint64_t bytes[TSR_VIEW_GROUPS_MAX], uint64_t *sum) {
  for (size_t i = 0; i < t->sums.grouping->count; i++) {
    uint8_t group = t->order[i];
    uint32_t from = height_of(scale, *sum, c->rows);
    *sum += bytes[group];
    uint32_t to = height_of(scale, *sum, c->rows);
    own(c, x, from, to, (uint8_t)(OWN_GROUP + group));
  }
}

static size_t largest_of(const uint64_t bytes[TSR_VIEW_GROUPS_MAX]) {
  size_t best = 0;
  for (size_t g = 1; g < TSR_VIEW_GROUPS_MAX; g++)
    if (bytes[g] > bytes[best]) best = g;
  return best;
}

static void draw_column(const canvas *c, uint32_t x, const terminal_model *m,
                        const terminal_track *t, terminal_scale scale, uint32_t moment) {
  uint64_t bytes[TSR_VIEW_GROUPS_MAX], sum = 0, all = 0;
  terminal_sums_at(&t->sums, &t->history, moment, bytes);
  if (t->is_found) {
    for (size_t g = 0; g < TSR_VIEW_GROUPS_MAX; g++) all += bytes[g];
    terminal_sums_at(&t->found, &t->history, moment, bytes);
    stack_groups(c, x, t, scale, bytes, &sum);
    uint32_t found = height_of(scale, sum, c->rows);
    if (!found && sum && !scale.low) { /* what is found is seen, however little it is */
      own(c, x, 0, 1, (uint8_t)(OWN_GROUP + largest_of(bytes)));
      found = 1;
    }
    own(c, x, found, height_of(scale, all, c->rows), OWN_REST);
  } else {
    stack_groups(c, x, t, scale, bytes, &sum);
  }
  own_line(c, x, height_of(scale, t->history.allocated[moment], c->rows), OWN_ALLOCATED);
  uint64_t reserved = terminal_history_reserved(&t->history, moment);
  if (reserved <= scale.high && x % 4 < 2)
    own_line(c, x, height_of(scale, reserved, c->rows), OWN_RESERVED);
  if (m->capacity_bytes && m->capacity_bytes <= scale.high)
    own_line(c, x, height_of(scale, m->capacity_bytes, c->rows), OWN_CAPACITY);
}

/* ---- Cells ---- */

typedef struct dots {
  uint32_t bits;       /* of braille */
  uint32_t area_count; /* dots of areas */
  uint8_t owner;       /* of most dots: an area's if there is one */
} dots;

static dots dots_of(const canvas *c, uint32_t column, uint32_t row, const terminal_track *t,
                    bool has_color) {
  uint8_t owners[UP * ACROSS];
  uint32_t best = 0;
  dots out = {0};
  for (uint32_t y = 0; y < UP; y++)
    for (uint32_t x = 0; x < ACROSS; x++) {
      uint32_t at_x = column * ACROSS + x, at_y = row * UP + y;
      uint8_t owner = owners[y * ACROSS + x] = c->owners[at_y * c->columns + at_x];
      bool shows = owner != OWN_NOTHING;
      out.area_count += owner >= OWN_REST;
      if (!has_color && owner >= OWN_GROUP)
        shows = is_drawn(terminal_group_color(t->sums.grouping, owner - OWN_GROUP) - TERMINAL_GROUP,
                         at_x, at_y);
      if (!has_color && owner == OWN_REST) shows = at_x % 2 == 0 && at_y % 4 == 0;
      if (shows) out.bits |= dot_bits[y][x];
    }
  for (size_t i = 0; i < UP * ACROSS; i++) {
    uint32_t count = 0;
    for (size_t k = 0; k < UP * ACROSS; k++) count += owners[k] == owners[i];
    if (owners[i] == OWN_NOTHING || (owners[i] < OWN_REST && out.area_count) || count <= best)
      continue;
    best = count;
    out.owner = owners[i];
  }
  return out;
}

static terminal_style style_of(const terminal_track *t, uint8_t owner) {
  switch (owner) {
  case OWN_ALLOCATED: return (terminal_style){.weight = TERMINAL_BOLD};
  case OWN_RESERVED: return (terminal_style){.color = TERMINAL_MUTED};
  case OWN_CAPACITY: return (terminal_style){.color = TERMINAL_ALARM};
  case OWN_REST: return (terminal_style){.color = TERMINAL_MUTED};
  default:
    return (terminal_style){.color = terminal_group_color(t->sums.grouping, owner - OWN_GROUP)};
  }
}

static char letter_of(const terminal_track *t, const dots *found) {
  if (found->owner == OWN_ALLOCATED || found->owner == OWN_RESERVED) return '-';
  if (found->owner == OWN_CAPACITY) return '=';
  if (found->area_count < UP * ACROSS / 2 || found->owner == OWN_REST) return '.';
  return terminal_group_letter(t->sums.grouping, found->owner - OWN_GROUP);
}

static void draw_cell(const canvas *c, const terminal_track *t, terminal_span span, uint32_t column,
                      uint32_t row) {
  dots found = dots_of(c, column, row, t, span.grid->traits->has_color);
  if (found.owner == OWN_NOTHING) return;
  terminal_sign(terminal_part(span, column, 1), BRAILLE | found.bits, letter_of(t, &found),
                style_of(t, found.owner));
}

int terminal_chart_draw(const terminal_model *m, const terminal_track *t, terminal_scale scale,
                        terminal_grid *grid, terminal_box box) {
  canvas c = {.columns = box.columns * ACROSS, .rows = box.rows * UP};
  uint32_t cursor = 0;
  if (!box.columns || !box.rows) return 0;
  c.owners = calloc((size_t)c.columns * c.rows, 1);
  if (!c.owners) return TSR_ERROR_MEMORY;
  for (uint32_t x = 0; x < c.columns; x++) {
    uint32_t moment;
    if (moment_at(m, t, x, c.columns, &moment)) draw_column(&c, x, m, t, scale, moment);
  }
  bool has_cursor = terminal_chart_column(m, t->moment, box.columns, &cursor);
  for (uint32_t row = 0; row < box.rows; row++) {
    terminal_span span = {grid, box.row + row, box.column, box.columns};
    for (uint32_t column = 0; column < box.columns; column++) draw_cell(&c, t, span, column, row);
    if (has_cursor)
      terminal_sign(terminal_part(span, cursor, 1), 0x2502, '|',
                    (terminal_style){TERMINAL_ACCENT, TERMINAL_BOLD});
  }
  free(c.owners);
  return 0;
}
