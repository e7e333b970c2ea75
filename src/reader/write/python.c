/* python.c - spells values as Python's repr() does: {'stage': 'START', 'device': 0}.
 *
 * For a row or two, not for whole snapshots; so text goes straight to the caller, piece by piece. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/python_text.h"
#include "write/write.h"

typedef struct python {
  tsr__encoder base; /* first, so that a pointer to one is a pointer to the other */
  tsr__buffer text;
} python;

static void put(tsr__encoder *encoder, const char *text) {
  tsr__buffer_text(&((python *)encoder)->text, text);
}

/* What separates a value from the one before. */
static void before_value(tsr__encoder *encoder) {
  tsr__level *level = tsr__encoder_level(encoder);
  if (!level) return;
  bool is_value = level->kind == TSR__DICT && level->position % 2;
  if (level->position) put(encoder, is_value ? ": " : ", ");
  level->position++;
}

static bool python_refer(tsr__encoder *encoder, tsr__tag tag, uint32_t id) {
  (void)encoder, (void)tag, (void)id;
  return false;
}

static void python_begin(tsr__encoder *encoder, tsr__container_kind kind, uint64_t count,
                         bool has_lines) {
  (void)has_lines;
  before_value(encoder);
  encoder->levels[encoder->depth++] = (tsr__level){.count = count, .kind = (uint8_t)kind};
  put(encoder, kind == TSR__DICT ? "{" : kind == TSR__TUPLE ? "(" : "[");
}

static void python_end(tsr__encoder *encoder) {
  const tsr__level *level = &encoder->levels[--encoder->depth];
  if (level->kind == TSR__TUPLE)
    put(encoder, level->position == 1 ? ",)" : ")");
  else
    put(encoder, level->kind == TSR__DICT ? "}" : "]");
}

static void python_integer(tsr__encoder *encoder, uint64_t bits, bool is_negative) {
  python *p = (python *)encoder;
  before_value(encoder);
  if (is_negative)
    tsr__buffer_printf(&p->text, "%" PRId64, (int64_t)bits);
  else
    tsr__buffer_printf(&p->text, "%" PRIu64, bits);
}

static void python_big(tsr__encoder *encoder, uint32_t digits) {
  tsr_text text = tsr_snapshot_string(encoder->snapshot, digits);
  before_value(encoder);
  tsr__buffer_append(&((python *)encoder)->text, text.data, text.size_bytes);
}

static void python_real(tsr__encoder *encoder, double value) {
  char text[TSR__PYTHON_FLOAT_BYTES];
  before_value(encoder);
  put(encoder, tsr__python_float(value, text));
}

static void python_boolean(tsr__encoder *encoder, bool value) {
  before_value(encoder);
  put(encoder, value ? "True" : "False");
}

static void python_null(tsr__encoder *encoder) {
  before_value(encoder);
  put(encoder, "None");
}

static void python_string(tsr__encoder *encoder, uint32_t id) {
  tsr_text text = tsr_snapshot_string(encoder->snapshot, id);
  before_value(encoder);
  tsr__python_repr(&((python *)encoder)->text, text.data, text.size_bytes);
}

static tsr__encoder *python_create(const tsr_snapshot *snapshot, tsr_write_fn *write,
                                   void *context) {
  python *p = TSR__NEW(python);
  if (!p) return NULL;
  p->base.snapshot = snapshot;
  p->base.write = write;
  p->base.context = context;
  return &p->base;
}

static void python_finish(tsr__encoder *encoder) {
  python *p = (python *)encoder;
  if (p->text.failed && !encoder->status) encoder->status = TSR_ERROR_MEMORY;
  tsr__encoder_flush(encoder, p->text.data, p->text.size);
}

static void python_release(tsr__encoder *encoder) {
  tsr__buffer_release(&((python *)encoder)->text);
  tsr__free(encoder);
}

const tsr__encoding tsr__python_encoding = {
    .create = python_create,
    .finish = python_finish,
    .release = python_release,
    .refer = python_refer,
    .begin = python_begin,
    .end = python_end,
    .integer = python_integer,
    .big = python_big,
    .real = python_real,
    .boolean = python_boolean,
    .null = python_null,
    .string = python_string,
};
