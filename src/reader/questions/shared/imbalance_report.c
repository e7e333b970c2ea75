/* imbalance_report.c - see imbalance.h. */
#include "base/format.h"
#include "emit/text.h"
#include "questions/shared/imbalance.h"

static void print(tsr__emitter *emitter, const tsr_imbalance *found) {
  char title[TSR__FORMAT_BYTES], size[TSR__FORMAT_BYTES];
  tsr__buffer *out = &emitter->scratch;
  tsr__emit_space(emitter);
  tsr__buffer_printf(out, "The %zu devices are not used alike: %s", found->device_count,
                     tsr__device_name(found->device, title));
  tsr__buffer_printf(out, " peaks at %s", tsr__format_size(found->peak_bytes, size));
  tsr__buffer_printf(out, ", %s only", tsr__device_name(found->least_device, title));
  tsr__buffer_printf(out, " at %s", tsr__format_size(found->least_peak_bytes, size));
  tsr__buffer_printf(out, "; used alike, each would need about %s.",
                     tsr__format_size(found->mean_peak_bytes, size));
  if (found->is_data_parallel)
    tsr__buffer_text(out,
                     " The program uses nn.DataParallel, which gathers all outputs on one device: "
                     "use DistributedDataParallel, or compute the loss inside the model.");
  tsr__emit_paragraph(emitter, TSR__VERDICT, 0);
}

void tsr__imbalance_emit(tsr__emitter *emitter, const tsr_imbalance *found) {
  if (tsr__emitter_is_text(emitter)) {
    if (found->device_count) print(emitter, found);
    return;
  }
  if (!found->device_count) {
    tsr__emit_field(emitter, "imbalance", NULL, tsr__nothing());
    return;
  }
  tsr__emit_object(emitter, "imbalance");
  tsr__emit_field(emitter, "device", NULL, tsr__device(found->device));
  tsr__emit_field(emitter, "peak_bytes", NULL, tsr__bytes(found->peak_bytes));
  tsr__emit_field(emitter, "least_device", NULL, tsr__device(found->least_device));
  tsr__emit_field(emitter, "least_peak_bytes", NULL, tsr__bytes(found->least_peak_bytes));
  tsr__emit_field(emitter, "mean_peak_bytes", NULL, tsr__bytes(found->mean_peak_bytes));
  tsr__emit_field(emitter, "devices_at_work", NULL, tsr__count(found->device_count));
  tsr__emit_field(emitter, "data_parallel", NULL, tsr__bool(found->is_data_parallel));
  tsr__emit_end(emitter);
}
