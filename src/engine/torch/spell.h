/* spell.h - short words in which listings are written; for the files that have some. */
#ifndef TSR_TORCH_SPELL_H
#define TSR_TORCH_SPELL_H

#include "torch/listing.h"

#define FUNCTION TSR__LISTED_FUNCTION
#define MODULE   TSR__LISTED_MODULE
#define THREAD   TSR__LISTED_THREAD

#define FRAMES(...)             \
  (const tsr__listed_frame[]) { \
    __VA_ARGS__, {              \
      0                         \
    }                           \
  }
#define LINES(...)             \
  (const tsr__listed_line[]) { \
    __VA_ARGS__, {             \
      0                        \
    }                          \
  }

#define AT(place)   TSR__PLACE_##place
#define OP(kind)    TSR__LISTED_OP + TSR__OP_##kind
#define PHASE(name) TSR__LISTED_PHASE + TSR__PHASE_##name

#define TORCH(file)        TSR__TORCH_FILE(file)
#define TRANSFORMERS(file) TSR__TRANSFORMERS_FILE(file)

#endif
