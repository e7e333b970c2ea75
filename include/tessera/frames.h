/* tessera/frames.h - whose code is a frame? The rule by which stacks are folded and memory has a
 * line. */
#ifndef TESSERA_FRAMES_H
#define TESSERA_FRAMES_H

#include "tessera/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whose code a frame is, most telling first: where a stack has no frame of a kind, the next speaks
 * for it. */
typedef enum tsr_origin {
  TSR_ORIGIN_USER,    /* the program's own files, notebooks, the prompt */
  TSR_ORIGIN_LIBRARY, /* an installed package other than torch */
  TSR_ORIGIN_TORCH,   /* torch's Python, installed or from a source tree, and code it generates */
  TSR_ORIGIN_NATIVE,  /* C, C++ and CUDA, with or without a source file */
  TSR_ORIGIN_PYTHON,  /* the standard library */
  TSR_ORIGIN_NOISE,   /* the interpreter, the loader and the unwinder themselves */
  TSR_ORIGIN_COUNT
} tsr_origin;

/* Judged by name and file alone. Linear in their lengths. */
tsr_origin tsr_frame_origin(tsr_text name, tsr_text file);

/* What to call its code when it is folded: the package ("torch", "transformers"), "python" or
 * "C++". A part of `file`, or static text; never empty. */
tsr_text tsr_frame_package(tsr_origin origin, tsr_text name, tsr_text file);

/* A short name for a function: for C++ without its arguments, and where autograd runs a node, the node
 * ("MmBackward0", "AccumulateGrad") - `*is_node` (where not NULL) says so. A part of `name`, or
 * static text. Linear. */
tsr_text tsr_frame_title(tsr_text name, bool *is_node);

/* The last component of a path; the whole for "<stdin>" and the like. */
tsr_text tsr_base_name(tsr_text path);

#ifdef __cplusplus
}
#endif

#endif
