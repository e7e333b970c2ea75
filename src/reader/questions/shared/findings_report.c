/* findings_report.c - see findings.h.
 *
 *   What to do:
 *     Checkpoint the block called at model.py:125: saves about 11.00 GiB.
 *       12 equal blocks keep 1.02 GiB each.
 *       Most of it: nn_utils.py:6 softmax
 */
#include "questions/shared/findings.h"

#include "base/format.h"

/* ---- JSON ---- */

static void emit_finding(tsr__stack_printer *printer, const tsr_finding *finding) {
  tsr__emitter *emitter = printer->emitter;
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "rule", NULL, tsr__string(tsr_finding_rule_name(finding->rule)));
  tsr__emit_field(emitter, "bytes", NULL, tsr__bytes(finding->bytes));
  tsr__emit_field(emitter, "saved_bytes", NULL, tsr__bytes(finding->saved_bytes));
  tsr__emit_field(emitter, "count", NULL,
                  finding->count ? tsr__count(finding->count) : tsr__nothing());
  tsr__emit_field(emitter, "event", NULL, tsr__index(finding->event));
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

const char tsr__how_to_record[] =
    "The file shows one moment. For a trace, call torch.cuda.memory._record_memory_history() "
    "before the model is made and _dump_snapshot() later, or run the job in `with "
    "tessera.record():`.";

void tsr__finding_append_change(tsr__namer *namer, const tsr_finding *finding, tsr__buffer *out) {
  char saved[TSR__FORMAT_BYTES];
  switch (finding->rule) {
  case TSR_FINDING_NO_GRAD:
    tsr__buffer_text(out, "Run the forward pass under torch.no_grad() or inference_mode()");
    break;
  case TSR_FINDING_CHECKPOINT:
    tsr__buffer_text(out, "Checkpoint the block called at ");
    tsr__namer_append_frame(namer, finding->frame, out);
    break;
  case TSR_FINDING_TWO_FORWARDS:
    tsr__buffer_text(out, "Release a forward pass before the next (del outputs, loss.item())");
    break;
  case TSR_FINDING_OLD_GRADIENTS:
    tsr__buffer_text(out, "Drop the gradients of an earlier model");
    break;
  default:
    tsr__buffer_text(out,
                     "For other programs on the device: torch.cuda.empty_cache() before the peak.");
    return;
  }
  tsr__buffer_printf(out, ": saves about %s.", tsr__format_size(finding->saved_bytes, saved));
}

void tsr__finding_append_evidence(const tsr_finding *finding, tsr__buffer *out) {
  char size[TSR__FORMAT_BYTES], number[TSR__FORMAT_BYTES];
  (void)tsr__format_size(finding->bytes, size);
  (void)tsr__format_count(finding->count, number);
  switch (finding->rule) {
  case TSR_FINDING_NO_GRAD:
    tsr__buffer_printf(out, "No backward pass runs, yet %s in %s allocations is saved for one.",
                       size, number);
    break;
  case TSR_FINDING_CHECKPOINT:
    tsr__buffer_printf(out, "%s equal blocks keep %s each.", number, size);
    if (!finding->has_backward)
      tsr__buffer_text(out, " If no backward pass follows, use torch.no_grad() instead.");
    break;
  case TSR_FINDING_TWO_FORWARDS:
    tsr__buffer_printf(out, "%s forward passes are alive at once; %s is of earlier ones.", number,
                       size);
    break;
  case TSR_FINDING_OLD_GRADIENTS:
    tsr__buffer_printf(out, "%s gradients (%s) are older than the model that is being trained.",
                       number, size);
    break;
  default: tsr__buffer_printf(out, "%s is cached and entirely free at the peak.", size); break;
  }
}

static bool has_frames(const tsr_snapshot *snapshot, uint32_t stack) {
  return stack != TSR_NONE && tsr_snapshot_stack(snapshot, stack).depth;
}

void tsr__finding_append_place(tsr__namer *namer, const tsr_finding *finding, tsr__buffer *out) {
  if (!has_frames(namer->snapshot, finding->stack)) return;
  tsr__buffer_text(out, "Most of it: ");
  tsr__namer_append(namer, TSR__LABEL_LINE, finding->stack, out);
}

size_t tsr__findings_lines(const tsr_snapshot *snapshot, const tsr_finding *findings,
                           size_t count) {
  enum { HEADING = 2, CHANGE_AND_EVIDENCE = 2 };
  size_t lines = count ? (size_t)HEADING : 0;
  for (size_t i = 0; i < count; i++)
    lines += CHANGE_AND_EVIDENCE + (size_t)has_frames(snapshot, findings[i].stack);
  return lines;
}

void tsr__finding_print_evidence(tsr__stack_printer *printer, const tsr_finding *finding) {
  tsr__emitter *emitter = printer->emitter;
  tsr__namer *namer = tsr__stack_namer(printer);
  if (!tsr__emitter_is_text(emitter) || !namer) return;
  tsr__finding_append_evidence(finding, &emitter->scratch);
  tsr__emit_line(emitter, TSR__PLAIN, 4);
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
    tsr__emit_printf(emitter, TSR__BOLD, "%s", heading);
  }
  tsr__namer *namer = tsr__stack_namer(printer);
  for (size_t i = 0; namer && i < count; i++) {
    tsr__finding_append_change(namer, &findings[i], &emitter->scratch);
    tsr__emit_line(emitter, TSR__PLAIN, 2);
    tsr__finding_print_evidence(printer, &findings[i]);
  }
}
