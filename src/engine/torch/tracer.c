/* tracer.c - following a program along its listings, and keeping the stacks that result.
 *
 * Stacks are a tree: a stack is its innermost frame and the stack of the caller, so that a call, a
 * return and a step to the next line cost one look-up each, however deep the stack.
 *
 *   strings   texts                                     interned
 *   frames    (name, file, line)                        interned
 *   stacks    (caller's stack or TSR_NONE, frame)       interned
 *
 * A function that has not returned is an activation: the stack to go back to, the stack under its
 * innermost frame (which changes with the line), and the place in its listing. What a kernel puts on
 * top of the program when it allocates is the same for every call:
 *
 *   <module>, train, _wrapped_call_impl, _call_impl, forward   the program
 *   at::_ops::mul_Tensor::call                                 dispatch of the op
 *   VariableType, wrapper_CUDA_mul_Tensor                      its autograd and CUDA kernels
 *   at::detail::empty_cuda, DeviceCachingAllocator::malloc     its memory
 *
 * Invariants: every id on the way from `here` to the root is one of `stacks`; activations nest. Once
 * memory has run out nothing changes any more (`has_failed`). */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/intern.h"
#include "base/memory.h"
#include "base/vector.h"
#include "torch/kernels.h"
#include "torch/listing.h"
#include "torch/torch.h"

typedef struct frame_key {
  uint32_t name, file, line;
} frame_key;

typedef struct stack_key {
  uint32_t caller, frame;
} stack_key;

typedef struct activation {
  uint32_t back;                /* the stack to return to */
  uint32_t base;                /* the stack under the innermost frame */
  const tsr__listing *listing;  /* NULL: of a kernel step */
  const tsr__listed_frame *top; /* the innermost frame */
  uint32_t line;                /* index into its lines */
} activation;

enum { NATIVE_FRAMES = 5 };

typedef struct torch {
  tsr__tracer tracer; /* first: the tracer is the torch */
  const tsr__listed_class *class;
  tsr__intern strings, frames, stacks;
  TSR__VECTOR(activation) activations;
  uint32_t here;                                         /* the current stack, or TSR_NONE */
  uint32_t allocation[TSR__KERNEL_COUNT][NATIVE_FRAMES]; /* frames, outermost first */
  uint32_t module[2], release;
  bool has_failed;
} torch;

static torch *torch_of(tsr__tracer *tracer) {
  return (torch *)(void *)tracer;
}

/* ---- the tree ---- */

/* The id, or TSR_NONE after a failure. */
static uint32_t intern(torch *t, tsr__intern *table, const void *data, size_t size_bytes) {
  uint32_t id = t->has_failed ? TSR__INTERN_FULL : tsr__intern_put(table, data, size_bytes, NULL);
  t->has_failed |= id == TSR__INTERN_FULL;
  return id == TSR__INTERN_FULL ? TSR_NONE : id;
}

static uint32_t frame_of(torch *t, const char *name, const char *file, uint32_t line) {
  frame_key key = {.line = line};
  key.name = intern(t, &t->strings, name, strlen(name) + 1);
  key.file = intern(t, &t->strings, file, strlen(file) + 1);
  return intern(t, &t->frames, &key, sizeof key);
}

static uint32_t stack_on(torch *t, uint32_t caller, uint32_t frame) {
  stack_key key = {caller, frame};
  assert(t->has_failed ||
         (frame < t->frames.count && (caller == TSR_NONE || caller < t->stacks.count)));
  return intern(t, &t->stacks, &key, sizeof key);
}

/* ---- listings ---- */

static const tsr__listing *listing_of(const torch *t, tsr__program_place place) {
  static const tsr__listed_frame unknown[] = {{"forward", "??", 0}, {0}};
  static const tsr__listing nowhere = {TSR__LISTED_FUNCTION, unknown, NULL};
  assert(place < TSR__PLACE_COUNT);
  const tsr__listing *own = &t->class->listings[place], *common = &tsr__listings[place];
  assert(place == TSR__PLACE_NONE || own->call || common->call); /* a place without a listing */
  return own->call != TSR__LISTED_NOT ? own : common->call != TSR__LISTED_NOT ? common : &nowhere;
}

/* A line as listed in a frame of `file`. */
static uint32_t line_of(const torch *t, const tsr__listed_frame *frame, uint16_t line) {
  return !frame->file && t->class->numbers ? t->class->numbers[line] : line;
}

static uint32_t listed_frame(torch *t, const tsr__listed_frame *frame, uint16_t line) {
  return frame_of(t, frame->name, frame->file ? frame->file : t->class->file,
                  line_of(t, frame, line));
}

/* The program did something that may stand on another line of the current function. */
static void step_to(torch *t, uint32_t event) {
  if (t->has_failed || !t->activations.count) return;
  activation *top = &t->activations.items[t->activations.count - 1];
  const tsr__listed_line *lines = top->listing ? top->listing->lines : NULL;
  uint32_t found = top->line;
  if (!lines) return;
  while (lines[found].event && lines[found].event != event) found++;
  if (!lines[found].event)
    for (found = 0; found < top->line && lines[found].event != event; found++) {}
  if (lines[found].event != event) return;
  top->line = found;
  t->here = stack_on(t, top->base, listed_frame(t, top->top, lines[found].line));
}

static bool push(torch *t, const activation *next) {
  if (!t->has_failed && !TSR__VECTOR_PUSH(&t->activations, *next)) t->has_failed = true;
  return !t->has_failed;
}

/* ---- the tracer ---- */

static void enter(tsr__tracer *tracer, tsr__program_place place) {
  torch *t = torch_of(tracer);
  step_to(t, (uint32_t)place);
  const tsr__listing *listing = listing_of(t, place);
  activation next = {.back = t->here, .listing = listing};
  if (t->has_failed) return;
  if (listing->call == TSR__LISTED_THREAD) t->here = TSR_NONE;
  for (size_t i = 0; i < 2 && listing->call == TSR__LISTED_MODULE; i++)
    t->here = stack_on(t, t->here, t->module[i]);
  for (const tsr__listed_frame *frame = listing->frames; frame->name; frame++) {
    next.base = t->here;
    next.top = frame;
    t->here = stack_on(t, t->here, listed_frame(t, frame, frame->line));
  }
  assert(next.top);
  (void)push(t, &next);
}

static void leave(tsr__tracer *tracer) {
  torch *t = torch_of(tracer);
  if (t->has_failed) return;
  assert(t->activations.count);
  t->here = t->activations.items[--t->activations.count].back;
}

static void at(tsr__tracer *tracer, tsr__program_place place) {
  step_to(torch_of(tracer), (uint32_t)place);
}

static void begin_op(tsr__tracer *tracer, uint32_t kind) {
  assert(kind < TSR__OP_KIND_COUNT);
  step_to(torch_of(tracer), TSR__LISTED_OP + kind);
}

static void begin_phase(tsr__tracer *tracer, uint32_t phase) {
  assert(phase < TSR__PHASE_COUNT);
  step_to(torch_of(tracer), TSR__LISTED_PHASE + phase);
}

/* PyTorch numbers the nodes it generates; one without a number is a function written in Python, of
 * which C++ sees no name (python_function.cpp). */
static bool is_python_node(const char *node) {
  size_t size = strlen(node);
  return size && (node[size - 1] < '0' || node[size - 1] > '9');
}

/* The node's own frame stands on Node::operator(). */
static void node(tsr__tracer *tracer, const char *name) {
  torch *t = torch_of(tracer);
  char text[128];
  if (t->has_failed) return;
  assert(t->activations.count);
  const activation *top = &t->activations.items[t->activations.count - 1];
  uint32_t caller = stack_on(t, top->base, listed_frame(t, top->top, top->top->line));
  if (is_python_node(name)) {
    t->here = stack_on(
        t, caller, frame_of(t, "torch::autograd::PyNode::apply(std::vector<at::Tensor>&&)", "", 0));
    return;
  }
  (void)snprintf(text, sizeof text,
                 "torch::autograd::generated::%s::apply(std::vector<at::Tensor>&&)", name);
  t->here = stack_on(t, caller, frame_of(t, text, "??", 0));
}

/* A step may run within a helper of autograd's, or be called by another kernel. */
static void begin_step(tsr__tracer *tracer, const tsr__op_step *step) {
  torch *t = torch_of(tracer);
  activation next = {.back = t->here, .base = t->here};
  char name[128];
  if (!push(t, &next)) return;
  if (step->within) {
    (void)snprintf(name, sizeof name, "torch::autograd::generated::details::%s", step->within);
    t->here = stack_on(t, t->here, frame_of(t, name, "FunctionsManual.cpp", 0));
  }
  if (step->by) {
    const char *caller = tsr__torch_kernel_of((tsr__kernel)step->by)->name;
    (void)snprintf(name, sizeof name, "at::_ops::%s::call", caller);
    t->here = stack_on(t, t->here, frame_of(t, name, "??", 0));
    (void)snprintf(name, sizeof name, "at::native::%s_cuda", caller);
    t->here = stack_on(t, t->here, frame_of(t, name, "??", 0));
  }
}

static uint32_t native_frame(torch *t, const char *format, const char *what, const char *file) {
  char name[160];
  (void)snprintf(name, sizeof name, format, what);
  return frame_of(t, name, file, 0);
}

static void make_allocation_frames(torch *t, tsr__kernel kernel) {
  const tsr__torch_kernel *row = tsr__torch_kernel_of(kernel);
  const uint32_t frames[NATIVE_FRAMES] = {
      native_frame(t, "at::_ops::%s::call", row->name, "??"),
      native_frame(t, "torch::autograd::VariableType::(anonymous namespace)::%s", row->name,
                   row->autograd_file ? row->autograd_file : "??"),
      native_frame(t, "at::(anonymous namespace)::wrapper_CUDA_%s", row->name,
                   "RegisterCUDA_0.cpp"),
      frame_of(t,
               "at::detail::empty_cuda(c10::ArrayRef<long>, c10::ScalarType, "
               "std::optional<c10::Device>, std::optional<c10::MemoryFormat>)",
               "??", 0),
      frame_of(t,
               "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc("
               "unsigned long, CUstream_st*)",
               "CUDACachingAllocator.cpp", 0)};
  memcpy(t->allocation[kernel], frames, sizeof frames);
}

static bool stack(tsr__tracer *tracer, tsr__kernel kernel, uint32_t *out) {
  torch *t = torch_of(tracer);
  uint32_t id = t->here;
  assert(kernel < TSR__KERNEL_COUNT);
  if (t->has_failed) return false;
  if (kernel == TSR__KERNEL_NONE) {
    id = stack_on(t, id, t->release);
  } else {
    if (t->allocation[kernel][0] == TSR_NONE) make_allocation_frames(t, kernel);
    for (size_t i = 0; i < NATIVE_FRAMES && !t->has_failed; i++)
      id = stack_on(t, id, t->allocation[kernel][i]);
  }
  if (!t->has_failed) *out = id;
  return !t->has_failed;
}

static uint32_t parent(const void *context, uint32_t id, tsr__trace_frame *out) {
  const torch *t = context;
  stack_key stack;
  frame_key frame;
  assert(id < t->stacks.count);
  memcpy(&stack, t->stacks.items[id].data, sizeof stack);
  memcpy(&frame, t->frames.items[stack.frame].data, sizeof frame);
  *out = (tsr__trace_frame){.id = stack.frame,
                            .line = frame.line,
                            .name = (const char *)t->strings.items[frame.name].data,
                            .file = (const char *)t->strings.items[frame.file].data};
  assert(stack.caller == TSR_NONE || stack.caller < id); /* so that walks end */
  return stack.caller;
}

/* ---- making one ---- */

static const tsr__listed_class *class_of(const tsr_model *model) {
  static const tsr__listed_class *const classes[TSR__CLASS_COUNT] = {
      [TSR__CLASS_GPT2] = &tsr__listed_gpt2,
      [TSR__CLASS_LLAMA] = &tsr__listed_llama,
      [TSR__CLASS_MISTRAL] = &tsr__listed_mistral,
      [TSR__CLASS_QWEN2] = &tsr__listed_qwen2,
  };
  assert(model->class < TSR__CLASS_COUNT && classes[model->class]);
  return classes[model->class];
}

tsr__tracer *tsr__torch_new(const tsr_model *model) {
  torch *t = TSR__NEW(torch);
  if (!t) return NULL;
  t->tracer = (tsr__tracer){.enter = enter,
                            .leave = leave,
                            .at = at,
                            .begin_op = begin_op,
                            .begin_phase = begin_phase,
                            .node = node,
                            .begin_step = begin_step,
                            .end_step = leave,
                            .stack = stack,
                            .labels = {.context = t, .parent = parent}};
  t->class = class_of(model);
  t->here = TSR_NONE;
  memset(t->allocation, 0xff, sizeof t->allocation);
  tsr__intern_init(&t->strings);
  tsr__intern_init(&t->frames);
  tsr__intern_init(&t->stacks);
  t->module[0] = frame_of(t, "_wrapped_call_impl", TSR__TORCH_FILE("nn/modules/module.py"), 1775);
  t->module[1] = frame_of(t, "_call_impl", TSR__TORCH_FILE("nn/modules/module.py"), 1786);
  t->release = frame_of(t,
                        "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::free("
                        "c10::cuda::CUDACachingAllocator::Native::Block*)",
                        "CUDACachingAllocator.cpp", 0);
  if (t->has_failed) {
    tsr__torch_free(&t->tracer);
    return NULL;
  }
  return &t->tracer;
}

void tsr__torch_free(tsr__tracer *tracer) {
  torch *t = torch_of(tracer);
  if (!t) return;
  tsr__intern_release(&t->strings);
  tsr__intern_release(&t->frames);
  tsr__intern_release(&t->stacks);
  TSR__VECTOR_FREE(&t->activations);
  tsr__free(t);
}
