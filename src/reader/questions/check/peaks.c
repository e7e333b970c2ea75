/* peaks.c - see peaks.h.
 *
 * A cause is a function and a category, numbered function * TSR_CATEGORY_COUNT + category. One sweep
 * over the trace tracks what each holds, and records when that is most:
 *
 *   born    accounts[cause] += bytes, categories[kind] += bytes
 *   died    the same, subtracted; `cause_of` remembers the cause of each allocation
 *
 * A function has several lines, and all methods `forward` of a file are one function. A second sweep over the trace
 * stops where each cause holds most, and takes the line that holds most of it then. */
#include "questions/check/peaks.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/intern.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"
#include "base/utf8.h"
#include "tessera/unstable/frames.h"
#include "timeline/sweep.h"

/* ---- Names ---- */

/* Longer ones are truncated, because people read the lines of a lock. */
#define NAME_BYTES 160

/* Whether a reader of the lock could not see it, or would take it for the end of the name. */
static bool is_unprintable(uint32_t code) {
  return tsr__code_is_unsafe(code) || code == ' ' || code == 0xa0 ||
         (code >= 0x200b && code <= 0x200d) || (code >= 0x2060 && code <= 0x206f) || code == 0xfeff;
}

/* One printable word of at most NAME_BYTES. */
static size_t put_word(char out[NAME_BYTES], size_t used, tsr_text text) {
  for (size_t at = 0; at < text.size_bytes;) {
    uint32_t code;
    size_t length = tsr__utf8_decode(text.data + at, text.size_bytes - at, &code);
    assert(length && used <= NAME_BYTES);
    if (used + length > NAME_BYTES) break;
    if (is_unprintable(code)) {
      out[used++] = code == ' ' ? '_' : '?';
    } else {
      memcpy(out + used, text.data + at, length);
      used += length;
    }
    at += length;
  }
  return used;
}

static size_t put_frame(const tsr_snapshot *snapshot, uint32_t id, char out[NAME_BYTES],
                        size_t used) {
  tsr_frame frame = tsr_snapshot_frame(snapshot, id);
  bool is_node = false;
  tsr_text title = tsr_frame_title(tsr_snapshot_string(snapshot, frame.name), &is_node);
  tsr_text file = tsr_base_name(tsr_snapshot_string(snapshot, frame.file));
  if (!is_node && file.size_bytes && file.data[0] != '?') {
    used = put_word(out, used, file);
    used = put_word(out, used, (tsr_text){":", 1});
  }
  return put_word(out, used, title);
}

/* "train.py:main>modeling.py:forward", the layer after the '>'. */
static size_t put_name(const tsr_snapshot *snapshot, tsr__place place, char out[NAME_BYTES]) {
  static const char none[] = "(no_stack)";
  if (place.frame == TSR_NONE) return put_word(out, 0, (tsr_text){none, sizeof none - 1});
  size_t used = put_frame(snapshot, place.frame, out, 0);
  if (place.layer == TSR_NONE) return used;
  used = put_word(out, used, (tsr_text){">", 1});
  return put_frame(snapshot, place.layer, out, used);
}

/* Functions are numbered as their names are interned; the first is for memory without a stack. */
static bool name_functions(const tsr_snapshot *snapshot, const tsr__places *places,
                           tsr__intern *names, tsr__functions *out) {
  char name[NAME_BYTES];
  for (size_t i = 0; i < places->items.count; i++) {
    size_t size = put_name(snapshot, places->items.items[i], name);
    out->of_place[i] = tsr__intern_put(names, name, size, NULL);
    if (out->of_place[i] == TSR__INTERN_FULL) return false;
    assert(out->of_place[i] <= i); /* numbered as they come, the first 0 */
  }
  return true;
}

static bool keep_names(const tsr__intern *names, tsr__functions *out) {
  out->count = names->count;
  out->names = TSR__NEW_ARRAY(const char *, out->count);
  for (uint32_t i = 0; out->names && i < out->count; i++) {
    size_t size = names->items[i].size_bytes;
    char *copy = tsr__arena_alloc(&out->arena, size + 1, 1);
    if (!copy) return false;
    memcpy(copy, names->items[i].data, size);
    copy[size] = '\0';
    out->names[i] = copy;
  }
  return out->names != NULL;
}

int tsr__functions_compute(const tsr_snapshot *snapshot, const tsr__places *places,
                           tsr__functions *out, tsr_error *error) {
  tsr__functions functions = {.places = places};
  tsr__intern names;
  tsr__intern_init(&names);
  tsr__arena_init(&functions.arena);
  functions.of_place = TSR__NEW_ARRAY(uint32_t, places->items.count);
  bool ok = functions.of_place && name_functions(snapshot, places, &names, &functions) &&
            keep_names(&names, &functions);
  tsr__intern_release(&names);
  if (!ok) {
    tsr__functions_release(&functions);
    return tsr__fail_memory(error);
  }
  *out = functions;
  return 0;
}

void tsr__functions_release(tsr__functions *functions) {
  tsr__free(functions->of_place);
  tsr__free(functions->names);
  tsr__arena_release(&functions->arena);
  *functions = (tsr__functions){0};
}

/* ---- Accounts ---- */

typedef struct account {
  uint64_t bytes, allocations;
  uint64_t peak_bytes, peak_allocations, bytes_at_peak;
  uint32_t stack; /* of the line that holds most at its peak */
  int64_t peak_event;
} account;

/* What a line (a place of stacks) holds of a category. */
typedef struct line {
  uint64_t bytes;
  uint64_t largest_bytes; /* of an allocation, */
  uint32_t stack;         /* and its stack */
} line;

typedef struct book {
  const tsr__timeline *t;
  const tsr__categories *categories;
  const tsr__functions *functions;
  account *accounts;  /* by cause */
  uint32_t *cause_of; /* by allocation */
  line *lines;        /* by place and category */
  uint32_t *first;    /* a place of each function, or TSR_NONE */
  uint32_t *next;     /* by place: another of its function, or TSR_NONE */
  account by_kind[TSR_CATEGORY_COUNT];
  size_t account_count;
  bool counts_blocks;
} book;

static void add(account *a, uint64_t bytes, int64_t event) {
  a->bytes = tsr__sum_u64(a->bytes, bytes);
  a->allocations++;
  if (a->bytes <= a->peak_bytes) return;
  a->peak_bytes = a->bytes;
  a->peak_allocations = a->allocations;
  a->peak_event = event;
}

static void drop(account *a, uint64_t bytes) {
  assert(a->allocations && a->bytes <= a->peak_bytes);
  a->bytes = tsr__drop_u64(a->bytes, bytes);
  a->allocations--;
}

static uint64_t bytes_of(const book *b, uint32_t allocation) {
  return b->counts_blocks ? b->t->block_bytes.items[allocation]
                          : tsr__timeline_requested(b->t, allocation);
}

static void enter(book *b, uint32_t allocation, int64_t event) {
  uint32_t stack = tsr__timeline_stack(b->t, allocation);
  uint64_t bytes = bytes_of(b, allocation);
  uint8_t kind = b->categories->category[allocation];
  uint32_t function = b->functions->of_place[tsr__place_of(b->functions->places, stack)];
  uint32_t cause = function * TSR_CATEGORY_COUNT + kind;
  assert(kind < TSR_CATEGORY_COUNT && cause < b->account_count);
  b->cause_of[allocation] = cause;
  add(&b->accounts[cause], bytes, event);
  add(&b->by_kind[kind], bytes, event);
}

static void leave(book *b, uint32_t allocation) {
  uint64_t bytes = bytes_of(b, allocation);
  drop(&b->accounts[b->cause_of[allocation]], bytes);
  drop(&b->by_kind[b->categories->category[allocation]], bytes);
}

static void note_peak(book *b) {
  for (size_t i = 0; i < b->account_count; i++) b->accounts[i].bytes_at_peak = b->accounts[i].bytes;
  for (size_t i = 0; i < TSR_CATEGORY_COUNT; i++) b->by_kind[i].bytes_at_peak = b->by_kind[i].bytes;
}

static int keep_book(book *b, tsr_error *error) {
  tsr__sweep sweep;
  int status = tsr__sweep_begin(b->t, &sweep, error);
  if (status) return status;
  for (uint32_t i = 0; i < b->t->initial.count; i++) enter(b, i, -1);
  if (b->t->allocated_event < 0) note_peak(b);
  while (tsr__sweep_next(&sweep)) {
    if (sweep.born != TSR_NONE) enter(b, sweep.born, sweep.event);
    if (sweep.died != TSR_NONE) leave(b, sweep.died);
    if (sweep.event == b->t->allocated_event) note_peak(b);
  }
  tsr__sweep_release(&sweep);
  return 0;
}

/* ---- Lines ---- */

static void list_places(book *b) {
  for (uint32_t i = 0; i < b->functions->count; i++) b->first[i] = TSR_NONE;
  for (size_t i = b->functions->places->items.count; i-- > 0;) {
    uint32_t function = b->functions->of_place[i];
    b->next[i] = b->first[function];
    b->first[function] = (uint32_t)i;
  }
}

static line *line_of(const book *b, uint32_t allocation) {
  size_t place = tsr__place_of(b->functions->places, tsr__timeline_stack(b->t, allocation));
  return &b->lines[place * TSR_CATEGORY_COUNT + b->categories->category[allocation]];
}

static void enter_line(book *b, uint32_t allocation) {
  line *held = line_of(b, allocation);
  uint64_t bytes = bytes_of(b, allocation);
  held->bytes = tsr__sum_u64(held->bytes, bytes);
  if (bytes <= held->largest_bytes) return;
  held->largest_bytes = bytes;
  held->stack = tsr__timeline_stack(b->t, allocation);
}

static void leave_line(book *b, uint32_t allocation) {
  line *held = line_of(b, allocation);
  held->bytes = tsr__drop_u64(held->bytes, bytes_of(b, allocation));
}

/* A cause holds most now: by which of its lines? */
static void take_line(book *b, size_t cause) {
  const line *most = NULL;
  size_t kind = cause % TSR_CATEGORY_COUNT;
  for (uint32_t i = b->first[cause / TSR_CATEGORY_COUNT]; i != TSR_NONE; i = b->next[i]) {
    const line *held = &b->lines[(size_t)i * TSR_CATEGORY_COUNT + kind];
    if (held->bytes && (!most || held->bytes > most->bytes)) most = held;
  }
  assert(most);
  b->accounts[cause].stack = most->stack;
}

/* Needs the moments of keep_book. A cause holds most after one of its own allocations. */
static int find_lines(book *b, tsr_error *error) {
  tsr__sweep sweep;
  int status = tsr__sweep_begin(b->t, &sweep, error);
  if (status) return status;
  list_places(b);
  for (uint32_t i = 0; i < b->t->initial.count; i++) enter_line(b, i);
  for (size_t i = 0; i < b->account_count; i++)
    if (b->accounts[i].peak_bytes && b->accounts[i].peak_event < 0) take_line(b, i);
  while (tsr__sweep_next(&sweep)) {
    if (sweep.born != TSR_NONE) {
      uint32_t cause = b->cause_of[sweep.born];
      enter_line(b, sweep.born);
      if (b->accounts[cause].peak_event == sweep.event) take_line(b, cause);
    }
    if (sweep.died != TSR_NONE) leave_line(b, sweep.died);
  }
  tsr__sweep_release(&sweep);
  return 0;
}

/* ---- The answer ---- */

int tsr__compare_check_causes(const void *a, const void *b) {
  const tsr_check_cause *x = a, *y = b;
  if (x->cause.bytes != y->cause.bytes) return x->cause.bytes < y->cause.bytes ? 1 : -1;
  if (x->cause.category != y->cause.category) return x->cause.category < y->cause.category ? -1 : 1;
  return strcmp(x->name, y->name);
}

static bool tell(const book *b, tsr_check_device *device) {
  const tsr__places *places = b->functions->places;
  size_t count = 0;
  for (size_t i = 0; i < b->account_count; i++) count += b->accounts[i].peak_bytes != 0;
  device->causes = TSR__NEW_ARRAY(tsr_check_cause, count);
  if (!device->causes) return false;
  for (size_t i = 0; i < b->account_count; i++) {
    const account *a = &b->accounts[i];
    if (!a->peak_bytes) continue;
    uint32_t place = tsr__place_of(places, a->stack);
    device->causes[device->cause_count++] =
        (tsr_check_cause){.name = b->functions->names[i / TSR_CATEGORY_COUNT],
                          .cause = {.category = (tsr_category)(i % TSR_CATEGORY_COUNT),
                                    .frame = places->items.items[place].frame,
                                    .layer = places->items.items[place].layer,
                                    .stack = place ? a->stack : TSR_NONE,
                                    .bytes = a->peak_bytes,
                                    .allocations = a->peak_allocations},
                          .peak_event = a->peak_event,
                          .bytes_at_peak = a->bytes_at_peak};
  }
  assert(device->cause_count == count);
  tsr__sort(device->causes, count, sizeof *device->causes, tsr__compare_check_causes);
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++) {
    const account *a = &b->by_kind[i];
    device->categories[i] =
        (tsr_check_category){a->peak_bytes, a->peak_bytes ? a->peak_event : -1, a->bytes_at_peak};
  }
  return true;
}

int tsr__check_peaks(const tsr__timeline *timeline, const tsr__categories *categories,
                     const tsr__functions *functions, bool counts_blocks, tsr_check_device *device,
                     tsr_error *error) {
  book b = {.t = timeline,
            .categories = categories,
            .functions = functions,
            .counts_blocks = counts_blocks};
  size_t places = functions->places->items.count;
  b.account_count = (size_t)functions->count * TSR_CATEGORY_COUNT;
  b.accounts = TSR__NEW_ARRAY(account, b.account_count);
  b.cause_of = TSR__NEW_ARRAY(uint32_t, timeline->birth.count);
  b.lines = TSR__NEW_ARRAY(line, places * TSR_CATEGORY_COUNT);
  b.first = TSR__NEW_ARRAY(uint32_t, functions->count);
  b.next = TSR__NEW_ARRAY(uint32_t, places);
  bool ok = b.accounts && b.cause_of && b.lines && b.first && b.next;
  int status = ok ? keep_book(&b, error) : tsr__fail_memory(error);
  if (!status) status = find_lines(&b, error);
  if (!status && !tell(&b, device)) status = tsr__fail_memory(error);
  tsr__free(b.accounts);
  tsr__free(b.cause_of);
  tsr__free(b.lines);
  tsr__free(b.first);
  tsr__free(b.next);
  return status;
}
