/* front.c - plans for less and less memory (`plan` with front): a table, JSON, CSV, and a page with a drawing. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/format.h"
#include "questions/plan/plan.h"

typedef char text[TSR__FORMAT_BYTES];

static bool has_change(const tsr_planned *point, const char *name) {
  for (size_t i = 0; point && i < point->change_count; i++)
    if (strcmp(point->changes[i].name, name) == 0) return true;
  return false;
}

/* Append the change that distinguishes a point from the one before: one that puts something on the host, or else the
 * last one that is new, or what is no longer changed. */
static void append_change(tsr__buffer *out, const tsr_planned *point, const tsr_planned *before) {
  const char *found = NULL;
  for (size_t i = 0; i < point->change_count; i++) {
    const char *name = point->changes[i].name;
    if (has_change(before, name)) continue;
    found = name;
    if (strstr(name, "on the host")) break;
  }
  for (size_t i = 0; before && !found && i < before->change_count; i++) {
    if (has_change(point, before->changes[i].name)) continue;
    tsr__buffer_printf(out, "without: %s", before->changes[i].name);
    return;
  }
  tsr__buffer_text(out, found ? found : "the same changes, differently");
}

/* Whether a plan of the front keeps something on the host, or the plan without changes does. */
static bool uses_host(const tsr_front *front) {
  bool any = front->count && front->points[0].as_is.host_bytes;
  for (size_t i = 0; i < front->count; i++) any |= front->points[i].with.host_bytes > 0;
  return any;
}

/* ---- text and JSON ---- */

static void emit_row(tsr__emitter *e, const tsr_front *front, const tsr_run_plan_cost *cost,
                     double as_is_s, tsr__cell change) {
  text time, more = "-";
  tsr__cell host = uses_host(front) ? tsr__bytes(cost->host_machine_bytes) : tsr__nothing();
  if (as_is_s > 0)
    (void)snprintf(more, sizeof more, "%+.1f %%", 100 * (cost->step_seconds / as_is_s - 1));
  tsr__emit_row(e, (tsr__cell[]){tsr__bytes(cost->reserved_bytes), tsr__bytes(cost->peak_bytes),
                                 host, tsr__string(tsr__format_duration(cost->step_seconds, time)),
                                 tsr__string(more), change});
  tsr__emit_row_end(e);
}

/* Mark the budget above the first row that is within it, once. */
static void mark_budget(tsr__emitter *e, uint64_t budget_bytes, uint64_t reserved_bytes,
                        bool *is_marked) {
  if (*is_marked || reserved_bytes > budget_bytes) return;
  tsr__emit_row(e, (tsr__cell[]){tsr__bytes(budget_bytes), tsr__string(""), tsr__string(""),
                                 tsr__string(""), tsr__string(""), tsr__string("the budget")});
  tsr__emit_row_end(e);
  *is_marked = true;
}

static void emit_rows(tsr__emitter *e, const tsr_front *front, uint64_t budget_bytes) {
  const tsr__column columns[] = {{NULL, "reserved", TSR__RIGHT},
                                 {NULL, "allocated", TSR__SPARE},
                                 {NULL, uses_host(front) ? "on the host" : NULL, TSR__RIGHT},
                                 {NULL, "a step", TSR__RIGHT},
                                 {NULL, "more", TSR__RIGHT},
                                 {NULL, "what is new", TSR__WRAPPED}};
  const tsr_run_plan_cost *as_is = &front->points[0].as_is;
  double as_is_s = as_is->step_seconds;
  bool is_marked = !budget_bytes;
  tsr__emit_table(e, NULL, columns, sizeof columns / sizeof *columns);
  if (as_is->is_possible) {
    mark_budget(e, budget_bytes, as_is->reserved_bytes, &is_marked);
    emit_row(e, front, as_is, as_is_s, tsr__string("as it is"));
  }
  for (size_t i = 0; i < front->count; i++) {
    const tsr_planned *point = &front->points[i];
    mark_budget(e, budget_bytes, point->with.reserved_bytes, &is_marked);
    if (as_is->is_possible && !point->change_count) continue; /* it equals the row above */
    append_change(&e->scratch, point, i ? &front->points[i - 1] : NULL);
    emit_row(e, front, &point->with, as_is_s,
             tsr__text((tsr_text){e->scratch.data, e->scratch.size}));
    e->scratch.size = 0;
  }
  mark_budget(e, budget_bytes, 0, &is_marked);
  tsr__emit_table_end(e);
}

static void emit_table(tsr__emitter *e, const char *name, const tsr_front *front,
                       uint64_t budget_bytes) {
  text most = "not possible", least;
  if (!front->count) {
    tsr__emit_printf(e, TSR__VERDICT, "%.200s: no plan is possible.", name);
    return;
  }
  const tsr_run_plan_cost *as_is = &front->points[0].as_is;
  const tsr_planned *last = &front->points[front->count - 1];
  if (as_is->is_possible) tsr__format_size(as_is->reserved_bytes, most);
  if (last->change_count || !as_is->is_possible)
    tsr__emit_printf(e, TSR__VERDICT, "%.200s: %s as it is, and %s with the leanest of %zu plan%s.",
                     name, most, tsr__format_size(last->with.reserved_bytes, least), front->count,
                     front->count == 1 ? "" : "s");
  else
    tsr__emit_printf(e, TSR__VERDICT, "%.200s: %s as it is; no plan that was found needs less.",
                     name, most);
  tsr__emit_ranks(e, last->plan);
  tsr__emit_space(e);
  emit_rows(e, front, budget_bytes);
}

static void emit_point(tsr__emitter *e, const tsr_planned *point) {
  const char *plan = tsr_run_plan_text(point->plan);
  tsr__emit_object(e, NULL);
  tsr__emit_field(e, "peak_allocated_bytes", NULL, tsr__bytes(point->with.peak_bytes));
  tsr__emit_field(e, "peak_reserved_bytes", NULL, tsr__bytes(point->with.reserved_bytes));
  tsr__emit_field(e, "step_time_us", NULL, tsr__real_as("%.3f", point->with.step_seconds * 1e6));
  tsr__emit_field(e, "step_time_low_us", NULL,
                  tsr__real_as("%.3f", point->with.step_low_seconds * 1e6));
  tsr__emit_field(e, "step_time_high_us", NULL,
                  tsr__real_as("%.3f", point->with.step_high_seconds * 1e6));
  tsr__emit_host_bytes(e, &point->with);
  tsr__emit_field(e, "plan_hash", NULL, tsr__string(tsr_run_plan_hash(point->plan)));
  tsr__emit_json(e, "plan", (tsr_text){plan, strlen(plan)});
  tsr__emit_end(e);
}

void tsr__emit_front(tsr__emitter *e, const char *name, const tsr__plan_value *value) {
  const tsr_plan_answer *answer = &value->about;
  const tsr_front *front = answer->front;
  if (tsr__emitter_is_text(e)) {
    emit_table(e, name, front, value->outside.share_bytes);
    if (front->count) tsr__emit_space(e);
    if (front->count) tsr__emit_time_band(e, value, &front->points[0].with, true);
    tsr__emit_plan_notes(e, value);
    tsr__emit_end_of_search(e, front->stopped_by, "plans that need less memory may exist");
    return;
  }
  tsr__emit_json_line(e, NULL);
  tsr__emit_field(e, "schema", NULL, tsr__string("tessera/1"));
  tsr__emit_field(e, "command", NULL, tsr__string("plan"));
  if (answer->budget_bytes)
    tsr__emit_field(e, "budget_bytes", NULL, tsr__bytes(answer->budget_bytes));
  tsr__emit_stopped(e, front->stopped_by);
  tsr__emit_array(e, "front");
  for (size_t i = 0; i < front->count; i++) emit_point(e, &front->points[i]);
  tsr__emit_end(e);
  tsr__emit_plan_notes(e, value);
  tsr__emit_end(e);
}

/* ---- CSV ---- */

/* Append a text, quoted for HTML or for a field of CSV. */
static void put_escaped(tsr__buffer *out, const char *content, bool is_html) {
  for (; *content; content++) {
    const char *to = NULL;
    if (*content == '"') to = is_html ? "&quot;" : "\"\"";
    if (is_html && *content == '<') to = "&lt;";
    if (is_html && *content == '&') to = "&amp;";
    if (!is_html && *content == '\n') to = ""; /* at the end of a plan */
    if (to)
      tsr__buffer_text(out, to);
    else
      tsr__buffer_append(out, content, 1);
  }
}

/* Append the plan's changes: "GELU as one kernel; fused optimizer". */
static void put_changes(tsr__buffer *out, const tsr_planned *point, bool is_html) {
  for (size_t i = 0; i < point->change_count; i++) {
    if (i) tsr__buffer_text(out, "; ");
    put_escaped(out, point->changes[i].name, is_html);
  }
}

static void put_csv(tsr__buffer *out, const tsr_front *front) {
  tsr__buffer_text(out, "reserved_bytes,allocated_bytes,step_time_us,changes,plan,host_bytes,"
                        "host_machine_bytes\n");
  for (size_t i = 0; i < front->count; i++) {
    const tsr_planned *point = &front->points[i];
    tsr__buffer_printf(out, "%" PRIu64 ",%" PRIu64 ",%.3f,\"", point->with.reserved_bytes,
                       point->with.peak_bytes, point->with.step_seconds * 1e6);
    put_changes(out, point, false);
    tsr__buffer_text(out, "\",\"");
    put_escaped(out, tsr_run_plan_text(point->plan), false);
    tsr__buffer_printf(out, "\",%" PRIu64 ",%" PRIu64 "\n", point->with.host_bytes,
                       point->with.host_machine_bytes);
  }
}

/* ---- a page ---- */

/* In the units of the drawing, which is as wide as the page. */
enum { WIDTH = 800, HEIGHT = 380, LEFT = 70, RIGHT = 20, TOP = 20, BOTTOM = 50, MARKS = 5 };

/* The axes: memory to the right, time upwards, from the smallest to the largest value of each. */
typedef struct chart {
  const tsr_front *front;
  uint64_t budget_bytes; /* 0 without a budget */
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

static void put_axes(tsr__buffer *out, const chart *c) {
  text label;
  for (size_t i = 0; i < MARKS; i++) {
    double part = (double)i / (MARKS - 1);
    double bytes = c->bytes[0] + part * (c->bytes[1] - c->bytes[0]);
    double seconds = c->seconds[0] + part * (c->seconds[1] - c->seconds[0]);
    tsr__buffer_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%s</text>\n",
                       x_of(c, bytes), HEIGHT - BOTTOM + 22, i + 1 < MARKS ? "middle" : "end",
                       tsr__format_size((uint64_t)bytes, label));
    tsr__buffer_printf(out,
                       "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" "
                       "y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                       LEFT, WIDTH - RIGHT, y_of(c, seconds), y_of(c, seconds), LEFT - 8,
                       y_of(c, seconds) + 4, tsr__format_duration(seconds, label));
  }
  tsr__buffer_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">reserved memory</text>\n",
                     WIDTH - RIGHT, HEIGHT - 8);
}

static void put_marks(tsr__buffer *out, const chart *c) {
  const tsr_run_plan_cost *as_is = &c->front->points[0].as_is;
  text size;
  if (c->budget_bytes) {
    double x = x_of(c, (double)c->budget_bytes);
    bool is_right = x > WIDTH / 2.0;
    tsr__buffer_printf(out,
                       "<line class=\"budget\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                       "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">budget: %s</text>\n",
                       x, x, TOP, HEIGHT - BOTTOM, x + (is_right ? -6 : 6), TOP + 4,
                       is_right ? "end" : "start", tsr__format_size(c->budget_bytes, size));
  }
  if (!as_is->is_possible) return;
  double x = x_of(c, (double)as_is->reserved_bytes), y = y_of(c, as_is->step_seconds);
  bool is_right = x > WIDTH / 2.0;
  tsr__buffer_printf(out,
                     "<rect class=\"as-is\" x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\"/>"
                     "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">as it is</text>\n",
                     x - 5, y - 5, x + (is_right ? -10 : 10), y + 4, is_right ? "end" : "start");
}

static void put_dot(tsr__buffer *out, const chart *c, size_t i) {
  const tsr_run_plan_cost *cost = &c->front->points[i].with;
  text reserved, time;
  tsr__buffer_printf(out,
                     "<a href=\"#p%zu\"><circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\"><title>%s, %s a "
                     "step</title></circle></a>\n",
                     i, x_of(c, (double)cost->reserved_bytes), y_of(c, cost->step_seconds),
                     tsr__format_size(cost->reserved_bytes, reserved),
                     tsr__format_duration(cost->step_seconds, time));
}

static void put_drawing(tsr__buffer *out, const chart *c) {
  tsr__buffer_printf(out,
                     "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"time of a step by "
                     "reserved memory\">\n",
                     WIDTH, HEIGHT);
  put_axes(out, c);
  put_marks(out, c);
  for (size_t i = 0; i < c->front->count; i++) put_dot(out, c, i);
  tsr__buffer_text(out, "</svg>\n");
}

static void put_plan(tsr__buffer *out, const tsr_planned *point, size_t i) {
  text reserved, peak, time;
  tsr__buffer_printf(out, "<tr id=\"p%zu\"><td>%s<td>%s<td>%s<td>", i,
                     tsr__format_size(point->with.reserved_bytes, reserved),
                     tsr__format_size(point->with.peak_bytes, peak),
                     tsr__format_duration(point->with.step_seconds, time));
  put_changes(out, point, true);
  if (!point->change_count) tsr__buffer_text(out, "as it is");
  if (point->with.host_bytes)
    tsr__buffer_printf(
        out, " (%s on the host%s)", tsr__format_size(point->with.host_machine_bytes, peak),
        point->with.host_machine_bytes > point->with.host_bytes ? " of a machine" : "");
  tsr__buffer_text(out, "<details><summary>plan</summary><code>");
  put_escaped(out, tsr_run_plan_text(point->plan), true);
  tsr__buffer_text(out, "</code></details>\n");
}

static void put_page(tsr__buffer *out, const char *name, const tsr_front *front,
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
  tsr__buffer_text(out, head);
  put_escaped(out, name, true);
  tsr__buffer_text(out, "</h1>\n<p>Memory to the right, time of a step upwards; each point is the "
                        "fastest plan for that memory. Times are estimates.</p>\n");
  chart c = chart_of(front, budget_bytes);
  if (front->count) put_drawing(out, &c);
  tsr__buffer_text(out, "<table><tr><th>reserved<th>allocated<th>a step<th>changes\n");
  for (size_t i = 0; i < front->count; i++) put_plan(out, &front->points[i], i);
  tsr__buffer_text(out, "</table>\n");
}

int tsr__write_front(const tsr_plan_answer *answer, const char *name, bool is_page,
                     tsr_write_fn *write, void *context, tsr_error *error) {
  tsr__buffer out = {0};
  if (is_page)
    put_page(&out, name, answer->front, answer->budget_bytes);
  else
    put_csv(&out, answer->front);
  int status = out.failed ? tsr__fail_memory(error) : 0;
  if (status == 0 && write(context, out.data, out.size))
    status = tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "the file could not be written");
  tsr__buffer_release(&out);
  return status;
}
