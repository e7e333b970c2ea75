/* growth.c - how a rank's memory grew from dump to dump, in which stacks, and when its card will be full.
 *
 *   bytes
 *     |              o  .'          A line through what was allocated at the end of each dump: its slope is the median of the slopes
 *     |           .o'               between any two dumps (Theil and Sen), so that a few odd dumps do not move it. It counts as growth only
 *     |      o .'                   if most pairs of dumps rise (Kendall), the later half of the dumps rises, too, and the line rises by
 *     |    .'      o                more than dumps typically are away from it. Few dumps must rise evenly instead.
 *     |_o'_______________ time
 *
 * Stacks are judged in the same way, one by one: those that explain a growth, or, where work in flight hides it in the sum, are all that
 * shows it; there are many stacks, so these must rise in more pairs. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/sort.h"
#include "fleet/fleet.h"
#include "fleet/gaps.h"

enum {
  MOST_DUMPS = 128, /* of a rank, chosen evenly */
  FEW_DUMPS = 7,    /* at most this many are judged by whether they rise evenly */
  MOST_STACKS = 64, /* that are listed of a rank */
  YEAR_HOURS = 365 * 24
};
/* How sure: standard deviations of Kendall's sum. */
static const double sure = 3, sure_of_stack = 4;
/* The smallest growth that counts, as a share of what is allocated. */
enum { LEAST_SHARE = 1000 };

/* ---- A line through points ---- */

typedef struct series {
  double x[MOST_DUMPS], y[MOST_DUMPS]; /* hours, or the number of the dump; bytes */
  size_t count;
} series;

typedef struct line {
  double slope;
  double sureness;
  bool is_steady;
} line;

static double median(double *numbers, size_t count) {
  if (!count) return 0;
  tsr__sort_reals(numbers, count);
  return count % 2 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

/* The median slope of pairs from point `first` on. `room` has space for all pairs. */
static double slope_of(const series *s, size_t first, double *room) {
  size_t pairs = 0;
  for (size_t i = first; i < s->count; i++)
    for (size_t k = i + 1; k < s->count; k++)
      if (s->x[k] > s->x[i]) room[pairs++] = (s->y[k] - s->y[i]) / (s->x[k] - s->x[i]);
  return median(room, pairs);
}

/* How many more pairs rise than fall, in the standard deviations that this has for points in any order. */
static double sureness_of(const series *s) {
  double rising = 0, n = (double)s->count;
  for (size_t i = 0; i < s->count; i++)
    for (size_t k = i + 1; k < s->count; k++) rising += (s->y[k] > s->y[i]) - (s->y[k] < s->y[i]);
  return rising / sqrt(n * (n - 1) * (2 * n + 5) / 18);
}

/* Whether each dump adds about as much to the one before: three are a line by accident sooner than seven. */
static bool rises_evenly(const series *s) {
  double lowest = INFINITY, highest = 0;
  for (size_t i = 1; i < s->count; i++) {
    double run = s->x[i] - s->x[i - 1], rise = s->y[i] - s->y[i - 1];
    if (run <= 0 || rise <= 0) return false;
    lowest = fmin(lowest, rise / run);
    highest = fmax(highest, rise / run);
  }
  return highest <= lowest * (s->count == 3 ? 1.1 : 1.5);
}

/* How far points typically are from the line, which goes through their medians. */
static double scatter_of(const series *s, double slope, double *room) {
  for (size_t i = 0; i < s->count; i++) room[i] = s->y[i] - slope * s->x[i];
  double middle = median(room, s->count);
  for (size_t i = 0; i < s->count; i++) room[i] = fabs(s->y[i] - slope * s->x[i] - middle);
  return median(room, s->count);
}

/* Of what is surely not steady, which most stacks are, the slope is not looked for. */
static line line_through(const series *s, double *room) {
  line out = {0};
  bool is_judged = s->count > 2, is_few = s->count <= FEW_DUMPS;
  if (s->count < 2) return out;
  out.sureness = sureness_of(s);
  if (is_judged && (is_few ? !rises_evenly(s) : out.sureness < sure)) return out;
  out.slope = slope_of(s, 0, room);
  double rise = out.slope * (s->x[s->count - 1] - s->x[0]);
  if (!is_judged || !(rise > 0) || rise * LEAST_SHARE < s->y[s->count - 1]) return out;
  out.is_steady = is_few || (slope_of(s, s->count / 2, room) >= out.slope / 4 &&
                             rise >= 2 * scatter_of(s, out.slope, room));
  return out;
}

/* ---- The dumps of a rank ---- */

typedef struct growing {
  tsr__fleet *fleet;
  size_t count; /* dumps that are looked at */
  tsr__dump dumps[MOST_DUMPS];
  tsr__sketch sketches[MOST_DUMPS];
  uint32_t *stack_of[MOST_DUMPS]; /* by sketch: the fleet's numbers of its stacks */
  double x[MOST_DUMPS];
  bool has_times;
  double *room; /* of line_through */
} growing;

/* Evenly chosen, the first and the last included. */
static void choose_dumps(growing *g, const tsr__dump *dumps, size_t count) {
  g->count = count < MOST_DUMPS ? count : MOST_DUMPS;
  assert(g->count > 1);
  g->has_times = true;
  for (size_t i = 0; i < g->count; i++) {
    size_t at =
        count <= MOST_DUMPS ? i : (size_t)((double)i * (double)(count - 1) / (MOST_DUMPS - 1));
    g->dumps[i] = dumps[i + 1 == g->count ? count - 1 : at];
    int64_t time_us = g->dumps[i].time_us;
    bool is_later = time_us != TSR_TIME_NONE && (!i || time_us > g->dumps[i - 1].time_us);
    g->has_times = g->has_times && is_later;
  }
  for (size_t i = 0; i < g->count; i++)
    g->x[i] = g->has_times ? ((double)g->dumps[i].time_us - (double)g->dumps[0].time_us) / 3.6e9
                           : (double)i;
}

static int decode_dumps(growing *g, tsr__builder *to, tsr_error *error) {
  int status = 0;
  for (size_t i = 0; !status && i < g->count; i++) {
    const tsr__fleet_file *file = &g->fleet->files.items[g->dumps[i].file];
    tsr__sketch *sketch = &g->sketches[i];
    status = tsr__sketch_decode(file->sketch.data, file->sketch.size, sketch, error);
    if (status) return status;
    g->stack_of[i] = TSR__NEW_ARRAY(uint32_t, sketch->stacks.count + 1);
    if (!g->stack_of[i] || !tsr__fleet_take_stacks(sketch, to, g->stack_of[i]))
      status = tsr__fail_memory(error);
  }
  return status;
}

static const tsr__sketch_device *device_in(const tsr__sketch *sketch, uint32_t device) {
  for (size_t i = 0; i < sketch->devices.count; i++)
    if (sketch->devices.items[i].device == device) return &sketch->devices.items[i];
  return NULL;
}

static const tsr__sketch_shares *ends_of(const tsr__sketch_device *device) {
  bool is_peak = device->peak_event == (int64_t)device->event_count - 1;
  return is_peak ? &device->shares : &device->ends;
}

/* Whether shares were left out of the sketch, so that a stack without one may still hold something. */
static bool is_cut(const tsr__sketch_device *device) {
  const tsr__sketch_shares *ends = ends_of(device);
  uint64_t sum = 0;
  for (size_t i = 0; i < ends->count; i++) sum = tsr__sum_u64(sum, ends->items[i].bytes);
  return sum < device->end_bytes;
}

/* ---- Stacks ---- */

/* A stack, or of memory without one a category. */
typedef struct stack_row {
  uint32_t stack;
  uint8_t category;           /* by its last dump that has it */
  uint64_t bytes[MOST_DUMPS]; /* summed over categories */
} stack_row;

typedef struct stack_rows {
  tsr__map index_of;
  TSR__VECTOR(stack_row) rows;
} stack_rows;

static bool add_dump(const growing *g, size_t at, const tsr__sketch_device *device,
                     stack_rows *out) {
  const tsr__sketch_shares *ends = ends_of(device);
  for (size_t i = 0; i < ends->count; i++) {
    const tsr__sketch_share *share = &ends->items[i];
    uint32_t stack = share->stack == TSR_NONE ? TSR_NONE : g->stack_of[at][share->stack];
    uint8_t known = stack == TSR_NONE ? share->category : TSR_CATEGORY_COUNT;
    bool is_new;
    uint64_t *index =
        tsr__map_put(&out->index_of, (uint64_t)stack << 8 | known, out->rows.count, &is_new);
    stack_row row = {.stack = stack};
    if (!index || (is_new && !TSR__VECTOR_PUSH(&out->rows, row))) return false;
    stack_row *to = &out->rows.items[*index];
    if (!to->bytes[at]) to->category = share->category; /* the largest one is first */
    to->bytes[at] = tsr__sum_u64(to->bytes[at], share->bytes);
  }
  return true;
}

static int compare_stacks(const void *a, const void *b) {
  const tsr_growth_stack *x = a, *y = b;
  uint64_t p = tsr__drop_u64(x->last_bytes, x->first_bytes);
  uint64_t q = tsr__drop_u64(y->last_bytes, y->first_bytes);
  if (x->bytes_per_hour != y->bytes_per_hour) return x->bytes_per_hour < y->bytes_per_hour ? 1 : -1;
  if (p != q) return p < q ? 1 : -1;
  return (x->stack > y->stack) - (x->stack < y->stack);
}

/* The points of a stack: of dumps that have the device, and whose sketches have the stack or all stacks. */
static void draw_stack(const growing *g, uint32_t device, const stack_row *row, series *out) {
  out->count = 0;
  for (size_t i = 0; i < g->count; i++) {
    const tsr__sketch_device *d = device_in(&g->sketches[i], device);
    if (!d || (!row->bytes[i] && is_cut(d))) continue;
    out->x[out->count] = g->x[i];
    out->y[out->count++] = (double)row->bytes[i];
  }
}

/* Judge each stack; `least` is how sure it must be. Fills `out`'s list. False when out of memory. */
static bool list_stacks(const growing *g, const stack_rows *rows, double least,
                        tsr_rank_growth *out) {
  series s;
  TSR__VECTOR(tsr_growth_stack) found = {0};
  for (size_t i = 0; i < rows->rows.count; i++) {
    const stack_row *row = &rows->rows.items[i];
    uint64_t first = row->bytes[0], last = row->bytes[g->count - 1];
    if (last <= first || last - first < out->last_bytes / LEAST_SHARE) continue;
    draw_stack(g, out->device, row, &s);
    line through = line_through(&s, g->room);
    bool is_judged = g->count > 2;
    if (is_judged && (!through.is_steady || through.sureness < least)) continue;
    tsr_growth_stack stack = {row->stack, (tsr_category)row->category, first, last,
                              g->has_times ? through.slope : 0};
    if (TSR__VECTOR_PUSH(&found, stack)) continue;
    TSR__VECTOR_FREE(&found);
    return false;
  }
  tsr__sort(found.items, found.count, sizeof *found.items, compare_stacks);
  out->stacks = found.items;
  out->stack_count = found.count < MOST_STACKS ? found.count : MOST_STACKS;
  return true;
}

/* ---- A device ---- */

static bool add_growth(growing *g, tsr_rank_growth *out, const series *whole,
                       const stack_rows *rows) {
  line through = line_through(whole, g->room);
  bool is_pair = g->count == 2;
  out->is_steady = through.is_steady;
  bool is_known = out->is_steady || is_pair;
  if (g->has_times) out->bytes_per_hour = through.slope;
  if (is_pair && out->last_bytes <= out->first_bytes) return true;
  if (!list_stacks(g, rows, is_known ? 0 : sure_of_stack, out)) return false;
  if (!is_known && !out->stack_count) return true;
  if (!is_known) {
    out->is_steady = true;
    out->bytes_per_hour = 0;
    for (size_t i = 0; i < out->stack_count; i++)
      out->bytes_per_hour += out->stacks[i].bytes_per_hour;
  }
  if (TSR__VECTOR_PUSH(&g->fleet->growths, *out)) return true;
  tsr__free(out->stacks);
  return false;
}

static bool grow_device(growing *g, int64_t rank, const tsr__sketch_device *last,
                        size_t dump_count) {
  stack_rows rows = {0};
  series whole = {.count = 0};
  tsr_rank_growth out = {.rank = rank,
                         .device = last->device,
                         .dumps = dump_count,
                         .first_us = g->dumps[0].time_us,
                         .last_us = g->dumps[g->count - 1].time_us,
                         .last_bytes = last->end_bytes,
                         .is_dead = last->stop.event >= 0,
                         .limit_bytes = last->limit_bytes,
                         .full_us = TSR_TIME_NONE};
  out.peak_bytes =
      last->peak_bytes > last->known_peak_bytes ? last->peak_bytes : last->known_peak_bytes;
  bool ok = true;
  for (size_t i = 0; ok && i < g->count; i++) {
    const tsr__sketch_device *d = device_in(&g->sketches[i], last->device);
    if (!d) continue;
    if (!whole.count) out.first_bytes = d->end_bytes;
    whole.x[whole.count] = g->x[i];
    whole.y[whole.count++] = (double)d->end_bytes;
    ok = add_dump(g, i, d, &rows);
  }
  ok = ok && (whole.count < 2 || add_growth(g, &out, &whole, &rows));
  tsr__map_release(&rows.index_of);
  TSR__VECTOR_FREE(&rows.rows);
  return ok;
}

int tsr__fleet_grow(tsr__fleet *fleet, int64_t rank, const tsr__dump *dumps, size_t count,
                    tsr__builder *to, tsr_error *error) {
  growing *g = TSR__NEW(growing);
  if (!g) return tsr__fail_memory(error);
  g->fleet = fleet;
  choose_dumps(g, dumps, count);
  g->room = TSR__NEW_ARRAY(double, (size_t)MOST_DUMPS *MOST_DUMPS / 2);
  int status = g->room ? decode_dumps(g, to, error) : tsr__fail_memory(error);
  const tsr__sketch *last = &g->sketches[g->count - 1];
  for (size_t i = 0; !status && i < last->devices.count; i++)
    if (!grow_device(g, rank, &last->devices.items[i], count)) status = tsr__fail_memory(error);
  for (size_t i = 0; i < g->count; i++) {
    tsr__sketch_release(&g->sketches[i]);
    tsr__free(g->stack_of[i]);
  }
  tsr__free(g->room);
  tsr__free(g);
  return status;
}

/* ---- When the card will be full ---- */

static void forecast(tsr_rank_growth *g) {
  bool has_rate = g->bytes_per_hour > 0 && g->bytes_per_hour < 1e18; /* what a card can do */
  if (!g->is_steady || g->is_dead || !g->limit_bytes || !has_rate) return;
  double hours = (double)tsr__drop_u64(g->limit_bytes, g->peak_bytes) / g->bytes_per_hour;
  double full_us = (double)g->last_us + hours * 3.6e9;
  if (hours <= YEAR_HOURS && full_us < 9e18) g->full_us = (int64_t)full_us;
}

static int compare_growths(const void *a, const void *b) {
  const tsr_rank_growth *x = a, *y = b;
  if ((x->full_us == TSR_TIME_NONE) != (y->full_us == TSR_TIME_NONE))
    return x->full_us == TSR_TIME_NONE ? 1 : -1;
  if (x->full_us != y->full_us) return x->full_us < y->full_us ? -1 : 1;
  uint64_t p = tsr__drop_u64(x->last_bytes, x->first_bytes);
  uint64_t q = tsr__drop_u64(y->last_bytes, y->first_bytes);
  if (p != q) return p < q ? 1 : -1;
  if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
  return (x->device > y->device) - (x->device < y->device);
}

void tsr__fleet_forecast(tsr__fleet *fleet, const tsr_fleet_options *options, tsr_ranks *out) {
  for (size_t i = 0; i < fleet->growths.count; i++) {
    tsr_rank_growth *g = &fleet->growths.items[i];
    if (options->capacity_bytes) g->limit_bytes = options->capacity_bytes;
    if (options->top && g->stack_count > options->top) g->stack_count = options->top;
    forecast(g);
  }
  tsr__sort(fleet->growths.items, fleet->growths.count, sizeof *fleet->growths.items,
            compare_growths);
  out->growths = fleet->growths.items;
  out->growth_count = fleet->growths.count;
}
