/* stacks.c - printing stacks so that readers find the relevant line at once.
 *
 * Which frames are shown: the first origin (tessera/unstable/frames.h) that occurs in the stack represents
 * it. All frames of the program itself are shown; of any other origin only the innermost three, so
 * that no stack folds away completely. If the program called an installed library other than torch,
 * the library's innermost frame inside the program's is shown too: with a training framework in
 * between, only that frame identifies the layer. Each run of other frames becomes one line:
 *
 *   main, train.py:40
 *     step, train.py:31
 *       ... 4 frames of transformers, torch
 *         forward, /usr/lib/python3/dist-packages/transformers/models/llama/modeling_llama.py:120
 *           ... 14 frames of torch, C++
 *
 * Stacks are stored innermost first, so index 0 is the innermost frame and "inside" means a smaller
 * index. Planning which frames are shown takes one pass and no memory; printing takes another.
 * Invariant: at least one frame of every non-empty stack is shown.
 */
#include "stacks/stacks.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "attribution/frames.h"
#include "base/format.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "tessera/unstable/frames.h"

#define INNERMOST_SHOWN 3
#define PACKAGES_NAMED  4

typedef struct plan {
  tsr_stack stack;
  tsr_origin speaker; /* the origin that is shown; TSR_ORIGIN_COUNT for an empty stack */
  uint32_t innermost; /* that origin's innermost frame */
  uint32_t last;      /* its outermost frame to show */
  uint32_t layer;     /* the library's frame inside it, or TSR_NONE */
} plan;

void tsr__stack_printer_init(tsr__stack_printer *printer, tsr__emitter *emitter,
                             const tsr_snapshot *snapshot) {
  *printer = (tsr__stack_printer){.emitter = emitter, .snapshot = snapshot};
  if (!tsr__emitter_is_text(emitter) && !emitter->options.stack_frames) return;
  printer->origin_count = tsr_snapshot_frame_count(snapshot);
  printer->origins = TSR__NEW_ARRAY(uint8_t, printer->origin_count);
  if (printer->origins) return;
  printer->origin_count = 0;
  emitter->scratch.failed = true; /* the report fails, as for any other allocation */
}

void tsr__stack_printer_release(tsr__stack_printer *printer) {
  tsr__free(printer->origins);
  tsr__namer_release(&printer->namer);
  *printer = (tsr__stack_printer){0};
}

/* ---- Which frames ---- */

/* For choosing frames, the allocator and dispatch count as noise, and what torch.compile generated as
 * what is least informative above it: they are shown only if a stack has nothing else. */
static tsr_origin origin_of(tsr__stack_printer *printer, uint32_t id) {
  bool is_kept = id < printer->origin_count;
  if (is_kept && printer->origins[id]) return (tsr_origin)(printer->origins[id] - 1);
  tsr_frame frame = tsr_snapshot_frame(printer->snapshot, id);
  tsr_text name = tsr_snapshot_string(printer->snapshot, frame.name);
  tsr_text file = tsr_snapshot_string(printer->snapshot, frame.file);
  tsr_origin origin = tsr_frame_origin(name, file);
  tsr__frame_rank rank = tsr__frame_rank_of(name, file);
  if (rank == TSR__RANK_NOTHING && origin == TSR_ORIGIN_NATIVE) origin = TSR_ORIGIN_NOISE;
  if (rank == TSR__RANK_COMPILED) origin = TSR_ORIGIN_PYTHON;
  if (is_kept) printer->origins[id] = (uint8_t)(origin + 1);
  return origin;
}

static plan make_plan(tsr__stack_printer *printer, uint32_t stack_id) {
  plan made = {.speaker = TSR_ORIGIN_COUNT, .layer = TSR_NONE};
  uint32_t first_library = TSR_NONE, seen = 0;
  if (stack_id != TSR_NONE) made.stack = tsr_snapshot_stack(printer->snapshot, stack_id);
  for (uint32_t i = 0; i < made.stack.depth; i++) {
    tsr_origin origin = origin_of(printer, made.stack.frames[i]);
    if (origin == TSR_ORIGIN_LIBRARY && first_library == TSR_NONE) first_library = i;
    if (origin < made.speaker) {
      made.speaker = origin;
      made.innermost = i;
      seen = 0;
    }
    if (origin != made.speaker) continue;
    if (origin == TSR_ORIGIN_USER || seen < INNERMOST_SHOWN) made.last = i;
    seen++;
  }
  assert(made.innermost <= made.last && (!made.stack.depth || made.last < made.stack.depth));
  if (made.speaker == TSR_ORIGIN_USER && first_library < made.innermost) made.layer = first_library;
  return made;
}

static bool is_shown(tsr__stack_printer *printer, const plan *made, uint32_t i) {
  if (printer->emitter->options.full_stacks || i == made->layer) return true;
  return i <= made->last && origin_of(printer, made->stack.frames[i]) == made->speaker;
}

/* ---- One frame ---- */

static tsr_text string_of(const tsr__stack_printer *printer, uint32_t id) {
  tsr_text text = tsr_snapshot_string(printer->snapshot, id);
  return text.size_bytes ? text : tsr__text_of("??");
}

/* Line 0 means that the unwinder knows none. */
static bool has_line(tsr_frame frame) {
  return frame.line && frame.line != TSR_LINE_UNKNOWN;
}

static void append_text(tsr__buffer *out, tsr_text text) {
  tsr__buffer_append(out, text.data, text.size_bytes);
}

/* ---- Names ---- */

tsr__namer *tsr__stack_namer(tsr__stack_printer *printer) {
  tsr__namer *namer = &printer->namer;
  if (!namer->snapshot && tsr__namer_init(namer, printer->snapshot, NULL, NULL)) {
    printer->emitter->scratch.failed = true;
    return NULL;
  }
  return namer;
}

void tsr__stack_append_name(tsr__stack_printer *printer, tsr__label_kind kind, uint32_t stack) {
  tsr__namer *namer = tsr__stack_namer(printer);
  if (namer) tsr__namer_append(namer, kind, stack, &printer->emitter->scratch);
}

size_t tsr__stack_shown(tsr__stack_printer *printer, uint32_t stack, uint32_t *frames) {
  plan made = make_plan(printer, stack);
  size_t count = 0;
  if (made.speaker > TSR_ORIGIN_TORCH) return 0;
  for (uint32_t i = made.stack.depth; i--;)
    if (i == made.layer ||
        (i <= made.last && origin_of(printer, made.stack.frames[i]) == made.speaker))
      frames[count++] = made.stack.frames[i];
  return count;
}

void tsr__frame_append_name(tsr__stack_printer *printer, uint32_t frame) {
  tsr__namer *namer = tsr__stack_namer(printer);
  if (namer) tsr__namer_append_frame(namer, frame, &printer->emitter->scratch);
}

void tsr__stack_names(const tsr__stack_row *rows, size_t count, tsr__row_names *out) {
  *out = (tsr__row_names){0};
  if (!count || !tsr__emitter_is_text(rows[0].printer->emitter)) return;
  tsr__named_row *named = TSR__NEW_ARRAY(tsr__named_row, count);
  bool ok = named != NULL;
  for (size_t i = 0; ok && i < count; i++) {
    named[i] = (tsr__named_row){tsr__stack_namer(rows[i].printer), rows[i].stack};
    ok = named[i].namer != NULL;
  }
  if (!ok || tsr__row_names_compute(named, count, out, NULL))
    rows[0].printer->emitter->scratch.failed = true;
  tsr__free(named);
}

void tsr__stack_names_in(tsr__stack_printer *printer, const void *items, size_t count,
                         size_t item_bytes, size_t stack_at, tsr__row_names *out) {
  tsr__stack_row *rows = TSR__NEW_ARRAY(tsr__stack_row, count);
  *out = (tsr__row_names){0};
  if (!rows) printer->emitter->scratch.failed = true;
  for (size_t i = 0; rows && i < count; i++) {
    rows[i].printer = printer;
    memcpy(&rows[i].stack, (const char *)items + i * item_bytes + stack_at, sizeof rows[i].stack);
  }
  if (rows) tsr__stack_names(rows, count, out);
  tsr__free(rows);
}

tsr_text tsr__stack_name(const tsr__row_names *names, size_t row) {
  return names->of_row ? tsr__row_name(names, row) : (tsr_text){"", 0};
}

/* ---- JSON ---- */

static void emit_frame(tsr__stack_printer *printer, const char *key, uint32_t id) {
  tsr__emitter *emitter = printer->emitter;
  tsr_frame frame = tsr_snapshot_frame(printer->snapshot, id);
  tsr__cell line = frame.line == TSR_LINE_UNKNOWN ? tsr__nothing() : tsr__count(frame.line);
  tsr__emit_inline_object(emitter, key);
  tsr__emit_field(emitter, "name", NULL,
                  tsr__text(tsr_snapshot_string(printer->snapshot, frame.name)));
  tsr__emit_field(emitter, "file", NULL,
                  tsr__text(tsr_snapshot_string(printer->snapshot, frame.file)));
  tsr__emit_field(emitter, "line", NULL, line);
  tsr__emit_end(emitter);
}

/* The frames that text would show, at most `most` of them; returns their number. */
static uint32_t emit_folded(tsr__stack_printer *printer, uint32_t stack, uint32_t most) {
  plan made = make_plan(printer, stack);
  uint32_t shown = 0;
  for (uint32_t i = 0; i < made.stack.depth && shown < most; i++) {
    if (!is_shown(printer, &made, i)) continue;
    emit_frame(printer, NULL, made.stack.frames[i]);
    shown++;
  }
  return shown;
}

void tsr__frame_emit(tsr__stack_printer *printer, const char *key, uint32_t frame) {
  if (tsr__emitter_is_text(printer->emitter)) return;
  if (frame == TSR_NONE)
    tsr__emit_field(printer->emitter, key, NULL, tsr__nothing());
  else
    emit_frame(printer, key, frame);
}

void tsr__stack_emit(tsr__stack_printer *printer, uint32_t stack) {
  tsr__emitter *emitter = printer->emitter;
  uint32_t most = emitter->options.stack_frames, shown = 0;
  if (tsr__emitter_is_text(emitter)) return;
  tsr_stack frames = {0};
  if (stack != TSR_NONE) frames = tsr_snapshot_stack(printer->snapshot, stack);
  tsr__emit_array(emitter, "frames");
  if (most) shown = emit_folded(printer, stack, most);
  for (uint32_t i = 0; !most && i < frames.depth; i++) emit_frame(printer, NULL, frames.frames[i]);
  tsr__emit_end(emitter);
  assert(shown <= frames.depth);
  if (most) tsr__emit_field(emitter, "folded_frames", NULL, tsr__count(frames.depth - shown));
}

/* ---- Text ---- */

static void print_frame(tsr__stack_printer *printer, uint32_t id, size_t indent) {
  tsr__buffer *out = &printer->emitter->scratch;
  tsr_frame frame = tsr_snapshot_frame(printer->snapshot, id);
  append_text(out, string_of(printer, frame.name));
  tsr__buffer_text(out, ", ");
  append_text(out, string_of(printer, frame.file));
  if (has_line(frame)) tsr__buffer_printf(out, ":%" PRIu64, frame.line);
  tsr__emit_unbroken(printer->emitter, TSR__PLAIN, indent);
}

static bool same_text(tsr_text a, tsr_text b) {
  if (a.size_bytes != b.size_bytes) return false;
  for (size_t i = 0; i < a.size_bytes; i++)
    if (a.data[i] != b.data[i]) return false;
  return true;
}

/* The packages of the frames from `outer` to `inner`, each once, in calling order.
 */
static void append_packages(tsr__stack_printer *printer, tsr_stack stack, uint32_t outer,
                            uint32_t inner) {
  tsr__buffer *out = &printer->emitter->scratch;
  tsr_text named[PACKAGES_NAMED];
  size_t count = 0;
  for (uint32_t i = outer + 1; i-- > inner;) {
    tsr_frame frame = tsr_snapshot_frame(printer->snapshot, stack.frames[i]);
    tsr_text name = tsr_snapshot_string(printer->snapshot, frame.name);
    tsr_text file = tsr_snapshot_string(printer->snapshot, frame.file);
    tsr_text package = tsr_frame_package(tsr_frame_origin(name, file), name, file);
    size_t at = 0;
    while (at < count && !same_text(named[at], package)) at++;
    if (at < count) continue;
    tsr__buffer_text(out, count ? ", " : " of ");
    if (count == PACKAGES_NAMED) {
      tsr__buffer_text(out, "others");
      return;
    }
    append_text(out, package);
    named[count++] = package;
  }
}

static void print_fold(tsr__stack_printer *printer, tsr_stack stack, uint32_t outer, uint32_t inner,
                       size_t indent) {
  assert(inner <= outer && outer < stack.depth);
  uint32_t hidden = outer - inner + 1;
  char count[TSR__FORMAT_BYTES];
  tsr__buffer_printf(&printer->emitter->scratch, "... %s frame%s", tsr__format_count(hidden, count),
                     tsr__plural(hidden));
  append_packages(printer, stack, outer, inner);
  tsr__emit_line(printer->emitter, TSR__DIM, indent);
}

void tsr__stack_print(tsr__stack_printer *printer, uint32_t stack) {
  if (!tsr__emitter_is_text(printer->emitter)) return;
  plan made = make_plan(printer, stack);
  size_t indent = 2, deepest = tsr__emitter_width(printer->emitter) / 2;
  for (uint32_t left = made.stack.depth; left;) {
    uint32_t outer = left - 1;
    if (is_shown(printer, &made, outer)) {
      print_frame(printer, made.stack.frames[outer], indent);
      left = outer;
    } else {
      uint32_t inner = outer;
      while (inner && !is_shown(printer, &made, inner - 1)) inner--;
      print_fold(printer, made.stack, outer, inner, indent);
      left = inner;
    }
    if (indent + 2 <= deepest) indent += 2;
  }
}
