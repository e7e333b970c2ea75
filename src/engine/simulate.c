/* simulate.c - tsr_simulate: description and options to tape, tape to result. */
#include "tessera/simulate.h"

#include <stdio.h>

#include "engine/dry.h"
#include "engine/program.h"

const char *tsr_memory_role_name(tsr_memory_role role) {
  static const char *const names[TSR_ROLE_COUNT] = {"temporary", "parameter",  "buffer",
                                                    "input",     "activation", "gradient",
                                                    "backward",  "optimizer",  "workspace"};
  return (unsigned)role < TSR_ROLE_COUNT ? names[role] : "temporary";
}

static void note(tsr_simulation *out, const char *text) {
  if (out->note_count < TSR_SIMULATE_NOTES) out->notes[out->note_count++] = text;
}

/* What the result rests on, and a reader could not guess. */
static void add_notes(const tsr__program *p, tsr_simulation *out) {
  const tsr_simulate_options *o = p->options;
  if (!o->fresh_process)
    note(out, "cuBLAS is taken to have its two workspaces before the recording begins");
  if (p->has_attention_mask)
    note(out, "the batch is taken to bring an attention mask; without one, and without a cache, "
              "transformers makes a mask for every pair of positions");
  if (p->has_mask && !p->is_eager)
    note(out, "transformers makes an explicit mask here, which the attention kernel keeps as "
              "numbers for every layer it runs");
  if (o->attention == TSR_ATTENTION_CHUNKED)
    note(out, "chunked attention is tessera's own op, not one of PyTorch's");
  if (o->loss_chunk)
    note(out, "the chunked loss is a fused head and cross-entropy: the outputs have no logits");
  if (o->checkpoint == TSR_CHECKPOINT_SELECTIVE && !p->is_eager)
    note(out, "the kernel keeps no scores, so that selective checkpointing saves next to nothing");
  if (p->batch * p->sequence > 3072)
    note(out, "how much the embedding's backward sorts depends on the tokens: the most is assumed");
  if (o->settings.expandable_segments || o->capacity_bytes == 0) return;
  note(out,
       "the capacity is what the driver can hand out; the CUDA context takes 0.3 to 0.8 GiB of "
       "the card besides");
}

static int too_long(uint64_t steps, uint64_t each, tsr_error *error) {
  return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                   "%llu steps of %llu instructions each are too long a run: at most %llu "
                   "instructions are simulated (memory repeats itself from the third step on)",
                   (unsigned long long)steps, (unsigned long long)each,
                   (unsigned long long)TSR_SIMULATE_MOST_INSTRUCTIONS);
}

static int explain(const tsr__tape *tape, int status, tsr_error *error) {
  if (status == TSR_ERROR_LIMIT && tape->is_too_long)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "a step takes more than %llu instructions: fewer micro-batches, or larger "
                     "chunks, take fewer",
                     (unsigned long long)TSR_SIMULATE_MOST_INSTRUCTIONS);
  if (status == TSR_ERROR_LIMIT)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "one of the tensors would be larger than 256 TiB");
  return status ? tsr__fail_memory(error) : 0;
}

static int simulate(const tsr_model *model, const tsr_simulate_options *options,
                    tsr_simulation *out, tsr_error *error) {
  tsr__tape tape;
  tsr__program program = {0};
  if (!tsr__tape_init(&tape, out->snapshot)) {
    tsr__tape_release(&tape);
    return tsr__fail_memory(error);
  }
  int status = tsr__program_init(&program, model, options, &tape, error);
  if (status == 0) {
    tsr__program_step(&program);
    status = explain(&tape, tsr__tape_finish(&tape), error);
    uint64_t steps = options->steps ? options->steps : 1, each = tape.schedule.count;
    if (status == 0 && steps > TSR_SIMULATE_MOST_INSTRUCTIONS / each)
      status = too_long(steps, each, error);
  }
  if (status == 0) status = tsr__dry_run(&tape, options, out, error);
  if (status == 0) {
    for (size_t i = 0; i < tape.parameters.count; i++)
      out->parameter_count += tsr__elements(tsr__shape_of(&tape, tape.parameters.items[i]));
    out->step_flops = tape.flops;
    out->step_recomputed_flops = tape.recomputed_flops;
    add_notes(&program, out);
  }
  tsr__program_release(&program);
  tsr__tape_release(&tape);
  return status;
}

int tsr_simulate(const tsr_model *model, const tsr_simulate_options *options, tsr_simulation **out,
                 tsr_error *error) {
  static const tsr_simulate_options defaults = {0};
  tsr_simulation *simulation = TSR__NEW(tsr_simulation);
  if (simulation) simulation->snapshot = tsr__snapshot_new();
  if (!simulation || !simulation->snapshot) {
    tsr_simulation_free(simulation);
    return tsr__fail_memory(error);
  }
  int status = simulate(model, options ? options : &defaults, simulation, error);
  if (status) {
    tsr_simulation_free(simulation);
    return status;
  }
  *out = simulation;
  return 0;
}

/* As c10's format_size has it. */
static const char *size_text(uint64_t bytes, char text[32]) {
  static const char *const units[] = {"KiB", "MiB", "GiB"};
  double size = (double)bytes / 1024;
  size_t unit = 0;
  for (; unit < 2 && size > 1024; unit++) size /= 1024;
  if (bytes <= 1024)
    (void)snprintf(text, 32, "%llu bytes", (unsigned long long)bytes);
  else
    (void)snprintf(text, 32, "%.2f %s", size, units[unit]);
  return text;
}

void tsr_simulation_message(const tsr_simulation *s, uint64_t capacity_bytes, char *text,
                            size_t size_bytes) {
  char tried[32], total[32], left[32], allocated[32], unused[32];
  const tsr_allocator_totals *now = &s->out_of_memory.totals;
  text[0] = '\0';
  if (!s->is_out_of_memory) return;
  (void)snprintf(text, size_bytes,
                 "CUDA out of memory. Tried to allocate %s. GPU 0 has a total capacity of %s of "
                 "which %s is free. Of the allocated memory %s is allocated by PyTorch, and %s is "
                 "reserved by PyTorch but unallocated.",
                 size_text(s->oom_segment_bytes, tried), size_text(capacity_bytes, total),
                 size_text(s->oom_device_free_bytes, left),
                 size_text(now->allocated_bytes, allocated),
                 size_text(now->reserved_bytes - now->allocated_bytes, unused));
}

void tsr_simulation_free(tsr_simulation *simulation) {
  if (!simulation) return;
  tsr_snapshot_free(simulation->snapshot);
  tsr__free(simulation);
}
