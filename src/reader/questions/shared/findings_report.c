/* findings_report.c - see findings.h.
 *
 *   What to do:
 *     Checkpoint the block called at model.py:125: saves about 11.00 GiB.
 *       12 equal blocks keep 1.02 GiB each.
 *       Most of it: nn_utils.py:6 softmax
 */
#include "questions/shared/findings.h"

#include "base/checked.h"
#include "base/format.h"
#include "columns/tables.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "tessera/unstable/steps.h"

/* ---- JSON ---- */

/* What each option for parameters, gradients and states saves. */
static void emit_options(tsr__emitter *emitter, const tsr_finding *finding) {
  static const tsr__column columns[] = {{"option", NULL, TSR__LEFT},
                                        {"saved_bytes", NULL, TSR__RIGHT}};
  tsr__emit_field(emitter, "parameter_bytes", NULL, tsr__bytes(finding->parameter_bytes));
  tsr__emit_field(emitter, "gradient_bytes", NULL, tsr__bytes(finding->gradient_bytes));
  tsr__emit_field(emitter, "optimizer_state_bytes", NULL, tsr__bytes(finding->state_bytes));
  tsr__emit_field(emitter, "copy_bytes", NULL, tsr__bytes(finding->copy_bytes));
  tsr__emit_field(emitter, "peak_bytes", NULL, tsr__bytes(finding->peak_bytes));
  tsr__emit_table(emitter, "options", columns, sizeof columns / sizeof *columns);
  for (int i = 0; i < TSR_FINDING_OPTION_COUNT; i++) {
    if (!finding->option_bytes[i]) continue;
    tsr__emit_row(emitter,
                  (tsr__cell[]){tsr__string(tsr_finding_option_name((tsr_finding_option)i)),
                                tsr__bytes(finding->option_bytes[i])});
    tsr__emit_row_end(emitter);
  }
  tsr__emit_table_end(emitter);
}

/* What only some rules have. */
static void emit_particulars(tsr__stack_printer *printer, const tsr_finding *finding) {
  tsr__emitter *emitter = printer->emitter;
  char settings[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES];
  if (finding->rule == TSR_FINDING_CHECKPOINT) tsr__frame_emit(printer, "block", finding->block);
  if (finding->rule == TSR_FINDING_CHECKPOINT || finding->rule == TSR_FINDING_ATTENTION)
    tsr__emit_field(emitter, "call", NULL, tsr__string(tsr_finding_call_text(finding->call)));
  if (finding->rule == TSR_FINDING_LEAK)
    tsr__emit_field(emitter, "step_bytes", NULL, tsr__bytes(finding->step_bytes));
  if (finding->rule == TSR_FINDING_STATES) emit_options(emitter, finding);
  if (!finding->settings_bytes) return;
  tsr__emit_field(emitter, "settings", NULL,
                  tsr__string(tsr_allocator_settings_text(&finding->settings, settings)));
  tsr__emit_field(emitter, "settings_saved_bytes", NULL, tsr__bytes(finding->settings_bytes));
}

static void emit_finding(tsr__stack_printer *printer, const tsr_finding *finding) {
  tsr__emitter *emitter = printer->emitter;
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "rule", NULL, tsr__string(tsr_finding_rule_name(finding->rule)));
  tsr__emit_field(emitter, "bytes", NULL, tsr__bytes(finding->bytes));
  tsr__emit_field(emitter, "saved_bytes", NULL, tsr__bytes(finding->saved_bytes));
  tsr__emit_field(emitter, "count", NULL,
                  finding->count ? tsr__count(finding->count) : tsr__nothing());
  tsr__emit_field(emitter, "event", NULL, tsr__index(finding->event));
  emit_particulars(printer, finding);
  tsr__frame_emit(printer, "frame", finding->frame);
  tsr__stack_emit(printer, finding->stack);
  tsr__emit_end(emitter);
}

void tsr__findings_emit(tsr__stack_printer *printer, const tsr_finding *findings, size_t count) {
  if (tsr__emitter_is_text(printer->emitter)) return;
  tsr__emit_array(printer->emitter, "findings");
  for (size_t i = 0; i < count; i++) emit_finding(printer, &findings[i]);
  tsr__emit_end(printer->emitter);
}

/* ---- Text ---- */

const char *tsr__how_to_record(const tsr_snapshot *snapshot) {
  static const char profile[] = "pprof";
  const char *format = tsr_snapshot_format(snapshot);
  size_t length = strlen(format), last = sizeof profile - 1;
  if (length >= last && strcmp(format + length - last, profile) == 0)
    return "The profile lists live arrays at one moment. The peak of a run, and temporaries of "
           "XLA, are "
           "not in it.";
  if (tsr__snapshot_is_flat(snapshot)) return "The file lists hardly any allocations.";
  return "The file shows one moment. For a trace, call torch.cuda.memory._record_memory_history() "
         "before the model is made and _dump_snapshot() later, or run the job in `with "
         "tessera.record():`.";
}

/* The class whose method a frame is, as newer frames name it: "LlamaDecoderLayer.forward". */
static bool append_class(const tsr__namer *namer, uint32_t frame, tsr__buffer *out) {
  if (frame == TSR_NONE) return false;
  tsr_text name =
      tsr_snapshot_string(namer->snapshot, tsr_snapshot_frame(namer->snapshot, frame).name);
  size_t end = name.size_bytes, begin;
  while (end && name.data[end - 1] != '.') end--;
  if (!end--) return false;
  for (begin = end; begin && name.data[begin - 1] != '.' && name.data[begin - 1] != '>';) begin--;
  if (begin == end || name.data[begin] == '<') return false;
  tsr__buffer_append(out, name.data + begin, end - begin);
  return true;
}

void tsr__finding_append_block(tsr__namer *namer, const tsr_finding *finding, tsr__buffer *out) {
  tsr__buffer_text(out, "Checkpoint ");
  if (append_class(namer, finding->block, out))
    tsr__buffer_text(out, ", called at ");
  else
    tsr__buffer_text(out, "the block called at ");
  tsr__namer_append_frame(namer, finding->frame, out);
}

/* Settings that keep less are better than a cache that is emptied by hand. */
static void append_less_cache(const tsr_finding *finding, tsr__buffer *out) {
  char size[TSR__FORMAT_BYTES], settings[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES];
  if (finding->settings_bytes)
    tsr__buffer_printf(out, "PYTORCH_CUDA_ALLOC_CONF=%s: reserves %s less (tessera whatif).",
                       tsr_allocator_settings_text(&finding->settings, settings),
                       tsr__format_size(finding->settings_bytes, size));
  else
    tsr__buffer_printf(out, "For other programs on the device: torch.cuda.empty_cache()%s.",
                       finding->is_one_moment ? "" : " before the peak");
}

/* Whether what an option saves is a lower bound, since types of tensors are not in a snapshot. */
static bool is_bound(const tsr_finding *finding, int option) {
  return option == TSR_FINDING_OPTION_FOUR_BIT ||
         (option == TSR_FINDING_OPTION_EIGHT_BIT && !finding->is_state_wide);
}

static void append_range(const tsr_finding *finding, tsr__buffer *out) {
  char size[TSR__FORMAT_BYTES];
  int least = -1, most = -1;
  for (int i = 0; i < TSR_FINDING_OPTION_COUNT; i++) {
    uint64_t bytes = finding->option_bytes[i];
    if (!bytes) continue;
    if (least < 0 || bytes < finding->option_bytes[least]) least = i;
    if (most < 0 || bytes > finding->option_bytes[most]) most = i;
  }
  if (least < 0) return;
  tsr__buffer_printf(out, ": saves %s ", is_bound(finding, least) ? "at least" : "about");
  if (finding->option_bytes[least] < finding->option_bytes[most]) {
    tsr__buffer_printf(out, "%s to ", tsr__format_size(finding->option_bytes[least], size));
    if (is_bound(finding, most)) tsr__buffer_text(out, "at least ");
  }
  tsr__buffer_printf(out, "%s.", tsr__format_size(finding->option_bytes[most], size));
}

static void add_way(const char *ways[], size_t *count, const char *first, const char *later) {
  ways[*count] = *count ? later : first;
  (*count)++;
}

/* The ways that have an option, and what they save. */
static void append_states_change(const tsr_finding *finding, tsr__buffer *out) {
  const uint64_t *saved = finding->option_bytes;
  const char *ways[4];
  size_t count = 0;
  bool divides = saved[TSR_FINDING_OPTION_ZERO1] || saved[TSR_FINDING_OPTION_FSDP];
  if (saved[TSR_FINDING_OPTION_EIGHT_BIT] || saved[TSR_FINDING_OPTION_FACTORED] ||
      saved[TSR_FINDING_OPTION_OFFLOAD])
    ways[count++] = "Change the optimizer";
  else if (saved[TSR_FINDING_OPTION_FUSED])
    ways[count++] = "Pass fused=True to the optimizer";
  if (divides) add_way(ways, &count, "Divide the model", "divide the model");
  if (saved[TSR_FINDING_OPTION_LORA])
    add_way(ways, &count, "Train less of the model",
            divides ? "train less of it" : "train less of the model");
  if (saved[TSR_FINDING_OPTION_FOUR_BIT])
    add_way(ways, &count, "Keep frozen weights in 4 bits", "keep frozen weights in 4 bits");
  for (size_t i = 0; i < count; i++)
    tsr__buffer_printf(out, "%s%s", !i ? "" : i + 1 < count ? ", " : " or ", ways[i]);
  append_range(finding, out);
}

void tsr__finding_append_change(tsr__namer *namer, const tsr_finding *finding, tsr__buffer *out) {
  char saved[TSR__FORMAT_BYTES];
  switch (finding->rule) {
  case TSR_FINDING_NO_GRAD:
    tsr__buffer_text(out, "Run the forward pass under torch.no_grad() or inference_mode()");
    break;
  case TSR_FINDING_CHECKPOINT: tsr__finding_append_block(namer, finding, out); break;
  case TSR_FINDING_ATTENTION:
    tsr__buffer_printf(out, "Use fused attention, %s", tsr_finding_call_text(finding->call));
    break;
  case TSR_FINDING_TWO_FORWARDS:
    tsr__buffer_text(out, "Release a forward pass before the next (del outputs, loss.item())");
    break;
  case TSR_FINDING_OLD_GRADIENTS:
    tsr__buffer_text(out, "Drop the gradients of an earlier model");
    break;
  case TSR_FINDING_ZERO_GRAD:
    tsr__buffer_text(out,
                     "Call optimizer.zero_grad(set_to_none=True) right after optimizer.step()");
    break;
  case TSR_FINDING_HELD_OUTPUTS:
    tsr__buffer_text(out, "Delete a step's outputs before the next step (del outputs, loss)");
    break;
  case TSR_FINDING_LEAK:
    tsr__buffer_printf(out, "Free what grows by %s in each %s (see 'tessera leaks')",
                       tsr__format_size(finding->step_bytes, saved),
                       tsr_steps_unit_name(finding->unit));
    break;
  case TSR_FINDING_STATES: append_states_change(finding, out); return;
  default: append_less_cache(finding, out); return;
  }
  tsr__buffer_printf(out, ": saves about %s.", tsr__format_size(finding->saved_bytes, saved));
}

static void append_states(const tsr_finding *finding, tsr__buffer *out) {
  char size[TSR__FORMAT_BYTES], share[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "Parameters (%s), ", tsr__format_size(finding->parameter_bytes, size));
  tsr__buffer_printf(out, "gradients (%s)%s", tsr__format_size(finding->gradient_bytes, size),
                     finding->copy_bytes ? ", " : " and ");
  tsr__buffer_printf(out, "optimizer state (%s)", tsr__format_size(finding->state_bytes, size));
  if (finding->copy_bytes)
    tsr__buffer_printf(out, " and copies in the optimizer's step (%s)",
                       tsr__format_size(finding->copy_bytes, size));
  tsr__buffer_printf(out, " are %s of the peak: neither checkpointing nor a smaller batch helps.",
                     tsr__format_percent(tsr__sum_u64(finding->bytes, finding->copy_bytes),
                                         finding->peak_bytes, share));
}

static void append_cached(const tsr_finding *finding, tsr__buffer *out) {
  char size[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "%s is cached and entirely free%s",
                     tsr__format_size(finding->bytes, size),
                     finding->is_one_moment ? "" : " when most is allocated");
  if (finding->settings_bytes)
    tsr__buffer_text(out, "; torch.cuda.empty_cache() before the peak would release that alone");
  tsr__buffer_text(out, ".");
}

static void append_gradients(const tsr_finding *finding, tsr__buffer *out) {
  char size[TSR__FORMAT_BYTES], number[TSR__FORMAT_BYTES];
  bool is_older = finding->is_before_recording;
  tsr__buffer_printf(out, "%s gradients (%s) %s are alive at the peak, ",
                     tsr__format_count(finding->count, number),
                     tsr__format_size(finding->bytes, size),
                     is_older ? "from before the recording" : "of the step before");
  if (!is_older)
    tsr__buffer_text(out, "which is before this step's backward pass.");
  else if (finding->has_backward)
    tsr__buffer_text(out, "which is before its first backward pass.");
  else
    tsr__buffer_text(out, "and nothing in it runs backward. Keep them if they accumulate.");
}

void tsr__finding_append_evidence(const tsr_finding *finding, tsr__buffer *out) {
  char size[TSR__FORMAT_BYTES], number[TSR__FORMAT_BYTES];
  (void)tsr__format_size(finding->bytes, size);
  (void)tsr__format_count(finding->count, number);
  switch (finding->rule) {
  case TSR_FINDING_NO_GRAD:
    tsr__buffer_printf(
        out, "No backward pass runs, yet %s in %s allocations is kept for a backward pass.", size,
        number);
    break;
  case TSR_FINDING_CHECKPOINT:
    tsr__buffer_printf(out, "%s equal blocks keep %s each; use %s.", number, size,
                       tsr_finding_call_text(finding->call));
    if (!finding->has_backward)
      tsr__buffer_text(out, " If no backward pass follows, use torch.no_grad() instead.");
    break;
  case TSR_FINDING_ATTENTION:
    tsr__buffer_printf(
        out,
        "%s tensors of attention weights (%s) are kept for the backward pass; they grow with "
        "the square of the sequence.",
        number, size);
    break;
  case TSR_FINDING_TWO_FORWARDS:
    tsr__buffer_printf(out, "%s forward passes are alive at once; %s is of earlier ones.", number,
                       size);
    break;
  case TSR_FINDING_OLD_GRADIENTS:
    tsr__buffer_printf(out, "%s gradients (%s) are older than the model that is being trained.",
                       number, size);
    break;
  case TSR_FINDING_ZERO_GRAD:
    append_gradients(finding, out);
    if (finding->saved_bytes < finding->bytes)
      tsr__buffer_text(out, " Without them, another moment is the peak.");
    break;
  case TSR_FINDING_HELD_OUTPUTS:
    tsr__buffer_printf(out, "%s in %s allocation%s of the step before is alive at the peak.", size,
                       number, tsr__plural(finding->count));
    break;
  case TSR_FINDING_LEAK:
    tsr__buffer_printf(out, "%s in %s allocation%s that are never freed is alive at the peak.",
                       size, number, tsr__plural(finding->count));
    break;
  case TSR_FINDING_STATES: append_states(finding, out); break;
  default: append_cached(finding, out); break;
  }
}

void tsr__finding_append_options(const tsr_finding *finding, tsr__buffer *out) {
  char size[TSR__FORMAT_BYTES];
  bool is_first = true;
  for (int i = 0; i < TSR_FINDING_OPTION_COUNT; i++) {
    if (!finding->option_bytes[i]) continue;
    tsr__buffer_printf(out, "%s%s%s by %s", is_first ? "Saved: " : ", ",
                       is_bound(finding, i) ? "at least " : "",
                       tsr__format_size(finding->option_bytes[i], size),
                       tsr_finding_option_text((tsr_finding_option)i));
    is_first = false;
  }
  if (!is_first) tsr__buffer_text(out, ".");
}

static bool has_frames(const tsr_snapshot *snapshot, uint32_t stack) {
  return stack != TSR_NONE && tsr_snapshot_stack(snapshot, stack).depth;
}

void tsr__finding_append_place(tsr__namer *namer, const tsr_finding *finding, tsr__buffer *out) {
  if (!has_frames(namer->snapshot, finding->stack)) return;
  tsr__buffer_text(out, finding->is_most   ? "Most of it: "
                        : finding->is_tied ? "One of its largest parts: "
                                           : "The largest part of it: ");
  tsr__namer_append(namer, TSR__LABEL_LINE, finding->stack, out);
}

size_t tsr__findings_lines(const tsr_snapshot *snapshot, const tsr_finding *findings,
                           size_t count) {
  enum { HEADING = 2, CHANGE_AND_EVIDENCE = 2, OPTIONS = 3 };
  size_t lines = count ? (size_t)HEADING : 0;
  for (size_t i = 0; i < count; i++) {
    lines += CHANGE_AND_EVIDENCE + (size_t)has_frames(snapshot, findings[i].stack);
    if (findings[i].rule == TSR_FINDING_STATES) lines += OPTIONS;
    lines += findings[i].settings_bytes != 0;
  }
  return lines;
}

void tsr__finding_print_evidence(tsr__stack_printer *printer, const tsr_finding *finding) {
  tsr__emitter *emitter = printer->emitter;
  tsr__namer *namer = tsr__stack_namer(printer);
  if (!tsr__emitter_is_text(emitter) || !namer) return;
  tsr__finding_append_evidence(finding, &emitter->scratch);
  tsr__emit_paragraph(emitter, TSR__PLAIN, 4);
  if (finding->rule == TSR_FINDING_STATES) {
    tsr__finding_append_options(finding, &emitter->scratch);
    tsr__emit_paragraph(emitter, TSR__PLAIN, 4);
  }
  if (!has_frames(printer->snapshot, finding->stack)) return;
  tsr__finding_append_place(namer, finding, &emitter->scratch);
  tsr__emit_line(emitter, TSR__PLAIN, 4);
}

void tsr__findings_print(tsr__stack_printer *printer, const char *heading,
                         const tsr_finding *findings, size_t count) {
  tsr__emitter *emitter = printer->emitter;
  if (!tsr__emitter_is_text(emitter) || !count) return;
  if (heading) {
    tsr__emit_space(emitter);
    tsr__emit_printf(emitter, TSR__BOLD, "%s%s:", heading,
                     count > 1 ? " (estimates, each by itself)" : "");
  }
  tsr__namer *namer = tsr__stack_namer(printer);
  for (size_t i = 0; namer && i < count; i++) {
    tsr__finding_append_change(namer, &findings[i], &emitter->scratch);
    tsr__emit_line(emitter, TSR__PLAIN, 2);
    tsr__finding_print_evidence(printer, &findings[i]);
  }
}
