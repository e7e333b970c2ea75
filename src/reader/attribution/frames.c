/* frames.c - distinguishes the program's own frames from those of libraries.
 *
 * A stack that PyTorch records has some sixty frames; only a few are the user's own. A
 * frame is judged by its function's name and its file's name, in this order:
 *
 *   noise     the unwinder, the process's start, the interpreter's loop (the names and files
 *             that PyTorch's own tools drop), the rest of the interpreter, and frames about which
 *             nothing is known
 *   native    file "??", a C or C++ source, an object file or shared library (without debug information the
 *             unwinder names the library and a byte offset)
 *   torch     .../site-packages/torch/, a torch source tree, generated "<eval_with_key>.3", and
 *             what torch.compile and Triton write into their caches
 *   library   anything else below site-packages or dist-packages
 *   python    below lib/python3.*, "<frozen ...>", "<string>", the interpreter itself
 *   user      what remains
 *
 * PyTorch's tools match `_start` anywhere in a name, which also drops a user's `on_train_start`;
 * here such names must match completely, and Python sources are never noise. Backslashes count
 * as slashes, because snapshots also come from Windows.
 *
 * It does not look at the file system: the stack may be from another machine.
 */
#include "tessera/unstable/frames.h"

#include <assert.h>
#include <string.h>

#include "attribution/frames.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static bool matches_at(tsr_text text, size_t at, const char *part, size_t part_size) {
  if (at > text.size_bytes || part_size > text.size_bytes - at) return false;
  for (size_t i = 0; i < part_size; i++) {
    char byte = text.data[at + i] == '\\' ? '/' : text.data[at + i];
    if (byte != part[i]) return false;
  }
  return true;
}

static bool equals(tsr_text text, const char *whole) {
  size_t size = strlen(whole);
  return text.size_bytes == size && matches_at(text, 0, whole, size);
}

static bool begins_with(tsr_text text, const char *part) {
  return matches_at(text, 0, part, strlen(part));
}

static bool ends_with(tsr_text text, const char *part) {
  size_t size = strlen(part);
  return size <= text.size_bytes && matches_at(text, text.size_bytes - size, part, size);
}

/* Byte position after the last occurrence of `part`, 0 if absent. */
static size_t after_part(tsr_text text, const char *part) {
  size_t size = strlen(part);
  for (size_t end = text.size_bytes; end >= size; end--)
    if (text.data[end - 1] == part[size - 1] || part[size - 1] == '/')
      if (matches_at(text, end - size, part, size)) return end;
  return 0;
}

static bool contains(tsr_text text, const char *part) {
  return after_part(text, part) != 0;
}

static bool contains_any(tsr_text text, const char *const *parts, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (contains(text, parts[i])) return true;
  return false;
}

tsr_text tsr_base_name(tsr_text path) {
  size_t at = path.size_bytes;
  if (!at || path.data[0] == '<') return path;
  while (at && path.data[at - 1] != '/' && path.data[at - 1] != '\\') at--;
  return (tsr_text){path.data + at, path.size_bytes - at};
}

static bool is_identifier(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || byte == '_';
}

static bool is_upper(char byte) {
  return byte >= 'A' && byte <= 'Z';
}

/* A function of the interpreter, as its C sources name them: PyNumber_Add, _PyEval_Vector, Py_BytesMain.
 * A library without symbols of its own takes the nearest of these, so any of them may occur. */
static bool is_interpreter_name(tsr_text name) {
  size_t at = name.size_bytes && name.data[0] == '_';
  if (name.size_bytes < at + 3 || !matches_at(name, at, "Py", 2)) return false;
  if (name.data[at + 2] != '_' && !is_upper(name.data[at + 2])) return false;
  bool has_underscore = false;
  for (size_t i = at + 2; i < name.size_bytes; i++) {
    if (!is_identifier(name.data[i])) return false;
    has_underscore |= name.data[i] == '_';
  }
  return has_underscore;
}

static bool is_noise_name(tsr_text name) {
  static const char *const parts[] = {"unwind::unwind",  "CapturedTraceback::gather",
                                      "gather_with_cpp", "__libc_start",
                                      "PyEval_",         "PyObject_",
                                      "PyFunction_"};
  static const char *const wholes[] = {
      "", "??", "_start", "clone", "__clone", "__clone3", "start_thread", "<unwind unsupported>"};
  for (size_t i = 0; i < COUNT_OF(wholes); i++)
    if (equals(name, wholes[i])) return true;
  return is_interpreter_name(name) || contains_any(name, parts, COUNT_OF(parts));
}

static bool is_native_file(tsr_text file) {
  static const char *const endings[] = {".c",   ".cc", ".cpp", ".cxx",   ".cu",
                                        ".cuh", ".h",  ".hpp", ".inl",   ".inc",
                                        ".so",  ".a",  ".o",   ".dylib", ".dll"};
  if (!file.size_bytes || equals(file, "??")) return true;
  for (size_t i = 0; i < COUNT_OF(endings); i++)
    if (ends_with(file, endings[i])) return true;
  return contains(file, ".so.");
}

/* Native code that only forwards a call from one layer to the next. */
static bool is_noise_file(tsr_text file) {
  static const char *const parts[] = {"core/boxing",
                                      "/Register",
                                      "/Redispatch",
                                      "pythonrun.c",
                                      "Modules/main.c",
                                      "Objects/call.c",
                                      "ceval.c",
                                      "pycore_ceval.h",
                                      "cpython/abstract.h",
                                      "Objects/methodobject.c"};
  static const char *const folders[] = {"/Objects/", "/Python/"};
  if (contains_any(file, parts, COUNT_OF(parts))) return true;
  if (ends_with(file, ".c")) return contains_any(file, folders, COUNT_OF(folders));
  return ends_with(file, ".h") && contains(file, "Include/internal/pycore_");
}

/* ---- Generated code ---- */

/* A file of torch.compile's cache by its name alone, wherever the cache is: "hw/chwq7u...b.py", 52
 * characters of a hash in base 32, below a folder named after two of them. */
static bool is_inductor_name(tsr_text file) {
  enum { HASH = 52, NAME = HASH + 3 };
  tsr_text base = tsr_base_name(file);
  if (base.size_bytes != NAME || base.data[0] != 'c' || !ends_with(base, ".py")) return false;
  for (size_t i = 0; i < HASH; i++) {
    char byte = base.data[i];
    if (!((byte >= 'a' && byte <= 'z') || (byte >= '2' && byte <= '7'))) return false;
  }
  return true;
}

bool tsr__file_is_generated(tsr_text file) {
  static const char *const caches[] = {"/torchinductor_",  "/torch_compile_cache/",
                                       "/inductor_cache/", "/.triton/",
                                       "/triton_cache/",   "/triton/cache/"};
  static const char *const names[] = {"<eval_with_key>",     "<string>",         "<frozen",
                                      "<__array_function__", "<attrs generated", "<lambdify",
                                      "<decorator-gen",      "<makefun-gen"};
  for (size_t i = 0; file.size_bytes && file.data[0] == '<' && i < COUNT_OF(names); i++)
    if (begins_with(file, names[i])) return true;
  return contains_any(file, caches, COUNT_OF(caches)) || is_inductor_name(file);
}

/* Byte position of the package's name in the file of an installed package, otherwise 0. */
static size_t package_at(tsr_text file) {
  size_t at = after_part(file, "site-packages/");
  return at ? at : after_part(file, "dist-packages/");
}

static tsr_text package_of(tsr_text file) {
  size_t at = package_at(file), end = at;
  while (end < file.size_bytes && !strchr("/\\.", file.data[end])) end++;
  return (tsr_text){file.data + at, end - at};
}

/* Packages that come with torch. torchvision and similar packages define layers, and count as libraries. */
static bool is_torch_package(tsr_text file) {
  tsr_text package = package_of(file);
  return equals(package, "torch") || equals(package, "functorch") || equals(package, "triton");
}

/* A directory named torch may be the user's own, but not one that contains torch's packages. */
static bool is_torch_source(tsr_text file) {
  static const char *const parts[] = {"torch/nn/",    "torch/optim/",       "torch/autograd/",
                                      "torch/utils/", "torch/cuda/",        "torch/amp/",
                                      "torch/csrc/",  "torch/distributed/", "torch/fx/",
                                      "torch/_",      "torch/functional.py"};
  for (size_t i = 0; i < COUNT_OF(parts); i++) {
    size_t end = after_part(file, parts[i]), size = strlen(parts[i]);
    if (end == size || (end && strchr("/\\", file.data[end - size - 1]))) return true;
  }
  return begins_with(file, "<eval_with_key>");
}

static bool is_python_file(tsr_text file) {
  return contains(file, "lib/python3.") || begins_with(file, "<frozen") ||
         equals(file, "<string>") ||
         (begins_with(tsr_base_name(file), "python") && !ends_with(file, ".py"));
}

tsr_origin tsr_frame_origin(tsr_text name, tsr_text file) {
  bool is_python_source = ends_with(file, ".py");
  if (!is_python_source && (is_noise_name(name) || is_noise_file(file))) return TSR_ORIGIN_NOISE;
  if (is_native_file(file)) return TSR_ORIGIN_NATIVE;
  if (package_at(file)) return is_torch_package(file) ? TSR_ORIGIN_TORCH : TSR_ORIGIN_LIBRARY;
  if (is_torch_source(file)) return TSR_ORIGIN_TORCH;
  if (is_python_file(file)) return TSR_ORIGIN_PYTHON;
  return tsr__file_is_generated(file) ? TSR_ORIGIN_TORCH : TSR_ORIGIN_USER;
}

static tsr_text text_of(const char *name) {
  return (tsr_text){name, strlen(name)};
}

/* Where the arguments of a function begin: not at the parenthesis of "(anonymous namespace)::" or of
 * "operator()". Text inside template arguments does not count. */
static size_t arguments_at(tsr_text name) {
  static const char unnamed[] = "(anonymous namespace)";
  size_t depth = 0;
  for (size_t i = 0; i < name.size_bytes; i++) {
    char byte = name.data[i];
    if (byte == '<') depth++;
    if (byte == '>' && depth) depth--;
    if (byte != '(' || depth) continue;
    if (matches_at(name, i, unnamed, sizeof unnamed - 1))
      i += sizeof unnamed - 2;
    else if (i)
      return i;
  }
  return name.size_bytes;
}

/* The last identifier before byte `end`: MyScale of "torch::autograd::CppNode<(anonymous
 * namespace)::MyScale>". */
static tsr_text identifier_before(tsr_text name, size_t end) {
  while (end && !is_identifier(name.data[end - 1])) end--;
  size_t begin = end;
  while (begin && is_identifier(name.data[begin - 1])) begin--;
  return (tsr_text){name.data + begin, end - begin};
}

/* The linker folds functions with equal code into one, under the name of any of them: what calls itself
 * SubBackward0_apply_functional may run for AddBackward0. A virtual function X::apply contains the type
 * and is never shared. */
tsr_text tsr__node_of(tsr_text name) {
  static const char apply[] = "::apply";
  tsr_text function = {name.data, arguments_at(name)};
  if (!ends_with(function, apply)) return (tsr_text){0};
  tsr_text node = identifier_before(function, function.size_bytes - (sizeof apply - 1));
  bool is_node = begins_with(function, "torch::autograd::") || contains(node, "Backward");
  return is_node ? node : (tsr_text){0};
}

tsr_text tsr_frame_title(tsr_text name, bool *is_node) {
  tsr_text node = tsr__node_of(name);
  if (is_node) *is_node = node.size_bytes != 0;
  if (node.size_bytes) return node;
  if (!contains(name, "::")) return name;
  for (size_t i = 1; i < name.size_bytes; i++)
    if (name.data[i] == '(' && is_identifier(name.data[i - 1])) return (tsr_text){name.data, i};
  return name;
}

/* Without a path, PyTorch's and Python's C and C++ functions are recognized by their names. */
static const char *native_package(tsr_text name, tsr_text file) {
  static const char *const torch[] = {"at::", "c10::", "torch::", "THP", "CapturedTraceback"};
  static const char *const python[] = {"PyEval", "PyObject", "PyFunction", "PyRun", "Py_", "_Py"};
  if (contains_any(name, torch, COUNT_OF(torch)) || contains(file, "torch")) return "torch";
  if (contains_any(name, python, COUNT_OF(python)) || contains(file, "ython")) return "python";
  return "C++";
}

tsr_text tsr_frame_package(tsr_origin origin, tsr_text name, tsr_text file) {
  tsr_text package = package_at(file) ? package_of(file) : (tsr_text){0};
  if (package.size_bytes) return package;
  switch (origin) {
  case TSR_ORIGIN_TORCH: return text_of("torch");
  case TSR_ORIGIN_PYTHON: return text_of("python");
  case TSR_ORIGIN_NATIVE:
  case TSR_ORIGIN_NOISE: return text_of(native_package(name, file));
  default: return text_of("program");
  }
}

/* ---- Which frame names a stack ---- */

tsr_text tsr__function_of(tsr_text name) {
  static const char unnamed[] = "(anonymous namespace)";
  size_t end = arguments_at(name), begin = 0, depth = 0;
  for (size_t i = 0; i < end; i++) {
    if (matches_at(name, i, unnamed, sizeof unnamed - 1)) i += sizeof unnamed - 1;
    if (i >= end) break;
    if (name.data[i] == '<') depth++;
    if (name.data[i] == '>' && depth) depth--;
    if (name.data[i] == ' ' && !depth) begin = i + 1;
  }
  for (size_t i = begin; i < end; i++)
    if (name.data[i] == '<' && i > begin) end = i;
  assert(begin <= name.size_bytes && end <= name.size_bytes);
  return begin < end ? (tsr_text){name.data + begin, end - begin} : name;
}

/* C++ between an operation and the allocator, and between Python and the operation. */
static bool is_plumbing(tsr_text name) {
  static const char *const parts[] = {"c10::",
                                      "at::detail::",
                                      "at::empty",
                                      "at::native::empty",
                                      "at::(anonymous namespace)::",
                                      "at::Tensor",
                                      "torch::",
                                      "std::",
                                      "pybind11::",
                                      "(anonymous namespace)::THP",
                                      "THP",
                                      "dynamo_",
                                      "<built-in ", /* a profiler's names, formats/kineto.h */
                                      "nn.Module: ",
                                      "cudaMalloc",
                                      "cuMem",
                                      "execute_native_thread",
                                      "__libc_",
                                      "_dl_",
                                      "__pthread",
                                      "ffi_call",
                                      "cfunction_",
                                      "slot_tp_",
                                      "type_call",
                                      "vectorcall_",
                                      "method_vectorcall",
                                      "builtin_exec"};
  tsr_text function = tsr__function_of(name);
  for (size_t i = 0; i < COUNT_OF(parts); i++)
    if (begins_with(function, parts[i])) return true;
  return contains(name, ".so");
}

static tsr__frame_rank rank_of_native(tsr_text name) {
  if (tsr__node_of(name).size_bytes) return TSR__RANK_NODE;
  if (begins_with(name, "at::_ops::") || begins_with(name, "aten::")) return TSR__RANK_OPERATOR;
  if (begins_with(name, "process ")) return TSR__RANK_NOTHING; /* formats/nsight.c */
  return is_plumbing(name) ? TSR__RANK_NOTHING : TSR__RANK_KERNEL;
}

/* torch's compiler, which runs what it generated. */
static bool is_compiler_file(tsr_text file) {
  static const char *const parts[] = {"torch/_inductor/", "torch/_dynamo/", "torch/_functorch/"};
  return contains_any(file, parts, COUNT_OF(parts));
}

/* What starts a program, a thread or a process. A program may be a string: `python -c`. */
static bool is_start_file(tsr_text file) {
  static const char *const names[] = {"/runpy.py", "/threading.py", "/multiprocessing/spawn.py",
                                      "/multiprocessing/process.py",
                                      "/multiprocessing/popen_fork.py"};
  for (size_t i = 0; i < COUNT_OF(names); i++)
    if (ends_with(file, names[i])) return true;
  return !ends_with(file, ".py") && !equals(file, "<string>");
}

tsr__frame_rank tsr__frame_rank_of(tsr_text name, tsr_text file) {
  tsr_origin origin = tsr_frame_origin(name, file);
  switch (origin) {
  case TSR_ORIGIN_NATIVE: return rank_of_native(name);
  case TSR_ORIGIN_USER: return TSR__RANK_USER;
  case TSR_ORIGIN_LIBRARY: return TSR__RANK_LIBRARY;
  case TSR_ORIGIN_TORCH:
    return is_compiler_file(file) || tsr__file_is_generated(file) ? TSR__RANK_COMPILED
                                                                  : TSR__RANK_TORCH;
  case TSR_ORIGIN_PYTHON: return is_start_file(file) ? TSR__RANK_NOTHING : TSR__RANK_PYTHON;
  default: return TSR__RANK_NOTHING;
  }
}
