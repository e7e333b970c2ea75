/* frames.h - whose code is a frame? The rule by which stacks are folded and memory has a line. */
#ifndef TSR_ATTRIBUTION_FRAMES_H
#define TSR_ATTRIBUTION_FRAMES_H

#include "tessera/snapshot.h"

/* Whose code a frame is, most telling first: where a stack has no frame of a kind, the next speaks
 * for it. */
typedef enum tsr__origin {
  TSR__ORIGIN_USER,    /* the program's own files, notebooks, the prompt */
  TSR__ORIGIN_LIBRARY, /* an installed package other than torch */
  TSR__ORIGIN_TORCH,   /* torch's Python, installed or from a source tree, and code it generates */
  TSR__ORIGIN_NATIVE,  /* C, C++ and CUDA, with or without a source file */
  TSR__ORIGIN_PYTHON,  /* the standard library */
  TSR__ORIGIN_NOISE,   /* the interpreter, the loader and the unwinder themselves */
  TSR__ORIGIN_COUNT
} tsr__origin;

/* Judged by name and file alone. Linear in their lengths. */
tsr__origin tsr__frame_origin(tsr_text name, tsr_text file);

/* What to call its code when it is folded: the package ("torch", "transformers"), "python" or
 * "C++". A part of `file`, or static text; never empty. */
tsr_text tsr__frame_package(tsr__origin origin, tsr_text name, tsr_text file);

/* A short name for a function: for C++ without its arguments, and where autograd runs a node, the node
 * ("MmBackward0", "AccumulateGrad") - `*is_node` (where not NULL) says so. A part of `name`, or
 * static text. Linear. */
tsr_text tsr__frame_title(tsr_text name, bool *is_node);

/* The last component of a path; the whole for "<stdin>" and the like. */
tsr_text tsr__base_name(tsr_text path);

#endif
