/* plan_front.c - `tessera plan MODEL --front`: the fastest plan for less and less memory, as a table, CSV or a page. */
#include <inttypes.h>
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

/* ---- text ---- */

static int put_row(cli_output *output, const tsr_planned *point, double as_is_s) {
  char line[LINE_BYTES], reserved[SIZE_BYTES], peak[SIZE_BYTES], time[SIZE_BYTES];
  const tsr_planned_change *last = &point->changes[point->change_count - 1];
  (void)snprintf(line, sizeof line, "  %11s %11s %9s %+7.1f %%  %.32s\n",
                 tsr_size_text(point->with.reserved_bytes, reserved, sizeof reserved),
                 tsr_size_text(point->with.peak_bytes, peak, sizeof peak),
                 cli_time_text(point->with.step_seconds, time, sizeof time),
                 as_is_s > 0 ? 100 * (point->with.step_seconds / as_is_s - 1) : 0.0,
                 point->change_count ? last->name : "");
  return put(output, line);
}

static int put_text(cli_session *session, const char *name, const tsr_front *front) {
  char line[LINE_BYTES], most[SIZE_BYTES], least[SIZE_BYTES];
  if (!front->count) {
    (void)snprintf(line, sizeof line, "%.200s: no plan takes less than it does as it is.\n", name);
    return put(&session->output, line);
  }
  const tsr_run_plan_cost *as_is = &front->points[0].as_is;
  uint64_t lowest = front->points[front->count - 1].with.reserved_bytes;
  (void)snprintf(line, sizeof line,
                 "%.200s: %s as it is, and %s with the leanest of %zu plans.\n\n", name,
                 tsr_size_text(as_is->reserved_bytes, most, sizeof most),
                 tsr_size_text(lowest, least, sizeof least), front->count);
  int status = put(&session->output, line);
  (void)snprintf(line, sizeof line, "  %11s %11s %9s %9s  %s\n", "reserved", "allocated", "a step",
                 "more", "last change");
  if (status == 0) status = put(&session->output, line);
  for (size_t i = 0; status == 0 && i < front->count; i++)
    status = put_row(&session->output, &front->points[i], as_is->step_seconds);
  return status;
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

static int put_json(cli_session *session, const tsr_front *front) {
  int status = put(&session->output, "{\"schema\":\"tessera/1\",\"command\":\"plan\",\"front\":[");
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

enum { WIDTH = 720, HEIGHT = 360, MARGIN = 40 };

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

/* Where a point is: memory to the right, time upwards. */
static void place(const tsr_front *front, const tsr_planned *point, double *x, double *y) {
  const tsr_run_plan_cost *first = &front->points[0].with;
  const tsr_run_plan_cost *last = &front->points[front->count - 1].with;
  double bytes = (double)(first->reserved_bytes - last->reserved_bytes);
  double seconds = last->step_seconds - first->step_seconds;
  *x = MARGIN +
       (bytes > 0 ? (double)(point->with.reserved_bytes - last->reserved_bytes) / bytes : 0) *
           (WIDTH - 2 * MARGIN);
  *y = HEIGHT - MARGIN -
       (seconds > 0 ? (point->with.step_seconds - first->step_seconds) / seconds : 0) *
           (HEIGHT - 2 * MARGIN);
}

static int put_dot(cli_output *output, const tsr_front *front, size_t i) {
  char line[LINE_BYTES], reserved[SIZE_BYTES], time[SIZE_BYTES];
  const tsr_planned *point = &front->points[i];
  double x, y;
  place(front, point, &x, &y);
  (void)snprintf(line, sizeof line,
                 "<a href=\"#p%zu\"><circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\"><title>%s, %s a step"
                 "</title></circle></a>\n",
                 i, x, y, tsr_size_text(point->with.reserved_bytes, reserved, sizeof reserved),
                 cli_time_text(point->with.step_seconds, time, sizeof time));
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
  if (status == 0) status = put_escaped(output, line);
  if (status == 0) status = put(output, "<td><code>");
  if (status == 0) status = put_escaped(output, tsr_run_plan_text(point->plan));
  return status ? status : put(output, "</code>\n");
}

static int put_page(cli_output *output, const char *name, const tsr_front *front) {
  static const char style[] =
      "<style>body{font:14px sans-serif;margin:2em;max-width:70em}td{padding:.2em .8em;"
      "vertical-align:top}tr:target{background:#fe8}td:nth-child(-n+3){text-align:right;"
      "white-space:nowrap}code{word-break:break-all}svg{border:1px solid #999}circle{fill:#247}"
      "</style>\n";
  char line[LINE_BYTES];
  int status = put(output, "<!doctype html><meta charset=\"utf-8\"><title>Plans</title>\n");
  if (status == 0) status = put(output, style);
  if (status == 0) status = put(output, "<h1>Plans for ");
  if (status == 0) status = put_escaped(output, name);
  (void)snprintf(
      line, sizeof line,
      "</h1>\n<p>Memory to the right, time of a step upwards; each point is a plan.</p>\n"
      "<svg width=\"%d\" height=\"%d\">\n",
      WIDTH, HEIGHT);
  if (status == 0) status = put(output, line);
  for (size_t i = 0; status == 0 && i < front->count; i++) status = put_dot(output, front, i);
  if (status == 0)
    status =
        put(output, "</svg>\n<table><tr><th>reserved<th>allocated<th>a step<th>changes<th>plan\n");
  for (size_t i = 0; status == 0 && i < front->count; i++)
    status = put_plan_row(output, &front->points[i], i);
  return status ? status : put(output, "</table>\n");
}

static int write_front(cli_session *session, const char *name, const tsr_front *front) {
  cli_output output = {.path = tsr_params_text(session->options->own, "write_front")};
  if (!output.path) return 0;
  size_t length = strlen(output.path);
  bool is_page = length > 5 && strcmp(output.path + length - 5, ".html") == 0;
  int status = is_page ? put_page(&output, name, front) : put_csv(&output, front);
  return cli_finish_aside(session, &output, status);
}

int cli_plan_front(cli_session *session, const char *name, tsr_planning *planning) {
  tsr_front *front = calloc(1, sizeof *front);
  if (!front) return TSR_ERROR_MEMORY;
  int status = tsr_planning_front(planning, front, &session->error);
  bool is_json = session->report.format == TSR_REPORT_JSON;
  if (status == 0) status = is_json ? put_json(session, front) : put_text(session, name, front);
  if (status == 0) status = write_front(session, name, front);
  tsr_front_release(front);
  free(front);
  return status;
}
