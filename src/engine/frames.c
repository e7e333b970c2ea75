/* frames.c - stacks that read like PyTorch's.
 *
 * The tape keeps the frames of the program's functions, outermost first. A stack is those, with the
 * frames of native code on top that lead to the allocator, turned round: PyTorch writes the
 * innermost first.
 *
 *   <module>, train, _wrapped_call_impl, _call_impl, forward   the program
 *   at::_ops::mul_Tensor::call                                 dispatch of the op
 *   VariableType, wrapper_CUDA_mul_Tensor                      its autograd and CUDA kernels
 *   at::detail::empty_cuda, DeviceCachingAllocator::malloc     its memory
 *
 * A frame at another line of its function is another frame. File names and lines of Python code are
 * those of PyTorch 2.9 and transformers 4.57; native frames carry what a wheel without debug
 * information gives, the name of a source file or "??", and line 0. */
#include <stdio.h>
#include <string.h>

#include "engine/tape.h"

#define TORCH "/usr/local/lib/python3.12/dist-packages/torch/"

static uint32_t frame_id(tsr__tape *tape, const char *name, const char *file, uint64_t line) {
  tsr__frame_key key = {.frame = {.name = tsr__snapshot_string_id(tape->names, name, strlen(name)),
                                  .file = tsr__snapshot_string_id(tape->names, file, strlen(file)),
                                  .line = line},
                        .shape = TSR__KEY(NAME) | TSR__KEY(FILENAME) | TSR__KEY(LINE)};
  uint32_t id = key.frame.name == TSR_NONE || key.frame.file == TSR_NONE
                    ? TSR_NONE
                    : tsr__snapshot_frame_id(tape->names, &key);
  if (id == TSR_NONE) tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  return id;
}

void tsr__push_frame(tsr__tape *tape, const char *function, const char *file, uint64_t line) {
  if (tape->status) return;
  uint32_t id = frame_id(tape, function, file, line);
  if (!TSR__VECTOR_PUSH(&tape->frames, id)) tsr__tape_fail(tape, TSR_ERROR_MEMORY);
}

void tsr__pop_frames(tsr__tape *tape, size_t count) {
  tape->frames.count -= count < tape->frames.count ? count : tape->frames.count;
}

void tsr__enter(tsr__tape *tape, const char *function, const char *file) {
  tsr__scope scope = {tape->locals.count, (uint32_t)tape->frames.count};
  if (!TSR__VECTOR_PUSH(&tape->scopes, scope)) tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  tsr__push_frame(tape, function, file, 0);
}

void tsr__enter_module(tsr__tape *tape, const char *file) {
  tsr__scope scope = {tape->locals.count, (uint32_t)tape->frames.count};
  if (!TSR__VECTOR_PUSH(&tape->scopes, scope)) tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  tsr__push_frame(tape, "_wrapped_call_impl", TORCH "nn/modules/module.py", 1775);
  tsr__push_frame(tape, "_call_impl", TORCH "nn/modules/module.py", 1786);
  tsr__push_frame(tape, "forward", file, 0);
}

void tsr__line(tsr__tape *tape, uint64_t line) {
  if (tape->status || !tape->frames.count) return;
  uint32_t *top = &tape->frames.items[tape->frames.count - 1];
  tsr__frame_key key;
  memcpy(&key, tape->names->frames.items[*top].data, sizeof key);
  if (key.frame.line == line) return;
  key.frame.line = line;
  uint32_t id = tsr__snapshot_frame_id(tape->names, &key);
  if (id == TSR_NONE)
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  else
    *top = id;
}

static void push_native(tsr__tape *tape, const char *format, const char *what, const char *file) {
  char name[160];
  (void)snprintf(name, sizeof name, format, what);
  tsr__push_frame(tape, name, file, 0);
}

static void push_allocation(tsr__tape *tape, tsr__kernel kernel) {
  const tsr__kernel_row *row = tsr__kernel_row_of(kernel);
  const char *what = row->name;
  push_native(tape, "at::_ops::%s::call", what, "??");
  push_native(tape, "torch::autograd::VariableType::(anonymous namespace)::%s", what,
              row->autograd_file ? row->autograd_file : "??");
  push_native(tape, "at::(anonymous namespace)::wrapper_CUDA_%s", what, "RegisterCUDA_0.cpp");
  tsr__push_frame(tape,
                  "at::detail::empty_cuda(c10::ArrayRef<long>, c10::ScalarType, "
                  "std::optional<c10::Device>, std::optional<c10::MemoryFormat>)",
                  "??", 0);
  tsr__push_frame(tape,
                  "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc("
                  "unsigned long, CUstream_st*)",
                  "CUDACachingAllocator.cpp", 0);
}

uint32_t tsr__current_stack(tsr__tape *tape, tsr__kernel kernel) {
  size_t depth = tape->frames.count;
  if (tape->status) return TSR_NONE;
  if (kernel == TSR__KERNEL_NONE)
    tsr__push_frame(tape,
                    "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::free("
                    "c10::cuda::CUDACachingAllocator::Native::Block*)",
                    "CUDACachingAllocator.cpp", 0);
  else
    push_allocation(tape, kernel);
  size_t count = tape->frames.count - tape->frame_base, last = tape->frames.count - 1;
  tape->stack.count = 0;
  if (!TSR__VECTOR_RESERVE(&tape->stack, count)) {
    tsr__tape_fail(tape, TSR_ERROR_MEMORY);
    return TSR_NONE;
  }
  while (tape->stack.count < count) {
    tape->stack.items[tape->stack.count] = tape->frames.items[last - tape->stack.count];
    tape->stack.count++;
  }
  tape->frames.count = depth;
  uint32_t id = tsr__snapshot_stack_id(tape->names, tape->stack.items, (uint32_t)count);
  if (id == TSR_NONE) tsr__tape_fail(tape, TSR_ERROR_MEMORY);
  return id;
}

size_t tsr__enter_thread(tsr__tape *tape) {
  size_t before = tape->frame_base;
  tape->frame_base = tape->frames.count;
  tsr__push_frame(tape, "clone3", "??", 0);
  tsr__push_frame(tape, "start_thread", "./nptl/pthread_create.c", 442);
  tsr__push_frame(tape, "execute_native_thread_routine", "thread48.o", 0);
  tsr__push_frame(tape, "torch::autograd::python::PythonEngine::thread_init", "??", 0);
  tsr__push_frame(tape, "torch::autograd::Engine::thread_init", "??", 0);
  tsr__push_frame(tape, "torch::autograd::Engine::thread_main", "??", 0);
  return before;
}

void tsr__leave_thread(tsr__tape *tape, size_t before) {
  tape->frames.count = tape->frame_base;
  tape->frame_base = before;
}
