/* labels.c - naming what a stack was doing. See labels.h.
 *
 * Everything about a frame is computed once per frame (`origin`, `mark`); a stack is read from its
 * innermost frame outwards:
 *
 *   c10::...::malloc  at::_ops::empty::call  at::_ops::bmm::call  BmmBackward0::apply  Engine::...
 *   plumbing          an operation           the outermost: it    the node: stop
 *
 *   c10::...::malloc  at::_ops::mm::call  forward, linear.py  _call_impl, module.py  forward, model.py
 *                     the outermost       Python: stop        the innermost call     its caller
 *
 * Names of frames are cut to NAME_BYTES, so that a name costs the same however long the file's are. */
#include "attribution/labels.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "attribution/frames.h"
#include "base/hash.h"
#include "base/memory.h"
#include "tessera/unstable/frames.h"

enum { NAME_BYTES = 120 };

#define SEVERAL UINT64_C(0) /* in `files`: no hash, which are odd */

/* ---- Frames ---- */

static tsr_text name_of(const tsr__namer *n, uint32_t frame) {
  return tsr_snapshot_string(n->snapshot, tsr_snapshot_frame(n->snapshot, frame).name);
}

static tsr_text file_of(const tsr__namer *n, uint32_t frame) {
  return tsr_snapshot_string(n->snapshot, tsr_snapshot_frame(n->snapshot, frame).file);
}

static bool is_python(const tsr__namer *n, uint32_t frame) {
  return n->origin[frame] != TSR_ORIGIN_NATIVE && n->origin[frame] != TSR_ORIGIN_NOISE;
}

static bool begins_with(tsr_text text, const char *part) {
  size_t size = strlen(part);
  return text.size_bytes >= size && memcmp(text.data, part, size) == 0;
}

/* The same for a path, with either kind of slash. */
static bool matches(tsr_text path, const char *part) {
  for (size_t i = 0; part[i]; i++)
    if (i >= path.size_bytes || (path.data[i] == '\\' ? '/' : path.data[i]) != part[i])
      return false;
  return true;
}

/* Where `part` begins, or SIZE_MAX. */
static size_t find(tsr_text text, const char *part) {
  size_t size = strlen(part);
  for (size_t at = 0; text.size_bytes >= size && at <= text.size_bytes - size; at++)
    if (memcmp(text.data + at, part, size) == 0) return at;
  return SIZE_MAX;
}

static void append(tsr__buffer *out, tsr_text text) {
  tsr__buffer_append(out, text.data, text.size_bytes < NAME_BYTES ? text.size_bytes : NAME_BYTES);
}

static uint64_t hash_of(const tsr__namer *n, tsr_text text) {
  return tsr__hash_bytes(text.data, text.size_bytes, n->seed);
}

/* The base name, with its folder if several of the program's own files have it. */
static void append_file(tsr__namer *n, tsr_text file, tsr__buffer *out) {
  tsr_text base = tsr_base_name(file);
  const uint64_t *known = tsr__map_find(&n->files, hash_of(n, base));
  size_t at = file.size_bytes - base.size_bytes;
  if (known && *known == SEVERAL && at > 1)
    for (at--; at && file.data[at - 1] != '/' && file.data[at - 1] != '\\';) at--;
  append(out, (tsr_text){file.data + at, file.size_bytes - at});
}

static void append_place(tsr__namer *n, uint32_t frame, tsr__buffer *out) {
  assert(frame < tsr_snapshot_frame_count(n->snapshot));
  uint64_t line = tsr_snapshot_frame(n->snapshot, frame).line;
  append_file(n, file_of(n, frame), out);
  if (line && line != TSR_LINE_UNKNOWN) tsr__buffer_printf(out, ":%" PRIu64, line);
}

/* "torch.nn.functional" of ".../torch/nn/functional.py", "nn.linear" of ".../torch/nn/modules/linear.py";
 * false for another's file. */
static bool append_torch_module(const tsr__namer *n, uint32_t frame, tsr__buffer *out) {
  static const char modules[] = "torch/nn/modules/";
  tsr_text file = file_of(n, frame);
  if (n->origin[frame] != TSR_ORIGIN_TORCH) return false;
  size_t at = find(file, "torch/");
  if (at == SIZE_MAX) at = find(file, "torch\\");
  if (at == SIZE_MAX) return false;
  tsr_text rest = {file.data + at, file.size_bytes - at};
  size_t size = rest.size_bytes;
  if (size > 3 && memcmp(rest.data + size - 3, ".py", 3) == 0) size -= 3;
  if (size > NAME_BYTES) size = NAME_BYTES;
  size_t from = 0;
  if (size > sizeof modules && matches(rest, modules)) {
    tsr__buffer_text(out, "nn.");
    from = sizeof modules - 1;
  }
  for (size_t i = from; i < size; i++) {
    char byte = rest.data[i] == '/' || rest.data[i] == '\\' ? '.' : rest.data[i];
    tsr__buffer_append(out, &byte, 1);
  }
  return true;
}

static int read_frames(tsr__namer *n, tsr_error *error) {
  uint32_t count = tsr_snapshot_frame_count(n->snapshot);
  n->rank = tsr__frame_ranks(n->snapshot);
  n->origin = TSR__NEW_ARRAY(uint8_t, count);
  n->mark = TSR__NEW_ARRAY(uint8_t, count);
  if (!n->rank || !n->origin || !n->mark) return tsr__fail_memory(error);
  for (uint32_t i = 0; i < count; i++) {
    tsr_text name = name_of(n, i), file = file_of(n, i);
    uint64_t whole = hash_of(n, file) | 1;
    bool is_new;
    n->origin[i] = (uint8_t)tsr_frame_origin(name, file);
    n->mark[i] = (uint8_t)tsr__mark_of(name, file);
    if (n->origin[i] != TSR_ORIGIN_USER) continue;
    uint64_t *known = tsr__map_put(&n->files, hash_of(n, tsr_base_name(file)), whole, &is_new);
    if (!known) return tsr__fail_memory(error);
    if (!is_new && *known != whole) *known = SEVERAL;
  }
  return 0;
}

/* ---- Operations ---- */

/* Words by which PyTorch distinguishes overloads, at the end of an operator's name. */
static size_t without_overload(const char *name, size_t size) {
  static const char *const words[] = {
      "_dim",     "_dtype", "_dtype_layout", "_memory_format", "_out",
      "_int",     "_self",  "_generator",    "_start",         "_start_step",
      "_default", "_names", "_correction",   "_layout",        "_device"};
  for (size_t i = 1; i + 1 < size; i++)
    if (name[i] == '_' && name[i + 1] >= 'A' && name[i + 1] <= 'Z') size = i;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t length = strlen(words[i]);
    if (size > length && memcmp(name + size - length, words[i], length) == 0) {
      size -= length;
      i = (size_t)-1; /* another may precede it */
    }
  }
  return size;
}

static bool is_operator(tsr_text name) {
  return begins_with(name, "at::_ops::") || begins_with(name, "aten::");
}

/* `at::_ops::mul_Tensor::call(...)` is aten::mul, as torch.profiler has it. */
static void append_operator(tsr_text name, tsr__buffer *out) {
  assert(is_operator(name));
  if (begins_with(name, "aten::")) {
    append(out, name);
    return;
  }
  size_t from = strlen("at::_ops::"), end = from;
  while (end < name.size_bytes && name.data[end] != ':' && name.data[end] != '(') end++;
  tsr__buffer_text(out, "aten::");
  append(out, (tsr_text){name.data + from, without_overload(name.data + from, end - from)});
}

/* Does torch.compile allocate here itself, for the code that it generated? */
static bool is_compiler_buffer(const tsr__namer *n, uint32_t frame) {
  if (n->rank[frame] == TSR__RANK_COMPILED && is_python(n, frame)) {
    tsr_text file = file_of(n, frame);
    return tsr__file_is_generated(file) && file.data[0] != '<';
  }
  return begins_with(name_of(n, frame), "torch::dynamo::");
}

/* What the C++ frames inside of all Python frames show; generated Python does not count. */
typedef struct native {
  uint32_t op, kernel, python; /* frames; TSR_NONE */
  tsr_text node;
  bool is_compiled; /* torch.compile's own allocation */
} native;

static native read_native(const tsr__namer *n, tsr_stack stack) {
  native found = {.op = TSR_NONE, .kernel = TSR_NONE, .python = TSR_NONE};
  for (uint32_t i = 0; i < stack.depth; i++) {
    uint32_t frame = stack.frames[i];
    found.is_compiled |= found.op == TSR_NONE && is_compiler_buffer(n, frame);
    if (is_python(n, frame)) {
      if (n->rank[frame] >= TSR__RANK_COMPILED) continue;
      found.python = frame;
      break;
    }
    tsr_text name = name_of(n, frame);
    if (found.node.size_bytes || n->origin[frame] == TSR_ORIGIN_NOISE) continue;
    if (is_operator(name))
      found.op = frame;
    else if (!(found.node = tsr__node_of(name)).size_bytes && found.kernel == TSR_NONE &&
             n->rank[frame] == TSR__RANK_KERNEL)
      found.kernel = frame;
  }
  return found;
}

/* For a stack that names nothing: what it was doing. */
static void append_brackets(tsr__namer *n, uint32_t id, tsr__buffer *out) {
  tsr_stack stack = tsr_snapshot_stack(n->snapshot, id);
  bool has_python = false;
  if (!n->roles) {
    if (tsr__roles_compute(n->snapshot, &n->own_roles, NULL)) {
      out->failed = true;
      return;
    }
    n->roles = &n->own_roles;
  }
  for (uint32_t i = 0; i < stack.depth; i++) has_python |= is_python(n, stack.frames[i]);
  tsr_phase phase = (tsr_phase)tsr__role_of(n->roles, id).phase;
  if (phase != TSR_PHASE_UNKNOWN)
    tsr__buffer_printf(out, "(%s)", tsr_phase_name(phase));
  else
    tsr__buffer_text(out, has_python ? "(no line of the program)" : "(C++ alone)");
}

static void append_function(tsr__namer *n, uint32_t frame, tsr__buffer *out) {
  if (append_torch_module(n, frame, out)) {
    tsr__buffer_text(out, ".");
  } else {
    append_file(n, file_of(n, frame), out);
    tsr__buffer_text(out, " ");
  }
  append(out, name_of(n, frame));
}

/* The operation as the C++ frames show it; false if they do not. */
static bool append_operation(const tsr__namer *n, const native *found, tsr__buffer *out) {
  if (found->op != TSR_NONE) {
    append_operator(name_of(n, found->op), out);
    if (found->node.size_bytes) tsr__buffer_text(out, " in ");
    append(out, found->node);
  } else if (found->node.size_bytes) {
    append(out, found->node);
  } else if (found->is_compiled) {
    tsr__buffer_text(out, "torch.compile buffer");
  } else {
    return false;
  }
  return true;
}

bool tsr__namer_append_op(const tsr__namer *namer, uint32_t stack, tsr__buffer *out) {
  native found = read_native(namer, tsr_snapshot_stack(namer->snapshot, stack));
  return append_operation(namer, &found, out);
}

static void name_op(tsr__namer *n, uint32_t id, tsr_stack stack, tsr__buffer *out) {
  native found = read_native(n, stack);
  if (append_operation(n, &found, out)) return;
  if (found.kernel != TSR_NONE)
    append(out, tsr__function_of(name_of(n, found.kernel)));
  else if (found.python != TSR_NONE)
    append_function(n, found.python, out);
  else
    append_brackets(n, id, out);
}

/* ---- Modules ---- */

static bool is_generated(const tsr__namer *n, uint32_t frame) {
  return n->rank[frame] == TSR__RANK_COMPILED;
}

static bool is_text(tsr_text text, const char *expected) {
  return text.size_bytes == strlen(expected) && begins_with(text, expected);
}

/* Whether a frame calls modules for others, as nn.Sequential does: who calls it is more informative. */
static bool passes_on(const tsr__namer *n, uint32_t frame) {
  static const struct {
    const char *file, *function;
  } rows[] = {{"torch/nn/modules/container.py", "forward"},
              {"transformers/modeling_layers.py", "__call__"}};
  tsr_text file = file_of(n, frame);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    size_t size = strlen(rows[i].file);
    if (file.size_bytes < size || !is_text(name_of(n, frame), rows[i].function)) continue;
    if (matches((tsr_text){file.data + file.size_bytes - size, size}, rows[i].file)) return true;
  }
  return false;
}

/* The nearest Python frame from `i` on, outwards, that is neither of a module's call nor a wrapper around one; or depth. */
static uint32_t next_python(const tsr__namer *n, tsr_stack stack, uint32_t i) {
  while (i < stack.depth &&
         (!is_python(n, stack.frames[i]) || n->mark[stack.frames[i]] == TSR__MARK_CALL ||
          is_generated(n, stack.frames[i]) || passes_on(n, stack.frames[i])))
    i++;
  return i;
}

/* The innermost call of a module whose code a person wrote; or depth. `callee` becomes the frame that it
 * calls, or TSR_NONE: forward, within decorators if it has some. */
static uint32_t find_call(const tsr__namer *n, tsr_stack stack, uint32_t *callee) {
  uint32_t forward = TSR_NONE;
  *callee = TSR_NONE;
  for (uint32_t i = 0; i < stack.depth; i++) {
    uint32_t frame = stack.frames[i];
    if (n->mark[frame] != TSR__MARK_CALL) {
      if (!is_python(n, frame)) continue;
      *callee = frame;
      if (is_text(name_of(n, frame), "forward")) forward = frame;
    } else if (*callee == TSR_NONE || !is_generated(n, *callee)) {
      if (forward != TSR_NONE) *callee = forward;
      return i;
    } else {
      *callee = forward = TSR_NONE;
      while (i + 1 < stack.depth && n->mark[stack.frames[i + 1]] == TSR__MARK_CALL) i++;
    }
  }
  return stack.depth;
}

static void name_module(tsr__namer *n, uint32_t id, tsr_stack stack, tsr__buffer *out) {
  uint32_t callee, call = find_call(n, stack, &callee);
  if (call == stack.depth || callee == TSR_NONE) {
    if (call < stack.depth || next_python(n, stack, 0) < stack.depth)
      tsr__buffer_text(out, "(outside modules)");
    else
      append_brackets(n, id, out);
    return;
  }
  assert(!is_generated(n, callee));
  uint32_t caller = next_python(n, stack, call);
  bool is_same_file = caller < stack.depth && n->origin[callee] == TSR_ORIGIN_USER &&
                      tsr_snapshot_frame(n->snapshot, callee).file ==
                          tsr_snapshot_frame(n->snapshot, stack.frames[caller]).file;
  size_t from = out->size;
  if (is_same_file)
    append(out, name_of(n, callee));
  else
    append_function(n, callee, out);
  if (out->size > from + 8 && !memcmp(out->data + out->size - 8, ".forward", 8))
    out->size -= 8; /* a module's name is enough */
  if (caller == stack.depth) return;
  tsr__buffer_text(out, " at ");
  append_place(n, stack.frames[caller], out);
}

/* ---- Lines ---- */

static void append_line(tsr__namer *n, uint32_t frame, tsr__buffer *out) {
  append_place(n, frame, out);
  tsr__buffer_text(out, " ");
  append(out, name_of(n, frame));
}

/* The place of a stack (places.h). */
static void name_line(tsr__namer *n, uint32_t id, tsr_stack stack, tsr__buffer *out) {
  tsr__place place = tsr__place_in(stack, n->rank);
  assert(place.frame != TSR_NONE);
  tsr_text name = name_of(n, place.frame);
  switch ((tsr__frame_rank)n->rank[place.frame]) {
  case TSR__RANK_NODE:
    append(out, tsr__node_of(name));
    tsr__buffer_text(out, " (autograd)");
    break;
  case TSR__RANK_OPERATOR: append_operator(name, out); break;
  case TSR__RANK_KERNEL: append(out, tsr__function_of(name)); break;
  case TSR__RANK_COMPILED:
  case TSR__RANK_NOTHING: append_brackets(n, id, out); break;
  default:
    append_line(n, place.frame, out);
    if (place.layer == TSR_NONE) return;
    tsr__buffer_text(out, " > ");
    append_line(n, place.layer, out);
  }
}

/* The line, and in brackets the operation that it called, if the line does not name it already. */
static void name_stack(tsr__namer *n, uint32_t id, tsr_stack stack, tsr__buffer *out) {
  tsr__frame_rank rank = (tsr__frame_rank)n->rank[tsr__place_in(stack, n->rank).frame];
  native found = read_native(n, stack);
  if (rank == TSR__RANK_NODE && found.op != TSR_NONE) {
    append_operation(n, &found, out);
    return;
  }
  name_line(n, id, stack, out);
  if (rank >= TSR__RANK_NODE && rank <= TSR__RANK_KERNEL) return;
  size_t from = out->size;
  tsr__buffer_text(out, " (");
  if (append_operation(n, &found, out))
    tsr__buffer_text(out, ")");
  else
    out->size = from;
}

/* ---- One stack ---- */

int tsr__namer_init(tsr__namer *namer, const tsr_snapshot *snapshot, const tsr__roles *roles,
                    tsr_error *error) {
  *namer = (tsr__namer){.snapshot = snapshot, .roles = roles};
  namer->seed = tsr__hash_seed(namer);
  int status = read_frames(namer, error);
  if (status) tsr__namer_release(namer);
  return status;
}

void tsr__namer_release(tsr__namer *namer) {
  tsr__free(namer->origin);
  tsr__free(namer->mark);
  tsr__free(namer->rank);
  tsr__map_release(&namer->files);
  tsr__roles_release(&namer->own_roles);
  *namer = (tsr__namer){0};
}

void tsr__namer_append(tsr__namer *namer, tsr__label_kind kind, uint32_t id, tsr__buffer *out) {
  tsr_stack stack = tsr_snapshot_stack(namer->snapshot, id);
  if (!stack.depth) {
    tsr__buffer_text(out, "(no stack recorded)");
    return;
  }
  switch (kind) {
  case TSR__LABEL_OP: name_op(namer, id, stack, out); break;
  case TSR__LABEL_MODULE: name_module(namer, id, stack, out); break;
  case TSR__LABEL_LINE: name_line(namer, id, stack, out); break;
  case TSR__LABEL_STACK: name_stack(namer, id, stack, out); break;
  }
}

void tsr__namer_append_frame(tsr__namer *namer, uint32_t frame, tsr__buffer *out) {
  tsr_text name = name_of(namer, frame);
  switch ((tsr__frame_rank)namer->rank[frame]) {
  case TSR__RANK_NODE: append(out, tsr__node_of(name)); break;
  case TSR__RANK_OPERATOR: append_operator(name, out); break;
  case TSR__RANK_KERNEL: append(out, tsr__function_of(name)); break;
  default: append_place(namer, frame, out);
  }
}

/* ---- All stacks ---- */

static int name_all(tsr__namer *namer, tsr__label_kind kind, tsr__labels *labels,
                    tsr_error *error) {
  tsr__buffer text = {0};
  bool ok = true;
  for (uint32_t i = 0; ok && i <= labels->count; i++) {
    text.size = 0;
    tsr__namer_append(namer, kind, i, &text);
    labels->of_stack[i] = tsr__intern_put(&labels->names, text.data, text.size, NULL);
    ok = !text.failed && labels->of_stack[i] != TSR__INTERN_FULL;
  }
  tsr__buffer_release(&text);
  return ok ? 0 : tsr__fail_memory(error);
}

/* Every stack as if all were rows of one table. */
static int name_rows(tsr__namer *namer, tsr__labels *labels, tsr_error *error) {
  tsr__row_names names = {0};
  tsr__named_row *rows = TSR__NEW_ARRAY(tsr__named_row, (size_t)labels->count + 1);
  for (uint32_t i = 0; rows && i <= labels->count; i++) rows[i] = (tsr__named_row){namer, i};
  int status = rows ? tsr__row_names_compute(rows, (size_t)labels->count + 1, &names, error)
                    : tsr__fail_memory(error);
  tsr__free(rows);
  if (status) return status;
  assert(names.names.count <= labels->count + (size_t)1);
  labels->names = names.names;
  labels->of_stack = names.of_row;
  return 0;
}

int tsr__labels_compute(const tsr_snapshot *snapshot, const tsr__roles *roles, tsr__label_kind kind,
                        tsr__labels *out, tsr_error *error) {
  tsr__namer namer = {0};
  tsr__labels labels = {.count = tsr_snapshot_stack_count(snapshot)};
  tsr__intern_init(&labels.names);
  int status = tsr__namer_init(&namer, snapshot, roles, error);
  if (!status && kind == TSR__LABEL_STACK) {
    status = name_rows(&namer, &labels, error);
  } else if (!status) {
    labels.of_stack = TSR__NEW_ARRAY(uint32_t, (size_t)labels.count + 1);
    status = labels.of_stack ? name_all(&namer, kind, &labels, error) : tsr__fail_memory(error);
  }
  tsr__namer_release(&namer);
  if (status)
    tsr__labels_release(&labels);
  else
    *out = labels;
  return status;
}

void tsr__labels_release(tsr__labels *labels) {
  tsr__intern_release(&labels->names);
  tsr__free(labels->of_stack);
  *labels = (tsr__labels){0};
}
