/* lists.c - see lists.h. */
#include "lists.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/frames.h>
#include <tessera/unstable/params.h>

enum {
  SIZE_COLUMNS = 11,
  NAME_COLUMNS = 15,
  LONG_NAME_COLUMNS = 22, /* where there is room */
  COUNT_COLUMNS = 7,
  SHARE_COLUMNS = 7,
  MIDDLE = 60, /* columns of a list that has room for more than bytes and names */
  WIDE = 100,
  LINE_BYTES = 160
};

static const terminal_style plain = {0}, muted = {.color = TERMINAL_MUTED};
static const terminal_style heading = {.color = TERMINAL_MUTED, .weight = TERMINAL_BOLD};

/* ---- Words ---- */

const char *terminal_count_text(uint64_t value, char out[TERMINAL_NUMBER_BYTES]) {
  char digits[TERMINAL_NUMBER_BYTES];
  int length = snprintf(digits, sizeof digits, "%" PRIu64, value);
  char *at = out;
  for (int i = 0; i < length; i++) {
    if (i && (length - i) % 3 == 0) *at++ = ',';
    *at++ = digits[i];
  }
  *at = '\0';
  return out;
}

const char *terminal_share_text(uint64_t part, uint64_t whole, char out[TERMINAL_NUMBER_BYTES]) {
  double percent = whole ? 100.0 * (double)part / (double)whole : 0;
  (void)snprintf(out, TERMINAL_NUMBER_BYTES, "%.1f %%", percent < 1e6 ? percent : 1e6);
  return out;
}

static const char *delta_text(uint64_t old, uint64_t new, char out[TERMINAL_NUMBER_BYTES]) {
  char size[TERMINAL_NUMBER_BYTES];
  const char *sign = old < new ? "+" : old > new ? "-" : "";
  (void)snprintf(out, TERMINAL_NUMBER_BYTES, "%s%s", sign,
                 tsr_size_text(old < new ? new - old : old - new, size, sizeof size));
  return out;
}

void terminal_event_text(const tsr_snapshot *snapshot, uint32_t device, int64_t event, char *out,
                         size_t room) {
  char size[TERMINAL_NUMBER_BYTES];
  tsr_events events = tsr_snapshot_events(snapshot, device);
  if (event < 0 || (uint64_t)event >= events.count) {
    (void)snprintf(out, room, "before the first event");
    return;
  }
  tsr_text action = tsr_snapshot_action_name(snapshot, events.action[event]);
  int length = action.size_bytes < 40 ? (int)action.size_bytes : 40;
  if (events.action[event] == TSR_ACTION_SNAPSHOT)
    (void)snprintf(out, room, "an earlier snapshot");
  else
    (void)snprintf(out, room, "%.*s %s", length, action.data ? action.data : "",
                   tsr_size_text(events.size[event], size, sizeof size));
}

/* ---- Columns of a row ---- */

/* Takes columns off the left of a span. */
static terminal_span take(terminal_span *span, uint32_t columns) {
  terminal_span taken = terminal_part(*span, 0, columns);
  *span = terminal_part(*span, taken.columns + (span->columns > taken.columns), UINT32_MAX);
  return taken;
}

static void put_right(terminal_span *span, uint32_t columns, const char *text,
                      terminal_style style) {
  terminal_words_right(take(span, columns), text, style);
}

static void put_size(terminal_span *span, uint64_t bytes, terminal_style style) {
  char text[TERMINAL_NUMBER_BYTES];
  put_right(span, SIZE_COLUMNS, tsr_size_text(bytes, text, sizeof text), style);
}

static void put_delta(terminal_span *span, uint64_t old, uint64_t new, terminal_style style) {
  char text[TERMINAL_NUMBER_BYTES];
  style.color = old < new ? TERMINAL_MORE : old > new ? TERMINAL_LESS : TERMINAL_PLAIN;
  put_right(span, SIZE_COLUMNS, delta_text(old, new, text), style);
}

/* ---- Groups ---- */

typedef struct line {
  const tsr_view_grouping *grouping;
  size_t group;
  uint64_t old, new;
} line;

enum { LINES_MOST = 2 * TSR_VIEW_GROUPS_MAX };

static int by_size(const void *a, const void *b) {
  const line *x = a, *y = b;
  if (x->new != y->new) return x->new < y->new ? 1 : -1;
  return (x->group > y->group) - (x->group < y->group);
}

static int by_change(const void *a, const void *b) {
  const line *x = a, *y = b;
  uint64_t of_x = x->old < x->new ? x->new - x->old : x->old - x->new;
  uint64_t of_y = y->old < y->new ? y->new - y->old : y->old - y->new;
  if (of_x != of_y) return of_x < of_y ? 1 : -1;
  return by_size(a, b);
}

static void sums_at(const terminal_track *t, uint32_t moment, uint64_t bytes[TSR_VIEW_GROUPS_MAX]) {
  terminal_sums_at(t->is_found ? &t->found : &t->sums, &t->history, moment, bytes);
}

static bool same_name(const line *a, const tsr_view_grouping *grouping, size_t group) {
  tsr_text x = a->grouping->names[a->group], y = grouping->names[group];
  return x.size_bytes == y.size_bytes && (!x.size_bytes || !memcmp(x.data, y.data, x.size_bytes));
}

/* Groups that hold something at the moment. Returns how many. */
static size_t list_groups(const terminal_track *t, line lines[LINES_MOST]) {
  uint64_t bytes[TSR_VIEW_GROUPS_MAX];
  size_t count = 0;
  sums_at(t, t->moment, bytes);
  for (size_t g = 0; g < t->sums.grouping->count; g++)
    if (bytes[g]) lines[count++] = (line){t->sums.grouping, g, 0, bytes[g]};
  qsort(lines, count, sizeof *lines, by_size);
  return count;
}

/* Groups that hold something at one of two moments; those of two files meet by their names. */
static size_t list_differences(const terminal_ends *ends, line lines[LINES_MOST]) {
  uint64_t bytes[TSR_VIEW_GROUPS_MAX];
  size_t count = 0;
  for (int end = 0; end < 2; end++) {
    const tsr_view_grouping *grouping = ends->track[end]->sums.grouping;
    sums_at(ends->track[end], ends->moment[end], bytes);
    for (size_t g = 0; g < grouping->count; g++) {
      size_t i = 0;
      if (!bytes[g]) continue;
      while (end && i < count && !same_name(&lines[i], grouping, g)) i++;
      if (!end || i == count) lines[i = count++] = (line){grouping, g, 0, 0};
      *(end ? &lines[i].new : &lines[i].old) += bytes[g];
    }
  }
  qsort(lines, count, sizeof *lines, by_change);
  return count;
}

static void draw_rest(terminal_span span, size_t left) {
  char text[LINE_BYTES], number[TERMINAL_NUMBER_BYTES];
  (void)snprintf(text, sizeof text, "... and %s more", terminal_count_text(left, number));
  (void)terminal_words(span, text, muted);
}

static uint32_t name_columns(bool has_more) {
  return has_more ? LONG_NAME_COLUMNS : NAME_COLUMNS;
}

static void draw_group_heading(const terminal_model *m, terminal_span span, bool differs,
                               bool has_more) {
  const terminal_track *t = &m->tracks[m->active];
  (void)terminal_words(take(&span, name_columns(has_more) + 2), t->sums.grouping->title, heading);
  if (differs) {
    if (has_more) put_right(&span, SIZE_COLUMNS, m->file_count > 1 ? "first" : "mark A", heading);
    put_right(&span, SIZE_COLUMNS, m->file_count > 1 ? "second" : "cursor", heading);
    put_right(&span, SIZE_COLUMNS, "difference", heading);
  } else {
    put_right(&span, SIZE_COLUMNS, "bytes", heading);
    if (has_more) put_right(&span, SHARE_COLUMNS, "share", heading);
  }
}

/* With `has_more`, there is room for the old bytes, or for shares. */
static void draw_groups(const terminal_model *m, terminal_grid *grid, terminal_box box,
                        const terminal_ends *ends, bool has_more) {
  const terminal_track *t = &m->tracks[m->active];
  line lines[LINES_MOST];
  size_t count = ends ? list_differences(ends, lines) : list_groups(t, lines);
  uint64_t whole = 0;
  char text[TERMINAL_NUMBER_BYTES];
  for (size_t i = 0; i < count; i++) whole += lines[i].new;
  draw_group_heading(m, (terminal_span){grid, box.row, box.column, box.columns}, ends, has_more);
  for (uint32_t i = 0; i < count && i + 1 < box.rows; i++) {
    terminal_span span = {grid, box.row + 1 + i, box.column, box.columns};
    if (i + 2 == box.rows && i + 1 < count) {
      draw_rest(terminal_part(span, 2, UINT32_MAX), count - i);
      return;
    }
    terminal_group_sign(take(&span, 1), lines[i].grouping, lines[i].group);
    (void)terminal_text(take(&span, name_columns(has_more)),
                        lines[i].grouping->names[lines[i].group], plain);
    if (ends && has_more) put_size(&span, lines[i].old, plain);
    put_size(&span, lines[i].new, plain);
    if (ends)
      put_delta(&span, lines[i].old, lines[i].new, plain);
    else if (has_more)
      put_right(&span, SHARE_COLUMNS, terminal_share_text(lines[i].new, whole, text), muted);
  }
}

/* ---- Stacks ---- */

/* The rows of a list that are in view: from `first`, `count` of them. */
typedef struct window {
  size_t first, count;
} window;

static window window_of(const terminal_model *m, size_t all, uint32_t room) {
  window w = {0, all < room ? all : room};
  if (room && m->selected >= room) w.first = m->selected - room + 1;
  if (w.first + w.count > all) w.first = all - w.count;
  return w;
}

/* Where names go: into rows that numbers are drawn in already. */
typedef struct names {
  terminal_grid *grid;
  terminal_box box; /* of the names alone */
  const terminal_model *m;
  window w;
} names;

static terminal_style row_style(const terminal_model *m, size_t row) {
  return (terminal_style){.weight = row == m->selected ? TERMINAL_REVERSE : 0};
}

/* A tsr_stack_name_fn. */
static void put_name(void *context, size_t row, tsr_text text) {
  const names *n = context;
  const terminal_track *t = &n->m->tracks[n->m->active];
  size_t at = n->w.first + row;
  const terminal_share *share = n->m->tab == TERMINAL_TAB_TABLE ? &t->shares.items[at] : NULL;
  if (n->m->tab == TERMINAL_TAB_DIFFERENCE)
    share = n->m->changes.items[at].new ? n->m->changes.items[at].new : n->m->changes.items[at].old;
  if (share && share->stack == TSR_NONE) {
    const char *words = terminal_no_stack(t->device, share->row);
    text = (tsr_text){words, strlen(words)};
  }
  terminal_span span = {n->grid, n->box.row + (uint32_t)row, n->box.column, n->box.columns};
  (void)terminal_text(span, text, row_style(n->m, at));
}

static int draw_names(names *n) {
  tsr_named_stack *rows = calloc(n->w.count + 1, sizeof *rows);
  if (!rows) return TSR_ERROR_MEMORY;
  for (size_t i = 0; i < n->w.count; i++) {
    size_t file;
    uint32_t stack = terminal_model_stack(n->m, n->w.first + i, &file);
    rows[i] = (tsr_named_stack){n->m->files[file].namer, stack};
  }
  int status = tsr_stacks_name(rows, n->w.count, n->box.columns, put_name, n, NULL);
  free(rows);
  return status;
}

static void draw_place(const terminal_model *m, terminal_span span, size_t all) {
  char text[LINE_BYTES], a[TERMINAL_NUMBER_BYTES], b[TERMINAL_NUMBER_BYTES];
  if (all)
    (void)snprintf(text, sizeof text, "%s of %s", terminal_count_text(m->selected + 1, a),
                   terminal_count_text(all, b));
  if (all) terminal_words_right(span, text, muted);
}

/* The row of a list, with the mark of the one that is selected. */
static terminal_span list_row(const terminal_model *m, terminal_grid *grid, terminal_box box,
                              size_t i, const window *w) {
  terminal_span span = {grid, box.row + 1 + (uint32_t)i, box.column, box.columns};
  terminal_fill(span, row_style(m, w->first + i));
  return span;
}

static int draw_shares(const terminal_model *m, terminal_grid *grid, terminal_box box) {
  const terminal_track *t = &m->tracks[m->active];
  const terminal_shares *shares = &t->shares;
  window w = window_of(m, shares->count, box.rows - 1);
  char text[TERMINAL_NUMBER_BYTES];
  bool has_count = box.columns >= MIDDLE, has_share = box.columns >= MIDDLE + SHARE_COLUMNS + 1;
  terminal_span head = {grid, box.row, box.column, box.columns};
  draw_place(m, head, shares->count);
  (void)take(&head, 1);
  put_right(&head, SIZE_COLUMNS, "bytes", heading);
  if (has_share) put_right(&head, SHARE_COLUMNS, "share", heading);
  if (has_count) put_right(&head, COUNT_COLUMNS, "count", heading);
  (void)terminal_words(head, "allocated at", heading);
  for (size_t i = 0; i < w.count; i++) {
    const terminal_share *share = &shares->items[w.first + i];
    terminal_span rest = list_row(m, grid, box, i, &w);
    terminal_style style = row_style(m, w.first + i);
    terminal_group_sign(take(&rest, 1), t->sums.grouping, share->group);
    put_size(&rest, share->bytes, style);
    if (has_share)
      put_right(&rest, SHARE_COLUMNS, terminal_share_text(share->bytes, shares->bytes, text),
                style);
    if (has_count) put_right(&rest, COUNT_COLUMNS, terminal_count_text(share->count, text), style);
  }
  names n = {grid, {box.row + 1, head.column, (uint32_t)w.count, head.columns}, m, w};
  return draw_names(&n);
}

static int draw_changes(const terminal_model *m, terminal_grid *grid, terminal_box box) {
  window w = window_of(m, m->changes.count, box.rows - 1);
  terminal_span head = {grid, box.row, box.column, box.columns};
  bool has_size = box.columns >= MIDDLE;
  draw_place(m, terminal_part(head, SIZE_COLUMNS + 14, UINT32_MAX), m->changes.count);
  put_right(&head, SIZE_COLUMNS, "difference", heading);
  if (has_size) put_right(&head, SIZE_COLUMNS, m->file_count > 1 ? "second" : "cursor", heading);
  (void)terminal_words(head, "allocated at", heading);
  if (!w.count)
    (void)terminal_words((terminal_span){grid, box.row + 1, box.column, box.columns},
                         "no stack differs", muted);
  for (size_t i = 0; i < w.count; i++) {
    const terminal_change *change = &m->changes.items[w.first + i];
    terminal_span rest = list_row(m, grid, box, i, &w);
    terminal_style style = row_style(m, w.first + i);
    put_delta(&rest, terminal_old_bytes(change), terminal_new_bytes(change), style);
    if (has_size) put_size(&rest, terminal_new_bytes(change), style);
  }
  names n = {grid, {box.row + 1, head.column, (uint32_t)w.count, head.columns}, m, w};
  return draw_names(&n);
}

/* ---- Events ---- */

static void draw_events(const terminal_model *m, terminal_grid *grid, terminal_box box) {
  const terminal_track *t = &m->tracks[m->active];
  const tsr_snapshot *snapshot = m->files[t->file].snapshot;
  tsr_events events = tsr_snapshot_events(snapshot, t->device->device);
  uint32_t rows = box.rows - 1;
  uint64_t now = t->moment ? t->moment - 1 : 0, first = now > rows / 2 ? now - rows / 2 : 0;
  char text[LINE_BYTES], number[TERMINAL_NUMBER_BYTES];
  terminal_span head = {grid, box.row, box.column, box.columns};
  if (first + rows > events.count) first = events.count > rows ? events.count - rows : 0;
  put_right(&head, SIZE_COLUMNS, "event", heading);
  (void)terminal_words(head, "what it did", heading);
  if (!events.count)
    (void)terminal_words((terminal_span){grid, box.row + 1, box.column, box.columns}, "no events",
                         muted);
  for (uint32_t i = 0; i < rows && first + i < events.count; i++) {
    uint64_t event = first + i;
    terminal_span span = {grid, box.row + 1 + i, box.column, box.columns};
    terminal_style style = {.weight = t->moment && event == now ? TERMINAL_REVERSE : 0};
    put_right(&span, SIZE_COLUMNS, terminal_count_text(event, number), style);
    terminal_event_text(snapshot, t->device->device, (int64_t)event, text, sizeof text);
    size_t used = strlen(text);
    (void)snprintf(text + used, sizeof text - used, " at 0x%" PRIx64, events.addr[event]);
    (void)terminal_words(span, text, style);
  }
}

/* ---- One stack ---- */

static void draw_frame(const tsr_snapshot *snapshot, uint32_t id, terminal_span span) {
  tsr_frame frame = tsr_snapshot_frame(snapshot, id);
  tsr_text name = tsr_snapshot_string(snapshot, frame.name),
           file = tsr_snapshot_string(snapshot, frame.file);
  bool is_own = tsr_frame_origin(name, file) == TSR_ORIGIN_USER;
  terminal_style style = is_own ? (terminal_style){.weight = TERMINAL_BOLD} : muted;
  char number[TERMINAL_NUMBER_BYTES] = "";
  tsr_text base = span.columns < WIDE ? tsr_base_name(file) : file;
  if (file.size_bytes == 2 && memcmp(file.data, "??", 2) == 0) base.size_bytes = 0;
  if (frame.line && frame.line != TSR_LINE_UNKNOWN)
    (void)snprintf(number, sizeof number, ":%" PRIu64, frame.line);
  uint32_t used = terminal_text(span, base, style);
  used += terminal_words(terminal_part(span, used, UINT32_MAX), number, style);
  (void)terminal_text(terminal_part(span, used + (used > 0), UINT32_MAX),
                      tsr_frame_title(name, NULL), style);
}

/* Innermost last, as in other reports; the end is in view first. */
static void draw_stack(terminal_model *m, terminal_grid *grid, terminal_box box) {
  size_t file;
  uint32_t id = terminal_model_stack(m, m->selected, &file), rows = box.rows - 1;
  const tsr_snapshot *snapshot = m->files[file].snapshot;
  tsr_stack stack = tsr_snapshot_stack(snapshot, id);
  terminal_span head = {grid, box.row, box.column, box.columns};
  size_t most = stack.depth > rows ? stack.depth - rows : 0;
  char text[LINE_BYTES];
  if (m->scroll > most) m->scroll = most;
  (void)snprintf(text, sizeof text, "stack of row %zu, %" PRIu32 " frames, innermost last",
                 m->selected + 1, stack.depth);
  (void)terminal_words(head, text, heading);
  size_t shown = stack.depth < rows ? stack.depth : rows;
  for (size_t i = 0; i < shown; i++) {
    size_t depth = m->scroll + shown - 1 - i; /* from the innermost */
    draw_frame(snapshot, stack.frames[depth],
               (terminal_span){grid, box.row + 1 + (uint32_t)i, box.column, box.columns});
  }
}

/* ---- Both sides ---- */

int terminal_lists_draw(terminal_model *m, terminal_grid *grid, terminal_box box) {
  terminal_ends ends;
  bool differs = terminal_model_ends(m, &ends);
  if (box.rows < 2) return 0;
  m->list_rows = box.rows - 1;
  if (m->is_stack_open) {
    draw_stack(m, grid, box);
    return 0;
  }
  bool has_more = box.columns >= WIDE;
  uint32_t left = 2 + name_columns(has_more) + 1 + SIZE_COLUMNS;
  if (differs) left += SIZE_COLUMNS + 1;
  if (has_more) left += (differs ? SIZE_COLUMNS + 1U : SHARE_COLUMNS + 1U);
  if (left > box.columns) left = box.columns;
  draw_groups(m, grid, (terminal_box){box.row, box.column, box.rows, left}, differs ? &ends : NULL,
              has_more);
  left += 2;
  if (left + SIZE_COLUMNS + 8 > box.columns) return 0;
  terminal_box right = {box.row, box.column + left, box.rows, box.columns - left};
  if (m->tab == TERMINAL_TAB_EVENTS) draw_events(m, grid, right);
  if (m->tab == TERMINAL_TAB_EVENTS) return 0;
  return m->tab == TERMINAL_TAB_TABLE ? draw_shares(m, grid, right) : draw_changes(m, grid, right);
}
