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

#include <inttypes.h>
#include <string.h>

#include "attribution/places.h"
#include "base/buffer.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/memory.h"
#include "tessera/unstable/frames.h"

enum { NAME_BYTES = 120 };

typedef struct namer {
  const tsr_snapshot *snapshot;
  const tsr__roles *roles;
  uint8_t *origin, *mark; /* by frame id */
  tsr__places places;     /* of lines and stacks */
  tsr__map
      files; /* hash of a base name -> string id of the file, TSR_NONE if several files have it */
  tsr__buffer text;
} namer;

/* ---- Frames ---- */

static tsr_text name_of(const namer *n, uint32_t frame) {
  return tsr_snapshot_string(n->snapshot, tsr_snapshot_frame(n->snapshot, frame).name);
}

static tsr_text file_of(const namer *n, uint32_t frame) {
  return tsr_snapshot_string(n->snapshot, tsr_snapshot_frame(n->snapshot, frame).file);
}

static bool is_python(const namer *n, uint32_t frame) {
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

static void append(namer *n, tsr_text text) {
  tsr__buffer_append(&n->text, text.data,
                     text.size_bytes < NAME_BYTES ? text.size_bytes : NAME_BYTES);
}

static uint64_t hash_of_base(const namer *n, tsr_text file) {
  tsr_text base = tsr_base_name(file);
  return tsr__hash_bytes(base.data, base.size_bytes, tsr__hash_seed(n));
}

/* The base name, with its folder if several of the program's own files have it. */
static void append_file(namer *n, tsr_text file) {
  const uint64_t *known = tsr__map_find(&n->files, hash_of_base(n, file));
  tsr_text base = tsr_base_name(file);
  size_t at = file.size_bytes - base.size_bytes;
  if (known && *known == TSR_NONE && at > 1)
    for (at--; at && file.data[at - 1] != '/' && file.data[at - 1] != '\\';) at--;
  append(n, (tsr_text){file.data + at, file.size_bytes - at});
}

static void append_place(namer *n, uint32_t frame) {
  uint64_t line = tsr_snapshot_frame(n->snapshot, frame).line;
  append_file(n, file_of(n, frame));
  if (line && line != TSR_LINE_UNKNOWN) tsr__buffer_printf(&n->text, ":%" PRIu64, line);
}

/* "torch.nn.functional" of ".../torch/nn/functional.py", "nn.linear" of ".../torch/nn/modules/linear.py";
 * false for another's file. */
static bool append_torch_module(namer *n, uint32_t frame) {
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
    tsr__buffer_text(&n->text, "nn.");
    from = sizeof modules - 1;
  }
  for (size_t i = from; i < size; i++) {
    char byte = rest.data[i] == '/' || rest.data[i] == '\\' ? '.' : rest.data[i];
    tsr__buffer_append(&n->text, &byte, 1);
  }
  return true;
}

static int read_frames(namer *n, tsr_error *error) {
  uint32_t count = tsr_snapshot_frame_count(n->snapshot);
  n->origin = TSR__NEW_ARRAY(uint8_t, count);
  n->mark = TSR__NEW_ARRAY(uint8_t, count);
  if (!n->origin || !n->mark) return tsr__fail_memory(error);
  for (uint32_t i = 0; i < count; i++) {
    tsr_text name = name_of(n, i), file = file_of(n, i);
    uint32_t string = tsr_snapshot_frame(n->snapshot, i).file;
    bool is_new;
    n->origin[i] = (uint8_t)tsr_frame_origin(name, file);
    n->mark[i] = (uint8_t)tsr__mark_of(name, file);
    if (n->origin[i] != TSR_ORIGIN_USER) continue;
    uint64_t *known = tsr__map_put(&n->files, hash_of_base(n, file), string, &is_new);
    if (!known) return tsr__fail_memory(error);
    if (!is_new && *known != string) *known = TSR_NONE;
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

/* `at::_ops::mul_Tensor::call(...)` is aten::mul, as torch.profiler has it. */
static void append_operator(namer *n, tsr_text name) {
  size_t from = strlen("at::_ops::"), end = from;
  while (end < name.size_bytes && name.data[end] != ':' && name.data[end] != '(') end++;
  tsr__buffer_text(&n->text, "aten::");
  append(n, (tsr_text){name.data + from, without_overload(name.data + from, end - from)});
}

/* `torch::autograd::generated::MulBackward0::apply(...)` runs the node MulBackward0. Returns
 * empty text if the function is not a node. */
static tsr_text node_of(tsr_text name) {
  static const char *const rooms[] = {"torch::autograd::generated::", "torch::autograd::"};
  if (find(name, "::apply") == SIZE_MAX) return (tsr_text){0};
  for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
    if (!begins_with(name, rooms[i])) continue;
    size_t from = strlen(rooms[i]), end = from;
    while (end < name.size_bytes && name.data[end] != ':') end++;
    return (tsr_text){name.data + from, end - from};
  }
  return (tsr_text){0};
}

/* C++ functions between an operation and the allocator. */
static bool is_plumbing(tsr_text name) {
  static const char *const parts[] = {
      "c10::", "at::detail::", "at::empty", "at::native::empty",           "torch::",
      "std::", "at::Tensor",   "THP",       "at::(anonymous namespace)::", "execute_native_thread"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (begins_with(name, parts[i])) return true;
  return false;
}

/* What the C++ frames inside of all Python frames show. */
typedef struct native {
  uint32_t op, kernel, python; /* frames; TSR_NONE */
  tsr_text node;
  bool is_compiled; /* torch.compile's own allocation */
} native;

static native read_native(const namer *n, tsr_stack stack) {
  native found = {.op = TSR_NONE, .kernel = TSR_NONE, .python = TSR_NONE};
  for (uint32_t i = 0; i < stack.depth; i++) {
    uint32_t frame = stack.frames[i];
    if (is_python(n, frame)) {
      found.python = frame;
      break;
    }
    tsr_text name = name_of(n, frame);
    if (found.node.size_bytes || n->origin[frame] == TSR_ORIGIN_NOISE) continue;
    if (begins_with(name, "at::_ops::"))
      found.op = frame;
    else if ((found.node = node_of(name)).size_bytes)
      continue;
    else if (begins_with(name, "torch::dynamo::"))
      found.is_compiled = true;
    else if (found.kernel == TSR_NONE && !is_plumbing(name))
      found.kernel = frame;
  }
  return found;
}

static void append_brackets(namer *n, uint32_t stack) {
  tsr_phase phase = (tsr_phase)tsr__role_of(n->roles, stack).phase;
  tsr__buffer_printf(&n->text, "(%s)",
                     phase == TSR_PHASE_UNKNOWN ? "C++ alone" : tsr_phase_name(phase));
}

static void append_function(namer *n, uint32_t frame) {
  if (append_torch_module(n, frame)) {
    tsr__buffer_text(&n->text, ".");
  } else {
    append_file(n, file_of(n, frame));
    tsr__buffer_text(&n->text, " ");
  }
  append(n, name_of(n, frame));
}

static void name_op(namer *n, uint32_t id, tsr_stack stack) {
  native found = read_native(n, stack);
  if (found.op != TSR_NONE) {
    append_operator(n, name_of(n, found.op));
    if (found.node.size_bytes) tsr__buffer_text(&n->text, " in ");
    append(n, found.node);
  } else if (found.node.size_bytes) {
    append(n, found.node);
  } else if (found.is_compiled) {
    tsr__buffer_text(&n->text, "torch.compile buffer");
  } else if (found.kernel != TSR_NONE) {
    tsr_text name = name_of(n, found.kernel);
    size_t end = find(name, "(");
    append(n, end == SIZE_MAX || !end ? name : (tsr_text){name.data, end});
  } else if (found.python != TSR_NONE) {
    append_function(n, found.python);
  } else {
    append_brackets(n, id);
  }
}

/* ---- Modules and lines ---- */

/* The nearest Python frame from `i` on, outwards, that does not itself call modules; or depth. */
static uint32_t next_python(const namer *n, tsr_stack stack, uint32_t i) {
  while (i < stack.depth &&
         (!is_python(n, stack.frames[i]) || n->mark[stack.frames[i]] == TSR__MARK_CALL))
    i++;
  return i;
}

static void name_module(namer *n, uint32_t id, tsr_stack stack) {
  uint32_t callee = TSR_NONE, call = 0;
  for (; call < stack.depth && n->mark[stack.frames[call]] != TSR__MARK_CALL; call++)
    if (is_python(n, stack.frames[call])) callee = stack.frames[call];
  if (call == stack.depth || callee == TSR_NONE) {
    if (call < stack.depth || next_python(n, stack, 0) < stack.depth)
      tsr__buffer_text(&n->text, "(outside modules)");
    else
      append_brackets(n, id);
    return;
  }
  uint32_t caller = next_python(n, stack, call);
  bool is_same_file = caller < stack.depth && n->origin[callee] == TSR_ORIGIN_USER &&
                      tsr_snapshot_frame(n->snapshot, callee).file ==
                          tsr_snapshot_frame(n->snapshot, stack.frames[caller]).file;
  size_t from = n->text.size;
  if (is_same_file)
    append(n, name_of(n, callee));
  else
    append_function(n, callee);
  if (n->text.size > from + 8 && !memcmp(n->text.data + n->text.size - 8, ".forward", 8))
    n->text.size -= 8; /* a module's name is enough */
  if (caller == stack.depth) return;
  tsr__buffer_text(&n->text, " at ");
  append_place(n, stack.frames[caller]);
}

/* The place of a stack (places.h). C++ functions that are not autograd nodes are not informative. */
static void name_line(namer *n, uint32_t id) {
  const tsr__place *place = &n->places.items.items[tsr__place_of(&n->places, id)];
  bool is_node = false;
  tsr_text title = {0};
  if (place->frame != TSR_NONE) title = tsr_frame_title(name_of(n, place->frame), &is_node);
  if (place->frame == TSR_NONE || (!is_node && !is_python(n, place->frame))) {
    append_brackets(n, id);
    return;
  }
  if (is_node) {
    append(n, title);
    tsr__buffer_text(&n->text, " (autograd)");
    return;
  }
  append_place(n, place->frame);
  tsr__buffer_text(&n->text, " ");
  append(n, name_of(n, place->frame));
  if (place->layer == TSR_NONE) return;
  tsr__buffer_text(&n->text, " > ");
  append_place(n, place->layer);
  tsr__buffer_text(&n->text, " ");
  append(n, name_of(n, place->layer));
}

/* ---- All stacks ---- */

static void name_stack(namer *n, tsr__label_kind kind, uint32_t id) {
  tsr_stack stack = tsr_snapshot_stack(n->snapshot, id);
  n->text.size = 0;
  if (!stack.depth) {
    tsr__buffer_text(&n->text, "(no stack recorded)");
    return;
  }
  switch (kind) {
  case TSR__LABEL_OP: name_op(n, id, stack); break;
  case TSR__LABEL_MODULE: name_module(n, id, stack); break;
  case TSR__LABEL_LINE: name_line(n, id); break;
  case TSR__LABEL_STACK:
    name_line(n, id);
    tsr__buffer_printf(&n->text, " #%" PRIu32, id);
    break;
  }
}

int tsr__labels_compute(const tsr_snapshot *snapshot, const tsr__roles *roles, tsr__label_kind kind,
                        tsr__labels *out, tsr_error *error) {
  namer n = {.snapshot = snapshot, .roles = roles};
  tsr__labels labels = {.count = tsr_snapshot_stack_count(snapshot)};
  tsr__intern_init(&labels.names);
  labels.of_stack = TSR__NEW_ARRAY(uint32_t, (size_t)labels.count + 1);
  int status = labels.of_stack ? read_frames(&n, error) : tsr__fail_memory(error);
  if (!status && (kind == TSR__LABEL_LINE || kind == TSR__LABEL_STACK))
    status = tsr__places_compute(snapshot, &n.places, error);
  for (uint32_t i = 0; !status && i <= labels.count; i++) {
    name_stack(&n, kind, i);
    labels.of_stack[i] = tsr__intern_put(&labels.names, n.text.data, n.text.size, NULL);
    if (n.text.failed || labels.of_stack[i] == TSR__INTERN_FULL) status = tsr__fail_memory(error);
  }
  tsr__free(n.origin);
  tsr__free(n.mark);
  tsr__places_release(&n.places);
  tsr__map_release(&n.files);
  tsr__buffer_release(&n.text);
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
