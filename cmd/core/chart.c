/* chart.c - see chart.h. The data is the history of a profile: moments by event, each with what is allocated and the requested bytes of
 * its groups. The moments keep every extreme of the trace, so the peak is in the picture, as high as other reports have it.
 *
 *   22.55 GiB |          ▆█▇                 what memory is between two moments is that of the earlier one
 *             |   ▂▄▆▇███████▆▄
 *           0 |████████████████████
 *              event 0          22,330
 */
#include "chart.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/params.h>

enum { COLUMNS = 72, ROWS = 8, EIGHTHS = 8, WIDTH = 880, HEIGHT = 240, COLOURS = 12 };

/* Seen on white and on black alike. */
static const char *const colours[COLOURS] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759",
                                             "#76b7b2", "#b07aa1", "#edc948", "#9c755f",
                                             "#ff9da7", "#8cd17d", "#86bcb6", "#8a8a8a"};

bool cli_chart_has(const tsr_profile_device *device) {
  return device->moment_count > 2 && device->peak_bytes &&
         device->moments[0].event < device->moments[device->moment_count - 1].event;
}

static uint64_t most_of(const tsr_profile_device *device) {
  uint64_t most = 1;
  for (size_t i = 0; i < device->moment_count; i++)
    if (device->moments[i].allocated_bytes > most) most = device->moments[i].allocated_bytes;
  return most;
}

/* Where a moment is, from 0 to 1. */
static double place_of(const tsr_profile_device *device, const tsr_profile_moment *moment) {
  double first = (double)device->moments[0].event;
  double last = (double)device->moments[device->moment_count - 1].event;
  return ((double)moment->event - first) / (last - first);
}

/* ---- Characters ---- */

/* The largest sum of each column: of the moments in it, and of the one before them that lasts into it. */
static void fill_columns(const tsr_profile_device *device, uint64_t columns[COLUMNS]) {
  size_t at = 0;
  uint64_t now = device->moments[0].allocated_bytes;
  for (int column = 0; column < COLUMNS; column++) {
    columns[column] = now;
    while (at < device->moment_count &&
           place_of(device, &device->moments[at]) * COLUMNS < column + 1.0) {
      now = device->moments[at++].allocated_bytes;
      if (now > columns[column]) columns[column] = now;
    }
  }
  if (device->moments[device->moment_count - 1].allocated_bytes > columns[COLUMNS - 1])
    columns[COLUMNS - 1] = device->moments[device->moment_count - 1].allocated_bytes;
}

void cli_chart_text(FILE *stream, const tsr_profile_device *device) {
  static const char *const blocks[EIGHTHS + 1] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  uint64_t columns[COLUMNS], most = most_of(device);
  char size[32];
  assert(cli_chart_has(device));
  fill_columns(device, columns);
  for (int row = ROWS - 1; row >= 0; row--) {
    const char *label = row == ROWS - 1 ? tsr_size_text(most, size, sizeof size) : row ? "" : "0";
    fprintf(stream, "%11s |", label);
    int blanks = 0;
    for (int column = 0; column < COLUMNS; column++) {
      double eighths = (double)columns[column] / (double)most * ROWS * EIGHTHS - row * EIGHTHS;
      int block = eighths < 0 ? 0 : eighths > EIGHTHS ? EIGHTHS : (int)(eighths + 0.5);
      if (block) fprintf(stream, "%*s%s", blanks, "", blocks[block]);
      blanks = block ? 0 : blanks + 1;
    }
    fputc('\n', stream);
  }
  char last[32];
  (void)snprintf(last, sizeof last, "%" PRId64, device->moments[device->moment_count - 1].event);
  fprintf(stream, "%11s  event %-*" PRId64 "%s\n", "", COLUMNS - 6 - (int)strlen(last),
          device->moments[0].event, last);
}

/* ---- SVG ---- */

/* The series after the last one is what is allocated beyond the requests: rounding and tails. */
static uint64_t share_of(const tsr_profile_device *device, const tsr_profile_moment *moment,
                         size_t series) {
  if (series == device->series_count)
    return moment->allocated_bytes > moment->bytes ? moment->allocated_bytes - moment->bytes : 0;
  for (size_t i = 0; i < moment->share_count; i++) {
    const tsr_profile_share *share = &device->shares[moment->first_share + i];
    if (share->series == series) return share->bytes;
  }
  return 0;
}

/* The largest such share. */
static uint64_t most_beyond(const tsr_profile_device *device) {
  uint64_t most = 0;
  for (size_t i = 0; i < device->moment_count; i++) {
    uint64_t bytes = share_of(device, &device->moments[i], device->series_count);
    if (bytes > most) most = bytes;
  }
  return most;
}

static double height_of(uint64_t bytes, uint64_t most) {
  return HEIGHT - (double)bytes / (double)most * HEIGHT;
}

/* A point of the area's edge, and the corner before it: memory changes at an event, and not between two. */
static void put_point(FILE *stream, double x, double y, bool is_first) {
  if (is_first)
    fprintf(stream, "%.1f,%.1f", x, y);
  else
    fprintf(stream, "H%.1fV%.1f", x, y);
}

/* The area between the groups below a series and those with it. `below` has the former for each moment, and becomes the latter. */
static void put_area(FILE *stream, const tsr_profile_device *device, size_t series, uint64_t *below,
                     uint64_t most) {
  size_t count = device->moment_count;
  fputs("<path fill=\"", stream);
  fprintf(stream, "%s\" d=\"M", colours[series % COLOURS]);
  for (size_t i = 0; i < count; i++) {
    const tsr_profile_moment *moment = &device->moments[i];
    put_point(stream, place_of(device, moment) * WIDTH,
              height_of(below[i] + share_of(device, moment, series), most), i == 0);
  }
  /* Backwards, memory changes after the way along, where the earlier moment ends. */
  for (size_t i = count; i-- > 0;)
    fprintf(stream, "V%.1fH%.1f", height_of(below[i], most),
            place_of(device, &device->moments[i]) * WIDTH);
  fputs("Z\"/>", stream);
  for (size_t i = 0; i < count; i++) below[i] += share_of(device, &device->moments[i], series);
}

static void put_escaped(FILE *stream, const char *text) {
  for (; *text; text++) {
    if (*text == '&')
      fputs("&amp;", stream);
    else if (*text == '<')
      fputs("&lt;", stream);
    else
      fputc(*text, stream);
  }
}

static void put_entry(FILE *stream, size_t series, const char *name, uint64_t bytes) {
  char size[32];
  fprintf(stream, "<span><i style=\"background:%s\"></i>", colours[series % COLOURS]);
  put_escaped(stream, name);
  fprintf(stream, " %s</span> ", tsr_size_text(bytes, size, sizeof size));
}

static void put_legend(FILE *stream, const tsr_profile_device *device) {
  uint64_t most = most_beyond(device);
  fputs("<figcaption>", stream);
  for (size_t i = 0; i < device->series_count; i++)
    put_entry(stream, i, device->series[i].name ? device->series[i].name : "all other",
              device->series[i].peak_bytes);
  if (most) put_entry(stream, device->series_count, "rounding and tails", most);
  fputs("</figcaption>\n", stream);
}

/* How much a series changes over the trace. */
static uint64_t change_of(const tsr_profile_device *device, size_t series) {
  uint64_t least = UINT64_MAX, most = 0;
  for (size_t i = 0; i < device->moment_count; i++) {
    uint64_t bytes = share_of(device, &device->moments[i], series);
    if (bytes < least) least = bytes;
    if (bytes > most) most = bytes;
  }
  return most - least;
}

/* The areas, those that change least at the bottom, so that they do not ride on the others. `below` is zeroed. */
static void put_areas(FILE *stream, const tsr_profile_device *device, uint64_t *below,
                      uint64_t *changes) {
  uint64_t most = most_of(device);
  for (size_t i = 0; i < device->series_count; i++) changes[i] = change_of(device, i);
  for (size_t done = 0; done < device->series_count; done++) {
    size_t next = 0;
    for (size_t i = 1; i < device->series_count; i++)
      if (changes[i] < changes[next]) next = i;
    put_area(stream, device, next, below, most);
    changes[next] = UINT64_MAX;
  }
  if (most_beyond(device)) put_area(stream, device, device->series_count, below, most);
}

bool cli_chart_svg(FILE *stream, const tsr_profile_device *device) {
  uint64_t *below = calloc(device->moment_count + device->series_count, sizeof *below);
  char size[32];
  assert(cli_chart_has(device));
  if (!below) return false;
  fprintf(stream,
          "<figure>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Memory over time, by "
          "category; at most %s\">",
          WIDTH, HEIGHT + 20, tsr_size_text(most_of(device), size, sizeof size));
  put_areas(stream, device, below, below + device->moment_count);
  fprintf(stream,
          "<g fill=\"currentColor\" font-size=\"12\"><text x=\"4\" y=\"13\">%s</text><text x=\"0\" "
          "y=\"%d\">event %" PRId64 "</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">%" PRId64
          "</text></g></svg>\n",
          size, HEIGHT + 15, device->moments[0].event, WIDTH, HEIGHT + 15,
          device->moments[device->moment_count - 1].event);
  put_legend(stream, device);
  fputs("</figure>\n", stream);
  free(below);
  return true;
}
