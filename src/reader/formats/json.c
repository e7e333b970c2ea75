/* json.c - the reader's loop: from the structure of a JSON text to the assembler's rows.
 *
 *   values:  segments S S | action "alloc" addr 4096 frames K | ...      | = where an open
 *   open:    dict ^ list ^  dict ^                                           container's values
 * begin
 *
 * Values are pushed on one stack; `open` records which open container they belong to. An object's
 * keys and values are handed to the assembler together when it ends, so that it becomes a row at
 * once and no container is ever made for it. A list's values go to a container in batches, so that
 * a trace of millions of events takes no room here. A list under the key "frames" becomes a stack
 * as soon as it ends, or is recognised before it begins (json_seen.c).
 *
 * Nothing in a JSON text is referenced twice. So when an object becomes a row, containers that were
 * opened inside it and still exist (a list where a number should be) are useless and released;
 * `opened` lists them.
 *
 * Writers repeat the order of keys and often the texts under them: both are guessed from last time
 * and compared before they are looked up.
 *
 * A truncated text yields what it contains, like a pickle: open containers are closed, but an
 * incomplete object is dropped, unless it is the snapshot itself. */
#include "formats/json.h"

#include <string.h>

/* What may come next. */
enum { VALUE, VALUE_OR_CLOSE, KEY, KEY_OR_CLOSE, COMMA_OR_CLOSE, NOTHING_MORE };

enum {
  LOOK_AHEAD = 64 << 10, /* bytes by which a whole stack is recognised */
  CHECK_BYTES = 1 << 20, /* of input, between two looks at the memory held */
  BATCH = 64             /* values of a list that wait here for its container */
};

/* ---- bytes ---- */

int tsr__json_damaged(tsr__json *j, const unsigned char *p, const char *what) {
  return tsr__fail(j->error, TSR_ERROR_FORMAT, tsr__json_offset(j, p), "damaged JSON: %s", what);
}

int tsr__json_limit(tsr__json *j, const char *what) {
  return tsr__fail(j->error, TSR_ERROR_LIMIT, tsr__json_offset(j, j->next), "%s", what);
}

static int check_memory(tsr__json *j) {
  uint64_t own = j->texts.arena.total_bytes + j->values.capacity * sizeof *j->values.items +
                 j->opened.capacity * sizeof *j->opened.items + j->text.capacity;
  j->check_at = j->end - j->next > CHECK_BYTES ? j->next + CHECK_BYTES : j->end;
  return tsr__check_memory(j->assembler, own, j->source, tsr__json_offset(j, j->next), j->error);
}

static int refill(tsr__json *j) {
  tsr__assembler_prepare(j->assembler, j->source);
  int status = tsr__input_fill(j->source, (size_t)(j->next - j->source->data), j->error);
  j->next = j->source->data;
  j->end = j->source->data + j->source->size;
  if (status) return status;
  if (j->progress && !j->progress(j->progress_context, j->source->offset, j->progress_total))
    return tsr__fail(j->error, TSR_ERROR_IO, TSR_OFFSET_NONE, "stopped");
  return check_memory(j);
}

int tsr__json_need(tsr__json *j, size_t size) {
  while ((size_t)(j->end - j->next) < size) {
    if (j->source->at_end) return 1;
    int status = refill(j);
    if (status) return status;
  }
  return 0;
}

/* Skip white space: the byte at the cursor then. */
static inline int peek(tsr__json *j, unsigned char *byte) {
  for (;;) {
    while (j->next < j->end) {
      unsigned char c = *j->next;
      if (c > ' ' || (c != ' ' && c != '\n' && c != '\r' && c != '\t')) {
        *byte = c;
        return 0;
      }
      j->next++;
    }
    int status = tsr__json_need(j, 1);
    if (status) return status;
  }
}

/* ---- values and containers ---- */

static inline tsr__json_open *innermost(const tsr__json *j) {
  return &j->open.items[j->open.count - 1];
}

/* The key whose value comes next, where the innermost container is a dict and the key a known one.
 */
static inline uint32_t current_key(const tsr__json *j) {
  return j->open.count && innermost(j)->kind == TSR__DICT ? innermost(j)->key : TSR__KEY_COUNT;
}

static int open_container(tsr__json *j, tsr__container_kind kind, tsr__value *out) {
  int status = tsr__open_container(j->assembler, kind, out, j->error);
  if (status) return status;
  return TSR__VECTOR_PUSH(&j->opened, out->id) ? 0 : tsr__fail_memory(j->error);
}

/* Give the values of the innermost container, a list, to the assembler. */
static int flush(tsr__json *j) {
  tsr__json_open *open = innermost(j);
  tsr__value list = tsr__value_id(TSR__CONTAINER, open->list);
  int status = open->list == TSR_NONE ? open_container(j, TSR__LIST, &list) : 0;
  if (status) return status;
  open->list = list.id;
  status = tsr__append(j->assembler, list, j->values.items + open->first,
                       j->values.count - open->first, j->error);
  j->values.count = open->first;
  return status;
}

/* A value is complete: it belongs to the innermost container, or is the whole. */
static inline int push_value(tsr__json *j, tsr__value value) {
  if (j->values.count >= j->assembler->limits.stack_values)
    return tsr__json_limit(j, "more values in one object than tsr_limits.stack_values");
  if (!TSR__VECTOR_PUSH(&j->values, value)) return tsr__fail_memory(j->error);
  j->expect = j->open.count ? COMMA_OR_CLOSE : NOTHING_MORE;
  if (!j->open.count) return 0;
  const tsr__json_open *open = innermost(j);
  return open->kind == TSR__LIST && j->values.count - open->first >= BATCH ? flush(j) : 0;
}

static int begin(tsr__json *j, tsr__container_kind kind) {
  if (j->open.count >= j->assembler->limits.nesting)
    return tsr__json_limit(j, "containers nested deeper than tsr_limits.nesting");
  tsr__json_open open = {.first = j->values.count,
                         .first_opened = j->opened.count,
                         .list = TSR_NONE,
                         .key = TSR__KEY_COUNT,
                         .kind = (uint8_t)kind};
  if (!TSR__VECTOR_PUSH(&j->open, open)) return tsr__fail_memory(j->error);
  j->expect = kind == TSR__DICT ? KEY_OR_CLOSE : VALUE_OR_CLOSE;
  j->next++;
  return 0;
}

/* Release the containers opened since there were `count`. */
static void let_go(tsr__json *j, size_t count) {
  while (j->opened.count > count) {
    uint32_t id = j->opened.items[--j->opened.count];
    if (j->assembler->containers.items[id].resolved.tag == TSR__NOTHING)
      tsr__resolve(j->assembler, id, tsr__value_plain(TSR__OPAQUE));
  }
}

static int end_dict(tsr__json *j) {
  tsr__json_open open = *innermost(j);
  tsr__value *pairs = j->values.items + open.first;
  size_t count = j->values.count - open.first;
  tsr__value value = tsr__value_plain(TSR__NOTHING);
  int status = count ? tsr__make_row(j->assembler, pairs, count, &value, j->error) : 0;
  if (status) return status;
  if (value.tag != TSR__NOTHING) {
    let_go(j, open.first_opened);
  } else {
    status = open_container(j, TSR__DICT, &value);
    if (!status) status = tsr__set(j->assembler, &value, pairs, count, j->error);
    if (status) return status;
  }
  j->values.count = open.first;
  j->open.count--;
  return push_value(j, value);
}

/* The list under "frames" ends: it is a stack if it holds nothing but frames. */
static int end_frames(tsr__json *j, size_t first_opened, tsr__value *value) {
  const tsr__container *list = tsr__container_of(j->assembler, *value);
  bool is_stack = list->trace == TSR_NONE;
  for (size_t i = 0; is_stack && i < list->items.count; i++)
    is_stack = list->items.items[i].tag == TSR__FRAME;
  uint32_t stack = TSR_NONE;
  int status = is_stack ? tsr__resolve_stack(j->assembler, *value, &stack, j->error) : 0;
  if (status) return status;
  tsr__json_learnt(j, stack);
  j->frames_depth = 0;
  if (stack == TSR_NONE) return 0;
  let_go(j, first_opened);
  *value = tsr__value_id(TSR__STACK, stack);
  return 0;
}

static int end_list(tsr__json *j) {
  int status = flush(j);
  if (status) return status;
  tsr__json_open open = *innermost(j);
  tsr__value value = tsr__value_id(TSR__CONTAINER, open.list);
  if (j->frames_depth == j->open.count) status = end_frames(j, open.first_opened, &value);
  if (status) return status;
  j->open.count--;
  return push_value(j, value);
}

static int end_container(tsr__json *j) {
  j->next++;
  return innermost(j)->kind == TSR__DICT ? end_dict(j) : end_list(j);
}

/* ---- the grammar ---- */

/* Is the string at the cursor the one with this id? Only for ids whose text needs no escape. */
static inline bool is_string_here(const tsr__json *j, uint32_t string) {
  if (string == TSR_NONE) return false;
  const tsr__interned *text = &j->assembler->snapshot->strings.items[string];
  return (size_t)(j->end - j->next) > text->size_bytes + (size_t)1 &&
         j->next[text->size_bytes + 1] == '"' &&
         memcmp(j->next + 1, text->data, text->size_bytes) == 0;
}

static int read_key(tsr__json *j, unsigned char c) {
  if (c != '"')
    return tsr__json_damaged(j, j->next,
                             j->expect == KEY ? "expected a key in quotes"
                                              : "expected a key in quotes or '}'");
  tsr__json_open *open = innermost(j);
  uint32_t *guess = &j->next_key[open->key], key = *guess;
  if (is_string_here(j, key)) {
    j->next += j->assembler->snapshot->strings.items[key].size_bytes + (size_t)2;
  } else {
    int status = tsr__json_string(j, &key);
    if (status) return status;
    if (key < TSR__KEY_COUNT) *guess = key;
  }
  open->key = key < TSR__KEY_COUNT ? key : TSR__KEY_COUNT;
  int status = push_value(j, tsr__value_id(TSR__STRING, key));
  if (!status) status = peek(j, &c);
  if (status) return status;
  if (c != ':') return tsr__json_damaged(j, j->next, "expected ':'");
  j->next++;
  j->expect = VALUE;
  return 0;
}

static int read_text(tsr__json *j) {
  uint32_t key = current_key(j), string = key < TSR__KEY_COUNT ? j->last_text[key] : TSR_NONE;
  if (is_string_here(j, string)) {
    j->next += j->assembler->snapshot->strings.items[string].size_bytes + (size_t)2;
  } else {
    uint64_t before = tsr__json_offset(j, j->next);
    int status = tsr__json_string(j, &string);
    if (status) return status;
    tsr_text text = tsr_snapshot_string(j->assembler->snapshot, string);
    bool is_plain = tsr__json_offset(j, j->next) - before == text.size_bytes + 2;
    if (key < TSR__KEY_COUNT && is_plain) j->last_text[key] = string;
  }
  return push_value(j, tsr__value_id(TSR__STRING, string));
}

static int read_list(tsr__json *j) {
  if (current_key(j) != TSR__NAME_FRAMES || j->frames_depth) return begin(j, TSR__LIST);
  uint32_t stack = tsr__json_recognise(j);
  if (stack != TSR_NONE) return push_value(j, tsr__value_id(TSR__STACK, stack));
  j->frames_depth = j->open.count + 1;
  return begin(j, TSR__LIST);
}

static int read_value(tsr__json *j, unsigned char c) {
  tsr__value value;
  int status;
  if (c == '"') return read_text(j);
  if (c == '{') return begin(j, TSR__DICT);
  if (c == '[') return read_list(j);
  status =
      c == '-' || (c >= '0' && c <= '9') ? tsr__json_number(j, &value) : tsr__json_word(j, &value);
  return status ? status : push_value(j, value);
}

/* After a value inside a container. */
static int read_comma(tsr__json *j, unsigned char c) {
  bool is_dict = innermost(j)->kind == TSR__DICT;
  if (c == (is_dict ? '}' : ']')) return end_container(j);
  if (c != ',')
    return tsr__json_damaged(j, j->next, is_dict ? "expected ',' or '}'" : "expected ',' or ']'");
  j->next++;
  j->expect = is_dict ? KEY : VALUE;
  return 0;
}

static int step(tsr__json *j) {
  unsigned char c;
  int status = peek(j, &c);
  if (status) return status;
  switch (j->expect) {
  case VALUE: return read_value(j, c);
  case VALUE_OR_CLOSE: return c == ']' ? end_container(j) : read_value(j, c);
  case KEY: return read_key(j, c);
  case KEY_OR_CLOSE: return c == '}' ? end_container(j) : read_key(j, c);
  default: return read_comma(j, c);
  }
}

static int run(tsr__json *j) {
  if (!TSR__VECTOR_RESERVE(&j->values, BATCH)) return tsr__fail_memory(j->error);
  int status = tsr__json_need(j, 3);
  if (status < 0) return status;
  if (!status && memcmp(j->next, "\xef\xbb\xbf", 3) == 0) j->next += 3;
  j->expect = VALUE;
  while (j->expect != NOTHING_MORE) {
    status = j->end - j->next < LOOK_AHEAD && !j->source->at_end ? refill(j) : 0;
    if (!status && j->next >= j->check_at) status = check_memory(j);
    if (!status) status = step(j);
    if (status) return status;
  }
  return 0;
}

/* ---- a text that ends too early ---- */

/* Drop the innermost container, an incomplete object, and its key. */
static void leave_out(tsr__json *j) {
  j->values.count = innermost(j)->first;
  j->open.count--;
  if (j->open.count && innermost(j)->kind == TSR__DICT) j->values.count--;
}

static int close_open(tsr__json *j) {
  while (j->open.count) {
    int status = 0;
    tsr__json_open *open = innermost(j);
    if (open->kind == TSR__LIST) {
      status = end_list(j);
    } else if (j->open.count > 1) {
      leave_out(j);
    } else {
      j->values.count -= (j->values.count - open->first) % 2;
      status = end_dict(j);
    }
    if (status) return status;
  }
  return 0;
}

static int salvage(tsr__json *j) {
  uint64_t end = tsr__json_offset(j, j->end);
  int status = close_open(j);
  if (status) return status;
  tsr__builder_cut(j->assembler->builder);
  if (j->values.count) {
    tsr_error ignored;
    status = tsr__assemble_finish(j->assembler, j->values.items[0], &ignored);
    if (status == TSR_ERROR_MEMORY) return tsr__fail_memory(j->error);
    if (!status) return 0;
  }
  return tsr__fail(j->error, TSR_ERROR_FORMAT, end,
                   "the JSON text is truncated before any usable data");
}

/* ---- the whole ---- */

static void init(tsr__json *j) {
  for (size_t i = 0; i < TSR__KEY_COUNT; i++) j->next_key[i] = j->last_text[i] = TSR_NONE;
  j->next_key[TSR__KEY_COUNT] = TSR__NAME_ACTION;
  j->last_seen = j->learning = TSR_NONE;
  tsr__intern_init(&j->texts);
}

static void release(tsr__json *j) {
  TSR__VECTOR_FREE(&j->values);
  TSR__VECTOR_FREE(&j->open);
  TSR__VECTOR_FREE(&j->opened);
  TSR__VECTOR_FREE(&j->seen);
  tsr__buffer_release(&j->text);
  tsr__intern_release(&j->texts);
}

void tsr__json_begin(tsr__json *j, tsr__input *source, tsr__assembler *assembler,
                     const tsr_open_options *options, uint64_t total_bytes, tsr_error *error) {
  *j = (tsr__json){.source = source,
                   .assembler = assembler,
                   .error = error,
                   .next = source->data,
                   .end = source->data + source->size,
                   .check_at = source->data,
                   .progress_total = total_bytes};
  if (options) {
    j->progress = options->progress;
    j->progress_context = options->progress_context;
  }
}

int tsr__json_read(tsr__input *source, tsr__assembler *assembler, const tsr_open_options *options,
                   uint64_t total_bytes, tsr_error *error) {
  tsr__json j;
  tsr__json_begin(&j, source, assembler, options, total_bytes, error);
  init(&j);
  int status = run(&j);
  if (status == 1)
    status = salvage(&j);
  else if (!status)
    status = tsr__assemble_finish(assembler, j.values.items[0], error);
  /* The assembler does not know where in the text it passed a bound. */
  if (status == TSR_ERROR_LIMIT && error && error->offset == TSR_OFFSET_NONE)
    error->offset = tsr__json_offset(&j, j.next);
  release(&j);
  return status;
}
