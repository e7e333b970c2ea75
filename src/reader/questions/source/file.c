/* file.c - which frames are in a source file, and whether its text is what ran.
 *
 * Paths are compared from their ends, component by component, on either kind of slash: a file that
 * was /workspace/app/model.py where it ran is ~/app/model.py here, and agrees in two components.
 * If several files agree equally far, one of the program's own is preferred to one of an
 * installed package, and among those the one with the most frames. */
#include "questions/source/file.h"

#include <assert.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"

/* A file of the snapshot that has the base name. */
typedef struct candidate {
  uint32_t file; /* string id */
  size_t agreement;
  uint64_t frame_count;
  bool is_installed;
} candidate;

typedef TSR__VECTOR(candidate) candidates;

static bool is_slash(char c) {
  return c == '/' || c == '\\';
}

/* The length of the last component of the first `size` bytes. */
static size_t last_component(const char *path, size_t size) {
  size_t length = 0;
  while (length < size && !is_slash(path[size - 1 - length])) length++;
  return length;
}

/* The number of components that two paths have in common at their ends. */
static size_t agreement(tsr_text a, tsr_text b) {
  size_t common = 0, left = a.size_bytes, right = b.size_bytes;
  while (left && right) {
    size_t length = last_component(a.data, left);
    if (length != last_component(b.data, right) ||
        memcmp(a.data + left - length, b.data + right - length, length) != 0)
      break;
    common += length != 0;
    left -= length;
    right -= length;
    while (left && is_slash(a.data[left - 1])) left--;
    while (right && is_slash(b.data[right - 1])) right--;
  }
  return common;
}

/* In a package that pip or the system installed. */
static bool is_installed(tsr_text path) {
  static const char part[] = "-packages";
  for (size_t at = 0; at + sizeof part - 1 <= path.size_bytes; at++)
    if (memcmp(path.data + at, part, sizeof part - 1) == 0) return true;
  return false;
}

static bool is_better(const candidate *a, const candidate *b) {
  if (a->agreement != b->agreement) return a->agreement > b->agreement;
  if (a->is_installed != b->is_installed) return b->is_installed;
  return a->frame_count > b->frame_count;
}

/* ---- finding ---- */

/* Every file with the path's base name, with its number of frames. */
static bool collect(const tsr_snapshot *snapshot, tsr_text path, candidates *out) {
  tsr__map place = {0}; /* file -> index among the candidates, or TSR_NONE */
  uint32_t count = tsr_snapshot_frame_count(snapshot);
  bool ok = true, added;
  for (uint32_t id = 0; ok && id < count; id++) {
    uint32_t file = tsr_snapshot_frame(snapshot, id).file;
    uint64_t *index = tsr__map_put(&place, file, TSR_NONE, &added);
    ok = index != NULL;
    if (!ok) break;
    tsr_text name = tsr_snapshot_string(snapshot, file);
    candidate made = {.file = file, .agreement = added ? agreement(path, name) : 0};
    if (made.agreement) {
      made.is_installed = is_installed(name);
      *index = out->count;
      ok = TSR__VECTOR_PUSH(out, made);
    }
    if (ok && *index < out->count) out->items[*index].frame_count++;
  }
  tsr__map_release(&place);
  return ok;
}

static bool note_lines(const tsr_snapshot *snapshot, tsr__source_frames *out) {
  out->count = tsr_snapshot_frame_count(snapshot);
  out->lines = TSR__NEW_ARRAY(uint32_t, out->count);
  if (!out->lines) return false;
  for (uint32_t id = 0; out->file != TSR_NONE && id < out->count; id++) {
    tsr_frame frame = tsr_snapshot_frame(snapshot, id);
    if (frame.file != out->file) continue;
    bool is_line = frame.line && frame.line < TSR__LINE_SOMEWHERE;
    out->lines[id] = is_line ? (uint32_t)frame.line : TSR__LINE_SOMEWHERE;
    if (is_line && frame.line > out->last_line) out->last_line = (uint32_t)frame.line;
  }
  return true;
}

int tsr__source_frames_find(const tsr_snapshot *snapshot, const char *path, tsr__source_frames *out,
                            tsr_error *error) {
  candidates found = {0};
  size_t best = 0;
  *out = (tsr__source_frames){.file = TSR_NONE};
  bool ok = collect(snapshot, (tsr_text){path, strlen(path)}, &found);
  for (size_t i = 1; ok && i < found.count; i++)
    if (is_better(&found.items[i], &found.items[best])) best = i;
  if (ok) out->other = TSR__NEW_ARRAY(uint32_t, found.count);
  ok = ok && out->other;
  for (size_t i = 0; ok && i < found.count; i++) {
    if (i == best)
      out->file = found.items[i].file;
    else
      out->other[out->other_count++] = found.items[i].file;
  }
  assert(!ok || out->other_count + (out->file != TSR_NONE) == found.count);
  TSR__VECTOR_FREE(&found);
  ok = ok && note_lines(snapshot, out);
  return ok ? 0 : tsr__fail_memory(error);
}

void tsr__source_frames_release(tsr__source_frames *frames) {
  tsr__free(frames->other);
  tsr__free(frames->lines);
  *frames = (tsr__source_frames){.file = TSR_NONE};
}

/* ---- checking ---- */

/* Whether a frame with this name could be at this line. A name in angle brackets is uninformative, and
 * the functions that torch.compile generates continue in the original's lines. */
static bool is_at_home(const tsr__outline *outline, tsr_text name, uint32_t line) {
  static const char resume[] = "torch_dynamo_resume_in";
  uint32_t at = tsr__outline_at(outline, line);
  if (name.size_bytes >= sizeof resume - 1 && memcmp(name.data, resume, sizeof resume - 1) == 0)
    return true;
  if (name.size_bytes == 8 && memcmp(name.data, "<module>", 8) == 0)
    return at == TSR_NONE || outline->definitions.items[at].first_line == line ||
           outline->definitions.items[at].is_class;
  if (!name.size_bytes || name.data[0] == '<') return true;
  for (; at != TSR_NONE; at = outline->definitions.items[at].parent) {
    tsr_text own = outline->definitions.items[at].name;
    if (own.size_bytes == name.size_bytes && memcmp(own.data, name.data, own.size_bytes) == 0)
      return true;
  }
  return false;
}

int tsr__source_check(const tsr_snapshot *snapshot, const tsr__source_frames *frames,
                      const tsr__outline *outline, tsr_source *out, tsr_error *error) {
  tsr__map seen = {0}; /* lines that were counted; the value: as one elsewhere too */
  bool ok = true, added;
  out->other_definition = out->other_name = TSR_NONE;
  for (uint32_t id = 0; ok && id < frames->count; id++) {
    uint32_t line = frames->lines[id];
    if (!line || line == TSR__LINE_SOMEWHERE) continue;
    uint64_t *is_other = tsr__map_put(&seen, line, 0, &added);
    ok = is_other != NULL;
    if (!ok) break;
    assert(line <= frames->last_line);
    bool is_beyond = line > outline->lines.count;
    out->mentioned_lines += added;
    out->beyond_lines += added && is_beyond;
    if (is_beyond && line > out->beyond_line) out->beyond_line = line;
    uint32_t name = tsr_snapshot_frame(snapshot, id).name;
    if (is_beyond || *is_other || is_at_home(outline, tsr_snapshot_string(snapshot, name), line))
      continue;
    *is_other = 1;
    if (!out->other_lines++ || line < out->other_line) {
      out->other_line = line;
      out->other_name = name;
      out->other_definition = tsr__outline_at(outline, line);
    }
  }
  tsr__map_release(&seen);
  return ok ? 0 : tsr__fail_memory(error);
}
