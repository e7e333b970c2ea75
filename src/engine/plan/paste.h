/* paste.h - writes a plan as settings for other programs: one table.
 *
 * A target is a row: its name, the options of a plan that its text contains, the choices among their values that it
 * supports, and a function that writes the text. The walk in paste.c first replaces what the target lacks by the nearest
 * choice that it has, and reports each difference as a note. Options that a row does not list are reset, with a note, so
 * an option that is added to plans is never lost silently. The function then writes the rest, and its notes.
 *
 * Adding a target means adding a row to target_rows.def, and a function. Choices, help, documentation and what the
 * planner may change for a target read the table. */
#ifndef TSR_PLAN_PASTE_H
#define TSR_PLAN_PASTE_H

#include "base/buffer.h"
#include "models/model.h"
#include "plan/techniques.h"
#include "plan/value.h"

/* Which values of its options a target supports, as bits. */
enum {
  TSR__SAYS_RANGES = 1,      /* some blocks, each completely */
  TSR__SAYS_FIRST = 2,       /* the first N blocks, or N blocks at a time */
  TSR__SAYS_SOME = 4,        /* checkpoints of attention alone */
  TSR__SAYS_ACTIVATIONS = 8, /* activations on the host */
  TSR__SAYS_AUTOCAST = 16,   /* fp32 weights under autocast, and 16-bit weights without masters */
  TSR__SAYS_MASTERS = 32,    /* 16-bit weights with fp32 masters */
  TSR__SAYS_FP16 = 64,
};

/* What is on the host, as bits. */
enum {
  TSR__AWAY_OPTIMIZER = 1,
  TSR__AWAY_GRADIENTS = 2,
  TSR__AWAY_PARAMETERS = 4,
  TSR__AWAY_STATE = 7 /* all of them */
};

/* Stages of ZeRO. FSDP shards parameters, gradients and optimizer state, and keeps gathered parameters until
 * backward (stage 2) or not (stage 3). */
enum { TSR__STAGE_0 = 1, TSR__STAGE_2 = 4, TSR__STAGE_3 = 8, TSR__STAGES = 15 };

/* A text in progress. */
typedef struct tsr__paste {
  const tsr_model *model;
  const char *name;                /* of the model */
  const tsr_simulate_options *how; /* batch and sequence */
  tsr_run_plan *plan;              /* the nearest plan, owned; `o` points to its options */
  tsr_simulate_options *o;
  tsr__buffer text, notes; /* notes: a line each, without what starts a comment */
  size_t lacking;          /* choices that were replaced by others: tsr__paste_cannot */
} tsr__paste;

/* A program that a plan is written for. */
typedef struct tsr__target_row {
  const char *name;
  const char *about;     /* what the text is, in Markdown: "JSON: DeepSpeed's configuration" */
  const char *file;      /* what its text is called in a folder: "hf.py" */
  const char *comment;   /* what starts a comment, "# "; NULL if the format has none, as JSON */
  const char *options;   /* those that text or notes contain, by name, with blanks between */
  unsigned says, stages; /* which of their values: TSR__SAYS_*; and a bit for each stage of ZeRO */
  uint8_t away[3]; /* what can be on the host together: TSR__AWAY_*; ends at 0 if there are fewer */
  bool zero_alone; /* has ZeRO for a single process, too */
  bool is_fsdp;    /* gathers the parameters outside of blocks together */
  bool is_allocator;            /* settings of the allocator alone, without the plan */
  bool is_plan;                 /* the plan file */
  void (*near)(tsr__paste *p);  /* replaces what else the target lacks; or NULL */
  void (*write)(tsr__paste *p); /* NULL for the plan file */
} tsr__target_row;

/* The name as a constant; NULL for an unknown one. */
const char *tsr__target_name(const char *name);
/* Whether a target has an option of plans; true for the plan file, the allocator's settings, which are no part of plans, and an unknown one. */
bool tsr__target_has(const char *name, const char *option);
/* 0, or TSR_ERROR_UNSUPPORTED if a target has no words for plans of that model: which of a traced model's modules are computed again. */
int tsr__target_check(const char *name, const tsr_model *model, tsr_error *error);
/* tsr_plan_paste for a plan that was found. `asked`: what the search would have begun with, if the target could express it, or NULL: what it
 * lacks of that is noted, too. `remark`: a further note, or NULL. */
int tsr__plan_paste_found(const tsr_run_plan *plan, const tsr_run_plan *asked, const char *remark,
                          const tsr_model *model, const tsr_simulate_options *how, const char *name,
                          tsr_pasted *out, tsr_error *error);
/* The nearest plan that a target can express, which the caller frees, and how many choices it replaces; a copy for the plan file and
 * such. Fails with TSR_ERROR_MEMORY, `*out` NULL. O(the plan). */
int tsr__target_nearest(const char *name, const tsr_model *model, const tsr_simulate_options *how,
                        const tsr_run_plan *plan, tsr_run_plan **out, size_t *replaced,
                        tsr_error *error);
/* The index-th target, in the order of tsr_target_names; NULL past the last. */
const tsr__target_row *tsr__target_at(size_t index);

/* ---- notes ---- */

/* Report a choice that the target does not support, and the nearest one that it does. */
void tsr__paste_cannot(tsr__paste *p, const char *format, ...) TSR__PRINTF(2, 3);
/* Report a choice that is made elsewhere than in this text. */
void tsr__paste_elsewhere(tsr__paste *p, const char *format, ...) TSR__PRINTF(2, 3);

/* ---- what the plan chooses ---- */

bool tsr__paste_is_bf16(const tsr__paste *p); /* with or without autocast */
bool tsr__paste_is_fp16(const tsr__paste *p);
bool tsr__paste_is_autocast(const tsr__paste *p);
bool tsr__paste_is_gpt2(const tsr__paste *p);
/* Whether backward computes any block again. */
bool tsr__paste_recomputes(const tsr__paste *p);
/* The number of blocks in ranges, and whether these are the first blocks, in order. */
uint64_t tsr__paste_blocks(const tsr_run_plan *plan, bool *are_first);
/* The value of an option as a user types it. */
const char *tsr__paste_option(const tsr__paste *p, const char *option,
                              char text[TSR__OPTION_BYTES]);
/* Sequences per forward pass; backward passes of a step; sequences of a step on all ranks; tokens of a sequence. */
unsigned long long tsr__paste_micro_batch(const tsr__paste *p);
unsigned long long tsr__paste_passes(const tsr__paste *p);
unsigned long long tsr__paste_global_batch(const tsr__paste *p);
unsigned long long tsr__paste_sequence(const tsr__paste *p);
/* What is on the host: TSR__AWAY_*. */
unsigned tsr__paste_away(const tsr__paste *p);
/* The number of ranks, or 0 for a single process. */
unsigned long long tsr__paste_ranks(const tsr__paste *p);

/* ---- lines that several targets share ---- */

/* Python: what is set in the model of transformers, or cast. */
void tsr__paste_model(tsr__paste *p);
/* The same as notes, with the form of checkpoints, for texts that are not Python. */
void tsr__paste_model_notes(tsr__paste *p);
/* The number of ranks, which is an argument of the launcher. */
void tsr__paste_launch(tsr__paste *p);
/* The adapters of peft, which another program makes. */
void tsr__paste_adapters(tsr__paste *p);
/* The optimizer in Python, torch.optim or bitsandbytes: "torch.optim.SGD(model.parameters(), lr=0.001)"; "" for Muon, which is for
 * matrices alone. */
const char *tsr__paste_optimizer(const tsr__paste *p);
/* The optimizer's name in TrainingArguments of transformers. */
const char *tsr__paste_trainer_optimizer(const tsr__paste *p);
/* Write the arguments of transformers' Trainer that every text for it begins with. */
void tsr__paste_arguments(tsr__paste *p);
/* Replace the optimizer by the nearest one of the target, with a note. */
void tsr__near_optimizer(tsr__paste *p, tsr_simulate_optimizer nearest);
/* Replace a kernel for attention that users cannot choose, with a note: PyTorch chooses one. */
void tsr__near_attention(tsr__paste *p);
/* Checkpoints of the target have one form: note another one. */
void tsr__near_form(tsr__paste *p, bool is_non_reentrant);

/* ---- the functions of the rows ---- */

void tsr__paste_hf(tsr__paste *p);
void tsr__paste_peft(tsr__paste *p);
void tsr__paste_axolotl(tsr__paste *p);
void tsr__paste_unsloth(tsr__paste *p);
void tsr__paste_deepspeed(tsr__paste *p);
void tsr__paste_fsdp2(tsr__paste *p);
void tsr__paste_torchtitan(tsr__paste *p);
void tsr__paste_megatron(tsr__paste *p);
void tsr__paste_env(tsr__paste *p);
void tsr__near_hf(tsr__paste *p);
void tsr__near_axolotl(tsr__paste *p);
void tsr__near_unsloth(tsr__paste *p);
void tsr__near_deepspeed(tsr__paste *p);
void tsr__near_fsdp2(tsr__paste *p);
void tsr__near_torchtitan(tsr__paste *p);
void tsr__near_megatron(tsr__paste *p);

#endif
