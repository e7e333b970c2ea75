/* report.c - the counts as text or JSON. */
#include <inttypes.h>

#include "emit/heading.h"
#include "toy.h"

int tsr__toy_report(const tsr_report_input *input, const tsr__toy *toy,
                    const tsr_report_options *options, tsr_write_fn *write, void *context,
                    tsr_error *error) {
  tsr__emitter emitter;
  tsr__emitter_init(&emitter, options, write, context);
  tsr__heading_open(&emitter, &tsr__fields_toy, input);
  for (size_t i = 0; i < toy->device_count; i++) {
    tsr__emit_printf(&emitter, TSR__VERDICT, "Device %" PRIu32 ": it happens %" PRIu64 " times.",
                     toy->devices[i], toy->counts[i]);
    tsr__emit_object(&emitter, NULL);
    tsr__emit_field(&emitter, "device", NULL, tsr__count(toy->devices[i]));
    tsr__emit_field(&emitter, "events", NULL, tsr__count(toy->counts[i]));
    tsr__emit_end(&emitter);
  }
  return tsr__heading_close(&emitter, input, NULL, error);
}
