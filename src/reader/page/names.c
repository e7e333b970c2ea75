/* names.c - one table of names for all files of a page. See names.h. */
#include "page/names.h"

#include <assert.h>

#include "base/utf8.h"
#include "emit/text.h"
#include "tessera/unstable/frames.h"

void tsr__page_names_init(tsr__page_names *names, size_t most_text) {
  names->most_text = most_text;
  tsr__intern_init(&names->strings);
  tsr__intern_init(&names->frames);
  tsr__intern_init(&names->nodes);
}

void tsr__page_names_release(tsr__page_names *names) {
  tsr__intern_release(&names->strings);
  tsr__intern_release(&names->frames);
  tsr__intern_release(&names->nodes);
}

bool tsr__page_ids_init(tsr__page_ids *ids, const tsr_snapshot *snapshot) {
  ids->nodes = TSR__NEW_ARRAY(uint32_t, tsr_snapshot_stack_count(snapshot));
  ids->frames = TSR__NEW_ARRAY(uint32_t, tsr_snapshot_frame_count(snapshot));
  ids->strings = TSR__NEW_ARRAY(uint32_t, tsr_snapshot_string_count(snapshot));
  return ids->nodes && ids->frames && ids->strings;
}

void tsr__page_ids_release(tsr__page_ids *ids) {
  tsr__free(ids->nodes);
  tsr__free(ids->frames);
  tsr__free(ids->strings);
  *ids = (tsr__page_ids){0};
}

tsr_text tsr__page_cut(tsr_text text, size_t most_bytes) {
  size_t at = 0;
  uint32_t code;
  if (text.size_bytes <= most_bytes) return text;
  for (;;) {
    size_t length = tsr__utf8_decode(text.data + at, text.size_bytes - at, &code);
    if (at + length > most_bytes) return (tsr_text){text.data, at};
    at += length;
  }
}

uint32_t tsr__page_text(tsr__page_names *names, tsr_text text, bool *ok) {
  tsr_text cut = tsr__page_cut(text, names->most_text);
  uint32_t id = tsr__intern_put(&names->strings, cut.data ? cut.data : "", cut.size_bytes, NULL);
  if (id == TSR__INTERN_FULL) *ok = false;
  return id;
}

uint32_t tsr__page_string(tsr__page_names *names, tsr__page_ids *ids, const tsr_snapshot *snapshot,
                          uint32_t string, bool *ok) {
  bool is_known = string < tsr_snapshot_string_count(snapshot);
  if (is_known && ids->strings[string]) return ids->strings[string] - 1;
  uint32_t id = tsr__page_text(names, tsr_snapshot_string(snapshot, string), ok);
  if (is_known && *ok) ids->strings[string] = id + 1;
  return id;
}

static uint32_t frame_id(tsr__page_names *names, tsr__page_ids *ids, const tsr_snapshot *snapshot,
                         uint32_t frame, bool *ok) {
  assert(frame < tsr_snapshot_frame_count(snapshot));
  if (ids->frames[frame]) return ids->frames[frame] - 1;
  tsr_frame f = tsr_snapshot_frame(snapshot, frame);
  tsr_origin origin = tsr_frame_origin(tsr_snapshot_string(snapshot, f.name),
                                       tsr_snapshot_string(snapshot, f.file));
  tsr__page_frame key = {tsr__page_string(names, ids, snapshot, f.name, ok),
                         tsr__page_string(names, ids, snapshot, f.file, ok), f.line,
                         (uint64_t)origin};
  uint32_t id = *ok ? tsr__intern_put(&names->frames, &key, sizeof key, NULL) : TSR__INTERN_FULL;
  if (id == TSR__INTERN_FULL) *ok = false;
  if (*ok) ids->frames[frame] = id + 1;
  return id;
}

uint32_t tsr__page_stack(tsr__page_names *names, tsr__page_ids *ids, const tsr_snapshot *snapshot,
                         uint32_t stack, bool *ok) {
  if (stack == TSR_NONE) return TSR_NONE;
  assert(stack < tsr_snapshot_stack_count(snapshot));
  if (ids->nodes[stack]) return ids->nodes[stack] - 1;
  tsr_stack frames = tsr_snapshot_stack(snapshot, stack);
  tsr__page_node node = {TSR_NONE, 0};
  uint32_t id = TSR_NONE;
  for (uint32_t i = frames.depth; *ok && i--;) {
    node.parent = id;
    node.frame = frame_id(names, ids, snapshot, frames.frames[i], ok);
    if (*ok) id = tsr__intern_put(&names->nodes, &node, sizeof node, NULL);
    if (id == TSR__INTERN_FULL) *ok = false;
  }
  if (*ok) ids->nodes[stack] = id + 1;
  return id;
}

void tsr__page_quote(tsr__buffer *out, tsr_text text) {
  tsr__buffer_append(out, "\"", 1);
  for (size_t at = 0; at < text.size_bytes;) {
    size_t end = at;
    while (end < text.size_bytes && text.data[end] != '<') end++;
    (void)tsr__json_escape(out, (tsr_text){text.data, end}, at, end);
    if (end < text.size_bytes) tsr__buffer_text(out, "\\u003c");
    at = end + 1;
  }
  tsr__buffer_append(out, "\"", 1);
}
