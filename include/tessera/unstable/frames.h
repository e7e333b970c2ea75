/* tessera/unstable/frames.h - where the code of a frame comes from: the program, a library, torch, ...
 * Stacks are folded, and memory is assigned to a line, by this rule. */
#ifndef TESSERA_UNSTABLE_FRAMES_H
#define TESSERA_UNSTABLE_FRAMES_H

#include "tessera/unstable/columns.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a frame's code comes from, most informative first: a stack without a frame of one origin is
 * represented by a frame of the next. */
typedef enum tsr_origin {
  TSR_ORIGIN_USER,    /* the program's own files, notebooks, the prompt */
  TSR_ORIGIN_LIBRARY, /* an installed package other than torch */
  TSR_ORIGIN_TORCH,   /* torch's Python, installed or from a source tree, and code it generates */
  TSR_ORIGIN_NATIVE,  /* C, C++ and CUDA, with or without a source file */
  TSR_ORIGIN_PYTHON,  /* the standard library */
  TSR_ORIGIN_NOISE,   /* the interpreter, the loader and the unwinder themselves */
  TSR_ORIGIN_COUNT
} tsr_origin;

/* The origin, from name and file alone. Linear in their lengths. */
tsr_origin tsr_frame_origin(tsr_text name, tsr_text file);

/* What to call its code when it is folded: the package ("torch", "transformers"), "python" or
 * "C++". Points into `file`, or to static text; never empty. */
tsr_text tsr_frame_package(tsr_origin origin, tsr_text name, tsr_text file);

/* A short name for a function: C++ without its arguments. If autograd runs a node there, the node's
 * name ("MmBackward0", "AccumulateGrad"), and `*is_node` (unless NULL) is true. Points into `name`, or
 * to static text. Linear. */
tsr_text tsr_frame_title(tsr_text name, bool *is_node);

/* The last component of a path; all of it for "<stdin>" and the like. */
tsr_text tsr_base_name(tsr_text path);

#ifdef __cplusplus
}
#endif

#endif
