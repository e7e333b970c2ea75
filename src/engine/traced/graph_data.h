/* graph_data.h - the representation of a step graph in memory: step_graph.c reads it, rewrite.c changes it. */
#ifndef TSR_TRACED_GRAPH_DATA_H
#define TSR_TRACED_GRAPH_DATA_H

#include "base/vector.h"
#include "graph/schedule.h"
#include "traced/rewrite.h"
#include "traced/step_graph.h"

typedef struct tsr__graph_frame {
  uint32_t name, file, line; /* name and file: texts */
} tsr__graph_frame;

/* A call of a module's forward: instructions begin to end - 1, saves first_save to end_save - 1. Of the tensors in its state slots a
 * checkpoint keeps a copy, because the module changes them. */
typedef struct tsr__graph_module {
  uint32_t name, kind; /* texts: model.layers.0, LlamaDecoderLayer */
  uint32_t begin, end, first_save, end_save, first_input, input_count, first_state, state_count;
  uint32_t why_once; /* text: why it cannot run again in backward; TSR_NONE: it can */
} tsr__graph_module;

/* What a step of one optimizer does in one form: its slots and instructions among those of all forms. Its instructions
 * number its own slots from 1. */
typedef struct tsr__graph_form {
  uint32_t optimizer; /* which step of an optimizer, in the order of the schedule */
  tsr__form_kind form;
  uint32_t first_slot, slot_count, first_instr, instr_count;
} tsr__graph_form;

struct tsr__step_graph {
  TSR__VECTOR(char *) texts; /* owned */
  TSR__VECTOR(tsr__graph_frame) frames;
  TSR__VECTOR(uint32_t) chain;  /* frames of all stacks, each innermost first; TSR_NONE ends one */
  TSR__VECTOR(uint32_t) first;  /* of each stack, in chain */
  TSR__VECTOR(tsr__slot) slots; /* static ones first; no slot 0 for "none" here */
  tsr__instrs instrs;
  /* What a rewrite needs, all empty in graphs that lack it: */
  tsr__saves saves;             /* in the order in which they were made */
  TSR__VECTOR(uint32_t) inputs; /* slots, of all modules: arguments, and state */
  TSR__VECTOR(tsr__graph_module) modules;
  TSR__VECTOR(uint32_t)
  unheld; /* of each slot: before which instruction the program releases it; TSR_NONE: when it is freed */
  TSR__VECTOR(tsr__op_work) work; /* by place; then what a rewrite adds */
  bool
      is_work_assumed; /* the file lacks it: assume that each allocation is written, and as many bytes are read */
  bool
      lacks_kernels; /* the file does not list calls of kernels, whose temporaries are then missing */
  uint64_t copied_bytes;   /* to the host and back, while nothing else runs */
  TSR__VECTOR(char *) ops; /* owned; by text: of at::_ops::mm::call "mm", else NULL */
  const tsr__step_graph
      *origin; /* of a rewritten graph, whose texts begin with this one's; else NULL */
  /* What other forms of its optimizers take; empty in graphs that lack it: */
  TSR__VECTOR(tsr__slot) form_slots;
  TSR__VECTOR(tsr__instr) form_instrs;
  TSR__VECTOR(tsr__graph_form) forms;
  uint32_t optimizer_count; /* steps of optimizers that the file lists */
  uint64_t static_count, parameter_count;
  char optimizer[64], gpu[32];
  const char *notes[3]; /* sentences about how it was traced, then NULL */
};

/* A copy, whose origin is this one, or its; NULL without memory. */
tsr__step_graph *tsr__step_graph_copy(const tsr__step_graph *from);

#endif
