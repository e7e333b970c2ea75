/* answer.c - from files to cards. See tessera/unstable/card.h.
 *
 *   places ─► files ─► members: a device of a file ─► cards: members that share one ─► divided, and joined
 *
 * A file of many is read, and released before the next one: what is kept of it is its ledger and, where it may be joined with others, the
 * steps of its reserved memory. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/sort.h"
#include "fleet/gaps.h"
#include "fleet/names.h"
#include "fleet/places.h"
#include "questions/card/card.h"
#include "study/study.h"
#include "tessera/snapshot.h"

/* More files are compared, and never joined. */
enum { MOST_JOINED = 64 };

const char *tsr_card_kind_name(tsr_card_kind kind) {
  static const char *const names[TSR_CARD_KIND_COUNT] = {
      "allocated", "cached",  "context",          "library",     "communicator",
      "driver",    "process", "unaccounted_here", "unaccounted", "counted_twice"};
  return (unsigned)kind < TSR_CARD_KIND_COUNT ? names[kind] : "unaccounted";
}

const char *tsr_card_source_name(tsr_card_source source) {
  static const char *const names[] = {"ledger", "sidecar", "nothing"};
  return (unsigned)source < 3 ? names[source] : "nothing";
}

const char *tsr_card_overlap_name(tsr_card_overlap overlap) {
  static const char *const names[] = {"none", "moments", "first_use", "counters"};
  return (unsigned)overlap < 4 ? names[overlap] : "none";
}

typedef struct work {
  const tsr_card_options *options;
  tsr_cards *out;
  tsr__cards_memory *memory;
  tsr__card_members members;
  TSR__VECTOR(tsr_card_broken) broken;
  TSR__VECTOR(tsr_warning) warnings; /* of all files but the first */
  bool joins;                        /* traces are read */
} work;

/* ---- Files ---- */

static const char *keep_text(work *w, const char *text, size_t size) {
  char *copy = tsr__arena_alloc(&w->memory->texts, size + 1, 1);
  if (!copy) return NULL;
  memcpy(copy, text, size);
  copy[size] = '\0';
  return copy;
}

/* Only the device that was asked for. */
static void choose_device(work *w, size_t first) {
  size_t kept = first;
  for (size_t i = first; i < w->members.count; i++) {
    tsr__card_member *m = &w->members.items[i];
    bool is_empty =
        !m->ledger && !m->old.total_bytes && !m->end_reserved_bytes && w->members.count > first + 1;
    bool is_other = w->options->has_device && m->holder.device != w->options->device;
    if (is_empty || is_other) {
      TSR__VECTOR_FREE(&m->reserved);
      TSR__VECTOR_FREE(&m->ranges);
      TSR__VECTOR_FREE(&m->ooms);
    } else {
      w->members.items[kept++] = *m;
    }
  }
  w->members.count = kept;
}

static int read_study(work *w, tsr_study *study, const char *path, bool is_explicit, size_t file,
                      tsr_error *error) {
  size_t first = w->members.count;
  tsr__card_member like = {.file = file, .is_explicit = is_explicit};
  like.holder.path = keep_text(w, path, strlen(path));
  if (!like.holder.path) return tsr__fail_memory(error);
  int status =
      tsr__card_read_members(study, &like, w->joins, &w->memory->texts, &w->members, error);
  tsr__file_name name;
  tsr__file_name_read(like.holder.path, &name);
  for (size_t i = first; i < w->members.count; i++) {
    tsr_card_holder *holder = &w->members.items[i].holder;
    if (holder->rank < 0) holder->rank = name.rank;
    if (holder->world_size < 0) holder->world_size = name.world_size;
  }
  if (!status) choose_device(w, first);
  return status;
}

static int add_broken(work *w, const char *path, const char *message, tsr_error *error) {
  tsr_card_broken broken = {keep_text(w, path, strlen(path)),
                            keep_text(w, message, strlen(message))};
  if (broken.path && broken.message && TSR__VECTOR_PUSH(&w->broken, broken)) return 0;
  return tsr__fail_memory(error);
}

/* Keep what is wrong with a file, each sort of it once. */
static bool add_warnings(work *w, const tsr_snapshot *snapshot) {
  size_t count;
  bool ok = true;
  const tsr_warning *warnings = tsr_snapshot_warnings(snapshot, &count);
  for (size_t i = 0; ok && i < count; i++) {
    tsr_warning *known = NULL;
    for (size_t k = 0; k < w->warnings.count && !known; k++)
      if (!strcmp(w->warnings.items[k].code, warnings[i].code)) known = &w->warnings.items[k];
    if (known) {
      known->count = tsr__sum_u64(known->count, warnings[i].count);
      continue;
    }
    tsr_warning copy = warnings[i];
    copy.code = keep_text(w, warnings[i].code, strlen(warnings[i].code));
    copy.message = keep_text(w, warnings[i].message, strlen(warnings[i].message));
    ok = copy.code && copy.message && TSR__VECTOR_PUSH(&w->warnings, copy);
  }
  return ok;
}

/* The first snapshot is kept for the heading. Of several files, one that cannot be read is listed. */
static int read_file(work *w, const char *path, bool is_explicit, size_t file, size_t file_count,
                     tsr_error *error) {
  tsr_snapshot *snapshot = NULL;
  tsr_study *study = NULL;
  tsr_error reason = {.offset = TSR_OFFSET_NONE};
  int status = tsr_snapshot_open(path, NULL, &snapshot, &reason);
  if (status == TSR_ERROR_MEMORY) return tsr__fail_memory(error);
  if (status && file_count > 1) return add_broken(w, path, reason.message, error);
  if (status)
    return tsr__fail(error, status == TSR_ERROR_IO ? TSR_ERROR_IO : TSR_ERROR_FORMAT, reason.offset,
                     "%.140s: %s", path, reason.message);
  status = tsr_study_new(snapshot, &study, error);
  if (!status) status = read_study(w, study, path, is_explicit, file, error);
  tsr_study_free(study);
  bool is_first = !status && !w->memory->first;
  if (!status && !is_first && !add_warnings(w, snapshot)) status = tsr__fail_memory(error);
  if (is_first)
    w->memory->first = snapshot;
  else
    tsr_snapshot_free(snapshot);
  return status;
}

/* ---- Which members share a card ---- */

static bool is_same_text(const char *a, const char *b) {
  return !*a || !*b || !strcmp(a, b);
}

static const char *uuid_of(const tsr__card_member *m) {
  return m->ledger ? m->ledger->uuid : "";
}

static uint64_t total_of(const tsr__card_member *m) {
  return m->ledger && m->ledger->total_bytes != TSR_LEDGER_UNKNOWN ? m->ledger->total_bytes
                                                                   : m->old.total_bytes;
}

/* Two dumps of one process are no two processes. */
static bool is_one_process(const tsr__card_member *a, const tsr__card_member *b) {
  return a->holder.pid && a->holder.pid == b->holder.pid && !strcmp(a->holder.host, b->holder.host);
}

static bool may_share(const tsr__card_member *a, const tsr__card_member *b) {
  bool have_uuids = *uuid_of(a) && *uuid_of(b);
  if (a->file == b->file || is_one_process(a, b)) return false;
  if (!is_same_text(a->holder.host, b->holder.host)) return false;
  if (have_uuids) return !strcmp(uuid_of(a), uuid_of(b));
  bool are_ranks = a->holder.world_size > 1 && a->holder.world_size == b->holder.world_size &&
                   a->holder.rank != b->holder.rank;
  uint64_t x = total_of(a), y = total_of(b);
  return a->is_explicit && b->is_explicit && !are_ranks && a->holder.device == b->holder.device &&
         (!x || !y || x == y);
}

/* Give each member the number of its card; returns how many cards there are. */
static size_t group(work *w) {
  size_t cards = 0;
  for (size_t i = 0; i < w->members.count; i++) {
    tsr__card_member *m = &w->members.items[i];
    m->card = cards;
    for (size_t k = 0; w->joins && k < i && m->card == cards; k++)
      if (may_share(&w->members.items[k], m)) m->card = w->members.items[k].card;
    cards += m->card == cards;
  }
  return cards;
}

/* ---- Labels ---- */

static const char *base_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash && slash[1] ? slash + 1 : path;
}

/* How text names a process: by its file, or its rank, if the files are of ranks. */
static bool label(work *w, tsr__card_member *m, bool by_rank) {
  char text[40];
  const char *base = base_of(m->holder.path);
  size_t length = strlen(base);
  static const char *const endings[] = {".gz", ".zst", ".xz", ".pickle", ".pkl", ".json"};
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    size_t ending = strlen(endings[i]);
    if (length > ending && !memcmp(base + length - ending, endings[i], ending)) length -= ending;
  }
  (void)snprintf(text, sizeof text, "rank %lld", (long long)m->holder.rank);
  m->holder.label = by_rank ? keep_text(w, text, strlen(text)) : keep_text(w, base, length);
  return m->holder.label != NULL;
}

static bool label_all(work *w) {
  bool by_rank = w->members.count > 1, ok = true;
  for (size_t i = 0; i < w->members.count; i++) {
    by_rank = by_rank && w->members.items[i].holder.rank >= 0;
    for (size_t k = 0; k < i && by_rank && w->members.count <= 4096; k++)
      by_rank = w->members.items[k].holder.rank != w->members.items[i].holder.rank ||
                w->members.items[k].file == w->members.items[i].file;
  }
  for (size_t i = 0; ok && i < w->members.count; i++) ok = label(w, &w->members.items[i], by_rank);
  return ok;
}

/* ---- Cards ---- */

static int make_card(work *w, const tsr__card_member **members, size_t card, tsr_error *error) {
  tsr_card_use *use = &w->out->cards[w->out->card_count];
  size_t count = 0;
  bool is_one = true;
  for (size_t i = 0; i < w->members.count; i++)
    if (w->members.items[i].card == card) members[count++] = &w->members.items[i];
  for (size_t i = 0; i < count; i++) is_one = is_one && *uuid_of(members[i]);
  int status = tsr__card_divide(members, count, w->options, &w->memory->texts, use, error);
  use->is_one_by_uuid = is_one;
  if (!status && count > 1) status = tsr__card_join(members, count, &w->memory->texts, use, error);
  if (!status) w->out->card_count++;
  return status;
}

/* By rank, if the files are of ranks; otherwise as they were given. */
static int compare_members(const void *a, const void *b) {
  const tsr__card_member *x = a, *y = b;
  if (x->holder.rank != y->holder.rank) return x->holder.rank < y->holder.rank ? -1 : 1;
  if (x->file != y->file) return x->file < y->file ? -1 : 1;
  return (x->holder.device > y->holder.device) - (x->holder.device < y->holder.device);
}

static void sort_members(work *w) {
  bool have_ranks = true;
  for (size_t i = 0; i < w->members.count; i++)
    have_ranks =
        have_ranks && w->members.items[i].holder.rank >= 0 && !w->members.items[i].is_explicit;
  if (have_ranks)
    tsr__sort(w->members.items, w->members.count, sizeof *w->members.items, compare_members);
}

static int make_cards(work *w, tsr_error *error) {
  sort_members(w);
  size_t count = group(w);
  const tsr__card_member **members = TSR__NEW_ARRAY(const tsr__card_member *, w->members.count);
  w->out->cards =
      tsr__arena_alloc(&w->memory->texts, count * sizeof *w->out->cards, _Alignof(tsr_card_use));
  int status = members && w->out->cards && label_all(w) ? 0 : tsr__fail_memory(error);
  for (size_t i = 0; !status && i < count; i++) status = make_card(w, members, i, error);
  tsr__free(members);
  return status;
}

/* ---- Which stands apart ---- */

static int64_t sum_of_kind(const tsr_card_use *use, tsr_card_kind kind) {
  int64_t sum = 0;
  for (size_t i = 0; i < use->part_count; i++)
    if (use->parts[i].kind == kind) sum += use->parts[i].bytes[TSR_CARD_PEAK];
  return sum;
}

typedef struct ranked {
  uint64_t bytes;
  size_t card;
} ranked;

static int compare_ranked(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return (x->card > y->card) - (x->card < y->card);
}

typedef TSR__VECTOR(tsr_card_apart) apart_list;

/* Those of which one kind is far more than on all others: by a gap, and by no trifle. */
static bool find_apart(const work *w, tsr_card_kind kind, ranked *order, uint64_t *values,
                       apart_list *out) {
  size_t count = 0;
  bool is_exact, ok = true;
  for (size_t i = 0; i < w->out->card_count; i++) {
    const tsr_card_use *use = &w->out->cards[i];
    int64_t bytes = sum_of_kind(use, kind);
    if (use->source != TSR_CARD_FROM_LEDGER) continue;
    order[count++] = (ranked){bytes > 0 ? (uint64_t)bytes : 0, i};
  }
  if (count < TSR__LEAST_EQUALS) return true;
  tsr__sort(order, count, sizeof *order, compare_ranked);
  for (size_t i = 0; i < count; i++) values[i] = order[i].bytes;
  size_t apart = tsr__apart(values, count, count, tsr__most_apart(count), &is_exact);
  for (size_t i = 0; ok && i < apart; i++) {
    uint64_t excess = values[i] - values[apart];
    if (excess < ((uint64_t)64 << 20)) continue;
    ok = TSR__VECTOR_PUSH(out, (tsr_card_apart){order[i].card, kind, values[i], values[apart]});
  }
  return ok;
}

static int compare_apart(const void *a, const void *b) {
  const tsr_card_apart *x = a, *y = b;
  uint64_t p = x->bytes - x->others_bytes, q = y->bytes - y->others_bytes;
  return p == q ? 0 : p < q ? 1 : -1;
}

static int compare_cards(work *w, tsr_error *error) {
  size_t count = w->out->card_count;
  apart_list apart = {0};
  ranked *order = TSR__NEW_ARRAY(ranked, count);
  uint64_t *values = TSR__NEW_ARRAY(uint64_t, count);
  bool ok = order && values;
  for (int kind = 0; ok && kind < TSR_CARD_TWICE; kind++)
    ok = find_apart(w, (tsr_card_kind)kind, order, values, &apart);
  tsr__free(order);
  tsr__free(values);
  if (ok && apart.count) {
    tsr__sort(apart.items, apart.count, sizeof *apart.items, compare_apart);
    w->out->apart = tsr__arena_copy(&w->memory->texts, apart.items,
                                    apart.count * sizeof *apart.items, _Alignof(tsr_card_apart));
    w->out->apart_count = apart.count;
    ok = w->out->apart != NULL;
  }
  TSR__VECTOR_FREE(&apart);
  return ok ? 0 : tsr__fail_memory(error);
}

/* ---- The whole ---- */

typedef struct named {
  char *path;
  bool is_explicit;
} named;

typedef TSR__VECTOR(named) named_list;

/* Whether a place is a file that was named by itself: it stands for one file, which has its name. */
static bool is_itself(const tsr__path_list *found, size_t first, const char *place) {
  return found->count == first + 1 && !strcmp(found->items[first], place);
}

/* Standard input, which no place stands for. */
static int add_input(tsr__path_list *paths, tsr_error *error) {
  char *path = TSR__NEW_ARRAY(char, sizeof "-");
  if (path) path[0] = '-';
  if (path && TSR__VECTOR_PUSH(paths, path)) return 0;
  tsr__free(path);
  return tsr__fail_memory(error);
}

static int compare_paths(const void *a, const void *b) {
  char *const *x = a, *const *y = b;
  return strcmp(*x, *y);
}

static int find_files(const tsr_card_options *options, tsr__path_list *paths, named_list *out,
                      tsr_error *error) {
  int status = 0;
  for (size_t i = 0; !status && i < options->place_count; i++) {
    tsr_error reason = {.status = TSR_OK};
    size_t first = paths->count;
    if (!strcmp(options->places[i], "-"))
      status = add_input(paths, &reason);
    else
      status = tsr__places_find(options->places[i], paths, &reason);
    if (status == TSR_ERROR_MEMORY) return tsr__fail_memory(error);
    if (status)
      return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "%.140s: %s", options->places[i],
                       reason.message);
    bool is_explicit = is_itself(paths, first, options->places[i]);
    tsr__sort(paths->items + first, paths->count - first, sizeof *paths->items, compare_paths);
    for (size_t k = first; k < paths->count; k++) {
      bool is_known = false;
      for (size_t n = 0; is_explicit && n < out->count; n++)
        is_known = is_known || !strcmp(out->items[n].path, paths->items[k]);
      if (!is_known && !TSR__VECTOR_PUSH(out, (named){paths->items[k], is_explicit}))
        return tsr__fail_memory(error);
    }
  }
  if (out->count) return 0;
  return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE,
                   "%.200s: no snapshots; their names end in .pickle, .pkl, .html, .zip or "
                   ".snapshot, or in one of these and .gz, .zst or .xz",
                   options->place_count ? options->places[0] : "");
}

static int read_places(work *w, tsr_error *error) {
  tsr__path_list paths = {0};
  named_list files = {0};
  int status = find_files(w->options, &paths, &files, error);
  w->joins = files.count > 1 && files.count <= MOST_JOINED;
  w->out->file_count = files.count;
  for (size_t i = 0; !status && i < files.count; i++)
    status = read_file(w, files.items[i].path, files.items[i].is_explicit, i, files.count, error);
  tsr__path_list_release(&paths);
  TSR__VECTOR_FREE(&files);
  return status;
}

static int refuse_device(const work *w, tsr_error *error) {
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                   "nothing is known of a device %u in the file%s", (unsigned)w->options->device,
                   w->out->file_count == 1 ? "" : "s");
}

int tsr_cards_compute(tsr_study *study, const tsr_card_options *options, tsr_cards **out,
                      tsr_error *error) {
  tsr_cards *cards = TSR__NEW(tsr_cards);
  tsr__cards_memory *memory = TSR__NEW(tsr__cards_memory);
  work w = {.options = options, .out = cards, .memory = memory};
  if (!cards || !memory) {
    tsr__free(cards);
    tsr__free(memory);
    return tsr__fail_memory(error);
  }
  *memory = (tsr__cards_memory){0};
  tsr__arena_init(&memory->texts);
  *cards = (tsr_cards){.memory = memory, .file_count = 1};
  int status =
      study ? read_study(&w, study, options->place_count ? options->places[0] : "", true, 0, error)
            : read_places(&w, error);
  if (!status && options->has_device && !w.members.count) status = refuse_device(&w, error);
  if (!status) status = make_cards(&w, error);
  cards->first = study ? tsr_study_snapshot(study) : memory->first;
  if (!status && cards->file_count > 1 && cards->card_count > 1) {
    cards->is_table = true;
    status = compare_cards(&w, error);
  }
  if (!status && w.warnings.count) {
    cards->warning_count = w.warnings.count;
    cards->warnings =
        tsr__arena_copy(&memory->texts, w.warnings.items,
                        w.warnings.count * sizeof *w.warnings.items, _Alignof(tsr_warning));
    if (!cards->warnings) status = tsr__fail_memory(error);
  }
  if (!status && w.broken.count) {
    cards->broken_count = w.broken.count;
    cards->broken =
        tsr__arena_copy(&memory->texts, w.broken.items, w.broken.count * sizeof *w.broken.items,
                        _Alignof(tsr_card_broken));
    if (!cards->broken) status = tsr__fail_memory(error);
  }
  if (!status && !cards->first)
    status = tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                       "none of the files can be read; the first, %.120s: %s",
                       cards->broken[0].path, cards->broken[0].message);
  tsr__card_members_release(&w.members);
  TSR__VECTOR_FREE(&w.broken);
  TSR__VECTOR_FREE(&w.warnings);
  if (status)
    tsr_cards_free(cards);
  else
    *out = cards;
  return status;
}

void tsr_cards_free(tsr_cards *cards) {
  if (!cards) return;
  tsr__cards_memory *memory = cards->memory;
  tsr_snapshot_free(memory->first);
  tsr__arena_release(&memory->texts);
  tsr__free(memory);
  tsr__free(cards);
}
