/* fleet.c - reading the files of ranks: see fleet.h. */
#include "fleet/fleet.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/os.h"
#include "base/pool.h"
#include "base/sort.h"
#include "fleet/places.h"

/* Of sketches of several files. */
#define MOST_FLEET_BYTES ((uint64_t)4 << 30)

void tsr__fleet_release(tsr__fleet *fleet) {
  for (size_t i = 0; i < fleet->files.count; i++) {
    tsr__free(fleet->files.items[i].path);
    tsr__free(fleet->files.items[i].message);
    tsr__buffer_release(&fleet->files.items[i].sketch);
  }
  for (size_t i = 0; i < fleet->members.count; i++) {
    TSR__VECTOR_FREE(&fleet->members.items[i].sketch.shares);
    TSR__VECTOR_FREE(&fleet->members.items[i].sketch.highs);
    TSR__VECTOR_FREE(&fleet->members.items[i].sketch.kept);
    TSR__VECTOR_FREE(&fleet->members.items[i].sketch.steps);
  }
  TSR__VECTOR_FREE(&fleet->files);
  TSR__VECTOR_FREE(&fleet->members);
  TSR__VECTOR_FREE(&fleet->by_group);
  TSR__VECTOR_FREE(&fleet->group_first);
  for (size_t i = 0; i < fleet->growths.count; i++) tsr__free(fleet->growths.items[i].stacks);
  TSR__VECTOR_FREE(&fleet->growths);
  TSR__VECTOR_FREE(&fleet->parts_seen);
  tsr_snapshot_free(fleet->stacks);
}

static char *copy_text(const char *text) {
  size_t size = strlen(text) + 1;
  char *copy = TSR__NEW_ARRAY(char, size);
  if (copy) memcpy(copy, text, size);
  return copy;
}

/* ---- One file ---- */

static int sketch_file(const char *path, tsr__buffer *out, tsr_error *error) {
  tsr_snapshot *snapshot = NULL;
  tsr_study *study = NULL;
  tsr__sketch sketch = {0};
  int status = tsr_snapshot_open(path, NULL, &snapshot, error);
  if (!status) status = tsr_study_new(snapshot, &study, error);
  if (!status) status = tsr__sketch_make(study, &sketch, error);
  if (!status && !tsr__sketch_encode(&sketch, out)) status = tsr__fail_memory(error);
  tsr__sketch_release(&sketch);
  tsr_study_free(study);
  tsr_snapshot_free(snapshot);
  return status;
}

typedef struct reading {
  tsr__fleet *fleet;
  tsr__work work;
} reading;

/* A file that cannot be read is one row less, and no failure. */
static int read_file(void *context, size_t index, tsr_error *error) {
  reading *r = context;
  tsr__fleet_file *file = &r->fleet->files.items[index];
  tsr_error reason = {.status = TSR_OK};
  if (!tsr__work_advance(&r->work, 1)) return tsr__work_stopped(error);
  if (file->sketch.size || file->message) return 0; /* of a file of sketches */
  int status = sketch_file(file->path, &file->sketch, &reason);
  if (!status) return 0;
  if (status == TSR_ERROR_MEMORY) return tsr__fail_memory(error);
  tsr__buffer_release(&file->sketch);
  file->sketch = (tsr__buffer){0};
  file->message = copy_text(reason.message);
  return file->message ? 0 : tsr__fail_memory(error);
}

/* ---- Finding files ---- */

/* Whether the file is one of sketches; then they are in the fleet. Whatever is wrong with another is found when it is read. */
static int try_sketches(const char *path, tsr__fleet *fleet, bool *is_fleet, tsr_error *error) {
  char head[32];
  int handle;
  uint64_t size = 0;
  *is_fleet = false;
  if (tsr__os_open_sized(path, &handle, &size, NULL)) return 0;
  size_t wanted = size < sizeof head ? (size_t)size : sizeof head;
  int status = 0;
  if (!tsr__os_read_exactly(handle, 0, head, wanted, NULL) && tsr__is_fleet(head, wanted)) {
    char *text = size <= MOST_FLEET_BYTES ? TSR__NEW_ARRAY(char, (size_t)size + 1) : NULL;
    *is_fleet = true;
    status =
        text ? tsr__os_read_exactly(handle, 0, text, (size_t)size, error) : tsr__fail_memory(error);
    if (!status) status = tsr__fleet_decode(text, (size_t)size, fleet, error);
    tsr__free(text);
  }
  tsr__os_close(handle);
  return status;
}

/* Whether the file is a page that tessera wrote, such as that of an earlier answer, which may be in the folder of the snapshots. */
static bool is_own_page(const char *path) {
  static const char begin[] = "<!doctype html>\n<!-- a page of tessera -->";
  char head[sizeof begin - 1];
  int handle;
  uint64_t size;
  size_t length = strlen(path);
  if (length < 5 || strcmp(path + length - 5, ".html") != 0) return false;
  if (tsr__os_open_sized(path, &handle, &size, NULL)) return false;
  bool is_page = size >= sizeof head && !tsr__os_read_exactly(handle, 0, head, sizeof head, NULL) &&
                 !memcmp(head, begin, sizeof head);
  tsr__os_close(handle);
  return is_page;
}

static int add_broken(tsr__fleet *fleet, const char *path, const char *message, tsr_error *error) {
  tsr__fleet_file file = {.path = copy_text(path), .message = message ? copy_text(message) : NULL};
  bool ok = file.path && (!message || file.message) && TSR__VECTOR_PUSH(&fleet->files, file);
  if (ok) return 0;
  tsr__free(file.path);
  tsr__free(file.message);
  return tsr__fail_memory(error);
}

static int add_files(const tsr__path_list *paths, const tsr_fleet_options *options,
                     tsr__fleet *fleet, tsr_error *error) {
  int status = 0;
  for (size_t i = 0; !status && i < paths->count; i++) {
    const char *path = paths->items[i];
    tsr_error reason = {.status = TSR_OK};
    bool is_fleet;
    if (is_own_page(path)) continue;
    status = try_sketches(path, fleet, &is_fleet, &reason);
    if (status == TSR_ERROR_MEMORY) return tsr__fail_memory(error);
    if (status)
      status = add_broken(fleet, path, reason.message, error);
    else if (!is_fleet && (!options->parts || i % options->parts == options->part - 1))
      status = add_broken(fleet, path, NULL, error);
  }
  return status;
}

static int compare_files(const void *a, const void *b) {
  const tsr__fleet_file *x = a, *y = b;
  int order = strcmp(x->path, y->path);
  if (order) return order;
  if (!x->message != !y->message)
    return x->message ? 1 : -1; /* a part done twice: what could be read */
  size_t least = x->sketch.size < y->sketch.size ? x->sketch.size : y->sketch.size;
  order = least ? memcmp(x->sketch.data, y->sketch.data, least) : 0;
  return order ? order : (x->sketch.size > y->sketch.size) - (x->sketch.size < y->sketch.size);
}

/* In the order of their paths, each once. */
static void sort_files(tsr__fleet *fleet) {
  size_t kept = 0;
  tsr__fleet_file *files = fleet->files.items;
  tsr__sort(files, fleet->files.count, sizeof *files, compare_files);
  for (size_t i = 0; i < fleet->files.count; i++) {
    if (kept && !strcmp(files[kept - 1].path, files[i].path)) {
      tsr__free(files[i].path);
      tsr__free(files[i].message);
      tsr__buffer_release(&files[i].sketch);
    } else {
      files[kept++] = files[i];
    }
  }
  fleet->files.count = kept;
}

/* ---- What is known ---- */

/* The sidecar of a snapshot, of which a sketch depends, too: "a.json" for "a.pickle.gz". False when out of memory. */
static bool name_sidecar(const char *path, tsr__buffer *out) {
  size_t size = strlen(path);
  if (size > 3 && !strcmp(path + size - 3, ".gz")) size -= 3;
  while (size && path[size - 1] != '.' && path[size - 1] != '/') size--;
  out->size = 0;
  tsr__buffer_append(out, path, size);
  tsr__buffer_append(out, "json", sizeof "json");
  return !out->failed;
}

/* Whether nothing about a file has changed since `when_ns`: neither its bytes nor, after something else was moved to its name, its inode. Clocks of
 * file systems tick in steps, so the same moment may be later. */
static bool is_older(const char *path, int64_t when_ns, bool is_there_if_absent) {
  int64_t written_ns, changed_ns;
  if (!tsr__os_changed(path, &written_ns, &changed_ns)) return is_there_if_absent;
  return written_ns < when_ns && changed_ns < when_ns;
}

/* Take the sketches of an earlier run for the files that have not changed since. */
static int take_known(const char *path, tsr__fleet *fleet, tsr_error *error) {
  tsr__fleet known = {0};
  tsr__buffer sidecar = {0};
  int64_t when_ns, changed_ns;
  bool is_fleet = false, ok = true;
  if (!tsr__os_changed(path, &when_ns, &changed_ns)) return 0;
  int status = try_sketches(path, &known, &is_fleet, error);
  if (status != TSR_ERROR_MEMORY) status = 0; /* damaged: all are read again */
  sort_files(&known);
  size_t at = 0;
  for (size_t i = 0; !status && ok && i < fleet->files.count; i++) {
    tsr__fleet_file *file = &fleet->files.items[i];
    while (at < known.files.count && strcmp(known.files.items[at].path, file->path) < 0) at++;
    if (at == known.files.count || strcmp(known.files.items[at].path, file->path) != 0) continue;
    tsr__fleet_file *from = &known.files.items[at];
    ok = name_sidecar(file->path, &sidecar);
    bool is_same = ok && from->sketch.size && !file->sketch.size && !file->message &&
                   is_older(file->path, when_ns, false) && is_older(sidecar.data, when_ns, true);
    if (!is_same) continue;
    file->sketch = from->sketch;
    from->sketch = (tsr__buffer){0};
  }
  tsr__buffer_release(&sidecar);
  tsr__fleet_release(&known);
  return status ? status : ok ? 0 : tsr__fail_memory(error);
}

static int find_files(const tsr_fleet_options *options, tsr__fleet *fleet, tsr_error *error) {
  tsr__path_list paths = {0};
  int status = 0;
  for (size_t i = 0; !status && i < options->place_count; i++) {
    tsr_error reason = {.status = TSR_OK};
    status = tsr__places_find(options->places[i], &paths, &reason);
    if (status && status != TSR_ERROR_MEMORY)
      status = tsr__fail(error, (tsr_status)status, TSR_OFFSET_NONE, "%.200s: %s",
                         options->places[i], reason.message);
    else if (status)
      status = tsr__fail_memory(error);
  }
  tsr__path_list_sort(&paths);
  if (!status) status = add_files(&paths, options, fleet, error);
  bool is_empty = !status && !paths.count;
  tsr__path_list_release(&paths);
  if (is_empty)
    return tsr__fail(
        error, TSR_ERROR_IO, TSR_OFFSET_NONE,
        "%.200s: no snapshots; their names end in .pickle, .pkl, .html, .zip, .snapshot or "
        ".sketch, or in one of these and .gz, .zst or .xz",
        options->place_count ? options->places[0] : "");
  return status;
}

/* ---- Which rank a file is of ---- */

typedef struct naming {
  tsr__file_name *names; /* by file */
  tsr__name_pattern *pattern;
} naming;

static int read_names(const tsr_fleet_options *options, const tsr__fleet *fleet, naming *out,
                      tsr_error *error) {
  size_t count = fleet->files.count;
  int status = 0;
  out->names = TSR__NEW_ARRAY(tsr__file_name, count);
  if (!out->names) return tsr__fail_memory(error);
  if (options->pattern) status = tsr__name_pattern_new(options->pattern, &out->pattern, error);
  for (size_t i = 0; !status && i < count; i++) {
    const char *path = fleet->files.items[i].path;
    tsr__file_name *name = &out->names[i];
    if (out->pattern)
      status = tsr__name_pattern_read(out->pattern, path, name, error);
    else
      tsr__file_name_read(path, name);
  }
  return status;
}

/* ---- Members ---- */

/* The rank's own device: the one that held most. Of a sketch with devices. */
static size_t main_device(const tsr__sketch *sketch) {
  size_t main = 0;
  for (size_t i = 1; i < sketch->devices.count; i++)
    if (sketch->devices.items[i].peak_bytes > sketch->devices.items[main].peak_bytes) main = i;
  return main;
}

bool tsr__fleet_take_stacks(const tsr__sketch *sketch, tsr__builder *to, uint32_t *stack_of) {
  for (size_t i = 0; i < sketch->stacks.count; i++) {
    const tsr__sketch_stack *stack = &sketch->stacks.items[i];
    uint32_t frames[64];
    assert(stack->depth <= sizeof frames / sizeof *frames);
    for (uint32_t k = 0; k < stack->depth; k++) {
      const tsr__sketch_frame *f = &sketch->frames.items[stack->first_frame + k];
      const char *name = sketch->texts.data + f->name, *file = sketch->texts.data + f->file;
      uint32_t name_id = tsr__builder_text(to, name), file_id = tsr__builder_text(to, file);
      frames[k] = tsr__builder_frame(to, (tsr_frame){name_id, file_id, f->line});
    }
    stack_of[i] = tsr__builder_stack(to, frames, stack->depth);
    if (stack_of[i] == TSR_NONE) return false;
  }
  return true;
}

static void renumber(tsr__sketch_shares *shares, const uint32_t *stack_of) {
  for (size_t i = 0; i < shares->count; i++)
    if (shares->items[i].stack != TSR_NONE)
      shares->items[i].stack = stack_of[shares->items[i].stack];
}

static void sum_categories(tsr__member *member) {
  for (size_t i = 0; i < member->sketch.shares.count; i++) {
    const tsr__sketch_share *share = &member->sketch.shares.items[i];
    uint64_t *sum = &member->category_bytes[share->category];
    *sum = tsr__sum_u64(*sum, share->bytes);
  }
  for (size_t i = 0; i < member->sketch.highs.count; i++) {
    const tsr__sketch_share *high = &member->sketch.highs.items[i];
    bool is_activation = high->category == TSR_CATEGORY_ACTIVATION;
    if (is_activation) member->live_count = tsr__sum_u64(member->live_count, high->count);
  }
}

/* Take the devices of a sketch, which keeps what is left of it. */
static bool take_devices(tsr__fleet *fleet, tsr__sketch *sketch, const tsr__member *like,
                         const uint32_t *stack_of) {
  size_t main = main_device(sketch);
  for (size_t i = 0; i < sketch->devices.count; i++) {
    tsr__sketch_device *device = &sketch->devices.items[i];
    if (i != main && !device->peak_bytes) continue;
    tsr__member member = *like;
    member.sketch = *device;
    member.sketch.ends = (tsr__sketch_shares){0}; /* which only growth needs */
    member.is_other = i != main;
    renumber(&member.sketch.shares, stack_of);
    renumber(&member.sketch.highs, stack_of);
    renumber(&member.sketch.kept, stack_of);
    if (member.sketch.stop.stack != TSR_NONE)
      member.sketch.stop.stack = stack_of[member.sketch.stop.stack];
    sum_categories(&member);
    if (!TSR__VECTOR_PUSH(&fleet->members, member)) return false;
    device->shares = device->highs = device->kept = (tsr__sketch_shares){0};
    memset(&device->steps, 0, sizeof device->steps);
  }
  return true;
}

/* When a snapshot was taken: by its sidecar, its last event, or its name, whose stamps of ten digits are seconds since 1970. */
static int64_t time_of(const tsr__sketch *sketch, int64_t stamp) {
  enum { EARLIEST_S = 1000000000 };
  int64_t last = sketch->taken_us;
  for (size_t i = 0; i < sketch->devices.count && sketch->taken_us == TSR_TIME_NONE; i++)
    if (sketch->devices.items[i].last_us > last) last = sketch->devices.items[i].last_us;
  bool has_stamp = last == TSR_TIME_NONE && stamp >= EARLIEST_S && stamp < UINT32_MAX;
  return has_stamp ? stamp * 1000000 : last;
}

/* A file on the way to being a member. */
typedef struct candidate {
  size_t file;
  int64_t rank, step, stamp, time_us, started_us;
  bool has_clock; /* the time is of a sidecar */
  tsr_rank_source source;
  tsr_rank_place place;
  uint32_t device; /* the rank's own */
} candidate;

static int compare_candidates(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  if (x->stamp != y->stamp) return x->stamp < y->stamp ? -1 : 1;
  if (x->time_us != y->time_us) return x->time_us < y->time_us ? -1 : 1;
  return (x->file > y->file) - (x->file < y->file);
}

/* By the clock alone, which all of them have: steps begin again after a restart. */
static int compare_by_clock(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
  if (x->time_us != y->time_us) return x->time_us < y->time_us ? -1 : 1;
  return compare_candidates(a, b);
}

typedef TSR__VECTOR(candidate) candidate_list;

static void sort_candidates(candidate_list *list) {
  bool have_clocks = true;
  for (size_t i = 0; i < list->count; i++) have_clocks = have_clocks && list->items[i].has_clock;
  tsr__sort(list->items, list->count, sizeof *list->items,
            have_clocks ? compare_by_clock : compare_candidates);
}

/* What the sketch and the name say of a file's rank; rank -1 where neither does. */
static void place_file(const tsr__sketch *sketch, const tsr__file_name *name, bool has_pattern,
                       candidate *out) {
  out->place = sketch->place;
  out->step = name->step;
  out->stamp = name->stamp;
  out->time_us = time_of(sketch, name->stamp);
  out->has_clock = sketch->taken_us != TSR_TIME_NONE;
  out->started_us = sketch->started_us;
  out->source = TSR_RANK_FROM_SIDECAR;
  out->rank = sketch->place.rank;
  out->device = sketch->devices.items[main_device(sketch)].device;
  bool wins = has_pattern || out->rank < 0;
  if (wins && name->rank >= 0) {
    out->rank = name->rank;
    out->source = has_pattern ? TSR_RANK_FROM_PATTERN : TSR_RANK_FROM_NAME;
  }
  if (wins && name->axis_count) {
    memcpy(out->place.axes, name->axes, sizeof name->axes);
    out->place.axis_count = name->axis_count;
  }
  if (name->world_size > 0) out->place.world_size = name->world_size;
}

static int set_message(tsr__fleet_file *file, const char *message, tsr_error *error) {
  file->message = copy_text(message);
  return file->message ? 0 : tsr__fail_memory(error);
}

static int list_candidates(tsr__fleet *fleet, const naming *names, candidate_list *out,
                           tsr_error *error) {
  int status = 0;
  for (size_t i = 0; !status && i < fleet->files.count; i++) {
    tsr__fleet_file *file = &fleet->files.items[i];
    tsr__sketch sketch = {0};
    tsr_error reason = {.status = TSR_OK};
    candidate c = {.file = i};
    if (file->message) continue;
    status = tsr__sketch_decode(file->sketch.data, file->sketch.size, &sketch, &reason);
    if (status == TSR_ERROR_FORMAT) {
      status = set_message(file, reason.message, error);
    } else if (!status && !sketch.devices.count) {
      status = set_message(file, "the snapshot has no device", error);
    } else if (!status) {
      place_file(&sketch, &names->names[i], names->pattern != NULL, &c);
      if (!TSR__VECTOR_PUSH(out, c)) status = tsr__fail_memory(error);
    } else {
      status = tsr__fail_memory(error);
    }
    tsr__sketch_release(&sketch);
  }
  return status;
}

/* One file that says nothing is rank 0; of several, those that say nothing cannot be used. */
static int settle_unknown(tsr__fleet *fleet, candidate_list *list, tsr_error *error) {
  size_t unknown = 0, kept = 0;
  for (size_t i = 0; i < list->count; i++) unknown += list->items[i].rank < 0;
  if (unknown && list->count == 1) {
    list->items[0].rank = 0;
    list->items[0].source = TSR_RANK_FROM_ORDER;
    return 0;
  }
  if (unknown && unknown == list->count)
    return tsr__fail(
        error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
        "no name tells its rank, as '%.200s' shows: say where it is with --pattern, as "
        "in --pattern 'worker(?<rank>\\d+)'",
        fleet->files.items[list->items[0].file].path);
  int status = 0;
  for (size_t i = 0; !status && i < list->count; i++) {
    if (list->items[i].rank < 0)
      status = set_message(&fleet->files.items[list->items[i].file],
                           "neither its name nor a sidecar tells its rank", error);
    else
      list->items[kept++] = list->items[i];
  }
  list->count = kept;
  return status;
}

/* The end of a path, for a message that has room for two: from a folder's begin. */
static const char *end_of(const char *path) {
  enum { SHOWN = 60 };
  size_t size = strlen(path);
  const char *end = size > SHOWN ? path + size - SHOWN : path, *slash = strchr(end, '/');
  return end > path && slash ? slash + 1 : end;
}

/* Two files of one rank are two dumps, if something tells their order: a step, a time. Equal ones in two folders are two jobs. */
static int check_jobs(const tsr__fleet *fleet, const candidate_list *list, tsr_error *error) {
  for (size_t i = 1; i < list->count; i++) {
    const candidate *a = &list->items[i - 1], *b = &list->items[i];
    if (a->rank != b->rank || a->step != b->step || a->stamp != b->stamp) continue;
    const char *x = fleet->files.items[a->file].path, *y = fleet->files.items[b->file].path;
    size_t folder = tsr__folder_bytes(x);
    bool is_ordered = a->time_us != b->time_us && a->step >= 0;
    if (is_ordered ||
        (folder == tsr__folder_bytes(y) && !memcmp(x, y, folder) && a->time_us != b->time_us))
      continue;
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "rank %lld has two snapshots, and nothing tells which is later: %s and %s; "
                     "name the folder of one job, or tell step and rank with --pattern",
                     (long long)a->rank, end_of(x), end_of(y));
  }
  return 0;
}

/* What a rank's dumps, which are consecutive in the list, show together: those of the last process. */
static int take_growth(tsr__fleet *fleet, const candidate *first, size_t count, tsr__builder *to,
                       tsr_error *error) {
  size_t begin = count - 1;
  while (begin && first[begin - 1].started_us == first[count - 1].started_us) begin--;
  if (count - begin < 2) return 0;
  tsr__dump *dumps = TSR__NEW_ARRAY(tsr__dump, count - begin);
  if (!dumps) return tsr__fail_memory(error);
  for (size_t i = begin; i < count; i++)
    dumps[i - begin] = (tsr__dump){first[i].time_us, first[i].file};
  int status = tsr__fleet_grow(fleet, first->rank, dumps, count - begin, to, error);
  tsr__free(dumps);
  return status;
}

/* A process keeps its device, so dumps of two devices are not of one rank. */
static int check_devices(const tsr__fleet *fleet, const candidate_list *list, tsr_error *error) {
  for (size_t i = 1; i < list->count; i++) {
    const candidate *a = &list->items[i - 1], *b = &list->items[i];
    if (a->rank == b->rank && a->device != b->device)
      return tsr__fail(
          error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
          "rank %lld has snapshots of the devices %lu and %lu, so they are of different "
          "processes: %s and %s; tell their ranks with --pattern",
          (long long)a->rank, (unsigned long)a->device, (unsigned long)b->device,
          end_of(fleet->files.items[a->file].path), end_of(fleet->files.items[b->file].path));
  }
  return 0;
}

/* The last dump of each rank becomes its members. */
static int take_members(tsr__fleet *fleet, const candidate_list *list, const naming *names,
                        tsr__builder *to, tsr_error *error) {
  int status = 0;
  bool is_first = true;
  size_t first = 0;
  for (size_t i = 0; !status && i < list->count; i++) {
    const candidate *c = &list->items[i];
    if (i + 1 < list->count && c[1].rank == c->rank) continue;
    status = take_growth(fleet, &list->items[first], i + 1 - first, to, error);
    if (status) return status;
    first = i + 1;
    const tsr__fleet_file *file = &fleet->files.items[c->file];
    tsr__sketch sketch = {0};
    tsr__member like = {.file = c->file,
                        .rank = c->rank,
                        .step = c->step,
                        .place = c->place,
                        .taken_us = c->time_us,
                        .says_oom = names->names[c->file].says_oom};
    status = tsr__sketch_decode(file->sketch.data, file->sketch.size, &sketch, error);
    like.is_partial = sketch.is_partial;
    uint32_t *stack_of = TSR__NEW_ARRAY(uint32_t, sketch.stacks.count + 1);
    if (!status && (!stack_of || !tsr__fleet_take_stacks(&sketch, to, stack_of) ||
                    !take_devices(fleet, &sketch, &like, stack_of)))
      status = tsr__fail_memory(error);
    tsr__free(stack_of);
    tsr__sketch_release(&sketch);
    if (like.place.world_size > fleet->world_size) fleet->world_size = like.place.world_size;
    if (is_first || c->source < fleet->rank_source) fleet->rank_source = c->source;
    is_first = false;
  }
  return status;
}

static int make_members(const tsr_fleet_options *options, tsr__fleet *fleet, tsr_error *error) {
  naming names = {0};
  candidate_list list = {0};
  tsr__builder to;
  fleet->world_size = -1;
  int status = read_names(options, fleet, &names, error);
  if (!status) status = list_candidates(fleet, &names, &list, error);
  bool is_named = names.pattern != NULL;
  for (size_t i = 0; !status && !is_named && i < list.count; i++) is_named = list.items[i].rank < 0;
  if (!status && is_named && !names.pattern) { /* only names can tell the rank of some files */
    status = tsr__file_names_settle(names.names, fleet->files.count, error);
    for (size_t i = 0; !status && i < list.count; i++) {
      candidate *c = &list.items[i];
      const tsr__file_name *name = &names.names[c->file];
      if (c->rank >= 0) continue;
      c->rank = name->rank;
      c->source = TSR_RANK_FROM_NAME;
      memcpy(c->place.axes, name->axes, sizeof name->axes);
      c->place.axis_count = name->axis_count;
      if (name->form) fleet->name_form = name->form;
    }
  }
  if (!status) status = settle_unknown(fleet, &list, error);
  sort_candidates(&list);
  if (!status) status = check_jobs(fleet, &list, error);
  if (!status) status = check_devices(fleet, &list, error);
  bool has_builder = tsr__builder_init(&to, NULL);
  if (!status && !has_builder) status = tsr__fail_memory(error);
  if (!status) {
    tsr__builder_record(&to, "sketches");
    status = take_members(fleet, &list, &names, &to, error);
  }
  if (!status) status = tsr__builder_finish(&to, &fleet->stacks, error);
  tsr__builder_release(&to);
  TSR__VECTOR_FREE(&list);
  tsr__name_pattern_free(names.pattern);
  tsr__free(names.names);
  return status;
}

int tsr__fleet_read(const tsr_fleet_options *options, tsr__fleet *out, tsr_error *error) {
  *out = (tsr__fleet){.world_size = -1, .parts = options->parts};
  if (options->parts && !TSR__VECTOR_PUSH(&out->parts_seen, options->part))
    return tsr__fail_memory(error);
  int status = find_files(options, out, error);
  if (status) return status;
  sort_files(out);
  if (options->known) status = take_known(options->known, out, error);
  if (status) return status;
  for (size_t i = 0; i < out->files.count; i++)
    out->known_count += out->files.items[i].sketch.size || out->files.items[i].message;
  tsr__thread_pool *pool = tsr__thread_pool_new(options->threads);
  reading r = {.fleet = out};
  tsr__work_init(&r.work, pool, options->progress, options->progress_context, out->files.count);
  status = tsr__thread_pool_each(pool, &r.work, out->files.count, read_file, &r, error);
  tsr__thread_pool_free(pool);
  return status ? status : make_members(options, out, error);
}
