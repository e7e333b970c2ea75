/* profile_page.c - a profile as one HTML page: a stacked chart of each device and a table.
 *
 * The chart is an SVG of 10,000 x 4,000 units that is stretched to whatever width there is; texts
 * stand beside it as HTML, so that they keep their size. Memory changes in steps, so everything is
 * drawn in steps: what a moment holds goes on until the next. A series is one path:
 *
 *   grouped   its upper edge from left to right, its lower edge back
 *   ordered   a rectangle for each stretch of time in which a band keeps its place
 *
 * Colours tell groups apart and nothing else: names and numbers are in the table, in the colour of
 * text. There is no script; the page asks for nothing. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/format.h"
#include "base/memory.h"
#include "report/heading.h"
#include "report/profile.h"
#include "report/text.h"
#include "tessera/report.h"

enum { WIDTH = 10000, HEIGHT = 4000, COLORS = 20, TICKS_MOST = 6, WRITE_BYTES = 1 << 16 };

static const char style[] =
    ":root{color-scheme:light dark;--page:#fff;--text:#1c1e21;--soft:#5a6069;--line:#d9dce1;"
    "--older:#c9cdd3;--mixed:#8b919b;--mark:#1c1e21}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#15171a;--text:#e8eaed;--soft:#a2a9b3;"
    "--line:#33373d;--older:#3c4148;--mixed:#767d88;--mark:#f4f5f6}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:76rem;padding:1.25rem 1rem 3rem;background:var(--page);"
    "color:var(--text);font:15px/1.45 system-ui,sans-serif}\n"
    "h1{font-size:1.35rem;margin:0 0 .1rem}h2{font-size:1.05rem;margin:2.2rem 0 .8rem}\n"
    ".file,.note{color:var(--soft);margin:0;overflow-wrap:anywhere}\n"
    ".note{font-size:.87rem;margin-top:.6rem}\n"
    ".chart{position:relative;margin:2.1rem 0 2.2rem 4.9rem;height:min(26rem,62vw);"
    "min-height:13rem}\n"
    ".chart svg{position:absolute;inset:0;width:100%;height:100%;"
    "border-bottom:1px solid var(--soft)}\n"
    ".chart svg path{shape-rendering:geometricPrecision}\n"
    ".grid{stroke:var(--line);stroke-width:1;vector-effect:non-scaling-stroke}\n"
    ".peak{stroke:var(--mark);stroke-width:1.5;stroke-dasharray:4 3;"
    "vector-effect:non-scaling-stroke}\n"
    ".y,.x,.top{position:absolute;font-size:.8rem;color:var(--soft);white-space:nowrap;"
    "font-variant-numeric:tabular-nums}\n"
    ".y{right:100%;padding-right:.45rem;transform:translateY(50%)}\n"
    ".x{top:100%;padding-top:.3rem}.top{bottom:100%;padding-bottom:.25rem;color:var(--text);"
    "font-weight:600}\n"
    ".scroll{overflow-x:auto}\n"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\n"
    "th,td{text-align:right;padding:.3rem .2rem .3rem .9rem;border-bottom:1px solid var(--line);"
    "white-space:nowrap}\n"
    "th{font-weight:600;color:var(--soft);font-size:.85rem}\n"
    "th:first-child,td:first-child{text-align:left;padding-left:0;white-space:normal;"
    "overflow-wrap:anywhere;min-width:9rem}\n"
    "i{display:inline-block;width:.8em;height:.8em;margin-right:.55em;border-radius:2px}\n"
    ".older{fill:var(--older);background:var(--older)}"
    ".mixed{fill:var(--mixed);background:var(--mixed)}\n"
    "@media(max-width:36rem){.chart{margin-left:3.9rem}.wide{display:none}"
    ".y,.x,.top{font-size:.72rem}}\n";

static const char *const colors[COLORS] = {"#4269d0", "#efb118", "#ff725c", "#43b39a", "#3ca951",
                                           "#f281b3", "#a463f2", "#7fb0f5", "#9c6b4e", "#8d949e",
                                           "#2f4b99", "#b07f0a", "#bd4a38", "#2f7d6c", "#277239",
                                           "#b2527f", "#6f3fae", "#4f7fc9", "#6d4a35", "#646a73"};

/* ---- texts ---- */

/* What may come from a file, as HTML. */
static void add_text(tsr__buffer *out, const char *text) {
  tsr__buffer clean = {0};
  (void)tsr__text_clean(&clean, tsr__text_of(text));
  if (clean.failed) out->failed = true;
  for (size_t i = 0; i < clean.size; i++) {
    switch (clean.data[i]) {
    case '&': tsr__buffer_text(out, "&amp;"); break;
    case '<': tsr__buffer_text(out, "&lt;"); break;
    case '>': tsr__buffer_text(out, "&gt;"); break;
    case '"': tsr__buffer_text(out, "&quot;"); break;
    default: tsr__buffer_append(out, &clean.data[i], 1);
    }
  }
  tsr__buffer_release(&clean);
}

/* The last series, where it is of several groups, is grey. */
static const char *color_of(const tsr_profile_device *device, size_t series) {
  return device->series[series].name ? colors[series % COLORS] : "#b4b9c1";
}

static void add_size(tsr__buffer *out, uint64_t bytes) {
  char text[TSR__FORMAT_BYTES];
  tsr__buffer_text(out, tsr__format_size(bytes, text));
}

static void add_count(tsr__buffer *out, uint64_t count) {
  char text[TSR__FORMAT_BYTES];
  tsr__buffer_text(out, tsr__format_count(count, text));
}

/* ---- the chart ---- */

typedef struct chart {
  const tsr_profile *profile;
  const tsr_profile_device *device;
  tsr__buffer *out;
  int64_t first_event;
  double event_count; /* across the whole width */
  uint64_t top_bytes; /* at the upper edge */
  /* One path a series, then that of cells of several, then that of older memory. */
  tsr__buffer *paths;
  size_t path_count;
} chart;

static int x_of(const chart *c, int64_t event) {
  return (int)((double)(event - c->first_event) / c->event_count * WIDTH + 0.5);
}

/* Where a moment ends: where the next begins. */
static int x_after(const chart *c, size_t moment) {
  return moment + 1 < c->device->moment_count ? x_of(c, c->device->moments[moment + 1].event)
                                              : WIDTH;
}

static int y_of(const chart *c, uint64_t bytes) {
  double share = (double)bytes / (double)c->top_bytes;
  return HEIGHT - (int)((share < 1 ? share : 1) * HEIGHT + 0.5);
}

static void add_box(tsr__buffer *path, int x0, int x1, int y0, int y1) {
  if (x1 > x0 && y0 > y1) tsr__buffer_printf(path, "M%d %dH%dV%dH%dz", x0, y0, x1, y1, x0);
}

/* The edge that `height` says of each moment, there or back. */
static void add_edge(const chart *c, tsr__buffer *path, const uint64_t *height, bool is_back) {
  size_t count = c->device->moment_count;
  int last = -1;
  for (size_t k = 0; k < count; k++) {
    size_t i = is_back ? count - 1 - k : k;
    int y = y_of(c, height[i]), begin = x_of(c, c->device->moments[i].event), end = x_after(c, i);
    if (y == last) continue;
    if (is_back)
      tsr__buffer_printf(path, k ? "H%dV%d" : "L%d %d", end, y);
    else
      tsr__buffer_printf(path, k ? "H%dV%d" : "M%d %d", begin, y);
    last = y;
  }
  tsr__buffer_printf(path, "H%d", is_back ? x_of(c, c->device->moments[0].event) : WIDTH);
}

/* One upon the other, in the order of series; `height` is what is below. */
static bool draw_groups(chart *c, uint64_t *height) {
  const tsr_profile_device *device = c->device;
  uint64_t *upper = TSR__NEW_ARRAY(uint64_t, device->moment_count);
  if (!upper) return false;
  for (size_t series = 0; series < device->series_count; series++) {
    for (size_t i = 0; i < device->moment_count; i++) {
      const tsr_profile_moment *moment = &device->moments[i];
      upper[i] = height[i];
      for (size_t k = 0; k < moment->share_count; k++)
        if (device->shares[moment->first_share + k].series == series)
          upper[i] = tsr__sum_u64(height[i], device->shares[moment->first_share + k].bytes);
    }
    add_edge(c, &c->paths[series], upper, false);
    add_edge(c, &c->paths[series], height, true);
    tsr__buffer_text(&c->paths[series], "z");
    for (size_t i = 0; i < device->moment_count; i++) height[i] = upper[i];
  }
  tsr__free(upper);
  return true;
}

/* A rectangle that is still growing to the right. */
typedef struct box {
  int x, y0, y1;
  bool is_open;
} box;

static void draw_cell(chart *c, box *boxes, const tsr_profile_cell *cell, int x, const int *y) {
  size_t series = cell->series == TSR_PROFILE_MIXED ? c->device->series_count : cell->series;
  box *b = &boxes[cell->band];
  if (b->is_open && b->y0 == y[0] && b->y1 == y[1]) return;
  if (b->is_open) add_box(&c->paths[series], b->x, x, b->y0, b->y1);
  *b = (box){x, y[0], y[1], true};
}

/* Bands that have no cell at this moment end here. */
static void close_boxes(chart *c, box *boxes, const uint32_t *seen, uint32_t now, int x) {
  for (size_t i = 0; i < c->device->band_count; i++) {
    if (!boxes[i].is_open || seen[i] == now) continue;
    add_box(&c->paths[c->device->bands[i].series], boxes[i].x, x, boxes[i].y0, boxes[i].y1);
    boxes[i].is_open = false;
  }
}

static bool draw_bands(chart *c, const uint64_t *height) {
  const tsr_profile_device *device = c->device;
  box *boxes = TSR__NEW_ARRAY(box, device->band_count);
  uint32_t *seen = TSR__NEW_ARRAY(uint32_t, device->band_count);
  for (size_t i = 0; boxes && seen && i < device->moment_count; i++) {
    const tsr_profile_moment *moment = &device->moments[i];
    uint64_t below = height[i];
    int x = x_of(c, moment->event);
    for (size_t k = 0; k < moment->cell_count; k++) {
      const tsr_profile_cell *cell = &device->cells[moment->first_cell + k];
      uint64_t above = tsr__sum_u64(below, cell->bytes);
      int y[2] = {y_of(c, below), y_of(c, above)};
      below = above;
      if (cell->band == TSR_PROFILE_MIXED) {
        size_t series = cell->series == TSR_PROFILE_MIXED ? device->series_count : cell->series;
        add_box(&c->paths[series], x, x_after(c, i), y[0], y[1]);
        continue;
      }
      seen[cell->band] = (uint32_t)i + 1;
      draw_cell(c, boxes, cell, x, y);
    }
    close_boxes(c, boxes, seen, (uint32_t)i + 1, x);
  }
  if (boxes && seen) close_boxes(c, boxes, seen, UINT32_MAX, WIDTH);
  bool ok = boxes && seen;
  tsr__free(boxes);
  tsr__free(seen);
  return ok;
}

static bool draw(chart *c) {
  const tsr_profile_device *device = c->device;
  uint64_t *height = TSR__NEW_ARRAY(uint64_t, device->moment_count);
  if (!height) return false;
  tsr__buffer *older = &c->paths[device->series_count + 1];
  add_edge(c, older, height, false);
  for (size_t i = 0; i < device->moment_count; i++) height[i] = device->moments[i].older_bytes;
  add_edge(c, older, height, true);
  tsr__buffer_text(older, "z");
  bool ok = c->profile->is_ordered ? draw_bands(c, height) : draw_groups(c, height);
  tsr__free(height);
  return ok;
}

/* ---- around the chart ---- */

/* Steps of the scale are powers of two, so that they are round in the units of sizes. */
static uint64_t scale_step(const chart *c) {
  uint64_t step = 1;
  while (c->top_bytes / step > TICKS_MOST) step *= 2;
  return step;
}

/* A size without the zeros behind its point. */
static void add_tick(tsr__buffer *out, uint64_t bytes) {
  char text[TSR__FORMAT_BYTES];
  const char *unit = strchr(tsr__format_size(bytes, text), ' ');
  size_t digits = (size_t)(unit - text);
  while (memchr(text, '.', digits) && strchr("0.", text[digits - 1])) digits--;
  tsr__buffer_append(out, text, digits);
  tsr__buffer_text(out, unit);
}

static void add_scale(const chart *c) {
  uint64_t step = scale_step(c);
  for (uint64_t bytes = 0; bytes <= c->top_bytes && bytes + step > bytes; bytes += step) {
    double percent = 100.0 * (double)bytes / (double)c->top_bytes;
    tsr__buffer_printf(c->out, "<span class=y style=\"bottom:%d.%d%%\">", (int)percent,
                       (int)(percent * 10) % 10);
    add_tick(c->out, bytes);
    tsr__buffer_text(c->out, "</span>\n");
  }
}

static void add_grid(const chart *c) {
  uint64_t step = scale_step(c);
  for (uint64_t bytes = step; bytes <= c->top_bytes && bytes + step > bytes; bytes += step)
    tsr__buffer_printf(c->out, "<path class=grid d=\"M0 %dH%d\"/>\n", y_of(c, bytes), WIDTH);
}

/* The first event, the last, and when they were. */
static void add_events(const chart *c) {
  const tsr_profile_device *device = c->device;
  const tsr_profile_moment *first = &device->moments[0],
                           *last = &device->moments[device->moment_count - 1];
  const tsr_profile_moment *ends[] = {first, last};
  static const char *const sides[] = {"left:0", "right:0"};
  for (size_t i = 0; i < 2; i++) {
    tsr__buffer_printf(c->out, "<span class=x style=\"%s\">event ", sides[i]);
    add_count(c->out, (uint64_t)ends[i]->event);
    if (ends[i]->time_us != TSR_TIME_NONE) {
      tsr__buffer_text(c->out, ", after ");
      tsr__profile_since(c->out, ends[i]->time_us, device->first_time_us);
    }
    tsr__buffer_text(c->out, "</span>\n");
  }
}

/* The peak's place; its words stand on the side where there is room. */
static void add_peak_label(const chart *c) {
  const tsr_profile_device *device = c->device;
  int x = x_of(c, device->peak_event);
  bool is_right = x > WIDTH / 2;
  int tenths = (is_right ? WIDTH - x : x) / 10;
  if (x < 0 || x > WIDTH) return;
  tsr__buffer_printf(c->out, "<span class=top style=\"%s:%d.%d%%\">peak ",
                     is_right ? "right" : "left", tenths / 10, tenths % 10);
  add_size(c->out, device->peak_bytes);
  tsr__buffer_text(c->out, " at event ");
  add_count(c->out, (uint64_t)device->peak_event);
  tsr__buffer_text(c->out, "</span>\n");
}

static void add_path(const chart *c, size_t index) {
  const tsr__buffer *path = &c->paths[index];
  const char *title = "from before the recording", *class = "older";
  if (!path->size) return;
  if (index < c->device->series_count) {
    title = tsr__profile_group_name(c->profile->by, c->device->series[index].name);
    tsr__buffer_printf(c->out, "<path fill=\"%s\"", color_of(c->device, index));
  } else {
    if (index == c->device->series_count) title = "bands too thin to tell apart", class = "mixed";
    tsr__buffer_printf(c->out, "<path class=%s", class);
  }
  tsr__buffer_text(c->out, " d=\"");
  tsr__buffer_append(c->out, path->data, path->size);
  tsr__buffer_text(c->out, "\"><title>");
  add_text(c->out, title);
  tsr__buffer_text(c->out, "</title></path>\n");
}

static void add_svg(const chart *c) {
  tsr__buffer_printf(c->out,
                     "<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=none role=img "
                     "aria-label=\"",
                     WIDTH, HEIGHT);
  tsr__buffer verdict = {0};
  tsr__profile_verdict(&verdict, c->profile->by, c->device);
  tsr__buffer_append(&verdict, "", 1);
  if (verdict.failed)
    c->out->failed = true;
  else
    add_text(c->out, verdict.data);
  tsr__buffer_release(&verdict);
  tsr__buffer_text(c->out, "\">\n");
  add_grid(c);
  for (size_t i = 0; i < c->path_count; i++) add_path(c, i);
  if (c->device->peak_event >= 0)
    tsr__buffer_printf(c->out, "<path class=peak d=\"M%d 0V%d\"/>\n",
                       x_of(c, c->device->peak_event), HEIGHT);
  tsr__buffer_text(c->out, "</svg>\n");
}

static bool add_chart(const tsr_profile *profile, const tsr_profile_device *device,
                      tsr__buffer *out) {
  chart c = {
      .profile = profile, .device = device, .out = out, .path_count = device->series_count + 2};
  c.paths = TSR__NEW_ARRAY(tsr__buffer, c.path_count);
  if (!c.paths) return false;
  c.first_event = device->moments[0].event;
  c.event_count = (double)(device->moments[device->moment_count - 1].event - c.first_event) + 1;
  for (size_t i = 0; i < device->moment_count; i++) {
    uint64_t all = tsr__sum_u64(device->moments[i].bytes, device->moments[i].older_bytes);
    if (all > c.top_bytes) c.top_bytes = all;
  }
  if (!c.top_bytes) c.top_bytes = 1;
  bool ok = draw(&c);
  for (size_t i = 0; i < c.path_count; i++) ok = ok && !c.paths[i].failed;
  if (ok) {
    tsr__buffer_text(out, "<div class=chart>\n");
    add_svg(&c);
    add_scale(&c);
    add_events(&c);
    add_peak_label(&c);
    tsr__buffer_text(out, "</div>\n");
  }
  for (size_t i = 0; i < c.path_count; i++) tsr__buffer_release(&c.paths[i]);
  tsr__free(c.paths);
  return ok;
}

/* ---- the table ---- */

/* What a series holds at the peak, where that is a moment of the history. */
static bool find_at_peak(const tsr_profile_device *device, size_t series, uint64_t *bytes) {
  *bytes = 0;
  for (size_t i = 0; i < device->moment_count; i++) {
    const tsr_profile_moment *moment = &device->moments[i];
    if (moment->event != device->peak_event) continue;
    for (size_t k = 0; k < moment->share_count; k++)
      if (device->shares[moment->first_share + k].series == series)
        *bytes = device->shares[moment->first_share + k].bytes;
    return true;
  }
  return false;
}

static void add_row(const tsr_profile *profile, const tsr_profile_device *device, size_t index,
                    tsr__buffer *out) {
  const tsr_profile_series *series = &device->series[index];
  uint64_t bytes;
  char share[TSR__FORMAT_BYTES] = "-";
  bool has_peak = find_at_peak(device, index, &bytes);
  tsr__buffer_printf(out, "<tr><td><i style=\"background:%s\"></i>", color_of(device, index));
  add_text(out, tsr__profile_group_name(profile->by, series->name));
  if (!series->name)
    tsr__buffer_printf(out, ": %" PRIu64 " groups, the largest", series->group_count);
  tsr__buffer_text(out, "<td>");
  if (has_peak) {
    add_size(out, bytes);
    (void)tsr__format_percent(bytes, device->peak_bytes, share);
  } else {
    tsr__buffer_text(out, "-");
  }
  tsr__buffer_printf(out, "<td class=wide>%s<td>", share);
  add_size(out, series->peak_bytes);
  tsr__buffer_text(out, "<td class=wide>");
  add_count(out, (uint64_t)series->peak_event);
  tsr__buffer_text(out, "<td class=wide>");
  tsr__profile_since(out, series->peak_time_us, device->first_time_us);
  tsr__buffer_text(out, "\n");
}

/* A colour that is no group's, and what it stands for. */
static void add_key(tsr__buffer *out, const char *class, const char *text) {
  tsr__buffer_printf(out, "<p class=note><i class=%s></i>%s</p>\n", class, text);
}

static void add_table(const tsr_profile *profile, const tsr_profile_device *device,
                      tsr__buffer *out) {
  tsr__buffer_printf(out,
                     "<div class=scroll><table>\n<tr><th>%s<th>at the peak<th class=wide>share"
                     "<th>its own peak<th class=wide>at event<th class=wide>after\n",
                     tsr__profile_column(profile->by));
  for (size_t i = 0; i < device->series_count; i++) add_row(profile, device, i, out);
  tsr__buffer_text(out, "</table></div>\n");
  bool is_mixed = false, has_older = false;
  for (size_t i = 0; i < device->cell_count; i++)
    is_mixed = is_mixed || device->cells[i].series == TSR_PROFILE_MIXED;
  for (size_t i = 0; i < device->moment_count; i++)
    has_older = has_older || device->moments[i].older_bytes;
  if (has_older)
    add_key(out, "older",
            "Memory from before the recording, in requested bytes; it is not part of the peak.");
  if (is_mixed) add_key(out, "mixed", "Neighbouring bands that are too thin to tell apart.");
}

/* ---- the page ---- */

static bool add_device(const tsr_profile *profile, const tsr_profile_device *device,
                       tsr__buffer *out) {
  tsr__buffer verdict = {0};
  tsr__profile_verdict(&verdict, profile->by, device);
  tsr__buffer_append(&verdict, "", 1);
  if (!verdict.failed) {
    tsr__buffer_text(out, "<h2>");
    add_text(out, verdict.data);
    tsr__buffer_text(out, "</h2>\n");
  }
  bool ok = !verdict.failed;
  tsr__buffer_release(&verdict);
  if (ok && device->moment_count) {
    ok = add_chart(profile, device, out);
    add_table(profile, device, out);
  }
  return ok;
}

static void add_head(const tsr_report_input *input, const tsr_profile *profile, tsr__buffer *out) {
  tsr__buffer_text(out, "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n"
                        "<meta name=viewport content=\"width=device-width,initial-scale=1\">\n"
                        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; "
                        "style-src 'unsafe-inline'\">\n<title>");
  add_text(out, input->path);
  tsr__buffer_printf(out, ": memory by %s</title>\n<style>\n%s</style>\n",
                     tsr__profile_column(profile->by), style);
  tsr__buffer_printf(out, "<h1>GPU memory by %s%s</h1>\n<p class=file>",
                     tsr__profile_column(profile->by),
                     profile->is_ordered ? ", in the order in which it was taken" : "");
  add_text(out, input->path);
  tsr__buffer_text(out, "</p>\n");
}

static void add_warnings(const tsr_report_input *input, const tsr_profile *profile,
                         tsr__buffer *out) {
  size_t count;
  tsr__warning_list list = {0};
  const tsr_warning *warnings = tsr_snapshot_warnings(input->snapshot, &count);
  tsr__warnings_add(&list, warnings, count);
  for (size_t i = 0; i < profile->device_count; i++)
    tsr__warnings_add(&list, profile->devices[i].warnings, profile->devices[i].warning_count);
  for (size_t i = 0; i < list.count; i++) {
    tsr__buffer_text(out, "<p class=note>Warning (");
    add_count(out, list.items[i].count);
    tsr__buffer_text(out, "): ");
    add_text(out, list.items[i].message);
    tsr__buffer_text(out, "</p>\n");
  }
}

static int write_all(const tsr__buffer *out, tsr_write_fn *write, void *context, tsr_error *error) {
  for (size_t at = 0; at < out->size; at += WRITE_BYTES) {
    size_t size = out->size - at < WRITE_BYTES ? out->size - at : WRITE_BYTES;
    if (write(context, out->data + at, size) != 0)
      return tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "the page cannot be written");
  }
  return 0;
}

int tsr_report_profile_page(const tsr_report_input *input, const tsr_profile *profile,
                            tsr_write_fn *write, void *context, tsr_error *error) {
  tsr__buffer out = {0};
  bool ok = true;
  add_head(input, profile, &out);
  if (!profile->device_count)
    tsr__buffer_text(&out, "<h2>No device has events or segments.</h2>\n");
  for (size_t i = 0; ok && i < profile->device_count; i++)
    ok = add_device(profile, &profile->devices[i], &out);
  add_warnings(input, profile, &out);
  int status = ok && !out.failed ? write_all(&out, write, context, error) : tsr__fail_memory(error);
  tsr__buffer_release(&out);
  return status;
}
