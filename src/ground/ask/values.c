/* values.c - see values.h.
 *
 *   {"command": "peak", "devices": [{"device": 0, ...}, {...}]}
 *
 *   nodes   0 {   1 "   2 [   3 {   4 0   ...   9 {   ...
 *           count 2 :         next 9            next ...
 *           next = the end
 *
 * So the members of node i begin at i + 1, and each one's `next` is the following member, which makes an entry of a list as
 * many steps away as there are entries before it. Strings lose their escapes in place, because a character is never longer than its
 * escape, and end in a zero where their closing quote was. */
#include "ask/values.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/utf8.h"

/* ---- Reading ---- */

/* The escape after a backslash at `*from`, as characters at `to`. */
static char *unescape(const char **from, char *to) {
  static const char letters[] = "b\bf\fn\nr\rt\t";
  char letter = *(*from)++;
  const char *found = strchr(letters, letter);
  if (letter != 'u') {
    *to++ = found ? found[1] : letter;
    return to;
  }
  uint32_t code = tsr__hex_code((const unsigned char *)*from, 4, 4);
  *from += 4;
  if (code >= 0xD800 && code < 0xDC00 && (*from)[0] == '\\' && (*from)[1] == 'u') {
    uint32_t low = tsr__hex_code((const unsigned char *)*from + 2, 4, 4);
    bool is_pair = low >= 0xDC00 && low < 0xE000;
    if (is_pair) code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    if (is_pair) *from += 6;
  }
  return to + tsr__utf8_encode(code, (unsigned char *)to);
}

/* A string that begins at the quote `*at`, which is moved past its end. */
static tsr_text read_string(char **at) {
  const char *from = *at + 1;
  char *begin = *at + 1, *to = begin;
  while (*from != '"') {
    if (*from == '\\') {
      from++;
      to = unescape(&from, to);
    } else {
      *to++ = *from++;
    }
  }
  *to = '\0';
  *at += from + 1 - *at;
  return (tsr_text){begin, (size_t)(to - begin)};
}

/* The value at `*at`, which is moved past it, or past the bracket that opens it. */
static tsr__node read_value(char **at) {
  tsr__node node = {.kind = **at};
  if (**at == '"') {
    node.text = read_string(at);
  } else if (**at == '{' || **at == '[') {
    (*at)++;
  } else {
    node.text = (tsr_text){*at, strcspn(*at, ",]} \n\r\t")};
    *at += node.text.size_bytes;
    if (!strchr("tfn", node.kind)) node.kind = '0';
  }
  return node;
}

bool tsr__values_read(tsr__values *values) {
  size_t parent = SIZE_MAX;
  tsr_text key = {NULL, 0};
  tsr__buffer_append(&values->json, "", 1);
  if (values->json.failed) return false;
  for (char *at = values->json.data; *(at += strspn(at, " \n\r\t,:"));) {
    if (*at == '}' || *at == ']') {
      assert(parent != SIZE_MAX);
      values->nodes.items[parent].next = values->nodes.count;
      parent = values->nodes.items[parent].parent;
      at++;
      continue;
    }
    if (parent != SIZE_MAX && values->nodes.items[parent].kind == '{' && !key.data) {
      key = read_string(&at);
      continue;
    }
    tsr__node node = read_value(&at);
    node.key = key;
    node.parent = parent;
    node.next = values->nodes.count + 1;
    if (parent != SIZE_MAX) values->nodes.items[parent].count++;
    if (node.kind == '{' || node.kind == '[') parent = values->nodes.count;
    key.data = NULL;
    if (!TSR__VECTOR_PUSH(&values->nodes, node)) return false;
  }
  assert(parent == SIZE_MAX && values->nodes.count);
  return true;
}

void tsr__values_release(tsr__values *values) {
  tsr__buffer_release(&values->json);
  TSR__VECTOR_FREE(&values->nodes);
  *values = (tsr__values){.json = {0}};
}

/* ---- Finding ---- */

/* Where a path is, and what has been found so far. */
typedef struct walk {
  const tsr__values *values;
  const char *path, *at;
  const tsr__node *node;    /* NULL: what the path names is absent */
  const tsr_record *record; /* what is declared of its members; NULL: nothing */
} walk;

static const char *what_is(const tsr__node *node) {
  switch (node->kind) {
  case '{': return "an object";
  case '[': return "a list";
  case '"': return "a text";
  case '0': return "a number";
  case 'n': return "null";
  default: return "true or false";
  }
}

/* A failure about the path up to where the walk is. */
static int fail(const walk *w, tsr_status status, tsr_error *error, const char *what) {
  int length = (int)(w->at - w->path);
  if (length && w->path[length - 1] == '.') length--;
  return tsr__fail(error, status, TSR_OFFSET_NONE, "'%.*s' %s", length < 120 ? length : 120,
                   w->path, what);
}

/* The entries of a path are its only digits in brackets. */
static bool is_path(const char *path) {
  for (const char *at = path;; at++) {
    size_t name = strcspn(at, ".[]");
    if (!name) return false;
    at += name;
    while (*at == '[') {
      size_t digits = strspn(at + 1, "0123456789");
      if (!digits || digits > 18 || at[1 + digits] != ']') return false;
      at += digits + 2;
    }
    if (!*at) return true;
    if (*at != '.') return false;
  }
}

static const tsr__node *member(const walk *w, const char *name, size_t length) {
  const tsr__node *items = w->values->nodes.items, *end = items + w->node->next;
  for (const tsr__node *at = w->node + 1; at < end; at = items + at->next)
    if (at->key.size_bytes == length && memcmp(at->key.data, name, length) == 0) return at;
  return NULL;
}

/* Whether the walk can go on into what it has found. */
static int check_inside(const walk *w, char kind, tsr_error *error) {
  if (!w->node) return fail(w, TSR_ERROR_ABSENT, error, "is absent from this answer");
  if (w->node->kind == kind) return 0;
  if (w->node->kind == 'n') return fail(w, TSR_ERROR_NULL, error, "is null");
  if (w->node->kind == '[')
    return fail(w, TSR_ERROR_TYPE, error, "is a list: number its entry, as in devices[0]");
  return fail(w, TSR_ERROR_TYPE, error,
              kind == '[' ? "is no list, so it has no entries"
                          : "is no object, so it has no fields");
}

static int enter_name(walk *w, tsr_error *error) {
  size_t length = strcspn(w->at, ".[");
  const tsr_field *field = tsr_record_field(w->record, w->at, length);
  int status = check_inside(w, '{', error);
  if (status) return status;
  const char *name = w->at;
  w->at += length;
  if (w->record && !field)
    return fail(w, TSR_ERROR_ARGUMENT, error, "is not a field of this answer (docs/json.md)");
  w->node = member(w, name, length);
  w->record = field ? field->record : NULL;
  return 0;
}

static int enter_entry(walk *w, tsr_error *error) {
  const tsr__node *items = w->values->nodes.items;
  size_t index = strtoull(w->at + 1, NULL, 10);
  int status = check_inside(w, '[', error);
  if (status) return status;
  w->at += strcspn(w->at, "]") + 1;
  if (index >= w->node->count)
    return fail(w, TSR_ERROR_ABSENT, error, "is absent: the list is shorter");
  for (w->node++; index; index--) w->node = items + w->node->next;
  return 0;
}

/* A path that begins with a field of devices continues from the first one. */
static int enter_first_device(walk *w, tsr_error *error) {
  size_t length = strcspn(w->at, ".[");
  const tsr_field *devices = tsr_record_field(w->record, "devices", strlen("devices"));
  bool is_own = tsr_record_field(w->record, w->at, length) || !devices;
  if (is_own || !tsr_record_field(devices->record, w->at, length)) return 0;
  w->node = member(w, "devices", strlen("devices"));
  w->record = devices->record;
  if (!w->node || !w->node->count)
    return tsr__fail(error, TSR_ERROR_ABSENT, TSR_OFFSET_NONE, "this answer is about no device");
  w->node++;
  return 0;
}

int tsr__values_find(const tsr__values *values, const tsr_record *record, const char *path,
                     const tsr__node **out, tsr_error *error) {
  walk w = {values, path, path, values->nodes.items, record};
  if (!is_path(path))
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "'%.120s' is not a path such as devices[0].peak.allocated_bytes", path);
  int status = enter_first_device(&w, error);
  if (status == 0) status = enter_name(&w, error);
  while (status == 0 && *w.at) {
    if (*w.at == '.') {
      w.at++;
      status = enter_name(&w, error);
    } else {
      status = enter_entry(&w, error);
    }
  }
  if (status == 0 && !w.node) status = check_inside(&w, '{', error);
  if (status == 0) *out = w.node;
  return status;
}

/* ---- Values ---- */

static int fail_type(const tsr__node *node, const char *path, const char *wanted,
                     tsr_error *error) {
  bool is_null = node->kind == 'n';
  return tsr__fail(error, is_null ? TSR_ERROR_NULL : TSR_ERROR_TYPE, TSR_OFFSET_NONE,
                   "'%.120s' is %s, not %s", path, what_is(node), wanted);
}

int tsr__node_number(const tsr__node *node, const char *path, int64_t *out, tsr_error *error) {
  bool is_truth = node->kind == 't' || node->kind == 'f';
  if (is_truth) {
    *out = node->kind == 't';
    return 0;
  }
  if (node->kind != '0') return fail_type(node, path, "a number", error);
  const char *digits = node->text.data + (*node->text.data == '-');
  size_t count = strspn(digits, "0123456789");
  if (digits + count != node->text.data + node->text.size_bytes)
    return fail_type(node, path, "a whole number", error);
  uint64_t number = count < 20 ? strtoull(digits, NULL, 10) : UINT64_MAX;
  if (number > INT64_MAX)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "'%.120s' is larger than 63 bits",
                     path);
  *out = *node->text.data == '-' ? -(int64_t)number : (int64_t)number;
  return 0;
}

int tsr__node_real(const tsr__node *node, const char *path, double *out, tsr_error *error) {
  char text[64];
  double number = 0;
  size_t size = node->text.size_bytes;
  if (node->kind != '0') return fail_type(node, path, "a number", error);
  memcpy(text, node->text.data, size < sizeof text ? size : sizeof text - 1);
  text[size < sizeof text ? size : sizeof text - 1] = '\0';
  if (!tsr__read_real(text, &number)) return fail_type(node, path, "a finite number", error);
  *out = number;
  return 0;
}

int tsr__node_text(const tsr__node *node, const char *path, tsr_text *out, tsr_error *error) {
  if (node->kind != '"') return fail_type(node, path, "a text", error);
  *out = node->text;
  return 0;
}

int tsr__node_count(const tsr__node *node, const char *path, uint64_t *out, tsr_error *error) {
  if (node->kind != '[') return fail_type(node, path, "a list", error);
  *out = node->count;
  return 0;
}
