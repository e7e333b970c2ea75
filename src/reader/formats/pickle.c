/* pickle.c - the machine's loop: one opcode after the other, on a stack of compact values.
 *
 *   stack:  [dict] [key] [list] | [dict] | [key] [value] ...       | = a mark, a depth in `marks`
 *
 * A container is opened in the assembler and stands on the stack as a value; APPENDS and SETITEMS
 * hand it what is above the mark. Dicts that turn out to be events become rows at once, and events
 * that are above the mark of a list are moved into its trace before the next one is read, so the
 * stack stays small however long a batch is. pickle_run.c takes over where events follow one
 * another in the form that CPython writes; everything it declines is read here, so this file alone
 * is correct. */
#include "formats/pickle.h"

#include <assert.h>
#include <string.h>

#include "base/decimal.h"
#include "base/hash.h"

/* Opcodes, as CPython's Lib/pickle.py names them. */
/* clang-format off */
enum opcode {
  MARK = '(', STOP = '.', POP = '0', POP_MARK = '1', DUP = '2', FLOAT = 'F', INT = 'I',
  BININT = 'J', BININT1 = 'K', LONG = 'L', BININT2 = 'M', NONE = 'N', PERSID = 'P',
  BINPERSID = 'Q', REDUCE = 'R', STRING = 'S', BINSTRING = 'T', SHORT_BINSTRING = 'U',
  UNICODE = 'V', BINUNICODE = 'X', APPEND = 'a', BUILD = 'b', GLOBAL = 'c', DICT = 'd',
  EMPTY_DICT = '}', APPENDS = 'e', GET = 'g', BINGET = 'h', INST = 'i', LONG_BINGET = 'j',
  LIST = 'l', EMPTY_LIST = ']', OBJ = 'o', PUT = 'p', BINPUT = 'q', LONG_BINPUT = 'r',
  SETITEM = 's', TUPLE = 't', EMPTY_TUPLE = ')', SETITEMS = 'u', BINFLOAT = 'G', BINBYTES = 'B',
  SHORT_BINBYTES = 'C', PROTO = 0x80, NEWOBJ = 0x81, EXT1 = 0x82, EXT2 = 0x83, EXT4 = 0x84,
  TUPLE1 = 0x85, TUPLE2 = 0x86, TUPLE3 = 0x87, NEWTRUE = 0x88, NEWFALSE = 0x89, LONG1 = 0x8a,
  LONG4 = 0x8b, SHORT_BINUNICODE = 0x8c, BINUNICODE8 = 0x8d, BINBYTES8 = 0x8e, EMPTY_SET = 0x8f,
  ADDITEMS = 0x90, FROZENSET = 0x91, NEWOBJ_EX = 0x92, STACK_GLOBAL = 0x93, MEMOIZE = 0x94,
  FRAME = 0x95, BYTEARRAY8 = 0x96, NEXT_BUFFER = 0x97, READONLY_BUFFER = 0x98,
};
/* clang-format on */

/* ---- bytes ---- */

enum { CHECK_BYTES = 1 << 20 }; /* of input, between two looks at the memory held */

int tsr__pickle_fail(tsr__pickle *m, const unsigned char *p, tsr_status status, const char *what) {
  return tsr__fail(m->error, status, tsr__pickle_offset(m, p), "%s", what);
}

static int check_memory(tsr__pickle *m) {
  uint64_t own = m->stack.capacity * sizeof *m->stack.items +
                 m->marks.capacity * sizeof *m->marks.items + tsr__pickle_run_bytes(m);
  m->check_at = m->end - m->next > CHECK_BYTES ? m->next + CHECK_BYTES : m->end;
  return tsr__check_memory(m->assembler, own, m->source, tsr__pickle_offset(m, m->next), m->error);
}

static int refill(tsr__pickle *m) {
  tsr__assembler_prepare(m->assembler, m->source);
  int status = tsr__input_fill(m->source, (size_t)(m->next - m->source->data), m->error);
  m->next = m->source->data;
  m->end = m->source->data + m->source->size;
  if (status) return status;
  if (m->progress && !m->progress(m->progress_context, m->source->offset, m->progress_total))
    return tsr__fail(m->error, TSR_ERROR_IO, TSR_OFFSET_NONE, "stopped");
  return check_memory(m);
}

int tsr__pickle_need(tsr__pickle *m, size_t size) {
  while ((size_t)(m->end - m->next) < size) {
    if (m->source->at_end) {
      m->is_cut = true;
      return 1;
    }
    int status = refill(m);
    if (status) return status;
  }
  return 0;
}

int tsr__pickle_line(tsr__pickle *m, const unsigned char **line, size_t *size) {
  size_t searched = 0;
  for (;;) {
    size_t there = (size_t)(m->end - m->next);
    const unsigned char *newline =
        there > searched ? memchr(m->next + searched, '\n', there - searched) : NULL;
    if (newline && (size_t)(newline - m->next) <= m->assembler->limits.string_bytes) {
      *line = m->next;
      *size = (size_t)(newline - m->next);
      m->next = newline + 1;
      return 0;
    }
    if (newline || there > m->assembler->limits.string_bytes)
      return tsr__pickle_fail(m, m->next, TSR_ERROR_LIMIT,
                              "a line longer than tsr_limits.string_bytes");
    searched = there;
    int status = tsr__pickle_need(m, there + 1);
    if (status) return status;
  }
}

static uint64_t little_endian(const unsigned char *p, size_t size) {
  uint64_t value = 0;
  for (size_t i = size; i--;) value = value << 8 | p[i];
  return value;
}

/* ---- stack ---- */

int tsr__pickle_push(tsr__pickle *m, tsr__value value) {
  if (m->stack.count >= m->assembler->limits.stack_values)
    return tsr__pickle_fail(m, m->next, TSR_ERROR_LIMIT,
                            "more values on the stack than tsr_limits.stack_values");
  return TSR__VECTOR_PUSH(&m->stack, value) ? 0 : tsr__fail_memory(m->error);
}

static int underflow(tsr__pickle *m) {
  return tsr__pickle_fail(m, m->next - 1, TSR_ERROR_FORMAT,
                          "damaged pickle: an operation without operands");
}

/* The depth below which the innermost mark lets no operation reach. */
static size_t floor_of(const tsr__pickle *m) {
  return m->marks.count ? m->marks.items[m->marks.count - 1] : 0;
}

/* Take off the innermost mark: `*first` is the depth where its values begin. */
static int pop_mark(tsr__pickle *m, size_t *first) {
  if (!m->marks.count)
    return tsr__pickle_fail(m, m->next - 1, TSR_ERROR_FORMAT,
                            "damaged pickle: no mark on the stack");
  *first = m->marks.items[--m->marks.count];
  assert(*first <= m->stack.count);
  return 0;
}

static int push_mark(tsr__pickle *m) {
  assert(!m->marks.count || m->marks.items[m->marks.count - 1] <= m->stack.count);
  if (m->marks.count >= m->assembler->limits.nesting)
    return tsr__pickle_fail(m, m->next - 1, TSR_ERROR_LIMIT,
                            "containers nested deeper than tsr_limits.nesting");
  return TSR__VECTOR_PUSH(&m->marks, m->stack.count) ? 0 : tsr__fail_memory(m->error);
}

static int pop_value(tsr__pickle *m) {
  if (m->marks.count && floor_of(m) == m->stack.count)
    m->marks.count--;
  else if (!m->stack.count)
    return underflow(m);
  else
    m->stack.count--;
  return 0;
}

static int duplicate(tsr__pickle *m) {
  if (m->stack.count <= floor_of(m)) return underflow(m);
  tsr__value top = m->stack.items[m->stack.count - 1];
  tsr__pin(m->assembler, top);
  return tsr__pickle_push(m, top);
}

/* ---- strings ---- */

int tsr__pickle_intern(tsr__pickle *m, const void *data, size_t size, uint32_t *id) {
  const tsr_snapshot *snapshot = m->assembler->snapshot;
  uint32_t string = tsr__builder_string(m->assembler->builder, data, size);
  if (string == TSR_NONE) return tsr__fail_memory(m->error);
  if (snapshot->strings.bytes > m->assembler->limits.all_strings_bytes)
    return tsr__pickle_fail(m, m->next, TSR_ERROR_LIMIT,
                            "more text than tsr_limits.all_strings_bytes");
  *id = string;
  return 0;
}

/* A text or bytes of `size` bytes that follow the cursor. */
static int push_string(tsr__pickle *m, uint64_t size, tsr__tag tag) {
  if (size > m->assembler->limits.string_bytes)
    return tsr__pickle_fail(m, m->next, TSR_ERROR_LIMIT,
                            "a string longer than tsr_limits.string_bytes");
  int status = tsr__pickle_need(m, (size_t)size);
  uint32_t id = TSR_NONE;
  if (!status) status = tsr__pickle_intern(m, m->next, (size_t)size, &id);
  if (status) return status;
  m->next += size;
  assert(m->next <= m->end);
  return tsr__pickle_push(m, tsr__value_id(tag, id));
}

static int push_sized_string(tsr__pickle *m, size_t length_bytes, tsr__tag tag) {
  int status = tsr__pickle_need(m, length_bytes);
  if (status) return status;
  uint64_t size = little_endian(m->next, length_bytes);
  m->next += length_bytes;
  return push_string(m, size, tag);
}

/* ---- numbers ---- */

static int push_number(tsr__pickle *m, unsigned char opcode, size_t size) {
  int status = tsr__pickle_need(m, size);
  if (status) return status;
  uint64_t bits = little_endian(m->next, size < 8 ? size : 8);
  tsr__value value = tsr__value_u64(bits);
  if (opcode == BININT) value = tsr__value_int((int32_t)(uint32_t)bits);
  if (opcode == BINFLOAT) {
    uint64_t swapped = 0;
    for (size_t i = 0; i < 8; i++) swapped = swapped << 8 | m->next[i];
    value = tsr__value_plain(TSR__FLOAT);
    memcpy(&value.f, &swapped, sizeof value.f);
  }
  m->next += size;
  return tsr__pickle_push(m, value);
}

static int push_long(tsr__pickle *m, size_t length_bytes) {
  int status = tsr__pickle_need(m, length_bytes);
  if (status) return status;
  uint64_t size = little_endian(m->next, length_bytes);
  if (length_bytes == 4 && size > INT32_MAX)
    return tsr__pickle_fail(m, m->next, TSR_ERROR_FORMAT,
                            "damaged pickle: an integer of negative length");
  m->next += length_bytes;
  if (size > m->assembler->limits.string_bytes)
    return tsr__pickle_fail(m, m->next, TSR_ERROR_LIMIT,
                            "an integer longer than tsr_limits.string_bytes");
  status = tsr__pickle_need(m, (size_t)size);
  if (status) return status;
  tsr__value value = tsr__pickle_long(m->next, (size_t)size);
  if (value.tag == TSR__BIG) {
    char text[TSR__DECIMAL_TEXT];
    size_t length = tsr__decimal_of_bytes(m->next, (size_t)size, text);
    status = tsr__builder_big(m->assembler->builder, text, length, &value, m->error);
    if (status) return status;
  }
  m->next += size;
  return tsr__pickle_push(m, value);
}

/* ---- containers ---- */

static int push_container(tsr__pickle *m, tsr__container_kind kind) {
  tsr__value value;
  int status = tsr__open_container(m->assembler, kind, &value, m->error);
  return status ? status : tsr__pickle_push(m, value);
}

/* LIST, DICT: a container of what is above the mark. */
static int collect(tsr__pickle *m, tsr__container_kind kind) {
  size_t first = 0;
  int status = pop_mark(m, &first);
  if (status) return status;
  tsr__value value;
  status = tsr__open_container(m->assembler, kind, &value, m->error);
  if (status) return status;
  tsr__value *items = m->stack.items + first;
  size_t count = m->stack.count - first;
  status = kind == TSR__DICT ? tsr__set(m->assembler, &value, items, count, m->error)
                             : tsr__append(m->assembler, value, items, count, m->error);
  if (status) return status;
  m->stack.count = first;
  return tsr__pickle_push(m, value);
}

static int push_tuple(tsr__pickle *m, size_t first) {
  tsr__value tuple;
  int status = tsr__make_tuple(m->assembler, m->stack.items + first, m->stack.count - first, &tuple,
                               m->error);
  if (status) return status;
  m->stack.count = first;
  return tsr__pickle_push(m, tuple);
}

/* The last `size` values as a tuple, or all above the mark. */
static int small_tuple(tsr__pickle *m, size_t size) {
  if (m->stack.count - floor_of(m) < size) return underflow(m);
  return push_tuple(m, m->stack.count - size);
}

static int marked_tuple(tsr__pickle *m) {
  size_t first = 0;
  int status = pop_mark(m, &first);
  return status ? status : push_tuple(m, first);
}

/* APPENDS, ADDITEMS: what is above the mark goes to the list below it. */
static int append_marked(tsr__pickle *m) {
  size_t first = 0;
  int status = pop_mark(m, &first);
  if (status) return status;
  if (first <= floor_of(m)) return underflow(m);
  status = tsr__append(m->assembler, m->stack.items[first - 1], m->stack.items + first,
                       m->stack.count - first, m->error);
  m->stack.count = first;
  return status;
}

static int set_marked(tsr__pickle *m) {
  size_t first = 0;
  int status = pop_mark(m, &first);
  if (status) return status;
  if (first <= floor_of(m)) return underflow(m);
  status = tsr__set(m->assembler, &m->stack.items[first - 1], m->stack.items + first,
                    m->stack.count - first, m->error);
  m->stack.count = first;
  return status;
}

/* APPEND, SETITEM: the last `size` values go to the container below them. */
static int fill_one(tsr__pickle *m, size_t size) {
  if (m->stack.count - floor_of(m) < size + 1) return underflow(m);
  tsr__value *items = m->stack.items + m->stack.count - size;
  int status = size == 2 ? tsr__set(m->assembler, &items[-1], items, 2, m->error)
                         : tsr__append(m->assembler, items[-1], items, 1, m->error);
  m->stack.count -= size;
  return status;
}

/* Before a dict is opened: an event directly above the mark of a list joins the list's
 * trace, so that batches of any length need no stack; then events in the usual form are read in one
 * go. */
static int open_dict(tsr__pickle *m) {
  size_t floor = floor_of(m);
  if (m->marks.count && floor && m->stack.count - floor <= 1) {
    tsr__value list = tsr__current(m->assembler, m->stack.items[floor - 1]);
    tsr__container *container = tsr__container_of(m->assembler, list);
    bool is_list = container && container->kind == TSR__LIST;
    if (is_list && m->stack.count > floor &&
        tsr__current(m->assembler, m->stack.items[floor]).tag == TSR__EVENT) {
      int status = tsr__append(m->assembler, list, m->stack.items + floor, 1, m->error);
      if (status) return status;
      m->stack.count--;
    }
    if (is_list && m->stack.count == floor) {
      const unsigned char *before = --m->next;
      int status = tsr__pickle_run_events(m, list);
      if (status || m->next != before) return status;
      m->next++;
    }
  }
  return push_container(m, TSR__DICT);
}

/* ---- memo ---- */

int tsr__pickle_memo_put(tsr__pickle *m, uint64_t index) {
  if (m->stack.count <= floor_of(m)) return underflow(m);
  int status = tsr__memo_put(m->assembler, index, m->stack.items[m->stack.count - 1], m->error);
  /* It has a slot now, so its number is one that memory can have. */
  if (!status && index >= m->memo_next) m->memo_next = (size_t)index + 1;
  return status;
}

/* BINPUT, LONG_BINPUT. Writers number from 0 without gaps, so an index far beyond what the bytes
 * read so far could have numbered is damage, and must not make the memo huge. */
static int memo_put_index(tsr__pickle *m, size_t length_bytes) {
  int status = tsr__pickle_need(m, length_bytes);
  if (status) return status;
  uint64_t index = little_endian(m->next, length_bytes);
  if (index > tsr__pickle_offset(m, m->next))
    return tsr__pickle_fail(m, m->next, TSR_ERROR_FORMAT,
                            "damaged pickle: a memo index beyond any object read so far");
  m->next += length_bytes;
  return tsr__pickle_memo_put(m, index);
}

static int memo_get(tsr__pickle *m, size_t length_bytes) {
  int status = tsr__pickle_need(m, length_bytes);
  if (status) return status;
  tsr__value value = tsr__memo_get(m->assembler, little_endian(m->next, length_bytes));
  if (value.tag == TSR__NOTHING)
    return tsr__pickle_fail(m, m->next - 1, TSR_ERROR_FORMAT,
                            "damaged pickle: it refers to an object that was never stored");
  m->next += length_bytes;
  return tsr__pickle_push(m, value);
}

/* ---- names and calls ---- */

static int global_lines(tsr__pickle *m) {
  uint64_t offset = tsr__pickle_offset(m, m->next - 1);
  const unsigned char *line = NULL, *name = NULL;
  size_t module_size = 0, name_size = 0;
  int status = tsr__pickle_line(m, &line, &module_size);
  if (status) return status;
  uint32_t module = TSR_NONE;
  status = tsr__pickle_intern(m, line, module_size, &module);
  if (!status) status = tsr__pickle_line(m, &name, &name_size);
  if (status) return status;
  tsr_text text = tsr_snapshot_string(m->assembler->snapshot, module);
  return tsr__pickle_global(m, text.data, text.size_bytes, name, name_size, offset);
}

static int stack_global(tsr__pickle *m) {
  if (m->stack.count - floor_of(m) < 2) return underflow(m);
  tsr__value *pair = m->stack.items + m->stack.count - 2;
  m->stack.count -= 2;
  if (pair[0].tag != TSR__STRING || pair[1].tag != TSR__STRING)
    return tsr__pickle_push(m, tsr__value_plain(TSR__OPAQUE));
  tsr_text module = tsr_snapshot_string(m->assembler->snapshot, pair[0].id);
  tsr_text name = tsr_snapshot_string(m->assembler->snapshot, pair[1].id);
  return tsr__pickle_global(m, module.data, module.size_bytes, name.data, name.size_bytes,
                            tsr__pickle_offset(m, m->next - 1));
}

/* REDUCE, NEWOBJ: call what is below the top with the top as arguments; nothing is called. */
static int reduce(tsr__pickle *m, size_t operands) {
  if (m->stack.count - floor_of(m) < operands) return underflow(m);
  tsr__value *call = m->stack.items + m->stack.count - operands;
  tsr__value result;
  int status = tsr__pickle_reduce(m, call[0], call[1], &result);
  if (status) return status;
  m->stack.count -= operands;
  return tsr__pickle_push(m, result);
}

/* INST, OBJ: an object of a class, with what is above the mark as arguments. */
static int opaque_marked(tsr__pickle *m) {
  size_t first = 0;
  int status = pop_mark(m, &first);
  if (status) return status;
  m->stack.count = first;
  return tsr__pickle_push(m, tsr__value_plain(TSR__OPAQUE));
}

static int instance(tsr__pickle *m) {
  int status = global_lines(m);
  if (status) return status;
  m->stack.count--;
  return opaque_marked(m);
}

static int build(tsr__pickle *m) {
  if (m->stack.count - floor_of(m) < 2) return underflow(m);
  tsr__value *pair = m->stack.items + m->stack.count - 2;
  tsr__pickle_build(m, &pair[0], pair[1]);
  m->stack.count--;
  return 0;
}

static int persistent_line(tsr__pickle *m) {
  const unsigned char *line;
  size_t size;
  int status = tsr__pickle_line(m, &line, &size);
  return status ? status : tsr__pickle_push(m, tsr__value_plain(TSR__OPAQUE));
}

/* Skip `size` bytes of operand and push something opaque. */
static int push_opaque(tsr__pickle *m, size_t size) {
  int status = tsr__pickle_need(m, size);
  if (status) return status;
  m->next += size;
  return tsr__pickle_push(m, tsr__value_plain(TSR__OPAQUE));
}

static int skip(tsr__pickle *m, size_t size) {
  int status = tsr__pickle_need(m, size);
  if (!status) m->next += size;
  return status;
}

static int protocol(tsr__pickle *m) {
  int status = tsr__pickle_need(m, 1);
  if (status) return status;
  if (*m->next > 5)
    return tsr__pickle_fail(m, m->next, TSR_ERROR_UNSUPPORTED, "a pickle protocol newer than 5");
  m->next++;
  return 0;
}

static int replace_with_opaque(tsr__pickle *m) {
  if (m->stack.count <= floor_of(m)) return underflow(m);
  m->stack.items[m->stack.count - 1] = tsr__value_plain(TSR__OPAQUE);
  return 0;
}

/* ---- the loop ---- */

/* The opcodes by what they are about; each of these three reads one that is taken off the input
 * already, returns 1 if the input ends inside it, and hands on what it does not know. */

static int step_name_or_call(tsr__pickle *m, unsigned char opcode) {
  switch (opcode) {
  case GLOBAL: return global_lines(m);
  case STACK_GLOBAL: return stack_global(m);
  case REDUCE:
  case NEWOBJ: return reduce(m, 2);
  case NEWOBJ_EX: return reduce(m, 3);
  case BUILD: return build(m);
  case INST: return instance(m);
  case OBJ: return opaque_marked(m);
  case PERSID: return persistent_line(m);
  case BINPERSID: return replace_with_opaque(m);
  case EXT1: return push_opaque(m, 1);
  case EXT2: return push_opaque(m, 2);
  case EXT4: return push_opaque(m, 4);
  case NEXT_BUFFER: return push_opaque(m, 0);
  case READONLY_BUFFER: return 0;
  default:
    return tsr__fail(m->error, TSR_ERROR_FORMAT, tsr__pickle_offset(m, m->next - 1),
                     "damaged pickle: invalid opcode 0x%02x", opcode);
  }
}

static int step_value(tsr__pickle *m, unsigned char opcode) {
  switch (opcode) {
  case NONE: return tsr__pickle_push(m, tsr__value_plain(TSR__NULL));
  case NEWTRUE:
  case NEWFALSE: return tsr__pickle_push(m, (tsr__value){.tag = TSR__BOOL, .u = opcode == NEWTRUE});
  case BININT1: return push_number(m, opcode, 1);
  case BININT2: return push_number(m, opcode, 2);
  case BININT: return push_number(m, opcode, 4);
  case BINFLOAT: return push_number(m, opcode, 8);
  case LONG1: return push_long(m, 1);
  case LONG4: return push_long(m, 4);
  case SHORT_BINUNICODE:
  case SHORT_BINSTRING: return push_sized_string(m, 1, TSR__STRING);
  case BINUNICODE:
  case BINSTRING: return push_sized_string(m, 4, TSR__STRING);
  case BINUNICODE8: return push_sized_string(m, 8, TSR__STRING);
  case SHORT_BINBYTES: return push_sized_string(m, 1, TSR__BYTES);
  case BINBYTES: return push_sized_string(m, 4, TSR__BYTES);
  case BINBYTES8:
  case BYTEARRAY8: return push_sized_string(m, 8, TSR__BYTES);
  case MEMOIZE: return tsr__pickle_memo_put(m, m->memo_next);
  case BINPUT: return memo_put_index(m, 1);
  case LONG_BINPUT: return memo_put_index(m, 4);
  case BINGET: return memo_get(m, 1);
  case LONG_BINGET: return memo_get(m, 4);
  case INT:
  case LONG:
  case FLOAT:
  case STRING:
  case UNICODE:
  case GET:
  case PUT: return tsr__pickle_text(m, opcode);
  default: return step_name_or_call(m, opcode);
  }
}

static int step(tsr__pickle *m, unsigned char opcode) {
  size_t first = 0;
  switch (opcode) {
  case PROTO: return protocol(m);
  case FRAME: return skip(m, 8);
  case STOP: m->is_done = true; return 0;
  case MARK: return push_mark(m);
  case POP: return pop_value(m);
  case POP_MARK:
    if (pop_mark(m, &first)) return TSR_ERROR_FORMAT;
    m->stack.count = first;
    return 0;
  case DUP: return duplicate(m);
  case EMPTY_DICT: return open_dict(m);
  case EMPTY_LIST:
  case EMPTY_SET: return push_container(m, TSR__LIST);
  case EMPTY_TUPLE: return push_container(m, TSR__TUPLE);
  case LIST:
  case FROZENSET: return collect(m, TSR__LIST);
  case DICT: return collect(m, TSR__DICT);
  case TUPLE: return marked_tuple(m);
  case TUPLE1: return small_tuple(m, 1);
  case TUPLE2: return small_tuple(m, 2);
  case TUPLE3: return small_tuple(m, 3);
  case APPEND: return fill_one(m, 1);
  case SETITEM: return fill_one(m, 2);
  case APPENDS:
  case ADDITEMS: return append_marked(m);
  case SETITEMS: return set_marked(m);
  default: return step_value(m, opcode);
  }
}

/* Bytes of look-ahead that let the common operations run without a refill in their midst. */
enum { LOOK_AHEAD = 32 << 10 };

static int run(tsr__pickle *m) {
  while (!m->is_done) {
    if (m->end - m->next < LOOK_AHEAD && !m->source->at_end) {
      int status = refill(m);
      if (status) return status;
    }
    if (m->next >= m->check_at) {
      int status = check_memory(m);
      if (status) return status;
    }
    if (m->next == m->end) {
      m->is_cut = true;
      return 1;
    }
    const unsigned char opcode = *m->next++;
    int status = step(m, opcode);
    if (status) return status;
  }
  return 0;
}

/* ---- a pickle that ends too early ---- */

/* A list of one item is written without a mark: the end of the snapshot's own pairs may be such a list
 * that is not in its parent yet ([key] [device_traces] [trace]). Put it there, so that pairs are whole. */
static int close_tail(tsr__pickle *m, size_t first) {
  while (m->stack.items && (m->stack.count - first) % 2 && m->stack.count - first > 2) {
    tsr__value *pair = m->stack.items + m->stack.count - 2;
    tsr__container *parent = tsr__container_of(m->assembler, pair[0]);
    if (!parent || parent->kind != TSR__LIST) return 0;
    int status = tsr__append(m->assembler, pair[0], &pair[1], 1, m->error);
    if (status) return status;
    m->stack.count--;
  }
  return 0;
}

/* Close what is open, innermost first, so that what was read can be used. A dict that is not
 * complete is left out, unless it is the snapshot itself. */
static int close_marks(tsr__pickle *m) {
  while (m->marks.count) {
    size_t first = m->marks.items[--m->marks.count];
    tsr__value *target = first ? &m->stack.items[first - 1] : NULL;
    tsr__container *container = target ? tsr__container_of(m->assembler, *target) : NULL;
    int status = first == 1 ? close_tail(m, first) : 0;
    if (status) return status;
    size_t count = m->stack.count - first;
    m->stack.count = first;
    if (!container) continue;
    if (container->kind != TSR__DICT)
      status = tsr__append(m->assembler, *target, m->stack.items + first, count, m->error);
    else if (first == 1)
      status = tsr__set(m->assembler, target, m->stack.items + first, count & ~(size_t)1, m->error);
    else
      m->stack.count--;
    if (status) return status;
  }
  return 0;
}

/* The same where containers are filled one value at a time, without marks. */
static int close_singles(tsr__pickle *m) {
  while (m->stack.count > 1) {
    tsr__value *top = &m->stack.items[m->stack.count - 1];
    tsr__container *below = tsr__container_of(m->assembler, top[-1]);
    tsr__container *second = m->stack.count > 2 ? tsr__container_of(m->assembler, top[-2]) : NULL;
    int status = 0;
    if (below && below->kind == TSR__LIST && top->tag != TSR__STRING) {
      tsr__container *item = tsr__container_of(m->assembler, *top);
      if (!item || item->kind != TSR__DICT)
        status = tsr__append(m->assembler, top[-1], top, 1, m->error);
    } else if (second && second->kind == TSR__DICT && top[-1].tag == TSR__STRING) {
      status = tsr__set(m->assembler, &top[-2], &top[-1], 2, m->error);
      m->stack.count--;
    }
    if (status) return status;
    m->stack.count--;
  }
  return 0;
}

static int salvage(tsr__pickle *m) {
  uint64_t end = tsr__pickle_offset(m, m->end);
  int status = close_marks(m);
  if (!status) status = close_singles(m);
  if (status) return status;
  tsr__builder_cut(m->assembler->builder);
  if (m->stack.count) {
    tsr_error ignored;
    if (!tsr__assemble_finish(m->assembler, m->stack.items[0], &ignored)) return 0;
    if (ignored.status == TSR_ERROR_MEMORY) return tsr__fail_memory(m->error);
  }
  return tsr__fail(m->error, TSR_ERROR_FORMAT, end,
                   "the pickle is truncated before any usable data");
}

int tsr__pickle_read(tsr__input *source, tsr__assembler *assembler, const tsr_open_options *options,
                     uint64_t total_bytes, tsr_error *error) {
  tsr__pickle m = {.source = source,
                   .assembler = assembler,
                   .error = error,
                   .next = source->data,
                   .end = source->data + source->size,
                   .check_at = source->data,
                   .last_seen = TSR_NONE,
                   .last_text = TSR_NONE,
                   .seen_seed = tsr__hash_seed(assembler->snapshot),
                   .progress_total = total_bytes};
  if (options) {
    m.progress = options->progress;
    m.progress_context = options->progress_context;
  }
  /* A stack that has items, if none are in use: no offset is ever added to NULL. */
  int status = TSR__VECTOR_RESERVE(&m.stack, 64) ? run(&m) : tsr__fail_memory(error);
  if (status == 1)
    status = salvage(&m);
  else if (!status && !m.stack.count)
    status = tsr__fail(error, TSR_ERROR_FORMAT, tsr__pickle_offset(&m, m.next) - 1,
                       "damaged pickle: the stack is empty at its end");
  else if (!status)
    status = tsr__assemble_finish(assembler, m.stack.items[m.stack.count - 1], error);
  /* The assembler does not know where in the pickle it passed a bound. */
  if (status == TSR_ERROR_LIMIT && error && error->offset == TSR_OFFSET_NONE)
    error->offset = tsr__pickle_offset(&m, m.next);
  TSR__VECTOR_FREE(&m.stack);
  TSR__VECTOR_FREE(&m.marks);
  tsr__pickle_run_release(&m);
  return status;
}
