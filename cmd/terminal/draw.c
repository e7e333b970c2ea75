/* draw.c - see draw.h. From top to bottom, with one file and with two:
 *
 *   what is shown                    what is shown
 *   marks: peak, out of memory       marks of the first file
 *   memory over time                 its memory over time
 *   axis of events                   its chosen moment
 *   the chosen moment: its event     the same of the second file
 *   ... and its bytes                axis of events
 *   groups | stacks                  groups | stacks
 *   keys, search, or a message       keys, search, or a message
 */
#include "draw.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tessera/unstable/attribution.h>
#include <tessera/unstable/frames.h>
#include <tessera/unstable/params.h>

#include "lists.h"

enum { LABEL_COLUMNS = 11, LEFT = LABEL_COLUMNS + 1, LINE_BYTES = 512 };

static const terminal_style plain = {0}, bold = {.weight = TERMINAL_BOLD},
                            muted = {.color = TERMINAL_MUTED},
                            alarm = {TERMINAL_ALARM, TERMINAL_BOLD},
                            accent = {TERMINAL_ACCENT, TERMINAL_BOLD};

static terminal_span part_after(terminal_span span, uint32_t used) {
  return terminal_part(span, used, UINT32_MAX);
}

/* Add words to a line that is being put together; what does not fit is left out. */
static void add(char line[LINE_BYTES], const char *separator, const char *words) {
  size_t used = strlen(line);
  if (*words) (void)snprintf(line + used, LINE_BYTES - used, "%s%s", used ? separator : "", words);
}

static const char *device_text(uint32_t device, char *out, size_t room) {
  if (device == TSR_DEVICE_HOST)
    (void)snprintf(out, room, "pinned host memory");
  else if (device == TSR_DEVICE_CPU)
    (void)snprintf(out, room, "CPU memory");
  else
    (void)snprintf(out, room, "device %" PRIu32, device);
  return out;
}

static tsr_text base_of(const char *path) {
  return tsr_base_name((tsr_text){path, strlen(path)});
}

/* ---- The first and the last line ---- */

static void draw_title(const terminal_model *m, terminal_span span) {
  const terminal_track *t = &m->tracks[m->active];
  const terminal_file *file = &m->files[t->file];
  char text[LINE_BYTES], device[40];
  size_t number = 0, count = 0;
  static const char keys[] = "? help  Q quit ";
  for (size_t i = 0; i < m->track_count; i++) {
    count += m->tracks[i].file == t->file;
    number += m->tracks[i].file == t->file && i <= m->active;
  }
  terminal_words_right(span, keys, muted);
  span = terminal_part(
      span, 1, span.columns > sizeof keys + 2 ? span.columns - 2 - (uint32_t)sizeof keys : 0);
  (void)snprintf(text, sizeof text, "%s", device_text(t->device->device, device, sizeof device));
  if (count > 1) (void)snprintf(text, sizeof text, "%s (%zu of %zu)", device, number, count);
  add(text, ", by ", t->sums.grouping->title);
  uint32_t width = (uint32_t)strlen(text) + 2;
  uint32_t room = span.columns > width ? span.columns - width : span.columns;
  tsr_text path = {file->path, strlen(file->path)};
  if (terminal_width(span.grid->traits, path) > room) path = base_of(file->path);
  uint32_t used = terminal_text(terminal_part(span, 0, room), path, bold);
  (void)terminal_words(part_after(span, used + 2), text, muted);
}

static void draw_foot(const terminal_model *m, terminal_span span) {
  static const char *const hints[] = {"W/S zoom", "A/D move",    "Left/Right moment", "P peak",
                                      "/ search", "Enter stack", "G group",           "M mark",
                                      "N next",   NULL};
  span = terminal_part(span, 1, UINT32_MAX);
  if (m->is_typing) {
    uint32_t used = terminal_words(span, "search: ", accent);
    used += terminal_words(part_after(span, used), m->typed, plain);
    (void)terminal_words(part_after(span, used), " ", (terminal_style){.weight = TERMINAL_REVERSE});
  } else if (m->message[0]) {
    (void)terminal_words(span, m->message, accent);
  } else {
    uint32_t used = 0;
    for (size_t i = 0; hints[i]; i++) {
      uint32_t width = (uint32_t)strlen(hints[i]);
      if (strcmp(hints[i], "N next") == 0 && m->track_count == 1) continue;
      if (used + width > span.columns) break;
      used += terminal_words(part_after(span, used), hints[i], muted) + 2;
    }
  }
}

/* ---- Marks ---- */

/* The columns of the line of marks that are in use. Signs come first, then the peak's words, then the steps': words go where
 * nothing is, with a blank to what is next to them, or are left out. */
typedef struct mark_line {
  bool is_used[TERMINAL_COLUMNS_MAX];
  uint32_t columns;
} mark_line;

static bool is_free(const mark_line *line, uint32_t from, uint32_t width) {
  if (from > line->columns || width > line->columns - from) return false;
  uint32_t end = from + width < line->columns ? from + width + 1 : line->columns;
  for (uint32_t i = from ? from - 1 : 0; i < end; i++)
    if (line->is_used[i]) return false;
  return true;
}

static void use(mark_line *line, uint32_t from, uint32_t width) {
  for (uint32_t i = from; i < from + width && i < line->columns; i++) line->is_used[i] = true;
}

/* Numbers of steps where they begin, if there is room between them. */
static void draw_steps(const terminal_model *m, const terminal_track *t, terminal_span span,
                       mark_line *line) {
  const tsr_view_device *d = t->device;
  bool is_first = true;
  for (size_t i = 0; i < d->range_count; i++) {
    char text[TERMINAL_NUMBER_BYTES];
    uint32_t column;
    if (d->ranges[i].kind != TSR_VIEW_STEP) continue;
    if (!terminal_chart_column(m, d->ranges[i].born, span.columns, &column)) continue;
    (void)snprintf(text, sizeof text, "%s%" PRIu32, is_first ? "step " : "", d->ranges[i].name);
    uint32_t width = 1 + (uint32_t)strlen(text);
    if (!is_free(line, column, width)) continue;
    terminal_sign(part_after(span, column), 0x2575, '\'', muted);
    (void)terminal_words(part_after(span, column + 1), text, muted);
    use(line, column, width + 1);
    is_first = false;
  }
}

/* To the right of its sign, and of signs that follow it closely; or else to the left. */
static void draw_peak(const terminal_track *t, uint32_t column, terminal_span span,
                      mark_line *line) {
  enum { CLOSE = 6 };
  char text[LINE_BYTES], size[TERMINAL_NUMBER_BYTES];
  (void)snprintf(text, sizeof text, "peak %s",
                 tsr_size_text(t->device->peak_totals.allocated_bytes, size, sizeof size));
  uint32_t width = (uint32_t)strlen(text), at = column + 2;
  while (at < column + CLOSE && !is_free(line, at, width)) at++;
  if (!is_free(line, at, width)) {
    at = column > width ? column - width - 1 : 0;
    while (at && at + width + CLOSE > column && !is_free(line, at, width)) at--;
  }
  if (!is_free(line, at, width)) return;
  (void)terminal_words(part_after(span, at), text, bold);
  use(line, at, width);
}

static void draw_marks(const terminal_model *m, const terminal_track *t, terminal_span span) {
  const tsr_view_device *d = t->device;
  mark_line line = {.columns =
                        span.columns < TERMINAL_COLUMNS_MAX ? span.columns : TERMINAL_COLUMNS_MAX};
  uint32_t column, peak = 0;
  bool has_peak = terminal_chart_column(m, d->peak, span.columns, &peak);
  if (has_peak) {
    terminal_sign(part_after(span, peak), 0x25bc, 'v', bold);
    use(&line, peak, 1);
  }
  for (size_t i = 0; i < d->mark_count; i++)
    if (terminal_chart_column(m, d->marks[i].moment, span.columns, &column)) {
      bool is_failure = d->marks[i].action == TSR_ACTION_OOM;
      if (!is_failure && has_peak && column == peak) continue;
      terminal_sign(part_after(span, column), is_failure ? '!' : 's', is_failure ? '!' : 's',
                    is_failure ? alarm : muted);
      use(&line, column, 1);
    }
  if (m->has_mark && &m->tracks[m->mark_track] == t &&
      terminal_chart_column(m, m->mark_moment, span.columns, &column)) {
    terminal_sign(part_after(span, column), 'A', 'A', accent);
    use(&line, column, 1);
  }
  if (has_peak) draw_peak(t, peak, span, &line);
  draw_steps(m, t, span, &line);
}

/* ---- The chosen moment, in words ---- */

/* The range of a kind that began last of those that are open; NULL if none is. */
static const tsr_view_range *range_at(const tsr_view_device *d, tsr_view_range_kind kind,
                                      uint32_t moment) {
  const tsr_view_range *found = NULL;
  for (size_t i = 0; i < d->range_count; i++) {
    const tsr_view_range *range = &d->ranges[i];
    if (range->kind == kind && range->born <= moment && moment < range->died &&
        (!found || range->born >= found->born))
      found = range;
  }
  return found;
}

/* "step 3, backward, in forward_pass". */
static void add_ranges(const terminal_model *m, const terminal_track *t, bool has_annotations,
                       char line[LINE_BYTES]) {
  const tsr_snapshot *snapshot = m->files[t->file].snapshot;
  const tsr_view_range *step = range_at(t->device, TSR_VIEW_STEP, t->moment);
  const tsr_view_range *phase = range_at(t->device, TSR_VIEW_PHASE, t->moment);
  static const struct {
    tsr_view_range_kind kind;
    const char *format;
  } texts[] = {{TSR_VIEW_ANNOTATION, "in %.*s"}, {TSR_VIEW_METADATA, "metadata %.*s"}};
  char text[LINE_BYTES / 2];
  if (step) {
    (void)snprintf(text, sizeof text, "step %" PRIu32, step->name);
    add(line, "  ", text);
  }
  if (phase && phase->name != TSR_PHASE_UNKNOWN)
    add(line, step ? ", " : "  ", tsr_phase_name((tsr_phase)phase->name));
  for (size_t i = 0; has_annotations && i < sizeof texts / sizeof *texts; i++) {
    const tsr_view_range *range = range_at(t->device, texts[i].kind, t->moment);
    if (!range) continue;
    tsr_text name = tsr_snapshot_string(snapshot, range->name);
    int length = name.size_bytes < 200 ? (int)name.size_bytes : 200;
    (void)snprintf(text, sizeof text, texts[i].format, length, name.data ? name.data : "");
    add(line, "  ", text);
  }
}

/* The file has no history: what it shows, and how to get more. */
static bool describe_lack(const terminal_track *t, char line[LINE_BYTES]) {
  char number[TERMINAL_NUMBER_BYTES];
  uint64_t count = t->device->event_count;
  if (t->device->has_history) return false;
  if (count)
    (void)snprintf(line, LINE_BYTES, "no history was recorded, only %s event%s",
                   terminal_count_text(count, number), count == 1 ? "" : "s");
  else
    (void)snprintf(line, LINE_BYTES, "no events were recorded, only one moment");
  add(line, "", "; `with tessera.record():` records");
  return true;
}

/* The words about a moment, from all of them to the fewest. */
typedef enum moment_words {
  WHOLE,
  NO_ANNOTATION,
  NO_COUNT,
  NO_OPERATION,
  NUMBER_ONLY
} moment_words;

static void describe_moment(const terminal_model *m, const terminal_track *t, moment_words words,
                            char line[LINE_BYTES]) {
  char text[LINE_BYTES / 2], number[TERMINAL_NUMBER_BYTES], count[TERMINAL_NUMBER_BYTES];
  const tsr_snapshot *snapshot = m->files[t->file].snapshot;
  line[0] = '\0';
  if (describe_lack(t, line)) return;
  terminal_count_text(t->device->event_count, count);
  if (t->moment) {
    bool has_count = words < NO_COUNT;
    (void)snprintf(line, LINE_BYTES, "event %s%s%s", terminal_count_text(t->moment - 1, number),
                   has_count ? " of " : "", has_count ? count : "");
    terminal_event_text(snapshot, t->device->device, (int64_t)t->moment - 1, text, sizeof text);
    if (words < NO_OPERATION) add(line, ": ", text);
  } else {
    (void)snprintf(line, LINE_BYTES,
                   words < NO_COUNT ? "before the first of %s events" : "before the first event",
                   count);
  }
  if (words < NUMBER_ONLY) add_ranges(m, t, words < NO_ANNOTATION, line);
}

/* As much of it as fits. */
static void describe_in(const terminal_model *m, const terminal_track *t,
                        const terminal_traits *traits, uint32_t columns, char line[LINE_BYTES]) {
  for (int words = WHOLE; words <= NUMBER_ONLY; words++) {
    describe_moment(m, t, (moment_words)words, line);
    if (terminal_width(traits, (tsr_text){line, strlen(line)}) <= columns) return;
  }
}

/* Append words to a line, unless it would become wider than `columns`. */
static void add_if_room(char line[LINE_BYTES], uint32_t columns, const char *words) {
  if (strlen(line) + strlen(words) + 2 <= columns) add(line, ", ", words);
}

static void describe_bytes(const terminal_track *t, char line[LINE_BYTES], uint32_t columns) {
  char text[LINE_BYTES / 2], a[TERMINAL_NUMBER_BYTES], b[TERMINAL_NUMBER_BYTES];
  uint64_t bytes[TSR_VIEW_GROUPS_MAX], requested = 0;
  uint64_t allocated = t->history.allocated[t->moment];
  terminal_sums_at(&t->sums, &t->history, t->moment, bytes);
  for (size_t g = 0; g < TSR_VIEW_GROUPS_MAX; g++) requested += bytes[g];
  (void)snprintf(line, LINE_BYTES, "%s allocated of %s reserved",
                 tsr_size_text(allocated, a, sizeof a),
                 tsr_size_text(terminal_history_reserved(&t->history, t->moment), b, sizeof b));
  if (t->is_found) {
    (void)snprintf(text, sizeof text, "found %s, %s", tsr_size_text(t->shares.bytes, a, sizeof a),
                   terminal_share_text(t->shares.bytes, requested, b));
    add_if_room(line, columns, text);
  } else if (t->device->has_history && t->shares.older_bytes) {
    (void)snprintf(text, sizeof text, "%s of it from before the recording",
                   tsr_size_text(t->shares.older_bytes, a, sizeof a));
    add_if_room(line, columns, text);
  }
  (void)snprintf(text, sizeof text, "%s requested", tsr_size_text(requested, a, sizeof a));
  add_if_room(line, columns, text);
  (void)snprintf(text, sizeof text, "%s of the peak",
                 terminal_share_text(allocated, t->device->peak_totals.allocated_bytes, a));
  if (t->device->has_history) add_if_room(line, columns, text);
}

/* ---- The timelines ---- */

static void draw_labels(terminal_grid *grid, terminal_box box, terminal_scale scale) {
  for (uint32_t i = 0; i < box.rows; i++) {
    char text[TERMINAL_NUMBER_BYTES];
    terminal_span span = {grid, box.row + i, 0, LEFT};
    bool is_labelled = i == 0 || i + 1 == box.rows || (box.rows >= 7 && i == box.rows / 2);
    terminal_sign(part_after(span, LABEL_COLUMNS), is_labelled ? 0x2524 : 0x2502, '|', muted);
    if (!is_labelled) continue;
    uint64_t from_top = (uint64_t)((double)(scale.high - scale.low) * i / box.rows);
    uint64_t bytes = i + 1 == box.rows && i ? scale.low : scale.high - from_top;
    terminal_words_right(terminal_part(span, 0, LABEL_COLUMNS - 1),
                         tsr_size_text(bytes, text, sizeof text), muted);
  }
}

static void draw_axis(const terminal_model *m, terminal_span span) {
  const terminal_track *t = &m->tracks[m->active];
  char text[TERMINAL_NUMBER_BYTES], number[TERMINAL_NUMBER_BYTES];
  uint32_t column;
  terminal_words_right(terminal_part(span, 0, LABEL_COLUMNS - 1), "event", muted);
  span = part_after(span, LEFT);
  bool has_moment = terminal_chart_column(m, t->moment, span.columns, &column);
  if (m->to > m->from + 1) {
    (void)snprintf(text, sizeof text, "%s",
                   m->from ? terminal_count_text(m->from - 1, number) : "-1");
    if (!has_moment || column >= strlen(text)) (void)terminal_words(span, text, muted);
    terminal_count_text(m->to - 2, number);
    if (!has_moment || column + strlen(number) < span.columns)
      terminal_words_right(span, number, muted);
  }
  if (has_moment) terminal_sign(part_after(span, column), 0x25b2, '^', accent);
}

static int draw_pane(const terminal_model *m, size_t file, terminal_grid *grid, uint32_t row,
                     uint32_t rows, terminal_scale scale) {
  const terminal_track *t = &m->tracks[m->shown[file]];
  terminal_box box = {row + 1, LEFT, rows, grid->columns > LEFT + 1 ? grid->columns - LEFT - 1 : 0};
  if (m->file_count > 1)
    (void)terminal_words((terminal_span){grid, row, 1, LABEL_COLUMNS - 1},
                         file ? "second" : "first", m->shown[file] == m->active ? accent : muted);
  draw_marks(m, t, (terminal_span){grid, row, LEFT, box.columns});
  draw_labels(grid, box, scale);
  return terminal_chart_draw(m, t, scale, grid, box);
}

/* Of two files, each has one line below its timeline. */
static void draw_side(const terminal_model *m, size_t file, terminal_span span) {
  const terminal_track *t = &m->tracks[m->shown[file]];
  char line[LINE_BYTES], text[LINE_BYTES], a[TERMINAL_NUMBER_BYTES], b[TERMINAL_NUMBER_BYTES];
  bool is_active = m->shown[file] == m->active;
  uint32_t used = terminal_text(terminal_part(span, 1, span.columns / 3),
                                base_of(m->files[t->file].path), is_active ? accent : muted);
  (void)snprintf(line, sizeof line, "%s of %s",
                 tsr_size_text(t->history.allocated[t->moment], a, sizeof a),
                 tsr_size_text(terminal_history_reserved(&t->history, t->moment), b, sizeof b));
  if (t->is_found) {
    (void)snprintf(text, sizeof text, "found %s", tsr_size_text(t->shares.bytes, a, sizeof a));
    add(line, ", ", text);
  }
  span = part_after(span, used + 2);
  uint32_t width = (uint32_t)strlen(line) + 2;
  describe_in(m, t, span.grid->traits, span.columns > width ? span.columns - width : 0, text);
  add(line, "  ", text);
  (void)terminal_words(span, line, is_active ? plain : muted);
}

/* ---- The whole ---- */

typedef struct layout {
  uint32_t chart, list; /* rows of each timeline, and of the lower part with its heading */
} layout;

static layout lay_out(const terminal_model *m, uint32_t rows) {
  uint32_t panes = (uint32_t)m->file_count, fixed = panes > 1 ? 3 + 2 * panes : 6;
  uint32_t left = rows > fixed ? rows - fixed : 0;
  uint32_t list = left * 9 / 20;
  if (list < 5) list = left < 8 ? left / 2 : 5;
  return (layout){(left - list) / panes, list + (left - list) % panes};
}

static int draw_screen(terminal_model *m, terminal_grid *grid) {
  layout at = lay_out(m, grid->rows);
  uint32_t row = 1;
  char line[LINE_BYTES];
  m->chart_columns = grid->columns > LEFT + 1 ? grid->columns - LEFT - 1 : 1;
  terminal_scale scale = terminal_chart_scale(m, m->chart_columns);
  int status = 0;
  draw_title(m, terminal_row(grid, 0));
  for (size_t i = 0; status == 0 && i < m->file_count; i++) {
    status = draw_pane(m, i, grid, row, at.chart, scale);
    row += at.chart + 1;
    if (m->file_count > 1) draw_side(m, i, terminal_row(grid, row++));
  }
  draw_axis(m, terminal_part(terminal_row(grid, row++), 0, grid->columns - 1));
  if (m->file_count == 1) {
    const terminal_track *t = &m->tracks[m->active];
    describe_in(m, t, grid->traits, grid->columns - 2, line);
    (void)terminal_words(part_after(terminal_row(grid, row++), 1), line, bold);
    describe_bytes(t, line, grid->columns - 2);
    (void)terminal_words(part_after(terminal_row(grid, row++), 1), line, plain);
  }
  if (status == 0)
    status = terminal_lists_draw(m, grid, (terminal_box){row, 1, at.list, grid->columns - 2});
  draw_foot(m, terminal_row(grid, grid->rows - 1));
  return status;
}

/* How much of the text fits into a line: up to a blank, or all of it. */
static size_t fitting(const char *text, size_t columns) {
  size_t length = strlen(text), at = columns;
  if (length <= columns) return length;
  while (at && text[at] != ' ') at--;
  return at ? at : columns;
}

enum { HELP_COLUMN = 14 };

static void draw_help(terminal_model *m, terminal_grid *grid) {
  const char *keys, *text;
  size_t room = grid->columns - HELP_COLUMN - 1, line = 0, first, rows = grid->rows - 2;
  first = m->help_page * rows;
  (void)terminal_words(part_after(terminal_row(grid, 0), 2),
                       "Keys, as on the page of `tessera view -o page.html`", bold);
  for (uint32_t i = 0; terminal_model_help(i, &keys, &text); i++)
    for (bool is_first = true; is_first || *text; is_first = false, line++) {
      char part[LINE_BYTES];
      size_t length = fitting(text, room);
      (void)snprintf(part, sizeof part, "%.*s", (int)length, text);
      text += length + (text[length] == ' ');
      if (line < first || line >= first + rows) continue;
      terminal_span span = terminal_row(grid, (uint32_t)(line - first + 1));
      if (is_first) (void)terminal_words(part_after(span, 2), keys, accent);
      (void)terminal_words(part_after(span, HELP_COLUMN), part, plain);
    }
  m->has_more_help = line > first + rows;
  (void)terminal_words(part_after(terminal_row(grid, grid->rows - 1), 2),
                       m->has_more_help ? "? shows more; any other key ends this help"
                                        : "any key ends this help",
                       muted);
}

int terminal_draw(terminal_model *m, terminal_grid *grid) {
  if (grid->rows < TERMINAL_LEAST_ROWS || grid->columns < TERMINAL_LEAST_COLUMNS) {
    char text[LINE_BYTES];
    (void)snprintf(text, sizeof text, "the terminal is smaller than %d columns and %d rows",
                   TERMINAL_LEAST_COLUMNS, TERMINAL_LEAST_ROWS);
    if (grid->rows) (void)terminal_words(terminal_row(grid, 0), text, plain);
    return 0;
  }
  if (!m->is_help) return draw_screen(m, grid);
  draw_help(m, grid);
  return 0;
}
