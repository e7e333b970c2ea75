/* fleet_code.c - the sketches of many files as one file: docs/sketch.md.
 *
 * Files are in the order of their paths and parts in that of their numbers, so that what was made in parts and put together has the same
 * bytes as what was made at once. */
#include <string.h>

#include "fleet/bytes.h"
#include "fleet/fleet.h"

static const char magic[] = "tessera/sketches/2\n";
/* Without the number of the version, and with it. */
enum { NAME_BYTES = sizeof "tessera/sketches/" - 1, MAGIC_BYTES = sizeof magic - 1 };
enum { MOST_PARTS = 1 << 20 };
#define MOST_PATH_BYTES ((uint64_t)1 << 16)

bool tsr__is_fleet(const void *data, size_t size_bytes) {
  return size_bytes >= MAGIC_BYTES && !memcmp(data, magic, NAME_BYTES);
}

static bool has_part(const tsr__fleet *fleet, uint32_t part) {
  for (size_t i = 0; i < fleet->parts_seen.count; i++)
    if (fleet->parts_seen.items[i] == part) return true;
  return false;
}

bool tsr__fleet_encode(const tsr__fleet *fleet, tsr__buffer *out) {
  size_t begin = out->size, seen = 0;
  for (uint32_t i = 1; i <= fleet->parts; i++) seen += has_part(fleet, i);
  bool is_whole = seen == fleet->parts; /* all parts together are no parts any more */
  tsr__buffer_append(out, magic, MAGIC_BYTES);
  tsr__put_leb(out, is_whole ? 0 : fleet->parts);
  tsr__put_leb(out, is_whole ? 0 : seen);
  for (uint32_t i = 1; !is_whole && i <= fleet->parts; i++)
    if (has_part(fleet, i)) tsr__put_leb(out, i);
  tsr__put_leb(out, fleet->files.count);
  for (size_t i = 0; i < fleet->files.count; i++) {
    const tsr__fleet_file *file = &fleet->files.items[i];
    size_t length = strlen(file->path);
    bool is_broken = !file->sketch.size;
    const char *data = is_broken ? file->message : file->sketch.data;
    size_t size = is_broken ? strlen(file->message) : file->sketch.size;
    tsr__put_leb(out, length);
    tsr__buffer_append(out, file->path, length);
    tsr__put_leb(out, is_broken);
    tsr__put_leb(out, size);
    tsr__buffer_append(out, data, size);
  }
  tsr__put_sum(out, begin);
  return !out->failed;
}

/* ---- Decoding ---- */

typedef struct reader {
  const unsigned char *at, *end;
  bool is_wrong;
} reader;

static uint64_t get(reader *r, uint64_t most) {
  uint64_t number;
  if (!tsr__get_leb(&r->at, r->end, most, &number)) r->is_wrong = true;
  return number;
}

/* A text of `size` bytes that follows, ended by a zero byte; NULL when out of memory. */
static char *get_text(reader *r, size_t size) {
  char *text = TSR__NEW_ARRAY(char, size + 1);
  if (text) {
    memcpy(text, r->at, size);
    text[size] = '\0';
    if (memchr(text, 0, size)) r->is_wrong = true;
  }
  r->at += size;
  return text;
}

/* False when out of memory. */
static bool get_file(reader *r, tsr__fleet *into) {
  tsr__fleet_file file = {0};
  size_t length = (size_t)get(r, MOST_PATH_BYTES);
  if (length > (size_t)(r->end - r->at)) r->is_wrong = true;
  if (r->is_wrong) return true;
  file.path = get_text(r, length);
  bool is_broken = get(r, 1) != 0;
  size_t size = (size_t)get(r, 2 * TSR__SKETCH_MOST_BYTES);
  if (size > (size_t)(r->end - r->at)) r->is_wrong = true;
  bool ok = file.path != NULL;
  if (ok && !r->is_wrong && is_broken) {
    file.message = get_text(r, size);
    ok = file.message != NULL;
  } else if (ok && !r->is_wrong) {
    tsr__buffer_append(&file.sketch, r->at, size);
    r->at += size;
    ok = !file.sketch.failed;
    if (!size) r->is_wrong = true;
  }
  if (ok && !r->is_wrong && TSR__VECTOR_PUSH(&into->files, file)) return true;
  tsr__free(file.path);
  tsr__free(file.message);
  tsr__buffer_release(&file.sketch);
  return r->is_wrong;
}

static bool get_parts(reader *r, tsr__fleet *into) {
  uint32_t parts = (uint32_t)get(r, MOST_PARTS);
  uint64_t seen = get(r, parts);
  if (into->parts && parts && into->parts != parts) r->is_wrong = true;
  if (parts) into->parts = parts;
  for (uint64_t i = 0; i < seen && !r->is_wrong; i++) {
    uint32_t part = (uint32_t)get(r, parts);
    if (!part) r->is_wrong = true;
    if (!r->is_wrong && !TSR__VECTOR_PUSH(&into->parts_seen, part)) return false;
  }
  return true;
}

int tsr__fleet_decode(const void *data, size_t size_bytes, tsr__fleet *into, tsr_error *error) {
  const unsigned char *bytes = data;
  if (tsr__is_fleet(data, size_bytes) && memcmp(bytes, magic, MAGIC_BYTES) != 0)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "sketches of another version of tessera; make them again from the snapshots");
  bool is_whole = size_bytes >= MAGIC_BYTES + TSR__SUM_BYTES && tsr__is_fleet(data, size_bytes);
  if (!is_whole || !tsr__has_sum(bytes, size_bytes))
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "sketches that are damaged, or cut off");
  reader r = {.at = bytes + MAGIC_BYTES, .end = bytes + size_bytes - TSR__SUM_BYTES};
  bool ok = get_parts(&r, into);
  uint64_t count = get(&r, size_bytes);
  for (uint64_t i = 0; ok && !r.is_wrong && i < count; i++) ok = get_file(&r, into);
  if (ok && !r.is_wrong && r.at != r.end) r.is_wrong = true;
  if (!ok) return tsr__fail_memory(error);
  if (r.is_wrong)
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "sketches that are damaged, or of parts of another number than the others");
  return 0;
}
