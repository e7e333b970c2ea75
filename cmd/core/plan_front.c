/* plan_front.c - `tessera plan MODEL --front`: the fastest plan for less and less memory, as a table, CSV or a page. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_budget.h"

enum { SIZE_BYTES = 32, LINE_BYTES = 1024 };

static int put(cli_output *output, const char *text) {
  return cli_output_write(output, text, strlen(text)) ? TSR_ERROR_WRITE : 0;
}

/* What the plan changes, after each other: "GELU as one kernel; fused optimizer". */
static void list_changes(const tsr_planned *point, char *out, size_t room) {
  size_t used = 0;
  *out = '\0';
  for (size_t i = 0; i < point->change_count && used < room; i++) {
    int more = snprintf(out + used, room - used, "%s%s", i ? "; " : "", point->changes[i].name);
    used += more > 0 ? (size_t)more : 0;
  }
}

/* The change that sets the point apart from the one before: the last that this lacks. "" if it only changes less. */
static const char *new_change(const tsr_planned *point, const tsr_planned *before) {
  const char *found = "";
  for (size_t i = 0; i < point->change_count; i++) {
    bool is_old = false;
    for (size_t k = 0; before && k < before->change_count; k++)
      is_old |= strcmp(point->changes[i].name, before->changes[k].name) == 0;
    if (!is_old) found = point->changes[i].name;
  }
  return found;
}

/* ---- text ---- */

static int put_row(cli_output *output, const tsr_run_plan_cost *cost, double as_is_s,
                   const char *change) {
  char line[LINE_BYTES], reserved[SIZE_BYTES], peak[SIZE_BYTES], time[SIZE_BYTES], more[SIZE_BYTES];
  (void)snprintf(more, sizeof more, "%+.1f %%",
                 as_is_s > 0 ? 100 * (cost->step_seconds / as_is_s - 1) : 0.0);
  (void)snprintf(line, sizeof line, "  %11s %11s %9s %9s  %.32s\n",
                 tsr_size_text(cost->reserved_bytes, reserved, sizeof reserved),
                 tsr_size_text(cost->peak_bytes, peak, sizeof peak),
                 cli_time_text(cost->step_seconds, time, sizeof time), as_is_s > 0 ? more : "-",
                 change);
  return put(output, line);
}

/* Above the first point that is within it. */
static int put_budget(cli_output *output, uint64_t budget_bytes) {
  char line[LINE_BYTES], size[SIZE_BYTES];
  (void)snprintf(line, sizeof line, "  %11s  the budget\n",
                 tsr_size_text(budget_bytes, size, sizeof size));
  return put(output, line);
}

static int put_rows(cli_output *output, const tsr_front *front, uint64_t budget_bytes) {
  const tsr_run_plan_cost *as_is = &front->points[0].as_is;
  double as_is_s = as_is->step_seconds;
  bool is_marked = !budget_bytes;
  int status = 0;
  if (!is_marked && as_is->is_possible && as_is->reserved_bytes <= budget_bytes) {
    status = put_budget(output, budget_bytes);
    is_marked = true;
  }
  if (status == 0 && as_is->is_possible) status = put_row(output, as_is, as_is_s, "as it is");
  for (size_t i = 0; status == 0 && i < front->count; i++) {
    const tsr_planned *point = &front->points[i];
    if (!is_marked && point->with.reserved_bytes <= budget_bytes) {
      status = put_budget(output, budget_bytes);
      is_marked = true;
    }
    if (as_is->is_possible && !point->change_count) continue; /* that is the row above */
    const char *change = new_change(point, i ? &front->points[i - 1] : NULL);
    if (status == 0)
      status = put_row(output, &point->with, as_is_s, *change ? change : "fewer changes");
  }
  return status || is_marked ? status : put_budget(output, budget_bytes);
}

static int put_text(cli_session *session, const char *name, const tsr_front *front,
                    uint64_t budget_bytes) {
  char line[LINE_BYTES], most[SIZE_BYTES] = "not possible", least[SIZE_BYTES];
  if (!front->count) {
    (void)snprintf(line, sizeof line, "%.200s: no plan is possible.\n", name);
    return put(&session->output, line);
  }
  const tsr_run_plan_cost *as_is = &front->points[0].as_is;
  const tsr_planned *last = &front->points[front->count - 1];
  if (as_is->is_possible) tsr_size_text(as_is->reserved_bytes, most, sizeof most);
  (void)tsr_size_text(last->with.reserved_bytes, least, sizeof least);
  if (last->change_count || !as_is->is_possible)
    (void)snprintf(line, sizeof line,
                   "%.200s: %s as it is, and %s with the leanest of %zu plan%s.\n", name, most,
                   least, front->count, front->count == 1 ? "" : "s");
  else
    (void)snprintf(line, sizeof line, "%.200s: %s as it is; no plan that was found needs less.\n",
                   name, most);
  int status = put(&session->output, line);
  if (status == 0) status = cli_plan_put_ranks(session, last->plan);
  (void)snprintf(line, sizeof line, "\n  %11s %11s %9s %9s  %s\n", "reserved", "allocated",
                 "a step", "more", "what is new");
  if (status == 0) status = put(&session->output, line);
  return status ? status : put_rows(&session->output, front, budget_bytes);
}

/* ---- JSON ---- */

static int put_point(cli_output *output, const tsr_planned *point, bool is_first) {
  char line[LINE_BYTES];
  (void)snprintf(line, sizeof line,
                 "%s{\"peak_allocated_bytes\":%" PRIu64 ",\"peak_reserved_bytes\":%" PRIu64
                 ",\"step_time_us\":%.3f,\"plan_hash\":\"%s\",\"plan\":",
                 is_first ? "" : ",", point->with.peak_bytes, point->with.reserved_bytes,
                 point->with.step_seconds * 1e6, tsr_run_plan_hash(point->plan));
  int status = put(output, line);
  if (status == 0) status = put(output, tsr_run_plan_text(point->plan));
  return status ? status : put(output, "}");
}

static int put_json(cli_session *session, const tsr_front *front, uint64_t budget_bytes) {
  char line[LINE_BYTES];
  (void)snprintf(line, sizeof line, "{\"schema\":\"tessera/1\",\"command\":\"plan\",");
  if (budget_bytes)
    (void)snprintf(line + strlen(line), sizeof line - strlen(line), "\"budget_bytes\":%" PRIu64 ",",
                   budget_bytes);
  int status = put(&session->output, line);
  if (status == 0) status = put(&session->output, "\"front\":[");
  for (size_t i = 0; status == 0 && i < front->count; i++)
    status = put_point(&session->output, &front->points[i], i == 0);
  return status ? status : put(&session->output, "]}\n");
}

/* ---- CSV ---- */

/* A field with quotes; a plan's text without its newline. */
static int put_quoted(cli_output *output, const char *text) {
  int status = put(output, "\"");
  for (; status == 0 && *text && *text != '\n'; text++) {
    char one[3] = {*text, *text == '"' ? '"' : '\0', '\0'};
    status = put(output, one);
  }
  return status ? status : put(output, "\"");
}

static int put_csv(cli_output *output, const tsr_front *front) {
  char line[LINE_BYTES];
  int status = put(output, "reserved_bytes,allocated_bytes,step_time_us,changes,plan\n");
  for (size_t i = 0; status == 0 && i < front->count; i++) {
    const tsr_planned *point = &front->points[i];
    (void)snprintf(line, sizeof line, "%" PRIu64 ",%" PRIu64 ",%.3f,", point->with.reserved_bytes,
                   point->with.peak_bytes, point->with.step_seconds * 1e6);
    status = put(output, line);
    list_changes(point, line, sizeof line);
    if (status == 0) status = put_quoted(output, line);
    if (status == 0) status = put(output, ",");
    if (status == 0) status = put_quoted(output, tsr_run_plan_text(point->plan));
    if (status == 0) status = put(output, "\n");
  }
  return status;
}

/* ---- a page ---- */

/* In the units of the drawing, which is as wide as the page. */
enum { WIDTH = 800, HEIGHT = 380, LEFT = 70, RIGHT = 20, TOP = 20, BOTTOM = 50, MARKS = 5 };

static int put_escaped(cli_output *output, const char *text) {
  int status = 0;
  for (; status == 0 && *text; text++) {
    char one[2] = {*text, '\0'};
    status = put(output, *text == '<'   ? "&lt;"
                         : *text == '&' ? "&amp;"
                         : *text == '"' ? "&quot;"
                                        : one);
  }
  return status;
}

/* What is drawn: memory to the right, time upwards, from the least to the most of either. */
typedef struct chart {
  const tsr_front *front;
  uint64_t budget_bytes; /* 0: none */
  double bytes[2], seconds[2];
} chart;

static void extend(double range[2], double value) {
  if (value < range[0]) range[0] = value;
  if (value > range[1]) range[1] = value;
}

static chart chart_of(const tsr_front *front, uint64_t budget_bytes) {
  chart c = {front, budget_bytes, {INFINITY, 0}, {INFINITY, 0}};
  const tsr_run_plan_cost *as_is = &front->points[0].as_is;
  for (size_t i = 0; i < front->count; i++) {
    extend(c.bytes, (double)front->points[i].with.reserved_bytes);
    extend(c.seconds, front->points[i].with.step_seconds);
  }
  if (as_is->is_possible) {
    extend(c.bytes, (double)as_is->reserved_bytes);
    extend(c.seconds, as_is->step_seconds);
  }
  if (budget_bytes) extend(c.bytes, (double)budget_bytes);
  return c;
}

static double part_of(const double range[2], double value) {
  return range[1] > range[0] ? (value - range[0]) / (range[1] - range[0]) : 0.5;
}

static double x_of(const chart *c, double bytes) {
  return LEFT + part_of(c->bytes, bytes) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const chart *c, double seconds) {
  return HEIGHT - BOTTOM - part_of(c->seconds, seconds) * (HEIGHT - TOP - BOTTOM);
}

static int put_axes(cli_output *output, const chart *c) {
  char line[LINE_BYTES], text[SIZE_BYTES];
  int status = 0;
  for (size_t i = 0; status == 0 && i < MARKS; i++) {
    double part = (double)i / (MARKS - 1);
    double bytes = c->bytes[0] + part * (c->bytes[1] - c->bytes[0]);
    double seconds = c->seconds[0] + part * (c->seconds[1] - c->seconds[0]);
    (void)snprintf(line, sizeof line, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%s</text>\n",
                   x_of(c, bytes), HEIGHT - BOTTOM + 22, i + 1 < MARKS ? "middle" : "end",
                   tsr_size_text((uint64_t)bytes, text, sizeof text));
    status = put(output, line);
    (void)snprintf(line, sizeof line,
                   "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" "
                   "y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                   LEFT, WIDTH - RIGHT, y_of(c, seconds), y_of(c, seconds), LEFT - 8,
                   y_of(c, seconds) + 4, cli_time_text(seconds, text, sizeof text));
    if (status == 0) status = put(output, line);
  }
  (void)snprintf(line, sizeof line,
                 "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">reserved memory</text>\n",
                 WIDTH - RIGHT, HEIGHT - 8);
  return status ? status : put(output, line);
}

static int put_marks(cli_output *output, const chart *c) {
  char line[LINE_BYTES], size[SIZE_BYTES];
  const tsr_run_plan_cost *as_is = &c->front->points[0].as_is;
  int status = 0;
  if (c->budget_bytes) {
    double x = x_of(c, (double)c->budget_bytes);
    bool is_right = x > WIDTH / 2.0;
    (void)snprintf(line, sizeof line,
                   "<line class=\"budget\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                   "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">budget: %s</text>\n",
                   x, x, TOP, HEIGHT - BOTTOM, x + (is_right ? -6 : 6), TOP + 4,
                   is_right ? "end" : "start", tsr_size_text(c->budget_bytes, size, sizeof size));
    status = put(output, line);
  }
  if (status || !as_is->is_possible) return status;
  double x = x_of(c, (double)as_is->reserved_bytes), y = y_of(c, as_is->step_seconds);
  bool is_right = x > WIDTH / 2.0;
  (void)snprintf(line, sizeof line,
                 "<rect class=\"as-is\" x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\"/>"
                 "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">as it is</text>\n",
                 x - 5, y - 5, x + (is_right ? -10 : 10), y + 4, is_right ? "end" : "start");
  return put(output, line);
}

static int put_dot(cli_output *output, const chart *c, size_t i) {
  char line[LINE_BYTES], reserved[SIZE_BYTES], time[SIZE_BYTES];
  const tsr_run_plan_cost *cost = &c->front->points[i].with;
  (void)snprintf(line, sizeof line,
                 "<a href=\"#p%zu\"><circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\"><title>%s, %s a step"
                 "</title></circle></a>\n",
                 i, x_of(c, (double)cost->reserved_bytes), y_of(c, cost->step_seconds),
                 tsr_size_text(cost->reserved_bytes, reserved, sizeof reserved),
                 cli_time_text(cost->step_seconds, time, sizeof time));
  return put(output, line);
}

static int put_plan_row(cli_output *output, const tsr_planned *point, size_t i) {
  char line[LINE_BYTES], reserved[SIZE_BYTES], peak[SIZE_BYTES], time[SIZE_BYTES];
  (void)snprintf(line, sizeof line, "<tr id=\"p%zu\"><td>%s<td>%s<td>%s<td>", i,
                 tsr_size_text(point->with.reserved_bytes, reserved, sizeof reserved),
                 tsr_size_text(point->with.peak_bytes, peak, sizeof peak),
                 cli_time_text(point->with.step_seconds, time, sizeof time));
  int status = put(output, line);
  list_changes(point, line, sizeof line);
  if (status == 0) status = put_escaped(output, *line ? line : "as it is");
  if (status == 0) status = put(output, "<details><summary>plan</summary><code>");
  if (status == 0) status = put_escaped(output, tsr_run_plan_text(point->plan));
  return status ? status : put(output, "</code></details>\n");
}

static int put_drawing(cli_output *output, const chart *c) {
  char line[LINE_BYTES];
  (void)snprintf(line, sizeof line,
                 "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"time of a step by "
                 "reserved memory\">\n",
                 WIDTH, HEIGHT);
  int status = put(output, line);
  if (status == 0) status = put_axes(output, c);
  if (status == 0) status = put_marks(output, c);
  for (size_t i = 0; status == 0 && i < c->front->count; i++) status = put_dot(output, c, i);
  return status ? status : put(output, "</svg>\n");
}

static int put_page(cli_output *output, const char *name, const tsr_front *front,
                    uint64_t budget_bytes) {
  static const char head[] =
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>Plans</title>\n"
      "<style>body{font:14px/1.4 sans-serif;margin:1.5em auto;padding:0 1em;max-width:70em}"
      "table{border-collapse:collapse;width:100%}th{text-align:left}td,th{padding:.3em .8em;"
      "vertical-align:top;border-top:1px solid #ddd}tr:target{background:#fe8}"
      "td:nth-child(-n+3){text-align:right;white-space:nowrap}code{word-break:break-all}"
      "svg{width:100%;border:1px solid #ccc}svg text{font-size:12px;fill:#444}"
      "svg line{stroke:#ddd}svg .budget{stroke:#c40}circle{fill:#247}circle:hover{fill:#c40}"
      ".as-is{fill:none;stroke:#247;stroke-width:2}summary{color:#247;cursor:pointer}</style>\n"
      "<h1>Plans for ";
  int status = put(output, head);
  if (status == 0) status = put_escaped(output, name);
  if (status == 0)
    status = put(output, "</h1>\n<p>Memory to the right, time of a step upwards; each point is the "
                         "fastest plan for that memory. Times are estimates.</p>\n");
  chart c = chart_of(front, budget_bytes);
  if (status == 0 && front->count) status = put_drawing(output, &c);
  if (status == 0)
    status = put(output, "<table><tr><th>reserved<th>allocated<th>a step<th>changes\n");
  for (size_t i = 0; status == 0 && i < front->count; i++)
    status = put_plan_row(output, &front->points[i], i);
  return status ? status : put(output, "</table>\n");
}

/* ---- the command ---- */

static bool ends_in(const char *path, const char *ending) {
  size_t length = path ? strlen(path) : 0, tail = strlen(ending);
  return length > tail && strcmp(path + length - tail, ending) == 0;
}

bool cli_plan_front_is_file(const char *path) {
  return ends_in(path, ".html") || ends_in(path, ".csv");
}

/* To the file of --write-front, or of -o. */
static int put_file(cli_output *output, const char *path, const char *name, const tsr_front *front,
                    uint64_t budget_bytes) {
  return ends_in(path, ".html") ? put_page(output, name, front, budget_bytes)
                                : put_csv(output, front);
}

static int write_front(cli_session *session, const char *name, const tsr_front *front,
                       uint64_t budget_bytes) {
  cli_output output = {.path = tsr_params_text(session->options->own, "write_front")};
  if (!output.path) return 0;
  int status = put_file(&output, output.path, name, front, budget_bytes);
  return cli_finish_aside(session, &output, status);
}

int cli_plan_front(cli_session *session, const char *name, tsr_planning *planning) {
  const char *path = session->options->output;
  uint64_t budget = tsr_params_count(session->options->own, "budget");
  tsr_front *front = calloc(1, sizeof *front);
  if (!front) return TSR_ERROR_MEMORY;
  int status = tsr_planning_front(planning, front, &session->error);
  bool is_json = session->report.format == TSR_REPORT_JSON;
  if (status == 0 && cli_plan_front_is_file(path) && !session->options->json)
    status = put_file(&session->output, path, name, front, budget);
  else if (status == 0)
    status = is_json ? put_json(session, front, budget) : put_text(session, name, front, budget);
  if (status == 0) status = write_front(session, name, front, budget);
  tsr_front_release(front);
  free(front);
  return status;
}
