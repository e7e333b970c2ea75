/* model.h - what the terminal view shows, and what each key changes. Nothing here knows a terminal: draw.h makes cells of it,
 * and screen.h brings keys and shows cells.
 *
 * A *track* is a device of a file. One file shows one track, two files one each, one above the other on one scale. Each track
 * has its own chosen moment, the cursor; moments in view are the same for all. What a track needs is made when it is first shown.
 */
#ifndef CLI_TERMINAL_MODEL_H
#define CLI_TERMINAL_MODEL_H

#include <tessera/unstable/columns.h>
#include <tessera/unstable/stack_names.h>

#include "keys.h"
#include "search.h"
#include "shares.h"

enum { TERMINAL_FILES = 2 };

/* A file that is shown; all must outlive the model. */
typedef struct terminal_file {
  const char *path;
  const tsr_snapshot *snapshot;
  const tsr_view *view; /* has a device */
  tsr_stack_naming *namer;
} terminal_file;

typedef struct terminal_track {
  size_t file;
  const tsr_view_device *device;
  uint32_t moment; /* chosen */
  /* Made when the track is first shown: */
  bool is_ready;
  terminal_history history;
  size_t grouping;                    /* index in the device's */
  terminal_sums sums;                 /* of all allocations */
  uint8_t order[TSR_VIEW_GROUPS_MAX]; /* of its groups, from the bottom */
  char *search;                       /* what `is_found` is of; NULL: nothing */
  uint8_t *is_found;                  /* by row; NULL: no search */
  uint64_t found_count;
  terminal_sums found; /* of what is found */
  /* Of the chosen moment: */
  uint32_t shares_moment;
  bool has_shares;
  terminal_shares shares;
} terminal_track;

/* What the list at the bottom shows; the page has a flame graph and segments, too. */
typedef enum terminal_tab {
  TERMINAL_TAB_TABLE = 1,
  TERMINAL_TAB_DIFFERENCE = 4,
  TERMINAL_TAB_EVENTS = 5
} terminal_tab;

typedef struct terminal_model {
  terminal_file files[TERMINAL_FILES];
  size_t file_count;
  terminal_track *tracks;
  size_t track_count;
  size_t shown[TERMINAL_FILES]; /* by file: its track */
  size_t active;                /* track */
  uint64_t capacity_bytes;      /* of the card; 0: not given */
  const char *by;               /* key of the grouping */
  uint32_t from, to;            /* moments in view: from <= m < to */
  unsigned stretch;             /* how often the height was stretched */
  bool fits_height;             /* to what is in view */
  terminal_tab tab;
  bool has_mark; /* one file: the difference is from there to the cursor */
  size_t mark_track;
  uint32_t mark_moment;
  terminal_shares mark_shares;
  terminal_changes changes; /* of the tab of differences */
  bool has_changes;
  size_t selected;    /* row of the list */
  bool is_stack_open; /* the selected row's stack is shown */
  size_t scroll;      /* of the stack: frames from its innermost end */
  bool is_help, is_typing;
  uint32_t help_page;       /* of a help that is longer than the screen */
  bool has_more_help;       /* pages after it: terminal_draw knows */
  char typed[SEARCH_BYTES]; /* while a search is typed */
  char search[SEARCH_BYTES];
  char message[160];                 /* until the next key; "" */
  uint32_t chart_columns, list_rows; /* of the last picture: what keys move by */
} terminal_model;

/* Show one or two files; `by` is the key of a grouping of the first device. Fails with TSR_ERROR_MEMORY; to be released in either
 * case. */
int terminal_model_open(terminal_model *out, const terminal_file *files, size_t file_count,
                        const char *by, uint64_t capacity_bytes);
void terminal_model_release(terminal_model *model);

/* What a key leads to. */
typedef enum terminal_next { TERMINAL_GO_ON, TERMINAL_QUIT } terminal_next;

/* Take a key. Unknown ones do nothing. Returns a terminal_next or TSR_ERROR_MEMORY. */
int terminal_model_key(terminal_model *model, uint32_t key);

/* Help: what is written of keys number `index`, and what they do. False past the last. */
bool terminal_model_help(size_t index, const char **keys, const char **text);

/* ---- What is shown ---- */

static inline terminal_track *terminal_active(terminal_model *m) {
  return &m->tracks[m->active];
}
/* The two moments of a difference, the old one first; false if nothing is compared. */
typedef struct terminal_ends {
  const terminal_track *track[2];
  uint32_t moment[2];
  const terminal_shares *shares[2];
} terminal_ends;
bool terminal_model_ends(const terminal_model *m, terminal_ends *ends);
/* Rows of the list of the current tab. */
size_t terminal_model_list_count(const terminal_model *m);
/* The stack of a row of the list, and the snapshot it is of; TSR_NONE if it has none. */
uint32_t terminal_model_stack(const terminal_model *m, size_t row, size_t *file);

#endif
