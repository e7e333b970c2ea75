/* frames.h - how well one frame names the place that a stack stands for. */
#ifndef TSR_ATTRIBUTION_FRAMES_H
#define TSR_ATTRIBUTION_FRAMES_H

#include "tessera/unstable/columns.h"

/* Best first: a stack without a frame of one rank is named by a frame of the next. Frames of the last two
 * ranks name nothing that a reader could change. */
typedef enum tsr__frame_rank {
  TSR__RANK_USER,     /* the program's own Python */
  TSR__RANK_LIBRARY,  /* an installed package other than torch */
  TSR__RANK_TORCH,    /* torch's Python, but for the compiler's */
  TSR__RANK_NODE,     /* C++: a node of autograd */
  TSR__RANK_OPERATOR, /* C++: an operator, at::_ops::... */
  TSR__RANK_KERNEL,   /* C++: any other function that does some of the work */
  TSR__RANK_PYTHON,   /* the standard library */
  TSR__RANK_COMPILED, /* generated code, and torch's compiler that calls it */
  TSR__RANK_NOTHING,  /* the allocator, dispatch, the interpreter, the start of a thread */
  TSR__RANK_COUNT
} tsr__frame_rank;

/* Linear in the two texts. */
tsr__frame_rank tsr__frame_rank_of(tsr_text name, tsr_text file);

/* Is it a file that a program generated: torch.compile's and Triton's caches, "<eval_with_key>.3",
 * "<string>", "<frozen importlib>"? Linear. */
bool tsr__file_is_generated(tsr_text file);

/* The node of autograd that a C++ function runs: `torch::autograd::generated::MulBackward0::apply(...)` runs
 * MulBackward0. Points into `name`; empty if it runs none. Linear. */
tsr_text tsr__node_of(tsr_text name);

/* A C++ function without its return type, arguments and template arguments: "at::native::copy_" of
 * "void at::native::copy_<float>(at::Tensor&)". Points into `name`; all of it if nothing would be left.
 * Linear. */
tsr_text tsr__function_of(tsr_text name);

#endif
