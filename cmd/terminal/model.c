/* model.c - see model.h. Keys are those of the page (viewer/src/keys.ts) wherever it has a key for the same thing. */
#define _POSIX_C_SOURCE 200809L

#include "model.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/frames.h>

enum {
  LEAST_MOMENTS = 8, /* in view, at least, if there are as many */
  STRETCH_MOST = 40,
  FOCUS_PART = 12, /* of all moments, what F shows around the cursor */
};

/* ---- Tracks ---- */

static const tsr_snapshot *snapshot_of(const terminal_model *m, const terminal_track *t) {
  return m->files[t->file].snapshot;
}

static uint32_t moments_of(const terminal_track *t) {
  return (uint32_t)t->device->event_count + 1;
}

/* Moments that can be in view. */
static uint32_t extent_of(const terminal_model *m) {
  uint32_t most = 1;
  for (size_t i = 0; i < m->file_count; i++) {
    uint32_t count = moments_of(&m->tracks[m->shown[i]]);
    if (count > most) most = count;
  }
  return most;
}

static void forget_shares(terminal_model *m, terminal_track *t) {
  terminal_shares_release(&t->shares);
  t->has_shares = false;
  terminal_changes_release(&m->changes);
  m->has_changes = false;
}

/* The device's grouping with a key; the first, by category, if it has none. */
static size_t grouping_with(const tsr_view_device *d, const char *key) {
  for (size_t i = 0; i < d->grouping_count; i++)
    if (strcmp(d->groupings[i].key, key) == 0) return i;
  return 0;
}

static int group(terminal_model *m, terminal_track *t) {
  size_t wanted = grouping_with(t->device, m->by);
  if (t->sums.at_block && t->grouping == wanted) return 0;
  const tsr_view_grouping *grouping = &t->device->groupings[wanted];
  terminal_sums_release(&t->sums);
  terminal_sums_release(&t->found);
  forget_shares(m, t);
  terminal_shares_release(&m->mark_shares);
  t->grouping = wanted;
  if (!terminal_sums_make(&t->sums, &t->history, grouping, NULL)) return TSR_ERROR_MEMORY;
  terminal_sums_order(&t->sums, &t->history, t->order);
  return 0;
}

static int search(terminal_model *m, terminal_track *t) {
  bool is_same = t->search && strcmp(t->search, m->search) == 0;
  if (!is_same) {
    free(t->search);
    free(t->is_found);
    terminal_sums_release(&t->found);
    forget_shares(m, t);
    terminal_shares_release(&m->mark_shares);
    t->is_found = NULL;
    t->found_count = 0;
    t->search = strdup(m->search);
    if (!t->search) return TSR_ERROR_MEMORY;
    int status = terminal_search(snapshot_of(m, t), t->device, m->search, &t->is_found);
    if (status) return status;
    for (size_t row = 0; t->is_found && row < t->device->allocation_count; row++)
      t->found_count += t->is_found[row];
  }
  if (!t->is_found || t->found.at_block) return 0;
  return terminal_sums_make(&t->found, &t->history, t->sums.grouping, t->is_found)
             ? 0
             : TSR_ERROR_MEMORY;
}

static int share_out(terminal_model *m, terminal_track *t) {
  if (t->has_shares && t->shares_moment == t->moment) return 0;
  forget_shares(m, t);
  int status = terminal_shares_make(snapshot_of(m, t), &t->history,
                                    t->is_found ? &t->found : &t->sums, t->moment, &t->shares);
  t->has_shares = status == 0;
  t->shares_moment = t->moment;
  return status;
}

static int make_ready(terminal_model *m, terminal_track *t) {
  if (!t->is_ready && !terminal_history_make(&t->history, t->device)) return TSR_ERROR_MEMORY;
  t->is_ready = true;
  int status = group(m, t);
  if (!status) status = search(m, t);
  return status ? status : share_out(m, t);
}

static int mark_again(terminal_model *m) {
  terminal_track *t = &m->tracks[m->mark_track];
  terminal_changes_release(&m->changes);
  m->has_changes = false;
  return terminal_shares_make(snapshot_of(m, t), &t->history, t->is_found ? &t->found : &t->sums,
                              m->mark_moment, &m->mark_shares);
}

bool terminal_model_ends(const terminal_model *m, terminal_ends *ends) {
  const terminal_track *now = &m->tracks[m->active];
  if (m->file_count == TERMINAL_FILES) {
    for (size_t i = 0; i < TERMINAL_FILES; i++) {
      const terminal_track *t = &m->tracks[m->shown[i]];
      ends->track[i] = t;
      ends->moment[i] = t->moment;
      ends->shares[i] = &t->shares;
    }
    return true;
  }
  if (!m->has_mark) return false;
  *ends = (terminal_ends){{&m->tracks[m->mark_track], now},
                          {m->mark_moment, now->moment},
                          {&m->mark_shares, &now->shares}};
  return true;
}

static int compare(terminal_model *m) {
  terminal_ends ends;
  if (m->has_changes || m->tab != TERMINAL_TAB_DIFFERENCE || !terminal_model_ends(m, &ends))
    return 0;
  terminal_changes_release(&m->changes);
  int status = terminal_changes_make((terminal_side){snapshot_of(m, ends.track[0]), ends.shares[0]},
                                     (terminal_side){snapshot_of(m, ends.track[1]), ends.shares[1]},
                                     &m->changes);
  m->has_changes = status == 0;
  return status;
}

/* Make what is shown and not there yet. */
static int update(terminal_model *m) {
  int status = 0;
  for (size_t i = 0; status == 0 && i < m->file_count; i++)
    status = make_ready(m, &m->tracks[m->shown[i]]);
  if (status == 0 && m->has_mark) status = make_ready(m, &m->tracks[m->mark_track]);
  if (status == 0 && m->has_mark && !m->mark_shares.items) status = mark_again(m);
  if (status == 0) status = compare(m);
  size_t count = terminal_model_list_count(m);
  if (m->selected >= count) m->selected = count ? count - 1 : 0;
  return status;
}

/* ---- Lists ---- */

size_t terminal_model_list_count(const terminal_model *m) {
  const terminal_track *t = &m->tracks[m->active];
  if (m->tab == TERMINAL_TAB_TABLE) return t->shares.count;
  return m->tab == TERMINAL_TAB_DIFFERENCE ? m->changes.count : 0;
}

uint32_t terminal_model_stack(const terminal_model *m, size_t row, size_t *file) {
  const terminal_track *t = &m->tracks[m->active];
  terminal_ends ends;
  *file = t->file;
  if (row >= terminal_model_list_count(m)) return TSR_NONE;
  if (m->tab == TERMINAL_TAB_TABLE) return t->shares.items[row].stack;
  const terminal_change *change = &m->changes.items[row];
  if (!terminal_model_ends(m, &ends)) return TSR_NONE;
  *file = ends.track[change->new != NULL]->file;
  return change->new ? change->new->stack : change->old->stack;
}

/* ---- Moments ---- */

/* Show `width` moments such that the cursor stays where it is, or comes to the middle if it is not in view. */
static void show_around(terminal_model *m, uint64_t width) {
  uint32_t extent = extent_of(m), moment = terminal_active(m)->moment;
  uint64_t before = m->to - m->from;
  bool is_in_view = moment >= m->from && moment < m->to;
  if (width < LEAST_MOMENTS) width = LEAST_MOMENTS;
  if (width > extent) width = extent;
  uint64_t left = is_in_view && before ? (moment - m->from) * width / before : width / 2;
  uint64_t from = moment > left ? moment - left : 0;
  if (from > extent - width) from = extent - width;
  m->from = (uint32_t)from;
  m->to = (uint32_t)(from + width);
  assert(m->from < m->to && m->to <= extent);
}

static void go(terminal_model *m, uint64_t moment) {
  terminal_track *t = terminal_active(m);
  uint32_t last = moments_of(t) - 1;
  t->moment = moment < last ? (uint32_t)moment : last;
  m->is_stack_open = false;
  if (t->moment < m->from || t->moment >= m->to) show_around(m, m->to - m->from);
}

static void go_by(terminal_model *m, bool is_back, uint32_t moments) {
  uint32_t now = terminal_active(m)->moment;
  go(m, is_back ? (now > moments ? now - moments : 0) : (uint64_t)now + moments);
}

static void pan(terminal_model *m, bool is_back) {
  uint64_t width = m->to - m->from, by = width * 12 / 100, room = extent_of(m) - width;
  if (!by) by = 1;
  uint64_t from = is_back ? (m->from > by ? m->from - by : 0) : m->from + by;
  if (from > room) from = room;
  m->from = (uint32_t)from;
  m->to = (uint32_t)(from + width);
}

/* What is around the cursor, or everything. */
static void focus(terminal_model *m) {
  uint32_t extent = extent_of(m);
  bool is_all = m->from == 0 && m->to == extent;
  m->stretch = 0;
  m->fits_height = false;
  m->from = 0;
  m->to = extent;
  if (!is_all) return;
  uint64_t width = extent / FOCUS_PART;
  if (width < LEAST_MOMENTS) width = LEAST_MOMENTS;
  uint32_t moment = terminal_active(m)->moment;
  if (width >= extent) return;
  m->from = moment > width / 2 ? moment - (uint32_t)(width / 2) : 0;
  if (m->from > extent - width) m->from = extent - (uint32_t)width;
  m->to = m->from + (uint32_t)width;
}

/* The nearest of what begins, happens or is highest, before or after the cursor. */
static void go_to_edge(terminal_model *m, bool is_back) {
  const terminal_track *t = terminal_active(m);
  const tsr_view_device *d = t->device;
  uint32_t best = t->moment;
#define CONSIDER(at)                                                      \
  do {                                                                    \
    uint32_t edge = (at);                                                 \
    if (is_back ? edge < t->moment && (best == t->moment || edge > best)  \
                : edge > t->moment && (best == t->moment || edge < best)) \
      best = edge;                                                        \
  } while (0)
  for (size_t i = 0; i < d->range_count; i++) CONSIDER(d->ranges[i].born);
  for (size_t i = 0; i < d->mark_count; i++) CONSIDER(d->marks[i].moment);
  CONSIDER(d->peak);
#undef CONSIDER
  go(m, best);
}

/* ---- Search ---- */

/* The nearest moment at which something that was found is allocated. */
static void go_to_hit(terminal_model *m, bool is_back) {
  const terminal_track *t = terminal_active(m);
  const tsr_view_device *d = t->device;
  if (!t->is_found) {
    (void)snprintf(m->message, sizeof m->message, "no search: / begins one");
    return;
  }
  size_t low = 0, high = d->allocation_count; /* the first row born after the cursor, or at it */
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (is_back ? d->born[middle] < t->moment : d->born[middle] <= t->moment)
      low = middle + 1;
    else
      high = middle;
  }
  if (is_back) {
    while (low && !t->is_found[low - 1]) low--;
    if (low) go(m, d->born[low - 1]);
  } else {
    while (low < d->allocation_count && !t->is_found[low]) low++;
    if (low < d->allocation_count) go(m, d->born[low]);
  }
  bool is_end = is_back ? !low : low == d->allocation_count;
  if (is_end)
    (void)snprintf(m->message, sizeof m->message, "nothing that was found is allocated %s",
                   is_back ? "before" : "later");
}

static int begin_search(terminal_model *m) {
  memcpy(m->search, m->typed, sizeof m->search);
  terminal_shares_release(&m->mark_shares);
  int status = update(m);
  const terminal_track *t = terminal_active(m);
  if (status) return status;
  m->selected = 0;
  if (t->is_found && !t->found_count)
    (void)snprintf(m->message, sizeof m->message, "no allocation matches");
  if (t->found_count)
    (void)snprintf(m->message, sizeof m->message,
                   "%" PRIu64 " allocation%s; > and < go from one to the next", t->found_count,
                   t->found_count == 1 ? "" : "s");
  return 0;
}

/* A character as UTF-8, and a zero: at most 5 bytes. */
static void append_character(char *out, uint32_t character) {
  static const uint8_t first[] = {0, 0xc0, 0xe0, 0xf0};
  int more = character < 0x80 ? 0 : character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
  *out++ = (char)(first[more] | character >> (6 * more));
  while (more--) *out++ = (char)(0x80 | (character >> (6 * more) & 0x3f));
  *out = '\0';
}

static int type(terminal_model *m, uint32_t key) {
  size_t length = strlen(m->typed);
  if (key == TERMINAL_KEY_ENTER) {
    m->is_typing = false;
    return begin_search(m);
  }
  if (key == TERMINAL_KEY_ESCAPE) m->is_typing = false;
  if (key == TERMINAL_KEY_BACKSPACE) {
    if (!length) m->is_typing = false;
    while (length && ((unsigned char)m->typed[length - 1] & 0xc0) == 0x80) length--;
    if (length) m->typed[length - 1] = '\0';
  }
  if (key < 0x20 || key == 0x7f || key >= TERMINAL_KEY_LEFT || length + 5 > sizeof m->typed)
    return 0;
  append_character(m->typed + length, key);
  return 0;
}

/* ---- Keys ---- */

/* Lists are followed by a zero. */
enum { KEYS_MOST = 5 };

typedef struct binding {
  uint32_t keys[KEYS_MOST];
  const char *shown, *help; /* NULL: with the row above */
  int (*press)(terminal_model *m, uint32_t key);
} binding;

static int zoom_in(terminal_model *m, uint32_t key) {
  (void)key;
  show_around(m, (uint64_t)(m->to - m->from) * 10 / 14);
  return 0;
}

static int zoom_out(terminal_model *m, uint32_t key) {
  (void)key;
  show_around(m, (uint64_t)(m->to - m->from) * 14 / 10 + 1);
  return 0;
}

static int move(terminal_model *m, uint32_t key) {
  pan(m, key == 'a');
  return 0;
}

static int step(terminal_model *m, uint32_t key) {
  uint32_t cell = m->chart_columns ? (m->to - m->from) / m->chart_columns : 1;
  go_by(m, key == TERMINAL_KEY_LEFT, cell ? cell : 1);
  return 0;
}

static int step_event(terminal_model *m, uint32_t key) {
  go_by(m, key == ',', 1);
  return 0;
}

static int to_edge(terminal_model *m, uint32_t key) {
  go_to_edge(m, key == '[');
  return 0;
}

static int to_hit(terminal_model *m, uint32_t key) {
  go_to_hit(m, key == '<');
  return 0;
}

static int to_end(terminal_model *m, uint32_t key) {
  go(m, key == TERMINAL_KEY_HOME ? 0 : UINT32_MAX);
  return 0;
}

static int to_peak(terminal_model *m, uint32_t key) {
  (void)key;
  go(m, terminal_active(m)->device->peak);
  return 0;
}

static int stretch(terminal_model *m, uint32_t key) {
  m->fits_height = false;
  if (key == TERMINAL_KEY_UP && m->stretch < STRETCH_MOST) m->stretch++;
  if (key == TERMINAL_KEY_DOWN && m->stretch) m->stretch--;
  return 0;
}

static int fit_height(terminal_model *m, uint32_t key) {
  (void)key;
  m->fits_height = !m->fits_height;
  m->stretch = 0;
  return 0;
}

static int focus_key(terminal_model *m, uint32_t key) {
  (void)key;
  focus(m);
  return 0;
}

static int set_mark(terminal_model *m, uint32_t key) {
  (void)key;
  if (m->file_count == TERMINAL_FILES) {
    (void)snprintf(m->message, sizeof m->message, "two files are compared at their cursors");
    return 0;
  }
  m->has_mark = true;
  m->mark_track = m->active;
  m->mark_moment = terminal_active(m)->moment;
  m->tab = TERMINAL_TAB_DIFFERENCE;
  terminal_shares_release(&m->mark_shares);
  m->has_changes = false;
  (void)snprintf(m->message, sizeof m->message,
                 "mark A: the list shows how the cursor's moment differs from it");
  return 0;
}

static int start_typing(terminal_model *m, uint32_t key) {
  (void)key;
  m->is_typing = true;
  memcpy(m->typed, m->search, sizeof m->typed);
  return 0;
}

static int drop_mark(terminal_model *m) {
  m->has_mark = false;
  terminal_shares_release(&m->mark_shares);
  terminal_changes_release(&m->changes);
  m->has_changes = false;
  if (m->tab == TERMINAL_TAB_DIFFERENCE) m->tab = TERMINAL_TAB_TABLE;
  return 0;
}

static int let_go(terminal_model *m, uint32_t key) {
  (void)key;
  if (m->is_stack_open) {
    m->is_stack_open = false;
  } else if (m->search[0]) {
    m->search[0] = '\0';
    terminal_shares_release(&m->mark_shares);
  } else if (m->has_mark) {
    return drop_mark(m);
  } else {
    m->from = 0;
    m->to = extent_of(m);
    m->stretch = 0;
    m->fits_height = false;
  }
  return 0;
}

static int choose_tab(terminal_model *m, uint32_t key) {
  bool has_difference = m->file_count == TERMINAL_FILES || m->has_mark;
  m->is_stack_open = false;
  m->selected = 0;
  if (key == '1') m->tab = TERMINAL_TAB_TABLE;
  if (key == '5') m->tab = TERMINAL_TAB_EVENTS;
  if (key == '4' && has_difference) m->tab = TERMINAL_TAB_DIFFERENCE;
  if (key == '4' && !has_difference)
    (void)snprintf(m->message, sizeof m->message, "M marks a moment to compare with");
  return 0;
}

static int not_here(terminal_model *m, uint32_t key) {
  (void)snprintf(m->message, sizeof m->message, "%s on the page: tessera view -o page.html FILE",
                 key == '2' ? "the flame graph is" : "segments are");
  return 0;
}

/* Colour by the next grouping, or the previous one. */
static int regroup(terminal_model *m, uint32_t key) {
  const tsr_view_device *d = terminal_active(m)->device;
  size_t count = d->grouping_count, now = grouping_with(d, m->by);
  if (!count) return 0;
  m->by = d->groupings[(now + (key == 'G' ? count - 1 : 1)) % count].key;
  (void)snprintf(m->message, sizeof m->message, "by %s",
                 d->groupings[grouping_with(d, m->by)].title);
  return 0;
}

static int next_track(terminal_model *m, uint32_t key) {
  (void)key;
  m->active = (m->active + 1) % m->track_count;
  m->shown[terminal_active(m)->file] = m->active;
  m->selected = 0;
  m->is_stack_open = false;
  m->has_changes = false;
  uint32_t extent = extent_of(m);
  if (m->to > extent) {
    m->from = 0;
    m->to = extent;
  }
  if (m->file_count == 1 && m->track_count > 1) show_around(m, m->to - m->from);
  return 0;
}

static int choose_row(terminal_model *m, uint32_t key) {
  size_t by = key == TERMINAL_KEY_PAGE_UP || key == TERMINAL_KEY_PAGE_DOWN ? m->list_rows : 1;
  bool is_back = key == 'k' || key == TERMINAL_KEY_PAGE_UP;
  size_t *at = m->is_stack_open ? &m->scroll : &m->selected;
  if (m->is_stack_open) is_back = !is_back; /* counts from the end */
  *at = is_back ? (*at > by ? *at - by : 0) : *at + by;
  return 0;
}

/* Frames to leave out at the innermost end, so that the program's own innermost frame is near the end of what is shown: the
 * frames below it are the allocator's. */
static size_t first_scroll(const tsr_snapshot *snapshot, uint32_t id) {
  enum { SHOWN_BELOW = 2 };
  tsr_stack stack = tsr_snapshot_stack(snapshot, id);
  for (uint32_t i = 0; i < stack.depth; i++) {
    tsr_frame frame = tsr_snapshot_frame(snapshot, stack.frames[i]);
    tsr_text name = tsr_snapshot_string(snapshot, frame.name);
    if (tsr_frame_origin(name, tsr_snapshot_string(snapshot, frame.file)) == TSR_ORIGIN_USER)
      return i > SHOWN_BELOW ? i - SHOWN_BELOW : 0;
  }
  return 0;
}

static int open_stack(terminal_model *m, uint32_t key) {
  size_t file;
  uint32_t stack = terminal_model_stack(m, m->selected, &file);
  (void)key;
  if (stack != TSR_NONE) m->scroll = first_scroll(m->files[file].snapshot, stack);
  if (!m->is_stack_open && stack == TSR_NONE)
    (void)snprintf(m->message, sizeof m->message, "no stack to show");
  else
    m->is_stack_open = !m->is_stack_open;
  return 0;
}

static int show_help(terminal_model *m, uint32_t key) {
  (void)key;
  m->is_help = true;
  m->help_page = 0;
  return 0;
}

static int quit(terminal_model *m, uint32_t key) {
  (void)m, (void)key;
  return TERMINAL_QUIT;
}

static const binding bindings[] = {
    {{'w', '+', '='}, "W S", "zoom in, out", zoom_in},
    {{'s', '-'}, NULL, NULL, zoom_out},
    {{'a', 'd'}, "A D", "move left, right", move},
    {{TERMINAL_KEY_LEFT, TERMINAL_KEY_RIGHT},
     "Left Right",
     "choose an earlier or later moment",
     step},
    {{',', '.'}, ", .", "one event back or on", step_event},
    {{'[', ']'}, "[ ]", "previous or next step, phase, annotation or mark", to_edge},
    {{TERMINAL_KEY_HOME, TERMINAL_KEY_END}, "Home End", "first or last moment", to_end},
    {{'p'}, "P", "to the peak", to_peak},
    {{'f'}, "F", "zoom to the cursor; again: everything", focus_key},
    {{TERMINAL_KEY_UP, TERMINAL_KEY_DOWN}, "Up Down", "stretch or shrink the height", stretch},
    {{'y'}, "Y", "stretch the height to what is in view; again: all of it", fit_height},
    {{'/'}, "/", "search: words that must all be found; a | b; >16MiB", start_typing},
    {{'<', '>'}, "< >", "previous or next allocation that was found", to_hit},
    {{'m'}, "M", "mark A: its difference to the cursor is list 4", set_mark},
    {{'1', '4', '5'}, "1 4 5", "list of stacks, differences, events", choose_tab},
    {{'2', '3'}, NULL, NULL, not_here},
    {{'j', 'k', TERMINAL_KEY_PAGE_DOWN, TERMINAL_KEY_PAGE_UP},
     "J K",
     "next or previous row of the list; also PageDown, PageUp",
     choose_row},
    {{TERMINAL_KEY_ENTER}, "Enter", "the whole stack of the row; again: the list", open_stack},
    {{'g', 'G'}, "G", "colour by the next grouping; with Shift: the previous", regroup},
    {{'n'}, "N", "next file or device", next_track},
    {{TERMINAL_KEY_ESCAPE}, "Esc", "let go: stack, search, mark, zoom", let_go},
    {{'?'}, "?", "this help", show_help},
    {{'q'}, "Q", "quit", quit},
};
enum { BINDINGS = sizeof bindings / sizeof *bindings };

bool terminal_model_help(size_t index, const char **keys, const char **text) {
  for (size_t i = 0; i < BINDINGS; i++) {
    if (!bindings[i].shown || index--) continue;
    *keys = bindings[i].shown;
    *text = bindings[i].help;
    return true;
  }
  return false;
}

static const binding *binding_of(uint32_t key) {
  for (size_t i = 0; i < BINDINGS; i++)
    for (size_t k = 0; k < KEYS_MOST && bindings[i].keys[k]; k++)
      if (bindings[i].keys[k] == key) return &bindings[i];
  return NULL;
}

int terminal_model_key(terminal_model *m, uint32_t key) {
  m->message[0] = '\0';
  if (m->is_typing) return type(m, key);
  const binding *found = binding_of(key);
  if (!found && key < 0x80) found = binding_of(key = (uint32_t)tolower((int)key));
  if (m->is_help && m->has_more_help && key == '?') {
    m->help_page++;
    return TERMINAL_GO_ON;
  }
  if (m->is_help) { /* any key ends it, which then does what it always does, but for those that only end it */
    m->is_help = false;
    if (key == '?' || key == TERMINAL_KEY_ESCAPE || !found) return TERMINAL_GO_ON;
  }
  int status = found ? found->press(m, key) : TERMINAL_GO_ON;
  if (status == TERMINAL_GO_ON) status = update(m);
  return status;
}

/* ---- Opening ---- */

/* The track of a file with the highest peak, or of the device with this number if the file has it. */
static size_t first_track(const terminal_model *m, size_t file, const uint32_t *device) {
  size_t best = m->track_count;
  for (size_t i = 0; i < m->track_count; i++) {
    const terminal_track *t = &m->tracks[i];
    if (t->file != file) continue;
    if (device && t->device->device == *device) return i;
    if (best == m->track_count || t->device->peak_totals.allocated_bytes >
                                      m->tracks[best].device->peak_totals.allocated_bytes)
      best = i;
  }
  assert(best < m->track_count);
  return best;
}

int terminal_model_open(terminal_model *out, const terminal_file *files, size_t file_count,
                        const char *by, uint64_t capacity_bytes) {
  assert(file_count && file_count <= TERMINAL_FILES);
  *out = (terminal_model){.file_count = file_count, .by = by, .capacity_bytes = capacity_bytes};
  size_t count = 0;
  for (size_t i = 0; i < file_count; i++) {
    out->files[i] = files[i];
    count += files[i].view->device_count;
  }
  out->tracks = calloc(count, sizeof *out->tracks);
  if (!out->tracks) return TSR_ERROR_MEMORY;
  for (size_t i = 0; i < file_count; i++)
    for (size_t d = 0; d < files[i].view->device_count; d++) {
      const tsr_view_device *device = &files[i].view->devices[d];
      out->tracks[out->track_count++] =
          (terminal_track){.file = i, .device = device, .moment = device->peak};
    }
  out->shown[0] = out->active = first_track(out, 0, NULL);
  if (file_count > 1) out->shown[1] = first_track(out, 1, &terminal_active(out)->device->device);
  out->tab = file_count > 1 ? TERMINAL_TAB_DIFFERENCE : TERMINAL_TAB_TABLE;
  out->to = extent_of(out);
  return update(out);
}

void terminal_model_release(terminal_model *m) {
  for (size_t i = 0; i < m->track_count; i++) {
    terminal_track *t = &m->tracks[i];
    terminal_history_release(&t->history);
    terminal_sums_release(&t->sums);
    terminal_sums_release(&t->found);
    terminal_shares_release(&t->shares);
    free(t->search);
    free(t->is_found);
  }
  terminal_shares_release(&m->mark_shares);
  terminal_changes_release(&m->changes);
  free(m->tracks);
  *m = (terminal_model){0};
}
