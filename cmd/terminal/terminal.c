/* terminal.c - see terminal.h. The order matters: what can be refused is refused, and files are read, before the terminal is taken
 * over, so that messages are those of any command. */
#include "terminal.h"

#include <stdlib.h>
#include <string.h>

#include "core/page.h"
#include "core/progress.h"
#include "draw.h"
#include "screen.h"

/* What is shown; zeroed is empty. */
typedef struct shown {
  cli_input inputs[TERMINAL_FILES];
  size_t opened;
  tsr_view *views[TERMINAL_FILES];
  tsr_stack_naming *namers[TERMINAL_FILES];
  tsr_rules *rules;
  tsr_page_options how;
  terminal_model model;
} shown;

static int refuse(const cli_session *session, const char *reason) {
  return cli_usage_error(session->options->command, "%s; use -o page.html", reason);
}

/* What the terminal cannot show is on the page. Returns 0 or a usage error. */
static int check_options(cli_session *session) {
  const cli_options *options = session->options;
  if (options->operand_count > TERMINAL_FILES)
    return refuse(session, "a terminal shows one file or two");
  for (size_t i = 0; i < options->operand_count; i++)
    if (strcmp(options->operands[i], "-") == 0)
      return refuse(session, "standard input cannot be both a file and the keyboard");
  if (tsr_params_flag(options->own, "ordered"))
    return refuse(session, "a terminal shows no single blocks in the order of their allocation");
  return 0;
}

/* Study by study, as memory for both at once may be short. */
static int make_views(cli_session *session, shown *s) {
  tsr_view_options how = {.rules = s->rules,
                          .by = s->how.by,
                          .key = tsr_params_choice_key(session->options->own, "by")};
  terminal_file files[TERMINAL_FILES];
  for (size_t i = 0; i < s->opened; i++) {
    cli_input *input = &s->inputs[i];
    session->path = input->heading.path;
    int status =
        tsr_view_compute(input->study, &how, &session->query, &s->views[i], &session->error);
    if (status == 0 && !s->views[i]->device_count) status = cli_page_refuse_empty(session);
    if (status == 0) status = tsr_stack_naming_new(input->snapshot, &s->namers[i], &session->error);
    if (status) return status;
    tsr_study_free(input->study);
    input->study = NULL;
    files[i] = (terminal_file){input->heading.path, input->snapshot, s->views[i], s->namers[i]};
  }
  return terminal_model_open(&s->model, files, s->opened, s->how.by, s->how.capacity_bytes);
}

static int prepare(cli_session *session, shown *s) {
  const cli_options *options = session->options;
  cli_clock clock;
  int status = cli_page_read_options(session, &s->how, &s->rules);
  if (status) return status;
  status = cli_open_all(session, (const char *const *)options->operands, options->operand_count,
                        s->inputs, &s->opened);
  if (status) return status;
  cli_clock_start(&clock, "working on", options->operands[0], options->quiet);
  status = make_views(session, s);
  cli_clock_stop(&clock);
  return status;
}

static void put_away(shown *s) {
  terminal_model_release(&s->model);
  for (size_t i = 0; i < TERMINAL_FILES; i++) {
    tsr_stack_naming_free(s->namers[i]);
    tsr_view_free(s->views[i]);
  }
  while (s->opened) cli_close(&s->inputs[--s->opened]);
  tsr_rules_free(s->rules);
}

/* ---- The loop ---- */

static int draw(terminal_screen *screen, terminal_model *model, terminal_grid *grid) {
  uint32_t rows, columns;
  terminal_screen_size(screen, &rows, &columns);
  if (!terminal_grid_resize(grid, rows, columns)) return TSR_ERROR_MEMORY;
  int status = terminal_draw(model, grid);
  if (status == 0) terminal_screen_show(screen, grid);
  return status;
}

/* All keys that are there are taken before the next picture, so a slow connection skips pictures, not keys. */
static int run(cli_session *session, terminal_screen *screen, terminal_model *model,
               terminal_grid *grid) {
  bool is_drawn = false;
  int status = 0;
  while (status == 0) {
    uint32_t key;
    switch (terminal_screen_next(screen, is_drawn, &key)) {
    case TERMINAL_PRESSED:
      status = terminal_model_key(model, key);
      is_drawn = false;
      break;
    case TERMINAL_RESIZED: is_drawn = false; break;
    case TERMINAL_NOTHING:
      status = draw(screen, model, grid);
      is_drawn = true;
      break;
    case TERMINAL_ENDED: session->ended_by = terminal_screen_signal(); return 0;
    }
  }
  return status == TERMINAL_QUIT ? 0 : status;
}

static int show(cli_session *session, terminal_screen *screen, terminal_model *model) {
  terminal_grid grid = {.traits = terminal_screen_traits(screen)};
  const char *reason = terminal_screen_open(screen);
  if (reason) return refuse(session, reason);
  int status = run(session, screen, model, &grid);
  terminal_screen_close(screen);
  terminal_grid_release(&grid);
  return status;
}

int cli_terminal_view(cli_session *session) {
  terminal_screen *screen = NULL;
  shown s = {.opened = 0};
  int status = check_options(session);
  char text[TERMINAL_REASON_BYTES];
  const char *reason = status ? NULL : terminal_screen_new(session->report.color, text, &screen);
  if (reason) status = refuse(session, reason);
  if (status == 0) status = prepare(session, &s);
  if (status == 0) status = show(session, screen, &s.model);
  for (size_t i = 0; status == 0 && i < s.opened; i++) cli_warn_of_file(session, &s.inputs[i]);
  terminal_screen_free(screen);
  put_away(&s);
  return status;
}
