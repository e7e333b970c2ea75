/* pickle.c - spells values as a pickle of protocol 4, like CPython's pickler.
 *
 *   80 04 | 95 <length> body ... | 95 <length> body ... | ... 2e
 *
 * Frames: a body is closed at the first value that begins when it holds 64 KiB or more; a text that
 * is itself that long stands outside of all frames; a last body of less than four bytes goes
 * without a header. The body is built after room for its header, so that each frame is one piece
 * for the caller's function:
 *
 *   data: [ header : 9 | body : used ]
 *
 * Batches: a list of one item is the item and APPEND; a longer one is MARK, up to 1000 items,
 * APPENDS, and so on. Dicts likewise, in pairs.
 *
 * Memo: CPython notes every container. Here only what can be met again gets an index: texts,
 * frames, stacks, pools and kept values, each in an array by its id that holds index + 1, or 0
 * while it is unwritten. That keeps indices small and memory bounded by what is distinct.
 *
 * Only opcodes that PyTorch's viewer accepts are used (torch/utils/viz/MemoryViz.js). */
#include <assert.h>
#include <string.h>

#include "base/buffer.h"
#include "base/decimal.h"
#include "write/write.h"

enum {
  PROTOCOL = 4,
  FRAME_TARGET = 64 << 10,
  FRAME_SMALLEST = 4,
  FRAME_HEADER = 9,
  BATCH = 1000,
  /* One value past the target, and the ends of all containers. */
  BODY_CAPACITY = 2 * FRAME_TARGET + 4 * TSR__WRITE_DEPTH + 64
};

enum {
  OP_PROTO = 0x80,
  OP_FRAME = 0x95,
  OP_STOP = '.',
  OP_MARK = '(',
  OP_MEMOIZE = 0x94,
  OP_BINGET = 'h',
  OP_LONG_BINGET = 'j',
  OP_NONE = 'N',
  OP_NEWTRUE = 0x88,
  OP_NEWFALSE = 0x89,
  OP_BININT1 = 'K',
  OP_BININT2 = 'M',
  OP_BININT = 'J',
  OP_LONG1 = 0x8a,
  OP_BINFLOAT = 'G',
  OP_SHORT_BINUNICODE = 0x8c,
  OP_BINUNICODE = 'X',
  OP_EMPTY_LIST = ']',
  OP_APPEND = 'a',
  OP_APPENDS = 'e',
  OP_EMPTY_DICT = '}',
  OP_SETITEM = 's',
  OP_SETITEMS = 'u',
  OP_EMPTY_TUPLE = ')',
  OP_TUPLE1 = 0x85, /* TUPLE2 and TUPLE3 follow */
  OP_TUPLE = 't'
};

/* Invariant: used <= BODY_CAPACITY. */
typedef struct pickler {
  tsr__encoder base; /* first, so that a pointer to one is a pointer to the other */
  uint32_t *strings, *frames, *stacks, *pools, *loose; /* memo index + 1 by id, or 0 */
  uint32_t memo_count;
  uint32_t *pending; /* what begins next may be named again: its place; else NULL */
  size_t used;
  unsigned char data[FRAME_HEADER + BODY_CAPACITY];
} pickler;

/* ---- bytes ---- */

static inline void put(pickler *p, int byte) {
  assert(p->used < BODY_CAPACITY);
  p->data[FRAME_HEADER + p->used++] = (unsigned char)byte;
}

/* The `size` low bytes of `value`, lowest first. */
static inline void put_little(pickler *p, uint64_t value, unsigned size) {
  for (unsigned i = 0; i < size; i++) put(p, (int)(value >> 8 * i & 0xff));
}

static void close_frame(pickler *p) {
  size_t body = p->used, skipped = FRAME_HEADER;
  if (body >= FRAME_SMALLEST) {
    skipped = 0;
    p->data[0] = OP_FRAME;
    for (unsigned i = 0; i < 8; i++) p->data[1 + i] = (unsigned char)((uint64_t)body >> 8 * i);
  }
  tsr__encoder_flush(&p->base, p->data + skipped, FRAME_HEADER - skipped + body);
  p->used = 0;
}

/* ---- memo ---- */

static void memoize(pickler *p, uint32_t *place) {
  put(p, OP_MEMOIZE);
  *place = ++p->memo_count;
}

static inline void put_reference(pickler *p, uint32_t index) {
  if (index < 256) {
    put(p, OP_BINGET);
    put(p, (int)index);
  } else {
    put(p, OP_LONG_BINGET);
    put_little(p, index, 4);
  }
}

/* ---- containers ---- */

/* A value begins: open or change its container's batch, and end the frame if it is full. */
static inline void before_value(pickler *p) {
  tsr__level *level = tsr__encoder_level(&p->base);
  if (level && level->kind != TSR__TUPLE) {
    uint64_t batch = level->kind == TSR__DICT ? 2 * BATCH : BATCH;
    if (level->count > 1 && level->position % batch == 0) {
      if (level->position) put(p, level->kind == TSR__DICT ? OP_SETITEMS : OP_APPENDS);
      put(p, OP_MARK);
    }
    level->position++;
  }
  if (p->used >= FRAME_TARGET) close_frame(p);
}

static void pickle_begin(tsr__encoder *encoder, tsr__container_kind kind, uint64_t count,
                         bool has_lines) {
  pickler *p = (pickler *)encoder;
  before_value(p);
  assert(encoder->depth < TSR__WRITE_DEPTH);
  tsr__level *level = &encoder->levels[encoder->depth++];
  *level = (tsr__level){.count = count, .kind = (uint8_t)kind, .has_lines = has_lines};
  if (kind == TSR__TUPLE) {
    level->memo = p->pending;
    if (count > 3) put(p, OP_MARK);
  } else {
    put(p, kind == TSR__DICT ? OP_EMPTY_DICT : OP_EMPTY_LIST);
    if (p->pending) memoize(p, p->pending);
  }
  p->pending = NULL;
}

static void pickle_end(tsr__encoder *encoder) {
  pickler *p = (pickler *)encoder;
  const tsr__level *level = &encoder->levels[--encoder->depth];
  switch ((tsr__container_kind)level->kind) {
  case TSR__LIST:
    if (level->count) put(p, level->count > 1 ? OP_APPENDS : OP_APPEND);
    break;
  case TSR__DICT:
    if (level->count) put(p, level->count > 1 ? OP_SETITEMS : OP_SETITEM);
    break;
  case TSR__TUPLE:
    if (level->count > 3)
      put(p, OP_TUPLE);
    else
      put(p, level->count ? OP_TUPLE1 + (int)level->count - 1 : OP_EMPTY_TUPLE);
    if (level->memo && level->count) memoize(p, level->memo);
    break;
  }
}

static bool pickle_refer(tsr__encoder *encoder, tsr__tag tag, uint32_t id) {
  pickler *p = (pickler *)encoder;
  uint32_t *place = tag == TSR__FRAME   ? &p->frames[id]
                    : tag == TSR__STACK ? &p->stacks[id]
                    : tag == TSR__PAIR  ? &p->pools[id]
                                        : &p->loose[id];
  if (!*place) {
    p->pending = place;
    return false;
  }
  before_value(p);
  put_reference(p, *place - 1);
  return true;
}

/* ---- plain values ---- */

static void pickle_integer(tsr__encoder *encoder, uint64_t bits, bool is_negative) {
  pickler *p = (pickler *)encoder;
  before_value(p);
  if (is_negative ? bits >= 0 - (UINT64_C(1) << 31) : bits < UINT64_C(1) << 31) {
    unsigned size = is_negative || bits > 0xffff ? 4 : bits > 0xff ? 2 : 1;
    put(p, size == 4 ? OP_BININT : size == 2 ? OP_BININT2 : OP_BININT1);
    put_little(p, bits, size);
    return;
  }
  /* As few bytes as leave the sign to be seen in the highest one. */
  unsigned size = 8;
  uint64_t fill = is_negative ? 0x1ff : 0;
  while (size > 1 && (bits >> (8 * size - 9) & 0x1ff) == fill) size--;
  bool needs_ninth = !is_negative && bits >> 63;
  put(p, OP_LONG1);
  put(p, (int)size + needs_ninth);
  put_little(p, bits, size);
  if (needs_ninth) put(p, 0);
}

static void pickle_big(tsr__encoder *encoder, uint32_t digits) {
  pickler *p = (pickler *)encoder;
  unsigned char bytes[TSR__DECIMAL_BYTES];
  tsr_text text = tsr_snapshot_string(encoder->snapshot, digits);
  size_t size = tsr__bytes_of_decimal(text.data, text.size_bytes, bytes);
  assert(size > 8 && size < 256);
  before_value(p);
  put(p, OP_LONG1);
  put(p, (int)size);
  for (size_t i = 0; i < size; i++) put(p, bytes[i]);
}

static void pickle_real(tsr__encoder *encoder, double value) {
  pickler *p = (pickler *)encoder;
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  before_value(p);
  put(p, OP_BINFLOAT);
  for (unsigned i = 8; i--;) put(p, (int)(bits >> 8 * i & 0xff));
}

static void pickle_boolean(tsr__encoder *encoder, bool value) {
  before_value((pickler *)encoder);
  put((pickler *)encoder, value ? OP_NEWTRUE : OP_NEWFALSE);
}

static void pickle_null(tsr__encoder *encoder) {
  before_value((pickler *)encoder);
  put((pickler *)encoder, OP_NONE);
}

/* ---- texts ---- */

/* A text whose bytes are known to be one. */
static void put_text(pickler *p, const unsigned char *data, size_t size) {
  bool is_long = size >= FRAME_TARGET;
  if (is_long) close_frame(p);
  put(p, size < 256 ? OP_SHORT_BINUNICODE : OP_BINUNICODE);
  put_little(p, size, size < 256 ? 1 : 4);
  if (is_long) {
    tsr__encoder_flush(&p->base, p->data + FRAME_HEADER, p->used);
    tsr__encoder_flush(&p->base, data, size);
    p->used = 0;
    return;
  }
  assert(size <= BODY_CAPACITY - p->used);
  if (size) memcpy(p->data + FRAME_HEADER + p->used, data, size);
  p->used += size;
}

/* A text some of whose bytes are none: those become U+FFFD, three bytes for one. */
static void put_mended(pickler *p, const unsigned char *data, size_t size) {
  tsr__buffer mended = {0};
  const unsigned char *at = data, *end = data + size;
  while (at < end) {
    const unsigned char *start = at;
    bool is_valid = true;
    (void)tsr__next_character(&at, end, &is_valid);
    if (is_valid)
      tsr__buffer_append(&mended, start, (size_t)(at - start));
    else
      tsr__buffer_append(&mended, "\xef\xbf\xbd", 3);
  }
  if (mended.failed || mended.size > UINT32_MAX)
    p->base.status = TSR_ERROR_MEMORY;
  else
    put_text(p, (const unsigned char *)mended.data, mended.size);
  tsr__buffer_release(&mended);
}

static void spell_string(pickler *p, uint32_t id) {
  const tsr__interned *text = &p->base.snapshot->strings.items[id];
  const unsigned char *at = text->data, *end = text->data + text->size_bytes;
  bool is_valid = true;
  while (at < end && is_valid) (void)tsr__next_character(&at, end, &is_valid);
  if (is_valid)
    put_text(p, text->data, text->size_bytes);
  else
    put_mended(p, text->data, text->size_bytes);
  memoize(p, &p->strings[id]);
}

static void pickle_string(tsr__encoder *encoder, uint32_t id) {
  pickler *p = (pickler *)encoder;
  before_value(p);
  if (p->strings[id])
    put_reference(p, p->strings[id] - 1);
  else
    spell_string(p, id);
}

/* ---- the encoder ---- */

static void pickle_release(tsr__encoder *encoder) {
  pickler *p = (pickler *)encoder;
  tsr__free(p->strings);
  tsr__free(p->frames);
  tsr__free(p->stacks);
  tsr__free(p->pools);
  tsr__free(p->loose);
  tsr__free(p);
}

static tsr__encoder *pickle_create(const tsr_snapshot *snapshot, tsr_write_fn *write,
                                   void *context) {
  pickler *p = TSR__NEW(pickler);
  if (!p) return NULL;
  p->base.snapshot = snapshot;
  p->base.write = write;
  p->base.context = context;
  p->strings = TSR__NEW_ARRAY(uint32_t, snapshot->strings.count);
  p->frames = TSR__NEW_ARRAY(uint32_t, snapshot->frames.count);
  p->stacks = TSR__NEW_ARRAY(uint32_t, snapshot->stacks.count);
  p->pools = TSR__NEW_ARRAY(uint32_t, snapshot->pools.count);
  p->loose = TSR__NEW_ARRAY(uint32_t, snapshot->loose.count);
  if (!p->strings || !p->frames || !p->stacks || !p->pools || !p->loose) {
    pickle_release(&p->base);
    return NULL;
  }
  static const unsigned char header[] = {OP_PROTO, PROTOCOL};
  tsr__encoder_flush(&p->base, header, sizeof header);
  return &p->base;
}

static void pickle_finish(tsr__encoder *encoder) {
  pickler *p = (pickler *)encoder;
  put(p, OP_STOP);
  close_frame(p);
}

const tsr__encoding tsr__pickle_encoding = {
    .create = pickle_create,
    .finish = pickle_finish,
    .release = pickle_release,
    .refer = pickle_refer,
    .begin = pickle_begin,
    .end = pickle_end,
    .integer = pickle_integer,
    .big = pickle_big,
    .real = pickle_real,
    .boolean = pickle_boolean,
    .null = pickle_null,
    .string = pickle_string,
};
