/* stack_names.c - see tessera/unstable/stack_names.h: attribution/labels.h and emit/cut.h for callers outside of the library. */
#include "tessera/unstable/stack_names.h"

#include <string.h>

#include "attribution/labels.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/vector.h"
#include "emit/cut.h"
#include "emit/text.h"

struct tsr_stack_naming {
  tsr__namer namer;
};

int tsr_stack_naming_new(const tsr_snapshot *snapshot, tsr_stack_naming **out, tsr_error *error) {
  tsr_stack_naming *made = TSR__NEW(tsr_stack_naming);
  if (!made) return tsr__fail_memory(error);
  int status = tsr__namer_init(&made->namer, snapshot, NULL, error);
  if (status)
    tsr__free(made);
  else
    *out = made;
  return status;
}

void tsr_stack_naming_free(tsr_stack_naming *naming) {
  if (!naming) return;
  tsr__namer_release(&naming->namer);
  tsr__free(naming);
}

/* ---- Names that fit ---- */

/* A list while its names are cut. */
typedef struct cutter {
  TSR__VECTOR(size_t) offset; /* by row, of its whole name in `whole`; and the end of the last */
  tsr__buffer whole;          /* names, safe for a terminal */
  tsr_text shared;            /* the place that most rows name first */
  tsr__intern shown;          /* names as they were cut */
  TSR__VECTOR(size_t) first;  /* by id in `shown`: its row */
  tsr__buffer text;           /* the name that is cut now */
} cutter;

static tsr_text whole_name(const void *context, size_t row) {
  const cutter *c = context;
  size_t from = c->offset.items[row];
  return (tsr_text){c->whole.data + from, c->offset.items[row + 1] - from};
}

static bool clean_names(cutter *c, const tsr_named_stack *rows, size_t count,
                        const tsr__row_names *names) {
  bool ok = TSR__VECTOR_PUSH(&c->offset, 0);
  tsr__buffer_append(&c->whole, "", 0);
  for (size_t i = 0; ok && i < count; i++) {
    bool is_absent = rows[i].stack == TSR_NONE;
    (void)tsr__text_clean(&c->whole, is_absent ? tsr__text_of("(no stack recorded)")
                                               : tsr__row_name(names, i));
    ok = TSR__VECTOR_PUSH(&c->offset, c->whole.size);
  }
  return ok && !c->whole.failed;
}

/* Cut a name in the way number `attempt`: without the place that rows share, as usual, or so that column `at` is shown. */
static void cut(cutter *c, int attempt, tsr_text name, size_t width, size_t columns, size_t at) {
  c->text.size = 0;
  tsr_text first = tsr__place_first(name);
  bool is_shared = c->shared.size_bytes && first.size_bytes == c->shared.size_bytes &&
                   memcmp(first.data, c->shared.data, first.size_bytes) == 0;
  if (attempt == 0 && is_shared && tsr__place_shorten_rest(&c->text, name, width, columns)) return;
  if (attempt <= 1)
    (void)tsr__place_shorten(&c->text, name, width, columns, false);
  else
    (void)tsr__place_shorten_at(&c->text, name, width, columns, at, attempt == 2);
}

/* Cut the name of a row so that it reads unlike those above it. False if memory ran out. */
static bool cut_row(cutter *c, size_t row, size_t columns) {
  enum { ATTEMPTS = 5 };
  tsr_text name = whole_name(c, row);
  size_t width = 0, at = 0;
  for (size_t i = 0; i < name.size_bytes; i++)
    width += ((unsigned char)name.data[i] & 0xc0) != 0x80;
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    bool is_new = false;
    if (columns && width > columns) {
      cut(c, attempt, name, width, columns, at);
    } else {
      c->text.size = 0;
      tsr__buffer_append(&c->text, name.data, name.size_bytes);
    }
    uint32_t id = tsr__intern_put(&c->shown, c->text.data, c->text.size, &is_new);
    if (c->text.failed || id == TSR__INTERN_FULL) return false;
    if (is_new) return TSR__VECTOR_PUSH(&c->first, row);
    size_t difference = tsr__text_difference(name, whole_name(c, c->first.items[id]));
    if (difference >= width) return true;
    at = difference;
  }
  return true;
}

static void cutter_release(cutter *c) {
  TSR__VECTOR_FREE(&c->offset);
  TSR__VECTOR_FREE(&c->first);
  tsr__intern_release(&c->shown);
  tsr__buffer_release(&c->whole);
  tsr__buffer_release(&c->text);
}

int tsr_stacks_name(const tsr_named_stack *rows, size_t count, size_t columns,
                    tsr_stack_name_fn *put, void *context, tsr_error *error) {
  tsr__row_names names = {0};
  cutter c = {.shared = {"", 0}};
  tsr__named_row *named = TSR__NEW_ARRAY(tsr__named_row, count);
  int status = named ? 0 : tsr__fail_memory(error);
  tsr__intern_init(&c.shown);
  for (size_t i = 0; named && i < count; i++)
    named[i] = (tsr__named_row){&rows[i].naming->namer, rows[i].stack};
  if (status == 0 && count) status = tsr__row_names_compute(named, count, &names, error);
  if (status == 0 && !clean_names(&c, rows, count, &names)) status = tsr__fail_memory(error);
  if (status == 0) c.shared = tsr__place_shared(whole_name, &c, count);
  for (size_t i = 0; status == 0 && i < count; i++) {
    if (cut_row(&c, i, columns))
      put(context, i, (tsr_text){c.text.data, c.text.size});
    else
      status = tsr__fail_memory(error);
  }
  cutter_release(&c);
  tsr__row_names_release(&names);
  tsr__free(named);
  return status;
}
