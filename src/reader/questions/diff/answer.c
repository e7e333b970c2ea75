/* answer.c - what changed between two runs?
 *
 * Each run's peak is computed with all its stacks, and the two lists become one: a row for each
 * class of stacks (diff/match.h), filled from both sides. Memory without a stack is two separate classes,
 * the last: what the recordings saw, and what is older. If the peaks are of different phases, other moments are
 * compared (phases.c). Rows that differ are changes, sorted by size. With category, operation
 * and line the rows are groups instead (groups.c).
 *
 *   old peak: stack ──► class ─┐
 *                              ├──► rows[class] = {old bytes, new bytes} ──► changes
 *   new peak: stack ──► class ─┘
 *
 * The cause, which the verdict names, is always found among the rows of stacks: each has its change in
 * every category, and the line of its stack.
 */
#include "questions/diff/diff.h"

#include <assert.h>
#include <string.h>

#include "attribution/labels.h"
#include "base/checked.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"
#include "emit/text.h"
#include "questions/diff/match.h"
#include "questions/diff/phases.h"
#include "questions/shared/names.h"
#include "questions/shared/query.h"
#include "questions/shared/shares.h"
#include "study/study.h"

static_assert(TSR_DIFF_SETTINGS_BYTES == TSR_ALLOCATOR_SETTINGS_TEXT_BYTES, "one text, one size");

/* Of the two names that a row has: one per side. */
static uint32_t name_entry(uint32_t class, int side) {
  return 2 * class + (uint32_t)side;
}

/* What the stacks of a class held. */
typedef struct row {
  tsr_change change;
  uint64_t largest[2];                    /* bytes of the stack that represents a side */
  tsr_category categories[2];             /* that stack's */
  int64_t kind_delta[TSR_CATEGORY_COUNT]; /* new less old */
  bool is_used;
} row;

/* Both runs; `peaks` have no limit on their lists. */
typedef struct pair {
  tsr_study *studies[2];            /* old, new */
  const tsr_snapshot *snapshots[2]; /* theirs */
  tsr_peak *peaks[2];
  const tsr__labels *lines[2], *operations[2]; /* operations: NULL unless grouped by them */
  tsr__match match;
  row *rows; /* by class, and two for memory without a stack: recorded, and older */
  tsr_at
      *elsewhere[2]; /* the moments compared of the device at hand, where not the peaks; or NULL */
  tsr_peak_device stand_in[2]; /* with the stacks of these */
} pair;

static uint32_t row_count(const pair *p) {
  return p->match.class_count + 2;
}

const char *tsr_change_status_name(tsr_change_status status) {
  switch (status) {
  case TSR_CHANGE_ADDED: return "added";
  case TSR_CHANGE_REMOVED: return "removed";
  case TSR_CHANGE_GROWN: return "grown";
  case TSR_CHANGE_SHRUNK: return "shrunk";
  }
  return "unknown";
}

int64_t tsr__diff_delta(uint64_t old_bytes, uint64_t new_bytes) {
  uint64_t size = old_bytes > new_bytes ? old_bytes - new_bytes : new_bytes - old_bytes;
  if (size > INT64_MAX) size = INT64_MAX;
  return old_bytes > new_bytes ? -(int64_t)size : (int64_t)size;
}

/* Saturating sums that never become INT64_MIN. */
static void grow(int64_t *sum, int64_t delta) {
  if (delta > 0 && *sum > INT64_MAX - delta)
    *sum = INT64_MAX;
  else if (delta < 0 && *sum < -INT64_MAX - delta)
    *sum = -INT64_MAX;
  else
    *sum += delta;
}

static uint64_t size_of(int64_t delta) {
  return delta < 0 ? (uint64_t)-delta : (uint64_t)delta;
}

/* Largest first; ties in the order of the classes, which is that of the files: `old_stack`
 * and `new_stack` are ids, which ascend with it. Groups by name. */
static int compare_changes(const void *a, const void *b) {
  const tsr_change *x = a, *y = b;
  uint64_t left = size_of(x->delta_bytes), right = size_of(y->delta_bytes);
  if (left != right) return left < right ? 1 : -1;
  if (x->name && y->name) return strcmp(x->name, y->name);
  if (x->new_stack != y->new_stack) return x->new_stack < y->new_stack ? -1 : 1;
  return (x->old_stack > y->old_stack) - (x->old_stack < y->old_stack);
}

/* ---- Devices ---- */

static bool has_device(const tsr_snapshot *snapshot, uint32_t device) {
  size_t count;
  const uint32_t *devices = tsr_snapshot_devices(snapshot, &count);
  for (size_t i = 0; i < count; i++)
    if (devices[i] == device) return true;
  return false;
}

static int add_device(const pair *p, uint32_t old_device, uint32_t new_device, tsr_diff *diff,
                      tsr_error *error) {
  char name[TSR__FORMAT_BYTES];
  tsr_diff_device *device = &diff->devices[diff->device_count];
  device->old_side.device = old_device;
  device->old_side.is_there = has_device(p->snapshots[0], old_device);
  device->new_side.device = new_device;
  device->new_side.is_there = has_device(p->snapshots[1], new_device);
  device->device = device->new_side.is_there ? new_device : old_device;
  if (!device->old_side.is_there && !device->new_side.is_there)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "neither snapshot has events or segments for %s",
                     tsr__device_name(new_device, name));
  diff->device_count++;
  return 0;
}

/* The devices of either snapshot, ascending, by merging the two lists. If each has one GPU, these are
 * compared, whatever their numbers. */
static int add_all(const pair *p, tsr_diff *diff, tsr_error *error) {
  size_t counts[2], at[2] = {0, 0};
  const uint32_t *lists[2];
  for (int k = 0; k < 2; k++) lists[k] = tsr_snapshot_devices(p->snapshots[k], &counts[k]);
  size_t gpu_counts[2];
  for (int k = 0; k < 2; k++) (void)tsr_snapshot_gpus(p->snapshots[k], &gpu_counts[k]);
  int status = 0;
  if (gpu_counts[0] == 1 && gpu_counts[1] == 1) {
    status = add_device(p, lists[0][0], lists[1][0], diff, error);
    at[0] = at[1] = 1;
  }
  while (!status && (at[0] < counts[0] || at[1] < counts[1])) {
    uint32_t left = at[0] < counts[0] ? lists[0][at[0]] : UINT32_MAX;
    uint32_t right = at[1] < counts[1] ? lists[1][at[1]] : UINT32_MAX;
    uint32_t device = left < right ? left : right;
    status = add_device(p, device, device, diff, error);
    at[0] += at[0] < counts[0] && left == device;
    at[1] += at[1] < counts[1] && right == device;
  }
  return status;
}

static int choose_devices(const pair *p, const tsr_query *query, tsr_diff *diff, tsr_error *error) {
  size_t old_count, new_count;
  tsr_snapshot_devices(p->snapshots[0], &old_count);
  tsr_snapshot_devices(p->snapshots[1], &new_count);
  bool names = query && query->device_count;
  diff->devices =
      TSR__NEW_ARRAY(tsr_diff_device, names ? query->device_count : old_count + new_count);
  if (!diff->devices) return tsr__fail_memory(error);
  if (!names) return add_all(p, diff, error);
  int status = 0;
  for (size_t i = 0; !status && i < query->device_count; i++)
    status = add_device(p, query->devices[i], query->devices[i], diff, error);
  return status;
}

/* ---- One device ---- */

static const tsr_peak_device *peak_of(const tsr_peak *peak, const tsr_diff_side *side) {
  for (size_t i = 0; side->is_there && i < peak->device_count; i++)
    if (peak->devices[i].device == side->device) return &peak->devices[i];
  return NULL;
}

static uint32_t class_of(const pair *p, int which, const tsr_stack_share *share) {
  const uint32_t *classes = which ? p->match.new_class : p->match.old_class;
  assert(share->stack == TSR_NONE || classes[share->stack] < p->match.class_count);
  if (share->stack != TSR_NONE) return classes[share->stack];
  return p->match.class_count + (share->older_allocations ? 1 : 0);
}

/* Add one side's shares to the rows of their classes. */
static void fill_rows(pair *p, int which, const tsr_peak_device *peak) {
  for (size_t i = 0; i < peak->stack_count; i++) {
    const tsr_stack_share *share = &peak->stacks[i];
    uint32_t class = class_of(p, which, share);
    row *r = &p->rows[class];
    tsr_change *change = &r->change;
    if (!r->is_used)
      *r = (row){.change = {.old_stack = TSR_NONE, .new_stack = TSR_NONE}, .is_used = true};
    change->is_moved = class < p->match.class_count && p->match.is_moved[class];
    change->is_older |= class > p->match.class_count && peak->has_history;
    uint64_t *bytes = which ? &change->new_bytes : &change->old_bytes;
    uint64_t *allocations = which ? &change->new_allocations : &change->old_allocations;
    if (!*allocations || share->bytes > r->largest[which]) {
      *(which ? &change->new_stack : &change->old_stack) = share->stack;
      r->largest[which] = share->bytes;
      r->categories[which] = share->category;
    }
    *bytes = tsr__sum_u64(*bytes, share->bytes);
    *allocations = tsr__sum_u64(*allocations, share->allocations);
    for (int kind = 0; kind < TSR_CATEGORY_COUNT; kind++)
      grow(&r->kind_delta[kind], which ? tsr__diff_delta(0, share->category_bytes[kind])
                                       : tsr__diff_delta(share->category_bytes[kind], 0));
  }
}

/* What the programs called the memory of each class, into `ranges` by name_entry. */
static int name_rows(const pair *p, const tsr_peak_device *const peaks[2], size_t top,
                     tsr_name_range *ranges, tsr_named **out, tsr_error *error) {
  tsr__name_sums sums;
  bool ok = true;
  tsr__name_sums_init(&sums);
  for (int k = 0; k < 2; k++)
    for (size_t i = 0; ok && peaks[k] && i < peaks[k]->stack_count; i++) {
      const tsr_stack_share *share = &peaks[k]->stacks[i];
      for (size_t n = 0; ok && n < share->names.count; n++)
        ok = tsr__name_sums_put(&sums, name_entry(class_of(p, k, share), k),
                                &peaks[k]->names[share->names.first + n]);
    }
  int status = ok ? tsr__name_sums_take(&sums, top, 2 * (size_t)row_count(p), ranges, out, error)
                  : tsr__fail_memory(error);
  tsr__name_sums_release(&sums);
  return status;
}

static void judge(tsr_change *change) {
  assert(change->old_allocations || change->new_allocations);
  change->delta_bytes = tsr__diff_delta(change->old_bytes, change->new_bytes);
  if (!change->old_allocations)
    change->status = TSR_CHANGE_ADDED;
  else if (!change->new_allocations)
    change->status = TSR_CHANGE_REMOVED;
  else
    change->status = change->delta_bytes < 0 ? TSR_CHANGE_SHRUNK : TSR_CHANGE_GROWN;
}

static void tally(tsr_diff_device *out, const tsr_change *change) {
  uint64_t *sums[] = {
      [TSR_CHANGE_ADDED] = &out->added_bytes,
      [TSR_CHANGE_REMOVED] = &out->removed_bytes,
      [TSR_CHANGE_GROWN] = &out->grown_bytes,
      [TSR_CHANGE_SHRUNK] = &out->shrunk_bytes,
  };
  assert((change->status == TSR_CHANGE_REMOVED || change->status == TSR_CHANGE_SHRUNK) ==
         (change->delta_bytes < 0));
  uint64_t *sum = sums[change->status];
  *sum = tsr__sum_u64(*sum, size_of(change->delta_bytes));
}

/* ---- The cause ---- */

/* Sums of changes by line and kind. */
typedef struct causes {
  tsr__intern names; /* of lines */
  tsr__map place;    /* line and kind -> index in deltas */
  TSR__VECTOR(int64_t) deltas;
  int64_t of_kind[TSR_CATEGORY_COUNT];
} causes;

/* The line of a class: the new side's name for it, if that side has it. */
static tsr_text line_of(const pair *p, const tsr_change *change) {
  int side = change->new_allocations ? 1 : 0;
  uint32_t stack = side ? change->new_stack : change->old_stack;
  return tsr__label_name(p->lines[side], tsr__label_of(p->lines[side], stack));
}

static bool add_cause(const pair *p, const row *r, causes *c) {
  tsr_text line = line_of(p, &r->change);
  uint32_t name = tsr__intern_put(&c->names, line.data, line.size_bytes, NULL);
  if (name == TSR__INTERN_FULL) return false;
  for (int kind = 0; kind < TSR_CATEGORY_COUNT; kind++) {
    if (!r->kind_delta[kind]) continue;
    bool is_new;
    uint64_t key = (uint64_t)name * TSR_CATEGORY_COUNT + (uint64_t)kind;
    const uint64_t *at = tsr__map_put(&c->place, key, c->deltas.count, &is_new);
    if (!at || (is_new && !TSR__VECTOR_PUSH(&c->deltas, 0))) return false;
    grow(&c->deltas.items[*at], r->kind_delta[kind]);
    grow(&c->of_kind[kind], r->kind_delta[kind]);
  }
  return true;
}

static int64_t change_at(causes *c, uint32_t name, int kind) {
  const uint64_t *at =
      tsr__map_find(&c->place, (uint64_t)name * TSR_CATEGORY_COUNT + (uint64_t)kind);
  return at ? c->deltas.items[*at] : 0;
}

/* The largest change in the direction of the total: first the category, then its line. */
static bool choose_cause(causes *c, tsr_diff_device *out) {
  int64_t whole = 0, sign, most = 0;
  for (int kind = 0; kind < TSR_CATEGORY_COUNT; kind++) grow(&whole, c->of_kind[kind]);
  sign = whole < 0 ? -1 : 1;
  for (int kind = 0; whole && kind < TSR_CATEGORY_COUNT; kind++) {
    if (sign * c->of_kind[kind] <= sign * out->cause.kind_delta_bytes) continue;
    out->cause.category = (tsr_category)kind;
    out->cause.kind_delta_bytes = c->of_kind[kind];
  }
  uint32_t best = TSR_NONE;
  for (uint32_t name = 0; out->cause.kind_delta_bytes && name < c->names.count; name++) {
    int64_t delta = sign * change_at(c, name, (int)out->cause.category), all = 0;
    if (delta <= most) continue;
    for (int kind = 0; kind < TSR_CATEGORY_COUNT; kind++) grow(&all, change_at(c, name, kind));
    if (sign * all <= 0) continue; /* the same memory in another category */
    most = delta;
    best = name;
  }
  if (best == TSR_NONE) return true;
  assert(most > 0 && best < c->names.count);
  const tsr__interned *name = &c->names.items[best];
  if (name->size_bytes && *(const char *)name->data == '(')
    return true; /* no line: no stack is recorded */
  char *text = TSR__NEW_ARRAY(char, (size_t)name->size_bytes + 1);
  if (!text) return false;
  memcpy(text, name->data, name->size_bytes);
  out->cause.line = out->names[1] = text;
  out->cause.line_delta_bytes = sign * most;
  return true;
}

static int find_cause(const pair *p, tsr_diff_device *out, tsr_error *error) {
  causes c = {0};
  bool ok = true;
  tsr__intern_init(&c.names);
  for (uint32_t i = 0; ok && i < row_count(p); i++)
    if (p->rows[i].is_used) ok = add_cause(p, &p->rows[i], &c);
  ok = ok && choose_cause(&c, out);
  tsr__intern_release(&c.names);
  tsr__map_release(&c.place);
  TSR__VECTOR_FREE(&c.deltas);
  return ok ? 0 : tsr__fail_memory(error);
}

/* ---- The list ---- */

/* The category that changed most, in the direction of the whole: what was freed had another one than what is
 * left, if a line's copies of weights are gone and its temporary is not. Without a change, that of the new side. */
static tsr_category changed_category(const row *r) {
  uint64_t delta = 0, most = 0;
  bool grows = r->change.new_bytes > r->change.old_bytes;
  tsr_category category = r->categories[r->change.new_allocations ? 1 : 0];
  for (int kind = 0; kind < TSR_CATEGORY_COUNT; kind++) {
    if ((r->kind_delta[kind] > 0) != grows) continue;
    delta = size_of(r->kind_delta[kind]);
    if (delta <= most) continue;
    most = delta;
    category = (tsr_category)kind;
  }
  return category;
}

/* Move the contents out of the rows, and clear them. */
static int take_rows(pair *p, const tsr_name_range *names, tsr_change **list, size_t *count,
                     tsr_error *error) {
  size_t used = 0;
  for (uint32_t i = 0; i < row_count(p); i++) used += p->rows[i].is_used;
  *list = TSR__NEW_ARRAY(tsr_change, used);
  *count = 0;
  if (!*list) return tsr__fail_memory(error);
  for (uint32_t i = 0; i < row_count(p); i++) {
    row *r = &p->rows[i];
    if (!r->is_used) continue;
    int side = r->change.new_allocations ? 1 : 0;
    r->change.category = changed_category(r);
    r->change.names = names[name_entry(i, side)];
    (*list)[(*count)++] = r->change;
    r->is_used = false;
  }
  assert(*count == used);
  return 0;
}

/* Keep what differs, largest first. */
static void judge_all(tsr_diff_device *out, size_t row_count, size_t top) {
  for (size_t i = 0; i < row_count; i++) {
    tsr_change *change = &out->changes[out->change_count];
    *change = out->changes[i];
    if (!change->old_allocations && !change->new_allocations) continue; /* part of another row */
    judge(change);
    out->moved_stacks += change->is_moved && change->old_allocations && change->new_allocations;
    out->unchanged_stacks += change->delta_bytes == 0;
    out->change_count += change->delta_bytes != 0;
    if (change->delta_bytes) tally(out, change);
  }
  assert(out->change_count + out->unchanged_stacks <= row_count);
  tsr__sort(out->changes, out->change_count, sizeof *out->changes, compare_changes);
  if (!top || out->change_count <= top) return;
  uint64_t up = 0, down = 0;
  for (size_t i = top; i < out->change_count; i++) {
    uint64_t *sum = out->changes[i].delta_bytes < 0 ? &down : &up;
    *sum = tsr__sum_u64(*sum, size_of(out->changes[i].delta_bytes));
  }
  out->omitted_delta_bytes = tsr__diff_delta(down, up);
  out->omitted_changes = out->change_count - top;
  out->change_count = top;
}

static int copy_warnings(const tsr_peak_device *peaks[2], tsr_diff_device *out, tsr_error *error) {
  size_t count = 0;
  for (int k = 0; k < 2; k++) count += peaks[k] ? peaks[k]->warning_count : 0;
  out->warnings = TSR__NEW_ARRAY(tsr_warning, count);
  if (!out->warnings) return tsr__fail_memory(error);
  for (int k = 0; k < 2; k++)
    for (size_t i = 0; peaks[k] && i < peaks[k]->warning_count; i++)
      out->warnings[out->warning_count++] = peaks[k]->warnings[i];
  return 0;
}

/* Copy one side's peak; `*out` becomes that peak, or NULL. */
static int describe_side(pair *p, int which, tsr_diff_side *side, const tsr_peak_device **out,
                         tsr_error *error) {
  const tsr_peak_device *peak = *out = peak_of(p->peaks[which], side);
  if (!peak) return 0;
  tsr_allocator_settings settings;
  tsr__timeline_settings(p->snapshots[which], side->device, &settings);
  tsr_allocator_settings_text(&settings, side->settings);
  side->event_count = peak->event_count;
  side->has_history = peak->has_history;
  side->peak = peak->peak;
  return tsr__diff_phases(p->studies[which], side, error);
}

static void leave_moments(pair *p) {
  for (int k = 0; k < 2; k++) {
    tsr_at_free(p->elsewhere[k]);
    p->elsewhere[k] = NULL;
  }
}

/* The stacks at the moment compared, if that is not the peak, in the place of those of the peak. */
static int go_to_moment(pair *p, int which, const tsr_diff_side *side, const tsr_peak_device **peak,
                        tsr_error *error) {
  tsr_query query = {.struct_bytes = sizeof query, .devices = &side->device, .device_count = 1};
  tsr_at_where where = {.kind = TSR_AT_EVENT, .event = side->compared.event};
  if (!*peak || side->compared.event == side->peak.event) return 0;
  int status = tsr_at_compute(p->studies[which], &where, &query, &p->elsewhere[which], error);
  if (status) return status;
  const tsr_at_device *at = p->elsewhere[which]->devices;
  p->stand_in[which] = **peak;
  p->stand_in[which].peak = at->moment;
  p->stand_in[which].stacks = at->stacks;
  p->stand_in[which].stack_count = at->stack_count;
  p->stand_in[which].names = at->names;
  *peak = &p->stand_in[which];
  return 0;
}

/* What each side holds at the moment compared. */
static int find_peaks(pair *p, tsr_diff_by by, tsr_diff_device *out,
                      const tsr_peak_device *peaks[2], tsr_error *error) {
  tsr_diff_side *const sides[] = {&out->old_side, &out->new_side};
  int status = 0;
  for (int k = 0; !status && k < 2; k++) status = describe_side(p, k, sides[k], &peaks[k], error);
  if (status) return status;
  tsr__diff_choose_moments(out);
  if (by == TSR_DIFF_BY_ALLOCATION) { /* of the last whole steps */
    out->compared_phase = TSR_PHASE_UNKNOWN;
    for (int k = 0; k < 2; k++) sides[k]->compared = sides[k]->peak;
  }
  for (int k = 0; !status && k < 2; k++) {
    status = go_to_moment(p, k, sides[k], &peaks[k], error);
    if (!status && peaks[k]) fill_rows(p, k, peaks[k]);
  }
  return status;
}

static int describe(pair *p, tsr_diff_by by, size_t top, tsr_diff_device *out, tsr_error *error) {
  const tsr_peak_device *peaks[2] = {NULL, NULL};
  size_t count = 0;
  tsr_name_range *names = TSR__NEW_ARRAY(tsr_name_range, 2 * (size_t)row_count(p));
  int status = names ? find_peaks(p, by, out, peaks, error) : tsr__fail_memory(error);
  if (!status) status = find_cause(p, out, error);
  if (!status && by == TSR_DIFF_BY_STACK)
    status = name_rows(p, peaks, top, names, &out->named, error);
  if (!status) status = take_rows(p, names, &out->changes, &count, error);
  tsr__free(names);
  if (!status && by != TSR_DIFF_BY_STACK) {
    tsr__free(out->changes);
    out->changes = NULL;
    count = 0;
  }
  bool is_aligned = by == TSR_DIFF_BY_ALLOCATION && peaks[0] && peaks[1];
  if (!status && is_aligned)
    status = tsr__diff_align(p->studies, &p->match, top, out, &out->alignment, error);
  if (!status && by != TSR_DIFF_BY_STACK && by != TSR_DIFF_BY_ALLOCATION) {
    const tsr__labels *const *places = by == TSR_DIFF_BY_OP ? p->operations : p->lines;
    tsr__diff_peaks of = {{peaks[0], peaks[1]}, {places[0], places[1]}};
    status = tsr__diff_groups(&of, by, out, &out->changes, &count, error);
  }
  if (status) return status;
  judge_all(out, count, top);
  return copy_warnings(peaks, out, error);
}

/* ---- Both ---- */

static int name_places(pair *p, int which, tsr_diff_by by, tsr_error *error) {
  int status = 0;
  if (by == TSR_DIFF_BY_OP)
    status = tsr__study_labels(p->studies[which], TSR__LABEL_OP, &p->operations[which], error);
  if (status) return status;
  return tsr__study_labels(p->studies[which], TSR__LABEL_LINE, &p->lines[which], error);
}

/* One of the two runs. */
typedef struct side_task {
  tsr__task task;
  pair *p;
  int which;
  tsr_diff_by by;
} side_task;

static int find_side(void *context, tsr_error *error) {
  const side_task *side = context;
  pair *p = side->p;
  int status = tsr_peak_compute(p->studies[side->which], NULL, &p->peaks[side->which], error);
  return status ? status : name_places(p, side->which, side->by, error);
}

static int find_match(void *context, tsr_error *error) {
  pair *p = context;
  return tsr__match_compute(p->snapshots[0], p->snapshots[1], &p->match, error);
}

/* The two peaks and the match of their stacks do not depend on each other. */
static int prepare(pair *p, tsr_diff_by by, tsr_error *error) {
  tsr__thread_pool *pool = tsr__study_pool(p->studies[0]);
  tsr__group group;
  tsr__task match;
  side_task sides[2];
  tsr__group_init(&group, pool ? pool : tsr__study_pool(p->studies[1]), NULL);
  for (int k = 0; k < 2; k++) {
    sides[k] = (side_task){.p = p, .which = k, .by = by};
    tsr__group_submit(&group, &sides[k].task, find_side, &sides[k]);
  }
  tsr__group_submit(&group, &match, find_match, p);
  int status = tsr__group_wait(&group, error);
  if (status) return status;
  p->rows = TSR__NEW_ARRAY(row, row_count(p));
  return p->rows ? 0 : tsr__fail_memory(error);
}

static void pair_release(pair *p) {
  tsr__match_release(&p->match);
  tsr_peak_free(p->peaks[0]);
  tsr_peak_free(p->peaks[1]);
  tsr__free(p->rows);
}

int tsr_diff_compute(tsr_study *old_study, tsr_study *new_study, tsr_diff_by by,
                     const tsr_query *query, tsr_diff **out, tsr_error *error) {
  pair p = {.studies = {old_study, new_study},
            .snapshots = {tsr_study_snapshot(old_study), tsr_study_snapshot(new_study)}};
  tsr_diff *diff = TSR__NEW(tsr_diff);
  if (!diff) return tsr__fail_memory(error);
  diff->by = by;
  int status = choose_devices(&p, query, diff, error);
  if (!status) status = prepare(&p, by, error);
  for (size_t i = 0; !status && i < diff->device_count; i++) {
    status = describe(&p, by, query ? query->top : 0, &diff->devices[i], error);
    leave_moments(&p);
  }
  pair_release(&p);
  if (status)
    tsr_diff_free(diff);
  else
    *out = diff;
  return status;
}

void tsr_diff_free(tsr_diff *diff) {
  if (!diff) return;
  for (size_t i = 0; i < diff->device_count; i++) {
    tsr__free(diff->devices[i].changes);
    tsr__free(diff->devices[i].named);
    tsr__free(diff->devices[i].warnings);
    tsr__alignment_free(diff->devices[i].alignment);
    for (int k = 0; k < 2; k++) tsr__free(diff->devices[i].names[k]);
  }
  tsr__free(diff->devices);
  tsr__free(diff);
}
