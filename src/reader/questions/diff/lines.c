/* lines.c - lines of code that moved: see match.h.
 *
 * What a name says is its file's base name, its line, and the text after that. Names that one side alone has
 * are sorted by file, text, side and line: those of one place are then neighbours, old ones first. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"
#include "questions/diff/match.h"

/* A row that only one side has, and what its name says: "dir/model.py:382 forward", where it called a
 * library "dir/train.py:57 train > activations.py:62 forward". */
typedef struct mover {
  const char *base, *function; /* model.py, and what follows the number */
  size_t base_size;
  uint64_t line;
  uint32_t row; /* in the list */
  uint8_t side;
} mover;

/* False for a name without a line. */
static bool parse_name(const char *name, mover *out) {
  const char *colon = name, *digits;
  do {
    colon = strchr(colon, ':');
    if (!colon) return false;
    for (digits = ++colon; *digits >= '0' && *digits <= '9';) digits++;
  } while (digits == colon || *digits != ' ');
  out->function = digits;
  out->line = strtoull(colon, NULL, 10);
  const char *base = colon - 1;
  while (base > name && base[-1] != '/' && base[-1] != '\\') base--;
  out->base = base;
  out->base_size = (size_t)(colon - 1 - base);
  return true;
}

/* Text after this character, and after a line number that it introduces, does not count. */
static const char *pass_line(const char *at) {
  if (at[0] != ':') return at + (at[0] != '\0');
  at++;
  while (*at >= '0' && *at <= '9') at++;
  return at;
}

static int compare_functions(const char *x, const char *y) {
  while (*x && *x == *y) {
    x = pass_line(x);
    y = pass_line(y);
  }
  return (unsigned char)*x - (unsigned char)*y;
}

static int compare_places(const mover *x, const mover *y) {
  if (x->base_size != y->base_size) return x->base_size < y->base_size ? -1 : 1;
  int order = memcmp(x->base, y->base, x->base_size);
  return order ? order : compare_functions(x->function, y->function);
}

static int compare_movers(const void *a, const void *b) {
  const mover *x = a, *y = b;
  int order = compare_places(x, y);
  if (order) return order;
  if (x->side != y->side) return x->side < y->side ? -1 : 1;
  return (x->line > y->line) - (x->line < y->line);
}

/* Movers of one place: `olds` of the old side, then `news` of the new. */
static void pair_movers(const mover *movers, size_t olds, size_t news, tsr__line *lines) {
  for (size_t i = 0; olds == news && i < olds; i++)
    lines[movers[i].row].into = movers[olds + i].row;
  for (size_t i = 0; olds != news && olds && news && i < olds + news; i++)
    lines[movers[i].row].into = movers[olds].row;
}

int tsr__match_lines(tsr__line *lines, uint32_t count, tsr_error *error) {
  mover *movers = TSR__NEW_ARRAY(mover, count);
  size_t mover_count = 0;
  if (!movers) return tsr__fail_memory(error);
  for (uint32_t i = 0; i < count; i++) {
    assert(lines[i].sides <= 3);
    lines[i].into = i;
    mover m = {.row = i, .side = lines[i].sides == 2};
    bool is_one_sided = lines[i].sides == 1 || lines[i].sides == 2;
    if (is_one_sided && parse_name(lines[i].name, &m)) movers[mover_count++] = m;
  }
  tsr__sort(movers, mover_count, sizeof *movers, compare_movers);
  for (size_t first = 0, last; first < mover_count; first = last) {
    size_t olds = 0;
    for (last = first; last < mover_count && !compare_places(&movers[first], &movers[last]); last++)
      olds += movers[last].side == 0;
    assert(last > first && olds <= last - first);
    pair_movers(&movers[first], olds, last - first - olds, lines);
  }
  for (uint32_t i = 0; i < count; i++) assert(lines[lines[i].into].into == lines[i].into);
  tsr__free(movers);
  return 0;
}
