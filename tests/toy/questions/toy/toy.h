/* toy.h - a question that exists for the tests: how many events take or free at least so much? */
#ifndef TSR_QUESTIONS_TOY_H
#define TSR_QUESTIONS_TOY_H

#include "emit/fields.h"
#include "tessera/study.h"
#include "tessera/unstable/columns.h"
#include "tessera/unstable/input.h"

typedef struct tsr__toy {
  size_t device_count;
  uint32_t devices[64];
  uint64_t counts[64]; /* by device: its events of the action, of `least_bytes` or more */
} tsr__toy;

extern const tsr_record tsr__fields_toy;

/* Count on each device, of the first 64. Linear in events. Fails with TSR_ERROR_MEMORY. */
int tsr__toy_compute(tsr_study *study, tsr_action action, uint64_t least_bytes, tsr__toy **out,
                     tsr_error *error);
/* Write it, as tsr__report_peak does. */
int tsr__toy_report(const tsr_report_input *input, const tsr__toy *toy,
                    const tsr_report_options *options, tsr_write_fn *write, void *context,
                    tsr_error *error);

#endif
