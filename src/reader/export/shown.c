/* shown.c - which frames of a stack an export shows. See shown.h. */
#include "export/shown.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "attribution/frames.h"
#include "base/memory.h"
#include "emit/text.h"

int tsr__shown_init(tsr__shown *out, const tsr_snapshot *snapshot, bool is_full, tsr_error *error) {
  *out = (tsr__shown){.snapshot = snapshot, .is_full = is_full};
  tsr__intern_init(&out->texts);
  out->of_frame = TSR__NEW_ARRAY(uint32_t, tsr_snapshot_frame_count(snapshot));
  if (!out->of_frame) return tsr__fail_memory(error);
  return is_full ? 0 : tsr__namer_init(&out->namer, snapshot, NULL, error);
}

void tsr__shown_release(tsr__shown *shown) {
  tsr__namer_release(&shown->namer);
  tsr__free(shown->of_frame);
  TSR__VECTOR_FREE(&shown->of_text);
  tsr__intern_release(&shown->texts);
  TSR__VECTOR_FREE(&shown->entries);
  TSR__VECTOR_FREE(&shown->frames);
  tsr__buffer_release(&shown->scratch);
  *shown = (tsr__shown){0};
}

static bool show_frame(tsr__shown *s, uint32_t frame) {
  assert(frame < tsr_snapshot_frame_count(s->snapshot));
  if (!s->of_frame[frame]) {
    if (!TSR__VECTOR_PUSH(&s->entries, (tsr__shown_entry){frame, TSR_NONE})) return false;
    s->of_frame[frame] = (uint32_t)s->entries.count;
  }
  return TSR__VECTOR_PUSH(&s->frames, s->of_frame[frame] - 1);
}

/* Show the text in the scratch buffer. */
static bool show_text(tsr__shown *s) {
  if (s->scratch.failed) return false;
  uint32_t text = tsr__intern_put(&s->texts, s->scratch.data, s->scratch.size, NULL);
  if (text == TSR__INTERN_FULL) return false;
  assert(text <= s->of_text.count); /* texts are numbered as they come */
  if (text == s->of_text.count)
    if (!TSR__VECTOR_PUSH(&s->of_text, (uint32_t)s->entries.count) ||
        !TSR__VECTOR_PUSH(&s->entries, (tsr__shown_entry){TSR_NONE, text}))
      return false;
  return TSR__VECTOR_PUSH(&s->frames, s->of_text.items[text]);
}

static bool show_all(tsr__shown *s, tsr_stack stack) {
  bool ok = true;
  for (uint32_t i = 0; ok && i < stack.depth; i++) ok = show_frame(s, stack.frames[i]);
  return ok;
}

/* The worst rank that is shown of a stack; TSR__RANK_NOTHING: none is. */
static tsr__frame_rank worst_shown(const tsr__shown *s, tsr_stack stack) {
  tsr__frame_rank best = TSR__RANK_NOTHING;
  for (uint32_t i = 0; i < stack.depth; i++) {
    tsr__frame_rank rank = (tsr__frame_rank)s->namer.rank[stack.frames[i]];
    bool is_python = rank <= TSR__RANK_TORCH || rank == TSR__RANK_PYTHON;
    if (is_python && rank < best) best = rank;
  }
  return best == TSR__RANK_LIBRARY ? TSR__RANK_TORCH : best;
}

static bool is_worth_showing(tsr__frame_rank rank, tsr__frame_rank worst) {
  return worst >= TSR__RANK_PYTHON ? rank == TSR__RANK_PYTHON : rank <= worst;
}

/* The frames in Python, and the library's innermost frame inside of the program's: with a framework in
 * between, only it identifies the layer. */
static bool show_python(tsr__shown *s, tsr_stack stack, tsr__frame_rank worst) {
  bool ok = true, has_layer = worst != TSR__RANK_USER;
  for (uint32_t i = 0; ok && i < stack.depth; i++) {
    tsr__frame_rank rank = (tsr__frame_rank)s->namer.rank[stack.frames[i]];
    bool is_layer = rank == TSR__RANK_LIBRARY && !has_layer;
    has_layer |= is_layer || rank == TSR__RANK_USER; /* outside of the program's it is no layer */
    if (is_layer || is_worth_showing(rank, worst)) ok = show_frame(s, stack.frames[i]);
  }
  return ok;
}

/* Did the program, or a library, call torch's Python last? It is not shown, but names the operation
 * of a stack whose C++ frames were not recorded. */
static bool calls_torch(const tsr__shown *s, tsr_stack stack) {
  for (uint32_t i = 0; i < stack.depth; i++) {
    tsr__frame_rank rank = (tsr__frame_rank)s->namer.rank[stack.frames[i]];
    if (rank <= TSR__RANK_TORCH) return rank == TSR__RANK_TORCH;
  }
  return false;
}

/* The operation; for a stack without Python whatever names it. */
static bool show_operation(tsr__shown *s, uint32_t id, tsr_stack stack, tsr__frame_rank worst) {
  bool has_name = true;
  s->scratch.size = 0;
  if (tsr__namer_append_op(&s->namer, id, &s->scratch)) return show_text(s);
  if (worst == TSR__RANK_NOTHING)
    tsr__namer_append(&s->namer, TSR__LABEL_LINE, id, &s->scratch);
  else if (worst == TSR__RANK_USER && calls_torch(s, stack))
    tsr__namer_append(&s->namer, TSR__LABEL_OP, id, &s->scratch);
  else
    has_name = false;
  return has_name ? show_text(s) : !s->scratch.failed;
}

bool tsr__shown_take(tsr__shown *shown, uint32_t id) {
  tsr_stack stack = {0};
  if (id != TSR_NONE) stack = tsr_snapshot_stack(shown->snapshot, id);
  shown->frames.count = 0;
  if (!stack.depth) {
    shown->scratch.size = 0;
    tsr__buffer_text(&shown->scratch, "(no stack recorded)");
    return show_text(shown);
  }
  if (shown->is_full) return show_all(shown, stack);
  tsr__frame_rank worst = worst_shown(shown, stack);
  bool ok = show_operation(shown, id, stack, worst) && show_python(shown, stack, worst);
  assert(!ok || shown->frames.count); /* every stack has something to show */
  return ok;
}

bool tsr__shown_take_named(tsr__shown *shown, uint32_t stack, tsr_text name) {
  if (!tsr__shown_take(shown, stack)) return false;
  if (!name.size_bytes) return true;
  shown->scratch.size = 0;
  tsr__buffer_text(&shown->scratch, "\"");
  tsr__buffer_append(&shown->scratch, name.data, name.size_bytes);
  tsr__buffer_text(&shown->scratch, "\"");
  if (!show_text(shown)) return false;
  size_t last = shown->frames.count - 1;
  uint32_t entry = shown->frames.items[last];
  memmove(&shown->frames.items[1], &shown->frames.items[0], last * sizeof entry);
  shown->frames.items[0] = entry;
  return true;
}

tsr__shown_name tsr__shown_name_of(const tsr__shown *shown, uint32_t id) {
  assert(id < shown->entries.count);
  tsr__shown_entry entry = shown->entries.items[id];
  assert((entry.frame == TSR_NONE) != (entry.text == TSR_NONE));
  if (entry.frame == TSR_NONE) {
    const tsr__interned *text = &shown->texts.items[entry.text];
    return (tsr__shown_name){.name = {(const char *)text->data, text->size_bytes}};
  }
  tsr_frame frame = tsr_snapshot_frame(shown->snapshot, entry.frame);
  tsr__shown_name name = {.name = tsr_snapshot_string(shown->snapshot, frame.name),
                          .file = tsr_snapshot_string(shown->snapshot, frame.file),
                          .line = frame.line == TSR_LINE_UNKNOWN ? 0 : frame.line};
  if (name.file.size_bytes == 2 && memcmp(name.file.data, "??", 2) == 0) name.file.size_bytes = 0;
  return name;
}

/* A text without the characters that separate frames and lines. */
static void append_part(tsr__buffer *out, tsr_text text) {
  size_t from = out->size;
  (void)tsr__text_clean(out, text);
  for (size_t i = from; i < out->size; i++)
    if (out->data[i] == ';') out->data[i] = ':';
}

void tsr__shown_append(const tsr__shown *shown, tsr__buffer *out) {
  for (size_t i = shown->frames.count; i--;) {
    tsr__shown_name name = tsr__shown_name_of(shown, shown->frames.items[i]);
    append_part(out, name.name);
    if (name.file.size_bytes) {
      tsr__buffer_text(out, " (");
      append_part(out, name.file);
      if (name.line) tsr__buffer_printf(out, ":%" PRIu64, name.line);
      tsr__buffer_text(out, ")");
    }
    if (i) tsr__buffer_text(out, ";");
  }
}
