/* pickle_reduce.c - the few calls that are plain data: nothing is ever looked up or run.
 *
 * A pickle may request any name of any module, and call it. Snapshots from PyTorch never do. Files
 * that passed through other programs contain ordered dicts, deques and numpy scalars; these become
 * the plain values that they represent. Every other name becomes an opaque value and a warning. */
#include "formats/pickle.h"

#include <string.h>

#include "base/utf8.h"

/* Texts and bytes that calls make: a number, a name. A call takes a few bytes of a file, and so it
 * must not take long. */
enum { MADE_BYTES = 128 };

/* What a known name stands for. */
typedef enum callee {
  UNKNOWN_NAME,
  EMPTY_MAPPING,  /* OrderedDict(), defaultdict(factory): a new dict */
  FIRST_ARGUMENT, /* Counter(dict), list(items), restore_type_tag(x, type): the argument itself */
  NEW_LIST,       /* deque((), maxlen): a new list */
  NUMPY_DTYPE,    /* dtype("i8", ...) */
  NUMPY_SCALAR,   /* scalar(dtype, bytes) */
  LATIN_BYTES,    /* encode(text, "latin1"): bytes, as protocols 0 to 2 have them */
  PATH_PARTS      /* PosixPath("a", "b") */
} callee;

static const struct {
  const char *name; /* "module name" */
  callee callee;
} known[] = {
    {"collections OrderedDict", EMPTY_MAPPING},
    {"collections defaultdict", EMPTY_MAPPING},
    {"collections Counter", FIRST_ARGUMENT},
    {"collections deque", NEW_LIST},
    {"builtins dict", FIRST_ARGUMENT},
    {"builtins list", FIRST_ARGUMENT},
    {"builtins set", FIRST_ARGUMENT},
    {"builtins frozenset", FIRST_ARGUMENT},
    {"builtins int", FIRST_ARGUMENT},
    {"builtins float", FIRST_ARGUMENT},
    {"builtins str", FIRST_ARGUMENT},
    {"__builtin__ dict", FIRST_ARGUMENT},
    {"__builtin__ list", FIRST_ARGUMENT},
    {"__builtin__ set", FIRST_ARGUMENT},
    {"__builtin__ frozenset", FIRST_ARGUMENT},
    {"torch.jit._pickle restore_type_tag", FIRST_ARGUMENT},
    {"torch.jit._pickle build_intlist", FIRST_ARGUMENT},
    {"torch.jit._pickle build_doublelist", FIRST_ARGUMENT},
    {"torch.jit._pickle build_boollist", FIRST_ARGUMENT},
    {"numpy dtype", NUMPY_DTYPE},
    {"numpy.core.multiarray scalar", NUMPY_SCALAR},
    {"numpy._core.multiarray scalar", NUMPY_SCALAR},
    {"_codecs encode", LATIN_BYTES},
    {"builtins bytes", LATIN_BYTES},
    {"builtins bytearray", LATIN_BYTES},
    {"__builtin__ bytes", LATIN_BYTES},
    {"__builtin__ bytearray", LATIN_BYTES},
    {"pathlib PosixPath", PATH_PARTS},
    {"pathlib PurePosixPath", PATH_PARTS},
    {"pathlib WindowsPath", PATH_PARTS},
    {"pathlib PureWindowsPath", PATH_PARTS},
};

static callee callee_of(const tsr__pickle *m, tsr__value value) {
  if (value.tag != TSR__GLOBAL) return UNKNOWN_NAME;
  tsr_text name = tsr_snapshot_string(m->assembler->snapshot, value.id);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strlen(known[i].name) == name.size_bytes &&
        memcmp(known[i].name, name.data, name.size_bytes) == 0)
      return known[i].callee;
  return UNKNOWN_NAME;
}

int tsr__pickle_global(tsr__pickle *m, const void *module, size_t module_size, const void *name,
                       size_t name_size, uint64_t offset) {
  tsr__assembler *assembler = m->assembler;
  char full[256];
  if (module_size + name_size + 1 > sizeof full) {
    module_size = module_size < 64 ? module_size : 64;
    name_size = name_size < 128 ? name_size : 128;
  }
  memcpy(full, module, module_size);
  full[module_size] = ' ';
  memcpy(full + module_size + 1, name, name_size);
  uint32_t id = TSR_NONE;
  int status = tsr__pickle_intern(m, full, module_size + 1 + name_size, &id);
  if (status) return status;
  tsr__value value = tsr__value_id(TSR__GLOBAL, id);
  if (callee_of(m, value) == UNKNOWN_NAME) {
    tsr__builder_warn(assembler->builder, TSR__WARN_GLOBALS);
    if (assembler->first_global == TSR_NONE) {
      assembler->first_global = id;
      assembler->first_global_offset = offset;
    }
  }
  return tsr__pickle_push(m, value);
}

/* ---- numpy's numbers ---- */

static uint64_t little_endian(const unsigned char *p, size_t size) {
  uint64_t value = 0;
  for (size_t i = size; i--;) value = value << 8 | p[i];
  return value;
}

/* The number that raw bytes hold under a dtype such as "i8", "u4", "f8", "b1". */
static tsr__value scalar_of(tsr_text dtype, tsr_text raw) {
  tsr__value result = tsr__value_plain(TSR__OPAQUE);
  const unsigned char *bytes = (const unsigned char *)raw.data;
  if (dtype.size_bytes < 2 || raw.size_bytes < 1 || raw.size_bytes > 8 ||
      (size_t)(dtype.data[1] - '0') != raw.size_bytes)
    return result;
  switch (dtype.data[0]) {
  case 'i': return tsr__pickle_long(bytes, raw.size_bytes);
  case 'u': return tsr__value_u64(little_endian(bytes, raw.size_bytes));
  case 'b': return (tsr__value){.tag = TSR__BOOL, .u = bytes[0] != 0};
  case 'f':
    result.tag = TSR__FLOAT;
    if (raw.size_bytes == 8) {
      memcpy(&result.f, bytes, 8);
    } else if (raw.size_bytes == 4) {
      float single;
      memcpy(&single, bytes, 4);
      result.f = (double)single;
    } else {
      result.tag = TSR__OPAQUE;
    }
    return result;
  default: return result;
  }
}

/* A str_: characters of four bytes, with zeros after them that do not count. */
static int text_of(tsr__pickle *m, tsr_text raw, tsr__value *out) {
  const unsigned char *bytes = (const unsigned char *)raw.data;
  unsigned char text[MADE_BYTES / 4 * TSR__UTF8_BYTES];
  size_t count = raw.size_bytes / 4, size = 0;
  if (raw.size_bytes > MADE_BYTES) return 0;
  while (count && !little_endian(bytes + 4 * (count - 1), 4)) count--;
  for (size_t i = 0; i < count; i++) {
    uint64_t code = little_endian(bytes + 4 * i, 4);
    if (code > 0x10ffff) return 0;
    size += tsr__utf8_encode((uint32_t)code, text + size);
  }
  *out = tsr__value_id(TSR__STRING, TSR_NONE);
  return tsr__pickle_intern(m, text, size, &out->id);
}

static int numpy_scalar(tsr__pickle *m, tsr__value dtype, tsr__value raw, tsr__value *out) {
  const tsr_snapshot *snapshot = m->assembler->snapshot;
  if (dtype.tag != TSR__DTYPE || raw.tag != TSR__BYTES) return 0;
  tsr_text type = tsr_snapshot_string(snapshot, dtype.id);
  tsr_text bytes = tsr_snapshot_string(snapshot, raw.id);
  if (type.size_bytes && type.data[0] == 'U') return text_of(m, bytes, out);
  *out = scalar_of(type, bytes);
  return 0;
}

/* ---- bytes ---- */

/* Each character of the first argument is a byte, as the second (an encoding) states; without
 * arguments the result is empty. */
static int bytes_of(tsr__pickle *m, const tsr__value *items, size_t count, tsr__value *out) {
  const tsr_snapshot *snapshot = m->assembler->snapshot;
  unsigned char bytes[MADE_BYTES];
  size_t size = 0;
  if (count && (count != 2 || items[0].tag != TSR__STRING || items[1].tag != TSR__STRING)) return 0;
  tsr_text text = count ? tsr_snapshot_string(snapshot, items[0].id) : (tsr_text){"", 0};
  tsr_text encoding = count ? tsr_snapshot_string(snapshot, items[1].id) : (tsr_text){"latin1", 6};
  if (encoding.size_bytes < 6 || memcmp(encoding.data, "latin", 5) != 0) return 0;
  for (size_t at = 0; at < text.size_bytes;) {
    uint32_t code;
    at += tsr__utf8_decode(text.data + at, text.size_bytes - at, &code);
    if (code > 0xff || size == sizeof bytes) return 0;
    bytes[size++] = (unsigned char)code;
  }
  *out = tsr__value_id(TSR__BYTES, TSR_NONE);
  return tsr__pickle_intern(m, bytes, size, &out->id);
}

/* ---- paths ---- */

static int path_of(tsr__pickle *m, const tsr__container *parts, tsr__value *out) {
  char path[1024];
  size_t size = 0;
  for (size_t i = 0; i < parts->items.count; i++) {
    if (parts->items.items[i].tag != TSR__STRING) continue;
    tsr_text part = tsr_snapshot_string(m->assembler->snapshot, parts->items.items[i].id);
    bool slash = size && path[size - 1] != '/';
    if (part.size_bytes + slash > sizeof path - size) break;
    if (slash) path[size++] = '/';
    memcpy(path + size, part.data, part.size_bytes);
    size += part.size_bytes;
  }
  *out = tsr__value_id(TSR__STRING, TSR_NONE);
  return tsr__pickle_intern(m, path, size, &out->id);
}

/* ---- calls ---- */

int tsr__pickle_reduce(tsr__pickle *m, tsr__value callable, tsr__value arguments, tsr__value *out) {
  tsr__assembler *assembler = m->assembler;
  callee name = callee_of(m, callable);
  const tsr__container *tuple = tsr__container_of(assembler, tsr__current(assembler, arguments));
  size_t count = tuple && tuple->kind == TSR__TUPLE ? tuple->items.count : 0;
  const tsr__value *items = count ? tuple->items.items : NULL;
  *out = tsr__value_plain(TSR__OPAQUE);
  switch (name) {
  case UNKNOWN_NAME: return 0;
  case EMPTY_MAPPING: return tsr__open_container(assembler, TSR__DICT, out, m->error);
  case FIRST_ARGUMENT:
    if (!count) return tsr__open_container(assembler, TSR__LIST, out, m->error);
    tsr__pin(assembler, items[0]);
    *out = tsr__current(assembler, items[0]);
    return 0;
  case NEW_LIST: return tsr__open_container(assembler, TSR__LIST, out, m->error);
  case NUMPY_DTYPE:
    if (count && items[0].tag == TSR__STRING) *out = tsr__value_id(TSR__DTYPE, items[0].id);
    return 0;
  case NUMPY_SCALAR:
    return count == 2 ? numpy_scalar(m, tsr__current(assembler, items[0]), items[1], out) : 0;
  case LATIN_BYTES: return bytes_of(m, items, count, out);
  case PATH_PARTS: return tuple ? path_of(m, tuple, out) : 0;
  }
  return 0;
}

void tsr__pickle_build(tsr__pickle *m, tsr__value *object, tsr__value state) {
  const tsr__container *tuple = tsr__container_of(m->assembler, tsr__current(m->assembler, state));
  *object = tsr__current(m->assembler, *object);
  if (object->tag != TSR__DTYPE || !tuple || tuple->items.count < 2) return;
  if (tuple->items.items[1].tag != TSR__STRING) return;
  /* A dtype's state names its byte order; numbers of the other one are not decoded. */
  tsr_text order = tsr_snapshot_string(m->assembler->snapshot, tuple->items.items[1].id);
  if (order.size_bytes == 1 && order.data[0] == '>') object->tag = TSR__OPAQUE;
}
